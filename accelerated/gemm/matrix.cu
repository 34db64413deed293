// This file computes batches of C = A B^T + bias + beta C. A is M x K, B is N x K, and each is K-major or MN-major.
//
// The tensor-core kernels (half, bfloat16, float as TF32) run where the TMA kernels cannot (matrix_tma.cu). A block
// computes a tile with mma.sync: 128 x 128 (8 warps of 64 x 32) or 64 x 64 (4 warps of 32 x 32). K-blocks of 128 bytes
// pass through a ring of 3 or 4 swizzled stages, which cp.async fills 16 bytes at a time. Unaligned operands pass
// through registers. Split-K writes parts of a sum to the workspace in float, and adds them in order. Without tensor
// cores, tiles are 64 x 64, and each thread owns 4 x 4 sums.
//
// Roofline bound: flops, 2 * M * N * K at 989 TFLOP/s (half, H100). Bytes: (M * K + N * K + M * N) elements. Tiles of
// 128 x 128 reach 0.27 of the flops bound at 8192 x 8192 x 1024.
#include "gemm/product_tile.cuh"
#include "gemm/split_k.cuh"
#include "primitives/mma.cuh"

#if TENSOR_CORES

constexpr int ROW_BYTES = 128;                // bytes per row of a tile
constexpr int VECTORS = 8;                    // vectors per row of a tile
constexpr int VECTOR = 16 / sizeof(ELEMENT);  // elements per 16-byte vector
// TILE_K is the number of k per K-block, and of columns per box of an MN-major tile.
constexpr int TILE_K = ROW_BYTES / sizeof(ELEMENT);
constexpr int STEPS = 4;  // products of 32 bytes along K in a K-block

// Copies a tile of one operand, and loads its fragments. A K-major tile has a row of 128 bytes for each m (or n). An
// MN-major tile has boxes of TILE_K m (or n), with a row of 128 bytes for each k. ldmatrix transposes 16-bit elements.
// Floats are loaded one by one; a warp reads four k of eight m at a time.
template <bool MN_MAJOR, int TILE, int THREADS> struct Side {
  static constexpr int COPIES = TILE * VECTORS / THREADS;

  static __device__ __forceinline__ int swizzle(int row, int vector) {
    return MN_MAJOR && sizeof(ELEMENT) == 4 ? vector ^ (row & 3) * 2 : vector ^ (row & 7);
  }

  // Begins to copy a K-block. `first` and `count` describe the tile and the matrix along M or N.
  static __device__ __forceinline__ void copy(unsigned char* tile, const ELEMENT* matrix, int stride, int first,
                                              int count, int k, int last_k, bool vectors) {
#pragma unroll
    for (int i = 0; i < COPIES; i++) {
      const int index = threadIdx.x + i * THREADS, vector = index % VECTORS, row = index / VECTORS;
      int from, exist;  // Tensors have fewer than 2^31 elements.
      if constexpr (MN_MAJOR) {
        const int at_k = k + row % TILE_K, at = first + row / TILE_K * TILE_K + vector * VECTOR;
        from = at_k * stride + at;
        exist = at_k < last_k ? count - at : 0;
      } else {
        const int at_k = k + vector * VECTOR, at = first + row;
        from = at * stride + at_k;
        exist = at < count ? last_k - at_k : 0;
      }
      unsigned char* to = tile + row * ROW_BYTES + swizzle(row, vector) * 16;
      if (exist <= 0 || (vectors && exist >= VECTOR)) {
        cp_async<16>(to, matrix + (exist > 0 ? from : 0), exist > 0);
      } else {
        Vector<ELEMENT, VECTOR> elements{};
#pragma unroll
        for (int j = 0; j < VECTOR; j++)
          if (j < exist) elements.item[j] = matrix[from + j];
        *reinterpret_cast<Vector<ELEMENT, VECTOR>*>(to) = elements;
      }
    }
  }

  static __device__ __forceinline__ unsigned rounded(unsigned bits) {
    if constexpr (sizeof(ELEMENT) == 4) {
#ifdef EMULATED_CUDA
      return __float_as_uint(round_to_tf32(__uint_as_float(bits)));
#else
      asm("cvt.rna.tf32.f32 %0, %1;" : "=r"(bits) : "f"(__uint_as_float(bits)));
#endif
    }
    return bits;
  }

  static __device__ __forceinline__ unsigned float_at(const unsigned char* tile, int at, int k) {
    const unsigned char* row = tile + (at / TILE_K * TILE_K + k) * ROW_BYTES;
    return reinterpret_cast<const unsigned*>(row + swizzle(k, at % TILE_K / VECTOR) * 16)[at % VECTOR];
  }

  // Loads sixteen rows from `at` on, 32 bytes along K, as the left operand of mma_sync().
  static __device__ __forceinline__ void load_left(unsigned (&registers)[4], const unsigned char* tile, int at,
                                                   int step) {
    const int lane = threadIdx.x % 32;
    if constexpr (!MN_MAJOR) {
      const int row = at + lane % 16;
      ldmatrix<4>(registers, tile + row * ROW_BYTES + swizzle(row, 2 * step + lane / 16) * 16);
    } else if constexpr (sizeof(ELEMENT) == 2) {
      const int k = 16 * step + lane / 16 * 8 + lane % 8, column = at + lane / 8 % 2 * 8;
      ldmatrix<4, true>(registers,
                        tile + (column / TILE_K * TILE_K + k) * ROW_BYTES + swizzle(k, column % TILE_K / VECTOR) * 16);
    } else {
#pragma unroll
      for (int i = 0; i < 4; i++)
        registers[i] = float_at(tile, at + lane / 4 + i % 2 * 8, 8 * step + lane % 4 + i / 2 * 4);
    }
#pragma unroll
    for (int i = 0; i < 4; i++) registers[i] = rounded(registers[i]);
  }

  // Loads sixteen columns from `at` on, as two right operands.
  static __device__ __forceinline__ void load_right(unsigned (&registers)[2][2], const unsigned char* tile, int at,
                                                    int step) {
    const int lane = threadIdx.x % 32;
    unsigned loaded[4];
    if constexpr (!MN_MAJOR) {
      const int row = at + lane % 8 + lane / 16 * 8;
      ldmatrix<4>(loaded, tile + row * ROW_BYTES + swizzle(row, 2 * step + lane / 8 % 2) * 16);
    } else if constexpr (sizeof(ELEMENT) == 2) {
      const int k = 16 * step + lane % 16, column = at + lane / 16 * 8;
      ldmatrix<4, true>(loaded,
                        tile + (column / TILE_K * TILE_K + k) * ROW_BYTES + swizzle(k, column % TILE_K / VECTOR) * 16);
    } else {
#pragma unroll
      for (int i = 0; i < 4; i++)
        loaded[i] = float_at(tile, at + lane / 4 + i / 2 * 8, 8 * step + lane % 4 + i % 2 * 4);
    }
#pragma unroll
    for (int i = 0; i < 4; i++) registers[i / 2][i % 2] = rounded(loaded[i]);
  }
};

