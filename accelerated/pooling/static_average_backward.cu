// Pooling backward (4.1.18) of averages with a known window: see pooling/static_window.cuh.
//
// Floor: bytes; dy is read, dx written. Every thread gathers what the windows over its inputs give them, in the order of the
// windows, without atomics or shared memory. What limits before the bytes is instructions: an H200 issues 35 for an input (3x3,
// stride 2) in the time of its bytes in float, 17 in half; compiled for sm_90 an average has 13 (half) to 19.
// Measured on it: 86 to 95 % of the copy, volumes of half 73 %, others 87 %. Places found before the wait save 0.15 to 0.6 us of 8x64x14x14 in a
// stream; letting the next kernel in saves 0.5 to 1 % of 30 us of wide packs, and costs others 6 to 19 %. Other blocks for gathered results (64 to 256 threads) take 4 to 17 % longer.
#include "pooling/static_window.cuh"

struct AverageArguments {
  const ELEMENT* dy;
  ELEMENT* dx;
  Box box;
  COMPUTE alpha, beta;
  COMPUTE reciprocal;  // of every average's divisor, 0 where they differ
  int mode;
  unsigned tiles;  // of a block, at most as many as its threads: whole rows of them where results are gathered
  int gathers;     // whether results of a block are written together
};

// The windows along axis 0 that cover a plane.
struct Planes {
  int first, last;
  __device__ __forceinline__ Planes(int position, int output) {
    int reach = position + P0;
    first = K0 == 1 ? 0 : reach < K0 ? 0 : (reach - K0) / S0 + 1;
    last = K0 == 1 ? 1 : min(reach / S0 + 1, output);
  }
};

// Rows whose length is no multiple of a sector (32 bytes) leave half of one to another store, which the memory answers with up to
// 1.5 times the time (103 MB of rows of 112 bytes: 34 us, in one piece 23 us on an H200). Where all that a block computes lies in one piece
// it gathers it in shared memory and writes it in memory's order.
template <class Access> struct Gathered {
  static constexpr int PACK = Access::X_PACK, LINES = Access::Axis1::INPUTS, COLUMNS = Access::Axis2::INPUTS, SIZE = LINES * COLUMNS * Access::LANES;
  static __device__ __forceinline__ ELEMENT* results() {
    __shared__ Pack<ELEMENT, PACK> packs[THREADS * SIZE / PACK];
    return packs[0].item;
  }
  // A line of the thread's tile.
  static __device__ __forceinline__ void keep(const Box& box, int line, const COMPUTE (&sums)[COLUMNS][Access::LANES], COMPUTE alpha) {
    unsigned column, row = box.tiles[2].divide(threadIdx.x, column), width = box.tiles[2].divisor * COLUMNS * Access::LANES;
    write_line<PACK>(results() + (row * LINES + line) * width + column * COLUMNS * Access::LANES, Access::LANES, COLUMNS, sums, alpha, COMPUTE(0));
  }
  // All threads: what `tiles` of all have computed.
  static __device__ __forceinline__ void write(ELEMENT* dx, unsigned tiles, unsigned all) {
    __syncthreads();
    unsigned first = blockIdx.x * tiles, count = min(tiles, all - first) * SIZE;
    for (unsigned i = threadIdx.x * PACK; i < count; i += THREADS * PACK)
      *reinterpret_cast<Pack<ELEMENT, PACK>*>(dx + first * SIZE + i) = *reinterpret_cast<const Pack<ELEMENT, PACK>*>(results() + i);
  }
};

