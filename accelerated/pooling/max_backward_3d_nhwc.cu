// Pooling backward (4.1.18) of maxima of volumes with a known window, whose channels lie side by side: see pooling/static_window.cuh; what
// would leave threads without work has pooling/max_backward.cu (accelerated/pooling_maximum_channels.py).
//
// Floor: bytes; x and dy are read, dx written (y is not needed: it is the maximum of x). A block takes some windows of axes 1
// and 2, of BLOCK_LANES words of channels, and marches along axis 0. CARRIERS threads bring planes of x to shared memory, STAGES at a time; of
// the others each looks at TILE1 x TILE2 windows of one word. Of each window it finds the first maximum, once, with its place: the position in
// the block's part of a plane. What windows of a plane share is found once; the maxima of a plane that two windows have stay in registers. What
// the window gives is added to that place, in shared memory, where the block has sums for the planes that a window covers: windows that may
// meet do so one after the other, behind barriers, so that the order of additions is fixed. Planes that no later window reaches are written in
// packs, by the carriers, while the others look at the next ones; those that are left behind the last windows by all threads. Windows at the rim of
// a block are looked at by all blocks that have something of them to write.
//
// Measured on an H200, 8x64x16x56x56: half 29.8 us (the last planes written by carriers, one after the other: 30.65; all threads doing everything, one after
// the other: 33.3; every input comparing its place with all windows over it: 48.6), float 57.3 (57.4; 60.9; 76.3); 86 and 90 % of the copy. A block fills a multiprocessor. The first planes fetched ahead save 1.5 us,
// a third and more nothing; the cache asked for later planes ahead takes longer (30.9 to 32). Carriers: 224 and 320
// take 31.0, 256 once 33.5, with 2.5 of 15 cycles spent without an instruction: what they do, unrolled, is the longest there. What remains are barriers
// (5 of 15 cycles), six in a step. Profiled, 13.5 million warp instructions are issued in 37 % of the cycles, shared memory is busy
// 43 %, L2 63 %. Longer, when all threads did everything: 2 blocks of 64 bytes of channels (36.2), x in registers (38.0), 32 warps of fewer
// windows each (40.4), 8 of more (34.3), sums of two planes and a third plane of x in flight (34.0);
// barriers in shared memory between carriers and lookers, who meet among themselves between turns (31.2 to 31.5; float 68); 352, 448 and 480
// carriers (31.2); reads that fetch 128 bytes (31.1); writes that leave the cache first (31.4). As long: dy fetched ahead, blocks in other orders.
#include "primitives/cp_async.cuh"
#include "pooling/argmax.cuh"

using Word = unsigned;
constexpr int TILE2 = CHANNEL_TILE, CHANNELS = sizeof(Word) / sizeof(ELEMENT);  // of a word
using Group = std::conditional<PAIRS, Two, One>::type;
constexpr int SIZE = Group::SIZE, GROUPS = CHANNELS / SIZE;
constexpr int LINES = (TILE1 - 1) * S1 + K1, COLUMNS = (TILE2 - 1) * S2 + K2;  // that the windows of a thread cover
static_assert(STAGES > 1 && CARRIED <= 1, "a plane is in flight while another is looked at; of one the maxima are kept");
// Windows that may meet: every second one does not.
constexpr int TURNS1 = K1 > S1 ? 2 : 1, TURNS2 = K2 > S2 ? 2 : 1;
constexpr int AT_ONCE2 = TILE2 / TURNS2, AT_ONCE = TILE1 / TURNS1 * AT_ONCE2;  // of a thread
static_assert(K1 <= 2 * S1 && K2 <= 2 * S2 && TILE1 % TURNS1 == 0 && TILE2 % TURNS2 == 0, "every second window");
constexpr int PACK = 16 / sizeof(ELEMENT), PACK_LANES = PACK / CHANNELS, PACKS = BLOCK_LANES / PACK_LANES;  // of channels, in 16 bytes
static_assert(CHANNELS > 0 && BLOCK_LANES % PACK_LANES == 0, "whole packs");
constexpr int BEYOND = 1 << 14;  // the place of a line or column that another block writes: more than there are, in 16 bits when added twice
static_assert(BEYOND * BLOCK_LANES * CHANNELS * sizeof(COMPUTE) >= 228 * 1024, "the sums of a block have fewer places");

