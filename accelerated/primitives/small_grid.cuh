// Indices from the dimensions of a launch, without a division, for small tensors that no 16-byte pack moves (the host
// side is small_grid.py). Latency limits such tensors, that of the index arithmetic included: 0.4 to 0.8 MB with gaps
// took 1.7 to 2.0 us in a stream with divisions, 1.0 to 1.3 us so (H200; tanh 1.5).
#pragma once

constexpr int SMALL_GRID_RANK = 4;  // small_grid.py has the same

// The elements of N operands. A block has `block_rows` of `rows` rows; a thread has `items` elements, `item_distance`
// from each other along the third dimension, whose extent is `item_extent`.
template <int N> struct SmallGrid {
  unsigned block_rows, rows, items, item_distance, item_extent;
  unsigned step[N][SMALL_GRID_RANK];  // elements, of the dimensions, the slowest first

  // The offsets of a thread's first element; returns how many elements it has.
  __device__ __forceinline__ unsigned locate(unsigned (&offset)[N]) const {
    const unsigned row = blockIdx.x * block_rows + threadIdx.y;
#pragma unroll
    for (int n = 0; n < N; n++)
      offset[n] = threadIdx.x * step[n][3] + row * step[n][2] + blockIdx.y * step[n][1] + blockIdx.z * step[n][0];
    return row >= rows ? 0 : items - (blockIdx.y + (items - 1) * item_distance >= item_extent);
  }
  // Elements from one of a thread's to the next.
  __device__ __forceinline__ unsigned next(int n) const { return item_distance * step[n][1]; }
};
