// These kernels add the gradients of a recurrent network's matrices and biases (8.2.20 to 8.2.22) to memory.
//
// One product over the vectors of all steps (gemm/matrix.cu) serves the input matrices, and one or two serve the
// recurrent matrices. A product covers both directions, or the layers with equal layouts, at a time. For small layers
// one product serves both kinds of matrices.
//
// For all layers together, one launch sums the biases and copies the factors of the recurrent matrices, which are the
// outputs of the step before. For small layers it also copies the factors of the input matrices. Another launch
// computes the projections. The gate gradients are in the reserve space, with zeros in the padding.
//
// Roofline bound: flops, 2 * steps * batch * gates * hidden * (width + projected) per direction and layer. Bytes: the
// gate gradients are read twice, inputs and outputs once; the weights are read and written once.
#include "rnn/copy_vector.cuh"
#include "rnn/network.cuh"
#include "gemm/product_tile.cuh"

constexpr int LAYERS = 8;  // layers per launch, at most

struct Arguments {
  const ELEMENT *x, *hx;
  ELEMENT* dweights;
  COMPUTE *workspace, *reserve;
  unsigned char* copies;
  Layer layers[LAYERS];
  Regions regions[LAYERS];
  Shape shape;
  long long copies_of_layer;  // bytes per layer
  int plain;                  // x has the order (step, sequence) without gaps, and the kernel writes no lengths.
  int with_inputs;            // whether inputs are copied before the outputs of one direction
  int bias_blocks;            // blocks per direction
};

__device__ __forceinline__ void add(ELEMENT* weight, COMPUTE sum) {
  *weight = store<ELEMENT>(load<COMPUTE>(*weight) + sum);
}

