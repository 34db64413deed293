// Reductions of small tensors (3.2.71), so small that everything is read at once.
//
// Floor: a launch (0.51 us on an H200 in a graph of many, with one way to the second cache and back 0.71); bytes hardly matter. What limits
// it are instructions and steps that wait for each other: by clock64() this kernel, with the arguments and the walks of that for any tensor,
// took 1000 cycles to find its places, 450 for its reads, 400 to merge and 340 to write. What comes before the wait for earlier kernels
// costs as much as what comes behind it, because the next kernel is let in between (a copy took 0.24 us longer for 256 multiplications
// on either side of the wait; letting the next one in at the very beginning made some kernels faster and others up to twice as slow,
// probably because the blocks of many kernels wait side by side and then crowd on few multiprocessors). So
// arguments are few, a thread finds one place, and its accesses, at most MOST_READS, lie one step apart along one dimension, all on
// their way together. Lanes, threads that share elements of C, merge in their warp by shuffles, then through shared memory, then,
// where a cluster shares elements of C, in its first block's. 0.4 MB took 1.0 to 1.4 us so, 1.5 to 2.1 with clusters, before 1.7 to 4.4.
//
// Rows: lanes are neighbours, and what an access brings belongs to one element of C. Columns: items (accesses side by side) are
// neighbours, and every element that an access brings belongs to another element of C.
#ifdef CLUSTER_BLOCKS
#define CLUSTER_BLOCKS_WANTED
#endif
#include "cluster.cuh"
#include "reduction.cuh"

#ifndef PACK_BYTES
#define PACK_BYTES 16
#endif
constexpr unsigned PACK = PACK_BYTES / sizeof(ELEMENT);  // elements of an access
constexpr unsigned FEW_READS = 2, MOST_READS = 8;         // of a thread, as in reduce_tensor_small.py
constexpr unsigned LOG_WARP = 5, MOST_THREADS = 1024;
#ifdef CLUSTER_BLOCKS_WANTED
constexpr bool CLUSTERED = true;
#define ACROSS_CLUSTER CLUSTER_ALONG_Y
#else
constexpr bool CLUSTERED = false;
#define ACROSS_CLUSTER
#endif

// Positions of at most D dimensions, the fastest first, and their offsets in N operands.
template <int N, int D> struct Digits {
  struct {
    Divisor extent;
    unsigned stride[N];
  } digit[D];

  __device__ __forceinline__ void locate(unsigned index, unsigned (&offset)[N], unsigned (&position)[D]) const {
    unsigned rest = index;
#pragma unroll
    for (int d = 0; d < D - 1; d++) rest = digit[d].extent.divide(rest, position[d]);
    position[D - 1] = rest;
#pragma unroll
    for (int n = 0; n < N; n++) offset[n] = 0;
#pragma unroll
    for (int d = 0; d < D; d++)
#pragma unroll
      for (int n = 0; n < N; n++) offset[n] += position[d] * digit[d].stride[n];
  }
};

struct Arguments {
  const ELEMENT* a;
  void* c;
  unsigned lanes_log2, items_log2;
  unsigned packs;                 // of C: accesses side by side, or elements
  unsigned shares;                // of a reduction: what its threads read first
  unsigned accesses, step;        // of a thread: how many, and elements from one to the next
  unsigned split, last;           // the dimension along which they lie; from which position on the last one is missing
  Digits<1, 4> reduced;             // offsets in A
  Digits<2, 3> kept;              // offsets in A and C
  COMPUTE alpha, beta;
  unsigned length;                // elements of A that one element of C reduces
  int op, propagate, c_type;
  unsigned c_step;                // columns: from one element of C to the next
};

