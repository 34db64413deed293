// This file computes convolutions by implicit GEMM (5.2.9, 5.2.10) on tensor cores: half, bfloat16, float where TF32 is
// allowed; sums in float.
//
// Tiling: a block of two warpgroups owns TILE_M = 128 pixels x TILE_N filters. K-blocks of 128 bytes (64 elements of 16
// bits) of both operands pass through a pipeline of stages in shared memory. cp.async fills it with vectors, or threads
// fill it with single values through registers.
//
// Roofline bound: flops, 2 * M * N * K at 989 TFLOP/s in half (495 in TF32) on an H200. Bytes are the bound where K is
// short (1 x 1). Shared memory limits the throughput: a K-block of 128 x 128 reads 48 KiB and writes 32 KiB in 512
// clocks.
#include "convolution/problem.cuh"
#include "primitives/mma.cuh"

constexpr int THREADS = 256;                         // per block
constexpr int TILE_M = 128;                          // rows of a tile
constexpr int ROW_BYTES = 128;                       // bytes per row of a tile
constexpr int TILE_K = ROW_BYTES / sizeof(ELEMENT);  // terms per K-block
constexpr int VECTOR = 16 / sizeof(ELEMENT);         // terms per vector
constexpr int VECTORS = 8;                           // per row of a tile
constexpr int ROWS_AT_ONCE = THREADS / VECTORS;      // rows that the threads copy together

struct Arguments : Operands<ELEMENT> {
  long long x_offset, w_offset, y_offset;  // bytes from the pointer to the matrix
  Convolution convolution;
  Epilogue epilogue;
  FastDivmod m_tiles, n_tiles;  // Blocks run over filter tiles first, then pixel tiles, then groups.
};

__device__ __forceinline__ const ELEMENT* at_offset(const ELEMENT* pointer, long long bytes) {
  return reinterpret_cast<const ELEMENT*>(reinterpret_cast<const unsigned char*>(pointer) + bytes);
}

// Names how a vector is read; its alignment decides.
enum Reading { ELEMENTS, THROUGH_REGISTERS, ASYNCHRONOUS };

// Copies the first `count` elements of a vector; the others become zeros.
__device__ __forceinline__ void copy_vector(unsigned char* to, const ELEMENT* base, long long offset, int count,
                                            Reading reading) {
  if (reading == ASYNCHRONOUS) return cp_async<16>(to, count > 0 ? base + offset : base, count > 0);
  Vector<ELEMENT, VECTOR> vector{};
  if (reading == THROUGH_REGISTERS) {
    if (count > 0) vector = *reinterpret_cast<const Vector<ELEMENT, VECTOR>*>(base + offset);
  } else {
#pragma unroll
    for (int i = 0; i < VECTOR; i++)
      if (i < count) vector.item[i] = base[offset + i];
  }
#pragma unroll
  for (int i = 0; i < VECTOR; i++) vector.item[i] = round_to_tf32(vector.item[i]);
  *reinterpret_cast<Vector<ELEMENT, VECTOR>*>(to) = vector;
}

