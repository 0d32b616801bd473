// One instruction set's two passes. Compiled with -DREAL=float|double, -DVARIANT=<name> and
// -DVECTOR_BYTES=16|32|64. Only builtins here: an inline function of the standard library, compiled
// for this instruction set, could be linked in where an older one is needed.
#include "kernels.h"

namespace bayestream {
namespace {

using Real = REAL;
typedef Real Vec __attribute__((vector_size(VECTOR_BYTES)));
typedef Real Loose __attribute__((vector_size(VECTOR_BYTES), aligned(sizeof(Real)), may_alias));

// Register blocks are arrays of constant size; unrolled, they live in registers.
#define UNROLL _Pragma("GCC unroll 8")

constexpr Index kWidth = VECTOR_BYTES / sizeof(Real);
constexpr Index kStride = kTile + 64 / sizeof(Real);    // between rows: not a power of two, so
                                                        // that they do not compete for cache sets
constexpr Index kGroup = VECTOR_BYTES == 64 ? 5 : 3;    // rows of a register block
constexpr Index kMixed = VECTOR_BYTES == 64 ? 6 : 4;    // the same, in the second pass
constexpr Index kVectors = VECTOR_BYTES == 64 ? 4 : 2;  // vectors beside them

inline Vec load(const Real* p) { return *reinterpret_cast<const Loose*>(p); }
inline void store(Real* p, Vec v) { *reinterpret_cast<Loose*>(p) = v; }
// The next address where a vector does not straddle two cache lines; costs up to kLine numbers.
constexpr Index kLine = 64 / sizeof(Real);
inline Real* aligned(Real* p) {
  return reinterpret_cast<Real*>((reinterpret_cast<std::uintptr_t>(p) + 63) / 64 * 64);
}
inline Index min(Index a, Index b) { return a < b ? a : b; }
inline Index max(Index a, Index b) { return a > b ? a : b; }
inline Index padded(Index count) { return (count + kWidth - 1) / kWidth * kWidth; }

inline double add_lanes(const Real* lanes) {
  double total = 0;
  for (Index w = 0; w < kWidth; ++w) total += lanes[w];
  return total;
}

// A run of parameters of one layer that share their activations, at most a tile of them.
struct Run {
  const Block<Real>* block;
  Index begin, count, input, output;  // output: the first one's
};

// All runs in [begin, end). A layer's go by outputs first: what is kept for a tile of them, sums or
// mixed deltas, stays in cache while the inputs pass.
template <typename Visit>
inline void for_runs(const Task<Real>& task, Index begin, Index end, Visit visit) {
  for (Index b = 0; b < task.block_count; ++b) {
    const Block<Real>& block = task.blocks[b];
    const Index from = max(begin, block.offset) - block.offset;
    const Index to = min(end - block.offset, block.inputs * block.outputs);
    if (from >= to) continue;
    for (Index tile = 0; tile < block.outputs; tile += kTile)
      for (Index input = from / block.outputs; input <= (to - 1) / block.outputs; ++input) {
        const Index row = input * block.outputs;
        const Index first = max(from, row + tile);
        const Index last = min(to, row + min(tile + kTile, block.outputs));
        if (first < last)
          visit(Run{&block, block.offset + first, last - first, input, first - row});
      }
  }
}

// Where the next run's numbers lie, relative to this one's.
inline Index ahead(const Block<Real>& block) { return block.structured() ? block.outputs : kTile; }

// What waits for each parameter of a run, padded so that vectors may read past its end.
struct Waiting {
  Real ratio[kTile];    // z / W
  Real inverse[kTile];  // 1 / upsilon'
  Real late[kTile];     // what z z' is multiplied by to give q s W1 W1'
  Real diag[kTile];     // upsilon'
};

inline void settle(const Task<Real>& task, const Run& run, Waiting& __restrict now) {
  const Real power = task.power, added = task.added, gamma = task.decay, q = task.drift;
  const Real gamma2 = gamma * gamma;
  const Real shrink = gamma * __builtin_sqrt(task.power);
  const Real step = gamma != 0 ? q / gamma2 : Real(0);  // z is zero anyway where gamma is
  const Real* __restrict diag = task.diag + run.begin;
  for (Index t = 0; t < run.count; ++t) {
    const Real u = power * diag[t] + added, spread = gamma2 + q * u;
    const Real both = 1 / (u * spread);  // one division for 1 / u and 1 / spread
    now.ratio[t] = shrink * u * both;
    now.inverse[t] = spread * spread * both;
    now.late[t] = step * spread;
    now.diag[t] = u * u * both;
  }
  for (Index t = run.count; t < padded(run.count); ++t)
    now.ratio[t] = now.inverse[t] = now.late[t] = now.diag[t] = 0;
}

// Loops over a run, left to the compiler: `out` never overlaps the rest.
inline void scale(Real* __restrict out, Real a, const Real* __restrict x, Index count) {
  for (Index t = 0; t < count; ++t) out[t] = a * x[t];
}
inline void scale(Real* __restrict out, const Real* __restrict w, const Real* __restrict x,
                  Index count) {
  for (Index t = 0; t < count; ++t) out[t] = w[t] * x[t];
}
// The same for a row of W; by the time the next run is wanted, it is in cache.
inline void read_row(Real* __restrict out, const Real* __restrict w, const Real* __restrict x,
                     const Run& run) {
  const Real* next = x + ahead(*run.block);
  for (Index t = 0; t < run.count; t += kLine) __builtin_prefetch(next + t);
  scale(out, w, x, run.count);
}
inline void add_scaled(Real* __restrict out, Real a, const Real* __restrict x, Index count) {
  for (Index t = 0; t < count; ++t) out[t] += a * x[t];
}
inline void copy(Real* __restrict out, const Real* __restrict x, Index count) {
  for (Index t = 0; t < count; ++t) out[t] = x[t];
}
inline void clear(Real* out, Index begin, Index end) {
  for (Index t = begin; t < end; ++t) out[t] = 0;
}

// sums[i][j] += x_i y_j over `stop` parameters: one register block, its lanes added up at the end.
template <Index kRows, Index kColumns>
__attribute__((noinline)) void multiply_block(const Real* x, const Real* y, Index stop,
                                              Index stride, Real* sums) {
  Vec sum[kRows][kColumns];
  UNROLL for (Index i = 0; i < kRows; ++i)
    UNROLL for (Index j = 0; j < kColumns; ++j) sum[i][j] = load(sums + (i * stride + j) * kWidth);
  for (Index t = 0; t < stop; t += kWidth) {
    Vec beside[kColumns];
    UNROLL for (Index j = 0; j < kColumns; ++j) beside[j] = load(y + j * kStride + t);
    UNROLL for (Index i = 0; i < kRows; ++i) {
      const Vec row = load(x + i * kStride + t);
      UNROLL for (Index j = 0; j < kColumns; ++j) sum[i][j] += row * beside[j];
    }
  }
  UNROLL for (Index i = 0; i < kRows; ++i)
    UNROLL for (Index j = 0; j < kColumns; ++j) store(sums + (i * stride + j) * kWidth, sum[i][j]);
}

template <Index kRows>
inline void multiply_rows(const Real* x, const Real* y, Index columns, Index stop, Index stride,
                          Real* sums) {
  Index j = 0;
  for (; j + kGroup <= columns; j += kGroup)
    multiply_block<kRows, kGroup>(x, y + j * kStride, stop, stride, sums + j * kWidth);
  switch (columns - j) {
    case 4: return multiply_block<kRows, 4>(x, y + j * kStride, stop, stride, sums + j * kWidth);
    case 3: return multiply_block<kRows, 3>(x, y + j * kStride, stop, stride, sums + j * kWidth);
    case 2: return multiply_block<kRows, 2>(x, y + j * kStride, stop, stride, sums + j * kWidth);
    case 1: return multiply_block<kRows, 1>(x, y + j * kStride, stop, stride, sums + j * kWidth);
  }
}

// sums (rows, stride) += x y', for tiles x (rows, kTile) and y (columns, kTile); `lower`: only the
// groups of rows on and below the diagonal.
inline void multiply(const Real* x, Index rows, const Real* y, Index columns, Index stop,
                     Index stride, bool lower, Real* sums) {
  for (Index i = 0; i < rows; i += kGroup) {
    const Index group = min(kGroup, rows - i), until = lower ? i + group : columns;
    const Real* from = x + i * kStride;
    Real* to = sums + i * stride * kWidth;
    switch (group) {
      case 5: multiply_rows<5>(from, y, until, stop, stride, to); break;
      case 4: multiply_rows<4>(from, y, until, stop, stride, to); break;
      case 3: multiply_rows<3>(from, y, until, stop, stride, to); break;
      case 2: multiply_rows<2>(from, y, until, stop, stride, to); break;
      case 1: multiply_rows<1>(from, y, until, stop, stride, to); break;
    }
  }
}

// Where the first pass keeps its sums and its tiles.
struct GramMemory {
  Index low, high;                // L and M
  Real *plain, *scaled, *drift;   // (L, L) vectors each
  Real *cross, *cross_scaled;     // (L, M) vectors each: rows without structure
  Real *own, *own_scaled;         // (M, M) vectors each: rows without structure
  Real* z;                        // tiles (L, kTile)
  Real *z_scaled, *z_late;        // the same, times 1 / upsilon' and times `late`
  Real *g, *g_scaled;             // tiles (M, kTile)
  Real* by_output;                // then, layer by layer, (N, 2 L + N, outputs)