struct Scatter : Place {
  FastDivmod groups, parts2, parts1;            // blocks along channels, axis 2, axis 1
  FastDivmod threads2, columns, stage_columns;  // of a block along axis 2: threads, columns of x that it writes, that it looks at
  unsigned words, stage_packs;               // of channels in all; of a plane that a block looks at
  int tile[2], before[2], windows[2];        // of a block along axes 1 and 2: windows that begin where it writes, those before, all
};

struct ScatterArguments {
  const ELEMENT* dy;
  const ELEMENT* x;
  ELEMENT* dx;
  Scatter scatter;
  COMPUTE alpha, beta;
  int propagate;
};

// The maxima of a thread's windows, of a plane or some.
struct Found {
  typename Group::Value value[TILE1][TILE2][GROUPS];
  typename Group::Places where[TILE1][TILE2][GROUPS];

  // Of a plane outside of x.
  template <bool PROPAGATES> __device__ __forceinline__ void nothing() {
    ELEMENT items[SIZE];
#pragma unroll
    for (int n = 0; n < SIZE; n++) items[n] = element<ELEMENT>(PROPAGATES ? COMPUTE(-INFINITY) : COMPUTE(NAN));
#pragma unroll
    for (int n = 0; n < TILE1 * TILE2 * GROUPS; n++) (&value[0][0][0])[n] = Group::values(items), (&where[0][0][0])[n] = Group::everywhere(Group::NONE);
  }
};

__device__ __forceinline__ typename Group::Value value_of(Word word, int group) {
  ELEMENT items[CHANNELS], some[SIZE];
  memcpy(items, &word, sizeof word);
#pragma unroll
  for (int n = 0; n < SIZE; n++) some[n] = items[group * SIZE + n];
  return Group::values(some);
}

// Of a block: where its part of the tensors lies, what it has in shared memory.
struct Part {
  using Sums = Pack<COMPUTE, PACK_LANES>;
  const Scatter& scatter;
  unsigned group, words;
  int x_offset = 0, y_offset = 0;
  int first[2], origin[2];  // along axes 1 and 2: the first window that is looked at, the first input that is written
  // Sums: of each channel of words, of the planes that a window covers, in a ring. Behind them planes of x, what a block looks at: what lies
  // outside is replaced by its neighbour inside, which changes no maximum; the place is that of the neighbour.
  unsigned plane_items, ring_items, channel_pitch, stage_bytes;
  COMPUTE* sums;
  unsigned char* stages;
  unsigned begin = 0;  // of the ring: the place of the first plane

  __device__ __forceinline__ Part(const Scatter& scatter, unsigned block) : scatter(scatter), words(scatter.words) {
    unsigned part1, part2, rest;
    rest = scatter.groups.divide(block, group);
    rest = scatter.parts2.divide(rest, part2);
    const unsigned plane = scatter.parts1.divide(rest, part1);
    scatter.go_to(plane, x_offset, y_offset);
    first[0] = int(part1) * scatter.tile[0] - scatter.before[0], first[1] = int(part2) * scatter.tile[1] - scatter.before[1];
    origin[0] = int(part1) * scatter.tile[0] * S1, origin[1] = int(part2) * scatter.tile[1] * S2;
    plane_items = scatter.tile[0] * S1 * scatter.columns.divisor, ring_items = K0 * plane_items, channel_pitch = ring_items * BLOCK_LANES;
    stage_bytes = scatter.stage_packs * 16;
    sums = reinterpret_cast<COMPUTE*>(shared_memory), stages = shared_memory + CHANNELS * channel_pitch * sizeof(COMPUTE);
  }
  __device__ __forceinline__ void clear(unsigned threads) {
    for (unsigned n = threadIdx.x; n < CHANNELS * channel_pitch / PACK_LANES; n += threads) reinterpret_cast<Sums*>(sums)[n] = {};
  }
  __device__ __forceinline__ unsigned first_channel() const { return group * BLOCK_LANES * CHANNELS; }
  __device__ __forceinline__ unsigned place_of_plane(int k) const {
    const unsigned place = begin + k * plane_items;
    return CARRIED && place >= ring_items ? place - ring_items : place;
  }
  __device__ __forceinline__ void move_on() {
    if (CARRIED) begin = place_of_plane(S0);
  }
  __device__ __forceinline__ void move_to(int step) { begin = step * S0 % K0 * plane_items; }
  // Of all threads, wherever they are.
  static __device__ __forceinline__ void meet() { __syncthreads(); }
};

