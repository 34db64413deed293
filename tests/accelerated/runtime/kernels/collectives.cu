// These kernels use warp and block collectives and atomics; each thread writes the results that it got.
#include <cuda_bf16.h>
#include <cuda_fp16.h>

struct Arguments {
  const int* input;
  int* output;
  int count;
};

extern "C" __global__ void votes(const Arguments arguments) {
  const int i = threadIdx.x;
  const int value = arguments.input[i];
  int* out = arguments.output + 8 * i;
  out[0] = (int)__ballot_sync(0xffffffffu, value & 1);
  out[1] = __any_sync(0xffffffffu, value == 5);
  out[2] = __all_sync(0xffffffffu, value >= 0);
  out[3] = __syncthreads_count(value & 1);
  out[4] = __syncthreads_or(value == 5);
  out[5] = __syncthreads_and(value >= 0);
  out[6] = __reduce_add_sync(0xffffffffu, value);
  out[7] = (int)__reduce_xor_sync(0xffffffffu, (unsigned)value);
}

extern "C" __global__ void shuffles(const Arguments arguments) {
  const int value = arguments.input[threadIdx.x];
  int* out = arguments.output + 8 * threadIdx.x;
  out[0] = __shfl_sync(0xffffffffu, value, 3);
  out[1] = __shfl_sync(0xffffffffu, value, 11, 8);
  out[2] = __shfl_up_sync(0xffffffffu, value, 2);
  out[3] = __shfl_up_sync(0xffffffffu, value, 2, 16);
  out[4] = __shfl_down_sync(0xffffffffu, value, 3);
  out[5] = __shfl_down_sync(0xffffffffu, value, 3, 8);
  out[6] = __shfl_xor_sync(0xffffffffu, value, 5);
  out[7] = __reduce_max_sync(0xffffffffu, value) - __reduce_min_sync(0xffffffffu, value);
}

// Half of each warp leaves early. The other lanes continue with their own mask, and with a mask of all lanes.
extern "C" __global__ void half_warp(const Arguments arguments) {
  if (threadIdx.x % 2) return;
  const int value = arguments.input[threadIdx.x];
  arguments.output[threadIdx.x] = __reduce_add_sync(0x55555555u, value);
  arguments.output[blockDim.x + threadIdx.x] = (int)__ballot_sync(0xffffffffu, value & 2);
}

struct AtomicArguments {
  const int* input;
  int* integers;
  float* floats;
  double* doubles;
  __half* half_values;
  __nv_bfloat16* bfloats;
  int count;
};

extern "C" __global__ void atomics(const AtomicArguments arguments) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= arguments.count) return;
  const int value = arguments.input[i];
  atomicAdd(arguments.integers, value);
  atomicMax(arguments.integers + 1, value);
  atomicMin(arguments.integers + 2, value);
  atomicOr(arguments.integers + 3, value);
  if (i == 0) {
    atomicExch(arguments.integers + 4, 77);
    atomicCAS(arguments.integers + 5, 0, 55);
    atomicCAS(arguments.integers + 5, 0, 66);
  }
  atomicAdd(arguments.floats, (float)value);
  atomicAdd(arguments.doubles, (double)value);
  atomicAdd(arguments.half_values, __float2half_rn((float)(value % 3)));
  atomicAdd(arguments.bfloats, __float2bfloat16_rn((float)(value % 2)));
}
