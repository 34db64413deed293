// What the gradient of a batch normalisation is made of, channel by channel.
#pragma once
#include "fused_ops/problem.cuh"

// Along channels, where registers leave three blocks to a multiprocessor: accesses that a thread has in flight.
constexpr int RESIDENT_BLOCKS = 3, GRADIENT_BATCH = WIDTH == 1 ? 8 : 2;

// dx = of_dy * dz + (of_x * (x - mean) + constant)
struct alignas(16) Factors {
  COMPUTE of_dy, of_x, mean, constant;

  __device__ __forceinline__ COMPUTE gradient(COMPUTE dz, COMPUTE x) const {
    return of_dy * dz + (of_x * (x - mean) + constant);
  }
};
