// s^-beta of s = k + factor * sum: what LRN and divisive normalization divide by.
#pragma once
#include "primitives/packed.cuh"

#ifndef THREE_QUARTERS
#define THREE_QUARTERS 0  // 1: beta is 3/4, which most networks take, of floats
#endif

struct Power {
  COMPUTE factor, k, beta;
  COMPUTE sign;  // of powers of negative numbers: 1 or -1 where beta is an integer, else NaN

  __device__ __forceinline__ COMPUTE base(COMPUTE sum) const { return k + factor * sum; }
  __device__ __forceinline__ COMPUTE operator()(COMPUTE s) const {
    if constexpr (THREE_QUARTERS) {
      const COMPUTE inverse_root = inverse_of_root(s);  // NaN of negative numbers, as it must be
      return inverse_root * root(inverse_root);
    } else {
      const COMPUTE power = exponential(-beta * logarithm(s < COMPUTE(0) ? -s : s));
      return s < COMPUTE(0) ? sign * power : power;
    }
  }
  // s^-beta and 1 / s. With beta 3/4: rsqrt errs by 2.1 units of 2^-24, its root by 2, so that s^-3/4 errs by 6.3 and 1
  // / s by 5.3.
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
  // 1 / s; of 16-bit tensors without the steps that round it correctly.
  static __device__ __forceinline__ COMPUTE inverse(COMPUTE s) {
#ifndef EMULATED_CUDA
    if constexpr (sizeof(ELEMENT) == 2) return __fdividef(1.0f, s);
#endif
    return COMPUTE(1) / s;
  }

 private:
  // s is k, at least 1e-5, and a sum: 0, or above 1e-20, so that denormals need not be scaled as rsqrtf does.
  static __device__ __forceinline__ float inverse_of_root(float s) {
#ifdef EMULATED_CUDA
    return rsqrtf(s);
#else
    float result;
    asm("rsqrt.approx.ftz.f32 %0, %1;" : "=f"(result) : "f"(s));
    return result;
#endif
  }
  // The root of what inverse_of_root returns: 0, infinite, NaN or a normal number.
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
  // lg2.approx errs by 2^-22 around 1, by 2 ulp elsewhere: of the terms of the sum, each counted with one rounding more
  // than it has here, and far below the rounding of 16-bit results, whose kernels would be bound by the instructions of
  // log2f.
  static __device__ __forceinline__ float logarithm(float x) {
#ifdef EMULATED_CUDA
    return log2f(x);
#else
    return sizeof(ELEMENT) == 2 ? __log2f(x) : log2f(x);
#endif
  }
};

// alpha * values + beta * what is there.
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