// Fills the stages. WITH_VECTORS means that the terms of a vector are contiguous in x, and eight threads copy the row
// of a pixel. Otherwise neighbouring threads take neighbouring pixels, which are contiguous, and the values pass
// through registers. STAGES is the length of the ring. OVERLAPPED lets the product of a K-block run into the next.
template <int TILE_N, int STAGES, bool OVERLAPPED, bool WITH_VECTORS> struct Multiplication {
  static constexpr int STAGE_BYTES = (TILE_M + TILE_N) * ROW_BYTES;
  static constexpr int AHEAD = STAGES - (OVERLAPPED ? 2 : 1);  // K-blocks that copies run ahead
  static constexpr int X_ROWS = TILE_M / ROWS_AT_ONCE, W_ROWS = TILE_N / ROWS_AT_ONCE;
  static constexpr int VALUES = WITH_VECTORS ? 1 : TILE_K * TILE_M / THREADS;

  const Arguments& a;
  const Convolution& c;
  unsigned char* stages;
  KOffset* terms;  // [2][TILE_K] terms of a K-block, for single values
  const ELEMENT *x, *w;
  int first_n, first_m;
  Reading x_reading, w_reading;
  unsigned filters_exist;  // bit i: this thread's row i of a tile exists
  Pixel field[WITH_VECTORS ? X_ROWS : 1];
  KOffset term;  // term of this thread's vector in the next K-block
  unsigned lane, positions_exist;
  ELEMENT values[VALUES];
  float sums[TILE_N / 2];

  __device__ __forceinline__ unsigned char* x_stage(int k_block) const {
    return stages + k_block % STAGES * STAGE_BYTES;
  }
  __device__ __forceinline__ unsigned char* w_stage(int k_block) const { return x_stage(k_block) + TILE_M * ROW_BYTES; }

  // The rounds copy rows in order.
  __device__ __forceinline__ void copy_filters(int k_block) {
    const int vector = threadIdx.x % VECTORS, first_row = threadIdx.x / VECTORS;
    unsigned char* to = swizzled(w_stage(k_block), first_row, vector);
    const int term = k_block * TILE_K + vector * VECTOR, left = c.k - term;
#pragma unroll
    for (int i = 0; i < W_ROWS; i++)
      copy_vector(to + i * (ROWS_AT_ONCE * ROW_BYTES), w,
                  static_cast<long long>(first_n + first_row + i * ROWS_AT_ONCE) * c.w_row + term,
                  filters_exist >> i & 1 ? left : 0, w_reading);
  }

  __device__ __forceinline__ void find_vector(unsigned index) {
    term = find_k(c, index);
    c.inner_channels.divide(index, lane);
    positions_exist = 0;
#pragma unroll
    for (int i = 0; i < X_ROWS; i++) positions_exist |= static_cast<unsigned>(inside(c, field[i], term)) << i;
  }
  __device__ __forceinline__ void copy_image(int k_block) {
    const int vector = threadIdx.x % VECTORS;
    unsigned char* to = swizzled(x_stage(k_block), threadIdx.x / VECTORS, vector);
#pragma unroll
    for (int i = 0; i < X_ROWS; i++)
      copy_vector(to + i * (ROWS_AT_ONCE * ROW_BYTES), x, wrapping_sum(field[i].offset, term.offset),
                  positions_exist >> i & 1 ? VECTOR : 0, x_reading);
    // The next K-block usually has the same tap and later channels.
    lane += TILE_K;
    if (lane < c.inner_channels.divisor) term.offset += TILE_K;
    else find_vector((k_block + 1) * TILE_K + vector * VECTOR);
  }

  // A thread takes every second vector of its row, as single values of one pixel.
  __device__ __forceinline__ void prepare_offsets(int k_block) {
    if (threadIdx.x < TILE_K) terms[k_block % 2 * TILE_K + threadIdx.x] = find_k(c, k_block * TILE_K + threadIdx.x);
  }
  __device__ __forceinline__ void read_image(int k_block) {
    const KOffset* current = terms + k_block % 2 * TILE_K;
#pragma unroll
    for (int i = 0; i < VALUES; i++) {
      const KOffset term = current[(i / VECTOR * 2 + threadIdx.x / TILE_M) * VECTOR + i % VECTOR];
      values[i] = inside(c, field[0], term) ? round_to_tf32(x[wrapping_sum(field[0].offset, term.offset)])
                                            : store<ELEMENT>(0.0f);
    }
  }
  __device__ __forceinline__ void write_image(int k_block) {
#pragma unroll
    for (int i = 0; i < VALUES / VECTOR; i++) {
      Vector<ELEMENT, VECTOR> vector;
#pragma unroll
      for (int j = 0; j < VECTOR; j++) vector.item[j] = values[i * VECTOR + j];
      *reinterpret_cast<Vector<ELEMENT, VECTOR>*>(
          swizzled(x_stage(k_block), threadIdx.x % TILE_M, i * 2 + threadIdx.x / TILE_M)) = vector;
    }
  }

  __device__ __forceinline__ void run() {
    const int k_blocks = (c.k + TILE_K - 1) / TILE_K, warpgroup = threadIdx.x / 128;
#pragma unroll
    for (int i = 0; i < TILE_N / 2; i++) sums[i] = 0;
    filters_exist = 0;
#pragma unroll
    for (int i = 0; i < W_ROWS; i++)
      filters_exist |= static_cast<unsigned>(first_n + threadIdx.x / VECTORS + i * ROWS_AT_ONCE < c.n) << i;
    if constexpr (WITH_VECTORS) {
#pragma unroll
      for (int i = 0; i < X_ROWS; i++) field[i] = find_pixel(c, first_m + threadIdx.x / VECTORS + i * ROWS_AT_ONCE);
      find_vector(threadIdx.x % VECTORS * VECTOR);
    } else {
      field[0] = find_pixel(c, first_m + threadIdx.x % TILE_M);
      prepare_offsets(0);
      __syncthreads();
    }
#pragma unroll
    for (int k_block = 0; k_block < AHEAD; k_block++) {
      if constexpr (WITH_VECTORS) {
        if (k_block < k_blocks) copy_image(k_block);
      } else {
        if (k_block < k_blocks) read_image(k_block), write_image(k_block);
        prepare_offsets(k_block + 1);
        __syncthreads();
      }
      if (k_block < k_blocks) copy_filters(k_block);
      cp_async_commit();
    }
    if constexpr (!WITH_VECTORS)
      if (AHEAD < k_blocks) read_image(AHEAD);
    for (int k_block = 0; k_block < k_blocks; k_block++) {
      if constexpr (!OVERLAPPED) wgmma_wait<0>();
      cp_async_wait<AHEAD - 1>();
      fence_proxy_async();
      __syncthreads();  // The K-block's tiles have arrived, and the oldest product's tiles are free.
      wgmma_mma_async<ELEMENT, TILE_N>(sums, x_stage(k_block) + warpgroup * 64 * ROW_BYTES, w_stage(k_block));
      wgmma_commit();
      const int next = k_block + AHEAD;
      if (next < k_blocks) {
        if constexpr (WITH_VECTORS) copy_image(next);
        else write_image(next);
        copy_filters(next);
      }
      cp_async_commit();
      if constexpr (!WITH_VECTORS) {
        prepare_offsets(next + 1);
        __syncthreads();
        if (next + 1 < k_blocks) read_image(next + 1);
      }
      if constexpr (OVERLAPPED) wgmma_wait<1>();
    }
    wgmma_wait<0>();
    wgmma_fence_accumulators(sums);
    cp_async_wait<0>();
    __syncthreads();
  }
};

