// This header reads the dropout between two layers. The mask has one bit for each element of (step, sequence,
// direction, unit); one byte covers eight neighbours.
#pragma once
#include "primitives/types.cuh"

constexpr int OCTET = 8;  // elements per byte of the mask

// Holds the offsets after a layer, in elements of the reserve space: the next layer's input, and the mask. An offset of
// -1 means that nothing is dropped.
struct Dropout {
  long long vectors, mask;
};

__device__ __forceinline__ ELEMENT dropped(ELEMENT value, COMPUTE scale, bool kept) {
  return store<ELEMENT>(kept ? load<COMPUTE>(value) * scale : COMPUTE(0));
}
__device__ __forceinline__ const unsigned char* mask_of(const COMPUTE* reserve, const Dropout& dropout) {
  return reinterpret_cast<const unsigned char*>(reserve + dropout.mask);
}
