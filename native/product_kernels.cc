// Products of a few long rows, for one instruction set and precision; see vectors.h.
#include "vectors.h"

namespace bayestream {
namespace {

constexpr Index kBlock = 5;  // rows by rows, as many as there are registers for

Index memory(const Products<Real>& task) {
  return task.right * kTile + task.left * task.right * kWidth + kLine;
}

// Adds x y' to the lanes (left, right, kWidth), for rows x so far `apart` and y in their tile. Of a
// block that goes beyond them the last ones are taken again, and not kept.
void add_block(const Real* x, Index apart, Index x_left, const Real* y, Index y_left, Index width,
               Index right_rows, Real* lanes) {
  const Real *xs[kBlock], *ys[kBlock];
  for (Index i = 0; i < kBlock; ++i) {
    xs[i] = x + min(i, x_left - 1) * apart;
    ys[i] = y + min(i, y_left - 1) * kTile;
  }
  Vec sums[kBlock][kBlock] = {};
  for (Index t = 0; t + kWidth <= width; t += kWidth) {
    Vec right[kBlock];
#pragma GCC unroll 5
    for (Index j = 0; j < kBlock; ++j) right[j] = load(ys[j] + t);
#pragma GCC unroll 5
    for (Index i = 0; i < kBlock; ++i) {
      const Vec left = load(xs[i] + t);
#pragma GCC unroll 5
      for (Index j = 0; j < kBlock; ++j) sums[i][j] += left * right[j];
    }
  }
  for (Index i = 0; i < min(kBlock, x_left); ++i)
    for (Index j = 0; j < min(kBlock, y_left); ++j) {
      Real* to = lanes + (i * right_rows + j) * kWidth;
      store(to, load(to) + sums[i][j]);
      for (Index t = width / kWidth * kWidth; t < width; ++t) to[0] += xs[i][t] * ys[j][t];
    }
}

void products(const Products<Real>& task, Index begin, Index end, Real* memory, double* sums) {
  const Index size = task.size, left = task.left, right = task.right;
  Real* weighed = aligned(memory);          // (right, kTile)
  Real* lanes = weighed + right * kTile;  // (left, right, kWidth)
  clear(lanes, 0, left * right * kWidth);
  for (Index t = begin; t < end; t += kTile) {
    const Index width = min(kTile, end - t);
    for (Index j = 0; j < right; ++j)
      scale(weighed + j * kTile, task.weights + t, task.y + j * size + t, width);
    for (Index i = 0; i < left; i += kBlock)
      for (Index j = 0; j < right; j += kBlock)
        add_block(task.x + i * size + t, size, left - i, weighed + j * kTile, right - j, width,
                  right, lanes + (i * right + j) * kWidth);
  }
  for (Index i = 0; i < left * right; ++i) sums[i] += add_lanes(lanes + i * kWidth);
}

}  // namespace

ProductKernels<REAL> BAYESTREAM_NAME(VARIANT, products, REAL)() { return {memory, products}; }

}  // namespace bayestream
