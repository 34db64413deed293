// Convolution as a matrix product on tensor cores: half, bfloat16, float where TF32 is allowed; sums in float.
//
// Floor: flops, 2 * filters * positions * terms at 989 T/s in half (495 in TF32) on an H200, or bytes where a filter has
// few terms (1 x 1). A block of two warpgroups computes 128 positions x FILTERS; rows of 128 bytes (64 terms of half) of
// both operands pass through a ring of stages in shared memory, filled by asynchronous copies some rounds ahead. Shared
// memory sets the pace: per round of 128 x 256 the products read 80 KiB and the copies write 48 KiB in 1024 clocks.
#include "convolution/problem.cuh"
#include "primitives/mma.cuh"

constexpr int THREADS = 256, POSITIONS = 128, ROW_BYTES = 128;
constexpr int DEPTH = ROW_BYTES / sizeof(ELEMENT), PACK = 16 / sizeof(ELEMENT), PACKS = 8;  // terms of a round, of a pack
constexpr int ROWS_AT_ONCE = THREADS / PACKS;  // rows that the threads copy at once

struct Arguments {
  const ELEMENT* x;
  const ELEMENT* w;
  ELEMENT* y;
  const ELEMENT* prior;
  const ELEMENT* bias;
  unsigned char* workspace;
  long long x_offset, w_offset, y_offset;  // bytes from the pointer to the matrix
  Convolution convolution;
  Epilogue epilogue;
  FastDivmod position_tiles, filter_tiles;  // blocks run over filter tiles first, then position tiles, then groups
  int precomputed;                       // the terms lie in the workspace
  int rounded;                           // to nearest TF32, which takes a detour through registers
};

__device__ __forceinline__ const ELEMENT* at_offset(const ELEMENT* pointer, long long bytes) {
  return reinterpret_cast<const ELEMENT*>(reinterpret_cast<const unsigned char*>(pointer) + bytes);
}

// Where a tile of x comes from. Packs: eight threads copy the row of a position. Values: neighbouring threads take
// neighbouring positions, because those lie side by side, and the values pass through registers.
struct Place {
  int offset, at[3];
};
__device__ __forceinline__ Place find_place(const Convolution& c, unsigned index) {
  const Position position = find_position(c, index);
  return {static_cast<int>(position.offset), {position.at[0], position.at[1], position.at[2]}};
}
__device__ __forceinline__ bool inside(const Convolution& c, const Place& place, const Term& term) {
  return static_cast<unsigned>(place.at[0] + term.at[0]) < static_cast<unsigned>(c.input[0]) &&
         static_cast<unsigned>(place.at[1] + term.at[1]) < static_cast<unsigned>(c.input[1]) &&
         static_cast<unsigned>(place.at[2] + term.at[2]) < static_cast<unsigned>(c.input[2]);
}

// How a pack may be read.
enum Reading { ELEMENTS, WHOLE, ASYNCHRONOUS };

// A pack of which `count` elements exist; zeros are the rest.
__device__ __forceinline__ void copy_pack(unsigned char* to, const ELEMENT* base, long long offset, int count, Reading reading) {
  if (reading == ASYNCHRONOUS) return cp_async<16>(to, count > 0 ? base + offset : base, count > 0);
  Pack<ELEMENT, PACK> pack{};
  if (reading == WHOLE) {
    if (count > 0) pack = *reinterpret_cast<const Pack<ELEMENT, PACK>*>(base + offset);
  } else {
#pragma unroll
    for (int i = 0; i < PACK; i++)
      if (i < count) pack.item[i] = base[offset + i];
  }
#pragma unroll
  for (int i = 0; i < PACK; i++) pack.item[i] = round_to_tf32(pack.item[i]);
  *reinterpret_cast<Pack<ELEMENT, PACK>*>(to) = pack;
}

