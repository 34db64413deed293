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
// the innermost is the row. A thread takes a pack: up to `width` positions of one row, neighbours, or, where operands
// cannot move those in one access, positions `spread` apart, so that the accesses of a warp are contiguous.
template <int N> struct Geometry {
  unsigned packs;           // how many packs there are in all
  unsigned row;             // positions of one row
  unsigned width;           // positions of one pack
  unsigned vectorised;      // bit i: operand i may be accessed pack by pack where its address allows
  unsigned batch;           // packs of a thread, a block's threads apart
  unsigned spread, log_spread;  // a power of two, or 0: neighbours
  unsigned span;                // positions of the last operand's memory, which packs walk gaps and all, or 0
  Divisor packs_per_row;
  int outer_rank;
  Divisor extent[MOST_DIMENSIONS - 1];  // of the outer dimensions, the fastest first
  Divisor pitch[MOST_DIMENSIONS - 1];   // where span: strides of the last operand
  int stride[N][MOST_DIMENSIONS - 1];   // fewer than 2^31 elements, gaps counted
  int row_stride[N];

  // Offsets (in elements) of pack `index` in every operand, and how many positions it has: 0 where a spread pack has none.
  template <class Offset> __device__ __forceinline__ unsigned locate(unsigned index, Offset (&offset)[N]) const {
    unsigned pack, row_index = packs_per_row.divide(index, pack);
    unsigned first = pack * width, place[N];
    if (spread) first = (pack & (0u - spread)) * width + (pack & (spread - 1));
#pragma unroll
    for (int i = 0; i < N; i++) place[i] = first * row_stride[i];
    for (int d = 0; d < outer_rank; d++) {
      unsigned position;
      row_index = extent[d].divide(row_index, position);
#pragma unroll
      for (int i = 0; i < N; i++) place[i] += position * stride[i][d];
    }
#pragma unroll
    for (int i = 0; i < N; i++) offset[i] = place[i];
    if (first >= row) return 0;
    unsigned left = spread ? ((row - first - 1) >> log_spread) + 1 : row - first;
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

  // What lies at a place of the last operand's memory.
  struct Place {
    unsigned position;  // in the row or the gap behind it
    unsigned left;      // places to the end of the row, or in gaps some that are gaps; at least 1
    bool inside;        // whether there is an element
    bool more;          // whether the row has a successor one pitch on
    unsigned offset[N];  // of the row, in operands that have row_stride 0
  };
  __device__ __forceinline__ Place place(unsigned at) const {
    Place found;
    unsigned left = ~0u, index;
    bool inside = true;
#pragma unroll
    for (int i = 0; i < N; i++) found.offset[i] = 0;
    auto enter = [&](int d) {
      index = pitch[d].divide(at, at);
      left = min(left, pitch[d].divisor - at);
#pragma unroll
      for (int i = 0; i < N; i++)
        if (row_stride[i] == 0) found.offset[i] += index * stride[i][d];
    };
#pragma unroll 1
    for (int d = outer_rank - 1; d > 0; d--) {
      enter(d);
      inside = inside & (index < extent[d].divisor);
    }
    enter(0);
    found.more = inside & (index + 1 < extent[0].divisor);
    inside = inside & (index < extent[0].divisor) & (at < row);
    found.position = at;
    found.left = inside ? row - at : left;
    found.inside = inside;
    return found;
  }
};
