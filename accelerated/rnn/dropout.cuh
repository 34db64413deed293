// Dropout between two layers of a recurrent network, as its kernels read it: a bit for each element of (step, sequence,
// direction, unit), eight neighbours in a byte.
#pragma once
#include "primitives/types.cuh"

constexpr int OCTET = 8;

// Behind a layer, in numbers of the reserve space: what the next layer gets, and the mask; -1: nothing is dropped.
struct Dropout {
  long long vectors, mask;
};

__device__ __forceinline__ ELEMENT dropped(ELEMENT value, COMPUTE scale, bool kept) {
  return store<ELEMENT>(kept ? load<COMPUTE>(value) * scale : COMPUTE(0));
}
__device__ __forceinline__ const unsigned char* mask_of(const COMPUTE* reserve, const Dropout& dropout) {
  return reinterpret_cast<const unsigned char*>(reserve + dropout.mask);
}
