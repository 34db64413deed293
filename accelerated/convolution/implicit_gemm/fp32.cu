// This kernel computes convolutions by implicit GEMM (5.2.9, 5.2.10) in float, and batched products of GEMM, FFT and
// nonfused Winograd.
//
// Tiling: a block owns TILE_N filters x TILE_M pixels, and a thread 8 x 8 sums. TILE_K = 16 rows of both operands pass
// through three stages of shared memory by cp.async. One bit of a mask says whether a tap is inside the image.
//
// Roofline bound: flops, 2 * M * N * K, not bytes; an H200 reaches 59 TFLOP/s at its sustained clock. Multiply-adds
// fill all issue slots, so every other instruction costs time: reads of shared memory cost 6 %, and copies 4 %.
// Registers have two banks. To avoid conflicts, a thread walks its sums in a serpentine order, and both operands have
// one row per k. docs/performance/convolution.md has measurements.
#include "convolution/problem.cuh"
#include "gemm/fp32_tile.cuh"
#include "primitives/dependent_launch.cuh"

struct Arguments : Operands<float> {
  long long x_offset, w_offset, y_offset;  // bytes from the pointer to the matrix
  Convolution convolution;
  Epilogue epilogue;
  FastDivmod m_tiles, n_tiles;  // Blocks run over filter tiles first, then pixel tiles, then groups.
  int m_vectors;                // whether 16-byte vectors of x hold neighbouring pixels of one term
};

constexpr int TABLE_TILES = 8;  // tiles whose terms are located together
constexpr unsigned NOWHERE = 1u << 31;

// Locates a term of the sum in x, relative to the output pixel. The bits of its taps are columns of the filter
// (lowest), rows, and planes. Terms that do not exist have the bit NOWHERE.
struct __align__(8) Tap {
  int offset;
  unsigned bits;
};

__device__ __forceinline__ Tap find_tap(const Convolution& c, unsigned index) {
  if (index >= c.k) return {0, NOWHERE};
  unsigned lane, rest = c.inner_channels.divide(index, lane);
  Tap tap{static_cast<int>(lane * c.x_channel), 0};
  int first = 0;
#pragma unroll
  for (int d = 2; d >= 0; d--) {
    unsigned at;
    rest = c.filter[d].divide(rest, at);
    tap.bits |= 1u << (first + at);
    tap.offset += (c.flipped ? c.filter[d].divisor - 1 - at : at) * c.dilation[d] * c.x_axis[d];
    first += c.filter[d].divisor;
  }
  tap.offset += rest * c.x_channel_block;
  return tap;
}

// Describes the receptive field of an output pixel: its origin, and a mask of taps outside the image. NOWHERE is always
// outside.
struct Field {
  int offset;
  unsigned outside;
  __device__ __forceinline__ bool has(const Tap& tap) const { return !(outside & tap.bits); }
};

__device__ __forceinline__ Field find_field(const Convolution& c, unsigned index) {
  const Pixel pixel = find_pixel(c, index);
  Field field{pixel.offset, NOWHERE};
  if (index >= c.m) field.outside = ~0u;
  unsigned bit = 1;
#pragma unroll
  for (int d = 2; d >= 0; d--) {
    const int taps = c.filter[d].divisor;
#pragma unroll 1
    for (int i = 0; i < taps; i++, bit <<= 1)
      if (static_cast<unsigned>(pixel.at[d] + (c.flipped ? taps - 1 - i : i) * c.dilation[d]) >=
          static_cast<unsigned>(c.input[d]))
        field.outside |= bit;
  }
  return field;
}

// Holds a tile with filters as rows and pixels as columns.
template <class Tile> struct Shared {
  typename Tile::Stage stage[STAGES];
  Tap taps[2][TABLE_TILES * TILE_K];
};

