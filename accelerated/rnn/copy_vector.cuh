// This header copies vectors.
#pragma once
#include "primitives/types.cuh"

// One warp copies a vector, 16 bytes per thread where both ends are aligned. Where `from` is nullptr, all elements
// become `otherwise`.
__device__ __forceinline__ void copy_vector(ELEMENT* to, const ELEMENT* from, int width, ELEMENT otherwise) {
  constexpr int ACCESS = 16 / sizeof(ELEMENT);
  const int lane = threadIdx.x % 32;
  const bool aligned = (reinterpret_cast<uintptr_t>(to) | reinterpret_cast<uintptr_t>(from)) % 16 == 0;
  const int packed = aligned && from ? width / ACCESS * ACCESS : 0;
#pragma unroll 4
  for (int i = lane * ACCESS; i < packed; i += 32 * ACCESS)
    *reinterpret_cast<Vector<ELEMENT, ACCESS>*>(to + i) = *reinterpret_cast<const Vector<ELEMENT, ACCESS>*>(from + i);
  for (int i = packed + lane; i < width; i += 32) to[i] = from ? from[i] : otherwise;
}
