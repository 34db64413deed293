// A barrier of blocks that all run at the same time.
#pragma once
#include "primitives/types.cuh"

// One thread of each block comes to a word, at which so many are awaited. They must be blocks of one cooperative
// launch, and no other launch may use its words meanwhile, which are zero at first. The top bit of the word changes
// when all have come, whatever their number. first: true in one of them.
__device__ __forceinline__ void wait_for_blocks(unsigned* word, bool first, unsigned blocks) {
  __threadfence();
  const unsigned before = atomicAdd(word, first ? 0x80000001u - blocks : 1u);
  const volatile unsigned* const now = word;
  while (((before ^ *now) >> 31) == 0) {}
  __threadfence();
}
