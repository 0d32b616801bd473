// convolution_pull_back: cotangents of a pooled image become those of the image and of the
// convolution's weights, as an XLA FFI call.
#include <memory>
#include <type_traits>

#include "host.h"
#include "kernels.h"

namespace bayestream {
namespace {

template <typename Real>
ConvolutionKernels<Real> choose() {
  if constexpr (std::is_same_v<Real, float>)
    return best(avx512_convolution_float, avx2_convolution_float, baseline_convolution_float);
  else
    return best(avx512_convolution_double, avx2_convolution_double, baseline_convolution_double);
}

// Under vmap, the last dimension that the cotangents alone have is the one of their columns.
template <ffi::DataType kType>
ffi::Error pull_back(ffi::ThreadPool pool, ffi::Buffer<kType> image, ffi::Buffer<kType> slopes,
                     ffi::Buffer<kType> kernel, ffi::Buffer<kType> pooled,
                     ffi::ResultBuffer<kType> rows, ffi::ResultBuffer<kType> back) {
  using Real = ffi::NativeType<kType>;
  static const ConvolutionKernels<Real> kernels = choose<Real>();
  const Index height = dimension(image, 3), width = dimension(image, 2);
  const Index inputs = dimension(image, 1), outputs = dimension(slopes, 1);
  const Index weights = dimension(*rows, 1);
  const Index batch = static_cast<Index>(rows->element_count()) / std::max<Index>(weights, 1);
  const bool batched = pooled.dimensions().size() > 3;
  const bool shared = batched && dimension(image, 4) == 1 && dimension(slopes, 4) == 1 &&
                      dimension(kernel, 5) == 1;
  const Index columns = shared ? std::max<Index>(dimension(pooled, 4), 1) : 1;
  const Index examples = batch / columns;
  // A single example's columns are shared out.
  const Index parts = std::min(examples > 1 ? 1 : std::max<Index>(pool.num_threads(), 1), columns);
  const Index pixels = height * width * inputs;
  const bool wanted = back->element_count() > 0;
  parallel(pool, examples * parts, [&](Index i) {
    const Index example = i / parts, part = i % parts;
    const Index first = columns * part / parts, count = columns * (part + 1) / parts - first;
    const Index b = example * columns;
    const PullBack<Real> task = {
        height, width, inputs, outputs, count,
        image.typed_data() + place(image, 3, *rows, b),
        slopes.typed_data() + place(slopes, 3, *rows, b),
        kernel.typed_data() + place(kernel, 4, *rows, b),
        pooled.typed_data() + place(pooled, 3, *rows, b + first),
        rows->typed_data() + (b + first) * weights,
        wanted ? back->typed_data() + (b + first) * pixels : nullptr};
    const std::unique_ptr<Real[]> memory(new Real[kernels.memory(task)]);
    kernels.pull_back(task, memory.get());
  });
  return ffi::Error::Success();
}

template <ffi::DataType kType>
auto binding() {
  return with_buffers<kType, 4, 2>(ffi::Ffi::Bind().Ctx<ffi::ThreadPool>());
}

}  // namespace
}  // namespace bayestream

XLA_FFI_DEFINE_HANDLER_SYMBOL(bayestream_convolution_pull_back_float32,
                              bayestream::pull_back<xla::ffi::F32>,
                              bayestream::binding<xla::ffi::F32>());
XLA_FFI_DEFINE_HANDLER_SYMBOL(bayestream_convolution_pull_back_float64,
                              bayestream::pull_back<xla::ffi::F64>,
                              bayestream::binding<xla::ffi::F64>());
