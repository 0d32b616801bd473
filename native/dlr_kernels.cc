// The two passes of LO-FI, also of the spherical one, for one instruction set and precision; see
// vectors.h.
#include "tiles.h"

namespace bayestream {
namespace {

constexpr Index kNear = 1 << 14;  // numbers of W in a dozen inputs
constexpr Index kAcross = 64;     // outputs of a patch
constexpr Index kDepth = 4;       // its inputs, in the first pass

// Parameters of one layer handled at once: a few inputs' weights to a stretch of outputs. In a tile,
// one input's lie `span` after another's, a whole number of vectors.
struct Patch {
  const Block<Real>* block;
  Index input, depth, output, width, span;
  Index ahead, count;  // parameters to ask for meanwhile

  Index begin(Index d) const { return block->offset + (input + d) * block->outputs + output; }
};

// One part's share of all layers, in patches of at most `depth` inputs by `width` outputs. Inputs
// go by the dozen, so that what is kept for a stretch of outputs stays in cache while they pass.
// Meanwhile the next dozen is asked for, in the order of memory, which the CPU expects; both are to
// fit in the second-level cache.
template <typename Visit>
inline void for_patches(const Task<Real>& task, Index part, Index parts, Index depth, Index width,
                        Visit visit) {
  for (Index b = 0; b < task.block_count; ++b) {
    const Block<Real>& block = task.blocks[b];
    const Index all = block.structured() ? block.inputs : block.outputs;
    const Index from = all * part / parts, to = all * (part + 1) / parts;
    if (!block.structured()) {
      for (Index o = from; o < to; o += kTile) {
        const Index count = min(kTile, to - o);
        visit(Patch{&block, 0, 1, o, count, padded(count), block.offset + o + count,
                    min(kTile, to - o - count)});
      }
      continue;
    }
    const Index fit = kNear / max(1, task.rank * block.outputs);
    const Index dozen = max(depth, min(16, fit / depth * depth));
    const Index visits = (block.outputs + width - 1) / width * ((dozen + depth - 1) / depth);
    const Index share = (dozen * block.outputs + visits - 1) / visits;
    const Index end = block.offset + to * block.outputs;
    for (Index first = from; first < to; first += dozen) {
      const Index last = min(first + dozen, to);
      Index ahead = block.offset + last * block.outputs;
      for (Index o = 0; o < block.outputs; o += width)
        for (Index i = first; i < last; i += depth, ahead += share) {
          const Index count = min(width, block.outputs - o);
          visit(Patch{&block, i, min(depth, last - i), o, count, padded(count), ahead,
                      max(0, min(share, end - ahead))});
        }
    }
  }
}

// What waits for each parameter of a patch; beyond its edge, zeros for vectors to read.
struct Waiting {
  Real ratio[kTile];    // z / W
  Real inverse[kTile];  // 1 / upsilon'
  Real late[kTile];     // what z z' is multiplied by to give q s W1 W1'
  Real diag[kTile];     // upsilon'
};

inline void settle(const Task<Real>& task, const Patch& patch, Waiting& __restrict now) {
  if (task.spherical()) {
    for (Index t = 0; t < patch.depth * patch.span; ++t) now.ratio[t] = now.inverse[t] = 1;
    return;
  }
  const Real power = task.power, added = task.added, gamma = task.decay, q = task.drift;
  const Real gamma2 = gamma * gamma;
  const Real shrink = gamma * __builtin_sqrt(task.power);
  const Real step = gamma != 0 ? q / gamma2 : Real(0);  // z is zero anyway where gamma is
  for (Index d = 0; d < patch.depth; ++d) {
    const Real* __restrict diag = task.diag + patch.begin(d);
    const Index at = d * patch.span;
    for (Index t = 0; t < patch.width; ++t) {
      const Real u = power * diag[t] + added, spread = gamma2 + q * u;
      const Real both = 1 / (u * spread);  // one division for 1 / u and 1 / spread
      now.ratio[at + t] = shrink * u * both;
      now.inverse[at + t] = spread * spread * both;
      now.late[at + t] = step * spread;
      now.diag[at + t] = u * u * both;
    }
    for (Index t = at + patch.width; t < at + patch.span; ++t)
      now.ratio[t] = now.inverse[t] = now.late[t] = now.diag[t] = 0;
  }
}

// A row of z over a patch.
inline void read_row(const Patch& patch, const Real* row, const Waiting& now, Real* z) {
  for (Index d = 0; d < patch.depth; ++d) {
    scale(z + d * patch.span, now.ratio + d * patch.span, row + patch.begin(d), patch.width);
    clear(z + d * patch.span, patch.width, patch.span);
  }
}

// A row of G over a patch without structure.
inline void write_row(const Task<Real>& task, const Patch& patch, Index m, Real* g) {
  const Block<Real>& block = *patch.block;
  scale(g, block.activations[m / task.columns], block.deltas + m * block.outputs + patch.output,
        patch.width);
  clear(g, patch.width, patch.span);
}

// Ask for what a later patch will read of an array, so that it comes while this one is worked on.
inline void prefetch(const Patch& patch, const Real* array) {
  for (Index t = 0; t < patch.count; t += kLine)
    __builtin_prefetch(array + patch.ahead + t, 0, 2);
}
// The same of rows of W.
inline void prefetch(const Task<Real>& task, const Patch& patch, Index first, Index rows) {
  for (Index l = first; l < first + rows; ++l) prefetch(patch, task.factor + l * task.size);
}

Index by_output_size(const Task<Real>& task, const Block<Real>& block) {
  if (!block.structured()) return 0;
  return task.examples * (2 * task.rank + task.examples) * padded(block.outputs);
}

// Where both passes keep their tiles.
struct Tiles {
  Waiting* now;
  Real* z;  // (L + M, kStride), of z and G
  Real* end;

