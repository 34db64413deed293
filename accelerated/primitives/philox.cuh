// This header computes Philox 4x32-10, the random words of dropout (docs/dropout.md). The source is Salmon et al.,
// Parallel random numbers: as easy as 1, 2, 3, SC 2011. It maps a counter of four words and a key of two words to four
// words. A call takes 20 wide multiplications and 40 logical operations, which the compiler merges into 20.
#pragma once

struct PhiloxWords {
  unsigned word[4];
};

__device__ __forceinline__ PhiloxWords philox4x32_10(PhiloxWords counter, unsigned key0, unsigned key1) {
#pragma unroll
  for (int round = 0; round < 10; round++) {
    const unsigned long long first = 0xD2511F53ull * counter.word[0], second = 0xCD9E8D57ull * counter.word[2];
    counter = {{static_cast<unsigned>(second >> 32) ^ counter.word[1] ^ key0, static_cast<unsigned>(second),
                static_cast<unsigned>(first >> 32) ^ counter.word[3] ^ key1, static_cast<unsigned>(first)}};
    key0 += 0x9E3779B9u, key1 += 0xBB67AE85u;
  }
  return counter;
}

// These are a generator's states in device memory, as the dropout descriptor defines them.
struct PhiloxStates {
  unsigned seed[2], calls[2];  // lower words first; `calls` counts earlier calls
};

// Returns the four words of a number. A call has 2^32 numbers in each of 2^32 sequences.
__device__ __forceinline__ PhiloxWords philox_of_call(const PhiloxStates& states, unsigned number, unsigned sequence) {
  return philox4x32_10({{number, sequence, states.calls[0], states.calls[1]}}, states.seed[0], states.seed[1]);
}

// Bit i says that element 8 * octet + i is kept: its 32-bit number is not below the threshold. One call of Philox
// yields the upper 16 bits of an octet's numbers. Another call yields the lower bits. They decide only if the upper
// bits equal the threshold's, in one octet of 8192.
constexpr unsigned LOWER_BITS = 0x80000000;  // flag in the sequence word of the lower bits

// Returns the bits of elements that the upper 16 bits keep. `tied` receives a bit where they equal the threshold's.
__device__ __forceinline__ unsigned kept_by_upper(const PhiloxWords& upper, unsigned threshold, unsigned& tied) {
  const unsigned least = threshold >> 16, upper_least = threshold & 0xFFFF0000;
  unsigned bits = 0, ties = 0;
#pragma unroll
  for (int i = 0; i < 4; i++) {
    const unsigned word = upper.word[i];
    const bool first = (word & 0xFFFF) >= least, second = word >= upper_least;
    bits |= (first ? 1u : 0u) << 2 * i | (second ? 1u : 0u) << (2 * i + 1);
    // A borrow sets the upper bit of 16 zero bits, which was clear.
    const unsigned difference = word ^ (upper_least | least);
    ties |= (difference - 0x00010001) & ~difference;
  }
  tied |= ties & 0x80008000;
  return bits;
}

__device__ __forceinline__ unsigned kept_octet(const PhiloxStates& states, unsigned octet, unsigned threshold,
                                               unsigned sequence = 0) {
  const PhiloxWords upper = philox_of_call(states, octet, sequence);
  unsigned tied = 0, bits = kept_by_upper(upper, threshold, tied);
  if (tied == 0 || (threshold & 0xFFFF) == 0) return bits;
  const unsigned least = threshold >> 16;
  const PhiloxWords lower = philox_of_call(states, octet, sequence | LOWER_BITS);
#pragma unroll
  for (int i = 0; i < 8; i++) {
    const unsigned half = upper.word[i / 2] >> i % 2 * 16 & 0xFFFF, below = lower.word[i / 2] >> i % 2 * 16 & 0xFFFF;
    if (half == least && below < (threshold & 0xFFFF)) bits &= ~(1u << i);
  }
  return bits;
}

// Returns the bits of N octets, with one branch for all of them.
template <int N>
__device__ __forceinline__ void kept_octets(const PhiloxStates& states, const unsigned (&octet)[N], unsigned threshold,
                                            unsigned (&bits)[N]) {
  unsigned tied = 0;
#pragma unroll
  for (int i = 0; i < N; i++) bits[i] = kept_by_upper(philox_of_call(states, octet[i], 0), threshold, tied);
  if (tied == 0 || (threshold & 0xFFFF) == 0) return;
#pragma unroll 1
  for (int k = 0; k < N; k++) {
    unsigned which = octet[0];
#pragma unroll
    for (int i = 1; i < N; i++) which = i == k ? octet[i] : which;
    const unsigned exact = kept_octet(states, which, threshold);
#pragma unroll
    for (int i = 0; i < N; i++) bits[i] = i == k ? exact : bits[i];
  }
}
