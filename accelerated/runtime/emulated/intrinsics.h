// This header defines CUDA functions that the host lacks: atomics, loads and stores with cache hints, bit operations,
// conversions and mathematics.
#pragma once
#include <cmath>
#include <ctime>
#include <limits>
#include <math.h>
#include <type_traits>

#include "warp.h"

// --- atomics: blocks run one after another and threads switch only where they wait, so plain code is atomic ---

namespace emulated {
template <class T> using Same = std::type_identity_t<T>;  // It excludes a parameter from the deduction of T.
template <class T, class Update> EMULATED_INLINE T update(T* address, Update next) {
  races::atomic(address, sizeof(T));
  const races::Unseen unseen;
  T old = *address;
  *address = next(old);
  return old;
}
template <class T> constexpr bool is_word = std::is_integral_v<T> && (sizeof(T) == 4 || sizeof(T) == 8);
}  // namespace emulated

template <class T> EMULATED_INLINE T atomicAdd(T* address, emulated::Same<T> value) {
  static_assert(!std::is_same_v<T, long long> && !std::is_same_v<T, long>,
                "CUDA adds unsigned long long, not the signed type");
  return emulated::update(address, [&](T old) {
    if constexpr (std::is_same_v<T, int>) return int(unsigned(old) + unsigned(value));
    else return T(old + value);
  });
}
template <class T> EMULATED_INLINE T atomicSub(T* address, emulated::Same<T> value) {
  static_assert(std::is_integral_v<T> && sizeof(T) == 4);
  return emulated::update(address, [&](T old) { return T(unsigned(old) - unsigned(value)); });
}
#define EMULATED_ATOMIC(name, expression)                                          \
  template <class T> EMULATED_INLINE T name(T* address, emulated::Same<T> value) { \
    static_assert(emulated::is_word<T>);                                           \
    return emulated::update(address, [&](T old) -> T { return expression; });      \
  }
EMULATED_ATOMIC(atomicMax, old < value ? value : old)
EMULATED_ATOMIC(atomicMin, value < old ? value : old)
EMULATED_ATOMIC(atomicAnd, old& value)
EMULATED_ATOMIC(atomicOr, old | value)
EMULATED_ATOMIC(atomicXor, old ^ value)
#undef EMULATED_ATOMIC
template <class T> EMULATED_INLINE T atomicExch(T* address, emulated::Same<T> value) {
  static_assert(emulated::is_word<T> || std::is_same_v<T, float>);
  return emulated::update(address, [&](T) { return value; });
}
template <class T> EMULATED_INLINE T atomicCAS(T* address, emulated::Same<T> expected, emulated::Same<T> value) {
  static_assert(emulated::is_word<T> || std::is_same_v<T, unsigned short>);
  return emulated::update(address, [&](T old) { return old == expected ? value : old; });
}
EMULATED_LAZY unsigned atomicInc(unsigned* address, unsigned limit) {
  return emulated::update(address, [=](unsigned old) { return old >= limit ? 0 : old + 1; });
}
EMULATED_LAZY unsigned atomicDec(unsigned* address, unsigned limit) {
  return emulated::update(address, [=](unsigned old) { return old == 0 || old > limit ? limit : old - 1; });
}

// --- loads and stores with cache hints ---

template <class T> EMULATED_INLINE T __ldg(const T* address) { return *address; }
template <class T> EMULATED_INLINE T __ldca(const T* address) { return *address; }
template <class T> EMULATED_INLINE T __ldcg(const T* address) { return *address; }
template <class T> EMULATED_INLINE T __ldcs(const T* address) { return *address; }
template <class T> EMULATED_INLINE T __ldlu(const T* address) { return *address; }
template <class T> EMULATED_INLINE T __ldcv(const T* address) { return *address; }
template <class T> EMULATED_INLINE void __stwb(T* address, emulated::Same<T> value) { *address = value; }
template <class T> EMULATED_INLINE void __stcg(T* address, emulated::Same<T> value) { *address = value; }
template <class T> EMULATED_INLINE void __stcs(T* address, emulated::Same<T> value) { *address = value; }
template <class T> EMULATED_INLINE void __stwt(T* address, emulated::Same<T> value) { *address = value; }

