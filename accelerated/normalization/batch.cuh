// What the kernels of batch normalization of any layout share: which elements a thread has, statistics of blocks and
// clusters.
//
// A thread has one group and of its positions every `stride`-th one. A cluster has all positions of its groups: its
// blocks share the positions, and each leaves its moments with all others. What a thread has read it keeps in shared
// memory as far as there is room.
#pragma once
#include "normalization/batch_call.cuh"
#include "primitives/geometry.cuh"

constexpr int IN_FLIGHT = 8;  // elements of an operand that a thread reads before it uses the first

// The elements of N operands, of which the first ones are tensors of statistics.
template <int N> struct Division {
  unsigned statistics, positions;
  unsigned cached;  // elements of a thread that shared memory holds, of each operand that is read twice
  COMPUTE count;    // positions of a group
  Geometry<N> group, position;

  __device__ __forceinline__ unsigned index() const { return blockIdx.x * blockDim.x + threadIdx.x; }
  __device__ __forceinline__ unsigned stride() const { return blockDim.y * gridDim.y; }
  __device__ __forceinline__ unsigned first() const { return blockIdx.y * blockDim.y + threadIdx.y; }
  __device__ __forceinline__ bool exists() const { return index() < statistics; }
  // How many elements a thread has.
  __device__ __forceinline__ unsigned elements() const {
    return exists() && first() < positions ? (positions - first() - 1) / stride() + 1 : 0;
  }
  __device__ __forceinline__ unsigned thread() const { return threadIdx.y * blockDim.x + threadIdx.x; }
  // Where element k of a thread lies in shared memory.
  __device__ __forceinline__ unsigned slot(unsigned k) const { return k * blockDim.x * blockDim.y + thread(); }
};

// Visits the elements of a thread in groups of IN_FLIGHT: read(k, offsets, u) begins to read the k-th of them into the
// u-th slot, then use(k, offsets, u).
template <int N, class Read, class Use>
__device__ __forceinline__ void visit(const Division<N>& d, const unsigned (&start)[N], const Read& read,
                                      const Use& use) {
  if (!d.exists()) return;
  const unsigned stride = d.stride();
  for (unsigned p = d.first(), k = 0; p < d.positions; p += IN_FLIGHT * stride, k += IN_FLIGHT) {
    unsigned offset[IN_FLIGHT][N];
#pragma unroll
    for (int u = 0; u < IN_FLIGHT; u++) {
      if (p + u * stride >= d.positions) continue;
      d.position.locate(p + u * stride, offset[u]);
#pragma unroll
      for (int n = 0; n < N; n++) offset[u][n] += start[n];
      read(k + u, offset[u], u);
    }
#pragma unroll
    for (int u = 0; u < IN_FLIGHT; u++)
      if (p + u * stride < d.positions) use(k + u, offset[u], u);
  }
}

// Shared memory of a block: the totals of its threads, then those of the blocks of the cluster.
struct GroupExchange {
  COMPUTE* at;  // [3][threads]
  __device__ __forceinline__ unsigned threads() const { return blockDim.x * blockDim.y; }

  // Merges what all threads of a cluster with the same group have, in the order of threads and blocks; all: elements of
  // the group. rows: a power of two. To be called by all threads.
  template <class Rule> __device__ __forceinline__ Total all_reduce(Total mine, COMPUTE count, COMPUTE all) const {
    const unsigned size = threads(), row = threadIdx.y, lane = threadIdx.x, lanes = blockDim.x;
    COMPUTE* const own = at + row * lanes + lane;
    const COMPUTE weight = COMPUTE(1) / all;
    __syncthreads();  // what lay there before is read
    own[0] = origin(mine), own[size] = count;
    __syncthreads();
    COMPUTE from = at[lane];
    if (blockDim.y > 2 && at[size + 2 * lanes + lane] > COMPUTE(0))
      from = median(from, at[lanes + lane], at[2 * lanes + lane]);
    __syncthreads();
    Total total{};
    if (count > COMPUTE(0)) Rule::add(total, from, weight, count, mine);
    own[0] = count, own[size] = total.first, own[2 * size] = total.second;
    for (unsigned half = blockDim.y / 2; half > 0; half /= 2) {
      __syncthreads();
      if (row >= half) continue;
      const COMPUTE* const other = own + half * lanes;
      own[0] += other[0], own[size] += other[size], own[2 * size] += other[2 * size];
    }
    __syncthreads();
    count = at[lane];
    total = {at[size + lane], at[2 * size + lane], 0};
    if (same_type<Rule, MergeMoments> && count > COMPUTE(0)) total.first *= all / count;  // the mean of the block
    total = Rule::finish(total, from, count);
    if (CLUSTER_SIZE == 1) return total;
    // [CLUSTER_SIZE][4][lanes] of every block
    COMPUTE* const parts = at + 3 * size;
    cluster_arrive();
    cluster_wait();  // all blocks run, and have read what lay there before
    for (unsigned block = row; block < CLUSTER_SIZE; block += blockDim.y) {
      COMPUTE* const to = parts + cluster_rank() * 4 * lanes + lane;
      store_to_cluster_rank(to, block, count);
      store_to_cluster_rank(to + lanes, block, total.first);
      store_to_cluster_rank(to + 2 * lanes, block, total.second);
      store_to_cluster_rank(to + 3 * lanes, block, total.low);
    }
    cluster_arrive();
    cluster_wait();
    const COMPUTE of_cluster = origin(parts[lanes + lane] + parts[3 * lanes + lane]);
    Total result{};
    for (unsigned block = 0; block < CLUSTER_SIZE; block++) {
      const COMPUTE* const part = parts + block * 4 * lanes + lane;
      const Total found{part[lanes], part[2 * lanes], part[3 * lanes]};
      if (part[0] > COMPUTE(0)) Rule::add(result, of_cluster, weight, part[0], found);
    }
    return Rule::finish(result, of_cluster, all);
  }
};
