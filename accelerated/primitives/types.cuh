// This header converts between the kernels' stored elements and their arithmetic type.
#pragma once
#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <cstdint>

#include "primitives/dependent_launch.cuh"

#ifndef EMULATED_CUDA
extern __shared__ __align__(16) unsigned char shared_memory[];  // dynamic shared memory has one name
#endif

using half = __half;
using bfloat16 = __nv_bfloat16;
using int8 = signed char;
using uint8 = unsigned char;
using int32 = int;

template <class T, class U> constexpr bool same_type = false;
template <class T> constexpr bool same_type<T, T> = true;

// Converts a stored element to the arithmetic type.
template <class C, class T> __device__ __forceinline__ C load(T value) { return static_cast<C>(value); }
template <> __device__ __forceinline__ float load<float, half>(half value) { return __half2float(value); }
template <> __device__ __forceinline__ double load<double, half>(half value) { return __half2float(value); }
template <> __device__ __forceinline__ float load<float, bfloat16>(bfloat16 value) { return __bfloat162float(value); }
template <> __device__ __forceinline__ double load<double, bfloat16>(bfloat16 value) { return __bfloat162float(value); }

// Converts to a stored element, rounding to nearest even. Integers saturate and map NaN to 0.
template <class T> struct Store {
  static __device__ __forceinline__ T from(float value) { return static_cast<T>(value); }
  static __device__ __forceinline__ T from(double value) { return static_cast<T>(value); }
};
template <> struct Store<half> {
  static __device__ __forceinline__ half from(float value) { return __float2half_rn(value); }
  static __device__ __forceinline__ half from(double value) { return __double2half(value); }
};
template <> struct Store<bfloat16> {
  static __device__ __forceinline__ bfloat16 from(float value) { return __float2bfloat16_rn(value); }
  static __device__ __forceinline__ bfloat16 from(double value) { return __double2bfloat16(value); }
};
template <class T> struct StoreInteger {
  template <class C> static __device__ __forceinline__ T clamped(C value, C lowest, C highest) {
    if (!(value == value)) return 0;
    C nearest = rint(value);
    return static_cast<T>(nearest < lowest ? lowest : nearest > highest ? highest : nearest);
  }
};
template <> struct Store<int8> : StoreInteger<int8> {
  static __device__ __forceinline__ int8 from(float value) {
    // A float of this size has a last place of 1, so the sum's low bits hold the nearest integer, ties to even.
    int nearest = __float_as_int(fminf(fmaxf(value, -128.0f), 127.0f) + 12582912.0f);
    return value == value ? static_cast<int8>(nearest) : 0;
  }
  template <class C> static __device__ __forceinline__ int8 from(C value) { return clamped<C>(value, -128, 127); }
};
template <> struct Store<uint8> : StoreInteger<uint8> {
  template <class C> static __device__ __forceinline__ uint8 from(C value) { return clamped<C>(value, 0, 255); }
};
template <> struct Store<int32> : StoreInteger<int32> {
  static __device__ __forceinline__ int32 from(float value) { return from(static_cast<double>(value)); }
  static __device__ __forceinline__ int32 from(double value) {
    return clamped<double>(value, -2147483648.0, 2147483647.0);
  }
};
template <class T, class C> __device__ __forceinline__ T store(C value) { return Store<T>::from(value); }

// Returns alpha * value + beta * prior. beta == 0 does not read the prior value.
template <class C, class T> __device__ __forceinline__ T blend(C alpha, C value, C beta, const T* prior) {
  C result = alpha * value;
  if (beta != C(0)) result += beta * load<C>(*prior);
  return store<T>(result);
}

// A Vector holds N neighbouring elements that move in one access of up to 16 bytes.
template <class T, int N> struct alignas(sizeof(T) * N > 16 ? 16 : sizeof(T) * N) Vector {
  T item[N];
};

// A PairOf holds two neighbouring 16-bit elements in one word, which convert to and from one register. They move as
// words, because the compiler copies structures of them one by one.
template <class T> struct PairOf {
  using type = half2;
};
template <> struct PairOf<bfloat16> {
  using type = __nv_bfloat162;
};
template <class T = half> __device__ __forceinline__ typename PairOf<T>::type pair_of(unsigned word) {
  return *reinterpret_cast<const typename PairOf<T>::type*>(&word);
}
template <class Two> __device__ __forceinline__ unsigned bits_of(const Two& pair) {
  return *reinterpret_cast<const unsigned*>(&pair);
}
template <class T> __device__ __forceinline__ float2 load_pair(unsigned word) {
  if constexpr (same_type<T, half>) return __half22float2(pair_of<T>(word));
  else return __bfloat1622float2(pair_of<T>(word));
}
template <class T> __device__ __forceinline__ unsigned store_pair(float first, float second) {
  if constexpr (same_type<T, half>) return bits_of(__floats2half2_rn(first, second));
  else return bits_of(__floats2bfloat162_rn(first, second));
}
template <class T> __device__ __forceinline__ unsigned max_pair(unsigned first, unsigned second) {
  return bits_of(__hmax2(pair_of<T>(first), pair_of<T>(second)));
}

// Returns 2 to the power x within 2 ulp, or 0 below the least normal number.
__device__ __forceinline__ float power_of_two(float x) {
#ifdef EMULATED_CUDA
  const float power = exp2f(x);
  return power < 0x1p-126f ? 0.0f : power;
#else
  float result;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(result) : "f"(x));
  return result;
#endif
}

// Keeps a value in its register where the compiler would recompute it. Before the wait for earlier kernels, it forces
// the computation there.
template <class T> __device__ __forceinline__ void keep_in_register(T& value) {
#ifndef EMULATED_CUDA
  if constexpr (sizeof(T) == 8) asm volatile("" : "+l"(value));
  else if constexpr (sizeof(T) == 4) asm volatile("" : "+r"(value));
  else if constexpr (sizeof(T) == 2) asm volatile("" : "+h"(value));
#endif
}
__device__ __forceinline__ void keep_in_register(float& value) {
#ifndef EMULATED_CUDA
  asm volatile("" : "+f"(value));
#endif
}
__device__ __forceinline__ void keep_in_register(double& value) {
#ifndef EMULATED_CUDA
  asm volatile("" : "+d"(value));
#endif
}
// Does the same for a pointer into shared memory, which the compiler still recognizes as one.
template <class T> __device__ __forceinline__ void keep_shared_pointer(T*& pointer) {
  keep_in_register(pointer);
#ifndef EMULATED_CUDA
  __builtin_assume(__isShared(pointer));
#endif
}
