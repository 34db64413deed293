// Pooling backward (4.1.18) of maxima of images of half whose rows are read in packs, with a known window: see pooling_known.cuh;
// other data types have pooling_known_maximum_rows.cu.
//
// Floor: bytes; x and dy are read, dx written (y is not needed: it is the maximum of x). A thread takes a strip of columns and
// marches down the rows; what it needs STAGES steps later is on its way. Everything is done for two windows that are neighbours
// along a row, the halves of a word: the first maximum of each line of a window is found once and serves the rows of windows above and
// below; what is remembered of it are masks. What the windows give goes the same way back, to a line, then to a column, by
// masks. Where windows meet, sums of two are sums of half, which are exact but for their rounding, and those of four are float.
#include "pooling_known.cuh"

constexpr int CARRIED = K1 - S1;  // lines of a window that the next one has, too
static_assert(K0 == 1 && S1 == 2 && S2 == 2 && K1 == K2 && (K2 == 2 || K2 == 3), "images, windows of two or three");

struct MaximumArguments {
  const ELEMENT* dy;
  const ELEMENT* x;
  ELEMENT* dx;
  Box box;                    // tiles of axis 1: segments
  int before, own_steps;      // rows of windows of a segment: those that are only looked at, and its own
  int first_useful, useful;   // lanes of a warp that write; the others only look, for those beside them
  COMPUTE alpha, beta;
  int propagate;
};

// Columns beside a strip that its windows cover.
constexpr int LEFT = P2, RIGHT = K2 - S2 - P2;
static_assert(LEFT + RIGHT == K2 - S2 && LEFT >= 0 && RIGHT >= 0, "one side");
constexpr int WARP = 32;
constexpr unsigned ALL = 0xffffffffu;

template <int N> struct alignas(N * 4) Words { unsigned word[N]; };

__device__ __forceinline__ half2 pair_of(unsigned bits) {
  half2 pair;
  memcpy(&pair, &bits, sizeof bits);
  return pair;
}
__device__ __forceinline__ unsigned bits_of(half2 pair) {
  unsigned bits;
  memcpy(&bits, &pair, sizeof bits);
  return bits;
}
__device__ __forceinline__ COMPUTE low_of(unsigned pair) { return load<COMPUTE>(__low2half(pair_of(pair))); }
__device__ __forceinline__ COMPUTE high_of(unsigned pair) { return load<COMPUTE>(__high2half(pair_of(pair))); }
__device__ __forceinline__ unsigned rounded(COMPUTE low, COMPUTE high) { return bits_of(__halves2half2(store<half>(low), store<half>(high))); }
__device__ __forceinline__ unsigned lows(unsigned a, unsigned b) { return __byte_perm(a, b, 0x5410); }
__device__ __forceinline__ unsigned highs(unsigned a, unsigned b) { return __byte_perm(a, b, 0x7632); }
__device__ __forceinline__ unsigned between(unsigned a, unsigned b) { return __byte_perm(a, b, 0x5432); }  // high of a, low of b

// Takes what was met later where it is the maximum; which of both halves keep what they had. `inside`: which of them had an input.
template <bool PROPAGATES> __device__ __forceinline__ unsigned take(unsigned& value, unsigned later, unsigned inside) {
  const half2 had = pair_of(value), larger = PROPAGATES ? __hmax2_nan(had, pair_of(later)) : __hmax2(had, pair_of(later));
  value = bits_of(larger);
  const unsigned kept = __heq2_mask(larger, had);
  return PROPAGATES ? (kept | __hneu2_mask(had, had)) & inside : kept;
}

// What lies outside of x: it is never taken.
template <bool PROPAGATES> constexpr unsigned NOTHING = PROPAGATES ? 0xfc00fc00u : 0x7fff7fffu;

// Of the windows of a line: maxima; whether the first column is that of both, and one of both that of all three.
template <int GROUPS> struct First { unsigned value[GROUPS], first[GROUPS], second[GROUPS]; };
// What a step needs.
template <int WORDS, int GROUPS> struct Coming { unsigned word[S1][WORDS], gift[GROUPS]; };

