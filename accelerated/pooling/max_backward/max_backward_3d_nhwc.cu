// Pooling backward (4.1.18) of maxima of volumes of channels with a static window: see pooling/static_window.cuh.
//
// Tiling: a block takes some windows of axes 1 and 2, of GROUP_WORDS words of channels, and slides along axis 0.
// PRODUCERS threads copy planes of x to shared memory, STAGES in flight, and write dx; of the consumers each scans
// TILE1 x TILE2 windows of one word. It finds the first maximum of a window once, with its index in the block's part of
// a plane, and adds dy to the sum there, in shared memory: windows that may overlap do so in phases, between barriers,
// so that the order of additions is fixed. Windows at the rim of a block are scanned by all blocks that write something
// under them. Roofline bound: bytes, x and dy read, dx written. One block fills an SM: barriers take 5 of 15 cycles.
// Measured on an H200: 8x64x16x56x56 half 29.9 us, float 57.3 us, 86 and 90 % of the copy.
#include "primitives/cp_async.cuh"
#include "pooling/max_backward/argmax.cuh"

using Word = unsigned;
constexpr int TILE2 = CHANNEL_TILE, WORD_CHANNELS = sizeof(Word) / sizeof(ELEMENT);  // of a word
using Group = std::conditional<PAIRS, Two, One>::type;
constexpr int SIZE = Group::SIZE, GROUPS = WORD_CHANNELS / SIZE;
constexpr int LINES = (TILE1 - 1) * S1 + K1, COLUMNS = (TILE2 - 1) * S2 + K2;  // that the windows of a thread cover
static_assert(STAGES > 1 && CARRIED <= 1, "a plane is in flight while another is scanned; of one the maxima are kept");
// Windows that may meet: every second one does not.
constexpr int PHASES1 = K1 > S1 ? 2 : 1, PHASES2 = K2 > S2 ? 2 : 1;
constexpr int AT_ONCE2 = TILE2 / PHASES2, AT_ONCE = TILE1 / PHASES1 * AT_ONCE2;  // of a thread
static_assert(K1 <= 2 * S1 && K2 <= 2 * S2 && TILE1 % PHASES1 == 0 && TILE2 % PHASES2 == 0, "every second window");
constexpr int PACK = 16 / sizeof(ELEMENT), PACK_WORDS = PACK / WORD_CHANNELS,
              PACKS = GROUP_WORDS / PACK_WORDS;  // of channels, in 16 bytes
static_assert(WORD_CHANNELS > 0 && GROUP_WORDS % PACK_WORDS == 0, "full packs");
constexpr int BEYOND =
    1
    << 14;  // the index of a line or column that another block writes: more than there are, in 16 bits when added twice
static_assert(BEYOND * GROUP_WORDS * WORD_CHANNELS * sizeof(COMPUTE) >= 228 * 1024,
              "the sums of a block have fewer indices");

struct Scatter : Layout {
  FastDivmod groups, parts2, parts1;  // blocks along channels, axis 2, axis 1
  FastDivmod threads2, columns,
      stage_columns;            // of a block along axis 2: threads, columns of x that it writes, that it scans
  unsigned words, stage_packs;  // of channels in all; of a plane that a block scans
  int tile[2], before[2],
      windows[2];  // of a block along axes 1 and 2: windows that begin where it writes, those before, all
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
  typename Group::Indices where[TILE1][TILE2][GROUPS];

  // Of a plane outside of x.
  template <bool PROPAGATES> __device__ __forceinline__ void nothing() {
    ELEMENT items[SIZE];
#pragma unroll
    for (int n = 0; n < SIZE; n++) items[n] = element<ELEMENT>(PROPAGATES ? COMPUTE(-INFINITY) : COMPUTE(NAN));
#pragma unroll
    for (int n = 0; n < TILE1 * TILE2 * GROUPS; n++)
      (&value[0][0][0])[n] = Group::values(items), (&where[0][0][0])[n] = Group::broadcast(Group::NONE);
  }
};

