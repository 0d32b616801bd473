// The passes over a belief's memory, compiled once for each instruction set and precision.
//
// LO-FI: a belief N(mu, (diag(upsilon) + W W')^-1) waits to be tempered, to have precision added
// and to be moved by the dynamics; then it is conditioned on rows G. With, per parameter,
//     u = power * upsilon + added,   s = 1 / (decay^2 + drift * u),   upsilon' = u * s,
// both passes see Z = [z; G] with z = decay * sqrt(power) * s * W, one row a direction.
//
// Spherical LO-FI: a belief N(mu, (eta I + U diag(lambda)^2 U')^-1) has no diagonal, and nothing of
// what waits for it concerns its arrays: Z = [U; G], and what is dropped is forgotten.
#pragma once
#include <cstdint>

// Never a function of its own, which the linker would take from any one instruction set's object.
#define BAYESTREAM_INLINE __attribute__((always_inline)) inline

// What one instruction set's object calls its own: avx2_dlr_float.
#define BAYESTREAM_JOIN(a, b, c) a##_##b##_##c
#define BAYESTREAM_NAME(a, b, c) BAYESTREAM_JOIN(a, b, c)

namespace bayestream {

using Index = std::int64_t;

constexpr Index kTile = 512;  // parameters handled at once

// G over a layer's slice of the parameters: row (n, k) is activations[n] (x) deltas[n, k].
template <typename Real>
struct Block {
  Index offset, inputs, outputs;
  const Real* activations;  // (examples, inputs)
  const Real* deltas;       // (examples * columns, outputs)
  const Real* fresh;        // second pass, if structured: (examples, lines, outputs) and a tile to
                            // read past

  // A layer of one input is rows without structure, multiplied tile by tile. In others, what meets
  // a delta is first summed over inputs: z a and a a / upsilon', for each output.
  BAYESTREAM_INLINE bool structured() const { return inputs > 1; }
};

template <typename Real>
struct Task {
  Index size, rank, examples, columns;  // P, L, N, K
  const Block<Real>* blocks;            // in order of offset, tiling [0, P)
  Index block_count;
  Real power, added, decay, drift;
  Real* mean;
  Real* diag;       // null if spherical
  Real* factor;     // (L, P)
  bool known;       // whether W W' need not be summed
  const Real* mix;  // second pass, (lines, L + M): the new rows in terms of Z
  bool triangular;  // whether of those kept, and of those dropped, each has a z less than the next

  BAYESTREAM_INLINE Index rows() const { return examples * columns; }  // M, of G
  BAYESTREAM_INLINE bool spherical() const { return diag == nullptr; }
  // Whether all there is fits in one tile, so that the second pass finds it where the first left it.
  BAYESTREAM_INLINE bool whole() const {
    return block_count == 1 && !blocks[0].structured() && size <= kTile;
  }
  // New rows: those kept, those dropped, the mean's.
  BAYESTREAM_INLINE Index lines() const { return rank + (spherical() ? 0 : rows()) + 1; }
};

// The sums of the first pass, as matrices; W's part of each is a lower triangle.
struct Grams {
  double* plain;   // (L + M, L + M): Z Z', W's part unless it is known
  double* scaled;  // (L + M, L + M), unless spherical: Z Z' / upsilon'
  double* drift;   // (L + M, L + M), only W's part: q s W1 W1', W1 = sqrt(power) W
};

// What is made of the sums between the passes: matrices of a few dozen rows, (L + M, L + M) unless
// another size is given, of which a lower triangle is read and all is written.
struct SmallKernels {
  Index (*memory)(Index rank, Index rows);  // how many numbers, for any of these
  // Alg. 2, l. 4-5: the predicted W is turn z, where turn (L, L) is chol^-1, with the factor of
  // I + q s W1' W1. Of the expanded W~, turn Z, the gram is turn Z Z' turn'. The factor (L, L) is
  // wanted unless null. L-RVGA whitens with it, in the place of q s W1' W1 a matrix of its own.
  void (*turn)(Index rank, Index rows, const double* plain, const double* drift, double* turn,
               double* gram, double* factor, double* memory);
  // The eigenvectors of a gram (n, n), one a row, largest eigenvalue first, and the eigenvalues (n).
  void (*eigenvectors)(Index n, const double* gram, double* vectors, double* values, double* memory);
  // The eigenvector (n) of a gram's (n, n) least eigenvalue.
  void (*least)(Index n, const double* gram, double* vector, double* memory);
};

// One instruction set's versions of the passes. `memory` belongs to one thread, and is to the second
// pass as the first left it.
template <typename Real>
struct Kernels {
  Index (*memory)(const Task<Real>&);  // how many numbers
  // Adds to the matrices, which belong to one thread too.
  void (*gram)(const Task<Real>&, Index part, Index parts, Real* memory, const Grams&);
  void (*rotate)(const Task<Real>&, Index part, Index parts, Real* memory);
  SmallKernels small;
};

// The diagonal filters: a belief N(mu, diag(upsilon)^-1) is conditioned on rows G, and either the
// precision or the variance keeps its diagonal:
//     upsilon += diag(G G'),   or   1 / upsilon -= diag(G A G') / upsilon^2,
// with A = (I + G' G / upsilon)^-1.
template <typename Real>
struct DiagonalTask {
  Index examples, columns;    // N, K
  const Block<Real>* blocks;  // tiling [0, P)
  Index block_count;
  Real* mean;
  Real* diag;
  const Real* weights;  // second pass, (M): the mean moves by G weights / upsilon
  const Real* inverse;  // second pass, (M, M): A where the variance is kept, else null

