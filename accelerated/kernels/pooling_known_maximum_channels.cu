// Pooling backward (4.1.18) of maxima of volumes with a known window, whose channels lie side by side: see pooling_known.cuh; what
// would leave threads without work has pooling_known_maximum.cu (accelerated/pooling_maximum_channels.py).
//
// Floor: bytes; x and dy are read, dx written (y is not needed: it is the maximum of x). A block takes some windows of axes 1
// and 2, of BLOCK_LANES words of channels, and marches along axis 0; a thread takes TILE1 x TILE2 windows of one word. Planes of x come
// to shared memory, STAGES at a time. Of each window the thread finds the first maximum, once, with its place: the position in the
// block's part of a plane. What windows of a plane share is found once; the maxima of a plane that two windows have stay in registers. What the
// window gives is added to that place, in shared memory, where the block has sums for the planes that a window covers: windows that may
// meet do so one after the other, behind barriers, so that the order of additions is fixed. Planes that no later window reaches are written in
// packs. Windows at the rim of a block are looked at by all blocks that have something of them to write.
//
// Measured on an H200, 8x64x16x56x56: half 33.5 us (every input comparing its place with all windows over it: 48.6), float 61.5 (76.3); 80 and
// 87 % of a copy of as many bytes. A block fills a multiprocessor: 16 warps, which issue in 46 % (half) and 39 % (float) of the cycles, shared memory is busy 47
// and 35 %, the second cache 70 and 81 %. No one of these is full: with half 10 % fewer instructions (15.6 to 14.1 million of a warp) took as long. Warps wait
// for shared memory, for arithmetic, and for barriers, in about equal parts. Longer, or as long: 2 blocks of 64 bytes of channels (36.2), x in
// registers (38.0), 32 warps of fewer windows each (40.4), 8 warps of more (34.3), sums of two planes and a third plane of x on its way (34.0), the
// cache asked for planes ahead (34.8). Images took 69.8 (half) and 130 (float), as long as or longer than the kernels that they have.
#include "async_copies.cuh"
#include "pooling_maximum.cuh"

using Word = unsigned;
constexpr int TILE2 = CHANNEL_TILE, CHANNELS = sizeof(Word) / sizeof(ELEMENT);  // of a word
using Group = std::conditional<PAIRS, Two, One>::type;
constexpr int SIZE = Group::SIZE, GROUPS = CHANNELS / SIZE;
constexpr int LINES = (TILE1 - 1) * S1 + K1, COLUMNS = (TILE2 - 1) * S2 + K2;  // that the windows of a thread cover
static_assert(STAGES > 1 && CARRIED <= 1, "a plane is on its way while another is looked at; of one the maxima are kept");
// Windows that may meet: every second one does not.
constexpr int TURNS1 = K1 > S1 ? 2 : 1, TURNS2 = K2 > S2 ? 2 : 1;
constexpr int AT_ONCE2 = TILE2 / TURNS2, AT_ONCE = TILE1 / TURNS1 * AT_ONCE2;  // of a thread
static_assert(K1 <= 2 * S1 && K2 <= 2 * S2 && TILE1 % TURNS1 == 0 && TILE2 % TURNS2 == 0, "every second window");
constexpr int PACK = 16 / sizeof(ELEMENT), PACK_LANES = PACK / CHANNELS, PACKS = BLOCK_LANES / PACK_LANES;  // of channels, in 16 bytes
static_assert(CHANNELS > 0 && BLOCK_LANES % PACK_LANES == 0, "whole packs");
constexpr int BEYOND = 1 << 14;  // the place of a line or column that another block writes: more than there are, in 16 bits when added twice
static_assert(BEYOND * BLOCK_LANES * CHANNELS * sizeof(COMPUTE) >= 228 * 1024, "the sums of a block have fewer places");

struct Scatter : Place {
  Divisor groups, parts2, parts1;            // blocks along channels, axis 2, axis 1
  Divisor threads2, columns, stage_columns;  // of a block along axis 2: threads, columns of x that it writes, that it looks at
  unsigned words, stage_packs;               // of channels in all; of a plane that a block looks at
  int tile[2], before[2], windows[2];        // of a block along axes 1 and 2: windows that begin where it writes, those before, all
  int steps;                                 // along axis 0
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
  unsigned part1, part2, group, q2, rest;
  rest = block.groups.divide(blockIdx.x, group);
  rest = block.parts2.divide(rest, part2);
  const unsigned plane = block.parts1.divide(rest, part1), lane = threadIdx.x % BLOCK_LANES;
  const unsigned q1 = block.threads2.divide(threadIdx.x / BLOCK_LANES, q2), word = group * BLOCK_LANES + lane;
  int x_offset = 0, y_offset = 0;
  block.go_to(plane, x_offset, y_offset);
  const int own1 = int(q1) * TILE1, own2 = int(q2) * TILE2, origin1 = int(part1) * block.tile[0] * S1, origin2 = int(part2) * block.tile[1] * S2;
  const int first1 = int(part1) * block.tile[0] - block.before[0], first2 = int(part2) * block.tile[1] - block.before[1];
  const int window1 = first1 + own1, window2 = first2 + own2;
  const int columns = block.columns.divisor;
  const unsigned most_channels = block.words * CHANNELS;

