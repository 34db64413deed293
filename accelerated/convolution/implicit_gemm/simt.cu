// This file computes convolutions by implicit GEMM (5.2.9, 5.2.10) on CUDA cores, in any data type. It also multiplies
// the batches of GEMM, FFT and nonfused Winograd, as convolutions with filters of one tap.
//
// Tiling: a block owns TILE_N filters x TILE_M pixels, TILE_K at a time in two stages of shared memory. A thread owns 4
// x 4 to 8 x 8 sums.
//
// Roofline bound: flops, 2 * M * N * K; an H200 does 67 TFLOP/s in float (34 in double). Each byte of a tile is used
// TILE_M or TILE_N times, so memory is far from the bound. docs/performance/convolution.md has measurements.
#include <type_traits>

#include "convolution/problem.cuh"

constexpr int THREADS = 256;

// Holds four 8-bit channels as one element.
struct Word {
  unsigned bits;
};

template <class E> struct Arithmetic {
  using Operand = COMPUTE;
  using Sum = COMPUTE;
  static __device__ __forceinline__ Operand operand(E value) { return load<COMPUTE>(value); }
  static __device__ __forceinline__ void accumulate(Sum& sum, Operand w, Operand x) { sum += w * x; }
};
struct IntegerArithmetic {
  using Operand = int;
  using Sum = int;
  static __device__ __forceinline__ void accumulate(Sum& sum, Operand w, Operand x) { sum += w * x; }
};
template <> struct Arithmetic<int8> : IntegerArithmetic {
  static __device__ __forceinline__ int operand(int8 value) { return value; }
};
template <> struct Arithmetic<uint8> : IntegerArithmetic {
  static __device__ __forceinline__ int operand(uint8 value) { return value; }
};
template <> struct Arithmetic<Word> {
  using Operand = int;
  using Sum = int;
  static __device__ __forceinline__ int operand(Word value) { return value.bits; }
  static __device__ __forceinline__ void accumulate(int& sum, int w, int x) {
    if constexpr (std::is_same_v<ELEMENT, int8>) {
      sum = __dp4a(w, x, sum);
    } else {
#ifdef EMULATED_CUDA
      for (int i = 0; i < 4; i++) sum += static_cast<int8>(w >> 8 * i) * static_cast<uint8>(x >> 8 * i);
#else
      asm("dp4a.u32.s32 %0, %1, %2, %0;" : "+r"(sum) : "r"(x), "r"(w));
#endif
    }
  }
};

// Selects the filter's type: signed for an unsigned image.
template <class E> struct FilterOf {
  using type = E;
};
template <> struct FilterOf<uint8> {
  using type = int8;
};

struct Arguments {
  const ELEMENT* x;
  const typename FilterOf<ELEMENT>::type* w;
  void* y;                                 // type RESULT; float or int8 where ELEMENT is an 8-bit integer
  const void* prior;                       // same type as y
  const void* bias;                        // type ELEMENT; float where that is an 8-bit integer
  long long x_offset, w_offset, y_offset;  // bytes from the pointer to the matrix
  Convolution convolution;
  Epilogue epilogue;
  FastDivmod m_tiles, n_tiles;  // Blocks run over filter tiles first, then pixel tiles, then groups.
  int words;                    // whether elements are Words
  int float_result;             // whether the result of 8-bit data is float
  int reordered_filters;        // all filters / 32 where the filter is reordered, else 0
  int m_vectors;                // whether 16-byte vectors of x hold neighbouring pixels of one term
};

// Holds an element at any byte address, or a vector.
template <class E, int N> struct alignas(sizeof(E) * N > 16 ? 16 : sizeof(E) * N) Elements {
  E item[N];
};
template <class E> __device__ __forceinline__ E read_element(const E* pointer) { return *pointer; }
template <> __device__ __forceinline__ Word read_element<Word>(const Word* pointer) {
  if (reinterpret_cast<uintptr_t>(pointer) % 4 == 0) return *pointer;
  const unsigned char* bytes = reinterpret_cast<const unsigned char*>(pointer);
  return {bytes[0] | bytes[1] << 8 | bytes[2] << 16 | unsigned(bytes[3]) << 24};
}

