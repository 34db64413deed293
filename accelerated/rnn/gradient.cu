// Recurrent networks, the gradients of inputs and states (8.2.17 to 8.2.19): layer by layer from the last, step by step
// against the direction of the forward call.
//
// A step has the gradients of all cells, element by element, which the reserve space keeps, and their
// product with the recurrent matrices, the gradient of the states before. Behind the last step one product with the
// input matrices, over both directions, is the gradient of the inputs of all steps.
//
// Roofline bound: as recurrence.cu, which has products of the same sizes; bytes of a step: gates read and written once,
// and the recurrent matrices from L2.
#include "rnn/network.cuh"
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

// The lengths of some sequences.
extern "C" __global__ void rnn_gradient_lengths(const Lengths a) {
  griddepcontrol_wait();
  store_lengths(a);
}

// Where the vectors of each step begin in containers.
extern "C" __global__ void rnn_gradient_offsets(const Lengths a) {
  griddepcontrol_wait();
  store_offsets(a);
}

// The gate whose gradient reaches the states, in the reserve space: of a GRU that of what the reset gate multiplies.
__device__ __forceinline__ int recurrent_slot(int gate) { return CELL == GRU && gate == 2 ? 3 : gate; }

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

// The gradients of the sums of the gates of a step.
extern "C" __global__ void rnn_gradient_cell(const Arguments a) {
  griddepcontrol_wait();
  const Shape& s = a.shape;
  const int direction = blockIdx.y, step = step_of(a, direction), item = blockIdx.x * blockDim.x + threadIdx.x;
  if (item >= s.batch * s.hidden) return;
  const int sequence = item / s.hidden, unit = item % s.hidden;
  const int* offsets = offsets_of(a.workspace, a.regions);
  const int length = length_of(offsets, s, sequence);
  if (step >= length) return;
  const long long vector = static_cast<long long>(step) * s.batch + sequence;
  const long long of_direction = direction * a.regions.kept_step, pseudo_layer = a.layer.pseudo_layer + direction;
  const long long gates = vector * KEPT * s.hidden + unit;
  const COMPUTE* kept = a.reserve + a.regions.kept + of_direction + gates;
  ELEMENT* gradients = elements_at(a.reserve, a.regions.gradients + of_direction) + gates;  // in place, of wide data
  const COMPUTE one = COMPUTE(1);
  COMPUTE incoming;
  if (a.layer.projection.start < 0) incoming = of_output(a, offsets, direction, step, sequence, unit);
  else incoming = a.workspace[a.regions.before + static_cast<long long>(direction) * s.batch * s.hidden + item];
  if (CELL == LSTM) {
    COMPUTE* carried = a.workspace + a.regions.cell + static_cast<long long>(direction) * s.batch * s.hidden + item;
    const COMPUTE* states = a.reserve + a.regions.kept_cell + of_direction;
    const ELEMENT* initial = a.cx ? a.cx + pseudo_layer * s.batch * s.hidden : nullptr;
    const COMPUTE before = before_step(states, s.hidden, initial, s, direction, step, sequence, length, s.hidden, unit);
    const COMPUTE i = kept[0], f = kept[s.hidden], fresh = kept[2 * s.hidden], o = kept[3 * s.hidden];
    const COMPUTE shown = tanh(states[vector * s.hidden + unit]), raw = f * before + i * fresh;
    COMPUTE state = *carried + incoming * o * (one - shown * shown);
    if (a.clip.on && !(raw >= a.clip.lower && raw <= a.clip.upper)) state = COMPUTE(0);
    gradients[0] = store<ELEMENT>(state * fresh * (i * (one - i)));
    gradients[s.hidden] = store<ELEMENT>(state * before * (f * (one - f)));
    gradients[2 * s.hidden] = store<ELEMENT>(state * i * (one - fresh * fresh));
    gradients[3 * s.hidden] = store<ELEMENT>(incoming * shown * (o * (one - o)));
    *carried = state * f;
  } else if (CELL == GRU) {
    const ELEMENT* outputs = elements_at(a.reserve, a.regions.kept_output) + direction * s.hidden;
    const ELEMENT* initial = a.hx ? a.hx + pseudo_layer * s.batch * s.hidden : nullptr;
    const COMPUTE before =
        before_step(outputs, s.directions * s.hidden, initial, s, direction, step, sequence, length, s.hidden, unit);
    const COMPUTE reset = kept[0], update = kept[s.hidden], fresh = kept[2 * s.hidden], recurrent = kept[3 * s.hidden];
    const COMPUTE sum = incoming * (one - update) * (one - fresh * fresh);
    gradients[0] = store<ELEMENT>(sum * recurrent * (reset * (one - reset)));
    gradients[s.hidden] = store<ELEMENT>(incoming * (before - fresh) * (update * (one - update)));
    gradients[2 * s.hidden] = store<ELEMENT>(sum);
    gradients[3 * s.hidden] = store<ELEMENT>(sum * reset);
    a.workspace[a.regions.before + static_cast<long long>(direction) * s.batch * s.hidden + item] = incoming * update;
  } else {
    const COMPUTE value = kept[0];
    gradients[0] = store<ELEMENT>(CELL == TANH         ? incoming * (one - value * value)
                                  : value > COMPUTE(0) ? incoming
                                                       : COMPUTE(0));
  }
}

