// Gradients of a convolution with respect to its filter (6.2.2) as products that TMA feeds: what tma.cu
// and tf32.cu share. dw is a product over all pixels of dy; x, and dy where it lies like x, comes in
// boxes: 128 bytes of channels under one tap, of as many pixels (im2col mode).
//
// All tiles have equal parts of the pixels, which their blocks walk together, and what is left is shared by the other
// blocks (stream-K). A block stores its float sums of every tile that it meets, in the order of its registers; a second
// kernel adds those of a tile in one order and blends them into dw.
#pragma once
#include "gemm/stream_k.cuh"
#include "gemm/tma_pipeline.cuh"

constexpr int BOX = ROW_BYTES / sizeof(ELEMENT);  // channels, and pixels of a K-block
constexpr int BOX_BYTES = BOX * ROW_BYTES;
constexpr int CONSUMERS = 2;

// dy or x: boxes of the channels of a group under all taps, of which dy has one.
struct Operand {
  FastDivmod boxes, across, down;  // boxes of a tap; taps across and down
  int step[3], padding[3], dilation[3];
  int channels, all_boxes;  // of a group
};

struct Arguments {
  const ELEMENT* row_operand;  // read through the maps
  const ELEMENT* column_operand;
  float* partial;
  const ELEMENT *x_scale, *x_bias;  // of each channel, with PROLOGUE
  int scales, biases, x_rectified;
  int volumes;  // 1 where maps have planes
  long long reserved;
  TensorMap row_map, column_map;
  Operand rows, columns;
  FastDivmod depth, height, width;  // extents of dy
  Division division;
};

// A box of an operand: its first channel, and where its tap is.
struct Box {
  int channel;
  unsigned tap;
};
__device__ __forceinline__ Box find_box(const Operand& o, unsigned group, unsigned index) {
  unsigned box, right, down;
  index = min(index, static_cast<unsigned>(o.all_boxes) - 1);  // sums of boxes behind the last are not read
  const unsigned deep = o.down.divide(o.across.divide(o.boxes.divide(index, box), right), down);
  return {static_cast<int>(group * o.channels + box * BOX),
          tap_offset(deep * o.dilation[0], down * o.dilation[1], right * o.dilation[2])};
}

// The first pixel of a K-block: image, plane, row and column of dy.
struct Pixel {
  unsigned image, at[3];
  bool volumes;
  __device__ __forceinline__ Pixel(const Arguments& a, unsigned k_block) : volumes(a.volumes) {
    image = a.depth.divide(a.height.divide(a.width.divide(k_block * BOX, at[2]), at[1]), at[0]);
  }
};

// The COUNT boxes of an operand in a tile.
template <int COUNT> struct Boxes {
  Box box[COUNT];

  __device__ __forceinline__ Boxes(const Operand& o, unsigned group, unsigned tile) {
#pragma unroll
    for (int i = 0; i < COUNT; i++) box[i] = find_box(o, group, tile * COUNT + i);
  }
  // Loads what lies under a pixel.
  __device__ __forceinline__ void load(unsigned char* to, const TensorMap& map, Mbarrier* full, const Operand& o,
                                       const Pixel& at) const {
    int begin[3];
#pragma unroll
    for (int d = 0; d < 3; d++) begin[d] = at.at[d] * o.step[d] - o.padding[d];
#pragma unroll
    for (int i = 0; i < COUNT; i++)
      tma_load_im2col(to + i * BOX_BYTES, map, full, at.volumes, box[i].channel, begin, at.image, box[i].tap);
  }
};

// The sums of a warpgroup, in the order of its registers.
template <int BLOCKS, int COUNT>
__device__ __forceinline__ void store_sums(float* slot, const float (&sums)[BLOCKS][COUNT]) {
  float4* to = reinterpret_cast<float4*>(slot) + threadIdx.x % WARPGROUP;
#pragma unroll
  for (int b = 0; b < BLOCKS; b++)
#pragma unroll
    for (int i = 0; i < COUNT / 4; i++)
      to[(b * (COUNT / 4) + i) * WARPGROUP] =
          make_float4(sums[b][4 * i], sums[b][4 * i + 1], sums[b][4 * i + 2], sums[b][4 * i + 3]);
}

