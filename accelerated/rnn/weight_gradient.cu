// Recurrent networks, the gradients of matrices and biases (8.2.20 to 8.2.22), added to what is there.
//
// One product over all vectors of the steps for the input matrices, one or two for the recurrent ones (gemm/matrix.cu),
// of both directions or of the layers that lie alike at a time; of each layer one for the projection, a sum for biases.
// The gradients of the gates are in the reserve space, zeros in the padding.
//
// Roofline bound: flops, 2 * steps * batch * gates * hidden * (width + projected) a direction and layer; bytes: the
// gradients of the gates twice, inputs and outputs once, the weights read and written once.
#include "rnn/network.cuh"
#include "gemm/product_tile.cuh"

struct Arguments {
  const ELEMENT *x, *hx;
  ELEMENT* dweights;
  COMPUTE *workspace, *reserve;
  Layer layer;
  Regions regions;
  Shape shape;
};

__device__ __forceinline__ void add(ELEMENT* weight, COMPUTE sum) {
  *weight = store<ELEMENT>(load<COMPUTE>(*weight) + sum);
}

// Of the projection matrices.
extern "C" __global__ void __launch_bounds__(PRODUCT_THREADS) rnn_weight_gradient_project(const Arguments a) {
  griddepcontrol_wait();
  const Shape& s = a.shape;
  const int direction = blockIdx.z;
  const int* offsets = offsets_of(a.workspace, a.regions);
  const COMPUTE* gradients = a.reserve + a.regions.kept_gradient + direction * a.regions.kept_step;
  const COMPUTE* hidden = a.reserve + a.regions.kept_hidden + direction * a.regions.kept_step;
  ELEMENT* matrix = a.dweights + a.layer.projection.start + direction * a.layer.projection.step;
  auto exists = [&](int vector) { return vector / s.batch < length_of(offsets, s, vector % s.batch); };
  product_tile<false, false>(
      s.projected, s.hidden, s.steps * s.batch,
      [&](int row, int vector) {
        return exists(vector) ? gradients[static_cast<long long>(vector) * s.projected + row] : COMPUTE(0);
      },
      [&](int k, int vector) {
        return exists(vector) ? hidden[static_cast<long long>(vector) * s.hidden + k] : COMPUTE(0);
      },
      [&](int row, int k, COMPUTE sum) { add(matrix + static_cast<long long>(row) * s.hidden + k, sum); });
}

// Of the biases: a block sums COLUMNS columns of the gradients of the gates over all vectors. A thread takes a pack of
// them, 16 bytes where the rows are aligned.
constexpr int COLUMNS = 32, PACK = 16 / sizeof(ELEMENT), PACKS = COLUMNS / PACK, BIAS_THREADS = 1024;
constexpr int ROWS = BIAS_THREADS / PACKS, WARPS = BIAS_THREADS / 32;

extern "C" __global__ void __launch_bounds__(BIAS_THREADS) rnn_weight_gradient_bias(const Arguments a) {
  griddepcontrol_wait();
  __shared__ COMPUTE sums[WARPS][COLUMNS];
  const Shape& s = a.shape;
  const int direction = blockIdx.y, first = blockIdx.x * COLUMNS + threadIdx.x % PACKS * PACK, width = KEPT * s.hidden;
  const ELEMENT* gradients = elements_at(a.reserve, a.regions.gradients + direction * a.regions.kept_step) + first;
  const long long vectors = static_cast<long long>(s.steps) * s.batch;
  const bool aligned = (reinterpret_cast<uintptr_t>(gradients) | width * sizeof(ELEMENT)) % 16 == 0;
  COMPUTE sum[PACK] = {};
  if (first < width) {
#pragma unroll 4
    for (long long vector = threadIdx.x / PACKS; vector < vectors; vector += ROWS) {
      Pack<ELEMENT, PACK> pack{};
      const ELEMENT* from = gradients + vector * width;
      if (aligned) {
        pack = *reinterpret_cast<const Pack<ELEMENT, PACK>*>(from);
      } else {
#pragma unroll
        for (int i = 0; i < PACK; i++)
          if (first + i < width) pack.item[i] = from[i];
      }
#pragma unroll
      for (int i = 0; i < PACK; i++) sum[i] += load<COMPUTE>(pack.item[i]);
    }
  }
#pragma unroll
  for (int i = 0; i < PACK; i++) {
#pragma unroll
    for (int lanes = PACKS; lanes < 32; lanes *= 2) sum[i] += __shfl_xor_sync(0xffffffffu, sum[i], lanes);
    if (threadIdx.x % 32 < PACKS) sums[threadIdx.x / 32][threadIdx.x % 32 * PACK + i] = sum[i];
  }
  __syncthreads();
  const int column = blockIdx.x * COLUMNS + threadIdx.x;
  if (threadIdx.x >= COLUMNS || column >= width) return;
  COMPUTE total = 0;
#pragma unroll
  for (int i = 0; i < WARPS; i++) total += sums[i][threadIdx.x];

  // Of a GRU's last gate the input bias is in one slot, what its reset gate multiplies in the next.
  const bool input = CELL != GRU || column < 3 * s.hidden, recurrent = CELL != GRU || column / s.hidden != 2;
  const int recurrent_row = CELL == GRU && column >= 3 * s.hidden ? column - s.hidden : column;
  const Weights &input_bias = a.layer.input_bias, &recurrent_bias = a.layer.recurrent_bias;
  if (input && input_bias.start >= 0) add(a.dweights + input_bias.start + direction * input_bias.step + column, total);
  if (recurrent && recurrent_bias.start >= 0)
    add(a.dweights + recurrent_bias.start + direction * recurrent_bias.step + recurrent_row, total);
}
