// factor_analysis: a sweep of EM that fits a diagonal plus low-rank precision to one of higher rank, as
// an XLA FFI call.
#include <functional>
#include <type_traits>
#include <utility>

#include "host.h"
#include "kernels.h"
#include "small.h"

namespace bayestream {
namespace {

template <typename Real>
FitKernels<Real> choose() {
  if constexpr (std::is_same_v<Real, float>)
    return best(avx512_fit_float, avx2_fit_float, baseline_fit_float);
  else
    return best(avx512_fit_double, avx2_fit_double, baseline_fit_double);
}

template <typename Real>
void sweep(const Fit<Real>& task, const FitKernels<Real>& kernels, Index parts, const Runner& run) {
  const Index rank = task.rank, rows = task.rows, of_own = rank * rank, of_goal = task.all() * rank;
  const Index needed = kernels.memory(task);
  Real* const memory = scratch<Use::kPasses, Real>(needed * parts);
  Matrix own(of_own * parts, 0.0), goal(of_goal * parts, 0.0);
  const auto begin = [&](Index part) { return task.size * part / parts; };
  const auto gram = [&](Index part) {
    kernels.gram(task, begin(part), begin(part + 1), memory + part * needed,
                 own.data() + part * of_own, goal.data() + part * of_goal);
  };
  run(parts, std::ref(gram));  // by reference, or it would be copied to the heap
  for (Index i = of_own; i < of_own * parts; ++i) own[i % of_own] += own[i];
  for (Index i = of_goal; i < of_goal * parts; ++i) goal[i % of_goal] += goal[i];
  Array<Real> numbers(5 * rank * rank + 2 * rows * rank);
  Real* next = numbers.data();
  const auto take = [&](Index height) { return std::exchange(next, next + height * rank); };
  const FitMix<Real> mix = {take(rank), take(rank), take(rank), take(rows),
                            take(rows), take(rank), take(rank)};
  double* const spare = scratch<Use::kMatrices, double>(kernels.mix_memory(rank, rows));
  kernels.mix(task, own.data(), goal.data(), spare, mix);
  const auto apply = [&](Index part) {
    kernels.apply(task, mix, begin(part), begin(part + 1), memory + part * needed);
  };
  run(parts, std::ref(apply));
}

template <ffi::DataType kType>
ffi::Error factor_analysis(ffi::ThreadPool pool, ffi::Buffer<kType> psi, ffi::Buffer<kType> factor,
                           ffi::Buffer<kType> goal_diag, ffi::Buffer<kType> goal_factor,
                           ffi::ResultBuffer<kType> psi_out, ffi::ResultBuffer<kType> factor_out) {
  using Real = ffi::NativeType<kType>;
  static const FitKernels<Real> kernels = choose<Real>();
  const Index size = dimension(psi, 1), rank = dimension(factor, 2), rows = dimension(goal_factor, 2);
  const Index batch = static_cast<Index>(psi.element_count()) / std::max<Index>(size, 1);
  carry(psi, psi_out);
  carry(factor, factor_out);
  for_beliefs(pool, batch, size * (rank + rows), [&](Index b, Index parts, const Runner& run) {
    const Fit<Real> task = {size, rank, rows, psi_out->typed_data() + b * size,
                            factor_out->typed_data() + b * rank * size,
                            goal_diag.typed_data() + b * size,
                            goal_factor.typed_data() + b * rows * size};
    sweep(task, kernels, parts, run);
  });
  return ffi::Error::Success();
}

template <ffi::DataType kType>
auto binding() {
  return with_buffers<kType, 4, 2>(ffi::Ffi::Bind().Ctx<ffi::ThreadPool>());
}

}  // namespace
}  // namespace bayestream

XLA_FFI_DEFINE_HANDLER_SYMBOL(bayestream_factor_analysis_float32,
                              bayestream::factor_analysis<xla::ffi::F32>,
                              bayestream::binding<xla::ffi::F32>());
XLA_FFI_DEFINE_HANDLER_SYMBOL(bayestream_factor_analysis_float64,
                              bayestream::factor_analysis<xla::ffi::F64>,
                              bayestream::binding<xla::ffi::F64>());
