// Pooling forward (3.2.69) with any window, in any layout; static and global windows have kernels of their own.
//
// Tiling: `tile` has a tile of outputs for a block, four planes or channels in a pack, and reads x once to shared
// memory (generic_tile.cuh). `thread` has a thread for 16 bytes of y, where windows are apart. `team` has a block for a
// pack of outputs with a large window: its threads share the rows and columns.
//
// Roofline bound: bytes, x read and y written once; one operation for every input of every window: of 3x3 windows by
// estimate 50 instructions an element, 6 us for 32x128x28x28 of float, as many as memory needs.
#include "pooling/generic/generic_tile.cuh"

constexpr int WARP = 32, MAX_WARPS = 8;

struct ForwardArguments {
  const ELEMENT* x;
  ELEMENT* y;
  Pooling pooling;
  Walk walk;
  int column_bits;  // of the threads of a team: log2 of those along axis 2
};

// Pools over the threads of a block; the first has the result.
template <class Pool, int P> __device__ __forceinline__ void reduce_block(COMPUTE (&pooled)[P]) {
  __shared__ COMPUTE of_warps[MAX_WARPS][P];
#pragma unroll
  for (int i = 0; i < P; i++) {
    for (int distance = WARP / 2; distance > 0; distance /= 2)
      pooled[i] = Pool::both(pooled[i], __shfl_xor_sync(~0u, pooled[i], distance));
    if (threadIdx.x % WARP == 0) of_warps[threadIdx.x / WARP][i] = pooled[i];
  }
  __syncthreads();
  if (threadIdx.x > 0) return;
  for (int warp = 1; warp < blockDim.x / WARP; warp++)
#pragma unroll
    for (int i = 0; i < P; i++) pooled[i] = Pool::both(pooled[i], of_warps[warp][i]);
}

template <class Pool, int P, bool TEAM> __device__ __forceinline__ void forward(const ForwardArguments& a) {
  const Pooling& pooling = a.pooling;
  const unsigned index = TEAM ? blockIdx.x : blockIdx.x * blockDim.x + threadIdx.x;
  if (!TEAM && index >= a.walk.packs) return;
  int o[3];
  long long x_offset, y_offset;
  a.walk.locate(index, o, y_offset, x_offset);
  const ELEMENT* x = a.x + x_offset;
  const Window window(pooling, o);
  COMPUTE pooled[P];
#pragma unroll
  for (int i = 0; i < P; i++) pooled[i] = load<COMPUTE>(Pool::nothing());
  auto take = [&](int p0, int p1, int p2) {
    const long long offset = p0 * pooling.x_stride[0] + p1 * pooling.x_stride[1] + p2 * pooling.x_stride[2];
    const Pack<ELEMENT, P> pack = load_items<P, true>(x + offset, 0);
#pragma unroll
    for (int i = 0; i < P; i++) pooled[i] = Pool::both(pooled[i], load<COMPUTE>(pack.item[i]));
  };
  if (TEAM) {
    const int columns = 1 << a.column_bits;
    window.visit_part(threadIdx.x >> a.column_bits, blockDim.x >> a.column_bits, threadIdx.x & (columns - 1), columns,
                      take);
    reduce_block<Pool, P>(pooled);
    if (threadIdx.x > 0) return;
  } else {
    window.visit_part(0, 1, 0, 1, take);
  }
  const bool empty = window.empty();
  const COMPUTE divisor = Pool::AVERAGE ? window.divisor(pooling) : COMPUTE(1);
  COMPUTE result[P];
#pragma unroll
  for (int i = 0; i < P; i++)
    result[i] = pooling.alpha * (Pool::AVERAGE ? pooled[i] / divisor
                                 : empty       ? lowest<ELEMENT>()
                                               : Pool::result(pooled[i]));
  write_pack<P>(a.y + y_offset, 1, true, P, result, pooling.beta);
}

template <class Pool, bool TEAM> __device__ __forceinline__ void forward(const ForwardArguments& a) {
  with_width(a.walk.width, [&](auto width) { forward<Pool, decltype(width)::value, TEAM>(a); });
}
template <bool TEAM> __device__ __forceinline__ void forward(const ForwardArguments& a) {
  if (a.pooling.mode == AVERAGE_INCLUDE || a.pooling.mode == AVERAGE_EXCLUDE) return forward<Sum, TEAM>(a);
  a.pooling.propagate ? forward<NumbersAndNan, TEAM>(a) : forward<Numbers, TEAM>(a);
}