// WITH_PACKS: the terms of a pack lie side by side in x. STAGES: of the ring. OVERLAPPED: the product of a round may run into the next.
template <int FILTERS, int STAGES, bool OVERLAPPED, bool WITH_PACKS> struct Multiplication {
  static constexpr int STAGE_BYTES = (POSITIONS + FILTERS) * ROW_BYTES;
  static constexpr int AHEAD = STAGES - (OVERLAPPED ? 2 : 1);  // rounds that copies run ahead
  static constexpr int X_ROWS = POSITIONS / ROWS_AT_ONCE, W_ROWS = FILTERS / ROWS_AT_ONCE;
  static constexpr int VALUES = WITH_PACKS ? 1 : DEPTH * POSITIONS / THREADS;

  const Arguments& a;
  const Convolution& c;
  unsigned char* stages;
  Term* terms;  // [2][DEPTH], of a round, without packs
  const ELEMENT *x, *w;
  int first_filter, first_position;
  Reading x_reading, w_reading;
  unsigned filters_exist;  // bit i: this thread's row i of a tile
  Place place[WITH_PACKS ? X_ROWS : 1];
  Term term;  // of this thread's pack in the next round
  unsigned lane, positions_exist;
  ELEMENT values[VALUES];
  float sums[FILTERS / 2];

  __device__ __forceinline__ unsigned char* x_stage(int round) const { return stages + round % STAGES * STAGE_BYTES; }
  __device__ __forceinline__ unsigned char* w_stage(int round) const { return x_stage(round) + POSITIONS * ROW_BYTES; }

  __device__ __forceinline__ Term term_at(unsigned index) const {
    return a.precomputed && index < c.terms ? reinterpret_cast<const Term*>(a.workspace)[index] : find_term(c, index);
  }

  // Rounds are copied in order.
  __device__ __forceinline__ void copy_filters(int round) {
    const int pack = threadIdx.x % PACKS, first_row = threadIdx.x / PACKS;
    unsigned char* to = swizzled(w_stage(round), first_row, pack);
    const int term = round * DEPTH + pack * PACK, left = c.terms - term;
#pragma unroll
    for (int i = 0; i < W_ROWS; i++)
      copy_pack(to + i * (ROWS_AT_ONCE * ROW_BYTES), w, static_cast<long long>(first_filter + first_row + i * ROWS_AT_ONCE) * c.row + term,
                filters_exist >> i & 1 ? left : 0, w_reading);
  }

  __device__ __forceinline__ void find_pack(unsigned index) {
    term = term_at(index);
    c.lanes.divide(index, lane);
    positions_exist = 0;
#pragma unroll
    for (int i = 0; i < X_ROWS; i++) positions_exist |= static_cast<unsigned>(inside(c, place[i], term)) << i;
  }
  __device__ __forceinline__ void copy_image(int round) {
    const int pack = threadIdx.x % PACKS;
    unsigned char* to = swizzled(x_stage(round), threadIdx.x / PACKS, pack);
#pragma unroll
    for (int i = 0; i < X_ROWS; i++)
      copy_pack(to + i * (ROWS_AT_ONCE * ROW_BYTES), x, place[i].offset + term.offset, positions_exist >> i & 1 ? PACK : 0, x_reading);
    // Most often the next round is at the same tap, some channels further.
    lane += DEPTH;
    if (lane < c.lanes.divisor) term.offset += DEPTH * c.x_lane;
    else find_pack((round + 1) * DEPTH + pack * PACK);
  }

  // Values of one position: a thread has every second pack of its row.
  __device__ __forceinline__ void prepare_terms(int round) {
    if (threadIdx.x < DEPTH) terms[round % 2 * DEPTH + threadIdx.x] = term_at(round * DEPTH + threadIdx.x);
  }
  __device__ __forceinline__ void read_image(int round) {
    const Term* current = terms + round % 2 * DEPTH;
#pragma unroll
    for (int i = 0; i < VALUES; i++) {
      const Term term = current[(i / PACK * 2 + threadIdx.x / POSITIONS) * PACK + i % PACK];
      values[i] = inside(c, place[0], term) ? round_to_tf32(x[place[0].offset + term.offset]) : store<ELEMENT>(0.0f);
    }
  }
  __device__ __forceinline__ void write_image(int round) {
#pragma unroll
    for (int i = 0; i < VALUES / PACK; i++) {
      Pack<ELEMENT, PACK> pack;
#pragma unroll
      for (int j = 0; j < PACK; j++) pack.item[j] = values[i * PACK + j];
      *reinterpret_cast<Pack<ELEMENT, PACK>*>(swizzled(x_stage(round), threadIdx.x % POSITIONS, i * 2 + threadIdx.x / POSITIONS)) = pack;
    }
  }

  __device__ __forceinline__ void run() {
    const int rounds = (c.terms + DEPTH - 1) / DEPTH, warpgroup = threadIdx.x / 128;
#pragma unroll
    for (int i = 0; i < FILTERS / 2; i++) sums[i] = 0;
    filters_exist = 0;
#pragma unroll
    for (int i = 0; i < W_ROWS; i++)
      filters_exist |= static_cast<unsigned>(first_filter + threadIdx.x / PACKS + i * ROWS_AT_ONCE < c.filters) << i;
    if constexpr (WITH_PACKS) {
#pragma unroll
      for (int i = 0; i < X_ROWS; i++) place[i] = find_place(c, first_position + threadIdx.x / PACKS + i * ROWS_AT_ONCE);
      find_pack(threadIdx.x % PACKS * PACK);
    } else {
      place[0] = find_place(c, first_position + threadIdx.x % POSITIONS);
      prepare_terms(0);
      __syncthreads();
    }
#pragma unroll
    for (int round = 0; round < AHEAD; round++) {
      if constexpr (WITH_PACKS) {
        if (round < rounds) copy_image(round);
      } else {
        if (round < rounds) read_image(round), write_image(round);
        prepare_terms(round + 1);
        __syncthreads();
      }
      if (round < rounds) copy_filters(round);
      cp_async_commit();
    }
    if constexpr (!WITH_PACKS)
      if (AHEAD < rounds) read_image(AHEAD);
    for (int round = 0; round < rounds; round++) {
      if constexpr (!OVERLAPPED) wgmma_wait<0>();
      cp_async_wait<AHEAD - 1>();
      fence_proxy_async();
      __syncthreads();  // the round's tiles are there, and those of the oldest product are free
      wgmma_mma_async<ELEMENT, FILTERS>(sums, x_stage(round) + warpgroup * 64 * ROW_BYTES, w_stage(round));
      wgmma_commit();
      const int next = round + AHEAD;
      if (next < rounds) {
        if constexpr (WITH_PACKS) copy_image(next);
        else write_image(next);
        copy_filters(next);
      }
      cp_async_commit();
      if constexpr (!WITH_PACKS) {
        prepare_terms(next + 1);
        __syncthreads();
        if (next + 1 < rounds) read_image(next + 1);
      }
      if constexpr (OVERLAPPED) wgmma_wait<1>();
    }
    wgmma_wait<0>();
    wgmma_fence_accumulators(sums);
    cp_async_wait<0>();
    __syncthreads();
  }
};

