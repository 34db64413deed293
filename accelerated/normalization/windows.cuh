// This header sums neighbouring windows of values in registers.
#pragma once
#include "normalization/power.cuh"

struct Square {
  static __device__ __forceinline__ COMPUTE add(COMPUTE sum, COMPUTE value) { return sum + value * value; }
};
struct Itself {
  static __device__ __forceinline__ COMPUTE add(COMPUTE sum, COMPUTE value) { return sum + value; }
};

// Sets sum[u] to the sum of the WINDOW values from at(u) on. The windows of a group share the sum of their common
// terms. Nothing is subtracted, because small terms would be lost next to a large one. No term is rounded more often
// than in separate sums.
template <class Term, int COUNT, class At> __device__ __forceinline__ void window_sums(At at, COMPUTE (&sum)[COUNT]) {
  constexpr int MAX_GROUP = COUNT < 8 ? 4 : 8, GROUP = WINDOW >= MAX_GROUP ? MAX_GROUP
                                                       : WINDOW >= 4       ? 4
                                                       : WINDOW >= 2       ? 2
                                                                           : 1;
#pragma unroll
  for (int g = 0; g < COUNT; g += GROUP) {
    COMPUTE common = 0, before = 0, behind = 0;
#pragma unroll
    for (int i = GROUP - 1; i < WINDOW; i++) common = Term::add(common, at(g + i));
#pragma unroll
    for (int u = GROUP - 1; u >= 0; u--) {
      if (u < GROUP - 1) before = Term::add(before, at(g + u));
      if (g + u < COUNT) sum[g + u] = common + before;
    }
#pragma unroll
    for (int u = 1; u < GROUP; u++)
      if (g + u < COUNT) {
        behind = Term::add(behind, at(g + WINDOW + u - 1));
        sum[g + u] += behind;
      }
  }
}
