// This file computes batches of C = A B^T + bias + beta C in float on CUDA cores.
//
// Tiling: a block owns 128 x 128 sums, a thread 8 x 8 of them (fp32_tile.cuh). K-blocks of 16 pass through three
// stages, which cp.async fills. MN-major operands are copied 16 bytes at a time where they are aligned. K-major
// operands are copied by element, so that they are stored k by k. Split-K works as in matrix.cu.
//
// Roofline bound: flops, 2 * M * N * K at 60 TFLOP/s (H200); bytes, (M * K + N * K + M * N) elements. 128 x 128 reaches
// 0.75 of it at 8192 x 8192 x 1024.
#include "gemm/fp32_tile.cuh"
#include "gemm/split_k.cuh"

// Copies K-blocks of a tile of an operand, COUNT rows (M or N) each.
template <bool MN_MAJOR, int COUNT, int THREADS> struct Operand {
  int stride, first, count;  // `first` is the first row of the tile; `count` is the number of rows of the matrix.
  bool vectors;

  __device__ __forceinline__ Operand(const float* matrix, const Matrix& layout, int first, int count)
      : stride(layout.stride),
        first(first),
        count(count),
        vectors((reinterpret_cast<uintptr_t>(matrix) | (layout.stride | layout.segment) * sizeof(float)) % 16 == 0) {}

  // `segment` points to the beginning of the segment. Tensors have fewer than 2^31 elements.
  __device__ __forceinline__ void copy(Factors<COUNT>& to, const float* segment, int first_k, int k_end) const {
    if constexpr (MN_MAJOR) {
      constexpr int ACROSS = COUNT / 4, AT_ONCE = THREADS / ACROSS;
      const int column = threadIdx.x % ACROSS * 4, exist = count - first - column;
#pragma unroll
      for (int i = 0; i < TILE_K / AT_ONCE; i++) {
        const int row = threadIdx.x / ACROSS + i * AT_ONCE, k = first_k + row;
        const float* from = segment + (k * stride + first + column);
        if (vectors && (exist >= 4 || exist <= 0 || k >= k_end)) {
          cp_async<16>(to.value[row] + column, from, exist > 0 && k < k_end);
        } else {
#pragma unroll
          for (int j = 0; j < 4; j++) cp_async<4>(to.value[row] + column + j, from + j, j < exist && k < k_end);
        }
      }
    } else {
      constexpr int TERMS = 8, AT_ONCE = THREADS / TERMS;  // TERMS neighbouring threads copy TERMS consecutive k
      const int row = threadIdx.x / TERMS, term = threadIdx.x % TERMS, exist = count - first - row;
      const float* from = segment + ((first + row) * stride + first_k + term);
#pragma unroll
      for (int i = 0; i < COUNT / AT_ONCE; i++, from += AT_ONCE * stride)
#pragma unroll
        for (int k = 0; k < TILE_K; k += TERMS)
          cp_async<4>(to.value[k + term] + row + i * AT_ONCE, from + k,
                      i * AT_ONCE < exist && first_k + term + k < k_end);
    }
  }
};

template <int TILE_M, int TILE_N> __device__ __forceinline__ void multiply(const Arguments& a) {
  using Tile = Fp32Tile<TILE_M, TILE_N, 8, 8>;
  using Stage = typename Tile::Stage;
  Stage* stages = reinterpret_cast<Stage*>(shared_memory);
  const Work work(a, TILE_M, TILE_N);
  const Operand<A_MN_MAJOR, TILE_M, Tile::THREADS> left(work.a, a.left, work.first_m, a.m);
  const Operand<B_MN_MAJOR, TILE_N, Tile::THREADS> right(work.b, a.right, work.first_n, a.n);
  const int k_blocks = work.last - work.first;
  const auto copy = [&](int k_block, int stage) {
    if (k_block < k_blocks) {
      unsigned block;
      const long long segment = a.segment.divide(work.first + k_block, block);
      left.copy(stages[stage].left, work.a + segment * a.left.segment, block * TILE_K, a.k);
      right.copy(stages[stage].right, work.b + segment * a.right.segment, block * TILE_K, a.k);
    }
    cp_async_commit();
  };
  typename Tile::Sums sums = {};
  const int down = Tile::down(), across = Tile::across();
#pragma unroll
  for (int i = 0; i < STAGES - 1; i++) copy(i, i);
  int at = 0, next = STAGES - 1;  // the stages to multiply and to fill
#pragma unroll 1
  for (int k_block = 0; k_block < k_blocks; k_block++) {
    cp_async_wait<STAGES - 2>();
    __syncthreads();
    copy(k_block + STAGES - 1, next);
    Tile::multiply(sums, stages[at], down, across);
    at = at + 1 < STAGES ? at + 1 : 0;
    next = next + 1 < STAGES ? next + 1 : 0;
  }
  cp_async_wait<0>();
  griddepcontrol_launch_dependents();
#pragma unroll
  for (int first = 0; first < 16; first += 4) {
    Four before[4];
    const auto element_at = [&](int k, int& m, int& n) {
      m = work.first_m + Tile::first_row((first + k) / 8) + (first + k) / 2 % 4;
      n = work.first_n + Tile::first_column(k % 2);
    };
    int m, n;
#pragma unroll
    for (int k = 0; k < 4; k++) element_at(k, m, n), before[k] = before_finish<4>(a, work, m, n);
#pragma unroll
    for (int k = 0; k < 4; k++) {
      const auto& row = sums[(first + k) / 2];
      const float four[4] = {row[4 * (k % 2)], row[4 * (k % 2) + 1], row[4 * (k % 2) + 2], row[4 * (k % 2) + 3]};
      element_at(k, m, n), finish(a, work, m, n, four, before[k]);
    }
  }
}

extern "C" __global__ void __launch_bounds__(256, 2) gemm_matrix_fp32_128x128(const Arguments a) {
  griddepcontrol_wait();
  multiply<128, 128>(a);
}
extern "C" __global__ void __launch_bounds__(64, 8) gemm_matrix_fp32_64x64(const Arguments a) {
  griddepcontrol_wait();
  multiply<64, 64>(a);
}
