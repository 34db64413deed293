// Pooling backward (4.1.18) of maxima of small images with a static window.
//
// Tiling: a thread has one window and the inputs that begin there, a block all windows of some planes, or of some
// channels those of some rows. Threads publish what their window gives, and to which input, in shared memory; the order
// of the additions is fixed: windows from the first to the last. Roofline bound: a launch and one round trip to memory;
// bytes and flops hardly matter. Measured on an H200: 8x64x14x14 in a stream 1.33 to 1.39 us (planes), 1.45 to 1.54
// (channels); a copy 0.9.
#include "pooling/small.cuh"

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
