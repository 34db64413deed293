// Pooling backward (4.1.18) of maxima with a known window: see pooling_known.cuh; images whose rows are
// read in packs have pooling_known_maximum_rows.cu and pooling_known_maximum_halves.cu.
//
// Floor: bytes; x and dy are read, dx written (y is not needed: it is the maximum of x). A block takes some windows of axes 1
// and 2 of some planes and marches along axis 0 (the height of images); a thread takes a strip of windows along axis 2, of
// LANES channels. Of each window it finds the first maximum, once; what planes of a window have in common with those of the
// next one stays in registers. Then every thread tells those around it the places of its maxima and what they get, in shared
// memory, and every input is given what the windows over it leave there: a comparison and an addition for each. The order of
// these additions is fixed. Only windows at the rim of a block are looked at twice. Half takes two windows at once, neighbours
// in memory: values are chosen by masks, and a comparison makes two predicates.
//
// What limits before the bytes is instructions and the time that loads take: an H200 issues 60 for an input in the time of its
// bytes in float, 30 in half (3x3x3, stride 2); here it takes 15 to 20, but registers leave room for 16 warps or so. Measured on
// it: volumes 87 % of the copy in float rows, 69 % in float channels, 58 % in half; images of channels 89 % in float, 80 % in
// half, rows of three channels 85 %.
#include "async_copies.cuh"
#include "pooling_known.cuh"

static_assert(K0 >= S0 && K1 >= S1 && K2 >= S2, "every input lies in a window");

struct March : Place {
  unsigned items;                                          // threads of a block that have something to do
  Divisor lanes, strips, rows;                             // of a block: packs of channels, strips along axis 2, windows along axis 1
  Divisor lane_groups, strip_parts, row_parts, segments;   // blocks along channels, axis 2, axis 1, axis 0
  unsigned packs;                                          // of channels in all
  unsigned planes, block_planes;
  int steps, block_steps;        // along axis 0, in all and of a block
  int block_rows, block_strips;  // of a block: those that it writes
  int rows_before, strips_before;  // that it only looks at: before those
  int line_items, plane_items;     // distances in shared memory, of the planes of x that a block holds there
  unsigned told_bytes;             // where there begins what threads tell each other
};

struct MaximumArguments {
  const ELEMENT* dy;
  const ELEMENT* x;
  ELEMENT* dx;
  March march;
  COMPUTE alpha, beta;
  int propagate;
};

constexpr int CARRIED = K0 - S0;         // planes of a window that the next one has, too
constexpr int BEFORE0 = (K0 - 1) / S0;   // windows before a position's own that may cover it

constexpr int place_of(int k0, int k1, int k2) { return (k0 * K1 + k1) * K2 + k2; }  // in a window, in row-major order

// ---- the first maximum of one window, or of two at once ----

// NONE: no place, whatever is added to it.
struct One {
  static constexpr int SIZE = 1;
  static constexpr int NONE = -(1 << 16);
  using Value = COMPUTE;
  using Gift = COMPUTE;
  using Places = int;
  static __device__ __forceinline__ Value values(const ELEMENT (&items)[1]) { return load<COMPUTE>(items[0]); }
  static __device__ __forceinline__ Gift gift(const ELEMENT (&items)[1]) { return load<COMPUTE>(items[0]); }
  static __device__ __forceinline__ Places places(const int (&places)[1]) { return places[0]; }
  static __device__ __forceinline__ Places everywhere(int place) { return place; }

  // Takes what was met where it comes first: it is larger, or NaN.
  template <bool PROPAGATES> static __device__ __forceinline__ void take(Value& value, Places& where, Value met, Places place) {
    if constexpr (PROPAGATES) {
      bool better = where < 0 || met > value || (met != met && value == value);
      value = better ? met : value;
      where = better ? place : where;
    } else {
      COMPUTE larger = fmax(value, met);
      where = larger == value ? where : place;
      value = larger;
    }
  }
  static __device__ __forceinline__ Places known(Value value, Places where) { return value == value ? where : NONE; }
  // Adds the gift to the sums of the windows whose maximum is at a place.
  static __device__ __forceinline__ void give(Places where, int place, const COMPUTE (&gifts)[1], COMPUTE* const (&sums)[1]) {
    if (where == place) *sums[0] += gifts[0];
  }
  static __device__ __forceinline__ void numbers(Gift gift, COMPUTE (&gifts)[1]) { gifts[0] = gift; }
};

