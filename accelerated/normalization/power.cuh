// This header computes s^-beta for s = k + factor * sum, the factor of LRN and divisive normalization.
#pragma once
#include "primitives/packed.cuh"

#ifndef THREE_QUARTERS
#define THREE_QUARTERS 0  // 1: beta is 3/4, the most frequent value, and the type is float
#endif

struct Power {
  COMPUTE factor, k, beta;
  COMPUTE sign;  // factor of powers of negative numbers: 1 or -1 for an integer beta, else NaN

  __device__ __forceinline__ COMPUTE base(COMPUTE sum) const { return k + factor * sum; }
  __device__ __forceinline__ COMPUTE operator()(COMPUTE s) const {
    if constexpr (THREE_QUARTERS) {
      const COMPUTE inverse_root = inverse_of_root(s);  // A negative number yields NaN, as required.
      return inverse_root * root(inverse_root);
    } else {
      const COMPUTE power = exponential(-beta * logarithm(s < COMPUTE(0) ? -s : s));
      return s < COMPUTE(0) ? sign * power : power;
    }
  }
  // Returns s^-beta and 1 / s. With beta 3/4, rsqrt errs by 2.1 units of 2^-24 and its root by 2. So s^-3/4 errs by 6.3
  // units and 1 / s by 5.3.
  __device__ __forceinline__ COMPUTE operator()(COMPUTE s, COMPUTE& inverted) const {
    if constexpr (THREE_QUARTERS) {
      const COMPUTE inverse_root = inverse_of_root(s);
      inverted = inverse_root * inverse_root;
      return inverse_root * root(inverse_root);
    } else {
      inverted = inverse(s);
      return (*this)(s);
    }
  }
  // Returns 1 / s, without the correct-rounding steps for 16-bit tensors.
  static __device__ __forceinline__ COMPUTE inverse(COMPUTE s) {
#ifndef EMULATED_CUDA
    if constexpr (sizeof(ELEMENT) == 2) return __fdividef(1.0f, s);
#endif
    return COMPUTE(1) / s;
  }

 private:
  // s is the sum of k, at least 1e-5, and a term that is 0 or above 1e-20. So the scaling of denormals that rsqrtf does
  // is unnecessary.
  static __device__ __forceinline__ float inverse_of_root(float s) {
#ifdef EMULATED_CUDA
    return rsqrtf(s);
#else
    float result;
    asm("rsqrt.approx.ftz.f32 %0, %1;" : "=f"(result) : "f"(s));
    return result;
#endif
  }
  // Returns the root of a result of inverse_of_root: 0, infinity, NaN or a normal number.
  static __device__ __forceinline__ float root(float x) {
#ifdef EMULATED_CUDA
    return sqrtf(x);
#else
    float result;
    asm("sqrt.approx.ftz.f32 %0, %1;" : "=f"(result) : "f"(x));
    return result;
#endif
  }
  static __device__ __forceinline__ double exponential(double x) { return exp2(x); }
  static __device__ __forceinline__ float exponential(float x) { return exp2f(x); }
  static __device__ __forceinline__ double logarithm(double x) { return log2(x); }
  // lg2.approx errs by 2^-22 around 1 and by 2 ulp elsewhere. That is below the error bound of the sum, which counts
  // one rounding more per term than this code does. It is also far below the rounding of 16-bit results. The
  // instructions of log2f would limit those kernels.
  static __device__ __forceinline__ float logarithm(float x) {
#ifdef EMULATED_CUDA
    return log2f(x);
#else
    return sizeof(ELEMENT) == 2 ? __log2f(x) : log2f(x);
#endif
  }
};

// Stores alpha * values + beta * prior.
template <int N>
__device__ __forceinline__ void write_packed(ELEMENT* to, const COMPUTE* values, COMPUTE alpha, COMPUTE beta) {
  COMPUTE blended[N];
#pragma unroll
  for (int v = 0; v < N; v++) blended[v] = alpha * values[v];
  if (beta != COMPUTE(0)) {
    COMPUTE prior[N];
    read_packed<N>(to, true, prior);
#pragma unroll
    for (int v = 0; v < N; v++) blended[v] += beta * prior[v];
  }
  put_packed<N>(to, blended);
}
