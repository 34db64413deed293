// Small images whose windows a block has all of, a thread each: what their kernels share. The window of a thread
// follows from the dimensions of the launch, without divisions (primitives/small_grid.cuh says why).
#pragma once
#include "pooling/static_window.cuh"

static_assert(K0 == 1, "images");

struct Planes {
  unsigned shared;  // planes, or packs of channels, that blocks share among each other
  int rows_before,
      own_rows;  // of channels a block may have some rows of windows, and around them those that are only scanned
  int input[2], output[2], x_stride[2], y_stride[2];
  int x_step[3], y_step[3];  // from one of those to the next, and by the other dimensions of the launch
};

// Of a thread: its window, the inputs that begin there, and where they lie in memory. Threads are neighbours where
// elements are.
template <class Access> struct ThreadWindow {
  int row, column, plane;
  int inner_row, rows, columns, planes;  // the row in the block, and how many there are there
  bool exists, owns;                     // owns: inputs are the thread's to write
  int x, y;

  __device__ __forceinline__ explicit ThreadWindow(const Planes& a) {
    const uint3 at = {threadIdx.x, threadIdx.y, threadIdx.z}, of = {blockDim.x, blockDim.y, blockDim.z};
    if (Access::ROWS) column = at.x, columns = of.x, row = inner_row = at.y, rows = of.y, plane = at.z, planes = of.z;
    else
      plane = at.x, planes = of.x, column = at.y, columns = of.y, inner_row = at.z, rows = of.z,
      row = blockIdx.z * a.own_rows + inner_row - a.rows_before;
    const unsigned number = blockIdx.x * planes + plane;
    exists = number < a.shared;
    owns = exists && (Access::ROWS || unsigned(inner_row - a.rows_before) < unsigned(a.own_rows));
    x = number * a.x_step[0] + blockIdx.y * a.x_step[1] + blockIdx.z * a.x_step[2] + row * S1 * a.x_stride[0] +
        column * S2 * Access::along(a.x_stride[1]);
    y = number * a.y_step[0] + blockIdx.y * a.y_step[1] + blockIdx.z * a.y_step[2] + row * a.y_stride[0] +
        column * Access::along(a.y_stride[1]);
  }
};

// Asks for the inputs of a thread's window.
template <class Access, class Pool> struct WindowRows {
  Line<Access::CHANNELS, -P2, K2> line[K1];

  __device__ __forceinline__ WindowRows(const Planes& a, const ThreadWindow<Access>& thread, const ELEMENT* x) {
#pragma unroll
    for (int k = 0; k < K1; k++)
      line[k].template read<S2, 1>(
          x + (k - P1) * a.x_stride[0], Access::along(a.x_stride[1]), thread.column * S2, a.input[1],
          thread.exists && unsigned(thread.row * S1 - P1 + k) < unsigned(a.input[0]), Pool::nothing());
  }
  __device__ __forceinline__ typename Pool::Held pooled(int channel) const {
    auto highest = held<typename Pool::Held>(line[0].item[0][channel]);
#pragma unroll
    for (int n = 1; n < K1 * K2; n++)
      highest = Pool::both(highest, held<typename Pool::Held>(line[n / K2].item[n % K2][channel]));
    return highest;
  }
};
