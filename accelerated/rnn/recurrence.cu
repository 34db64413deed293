// These kernels compute recurrent networks forward (7.2.36 to 7.2.38), layer by layer and step by step.
//
// One matrix product computes the input products of all steps of a layer. In each step another product multiplies the
// previous outputs, in split-K parts. A thread adds the parts of a cell and computes it, for both directions at a time.
// States have two copies, so that a step reads one and writes the other.
//
// Roofline bound: flops, 2 * batch * gates * hidden * projected per step. Bytes: L2 has the recurrent matrices, gates *
// hidden * projected elements. Each step has two launches of about 2.5 us.
#include "rnn/cells.cuh"
#include "gemm/product_tile.cuh"

struct Arguments {
  const ELEMENT *x, *hx, *cx, *weights;
  ELEMENT *y, *hy, *cy;
  COMPUTE *workspace, *reserve;
  unsigned char* scratch;
  COMPUTE fill;
  Clip clip;
  Layer layer;
  Regions regions;
  Shape shape;
  int step;
  int parts;          // split-K parts; 0 where the first step has no initial states
  StepCopies copies;  // sums by part, direction, sequence, gate, unit; copies of the states before even and odd steps
};

// Writes an element of the states before a step where its product reads a copy.
__device__ __forceinline__ void copy_state(const Arguments& a, int step, int direction, int sequence, int unit,
                                           ELEMENT value) {
  const Shape& s = a.shape;
  a.copies.put(a.scratch, (step % 2 * s.directions + direction) * s.batch + sequence, unit, value);
}

// Loads the initial states of a layer.
extern "C" __global__ void rnn_recurrence_start(const Arguments a) {
  griddepcontrol_wait();
  const Shape& s = a.shape;
  const int direction = blockIdx.y, numbers = s.batch * (s.projected + s.hidden);
  const int item = blockIdx.x * blockDim.x + threadIdx.x;
  if (item >= numbers) return;
  const int hidden = s.batch * s.projected, cell = item - hidden;
  const long long pseudo_layer = a.layer.pseudo_layer + direction;
  if (cell < 0) {
    const ELEMENT state = a.hx ? a.hx[pseudo_layer * hidden + item] : store<ELEMENT>(COMPUTE(0));
    a.workspace[a.regions.hidden + static_cast<long long>(direction) * hidden + item] = load<COMPUTE>(state);
    copy_state(a, 0, direction, item / s.projected, item % s.projected, state);
  } else {
    a.workspace[a.regions.cell + static_cast<long long>(direction) * s.batch * s.hidden + cell] =
        a.cx ? load<COMPUTE>(a.cx[pseudo_layer * s.batch * s.hidden + cell]) : COMPUTE(0);
  }
}

// Writes an element of a cell's output: the next state, the next layer's input or y, and the reserve space.
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
  // The next step multiplies the padding too. Products over all vectors do as well, but their other factor is 0 there.
  const ELEMENT output =
      store<ELEMENT>(exists || passes_state(direction, length_of(offsets, s, sequence)) ? value : COMPUTE(0));
  outputs_of(a.workspace, a.reserve, a.regions)[vector * wide + column] = output;
  copy_state(a, a.step + 1, direction, sequence, unit, output);
  if (a.layer.last && exists) {
    a.y[vector_at(offsets, s, step, sequence) * wide + column] = store<ELEMENT>(value);
  } else if (a.layer.last && s.fills) {
    a.y[vector_at(offsets, s, step, sequence) * wide + column] = store<ELEMENT>(a.fill);
  }
}

// Computes the cells of a step.
extern "C" __global__ void __launch_bounds__(256) rnn_recurrence_cell(const Arguments a) {
  griddepcontrol_wait();
  const Shape& s = a.shape;
  const int direction = blockIdx.y, step = direction ? s.steps - 1 - a.step : a.step;
  const int item = blockIdx.x * blockDim.x + threadIdx.x;
  if (item >= s.batch * s.hidden) return;
  const int sequence = item / s.hidden, unit = item % s.hidden;
  const int* offsets = offsets_of(a.workspace, a.regions);
  const bool exists = step < length_of(offsets, s, sequence);
  const long long vector = static_cast<long long>(step) * s.batch + sequence;
  const long long vectors = static_cast<long long>(s.steps) * s.batch, of_direction = direction * a.regions.kept_step;
  const long long at = (static_cast<long long>(direction) * s.batch + sequence) * s.hidden + unit;
  const COMPUTE* from = a.workspace + a.regions.products + (direction * vectors + vector) * GATES * s.hidden + unit;
  COMPUTE products[GATES], sums[GATES] = {};
#pragma unroll
  for (int gate = 0; gate < GATES; gate++) products[gate] = from[gate * s.hidden];
  const COMPUTE* part =
      a.copies.sums_in(a.scratch) + (static_cast<long long>(direction) * s.batch + sequence) * GATES * s.hidden + unit;
#pragma unroll 4
  for (int i = 0; i < a.parts; i++, part += static_cast<long long>(s.directions) * s.batch * GATES * s.hidden)
#pragma unroll
    for (int gate = 0; gate < GATES; gate++) sums[gate] += part[gate * s.hidden];
  COMPUTE before = COMPUTE(0), state = COMPUTE(0);
  if (CELL == GRU) before = a.workspace[a.regions.hidden + a.step % 2 * s.directions * s.batch * s.hidden + at];
  if (CELL == LSTM) state = a.workspace[a.regions.cell + at];
  const CellOutput out =
      cell_output(products, sums, bias_of(a.weights, a.layer, s, direction, unit), before, state, a.clip);
  if (exists && CELL == LSTM) a.workspace[a.regions.cell + at] = out.state;
  if (exists && a.regions.kept >= 0) {
    COMPUTE* kept = a.reserve + a.regions.kept + of_direction + vector * KEPT * s.hidden + unit;
#pragma unroll
    for (int j = 0; j < KEPT; j++) kept[j * s.hidden] = out.kept[j];
    if (CELL == LSTM) a.reserve[a.regions.kept_cell + of_direction + vector * s.hidden + unit] = out.state;
  }
  if (a.layer.projection.start < 0) {
    put_out(a, offsets, direction, step, sequence, unit, out.value, exists);
  } else {
    a.workspace[a.regions.before + at] = out.value;
    if (a.regions.kept_hidden >= 0 && exists)
      a.reserve[a.regions.kept_hidden + of_direction + vector * s.hidden + unit] = out.value;
  }
}

// Projects the outputs of a step's cells.
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

// Stores the final states of a layer.
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