// Places are bits of half numbers, those without one NaN, so that a comparison makes two predicates.
struct Two {
  static constexpr int SIZE = 2;
  static constexpr unsigned NONE = 0x7e00;
  using Value = unsigned;
  using Gift = unsigned;
  using Places = unsigned;
  static __device__ __forceinline__ half2 pair(unsigned bits) {
    half2 result;
    memcpy(&result, &bits, sizeof bits);
    return result;
  }
  static __device__ __forceinline__ unsigned bits(half2 pair) {
    unsigned result;
    memcpy(&result, &pair, sizeof result);
    return result;
  }
  template <class Item> static __device__ __forceinline__ Value values(const Item (&items)[2]) { return bits(__halves2half2(items[0], items[1])); }
  template <class Item> static __device__ __forceinline__ Gift gift(const Item (&items)[2]) { return values(items); }
  static __device__ __forceinline__ Places places(const int (&places)[2]) { return places[0] | places[1] << 16; }
  static __device__ __forceinline__ Places everywhere(int place) { return place * 0x10001u; }
  static __device__ __forceinline__ unsigned chosen(unsigned mask, unsigned a, unsigned b) { return (mask & a) | (~mask & b); }

  template <bool PROPAGATES> static __device__ __forceinline__ void take(Value& value, Places& where, Value met, Places place) {
    if constexpr (PROPAGATES) {
      unsigned nan = __hneu2_mask(pair(value), pair(value)), none = __hneu2_mask(pair(where), pair(where));
      unsigned better = (__hgtu2_mask(pair(met), pair(value)) & ~nan) | none;
      value = chosen(better, met, value);
      where = chosen(better, place, where);
    } else {
      unsigned larger = bits(__hmax2(pair(value), pair(met)));
      where = chosen(__heq2_mask(pair(larger), pair(value)), where, place);
      value = larger;
    }
  }
  static __device__ __forceinline__ Places known(Value value, Places where) { return where | __hneu2_mask(pair(value), pair(value)); }
  // A sum that does not exist is null, known when compiled.
  template <class C> static __device__ __forceinline__ void give(Places where, int place, const C (&gifts)[2], C* const (&sums)[2]) {
    unsigned here = everywhere(place);
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 530
    if constexpr (sizeof(C) == sizeof(float)) {
      if (sums[0] && sums[1])
        asm("{.reg .pred p, q; setp.eq.f16x2 p|q, %2, %3; @p add.f32 %0, %0, %4; @q add.f32 %1, %1, %5;}"
            : "+f"(*sums[0]), "+f"(*sums[1])
            : "r"(where), "r"(here), "f"(gifts[0]), "f"(gifts[1]));
      else if (sums[0])
        asm("{.reg .pred p, q; setp.eq.f16x2 p|q, %1, %2; @p add.f32 %0, %0, %3;}" : "+f"(*sums[0]) : "r"(where), "r"(here), "f"(gifts[0]));
      else if (sums[1])
        asm("{.reg .pred p, q; setp.eq.f16x2 p|q, %1, %2; @q add.f32 %0, %0, %3;}" : "+f"(*sums[1]) : "r"(where), "r"(here), "f"(gifts[1]));
      return;
    }
#endif
    unsigned equal = __heq2_mask(pair(where), pair(here));
    if (sums[0] && (equal & 1)) *sums[0] += gifts[0];
    if (sums[1] && (equal >> 16)) *sums[1] += gifts[1];
  }
  static __device__ __forceinline__ void numbers(Gift gift, COMPUTE (&gifts)[2]) {
    gifts[0] = load<COMPUTE>(__low2half(pair(gift))), gifts[1] = load<COMPUTE>(__high2half(pair(gift)));
  }
};

