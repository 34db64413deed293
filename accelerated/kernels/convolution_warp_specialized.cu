// Convolution as a matrix product on Hopper's tensor cores, channels innermost: half, bfloat16, float where TF32 is allowed.
//
// Floor: flops, 2 * filters * positions * terms at 989 T/s in half (495 in TF32) on an H200, or bytes where a filter has
// few terms (1 x 1). Blocks stay for the whole launch. One warp brings tiles: the copy engine gathers the pixels of
// POSITIONS output positions under one tap of the filter (im2col mode) and FILTERS rows of the filter, 128 bytes of
// channels each, into a ring in shared memory. Two warpgroups multiply them: both halves of one tile, or, ALTERNATING, whole
// tiles in turn, so that one writes results while the other multiplies.
// Shared memory sets the pace next to the tensor cores: a round of 128 x 256 reads 80 KiB and writes 48 KiB in 1024 clocks.
#include "convolution.cuh"
#include "tensor_maps.cuh"

constexpr int ROW_BYTES = 128, DEPTH = ROW_BYTES / sizeof(ELEMENT), PACK = 16 / sizeof(ELEMENT);
constexpr int WARPGROUP = 128, CONSUMERS = 2;
constexpr int SWATH = 32, PITCH = SWATH + 8;  // filters that a warp turns in shared memory at once; floats of a row there
constexpr int BOX_BYTES = 16 * ROW_BYTES, SCRATCH_BYTES = 16 * PITCH * sizeof(float);  // of a warp
constexpr int MOST_STAGES = 12;

struct Arguments {
  const ELEMENT* x;  // read through the maps
  const ELEMENT* w;
  ELEMENT* y;
  const ELEMENT* prior;
  const ELEMENT* bias;
  const void* workspace;
  long long reserved[2];
  TensorMap image, filter, result;
  Convolution convolution;
  Epilogue epilogue;
  Divisor position_tiles, filter_tiles;  // tiles run over filters first, then positions, then groups
  int tiles, group_channels, channel_rounds;
  int boxes;  // results go through their map
};

struct Tile {
  unsigned group, position, filter;  // the first of the tile
};

