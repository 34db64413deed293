// Recurrent networks, forward (7.2.36 to 7.2.38): all steps of a layer in one cooperative launch.
//
// A block has the recurrent matrices of UNITS hidden units, all gates, on chip (persistent.cuh). In a step it
// multiplies what the cells of its group of sequences put out before, and its threads compute the cells. What the layer
// puts out, (step, sequence, direction, unit), is what the blocks exchange.
//
// Roofline bound: a step is latency, of a store to L2, of a load, of the product of a warp, of a barrier of the block:
// 2.3 us for 768 units and 16 sequences (half, H100). Bytes of a step: SEQUENCES * hidden elements from L2 for each
// block. Flops: 2 * batch * gates * hidden * hidden.
#include "rnn/persistent.cuh"

struct Arguments {
  const ELEMENT *hx, *cx, *weights;
  ELEMENT *y, *hy, *cy;
  COMPUTE *workspace, *reserve;
  COMPUTE fill;
  Clip clip;
  Layer layer;
  Regions regions;
  Shape shape;
  int slices, groups, pairs;  // of units; of sequences; of K, for a warp at most
};

constexpr int UNITS = OWN_ROWS / GATES, SLICE_UNITS = PARTS * UNITS, CELLS = UNITS * SEQUENCES;
constexpr int CELLS_PER_THREAD = (CELLS + THREADS - 1) / THREADS;

// Where the cells of a block lie in a step.
struct Cells {
  int step, direction, slice_unit, first_unit, first_sequence;