// What a thread does: windows w, channels i of its strip, SIZE of them in a group.
template <class Access> struct Strip {
  using Axis1 = Known<K1, S1, P1, 1>;
  using Axis2 = typename Access::Axis2;
  static constexpr int TILE2 = Access::TILE2, LANES = Access::LANES, ITEMS = TILE2 * LANES;
  using Group = typename std::conditional<PAIRS && ITEMS % 2 == 0, Two, One>::type;
  static constexpr int SIZE = Group::SIZE, GROUPS = ITEMS / SIZE;
  static constexpr int LINES = Axis1::INPUTS, COLUMNS = Axis2::INPUTS;  // of inputs, of a plane
  static constexpr int ROWS_BEFORE = -Axis1::FIRST, ROWS = Axis1::WINDOWS;  // of windows over those
  static constexpr int STRIPS_BEFORE = (-Axis2::FIRST + TILE2 - 1) / TILE2;
  static constexpr int STRIPS = STRIPS_BEFORE + (Axis2::FIRST + Axis2::WINDOWS + TILE2 - 1) / TILE2;

  struct Cell {
    typename Group::Places where;
    typename Group::Gift gift;
  };
  struct alignas(GROUPS * sizeof(Cell) % 16 == 0 ? 16 : sizeof(Cell)) Cells { Cell of[GROUPS]; };

  // Column of an input, for a window of a strip and a place in it.
  static constexpr __host__ __device__ int column(int strip, int item, int k2) { return (strip * TILE2 + item / LANES) * S2 - P2 + k2; }
  static constexpr __host__ __device__ bool inside(int strip, int item, int k2) {
    return column(strip, item, k2) >= 0 && column(strip, item, k2) < COLUMNS;
  }
  static constexpr __host__ __device__ bool reaches(int strip, int group) {
    for (int n = 0; n < SIZE; n++)
      for (int k2 = 0; k2 < K2; k2++)
        if (inside(strip, group * SIZE + n, k2)) return true;
    return false;
  }
};

// The first maxima of a strip.
template <class Access> struct Maxima {
  using Group = typename Strip<Access>::Group;
  typename Group::Value value[Strip<Access>::GROUPS];
  typename Group::Places where[Strip<Access>::GROUPS];
};

// Where a thread reads, and the places of what it reads. What lies outside of x is replaced by its neighbour inside, which
// changes no maximum; the place is that of the neighbour.
template <class Access> struct View {
  using Axis2 = typename Access::Axis2;
  static constexpr int LANES = Access::LANES, PACK = Access::X_PACK, ITEMS = Axis2::COUNT * LANES;
  int line[K1], item[ITEMS];  // distances in memory; of those in one access only the first
  int before1, before2;                // how many lines and columns of the first window lie outside

  // `unit`: that of the distances, for an element.
  __device__ __forceinline__ View(const March& march, int unit, int stride1, int stride2, int tile1, int tile2) {
    int i1 = tile1 * S1 - P1, i2 = tile2 * Axis2::INPUTS + Axis2::BEGIN;
#pragma unroll
    for (int k1 = 0; k1 < K1; k1++) line[k1] = min(max(i1 + k1, 0), march.input[1] - 1) * (stride1 * unit);
#pragma unroll
    for (int n = 0; n < ITEMS; n++)
      if (packed(n))  // of a strip that exists as a whole, or not at all
        item[n] = min(max(i2 * LANES + n, 0), march.input[2] * LANES - PACK) * unit;
      else
        item[n] = (min(max(i2 + n / LANES, 0), march.input[2] - 1) * stride2 + n % LANES) * unit;
    before1 = max(-i1, 0), before2 = max(-i2, 0);
  }
  // Where the pack of an item begins, and whether it is read as a whole.
  static constexpr __host__ __device__ int first(int n) { return floor_divided(n + Axis2::BEGIN * LANES, PACK) * PACK - Axis2::BEGIN * LANES; }
  static constexpr __host__ __device__ bool packed(int n) {
    int begin = first(n) + Axis2::BEGIN * LANES;
    return PACK > 1 && first(n) >= 0 && first(n) + PACK <= ITEMS && begin >= 0 && begin + PACK <= Axis2::INPUTS * LANES;
  }
  // The place of an input in its line, for window `w` of the strip; that of a line in its plane.
  __device__ __forceinline__ int place(int w, int k2) const { return w * S2 - P2 + k2 < 0 ? max(k2, before2) : k2; }
  __device__ __forceinline__ int place(int k1) const { return (k1 < P1 ? max(k1, before1) : k1) * K2; }
};

