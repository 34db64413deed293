// The sums of the results of a convolution and of their squares, by filter (6.1.3.1), from those that the blocks of its
// products stored (tma.cu with STATISTICS). Deterministic: 32 threads of a filter take every 32nd block
// each.
//
// Roofline bound: a launch; 8 bytes a filter and block, at most 132 of them.
#include "primitives/types.cuh"

constexpr int FILTERS = 8, LANES = THREADS / FILTERS;  // of a block; threads of a filter

struct Arguments {
  const unsigned char* workspace;
  float *sum, *squares;  // NULL: not wanted
  long long partials;    // bytes to the sums of the blocks, [block][sum, of squares][pitch]
  int blocks, pitch, filters;
  int stride;  // elements from one filter of a result to the next
};

extern "C" __global__ void __launch_bounds__(THREADS) convolution_statistics(const Arguments a) {
  griddepcontrol_wait();
  __shared__ float sums[2][LANES][FILTERS];
  const int lane = threadIdx.x / FILTERS, column = threadIdx.x % FILTERS, filter = blockIdx.x * FILTERS + column;
  float sum[2] = {};
  if (filter < a.filters) {
    const float* from = reinterpret_cast<const float*>(a.workspace + a.partials) + filter;
#pragma unroll 4
    for (int block = lane; block < a.blocks; block += LANES)
#pragma unroll
      for (int i = 0; i < 2; i++) sum[i] += from[(2 * block + i) * a.pitch];
  }
#pragma unroll
  for (int i = 0; i < 2; i++) sums[i][lane][column] = sum[i];
  __syncthreads();
  if (lane > 1 || filter >= a.filters) return;
  float total = 0;
#pragma unroll
  for (int i = 0; i < LANES; i++) total += sums[lane][i][column];
  float* to = lane == 0 ? a.sum : a.squares;
  if (to) to[filter * a.stride] = total;
}
