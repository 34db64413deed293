// Tensors of a graph: elements of any stored type, up to eight dimensions with any strides.
#pragma once
#include "primitives/types.cuh"

constexpr int DIMS = 8;
enum Stored { IS_FLOAT, IS_DOUBLE, IS_HALF, IS_BFLOAT16, IS_INT8, IS_UINT8, IS_INT32 };

__device__ __forceinline__ COMPUTE load_stored(const void* memory, long long index, int type) {
  switch (type) {
    case IS_FLOAT:
      return load<COMPUTE>(static_cast<const float*>(memory)[index]);
    case IS_DOUBLE:
      return load<COMPUTE>(static_cast<const double*>(memory)[index]);
    case IS_HALF:
      return load<COMPUTE>(static_cast<const half*>(memory)[index]);
    case IS_BFLOAT16:
      return load<COMPUTE>(static_cast<const bfloat16*>(memory)[index]);
    case IS_INT8:
      return load<COMPUTE>(static_cast<const int8*>(memory)[index]);
    case IS_UINT8:
      return load<COMPUTE>(static_cast<const uint8*>(memory)[index]);
    default:
      return load<COMPUTE>(static_cast<const int32*>(memory)[index]);
  }
}

__device__ __forceinline__ void store_stored(void* memory, long long index, int type, COMPUTE value) {
  switch (type) {
    case IS_FLOAT:
      static_cast<float*>(memory)[index] = store<float>(value);
      break;
    case IS_DOUBLE:
      static_cast<double*>(memory)[index] = store<double>(value);
      break;
    case IS_HALF:
      static_cast<half*>(memory)[index] = store<half>(value);
      break;
    case IS_BFLOAT16:
      static_cast<bfloat16*>(memory)[index] = store<bfloat16>(value);
      break;
    case IS_INT8:
      static_cast<int8*>(memory)[index] = store<int8>(value);
      break;
    case IS_UINT8:
      static_cast<uint8*>(memory)[index] = store<uint8>(value);
      break;
    default:
      static_cast<int32*>(memory)[index] = store<int32>(value);
  }
}
