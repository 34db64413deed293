// Softmax of few lines whose elements lie anywhere (rows with gaps, any strides): the registers of a cluster's blocks hold a line.
//
// Floor: a launch and one way to the memory and back. Every thread finds the places of its elements before it waits for earlier
// kernels; then all reads are on their way at once. The blocks agree once: each sends its statistic to all.
#ifdef CLUSTER_BLOCKS
#define CLUSTER_BLOCKS_WANTED
#endif
#include "softmax.cuh"

constexpr unsigned MOST_THREADS = 512;

// N elements of a thread.
template <class Rule, int N> __device__ __forceinline__ void softmax_of_scattered(const Arguments<Rule::INPUTS>& a) {
  constexpr int INPUTS = Rule::INPUTS;
  const Rule rule{Algorithm(a.algorithm), a.alpha};
  const unsigned threads = blockDim.x, lane = threadIdx.x % 32, warps = threads / 32, length = a.along.packs;
  const unsigned first = rank_in_cluster() * N * threads + threadIdx.x;
  Statistic* const parts = reinterpret_cast<Statistic*>(shared_memory);  // of every warp of the block, then of every block
  Statistic* const of_blocks = parts + 32;
  Exchange* const exchange = reinterpret_cast<Exchange*>(of_blocks + CLUSTER);
  exchange->prepare(CLUSTER * sizeof(Statistic));

  unsigned line_offset[INPUTS + 1], offset[N][INPUTS + 1];
  a.lines.locate(blockIdx.x / CLUSTER, line_offset);
#pragma unroll
  for (int k = 0; k < N; k++) {
    a.along.locate(min(first + k * threads, length - 1), offset[k]);
#pragma unroll
    for (int n = 0; n <= INPUTS; n++) offset[k][n] += line_offset[n];
  }
  auto exists = [&](int k) { return first + k * threads < length; };
  if constexpr (N == 2) wait_to_touch(a.input[0] + offset[0][0], a.input[0] + offset[1][0], a.output + offset[0][INPUTS], a.output + offset[1][INPUTS]);
  else
    wait_to_touch(a.input[0] + offset[0][0], a.input[0] + offset[1][0], a.input[0] + offset[2][0], a.input[0] + offset[3][0], a.output + offset[0][INPUTS],
                  a.output + offset[1][INPUTS], a.output + offset[2][INPUTS], a.output + offset[3][INPUTS]);

  ELEMENT held[INPUTS][N];
#pragma unroll
  for (int k = 0; k < N; k++)
#pragma unroll
    for (int n = 0; n < INPUTS; n++)
      if (exists(k)) held[n][k] = a.input[n][offset[k][n]];
  let_next_kernel_begin();

  COMPUTE values[INPUTS][N], result[N];
#pragma unroll
  for (int n = 0; n < INPUTS; n++)
#pragma unroll
    for (int k = 0; k < N; k++) values[n][k] = exists(k) ? load<COMPUTE>(held[n][k]) : Rule::neutral();
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
    if (!exists(k)) continue;
    ELEMENT* const target = a.output + offset[k][INPUTS];
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
