// The TMA-fed filter gradients (6.2.2) share this header. dw is a product over all pixels of dy. TMA loads x, and dy in
// the layout of x, in boxes (im2col mode). A box has 128 bytes of channels under one tap, for a K-block of pixels.
//
// A block that owns a tile alone blends its sums into dw from registers. For other tiles, several blocks take equal
// parts of the pixels, and further blocks share the rest (stream-K). A block stores its float sums of each shared tile
// in the order of its registers. A second kernel adds the sums of a tile in a fixed order and blends them into dw
// (tma_sum.cu). Where two warpgroups share the K of a tile, the first adds both sums.
#pragma once
#include "gemm/stream_k.cuh"
#include "gemm/tma_pipeline.cuh"

constexpr int BOX = ROW_BYTES / sizeof(ELEMENT);  // channels per box, and pixels per K-block
constexpr int BOX_BYTES = BOX * ROW_BYTES;
constexpr int CONSUMERS = 2;

// Describes dy or x: boxes of the channels of a group under all taps. dy has one tap.
struct Operand {
  FastDivmod boxes, across, down;  // boxes per tap; taps across and down
  int step[3], padding[3], dilation[3];
  int channels, all_boxes;  // per group
  int flat;                 // 1: one tap meets every pixel, and the map has rows of pixels instead of images
};

// Locates a row or a column of a tile in dw. `offset` is in elements, and negative outside dw. `part` is the group of a
// filter or channel within the product, or the tap of a packed row.
struct Target {
  long long offset;
  unsigned part;
};

// Describes dw, and the blending of sums into it.
struct Results {
  float alpha, beta;
  FastDivmod row_boxes, column_boxes;  // per tap
  FastDivmod inner;                    // channels of x per tap, where a box holds inner_taps taps
  FastDivmod of_row;                   // channels of x in one of the interleaved rows
  FastDivmod filters;                  // filters per group of dw; a group of the product may hold several groups of dw
  int all_filters;                     // filters of dw
  int row_channels, column_channels;   // per group
  int taps, inner_taps;
  int rows_are_filters, flipped;
  int together, early, tap_rows;            // rows per tap, and the rows before dw where the first begins; rows of dw
  int kept;                                 // channels of a row that exist in dw
  int filter_step, channel_step, tap_step;  // strides of dw
  int vectors;                              // 1: channels are contiguous in dw, in aligned vectors of 16 bytes

  __device__ __forceinline__ Target target_of_row(unsigned group, unsigned box, unsigned at) const {
    return target(rows_are_filters, row_boxes, row_channels, group, box, at);
  }
  __device__ __forceinline__ Target target_of_column(unsigned group, unsigned box, unsigned at) const {
    return target(!rows_are_filters, column_boxes, column_channels, group, box, at);
  }
  // Returns the offset in dw of the sum of a row and a column, or -1 outside dw.
  __device__ __forceinline__ long long locate(const Target& row, const Target& column) const {
    const unsigned right = rows_are_filters ? column.part - row.part : row.part - column.part;
    // A product may hold several groups of dw, or packed rows several taps, but never both.
    if (row.offset < 0 || column.offset < 0 || right >= static_cast<unsigned>(inner_taps)) return -1;
    return row.offset + column.offset;
  }

 private:
  __device__ __forceinline__ Target target(bool of_filter, const FastDivmod& boxes, int channels, unsigned group,
                                           unsigned box, unsigned at) const {
    unsigned channel, part;
    const long long nowhere = -1;
    if (vectors && of_filter) {  // dw has the groups of the product, and its filters fill the boxes.
      const int filter = box * BOX + at;
      return {filter < channels ? (static_cast<long long>(group) * channels + filter) * filter_step : nowhere, 0};
    }
    const unsigned tap = boxes.divide(box + at / BOX, channel);
    channel = channel * BOX + at % BOX;
    if (channel >= static_cast<unsigned>(channels)) return {nowhere, 0};
    if (vectors) {
      const int of = flipped ? taps - 1 - static_cast<int>(tap) : tap;
      return {tap < static_cast<unsigned>(taps) ? static_cast<long long>(of) * tap_step + channel : nowhere, 0};
    }
    if (of_filter) {
      const unsigned filter = group * channels + channel;
      const bool exists = tap == 0 && filter < static_cast<unsigned>(all_filters);  // dy has one tap.
      part = filters.divide(channel, channel);
      return {exists ? static_cast<long long>(filter) * filter_step : nowhere, part};
    }
    part = inner.divide(channel, channel);
    const unsigned down = tap * together + of_row.divide(channel, channel) - early;
    if (tap >= static_cast<unsigned>(taps) || channel >= static_cast<unsigned>(kept) ||
        down >= static_cast<unsigned>(tap_rows))
      return {nowhere, part};
    const int tap_of = down * inner_taps + min(part, static_cast<unsigned>(inner_taps) - 1);
    const int of = flipped ? tap_rows * inner_taps - 1 - tap_of : tap_of;
    return {static_cast<long long>(channel) * channel_step + of * tap_step, part};
  }
};

