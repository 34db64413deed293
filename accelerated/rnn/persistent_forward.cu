// This kernel computes recurrent networks forward (7.2.36 to 7.2.38). One cooperative launch computes all steps of one
// or several layers.
//
// Each block keeps on chip the recurrent matrices of UNITS hidden units, all gates (persistent.cuh). In each step it
// multiplies the previous outputs of the cells of its group of sequences, and its threads compute the cells. The blocks
// exchange the layer's output, (step, sequence, direction, unit). The input products of a launch's first layer are in
// memory. Blocks of other layers also keep the input matrices on chip, and multiply the output of the layer below as
// soon as it arrives.
//
// Roofline bound: latency of a store to L2, a load, a warp's product, and a block barrier. A step takes 2.3 us for 768
// units and 16 sequences (half, H100). Bytes: in each step a block reads SEQUENCES * hidden elements from L2, twice
// where it multiplies inputs. Flops: 2 * batch * gates * hidden * hidden per step.
#include "rnn/persistent_items.cuh"

struct Arguments {
  const ELEMENT *hx, *cx, *weights;
  ELEMENT *y, *hy, *cy;
  COMPUTE *workspace, *reserve;
  COMPUTE fill, scale;  // padding's fill; factor of the elements that dropout keeps
  Clip clip;
  Layer layer[MAX_LAYERS];
  Regions regions[MAX_LAYERS];
  Dropout dropout[MAX_LAYERS];
  Shape shape;
  int layers, slices, groups, pairs;  // slices of units, groups of sequences; maximum pairs of K per warp
  int skew, read_delay;               // waves between two layers; clocks before vectors are read
};

// Each unit has one row per gate in the block's matrix. A GRU whose inputs are multiplied here has one more, because
// its reset gate multiplies only one of the two products.
constexpr bool SPLITS_GATE = STACKED && CELL == GRU;
constexpr int UNIT_ROWS = GATES + SPLITS_GATE;  // rows per unit
constexpr int UNITS = OWN_ROWS / UNIT_ROWS;     // per block
using Cells = CellsOf<UNITS, false>;
constexpr int CELLS_PER_THREAD = Cells::PER_THREAD;

__device__ __forceinline__ int slot_of(int row) { return row % OWN_ROWS / UNITS; }

// Holds the inputs of a thread's cells that do not depend on other blocks. Their loads are in flight while the thread
// waits for other blocks.
struct Inputs {
  COMPUTE products[CELLS_PER_THREAD][GATES], hidden[CELLS_PER_THREAD], state[CELLS_PER_THREAD];
  int length[CELLS_PER_THREAD], offset[CELLS_PER_THREAD];
  unsigned char mask[CELLS_PER_THREAD];  // one byte masks eight units

  __device__ __forceinline__ void load(const Arguments& a, const int* offsets, const Items& items, const Item& item,
                                       int part, bool states) {
    const Shape& s = a.shape;
    const Cells cells(s, items, item, part);
    const Regions& regions = a.regions[cells.layer];
    const long long first = (static_cast<long long>(cells.direction) * s.steps + cells.step) * s.batch;
#pragma unroll
    for (int i = 0; i < CELLS_PER_THREAD; i++) {
      if (!cells.has(s, i)) continue;
      const int unit = cells.unit(i), sequence = cells.sequence(i);
      if (cells.layer == 0) {
        const COMPUTE* from = a.workspace + regions.products + (first + sequence) * (GATES * s.hidden) + unit;
#pragma unroll
        for (int gate = 0; gate < GATES; gate++) products[i][gate] = from[gate * s.hidden];
      } else {
#pragma unroll
        for (int gate = 0; gate < GATES; gate++) products[i][gate] = COMPUTE(0);
      }
      length[i] = length_of(offsets, s, sequence), offset[i] = offsets[cells.step];
      const Dropout& dropout = a.dropout[cells.layer];
      if (STACKED && dropout.mask >= 0)
        mask[i] = mask_of(a.reserve, dropout)[((first + sequence) * s.hidden + unit) / OCTET];
      if (!states) continue;
      const long long at = (static_cast<long long>(cells.direction) * s.batch + sequence) * s.hidden + unit;
      const long long given = static_cast<long long>(a.layer[cells.layer].pseudo_layer) * s.batch * s.hidden + at;
      if (item.t > 0) hidden[i] = a.workspace[regions.hidden + at];
      else hidden[i] = a.hx ? load_given(a.hx, given) : COMPUTE(0);
      state[i] = COMPUTE(0);
      if (CELL == LSTM && item.t > 0) state[i] = a.workspace[regions.cell + at];
      else if (CELL == LSTM && a.cx) state[i] = load_given(a.cx, given);
    }
  }
  static __device__ __forceinline__ COMPUTE load_given(const ELEMENT* from, long long at) {
    return ::load<COMPUTE>(from[at]);
  }
};

