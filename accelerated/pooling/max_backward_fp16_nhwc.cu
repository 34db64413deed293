// Pooling backward (4.1.18) of maxima of images of half whose channels lie side by side, with a known window: see
// pooling/max_backward_fp16.cuh; other data types, and channels that packs do not divide, have pooling/max_backward.cu.
//
// Floor: bytes; x and dy are read, dx written (y is not needed: it is the maximum of x). Two channels are the halves of a word. A thread
// takes WORDS of them for a strip of columns, and marches down some rows of windows; what it needs next is in flight meanwhile.
// Windows that reach into the strip of another thread are looked at twice: no shared memory, no barriers.
//
// Measured on an H200: 64x256x56x56 61.8 us, 88 % of the copy (blocks of threads that tell each other: 69.8); 32x128x28x28 4.4 (6.3); 8x64x14x14 1.4 (1.8), by
// threads of a word and one column of windows. 388 instructions for 32 inputs of a thread, issued in 36 % of the cycles; 16 warps of a multiprocessor (128
// registers) wait for what they read (6.2 of 9 cycles), L2 is busy 85 %, the memory 74 %. Threads that march down everything read no line
// twice; with 7 segments it takes 62.5, with 4 65.4, for their blocks make 3.4 rounds. Longer: 128 bytes of channels of a block side by side (66.4), 4
// columns of windows of one word (67 to 70), 7 (66 to 74), 2 of four words (71), reads only when they are needed, with 20 warps (63.8).
#include "pooling/max_backward_fp16.cuh"

constexpr int CARRIED = K1 - S1;  // lines of a window that the next one has, too
static_assert(K0 == 1 && S1 == 2 && (K1 == 2 || K1 == 3) && K1 == K2, "images");
constexpr int WORDS = LANE_BYTES / 4;
using Axis2 = Known<K2, S2, P2, CHANNEL_TILE>;
constexpr int WINDOWS = Axis2::WINDOWS, READ = Axis2::READ, COLUMNS = Axis2::INPUTS, BEGIN = Axis2::AROUND;
using Pair = Words<WORDS>;  // pairs of channels

struct MaximumArguments {
  const ELEMENT* dy;
  const ELEMENT* x;
  ELEMENT* dx;
  Box box;                // tiles of axis 1: segments
  int steps, before;      // rows of windows: in all, those of a segment that are only looked at
  int fetches;            // whether L2 is asked for the first lines ahead
  COMPUTE alpha, beta;
  int propagate;
};

// A line under the windows of a strip, of a word of channels.
struct LineMaxima {
  unsigned value[WINDOWS];
  Choice column[WINDOWS];

  template <bool PROPAGATES> __device__ __forceinline__ void look(const Pair (&pairs)[READ], int n, bool leftmost) {
#pragma unroll
    for (int w = 0; w < WINDOWS; w++) {
      value[w] = pairs[w * S2].word[n];
      const unsigned inside = w == 0 && LEFT && leftmost ? 0 : ALL;
      column[w] = choose<K2, PROPAGATES>(value[w], pairs[w * S2 + 1].word[n], pairs[w * S2 + K2 - 1].word[n], inside);
      column[w].first &= inside;
    }
  }
};

