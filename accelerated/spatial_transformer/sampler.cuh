// Bilinear samples (3.2.98): the four pixels around a sample, and what they weigh.
#pragma once
#include "primitives/geometry.cuh"
#include "primitives/types.cuh"

constexpr int THREADS = 256;

struct Strides {
  int image, channel, row, column;
};

struct Shape {  // of the input and of the transformed tensor, both of these images and channels
  int channels, height, width;
  FastDivmod out_width, out_height;
};

// The pixels between which a sample lies: `row` and `column` are the first ones.
struct Cell {
  int row, column;
  COMPUTE below, right;  // how far it is behind them
  bool sound;            // the coordinates are finite numbers

  __device__ __forceinline__ Cell(const ELEMENT* coordinates, const Shape& shape)
      : Cell(coordinates[0], coordinates[1], shape) {}
  __device__ __forceinline__ Cell(ELEMENT of_column, ELEMENT of_row, const Shape& shape) {
    const COMPUTE x = load<COMPUTE>(of_column), y = load<COMPUTE>(of_row);
    sound = x - x == COMPUTE(0) && y - y == COMPUTE(0);
    column = first(x, shape.width, right), row = first(y, shape.height, below);
  }
  // Beyond the input it is all the same how far: no integer overflows.
  static __device__ __forceinline__ int first(COMPUTE coordinate, int size, COMPUTE& behind) {
    const COMPUTE at = (coordinate + COMPUTE(1)) * (COMPUTE(size - 1) / COMPUTE(2));
    const COMPUTE near = fmin(fmax(at, COMPUTE(-2)), COMPUTE(size + 1)), before = floor(near);
    behind = near - before;
    return static_cast<int>(before);
  }
  __device__ __forceinline__ COMPUTE weight(int below_it, int right_of_it) const {
    return (below_it ? below : COMPUTE(1) - below) * (right_of_it ? right : COMPUTE(1) - right);
  }
};

// The four corners of a cell in an image: offsets, and which of them lie inside.
struct Corners {
  int offset[2][2];
  bool inside[2][2];
  __device__ __forceinline__ Corners(const Cell& cell, const Shape& shape, const Strides& strides, int image) {
#pragma unroll
    for (int i = 0; i < 2; i++) {
#pragma unroll
      for (int j = 0; j < 2; j++) {
        const int row = cell.row + i, column = cell.column + j;
        inside[i][j] = row >= 0 && row < shape.height && column >= 0 && column < shape.width;
        offset[i][j] = image * strides.image + row * strides.row + column * strides.column;
      }
    }
  }
  __device__ __forceinline__ COMPUTE value(const ELEMENT* x, int i, int j) const {
    return inside[i][j] ? load<COMPUTE>(x[offset[i][j]]) : COMPUTE(0);
  }
};
