// This kernel computes the gradients of a recurrent network's states and gates (8.2.17 to 8.2.19). One cooperative
// launch computes all steps of one or several layers, against the direction of the forward call.
//
// Each block keeps on chip the columns of the recurrent matrices for its UNITS hidden units, all gates
// (persistent.cuh). In each step it multiplies the gate gradients of the following step, which the blocks of its
// group of sequences exchange. Its threads then compute the gradients of their cells. The first layer of a launch reads
// the gradients of its output from memory. Blocks of other layers also keep the columns of the input matrices of the
// layer above, and multiply its gradients as soon as they arrive.
//
// Roofline bound: bytes and latency. In each step a block reads SEQUENCES * gates * hidden elements from L2, twice
// where it multiplies the gradients of another layer. A step takes 4.3 us for 768 units and 16 sequences (half, H100).
// Flops: 2 * batch * gates * hidden * hidden per step.
#include "rnn/persistent_items.cuh"

// Layers are in the order of computation, the last one first.
struct Arguments {
  const ELEMENT *dy, *hx, *dhy, *cx, *dcy, *weights;
  ELEMENT *dhx, *dcx;
  COMPUTE *workspace, *reserve;
  COMPUTE scale;  // factor of the elements that dropout keeps
  Clip clip;
  Layer layer[MAX_LAYERS];
  Regions regions[MAX_LAYERS];
  Dropout dropout[MAX_LAYERS];
  Shape shape;
  int layers, slices, groups, pairs;  // slices of units, groups of sequences; maximum pairs of K per warp
  int skew, read_delay;               // waves between two layers; clocks before vectors are read
};

constexpr int UNITS = OWN_ROWS;
using Cells = CellsOf<UNITS, true>;
constexpr int CELLS_PER_THREAD = Cells::PER_THREAD;

// Blocks exchange gradients through the reserve space, (step, sequence, gate, unit). Floats of a single layer replace
// the kept gates there, so they exchange only the gradients that reach the states, through the work space.
constexpr bool IN_RESERVE = sizeof(ELEMENT) == 2 || STACKED;
constexpr bool HAS_GAP = IN_RESERVE && CELL == GRU;
constexpr int EXCHANGED = IN_RESERVE ? KEPT : GATES;

__device__ __forceinline__ ELEMENT* exchange_of(const Arguments& a, int layer, int direction) {
  const Regions& regions = a.regions[layer];
  if (IN_RESERVE) return elements_at(a.reserve, regions.gradients + direction * regions.kept_step);
  const long long vectors = static_cast<long long>(a.shape.steps) * a.shape.batch;
  return elements_at(a.workspace, regions.products) + direction * vectors * (GATES * a.shape.hidden);
}

// Holds the bits of the dropout mask for the layer output that belongs to a thread's sums.
struct KeptBits {
  bool passes[M_TILES][N_TILES][4];

  // `first` is the first element of the block's first vector. `unit` is the unit of the block's first row.
  __device__ __forceinline__ void load(const unsigned char* mask, long long first, int unit, int hidden, int count) {
    const int lane = threadIdx.x % 32;
#pragma unroll
    for (int tile = 0; tile < M_TILES; tile++)
#pragma unroll
      for (int n = 0; n < N_TILES; n++)
#pragma unroll
        for (int i = 0; i < 4; i++) {
          const int sequence = 8 * n + lane % 4 * 2 + i % 2, row = unit + 16 * tile + lane / 4 + i / 2 * 8;
          const long long element = first + sequence * hidden + row;
          passes[tile][n][i] = sequence < count && row < hidden && mask[element / OCTET] >> element % OCTET & 1;
        }
  }
  __device__ __forceinline__ void scale(Product& product, COMPUTE scale) const {
#pragma unroll
    for (int tile = 0; tile < M_TILES; tile++)
#pragma unroll
      for (int n = 0; n < N_TILES; n++)
#pragma unroll
        for (int i = 0; i < 4; i++) product.multiply_sum(tile, n, i, passes[tile][n][i] ? scale : COMPUTE(0));
  }
};

