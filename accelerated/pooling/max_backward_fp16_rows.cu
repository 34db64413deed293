// Pooling backward (4.1.18) of maxima of images of half whose rows are read in packs, with a known window: see
// pooling/max_backward_fp16.cuh; other data types have pooling/max_backward_2d.cu.
//
// Floor: bytes; x and dy are read, dx written (y is not needed: it is the maximum of x). A thread takes a strip of columns and
// marches down some rows of windows; what it needs STAGES steps later is in flight. It serves rows that a warp does not hold, and calls with
// fewer planes than blocks at a time (see pooling/max_backward_fp16_planes.cu). About 50 instructions of a thread for a window.
// Measured on an H200: 64x3x224x224 10.4 us, the time of the copy, with as many rows of windows of a thread as make all warps
// run at the same time. Further rows of a thread spread what is read at a time over too many places: 64x256x56x56 takes
// 71 us with 2 of them, 74 with 5, 90 and more with 14 or all.
#include "pooling/max_backward_fp16.cuh"

constexpr int CARRIED = K1 - S1;  // lines of a window that the next one has, too
static_assert(K0 == 1 && S1 == 2 && (K1 == 2 || K1 == 3), "images");

struct MaximumArguments {
  const ELEMENT* dy;
  const ELEMENT* x;
  ELEMENT* dx;
  Box box;                   // tiles of axis 1: segments
  int before, own_steps;     // rows of windows of a segment: those that are only looked at, and its own
  int first_useful, useful;  // lanes of a warp that write; the others only look, for those beside them
  COMPUTE alpha, beta;
  int propagate;
};