// The sums pass through shared memory, so that a thread writes neighbours of y: filters where channels lie innermost,
// else positions.
template <int FILTERS>
__device__ __forceinline__ void finish_tile(const Arguments& a, float* tile, const float (&sums)[FILTERS / 2], unsigned group, int first_filter, int first_position) {
  const Convolution& c = a.convolution;
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;  // a warp has 16 positions
  const bool across_filters = c.y_channel == 1;
  constexpr int FILTER_PITCH = FILTERS + 8, POSITION_PITCH = POSITIONS + 4;
#pragma unroll
  for (int i = 0; i < FILTERS / 2; i++) {
    const int position = 16 * warp + lane / 4 + i / 2 % 2 * 8, filter = i / 4 * 8 + lane % 4 * 2 + i % 2;
    tile[across_filters ? position * FILTER_PITCH + filter : filter * POSITION_PITCH + position] = sums[i];
  }
  __syncthreads();
  ELEMENT* y = const_cast<ELEMENT*>(at_offset(a.y, a.y_offset));
  constexpr int WIDTH = PACK;
  for (int index = threadIdx.x; index < POSITIONS * FILTERS / WIDTH; index += THREADS) {
    float values[WIDTH];
    if (across_filters) {
      const int position = first_position + index / (FILTERS / WIDTH), filter = first_filter + index % (FILTERS / WIDTH) * WIDTH;
      if (position >= c.positions || filter >= c.filters) continue;
#pragma unroll
      for (int i = 0; i < WIDTH; i++) values[i] = tile[(position - first_position) * FILTER_PITCH + filter - first_filter + i];
      const unsigned channel = group * c.y_filters + filter;
      const int count = c.filters - filter < WIDTH ? c.filters - filter : WIDTH;
      finish<WIDTH, float>(a.epilogue, a.bias, a.prior, y, group * c.y_group + y_offset(c, position) + channel, 1, count, channel, 1, values);
    } else {
      const int position = first_position + index % (POSITIONS / WIDTH) * WIDTH, filter = first_filter + index / (POSITIONS / WIDTH);
      if (position >= c.positions || filter >= c.filters) continue;
#pragma unroll
      for (int i = 0; i < WIDTH; i++) values[i] = tile[(filter - first_filter) * POSITION_PITCH + position - first_position + i];
      const unsigned channel = group * c.y_filters + filter;
      const long long start = group * c.y_group + y_channel_offset(c, channel);
      const int count = c.positions - position < WIDTH ? c.positions - position : WIDTH;
      const long long first = y_offset(c, position), last = count == WIDTH ? y_offset(c, position + WIDTH - 1) : -1;
      if (last == first + WIDTH - 1 && c.y_position[3] == 1) {
        finish<WIDTH, float>(a.epilogue, a.bias, a.prior, y, start + first, 1, WIDTH, channel, 0, values);
      } else {
#pragma unroll
        for (int i = 0; i < WIDTH; i++) {
          const float one[1] = {values[i]};
          if (i < count) finish<1, float>(a.epilogue, a.bias, a.prior, y, start + y_offset(c, position + i), 1, 1, channel, 0, one);
        }
      }
    }
  }
}