// The lines of a plane that the windows of a strip cover.
template <class Access> struct Lines {
  using S = Strip<Access>;
  using Axis2 = typename Access::Axis2;
  using Group = typename S::Group;
  using Where = View<Access>;
  ELEMENT item[K1][Axis2::COUNT][Access::LANES];

  // `plane`: where it begins, for the channels of the thread; in elements or bytes, as the view.
  template <class From> __device__ __forceinline__ void read(const From* x, int plane, const Where& view) {
#pragma unroll
    for (int k1 = 0; k1 < K1; k1++)
#pragma unroll
      for (int n = 0; n < Where::ITEMS; n++) {
        const ELEMENT* from = reinterpret_cast<const ELEMENT*>(x + (plane + view.line[k1] + view.item[n]));
        ELEMENT* to = &item[k1][n / Access::LANES][n % Access::LANES];
        constexpr int N = Access::ROWS ? 1 : Access::LANES;
        if (Where::packed(n) && n == Where::first(n)) copy<Where::PACK>(from, to);
        if (!Where::packed(n) && n % N == 0) copy<N>(from, to);
      }
  }
  template <bool PROPAGATES> __device__ __forceinline__ void scan(const Where& view, Maxima<Access>& maxima) const {
#pragma unroll
    for (int g = 0; g < S::GROUPS; g++)
#pragma unroll
      for (int k1 = 0; k1 < K1; k1++) {
        typename Group::Value value;
        typename Group::Places where;
#pragma unroll
        for (int k2 = 0; k2 < K2; k2++) {
          ELEMENT items[S::SIZE];
          int places[S::SIZE];
#pragma unroll
          for (int n = 0; n < S::SIZE; n++) {
            int one = g * S::SIZE + n, w = one / Access::LANES;
            items[n] = item[k1][w * S2 + k2][one % Access::LANES];
            places[n] = view.place(w, k2);
          }
          typename Group::Value met = Group::values(items);
          typename Group::Places place = Group::places(places);
          if (k2 == 0)
            value = met, where = place;
          else
            Group::template take<PROPAGATES>(value, where, met, place);
        }
        where += Group::everywhere(view.place(k1));
        if (k1 == 0)
          maxima.value[g] = value, maxima.where[g] = where;
        else
          Group::template take<PROPAGATES>(maxima.value[g], maxima.where[g], value, where);
      }
  }
  // A plane outside of x.
  template <bool PROPAGATES> static __device__ __forceinline__ void skip(Maxima<Access>& maxima) {
    ELEMENT nothing[2] = {element<ELEMENT>(PROPAGATES ? COMPUTE(-INFINITY) : COMPUTE(NAN)), element<ELEMENT>(PROPAGATES ? COMPUTE(-INFINITY) : COMPUTE(NAN))};
    ELEMENT items[S::SIZE];
#pragma unroll
    for (int n = 0; n < S::SIZE; n++) items[n] = nothing[n];
#pragma unroll
    for (int g = 0; g < S::GROUPS; g++) maxima.value[g] = Group::values(items), maxima.where[g] = Group::everywhere(Group::NONE);
  }

 private:
  template <int N> static __device__ __forceinline__ void copy(const ELEMENT* from, ELEMENT* to) {
    constexpr int BYTES = N * sizeof(ELEMENT), WORD = BYTES < 4 ? BYTES : 4;
    using Small = typename std::conditional<WORD == 1, unsigned char, unsigned short>::type;
    using Word = typename std::conditional<WORD == 4, unsigned, Small>::type;
    Pack<Word, BYTES / WORD> words = *reinterpret_cast<const Pack<Word, BYTES / WORD>*>(from);
    memcpy(to, &words, BYTES);
  }
};

// What a block holds of a plane of x in shared memory: the lines and columns that the windows of its tiles cover. Every thread
// copies what lies between the starts of its windows, those at the rim also what lies beside.
template <class Access> struct Held {
  using S = Strip<Access>;
  static constexpr bool ROWS = Access::ROWS;
  static constexpr int LANES = Access::LANES, CHUNK = ROWS ? Access::X_PACK : LANES, BYTES = CHUNK * sizeof(ELEMENT);
  static constexpr bool USED = STAGES > 1 && BYTES >= 4;  // the least that is copied without registers
  // In chunks: of a thread, before and after it.
  static constexpr int OWN = S::COLUMNS * LANES / CHUNK, SIDE = ROWS ? LANES : 1, WIDTH = ROWS ? CHUNK : 1;
  static constexpr int BEFORE2 = (P2 * SIDE + WIDTH - 1) / WIDTH, AFTER2 = ((K2 - S2 - P2 > 0 ? K2 - S2 - P2 : 0) * SIDE + WIDTH - 1) / WIDTH;
  static constexpr int BEFORE1 = P1, AFTER1 = K1 - S1 - P1 > 0 ? K1 - S1 - P1 : 0;
  static constexpr int COPIES2 = BEFORE2 + OWN + AFTER2, COPIES = (BEFORE1 + S::LINES + AFTER1) * COPIES2;
  static_assert(COPIES <= 32, "a bit for each copy");

  const ELEMENT* from;  // in the first plane of x: the thread's first chunk
  int to;               // the same in shared memory, in bytes
  int line, chunk;      // distances in x
  int to_line, to_chunk;
  unsigned wanted;      // which copies the thread makes

  static constexpr int line_of(int n) { return n / COPIES2 - BEFORE1; }
  static constexpr int chunk_of(int n) { return n % COPIES2 - BEFORE2; }
  static constexpr bool owned(int n) { return line_of(n) >= 0 && line_of(n) < S::LINES && chunk_of(n) >= 0 && chunk_of(n) < OWN; }
  static constexpr unsigned beside() {
    unsigned bits = 0;
    for (int n = 0; n < COPIES; n++)
      if (!owned(n)) bits |= 1u << n;
    return bits;
  }

  // Copies a plane at a distance from the first one.
  __device__ __forceinline__ void copy(unsigned char* stage, int distance) const {
    copy<true>(stage + to, from + distance);
    if (wanted & beside()) copy<false>(stage + to, from + distance);
  }

 private:
  template <bool OWNED> __device__ __forceinline__ void copy(unsigned char* stage, const ELEMENT* plane) const {
#pragma unroll
    for (int n = 0; n < COPIES; n++)
      if (owned(n) == OWNED && (wanted >> n & 1))
        copy_async<BYTES>(stage + (line_of(n) * to_line + chunk_of(n) * to_chunk), plane + (line_of(n) * line + chunk_of(n) * chunk), true);
  }
};

