// This header defines the online softmax of the forward tensor-core kernels. It takes KEYS scores of each query at a
// time, and keeps their statistics.
#pragma once
#include "attention/tiles.cuh"

// Holds the online-softmax state of two rows: rows lane / 4 and lane / 4 + 8 of a warp.
struct Softmax {
  float maximum[2], total[2];

  // Replaces scores by weights. `rescale` is the factor of the sums so far. `total` is the sum of this thread's
  // columns.
  template <bool MASKED>
  __device__ __forceinline__ void add(float (&scores)[KEYS / 2], float (&rescale)[2], float factor,
                                      const Window (&window)[2], int key) {
#pragma unroll
    for (int part = 0; part < 2; part++) {
      float highest = maximum[part];
#pragma unroll
      for (int n = 0; n < KEYS / 8; n++)
#pragma unroll
        for (int i = 0; i < 2; i++) {
          float& score = scores[4 * n + 2 * part + i];
          if (MASKED && !window[part].has(key + 8 * n + threadIdx.x % 4 * 2 + i)) score = -INFINITY;
          highest = max(highest, score);
        }
      highest = max(highest, __shfl_xor_sync(~0u, highest, 1));
      highest = max(highest, __shfl_xor_sync(~0u, highest, 2));
      const float shift = highest == -INFINITY ? 0.0f : highest * factor;
      rescale[part] = maximum[part] == -INFINITY ? 0.0f : power_of_two(maximum[part] * factor - shift);
      maximum[part] = highest;
      float sum = 0;
#pragma unroll
      for (int n = 0; n < KEYS / 8; n++)
#pragma unroll
        for (int i = 0; i < 2; i++) {
          float& score = scores[4 * n + 2 * part + i];
          const float weight = power_of_two(score * factor - shift);
          // Outside the window the weight is set, because minus infinity times a scaler of zero is NaN.
          score = MASKED && !window[part].has(key + 8 * n + threadIdx.x % 4 * 2 + i) ? 0.0f : weight;
          sum += score;
        }
      total[part] = total[part] * rescale[part] + sum;
    }
  }
};

// Ends the sums of a warpgroup's rows as weighted means, or zeros for queries without keys. Maxima and inverse sums
// go to `statistics` unless it is null. vector_of(row) locates a row of the block, by heads.
template <class VectorOf>
__device__ __forceinline__ void finish_sums(float (&sums)[SIZE / 2], const Softmax& softmax, const Window (&window)[2],
                                            float scaler, float* statistics, int warp_row, int rows,
                                            VectorOf vector_of) {
  const int lane = threadIdx.x % 32;
#pragma unroll
  for (int part = 0; part < 2; part++) {
    float total = softmax.total[part];
    total += __shfl_xor_sync(~0u, total, 1);
    total += __shfl_xor_sync(~0u, total, 2);
    const bool has_keys = window[part].low < window[part].high;
    const float inverse = !has_keys ? 0.0f : total == 0 ? NAN : 1 / total;  // NaN where each score is minus infinity
#pragma unroll
    for (int n = 0; n < SIZE / 8; n++)
#pragma unroll
      for (int i = 0; i < 2; i++) {
        float& sum = sums[4 * n + 2 * part + i];
        sum = has_keys ? sum * inverse : 0.0f;
      }
    const int row = warp_row + lane / 4 + 8 * part;
    if (statistics != nullptr && lane % 4 == 0 && row < rows) {
      float* const kept = statistics + 2 * vector_of(row);
      kept[0] = softmax.maximum[part] == -INFINITY ? 0.0f : softmax.maximum[part] * scaler;
      kept[1] = inverse;
    }
  }
}
