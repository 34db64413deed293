// Softmax over columns of small tensors (3.2.96, 4.1.19) in registers: a block takes some lines side by side, element by element.
//
// Floor: a launch and one way to the memory and back; bytes hardly matter. Every thread tells its block what it has of a line, and merges
// what all have: one barrier, no exchange between lanes.
//
// What limits (H200, a chain of kernels in a graph, 8x64x14x14, 1.3 us): that a value is read and written, 0.9 us; the rest is the way from
// one instruction's result to the next. Packs of neighbouring lines, of which threads have more values each, took 0.2 to 0.7 us longer,
// sums by shuffles 0.1, fewer elements of a thread or twice the threads 0.1, a rehearsal of all before the wait 0.4, forward with the next kernel let in
// before the wait 0.3.
#include "softmax_small.cuh"

constexpr unsigned MOST_THREADS = 512;

template <class Rule, int N> __device__ __forceinline__ void softmax_of_columns(const Arguments<Rule::INPUTS>& a) {
  constexpr int INPUTS = Rule::INPUTS, BATCH = 8;
  const Rule rule{Algorithm(a.algorithm), a.alpha};
  const unsigned log_across = exponent_of(a.team), inner = threadIdx.x & (a.team - 1), group = threadIdx.x >> log_across, groups = blockDim.x >> log_across;
  const unsigned index = (blockIdx.x << log_across) + inner;
  Statistic* const parts = reinterpret_cast<Statistic*>(shared_memory) + inner;

  unsigned offset[INPUTS + 1];
  int step[INPUTS + 1];
  a.lines.locate(min(index, a.lines.packs - 1), offset);
#pragma unroll
  for (int n = 0; n <= INPUTS; n++) offset[n] += group * a.along.row_stride[n], step[n] = groups * a.along.row_stride[n];
  Share<Rule, N> share(a, offset, step, index < a.lines.packs && group < a.along.row ? ((a.along.row - group - 1) >> exponent_of(groups)) + 1 : 0);

  share.wait();
  share.ask();
  share.take();

  Statistic own[1] = {rule.empty()}, line[1] = {rule.empty()};
  rule.template cover<true>(own, share.values);
  rule.template add_covered<true>(own, share.values);
  parts[threadIdx.x - inner] = own[0];
  __syncthreads();
#pragma unroll 1
  for (unsigned first = 0; first < groups; first += BATCH) {  // a multiple of BATCH
    Statistic part[BATCH];
#pragma unroll
    for (int j = 0; j < BATCH; j++) part[j] = parts[(first + j) << log_across];
    const COMPUTE top = top_of(rule, line[0].top, part);
    if (rule.has_top()) rule.raise(line[0], top);
    line[0].sum += sum_below(rule, top, part);
  }
  rule.finish(line[0]);
  rule.scale(line[0], own[0].top);
  share.write(rule, line);
}

#define SMALL_COLUMNS(packs)                                                                                               \
  extern "C" __global__ void __launch_bounds__(MOST_THREADS) softmax_forward_columns_of_##packs(const Arguments<1> a) {  \
    find_place_before_waiting();                                                                                           \
    softmax_of_columns<Forward, packs>(a);                                                                                 \
  }                                                                                                                        \
  extern "C" __global__ void __launch_bounds__(MOST_THREADS) softmax_backward_columns_of_##packs(const Arguments<2> a) { \
    find_place_before_waiting();                                                                                           \
    softmax_of_columns<Backward, packs>(a);                                                                                \
  }
SMALL_COLUMNS(4)
SMALL_COLUMNS(8)
