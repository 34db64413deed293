// Copies of vectors.
#pragma once
#include "primitives/types.cuh"

// By a warp, in packs of 16 bytes where both ends are aligned. from: nullptr where all elements get `otherwise`.
__device__ __forceinline__ void copy_vector(ELEMENT* to, const ELEMENT* from, int width, ELEMENT otherwise) {
  constexpr int PACK = 16 / sizeof(ELEMENT);
  const int lane = threadIdx.x % 32;
  const bool aligned = (reinterpret_cast<uintptr_t>(to) | reinterpret_cast<uintptr_t>(from)) % 16 == 0;
  const int packed = aligned && from ? width / PACK * PACK : 0;
#pragma unroll 4
  for (int i = lane * PACK; i < packed; i += 32 * PACK)
    *reinterpret_cast<Pack<ELEMENT, PACK>*>(to + i) = *reinterpret_cast<const Pack<ELEMENT, PACK>*>(from + i);
  for (int i = packed + lane; i < width; i += 32) to[i] = from ? from[i] : otherwise;
}
