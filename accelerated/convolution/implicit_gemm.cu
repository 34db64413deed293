// Convolution as a matrix product on the ordinary arithmetic units, of any data type: the implicit GEMM algorithms, and the
// product at the heart of GEMM, FFT and nonfused Winograd, which describe their matrices as convolutions with filters of one
// element. Floats take convolution/implicit_gemm_fp32.cu, but for few filters and very many taps.
//
// Floor: flops, 2 * filters * positions * terms; an H200 does 67 T/s in float (34 in double). Each byte of a tile is used
// 128 times, so that memory stays far below its limit. A thread keeps 8 x 8 sums: two 16-byte reads of shared memory
// per operand feed 64 multiply-adds. Shared memory is the second limit: a read of 16 bytes takes two passes for a warp, not
// four, where neighbouring lanes (or every second) share an address.
#include <type_traits>

#include "convolution/problem.cuh"

constexpr int THREADS = 256;

// Four 8-bit channels as one element.
struct Word { unsigned bits; };

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

// The filter's type: signed where the image's is unsigned.
template <class E> struct FilterOf { using type = E; };
template <> struct FilterOf<uint8> { using type = int8; };

struct Arguments {
  const ELEMENT* x;
  const typename FilterOf<ELEMENT>::type* w;
  void* y;            // of ELEMENT; float or int8 where that is an 8-bit integer
  const void* prior;  // like y
  const void* bias;   // of ELEMENT; float where that is an 8-bit integer
  unsigned char* workspace;
  long long x_offset, w_offset, y_offset;  // bytes from the pointer to the matrix
  Convolution convolution;
  Epilogue epilogue;
  FastDivmod position_tiles, filter_tiles;  // blocks run over filter tiles first, then position tiles, then groups
  int words;                             // elements are Words
  int float_result;                      // of 8-bit data
  int reordered_filters;                 // all filters / 32 where the filter is reordered, else 0
  int precomputed;                       // the terms lie in the workspace
  int position_packs;                    // packs of 16 bytes in x are neighbouring positions of one term
};

// An element at any byte address, or a pack of them.
template <class E, int N> struct alignas(sizeof(E) * N > 16 ? 16 : sizeof(E) * N) Elements { E item[N]; };
template <class E> __device__ __forceinline__ E read_element(const E* pointer) { return *pointer; }
template <> __device__ __forceinline__ Word read_element<Word>(const Word* pointer) {
  if (reinterpret_cast<uintptr_t>(pointer) % 4 == 0) return *pointer;
  const unsigned char* bytes = reinterpret_cast<const unsigned char*>(pointer);
  return {bytes[0] | bytes[1] << 8 | bytes[2] << 16 | unsigned(bytes[3]) << 24};
}

// Rows of the upper terms are shifted, so that what a warp writes at once in packs goes to different banks.
template <int PACK> __device__ __forceinline__ constexpr int shift(int k) { return k & 8 ? 2 * PACK : 0; }

constexpr int TERM_TILES = 8;  // whose terms are found at once: the block waits for them

template <class Operand, int FILTERS, int POSITIONS, int DEPTH> struct Tiles {
  __align__(16) Operand w[2][DEPTH][FILTERS + 20], x[2][DEPTH][POSITIONS + 20];
  Term terms[2][TERM_TILES * DEPTH];
};

