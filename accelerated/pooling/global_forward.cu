// These kernels compute forward pooling (3.2.69) where one window covers a plane.
//
// Tiling: a team of threads takes a plane, or a block takes some vectors of channels; each thread has eight loads in
// flight. Rows with gaps are read in vectors, gaps included, because single elements would need too many accesses.
// Roofline bound: bytes, x is read once; one operation per input. On an H200, 64x256x56x56 half NCHW takes 25.4 us,
// which is 96 % of a copy's throughput; with gaps it is 85 to 96 %.
#include "pooling/functors.cuh"
#include "pooling/global_window.cuh"

constexpr int WARP = 32;       // threads
constexpr int MAX_WARPS = 32;  // per block

struct GlobalArguments {
  const ELEMENT* x;
  ELEMENT* y;
  GlobalPlanes planes;
  COMPUTE alpha, beta, reciprocal;
  int mode, propagate;
};

template <class Pool>
__device__ __forceinline__ ELEMENT finished(const GlobalArguments& a, COMPUTE pooled, const ELEMENT* prior) {
  COMPUTE value = Pool::result(pooled);
  return blend(a.alpha, Pool::AVERAGE ? value * a.reciprocal : value, a.beta, prior);
}

template <class Pool> __device__ __forceinline__ void pool_rows(const GlobalArguments& a, COMPUTE* of_warps) {
  const GlobalPlanes& planes = a.planes;
  unsigned team = 1u << planes.team_bits, member = threadIdx.x & (team - 1);
  unsigned plane = (blockIdx.x * blockDim.x + threadIdx.x) >> planes.team_bits;
  bool present = plane < planes.count;
  long long x_offset = 0, y_offset = 0;
  planes.offsets(present ? plane : 0, x_offset, y_offset);
  const ELEMENT* x = a.x + x_offset;
  const Stretch stretch(x,
                        planes.over_gaps ? (planes.rows - 1) * planes.pitch.divisor + planes.columns : planes.columns);
  const Wide* from = reinterpret_cast<const Wide*>(x + stretch.head);
  griddepcontrol_wait_before_access(from + member, a.y + y_offset);
  COMPUTE pooled = load<COMPUTE>(Pool::nothing());
  auto take = [&](ELEMENT met) { pooled = Pool::both(pooled, load<COMPUTE>(met)); };
  // Elements outside of vectors are in flight together with the vectors.
  ELEMENT ends[Stretch::ENDS];
  auto has_end = [&](int u) { return stretch.end(member, team, u) < stretch.count; };
#pragma unroll
  for (int u = 0; u < Stretch::ENDS; u++)
    if (has_end(u)) ends[u] = x[stretch.end(member, team, u)];
  if (planes.over_gaps) {
#pragma unroll 1
    for (unsigned k = member; k < stretch.vectors; k += FLIGHT * team) {
      Wide taken[FLIGHT];
#pragma unroll
      for (int u = 0; u < FLIGHT; u++)
        if (k + u * team < stretch.vectors) taken[u] = from[k + u * team];
#pragma unroll
      for (int u = 0; u < FLIGHT; u++)
        if (k + u * team < stretch.vectors) {
          unsigned column;
          planes.pitch.divide(stretch.head + (k + u * team) * WIDTH, column);
          int left = int(planes.columns) - int(column),
              next = planes.pitch.divisor - column;  // elements until the gap, and until the next row
#pragma unroll
          for (int i = 0; i < WIDTH; i++)
            if (i < left || i >= next) take(taken[u].item[i]);
        }
    }
  } else {
#pragma unroll 1
    for (unsigned k = member; k < stretch.vectors; k += FLIGHT * team) {
      Wide taken[FLIGHT];
#pragma unroll
      for (int u = 0; u < FLIGHT; u++)
        if (k + u * team < stretch.vectors) taken[u] = from[k + u * team];
#pragma unroll
      for (int u = 0; u < FLIGHT; u++)
        if (k + u * team < stretch.vectors)
#pragma unroll
          for (int i = 0; i < WIDTH; i++) take(taken[u].item[i]);
    }
  }
#pragma unroll
  for (int u = 0; u < Stretch::ENDS; u++)
    if (has_end(u)) take(ends[u]);
  for (unsigned distance = min(team, unsigned(WARP)) / 2; distance > 0; distance /= 2)
    pooled = Pool::both(pooled, __shfl_xor_sync(~0u, pooled, distance));
  if (team > WARP) {
    if (threadIdx.x % WARP == 0) of_warps[threadIdx.x / WARP] = pooled;
    __syncthreads();
    if (member == 0)
      for (unsigned warp = 1; warp < team / WARP; warp++)
        pooled = Pool::both(pooled, of_warps[threadIdx.x / WARP + warp]);
  }
  if (member == 0 && present) a.y[y_offset] = finished<Pool>(a, pooled, a.y + y_offset);
}

