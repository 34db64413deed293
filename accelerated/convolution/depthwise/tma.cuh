// This part of depthwise.cu computes thread tiles in NHWC whose rows TMA loads.
//
// Each block computes some channels, columns and rows of an image. One producer warp loads groups of STEP rows of x by
// TMA into a ring in shared memory. The rows include the halo of windows on both sides, and zeros for the padding. The
// loads run far enough ahead to keep the memory busy. Each thread of the other warps slides down its tile, as in
// convolution_depthwise_static, but without checks of bounds.
//
// 64x256x56x56 in half, 3 x 3, stride 1, takes 58 us on an H200 (the bytes take 49, convolution_depthwise_static 72).
// The kernel takes 30 us without loads and stores, 32 with loads alone, and 42 with stores alone. The rest is lost when
// memory switches between loads and stores.
#pragma once

constexpr int MAX_STAGES = 8;
constexpr int BOX_CHANNEL_BYTES = 128;  // bytes per column of a box
constexpr int VECTOR_BYTES = CHANNELS * static_cast<int>(sizeof(ELEMENT)),
              BOX_VECTORS = BOX_CHANNEL_BYTES / VECTOR_BYTES;

// Describes an index of the ring: a stage, and the parity of its phase.
struct Stage {
  int index = 0, parity = 0;

  __device__ __forceinline__ void advance(int stages) {
    if (++index == stages) index = 0, parity ^= 1;
  }
};

// Describes the block's part of the tensors: the first channel, row and column of y.
struct Part {
  unsigned image, channel, row, column;
  int rows, groups;  // rows of y; groups of rows of x

  __device__ __forceinline__ explicit Part(const Arguments& a) {
    unsigned block, column_tile, row_tile;
    const unsigned index = a.columns.divide(a.blocks.divide(blockIdx.x, block), column_tile);
    image = a.row_tiles.divide(index, row_tile);
    channel = block * a.ring.vectors.divisor * CHANNELS, column = column_tile * a.ring.columns, row = row_tile * a.rows;
    const int below = a.convolution.output[1].divisor - row;
    rows = below < a.rows ? below : a.rows;
    groups = rows + OPEN - 1;
  }
};

// One thread loads all rows.
__device__ __forceinline__ void load_rows(const Arguments& a, const Part& part, unsigned char* stages, Mbarrier* full,
                                          Mbarrier* empty) {
  const Convolution& c = a.convolution;
  const int row = static_cast<int>(part.row) * STEP - c.padding[1],
            column = static_cast<int>(part.column) * STEP - c.padding[2];
  const int stage_bytes = a.ring.boxes * a.ring.box_bytes;
  Stage stage;
  for (int group = 0; group < part.groups; group++, stage.advance(a.ring.stages)) {
    mbarrier_wait_parity(&empty[stage.index], stage.parity ^ 1);
    mbarrier_arrive_expect_tx(&full[stage.index], stage_bytes);
    for (int box = 0; box < a.ring.boxes; box++)
      tma_load_4d(stages + stage.index * stage_bytes + box * a.ring.box_bytes, a.image, &full[stage.index],
                  part.channel + box * BOX_VECTORS * CHANNELS, column, row + group * STEP, part.image);
  }
}

__device__ __forceinline__ void pipelined_tiles(const Arguments& a) {
#if defined(EMULATED_CUDA) || __CUDA_ARCH__ >= 900
  __shared__ Mbarrier full[MAX_STAGES], empty[MAX_STAGES];
  const Ring& ring = a.ring;
  const unsigned producer = blockDim.x - 32;  // first thread of the last warp
  const int stage_bytes = ring.boxes * ring.box_bytes;
  unsigned char* stages = shared_memory + (-reinterpret_cast<uintptr_t>(shared_memory) & 127);
  if (threadIdx.x == 0) {
    for (int i = 0; i < ring.stages; i++) mbarrier_init(&full[i], 1), mbarrier_init(&empty[i], producer / 32);
    fence_mbarrier_init();
  }
  __syncthreads();
  const Part part(a);
  if (threadIdx.x >= producer) {
    if (threadIdx.x == producer) load_rows(a, part, stages, full, empty);
    return;
  }

  unsigned vector;
  const unsigned column_tile = ring.vectors.divide(threadIdx.x, vector);
  const Convolution& c = a.convolution;
  Work work{part.image, part.channel + vector * CHANNELS, 0, part.row, part.column + column_tile * COLUMNS};
  // Threads beyond the block's columns or the tensor's channels compute like the others, on unused values, and write
  // nothing.
  const bool exists = column_tile * COLUMNS < ring.columns && work.channel < a.channels;
  const unsigned char* own =
      stages + (exists ? vector / BOX_VECTORS * ring.box_bytes + (column_tile * COLUMNS * STEP) * BOX_CHANNEL_BYTES +
                             vector % BOX_VECTORS * VECTOR_BYTES
                       : 0);
  if (!exists) work.channel = 0, work.column = c.output[2].divisor;
  const int width = c.output[2].divisor - work.column;
  ELEMENT* const y = a.y + work.image * c.y_pixel[0];
  const unsigned step = c.y_pixel[3], row_step = c.y_pixel[2];
  unsigned at = work.row * row_step + work.column * step + work.channel;
  Taps taps;
  Sums sums{};
  read_taps(a.w + work.channel * TAPS, c.flipped, taps);

  Stage stage;
  for (int first = 0; first < part.groups; first += OPEN)
#pragma unroll
    for (int phase = 0; phase < OPEN; phase++) {
      const int group = first + phase;
      if (group >= part.groups) return;
      mbarrier_wait_parity(&full[stage.index], stage.parity);
      const unsigned char* from = own + stage.index * stage_bytes;
#pragma unroll
      for (int t = 0; t < STEP; t++) {
        Row row;
        row.take(from + t * ring.row_bytes, BOX_CHANNEL_BYTES);
        if (t == STEP - 1) {
          __syncwarp();
          if (threadIdx.x % 32 == 0) mbarrier_arrive(&empty[stage.index]);
        }
        add_row(row, taps, phase, t, sums, [](int) { return true; });  // Rows outside the part are not written.
      }
      stage.advance(ring.stages);
      if (group < OPEN - 1) continue;
      COMPUTE(&sum)[COLUMNS][CHANNELS] = sums[(phase + 1) % OPEN];
      if (!a.plain) finish_row(a, work.image * c.y_pixel[0] + at, work, sum);
      unsigned column = at;
      if (width >= COLUMNS) {
#pragma unroll
        for (int q = 0; q < COLUMNS; q++, column += step)
          *reinterpret_cast<Vector<ELEMENT, CHANNELS>*>(y + column) = vector_of(sum, q);
      } else {
#pragma unroll
        for (int q = 0; q < COLUMNS; q++, column += step)
          if (q < width) *reinterpret_cast<Vector<ELEMENT, CHANNELS>*>(y + column) = vector_of(sum, q);
      }
      at += row_step;
    }
#endif
}