// A block computes FILTERS x POSITIONS sums, DEPTH terms at a time, a thread ROWS x COLUMNS of them in groups of 4 x 4.
template <class E, class F, int FILTERS, int POSITIONS, int ROWS, int COLUMNS, int DEPTH>
__device__ __forceinline__ void multiply(const Arguments& a, Tiles<typename Arithmetic<E>::Operand, FILTERS, POSITIONS, DEPTH>& shared) {
  using Math = Arithmetic<E>;
  using Operand = typename Math::Operand;
  using Sum = typename Math::Sum;
  static_assert(FILTERS / ROWS * (POSITIONS / COLUMNS) == THREADS);
  constexpr int PACK = (sizeof(E) == 1 ? 4 : 16) / sizeof(E), PACK_BYTES = PACK * sizeof(E), CHUNKS = DEPTH / PACK, PASS = THREADS / CHUNKS;  // rows loaded at once in packs
  constexpr int X_PACKS = (POSITIONS + PASS - 1) / PASS, W_PACKS = (FILTERS + PASS - 1) / PASS;
  constexpr int X_LANES = POSITIONS < THREADS ? POSITIONS : THREADS;
  constexpr int X_ROWS = THREADS / X_LANES, X_VALUES = DEPTH / X_ROWS;  // loaded one by one: positions are neighbours
  constexpr int ACROSS = POSITIONS / PACK, DOWN = THREADS / ACROSS;  // packs of positions; terms loaded at once
  constexpr int W_ROWS = THREADS / DEPTH, W_VALUES = (FILTERS + W_ROWS - 1) / W_ROWS;
  constexpr int X_HELD = X_PACKS * PACK > X_VALUES ? X_PACKS * PACK : X_VALUES;
  constexpr int W_HELD = W_PACKS * PACK > W_VALUES ? W_PACKS * PACK : W_VALUES;

  const Convolution& c = a.convolution;
  const int thread = threadIdx.x;
  unsigned filter_tile, position_tile;
  const unsigned group = a.position_tiles.divide(a.filter_tiles.divide(blockIdx.x, filter_tile), position_tile);
  const int first_filter = filter_tile * FILTERS, first_position = position_tile * POSITIONS;
  const E* x = reinterpret_cast<const E*>(reinterpret_cast<const unsigned char*>(a.x) + a.x_offset) + group * c.x_group;
  const F* w = reinterpret_cast<const F*>(reinterpret_cast<const unsigned char*>(a.w) + a.w_offset);
  const long long group_filter = static_cast<long long>(group) * c.filters;
  const Term* table = reinterpret_cast<const Term*>(a.workspace);

  const bool x_packs = c.x_packs && reinterpret_cast<uintptr_t>(x) % PACK_BYTES == 0;
  const bool position_packs = a.position_packs && reinterpret_cast<uintptr_t>(x) % PACK_BYTES == 0;
  const bool w_packs = c.w_packs && reinterpret_cast<uintptr_t>(w) % PACK_BYTES == 0 && !a.reordered_filters;
  Position position[X_PACKS];
#pragma unroll
  for (int i = 0; i < X_PACKS; i++) {
    int row = x_packs ? thread / CHUNKS + i * PASS : position_packs ? thread % ACROSS * PACK : thread % X_LANES;
    position[i] = find_position(c, row < POSITIONS ? first_position + row : c.positions);
  }
  // The first row of the filter's tile that this thread reads, and the filters from there on.
  const int w_row = w_packs ? thread / CHUNKS : thread / DEPTH, w_column = w_packs ? thread % CHUNKS * PACK : thread % DEPTH;
  const F* w_first = w + (group_filter + first_filter + w_row) * c.row + w_column;
  const int w_rows = c.filters - first_filter - w_row < FILTERS - w_row ? c.filters - first_filter - w_row : FILTERS - w_row;

  alignas(16) Operand x_held[X_HELD], w_held[W_HELD];
  auto prepare_terms = [&](int chunk) {
    if (thread < TERM_TILES * DEPTH) {
      unsigned index = chunk * (TERM_TILES * DEPTH) + thread;
      shared.terms[chunk & 1][thread] = a.precomputed && index < c.terms ? table[index] : find_term(c, index);
    }
  };
  auto fetch = [&](int tile) {
    const Term* current = shared.terms[tile / TERM_TILES & 1] + tile % TERM_TILES * DEPTH;
    if (x_packs) {
      const Term term = current[thread % CHUNKS * PACK];
#pragma unroll
      for (int i = 0; i < X_PACKS; i++) {
        Elements<E, PACK> pack{};
        if (inside(c, position[i], term)) pack = *reinterpret_cast<const Elements<E, PACK>*>(x + (position[i].offset + term.offset));
#pragma unroll
        for (int j = 0; j < PACK; j++) x_held[i * PACK + j] = Math::operand(pack.item[j]);
      }
    } else if (position_packs) {
#pragma unroll
      for (int i = 0; i < X_PACKS; i++) {
        const int k = thread / ACROSS + i * DOWN;
        Elements<E, PACK> pack{};
        if (k < DEPTH && inside(c, position[0], current[k])) pack = *reinterpret_cast<const Elements<E, PACK>*>(x + (position[0].offset + current[k].offset));
#pragma unroll
        for (int j = 0; j < PACK; j++) x_held[i * PACK + j] = Math::operand(pack.item[j]);
      }
    } else {
#pragma unroll
      for (int i = 0; i < X_VALUES; i++) {
        const Term term = current[thread / X_LANES + i * X_ROWS];
        x_held[i] = inside(c, position[0], term) ? Math::operand(read_element(x + (position[0].offset + term.offset))) : Operand(0);
      }
    }
    const bool w_exists = tile * DEPTH + w_column < c.terms;
    if (w_packs) {
#pragma unroll
      for (int i = 0; i < W_PACKS; i++) {
        Elements<F, PACK> pack{};
        if (w_exists && i * PASS < w_rows) pack = *reinterpret_cast<const Elements<F, PACK>*>(w_first + (i * PASS * static_cast<long long>(c.row) + tile * DEPTH));
#pragma unroll
        for (int j = 0; j < PACK; j++) w_held[i * PACK + j] = Arithmetic<F>::operand(pack.item[j]);
      }
    } else {
#pragma unroll
      for (int i = 0; i < W_VALUES; i++) {
        w_held[i] = 0;
        if (w_exists && i * W_ROWS < w_rows) {
          const F* value = w_first + (i * W_ROWS * static_cast<long long>(c.row) + tile * DEPTH);
          if constexpr (sizeof(ELEMENT) == 1)
            if (a.reordered_filters) value = w + reordered_offset(group_filter + first_filter + w_row + i * W_ROWS, tile * DEPTH + w_column, a.reordered_filters, a.words ? 4 : 1);
          w_held[i] = Arithmetic<F>::operand(read_element(value));
        }
      }
    }
  };
  auto keep = [&](int buffer) {
    if (x_packs) {
#pragma unroll
      for (int i = 0; i < X_PACKS; i++) {
        const int row = thread / CHUNKS + i * PASS;
        if (row < POSITIONS)
#pragma unroll
          for (int j = 0; j < PACK; j++) shared.x[buffer][thread % CHUNKS * PACK + j][row + shift<PACK>(thread % CHUNKS * PACK)] = x_held[i * PACK + j];
      }
    } else if (position_packs) {
      constexpr int GROUP = PACK < 4 ? PACK : 4;
#pragma unroll
      for (int i = 0; i < X_PACKS; i++) {
        const int k = thread / ACROSS + i * DOWN;
        if (k < DEPTH)
#pragma unroll
          for (int j = 0; j < PACK; j += GROUP)
            *reinterpret_cast<Pack<Operand, GROUP>*>(&shared.x[buffer][k][thread % ACROSS * PACK + j + shift<PACK>(k)]) = *reinterpret_cast<const Pack<Operand, GROUP>*>(x_held + i * PACK + j);
      }
    } else {
#pragma unroll
      for (int i = 0; i < X_VALUES; i++) shared.x[buffer][thread / X_LANES + i * X_ROWS][thread % X_LANES + shift<PACK>(i * X_ROWS)] = x_held[i];
    }
    if (w_packs) {
#pragma unroll
      for (int i = 0; i < W_PACKS; i++) {
        const int row = thread / CHUNKS + i * PASS;
        if (row < FILTERS)
#pragma unroll
          for (int j = 0; j < PACK; j++) shared.w[buffer][thread % CHUNKS * PACK + j][row + shift<PACK>(thread % CHUNKS * PACK)] = w_held[i * PACK + j];
      }
    } else {
#pragma unroll
      for (int i = 0; i < W_VALUES; i++) {
        const int row = thread / DEPTH + i * W_ROWS;
        if (row < FILTERS) shared.w[buffer][thread % DEPTH][row + shift<PACK>(thread % DEPTH)] = w_held[i];
      }
    }
  };

  constexpr int ROW_GROUPS = ROWS / 4, COLUMN_GROUPS = COLUMNS / 4;
  // A warp has 4 x 8 threads; bits 0 and 4 of the lane are its row.
  constexpr int WARPS_ACROSS = POSITIONS / COLUMNS / 8;
  const int lane = thread % 32, warp = thread / 32;
  const int row = (warp / WARPS_ACROSS * 4 + lane / 16 * 2 + lane % 2) * 4;
  const int column = (warp % WARPS_ACROSS * 8 + lane / 2 % 8) * 4;
  Sum sums[ROWS][COLUMNS] = {};
  const int tiles = (c.terms + DEPTH - 1) / DEPTH;
  prepare_terms(0);
  __syncthreads();
  fetch(0);
  keep(0);
  __syncthreads();
  for (int tile = 0; tile < tiles; tile++) {
    const int buffer = tile & 1;
    if (tile + 1 < tiles) fetch(tile + 1);
#pragma unroll
    for (int k = 0; k < DEPTH; k++) {
      Operand left[ROWS], right[COLUMNS];
#pragma unroll
      for (int g = 0; g < ROW_GROUPS; g++)
        *reinterpret_cast<Pack<Operand, 4>*>(left + 4 * g) =
            *reinterpret_cast<const Pack<Operand, 4>*>(&shared.w[buffer][k][g * (FILTERS / ROW_GROUPS) + row + shift<PACK>(k)]);
#pragma unroll
      for (int g = 0; g < COLUMN_GROUPS; g++)
        *reinterpret_cast<Pack<Operand, 4>*>(right + 4 * g) =
            *reinterpret_cast<const Pack<Operand, 4>*>(&shared.x[buffer][k][g * (POSITIONS / COLUMN_GROUPS) + column + shift<PACK>(k)]);
#pragma unroll
      for (int i = 0; i < ROWS; i++)
#pragma unroll
        for (int j = 0; j < COLUMNS; j++) Math::accumulate(sums[i][j], left[i], right[j]);
    }
    if (tile + 1 < tiles) keep(buffer ^ 1);
    if (tile % TERM_TILES == 0 && tile + TERM_TILES < tiles) prepare_terms(tile / TERM_TILES + 1);
    __syncthreads();
  }

  auto finish_tile = [&](auto* y, const auto* bias) {
    using Result = std::remove_reference_t<decltype(*y)>;
    const Result* prior = static_cast<const Result*>(a.prior);
    // Four neighbours of y at a time: filters where channels lie innermost, else positions.
    const bool across_filters = c.y_vector > 1 || c.y_channel == 1;
#pragma unroll
    for (int h = 0; h < COLUMN_GROUPS; h++) {
      long long offset[4];
      const int first = first_position + h * (POSITIONS / COLUMN_GROUPS) + column;
      int count = c.positions - first;
      if (count > 4) count = 4;
#pragma unroll
      for (int j = 0; j < 4; j++) offset[j] = j < count ? group * c.y_group + y_offset(c, first + j) : 0;
      const bool neighbours = count == 4 && offset[3] == offset[0] + 3 && offset[2] == offset[0] + 2 && offset[1] == offset[0] + 1;
#pragma unroll
      for (int g = 0; g < ROW_GROUPS; g++) {
        const int filter = first_filter + g * (FILTERS / ROW_GROUPS) + row;
        const unsigned channel = group * c.y_filters + filter;
        if (across_filters) {
          const bool whole = filter + 3 < c.filters && (c.y_vector < 2 ? c.y_channel == 1 : channel % 4 == 0);
#pragma unroll
          for (int j = 0; j < 4; j++) {
            if (j >= count) continue;
            Sum four[4];
#pragma unroll
            for (int i = 0; i < 4; i++) four[i] = sums[4 * g + i][4 * h + j];
            if (whole) {
              finish<4, COMPUTE>(a.epilogue, bias, prior, y, offset[j] + y_channel_offset(c, channel), 1, 4, channel, 1, four);
            } else {
#pragma unroll
              for (int i = 0; i < 4; i++) {
                Sum one[1] = {four[i]};
                if (filter + i < c.filters)
                  finish<1, COMPUTE>(a.epilogue, bias, prior, y, offset[j] + y_channel_offset(c, channel + i), 1, 1, channel + i, 0, one);
              }
            }
          }
        } else {
#pragma unroll
          for (int i = 0; i < 4; i++) {
            if (filter + i >= c.filters) continue;
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
                if (j < count) finish<1, COMPUTE>(a.epilogue, bias, prior, y, offset[j] + start, 1, 1, channel + i, 0, one);
              }
            }
          }
        }
      }
    }
  };
  unsigned char* y = static_cast<unsigned char*>(a.y) + a.y_offset;
  if constexpr (sizeof(ELEMENT) > 1) finish_tile(reinterpret_cast<ELEMENT*>(y), static_cast<const ELEMENT*>(a.bias));
  else if (a.float_result) finish_tile(reinterpret_cast<float*>(y), static_cast<const float*>(a.bias));
  else finish_tile(reinterpret_cast<int8*>(y), static_cast<const float*>(a.bias));
}

