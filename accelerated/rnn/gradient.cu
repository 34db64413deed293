// Recurrent networks, the gradients of inputs and states (8.2.17 to 8.2.19): layer by layer from the last, step by step
// against the direction of the forward call.
//
// A step has the gradients of all cells, element by element, which the reserve space keeps, and their
// product with the recurrent matrices (gemm/matrix.cu), the gradient of the states before. Behind the last step one
// product with the input matrices, over both directions, is the gradient of the inputs of all steps.
//
// Roofline bound: as recurrence.cu, which has products of the same sizes; bytes of a step: gates read and written once,
// and the recurrent matrices from L2.
#include "rnn/cells.cuh"
#include "gemm/product_tile.cuh"

struct Arguments {
  const ELEMENT *dy, *hx, *dhy, *cx, *dcy, *weights;
  ELEMENT *dx, *dhx, *dcx;
  COMPUTE *workspace, *reserve;
  COMPUTE fill;
  Clip clip;
  Layer layer;
  Regions regions;
  Shape shape;
  int step;
};

// The gradients of the final states of a layer.
extern "C" __global__ void rnn_gradient_start(const Arguments a) {
  griddepcontrol_wait();
  const Shape& s = a.shape;
  const int direction = blockIdx.y, hidden = s.batch * s.projected, cells = s.batch * s.hidden;
  const int item = blockIdx.x * blockDim.x + threadIdx.x, cell = item - hidden;
  const long long pseudo_layer = a.layer.pseudo_layer + direction;
  if (cell < 0)
    a.workspace[a.regions.hidden + static_cast<long long>(direction) * hidden + item] =
        a.dhy ? load<COMPUTE>(a.dhy[pseudo_layer * hidden + item]) : COMPUTE(0);
  else if (cell < cells)
    a.workspace[a.regions.cell + static_cast<long long>(direction) * cells + cell] =
        a.dcy ? load<COMPUTE>(a.dcy[pseudo_layer * cells + cell]) : COMPUTE(0);
}

__device__ __forceinline__ int step_of(const Arguments& a, int direction) {
  return direction ? a.step : a.shape.steps - 1 - a.step;
}

// The gradient of the output of a cell: from above and from the step behind.
__device__ __forceinline__ COMPUTE of_output(const Arguments& a, const int* offsets, int direction, int step,
                                             int sequence, int unit) {
  const Shape& s = a.shape;
  const int wide = s.directions * s.projected, column = direction * s.projected + unit;
  const long long vector = static_cast<long long>(step) * s.batch + sequence;
  const COMPUTE above = a.layer.last
                            ? load<COMPUTE>(a.dy[vector_at(offsets, s, step, sequence) * wide + column])
                            : load<COMPUTE>(elements_at(a.workspace, a.regions.output)[vector * wide + column]);
  const long long numbers = static_cast<long long>(s.batch) * s.projected;
  const COMPUTE* hidden = a.workspace + a.regions.hidden + (a.step % 2 * s.directions + direction) * numbers;
  return above + hidden[static_cast<long long>(sequence) * s.projected + unit];
}

// The gradients of the projected outputs of a step, which are kept.
extern "C" __global__ void rnn_gradient_output(const Arguments a) {
  griddepcontrol_wait();
  const Shape& s = a.shape;
  const int direction = blockIdx.y, step = step_of(a, direction), item = blockIdx.x * blockDim.x + threadIdx.x;
  if (item >= s.batch * s.projected) return;
  const int sequence = item / s.projected, unit = item % s.projected;
  const int* offsets = offsets_of(a.workspace, a.regions);
  if (step >= length_of(offsets, s, sequence)) return;
  const long long vector = static_cast<long long>(step) * s.batch + sequence;
  a.reserve[a.regions.kept_gradient + direction * a.regions.kept_step + vector * s.projected + unit] =
      of_output(a, offsets, direction, step, sequence, unit);
}

// The gradients of what is projected.
extern "C" __global__ void __launch_bounds__(PRODUCT_THREADS) rnn_gradient_project(const Arguments a) {
  griddepcontrol_wait();
  const Shape& s = a.shape;
  const int direction = blockIdx.z, step = step_of(a, direction);
  const int* offsets = offsets_of(a.workspace, a.regions);
  const ELEMENT* matrix = a.weights + a.layer.projection.start + direction * a.layer.projection.step;
  const COMPUTE* kept = a.reserve + a.regions.kept_gradient + direction * a.regions.kept_step +
                        static_cast<long long>(step) * s.batch * s.projected;
  COMPUTE* before = a.workspace + a.regions.before + static_cast<long long>(direction) * s.batch * s.hidden;
  product_tile<true, false>(
      s.batch, s.hidden, s.projected,
      [&](int sequence, int k) {
        const bool exists = step < length_of(offsets, s, sequence);
        return exists ? kept[static_cast<long long>(sequence) * s.projected + k] : COMPUTE(0);
      },
      [&](int unit, int k) { return load<COMPUTE>(matrix[static_cast<long long>(k) * s.hidden + unit]); },
      [&](int sequence, int unit, COMPUTE sum) { before[static_cast<long long>(sequence) * s.hidden + unit] = sum; });
}

