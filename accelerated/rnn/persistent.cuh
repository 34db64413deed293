// The persistent kernels of recurrent networks share this header. It exchanges vectors between the blocks of a grid,
// and multiplies them by a matrix whose rows stay on chip, divided among the blocks.
//
// persistent_items.cuh gives each block its work. The eight warps of a block divide the K of the product. Each warp
// keeps its part of the block's rows as left operands of mma.sync, in registers and, where those are full, in shared
// memory. Each thread loads the right operands from global memory (L2) straight into registers. A load takes 16
// bytes of a vector, enough for two products, so that both operands permute K alike. Where the hidden size does not
// align vectors to 16 bytes, loads take LOAD_BYTES, 4 or 2.
//
// Each step's vectors have separate memory, which is filled with NOTHING before the launch. A reader polls each element
// until it differs from NOTHING. There is no barrier and no flag.
#pragma once
#define FAST_CELLS 1
#define CLUSTER_BLOCKS PARTS  // blocks per cluster
#include "primitives/cluster.cuh"
#if PARTS == 1
#undef CLUSTER_DIMS_X
#define CLUSTER_DIMS_X
#endif
#include "primitives/mma.cuh"
#include "primitives/tma.cuh"
#include "rnn/cells.cuh"

constexpr int THREADS = 256;                 // per block
constexpr int WARPS = THREADS / 32;          // per block
constexpr int PIECE = 16 / sizeof(ELEMENT);  // elements per load of a thread
constexpr int PAIR = 4 * PIECE;              // elements of K that two products of 32 bytes take
constexpr int SEQUENCES = 8 * N_TILES;       // per tile
constexpr int ROWS = 16 * M_TILES;           // rows of the matrix per tile
constexpr int OWN_ROWS = ROWS / PARTS;       // rows whose sums over all of K a block needs
// The pitch of a row of sums puts sixteen units of a sequence in different banks. Where threads read neighbouring
// sequences together, it puts rows of different blocks in different banks.
constexpr int OWN_PITCH = SEQUENCES + 2;
constexpr int PITCH = PARTS == 1 ? OWN_PITCH : SEQUENCES % 16 ? SEQUENCES : SEQUENCES + 8;
constexpr int WARP_SUMS = ROWS * PITCH;
constexpr int SUM_BYTES = WARPS * WARP_SUMS * sizeof(float);  // bytes per step; two steps alternate
// bytes per step; two steps alternate
constexpr int GATHER_BYTES = PARTS == 1 ? 0 : PARTS * OWN_ROWS * OWN_PITCH * sizeof(float);
constexpr int BARRIER_BYTES = PARTS == 1 ? 0 : 16;

using Piece = uint4;
constexpr unsigned NOTHING = 0xffffffffu;  // NaN with a payload that no cell produces

__device__ __forceinline__ unsigned greater(unsigned a, unsigned b) {
  return sizeof(ELEMENT) == 2 ? __vmaxu2(a, b) : max(a, b);
}
__device__ __forceinline__ bool lacks(const Piece& piece) {
  const unsigned greatest = greater(greater(piece.x, piece.y), greater(piece.z, piece.w));
  if constexpr (sizeof(ELEMENT) == 2) return (greatest & 0xffffu) == 0xffffu || greatest >> 16 == 0xffffu;
  return greatest == NOTHING;
}

union PieceElements {
  Piece piece;
  ELEMENT element[PIECE];
  unsigned word[4];
  unsigned short short_word[8];
  __device__ __forceinline__ PieceElements() : piece{} {}
};

