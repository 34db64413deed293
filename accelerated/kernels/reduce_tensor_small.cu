// Reductions of small tensors (3.2.71), so small that everything is read at once.
//
// Floor: a launch, one way to the memory and back, one merge. A thread finds the place of its first access before it waits for earlier
// kernels; the others, at most READS, lie one step apart along one dimension, so that all are on their way together with few
// instructions. Lanes, threads that share elements of C, merge in their warp by shuffles, then through shared memory, then, where a
// cluster shares elements of C, in its first block's. Instructions are what limits it: a thread has a few elements, and every
// multiprocessor some of the threads. The operation is chosen before the wait.
//
// Rows: lanes are neighbours, and what an access brings belongs to one element of C. Columns: items (accesses side by side) are
// neighbours, and every element that an access brings belongs to another element of C.
#ifdef CLUSTER_BLOCKS
#define CLUSTER_BLOCKS_WANTED
#endif
#include "cluster.cuh"
#include "reduce_tensor.cuh"

#ifndef PACK
#define PACK 1  // elements of an access
#endif
constexpr unsigned FEW_READS = 2, MOST_READS = 8;  // of a thread, as in reduce_tensor_small.py
constexpr unsigned LOG_WARP = 5, MOST_THREADS = 1024;
#ifdef CLUSTER_BLOCKS_WANTED
constexpr bool CLUSTERED = true;
#define ACROSS_CLUSTER CLUSTER_ALONG_Y
#else
constexpr bool CLUSTERED = false;
#define ACROSS_CLUSTER
#endif

using Access = Pack<ELEMENT, PACK>;
#ifndef EMULATED_CUDA
__device__ long long stamps[600 * 8];
#define STAMP(i) if ((a.index_bytes & 512) && threadIdx.x == 0) stamps[(blockIdx.y * gridDim.x + blockIdx.x) % 600 * 8 + i] = clock64();
#else
#define STAMP(i)
#endif

// What a thread reads (offset in A) and where its results go.
template <bool COLUMNS> struct Share {
  static constexpr unsigned STATES = COLUMNS ? PACK : 1;
  unsigned first, step, count = 0;  // offset in A; from one access to the next; how many there are
  unsigned items, lanes, item, lane;
  unsigned of_c[3];       // offset in C, the others unused
  unsigned elements = 0;  // of C that there are

  __device__ __forceinline__ Share(const Arguments& a, unsigned rank) {
    lanes = 1u << a.lanes_log2, items = blockDim.x >> a.lanes_log2;
    lane = COLUMNS ? threadIdx.x / items : threadIdx.x & (lanes - 1);
    item = COLUMNS ? threadIdx.x & (items - 1) : threadIdx.x >> a.lanes_log2;
    const unsigned which = blockIdx.x * items + item, pack = rank << a.lanes_log2 | lane;
    first = 0, step = a.reduced.item_stride[1];
    of_c[0] = of_c[2] = 0;
    if (which >= a.kept.packs) return;
    const unsigned side_by_side = a.kept.locate(which, of_c);
    elements = COLUMNS ? side_by_side : 1;
    if (pack >= a.reduced.packs) return;
    unsigned offset[2], position;
    a.reduced.locate(pack, offset, position);
    first = of_c[2] + offset[1];
    // Only the last may lie beyond the end.
    count = a.reduced.items - (position + (a.reduced.items - 1) * a.reduced.apart >= a.reduced.limit);
  }
};

// Merges every state of an item across its lanes; then the thread whose lane is s, or s less a multiple of the lanes, has state s.
template <bool COLUMNS, class Reduction, unsigned STATES>
__device__ __forceinline__ void merge_lanes(const Arguments& a, const Reduction& reduction, const Share<COLUMNS>& share, typename Reduction::State (&state)[STATES]) {
  using State = typename Reduction::State;
  const unsigned low = COLUMNS ? __ffs(share.items) - 1 : 0, high = low + a.lanes_log2;  // the bits of a thread's number that are its lane's
#pragma unroll
  for (unsigned bit = 0; bit < LOG_WARP; bit++)
    if (bit >= low && bit < high) {
#pragma unroll
      for (unsigned s = 0; s < STATES; s++) reduction.merge(state[s], from_lane(state[s], 1 << bit));
    }
  const unsigned merged = low < LOG_WARP ? LOG_WARP - low : 0;
  if (a.lanes_log2 <= merged) return;
  constexpr unsigned AT_ONCE = 8;
  const unsigned parts = share.lanes >> merged, pitch = STATES * share.items;
  State* shared = reinterpret_cast<State*>(shared_memory);  // [part][state][item]
  if ((share.lane & ((1u << merged) - 1)) == 0) {
#pragma unroll
    for (unsigned s = 0; s < STATES; s++) shared[(share.lane >> merged) * pitch + s * share.items + share.item] = state[s];
  }
  __syncthreads();
#pragma unroll
  for (unsigned s = 0; s < STATES; s++)
    if (share.lane == (s & (share.lanes - 1))) {
      const State* part = shared + s * share.items + share.item;
      State sum = part[0];
      for (unsigned p = 1; p < parts; p += AT_ONCE) {
        State next[AT_ONCE];
#pragma unroll
        for (unsigned u = 0; u < AT_ONCE; u++)
          if (p + u < parts) next[u] = part[(p + u) * pitch];
#pragma unroll
        for (unsigned u = 0; u < AT_ONCE; u++)
          if (p + u < parts) reduction.merge(sum, next[u]);
      }
      state[s] = sum;
    }
}

