// Products of matrices of an attention: projections of its vectors and their gradients (7.2.43, 8.2.15, 8.2.16).
//
// C = A B + bias + addend + beta C for any strides. A block of 256 threads computes a tile of 64 x 64 from panels of 16
// in shared memory, a thread 4 x 4 elements in registers; sums run in one order. Vectors of padding are not read
// where they are summed over, and are zeros where they are written.
//
// Roofline bound: flops on CUDA cores, 2 M N K; bytes (M K + K N + M N) elements.
#include "attention/vectors.cuh"

constexpr int SIDE = 64, PANEL = 16, ITEMS = 4;

struct ProductArguments {
  const void* a;
  const ELEMENT* b;
  const ELEMENT* bias;
  const ELEMENT* addend;
  const void* space;
  void* c;
  long long a_offset, b_offset, bias_offset, c_offset;  // bytes
  int m, n, k;
  int a_row, a_column, b_row, b_column, c_row, c_column;
  COMPUTE beta;
  int is_of_keys;  // the sequences are those of keys
  Schedule schedule;
  Rows rows;  // what the rows of A and C are, or those of B: vectors
};

// The index of row m of a matrix of vectors, or -1 where it is padding.
__device__ __forceinline__ int valid_row(const ProductArguments& a, unsigned n) {
  const Row row = locate(a.rows, n);
  const int* lengths = a.is_of_keys ? a.schedule.k_lengths(a.space) : a.schedule.q_lengths(a.space);
  return row.time < lengths[row.sequence] ? row.address : -1;
}

enum Use { INPUTS, OUTPUTS, WEIGHTS };

// INPUTS: rows of A and C are vectors, padding too. OUTPUTS: those of C are zeros where they are padding. WEIGHTS:
// columns of A and rows of B are vectors, of which padding is left out.
template <Use USE> __device__ __forceinline__ void multiply(const ProductArguments& a) {
  __shared__ COMPUTE left[PANEL][SIDE + 1], right[PANEL][SIDE + 1];
  __shared__ int address[SIDE];
  const ELEMENT* const matrix = at_byte<ELEMENT>(a.a, a.a_offset);
  const ELEMENT* const other = at_byte<ELEMENT>(a.b, a.b_offset);
  ELEMENT* const result = at_byte<ELEMENT>(a.c, a.c_offset);
  const int tiles = (a.n + SIDE - 1) / SIDE, thread = threadIdx.x;
  const int first_m = blockIdx.x / tiles * SIDE, first_n = blockIdx.x % tiles * SIDE;
  const int ty = thread / 16, tx = thread % 16;
  if (USE != WEIGHTS && thread < SIDE) {
    const int m = first_m + thread;
    address[thread] = m >= a.m ? -1 : USE == OUTPUTS ? valid_row(a, m) : locate(a.rows, m).address;
  }
  COMPUTE sum[ITEMS][ITEMS] = {};
  for (int start = 0; start < a.k; start += PANEL) {
    __syncthreads();
    if (USE == WEIGHTS && thread < PANEL) address[thread] = start + thread < a.k ? valid_row(a, start + thread) : -1;
    if (USE == WEIGHTS) __syncthreads();
#pragma unroll
    for (int i = 0; i < SIDE * PANEL / 256; i++) {
      const int item = thread + 256 * i;
      // Neighbouring threads read neighbouring elements.
      const int lk = a.a_column == 1 ? item % PANEL : item / SIDE, lm = a.a_column == 1 ? item / PANEL : item % SIDE;
      COMPUTE value = 0;
      if (first_m + lm < a.m && start + lk < a.k) {
        const int row = USE == WEIGHTS ? first_m + lm : address[lm];
        const int column = USE == WEIGHTS ? address[lk] : start + lk;
        if (row >= 0 && column >= 0)
          value = load<COMPUTE>(
              matrix[static_cast<long long>(row) * a.a_row + static_cast<long long>(column) * a.a_column]);
      }
      left[lk][lm] = value;
      const int rk = a.b_column == 1 ? item / SIDE : item % PANEL, rn = a.b_column == 1 ? item % SIDE : item / PANEL;
      value = 0;
      if (first_n + rn < a.n && start + rk < a.k) {
        const int row = USE == WEIGHTS ? address[rk] : start + rk;
        if (row >= 0)
          value = load<COMPUTE>(
              other[static_cast<long long>(row) * a.b_row + static_cast<long long>(first_n + rn) * a.b_column]);
      }
      right[rk][rn] = value;
    }
    __syncthreads();
#pragma unroll
    for (int k = 0; k < PANEL; k++) {
      COMPUTE x[ITEMS], y[ITEMS];
#pragma unroll
      for (int i = 0; i < ITEMS; i++) x[i] = left[k][ty + 16 * i], y[i] = right[k][tx + 16 * i];
#pragma unroll
      for (int i = 0; i < ITEMS; i++)
#pragma unroll
        for (int j = 0; j < ITEMS; j++) sum[i][j] += x[i] * y[j];
    }
  }
#pragma unroll
  for (int i = 0; i < ITEMS; i++)
#pragma unroll
    for (int j = 0; j < ITEMS; j++) {
      const int m = first_m + ty + 16 * i, n = first_n + tx + 16 * j;
      if (m >= a.m || n >= a.n) continue;
      COMPUTE value = sum[i][j];
      const bool padding = USE == OUTPUTS && address[ty + 16 * i] < 0;
      const long long row = USE == WEIGHTS ? m : locate(a.rows, m).address;
      const long long index = row * a.c_row + static_cast<long long>(n) * a.c_column;
      if (a.bias) value += load<COMPUTE>(at_byte<ELEMENT>(a.bias, a.bias_offset)[n]);
      if (a.addend && !padding) value += load<COMPUTE>(a.addend[index]);
      if (a.beta != COMPUTE(0)) value += a.beta * load<COMPUTE>(result[index]);
      result[index] = store<ELEMENT>(padding ? COMPUTE(0) : value);
    }
}

extern "C" __global__ void __launch_bounds__(256) attention_product_inputs(const ProductArguments a) {
  griddepcontrol_wait();
  multiply<INPUTS>(a);
}
extern "C" __global__ void __launch_bounds__(256) attention_product_outputs(const ProductArguments a) {
  griddepcontrol_wait();
  multiply<OUTPUTS>(a);
}
extern "C" __global__ void __launch_bounds__(256) attention_product_weights(const ProductArguments a) {
  griddepcontrol_wait();
  multiply<WEIGHTS>(a);
}
