// What the pooling kernels share: axes, windows, what is pooled, and how threads and blocks divide the work.
// Two or three spatial dimensions are axis 0, 1, 2 (images: height, 1, width).
#pragma once
#include <type_traits>

#include "primitives/elementwise.cuh"
#include "pooling/functors.cuh"

constexpr int WIDTH = 16 / sizeof(ELEMENT);

struct Axis {
  int input, output, window, stride, padding;
  FastDivmod steps;  // n / stride

  __device__ __forceinline__ int clamped(int position) const { return position < 0 ? 0 : position > input ? input : position; }
  // The outputs [first, last) whose windows cover an input.
  __device__ __forceinline__ int first_window(int position) const {
    int beyond = position + padding - window;
    return beyond < 0 ? 0 : min(int(steps.divide(beyond)) + 1, output);
  }
  __device__ __forceinline__ int last_window(int position) const {
    int reach = position + padding;
    return reach < 0 ? 0 : min(int(steps.divide(reach)) + 1, output);
  }
};

// The part [first, last) of an axis that lies in the input and in the window of an output.
struct Span {
  int start, first, last;
  __device__ __forceinline__ Span(const Axis& axis, int output) {
    start = output * axis.stride - axis.padding;
    first = axis.clamped(start);
    last = axis.clamped(start + axis.window);
  }
  __device__ __forceinline__ int count() const { return last - first; }
};

struct Pooling {
  Axis axis[3];
  long long x_stride[3], y_stride[3];
  double alpha, beta;
  double divisor;  // of every average, 0 where they differ
  int mode, propagate;

  __device__ __forceinline__ bool takes_maximum() const { return mode == MAX || mode == MAX_DETERMINISTIC; }
  __device__ __forceinline__ bool is_image() const {
    return axis[1].input == 1 && axis[1].output == 1 && axis[1].window == 1 && axis[1].padding == 0;
  }
};

struct Window {
  Span span[3];

  __device__ __forceinline__ Window(const Pooling& pooling, int o0, int o1, int o2)
      : span{Span(pooling.axis[0], o0), Span(pooling.axis[1], o1), Span(pooling.axis[2], o2)} {}
  __device__ __forceinline__ bool empty() const { return span[0].count() == 0 || span[1].count() == 0 || span[2].count() == 0; }
  // The divisor of the average: positions inside the input, or inside the input and its padding.
  __device__ __forceinline__ COMPUTE divisor(const Pooling& pooling) const {
    if (pooling.divisor != 0) return COMPUTE(pooling.divisor);
    COMPUTE product = 1;
#pragma unroll
    for (int a = 0; a < 3; a++) {
      const Axis& axis = pooling.axis[a];
      int end = min(span[a].start + axis.window, axis.input + max(axis.padding, 0));
      int count = pooling.mode == AVERAGE_EXCLUDE ? span[a].count() : end - span[a].start;
      product *= COMPUTE(max(count, 0));
    }
    return product;
  }
};

// Where K known positions of an axis lie, moved into the input where they are outside of it, so that all loads of a window
// can be in flight together without a branch.
template <int K, class Offset> struct Taps {
  Offset offset[K];
  bool inside[K];
  __device__ __forceinline__ Taps(const Axis& axis, int start, Offset stride) {
#pragma unroll
    for (int k = 0; k < K; k++) {
      int position = start + k;
      inside[k] = unsigned(position) < unsigned(axis.input);
      offset[k] = max(0, min(position, axis.input - 1)) * stride;
    }
  }
};

// Calls call(K0, K2) with the window as constants where it is a known one of images, else with 0, 0.
template <int N> using Constant = std::integral_constant<int, N>;
template <class Call> __device__ __forceinline__ void with_window(const Pooling& pooling, Call call) {
  int w0 = pooling.axis[0].window, w2 = pooling.axis[2].window;
  if (pooling.is_image() && w0 == 3 && w2 == 3)
    call(Constant<3>(), Constant<3>());
  else if (pooling.is_image() && w0 == 2 && w2 == 2)
    call(Constant<2>(), Constant<2>());
  else
    call(Constant<0>(), Constant<0>());
}

