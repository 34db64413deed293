// These kernels compute forward pooling (3.2.69) with a static window (pooling/static_window.cuh).
//
// Tiling: each thread pools a column once for all outputs that share it, with fp16x2 for maxima of half. In volumes it
// slides along axis 0, so that a plane shared by windows is read once. Roofline bound: bytes, x is read and y written
// once; one operation per input of every window. In the time of an output's bytes (3x3, stride 2) an H200 issues 142
// instructions in float and 70 in half; these kernels take 31 to 78. 64x256x56x56 half NCHW takes 32.1 us on an H200,
// which is 95 % of a copy's throughput; volumes reach 80 to 94 %.
#include "pooling/static_window.cuh"

struct ForwardArguments {
  const ELEMENT* x;
  ELEMENT* y;
  Box box;
  COMPUTE alpha, beta;
  COMPUTE reciprocal;  // reciprocal of the common divisor, 0 where divisors differ
  int mode, propagate;
  int depth;  // windows per thread along axis 0, one after the other
};

static_assert(K0 <= S0 + 1, "windows share a plane at most");
constexpr bool SHARES = K0 > S0;

// Pools the rows of a plane for every row of windows of a tile, column by column. FIRST: this is the first plane.
template <class Access, class Pool, bool FIRST, class Columns>
__device__ __forceinline__ void pool_plane(const Box& box, const ELEMENT* x, int i1, int i2, bool exists,
                                           Columns& pooled) {
  using Axis1 = typename Access::Axis1;
  using Axis2 = typename Access::Axis2;
#pragma unroll
  for (int line = 0; line < Axis1::COUNT; line++) {
    Line<Access::CHANNELS, Axis2::BEGIN, Axis2::COUNT> met;
    met.template read<Axis2::INPUTS, Access::X_VECTOR>(
        x + line * box.x_stride[1], Access::along(box.x_stride[2]), i2, box.input[2],
        exists && unsigned(i1 + line) < unsigned(box.input[1]), Pool::nothing());
#pragma unroll
    for (int row = 0; row < TILE1; row++) {
      int k1 = line - row * S1;
      if (k1 >= 0 && k1 < K1) pool_row<Pool>(pooled[row], met, FIRST && k1 == 0);
    }
  }
}

// SAME: all averages have the same divisor.
template <class Access, class Pool, bool SAME>
__device__ __forceinline__ void forward(const ForwardArguments& a, const Tile& tile) {
  using Axis1 = typename Access::Axis1;
  using Axis2 = typename Access::Axis2;
  constexpr int TILE2 = Access::TILE2, CHANNELS = Access::CHANNELS;
  const Box& box = a.box;
  int i1 = tile.tile[1] * Axis1::INPUTS - P1, i2 = tile.tile[2] * Axis2::INPUTS;
  const ELEMENT* x = a.x + (tile.x + i1 * box.x_stride[1] + i2 * Access::along(box.x_stride[2]));
  using Held = typename Pool::Held;
  using Columns = Held[TILE1][Axis2::COUNT][CHANNELS];
  Columns shared;  // pooled columns of the plane that the next window shares
  auto plane = [&](auto first, int i0, Columns& pooled) {
    bool exists = K0 == 1 || unsigned(i0) < unsigned(box.input[0]);
    pool_plane<Access, Pool, decltype(first)::value>(box, x + i0 * box.x_stride[0], i1, i2, exists, pooled);
  };
  int o1 = tile.tile[1] * TILE1, o2 = tile.tile[2] * TILE2, begin = tile.tile[0] * a.depth;
  int end = K0 == 1 ? begin + 1 : min(begin + a.depth, box.output[0]);
  if (SHARES) plane(std::true_type(), begin * S0 - P0, shared);
#pragma unroll 1
  for (int o0 = begin; o0 < end; o0++) {
    Columns pooled;
    int i0 = o0 * S0 - P0;
    if constexpr (SHARES) {
      memcpy(&pooled, &shared, sizeof pooled);
#pragma unroll
      for (int k0 = 1; k0 < K0 - 1; k0++) plane(std::false_type(), i0 + k0, pooled);
      plane(std::true_type(), i0 + K0 - 1, shared);
#pragma unroll
      for (int row = 0; row < TILE1; row++)
#pragma unroll
        for (int c = 0; c < Axis2::COUNT; c++)
#pragma unroll
          for (int i = 0; i < CHANNELS; i++) pooled[row][c][i] = Pool::both(pooled[row][c][i], shared[row][c][i]);
    } else {
      plane(std::true_type(), i0, pooled);
#pragma unroll
      for (int k0 = 1; k0 < K0; k0++) plane(std::false_type(), i0 + k0, pooled);
    }
    ELEMENT* y = a.y + (tile.y + o0 * box.y_stride[0] + o1 * box.y_stride[1] + o2 * Access::along(box.y_stride[2]));
    bool exclude = a.mode == AVERAGE_EXCLUDE;
#pragma unroll
    for (int row = 0; row < TILE1; row++) {
      if (o1 + row >= box.output[1]) break;
      COMPUTE result[TILE2][CHANNELS];
#pragma unroll
      for (int u = 0; u < TILE2; u++) {
        COMPUTE reciprocal = a.reciprocal;
        if constexpr (Pool::AVERAGE) {
          if (!SAME)
            reciprocal = COMPUTE(1) / (COMPUTE(counted<Axis0>(o0, box.input[0], exclude)) *
                                       COMPUTE(counted<Axis1>(o1 + row, box.input[1], exclude)) *
                                       COMPUTE(counted<Axis2>(o2 + u, box.input[2], exclude)));
        }
#pragma unroll
        for (int i = 0; i < CHANNELS; i++) {
          Held pool = pooled[row][u * S2][i];
#pragma unroll
          for (int k2 = 1; k2 < K2; k2++) pool = Pool::both(pool, pooled[row][u * S2 + k2][i]);
          COMPUTE value = Pool::result(COMPUTE(pool));
          result[u][i] = Pool::AVERAGE ? value * reciprocal : value;
        }
      }
      ELEMENT* to = y + row * box.y_stride[1];
      box.y_packed ? write_row<TILE2>(to, Access::along(box.y_stride[2]), box.output[2] - o2, result, a.alpha, a.beta)
                   : write_row<1>(to, Access::along(box.y_stride[2]), box.output[2] - o2, result, a.alpha, a.beta);
    }
  }
}

template <class Access> __device__ __forceinline__ void forward(const ForwardArguments& a) {
  Tile tile(a.box, Access::CHANNELS);
  if (!tile.exists) return;
  griddepcontrol_wait_before_access(a.x + tile.x);
  if (std::is_same_v<Access, Wide>) griddepcontrol_launch_dependents_if_many();
  if (a.mode == AVERAGE_INCLUDE || a.mode == AVERAGE_EXCLUDE)
    a.reciprocal != COMPUTE(0) ? forward<Access, Sum, true>(a, tile) : forward<Access, Sum, false>(a, tile);
  else a.propagate ? forward<Access, NumbersAndNan, true>(a, tile) : forward<Access, Numbers, true>(a, tile);
}

#define KERNEL(name, Access)                                    \
  extern "C" __global__ void __launch_bounds__(THREADS, BLOCKS) \
      pooling_static_forward_##name(const ForwardArguments a) { \
    griddepcontrol_wait_deferred();                             \
    forward<Access>(a);                                         \
  }
FOR_EVERY_ACCESS(KERNEL)
