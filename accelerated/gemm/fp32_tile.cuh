// This header multiplies a tile of float matrices on CUDA cores. The tile has TILE_ROWS x TILE_COLUMNS sums; each
// thread owns ROWS x COLUMNS of them in groups of 4 x 4. TILE_K = 16 rows of both operands pass through three stages of
// shared memory.
//
// Multiply-adds fill all issue slots, so every other instruction costs time: reads of shared memory cost 6 %.
// Registers have two banks. To avoid conflicts, a thread walks its sums in a serpentine order, and both operands are
// stored with one row per k.
#pragma once
#include "primitives/cp_async.cuh"
#include "primitives/types.cuh"

using Four = Vector<float, 4>;
constexpr int TILE_K = 16;  // rows of both operands per stage
constexpr int STAGES = 3;   // stages of the ring

// Holds a tile of an operand: row k has the factors of all rows (or columns) of the product. With four columns of
// padding, a warp writes eight k of four rows to different banks.
template <int COUNT> struct Factors {
  __align__(16) float value[TILE_K][COUNT + 4];
};

template <int TILE_ROWS, int TILE_COLUMNS, int ROWS, int COLUMNS> struct Fp32Tile {
  static constexpr int THREADS = TILE_ROWS / ROWS * (TILE_COLUMNS / COLUMNS);
  static constexpr int ROW_GROUPS = ROWS / 4, COLUMN_GROUPS = COLUMNS / 4;
  static constexpr int WARPS_ACROSS = TILE_COLUMNS / COLUMNS / 8;
  using Sums = float[ROWS][COLUMNS];

  struct Stage {
    Factors<TILE_ROWS> left;
    Factors<TILE_COLUMNS> right;
  };

  // A warp has 4 x 8 threads; bits 0 and 4 of the lane give the row of the thread.
  static __device__ __forceinline__ int down() {
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    return warp / WARPS_ACROSS * 4 + lane / 16 * 2 + lane % 2;
  }
  static __device__ __forceinline__ int across() {
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    return warp % WARPS_ACROSS * 8 + lane / 2 % 8;
  }
  // Returns the first row, or column, of a thread's group within the tile.
  static __device__ __forceinline__ int first_row(int group) { return group * (TILE_ROWS / ROW_GROUPS) + 4 * down(); }
  static __device__ __forceinline__ int first_column(int group) {
    return group * (TILE_COLUMNS / COLUMN_GROUPS) + 4 * across();
  }

  static __device__ __forceinline__ void multiply(Sums& sums, const Stage& stage, int down, int across) {
#pragma unroll
    for (int k = 0; k < TILE_K; k++) {
      Four left[ROW_GROUPS], right[COLUMN_GROUPS];
#pragma unroll
      for (int g = 0; g < ROW_GROUPS; g++)
        left[g] = *reinterpret_cast<const Four*>(stage.left.value[k] + g * (TILE_ROWS / ROW_GROUPS) + 4 * down);
#pragma unroll
      for (int h = 0; h < COLUMN_GROUPS; h++)
        right[h] =
            *reinterpret_cast<const Four*>(stage.right.value[k] + h * (TILE_COLUMNS / COLUMN_GROUPS) + 4 * across);
#pragma unroll
      for (int i = 0; i < ROWS; i++)
#pragma unroll
        for (int n = 0; n < COLUMNS; n++) {
          const int j = i % 2 ? COLUMNS - 1 - n : n;
          sums[i][j] += left[i / 4].item[i % 4] * right[j / 4].item[j % 4];
        }
    }
  }
};