// Computes the gradients of the projection matrices. The outermost index of the grid is the direction of a layer.
extern "C" __global__ void __launch_bounds__(PRODUCT_THREADS) rnn_weight_gradient_project(const Arguments a) {
  griddepcontrol_wait();
  const Shape& s = a.shape;
  const int index = blockIdx.z / s.directions, direction = blockIdx.z % s.directions;
  const Layer& layer = a.layers[index];
  const Regions& regions = a.regions[index];
  const int* offsets = offsets_of(a.workspace, regions);
  const COMPUTE* gradients = a.reserve + regions.kept_gradient + direction * regions.kept_step;
  const COMPUTE* hidden = a.reserve + regions.kept_hidden + direction * regions.kept_step;
  ELEMENT* matrix = a.dweights + layer.projection.start + direction * layer.projection.step;
  auto exists = [&](int vector) { return a.plain || vector / s.batch < length_of(offsets, s, vector % s.batch); };
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

// Bias gradients: each block sums COLUMNS columns of the gate gradients over all vectors. Each thread takes a vector of
// columns, 16 bytes where the rows are aligned.
constexpr int COLUMNS = 32;                   // per block
constexpr int ACCESS = 16 / sizeof(ELEMENT);  // elements per vector
constexpr int ACCESSES = COLUMNS / ACCESS;    // vectors across the columns
constexpr int THREADS = 1024;                 // per block
constexpr int ROWS = THREADS / ACCESSES;      // vectors of gradients that a block reads at once
constexpr int WARPS = THREADS / 32;           // per block

__device__ __forceinline__ void sum_biases(const Arguments& a, const Layer& layer, const Regions& regions,
                                           int direction, int block) {
  __shared__ COMPUTE sums[WARPS][COLUMNS];
  const Shape& s = a.shape;
  const int first = block * COLUMNS + threadIdx.x % ACCESSES * ACCESS, width = KEPT * s.hidden;
  const ELEMENT* gradients = elements_at(a.reserve, regions.gradients + direction * regions.kept_step) + first;
  const long long vectors = static_cast<long long>(s.steps) * s.batch;
  const bool aligned = (reinterpret_cast<uintptr_t>(gradients) | width * sizeof(ELEMENT)) % 16 == 0;
  COMPUTE sum[ACCESS] = {};
  if (first < width && aligned) {
#pragma unroll 8
    for (long long vector = threadIdx.x / ACCESSES; vector < vectors; vector += ROWS) {
      const auto access = *reinterpret_cast<const Vector<ELEMENT, ACCESS>*>(gradients + vector * width);
#pragma unroll
      for (int i = 0; i < ACCESS; i++) sum[i] += load<COMPUTE>(access.item[i]);
    }
  } else {
    for (long long vector = threadIdx.x / ACCESSES; vector < vectors; vector += ROWS)
#pragma unroll
      for (int i = 0; i < ACCESS; i++)
        if (first + i < width) sum[i] += load<COMPUTE>(gradients[vector * width + i]);
  }
#pragma unroll
  for (int i = 0; i < ACCESS; i++) {
#pragma unroll
    for (int lanes = ACCESSES; lanes < 32; lanes *= 2) sum[i] += __shfl_xor_sync(0xffffffffu, sum[i], lanes);
    if (threadIdx.x % 32 < ACCESSES) sums[threadIdx.x / 32][threadIdx.x % 32 * ACCESS + i] = sum[i];
  }
  __syncthreads();
  const int column = block * COLUMNS + threadIdx.x;
  if (threadIdx.x >= COLUMNS || column >= width) return;
  COMPUTE total = 0;
#pragma unroll
  for (int i = 0; i < WARPS; i++) total += sums[i][threadIdx.x];

  // The last gate of a GRU has its input bias in one slot. The next slot has the term that its reset gate multiplies.
  const bool input = CELL != GRU || column < 3 * s.hidden, recurrent = CELL != GRU || column / s.hidden != 2;
  const int recurrent_row = CELL == GRU && column >= 3 * s.hidden ? column - s.hidden : column;
  const Weights &input_bias = layer.input_bias, &recurrent_bias = layer.recurrent_bias;
  if (input && input_bias.start >= 0) add(a.dweights + input_bias.start + direction * input_bias.step + column, total);
  if (recurrent && recurrent_bias.start >= 0)
    add(a.dweights + recurrent_bias.start + direction * recurrent_bias.step + recurrent_row, total);
}

// One warp copies a layer's vectors by (kind, step, sequence), and writes zeros where a sequence has no such step. The
// kinds are the inputs, and each direction's outputs of the step before, which include initial states.
__device__ __forceinline__ void copy_factor(const Arguments& a, const Layer& layer, const Regions& regions, int item,
                                            ELEMENT* to) {
  const Shape& s = a.shape;
  const int vectors = s.steps * s.batch, direction = item / vectors - a.with_inputs, vector = item % vectors;
  if (direction >= s.directions) return;
  const int step = vector / s.batch, sequence = vector % s.batch, previous = direction > 0 ? step + 1 : step - 1;
  const int* offsets = offsets_of(a.workspace, regions);
  const int length = a.plain ? s.steps : length_of(offsets, s, sequence);
  const ELEMENT* from = nullptr;
  if (direction < 0 && step < length) {
    const long long at = layer.first && !a.plain ? vector_at(offsets, s, step, sequence) : vector;
    from = (layer.first ? a.x : below_of(a.workspace, a.reserve, regions)) + at * s.projected;
  } else if (step < length && previous >= 0 && previous < length) {
    from = elements_at(a.reserve, regions.kept_output) +
           ((static_cast<long long>(previous) * s.batch + sequence) * s.directions + direction) * s.projected;
  } else if (step < length && a.hx) {
    from = a.hx + (static_cast<long long>(layer.pseudo_layer + direction) * s.batch + sequence) * s.projected;
  }
  copy_vector(to + static_cast<long long>(item) * s.projected, from, s.projected, store<ELEMENT>(COMPUTE(0)));
}

// The outermost index of the grid is the layer.
extern "C" __global__ void __launch_bounds__(THREADS) rnn_weight_gradient_biases(const Arguments a) {
  griddepcontrol_wait();
  const Layer& layer = a.layers[blockIdx.y];
  const Regions& regions = a.regions[blockIdx.y];
  const int block = blockIdx.x, of_biases = a.bias_blocks * a.shape.directions;
  if (block < of_biases) {
    sum_biases(a, layer, regions, block / a.bias_blocks, block % a.bias_blocks);
  } else {
    unsigned char* copies = a.copies + layer.pseudo_layer / a.shape.directions * a.copies_of_layer;
    copy_factor(a, layer, regions, (block - of_biases) * WARPS + threadIdx.x / 32, reinterpret_cast<ELEMENT*>(copies));
  }
}
