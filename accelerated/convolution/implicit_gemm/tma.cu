// This file computes implicit GEMM (5.2.9, 5.2.10) on Hopper's tensor cores (wgmma) in half, bfloat16 or TF32 by TMA.
//
// Tiling: a persistent, warp-specialised block computes tiles of TILE_M pixels x TILE_N filters. A producer warp loads
// K-blocks of 128 bytes by TMA (x in im2col mode) into a pipeline of stages. One to three consumer warpgroups multiply
// together. Prior values of y come through the same stages, and TMA stores the results. With MAPPED 0 the warps do.
//
// NCHW: y is NCHW, and rows of the product are filters. TRANSPOSED: x is NCHW as well, and MN-major; TF32 passes
// through registers, because tensor cores do not transpose it. MERGED: a row of x's map has this many channels if the
// pixels of one are not a multiple of 16 bytes; the warps store y. FILTERS_MN_MAJOR: w is [K][tap][N]. JOINED: the
// launch has this many products, which divide its blocks. DIVIDED: blocks share the K of tiles (gemm/shared_tiles.cuh).
//
// Roofline bound: flops, 2 * M * N * K at 989 TFLOP/s in half (495 in TF32), or bytes where K is short (1 x 1). Shared
// memory is the next bound: a K-block of 128 x 256 reads 80 KiB and writes 48 KiB in 1024 clocks.
#include "convolution/problem.cuh"
#include "convolution/implicit_gemm/result_pair.cuh"
#include "gemm/shared_tiles.cuh"
#include "gemm/tma_pipeline.cuh"

#ifndef MAPPED
#define MAPPED 1
#endif
#ifndef MERGED
#define MERGED 1
#endif
#ifndef JOINED
#define JOINED 0
#endif
#ifndef DIVIDED
#define DIVIDED 0
#endif
#ifndef FILTERS_MN_MAJOR
#define FILTERS_MN_MAJOR 0
#endif

constexpr int TILE_K = ROW_BYTES / sizeof(ELEMENT);  // terms per K-block
constexpr int VECTOR = 16 / sizeof(ELEMENT);         // terms per vector
constexpr int SWATH = 32;                            // filters that a warp transposes in shared memory at once
constexpr int PITCH = SWATH + 8;                     // floats per row there
constexpr int BOXES = 2;                             // boxes of results that TMA writes for a warp at a time
constexpr int BOX_BYTES = 16 * ROW_BYTES;            // bytes per box of results
static_assert(BOXES * BOX_BYTES >= 16 * PITCH * sizeof(float));

struct Arguments : Operands<ELEMENT> {  // The maps read the operands.
  unsigned char* workspace;             // notes or slots
  unsigned* counters;                   // zeros, with DIVIDED
  int notes;  // 1: the workspace has an int per block, which becomes 1 where no sum of the block is NaN
  long long y_offset, prior_offset;  // offsets in elements of y and of the prior values, where no map has them
  long long reserved[6];
  TensorMap image, filter, result, blended;
  Convolution convolution;
  Epilogue epilogue;
  FastDivmod m_tiles, n_tiles;  // Tiles run over filters first, then pixels, then groups.
  unsigned tiles;
  int group_channels, channel_k_blocks;
  int tap_first;                      // the tap of w that is multiplied first
  int tap_deep, tap_down, tap_right;  // steps between taps in depth, rows and columns
  int boxes;                          // boxes of 16 pixels of results in their map; 0 without a map
  FastDivmod plane;  // pixels per image; TRANSPOSED: rounded up to full boxes; several boxes: pixels per row
  int blends;        // 1 where the kernel adds the prior values of a map
  int volumes;       // 1 where the image has a depth dimension
  int flat;          // 1 where one tap meets every pixel, and the map of x has rows of pixels
  unsigned pixels;   // pixels of an image of y
  unsigned first_blocks, first_end,
      later;  // blocks that share the tiles before first_end; tiles per block after them
#if DIVIDED
  Division division;
  int first_slot, first_counter;  // in the memory of all products that are joined
#endif
};

#if JOINED
struct Parameters {
  const ELEMENT *x, *w;
  ELEMENT* y;
  const ELEMENT* prior;
  unsigned char* workspace;
  unsigned* counters;
  unsigned ends[JOINED];  // end of the blocks of each product
  int reserved[12];
  Arguments part[JOINED];
};
// Returns the product of a block, and makes `block` its number within the product.
__device__ __forceinline__ const Arguments& part_of(const Parameters& parameters, unsigned& block) {
  int i = 0;
  unsigned begin = 0;
  while (block >= parameters.ends[i]) begin = parameters.ends[i++];
  block -= begin;
  return parameters.part[i];
}
#else
using Parameters = Arguments;
__device__ __forceinline__ const Arguments& part_of(const Parameters& parameters, unsigned&) { return parameters; }
#endif

struct Tile {
  unsigned group, pixel, filter;  // first group, pixel and filter of the tile
};

// Enumerates the tiles of a block, or its segments of them. The first blocks share most tiles. Later blocks have few
// tiles each, and run on SMs that become free early.
struct TileScheduler {
#if DIVIDED
  PartsWalk walk;

