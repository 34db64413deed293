// These types define the reduction of a window: maximum without NaN, maximum with NaN, or sum. A kernel is compiled for
// each.
#pragma once
#include <type_traits>

#include "primitives/types.cuh"

enum Mode { MAX = 0, AVERAGE_INCLUDE = 1, AVERAGE_EXCLUDE = 2, MAX_DETERMINISTIC = 3 };  // cudnnPoolingMode_t

// Returns the lowest finite value, which is the maximum of a window without a value.
template <class T> __device__ __forceinline__ COMPUTE lowest();
template <> __device__ __forceinline__ COMPUTE lowest<float>() { return COMPUTE(-3.40282346638528859812e+38); }
template <> __device__ __forceinline__ COMPUTE lowest<double>() { return COMPUTE(-1.79769313486231570815e+308); }
template <> __device__ __forceinline__ COMPUTE lowest<half>() { return COMPUTE(-65504); }
template <> __device__ __forceinline__ COMPUTE lowest<bfloat16>() { return COMPUTE(-3.38953138925153547590e+38); }
template <> __device__ __forceinline__ COMPUTE lowest<int8>() { return COMPUTE(-128); }

template <class T> __device__ __forceinline__ T element(COMPUTE value) { return store<T>(value); }
// int8 has neither NaN nor -infinity, with which element() is called; its lowest value replaces them.
template <> __device__ __forceinline__ int8 element<int8>(COMPUTE) { return -128; }

// Partial results have the arithmetic type, except for maxima of half: one instruction then handles two of them,
// without a conversion.
constexpr bool PAIRS = std::is_same<ELEMENT, half>::value;
using Number = std::conditional<PAIRS, half, COMPUTE>::type;

// Ignores NaN; the partial result is NaN until there is a number.
struct Numbers {
  static constexpr bool AVERAGE = false, PROPAGATES = false, IN_PAIRS = PAIRS;
  using Held = Number;
  static __device__ __forceinline__ ELEMENT nothing() { return element<ELEMENT>(COMPUTE(NAN)); }
  static __device__ __forceinline__ half2 both(half2 a, half2 b) { return __hmax2(a, b); }
  static __device__ __forceinline__ half both(half a, half b) { return __hmax(a, b); }
  static __device__ __forceinline__ COMPUTE both(COMPUTE a, COMPUTE b) { return fmax(a, b); }
  static __device__ __forceinline__ COMPUTE result(COMPUTE value) { return value == value ? value : lowest<ELEMENT>(); }
};
// Propagates NaN.
struct NumbersAndNan {
  static constexpr bool AVERAGE = false, PROPAGATES = true, IN_PAIRS = PAIRS;
  using Held = Number;
  static __device__ __forceinline__ ELEMENT nothing() { return element<ELEMENT>(COMPUTE(-INFINITY)); }
  static __device__ __forceinline__ half2 both(half2 a, half2 b) { return __hmax2_nan(a, b); }
  static __device__ __forceinline__ half both(half a, half b) { return __hmax_nan(a, b); }
  static __device__ __forceinline__ COMPUTE both(COMPUTE a, COMPUTE b) { return a > b || a != a ? a : b; }
  static __device__ __forceinline__ COMPUTE result(COMPUTE value) { return value; }
};
struct Sum {
  static constexpr bool AVERAGE = true, PROPAGATES = false, IN_PAIRS = false;
  using Held = COMPUTE;
  static __device__ __forceinline__ ELEMENT nothing() { return ELEMENT(0); }
  static __device__ __forceinline__ COMPUTE both(COMPUTE a, COMPUTE b) { return a + b; }
  static __device__ __forceinline__ COMPUTE result(COMPUTE value) { return value; }
};

// Calls call(pool) with an object of the type that implements the mode.
template <class Call> __device__ __forceinline__ void with_pool(int mode, int propagate, Call call) {
  if (mode == AVERAGE_INCLUDE || mode == AVERAGE_EXCLUDE) return call(Sum());
  propagate ? call(NumbersAndNan()) : call(Numbers());
}