// Holds the results of a block. Sums pass through shared memory, some filters at a time. One short loop writes them, 16
// bytes at a time where alignment allows. Separate code for each sum would be too long for the instruction caches.
template <int TILE_N, int TILE_M, class Tile> struct Block {
  static constexpr int THREADS = Tile::THREADS;

  const Arguments& a;
  unsigned group;
  int first_n, first_m;

  // Holds the offset of each pixel in y, whose strides may be negative. NO_PIXEL marks a pixel that does not exist.
  static constexpr long long NO_PIXEL = -1ll << 62;
  static __device__ __forceinline__ long long* y_offsets() { return reinterpret_cast<long long*>(shared_memory); }
  // Returns the buffer: [pixel][filter] in NHWC, otherwise [filter][pixel] with rows padded by four columns.
  static __device__ __forceinline__ float* part() { return reinterpret_cast<float*>(y_offsets() + TILE_M); }

  __device__ __forceinline__ void find_y_offsets() const {
    const Convolution& c = a.convolution;
    for (int i = threadIdx.x; i < TILE_M; i += THREADS)
      y_offsets()[i] = first_m + i < c.m ? group * c.y_group + y_offset(c, first_m + i) : NO_PIXEL;
  }

  // Finishes PART filters from `first` on.
  template <int PART> __device__ __forceinline__ void finish_part(int first) const {
    static_assert(TILE_M * 8 + (TILE_M * PART + 4 * (TILE_M > PART ? TILE_M : PART)) * 4 <= sizeof(Shared<Tile>));
    const Convolution& c = a.convolution;
    float* y = reinterpret_cast<float*>(reinterpret_cast<unsigned char*>(a.y) + a.y_offset);
    Epilogue epilogue = a.epilogue;
    epilogue.alpha = 1;  // The sums already include alpha.
    const bool across_filters = c.y_channel == 1;
    const int across = across_filters ? PART / 4 : TILE_M / 4, rows = across_filters ? TILE_M : PART,
              pitch = 4 * across + 4;
    const int column = threadIdx.x % across * 4;
    static_assert(THREADS % (PART / 4) == 0 && THREADS % (TILE_M / 4) == 0);
#pragma unroll 1
    for (int row = threadIdx.x / across; row < rows; row += THREADS / across) {
      const Four sums = *reinterpret_cast<const Four*>(part() + row * pitch + column);
      const int filter = first_n + first + (across_filters ? column : row);
      const unsigned channel = group * c.y_n + filter;
      const long long* y_at = y_offsets() + (across_filters ? row : column);
      const int left = c.n - filter;
      if (left <= 0) continue;
      if (across_filters) {
        if (y_at[0] != NO_PIXEL)
          finish<4, float>(epilogue, a.bias, a.prior, y, y_at[0] + channel, 1, left < 4 ? left : 4, channel, 1,
                           sums.item);
      } else {
        const long long start = channel * c.y_channel;
        if (y_at[3] != NO_PIXEL && side_by_side(c, y_at[0], y_at[3], 4)) {
          finish<4, float>(epilogue, a.bias, a.prior, y, y_at[0] + start, 1, 4, channel, 0, sums.item);
        } else {
#pragma unroll
          for (int j = 0; j < 4; j++) {
            const float one[1] = {sums.item[j]};
            if (y_at[j] != NO_PIXEL)
              finish<1, float>(epilogue, a.bias, a.prior, y, y_at[j] + start, 1, 1, channel, 0, one);
          }
        }
      }
    }
  }
};

