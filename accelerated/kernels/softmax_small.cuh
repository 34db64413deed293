// What a thread has of a line of a small tensor (softmax_small_lines.cu, softmax_small_columns.cu): packs a step apart, in registers.
// Elements lie anywhere (rows with gaps, any strides), as packs where all begin at multiples of PACK_BYTES.
#pragma once
#include "softmax.cuh"

// A kernel this short waits for its instructions and arguments, which come from far away a few at a time, as long as for its data. So all
// is done twice: first before the wait for earlier kernels, when nothing exists, so that no memory is touched; then everything is near.
template <class Work> __device__ __forceinline__ void rehearse(const Work& work) {
  unsigned real = 0;
#pragma unroll 1
  do {
#ifndef EMULATED_CUDA
    asm volatile("" : "+r"(real));  // one piece of code for both
#endif
    work(real != 0);
  } while (real++ == 0);
}

// N packs of a thread, of each input, one step apart, of which the first `count` exist, and the values in them.
template <class Rule, int N> struct Share {
  static constexpr int INPUTS = Rule::INPUTS;
  static constexpr bool NEUTRAL_ELEMENT = sizeof(ELEMENT) > 1;  // integers have none
  using Held = Elements<WIDTH>;
  const Arguments<INPUTS>& a;
  unsigned offset[INPUTS + 1], count;
  int step[INPUTS + 1];
  Held held[N][INPUTS];
  COMPUTE values[INPUTS][N * WIDTH];

  // All are on their way before the first is used.
  __device__ __forceinline__ void ask(unsigned existing) {
#pragma unroll
    for (int k = 0; k < N; k++)
#pragma unroll
      for (int n = 0; n < INPUTS; n++) {
        if constexpr (NEUTRAL_ELEMENT)
#pragma unroll
          for (int i = 0; i < WIDTH; i++) held[k][n].item[i] = store<ELEMENT>(Rule::neutral());
        if (k < existing) held[k][n] = *reinterpret_cast<const Held*>(a.input[n] + (offset[n] + k * step[n]));
      }
  }
  __device__ __forceinline__ void take(unsigned existing) {
#pragma unroll
    for (int k = 0; k < N; k++)
#pragma unroll
      for (int n = 0; n < INPUTS; n++) {
        unpack(&held[k][n], &values[n][k * WIDTH]);
        if constexpr (!NEUTRAL_ELEMENT)
          if (k >= existing) values[n][k] = Rule::neutral();
      }
  }
  __device__ __forceinline__ void write(const Rule& rule, const Statistic (&line)[1], unsigned existing) const {
    COMPUTE result[N * WIDTH];
    rule.template results<true>(line, values, result);
    auto place = [&](int k) { return reinterpret_cast<Held*>(a.output + (offset[INPUTS] + k * step[INPUTS])); };
    if (a.beta != COMPUTE(0))
#pragma unroll
      for (int k = 0; k < N; k++) {
        if (k >= existing) continue;
        COMPUTE prior[WIDTH];
        unpack(place(k), prior);
#pragma unroll
        for (int i = 0; i < WIDTH; i++) result[k * WIDTH + i] += a.beta * prior[i];
      }
#pragma unroll
    for (int k = 0; k < N; k++) {
      COMPUTE of_pack[WIDTH];
#pragma unroll
      for (int i = 0; i < WIDTH; i++) of_pack[i] = result[k * WIDTH + i];
      if (k < existing) pack(of_pack, place(k));
    }
  }
};

// The maximum of a warp, of which none is NaN: integers are compared in one instruction.
template <class Rule> __device__ __forceinline__ COMPUTE top_of_warp(const Rule& rule, COMPUTE top) {
  if (!rule.has_top()) return top;
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800
  if constexpr (sizeof(COMPUTE) == 4) {
    auto ordered = [](int bits) { return bits ^ (bits >> 31 & 0x7fffffff); };  // and back
    return __int_as_float(ordered(__reduce_max_sync(~0u, ordered(__float_as_int(top)))));
  }
#endif
  for (unsigned lanes = 1; lanes < 32; lanes *= 2) top = max(top, __shfl_xor_sync(~0u, top, lanes));
  return top;
}

// Of N parts at once: their exponentials do not wait for each other.
template <class Rule, int N> __device__ __forceinline__ COMPUTE sum_below(const Rule& rule, COMPUTE top, Statistic (&part)[N]) {
  COMPUTE sum = 0;
#pragma unroll
  for (int j = 0; j < N; j++) {
    if (rule.has_top()) rule.raise(part[j], top);
    sum += part[j].sum;
  }
  return sum;
}
template <class Rule, int N> __device__ __forceinline__ COMPUTE top_of(const Rule& rule, COMPUTE top, const Statistic (&part)[N]) {
  if (rule.has_top())
#pragma unroll
    for (int j = 0; j < N; j++) top = max(top, part[j].top);
  return top;
}
