// This header divides the work of max_backward.cu among blocks, and finds the first maxima of a thread's windows.
#pragma once
#include "pooling/static_window.cuh"

static_assert(K0 >= S0 && K1 >= S1 && K2 >= S2, "every input lies in a window");
constexpr int CARRIED = K0 - S0;  // planes that a window shares with the next one

// Handles one window at a time. NONE equals no index, even after plane offsets are added to it.
struct One {
  static constexpr int SIZE = 1;
  static constexpr int NONE = -(1 << 16);
  using Value = COMPUTE;
  using Gradient = COMPUTE;
  using Indices = int;
  static __device__ __forceinline__ Value values(const ELEMENT (&items)[1]) { return load<COMPUTE>(items[0]); }
  static __device__ __forceinline__ Gradient dy_value(const ELEMENT (&items)[1]) { return load<COMPUTE>(items[0]); }
  static __device__ __forceinline__ Indices indices(const int (&indices)[1]) { return indices[0]; }
  static __device__ __forceinline__ Indices broadcast(int index) { return index; }

  // Replaces the maximum by a later input that is larger or NaN.
  template <bool PROPAGATES>
  static __device__ __forceinline__ void take(Value& value, Indices& where, Value met, Indices index) {
    if constexpr (PROPAGATES) {
      bool better = where < 0 || met > value || (met != met && value == value);
      value = better ? met : value;
      where = better ? index : where;
    } else {
      COMPUTE larger = fmax(value, met);
      where = larger == value ? where : index;
      value = larger;
    }
  }
  static __device__ __forceinline__ Indices valid(Value value, Indices where) { return value == value ? where : NONE; }
  // Adds dy to the sum if the window's maximum is at an index.
  static __device__ __forceinline__ void scatter(Indices where, int index, const COMPUTE (&dy_values)[1],
                                                 COMPUTE* const (&sums)[1]) {
    if (where == index) *sums[0] += dy_values[0];
  }
  static __device__ __forceinline__ void values_of(Gradient dy_value, COMPUTE (&dy_values)[1]) {
    dy_values[0] = dy_value;
  }
};

// Handles two windows as fp16x2. Indices are the bits of half values, with NaN for none, so that one comparison gives
// two predicates.
struct Two {
  static constexpr int SIZE = 2;
  static constexpr unsigned NONE = 0x7e00;
  using Value = unsigned;
  using Gradient = unsigned;
  using Indices = unsigned;
  template <class Item> static __device__ __forceinline__ Value values(const Item (&items)[2]) {
    return bits_of(__halves2half2(items[0], items[1]));
  }
  template <class Item> static __device__ __forceinline__ Gradient dy_value(const Item (&items)[2]) {
    return values(items);
  }
  static __device__ __forceinline__ Indices indices(const int (&indices)[2]) { return indices[0] | indices[1] << 16; }
  static __device__ __forceinline__ Indices broadcast(int index) { return index * 0x10001u; }
  static __device__ __forceinline__ unsigned selected(unsigned mask, unsigned a, unsigned b) {
    return (mask & a) | (~mask & b);
  }

