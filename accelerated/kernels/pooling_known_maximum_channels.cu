// Pooling backward (4.1.18) of maxima with a known window, of channels side by side: see pooling_known.cuh.
//
// Floor: bytes; x and dy are read, dx written (y is not needed: it is the maximum of x). A block takes some windows of axes 1
// and 2, of BLOCK_LANES words of channels, and marches along axis 0 (the height of images); a thread takes TILE1 x TILE2 windows of one
// word. Of each window it finds the first maximum, once, with its place: the position in the block's part of a plane. What
// windows of a plane share is found once, the maxima of planes that two windows have are kept in registers. What the window gives
// is added to that place, in shared memory, where the block has sums for the planes that begin with the window; what lies in a plane
// of the next one is added with what that gives. Windows that may meet add one after the other, behind barriers, so the order of
// additions is fixed. Then these planes are written, in packs.
// Windows at the rim of a block are looked at twice, by all blocks that have something of them to write.
#include "async_copies.cuh"
#include "pooling_maximum.cuh"

constexpr int TILE2 = CHANNEL_TILE, CHANNELS = sizeof(ELEMENT) < 4 ? 4 / sizeof(ELEMENT) : 1;  // of a word
using Word = std::conditional<sizeof(ELEMENT) == 8, double, unsigned>::type;
using Group = std::conditional<PAIRS, Two, One>::type;
constexpr int SIZE = Group::SIZE, GROUPS = CHANNELS / SIZE;
constexpr int LINES = (TILE1 - 1) * S1 + K1, COLUMNS = (TILE2 - 1) * S2 + K2;  // that the windows of a thread cover
static_assert(STAGES > 1 && CARRIED <= 1, "a plane is on its way while another is looked at; of one the maxima are kept");
// Windows that may meet: every second one does not.
constexpr int TURNS1 = K1 > S1 ? 2 : 1, TURNS2 = K2 > S2 ? 2 : 1;
constexpr int AT_ONCE1 = (TILE1 + TURNS1 - 1) / TURNS1, AT_ONCE2 = (TILE2 + TURNS2 - 1) / TURNS2, AT_ONCE = AT_ONCE1 * AT_ONCE2;
static_assert(K1 <= 2 * S1 && K2 <= 2 * S2 && (TILE1 == 1 || TILE1 % TURNS1 == 0) && (TILE2 == 1 || TILE2 % TURNS2 == 0), "every second window");
constexpr int PACK = 16 / sizeof(ELEMENT), PACK_LANES = PACK / CHANNELS, PACKS = BLOCK_LANES / PACK_LANES;  // of channels, in 16 bytes
static_assert(BLOCK_LANES % PACK_LANES == 0, "whole packs");
constexpr int BEYOND = 1 << 14;  // the place of a line or column that another block writes: more than there are, in 16 bits when added twice

