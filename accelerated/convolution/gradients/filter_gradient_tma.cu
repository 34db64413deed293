// Gradients of a convolution with respect to its filter (6.2.2) on Hopper's tensor cores (wgmma), fed by TMA: half and
// bfloat16, channels innermost.
//
// Tiling: dw is a product over all pixels of dy. Its operands are dy and x, each in boxes of 64 channels under one tap
// (im2col mode), MN-major as they lie; either may be the rows. Blocks share the K-blocks of 64 pixels of all tiles
// evenly (stream-K): each stores its float sums of every tile that it meets, in the order of its registers, and a
// second kernel adds those of a tile in the order of the blocks and blends them into dw. With one box of rows two
// warpgroups take every other K-block.
//
// Roofline bound: flops, 2 * pixels * elements of dw at 989 T/s, or the bytes of x and dy where dw is small. L2 comes
// next: a K-block of 128 x 256 loads 48 KiB in 1024 clocks.
#include "gemm/tma_pipeline.cuh"
#include "primitives/geometry.cuh"

constexpr int BOX = ROW_BYTES / sizeof(ELEMENT);  // channels, and pixels of a K-block
constexpr int BOX_BYTES = BOX * ROW_BYTES;
constexpr int CONSUMERS = 2;

// dy or x: boxes of the channels of a group under all taps, of which dy has one.
struct Operand {
  FastDivmod boxes, taps;  // of a tap; across
  int step[2], padding[2], dilation[2];
  int channels, all_boxes;  // of a group
};

struct Division {
  FastDivmod k_blocks;                 // of a tile
  FastDivmod row_tiles, column_tiles;  // of a group; columns first, then rows, then groups
  unsigned share, longer;              // K-blocks of a block; so many blocks have one more
};

struct Arguments {
  const ELEMENT* row_operand;  // read through the maps
  const ELEMENT* column_operand;
  float* partial;
  long long reserved[5];
  TensorMap row_map, column_map;
  Operand rows, columns;
  FastDivmod height, width;  // of dy
  Division division;
};

// The K-blocks of one tile that a block multiplies.
struct Segment {
  unsigned tile, first, count;
};

struct Walk {
  unsigned next, end;
  __device__ __forceinline__ Walk(const Division& d, unsigned block)
      : next(block * d.share + min(block, d.longer)), end(next + d.share + (block < d.longer)) {}
  __device__ __forceinline__ bool advance(const Division& d, Segment& segment) {
    if (next >= end) return false;
    segment.tile = d.k_blocks.divide(next, segment.first);
    segment.count = min(d.k_blocks.divisor - segment.first, end - next);
    next += segment.count;
    return true;
  }
};

__device__ __forceinline__ unsigned find_tile(const Division& d, unsigned tile, unsigned& row, unsigned& column) {
  return d.row_tiles.divide(d.column_tiles.divide(tile, column), row);
}

// A box of an operand: its first channel, and where its tap is.
struct Box {
  int channel, right, down;
};
__device__ __forceinline__ Box find_box(const Operand& o, unsigned group, unsigned index) {
  unsigned box, right;
  index = min(index, static_cast<unsigned>(o.all_boxes) - 1);  // sums of boxes behind the last are not read
  const unsigned down = o.taps.divide(o.boxes.divide(index, box), right);
  return {static_cast<int>(group * o.channels + box * BOX), static_cast<int>(right) * o.dilation[1],
          static_cast<int>(down) * o.dilation[0]};
}

template <int ROW_BOXES, int COLUMN_BOXES, int STAGES>
struct Multiplication : TmaPipeline<STAGES, (ROW_BOXES + COLUMN_BOXES) * BOX_BYTES> {
  using Pipeline = TmaPipeline<STAGES, (ROW_BOXES + COLUMN_BOXES) * BOX_BYTES>;
  static constexpr bool SPLIT_K = ROW_BOXES < CONSUMERS;
  static constexpr int COLUMNS = COLUMN_BOXES * BOX;
  static constexpr int SLOT = CONSUMERS * BOX * COLUMNS;  // sums that a block stores of a tile

  const Arguments& a;

  template <int BOXES>
  __device__ __forceinline__ void load(unsigned char* to, const TensorMap& map, const Operand& o,
                                       const Box (&boxes)[BOXES], const unsigned (&at)[3]) {
    const int row = at[1] * o.step[0] - o.padding[0], column = at[2] * o.step[1] - o.padding[1];
#pragma unroll
    for (int i = 0; i < BOXES; i++)
      tma_load_im2col(to + i * BOX_BYTES, map, &this->full[this->stage], boxes[i].channel, column, row, at[0],
                      boxes[i].right, boxes[i].down);
  }

