// Exchange buffers: slots in global memory through which blocks that all run at the same time pass small values.
//
// Each 32 bits of a value come with a number in one access of 8 bytes: who finds the number has the value, without a
// fence or a flag. Buffers belong to modules, and are all zero at first: no number is 0.
#pragma once
#include "primitives/types.cuh"

// A value in flight to other blocks; its size is a multiple of 8 bytes.
template <class T> struct alignas(16) ExchangeSlot {
  static constexpr int WORDS = sizeof(T) / sizeof(unsigned);
  unsigned long long word[WORDS];
};

#ifdef EMULATED_CUDA
template <class T> inline void write_slot(ExchangeSlot<T>* slot, const ExchangeSlot<T>& value) { *slot = value; }
template <class T> inline ExchangeSlot<T> read_slot(const ExchangeSlot<T>* slot) { return *slot; }
inline unsigned long long count_of(const unsigned long long* counter) { return *counter; }
#else
// Exchange buffers stay in L2 through which everything else streams: fetched from memory, slots take 1 to 2 us more.
__device__ __forceinline__ unsigned long long evict_last_policy() {
  unsigned long long policy;
  asm("createpolicy.fractional.L2::evict_last.b64 %0, 1.0;" : "=l"(policy));
  return policy;
}
template <class T> __device__ __forceinline__ void write_slot(ExchangeSlot<T>* slot, const ExchangeSlot<T>& value) {
#pragma unroll
  for (int i = 0; i < ExchangeSlot<T>::WORDS; i += 2)
    asm volatile("st.relaxed.gpu.global.L2::cache_hint.v2.u64 [%0], {%1, %2}, %3;" ::"l"(&slot->word[i]),
                 "l"(value.word[i]), "l"(value.word[i + 1]), "l"(evict_last_policy())
                 : "memory");
}
template <class T> __device__ __forceinline__ ExchangeSlot<T> read_slot(const ExchangeSlot<T>* slot) {
  ExchangeSlot<T> value;
#pragma unroll
  for (int i = 0; i < ExchangeSlot<T>::WORDS; i += 2)
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

template <class T> union ExchangeWords {
  unsigned word[ExchangeSlot<T>::WORDS];
  T value;
  __device__ __forceinline__ ExchangeWords() {}
};
template <class T> __device__ __forceinline__ ExchangeSlot<T> to_slot(T value, unsigned number) {
  ExchangeWords<T> words;
  words.value = value;
  ExchangeSlot<T> slot;
#pragma unroll
  for (int i = 0; i < ExchangeSlot<T>::WORDS; i++)
    slot.word[i] = static_cast<unsigned long long>(number) << 32 | words.word[i];
  return slot;
}
template <class T> __device__ __forceinline__ bool holds(const ExchangeSlot<T>& slot, unsigned number) {
  bool all = true;
#pragma unroll
  for (int i = 0; i < ExchangeSlot<T>::WORDS; i++) all = all && slot.word[i] >> 32 == number;
  return all;
}
template <class T> __device__ __forceinline__ T from_slot(const ExchangeSlot<T>& slot) {
  ExchangeWords<T> words;
#pragma unroll
  for (int i = 0; i < ExchangeSlot<T>::WORDS; i++) words.word[i] = static_cast<unsigned>(slot.word[i]);
  return words.value;
}

// A block comes to a word, at which so many are awaited, one thread of each: what the word was, for who waits. They
// must be blocks of one cooperative launch, and no other launch may use its words meanwhile, which are zero at first.
// The top bit of the word changes when all have come, whatever their number. first: true in one of them.
__device__ __forceinline__ unsigned come_of_blocks(unsigned* word, bool first, unsigned blocks) {
  __threadfence();
  return atomicAdd(word, first ? 0x80000001u - blocks : 1u);
}
__device__ __forceinline__ void wait_until_all_came(const unsigned* word, unsigned before) {
  const volatile unsigned* const now = word;
  while (((before ^ *now) >> 31) == 0) {}
  __threadfence();
}
__device__ __forceinline__ void wait_for_blocks(unsigned* word, bool first, unsigned blocks) {
  wait_until_all_came(word, come_of_blocks(word, first, blocks));
}
