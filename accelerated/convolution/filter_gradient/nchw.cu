// This file computes filter gradients (6.2.2) in TF32 by warp products (mma.sync), fed by TMA, of x and dy in NCHW in
// place. Four channels are a row of their maps, because the pixels of one are not a multiple of 16 bytes.
//
// Tiling: a block multiplies 256 rows by 64 columns, 29 pixels of an image at a time (tma.cuh). Lanes read both
// operands from shared memory; a warp has 32 rows and all columns.
//
// Roofline bound: bytes, x and dy read once: 61 us for 64x64x56x56, 256 filters of 1x1, at 4.2 TB/s. Shared memory is
// the next bound: a K-block reads 96 KiB and writes 40 KiB in 1088 of the 2200 clocks that the memory takes.
#include "convolution/filter_gradient/tma.cuh"

constexpr int MERGED = 4;                          // boxes per K-block
constexpr int MERGED_PIXELS = BOX - (MERGED - 1);  // Boxes begin at 16 bytes, up to three pixels early.

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
      find_tile(a.division, segment.tile, row, column);
      for (unsigned k_block = segment.first; k_block < segment.first + segment.count; k_block++) {
        unsigned char* to = this->open_stage((loader() == 0) * this->STAGE_BYTES);
        load_merged(to, &this->full[this->stage], k_block, row, column);
        this->advance(1);
      }
    }
  }

  // Loads the rows of each fourth channel of both operands, then those of the channels after them, and so on.
  __device__ __forceinline__ void load_merged(unsigned char* to, Mbarrier* full, unsigned k_block, unsigned row,
                                              unsigned column) const {
    constexpr int ROWS = ALL_ROWS / MERGED, COLUMN_ROWS = COLUMNS / MERGED;
    unsigned box;
    const unsigned image = a.width.divide(k_block, box);
    for (int i = loader(); i < MERGED; i += LOADERS) {
      const unsigned first = (i * a.height.divisor + box * MERGED_PIXELS) & ~3u;
      tma_load_3d(to + i * ROWS * ROW_BYTES, a.row_map, full, first, row * ROWS, image);
      tma_load_3d(to + (ALL_ROWS + i * COLUMN_ROWS) * ROW_BYTES, a.column_map, full, first, column * COLUMN_ROWS,
                  image);
    }
  }

  // Locates the values of a lane in merged rows. The lane has pixels 16 * (j / 4) + 4 * (lane % 4) + j % 4 of a
  // K-block, of channels whose remainder is lane / 4 % 4. Their rows begin up to three pixels early. No two lanes share
  // a bank where these shifts differ.
  struct Merged {
    unsigned offset[2 * STEPS];  // in a row, of its first channel
    bool exists[2 * STEPS];

    __device__ __forceinline__ Merged(const Arguments& a, unsigned k_block) {
      const int lane = threadIdx.x % 32;
      unsigned box;
      a.width.divide(k_block, box);
      const unsigned pixels = a.height.divisor, first = box * MERGED_PIXELS, count = min(pixels - first, MERGED_PIXELS);
      const unsigned shift = (lane / 4 % 4 * pixels + first) % 4;
#pragma unroll
      for (int j = 0; j < 2 * STEPS; j++) {
        const unsigned value = lane % 4 * 4 + j % 4 + shift, vector = value / 4 + j / 4 * 4;
        offset[j] = (vector % 8 ^ lane / 16 * 4) * 16 + value % 4 * 4;
        exists[j] = j / 4 * 16 + lane % 4 * 4 + j % 4 < count;
      }
    }
    // Reads value `j` of channel 4 * `i` + lane / 4 % 4 + 16 * (lane / 16) from rows of each fourth channel.
    __device__ __forceinline__ unsigned read(const unsigned char* rows, int i, int j) const {
      const unsigned found = *reinterpret_cast<const unsigned*>(rows + i * ROW_BYTES + (offset[j] ^ i % 4 * 16));
      return exists[j] ? found : 0;
    }
  };
  // Returns the rows of a lane's remainder among `count` rows that begin at `from` in the stage.
  __device__ __forceinline__ const unsigned char* merged_rows(int from, int count) const {
    const int lane = threadIdx.x % 32;
    return this->stages + this->stage * this->STAGE_BYTES +
           (from + lane / 4 % 4 * (count / MERGED) + lane / 16 * 4) * ROW_BYTES;
  }

  __device__ __forceinline__ void consume() {
    const int left = (threadIdx.x / 32 - WARPGROUP / 32) * BOX_BYTES;
    Segment segment;
    for (Walk walk(a.division, blockIdx.x); walk.advance(a.division, segment);) {
      finisher.begin(segment);
      float sums[2][COLUMNS / 2] = {};
      for (unsigned k_block = 0; k_block < segment.count; k_block++) {
        mbarrier_wait_parity(&this->full[this->stage], this->parity);
        const Merged merged(a, segment.first + k_block);
#pragma unroll
        for (int step = 0; step < STEPS; step++) {
          unsigned rows[2][4];
          const unsigned char* from = merged_rows(left / (MERGED * ROW_BYTES), ALL_ROWS);
#pragma unroll
          for (int i = 0; i < 8; i++) rows[i / 4][i % 4] = merged.read(from, i / 4 * 2 + i % 2, step * 2 + i % 4 / 2);
#pragma unroll
          for (int n = 0; n < COLUMNS / 8; n++) {
            unsigned columns[2];
            const unsigned char* right = merged_rows(ALL_ROWS, COLUMNS);
#pragma unroll
            for (int i = 0; i < 2; i++) columns[i] = merged.read(right, n / 4 * 8 + n % 4, step * 2 + i);
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
#define KERNEL(NAME, ...)                                                            \
  extern "C" __global__ void __launch_bounds__((CONSUMERS + 1) * WARPGROUP, 1)       \
      convolution_filter_gradient_nchw_##NAME(const __grid_constant__ Arguments a) { \
    griddepcontrol_wait_deferred();                                                  \
    multiply<Multiplication<__VA_ARGS__>>(a);                                        \
  }
KERNEL(256x64, 8, 2, 5)
