// Reductions of small tensors (3.2.71), so small that everything is read at once. Those to one element: reduce_tensor/to_scalar.cu.
//
// Floor: a launch (0.51 us on an H200 in a graph of many, with one way to L2 and back 0.71); bytes hardly matter. What limits
// it are instructions and steps that wait for each other: by clock64() this kernel, with the arguments and the walks of that for any tensor,
// took 1000 cycles to find its places, 450 for its reads, 400 to merge and 340 to write. What comes before the wait for earlier kernels
// costs as much as what comes behind it, because the next kernel is let in between (a copy took 0.24 us longer for 256 multiplications
// on either side of the wait; letting the next one in at the very beginning made some kernels faster and others up to twice as slow,
// probably because the blocks of many kernels wait side by side and then crowd on few multiprocessors). So
// arguments are few, a thread finds one place, and its accesses, at most MOST_READS, lie one step apart along one dimension, all on
// their way together. Lanes, threads that share elements of C, merge in their warp by shuffles, then through shared memory, then,
// where a cluster shares elements of C, in its first block's. 0.4 MB take 0.9 to 1.3 us so, 1.3 to 1.6 with clusters (in a stream 1.2 to 1.5, 1.5 to 2.0).
// In a stream a call takes the longer of 0.72 us and what comes before the wait, or 0.44 us and what comes behind it (empty kernels that spin on
// either side); here that is what comes behind: a shorter way to the wait changed nothing. So behind it there is one straight way: places are found
// before it, accesses that are missing hold elements that change nothing instead of being asked for, and numbers merge in pairs. That took 0.1 to 0.4 us
// less than branches for every access and every merge, constants read again and a table of jumps.
// Of a sum of 0.4 MB by a cluster of 16 in a stream, a bare kernel cut short took: 1.1 us with nothing behind the wait (launching a cluster takes 0.3
// more than blocks), 1.14 with the reads, 1.2 with sums of warps, 1.39 with those of blocks, which wait for their slowest warp, 1.48 in all. In cycles:
// 600 to 930 until a thread has its accesses, 200 for the shuffles of a warp, 200 for a block, 500 from block to block.
// What took longer: warps that send to the first block of a cluster at once, without a sum of their own block's (0.1 us); polling shared memory instead of a
// barrier that counts bytes (0.15); barriers of the cluster (0.35); lanes that gather instead of a thread (0.08); 8 blocks instead of 16 (0.07); blocks
// without a cluster that meet in memory (polled 0.1, the last to arrive sums 0.6); a rehearsal of all but the reads before the wait (1.2); templates
// of exactly as many reads as there are (up to 0.15). A type of C that the compiler knows (RESULT) instead of one among four took up to 0.1 us less in a
// stream, but 0.02 to 0.09 more where clusters share rows, and 0.03 more in a graph where threads write four elements. Rows that start anywhere have narrow reads only: up to 16 instead of 8 of a thread, so that fewer
// threads merge, took 0.2 us less.
//
// Rows: lanes are neighbours, and what an access brings belongs to one element of C. Columns: items (accesses side by side) are
// neighbours, and every element that an access brings belongs to another element of C.
#ifdef CLUSTER_BLOCKS
#define CLUSTER_BLOCKS_WANTED
#endif
#include <cstring>

#include "primitives/cluster.cuh"
#include "reduce_tensor/accumulators.cuh"

#ifndef PACK_BYTES
#define PACK_BYTES 16
#endif
constexpr unsigned PACK = PACK_BYTES / sizeof(ELEMENT);  // elements of an access
constexpr unsigned FEW_READS = 2, MOST_READS = PACK_BYTES <= 4 ? 16 : 8;  // of a thread, as in reduce_tensor_small.py
constexpr unsigned LOG_WARP = 5, MOST_THREADS = 1024;
#ifdef CLUSTER_BLOCKS_WANTED
constexpr bool CLUSTERED = true;
#define ACROSS_CLUSTER CLUSTER_DIMS_Y
#else
constexpr bool CLUSTERED = false;
#define ACROSS_CLUSTER
#endif