// Shifts the rows of the upper terms, so that the vectors that a warp writes together use different banks.
template <int VECTOR> __device__ __forceinline__ constexpr int shift(int k) { return k & 8 ? 2 * VECTOR : 0; }

constexpr int TABLE_TILES = 8;  // tiles whose terms are located together, because the block waits for them

template <class Operand, int TILE_N, int TILE_M, int TILE_K> struct Tiles {
  __align__(16) Operand w[2][TILE_K][TILE_N + 20], x[2][TILE_K][TILE_M + 20];
  KOffset terms[2][TABLE_TILES * TILE_K];
};

// Computes TILE_N x TILE_M sums per block, TILE_K terms at a time. A thread owns ROWS x COLUMNS sums in groups of 4 x
// 4.
template <class E, class F, int TILE_N, int TILE_M, int ROWS, int COLUMNS, int TILE_K>
__device__ __forceinline__ void multiply(const Arguments& a,
                                         Tiles<typename Arithmetic<E>::Operand, TILE_N, TILE_M, TILE_K>& shared) {
  using Math = Arithmetic<E>;
  using Operand = typename Math::Operand;
  using Sum = typename Math::Sum;
  static_assert(TILE_N / ROWS * (TILE_M / COLUMNS) == THREADS);
  constexpr int VECTOR = (sizeof(E) == 1 ? 4 : 16) / sizeof(E), VECTOR_BYTES = VECTOR * sizeof(E),
                CHUNKS = TILE_K / VECTOR,
                PASS = THREADS / CHUNKS;  // rows that the block loads together as vectors
  constexpr int X_VECTORS = (TILE_M + PASS - 1) / PASS, W_VECTORS = (TILE_N + PASS - 1) / PASS;
  constexpr int X_LANES = TILE_M < THREADS ? TILE_M : THREADS;
  // rows and values of single loads, where pixels are contiguous
  constexpr int X_ROWS = THREADS / X_LANES, X_VALUES = TILE_K / X_ROWS;
  // vectors of pixels, and terms that are loaded together
  constexpr int ACROSS = TILE_M / VECTOR, DOWN = THREADS / ACROSS;
  constexpr int W_ROWS = THREADS / TILE_K, W_VALUES = (TILE_N + W_ROWS - 1) / W_ROWS;
  constexpr int X_HELD = X_VECTORS * VECTOR > X_VALUES ? X_VECTORS * VECTOR : X_VALUES;
  constexpr int W_HELD = W_VECTORS * VECTOR > W_VALUES ? W_VECTORS * VECTOR : W_VALUES;

  const Convolution& c = a.convolution;
  const int thread = threadIdx.x;
  unsigned n_tile, m_tile;
  const unsigned group = a.m_tiles.divide(a.n_tiles.divide(blockIdx.x, n_tile), m_tile);
  const int first_n = n_tile * TILE_N, first_m = m_tile * TILE_M;
  const E* x = reinterpret_cast<const E*>(reinterpret_cast<const unsigned char*>(a.x) + a.x_offset) + group * c.x_group;
  const F* w = reinterpret_cast<const F*>(reinterpret_cast<const unsigned char*>(a.w) + a.w_offset);
  const long long group_filter = static_cast<long long>(group) * c.n;

  const bool x_vectors = c.x_vectors && reinterpret_cast<uintptr_t>(x) % VECTOR_BYTES == 0;
  const bool m_vectors = a.m_vectors && reinterpret_cast<uintptr_t>(x) % VECTOR_BYTES == 0;
  const bool w_vectors = c.w_vectors && reinterpret_cast<uintptr_t>(w) % VECTOR_BYTES == 0 && !a.reordered_filters;
  Pixel pixel[X_VECTORS];
#pragma unroll
  for (int i = 0; i < X_VECTORS; i++) {
    int row = x_vectors ? thread / CHUNKS + i * PASS : m_vectors ? thread % ACROSS * VECTOR : thread % X_LANES;
    pixel[i] = find_pixel(c, row < TILE_M ? first_m + row : c.m);
  }
  // w_row is the first row of the filter's tile that this thread reads; w_first points there.
  const int w_row = w_vectors ? thread / CHUNKS : thread / TILE_K,
            w_column = w_vectors ? thread % CHUNKS * VECTOR : thread % TILE_K;
  const F* w_first = w + (group_filter + first_n + w_row) * c.w_row + w_column;
  const int w_rows = c.n - first_n - w_row < TILE_N - w_row ? c.n - first_n - w_row : TILE_N - w_row;

  alignas(16) Operand x_held[X_HELD], w_held[W_HELD];
  auto prepare_offsets = [&](int chunk) {
    if (thread < TABLE_TILES * TILE_K) {
      unsigned index = chunk * (TABLE_TILES * TILE_K) + thread;
      shared.terms[chunk & 1][thread] = find_k(c, index);
    }
  };
  auto fetch = [&](int tile) {
    const KOffset* current = shared.terms[tile / TABLE_TILES & 1] + tile % TABLE_TILES * TILE_K;
    if (x_vectors) {
      const KOffset term = current[thread % CHUNKS * VECTOR];
#pragma unroll
      for (int i = 0; i < X_VECTORS; i++) {
        Elements<E, VECTOR> vector{};
        if (inside(c, pixel[i], term))
          vector = *reinterpret_cast<const Elements<E, VECTOR>*>(x + wrapping_sum(pixel[i].offset, term.offset));
#pragma unroll
        for (int j = 0; j < VECTOR; j++) x_held[i * VECTOR + j] = Math::operand(vector.item[j]);
      }
    } else if (m_vectors) {
#pragma unroll
      for (int i = 0; i < X_VECTORS; i++) {
        const int k = thread / ACROSS + i * DOWN;
        Elements<E, VECTOR> vector{};
        if (k < TILE_K && inside(c, pixel[0], current[k]))
          vector = *reinterpret_cast<const Elements<E, VECTOR>*>(x + wrapping_sum(pixel[0].offset, current[k].offset));
#pragma unroll
        for (int j = 0; j < VECTOR; j++) x_held[i * VECTOR + j] = Math::operand(vector.item[j]);
      }
    } else {
#pragma unroll
      for (int i = 0; i < X_VALUES; i++) {
        const KOffset term = current[thread / X_LANES + i * X_ROWS];
        x_held[i] = inside(c, pixel[0], term)
                        ? Math::operand(read_element(x + wrapping_sum(pixel[0].offset, term.offset)))
                        : Operand(0);
      }
    }
    const bool w_exists = tile * TILE_K + w_column < c.k;
    if (w_vectors) {
#pragma unroll
      for (int i = 0; i < W_VECTORS; i++) {
        Elements<F, VECTOR> vector{};
        if (w_exists && i * PASS < w_rows)
          vector = *reinterpret_cast<const Elements<F, VECTOR>*>(
              w_first + (i * PASS * static_cast<long long>(c.w_row) + tile * TILE_K));
#pragma unroll
        for (int j = 0; j < VECTOR; j++) w_held[i * VECTOR + j] = Arithmetic<F>::operand(vector.item[j]);
      }
    } else {
#pragma unroll
      for (int i = 0; i < W_VALUES; i++) {
        w_held[i] = 0;
        if (w_exists && i * W_ROWS < w_rows) {
          const F* value = w_first + (i * W_ROWS * static_cast<long long>(c.w_row) + tile * TILE_K);
          if constexpr (std::is_same_v<E, Word>)
            if (a.reordered_filters)
              value = w + reordered_offset(group_filter + first_n + w_row + i * W_ROWS, tile * TILE_K + w_column,
                                           a.reordered_filters, 4);
          w_held[i] = Arithmetic<F>::operand(read_element(value));
        }
      }
    }
  };
  auto keep = [&](int buffer) {
    if (x_vectors) {
#pragma unroll
      for (int i = 0; i < X_VECTORS; i++) {
        const int row = thread / CHUNKS + i * PASS;
        if (row < TILE_M)
#pragma unroll
          for (int j = 0; j < VECTOR; j++)
            shared.x[buffer][thread % CHUNKS * VECTOR + j][row + shift<VECTOR>(thread % CHUNKS * VECTOR)] =
                x_held[i * VECTOR + j];
      }
    } else if (m_vectors) {
      constexpr int GROUP = VECTOR < 4 ? VECTOR : 4;
#pragma unroll
      for (int i = 0; i < X_VECTORS; i++) {
        const int k = thread / ACROSS + i * DOWN;
        if (k < TILE_K)
#pragma unroll
          for (int j = 0; j < VECTOR; j += GROUP)
            *reinterpret_cast<Vector<Operand, GROUP>*>(
                &shared.x[buffer][k][thread % ACROSS * VECTOR + j + shift<VECTOR>(k)]) =
                *reinterpret_cast<const Vector<Operand, GROUP>*>(x_held + i * VECTOR + j);
      }
    } else {
#pragma unroll
      for (int i = 0; i < X_VALUES; i++)
        shared.x[buffer][thread / X_LANES + i * X_ROWS][thread % X_LANES + shift<VECTOR>(i * X_ROWS)] = x_held[i];
    }
    if (w_vectors) {
#pragma unroll
      for (int i = 0; i < W_VECTORS; i++) {
        const int row = thread / CHUNKS + i * PASS;
        if (row < TILE_N)
#pragma unroll
          for (int j = 0; j < VECTOR; j++)
            shared.w[buffer][thread % CHUNKS * VECTOR + j][row + shift<VECTOR>(thread % CHUNKS * VECTOR)] =
                w_held[i * VECTOR + j];
      }
    } else {
#pragma unroll
      for (int i = 0; i < W_VALUES; i++) {
        const int row = thread / TILE_K + i * W_ROWS;
        if (row < TILE_N) shared.w[buffer][thread % TILE_K][row + shift<VECTOR>(thread % TILE_K)] = w_held[i];
      }
    }
  };

  constexpr int ROW_GROUPS = ROWS / 4, COLUMN_GROUPS = COLUMNS / 4;
  // A warp has 4 x 8 threads; bits 0 and 4 of the lane are its row.
  constexpr int WARPS_ACROSS = TILE_M / COLUMNS / 8;
  const int lane = thread % 32, warp = thread / 32;
  const int row = (warp / WARPS_ACROSS * 4 + lane / 16 * 2 + lane % 2) * 4;
  const int column = (warp % WARPS_ACROSS * 8 + lane / 2 % 8) * 4;
  Sum sums[ROWS][COLUMNS] = {};
  const int tiles = (c.k + TILE_K - 1) / TILE_K;
  prepare_offsets(0);
  __syncthreads();
  fetch(0);
  keep(0);
  __syncthreads();
  for (int tile = 0; tile < tiles; tile++) {
    const int buffer = tile & 1;
    if (tile + 1 < tiles) fetch(tile + 1);
#pragma unroll
    for (int k = 0; k < TILE_K; k++) {
      Operand left[ROWS], right[COLUMNS];
#pragma unroll
      for (int g = 0; g < ROW_GROUPS; g++)
        *reinterpret_cast<Vector<Operand, 4>*>(left + 4 * g) = *reinterpret_cast<const Vector<Operand, 4>*>(
            &shared.w[buffer][k][g * (TILE_N / ROW_GROUPS) + row + shift<VECTOR>(k)]);
#pragma unroll
      for (int g = 0; g < COLUMN_GROUPS; g++)
        *reinterpret_cast<Vector<Operand, 4>*>(right + 4 * g) = *reinterpret_cast<const Vector<Operand, 4>*>(
            &shared.x[buffer][k][g * (TILE_M / COLUMN_GROUPS) + column + shift<VECTOR>(k)]);
#pragma unroll
      for (int i = 0; i < ROWS; i++)
#pragma unroll
        for (int j = 0; j < COLUMNS; j++) Math::accumulate(sums[i][j], left[i], right[j]);
    }
    if (tile + 1 < tiles) keep(buffer ^ 1);
    if (tile % TABLE_TILES == 0 && tile + TABLE_TILES < tiles) prepare_offsets(tile / TABLE_TILES + 1);
    __syncthreads();
  }

  auto finish_tile = [&](auto* y, const auto* bias) {
    using Result = std::remove_reference_t<decltype(*y)>;
    const Result* prior = static_cast<const Result*>(a.prior);
    // Four neighbours in y are written at a time: filters in NHWC, otherwise pixels.
    const bool across_filters = c.y_vector || c.y_channel == 1;
#pragma unroll
    for (int h = 0; h < COLUMN_GROUPS; h++) {
      long long offset[4];
      const int first = first_m + h * (TILE_M / COLUMN_GROUPS) + column;
      int count = c.m - first;
      if (count > 4) count = 4;
#pragma unroll
      for (int j = 0; j < 4; j++) offset[j] = j < count ? group * c.y_group + y_offset(c, first + j) : 0;
      const bool neighbours = count == 4 && side_by_side(c, offset[0], offset[3], 4);
#pragma unroll
      for (int g = 0; g < ROW_GROUPS; g++) {
        const int filter = first_n + g * (TILE_N / ROW_GROUPS) + row;
        const unsigned channel = group * c.y_n + filter;
        if (across_filters) {
          const bool four_exist = filter + 3 < c.n && (!c.y_vector || channel % 4 == 0);
#pragma unroll
          for (int j = 0; j < 4; j++) {
            if (j >= count) continue;
            Sum four[4];
#pragma unroll
            for (int i = 0; i < 4; i++) four[i] = sums[4 * g + i][4 * h + j];
            if (four_exist) {
              finish<4, COMPUTE>(a.epilogue, bias, prior, y, offset[j] + y_channel_offset(c, channel), 1, 4, channel, 1,
                                 four);
            } else {
#pragma unroll
              for (int i = 0; i < 4; i++) {
                Sum one[1] = {four[i]};
                if (filter + i < c.n)
                  finish<1, COMPUTE>(a.epilogue, bias, prior, y, offset[j] + y_channel_offset(c, channel + i), 1, 1,
                                     channel + i, 0, one);
              }
            }
          }
        } else {
#pragma unroll
          for (int i = 0; i < 4; i++) {
            if (filter + i >= c.n) continue;
            const long long start = y_channel_offset(c, channel + i);
            Sum four[4];
#pragma unroll
            for (int j = 0; j < 4; j++) four[j] = sums[4 * g + i][4 * h + j];
            if (neighbours) {
              finish<4, COMPUTE>(a.epilogue, bias, prior, y, offset[0] + start, 1, 4, channel + i, 0, four);
            } else {
#pragma unroll
              for (int j = 0; j < 4; j++) {
                Sum one[1] = {four[j]};
                if (j < count)
                  finish<1, COMPUTE>(a.epilogue, bias, prior, y, offset[j] + start, 1, 1, channel + i, 0, one);
              }
            }
          }
        }
      }
    }
  };
  unsigned char* y = static_cast<unsigned char*>(a.y) + a.y_offset;
  if constexpr (sizeof(ELEMENT) > 1) finish_tile(reinterpret_cast<RESULT*>(y), static_cast<const ELEMENT*>(a.bias));
  else if (a.float_result) finish_tile(reinterpret_cast<float*>(y), static_cast<const float*>(a.bias));
  else finish_tile(reinterpret_cast<int8*>(y), static_cast<const float*>(a.bias));
}

