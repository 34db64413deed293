#include "softmax_small.cuh"

constexpr unsigned MOST_THREADS = 512;

template <class Rule, int N> __device__ __forceinline__ void softmax_of_columns(const Rule rule, Share<Rule, N>& share, Statistic* parts, unsigned across) {
  constexpr int BATCH = 8;
#ifdef REHEARSE
  const unsigned all = share.count;
  bool real = false;
  share.count = 0;
#pragma unroll 1
  for (;;) {
    if (real) share.wait();
#else
  share.wait();
#endif
  share.ask();
  share.take();

  Statistic own[1] = {rule.empty()}, line = rule.empty();
  rule.template cover<true>(own, share.values);
  rule.template add_covered<true>(own, share.values);
  parts[threadIdx.x] = own[0];
  __syncthreads();
  const Statistic* const end = parts + blockDim.x;
#ifdef ONE_BATCH
  {
    const Statistic* first = parts + (threadIdx.x & (across - 1));
#else
#pragma unroll 1
  for (const Statistic* first = parts + (threadIdx.x & (across - 1)); first < end; first += BATCH * across) {  // groups are a multiple of BATCH
#endif
    Statistic part[BATCH];
#pragma unroll
    for (int j = 0; j < BATCH; j++) part[j] = first[j * across];
    const COMPUTE top = top_of(rule, line.top, part);
    if (rule.has_top()) rule.raise(line, top);
    line.sum += sum_below(rule, top, part);
  }
  Statistic lines[1] = {line};
  rule.finish(lines[0]);
  rule.scale(lines[0], own[0].top);
  share.write(rule, lines);
#ifdef REHEARSE
    if (real) break;
    real = true;
    share.count = all;
    __syncthreads();
  }
#endif
}

template <class Rule, int N> __device__ __forceinline__ void softmax_of_columns(const SmallArguments<Rule::INPUTS>& a) {
  const Algorithm algorithm = Algorithm(a.algorithm);
  const unsigned log_across = exponent_of(a.across), line = (blockIdx.x << log_across) + (threadIdx.x & (a.across - 1)), group = threadIdx.x >> log_across;
  Statistic* const parts = reinterpret_cast<Statistic*>(shared_memory);
  Share<Rule, N> share(a, min(line, a.lines.count - 1), line < a.lines.count ? group : a.along.count);
#ifdef SPLIT
  if (algorithm == LOG) softmax_of_columns(Rule{LOG, a.alpha}, share, parts, a.across);
  else if (algorithm == FAST) softmax_of_columns(Rule{FAST, a.alpha}, share, parts, a.across);
  else softmax_of_columns(Rule{ACCURATE, a.alpha}, share, parts, a.across);
#else
  softmax_of_columns(Rule{algorithm, a.alpha}, share, parts, a.across);
#endif
}

#define SMALL_COLUMNS(packs)                                                                                                   \
  extern "C" __global__ void __launch_bounds__(MOST_THREADS) softmax_forward_columns_of_##packs(const SmallArguments<1> a) {  \
    find_place_before_waiting();                                                                                               \
    softmax_of_columns<Forward, packs>(a);                                                                                     \
  }                                                                                                                            \
  extern "C" __global__ void __launch_bounds__(MOST_THREADS) softmax_backward_columns_of_##packs(const SmallArguments<2> a) { \
    find_place_before_waiting();                                                                                               \
    softmax_of_columns<Backward, packs>(a);                                                                                    \
  }
SMALL_COLUMNS(4)
SMALL_COLUMNS(8)
