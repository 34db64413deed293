// This file computes generic transforms. It is preferred where source and destination are contiguous along the same
// dimension (3.2.99 to 3.2.101).
//
// A thread takes a vector along the destination's fastest dimension. One 16-byte access per side moves it where both
// are aligned. Else its elements have strides up to a warp, so that accesses are coalesced.
//
// The roofline bound is bytes: one element read and one written, with at most one multiply-add and two conversions.
// Packed rows reach the speed of a copy. Instructions limit half and int8 rows that are not aligned to 16 bytes. No row
// of the reports measures this kernel.
#include "transform/problem.cuh"

constexpr int WIDTH = 16 / (sizeof(SOURCE) > sizeof(ELEMENT) ? sizeof(SOURCE) : sizeof(ELEMENT));
// ROWS_BLOCKS is the number of blocks per SM that the registers of a vector allow, for enough loads in flight.
constexpr int ROWS_BLOCKS = sizeof(SOURCE) > 2 ? 8 : sizeof(SOURCE) == 2 ? 5 : 4;
constexpr int THREADS = 256;

// Vectors extend along dimension 0 and are read and written in the same order. A vector's elements have stride
// 2^log_spread. It is 1 if they move in one access, else up to a warp, so that accesses are coalesced.
struct Rows {
  FastDivmod vectors_per_row;
  unsigned vectors, log_spread;
};

template <int WIDTH, class S, class D, class Write>
__device__ __forceinline__ void walk_rows(const Walk& walk, const Rows& rows, const S* source, D* destination,
                                          Write write) {
  const unsigned spread = 1u << rows.log_spread;
  for (unsigned index = blockIdx.x * blockDim.x + threadIdx.x; index < rows.vectors; index += gridDim.x * blockDim.x) {
    unsigned position[DIMENSIONS], vector;
    walk.split<1>(rows.vectors_per_row.divide(index, vector), position);
    position[0] = (vector & -spread) * WIDTH + (vector & (spread - 1));
    const unsigned row = walk.dimension[0].extent.divisor;
    if (position[0] >= row) continue;
    unsigned left = ((row - position[0] - 1) >> rows.log_spread) + 1, count = left < WIDTH ? left : WIDTH;
    unsigned read = passing<WIDTH>(walk.source_check, walk.source_checks, walk.rank, position, count, spread);
    unsigned written =
        passing<WIDTH>(walk.destination_check, walk.destination_checks, walk.rank, position, count, spread);
    unsigned from, to;
    walk.offsets<0>(position, from, to);
    Vector<S, WIDTH> values = gather<S, WIDTH>(source, from, walk.dimension[0].source * spread, read);
    write(destination, to, walk.dimension[0].destination * spread, written, values);
  }
}

struct RowsArguments {
  const SOURCE* source;
  ELEMENT* destination;
  Walk walk;
  COMPUTE alpha, beta;
  Rows rows;
  int move;  // 1: alpha is 1 and beta 0, so elements are copied bit by bit
};

extern "C" __global__ void __launch_bounds__(THREADS, ROWS_BLOCKS) transform_rows(const RowsArguments a) {
  griddepcontrol_wait();
  if constexpr (same_type<SOURCE, ELEMENT>)
    if (a.move) return walk_rows<WIDTH>(a.walk, a.rows, a.source, a.destination, Move{});
  Blend blend{a.alpha, a.beta};
  walk_rows<WIDTH>(a.walk, a.rows, a.source, a.destination, blend);
}
