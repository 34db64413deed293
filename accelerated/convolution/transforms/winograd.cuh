// Winograd convolutions and their gradients share this header, the transform of tiles of the image.
#pragma once
#include "convolution/problem.cuh"

constexpr int TILE = 6;

template <class C> __device__ __forceinline__ void transform_image(const C (&d)[6], C (&t)[6]) {
  const C outer = d[4] - C(4) * d[2], middle = d[3] - C(4) * d[1], even = d[4] - d[2], odd = C(2) * (d[3] - d[1]);
  t[0] = C(4) * d[0] - C(5) * d[2] + d[4];
  t[1] = outer + middle;
  t[2] = outer - middle;
  t[3] = even + odd;
  t[4] = even - odd;
  t[5] = C(4) * d[1] - C(5) * d[3] + d[5];
}

// Applies a one-dimensional transform to the columns, then to the rows.
template <int IN, int OUT, class C, class Transform>
__device__ __forceinline__ void transform_both(const C (&in)[IN][IN], C (&out)[OUT][OUT], Transform transform) {
  C partial[OUT][IN];
#pragma unroll
  for (int j = 0; j < IN; j++) {
    C column[IN], transformed[OUT];
#pragma unroll
    for (int i = 0; i < IN; i++) column[i] = in[i][j];
    transform(column, transformed);
#pragma unroll
    for (int i = 0; i < OUT; i++) partial[i][j] = transformed[i];
  }
#pragma unroll
  for (int i = 0; i < OUT; i++) transform(partial[i], out[i]);
}

// Returns a bit for each of the indices first, first + 1 ... that is inside the image.
template <int SIZE> __device__ __forceinline__ unsigned indices_inside(int first, int extent) {
  const int begin = max(-first, 0), end = min(extent - first, SIZE);
  return begin < end ? (1u << end) - (1u << begin) : 0;
}

// Reads the tile's values, with zeros outside the image. Tensors have fewer than 2**31 elements.
template <int SIZE, bool IN_NCHW>
__device__ __forceinline__ void read_tile(const Convolution& c, const ELEMENT* image, int row, int column,
                                          COMPUTE (&d)[SIZE][SIZE]) {
  // The stride of an axis with one position may be any number of 31 bits.
  const long long step = IN_NCHW ? 1 : c.x_axis[2];
  row -= c.padding[1];
  column -= c.padding[2];
  const unsigned rows = indices_inside<SIZE>(row, c.input[1]), columns = indices_inside<SIZE>(column, c.input[2]);
  const ELEMENT* line = image + (row * static_cast<long long>(c.x_axis[1]) + column * step);
#pragma unroll
  for (int i = 0; i < SIZE; i++, line += c.x_axis[1]) {
    const unsigned inside = rows >> i & 1 ? columns : 0;
#pragma unroll
    for (int j = 0; j < SIZE; j++) d[i][j] = inside >> j & 1 ? load<COMPUTE>(line[j * step]) : COMPUTE(0);
  }
}
template <int SIZE>
__device__ __forceinline__ void read_tile(const Convolution& c, const ELEMENT* image, int row, int column,
                                          COMPUTE (&d)[SIZE][SIZE]) {
  if (c.x_axis[2] == 1) read_tile<SIZE, true>(c, image, row, column, d);
  else read_tile<SIZE, false>(c, image, row, column, d);
}

// Writes and reads the values of a transformed tile, `step` elements apart.
__device__ __forceinline__ void write_values(const COMPUTE (&t)[TILE][TILE], COMPUTE* target, long long step) {
#pragma unroll
  for (int i = 0; i < TILE * TILE; i++, target += step) *target = t[i / TILE][i % TILE];
}
__device__ __forceinline__ void read_values(const COMPUTE* source, long long step, COMPUTE (&t)[TILE][TILE]) {
#pragma unroll
  for (int i = 0; i < TILE * TILE; i++, source += step) t[i / TILE][i % TILE] = *source;
}