template <int FILTERS, int POSITIONS, int ROWS, int COLUMNS>
__device__ __forceinline__ void multiply_any(const Arguments& a) {
  constexpr int DEPTH = sizeof(COMPUTE) == 8 ? 8 : 16;
  __shared__ Tiles<typename Arithmetic<ELEMENT>::Operand, FILTERS, POSITIONS, DEPTH> shared;
  if constexpr (sizeof(ELEMENT) == 1)
    if (a.words) return multiply<Word, Word, FILTERS, POSITIONS, ROWS, COLUMNS, DEPTH>(a, shared);
  // 8-bit integers one by one take the smaller tiles, and so does double, whose sums would not fit the registers.
  if constexpr (sizeof(ELEMENT) > 1 || FILTERS * POSITIONS <= 4096)
    multiply<ELEMENT, typename FilterOf<ELEMENT>::type, FILTERS, POSITIONS, ROWS, COLUMNS, DEPTH>(a, shared);
}

extern "C" __global__ void __launch_bounds__(256) gemm_64x64(const Arguments a) { griddepcontrol_wait(); multiply_any<64, 64, 4, 4>(a); }

extern "C" __global__ void __launch_bounds__(256) gemm_16x256(const Arguments a) { griddepcontrol_wait(); multiply_any<16, 256, 4, 4>(a); }

