// The pull-back through a convolution, for one instruction set and precision; see vectors.h.
#include "vectors.h"

namespace bayestream {
namespace {

constexpr Index kPixels = 4;  // that a cell of the pooled image is the mean of

Index stretches(Index count) { return (count + kWidth - 1) / kWidth; }
Index chunks(Index count) { return (count + 2 * kWidth - 1) / (2 * kWidth); }

// What is read many times, in the order in which it is read.
struct Packed {
  Real* slopes;      // (stretches of outputs, cells, 4, kWidth), over 4
  Real* cotangents;  // (stretches of outputs, cells, columns, kWidth)
  Real* image;       // (2 down + 2, 2 across + 2, inputs), zeros around it
  // For `back` alone:
  Real* plain;   // (2 down, 2 across, outputs): the slopes once more
  Real* turned;  // (cells, outputs, columns): the cotangents
  Real* kernel;  // (3, 3, chunks of inputs, outputs, 2 kWidth)
  Real* sums;    // (columns, 2 kWidth)
  Real* end;

  Packed(const PullBack<Real>& task, Real* memory) {
    const Index out = stretches(task.outputs) * kWidth, columns = task.columns;
    const bool back = task.back != nullptr;
    slopes = aligned(memory);
    cotangents = slopes + out * task.cells() * kPixels;
    image = cotangents + out * task.cells() * columns;
    plain = aligned(image + (2 * task.down() + 2) * (2 * task.across() + 2) * task.inputs);
    turned = plain + (back ? task.cells() * kPixels * task.outputs : 0);
    kernel = aligned(turned + (back ? task.cells() * task.outputs * columns : 0));
    sums = kernel + (back ? 9 * chunks(task.inputs) * 2 * kWidth * task.outputs : 0);
    end = sums + columns * 2 * kWidth;
  }
};

Index memory(const PullBack<Real>& task) {
  return Packed(task, nullptr).end - static_cast<Real*>(nullptr) + kLine;
}

// A vector's worth of numbers, zeros where there are no more.
inline void take(Real* to, const Real* from, Index count) {
  copy(to, from, min(count, kWidth));
  clear(to, min(count, kWidth), kWidth);
}

void pack(const PullBack<Real>& task, const Packed& to) {
  const Index cells = task.cells(), across = task.across(), outputs = task.outputs;
  Real *slopes = to.slopes, *cotangents = to.cotangents;
  for (Index o = 0; o < outputs; o += kWidth)
    for (Index cell = 0; cell < cells; ++cell) {
      const Index y = 2 * (cell / across), x = 2 * (cell % across);
      for (Index p = 0; p < kPixels; ++p, slopes += kWidth) {
        const Index pixel = (y + p / 2) * task.width + x + p % 2;
        take(slopes, task.slopes + pixel * outputs + o, outputs - o);
        store(slopes, load(slopes) / kPixels);
      }
      for (Index k = 0; k < task.columns; ++k, cotangents += kWidth)
        take(cotangents, task.pooled + (k * cells + cell) * outputs + o, outputs - o);
    }
  const Index wide = 2 * across + 2, inputs = task.inputs;
  for (Index y = 0; y < 2 * task.down() + 2; ++y)
    for (Index x = 0; x < wide; ++x) {
      const bool inside = 0 < y && y <= task.height && 0 < x && x <= task.width;
      Real* at = to.image + (y * wide + x) * inputs;
      if (inside) copy(at, task.image + ((y - 1) * task.width + x - 1) * inputs, inputs);
      else clear(at, 0, inputs);
    }
}

void pack_for_back(const PullBack<Real>& task, const Packed& to) {
  const Index cells = task.cells(), outputs = task.outputs, wide = 2 * task.across();
  for (Index y = 0; y < 2 * task.down(); ++y)
    for (Index x = 0; x < wide; ++x)
      scale(to.plain + (y * wide + x) * outputs, Real(1) / kPixels,
            task.slopes + (y * task.width + x) * outputs, outputs);
  for (Index k = 0; k < task.columns; ++k)
    for (Index i = 0; i < cells * outputs; ++i)
      to.turned[i * task.columns + k] = task.pooled[k * cells * outputs + i];
  const Index room = chunks(task.inputs) * 2 * kWidth;
  for (Index place = 0; place < 9; ++place)
    for (Index i = 0; i < room; ++i) {
      Real* at = to.kernel + place * room * outputs + i / (2 * kWidth) * outputs * 2 * kWidth +
                 i % (2 * kWidth);
      const Real* from = task.kernel + (place * task.inputs + i) * outputs;
      for (Index o = 0; o < outputs; ++o) at[o * 2 * kWidth] = i < task.inputs ? from[o] : Real(0);
    }
}

// Rows k ... k + kColumns of two weights that are neighbours in memory, for a stretch of outputs.
// Slopes times pixels are summed over a cell before they meet its cotangents.
template <Index kColumns>
inline void two_weights(const PullBack<Real>& task, const Real* slopes, const Real* cotangents,
                        const Real* image, Index second, Vec (*found)[kColumns]) {
  const Index wide = (2 * task.across() + 2) * task.inputs;
  Vec sums[2][kColumns] = {};
  for (Index row = 0; row < task.down(); ++row)
    for (Index column = 0; column < task.across(); ++column) {
      const Real* at = image + 2 * row * wide + 2 * column * task.inputs;
      Vec met[2] = {};
#pragma GCC unroll 4
      for (Index p = 0; p < kPixels; ++p) {
        const Real* pixel = at + p / 2 * wide + p % 2 * task.inputs;
        const Vec slope = load(slopes + p * kWidth);
        met[0] += pixel[0] * slope;
        met[1] += pixel[second] * slope;
      }
#pragma GCC unroll 10
      for (Index k = 0; k < kColumns; ++k) {
        const Vec cotangent = load(cotangents + k * kWidth);
        sums[0][k] += met[0] * cotangent;
        sums[1][k] += met[1] * cotangent;
      }
      slopes += kPixels * kWidth;
      cotangents += task.columns * kWidth;
    }
  for (Index k = 0; k < kColumns; ++k) found[0][k] = sums[0][k], found[1][k] = sums[1][k];
}

inline void put(Real* to, Vec v, Index count) {
  if (count >= kWidth) return store(to, v);
  for (Index t = 0; t < count; ++t) to[t] = v[t];
}

template <Index kColumns>
void make_rows(const PullBack<Real>& task, const Packed& packed, Index first) {
  const Index cells = task.cells(), inputs = task.inputs, outputs = task.outputs;
  const Index wide = (2 * task.across() + 2) * inputs, weights = task.weights();
  for (Index stretch = 0; stretch < stretches(outputs); ++stretch) {
    const Real* slopes = packed.slopes + stretch * cells * kPixels * kWidth;
    const Real* cotangents =
        packed.cotangents + (stretch * cells * task.columns + first) * kWidth;
    const Index left = outputs - stretch * kWidth;
    Real* rows = task.rows + first * weights * outputs + stretch * kWidth;
    for (Index place = 0; place < 9; ++place) {
      const Real* image = packed.image + place / 3 * wide + place % 3 * inputs;
      for (Index i = 0; i < inputs; i += 2) {
        Vec found[2][kColumns];
        two_weights<kColumns>(task, slopes, cotangents, image + i, i + 1 < inputs, found);
        for (Index k = 0; k < kColumns; ++k)
          for (Index two = 0; two < min(2, inputs - i); ++two)
            put(rows + (k * weights + place * inputs + i + two) * outputs, found[two][k], left);
      }
    }
    // The bias sees a 1.
    for (Index k = 0; k < kColumns; ++k) {
      Vec sum = {};
      for (Index cell = 0; cell < cells; ++cell) {
        const Real* at = slopes + cell * kPixels * kWidth;
        const Vec met = load(at) + load(at + kWidth) + load(at + 2 * kWidth) + load(at + 3 * kWidth);
        sum += met * load(cotangents + (cell * task.columns + k) * kWidth);
      }
      put(rows + (k * weights + weights - 1) * outputs, sum, left);
    }
  }
}

// Pixels of a cell that see the same pixel of the image, each through its place in the kernel.
struct Seen {
  const Real* slopes[kPixels];
  const Real* kernel[kPixels];
};

template <Index kColumns, Index kSeen>
inline void add_cell(const Seen& seen, const Real* cotangents, Index outputs, Index columns,
                     Real* to) {
  Vec sums[kColumns][2];
#pragma GCC unroll 10
  for (Index k = 0; k < kColumns; ++k)
    sums[k][0] = load(to + 2 * k * kWidth), sums[k][1] = load(to + (2 * k + 1) * kWidth);
  for (Index o = 0; o < outputs; ++o) {
    Vec met[2] = {};
#pragma GCC unroll 4
    for (Index p = 0; p < kSeen; ++p) {
      const Real slope = seen.slopes[p][o];
      met[0] += slope * load(seen.kernel[p] + 2 * o * kWidth);
      met[1] += slope * load(seen.kernel[p] + (2 * o + 1) * kWidth);
    }
#pragma GCC unroll 10
    for (Index k = 0; k < kColumns; ++k) {
      const Real cotangent = cotangents[o * columns + k];
      sums[k][0] += cotangent * met[0];
      sums[k][1] += cotangent * met[1];
    }
  }
#pragma GCC unroll 10
  for (Index k = 0; k < kColumns; ++k)
    store(to + 2 * k * kWidth, sums[k][0]), store(to + (2 * k + 1) * kWidth, sums[k][1]);
}

template <Index kColumns>
void make_back(const PullBack<Real>& task, const Packed& packed, Index first) {
  const Index outputs = task.outputs, inputs = task.inputs, wide = 2 * task.across();
  const Index room = chunks(inputs) * 2 * kWidth;
  Real* sums = packed.sums;
  for (Index y = 0; y < task.height; ++y)
    for (Index x = 0; x < task.width; ++x)
      for (Index i = 0; i < inputs; i += 2 * kWidth) {
        clear(sums, 0, kColumns * 2 * kWidth);
        for (Index row = (y - 1 + 2) / 2 - 1; row <= (y + 1) / 2; ++row)
          for (Index column = (x - 1 + 2) / 2 - 1; column <= (x + 1) / 2; ++column) {
            if (row < 0 || row >= task.down() || column < 0 || column >= task.across()) continue;
            Seen seen;
            Index count = 0;
            for (Index p = 0; p < kPixels; ++p) {
              const Index v = 2 * row + p / 2, h = 2 * column + p % 2;
              const Index up = y - v + 1, aside = x - h + 1;
              if (up < 0 || up > 2 || aside < 0 || aside > 2) continue;
              seen.slopes[count] = packed.plain + (v * wide + h) * outputs;
              seen.kernel[count++] = packed.kernel + ((up * 3 + aside) * room + i) * outputs;
            }
            const Real* cotangents =
                packed.turned + (row * task.across() + column) * outputs * task.columns + first;
            if (count == 1) add_cell<kColumns, 1>(seen, cotangents, outputs, task.columns, sums);
            if (count == 2) add_cell<kColumns, 2>(seen, cotangents, outputs, task.columns, sums);
            if (count == 4) add_cell<kColumns, 4>(seen, cotangents, outputs, task.columns, sums);
          }
        Real* to = task.back + ((first * task.height + y) * task.width + x) * inputs + i;
        for (Index k = 0; k < kColumns; ++k)
          copy(to + k * task.height * task.width * inputs, sums + 2 * k * kWidth,
               min(2 * kWidth, inputs - i));
      }
}

template <Index kColumns>
Index from(const PullBack<Real>& task, const Packed& packed, Index first) {
  for (; first + kColumns <= task.columns; first += kColumns) {
    make_rows<kColumns>(task, packed, first);
    if (task.back) make_back<kColumns>(task, packed, first);
  }
  return first;
}

void pull_back(const PullBack<Real>& task, Real* memory) {
  const Packed packed(task, memory);
  pack(task, packed);
  if (task.back) pack_for_back(task, packed);
  // As many cotangents at once as there are registers for.
  from<1>(task, packed, from<3>(task, packed, from<10>(task, packed, 0)));
}

}  // namespace

ConvolutionKernels<REAL> BAYESTREAM_NAME(VARIANT, convolution, REAL)() {
  return {memory, pull_back};
}

}  // namespace bayestream
