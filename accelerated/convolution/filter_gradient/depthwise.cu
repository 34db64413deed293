// This file computes filter gradients (6.2.2) of depthwise convolutions with one filter per channel.
//
// Tiling: a thread owns CHANNELS channels and COLUMNS output columns, and slides down the rows of its chunks of images.
// It keeps the rows of dy that meet a row of x, and the sums of all taps. The threads of a block own a few vectors of
// channels and share chunks (`items`). A tree adds their sums. If several blocks share channels, sum.cu adds the
// blocks' sums in a fixed order.
//
// Windows of many taps are divided into parts of TAP_ROWS x TAP_COLUMNS taps, whose sums fit the registers of a thread.
// Each block has one part.
//
// In NHWC, a producer warp loads rows by TMA into a ring of stages, and a warp owns 64 channels.
//
// Roofline bound: bytes, x and dy read once; 2 * taps flops for each element of dy. 64x256x56x56 in half takes 96 us on
// an H100 in NCHW (the bytes take 68, at 3010 GB/s), and 79 in NHWC.
#include "primitives/geometry.cuh"
#include "primitives/packed.cuh"
#include "primitives/tma.cuh"
#include "primitives/types.cuh"

constexpr int DEPTH = (TAP_ROWS + ROW_STEP - 1) / ROW_STEP;  // rows of dy that meet one row of x
constexpr int X_COLUMNS = (COLUMNS - 1) * COLUMN_STEP + TAP_COLUMNS;
constexpr int TAPS = TAP_ROWS * TAP_COLUMNS;
constexpr int WARPS = THREADS / 32;
constexpr int PITCH = TAPS * CHANNELS + 1;  // stride between the sums of two lanes in shared memory
// SLOTS counts the warps that add their sums at once: one where all do not fit the 48 KiB of static shared memory.
constexpr int SLOTS = sizeof(COMPUTE) * WARPS * 32 * PITCH <= 48 << 10 ? WARPS : 1;

// The axes are rows and columns. The strides, in elements, separate images, channels, rows and columns.
struct Arguments {
  const ELEMENT* x;
  const ELEMENT* dy;
  COMPUTE* partial;  // [block that shares channels][channel][tap]
  long long x_step[4], dy_step[4];
  int input[2], output[2];
  int padding, chunk_rows;  // padding of the rows; rows of dy per item
  int channels, items, flipped;
  int log_vectors;           // binary logarithm of the vectors of channels per block
  FastDivmod tiles, chunks;  // tiles of columns, chunks of rows
  FastDivmod channel_blocks;
  FastDivmod parts, parts_across;  // parts of the window, and those of a row of it
  int window[2], left;             // taps of the window; padding of the columns beyond COLUMN_PADDING
};

// Describes the block's part of the window, and its index among the blocks of this part.
struct Part {
  int row, column;  // first tap
  unsigned block, blocks;

  template <class A> __device__ __forceinline__ explicit Part(const A& a) {
    unsigned part, across;
    block = a.parts.divide(blockIdx.x, part), blocks = gridDim.x / a.parts.divisor;
    row = a.parts_across.divide(part, across) * TAP_ROWS, column = across * TAP_COLUMNS;
  }

  // Writes the sum of a tap of the part. The last parts have taps beyond the window.
  template <class A>
  __device__ __forceinline__ void write(const A& a, COMPUTE* to, int channel, int tap, COMPUTE sum) const {
    const int r = row + tap / TAP_COLUMNS, s = column + tap % TAP_COLUMNS;
    if (r >= a.window[0] || s >= a.window[1]) return;
    const int index = r * a.window[1] + s, taps = a.window[0] * a.window[1];
    to[channel * taps + (a.flipped ? taps - 1 - index : index)] = sum;
  }
};

using Row = COMPUTE[COLUMNS][CHANNELS];

// Reads COUNT columns from `column` on. Columns outside dy are not multiplied; columns outside x are zeros of the
// padding.
template <int COUNT, int BEFORE, int WIDTH>
__device__ __forceinline__ void read_row(COMPUTE (&values)[COUNT][CHANNELS], const ELEMENT* row, int column, int step,
                                         int extent, bool exists) {
  if constexpr (CHANNELS_LAST) {
#pragma unroll
    for (int i = 0; i < COUNT; i++) {
      const int at = column + i - BEFORE;
      const bool inside = exists && static_cast<unsigned>(at) < static_cast<unsigned>(extent);
#pragma unroll
      for (int c = 0; c < CHANNELS; c += WIDTH)
        read_packed<WIDTH>(row + static_cast<long long>(at) * step + c, inside, values[i] + c);
    }
  } else {
    // Reads vectors from `column` on, which is a multiple of their width, and single elements before and after them.
    constexpr int VECTORS = (COUNT - BEFORE) / WIDTH;
#pragma unroll
    for (int i = 0; i < VECTORS; i++) {
      const int at = column + i * WIDTH;
      const bool inside = exists && static_cast<unsigned>(at) < static_cast<unsigned>(extent);
      read_packed<WIDTH>(row + at, inside, values[BEFORE + i * WIDTH]);
    }
#pragma unroll
    for (int i = 0; i < COUNT; i++) {
      if (i >= BEFORE && i < BEFORE + VECTORS * WIDTH) continue;
      const int at = column + i - BEFORE;
      const bool inside = exists && static_cast<unsigned>(at) < static_cast<unsigned>(extent);
      values[i][0] = inside ? load<COMPUTE>(row[at]) : COMPUTE(0);
    }
  }
}