// Passes the sums through shared memory, so that a thread writes neighbours in y: filters in NHWC, otherwise pixels.
template <int TILE_N>
__device__ __forceinline__ void finish_tile(const Arguments& a, float* tile, const float (&sums)[TILE_N / 2],
                                            unsigned group, int first_n, int first_m) {
  const Convolution& c = a.convolution;
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;  // A warp owns 16 pixels.
  const bool across_filters = c.y_channel == 1;
  constexpr int FILTER_PITCH = TILE_N + 8, PIXEL_PITCH = TILE_M + 4;
#pragma unroll
  for (int i = 0; i < TILE_N / 2; i++) {
    const int pixel = 16 * warp + lane / 4 + i / 2 % 2 * 8, filter = i / 4 * 8 + lane % 4 * 2 + i % 2;
    tile[across_filters ? pixel * FILTER_PITCH + filter : filter * PIXEL_PITCH + pixel] = sums[i];
  }
  __syncthreads();
  RESULT* y = reinterpret_cast<RESULT*>(const_cast<ELEMENT*>(at_offset(a.y, a.y_offset)));
  const RESULT* prior = reinterpret_cast<const RESULT*>(a.prior);
  constexpr int WIDTH = VECTOR;
  for (int index = threadIdx.x; index < TILE_M * TILE_N / WIDTH; index += THREADS) {
    float values[WIDTH];
    if (across_filters) {
      const int pixel = first_m + index / (TILE_N / WIDTH), filter = first_n + index % (TILE_N / WIDTH) * WIDTH;
      if (pixel >= c.m || filter >= c.n) continue;
#pragma unroll
      for (int i = 0; i < WIDTH; i++) values[i] = tile[(pixel - first_m) * FILTER_PITCH + filter - first_n + i];
      const unsigned channel = group * c.y_n + filter;
      const int count = c.n - filter < WIDTH ? c.n - filter : WIDTH;
      finish<WIDTH, float>(a.epilogue, a.bias, prior, y, y_offset(c, pixel) + channel, 1, count, channel, 1, values);
    } else {
      const int pixel = first_m + index % (TILE_M / WIDTH) * WIDTH, filter = first_n + index / (TILE_M / WIDTH);
      if (pixel >= c.m || filter >= c.n) continue;
#pragma unroll
      for (int i = 0; i < WIDTH; i++) values[i] = tile[(filter - first_n) * PIXEL_PITCH + pixel - first_m + i];
      const unsigned channel = group * c.y_n + filter;
      const long long start = y_channel_offset(c, channel);
      const int count = c.m - pixel < WIDTH ? c.m - pixel : WIDTH;
      const long long first = y_offset(c, pixel);
      if (count == WIDTH && side_by_side(c, first, y_offset(c, pixel + WIDTH - 1), WIDTH)) {
        finish<WIDTH, float>(a.epilogue, a.bias, prior, y, start + first, 1, WIDTH, channel, 0, values);
      } else {
#pragma unroll
        for (int i = 0; i < WIDTH; i++) {
          const float one[1] = {values[i]};
          if (i < count)
            finish<1, float>(a.epilogue, a.bias, prior, y, start + y_offset(c, pixel + i), 1, 1, channel, 0, one);
        }
      }
    }
  }
}

