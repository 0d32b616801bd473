// Factorisations of matrices of a few dozen rows, in double precision, row-major.
#pragma once
#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

#include "arrays.h"
#include "kernels.h"

namespace bayestream {

using Matrix = Array<double>;

// The Cholesky factor of I + S in the lower triangle of `s`, in place. Every pivot of I plus a
// positive semi-definite matrix is at least 1; rounding that says less is put right. It is done in the
// upper triangle, where what is eliminated lies in rows.
inline void cholesky_of_identity_plus(Matrix& s, Index n) {
  for (Index i = 0; i < n; ++i)
    for (Index j = 0; j < i; ++j) s[j * n + i] = s[i * n + j];
  for (Index k = 0; k < n; ++k) {
    const double* __restrict pivot = s.data() + k * n;
    const double root = std::sqrt(std::max(pivot[k] + 1.0, 1.0)), inverse = 1.0 / root;
    for (Index i = k + 1; i < n; ++i) {
      const double share = pivot[i] * inverse;
      double* __restrict row = s.data() + i * n;
      for (Index j = i; j < n; ++j) row[j] -= share * inverse * pivot[j];
      row[k] = share;
    }
    s[k * n + k] = root;
  }
}

// L^-1 b in place, for b of `columns` columns.
inline void solve_lower(const Matrix& l, Index n, double* b, Index columns) {
  for (Index i = 0; i < n; ++i) {
    for (Index k = 0; k < i; ++k)
      for (Index c = 0; c < columns; ++c) b[i * columns + c] -= l[i * n + k] * b[k * columns + c];
    const double inverse = 1.0 / l[i * n + i];
    for (Index c = 0; c < columns; ++c) b[i * columns + c] *= inverse;
  }
}

// L'^-1 b in place, for b of `columns` columns.
inline void solve_upper(const Matrix& l, Index n, double* b, Index columns) {
  for (Index i = n - 1; i >= 0; --i) {
    for (Index k = i + 1; k < n; ++k)
      for (Index c = 0; c < columns; ++c) b[i * columns + c] -= l[k * n + i] * b[k * columns + c];
    const double inverse = 1.0 / l[i * n + i];
    for (Index c = 0; c < columns; ++c) b[i * columns + c] *= inverse;
  }
}

// Whether every number is below what a belief may take in, and so none is NaN. What is made of sums of
// squares below it does not overflow.
template <typename Real>
bool sound(const Matrix& sums) {
  static const double limit = std::pow(static_cast<double>(std::numeric_limits<Real>::max()), 0.8);
  Index bad = 0;  // counted to the end, since vectors do not stop early
  for (const double x : sums) bad += std::abs(x) < limit ? 0 : 1;
  return bad == 0;
}

inline Array<double> squares(const Array<double>& values) {
  Array<double> squared(values);
  for (double& x : squared) x *= x;
  return squared;
}

// The trust in each example: W = (1 + e^2 / (c^2 V))^-1/2, where `root` is the Cholesky factor of a
// matrix whose last M rows and columns are I + G' sigma G beyond what comes before them, so that its
// own last rows are a factor of that.
inline Array<double> trust(const Matrix& root, Index n, const Array<double>& residual,
                                 Index examples, double threshold) {
  Array<double> found(examples, 1.0);
  if (std::isinf(threshold)) return found;
  const Index rows = static_cast<Index>(residual.size()), before = n - rows;
  const Index columns = rows / std::max<Index>(examples, 1);
  for (Index e = 0; e < examples; ++e) {
    const Index first = before + e * columns;
    Matrix own(columns * columns);
    for (Index i = 0; i < columns; ++i)
      for (Index j = 0; j <= i; ++j) {
        double sum = i == j ? -1.0 : 0.0;
        for (Index k = before; k <= first + j; ++k)
          sum += root[(first + i) * n + k] * root[(first + j) * n + k];
        own[i * columns + j] = sum;
      }
    cholesky_of_identity_plus(own, columns);
    Array<double> white(residual.begin() + e * columns, residual.begin() + (e + 1) * columns);
    solve_lower(own, columns, white.data(), 1);
    double square = 0.0;
    for (double x : white) square += x * x;
    found[e] = 1.0 / std::sqrt(1.0 + square / (columns * threshold * threshold));
  }
  return found;
}

// Rows and columns of a lower triangle, from `first` on, times the trust in their example.
inline void weigh(const Array<double>& trust, Index first, Index n, Matrix& gram) {
  const Index columns = (n - first) / std::max<Index>(static_cast<Index>(trust.size()), 1);
  const auto of = [&](Index i) { return i < first ? 1.0 : trust[(i - first) / columns]; };
  for (Index i = first; i < n; ++i)
    for (Index j = 0; j <= i; ++j) gram[i * n + j] *= of(i) * of(j);
}

// A residual times the trust in its examples.
inline void weigh(const Array<double>& trust, Array<double>& residual) {
  const Index columns = residual.size() / std::max<std::size_t>(trust.size(), 1);
  for (std::size_t m = 0; m < residual.size(); ++m) residual[m] *= trust[m / columns];
}

// What conditioning on rows G beside W is made of, W~ = [W, G] in the units of the noise.
struct Gain {
  Array<double> weights;  // (L + M): of W~ in the mean's step, (I + W~' W~)^-1 [0; v]
  Array<double> trust;    // (N): what G and v were multiplied by before
  Matrix root;                  // (L + M, L + M): the Cholesky factor of I + W~' W~
};

// `gram()` is W~' W~ as it stands; `weigh_rows(trust)` makes it that of the rows as they are trusted.
template <typename Gram, typename WeighRows>
Gain gain(Index rank, Index rows, Index examples, Array<double> residual, double threshold,
          const Gram& gram, const WeighRows& weigh_rows) {
  Gain found{Array<double>(rows, 0.0), {}, gram()};
  cholesky_of_identity_plus(found.root, rows);
  found.trust = trust(found.root, rows, residual, examples, threshold);
  if (!std::isinf(threshold)) {
    weigh(found.trust, residual);
    weigh_rows(found.trust);
    found.root = gram();
    cholesky_of_identity_plus(found.root, rows);
  }
  std::copy(residual.begin(), residual.end(), found.weights.begin() + rank);
  solve_lower(found.root, rows, found.weights.data(), 1);
  solve_upper(found.root, rows, found.weights.data(), 1);
  return found;
}

// What was learnt from an observation, for the caller: w = (I + G' sigma G)^-1 v and the trust in each
// example; NaN and none where the belief was left as it was.
template <typename Real>
struct Innovation {
  Real *weights, *trust;

