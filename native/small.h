// Factorisations of matrices of a few dozen rows, in double precision, row-major.
#pragma once
#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <vector>

#include "kernels.h"

namespace bayestream {

using Matrix = std::vector<double>;

// The Cholesky factor of I + S in the lower triangle of `s`, in place. Every pivot of I plus a
// positive semi-definite matrix is at least 1; rounding that says less is put right.
inline void cholesky_of_identity_plus(Matrix& s, Index n) {
  for (Index j = 0; j < n; ++j) {
    for (Index i = j; i < n; ++i) {
      double sum = s[i * n + j] + (i == j ? 1.0 : 0.0);
      for (Index k = 0; k < j; ++k) sum -= s[i * n + k] * s[j * n + k];
      s[i * n + j] = i == j ? std::sqrt(std::max(sum, 1.0)) : sum / s[j * n + j];
    }
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
  return std::all_of(sums.begin(), sums.end(), [](double x) { return std::abs(x) < limit; });
}

inline std::vector<double> squares(const std::vector<double>& values) {
  std::vector<double> squared(values);
  for (double& x : squared) x *= x;
  return squared;
}

// The trust in each example: W = (1 + e^2 / (c^2 V))^-1/2, where `root` is the Cholesky factor of a
// matrix whose last M rows and columns are I + G' sigma G beyond what comes before them, so that its
// own last rows are a factor of that.
inline std::vector<double> trust(const Matrix& root, Index n, const std::vector<double>& residual,
                                 Index examples, double threshold) {
  std::vector<double> found(examples, 1.0);
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
    std::vector<double> white(residual.begin() + e * columns, residual.begin() + (e + 1) * columns);
    solve_lower(own, columns, white.data(), 1);
    double square = 0.0;
    for (double x : white) square += x * x;
    found[e] = 1.0 / std::sqrt(1.0 + square / (columns * threshold * threshold));
  }
  return found;
}

// Rows and columns of a lower triangle, from `first` on, times the trust in their example.
inline void weigh(const std::vector<double>& trust, Index first, Index n, Matrix& gram) {
  const Index columns = (n - first) / std::max<Index>(static_cast<Index>(trust.size()), 1);
  const auto of = [&](Index i) { return i < first ? 1.0 : trust[(i - first) / columns]; };
  for (Index i = first; i < n; ++i)
    for (Index j = 0; j <= i; ++j) gram[i * n + j] *= of(i) * of(j);
}

// A residual times the trust in its examples.
inline void weigh(const std::vector<double>& trust, std::vector<double>& residual) {
  const Index columns = residual.size() / std::max<std::size_t>(trust.size(), 1);
  for (std::size_t m = 0; m < residual.size(); ++m) residual[m] *= trust[m / columns];
}

// What conditioning on rows G beside W is made of, W~ = [W, G] in the units of the noise.
struct Gain {
  std::vector<double> weights;  // (L + M): of W~ in the mean's step, (I + W~' W~)^-1 [0; v]
  std::vector<double> trust;    // (N): what G and v were multiplied by before
  Matrix root;                  // (L + M, L + M): the Cholesky factor of I + W~' W~
};

// `gram()` is W~' W~ as it stands; `weigh_rows(trust)` makes it that of the rows as they are trusted.
template <typename Gram, typename WeighRows>
Gain gain(Index rank, Index rows, Index examples, std::vector<double> residual, double threshold,
          const Gram& gram, const WeighRows& weigh_rows) {
  Gain found{std::vector<double>(rows, 0.0), {}, gram()};
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

  void accept(const double* w, Index rows, const std::vector<double>& in) const {
    std::copy_n(w, rows, weights);
    std::copy(in.begin(), in.end(), trust);
  }
  void refuse(Index rows, Index examples) const {
    std::fill_n(weights, rows, std::numeric_limits<Real>::quiet_NaN());
    std::fill_n(trust, examples, Real(0));
  }
};

inline Matrix transposed(const Matrix& a, Index rows, Index columns) {
  Matrix b(rows * columns);
  for (Index i = 0; i < rows; ++i)
    for (Index j = 0; j < columns; ++j) b[j * rows + i] = a[i * columns + j];
  return b;
}

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

// Rotates rows (count, n) among themselves until their first `pivots` columns are an upper triangle,
// by reflecting one column after another.
inline void make_triangular(double* a, Index count, Index n, Index pivots) {
  for (Index k = 0; k < std::min(pivots, count - 1); ++k) {
    std::vector<double> v(count, 0.0), w(n, 0.0);
    double tail = 0.0;
    for (Index i = k + 1; i < count; ++i) v[i] = a[i * n + k], tail += v[i] * v[i];
    if (tail == 0.0) continue;
    const double x = a[k * n + k];
    v[k] = x + std::copysign(std::sqrt(x * x + tail), x);
    const double scale = 2.0 / (v[k] * v[k] + tail);
    for (Index i = k; i < count; ++i)
      for (Index j = k; j < n; ++j) w[j] += v[i] * a[i * n + j];
    for (Index i = k; i < count; ++i)
      for (Index j = k; j < n; ++j) a[i * n + j] -= scale * v[i] * w[j];
    for (Index i = k + 1; i < count; ++i) a[i * n + k] = 0.0;
  }
}

// A symmetric matrix in tridiagonal form: diagonal d (n), below it e (n - 1, and a zero), by Householder
// reflections I - scale v v'; reflect(v, scale) is told of each. Entries of a sum of squares in single or
// double precision are far from where their own squares would overflow.
template <typename Reflect>
void make_tridiagonal(Matrix a, Index n, Matrix& d, Matrix& e, const Reflect& reflect) {
  Matrix w(n), v(n);
  for (Index k = 0; k + 2 < n; ++k) {
    // Reflect column k below the subdiagonal to zero: v = x -+ |x| e_1.
    double tail = 0.0;
    for (Index i = k + 2; i < n; ++i) tail += a[i * n + k] * a[i * n + k];
    if (tail == 0.0) continue;
    const double x = a[(k + 1) * n + k], norm = std::sqrt(x * x + tail);
    const double head = x + std::copysign(norm, x), square = head * head + tail;
    std::fill(v.begin(), v.begin() + k + 1, 0.0);
    v[k + 1] = head;
    for (Index i = k + 2; i < n; ++i) v[i] = a[i * n + k];
    const double scale = 2.0 / square;
    // A <- H A H with w = scale A v - (scale^2 v'A v / 2) v: A -= v w' + w v'.
    double along = 0.0;
    for (Index i = k; i < n; ++i) {
      double sum = 0.0;
      for (Index j = k + 1; j < n; ++j) sum += a[i * n + j] * v[j];
      w[i] = scale * sum;
      along += w[i] * v[i];
    }
    for (Index i = k; i < n; ++i) w[i] -= 0.5 * scale * along * v[i];
    for (Index i = k; i < n; ++i)
      for (Index j = k; j < n; ++j) a[i * n + j] -= v[i] * w[j] + w[i] * v[j];
    reflect(v, scale);
  }
  d.resize(n);
  e.assign(n, 0.0);
  for (Index i = 0; i < n; ++i) d[i] = a[i * n + i];
  for (Index i = 0; i + 1 < n; ++i) e[i] = a[(i + 1) * n + i];
}

// Eigenvectors of a symmetric matrix as the rows of the result, largest eigenvalue first: tridiagonal
// form, then implicit QL.
inline Matrix eigenvectors(const Matrix& a, Index n) {
  Matrix q(n * n, 0.0), w(n), d, e;
  for (Index i = 0; i < n; ++i) q[i * n + i] = 1.0;
  make_tridiagonal(a, n, d, e, [&](const Matrix& v, double scale) {
    // The rows of q are the transformed basis: Q <- H Q.
    std::fill(w.begin(), w.end(), 0.0);
    for (Index i = 0; i < n; ++i)
      for (Index j = 0; j < n; ++j) w[j] += v[i] * q[i * n + j];
    for (Index i = 0; i < n; ++i)
      for (Index j = 0; j < n; ++j) q[i * n + j] -= scale * v[i] * w[j];
  });
  const double epsilon = std::numeric_limits<double>::epsilon();
  for (Index l = 0; l < n; ++l) {
    for (int sweep = 0; sweep < 60; ++sweep) {
      Index m = l;
      while (m + 1 < n && std::abs(e[m]) > epsilon * (std::abs(d[m]) + std::abs(d[m + 1]))) ++m;
      if (m == l) break;
      const double g0 = (d[l + 1] - d[l]) / (2.0 * e[l]), r0 = std::sqrt(g0 * g0 + 1.0);
      double g = d[m] - d[l] + e[l] / (g0 + std::copysign(r0, g0));
      double s = 1.0, c = 1.0, p = 0.0;
      Index i = m - 1;
      for (; i >= l; --i) {
        const double f = s * e[i], b = c * e[i];
        const double r = std::sqrt(f * f + g * g);
        e[i + 1] = r;
        if (r == 0.0) {
          d[i + 1] -= p;
          e[m] = 0.0;
          break;
        }
        s = f / r;
        c = g / r;
        g = d[i + 1] - p;
        const double t = (d[i] - g) * s + 2.0 * c * b;
        p = s * t;
        d[i + 1] = g + p;
        g = c * t - b;
        double* low = &q[i * n];
        double* high = &q[(i + 1) * n];
        for (Index k = 0; k < n; ++k) {
          const double h = high[k];
          high[k] = s * low[k] + c * h;
          low[k] = c * low[k] - s * h;
        }
      }
      if (i >= l) continue;
      d[l] -= p;
      e[l] = g;
      e[m] = 0.0;
    }
  }
  std::vector<Index> order(n);
  std::iota(order.begin(), order.end(), 0);
  std::sort(order.begin(), order.end(), [&](Index i, Index j) { return d[i] > d[j]; });
  Matrix sorted(n * n);
  for (Index i = 0; i < n; ++i)
    std::copy_n(q.data() + order[i] * n, n, sorted.data() + i * n);
  return sorted;
}

// The least eigenvalue of a tridiagonal, positive semi-definite matrix, or a little less, so that the
// pivots of T - x stay positive: Laguerre's iteration, which comes from below and never overshoots. With
// q_i the pivots, r and t are the sums that make trace (T - x)^-1 and trace (T - x)^-2 of their
// derivatives, all of them positive.
inline double least_eigenvalue(const Matrix& d, const Matrix& e, double norm) {
  const Index n = static_cast<Index>(d.size());
  const double near = 2.0 * std::numeric_limits<double>::epsilon() * norm;
  double x = -2.0 * near;
  for (int step = 0; step < 60; ++step) {
    double inverse = 0.0, r = 0.0, t = 0.0, once = 0.0, twice = 0.0;
    for (Index i = 0; i < n; ++i) {
      const double square = i > 0 ? e[i - 1] * e[i - 1] : 0.0, a = square * inverse;
      const double q = d[i] - x - a;
      if (!(q > 0.0)) return x - near;
      inverse = 1.0 / q;
      t = a * (r * r + t) * inverse;
      r = (1.0 + a * r) * inverse;
      t += r * r;
      once += r;
      twice += t;
    }
    const double spread = std::max(0.0, (n - 1.0) * (n * twice - once * once));
    const double move = n / (once + std::sqrt(spread));
    if (!(move > near)) break;
    x += move - 0.5 * near;
  }
  return x;
}

// An orthogonal matrix whose last row is the eigenvector of the least eigenvalue of a positive
// semi-definite matrix. The others span what the other eigenvectors do, and are found without them: it
// is the reflection that takes that one to the last axis.
inline Matrix least_last(const Matrix& a, Index n) {
  Matrix reflections, d, e, u(n), pivots(n), made(n * n);
  reflections.reserve(n * (n + 1));
  make_tridiagonal(a, n, d, e, [&](const Matrix& v, double scale) {
    reflections.insert(reflections.end(), v.begin(), v.end());
    reflections.push_back(scale);
  });
  double norm = 0.0;
  for (Index i = 0; i < n; ++i) norm = std::max(norm, std::abs(d[i]) + 2.0 * std::abs(e[i]));
  const double x = least_eigenvalue(d, e, norm);
  const double tiny = std::numeric_limits<double>::epsilon() * norm + 1e-300;
  for (Index i = 0; i < n; ++i) {
    pivots[i] = d[i] - x - (i > 0 ? e[i - 1] * e[i - 1] / pivots[i - 1] : 0.0);
    pivots[i] = std::max(pivots[i], tiny);
    u[i] = i % 3 - 0.5 + 0.1 * i;  // orthogonal to no eigenvector but by accident
  }
  // Inverse iteration, (T - x)^-1 u.
  for (int step = 0; step < 3; ++step) {
    for (Index i = 1; i < n; ++i) u[i] -= e[i - 1] / pivots[i - 1] * u[i - 1];
    for (Index i = n - 1; i >= 0; --i)
      u[i] = (u[i] - (i + 1 < n ? e[i] * u[i + 1] : 0.0)) / pivots[i];
    double largest = 0.0;
    for (double each : u) largest = std::max(largest, std::abs(each));
    for (double& each : u) each /= largest;
  }
  for (Index k = static_cast<Index>(reflections.size()) / (n + 1) - 1; k >= 0; --k) {
    const double* v = &reflections[k * (n + 1)];
    const double along = v[n] * std::inner_product(v, v + n, u.begin(), 0.0);
    for (Index i = 0; i < n; ++i) u[i] -= along * v[i];
  }
  // I - 2 w w' / w'w with w = u/|u| +- the last axis; its last row is -+u/|u|.
  const double length = std::sqrt(std::inner_product(u.begin(), u.end(), u.begin(), 0.0));
  u[n - 1] += std::copysign(length, u[n - 1]);
  const double scale = 2.0 / std::inner_product(u.begin(), u.end(), u.begin(), 0.0);
  for (Index i = 0; i < n; ++i)
    for (Index j = 0; j < n; ++j) made[i * n + j] = (i == j ? 1.0 : 0.0) - scale * u[i] * u[j];
  return made;
}

}  // namespace bayestream
