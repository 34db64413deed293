// This header describes the implicit GEMM of a forward convolution. The structures of the host side, problem.py, must
// match.
//
// M counts output pixels (image, depth, row, column), N filters, and K the taps and channels of a filter in the order
// of its memory. Strides of x and y, and the filter's number of innermost channels, describe every layout. That number
// is 1 for NCHW, C for NHWC, and the vector length for NCHW_VECT_C.
#pragma once
#include "primitives/geometry.cuh"
#include "primitives/types.cuh"

#ifndef RESULT
#define RESULT ELEMENT  // the type of y; float where sums of 16-bit elements are kept unrounded
#endif

// This coordinate is outside every image, even after adding any tap and padding, which span fewer than 2^31 positions.
// Missing terms and missing pixels have it in different dimensions, so that their sum is never valid.
constexpr int OUTSIDE = -(1 << 30) - (1 << 30);

struct Convolution {
  long long x_pixel[4], y_pixel[4];  // strides in elements between images, planes, rows and columns of the output
  long long x_origin, x_group;       // offset of pixel 0 without padding; stride between groups
  long long y_channel, y_group;      // strides between vectors of channels, and between groups
  // strides between channel blocks, channels of a block, depth, rows, columns
  int x_channel_block, x_channel, x_axis[3];
  int input[3], step[3], padding[3], dilation[3];
  int m, first_m;            // pixels of this launch, and its first pixel
  int n, k, w_row;           // extents per group; stride between filters in elements
  int y_n;                   // channels of y per group
  int flipped, y_vector;     // whether the filter is flipped; binary logarithm of the channels per vector of y
  int y_rises;               // whether each output pixel follows the one before it in y
  int x_vectors, w_vectors;  // whether 16-byte vectors are aligned
  FastDivmod output[3], filter[3], inner_channels;
};

// Holds the operands, the first fields of the arguments of kernels.
template <class Element> struct Operands {
  const Element *x, *w;
  Element* y;
  const Element *prior, *bias;
};

// Locates a term of the sum in x, relative to the output pixel.
struct __align__(16) KOffset {
  int offset;
  int at[3];
};

// Locates the receptive field of an output pixel. A launch addresses fewer than 2**31 values of x, including gaps. The
// sum of a pixel's and a term's offset is therefore right modulo 2**32, even if one of them overflows.
struct Pixel {
  int offset, at[3];
};

__device__ __forceinline__ KOffset find_k(const Convolution& c, unsigned index) {
  if (index >= c.k) return {0, {0, 0, OUTSIDE}};
  unsigned lane, tap[3];
  unsigned rest = c.inner_channels.divide(index, lane);
#pragma unroll
  for (int d = 2; d >= 0; d--) rest = c.filter[d].divide(rest, tap[d]);
  unsigned offset = rest * c.x_channel_block + lane * c.x_channel;
  KOffset term;
#pragma unroll
  for (int d = 0; d < 3; d++) {
    term.at[d] = (c.flipped ? c.filter[d].divisor - 1 - tap[d] : tap[d]) * c.dilation[d];
    offset += static_cast<unsigned>(term.at[d]) * c.x_axis[d];
  }
  term.offset = static_cast<int>(offset);
  return term;
}

// Splits the output pixel into (image, plane, row, column).
__device__ __forceinline__ void split_pixel(const Convolution& c, unsigned index, unsigned (&coordinate)[4]) {
#pragma unroll
  for (int d = 2; d >= 0; d--) index = c.output[d].divide(index, coordinate[d + 1]);
  coordinate[0] = index;
}

// Returns the pixel `index`, counted from first_m. Everything beyond the last pixel is outside.
__device__ __forceinline__ Pixel find_pixel(const Convolution& c, unsigned index) {
  if (index >= c.m) return {0, {OUTSIDE, 0, 0}};
  unsigned coordinate[4];
  split_pixel(c, index + c.first_m, coordinate);
  long long offset = c.x_origin;
#pragma unroll
  for (int d = 0; d < 4; d++) offset += coordinate[d] * c.x_pixel[d];
  Pixel pixel{static_cast<int>(offset)};
#pragma unroll
  for (int d = 0; d < 3; d++)
    pixel.at[d] = static_cast<int>(coordinate[d + 1] * static_cast<unsigned>(c.step[d]) - c.padding[d]);
  return pixel;
}

// Returns the sum of two numbers modulo 2**32.
__device__ __forceinline__ int wrapping_sum(int a, int b) {
  return static_cast<int>(static_cast<unsigned>(a) + static_cast<unsigned>(b));
}

__device__ __forceinline__ bool inside(const Convolution& c, const Pixel& pixel, const KOffset& term) {
  return static_cast<unsigned>(wrapping_sum(pixel.at[0], term.at[0])) < static_cast<unsigned>(c.input[0]) &&
         static_cast<unsigned>(wrapping_sum(pixel.at[1], term.at[1])) < static_cast<unsigned>(c.input[1]) &&
         static_cast<unsigned>(wrapping_sum(pixel.at[2], term.at[2])) < static_cast<unsigned>(c.input[2]);
}

