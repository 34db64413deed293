// What the persistent kernels of recurrent networks share: the exchange of vectors between the blocks of a grid, and
// the product of such vectors with a matrix of which each block has some rows on chip.
//
// A work item is a slice of UNITS hidden units, a direction, and a group of SEQUENCES sequences; a block has one, or
// one after another several groups of a slice, whose rows of the matrix stay; where the device has fewer
// multiprocessors than there are slices, several of these too. Its eight warps divide the K of the product. A warp has
// its part of the block's rows as left operands of mma.sync, in registers and, what does not fit there, in shared
// memory. The right operands are loaded from global memory (L2) straight into registers: a thread takes 16 bytes of a
// vector, two products' worth, so that K is permuted alike in both operands.
//
// Vectors of a step are where all blocks write them, each in memory of its own, filled with NOTHING before. Whoever
// needs an element reads until it is something else: there is no barrier, and no flag.
#pragma once
#define FAST_CELLS 1
#include "primitives/mma.cuh"
#include "rnn/cells.cuh"

constexpr int THREADS = 256, WARPS = THREADS / 32;
constexpr int PIECE = 16 / sizeof(ELEMENT);  // elements that a thread loads at once
constexpr int PAIR = 4 * PIECE;              // of K: two products of 32 bytes
constexpr int SEQUENCES = 8 * N_TILES, ROWS = 16 * M_TILES;
constexpr int PITCH = SEQUENCES + 2;  // of a row of sums: sixteen units of a sequence lie in different banks
constexpr int SUM_BYTES = WARPS * ROWS * PITCH * sizeof(float);  // of a step; two steps alternate

using Piece = uint4;
constexpr unsigned NOTHING = 0xffffffffu;  // elements that no cell puts out: NaN of another payload

__device__ __forceinline__ bool lacks(unsigned word) {
  if constexpr (sizeof(ELEMENT) == 2) return (word & 0xffffu) == 0xffffu || word >> 16 == 0xffffu;
  return word == NOTHING;
}
__device__ __forceinline__ bool lacks(const Piece& piece) {
  return lacks(piece.x) || lacks(piece.y) || lacks(piece.z) || lacks(piece.w);
}

__device__ __forceinline__ Piece read_piece(const ELEMENT* from) {
  Piece piece;
#ifdef EMULATED_CUDA
  piece = *reinterpret_cast<const Piece*>(from);
#else
  asm volatile("ld.relaxed.gpu.global.v4.u32 {%0, %1, %2, %3}, [%4];"
               : "=r"(piece.x), "=r"(piece.y), "=r"(piece.z), "=r"(piece.w)
               : "l"(from)
               : "memory");
#endif
  return piece;
}

// Elements that other blocks wait for.
__device__ __forceinline__ void publish(ELEMENT* to, ELEMENT value) {
#ifdef EMULATED_CUDA
  if constexpr (sizeof(ELEMENT) == 4)
    if (__float_as_uint(value) == NOTHING) value = __uint_as_float(0x7fffffffu);
  *to = value;
#else
  if constexpr (sizeof(ELEMENT) == 4) {
    const unsigned bits = __float_as_uint(value);
    asm volatile("st.relaxed.gpu.global.u32 [%0], %1;" ::"l"(to), "r"(bits == NOTHING ? 0x7fffffffu : bits) : "memory");
  } else {
    asm volatile("st.relaxed.gpu.global.u16 [%0], %1;" ::"l"(to), "h"(__half_as_ushort(value)) : "memory");
  }
#endif
}

__device__ __forceinline__ unsigned operand_word(unsigned word) {
  if constexpr (sizeof(ELEMENT) == 4) {
#ifdef EMULATED_CUDA
    return __float_as_uint(round_to_tf32(__uint_as_float(word)));
#else
    asm("cvt.rna.tf32.f32 %0, %1;" : "=r"(word) : "f"(__uint_as_float(word)));
#endif
  }
  return word;
}

union PieceElements {
  Piece piece;
  ELEMENT element[PIECE];
  __device__ __forceinline__ PieceElements() : piece{} {}
};

// Pairs of K, of those of all warps, that are this warp's: every WARPS-th.
__device__ __forceinline__ int first_element(int index) { return (index * WARPS + threadIdx.x / 32) * PAIR; }

// The left operands of a warp. element(row, k) is that of the block's matrix, for 0 <= row < ROWS and 0 <= k < depth.
struct Rows {
  unsigned kept[REGISTER_PAIRS][M_TILES][2][4];

  static __device__ __forceinline__ uint4* rest(int index, int tile, int half) {
    return reinterpret_cast<uint4*>(shared_memory + 2 * SUM_BYTES) +
           (((index - REGISTER_PAIRS) * WARPS + threadIdx.x / 32) * M_TILES * 2 + tile * 2 + half) * 32 +
           threadIdx.x % 32;
  }

