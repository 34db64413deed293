// Pooling backward (4.1.18) with a known window: see pooling_known.cuh.
//
// Floor: bytes. The average reads dy and writes dx, the maximum reads x too (y is not needed: it is the maximum of x).
// Every thread gathers what the windows over its inputs give them, in the order of the windows, without atomics or shared
// memory. What limits before the bytes is instructions: an H200 issues 63 for an input (3x3, stride 2) in the time of the bytes
// of a maximum in float, 31 in half; of an average 35 and 17. Compiled for sm_90 a maximum has 29 for an input (float and half
// rows, with the windows that neighbours look at too), 37 to 50 where channels are neighbours; an average 13 (half) to 19.
// A window's maximum is pooled column by column; then each input needs a comparison (is it the first that equals the maximum?)
// and an addition. Of a volume, other planes count as maxima only: 80 to 130. The fraction of the floor is not measured yet.
#include "pooling_known.cuh"

struct BackwardArguments {
  const ELEMENT* dy;
  const ELEMENT* x;
  ELEMENT* dx;
  Box box;
  COMPUTE alpha, beta;
  COMPUTE reciprocal;  // of every average's divisor, 0 where they differ
  int mode, propagate;
};

constexpr int LINES = Axis1::INPUTS, COLUMNS = Axis2::INPUTS;
using Sums = COMPUTE[LINES][COLUMNS][LANES];
using Gifts = Line<Axis2::FIRST, Axis2::WINDOWS>;

// The windows along axis 0 that cover a plane.
struct Planes {
  int first, last;
  __device__ __forceinline__ Planes(int position, int output) {
    int reach = position + P0;
    first = K0 == 1 ? 0 : reach < K0 ? 0 : (reach - K0) / S0 + 1;
    last = K0 == 1 ? 1 : min(reach / S0 + 1, output);
  }
};

// dy of one row of windows.
__device__ __forceinline__ void read_gifts(const BackwardArguments& a, const Tile& tile, int o0, int o1, Gifts& gifts) {
  const Box& box = a.box;
  int o2 = tile.tile[2] * TILE2;
  const ELEMENT* dy = a.dy + (tile.y + OFFSET(o0) * box.y_stride[0] + OFFSET(o1) * box.y_stride[1] + OFFSET(o2) * box.y_stride[2]);
  gifts.template read<TILE2, Y_PACK>(dy, box.y_stride[2], o2, box.output[2], unsigned(o1) < unsigned(box.output[1]), ELEMENT(0));
}

__device__ __forceinline__ void write_sums(const BackwardArguments& a, const Tile& tile, Sums& sums, COMPUTE factor) {
  const Box& box = a.box;
  int i0 = tile.tile[0], i1 = tile.tile[1] * LINES, i2 = tile.tile[2] * COLUMNS;
  ELEMENT* dx = a.dx + (tile.x + OFFSET(i0) * box.x_stride[0] + OFFSET(i1) * box.x_stride[1] + OFFSET(i2) * box.x_stride[2]);
#pragma unroll
  for (int line = 0; line < LINES; line++) {
    if (i1 + line >= box.input[1]) break;
#pragma unroll
    for (int c = 0; c < COLUMNS; c++)
#pragma unroll
      for (int i = 0; i < LANES; i++) sums[line][c][i] *= factor;
    write_line<COLUMNS, X_PACK>(dx + OFFSET(line) * box.x_stride[1], box.x_stride[2], i2, box.input[2], sums[line], a.beta);
  }
}

__device__ __forceinline__ void clear(Sums& sums) {
#pragma unroll
  for (int line = 0; line < LINES; line++)
#pragma unroll
    for (int c = 0; c < COLUMNS; c++)
#pragma unroll
      for (int i = 0; i < LANES; i++) sums[line][c][i] = 0;
}

