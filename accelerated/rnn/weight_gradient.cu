// Recurrent networks, the gradients of matrices and biases (8.2.20 to 8.2.22), added to what is there.
//
// One product over all vectors of the steps for the input matrices, one or two for the recurrent ones (gemm/matrix.cu),
// of both directions or of the layers that lie alike at a time; of small layers one for both kinds. Of all layers
// together one launch sums biases and copies what recurrent matrices multiply, what cells put out a step before, and of
// small layers what input matrices do; another one has the projections. The gradients of the gates are in the reserve
// space, zeros in the padding.
//
// Roofline bound: flops, 2 * steps * batch * gates * hidden * (width + projected) a direction and layer; bytes: the
// gradients of the gates twice, inputs and outputs once, the weights read and written once.
#include "rnn/copy_vector.cuh"
#include "rnn/network.cuh"
#include "gemm/product_tile.cuh"

constexpr int LAYERS = 8;  // of a launch, at most

struct Arguments {
  const ELEMENT *x, *hx;
  ELEMENT* dweights;
  COMPUTE *workspace, *reserve;
  unsigned char* copies;
  Layer layers[LAYERS];
  Regions regions[LAYERS];
  Shape shape;
  long long copies_of_layer;  // bytes
  int plain;                  // x is in the order (step, sequence) without gaps, and no lengths are written
  int with_inputs;            // which are copied before what one direction put out
  int bias_blocks;            // of a direction
};

__device__ __forceinline__ void add(ELEMENT* weight, COMPUTE sum) {
  *weight = store<ELEMENT>(load<COMPUTE>(*weight) + sum);
}

// Of the projection matrices; the grid has directions of layers outermost.
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

// Of the biases: a block sums COLUMNS columns of the gradients of the gates over all vectors. A thread takes a pack of
// them, 16 bytes where the rows are aligned.
constexpr int COLUMNS = 32, PACK = 16 / sizeof(ELEMENT), PACKS = COLUMNS / PACK, THREADS = 1024;
constexpr int ROWS = THREADS / PACKS, WARPS = THREADS / 32;

__device__ __forceinline__ void sum_biases(const Arguments& a, const Layer& layer, const Regions& regions,
                                           int direction, int block) {
  __shared__ COMPUTE sums[WARPS][COLUMNS];
  const Shape& s = a.shape;
  const int first = block * COLUMNS + threadIdx.x % PACKS * PACK, width = KEPT * s.hidden;
  const ELEMENT* gradients = elements_at(a.reserve, regions.gradients + direction * regions.kept_step) + first;
  const long long vectors = static_cast<long long>(s.steps) * s.batch;
  const bool aligned = (reinterpret_cast<uintptr_t>(gradients) | width * sizeof(ELEMENT)) % 16 == 0;
  COMPUTE sum[PACK] = {};
  if (first < width && aligned) {
#pragma unroll 8
    for (long long vector = threadIdx.x / PACKS; vector < vectors; vector += ROWS) {
      const auto pack = *reinterpret_cast<const Pack<ELEMENT, PACK>*>(gradients + vector * width);
#pragma unroll
      for (int i = 0; i < PACK; i++) sum[i] += load<COMPUTE>(pack.item[i]);
    }
  } else {
    for (long long vector = threadIdx.x / PACKS; vector < vectors; vector += ROWS)
#pragma unroll
      for (int i = 0; i < PACK; i++)
        if (first + i < width) sum[i] += load<COMPUTE>(gradients[vector * width + i]);
  }
#pragma unroll
  for (int i = 0; i < PACK; i++) {
#pragma unroll
    for (int lanes = PACKS; lanes < 32; lanes *= 2) sum[i] += __shfl_xor_sync(0xffffffffu, sum[i], lanes);
    if (threadIdx.x % 32 < PACKS) sums[threadIdx.x / 32][threadIdx.x % 32 * PACK + i] = sum[i];
  }
  __syncthreads();
  const int column = block * COLUMNS + threadIdx.x;
  if (threadIdx.x >= COLUMNS || column >= width) return;
  COMPUTE total = 0;
#pragma unroll
  for (int i = 0; i < WARPS; i++) total += sums[i][threadIdx.x];

  // Of a GRU's last gate the input bias is in one slot, what its reset gate multiplies in the next.
  const bool input = CELL != GRU || column < 3 * s.hidden, recurrent = CELL != GRU || column / s.hidden != 2;
  const int recurrent_row = CELL == GRU && column >= 3 * s.hidden ? column - s.hidden : column;
  const Weights &input_bias = layer.input_bias, &recurrent_bias = layer.recurrent_bias;
  if (input && input_bias.start >= 0) add(a.dweights + input_bias.start + direction * input_bias.step + column, total);
  if (recurrent && recurrent_bias.start >= 0)
    add(a.dweights + recurrent_bias.start + direction * recurrent_bias.step + recurrent_row, total);
}

// By a warp: vectors of a layer by (kind, step, sequence), zeros where a sequence has no step. Kinds: inputs, what the
// cells put out in the step before in each direction, states of the beginning among them.
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

// The grid has layers outermost.
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
