// Reductions of small tensors (3.2.71), so small that everything is read at once.
//
// Floor: a launch, one way to the memory and back, one merge. A thread finds the places of all that it reads, at most READS accesses,
// before it waits for earlier kernels; then all of them are on their way together, and lanes, threads that share elements of C,
// merge: in their warp by shuffles, then through shared memory, then, where a cluster shares elements of C, in its first block's.
// Nothing else lies on the way from the wait to the end: the operation is chosen before it.
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
constexpr unsigned READS = 8;  // of a thread, as in reduce_tensor_small.py
constexpr unsigned LOG_WARP = 5, MOST_THREADS = 1024;
#ifdef CLUSTER_BLOCKS_WANTED
constexpr unsigned BLOCKS = CLUSTER;
#define ACROSS_CLUSTER CLUSTER_ALONG_Y
#else
constexpr unsigned BLOCKS = 1;
#define ACROSS_CLUSTER
#endif

using Access = Pack<ELEMENT, PACK>;
#ifdef STAMPS
__device__ long long stamps[600 * 8];
#define STAMP(i) if (threadIdx.x == 0) stamps[(blockIdx.y * gridDim.x + blockIdx.x) % 600 * 8 + i] = clock64();
#else
#define STAMP(i)
#endif

// What a thread reads and where its results go.
template <bool COLUMNS> struct Share {
  static constexpr unsigned STATES = COLUMNS ? PACK : 1;
  const ELEMENT* place[READS];
  unsigned there = 0;  // which of them exist
  unsigned items, lanes, item, lane;
  unsigned of_c[3];  // offset in C, the others unused
  unsigned elements = 0;  // of C that there are

  __device__ __forceinline__ Share(const Arguments& a, unsigned rank) {
    lanes = 1u << a.lanes_log2, items = blockDim.x >> a.lanes_log2;
    lane = COLUMNS ? threadIdx.x / items : threadIdx.x & (lanes - 1);
    item = COLUMNS ? threadIdx.x & (items - 1) : threadIdx.x >> a.lanes_log2;
    const unsigned which = blockIdx.x * items + item, first = rank << a.lanes_log2 | lane;
    const bool exists = which < a.kept.packs;
    of_c[0] = of_c[2] = 0;
    if (exists) {
      const unsigned count = a.kept.locate(which, of_c);
      elements = COLUMNS ? count : 1;
    }
#pragma unroll
    for (unsigned u = 0; u < READS; u++) {
      const unsigned pack = first + u * (lanes * BLOCKS);
      place[u] = a.a;
      if (!exists || pack >= a.reduced.packs) continue;
      unsigned offset[2];
      a.reduced.locate(pack, offset);
      place[u] += of_c[2] + offset[1];
      there |= 1u << u;
    }
  }
};

// Merges every state of an item across its lanes; then the thread whose lane is s, or s less a multiple of the lanes, has state s.
template <bool COLUMNS, class Reduction, unsigned STATES>
__device__ __forceinline__ void merge_lanes(const Arguments& a, const Reduction& reduction, const Share<COLUMNS>& share, typename Reduction::State (&state)[STATES]) {
  using State = typename Reduction::State;
  const unsigned low = COLUMNS ? __ffs(share.items) - 1 : 0, high = low + a.lanes_log2;  // the bits of a thread's number that are its lane's
#pragma unroll
  for (unsigned bit = 0; bit < LOG_WARP; bit++)
    if (low <= bit && bit < high) {
#pragma unroll
      for (unsigned s = 0; s < STATES; s++) reduction.merge(state[s], from_lane(state[s], 1 << bit));
    }
  if (high <= LOG_WARP) return;
  constexpr unsigned AT_ONCE = 8;
  const unsigned merged = low < LOG_WARP ? LOG_WARP - low : 0, parts = share.lanes >> merged, pitch = STATES * share.items;
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

template <bool COLUMNS> __device__ __forceinline__ void reduce_small(const Arguments& a) {
  constexpr unsigned STATES = Share<COLUMNS>::STATES;
  STAMP(0)
  const unsigned rank = BLOCKS > 1 ? rank_in_cluster() : 0;
  const Share<COLUMNS> share(a, rank);
  // Of a cluster: what its blocks gave for the items, in the first one's shared memory, behind what its own lanes need.
  const unsigned states = STATES * share.items;
  Value* gathered = reinterpret_cast<Value*>(shared_memory) + a.gathered_at;
  Gathering* gathering = reinterpret_cast<Gathering*>(gathered + BLOCKS * states + (BLOCKS * states & 1));
  if (BLOCKS > 1) gathering->prepare(BLOCKS * states * sizeof(Value));
  auto run = [&](const Arguments& a, const auto& reduction) {
    using State = typename std::decay_t<decltype(reduction)>::State;
    STAMP(1)
#ifdef EARLY
    let_next_kernel_begin_if(true);
#endif
#ifdef TAIL
    asm volatile("" ::"f"(a.alpha), "f"(a.beta), "r"(a.c_type), "r"(a.kept.row_stride[0]) : "memory");
#endif
    wait_to_touch(share.place[0], share.place[1], share.place[2], share.place[3], share.place[4], share.place[5], share.place[6], share.place[7]);
    STAMP(2)
    Access loaded[READS];
#pragma unroll
    for (unsigned u = 0; u < READS; u++)
      if (share.there >> u & 1) loaded[u] = *reinterpret_cast<const Access*>(share.place[u]);
    let_next_kernel_begin();
    State state[PACK];
#pragma unroll
    for (unsigned i = 0; i < PACK; i++) state[i] = reduction.start();
#pragma unroll
    for (unsigned u = 0; u < READS; u++)
      if (share.there >> u & 1) {
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
    if constexpr (BLOCKS > 1) {
#pragma unroll
      for (unsigned s = 0; s < STATES; s++)
        if (mine(s)) gathering->send(&gathered[rank * states + s * share.items + share.item].value, own[s].value);
      if (rank != 0) return;
      gathering->wait();
#pragma unroll
      for (unsigned s = 0; s < STATES; s++)
        if (mine(s)) {
          const Value* part = gathered + s * share.items + share.item;
          Value next[BLOCKS];
#pragma unroll
          for (unsigned block = 0; block < BLOCKS; block++) next[block] = part[block * states];
          own[s] = next[0];
#pragma unroll
          for (unsigned block = 1; block < BLOCKS; block++) reduction.merge(own[s], next[block]);
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
  reduce_small<false>(a);
}
extern "C" __global__ void ACROSS_CLUSTER __launch_bounds__(MOST_THREADS) reduce_tensor_small_columns(const Arguments a) {
  find_place_before_waiting();
  reduce_small<true>(a);
}
