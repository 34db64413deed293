// Pooling backward (4.1.18) of maxima of small images with a static window.
//
// Tiling: a thread has one window and the inputs that begin there, a block all windows of some planes, or of some
// channels those of some rows. Threads publish what their window gives, and to which input, in shared memory; the order
// of the additions is fixed: windows from the first to the last. Roofline bound: a launch and one round trip to memory;
// bytes and flops hardly matter. Measured on an H200: 8x64x14x14 in a stream 1.33 to 1.39 us (planes), 1.45 to 1.54
// (channels); a copy 0.9.
#include "pooling/static_window.cuh"

static_assert(K0 == 1, "images");

struct Planes {
  unsigned shared;  // planes, or packs of channels, that blocks share among each other
  int rows_before,
      own_rows;  // of channels a block may have some rows of windows, and around them those that are only scanned
  int input[2], output[2], x_stride[2], y_stride[2];
  int x_step[2], y_step[2];  // from one of those to the next, and by the second dimension of the launch
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
    x = number * a.x_step[0] + blockIdx.y * a.x_step[1] + row * S1 * a.x_stride[0] +
        column * S2 * Access::along(a.x_stride[1]);
    y = number * a.y_step[0] + blockIdx.y * a.y_step[1] + row * a.y_stride[0] + column * Access::along(a.y_stride[1]);
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

struct MaximumArguments {
  const ELEMENT* dy;
  const ELEMENT* x;
  ELEMENT* dx;
  COMPUTE alpha, beta;
  int propagate;
  Planes planes;
};

constexpr int NONE = -1;

// What a window gives, and to which of its inputs.
struct alignas(2 * sizeof(COMPUTE)) Cell {
  COMPUTE dy_value;
  int where;
};

// PLAIN: alpha is 1, beta 0. What is usual is known to the code, so that there is no jump from the wait to the end.
template <class Access, class Pool, bool PLAIN>
__device__ __forceinline__ void scatter(const MaximumArguments& a, const ThreadWindow<Access>& thread) {
  using Axis1 = typename Access::Axis1;
  using Axis2 = typename Access::Axis2;
  constexpr int CHANNELS = Access::CHANNELS, ROWS = Axis1::WINDOWS,
                COLUMNS = Axis2::WINDOWS;  // of windows that cover a thread's inputs
  struct Cells {
    Cell of[CHANNELS];
  };
  const Planes& planes = a.planes;

  // Windows publish what they give; around them are cells of windows that do not exist.
  const int pitch = Access::ROWS ? 1 : thread.planes, row_pitch = pitch * (thread.columns + COLUMNS - 1),
            plane_cells = (thread.rows + ROWS - 1) * row_pitch;
  Cells* const cells = reinterpret_cast<Cells*>(shared_memory);
  Cells* const corner =
      cells + thread.plane * (Access::ROWS ? plane_cells : 1) + thread.inner_row * row_pitch + thread.column * pitch;
  const int count = Access::ROWS ? thread.planes * plane_cells : plane_cells;
  for (int k = threadIdx.x + blockDim.x * (threadIdx.y + blockDim.y * threadIdx.z); k < count;
       k += blockDim.x * blockDim.y * blockDim.z)
#pragma unroll
    for (int i = 0; i < CHANNELS; i++) cells[k].of[i] = {COMPUTE(0), NONE};
  __syncthreads();
  const ELEMENT *x = a.x + thread.x, *dy = a.dy + thread.y;
  ELEMENT* dx = a.dx + thread.x;
  griddepcontrol_wait_before_access(x, dy, dx);

  const WindowRows<Access, Pool> window(planes, thread, x);
  Line<CHANNELS, 0, 1> dy_value;
  dy_value.template read<1, 1>(dy, 0, thread.column, planes.output[1],
                               thread.exists && unsigned(thread.row) < unsigned(planes.output[0]), ELEMENT(0));
  Cells own;
#pragma unroll
  for (int i = 0; i < CHANNELS; i++) {
    const COMPUTE most = COMPUTE(window.pooled(i));
    own.of[i] = {load<COMPUTE>(dy_value.item[0][i]), NONE};
#pragma unroll
    for (int k1 = K1 - 1; k1 >= 0; k1--)  // the first that equals it
#pragma unroll
      for (int k2 = K2 - 1; k2 >= 0; k2--) {
        const COMPUTE value = load<COMPUTE>(window.line[k1].item[k2][i]);
        bool equal = value == most;
        if (Pool::PROPAGATES)
          equal = (equal || !(value == value)) && unsigned(thread.row * S1 - P1 + k1) < unsigned(planes.input[0]) &&
                  unsigned(thread.column * S2 - P2 + k2) < unsigned(planes.input[1]);
        if (equal) own.of[i].where = k1 * K2 + k2;
      }
  }
  corner[-Axis1::FIRST * row_pitch - Axis2::FIRST * pitch] = own;
  __syncthreads();

  COMPUTE sums[S1][S2][CHANNELS];
#pragma unroll
  for (int n = 0; n < S1 * S2 * CHANNELS; n++) (&sums[0][0][0])[n] = 0;
#pragma unroll
  for (int w1 = 0; w1 < ROWS; w1++)
#pragma unroll
    for (int w2 = 0; w2 < COLUMNS; w2++) {
      const bool mine = w1 + Axis1::FIRST == 0 && w2 + Axis2::FIRST == 0;
      const Cells cell = mine ? own : corner[w1 * row_pitch + w2 * pitch];
#pragma unroll
      for (int line = 0; line < S1; line++)
#pragma unroll
        for (int column = 0; column < S2; column++) {
          const int k1 = line - (Axis1::FIRST + w1) * S1 + P1, k2 = column - (Axis2::FIRST + w2) * S2 + P2;
          if (k1 < 0 || k1 >= K1 || k2 < 0 || k2 >= K2) continue;
#pragma unroll
          for (int i = 0; i < CHANNELS; i++)
            if (cell.of[i].where == k1 * K2 + k2) sums[line][column][i] += cell.of[i].dy_value;
        }
    }
  const int left = thread.owns ? planes.input[1] - thread.column * S2 : 0;
#pragma unroll
  for (int line = 0; line < S1; line++)
    write_packs<PLAIN, 1>(dx + line * planes.x_stride[0], Access::along(planes.x_stride[1]),
                          thread.row * S1 + line < planes.input[0] ? left : 0, sums[line], a.alpha, a.beta);
}

template <class Access, class Pool>
__device__ __forceinline__ void scatter(const MaximumArguments& a, const ThreadWindow<Access>& thread) {
  a.alpha == COMPUTE(1) && a.beta == COMPUTE(0) ? scatter<Access, Pool, true>(a, thread)
                                                : scatter<Access, Pool, false>(a, thread);
}
template <class Access> __device__ __forceinline__ void scatter(const MaximumArguments& a) {
  const ThreadWindow<Access> thread(a.planes);
  a.propagate ? scatter<Access, NumbersAndNan>(a, thread) : scatter<Access, Numbers>(a, thread);
}

#define KERNEL(name, Access)                                                                                          \
  extern "C" __global__ void __launch_bounds__(THREADS) pooling_small_max_backward_##name(const MaximumArguments a) { \
    griddepcontrol_wait_deferred();                                                                                   \
    scatter<Access>(a);                                                                                               \
  }
KERNEL(loose, Loose)
KERNEL(scattered, Scattered)
KERNEL(channels, Channels)
