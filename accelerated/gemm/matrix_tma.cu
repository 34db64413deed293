// This file computes batches of C = A B^T + bias + beta C on Hopper's tensor cores (wgmma), fed by TMA. It serves half,
// bfloat16, and float as TF32.
//
// Tiling: a persistent block computes tiles of at most 32768 sums. A producer warp loads K-blocks of 128 bytes into a
// pipeline of stages. One or two consumer warpgroups multiply them, cooperatively or in PING_PONG. The kernel reads
// 16-bit MN-major operands in place. Tensor cores do not transpose floats: the left operand passes through registers,
// and the right operand is a copy (parts.cu). With TRANSPOSED_RESULT, rows of the product are columns of C. Where the
// tiles do not fill the device, blocks share their K-blocks (stream-K), and parts.cu adds the parts in a fixed order.
//
// Roofline bound: flops, 2 * M * N * K at 989 TFLOP/s in half (495 in TF32). Bytes: (M * K + N * K + M * N) elements.
// 128 x 256 tiles reach 0.70 of the flops bound at 16384 x 768 x 3072 in half (H200). Shared memory is the next bound
// (convolution/implicit_gemm/tma.cu).
#include "gemm/matrix.cuh"
#include "gemm/stream_k.cuh"
#include "gemm/tma_pipeline.cuh"

constexpr int TILE_K = ROW_BYTES / sizeof(ELEMENT);

struct Arguments {
  const ELEMENT *a, *b;  // TMA reads these operands through the maps.
  const ELEMENT* bias;
  RESULT* c;
  unsigned char* workspace;
  long long reserved[3];
  TensorMap left_map, right_map;
  Matrix result;
  long long bias_offset, partial_offset;  // bytes
  int m, n;
  // An operand may have one matrix for this many consecutive batches, or segments of K.
  FastDivmod left_shared, right_shared;
  FastDivmod k_blocks;  // K-blocks per segment of K
  FastDivmod inner;
  Division division;
  unsigned blocks;  // blocks of the division
  int adds;         // 1: partial sums go to the workspace
  float beta;
};

// Names the epilogue of a tile. PARTIAL writes partial sums to the workspace, STORED stores C, BLENDED blends C and
// bias, and GUARDED also checks the edges of C.
enum Finish { PARTIAL, STORED, BLENDED, GUARDED };

// Multiplies tiles of the product with COLUMNS columns. Each of CONSUMERS warpgroups owns ROWS rows.
template <int COLUMNS, int ROWS, int CONSUMERS, int STAGES, int OCCUPANCY, bool PING_PONG = false>
struct Multiplication : TmaPipeline<STAGES, ((PING_PONG ? ROWS : CONSUMERS * ROWS) + COLUMNS) * ROW_BYTES> {
  static constexpr int TILE_ROWS = PING_PONG ? ROWS : CONSUMERS * ROWS, BLOCKS = ROWS / 64;
  static constexpr int TILE_N = TRANSPOSED_RESULT ? TILE_ROWS : COLUMNS;  // columns of C per tile
  static constexpr int TILE_WARPS = PING_PONG ? 4 : 4 * CONSUMERS;
  using Pipeline = TmaPipeline<STAGES, (TILE_ROWS + COLUMNS) * ROW_BYTES>;
  // Up to VALUES / 2 vectors of C per thread (VALUES / 4 if transposed) are in flight, as latency limits blending.
  static constexpr int VALUES = OCCUPANCY * CONSUMERS > 2 ? 8 : 16;
  using Sums = float[BLOCKS][COLUMNS / 2];
  static_assert(!FROM_REGISTERS || BLOCKS == 2);  // A warp has 32 rows.
  static_assert(!TRANSPOSED_RESULT || FROM_REGISTERS);

  const Arguments& a;
  Mbarrier* order;  // one per warpgroup, in ping-pong

  template <class Visit> __device__ __forceinline__ void for_each_segment(Visit visit) const {
    for (unsigned block = blockIdx.x; block < a.blocks; block += gridDim.x) {
      Segment segment;
      for (Walk walk(a.division, block); walk.advance(a.division, segment);) visit(segment);
    }
  }