template <int BYTES, bool PROPAGATES, bool PLAIN> __device__ __forceinline__ void march(const MaximumArguments& a) {
  constexpr int COLUMNS = BYTES > 8 ? 8 : 4, WORDS = COLUMNS / 2, GROUPS = COLUMNS / 4, TILE2 = COLUMNS / 2, PACK = BYTES / 4;
  const Box& box = a.box;
  const int lane = threadIdx.x % WARP;
  const int index = int(blockIdx.x * (THREADS / WARP) + threadIdx.x / WARP) * a.useful + lane - a.first_useful;
  const bool exists = unsigned(index) < box.threads, writes = exists && unsigned(lane - a.first_useful) < unsigned(a.useful);
  const Tile tile(box, 1, exists ? index : 0);
  const int i2 = tile.tile[2] * COLUMNS, o2 = tile.tile[2] * TILE2;
  const bool leftmost = i2 == 0, rightmost = i2 + COLUMNS >= box.input[2];
  const int own = tile.tile[1] * a.own_steps;

  using Line = First<GROUPS>;
  Coming<WORDS, GROUPS> coming[STAGES];
  auto has = [&](int row) { return unsigned(row) < unsigned(box.input[1]); };
  auto read_line = [&](int row, int at, unsigned (&words)[WORDS]) {
#pragma unroll
    for (int j = 0; j < WORDS; j += PACK) {
      Words<PACK> pack;
#pragma unroll
      for (int k = 0; k < PACK; k++) pack.word[k] = NOTHING<PROPAGATES>;
      if (exists && has(row) && i2 + 2 * j < box.input[2]) pack = *reinterpret_cast<const Words<PACK>*>(a.x + (at + 2 * j));
#pragma unroll
      for (int k = 0; k < PACK; k++) words[j + k] = pack.word[k];
    }
  };
  auto read_gifts = [&](int o1, int at, unsigned (&gifts)[GROUPS]) {
    const bool row = exists && unsigned(o1) < unsigned(box.output[1]);
    Words<GROUPS> pack;
#pragma unroll
    for (int g = 0; g < GROUPS; g++) pack.word[g] = 0;
    if (PACK > 1 && box.y_packed) {
      if (row && o2 < box.output[2]) pack = *reinterpret_cast<const Words<GROUPS>*>(a.dy + at);
    } else {
      unsigned short one[TILE2];
#pragma unroll
      for (int w = 0; w < TILE2; w++) {
        one[w] = 0;
        if (row && o2 + w < box.output[2]) one[w] = *reinterpret_cast<const unsigned short*>(a.dy + (at + w * box.y_stride[2]));
      }
#pragma unroll
      for (int g = 0; g < GROUPS; g++) pack.word[g] = one[2 * g] | unsigned(one[2 * g + 1]) << 16;
    }
#pragma unroll
    for (int g = 0; g < GROUPS; g++) gifts[g] = pack.word[g];
  };
  // The first maxima of a line: of its windows' columns, two windows at a time.
  auto look = [&](const unsigned (&words)[WORDS], Line& line) {
    unsigned even[GROUPS], odd[GROUPS], beside = 0;
#pragma unroll
    for (int g = 0; g < GROUPS; g++) even[g] = lows(words[2 * g], words[2 * g + 1]), odd[g] = highs(words[2 * g], words[2 * g + 1]);
    if (LEFT) {
      beside = __shfl_up_sync(ALL, odd[GROUPS - 1], 1);
      if (leftmost) beside = NOTHING<PROPAGATES>;
    }
    if (RIGHT) beside = __shfl_down_sync(ALL, even[0], 1);
#pragma unroll
    for (int g = 0; g < GROUPS; g++) {
      const unsigned left = between(g ? odd[g ? g - 1 : 0] : beside, odd[g]), right = between(even[g], g + 1 < GROUPS ? even[g + 1 < GROUPS ? g + 1 : 0] : beside);
      unsigned value = LEFT ? left : even[g];
      line.first[g] = take<PROPAGATES>(value, LEFT ? even[g] : odd[g], LEFT && g == 0 && leftmost ? 0xffff0000u : ALL);
      line.second[g] = K2 > 2 ? take<PROPAGATES>(value, LEFT ? odd[g] : right, ALL) : ALL;
      line.value[g] = value;
    }
  };
  // Writes a line: what the windows of one row give to it or, if `both`, those of two.
  auto write = [&](bool both, int row, int at, const Line& line, const unsigned (&late)[GROUPS], const unsigned (&early)[GROUPS]) {
    unsigned result[WORDS];  // PLAIN
    COMPUTE values[COLUMNS];
    // Columns that lie in one window of a row; those that may lie in two: by the window that is in the same half of a word, and the one beside it.
    constexpr int SINGLE = LEFT ? 0 : 1, SHARED = 1 - SINGLE;
    unsigned single[GROUPS], same[GROUPS], beside[GROUPS];
#pragma unroll
    for (int g = 0; g < GROUPS; g++) {
      const unsigned first = line.first[g] & line.second[g], second = ~line.first[g] & line.second[g], third = ~line.second[g];
      single[g] = second, same[g] = LEFT ? third : first, beside[g] = LEFT ? first : third;
    }
    if (PLAIN && !both) {
      unsigned given[GROUPS], next = 0;
      if (K2 > S2) {
#pragma unroll
        for (int g = 0; g < GROUPS; g++) given[g] = early[g] & beside[g];
        next = LEFT ? __shfl_down_sync(ALL, given[0], 1) : __shfl_up_sync(ALL, given[GROUPS - 1], 1);
        if (LEFT ? rightmost : leftmost) next = 0;
      }
#pragma unroll
      for (int g = 0; g < GROUPS; g++) {
        unsigned shared = early[g] & same[g];
        if (K2 > S2) {
          const unsigned other = LEFT ? between(given[g], g + 1 < GROUPS ? given[g + 1 < GROUPS ? g + 1 : 0] : next) : between(g ? given[g ? g - 1 : 0] : next, given[g]);
          shared = bits_of(__hadd2(pair_of(shared), pair_of(other)));
        }
        const unsigned alone = early[g] & single[g], even = SINGLE == 0 ? alone : shared, odd = SINGLE == 0 ? shared : alone;
        result[2 * g] = lows(even, odd), result[2 * g + 1] = highs(even, odd);
      }
    } else {
      COMPUTE sum[TILE2], next = 0;
#pragma unroll
      for (int g = 0; g < GROUPS; g++) {
        sum[2 * g] = low_of(early[g]), sum[2 * g + 1] = high_of(early[g]);
        if (both) sum[2 * g] = low_of(late[g]) + sum[2 * g], sum[2 * g + 1] = high_of(late[g]) + sum[2 * g + 1];
      }
      auto part = [&](const unsigned (&masks)[GROUPS], int w) { return (w % 2 ? int(masks[w / 2]) < 0 : (masks[w / 2] & 1) != 0) ? sum[w] : COMPUTE(0); };
      if (K2 > S2) {
        next = LEFT ? __shfl_down_sync(ALL, part(beside, 0), 1) : __shfl_up_sync(ALL, part(beside, TILE2 - 1), 1);
        if (LEFT ? rightmost : leftmost) next = 0;
      }
#pragma unroll
      for (int w = 0; w < TILE2; w++) {
        COMPUTE shared = part(same, w);
        if (K2 > S2) shared += LEFT ? (w + 1 < TILE2 ? part(beside, w + 1 < TILE2 ? w + 1 : 0) : next) : (w ? part(beside, w ? w - 1 : 0) : next);
        values[2 * w + SHARED] = shared;
        if (!PLAIN) values[2 * w + SINGLE] = part(single, w);
      }
      if (PLAIN) {
#pragma unroll
        for (int g = 0; g < GROUPS; g++) {
          const unsigned shared = rounded(values[4 * g + SHARED], values[4 * g + 2 + SHARED]);
          const unsigned alone = bits_of(__hadd2(pair_of(late[g]), pair_of(early[g]))) & single[g];
          const unsigned even = SINGLE == 0 ? alone : shared, odd = SINGLE == 0 ? shared : alone;
          result[2 * g] = lows(even, odd), result[2 * g + 1] = highs(even, odd);
        }
      }
    }
#pragma unroll
    for (int j = 0; j < WORDS; j += PACK) {
      if (!writes || !has(row) || i2 + 2 * j >= box.input[2]) continue;
      Words<PACK>* to = reinterpret_cast<Words<PACK>*>(a.dx + (at + 2 * j));
      Words<PACK> pack;
      if (!PLAIN) {
        COMPUTE blended[2 * PACK];
        if (a.beta != COMPUTE(0)) pack = *to;
#pragma unroll
        for (int k = 0; k < 2 * PACK; k++) {
          blended[k] = a.alpha * values[2 * j + k];
          if (a.beta != COMPUTE(0)) blended[k] += a.beta * (k % 2 ? high_of(pack.word[k / 2]) : low_of(pack.word[k / 2]));
        }
#pragma unroll
        for (int k = 0; k < PACK; k++) result[j + k] = rounded(blended[2 * k], blended[2 * k + 1]);
      }
#pragma unroll
      for (int k = 0; k < PACK; k++) pack.word[k] = result[j + k];
      *to = pack;
    }
  };

  const int line_distance = box.x_stride[1], y_distance = box.y_stride[1];
  int o1 = own - a.before, row = o1 * S1 - P1, at = tile.x + i2 + row * line_distance, y_at = tile.y + o2 * box.y_stride[2] + o1 * y_distance;
  auto read_step = [&](int ahead, Coming<WORDS, GROUPS>& into) {
#pragma unroll
    for (int k = 0; k < S1; k++) {
      const int down = ahead * S1 + CARRIED + k;
      read_line(row + down, at + down * line_distance, into.word[k]);
    }
    read_gifts(o1 + ahead, y_at + ahead * y_distance, into.gift);
  };
  Line top;
  unsigned late[GROUPS];
#pragma unroll
  for (int g = 0; g < GROUPS; g++) late[g] = 0;
  unsigned words[WORDS];
  if (CARRIED) read_line(row, at, words);
#pragma unroll
  for (int s = 0; s < STAGES; s++) read_step(s, coming[s]);
  if (CARRIED) look(words, top);

#pragma unroll 1
  for (int n = -a.before; n < a.own_steps; n += STAGES)
#pragma unroll
    for (int s = 0; s < STAGES; s++) {
      if (n + s >= a.own_steps) break;
      Line line[S1];
      unsigned gift[GROUPS], early[K1][GROUPS];
#pragma unroll
      for (int k = 0; k < S1; k++) look(coming[s].word[k], line[k]);
#pragma unroll
      for (int g = 0; g < GROUPS; g++) gift[g] = coming[s].gift[g];
      read_step(STAGES, coming[s]);
      const Line &l0 = CARRIED ? top : line[0], &l1 = line[1 - CARRIED], &l2 = line[1];
      const unsigned inside = has(row) ? ALL : 0;
#pragma unroll
      for (int g = 0; g < GROUPS; g++) {
        unsigned value = l0.value[g];
        const unsigned first = take<PROPAGATES>(value, l1.value[g], inside), second = K1 > 2 ? take<PROPAGATES>(value, l2.value[g], ALL) : ALL;
        if (!PROPAGATES) gift[g] &= ~__hneu2_mask(pair_of(value), pair_of(value));
        early[0][g] = gift[g] & first & second, early[1][g] = gift[g] & ~first & second;
        if (K1 > 2) early[K1 - 1][g] = gift[g] & ~second;
      }
      if (n + s >= 0) {
        if (CARRIED) write(true, row, at, l0, late, early[0]);
        else write(false, row, at, l0, early[0], early[0]);
        write(false, row + 1, at + line_distance, l1, early[1], early[1]);
      }
      if (CARRIED) {
        top = line[1];
#pragma unroll
        for (int g = 0; g < GROUPS; g++) late[g] = early[K1 - 1][g];
      }
      row += S1, o1++, at += S1 * line_distance, y_at += y_distance;
    }
}

template <int BYTES> __device__ __forceinline__ void march(const MaximumArguments& a) {
  const bool plain = a.alpha == COMPUTE(1) && a.beta == COMPUTE(0);
  if (a.propagate) plain ? march<BYTES, true, true>(a) : march<BYTES, true, false>(a);
  else plain ? march<BYTES, false, true>(a) : march<BYTES, false, false>(a);
}

extern "C" __global__ void __launch_bounds__(THREADS, BLOCKS) pooling_known_maximum_halves_marched_wide(const MaximumArguments a) {
  wait_for_earlier_kernels();
  march<16>(a);
}
extern "C" __global__ void __launch_bounds__(THREADS, BLOCKS) pooling_known_maximum_halves_marched_narrow(const MaximumArguments a) {
  wait_for_earlier_kernels();
  march<8>(a);
}
extern "C" __global__ void __launch_bounds__(THREADS, BLOCKS) pooling_known_maximum_halves_marched_word(const MaximumArguments a) {
  wait_for_earlier_kernels();
  march<4>(a);
}