// --- bits ---

EMULATED_INLINE int __popc(unsigned x) { return __builtin_popcount(x); }
EMULATED_INLINE int __popcll(unsigned long long x) { return __builtin_popcountll(x); }
EMULATED_INLINE int __clz(int x) { return x ? __builtin_clz(x) : 32; }
EMULATED_INLINE int __clzll(long long x) { return x ? __builtin_clzll(x) : 64; }
EMULATED_INLINE int __ffs(int x) { return __builtin_ffs(x); }
EMULATED_INLINE int __ffsll(long long x) { return __builtin_ffsll(x); }
EMULATED_INLINE unsigned __brev(unsigned x) {
  x = (x >> 1 & 0x55555555u) | (x & 0x55555555u) << 1;
  x = (x >> 2 & 0x33333333u) | (x & 0x33333333u) << 2;
  x = (x >> 4 & 0x0f0f0f0fu) | (x & 0x0f0f0f0fu) << 4;
  return __builtin_bswap32(x);
}
EMULATED_INLINE unsigned __byte_perm(unsigned x, unsigned y, unsigned selector) {
  const uint64_t bytes = uint64_t(y) << 32 | x;
  unsigned result = 0;
  for (int i = 0; i < 4; i++) {
    const unsigned choice = selector >> 4 * i & 0xf;
    unsigned byte = bytes >> 8 * (choice & 7) & 0xff;
    if (choice & 8) byte = byte & 0x80 ? 0xff : 0;
    result |= byte << 8 * i;
  }
  return result;
}
EMULATED_INLINE unsigned __funnelshift_l(unsigned low, unsigned high, unsigned count) {
  return (uint64_t(high) << 32 | low) << (count & 31) >> 32;
}
EMULATED_INLINE unsigned __funnelshift_r(unsigned low, unsigned high, unsigned count) {
  return (uint64_t(high) << 32 | low) >> (count & 31);
}
EMULATED_INLINE int __mulhi(int a, int b) { return int64_t(a) * b >> 32; }
EMULATED_INLINE unsigned __umulhi(unsigned a, unsigned b) { return uint64_t(a) * b >> 32; }
EMULATED_INLINE long long __mul64hi(long long a, long long b) { return (__int128)a * b >> 64; }
EMULATED_INLINE unsigned long long __umul64hi(unsigned long long a, unsigned long long b) {
  return (unsigned __int128)a * b >> 64;
}
EMULATED_INLINE int __dp4a(int a, int b, int sum) {
  for (int i = 0; i < 4; i++) sum += int8_t(a >> 8 * i) * int8_t(b >> 8 * i);
  return sum;
}
EMULATED_INLINE unsigned __dp4a(unsigned a, unsigned b, unsigned sum) {
  for (int i = 0; i < 4; i++) sum += (a >> 8 * i & 0xff) * (b >> 8 * i & 0xff);
  return sum;
}

EMULATED_INLINE int __float_as_int(float x) { return __builtin_bit_cast(int, x); }
EMULATED_INLINE unsigned __float_as_uint(float x) { return __builtin_bit_cast(unsigned, x); }
EMULATED_INLINE float __int_as_float(int x) { return __builtin_bit_cast(float, x); }
EMULATED_INLINE float __uint_as_float(unsigned x) { return __builtin_bit_cast(float, x); }
EMULATED_INLINE long long __double_as_longlong(double x) { return __builtin_bit_cast(long long, x); }
EMULATED_INLINE double __longlong_as_double(long long x) { return __builtin_bit_cast(double, x); }
EMULATED_INLINE int __double2hiint(double x) { return __builtin_bit_cast(long long, x) >> 32; }
EMULATED_INLINE int __double2loint(double x) { return int(__builtin_bit_cast(long long, x)); }
EMULATED_INLINE double __hiloint2double(int high, int low) {
  return __builtin_bit_cast(double, uint64_t(unsigned(high)) << 32 | unsigned(low));
}

// --- conversions to integers saturate, and convert NaN as the PTX instruction cvt does ---