  Tiles(const Task<Real>& task, Real* memory)
      : now(reinterpret_cast<Waiting*>(aligned(memory))),
        z(aligned(memory) + sizeof(Waiting) / sizeof(Real)),
        end(z + (task.rank + task.rows()) * kStride) {}
};

// Where the first pass keeps its sums.
struct GramMemory {
  Index low, all;                // L and L + M
  Real *plain, *scaled;          // triangles of vectors (L + M): of G, rows without structure
  Real* drift;                   // a triangle of vectors (L)
  Real* by_output;               // layer by layer, (N, 2 L + N, outputs, padded)
  Real* end;

  GramMemory(const Task<Real>& task, Real* memory) : low(task.rank), all(low + task.rows()) {
    end = memory;
    const auto take = [&](Index count) {
      Real* taken = end;
      end += count;
      return taken;
    };
    plain = take(triangle(all) * kWidth);
    scaled = take(triangle(all) * kWidth);
    drift = take(triangle(low) * kWidth);
    by_output = end;
    for (Index b = 0; b < task.block_count; ++b) take(by_output_size(task, task.blocks[b]));
  }
};

// sums[t] += sum_d a_d w[d][t] x[d][t] over a patch's inputs; where there are fewer, with zeros for
// a_d. Without w it is one.
inline void add_inputs(const Patch& patch, const Real* a, const Real* w, const Real* x,
                       Real* sums) {
  Vec weight[kDepth];
  Index at[kDepth];
  UNROLL for (Index d = 0; d < kDepth; ++d) {
    weight[d] = Vec{} + (d < patch.depth ? a[d] : Real(0));
    at[d] = (d < patch.depth ? d : 0) * patch.span;
  }
  for (Index t = 0; t < patch.span; t += kWidth) {
    Vec sum = load(sums + t);
    UNROLL for (Index d = 0; d < kDepth; ++d) {
      const Vec scaled = w ? weight[d] * load(w + at[d] + t) : weight[d];
      sum += scaled * load(x + at[d] + t);
    }
    store(sums + t, sum);
  }
}

// Adds one part's sums to the matrices.
void finish(const Task<Real>& task, Index part, const GramMemory& from, const Grams& grams) {
  const Index low = from.low, all = from.all, half = triangle(all);
  Real* sums = from.plain;
  add_all_lanes(sums, 2 * half + triangle(low));
  for (Index i = 0; i < all; ++i)
    for (Index j = 0; j <= i; ++j) {
      const Index to = i * all + j, at = triangle(i) + j;
      grams.plain[to] += sums[at];
      grams.scaled[to] += sums[half + at];
      if (i < low) grams.drift[to] += sums[2 * half + at];
    }
  const Real* home = from.by_output;
  for (Index b = 0; b < task.block_count; ++b) {
    const Block<Real>& block = task.blocks[b];
    if (!block.structured()) continue;
    const Index lines = 2 * low + task.examples, outputs = padded(block.outputs);
    for (Index m = 0; m < all - low; ++m) {
      const Index n = m / task.columns;
      const Real* delta = block.deltas + m * block.outputs;
      const Real* sums = home + n * lines * outputs;
      for (Index l = 0; l < low; ++l) {
        const Real* z = sums + 2 * l * outputs;
        grams.plain[(low + m) * all + l] += dot(z, delta, nullptr, block.outputs);
        grams.scaled[(low + m) * all + l] += dot(z + outputs, delta, nullptr, block.outputs);
      }
      for (Index m2 = 0; m2 <= m; ++m2) {
        const Real* weight = sums + (2 * low + m2 / task.columns) * outputs;
        const Real* other = block.deltas + m2 * block.outputs;
        grams.scaled[(low + m) * all + low + m2] += dot(delta, other, weight, block.outputs);
        if (part != 0) continue;  // unweighted, deltas meet through their activations alone
        const Real* first = block.activations + n * block.inputs;
        const Real* second = block.activations + m2 / task.columns * block.inputs;
        grams.plain[(low + m) * all + low + m2] += dot(first, second, nullptr, block.inputs) *
                                                   dot(delta, other, nullptr, block.outputs);
      }
    }
    home += by_output_size(task, block);
  }
}

void gram(const Task<Real>& task, Index part, Index parts, Real* memory, const Grams& grams) {
  const Tiles tiles(task, memory);
  const GramMemory to(task, tiles.end);
  const Index low = to.low, all = to.all;
  const bool scaling = !task.spherical(), drifting = scaling && task.drift != 0;
  Waiting& now = *tiles.now;
  clear(to.plain, 0, to.end - to.plain);
  for_patches(task, part, parts, kDepth, kAcross, [&](const Patch& patch) {
    settle(task, patch, now);
    if (scaling) prefetch(patch, task.diag);
    const Block<Real>& block = *patch.block;
    const Index stop = patch.depth * patch.span, outputs = padded(block.outputs);
    Real* home = to.by_output + patch.output;
    for (const Block<Real>* b = task.blocks; b != &block; ++b) home += by_output_size(task, *b);
    const auto sums = [&](Index n, Index line) {
      return home + (n * (2 * low + task.examples) + line) * outputs;
    };
    const auto activations = [&](Index n) { return block.activations + n * block.inputs + patch.input; };

    for (Index l = 0; l < low; ++l)
      read_row(patch, task.factor + l * task.size, now, tiles.z + l * kStride);
    for (Index l = 0; l < low; l += kGroup) {
      const Index group = min(kGroup, low - l);
      if (!block.structured()) prefetch(task, patch, l, group);
      if (!task.known) multiply<false>(tiles.z, l, group, nullptr, stop, to.plain);
      if (scaling) multiply<true>(tiles.z, l, group, now.inverse, stop, to.scaled);
      if (drifting) multiply<true>(tiles.z, l, group, now.late, stop, to.drift);
    }
    if (!block.structured()) {
      for (Index r = low; r < all; ++r) write_row(task, patch, r - low, tiles.z + r * kStride);
      for (Index r = low; r < all; r += kGroup) {
        const Index group = min(kGroup, all - r);
        multiply<false>(tiles.z, r, group, nullptr, stop, to.plain);
        if (scaling) multiply<true>(tiles.z, r, group, now.inverse, stop, to.scaled);
      }
      return;
    }
    for (Index l = 0; l < low; ++l) {
      prefetch(task, patch, l, 1);  // a few lines at a time: many at once make each other wait
      const Real* z = tiles.z + l * kStride;
      for (Index n = 0; n < task.examples; ++n) {
        add_inputs(patch, activations(n), nullptr, z, sums(n, 2 * l));
        if (scaling) add_inputs(patch, activations(n), now.inverse, z, sums(n, 2 * l + 1));
      }
    }
    for (Index n = 0; scaling && n < task.examples; ++n)
      for (Index n2 = 0; n2 <= n; ++n2) {
        Real products[kDepth];
        for (Index d = 0; d < patch.depth; ++d) products[d] = activations(n)[d] * activations(n2)[d];
        add_inputs(patch, products, nullptr, now.inverse, sums(n, 2 * low + n2));
      }
  });
  finish(task, part, to, grams);
}

// What new rows are made of: W's part from z; G's from the mixed deltas or, without structure, from
// its tiles.
struct Sources {
  const Real* z;            // (rank, kStride), of which the first `terms` are wanted
  const Real* g;            // (rows, kStride), no rows if there is structure
  const Real* mix;          // (lines, L + M)
  const Real* fresh;        // (examples, lines, outputs), at the patch's first output, or null
  const Real* activations;  // one for each example, `inputs` apart
  Index terms, rank, rows, all, examples, lines, inputs, outputs;

