// Spherical LO-FI's belief in memory, as an XLA FFI call: one step of it in place.
#include <algorithm>
#include <cmath>

#include "passes.h"

namespace bayestream {
namespace {

// New directions: their scales, and how they are made of Z = [U; G], one row each.
struct Directions {
  Array<double> scales;  // (L)
  Matrix made;                 // (L, L + M)
};

// The largest singular directions of W~ = [U Lambda, G], from the Gram matrix of W~.
Directions largest(const Matrix& gram, const Array<double>& scales, Index rows,
                   const SmallKernels& small) {
  const Index rank = static_cast<Index>(scales.size());
  Matrix v(rows * rows), squares(rows);
  small.eigenvectors(rows, gram.data(), v.data(), squares.data(),
                     scratch<Use::kMatrices, double>(small.memory(rank, rows)));
  Directions found{Array<double>(rank), Matrix(rank * rows, 0.0)};
  for (Index i = 0; i < rank; ++i) {
    if (squares[i] <= 0.0) continue;
    found.scales[i] = std::sqrt(squares[i]);
    for (Index j = 0; j < rows; ++j)
      found.made[i * rows + j] = v[i * rows + j] * (j < rank ? scales[j] : 1.0) / found.scales[i];
  }
  return found;
}

// The part of a row's length that may be rounding: as a direction it would be orthogonal to none.
constexpr double kRounding = 1e-3;

// Each row of G in the given order: its part orthogonal to U takes the place of the direction with
// the least scale if it is longer; from the Gram matrix of Z.
template <typename Real>
Directions replaced(const Matrix& gram, Array<double> scales, Index rows, const Real* order) {
  const Index rank = static_cast<Index>(scales.size());
  Matrix made(rank * rows, 0.0);
  for (Index i = 0; i < rank; ++i) made[i * rows + i] = 1.0;
  for (Index m = 0; rank > 0 && m < rows - rank; ++m) {
    const Index row = rank + static_cast<Index>(order[m]);
    Matrix v(rows, 0.0);
    v[row] = 1.0;
    for (Index k = 0; k < rank; ++k) {
      double along = 0.0;
      for (Index j = 0; j < rows; ++j) along += made[k * rows + j] * gram[j * rows + row];
      for (Index j = 0; j < rows; ++j) v[j] -= along * made[k * rows + j];
    }
    const double length = std::sqrt(std::max(0.0, congruent(v.data(), gram, 1, rows)[0]));
    const Index least = std::min_element(scales.begin(), scales.end()) - scales.begin();
    if (!(length > std::max(scales[least], kRounding * std::sqrt(gram[row * rows + row])))) continue;
    scales[least] = length;
    for (Index j = 0; j < rows; ++j) made[least * rows + j] = v[j] / length;
  }
  return {scales, made};
}

// `order` of the rows of G, or null for the singular directions.
template <typename Real>
void condition(Task<Real> task, Layers<Real>& layers, Real* scales, double eta, const Real* order,
               const Real* residual, Real threshold, const Innovation<Real>& innovation,
               const Kernels<Real>& kernels, Index parts, const Runner& run) {
  const Index rank = task.rank, rows = rank + task.rows();
  task.blocks = layers.blocks.data();
  const Array<double> lambda(scales, scales + rank);
  Matrix of_z = first_pass(task, kernels, parts, run).plain;
  Array<double> scale(rows, 1.0);  // of Z in W~
  std::copy(lambda.begin(), lambda.end(), scale.begin());
  // The Gram matrix of W~, from that of Z, over a number.
  const auto expanded = [&](double over) {
    Matrix gram = symmetric(of_z, rows);
    for (Index i = 0; i < rows; ++i) {
      const double own = scale[i] / over;
      for (Index j = 0; j < rows; ++j) gram[i * rows + j] *= own * scale[j];
    }
    return gram;
  };
  const Array<double> v(residual, residual + task.rows());
  if (!sound<Real>(of_z) || !sound<Real>(expanded(1.0)) || !sound<Real>(expanded(eta)) ||
      !sound<Real>(squares(v)))
    return innovation.refuse(task.rows(), task.examples);
  // The mean moves by W~ (I + W~' W~ / eta)^-1 [0; v] / eta.
  const auto [weights, in, root] = gain(
      rank, rows, task.examples, v, threshold, [&] { return expanded(eta); },
      [&](const Array<double>& in) {
        weigh(in, rank, rows, of_z);
        layers.weigh(in);
      });
  Directions next = order ? replaced(symmetric(of_z, rows), lambda, rows, order)
                          : largest(expanded(1.0), lambda, rows, kernels.small);
  if (!sound<Real>(next.made)) return innovation.refuse(task.rows(), task.examples);
  innovation.accept(weights.data() + rank, task.rows(), in);
  std::copy(next.scales.begin(), next.scales.end(), scales);
  for (Index i = 0; i < rows; ++i) next.made.push_back(weights[i] * scale[i] / eta);
  second_pass(task, layers, next.made, kernels, parts, run);
}

template <ffi::DataType kType>
ffi::Error spherical_condition(ffi::ThreadPool pool, ffi::Span<const std::int64_t> layout,
                               ffi::Buffer<kType> mean, ffi::Buffer<kType> scales,
                               ffi::Buffer<kType> basis, ffi::Buffer<kType> settings,
                               ffi::Buffer<kType> activations, ffi::Buffer<kType> deltas,
                               ffi::Buffer<kType> residual, ffi::Buffer<kType> order,
                               ffi::ResultBuffer<kType> mean_out,
                               ffi::ResultBuffer<kType> scales_out,
                               ffi::ResultBuffer<kType> basis_out,
                               ffi::ResultBuffer<kType> weights, ffi::ResultBuffer<kType> trust) {
  using Real = ffi::NativeType<kType>;
  static const Kernels<Real> kernels = choose<Real>();
  const Index size = dimension(mean, 1), rank = dimension(basis, 2);
  const Index examples = dimension(deltas, 3), columns = dimension(deltas, 2);
  const Index rows = examples * columns, ordered = dimension(order, 1);
  const Index batch = static_cast<Index>(mean.element_count()) / std::max<Index>(size, 1);
  carry(mean, mean_out);
  carry(scales, scales_out);
  carry(basis, basis_out);
  for_beliefs(pool, batch, size * (rank + rows), [&](Index b, Index parts, const Runner& run) {
    Layers<Real> layers(layout, activations.typed_data() + b * examples * dimension(activations, 1),
                        deltas.typed_data() + b * rows * dimension(deltas, 1), examples, columns,
                        kShort);
    const Real* with = settings.typed_data() + 2 * b;  // eta, and the threshold
    const Innovation<Real> innovation = {weights->typed_data() + b * rows,
                                         trust->typed_data() + b * examples};
    const Task<Real> task = {size,    rank, examples, columns,
                             nullptr, static_cast<Index>(layers.blocks.size()),
                             1,       0,    1,        0,
                             mean_out->typed_data() + b * size, nullptr,
                             basis_out->typed_data() + b * rank * size, false, nullptr, false};
    condition(task, layers, scales_out->typed_data() + b * rank, with[0],
              ordered > 0 ? order.typed_data() + b * ordered : nullptr,
              residual.typed_data() + b * rows, with[1], innovation, kernels, parts, run);
  });
  return ffi::Error::Success();
}

}  // namespace
}  // namespace bayestream

XLA_FFI_DEFINE_HANDLER_SYMBOL(bayestream_spherical_condition_float32,
                              bayestream::spherical_condition<xla::ffi::F32>,
                              (bayestream::binding<xla::ffi::F32, 8, 5>()));
XLA_FFI_DEFINE_HANDLER_SYMBOL(bayestream_spherical_condition_float64,
                              bayestream::spherical_condition<xla::ffi::F64>,
                              (bayestream::binding<xla::ffi::F64, 8, 5>()));