template <bool PROPAGATES, bool PLAIN> __device__ __forceinline__ void march(const MaximumArguments& a) {
  const Box& box = a.box;
  const Tile tile(box, WORDS * 2);
  if (!tile.exists) return;
  const int i2 = tile.tile[2] * COLUMNS, o2 = tile.tile[2] * CHANNEL_TILE + Axis2::FIRST;  // the first column; the first window that is looked at
  const int line_distance = box.x_stride[1], y_distance = box.y_stride[1];
  unsigned rest;  // segments are about as long as each other
  const int own = box.tiles[1].divide(tile.tile[1] * a.steps, rest), end = box.tiles[1].divide((tile.tile[1] + 1) * a.steps, rest);
  int o1 = own - a.before, row = o1 * S1 - P1;  // of the windows, and their first line
  auto has = [&](int row) { return unsigned(row) < unsigned(box.input[1]); };
  int at = tile.x + row * line_distance, y_at = tile.y + o1 * y_distance;
  // Where columns are; those outside are replaced by their neighbour inside, and so are lines, which changes no maximum.
  int column[READ];
#pragma unroll
  for (int c = 0; c < READ; c++) column[c] = min(max(i2 + BEGIN + c, 0), box.input[2] - 1) * box.x_stride[2], keep_in_register(column[c]);

  auto read_line = [&](int down, Pair (&pairs)[READ]) {
    const int line = tile.x + min(max(row + down, 0), box.input[1] - 1) * line_distance;
#pragma unroll
    for (int c = 0; c < READ; c++) pairs[c] = *reinterpret_cast<const Pair*>(a.x + (line + column[c]));
  };
  auto read_gifts = [&](int ahead, Pair (&gifts)[WINDOWS]) {
    const bool there = unsigned(o1 + ahead) < unsigned(box.output[1]);
#pragma unroll
    for (int w = 0; w < WINDOWS; w++) {
      gifts[w] = {};
      if (there && unsigned(o2 + w) < unsigned(box.output[2])) gifts[w] = *reinterpret_cast<const Pair*>(a.dy + (y_at + ahead * y_distance + (o2 + w) * box.y_stride[2]));
    }
  };
  // Writes a line: what the windows of one row give to it or, if `BOTH`, those of two.
  auto write = [&](auto both, int down, const LineMaxima (&line)[WORDS], const unsigned (&late)[WINDOWS][WORDS], const unsigned (&early)[WINDOWS][WORDS]) {
    constexpr bool BOTH = decltype(both)::value;
    const int to = at + down * line_distance;
    const int left = has(row + down) ? box.input[2] - i2 : 0;
#pragma unroll
    for (int c = 0; c < COLUMNS; c++) {
      // The last window over the column; the one before it has its last column there.
      constexpr bool OVERLAP = K2 > S2;
      const int e = c - BEGIN, w = e / S2, before = w > 0 ? w - 1 : 0;
      const bool shared = OVERLAP && e % S2 == 0;
      Pair result;
#pragma unroll
      for (int n = 0; n < WORDS; n++) {
        const Choice &one = line[n].column[w < WINDOWS ? w : 0], &other = line[n].column[before];
        const unsigned first_early = shared ? other.template part<2>(early[before][n]) : 0;
        const unsigned own_early = e % S2 ? one.template part<1>(early[w][n]) : one.template part<0>(early[w][n]);
        if (!BOTH && PLAIN) {
          result.word[n] = shared ? sum_of(first_early, own_early) : own_early;
        } else if (BOTH && PLAIN && !shared) {
          const unsigned sum = sum_of(late[w][n], early[w][n]);
          result.word[n] = e % S2 ? one.template part<1>(sum) : one.template part<0>(sum);
        } else {
          const unsigned first_late = BOTH && shared ? other.template part<2>(late[before][n]) : 0;
          const unsigned own_late = !BOTH ? 0 : e % S2 ? one.template part<1>(late[w][n]) : one.template part<0>(late[w][n]);
          float low = low_of(own_early), high = high_of(own_early);
          if (BOTH && shared) low = low_of(first_late) + low_of(own_late) + low_of(first_early) + low, high = high_of(first_late) + high_of(own_late) + high_of(first_early) + high;
          else if (BOTH) low = low_of(own_late) + low, high = high_of(own_late) + high;
          else if (shared) low = low_of(first_early) + low, high = high_of(first_early) + high;
          if (!PLAIN) {
            low *= a.alpha, high *= a.alpha;
            if (a.beta != 0 && c < left) {
              const unsigned prior = reinterpret_cast<const unsigned*>(a.dx + (to + column[c - BEGIN]))[n];
              low += a.beta * low_of(prior), high += a.beta * high_of(prior);
            }
          }
          result.word[n] = rounded(low, high);
        }
      }
      if (c < left) *reinterpret_cast<Pair*>(a.dx + (to + column[c - BEGIN])) = result;
    }
  };

  if (a.fetches)
#pragma unroll
    for (int k = 0; k < CARRIED + S1; k++)
#pragma unroll
      for (int c = 0; c < COLUMNS; c++)
        if (has(row + k) && i2 + c < box.input[2]) prefetch_l2(a.x + (at + k * line_distance + column[c - BEGIN]));
  griddepcontrol_wait_before_access(a.x + (at + column[0]), a.dy + y_at);
  const bool leftmost = i2 == 0;
  Pair coming[S1][READ], coming_gifts[WINDOWS];
  LineMaxima top[WORDS];  // the line that the windows above have, too, and what they give to it
  unsigned late[WINDOWS][WORDS];
#pragma unroll
  for (int n = 0; n < WINDOWS * WORDS; n++) (&late[0][0])[n] = 0;
  auto read_step = [&](int ahead) {
#pragma unroll
    for (int k = 0; k < S1; k++) read_line(ahead * S1 + CARRIED + k, coming[k]);
    read_gifts(ahead, coming_gifts);
  };
  {
    Pair pairs[READ];
    if (CARRIED) read_line(0, pairs);
    if (STAGES) read_step(0);
#pragma unroll
    for (int n = 0; n < WORDS; n++)
      if (CARRIED) top[n].template look<PROPAGATES>(pairs, n, leftmost);
  }
  griddepcontrol_launch_dependents();
#pragma unroll 1
  while (o1 < end) {
    LineMaxima line[S1][WORDS];
    unsigned early[3][WINDOWS][WORDS];
    if (!STAGES) read_step(0);
#pragma unroll
    for (int k = 0; k < S1; k++)
#pragma unroll
      for (int n = 0; n < WORDS; n++) line[k][n].template look<PROPAGATES>(coming[k], n, leftmost);
    unsigned gift[WINDOWS][WORDS];
#pragma unroll
    for (int w = 0; w < WINDOWS; w++)
#pragma unroll
      for (int n = 0; n < WORDS; n++) gift[w][n] = coming_gifts[w].word[n];
    if (STAGES && o1 + 1 < end) read_step(1);
#pragma unroll
    for (int w = 0; w < WINDOWS; w++)
#pragma unroll
      for (int n = 0; n < WORDS; n++) {
        const LineMaxima &first = CARRIED ? top[n] : line[0][n], &second = line[1 - CARRIED][n], &third = line[1][n];
        unsigned value = first.value[w];
        const unsigned inside = has(row) ? ALL : 0;
        Choice choice = choose<K1, PROPAGATES>(value, second.value[w], third.value[w], inside);
        choice.first &= inside;
        if (!PROPAGATES) gift[w][n] &= ~not_numbers(value);
        early[0][w][n] = choice.template part<0>(gift[w][n]), early[1][w][n] = choice.template part<1>(gift[w][n]);
        early[2][w][n] = choice.template part<2>(gift[w][n]);
      }
    if (o1 >= own) {
      if (CARRIED) write(std::true_type(), 0, top, late, early[0]);
      else write(std::false_type(), 0, line[0], late, early[0]);
      write(std::false_type(), 1, line[1 - CARRIED], late, early[1]);
    }
    if (CARRIED) {
#pragma unroll
      for (int n = 0; n < WORDS; n++) {
        top[n] = line[1][n];
#pragma unroll
        for (int w = 0; w < WINDOWS; w++) late[w][n] = early[2][w][n];
      }
    }
    row += S1, o1++, at += S1 * line_distance, y_at += y_distance;
  }
}

extern "C" __global__ void __launch_bounds__(THREADS, BLOCKS) pooling_max_backward_fp16_nhwc_channels(const MaximumArguments a) {
  griddepcontrol_wait_deferred();
  const bool plain = a.alpha == COMPUTE(1) && a.beta == COMPUTE(0);
  if (a.propagate) plain ? march<true, true>(a) : march<true, false>(a);
  else plain ? march<false, true>(a) : march<false, false>(a);
}