namespace emulated {
template <class Integer, class Real> EMULATED_INLINE Integer saturate(Real rounded) {
  using Limits = std::numeric_limits<Integer>;
  constexpr Real beyond = Real(Limits::max() / 2 + 1) * 2;
  if (rounded != rounded)
    return sizeof(Real) == 4 && sizeof(Integer) == 4 ? Integer(0) : Integer(Integer(1) << (8 * sizeof(Integer) - 1));
  if (rounded >= beyond) return Limits::max();
  if (rounded <= Real(Limits::min())) return Limits::min();
  return Integer(rounded);
}
}  // namespace emulated
#define EMULATED_TO_INTEGER(Real, name, Integer)                                                         \
  EMULATED_LAZY Integer __##name##_rn(Real x) { return emulated::saturate<Integer>(std::nearbyint(x)); } \
  EMULATED_LAZY Integer __##name##_rz(Real x) { return emulated::saturate<Integer>(std::trunc(x)); }     \
  EMULATED_LAZY Integer __##name##_ru(Real x) { return emulated::saturate<Integer>(std::ceil(x)); }      \
  EMULATED_LAZY Integer __##name##_rd(Real x) { return emulated::saturate<Integer>(std::floor(x)); }
EMULATED_TO_INTEGER(float, float2int, int)
EMULATED_TO_INTEGER(float, float2uint, unsigned)
EMULATED_TO_INTEGER(float, float2ll, long long)
EMULATED_TO_INTEGER(float, float2ull, unsigned long long)
EMULATED_TO_INTEGER(double, double2int, int)
EMULATED_TO_INTEGER(double, double2uint, unsigned)
EMULATED_TO_INTEGER(double, double2ll, long long)
EMULATED_TO_INTEGER(double, double2ull, unsigned long long)
#undef EMULATED_TO_INTEGER
// The CUDA headers define the half-precision conversions that round towards zero for the host, too.
#define EMULATED_HALF_TO_INTEGER(Real, to_float, name, through, Integer)                \
  EMULATED_LAZY Integer __##name##_rn(Real x) { return __##through##_rn(to_float(x)); } \
  EMULATED_LAZY Integer __##name##_ru(Real x) { return __##through##_ru(to_float(x)); } \
  EMULATED_LAZY Integer __##name##_rd(Real x) { return __##through##_rd(to_float(x)); }
EMULATED_HALF_TO_INTEGER(__half, __half2float, half2int, float2int, int)
EMULATED_HALF_TO_INTEGER(__half, __half2float, half2uint, float2uint, unsigned)
EMULATED_HALF_TO_INTEGER(__half, __half2float, half2ll, float2ll, long long)
EMULATED_HALF_TO_INTEGER(__nv_bfloat16, __bfloat162float, bfloat162int, float2int, int)
EMULATED_HALF_TO_INTEGER(__nv_bfloat16, __bfloat162float, bfloat162uint, float2uint, unsigned)
EMULATED_HALF_TO_INTEGER(__nv_bfloat16, __bfloat162float, bfloat162ll, float2ll, long long)
#undef EMULATED_HALF_TO_INTEGER
EMULATED_INLINE float __int2float_rn(int x) { return float(x); }
EMULATED_INLINE float __uint2float_rn(unsigned x) { return float(x); }
EMULATED_INLINE float __ll2float_rn(long long x) { return float(x); }
EMULATED_INLINE float __ull2float_rn(unsigned long long x) { return float(x); }
EMULATED_INLINE double __int2double_rn(int x) { return x; }
EMULATED_INLINE double __uint2double_rn(unsigned x) { return x; }
EMULATED_INLINE double __ll2double_rn(long long x) { return double(x); }
EMULATED_INLINE double __ull2double_rn(unsigned long long x) { return double(x); }
EMULATED_INLINE float __double2float_rn(double x) { return float(x); }

// --- arithmetic that the compiler must not fuse ---