struct Arguments {
  const ELEMENT* row_operand;  // The maps read the operands.
  const ELEMENT* column_operand;
  float* partial;
  ELEMENT* dw;
  int volumes;  // 1 where maps have a depth dimension
  int reserved[7];
  TensorMap row_map, column_map;
  Operand rows, columns;
  FastDivmod depth, height, width;  // extents of dy
  Division division;
  Results results;
};

// Describes a box of an operand: its first channel, and the position of its tap.
struct Box {
  int channel;
  unsigned tap;
};
__device__ __forceinline__ Box find_box(const Operand& o, unsigned group, unsigned index) {
  unsigned box, right, down;
  index = min(index, static_cast<unsigned>(o.all_boxes) - 1);  // Sums of boxes after the last are never read.
  const unsigned deep = o.down.divide(o.across.divide(o.boxes.divide(index, box), right), down);
  return {static_cast<int>(group * o.channels + box * BOX),
          tap_offset(deep * o.dilation[0], down * o.dilation[1], right * o.dilation[2])};
}

// Holds the boxes of a tile that a loader has: every LOADERS-th of the boxes of rows and then of columns.
template <int ROW_BOXES, int COLUMN_BOXES> struct Boxes {
  static constexpr int COUNT = (ROW_BOXES + COLUMN_BOXES + LOADERS - 1) / LOADERS;
  const Arguments& a;
  int rows, columns;  // boxes that exist
  Box box[COUNT];

  __device__ __forceinline__ Boxes(const Arguments& a, unsigned group, int row, int column)
      : a(a),
        rows(min(ROW_BOXES, a.rows.all_boxes - row * ROW_BOXES)),
        columns(min(COLUMN_BOXES, a.columns.all_boxes - column * COLUMN_BOXES)) {
#pragma unroll
    for (int i = 0; i < COUNT; i++) {
      const int index = loader() + i * LOADERS;
      box[i] = index < ROW_BOXES ? find_box(a.rows, group, row * ROW_BOXES + index)
                                 : find_box(a.columns, group, column * COLUMN_BOXES + index - ROW_BOXES);
    }
  }
  // Returns the bytes that the loaders load together, to the first of them.
  __device__ __forceinline__ int expected(int others = 0) const {
    return loader() == 0 ? (rows + columns) * BOX_BYTES + others : 0;
  }
  __device__ __forceinline__ void load(unsigned char* to, Mbarrier* full, unsigned k_block) const {
#pragma unroll
    for (int i = 0; i < COUNT; i++) {
      const int index = loader() + i * LOADERS;
      if (index < rows) load_box(to + index * BOX_BYTES, a.row_map, full, a.rows, box[i], k_block);
      else if (index >= ROW_BOXES && index < ROW_BOXES + columns)
        load_box(to + index * BOX_BYTES, a.column_map, full, a.columns, box[i], k_block);
    }
  }

 private:
  // Loads the pixels of a K-block. The first is at an image, plane, row and column of dy.
  __device__ __forceinline__ void load_box(unsigned char* to, const TensorMap& map, Mbarrier* full, const Operand& o,
                                           const Box& box, unsigned k_block) const {
    if (o.flat) {
      tma_load_3d(to, map, full, box.channel, k_block * BOX, 0);
      return;
    }
    unsigned at[3];
    const unsigned image = a.depth.divide(a.height.divide(a.width.divide(k_block * BOX, at[2]), at[1]), at[0]);
    int begin[3];
#pragma unroll
    for (int d = 0; d < 3; d++) begin[d] = at[d] * o.step[d] - o.padding[d];
    tma_load_im2col(to, map, full, a.volumes, box.channel, begin, image, box.tap);
  }
};

