// Softmax of few lines (3.2.96, 4.1.19) in the registers of clusters, of whole packs or of single elements that lie anywhere.
//
// Floor: a launch and one way to the memory and back; bytes hardly matter. What a thread has lies one step apart along one dimension, so
// that all reads are on their way at once. The blocks agree once: every warp sends its statistic to all blocks.
//
// What limits (H200, a chain of kernels in a graph, 8 lines of 12544 floats, 1.5 us): that a value is read and written, 0.8 us; that a warp
// finds its maximum and sum, 0.3; that the warps of the cluster know of each other, 0.4. A quarter of the time warps wait for the
// instruction before, a fifth for shuffles and exponentials, less for memory (Nsight Compute). So instructions on the way were saved: places
// are found before the wait, 0.25 us; barriers of the cluster behind one of each block took 0.25 longer, maxima by shuffles 0.1. Longer
// took clusters of 4 and 16 blocks, 0.1; one warp that sends for its block, 0.1; more packs of a thread, but two of floats; threads that
// look at what was sent instead of waiting for the barrier, 0.5; a rehearsal of all this before the wait, so that instructions and
// arguments are near, 0.4.
#include "softmax_small.cuh"

constexpr unsigned MOST_THREADS = 512;

template <class Rule, int N> __device__ __forceinline__ void softmax_of_line(const Arguments<Rule::INPUTS>& a) {
  constexpr int INPUTS = Rule::INPUTS, BATCH = 4;
  const Rule rule{Algorithm(a.algorithm), a.alpha};
  const unsigned lane = threadIdx.x % 32, warps = blockDim.x / 32, number = rank_in_cluster() * blockDim.x + threadIdx.x, parts_of_line = CLUSTER * warps;
  Statistic* const parts = reinterpret_cast<Statistic*>(shared_memory);  // of every warp of the cluster, and some that change nothing
  const unsigned places = (parts_of_line + 32 * BATCH - 1) / (32 * BATCH) * (32 * BATCH);
  Exchange* const exchange = reinterpret_cast<Exchange*>(parts + places);
  exchange->open();
  for (unsigned i = parts_of_line + threadIdx.x; i < places; i += blockDim.x) parts[i] = rule.empty();
  exchange->announce(parts_of_line * sizeof(Statistic));

  // Only the last pack of a thread may lie beyond the end.
  unsigned line_offset[INPUTS + 1], offset[INPUTS + 1], position;
  int step[INPUTS + 1];
  a.lines.locate(blockIdx.x / CLUSTER, line_offset);
  a.along.locate(number, offset, position);
#pragma unroll
  for (int n = 0; n <= INPUTS; n++) offset[n] += line_offset[n], step[n] = a.along.item_stride[n];
  const bool some = number < a.along.packs;
  Share<Rule, N> share(a, offset, step, some ? a.along.items - (position + (a.along.items - 1) * a.along.apart >= a.along.limit) : 0);

  share.wait();
  share.ask();
  exchange->join();  // while they come
  share.take();

  Statistic line[1] = {rule.empty()};
  rule.template cover<true>(line, share.values);
  const COMPUTE own_top = line[0].top = top_of_warp(rule, line[0].top);
  rule.template add_covered<true>(line, share.values);
  merge_sums(line, 1, 32);
  if (lane < CLUSTER) exchange->send(&parts[number / 32].top, lane, line[0].top, line[0].sum);
  exchange->wait();

  line[0] = rule.empty();
#pragma unroll 1
  for (unsigned first = lane; first < places; first += 32 * BATCH) {
    Statistic part[BATCH];
#pragma unroll
    for (int j = 0; j < BATCH; j++) part[j] = parts[first + j * 32];
    const COMPUTE top = top_of_warp(rule, top_of(rule, line[0].top, part));
    if (rule.has_top()) rule.raise(line[0], top);
    line[0].sum += sum_below(rule, top, part);
  }
  merge_sums(line, 1, 32);
  rule.finish(line[0]);
  rule.scale(line[0], own_top);
  share.write(rule, line);
}

#define SMALL_LINES(packs)                                                                                                            \
  extern "C" __global__ void CLUSTER_ALONG_X __launch_bounds__(MOST_THREADS) softmax_forward_lines_of_##packs(const Arguments<1> a) {  \
    find_place_before_waiting();                                                                                                       \
    softmax_of_line<Forward, packs>(a);                                                                                                \
  }                                                                                                                                    \
  extern "C" __global__ void CLUSTER_ALONG_X __launch_bounds__(MOST_THREADS) softmax_backward_lines_of_##packs(const Arguments<2> a) { \
    find_place_before_waiting();                                                                                                       \
    softmax_of_line<Backward, packs>(a);                                                                                               \
  }
SMALL_LINES(1)
SMALL_LINES(2)
SMALL_LINES(4)
