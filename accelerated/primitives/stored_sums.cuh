// Sums of values and of their squares that the blocks of a launch stored part by part, [part][sum, of squares][pitch].
#pragma once

// Adds every `step`-th of `count` parts from `first` on, IN_FLIGHT of which a thread reads at once.
template <int IN_FLIGHT, class T, class Pitch>
__device__ __forceinline__ void add_stored(const T* from, Pitch pitch, int first, int count, int step, T (&sum)[2]) {
#pragma unroll 1
  for (int begin = first; begin < count; begin += IN_FLIGHT * step) {
    T found[IN_FLIGHT][2];
#pragma unroll
    for (int i = 0; i < 2 * IN_FLIGHT; i++) {
      const int part = begin + i / 2 * step;
      found[i / 2][i % 2] = part < count ? from[(Pitch(2) * part + i % 2) * pitch] : T(0);
    }
#pragma unroll
    for (int i = 0; i < 2 * IN_FLIGHT; i++) sum[i % 2] += found[i / 2][i % 2];
  }
}
