// These kernels compute the gradient (4.1.18) of averages with a static window (pooling/static_window.cuh).
//
// Tiling: each thread gathers the gradients of the windows over its inputs, in the order of the windows, without
// atomics. In volumes it takes the planes between the starts of two windows. Roofline bound: bytes, dy is read and dx
// written; one operation per window over an input. In the time of an input's bytes (3x3, stride 2) an H200 issues 35
// instructions in float and 17 in half; these kernels take 13 to 19. 64x256x56x56 half NCHW takes 35.4 us on an H200,
// which is 86 % of a copy's throughput; volumes of half reach 72 to 79 %.
#include "pooling/static_window.cuh"

constexpr bool IMAGE = K0 == 1 && S0 == 1;  // Axis 0 of an image is not pooled, and all its tiles exist.

struct AverageArguments {
  const ELEMENT* dy;
  ELEMENT* dx;
  Box box;
  COMPUTE alpha, beta;
  COMPUTE reciprocal;  // reciprocal of the common divisor, 0 where divisors differ
  int mode;
  unsigned tiles;       // tiles per block, at most its threads; full rows of tiles if `gathers`
  int gathers;          // whether a block collects its results in shared memory
  int partial_sectors;  // whether rows with gaps leave partly written sectors that L2 does not keep
};

// Rows that do not fill full sectors (32 bytes) write sectors in two parts, which takes up to 1.5 times as long. On an
// H200, 103 MB in rows of 112 bytes take 34 us, and in one piece 23 us. Where a block's results are contiguous, it
// collects them in shared memory and writes them in the order of memory.
template <class Access> struct Gathered {
  static constexpr int VECTOR = Access::X_VECTOR, LINES = Access::Axis1::INPUTS, COLUMNS = Access::Axis2::INPUTS,
                       SIZE = LINES * COLUMNS * Access::CHANNELS;
  static __device__ __forceinline__ ELEMENT* results() {
    __shared__ Vector<ELEMENT, VECTOR> vectors[THREADS * SIZE / VECTOR];
    return vectors[0].item;
  }
  // Stores one row of the thread's tile in shared memory.
  static __device__ __forceinline__ void keep(const Box& box, int line,
                                              const COMPUTE (&sums)[COLUMNS][Access::CHANNELS], COMPUTE alpha) {
    unsigned column, row = box.tiles[2].divide(threadIdx.x, column),
                     width = box.tiles[2].divisor * COLUMNS * Access::CHANNELS;
    write_row<VECTOR>(results() + (row * LINES + line) * width + column * COLUMNS * Access::CHANNELS, Access::CHANNELS,
                      COLUMNS, sums, alpha, COMPUTE(0));
  }
  // Writes the results of the block's `tiles` tiles, of `all` tiles, by all threads.
  static __device__ __forceinline__ void write(ELEMENT* dx, unsigned tiles, unsigned all) {
    __syncthreads();
    unsigned first = blockIdx.x * tiles, count = min(tiles, all - first) * SIZE;
    for (unsigned i = threadIdx.x * VECTOR; i < count; i += THREADS * VECTOR)
      *reinterpret_cast<Vector<ELEMENT, VECTOR>*>(dx + first * SIZE + i) =
          *reinterpret_cast<const Vector<ELEMENT, VECTOR>*>(results() + i);
  }
};

