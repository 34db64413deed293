// These functions add the sums of a block's threads (9.2.13). A kernel's arguments must have the fields that they name.
#pragma once
#include "graph/stored.cuh"

template <class Arguments>
__device__ __forceinline__ void write(const Arguments& a, int channel, COMPUTE sum, COMPUTE square) {
  store_stored(a.sum, channel * a.sum_stride, a.sum_type, sum);
  store_stored(a.sqsum, channel * a.sqsum_stride, a.sqsum_type, square);
}

template <class Arguments>
__device__ __forceinline__ void write_segment(const Arguments& a, int channel, COMPUTE sum, COMPUTE square) {
  if (a.segments == 1) return write(a, channel, sum, square);
  COMPUTE* partial = a.partials + 2ll * blockIdx.y * a.channels + channel;
  partial[0] = sum;
  partial[a.channels] = square;
}

// Adds the sums of the threads of a column, `lanes` apart. The first thread of each column has the result.
__device__ __forceinline__ void add_columns(COMPUTE (&sums)[THREADS], COMPUTE (&squares)[THREADS], int lanes) {
  for (int distance = THREADS / 2; distance >= lanes; distance /= 2) {
    __syncthreads();
    if (threadIdx.x < distance) {
      sums[threadIdx.x] += sums[threadIdx.x + distance];
      squares[threadIdx.x] += squares[threadIdx.x + distance];
    }
  }
}

// Adds the sums of a block: WIDTH channels per thread in `lanes` neighbouring vectors, or one channel.
template <class Arguments>
__device__ __forceinline__ void write_segment(const Arguments& a, const Values& sum, const Values& square) {
  __shared__ COMPUTE sums[THREADS], squares[THREADS];
  const int thread = threadIdx.x;
#pragma unroll
  for (int i = 0; i < WIDTH; i++) {
    if (i && !a.vectors_of_channels) return;
    __syncthreads();
    sums[thread] = sum.item[i];
    squares[thread] = square.item[i];
    add_columns(sums, squares, a.lanes);
    const int channel = a.vectors_of_channels ? (blockIdx.x * a.lanes + thread) * WIDTH + i : blockIdx.x;
    if (thread < a.lanes && channel < a.channels) write_segment(a, channel, sums[thread], squares[thread]);
  }
}
