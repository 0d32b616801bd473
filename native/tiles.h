// Sums over tiles of parameters and combinations of them, in register blocks: what the passes over a
// belief's arrays are made of. For files as in vectors.h.
#pragma once
#include "vectors.h"

namespace bayestream {
namespace {

constexpr Index kStride = kTile + 64 / sizeof(Real);    // between rows: not a power of two, so
                                                        // that they do not compete for cache sets
constexpr Index kGroup = VECTOR_BYTES == 64 ? 5 : 3;    // rows of a register block
constexpr Index kMixed = VECTOR_BYTES == 64 ? 6 : 4;    // the same, where rows are combined
constexpr Index kVectors = VECTOR_BYTES == 64 ? 4 : 2;  // vectors beside them

template <Index kNumber>
struct Number {
  static constexpr Index value = kNumber;
};

// visit(Number<count>()), of a count from 1 to kMost.
template <Index kMost, typename Visit>
BAYESTREAM_INLINE void exactly(Index count, const Visit& visit) {
  if (count == kMost) return visit(Number<kMost>());
  if constexpr (kMost > 1) exactly<kMost - 1>(count, visit);
}

// Where row i of a lower triangle begins.
constexpr Index triangle(Index i) { return i * (i + 1) / 2; }

// sums[i][j] += x_i w y_j over `stop` parameters, w being one unless kWeighed: one register block, its
// lanes added up at the end. Rows of sums are `apart`, and in a triangle each one longer than the one
// before. Of a block on its diagonal, where x and y are the same rows, only i >= j.
enum class Shape { kRectangle, kTriangle, kDiagonal };
template <Index kRows, Index kColumns, Shape kShape, bool kWeighed>
__attribute__((noinline)) void multiply_block(const Real* x, const Real* w, const Real* y,
                                              Index stop, Index apart, Real* sums) {
  constexpr bool kLower = kShape == Shape::kDiagonal;
  const auto at = [&](Index i, Index j) {
    return sums + (i * apart + (kShape == Shape::kRectangle ? 0 : triangle(i)) + j) * kWidth;
  };
  Vec sum[kRows][kColumns];
  const auto each = [](auto visit) __attribute__((always_inline)) {
    UNROLL for (Index i = 0; i < kRows; ++i)
      UNROLL for (Index j = 0; j < kColumns; ++j)
        if (!kLower || j <= i) visit(i, j);
  };
  each([&](Index i, Index j) { sum[i][j] = load(at(i, j)); });
  for (Index t = 0; t < stop; t += kWidth) {
    Vec beside[kColumns];
    UNROLL for (Index j = 0; j < kColumns; ++j) beside[j] = load(y + j * kStride + t);
    UNROLL for (Index i = 0; i < kRows; ++i) {
      Vec row = load(x + i * kStride + t);
      if (kWeighed) row *= load(w + t);
      UNROLL for (Index j = 0; j < kColumns; ++j)
        if (!kLower || j <= i) sum[i][j] += row * beside[j];
    }
  }
  each([&](Index i, Index j) { store(at(i, j), sum[i][j]); });
}

// A few rows x times the first `count` of the rows y.
template <Index kRows, Shape kShape, bool kWeighed>
inline void multiply_rows(const Real* x, const Real* w, const Real* y, Index count, Index stop,
                          Index apart, Real* sums) {
  Index j = 0;
  for (; j + kGroup <= count; j += kGroup)
    multiply_block<kRows, kGroup, kShape, kWeighed>(x, w, y + j * kStride, stop, apart,
                                                    sums + j * kWidth);
  exactly<kGroup - 1>(count - j, [&](auto rest) {
    multiply_block<kRows, decltype(rest)::value, kShape, kWeighed>(x, w, y + j * kStride, stop,
                                                                   apart, sums + j * kWidth);
  });
}

// Of a triangle of sums, a group of rows: tiles from `first` on times all tiles up to themselves.
template <bool kWeighed>
inline void multiply(const Real* tiles, Index first, Index rows, const Real* w, Index stop,
                     Real* sums) {
  const Real* x = tiles + first * kStride;
  Real* to = sums + triangle(first) * kWidth;
  exactly<kGroup>(rows, [&](auto number) {
    constexpr Index kRows = decltype(number)::value;
    multiply_rows<kRows, Shape::kTriangle, kWeighed>(x, w, tiles, first, stop, first, to);
    multiply_block<kRows, kRows, Shape::kDiagonal, kWeighed>(x, w, x, stop, first,
                                                            to + first * kWidth);
  });
}

// Of a rectangle of sums, a group of rows: x times `count` tiles y.
inline void multiply_across(const Real* x, Index rows, const Real* y, Index count, Index stop,
                            Real* sums) {
  exactly<kGroup>(rows, [&](auto number) {
    multiply_rows<decltype(number)::value, Shape::kRectangle, false>(x, nullptr, y, count, stop,
                                                                    count, sums);
  });
}

// sum[i] += sum_l mix[i][l] tile_l, over one register block; rows of `mix` are `apart`, tiles `stride`.
template <Index kRows>
BAYESTREAM_INLINE void add_tiles(Vec (&sum)[kRows][kVectors], const Real* mix, Index apart,
                                 const Real* tile, Index stride, Index count) {
  for (Index l = 0; l < count; ++l, ++mix, tile += stride) {
    Vec old[kVectors];
    UNROLL for (Index j = 0; j < kVectors; ++j) old[j] = load(tile + j * kWidth);
    UNROLL for (Index i = 0; i < kRows; ++i)
      UNROLL for (Index j = 0; j < kVectors; ++j) sum[i][j] += mix[i * apart] * old[j];
  }
}

// Sums of lanes, many at once since one alone would wait for itself: `count` vectors become numbers, in
// place; what lies beyond the last must be ours up to a whole number of vectors.
inline void add_all_lanes(Real* sums, Index count) {
  for (Index t = 0; t < count; t += kWidth) {
    Vec vectors[kWidth];
    for (Index w = 0; w < kWidth; ++w) vectors[w] = load(sums + (t + w) * kWidth);
    store(sums + t, add_lanes(vectors));
  }
}

}  // namespace
}  // namespace bayestream
