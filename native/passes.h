// The two passes over a belief's arrays and what goes from one to the other, for all threads.
#pragma once
#include <functional>
#include <type_traits>
#include <utility>
#include <vector>

#include "host.h"
#include "kernels.h"
#include "small.h"

namespace bayestream {

template <typename Real>
Kernels<Real> choose() {
  if constexpr (std::is_same_v<Real, float>)
    return best(avx512_dlr_float, avx2_dlr_float, baseline_dlr_float);
  else
    return best(avx512_dlr_double, avx2_dlr_double, baseline_dlr_double);
}

// Below this many outputs, runs are so short that writing rows out is faster.
constexpr Index kShort = 64;

// A call's arguments and results, after XLA's threads and the layers' sizes.
template <ffi::DataType kType, int kArguments, int kResults>
auto binding() {
  return with_buffers<kType, kArguments, kResults>(
      ffi::Ffi::Bind().Ctx<ffi::ThreadPool>().Attr<ffi::Span<const std::int64_t>>("layout"));
}

// The sums of the first pass.
struct Sums {
  Matrix plain, scaled, drift;  // (L + M, L + M)
};

template <typename Real>
Sums first_pass(const Task<Real>& task, const Kernels<Real>& kernels, Index parts,
                const Runner& run) {
  const Index rows = task.rank + task.rows(), squared = rows * rows;
  const Index needed = kernels.memory(task);
  Real* const memory = scratch<Use::kPasses, Real>(needed * parts);
  Matrix plain(squared * parts, 0.0), scaled(plain), drift(plain);
  const auto work = [&](Index part) {
    kernels.gram(task, part, parts, memory + part * needed,
                 {&plain[part * squared], &scaled[part * squared], &drift[part * squared]});
  };
  run(parts, std::ref(work));  // by reference, or it would be copied to the heap
  for (Matrix* gram : {&plain, &scaled, &drift}) {
    for (Index i = squared; i < squared * parts; ++i) (*gram)[i % squared] += (*gram)[i];
    gram->resize(squared);
  }
  return {std::move(plain), std::move(scaled), std::move(drift)};
}

// The new rows and the mean, of Z as `made` (lines, L + M) says.
template <typename Real>
void second_pass(Task<Real> task, Layers<Real>& layers, const Matrix& made,
                 const Kernels<Real>& kernels, Index parts, const Runner& run) {
  const Index rank = task.rank, rows = rank + task.rows(), lines = task.lines();
  const Array<Real> mix(made.begin(), made.end());
  task.mix = mix.data();
  Array<Array<Real>> fresh;
  for (Block<Real>& block : layers.blocks) {
    if (!block.structured()) continue;
    Array<Real> mixed(task.examples * lines * block.outputs + kTile, Real(0));
    for (Index m = 0; m < task.rows(); ++m)
      for (Index i = 0; i < lines; ++i) {
        const Real weight = static_cast<Real>(made[i * rows + rank + m]);
        const Real* delta = block.deltas + m * block.outputs;
        Real* to = mixed.data() + (m / task.columns * lines + i) * block.outputs;
        for (Index o = 0; o < block.outputs; ++o) to[o] += weight * delta[o];
      }
    fresh.push_back(std::move(mixed));
    block.fresh = fresh.back().data();
  }
  const Index needed = kernels.memory(task);
  Real* const memory = scratch<Use::kPasses, Real>(needed * parts);
  const auto work = [&](Index part) {
    kernels.rotate(task, part, parts, memory + part * needed);
  };
  run(parts, std::ref(work));
}

}  // namespace bayestream