template <int TILE_N, int TILE_M, int ROWS, int COLUMNS>
__device__ __forceinline__ void multiply_any(const Arguments& a) {
  constexpr int TILE_K = sizeof(COMPUTE) == 8 ? 8 : 16;
  __shared__ Tiles<typename Arithmetic<ELEMENT>::Operand, TILE_N, TILE_M, TILE_K> shared;
  if constexpr (sizeof(ELEMENT) == 1)
    if (a.words) return multiply<Word, Word, TILE_N, TILE_M, ROWS, COLUMNS, TILE_K>(a, shared);
  // Single 8-bit integers and double use the smaller tiles, because sums of larger tiles would not fit the registers.
  if constexpr (sizeof(ELEMENT) > 1 || TILE_N * TILE_M <= 4096)
    multiply<ELEMENT, typename FilterOf<ELEMENT>::type, TILE_N, TILE_M, ROWS, COLUMNS, TILE_K>(a, shared);
}

extern "C" __global__ void __launch_bounds__(256) convolution_implicit_gemm_64x64(const Arguments a) {
  griddepcontrol_wait();
  multiply_any<64, 64, 4, 4>(a);
}

extern "C" __global__ void __launch_bounds__(256) convolution_implicit_gemm_16x256(const Arguments a) {
  griddepcontrol_wait();
  multiply_any<16, 256, 4, 4>(a);
}

