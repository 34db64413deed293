// Statistics that blocks of a launch publish for each other (softmax/persistent.cuh, softmax/persistent_resident_strided.cu, softmax/persistent_tma_strided.cu). Boards belong to modules.
#pragma once
#include "softmax/online.cuh"

#ifndef ALGORITHM
#define ALGORITHM arguments.algorithm  // known where that leaves registers: columns of halves, forward
#endif

// As in softmax_streams.py
constexpr unsigned MOST_BLOCKS = 192, MOST_COLUMNS = 64;  // of a launch; lines of a bundle
constexpr unsigned WORKERS = 512, MOST_TILES = 48;        // of whole packs: of a block; in shared memory
constexpr int STREAM_PACKS = 2;                           // that a worker takes in a step, of all inputs together
constexpr unsigned MOST_ROUNDS = 64;                      // that blocks agree, of columns

// A statistic in flight to other blocks. Each 32 bits come with the number of the bundle (within the launch, from 1 on) in
// one access of 8 bytes: who finds the number has the value.
constexpr int WORDS = sizeof(Statistic) / sizeof(unsigned);
struct alignas(16) Slot { unsigned long long word[WORDS]; };

#ifdef EMULATED_CUDA
inline void write_slot(Slot* slot, Slot value) { *slot = value; }
inline Slot read_slot(const Slot* slot) { return *slot; }
inline unsigned long long count_of(const unsigned long long* counter) { return *counter; }
#else
// Boards stay in the cache through which everything else streams: fetched from memory, slots take 1 to 2 us more.
__device__ __forceinline__ unsigned long long staying() {
  unsigned long long policy;
  asm("createpolicy.fractional.L2::evict_last.b64 %0, 1.0;" : "=l"(policy));
  return policy;
}
__device__ __forceinline__ void write_slot(Slot* slot, const Slot& value) {
#pragma unroll
  for (int i = 0; i < WORDS; i += 2)
    asm volatile("st.relaxed.gpu.global.L2::cache_hint.v2.u64 [%0], {%1, %2}, %3;" ::"l"(&slot->word[i]), "l"(value.word[i]), "l"(value.word[i + 1]), "l"(staying()) : "memory");
}
__device__ __forceinline__ Slot read_slot(const Slot* slot) {
  Slot value;
#pragma unroll
  for (int i = 0; i < WORDS; i += 2)
    asm volatile("ld.relaxed.gpu.global.L2::cache_hint.v2.u64 {%0, %1}, [%2], %3;" : "=l"(value.word[i]), "=l"(value.word[i + 1]) : "l"(&slot->word[i]), "l"(staying()) : "memory");
  return value;
}
__device__ __forceinline__ unsigned long long count_of(const unsigned long long* counter) {
  unsigned long long value;
  asm volatile("ld.acquire.gpu.global.u64 %0, [%1];" : "=l"(value) : "l"(counter) : "memory");
  return value;
}
#endif

union StatisticWords {
  unsigned word[WORDS];
  Statistic statistic;
  __device__ __forceinline__ StatisticWords() {}
};
__device__ __forceinline__ Slot to_slot(Statistic statistic, unsigned number) {
  StatisticWords words;
  words.statistic = statistic;
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
__device__ __forceinline__ Statistic from_slot(const Slot& slot) {
  StatisticWords words;
#pragma unroll
  for (int i = 0; i < WORDS; i++) words.word[i] = static_cast<unsigned>(slot.word[i]);
  return words.statistic;
}

// The slots of BATCH blocks, `apart` from each other, of those below `count`, when all hold the number. at: where that of a block is. Those that
// hold it are not read again: who waits takes bandwidth from who reads tiles (1 to 2 % of a stream of columns).
constexpr int BATCH = 5;  // by 32 lanes: all blocks of an H200 at once
template <class At> __device__ __forceinline__ void read_complete(Slot (&slot)[BATCH], unsigned first, unsigned apart, unsigned count, unsigned number, const At& at) {
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
