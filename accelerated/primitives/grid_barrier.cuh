// This header holds a barrier for blocks that all run at the same time.
#pragma once
#include "primitives/types.cuh"

// One thread of each of `blocks` blocks arrives at a word that is initially zero. They must belong to one cooperative
// launch, and no concurrent launch may use its words. The top bit of the word flips when all have arrived. `first` is
// true in exactly one of the threads.
__device__ __forceinline__ void wait_for_blocks(unsigned* word, bool first, unsigned blocks) {
  __threadfence();
  const unsigned before = atomicAdd(word, first ? 0x80000001u - blocks : 1u);
  const volatile unsigned* const now = word;
  while (((before ^ *now) >> 31) == 0) {}
  __threadfence();
}
