// These kernels reduce small tensors (3.2.71), whose loads are all in flight at once.
//
// Arguments are few. Each thread computes one offset, and has at most MAX_READS equidistant accesses along one
// dimension. Lanes (threads that share elements of C) merge by shuffles in their warp, then through shared memory. In
// clusters they merge through the shared memory of the first block. After the wait for earlier kernels there are no
// branches: offsets are computed before it, missing accesses hold neutral elements, and numbers merge in pairs. Rows:
// lanes are neighbouring threads, and an access belongs to one element of C. Columns: items (neighbouring accesses)
// belong to neighbouring threads, and each element of an access belongs to another element of C.
//
// Roofline: the latency of a launch (0.51 us on an H200 in a graph of many, 0.71 with a round trip to L2); bytes and
// flops hardly matter. 0.4 MB take 0.9 to 1.3 us, and 1.3 to 1.6 us with clusters. See
// docs/performance/reduce_tensor.md.
#include <cstring>

#ifdef CLUSTER_BLOCKS
#define CLUSTER_BLOCKS_WANTED
#endif

#include "primitives/cluster.cuh"
#include "reduce_tensor/accumulators.cuh"

#ifndef VECTOR_BYTES
#define VECTOR_BYTES 16
#endif
constexpr unsigned VECTOR = VECTOR_BYTES / sizeof(ELEMENT);                // elements per access
constexpr unsigned FEW_READS = 2, MAX_READS = VECTOR_BYTES <= 4 ? 16 : 8;  // per thread, as in reduce_tensor/small.py
constexpr unsigned LOG_WARP = 5, MAX_THREADS = 1024;
#ifdef CLUSTER_BLOCKS_WANTED
constexpr bool CLUSTERED = true;
#define ACROSS_CLUSTER CLUSTER_DIMS_Y
#else
constexpr bool CLUSTERED = false;
#define ACROSS_CLUSTER
#endif

// Converts an index to positions of at most D dimensions, fastest first, and to offsets in N operands.
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
  unsigned vectors;         // neighbouring accesses (columns) or elements (rows) of C
  unsigned shares;          // first accesses per reduction, one per thread
  unsigned accesses, step;  // accesses per thread, and elements from one to the next
  unsigned split, last;     // dimension of the accesses; position from which the last one is missing
  Digits<1, 4> reduced;     // offsets in A
  Digits<2, 3> kept;        // offsets in A and C
  COMPUTE alpha, beta;
  int op, propagate, c_type;
  unsigned c_step;       // columns: distance of neighbouring elements of C
  unsigned gathered_at;  // offset of the cluster's states in shared memory, in states
};

// Holds the offsets of a thread in A and C.
template <bool COLUMNS> struct Share {
  unsigned lane, item, first = 0, of_c = 0;
  unsigned count = 0;   // number of accesses
  bool exists = false;  // whether the element of C exists

  __device__ __forceinline__ Share(const Arguments& a, unsigned rank) {
    lane = COLUMNS ? threadIdx.x >> a.items_log2 : threadIdx.x & ((1u << a.lanes_log2) - 1);
    item = COLUMNS ? threadIdx.x & ((1u << a.items_log2) - 1) : threadIdx.x >> a.lanes_log2;
    const unsigned which = (blockIdx.x << a.items_log2) + item, share = rank << a.lanes_log2 | lane;
    unsigned kept[2], reduced[1], of_kept[3], position[4];
    a.kept.locate(which, kept, of_kept);
    a.reduced.locate(share, reduced, position);
    exists = which < a.vectors;
    if (exists) of_c = kept[1];
    if (!exists || share >= a.shares) return;
    first = kept[0] + reduced[0];
    count = a.accesses - ((a.split == 0   ? position[0]
                           : a.split == 1 ? position[1]
                           : a.split == 2 ? position[2]
                                          : position[3]) >= a.last);
  }
};

// Merges states in pairs, `apart` from each other, which gives a shorter dependency chain than a sequence.
template <unsigned COUNT, class Reduction>
__device__ __forceinline__ Value merged(const Reduction& reduction, Value (&state)[COUNT]) {
#pragma unroll
  for (unsigned apart = 1; apart < COUNT; apart *= 2)
#pragma unroll
    for (unsigned i = 0; i + apart < COUNT; i += 2 * apart) reduction.merge(state[i], state[i + apart]);
  return state[0];
}