  template <class Element> static __device__ __forceinline__ Piece piece(int row, int k, int depth, Element element) {
    PieceElements found;
    if (k < depth) {
#pragma unroll
      for (int i = 0; i < PIECE; i++) found.element[i] = element(row, k + i);
    }
    return found.piece;
  }
  template <class Element>
  static __device__ __forceinline__ void load_tile(unsigned (&low)[4], unsigned (&high)[4], int tile, int k, int depth,
                                                   Element element) {
    const int row = 16 * tile + threadIdx.x % 32 / 4;
    const Piece upper = piece(row, k, depth, element), lower = piece(row + 8, k, depth, element);
    low[0] = operand_word(upper.x), low[1] = operand_word(lower.x);
    low[2] = operand_word(upper.y), low[3] = operand_word(lower.y);
    high[0] = operand_word(upper.z), high[1] = operand_word(lower.z);
    high[2] = operand_word(upper.w), high[3] = operand_word(lower.w);
  }
  template <class Element> __device__ __forceinline__ void fill(int pairs, int depth, Element element) {
    const int at = threadIdx.x % 4 * PIECE;
#pragma unroll
    for (int i = 0; i < REGISTER_PAIRS; i++)
#pragma unroll
      for (int tile = 0; tile < M_TILES; tile++)
        load_tile(kept[i][tile][0], kept[i][tile][1], tile, first_element(i) + at, depth, element);
#pragma unroll 1
    for (int i = REGISTER_PAIRS; i < pairs; i++)
#pragma unroll 1
      for (int tile = 0; tile < M_TILES; tile++) {
        unsigned low[4], high[4];
        load_tile(low, high, tile, first_element(i) + at, depth, element);
        *rest(i, tile, 0) = make_uint4(low[0], low[1], low[2], low[3]);
        *rest(i, tile, 1) = make_uint4(high[0], high[1], high[2], high[3]);
      }
  }
};

// sums += the block's rows times vectors, over the warp's part of K. pairs: of a warp, at most. vectors + n * stride is
// vector n of `count`; from other blocks, so that elements are waited for, or not.
struct Product {
  // Products that wait for each other make chains; few tiles have more of them.
  static constexpr int CHAINS = M_TILES * N_TILES == 1 ? 4 : M_TILES * N_TILES < 4 ? 2 : 1;
  float sums[M_TILES][N_TILES][4], others[CHAINS > 1 ? CHAINS - 1 : 1][M_TILES][N_TILES][4];

  __device__ __forceinline__ float (&chain(int index, int tile, int n))[4] {
    return index % CHAINS ? others[index % CHAINS - 1][tile][n] : sums[tile][n];
  }

  template <bool WAITS>
  static __device__ __forceinline__ void load(Piece (&pieces)[LOADED_PAIRS][N_TILES], int first, const ELEMENT* vectors,
                                              long long stride, int count, int depth) {
    const int at = threadIdx.x % 4 * PIECE, n = threadIdx.x % 32 / 4;
    const auto exists = [&](int i, int tile) { return first_element(first + i) + at < depth && n + 8 * tile < count; };
    const auto address = [&](int i, int tile) {
      return vectors + (n + 8 * tile) * stride + first_element(first + i) + at;
    };
#pragma unroll
    for (int i = 0; i < LOADED_PAIRS; i++)
#pragma unroll
      for (int tile = 0; tile < N_TILES; tile++) {
        pieces[i][tile] = Piece{};
        if (!exists(i, tile)) continue;
        if constexpr (WAITS) {
          pieces[i][tile] = read_piece(address(i, tile));
        } else {
          PieceElements found;
#pragma unroll
          for (int j = 0; j < PIECE; j++) found.element[j] = address(i, tile)[j];
          pieces[i][tile] = found.piece;
        }
      }
    if constexpr (WAITS) {
      bool complete;
      do {
        complete = true;
#pragma unroll
        for (int i = 0; i < LOADED_PAIRS; i++)
#pragma unroll
          for (int tile = 0; tile < N_TILES; tile++)
            if (lacks(pieces[i][tile])) {
              complete = false;
              pieces[i][tile] = read_piece(address(i, tile));
            }
      } while (!complete);
    }
    __syncwarp();
  }
  __device__ __forceinline__ void multiply(int index, const unsigned (&low)[4], const unsigned (&high)[4], int tile,
                                           const Piece (&pieces)[N_TILES]) {
#pragma unroll
    for (int n = 0; n < N_TILES; n++) {
      const unsigned first[2] = {operand_word(pieces[n].x), operand_word(pieces[n].y)};
      const unsigned second[2] = {operand_word(pieces[n].z), operand_word(pieces[n].w)};
      mma_sync<ELEMENT>(chain(2 * index, tile, n), low, first);
      mma_sync<ELEMENT>(chain(2 * index + 1, tile, n), high, second);
    }
  }