// Names the order of a tile's stored sums. Indices are, outermost first: a warpgroup's block b of 64 rows, eight
// columns, a thread, four sums (two rows of two columns). STAGES: both operands come from shared memory; one block per
// warpgroup. ROWS: rows pass through registers, in boxes of 32 per warp; two blocks per warpgroup (read_left). BOTH:
// columns also pass through registers (nchw.cu).
enum class Order { STAGES, ROWS, BOTH };  // tma.py must match

// Returns row `i` of a thread of block `b` in the tile.
__device__ __forceinline__ unsigned row_of(Order order, unsigned b, unsigned thread, int i) {
  if (order == Order::STAGES) return b * 64 + thread / 32 * 16 + thread % 32 / 4 + i * 8;
  return b / 2 * 128 + thread / 32 * 32 + thread % 32 / 16 * 16 + b % 2 * 8 + i * 4 + thread % 16 / 4;
}
// Returns the first of a thread's two columns in the eight columns `n` of the tile.
__device__ __forceinline__ unsigned column_of(Order order, unsigned n, unsigned thread) {
  if (order != Order::BOTH) return n * 8 + thread % 4 * 2;
  return n / 4 * 32 + thread % 4 / 2 * 16 + n % 4 * 4 + thread % 2 * 2;
}

// Stores the sums of a warpgroup, in the order of its registers.
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
// Hands sums over from one warpgroup to another, in parts that fit the shared memory between them.
struct Handover {
  static constexpr int QUADS = 8,
                       BYTES = QUADS * WARPGROUP * sizeof(float4);  // four sums of a thread; tma.py must match

  float4* memory;
  Mbarrier *full, *empty;
  unsigned parity = 0;  // parity of the next part

  template <int BLOCKS, int COUNT> __device__ __forceinline__ void send(const float (&sums)[BLOCKS][COUNT]) {
#pragma unroll
    for (int first = 0; first < BLOCKS * COUNT / 4; first += QUADS, parity ^= 1) {
      mbarrier_wait_parity(empty, parity ^ 1);
#pragma unroll
      for (int i = 0; i < QUADS; i++) {
        const float* sum = sums[(first + i) / (COUNT / 4)] + (first + i) % (COUNT / 4) * 4;
        memory[i * WARPGROUP + threadIdx.x % WARPGROUP] = make_float4(sum[0], sum[1], sum[2], sum[3]);
      }
      mbarrier_arrive(full);
    }
  }
  // Adds the sums that the other warpgroup sends.
  template <int BLOCKS, int COUNT> __device__ __forceinline__ void add(float (&sums)[BLOCKS][COUNT]) {
#pragma unroll
    for (int first = 0; first < BLOCKS * COUNT / 4; first += QUADS, parity ^= 1) {
      mbarrier_wait_parity(full, parity);
#pragma unroll
      for (int i = 0; i < QUADS; i++) {
        const float4 found = memory[i * WARPGROUP + threadIdx.x % WARPGROUP];
        float* sum = sums[(first + i) / (COUNT / 4)] + (first + i) % (COUNT / 4) * 4;
        sum[0] += found.x, sum[1] += found.y, sum[2] += found.z, sum[3] += found.w;
      }
      mbarrier_arrive(empty);
    }
  }
};

// Blends two sums of each of two rows into dw.
__device__ __forceinline__ void blend_quad(const Results& r, ELEMENT* dw, const float4& sum,
                                           const long long (&offsets)[2][2]) {
  const float values[2][2] = {{sum.x, sum.y}, {sum.z, sum.w}};
#pragma unroll
  for (int i = 0; i < 2; i++) {
    const long long (&at)[2] = offsets[i];
    if (at[0] >= 0 && at[1] == at[0] + 1 && reinterpret_cast<uintptr_t>(dw + at[0]) % sizeof(Vector<ELEMENT, 2>) == 0) {
      Vector<ELEMENT, 2> pair;
#pragma unroll
      for (int j = 0; j < 2; j++) pair.item[j] = blend<float>(r.alpha, values[i][j], r.beta, dw + at[j]);
      *reinterpret_cast<Vector<ELEMENT, 2>*>(dw + at[0]) = pair;
    } else {
#pragma unroll
      for (int j = 0; j < 2; j++)
        if (at[j] >= 0) dw[at[j]] = blend<float>(r.alpha, values[i][j], r.beta, dw + at[j]);
    }
  }
}

