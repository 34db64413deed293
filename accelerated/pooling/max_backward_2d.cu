// Pooling backward (4.1.18) of maxima with a known window, of images whose rows are read in packs, of many channels one by one, and of small ones: see
// pooling/static_window.cuh; others have pooling/max_backward.cu, half in packs pooling/max_backward_fp16_rows.cu, the smallest pooling/small_max_backward.cu.
//
// Floor: bytes; x and dy are read, dx written (y is not needed: it is the maximum of x). A thread takes a strip of columns and marches down the rows:
// lines and sums that the next row of windows has, too, stay in registers, and what is needed next is in flight meanwhile. Of the windows of a row
// those that reach into the neighbouring strip are looked at twice, without shared memory or barriers. A window's maximum is pooled column by column;
// then each input needs a comparison and an addition. What limits before the bytes is that comparisons run at half the rate of additions and wait for
// each other: an H200 makes 32 for an input in the time of its bytes (3x3, stride 2); here it takes about 6. Measured on it: 84 to 90 % of the copy with
// about four rows of windows of a thread. 64x3x224x224 takes 24.1 us in 29 or 30 segments, 24.2 in 11, which run at the same time, 24.4 to 28 in others,
// with 28 warps of a multiprocessor; they wait for what they read (6.2 of 11.7 cycles), 53 % of the cycles issue an instruction, L2 is
// busy 79 %. The first lines fetched ahead save 1 %, more of them cost 2 %; those of later steps asked of the cache as well gain nothing. Slower: a
// thread that tells the one below it in its block what its last windows give to that one's first line, which need not look at them then (25.2 us, a
// fifth fewer windows but a barrier); reads that leave the cache first (27.9). 31x67x37x41 of float channels takes 8.9 us (in blocks 11.1); large images
// with gaps take 5 to 20 % longer than in blocks. Strips that tell each other what their windows hold (pooling/max_backward.cu) look at nothing twice,
// but take 2 to 19 % longer here.
#include "pooling/static_window.cuh"

static_assert(K0 == 1 && K1 >= S1 && K2 >= S2, "images, whose every input lies in a window");

struct MaximumArguments {
  const ELEMENT* dy;
  const ELEMENT* x;
  ELEMENT* dx;
  Box box;               // tiles of axis 1: segments
  int steps, fetches;    // rows of windows, and the lines that begin there; whether L2 is asked for the first ones ahead
  COMPUTE alpha, beta;
  int propagate;
};

constexpr int CARRIED = K1 - S1;          // lines of a window that the next one has, too
constexpr int BEFORE = (K1 - 1) / S1;     // rows of windows before a line's own that may cover it

// The lines of a row of windows: an input that equals the maximum and is the first to do so gets what there is.
template <class Access, class Pool> struct Lines {
  using Axis2 = typename Access::Axis2;
  static constexpr int LANES = Access::LANES, READ = Axis2::READ, COLUMNS = Axis2::INPUTS;
  Line<LANES, Axis2::AROUND, READ> line[K1];

  __device__ __forceinline__ void enter(int k, const Line<LANES, Axis2::AROUND, READ>& met) { line[k] = met; }
  __device__ __forceinline__ void move_on() {
#pragma unroll
    for (int k = 0; k < CARRIED; k++) line[k] = line[k + S1];
  }
  // The windows that begin at row i1 of x.
  __device__ __forceinline__ void give(const Line<LANES, Axis2::FIRST, Axis2::WINDOWS>& gifts, COMPUTE (&sums)[K1][COLUMNS][LANES],
                                       const Box& box, int i1, int i2) const {
    using Held = typename Pool::Held;
    Held columns[READ][LANES];  // the maxima over the lines
#pragma unroll
    for (int k1 = 0; k1 < K1; k1++) pool_line<Pool>(columns, line[k1], k1 == 0);
#pragma unroll
    for (int w2 = 0; w2 < Axis2::WINDOWS; w2++)
#pragma unroll
      for (int i = 0; i < LANES; i++) {
        COMPUTE gift = load<COMPUTE>(gifts.item[w2][i]);
        Held highest = columns[w2 * S2][i];
#pragma unroll
        for (int k2 = 1; k2 < K2; k2++) highest = Pool::both(highest, columns[w2 * S2 + k2][i]);
        COMPUTE most = COMPUTE(highest);
        bool open = true;  // until the first input that equals the maximum
#pragma unroll
        for (int k1 = 0; k1 < K1; k1++)
#pragma unroll
          for (int k2 = 0; k2 < K2; k2++) {
            int c = w2 * S2 + k2, column = c + Axis2::AROUND;
            COMPUTE value = load<COMPUTE>(line[k1].item[c][i]);
            bool equal = value == most;
            if (Pool::PROPAGATES)
              equal = (equal || !(value == value)) && unsigned(i1 + k1) < unsigned(box.input[1]) && unsigned(i2 + column) < unsigned(box.input[2]);
            if (0 <= column && column < COLUMNS && open && equal) sums[k1][column][i] += gift;
            open = open && !equal;
          }
      }
  }
};

