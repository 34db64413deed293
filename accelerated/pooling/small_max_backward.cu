// Pooling backward (4.1.18) of maxima of small images with a known window: a thread has one window and the inputs that begin there, a block all
// windows of some planes, or of some channels those of some rows. What a window gives and to which input, threads tell each other in shared memory.
//
// Floor: a launch and one way to the memory and back; bytes hardly matter. Every window is looked at once, but for rows of channels beside
// those of a block: ten reads of a thread, all in flight together; one barrier; no division. The order of the additions is
// fixed: windows from the first to the last. pooling/max_backward_2d.cu, whose threads look at what is around them themselves, four windows and 29 reads,
// takes 1.52 to 1.77 us for 8x64x14x14 in a stream on an H200, this one 1.33 to 1.39 (planes), 1.45 (channels of half) and 1.54 (of float), where a copy takes 0.9.
// Blocks have 32 bytes of channels: with 16 it took 0.1 to 0.2 longer. Rows of half are shared by four blocks (by one 1.6 us), those of float by one (by two 1.59).
// With the next kernel let in behind the reads, planes took 0.2 longer.
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
  COMPUTE gift;
  int where;
};

// PLAIN: alpha is 1, beta 0. What is usual is known to the code, so that there is no jump from the wait to the end.
template <class Access, class Pool, bool PLAIN> __device__ __forceinline__ void give(const MaximumArguments& a, const PlaceInPlane<Access>& place) {
  using Axis1 = typename Access::Axis1;
  using Axis2 = typename Access::Axis2;
  constexpr int LANES = Access::LANES, ROWS = Axis1::WINDOWS, COLUMNS = Axis2::WINDOWS;  // of windows that cover a thread's inputs
  struct Cells { Cell of[LANES]; };
  const Planes& planes = a.planes;

  // Windows tell what they give; around them are some that give nothing.
  const int pitch = Access::ROWS ? 1 : place.planes, row_pitch = pitch * (place.columns + COLUMNS - 1), plane_cells = (place.rows + ROWS - 1) * row_pitch;
  Cells* const cells = reinterpret_cast<Cells*>(shared_memory);
  Cells* const corner = cells + place.plane * (Access::ROWS ? plane_cells : 1) + place.inner_row * row_pitch + place.column * pitch;
  const int count = Access::ROWS ? place.planes * plane_cells : plane_cells;
  for (int k = threadIdx.x + blockDim.x * (threadIdx.y + blockDim.y * threadIdx.z); k < count; k += blockDim.x * blockDim.y * blockDim.z)
#pragma unroll
    for (int i = 0; i < LANES; i++) cells[k].of[i] = {COMPUTE(0), NONE};
  __syncthreads();
  const ELEMENT *x = a.x + place.x, *dy = a.dy + place.y;
  ELEMENT* dx = a.dx + place.x;
  griddepcontrol_wait_before_access(x, dy, dx);

  const WindowLines<Access, Pool> window(planes, place, x);
  Line<LANES, 0, 1> gift;
  gift.template read<1, 1>(dy, 0, place.column, planes.output[1], place.exists && unsigned(place.row) < unsigned(planes.output[0]), ELEMENT(0));
  Cells own;
#pragma unroll
  for (int i = 0; i < LANES; i++) {
    const COMPUTE most = COMPUTE(window.pooled(i));
    own.of[i] = {load<COMPUTE>(gift.item[0][i]), NONE};
#pragma unroll
    for (int k1 = K1 - 1; k1 >= 0; k1--)  // the first that equals it
#pragma unroll
      for (int k2 = K2 - 1; k2 >= 0; k2--) {
        const COMPUTE value = load<COMPUTE>(window.line[k1].item[k2][i]);
        bool equal = value == most;
        if (Pool::PROPAGATES)
          equal = (equal || !(value == value)) && unsigned(place.row * S1 - P1 + k1) < unsigned(planes.input[0]) &&
                  unsigned(place.column * S2 - P2 + k2) < unsigned(planes.input[1]);
        if (equal) own.of[i].where = k1 * K2 + k2;
      }
  }
  corner[-Axis1::FIRST * row_pitch - Axis2::FIRST * pitch] = own;
  __syncthreads();

  COMPUTE sums[S1][S2][LANES];
#pragma unroll
  for (int n = 0; n < S1 * S2 * LANES; n++) (&sums[0][0][0])[n] = 0;
#pragma unroll
  for (int w1 = 0; w1 < ROWS; w1++)
#pragma unroll
    for (int w2 = 0; w2 < COLUMNS; w2++) {
      const bool mine = w1 + Axis1::FIRST == 0 && w2 + Axis2::FIRST == 0;
      const Cells told = mine ? own : corner[w1 * row_pitch + w2 * pitch];
#pragma unroll
      for (int line = 0; line < S1; line++)
#pragma unroll
        for (int column = 0; column < S2; column++) {
          const int k1 = line - (Axis1::FIRST + w1) * S1 + P1, k2 = column - (Axis2::FIRST + w2) * S2 + P2;
          if (k1 < 0 || k1 >= K1 || k2 < 0 || k2 >= K2) continue;
#pragma unroll
          for (int i = 0; i < LANES; i++)
            if (told.of[i].where == k1 * K2 + k2) sums[line][column][i] += told.of[i].gift;
        }
    }
  const int left = place.owns ? planes.input[1] - place.column * S2 : 0;
#pragma unroll
  for (int line = 0; line < S1; line++)
    write_packs<PLAIN, 1>(dx + line * planes.x_stride[0], Access::along(planes.x_stride[1]), place.row * S1 + line < planes.input[0] ? left : 0, sums[line], a.alpha, a.beta);
}

template <class Access, class Pool> __device__ __forceinline__ void give(const MaximumArguments& a, const PlaceInPlane<Access>& place) {
  a.alpha == COMPUTE(1) && a.beta == COMPUTE(0) ? give<Access, Pool, true>(a, place) : give<Access, Pool, false>(a, place);
}
template <class Access> __device__ __forceinline__ void give(const MaximumArguments& a) {
  const PlaceInPlane<Access> place(a.planes);
  a.propagate ? give<Access, NumbersAndNan>(a, place) : give<Access, Numbers>(a, place);
}

extern "C" __global__ void __launch_bounds__(THREADS) pooling_small_max_backward_loose(const MaximumArguments a) {
  griddepcontrol_wait_deferred();
  give<Loose>(a);
}
extern "C" __global__ void __launch_bounds__(THREADS) pooling_small_max_backward_scattered(const MaximumArguments a) {
  griddepcontrol_wait_deferred();
  give<Scattered>(a);
}
extern "C" __global__ void __launch_bounds__(THREADS) pooling_small_max_backward_channels(const MaximumArguments a) {
  griddepcontrol_wait_deferred();
  give<Channels>(a);
}
