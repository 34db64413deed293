// This header gives each block one tile of a matrix product, or one part of K of a tile (split-K). matrix.cu adds the
// parts in order.
#pragma once
#include "gemm/matrix.cuh"

struct Arguments {
  const ELEMENT *a, *b, *bias;
  RESULT* c;
  unsigned char* workspace;
  Matrix left, right, result;
  long long bias_offset, workspace_offset;  // bytes
  int m, n, k;                              // `k` is the extent of a segment.
  int total, per_split;                     // K-blocks (k in the simt kernel) of all segments; per split-K part
  FastDivmod segment;                       // K-blocks, or k, per segment
  FastDivmod splits, inner;
  int m_tiles, batches;
  COMPUTE beta;
};

// Describes the work of a block: its batch, its part of the sums, and its matrices.
struct Work {
  unsigned batch, split;
  int first_m, first_n, first, last;  // `first` and `last` have the unit of `total`.
  const ELEMENT *a, *b;
  RESULT* c;

  __device__ __forceinline__ Work(const Arguments& arguments, int tile_m, int tile_n) {
    batch = arguments.splits.divide(blockIdx.y, split);
    unsigned inner;
    const long long outer = arguments.inner.divide(batch, inner);
    first_n = blockIdx.x / arguments.m_tiles * tile_n, first_m = blockIdx.x % arguments.m_tiles * tile_m;
    first = split * arguments.per_split, last = min(arguments.total, first + arguments.per_split);
    a = at_byte(arguments.a, arguments.left.offset) + outer * arguments.left.outer + inner * arguments.left.inner;
    b = at_byte(arguments.b, arguments.right.offset) + outer * arguments.right.outer + inner * arguments.right.inner;
    c = result_of(arguments, batch);
  }
};

__device__ __forceinline__ COMPUTE* partial_sums(const Arguments& a, unsigned batch, unsigned split) {
  return reinterpret_cast<COMPUTE*>(a.workspace + a.workspace_offset) +
         (static_cast<long long>(split) * a.batches + batch) * a.m * a.n;
}

// Returns the prior values of C that finish() blends.
template <int COUNT>
__device__ __forceinline__ Vector<RESULT, COUNT> before_finish(const Arguments& a, const Work& work, int m, int n) {
  if (a.splits.divisor > 1) return {};
  return before_blending<COUNT>(a, work.c, m, n);
}

// Stores COUNT sums of consecutive columns in C, or in the workspace if K is split.
template <int COUNT>
__device__ __forceinline__ void finish(const Arguments& a, const Work& work, int m, int n, const COMPUTE (&sum)[COUNT],
                                       Vector<RESULT, COUNT> before) {
  if (m >= a.m) return;
  if (a.splits.divisor > 1) {
    COMPUTE* partial = partial_sums(a, work.batch, work.split) + static_cast<long long>(m) * a.n + n;
    if (a.n % COUNT == 0 && n < a.n) {
      Vector<COMPUTE, COUNT> stored;
#pragma unroll
      for (int i = 0; i < COUNT; i++) stored.item[i] = sum[i];
      *reinterpret_cast<Vector<COMPUTE, COUNT>*>(partial) = stored;
      return;
    }
#pragma unroll
    for (int i = 0; i < COUNT; i++)
      if (n + i < a.n) partial[i] = sum[i];
    return;
  }
  blend_into(a, work.c, m, n, sum, before);
}