template <class Access, class Pool> __device__ __forceinline__ void march(const MaximumArguments& a, const Tile& tile) {
  using Axis2 = typename Access::Axis2;
  constexpr int TILE2 = Access::TILE2, LANES = Access::LANES, COLUMNS = Axis2::INPUTS;
  const Box& box = a.box;
  int i2 = tile.tile[2] * COLUMNS, o2 = tile.tile[2] * TILE2;
  const ELEMENT* x = a.x + (tile.x + i2 * Access::along(box.x_stride[2]));
  const ELEMENT* dy = a.dy + (tile.y + o2 * Access::along(box.y_stride[2]));
  ELEMENT* dx = a.dx + (tile.x + i2 * Access::along(box.x_stride[2]));
  unsigned rest;  // segments are about as long as each other
  const int own = box.tiles[1].divide(tile.tile[1] * a.steps, rest), end = box.tiles[1].divide((tile.tile[1] + 1) * a.steps, rest);
  int step = max(own - BEFORE, 0);

  if (a.fetches) {
#pragma unroll
    for (int k = 0; k < CARRIED + S1; k++)
      if (unsigned(step * S1 - P1 + k) < unsigned(box.input[1]) && i2 < box.input[2]) prefetch_l2(x + (step * S1 - P1 + k) * box.x_stride[1]);
    if (step < box.output[1] && o2 < box.output[2]) prefetch_l2(dy + step * box.y_stride[1]);
  }
  griddepcontrol_wait_before_access(x, dy);
  Lines<Access, Pool> lines;
  Line<LANES, Axis2::AROUND, Axis2::READ> coming[S1];
  Line<LANES, Axis2::FIRST, Axis2::WINDOWS> gifts, coming_gifts;
  COMPUTE sums[K1][COLUMNS][LANES];
#pragma unroll
  for (int k = 0; k < K1; k++)
#pragma unroll
    for (int c = 0; c < COLUMNS; c++)
#pragma unroll
      for (int i = 0; i < LANES; i++) sums[k][c][i] = 0;
  auto read_line = [&](int row, auto& into) {
    into.template read<COLUMNS, Access::X_PACK>(x + row * box.x_stride[1], Access::along(box.x_stride[2]), i2, box.input[2],
                                                unsigned(row) < unsigned(box.input[1]), Pool::nothing());
  };
  auto read_step = [&](int o1) {
#pragma unroll
    for (int k = 0; k < S1; k++) read_line(o1 * S1 - P1 + CARRIED + k, coming[k]);
    const ELEMENT* from = dy + o1 * box.y_stride[1];
    bool present = unsigned(o1) < unsigned(box.output[1]);
    if (TILE2 > 1 && box.y_packed)
      coming_gifts.template read<TILE2, TILE2>(from, Access::along(box.y_stride[2]), o2, box.output[2], present, ELEMENT(0));
    else
      coming_gifts.template read<TILE2, 1>(from, Access::along(box.y_stride[2]), o2, box.output[2], present, ELEMENT(0));
  };
#pragma unroll
  for (int k = 0; k < CARRIED; k++) {
    int row = step * S1 - P1 + k;
    read_line(row, coming[0]);
    lines.enter(k, coming[0]);
  }
  read_step(step);
  griddepcontrol_launch_dependents_if(true);  // of many blocks, too: it saves 1 % of 25 us
#pragma unroll 1
  for (; step < end; step++) {
    int i1 = step * S1 - P1;
#pragma unroll
    for (int k = 0; k < S1; k++) lines.enter(CARRIED + k, coming[k]);
    gifts = coming_gifts;
    if (step + 1 < end) read_step(step + 1);
    lines.give(gifts, sums, box, i1, i2);
    // What no later window reaches is written, the rest moves on.
#pragma unroll
    for (int k = 0; k < S1; k++) {
      int row = i1 + k;
      if (step < own || unsigned(row) >= unsigned(box.input[1])) continue;
      write_line<Access::X_PACK>(dx + row * box.x_stride[1], Access::along(box.x_stride[2]), box.input[2] - i2, sums[k], a.alpha, a.beta);
    }
#pragma unroll
    for (int k = 0; k < K1; k++)
#pragma unroll
      for (int c = 0; c < COLUMNS; c++)
#pragma unroll
        for (int i = 0; i < LANES; i++) sums[k][c][i] = k < CARRIED ? sums[k + S1][c][i] : COMPUTE(0);
    lines.move_on();
  }
}

template <class Access> __device__ __forceinline__ void march(const MaximumArguments& a) {
  Tile tile(a.box, Access::LANES);
  if (!tile.exists) return;
  a.propagate ? march<Access, NumbersAndNan>(a, tile) : march<Access, Numbers>(a, tile);
}

extern "C" __global__ void __launch_bounds__(THREADS, BLOCKS) pooling_max_backward_2d_wide(const MaximumArguments a) {
  griddepcontrol_wait_deferred();
  march<Wide>(a);
}
extern "C" __global__ void __launch_bounds__(THREADS, BLOCKS) pooling_max_backward_2d_narrow(const MaximumArguments a) {
  griddepcontrol_wait_deferred();
  march<Narrow>(a);
}
extern "C" __global__ void __launch_bounds__(THREADS, BLOCKS) pooling_max_backward_2d_channels(const MaximumArguments a) {
  griddepcontrol_wait_deferred();
  march<Channels>(a);
}
extern "C" __global__ void __launch_bounds__(THREADS, BLOCKS) pooling_max_backward_2d_scattered(const MaximumArguments a) {
  griddepcontrol_wait_deferred();
  march<Scattered>(a);
}
extern "C" __global__ void __launch_bounds__(THREADS, BLOCKS) pooling_max_backward_2d_loose(const MaximumArguments a) {
  griddepcontrol_wait_deferred();
  march<Loose>(a);
}
