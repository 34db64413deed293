// This header serves batch normalization of generic layouts. It assigns elements to threads and merges statistics of
// blocks and clusters.
//
// A thread owns every `stride`-th position of one group. A cluster covers all positions of its groups. Its blocks
// divide the positions, and each sends its moments to all others. A thread keeps its elements in shared memory as far
// as they fit.
#pragma once
#include "normalization/batch_call.cuh"
#include "primitives/geometry.cuh"

constexpr int IN_FLIGHT = 8;  // elements per operand that a thread reads before the first use

// This divides the elements of N operands among threads. The first operands are tensors of statistics.
template <int N> struct Division {
  unsigned statistics, positions;
  unsigned cached;  // elements per thread in shared memory, for each operand that is read twice
  COMPUTE count;    // positions per group
  Geometry<N> group, position;

  __device__ __forceinline__ unsigned index() const { return blockIdx.x * blockDim.x + threadIdx.x; }
  __device__ __forceinline__ unsigned stride() const { return blockDim.y * gridDim.y; }
  __device__ __forceinline__ unsigned first() const { return blockIdx.y * blockDim.y + threadIdx.y; }
  __device__ __forceinline__ bool exists() const { return index() < statistics; }
  // Returns the number of elements of this thread.
  __device__ __forceinline__ unsigned elements() const {
    return exists() && first() < positions ? (positions - first() - 1) / stride() + 1 : 0;
  }
  __device__ __forceinline__ unsigned thread() const { return threadIdx.y * blockDim.x + threadIdx.x; }
  // Returns the index of the thread's element k in shared memory.
  __device__ __forceinline__ unsigned slot(unsigned k) const { return k * blockDim.x * blockDim.y + thread(); }
};

// Visits the elements of a thread in groups of IN_FLIGHT. read(k, offsets, u) begins to read the k-th element into slot
// u; use(k, offsets, u) uses it.
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

// Shared memory holds the totals of a block's threads, then the totals of the cluster's blocks.
struct GroupExchange {
  COMPUTE* at;  // [3][threads]
  __device__ __forceinline__ unsigned threads() const { return blockDim.x * blockDim.y; }

  // Merges the partial results of one group over all threads of a cluster, in the order of threads and blocks. `all` is
  // the number of elements of the group. blockDim.y is a power of two. All threads must call this.
  template <class Rule> __device__ __forceinline__ Total all_reduce(Total mine, COMPUTE count, COMPUTE all) const {
    const unsigned size = threads(), row = threadIdx.y, lane = threadIdx.x, lanes = blockDim.x;
    COMPUTE* const own = at + row * lanes + lane;
    const COMPUTE weight = COMPUTE(1) / all;
    __syncthreads();  // All threads have read the earlier contents.
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
    if (same_type<Rule, MergeMoments> && count > COMPUTE(0))
      total.first *= all / count;  // This rescales the weights to the block.
    total = Rule::finish(total, from, count);
    if (CLUSTER_SIZE == 1) return total;
    // `parts` is an array [CLUSTER_SIZE][4][lanes] in every block.
    COMPUTE* const parts = at + 3 * size;
    cluster_arrive();
    cluster_wait();  // All blocks run and have read the earlier contents.
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