__device__ __forceinline__ typename Group::Value value_of(Word word, int group) {
  ELEMENT items[WORD_CHANNELS], some[SIZE];
  memcpy(items, &word, sizeof word);
#pragma unroll
  for (int n = 0; n < SIZE; n++) some[n] = items[group * SIZE + n];
  return Group::values(some);
}

// The barrier of producers and consumers, each has its own in the code: no warp has both.
__device__ __forceinline__ void block_barrier() { __syncthreads(); }

// Of a block: where its part of the tensors lies, what it has in shared memory.
struct Part {
  using Sums = Pack<COMPUTE, PACK_WORDS>;
  const Scatter& scatter;
  unsigned group, words;
  int x_offset = 0, y_offset = 0;
  int first[2], origin[2];  // along axes 1 and 2: the first window that is scanned, the first input that is written
  // Sums: of each channel of words, of the planes that a window covers, in a ring. Behind them planes of x, what a
  // block scans: what lies outside is replaced by its neighbour inside, which changes no maximum; the index is that of
  // the neighbour.
  unsigned plane_items, ring_items, channel_pitch, stage_bytes;
  COMPUTE* sums;
  unsigned char* stages;
  unsigned begin = 0;  // of the ring: the index of the first plane

  __device__ __forceinline__ Part(const Scatter& scatter, unsigned block) : scatter(scatter), words(scatter.words) {
    unsigned part1, part2, rest;
    rest = scatter.groups.divide(block, group);
    rest = scatter.parts2.divide(rest, part2);
    const unsigned plane = scatter.parts1.divide(rest, part1);
    scatter.add_plane(plane, x_offset, y_offset);
    first[0] = int(part1) * scatter.tile[0] - scatter.before[0],
    first[1] = int(part2) * scatter.tile[1] - scatter.before[1];
    origin[0] = int(part1) * scatter.tile[0] * S1, origin[1] = int(part2) * scatter.tile[1] * S2;
    plane_items = scatter.tile[0] * S1 * scatter.columns.divisor, ring_items = K0 * plane_items,
    channel_pitch = ring_items * GROUP_WORDS;
    stage_bytes = scatter.stage_packs * 16;
    sums = reinterpret_cast<COMPUTE*>(shared_memory),
    stages = shared_memory + WORD_CHANNELS * channel_pitch * sizeof(COMPUTE);
  }
  __device__ __forceinline__ void clear(unsigned threads) {
    for (unsigned n = threadIdx.x; n < WORD_CHANNELS * channel_pitch / PACK_WORDS; n += threads)
      reinterpret_cast<Sums*>(sums)[n] = {};
  }
  __device__ __forceinline__ unsigned first_channel() const { return group * GROUP_WORDS * WORD_CHANNELS; }
  __device__ __forceinline__ unsigned index_of_plane(int k) const {
    const unsigned index = begin + k * plane_items;
    return CARRIED && index >= ring_items ? index - ring_items : index;
  }
  __device__ __forceinline__ void advance() {
    if (CARRIED) begin = index_of_plane(S0);
  }
  __device__ __forceinline__ void advance_to(int step) { begin = step * S0 % K0 * plane_items; }
};

// Threads that load_plane planes of x, and write what the others found. They do a part of that between two barriers.
struct Producer {
  using Sums = Part::Sums;
  static constexpr int POSITIONS = PRODUCERS / PACKS,
                       APART = POSITIONS * GROUP_WORDS;  // at a time; sums between two packs of a thread
  const ScatterArguments& a;
  const Scatter& scatter;
  Part& part;
  unsigned producer;
  unsigned from[COPIES];  // in a plane
  int to[WRITES];         // where its packs lie in a plane of dx; -1: there is none
  unsigned sum_at;        // of its first pack, in a plane
  int planes_left;        // planes that windows reach
  unsigned char *copy_target, *stages_end;
  const ELEMENT* next_plane;