// SAME: every average has the same divisor. PACKED: dy is read in packs.
template <class Access, bool SAME, bool PACKED> __device__ __forceinline__ void backward(const AverageArguments& a, const Tile& tile) {
  using Axis1 = typename Access::Axis1;
  using Axis2 = typename Access::Axis2;
  constexpr int TILE2 = Access::TILE2, LANES = Access::LANES, LINES = Axis1::INPUTS, COLUMNS = Axis2::INPUTS;
  const Box& box = a.box;
  bool exclude = a.mode == AVERAGE_EXCLUDE;
  COMPUTE sums[LINES][COLUMNS][LANES];
#pragma unroll
  for (int line = 0; line < LINES; line++)
#pragma unroll
    for (int c = 0; c < COLUMNS; c++)
#pragma unroll
      for (int i = 0; i < LANES; i++) sums[line][c][i] = 0;
  int i0 = tile.tile[0], i1 = tile.tile[1] * LINES, i2 = tile.tile[2] * COLUMNS;
  Planes planes(i0, box.output[0]);
#pragma unroll
  for (int w0 = 0; w0 < (K0 + S0 - 1) / S0; w0++) {
    int o0 = planes.first + w0;
#pragma unroll
    for (int w1 = 0; w1 < Axis1::WINDOWS; w1++) {
      int o1 = tile.tile[1] * TILE1 + Axis1::FIRST + w1, first2 = tile.tile[2] * TILE2;
      const ELEMENT* dy = a.dy + (tile.y + o0 * box.y_stride[0] + o1 * box.y_stride[1] + first2 * Access::along(box.y_stride[2]));
      bool present = unsigned(o1) < unsigned(box.output[1]) && o0 < planes.last;
      Line<LANES, Axis2::FIRST, Axis2::WINDOWS> gifts;
      gifts.template read<TILE2, PACKED ? TILE2 : 1>(dy, Access::along(box.y_stride[2]), first2, box.output[2], present, ELEMENT(0));
      COMPUTE share[Axis2::WINDOWS];
#pragma unroll
      for (int w2 = 0; w2 < Axis2::WINDOWS; w2++) {
        int o2 = tile.tile[2] * TILE2 + Axis2::FIRST + w2;
        share[w2] = a.reciprocal;
        if (!SAME)  // at least 1: windows that do not exist give 0
          share[w2] = COMPUTE(1) / COMPUTE(max(1, counted<Axis0>(o0, box.input[0], exclude) * counted<Axis1>(o1, box.input[1], exclude) *
                                          counted<Axis2>(o2, box.input[2], exclude)));
      }
#pragma unroll
      for (int c = 0; c < COLUMNS; c++)
#pragma unroll
        for (int i = 0; i < LANES; i++) {
          COMPUTE spread = 0;
#pragma unroll
          for (int w2 = 0; w2 < Axis2::WINDOWS; w2++)
            if (Axis2::covers(w2, c)) spread += load<COMPUTE>(gifts.item[w2][i]) * share[w2];
#pragma unroll
          for (int line = 0; line < LINES; line++)
            if (Axis1::covers(w1, line)) sums[line][c][i] += spread;
        }
    }
  }
  if constexpr (Access::ROWS && Access::X_PACK > 1)
    if (a.gathers) {
#pragma unroll
      for (int line = 0; line < LINES; line++) Gathered<Access>::keep(box, line, sums[line], a.alpha);
      return;
    }
#pragma unroll
  for (int line = 0; line < LINES; line++) {
    if (i1 + line >= box.input[1]) break;
    ELEMENT* dx = a.dx + (tile.x + i0 * box.x_stride[0] + (i1 + line) * box.x_stride[1] + i2 * Access::along(box.x_stride[2]));
    write_line<Access::X_PACK>(dx, Access::along(box.x_stride[2]), box.input[2] - i2, sums[line], a.alpha, a.beta);
  }
}

template <class Access> __device__ __forceinline__ void backward_tile(const AverageArguments& a, const Tile& tile) {
  if (Access::TILE2 > 1 && a.box.y_packed)
    a.reciprocal != COMPUTE(0) ? backward<Access, true, true>(a, tile) : backward<Access, false, true>(a, tile);
  else
    a.reciprocal != COMPUTE(0) ? backward<Access, true, false>(a, tile) : backward<Access, false, false>(a, tile);
}

template <class Access> __device__ __forceinline__ void backward(const AverageArguments& a) {
  Tile tile(a.box, Access::LANES, threadIdx.x < a.tiles ? blockIdx.x * a.tiles + threadIdx.x : a.box.threads);
  griddepcontrol_wait_before_access(a.dy + (tile.exists ? tile.y : 0));
  if (std::is_same_v<Access, Wide>) griddepcontrol_launch_dependents_if_many();
  if (tile.exists) backward_tile<Access>(a, tile);
  if constexpr (Access::ROWS && Access::X_PACK > 1)
    if (a.gathers) Gathered<Access>::write(a.dx, a.tiles, a.box.threads);
}

extern "C" __global__ void __launch_bounds__(THREADS, BLOCKS) pooling_static_average_backward_wide(const AverageArguments a) {
  griddepcontrol_wait_deferred();
  backward<Wide>(a);
}
extern "C" __global__ void __launch_bounds__(THREADS, BLOCKS) pooling_static_average_backward_narrow(const AverageArguments a) {
  griddepcontrol_wait_deferred();
  backward<Narrow>(a);
}
extern "C" __global__ void __launch_bounds__(THREADS, BLOCKS) pooling_static_average_backward_loose(const AverageArguments a) {
  griddepcontrol_wait_deferred();
  backward<Loose>(a);
}
extern "C" __global__ void __launch_bounds__(THREADS, BLOCKS) pooling_static_average_backward_channels(const AverageArguments a) {
  griddepcontrol_wait_deferred();
  backward<Channels>(a);
}
extern "C" __global__ void __launch_bounds__(THREADS, BLOCKS) pooling_static_average_backward_scattered(const AverageArguments a) {
  griddepcontrol_wait_deferred();
  backward<Scattered>(a);
}
