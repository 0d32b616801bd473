// The diagonal filters' two passes, for one instruction set and precision; see vectors.h.
#include "vectors.h"

namespace bayestream {
namespace {

// One part's share of a layer's inputs and a stretch of its outputs.
struct Stretch {
  const Block<Real>* block;
  Index from, to, output, width;

  Index begin(Index input) const { return block->offset + input * block->outputs + output; }
  const Real* delta(Index m) const { return block->deltas + m * block->outputs + output; }
  Real activation(Index n, Index input) const {
    return block->activations[n * block->inputs + input];
  }
};

template <typename Visit>
inline void for_stretches(const DiagonalTask<Real>& task, Index part, Index parts, Visit visit) {
  for (Index b = 0; b < task.block_count; ++b) {
    const Block<Real>& block = task.blocks[b];
    const auto share = [&](Index all, Index p) { return all * p / parts; };
    Index from = 0, to = 1, first = 0, last = block.outputs;
    if (block.structured()) {
      from = share(block.inputs, part), to = share(block.inputs, part + 1);
    } else {
      first = share(block.outputs, part), last = share(block.outputs, part + 1);
    }
    for (Index o = first; o < last; o += kTile)
      visit(Stretch{&block, from, to, o, min(kTile, last - o)});
  }
}

Index memory(const DiagonalTask<Real>& task) {
  return (task.pairs() + task.examples + 2) * kTile;
}

// As for LO-FI, a a' / upsilon is summed over inputs before it meets deltas, for each output.
void gram(const DiagonalTask<Real>& task, Index part, Index parts, Real* memory, double* sums) {
  Real* inverse = memory;
  Real* products = inverse + kTile;  // (pairs, kTile)
  for_stretches(task, part, parts, [&](const Stretch& at) {
    clear(products, 0, task.pairs() * kTile);
    for (Index i = at.from; i < at.to; ++i) {
      const Real* __restrict diag = task.diag + at.begin(i);
      for (Index t = 0; t < at.width; ++t) inverse[t] = 1 / diag[t];
      Real* to = products;
      for (Index n = 0; n < task.examples; ++n)
        for (Index n2 = 0; n2 <= n; ++n2, to += kTile)
          add(to, at.activation(n, i) * at.activation(n2, i), inverse, at.width);
    }
    const Index rows = task.rows(), columns = task.columns;
    for (Index m = 0; m < rows; ++m)
      for (Index m2 = 0; m2 <= m; ++m2) {
        const Index n = m / columns, n2 = m2 / columns;
        const Real* product = products + (n * (n + 1) / 2 + n2) * kTile;
        sums[m * rows + m2] += dot(at.delta(m), at.delta(m2), product, at.width);
      }
  });
}

// What a stretch of outputs gains for each pair of examples, to be multiplied by their activations.
void gains(const DiagonalTask<Real>& task, const Stretch& at, Real* lines) {
  const Index rows = task.rows(), columns = task.columns;
  clear(lines, 0, task.pairs() * kTile);
  for (Index m = 0; m < rows; ++m)
    for (Index m2 = task.inverse ? 0 : m; m2 <= m; ++m2) {
      const Index n = m / columns, n2 = m2 / columns;
      const Real once = task.inverse ? task.inverse[m * rows + m2] : Real(1);
      const Real weight = m == m2 ? once : 2 * once;
      const Real *__restrict x = at.delta(m), *__restrict y = at.delta(m2);
      Real* __restrict to = lines + (n * (n + 1) / 2 + n2) * kTile;
      for (Index t = 0; t < at.width; ++t) to[t] += weight * x[t] * y[t];
    }
}

void apply(const DiagonalTask<Real>& task, Index part, Index parts, Real* memory) {
  // The share of a weight's variance that is left lies in (0, 1]; rounding may say 0.
  const Real least = sizeof(Real) == 4 ? __FLT_EPSILON__ : __DBL_EPSILON__;
  const bool keeps_variance = task.inverse != nullptr;
  Real* __restrict moved = memory;
  Real* __restrict gained = moved + kTile;
  Real* steps = gained + kTile;                  // (examples, kTile)
  Real* lines = steps + task.examples * kTile;   // (pairs, kTile)
  for_stretches(task, part, parts, [&](const Stretch& at) {
    gains(task, at, lines);
    clear(steps, 0, task.examples * kTile);
    for (Index m = 0; m < task.rows(); ++m)
      add(steps + m / task.columns * kTile, task.weights[m], at.delta(m), at.width);
    for (Index i = at.from; i < at.to; ++i) {
      clear(moved, 0, at.width);
      clear(gained, 0, at.width);
      const Real* line = lines;
      for (Index n = 0; n < task.examples; ++n) {
        const Real a = at.activation(n, i);
        add(moved, a, steps + n * kTile, at.width);
        for (Index n2 = 0; n2 <= n; ++n2, line += kTile)
          if (keeps_variance || n2 == n) add(gained, a * at.activation(n2, i), line, at.width);
      }
      Real* __restrict mean = task.mean + at.begin(i);
      Real* __restrict diag = task.diag + at.begin(i);
      for (Index t = 0; t < at.width; ++t) mean[t] += moved[t] / diag[t];
      if (!keeps_variance) {
        for (Index t = 0; t < at.width; ++t) diag[t] += gained[t];
        continue;
      }
      for (Index t = 0; t < at.width; ++t) {
        const Real left = 1 - gained[t] / diag[t];
        diag[t] /= left > least ? left : least;
      }
    }
  });
}

}  // namespace

DiagonalKernels<REAL> BAYESTREAM_NAME(VARIANT, diagonal, REAL)() { return {memory, gram, apply}; }

}  // namespace bayestream
