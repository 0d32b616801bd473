// What the FFI calls share: the kernels for this CPU, XLA's threads, and layers as blocks.
#pragma once
#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <functional>
#include <memory>
#include <mutex>
#include <utility>

#include "arrays.h"
#include "kernels.h"
#include "xla/ffi/api/ffi.h"

namespace bayestream {

namespace ffi = xla::ffi;

// What the best instruction set of this CPU offers.
template <typename Offer>
auto best(Offer avx512, Offer avx2, Offer baseline) {
#if defined(__x86_64__)
  if (__builtin_cpu_supports("avx512f")) return avx512();
  if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma")) return avx2();
#endif
  return baseline();
}

// Run work(0), ..., work(count - 1) on XLA's threads and this one. This thread takes whatever no
// other has taken and waits only for parts that have begun, so it never waits for a busy pool.
inline void parallel(ffi::ThreadPool& pool, Index count, const std::function<void(Index)>& work) {
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

// Runs work(0), ..., work(count - 1), on however many threads.
using Runner = std::function<void(Index count, const std::function<void(Index)>& work)>;

// Below this many numbers a second thread costs more than it saves: of one belief, whose parts meet
// twice, and of several.
constexpr Index kAlone = 1 << 16, kAloneTogether = 1 << 14;

// Calls one(b, parts, run) for each belief of a batch, of so many numbers each: either beliefs or
// the parts of each go to different threads.
template <typename One>
void for_beliefs(ffi::ThreadPool& pool, Index batch, Index numbers, const One& one) {
  const Runner serial = [](Index count, const std::function<void(Index)>& work) {
    for (Index i = 0; i < count; ++i) work(i);
  };
  if (batch > 1 && batch * numbers > kAloneTogether)
    return parallel(pool, batch, [&](Index b) { one(b, 1, serial); });
  const Index parts = numbers > kAlone ? std::max<Index>(1, pool.num_threads()) : 1;
  const Runner together = [&](Index count, const std::function<void(Index)>& work) {
    parallel(pool, count, work);
  };
  for (Index b = 0; b < batch; ++b) one(b, parts, parts == 1 ? serial : together);
}

// A binding that goes on with so many arguments and then results, at least one, all of one type.
template <ffi::DataType kType, int kArguments, int kResults, typename Binding>
auto with_buffers(Binding binding) {
  using Buffer = ffi::Buffer<kType>;
  if constexpr (kArguments > 0)
    return with_buffers<kType, kArguments - 1, kResults>(std::move(binding).template Arg<Buffer>());
  else if constexpr (kResults > 1)
    return with_buffers<kType, 0, kResults - 1>(std::move(binding).template Ret<Buffer>());
  else
    return std::move(binding).template Ret<Buffer>();
}

// Results alias their arguments; copied only if XLA chose otherwise.
template <typename Argument, typename Result>
void carry(const Argument& from, Result& to) {
  if (from.typed_data() != to->typed_data())
    std::copy_n(from.typed_data(), from.element_count(), to->typed_data());
}

// The k-th dimension from the end.
template <typename Argument>
Index dimension(const Argument& argument, Index k) {
  return argument.dimensions()[argument.dimensions().size() - k];
}

// Where the b-th of a batch lies in an argument that may be the same for some or all of it: its
// leading dimensions are the batch's, or one.
template <typename Argument, typename Result>
Index place(const Argument& argument, Index own, const Result& result, Index b) {
  const auto theirs = argument.dimensions(), all = result.dimensions();
  Index found = 0, stride = 1;
  for (Index k = static_cast<Index>(theirs.size()) - own - 1; k >= 0; --k) {
    found += theirs[k] == 1 ? 0 : b % all[k] * stride;
    b /= all[k];
    stride *= theirs[k];
  }
  for (Index k = 1; k <= own; ++k) found *= dimension(argument, k);
  return found;
}

// A belief's layers as blocks, with the numbers they point to. In memory, layers lie side by side,
// example after example; a block wants its own rows.
template <typename Real>
struct Layers {
  Array<Block<Real>> blocks;
  Array<Array<Real>> packed;

  // `layout` is inputs, outputs, layer by layer. Layers of fewer outputs than `least` would be
  // visited in runs too short; their rows are written out, neighbours' as one.
  Layers(ffi::Span<const std::int64_t> layout, const Real* activations, const Real* deltas,
         Index examples, Index columns, Index least) {
    const Index layers = static_cast<Index>(layout.size()) / 2, rows = examples * columns;
    Index inputs = 0, outputs = 0;
    for (Index l = 0; l < layers; ++l) inputs += layout[2 * l], outputs += layout[2 * l + 1];
    blocks.reserve(layers);
    packed.reserve(2 * layers);
    const auto written = [&](Index l) { return layout[2 * l] == 1 || layout[2 * l + 1] < least; };
    Index offset = 0;
    for (Index l = 0, end; l < layers; l = end) {
      Index size = layout[2 * l] * layout[2 * l + 1];
      for (end = l + 1; written(l) && end < layers && written(end); ++end)
        size += layout[2 * end] * layout[2 * end + 1];
      const Index in = written(l) ? 1 : layout[2 * l], out = size / in;
      Array<Real> a(examples * in, Real(1)), d(rows * out);
      if (written(l)) {
        Index at = 0;
        for (Index k = l; k < end; ++k) {
          const Index own = layout[2 * k + 1];
          for (Index m = 0; m < rows; ++m)
            for (Index i = 0; i < layout[2 * k]; ++i)
              for (Index o = 0; o < own; ++o)
                d[m * out + at + i * own + o] =
                    activations[m / columns * inputs + i] * deltas[m * outputs + o];
          at += layout[2 * k] * own;
          activations += layout[2 * k];
          deltas += own;
        }
      } else {
        for (Index n = 0; n < examples; ++n)
          std::copy_n(activations + n * inputs, in, a.data() + n * in);
        for (Index m = 0; m < rows; ++m) std::copy_n(deltas + m * outputs, out, d.data() + m * out);
        activations += in;
        deltas += out;
      }
      packed.push_back(std::move(a));
      packed.push_back(std::move(d));
      const Real *first = packed[packed.size() - 2].data(), *second = packed.back().data();
      blocks.push_back({offset, in, out, first, second, nullptr});
      offset += size;
    }
  }

  // The squared length of every row of G.
  Array<double> squares(Index columns) const {
    Array<double> sums;
    for (const Block<Real>& block : blocks) {
      const Array<Real>& a = packed[2 * (&block - blocks.data())];
      const Array<Real>& d = packed[2 * (&block - blocks.data()) + 1];
      const Index rows = d.size() / block.outputs;
      sums.resize(rows, 0.0);
      for (Index m = 0; m < rows; ++m) {
        double inputs = 0.0, outputs = 0.0;
        for (Index i = 0; i < block.inputs; ++i) {
          const double x = a[m / columns * block.inputs + i];
          inputs += x * x;
        }
        for (Index o = 0; o < block.outputs; ++o) {
          const double x = d[m * block.outputs + o];
          outputs += x * x;
        }
        sums[m] += inputs * outputs;
      }
    }
    return sums;
  }

  // Each example's rows times its trust.
  void weigh(const Array<double>& trust) {
    for (std::size_t b = 0; b < blocks.size(); ++b)
      for (std::size_t n = 0; n < trust.size(); ++n)
        for (Index i = 0; i < blocks[b].inputs; ++i)
          packed[2 * b][n * blocks[b].inputs + i] *= static_cast<Real>(trust[n]);
  }
};

}  // namespace bayestream