// Finishes the sums of a tile of ROWS x COLUMNS that the block owns alone. Targets are located before the products, in
// two tables, one per parity.
template <Order ORDER, int ROWS, int COLUMNS, bool SPLIT_K> struct Finisher {
  const Arguments& a;
  Target (*targets)[ROWS + COLUMNS];
  Mbarrier* targets_known;
  Handover handover;
  unsigned tiles = 0;

  __device__ __forceinline__ void begin(const Segment& segment) {
    if (!segment.unsplit) return;
    unsigned row, column;
    const unsigned group = find_tile(a.division, segment.tile, row, column);
    Target* to = targets[tiles % 2];
    for (int i = threadIdx.x - WARPGROUP; i < ROWS + COLUMNS; i += CONSUMERS * WARPGROUP)
      to[i] = i < ROWS ? a.results.target_of_row(group, row * (ROWS / BOX), i)
                       : a.results.target_of_column(group, column * (COLUMNS / BOX), i - ROWS);
  }

  // `sums` holds blocks of 64 rows of the warpgroup. With SPLIT_K each warpgroup has every other K-block; the first
  // adds the second's sums to its own.
  template <int BLOCKS, int COUNT>
  __device__ __forceinline__ void finish(const Segment& segment, float (&sums)[BLOCKS][COUNT]) {
    constexpr int PART = BLOCKS * COUNT * WARPGROUP;  // sums of a warpgroup
    const int warpgroup = threadIdx.x / WARPGROUP - 1;
    const bool sends = SPLIT_K && warpgroup == 1;
    if (sends) handover.send(sums);
    else if (SPLIT_K) handover.add(sums);
    if (!segment.unsplit) {
      const long long part = SPLIT_K ? segment.slot : static_cast<long long>(segment.slot) * CONSUMERS + warpgroup;
      if (!sends) store_sums(a.partial + part * PART, sums);
      return;
    }
    mbarrier_arrive(targets_known);
    mbarrier_wait_parity(targets_known, tiles % 2);
    const Target *rows = targets[tiles++ % 2], *columns = rows + ROWS;
    if (sends) return;
    const Results& r = a.results;
    const unsigned thread = threadIdx.x % WARPGROUP, first = SPLIT_K ? 0 : warpgroup * BLOCKS;
    const bool vectors = r.vectors && reinterpret_cast<uintptr_t>(a.dw) % 16 == 0;
#pragma unroll
    for (int b = 0; b < BLOCKS; b++) {
      const Target of_rows[2] = {rows[row_of(ORDER, first + b, thread, 0)], rows[row_of(ORDER, first + b, thread, 1)]};
      if constexpr (sizeof(ELEMENT) == 2) {
        if (vectors && r.rows_are_filters && r.beta == 0) {
          store_vectors(sums[b], of_rows, columns);
          continue;
        }
      } else if constexpr (ORDER != Order::STAGES) {
        if (vectors && !r.rows_are_filters) {
          blend_vectors(sums[b], rows, columns, first + b);
          continue;
        }
      }
#pragma unroll
      for (int n = 0; n < COUNT / 4; n++) {
        const Target* of_columns = columns + column_of(ORDER, n, thread);
        long long offsets[2][2];
#pragma unroll
        for (int i = 0; i < 4; i++) offsets[i / 2][i % 2] = r.locate(of_rows[i / 2], of_columns[i % 2]);
        const float* quad = sums[b] + 4 * n;
        blend_quad(r, a.dw, make_float4(quad[0], quad[1], quad[2], quad[3]), offsets);
      }
    }
  }

  // Exchanges the sums of four columns between four lanes with consecutive rows. Each lane then has the sums of one
  // column.
  template <int COUNT>
  __device__ __forceinline__ void blend_vectors(const float (&sums)[COUNT], const Target* rows, const Target* columns,
                                                int block) const {
    const Results& r = a.results;
    const int thread = threadIdx.x % WARPGROUP, quad = thread % 16 / 4;
#pragma unroll
    for (int n = 0; n < COUNT / 4; n += 2) {
      const Target& column = columns[column_of(ORDER, n + quad / 2, thread) + quad % 2];
#pragma unroll
      for (int i = 0; i < 2; i++) {
        float found[4];
#pragma unroll
        for (int k = 0; k < 4; k++) found[k] = sums[4 * (n + k / 2) + 2 * i + k % 2];
        exchange<4>(found, quad);
        const long long at = r.locate(rows[row_of(ORDER, block, thread - quad * 4, i)], column);
        if (at < 0) continue;
        Vector<ELEMENT, 4> vector;
#pragma unroll
        for (int k = 0; k < 4; k++) vector.item[k] = blend<float>(r.alpha, found[k], r.beta, a.dw + at + k);
        *reinterpret_cast<Vector<ELEMENT, 4>*>(a.dw + at) = vector;
      }
    }
  }

  // Transposes four values of each of four lanes that are `STEP` apart; `lane` is the index of this one.
  template <int STEP, class T> static __device__ __forceinline__ void exchange(T (&values)[4], int lane) {
#pragma unroll
    for (int far = 1; far <= 2; far *= 2)
#pragma unroll
      for (int k = 0; k < 4; k++) {
        if (k & far) continue;
        const T found = __shfl_xor_sync(~0u, lane & far ? values[k] : values[k | far], far * STEP);
        if (lane & far) values[k] = found;
        else values[k | far] = found;
      }
  }

  // Exchanges sums between four lanes that have pairs of the same eight columns. Each lane then has eight consecutive
  // sums.
  template <int COUNT>
  __device__ __forceinline__ void store_vectors(const float (&sums)[COUNT], const Target (&of_rows)[2],
                                                const Target* columns) const {
    const Results& r = a.results;
    const int lane = threadIdx.x % 4;
#pragma unroll
    for (int n = 0; n < COUNT / 4; n += 4) {
      const Target& column = columns[(n + lane) * 8];
#pragma unroll
      for (int i = 0; i < 2; i++) {
        unsigned words[4];
#pragma unroll
        for (int k = 0; k < 4; k++) {
          const float* pair = sums + 4 * (n + k) + 2 * i;
          words[k] = store_pair<ELEMENT>(r.alpha * pair[0], r.alpha * pair[1]);
        }
        exchange<1>(words, lane);
        const long long at = r.locate(of_rows[i], column);
        if (at >= 0) *reinterpret_cast<uint4*>(a.dw + at) = make_uint4(words[0], words[1], words[2], words[3]);
      }
    }
  }
};

