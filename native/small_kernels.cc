// The small matrices between the passes of LO-FI and L-RVGA, for one instruction set: rows of doubles,
// padded with zeros to whole vectors. Only builtins, as in vectors.h.
#include "kernels.h"

namespace bayestream {
namespace {

typedef double Vec __attribute__((vector_size(VECTOR_BYTES)));
typedef double Loose __attribute__((vector_size(VECTOR_BYTES), aligned(sizeof(double)), may_alias));

constexpr Index kWidth = VECTOR_BYTES / sizeof(double);

inline Vec load(const double* p) { return *reinterpret_cast<const Loose*>(p); }
inline void store(double* p, Vec v) { *reinterpret_cast<Loose*>(p) = v; }
inline double max(double a, double b) { return a > b ? a : b; }
inline Index padded(Index n) { return (n + kWidth - 1) / kWidth * kWidth; }

// The number of each lane, and a vector's lanes from `first` on.
typedef Index Lanes __attribute__((vector_size(VECTOR_BYTES)));
inline Lanes lanes() {
  Lanes all = {};
  for (Index w = 0; w < kWidth; ++w) all[w] = w;
  return all;
}
inline Vec from(Index first, Vec v) { return lanes() >= first ? v : Vec{}; }

inline double add_lanes(Vec lanes) {
  double sums[kWidth / 2];
  for (Index w = 0; w < kWidth / 2; ++w) sums[w] = lanes[w] + lanes[w + kWidth / 2];
  for (Index half = kWidth / 4; half > 0; half /= 2)
    for (Index w = 0; w < half; ++w) sums[w] += sums[w + half];
  return sums[0];
}

// Of rows of whole vectors: out += a x from `first` on, x'y, and the vector at t of sum_i a_i x_i.
inline void add(double* out, double a, const double* x, Index stride, Index first = 0) {
  for (Index t = first / kWidth * kWidth; t < stride; t += kWidth)
    store(out + t, load(out + t) + a * load(x + t));
}
inline double dot(const double* x, const double* y, Index stride) {
  Vec sum = {};
  for (Index t = 0; t < stride; t += kWidth) sum += load(x + t) * load(y + t);
  return add_lanes(sum);
}
inline Vec combined(const double* a, const double* x, Index first, Index count, Index stride, Index t) {
  Vec even = {}, odd = {};  // two, since one would wait for itself
  Index i = first;
  for (; i + 1 < count; i += 2) {
    even += a[i] * load(x + i * stride + t);
    odd += a[i + 1] * load(x + (i + 1) * stride + t);
  }
  if (i < count) even += a[i] * load(x + i * stride + t);
  return even + odd;
}
inline void clear(double* out, Index stride) {
  for (Index t = 0; t < stride; t += kWidth) store(out + t, Vec{});
}
// Where a vector does not straddle two cache lines.
inline double* aligned(double* p) {
  return reinterpret_cast<double*>((reinterpret_cast<std::uintptr_t>(p) + 63) / 64 * 64);
}

// The lower triangle of a (n, n) as a whole matrix with rows `stride` apart.
inline void spread_out(const double* a, Index from, Index n, Index stride, double* out) {
  clear(out, n * stride);
  for (Index i = 0; i < n; ++i)
    for (Index j = 0; j <= i; ++j) out[i * stride + j] = out[j * stride + i] = a[i * from + j];
}

Index memory(Index rank, Index rows) { return (3 * rank + 3 * rows + 5) * padded(rows) + 8; }

// Eliminating (I + q s W1' W1 | I | Z Z') row by row leaves the factor's inverse in the second place,
// and that times Z Z' in the third. Every pivot of I plus a positive semi-definite matrix is at least 1;
// rounding that says less is put right.
void turn(Index rank, Index rows, const double* plain, const double* drift, double* turn, double* gram,
          double* factor, double* memory) {
  const Index stride = padded(rows);
  double *root = aligned(memory), *inverse = root + rank * stride, *across = inverse + rank * stride;
  double* half = across + rank * stride;  // (rows, stride)
  spread_out(drift, rows, rank, stride, root);
  spread_out(plain, rows, rows, stride, half);
  clear(inverse, rank * stride);
  for (Index i = 0; i < rank; ++i) root[i * stride + i] += 1, inverse[i * stride + i] = 1;
  for (Index k = 0; k < rank; ++k) {
    double* pivot = root + k * stride;
    const double scale = 1 / __builtin_sqrt(max(pivot[k], 1)), square = scale * scale;
    for (Index i = 0; factor && i < rank; ++i)
      factor[i * rank + k] = i < k ? 0 : (i > k ? pivot[i] : max(pivot[k], 1)) * scale;
    for (Index i = k + 1; i < rank; ++i) {
      const double weight = -pivot[i] * square;
      add(root + i * stride, weight, pivot, padded(rank), k);
      add(inverse + i * stride, weight, inverse + k * stride, padded(k + 1));
      add(half + i * stride, weight, half + k * stride, stride);
    }
    for (Index t = 0; t < stride; t += kWidth) {
      store(inverse + k * stride + t, scale * load(inverse + k * stride + t));
      store(half + k * stride + t, scale * load(half + k * stride + t));
    }
  }
  clear(across, rank * stride);
  for (Index i = 0; i < rank; ++i)
    for (Index j = 0; j <= i; ++j) {
      turn[i * rank + j] = across[j * stride + i] = inverse[i * stride + j];
      turn[j * rank + i] = i == j ? inverse[i * stride + i] : 0;
    }
  double* row = root;  // no longer wanted
  for (Index i = 0; i < rank; ++i) {
    for (Index t = 0; t <= i; t += kWidth) {
      const Index terms = t + kWidth < rank ? t + kWidth : rank;  // of a triangle
      store(row + t, combined(half + i * stride, across, 0, terms, stride, t));
    }
    for (Index j = 0; j <= i; ++j) gram[i * rows + j] = gram[j * rows + i] = row[j];
    for (Index j = rank; j < rows; ++j) gram[i * rows + j] = gram[j * rows + i] = half[i * stride + j];
  }
  for (Index i = rank; i < rows; ++i)
    for (Index j = rank; j < rows; ++j) gram[i * rows + j] = half[i * stride + j];
}

// A symmetric matrix (n, stride) in tridiagonal form: diagonal d (n), below it e (n - 1, and a zero), by
// Householder reflections I - v v', the k-th of which is left in row k of `reflections`.
void make_tridiagonal(double* a, Index n, Index stride, double* d, double* e, double* reflections,
                      double* w) {
  clear(reflections, n * stride);
  for (Index k = 0; k + 2 < n; ++k) {
    // Reflect column k below the subdiagonal to zero: v ~ x -+ |x| e_1.
    const double* column = a + k * stride;
    double* v = reflections + k * stride;
    const Index first = k / kWidth * kWidth;
    Vec squares = {};
    for (Index t = first; t < stride; t += kWidth) {
      const Vec below = from(k + 2 - t, load(column + t));
      squares += below * below;
    }
    const double tail = add_lanes(squares);
    if (tail == 0) continue;
    const double x = column[k + 1];
    const double head = x + __builtin_copysign(__builtin_sqrt(x * x + tail), x);
    const double scale = __builtin_sqrt(2 / (head * head + tail));
    for (Index t = first; t < stride; t += kWidth) {
      const Vec below = from(k + 2 - t, load(column + t));
      store(v + t, scale * (lanes() == k + 1 - t ? Vec{} + head : below));
    }
    // A <- H A H with w = A v - (v'A v / 2) v: A -= v w' + w v'.
    Vec along = {};
    for (Index t = first; t < stride; t += kWidth) {
      const Vec sum = combined(v, a, k + 1, n, stride, t);
      store(w + t, sum);
      along += sum * load(v + t);
    }
    const double shift = -0.5 * add_lanes(along);
    for (Index t = first; t < stride; t += kWidth) store(w + t, load(w + t) + shift * load(v + t));
    for (Index i = k; i < n; ++i) {
      const double to_w = v[i], to_v = w[i];
      double* row = a + i * stride;
      for (Index t = first; t < stride; t += kWidth)
        store(row + t, load(row + t) - (to_w * load(w + t) + to_v * load(v + t)));
    }
  }
  for (Index i = 0; i < n; ++i) d[i] = a[i * stride + i], e[i] = i + 1 < n ? a[i * stride + i + 1] : 0;
}

// Rows of q from `last` down to `first`, each turned with the one before by cosines c and sines s, a
// few vectors across: a row waits in registers for the next.
template <Index kAcross>
inline void turn_rows(const double* c, const double* s, Index first, Index last, Index stride, double* q) {
  Vec high[kAcross];
  for (Index j = 0; j < kAcross; ++j) high[j] = load(q + last * stride + j * kWidth);
  for (Index i = last - 1; i >= first; --i) {
    double* row = q + i * stride;
    for (Index j = 0; j < kAcross; ++j) {
      const Vec low = load(row + j * kWidth);
      store(row + stride + j * kWidth, s[i] * low + c[i] * high[j]);
      high[j] = c[i] * low - s[i] * high[j];
    }
  }
  for (Index j = 0; j < kAcross; ++j) store(q + first * stride + j * kWidth, high[j]);
}

inline void turn_all_rows(const double* c, const double* s, Index first, Index last, Index stride,
                          double* q) {
  Index t = 0;
  for (; t + 4 * kWidth <= stride; t += 4 * kWidth) turn_rows<4>(c, s, first, last, stride, q + t);
  switch ((stride - t) / kWidth) {
    case 3: return turn_rows<3>(c, s, first, last, stride, q + t);
    case 2: return turn_rows<2>(c, s, first, last, stride, q + t);
    case 1: return turn_rows<1>(c, s, first, last, stride, q + t);
  }
}

// The tridiagonal form's basis Q', one vector a row, turned by implicit QL until it is diagonal.
void diagonalise(double* d, double* e, Index n, Index stride, double* q, double* cosines, double* sines) {
  for (Index l = 0; l < n; ++l) {
    for (int sweep = 0; sweep < 60; ++sweep) {
      Index m = l;
      while (m + 1 < n && __builtin_fabs(e[m]) >
                              __DBL_EPSILON__ * (__builtin_fabs(d[m]) + __builtin_fabs(d[m + 1])))
        ++m;
      if (m == l) break;
      const double g0 = (d[l + 1] - d[l]) / (2 * e[l]), r0 = __builtin_sqrt(g0 * g0 + 1);
      double g = d[m] - d[l] + e[l] / (g0 + __builtin_copysign(r0, g0));
      double s = 1, c = 1, p = 0;
      Index i = m - 1;
      for (; i >= l; --i) {
        const double f = s * e[i], b = c * e[i];
        const double r = __builtin_sqrt(f * f + g * g);
        e[i + 1] = r;
        if (r == 0) {
          d[i + 1] -= p;
          e[m] = 0;
          break;
        }
        s = f / r;
        c = g / r;
        g = d[i + 1] - p;
        const double t = (d[i] - g) * s + 2 * c * b;
        p = s * t;
        d[i + 1] = g + p;
        g = c * t - b;
        cosines[i] = c;
        sines[i] = s;
      }
      turn_all_rows(cosines, sines, i + 1, m, stride, q);
      if (i >= l) continue;
      d[l] -= p;
      e[l] = g;
      e[m] = 0;
    }
  }
}

void eigenvectors(Index n, const double* gram, double* vectors, double* values, double* memory) {
  const Index stride = padded(n);
  double *a = aligned(memory), *reflections = a + n * stride, *q = reflections + n * stride;
  double *d = q + n * stride, *e = d + stride, *w = e + stride, *sines = w + stride;
  spread_out(gram, n, n, stride, a);
  make_tridiagonal(a, n, stride, d, e, reflections, w);
  for (Index i = 0; i < n; ++i) {
    clear(q + i * stride, stride);
    q[i * stride + i] = 1;
  }
  for (Index k = 0; k + 2 < n; ++k) {  // Q <- H Q
    const double* v = reflections + k * stride;
    for (Index t = 0; t < stride; t += kWidth) store(w + t, combined(v, q, k + 1, n, stride, t));
    for (Index i = k + 1; i < n; ++i) add(q + i * stride, -v[i], w, stride);
  }
  diagonalise(d, e, n, stride, q, w, sines);
  for (Index i = 0; i < n; ++i) {
    Index largest = i;
    for (Index j = i + 1; j < n; ++j)
      if (d[j] > d[largest]) largest = j;
    for (Index j = 0; j < n; ++j) vectors[i * n + j] = q[largest * stride + j];
    for (Index j = 0; j < n; ++j) q[largest * stride + j] = q[i * stride + j];
    values[i] = d[largest];
    d[largest] = d[i];
  }
}

// The least eigenvalue of a tridiagonal, positive semi-definite matrix, or a little less, so that the
// pivots of T - x stay positive: Laguerre's iteration, which comes from below and never overshoots. With
// q_i the pivots, r and t are the sums that make trace (T - x)^-1 and trace (T - x)^-2 of their
// derivatives, all of them positive.
double least_eigenvalue(const double* d, const double* e, Index n, double norm) {
  const double near = 2 * __DBL_EPSILON__ * norm;
  double x = -2 * near;
  for (int step = 0; step < 60; ++step) {
    double inverse = 0, r = 0, t = 0, once = 0, twice = 0;
    for (Index i = 0; i < n; ++i) {
      const double square = i > 0 ? e[i - 1] * e[i - 1] : 0, a = square * inverse;
      const double q = d[i] - x - a;
      if (!(q > 0)) return x - near;
      inverse = 1 / q;
      t = a * (r * r + t) * inverse;
      r = (1 + a * r) * inverse;
      t += r * r;
      once += r;
      twice += t;
    }
    const double spread = max(0, (n - 1) * (n * twice - once * once));
    const double move = n / (once + __builtin_sqrt(spread));
    if (!(move > near)) break;
    x += move - 0.5 * near;
  }
  return x;
}

// Of a positive semi-definite gram.
void least(Index n, const double* gram, double* vector, double* memory) {
  const Index stride = padded(n);
  double *a = aligned(memory), *reflections = a + n * stride;
  double *d = reflections + n * stride, *e = d + stride, *pivots = e + stride, *ratios = pivots + stride;
  double* u = ratios + stride;
  spread_out(gram, n, n, stride, a);
  make_tridiagonal(a, n, stride, d, e, reflections, u);
  double norm = 0;
  for (Index i = 0; i < n; ++i) norm = max(norm, __builtin_fabs(d[i]) + 2 * __builtin_fabs(e[i]));
  const double x = least_eigenvalue(d, e, n, norm);
  const double tiny = __DBL_EPSILON__ * norm + 1e-300;
  clear(u, stride);
  for (Index i = 0; i < n; ++i) {  // 1 / pivots, and what is below them in T - x = L D L'
    const double ratio = i > 0 ? e[i - 1] * pivots[i - 1] : 0;
    const double pivot = d[i] - x - (i > 0 ? e[i - 1] * ratio : 0);
    // One that is negative by rounding stays so: as a tiny one it would make all after it large.
    pivots[i] = 1 / (__builtin_fabs(pivot) < tiny ? tiny : pivot);
    ratios[i] = ratio;
    u[i] = i % 3 - 0.5 + 0.1 * i;  // orthogonal to no eigenvector but by accident
  }
  // Inverse iteration, (T - x)^-1 u.
  for (int step = 0; step < 3; ++step) {
    for (Index i = 1; i < n; ++i) u[i] -= ratios[i] * u[i - 1];
    double largest = 0;
    for (Index i = n - 1; i >= 0; --i) {
      u[i] = u[i] * pivots[i] - (i + 1 < n ? ratios[i + 1] * u[i + 1] : 0);
      largest = max(largest, __builtin_fabs(u[i]));
    }
    const double scale = 1 / largest;
    for (Index i = 0; i < n; ++i) u[i] *= scale;
  }
  for (Index k = n - 1; k >= 0; --k) {
    const double* v = reflections + k * stride;
    add(u, -dot(v, u, stride), v, stride);
  }
  const double scale = 1 / __builtin_sqrt(dot(u, u, stride));
  for (Index i = 0; i < n; ++i) vector[i] = scale * u[i];
}

}  // namespace

SmallKernels BAYESTREAM_NAME(VARIANT, small, REAL)() { return {memory, turn, eigenvectors, least}; }

}  // namespace bayestream