namespace emulated {
EMULATED_INLINE float apart(float x) {
  asm("" : "+x"(x));
  return x;
}
EMULATED_INLINE double apart(double x) {
  asm("" : "+x"(x));
  return x;
}
}  // namespace emulated
EMULATED_INLINE float __fadd_rn(float a, float b) { return emulated::apart(emulated::apart(a) + emulated::apart(b)); }
EMULATED_INLINE float __fsub_rn(float a, float b) { return emulated::apart(emulated::apart(a) - emulated::apart(b)); }
EMULATED_INLINE float __fmul_rn(float a, float b) { return emulated::apart(a * b); }
EMULATED_INLINE float __fdiv_rn(float a, float b) { return a / b; }
EMULATED_INLINE float __frcp_rn(float a) { return 1.0f / a; }
EMULATED_INLINE float __fsqrt_rn(float a) { return std::sqrt(a); }
EMULATED_INLINE float __frsqrt_rn(float a) { return float(1.0 / std::sqrt(double(a))); }
EMULATED_INLINE float __fmaf_rn(float a, float b, float c) { return std::fma(a, b, c); }
EMULATED_INLINE double __dadd_rn(double a, double b) {
  return emulated::apart(emulated::apart(a) + emulated::apart(b));
}
EMULATED_INLINE double __dsub_rn(double a, double b) {
  return emulated::apart(emulated::apart(a) - emulated::apart(b));
}
EMULATED_INLINE double __dmul_rn(double a, double b) { return emulated::apart(a * b); }
EMULATED_INLINE double __ddiv_rn(double a, double b) { return a / b; }
EMULATED_INLINE double __drcp_rn(double a) { return 1.0 / a; }
EMULATED_INLINE double __dsqrt_rn(double a) { return std::sqrt(a); }
EMULATED_INLINE double __fma_rn(double a, double b, double c) { return std::fma(a, b, c); }

// --- mathematics ---

EMULATED_INLINE float __expf(float x) { return std::exp(x); }
EMULATED_INLINE float __exp10f(float x) { return ::exp10f(x); }
EMULATED_INLINE float __logf(float x) { return std::log(x); }
EMULATED_INLINE float __log2f(float x) { return std::log2(x); }
EMULATED_INLINE float __log10f(float x) { return std::log10(x); }
EMULATED_INLINE float __powf(float x, float y) { return std::pow(x, y); }
EMULATED_INLINE float __sinf(float x) { return std::sin(x); }
EMULATED_INLINE float __cosf(float x) { return std::cos(x); }
EMULATED_INLINE float __tanf(float x) { return std::tan(x); }
EMULATED_INLINE float __tanhf(float x) { return std::tanh(x); }
EMULATED_INLINE float __fdividef(float a, float b) { return a / b; }
EMULATED_INLINE float __saturatef(float x) { return x > 0 ? (x < 1 ? x : 1.0f) : 0.0f; }

// Newer C libraries declare functions of these names, so macros replace the calls below.
namespace emulated {
EMULATED_INLINE float reciprocal_root(float x) { return float(1.0 / std::sqrt(double(x))); }
EMULATED_INLINE double reciprocal_root(double x) { return 1.0 / std::sqrt(x); }
template <class Real> EMULATED_INLINE Real sine_of_pi_times(Real x) {
  const Real period = std::remainder(x, Real(2)), half = std::fabs(period);  // Both are exact.
  const Real folded = half > Real(0.5) ? 1 - half : half;
  return std::copysign(Real(std::sin(3.14159265358979323846 * folded)), x == std::trunc(x) ? x : period);
}
template <class Real> EMULATED_INLINE Real cosine_of_pi_times(Real x) {
  return Real(std::sin(3.14159265358979323846 * (0.5 - std::fabs(std::remainder(x, Real(2))))));
}
}  // namespace emulated
#define rsqrtf(x) emulated::reciprocal_root(float(x))
#define rsqrt(x) emulated::reciprocal_root(x)
#define sinpif(x) emulated::sine_of_pi_times(float(x))
#define sinpi(x) emulated::sine_of_pi_times(double(x))
#define cospif(x) emulated::cosine_of_pi_times(float(x))
#define cospi(x) emulated::cosine_of_pi_times(double(x))
#define normcdff(x) float(0.5 * std::erfc(-double(x) * 0.70710678118654752440))
#define normcdf(x) (0.5 * std::erfc(-double(x) * 0.70710678118654752440))