struct Sums {
  COMPUTE of[TAPS][CHANNELS];

  // Adds the products of the taps of one row, for the first `count` columns of dy.
  template <bool ALL>
  __device__ __forceinline__ void add(const Row& dy, const COMPUTE (&x)[X_COLUMNS][CHANNELS], int tap_row, int count) {
#pragma unroll
    for (int q = 0; q < COLUMNS; q++)
      if (ALL || q < count) {
#pragma unroll
        for (int s = 0; s < TAP_COLUMNS; s++)
#pragma unroll
          for (int c = 0; c < CHANNELS; c++) of[tap_row * TAP_COLUMNS + s][c] += dy[q][c] * x[q * COLUMN_STEP + s][c];
      }
  }
};

// Describes one chunk of rows.
struct Item {
  const ELEMENT *x, *dy;  // The image, at the first channel of the thread
  int column, count;      // first column of dy, number of existing columns
  int first, end;         // range of rows of dy
  int top, left;          // row and column of x under the part's first tap, for the first element of dy

  // Adds row `row` of dy and the rows of x that meet it first. window[k] becomes row `row`, and window[k - 1] is the
  // row before. EVERY means that all rows of the window belong to the item.
  template <bool EVERY, bool ALL>
  __device__ __forceinline__ void slide(const Arguments& a, Sums& sums, Row (&window)[DEPTH], int k, int row) const {
    if (EVERY || row < end)
      read_row<COLUMNS, 0, DY_WIDTH>(window[k], dy + row * a.dy_step[2], column, static_cast<int>(a.dy_step[3]),
                                     a.output[1], true);
#pragma unroll
    for (int j = 0; j < ROW_STEP; j++) {
      const int y = row * ROW_STEP + top + j;
      COMPUTE values[X_COLUMNS][CHANNELS];
      read_row<X_COLUMNS, COLUMN_PADDING, X_WIDTH>(values, x + y * a.x_step[2], column * COLUMN_STEP + left,
                                                   static_cast<int>(a.x_step[3]), a.input[1],
                                                   static_cast<unsigned>(y) < static_cast<unsigned>(a.input[0]));
#pragma unroll
      for (int i = 0; i < DEPTH; i++)
        if (j + ROW_STEP * i < TAP_ROWS && (EVERY || (row - i >= first && row - i < end)))
          sums.add<ALL>(window[(k - i + DEPTH) % DEPTH], values, j + ROW_STEP * i, count);
    }
  }

  template <bool ALL> __device__ __forceinline__ void walk(const Arguments& a, Sums& sums) const {
    Row window[DEPTH] = {};
    for (int row = first; row < end + DEPTH - 1; row += DEPTH) {
      if (row >= first + DEPTH - 1 && row + DEPTH <= end) {
#pragma unroll
        for (int k = 0; k < DEPTH; k++) slide<true, ALL>(a, sums, window, k, row + k);
      } else {
#pragma unroll
        for (int k = 0; k < DEPTH; k++)
          if (row + k < end + DEPTH - 1) slide<false, ALL>(a, sums, window, k, row + k);
      }
    }
  }
};

