// Recurrent networks, the gradients of states and gates (8.2.17 to 8.2.19): all steps of a layer in one cooperative
// launch, against the direction of the forward call.
//
// A block has the columns of the recurrent matrices that belong to its UNITS hidden units, of all gates, on chip
// (persistent.cuh). In a step it multiplies the gradients of the gates of the step behind, which all blocks of its
// group of sequences exchange in the work space, and its threads compute the gradients of their cells.
//
// Roofline bound: bytes of a step, SEQUENCES * gates * hidden elements from L2 for each block, and latency, as in
// persistent_forward.cu: 4.3 us for 768 units and 16 sequences (half, H100). Flops: 2 * batch * gates * hidden *
// hidden.
#include "rnn/persistent.cuh"

struct Arguments {
  const ELEMENT *dy, *hx, *dhy, *cx, *dcy, *weights;
  ELEMENT *dhx, *dcx;
  COMPUTE *workspace, *reserve;
  Clip clip;
  Layer layer;
  Regions regions;
  Shape shape;
  int slices, groups, pairs;  // of units; of sequences; of K, for a warp at most
};

constexpr int UNITS = OWN_ROWS, SLICE_UNITS = ROWS, CELLS = UNITS * SEQUENCES;
constexpr int CELLS_PER_THREAD = (CELLS + THREADS - 1) / THREADS;

// Where the cells of a block lie in a step.
struct Cells {
  int step, direction, slice_unit, first_unit, first_sequence;

  __device__ __forceinline__ Cells(const Arguments& a, const Item& item, int part) {
    direction = item.slice >= a.slices;
    step = direction ? item.t : a.shape.steps - 1 - item.t;
    slice_unit = (item.slice - direction * a.slices) * SLICE_UNITS, first_unit = slice_unit + part * UNITS;
    first_sequence = item.group * SEQUENCES;
  }
  static __device__ __forceinline__ int own_unit(int i) { return static_cast<int>(threadIdx.x + i * THREADS) % UNITS; }
  static __device__ __forceinline__ int own_sequence(int i) {
    return static_cast<int>(threadIdx.x + i * THREADS) / UNITS;
  }
  __device__ __forceinline__ int unit(int i) const { return first_unit + own_unit(i); }
  __device__ __forceinline__ int sequence(int i) const { return first_sequence + own_sequence(i); }
  __device__ __forceinline__ bool has(const Shape& s, int i) const {
    return threadIdx.x + i * THREADS < CELLS && unit(i) < s.hidden && sequence(i) < s.batch;
  }
};

// What the cells of a thread take in a step that does not depend on other blocks: in flight while they are waited for.
// Elements are converted where they are used.
struct Inputs {
  using Before = std::conditional_t<CELL == GRU, ELEMENT, COMPUTE>;
  COMPUTE kept[CELLS_PER_THREAD][KEPT], carried[CELLS_PER_THREAD], state[CELLS_PER_THREAD];
  ELEMENT above[CELLS_PER_THREAD];
  Before before[CELLS_PER_THREAD];
  int length[CELLS_PER_THREAD];

  // offset: of the vectors of the step in dy. lengths, states: whether they are loaded too.
  __device__ __forceinline__ void load(const Arguments& a, const int* offsets, int offset, const Item& item, int part,
                                       bool lengths, bool states) {
    const Shape& s = a.shape;
    const Cells cells(a, item, part);
    const int direction = cells.direction, step = cells.step, wide = s.directions * s.hidden;
#pragma unroll
    for (int i = 0; i < CELLS_PER_THREAD; i++) {
      if (!cells.has(s, i)) continue;
      const int unit = cells.unit(i), sequence = cells.sequence(i);
      if (lengths) length[i] = length_of(offsets, s, sequence);
      const long long at = (static_cast<long long>(direction) * s.batch + sequence) * s.hidden + unit;
      const long long given = static_cast<long long>(a.layer.pseudo_layer) * s.batch * s.hidden + at;
      if (states) {
        carried[i] = COMPUTE(0);
        if (item.t > 0) carried[i] = a.workspace[a.regions.cell + at];
        else if (CELL == LSTM && a.dcy) carried[i] = ::load<COMPUTE>(a.dcy[given]);
      }
      state[i] = COMPUTE(0);
      above[i] = ::store<ELEMENT>(COMPUTE(0));
      before[i] = ::store<Before>(COMPUTE(0));
      if (item.t == s.steps || step >= length[i]) continue;
      const long long vector = static_cast<long long>(step) * s.batch + sequence;
      const long long of_direction = direction * a.regions.kept_step;
      const COMPUTE* from = a.reserve + a.regions.kept + of_direction + vector * KEPT * s.hidden + unit;
#pragma unroll
      for (int j = 0; j < KEPT; j++) kept[i][j] = from[j * s.hidden];
      const int column = direction * s.hidden + unit;
      above[i] = a.layer.last ? a.dy[(offset + static_cast<long long>(sequence) * s.sequence_step) * wide + column]
                              : elements_at(a.workspace, a.regions.output)[vector * wide + column];
      const int previous = direction ? step + 1 : step - 1;  // of the sequence, before this step
      const bool begins = previous < 0 || previous >= length[i];
      const long long vector_before = static_cast<long long>(previous) * s.batch + sequence;
      if constexpr (CELL == LSTM) {
        const COMPUTE* states_of = a.reserve + a.regions.kept_cell + of_direction;
        state[i] = states_of[vector * s.hidden + unit];
        if (!begins) before[i] = states_of[vector_before * s.hidden + unit];
        else if (a.cx) before[i] = ::load<COMPUTE>(a.cx[given]);
      } else if constexpr (CELL == GRU) {
        if (!begins) before[i] = elements_at(a.reserve, a.regions.kept_output)[vector_before * wide + column];
        else if (a.hx) before[i] = a.hx[given];
      }
    }
  }
};

