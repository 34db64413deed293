// Pooling forward (3.2.69) of images in rows with a large static window, columns first: see pooling/static_window.cuh.
//
// Tiling: a thread pools a pack of columns over the rows of a row of windows, all of them in flight; then, in shared
// memory, windows pool columns. Where windows and packs do not begin together (7x7), threads with windows of their own
// read far apart. Roofline bound: bytes, x read and y written once. An H200 issues 17 instructions for an input in the
// time of its bytes in half; this takes about 3. Measured on an H200: 7x7 of 64x256x56x56 half NCHW 27.1 us, 92 % of
// the copy.
#include "pooling/static_window.cuh"

struct Rows : Layout {
  unsigned total, slots;            // rows of windows: in all, of a block
  FastDivmod packs, outputs, rows;  // packs of a line of x, windows of a line of y, lines of a plane of y
};

struct RowsArguments {
  const ELEMENT* x;
  ELEMENT* y;
  Rows rows;
  COMPUTE alpha, beta;
  COMPUTE reciprocal;  // of every average's divisor, 0 where they differ
  int mode, propagate;
};

// Where a row of windows lies: its line, and where its plane begins.
struct WindowRow {
  int line, x, y;
  __device__ __forceinline__ WindowRow(const Rows& rows, unsigned index) {
    unsigned here, rest = rows.rows.divide(index, here);
    line = here, x = y = 0;
    rows.add_plane(rest, x, y);
  }
};

// SAME: every average has the same divisor.
template <class Pool, bool SAME, int PACK> __device__ __forceinline__ void pool_columns(const RowsArguments& a) {
  using Held = typename Pool::Held;
  using Axis1 = StaticAxis<K1, S1, P1, 1>;
  using Axis2 = StaticAxis<K2, S2, P2, 1>;
  const Rows& rows = a.rows;
  Held* columns = reinterpret_cast<Held*>(shared_memory);
  unsigned first = blockIdx.x * rows.slots, slots = min(rows.slots, rows.total - first), width = rows.input[2], pack,
           slot = rows.packs.divide(threadIdx.x, pack);
  if (slot < slots) {
    WindowRow row(rows, first + slot);
    int i1 = row.line * S1 - P1, i2 = pack * PACK;
    const ELEMENT* x = a.x + (row.x + i1 * rows.x_stride[1] + i2);
    Line<1, 0, PACK> lines[K1];
#pragma unroll
    for (int k1 = 0; k1 < K1; k1++)
      lines[k1].template read<PACK, PACK>(x + k1 * rows.x_stride[1], 1, i2, width,
                                          unsigned(i1 + k1) < unsigned(rows.input[1]), Pool::nothing());
    Held pooled[PACK][1];
#pragma unroll
    for (int k1 = 0; k1 < K1; k1++) pool_row<Pool>(pooled, lines[k1], k1 == 0);
    Pack<Held, PACK> of_columns;
#pragma unroll
    for (int k = 0; k < PACK; k++) of_columns.item[k] = pooled[k][0];
    *reinterpret_cast<Pack<Held, PACK>*>(columns + (slot * width + i2)) = of_columns;
  }
  __syncthreads();

  bool exclude = a.mode == AVERAGE_EXCLUDE;
  for (unsigned k = threadIdx.x; k < slots * rows.outputs.divisor; k += blockDim.x) {
    unsigned o2, of = rows.outputs.divide(k, o2);
    int i2 = int(o2) * S2 - P2;
    const Held* from = columns + of * width;
    Held pool = held<Held>(Pool::nothing());
#pragma unroll
    for (int k2 = 0; k2 < K2; k2++)
      if (unsigned(i2 + k2) < width) pool = Pool::both(pool, from[i2 + k2]);
    WindowRow row(rows, first + of);
    COMPUTE result[1][1] = {{Pool::result(COMPUTE(pool))}}, reciprocal = a.reciprocal;
    if constexpr (Pool::AVERAGE) {
      if (!SAME)
        reciprocal = COMPUTE(1) / (COMPUTE(counted<Axis1>(row.line, rows.input[1], exclude)) *
                                   COMPUTE(counted<Axis2>(o2, rows.input[2], exclude)));
      result[0][0] *= reciprocal;
    }
    write_row<1>(a.y + (row.y + row.line * rows.y_stride[1] + int(o2) * rows.y_stride[2]), 1, 1, result, a.alpha,
                 a.beta);
  }
}

template <int PACK> __device__ __forceinline__ void pool_columns(const RowsArguments& a) {
  if (a.mode == AVERAGE_INCLUDE || a.mode == AVERAGE_EXCLUDE)
    a.reciprocal != COMPUTE(0) ? pool_columns<Sum, true, PACK>(a) : pool_columns<Sum, false, PACK>(a);
  else a.propagate ? pool_columns<NumbersAndNan, true, PACK>(a) : pool_columns<Numbers, true, PACK>(a);
}

extern "C" __global__ void __launch_bounds__(THREADS, BLOCKS)
    pooling_static_forward_separable_wide(const RowsArguments a) {
  griddepcontrol_wait();
  pool_columns<row_pack(16)>(a);
}
extern "C" __global__ void __launch_bounds__(THREADS, BLOCKS)
    pooling_static_forward_separable_narrow(const RowsArguments a) {
  griddepcontrol_wait();
  pool_columns<row_pack(8)>(a);
}
