// This file computes filter gradients (6.2.2) in TF32 by warp products (mma.sync), fed by TMA. It is for problems that
// the bytes of x and dy bound, so that a copy of either would cost more than the products.
//
// Tiling: products of 256 rows by 64 columns and 32 pixels (tma.cuh). Both operands are MN-major in place. Lanes read
// them from shared memory; a warp has 32 rows and all columns.
//
// Roofline bound: bytes, x and dy read once: 61 us for 64x64x56x56, 256 filters of 1x1, at 4.2 TB/s. Shared memory is
// the next bound: a K-block reads 96 KiB and writes 40 KiB in 1088 of the 2200 clocks that the memory takes.
#include "convolution/filter_gradient/tma.cuh"

template <int ROW_BOXES, int COLUMN_BOXES, int STAGES>
struct Multiplication : TmaPipeline<STAGES, (ROW_BOXES + COLUMN_BOXES) * BOX_BYTES> {
  using Pipeline = TmaPipeline<STAGES, (ROW_BOXES + COLUMN_BOXES) * BOX_BYTES>;
  static constexpr int COLUMNS = COLUMN_BOXES * BOX, STEPS = 4;  // products per K-block
  static constexpr int ALL_ROWS = ROW_BOXES * BOX;
  static constexpr int READERS = WARPGROUP * CONSUMERS;  // threads that read a stage
  static constexpr bool MOVES_REGISTERS = false;

  const Arguments& a;
  Finisher<Order::BOTH, ALL_ROWS, COLUMNS, false> finisher;

  __device__ __forceinline__ void produce() {
    Segment segment;
    for (Walk walk(a.division, blockIdx.x); walk.advance(a.division, segment);) {
      unsigned row, column;
      const unsigned group = find_tile(a.division, segment.tile, row, column);
      const Boxes<ROW_BOXES> rows(a.rows, group, row);
      const Boxes<COLUMN_BOXES> columns(a.columns, group, column);
      for (unsigned k_block = segment.first; k_block < segment.first + segment.count; k_block++) {
        const Pixel at(a, k_block);
        unsigned char* to = this->open_stage();
        Mbarrier* full = &this->full[this->stage];
        rows.load(to, a.row_map, full, a.rows, at);
        columns.load(to + ROW_BOXES * BOX_BYTES, a.column_map, full, a.columns, at);
        this->advance(1);
      }
    }
  }

  // Column lane / 4 of the n-th group of eight is column 16 * (lane / 16) + 4 * n + lane / 4 % 4 of its box. No two
  // lanes share a bank (TmaPipeline::read_left).
  __device__ __forceinline__ void read_right(int step, int right, int n, unsigned (&fragment)[2]) const {
    const unsigned char* box = this->stages + this->stage * this->STAGE_BYTES + right;
    const int lane = threadIdx.x % 32;
#pragma unroll
    for (int i = 0; i < 2; i++)
      fragment[i] = *reinterpret_cast<const unsigned*>(swizzled(box, step * 8 + i * 4 + lane % 4, lane / 16 * 4 + n) +
                                                       lane / 4 % 4 * 4);
  }

  __device__ __forceinline__ void consume() {
    const int left = (threadIdx.x / 32 - WARPGROUP / 32) * BOX_BYTES;
    Segment segment;
    for (Walk walk(a.division, blockIdx.x); walk.advance(a.division, segment);) {
      finisher.begin(segment);
      float sums[2][COLUMNS / 2] = {};
      for (unsigned k_block = 0; k_block < segment.count; k_block++) {
        mbarrier_wait_parity(&this->full[this->stage], this->parity);
#pragma unroll
        for (int step = 0; step < STEPS; step++) {
          unsigned rows[2][4];
          this->read_left(step, left, rows);
#pragma unroll
          for (int n = 0; n < COLUMNS / 8; n++) {
            unsigned columns[2];
            read_right(step, (ROW_BOXES + n / 4) * BOX_BYTES, n % 4, columns);
#pragma unroll
            for (int b = 0; b < 2; b++) {
              float (&sum)[4] = reinterpret_cast<float (&)[4]>(sums[b][4 * n]);
              mma_sync<ELEMENT>(sum, rows[b], columns);
            }
          }
        }
        this->release_by_lane(this->stage);
        this->advance(1);
      }
      finisher.finish(segment, sums);
    }
  }
};

// NAME gives the rows x columns of a tile.
#define KERNEL(NAME, ...)                                                                \
  extern "C" __global__ void __launch_bounds__((CONSUMERS + 1) * WARPGROUP, 1)           \
      convolution_filter_gradient_tf32_mma_##NAME(const __grid_constant__ Arguments a) { \
    griddepcontrol_wait();                                                               \
    multiply<Multiplication<__VA_ARGS__>>(a);                                            \
  }
KERNEL(256x64, 8, 2, 5)