  __device__ __forceinline__ TileScheduler(const Arguments&, unsigned block) : walk{block, block} {}
  __device__ __forceinline__ bool advance(const Arguments& a, Segment& segment) {
    return walk.advance(a.division, segment);
  }
#else
  unsigned index, step, end, k_blocks;

  __device__ __forceinline__ TileScheduler(const Arguments& a, unsigned block) {
    const FastDivmod(&taps)[3] = a.convolution.filter;
    const bool first = block < a.first_blocks;
    index = first ? block : a.first_end + (block - a.first_blocks) * a.later;
    step = first ? a.first_blocks : 1;
    end = first ? a.first_end : min(a.tiles, index + a.later);
    k_blocks = taps[0].divisor * taps[1].divisor * taps[2].divisor * a.channel_k_blocks;
  }
  __device__ __forceinline__ bool advance(const Arguments&, Segment& segment) {
    segment = {index, 0, k_blocks, 0, true};
    index += step;
    return segment.tile < end;
  }
#endif
};

// Names the epilogue of the sums: alpha times them; also with bias and ReLU; also with the prior values.
enum Finish { SCALED, FINISHED, BLENDED };

// Computes tiles with COLUMNS of the product, and ROWS for each of CONSUMERS warpgroups. SPLIT_K: two warpgroups have
// the same rows and every other K-block; the first adds the sums of the second to its own, and stores y.
template <int COLUMNS, int ROWS, int CONSUMERS, int STAGES, bool NCHW, bool TRANSPOSED, bool SPLIT_K = false>
struct Multiplication : TmaPipeline<STAGES, (CONSUMERS / (SPLIT_K ? 2 : 1) * ROWS + COLUMNS) * ROW_BYTES> {
  static constexpr int STEP = SPLIT_K ? 2 : 1, ROW_GROUPS = CONSUMERS / STEP;
  static_assert(!SPLIT_K || (CONSUMERS == 2 && has_own_stages(STAGES, STEP)));
  using Pipeline = TmaPipeline<STAGES, (ROW_GROUPS * ROWS + COLUMNS) * ROW_BYTES>;
  using Pipeline::advance, Pipeline::empty, Pipeline::full, Pipeline::open_stage, Pipeline::parity, Pipeline::stage,
      Pipeline::STAGE_BYTES, Pipeline::stages;
  static constexpr bool FROM_REGISTERS =
      // the image passes through registers, because tensor cores do not transpose it
      TRANSPOSED && sizeof(ELEMENT) == 4;
  static constexpr bool ACROSS_FILTERS = !NCHW || FROM_REGISTERS;  // Columns are filters, and rows are pixels.
  static constexpr int ALL_ROWS = ROW_GROUPS * ROWS, BLOCKS = ROWS / 64;
  static constexpr int TILE_M = ACROSS_FILTERS ? ALL_ROWS : COLUMNS, TILE_N = ACROSS_FILTERS ? COLUMNS : ALL_ROWS;
  static constexpr int TILE_WARPS = 4 * ROW_GROUPS;
  static constexpr int BIASES = ACROSS_FILTERS ? COLUMNS / 32 : 1;  // biases in registers per lane
  static constexpr int WARP_ROWS = FROM_REGISTERS ? 32 : 16;        // consecutive rows per warp
  static constexpr int ROW_BOXES = COLUMNS / TILE_K,
                       ALL_BOXES = BLOCKS * ROW_BOXES;  // boxes of a warp's results: across, and in all
  // pixels of a box; where channels are merged, a box begins up to 4 - 4 / MERGED pixels early, at 16 bytes
  static constexpr int BOX_PIXELS = TILE_K - (4 - 4 / MERGED);
  static constexpr int STAGE_BOXES = STAGE_BYTES / (TILE_WARPS * BOX_BYTES);  // boxes per warp to blend with
  // boxes of 16 rows in one box of the blended map: 64 rows
  static constexpr int LOADED_BOXES = FROM_REGISTERS ? 1 : 4;
  static_assert(STAGE_BOXES > 0);
  static_assert(!FROM_REGISTERS || BLOCKS == 2);  // A warp has 32 pixels.

  const Arguments& a;
  int warp;        // index among the warps that multiply
  unsigned block;  // index among the blocks of the product
  ELEMENT* y;      // y of the product, where no map has it
  const ELEMENT* prior;
  Mbarrier* exchanged;     // one for stored sums, one for read sums, where K is split
  float* slots = nullptr;  // slots and counters belong to the product, with DIVIDED
  unsigned* counters = nullptr;
  unsigned boxes_written = 0;
  bool met_nan = false;

  __device__ __forceinline__ Tile find_tile(unsigned index) const {
    Tile tile;
    const unsigned rest = a.n_tiles.divide(index, tile.filter);
    tile.group = a.m_tiles.divide(rest, tile.pixel);
    tile.filter *= TILE_N, tile.pixel *= TILE_M;
    return tile;
  }
  // The first loader has the image, and expects the bytes of all. Others have the filters.
  static constexpr int USED_LOADERS = TRANSPOSED || FILTERS_MN_MAJOR ? LOADERS : 2;
  static __device__ __forceinline__ int expected(int bytes) { return loader() == 0 ? bytes : 0; }
  // Returns the first row of a warp of the tile.
  static __device__ __forceinline__ int first_row_of(int warp) { return warp / 4 * ROWS + warp % 4 * WARP_ROWS; }