// Runs a block of a kernel that begins with griddepcontrol_wait_deferred(): LOADERS threads fill the stages of an M,
// and two warpgroups multiply them. With M::MOVES_REGISTERS they take the registers of the producer's warpgroup.
template <class M> __device__ __forceinline__ void multiply(const Arguments& a) {
#if defined(EMULATED_CUDA) || defined(WGMMA_INSTRUCTIONS)
  __shared__ Mbarrier full[M::DEPTH], empty[M::DEPTH], targets_known, handed[2];
  __shared__ Target targets[2][M::ALL_ROWS + M::COLUMNS];
  unsigned char* stages = shared_memory + (-reinterpret_cast<uintptr_t>(shared_memory) & 1023);
  if (threadIdx.x == 0) {
    M::Pipeline::initialise(full, empty, M::READERS);
    mbarrier_init(&targets_known, CONSUMERS * WARPGROUP);
    for (int i = 0; i < 2; i++) mbarrier_init(&handed[i], WARPGROUP);
    fence_mbarrier_init();
    tma_prefetch_map(a.row_map), tma_prefetch_map(a.column_map);
  }
  __syncthreads();
  griddepcontrol_wait_before_access(a.dw);
  float4* handed_over = reinterpret_cast<float4*>(stages + M::DEPTH * M::STAGE_BYTES);
  M m{{stages, full, empty}, a, {a, targets, &targets_known, {handed_over, &handed[0], &handed[1]}}};
  if (threadIdx.x < WARPGROUP) {
    if constexpr (M::MOVES_REGISTERS) setmaxnreg_decrease<40>();
    if (threadIdx.x % 32 == 0) m.produce();
  } else {
    if constexpr (M::MOVES_REGISTERS) setmaxnreg_increase<232>();
    m.consume();
  }
#endif
}