// Reads a piece of vector n from element k on. Elements at and after `depth` are zeros. Vectors are aligned to
// LOAD_BYTES.
template <class Vectors> __device__ __forceinline__ Piece read_piece(const Vectors& vectors, int n, int k, int depth) {
  PieceElements found;
#pragma unroll
  for (int i = 0; i < 16 / LOAD_BYTES; i++) {
    const int at = k + i * (LOAD_BYTES / static_cast<int>(sizeof(ELEMENT)));
    if (LOAD_BYTES < 16 && at >= depth) break;
    const ELEMENT* from = vectors.at(n, at);
#ifdef EMULATED_CUDA
    if constexpr (LOAD_BYTES == 16) found.piece = *reinterpret_cast<const Piece*>(from);
    else if constexpr (LOAD_BYTES == 4) found.word[i] = *reinterpret_cast<const unsigned*>(from);
    else found.short_word[i] = *reinterpret_cast<const unsigned short*>(from);
#else
    if constexpr (LOAD_BYTES == 16)
      asm volatile("ld.relaxed.gpu.global.v4.u32 {%0, %1, %2, %3}, [%4];"
                   : "=r"(found.piece.x), "=r"(found.piece.y), "=r"(found.piece.z), "=r"(found.piece.w)
                   : "l"(from)
                   : "memory");
    else if constexpr (LOAD_BYTES == 4)
      asm volatile("ld.relaxed.gpu.global.u32 %0, [%1];" : "=r"(found.word[i]) : "l"(from) : "memory");
    else asm volatile("ld.relaxed.gpu.global.u16 %0, [%1];" : "=h"(found.short_word[i]) : "l"(from) : "memory");
#endif
  }
  return found.piece;
}

// The emulated device computes items one after another, so that an incomplete item would wait forever.
__device__ __forceinline__ void require_in_order(bool complete) {
#ifdef EMULATED_CUDA
  if (!complete) __trap();
#endif
}