  // The loaders load all tiles.
  __device__ __forceinline__ void produce() {
    if (loader() >= USED_LOADERS) return;
    Segment segment;
    for (TileScheduler scheduler(a, block); scheduler.advance(a, segment);) {
      const Tile tile = find_tile(segment.tile);
      if constexpr (TRANSPOSED) produce_planes(tile, segment);
      else if (loader() == 0) produce_columns<true>(tile, segment);
      else produce_columns<false>(tile, segment);
      if (MAPPED && a.blends) produce_blended(tile);
    }
  }

  // Loads rows of pixels, for one tap at a time: the IMAGE or the filters.
  template <bool IMAGE> __device__ __forceinline__ void produce_columns(const Tile& tile, const Segment& segment) {
    const Convolution& c = a.convolution;
    const int depth = c.filter[0].divisor, height = c.filter[1].divisor, width = c.filter[2].divisor;
    unsigned at[4];
    split_pixel(c, tile.pixel, at);
    int begin[3];
#pragma unroll
    for (int d = 0; d < 3; d++) begin[d] = at[d + 1] * c.step[d] - c.padding[d];
    const int channel = tile.group * a.group_channels;
    int deep = 0, down = 0, right = 0, k_block = 0;
    if (DIVIDED) {
      const int tap = segment.first / a.channel_k_blocks;
      k_block = segment.first % a.channel_k_blocks;
      deep = tap / (height * width), down = tap / width % height, right = tap % width;
    }
    int left = segment.count;
    for (; deep < depth; deep++, down = 0)
      for (; down < height; down++, right = 0)
        for (; right < width; right++, k_block = 0) {
          const int tap = a.tap_first + deep * a.tap_deep + down * a.tap_down + right * a.tap_right;
          const unsigned offset = tap_offset(deep * c.dilation[0], down * c.dilation[1], right * c.dilation[2]);
          if (DIVIDED && left == 0) return;
          const int end = DIVIDED ? min(a.channel_k_blocks, k_block + left) : a.channel_k_blocks;
          left -= end - k_block;
          for (; k_block < end; k_block++) {
            unsigned char* to = open_stage(IMAGE ? STAGE_BYTES : 0);
            const int first = channel + k_block * TILE_K;
            if (!IMAGE) load_filters(to, k_block, tap, tile);
            else if (a.flat) tma_load_3d(to, a.image, &full[stage], first, tile.pixel, 0);
            else tma_load_im2col(to, a.image, &full[stage], a.volumes, first, begin, at[0], offset);
            advance(1);
          }
        }
  }

  // Loads filters. K-major filters have rows of 128 bytes along K. MN-major filters have boxes of 128 bytes of filters,
  // one row per K.
  __device__ __forceinline__ void load_filters(unsigned char* to, int k_block, int tap, const Tile& tile) {
    to += TILE_M * ROW_BYTES;
    if constexpr (FILTERS_MN_MAJOR) {
      for (int box = loader() - 1; box < TILE_N / TILE_K; box += LOADERS - 1)
        tma_load_3d(to + box * TILE_K * ROW_BYTES, a.filter, &full[stage], tile.filter + box * TILE_K, tap,
                    tile.group * a.group_channels + k_block * TILE_K);
    } else if (loader() == 1) {
      tma_load_3d(to, a.filter, &full[stage], k_block * TILE_K, tap, tile.group * a.convolution.n + tile.filter);
    }
  }

  // Loads rows of channels, each 128 bytes of pixels of one image.
  __device__ __forceinline__ void produce_planes(const Tile& tile, const Segment& segment) {
    for (unsigned k_block = segment.first; k_block < segment.first + segment.count; k_block++) {
      unsigned char* to = open_stage(expected(STAGE_BYTES));
      for (int box = loader(); box < TILE_M / TILE_K; box += LOADERS) {
        unsigned at;
        const unsigned image = a.plane.divide(tile.pixel + box * TILE_K, at);
        const int channel = tile.group * a.group_channels + k_block * TILE_K;
        for (int i = 0; i < MERGED; i++)
          tma_load_3d(to + (box * MERGED + i) * (TILE_K / MERGED) * ROW_BYTES, a.image, &full[stage],
                      MERGED > 1 ? first_value(at, i) & ~3 : at, channel / MERGED, image);
      }
      if (loader() > 0) load_filters(to, k_block, a.tap_first, tile);
      advance(1);
    }
  }

  // Returns the first value of a box in the row of merged channels: of channel `i`, where the box begins at `at` among
  // the pixels of an image in full boxes.
  __device__ __forceinline__ unsigned first_value(unsigned at, unsigned i) const {
    return i * a.pixels + at / TILE_K * BOX_PIXELS;
  }

  // Releases a stage that the tensor cores have read, or that each lane has read itself.
  __device__ __forceinline__ void release(unsigned used) const {
    if (FROM_REGISTERS) Pipeline::release_by_lane(used);
    else Pipeline::release(used);
  }