// Threads that bring planes of x, and write what the others found. Between two meetings of all they do a part of that.
struct Carrier {
  using Sums = Part::Sums;
  static constexpr int POSITIONS = CARRIERS / PACKS, APART = POSITIONS * BLOCK_LANES;  // at a time; sums between two packs of a thread
  const ScatterArguments& a;
  const Scatter& scatter;
  Part& part;
  unsigned carrier;
  unsigned from[COPIES];          // in a plane
  int to[WRITES];                 // where its packs lie in a plane of dx; -1: there is none
  unsigned sum_at;                // of its first pack, in a plane
  int to_come;                    // planes that windows reach
  unsigned char *coming_to, *stages_end;
  const ELEMENT* coming_plane;

  __device__ __forceinline__ Carrier(const ScatterArguments& a, Part& part, unsigned thread) : a(a), scatter(a.scatter), part(part), carrier(thread) {
    keep_in_register(carrier);
    to_come = min((scatter.output[0] - 1) * S0 - P0 + K0, scatter.input[0]);
    const unsigned most_channels = scatter.words * CHANNELS, first_channel = part.first_channel();
#pragma unroll
    for (int n = 0; n < COPIES; n++) {
      const unsigned pack = carrier + n * CARRIERS;
      unsigned c, l = scatter.stage_columns.divide(pack / PACKS, c);
      const int i1 = min(max(part.first[0] * S1 - P1 + int(l), 0), scatter.input[1] - 1), i2 = min(max(part.first[1] * S2 - P2 + int(c), 0), scatter.input[2] - 1);
      from[n] = part.x_offset + i1 * scatter.x_stride[1] + i2 * scatter.x_stride[2] + min(first_channel + pack % PACKS * PACK, most_channels - PACK);
      keep_in_register(from[n]);
    }
    coming_to = part.stages + carrier * 16, stages_end = coming_to + STAGES * part.stage_bytes;
    coming_plane = a.x;
  }
  template <class Visit> __device__ __forceinline__ void for_copies(Visit visit) const {
#pragma unroll
    for (int n = 0; n < COPIES; n++)
      if (carrier + n * CARRIERS < scatter.stage_packs) visit(n);
  }
  // Asks L2 for the first planes.
  __device__ __forceinline__ void fetch_planes() {
#pragma unroll
    for (int p = 0; p < STAGES; p++)
      if (p < to_come) for_copies([&](int n) { prefetch_l2(a.x + (p * scatter.x_stride[0] + int(from[n]))); });
  }
  __device__ __forceinline__ void bring() {
    if (to_come > 0) for_copies([&](int n) { cp_async<16>(coming_to + n * CARRIERS * 16, coming_plane + from[n], true); });
    cp_async_commit();
    to_come--;
    coming_plane += scatter.x_stride[0];
    coming_to += part.stage_bytes;
    if (coming_to == stages_end) coming_to -= STAGES * part.stage_bytes;
  }
  __device__ __forceinline__ void find_places_to_write() {
    const unsigned most_channels = scatter.words * CHANNELS, position = carrier / PACKS, channel = part.first_channel() + carrier % PACKS * PACK;
    sum_at = position * BLOCK_LANES + carrier % PACKS * PACK_LANES;
    keep_in_register(sum_at);
#pragma unroll
    for (int n = 0; n < WRITES; n++) {
      unsigned c, l = scatter.columns.divide(position + n * POSITIONS, c);
      const int i1 = part.origin[0] + int(l), i2 = part.origin[1] + int(c);
      const bool inside = position + n * POSITIONS < part.plane_items && i1 < scatter.input[1] && i2 < scatter.input[2] && channel < most_channels;
      to[n] = inside ? part.x_offset + i1 * scatter.x_stride[1] + i2 * scatter.x_stride[2] + channel : ~0u;
      keep_in_register(to[n]);
    }
  }
  // Writes a share of the planes that no later window reaches, from i0 on, and clears their sums.
  template <bool PLAIN, int SHARE> __device__ __forceinline__ void write(int i0) {
#pragma unroll
    for (int k = 0; k < S0; k++) {
      const bool there = unsigned(i0 + k) < unsigned(scatter.input[0]);
      COMPUTE* const sums = part.sums + (part.place_of_plane(k) * BLOCK_LANES + sum_at);
      ELEMENT* const dx = a.dx + (i0 + k) * scatter.x_stride[0];
#pragma unroll
      for (int n = SHARE * WRITES / S0; n < (SHARE + 1) * WRITES / S0; n++) {
        if (to[n] < 0) continue;
        COMPUTE values[1][PACK];
#pragma unroll
        for (int i = 0; i < CHANNELS; i++) {
          Sums& sum = *reinterpret_cast<Sums*>(sums + (i * part.channel_pitch + n * APART));
          const Sums taken = sum;
          sum = {};
#pragma unroll
          for (int m = 0; m < PACK_LANES; m++) values[0][m * CHANNELS + i] = taken.item[m];
        }
        if (there) write_packs<PLAIN, 1>(dx + to[n], 0, 1, values, a.alpha, a.beta);
      }
    }
  }
  template <bool PLAIN> __device__ __forceinline__ void carry() {
    constexpr int LAST = S0 - 1;
#pragma unroll 1
    for (int step = 0; step < scatter.output[0]; step++) {
      const int before = (step - 1) * S0 - P0;
      cp_async_wait<STAGES - 1>();
      part.meet();
      if (step > 0) write<PLAIN, 0>(before);
      if (LAST > 0) {
        cp_async_wait<STAGES - 2>();
        part.meet();
        bring();
        if (step > 0) write<PLAIN, LAST>(before);
      }
      part.meet();
      bring();
      if (step > 0) part.move_on();
      for (int turn = 1; turn < TURNS1 * TURNS2; turn++) part.meet();
    }
  }
};
static_assert(S0 <= 2, "planes that are new in a step");

