// These correct kernels use element-wise access, barriers, shuffles, atomics, and dynamic shared memory.
#include "primitives/types.cuh"

#ifndef ELEMENT
#define ELEMENT float
#endif

struct AddArguments {
  const ELEMENT* a;
  const ELEMENT* b;
  ELEMENT* sum;
  long long count;
};

extern "C" __global__ void __launch_bounds__(256) add(const AddArguments arguments) {
  const long long step = (long long)gridDim.x * blockDim.x;
  for (long long i = blockIdx.x * (long long)blockDim.x + threadIdx.x; i < arguments.count; i += step)
    arguments.sum[i] = ELEMENT(float(arguments.a[i]) + float(arguments.b[i]));
}

struct SumArguments {
  const ELEMENT* values;
  float* sums;  // one per block
  int count;
};

__device__ __forceinline__ float warp_sum(float value) {
#pragma unroll
  for (int distance = 16; distance > 0; distance /= 2) value += __shfl_down_sync(0xffffffffu, value, distance);
  return value;
}

extern "C" __global__ void block_sum(const SumArguments arguments) {
  __shared__ float partial[32];
  float value = 0;
  for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < arguments.count; i += gridDim.x * blockDim.x)
    value += float(arguments.values[i]);
  value = warp_sum(value);
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  if (lane == 0) partial[warp] = value;
  __syncthreads();
  if (warp != 0) return;
  value = warp_sum(lane < (int)blockDim.x / 32 ? partial[lane] : 0.0f);
  if (lane == 0) arguments.sums[blockIdx.x] = value;
}

// Reverses each block's part through dynamic shared memory.
extern "C" __global__ void reverse_blocks(const SumArguments arguments) {
  float* row = reinterpret_cast<float*>(shared_memory);
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  row[threadIdx.x] = float(arguments.values[i]);
  __syncthreads();
  arguments.sums[i] = row[blockDim.x - 1 - threadIdx.x];
}
