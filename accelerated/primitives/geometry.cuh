// Index arithmetic: 32-bit indices (a tensor holds fewer than 2^31 elements), division by invariants precomputed on
// the host (geometry.py builds these structures; their layouts must match).
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

constexpr int MAX_DIMENSIONS = 9;  // 8 of the document and the vector of a vectorised tensor

// Rows of neighbouring positions shared by N operands. Dimensions that are contiguous in every operand are merged;
// the innermost is the row. A thread takes packs: up to `width` neighbouring positions of one row; or single positions,
// `item_distance` from each other in one of the dimensions.
template <int N> struct Geometry {
  struct Outer {
    FastDivmod extent;
    int stride[N];  // fewer than 2^31 elements, gaps counted
  };

  // In the order of their use: what the shortest way needs arrives with the pointers.
  unsigned row;         // positions of one row
  unsigned flat;        // packs of a thread where every operand is one row, else 0
  unsigned packs;       // how many packs there are in all
  unsigned packs_per_thread;  // blockDim.x apart
  unsigned width;       // positions of one pack
  unsigned vectorised;  // bit i: operand i may be accessed pack by pack where its address allows
  unsigned items;       // single positions of a thread
  int split;            // the outer dimension along which they lie, or -1: along the row
  unsigned item_distance;  // positions from one to the next; that many the dimension is given here
  unsigned item_extent;  // positions it has
  unsigned partial_sectors;  // whether rows of the output end within sectors of 32 bytes and the output does not stay in L2
  int item_stride[N];   // elements from one to the next
  int row_stride[N];
  FastDivmod packs_per_row;
  int outer_rank;
  Outer outer[MAX_DIMENSIONS - 1];  // the fastest first

  // Offsets (in elements) of pack `index` in every operand, how many positions it has, its position in dimension `split`.
  template <class Offset> __device__ __forceinline__ unsigned locate(unsigned index, Offset (&offset)[N], unsigned& position_in_split) const {
    unsigned pack, row_index = packs_per_row.divide(index, pack);
    const unsigned first = pack * width;
    unsigned place[N];
#pragma unroll
    for (int i = 0; i < N; i++) place[i] = first * row_stride[i];
    position_in_split = first;
    auto advance = [&](int d, unsigned position) {
      if (d == split) position_in_split = position;
#pragma unroll
      for (int i = 0; i < N; i++) place[i] += position * outer[d].stride[i];
    };
    auto enter = [&](int d) {
      unsigned position;
      row_index = outer[d].extent.divide(row_index, position);
      advance(d, position);
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
    for (int i = 0; i < N; i++) offset[i] = place[i];
    const unsigned left = row - first;
    return left < width ? left : width;
  }
  template <class Offset> __device__ __forceinline__ unsigned locate(unsigned index, Offset (&offset)[N]) const {
    unsigned position_in_split;
    return locate(index, offset, position_in_split);
  }

  // The offset of a row in an operand.
  __device__ __forceinline__ unsigned row_offset(unsigned row_index, int operand) const {
    unsigned place = 0;
#pragma unroll 1
    for (int d = 0; d < outer_rank; d++) {
      unsigned position;
      row_index = outer[d].extent.divide(row_index, position);
      place += position * outer[d].stride[operand];
    }
    return place;
  }
};
