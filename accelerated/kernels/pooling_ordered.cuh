// Halves as integers whose order is that of maxima: for kernels that keep a value and its place in one number.
#pragma once
#include "pooling_known.cuh"

// Signed numbers for the halves of a word: of two inputs the lesser one is the maximum. Last comes what is outside, and NaN that is passed over.
constexpr unsigned LAST = 0x7fff, BOTH_LAST = LAST * 0x10001u;
template <bool PROPAGATES> __device__ __forceinline__ unsigned ordered(unsigned bits) {
  half2 pair, zeros = __float2half2_rn(0.0f);
  memcpy(&pair, &bits, sizeof bits);
  pair = PROPAGATES ? __hadd2(pair, zeros) : __hsub2(zeros, pair);  // there is one zero, and one NaN, 0x7fff
  memcpy(&bits, &pair, sizeof bits);
#ifdef EMULATED_CUDA
  unsigned negative = (bits >> 15 & 0x10001u) * 0xffffu;
#else
  unsigned negative;
  asm("prmt.b32 %0, %1, 0, 0xbb99;" : "=r"(negative) : "r"(bits));
#endif
  bits ^= negative & 0x7fff7fffu;
  return PROPAGATES ? ~bits : bits;
}