  BAYESTREAM_INLINE Index rows() const { return examples * columns; }  // M
  BAYESTREAM_INLINE Index pairs() const { return examples * (examples + 1) / 2; }
};

template <typename Real>
struct DiagonalKernels {
  Index (*memory)(const DiagonalTask<Real>&);  // how many numbers, for either pass
  // Adds to (M, M), of which the lower triangle of examples: G' G / upsilon.
  void (*gram)(const DiagonalTask<Real>&, Index part, Index parts, Real* memory, double* sums);
  void (*apply)(const DiagonalTask<Real>&, Index part, Index parts, Real* memory);
};

// One example's cotangents, pulled back through the mean of 2 x 2 cells, an activation and a 3 x 3
// convolution that keeps the image's size: to the convolution's weights, and to the image.
template <typename Real>
struct PullBack {
  Index height, width, inputs, outputs, columns;  // of the image, its channels before and after, K
  const Real* image;   // (height, width, inputs)
  const Real* slopes;  // (height, width, outputs): of the activation
  const Real* kernel;  // (3, 3, inputs, outputs)
  const Real* pooled;  // (columns, down, across, outputs): the cotangents
  Real* rows;          // (columns, weights, outputs)
  Real* back;          // (columns, height, width, inputs), or null

  BAYESTREAM_INLINE Index down() const { return height / 2; }
  BAYESTREAM_INLINE Index across() const { return width / 2; }
  BAYESTREAM_INLINE Index cells() const { return down() * across(); }
  BAYESTREAM_INLINE Index weights() const { return 9 * inputs + 1; }  // an output's, bias last
};

template <typename Real>
struct ConvolutionKernels {
  Index (*memory)(const PullBack<Real>&);  // how many numbers
  void (*pull_back)(const PullBack<Real>&, Real* memory);
};

// x diag(weights) y' of a few long rows.
template <typename Real>
struct Products {
  Index size, left, right;
  const Real* x;        // (left, size)
  const Real* y;        // (right, size)
  const Real* weights;  // (size)
};

template <typename Real>
struct ProductKernels {
  Index (*memory)(const Products<Real>&);  // how many numbers
  // Adds to (left, right), for the columns from begin to end.
  void (*products)(const Products<Real>&, Index begin, Index end, Real* memory, double* sums);
};

// A sweep of EM for factor analysis, as gaussians/fits.py has it in these letters: a fit, diag(psi) and
// W (L, P), to the precision diag(D) + F' F. The first pass makes sums of A = W / psi, the second the
// next psi and W, in place.
template <typename Real>
struct Fit {
  Index size, rank, rows;   // P, L, those of F
  Real* psi;                // (P)
  Real* factor;             // (L, P)
  const Real* goal_diag;    // D (P)
  const Real* goal_factor;  // F (rows, P)

  BAYESTREAM_INLINE Index all() const { return rank + rows; }
};

// What the second pass multiplies with, for R R' = I + A psi A' and B = R^-1 A.
template <typename Real>
struct FitMix {
  Real* white;        // R^-1 (L, L), lower
  Real* root;         // R (L, L), lower
  Real* from_diag;    // B D B' (L, L)
  Real* shared;       // F B' (rows, L)
  Real* transposed;   // B F' (L, rows)
  Real* inner;        // H (L, L), lower, of H' H = (I + B (diag(D) + F' F) B')^-1
  Real* inner_again;  // H' (L, L)
};

template <typename Real>
struct FitKernels {
  Index (*memory)(const Fit<Real>&);  // how many numbers, for either pass
  // Adds, for the parameters from begin to end: A psi A' to `own` (L, L), A D A' and below it F A' to
  // `goal` (L + rows, L), of symmetric ones the lower triangle.
  void (*gram)(const Fit<Real>&, Index begin, Index end, Real* memory, double* own, double* goal);
  // What to multiply with, between the passes; `memory` has room for `mix_memory` numbers.
  void (*mix)(const Fit<Real>&, const double* own, const double* goal, double* memory,
              const FitMix<Real>&);
  Index (*mix_memory)(Index rank, Index rows);
  void (*apply)(const Fit<Real>&, const FitMix<Real>&, Index begin, Index end, Real* memory);
};

#define BAYESTREAM_VARIANT(name)                          \
  Kernels<float> name##_dlr_float();                      \
  Kernels<double> name##_dlr_double();                    \
  SmallKernels name##_small_float();                      \
  SmallKernels name##_small_double();                     \
  DiagonalKernels<float> name##_diagonal_float();         \
  DiagonalKernels<double> name##_diagonal_double();       \
  ConvolutionKernels<float> name##_convolution_float();   \
  ConvolutionKernels<double> name##_convolution_double(); \
  ProductKernels<float> name##_products_float();          \
  ProductKernels<double> name##_products_double();        \
  FitKernels<float> name##_fit_float();                   \
  FitKernels<double> name##_fit_double();
BAYESTREAM_VARIANT(baseline)
BAYESTREAM_VARIANT(avx2)
BAYESTREAM_VARIANT(avx512)
#undef BAYESTREAM_VARIANT

}  // namespace bayestream
