// These functions merge online-softmax states among lanes, blocks and clusters. All sizes are powers of two.
#pragma once
#include "primitives/cluster.cuh"
#include "softmax/online.cuh"

__device__ __forceinline__ unsigned exponent_of(unsigned power) { return 31 - __clz(power); }

// Merge the states of the lanes whose indices are equal modulo `first`, in groups of `beyond` lanes. One function
// merges the maxima, to which states are raised; the other adds the sums, which share these maxima.
template <class Rule, int ROWS>
__device__ __forceinline__ void merge_maxima(const Rule& rule, OnlineState (&state)[ROWS], unsigned first,
                                             unsigned beyond) {
  if (first >= beyond || !rule.has_maximum()) return;
  COMPUTE maximum[ROWS];
#pragma unroll
  for (int r = 0; r < ROWS; r++) maximum[r] = state[r].maximum;
  for (unsigned lanes = first; lanes < beyond; lanes *= 2)
#pragma unroll
    for (int r = 0; r < ROWS; r++) maximum[r] = max(maximum[r], __shfl_xor_sync(~0u, maximum[r], lanes));
#pragma unroll
  for (int r = 0; r < ROWS; r++) rule.raise(state[r], maximum[r]);
}
template <int ROWS>
__device__ __forceinline__ void merge_sums(OnlineState (&state)[ROWS], unsigned first, unsigned beyond) {
  for (unsigned lanes = first; lanes < beyond; lanes *= 2)
#pragma unroll
    for (int r = 0; r < ROWS; r++) state[r].sum += __shfl_xor_sync(~0u, state[r].sum, lanes);
}
template <class Rule, int ROWS>
__device__ __forceinline__ void merge_lanes(const Rule& rule, OnlineState (&state)[ROWS], unsigned first,
                                            unsigned beyond) {
  merge_maxima(rule, state, first, beyond);
  merge_sums(state, first, beyond);
}

// Merges `count` states that are `stride` apart.
template <class Rule>
__device__ __forceinline__ OnlineState merged(const Rule& rule, const OnlineState* parts, unsigned count,
                                              unsigned stride) {
  OnlineState total = rule.empty();
  if (rule.has_maximum())
    for (unsigned i = 0; i < count; i++) total.maximum = max(total.maximum, parts[i * stride].maximum);
  for (unsigned i = 0; i < count; i++) {
    OnlineState part = parts[i * stride];
    if (rule.has_maximum()) rule.raise(part, total.maximum);
    total.sum += part.sum;
  }
  return total;
}

__device__ __forceinline__ void store_to_cluster_rank(OnlineState* variable, unsigned block, OnlineState value) {
  store_to_cluster_rank(&variable->maximum, block, value.maximum);
  store_to_cluster_rank(&variable->sum, block, value.sum);
}

// Merges the states of `team` lanes, of all threads of the block, or of its cluster, and finishes them. The threads of
// a cluster must have arrived once before, because a block must run before its memory is written. `parts` has room for
// a state of every warp, and then of every block of the cluster.
template <bool CLUSTERED, class Rule>
__device__ __forceinline__ void merge_rows(const Rule& rule, OnlineState (&state)[1], unsigned team,
                                           OnlineState* parts) {
  const unsigned lane = threadIdx.x & 31, warps = team >> 5;
  merge_lanes(rule, state, 1, min(team, 32u));
  if (warps > 1) {
    if (lane == 0) parts[threadIdx.x >> 5] = state[0];
    __syncthreads();
    state[0] = parts[lane & (warps - 1)];
    merge_lanes(rule, state, 1, warps);
  }
  if (CLUSTERED) {
    parts += max(warps, 1u);
    cluster_wait();
    if (threadIdx.x < CLUSTER_SIZE) store_to_cluster_rank(&parts[cluster_rank()], threadIdx.x, state[0]);
    cluster_arrive();
    cluster_wait();
    state[0] = parts[lane & (CLUSTER_SIZE - 1)];
    merge_lanes(rule, state, 1, CLUSTER_SIZE);
  }
  rule.finish(state[0]);
}

// Merges the states of all threads of a block, or cluster, that share a strided row, and finishes them. Neighbouring
// threads take neighbouring ones of `across` vectors of ROWS strided rows. `parts` has room for a state per row and
// warp, or per row and thread from 32 vectors on. A state per row and block of the cluster follows.
template <bool CLUSTERED, class Rule, int ROWS>
__device__ __forceinline__ void merge_strided_rows(const Rule& rule, OnlineState (&state)[ROWS], unsigned across,
                                                   OnlineState* parts) {
  const unsigned thread = threadIdx.x, stride = max(across, 32u), rows = across * ROWS,
                 groups = blockDim.x >> exponent_of(stride);
  OnlineState* own = parts + (thread & (across - 1)) * ROWS;
  merge_lanes(rule, state, across, 32);
  if (!CLUSTERED && groups == 1) {
#pragma unroll
    for (int r = 0; r < ROWS; r++) rule.finish(state[r]);
    return;
  }
  if ((thread & (stride - 1)) < across)
#pragma unroll
    for (int r = 0; r < ROWS; r++) own[(thread >> exponent_of(stride)) * rows + r] = state[r];
  __syncthreads();
  OnlineState* of_blocks = parts + groups * rows;
  if (CLUSTERED) cluster_wait();
  // One thread merges each row, and accesses no other row.
  for (unsigned i = thread; i < rows; i += blockDim.x) {
    OnlineState total = merged(rule, parts + i, groups, rows);
    if (CLUSTERED) {
      for (unsigned block = 0; block < CLUSTER_SIZE; block++)
        store_to_cluster_rank(&of_blocks[cluster_rank() * rows + i], block, total);
    } else {
      rule.finish(total);
      parts[i] = total;
    }
  }
  if (CLUSTERED) {
    cluster_arrive();
    cluster_wait();
    for (unsigned i = thread; i < rows; i += blockDim.x) {
      OnlineState total = merged(rule, of_blocks + i, CLUSTER_SIZE, rows);
      rule.finish(total);
      parts[i] = total;
    }
  }
  __syncthreads();
#pragma unroll
  for (int r = 0; r < ROWS; r++) state[r] = own[r];
}