  __device__ __forceinline__ Producer(const ScatterArguments& a, Part& part, unsigned thread)
      : a(a), scatter(a.scatter), part(part), producer(thread) {
    keep_in_register(producer);
    planes_left = min((scatter.output[0] - 1) * S0 - P0 + K0, scatter.input[0]);
    const unsigned all_channels = scatter.words * WORD_CHANNELS, first_channel = part.first_channel();
#pragma unroll
    for (int n = 0; n < COPIES; n++) {
      const unsigned pack = producer + n * PRODUCERS;
      unsigned c, l = scatter.stage_columns.divide(pack / PACKS, c);
      const int i1 = min(max(part.first[0] * S1 - P1 + int(l), 0), scatter.input[1] - 1),
                i2 = min(max(part.first[1] * S2 - P2 + int(c), 0), scatter.input[2] - 1);
      from[n] = part.x_offset + i1 * scatter.x_stride[1] + i2 * scatter.x_stride[2] +
                min(first_channel + pack % PACKS * PACK, all_channels - PACK);
      keep_in_register(from[n]);
    }
    copy_target = part.stages + producer * 16, stages_end = copy_target + STAGES * part.stage_bytes;
    next_plane = a.x;
  }
  template <class Visit> __device__ __forceinline__ void for_copies(Visit visit) const {
#pragma unroll
    for (int n = 0; n < COPIES; n++)
      if (producer + n * PRODUCERS < scatter.stage_packs) visit(n);
  }
  // Prefetches the first planes to L2.
  __device__ __forceinline__ void prefetch_planes() {
#pragma unroll
    for (int p = 0; p < STAGES; p++)
      if (p < planes_left) for_copies([&](int n) { prefetch_l2(a.x + (p * scatter.x_stride[0] + int(from[n]))); });
  }
  __device__ __forceinline__ void load_plane() {
    if (planes_left > 0)
      for_copies([&](int n) { cp_async<16>(copy_target + n * PRODUCERS * 16, next_plane + from[n], true); });
    cp_async_commit();
    planes_left--;
    next_plane += scatter.x_stride[0];
    copy_target += part.stage_bytes;
    if (copy_target == stages_end) copy_target -= STAGES * part.stage_bytes;
  }
  __device__ __forceinline__ void locate_writes() {
    const unsigned all_channels = scatter.words * WORD_CHANNELS, position = producer / PACKS,
                   channel = part.first_channel() + producer % PACKS * PACK;
    sum_at = position * GROUP_WORDS + producer % PACKS * PACK_WORDS;
    keep_in_register(sum_at);
#pragma unroll
    for (int n = 0; n < WRITES; n++) {
      unsigned c, l = scatter.columns.divide(position + n * POSITIONS, c);
      const int i1 = part.origin[0] + int(l), i2 = part.origin[1] + int(c);
      const bool inside = position + n * POSITIONS < part.plane_items && i1 < scatter.input[1] &&
                          i2 < scatter.input[2] && channel < all_channels;
      to[n] = inside ? part.x_offset + i1 * scatter.x_stride[1] + i2 * scatter.x_stride[2] + channel : ~0u;
      keep_in_register(to[n]);
    }
  }
  // Writes a share of the planes that no later window reaches, from i0 on, and clears their sums.
  template <bool PLAIN, int SHARE> __device__ __forceinline__ void write(int i0) {
#pragma unroll
    for (int k = 0; k < S0; k++) {
      const bool there = unsigned(i0 + k) < unsigned(scatter.input[0]);
      COMPUTE* const sums = part.sums + (part.index_of_plane(k) * GROUP_WORDS + sum_at);
      ELEMENT* const dx = a.dx + (i0 + k) * scatter.x_stride[0];
#pragma unroll
      for (int n = SHARE * WRITES / S0; n < (SHARE + 1) * WRITES / S0; n++) {
        if (to[n] < 0) continue;
        COMPUTE values[1][PACK];
#pragma unroll
        for (int i = 0; i < WORD_CHANNELS; i++) {
          Sums& sum = *reinterpret_cast<Sums*>(sums + (i * part.channel_pitch + n * APART));
          const Sums taken = sum;
          sum = {};
#pragma unroll
          for (int m = 0; m < PACK_WORDS; m++) values[0][m * WORD_CHANNELS + i] = taken.item[m];
        }
        if (there) write_packs<PLAIN, 1>(dx + to[n], 0, 1, values, a.alpha, a.beta);
      }
    }
  }
  template <bool PLAIN> __device__ __forceinline__ void produce() {
    constexpr int LAST = S0 - 1;
#pragma unroll 1
    for (int step = 0; step < scatter.output[0]; step++) {
      const int before = (step - 1) * S0 - P0;
      cp_async_wait<STAGES - 1>();
      block_barrier();
      if (step > 0) write<PLAIN, 0>(before);
      if (LAST > 0) {
        cp_async_wait<STAGES - 2>();
        block_barrier();
        load_plane();
        if (step > 0) write<PLAIN, LAST>(before);
      }
      block_barrier();
      load_plane();
      if (step > 0) part.advance();
      for (int phase = 1; phase < PHASES1 * PHASES2; phase++) block_barrier();
    }
  }
};
static_assert(S0 <= 2, "planes that are new in a step");

