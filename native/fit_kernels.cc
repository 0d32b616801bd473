// The two passes of a sweep of EM for factor analysis, and the matrices between them, for one
// instruction set and precision; see vectors.h.
#include "tiles.h"

namespace bayestream {
namespace {

constexpr Index kSpan = kVectors * kWidth;              // parameters of a stretch, in the second pass
constexpr Index kApart = kSpan + 64 / sizeof(Real);     // its rows: not a power of two either

// Rows so far `apart` of numbers so far `size`: `width` of each, times w, and zeros up to `span`.
inline void read_rows(const Real* rows, Index count, Index size, const Real* w, Index width,
                      Index span, Real* to, Index apart) {
  for (Index r = 0; r < count; ++r, rows += size, to += apart) {
    if (w)
      scale(to, w, rows, width);
    else
      copy(to, rows, width);
    clear(to, width, span);
  }
}

// Where the first pass keeps its tiles and its sums.
struct GramMemory {
  Real *psi, *inverse, *diag;  // (kTile)
  Real *a, *f;                 // (L, kStride) and (rows, kStride)
  Real *own, *weighed;         // triangles of vectors (L): A psi A' and A D A'
  Real *across, *end;          // vectors (rows, L): F A'

  GramMemory(const Fit<Real>& task, Real* memory)
      : psi(aligned(memory)),
        inverse(psi + kTile),
        diag(inverse + kTile),
        a(diag + kTile),
        f(a + task.rank * kStride),
        own(f + task.rows * kStride),
        weighed(own + triangle(task.rank) * kWidth),
        across(weighed + triangle(task.rank) * kWidth),
        end(across + task.rows * task.rank * kWidth) {}
};

void gram(const Fit<Real>& task, Index begin, Index end, Real* memory, double* own, double* goal) {
  const Index rank = task.rank, rows = task.rows, size = task.size;
  const GramMemory at(task, memory);
  clear(at.own, 0, at.end - at.own);
  for (Index t = begin; t < end; t += kTile) {
    const Index width = min(kTile, end - t), span = padded(width);
    read_rows(task.psi + t, 1, size, nullptr, width, span, at.psi, 0);
    read_rows(task.goal_diag + t, 1, size, nullptr, width, span, at.diag, 0);
    for (Index i = 0; i < width; ++i) at.inverse[i] = 1 / at.psi[i];
    read_rows(task.factor + t, rank, size, at.inverse, width, span, at.a, kStride);
    read_rows(task.goal_factor + t, rows, size, nullptr, width, span, at.f, kStride);
    for (Index l = 0; l < rank; l += kGroup) {
      multiply<true>(at.a, l, min(kGroup, rank - l), at.psi, span, at.own);
      multiply<true>(at.a, l, min(kGroup, rank - l), at.diag, span, at.weighed);
    }
    for (Index r = 0; r < rows; r += kGroup)
      multiply_across(at.f + r * kStride, min(kGroup, rows - r), at.a, rank, span,
                      at.across + r * rank * kWidth);
  }
  add_all_lanes(at.own, 2 * triangle(rank) + rows * rank);
  const Real* sums = at.own;
  for (Index i = 0; i < rank; ++i)
    for (Index j = 0; j <= i; ++j) own[i * rank + j] += *sums++;
  for (Index i = 0; i < rank; ++i)
    for (Index j = 0; j <= i; ++j) goal[i * rank + j] += *sums++;
  for (Index r = 0; r < rows; ++r)
    for (Index j = 0; j < rank; ++j) goal[(rank + r) * rank + j] += *sums++;
}

// Rows of doubles so many apart, a whole number of vectors.
inline Index even(Index rank) { return (rank + 7) / 8 * 8; }

Index mix_memory(Index rank, Index rows) {
  return BAYESTREAM_NAME(VARIANT, small, REAL)().memory(rank, rank) + 6 * rank * rank +
         (2 * rank + rows) * even(rank);
}

// x (rows, count) of rows so far `apart` to numbers of another kind; turned, as (count, rows).
inline void round(const double* x, Index rows, Index apart, Index count, Real* to) {
  for (Index i = 0; i < rows; ++i)
    for (Index j = 0; j < count; ++j) to[i * count + j] = static_cast<Real>(x[i * apart + j]);
}
inline void round_turned(const double* x, Index rows, Index apart, Index count, Real* to) {
  for (Index i = 0; i < rows; ++i)
    for (Index j = 0; j < count; ++j) to[j * rows + i] = static_cast<Real>(x[i * apart + j]);
}

void mix(const Fit<Real>& task, const double* own, const double* goal, double* memory,
         const FitMix<Real>& to) {
  const Index rank = task.rank, rows = task.rows, squared = rank * rank, stride = even(rank);
  const SmallKernels small = BAYESTREAM_NAME(VARIANT, small, REAL)();
  double *white = memory, *root = white + squared, *from_diag = root + squared;
  double *gram = from_diag + squared, *none = gram + squared, *half = none + squared;
  double *turned = half + squared, *shared = turned + rank * stride;  // rows so far `stride`
  double *inner = shared + rows * stride, *spare = inner + rank * stride;
  // R^-1 and R, and with B = R^-1 A what is made of the sums: B D B', and F B' row by row.
  small.turn(rank, rank, goal, own, white, from_diag, root, spare);
  for (Index k = 0; k < rank; ++k)
    for (Index i = 0; i < stride; ++i) turned[k * stride + i] = i < rank ? white[i * rank + k] : 0;
  for (Index r = 0; r < rows; ++r) {
    double* row = shared + r * stride;
    const double* sums = goal + (rank + r) * rank;
    for (Index i = 0; i < stride; ++i) row[i] = 0;
    for (Index k = 0; k < rank; ++k) add(row, sums[k], turned + k * stride, stride);
  }
  for (Index i = 0; i < rank; ++i)
    for (Index j = 0; j < stride; ++j)
      inner[i * stride + j] = j < rank ? from_diag[i * rank + j] : 0;
  for (Index r = 0; r < rows; ++r)
    for (Index i = 0; i < rank; ++i)
      add(inner + i * stride, shared[r * stride + i], shared + r * stride, even(i + 1));
  for (Index i = 0; i < rank; ++i)
    for (Index j = 0; j < rank; ++j) {
      gram[i * rank + j] = inner[i * stride + j];
      none[i * rank + j] = 0;
    }
  round(white, rank, rank, rank, to.white);
  round(root, rank, rank, rank, to.root);
  round(from_diag, rank, rank, rank, to.from_diag);
  round(shared, rows, stride, rank, to.shared);
  round_turned(shared, rows, stride, rank, to.transposed);
  // H alone: there is nothing to turn, and what would be its gram goes where R was.
  small.turn(rank, rank, none, gram, half, root, nullptr, spare);
  round(half, rank, rank, rank, to.inner);
  round_turned(half, rank, rank, rank, to.inner_again);
}

// mix (count, terms) times rows, over a stretch; of a triangle only what is not zero.
enum class Part { kAll, kLower, kUpper };
template <Part kPart>
inline void combine(const Real* mix, Index count, Index terms, const Real* rows, Real* out) {
  for (Index i = 0; i < count; i += kMixed)
    exactly<kMixed>(min(kMixed, count - i), [&](auto number) {
      constexpr Index kRows = decltype(number)::value;
      const Index first = kPart == Part::kUpper ? i : 0;
      const Index last = kPart == Part::kLower ? i + kRows : terms;
      Vec sum[kRows][kVectors] = {};
      add_tiles<kRows>(sum, mix + i * terms + first, terms, rows + first * kApart, kApart,
                       last - first);
      UNROLL for (Index k = 0; k < kRows; ++k)
        UNROLL for (Index j = 0; j < kVectors; ++j)
          store(out + (i + k) * kApart + j * kWidth, sum[k][j]);
    });
}

// out += x y, over a stretch of each row.
inline void add_products(const Real* x, const Real* y, Index rows, Real* out) {
  Vec sum[kVectors];
  UNROLL for (Index j = 0; j < kVectors; ++j) sum[j] = load(out + j * kWidth);
  for (Index r = 0; r < rows; ++r)
    UNROLL for (Index j = 0; j < kVectors; ++j)
      sum[j] += load(x + r * kApart + j * kWidth) * load(y + r * kApart + j * kWidth);
  UNROLL for (Index j = 0; j < kVectors; ++j) store(out + j * kWidth, sum[j]);
}

// Where the second pass keeps a stretch of each row; some of it takes another's place.
struct Stretch {
  Real *a, *b, *v;                 // (L): A, B and V; in place of A, B S, then B D B' V and the next W
  Real *f, *left;                  // (rows): F, and what V leaves of it
  Real *inverse, *diag;            // 1 / psi, D
  Real *explained, *other, *rest;  // sums of V B, of V B D B' V, and of squares of V and what is left
  Real* end;

