// These kernels compute the gradients of a recurrent network's inputs and states (8.2.17 to 8.2.19). They go from the
// last layer to the first, and step against the direction of the forward call.
//
// Each step computes the gradients of all cells and keeps them in the reserve space. Their product with the recurrent
// matrices (gemm/matrix.cu) is the gradient of the previous states; the next step adds its split-K parts. After the
// last step, one product with the input matrices, over both directions, gives the gradients of all inputs.
//
// Roofline bound: as in recurrence.cu, whose products have the same sizes. Bytes: each step reads and writes the gates
// once and reads the recurrent matrices from L2.
#include "rnn/cells.cuh"
#include "gemm/product_tile.cuh"

struct Arguments {
  const ELEMENT *dy, *hx, *dhy, *cx, *dcy, *weights;
  ELEMENT *dx, *dhx, *dcx;
  COMPUTE *workspace, *reserve;
  unsigned char* scratch;
  COMPUTE fill;
  Clip clip;
  Layer layer;
  Regions regions;
  Shape shape;
  int step;
  int parts;          // split-K parts in the sums of the previous step
  StepCopies copies;  // sums by part, direction, sequence, unit; copies of the gradients of gates by their matrices
};

// Loads the gradients of a layer's final states.
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

// Returns the step of the data for a step of the call.
__device__ __forceinline__ int step_of(const Arguments& a, int direction, int step) {
  return direction ? step : a.shape.steps - 1 - step;
}

// Returns the gradient of a state after a step. It adds the previous product with the recurrent matrices and the
// part that a GRU passes on. Where a sequence did not have that step, it returns the earlier gradient.
__device__ __forceinline__ COMPUTE of_state(const Arguments& a, int direction, int sequence, int length, int unit) {
  const Shape& s = a.shape;
  const long long at = (static_cast<long long>(direction) * s.batch + sequence) * s.projected + unit;
  COMPUTE& state = a.workspace[a.regions.hidden + at];
  if (a.step == 0 || step_of(a, direction, a.step - 1) >= length) return state;
  COMPUTE sum = CELL == GRU ? a.workspace[a.regions.cell + at] : COMPUTE(0);
  const COMPUTE* part = a.copies.sums_in(a.scratch) + at;
#pragma unroll 8
  for (int i = 0; i < a.parts; i++, part += static_cast<long long>(s.directions) * s.batch * s.projected) sum += *part;
  return state = sum;
}

// Returns the gradient of a cell's output from the layer above.
__device__ __forceinline__ COMPUTE from_above(const Arguments& a, const int* offsets, int direction, int step,
                                              int sequence, int unit) {
  const Shape& s = a.shape;
  const int wide = s.directions * s.projected, column = direction * s.projected + unit;
  const long long vector = static_cast<long long>(step) * s.batch + sequence;
  return a.layer.last ? load<COMPUTE>(a.dy[vector_at(offsets, s, step, sequence) * wide + column])
                      : load<COMPUTE>(elements_at(a.workspace, a.regions.output)[vector * wide + column]);
}

// Computes and keeps the gradients of a step's projected outputs.
extern "C" __global__ void rnn_gradient_output(const Arguments a) {
  griddepcontrol_wait();
  const Shape& s = a.shape;
  const int direction = blockIdx.y, step = step_of(a, direction, a.step), item = blockIdx.x * blockDim.x + threadIdx.x;
  if (item >= s.batch * s.projected) return;
  const int sequence = item / s.projected, unit = item % s.projected;
  const int* offsets = offsets_of(a.workspace, a.regions);
  const int length = length_of(offsets, s, sequence);
  const COMPUTE state = of_state(a, direction, sequence, length, unit);
  if (step >= length) return;
  const long long vector = static_cast<long long>(step) * s.batch + sequence;
  a.reserve[a.regions.kept_gradient + direction * a.regions.kept_step + vector * s.projected + unit] =
      from_above(a, offsets, direction, step, sequence, unit) + state;
}

// Computes the gradients of the vectors that the projection multiplies.
extern "C" __global__ void __launch_bounds__(PRODUCT_THREADS) rnn_gradient_project(const Arguments a) {
  griddepcontrol_wait();
  const Shape& s = a.shape;
  const int direction = blockIdx.z, step = step_of(a, direction, a.step);
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

// Computes the gradients of the gates' sums in a step, and zeros where a sequence has no such step.
extern "C" __global__ void rnn_gradient_cell(const Arguments a) {
  griddepcontrol_wait();
  const Shape& s = a.shape;
  const int direction = blockIdx.y, step = step_of(a, direction, a.step), item = blockIdx.x * blockDim.x + threadIdx.x;
  if (item >= s.batch * s.hidden) return;
  const int sequence = item / s.hidden, unit = item % s.hidden;
  const int* offsets = offsets_of(a.workspace, a.regions);
  const int length = length_of(offsets, s, sequence);
  const bool exists = step < length;
  const long long vector = static_cast<long long>(step) * s.batch + sequence;
  const long long of_direction = direction * a.regions.kept_step, pseudo_layer = a.layer.pseudo_layer + direction;
  const long long gates = vector * KEPT * s.hidden + unit;
  CellGradient gradient{};
  COMPUTE incoming = COMPUTE(0);
  if (a.layer.projection.start < 0) incoming = of_state(a, direction, sequence, length, unit);
  if (exists) {
    COMPUTE kept[KEPT], state = COMPUTE(0), before = COMPUTE(0), carried = COMPUTE(0);
#pragma unroll
    for (int j = 0; j < KEPT; j++) kept[j] = a.reserve[a.regions.kept + of_direction + gates + j * s.hidden];
    COMPUTE* through = a.workspace + a.regions.cell + static_cast<long long>(direction) * s.batch * s.hidden + item;
    if (a.layer.projection.start < 0) incoming += from_above(a, offsets, direction, step, sequence, unit);
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
  // Wide data is replaced in place.
  ELEMENT* gradients = elements_at(a.reserve, a.regions.gradients + of_direction) + gates;
#pragma unroll
  for (int j = 0; j < KEPT; j++) {
    const ELEMENT value = gradients[j * s.hidden] = store<ELEMENT>(gradient.sum[j]);
    // No recurrent matrix belongs to the third slot of a GRU.
    if (CELL != GRU || j != 2)
      a.copies.put(a.scratch, direction * s.batch + sequence, (CELL == GRU && j > 2 ? j - 1 : j) * s.hidden + unit,
                   value);
  }
}

// Stores the gradients of a layer's initial states.
extern "C" __global__ void rnn_gradient_finish(const Arguments a) {
  griddepcontrol_wait();
  const Shape& s = a.shape;
  const int direction = blockIdx.y, hidden = s.batch * s.projected;
  const int item = blockIdx.x * blockDim.x + threadIdx.x, cell = item - hidden;
  const long long pseudo_layer = a.layer.pseudo_layer + direction;
  const long long cells = static_cast<long long>(s.batch) * s.hidden;
  if (cell < 0 && a.dhx) {
    const int sequence = item / s.projected, length = length_of(offsets_of(a.workspace, a.regions), s, sequence);
    a.dhx[pseudo_layer * hidden + item] = store<ELEMENT>(of_state(a, direction, sequence, length, item % s.projected));
  } else if (cell >= 0 && cell < cells && a.dcx) {
    a.dcx[pseudo_layer * cells + cell] = store<ELEMENT>(a.workspace[a.regions.cell + direction * cells + cell]);
  }
}
