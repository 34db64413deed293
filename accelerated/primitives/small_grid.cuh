// Elements by the dimensions of a launch, for small tensors that no pack moves (the host side is small_grid.py; the layouts match): a thread's
// place takes no division. What limits such tensors is latency, and that of the place counts: the next kernel begins to look for its own when
// this one has been let through. 0.4 to 0.8 MB with gaps took 1.7 to 2.0 us in a stream when threads divided, 1.0 to 1.3 so (H200; tanh 1.5).
#pragma once

// Of N operands. Blocks have `block_rows` of `rows` rows; a thread has `items` elements, `item_distance` positions from each other along a dimension of
// `item_extent`, the third.
template <int N> struct SmallGrid {
  unsigned block_rows, rows, items, item_distance, item_extent;
  unsigned step[N][4];  // of the dimensions, the slowest first

  // Offsets of a thread's first element; how many it has.
  __device__ __forceinline__ unsigned locate(unsigned (&offset)[N]) const {
    const unsigned row = blockIdx.x * block_rows + threadIdx.y;
#pragma unroll
    for (int n = 0; n < N; n++) offset[n] = threadIdx.x * step[n][3] + row * step[n][2] + blockIdx.y * step[n][1] + blockIdx.z * step[n][0];
    return row >= rows ? 0 : items - (blockIdx.y + (items - 1) * item_distance >= item_extent);
  }
  // From one of a thread's elements to the next.
  __device__ __forceinline__ unsigned next(int n) const { return item_distance * step[n][1]; }
};