// Threads that look at windows.
template <bool PROPAGATES> __device__ __forceinline__ void look_at_windows(const ScatterArguments& a, Part& part) {
  const Scatter& scatter = a.scatter;
  const unsigned lane = threadIdx.x % BLOCK_LANES, word = part.group * BLOCK_LANES + lane;
  unsigned q2;
  const unsigned q1 = scatter.threads2.divide(threadIdx.x / BLOCK_LANES, q2);
  const int own1 = int(q1) * TILE1, own2 = int(q2) * TILE2, window1 = part.first[0] + own1, window2 = part.first[1] + own2;
  const int columns = scatter.columns.divisor;
  typename Group::Places line_place[LINES], column_place[COLUMNS];
#pragma unroll
  for (int l = 0; l < LINES; l++) {
    const int at = min(max(window1 * S1 - P1 + l, 0), scatter.input[1] - 1) - part.origin[0];
    line_place[l] = Group::everywhere(unsigned(at) < unsigned(scatter.tile[0] * S1) ? at * columns : BEYOND);
    keep_in_register(line_place[l]);
  }
#pragma unroll
  for (int c = 0; c < COLUMNS; c++) {
    const int at = min(max(window2 * S2 - P2 + c, 0), scatter.input[2] - 1) - part.origin[1];
    column_place[c] = Group::everywhere(unsigned(at) < unsigned(columns) ? at : BEYOND);
    keep_in_register(column_place[c]);
  }
  unsigned gives = 0;  // which windows there are
#pragma unroll
  for (int n = 0; n < TILE1 * TILE2; n++) {
    const int w1 = n / TILE2, w2 = n % TILE2;
    const bool inside1 = own1 + w1 < scatter.windows[0] && unsigned(window1 + w1) < unsigned(scatter.output[1]);
    const bool inside2 = own2 + w2 < scatter.windows[1] && unsigned(window2 + w2) < unsigned(scatter.output[2]);
    if (word < part.words && inside1 && inside2) gives |= 1u << n;
  }
  const unsigned line_bytes = scatter.stage_columns.divisor * (BLOCK_LANES * sizeof(Word));
  const unsigned mine_bytes = own1 * S1 * line_bytes + (own2 * S2 * BLOCK_LANES + lane) * sizeof(Word);
  unsigned stage = 0;
  auto look = [&](Found& found) {
    const unsigned char* plane_of_x = part.stages + stage * part.stage_bytes + mine_bytes;
    stage = stage + 1 == STAGES ? 0 : stage + 1;
#pragma unroll
    for (int l = 0; l < LINES; l++) {
      Word words[COLUMNS];
#pragma unroll
      for (int c = 0; c < COLUMNS; c++) words[c] = reinterpret_cast<const Word*>(plane_of_x + l * line_bytes)[c * BLOCK_LANES];
#pragma unroll
      for (int w2 = 0; w2 < TILE2; w2++)
#pragma unroll
        for (int g = 0; g < GROUPS; g++) {
          auto value = value_of(words[w2 * S2], g);
          auto where = column_place[w2 * S2];
#pragma unroll
          for (int k2 = 1; k2 < K2; k2++) Group::template take<PROPAGATES>(value, where, value_of(words[w2 * S2 + k2], g), column_place[w2 * S2 + k2]);
          where += line_place[l];
#pragma unroll
          for (int w1 = 0; w1 < TILE1; w1++) {
            const int k1 = l - w1 * S1;
            if (k1 == 0) found.value[w1][w2][g] = value, found.where[w1][w2][g] = where;
            if (k1 > 0 && k1 < K1) Group::template take<PROPAGATES>(found.value[w1][w2][g], found.where[w1][w2][g], value, where);
          }
        }
    }
  };
  // Takes what plane k of a window has.
  auto take = [&](Found& found, const Found& next, int k) {
    const auto apart = Group::everywhere(part.place_of_plane(k));
#pragma unroll
    for (int n = 0; n < TILE1 * TILE2 * GROUPS; n++) {
      auto &value = (&found.value[0][0][0])[n], met = (&next.value[0][0][0])[n];
      auto &where = (&found.where[0][0][0])[n], place = (&next.where[0][0][0])[n] + apart;
      if (k > 0) Group::template take<PROPAGATES>(value, where, met, place);
      else value = met, where = place;
    }
  };

  Found carried;
  if (CARRIED && P0 == 0) {
    part.meet();
    look(carried);
    part.meet();
  } else {
    carried.template nothing<PROPAGATES>();
  }
#pragma unroll 1
  for (int step = 0; step < scatter.output[0]; step++) {
    const int i0 = step * S0 - P0;
    if (step > 0) part.move_on();
    Word gift[TILE1][TILE2] = {};
    const unsigned at = part.y_offset + word * CHANNELS + step * scatter.y_stride[0] + window1 * scatter.y_stride[1] + window2 * scatter.y_stride[2];
#pragma unroll
    for (int w1 = 0; w1 < TILE1; w1++)
#pragma unroll
      for (int w2 = 0; w2 < TILE2; w2++)
        if (gives >> (w1 * TILE2 + w2) & 1) gift[w1][w2] = *reinterpret_cast<const Word*>(a.dy + (at + unsigned(w1 * scatter.y_stride[1] + w2 * scatter.y_stride[2])));
    Found found;
    if (CARRIED) take(found, carried, 0);
#pragma unroll
    for (int k = CARRIED; k < K0; k++) {
      part.meet();  // the plane is there, the one before it is no longer looked at, and what windows of the step before gave is there
      Found now;
      look(now);
      if (i0 + k < scatter.input[0]) {
        take(found, now, k);
        if (k == K0 - 1) carried = now;
      }
    }
    part.meet();  // that plane is no longer looked at, and what the step before left is written
#pragma unroll
    for (int turn = 0; turn < TURNS1 * TURNS2; turn++) {
      COMPUTE value[AT_ONCE][CHANNELS];
      unsigned at[AT_ONCE][CHANNELS];
      bool there[AT_ONCE][CHANNELS];
#pragma unroll
      for (int n = 0; n < AT_ONCE; n++) {
        const int w1 = n / AT_ONCE2 * TURNS1 + turn / TURNS2, w2 = n % AT_ONCE2 * TURNS2 + turn % TURNS2;
        ELEMENT items[CHANNELS];
        memcpy(items, &gift[w1][w2], sizeof(Word));
#pragma unroll
        for (int i = 0; i < CHANNELS; i++) {
          auto where = found.where[w1][w2][i / SIZE];
          if (!PROPAGATES) where = Group::known(found.value[w1][w2][i / SIZE], where);
          unsigned place = unsigned(where);
          if (SIZE == 2) place = i % 2 ? place >> 16 : place & 0xffff;
          there[n][i] = place < part.ring_items && (gives >> (w1 * TILE2 + w2) & 1);
          at[n][i] = place * BLOCK_LANES + (lane + i * part.channel_pitch);
          if (there[n][i]) value[n][i] = part.sums[at[n][i]] + load<COMPUTE>(items[i]);
        }
      }
#pragma unroll
      for (int n = 0; n < AT_ONCE; n++)
#pragma unroll
        for (int i = 0; i < CHANNELS; i++)
          if (there[n][i]) part.sums[at[n][i]] = value[n][i];
      if (turn + 1 < TURNS1 * TURNS2) part.meet();
    }
  }
}