template <bool COLUMNS, unsigned READS> __device__ __forceinline__ void reduce_small(const Arguments& a) {
  constexpr unsigned STATES = Share<COLUMNS>::STATES;
  STAMP(0)
  let_next_kernel_begin_if(a.index_bytes & 256);
  const unsigned rank = CLUSTERED ? rank_in_cluster() : 0;
  const Share<COLUMNS> share(a, rank);
  // Of a cluster: what its blocks gave for the items, in the first one's shared memory, behind what its own lanes need.
  const unsigned states = STATES * share.items;
  Value* gathered = reinterpret_cast<Value*>(shared_memory) + a.gathered_at;
  Gathering* gathering = reinterpret_cast<Gathering*>(gathered + CLUSTER * states + (CLUSTER * states & 1));
  if (CLUSTERED) gathering->prepare(CLUSTER * states * sizeof(Value));
  auto run = [&](const Arguments& a, const auto& reduction) {
    using State = typename std::decay_t<decltype(reduction)>::State;
    STAMP(1)
    wait_to_touch(a.a + share.first, static_cast<const char*>(a.c) + share.of_c[0]);
    STAMP(2)
    Access loaded[READS];
#pragma unroll
    for (unsigned u = 0; u < READS; u++)
      if (u < share.count) loaded[u] = *reinterpret_cast<const Access*>(a.a + (share.first + u * share.step));
    let_next_kernel_begin();
    State state[PACK];
#pragma unroll
    for (unsigned i = 0; i < PACK; i++) state[i] = reduction.start();
#pragma unroll
    for (unsigned u = 0; u < READS; u++)
      if (u < share.count) {
#pragma unroll
        for (unsigned i = 0; i < PACK; i++) reduction.add(state[i], load<COMPUTE>(loaded[u].item[i]), 0);
      }
    State own[STATES];
#pragma unroll
    for (unsigned i = 0; i < PACK; i++)
      if (i < STATES) own[i] = state[i];
      else reduction.merge(own[0], state[i]);
    STAMP(3)
    merge_lanes<COLUMNS>(a, reduction, share, own);
    STAMP(4)
    auto mine = [&](unsigned s) { return share.lane == (s & (share.lanes - 1)); };
    if constexpr (CLUSTERED) {
#pragma unroll
      for (unsigned s = 0; s < STATES; s++)
        if (mine(s)) gathering->send(&gathered[rank * states + s * share.items + share.item].value, own[s].value);
      if (rank != 0) return;
      gathering->wait();
#pragma unroll
      for (unsigned s = 0; s < STATES; s++)
        if (mine(s)) {
          const Value* part = gathered + s * share.items + share.item;
          Value next[CLUSTER];
#pragma unroll
          for (unsigned block = 0; block < CLUSTER; block++) next[block] = part[block * states];
          own[s] = next[0];
#pragma unroll
          for (unsigned block = 1; block < CLUSTER; block++) reduction.merge(own[s], next[block]);
        }
    }
    STAMP(5)
    if constexpr (COLUMNS && PACK == WIDTH)
      if (a.alone && share.lanes == 1 && share.elements == PACK && reinterpret_cast<uintptr_t>(a.c) % 16 == 0) return conclude_pack(a, own, share.of_c[0]);
#pragma unroll
    for (unsigned s = 0; s < STATES; s++)
      if (mine(s) && s < share.elements) conclude(a, own[s], share.of_c[0] + s * a.kept.row_stride[0], 0);
    STAMP(6)
  };
  PLAIN(run)
}

extern "C" __global__ void ACROSS_CLUSTER __launch_bounds__(MOST_THREADS) reduce_tensor_small_rows(const Arguments a) {
  find_place_before_waiting();
  if (a.reduced.items <= FEW_READS) reduce_small<false, FEW_READS>(a);
  else reduce_small<false, MOST_READS>(a);
}
extern "C" __global__ void ACROSS_CLUSTER __launch_bounds__(MOST_THREADS) reduce_tensor_small_columns(const Arguments a) {
  find_place_before_waiting();
  if (a.reduced.items <= FEW_READS) reduce_small<true, FEW_READS>(a);
  else reduce_small<true, MOST_READS>(a);
}
