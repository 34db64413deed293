// This header computes a tile of the matrix product C = A B. The caller passes functions that read the operands and
// write the result by index.
#pragma once
#include "primitives/types.cuh"

constexpr int TILE = 64;                               // rows and columns of C per block
constexpr int DEPTH = 16;                              // terms of the sums in shared memory at a time
constexpr int PER_THREAD = 4;                          // rows and columns of C per thread
constexpr int PRODUCT_THREADS = 256;                   // threads per block
constexpr int LOADS = TILE * DEPTH / PRODUCT_THREADS;  // elements of each operand that a thread reads at a time

// Calls a(row, k) and b(column, k) for indices below `rows`, `columns` and `depth`, and c(row, column, sum) for each
// element of the tile. If A_ALONG_K, elements of A are contiguous along k, and neighbouring threads read neighbouring
// k. B_ALONG_K says the same of B.
template <bool A_ALONG_K, bool B_ALONG_K, class A, class B, class C>
__device__ __forceinline__ void product_tile(int first_row, int first_column, int rows, int columns, int depth, A a,
                                             B b, C c) {
  __shared__ COMPUTE tile_a[DEPTH][TILE + 1], tile_b[DEPTH][TILE + 1];
  const int row = threadIdx.x / 16 * PER_THREAD, column = threadIdx.x % 16 * PER_THREAD;
  COMPUTE sums[PER_THREAD][PER_THREAD] = {};
  for (int start = 0; start < depth; start += DEPTH) {
#pragma unroll
    for (int i = 0; i < LOADS; i++) {
      const int item = threadIdx.x + i * PRODUCT_THREADS;
      const int k_a = A_ALONG_K ? item % DEPTH : item / TILE, at_a = A_ALONG_K ? item / DEPTH : item % TILE;
      const int k_b = B_ALONG_K ? item % DEPTH : item / TILE, at_b = B_ALONG_K ? item / DEPTH : item % TILE;
      const bool in_a = first_row + at_a < rows && start + k_a < depth;
      const bool in_b = first_column + at_b < columns && start + k_b < depth;
      tile_a[k_a][at_a] = in_a ? a(first_row + at_a, start + k_a) : COMPUTE(0);
      tile_b[k_b][at_b] = in_b ? b(first_column + at_b, start + k_b) : COMPUTE(0);
    }
    __syncthreads();
#pragma unroll
    for (int k = 0; k < DEPTH; k++) {
      COMPUTE left[PER_THREAD], right[PER_THREAD];
#pragma unroll
      for (int i = 0; i < PER_THREAD; i++) left[i] = tile_a[k][row + i], right[i] = tile_b[k][column + i];
#pragma unroll
      for (int i = 0; i < PER_THREAD; i++)
#pragma unroll
        for (int j = 0; j < PER_THREAD; j++) sums[i][j] += left[i] * right[j];
    }
    __syncthreads();
  }
#pragma unroll
  for (int i = 0; i < PER_THREAD; i++)
#pragma unroll
    for (int j = 0; j < PER_THREAD; j++)
      if (first_row + row + i < rows && first_column + column + j < columns)
        c(first_row + row + i, first_column + column + j, sums[i][j]);
}

// Computes the tile of this block: blockIdx.x counts tiles of columns, blockIdx.y tiles of rows.
template <bool A_ALONG_K, bool B_ALONG_K, class A, class B, class C>
__device__ __forceinline__ void product_tile(int rows, int columns, int depth, A a, B b, C c) {
  product_tile<A_ALONG_K, B_ALONG_K>(blockIdx.y * TILE, blockIdx.x * TILE, rows, columns, depth, a, b, c);
}
