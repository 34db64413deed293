// The kernels of matrix products share this header: the layout of a matrix, and the epilogue with bias and beta.
#pragma once
#include "primitives/geometry.cuh"
#include "primitives/types.cuh"

// Locates a batch of matrices. `stride` separates rows, or consecutive k if the matrix is MN-major. `outer` and `inner`
// separate batches, and `segment` separates segments of K. All are in elements.
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

// Returns whether COUNT elements of a row of C that begin at `c`, in column n, form an aligned vector.
template <int COUNT, class Arguments>
__device__ __forceinline__ bool are_vector(const Arguments& a, const RESULT* c, int n) {
  return n + COUNT <= a.n && reinterpret_cast<uintptr_t>(c) % sizeof(Vector<RESULT, COUNT>) == 0;
}

// Returns the prior values of C if they form a vector. A thread reads all of its vectors before it writes one, so that
// the reads are in flight together.
template <int COUNT, class Arguments>
__device__ __forceinline__ Vector<RESULT, COUNT> before_blending(const Arguments& a, const RESULT* matrix, int m,
                                                                 int n) {
  const RESULT* c = matrix + static_cast<long long>(m) * a.result.stride + n;
  if (a.beta == COMPUTE(0) || m >= a.m || !are_vector<COUNT>(a, c, n)) return {};
  return *reinterpret_cast<const Vector<RESULT, COUNT>*>(c);
}

// Blends COUNT sums of consecutive columns into row m of C. `stored` holds the result of before_blending().
template <int COUNT, class Arguments>
__device__ __forceinline__ void blend_into(const Arguments& a, RESULT* matrix, int m, int n,
                                           const COMPUTE (&sum)[COUNT], Vector<RESULT, COUNT> stored) {
  RESULT* c = matrix + static_cast<long long>(m) * a.result.stride + n;
  const auto blended = [&](int i, const RESULT* at) {
    return blend(COMPUTE(1), sum[i] + bias_at(a, n + i), a.beta, at);
  };
  if (are_vector<COUNT>(a, c, n)) {
#pragma unroll
    for (int i = 0; i < COUNT; i++) stored.item[i] = blended(i, &stored.item[i]);
    *reinterpret_cast<Vector<RESULT, COUNT>*>(c) = stored;
  } else {
#pragma unroll
    for (int i = 0; i < COUNT; i++)
      if (n + i < a.n) c[i] = blended(i, c + i);
  }
}
template <int COUNT, class Arguments>
__device__ __forceinline__ void blend_into(const Arguments& a, RESULT* matrix, int m, int n,
                                           const COMPUTE (&sum)[COUNT]) {
  blend_into(a, matrix, m, n, sum, before_blending<COUNT>(a, matrix, m, n));
}
