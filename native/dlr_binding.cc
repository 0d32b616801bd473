// LO-FI's belief in memory, as XLA FFI calls: dlr_condition makes one step of it in place, and
// dlr_spread says how much it doubts one example's outputs.

#include "passes.h"

namespace bayestream {
namespace {

// The small matrices between the two passes.
struct Mixing {
  Matrix made;  // (L + M + 1, L + M): how the new rows, and below them the mean's step, are made of Z
  Matrix gram;  // (L + M, L + M): W~ W~'
  Array<double> weights;  // (M): of G in that step
  Array<double> trust;    // (N): what G is multiplied by before
};

Mixing mixing(Index rank, Index rows, Index examples, Matrix plain, Matrix scaled,
              const Matrix& drift, const Array<double>& residual, double threshold,
              const SmallKernels& small) {
  // Alg. 3, l. 7-10: the mean moves by upsilon^-1 W~ (I + W~' upsilon^-1 W~)^-1 [0; v]. In terms of Z
  // there is nothing to turn: turn' (I + turn S turn')^-1 [0; v] is (I + S + q s W1' W1)^-1 [0; v].
  for (std::size_t i = 0; i < scaled.size(); ++i) scaled[i] += drift[i];
  const auto [weights, in, root] = gain(
      rank, rows, examples, residual, threshold, [&] { return scaled; },
      [&](const Array<double>& in) {
        weigh(in, rank, rows, plain);
        weigh(in, rank, rows, scaled);
      });
  // l. 11-13: rotate W~ to its singular directions, largest first. Where one is dropped, the others
  // may be any of the same span: of a belief it makes no difference.
  double* const memory = scratch<Use::kMatrices, double>(small.memory(rank, rows));
  Matrix turn(rank * rank), gram(rows * rows), made((rows + 1) * rows);
  small.turn(rank, rows, plain.data(), drift.data(), turn.data(), gram.data(), nullptr, memory);
  if (rows == rank + 1) {
    // From G on, the dropped row turns with one of the others after another until it is that of the
    // least eigenvalue; what they become of z is a lower triangle, as the turn is.
    Matrix v(rows);
    small.least(rows, gram.data(), v.data(), memory);
    double* dropped = &made[rank * rows];
    dropped[rank] = std::copysign(1.0, v[rank]);
    double length = std::abs(v[rank]);
    for (Index i = 0; i < rank; ++i) {
      const double longer = std::sqrt(length * length + v[i] * v[i]);
      const double c = longer > 0 ? length / longer : 0.0, s = longer > 0 ? v[i] / longer : 1.0;
      for (Index j = 0; j <= i; ++j) {
        const double own = turn[i * rank + j];
        made[i * rows + j] = c * own - s * dropped[j];
        dropped[j] = s * own + c * dropped[j];
      }
      made[i * rows + rank] = -s * dropped[rank];
      dropped[rank] *= c;
      length = longer;
    }
  } else {
    Matrix v(rows * rows), values(rows);
    small.eigenvectors(rows, gram.data(), v.data(), values.data(), memory);
    for (Index i = 0; i < rows; ++i) {
      for (Index k = 0; k < rank; ++k)
        for (Index j = 0; j <= k; ++j) made[i * rows + j] += v[i * rows + k] * turn[k * rank + j];
      std::copy_n(&v[i * rows + rank], rows - rank, &made[i * rows + rank]);
    }
  }
  std::copy(weights.begin(), weights.end(), made.begin() + rows * rows);
  return {std::move(made), std::move(gram), {weights.begin() + rank, weights.end()}, in};
}

// From this many numbers on, the kept rows, and the dropped ones, are turned among themselves so that
// a good part of the second pass falls away; of a belief neither turn makes any difference.
constexpr Index kTurned = 1 << 16;

// `known` is W W' (L, L) of a belief that nothing waits for, or null.
template <typename Real>
void condition(Task<Real> task, Layers<Real>& layers, Real* known, const Real* residual,
               Real threshold, const Innovation<Real>& innovation, const Kernels<Real>& kernels,
               Index parts, const Runner& run) {
  const Index rank = task.rank, rows = rank + task.rows();
  task.blocks = layers.blocks.data();
  task.known = known != nullptr;
  task.triangular = rows == rank + 1 || task.size * rank >= kTurned;

  auto [plain, scaled, drift] = first_pass(task, kernels, parts, run);
  for (Index i = 0; known && i < rank; ++i)
    std::copy_n(known + i * rank, rank, plain.data() + i * rows);
  const Array<double> v(residual, residual + task.rows());
  if (!sound<Real>(plain) || !sound<Real>(scaled) || !sound<Real>(drift) || !sound<Real>(squares(v)))
    return innovation.refuse(task.rows(), task.examples);
  Mixing mixed = mixing(rank, rows, task.examples, plain, scaled, drift, v, threshold, kernels.small);
  if (!sound<Real>(mixed.made)) return innovation.refuse(task.rows(), task.examples);
  innovation.accept(mixed.weights.data(), task.rows(), mixed.trust);
  if (!std::isinf(threshold)) layers.weigh(mixed.trust);
  if (task.triangular && rows > rank + 1) {
    make_triangular(mixed.made.data(), rank, rows, rank);
    make_triangular(mixed.made.data() + rank * rows, task.rows(), rows, rank);
  }
  if (known) {
    const Matrix kept = congruent(mixed.made.data(), mixed.gram, rank, rows);
    std::copy(kept.begin(), kept.end(), known);
  }
  second_pass(task, layers, mixed.made, kernels, parts, run);
}

template <ffi::DataType kType>
ffi::Error dlr_condition(ffi::ThreadPool pool, ffi::Span<const std::int64_t> layout,
                         ffi::Buffer<kType> mean, ffi::Buffer<kType> diag,
                         ffi::Buffer<kType> factor, ffi::Buffer<kType> gram,
                         ffi::Buffer<kType> settings, ffi::Buffer<kType> activations,
                         ffi::Buffer<kType> deltas, ffi::Buffer<kType> residual,
                         ffi::ResultBuffer<kType> mean_out, ffi::ResultBuffer<kType> diag_out,
                         ffi::ResultBuffer<kType> factor_out, ffi::ResultBuffer<kType> gram_out,
                         ffi::ResultBuffer<kType> weights, ffi::ResultBuffer<kType> trust) {
  using Real = ffi::NativeType<kType>;
  static const Kernels<Real> kernels = choose<Real>();
  const Index size = dimension(mean, 1), rank = dimension(factor, 2);
  const Index examples = dimension(deltas, 3), columns = dimension(deltas, 2);
  const Index batch = static_cast<Index>(mean.element_count()) / std::max<Index>(size, 1);
  carry(mean, mean_out);
  carry(diag, diag_out);
  carry(factor, factor_out);
  carry(gram, gram_out);
  const bool known = rank > 0 && dimension(gram, 1) == rank;  // otherwise it is empty
  for_beliefs(pool, batch, size * (rank + examples * columns),
              [&](Index b, Index parts, const Runner& run) {
    Layers<Real> layers(layout, activations.typed_data() + b * examples * dimension(activations, 1),
                        deltas.typed_data() + b * examples * columns * dimension(deltas, 1),
                        examples, columns, kShort);
    const Real* wait = settings.typed_data() + 5 * b;  // what waits, and the threshold
    const Innovation<Real> innovation = {weights->typed_data() + b * examples * columns,
                                         trust->typed_data() + b * examples};
    const Task<Real> task = {size,    rank,    examples, columns,
                             nullptr, static_cast<Index>(layers.blocks.size()),
                             wait[0], wait[1], wait[2],  wait[3],
                             mean_out->typed_data() + b * size,
                             diag_out->typed_data() + b * size,
                             factor_out->typed_data() + b * rank * size, false, nullptr, false};
    condition(task, layers, known ? gram_out->typed_data() + b * rank * rank : nullptr,
              residual.typed_data() + b * examples * columns, wait[4], innovation, kernels, parts,
              run);
  });
  return ffi::Error::Success();
}

// G' Sigma G for the rows of one example, after what waits has been applied: the first pass alone.
template <typename Real>
void spread(Task<Real> task, const Layers<Real>& layers, const Kernels<Real>& kernels, Index parts,
            const Runner& run, Real* out) {
  const Index rank = task.rank, columns = task.rows(), rows = rank + columns;
  task.blocks = layers.blocks.data();
  const auto [plain, scaled, drift] = first_pass(task, kernels, parts, run);
  Matrix root(rank * rank), half(rank * columns);  // as in `mixing`, there is nothing to turn
  for (Index i = 0; i < rank; ++i) {
    for (Index j = 0; j <= i; ++j) root[i * rank + j] = scaled[i * rows + j] + drift[i * rows + j];
    for (Index m = 0; m < columns; ++m) half[i * columns + m] = scaled[(rank + m) * rows + i];
  }
  cholesky_of_identity_plus(root, rank);
  solve_lower(root, rank, half.data(), columns);
  for (Index i = 0; i < columns; ++i)
    for (Index j = 0; j < columns; ++j) {
      double sum = scaled[(rank + std::max(i, j)) * rows + rank + std::min(i, j)];
      for (Index l = 0; l < rank; ++l) sum -= half[l * columns + i] * half[l * columns + j];
      out[i * columns + j] = static_cast<Real>(sum);
    }
}

template <ffi::DataType kType>
ffi::Error dlr_spread(ffi::ThreadPool pool, ffi::Span<const std::int64_t> layout,
                      ffi::Buffer<kType> diag, ffi::Buffer<kType> factor,
                      ffi::Buffer<kType> settings, ffi::Buffer<kType> activations,
                      ffi::Buffer<kType> deltas, ffi::ResultBuffer<kType> out) {
  using Real = ffi::NativeType<kType>;
  static const Kernels<Real> kernels = choose<Real>();
  const Index size = dimension(diag, 1), rank = dimension(factor, 2), columns = dimension(deltas, 2);
  const Index squared = columns * columns;
  const Index batch = static_cast<Index>(out->element_count()) / std::max<Index>(squared, 1);
  for_beliefs(pool, batch, size * (rank + columns), [&](Index b, Index parts, const Runner& run) {
    const Layers<Real> layers(layout, activations.typed_data() + place(activations, 2, *out, b),
                              deltas.typed_data() + place(deltas, 3, *out, b), 1, columns, kShort);
    const Real* wait = settings.typed_data() + place(settings, 1, *out, b);
    const Task<Real> task = {size,    rank,    1,       columns,
                             nullptr, static_cast<Index>(layers.blocks.size()),
                             wait[0], wait[1], wait[2], wait[3], nullptr,
                             const_cast<Real*>(diag.typed_data()) + place(diag, 1, *out, b),
                             const_cast<Real*>(factor.typed_data()) + place(factor, 2, *out, b),
                             /*known=*/true, nullptr, false};  // nobody asks for W W'
    spread(task, layers, kernels, parts, run, out->typed_data() + b * squared);
  });
  return ffi::Error::Success();
}

}  // namespace
}  // namespace bayestream

XLA_FFI_DEFINE_HANDLER_SYMBOL(bayestream_dlr_condition_float32,
                              bayestream::dlr_condition<xla::ffi::F32>,
                              (bayestream::binding<xla::ffi::F32, 8, 6>()));
XLA_FFI_DEFINE_HANDLER_SYMBOL(bayestream_dlr_condition_float64,
                              bayestream::dlr_condition<xla::ffi::F64>,
                              (bayestream::binding<xla::ffi::F64, 8, 6>()));
XLA_FFI_DEFINE_HANDLER_SYMBOL(bayestream_dlr_spread_float32, bayestream::dlr_spread<xla::ffi::F32>,
                              (bayestream::binding<xla::ffi::F32, 5, 1>()));
XLA_FFI_DEFINE_HANDLER_SYMBOL(bayestream_dlr_spread_float64, bayestream::dlr_spread<xla::ffi::F64>,
                              (bayestream::binding<xla::ffi::F64, 5, 1>()));