extern "C" __global__ void __launch_bounds__(THREADS, BLOCKS) convolution_depthwise_filter_gradient(const Arguments a) {
  griddepcontrol_wait();
  __shared__ COMPUTE shared[SLOTS][32][PITCH];
  const int vectors = 1 << a.log_vectors, lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  const Part window(a);
  unsigned channel_block;
  const unsigned part = a.channel_blocks.divide(window.block, channel_block);
  const unsigned parts = window.blocks / a.channel_blocks.divisor;
  const int first_channel = channel_block * vectors * CHANNELS, channel = first_channel + lane % vectors * CHANNELS;
  Sums sums = {};
  if (channel < a.channels)
    for (unsigned i = part * (THREADS >> a.log_vectors) + (threadIdx.x >> a.log_vectors);
         i < static_cast<unsigned>(a.items); i += parts * (THREADS >> a.log_vectors)) {
      unsigned tile, chunk;
      const unsigned image = a.chunks.divide(a.tiles.divide(i, tile), chunk);
      Item item;
      item.x = a.x + image * a.x_step[0] + channel * a.x_step[1];
      item.dy = a.dy + image * a.dy_step[0] + channel * a.dy_step[1];
      item.column = tile * COLUMNS, item.count = a.output[1] - item.column;
      item.top = window.row - a.padding, item.left = window.column - a.left;
      item.first = chunk * a.chunk_rows, item.end = min(item.first + a.chunk_rows, a.output[0]);
      if (item.count >= COLUMNS) item.walk<true>(a, sums);
      else item.walk<false>(a, sums);
    }
#pragma unroll
  for (int t = 0; t < TAPS; t++)
#pragma unroll
    for (int c = 0; c < CHANNELS; c++)
      for (int distance = 16; distance >= vectors; distance /= 2)
        sums.of[t][c] += __shfl_xor_sync(~0u, sums.of[t][c], distance);
#pragma unroll
  for (int first = 0; first < WARPS; first += SLOTS) {
    if (lane < vectors && warp >= first && warp < first + SLOTS) {
#pragma unroll
      for (int t = 0; t < TAPS; t++)
#pragma unroll
        for (int c = 0; c < CHANNELS; c++) {
          COMPUTE& sum = shared[warp - first][lane][c * TAPS + t];
          sum = first ? sum + sums.of[t][c] : sums.of[t][c];
        }
    }
    __syncthreads();
  }
  COMPUTE* to = a.partial + static_cast<long long>(part) * a.channels * (a.window[0] * a.window[1]);
  for (int i = threadIdx.x; i < vectors * CHANNELS * TAPS; i += THREADS) {
    const int vector = i / (CHANNELS * TAPS), element = i % (CHANNELS * TAPS), tap = element % TAPS;
    const int of = first_channel + vector * CHANNELS + element / TAPS;
    if (of >= a.channels) continue;
    COMPUTE sum = shared[0][vector][element];
#pragma unroll
    for (int w = 1; w < SLOTS; w++) sum += shared[w][vector][element];
    window.write(a, to, of, tap, sum);
  }
}

// --- The kernel for NHWC, fed by TMA ---

#if CHANNELS_LAST && CHANNELS == 2
constexpr int MAX_STAGES = 8;  // stages of the ring
constexpr int MAX_WARPS = 8;   // warps that add, without the one that loads
constexpr int COLUMN_BYTES = 32 * CHANNELS * static_cast<int>(sizeof(ELEMENT));  // bytes per column of a box

struct TmaArguments {
  const ELEMENT* x;  // The maps read the operands.
  const ELEMENT* dy;
  COMPUTE* partial;  // [block that shares channels][channel][tap]
  long long reserved[5];
  TensorMap image, incoming;
  int output[2];
  int padding, chunk_rows;
  int channels, items, flipped;
  // number of stages; bytes of the rows of x, which precede a row of dy; bytes per stage
  int stages, x_bytes, stage_bytes;
  FastDivmod tiles, chunks;
  FastDivmod channel_blocks;
  FastDivmod parts, parts_across;
  int window[2], left;
};

// Describes the block's chunk of rows.
struct Chunk {
  unsigned image;
  int column, first, end;  // column and range of rows of dy
  __device__ __forceinline__ Chunk(const TmaArguments& a, unsigned item, int columns) {
    unsigned tile, chunk;
    image = a.chunks.divide(a.tiles.divide(item, tile), chunk);
    column = tile * columns, first = chunk * a.chunk_rows, end = min(first + a.chunk_rows, a.output[0]);
  }
};

struct Ring {
  unsigned char* stages;
  Mbarrier *full, *empty;
  int stage = 0, parity = 0;
  __device__ __forceinline__ void advance(int count) {
    if (++stage == count) stage = 0, parity ^= 1;
  }
};

