// This header holds index arithmetic: 32-bit indices, since a tensor has fewer than 2^31 elements, and division by
// invariants. The host prepares the invariants (geometry.py fills these structures; runtime/arguments.py compares their
// layouts).
#pragma once
#include <cstdint>

// Computes n / divisor for n < 2^31 with one high multiplication, one addition and one shift.
struct FastDivmod {
  unsigned divisor, multiplier, shift;
  __device__ __forceinline__ unsigned divide(unsigned n) const { return (__umulhi(n, multiplier) + n) >> shift; }
  __device__ __forceinline__ unsigned divide(unsigned n, unsigned& remainder) const {
    unsigned quotient = divide(n);
    remainder = n - quotient * divisor;
    return quotient;
  }
};

constexpr int MAX_DIMENSIONS = 9;  // dimensions: 8 of the document and one vector of channels, as in geometry.py

// This geometry describes the elements of N operands in rows. Dimensions that are contiguous in every operand are
// merged, and the innermost is the row. A thread takes vectors of up to `width` neighbours of one row. Or it takes
// single elements, with stride `item_distance` along one dimension.
template <int N> struct Geometry {
  struct Outer {
    FastDivmod extent;
    int stride[N];  // stride in elements; tensors have fewer than 2^31 elements, gaps included
  };

  // Fields are in order of use, so that the shortest path's fields are loaded with the pointers.
  unsigned row;                 // elements per row
  unsigned flat;                // vectors per thread if every operand is one row, else 0
  unsigned vectors;             // vectors of all rows
  unsigned vectors_per_thread;  // vectors per thread, with stride blockDim.x
  unsigned width;               // elements per vector
  unsigned vectorised;          // bit i: operand i's vectors are aligned if its base address is
  unsigned items;               // single elements per thread
  int split;                    // outer dimension of a thread's items, or -1 for the row
  unsigned item_distance;       // stride of items in that dimension, and its extent in this walk
  unsigned item_extent;         // full extent of that dimension
  unsigned partial_sectors;     // 1: rows of the output end within sectors of 32 bytes, and the output exceeds L2
  int item_stride[N];           // stride of items in memory, in elements
  int row_stride[N];
  FastDivmod vectors_per_row;
  int outer_rank;
  Outer outer[MAX_DIMENSIONS - 1];  // outer dimensions, the fastest first

  // Computes the offsets of vector `index` in every operand, in elements, and its coordinate in dimension `split`.
  // Returns the number of its elements.
  template <class Offset>
  __device__ __forceinline__ unsigned locate(unsigned index, Offset (&offset)[N], unsigned& split_coordinate) const {
    unsigned vector, row_index = vectors_per_row.divide(index, vector);
    const unsigned first = vector * width;
    unsigned sum[N];
#pragma unroll
    for (int i = 0; i < N; i++) sum[i] = first * row_stride[i];
    split_coordinate = first;
    auto advance = [&](int d, unsigned coordinate) {
      if (d == split) split_coordinate = coordinate;
#pragma unroll
      for (int i = 0; i < N; i++) sum[i] += coordinate * outer[d].stride[i];
    };
    auto enter = [&](int d) {
      unsigned coordinate;
      row_index = outer[d].extent.divide(row_index, coordinate);
      advance(d, coordinate);
    };
    // Most tensors have at most three outer dimensions, so constants replace a loop over an array.
    constexpr int NEAR = 3;
#pragma unroll
    for (int d = 0; d < NEAR; d++) {
      if (outer_rank == d + 1) advance(d, row_index);
      else if (outer_rank > d) enter(d);
    }
    if (outer_rank > NEAR) {
#pragma unroll 1
      for (int d = NEAR; d < outer_rank - 1; d++) enter(d);
      advance(outer_rank - 1, row_index);
    }
#pragma unroll
    for (int i = 0; i < N; i++) offset[i] = sum[i];
    const unsigned left = row - first;
    return left < width ? left : width;
  }
  template <class Offset> __device__ __forceinline__ unsigned locate(unsigned index, Offset (&offset)[N]) const {
    unsigned split_coordinate;
    return locate(index, offset, split_coordinate);
  }
};
