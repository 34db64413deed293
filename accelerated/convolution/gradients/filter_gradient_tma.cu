// Gradients of a convolution with respect to its filter (6.2.2) on Hopper's tensor cores (wgmma), fed by TMA: half and
// bfloat16, channels innermost; PLANES: filters of one tap, x and dy in planes, TF32, too.
//
// Tiling: products of 128 or 64 rows by 256 or 128 columns and 128 bytes of pixels (filter_gradient_tma.cuh). dy and x
// are both MN-major as they lie, in planes K-major, with pixels of one image in a K-block; either may be the rows. With
// 64 rows two warpgroups take every other K-block.
//
// Roofline bound: flops, 2 * pixels * elements of dw at 989 T/s, or the bytes of x and dy where dw is small. L2 comes
// next: a K-block of 128 x 256 loads 48 KiB in 1024 clocks. 64x256x56x56, 256 filters of 3x3, an H100: 295 us, 803 T/s.
#include "convolution/gradients/filter_gradient_tma.cuh"

#ifndef TF32
#define TF32 0
#endif

template <int ROWS, int COLUMNS, int STAGES, bool PLANES>
struct Multiplication : TmaPipeline<STAGES, (ROWS + COLUMNS) * ROW_BYTES> {
  using Pipeline = TmaPipeline<STAGES, (ROWS + COLUMNS) * ROW_BYTES>;
  static constexpr bool SPLIT_K = ROWS < CONSUMERS * 64;
  static constexpr int ROW_BOXES = ROWS / BOX, COLUMN_BOXES = COLUMNS / BOX;
  static constexpr int SLOT = CONSUMERS * 64 * COLUMNS;  // sums that a block stores of a tile
  static_assert(PLANES || BOX == 64);

  const Arguments& a;

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
        unsigned char* to = this->open_stage();
        Mbarrier* full = &this->full[this->stage];
        if constexpr (PLANES) {  // boxes of pixels of an image: one box of all channels for each operand
          const unsigned image = a.width.divide(k_block, at[0]);
          tma_load_3d(to, a.row_map, full, at[0] * BOX, row * ROWS, image);
          tma_load_3d(to + ROWS * ROW_BYTES, a.column_map, full, at[0] * BOX, column * COLUMNS, image);
        } else {
          at[0] = a.height.divide(a.width.divide(k_block * BOX, at[2]), at[1]);
          load_boxes(to, a.row_map, full, a.rows, rows, at);
          load_boxes(to + ROWS * ROW_BYTES, a.column_map, full, a.columns, columns, at);
        }
        this->advance(1);
      }
    }
  }

  __device__ __forceinline__ void consume() {
    const int group = threadIdx.x / WARPGROUP - 1;
    unsigned done = 0;  // K-blocks of the block
    if (SPLIT_K) this->advance(group);
    Segment segment;
    for (Walk walk(a.division, blockIdx.x); walk.advance(a.division, segment);) {
      float sums[1][COLUMNS / 2];
#pragma unroll
      for (int i = 0; i < COLUMNS / 2; i++) sums[0][i] = 0;
      int count = segment.count;
      if (SPLIT_K) count = (segment.count + 1 - ((group ^ done) & 1)) / 2, done += segment.count;
      const int left = SPLIT_K ? 0 : group * 64 * ROW_BYTES;
      const unsigned previous = this->template multiply<ELEMENT, COLUMNS, 1, !PLANES, !PLANES, SPLIT_K ? CONSUMERS : 1>(
          sums, left, 0, ROWS * ROW_BYTES, count);
      wgmma_wait<0>();
      if (count > 0) this->release(previous);
      wgmma_fence_accumulators(sums[0]);
      store_sums(a.partial + static_cast<long long>(segment.slot) * SLOT + group * (SLOT / CONSUMERS), sums);
    }
  }
};

template <int ROWS, int COLUMNS, int STAGES, bool PLANES = false>
__device__ __forceinline__ void multiply(const Arguments& a) {
#if defined(EMULATED_CUDA) || defined(WGMMA_INSTRUCTIONS)
  using M = Multiplication<ROWS, COLUMNS, STAGES, PLANES>;
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
#if !TF32
KERNEL(128x256, 128, 256, 4)
KERNEL(128x128, 128, 128, 6)
KERNEL(64x256, 64, 256, 5)
KERNEL(64x128, 64, 128, 8)
#endif
KERNEL(planes_128x256, 128, 256, 4, true)
KERNEL(planes_128x128, 128, 128, 6, true)
KERNEL(planes_64x256, 64, 256, 5, true)
KERNEL(planes_64x128, 64, 128, 8, true)

extern "C" __global__ void __launch_bounds__(SUM_THREADS) convolution_filter_gradient_tma_sum(const SumArguments a) {
  griddepcontrol_wait();
  if (a.lanes > 1) sum_parts<RowsOfStages, MOST_LANES>(a);
  else sum_parts<RowsOfStages, 1>(a);
}