// Computes TILE_N x TILE_M sums per block, TILE_K terms at a time. A thread owns ROWS x COLUMNS sums in groups of 4 x
// 4. IN_NCHW means that neighbouring pixels are contiguous in x; otherwise neighbouring terms are. FILTER_VECTORS
// means that w is [group][term][filter], in 16-byte vectors; otherwise it is [group][filter][term].
template <int TILE_N, int TILE_M, bool IN_NCHW, bool FILTER_VECTORS>
__device__ __forceinline__ void multiply(const Arguments& a) {
  constexpr int ROWS = 8, COLUMNS = 8;
  using Tile = Fp32Tile<TILE_N, TILE_M, ROWS, COLUMNS>;
  constexpr int THREADS = Tile::THREADS, ROW_GROUPS = Tile::ROW_GROUPS, COLUMN_GROUPS = Tile::COLUMN_GROUPS;
  // If terms are contiguous, a block loads this many terms and rows together.
  constexpr int TERMS = 8, AT_ONCE = THREADS / TERMS;
  constexpr int X_ROWS = IN_NCHW ? 1 : TILE_M / AT_ONCE, W_ROWS = TILE_N / AT_ONCE;
  constexpr int TABLE = TABLE_TILES * TILE_K;  // entries located together
  Shared<Tile>& shared = *reinterpret_cast<Shared<Tile>*>(shared_memory);

  const Convolution& c = a.convolution;
  const int thread = threadIdx.x;
  unsigned n_tile, m_tile;
  const unsigned group = a.m_tiles.divide(a.n_tiles.divide(blockIdx.x, n_tile), m_tile);
  const int first_n = n_tile * TILE_N, first_m = m_tile * TILE_M;
  const float* x =
      reinterpret_cast<const float*>(reinterpret_cast<const unsigned char*>(a.x) + a.x_offset) + group * c.x_group;
  const float* w = reinterpret_cast<const float*>(reinterpret_cast<const unsigned char*>(a.w) + a.w_offset) +
                   static_cast<long long>(group) * c.n * c.w_row +
                   static_cast<long long>(first_n) * (FILTER_VECTORS ? 1 : c.w_row);
  const bool x_vectors = a.m_vectors && reinterpret_cast<uintptr_t>(x) % 16 == 0;

  // This thread loads one term of each of W_ROWS filters and X_ROWS pixels.
  const int row = thread / TERMS, term = thread % TERMS;
  const int w_at = row * c.w_row + term, w_left = c.n - first_n - row;
  constexpr int ACROSS = TILE_M / 4;
  Field field[X_ROWS];
#pragma unroll
  for (int i = 0; i < X_ROWS; i++)
    field[i] = find_field(c, first_m + (!IN_NCHW    ? row + i * AT_ONCE
                                        : x_vectors ? thread % ACROSS * 4
                                                    : thread % TILE_M));

  auto find_taps = [&](int chunk) {
#pragma unroll
    for (int i = thread; i < TABLE; i += THREADS) shared.taps[chunk & 1][i] = find_tap(c, chunk * TABLE + i);
  };
  auto fetch = [&](int tile, int at) {
    typename Tile::Stage& stage = shared.stage[at];
    const Tap* taps = shared.taps[tile / TABLE_TILES & 1] + tile % TABLE_TILES * TILE_K;
    const int left = c.k - tile * TILE_K;
    if constexpr (FILTER_VECTORS) {
      constexpr int ACROSS = TILE_N / 4;
      const int column = thread % ACROSS * 4;
#pragma unroll
      for (int i = 0; i < TILE_K * ACROSS / THREADS; i++) {
        const int k = thread / ACROSS + i * (THREADS / ACROSS);
        cp_async<16>(stage.left.value[k] + column, w + (k * c.n + column), k < left && column < c.n - first_n);
      }
      w += TILE_K * c.n;
    } else {
#pragma unroll
      for (int i = 0; i < W_ROWS; i++) {
        const float* from = w + (w_at + i * AT_ONCE * c.w_row);
#pragma unroll
        for (int k = 0; k < TILE_K; k += TERMS)
          cp_async<4>(stage.left.value[k + term] + row + i * AT_ONCE, from + k,
                      k + term < left && i * AT_ONCE < w_left);
      }
      w += TILE_K;
    }
    if constexpr (!IN_NCHW) {
#pragma unroll
      for (int k = 0; k < TILE_K; k += TERMS) {
        const Tap tap = taps[k + term];
#pragma unroll
        for (int i = 0; i < X_ROWS; i++)
          cp_async<4>(stage.right.value[k + term] + row + i * AT_ONCE, x + wrapping_sum(field[i].offset, tap.offset),
                      field[i].has(tap));
      }
    } else if (x_vectors) {
#pragma unroll
      for (int i = 0; i < TILE_K * ACROSS / THREADS; i++) {
        const int k = thread / ACROSS + i * (THREADS / ACROSS);
        cp_async<16>(stage.right.value[k] + thread % ACROSS * 4, x + wrapping_sum(field[0].offset, taps[k].offset),
                     field[0].has(taps[k]));
      }
    } else {
#pragma unroll
      for (int i = 0; i < TILE_K * TILE_M / THREADS; i++) {
        const int k = thread / TILE_M + i * (THREADS / TILE_M);
        cp_async<4>(stage.right.value[k] + thread % TILE_M, x + wrapping_sum(field[0].offset, taps[k].offset),
                    field[0].has(taps[k]));
      }
    }
  };

  const int down = Tile::down(), across = Tile::across();
  float sums[ROWS][COLUMNS] = {};
  const int tiles = (c.k + TILE_K - 1) / TILE_K;
  find_taps(0);
  if (tiles > TABLE_TILES) find_taps(1);
  __syncthreads();
#pragma unroll
  for (int i = 0; i < STAGES - 1; i++) {
    if (i < tiles) fetch(i, i);
    cp_async_commit();
  }
  int at = 0, next = STAGES - 1;  // the stages to multiply and to fill
#pragma unroll 1
  for (int tile = 0; tile < tiles; tile++) {
    cp_async_wait<STAGES - 2>();
    __syncthreads();
    const int coming = tile + STAGES - 1;
    if (coming < tiles) fetch(coming, next);
    cp_async_commit();
    if (coming % TABLE_TILES == 0) find_taps(coming / TABLE_TILES + 1);
    const typename Tile::Stage& stage = shared.stage[at];
    Tile::multiply(sums, stage, down, across);
    at = at + 1 < STAGES ? at + 1 : 0;
    next = next + 1 < STAGES ? next + 1 : 0;
  }
  const Block<TILE_N, TILE_M, Tile> block{a, group, first_n, first_m};
  __syncthreads();  // All threads have read the last stage.
  block.find_y_offsets();
  const float alpha =
      // Alpha is applied here, so that sums need no neighbouring registers, which would conflict in their banks.
      a.epilogue.alpha;
#pragma unroll
  for (int g = 0; g < ROW_GROUPS; g++) {
    if (g) __syncthreads();
    float* part = block.part();
    constexpr int PART = TILE_N / ROW_GROUPS;
    if (c.y_channel == 1) {
#pragma unroll
      for (int j = 0; j < COLUMNS; j++)
        *reinterpret_cast<Four*>(part + (j / 4 * (TILE_M / COLUMN_GROUPS) + 4 * across + j % 4) * (PART + 4) +
                                 4 * down) = {alpha * sums[4 * g][j], alpha * sums[4 * g + 1][j],
                                              alpha * sums[4 * g + 2][j], alpha * sums[4 * g + 3][j]};
    } else {
#pragma unroll
      for (int i = 0; i < 4; i++)
#pragma unroll
        for (int j = 0; j < COLUMNS; j++)
          part[(4 * down + i) * (TILE_M + 4) + j / 4 * (TILE_M / COLUMN_GROUPS) + 4 * across + j % 4] =
              alpha * sums[4 * g + i][j];
    }
    __syncthreads();
    block.template finish_part<PART>(g * PART);
  }
}

#define PRODUCT(NAME, TILE_N, TILE_M, IN_NCHW, FILTER_VECTORS)                                                    \
  extern "C" __global__ void __launch_bounds__(128, 4) convolution_implicit_gemm_fp32_##NAME(const Arguments a) { \
    griddepcontrol_wait();                                                                                        \
    multiply<TILE_N, TILE_M, IN_NCHW, FILTER_VECTORS>(a);                                                         \
  }
PRODUCT(rows_128x64, 128, 64, false, false)
PRODUCT(rows_64x128, 64, 128, false, false)
PRODUCT(nchw_128x64, 128, 64, true, false)
PRODUCT(nchw_64x128, 64, 128, true, false)
PRODUCT(nchw_vectors_128x64, 128, 64, true, true)
PRODUCT(nchw_vectors_64x128, 64, 128, true, true)
