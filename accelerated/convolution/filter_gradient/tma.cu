// This file computes filter gradients (6.2.2) on Hopper's tensor cores (wgmma), fed by TMA: half and bfloat16 in NHWC.
// The NCHW variant serves filters of one tap, also in TF32.
//
// Tiling: a block multiplies 128 or 64 rows by 256 or 128 columns, 128 bytes of pixels at a time (tma.cuh). dy and x
// are both MN-major in place. In NCHW they are K-major, and a K-block has pixels of one image. Either may be the rows.
// With 64 rows, each of two warpgroups takes every other K-block.
//
// Roofline bound: flops, 2 * pixels * elements of dw at 989 TFLOP/s, or the bytes of x and dy where dw is small. L2 is
// the next bound: a K-block of 128 x 256 loads 48 KiB in 1024 clocks. 64x256x56x56 with 256 filters of 3x3 takes 295 us
// (803 TFLOP/s) on an H100.
#include "convolution/filter_gradient/tma.cuh"

#ifndef TF32
#define TF32 0
#endif

template <int ROWS, int COLUMN_COUNT, int STAGES, bool NCHW = false>
struct Multiplication : TmaPipeline<STAGES, (ROWS + COLUMN_COUNT) * ROW_BYTES> {
  using Pipeline = TmaPipeline<STAGES, (ROWS + COLUMN_COUNT) * ROW_BYTES>;
  static constexpr bool SPLIT_K = ROWS < CONSUMERS * 64;
  static constexpr int ROW_BOXES = ROWS / BOX, COLUMN_BOXES = COLUMN_COUNT / BOX;
  static constexpr int ALL_ROWS = ROWS, COLUMNS = COLUMN_COUNT;
  static constexpr int STEP = SPLIT_K ? CONSUMERS : 1;  // stride between the K-blocks of a warpgroup
  static_assert(NCHW || BOX == 64);
  static_assert(has_own_stages(STAGES, STEP));
  static constexpr int READERS = WARPGROUP * (SPLIT_K ? 1 : CONSUMERS);  // threads that read a stage
  static constexpr bool MOVES_REGISTERS = true;

  const Arguments& a;
  Finisher<Order::STAGES, ALL_ROWS, COLUMNS, SPLIT_K> finisher;

  __device__ __forceinline__ void produce() {
    Segment segment;
    for (Walk walk(a.division, blockIdx.x); walk.advance(a.division, segment);) {
      unsigned row, column;
      const unsigned group = find_tile(a.division, segment.tile, row, column);
      const Boxes<ROW_BOXES, COLUMN_BOXES> boxes(a, group, row, column);
      for (unsigned k_block = segment.first; k_block < segment.first + segment.count; k_block++) {
        unsigned char* to = this->open_stage(NCHW ? (loader() == 0) * this->STAGE_BYTES : boxes.expected());
        Mbarrier* full = &this->full[this->stage];
        if constexpr (NCHW) {  // Each operand has one box of all channels for the pixels of an image.
          unsigned box;
          const unsigned image = a.width.divide(k_block, box);
          if (loader() == 0) tma_load_3d(to, a.row_map, full, box * BOX, row * ROWS, image);
          if (loader() == 1) tma_load_3d(to + ROWS * ROW_BYTES, a.column_map, full, box * BOX, column * COLUMNS, image);
        } else {
          boxes.load(to, full, k_block);
        }
        this->advance(1);
      }
    }
  }

  __device__ __forceinline__ void consume() {
    const int group = threadIdx.x / WARPGROUP - 1;
    unsigned done = 0;  // K-blocks of the block so far
    if (SPLIT_K) this->advance(group);
    Segment segment;
    for (Walk walk(a.division, blockIdx.x); walk.advance(a.division, segment);) {
      finisher.begin(segment);
      float sums[1][COLUMNS / 2];
#pragma unroll
      for (int i = 0; i < COLUMNS / 2; i++) sums[0][i] = 0;
      int count = segment.count;
      if (SPLIT_K) count = (segment.count + 1 - ((group ^ done) & 1)) / 2, done += segment.count;
      const int left = SPLIT_K ? 0 : group * 64 * ROW_BYTES;
      const unsigned previous =
          this->template multiply<ELEMENT, COLUMNS, 1, !NCHW, !NCHW, STEP>(sums, left, 0, ROWS * ROW_BYTES, count);
      wgmma_wait<0>();
      if (count > 0) this->release(previous);
      wgmma_fence_accumulators(sums[0]);
      finisher.finish(segment, sums);
    }
  }
};

// NAME gives the rows x columns of a tile.
#define KERNEL(NAME, ...)                                                           \
  extern "C" __global__ void __launch_bounds__((CONSUMERS + 1) * WARPGROUP, 1)      \
      convolution_filter_gradient_tma_##NAME(const __grid_constant__ Arguments a) { \
    griddepcontrol_wait_deferred();                                                 \
    multiply<Multiplication<__VA_ARGS__>>(a);                                       \
  }
#if !TF32
KERNEL(64x128, 64, 128, 8)
KERNEL(128x256, 128, 256, 4)
KERNEL(128x128, 128, 128, 6)
#endif
KERNEL(nchw_128x128, 128, 128, 6, true)
KERNEL(nchw_64x128, 64, 128, 8, true)
#if TF32
KERNEL(nchw_128x256, 128, 256, 4, true)
#endif
