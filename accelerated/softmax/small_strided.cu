// Softmax over columns of small tensors (3.2.96, 4.1.19) in registers: a block takes some lines side by side, element by element.
//
// Floor: a launch and one way to the memory and back; bytes hardly matter. Every thread tells its block what it has of a line, and merges
// what all have: one barrier, no exchange between lanes.
//
// What limits (H200, 8x64x14x14): in a chain of kernels in a stream it takes 1.32 to 1.39 us forward, 1.35 to 1.45 backward, in a graph 1.2 to 1.3, where a copy takes
// 0.9 and 0.7. Clocks read behind each stage: 420 cycles until the values are there, 100 for exponentials, 50 to 130 until all have told, 250 to merge, 110 to
// write. What is more is the way to code that is not at hand (softmax/small.cuh): with jumps and more arguments it took 1.7. Longer took lines within a
// warp, by shuffles, 0.1 to 0.2; packs of neighbouring lines, of which threads have more values each, 0.2 to 0.7; fewer elements of a thread
// or twice the threads 0.1; a rehearsal of all before the wait 0.1 to 0.4.
#include "softmax/small.cuh"

constexpr unsigned MOST_THREADS = 512;

// MANY: more parts of a line than a thread takes at a time.
template <bool MANY, bool BLENDS, class Rule, int N>
__device__ __forceinline__ void softmax_of_columns(const Rule rule, FoundPacks<Rule, N>& packs, Statistic* parts, unsigned across) {
  constexpr int BATCH = 8;
  packs.wait();
  if (Rule::INPUTS == 2) griddepcontrol_launch_dependents_if(true);  // gradients are done before it comes; when values were there it came 0.1 to 0.3 us too late
  packs.ask();
  packs.take();

  Statistic own[1] = {rule.empty()}, line[1] = {rule.empty()}, part[BATCH];
  rule.template cover<true>(own, packs.values);
  if (Rule::INPUTS == 1) griddepcontrol_launch_dependents_with(own[0].top);
  rule.template add_covered<true>(own, packs.values);
  parts[threadIdx.x] = own[0];
  __syncthreads();
  const Statistic* first = parts + (threadIdx.x & (across - 1));
  auto take = [&] {
#pragma unroll
    for (int j = 0; j < BATCH; j++) part[j] = first[j * across];
    return top_of(rule, line[0].top, part);
  };
  line[0].top = take();
  line[0].sum = sum_below(rule, line[0].top, part);
  if (MANY) {
    const Statistic* const end = parts + blockDim.x;
#pragma unroll 1
    for (first += BATCH * across; first < end; first += BATCH * across) {
      const COMPUTE top = take();
      if (rule.has_top()) rule.raise(line[0], top);
      line[0].sum += sum_below(rule, top, part);
    }
  }
  rule.template finish<true>(line[0]);
  rule.scale(line[0], own[0].top);
  packs.template write<BLENDS>(rule, line);
}

template <bool MANY, class Rule, int N> __device__ __forceinline__ void softmax_of_columns(const SmallArguments<Rule::INPUTS>& a) {
  const unsigned log_across = exponent_of(a.across), line = (blockIdx.x << log_across) + (threadIdx.x & (a.across - 1)), group = threadIdx.x >> log_across;
  Statistic* const parts = reinterpret_cast<Statistic*>(shared_memory);
  FoundPacks<Rule, N> packs(a, min(line, a.lines.count - 1), line < a.lines.count ? group : a.along.count);
  without_jumps<Rule>(a, [&](const Rule rule, auto blends) { softmax_of_columns<MANY, decltype(blends)::value>(rule, packs, parts, a.across); });
}

#define SMALL_COLUMNS(kind, packs, many)                                                                                         \
  extern "C" __global__ void __launch_bounds__(MOST_THREADS) softmax_forward_##kind##_of_##packs(const SmallArguments<1> a) {  \
    griddepcontrol_wait_deferred();                                                                                                \
    softmax_of_columns<many, Forward, packs>(a);                                                                                \
  }                                                                                                                             \
  extern "C" __global__ void __launch_bounds__(MOST_THREADS) softmax_backward_##kind##_of_##packs(const SmallArguments<2> a) { \
    griddepcontrol_wait_deferred();                                                                                                \
    softmax_of_columns<many, Backward, packs>(a);                                                                               \
  }
SMALL_COLUMNS(columns, 4, false)
SMALL_COLUMNS(columns, 8, false)
SMALL_COLUMNS(long_columns, 8, true)