extern "C" __global__ void __launch_bounds__(256, 3) gemm_128x64(const Arguments a) {
  griddepcontrol_wait();
  if constexpr (sizeof(COMPUTE) == 4) multiply_any<128, 64, 8, 4>(a);
}

extern "C" __global__ void __launch_bounds__(256, 3) gemm_64x128(const Arguments a) {
  griddepcontrol_wait();
  if constexpr (sizeof(COMPUTE) == 4) multiply_any<64, 128, 4, 8>(a);
}

extern "C" __global__ void __launch_bounds__(256, sizeof(ELEMENT) == 2 ? 1 : 2) gemm_128x128(const Arguments a) {
  griddepcontrol_wait();
  if constexpr (sizeof(COMPUTE) == 4) multiply_any<128, 128, 8, 8>(a);
}

struct TermsArguments {
  Term* table;
  Convolution convolution;
};

// The terms of IMPLICIT_PRECOMP_GEMM, once per call instead of once per block.
extern "C" __global__ void convolution_terms(const TermsArguments a) {
  griddepcontrol_wait();
  unsigned index = blockIdx.x * blockDim.x + threadIdx.x;
  if (index < a.convolution.terms) a.table[index] = find_term(a.convolution, index);
}

struct MatrixArguments {
  const ELEMENT* x;
  ELEMENT* matrix;  // [position][group][row]: the terms of a position, zeros after them
  Convolution convolution;
  FastDivmod packs, groups;  // packs of a row
  int row, packed;        // elements of a row; whether all rows begin at multiples of 16 bytes
};