// Merges every state of an item across its lanes; lane s then has state s. An item has at least STATES lanes.
template <bool COLUMNS, class Reduction, unsigned STATES>
__device__ __forceinline__ Value merge_lanes(const Arguments& a, const Reduction& reduction,
                                             const Share<COLUMNS>& share, Value (&state)[STATES]) {
  const unsigned low = COLUMNS ? a.items_log2 : 0,
                 high = low + a.lanes_log2;  // bits [low, high) of a thread's index are its lane
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
  const unsigned merged_lanes = low < LOG_WARP ? LOG_WARP - low : 0;  // log2 of the lanes merged in a warp
  if (a.lanes_log2 <= merged_lanes) return state[0];                  // Several states need more lanes.
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

// Loads an access as words, so that elements of type half are not selected one by one. A missing access holds neutral
// elements.
struct Access {
  using Word = std::conditional_t<VECTOR_BYTES >= 4, unsigned,
                                  std::conditional_t<VECTOR_BYTES == 2, unsigned short, unsigned char>>;
  using Words = Vector<Word, VECTOR_BYTES / sizeof(Word)>;
  Words words;

  __device__ __forceinline__ void fill(ELEMENT element) {
    Vector<ELEMENT, VECTOR> vector;
#pragma unroll
    for (unsigned i = 0; i < VECTOR; i++) vector.item[i] = element;
    memcpy(&words, &vector, VECTOR_BYTES);
  }
  __device__ __forceinline__ void read(const ELEMENT* from) { words = *reinterpret_cast<const Words*>(from); }
  __device__ __forceinline__ Vector<ELEMENT, VECTOR> vector() const {
    Vector<ELEMENT, VECTOR> vector;
    memcpy(&vector, &words, VECTOR_BYTES);
    return vector;
  }
};

template <bool COLUMNS, unsigned READS> __device__ __forceinline__ void reduce_small(const Arguments& a) {
  constexpr unsigned STATES = COLUMNS ? VECTOR : 1;
  const unsigned rank = CLUSTERED ? cluster_rank() : 0, states = STATES << a.items_log2;
  // In a cluster, the first block's shared memory collects the states of all blocks, after its own lanes' states.
  Value* gathered = reinterpret_cast<Value*>(shared_memory) + a.gathered_at;
  ClusterGather* gathering =
      reinterpret_cast<ClusterGather*>(gathered + CLUSTER_SIZE * states + (CLUSTER_SIZE * states & 1));
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
    const unsigned slot = (share.lane << a.items_log2) + share.item;
    Value* to = gathered + rank * states + slot;
    ClusterGather* gather = gathering;
    if (CLUSTERED) keep_shared_pointer(to), keep_shared_pointer(gather);
    keep_in_register(own_type);
    griddepcontrol_wait_before_access(a.a + touched, static_cast<const char*>(a.c) + share.of_c);
#pragma unroll
    for (unsigned u = 0; u < READS; u++)
      if (u < share.count) access[u].read(a.a + at[u]);
    Value state[VECTOR], own[STATES];
#pragma unroll
    for (unsigned i = 0; i < VECTOR; i++) state[i] = reduction.start();
#pragma unroll
    for (unsigned u = 0; u < READS; u++) {
      const Vector<ELEMENT, VECTOR> vector = access[u].vector();
#pragma unroll
      for (unsigned i = 0; i < VECTOR; i++) reduction.add(state[i], load<COMPUTE>(vector.item[i]), 0);
    }
    if constexpr (COLUMNS) memcpy(own, state, sizeof own);
    else own[0] = merged(reduction, state);
    auto write = [&](unsigned s, Value value) {
      auto to = [&](auto* c) {
        auto* target = c + (share.of_c + s * a.c_step);
        *target = blend<COMPUTE>(a.alpha, result(reduction, value), a.beta, target);
      };
#ifdef RESULT
      to(static_cast<RESULT*>(a.c));
#else
      if (own_type) to(static_cast<ELEMENT*>(a.c));
      else if (c_type == FLOAT) to(static_cast<float*>(a.c));
      else if (c_type == HALF) to(static_cast<half*>(a.c));
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
      if (share.lane < STATES) gather->send(&to->value, sum.value);
      if (rank != 0) return;
      gather->wait();
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

extern "C" __global__ void ACROSS_CLUSTER __launch_bounds__(MAX_THREADS, 1)
    reduce_tensor_small_rows(const Arguments a) {
  griddepcontrol_wait_deferred();
  if (a.accesses <= FEW_READS) reduce_small<false, FEW_READS>(a);
  else reduce_small<false, MAX_READS>(a);
}
extern "C" __global__ void ACROSS_CLUSTER __launch_bounds__(MAX_THREADS, 1)
    reduce_tensor_small_columns(const Arguments a) {
  griddepcontrol_wait_deferred();
  if (a.accesses <= FEW_READS) reduce_small<true, FEW_READS>(a);
  else reduce_small<true, MAX_READS>(a);
}