  template <bool PROPAGATES>
  static __device__ __forceinline__ void take(Value& value, Indices& where, Value met, Indices index) {
    if constexpr (PROPAGATES) {
      unsigned nan = __hneu2_mask(pair_of(value), pair_of(value)), none = __hneu2_mask(pair_of(where), pair_of(where));
      unsigned better = (__hgtu2_mask(pair_of(met), pair_of(value)) & ~nan) | none;
      value = selected(better, met, value);
      where = selected(better, index, where);
    } else {
      unsigned larger = bits_of(__hmax2(pair_of(value), pair_of(met)));
      where = selected(__heq2_mask(pair_of(larger), pair_of(value)), where, index);
      value = larger;
    }
  }
  static __device__ __forceinline__ Indices valid(Value value, Indices where) {
    return where | __hneu2_mask(pair_of(value), pair_of(value));
  }
  // Adds dy to the sums of the windows whose maximum is at an index. A missing sum is a compile-time null pointer.
  template <class C>
  static __device__ __forceinline__ void scatter(Indices where, int index, const C (&dy_values)[2],
                                                 C* const (&sums)[2]) {
    unsigned here = broadcast(index);
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 530
    if constexpr (sizeof(C) == sizeof(float)) {
      if (sums[0] && sums[1])
        asm("{.reg .pred p, q; setp.eq.f16x2 p|q, %2, %3; @p add.f32 %0, %0, %4; @q add.f32 %1, %1, %5;}"
            : "+f"(*sums[0]), "+f"(*sums[1])
            : "r"(where), "r"(here), "f"(dy_values[0]), "f"(dy_values[1]));
      else if (sums[0])
        asm("{.reg .pred p, q; setp.eq.f16x2 p|q, %1, %2; @p add.f32 %0, %0, %3;}"
            : "+f"(*sums[0])
            : "r"(where), "r"(here), "f"(dy_values[0]));
      else if (sums[1])
        asm("{.reg .pred p, q; setp.eq.f16x2 p|q, %1, %2; @q add.f32 %0, %0, %3;}"
            : "+f"(*sums[1])
            : "r"(where), "r"(here), "f"(dy_values[1]));
      return;
    }
#endif
    unsigned equal = __heq2_mask(pair_of(where), pair_of(here));
    if (sums[0] && (equal & 1)) *sums[0] += dy_values[0];
    if (sums[1] && (equal >> 16)) *sums[1] += dy_values[1];
  }
  static __device__ __forceinline__ void values_of(Gradient dy_value, COMPUTE (&dy_values)[2]) {
    dy_values[0] = load<COMPUTE>(__low2half(pair_of(dy_value))),
    dy_values[1] = load<COMPUTE>(__high2half(pair_of(dy_value)));
  }
};

struct Sliding : Layout {
  unsigned items;                         // threads with work per block
  FastDivmod group_vectors, tiles, rows;  // per block: vectors of channels, tiles along axis 2, windows along axis 1
  FastDivmod groups, tile_parts, row_parts, segments;  // blocks along channels, axis 2, axis 1, axis 0
  unsigned vectors;                                    // total number of channel vectors
  unsigned planes, block_planes;
  int steps, block_steps;         // steps along axis 0: total, and per block
  int block_rows, block_tiles;    // rows and tiles that a block writes
  int rows_before, tiles_before;  // halo rows and tiles in front of them, which a block only scans
  int prefetches;                 // whether the first planes are prefetched to L2, because x exceeds L2
};

struct MaximumArguments {
  const ELEMENT* dy;
  const ELEMENT* x;
  ELEMENT* dx;
  Sliding sliding;
  COMPUTE alpha, beta;
  int propagate;
};

constexpr int BEFORE0 = (K0 - 1) / S0;  // earlier windows that may cover a position along axis 0

constexpr int index_of(int k0, int k1, int k2) { return (k0 * K1 + k1) * K2 + k2; }  // row-major index in a window

// Describes the tile of a thread: ITEMS windows and channels, in groups of SIZE.
template <class Access> struct ThreadTile {
  using Axis1 = StaticAxis<K1, S1, P1, 1>;
  using Axis2 = typename Access::Axis2;
  static constexpr int TILE2 = Access::TILE2, CHANNELS = Access::CHANNELS, ITEMS = TILE2 * CHANNELS;
  using Group = typename std::conditional<PAIRS && ITEMS % 2 == 0, Two, One>::type;
  static constexpr int SIZE = Group::SIZE, GROUPS = ITEMS / SIZE;
  static constexpr int LINES = Axis1::INPUTS, COLUMNS = Axis2::INPUTS;      // inputs per plane of the tile
  static constexpr int ROWS_BEFORE = -Axis1::FIRST, ROWS = Axis1::WINDOWS;  // windows over these inputs
  static constexpr int TILES_BEFORE = (-Axis2::FIRST + TILE2 - 1) / TILE2;
  static constexpr int TILES = TILES_BEFORE + (Axis2::FIRST + Axis2::WINDOWS + TILE2 - 1) / TILE2;

  struct Cell {
    typename Group::Indices where;
    typename Group::Gradient dy_value;
  };
  struct alignas(GROUPS * sizeof(Cell) % 16 == 0 ? 16 : sizeof(Cell)) Cells {
    Cell of[GROUPS];
  };

  // Returns the column of an input, relative to the thread's tile, for a window of a tile and an index in the window.
  static constexpr __host__ __device__ int column(int tile, int item, int k2) {
    return (tile * TILE2 + item / CHANNELS) * S2 - P2 + k2;
  }
  static constexpr __host__ __device__ bool inside(int tile, int item, int k2) {
    return column(tile, item, k2) >= 0 && column(tile, item, k2) < COLUMNS;
  }
  static constexpr __host__ __device__ bool reaches(int tile, int group) {
    for (int n = 0; n < SIZE; n++)
      for (int k2 = 0; k2 < K2; k2++)
        if (inside(tile, group * SIZE + n, k2)) return true;
    return false;
  }
};

