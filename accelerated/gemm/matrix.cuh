// What the kernels of matrix products share: how matrices lie, what becomes of sums.
#pragma once
#include "primitives/geometry.cuh"
#include "primitives/types.cuh"

// A matrix: elements from one row to the next or, where it is MN-major, from one k to the next; of two levels of
// batches; from one segment of K to the next.
struct Matrix {
  long long offset;  // bytes from the operand's address
  long long outer, inner, segment;
  int stride;
};

template <class T> __device__ __forceinline__ T* at_byte(T* pointer, long long bytes) {
  return reinterpret_cast<T*>(reinterpret_cast<uintptr_t>(pointer) + bytes);
}

template <class Arguments> __device__ __forceinline__ RESULT* result_of(const Arguments& a, unsigned batch) {
  unsigned inner;
  const long long outer = a.inner.divide(batch, inner);
  return at_byte(a.c, a.result.offset) + outer * a.result.outer + inner * a.result.inner;
}
template <class Arguments> __device__ __forceinline__ COMPUTE bias_at(const Arguments& a, int n) {
  return a.bias ? load<COMPUTE>(at_byte(a.bias, a.bias_offset)[n]) : COMPUTE(0);
}

// Blends COUNT sums of neighbouring columns into a row of C.
template <int COUNT, class Arguments>
__device__ __forceinline__ void blend_into(const Arguments& a, RESULT* matrix, int m, int n,
                                           const COMPUTE (&sum)[COUNT]) {
  RESULT* c = matrix + static_cast<long long>(m) * a.result.stride + n;
  using Stored = Pack<RESULT, COUNT>;
  if (n + COUNT <= a.n && reinterpret_cast<uintptr_t>(c) % sizeof(Stored) == 0) {
    Stored stored{};
    if (a.beta != COMPUTE(0)) stored = *reinterpret_cast<const Stored*>(c);
#pragma unroll
    for (int i = 0; i < COUNT; i++)
      stored.item[i] = blend(COMPUTE(1), a.alpha * sum[i] + bias_at(a, n + i), a.beta, &stored.item[i]);
    *reinterpret_cast<Stored*>(c) = stored;
  } else {
#pragma unroll
    for (int i = 0; i < COUNT; i++)
      if (n + i < a.n) c[i] = blend(COMPUTE(1), a.alpha * sum[i] + bias_at(a, n + i), a.beta, c + i);
  }
}