// Threads that scan at windows.
template <bool PROPAGATES> __device__ __forceinline__ void scan_windows(const ScatterArguments& a, Part& part) {
  const Scatter& scatter = a.scatter;
  const unsigned word_of_group = threadIdx.x % GROUP_WORDS, word = part.group * GROUP_WORDS + word_of_group;
  unsigned q2;
  const unsigned q1 = scatter.threads2.divide(threadIdx.x / GROUP_WORDS, q2);
  const int own1 = int(q1) * TILE1, own2 = int(q2) * TILE2, window1 = part.first[0] + own1,
            window2 = part.first[1] + own2;
  const int columns = scatter.columns.divisor;
  typename Group::Indices line_index[LINES], column_index[COLUMNS];
#pragma unroll
  for (int l = 0; l < LINES; l++) {
    const int at = min(max(window1 * S1 - P1 + l, 0), scatter.input[1] - 1) - part.origin[0];
    line_index[l] = Group::broadcast(unsigned(at) < unsigned(scatter.tile[0] * S1) ? at * columns : BEYOND);
    keep_in_register(line_index[l]);
  }
#pragma unroll
  for (int c = 0; c < COLUMNS; c++) {
    const int at = min(max(window2 * S2 - P2 + c, 0), scatter.input[2] - 1) - part.origin[1];
    column_index[c] = Group::broadcast(unsigned(at) < unsigned(columns) ? at : BEYOND);
    keep_in_register(column_index[c]);
  }
  unsigned exists = 0;  // which windows there are
#pragma unroll
  for (int n = 0; n < TILE1 * TILE2; n++) {
    const int w1 = n / TILE2, w2 = n % TILE2;
    const bool inside1 = own1 + w1 < scatter.windows[0] && unsigned(window1 + w1) < unsigned(scatter.output[1]);
    const bool inside2 = own2 + w2 < scatter.windows[1] && unsigned(window2 + w2) < unsigned(scatter.output[2]);
    if (word < part.words && inside1 && inside2) exists |= 1u << n;
  }
  const unsigned line_bytes = scatter.stage_columns.divisor * (GROUP_WORDS * sizeof(Word));
  const unsigned mine_bytes = own1 * S1 * line_bytes + (own2 * S2 * GROUP_WORDS + word_of_group) * sizeof(Word);
  unsigned stage = 0;
  auto scan = [&](Found& found) {
    const unsigned char* plane_of_x = part.stages + stage * part.stage_bytes + mine_bytes;
    stage = stage + 1 == STAGES ? 0 : stage + 1;
#pragma unroll
    for (int l = 0; l < LINES; l++) {
      Word words[COLUMNS];
#pragma unroll
      for (int c = 0; c < COLUMNS; c++)
        words[c] = reinterpret_cast<const Word*>(plane_of_x + l * line_bytes)[c * GROUP_WORDS];
#pragma unroll
      for (int w2 = 0; w2 < TILE2; w2++)
#pragma unroll
        for (int g = 0; g < GROUPS; g++) {
          auto value = value_of(words[w2 * S2], g);
          auto where = column_index[w2 * S2];
#pragma unroll
          for (int k2 = 1; k2 < K2; k2++)
            Group::template take<PROPAGATES>(value, where, value_of(words[w2 * S2 + k2], g),
                                             column_index[w2 * S2 + k2]);
          where += line_index[l];
#pragma unroll
          for (int w1 = 0; w1 < TILE1; w1++) {
            const int k1 = l - w1 * S1;
            if (k1 == 0) found.value[w1][w2][g] = value, found.where[w1][w2][g] = where;
            if (k1 > 0 && k1 < K1)
              Group::template take<PROPAGATES>(found.value[w1][w2][g], found.where[w1][w2][g], value, where);
          }
        }
    }
  };
  // Takes what plane k of a window has.
  auto take = [&](Found& found, const Found& next, int k) {
    const auto apart = Group::broadcast(part.index_of_plane(k));
#pragma unroll
    for (int n = 0; n < TILE1 * TILE2 * GROUPS; n++) {
      auto &value = (&found.value[0][0][0])[n], met = (&next.value[0][0][0])[n];
      auto &where = (&found.where[0][0][0])[n], index = (&next.where[0][0][0])[n] + apart;
      if (k > 0) Group::template take<PROPAGATES>(value, where, met, index);
      else value = met, where = index;
    }
  };

  Found carried;
  if (CARRIED && P0 == 0) {
    block_barrier();
    scan(carried);
    block_barrier();
  } else {
    carried.template nothing<PROPAGATES>();
  }
#pragma unroll 1
  for (int step = 0; step < scatter.output[0]; step++) {
    const int i0 = step * S0 - P0;
    if (step > 0) part.advance();
    Word dy_value[TILE1][TILE2] = {};
    const unsigned at = part.y_offset + word * WORD_CHANNELS + step * scatter.y_stride[0] +
                        window1 * scatter.y_stride[1] + window2 * scatter.y_stride[2];
#pragma unroll
    for (int w1 = 0; w1 < TILE1; w1++)
#pragma unroll
      for (int w2 = 0; w2 < TILE2; w2++)
        if (exists >> (w1 * TILE2 + w2) & 1)
          dy_value[w1][w2] = *reinterpret_cast<const Word*>(
              a.dy + (at + unsigned(w1 * scatter.y_stride[1] + w2 * scatter.y_stride[2])));
    Found found;
    if (CARRIED) take(found, carried, 0);
#pragma unroll
    for (int k = CARRIED; k < K0; k++) {
      block_barrier();  // the plane is there, the one before it has been scanned, and the sums of the step before are
                        // complete
      Found now;
      scan(now);
      if (i0 + k < scatter.input[0]) {
        take(found, now, k);
        if (k == K0 - 1) carried = now;
      }
    }
    block_barrier();  // that plane has been scanned, and the rows that the step before finished are written
#pragma unroll
    for (int phase = 0; phase < PHASES1 * PHASES2; phase++) {
      COMPUTE value[AT_ONCE][WORD_CHANNELS];
      unsigned at[AT_ONCE][WORD_CHANNELS];
      bool there[AT_ONCE][WORD_CHANNELS];
#pragma unroll
      for (int n = 0; n < AT_ONCE; n++) {
        const int w1 = n / AT_ONCE2 * PHASES1 + phase / PHASES2, w2 = n % AT_ONCE2 * PHASES2 + phase % PHASES2;
        ELEMENT items[WORD_CHANNELS];
        memcpy(items, &dy_value[w1][w2], sizeof(Word));
#pragma unroll
        for (int i = 0; i < WORD_CHANNELS; i++) {
          auto where = found.where[w1][w2][i / SIZE];
          if (!PROPAGATES) where = Group::valid(found.value[w1][w2][i / SIZE], where);
          unsigned index = unsigned(where);
          if (SIZE == 2) index = i % 2 ? index >> 16 : index & 0xffff;
          there[n][i] = index < part.ring_items && (exists >> (w1 * TILE2 + w2) & 1);
          at[n][i] = index * GROUP_WORDS + (word_of_group + i * part.channel_pitch);
          if (there[n][i]) value[n][i] = part.sums[at[n][i]] + load<COMPUTE>(items[i]);
        }
      }
#pragma unroll
      for (int n = 0; n < AT_ONCE; n++)
#pragma unroll
        for (int i = 0; i < WORD_CHANNELS; i++)
          if (there[n][i]) part.sums[at[n][i]] = value[n][i];
      if (phase + 1 < PHASES1 * PHASES2) block_barrier();
    }
  }
}