extern "C" __global__ void __launch_bounds__(256, 3) convolution_implicit_gemm_64x128(const Arguments a) {
  griddepcontrol_wait();
  if constexpr (sizeof(COMPUTE) == 4) multiply_any<64, 128, 4, 8>(a);
}

struct MatrixArguments {
  const ELEMENT* x;
  ELEMENT* matrix;  // [pixel][group][row]: the terms of a pixel, padded with zeros
  Convolution convolution;
  FastDivmod vectors, groups;  // vectors per row
  int row, packed;             // elements per row; whether all rows are aligned to 16 bytes
};

// Writes the im2col buffer, 16 bytes per thread. Roofline bound: its bytes, the size of x times the taps of a filter.
extern "C" __global__ void convolution_implicit_gemm_im2col_buffer(const MatrixArguments a) {
  griddepcontrol_wait();
  constexpr int VECTOR = 16 / sizeof(ELEMENT);
  const Convolution& c = a.convolution;
  unsigned vector, group;
  const unsigned position_index =
      a.groups.divide(a.vectors.divide(blockIdx.x * blockDim.x + threadIdx.x, vector), group);
  if (position_index >= c.m) return;
  const Pixel pixel = find_pixel(c, position_index);
  const ELEMENT* x = a.x + group * c.x_group;
  ELEMENT* row = a.matrix + (static_cast<long long>(position_index) * a.groups.divisor + group) * a.row;
  Vector<ELEMENT, VECTOR> values;
#pragma unroll
  for (int i = 0; i < VECTOR; i++) {
    const KOffset term = find_k(c, vector * VECTOR + i);
    values.item[i] = inside(c, pixel, term) ? x[wrapping_sum(pixel.offset, term.offset)] : store<ELEMENT>(COMPUTE(0));
  }
  if (a.packed && reinterpret_cast<uintptr_t>(row) % 16 == 0) {
    reinterpret_cast<Vector<ELEMENT, VECTOR>*>(row)[vector] = values;
  } else {
#pragma unroll
    for (int i = 0; i < VECTOR; i++)
      if (vector * VECTOR + i < a.row) row[vector * VECTOR + i] = values.item[i];
  }
}
