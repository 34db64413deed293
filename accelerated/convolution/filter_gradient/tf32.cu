// This file computes filter gradients (6.2.2) on Hopper's tensor cores (wgmma) in TF32, fed by TMA.
//
// Tiling: a block multiplies 256 or 128 rows by 128 or 64 columns, 32 pixels at a time (tma.cuh). Rows are channels of
// x under a tap, MN-major in place. Tensor cores do not transpose 32-bit elements, so lanes read the rows from shared
// memory. Columns are filters, from a copy of dy with contiguous pixels. With 128 rows, each of two warpgroups takes
// every other K-block.
//
// Roofline bound: flops, 2 * pixels * elements of dw at 495 TFLOP/s, or the bytes of x and dy where dw is small. Shared
// memory is the next bound: a K-block of 256 x 128 reads 64 KiB and writes 48 KiB in 1024 clocks. On an H100,
// 64x256x56x56 with 256 filters of 3x3 takes 670 us (353 TFLOP/s), and the copy of dy 151 us.
#include "convolution/filter_gradient/tma.cuh"

template <int ROW_BOXES, int COLUMN_COUNT, int STAGES>
struct Multiplication : TmaPipeline<STAGES, ROW_BOXES * BOX_BYTES + COLUMN_COUNT * ROW_BYTES> {
  using Pipeline = TmaPipeline<STAGES, ROW_BOXES * BOX_BYTES + COLUMN_COUNT * ROW_BYTES>;
  static constexpr int WARPS = WARPGROUP / 32;  // Each warp has a box of rows.
  static constexpr bool SPLIT_K = ROW_BOXES < CONSUMERS * WARPS;
  static constexpr int ALL_ROWS = ROW_BOXES * BOX, COLUMNS = COLUMN_COUNT;
  static_assert(has_own_stages(STAGES, SPLIT_K ? CONSUMERS : 1));
  static constexpr int READERS = WARPGROUP * (SPLIT_K ? 1 : CONSUMERS);  // threads that read a stage
  static constexpr bool MOVES_REGISTERS = true;

  const Arguments& a;
  Finisher<Order::ROWS, ALL_ROWS, COLUMNS, SPLIT_K> finisher;

  __device__ __forceinline__ void produce() {
    Segment segment;
    for (Walk walk(a.division, blockIdx.x); walk.advance(a.division, segment);) {
      unsigned row, column;
      const unsigned group = find_tile(a.division, segment.tile, row, column);
      const int first = group * a.columns.channels + column * COLUMNS;
      const Boxes<ROW_BOXES, 0> boxes(a, group, row, 0);
      for (unsigned k_block = segment.first; k_block < segment.first + segment.count; k_block++) {
        unsigned char* to = this->open_stage(boxes.expected(COLUMN_COUNT * ROW_BYTES));
        Mbarrier* full = &this->full[this->stage];
        boxes.load(to, full, k_block);
        if (loader() == 0) tma_load_3d(to + ROW_BOXES * BOX_BYTES, a.column_map, full, k_block * BOX, first, 0);
        this->advance(1);
      }
    }
  }

  __device__ __forceinline__ void consume() {
    const int group = threadIdx.x / WARPGROUP - 1, warp = threadIdx.x / 32 % WARPS;
    const int left = ((SPLIT_K ? 0 : group * WARPS) + warp) * BOX_BYTES;
    unsigned done = 0;  // K-blocks of the block so far
    if (SPLIT_K) this->advance(group);
    Segment segment;
    for (Walk walk(a.division, blockIdx.x); walk.advance(a.division, segment);) {
      finisher.begin(segment);
      float sums[2][COLUMNS / 2];
#pragma unroll
      for (int b = 0; b < 2; b++)
#pragma unroll
        for (int i = 0; i < COLUMNS / 2; i++) sums[b][i] = 0;
      int count = segment.count;
      if (SPLIT_K) count = (segment.count + 1 - ((group ^ done) & 1)) / 2, done += segment.count;
      const unsigned previous = this->template multiply_from_registers<ELEMENT, COLUMNS, SPLIT_K ? CONSUMERS : 1>(
          sums, left, ROW_BOXES * BOX_BYTES, count);
      wgmma_wait<0>();
      if (count > 0) this->release_by_lane(previous);
#pragma unroll
      for (int b = 0; b < 2; b++) wgmma_fence_accumulators(sums[b]);
      finisher.finish(segment, sums);
    }
  }
};

// NAME gives the rows x columns of a tile.
#define KERNEL(NAME, ...)                                                            \
  extern "C" __global__ void __launch_bounds__((CONSUMERS + 1) * WARPGROUP, 1)       \
      convolution_filter_gradient_tf32_##NAME(const __grid_constant__ Arguments a) { \
    griddepcontrol_wait_deferred();                                                  \
    multiply<Multiplication<__VA_ARGS__>>(a);                                        \
  }
KERNEL(256x128, 8, 128, 4)
KERNEL(128x128, 4, 128, 6)
KERNEL(128x64, 4, 64, 8)
