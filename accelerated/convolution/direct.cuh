// The gradients of a convolution without a workspace share this header. Up to 32 lanes of a warp compute one element of
// the result.
#pragma once
#include "primitives/geometry.cuh"
#include "primitives/types.cuh"

struct Element {
  unsigned lanes, lane, index;     // threads per element, index of this thread, index of the element
  unsigned outer, channel, at[3];  // image, or group and filter; channel; depth, row, column

  __device__ __forceinline__ Element(int log_lanes, int channels_last, const FastDivmod& channels,
                                     const FastDivmod (&extent)[3]) {
    const unsigned thread = blockIdx.x * blockDim.x + threadIdx.x;
    lanes = 1u << log_lanes, lane = thread & (lanes - 1), index = thread >> log_lanes;
    outer = index;
    if (channels_last) outer = channels.divide(outer, channel);
#pragma unroll
    for (int d = 2; d >= 0; d--) outer = extent[d].divide(outer, at[d]);
    if (!channels_last) outer = channels.divide(outer, channel);
  }
  // Returns the sum over all lanes.
  __device__ __forceinline__ COMPUTE of_lanes(COMPUTE sum) const {
    for (unsigned distance = lanes / 2; distance; distance /= 2) sum += __shfl_xor_sync(~0u, sum, distance);
    return sum;
  }
};