// All threads: writes the planes that are left behind the last windows.
template <bool PLAIN> __device__ __forceinline__ void finish(const ScatterArguments& a) {
  const Scatter& scatter = a.scatter;
  unsigned block = blockIdx.x;
  keep_in_register(block);  // found again: threads had no registers to spare for it
  Part part(scatter, block);
  part.advance_to(scatter.output[0] - 1);
  const int first = (scatter.output[0] - 1) * S0 - P0, all_channels = scatter.words * WORD_CHANNELS;
#pragma unroll 1
  for (unsigned pack = threadIdx.x; pack < part.plane_items * PACKS; pack += blockDim.x) {
    const unsigned position = pack / PACKS;
    unsigned c, l = scatter.columns.divide(position, c);
    const int i1 = part.origin[0] + int(l), i2 = part.origin[1] + int(c),
              channel = part.first_channel() + pack % PACKS * PACK;
    if (i1 >= scatter.input[1] || i2 >= scatter.input[2] || channel >= all_channels) continue;
    ELEMENT* const dx = a.dx + (part.x_offset + i1 * scatter.x_stride[1] + i2 * scatter.x_stride[2] + channel);
#pragma unroll
    for (int k = 0; k < K0; k++) {
      if (unsigned(first + k) >= unsigned(scatter.input[0])) continue;
      const COMPUTE* const sums =
          part.sums + (part.index_of_plane(k) * GROUP_WORDS + position * GROUP_WORDS + pack % PACKS * PACK_WORDS);
      COMPUTE values[1][PACK];
#pragma unroll
      for (int i = 0; i < WORD_CHANNELS; i++) {
        const Part::Sums sum = *reinterpret_cast<const Part::Sums*>(sums + i * part.channel_pitch);
#pragma unroll
        for (int m = 0; m < PACK_WORDS; m++) values[0][m * WORD_CHANNELS + i] = sum.item[m];
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

template <bool PROPAGATES> __device__ __forceinline__ void slide(const ScatterArguments& a) {
  Part part(a.scatter, blockIdx.x);
  const bool plain = a.alpha == COMPUTE(1) && a.beta == COMPUTE(0);
  const unsigned consumers = blockDim.x - PRODUCERS;
  if (threadIdx.x < consumers) {
    part.clear(consumers);
    griddepcontrol_wait_before_access(a.dy + part.y_offset);
    griddepcontrol_launch_dependents();
    scan_windows<PROPAGATES>(a, part);
  } else {
    Producer producer(a, part, threadIdx.x - consumers);
    producer.prefetch_planes();
    griddepcontrol_wait_before_access(a.x + producer.from[0], a.dx);
#pragma unroll
    for (int n = 0; n < STAGES; n++) producer.load_plane();
    producer.locate_writes();
    if (CARRIED && P0 == 0) {
      cp_async_wait<STAGES - 1>();
      block_barrier();
      block_barrier();
      producer.load_plane();
    }
    plain ? producer.produce<true>() : producer.produce<false>();
  }
  block_barrier();  // the last sums are there
  plain ? finish<true>(a) : finish<false>(a);
}

extern "C" __global__ void __launch_bounds__(THREADS + PRODUCERS, BLOCKS)
    pooling_max_backward_3d_nhwc_channels(const ScatterArguments a) {
  griddepcontrol_wait_deferred();
  a.propagate ? slide<true>(a) : slide<false>(a);
}
