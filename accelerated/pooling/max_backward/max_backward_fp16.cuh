// Gradients of maxima of half in rows that are read in packs, with a static window.
//
// Two windows that are neighbours along a row are the fp16x2 of a word. The first maximum of each line of a window is
// found once, for all windows that have the line; then that of lines, of planes. What is remembered of each are masks:
// where the maximum of what came earlier was kept. What a window gives goes the same way back, by masks.
#pragma once
#include "pooling/static_window.cuh"

static_assert(std::is_same<COMPUTE, float>::value, "masks of a word");
static_assert(S2 == 2 && (K2 == 2 || K2 == 3), "two inputs from one window to the next; they share one at most");

// Columns beside a tile that its windows cover.
constexpr int LEFT = P2, RIGHT = K2 - S2 - P2;
static_assert(LEFT >= 0 && RIGHT >= 0, "one side");
constexpr int WARP = 32;
constexpr unsigned ALL = 0xffffffffu;

// A tile, by the bytes of an access: columns, their words, pairs of windows, windows; words of an access.
template <int BYTES> struct Fp16Tile {
  static constexpr int COLUMNS = BYTES > 8 ? 8 : 4, WORDS = COLUMNS / 2, PAIRS = COLUMNS / 4, WINDOWS = COLUMNS / 2,
                       PACK = BYTES / 4;
};
template <int N> struct alignas(N * 4) Words {
  unsigned word[N];
};

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
__device__ __forceinline__ float low_of(unsigned pair) { return __low2float(pair_of(pair)); }
__device__ __forceinline__ float high_of(unsigned pair) { return __high2float(pair_of(pair)); }
__device__ __forceinline__ unsigned rounded(float low, float high) {
  return bits_of(__halves2half2(store<half>(low), store<half>(high)));
}
__device__ __forceinline__ unsigned sum_of(unsigned a, unsigned b) { return bits_of(__hadd2(pair_of(a), pair_of(b))); }
__device__ __forceinline__ unsigned lows(unsigned a, unsigned b) { return __byte_perm(a, b, 0x5410); }
__device__ __forceinline__ unsigned highs(unsigned a, unsigned b) { return __byte_perm(a, b, 0x7632); }
__device__ __forceinline__ unsigned between(unsigned a, unsigned b) {
  return __byte_perm(a, b, 0x5432);
}  // high of a, low of b
// A mask for one of two windows, of a word.
template <int WHICH> __device__ __forceinline__ unsigned spread(unsigned mask) {
  return __byte_perm(mask, mask, WHICH ? 0x3232 : 0x1010);
}
__device__ __forceinline__ unsigned nan_mask(unsigned pair) { return __hneu2_mask(pair_of(pair), pair_of(pair)); }

// What lies outside of x; it is never taken.
template <bool PROPAGATES> constexpr unsigned NOTHING = PROPAGATES ? 0xfc00fc00u : 0x7fff7fffu;

// Takes what was met later where it is the maximum; where what there was is kept. `inside`: where there was something.
template <bool PROPAGATES>
__device__ __forceinline__ unsigned take(unsigned& value, unsigned later, unsigned inside = ALL) {
  const half2 had = pair_of(value),
              larger = PROPAGATES ? __hmax2_nan(had, pair_of(later)) : __hmax2(had, pair_of(later));
  value = bits_of(larger);
  const unsigned kept = __heq2_mask(larger, had);
  return PROPAGATES ? (kept | nan_mask(bits_of(had))) & inside : kept;
}

// Of two or three that were taken in order: whether the first was kept when the second came, and one of both when the
// third came.
struct Selection {
  unsigned first, second;
  // The part of dy where the maximum is that of number K.
  template <int K> __device__ __forceinline__ unsigned part(unsigned incoming) const {
    return K == 0 ? incoming & first & second : K == 1 ? incoming & ~first & second : incoming & ~second;
  }
  template <int WHICH> __device__ __forceinline__ Selection one() const {
    return {spread<WHICH>(first), spread<WHICH>(second)};
  }
};
template <int COUNT, bool PROPAGATES>
__device__ __forceinline__ Selection select(unsigned& value, unsigned second, unsigned third, unsigned inside) {
  Selection choice = {take<PROPAGATES>(value, second, inside), ALL};
  if (COUNT > 2) choice.second = take<PROPAGATES>(value, third);
  return choice;
}
// The same for values: those of the first or second of two windows.
template <int K> __device__ __forceinline__ float part_of(float incoming, const Selection& one) {
  return __uint_as_float(one.template part<K>(__float_as_uint(incoming)));
}

// Where a tile ends.
struct Ends {
  bool leftmost, rightmost;
};