  template <bool WAITS>
  __device__ __forceinline__ void run(const Rows& rows, int pairs, const ELEMENT* vectors, long long stride, int count,
                                      int depth) {
    static_assert(REGISTER_PAIRS % LOADED_PAIRS == 0);
#pragma unroll
    for (int first = 0; first < REGISTER_PAIRS; first += LOADED_PAIRS) {
      if (first >= pairs) break;
      Piece pieces[LOADED_PAIRS][N_TILES];
      load<WAITS>(pieces, first, vectors, stride, count, depth);
#pragma unroll
      for (int i = 0; i < LOADED_PAIRS; i++)
#pragma unroll
        for (int tile = 0; tile < M_TILES; tile++)
          multiply(i, rows.kept[first + i][tile][0], rows.kept[first + i][tile][1], tile, pieces[i]);
    }
#pragma unroll 1
    for (int first = REGISTER_PAIRS; first < pairs; first += LOADED_PAIRS) {
      Piece pieces[LOADED_PAIRS][N_TILES];
      load<WAITS>(pieces, first, vectors, stride, count, depth);
#pragma unroll
      for (int i = 0; i < LOADED_PAIRS; i++) {
        if (first + i >= pairs) break;
#pragma unroll
        for (int tile = 0; tile < M_TILES; tile++) {
          const uint4 a = *Rows::rest(first + i, tile, 0), b = *Rows::rest(first + i, tile, 1);
          const unsigned low[4] = {a.x, a.y, a.z, a.w}, high[4] = {b.x, b.y, b.z, b.w};
          multiply(i, low, high, tile, pieces[i]);
        }
      }
    }
  }

  __device__ __forceinline__ void clear() {
#pragma unroll
    for (int tile = 0; tile < M_TILES; tile++)
#pragma unroll
      for (int n = 0; n < N_TILES; n++)
#pragma unroll
        for (int i = 0; i < 4; i++) {
          sums[tile][n][i] = 0;
          if constexpr (CHAINS > 1) {
#pragma unroll
            for (int j = 0; j < CHAINS - 1; j++) others[j][tile][n][i] = 0;
          }
        }
  }

  // Stores the warp's sums for the threads that have the cells; a barrier follows.
  __device__ __forceinline__ void store_sums(int parity) {
    if constexpr (CHAINS > 1) {
#pragma unroll
      for (int j = 0; j < CHAINS - 1; j++)
#pragma unroll
        for (int tile = 0; tile < M_TILES; tile++)
#pragma unroll
          for (int n = 0; n < N_TILES; n++)
#pragma unroll
            for (int i = 0; i < 4; i++) sums[tile][n][i] += others[j][tile][n][i];
    }
    const int lane = threadIdx.x % 32;
    float* to = reinterpret_cast<float*>(shared_memory + parity * SUM_BYTES) + threadIdx.x / 32 * (ROWS * PITCH);
#pragma unroll
    for (int tile = 0; tile < M_TILES; tile++)
#pragma unroll
      for (int part = 0; part < 2; part++)
#pragma unroll
        for (int n = 0; n < N_TILES; n++)
          *reinterpret_cast<float2*>(to + (16 * tile + lane / 4 + 8 * part) * PITCH + 8 * n + lane % 4 * 2) =
              make_float2(sums[tile][n][2 * part], sums[tile][n][2 * part + 1]);
  }
  // The sum of all warps.
  static __device__ __forceinline__ float total(int parity, int row, int sequence) {
    const float* from = reinterpret_cast<const float*>(shared_memory + parity * SUM_BYTES) + row * PITCH + sequence;
    float sum = 0;
#pragma unroll
    for (int warp = 0; warp < WARPS; warp++) sum += from[warp * (ROWS * PITCH)];
    return sum;
  }
};

// The work items of a block, in the order in which all blocks take them. slices: of all directions.
struct Items {
  const int slices, groups;
  const bool keeps_rows;  // a block has one slice
  const int first_slice, first_group, apart;

  __device__ __forceinline__ Items(int slices, int groups)
      : slices(slices),
        groups(groups),
        keeps_rows(slices <= gridDim.x),
        first_slice(keeps_rows ? blockIdx.x % slices : blockIdx.x),
        first_group(keeps_rows ? blockIdx.x / slices : 0),
        apart(keeps_rows ? gridDim.x / slices : 1) {}

  template <class Work> __device__ __forceinline__ void each(Work work) const {
    for (int slice = first_slice; slice < slices; slice += keeps_rows ? slices : gridDim.x)
      for (int group = first_group; group < groups; group += apart) work(slice, group);
  }
};

// Fibers of the emulated device do not run while another one polls: there a barrier stands for the waits.
__device__ __forceinline__ void end_step() {
#ifdef EMULATED_CUDA
  __syncthreads();
#endif
}