template <int FILTERS, int ROWS, int STAGES, bool ALTERNATING, int BOXES> struct Multiplication {
  static constexpr int POSITIONS = ALTERNATING ? ROWS : CONSUMERS * ROWS, BLOCKS = ROWS / 64;
  static constexpr int STAGE_BYTES = (POSITIONS + FILTERS) * ROW_BYTES;
  static constexpr int ARRIVALS = ALTERNATING ? 4 : 4 * CONSUMERS;  // warps that read a stage
  static_assert(STAGES <= MOST_STAGES);

  const Arguments& a;
  unsigned char* stages;
  Barrier *full, *empty, *turn;  // turn: of each warpgroup, where they alternate
  unsigned stage = 0, parity = 0;  // of the next round
  unsigned turns = 0;              // of the boxes

  __device__ __forceinline__ Tile find_tile(unsigned index) const {
    Tile tile;
    const unsigned rest = a.filter_tiles.divide(index, tile.filter);
    tile.group = a.position_tiles.divide(rest, tile.position);
    tile.filter *= FILTERS, tile.position *= POSITIONS;
    return tile;
  }
  __device__ __forceinline__ int rounds() const {
    return a.convolution.filter[1].divisor * a.convolution.filter[2].divisor * a.channel_rounds;
  }
  __device__ __forceinline__ void advance(unsigned count) {
    stage += count;
    parity ^= stage / STAGES & 1;
    stage %= STAGES;
  }

  // One thread brings all tiles.
  __device__ __forceinline__ void produce() {
    const Convolution& c = a.convolution;
    const int height = c.filter[1].divisor, width = c.filter[2].divisor;
    for (unsigned index = blockIdx.x; index < a.tiles; index += gridDim.x) {
      const Tile tile = find_tile(index);
      unsigned at[4];
      split_position(c, tile.position, at);
      const int row = at[2] * c.step[1] - c.padding[1], column = at[3] * c.step[2] - c.padding[2];
      const int channel = tile.group * a.group_channels, filter = tile.group * c.filters + tile.filter;
      int tap = c.flipped ? height * width - 1 : 0;
      for (int down = 0; down < height; down++)
        for (int right = 0; right < width; right++, tap += c.flipped ? -1 : 1)
          for (int round = 0; round < a.channel_rounds; round++) {
            unsigned char* to = stages + stage * STAGE_BYTES;
            barrier_wait(&empty[stage], parity ^ 1);
            barrier_arrive_with(&full[stage], STAGE_BYTES);
            load_columns(to, a.image, &full[stage], channel + round * DEPTH, column, row, at[0], right * c.dilation[2], down * c.dilation[1]);
            load_box(to + POSITIONS * ROW_BYTES, a.filter, &full[stage], round * DEPTH, tap, filter);
            advance(1);
          }
    }
  }

  __device__ __forceinline__ void release(unsigned used) const {
    if (threadIdx.x % 32 == 0) barrier_arrive(&empty[used]);
  }

  __device__ __forceinline__ void consume(unsigned char* scratch) {
    const int group = threadIdx.x / WARPGROUP - 1, count = rounds();
    const int first_row = ALTERNATING ? 0 : group * ROWS;
    unsigned index = blockIdx.x;
    if (ALTERNATING && group == 1) index += gridDim.x, advance(count);
    unsigned turn_parity = group == 0;  // the first warpgroup begins
    for (; index < a.tiles; index += ALTERNATING ? CONSUMERS * gridDim.x : gridDim.x) {
      float sums[BLOCKS][FILTERS / 2];
#pragma unroll
      for (int b = 0; b < BLOCKS; b++)
#pragma unroll
        for (int i = 0; i < FILTERS / 2; i++) sums[b][i] = 0;
      unsigned previous = 0;
      // A parity tells phases apart only next to each other: nobody waits for a stage while the other's rounds are due.
      if (ALTERNATING) barrier_wait(&turn[group], turn_parity), turn_parity ^= 1;
      for (int round = 0; round < count; round++) {
        const unsigned char* left = stages + stage * STAGE_BYTES;
        barrier_wait(&full[stage], parity);
#pragma unroll
        for (int b = 0; b < BLOCKS; b++)
          begin_product<ELEMENT, FILTERS>(sums[b], left + (first_row + b * 64) * ROW_BYTES, left + POSITIONS * ROW_BYTES);
        commit_products();
        wait_for_products<1>();
        if (round > 0) release(previous);
        previous = stage;
        advance(1);
      }
      if (ALTERNATING && threadIdx.x % 32 == 0) barrier_arrive(&turn[1 - group]);
      wait_for_products<0>();
      release(previous);
#pragma unroll
      for (int b = 0; b < BLOCKS; b++) sums_are_ready(sums[b]);
      const Tile tile = find_tile(index);
#pragma unroll
      for (int b = 0; b < BLOCKS; b++) {
        const int first = tile.position + first_row + b * 64 + threadIdx.x % WARPGROUP / 32 * 16;
        if (a.boxes) write_boxes(scratch, sums[b], tile, first);
        else write(reinterpret_cast<float*>(scratch), sums[b], tile, first);
      }
      if (ALTERNATING) advance(count);
    }
    if (threadIdx.x % 32 == 0) wait_for_stores<0>();
  }

  // 16 positions x FILTERS sums of a warp become rows of 128 bytes of y, which the copy engine writes.
  __device__ __forceinline__ void write_boxes(unsigned char* scratch, const float (&sums)[FILTERS / 2], const Tile& tile, int first) {
    constexpr int STEPS = DEPTH / 8;  // of eight filters, in a row
    const Epilogue& e = a.epilogue;
    const int lane = threadIdx.x % 32;
    const float alpha = e.alpha;
#pragma unroll
    for (int box = 0; box < FILTERS / DEPTH; box++, turns++) {
      unsigned char* rows = scratch + turns % BOXES * BOX_BYTES;
      if (lane == 0) wait_for_stores<BOXES - 1>();
      __syncwarp();
#pragma unroll
      for (int n = 0; n < STEPS; n++) {
        const int column = n * 8 + lane % 4 * 2;
        float bias[2] = {0, 0};
        if (e.biased) {
#pragma unroll
          for (int j = 0; j < 2; j++) {
            const int filter = tile.filter + box * DEPTH + column + j;
            if (filter < a.convolution.filters) bias[j] = load<float>(a.bias[tile.group * a.convolution.y_filters + filter]);
          }
        }
#pragma unroll
        for (int part = 0; part < 2; part++) {
          Pack<ELEMENT, 2> pair;
#pragma unroll
          for (int j = 0; j < 2; j++) {
            float value = alpha * sums[(box * STEPS + n) * 4 + part * 2 + j] + bias[j];
            if (e.rectified) value = value > 0 ? value : 0;
            pair.item[j] = store<ELEMENT>(value);
          }
          unsigned char* to = const_cast<unsigned char*>(swizzled(rows, lane / 4 + part * 8, column / PACK)) + column % PACK * sizeof(ELEMENT);
          *reinterpret_cast<Pack<ELEMENT, 2>*>(to) = pair;
        }
      }
      publish_stores();
      __syncwarp();
      if (lane == 0) {
        store_box(rows, a.result, tile.filter + box * DEPTH, first, tile.group);
        commit_stores();
      }
    }
  }

  // 16 positions x FILTERS sums of a warp pass through its scratch memory, so that a lane writes neighbours of y.
  __device__ __forceinline__ void write(float* scratch, const float (&sums)[FILTERS / 2], const Tile& tile, int first) const {
    const Convolution& c = a.convolution;
    const int lane = threadIdx.x % 32;
    if (first >= c.positions) return;
    const bool across_filters = c.y_channel == 1;
    constexpr int PER_ROW = SWATH / PACK, ITEMS = 16 * PER_ROW / 32;  // packs of a position in a swath; packs of a lane
    long long offset[ITEMS];
#pragma unroll
    for (int i = 0; i < ITEMS; i++) {
      const int item = lane + 32 * i, position = first + (across_filters ? item / PER_ROW : item % (16 / PACK) * PACK);
      offset[i] = position < c.positions ? tile.group * c.y_group + y_offset(c, position) : -1;
    }
    const int left = c.positions - first;
    // Positions that lie side by side in y.
    const bool run = !across_filters && c.y_position[3] == 1 && left >= 16 && y_offset(c, first + 15) == y_offset(c, first) + 15;
#pragma unroll
    for (int swath = 0; swath < FILTERS / SWATH; swath++) {
      const int first_filter = tile.filter + swath * SWATH;
      if (first_filter >= c.filters) break;
#pragma unroll
      for (int n = 0; n < SWATH / 8; n++)
#pragma unroll
        for (int part = 0; part < 2; part++) {
          const float* pair = sums + (swath * (SWATH / 8) + n) * 4 + part * 2;
          *reinterpret_cast<float2*>(scratch + (lane / 4 + part * 8) * PITCH + n * 8 + lane % 4 * 2) = make_float2(pair[0], pair[1]);
        }
      __syncwarp();
#pragma unroll
      for (int i = 0; i < ITEMS; i++) {
        const int item = lane + 32 * i;
        float values[PACK];
        if (across_filters) {
          const float* row = scratch + item / PER_ROW * PITCH + item % PER_ROW * PACK;
          const int filter = first_filter + item % PER_ROW * PACK, count = min(c.filters - filter, PACK);
#pragma unroll
          for (int j = 0; j < PACK; j += 4) *reinterpret_cast<float4*>(values + j) = *reinterpret_cast<const float4*>(row + j);
          const unsigned channel = tile.group * c.y_filters + filter;
          if (offset[i] >= 0 && count > 0) finish<PACK, float>(a.epilogue, a.bias, a.prior, a.y, offset[i] + channel, 1, count, channel, 1, values);
        } else {
          const int position = item % (16 / PACK) * PACK, column = item / (16 / PACK), filter = first_filter + column;
#pragma unroll
          for (int j = 0; j < PACK; j++) values[j] = scratch[(position + j) * PITCH + column];
          if (filter < c.filters) {
            const unsigned channel = tile.group * c.y_filters + filter;
            const long long start = y_channel_offset(c, channel);
            if (run) {
              finish<PACK, float>(a.epilogue, a.bias, a.prior, a.y, start + offset[i], 1, PACK, channel, 0, values);
            } else {
#pragma unroll
              for (int j = 0; j < PACK; j++) {
                const float one[1] = {values[j]};
                if (position + j < left)
                  finish<1, float>(a.epilogue, a.bias, a.prior, a.y, tile.group * c.y_group + start + y_offset(c, first + position + j), 1, 1, channel, 0, one);
              }
            }
          }
        }
      }
      __syncwarp();
    }
  }
};

