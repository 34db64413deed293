// Pooling backward (4.1.18) of maxima of images of half whose rows are read in packs, with a known window: see pooling_known.cuh;
// other data types have pooling_known_maximum_rows.cu.
//
// Floor: bytes; x and dy are read, dx written (y is not needed: it is the maximum of x). A thread takes a strip of columns of
// TILE1 rows of windows; all that it reads is on its way together. What limits before the bytes is instructions, most of all comparisons and
// logic, which run at half the rate of additions: an H200 issues 30 for an input in the time of its bytes. So every window is looked
// at once; its maximum and where that is are one number, of which the least is looked for. What the window gives is shifted to
// that place, in words of two columns; where windows overlap, words are added. Threads tell those beside them, in their warp, and
// those below, in their block, what they need.
// Measured on an H200: rows of 56 take as long as when every thread looks at all windows over its lines (73 % of the copy), though
// variants of it issue 46 to 50 million instructions of a warp and have 38 to 59 % of the warps. With most warps comparisons are busy 59 %,
// memory 56 % of the time, and warps wait for what they read (7 of 16 cycles between two instructions) and for each other (2): why is
// not known. Shorter rows gain: 28 take 0.76, 14 take 0.57 of the time.
#include "pooling_ordered.cuh"

constexpr int CARRIED = K1 - S1;       // lines of a window that the next one has, too
static_assert(K0 == 1 && S2 == 2 && K2 >= S2 && K2 <= 3, "images; a window lies in two words");
static_assert(CARRIED >= 0 && CARRIED <= S1, "a line lies in windows of two rows at most");

struct MaximumArguments {
  const ELEMENT* dy;
  const ELEMENT* x;
  ELEMENT* dx;
  Box box;
  COMPUTE alpha, beta;
  int propagate;
};

// Columns beside a strip that its windows cover; whether windows begin in a word's second half; the words that one reaches.
constexpr int LEFT = P2, RIGHT = K2 - S2 - P2, ODD = P2 & 1, REACH = (K2 - 1 + ODD) / 2 + 1;
static_assert(LEFT + RIGHT <= 1, "one side");
// The strip at one end of a warp only looks, for the one beside it; of the strip at the other end the column beside it is read.
constexpr int WARP = 32, FIRST_USEFUL = RIGHT, USEFUL = WARP - LEFT - RIGHT, STRIPS = THREADS / WARP * USEFUL;  // of a block
constexpr unsigned ALL = 0xffffffffu;

// Below the number of an input stands its place: how far what the window gives is shifted to get there, through the words that
// the window reaches, line by line.
constexpr int HALF_BITS = 16, WORD_BITS = 32, LINE_BITS = 64, NO_PLACE = 255;
template <int WHICH> __device__ __forceinline__ int number(unsigned word) { return int(WHICH ? word & 0xffff0000u : word << 16); }
// bits << amount; 0 where that is outside of the word.
__device__ __forceinline__ unsigned shifted(unsigned bits, int amount) {
#ifdef EMULATED_CUDA
  return unsigned(amount) < 32 ? bits << amount : 0;
#else
  unsigned result;
  asm("shl.b32 %0, %1, %2;" : "=r"(result) : "r"(bits), "r"(amount));
  return result;
#endif
}

template <int N> struct alignas(N * 4) Words { unsigned word[N]; };

__device__ __forceinline__ float half_of(unsigned word, int which) {
  half2 pair;
  memcpy(&pair, &word, sizeof word);
  return which ? __high2float(pair) : __low2float(pair);
}
__device__ __forceinline__ unsigned sum_of(unsigned a, unsigned b) {
  half2 first, second;
  memcpy(&first, &a, sizeof a), memcpy(&second, &b, sizeof b);
  first = __hadd2(first, second);
  memcpy(&a, &first, sizeof a);
  return a;
}
__device__ __forceinline__ unsigned word_of(COMPUTE low, COMPUTE high) {
  half2 pair = __halves2half2(store<half>(low), store<half>(high));
  unsigned word;
  memcpy(&word, &pair, sizeof word);
  return word;
}

