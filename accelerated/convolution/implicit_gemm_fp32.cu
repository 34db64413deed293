// Convolution as a matrix product in float: the implicit GEMM algorithms, and the product at the heart of GEMM, FFT and nonfused
// Winograd, which describe their matrices as convolutions with filters of one element. convolution/implicit_gemm.cu serves other
// data types, few filters and filters with very many taps.
//
// Floor: flops, 2 * filters * positions * terms; an H200 does 59 T/s at the clock that it keeps. A multiprocessor begins one
// instruction per clock and quarter, and a multiply-add of a warp fills that clock: all else costs. A thread keeps 8 x 8
// sums and reads 4 x 16 bytes of shared memory for 64 multiply-adds (6 %). Operands are copied to shared memory without passing
// through registers (4 %); whether a tap is inside the image is one bit of a mask.
// Registers lie in two banks, each of which gives one operand a clock, beside the one that an instruction kept from
// the last (1.12 clocks for a multiply-add). So a thread walks its sums to and fro, and both operands lie term by term: were
// four terms of a row one pack, term k of every row would be in one bank, and half of the multiply-adds would collide. The
// code around the loop is kept short for the same reason: where it wants registers, the banks of the sums go first.
#include "primitives/cp_async.cuh"
#include "convolution/problem.cuh"
#include "primitives/dependent_launch.cuh"