// The gradients of the states before a step.
extern "C" __global__ void __launch_bounds__(PRODUCT_THREADS) rnn_gradient_step(const Arguments a) {
  griddepcontrol_wait();
  const Shape& s = a.shape;
  const int direction = blockIdx.z, step = step_of(a, direction), parity = a.step % 2;
  const int* offsets = offsets_of(a.workspace, a.regions);
  const ELEMENT* matrix = a.weights + a.layer.recurrent.start + direction * a.layer.recurrent.step;
  const ELEMENT* gradients = elements_at(a.reserve, a.regions.gradients + direction * a.regions.kept_step) +
                             static_cast<long long>(step) * s.batch * KEPT * s.hidden;
  const COMPUTE* through = a.workspace + a.regions.before + static_cast<long long>(direction) * s.batch * s.hidden;
  const long long numbers = static_cast<long long>(s.batch) * s.projected;
  COMPUTE* hidden = a.workspace + a.regions.hidden + direction * numbers;
  product_tile<true, false>(
      s.batch, s.projected, GATES * s.hidden,
      [&](int sequence, int k) {
        const long long at = (static_cast<long long>(sequence) * KEPT + recurrent_slot(k / s.hidden)) * s.hidden;
        return step < length_of(offsets, s, sequence) ? load<COMPUTE>(gradients[at + k % s.hidden]) : COMPUTE(0);
      },
      [&](int unit, int k) { return load<COMPUTE>(matrix[static_cast<long long>(k) * s.projected + unit]); },
      [&](int sequence, int unit, COMPUTE sum) {
        const long long at = static_cast<long long>(sequence) * s.projected + unit;
        if (step >= length_of(offsets, s, sequence)) sum = hidden[parity * s.directions * numbers + at];
        else if (CELL == GRU) sum += through[at];
        hidden[(1 - parity) * s.directions * numbers + at] = sum;
      });
}

// The gradients of the inputs of a layer, of all steps.
extern "C" __global__ void __launch_bounds__(PRODUCT_THREADS) rnn_gradient_input(const Arguments a) {
  griddepcontrol_wait();
  const Shape& s = a.shape;
  const int vectors = s.steps * s.batch, rows = GATES * s.hidden;
  const int* offsets = offsets_of(a.workspace, a.regions);
  const bool skips = a.layer.input.start < 0;
  auto gradient = [&](int vector, int row) {
    const int direction = row / rows, gate = row % rows / s.hidden;
    const ELEMENT* gradients = elements_at(a.reserve, a.regions.gradients + direction * a.regions.kept_step);
    return load<COMPUTE>(gradients[(static_cast<long long>(vector) * KEPT + gate) * s.hidden + row % s.hidden]);
  };
  product_tile<true, false>(
      vectors, a.layer.width, skips ? 0 : s.directions * rows,
      [&](int vector, int row) {
        return vector / s.batch < length_of(offsets, s, vector % s.batch) ? gradient(vector, row) : COMPUTE(0);
      },
      [&](int k, int row) {
        const ELEMENT* matrix = a.weights + a.layer.input.start + row / rows * a.layer.input.step;
        return load<COMPUTE>(matrix[static_cast<long long>(row % rows) * a.layer.width + k]);
      },
      [&](int vector, int k, COMPUTE sum) {
        const int step = vector / s.batch, sequence = vector % s.batch;
        const bool exists = step < length_of(offsets, s, sequence);
        if (skips && exists)
          for (int gate = 0; gate < s.directions * GATES; gate++) sum += gradient(vector, gate * s.hidden + k);
        if (!a.layer.first)
          elements_at(a.workspace, a.regions.input)[static_cast<long long>(vector) * a.layer.width + k] =
              store<ELEMENT>(sum);
        else if (exists || s.fills)
          a.dx[vector_at(offsets, s, step, sequence) * a.layer.width + k] = store<ELEMENT>(exists ? sum : a.fill);
      });
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
