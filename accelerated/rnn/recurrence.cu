// Recurrent networks, forward (7.2.36 to 7.2.38): layer by layer, step by step.
//
// The input products of all steps of a layer are one matrix product; then one kernel a step multiplies the states of
// all sequences by the recurrent matrices and computes the cells, both directions at a time. A block has 16 sequences
// and 16 hidden units; a thread has all gates of one cell. States are kept twice, so that a step reads the one and
// writes the other.
//
// Roofline bound: flops of the input products, 2 * steps * batch * gates * hidden * width; of a step bytes: the
// recurrent matrices, gates * hidden * projected elements, which L2 holds, and a launch for each step.
#include "rnn/network.cuh"
#include "gemm/product_tile.cuh"

struct Arguments {
  const ELEMENT *x, *hx, *cx, *weights;
  ELEMENT *y, *hy, *cy;
  COMPUTE *workspace, *reserve;
  COMPUTE fill;
  Clip clip;
  Layer layer;
  Regions regions;
  Shape shape;
  int step;
};

// The lengths of some sequences.
extern "C" __global__ void rnn_recurrence_lengths(const Lengths a) {
  griddepcontrol_wait();
  store_lengths(a);
}

// Where the vectors of each step begin in x and y.
extern "C" __global__ void rnn_recurrence_offsets(const Lengths a) {
  griddepcontrol_wait();
  store_offsets(a);
}

// The initial states of a layer.
extern "C" __global__ void rnn_recurrence_start(const Arguments a) {
  griddepcontrol_wait();
  const Shape& s = a.shape;
  const int direction = blockIdx.y, numbers = s.batch * (s.projected + s.hidden);
  const int item = blockIdx.x * blockDim.x + threadIdx.x;
  if (item >= numbers) return;
  const int hidden = s.batch * s.projected, cell = item - hidden;
  const long long pseudo_layer = a.layer.pseudo_layer + direction;
  if (cell < 0)
    a.workspace[a.regions.hidden + static_cast<long long>(direction) * hidden + item] =
        a.hx ? load<COMPUTE>(a.hx[pseudo_layer * hidden + item]) : COMPUTE(0);
  else
    a.workspace[a.regions.cell + static_cast<long long>(direction) * s.batch * s.hidden + cell] =
        a.cx ? load<COMPUTE>(a.cx[pseudo_layer * s.batch * s.hidden + cell]) : COMPUTE(0);
}

// The input of a layer: x of the first, what the layer before put out of the others. Padding counts as zeros.
__device__ __forceinline__ COMPUTE input_at(const Arguments& a, const int* offsets, int vector, int k) {
  const Shape& s = a.shape;
  const int step = vector / s.batch, sequence = vector % s.batch;
  if (step >= length_of(offsets, s, sequence)) return COMPUTE(0);
  if (!a.layer.first)
    return load<COMPUTE>(
        below_of(a.workspace, a.reserve, a.regions)[static_cast<long long>(vector) * a.layer.width + k]);
  return load<COMPUTE>(a.x[vector_at(offsets, s, step, sequence) * a.layer.width + k]);
}

// The products of all inputs of a layer, with the biases that are added to them.
extern "C" __global__ void __launch_bounds__(PRODUCT_THREADS) rnn_recurrence_product(const Arguments a) {
  griddepcontrol_wait();
  const Shape& s = a.shape;
  const int direction = blockIdx.z, vectors = s.steps * s.batch, columns = GATES * s.hidden;
  const int* offsets = offsets_of(a.workspace, a.regions);
  const Weights &input = a.layer.input, &input_bias = a.layer.input_bias, &recurrent_bias = a.layer.recurrent_bias;
  const ELEMENT* matrix = a.weights + input.start + direction * input.step;
  product_tile<true, true>(
      vectors, columns, input.start < 0 ? 0 : a.layer.width,
      [&](int vector, int k) { return input_at(a, offsets, vector, k); },
      [&](int row, int k) { return load<COMPUTE>(matrix[static_cast<long long>(row) * a.layer.width + k]); },
      [&](int vector, int row, COMPUTE sum) {
        if (input.start < 0) sum = input_at(a, offsets, vector, row % s.hidden);
        if (input_bias.start >= 0)
          sum += load<COMPUTE>(a.weights[input_bias.start + direction * input_bias.step + row]);
        if (recurrent_bias.start >= 0 && !(CELL == GRU && row >= 2 * s.hidden))
          sum += load<COMPUTE>(a.weights[recurrent_bias.start + direction * recurrent_bias.step + row]);
        a.workspace[a.regions.products + (static_cast<long long>(direction) * vectors + vector) * columns + row] = sum;
      });
}