// Whether packs of P channels that start at `x` may be read as a whole.
template <int P> __device__ __forceinline__ bool whole_packs(const ELEMENT* x, bool vectorised, unsigned count) {
  return P == 1 || (vectorised && count == P && reinterpret_cast<uintptr_t>(x) % alignof(Pack<ELEMENT, P>) == 0);
}

// Calls take(i, value) for the channels of a pack: all P of them in one access (WHOLE), or the first `count`.
template <int P, bool WHOLE, class Take> __device__ __forceinline__ void take_pack(const ELEMENT* x, unsigned count, Take take) {
  if constexpr (WHOLE) {
    Pack<ELEMENT, P> pack = *reinterpret_cast<const Pack<ELEMENT, P>*>(x);
#pragma unroll
    for (int i = 0; i < P; i++) take(i, load<COMPUTE>(pack.item[i]));
  } else {
#pragma unroll
    for (int i = 0; i < P; i++)
      if (i < count) take(i, load<COMPUTE>(x[i]));
  }
}

// Calls visit(offset) for every input of a window in row-major order.
template <class Offset, class Visit>
__device__ __forceinline__ void visit_window(const Window& window, const Offset (&stride)[3], Visit visit) {
  for (int p0 = window.span[0].first; p0 < window.span[0].last; p0++)
    for (int p1 = window.span[1].first; p1 < window.span[1].last; p1++) {
      Offset row = p0 * stride[0] + p1 * stride[1];
#pragma unroll 4
      for (int p2 = window.span[2].first; p2 < window.span[2].last; p2++) visit(row + p2 * stride[2]);
    }
}

// ---- who does what ----

constexpr int MOST_WALKED = 6;  // n, c, the rest of a vector, three axes

// Every position of one tensor (y forward, dx backward) in packs of channels, in the order of its memory. `other` is the
// tensor on the other side of the pooling: it has strides for the dimensions that are not pooled; pooled ones say which
// axis they are.
struct Walk {
  unsigned packs, row, width;
  unsigned vectorised;  // 1: the walked tensor, 2: the other one
  FastDivmod packs_per_row;
  int rank;
  FastDivmod extent[MOST_WALKED];  // the fastest first
  int axis[MOST_WALKED];        // -1: not pooled
  long long walked[MOST_WALKED], other[MOST_WALKED];

  __device__ __forceinline__ unsigned locate(unsigned index, int (&position)[3], long long& walked_offset, long long& other_offset) const {
    unsigned pack, rest = packs_per_row.divide(index, pack);
    unsigned first = pack * width;
    walked_offset = other_offset = first;
    position[0] = position[1] = position[2] = 0;
    for (int d = 0; d < rank; d++) {
      unsigned here;
      rest = extent[d].divide(rest, here);
      walked_offset += here * walked[d];
      other_offset += here * other[d];
      position[0] += axis[d] == 0 ? here : 0;
      position[1] += axis[d] == 1 ? here : 0;
      position[2] += axis[d] == 2 ? here : 0;
    }
    return row - first < width ? row - first : width;
  }
};

// A block's part of the tensors: a range of axis 0 of one plane, or several whole planes.
struct Tile {
  int planes;  // of a block
  int rows;    // positions of axis 0 of a block (of y forward, of dx backward)
  int total_planes;
  FastDivmod parts;  // blocks along axis 0
  int lanes;      // channels of a block; 1 where channels are planes
  int channels;   // that are lanes in all
  FastDivmod lane_groups;
  int flat;             // x (and dx) are packed planes
  unsigned vectorised;  // packs of lanes: 1 of x, 2 of dy
  long long y_lane;     // stride of the lanes in y
  int outer_rank;       // the planes: the fastest first
  FastDivmod extent[3];
  long long x_step[3], y_step[3];
  int lane_bits;             // threads: 2^lane_bits lanes,
  int x_bits, y_bits;        // 2^x_bits columns of x or 2^y_bits of y, and the rest are rows
  FastDivmod input[3], output[3];  // extents