// The explicit matrix of the input: a thread writes 16 bytes of it. Floor: its bytes, filter positions times those of x.
extern "C" __global__ void convolution_matrix(const MatrixArguments a) {
  griddepcontrol_wait();
  constexpr int PACK = 16 / sizeof(ELEMENT);
  const Convolution& c = a.convolution;
  unsigned pack, group;
  const unsigned position_index = a.groups.divide(a.packs.divide(blockIdx.x * blockDim.x + threadIdx.x, pack), group);
  if (position_index >= c.positions) return;
  const Position position = find_position(c, position_index);
  const ELEMENT* x = a.x + group * c.x_group + position.offset;
  ELEMENT* row = a.matrix + (static_cast<long long>(position_index) * a.groups.divisor + group) * a.row;
  Pack<ELEMENT, PACK> values;
#pragma unroll
  for (int i = 0; i < PACK; i++) {
    const Term term = find_term(c, pack * PACK + i);
    values.item[i] = inside(c, position, term) ? x[term.offset] : store<ELEMENT>(COMPUTE(0));
  }
  if (a.packed && reinterpret_cast<uintptr_t>(row) % 16 == 0) {
    reinterpret_cast<Pack<ELEMENT, PACK>*>(row)[pack] = values;
  } else {
#pragma unroll
    for (int i = 0; i < PACK; i++)
      if (pack * PACK + i < a.row) row[pack * PACK + i] = values.item[i];
  }
}