template <int FILTERS, int STAGES, bool OVERLAPPED, bool WITH_PACKS> __device__ __forceinline__ void multiply(const Arguments& a) {
  __shared__ Term terms[2 * DEPTH];
  const Convolution& c = a.convolution;
  unsigned filter_tile, position_tile;
  const unsigned group = a.position_tiles.divide(a.filter_tiles.divide(blockIdx.x, filter_tile), position_tile);
  const int first_filter = filter_tile * FILTERS, first_position = position_tile * POSITIONS;
  const ELEMENT* x = at_offset(a.x, a.x_offset) + group * c.x_group;
  const ELEMENT* w = at_offset(a.w, a.w_offset) + static_cast<long long>(group) * c.filters * c.row;
  unsigned char* stages = shared_memory + (-reinterpret_cast<uintptr_t>(shared_memory) & 1023);
  Multiplication<FILTERS, STAGES, OVERLAPPED, WITH_PACKS> m{a, c, stages, terms, x, w, first_filter, first_position};
  const Reading whole = a.rounded ? WHOLE : ASYNCHRONOUS;
  m.x_reading = reinterpret_cast<uintptr_t>(x) % 16 == 0 ? whole : ELEMENTS;
  m.w_reading = c.w_packs && reinterpret_cast<uintptr_t>(w) % 16 == 0 ? whole : ELEMENTS;
  m.run();
  finish_tile<FILTERS>(a, reinterpret_cast<float*>(stages), m.sums, group, first_filter, first_position);
}

extern "C" __global__ void __launch_bounds__(256, 2) tensor_core_packs_64(const Arguments a) { griddepcontrol_wait(); multiply<64, 4, false, true>(a); }
extern "C" __global__ void __launch_bounds__(256, 2) tensor_core_packs_128(const Arguments a) { griddepcontrol_wait(); multiply<128, 3, false, true>(a); }
extern "C" __global__ void __launch_bounds__(256, 1) tensor_core_packs_256(const Arguments a) { griddepcontrol_wait(); multiply<256, 4, true, true>(a); }
extern "C" __global__ void __launch_bounds__(256, 1) tensor_core_values_64(const Arguments a) { griddepcontrol_wait(); multiply<64, 4, false, false>(a); }
extern "C" __global__ void __launch_bounds__(256, 1) tensor_core_values_128(const Arguments a) { griddepcontrol_wait(); multiply<128, 4, true, false>(a); }