template <int FILTERS, int ROWS, int STAGES, bool ALTERNATING, int BOXES> __device__ __forceinline__ void multiply(const Arguments& a) {
#if defined(EMULATED_CUDA) || defined(WARPGROUP_INSTRUCTIONS)
  using M = Multiplication<FILTERS, ROWS, STAGES, ALTERNATING, BOXES>;
  constexpr int WARP_BYTES = ((BOXES * BOX_BYTES > SCRATCH_BYTES ? BOXES * BOX_BYTES : SCRATCH_BYTES) + 1023) / 1024 * 1024;
  __shared__ Barrier full[STAGES], empty[STAGES], turn[CONSUMERS];
  unsigned char* stages = shared_memory + (-reinterpret_cast<uintptr_t>(shared_memory) & 1023);
  unsigned char* scratch = stages + STAGES * M::STAGE_BYTES;
  if (threadIdx.x == 0) {
    for (int i = 0; i < STAGES; i++) barrier_init(&full[i], 1), barrier_init(&empty[i], M::ARRIVALS);
    for (int i = 0; i < CONSUMERS; i++) barrier_init(&turn[i], WARPGROUP / 32);
    publish_barriers();
  }
  __syncthreads();
  M m{a, stages, full, empty, turn};
  if (threadIdx.x < WARPGROUP) {
    give_registers<40>();
    if (threadIdx.x == 0) m.produce();
  } else {
    take_registers<232>();
    m.consume(scratch + (threadIdx.x / 32 - 4) * WARP_BYTES);
  }
#endif
}

// name: positions x filters of a tile, and `alternating` where each warpgroup has tiles of its own. BOXES: that a warp has
// under way at a time.
#define KERNEL(name, FILTERS, ROWS, STAGES, ALTERNATING, BOXES) \
  extern "C" __global__ void __launch_bounds__(384, 1) name(const __grid_constant__ Arguments a) { multiply<FILTERS, ROWS, STAGES, ALTERNATING, BOXES>(a); }
KERNEL(specialized_128x256, 256, 64, 4, false, 2)
KERNEL(specialized_256x128, 128, 128, 4, false, 2)
KERNEL(specialized_128x128, 128, 64, 6, false, 2)
KERNEL(specialized_128x64, 64, 64, 8, false, 2)
KERNEL(specialized_256x64, 64, 128, 4, false, 2)
KERNEL(specialized_alternating_128x128, 128, 128, 6, true, 2)
KERNEL(specialized_alternating_64x256, 256, 64, 4, true, 2)
KERNEL(specialized_alternating_64x256_5, 256, 64, 5, true, 1)
KERNEL(specialized_alternating_128x64, 64, 128, 8, true, 2)
