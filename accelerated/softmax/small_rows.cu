// Softmax of few lines (3.2.96, 4.1.19) in the registers of clusters, of whole packs or of single elements that lie anywhere.
//
// Floor: a launch and one way to the memory and back; bytes hardly matter. What a thread has lies one step apart along one dimension, so
// that all reads are in flight at once. The blocks agree once: every warp sends its statistic to all blocks.
//
// What limits (H200, 8 lines of 12544): in a chain of kernels in a stream it takes 1.3 to 1.46 us, 1.53 with gaps, in a graph 1.35 to 1.5.
// Clocks read behind each stage: 410 to 460 cycles until the values are there, 340 until a warp has its maximum and sum, 300 to 400 until the warps of
// the cluster know of each other, 470 to merge, 100 to 180 to write. So instructions on the way were saved: those that look for places and
// for ways to the other blocks come before the wait, 0.25 us; barriers of the cluster behind one of each block took 0.25 longer, maxima by
// shuffles 0.1, jumps 0.1 to 0.2, the next kernel let in at the wait 0.1 to 0.3 (softmax/small.cuh). Longer took clusters of 4 (0.1) and 16 blocks (0.4); one
// warp that sends for its block, 0.1; more packs of a thread, but two of floats; threads that look at what was sent instead of waiting for
// the barrier, 0.5; a rehearsal of all this before the wait, 0.2. Of single elements, a thread has 8: 4 take 0.05 to 0.1 longer.
#include "softmax/small.cuh"

constexpr unsigned MOST_THREADS = 512, WARP = 32;
constexpr int PARTS = (CLUSTER_SIZE * MOST_THREADS / WARP + WARP - 1) / WARP;  // of a lane

// How a warp tells the others of its cluster what it has.
struct Telling {
  const ClusterExchange* exchange;
  const Statistic* parts;  // of every warp of the cluster, and some that change nothing
  ClusterExchange::RemoteAddress way;       // from a lane to the block of that number
};

template <bool BLENDS, class Rule, int N> __device__ __forceinline__ void softmax_of_line(const Rule rule, FoundPacks<Rule, N>& packs, const Telling& telling) {
  const unsigned lane = threadIdx.x % WARP;
  packs.wait();
  packs.ask();
  telling.exchange->wait_for_peers();  // while they come
  packs.take();

  Statistic line[1] = {rule.empty()};
  rule.template cover<true>(line, packs.values);
  const COMPUTE own_top = line[0].top = top_of_warp(rule, line[0].top);
  rule.template add_covered<true>(line, packs.values);
  griddepcontrol_launch_dependents_with(line[0].sum);
  merge_sums(line, 1, WARP);
  telling.exchange->send(lane < CLUSTER_SIZE, telling.way, line[0].top, line[0].sum);
  telling.exchange->wait();

  Statistic part[PARTS];
#pragma unroll
  for (int j = 0; j < PARTS; j++) part[j] = telling.parts[lane + j * WARP];
  line[0].top = top_of_warp(rule, top_of(rule, rule.empty().top, part));
  line[0].sum = sum_below(rule, line[0].top, part);
  merge_sums(line, 1, WARP);
  rule.template finish<true>(line[0]);
  rule.scale(line[0], own_top);
  packs.template write<BLENDS>(rule, line);
}

template <class Rule, int N> __device__ __forceinline__ void softmax_of_line(const SmallArguments<Rule::INPUTS>& a) {
  const unsigned warps = blockDim.x / WARP, number = cluster_rank() * blockDim.x + threadIdx.x, parts_of_line = CLUSTER_SIZE * warps;
  Statistic* const parts = reinterpret_cast<Statistic*>(shared_memory);
  ClusterExchange* const exchange = reinterpret_cast<ClusterExchange*>(parts + WARP * PARTS);
  exchange->init();
  for (unsigned i = parts_of_line + threadIdx.x; i < WARP * PARTS; i += blockDim.x) parts[i] = Rule{Algorithm(a.algorithm), a.alpha}.empty();
  exchange->expect(parts_of_line * sizeof(Statistic));
  FoundPacks<Rule, N> packs(a, blockIdx.x / CLUSTER_SIZE, number);
  const Telling telling{exchange, parts, exchange->remote_address(&parts[number / WARP].top, threadIdx.x % WARP % CLUSTER_SIZE)};
  without_jumps<Rule>(a, [&](const Rule rule, auto blends) { softmax_of_line<decltype(blends)::value>(rule, packs, telling); });
}

#define SMALL_LINES(packs)                                                                                                                 \
  extern "C" __global__ void CLUSTER_DIMS_X __launch_bounds__(MOST_THREADS) softmax_forward_lines_of_##packs(const SmallArguments<1> a) {  \
    griddepcontrol_wait_deferred();                                                                                                            \
    softmax_of_line<Forward, packs>(a);                                                                                                     \
  }                                                                                                                                         \
  extern "C" __global__ void CLUSTER_DIMS_X __launch_bounds__(MOST_THREADS) softmax_backward_lines_of_##packs(const SmallArguments<2> a) { \
    griddepcontrol_wait_deferred();                                                                                                            \
    softmax_of_line<Backward, packs>(a);                                                                                                    \
  }
SMALL_LINES(1)
SMALL_LINES(2)
SMALL_LINES(4)
#if PACK_BYTES < 16  // single elements
SMALL_LINES(8)
#endif