  __device__ __forceinline__ void produce() {
    Segment segment;
    for (Walk walk(a.division, blockIdx.x); walk.advance(a.division, segment);) {
      unsigned row, column;
      const unsigned group = find_tile(a.division, segment.tile, row, column);
      Box rows[ROW_BOXES], columns[COLUMN_BOXES];
#pragma unroll
      for (int i = 0; i < ROW_BOXES; i++) rows[i] = find_box(a.rows, group, row * ROW_BOXES + i);
#pragma unroll
      for (int i = 0; i < COLUMN_BOXES; i++) columns[i] = find_box(a.columns, group, column * COLUMN_BOXES + i);
      for (unsigned k_block = segment.first; k_block < segment.first + segment.count; k_block++) {
        unsigned at[3];
        at[0] = a.height.divide(a.width.divide(k_block * BOX, at[2]), at[1]);
        unsigned char* to = this->open_stage();
        load(to, a.row_map, a.rows, rows, at);
        load(to + ROW_BOXES * BOX_BYTES, a.column_map, a.columns, columns, at);
        this->advance(1);
      }
    }
  }

  __device__ __forceinline__ void consume() {
    const int group = threadIdx.x / WARPGROUP - 1, thread = threadIdx.x % WARPGROUP;
    unsigned done = 0;  // K-blocks of the block
    if (SPLIT_K) this->advance(group);
    Segment segment;
    for (Walk walk(a.division, blockIdx.x); walk.advance(a.division, segment);) {
      float sums[1][COLUMNS / 2];
#pragma unroll
      for (int i = 0; i < COLUMNS / 2; i++) sums[0][i] = 0;
      int count = segment.count;
      if (SPLIT_K) count = (segment.count + 1 - ((group ^ done) & 1)) / 2, done += segment.count;
      const int left = SPLIT_K ? 0 : group * BOX_BYTES;
      const unsigned previous = this->template multiply<ELEMENT, COLUMNS, 1, true, true, SPLIT_K ? CONSUMERS : 1>(
          sums, left, 0, ROW_BOXES * BOX_BYTES, count);
      wgmma_wait<0>();
      if (count > 0) this->release(previous);
      wgmma_fence_accumulators(sums[0]);
      float4* to = reinterpret_cast<float4*>(a.partial + static_cast<long long>(blockIdx.x + segment.tile) * SLOT) +
                   group * (SLOT / CONSUMERS / 4) + thread;
#pragma unroll
      for (int i = 0; i < COLUMNS / 8; i++)
        to[i * WARPGROUP] = make_float4(sums[0][4 * i], sums[0][4 * i + 1], sums[0][4 * i + 2], sums[0][4 * i + 3]);
    }
  }
};

template <int ROW_BOXES, int COLUMN_BOXES, int STAGES> __device__ __forceinline__ void multiply(const Arguments& a) {
#if defined(EMULATED_CUDA) || defined(WGMMA_INSTRUCTIONS)
  using M = Multiplication<ROW_BOXES, COLUMN_BOXES, STAGES>;
  __shared__ Mbarrier full[STAGES], empty[STAGES];
  unsigned char* stages = shared_memory + (-reinterpret_cast<uintptr_t>(shared_memory) & 1023);
  if (threadIdx.x == 0) {
    M::Pipeline::initialise(full, empty, WARPGROUP * (M::SPLIT_K ? 1 : CONSUMERS));
    fence_mbarrier_init();
  }
  __syncthreads();
  M m{{stages, full, empty}, a};
  if (threadIdx.x < WARPGROUP) {
    setmaxnreg_decrease<40>();
    if (threadIdx.x == 0) m.produce();
  } else {
    setmaxnreg_increase<232>();
    m.consume();
  }
#endif
}

// NAME: rows x columns of a tile
#define KERNEL(NAME, ...)                                                           \
  extern "C" __global__ void __launch_bounds__((CONSUMERS + 1) * WARPGROUP, 1)      \
      convolution_filter_gradient_tma_##NAME(const __grid_constant__ Arguments a) { \
    griddepcontrol_wait();                                                          \
    multiply<__VA_ARGS__>(a);                                                       \
  }
KERNEL(128x256, 2, 4, 4)
KERNEL(128x128, 2, 2, 6)
KERNEL(64x256, 1, 4, 5)
KERNEL(64x128, 1, 2, 8)