struct Arguments {
  const float* x;
  const float* w;
  float* y;
  const float* prior;
  const float* bias;
  long long x_offset, w_offset, y_offset;  // bytes from the pointer to the matrix
  Convolution convolution;
  Epilogue epilogue;
  FastDivmod position_tiles, filter_tiles;  // blocks run over filter tiles first, then position tiles, then groups
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
#pragma unroll 1
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

// The results of a block. Sums go through shared memory, some filters at a time: one short loop writes them, in whole packs where
// their memory allows. Code for each sum where it is would be too long for the instruction caches.
template <int FILTERS, int POSITIONS, int THREADS> struct Block {
  const Arguments& a;
  unsigned group;
  int first_filter, first_position;

  // Where each position is in y; less than 0 where it does not exist.
  static __device__ __forceinline__ long long* places() { return reinterpret_cast<long long*>(shared_memory); }
  // [position][filter] where channels lie innermost, else [filter][position], rows four columns longer.
  static __device__ __forceinline__ float* part() { return reinterpret_cast<float*>(places() + POSITIONS); }

  __device__ __forceinline__ void find_places() const {
    const Convolution& c = a.convolution;
    for (int i = threadIdx.x; i < POSITIONS; i += THREADS)
      places()[i] = first_position + i < c.positions ? group * c.y_group + y_offset(c, first_position + i) : -1;
  }

  // PART filters from `first` on.
  template <int PART> __device__ __forceinline__ void finish_part(int first) const {
    static_assert(POSITIONS * 8 + (POSITIONS * PART + 4 * (POSITIONS > PART ? POSITIONS : PART)) * 4 <= sizeof(Shared<FILTERS, POSITIONS>));
    const Convolution& c = a.convolution;
    float* y = reinterpret_cast<float*>(reinterpret_cast<unsigned char*>(a.y) + a.y_offset);
    Epilogue epilogue = a.epilogue;
    epilogue.alpha = 1;  // the sums are multiplied already
    const bool across_filters = c.y_channel == 1;
    const int across = across_filters ? PART / 4 : POSITIONS / 4, rows = across_filters ? POSITIONS : PART, pitch = 4 * across + 4;
    const int column = threadIdx.x % across * 4;
    static_assert(THREADS % (PART / 4) == 0);
    if constexpr (THREADS % (POSITIONS / 4) != 0)  // threads that make no whole row would blend a part of one a second time
      if (!across_filters && threadIdx.x >= THREADS / (POSITIONS / 4) * (POSITIONS / 4)) return;
#pragma unroll 1
    for (int row = threadIdx.x / across; row < rows; row += THREADS / across) {
      const Four sums = *reinterpret_cast<const Four*>(part() + row * pitch + column);
      const int filter = first_filter + first + (across_filters ? column : row);
      const unsigned channel = group * c.y_filters + filter;
      const long long* place = places() + (across_filters ? row : column);
      const int left = c.filters - filter;
      if (left <= 0) continue;
      if (across_filters) {
        if (place[0] >= 0) finish<4, float>(epilogue, a.bias, a.prior, y, place[0] + channel, 1, left < 4 ? left : 4, channel, 1, sums.item);
      } else {
        const long long start = channel * c.y_channel;
        if (place[3] == place[0] + 3 && place[2] == place[0] + 2 && place[1] == place[0] + 1 && place[0] >= 0) {
          finish<4, float>(epilogue, a.bias, a.prior, y, place[0] + start, 1, 4, channel, 0, sums.item);
        } else {
#pragma unroll
          for (int j = 0; j < 4; j++) {
            const float one[1] = {sums.item[j]};
            if (place[j] >= 0) finish<1, float>(epilogue, a.bias, a.prior, y, place[j] + start, 1, 1, channel, 0, one);
          }
        }
      }
    }
  }
};

// A block computes FILTERS x POSITIONS sums, DEPTH terms at a time, a thread ROWS x COLUMNS of them in groups of 4 x 4.
// IN_PLANES: neighbouring positions lie side by side in x, else neighbouring terms. FILTER_PACKS: w is [group][term][filter], whole packs
// of 16 bytes, else [group][filter][term].
template <int FILTERS, int POSITIONS, int ROWS, int COLUMNS, bool IN_PLANES, bool FILTER_PACKS>
__device__ __forceinline__ void multiply(const Arguments& a) {
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
                   static_cast<long long>(group) * c.filters * c.row + static_cast<long long>(first_filter) * (FILTER_PACKS ? 1 : c.row);
  const bool x_packs = IN_PLANES && a.position_packs && reinterpret_cast<uintptr_t>(x) % 16 == 0;

  // What this thread loads of rows: a term of each of W_ROWS filters and X_ROWS positions.
  const int row = thread / TERMS, term = thread % TERMS;
  const int w_at = row * c.row + term, w_left = c.filters - first_filter - row;
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
    if constexpr (FILTER_PACKS) {
      constexpr int ACROSS = FILTERS / 4;
      const int column = thread % ACROSS * 4;
#pragma unroll
      for (int i = 0; i < DEPTH * ACROSS / THREADS; i++) {
        const int k = thread / ACROSS + i * (THREADS / ACROSS);
        cp_async<16>(stage.w.value[k] + column, w + (k * c.filters + column), k < left && column < c.filters - first_filter);
      }
      w += DEPTH * c.filters;
    } else {
#pragma unroll
      for (int i = 0; i < W_ROWS; i++) {
        const float* from = w + (w_at + i * AT_ONCE * c.row);
#pragma unroll
        for (int k = 0; k < DEPTH; k += TERMS) cp_async<4>(stage.w.value[k + term] + row + i * AT_ONCE, from + k, k + term < left && i * AT_ONCE < w_left);
      }
      w += DEPTH;
    }
    if constexpr (!IN_PLANES) {
#pragma unroll
      for (int k = 0; k < DEPTH; k += TERMS) {
        const Tap tap = taps[k + term];
#pragma unroll
        for (int i = 0; i < X_ROWS; i++) cp_async<4>(stage.x.value[k + term] + row + i * AT_ONCE, x + (field[i].offset + tap.offset), field[i].has(tap));
      }
    } else if (x_packs) {
#pragma unroll
      for (int i = 0; i < DEPTH * ACROSS / THREADS; i++) {
        const int k = thread / ACROSS + i * (THREADS / ACROSS);
        cp_async<16>(stage.x.value[k] + thread % ACROSS * 4, x + (field[0].offset + taps[k].offset), field[0].has(taps[k]));
      }
    } else {
#pragma unroll
      for (int i = 0; i < DEPTH * POSITIONS / THREADS; i++) {
        const int k = thread / POSITIONS + i * (THREADS / POSITIONS);
        cp_async<4>(stage.x.value[k] + thread % POSITIONS, x + (field[0].offset + taps[k].offset), field[0].has(taps[k]));
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
  if (tiles > TABLE_TILES) find_taps(1);
  __syncthreads();
#pragma unroll
  for (int i = 0; i < STAGES - 1; i++) {
    if (i < tiles) fetch(i, i);
    cp_async_commit();
  }
  int at = 0, next = STAGES - 1;  // the stages that are multiplied and filled
#pragma unroll 1
  for (int tile = 0; tile < tiles; tile++) {
    cp_async_wait<STAGES - 2>();
    __syncthreads();
    const int coming = tile + STAGES - 1;
    if (coming < tiles) fetch(coming, next);
    cp_async_commit();
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
  const Block<FILTERS, POSITIONS, THREADS> block{a, group, first_filter, first_position};
  __syncthreads();  // the stages are free
  block.find_places();
  const float alpha = a.epilogue.alpha;  // here, so that sums need not lie side by side in registers: their banks would collide
#pragma unroll
  for (int g = 0; g < ROW_GROUPS; g++) {
    if (g) __syncthreads();
    float* part = block.part();
    constexpr int PART = FILTERS / ROW_GROUPS;
    if (c.y_channel == 1) {
#pragma unroll
      for (int j = 0; j < COLUMNS; j++)
        *reinterpret_cast<Four*>(part + (j / 4 * (POSITIONS / COLUMN_GROUPS) + 4 * across + j % 4) * (PART + 4) + 4 * down) =
            {alpha * sums[4 * g][j], alpha * sums[4 * g + 1][j], alpha * sums[4 * g + 2][j], alpha * sums[4 * g + 3][j]};
    } else {
#pragma unroll
      for (int i = 0; i < 4; i++)
#pragma unroll
        for (int j = 0; j < COLUMNS; j++) part[(4 * down + i) * (POSITIONS + 4) + j / 4 * (POSITIONS / COLUMN_GROUPS) + 4 * across + j % 4] = alpha * sums[4 * g + i][j];
    }
    __syncthreads();
    block.template finish_part<PART>(g * PART);
  }
}

#define PRODUCT(NAME, FILTERS, POSITIONS, ROWS, COLUMNS, IN_PLANES, FILTER_PACKS, RESIDENT)                                          \
  extern "C" __global__ void __launch_bounds__(FILTERS / ROWS * (POSITIONS / COLUMNS), RESIDENT) NAME(const Arguments a) {                    \
    griddepcontrol_wait();                                                                                                              \
    multiply<FILTERS, POSITIONS, ROWS, COLUMNS, IN_PLANES, FILTER_PACKS>(a);                                                                 \
  }
PRODUCT(rows_128x128, 128, 128, 8, 8, false, false, 2)
PRODUCT(rows_128x96, 128, 96, 8, 12, false, false, 2)
PRODUCT(rows_128x64, 128, 64, 8, 8, false, false, 4)
PRODUCT(rows_64x128, 64, 128, 8, 8, false, false, 4)
PRODUCT(rows_64x64, 64, 64, 8, 8, false, false, 8)
PRODUCT(rows_packs_128x128, 128, 128, 8, 8, false, true, 2)
PRODUCT(rows_packs_128x96, 128, 96, 8, 12, false, true, 2)
PRODUCT(rows_packs_128x64, 128, 64, 8, 8, false, true, 4)
PRODUCT(rows_packs_64x128, 64, 128, 8, 8, false, true, 4)
PRODUCT(rows_packs_64x64, 64, 64, 8, 8, false, true, 8)
PRODUCT(planes_128x128, 128, 128, 8, 8, true, false, 2)
PRODUCT(planes_128x64, 128, 64, 8, 8, true, false, 4)
PRODUCT(planes_64x128, 64, 128, 8, 8, true, false, 4)
PRODUCT(planes_64x64, 64, 64, 8, 8, true, false, 8)
PRODUCT(planes_packs_128x128, 128, 128, 8, 8, true, true, 2)
PRODUCT(planes_packs_128x64, 128, 64, 8, 8, true, true, 4)
PRODUCT(planes_packs_64x128, 64, 128, 8, 8, true, true, 4)
PRODUCT(planes_packs_64x64, 64, 64, 8, 8, true, true, 8)
