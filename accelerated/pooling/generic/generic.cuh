// This header defines axes, windows and the division into vectors of channels, for pooling of any window and layout.
// Two or three spatial dimensions are axes 0, 1 and 2 (images have height, 1, width).
#pragma once
#include <type_traits>

#include "pooling/functors.cuh"
#include "primitives/elementwise.cuh"

constexpr int WIDTH = 16 / sizeof(ELEMENT);  // elements per access

struct Axis {
  int input, output, window, stride, padding;
  FastDivmod by_stride;

  __device__ __forceinline__ int clamped(int position) const {
    return position < 0 ? 0 : position > input ? input : position;
  }
  // Return the outputs [first, last) whose windows cover an input.
  __device__ __forceinline__ int first_window(int position) const {
    const int beyond = position + padding - window;
    return beyond < 0 ? 0 : min(int(by_stride.divide(beyond)) + 1, output);
  }
  __device__ __forceinline__ int last_window(int position) const {
    const int reach = position + padding;
    return reach < 0 ? 0 : min(int(by_stride.divide(reach)) + 1, output);
  }
};

struct Pooling {
  Axis axis[3];
  long long x_stride[3], y_stride[3];
  COMPUTE alpha, beta;
  COMPUTE divisor;  // common divisor of averages, 0 where they differ
  int mode, propagate;

  // Returns the row-major index of an input in its plane.
  __device__ __forceinline__ int position(int p0, int p1, int p2) const {
    return (p0 * axis[1].input + p1) * axis[2].input + p2;
  }
};

// Holds the part [first, last) of an axis inside both the input and the window of an output.
struct Span {
  int start, first, last;
  __device__ __forceinline__ Span(const Axis& axis, int output) {
    start = output * axis.stride - axis.padding;
    first = axis.clamped(start);
    last = axis.clamped(start + axis.window);
  }
  __device__ __forceinline__ int count() const { return last - first; }
};

struct Window {
  Span span[3];

  __device__ __forceinline__ Window(const Pooling& pooling, const int (&o)[3])
      : span{Span(pooling.axis[0], o[0]), Span(pooling.axis[1], o[1]), Span(pooling.axis[2], o[2])} {}
  __device__ __forceinline__ bool empty() const {
    return span[0].count() == 0 || span[1].count() == 0 || span[2].count() == 0;
  }
  // Returns the divisor of the average: the positions inside the input, or inside the input and its padding.
  __device__ __forceinline__ COMPUTE divisor(const Pooling& pooling) const {
    if (pooling.divisor != COMPUTE(0)) return pooling.divisor;
    COMPUTE product = 1;
#pragma unroll
    for (int d = 0; d < 3; d++) {
      const Axis& axis = pooling.axis[d];
      const int end = min(span[d].start + axis.window, axis.input + max(axis.padding, 0));
      product *= COMPUTE(max(pooling.mode == AVERAGE_EXCLUDE ? span[d].count() : end - span[d].start, 0));
    }
    return product;
  }
  // Calls visit(p0, p1, p2) for this thread's share of the window's inputs, in row-major order. The rows x columns
  // threads of a team share the window.
  template <class Visit>
  __device__ __forceinline__ void visit_part(int row, int rows, int column, int columns, Visit visit) const {
    for (int p0 = span[0].first + row; p0 < span[0].last; p0 += rows)
      for (int p1 = span[1].first; p1 < span[1].last; p1++)
#pragma unroll 4
        for (int p2 = span[2].first + column; p2 < span[2].last; p2 += columns) visit(p0, p1, p2);
  }
};

constexpr int MAX_WALKED = 6;  // dimensions: n, c, the rest of a vector, three axes

// Walks over every position of one tensor (y forward, dx backward) in vectors of channels, in the order of its memory.
// `other` holds the strides of the input tensor (x or dy) along the dimensions that are not pooled.
struct Walk {
  unsigned vectors, width;
  FastDivmod vectors_per_position;
  int rank;
  FastDivmod extent[MAX_WALKED];  // extents, fastest first
  int axis[MAX_WALKED];           // pooled axis of each dimension, or -1
  long long walked[MAX_WALKED], other[MAX_WALKED];

  __device__ __forceinline__ void locate(unsigned index, int (&position)[3], long long& walked_offset,
                                         long long& other_offset) const {
    unsigned vector, rest = vectors_per_position.divide(index, vector);
    walked_offset = other_offset = vector * width;
    position[0] = position[1] = position[2] = 0;
    for (int d = 0; d < rank; d++) {
      unsigned here;
      rest = extent[d].divide(rest, here);
      walked_offset += here * walked[d];
      other_offset += here * other[d];
#pragma unroll
      for (int k = 0; k < 3; k++) position[k] += axis[d] == k ? here : 0;
    }
  }
};

// Loads P contiguous channels in one access (PACKED), or the same position of P planes, `item` elements apart.
template <int P, bool PACKED>
__device__ __forceinline__ Vector<ELEMENT, P> load_items(const ELEMENT* from, long long item) {
  Vector<ELEMENT, P> vector;
  if constexpr (PACKED) {
    vector = *reinterpret_cast<const Vector<ELEMENT, P>*>(from);
  } else {
#pragma unroll
    for (int i = 0; i < P; i++) vector.item[i] = from[i * item];
  }
  return vector;
}

constexpr int ITEMS = sizeof(ELEMENT) == 2 ? 8 : 4;  // planes or channels per group, as in generic_tile.py
constexpr unsigned PAIR = 2;                         // channels per group where their number is even, as in generic.py
template <int N> using Constant = std::integral_constant<int, N>;

// Calls call(width) with the channels per thread as a constant: 16 bytes, the four of INT8x4, a pair, or one.
template <class Call> __device__ __forceinline__ void with_width(unsigned width, Call call) {
  if (width == WIDTH) return call(Constant<WIDTH>());
  if constexpr (WIDTH == 16)
    if (width == 4) return call(Constant<4>());
  if constexpr (WIDTH > PAIR)
    if (width == PAIR) return call(Constant<PAIR>());
  call(Constant<1>());
}
