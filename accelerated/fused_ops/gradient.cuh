// This header computes the gradient of a batch normalisation, channel by channel.
#pragma once
#include "fused_ops/problem.cuh"

// Registers allow this number of blocks per SM with this number of accesses in flight.
constexpr int RESIDENT_BLOCKS = 3;                  // blocks per SM
constexpr int GRADIENT_BATCH = WIDTH == 1 ? 8 : 2;  // accesses in flight per thread along channels

// dx = of_dy * dz + (of_x * (x - mean) + constant)
struct alignas(16) Factors {
  COMPUTE of_dy, of_x, mean, constant;

  // `sum` and `product` are the sums of dz and of its products with the normalised x, divided by m.
  static __device__ __forceinline__ Factors of(COMPUTE sum, COMPUTE product, COMPUTE scale, COMPUTE mean,
                                               COMPUTE inverse) {
    const COMPUTE of_dy = scale * inverse;
    return {of_dy, -of_dy * product * inverse, mean, -of_dy * sum};
  }

  __device__ __forceinline__ COMPUTE gradient(COMPUTE dz, COMPUTE x) const {
    return of_dy * dz + (of_x * (x - mean) + constant);
  }
};

struct Sums {
  COMPUTE sum, product;
  __device__ __forceinline__ void add(const Sums& other) { sum += other.sum, product += other.product; }
  // Adds an element. The product is multiplied by the inverse deviation at the end.
  __device__ __forceinline__ void add(COMPUTE dz, COMPUTE x, COMPUTE mean) { sum += dz, product += dz * (x - mean); }
  __device__ __forceinline__ Sums from_lane(int distance) const {
    return {__shfl_xor_sync(~0u, sum, distance), __shfl_xor_sync(~0u, product, distance)};
  }
};

// Adds the sums of COUNT channels, a power of two, across lanes. Each of the first COUNT lanes keeps the sum of the
// channel with its index.
template <int DISTANCE, int COUNT> __device__ __forceinline__ void add_lanes(Sums (&sums)[COUNT]) {
  const bool upper = threadIdx.x & DISTANCE;
#pragma unroll
  for (int i = 0; i < DISTANCE; i++) {
    const Sums low = sums[i], high = sums[i + DISTANCE];
    const Sums other{upper ? low.sum : high.sum, upper ? low.product : high.product};
    sums[i] = {upper ? high.sum : low.sum, upper ? high.product : low.product};
    sums[i].add(other.from_lane(DISTANCE));
  }
  if constexpr (DISTANCE > 1) add_lanes<DISTANCE / 2>(sums);
}
