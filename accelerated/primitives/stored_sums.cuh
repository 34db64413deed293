// This header adds sums of values and of squares that blocks stored as [part][sum, squares][pitch].
#pragma once

// Adds every `step`-th of `count` parts from `first` on, with IN_FLIGHT reads per thread in flight.
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