// SAME: all averages have the same divisor. PACKED: dy is read in vectors.
template <class Access, bool SAME, bool PACKED>
__device__ __forceinline__ void backward(const AverageArguments& a, const Tile& tile) {
  using Axis1 = typename Access::Axis1;
  using Axis2 = typename Access::Axis2;
  constexpr int TILE2 = Access::TILE2, CHANNELS = Access::CHANNELS, PLANES = Axis0::INPUTS, LINES = Axis1::INPUTS,
                COLUMNS = Axis2::INPUTS;
  const Box& box = a.box;
  const bool exclude = a.mode == AVERAGE_EXCLUDE;
  COMPUTE sums[PLANES][LINES][COLUMNS][CHANNELS] = {};
  const int i0 = tile.tile[0] * PLANES, i1 = tile.tile[1] * LINES, i2 = tile.tile[2] * COLUMNS;
  const int first2 = tile.tile[2] * TILE2, stride2 = Access::along(box.y_stride[2]);
  auto result = [&](int plane, int line) {
    return a.dx + (tile.x + (i0 + plane) * box.x_stride[0] + (i1 + line) * box.x_stride[1] +
                   i2 * Access::along(box.x_stride[2]));
  };
  const int left = box.input[2] - i2;
  // Writing partial sectors costs more than prefetching them.
  if (Access::ROWS && Access::X_VECTOR == 1 && a.partial_sectors && (i2 == 0 || left <= COLUMNS)) {
#pragma unroll
    for (int line = 0; line < PLANES * LINES; line++)
      if ((IMAGE || i0 + line / LINES < box.input[0]) && i1 + line % LINES < box.input[1])
        prefetch_line_l2(result(line / LINES, line % LINES) + (left <= COLUMNS ? left - 1 : 0));
  }
#pragma unroll
  for (int w0 = 0; w0 < Axis0::WINDOWS; w0++)
#pragma unroll
    for (int w1 = 0; w1 < Axis1::WINDOWS; w1++) {
      const int o0 = tile.tile[0] + Axis0::FIRST + w0, o1 = tile.tile[1] + Axis1::FIRST + w1;
      const ELEMENT* dy = a.dy + (tile.y + o0 * box.y_stride[0] + o1 * box.y_stride[1] + first2 * stride2);
      const bool present = (IMAGE || unsigned(o0) < unsigned(box.output[0])) && unsigned(o1) < unsigned(box.output[1]);
      Line<CHANNELS, Axis2::FIRST, Axis2::WINDOWS> dy_values;
      dy_values.template read<TILE2, PACKED ? TILE2 : 1>(dy, stride2, first2, box.output[2], present, ELEMENT(0));
      COMPUTE share[Axis2::WINDOWS];
#pragma unroll
      for (int w2 = 0; w2 < Axis2::WINDOWS; w2++) {
        share[w2] = a.reciprocal;
        if (!SAME)  // The divisor is at least 1, because windows that do not exist add 0.
          share[w2] =
              COMPUTE(1) /
              COMPUTE(max(1, counted<Axis0>(o0, box.input[0], exclude) * counted<Axis1>(o1, box.input[1], exclude) *
                                 counted<Axis2>(first2 + Axis2::FIRST + w2, box.input[2], exclude)));
      }
#pragma unroll
      for (int c = 0; c < COLUMNS; c++)
#pragma unroll
        for (int i = 0; i < CHANNELS; i++) {
          COMPUTE spread = 0;
#pragma unroll
          for (int w2 = 0; w2 < Axis2::WINDOWS; w2++)
            if (Axis2::covers(w2, c)) spread += load<COMPUTE>(dy_values.item[w2][i]) * share[w2];
#pragma unroll
          for (int plane = 0; plane < PLANES; plane++)
#pragma unroll
            for (int line = 0; line < LINES; line++)
              if (Axis0::covers(w0, plane) && Axis1::covers(w1, line)) sums[plane][line][c][i] += spread;
        }
    }
  if constexpr (Access::ROWS && Access::X_VECTOR > 1)
    if (a.gathers) {
#pragma unroll
      for (int line = 0; line < LINES; line++) Gathered<Access>::keep(box, line, sums[0][line], a.alpha);
      return;
    }
#pragma unroll
  for (int plane = 0; plane < PLANES; plane++)
#pragma unroll
    for (int line = 0; line < LINES; line++) {
      if (i1 + line >= box.input[1]) break;
      if (!IMAGE && i0 + plane >= box.input[0]) break;
      write_row<Access::X_VECTOR>(result(plane, line), Access::along(box.x_stride[2]), left, sums[plane][line], a.alpha,
                                  a.beta);
    }
}

template <class Access> __device__ __forceinline__ void backward_tile(const AverageArguments& a, const Tile& tile) {
  if (Access::TILE2 > 1 && a.box.y_packed)
    a.reciprocal != COMPUTE(0) ? backward<Access, true, true>(a, tile) : backward<Access, false, true>(a, tile);
  else a.reciprocal != COMPUTE(0) ? backward<Access, true, false>(a, tile) : backward<Access, false, false>(a, tile);
}

template <class Access> __device__ __forceinline__ void backward(const AverageArguments& a) {
  Tile tile(a.box, Access::CHANNELS, threadIdx.x < a.tiles ? blockIdx.x * a.tiles + threadIdx.x : a.box.threads);
  griddepcontrol_wait_before_access(a.dy + (tile.exists ? tile.y : 0));
  if (std::is_same_v<Access, Wide>) griddepcontrol_launch_dependents_if_many();
  if (tile.exists) backward_tile<Access>(a, tile);
  if constexpr (Access::ROWS && Access::X_VECTOR > 1)
    if (a.gathers) Gathered<Access>::write(a.dx, a.tiles, a.box.threads);
}

#define KERNEL(name, Access)                                             \
  extern "C" __global__ void __launch_bounds__(THREADS, BLOCKS)          \
      pooling_static_average_backward_##name(const AverageArguments a) { \
    griddepcontrol_wait_deferred();                                      \
    backward<Access>(a);                                                 \
  }
FOR_EVERY_ACCESS(KERNEL)