// What half of a word gets: what it has, what the window gives whose second word it is, and the one whose first it is.
__device__ __forceinline__ COMPUTE sum(bool some, COMPUTE has, unsigned late, unsigned early, int which) {
  const bool is_late = REACH > 1 && which <= K2 - 3 + ODD, is_early = which >= ODD;
  COMPUTE value = is_late ? half_of(late, which) : half_of(early, which);
  if (some) value = has + value;
  return is_late && is_early ? value + half_of(early, which) : value;
}

template <class Access, bool PROPAGATES> __device__ __forceinline__ void give(const MaximumArguments& a) {
  constexpr int PACK = Access::X_PACK, WORDS = PACK / 2, TILE2 = Access::TILE2;
  static_assert(TILE2 == WORDS, "a window begins in each word");
  const Box& box = a.box;
  // Of a block's strips those of the first row only look, for those below them.
  const int strips = box.tiles[2].divisor, above = CARRIED ? strips : 0, lane = threadIdx.x % WARP;
  const int at = threadIdx.x / WARP * USEFUL + lane - FIRST_USEFUL, index = int(blockIdx.x) * (STRIPS - above) - above + at;
  const bool exists = unsigned(index) < box.threads, useful = lane >= FIRST_USEFUL && lane < FIRST_USEFUL + USEFUL;
  const Tile tile(box, 1, exists ? index : 0);
  const int i2 = tile.tile[2] * PACK, o2 = tile.tile[2] * TILE2, own = tile.tile[1] * TILE1;
  const bool inside = exists && i2 < box.input[2], writes = inside && useful && at >= above;
  // The column beside the strip: whether there is one, and whether the strip that has it is in another warp.
  const bool beside = LEFT ? tile.tile[2] > 0 && inside : RIGHT ? i2 + PACK < box.input[2] && inside : false;
  const bool alone = beside && lane == (LEFT ? 0 : WARP - 1);
  const bool given = LEFT ? tile.tile[2] + 1 < strips : tile.tile[2] > 0;  // something by the strip beside this one
  const ELEMENT *x = a.x + (tile.x + i2), *dy = a.dy + (tile.y + o2 * box.y_stride[2]);
  ELEMENT* dx = a.dx + (tile.x + i2);

  constexpr int LINES = CARRIED + TILE1 * S1;  // that the windows cover
  unsigned word[LINES][WORDS], side[LINES], gift[TILE1][WORDS];
  constexpr unsigned NOTHING = PROPAGATES ? 0 : BOTH_LAST;
  auto has = [&](int row) { return unsigned(row) < unsigned(box.input[1]); };
  auto read = [&](int row, unsigned (&words)[WORDS], unsigned& beside_it) {
    const ELEMENT* from = x + row * box.x_stride[1];
    Words<WORDS> pack;
#pragma unroll
    for (int j = 0; j < WORDS; j++) pack.word[j] = NOTHING;
    beside_it = NOTHING;
    if (inside && has(row)) pack = *reinterpret_cast<const Words<WORDS>*>(from);
    if (alone && has(row)) {
      unsigned short bits = *reinterpret_cast<const unsigned short*>(from + (LEFT ? -1 : PACK));
      beside_it = LEFT ? bits << HALF_BITS : bits;
    }
#pragma unroll
    for (int j = 0; j < WORDS; j++) words[j] = pack.word[j];
  };
  auto order = [&](int row, unsigned (&words)[WORDS], unsigned& beside_it) {
    unsigned from_beside = LEFT ? __shfl_up_sync(ALL, words[WORDS - 1], 1) : RIGHT ? __shfl_down_sync(ALL, words[0], 1) : 0;
    if (!alone) beside_it = beside ? from_beside : NOTHING;
#pragma unroll
    for (int j = 0; j < WORDS; j++) words[j] = ordered<PROPAGATES>(words[j]);
    if (LEFT + RIGHT) beside_it = ordered<PROPAGATES>(beside_it);
    if (PROPAGATES) {
#pragma unroll
      for (int j = 0; j < WORDS; j++) words[j] = inside && has(row) ? words[j] : BOTH_LAST;
      beside_it = beside && has(row) ? beside_it : BOTH_LAST;
    }
  };
  auto read_gifts = [&](int o1, unsigned (&gifts)[WORDS]) {
    const bool row = exists && unsigned(o1) < unsigned(box.output[1]);
    const ELEMENT* from = dy + o1 * box.y_stride[1];
    Words<(TILE2 + 1) / 2> pack;
#pragma unroll
    for (int j = 0; j < (TILE2 + 1) / 2; j++) pack.word[j] = 0;
    if (TILE2 > 1 && box.y_packed) {
      if (row && o2 < box.output[2]) pack = *reinterpret_cast<const Words<(TILE2 + 1) / 2>*>(from);
    } else {
#pragma unroll
      for (int w = 0; w < TILE2; w++)
        if (row && o2 + w < box.output[2]) pack.word[w / 2] |= unsigned(*reinterpret_cast<const unsigned short*>(from + w * box.y_stride[2])) << w % 2 * HALF_BITS;
    }
#pragma unroll
    for (int w = 0; w < TILE2; w++) gifts[w] = pack.word[w / 2];
  };
  // Writes a line: what it has, if `has_some`, and what the windows of a row give to it.
  auto write = [&](int row, const COMPUTE (&some)[PACK], const unsigned (&late)[WORDS], const unsigned (&early)[WORDS], bool has_some) {
    if (!writes || !has(row)) return;
    Words<WORDS>* to = reinterpret_cast<Words<WORDS>*>(dx + row * box.x_stride[1]);
    Words<WORDS> result;
    if (a.alpha == COMPUTE(1) && a.beta == COMPUTE(0)) {
#pragma unroll
      for (int j = 0; j < WORDS; j++)
        result.word[j] = has_some ? word_of(sum(has_some, some[2 * j], late[j], early[j], 0), sum(has_some, some[2 * j + 1], late[j], early[j], 1))
                              : REACH > 1 ? sum_of(late[j], early[j]) : early[j];
    } else {
      Words<WORDS> prior;
      if (a.beta != COMPUTE(0)) prior = *to;
#pragma unroll
      for (int j = 0; j < WORDS; j++) {
        COMPUTE values[2];
#pragma unroll
        for (int h = 0; h < 2; h++) {
          values[h] = a.alpha * sum(has_some, some[2 * j + h], late[j], early[j], h);
          if (a.beta != COMPUTE(0)) values[h] += a.beta * half_of(prior.word[j], h);
        }
        result.word[j] = word_of(values[0], values[1]);
      }
    }
    *to = result;
  };
  // The number of a column of a line.
  auto column = [&](int k, int c) {
    if (c < 0) return number<1>(side[k]);
    if (c >= PACK) return number<0>(side[k]);
    return c % 2 ? number<1>(word[k][c / 2]) : number<0>(word[k][c / 2]);
  };

  const int first_row = own * S1 - P1;
#pragma unroll
  for (int k = 0; k < LINES; k++) read(first_row + k, word[k], side[k]);
#pragma unroll
  for (int n = 0; n < TILE1; n++) read_gifts(own + n, gift[n]);
  unsigned first_late[CARRIED ? CARRIED : 1][WORDS], first_early[CARRIED ? CARRIED : 1][WORDS];
  COMPUTE carried[CARRIED ? CARRIED : 1][PACK];  // what lines have from the row of windows above
#pragma unroll
  for (int k = 0; k < CARRIED; k++) order(first_row + k, word[k], side[k]);
#pragma unroll
  for (int n = 0; n < TILE1; n++) {
    const int i1 = first_row + n * S1;
#pragma unroll
    for (int k = CARRIED; k < K1; k++) order(i1 + k, word[n * S1 + k], side[n * S1 + k]);
    // Of each window and, first or last, of that of the strip beside this one.
    unsigned gifts[TILE2 + 1];
    int places[TILE2 + 1];
#pragma unroll
    for (int w = 0; w < TILE2; w++) gifts[w + 1 - ODD] = w % 2 ? gift[n][w] >> HALF_BITS : gift[n][w] & 0xffff;

    int first[PACK + LEFT + RIGHT];
#pragma unroll
    for (int c = -LEFT; c < PACK + RIGHT; c++) {
      first[c + LEFT] = column(n * S1, c);
#pragma unroll
      for (int k = 1; k < K1; k++) first[c + LEFT] = min(column(n * S1 + k, c) + k * LINE_BITS, first[c + LEFT]);
    }
#pragma unroll
    for (int w = 0; w < TILE2; w++) {
      int found = first[w * S2];
#pragma unroll
      for (int k2 = 1; k2 < K2; k2++) found = min(first[w * S2 + k2] + k2 * HALF_BITS, found);
      places[w + 1 - ODD] = found >= int(LAST << 16) ? NO_PLACE : found & 0xff;
    }
    if (REACH > 1) {
      constexpr int MINE = ODD ? 0 : TILE2, OTHER = ODD ? TILE2 : 0;
      unsigned told = unsigned(places[MINE]) << 16 | gifts[MINE];
      told = ODD ? __shfl_down_sync(ALL, told, 1) : __shfl_up_sync(ALL, told, 1);
      places[OTHER] = given ? told >> 16 : NO_PLACE, gifts[OTHER] = told & 0xffff;
    }

    // What the windows of this row give to a word of a line: the one whose word number t that is.
    auto part = [&](int k, int j, int t) {
      const int w = REACH > 1 ? j + 1 - t : j + 1 - ODD;
      return shifted(gifts[w], places[w] + (ODD * HALF_BITS - k * LINE_BITS - t * WORD_BITS));
    };
#pragma unroll
    for (int k = 0; k < K1; k++) {
      unsigned late[WORDS], early[WORDS];
#pragma unroll
      for (int j = 0; j < WORDS; j++) late[j] = REACH > 1 ? part(k, j, 1) : 0, early[j] = part(k, j, 0);
      if (k >= S1) {
#pragma unroll
        for (int c = 0; c < PACK; c++) carried[k >= S1 ? k - S1 : 0][c] = sum(false, COMPUTE(0), late[c / 2], early[c / 2], c % 2);
      } else if (k >= CARRIED) {
        write(i1 + k, carried[0], late, early, false);
      } else if (n > 0) {
        write(i1 + k, carried[k < CARRIED ? k : 0], late, early, true);
      } else {
#pragma unroll
        for (int j = 0; j < WORDS; j++) first_late[k < CARRIED ? k : 0][j] = late[j], first_early[k < CARRIED ? k : 0][j] = early[j];
      }
    }
  }
  if (CARRIED == 0) return;
  // What the last row gives to the lines that it shares with the strip below; nothing, where those lie below the plane.
  using Told = Pack<COMPUTE, CARRIED ? CARRIED * PACK : 1>;
  Told* told = reinterpret_cast<Told*>(shared_memory);
  if (useful) memcpy(&told[at], carried, sizeof carried);
  __syncthreads();
#pragma unroll
  for (int n = 0; n < CARRIED * PACK; n++) (&carried[0][0])[n] = 0;
  if (writes) memcpy(carried, &told[at - above], sizeof carried);
#pragma unroll
  for (int k = 0; k < CARRIED; k++) write(first_row + k, carried[k], first_late[k], first_early[k], true);
}

template <class Access> __device__ __forceinline__ void give(const MaximumArguments& a) { a.propagate ? give<Access, true>(a) : give<Access, false>(a); }

extern "C" __global__ void __launch_bounds__(THREADS, BLOCKS) pooling_known_maximum_halves_wide(const MaximumArguments a) {
  wait_for_earlier_kernels();
  give<Wide>(a);
}
extern "C" __global__ void __launch_bounds__(THREADS, BLOCKS) pooling_known_maximum_halves_narrow(const MaximumArguments a) {
  wait_for_earlier_kernels();
  give<Narrow>(a);
}
extern "C" __global__ void __launch_bounds__(THREADS, BLOCKS) pooling_known_maximum_halves_word(const MaximumArguments a) {
  wait_for_earlier_kernels();
  give<Access<true, row_tile(4), 1, row_pack(4)>>(a);
}
