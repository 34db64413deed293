// Recurrent networks, the gradients of matrices and biases (8.2.20 to 8.2.22), added to what is there.
//
// Of each layer one product over all vectors of its steps for the input matrices, one or two for the recurrent ones
// (gemm/matrix.cu), one for the projection, both directions at a time, and a sum for the biases. The gradients of the
// gates are in the reserve space, zeros in the padding.
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

constexpr int COLUMNS = 32, PARTS = 32;

// Of the biases: a block sums COLUMNS of them, PARTS of the vectors at a time.
extern "C" __global__ void __launch_bounds__(1024) rnn_weight_gradient_bias(const Arguments a) {
  griddepcontrol_wait();
  __shared__ COMPUTE inputs[PARTS][COLUMNS], states[PARTS][COLUMNS];
  const Shape& s = a.shape;
  const int direction = blockIdx.y, part = threadIdx.x / COLUMNS, row = blockIdx.x * COLUMNS + threadIdx.x % COLUMNS;
  const ELEMENT* gradients = elements_at(a.reserve, a.regions.gradients + direction * a.regions.kept_step);
  const int rows = GATES * s.hidden, recurrent_row = CELL == GRU && row >= 2 * s.hidden ? row + s.hidden : row;
  COMPUTE input = 0, state = 0;
  if (row < rows)
#pragma unroll 8
    for (long long vector = part; vector < s.steps * s.batch; vector += PARTS) {
      input += load<COMPUTE>(gradients[vector * KEPT * s.hidden + row]);
      if (CELL == GRU) state += load<COMPUTE>(gradients[vector * KEPT * s.hidden + recurrent_row]);
    }
  inputs[part][threadIdx.x % COLUMNS] = input, states[part][threadIdx.x % COLUMNS] = state;
  __syncthreads();
  if (part > 0 || row >= rows) return;
#pragma unroll
  for (int i = 1; i < PARTS; i++) input += inputs[i][threadIdx.x], state += states[i][threadIdx.x];
  const Weights &input_bias = a.layer.input_bias, &recurrent_bias = a.layer.recurrent_bias;
  if (input_bias.start >= 0) add(a.dweights + input_bias.start + direction * input_bias.step + row, input);
  if (recurrent_bias.start >= 0)
    add(a.dweights + recurrent_bias.start + direction * recurrent_bias.step + row, CELL == GRU ? state : input);
}