extern "C" __global__ void __launch_bounds__(256, 4) pooling_generic_forward_thread(const ForwardArguments a) {
  griddepcontrol_wait();
  forward<false>(a);
}
extern "C" __global__ void __launch_bounds__(256) pooling_generic_forward_team(const ForwardArguments a) {
  griddepcontrol_wait();
  forward<true>(a);
}

struct ForwardTileArguments {
  const ELEMENT* x;
  ELEMENT* y;
  Pooling pooling;
  TileLayout tile;
};

template <class Pool, int COLUMNS, int P, bool CHANNELS>
__device__ __forceinline__ void pool(const ForwardTileArguments& a, const BlockTile<P, CHANNELS>& tile,
                                     const Pack<ELEMENT, P>* inputs) {
  const Pooling& pooling = a.pooling;
  const Axis* axis = pooling.axis;
  const FastDivmod(&sources)[3] = a.tile.sources;
  const int window[3] = {axis[0].window, axis[1].window, axis[2].window};
  tile.visit(a.tile.targets, 0, [&](unsigned group, unsigned, const unsigned (&at)[3]) {
    const int o[3] = {tile.begin[0] + int(at[0]), tile.begin[1] + int(at[1]), tile.begin[2] + int(at[2])};
    if (!tile.inside(o, pooling.axis, &Axis::output)) return;
    int position = 0;
#pragma unroll
    for (int d = 0; d < 3; d++) position = position * int(sources[d].divisor) + int(at[d]) * axis[d].stride;
    COMPUTE pooled[P];
#pragma unroll
    for (int i = 0; i < P; i++) pooled[i] = load<COMPUTE>(Pool::nothing());
    visit_window<COLUMNS>(group * a.tile.source_pitch + position, window, sources, [&](int p) {
      const Pack<ELEMENT, P> pack = inputs[p];
#pragma unroll
      for (int i = 0; i < P; i++) pooled[i] = Pool::both(pooled[i], load<COMPUTE>(pack.item[i]));
    });
    COMPUTE divisor = pooling.divisor;
    bool empty = false;
    if (Pool::AVERAGE ? divisor == COMPUTE(0) : Pool::PROPAGATES) {
      const Window clamped(pooling, o);
      divisor = clamped.divisor(pooling), empty = clamped.empty();
    }
    COMPUTE result[P];
#pragma unroll
    for (int i = 0; i < P; i++)
      result[i] = pooling.alpha * (Pool::AVERAGE ? pooled[i] / divisor
                                   : empty       ? lowest<ELEMENT>()
                                                 : Pool::result(pooled[i]));
    write_pack<P>(a.y + tile.offsets[group].y + tile.offset_of(o, pooling.y_stride), a.tile.y_item, tile.PACKED, P,
                  result, pooling.beta);
  });
}

template <class Pool, int P, bool CHANNELS>
__device__ __forceinline__ void forward(const ForwardTileArguments& a, const BlockTile<P, CHANNELS>& tile) {
  Pack<ELEMENT, P>* const inputs = reinterpret_cast<Pack<ELEMENT, P>*>(shared_memory + OFFSET_BYTES);
  int origin[3];
#pragma unroll
  for (int d = 0; d < 3; d++) origin[d] = tile.begin[d] * a.pooling.axis[d].stride - a.pooling.axis[d].padding;
  tile.read_inputs(inputs, a.x, a.pooling, origin, Pool::nothing());
  __syncthreads();
  with_columns(a.pooling.axis[2].window, [&](auto columns) { pool<Pool, decltype(columns)::value>(a, tile, inputs); });
}

extern "C" __global__ void __launch_bounds__(256) pooling_generic_forward_tile(const ForwardTileArguments a) {
  griddepcontrol_wait();
  with_tile(a.tile, [&](const auto& tile) {
    if (a.pooling.mode == AVERAGE_INCLUDE || a.pooling.mode == AVERAGE_EXCLUDE) return forward<Sum>(a, tile);
    a.pooling.propagate ? forward<NumbersAndNan>(a, tile) : forward<Numbers>(a, tile);
  });
}
