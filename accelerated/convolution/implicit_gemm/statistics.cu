// Computes the sums of the results of a convolution and of their squares, by filter (6.1.3.1). The blocks of tma.cu
// with STATISTICS have stored partial sums. The order is fixed: each of a filter's 64 threads takes every 64th block,
// with all of its loads in flight at once.
//
// Roofline bound: latency of a launch; 8 bytes per filter and block, at most 132 blocks.
#include "primitives/stored_sums.cuh"
#include "primitives/types.cuh"

constexpr int FILTERS = 4, LANES = THREADS / FILTERS, WARPS = THREADS / 32;  // filters per block; threads per filter
constexpr int IN_FLIGHT = 3;                                                 // blocks whose sums a thread reads at once

struct Arguments {
  const float* partials;  // partial sums, [block][sum, sum of squares][pitch]
  float *sum, *squares;
  int blocks, pitch, filters;
  int stride;  // stride between filters of a result, in elements
};

extern "C" __global__ void __launch_bounds__(THREADS) convolution_statistics(const Arguments a) {
  griddepcontrol_wait();
  __shared__ float sums[2][WARPS][FILTERS];
  const int lane = threadIdx.x / FILTERS, column = threadIdx.x % FILTERS, filter = blockIdx.x * FILTERS + column;
  float sum[2] = {};
  add_stored<IN_FLIGHT>(a.partials + filter, a.pitch, filter < a.filters ? lane : a.blocks, a.blocks, LANES, sum);
#pragma unroll
  for (int i = 0; i < 2; i++) {
#pragma unroll
    for (int distance = FILTERS; distance < 32; distance *= 2) sum[i] += __shfl_xor_sync(~0u, sum[i], distance);
    if (lane % (32 / FILTERS) == 0) sums[i][threadIdx.x / 32][column] = sum[i];
  }
  __syncthreads();
  if (lane > 1 || filter >= a.filters) return;
  float total = 0;
#pragma unroll
  for (int i = 0; i < WARPS; i++) total += sums[lane][i][column];
  float* to = lane == 0 ? a.sum : a.squares;
  to[filter * a.stride] = total;
}
