// Convolution as a matrix product on Hopper's tensor cores, channels innermost: half, bfloat16, float where TF32 is allowed.
//
// Floor: flops, 2 * filters * positions * terms at 989 T/s in half (495 in TF32) on an H200, or bytes where a filter has
// few terms (1 x 1). Blocks stay for the whole launch. One warp brings tiles: the copy engine gathers the pixels of
// POSITIONS output positions under one tap of the filter (im2col mode) and FILTERS rows of the filter, 128 bytes of
// channels each, into a ring in shared memory. Two or three warpgroups multiply them: parts of one tile, or, ALTERNATING, two
// whole tiles in turn, so that one writes results while the other multiplies.
// Shared memory sets the pace next to the tensor cores: a round of 128 x 256 reads 80 KiB and writes 48 KiB in 1024 clocks.
// The copy engine writes the results, too, and brings what they are blended with. Rows of the product are positions and columns filters, or, where y lies in
// PLANES, the other way round, so that 128 bytes of a row lie side by side in y.
#include "convolution.cuh"
#include "tensor_maps.cuh"

constexpr int ROW_BYTES = 128, DEPTH = ROW_BYTES / sizeof(ELEMENT), PACK = 16 / sizeof(ELEMENT);
constexpr int WARPGROUP = 128;
constexpr int SWATH = 32, PITCH = SWATH + 8;  // filters that a warp turns in shared memory at once; floats of a row there
constexpr int BOXES = 2, BOX_BYTES = 16 * ROW_BYTES;  // of a warp: results that the copy engine writes at a time
constexpr int SCRATCH_BYTES = BOXES * BOX_BYTES;      // of a warp
static_assert(SCRATCH_BYTES >= 16 * PITCH * sizeof(float) && SCRATCH_BYTES % 1024 == 0);
constexpr int MOST_STAGES = 12;

struct Arguments {
  const ELEMENT* x;  // read through the maps
  const ELEMENT* w;
  ELEMENT* y;
  const ELEMENT* prior;
  const ELEMENT* bias;
  const void* workspace;
  long long reserved[2];
  TensorMap image, filter, result, blended;
  Convolution convolution;
  Epilogue epilogue;
  Divisor position_tiles, filter_tiles;  // tiles run over filters first, then positions, then groups
  int tiles, group_channels, channel_rounds;
  int boxes;      // results go through their map
  Divisor plane;  // positions of an image
};

struct Tile {
  unsigned group, position, filter;  // the first of the tile
};

