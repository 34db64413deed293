// This header defines bilinear samples (3.2.98): the four pixels around a sample and their weights.
#pragma once
#include "primitives/geometry.cuh"
#include "primitives/types.cuh"

constexpr int THREADS = 256;

struct Strides {
  int image, channel, row, column;
};

// The input and the transformed tensor share images and channels.
struct Shape {
  int channels, height, width;
  FastDivmod out_width, out_height;
};

// A sample is in the cell between four pixels; `row` and `column` locate the first one.
struct Cell {
  int row, column;
  COMPUTE below, right;  // distance from the first pixel, in pixels
  COMPUTE zero;          // NaN where a coordinate is not finite, else 0

  __device__ __forceinline__ Cell(const ELEMENT* coordinates, const Shape& shape)
      : Cell(coordinates[0], coordinates[1], shape) {}
  __device__ __forceinline__ Cell(ELEMENT of_column, ELEMENT of_row, const Shape& shape) {
    const COMPUTE x = load<COMPUTE>(of_column), y = load<COMPUTE>(of_row);
    zero = x * COMPUTE(0) + y * COMPUTE(0);
    column = first(x, shape.width, right), row = first(y, shape.height, below);
  }
  __device__ __forceinline__ bool sound() const { return zero == COMPUTE(0); }
  // Returns the offset of the first pixel. It is arbitrary if the pixel is outside.
  __device__ __forceinline__ unsigned offset(unsigned of_row, unsigned of_column) const {
    return row * of_row + column * of_column;
  }
  // Returns the weighted sum of the four pixels.
  __device__ __forceinline__ COMPUTE sum(const COMPUTE (&value)[2][2]) const {
    const COMPUTE above = COMPUTE(1) - below, left = COMPUTE(1) - right;
    return zero + above * left * value[0][0] + above * right * value[0][1] + below * left * value[1][0] +
           below * right * value[1][1];
  }
  // Far beyond the input the result saturates to the first or last integer, with distance 0.
  static __device__ __forceinline__ int first(COMPUTE coordinate, int size, COMPUTE& behind) {
    const COMPUTE half = COMPUTE(size - 1) / COMPUTE(2), at = coordinate * half + half, before = floor(at);
    if constexpr (sizeof(COMPUTE) == 4) {
      behind = __saturatef(at - before);
      return __float2int_rd(before);
    } else {
      behind = fmin(fmax(at - before, COMPUTE(0)), COMPUTE(1));
      return __double2int_rd(before);
    }
  }
};

// This says which of the four pixels around a sample are inside.
struct Around {
  const Cell& cell;
  bool above, below, left, right;
  __device__ __forceinline__ Around(const Cell& cell, const Shape& shape)
      : cell(cell),
        above(unsigned(cell.row) < unsigned(shape.height)),
        below(unsigned(cell.row + 1) < unsigned(shape.height)),
        left(unsigned(cell.column) < unsigned(shape.width)),
        right(unsigned(cell.column + 1) < unsigned(shape.width)) {}
  // `upper` points to the first pixel; `row` and `column` are strides in elements. Pixels outside read as zero.
  __device__ __forceinline__ void read(const ELEMENT* upper, int row, int column, COMPUTE (&value)[2][2]) const {
    const ELEMENT* const lower = upper + row;
    value[0][0] = above && left ? load<COMPUTE>(upper[0]) : COMPUTE(0);
    value[0][1] = above && right ? load<COMPUTE>(upper[column]) : COMPUTE(0);
    value[1][0] = below && left ? load<COMPUTE>(lower[0]) : COMPUTE(0);
    value[1][1] = below && right ? load<COMPUTE>(lower[column]) : COMPUTE(0);
  }
  __device__ __forceinline__ COMPUTE sum(const ELEMENT* upper, int row, int column) const {
    COMPUTE value[2][2];
    read(upper, row, column, value);
    return cell.sum(value);
  }
};