  void accept(const double* w, Index rows, const Array<double>& in) const {
    std::copy_n(w, rows, weights);
    std::copy(in.begin(), in.end(), trust);
  }
  void refuse(Index rows, Index examples) const {
    std::fill_n(weights, rows, std::numeric_limits<Real>::quiet_NaN());
    std::fill_n(trust, examples, Real(0));
  }
};

// The whole of a symmetric matrix whose lower triangle is given.
inline Matrix symmetric(Matrix a, Index n) {
  for (Index i = 0; i < n; ++i)
    for (Index j = 0; j < i; ++j) a[j * n + i] = a[i * n + j];
  return a;
}

// a b a', of a (rows, n) and a symmetric b (n, n).
inline Matrix congruent(const double* a, const Matrix& b, Index rows, Index n) {
  Matrix half(rows * n, 0.0), found(rows * rows, 0.0);
  for (Index i = 0; i < rows; ++i)
    for (Index k = 0; k < n; ++k)
      for (Index j = 0; j < n; ++j) half[i * n + j] += a[i * n + k] * b[k * n + j];
  for (Index i = 0; i < rows; ++i)
    for (Index j = 0; j < rows; ++j)
      found[i * rows + j] = std::inner_product(&half[i * n], &half[i * n] + n, a + j * n, 0.0);
  return found;
}

// Rotates rows (count, n) among themselves until of their first `pivots` columns the last row has all,
// and each one less than the next, by reflecting one column after another.
inline void make_triangular(double* a, Index count, Index n, Index pivots) {
  for (Index k = count - 1; k > std::max<Index>(0, count - pivots - 1); --k) {
    const Index column = pivots - count + k;
    Array<double> v(k + 1), w(n, 0.0);
    double tail = 0.0;
    for (Index i = 0; i < k; ++i) v[i] = a[i * n + column], tail += v[i] * v[i];
    if (tail == 0.0) continue;
    const double x = a[k * n + column];
    v[k] = x + std::copysign(std::sqrt(x * x + tail), x);
    const double scale = 2.0 / (v[k] * v[k] + tail);
    for (Index i = 0; i <= k; ++i)
      for (Index j = 0; j < n; ++j) w[j] += v[i] * a[i * n + j];
    for (Index i = 0; i <= k; ++i)
      for (Index j = 0; j < n; ++j) a[i * n + j] -= scale * v[i] * w[j];
    for (Index i = 0; i < k; ++i) a[i * n + column] = 0.0;
  }
}

}  // namespace bayestream