  GramMemory(const Task<Real>& task, Real* memory) : low(task.rank), high(task.rows()) {
    memory = aligned(memory);
    const auto take = [&](Index count) {
      Real* taken = memory;
      memory += count;
      return taken;
    };
    plain = take(low * low * kWidth);
    scaled = take(low * low * kWidth);
    drift = take(low * low * kWidth);
    cross = take(low * high * kWidth);
    cross_scaled = take(low * high * kWidth);
    own = take(high * high * kWidth);
    own_scaled = take(high * high * kWidth);
    z = take(low * kStride);
    z_scaled = take(low * kStride);
    z_late = take(low * kStride);
    g = take(high * kStride);
    g_scaled = take(high * kStride);
    by_output = memory;
  }
};

Index by_output_size(const Task<Real>& task, const Block<Real>& block) {
  return block.structured() ? task.examples * (2 * task.rank + task.examples) * block.outputs : 0;
}

Index gram_memory(const Task<Real>& task) {
  Index total = GramMemory(task, nullptr).by_output - static_cast<Real*>(nullptr);
  for (Index b = 0; b < task.block_count; ++b) total += by_output_size(task, task.blocks[b]);
  return total + kLine;
}

void gram(const Task<Real>& task, Index begin, Index end, Real* memory) {
  const GramMemory to(task, memory);
  const Index low = to.low, high = to.high;
  const bool drifting = task.drift != 0 && low > 0;
  alignas(64) Waiting now;
  for_runs(task, begin, end, [&](const Run& run) {
    settle(task, run, now);
    const Block<Real>& block = *run.block;
    const Index stop = padded(run.count);
    Real* home = to.by_output + run.output;
    for (const Block<Real>* b = task.blocks; b != &block; ++b) home += by_output_size(task, *b);
    for (Index l = 0; l < low; ++l) {
      // One loop for all that the first example needs of a row, since each load costs the same.
      const Real* w = task.factor + l * task.size + run.begin;
      Real *z = to.z + l * kStride, *z_scaled = to.z_scaled + l * kStride;
      Real* z_late = to.z_late + l * kStride;
      Real *sum = home + 2 * l * block.outputs, *sum_scaled = sum + block.outputs;
      const Real a = block.activations[run.input];
      const Real* next = w + ahead(block);
      const Index whole = run.count / kWidth * kWidth;
      for (Index t = 0; t < whole; t += kWidth) {
        __builtin_prefetch(next + t);
        const Vec row = load(w + t) * load(now.ratio + t), scaled = row * load(now.inverse + t);
        store(z + t, row);
        store(z_scaled + t, scaled);
        if (drifting) store(z_late + t, row * load(now.late + t));
        if (!block.structured()) continue;
        store(sum + t, load(sum + t) + a * row);
        store(sum_scaled + t, load(sum_scaled + t) + a * scaled);
      }
      for (Index t = whole; t < stop; ++t) {
        z[t] = t < run.count ? w[t] * now.ratio[t] : Real(0);
        z_scaled[t] = z[t] * now.inverse[t];
        z_late[t] = z[t] * now.late[t];
        if (!block.structured() || t >= run.count) continue;
        sum[t] += a * z[t];
        sum_scaled[t] += a * z_scaled[t];
      }
    }
    multiply(to.z, low, to.z, low, stop, low, true, to.plain);
    multiply(to.z_scaled, low, to.z, low, stop, low, true, to.scaled);
    if (drifting) multiply(to.z_late, low, to.z, low, stop, low, true, to.drift);

    if (!block.structured()) {
      for (Index m = 0; m < high; ++m) {
        const Real a = block.activations[m / task.columns];
        Real* g = to.g + m * kStride;
        scale(g, a, block.deltas + m * block.outputs + run.output, run.count);
        clear(g, run.count, stop);
        scale(to.g_scaled + m * kStride, now.inverse, g, stop);
      }
      multiply(to.z, low, to.g, high, stop, high, false, to.cross);
      multiply(to.z_scaled, low, to.g, high, stop, high, false, to.cross_scaled);
      multiply(to.g, high, to.g, high, stop, high, true, to.own);
      multiply(to.g_scaled, high, to.g, high, stop, high, true, to.own_scaled);
      return;
    }
    for (Index n = 0; n < task.examples; ++n) {
      const Real a = block.activations[n * block.inputs + run.input];
      Real* sums = home + n * (2 * low + task.examples) * block.outputs;
      for (Index l = 0; n > 0 && l < low; ++l) {
        add_scaled(sums + 2 * l * block.outputs, a, to.z + l * kStride, run.count);
        add_scaled(sums + (2 * l + 1) * block.outputs, a, to.z_scaled + l * kStride, run.count);
      }
      for (Index n2 = 0; n2 < task.examples; ++n2)
        add_scaled(sums + (2 * low + n2) * block.outputs,
                   a * block.activations[n2 * block.inputs + run.input], now.inverse, run.count);
    }
  });
}

// sum_o w_o x_o y_o, and without w; many sums at once, since the order of one is fixed.
inline double dot(const Real* x, const Real* y, const Real* w, Index count) {
  Vec sum = {};
  Index t = 0;
  for (; t + kWidth <= count; t += kWidth)
    sum += load(x + t) * load(y + t) * (w ? load(w + t) : Vec{} + 1);
  double total = add_lanes(reinterpret_cast<const Real*>(&sum));
  for (; t < count; ++t) total += x[t] * y[t] * (w ? w[t] : Real(1));
  return total;
}

void finish(const Task<Real>& task, const Real* memory, const Grams& grams) {
  const GramMemory from(task, const_cast<Real*>(memory));
  const Index low = from.low, high = from.high, all = low + high;
  for (Index i = 0; i < low; ++i) {
    for (Index j = 0; j <= i; ++j) {
      grams.plain[i * all + j] += add_lanes(from.plain + (i * low + j) * kWidth);
      grams.scaled[i * all + j] += add_lanes(from.scaled + (i * low + j) * kWidth);
      grams.drift[i * all + j] += add_lanes(from.drift + (i * low + j) * kWidth);
    }
    for (Index m = 0; m < high; ++m) {
      grams.plain[(low + m) * all + i] += add_lanes(from.cross + (i * high + m) * kWidth);
      grams.scaled[(low + m) * all + i] += add_lanes(from.cross_scaled + (i * high + m) * kWidth);
    }
  }
  for (Index i = 0; i < high; ++i)
    for (Index j = 0; j <= i; ++j) {
      double* plain = grams.plain + (low + i) * all + low + j;
      grams.scaled[(low + i) * all + low + j] += add_lanes(from.own_scaled + (i * high + j) * kWidth);
      *plain += add_lanes(from.own + (i * high + j) * kWidth);
    }
  const Real* home = from.by_output;
  for (Index b = 0; b < task.block_count; ++b) {
    const Block<Real>& block = task.blocks[b];
    if (!block.structured()) continue;
    const Index lines = 2 * low + task.examples;
    for (Index m = 0; m < high; ++m) {
      const Index n = m / task.columns;
      const Real* delta = block.deltas + m * block.outputs;
      const Real* sums = home + n * lines * block.outputs;
      for (Index l = 0; l < low; ++l) {
        const Real* z = sums + 2 * l * block.outputs;
        grams.plain[(low + m) * all + l] += dot(z, delta, nullptr, block.outputs);
        grams.scaled[(low + m) * all + l] += dot(z + block.outputs, delta, nullptr, block.outputs);
      }
      for (Index m2 = 0; m2 <= m; ++m2) {
        const Real* weight = sums + (2 * low + m2 / task.columns) * block.outputs;
        const Real* other = block.deltas + m2 * block.outputs;
        grams.scaled[(low + m) * all + low + m2] += dot(delta, other, weight, block.outputs);
      }
    }
    home += by_output_size(task, block);
  }
}

Index rotate_memory(const Task<Real>& task) { return (task.rank + kMixed) * kStride + kLine; }

// What a block of new rows is made of: G's part, from the mixed deltas, and W's, from z.
struct Sources {
  const Real* z;            // (L, kStride)
  const Real* mix;          // (kRows, L)
  const Real* fresh;        // (examples, lines, outputs), at the block's first row and output
  const Real* activations;  // one for each example, `inputs` apart
  Index rank, examples, lines, inputs, outputs;
};

// New rows over `count` parameters, a whole number of register blocks: stored, or, of those that
// are dropped, their squares added to `out` (then one row).
template <Index kRows, bool kSquares>
__attribute__((noinline)) void mix_block(const Sources& from, Index count, Real* out, Index stride) {
  for (Index t = 0; t < count; t += kVectors * kWidth) {
    Vec sum[kRows][kVectors];
    UNROLL for (Index i = 0; i < kRows; ++i)
      UNROLL for (Index j = 0; j < kVectors; ++j)
        sum[i][j] = from.activations[0] * load(from.fresh + i * from.outputs + t + j * kWidth);
    for (Index n = 1; n < from.examples; ++n) {
      const Real* fresh = from.fresh + n * from.lines * from.outputs + t;
      const Real a = from.activations[n * from.inputs];
      UNROLL for (Index i = 0; i < kRows; ++i)
        UNROLL for (Index j = 0; j < kVectors; ++j)
          sum[i][j] += a * load(fresh + i * from.outputs + j * kWidth);
    }
    for (Index l = 0; l < from.rank; ++l) {
      Vec old[kVectors];
      UNROLL for (Index j = 0; j < kVectors; ++j)
        old[j] = load(from.z + l * kStride + t + j * kWidth);
      UNROLL for (Index i = 0; i < kRows; ++i) {
        const Real weight = from.mix[i * from.rank + l];
        UNROLL for (Index j = 0; j < kVectors; ++j) sum[i][j] += weight * old[j];
      }
    }
    UNROLL for (Index j = 0; j < kVectors; ++j) {
      Real* to = out + t + j * kWidth;
      if (kSquares) {
        Vec squares = load(to);
        UNROLL for (Index i = 0; i < kRows; ++i) squares += sum[i][j] * sum[i][j];
        store(to, squares);
      } else {
        UNROLL for (Index i = 0; i < kRows; ++i) store(to + i * stride, sum[i][j]);
      }
    }
  }
}

template <bool kSquares>
inline void mix_rows(Index rows, const Sources& from, Index count, Real* out, Index stride) {
  switch (rows) {
    case 6: return mix_block<6, kSquares>(from, count, out, stride);
    case 5: return mix_block<5, kSquares>(from, count, out, stride);
    case 4: return mix_block<4, kSquares>(from, count, out, stride);
    case 3: return mix_block<3, kSquares>(from, count, out, stride);
    case 2: return mix_block<2, kSquares>(from, count, out, stride);
    case 1: return mix_block<1, kSquares>(from, count, out, stride);
  }
}

void rotate(const Task<Real>& task, Index begin, Index end, Real* memory) {
  const Index rank = task.rank, lines = task.lines();
  Real* z = aligned(memory);         // (L, kStride)
  Real* spare = z + rank * kStride;  // (kMixed, kStride): a run's end, and the mean's row
  alignas(64) Waiting now;
  for_runs(task, begin, end, [&](const Run& run) {
    settle(task, run, now);
    const Block<Real>& block = *run.block;
    for (Index l = 0; l < rank; ++l)
      read_row(z + l * kStride, now.ratio, task.factor + l * task.size + run.begin, run);
    const auto sources = [&](Index row, Index t) {
      return Sources{z + t,
                     task.mix + row * rank,
                     block.fresh + row * block.outputs + run.output + t,
                     block.activations + run.input,
                     rank, task.examples, lines, block.inputs, block.outputs};
    };
    // Whole register blocks are written where they belong; what is left of the run, by way of
    // `spare`, since a block reaches beyond its end.
    const Index whole = run.count / (kVectors * kWidth) * (kVectors * kWidth);
    const Index left = run.count - whole;
    for (Index r = 0; r < rank; r += kMixed) {
      const Index rows = min(kMixed, rank - r);
      Real* to = task.factor + r * task.size + run.begin;
      mix_rows<false>(rows, sources(r, 0), whole, to, task.size);
      if (left == 0) continue;
      mix_rows<false>(rows, sources(r, whole), left, spare, kStride);
      for (Index i = 0; i < rows; ++i) copy(to + i * task.size + whole, spare + i * kStride, left);
    }
    for (Index r = rank; r < lines - 1; r += kMixed)
      mix_rows<true>(min(kMixed, lines - 1 - r), sources(r, 0), run.count, now.diag, 0);
    mix_rows<false>(1, sources(lines - 1, 0), run.count, spare, kStride);
    copy(task.diag + run.begin, now.diag, run.count);
    Real* __restrict mean = task.mean + run.begin;
    const Real gamma = task.decay;
    for (Index t = 0; t < run.count; ++t) mean[t] = gamma * mean[t] + spare[t] * now.inverse[t];
  });
}

}  // namespace

#define BAYESTREAM_JOIN(a, b) a##_##b
#define BAYESTREAM_NAME(a, b) BAYESTREAM_JOIN(a, b)
Kernels<REAL> BAYESTREAM_NAME(VARIANT, REAL)() {
  return {gram_memory, gram, finish, rotate_memory, rotate};
}

}  // namespace bayestream