// The gradients of the sums of the gates of a step; zeros where a sequence has none.
extern "C" __global__ void rnn_gradient_cell(const Arguments a) {
  griddepcontrol_wait();
  const Shape& s = a.shape;
  const int direction = blockIdx.y, step = step_of(a, direction), item = blockIdx.x * blockDim.x + threadIdx.x;
  if (item >= s.batch * s.hidden) return;
  const int sequence = item / s.hidden, unit = item % s.hidden;
  const int* offsets = offsets_of(a.workspace, a.regions);
  const int length = length_of(offsets, s, sequence);
  const bool exists = step < length;
  const long long vector = static_cast<long long>(step) * s.batch + sequence;
  const long long of_direction = direction * a.regions.kept_step, pseudo_layer = a.layer.pseudo_layer + direction;
  const long long gates = vector * KEPT * s.hidden + unit;
  CellGradient gradient{};
  if (exists) {
    COMPUTE kept[KEPT], state = COMPUTE(0), before = COMPUTE(0), carried = COMPUTE(0), incoming;
#pragma unroll
    for (int j = 0; j < KEPT; j++) kept[j] = a.reserve[a.regions.kept + of_direction + gates + j * s.hidden];
    COMPUTE* through = a.workspace + a.regions.cell + static_cast<long long>(direction) * s.batch * s.hidden + item;
    if (a.layer.projection.start < 0) incoming = of_output(a, offsets, direction, step, sequence, unit);
    else incoming = a.workspace[a.regions.before + static_cast<long long>(direction) * s.batch * s.hidden + item];
    if (CELL == LSTM) {
      carried = *through;
      const COMPUTE* states = a.reserve + a.regions.kept_cell + of_direction;
      const ELEMENT* initial = a.cx ? a.cx + pseudo_layer * s.batch * s.hidden : nullptr;
      state = states[vector * s.hidden + unit];
      before = before_step(states, s.hidden, initial, s, direction, step, sequence, length, s.hidden, unit);
    } else if (CELL == GRU) {
      const ELEMENT* outputs = elements_at(a.reserve, a.regions.kept_output) + direction * s.hidden;
      const ELEMENT* initial = a.hx ? a.hx + pseudo_layer * s.batch * s.hidden : nullptr;
      before =
          before_step(outputs, s.directions * s.hidden, initial, s, direction, step, sequence, length, s.hidden, unit);
    }
    gradient = cell_gradient(kept, incoming, carried, state, before, a.clip);
    *through = gradient.carried;
  }
  ELEMENT* gradients = elements_at(a.reserve, a.regions.gradients + of_direction) + gates;  // in place, of wide data
#pragma unroll
  for (int j = 0; j < KEPT; j++) gradients[j * s.hidden] = store<ELEMENT>(gradient.sum[j]);
}

// The gradients of the states before a step: beside the product with the recurrent matrices, which lies where the next
// step reads, what a GRU passes on, and of sequences that have not begun what there was.
extern "C" __global__ void rnn_gradient_step(const Arguments a) {
  griddepcontrol_wait();
  const Shape& s = a.shape;
  const int direction = blockIdx.y, step = step_of(a, direction), item = blockIdx.x * blockDim.x + threadIdx.x;
  if (item >= s.batch * s.projected) return;
  const long long numbers = static_cast<long long>(s.batch) * s.projected, at = direction * numbers + item;
  COMPUTE* hidden = a.workspace + a.regions.hidden + at;
  const int parity = a.step % 2;
  COMPUTE& next = hidden[(1 - parity) * s.directions * numbers];
  const bool exists = step < length_of(offsets_of(a.workspace, a.regions), s, item / s.projected);
  if (!exists) next = hidden[parity * s.directions * numbers];
  else if (CELL == GRU) next += a.workspace[a.regions.cell + at];
}

// The gradients of the initial states of a layer.
extern "C" __global__ void rnn_gradient_finish(const Arguments a) {
  griddepcontrol_wait();
  const Shape& s = a.shape;
  const int direction = blockIdx.y, hidden = s.batch * s.projected;
  const int item = blockIdx.x * blockDim.x + threadIdx.x, cell = item - hidden;
  const long long pseudo_layer = a.layer.pseudo_layer + direction;
  const long long cells = static_cast<long long>(s.batch) * s.hidden;
  if (cell < 0) {
    const COMPUTE* states =
        a.workspace + a.regions.hidden + static_cast<long long>(s.steps % 2 * s.directions + direction) * hidden;
    if (a.dhx) a.dhx[pseudo_layer * hidden + item] = store<ELEMENT>(states[item]);
  } else if (cell < cells && a.dcx) {
    a.dcx[pseudo_layer * cells + cell] = store<ELEMENT>(a.workspace[a.regions.cell + direction * cells + cell]);
  }
}