// Positions of at most D dimensions, the fastest first, and their offsets in N operands.
template <int N, int D> struct Digits {
  struct {
    FastDivmod extent;
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
  int op, propagate, c_type;
  unsigned c_step;                // columns: from one element of C to the next
  unsigned gathered_at;           // where in shared memory a cluster meets: so many states behind its start
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

// Merges what lies `apart` from each other, in pairs: fewer steps that wait for each other than one after the other.
template <unsigned COUNT, class Reduction> __device__ __forceinline__ Value merged(const Reduction& reduction, Value (&state)[COUNT]) {
#pragma unroll
  for (unsigned apart = 1; apart < COUNT; apart *= 2)
#pragma unroll
    for (unsigned i = 0; i + apart < COUNT; i += 2 * apart) reduction.merge(state[i], state[i + apart]);
  return state[0];
}

// Merges every state of an item across its lanes, of which there are as many as states or more; then the thread whose lane is s has
// the state s.
template <bool COLUMNS, class Reduction, unsigned STATES>
__device__ __forceinline__ Value merge_lanes(const Arguments& a, const Reduction& reduction, const Share<COLUMNS>& share, Value (&state)[STATES]) {
  const unsigned low = COLUMNS ? a.items_log2 : 0, high = low + a.lanes_log2;  // the bits of a thread's number that are its lane's
  auto across = [&](unsigned lanes) {
#pragma unroll
    for (unsigned s = 0; s < STATES; s++) reduction.merge(state[s], from_lane(state[s], lanes));
  };
  if (!COLUMNS && high >= LOG_WARP) {
#pragma unroll
    for (unsigned bit = 0; bit < LOG_WARP; bit++) across(1 << bit);
  } else {
#pragma unroll 1
    for (unsigned bit = low; bit < min(high, LOG_WARP); bit++) across(1 << bit);
  }
  const unsigned merged_lanes = low < LOG_WARP ? LOG_WARP - low : 0;  // logarithm
  if (a.lanes_log2 <= merged_lanes) {
    Value own = state[0];
#pragma unroll
    for (unsigned s = 1; s < STATES; s++)
      if (share.lane == s) own = state[s];
    return own;
  }
  constexpr unsigned AT_ONCE = 8;
  const unsigned parts = 1u << (a.lanes_log2 - merged_lanes);
  unsigned pitch = STATES << a.items_log2;
  keep_in_register(pitch);
  Value* shared = reinterpret_cast<Value*>(shared_memory) + share.item;  // [part][state][item]
  if ((share.lane & ((1u << merged_lanes) - 1)) == 0) {
    Value* to = shared + (share.lane >> merged_lanes) * pitch;
#pragma unroll
    for (unsigned s = 0; s < STATES; s++) to[s << a.items_log2] = state[s];
  }
  __syncthreads();
  Value own = reduction.start();
  if (share.lane >= STATES) return own;
  const Value* part = shared + (share.lane << a.items_log2);
#pragma unroll 1
  for (unsigned p = 0; p < parts; p += AT_ONCE, part += AT_ONCE * pitch) {
    Value next[AT_ONCE];
#pragma unroll
    for (unsigned u = 0; u < AT_ONCE; u++) {
      next[u] = reduction.start();
      if (p + u < parts) next[u] = part[u * pitch];
    }
    reduction.merge(own, merged(reduction, next));
  }
  return own;
}

// An access, in words, so that a half is not filled in by itself: what is not read holds elements that change nothing.
struct Access {
  using Word = std::conditional_t<PACK_BYTES >= 4, unsigned, std::conditional_t<PACK_BYTES == 2, unsigned short, unsigned char>>;
  using Words = Pack<Word, PACK_BYTES / sizeof(Word)>;
  Words words;

  __device__ __forceinline__ void fill(ELEMENT element) {
    Pack<ELEMENT, PACK> pack;
#pragma unroll
    for (unsigned i = 0; i < PACK; i++) pack.item[i] = element;
    memcpy(&words, &pack, PACK_BYTES);
  }
  __device__ __forceinline__ void read(const ELEMENT* from) { words = *reinterpret_cast<const Words*>(from); }
  __device__ __forceinline__ Pack<ELEMENT, PACK> pack() const {
    Pack<ELEMENT, PACK> pack;
    memcpy(&pack, &words, PACK_BYTES);
    return pack;
  }
};

template <bool COLUMNS, unsigned READS> __device__ __forceinline__ void reduce_small(const Arguments& a) {
  constexpr unsigned STATES = COLUMNS ? PACK : 1;
  const unsigned rank = CLUSTERED ? cluster_rank() : 0, states = STATES << a.items_log2;
  // Of a cluster: what its blocks gave for the items, in the first one's shared memory, behind what its own lanes need.
  Value* gathered = reinterpret_cast<Value*>(shared_memory) + a.gathered_at;
  ClusterGather* gathering = reinterpret_cast<ClusterGather*>(gathered + CLUSTER_SIZE * states + (CLUSTER_SIZE * states & 1));
  if (CLUSTERED) gathering->init_and_expect(CLUSTER_SIZE * states * sizeof(Value));
  const Share<COLUMNS> share(a, rank);
  auto run = [&](const Arguments& a, const auto& reduction) {
    const int c_type = a.c_type;
    unsigned own_type = c_type == OWN_TYPE;
    Access access[READS];
    const ELEMENT nothing = store<ELEMENT>(reduction.nothing());
    unsigned at[READS], touched = 0;
#pragma unroll
    for (unsigned u = 0; u < READS; u++) at[u] = share.first + u * a.step, touched |= at[u], access[u].fill(nothing);
    const unsigned place = (share.lane << a.items_log2) + share.item;
    Value* to = gathered + rank * states + place;
    ClusterGather* meeting = gathering;
    if (CLUSTERED) keep_shared_pointer(to), keep_shared_pointer(meeting);
    keep_in_register(own_type);
    griddepcontrol_wait_before_access(a.a + touched, static_cast<const char*>(a.c) + share.of_c);
#pragma unroll
    for (unsigned u = 0; u < READS; u++)
      if (u < share.count) access[u].read(a.a + at[u]);
    Value state[PACK], own[STATES];
#pragma unroll
    for (unsigned i = 0; i < PACK; i++) state[i] = reduction.start();
#pragma unroll
    for (unsigned u = 0; u < READS; u++) {
      const Pack<ELEMENT, PACK> pack = access[u].pack();
#pragma unroll
      for (unsigned i = 0; i < PACK; i++) reduction.add(state[i], load<COMPUTE>(pack.item[i]), 0);
    }
    if constexpr (COLUMNS) memcpy(own, state, sizeof own);
    else own[0] = merged(reduction, state);
    auto write = [&](unsigned s, Value value) {
      auto to = [&](auto* c) {
        auto* place = c + (share.of_c + s * a.c_step);
        *place = blend<COMPUTE>(a.alpha, result(reduction, value), a.beta, place);
      };
#ifdef RESULT
      to(static_cast<RESULT*>(a.c));
#else
      if (own_type) to(static_cast<ELEMENT*>(a.c));
      else if (c_type == FLOAT) to(static_cast<float*>(a.c));
      else if (c_type == HALF) to(static_cast<half*>(a.c));
      else if (c_type == DOUBLE) to(static_cast<double*>(a.c));
      else to(static_cast<int8*>(a.c));
#endif
    };
    if (!CLUSTERED && STATES > 1 && a.lanes_log2 == 0) {
      if (share.exists)
#pragma unroll
        for (unsigned s = 0; s < STATES; s++) write(s, own[s]);
      return;
    }
    Value sum = merge_lanes<COLUMNS>(a, reduction, share, own);
    if (CLUSTERED) {
      if (share.lane < STATES) meeting->send(&to->value, sum.value);
      if (rank != 0) return;
      meeting->wait();
      if (share.lane >= STATES) return;
      unsigned pitch = states;
      keep_in_register(pitch);
      Value next[CLUSTER_SIZE];
#pragma unroll
      for (unsigned block = 0; block < CLUSTER_SIZE; block++) next[block] = to[block * pitch];
      sum = merged(reduction, next);
    }
    if (share.exists && share.lane < STATES) write(share.lane, sum);
  };
  PLAIN(run)
}

extern "C" __global__ void ACROSS_CLUSTER __launch_bounds__(MOST_THREADS, 1) reduce_tensor_small_rows(const Arguments a) {
  griddepcontrol_wait_deferred();
  if (a.accesses <= FEW_READS) reduce_small<false, FEW_READS>(a);
  else reduce_small<false, MOST_READS>(a);
}
extern "C" __global__ void ACROSS_CLUSTER __launch_bounds__(MOST_THREADS, 1) reduce_tensor_small_columns(const Arguments a) {
  griddepcontrol_wait_deferred();
  if (a.accesses <= FEW_READS) reduce_small<true, FEW_READS>(a);
  else reduce_small<true, MOST_READS>(a);
}
