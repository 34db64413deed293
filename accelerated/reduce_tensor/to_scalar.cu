// Reductions of small tensors to one element (3.2.71), by one cluster: all that its threads read is in flight at
// once.
//
// A thread has READS accesses, and but for the last one all or none of them. Warps merge by shuffles, a block through
// shared memory, the cluster in its first block's.
//
// Roofline: the launch of a cluster, 1.08 us a call in a stream of many on an H200, and 16 multiprocessors' way to
// L2, about 0.12 us for 0.2 million bytes; flops hardly matter. Measured: 0.1 million floats 1.44 us in a stream and
// 1.16 in a graph, 1.74 and 1.38 by reduce_tensor/small.cu. History: docs/performance/reduce_tensor.md.
#include <cstring>

#include "primitives/cluster.cuh"
#include "reduce_tensor/accumulators.cuh"

#ifndef PACK_BYTES
#define PACK_BYTES 16
#endif
#ifndef RESULT
#define RESULT ELEMENT  // of C
#endif
constexpr unsigned PACK = PACK_BYTES / sizeof(ELEMENT);  // elements of an access
constexpr unsigned
    WARP = 32,
    READS = 8,
    MOST_WARPS = 16;  // threads of a warp, accesses of a thread, warps of a block: as in reduce_tensor/to_scalar.py

struct Arguments {
  const ELEMENT* a;
  RESULT* c;
  unsigned shares;  // of threads, which have READS accesses each
  unsigned number;  // of A's packs
  unsigned step;    // elements from one access to the next
  COMPUTE alpha, beta;
  int op, propagate;
};

template <unsigned COUNT> struct alignas(16) Values {
  Value value[COUNT];

  template <class Reduction> __device__ __forceinline__ Value merged(const Reduction& reduction) const {
    Values all = *this;
#pragma unroll
    for (unsigned apart = 1; apart < COUNT; apart *= 2)
#pragma unroll
      for (unsigned i = 0; i + apart < COUNT; i += 2 * apart) reduction.merge(all.value[i], all.value[i + apart]);
    return all.value[0];
  }
};
// In shared memory.
struct Shared {
  Values<CLUSTER_SIZE> blocks;  // in the first one's
  Values<MOST_WARPS> warps;
  ClusterGather gathering;
};

using Word =
    std::conditional_t<PACK_BYTES >= 4, unsigned, std::conditional_t<PACK_BYTES == 2, unsigned short, unsigned char>>;
using Words = Pack<Word, PACK_BYTES / sizeof(Word)>;

// Where a thread reads.
struct Offsets {
  unsigned at[READS];
  bool any, all;  // accesses

  __device__ __forceinline__ Offsets(const Arguments& a, unsigned share) {
    any = share < a.shares, all = share + (READS - 1) * a.shares < a.number;
#pragma unroll
    for (unsigned u = 0; u < READS; u++) at[u] = share * PACK + u * a.step;
  }
};

// A state for every element of a pack.
template <class Reduction>
__device__ __forceinline__ void read(const Arguments& a, const Offsets& offsets, const Reduction& reduction,
                                     Value (&state)[PACK]) {
  Words words[READS];  // so that a half is not filled in by itself
  auto take = [&](unsigned u) { words[u] = *reinterpret_cast<const Words*>(a.a + offsets.at[u]); };
  if (!offsets.any) return;
  Pack<ELEMENT, PACK> none;
#pragma unroll
  for (unsigned i = 0; i < PACK; i++) none.item[i] = store<ELEMENT>(reduction.nothing());
  memcpy(&words[READS - 1], &none, PACK_BYTES);
#pragma unroll
  for (unsigned u = 0; u + 1 < READS; u++) take(u);
  if (offsets.all) take(READS - 1);
#pragma unroll
  for (unsigned u = 0; u < READS; u++) {
    Pack<ELEMENT, PACK> pack;
    memcpy(&pack, &words[u], PACK_BYTES);
#pragma unroll
    for (unsigned i = 0; i < PACK; i++) reduction.add(state[i], load<COMPUTE>(pack.item[i]), 0);
  }
}

extern "C" __global__ void CLUSTER_DIMS_X __launch_bounds__(MOST_WARPS* WARP, 1)
    reduce_tensor_to_scalar(const Arguments a) {
  griddepcontrol_wait_deferred();
  Shared& shared = *reinterpret_cast<Shared*>(shared_memory);
  shared.gathering.init();
  const unsigned rank = cluster_rank(), warp = threadIdx.x / WARP, lane = threadIdx.x % WARP, warps = blockDim.x / WARP;
  const Offsets offsets(a, rank * blockDim.x + threadIdx.x);
  auto run = [&](const Arguments& a, const auto& reduction) {
    unsigned touched = 0;
#pragma unroll
    for (unsigned u = 0; u < READS; u++) touched |= offsets.at[u];
    if (warp == 0 && lane >= warps && lane < MOST_WARPS) shared.warps.value[lane] = reduction.start();
    shared.gathering.expect(CLUSTER_SIZE * sizeof(Value));
    griddepcontrol_wait_before_access(a.a + touched, a.c);
    Value state[PACK];
#pragma unroll
    for (unsigned i = 0; i < PACK; i++) state[i] = reduction.start();
    read(a, offsets, reduction, state);
#pragma unroll
    for (unsigned apart = 1; apart < PACK; apart *= 2)
#pragma unroll
      for (unsigned i = 0; i < PACK; i += 2 * apart) reduction.merge(state[i], state[i + apart]);
    Value sum = state[0];
#pragma unroll
    for (unsigned apart = 1; apart < WARP; apart *= 2) reduction.merge(sum, from_lane(sum, apart));
    if (lane == 0) shared.warps.value[warp] = sum;
    __syncthreads();
    if (threadIdx.x != 0) return;
    shared.gathering.send(&shared.blocks.value[rank].value, shared.warps.merged(reduction).value);
    if (rank != 0) return;
    shared.gathering.wait_one_thread();
    const COMPUTE value = result(reduction, shared.blocks.merged(reduction));
    *a.c = blend<COMPUTE>(a.alpha, value, a.beta, a.c);
  };
  PLAIN(run)
}