  BAYESTREAM_INLINE Sources up_to(Index term) const {
    Sources fewer = *this;
    fewer.terms = max(0, min(term, rank));
    return fewer;
  }
};

// New rows from `first` on, over one register block from `t` on: stored, or, of those that are
// dropped, their squares added to `out` (then one row).
template <Index kRows, bool kSquares>
__attribute__((noinline)) void mix_block(const Sources& from, Index first, Index t, Real* out,
                                         Index stride) {
  Vec sum[kRows][kVectors];
  const bool mixed = from.fresh != nullptr;
  const Real* fresh = mixed ? from.fresh + first * from.outputs + t : nullptr;
  UNROLL for (Index i = 0; i < kRows; ++i)
    UNROLL for (Index j = 0; j < kVectors; ++j)
      sum[i][j] = mixed ? from.activations[0] * load(fresh + i * from.outputs + j * kWidth) : Vec{};
  for (Index n = 1; mixed && n < from.examples; ++n) {
    fresh += from.lines * from.outputs;
    const Real a = from.activations[n * from.inputs];
    UNROLL for (Index i = 0; i < kRows; ++i)
      UNROLL for (Index j = 0; j < kVectors; ++j)
        sum[i][j] += a * load(fresh + i * from.outputs + j * kWidth);
  }
  const Real* mix = from.mix + first * from.all;
  add_tiles<kRows>(sum, mix, from.all, from.z + t, kStride, from.terms);
  add_tiles<kRows>(sum, mix + from.rank, from.all, from.g + t, kStride, from.rows);
  UNROLL for (Index j = 0; j < kVectors; ++j) {
    Real* to = out + j * kWidth;
    if (kSquares) {
      Vec squares = load(to);
      UNROLL for (Index i = 0; i < kRows; ++i) squares += sum[i][j] * sum[i][j];
      store(to, squares);
    } else {
      UNROLL for (Index i = 0; i < kRows; ++i) store(to + i * stride, sum[i][j]);
    }
  }
}

template <bool kSquares>
inline void mix_rows(Index rows, const Sources& from, Index first, Index t, Real* out,
                     Index stride) {
  exactly<kMixed>(rows, [&](auto number) {
    mix_block<decltype(number)::value, kSquares>(from, first, t, out, stride);
  });
}

void rotate(const Task<Real>& task, Index part, Index parts, Real* memory) {
  constexpr Index kSpan = kVectors * kWidth;  // of a register block
  const Index rank = task.rank, rows = task.rows(), lines = task.lines();
  const Tiles tiles(task, memory);
  Waiting& now = *tiles.now;
  Real *z = tiles.z, *g = z + rank * kStride;
  Real* moved = tiles.end;        // (kStride): the mean's row
  Real* spare = moved + kStride;  // (kMixed, kStride): a patch's end
  const bool ready = parts == 1 && task.whole();
  for_patches(task, part, parts, 1, kAcross, [&](const Patch& patch) {
    const Block<Real>& block = *patch.block;
    const Index begin = patch.begin(0);
    if (!ready) {
      settle(task, patch, now);
      if (!task.spherical()) prefetch(patch, task.diag);
      prefetch(patch, task.mean);
      for (Index l = 0; l < rank; ++l)
        read_row(patch, task.factor + l * task.size, now, z + l * kStride);
    }
    const bool structured = block.structured();
    for (Index m = 0; !structured && m < rows; ++m) write_row(task, patch, m, g + m * kStride);
    const Sources from{z, g, task.mix, structured ? block.fresh + patch.output : nullptr,
                       block.activations + patch.input, rank, rank, structured ? 0 : rows,
                       rank + rows, task.examples, lines, block.inputs, block.outputs};
    // Of `count` rows, the last of which may have all z, those up to the i-th.
    const auto some_of = [&](Index count, Index i) {
      return task.triangular ? from.up_to(rank - count + i) : from;
    };
    for (Index t = 0; t < patch.width; t += kSpan) {
      const Index left = patch.width - t;
      for (Index r = 0; r < rank; r += kMixed) {
        const Index some = min(kMixed, rank - r);
        Real* to = task.factor + r * task.size + begin + t;
        if (t == 0) prefetch(task, patch, r, some);
        if (left >= kSpan) {
          mix_rows<false>(some, some_of(rank, r + some), r, t, to, task.size);
        } else {  // by way of `spare`, since a register block reaches beyond the patch
          mix_rows<false>(some, some_of(rank, r + some), r, t, spare, kStride);
          for (Index i = 0; i < some; ++i) copy(to + i * task.size, spare + i * kStride, left);
        }
      }
      for (Index r = 0; r < lines - 1 - rank; r += kMixed) {
        const Index some = min(kMixed, lines - 1 - rank - r);
        mix_rows<true>(some, some_of(rows, r + some), rank + r, t, now.diag + t, 0);
      }
      mix_rows<false>(1, from, lines - 1, t, moved + t, kStride);
    }
    if (!task.spherical()) copy(task.diag + begin, now.diag, patch.width);
    Real* __restrict mean = task.mean + begin;
    const Real gamma = task.decay;
    for (Index t = 0; t < patch.width; ++t) mean[t] = gamma * mean[t] + moved[t] * now.inverse[t];
  });
}

Index memory(const Task<Real>& task) {
  const Tiles tiles(task, nullptr);
  const Index spare = (1 + kMixed) * kStride, sums = GramMemory(task, tiles.end).end - tiles.end;
  return tiles.end - static_cast<Real*>(nullptr) + max(sums, spare) + kWidth * kWidth + kLine;
}

}  // namespace

Kernels<REAL> BAYESTREAM_NAME(VARIANT, dlr, REAL)() {
  return {memory, gram, rotate, BAYESTREAM_NAME(VARIANT, small, REAL)()};
}

}  // namespace bayestream