// Holds the first maxima of a tile's windows.
template <class Access> struct Maxima {
  using Group = typename ThreadTile<Access>::Group;
  typename Group::Value value[ThreadTile<Access>::GROUPS];
  typename Group::Indices where[ThreadTile<Access>::GROUPS];
};

// Computes the offsets and indices of a thread's inputs. An input outside of x is replaced by its nearest neighbour
// inside, with that neighbour's index, which changes no maximum.
template <class Access> struct View {
  using Axis2 = typename Access::Axis2;
  static constexpr int CHANNELS = Access::CHANNELS, VECTOR = Access::X_VECTOR, ITEMS = Axis2::COUNT * CHANNELS;
  int line[K1], item[ITEMS];  // element offsets; a vector uses only the first
  int before1, before2;       // rows and columns of the first window in front of x

  __device__ __forceinline__ View(const Sliding& sliding, int stride1, int stride2, int tile1, int tile2) {
    int i1 = tile1 * S1 - P1, i2 = tile2 * Axis2::INPUTS + Axis2::BEGIN;
#pragma unroll
    for (int k1 = 0; k1 < K1; k1++) line[k1] = min(max(i1 + k1, 0), sliding.input[1] - 1) * stride1;
#pragma unroll
    for (int n = 0; n < ITEMS; n++)
      if (packed(n))  // Vectors are used where tiles exist completely or not at all.
        item[n] = min(max(i2 * CHANNELS + n, 0), sliding.input[2] * CHANNELS - VECTOR);
      else item[n] = min(max(i2 + n / CHANNELS, 0), sliding.input[2] - 1) * stride2 + n % CHANNELS;
    before1 = max(-i1, 0), before2 = max(-i2, 0);
  }
  // Return the first item of an item's vector, and whether the vector is one access.
  static constexpr __host__ __device__ int first(int n) {
    return floor_divided(n + Axis2::BEGIN * CHANNELS, VECTOR) * VECTOR - Axis2::BEGIN * CHANNELS;
  }
  static constexpr __host__ __device__ bool packed(int n) {
    int begin = first(n) + Axis2::BEGIN * CHANNELS;
    return VECTOR > 1 && first(n) >= 0 && first(n) + VECTOR <= ITEMS && begin >= 0 &&
           begin + VECTOR <= Axis2::INPUTS * CHANNELS;
  }
  // Return the index of an input in its row, for window `w` of the tile, and the index of a row in its plane.
  __device__ __forceinline__ int index(int w, int k2) const { return w * S2 - P2 + k2 < 0 ? max(k2, before2) : k2; }
  __device__ __forceinline__ int index(int k1) const { return (k1 < P1 ? max(k1, before1) : k1) * K2; }
};