template <int TILE_N, int STAGES, bool OVERLAPPED, bool WITH_VECTORS>
__device__ __forceinline__ void multiply(const Arguments& a) {
  __shared__ KOffset terms[2 * TILE_K];
  const Convolution& c = a.convolution;
  unsigned n_tile, m_tile;
  const unsigned group = a.m_tiles.divide(a.n_tiles.divide(blockIdx.x, n_tile), m_tile);
  const int first_n = n_tile * TILE_N, first_m = m_tile * TILE_M;
  const ELEMENT* x = at_offset(a.x, a.x_offset) + group * c.x_group;
  const ELEMENT* w = at_offset(a.w, a.w_offset) + static_cast<long long>(group) * c.n * c.w_row;
  unsigned char* stages = shared_memory + (-reinterpret_cast<uintptr_t>(shared_memory) & 1023);
  Multiplication<TILE_N, STAGES, OVERLAPPED, WITH_VECTORS> m{a, c, stages, terms, x, w, first_n, first_m};
  // Tensor cores drop the lower 13 bits of a float. Rounding to nearest halves the error, but the values must pass
  // through registers.
  const Reading vectors = sizeof(ELEMENT) == 4 ? THROUGH_REGISTERS : ASYNCHRONOUS;
  m.x_reading = reinterpret_cast<uintptr_t>(x) % 16 == 0 ? vectors : ELEMENTS;
  m.w_reading = c.w_vectors && reinterpret_cast<uintptr_t>(w) % 16 == 0 ? vectors : ELEMENTS;
  m.run();
  finish_tile<TILE_N>(a, reinterpret_cast<float*>(stages), m.sums, group, first_n, first_m);
}

extern "C" __global__ void __launch_bounds__(256, 2) convolution_implicit_gemm_mma_vectors_64(const Arguments a) {
  griddepcontrol_wait();
  multiply<64, 4, false, true>(a);
}
extern "C" __global__ void __launch_bounds__(256, 2) convolution_implicit_gemm_mma_vectors_128(const Arguments a) {
  griddepcontrol_wait();
  multiply<128, 3, false, true>(a);
}
extern "C" __global__ void __launch_bounds__(256, 1) convolution_implicit_gemm_mma_values_64(const Arguments a) {
  griddepcontrol_wait();
  multiply<64, 4, false, false>(a);
}
extern "C" __global__ void __launch_bounds__(256, 1) convolution_implicit_gemm_mma_values_128(const Arguments a) {
  griddepcontrol_wait();
  multiply<128, 4, true, false>(a);
}