  // Begins all products of a tile. Returns the stage that the last product reads, which may still be in flight.
  __device__ __forceinline__ unsigned begin_from_stages(float (&sums)[BLOCKS][COLUMNS / 2], int first_row, int count) {
    constexpr int IMAGE = 0, FILTERS = TILE_M * ROW_BYTES;
    constexpr bool LEFT = NCHW && FILTERS_MN_MAJOR, RIGHT = NCHW ? TRANSPOSED : FILTERS_MN_MAJOR;
    return this->template multiply<ELEMENT, COLUMNS, BLOCKS, RIGHT, LEFT, 1>(
        sums, (NCHW ? FILTERS : IMAGE) + first_row * ROW_BYTES, 64 * ROW_BYTES, NCHW ? IMAGE : FILTERS, count);
  }

  // Returns the values by which a lane's channels begin later than their box.
  __device__ __forceinline__ int shift_of(const Tile& tile, int warp_row) const {
    if (MERGED == 1) return 0;
    unsigned at;
    a.plane.divide(tile.pixel + warp_row, at);
    return first_value(at, threadIdx.x % MERGED) % 4;
  }

  // `scratch` is the memory of this warp; with SPLIT_K of all warps.
  __device__ __forceinline__ void consume(unsigned char* scratch) {
    const int group = threadIdx.x / WARPGROUP - 1, first_row = group * ROWS, warp_row = first_row_of(warp % TILE_WARPS);
    unsigned done = 0, tiles = 0;  // K-blocks and tiles of the block so far
    if (SPLIT_K) this->advance(group);
    Segment segment;
    for (TileScheduler scheduler(a, block); scheduler.advance(a, segment);) {
      const Tile tile = find_tile(segment.tile);
      float sums[BLOCKS][COLUMNS / 2];
      float biases[BIASES];
#pragma unroll
      for (int b = 0; b < BLOCKS; b++)
#pragma unroll
        for (int i = 0; i < COLUMNS / 2; i++) sums[b][i] = 0;
#pragma unroll
      for (int i = 0; i < BIASES; i++)
        biases[i] = bias_of(tile, ACROSS_FILTERS ? tile.filter + i * 32 + threadIdx.x % 32 : a.convolution.n);
      int count = segment.count;
      if (SPLIT_K) {
        count = (count + 1 - ((group ^ done) & 1)) / 2;
        done += segment.count;
      }
      unsigned previous;
      if constexpr (FROM_REGISTERS)
        previous = this->template multiply_from_registers<ELEMENT, COLUMNS, STEP, MERGED>(
            sums, warp_row * ROW_BYTES, TILE_M * ROW_BYTES, count, shift_of(tile, warp_row));
      else previous = begin_from_stages(sums, first_row, count);
      wgmma_wait<0>();
      if (count > 0) release(previous);
#pragma unroll
      for (int b = 0; b < BLOCKS; b++) wgmma_fence_accumulators(sums[b]);
#if DIVIDED
      if (!SPLIT_K && !segment.unsplit) {
        const SharedTile shared{a.division, segment.tile - a.division.unsplit, slots,
                                counters,   static_cast<unsigned>(warp),       TILE_WARPS};
        if (!shared.add(segment.slot, sums)) {
          if (MAPPED && a.blends) skip_blended();
          continue;
        }
      }
#endif
      if constexpr (SPLIT_K) finish_split(scratch, sums, tile, warp_row, group, tiles++ % 2);
      else finish_tile(scratch, sums, biases, tile, warp_row);
    }
    if (threadIdx.x % 32 == 0) tma_store_wait<0>();
  }

  // Finishes the sums of a warp's rows of a tile.
  __device__ __forceinline__ void finish_tile(unsigned char* scratch, const float (&sums)[BLOCKS][COLUMNS / 2],
                                              const float (&biases)[BIASES], const Tile& tile, int warp_row) {
    if (a.notes) {
#pragma unroll
      for (int b = 0; b < BLOCKS; b++)
#pragma unroll
        for (int i = 0; i < COLUMNS / 2; i++) met_nan |= sums[b][i] != sums[b][i];
    }
#if MAPPED
    if (a.blends) write_tile<BLENDED>(scratch, sums, biases, tile, warp_row);
    else if (a.epilogue.biased) write_tile<FINISHED>(scratch, sums, biases, tile, warp_row);
    else write_tile<SCALED>(scratch, sums, biases, tile, warp_row);
#elif MERGED > 1
    write_planes(reinterpret_cast<float*>(scratch), sums, tile, warp_row);
#else
#pragma unroll
    for (int b = 0; b < BLOCKS; b++)
      write(reinterpret_cast<float*>(scratch), sums[b], tile, tile.pixel + warp_row + b * 64);
#endif
  }

  // Does the same where the second warpgroup has sums of other K-blocks. They pass through the scratch memory of two
  // warps. `phase` is the parity of the tile.
  __device__ __forceinline__ void finish_split(unsigned char* scratch, float (&sums)[BLOCKS][COLUMNS / 2],
                                               const Tile& tile, int warp_row, int group, unsigned phase) {
    static_assert(!SPLIT_K || 2 * BOXES * BOX_BYTES >= 32 * BLOCKS * COLUMNS / 2 * sizeof(float));
    unsigned char* own = scratch + warp % TILE_WARPS * (2 * BOXES * BOX_BYTES);
    float4* at = reinterpret_cast<float4*>(own) + threadIdx.x % 32;
    mbarrier_wait_parity(exchanged + group, group ? phase ^ 1 : phase);
#pragma unroll
    for (int i = 0; i < BLOCKS * COLUMNS / 8; i++) {
      float* four = sums[i / (COLUMNS / 8)] + i % (COLUMNS / 8) * 4;
      if (group) {
        at[i * 32] = make_float4(four[0], four[1], four[2], four[3]);
      } else {
        const float4 other = at[i * 32];
        four[0] += other.x, four[1] += other.y, four[2] += other.z, four[3] += other.w;
      }
    }
    __syncwarp();
    if (!group) write_planes(reinterpret_cast<float*>(own), sums, tile, warp_row);
    mbarrier_arrive(exchanged + (group ^ 1));
  }