// Publishes elements that other blocks wait for. The memory must hold NOTHING before, or a reader would take the old
// value.
__device__ __forceinline__ void publish(ELEMENT* to, ELEMENT value) {
#ifdef EMULATED_CUDA
  using Bits = std::conditional_t<sizeof(ELEMENT) == 2, unsigned short, unsigned>;
  require_in_order(*reinterpret_cast<const Bits*>(to) == static_cast<Bits>(NOTHING));
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

// Every WARPS-th pair of K belongs to this warp.
__device__ __forceinline__ int first_element(int index) { return (index * WARPS + threadIdx.x / 32) * PAIR; }

// Holds the left operands of a warp. The first KEPT pairs stay in registers, the others in shared memory.
template <int KEPT> struct Rows {
  static constexpr int IN_REGISTERS = KEPT;
  const int before;  // pairs of other rows in shared memory
  unsigned kept[KEPT > 0 ? KEPT : 1][M_TILES][2][4];

  __device__ __forceinline__ explicit Rows(int before = 0) : before(before) {}
  __device__ __forceinline__ uint4* rest(int index, int tile, int half) const {
    return reinterpret_cast<uint4*>(shared_memory + 2 * (SUM_BYTES + GATHER_BYTES) + BARRIER_BYTES) +
           (((before + index - KEPT) * WARPS + threadIdx.x / 32) * M_TILES * 2 + tile * 2 + half) * 32 +
           threadIdx.x % 32;
  }

  static __device__ __forceinline__ void keep(unsigned (&low)[4], unsigned (&high)[4], const Piece& upper,
                                              const Piece& lower) {
    low[0] = operand_word(upper.x), low[1] = operand_word(lower.x);
    low[2] = operand_word(upper.y), low[3] = operand_word(lower.y);
    high[0] = operand_word(upper.z), high[1] = operand_word(lower.z);
    high[2] = operand_word(upper.w), high[3] = operand_word(lower.w);
  }
  // piece(index, row) returns PIECE elements of K of a row, from the thread's first element in that pair.
  template <class Pieces> __device__ __forceinline__ void fill(int pairs, Pieces pieces) {
    const int row = threadIdx.x % 32 / 4;
#pragma unroll
    for (int i = 0; i < KEPT; i++) {
      pieces.begin(i);
#pragma unroll
      for (int tile = 0; tile < M_TILES; tile++)
        keep(kept[i][tile][0], kept[i][tile][1], pieces(16 * tile + row), pieces(16 * tile + row + 8));
    }
#pragma unroll 1
    for (int i = KEPT; i < pairs; i++) {
      pieces.begin(i);
#pragma unroll 1
      for (int tile = 0; tile < M_TILES; tile++) {
        unsigned low[4], high[4];
        keep(low, high, pieces(16 * tile + row), pieces(16 * tile + row + 8));
        *rest(i, tile, 0) = make_uint4(low[0], low[1], low[2], low[3]);
        *rest(i, tile, 1) = make_uint4(high[0], high[1], high[2], high[3]);
      }
    }
    __syncwarp();
  }
};

// Reads pieces of a row-major matrix whose rows are the rows of the block. start(row) points to the beginning of a row;
// nullptr means zeros. `aligned` means that rows are aligned to 16 bytes.
template <class Start> struct RowPieces {
  const Start start;
  const int depth;
  const bool aligned;
  int k = 0;

  __device__ __forceinline__ void begin(int index) { k = first_element(index) + threadIdx.x % 4 * PIECE; }
  __device__ __forceinline__ Piece operator()(int row) const {
    const ELEMENT* from = start(row);
    PieceElements found;
    if (k >= depth || !from) return found.piece;
    if (aligned) return *reinterpret_cast<const Piece*>(from + k);
#pragma unroll
    for (int i = 0; i < PIECE; i++)
      if (LOAD_BYTES == 16 || k + i < depth) found.element[i] = from[k + i];
    return found.piece;
  }
};

// Reads pieces of a matrix whose columns are the rows of the block; its rows have `stride` elements, and the first
// `count` columns exist. Each warp transposes one pair of K at a time in the shared memory of the later sums.
struct ColumnPieces {
  static constexpr int ACCESSES = ROWS / PIECE;
  const ELEMENT* from;
  const int stride, count, depth;

  // Returns a row of K. Half of a pair's rows use the memory of this step's sums, the other half the next step's.
  static __device__ __forceinline__ ELEMENT* staged(int k) {
    constexpr int HALF = PAIR / 2;
    static_assert(HALF * ROWS * sizeof(ELEMENT) <= WARP_SUMS * sizeof(float) && WARP_SUMS % 4 == 0);
    const int offset = k / HALF * SUM_BYTES + threadIdx.x / 32 * (WARP_SUMS * static_cast<int>(sizeof(float)));
    return reinterpret_cast<ELEMENT*>(shared_memory + offset) + k % HALF * ROWS;
  }
  __device__ __forceinline__ void begin(int index) const {
    const bool aligned = (reinterpret_cast<uintptr_t>(from) | stride * sizeof(ELEMENT)) % 16 == 0;
    __syncwarp();
#pragma unroll 4
    for (int i = threadIdx.x % 32; i < PAIR * ACCESSES; i += 32) {
      const int k = first_element(index) + i / ACCESSES, column = i % ACCESSES * PIECE;
      PieceElements found;
      if (k < depth) {
        const ELEMENT* access = from + static_cast<long long>(k) * stride + column;
        if (aligned && column + PIECE <= count) {
          found.piece = *reinterpret_cast<const Piece*>(access);
        } else {
#pragma unroll
          for (int j = 0; j < PIECE; j++)
            if (column + j < count) found.element[j] = access[j];
        }
      }
      *reinterpret_cast<Piece*>(staged(i / ACCESSES) + column) = found.piece;
    }
    __syncwarp();
  }
  __device__ __forceinline__ Piece operator()(int row) const {
    PieceElements found;
#pragma unroll
    for (int i = 0; i < PIECE; i++) found.element[i] = staged(threadIdx.x % 4 * PIECE + i)[row];
    return found.piece;
  }
};

// Reads vectors that this launch does not write. Each begins `stride` elements after the one before. Vectors that this
// launch publishes need Published, which waits for them.
struct Given {
  static constexpr bool WAITS = false;
  const ELEMENT* vectors;
  long long stride;
  __device__ __forceinline__ const ELEMENT* at(int n, int k) const { return vectors + n * stride + k; }
};
// Elements from gap_at on, counted from the start of the vectors, are `gap` elements further.
template <bool GAP = false> struct Published {
  static constexpr bool WAITS = true;
  const ELEMENT* vectors;
  long long stride;
  int first, gap_at, gap;
  __device__ __forceinline__ const ELEMENT* at(int n, int k) const {
    const ELEMENT* from = vectors + n * stride + first + k;
    return GAP && first + k >= gap_at ? from + gap : from;
  }
};

struct EveryRow {
  __device__ __forceinline__ bool operator()(int) const { return true; }
};

// Adds the block's rows times `count` vectors to `sums`, over the warp's part of K. `pairs` bounds the pairs per warp.
// Dependent products form CHAINS sums.
struct Product {
  static constexpr unsigned ALL_SEQUENCES = ~0u;
  float sums[M_TILES][N_TILES][4], others[CHAINS > 1 ? CHAINS - 1 : 1][M_TILES][N_TILES][4];

  __device__ __forceinline__ float (&chain(int index, int tile, int n))[4] {
    return index % CHAINS ? others[index % CHAINS - 1][tile][n] : sums[tile][n];
  }

  using Pieces = Piece[LOADED_PAIRS][N_TILES];

  // Begins the reads of the pairs from `first` on. A read that comes too early is repeated by complete(). The emulated
  // device would race with the writers, so it leaves all reads to complete().
  template <class Vectors>
  static __device__ __forceinline__ void begin(Pieces& pieces, int first, const Vectors& vectors, int count,
                                               int depth) {
    const int at = threadIdx.x % 4 * PIECE, n = threadIdx.x % 32 / 4;
#pragma unroll
    for (int i = 0; i < LOADED_PAIRS; i++)
#pragma unroll
      for (int tile = 0; tile < N_TILES; tile++) {
        const int k = first_element(first + i) + at;
        pieces[i][tile] = Piece{};
        if (k >= depth || n + 8 * tile >= count) continue;
        if constexpr (Vectors::WAITS) {
#ifdef EMULATED_CUDA
          pieces[i][tile] = Piece{NOTHING, NOTHING, NOTHING, NOTHING};
#else
          pieces[i][tile] = read_piece(vectors, n + 8 * tile, k, depth);
#endif
        } else {
          const ELEMENT* from = vectors.at(n + 8 * tile, k);
          PieceElements found;
#pragma unroll
          for (int j = 0; j < PIECE; j++)
            if (LOAD_BYTES == 16 || k + j < depth) found.element[j] = from[j];
          pieces[i][tile] = found.piece;
        }
      }
  }
  // Repeats reads of elements that had not been published.
  template <class Vectors>
  static __device__ __forceinline__ void complete(Pieces& pieces, int first, const Vectors& vectors, int depth) {
    const int at = threadIdx.x % 4 * PIECE, n = threadIdx.x % 32 / 4;
    if constexpr (Vectors::WAITS) {
      bool complete;
      do {
        complete = true;
#pragma unroll
        for (int i = 0; i < LOADED_PAIRS; i++)
#pragma unroll
          for (int tile = 0; tile < N_TILES; tile++)
            if (lacks(pieces[i][tile])) {
              pieces[i][tile] = read_piece(vectors, n + 8 * tile, first_element(first + i) + at, depth);
              complete = false;
              require_in_order(!lacks(pieces[i][tile]));
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

  template <class LeftRows, class Vectors>
  __device__ __forceinline__ void run(const LeftRows& rows, int pairs, const Vectors& vectors, int count, int depth) {
    constexpr int KEPT = LeftRows::IN_REGISTERS;
#pragma unroll
    for (int first = 0; first < KEPT; first += LOADED_PAIRS) {
      if (first >= pairs) break;
      Pieces pieces;
      begin(pieces, first, vectors, count, depth);
      complete(pieces, first, vectors, depth);
#pragma unroll
      for (int i = 0; i < LOADED_PAIRS; i++) {
        if (first + i >= KEPT) {
          if (first + i < pairs) multiply_rest(rows, first + i, i, pieces[i]);
          continue;
        }
#pragma unroll
        for (int tile = 0; tile < M_TILES; tile++)
          multiply(i, rows.kept[first + i][tile][0], rows.kept[first + i][tile][1], tile, pieces[i]);
      }
    }
    constexpr int UNROLLED = (KEPT + LOADED_PAIRS - 1) / LOADED_PAIRS * LOADED_PAIRS;
    run_rest<UNROLLED>(rows, pairs, vectors, count, depth);
  }
  // Multiplies when all left operands are in shared memory and the reads of pieces have begun.
  template <class Vectors>
  __device__ __forceinline__ void run_begun(const Rows<0>& rows, Pieces& pieces, int pairs, const Vectors& vectors,
                                            int count, int depth) {
    complete(pieces, 0, vectors, depth);
#pragma unroll
    for (int i = 0; i < LOADED_PAIRS; i++)
      if (i < pairs) multiply_rest(rows, i, i, pieces[i]);
    run_rest<LOADED_PAIRS>(rows, pairs, vectors, count, depth);
  }
  template <int FIRST, class LeftRows, class Vectors>
  __device__ __forceinline__ void run_rest(const LeftRows& rows, int pairs, const Vectors& vectors, int count,
                                           int depth) {
#pragma unroll 1
    for (int first = FIRST; first < pairs; first += LOADED_PAIRS) {
      Pieces pieces;
      begin(pieces, first, vectors, count, depth);
      complete(pieces, first, vectors, depth);
#pragma unroll
      for (int i = 0; i < LOADED_PAIRS; i++)
        if (first + i < pairs) multiply_rest(rows, first + i, i, pieces[i]);
    }
  }
  // Multiplies left operands in shared memory. `chain` is any constant.
  template <class LeftRows>
  __device__ __forceinline__ void multiply_rest(const LeftRows& rows, int pair, int chain,
                                                const Piece (&pieces)[N_TILES]) {
#pragma unroll
    for (int tile = 0; tile < M_TILES; tile++) {
      const uint4 a = *rows.rest(pair, tile, 0), b = *rows.rest(pair, tile, 1);
      const unsigned low[4] = {a.x, a.y, a.z, a.w}, high[4] = {b.x, b.y, b.z, b.w};
      multiply(chain, low, high, tile, pieces);
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

  // Makes a sum 0 where the factor is 0: 0 times an infinity would be NaN.
  __device__ __forceinline__ void multiply_sum(int tile, int n, int i, float factor) {
    sums[tile][n][i] = factor == 0 ? 0 : sums[tile][n][i] * factor;
    if constexpr (CHAINS > 1) {
#pragma unroll
      for (int j = 0; j < CHAINS - 1; j++) others[j][tile][n][i] = factor == 0 ? 0 : others[j][tile][n][i] * factor;
    }
  }

  // Makes the sums of the rows 0 for which `has` returns true.
  template <class Has> __device__ __forceinline__ void clear_rows(Has has) {
#pragma unroll
    for (int tile = 0; tile < M_TILES; tile++)
#pragma unroll
      for (int n = 0; n < N_TILES; n++)
#pragma unroll
        for (int i = 0; i < 4; i++)
          if (has(16 * tile + threadIdx.x % 32 / 4 + i / 2 * 8)) multiply_sum(tile, n, i, 0);
  }

  // Returns the sum of all chains.
  __device__ __forceinline__ float sum_of(int tile, int n, int i) const {
    float sum = sums[tile][n][i];
    if constexpr (CHAINS > 1) {
#pragma unroll
      for (int j = 0; j < CHAINS - 1; j++) sum += others[j][tile][n][i];
    }
    return sum;
  }

  // Stores the warp's sums for the threads that own the cells. The caller must add a barrier. `sequences` has a bit for
  // each sequence of the group whose sums are stored; has(row) returns whether those of a row are.
  template <class Has = EveryRow>
  __device__ __forceinline__ void store_sums(int parity, unsigned sequences = ALL_SEQUENCES, Has has = {}) const {
    const int lane = threadIdx.x % 32;
    float* to = sums_of(parity) + threadIdx.x / 32 * WARP_SUMS;
#pragma unroll
    for (int tile = 0; tile < M_TILES; tile++)
#pragma unroll
      for (int half = 0; half < 2; half++)
#pragma unroll
        for (int n = 0; n < N_TILES; n++) {
          if (!has(16 * tile + lane / 4 + 8 * half)) continue;
          float* at = to + (16 * tile + lane / 4 + 8 * half) * PITCH + 8 * n + lane % 4 * 2;
          const float2 both = make_float2(sum_of(tile, n, 2 * half), sum_of(tile, n, 2 * half + 1));
          const unsigned stored = sequences >> (8 * n + lane % 4 * 2) & 3;
          if (sequences == ALL_SEQUENCES) {
            *reinterpret_cast<float2*>(at) = both;
          } else {
            if (stored & 1) at[0] = both.x;
            if (stored & 2) at[1] = both.y;
          }
        }
  }
  static __device__ __forceinline__ float* sums_of(int parity) {
    return reinterpret_cast<float*>(shared_memory + parity * SUM_BYTES);
  }
  // Returns the sum over all warps.
  static __device__ __forceinline__ float total(int parity, int row, int sequence) {
    const float* from = sums_of(parity) + row * PITCH + sequence;
    float sum = 0;
#pragma unroll
    for (int warp = 0; warp < WARPS; warp++) sum += from[warp * WARP_SUMS];
    return sum;
  }
};

#if PARTS > 1
// The blocks of a cluster have the same rows, and each has a part of K. Every block sends each other block the sums of
// the receiver's rows.
//
// Two buffers suffice. A block that sends the sums of a step has received those of the step before. The others sent
// them after a barrier, so their threads had read the sums of the step before that.
struct Partials {
  static __device__ __forceinline__ Mbarrier* barrier(int parity) {
    return reinterpret_cast<Mbarrier*>(shared_memory + 2 * (SUM_BYTES + GATHER_BYTES)) + parity;
  }
  static __device__ __forceinline__ float* of(int parity, int part) {
    return reinterpret_cast<float*>(shared_memory + 2 * SUM_BYTES + parity * GATHER_BYTES) +
           part * (OWN_ROWS * OWN_PITCH);
  }
  static __device__ __forceinline__ unsigned remote(const void* variable, unsigned block) {
    unsigned there;
    asm("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(there) : "r"(shared_address(variable)), "r"(block));
    return there;
  }
  static __device__ __forceinline__ void init() {
    if (threadIdx.x == 0) {
      mbarrier_init(barrier(0), 1);
      mbarrier_init(barrier(1), 1);
      fence_mbarrier_init();
    }
    cluster_arrive();
    cluster_wait();
  }
  static __device__ __forceinline__ void send(int parity, int part) {
    constexpr int PAIRS = SEQUENCES / 2;
#pragma unroll
    for (int i = 0; i < (ROWS * PAIRS + THREADS - 1) / THREADS; i++) {
      const int item = threadIdx.x + i * THREADS, sequence = item % PAIRS * 2, row = item / PAIRS;
      if (ROWS * PAIRS % THREADS && item >= ROWS * PAIRS) break;
      const float* from = Product::sums_of(parity) + row * PITCH + sequence;
      float2 sum = make_float2(0, 0);
#pragma unroll
      for (int warp = 0; warp < WARPS; warp++) {
        const float2 one = *reinterpret_cast<const float2*>(from + warp * WARP_SUMS);
        sum.x += one.x, sum.y += one.y;
      }
      const float* to = of(parity, part) + row % OWN_ROWS * OWN_PITCH + sequence;
      const unsigned owner = row / OWN_ROWS;
      asm volatile(
          "st.async.shared::cluster.mbarrier::complete_tx::bytes.v2.f32 [%0], {%1, %2}, [%3];" ::"r"(remote(to, owner)),
          "f"(sum.x), "f"(sum.y), "r"(remote(barrier(parity), owner))
          : "memory");
    }
  }
  static __device__ __forceinline__ void wait(int parity, int phase) {
    unsigned done = 0;
    while (!done)
      asm volatile(
          "{ .reg .pred there; mbarrier.try_wait.parity.acquire.cluster.shared::cta.b64 there, [%1], %2; selp.u32 %0, "
          "1, 0, there; }"
          : "=r"(done)
          : "r"(shared_address(barrier(parity))), "r"(phase)
          : "memory");
  }
};
#endif

// Returns the sums of a block's own rows, once all of its threads have stored theirs.
struct Sums {
  int count = 0;  // steps of all items so far

  __device__ __forceinline__ Sums() {
#if PARTS > 1
    Partials::init();
#endif
  }
  __device__ __forceinline__ int parity() const { return count & 1; }
  // `sequences` and the rows of `has` are those whose sums have not been stored before.
  template <class Has = EveryRow>
  __device__ __forceinline__ void exchange(const Product& product, int part, bool has_cells,
                                           unsigned sequences = Product::ALL_SEQUENCES, Has has = {}) {
    product.store_sums(parity(), sequences, has);
    __syncthreads();
#if PARTS > 1
    if (threadIdx.x == 0)
      mbarrier_arrive_expect_tx(Partials::barrier(parity()), ROWS * SEQUENCES * static_cast<int>(sizeof(float)));
    Partials::send(parity(), part);
    if (has_cells) Partials::wait(parity(), count >> 1 & 1);
#endif
  }
  __device__ __forceinline__ float total(int row, int sequence) const {
#if PARTS > 1
    float sum = 0;
#pragma unroll
    for (int part = 0; part < PARTS; part++) sum += Partials::of(parity(), part)[row * OWN_PITCH + sequence];
    return sum;
#else
    return Product::total(parity(), row, sequence);
#endif
  }
  // Waits after the last step, because no block may write to a block that has ended.
  __device__ __forceinline__ void finish() const {
#if PARTS > 1
    cluster_arrive();
    cluster_wait();
#endif
  }
};
