// How the clusters of a gradient of a bias (6.2.1) add up what they have: each keeps partial sums in scratch memory,
// and the last one to arrive adds those of all, in one order.
#pragma once
#include "primitives/cluster.cuh"
#include "primitives/dependent_launch.cuh"
#include "primitives/geometry.cuh"
#include "primitives/types.cuh"

constexpr unsigned THREADS = 256, WARP = 32, WARPS = THREADS / WARP;
constexpr unsigned WIDTH = 16 / sizeof(ELEMENT);
using Elements = Pack<ELEMENT, WIDTH>;

// COUNTS: of launches that may be in flight together, which the host gives different counts (bias_gradient_parts.py);
// GROUPS: of blocks that arrive together. A count is 0 again when all have arrived.
__device__ unsigned arrivals[COUNTS * GROUPS];

// Whether all parts of a group of blocks have been written. All threads of a block that has written one call it.
__device__ __forceinline__ bool is_last(unsigned count, unsigned group, unsigned parts) {
  __shared__ bool last;
  __syncthreads();
  if (threadIdx.x == 0) {
    __threadfence();
    last = atomicInc(arrivals + count * GROUPS + group, parts - 1) == parts - 1;
    __threadfence();
  }
  __syncthreads();
  return last;
}