#if !MAXIMUM
// SAME: every average has the same divisor.
template <bool SAME> __device__ __forceinline__ void backward_average(const BackwardArguments& a, const Tile& tile) {
  const Box& box = a.box;
  bool exclude = a.mode == AVERAGE_EXCLUDE;
  Sums sums;
  clear(sums);
  Planes planes(tile.tile[0], box.output[0]);
  for (int o0 = planes.first; o0 < planes.last; o0++) {
#pragma unroll
    for (int w1 = 0; w1 < Axis1::WINDOWS; w1++) {
      int o1 = tile.tile[1] * TILE1 + Axis1::FIRST + w1;
      Gifts gifts;
      read_gifts(a, tile, o0, o1, gifts);
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
  write_sums(a, tile, sums, a.alpha);
}

extern "C" __global__ void __launch_bounds__(THREADS, BLOCKS) pooling_known_backward_average(const BackwardArguments a) {
  wait_for_earlier_kernels();
  Tile tile(a.box);
  if (!tile.exists) return;
  a.reciprocal != COMPUTE(0) ? backward_average<true>(a, tile) : backward_average<false>(a, tile);
}

#else
template <class Pool> struct Maxima {
  static constexpr int READ1 = Axis1::READ, READ2 = Axis2::READ;
  using Held = typename Pool::Held;
  using Columns = Held[Axis1::WINDOWS][READ2][LANES];  // of each row of windows: the maxima over the lines of a plane

  Line<Axis2::AROUND, READ2> line[READ1];
  bool present[READ1];

  // The lines of a plane around a tile.
  __device__ __forceinline__ void read(const BackwardArguments& a, const Tile& tile, int plane) {
    const Box& box = a.box;
    int i1 = tile.tile[1] * LINES + Axis1::AROUND, i2 = tile.tile[2] * COLUMNS;
    const ELEMENT* x = a.x + (tile.x + OFFSET(plane) * box.x_stride[0] + OFFSET(i1) * box.x_stride[1] + OFFSET(i2) * box.x_stride[2]);
#pragma unroll
    for (int k = 0; k < READ1; k++) {
      present[k] = unsigned(i1 + k) < unsigned(box.input[1]);
      line[k].template read<COLUMNS, X_PACK>(x + OFFSET(k) * box.x_stride[1], box.x_stride[2], i2, box.input[2], present[k], Pool::nothing());
    }
  }
  __device__ __forceinline__ void pool(Columns& columns, bool first) const {
#pragma unroll
    for (int w1 = 0; w1 < Axis1::WINDOWS; w1++)
#pragma unroll
      for (int k1 = 0; k1 < K1; k1++) pool_line<Pool>(columns[w1], line[w1 * S1 + k1], first && k1 == 0);
  }
  // The maxima over planes [first, last).
  static __device__ __forceinline__ void pool_planes(const BackwardArguments& a, const Tile& tile, int first, int last, Columns& columns) {
    Held nothing = held<Held>(Pool::nothing());
#pragma unroll
    for (int w1 = 0; w1 < Axis1::WINDOWS; w1++)
#pragma unroll
      for (int c = 0; c < READ2; c++)
#pragma unroll
        for (int i = 0; i < LANES; i++) columns[w1][c][i] = nothing;
#pragma unroll 1
    for (int plane = first; plane < last; plane++) {
      Maxima other;
      other.read(a, tile, plane);
      other.pool(columns, false);
    }
  }
  // Over the columns of a window.
  static __device__ __forceinline__ Held over_columns(const Held (&columns)[READ2][LANES], int w2, int i) {
    Held highest = columns[w2 * S2][i];
#pragma unroll
    for (int k2 = 1; k2 < K2; k2++) highest = Pool::both(highest, columns[w2 * S2 + k2][i]);
    return highest;
  }
};

template <class Pool> __device__ __forceinline__ void backward_maximum(const BackwardArguments& a, const Tile& tile) {
  const Box& box = a.box;
  using Held = typename Pool::Held;
  int i0 = tile.tile[0], i2 = tile.tile[2] * COLUMNS;
  Sums sums;
  clear(sums);
  Maxima<Pool> mine;
  typename Maxima<Pool>::Columns own, before, after;
  mine.read(a, tile, i0);
  Planes planes(i0, box.output[0]);
  for (int o0 = planes.first; o0 < planes.last; o0++) {
    Gifts gifts[Axis1::WINDOWS];
#pragma unroll
    for (int w1 = 0; w1 < Axis1::WINDOWS; w1++) read_gifts(a, tile, o0, tile.tile[1] * TILE1 + Axis1::FIRST + w1, gifts[w1]);
    int first = max(o0 * S0 - P0, 0), last = min(o0 * S0 - P0 + K0, box.input[0]);
    if (K0 > 1) {  // what the planes before and after this one hold decides together
      Maxima<Pool>::pool_planes(a, tile, first, i0, before);
      Maxima<Pool>::pool_planes(a, tile, i0 + 1, last, after);
    }
    mine.pool(own, true);
#pragma unroll
    for (int w1 = 0; w1 < Axis1::WINDOWS; w1++)
#pragma unroll
      for (int i = 0; i < LANES; i++)
#pragma unroll
        for (int w2 = 0; w2 < Axis2::WINDOWS; w2++) {
          COMPUTE gift = load<COMPUTE>(gifts[w1].item[w2][i]);
          Held highest = Maxima<Pool>::over_columns(own[w1], w2, i);
          bool open = true;  // until the first input that equals the maximum
          COMPUTE most;
          if constexpr (K0 > 1) {
            Held earlier = Maxima<Pool>::over_columns(before[w1], w2, i);
            highest = Pool::both(Pool::both(earlier, highest), Maxima<Pool>::over_columns(after[w1], w2, i));
            most = COMPUTE(highest);
            open = first >= i0 || !(COMPUTE(earlier) == most || (Pool::PROPAGATES && !(earlier == earlier)));
          } else {
            most = COMPUTE(highest);  // comparing floats takes fewer instructions than comparing halves
          }
#pragma unroll
          for (int k1 = 0; k1 < K1; k1++)
#pragma unroll
            for (int k2 = 0; k2 < K2; k2++) {
              int c = w2 * S2 + k2, line = w1 * S1 + k1 + Axis1::AROUND, column = c + Axis2::AROUND;
              COMPUTE value = load<COMPUTE>(mine.line[w1 * S1 + k1].item[c][i]);
              bool equal = value == most;
              if (Pool::PROPAGATES)
                equal = (equal || !(value == value)) && mine.present[w1 * S1 + k1] && unsigned(i2 + column) < unsigned(box.input[2]);
              if (0 <= line && line < LINES && 0 <= column && column < COLUMNS)
                if (open && equal) sums[line][column][i] += gift;
              open = open && !equal;
            }
        }
  }
  write_sums(a, tile, sums, a.alpha);
}

extern "C" __global__ void __launch_bounds__(THREADS, BLOCKS) pooling_known_backward_maximum(const BackwardArguments a) {
  wait_for_earlier_kernels();
  Tile tile(a.box);
  if (!tile.exists) return;
  if (a.propagate)
    backward_maximum<NumbersAndNan>(a, tile);
  else
    backward_maximum<Numbers>(a, tile);
}
#endif