  __device__ __forceinline__ float bias_of(const Tile& tile, int filter) const {
    if (!a.epilogue.biased || filter >= a.convolution.n) return 0;
    return load<float>(a.bias[tile.group * a.convolution.y_n + filter]);
  }

  // --- The results, in boxes: first a warp's rows in the first 64, then its rows in the next 64 ---

  template <Finish FINISH>
  __device__ __forceinline__ void write_tile(unsigned char* scratch, const float (&sums)[BLOCKS][COLUMNS / 2],
                                             const float (&known)[BIASES], const Tile& tile, int warp_row) {
    if constexpr (FROM_REGISTERS) {
      write_pixels<FINISH>(scratch, sums, known, tile, warp_row);
    } else {
#pragma unroll
      for (int b = 0; b < BLOCKS; b++) write_boxes<FINISH>(scratch, sums[b], known, tile, warp_row, b);
    }
  }

  // Writes 16 rows of a warp as rows of 128 bytes. Each lane's `known` holds the bias of every 32nd filter. `block`
  // is the index of the 64 rows in the warpgroup.
  template <Finish FINISH>
  __device__ __forceinline__ void write_boxes(unsigned char* scratch, const float (&sums)[COLUMNS / 2],
                                              const float (&known)[BIASES], const Tile& tile, int warp_row, int block) {
    constexpr int STEPS = TILE_K / 8;  // steps of eight columns per box
    const int lane = threadIdx.x % 32;
    float biases[2][2];  // biases of a pair of rows, of a pair of columns
#pragma unroll
    for (int part = 0; part < 2; part++) {
      const int filter = tile.filter + warp_row + block * 64 + lane / 4 + part * 8;
      biases[part][0] = biases[part][1] = bias_of(tile, NCHW && FINISH != SCALED ? filter : a.convolution.n);
    }
#pragma unroll
    for (int i = 0; i < ROW_BOXES; i++) {
      const int box = block * ROW_BOXES + i;
      unsigned char* rows = open_box(scratch);
      const unsigned char* blended = FINISH == BLENDED ? open_blended(box) : nullptr;
      Elements pairs[STEPS][2] = {};
      if constexpr (FINISH == BLENDED) load_swizzled_rows(blended, pairs);
#pragma unroll
      for (int n = 0; n < STEPS; n++) {
        const int column = n * 8 + lane % 4 * 2;
        if constexpr (FINISH != SCALED && !NCHW) {
#pragma unroll
          for (int j = 0; j < 2; j++)
            biases[0][j] = biases[1][j] =
                __shfl_sync(~0u, known[(i * TILE_K + n * 8) / 32], (i * TILE_K + column + j) % 32);
        }
#pragma unroll
        for (int part = 0; part < 2; part++) {
          Elements& pair = pairs[n][part];
          float values[2];
#pragma unroll
          for (int j = 0; j < 2; j++)
            values[j] = finished<FINISH>(sums[(i * STEPS + n) * 4 + part * 2 + j], pair.item[j], biases[part][j]);
          pair = rounded_pair(values[0], values[1]);
          // finished() is faster in all other cases.
          if (FINISH == BLENDED && a.epilogue.rectified) pair = rectified(pair);
        }
      }
      store_swizzled_rows(rows, pairs);
      if (FINISH == BLENDED) close_blended(box);
      close_box(rows, tile, warp_row, box);
    }
  }

  // Does the same for 32 pixels, whose rows are filters.
  template <Finish FINISH>
  __device__ __forceinline__ void write_pixels(unsigned char* scratch, const float (&sums)[BLOCKS][COLUMNS / 2],
                                               const float (&known)[BIASES], const Tile& tile, int warp_row) {
    const int lane = threadIdx.x % 32, upper = lane / 16;
#pragma unroll
    for (int box = 0; box < ALL_BOXES; box++) {
      unsigned char* rows = open_box(scratch);
      const unsigned char* blended = FINISH == BLENDED ? open_blended(box) : nullptr;
#pragma unroll
      for (int k = 0; k < 8; k++) {  // half of the box, half of the rows of the product, column of a pair
        const int n = k / 4, part = k / 2 % 2, j = k % 2, filter = n * 8 + lane % 4 * 2 + (j ^ upper);
        const float bias = FINISH == SCALED ? 0 : __shfl_sync(~0u, known[box / 2], box % 2 * 16 + filter);
#pragma unroll
        for (int b = 0; b < BLOCKS; b++) {
          const float* pair = sums[b] + (box * 2 + n) * 4 + part * 2;
          const int vector = upper * 4 + b * 2 + part, element = lane / 4 % 4;
          ELEMENT prior = ::store<ELEMENT>(0.0f);
          if constexpr (FINISH == BLENDED)
            prior = reinterpret_cast<const ELEMENT*>(swizzled(blended, filter, vector))[element];
          float value = finished<FINISH>(upper ? pair[1 - j] : pair[j], prior, bias);
          if (FINISH == BLENDED && a.epilogue.rectified) value = fmaxf(value, 0.0f);
          reinterpret_cast<ELEMENT*>(swizzled(rows, filter, vector))[element] = ::store<ELEMENT>(value);
        }
      }
      if (FINISH == BLENDED) close_blended(box);
      close_box(rows, tile, warp_row, box);
    }
  }

