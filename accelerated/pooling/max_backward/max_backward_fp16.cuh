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

// A thread's tile: columns, windows that begin there.
constexpr int COLUMNS = 4, WINDOWS = 2;
template <int N> struct alignas(N * 4) Words {
  unsigned word[N];
};
using Row = Words<2>;  // of a line of a tile

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
struct FirstMaxima {
  // Columns that lie in one window, and those that may lie in two: in which half of a word, and at which index of the
  // window that is in the same half of its word, and of the one beside that.
  static constexpr int SHARED = LEFT ? 1 : 0, SAME = LEFT ? 2 : 0, BESIDE = LEFT ? 0 : 2;
  unsigned value;
  Selection column;

  template <bool PROPAGATES> __device__ __forceinline__ void scan(const Row& row, Ends ends) {
    const unsigned even = lows(row.word[0], row.word[1]), odd = highs(row.word[0], row.word[1]);
    unsigned other = 0;
    if (LEFT) {
      other = __shfl_up_sync(ALL, odd, 1);
      if (ends.leftmost) other = NOTHING<PROPAGATES>;
    }
    if (RIGHT) other = __shfl_down_sync(ALL, even, 1);
    value = LEFT ? between(other, odd) : even;
    column = select<K2, PROPAGATES>(value, LEFT ? even : odd, LEFT ? odd : between(even, other),
                                    LEFT && ends.leftmost ? 0xffff0000u : ALL);
  }
  // What each column gets of what one row of windows gives. The sums of two are rounded once.
  __device__ __forceinline__ Row scatter(unsigned dy_value, Ends ends) const {
    unsigned shared = column.template part<SAME>(dy_value);
    if (K2 > S2) {
      const unsigned incoming = column.template part<BESIDE>(dy_value);
      unsigned next = LEFT ? __shfl_down_sync(ALL, incoming, 1) : __shfl_up_sync(ALL, incoming, 1);
      if (LEFT ? ends.rightmost : ends.leftmost) next = 0;
      shared = sum_of(shared, LEFT ? between(incoming, next) : between(next, incoming));
    }
    return joined(column.template part<1>(dy_value), shared);
  }
  // The same for floats. ALONE: also for columns that lie in one window.
  template <bool ALONE>
  __device__ __forceinline__ void scatter_values(const float (&dy_value)[WINDOWS], Ends ends,
                                                 float (&result)[COLUMNS]) const {
    const Selection one[WINDOWS] = {column.template one<0>(), column.template one<1>()};
    float next = 0;
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
  __device__ __forceinline__ Row scatter_both(unsigned late, unsigned early, Ends ends) const {
    float sum[WINDOWS], shared[COLUMNS];
    add(late, early, sum);
    scatter_values<false>(sum, ends, shared);
    return joined(column.template part<1>(sum_of(late, early)), rounded(shared[SHARED], shared[2 + SHARED]));
  }
  static __device__ __forceinline__ void add(unsigned late, unsigned early, float (&sum)[WINDOWS]) {
    sum[0] = low_of(late) + low_of(early), sum[1] = high_of(late) + high_of(early);
  }

 private:
  static __device__ __forceinline__ Row joined(unsigned alone, unsigned shared) {
    const unsigned even = SHARED ? alone : shared, odd = SHARED ? shared : alone;
    return {{lows(even, odd), highs(even, odd)}};
  }
};

// Reads a line of a tile, of which there is all or NOTHING.
template <bool PROPAGATES> __device__ __forceinline__ Row read_row(const ELEMENT* from, bool exists) {
  Row row = {{NOTHING<PROPAGATES>, NOTHING<PROPAGATES>}};
  if (exists) row = *reinterpret_cast<const Row*>(from);
  return row;
}
// Reads what windows scatter, `left` of them; 0 elsewhere.
__device__ __forceinline__ unsigned read_dy(const ELEMENT* from, int left, bool packed) {
  unsigned pair = 0;
  if (packed) {
    if (left > 0) pair = *reinterpret_cast<const unsigned*>(from);
    return pair;
  }
#pragma unroll
  for (int w = 0; w < WINDOWS; w++)
    if (w < left) pair |= unsigned(*reinterpret_cast<const unsigned short*>(from + w)) << w * 16;
  return pair;
}
// Numbers as they are written: scaled, and added to what is there, if the line exists.
__device__ __forceinline__ Row blend(const ELEMENT* at, bool exists, const float (&values)[COLUMNS], COMPUTE alpha,
                                     COMPUTE beta, bool plain) {
  Row row;
#pragma unroll
  for (int j = 0; j < COLUMNS / 2; j++) {
    float low = values[2 * j], high = values[2 * j + 1];
    if (!plain) low *= alpha, high *= alpha;
    if (!plain && beta != 0 && exists) {
      const unsigned prior = *reinterpret_cast<const unsigned*>(at + 2 * j);
      low += beta * low_of(prior), high += beta * high_of(prior);
    }
    row.word[j] = rounded(low, high);
  }
  return row;
}