// Writes an element of the output of a cell: the next state, the input of the next layer or y, the reserve space.
__device__ __forceinline__ void put_out(const Arguments& a, const int* offsets, int direction, int step, int sequence,
                                        int unit, COMPUTE value, bool exists) {
  const Shape& s = a.shape;
  const long long states = static_cast<long long>(s.directions) * s.batch * s.projected;
  const long long state = (static_cast<long long>(direction) * s.batch + sequence) * s.projected + unit;
  COMPUTE* hidden = a.workspace + a.regions.hidden;
  const int parity = a.step % 2;
  if (!exists) value = hidden[parity * states + state];
  hidden[(1 - parity) * states + state] = value;
  const int wide = s.directions * s.projected, column = direction * s.projected + unit;
  const long long vector = static_cast<long long>(step) * s.batch + sequence;
  if (exists && (!a.layer.last || a.regions.kept_output >= 0))
    outputs_of(a.workspace, a.reserve, a.regions)[vector * wide + column] = store<ELEMENT>(value);
  if (a.layer.last && exists) {
    a.y[vector_at(offsets, s, step, sequence) * wide + column] = store<ELEMENT>(value);
  } else if (a.layer.last && s.fills) {
    a.y[vector_at(offsets, s, step, sequence) * wide + column] = store<ELEMENT>(a.fill);
  }
}

constexpr int SEQUENCES = 16, UNITS = 16, STATES = 16;  // of a block; along the sum at a time

// One step of the cells of a layer.
extern "C" __global__ void __launch_bounds__(256) rnn_recurrence_step(const Arguments a) {
  griddepcontrol_wait();
  __shared__ COMPUTE states[SEQUENCES][STATES + 1], matrix[GATES][UNITS][STATES + 1];
  const Shape& s = a.shape;
  const int x = threadIdx.x % 16, y = threadIdx.x / 16, direction = blockIdx.z;
  const int unit = blockIdx.x * UNITS + x, sequence = blockIdx.y * SEQUENCES + y;
  const int step = direction ? s.steps - 1 - a.step : a.step;
  const long long numbers = static_cast<long long>(s.batch) * s.projected;
  const COMPUTE* hidden = a.workspace + a.regions.hidden + (a.step % 2 * s.directions + direction) * numbers;
  const ELEMENT* recurrent = a.weights + a.layer.recurrent.start + direction * a.layer.recurrent.step;
  COMPUTE sums[GATES] = {};
  for (int start = 0; start < s.projected; start += STATES) {
    const int k = start + x, row = blockIdx.x * UNITS + y;
    states[y][x] =
        sequence < s.batch && k < s.projected ? hidden[static_cast<long long>(sequence) * s.projected + k] : COMPUTE(0);
#pragma unroll
    for (int gate = 0; gate < GATES; gate++) {
      const bool inside = row < s.hidden && k < s.projected;
      const long long at = (static_cast<long long>(gate) * s.hidden + row) * s.projected + k;
      matrix[gate][y][x] = inside ? load<COMPUTE>(recurrent[at]) : COMPUTE(0);
    }
    __syncthreads();
#pragma unroll
    for (int i = 0; i < STATES; i++)
#pragma unroll
      for (int gate = 0; gate < GATES; gate++) sums[gate] += states[y][i] * matrix[gate][x][i];
    __syncthreads();
  }
  if (unit >= s.hidden || sequence >= s.batch) return;

  const int* offsets = offsets_of(a.workspace, a.regions);
  const bool exists = step < length_of(offsets, s, sequence);
  const long long vector = static_cast<long long>(step) * s.batch + sequence;
  const long long vectors = static_cast<long long>(s.steps) * s.batch;
  const COMPUTE* products = a.workspace + a.regions.products + (direction * vectors + vector) * GATES * s.hidden;
  COMPUTE* kept = a.reserve + a.regions.kept + direction * a.regions.kept_step + vector * KEPT * s.hidden;
  const bool keeps = a.regions.kept >= 0 && exists;
  COMPUTE value;
  if (CELL == LSTM) {
    COMPUTE* cell =
        a.workspace + a.regions.cell + (static_cast<long long>(direction) * s.batch + sequence) * s.hidden + unit;
    COMPUTE gates[4];
#pragma unroll
    for (int gate = 0; gate < 4; gate++) {
      const COMPUTE sum = products[gate * s.hidden + unit] + sums[gate % GATES];
      gates[gate] = gate == 2 ? tanh(sum) : sigmoid(sum);
      if (keeps) kept[gate * s.hidden + unit] = gates[gate];
    }
    const COMPUTE state = clipped(gates[1] * *cell + gates[0] * gates[2], a.clip);
    value = gates[3] * tanh(state);
    if (exists) *cell = state;
    if (keeps) a.reserve[a.regions.kept_cell + direction * a.regions.kept_step + vector * s.hidden + unit] = state;
  } else if (CELL == GRU) {
    const ELEMENT* bias = a.weights + a.layer.recurrent_bias.start + direction * a.layer.recurrent_bias.step;
    COMPUTE recurrent_part = sums[2 % GATES];
    if (a.layer.recurrent_bias.start >= 0) recurrent_part += load<COMPUTE>(bias[2 * s.hidden + unit]);
    const COMPUTE reset = sigmoid(products[unit] + sums[0]),
                  update = sigmoid(products[s.hidden + unit] + sums[1 % GATES]);
    const COMPUTE fresh = tanh(products[2 * s.hidden + unit] + reset * recurrent_part);
    value = (COMPUTE(1) - update) * fresh + update * hidden[static_cast<long long>(sequence) * s.projected + unit];
    if (keeps) {
      kept[unit] = reset, kept[s.hidden + unit] = update;
      kept[2 * s.hidden + unit] = fresh, kept[3 * s.hidden + unit] = recurrent_part;
    }
  } else {
    const COMPUTE sum = products[unit] + sums[0];
    value = CELL == TANH ? tanh(sum) : sum < COMPUTE(0) ? COMPUTE(0) : sum;
    if (keeps) kept[unit] = value;
  }
  if (a.layer.projection.start < 0) {
    put_out(a, offsets, direction, step, sequence, unit, value, exists);
  } else {
    a.workspace[a.regions.before + (static_cast<long long>(direction) * s.batch + sequence) * s.hidden + unit] = value;
    if (a.regions.kept_hidden >= 0 && exists)
      a.reserve[a.regions.kept_hidden + direction * a.regions.kept_step + vector * s.hidden + unit] = value;
  }
}

