// Recurrent networks, the gradients of matrices and biases (8.2.20 to 8.2.22), added to what is there.
//
// Of each layer one product over all vectors of its steps for the input matrices, the recurrent and the projection
// matrices, both directions at a time, and a sum for the biases. The gradients of the gates are in the reserve space.
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

// The lengths of some sequences.
extern "C" __global__ void rnn_weight_gradient_lengths(const Lengths a) {
  griddepcontrol_wait();
  store_lengths(a);
}

// Where the vectors of each step begin in containers.
extern "C" __global__ void rnn_weight_gradient_offsets(const Lengths a) {
  griddepcontrol_wait();
  store_offsets(a);
}

// The gradient of a sum of a gate at a vector; 0 in the padding.
__device__ __forceinline__ COMPUTE gradient_at(const Arguments& a, const int* offsets, int direction, int vector,
                                               int row, bool recurrent) {
  const Shape& s = a.shape;
  if (vector / s.batch >= length_of(offsets, s, vector % s.batch)) return COMPUTE(0);
  int gate = row / s.hidden;
  if (CELL == GRU && recurrent && gate == 2) gate = 3;
  const ELEMENT* gradients = elements_at(a.reserve, a.regions.gradients + direction * a.regions.kept_step);
  return load<COMPUTE>(gradients[(static_cast<long long>(vector) * KEPT + gate) * s.hidden + row % s.hidden]);
}

__device__ __forceinline__ void add(ELEMENT* weight, COMPUTE sum) {
  *weight = store<ELEMENT>(load<COMPUTE>(*weight) + sum);
}

// Of the matrices that meet the input.
extern "C" __global__ void __launch_bounds__(PRODUCT_THREADS) rnn_weight_gradient_input(const Arguments a) {
  griddepcontrol_wait();
  const Shape& s = a.shape;
  const int direction = blockIdx.z, width = a.layer.width;
  const int* offsets = offsets_of(a.workspace, a.regions);
  ELEMENT* matrix = a.dweights + a.layer.input.start + direction * a.layer.input.step;
  product_tile<false, false>(
      GATES * s.hidden, width, s.steps * s.batch,
      [&](int row, int vector) { return gradient_at(a, offsets, direction, vector, row, false); },
      [&](int k, int vector) {
        const int step = vector / s.batch, sequence = vector % s.batch;
        if (step >= length_of(offsets, s, sequence)) return COMPUTE(0);
        if (a.layer.first) return load<COMPUTE>(a.x[vector_at(offsets, s, step, sequence) * width + k]);
        return load<COMPUTE>(elements_at(a.reserve, a.regions.kept_below)[static_cast<long long>(vector) * width + k]);
      },
      [&](int row, int k, COMPUTE sum) { add(matrix + static_cast<long long>(row) * width + k, sum); });
}

// Of the matrices that meet the states.
extern "C" __global__ void __launch_bounds__(PRODUCT_THREADS) rnn_weight_gradient_recurrent(const Arguments a) {
  griddepcontrol_wait();
  const Shape& s = a.shape;
  const int direction = blockIdx.z;
  const int* offsets = offsets_of(a.workspace, a.regions);
  const long long pseudo_layer = a.layer.pseudo_layer + direction;
  const ELEMENT* outputs = elements_at(a.reserve, a.regions.kept_output) + direction * s.projected;
  const ELEMENT* initial = a.hx ? a.hx + pseudo_layer * s.batch * s.projected : nullptr;
  ELEMENT* matrix = a.dweights + a.layer.recurrent.start + direction * a.layer.recurrent.step;
  product_tile<false, false>(
      GATES * s.hidden, s.projected, s.steps * s.batch,
      [&](int row, int vector) { return gradient_at(a, offsets, direction, vector, row, true); },
      [&](int k, int vector) {
        const int step = vector / s.batch, sequence = vector % s.batch, length = length_of(offsets, s, sequence);
        if (step >= length) return COMPUTE(0);
        return before_step(outputs, s.directions * s.projected, initial, s, direction, step, sequence, length,
                           s.projected, k);
      },
      [&](int row, int k, COMPUTE sum) { add(matrix + static_cast<long long>(row) * s.projected + k, sum); });
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

// Of the biases: a thread for each.
extern "C" __global__ void rnn_weight_gradient_bias(const Arguments a) {
  griddepcontrol_wait();
  const Shape& s = a.shape;
  const int direction = blockIdx.y, row = blockIdx.x * blockDim.x + threadIdx.x;
  if (row >= GATES * s.hidden) return;
  const int* offsets = offsets_of(a.workspace, a.regions);
  COMPUTE inputs = 0, states = 0;
  for (int vector = 0; vector < s.steps * s.batch; vector++) {
    inputs += gradient_at(a, offsets, direction, vector, row, false);
    if (CELL == GRU) states += gradient_at(a, offsets, direction, vector, row, true);
  }
  const Weights &input = a.layer.input_bias, &recurrent = a.layer.recurrent_bias;
  if (input.start >= 0) add(a.dweights + input.start + direction * input.step + row, inputs);
  if (recurrent.start >= 0)
    add(a.dweights + recurrent.start + direction * recurrent.step + row, CELL == GRU ? states : inputs);
}