// A block: one thread fills the stages of an M, two warpgroups multiply them; where M::MOVES_REGISTERS they have those
// of the producer's warpgroup.
template <class M> __device__ __forceinline__ void multiply(const Arguments& a) {
#if defined(EMULATED_CUDA) || defined(WGMMA_INSTRUCTIONS)
  __shared__ Mbarrier full[M::DEPTH], empty[M::DEPTH];
  unsigned char* stages = shared_memory + (-reinterpret_cast<uintptr_t>(shared_memory) & 1023);
  if (threadIdx.x == 0) {
    M::Pipeline::initialise(full, empty, M::READERS);
    fence_mbarrier_init();
  }
  __syncthreads();
  M m{{stages, full, empty}, a};
  if (threadIdx.x < WARPGROUP) {
    if constexpr (M::MOVES_REGISTERS) setmaxnreg_decrease<40>();
    if (threadIdx.x == 0) m.produce();
  } else {
    if constexpr (M::MOVES_REGISTERS) setmaxnreg_increase<232>();
    m.consume();
  }
#endif
}

// --- the sums of all blocks ---

struct SumArguments {
  const float* partial;
  ELEMENT* dw;
  COMPUTE alpha, beta;
  Division division;
  FastDivmod row_boxes, column_boxes;       // of a tap
  FastDivmod quads;                         // fours of sums of a slot, without those of the second half of K
  int log_columns, tile_boxes;              // of a tile; of its rows
  int split_k, slot;                        // sums of a slot
  int row_channels, column_channels, taps;  // of a group
  int rows_are_filters, flipped;
  FastDivmod inner;   // channels of x that lie under one tap of several in a box, which has inner_taps
  FastDivmod of_row;  // of those: of one of the rows that lie together
  int lanes;          // threads that share the parts of a sum: one or MOST_LANES
  int inner_taps;
  int together, early, tap_rows;  // rows of a tap, of which the first begins `early` rows before dw; rows of dw
  int kept;                       // of the channels of a row, in dw
  FastDivmod filters;             // filters in a group of dw; a group of the product may hold several such groups
  int all_filters;                // filters of dw
  int filter_step, channel_step, tap_step;  // of dw
};

constexpr int SUM_THREADS = 256, MOST_LANES = 8, AT_ONCE = 6;  // reads of a thread in flight

__device__ __forceinline__ void add(float4& sum, const float4& value) {
  sum.x += value.x, sum.y += value.y, sum.z += value.z, sum.w += value.w;
}

// Where sums lie in a slot: block b of 64 rows of a warpgroup, eight columns, a thread, four of them: two rows of two
// columns. Row `i` of a thread of block `b` in the tile, and its first column of eight, number `n` of the tile:
struct RowsOfStages {  // both operands from shared memory, a block for each warpgroup
  static __device__ __forceinline__ unsigned row(unsigned b, unsigned thread, int i) {
    return b * 64 + thread / 32 * 16 + thread % 32 / 4 + i * 8;
  }
  static __device__ __forceinline__ unsigned column(unsigned n, unsigned thread) { return n * 8 + thread % 4 * 2; }
};
struct RowsOfRegisters : RowsOfStages {  // boxes of 32 rows of a warp, two blocks for each warpgroup (read_left)
  static __device__ __forceinline__ unsigned row(unsigned b, unsigned thread, int i) {
    return b / 2 * 128 + thread / 32 * 32 + thread % 32 / 16 * 16 + b % 2 * 8 + i * 4 + thread % 16 / 4;
  }
};
struct BothOfRegisters : RowsOfRegisters {  // boxes of 32 columns, too (tf32_mma.cu)
  static __device__ __forceinline__ unsigned column(unsigned n, unsigned thread) {
    return n / 4 * 32 + thread % 4 / 2 * 16 + n % 4 * 4 + thread % 2 * 2;
  }
};

