// What the gradient of a batch normalisation is made of, channel by channel.
#pragma once
#include "fused_ops/problem.cuh"

// dx = of_dy * dz + (of_x * (x - mean) + constant)
struct alignas(16) Factors {
  COMPUTE of_dy, of_x, mean, constant;

  __device__ __forceinline__ COMPUTE gradient(COMPUTE dz, COMPUTE x) const {
    return of_dy * dz + (of_x * (x - mean) + constant);
  }
};