// A line under the windows of a tile.
template <int BYTES> struct FirstMaxima {
  using H = Fp16Tile<BYTES>;
  static constexpr int PAIRS = H::PAIRS, WINDOWS = H::WINDOWS;
  // Columns that lie in one window, and those that may lie in two: in which half of a word, and at which index of the
  // window that is in the same half of its word, and of the one beside that.
  static constexpr int SHARED = LEFT ? 1 : 0, SAME = LEFT ? 2 : 0, BESIDE = LEFT ? 0 : 2;
  unsigned value[PAIRS];
  Selection column[PAIRS];

  template <bool PROPAGATES> __device__ __forceinline__ void scan(const unsigned (&words)[H::WORDS], Ends ends) {
    unsigned even[PAIRS], odd[PAIRS], other = 0;
#pragma unroll
    for (int g = 0; g < PAIRS; g++)
      even[g] = lows(words[2 * g], words[2 * g + 1]), odd[g] = highs(words[2 * g], words[2 * g + 1]);
    if (LEFT) {
      other = __shfl_up_sync(ALL, odd[PAIRS - 1], 1);
      if (ends.leftmost) other = NOTHING<PROPAGATES>;
    }
    if (RIGHT) other = __shfl_down_sync(ALL, even[0], 1);
#pragma unroll
    for (int g = 0; g < PAIRS; g++) {
      const unsigned left = between(g ? odd[g ? g - 1 : 0] : other, odd[g]),
                     right = between(even[g], g + 1 < PAIRS ? even[g + 1 < PAIRS ? g + 1 : 0] : other);
      value[g] = LEFT ? left : even[g];
      column[g] = select<K2, PROPAGATES>(value[g], LEFT ? even[g] : odd[g], LEFT ? odd[g] : right,
                                         LEFT && g == 0 && ends.leftmost ? 0xffff0000u : ALL);
    }
  }
  // What each column gets of what one row of windows gives. The sums of two are rounded once.
  __device__ __forceinline__ void scatter(const unsigned (&dy_value)[PAIRS], Ends ends,
                                          unsigned (&result)[H::WORDS]) const {
    unsigned incoming[PAIRS], next = 0;
    if (K2 > S2) {
#pragma unroll
      for (int g = 0; g < PAIRS; g++) incoming[g] = column[g].template part<BESIDE>(dy_value[g]);
      next = LEFT ? __shfl_down_sync(ALL, incoming[0], 1) : __shfl_up_sync(ALL, incoming[PAIRS - 1], 1);
      if (LEFT ? ends.rightmost : ends.leftmost) next = 0;
    }
#pragma unroll
    for (int g = 0; g < PAIRS; g++) {
      unsigned shared = column[g].template part<SAME>(dy_value[g]);
      if (K2 > S2)
        shared = sum_of(shared, LEFT ? between(incoming[g], g + 1 < PAIRS ? incoming[g + 1 < PAIRS ? g + 1 : 0] : next)
                                     : between(g ? incoming[g ? g - 1 : 0] : next, incoming[g]));
      put(g, column[g].template part<1>(dy_value[g]), shared, result);
    }
  }
  // The same for floats. ALONE: also for columns that lie in one window.
  template <bool ALONE>
  __device__ __forceinline__ void scatter_values(const float (&dy_value)[WINDOWS], Ends ends,
                                                 float (&result)[H::COLUMNS]) const {
    Selection one[WINDOWS];
    float next = 0;
#pragma unroll
    for (int w = 0; w < WINDOWS; w++)
      one[w] = w % 2 ? column[w / 2].template one<1>() : column[w / 2].template one<0>();
    if (K2 > S2) {
      next = LEFT ? __shfl_down_sync(ALL, part_of<BESIDE>(dy_value[0], one[0]), 1)
                  : __shfl_up_sync(ALL, part_of<BESIDE>(dy_value[WINDOWS - 1], one[WINDOWS - 1]), 1);
      if (LEFT ? ends.rightmost : ends.leftmost) next = 0;
    }
#pragma unroll
    for (int w = 0; w < WINDOWS; w++) {
      const int from = LEFT ? w + 1 : w - 1;
      const bool inside = from >= 0 && from < WINDOWS;
      float shared = part_of<SAME>(dy_value[w], one[w]);
      if (K2 > S2) shared += inside ? part_of<BESIDE>(dy_value[inside ? from : 0], one[inside ? from : 0]) : next;
      result[2 * w + SHARED] = shared;
      if (ALONE) result[2 * w + 1 - SHARED] = part_of<1>(dy_value[w], one[w]);
    }
  }
  // Of what two rows of windows give: sums of two are rounded once, those of four are floats before.
  __device__ __forceinline__ void scatter_both(const unsigned (&late)[PAIRS], const unsigned (&early)[PAIRS], Ends ends,
                                               unsigned (&result)[H::WORDS]) const {
    float sum[WINDOWS], shared[H::COLUMNS];
    add(late, early, sum);
    scatter_values<false>(sum, ends, shared);
#pragma unroll
    for (int g = 0; g < PAIRS; g++)
      put(g, column[g].template part<1>(sum_of(late[g], early[g])),
          rounded(shared[4 * g + SHARED], shared[4 * g + 2 + SHARED]), result);
  }
  static __device__ __forceinline__ void add(const unsigned (&late)[PAIRS], const unsigned (&early)[PAIRS],
                                             float (&sum)[WINDOWS]) {
#pragma unroll
    for (int g = 0; g < PAIRS; g++)
      sum[2 * g] = low_of(late[g]) + low_of(early[g]), sum[2 * g + 1] = high_of(late[g]) + high_of(early[g]);
  }

 private:
  static __device__ __forceinline__ void put(int g, unsigned alone, unsigned shared, unsigned (&result)[H::WORDS]) {
    const unsigned even = SHARED ? alone : shared, odd = SHARED ? shared : alone;
    result[2 * g] = lows(even, odd), result[2 * g + 1] = highs(even, odd);
  }
};

