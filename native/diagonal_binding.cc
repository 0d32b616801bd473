// diagonal_condition: a diagonal belief in memory is conditioned, as an XLA FFI call that works in
// place.
#include <memory>
#include <type_traits>

#include "host.h"
#include "kernels.h"
#include "small.h"

namespace bayestream {
namespace {

template <typename Real>
DiagonalKernels<Real> choose() {
  if constexpr (std::is_same_v<Real, float>)
    return best(avx512_diagonal_float, avx2_diagonal_float, baseline_diagonal_float);
  else
    return best(avx512_diagonal_double, avx2_diagonal_double, baseline_diagonal_double);
}

template <typename Real>
void condition(DiagonalTask<Real> task, Layers<Real>& layers, const Real* residual, Real threshold,
               bool keeps_variance, const Innovation<Real>& innovation,
               const DiagonalKernels<Real>& kernels, Index parts, const Runner& run) {
  const Index rows = task.rows(), squared = rows * rows, needed = kernels.memory(task);
  const std::unique_ptr<Real[]> memory(new Real[needed * parts]);
  Matrix sums(squared * parts, 0.0);
  run(parts, [&](Index part) {
    kernels.gram(task, part, parts, memory.get() + part * needed, sums.data() + part * squared);
  });
  Matrix spread(squared, 0.0);
  for (Index part = 0; part < parts; ++part)
    for (Index i = 0; i < squared; ++i) spread[i] += sums[part * squared + i];
  const Array<double> v(residual, residual + rows);
  if (!sound<Real>(spread) || !sound<Real>(squares(v)) ||
      !sound<Real>(layers.squares(task.columns)))
    return innovation.refuse(rows, task.examples);
  const auto found = gain(
      0, rows, task.examples, v, threshold, [&] { return spread; },
      [&](const Array<double>& in) {
        weigh(in, 0, rows, spread);
        layers.weigh(in);
      });
  innovation.accept(found.weights.data(), rows, found.trust);
  const Array<Real> weights(found.weights.begin(), found.weights.end());
  task.weights = weights.data();
  Array<Real> inverse;
  if (keeps_variance) {
    Matrix identity(squared, 0.0);
    for (Index i = 0; i < rows; ++i) identity[i * rows + i] = 1.0;
    solve_lower(found.root, rows, identity.data(), rows);
    solve_upper(found.root, rows, identity.data(), rows);
    inverse.assign(identity.begin(), identity.end());
    task.inverse = inverse.data();
  }
  run(parts, [&](Index part) {
    kernels.apply(task, part, parts, memory.get() + part * needed);
  });
}

template <ffi::DataType kType>
ffi::Error diagonal_condition(ffi::ThreadPool pool, ffi::Span<const std::int64_t> layout,
                              bool keeps_variance, ffi::Buffer<kType> mean,
                              ffi::Buffer<kType> diag, ffi::Buffer<kType> settings,
                              ffi::Buffer<kType> activations,
                              ffi::Buffer<kType> deltas, ffi::Buffer<kType> residual,
                              ffi::ResultBuffer<kType> mean_out,
                              ffi::ResultBuffer<kType> diag_out,
                              ffi::ResultBuffer<kType> weights, ffi::ResultBuffer<kType> trust) {
  using Real = ffi::NativeType<kType>;
  static const DiagonalKernels<Real> kernels = choose<Real>();
  const Index size = dimension(mean, 1);
  const Index examples = dimension(deltas, 3), columns = dimension(deltas, 2);
  const Index batch = static_cast<Index>(mean.element_count()) / std::max<Index>(size, 1);
  carry(mean, mean_out);
  carry(diag, diag_out);
  for_beliefs(pool, batch, 2 * size, [&](Index b, Index parts, const Runner& run) {
    Layers<Real> layers(
        layout, activations.typed_data() + b * examples * dimension(activations, 1),
        deltas.typed_data() + b * examples * columns * dimension(deltas, 1), examples, columns, 0);
    const DiagonalTask<Real> task = {examples, columns, layers.blocks.data(),
                                     static_cast<Index>(layers.blocks.size()),
                                     mean_out->typed_data() + b * size,
                                     diag_out->typed_data() + b * size, nullptr, nullptr};
    const Innovation<Real> innovation = {weights->typed_data() + b * examples * columns,
                                         trust->typed_data() + b * examples};
    condition(task, layers, residual.typed_data() + b * examples * columns,
              settings.typed_data()[b], keeps_variance, innovation, kernels, parts, run);
  });
  return ffi::Error::Success();
}

template <ffi::DataType kType>
auto binding() {
  return with_buffers<kType, 6, 4>(ffi::Ffi::Bind()
                                       .Ctx<ffi::ThreadPool>()
                                       .Attr<ffi::Span<const std::int64_t>>("layout")
                                       .Attr<bool>("keeps_variance"));
}

}  // namespace
}  // namespace bayestream

XLA_FFI_DEFINE_HANDLER_SYMBOL(bayestream_diagonal_condition_float32,
                              bayestream::diagonal_condition<xla::ffi::F32>,
                              bayestream::binding<xla::ffi::F32>());
XLA_FFI_DEFINE_HANDLER_SYMBOL(bayestream_diagonal_condition_float64,
                              bayestream::diagonal_condition<xla::ffi::F64>,
                              bayestream::binding<xla::ffi::F64>());
