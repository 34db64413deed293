// Index arithmetic: 32-bit indices (a tensor holds fewer than 2^31 elements), division by invariants precomputed on
// the host (geometry.py builds these structures; their layouts must match).
#pragma once
#include <cstdint>

// n / divisor for n < 2^31: one high multiplication, one addition, one shift.
struct Divisor {
  unsigned divisor, multiplier, shift;
  __device__ __forceinline__ unsigned divide(unsigned n) const { return (__umulhi(n, multiplier) + n) >> shift; }
  __device__ __forceinline__ unsigned divide(unsigned n, unsigned& remainder) const {
    unsigned quotient = divide(n);
    remainder = n - quotient * divisor;
    return quotient;
  }
};

constexpr int MOST_DIMENSIONS = 9;  // 8 of the document and the vector of a vectorised tensor

// Rows of neighbouring positions shared by N operands. Dimensions that are contiguous in every operand are merged;
// the innermost is the row. A thread takes packs: up to `width` neighbouring positions of one row.
template <int N> struct Geometry {
  // What the shortest way needs comes first: it arrives with the pointers.
  unsigned row;         // positions of one row
  unsigned flat;        // packs of a thread where every operand is one row, else 0
  unsigned packs;       // how many packs there are in all
  unsigned batch;       // packs of a thread, a block's threads apart
  unsigned width;       // positions of one pack
  unsigned vectorised;  // bit i: operand i may be accessed pack by pack where its address allows
  Divisor packs_per_row;
  int outer_rank;
  Divisor extent[MOST_DIMENSIONS - 1];  // of the outer dimensions, the fastest first
  int stride[N][MOST_DIMENSIONS - 1];   // fewer than 2^31 elements, gaps counted
  int row_stride[N];

  // Offsets (in elements) of pack `index` in every operand, and how many positions it has.
  template <class Offset> __device__ __forceinline__ unsigned locate(unsigned index, Offset (&offset)[N]) const {
    unsigned pack, row_index = packs_per_row.divide(index, pack);
    const unsigned first = pack * width;
    unsigned place[N];
#pragma unroll
    for (int i = 0; i < N; i++) place[i] = first * row_stride[i];
    auto advance = [&](int d, unsigned position) {
#pragma unroll
      for (int i = 0; i < N; i++) place[i] += position * stride[i][d];
    };
    auto enter = [&](int d) {
      unsigned position;
      row_index = extent[d].divide(row_index, position);
      advance(d, position);
    };
    // Most tensors have at most three outer dimensions: constants instead of a loop that reads an array.
    constexpr int NEAR = 2;
    if (outer_rank > 0) {
#pragma unroll
      for (int d = 0; d < NEAR; d++) {
        if (outer_rank == d + 1) advance(d, row_index);
        if (outer_rank <= d + 1) break;
        enter(d);
      }
      if (outer_rank > NEAR) {
#pragma unroll 1
        for (int d = NEAR; d < outer_rank - 1; d++) enter(d);
        advance(outer_rank - 1, row_index);
      }
    }
#pragma unroll
    for (int i = 0; i < N; i++) offset[i] = place[i];
    const unsigned left = row - first;
    return left < width ? left : width;
  }

  // The offset of a row in an operand.
  __device__ __forceinline__ unsigned row_offset(unsigned row_index, int operand) const {
    unsigned place = 0;
#pragma unroll 1
    for (int d = 0; d < outer_rank; d++) {
      unsigned position;
      row_index = extent[d].divide(row_index, position);
      place += position * stride[operand][d];
    }
    return place;
  }
};
