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

constexpr int UNITS = ROWS, CELLS = UNITS * SEQUENCES, CELLS_PER_THREAD = (CELLS + THREADS - 1) / THREADS;

extern "C" __global__ void __launch_bounds__(THREADS, 1) rnn_persistent_backward(const Arguments a) {
  griddepcontrol_wait();
  const Shape& s = a.shape;
  const Items items(a.slices * s.directions, a.groups);
  const int wide = s.directions * s.hidden, depth = GATES * s.hidden;
  const int* offsets = offsets_of(a.workspace, a.regions);
  const long long vectors = static_cast<long long>(s.steps) * s.batch;
  ELEMENT* exchange = elements_at(a.workspace, a.regions.products);  // (direction, step, sequence, gate, unit)
  Rows rows;
  int parity = 0;
  for (int t = 0; t < s.steps + (a.dhx ? 1 : 0); t++) {  // behind the last step: the gradient of the initial states
    items.each([&](int slice, int group) {
      const int direction = slice >= a.slices, first_unit = (slice - direction * a.slices) * UNITS;
      const int first_sequence = group * SEQUENCES;
      const int step = direction ? t : s.steps - 1 - t, behind = direction ? step - 1 : step + 1;
      const long long pseudo_layer = a.layer.pseudo_layer + direction;
      const auto unit_of = [&](int i) { return first_unit + static_cast<int>(threadIdx.x + i * THREADS) % UNITS; };
      const auto sequence_of = [&](int i) {
        return first_sequence + static_cast<int>(threadIdx.x + i * THREADS) / UNITS;
      };
      const auto has_cell = [&](int i) {
        return threadIdx.x + i * THREADS < CELLS && unit_of(i) < s.hidden && sequence_of(i) < s.batch;
      };
      if (t == 0 || !items.keeps_rows) {
        const ELEMENT* recurrent = a.weights + a.layer.recurrent.start + direction * a.layer.recurrent.step;
        rows.fill(a.pairs, depth, [&](int row, int k) {
          return first_unit + row < s.hidden ? recurrent[static_cast<long long>(k) * s.hidden + first_unit + row]
                                             : store<ELEMENT>(0.0f);
        });
      }

      // What does not depend on other blocks is in flight while they are waited for.
      COMPUTE kept[CELLS_PER_THREAD][KEPT], above[CELLS_PER_THREAD], carried[CELLS_PER_THREAD];
      COMPUTE state[CELLS_PER_THREAD], before[CELLS_PER_THREAD];
      int length[CELLS_PER_THREAD];
#pragma unroll
      for (int i = 0; i < CELLS_PER_THREAD; i++) {
        if (!has_cell(i)) continue;
        const int unit = unit_of(i), sequence = sequence_of(i);
        length[i] = length_of(offsets, s, sequence);
        const long long at = (static_cast<long long>(direction) * s.batch + sequence) * s.hidden + unit;
        const long long given = (pseudo_layer * s.batch + sequence) * s.hidden + unit;
        carried[i] = COMPUTE(0);
        if (t > 0) carried[i] = a.workspace[a.regions.cell + at];
        else if (CELL == LSTM && a.dcy) carried[i] = load<COMPUTE>(a.dcy[given]);
        above[i] = state[i] = before[i] = COMPUTE(0);
        if (t == s.steps || step >= length[i]) continue;
        const long long vector = static_cast<long long>(step) * s.batch + sequence;
        const long long of_direction = direction * a.regions.kept_step;
        const COMPUTE* from = a.reserve + a.regions.kept + of_direction + vector * KEPT * s.hidden + unit;
#pragma unroll
        for (int j = 0; j < KEPT; j++) kept[i][j] = from[j * s.hidden];
        const int column = direction * s.hidden + unit;
        above[i] = a.layer.last ? load<COMPUTE>(a.dy[vector_at(offsets, s, step, sequence) * wide + column])
                                : load<COMPUTE>(elements_at(a.workspace, a.regions.output)[vector * wide + column]);
        if (CELL == LSTM) {
          const COMPUTE* states = a.reserve + a.regions.kept_cell + of_direction;
          const ELEMENT* initial = a.cx ? a.cx + pseudo_layer * s.batch * s.hidden : nullptr;
          state[i] = states[vector * s.hidden + unit];
          before[i] = before_step(states, s.hidden, initial, s, direction, step, sequence, length[i], s.hidden, unit);
        } else if (CELL == GRU) {
          const ELEMENT* outputs = elements_at(a.reserve, a.regions.kept_output) + direction * s.hidden;
          const ELEMENT* initial = a.hx ? a.hx + pseudo_layer * s.batch * s.hidden : nullptr;
          before[i] = before_step(outputs, wide, initial, s, direction, step, sequence, length[i], s.hidden, unit);
        }
      }

      Product product;
      product.clear();
      if (t > 0)
        product.run<true>(
            rows, a.pairs,
            exchange + (direction * vectors + static_cast<long long>(behind) * s.batch + first_sequence) * depth, depth,
            s.batch - first_sequence, depth);
      product.store_sums(parity);
      __syncthreads();

#pragma unroll
      for (int i = 0; i < CELLS_PER_THREAD; i++) {
        if (!has_cell(i)) continue;
        const int unit = unit_of(i), sequence = sequence_of(i);
        const int first = direction ? 0 : length[i] - 1, last = direction ? length[i] - 1 : 0;  // steps of the sequence
        const long long at = (static_cast<long long>(direction) * s.batch + sequence) * s.hidden + unit;
        const long long given = (pseudo_layer * s.batch + sequence) * s.hidden + unit;
        COMPUTE sum = Product::total(parity, unit - first_unit, sequence - first_sequence);
        if (CELL == GRU && t > 0) sum += carried[i];
        if (a.dhx && t > 0 && length[i] > 0 && behind == last) a.dhx[given] = store<ELEMENT>(sum);
        if (t == s.steps) continue;
        const COMPUTE final = a.dhy && (step == first || length[i] == 0) ? load<COMPUTE>(a.dhy[given]) : COMPUTE(0);
        if (a.dhx && length[i] == 0) a.dhx[given] = store<ELEMENT>(final);
        const bool exists = step < length[i];
        CellGradient gradient{};
        if (exists) gradient = cell_gradient(kept[i], above[i] + sum + final, carried[i], state[i], before[i], a.clip);
        const long long vector = static_cast<long long>(step) * s.batch + sequence;
        ELEMENT* published = exchange + (direction * vectors + vector) * depth + unit;
#pragma unroll
        for (int gate = 0; gate < GATES; gate++)
          publish(published + gate * s.hidden, store<ELEMENT>(gradient.sum[recurrent_slot(gate)]));

        ELEMENT* gradients = elements_at(a.reserve, a.regions.gradients + direction * a.regions.kept_step) +
                             vector * KEPT * s.hidden + unit;
#pragma unroll
        for (int j = 0; j < KEPT; j++) gradients[j * s.hidden] = store<ELEMENT>(gradient.sum[j]);
        if (exists || CELL == GRU) carried[i] = gradient.carried;
        a.workspace[a.regions.cell + at] = carried[i];
        if (CELL == LSTM && a.dcx && t == s.steps - 1) a.dcx[given] = store<ELEMENT>(carried[i]);
      }
      parity ^= 1;
    });
    end_step();
  }
}
