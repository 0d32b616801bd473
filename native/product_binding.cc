// row_products: x diag(w) y' of a few long rows, as an XLA FFI call.
#include <memory>
#include <type_traits>

#include "host.h"
#include "kernels.h"

namespace bayestream {
namespace {

template <typename Real>
ProductKernels<Real> choose() {
  if constexpr (std::is_same_v<Real, float>)
    return best(avx512_products_float, avx2_products_float, baseline_products_float);
  else
    return best(avx512_products_double, avx2_products_double, baseline_products_double);
}

template <ffi::DataType kType>
ffi::Error row_products(ffi::ThreadPool pool, ffi::Buffer<kType> x, ffi::Buffer<kType> y,
                        ffi::Buffer<kType> weights, ffi::ResultBuffer<kType> out) {
  using Real = ffi::NativeType<kType>;
  static const ProductKernels<Real> kernels = choose<Real>();
  const Index size = dimension(x, 1), left = dimension(x, 2), right = dimension(y, 2);
  const Index sums = left * right;
  const Index batch = static_cast<Index>(out->element_count()) / std::max<Index>(sums, 1);
  for_beliefs(pool, batch, size * (left + right), [&](Index b, Index parts, const Runner& run) {
    const Products<Real> task = {size, left, right,
                                 x.typed_data() + place(x, 2, *out, b),
                                 y.typed_data() + place(y, 2, *out, b),
                                 weights.typed_data() + place(weights, 1, *out, b)};
    Array<double> found(sums * parts, 0.0);
    run(parts, [&](Index part) {
      const std::unique_ptr<Real[]> memory(new Real[kernels.memory(task)]);
      kernels.products(task, size * part / parts, size * (part + 1) / parts, memory.get(),
                       found.data() + part * sums);
    });
    for (Index part = 1; part < parts; ++part)
      for (Index i = 0; i < sums; ++i) found[i] += found[part * sums + i];
    std::copy_n(found.data(), sums, out->typed_data() + b * sums);
  });
  return ffi::Error::Success();
}

template <ffi::DataType kType>
auto binding() {
  return with_buffers<kType, 3, 1>(ffi::Ffi::Bind().Ctx<ffi::ThreadPool>());
}

}  // namespace
}  // namespace bayestream

XLA_FFI_DEFINE_HANDLER_SYMBOL(bayestream_row_products_float32,
                              bayestream::row_products<xla::ffi::F32>,
                              bayestream::binding<xla::ffi::F32>());
XLA_FFI_DEFINE_HANDLER_SYMBOL(bayestream_row_products_float64,
                              bayestream::row_products<xla::ffi::F64>,
                              bayestream::binding<xla::ffi::F64>());
