// The slots in global memory through which the blocks of a launch exchange online-softmax states
// (softmax/grid_all_reduce.cuh, softmax/persistent_tma_strided.cu). Exchange buffers belong to modules.
#pragma once
#include "softmax/reduce.cuh"

// As in softmax/persistent_tma.py and softmax/persistent_tma_strided.py
constexpr unsigned MOST_BLOCKS = 192, MOST_TILES = 48;  // of a launch; in shared memory

// A state in flight to other blocks. Each 32 bits come with the number of the column tile (within the launch, from 1
// on) in one access of 8 bytes: who finds the number has the value.
constexpr int WORDS = sizeof(OnlineState) / sizeof(unsigned);
struct alignas(16) Slot {
  unsigned long long word[WORDS];
};

#ifdef EMULATED_CUDA
inline void write_slot(Slot* slot, Slot value) { *slot = value; }
inline Slot read_slot(const Slot* slot) { return *slot; }
inline unsigned long long count_of(const unsigned long long* counter) { return *counter; }
#else
// Exchange buffers stay in L2 through which everything else streams: fetched from memory, slots take 1 to 2 us more.
__device__ __forceinline__ unsigned long long evict_last_policy() {
  unsigned long long policy;
  asm("createpolicy.fractional.L2::evict_last.b64 %0, 1.0;" : "=l"(policy));
  return policy;
}
__device__ __forceinline__ void write_slot(Slot* slot, const Slot& value) {
#pragma unroll
  for (int i = 0; i < WORDS; i += 2)
    asm volatile("st.relaxed.gpu.global.L2::cache_hint.v2.u64 [%0], {%1, %2}, %3;" ::"l"(&slot->word[i]),
                 "l"(value.word[i]), "l"(value.word[i + 1]), "l"(evict_last_policy())
                 : "memory");
}
__device__ __forceinline__ Slot read_slot(const Slot* slot) {
  Slot value;
#pragma unroll
  for (int i = 0; i < WORDS; i += 2)
    asm volatile("ld.relaxed.gpu.global.L2::cache_hint.v2.u64 {%0, %1}, [%2], %3;"
                 : "=l"(value.word[i]), "=l"(value.word[i + 1])
                 : "l"(&slot->word[i]), "l"(evict_last_policy())
                 : "memory");
  return value;
}
__device__ __forceinline__ unsigned long long count_of(const unsigned long long* counter) {
  unsigned long long value;
  asm volatile("ld.acquire.gpu.global.u64 %0, [%1];" : "=l"(value) : "l"(counter) : "memory");
  return value;
}
#endif

union OnlineStateWords {
  unsigned word[WORDS];
  OnlineState state;
  __device__ __forceinline__ OnlineStateWords() {}
};
__device__ __forceinline__ Slot to_slot(OnlineState state, unsigned number) {
  OnlineStateWords words;
  words.state = state;
  Slot slot;
#pragma unroll
  for (int i = 0; i < WORDS; i++) slot.word[i] = static_cast<unsigned long long>(number) << 32 | words.word[i];
  return slot;
}
__device__ __forceinline__ bool holds(const Slot& slot, unsigned number) {
  bool all = true;
#pragma unroll
  for (int i = 0; i < WORDS; i++) all = all && slot.word[i] >> 32 == number;
  return all;
}
__device__ __forceinline__ OnlineState from_slot(const Slot& slot) {
  OnlineStateWords words;
#pragma unroll
  for (int i = 0; i < WORDS; i++) words.word[i] = static_cast<unsigned>(slot.word[i]);
  return words.state;
}

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
