// The slots in global memory through which the blocks of a launch exchange online-softmax states
// (softmax/grid_all_reduce.cuh, softmax/persistent_tma_strided.cu). Exchange buffers belong to modules.
#pragma once
#include "primitives/grid_exchange.cuh"
#include "softmax/reduce.cuh"

// As in softmax/persistent_tma.py and softmax/persistent_tma_strided.py
constexpr unsigned MOST_BLOCKS = 192, MOST_TILES = 48;  // of a launch; in shared memory

using Slot = ExchangeSlot<OnlineState>;

// The slots of BATCH blocks, `apart` from each other, of those below `count`, when all hold the number. at: where that
// of a block is. Those that hold it are not read again: who waits takes bandwidth from who reads tiles (1 to 2 % of a
// stream of strided rows).
constexpr int BATCH = 5;  // by 32 lanes: all blocks of an H200 at once
template <class At>
__device__ __forceinline__ void read_complete(Slot (&slot)[BATCH], unsigned first, unsigned apart, unsigned count,
                                              unsigned number, const At& at) {
  bool complete;
#pragma unroll
  for (int j = 0; j < BATCH; j++) slot[j] = Slot{};  // no number is 0
  do {
    complete = true;
#pragma unroll
    for (int j = 0; j < BATCH; j++)
      if (first + apart * j < count && !holds(slot[j], number)) slot[j] = read_slot(at(first + apart * j));
#pragma unroll
    for (int j = 0; j < BATCH; j++)
      if (first + apart * j < count) complete = complete && holds(slot[j], number);
  } while (!complete);
}

// Merges parts at once: their exponentials do not wait for each other, and rows wait for this.
template <class Rule, int N>
__device__ __forceinline__ void merge(const Rule& rule, OnlineState& total, OnlineState (&part)[N]) {
  if (rule.has_maximum()) {
    COMPUTE maximum = total.maximum;
#pragma unroll
    for (int j = 0; j < N; j++) maximum = max(maximum, part[j].maximum);
    rule.raise(total, maximum);
#pragma unroll
    for (int j = 0; j < N; j++) rule.raise(part[j], maximum);
  }
#pragma unroll
  for (int j = 0; j < N; j++) total.sum += part[j].sum;
}