extern "C" __global__ void __launch_bounds__(1024) pooling_global_forward_rows(const GlobalArguments a) {
  griddepcontrol_wait_deferred();
  __shared__ COMPUTE of_warps[MAX_WARPS];
  with_pool(a.mode, a.propagate, [&](auto pool) { pool_rows<decltype(pool)>(a, of_warps); });
}

template <class Pool>
__device__ __forceinline__ void pool_channels(const GlobalArguments& a, Vector<COMPUTE, WIDTH>* of_warps) {
  const GlobalPlanes& planes = a.planes;
  unsigned block_vectors = 1u << planes.team_bits, vector = threadIdx.x & (block_vectors - 1),
           slice = threadIdx.x >> planes.team_bits;
  unsigned slices = blockDim.x >> planes.team_bits, index = blockIdx.x * block_vectors + vector;
  bool present = index < planes.count;
  long long x_offset, y_offset;
  planes.vector_offsets(present ? index : 0, x_offset, y_offset);
  const ELEMENT* x = a.x + x_offset;
  griddepcontrol_wait_before_access(x + slice * planes.row_stride, a.y + y_offset);
  Vector<COMPUTE, WIDTH> pooled;
#pragma unroll
  for (int i = 0; i < WIDTH; i++) pooled.item[i] = load<COMPUTE>(Pool::nothing());
#pragma unroll 1
  for (unsigned k = slice; k < planes.rows; k += FLIGHT * slices) {
    Wide taken[FLIGHT];
#pragma unroll
    for (int u = 0; u < FLIGHT; u++)
      if (k + u * slices < planes.rows)
        taken[u] = *reinterpret_cast<const Wide*>(x + (k + u * slices) * planes.row_stride);
#pragma unroll
    for (int u = 0; u < FLIGHT; u++)
      if (k + u * slices < planes.rows)
#pragma unroll
        for (int i = 0; i < WIDTH; i++) pooled.item[i] = Pool::both(pooled.item[i], load<COMPUTE>(taken[u].item[i]));
  }
  for (unsigned distance = block_vectors; distance < WARP; distance *= 2)
#pragma unroll
    for (int i = 0; i < WIDTH; i++)
      pooled.item[i] = Pool::both(pooled.item[i], __shfl_xor_sync(~0u, pooled.item[i], distance));
  unsigned kept = min(block_vectors, unsigned(WARP));  // vectors per warp
  if (threadIdx.x % WARP < kept) of_warps[threadIdx.x / WARP * kept + threadIdx.x % WARP] = pooled;
  __syncthreads();
  // One thread of the first slice merges each vector; the results of the warps are `block_vectors` apart.
  if (threadIdx.x >= block_vectors || !present) return;
  for (unsigned other = vector + block_vectors; other < blockDim.x / WARP * kept; other += block_vectors)
#pragma unroll
    for (int i = 0; i < WIDTH; i++) pooled.item[i] = Pool::both(pooled.item[i], of_warps[other].item[i]);
  Wide* target = reinterpret_cast<Wide*>(a.y + y_offset);
  Wide result = {};
  if (a.beta != COMPUTE(0)) result = *target;
#pragma unroll
  for (int i = 0; i < WIDTH; i++) result.item[i] = finished<Pool>(a, pooled.item[i], &result.item[i]);
  *target = result;
}

// Shared memory holds (threads / 32) * min(vectors per block, 32) vectors of COMPUTE.
extern "C" __global__ void __launch_bounds__(512) pooling_global_forward_channels(const GlobalArguments a) {
  griddepcontrol_wait_deferred();
  with_pool(a.mode, a.propagate, [&](auto pool) {
    pool_channels<decltype(pool)>(a, reinterpret_cast<Vector<COMPUTE, WIDTH>*>(shared_memory));
  });
}