// Returns whether 16-byte vectors along the rows of a matrix are aligned.
__device__ __forceinline__ bool has_vectors(const ELEMENT* matrix, const Matrix& layout) {
  return (reinterpret_cast<uintptr_t>(matrix) | (layout.stride | layout.segment) * sizeof(ELEMENT)) % 16 == 0;
}

// Multiplies a tile of TILE x TILE sums with WARPS_M x WARPS_N warps per block.
template <int TILE, int WARPS_M, int WARPS_N, int STAGES> __device__ __forceinline__ void multiply(const Arguments& a) {
  constexpr int THREADS = 32 * WARPS_M * WARPS_N, TILE_BYTES = TILE * ROW_BYTES;
  constexpr int MS = TILE / WARPS_M / 16, NS = TILE / WARPS_N / 8;
  using Left = Side<A_MN_MAJOR, TILE, THREADS>;
  using Right = Side<B_MN_MAJOR, TILE, THREADS>;
  const Work work(a, TILE, TILE);
  unsigned char* stages = shared_memory + (-reinterpret_cast<uintptr_t>(shared_memory) & 127);
  const bool a_vectors = has_vectors(work.a, a.left), b_vectors = has_vectors(work.b, a.right);
  const int k_blocks = work.last - work.first;
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  const int warp_m = warp % WARPS_M * (MS * 16), warp_n = warp / WARPS_M * (NS * 8);
  float sums[MS][NS][4] = {};

  const auto copy = [&](int k_block) {
    if (k_block < k_blocks) {
      unsigned char* stage = stages + k_block % STAGES * (2 * TILE_BYTES);
      unsigned block;
      const int segment = a.segment.divide(work.first + k_block, block), k = block * TILE_K;
      Left::copy(stage, work.a + segment * a.left.segment, a.left.stride, work.first_m, a.m, k, a.k, a_vectors);
      Right::copy(stage + TILE_BYTES, work.b + segment * a.right.segment, a.right.stride, work.first_n, a.n, k, a.k,
                  b_vectors);
    }
    cp_async_commit();
  };
#pragma unroll
  for (int k_block = 0; k_block < STAGES - 1; k_block++) copy(k_block);
  for (int k_block = 0; k_block < k_blocks; k_block++) {
    cp_async_wait<STAGES - 2>();
    __syncthreads();  // The K-block has arrived, and the stage of the one before is free.
    copy(k_block + STAGES - 1);
    const unsigned char* stage = stages + k_block % STAGES * (2 * TILE_BYTES);
#pragma unroll
    for (int step = 0; step < STEPS; step++) {
      unsigned right[NS / 2][2][2];
#pragma unroll
      for (int j = 0; j < NS / 2; j++) Right::load_right(right[j], stage + TILE_BYTES, warp_n + 16 * j, step);
#pragma unroll
      for (int i = 0; i < MS; i++) {
        unsigned left[4];
        Left::load_left(left, stage, warp_m + 16 * i, step);
#pragma unroll
        for (int j = 0; j < NS; j++) mma_sync<ELEMENT>(sums[i][j], left, right[j / 2][j % 2]);
      }
    }
  }
  cp_async_wait<0>();
  griddepcontrol_launch_dependents();
#pragma unroll
  for (int i = 0; i < MS; i++) {
    Vector<RESULT, 2> before[2 * NS];
    const int m = work.first_m + warp_m + 16 * i + lane / 4, n = work.first_n + warp_n + lane % 4 * 2;
#pragma unroll
    for (int j = 0; j < 2 * NS; j++) before[j] = before_finish<2>(a, work, m + j / NS * 8, n + j % NS * 8);
#pragma unroll
    for (int j = 0; j < 2 * NS; j++) {
      const int part = j / NS;
      const COMPUTE pair[2] = {sums[i][j % NS][2 * part], sums[i][j % NS][2 * part + 1]};
      finish(a, work, m + 8 * part, n + j % NS * 8, pair, before[j]);
    }
  }
}