// If one operand is NaN, CUDA's floating-point min and max return the other one.
template <class A, class B> EMULATED_INLINE auto min(A a, B b) -> std::common_type_t<A, B> {
  using T = std::common_type_t<A, B>;
  if constexpr (std::is_floating_point_v<T>) return std::fmin(T(a), T(b));
  else return T(b) < T(a) ? T(b) : T(a);
}
template <class A, class B> EMULATED_INLINE auto max(A a, B b) -> std::common_type_t<A, B> {
  using T = std::common_type_t<A, B>;
  if constexpr (std::is_floating_point_v<T>) return std::fmax(T(a), T(b));
  else return T(a) < T(b) ? T(b) : T(a);
}
EMULATED_LAZY unsigned __vmaxu2(unsigned a, unsigned b) {
  return max(a >> 16, b >> 16) << 16 | max(a & 0xffff, b & 0xffff);
}

// The CUDA headers define these for the device only. They compute in float (__hfma in double) and round once.
#define EMULATED_HALF_FUNCTION(name, expression)            \
  EMULATED_INLINE __half name(__half value) {               \
    const float x = __half2float(value);                    \
    return __float2half_rn(expression);                     \
  }                                                         \
  EMULATED_INLINE __nv_bfloat16 name(__nv_bfloat16 value) { \
    const float x = __bfloat162float(value);                \
    return __float2bfloat16_rn(expression);                 \
  }
EMULATED_HALF_FUNCTION(hexp, std::exp(x))
EMULATED_HALF_FUNCTION(hexp2, std::exp2(x))
EMULATED_HALF_FUNCTION(hexp10, ::exp10f(x))
EMULATED_HALF_FUNCTION(hlog, std::log(x))
EMULATED_HALF_FUNCTION(hlog2, std::log2(x))
EMULATED_HALF_FUNCTION(hlog10, std::log10(x))
EMULATED_HALF_FUNCTION(hsin, std::sin(x))
EMULATED_HALF_FUNCTION(hcos, std::cos(x))
EMULATED_HALF_FUNCTION(htanh, std::tanh(x))
EMULATED_HALF_FUNCTION(hsqrt, std::sqrt(x))
EMULATED_HALF_FUNCTION(hrsqrt, rsqrtf(x))
EMULATED_HALF_FUNCTION(hrcp, 1.0f / x)
EMULATED_HALF_FUNCTION(hceil, std::ceil(x))
EMULATED_HALF_FUNCTION(hfloor, std::floor(x))
EMULATED_HALF_FUNCTION(hrint, std::nearbyint(x))
EMULATED_HALF_FUNCTION(htrunc, std::trunc(x))
#undef EMULATED_HALF_FUNCTION
EMULATED_INLINE __half __hfma(__half a, __half b, __half c) {
  return __double2half(double(__half2float(a)) * double(__half2float(b)) + double(__half2float(c)));
}
EMULATED_INLINE __nv_bfloat16 __hfma(__nv_bfloat16 a, __nv_bfloat16 b, __nv_bfloat16 c) {
  return __double2bfloat16(double(__bfloat162float(a)) * double(__bfloat162float(b)) + double(__bfloat162float(c)));
}
EMULATED_INLINE __half2 __hfma2(__half2 a, __half2 b, __half2 c) {
  return __halves2half2(__hfma(a.x, b.x, c.x), __hfma(a.y, b.y, c.y));
}
EMULATED_INLINE __nv_bfloat162 __hfma2(__nv_bfloat162 a, __nv_bfloat162 b, __nv_bfloat162 c) {
  return __halves2bfloat162(__hfma(a.x, b.x, c.x), __hfma(a.y, b.y, c.y));
}

// --- traps and time ---

[[noreturn]] inline void __trap() { emulated::fail("__trap() was called"); }
inline long long clock64() { return clock(); }
EMULATED_INLINE void __nanosleep(unsigned) {}