__device__ __forceinline__ long long y_offset(const Convolution& c, unsigned index) {
  unsigned coordinate[4];
  split_pixel(c, index + c.first_m, coordinate);
  long long offset = 0;
#pragma unroll
  for (int d = 0; d < 4; d++) offset += coordinate[d] * c.y_pixel[d];
  return offset;
}

// Returns whether `count` pixels are contiguous in y. The arguments are the offsets of the first and the last.
__device__ __forceinline__ bool side_by_side(const Convolution& c, long long first, long long last, int count) {
  return c.y_rises && last - first == count - 1;
}

__device__ __forceinline__ long long y_channel_offset(const Convolution& c, unsigned channel) {
  return (channel >> c.y_vector) * c.y_channel + (channel & ((1u << c.y_vector) - 1));
}

// Describes the epilogue of a sum: activation(alpha * sum + beta * prior + bias).
struct Epilogue {
  double alpha, beta;
  int biased, rectified, reordered_bias;

  __device__ __forceinline__ unsigned bias_index(unsigned filter) const {
    if (!reordered_bias) return filter;  // [K/32, 4, 2, 4] was reordered to [K/32, 2, 4, 4]
    return (filter & ~31u) | (filter & 4) << 2 | (filter >> 1 & 12) | (filter & 3);
  }
};

// Returns the results of `count` sums, of filters `filter`, `filter + filter_step` and so on. Prior values begin at
// `at` with stride `stride`.
template <int WIDTH, class C, class T, class B, class S>
__device__ __forceinline__ void find_results(const Epilogue& e, const B* bias, const T* prior, long long at,
                                             long long stride, int count, unsigned filter, unsigned filter_step,
                                             const S (&sums)[WIDTH], C (&values)[WIDTH]) {
  C alpha = e.alpha, beta = e.beta;
#pragma unroll
  for (int i = 0; i < WIDTH; i++) values[i] = alpha * static_cast<C>(sums[i]);
  if (beta != C(0)) {
    using Packed = Vector<T, WIDTH>;
    if (stride == 1 && count == WIDTH && reinterpret_cast<uintptr_t>(prior + at) % alignof(Packed) == 0) {
      Packed loaded = *reinterpret_cast<const Packed*>(prior + at);
#pragma unroll
      for (int i = 0; i < WIDTH; i++) values[i] += beta * load<C>(loaded.item[i]);
    } else {
#pragma unroll
      for (int i = 0; i < WIDTH; i++)
        if (i < count) values[i] += beta * load<C>(prior[at + i * stride]);
    }
  }
  if (e.biased) {
#pragma unroll
    for (int i = 0; i < WIDTH; i++)
      if (i < count) values[i] += load<C>(bias[e.bias_index(filter + i * filter_step)]);
  }
  if (e.rectified) {
#pragma unroll
    for (int i = 0; i < WIDTH; i++) values[i] = values[i] > C(0) ? values[i] : C(0);
  }
}

// Writes the results to y, with the layout of the prior values.
template <int WIDTH, class C, class T, class B, class S>
__device__ __forceinline__ void finish(const Epilogue& e, const B* bias, const T* prior, T* y, long long offset,
                                       long long stride, int count, unsigned filter, unsigned filter_step,
                                       const S (&sums)[WIDTH]) {
  C values[WIDTH];
  find_results<WIDTH, C>(e, bias, prior, offset, stride, count, filter, filter_step, sums, values);
  using Packed = Vector<T, WIDTH>;
  if (stride == 1 && count == WIDTH && reinterpret_cast<uintptr_t>(y + offset) % alignof(Packed) == 0) {
    Packed stored;
#pragma unroll
    for (int i = 0; i < WIDTH; i++) stored.item[i] = store<T>(values[i]);
    *reinterpret_cast<Packed*>(y + offset) = stored;
  } else {
#pragma unroll
    for (int i = 0; i < WIDTH; i++)
      if (i < count) y[offset + i * stride] = store<T>(values[i]);
  }
}

// Returns the offset of a term of filter `filter`, in elements from the filter's start. cudnnReorderFilterAndBias makes
// the order [C/32, R, S, K/32, k/8 % 4, k % 2, c/4 % 8, k/2 % 4, c % 4]. `unit` 8-bit channels are one element.
__device__ __forceinline__ long long reordered_offset(unsigned filter, unsigned term, unsigned blocks, unsigned unit) {
  unsigned channel = term * unit % 32, tap = term * unit / 32;
  unsigned offset = (filter / 8 % 4) * 256 + filter % 2 * 128 + channel / 4 * 16 + filter / 2 % 4 * 4 + channel % 4;
  return (static_cast<long long>(tap * blocks + filter / 32) * 1024 + offset) / unit;
}