// Holds the rows of a plane that the windows of a tile cover.
template <class Access> struct Lines {
  using S = ThreadTile<Access>;
  using Axis2 = typename Access::Axis2;
  using Group = typename S::Group;
  using Where = View<Access>;
  ELEMENT item[K1][Axis2::COUNT][Access::CHANNELS];

  // Reads the rows. plane: offset of the plane for the thread's channels, in the unit of the view.
  template <class From> __device__ __forceinline__ void read(const From* x, int plane, const Where& view) {
#pragma unroll
    for (int k1 = 0; k1 < K1; k1++)
#pragma unroll
      for (int n = 0; n < Where::ITEMS; n++) {
        const ELEMENT* from = reinterpret_cast<const ELEMENT*>(x + (plane + view.line[k1] + view.item[n]));
        ELEMENT* to = &item[k1][n / Access::CHANNELS][n % Access::CHANNELS];
        constexpr int N = Access::ROWS ? 1 : Access::CHANNELS;
        if (Where::packed(n) && n == Where::first(n)) copy<Where::VECTOR>(from, to);
        if (!Where::packed(n) && n % N == 0) copy<N>(from, to);
      }
  }
  template <bool PROPAGATES> __device__ __forceinline__ void scan(const Where& view, Maxima<Access>& maxima) const {
#pragma unroll
    for (int g = 0; g < S::GROUPS; g++)
#pragma unroll
      for (int k1 = 0; k1 < K1; k1++) {
        typename Group::Value value;
        typename Group::Indices where;
#pragma unroll
        for (int k2 = 0; k2 < K2; k2++) {
          ELEMENT items[S::SIZE];
          int indices[S::SIZE];
#pragma unroll
          for (int n = 0; n < S::SIZE; n++) {
            int one = g * S::SIZE + n, w = one / Access::CHANNELS;
            items[n] = item[k1][w * S2 + k2][one % Access::CHANNELS];
            indices[n] = view.index(w, k2);
          }
          typename Group::Value met = Group::values(items);
          typename Group::Indices index = Group::indices(indices);
          if (k2 == 0) value = met, where = index;
          else Group::template take<PROPAGATES>(value, where, met, index);
        }
        where += Group::broadcast(view.index(k1));
        if (k1 == 0) maxima.value[g] = value, maxima.where[g] = where;
        else Group::template take<PROPAGATES>(maxima.value[g], maxima.where[g], value, where);
      }
  }
  // Sets the maxima of a plane outside of x.
  template <bool PROPAGATES> static __device__ __forceinline__ void skip(Maxima<Access>& maxima) {
    ELEMENT nothing[2] = {element<ELEMENT>(PROPAGATES ? COMPUTE(-INFINITY) : COMPUTE(NAN)),
                          element<ELEMENT>(PROPAGATES ? COMPUTE(-INFINITY) : COMPUTE(NAN))};
    ELEMENT items[S::SIZE];
#pragma unroll
    for (int n = 0; n < S::SIZE; n++) items[n] = nothing[n];
#pragma unroll
    for (int g = 0; g < S::GROUPS; g++)
      maxima.value[g] = Group::values(items), maxima.where[g] = Group::broadcast(Group::NONE);
  }

 private:
  template <int N> static __device__ __forceinline__ void copy(const ELEMENT* from, ELEMENT* to) {
    constexpr int BYTES = N * sizeof(ELEMENT), WORD = BYTES < 4 ? BYTES : 4;
    using Small = typename std::conditional<WORD == 1, unsigned char, unsigned short>::type;
    using Word = typename std::conditional<WORD == 4, unsigned, Small>::type;
    Vector<Word, BYTES / WORD> words = *reinterpret_cast<const Vector<Word, BYTES / WORD>*>(from);
    memcpy(to, &words, BYTES);
  }
};

// Prefetches to L2 the thread's part of the planes of two steps, and dy of the first step.
template <class Access>
__device__ __forceinline__ void prefetch_steps(const MaximumArguments& a, int step, bool exists, bool has_windows,
                                               int x_offset, int y_offset, int tile1, int tile2) {
  using S = ThreadTile<Access>;
  constexpr int APART = Access::ROWS ? S::COLUMNS : 1;  // One address per vector is enough.
  const Sliding& sliding = a.sliding;
#pragma unroll
  for (int k = 0; k < CARRIED + 2 * S0; k++) {
    const int i0 = step * S0 - P0 + k;
    if (!exists || unsigned(i0) >= unsigned(sliding.input[0])) continue;
#pragma unroll
    for (int line = 0; line < S::LINES; line++)
#pragma unroll
      for (int c = 0; c < S::COLUMNS; c += APART)
        if (unsigned(tile1 * S1 + line) < unsigned(sliding.input[1]) &&
            unsigned(tile2 * S::COLUMNS + c) < unsigned(sliding.input[2]))
          prefetch_l2(a.x +
                      (x_offset + i0 * sliding.x_stride[0] + line * sliding.x_stride[1] + c * sliding.x_stride[2]));
  }
  if (has_windows && step < sliding.output[0] && unsigned(tile2 * Access::TILE2) < unsigned(sliding.output[2]))
    prefetch_l2(a.dy + (y_offset + step * sliding.y_stride[0]));
}