// Returns a bit for each sequence of the group, whether it has its last step.
__device__ __forceinline__ unsigned ending_sequences(const Shape& s, const int* offsets, const Cells& cells) {
  const int lane = threadIdx.x % 32, sequence = cells.first_sequence + lane;
  const bool exists = lane < SEQUENCES && sequence < s.batch;
  return __ballot_sync(~0u, exists && length_of(offsets, s, sequence) == cells.step + 1);
}

// Holds the inputs of a thread's cells that do not depend on other blocks. Their loads are in flight while the thread
// waits for other blocks. Elements are converted where they are used.
struct Inputs {
  using Before = std::conditional_t<CELL == GRU, ELEMENT, COMPUTE>;
  COMPUTE kept[CELLS_PER_THREAD][KEPT], carried[CELLS_PER_THREAD], state[CELLS_PER_THREAD];
  ELEMENT above[CELLS_PER_THREAD];
  Before before[CELLS_PER_THREAD];
  int length[CELLS_PER_THREAD];

  // `offset` locates the vectors of the step in dy. `lengths` and `states` say whether the call loads those too.
  __device__ __forceinline__ void load(const Arguments& a, const int* offsets, int offset, const Items& items,
                                       const Item& item, int part, bool lengths, bool states) {
    const Shape& s = a.shape;
    const Cells cells(s, items, item, part);
    const Layer& layer = a.layer[cells.layer];
    const Regions& regions = a.regions[cells.layer];
    const int direction = cells.direction, step = cells.step, wide = s.directions * s.hidden;
#pragma unroll
    for (int i = 0; i < CELLS_PER_THREAD; i++) {
      if (!cells.has(s, i)) continue;
      const int unit = cells.unit(i), sequence = cells.sequence(i);
      if (lengths) length[i] = length_of(offsets, s, sequence);
      const long long at = (static_cast<long long>(direction) * s.batch + sequence) * s.hidden + unit;
      const long long given = static_cast<long long>(layer.pseudo_layer) * s.batch * s.hidden + at;
      if (states) {
        carried[i] = COMPUTE(0);
        if (item.t > 0) carried[i] = a.workspace[regions.cell + at];
        else if (CELL == LSTM && a.dcy) carried[i] = ::load<COMPUTE>(a.dcy[given]);
      }
      state[i] = COMPUTE(0);
      above[i] = ::store<ELEMENT>(COMPUTE(0));
      before[i] = ::store<Before>(COMPUTE(0));
      if (item.t == s.steps || step >= length[i]) continue;
      const long long vector = static_cast<long long>(step) * s.batch + sequence;
      const long long of_direction = direction * regions.kept_step;
      const COMPUTE* from = a.reserve + regions.kept + of_direction + vector * KEPT * s.hidden + unit;
#pragma unroll
      for (int j = 0; j < KEPT; j++) kept[i][j] = from[j * s.hidden];
      const int column = direction * s.hidden + unit;
      if (cells.layer == 0)
        above[i] = layer.last ? a.dy[(offset + static_cast<long long>(sequence) * s.sequence_step) * wide + column]
                              : elements_at(a.workspace, regions.output)[vector * wide + column];
      const int previous = direction ? step + 1 : step - 1;  // step of the sequence before this one
      const bool begins = previous < 0 || previous >= length[i];
      const long long vector_before = static_cast<long long>(previous) * s.batch + sequence;
      if constexpr (CELL == LSTM) {
        const COMPUTE* states_of = a.reserve + regions.kept_cell + of_direction;
        state[i] = states_of[vector * s.hidden + unit];
        if (!begins) before[i] = states_of[vector_before * s.hidden + unit];
        else if (a.cx) before[i] = ::load<COMPUTE>(a.cx[given]);
      } else if constexpr (CELL == GRU) {
        if (!begins) before[i] = elements_at(a.reserve, regions.kept_output)[vector_before * wide + column];
        else if (a.hx) before[i] = a.hx[given];
      }
    }
  }
};

