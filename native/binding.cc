// dlr_condition: one step of LO-FI on a belief in memory, as an XLA FFI call that works in place.
#include <atomic>
#include <condition_variable>
#include <functional>
#include <memory>
#include <mutex>
#include <vector>

#include "kernels.h"
#include "small.h"
#include "xla/ffi/api/ffi.h"

namespace ffi = xla::ffi;

namespace bayestream {
namespace {

template <typename Real>
Kernels<Real> choose();

template <>
Kernels<float> choose<float>() {
#if defined(__x86_64__)
  if (__builtin_cpu_supports("avx512f")) return avx512_float();
  if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma")) return avx2_float();
#endif
  return baseline_float();
}

template <>
Kernels<double> choose<double>() {
#if defined(__x86_64__)
  if (__builtin_cpu_supports("avx512f")) return avx512_double();
  if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma")) return avx2_double();
#endif
  return baseline_double();
}

// Run work(0), ..., work(count - 1) on XLA's threads and this one. This thread takes whatever no
// other has taken and waits only for parts that have begun, so it never waits for a busy pool.
void parallel(ffi::ThreadPool& pool, Index count, const std::function<void(Index)>& work) {
  struct Shared {
    std::atomic<Index> next{0};
    Index done = 0, count = 0;
    std::mutex mutex;
    std::condition_variable all_done;
    const std::function<void(Index)>* work = nullptr;

    void help() {
      for (Index i; (i = next.fetch_add(1)) < count;) {
        (*work)(i);
        std::lock_guard<std::mutex> lock(mutex);
        if (++done == count) all_done.notify_all();
      }
    }
  };
  auto shared = std::make_shared<Shared>();
  shared->count = count;
  shared->work = &work;
  for (Index i = 1; i < std::min<Index>(count, pool.num_threads()); ++i)
    pool.Schedule([shared] { shared->help(); });
  shared->help();
  std::unique_lock<std::mutex> lock(shared->mutex);
  shared->all_done.wait(lock, [&] { return shared->done == shared->count; });
}

// The small matrices between the two passes: how the new rows, and below them what moves the mean,
// are made of Z. Returned as (L + M + 1, L + M).
Matrix mixing(Index rank, Index rows, const Matrix& plain, const Matrix& scaled,
              const Matrix& drift, const std::vector<double>& residual) {
  // Alg. 2, l. 4-5: the predicted W is chol^-1 z, with the factor of I + q s W1' W1; the expanded
  // W~ is then turn Z, where turn = [chol^-1, 0; 0, I].
  Matrix root(rank * rank);
  for (Index i = 0; i < rank; ++i) std::copy_n(drift.data() + i * rows, rank, root.data() + i * rank);
  cholesky_of_identity_plus(root, rank);
  const auto turned = [&](const Matrix& gram) {  // turn gram turn', from gram's lower triangle
    Matrix full = symmetric(gram, rows);
    solve_lower(root, rank, full.data(), rows);
    full = transposed(full, rows, rows);
    solve_lower(root, rank, full.data(), rows);
    return full;
  };
  // Alg. 3, l. 11-13: rotate W~ to its singular directions, largest first.
  Matrix made = eigenvectors(turned(plain), rows);
  // l. 7-10: the mean moves by upsilon^-1 W~ (I + W~' upsilon^-1 W~)^-1 [0; v].
  Matrix gain = turned(scaled), weights(rows, 0.0);
  std::copy(residual.begin(), residual.end(), weights.begin() + rank);
  cholesky_of_identity_plus(gain, rows);
  solve_lower(gain, rows, weights.data(), 1);
  solve_upper(gain, rows, weights.data(), 1);
  made.insert(made.end(), weights.begin(), weights.end());
  // From W~ back to Z: made turn, one column of it after another.
  Matrix columns = transposed(made, rows + 1, rows);
  solve_upper(root, rank, columns.data(), rows + 1);
  return transposed(columns, rows, rows + 1);
}

using Runner = std::function<void(Index, const std::function<void(Index)>&)>;

template <typename Real>
void condition(Task<Real> task, std::vector<Block<Real>>& blocks, const Real* residual,
               const Kernels<Real>& kernels, Index parts, const Runner& run) {
  const Index rank = task.rank, rows = rank + task.rows(), lines = task.lines();
  task.blocks = blocks.data();

  const Index needed = kernels.gram_memory(task);
  const std::unique_ptr<Real[]> memory(new Real[needed * parts]);
  run(parts, [&](Index part) {
    kernels.gram(task, part, parts, memory.get() + part * needed);
  });
  Matrix plain(rows * rows, 0.0), scaled(plain), drift(plain);
  for (Index part = 0; part < parts; ++part)
    kernels.finish(task, memory.get() + part * needed, {plain.data(), scaled.data(), drift.data()});
  // Of structured rows, deltas meet unweighted through the products of their activations alone.
  const auto times = [](const Real* table, Index i, Index j, Index count) {  // of two of its rows
    return std::inner_product(table + i * count, table + (i + 1) * count, table + j * count, 0.0);
  };
  for (const Block<Real>& block : blocks) {
    if (!block.structured()) continue;
    Matrix meet(task.examples * task.examples);
    for (Index n = 0; n < task.examples; ++n)
      for (Index n2 = 0; n2 <= n; ++n2)
        meet[n * task.examples + n2] = times(block.activations, n, n2, block.inputs);
    for (Index m = 0; m < task.rows(); ++m)
      for (Index m2 = 0; m2 <= m; ++m2)
        plain[(rank + m) * rows + rank + m2] +=
            meet[m / task.columns * task.examples + m2 / task.columns] *
            times(block.deltas, m, m2, block.outputs);
  }
  const std::vector<double> v(residual, residual + task.rows());
  const Matrix made = mixing(rank, rows, plain, scaled, drift, v);

  std::vector<Real> mix(lines * rank);
  for (Index i = 0; i < lines; ++i) std::copy_n(made.data() + i * rows, rank, mix.data() + i * rank);
  task.mix = mix.data();
  std::vector<std::vector<Real>> fresh;
  for (Block<Real>& block : blocks) {
    std::vector<Real> mixed(task.examples * lines * block.outputs + kTile, Real(0));
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
  const Index room = kernels.rotate_memory(task);
  const std::unique_ptr<Real[]> own(new Real[room * parts]);
  run(parts, [&](Index part) {
    kernels.rotate(task, part, parts, own.get() + part * room);
  });
}

// A layer of few outputs would be visited in runs of few parameters; its rows are written out.
constexpr Index kShort = 64;

// Below this many numbers a second thread costs more than it saves.
constexpr Index kAlone = 1 << 16;

template <ffi::DataType kType>
ffi::Error dlr_condition(ffi::ThreadPool pool, ffi::Span<const std::int64_t> layout,
                         ffi::Buffer<kType> mean, ffi::Buffer<kType> diag,
                         ffi::Buffer<kType> factor, ffi::Buffer<kType> pending,
                         ffi::Buffer<kType> activations, ffi::Buffer<kType> deltas,
                         ffi::Buffer<kType> residual, ffi::ResultBuffer<kType> mean_out,
                         ffi::ResultBuffer<kType> diag_out, ffi::ResultBuffer<kType> factor_out) {
  using Real = ffi::NativeType<kType>;
  static const Kernels<Real> kernels = choose<Real>();
  const auto last = [](const auto& dims, Index k) { return dims[dims.size() - k]; };
  const Index size = last(mean.dimensions(), 1), rank = last(factor.dimensions(), 2);
  const Index examples = last(deltas.dimensions(), 3), columns = last(deltas.dimensions(), 2);
  const Index inputs = last(activations.dimensions(), 1), outputs = last(deltas.dimensions(), 1);
  const Index batch = static_cast<Index>(mean.element_count()) / std::max<Index>(size, 1);
  // Aliased by XLA; copied only if it chose not to.
  const auto carry = [](const Real* from, Real* to, std::size_t count) {
    if (from != to) std::copy_n(from, count, to);
  };
  carry(mean.typed_data(), mean_out->typed_data(), mean.element_count());
  carry(diag.typed_data(), diag_out->typed_data(), diag.element_count());
  carry(factor.typed_data(), factor_out->typed_data(), factor.element_count());

  const Index layers = static_cast<Index>(layout.size()) / 2;
  const auto one = [&](Index b, Index parts, const auto& run) {
    // Layers lie side by side in memory, example after example; a block wants its own rows.
    std::vector<Block<Real>> blocks;
    std::vector<std::vector<Real>> packed;
    const Real* a = activations.typed_data() + b * examples * inputs;
    const Real* d = deltas.typed_data() + b * examples * columns * outputs;
    const std::vector<Real> ones(examples, Real(1));
    Index offset = 0, input = 0, output = 0;
    for (Index l = 0; l < layers; ++l) {
      const Index in = layout[2 * l], out = layout[2 * l + 1];
      const bool written = in > 1 && out < kShort;
      std::vector<Real> own_a, own_d;
      for (Index n = 0; n < examples; ++n)
        own_a.insert(own_a.end(), a + n * inputs + input, a + n * inputs + input + in);
      for (Index m = 0; m < examples * columns; ++m)
        for (Index i = 0; i < (written ? in : 1); ++i)
          for (Index o = 0; o < out; ++o)
            own_d.push_back(d[m * outputs + output + o] * (written ? own_a[m / columns * in + i] : 1));
      packed.push_back(std::move(own_a));
      const Real* own = written ? ones.data() : packed.back().data();
      packed.push_back(std::move(own_d));
      blocks.push_back({offset, written ? 1 : in, written ? in * out : out, own,
                        packed.back().data(), nullptr});
      offset += in * out;
      input += in;
      output += out;
    }
    const Real* wait = pending.typed_data() + 4 * b;
    const Task<Real> task = {size,    rank,    examples, columns, nullptr, layers,
                             wait[0], wait[1], wait[2],  wait[3],
                             mean_out->typed_data() + b * size,
                             diag_out->typed_data() + b * size,
                             factor_out->typed_data() + b * rank * size, nullptr};
    condition(task, blocks, residual.typed_data() + b * examples * columns, kernels, parts, run);
  };
  const auto serial = [](Index count, const std::function<void(Index)>& work) {
    for (Index i = 0; i < count; ++i) work(i);
  };
  const Index numbers = size * (rank + examples * columns);
  if (batch > 1 && batch * numbers > kAlone) {
    parallel(pool, batch, [&](Index b) { one(b, 1, serial); });
  } else {
    const Index parts = numbers > kAlone ? std::max<Index>(1, pool.num_threads()) : 1;
    for (Index b = 0; b < batch; ++b)
      one(b, parts, [&](Index count, const std::function<void(Index)>& work) {
        count == 1 ? work(0) : parallel(pool, count, work);
      });
  }
  return ffi::Error::Success();
}

template <ffi::DataType kType>
auto binding() {
  return ffi::Ffi::Bind()
      .Ctx<ffi::ThreadPool>()
      .Attr<ffi::Span<const std::int64_t>>("layout")
      .Arg<ffi::Buffer<kType>>()
      .template Arg<ffi::Buffer<kType>>()
      .template Arg<ffi::Buffer<kType>>()
      .template Arg<ffi::Buffer<kType>>()
      .template Arg<ffi::Buffer<kType>>()
      .template Arg<ffi::Buffer<kType>>()
      .template Arg<ffi::Buffer<kType>>()
      .template Ret<ffi::Buffer<kType>>()
      .template Ret<ffi::Buffer<kType>>()
      .template Ret<ffi::Buffer<kType>>();
}

}  // namespace
}  // namespace bayestream

XLA_FFI_DEFINE_HANDLER_SYMBOL(bayestream_dlr_condition_float32,
                              bayestream::dlr_condition<ffi::F32>,
                              bayestream::binding<ffi::F32>());
XLA_FFI_DEFINE_HANDLER_SYMBOL(bayestream_dlr_condition_float64,
                              bayestream::dlr_condition<ffi::F64>,
                              bayestream::binding<ffi::F64>());