// Locates the rows of one kind of matrix, all gates, in memory. The rows of a gate become the block's rows `slot`.
template <class SlotOf>
__device__ __forceinline__ auto rows_of(const Arguments& a, const Weights& weights, const Cells& cells, int offset,
                                        int depth, SlotOf gate_in) {
  const Shape& s = a.shape;
  const ELEMENT* matrices = a.weights + weights.start + cells.direction * weights.step + offset;
  const auto start = [&s, &cells, matrices, gate_in](int row) -> const ELEMENT* {
    const int gate = gate_in(slot_of(row));
    const int unit = cells.slice_unit + row / OWN_ROWS * UNITS + row % UNITS;
    return gate >= 0 && unit < s.hidden ? matrices + (static_cast<long long>(gate) * s.hidden + unit) * s.hidden
                                        : nullptr;
  };
  return RowPieces<decltype(start)>{start, depth, LOAD_BYTES == 16 && reinterpret_cast<uintptr_t>(matrices) % 16 == 0};
}

extern "C" __global__ void __launch_bounds__(THREADS, 1) CLUSTER_DIMS_X rnn_persistent_forward(const Arguments a) {
  griddepcontrol_wait();
  const Shape& s = a.shape;
  const Items items(a.slices, STACKED ? a.layers : s.directions, a.groups, s.steps, a.skew);
  const int part = PARTS > 1 ? blockIdx.x % PARTS : 0, wide = s.directions * s.hidden, depth = s.hidden / PARTS;
  const int* offsets = offsets_of(a.workspace, a.regions[0]);
  Rows<REGISTER_PAIRS> rows;
  Rows<0> input_rows(max(a.pairs - REGISTER_PAIRS, 0));
  CellBias bias[CELLS_PER_THREAD];
  Sums sums;
  ReadDelay delay{static_cast<unsigned>(a.read_delay)};
  Item item = items.first();
  Inputs inputs;
  inputs.load(a, offsets, items, item, part, true);
  // Returns the output of the layer below in the step of an item. Its reads may begin one item ahead.
  const auto below = [&](const Cells& cells) {
    const ELEMENT* vectors = below_of(a.workspace, a.reserve, a.regions[cells.layer]);
    return Published<>{vectors + (static_cast<long long>(cells.step) * s.batch + cells.first_sequence) * wide, wide,
                       part * depth};
  };
  Product::Pieces pieces;
  const auto begin_below = [&](const Item& wanted) {
    const Cells cells(s, items, wanted, part);
    if (cells.layer > 0) Product::begin(pieces, 0, below(cells), s.batch - cells.first_sequence, depth);
  };
  if (STACKED && READS_AHEAD && items.has(item)) begin_below(item);
  while (items.has(item)) {
    const Item behind = items.behind(item);
    const bool goes_on = items.goes_on(item, behind);
    Inputs next;
    if (items.has(behind)) next.load(a, offsets, items, behind, part, !goes_on);
    const Cells cells(s, items, item, part);
    const Layer& layer = a.layer[cells.layer];
    const Regions& regions = a.regions[cells.layer];
    ELEMENT* outputs = outputs_of(a.workspace, a.reserve, regions);
    const int direction = cells.direction, step = cells.step, before = direction ? step + 1 : step - 1;
    if (items.needs_rows(item)) {
      rows.fill(a.pairs, rows_of(a, layer.recurrent, cells, part * depth, depth,
                                 [](int slot) { return SPLITS_GATE && slot == GATES ? -1 : slot; }));
      if (STACKED && cells.layer > 0)
        input_rows.fill(a.pairs, rows_of(a, layer.input, cells, part * depth, depth, [](int slot) {
                          return !SPLITS_GATE || slot < 2 ? slot : slot == GATES ? 2 : -1;
                        }));
#pragma unroll
      for (int i = 0; i < CELLS_PER_THREAD; i++)
        if (cells.has(s, i)) bias[i] = bias_of(a.weights, layer, s, direction, cells.unit(i));
    }

    Product product;
    product.clear();
    const int first = cells.first_sequence, count = s.batch - first;
    if (STACKED && !READS_AHEAD) begin_below(item);
    if (STACKED && cells.layer > 0) product.run_begun(input_rows, pieces, a.pairs, below(cells), count, depth);
    if (STACKED && READS_AHEAD && items.has(behind)) begin_below(behind);
    // Each product of a split gate has rows of zeros in the slot of the other, and 0 times an infinity is NaN. So the
    // recurrent slot is cleared of sums of inputs. Their own slot is stored before the recurrent product changes it.
    const bool splits = SPLITS_GATE && cells.layer > 0;
    if (splits) {
      product.clear_rows([](int row) { return slot_of(row) == 2; });
      product.store_sums(sums.parity(), Product::ALL_SEQUENCES, [](int row) { return slot_of(row) == GATES; });
    }
    if (item.t > 0) {
      const ELEMENT* from = outputs + (static_cast<long long>(before) * s.batch + first) * wide + direction * s.hidden;
      delay.wait();
      product.run(rows, a.pairs, Published<>{from, wide, part * depth}, count, depth);
    } else if (a.hx) {
      const ELEMENT* from =
          a.hx + (static_cast<long long>(layer.pseudo_layer + direction) * s.batch + first) * s.hidden;
      product.run(rows, a.pairs, Given{from + part * depth, s.hidden}, count, depth);
    }
    sums.exchange(product, part, CELLS_PER_THREAD > 1 || threadIdx.x / 32 * 32 < Cells::COUNT, Product::ALL_SEQUENCES,
                  [splits](int row) { return !splits || slot_of(row) != GATES; });
    delay.begin();

#pragma unroll
    for (int i = 0; i < CELLS_PER_THREAD; i++) {
      if (!cells.has(s, i)) continue;
      const int unit = cells.unit(i), sequence = cells.sequence(i);
      COMPUTE recurrent[GATES];
#pragma unroll
      for (int gate = 0; gate < GATES; gate++)
        recurrent[gate] = sums.total(gate * UNITS + Cells::own_unit(i), Cells::own_sequence(i));
      if constexpr (SPLITS_GATE)
        if (splits) inputs.products[i][2] += sums.total(GATES * UNITS + Cells::own_unit(i), Cells::own_sequence(i));
      const CellOutput out =
          cell_output(inputs.products[i], recurrent, bias[i], inputs.hidden[i], inputs.state[i], a.clip);
      const bool exists = step < inputs.length[i], passes = exists || passes_state(direction, inputs.length[i]);
      if (exists) inputs.hidden[i] = out.value, inputs.state[i] = out.state;
      const ELEMENT value = store<ELEMENT>(inputs.hidden[i]);
      const long long vector = static_cast<long long>(step) * s.batch + sequence;
      const ELEMENT shown = passes ? value : store<ELEMENT>(0.0f);
      publish(outputs + vector * wide + direction * s.hidden + unit, shown);
      const Dropout& dropout = a.dropout[cells.layer];
      if (STACKED && dropout.mask >= 0)
        publish(elements_at(a.reserve, dropout.vectors) + vector * wide + unit,
                dropped(shown, a.scale, inputs.mask[i] >> (vector * wide + unit) % OCTET & 1));

      const long long at = (static_cast<long long>(direction) * s.batch + sequence) * s.hidden + unit;
      const long long given = static_cast<long long>(layer.pseudo_layer) * s.batch * s.hidden + at;
      if (!items.is_single()) {
        a.workspace[regions.hidden + at] = inputs.hidden[i];
        if (CELL == LSTM) a.workspace[regions.cell + at] = inputs.state[i];
      }
      if (exists && regions.kept >= 0) {
        COMPUTE* kept = a.reserve + regions.kept + direction * regions.kept_step + vector * KEPT * s.hidden + unit;
#pragma unroll
        for (int j = 0; j < KEPT; j++) kept[j * s.hidden] = out.kept[j];
        if (CELL == LSTM)
          a.reserve[regions.kept_cell + direction * regions.kept_step + vector * s.hidden + unit] = inputs.state[i];
      }
      if (layer.last && (exists || s.fills))
        a.y[(inputs.offset[i] + static_cast<long long>(sequence) * s.sequence_step) * wide + direction * s.hidden +
            unit] = exists ? value : store<ELEMENT>(a.fill);
      if (item.t == s.steps - 1) {
        if (a.hy) a.hy[given] = value;
        if (CELL == LSTM && a.cy) a.cy[given] = store<ELEMENT>(inputs.state[i]);
      }
      if (goes_on) next.hidden[i] = inputs.hidden[i], next.state[i] = inputs.state[i];
    }
    sums.count++;
    inputs = next;
    if (behind.wave > item.wave) end_step();
    item = behind;
  }
  sums.finish();
}