// COLUMNS of the product and ROWS of each of CONSUMERS warpgroups.
template <int COLUMNS, int ROWS, int CONSUMERS, int STAGES, bool ALTERNATING, bool PLANES> struct Multiplication {
  static constexpr int ALL_ROWS = ALTERNATING ? ROWS : CONSUMERS * ROWS, BLOCKS = ROWS / 64;
  static constexpr int POSITIONS = PLANES ? COLUMNS : ALL_ROWS, FILTERS = PLANES ? ALL_ROWS : COLUMNS;
  static constexpr int STAGE_BYTES = (POSITIONS + FILTERS) * ROW_BYTES;
  static constexpr int ARRIVALS = ALTERNATING ? 4 : 4 * CONSUMERS;  // warps that read a stage
  static constexpr int BIASES = PLANES ? 1 : COLUMNS / 32;          // that a lane remembers
  static constexpr int ROW_BOXES = COLUMNS / DEPTH, ALL_BOXES = BLOCKS * ROW_BOXES;  // of a warp's results: across, in all
  static_assert(STAGES <= MOST_STAGES && (!ALTERNATING || CONSUMERS == 2));

  const Arguments& a;
  unsigned char* stages;
  Barrier *full, *empty, *turn;  // turn: of each warpgroup, where they alternate
  Barrier* came;                 // of each box of a warp: what its results are blended with
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
      const Tile tile = find_tile(index);
      float sums[BLOCKS][COLUMNS / 2], bias[BIASES];
#pragma unroll
      for (int b = 0; b < BLOCKS; b++)
#pragma unroll
        for (int i = 0; i < COLUMNS / 2; i++) sums[b][i] = 0;
#pragma unroll
      for (int i = 0; i < BIASES; i++) bias[i] = PLANES ? 0.0f : bias_of(tile, tile.filter + i * 32 + threadIdx.x % 32);
      const bool blends = a.boxes && a.epilogue.beta != 0;
      const int warp_row = first_row + threadIdx.x % WARPGROUP / 32 * 16;
      if (blends) {
#pragma unroll
        for (int box = 0; box < min(BOXES, ALL_BOXES); box++) begin_blending(scratch, (turns + box) % BOXES, tile, warp_row, box);
      }
      unsigned previous = 0;
      // A parity tells phases apart only next to each other: nobody waits for a stage while the other's rounds are due.
      if (ALTERNATING) barrier_wait(&turn[group], turn_parity), turn_parity ^= 1;
      for (int round = 0; round < count; round++) {
        const unsigned char *image = stages + stage * STAGE_BYTES, *filters = image + POSITIONS * ROW_BYTES;
        barrier_wait(&full[stage], parity);
#pragma unroll
        for (int b = 0; b < BLOCKS; b++)
          begin_product<ELEMENT, COLUMNS>(sums[b], (PLANES ? filters : image) + (first_row + b * 64) * ROW_BYTES, PLANES ? image : filters);
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
#pragma unroll
      for (int b = 0; b < BLOCKS; b++) {
        if (blends) write_boxes<true, true>(scratch, sums[b], bias, tile, warp_row, b);
        else if (PLANES || (a.boxes && a.epilogue.biased)) write_boxes<true, false>(scratch, sums[b], bias, tile, warp_row, b);
        else if (a.boxes) write_boxes<false, false>(scratch, sums[b], bias, tile, warp_row, b);
        else if constexpr (!PLANES) write(reinterpret_cast<float*>(scratch), sums[b], tile, tile.position + warp_row + b * 64);
      }
      if (ALTERNATING) advance(count);
    }
    if (threadIdx.x % 32 == 0) wait_for_stores<0>();
  }

  __device__ __forceinline__ float bias_of(const Tile& tile, int filter) const {
    const bool exists = a.epilogue.biased && filter < a.convolution.filters;
    return exists ? load<float>(a.bias[tile.group * a.convolution.y_filters + filter]) : 0.0f;
  }

  // Brings what a box of results is blended with to where they will be, once those that were there before are written.
  // Boxes of a warp count along its first rows, then along those 64 further down.
  __device__ __forceinline__ void begin_blending(unsigned char* scratch, unsigned slot, const Tile& tile, int warp_row, int box) const {
    if (threadIdx.x % 32 != 0) return;
    unsigned at[3];
    find_box(tile, warp_row, box, at);
    wait_for_stores<0>();
    barrier_arrive_with(&came[slot], BOX_BYTES);
    load_box(scratch + slot * BOX_BYTES, a.blended, &came[slot], at[0], at[1], at[2]);
  }

  // 16 rows of a warp become rows of 128 bytes, which the copy engine writes. biases: of every 32nd filter, from a lane's on;
  // block: which 64 rows of the warpgroup these are among.
  template <bool BIASED, bool BLENDED>
  __device__ __forceinline__ void write_boxes(unsigned char* scratch, const float (&sums)[COLUMNS / 2], const float (&biases)[BIASES], const Tile& tile, int warp_row, int block) {
    constexpr int STEPS = DEPTH / 8;  // of eight columns, in a box
    const int lane = threadIdx.x % 32, row = warp_row + block * 64;
    const float alpha = a.epilogue.alpha, beta = a.epilogue.beta;
    const bool rectified = a.epilogue.rectified;
    float bias[2][2] = {};  // of a pair of rows, of a pair of columns
    if constexpr (PLANES) {
#pragma unroll
      for (int part = 0; part < 2; part++) bias[part][0] = bias[part][1] = bias_of(tile, tile.filter + row + lane / 4 + part * 8);
    }
#pragma unroll
    for (int box = 0; box < ROW_BOXES; box++, turns++) {
      const unsigned slot = turns % BOXES;
      unsigned char* rows = scratch + slot * BOX_BYTES;
      if constexpr (BLENDED) {
        barrier_wait(&came[slot], turns / BOXES & 1);
      } else {
        if (lane == 0) wait_for_stores<BOXES - 1>();
        __syncwarp();
      }
#pragma unroll
      for (int n = 0; n < STEPS; n++) {
        const int column = n * 8 + lane % 4 * 2;
        if constexpr (BIASED && !PLANES) {
#pragma unroll
          for (int j = 0; j < 2; j++)
            bias[0][j] = bias[1][j] = __shfl_sync(~0u, biases[(box * DEPTH + n * 8) / 32], (box * DEPTH + column + j) % 32);
        }
#pragma unroll
        for (int part = 0; part < 2; part++) {
          auto* place = reinterpret_cast<Pack<ELEMENT, 2>*>(
              const_cast<unsigned char*>(swizzled(rows, lane / 4 + part * 8, column / PACK)) + column % PACK * sizeof(ELEMENT));
          Pack<ELEMENT, 2> pair;
          if constexpr (BLENDED) pair = *place;
#pragma unroll
          for (int j = 0; j < 2; j++) {
            float value = alpha * sums[(box * STEPS + n) * 4 + part * 2 + j];
            if constexpr (BLENDED) value += beta * load<float>(pair.item[j]);
            value += bias[part][j];
            pair.item[j] = ::store<ELEMENT>(!rectified || value > 0 ? value : 0.0f);
          }
          *place = pair;
        }
      }
      publish_stores();
      __syncwarp();
      if (lane == 0) {
        unsigned at[3];
        find_box(tile, warp_row, block * ROW_BOXES + box, at);
        if (!PLANES || tile.filter + row < a.convolution.filters) store_box(rows, a.result, at[0], at[1], at[2]);
        commit_stores();
      }
      const int next = block * ROW_BOXES + box + BOXES;
      if (BLENDED && next < ALL_BOXES) begin_blending(scratch, slot, tile, warp_row, next);
    }
  }
  // Where the map of y has a box.
  __device__ __forceinline__ void find_box(const Tile& tile, int warp_row, int box, unsigned (&at)[3]) const {
    const int row = warp_row + box / ROW_BOXES * 64, column = box % ROW_BOXES * DEPTH;
    if constexpr (PLANES) {
      at[1] = tile.group * a.convolution.filters + tile.filter + row;
      at[2] = a.plane.divide(tile.position + column, at[0]);  // boxes do not reach from one image into the next
    } else {
      at[0] = tile.filter + column, at[1] = tile.position + row, at[2] = tile.group;
    }
  }

  // 16 positions x FILTERS sums of a warp pass through its scratch memory, so that a lane writes neighbours of y.
  __device__ __forceinline__ void write(float* scratch, const float (&sums)[COLUMNS / 2], const Tile& tile, int first) const {
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

template <int COLUMNS, int ROWS, int CONSUMERS, int STAGES, bool ALTERNATING, bool PLANES>
__device__ __forceinline__ void multiply(const Arguments& a) {
#if defined(EMULATED_CUDA) || defined(WARPGROUP_INSTRUCTIONS)
  using M = Multiplication<COLUMNS, ROWS, CONSUMERS, STAGES, ALTERNATING, PLANES>;
  constexpr int WARPS = CONSUMERS * WARPGROUP / 32;
  __shared__ Barrier full[STAGES], empty[STAGES], turn[CONSUMERS], came[WARPS * BOXES];
  unsigned char* stages = shared_memory + (-reinterpret_cast<uintptr_t>(shared_memory) & 1023);
  unsigned char* scratch = stages + STAGES * M::STAGE_BYTES;
  if (threadIdx.x == 0) {
    for (int i = 0; i < STAGES; i++) barrier_init(&full[i], 1), barrier_init(&empty[i], M::ARRIVALS);
    for (int i = 0; i < CONSUMERS; i++) barrier_init(&turn[i], WARPGROUP / 32);
    for (int i = 0; i < WARPS * BOXES; i++) barrier_init(&came[i], 1);
    publish_barriers();
  }
  __syncthreads();
  const int warp = threadIdx.x / 32 - WARPGROUP / 32;  // of those that multiply
  M m{a, stages, full, empty, turn, came + warp * BOXES};
  if (warp < 0) {
    give_registers<40>();
    if (threadIdx.x == 0) m.produce();
  } else {
    take_registers<CONSUMERS == 2 ? 232 : 152>();
    m.consume(scratch + warp * SCRATCH_BYTES);
  }
#endif
}

// name: positions x filters of a tile, and `alternating` where each warpgroup has tiles of its own
#define KERNEL(name, COLUMNS, ROWS, CONSUMERS, STAGES, ALTERNATING, PLANES)                                                           \
  extern "C" __global__ void __launch_bounds__((CONSUMERS + 1) * 128, 1) name(const __grid_constant__ Arguments a) { \
    wait_for_earlier_kernels();                                                                                       \
    multiply<COLUMNS, ROWS, CONSUMERS, STAGES, ALTERNATING, PLANES>(a);                                               \
  }
KERNEL(specialized_128x256, 256, 64, 2, 4, false, false)
KERNEL(specialized_192x128, 128, 64, 3, 4, false, false)
KERNEL(specialized_128x128, 128, 64, 2, 6, false, false)
KERNEL(specialized_128x64, 64, 64, 2, 8, false, false)
KERNEL(specialized_256x64, 64, 128, 2, 4, false, false)
KERNEL(specialized_alternating_128x128, 128, 128, 2, 6, true, false)
KERNEL(specialized_planes_256x128, 256, 64, 2, 4, false, true)
