// This file computes cudnnIm2Col (5.2.31), the matrix A of a GEMM convolution.
//
// Tiling: a block copies the patch under some channels and output pixels into shared memory, including zeros for the
// padding. A thread locates its K in the patch once, and writes 16-byte vectors for all pixels.
//
// Roofline bound: bytes. The matrix, which has the size of the input times the taps of the filter, is written once.
// Locating an element costs 4 instructions and one shared-memory access with bank conflicts, instead of 60 instructions
// without the patch. reports/README.md has the fraction measured on an H200, and docs/performance/convolution.md the
// limits of this kernel.
#include "primitives/geometry.cuh"
#include "primitives/types.cuh"

constexpr int WIDTH = 16 / sizeof(ELEMENT);
constexpr unsigned BLOCK = 256;  // threads
constexpr unsigned AT_ONCE = 4;  // loads in flight per thread

// The axes are rows and columns; the host side is im2col.py.
struct Arguments {
  const ELEMENT* x;
  ELEMENT* matrix;              // [image, pixel][channel, tap]
  int image, channel, axis[2];  // strides of x, in elements
  int input[2], step[2], padding[2], dilation[2], output[2];
  int channels, row;                // channels; elements per row of the matrix
  int flipped, packed;              // packed: rows and blocks' parts of them are full aligned 16-byte vectors
  int chunk, tile[2];               // channels, output rows and output columns per block
  FastDivmod chunks, across, down;  // blocks along the channels, the columns, the rows
  FastDivmod patch[2], taps[2];     // extents
  int pitch;                        // stride between channels of the patch, in elements
};

// Locates a row of the patch in x, below 0 in the padding, and in the patch.
struct Line {
  int source, slot;
};

// Writes the rows of this block's part of the matrix, W neighbouring terms per thread.
template <int W>
__device__ __forceinline__ void write_rows(const Arguments& a, const ELEMENT* patch, const int* terms, unsigned count,
                                           unsigned rows, unsigned columns, ELEMENT* matrix) {
  const unsigned units = count / W, members = units < BLOCK ? units : BLOCK, groups = BLOCK / members;
  const unsigned group = threadIdx.x / members;
  if (group >= groups) return;
  const unsigned down = groups / columns, across = groups - down * columns;
  for (unsigned unit = threadIdx.x - group * members; unit < units; unit += members) {
    unsigned slot[W];
#pragma unroll
    for (int i = 0; i < W; i++) slot[i] = terms[unit * W + i];
    unsigned p = group / columns, q = group - p * columns;
    while (p < rows) {
      const ELEMENT* from = patch + (p * a.step[0] * a.patch[1].divisor + q * a.step[1]);
      Vector<ELEMENT, W> values;
#pragma unroll
      for (int i = 0; i < W; i++) values.item[i] = from[slot[i]];
      *reinterpret_cast<Vector<ELEMENT, W>*>(matrix + (static_cast<long long>(p) * a.output[1] + q) * a.row +
                                             unit * W) = values;
      p += down, q += across;
      if (q >= columns) q -= columns, p++;
    }
  }
}

extern "C" __global__ void __launch_bounds__(BLOCK) convolution_im2col(const Arguments a) {
  griddepcontrol_wait_deferred();
  unsigned chunk, band_across, band_down;
  const unsigned image = a.down.divide(a.across.divide(a.chunks.divide(blockIdx.x, chunk), band_across), band_down);
  const unsigned first_channel = chunk * a.chunk, first_row = band_down * a.tile[0],
                 first_column = band_across * a.tile[1];
  const unsigned channels = min(static_cast<unsigned>(a.chunk), a.channels - first_channel);
  const int at[2] = {static_cast<int>(first_row) * a.step[0] - a.padding[0],
                     static_cast<int>(first_column) * a.step[1] - a.padding[1]};
  const unsigned lines = a.patch[0].divisor, taps = a.taps[0].divisor * a.taps[1].divisor;
  auto inside = [&](int d, int pixel) { return static_cast<unsigned>(pixel) < static_cast<unsigned>(a.input[d]); };

  Line* line = reinterpret_cast<Line*>(shared_memory);
  int* terms = reinterpret_cast<int*>(line + a.chunk * lines);
  ELEMENT* patch =
      reinterpret_cast<ELEMENT*>((reinterpret_cast<uintptr_t>(terms + a.chunk * taps) + 15) & ~uintptr_t(15));
  for (unsigned index = threadIdx.x; index < channels * lines; index += BLOCK) {
    unsigned h, channel = a.patch[0].divide(index, h);
    const int height = at[0] + static_cast<int>(h);
    const int source = static_cast<int>(channel) * a.channel + height * a.axis[0];
    line[index] = {inside(0, height) ? source : -1, static_cast<int>(channel * a.pitch + h * a.patch[1].divisor)};
  }
  for (unsigned index = threadIdx.x; index < channels * taps; index += BLOCK) {
    unsigned tap[2], channel = index;
#pragma unroll
    for (int d = 1; d >= 0; d--) {
      channel = a.taps[d].divide(channel, tap[d]);
      if (a.flipped) tap[d] = a.taps[d].divisor - 1 - tap[d];
    }
    terms[index] = channel * a.pitch + tap[0] * a.dilation[0] * a.patch[1].divisor + tap[1] * a.dilation[1];
  }
  __syncthreads();
  griddepcontrol_wait_before_access(a.x, a.matrix);
  const ELEMENT zero = store<ELEMENT>(COMPUTE(0));
  const ELEMENT* x =
      a.x + (static_cast<long long>(image) * a.image + static_cast<long long>(first_channel) * a.channel);
  const unsigned elements = channels * lines * a.patch[1].divisor;
  for (unsigned first = threadIdx.x; first < elements; first += AT_ONCE * BLOCK) {
    ELEMENT value[AT_ONCE];
    int slot[AT_ONCE];
#pragma unroll
    for (unsigned u = 0; u < AT_ONCE; u++) {
      if (first + u * BLOCK >= elements) continue;
      unsigned column;
      const Line found = line[a.patch[1].divide(first + u * BLOCK, column)];
      const int width = at[1] + static_cast<int>(column);
      slot[u] = found.slot + column;
      value[u] = found.source >= 0 && inside(1, width) ? x[found.source + width * a.axis[1]] : zero;
    }
#pragma unroll
    for (unsigned u = 0; u < AT_ONCE; u++)
      if (first + u * BLOCK < elements) patch[slot[u]] = value[u];
  }
  __syncthreads();

  const unsigned rows = min(static_cast<unsigned>(a.tile[0]), a.output[0] - first_row),
                 columns = min(static_cast<unsigned>(a.tile[1]), a.output[1] - first_column);
  const long long pixel = (static_cast<long long>(image) * a.output[0] + first_row) * a.output[1] + first_column;
  ELEMENT* matrix = a.matrix + pixel * a.row + first_channel * taps;
  if (a.packed && reinterpret_cast<uintptr_t>(a.matrix) % 16 == 0)
    write_rows<WIDTH>(a, patch, terms, channels * taps, rows, columns, matrix);
  else write_rows<1>(a, patch, terms, channels * taps, rows, columns, matrix);
}