  // Returns the result of a sum. BLENDED leaves out the ReLU, which takes pairs.
  template <Finish FINISH> __device__ __forceinline__ float finished(float sum, ELEMENT prior, float bias) const {
    const float alpha = static_cast<float>(a.epilogue.alpha), beta = static_cast<float>(a.epilogue.beta);
    if (FINISH == SCALED) return alpha * sum;
    if (FINISH == BLENDED) return alpha * sum + (beta * load<float>(prior) + bias);
    const float value = alpha * sum + bias;
    return a.epilogue.rectified ? fmaxf(value, 0.0f) : value;
  }

  // Returns the memory of the next box, once its last store to y has read it.
  __device__ __forceinline__ unsigned char* open_box(unsigned char* scratch) const {
    if (threadIdx.x % 32 == 0) tma_store_wait<BOXES - 1>();
    __syncwarp();
    return scratch + boxes_written % BOXES * BOX_BYTES;
  }
  __device__ __forceinline__ void close_box(const unsigned char* rows, const Tile& tile, int warp_row, int box) {
    fence_proxy_async();
    __syncwarp();
    if (threadIdx.x % 32 == 0) {
      unsigned at[3];
      find_box(tile, warp_row, box, at);
      const bool exists = !NCHW || at[1] < (tile.group + 1) * a.convolution.n;
      if (!NCHW && a.boxes > 1) store_parts(rows, at[0], at[1]);
      else if (exists) tma_store_3d(rows, a.result, at[0], at[1], at[2]);
      tma_store_commit();
    }
    boxes_written++;
  }

  // Stores 16 pixels from `pixel` on, in boxes that do not cross rows of y. Rows, but not pixels, have equal strides.
  __device__ __forceinline__ void store_parts(const unsigned char* rows, unsigned filter, unsigned pixel) const {
    const int pixels = 16 / a.boxes;
    for (int i = 0; i < a.boxes; i++, pixel += pixels, rows += pixels * ROW_BYTES) {
      unsigned column;
      const unsigned row = a.plane.divide(pixel, column);
      tma_store_3d(rows, a.result, filter, column, row);
    }
  }

  // Returns the values that a box is blended with. The producer loads them into the stages after the K-blocks of the
  // tile.
  __device__ __forceinline__ const unsigned char* open_blended(int box) const {
    if (box % STAGE_BOXES == 0) mbarrier_wait_parity(&full[stage], parity);
    return stages + stage * STAGE_BYTES + (box % STAGE_BOXES * TILE_WARPS + warp) * BOX_BYTES;
  }
  __device__ __forceinline__ void close_blended(int box) {
    if (box % STAGE_BOXES == STAGE_BOXES - 1 || box == ALL_BOXES - 1) mbarrier_arrive(&empty[stage]), advance(1);
  }
  __device__ __forceinline__ void skip_blended() {
    for (int first = 0; first < ALL_BOXES; first += STAGE_BOXES) open_blended(first), close_blended(ALL_BOXES - 1);
  }
  __device__ __forceinline__ void produce_blended(const Tile& tile) {
    for (int first = 0; first < ALL_BOXES; first += STAGE_BOXES) {
      const int count = min(STAGE_BOXES, ALL_BOXES - first) * TILE_WARPS;
      unsigned char* to = open_stage(expected(count * BOX_BYTES));
      for (int i = loader() * LOADED_BOXES; i < count; i += USED_LOADERS * LOADED_BOXES) {
        unsigned at[3];
        find_box(tile, first_row_of(i % TILE_WARPS), first + i / TILE_WARPS, at);
        tma_load_3d(to + i * BOX_BYTES, a.blended, &full[stage], at[0], at[1], at[2]);
      }
      advance(1);
    }
  }

  // Locates a box in the map of y.
  __device__ __forceinline__ void find_box(const Tile& tile, int warp_row, int box, unsigned (&at)[3]) const {
    const int row = warp_row + box / ROW_BOXES * 64, column = box % ROW_BOXES * TILE_K;
    if constexpr (FROM_REGISTERS) {
      at[1] = tile.group * a.convolution.n + tile.filter + box * 16;
      at[2] = a.plane.divide(tile.pixel + warp_row, at[0]);
    } else if constexpr (NCHW) {
      at[1] = tile.group * a.convolution.n + tile.filter + row;
      at[2] = a.plane.divide(tile.pixel + column, at[0]);
    } else {
      at[0] = tile.filter + column, at[1] = tile.pixel + row, at[2] = tile.group;
    }
  }