  // Sums: of each channel of words, of the planes that a window covers, in a ring. Behind them planes of x, what a block looks at: what lies
  // outside is replaced by its neighbour inside, which changes no maximum; the place is that of the neighbour.
  COMPUTE* const sums = reinterpret_cast<COMPUTE*>(shared_memory);
  const unsigned plane_items = block.tile[0] * S1 * columns, ring_items = K0 * plane_items, channel_pitch = ring_items * BLOCK_LANES;
  using Sums = Pack<COMPUTE, PACK_LANES>;
  for (unsigned n = threadIdx.x; n < CHANNELS * channel_pitch / PACK_LANES; n += blockDim.x) reinterpret_cast<Sums*>(sums)[n] = {};
  unsigned begin = 0;  // of the ring: the place of the first plane
  auto place_of_plane = [&](int k) {
    const unsigned place = begin + k * plane_items;
    return CARRIED && place >= ring_items ? place - ring_items : place;
  };
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
  const unsigned copies = (block.stage_packs - threadIdx.x + blockDim.x - 1) / blockDim.x;
  int coming = 0;
  unsigned coming_stage = 0, stage = 0;
  auto bring = [&] {
    if (coming < block.input[0]) {
      unsigned char* to = stages + coming_stage * stage_bytes + threadIdx.x * 16;
      const ELEMENT* x = a.x + coming * block.x_stride[0];
      keep(x);
#pragma unroll
      for (int n = 0; n < COPIES; n++)
        if (n < copies) copy_async<16>(to + n * blockDim.x * 16, x + from[n], true);
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
    const auto apart = Group::everywhere(place_of_plane(k));
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
  if (CARRIED && P0 == 0) {
    wait_for_copies<STAGES - 1>();
    __syncthreads();
    look(carried);
    __syncthreads();
    bring();
  } else {
    carried.template nothing<PROPAGATES>();
  }

  // What a thread writes: where its packs lie in a plane of dx; -1: there is none.
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
  // Writes planes that no later window reaches, and clears their sums.
  auto write = [&](int i0, auto plain) {
    constexpr bool PLAIN = decltype(plain)::value;
    unsigned at[S0];
    ELEMENT* dx[S0];
#pragma unroll
    for (int k = 0; k < S0; k++) {
      at[k] = (place_of_plane(k) + position) * BLOCK_LANES + write_pack * PACK_LANES;
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
        if (unsigned(i0 + k) < unsigned(block.input[0])) write_packs<PLAIN, 1>(dx[k] + unsigned(to[n]), 0, 1, values[k], a.alpha, a.beta);
    }
  };
  const bool plain = a.alpha == COMPUTE(1) && a.beta == COMPUTE(0);

#pragma unroll 1
  for (int step = 0; step < block.steps; step++) {
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
    __syncthreads();  // that plane is no longer looked at
    bring();
    if (given)
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
            there[n][i] = place < ring_items && (gives >> (w1 * TILE2 + w2) & 1);
            at[n][i] = place * BLOCK_LANES + (lane + i * channel_pitch);
            if (there[n][i]) value[n][i] = sums[at[n][i]] + load<COMPUTE>(items[i]);
          }
        }
#pragma unroll
        for (int n = 0; n < AT_ONCE; n++)
#pragma unroll
          for (int i = 0; i < CHANNELS; i++)
            if (there[n][i]) sums[at[n][i]] = value[n][i];
        __syncthreads();
      }

    plain ? write(i0, std::true_type()) : write(i0, std::false_type());
    if (CARRIED) begin = place_of_plane(S0);
  }
}

extern "C" __global__ void __launch_bounds__(THREADS, BLOCKS) pooling_known_maximum_channels_channels(const ScatterArguments a) {
  find_place_before_waiting();
  a.propagate ? march_on<true>(a) : march_on<false>(a);
}