template <bool ALL>
__device__ __forceinline__ void slide_chunk(const TmaArguments& a, const Chunk& chunk, Ring& ring, int warp, int count,
                                            Sums& sums) {
  const int lane = threadIdx.x % 32;
  Row window[DEPTH] = {};
  for (int row = chunk.first; row < chunk.end + DEPTH - 1; row += DEPTH)
#pragma unroll
    for (int k = 0; k < DEPTH; k++) {
      if (row + k >= chunk.end + DEPTH - 1) break;
      mbarrier_wait_parity(&ring.full[ring.stage], ring.parity);
      const unsigned char* from =
          ring.stages + ring.stage * a.stage_bytes + lane * static_cast<int>(sizeof(Packed<CHANNELS>));
      const unsigned char* dy = from + a.x_bytes + warp * COLUMNS * COLUMN_BYTES;
#pragma unroll
      for (int q = 0; q < COLUMNS; q++) {
        convert_packed<CHANNELS>(*reinterpret_cast<const Packed<CHANNELS>*>(dy + q * COLUMN_BYTES), window[k][q]);
      }
      const int x_row_bytes = a.x_bytes / ROW_STEP;
#pragma unroll
      for (int j = 0; j < ROW_STEP; j++) {
        const unsigned char* x = from + j * x_row_bytes + warp * COLUMNS * COLUMN_STEP * COLUMN_BYTES;
        COMPUTE values[X_COLUMNS][CHANNELS];
#pragma unroll
        for (int i = 0; i < X_COLUMNS; i++) {
          convert_packed<CHANNELS>(*reinterpret_cast<const Packed<CHANNELS>*>(x + i * COLUMN_BYTES), values[i]);
        }
        if (j == ROW_STEP - 1) {
          __syncwarp();
          if (lane == 0) mbarrier_arrive(&ring.empty[ring.stage]);
        }
#pragma unroll
        for (int i = 0; i < DEPTH; i++)
          if (j + ROW_STEP * i < TAP_ROWS && row + k - i >= chunk.first && row + k - i < chunk.end)
            sums.add<ALL>(window[(k - i + DEPTH) % DEPTH], values, j + ROW_STEP * i, count);
      }
      ring.advance(a.stages);
    }
}

extern "C" __global__ void __launch_bounds__((MAX_WARPS + 1) * 32, TMA_BLOCKS)
    convolution_depthwise_filter_gradient_tma(const __grid_constant__ TmaArguments a) {
  griddepcontrol_wait();
  const int warps = blockDim.x / 32 - 1, warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  const Part window(a);
  unsigned channel_block;
  const unsigned part = a.channel_blocks.divide(window.block, channel_block);
  const unsigned parts = window.blocks / a.channel_blocks.divisor;
  const int first_channel = channel_block * 32 * CHANNELS, columns = warps * COLUMNS;
#if defined(EMULATED_CUDA) || __CUDA_ARCH__ >= 900
  __shared__ Mbarrier full[MAX_STAGES], empty[MAX_STAGES];
  Ring ring{shared_memory + (-reinterpret_cast<uintptr_t>(shared_memory) & 127), full, empty};
  if (threadIdx.x == 0) {
    for (int i = 0; i < a.stages; i++) mbarrier_init(&full[i], 1), mbarrier_init(&empty[i], warps);
    fence_mbarrier_init();
  }
  __syncthreads();
  if (warp == warps) {
    if (lane == 0)
      for (unsigned item = part; item < static_cast<unsigned>(a.items); item += parts) {
        const Chunk chunk(a, item, columns);
        for (int row = chunk.first; row < chunk.end + DEPTH - 1; row++, ring.advance(a.stages)) {
          unsigned char* to = ring.stages + ring.stage * a.stage_bytes;
          mbarrier_wait_parity(&empty[ring.stage], ring.parity ^ 1);
          mbarrier_arrive_expect_tx(&full[ring.stage], a.stage_bytes);
          tma_load_4d(to, a.image, &full[ring.stage], first_channel,
                      chunk.column * COLUMN_STEP + window.column - a.left, row * ROW_STEP + window.row - a.padding,
                      chunk.image);
          tma_load_4d(to + a.x_bytes, a.incoming, &full[ring.stage], first_channel, chunk.column, row, chunk.image);
        }
      }
  }
  Sums sums = {};
  if (warp < warps)
    for (unsigned item = part; item < static_cast<unsigned>(a.items); item += parts) {
      const Chunk chunk(a, item, columns);
      const int count = a.output[1] - chunk.column - warp * COLUMNS;
      if (count >= COLUMNS) slide_chunk<true>(a, chunk, ring, warp, count, sums);
      else slide_chunk<false>(a, chunk, ring, warp, count, sums);
    }
  __syncthreads();
  COMPUTE* const shared = reinterpret_cast<COMPUTE*>(ring.stages);
  if (warp < warps)
#pragma unroll
    for (int t = 0; t < TAPS; t++)
#pragma unroll
      for (int c = 0; c < CHANNELS; c++) shared[(warp * 32 + lane) * PITCH + c * TAPS + t] = sums.of[t][c];
  __syncthreads();
  COMPUTE* to = a.partial + static_cast<long long>(part) * a.channels * (a.window[0] * a.window[1]);
  for (int i = threadIdx.x; i < 32 * CHANNELS * TAPS; i += blockDim.x) {
    const int vector = i / (CHANNELS * TAPS), element = i % (CHANNELS * TAPS), tap = element % TAPS;
    const int of = first_channel + vector * CHANNELS + element / TAPS;
    if (of >= a.channels) continue;
    COMPUTE sum = shared[vector * PITCH + element];
    for (int w = 1; w < warps; w++) sum += shared[(w * 32 + vector) * PITCH + element];
    window.write(a, to, of, tap, sum);
  }
#endif
}
#endif