extern "C" __global__ void __launch_bounds__(256, 2) gemm_matrix_mma_128(const Arguments a) {
  griddepcontrol_wait();
  multiply<128, 2, 4, 3>(a);
}
extern "C" __global__ void __launch_bounds__(128, 3) gemm_matrix_mma_64(const Arguments a) {
  griddepcontrol_wait();
  multiply<64, 2, 2, 4>(a);
}

#else

template <bool MN_MAJOR>
__device__ __forceinline__ COMPUTE element(const Arguments& a, const ELEMENT* matrix, const Matrix& layout, int at,
                                           int index) {
  unsigned k;
  const long long segment = a.segment.divide(index, k) * layout.segment;
  const long long row = MN_MAJOR ? k : at, column = MN_MAJOR ? at : k;
  return load<COMPUTE>(matrix[segment + row * layout.stride + column]);
}

extern "C" __global__ void __launch_bounds__(PRODUCT_THREADS) gemm_matrix_simt(const Arguments a) {
  griddepcontrol_wait();
  const Work work(a, TILE, TILE);
  product_tile<!A_MN_MAJOR, !B_MN_MAJOR>(
      work.first_m, work.first_n, a.m, a.n, work.last - work.first,
      [&](int m, int k) { return element<A_MN_MAJOR>(a, work.a, a.left, m, work.first + k); },
      [&](int n, int k) { return element<B_MN_MAJOR>(a, work.b, a.right, n, work.first + k); },
      [&](int m, int n, COMPUTE sum) {
        const COMPUTE one[1] = {sum};
        finish(a, work, m, n, one, before_finish<1>(a, work, m, n));
      });
}

#endif

// Adds the partial sums of split-K in order, and blends C.
extern "C" __global__ void __launch_bounds__(256) gemm_matrix_sum(const Arguments a) {
  griddepcontrol_wait();
  const long long index = blockIdx.x * 256ll + threadIdx.x;
  if (index >= static_cast<long long>(a.m) * a.n) return;
  const int m = index / a.n, n = index % a.n;
  COMPUTE sum = 0;
  for (unsigned split = 0; split < a.splits.divisor; split++) sum += partial_sums(a, blockIdx.y, split)[index];
  const COMPUTE one[1] = {sum};
  blend_into(a, result_of(a, blockIdx.y), m, n, one);
}
