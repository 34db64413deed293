// Softmax over strided rows of small tensors, forward (3.2.96) and backward (4.1.19), in registers: a block takes
// some rows side by side, element by element.
//
// Every thread publishes its state of a row in shared memory and merges what all have: one barrier, no exchange
// between lanes.
//
// Roofline: a launch and one way to memory and back; bytes (2 or 3 an element) and flops (some 12) hardly matter.
// Measured (H200), 8x64x14x14 float over channels: 1.26 us forward, 1.16 backward in a graph, where a copy takes 0.7:
// 420 cycles until the values are there, 100 for exponentials, 50 to 130 until all have published, 250 to merge, 110
// to write. History: docs/performance/softmax.md.
#include "softmax/small.cuh"

constexpr unsigned MOST_THREADS = 512;

// MANY: more parts of a row than a thread takes at a time.
template <bool MANY, bool BLENDS, class Rule, int N>
__device__ __forceinline__ void softmax_of_strided(const Rule rule, LocatedPacks<Rule, N>& packs, OnlineState* parts,
                                                   unsigned across) {
  constexpr int BATCH = 8;
  packs.wait();
  if (Rule::INPUTS == 2)
    griddepcontrol_launch_dependents_if(
        true);  // gradients are done before it comes; when values were there it came 0.1 to 0.3 us too late
  packs.start_loads();
  packs.take();

  OnlineState own[1] = {rule.empty()}, state[1] = {rule.empty()}, part[BATCH];
  rule.template cover<true>(own, packs.values);
  if (Rule::INPUTS == 1) griddepcontrol_launch_dependents_with(own[0].maximum);
  rule.template add_covered<true>(own, packs.values);
  parts[threadIdx.x] = own[0];
  __syncthreads();
  const OnlineState* first = parts + (threadIdx.x & (across - 1));
  auto take = [&] {
#pragma unroll
    for (int j = 0; j < BATCH; j++) part[j] = first[j * across];
    return maximum_of(rule, state[0].maximum, part);
  };
  state[0].maximum = take();
  state[0].sum = sum_below(rule, state[0].maximum, part);
  if (MANY) {
    const OnlineState* const end = parts + blockDim.x;
#pragma unroll 1
    for (first += BATCH * across; first < end; first += BATCH * across) {
      const COMPUTE maximum = take();
      if (rule.has_maximum()) rule.raise(state[0], maximum);
      state[0].sum += sum_below(rule, maximum, part);
    }
  }
  rule.template finish<true>(state[0]);
  rule.scale(state[0], own[0].maximum);
  packs.template write<BLENDS>(rule, state);
}

template <bool MANY, class Rule, int N>
__device__ __forceinline__ void softmax_of_strided(const SmallArguments<Rule::INPUTS>& a) {
  const unsigned log_across = exponent_of(a.across), row = (blockIdx.x << log_across) + (threadIdx.x & (a.across - 1)),
                 group = threadIdx.x >> log_across;
  OnlineState* const parts = reinterpret_cast<OnlineState*>(shared_memory);
  LocatedPacks<Rule, N> packs(a, min(row, a.rows.count - 1), row < a.rows.count ? group : a.along.count);
  without_jumps<Rule>(a, [&](const Rule rule, auto blends) {
    softmax_of_strided<MANY, decltype(blends)::value>(rule, packs, parts, a.across);
  });
}

#define SOFTMAX_SMALL_STRIDED(variant, packs, many)                         \
  extern "C" __global__ void __launch_bounds__(MOST_THREADS)                \
      softmax_small_strided_forward_##variant(const SmallArguments<1> a) {  \
    griddepcontrol_wait_deferred();                                         \
    softmax_of_strided<many, Forward, packs>(a);                            \
  }                                                                         \
  extern "C" __global__ void __launch_bounds__(MOST_THREADS)                \
      softmax_small_strided_backward_##variant(const SmallArguments<2> a) { \
    griddepcontrol_wait_deferred();                                         \
    softmax_of_strided<many, Backward, packs>(a);                           \
  }
SOFTMAX_SMALL_STRIDED(4, 4, false)
SOFTMAX_SMALL_STRIDED(8, 8, false)
SOFTMAX_SMALL_STRIDED(long_8, 8, true)
