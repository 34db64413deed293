// Index arithmetic: 32-bit indices (a tensor holds fewer than 2^31 elements), division by invariants that the host
// prepares (geometry.py fills these structures; runtime/arguments.py compares their layouts field by field).
#pragma once
#include <cstdint>

// n / divisor for n < 2^31: one high multiplication, one addition, one shift.
struct FastDivmod {
  unsigned divisor, multiplier, shift;
  __device__ __forceinline__ unsigned divide(unsigned n) const { return (__umulhi(n, multiplier) + n) >> shift; }
  __device__ __forceinline__ unsigned divide(unsigned n, unsigned& remainder) const {
    unsigned quotient = divide(n);
    remainder = n - quotient * divisor;
    return quotient;
  }
};

constexpr int MAX_DIMENSIONS = 9;  // 8 of the document and the vector of a vectorised tensor; geometry.py has the same

// The elements of N operands, in rows: dimensions that are contiguous in every operand are merged, and the innermost is
// the row. A thread takes packs, up to `width` neighbours of one row each, or single elements, `item_distance` from
// each other in one of the dimensions.
template <int N> struct Geometry {
  struct Outer {
    FastDivmod extent;
    int stride[N];  // fewer than 2^31 elements, gaps counted
  };

  // In the order of their use: what the shortest path needs is loaded with the pointers.
  unsigned row;               // elements of a row
  unsigned flat;              // packs per thread where every operand is one row, else 0
  unsigned packs;             // of all rows
  unsigned packs_per_thread;  // blockDim.x apart
  unsigned width;             // elements of a pack
  unsigned vectorised;        // bit i: packs of operand i are aligned where its address is
  unsigned items;             // single elements per thread
  int split;                  // the outer dimension along which they lie, or -1: along the row
  unsigned item_distance;     // from one to the next in that dimension, which is given this extent here
  unsigned item_extent;       // its extent
  unsigned partial_sectors;   // rows of the output end within sectors of 32 bytes, and the output does not stay in L2
  int item_stride[N];         // elements from one to the next in memory
  int row_stride[N];
  FastDivmod packs_per_row;
  int outer_rank;
  Outer outer[MAX_DIMENSIONS - 1];  // the fastest first

  // The offsets (in elements) of pack `index` in every operand and its coordinate in dimension `split`; returns its
  // elements.
  template <class Offset>
  __device__ __forceinline__ unsigned locate(unsigned index, Offset (&offset)[N], unsigned& split_coordinate) const {
    unsigned pack, row_index = packs_per_row.divide(index, pack);
    const unsigned first = pack * width;
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
    // Most tensors have at most three outer dimensions: constants instead of a loop that reads an array.
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

  // The offset of a row in an operand.
  __device__ __forceinline__ unsigned row_offset(unsigned row_index, int operand) const {
    unsigned sum = 0;
#pragma unroll 1
    for (int d = 0; d < outer_rank; d++) {
      unsigned coordinate;
      row_index = outer[d].extent.divide(row_index, coordinate);
      sum += coordinate * outer[d].stride[operand];
    }
    return sum;
  }
};