struct Scatter : Place {
  Divisor groups, parts2, parts1, segments;  // blocks along channels, axis 2, axis 1, axis 0
  Divisor threads2, columns, stage_columns;  // of a block along axis 2: threads, columns of x that it writes, that it looks at
  unsigned words, stage_packs;               // of channels in all; of a plane that a block looks at
  int tile[2], before[2], windows[2];        // of a block along axes 1 and 2: windows that begin where it writes, those before, all
  int steps, block_steps;
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

// Stays in its register: the compiler would find it again, in every step.
template <class T> __device__ __forceinline__ void keep(T& value) {
#ifndef EMULATED_CUDA
  if constexpr (sizeof(T) == 8) asm volatile("" : "+l"(value));
  else asm volatile("" : "+r"(value));
#endif
}

template <bool PROPAGATES> __device__ __forceinline__ void march_on(const ScatterArguments& a) {
  const Scatter& block = a.scatter;
  // The block, and the place of the thread in it.
  unsigned segment, part1, part2, group, q2, rest;
  rest = block.groups.divide(blockIdx.x, group);
  rest = block.parts2.divide(rest, part2);
  rest = block.parts1.divide(rest, part1);
  const unsigned plane = block.segments.divide(rest, segment), lane = threadIdx.x % BLOCK_LANES;
  const unsigned q1 = block.threads2.divide(threadIdx.x / BLOCK_LANES, q2), word = group * BLOCK_LANES + lane;
  int x_offset = 0, y_offset = 0;
  block.go_to(plane, x_offset, y_offset);
  const int own1 = int(q1) * TILE1, own2 = int(q2) * TILE2, origin1 = int(part1) * block.tile[0] * S1, origin2 = int(part2) * block.tile[1] * S2;
  const int first1 = int(part1) * block.tile[0] - block.before[0], first2 = int(part2) * block.tile[1] - block.before[1];
  const int window1 = first1 + own1, window2 = first2 + own2;
  const int columns = block.columns.divisor;
  const unsigned most_channels = block.words * CHANNELS;

  // Sums: of each channel of words, of the planes that begin with a window. Behind them planes of x, what a block looks at: what lies
  // outside is replaced by its neighbour inside, which changes no maximum; the place is that of the neighbour.
  COMPUTE* const sums = reinterpret_cast<COMPUTE*>(shared_memory);
  const unsigned plane_items = block.tile[0] * S1 * columns, own_items = S0 * plane_items, channel_pitch = own_items * BLOCK_LANES;
  using Sums = Pack<COMPUTE, PACK_LANES>;
  for (unsigned n = threadIdx.x; n < CHANNELS * channel_pitch / PACK_LANES; n += blockDim.x) reinterpret_cast<Sums*>(sums)[n] = {};
  typename Group::Places line_place[LINES], column_place[COLUMNS];
#pragma unroll
  for (int l = 0; l < LINES; l++) {
    const int at = min(max(window1 * S1 - P1 + l, 0), block.input[1] - 1) - origin1;
    line_place[l] = Group::everywhere(unsigned(at) < unsigned(block.tile[0] * S1) ? at * columns : BEYOND);
    keep(line_place[l]);
  }
#pragma unroll
  for (int c = 0; c < COLUMNS; c++) {
    const int at = min(max(window2 * S2 - P2 + c, 0), block.input[2] - 1) - origin2;
    column_place[c] = Group::everywhere(unsigned(at) < unsigned(columns) ? at : BEYOND);
    keep(column_place[c]);
  }
  unsigned gives = 0;  // which windows there are
#pragma unroll
  for (int n = 0; n < TILE1 * TILE2; n++) {
    const int w1 = n / TILE2, w2 = n % TILE2;
    const bool inside1 = own1 + w1 < block.windows[0] && unsigned(window1 + w1) < unsigned(block.output[1]);
    const bool inside2 = own2 + w2 < block.windows[1] && unsigned(window2 + w2) < unsigned(block.output[2]);
    if (word < block.words && inside1 && inside2) gives |= 1u << n;
  }

  const int own = segment * block.block_steps, end = min(own + block.block_steps, block.steps);
  int step = max(own - BEFORE0, 0);
  const int beyond = min(block.input[0], end * S0 - P0 + CARRIED);  // the first plane that the block does not need

  // Planes of x come in packs, each thread brings some.
  unsigned char* const stages = shared_memory + CHANNELS * channel_pitch * sizeof(COMPUTE);
  const unsigned stage_bytes = block.stage_packs * 16;
  const unsigned first_channel = group * BLOCK_LANES * CHANNELS;
  auto position_in_plane = [&](unsigned position) {
    unsigned c, l = block.stage_columns.divide(position, c);
    const int i1 = min(max(first1 * S1 - P1 + int(l), 0), block.input[1] - 1), i2 = min(max(first2 * S2 - P2 + int(c), 0), block.input[2] - 1);
    return x_offset + i1 * block.x_stride[1] + i2 * block.x_stride[2];
  };
  unsigned from[COPIES];  // in a plane
#pragma unroll
  for (int n = 0; n < COPIES; n++) {
    const unsigned pack = threadIdx.x + n * blockDim.x;
    from[n] = position_in_plane(pack / PACKS) + min(first_channel + pack % PACKS * PACK, most_channels - PACK);
    keep(from[n]);
  }
  const unsigned copies = (block.stage_packs - threadIdx.x + blockDim.x - 1) / blockDim.x;  // fewer packs than threads: plan
  int coming = max(step * S0 - P0, 0);
  unsigned coming_stage = 0, stage = 0;
  auto bring = [&] {
    if (coming < beyond) {
      unsigned char* to = stages + coming_stage * stage_bytes + threadIdx.x * 16;
      const ELEMENT* x = a.x + coming * block.x_stride[0];
      keep(x);
#pragma unroll
      for (int n = 0; n < COPIES; n++)
        if (n < copies) copy_async<16>(to + n * blockDim.x * 16, x + from[n], true);
      if (CACHE_AHEAD > 0 && coming + CACHE_AHEAD < beyond && threadIdx.x % 2 == 0)
#pragma unroll
        for (int n = 0; n < COPIES; n++)
          if (n < copies) bring_to_cache(x + (from[n] + unsigned(CACHE_AHEAD * block.x_stride[0])));
    }
    end_copies();
    coming++;
    coming_stage = coming_stage + 1 == STAGES ? 0 : coming_stage + 1;
  };
  const unsigned line_bytes = block.stage_columns.divisor * (BLOCK_LANES * sizeof(Word));
  const unsigned mine_bytes = own1 * S1 * line_bytes + (own2 * S2 * BLOCK_LANES + lane) * sizeof(Word);
  auto look = [&](Found& found) {
    const unsigned char* plane_of_x = stages + stage * stage_bytes + mine_bytes;
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
    const auto apart = Group::everywhere(k * plane_items);
#pragma unroll
    for (int n = 0; n < TILE1 * TILE2 * GROUPS; n++) {
      auto &value = (&found.value[0][0][0])[n], met = (&next.value[0][0][0])[n];
      auto &where = (&found.where[0][0][0])[n], place = (&next.where[0][0][0])[n] + apart;
      if (k > 0) Group::template take<PROPAGATES>(value, where, met, place);
      else value = met, where = place;
    }
  };

  wait_to_touch(a.x + from[0], a.dy, a.dx);
#pragma unroll
  for (int n = 0; n < STAGES; n++) bring();
  Found carried;
  if (CARRIED && step * S0 - P0 >= 0) {
    wait_for_copies<STAGES - 1>();
    __syncthreads();
    look(carried);
    __syncthreads();
    bring();
  } else {
    carried.template nothing<PROPAGATES>();
  }

  // What a thread writes: where its packs lie in a plane of dx, -1 where there is none.
  const unsigned write_pack = threadIdx.x % PACKS, position = threadIdx.x / PACKS, apart = blockDim.x / PACKS;
  int to[WRITES];
#pragma unroll
  for (int n = 0; n < WRITES; n++) {
    unsigned c, l = block.columns.divide(position + n * apart, c);
    const int i1 = origin1 + int(l), i2 = origin2 + int(c);
    const unsigned channel = first_channel + write_pack * PACK;
    const bool inside = position + n * apart < plane_items && i1 < block.input[1] && i2 < block.input[2] && channel < most_channels;
    to[n] = inside ? x_offset + i1 * block.x_stride[1] + i2 * block.x_stride[2] + channel : ~0u;
    keep(to[n]);
  }
  // Writes the planes, and clears their sums.
  auto write = [&](int i0, bool writes, auto plain) {
    constexpr bool PLAIN = decltype(plain)::value;
    unsigned at[S0];
    ELEMENT* dx[S0];
#pragma unroll
    for (int k = 0; k < S0; k++) {
      at[k] = (k * plane_items + position) * BLOCK_LANES + write_pack * PACK_LANES;
      dx[k] = a.dx + (i0 + k) * block.x_stride[0];
    }
#pragma unroll
    for (int n = 0; n < WRITES; n++) {
      if (to[n] < 0) continue;
      COMPUTE values[S0][1][PACK];
#pragma unroll
      for (int k = 0; k < S0; k++)
#pragma unroll
        for (int i = 0; i < CHANNELS; i++) {
          Sums& sum = *reinterpret_cast<Sums*>(sums + (at[k] + n * apart * BLOCK_LANES + i * channel_pitch));
          const Sums taken = sum;
          sum = {};
#pragma unroll
          for (int m = 0; m < PACK_LANES; m++) values[k][0][m * CHANNELS + i] = taken.item[m];
        }
#pragma unroll
      for (int k = 0; k < S0; k++)
        if (writes && unsigned(i0 + k) < unsigned(block.input[0])) write_packs<PLAIN, 1>(dx[k] + unsigned(to[n]), 0, 1, values[k], a.alpha, a.beta);
    }
  };
  const bool plain = a.alpha == COMPUTE(1) && a.beta == COMPUTE(0);

  // What windows give to a plane that later ones cover, too, they give in the next step.
  typename Group::Places late[TILE1][TILE2][GROUPS];
  Word late_gift[TILE1][TILE2] = {};
#pragma unroll
  for (int n = 0; n < TILE1 * TILE2 * GROUPS; n++) (&late[0][0][0])[n] = Group::everywhere(Group::NONE);
  auto place_of = [](typename Group::Places where, int channel) { return SIZE == 1 ? unsigned(where) : channel % 2 ? unsigned(where) >> 16 : unsigned(where) & 0xffff; };

#pragma unroll 1
  for (; step < end; step++) {
    const int i0 = step * S0 - P0;
    const bool given = step < block.output[0];
    Word gift[TILE1][TILE2] = {};
    if (given) {
      const unsigned at = y_offset + word * CHANNELS + step * block.y_stride[0] + window1 * block.y_stride[1] + window2 * block.y_stride[2];
#pragma unroll
      for (int w1 = 0; w1 < TILE1; w1++)
#pragma unroll
        for (int w2 = 0; w2 < TILE2; w2++)
          if (gives >> (w1 * TILE2 + w2) & 1) gift[w1][w2] = *reinterpret_cast<const Word*>(a.dy + (at + unsigned(w1 * block.y_stride[1] + w2 * block.y_stride[2])));
    }
    Found found;
    if (CARRIED) take(found, carried, 0);
#pragma unroll
    for (int k = CARRIED; k < K0; k++) {
      if (k == CARRIED) wait_for_copies<STAGES - 1>();
      else wait_for_copies<STAGES - 2>();
      __syncthreads();  // the plane is there, and the one before it is no longer looked at
      if (k > CARRIED) bring();
      Found now;
      look(now);
      if (i0 + k < block.input[0]) {
        take(found, now, k);
        if (k == K0 - 1) carried = now;
      }
    }
    __syncthreads();  // sums are written and cleared, too
    bring();
    if (!PROPAGATES)
#pragma unroll
      for (int n = 0; n < TILE1 * TILE2 * GROUPS; n++) (&found.where[0][0][0])[n] = Group::known((&found.value[0][0][0])[n], (&found.where[0][0][0])[n]);
#pragma unroll
    for (int turn = 0; turn < TURNS1 * TURNS2; turn++) {
      // Of each window and channel: what it gives late, and what now.
      COMPUTE value[AT_ONCE][CHANNELS][2];
      unsigned at[AT_ONCE][CHANNELS][2];
      bool there[AT_ONCE][CHANNELS][2];
#pragma unroll
      for (int n = 0; n < AT_ONCE; n++) {
        const int turn1 = turn / TURNS2, turn2 = turn % TURNS2;
        const int w1 = TILE1 == 1 ? 0 : n / AT_ONCE2 * TURNS1 + turn1, w2 = TILE2 == 1 ? 0 : n % AT_ONCE2 * TURNS2 + turn2;
        const bool turns = (TILE1 > 1 || TURNS1 == 1 || own1 % 2 == turn1) && (TILE2 > 1 || TURNS2 == 1 || own2 % 2 == turn2);
        const bool may = turns && (gives >> (w1 * TILE2 + w2) & 1);
        ELEMENT items[2][CHANNELS];
        memcpy(items[0], &late_gift[w1][w2], sizeof(Word)), memcpy(items[1], &gift[w1][w2], sizeof(Word));
#pragma unroll
        for (int i = 0; i < CHANNELS; i++) {
          const unsigned place[2] = {place_of(late[w1][w2][i / SIZE], i) - own_items, place_of(found.where[w1][w2][i / SIZE], i)};
          there[n][i][0] = CARRIED && may && place[0] < CARRIED * plane_items;
          there[n][i][1] = may && given && place[1] < own_items;
#pragma unroll
          for (int d = 0; d < 2; d++) {
            at[n][i][d] = place[d] * BLOCK_LANES + (lane + i * channel_pitch);
            if (there[n][i][d]) value[n][i][d] = sums[at[n][i][d]];
          }
          value[n][i][0] += load<COMPUTE>(items[0][i]);
          if (there[n][i][0] && at[n][i][0] == at[n][i][1]) value[n][i][1] = value[n][i][0];
          value[n][i][1] += load<COMPUTE>(items[1][i]);
        }
      }
#pragma unroll
      for (int n = 0; n < AT_ONCE; n++)
#pragma unroll
        for (int i = 0; i < CHANNELS; i++)
#pragma unroll
          for (int d = 0; d < 2; d++)
            if (there[n][i][d]) sums[at[n][i][d]] = value[n][i][d];
      __syncthreads();
    }
#pragma unroll
    for (int n = 0; n < TILE1 * TILE2 * GROUPS; n++) (&late[0][0][0])[n] = given ? (&found.where[0][0][0])[n] : Group::everywhere(Group::NONE);
#pragma unroll
    for (int n = 0; n < TILE1 * TILE2; n++) (&late_gift[0][0])[n] = (&gift[0][0])[n];

    plain ? write(i0, step >= own, std::true_type()) : write(i0, step >= own, std::false_type());
  }
}

extern "C" __global__ void __launch_bounds__(THREADS, BLOCKS) pooling_known_maximum_channels_channels(const ScatterArguments a) {
  find_place_before_waiting();
  a.propagate ? march_on<true>(a) : march_on<false>(a);
}