// What a thread reads (offset in A) and where its results go.
template <bool COLUMNS> struct Share {
  unsigned lane, item, first = 0, of_c = 0;
  unsigned count = 0;   // of accesses
  bool exists = false;  // the element of C

  __device__ __forceinline__ Share(const Arguments& a, unsigned rank) {
    lane = COLUMNS ? threadIdx.x >> a.items_log2 : threadIdx.x & ((1u << a.lanes_log2) - 1);
    item = COLUMNS ? threadIdx.x & ((1u << a.items_log2) - 1) : threadIdx.x >> a.lanes_log2;
    const unsigned which = (blockIdx.x << a.items_log2) + item, share = rank << a.lanes_log2 | lane;
    unsigned kept[2], reduced[1], of_kept[3], position[4];
    a.kept.locate(which, kept, of_kept);
    a.reduced.locate(share, reduced, position);
    exists = which < a.packs;
    if (exists) of_c = kept[1];
    if (!exists || share >= a.shares) return;
    first = kept[0] + reduced[0];
    count = a.accesses - ((a.split == 0 ? position[0] : a.split == 1 ? position[1] : a.split == 2 ? position[2] : position[3]) >= a.last);
  }
};

// How the lanes of an item lie: in parts, each of lanes that are in one warp.
template <bool COLUMNS> struct Parts {
  unsigned low, merged;  // the first bit of a thread's number that is its lane's; the logarithm of the lanes of a part
  unsigned count, own, lane;  // how many parts; this thread's; its lane there

  __device__ __forceinline__ Parts(const Arguments& a, unsigned share_lane) {
    low = COLUMNS ? a.items_log2 : 0;
    merged = low < LOG_WARP ? min(LOG_WARP - low, a.lanes_log2) : 0;
    count = 1u << (a.lanes_log2 - merged);
    own = share_lane >> merged, lane = share_lane & ((1u << merged) - 1);
  }
  // Merges the states of the lanes of a part into each.
  template <class Reduction> __device__ __forceinline__ void merge(const Reduction& reduction, Value& state) const {
#pragma unroll
    for (unsigned bit = 0; bit < LOG_WARP; bit++)
      if (bit >= low && bit < low + merged) reduction.merge(state, from_lane(state, 1 << bit));
  }
  // Which part has state s in the end, in its first lane.
  __device__ __forceinline__ bool has(unsigned s) const { return own == (s & (count - 1)); }
};

// Merges every `step`-th of `count` values that lie `pitch` apart.
template <class Reduction>
__device__ __forceinline__ Value merge_values(const Reduction& reduction, const Value* values, unsigned first, unsigned count, unsigned step, unsigned pitch) {
  constexpr unsigned AT_ONCE = 8;
  Value sum = reduction.start();
#pragma unroll 1
  for (unsigned p = first; p < count; p += AT_ONCE * step) {
    Value next[AT_ONCE];
#pragma unroll
    for (unsigned u = 0; u < AT_ONCE; u++)
      if (p + u * step < count) next[u] = values[(p + u * step) * pitch];
#pragma unroll
    for (unsigned u = 0; u < AT_ONCE; u++)
      if (p + u * step < count) reduction.merge(sum, next[u]);
  }
  return sum;
}

// The result of a reduction, which is known here: no choice is left for the end.
template <class Reduction> __device__ __forceinline__ COMPUTE result(const Arguments& a, const Reduction&, Value state) {
  if constexpr (std::is_same_v<Reduction, Sum<Square>>) return sqrt(state.value);
  else if constexpr (std::is_same_v<Reduction, Largest<Negative, false>> || std::is_same_v<Reduction, Largest<Negative, true>>) return -state.value;
  else if constexpr (std::is_same_v<Reduction, Sum<Itself>>) return a.op == AVG ? state.value / COMPUTE(a.length) : state.value;
  else return state.value;
}