  Stretch(const Fit<Real>& task, Real* memory)
      : a(aligned(memory)),
        b(a + task.rank * kApart),
        v(b + task.rank * kApart),
        f(v + task.rank * kApart),
        left(f + task.rows * kApart),
        inverse(left + max(task.rows, task.rank) * kApart),
        diag(inverse + kSpan),
        explained(diag + kSpan),
        other(explained + kSpan),
        rest(other + kSpan),
        end(rest + kSpan) {}
};

void apply(const Fit<Real>& task, const FitMix<Real>& mix, Index begin, Index end, Real* memory) {
  const Index rank = task.rank, rows = task.rows, size = task.size;
  const Stretch at(task, memory);
  for (Index t = begin; t < end; t += kSpan) {
    const Index width = min(kSpan, end - t);
    for (Index i = 0; i < width; ++i) at.inverse[i] = 1 / task.psi[t + i];
    read_rows(task.goal_diag + t, 1, size, nullptr, width, kSpan, at.diag, 0);
    read_rows(task.factor + t, rank, size, at.inverse, width, kSpan, at.a, kApart);
    read_rows(task.goal_factor + t, rows, size, nullptr, width, kSpan, at.f, kApart);
    clear(at.explained, 0, at.end - at.explained);
    // V = H' H B S, where B S is B F' F + B D.
    combine<Part::kLower>(mix.white, rank, rank, at.a, at.b);
    combine<Part::kAll>(mix.transposed, rank, rows, at.f, at.a);
    for (Index l = 0; l < rank; ++l)
      for (Index i = 0; i < kSpan; ++i) at.a[l * kApart + i] += at.b[l * kApart + i] * at.diag[i];
    combine<Part::kLower>(mix.inner, rank, rank, at.a, at.left);
    combine<Part::kUpper>(mix.inner_again, rank, rank, at.left, at.v);
    add_products(at.v, at.b, rank, at.explained);
    combine<Part::kAll>(mix.from_diag, rank, rank, at.v, at.a);
    add_products(at.v, at.a, rank, at.other);
    combine<Part::kAll>(mix.shared, rows, rank, at.v, at.left);
    for (Index r = 0; r < rows; ++r)
      for (Index i = 0; i < kSpan; ++i)
        at.left[r * kApart + i] = at.f[r * kApart + i] - at.left[r * kApart + i];
    add_products(at.left, at.left, rows, at.rest);
    add_products(at.v, at.v, rank, at.rest);
    combine<Part::kLower>(mix.root, rank, rank, at.v, at.a);
    for (Index l = 0; l < rank; ++l) copy(task.factor + l * size + t, at.a + l * kApart, width);
    for (Index i = 0; i < width; ++i) {
      const Real e = at.explained[i], d = at.diag[i];
      const Real least = (1 - e) * (1 - e) * d;  // a term of its sum of squares
      const Real sum = (1 - 2 * e) * d + at.other[i];
      task.psi[t + i] = (sum < least ? least : sum) + at.rest[i];
    }
  }
}

Index memory(const Fit<Real>& task) {
  const Index first = GramMemory(task, nullptr).end - static_cast<Real*>(nullptr);
  const Index second = Stretch(task, nullptr).end - static_cast<Real*>(nullptr);
  return max(first + kWidth * kWidth, second) + kLine;
}

}  // namespace

FitKernels<REAL> BAYESTREAM_NAME(VARIANT, fit, REAL)() {
  return {memory, gram, mix, mix_memory, apply};
}

}  // namespace bayestream