// All threads: writes the planes that are left behind the last windows.
template <bool PLAIN> __device__ __forceinline__ void finish(const ScatterArguments& a) {
  const Scatter& scatter = a.scatter;
  unsigned block = blockIdx.x;
  keep_in_register(block);  // found again: threads had no registers to spare for it
  Part part(scatter, block);
  part.move_to(scatter.output[0] - 1);
  const int first = (scatter.output[0] - 1) * S0 - P0, most_channels = scatter.words * CHANNELS;
#pragma unroll 1
  for (unsigned pack = threadIdx.x; pack < part.plane_items * PACKS; pack += blockDim.x) {
    const unsigned position = pack / PACKS;
    unsigned c, l = scatter.columns.divide(position, c);
    const int i1 = part.origin[0] + int(l), i2 = part.origin[1] + int(c), channel = part.first_channel() + pack % PACKS * PACK;
    if (i1 >= scatter.input[1] || i2 >= scatter.input[2] || channel >= most_channels) continue;
    ELEMENT* const dx = a.dx + (part.x_offset + i1 * scatter.x_stride[1] + i2 * scatter.x_stride[2] + channel);
#pragma unroll
    for (int k = 0; k < K0; k++) {
      if (unsigned(first + k) >= unsigned(scatter.input[0])) continue;
      const COMPUTE* const sums = part.sums + (part.place_of_plane(k) * BLOCK_LANES + position * BLOCK_LANES + pack % PACKS * PACK_LANES);
      COMPUTE values[1][PACK];
#pragma unroll
      for (int i = 0; i < CHANNELS; i++) {
        const Part::Sums sum = *reinterpret_cast<const Part::Sums*>(sums + i * part.channel_pitch);
#pragma unroll
        for (int m = 0; m < PACK_LANES; m++) values[0][m * CHANNELS + i] = sum.item[m];
      }
      write_packs<PLAIN, 1>(dx + (first + k) * scatter.x_stride[0], 0, 1, values, a.alpha, a.beta);
    }
    // No window reaches these.
    for (int i0 = first + K0; i0 < scatter.input[0]; i0++) {
      const COMPUTE nothing[1][PACK] = {};
      write_packs<PLAIN, 1>(dx + i0 * scatter.x_stride[0], 0, 1, nothing, a.alpha, a.beta);
    }
  }
}

