// Softmax of few lines (3.2.96, 4.1.19) whose elements lie anywhere (rows with gaps, any strides): the registers of a cluster's blocks hold
// a line.
//
// Floor: a launch and one way to the memory and back; bytes hardly matter. A thread finds the place of its first element before it waits
// for earlier kernels; the others lie one step apart along one dimension, so that all reads are on their way at once. The blocks agree
// once: each sends its statistic to all. Eight lines of 12544 elements took 1.7 to 1.85 us (H200; with clusters of 16 blocks 0.1 longer),
// copies of single elements to shared memory and barriers of the cluster 4.5 to 5.1.
#ifdef CLUSTER_BLOCKS
#define CLUSTER_BLOCKS_WANTED
#endif
#include "softmax.cuh"

constexpr unsigned MOST_THREADS = 512;

// N elements of a thread.
template <class Rule, int N> __device__ __forceinline__ void softmax_of_scattered(const Arguments<Rule::INPUTS>& a) {
  constexpr int INPUTS = Rule::INPUTS;
  const Rule rule{Algorithm(a.algorithm), a.alpha};
  const unsigned lane = threadIdx.x % 32, warps = blockDim.x / 32, share = rank_in_cluster() * blockDim.x + threadIdx.x;
  Statistic* const parts = reinterpret_cast<Statistic*>(shared_memory);  // of every warp of the block, then of every block
  Statistic* const of_blocks = parts + 32;
  Exchange* const exchange = reinterpret_cast<Exchange*>(of_blocks + CLUSTER);
  exchange->prepare(CLUSTER * sizeof(Statistic));

  // The elements of a thread lie one step apart along one dimension; only the last may lie beyond its end.
  unsigned line_offset[INPUTS + 1], offset[INPUTS + 1], position, count = 0;
  a.lines.locate(blockIdx.x / CLUSTER, line_offset);
  a.along.locate(share, offset, position);
#pragma unroll
  for (int n = 0; n <= INPUTS; n++) offset[n] += line_offset[n];
  if (share < a.along.packs) count = a.along.items - (position + (a.along.items - 1) * a.along.apart >= a.along.limit);
  else offset[0] = offset[INPUTS] = 0;
  wait_to_touch(a.input[0] + offset[0], a.output + offset[INPUTS]);

  ELEMENT held[INPUTS][N];
#pragma unroll
  for (int k = 0; k < N; k++)
#pragma unroll
    for (int n = 0; n < INPUTS; n++)
      if (k < count) held[n][k] = a.input[n][offset[n] + k * a.along.item_stride[n]];
  let_next_kernel_begin();

  COMPUTE values[INPUTS][N], result[N];
#pragma unroll
  for (int n = 0; n < INPUTS; n++)
#pragma unroll
    for (int k = 0; k < N; k++) values[n][k] = k < count ? load<COMPUTE>(held[n][k]) : Rule::neutral();
  Statistic line[1] = {rule.empty()};
  rule.template cover<true>(line, values);
  merge_tops(rule, line, 1, 32);
  rule.template add_covered<true>(line, values);
  merge_sums(line, 1, 32);
  const COMPUTE own_top = line[0].top;
  if (lane == 0) parts[threadIdx.x / 32] = line[0];
  __syncthreads();
  if (threadIdx.x < 32) {
    line[0] = lane < warps ? parts[lane] : rule.empty();
    merge_lanes(rule, line, 1, 32);
    if (lane < CLUSTER) {
      Statistic* mine = of_blocks + rank_in_cluster();
      exchange->send(&mine->top, lane, line[0].top);
      exchange->send(&mine->sum, lane, line[0].sum);
    }
  }
  exchange->wait();
  line[0] = of_blocks[lane & (CLUSTER - 1)];
  merge_lanes(rule, line, 1, CLUSTER);
  rule.finish(line[0]);
  rule.scale(line[0], own_top);
  rule.template results<true>(line, values, result);
#pragma unroll
  for (int k = 0; k < N; k++) {
    if (k >= count) continue;
    ELEMENT* const target = a.output + (offset[INPUTS] + k * a.along.item_stride[INPUTS]);
    *target = store<ELEMENT>(a.beta != COMPUTE(0) ? result[k] + a.beta * load<COMPUTE>(*target) : result[k]);
  }
}

#define SCATTERED(name, rule)                                                                                                             \
  extern "C" __global__ void CLUSTER_ALONG_X __launch_bounds__(MOST_THREADS) name##_scattered_of_2(const Arguments<rule::INPUTS> a) { \
    find_place_before_waiting();                                                                                                          \
    softmax_of_scattered<rule, 2>(a);                                                                                                     \
  }                                                                                                                                       \
  extern "C" __global__ void CLUSTER_ALONG_X __launch_bounds__(MOST_THREADS) name##_scattered_of_4(const Arguments<rule::INPUTS> a) { \
    find_place_before_waiting();                                                                                                          \
    softmax_of_scattered<rule, 4>(a);                                                                                                     \
  }
SCATTERED(softmax_forward, Forward)
SCATTERED(softmax_backward, Backward)