template <int BYTES, bool PROPAGATES, bool PLAIN> __device__ __forceinline__ void march(const MaximumArguments& a) {
  using H = Halves<BYTES>;
  using Line = FirstMaxima<BYTES>;
  constexpr int PAIRS = H::PAIRS;
  const Box& box = a.box;
  const int lane = threadIdx.x % WARP, index = int(blockIdx.x * (THREADS / WARP) + threadIdx.x / WARP) * a.useful + lane - a.first_useful;
  const bool exists = unsigned(index) < box.threads, useful = unsigned(lane - a.first_useful) < unsigned(a.useful);
  const Tile tile(box, 1, exists ? index : 0);
  const int i2 = tile.tile[2] * H::COLUMNS, o2 = tile.tile[2] * H::WINDOWS;
  const int reads = exists ? box.input[2] - i2 : 0, writes = useful ? reads : 0, gives = exists ? box.output[2] - o2 : 0;  // columns, windows
  const Ends ends = {i2 == 0, i2 + H::COLUMNS >= box.input[2]};
  const int line_distance = box.x_stride[1], y_distance = box.y_stride[1];
  int o1 = tile.tile[1] * a.own_steps - a.before, row = o1 * S1 - P1;  // of the windows, and their first line
  int at = tile.x + i2 + row * line_distance, y_at = tile.y + o2 * box.y_stride[2] + o1 * y_distance;

  unsigned coming[STAGES][S1][H::WORDS], coming_gifts[STAGES][PAIRS], late[PAIRS];
  Line top;  // the line that the windows above have, too, and what they give to it
  auto has = [&](int row) { return unsigned(row) < unsigned(box.input[1]); };
  auto read = [&](int down, unsigned (&words)[H::WORDS]) {
    read_line<BYTES, PROPAGATES>(a.x + (at + down * line_distance), has(row + down) ? reads : 0, words);
  };
  auto read_step = [&](int ahead, int s) {
#pragma unroll
    for (int k = 0; k < S1; k++) read(ahead * S1 + CARRIED + k, coming[s][k]);
    read_gifts<BYTES>(a.dy + (y_at + ahead * y_distance), box.y_stride[2], unsigned(o1 + ahead) < unsigned(box.output[1]) ? gives : 0, box.y_packed, coming_gifts[s]);
  };
  // Writes a line: what the windows of one row give to it or, if `both`, those of two.
  auto write = [&](bool both, int down, const Line& line, const unsigned (&early)[PAIRS]) {
    ELEMENT* to = a.dx + (at + down * line_distance);
    const int left = has(row + down) ? writes : 0;
    unsigned words[H::WORDS];
    if (PLAIN) {
      if (both) line.give_both(late, early, ends, words);
      else line.give(early, ends, words);
    } else {
      float sum[H::WINDOWS], values[H::COLUMNS];
      if (both) Line::add(late, early, sum);
#pragma unroll
      for (int w = 0; w < H::WINDOWS; w++)
        if (!both) sum[w] = w % 2 ? high_of(early[w / 2]) : low_of(early[w / 2]);
      line.template give_numbers<true>(sum, ends, values);
      blend<BYTES>(to, left, values, a.alpha, a.beta, false, words);
    }
    write_line<BYTES>(to, left, words);
  };

#pragma unroll
  for (int g = 0; g < PAIRS; g++) late[g] = 0;
  griddepcontrol_wait_before_access(a.x + at, a.dy + y_at);
  unsigned words[H::WORDS];
  if (CARRIED) read(0, words);
#pragma unroll
  for (int s = 0; s < STAGES; s++) read_step(s, s);
  if (CARRIED) top.template look<PROPAGATES>(words, ends);
#pragma unroll 1
  for (int n = -a.before; n < a.own_steps; n += STAGES)
#pragma unroll
    for (int s = 0; s < STAGES; s++) {
      if (n + s >= a.own_steps) break;
      Line line[S1];
      unsigned gift[PAIRS], early[3][PAIRS];
#pragma unroll
      for (int k = 0; k < S1; k++) line[k].template look<PROPAGATES>(coming[s][k], ends);
#pragma unroll
      for (int g = 0; g < PAIRS; g++) gift[g] = coming_gifts[s][g];
      read_step(STAGES, s);
      const Line &first = CARRIED ? top : line[0], &second = line[1 - CARRIED], &third = line[1];
#pragma unroll
      for (int g = 0; g < PAIRS; g++) {
        unsigned value = first.value[g];
        const Choice choice = choose<K1, PROPAGATES>(value, second.value[g], third.value[g], has(row) ? ALL : 0);
        if (!PROPAGATES) gift[g] &= ~not_numbers(value);
        early[0][g] = choice.template part<0>(gift[g]), early[1][g] = choice.template part<1>(gift[g]), early[2][g] = choice.template part<2>(gift[g]);
      }
      if (n + s >= 0) {
        write(CARRIED > 0, 0, first, early[0]);
        write(false, 1, second, early[1]);
      }
      if (CARRIED) {
        top = line[1];
#pragma unroll
        for (int g = 0; g < PAIRS; g++) late[g] = early[2][g];
      }
      row += S1, o1++, at += S1 * line_distance, y_at += y_distance;
    }
}

template <int BYTES> __device__ __forceinline__ void march(const MaximumArguments& a) {
  const bool plain = a.alpha == COMPUTE(1) && a.beta == COMPUTE(0);
  if (a.propagate) plain ? march<BYTES, true, true>(a) : march<BYTES, true, false>(a);
  else plain ? march<BYTES, false, true>(a) : march<BYTES, false, false>(a);
}

extern "C" __global__ void __launch_bounds__(THREADS, BLOCKS) pooling_max_backward_fp16_rows_wide(const MaximumArguments a) {
  griddepcontrol_wait_deferred();
  march<16>(a);
}
extern "C" __global__ void __launch_bounds__(THREADS, BLOCKS) pooling_max_backward_fp16_rows_narrow(const MaximumArguments a) {
  griddepcontrol_wait_deferred();
  march<8>(a);
}
extern "C" __global__ void __launch_bounds__(THREADS, BLOCKS) pooling_max_backward_fp16_rows_word(const MaximumArguments a) {
  griddepcontrol_wait_deferred();
  march<4>(a);
}
