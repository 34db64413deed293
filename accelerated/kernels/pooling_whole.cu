// Pooling forward (3.2.69) where one window covers a plane: global pooling.
//
// Floor: bytes, x read once. It takes some 25 KB on their way to every multiprocessor: eight independent accesses of a thread.
// A pack of half costs 8 conversions and 8 additions, a quarter of what an H200 issues in the time of its bytes.
// Lines with gaps are read in packs, too, gaps and all: single elements are too many accesses. What lies beside packs is read with them, and not after
// them: 0.2 to 0.3 us of 8x64x14x14. Measured on an H200: 95 to 100 % of the copy, with gaps 86 to 96 %.
#include "pooling_values.cuh"
#include "pooling_whole.cuh"

constexpr int WARP = 32, MOST_WARPS = 32;

struct WholeArguments {
  const ELEMENT* x;
  ELEMENT* y;
  Whole whole;
  COMPUTE alpha, beta, reciprocal;
  int mode, propagate;
};

// Calls call(pool) with a value of the type that pools.
template <class Call> __device__ __forceinline__ void with_pool(const WholeArguments& a, Call call) {
  if (a.mode == AVERAGE_INCLUDE || a.mode == AVERAGE_EXCLUDE)
    call(Sum());
  else if (a.propagate)
    call(NumbersAndNan());
  else
    call(Numbers());
}

template <class Pool> __device__ __forceinline__ ELEMENT finished(const WholeArguments& a, COMPUTE pooled, const ELEMENT* prior) {
  COMPUTE value = Pool::result(pooled);
  return blend(a.alpha, Pool::AVERAGE ? value * a.reciprocal : value, a.beta, prior);
}

template <class Pool> __device__ __forceinline__ void pool_rows(const WholeArguments& a, COMPUTE* of_warps) {
  const Whole& whole = a.whole;
  unsigned team = 1u << whole.team_bits, member = threadIdx.x & (team - 1);
  unsigned plane = (blockIdx.x * blockDim.x + threadIdx.x) >> whole.team_bits;
  bool present = plane < whole.planes;
  long long x_offset = 0, y_offset = 0;
  whole.offsets(present ? plane : 0, x_offset, y_offset);
  const ELEMENT* x = a.x + x_offset;
  const Stretch stretch(x, whole.over_gaps ? (whole.lines - 1) * whole.pitch.divisor + whole.columns : whole.columns);
  const Wide* from = reinterpret_cast<const Wide*>(x + stretch.head);
  wait_to_touch(from + member, a.y + y_offset);
  COMPUTE pooled = load<COMPUTE>(Pool::nothing());
  auto take = [&](ELEMENT met) { pooled = Pool::both(pooled, load<COMPUTE>(met)); };
  // What lies beside the packs is on its way together with them.
  ELEMENT ends[Stretch::ENDS];
  auto has_end = [&](int u) { return stretch.end(member, team, u) < stretch.count; };
  if (whole.over_gaps || whole.lines == 1)
#pragma unroll
    for (int u = 0; u < Stretch::ENDS; u++)
      if (has_end(u)) ends[u] = x[stretch.end(member, team, u)];
  if (whole.over_gaps) {
#pragma unroll 1
    for (unsigned k = member; k < stretch.packs; k += FLIGHT * team) {
      Wide taken[FLIGHT];
#pragma unroll
      for (int u = 0; u < FLIGHT; u++)
        if (k + u * team < stretch.packs) taken[u] = from[k + u * team];
#pragma unroll
      for (int u = 0; u < FLIGHT; u++)
        if (k + u * team < stretch.packs) {
          unsigned column;
          whole.pitch.divide(stretch.head + (k + u * team) * WIDTH, column);
          int left = int(whole.columns) - int(column), next = whole.pitch.divisor - column;  // until the gap, and the next line
#pragma unroll
          for (int i = 0; i < WIDTH; i++)
            if (i < left || i >= next) take(taken[u].item[i]);
        }
    }
  } else if (whole.lines == 1) {
#pragma unroll 1
    for (unsigned k = member; k < stretch.packs; k += FLIGHT * team) {
      Wide taken[FLIGHT];
#pragma unroll
      for (int u = 0; u < FLIGHT; u++)
        if (k + u * team < stretch.packs) taken[u] = from[k + u * team];
#pragma unroll
      for (int u = 0; u < FLIGHT; u++)
        if (k + u * team < stretch.packs)
#pragma unroll
          for (int i = 0; i < WIDTH; i++) take(taken[u].item[i]);
    }
  } else {
    unsigned columns = 1u << whole.column_bits, line = member >> whole.column_bits, step = team >> whole.column_bits;
#pragma unroll 1
    for (unsigned column = member & (columns - 1); column < whole.columns; column += columns)
#pragma unroll 1
      for (unsigned k = line; k < whole.lines; k += FLIGHT * step) {
        ELEMENT taken[FLIGHT];
#pragma unroll
        for (int u = 0; u < FLIGHT; u++)
          if (k + u * step < whole.lines) taken[u] = x[(k + u * step) * whole.line_stride + column];
#pragma unroll
        for (int u = 0; u < FLIGHT; u++)
          if (k + u * step < whole.lines) take(taken[u]);
      }
  }
  if (whole.over_gaps || whole.lines == 1)
#pragma unroll
    for (int u = 0; u < Stretch::ENDS; u++)
      if (has_end(u)) take(ends[u]);
  for (unsigned distance = min(team, unsigned(WARP)) / 2; distance > 0; distance /= 2)
    pooled = Pool::both(pooled, __shfl_xor_sync(~0u, pooled, distance));
  if (team > WARP) {
    if (threadIdx.x % WARP == 0) of_warps[threadIdx.x / WARP] = pooled;
    __syncthreads();
    if (member == 0)
      for (unsigned warp = 1; warp < team / WARP; warp++) pooled = Pool::both(pooled, of_warps[threadIdx.x / WARP + warp]);
  }
  if (member == 0 && present) a.y[y_offset] = finished<Pool>(a, pooled, a.y + y_offset);
}