  // A K-major operand is one box with 128 bytes of K per row. An MN-major one is several boxes with 128 bytes per k.
  template <bool MN_MAJOR, int COUNT>
  __device__ __forceinline__ void load_operand(unsigned char* to, const TensorMap& map, Mbarrier* barrier, int first,
                                               int k, int part) const {
    if constexpr (MN_MAJOR) {
#pragma unroll
      for (int box = 0; box < COUNT / TILE_K; box++)
        tma_load_3d(to + box * TILE_K * ROW_BYTES, map, barrier, first + box * TILE_K, k, part);
    } else {
      tma_load_3d(to, map, barrier, k, first, part);
    }
  }

  // One thread loads all K-blocks.
  __device__ __forceinline__ void produce() {
    for_each_segment([&](const Segment& segment) {
      unsigned row, column, k_block;
      unsigned part = find_tile(a.division, segment.tile, row, column);
      part += a.k_blocks.divide(segment.first, k_block);
      for (unsigned i = 0; i < segment.count; i++) {
        unsigned char* to = this->open_stage();
        Mbarrier* full = &this->full[this->stage];
        unsigned rest;
        load_operand<A_MN_MAJOR, TILE_ROWS>(to, a.left_map, full, row * TILE_ROWS, k_block * TILE_K,
                                            a.left_shared.divide(part, rest));
        load_operand<B_MN_MAJOR, COLUMNS>(to + TILE_ROWS * ROW_BYTES, a.right_map, full, column * COLUMNS,
                                          k_block * TILE_K, a.right_shared.divide(part, rest));
        this->advance(1);
        if (++k_block == a.k_blocks.divisor) k_block = 0, part++;
      }
    });
  }

  __device__ __forceinline__ void consume() {
    const unsigned group = threadIdx.x / WARPGROUP;
    unsigned index = 0, order_parity = group == 0;  // The first warpgroup begins.
    for_each_segment([&](const Segment& segment) {
      if (PING_PONG && (index++ & 1) != group) {
        this->advance(segment.count);
        return;
      }
      Sums sums;
#pragma unroll
      for (int b = 0; b < BLOCKS; b++)
#pragma unroll
        for (int i = 0; i < COLUMNS / 2; i++) sums[b][i] = 0;
      if (PING_PONG) mbarrier_wait_parity(&order[group], order_parity), order_parity ^= 1;
      unsigned previous;
      if constexpr (FROM_REGISTERS)
        previous = this->template multiply_from_registers<ELEMENT, COLUMNS, 1>(sums, warp_row() * ROW_BYTES,
                                                                               TILE_ROWS * ROW_BYTES, segment.count);
      else
        previous = this->template multiply<ELEMENT, COLUMNS, BLOCKS, B_MN_MAJOR, A_MN_MAJOR, 1>(
            sums, (PING_PONG ? 0 : group * ROWS) * ROW_BYTES, 64 * ROW_BYTES, TILE_ROWS * ROW_BYTES, segment.count);
      if (PING_PONG && threadIdx.x % 32 == 0) mbarrier_arrive(&order[1 - group]);
      wgmma_wait<0>();
      if (FROM_REGISTERS) this->release_by_lane(previous);
      else this->release(previous);
#pragma unroll
      for (int b = 0; b < BLOCKS; b++) wgmma_fence_accumulators(sums[b]);
      finish(segment, sums);
    });
  }

  // Returns the first row of a warp, which has 16 rows of each 64, or 32 contiguous ones (TmaPipeline::read_left).
  static __device__ __forceinline__ int warp_row() {
    const int group = threadIdx.x / WARPGROUP, warp = threadIdx.x / 32 % 4;
    return (PING_PONG ? 0 : group * ROWS) + warp * (FROM_REGISTERS ? 32 : 16);
  }

  __device__ __forceinline__ void finish(const Segment& segment, const Sums& sums) const {
    unsigned row, column;
    const unsigned batch = find_tile(a.division, segment.tile, row, column);
    const int first_m = TRANSPOSED_RESULT ? column * COLUMNS : row * TILE_ROWS;
    const int first_n = TRANSPOSED_RESULT ? row * TILE_ROWS : column * COLUMNS;
    RESULT* c = result_of(a, batch);
    const bool has_vectors = (reinterpret_cast<uintptr_t>(c) | a.result.stride * sizeof(RESULT)) % 16 == 0;
    if (a.adds) {
      float* slot = reinterpret_cast<float*>(a.workspace + a.partial_offset) +
                    static_cast<long long>(segment.slot) * (TILE_ROWS * COLUMNS);
      write<PARTIAL>(slot, TILE_N, 0, 0, sums);
    } else if (!has_vectors || first_n + TILE_N > a.n) {
      write<GUARDED>(c, a.result.stride, first_m, first_n, sums);
    } else if (a.beta != 0.0f || a.bias) {
      write<BLENDED>(c, a.result.stride, first_m, first_n, sums);
    } else {
      write<STORED>(c, a.result.stride, first_m, first_n, sums);
    }
  }