// The projection of what the cells of a step put out.
extern "C" __global__ void __launch_bounds__(PRODUCT_THREADS) rnn_recurrence_project(const Arguments a) {
  griddepcontrol_wait();
  const Shape& s = a.shape;
  const int direction = blockIdx.z, step = direction ? s.steps - 1 - a.step : a.step;
  const int* offsets = offsets_of(a.workspace, a.regions);
  const COMPUTE* before = a.workspace + a.regions.before + static_cast<long long>(direction) * s.batch * s.hidden;
  const ELEMENT* matrix = a.weights + a.layer.projection.start + direction * a.layer.projection.step;
  product_tile<true, true>(
      s.batch, s.projected, s.hidden,
      [&](int sequence, int k) { return before[static_cast<long long>(sequence) * s.hidden + k]; },
      [&](int row, int k) { return load<COMPUTE>(matrix[static_cast<long long>(row) * s.hidden + k]); },
      [&](int sequence, int unit, COMPUTE sum) {
        put_out(a, offsets, direction, step, sequence, unit, sum, step < length_of(offsets, s, sequence));
      });
}

// The final states of a layer.
extern "C" __global__ void rnn_recurrence_finish(const Arguments a) {
  griddepcontrol_wait();
  const Shape& s = a.shape;
  const int direction = blockIdx.y, hidden = s.batch * s.projected;
  const int item = blockIdx.x * blockDim.x + threadIdx.x, cell = item - hidden;
  const long long pseudo_layer = a.layer.pseudo_layer + direction;
  if (cell < 0) {
    const COMPUTE* states =
        a.workspace + a.regions.hidden + static_cast<long long>(s.steps % 2 * s.directions + direction) * hidden;
    if (a.hy) a.hy[pseudo_layer * hidden + item] = store<ELEMENT>(states[item]);
  } else if (cell < s.batch * s.hidden && a.cy) {
    const long long cells = static_cast<long long>(s.batch) * s.hidden;
    a.cy[pseudo_layer * cells + cell] = store<ELEMENT>(a.workspace[a.regions.cell + direction * cells + cell]);
  }
}