// Returns the offset of an item's step in dy.
__device__ __forceinline__ int offset_of(const Arguments& a, const Items& items, const int* offsets, const Item& item) {
  const int step = Cells(a.shape, items, item, 0).step;
  return step >= 0 && step < a.shape.steps ? offsets[step] : 0;
}

extern "C" __global__ void __launch_bounds__(THREADS, 1) CLUSTER_DIMS_X rnn_persistent_backward(const Arguments a) {
  griddepcontrol_wait();
  const Shape& s = a.shape;
  const int steps = s.steps + (a.dhx ? 1 : 0);  // An additional step computes the gradient of the initial states.
  const Items items(a.slices, STACKED ? a.layers : s.directions, a.groups, steps, a.skew);
  const int part = PARTS > 1 ? blockIdx.x % PARTS : 0, row = EXCHANGED * s.hidden, depth = GATES * s.hidden / PARTS;
  const int* offsets = offsets_of(a.workspace, a.regions[0]);
  Rows<REGISTER_PAIRS> rows;
  Rows<0> input_rows(max(a.pairs - REGISTER_PAIRS, 0));
  Sums sums;
  ReadDelay delay{static_cast<unsigned>(a.read_delay)};
  Item item = items.first();
  Inputs inputs;
  inputs.load(a, offsets, offset_of(a, items, offsets, item), items, item, part, true, true);
  int ahead = offset_of(a, items, offsets, items.behind(item));  // offset of the item that is loaded next
  // Returns the gate gradients of the layer above in the step of an item. Their reads may begin one item ahead.
  const auto above = [&](const Cells& cells) {
    const ELEMENT* vectors = exchange_of(a, cells.layer - 1, cells.direction);
    return Published<>{vectors + (static_cast<long long>(cells.step) * s.batch + cells.first_sequence) * row, row,
                       part * depth};
  };
  Product::Pieces pieces;
  const auto begin_above = [&](const Item& wanted) {
    const Cells cells(s, items, wanted, part);
    if (cells.layer > 0 && wanted.t < s.steps)
      Product::begin(pieces, 0, above(cells), s.batch - cells.first_sequence, depth);
  };
  if (STACKED && READS_AHEAD && items.has(item)) begin_above(item);
  while (items.has(item)) {
    const Item behind_item = items.behind(item);
    const bool goes_on = items.goes_on(item, behind_item);
    Inputs next;
    if (goes_on) {
#pragma unroll
      for (int i = 0; i < CELLS_PER_THREAD; i++) next.length[i] = inputs.length[i];
    }
    if (items.has(behind_item)) next.load(a, offsets, ahead, items, behind_item, part, !goes_on, !goes_on);
    ahead = offset_of(a, items, offsets, items.behind(behind_item));
    const Cells cells(s, items, item, part);
    const Layer& layer = a.layer[cells.layer];
    const Regions& regions = a.regions[cells.layer];
    const int t = item.t, direction = cells.direction, step = cells.step, behind = direction ? step - 1 : step + 1;
    ELEMENT* exchange = exchange_of(a, cells.layer, direction);
    if (items.needs_rows(item)) {
      const auto columns = [&](const Weights& weights) {
        const ELEMENT* matrices = a.weights + weights.start + direction * weights.step;
        return ColumnPieces{matrices + static_cast<long long>(part * depth) * s.hidden + cells.slice_unit, s.hidden,
                            s.hidden - cells.slice_unit, depth};
      };
      // Other rows replace the sums in shared memory, so all owners of cells must have read them.
      if (!items.keeps_rows) __syncthreads();
      rows.fill(a.pairs, columns(layer.recurrent));
      if (STACKED && cells.layer > 0) input_rows.fill(a.pairs, columns(a.layer[cells.layer - 1].input));
    }

    Product product;
    product.clear();
    unsigned sequences = Product::ALL_SEQUENCES;  // The exchange stores the sums of these.
    const int count = s.batch - cells.first_sequence;
    if (STACKED && !READS_AHEAD) begin_above(item);
    if (STACKED && cells.layer > 0 && t < s.steps) {
      const Dropout& dropout = a.dropout[cells.layer];
      KeptBits kept;
      if (dropout.mask >= 0)
        kept.load(mask_of(a.reserve, dropout),
                  (static_cast<long long>(step) * s.batch + cells.first_sequence) * s.hidden, cells.slice_unit,
                  s.hidden, count);
      product.run_begun(input_rows, pieces, a.pairs, above(cells), count, depth);
      if (dropout.mask >= 0) kept.scale(product, a.scale);
      // No step of a sequence follows its last one: the gradients of others are 0, and 0 times an infinity is NaN. The
      // sums of sequences that end are stored before the recurrent product.
      sequences = ~ending_sequences(s, offsets, cells);
      if (sequences != Product::ALL_SEQUENCES) product.store_sums(sums.parity());
    }
    if (STACKED && READS_AHEAD && items.has(behind_item)) begin_above(behind_item);
    if (t > 0) {
      const ELEMENT* from = exchange + (static_cast<long long>(behind) * s.batch + cells.first_sequence) * row;
      delay.wait();
      const Published<HAS_GAP> vectors{from, row, part * depth, 2 * s.hidden, s.hidden};
      product.run(rows, a.pairs, vectors, count, depth);
    }
    sums.exchange(product, part, CELLS_PER_THREAD > 1 || threadIdx.x / 32 * 32 < Cells::COUNT, sequences);
    delay.begin();

#pragma unroll
    for (int i = 0; i < CELLS_PER_THREAD; i++) {
      if (!cells.has(s, i)) continue;
      const int unit = cells.unit(i), sequence = cells.sequence(i), length = inputs.length[i];
      // first and last step of the sequence
      const int first = direction ? 0 : length - 1, last = direction ? length - 1 : 0;
      const long long at = (static_cast<long long>(direction) * s.batch + sequence) * s.hidden + unit;
      const long long given = static_cast<long long>(layer.pseudo_layer) * s.batch * s.hidden + at;
      COMPUTE sum = sums.total(Cells::own_unit(i), Cells::own_sequence(i));
      if (CELL == GRU && t > 0) sum += inputs.carried[i];
      if (a.dhx && t > 0 && length > 0 && behind == last) a.dhx[given] = store<ELEMENT>(sum);
      if (t == s.steps) continue;
      if (step == first && cells.layer == 0) sum = COMPUTE(0);  // Here, too, no step follows the last one.
      const COMPUTE final = a.dhy && (step == first || length == 0) ? load<COMPUTE>(a.dhy[given]) : COMPUTE(0);
      const bool exists = step < length;
      CellGradient gradient{};
      if (exists)
        gradient = cell_gradient(inputs.kept[i], load<COMPUTE>(inputs.above[i]) + sum + final, inputs.carried[i],
                                 inputs.state[i], load<COMPUTE>(inputs.before[i]), a.clip);
      const long long vector = static_cast<long long>(step) * s.batch + sequence;
      ELEMENT* published = exchange + vector * row + unit;
#pragma unroll
      for (int j = 0; j < EXCHANGED; j++)
        publish(published + j * s.hidden, store<ELEMENT>(gradient.sum[IN_RESERVE ? j : recurrent_slot(j)]));

      if (a.dhx && length == 0) a.dhx[given] = store<ELEMENT>(final);
      if constexpr (!IN_RESERVE) {
        ELEMENT* gradients =
            elements_at(a.reserve, regions.gradients + direction * regions.kept_step) + vector * KEPT * s.hidden + unit;
#pragma unroll
        for (int j = 0; j < KEPT; j++) gradients[j * s.hidden] = store<ELEMENT>(gradient.sum[j]);
      }
      if (exists || CELL == GRU) inputs.carried[i] = gradient.carried;
      if (goes_on) next.carried[i] = inputs.carried[i];
      if (!items.is_single()) a.workspace[regions.cell + at] = inputs.carried[i];
      if (CELL == LSTM && a.dcx && t == s.steps - 1) a.dcx[given] = store<ELEMENT>(inputs.carried[i]);
    }
    sums.count++;
    inputs = next;
    if (behind_item.wave > item.wave) end_step();
    item = behind_item;
  }
  sums.finish();
}