// Reads columns of a line, `left` of them and none beyond; NOTHING elsewhere.
template <int BYTES, bool PROPAGATES>
__device__ __forceinline__ void read_line(const ELEMENT* from, int left, unsigned (&words)[Fp16Tile<BYTES>::WORDS]) {
  constexpr int PACK = Fp16Tile<BYTES>::PACK;
#pragma unroll
  for (int j = 0; j < Fp16Tile<BYTES>::WORDS; j += PACK) {
    Words<PACK> pack;
#pragma unroll
    for (int k = 0; k < PACK; k++) pack.word[k] = NOTHING<PROPAGATES>;
    if (2 * j < left) pack = *reinterpret_cast<const Words<PACK>*>(from + 2 * j);
#pragma unroll
    for (int k = 0; k < PACK; k++) words[j + k] = pack.word[k];
  }
}
// Reads what windows scatter, `left` of them; 0 elsewhere.
template <int BYTES>
__device__ __forceinline__ void read_dy(const ELEMENT* from, int distance, int left, bool packed,
                                        unsigned (&dy_values)[Fp16Tile<BYTES>::PAIRS]) {
  using H = Fp16Tile<BYTES>;
  Words<H::PAIRS> pack;
#pragma unroll
  for (int g = 0; g < H::PAIRS; g++) pack.word[g] = 0;
  if (H::PACK > 1 && packed) {
    if (left > 0) pack = *reinterpret_cast<const Words<H::PAIRS>*>(from);
  } else {
#pragma unroll
    for (int w = 0; w < H::WINDOWS; w++)
      if (w < left)
        pack.word[w / 2] |= unsigned(*reinterpret_cast<const unsigned short*>(from + w * distance)) << w % 2 * 16;
  }
#pragma unroll
  for (int g = 0; g < H::PAIRS; g++) dy_values[g] = pack.word[g];
}
// Writes columns of a line, `left` of them.
template <int BYTES>
__device__ __forceinline__ void write_row(ELEMENT* to, int left, const unsigned (&words)[Fp16Tile<BYTES>::WORDS]) {
  constexpr int PACK = Fp16Tile<BYTES>::PACK;
#pragma unroll
  for (int j = 0; j < Fp16Tile<BYTES>::WORDS; j += PACK) {
    if (2 * j >= left) continue;
    Words<PACK> pack;
#pragma unroll
    for (int k = 0; k < PACK; k++) pack.word[k] = words[j + k];
    *reinterpret_cast<Words<PACK>*>(to + 2 * j) = pack;
  }
}
// Numbers as they are written: scaled, and added to what is there.
template <int BYTES>
__device__ __forceinline__ void blend(const ELEMENT* at, int left, const float (&values)[Fp16Tile<BYTES>::COLUMNS],
                                      COMPUTE alpha, COMPUTE beta, bool plain,
                                      unsigned (&words)[Fp16Tile<BYTES>::WORDS]) {
#pragma unroll
  for (int j = 0; j < Fp16Tile<BYTES>::WORDS; j++) {
    float low = values[2 * j], high = values[2 * j + 1];
    if (!plain) low *= alpha, high *= alpha;
    if (!plain && beta != 0 && 2 * j < left) {
      const unsigned prior = *reinterpret_cast<const unsigned*>(at + 2 * j);
      low += beta * low_of(prior), high += beta * high_of(prior);
    }
    words[j] = rounded(low, high);
  }
}