  __device__ __forceinline__ Cells(const Arguments& a, const Item& item, int part) {
    direction = item.slice >= a.slices;
    step = direction ? a.shape.steps - 1 - item.t : item.t;
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
struct Inputs {
  COMPUTE products[CELLS_PER_THREAD][GATES], hidden[CELLS_PER_THREAD], state[CELLS_PER_THREAD];
  int length[CELLS_PER_THREAD], offset[CELLS_PER_THREAD];

  __device__ __forceinline__ void load(const Arguments& a, const int* offsets, const Item& item, int part,
                                       bool states) {
    const Shape& s = a.shape;
    const Cells cells(a, item, part);
    const long long first = (static_cast<long long>(cells.direction) * s.steps + cells.step) * s.batch;
#pragma unroll
    for (int i = 0; i < CELLS_PER_THREAD; i++) {
      if (!cells.has(s, i)) continue;
      const int unit = cells.unit(i), sequence = cells.sequence(i);
      const COMPUTE* from = a.workspace + a.regions.products + (first + sequence) * (GATES * s.hidden) + unit;
#pragma unroll
      for (int gate = 0; gate < GATES; gate++) products[i][gate] = from[gate * s.hidden];
      length[i] = length_of(offsets, s, sequence), offset[i] = offsets[cells.step];
      if (!states) continue;
      const long long at = (static_cast<long long>(cells.direction) * s.batch + sequence) * s.hidden + unit;
      const long long given = static_cast<long long>(a.layer.pseudo_layer) * s.batch * s.hidden + at;
      if (item.t > 0) hidden[i] = a.workspace[a.regions.hidden + at];
      else hidden[i] = a.hx ? load_given(a.hx, given) : COMPUTE(0);
      state[i] = COMPUTE(0);
      if (CELL == LSTM && item.t > 0) state[i] = a.workspace[a.regions.cell + at];
      else if (CELL == LSTM && a.cx) state[i] = load_given(a.cx, given);
    }
  }
  static __device__ __forceinline__ COMPUTE load_given(const ELEMENT* from, long long at) {
    return ::load<COMPUTE>(from[at]);
  }
};

extern "C" __global__ void __launch_bounds__(THREADS, 1) CLUSTER_DIMS_X rnn_persistent_forward(const Arguments a) {
  griddepcontrol_wait();
  const Shape& s = a.shape;
  const Items items(a.slices * s.directions, a.groups);
  const int part = PARTS > 1 ? blockIdx.x % PARTS : 0, wide = s.directions * s.hidden, depth = s.hidden / PARTS;
  const int* offsets = offsets_of(a.workspace, a.regions);
  ELEMENT* outputs = outputs_of(a.workspace, a.reserve, a.regions);
  Rows rows;
  CellBias bias[CELLS_PER_THREAD];
  Sums sums;
  ReadDelay delay;
  Item item = items.first();
  Inputs inputs;
  inputs.load(a, offsets, item, part, true);
  while (item.t < s.steps) {
    const Item behind = items.behind(item);
    Inputs next;
    if (behind.t < s.steps) next.load(a, offsets, behind, part, !items.is_single());
    const Cells cells(a, item, part);
    const int direction = cells.direction, step = cells.step, before = direction ? step + 1 : step - 1;
    if (item.t == 0 || !items.keeps_rows) {
      const ELEMENT* recurrent =
          a.weights + a.layer.recurrent.start + direction * a.layer.recurrent.step + part * depth;
      const auto start = [&](int row) {
        const int gate = row % OWN_ROWS / UNITS, unit = cells.slice_unit + row / OWN_ROWS * UNITS + row % UNITS;
        return unit < s.hidden ? recurrent + (static_cast<long long>(gate) * s.hidden + unit) * s.hidden : nullptr;
      };
      rows.fill(a.pairs, RowPieces<decltype(start)>{start, depth, reinterpret_cast<uintptr_t>(recurrent) % 16 == 0});
#pragma unroll
      for (int i = 0; i < CELLS_PER_THREAD; i++)
        if (cells.has(s, i)) bias[i] = bias_of(a.weights, a.layer, s, direction, cells.unit(i));
    }

    Product product;
    product.clear();
    if (item.t > 0) {
      const ELEMENT* from =
          outputs + (static_cast<long long>(before) * s.batch + cells.first_sequence) * wide + direction * s.hidden;
      delay.wait();
      product.run<true>(rows, a.pairs, from + part * depth, wide, s.batch - cells.first_sequence, depth);
    } else if (a.hx) {
      const ELEMENT* from =
          a.hx + (static_cast<long long>(a.layer.pseudo_layer + direction) * s.batch + cells.first_sequence) * s.hidden;
      product.run<false>(rows, a.pairs, from + part * depth, s.hidden, s.batch - cells.first_sequence, depth);
    }
    sums.exchange(product, part, CELLS_PER_THREAD > 1 || threadIdx.x / 32 * 32 < CELLS);
    delay.begin();

#pragma unroll
    for (int i = 0; i < CELLS_PER_THREAD; i++) {
      if (!cells.has(s, i)) continue;
      const int unit = cells.unit(i), sequence = cells.sequence(i);
      COMPUTE recurrent[GATES];
#pragma unroll
      for (int gate = 0; gate < GATES; gate++)
        recurrent[gate] = sums.total(gate * UNITS + Cells::own_unit(i), Cells::own_sequence(i));
      const CellOutput out =
          cell_output(inputs.products[i], recurrent, bias[i], inputs.hidden[i], inputs.state[i], a.clip);
      const bool exists = step < inputs.length[i], passes = exists || passes_state(direction, inputs.length[i]);
      if (exists) inputs.hidden[i] = out.value, inputs.state[i] = out.state;
      const ELEMENT value = store<ELEMENT>(inputs.hidden[i]);
      const long long vector = static_cast<long long>(step) * s.batch + sequence;
      publish(outputs + vector * wide + direction * s.hidden + unit, passes ? value : store<ELEMENT>(0.0f));

      const long long at = (static_cast<long long>(direction) * s.batch + sequence) * s.hidden + unit;
      const long long given = static_cast<long long>(a.layer.pseudo_layer) * s.batch * s.hidden + at;
      if (!items.is_single()) {
        a.workspace[a.regions.hidden + at] = inputs.hidden[i];
        if (CELL == LSTM) a.workspace[a.regions.cell + at] = inputs.state[i];
      }
      if (exists && a.regions.kept >= 0) {
        COMPUTE* kept = a.reserve + a.regions.kept + direction * a.regions.kept_step + vector * KEPT * s.hidden + unit;
#pragma unroll
        for (int j = 0; j < KEPT; j++) kept[j * s.hidden] = out.kept[j];
        if (CELL == LSTM)
          a.reserve[a.regions.kept_cell + direction * a.regions.kept_step + vector * s.hidden + unit] = inputs.state[i];
      }
      if (a.layer.last && (exists || s.fills))
        a.y[(inputs.offset[i] + static_cast<long long>(sequence) * s.sequence_step) * wide + direction * s.hidden +
            unit] = exists ? value : store<ELEMENT>(a.fill);
      if (item.t == s.steps - 1) {
        if (a.hy) a.hy[given] = value;
        if (CELL == LSTM && a.cy) a.cy[given] = store<ELEMENT>(inputs.state[i]);
      }
      if (items.is_single()) next.hidden[i] = inputs.hidden[i], next.state[i] = inputs.state[i];
    }
    sums.count++;
    inputs = next;
    if (behind.t > item.t) end_step();
    item = behind;
  }
  sums.finish();
}
