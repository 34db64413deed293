// Tensors of a graph: elements of any stored type, up to eight dimensions with any strides.
#pragma once
#include "primitives/types.cuh"

constexpr int DIMS = 8;
enum Stored { IS_FLOAT, IS_DOUBLE, IS_HALF, IS_BFLOAT16, IS_INT8, IS_UINT8, IS_INT32 };

// Call a function with a number of the stored type, whose value means nothing.
template <class Function> __device__ __forceinline__ auto with_stored(int type, Function function) {
  switch (type) {
    case IS_FLOAT:
      return function(float());
    case IS_DOUBLE:
      return function(double());
    case IS_HALF:
      return function(half());
    case IS_BFLOAT16:
      return function(bfloat16());
    case IS_INT8:
      return function(int8());
    case IS_UINT8:
      return function(uint8());
    default:
      return function(int32());
  }
}

__device__ __forceinline__ COMPUTE load_stored(const void* memory, long long index, int type) {
  return with_stored(
      type, [&](auto stored) -> COMPUTE { return load<COMPUTE>(static_cast<const decltype(stored)*>(memory)[index]); });
}

__device__ __forceinline__ void store_stored(void* memory, long long index, int type, COMPUTE value) {
  with_stored(type, [&](auto stored) {
    using T = decltype(stored);
    static_cast<T*>(memory)[index] = store<T>(value);
  });
}