// Where the vectors of an item's step begin in dy.
__device__ __forceinline__ int offset_of(const Arguments& a, const int* offsets, const Item& item) {
  const int step = Cells(a, item, 0).step;
  return step >= 0 && step < a.shape.steps ? offsets[step] : 0;
}

extern "C" __global__ void __launch_bounds__(THREADS, 1) CLUSTER_DIMS_X rnn_persistent_backward(const Arguments a) {
  griddepcontrol_wait();
  const Shape& s = a.shape;
  const Items items(a.slices * s.directions, a.groups);
  const int part = PARTS > 1 ? blockIdx.x % PARTS : 0, row = GATES * s.hidden, depth = row / PARTS;
  const int steps = s.steps + (a.dhx ? 1 : 0);  // behind the last step: the gradient of the initial states
  const int* offsets = offsets_of(a.workspace, a.regions);
  const long long vectors = static_cast<long long>(s.steps) * s.batch;
  ELEMENT* exchange = elements_at(a.workspace, a.regions.products);  // (direction, step, sequence, gate, unit)
  Rows rows;
  Sums sums;
  ReadDelay delay;
  Item item = items.first();
  Inputs inputs;
  inputs.load(a, offsets, offset_of(a, offsets, item), item, part, true, true);
  int ahead = offset_of(a, offsets, items.behind(item));  // of the item that is loaded next
  while (item.t < steps) {
    const Item behind_item = items.behind(item);
    Inputs next;
    if (items.is_single()) {
#pragma unroll
      for (int i = 0; i < CELLS_PER_THREAD; i++) next.length[i] = inputs.length[i];
    }
    if (behind_item.t < steps) next.load(a, offsets, ahead, behind_item, part, !items.is_single(), !items.is_single());
    ahead = offset_of(a, offsets, items.behind(behind_item));
    const Cells cells(a, item, part);
    const int t = item.t, direction = cells.direction, step = cells.step, behind = direction ? step - 1 : step + 1;
    if (t == 0 || !items.keeps_rows) {
      const ELEMENT* recurrent = a.weights + a.layer.recurrent.start + direction * a.layer.recurrent.step;
      if (!items.keeps_rows) __syncthreads();  // who has cells has read the sums that lie there
      rows.fill(a.pairs, ColumnPieces{recurrent + static_cast<long long>(part * depth) * s.hidden + cells.slice_unit,
                                      s.hidden, s.hidden - cells.slice_unit, depth});
    }

    Product product;
    product.clear();
    if (t > 0) {
      const ELEMENT* from =
          exchange + (direction * vectors + static_cast<long long>(behind) * s.batch + cells.first_sequence) * row;
      delay.wait();
      product.run<true>(rows, a.pairs, from + part * depth, row, s.batch - cells.first_sequence, depth);
    }
    sums.exchange(product, part, CELLS_PER_THREAD > 1 || threadIdx.x / 32 * 32 < CELLS);
    delay.begin();

#pragma unroll
    for (int i = 0; i < CELLS_PER_THREAD; i++) {
      if (!cells.has(s, i)) continue;
      const int unit = cells.unit(i), sequence = cells.sequence(i), length = inputs.length[i];
      const int first = direction ? 0 : length - 1, last = direction ? length - 1 : 0;  // steps of the sequence
      const long long at = (static_cast<long long>(direction) * s.batch + sequence) * s.hidden + unit;
      const long long given = static_cast<long long>(a.layer.pseudo_layer) * s.batch * s.hidden + at;
      COMPUTE sum = sums.total(Cells::own_unit(i), Cells::own_sequence(i));
      if (CELL == GRU && t > 0) sum += inputs.carried[i];
      if (a.dhx && t > 0 && length > 0 && behind == last) a.dhx[given] = store<ELEMENT>(sum);
      if (t == s.steps) continue;
      const COMPUTE final = a.dhy && (step == first || length == 0) ? load<COMPUTE>(a.dhy[given]) : COMPUTE(0);
      const bool exists = step < length;
      CellGradient gradient{};
      if (exists)
        gradient = cell_gradient(inputs.kept[i], load<COMPUTE>(inputs.above[i]) + sum + final, inputs.carried[i],
                                 inputs.state[i], load<COMPUTE>(inputs.before[i]), a.clip);
      const long long vector = static_cast<long long>(step) * s.batch + sequence;
      ELEMENT* published = exchange + (direction * vectors + vector) * row + unit;
#pragma unroll
      for (int gate = 0; gate < GATES; gate++)
        publish(published + gate * s.hidden, store<ELEMENT>(gradient.sum[recurrent_slot(gate)]));

      if (a.dhx && length == 0) a.dhx[given] = store<ELEMENT>(final);
      ELEMENT* gradients = elements_at(a.reserve, a.regions.gradients + direction * a.regions.kept_step) +
                           vector * KEPT * s.hidden + unit;
#pragma unroll
      for (int j = 0; j < KEPT; j++) gradients[j * s.hidden] = store<ELEMENT>(gradient.sum[j]);
      if (exists || CELL == GRU) inputs.carried[i] = gradient.carried;
      if (items.is_single()) next.carried[i] = inputs.carried[i];
      else a.workspace[a.regions.cell + at] = inputs.carried[i];
      if (CELL == LSTM && a.dcx && t == s.steps - 1) a.dcx[given] = store<ELEMENT>(inputs.carried[i]);
    }
    sums.count++;
    inputs = next;
    if (behind_item.t > t) end_step();
    item = behind_item;
  }
  sums.finish();
}
