// What a thread has of a line or of neighbouring lines of a small tensor (softmax_small_lines.cu, softmax_small_columns.cu): packs anywhere, a
// step apart, in registers. Elements lie anywhere (rows with gaps, any strides), as packs where all begin at multiples of PACK_BYTES.
#pragma once
#include "softmax.cuh"

// N packs of a thread, of each input, one step apart, of which the first `count` exist, and the values in them.
template <class Rule, int N> struct Share {
  static constexpr int INPUTS = Rule::INPUTS;
  using Held = Elements<WIDTH>;
  const Arguments<INPUTS>& a;
  unsigned offset[INPUTS + 1], count;
  int step[INPUTS + 1];
  COMPUTE values[INPUTS][N * WIDTH];

  __device__ __forceinline__ void wait() const { wait_to_touch(a.input[0] + offset[0], a.output + offset[INPUTS]); }
  // All are on their way before the first is used.
  __device__ __forceinline__ void read() {
    Held held[N][INPUTS];
#pragma unroll
    for (int k = 0; k < N; k++)
#pragma unroll
      for (int n = 0; n < INPUTS; n++)
        if (k < count) held[k][n] = *reinterpret_cast<const Held*>(a.input[n] + (offset[n] + k * step[n]));
    let_next_kernel_begin();
#pragma unroll
    for (int k = 0; k < N; k++)
#pragma unroll
      for (int n = 0; n < INPUTS; n++) {
        unpack(&held[k][n], &values[n][k * WIDTH]);
#pragma unroll
        for (int i = 0; i < WIDTH; i++)
          if (k >= count) values[n][k * WIDTH + i] = Rule::neutral();
      }
  }
  // The results of finished statistics; number j belongs to line j modulo LANES.
  template <int LANES> __device__ __forceinline__ void write(const Rule& rule, const Statistic (&line)[LANES]) const {
    COMPUTE result[N * WIDTH];
    rule.template results<true>(line, values, result);
#pragma unroll
    for (int k = 0; k < N; k++) {
      if (k >= count) continue;
      Held* const target = reinterpret_cast<Held*>(a.output + (offset[INPUTS] + k * step[INPUTS]));
      COMPUTE of_pack[WIDTH];
#pragma unroll
      for (int i = 0; i < WIDTH; i++) of_pack[i] = result[k * WIDTH + i];
      if (a.beta != COMPUTE(0)) {
        COMPUTE prior[WIDTH];
        unpack(target, prior);
#pragma unroll
        for (int i = 0; i < WIDTH; i++) of_pack[i] += a.beta * prior[i];
      }
      pack(of_pack, target);
    }
  }
};

// Merges parts at once: their exponentials do not wait for each other, and lines wait for this.
template <class Rule, int N> __device__ __forceinline__ void merge(const Rule& rule, Statistic& total, Statistic (&part)[N]) {
  if (rule.has_top()) {
    COMPUTE top = total.top;
#pragma unroll
    for (int j = 0; j < N; j++) top = max(top, part[j].top);
    rule.raise(total, top);
#pragma unroll
    for (int j = 0; j < N; j++) rule.raise(part[j], top);
  }
#pragma unroll
  for (int j = 0; j < N; j++) total.sum += part[j].sum;
}
