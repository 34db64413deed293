// This header accesses tensors of a graph: elements of any stored type, up to eight dimensions with any strides.
#pragma once
#include "primitives/types.cuh"

constexpr int DIMS = 8;  // WIDTH counts the elements per thread.
enum Stored { IS_FLOAT, IS_DOUBLE, IS_HALF, IS_BFLOAT16, IS_INT8, IS_UINT8, IS_INT32 };

// Calls a function with a value of the stored type. The value itself has no meaning.
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

// Holds the elements of a thread in the arithmetic. Accesses have 16 bytes where elements are contiguous and aligned.
using Values = Vector<COMPUTE, WIDTH>;

template <class T> constexpr int CHUNK = 16 / sizeof(T) < WIDTH ? 16 / sizeof(T) : WIDTH;
template <class T> using Chunk = Vector<T, CHUNK<T>>;

template <class T> __device__ __forceinline__ bool in_chunks(const T* memory, long long stride, int count) {
  return stride == 1 && count == WIDTH && reinterpret_cast<unsigned long long>(memory) % sizeof(Chunk<T>) == 0;
}

template <class T>
__device__ __forceinline__ void load_elements(const T* memory, long long stride, int count, Values& vector) {
  if (in_chunks(memory, stride, count)) {
#pragma unroll
    for (int i = 0; i < WIDTH; i += CHUNK<T>) {
      const Chunk<T> chunk = *reinterpret_cast<const Chunk<T>*>(memory + i);
#pragma unroll
      for (int j = 0; j < CHUNK<T>; j++) vector.item[i + j] = load<COMPUTE>(chunk.item[j]);
    }
    return;
  }
#pragma unroll
  for (int i = 0; i < WIDTH; i++)
    if (i < count) vector.item[i] = load<COMPUTE>(memory[i * stride]);
}
