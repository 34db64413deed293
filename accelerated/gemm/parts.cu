// These kernels precede and follow a matrix product (matrix_tma.cu). The first copies an operand to be K-major, with
// rows that TMA can read. The second sums the parts of its tiles (stream_k.cuh) in a fixed order.
//
// Tiling: each thread of the sum owns four consecutive elements of a row of C. A block copies 64 x 64 elements;
// MN-major ones pass through shared memory.
//
// Roofline bound: bytes, mostly in L2. The sum reads the parts and writes C at 4.4 TB/s; the copy reads and writes the
// operand at 3.5 TB/s (H200).
#include "gemm/matrix.cuh"
#include "gemm/stream_k.cuh"

struct CopyArguments {
  const ELEMENT *a, *b, *bias;
  const RESULT* c;
  unsigned char* workspace;
  Matrix layout;           // layout of the operand
  long long part;          // stride between batches, or segments of K, in elements
  long long copy_offset;   // bytes
  int index, is_mn_major;  // The operand is A (0) or B (1).
  int rows, k, pitch;      // `pitch` is the stride between rows of the copy, in elements.
};

constexpr int COPIED = 64;         // columns and k per block
constexpr int COPY_THREADS = 256;  // threads per block

extern "C" __global__ void __launch_bounds__(256) gemm_parts_copy(const CopyArguments a) {
  griddepcontrol_wait();
  __shared__ ELEMENT tile[COPIED][COPIED + 1];
  const int first_k = blockIdx.x * COPIED, first = blockIdx.y * COPIED;
  const int at = threadIdx.x % COPIED, row = threadIdx.x / COPIED;
  const ELEMENT* from = at_byte(a.index ? a.b : a.a, a.layout.offset) + blockIdx.z * a.part;
  ELEMENT* to =
      reinterpret_cast<ELEMENT*>(a.workspace + a.copy_offset) + static_cast<long long>(blockIdx.z) * a.rows * a.pitch;
  if (!a.is_mn_major) {
    const int k = first_k + at;
#pragma unroll
    for (int i = 0; i < COPIED; i += COPY_THREADS / COPIED) {
      const int to_row = first + row + i;
      if (k < a.k && to_row < a.rows)
        to[static_cast<long long>(to_row) * a.pitch + k] = from[static_cast<long long>(to_row) * a.layout.stride + k];
    }
    return;
  }
#pragma unroll
  for (int i = 0; i < COPIED; i += COPY_THREADS / COPIED) {
    const int k = first_k + row + i;
    const bool exists = k < a.k && first + at < a.rows;
    tile[row + i][at] = exists ? from[static_cast<long long>(k) * a.layout.stride + first + at] : ELEMENT{};
  }
  __syncthreads();
#pragma unroll
  for (int i = 0; i < COPIED; i += COPY_THREADS / COPIED) {
    const int k = first_k + at, to_row = first + row + i;
    if (k < a.k && to_row < a.rows) to[static_cast<long long>(to_row) * a.pitch + k] = tile[at][row + i];
  }
}

struct SumArguments {
  const ELEMENT *a, *b, *bias;
  RESULT* c;
  const unsigned char* workspace;
  Matrix result;
  long long bias_offset, partial_offset;  // bytes
  int m, n;
  FastDivmod inner, across;  // `across` divides by the groups of neighbours in a row of C.
  Division division;
  int log_tile_m, log_tile_n;  // binary logarithms of the extents of a tile of C
  int transposed;              // whether rows of the product are columns of C
  float beta;
};

constexpr int SUMMED = 4;  // neighbours per thread

extern "C" __global__ void __launch_bounds__(256) gemm_parts_sum(const SumArguments a) {
  griddepcontrol_wait();
  unsigned group;
  const int m = a.across.divide(blockIdx.x * 256 + threadIdx.x, group), n = group * SUMMED;
  if (m >= a.m) return;
  const unsigned m_tile = m >> a.log_tile_m, n_tile = n >> a.log_tile_n;
  const unsigned row_tile = a.transposed ? n_tile : m_tile, column_tile = a.transposed ? m_tile : n_tile;
  const Division& d = a.division;
  const Slots slots(d, (blockIdx.y * d.row_tiles.divisor + row_tile) * d.column_tiles.divisor + column_tile);
  const int in_tile = ((m - (m_tile << a.log_tile_m)) << a.log_tile_n) + n - (n_tile << a.log_tile_n);
  const float* partial = reinterpret_cast<const float*>(a.workspace + a.partial_offset) + in_tile;
  float sum[SUMMED] = {};
#pragma unroll 4
  for (unsigned i = 0; i < slots.count; i++) {
    const long long slot = static_cast<long long>(slots[i]) << (a.log_tile_m + a.log_tile_n);
    const Vector<float, SUMMED> part = *reinterpret_cast<const Vector<float, SUMMED>*>(partial + slot);
#pragma unroll
    for (int j = 0; j < SUMMED; j++) sum[j] += part.item[j];
  }
  blend_into(a, result_of(a, blockIdx.y), m, n, sum);
}