// LANES threads of a block share the parts of fours of sums, which the first of them add and blend. Neighbouring
// threads have neighbouring columns, 64 of them.
template <class Rows, int LANES> __device__ __forceinline__ void sum_parts(const SumArguments& a) {
  constexpr int QUADS = SUM_THREADS / LANES;
  __shared__ float4 shared[LANES][QUADS];
  const int part = threadIdx.x / QUADS, lane = threadIdx.x % QUADS;
  unsigned index;
  const unsigned tile = a.quads.divide(blockIdx.x * QUADS + lane, index);
  const unsigned thread = index % 4 + index / 32 % 32 * 4, swath = index / 1024;
  const unsigned n = (swath << 3 & ((1u << a.log_columns) / 8 - 1)) + index / 4 % 8;
  const unsigned block = swath >> (a.log_columns - 6);
  const unsigned quad = ((block << (a.log_columns - 3)) + n) * WARPGROUP + thread;
  unsigned row_tile, column_tile;
  const unsigned group = find_tile(a.division, tile, row_tile, column_tile);
  const unsigned row = Rows::row(block, thread, 0), column = Rows::column(n, thread);
  const unsigned row_box = row_tile * a.tile_boxes + row / BOX;
  const unsigned column_box = (column_tile << a.log_columns) / BOX + column / BOX;
  unsigned row_channel, column_channel;
  const unsigned row_tap = a.row_boxes.divide(row_box, row_channel);
  const unsigned column_tap = a.column_boxes.divide(column_box, column_channel);
  row_channel = row_channel * BOX + row % BOX, column_channel = column_channel * BOX + column % BOX;
  const unsigned tap = row_tap + column_tap;  // dy has one
  const bool exists = tap < static_cast<unsigned>(a.taps) && (a.rows_are_filters ? row_tap : column_tap) == 0;
  const int filters = a.rows_are_filters ? a.row_channels : a.column_channels;
  const int left = a.all_filters - static_cast<int>(group) * filters;
  ELEMENT* dw = a.dw + static_cast<long long>(group) * filters * a.filter_step;
  // Where the sum of a row and a column goes, or -1.
  const auto locate = [&](int r, int c) -> long long {
    const int filter = a.rows_are_filters ? r : c;
    if (!exists || r >= a.row_channels || c >= a.column_channels || filter >= left) return -1;
    unsigned channel, of_group;
    // Groups of dw in one of the product, or taps of a packed row: never several of both.
    const unsigned right = a.inner.divide(a.rows_are_filters ? c : r, channel) - a.filters.divide(filter, of_group);
    if (right >= static_cast<unsigned>(a.inner_taps)) return -1;
    const unsigned down = tap * a.together + a.of_row.divide(channel, channel) - a.early;
    if (channel >= static_cast<unsigned>(a.kept) || down >= static_cast<unsigned>(a.tap_rows)) return -1;
    const int at = down * a.inner_taps + right, of = a.flipped ? a.tap_rows * a.inner_taps - 1 - at : at;
    return static_cast<long long>(filter) * a.filter_step +
           (static_cast<long long>(channel) * a.channel_step + of * a.tap_step);
  };
  long long offsets[2][2];
  bool any = false;
#pragma unroll
  for (int i = 0; i < 2; i++)
#pragma unroll
    for (int j = 0; j < 2; j++) {
      offsets[i][j] = locate(row_channel + Rows::row(block, thread, i) - row, column_channel + j);
      any |= offsets[i][j] >= 0;
    }

  const Slots parts(a.division, tile);
  const float4* slots = reinterpret_cast<const float4*>(a.partial) + quad;
  const unsigned count = any ? parts.count : 0;
  float4 sum = make_float4(0, 0, 0, 0);
  for (unsigned i = part; i < count; i += AT_ONCE * LANES) {
    float4 loaded[AT_ONCE], second[AT_ONCE];
#pragma unroll
    for (int u = 0; u < AT_ONCE; u++) {
      if (i + u * LANES >= count) break;
      const float4* from = slots + static_cast<long long>(parts[i + u * LANES]) * (a.slot / 4);
      loaded[u] = from[0];
      if (a.split_k) second[u] = from[a.quads.divisor];
    }
#pragma unroll
    for (int u = 0; u < AT_ONCE; u++) {
      if (i + u * LANES >= count) break;
      add(sum, loaded[u]);
      if (a.split_k) add(sum, second[u]);
    }
  }
  if constexpr (LANES > 1) {
    shared[part][lane] = sum;
    __syncthreads();
    if (part > 0) return;
#pragma unroll
    for (int i = 1; i < LANES; i++) add(sum, shared[i][lane]);
  }

  const float values[2][2] = {{sum.x, sum.y}, {sum.z, sum.w}};
#pragma unroll
  for (int i = 0; i < 2; i++) {
    const long long (&at)[2] = offsets[i];
    if (at[0] >= 0 && at[1] == at[0] + 1 && reinterpret_cast<uintptr_t>(dw + at[0]) % sizeof(Pack<ELEMENT, 2>) == 0) {
      Pack<ELEMENT, 2> pair;
#pragma unroll
      for (int j = 0; j < 2; j++) pair.item[j] = blend<COMPUTE>(a.alpha, values[i][j], a.beta, dw + at[j]);
      *reinterpret_cast<Pack<ELEMENT, 2>*>(dw + at[0]) = pair;
    } else {
#pragma unroll
      for (int j = 0; j < 2; j++)
        if (at[j] >= 0) dw[at[j]] = blend<COMPUTE>(a.alpha, values[i][j], a.beta, dw + at[j]);
    }
  }
}