template <bool PROPAGATES> __device__ __forceinline__ void march_on(const ScatterArguments& a) {
  Part part(a.scatter, blockIdx.x);
  const bool plain = a.alpha == COMPUTE(1) && a.beta == COMPUTE(0);
  const unsigned lookers = blockDim.x - CARRIERS;
  if (threadIdx.x < lookers) {
    part.clear(lookers);
    griddepcontrol_wait_before_access(a.dy + part.y_offset);
    griddepcontrol_launch_dependents();
    look_at_windows<PROPAGATES>(a, part);
  } else {
    Carrier carrier(a, part, threadIdx.x - lookers);
    carrier.fetch_planes();
    griddepcontrol_wait_before_access(a.x + carrier.from[0], a.dx);
#pragma unroll
    for (int n = 0; n < STAGES; n++) carrier.bring();
    carrier.find_places_to_write();
    if (CARRIED && P0 == 0) {
      cp_async_wait<STAGES - 1>();
      part.meet();
      part.meet();
      carrier.bring();
    }
    plain ? carrier.carry<true>() : carrier.carry<false>();
  }
  part.meet();  // the last sums are there
  plain ? finish<true>(a) : finish<false>(a);
}

extern "C" __global__ void __launch_bounds__(THREADS + CARRIERS, BLOCKS) pooling_max_backward_3d_nhwc_channels(const ScatterArguments a) {
  griddepcontrol_wait_deferred();
  a.propagate ? march_on<true>(a) : march_on<false>(a);
}