template <bool COLUMNS, unsigned READS> __device__ __forceinline__ void reduce_small(const Arguments& a) {
  constexpr unsigned STATES = COLUMNS ? PACK : 1;
  const unsigned rank = CLUSTERED ? rank_in_cluster() : 0;
  const Share<COLUMNS> share(a, rank);
  const Parts<COLUMNS> parts(a, share.lane);
  // What all parts gave, of all blocks of a cluster in the first one's shared memory: [part][state][item].
  const unsigned pitch = STATES << a.items_log2, given = (CLUSTERED ? CLUSTER : 1) * parts.count;
  Value* gathered = reinterpret_cast<Value*>(shared_memory);
  Gathering* gathering = reinterpret_cast<Gathering*>(gathered + given * pitch + (given * pitch & 1));
  if (CLUSTERED) gathering->prepare(given * pitch * sizeof(Value));
  auto run = [&](const Arguments& a, const auto& reduction) {
    wait_to_touch(a.a + share.first, static_cast<const char*>(a.c) + share.of_c);
    Pack<ELEMENT, PACK> loaded[READS];
#pragma unroll
    for (unsigned u = 0; u < READS; u++)
      if (u < share.count) loaded[u] = *reinterpret_cast<const Pack<ELEMENT, PACK>*>(a.a + (share.first + u * a.step));
    let_next_kernel_begin();
    Value state[PACK], own[STATES];
#pragma unroll
    for (unsigned i = 0; i < PACK; i++) state[i] = reduction.start();
#pragma unroll
    for (unsigned u = 0; u < READS; u++)
      if (u < share.count) {
#pragma unroll
        for (unsigned i = 0; i < PACK; i++) reduction.add(state[i], load<COMPUTE>(loaded[u].item[i]), 0);
      }
#pragma unroll
    for (unsigned i = 0; i < PACK; i++)
      if (i < STATES) own[i] = state[i];
      else reduction.merge(own[0], state[i]);
#pragma unroll
    for (unsigned s = 0; s < STATES; s++) parts.merge(reduction, own[s]);
    if (CLUSTERED || parts.count > 1) {
      Value* place = gathered + ((rank * parts.count + parts.own) * pitch + share.item);
      if (parts.lane == 0) {
#pragma unroll
        for (unsigned s = 0; s < STATES; s++)
          if (CLUSTERED) gathering->send(&place[s << a.items_log2].value, own[s].value);
          else place[s << a.items_log2] = own[s];
      }
      if (rank != 0) return;
      if (CLUSTERED) gathering->wait();
      else __syncthreads();
#pragma unroll
      for (unsigned s = 0; s < STATES; s++)
        if (parts.has(s)) {  // the few of a block by one lane: shuffles take longer
          const Value* values = gathered + (s << a.items_log2) + share.item;
          if (CLUSTERED) own[s] = merge_values(reduction, values, parts.lane, given, 1u << parts.merged, pitch), parts.merge(reduction, own[s]);
          else if (parts.lane == 0) own[s] = merge_values(reduction, values, 0, given, 1, pitch);
        }
    }
    auto mine = [&](unsigned s) { return parts.lane == 0 && parts.has(s); };
    if (!share.exists) return;
    auto write = [&](auto* c) {
#pragma unroll
      for (unsigned s = 0; s < STATES; s++) {
        auto* place = c + (share.of_c + s * a.c_step);
        if (mine(s)) *place = blend<COMPUTE>(a.alpha, result(a, reduction, own[s]), a.beta, place);
      }
    };
    if (a.c_type == OWN_TYPE) write(static_cast<ELEMENT*>(a.c));
    else if (a.c_type == FLOAT) write(static_cast<float*>(a.c));
    else if (a.c_type == HALF) write(static_cast<half*>(a.c));
    else if (a.c_type == DOUBLE) write(static_cast<double*>(a.c));
    else write(static_cast<int8*>(a.c));
  };
  PLAIN(run)
}

extern "C" __global__ void ACROSS_CLUSTER __launch_bounds__(MOST_THREADS, 1) reduce_tensor_small_rows(const Arguments a) {
  find_place_before_waiting();
  if (a.accesses <= FEW_READS) reduce_small<false, FEW_READS>(a);
  else reduce_small<false, MOST_READS>(a);
}
extern "C" __global__ void ACROSS_CLUSTER __launch_bounds__(MOST_THREADS, 1) reduce_tensor_small_columns(const Arguments a) {
  find_place_before_waiting();
  if (a.accesses <= FEW_READS) reduce_small<true, FEW_READS>(a);
  else reduce_small<true, MOST_READS>(a);
}