template <class Access, bool PROPAGATES> __device__ __forceinline__ void march_on(const MaximumArguments& a) {
  using S = Strip<Access>;
  using Axis1 = typename S::Axis1;
  using Axis2 = typename S::Axis2;
  using Group = typename S::Group;
  using Cells = typename S::Cells;
  using Stage = Held<Access>;
  constexpr int TILE2 = Access::TILE2, LANES = Access::LANES, LINES = S::LINES, COLUMNS = S::COLUMNS;
  constexpr bool TELLS = S::ROWS * S::STRIPS > 1;
  // Registers: whether lines are read into them while windows are looked at, and of how many planes they hold sums.
  constexpr bool AHEAD = STAGES == 1;
  constexpr int AT_ONCE = Stage::USED ? 1 : K0;
  const March& march = a.march;

  // The block, and the place of the thread in it.
  unsigned segment, row_part, strip_part, group, lane, strip, row, rest;
  rest = march.lane_groups.divide(blockIdx.x, group);
  rest = march.strip_parts.divide(rest, strip_part);
  rest = march.row_parts.divide(rest, row_part);
  unsigned plane_of_block = march.segments.divide(rest, segment) * march.block_planes;
  bool exists = threadIdx.x < march.items;
  rest = march.lanes.divide(exists ? threadIdx.x : 0, lane);
  rest = march.strips.divide(rest, strip);
  unsigned plane = march.rows.divide(rest, row);
  unsigned pack = group * march.lanes.divisor + lane;
  exists = exists && pack < march.packs && plane_of_block + plane < march.planes;
  int first_row = int(row_part) * march.block_rows - march.rows_before, first_strip = int(strip_part) * march.block_strips - march.strips_before;
  int own_row = int(row) - march.rows_before, own_strip = int(strip) - march.strips_before;
  bool writes = exists && unsigned(own_row) < unsigned(march.block_rows) && unsigned(own_strip) < unsigned(march.block_strips);
  int tile1 = first_row + int(row), tile2 = first_strip + int(strip);

  // What threads tell each other: twice, so that one is written while the other is read; around it those that do not exist.
  unsigned pitch = march.lanes.divisor, line_pitch = pitch * (march.strips.divisor + S::STRIPS - 1);
  unsigned count = march.block_planes * (march.rows.divisor + S::ROWS - 1) * line_pitch;
  Cells *const first_told = reinterpret_cast<Cells*>(shared_memory + march.told_bytes), *told = first_told;
  if (TELLS)
    for (unsigned k = threadIdx.x; k < 2 * count; k += blockDim.x)
#pragma unroll
      for (int g = 0; g < S::GROUPS; g++) told[k].of[g] = {Group::everywhere(Group::NONE), 0};
  unsigned corner = (plane * (march.rows.divisor + S::ROWS - 1) + row) * line_pitch + strip * pitch + lane;
  unsigned mine = corner + S::ROWS_BEFORE * line_pitch + S::STRIPS_BEFORE * pitch;

  int x_offset = int(min(pack, march.packs - 1)) * LANES, y_offset = x_offset;
  march.go_to(min(plane_of_block + plane, march.planes - 1), x_offset, y_offset);
  int o2 = tile2 * TILE2, i1 = tile1 * S1, i2 = tile2 * COLUMNS;
  const int x_plane = x_offset;
  x_offset += i1 * march.x_stride[1] + i2 * Access::along(march.x_stride[2]);
  y_offset += tile1 * march.y_stride[1] + o2 * Access::along(march.y_stride[2]);
  bool gives = exists && unsigned(tile1) < unsigned(march.output[1]);

  // Stages, each for the planes that are new in a step; where line 0 and column 0 of x are in a plane there.
  constexpr int UNIT = sizeof(ELEMENT);
  const int stage_bytes = S0 * march.plane_items * UNIT, plane_bytes = march.plane_items * UNIT, along = Access::ROWS ? LANES : int(pitch) * LANES;
  const int origin = (int(plane) * (int(march.rows.divisor) * S1 + K1 - S1) + Stage::BEFORE1 - first_row * S1) * march.line_items +
                     Stage::BEFORE2 * (Access::ROWS ? Stage::CHUNK : along) - first_strip * COLUMNS * along + (Access::ROWS ? 0 : int(lane) * LANES);
  const View<Access> view = Stage::USED ? View<Access>(march, UNIT, march.line_items, along, tile1, tile2)
                                        : View<Access>(march, 1, march.x_stride[1], Access::along(march.x_stride[2]), tile1, tile2);
  Stage stage;
  if constexpr (Stage::USED) {
    const int chunk = Access::ROWS ? Stage::CHUNK : along, chunks = march.input[2] * Stage::SIDE / Stage::WIDTH;
    stage = {a.x + x_offset, (origin + i1 * march.line_items + i2 * along) * UNIT, march.x_stride[1], Access::ROWS ? Stage::CHUNK : march.x_stride[2], march.line_items * UNIT, chunk * UNIT, 0};
#pragma unroll
    for (int n = 0; n < Stage::COPIES; n++) {
      int l = Stage::line_of(n), c = Stage::chunk_of(n);
      bool mine1 = l < 0 ? row == 0 : l < LINES || row + 1 == march.rows.divisor, mine2 = c < 0 ? strip == 0 : c < Stage::OWN || strip + 1 == march.strips.divisor;
      if (exists && mine1 && mine2 && unsigned(i1 + l) < unsigned(march.input[1]) && unsigned(tile2 * Stage::OWN + c) < unsigned(chunks)) stage.wanted |= 1u << n;
    }
  }

  // What windows give: of rows one after the other, of their channels, too.
  constexpr int GIFTS = Access::ROWS ? TILE2 * LANES : TILE2, GIFT_LANES = Access::ROWS ? 1 : LANES, EACH = Access::ROWS ? LANES : 1;
  Line<GIFT_LANES, 0, GIFTS> coming;
  Lines<Access> lines[S0];
  Maxima<Access> carried[CARRIED ? CARRIED : 1];
  COMPUTE carried_sums[CARRIED ? CARRIED : 1][LINES][COLUMNS][LANES];
#pragma unroll
  for (int n = 0; n < CARRIED * LINES * COLUMNS * LANES; n++) (&carried_sums[0][0][0][0])[n] = 0;
  int own = segment * march.block_steps, step = max(own - BEFORE0, 0), end = min(own + march.block_steps, march.steps);
  auto plane_exists = [&](int i0) { return unsigned(i0) < unsigned(march.input[0]); };
  // The planes that are new in a step.
  auto read_step = [&](int o0, int into, auto& lines) {
#pragma unroll
    for (int k = 0; k < S0; k++) {
      int i0 = o0 * S0 - P0 + CARRIED + k;
      if constexpr (Stage::USED) {
        if (o0 < end && plane_exists(i0)) stage.copy(shared_memory + (into * stage_bytes + k * plane_bytes), i0 * march.x_stride[0]);
      } else if (plane_exists(i0)) {
        lines[k].read(a.x, x_plane + i0 * march.x_stride[0], view);
      }
    }
    if (Stage::USED) end_copies();
  };
  auto read_gifts = [&](int o0) {
    const ELEMENT* from = a.dy + (y_offset + o0 * march.y_stride[0]);
    bool given = gives && unsigned(o0) < unsigned(march.output[0]);
    int apart = Access::ROWS ? 1 : march.y_stride[2], at = o2 * EACH, extent = march.output[2] * EACH;
    if (TILE2 > 1 && LANES == 1 && march.y_packed)
      coming.template read<GIFTS, TILE2>(from, apart, at, extent, given, ELEMENT(0));
    else
      coming.template read<GIFTS, 1>(from, apart, at, extent, given, ELEMENT(0));
  };
  auto scan = [&](int k, int slot, bool there, Maxima<Access>& into) {
    if (!there) return Lines<Access>::template skip<PROPAGATES>(into);
    if (Stage::USED) lines[k].read(shared_memory, slot + origin * UNIT, view);
    lines[k].template scan<PROPAGATES>(view, into);
  };
  int at = 0;  // the stage of a step
  read_gifts(step);
  // Whether a plane that the first step shares with the one before exists: the last stage has it for a while.
  const bool begins_inside = CARRIED > 0 && (plane_exists(step * S0 - P0) || plane_exists(step * S0 - P0 + CARRIED - 1));
  if (Stage::USED) {
    constexpr int LAST = STAGES > 1 ? STAGES - 1 : 1;
    if (begins_inside) {
#pragma unroll
      for (int k = 0; k < CARRIED; k++)
        if constexpr (Stage::USED)
          if (plane_exists(step * S0 - P0 + k)) stage.copy(shared_memory + (LAST * stage_bytes + k * plane_bytes), (step * S0 - P0 + k) * march.x_stride[0]);
      end_copies();
    }
    for (int n = 0; n < LAST; n++) read_step(step + n, n, lines);
    if (begins_inside) {
      wait_for_copies<LAST>();
      __syncthreads();
    }
#pragma unroll
    for (int k = 0; k < CARRIED; k++) scan(k, LAST * stage_bytes + k * plane_bytes, plane_exists(step * S0 - P0 + k), carried[k]);
    if (begins_inside) __syncthreads();
    read_step(step + LAST, LAST, lines);
    wait_for_copies<LAST>();
  } else {
#pragma unroll
    for (int k = 0; k < CARRIED; k++) {
      int i0 = step * S0 - P0 + k;
      if (!Stage::USED && plane_exists(i0)) lines[0].read(a.x, x_plane + i0 * march.x_stride[0], view);
      scan(0, 0, plane_exists(i0), carried[k]);
    }
    read_step(step, 0, lines);
  }
  __syncthreads();
#pragma unroll 1
  for (; step < end; step++) {
    int i0 = step * S0 - P0;
    Lines<Access> next[S0];
    Line<GIFT_LANES, 0, GIFTS> gifts = coming;
    if (AHEAD && step + 1 < end) read_step(step + 1, 0, next), read_gifts(step + 1);
    Maxima<Access> planes[K0];
#pragma unroll
    for (int k = 0; k < K0; k++)
      if (k < CARRIED) planes[k] = carried[k];
      else scan(k - CARRIED, at * stage_bytes + (k - CARRIED) * plane_bytes, plane_exists(i0 + k), planes[k]);
#pragma unroll
    for (int k = 0; k < CARRIED; k++) carried[k] = planes[S0 + k];
    Cells cells;
#pragma unroll
    for (int g = 0; g < S::GROUPS; g++) {
      auto value = planes[0].value[g];
      auto where = planes[0].where[g];
#pragma unroll
      for (int k = 1; k < K0; k++)
        Group::template take<PROPAGATES>(value, where, planes[k].value[g], planes[k].where[g] + Group::everywhere(place_of(k, 0, 0)));
      if (!PROPAGATES) where = Group::known(value, where);
      ELEMENT items[S::SIZE];
#pragma unroll
      for (int n = 0; n < S::SIZE; n++) items[n] = gifts.item[(g * S::SIZE + n) / GIFT_LANES][(g * S::SIZE + n) % GIFT_LANES];
      cells.of[g] = {where, Group::gift(items)};
    }
    if (TELLS && exists) told[mine] = cells;
    if (!AHEAD && step + 1 < end) read_gifts(step + 1);
    if (Stage::USED) wait_for_copies<(STAGES > 2 ? STAGES - 2 : 0)>();
    if (!Stage::USED && !AHEAD && step + 1 < end) read_step(step + 1, 0, lines);
    if (TELLS || Stage::USED) __syncthreads();
    if (Stage::USED) read_step(step + STAGES, at, lines);
    at = at + 1 == STAGES ? 0 : at + 1;

    // What the windows around give to AT_ONCE planes. What no later window reaches is written, the rest moves on.
#pragma unroll
    for (int first = 0; first < K0; first += AT_ONCE) {
      COMPUTE sums[AT_ONCE][LINES][COLUMNS][LANES];
#pragma unroll
      for (int k = 0; k < AT_ONCE; k++)
#pragma unroll
        for (int n = 0; n < LINES * COLUMNS * LANES; n++) (&sums[k][0][0][0])[n] = first + k < CARRIED ? (&carried_sums[first + k < CARRIED ? first + k : 0][0][0][0])[n] : COMPUTE(0);
#pragma unroll
      for (int w1 = 0; w1 < S::ROWS; w1++)
#pragma unroll
        for (int s = 0; s < S::STRIPS; s++)
#pragma unroll
          for (int g = 0; g < S::GROUPS; g++) {
            const int strip_distance = s - S::STRIPS_BEFORE;
            if (!S::reaches(strip_distance, g)) continue;
            bool is_mine = w1 == S::ROWS_BEFORE && strip_distance == 0;
            typename S::Cell cell = is_mine ? cells.of[g] : told[corner + w1 * line_pitch + s * pitch].of[g];
            COMPUTE gifts[S::SIZE];
            Group::numbers(cell.gift, gifts);
#pragma unroll
            for (int k = 0; k < AT_ONCE; k++)
#pragma unroll
              for (int k1 = 0; k1 < K1; k1++) {
                int line = (Axis1::FIRST + w1) * S1 - P1 + k1;
                if (line < 0 || line >= LINES) continue;
#pragma unroll
                for (int k2 = 0; k2 < K2; k2++) {
                  COMPUTE* into[S::SIZE];
#pragma unroll
                  for (int n = 0; n < S::SIZE; n++) {
                    int item = g * S::SIZE + n, column = S::column(strip_distance, item, k2);
                    into[n] = S::inside(strip_distance, item, k2) ? &sums[k][line][column][item % LANES] : nullptr;
                  }
                  if (S::inside(strip_distance, g * S::SIZE, k2) || S::inside(strip_distance, g * S::SIZE + S::SIZE - 1, k2))
                    Group::give(cell.where, place_of(first + k, k1, k2), gifts, into);
                }
              }
          }
#pragma unroll
      for (int k = 0; k < AT_ONCE; k++) {
        const int k0 = first + k;
        if (k0 >= S0) {
#pragma unroll
          for (int n = 0; n < LINES * COLUMNS * LANES; n++) (&carried_sums[k0 >= S0 ? k0 - S0 : 0][0][0][0])[n] = (&sums[k][0][0][0])[n];
        } else if (step >= own) {
#pragma unroll
          for (int line = 0; line < LINES; line++) {
            bool written = writes && plane_exists(i0 + k0) && unsigned(i1 + line) < unsigned(march.input[1]);
            ELEMENT* dx = a.dx + (x_offset + (i0 + k0) * march.x_stride[0] + line * march.x_stride[1]);
            int left = written ? march.input[2] - i2 : 0;
            if constexpr (Access::ROWS)
              write_line<Access::X_PACK>(dx, 1, left * LANES, reinterpret_cast<COMPUTE(&)[COLUMNS * LANES][1]>(sums[k][line]), a.alpha, a.beta);
            else
              write_line<1>(dx, march.x_stride[2], left, sums[k][line], a.alpha, a.beta);
          }
        }
      }
    }
    if (AHEAD)
#pragma unroll
      for (int k = 0; k < S0; k++) lines[k] = next[k];
    told = told == first_told ? first_told + count : first_told;
  }
}

template <class Access> __device__ __forceinline__ void march_on(const MaximumArguments& a) {
  a.propagate ? march_on<Access, true>(a) : march_on<Access, false>(a);
}

extern "C" __global__ void __launch_bounds__(THREADS, BLOCKS) pooling_known_maximum_wide(const MaximumArguments a) {
  wait_for_earlier_kernels();
  march_on<Wide>(a);
}
extern "C" __global__ void __launch_bounds__(THREADS, BLOCKS) pooling_known_maximum_narrow(const MaximumArguments a) {
  wait_for_earlier_kernels();
  march_on<Narrow>(a);
}
extern "C" __global__ void __launch_bounds__(THREADS, BLOCKS) pooling_known_maximum_loose(const MaximumArguments a) {
  wait_for_earlier_kernels();
  march_on<Loose>(a);
}
extern "C" __global__ void __launch_bounds__(THREADS, BLOCKS) pooling_known_maximum_channels(const MaximumArguments a) {
  wait_for_earlier_kernels();
  march_on<Channels>(a);
}
extern "C" __global__ void __launch_bounds__(THREADS, BLOCKS) pooling_known_maximum_scattered(const MaximumArguments a) {
  wait_for_earlier_kernels();
  march_on<Scattered>(a);
}
