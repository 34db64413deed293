// Convolution as a matrix product in float: the implicit GEMM algorithms, and the product at the heart of GEMM, FFT and nonfused
// Winograd, which describe their matrices as convolutions with filters of one element. convolution_gemm.cu serves other
// data types, few filters and filters with very many taps.
//
// Floor: flops, 2 * filters * positions * terms; an H200 does 59 T/s at the clock that it keeps. A multiprocessor begins one
// instruction per clock and quarter, and a multiply-add of a warp fills that clock: all else costs. A thread keeps 8 x 8
// sums, and for four terms reads 16 x 16 bytes of shared memory for 256 multiply-adds (6 %). Operands are copied to shared
// memory without passing through registers; whether a tap is inside the image is one bit of a mask. Shared memory is the
// second limit: a read of 16 bytes takes two passes for a warp, not four, where neighbouring lanes (or every second) share
// an address.
#include "async_copies.cuh"
#include "convolution.cuh"
#include "launch.cuh"
#include "product_results.cuh"

struct Arguments {
  const float* x;
  const float* w;
  float* y;
  const float* prior;
  const float* bias;
  long long x_offset, w_offset, y_offset;  // bytes from the pointer to the matrix
  Convolution convolution;
  Epilogue epilogue;
  Divisor position_tiles, filter_tiles;  // blocks run over filter tiles first, then position tiles, then groups
  int position_packs;                    // packs of 16 bytes in x are neighbouring positions of one term
};

using Four = Pack<float, 4>;
constexpr int DEPTH = 16, STAGES = 3;
constexpr int TABLE_TILES = 8;  // whose terms are found at once
constexpr unsigned NOWHERE = 1u << 31;

// Where a term of the sum is in x, relative to the output position, and the bits of its taps: columns of the filter lowest, then
// rows, then planes. Terms that do not exist have the bit NOWHERE.
struct __align__(8) Tap { int offset; unsigned bits; };

__device__ __forceinline__ Tap find_tap(const Convolution& c, unsigned index) {
  if (index >= c.terms) return {0, NOWHERE};
  unsigned lane, rest = c.lanes.divide(index, lane);
  Tap tap{static_cast<int>(lane * c.x_lane), 0};
  int first = 0;
#pragma unroll
  for (int d = 2; d >= 0; d--) {
    unsigned at;
    rest = c.filter[d].divide(rest, at);
    tap.bits |= 1u << (first + at);
    tap.offset += (c.flipped ? c.filter[d].divisor - 1 - at : at) * c.dilation[d] * c.x_axis[d];
    first += c.filter[d].divisor;
  }
  tap.offset += rest * c.x_block;
  return tap;
}

// The receptive field of an output position: where it begins, and which taps are outside the image. NOWHERE always is.
struct Field {
  int offset;
  unsigned outside;
  __device__ __forceinline__ bool has(const Tap& tap) const { return !(outside & tap.bits); }
};

__device__ __forceinline__ Field find_field(const Convolution& c, unsigned index) {
  const Position position = find_position(c, index);
  Field field{position.offset, NOWHERE};
  if (index >= c.positions) field.outside = ~0u;
  unsigned bit = 1;
#pragma unroll
  for (int d = 2; d >= 0; d--) {
    const int taps = c.filter[d].divisor;
    for (int i = 0; i < taps; i++, bit <<= 1)
      if (static_cast<unsigned>(position.at[d] + (c.flipped ? taps - 1 - i : i) * c.dilation[d]) >= static_cast<unsigned>(c.input[d])) field.outside |= bit;
  }
  return field;
}

// A tile lies term by term: row k has the k-th factors of all filters or positions. Four more columns let a warp write eight terms of
// four rows to different banks.
template <int COUNT> struct Factors { __align__(16) float value[DEPTH][COUNT + 4]; };

template <int FILTERS, int POSITIONS> struct Shared {
  struct Stage {
    Factors<FILTERS> w;
    Factors<POSITIONS> x;
  } stage[STAGES];
  Tap taps[2][TABLE_TILES * DEPTH];
};