  // Passes the sums of a warp's box of pixels through its scratch memory, 16 filters at a time, so that lanes write
  // neighbours of y.
  __device__ __forceinline__ void write_planes(float* scratch, const float (&sums)[BLOCKS][COLUMNS / 2],
                                               const Tile& tile, int warp_row) const {
    constexpr int FILTERS = 16, PITCH = 33;
    static_assert(FILTERS * PITCH * sizeof(float) <= BOXES * BOX_BYTES);
    const Convolution& c = a.convolution;
    const int lane = threadIdx.x % 32, odd = lane / 4 % 2;
    unsigned at;
    const unsigned image = a.plane.divide(tile.pixel + warp_row, at), pixel = at / TILE_K * BOX_PIXELS + lane;
    const bool exists = lane < BOX_PIXELS && pixel < a.pixels && image * a.pixels < c.m;
    const long long to = image * c.y_pixel[0] + pixel;
    const bool plain = a.epilogue.beta == 0 && !a.epilogue.biased && !a.epilogue.rectified;
    const float alpha = static_cast<float>(a.epilogue.alpha);
#pragma unroll
    for (int box = 0; box < COLUMNS / FILTERS; box++) {
      const int first = tile.filter + box * FILTERS;
      if (first >= c.n) break;
#pragma unroll
      for (int k = 0; k < 8; k++) {  // half of the filters, half of the rows of the product, column of a pair
        const int n = k / 4, part = k / 2 % 2, j = k % 2, row = n * 8 + lane % 4 * 2 + (j ^ odd);
#pragma unroll
        for (int b = 0; b < BLOCKS; b++) {
          const float* pair = sums[b] + (box * 2 + n) * 4 + part * 2;
          const int of_lane =  // as in TmaPipeline::read_left
              MERGED > 1 ? lane / 4 * 4 + b * 2 + part : lane / 16 * 16 + b * 8 + part * 4 + lane / 4 % 4;
          scratch[row * PITCH + of_lane] = odd ? pair[1 - j] : pair[j];
        }
      }
      __syncwarp();
      const int count = exists ? min(FILTERS, static_cast<int>(c.n) - first) : 0;
      if (plain) {
        ELEMENT* at = y + y_channel_offset(c, tile.group * c.y_n + first) + to;
#pragma unroll
        for (int row = 0; row < FILTERS; row++)
          if (row < count) at[row * c.y_channel] = ::store<ELEMENT>(alpha * scratch[row * PITCH + lane]);
      } else {
#pragma unroll 1  // Unrolled, the code of a tile would not fit into the cache of instructions.
        for (int row = 0; row < count; row++) {
          const float one[1] = {scratch[row * PITCH + lane]};
          const unsigned channel = tile.group * c.y_n + first + row;
          finish<1, float>(a.epilogue, a.bias, prior, y, y_channel_offset(c, channel) + to, 1, 1, channel, 0, one);
        }
      }
      __syncwarp();
    }
  }

  // Passes 16 pixels x TILE_N sums of a warp through its scratch memory, so that a lane writes neighbours of y.
  __device__ __forceinline__ void write(float* scratch, const float (&sums)[COLUMNS / 2], const Tile& tile,
                                        int first) const {
    const Convolution& c = a.convolution;
    const int lane = threadIdx.x % 32;
    if (first >= c.m) return;
    const bool across_filters = c.y_channel == 1;
    constexpr int PER_ROW = SWATH / VECTOR,
                  ITEMS = 16 * PER_ROW / 32;  // vectors of a pixel in a swath; vectors per lane
    long long offset[ITEMS];
#pragma unroll
    for (int i = 0; i < ITEMS; i++) {
      const int item = lane + 32 * i, pixel = first + (across_filters ? item / PER_ROW : item % (16 / VECTOR) * VECTOR);
      offset[i] = pixel < c.m ? y_offset(c, pixel) : -1;
    }
    const int left = c.m - first;
    // The positions are contiguous in y.
    const bool run = !across_filters && left >= 16 && side_by_side(c, y_offset(c, first), y_offset(c, first + 15), 16);
#pragma unroll
    for (int swath = 0; swath < TILE_N / SWATH; swath++) {
      const int first_n = tile.filter + swath * SWATH;
      if (first_n >= c.n) break;
#pragma unroll
      for (int n = 0; n < SWATH / 8; n++)
#pragma unroll
        for (int part = 0; part < 2; part++) {
          const float* pair = sums + (swath * (SWATH / 8) + n) * 4 + part * 2;
          *reinterpret_cast<float2*>(scratch + (lane / 4 + part * 8) * PITCH + n * 8 + lane % 4 * 2) =
              make_float2(pair[0], pair[1]);
        }
      __syncwarp();
#pragma unroll
      for (int i = 0; i < ITEMS; i++) {
        const int item = lane + 32 * i;
        float values[VECTOR];
        if (across_filters) {
          const float* row = scratch + item / PER_ROW * PITCH + item % PER_ROW * VECTOR;
          const int filter = first_n + item % PER_ROW * VECTOR, count = min(c.n - filter, VECTOR);
#pragma unroll
          for (int j = 0; j < VECTOR; j += 4)
            *reinterpret_cast<float4*>(values + j) = *reinterpret_cast<const float4*>(row + j);
          const unsigned channel = tile.group * c.y_n + filter;
          if (offset[i] >= 0 && count > 0)
            finish<VECTOR, float>(a.epilogue, a.bias, prior, y, offset[i] + channel, 1, count, channel, 1, values);
        } else {
          const int pixel = item % (16 / VECTOR) * VECTOR, column = item / (16 / VECTOR), filter = first_n + column;
#pragma unroll
          for (int j = 0; j < VECTOR; j++) values[j] = scratch[(pixel + j) * PITCH + column];
          if (filter < c.n) {
            const unsigned channel = tile.group * c.y_n + filter;
            const long long start = y_channel_offset(c, channel);
            if (run) {
              finish<VECTOR, float>(a.epilogue, a.bias, prior, y, start + offset[i], 1, VECTOR, channel, 0, values);
            } else {
#pragma unroll
              for (int j = 0; j < VECTOR; j++) {
                const float one[1] = {values[j]};
                if (pixel + j < left)
                  finish<1, float>(a.epilogue, a.bias, prior, y, start + y_offset(c, first + pixel + j), 1, 1, channel,
                                   0, one);
              }
            }
          }
        }
      }
      __syncwarp();
    }
  }
};