  __device__ __forceinline__ void offsets(unsigned plane, long long& x, long long& y) const {
    x = y = 0;
    for (int d = 0; d < outer_rank; d++) {
      unsigned here;
      plane = extent[d].divide(plane, here);
      x += here * x_step[d];
      y += here * y_step[d];
    }
  }
  // Row `row` of a block (planes, axis 0 and axis 1 in one) as its plane and positions.
  __device__ __forceinline__ void decode(const FastDivmod (&extents)[3], unsigned row, unsigned& plane, unsigned& p0, unsigned& p1) const {
    p1 = plane = 0;
    if (extents[1].divisor > 1) row = extents[1].divide(row, p1);
    p0 = row;
    if (planes > 1) plane = extents[0].divide(row, p0);
  }
};

struct Share {
  unsigned plane, planes, lane, lanes;
  int first_row, last_row;

  __device__ __forceinline__ Share(const Tile& tile, int extent) {
    unsigned part, group, index = tile.lane_groups.divide(blockIdx.x, group);
    plane = tile.parts.divide(index, part) * tile.planes;
    planes = min(tile.planes, tile.total_planes - int(plane));
    lane = group * tile.lanes;
    lanes = min(tile.lanes, tile.channels - int(lane));
    first_row = part * tile.rows;
    last_row = min(first_row + tile.rows, extent);
  }
};

// The place of a thread. Columns stay the same from row to row, so that what depends on them is computed once.
struct Place {
  int lane, column, columns, row, rows;
  __device__ __forceinline__ Place(int lane_bits, int column_bits) {
    lane = threadIdx.x & ((1 << lane_bits) - 1);
    columns = 1 << column_bits;
    column = threadIdx.x >> lane_bits & (columns - 1);
    row = threadIdx.x >> (lane_bits + column_bits);
    rows = blockDim.x >> (lane_bits + column_bits);
  }
};

// Rows [first, last) of the planes of a block, in shared memory without gaps between them.
__device__ __forceinline__ const ELEMENT* copy_rows(const Tile& tile, const Pooling& pooling, const Share& share, const ELEMENT* x,
                                                    int first, int last, unsigned char* memory) {
  const Axis* axis = pooling.axis;
  unsigned slice = axis[1].input * axis[2].input;
  if (tile.flat) {  // neighbours in 16-byte accesses; the copy keeps their alignment
    const ELEMENT* source = x + (long long)share.plane * (axis[0].input * slice) + (long long)first * slice;
    unsigned count = share.planes * (last - first) * slice, skew = reinterpret_cast<uintptr_t>(source) / sizeof(ELEMENT) % WIDTH;
    ELEMENT* target = reinterpret_cast<ELEMENT*>(memory) + skew;
    unsigned head = min((WIDTH - skew) % WIDTH, count), packs = (count - head) / WIDTH, tail = head + packs * WIDTH;
    const uint4* from = reinterpret_cast<const uint4*>(source + head);
    uint4* to = reinterpret_cast<uint4*>(target + head);
#pragma unroll 4
    for (unsigned k = threadIdx.x; k < packs; k += blockDim.x) to[k] = from[k];
    if (threadIdx.x < head) target[threadIdx.x] = source[threadIdx.x];
    if (threadIdx.x < count - tail) target[tail + threadIdx.x] = source[tail + threadIdx.x];
    return target;
  }
  ELEMENT* target = reinterpret_cast<ELEMENT*>(memory);
  Place place(0, tile.x_bits);
  int rows = share.planes * (last - first) * axis[1].input;
  for (int row = place.row; row < rows; row += place.rows) {
    unsigned plane, p0, p1;
    tile.decode(tile.input, row, plane, p0, p1);
    long long source, unused;
    tile.offsets(share.plane + plane, source, unused);
    source += (p0 + first) * pooling.x_stride[0] + p1 * pooling.x_stride[1];
    for (int p2 = place.column; p2 < axis[2].input; p2 += place.columns)
      target[row * axis[2].input + p2] = x[source + p2 * pooling.x_stride[2]];
  }
  return target;
}