// --- the sums of all blocks ---

struct SumArguments {
  const float* partial;
  ELEMENT* dw;
  COMPUTE alpha, beta;
  Division division;
  FastDivmod row_boxes, column_boxes;       // of a tap
  FastDivmod quads;                         // fours of sums of a slot, without those of the second half of K
  int log_columns, split_k, slot;           // of a tile; sums of a slot
  int row_channels, column_channels, taps;  // of a group
  int rows_are_filters, flipped;
  int filter_step, channel_step, tap_step;  // of dw
};

constexpr int SUM_THREADS = 256, PART_LANES = 8, QUADS = SUM_THREADS / PART_LANES;

__device__ __forceinline__ void add(float4& sum, const float4& value) {
  sum.x += value.x, sum.y += value.y, sum.z += value.z, sum.w += value.w;
}

// Lanes of a block share the parts of 32 fours of sums, which its first warp adds and blends.
extern "C" __global__ void __launch_bounds__(SUM_THREADS) convolution_filter_gradient_tma_sum(const SumArguments a) {
  griddepcontrol_wait();
  __shared__ float4 parts[PART_LANES][QUADS];
  const int part = threadIdx.x / QUADS, lane = threadIdx.x % QUADS;
  unsigned quad;
  const unsigned tile = a.quads.divide(blockIdx.x * QUADS + lane, quad);
  // The blocks that met the tile: those of its first K-block to that of its last one.
  const Division& d = a.division;
  const auto block_of = [&](unsigned unit) {
    const unsigned many = d.longer * (d.share + 1);
    return unit < many ? unit / (d.share + 1) : d.longer + (unit - many) / d.share;
  };
  const unsigned first = block_of(tile * d.k_blocks.divisor), last = block_of((tile + 1) * d.k_blocks.divisor - 1);
  float4 sum = make_float4(0, 0, 0, 0);
#pragma unroll 2
  for (unsigned block = first + part; block <= last; block += PART_LANES) {
    const float4* from =
        reinterpret_cast<const float4*>(a.partial + static_cast<long long>(block + tile) * a.slot) + quad;
    add(sum, from[0]);
    if (a.split_k) add(sum, from[a.quads.divisor]);
  }
  parts[part][lane] = sum;
  __syncthreads();
  if (part > 0) return;
#pragma unroll
  for (int i = 1; i < PART_LANES; i++) add(sum, parts[i][lane]);

  unsigned row_tile, column_tile;
  const unsigned group = find_tile(d, tile, row_tile, column_tile);
  const unsigned thread = quad % WARPGROUP, n = quad / WARPGROUP & ((1u << a.log_columns) / 8 - 1);
  const unsigned warpgroup = quad / WARPGROUP >> (a.log_columns - 3);
  const unsigned row = warpgroup * BOX + thread / 32 * 16 + thread % 32 / 4, column = n * 8 + thread % 4 * 2;
  const unsigned row_box = row_tile * (a.split_k ? 1 : CONSUMERS) + row / BOX;
  const unsigned column_box = (column_tile << a.log_columns) / BOX + column / BOX;
  unsigned row_channel, column_channel;
  const unsigned row_tap = a.row_boxes.divide(row_box, row_channel);
  const unsigned column_tap = a.column_boxes.divide(column_box, column_channel);
  row_channel = row_channel * BOX + row % BOX, column_channel = column_channel * BOX + column % BOX;
  const unsigned tap = row_tap + column_tap;  // dy has one
  if (tap >= static_cast<unsigned>(a.taps) || (a.rows_are_filters ? row_tap : column_tap) > 0) return;
  const int tap_at = (a.flipped ? a.taps - 1 - tap : tap) * a.tap_step;
  const float values[4] = {sum.x, sum.y, sum.z, sum.w};
#pragma unroll
  for (int i = 0; i < 4; i++) {
    const int r = row_channel + i / 2 * 8, c = column_channel + i % 2;
    if (r >= a.row_channels || c >= a.column_channels) continue;
    const int filters = a.rows_are_filters ? a.row_channels : a.column_channels;
    const int filter = group * filters + (a.rows_are_filters ? r : c), channel = a.rows_are_filters ? c : r;
    ELEMENT* to = a.dw + static_cast<long long>(filter) * a.filter_step + channel * a.channel_step + tap_at;
    *to = blend<COMPUTE>(a.alpha, values[i], a.beta, to);
  }
}