// A block computes FILTERS x POSITIONS sums, DEPTH terms at a time, a thread ROWS x COLUMNS of them in groups of 4 x 4.
// IN_PLANES: neighbouring positions lie side by side in x, else neighbouring terms.
template <int FILTERS, int POSITIONS, int ROWS, int COLUMNS, bool IN_PLANES> __device__ __forceinline__ void multiply(const Arguments& a) {
  constexpr int THREADS = FILTERS / ROWS * (POSITIONS / COLUMNS);
  constexpr int ROW_GROUPS = ROWS / 4, COLUMN_GROUPS = COLUMNS / 4;
  constexpr int TERMS = 8, AT_ONCE = THREADS / TERMS;  // terms, rows that are loaded at once where terms are neighbours
  constexpr int X_ROWS = IN_PLANES ? 1 : POSITIONS / AT_ONCE, W_ROWS = FILTERS / AT_ONCE;
  using Tile = Shared<FILTERS, POSITIONS>;
  constexpr int TABLE = TABLE_TILES * DEPTH;  // entries found at once
  Tile& shared = *reinterpret_cast<Tile*>(shared_memory);

  const Convolution& c = a.convolution;
  const int thread = threadIdx.x;
  unsigned filter_tile, position_tile;
  const unsigned group = a.position_tiles.divide(a.filter_tiles.divide(blockIdx.x, filter_tile), position_tile);
  const int first_filter = filter_tile * FILTERS, first_position = position_tile * POSITIONS;
  const float* x = reinterpret_cast<const float*>(reinterpret_cast<const unsigned char*>(a.x) + a.x_offset) + group * c.x_group;
  const float* w = reinterpret_cast<const float*>(reinterpret_cast<const unsigned char*>(a.w) + a.w_offset) +
                   (static_cast<long long>(group) * c.filters + first_filter) * c.row;
  const bool x_packs = IN_PLANES && a.position_packs && reinterpret_cast<uintptr_t>(x) % 16 == 0;

  // What this thread loads of rows: a term of each of W_ROWS filters, the last one in place of those that do not exist.
  const int row = thread / TERMS, term = thread % TERMS;
  int w_at[W_ROWS];
#pragma unroll
  for (int i = 0; i < W_ROWS; i++) w_at[i] = min(row + i * AT_ONCE, c.filters - first_filter - 1) * c.row + term;
  constexpr int ACROSS = POSITIONS / 4;
  Field field[X_ROWS];
#pragma unroll
  for (int i = 0; i < X_ROWS; i++)
    field[i] = find_field(c, first_position + (!IN_PLANES ? row + i * AT_ONCE : x_packs ? thread % ACROSS * 4 : thread % POSITIONS));

  auto find_taps = [&](int chunk) {
#pragma unroll
    for (int i = thread; i < TABLE; i += THREADS) shared.taps[chunk & 1][i] = find_tap(c, chunk * TABLE + i);
  };
  auto fetch = [&](int tile, int at) {
    typename Tile::Stage& stage = shared.stage[at];
    const Tap* taps = shared.taps[tile / TABLE_TILES & 1] + tile % TABLE_TILES * DEPTH;
    const int left = c.terms - tile * DEPTH;
#pragma unroll
    for (int i = 0; i < W_ROWS; i++)
#pragma unroll
      for (int k = 0; k < DEPTH; k += TERMS) copy_async<4>(stage.w.value[k + term] + row + i * AT_ONCE, w + w_at[i] + k, k + term < left);
    w += DEPTH;
    if constexpr (!IN_PLANES) {
#pragma unroll
      for (int k = 0; k < DEPTH; k += TERMS) {
        const Tap tap = taps[k + term];
#pragma unroll
        for (int i = 0; i < X_ROWS; i++) copy_async<4>(stage.x.value[k + term] + row + i * AT_ONCE, x + (field[i].offset + tap.offset), field[i].has(tap));
      }
    } else if (x_packs) {
#pragma unroll
      for (int i = 0; i < DEPTH * ACROSS / THREADS; i++) {
        const int k = thread / ACROSS + i * (THREADS / ACROSS);
        copy_async<16>(stage.x.value[k] + thread % ACROSS * 4, x + (field[0].offset + taps[k].offset), field[0].has(taps[k]));
      }
    } else {
#pragma unroll
      for (int i = 0; i < DEPTH * POSITIONS / THREADS; i++) {
        const int k = thread / POSITIONS + i * (THREADS / POSITIONS);
        copy_async<4>(stage.x.value[k] + thread % POSITIONS, x + (field[0].offset + taps[k].offset), field[0].has(taps[k]));
      }
    }
  };

  // A warp has 4 x 8 threads; bits 0 and 4 of the lane are its row.
  constexpr int WARPS_ACROSS = POSITIONS / COLUMNS / 8;
  const int lane = thread % 32, warp = thread / 32;
  const int down = warp / WARPS_ACROSS * 4 + lane / 16 * 2 + lane % 2, across = warp % WARPS_ACROSS * 8 + lane / 2 % 8;
  float sums[ROWS][COLUMNS] = {};
  const int tiles = (c.terms + DEPTH - 1) / DEPTH;
  find_taps(0);
  find_taps(1);
  __syncthreads();
#pragma unroll
  for (int i = 0; i < STAGES - 1; i++) {
    if (i < tiles) fetch(i, i);
    end_copies();
  }
  int at = 0, next = STAGES - 1;  // the stages that are multiplied and filled
#pragma unroll 1
  for (int tile = 0; tile < tiles; tile++) {
    wait_for_copies<STAGES - 2>();
    __syncthreads();
    const int coming = tile + STAGES - 1;
    if (coming < tiles) fetch(coming, next);
    end_copies();
    if (coming % TABLE_TILES == 0) find_taps(coming / TABLE_TILES + 1);
    const typename Tile::Stage& stage = shared.stage[at];
#pragma unroll
    for (int k = 0; k < DEPTH; k++) {
      Four left[ROW_GROUPS], right[COLUMN_GROUPS];
#pragma unroll
      for (int g = 0; g < ROW_GROUPS; g++) left[g] = *reinterpret_cast<const Four*>(stage.w.value[k] + g * (FILTERS / ROW_GROUPS) + 4 * down);
#pragma unroll
      for (int h = 0; h < COLUMN_GROUPS; h++) right[h] = *reinterpret_cast<const Four*>(stage.x.value[k] + h * (POSITIONS / COLUMN_GROUPS) + 4 * across);
#pragma unroll
      for (int i = 0; i < ROWS; i++)
#pragma unroll
        for (int n = 0; n < COLUMNS; n++) {
          const int j = i % 2 ? COLUMNS - 1 - n : n;
          sums[i][j] += left[i / 4].item[i % 4] * right[j / 4].item[j % 4];
        }
    }
    at = at + 1 < STAGES ? at + 1 : 0;
    next = next + 1 < STAGES ? next + 1 : 0;
  }
  const Place place{c, group, first_filter + 4 * down, first_position + 4 * across};
  float* y = reinterpret_cast<float*>(reinterpret_cast<unsigned char*>(a.y) + a.y_offset);
  finish_sums<FILTERS, POSITIONS>(sums, place, a.epilogue, y, a.prior, a.bias);
}

#define PRODUCT(NAME, FILTERS, POSITIONS, ROWS, COLUMNS, IN_PLANES, RESIDENT)                                                                \
  extern "C" __global__ void __launch_bounds__(FILTERS / ROWS * (POSITIONS / COLUMNS), RESIDENT) NAME(const Arguments a) {                    \
    wait_for_earlier_kernels();                                                                                                              \
    multiply<FILTERS, POSITIONS, ROWS, COLUMNS, IN_PLANES>(a);                                                                               \
  }
PRODUCT(rows_128x128, 128, 128, 8, 8, false, 2)
PRODUCT(rows_128x64, 128, 64, 8, 8, false, 4)
PRODUCT(rows_64x128, 64, 128, 8, 8, false, 4)
PRODUCT(rows_64x64, 64, 64, 8, 8, false, 8)
PRODUCT(planes_128x128, 128, 128, 8, 8, true, 2)
PRODUCT(planes_128x64, 128, 64, 8, 8, true, 4)
PRODUCT(planes_64x128, 64, 128, 8, 8, true, 4)
PRODUCT(planes_64x64, 64, 64, 8, 8, true, 8)