template <int COLUMNS, int ROWS, int CONSUMERS, int STAGES, bool NCHW, bool TRANSPOSED, bool SPLIT_K = false>
__device__ __forceinline__ void multiply(const Parameters& parameters) {
#if defined(EMULATED_CUDA) || defined(WGMMA_INSTRUCTIONS)
  using M = Multiplication<COLUMNS, ROWS, CONSUMERS, STAGES, NCHW, TRANSPOSED, SPLIT_K>;
  unsigned block = blockIdx.x;
  const Arguments& a = part_of(parameters, block);
  __shared__ Mbarrier full[STAGES], empty[STAGES], exchanged[2];
  unsigned char* stages = shared_memory + (-reinterpret_cast<uintptr_t>(shared_memory) & 1023);
  unsigned char* scratch = stages + STAGES * M::STAGE_BYTES;
  if (threadIdx.x == 0) {
    M::Pipeline::initialise(full, empty, 32 * M::TILE_WARPS);
    if (SPLIT_K) mbarrier_init(&exchanged[0], WARPGROUP), mbarrier_init(&exchanged[1], WARPGROUP);
    fence_mbarrier_init();
    tma_prefetch_map(a.image), tma_prefetch_map(a.filter);
  }
  __syncthreads();
  griddepcontrol_wait_before_access(parameters.y);
  const int warp = static_cast<int>(threadIdx.x / 32) - WARPGROUP / 32;  // index among the warps that multiply
  M m{{stages, full, empty}, a, warp, block, parameters.y + a.y_offset, parameters.prior + a.prior_offset, exchanged};
#if DIVIDED
  constexpr int SLOT_BYTES = M::TILE_M * M::TILE_N * sizeof(float);
  m.slots = reinterpret_cast<float*>(parameters.workspace + static_cast<long long>(a.first_slot) * SLOT_BYTES);
  m.counters = parameters.counters + a.first_counter;
#endif
  if (warp < 0) {
    if (CONSUMERS > 1) setmaxnreg_decrease<40>();
    if (threadIdx.x % 32 == 0) m.produce();
  } else {
    if (CONSUMERS > 1) setmaxnreg_increase<CONSUMERS == 2 ? 232 : 152>();  // One warpgroup has enough registers.
    m.consume(scratch + (SPLIT_K ? 0 : warp * BOXES * BOX_BYTES));
  }
  if (a.notes) {
    __syncwarp();
    const int none = __syncthreads_and(!m.met_nan);
    if (threadIdx.x == 0 && none) reinterpret_cast<int*>(a.workspace)[blockIdx.x] = 1;
  }
#endif
}

// NAME gives the pixels x filters of a tile.
#define KERNEL(NAME, COLUMNS, ROWS, CONSUMERS, ...)                                         \
  extern "C" __global__ void __launch_bounds__((CONSUMERS + 1) * 128, 1)                    \
      convolution_implicit_gemm_tma_##NAME(const __grid_constant__ Parameters parameters) { \
    griddepcontrol_wait_deferred();                                                         \
    multiply<COLUMNS, ROWS, CONSUMERS, __VA_ARGS__>(parameters);                            \
  }
constexpr bool WIDE = sizeof(ELEMENT) == 4;  // Transposed rows are pixels.
constexpr int SHARERS = WIDE ? 2 : 1;        // warpgroups of a small tile
#if MERGED == 1
KERNEL(128x256, 256, 64, 2, 4, false, false)
KERNEL(192x128, 128, 64, 3, 4, false, false)
KERNEL(128x64, 64, 64, 2, 8, false, false)
KERNEL(256x64, 64, 128, 2, 4, false, false)
KERNEL(128x128, 128, 64, 2, 6, false, false)
KERNEL(128x192, 192, 64, 2, 4, false, false)
#if MAPPED
KERNEL(nchw_256x128, 256, 64, 2, 4, true, false)
KERNEL(nchw_128x128, 128, 64, 2, 6, true, false)
#endif
#endif
#if MAPPED || MERGED > 1
KERNEL(transposed_256x128, WIDE ? 128 : 256, WIDE ? 128 : 64, 2, 4, true, true)
KERNEL(transposed_128x64, WIDE ? 64 : 128, WIDE ? 128 : 64, SHARERS, 8, true, true, WIDE)
#endif
