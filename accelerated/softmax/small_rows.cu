// Softmax of few rows, forward (3.2.96) and backward (4.1.19), in the registers of clusters: packs of 16 bytes, or
// single elements that lie anywhere.
//
// What a thread has lies one step apart along one dimension, so that all reads are in flight at once. The blocks of a
// cluster exchange states once: every warp sends its state to all blocks. Addresses of operands and of the other
// blocks are computed before the wait.
//
// Roofline: a launch and one way to memory and back; bytes (2 or 3 an element) and flops (some 12) hardly matter.
// Measured (H200), 8 rows of 12544 floats: 1.38 us in a graph, where an empty kernel takes 0.52: 410 to 460 cycles
// until the values are there, 340 until a warp has its maximum and sum, 300 to 400 for the exchange, 470 to merge,
// 100 to 180 to write. History: docs/performance/softmax.md.
#include "softmax/small.cuh"

constexpr unsigned MOST_THREADS = 512, WARP = 32;
constexpr int PARTS = (CLUSTER_SIZE * MOST_THREADS / WARP + WARP - 1) / WARP;  // of a lane

// How a warp sends its state to the other blocks of its cluster.
struct Sending {
  const ClusterExchange* exchange;
  const OnlineState* parts;                    // of every warp of the cluster, and some that change nothing
  ClusterExchange::RemoteAddress destination;  // from a lane to the block of that number
};

template <bool BLENDS, class Rule, int N>
__device__ __forceinline__ void softmax_of_row(const Rule rule, LocatedPacks<Rule, N>& packs, const Sending& sending) {
  const unsigned lane = threadIdx.x % WARP;
  packs.wait();
  packs.start_loads();
  sending.exchange->wait_for_peers();  // while they come
  packs.take();

  OnlineState state[1] = {rule.empty()};
  rule.template cover<true>(state, packs.values);
  const COMPUTE own_maximum = state[0].maximum = row_maximum_of_warp(rule, state[0].maximum);
  rule.template add_covered<true>(state, packs.values);
  griddepcontrol_launch_dependents_with(state[0].sum);
  merge_sums(state, 1, WARP);
  sending.exchange->send(lane < CLUSTER_SIZE, sending.destination, state[0].maximum, state[0].sum);
  sending.exchange->wait();

  OnlineState part[PARTS];
#pragma unroll
  for (int j = 0; j < PARTS; j++) part[j] = sending.parts[lane + j * WARP];
  state[0].maximum = row_maximum_of_warp(rule, maximum_of(rule, rule.empty().maximum, part));
  state[0].sum = sum_below(rule, state[0].maximum, part);
  merge_sums(state, 1, WARP);
  rule.template finish<true>(state[0]);
  rule.scale(state[0], own_maximum);
  packs.template write<BLENDS>(rule, state);
}

template <class Rule, int N> __device__ __forceinline__ void softmax_of_row(const SmallArguments<Rule::INPUTS>& a) {
  const unsigned warps = blockDim.x / WARP, number = cluster_rank() * blockDim.x + threadIdx.x,
                 parts_of_row = CLUSTER_SIZE * warps;
  OnlineState* const parts = reinterpret_cast<OnlineState*>(shared_memory);
  ClusterExchange* const exchange = reinterpret_cast<ClusterExchange*>(parts + WARP * PARTS);
  exchange->init();
  for (unsigned i = parts_of_row + threadIdx.x; i < WARP * PARTS; i += blockDim.x)
    parts[i] = Rule{Algorithm(a.algorithm), a.alpha}.empty();
  exchange->expect(parts_of_row * sizeof(OnlineState));
  LocatedPacks<Rule, N> packs(a, blockIdx.x / CLUSTER_SIZE, number);
  const Sending sending{exchange, parts,
                        exchange->remote_address(&parts[number / WARP].maximum, threadIdx.x % WARP % CLUSTER_SIZE)};
  without_jumps<Rule>(
      a, [&](const Rule rule, auto blends) { softmax_of_row<decltype(blends)::value>(rule, packs, sending); });
}

#define SOFTMAX_SMALL_ROWS(packs)                                           \
  extern "C" __global__ void CLUSTER_DIMS_X __launch_bounds__(MOST_THREADS) \
      softmax_small_rows_forward_##packs(const SmallArguments<1> a) {       \
    griddepcontrol_wait_deferred();                                         \
    softmax_of_row<Forward, packs>(a);                                      \
  }                                                                         \
  extern "C" __global__ void CLUSTER_DIMS_X __launch_bounds__(MOST_THREADS) \
      softmax_small_rows_backward_##packs(const SmallArguments<2> a) {      \
    griddepcontrol_wait_deferred();                                         \
    softmax_of_row<Backward, packs>(a);                                     \
  }
SOFTMAX_SMALL_ROWS(1)
SOFTMAX_SMALL_ROWS(2)
SOFTMAX_SMALL_ROWS(4)
#if PACK_BYTES < 16  // single elements
SOFTMAX_SMALL_ROWS(8)
#endif