  // Locates the first of the consecutive elements of a row of C that a thread stores together.
  struct Cell {
    int m, n;
  };

  // `first_m` and `first_n` are the tile's first row and column in the matrix.
  template <Finish FINISH, class T>
  __device__ __forceinline__ void write(T* matrix, int stride, int first_m, int first_n, const Sums& sums) const {
    const int lane = threadIdx.x % 32, first = warp_row();
    if constexpr (TRANSPOSED_RESULT) {
      constexpr int BATCH = VALUES / 4;
#pragma unroll
      for (int i = 0; i < COLUMNS / 4; i += BATCH) {
        const auto cell = [&](int k) {  // Cell k owns one column of a pair of columns of the product.
          return Cell{first_m + (i + k) / 2 * 8 + lane % 4 * 2 + k % 2, first_n + first + lane / 4 * 4};
        };
        write_cells<FINISH, 4, BATCH>(matrix, stride, cell, [&](int k, float (&value)[4]) {
#pragma unroll
          for (int j = 0; j < 4; j++) value[j] = sums[j / 2][(i + k) / 2 * 4 + j % 2 * 2 + k % 2];
          exchange<2>(value);
        });
      }
    } else {
      constexpr int OCTETS = sizeof(T) == 2 ? 4 : 1;  // octets of columns that four lanes exchange
      constexpr int CELLS = COLUMNS / 8 / OCTETS, ALL = BLOCKS * 2 * CELLS, BATCH = VALUES / 2 < ALL ? VALUES / 2 : ALL;
#pragma unroll
      for (int i = 0; i < ALL; i += BATCH) {
        const auto cell = [&](int k) {
          const int b = (i + k) / (2 * CELLS), part = (i + k) / CELLS % 2, octet = (i + k) % CELLS * OCTETS;
          return Cell{
              first_m + first +
                  (FROM_REGISTERS ? lane / 16 * 16 + 8 * b + 4 * part + lane / 4 % 4 : 64 * b + 8 * part + lane / 4),
              first_n + (OCTETS == 4 ? (octet + lane % 4) * 8 : octet * 8 + lane % 4 * 2)};
        };
        write_cells<FINISH, 2 * OCTETS, BATCH>(matrix, stride, cell, [&](int k, float (&value)[2 * OCTETS]) {
          const int b = (i + k) / (2 * CELLS), part = (i + k) / CELLS % 2, octet = (i + k) % CELLS * OCTETS;
          float values[2][OCTETS];
#pragma unroll
          for (int j = 0; j < 2 * OCTETS; j++) values[j % 2][j / 2] = sums[b][4 * (octet + j / 2) + 2 * part + j % 2];
          exchange<0>(values[0]), exchange<0>(values[1]);
#pragma unroll
          for (int j = 0; j < 2 * OCTETS; j++) value[j] = values[j % 2][j / 2];
        });
      }
    }
  }

  // Stores BATCH cells of COUNT elements each. It reads all prior values before it writes any, so that the reads are in
  // flight together.
  template <Finish FINISH, int COUNT, int BATCH, class T, class CellOf, class ValuesOf>
  __device__ __forceinline__ void write_cells(T* matrix, int stride, CellOf cell_of, ValuesOf values_of) const {
    using Stored = Vector<T, COUNT>;
    Stored read[BATCH];
    const auto find = [&](const Cell& cell) {
      return reinterpret_cast<Stored*>(matrix + static_cast<long long>(cell.m) * stride + cell.n);
    };
    if constexpr (FINISH == BLENDED) {
      if (a.beta != 0.0f) {
#pragma unroll
        for (int k = 0; k < BATCH; k++) {
          const Cell cell = cell_of(k);
          read[k] = cell.m < a.m ? *find(cell) : Stored{};
        }
      }
    }
#pragma unroll
    for (int k = 0; k < BATCH; k++) {
      const Cell cell = cell_of(k);
      float values[COUNT];
      values_of(k, values);
      if constexpr (FINISH == PARTIAL) {
        Stored stored;
#pragma unroll
        for (int j = 0; j < COUNT; j++) stored.item[j] = values[j];
        *find(cell) = stored;
      } else if constexpr (FINISH == GUARDED) {
        if (cell.m < a.m) blend_into(a, matrix, cell.m, cell.n, values);
      } else {
        Stored stored;
#pragma unroll
        for (int j = 0; j < COUNT; j++) {
          float value = values[j];
          if constexpr (FINISH == BLENDED) {
            value += bias_at(a, cell.n + j);
            if (a.beta != 0.0f) value += a.beta * load<float>(read[k].item[j]);
          }
          stored.item[j] = ::store<T>(value);
        }
        if (cell.m < a.m) *find(cell) = stored;
      }
    }
  }