extern "C" __global__ void __launch_bounds__(1024) pooling_whole_rows(const WholeArguments a) {
  find_place_before_waiting();
  __shared__ COMPUTE of_warps[MOST_WARPS];
  with_pool(a, [&](auto pool) { pool_rows<decltype(pool)>(a, of_warps); });
}

// Pools a warp's packs of the same channels, `lanes` threads apart: in every round a thread keeps half of its channels and gets those of
// another, which keeps the other half; when it has one, one of both keeps it. Returns how many it has, the first ones of `pack`; `first`: which
// those are.
template <class Pool> __device__ __forceinline__ int pool_warp(Pack<COMPUTE, WIDTH>& pack, unsigned lanes, unsigned& first) {
  int count = WIDTH;
  first = 0;
#pragma unroll
  for (int distance = WARP / 2, kept = WIDTH; distance > 0; distance /= 2, kept = kept > 1 ? kept / 2 : 1) {
    if (unsigned(distance) < lanes) continue;
    const bool upper = threadIdx.x & distance;
    const int given = kept > 1 ? kept / 2 : 0;  // channels
    if (given == 0) {
      pack.item[0] = Pool::both(pack.item[0], __shfl_xor_sync(~0u, pack.item[0], distance));
      if (upper) count = 0;
    }
#pragma unroll
    for (int i = 0; i < given; i++) {
      const COMPUTE sent = upper ? pack.item[i] : pack.item[i + given], own = upper ? pack.item[i + given] : pack.item[i];
      pack.item[i] = Pool::both(own, __shfl_xor_sync(~0u, sent, distance));
    }
    if (given > 0) first += upper ? given : 0, count = given;
  }
  return count;
}

template <class Pool> __device__ __forceinline__ void pool_channels(const WholeArguments& a, COMPUTE* of_warps) {
  const Whole& whole = a.whole;
  unsigned lanes = 1u << whole.team_bits, lane = threadIdx.x & (lanes - 1), slice = threadIdx.x >> whole.team_bits;
  unsigned slices = blockDim.x >> whole.team_bits, index = blockIdx.x * lanes + lane, result = blockIdx.x * lanes + threadIdx.x / WIDTH;
  bool present = index < whole.planes, writes = threadIdx.x < lanes * WIDTH && result < whole.planes;
  long long x_offset, y_offset, unused;
  whole.pack_offsets(present ? index : 0, x_offset, unused);
  whole.pack_offsets(writes ? result : 0, unused, y_offset);
  const ELEMENT* x = a.x + x_offset;
  ELEMENT* y = a.y + (y_offset + threadIdx.x % WIDTH);
  wait_to_touch(x + slice * whole.line_stride, y);
  Pack<COMPUTE, WIDTH> pooled;
#pragma unroll
  for (int i = 0; i < WIDTH; i++) pooled.item[i] = load<COMPUTE>(Pool::nothing());
#pragma unroll 1
  for (unsigned k = slice; k < whole.lines; k += FLIGHT * slices) {
    Wide taken[FLIGHT];
#pragma unroll
    for (int u = 0; u < FLIGHT; u++)
      if (k + u * slices < whole.lines) taken[u] = *reinterpret_cast<const Wide*>(x + (k + u * slices) * whole.line_stride);
#pragma unroll
    for (int u = 0; u < FLIGHT; u++)
      if (k + u * slices < whole.lines)
#pragma unroll
        for (int i = 0; i < WIDTH; i++) pooled.item[i] = Pool::both(pooled.item[i], load<COMPUTE>(taken[u].item[i]));
  }
  unsigned first, channels = lanes * WIDTH;  // of a block
  const int count = pool_warp<Pool>(pooled, lanes, first);
  COMPUTE* const of_warp = of_warps + threadIdx.x / WARP * channels + lane * WIDTH + first;
#pragma unroll
  for (int i = 0; i < WIDTH; i++)
    if (i < count) of_warp[i] = pooled.item[i];
  __syncthreads();
  // A thread for every channel.
  if (!writes) return;
  COMPUTE value = of_warps[threadIdx.x];
  for (unsigned warp = 1; warp < blockDim.x / WARP; warp++) value = Pool::both(value, of_warps[warp * channels + threadIdx.x]);
  *y = finished<Pool>(a, value, y);
}

// The packs of a block, at most a warp's: shared memory of (threads / 32) * packs packs of COMPUTE.
extern "C" __global__ void __launch_bounds__(512) pooling_whole_channels(const WholeArguments a) {
  find_place_before_waiting();
  with_pool(a, [&](auto pool) { pool_channels<decltype(pool)>(a, reinterpret_cast<COMPUTE*>(shared_memory)); });
}
