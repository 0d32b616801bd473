// Vectors of one instruction set and precision, for the files that are compiled once for each:
// with -DREAL=float|double, -DVARIANT=<name> and -DVECTOR_BYTES=16|32|64. Only builtins here and
// there: an inline function of the standard library, compiled for one instruction set, could be
// linked in where an older one is needed.
#pragma once
#include "kernels.h"

namespace bayestream {
namespace {

// Register blocks are arrays of constant size; unrolled, they live in registers.
#define UNROLL _Pragma("GCC unroll 8")

using Real = REAL;
typedef Real Vec __attribute__((vector_size(VECTOR_BYTES)));
typedef Real Loose __attribute__((vector_size(VECTOR_BYTES), aligned(sizeof(Real)), may_alias));

constexpr Index kWidth = VECTOR_BYTES / sizeof(Real);

inline Vec load(const Real* p) { return *reinterpret_cast<const Loose*>(p); }
inline void store(Real* p, Vec v) { *reinterpret_cast<Loose*>(p) = v; }
// The next address where a vector does not straddle two cache lines; costs up to kLine numbers.
constexpr Index kLine = 64 / sizeof(Real);
inline Real* aligned(Real* p) {
  return reinterpret_cast<Real*>((reinterpret_cast<std::uintptr_t>(p) + 63) / 64 * 64);
}
inline Index min(Index a, Index b) { return a < b ? a : b; }
inline Index max(Index a, Index b) { return a > b ? a : b; }
inline Index padded(Index count) { return (count + kWidth - 1) / kWidth * kWidth; }

// By halves, which vectors add at once.
inline double add_lanes(const Real* lanes) {
  typedef double Wide __attribute__((vector_size(kWidth * sizeof(double))));
  const Wide wide = __builtin_convertvector(load(lanes), Wide);
  double sums[kWidth];
  __builtin_memcpy(sums, &wide, sizeof(sums));
#pragma GCC unroll 8
  for (Index half = kWidth / 2; half > 0; half /= 2)
    for (Index w = 0; w < half; ++w) sums[w] += sums[w + half];
  return sums[0];
}

// Of vectors a and b, pair by pair, the sums of lanes kApart from each other: in lanes w with w & kApart
// b's, in the others a's.
template <Index kApart>
inline Vec add_pairs(Vec a, Vec b) {
  typedef decltype(a < b) Lanes;
  Lanes low = {}, high = {};
  for (Index w = 0; w < kWidth; ++w) {
    low[w] = w & kApart ? kWidth + w - kApart : w;
    high[w] = low[w] + kApart;
  }
  return __builtin_shuffle(a, b, low) + __builtin_shuffle(a, b, high);
}

// The sum of each of kWidth vectors, in order, from 2 kApart lanes' sums on.
template <Index kApart = 1>
inline Vec add_lanes(const Vec* vectors) {
  Vec halves[kWidth / kApart / 2];
  UNROLL for (Index i = 0; i < kWidth / kApart / 2; ++i)
    halves[i] = add_pairs<kApart>(vectors[2 * i], vectors[2 * i + 1]);
  if constexpr (2 * kApart < kWidth)
    return add_lanes<2 * kApart>(halves);
  else
    return halves[0];
}

// sum_o w_o x_o y_o, and without w; many sums at once, since the order of one is fixed.
inline double dot(const Real* x, const Real* y, const Real* w, Index count) {
  Vec sum = {};
  Index t = 0;
  for (; t + kWidth <= count; t += kWidth)
    sum += load(x + t) * load(y + t) * (w ? load(w + t) : Vec{} + 1);
  double total = add_lanes(reinterpret_cast<const Real*>(&sum));
  for (; t < count; ++t) total += x[t] * y[t] * (w ? w[t] : Real(1));
  return total;
}

// Loops left to the compiler: `out` never overlaps the rest.
inline void scale(Real* __restrict out, Real a, const Real* __restrict x, Index count) {
  for (Index t = 0; t < count; ++t) out[t] = a * x[t];
}
inline void scale(Real* __restrict out, const Real* __restrict w, const Real* __restrict x,
                  Index count) {
  for (Index t = 0; t < count; ++t) out[t] = w[t] * x[t];
}
template <typename Number>
inline void add(Number* __restrict out, Number a, const Number* __restrict x, Index count) {
  for (Index t = 0; t < count; ++t) out[t] += a * x[t];
}
inline void copy(Real* __restrict out, const Real* __restrict x, Index count) {
  for (Index t = 0; t < count; ++t) out[t] = x[t];
}
inline void clear(Real* out, Index begin, Index end) {
  for (Index t = begin; t < end; ++t) out[t] = 0;
}

}  // namespace

}  // namespace bayestream