  // Transposes 4 x 4 values of four lanes whose indices differ in the bits FIRST_BIT and FIRST_BIT + 1. A single value
  // stays as it is.
  template <int FIRST_BIT> static __device__ __forceinline__ void exchange(float (&)[1]) {}
  template <int FIRST_BIT> static __device__ __forceinline__ void exchange(float (&value)[4]) {
    const int lane = threadIdx.x % 32;
#pragma unroll
    for (int bit = 0; bit < 2; bit++) {
      const bool upper = lane >> (FIRST_BIT + bit) & 1;
#pragma unroll
      for (int i = 0; i < 2; i++) {
        const int low = bit ? i : 2 * i, high = low + (bit ? 2 : 1);
        const float taken = __shfl_xor_sync(~0u, upper ? value[low] : value[high], 1 << (FIRST_BIT + bit));
        value[low] = upper ? taken : value[low], value[high] = upper ? value[high] : taken;
      }
    }
  }
};

template <int COLUMNS, int ROWS, int CONSUMERS, int STAGES, int OCCUPANCY, bool PING_PONG = false>
__device__ __forceinline__ void multiply(const Arguments& a) {
#if defined(EMULATED_CUDA) || defined(WGMMA_INSTRUCTIONS)
  using M = Multiplication<COLUMNS, ROWS, CONSUMERS, STAGES, OCCUPANCY, PING_PONG>;
  __shared__ Mbarrier full[STAGES], empty[STAGES], order[2];
  unsigned char* stages = shared_memory + (-reinterpret_cast<uintptr_t>(shared_memory) & 1023);
  if (threadIdx.x == 0) {
    M::Pipeline::initialise(full, empty, 32 * M::TILE_WARPS);
    for (int i = 0; i < 2; i++) mbarrier_init(&order[i], WARPGROUP / 32);
    fence_mbarrier_init();
  }
  __syncthreads();
  griddepcontrol_wait_before_access(a.c);
  M m{{stages, full, empty}, a, order};
  if (threadIdx.x >= CONSUMERS * WARPGROUP) {
    if constexpr (OCCUPANCY == 1) setmaxnreg_decrease<40>();
    if (threadIdx.x == CONSUMERS * WARPGROUP) m.produce();
  } else {
    if constexpr (OCCUPANCY == 1) setmaxnreg_increase<232>();
    m.consume();
  }
#endif
}

// NAME gives the rows x columns of a tile of the product. The producer is a warpgroup where it gives registers to the
// consumers, and otherwise a warp.
#define KERNEL(NAME, COLUMNS, ROWS, CONSUMERS, STAGES, OCCUPANCY, ...)                                   \
  extern "C" __global__ void __launch_bounds__(CONSUMERS * 128 + (OCCUPANCY == 1 ? 128 : 32), OCCUPANCY) \
      gemm_matrix_tma_##NAME(const __grid_constant__ Arguments a) {                                      \
    griddepcontrol_wait_deferred();                                                                      \
    multiply<COLUMNS, ROWS, CONSUMERS, STAGES, OCCUPANCY, ##__VA_ARGS__>(a);                             \
  }
#if FROM_REGISTERS
KERNEL(256x128, 128, 128, 2, 4, 1)
KERNEL(128x64, 64, 128, 1, 4, 2)
#else
KERNEL(128x256, 256, 64, 2, 4, 1)
KERNEL(ping_pong_128x128, 128, 128, 2, 6, 1, true)
KERNEL(128x64, 64, 64, 2, 4, 2)
KERNEL(64x64, 64, 64, 1, 6, 2)
#endif
