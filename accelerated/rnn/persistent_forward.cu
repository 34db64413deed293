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

constexpr int UNITS = ROWS / GATES, CELLS = UNITS * SEQUENCES, CELLS_PER_THREAD = (CELLS + THREADS - 1) / THREADS;

extern "C" __global__ void __launch_bounds__(THREADS, 1) rnn_persistent_forward(const Arguments a) {
  griddepcontrol_wait();
  const Shape& s = a.shape;
  const Items items(a.slices * s.directions, a.groups);
  const int wide = s.directions * s.hidden;
  const int* offsets = offsets_of(a.workspace, a.regions);
  ELEMENT* outputs = outputs_of(a.workspace, a.reserve, a.regions);
  const long long vectors = static_cast<long long>(s.steps) * s.batch;
  Rows rows;
  CellBias bias[CELLS_PER_THREAD];
  int parity = 0;
  for (int t = 0; t < s.steps; t++) {
    items.each([&](int slice, int group) {
      const int direction = slice >= a.slices, first_unit = (slice - direction * a.slices) * UNITS;
      const int first_sequence = group * SEQUENCES;
      const int step = direction ? s.steps - 1 - t : t, before = direction ? step + 1 : step - 1;
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
        rows.fill(a.pairs, s.hidden, [&](int row, int k) {
          const int gate = row / UNITS, unit = first_unit + row % UNITS;
          return unit < s.hidden ? recurrent[(static_cast<long long>(gate) * s.hidden + unit) * s.hidden + k]
                                 : store<ELEMENT>(0.0f);
        });
#pragma unroll
        for (int i = 0; i < CELLS_PER_THREAD; i++)
          if (has_cell(i)) bias[i] = bias_of(a.weights, a.layer, s, direction, unit_of(i));
      }

      // What does not depend on other blocks is in flight while they are waited for.
      COMPUTE products[CELLS_PER_THREAD][GATES], hidden[CELLS_PER_THREAD], state[CELLS_PER_THREAD];
      bool exists[CELLS_PER_THREAD];
#pragma unroll
      for (int i = 0; i < CELLS_PER_THREAD; i++) {
        if (!has_cell(i)) continue;
        const int unit = unit_of(i), sequence = sequence_of(i);
        const COMPUTE* from =
            a.workspace + a.regions.products +
            (direction * vectors + static_cast<long long>(step) * s.batch + sequence) * (GATES * s.hidden) + unit;
#pragma unroll
        for (int gate = 0; gate < GATES; gate++) products[i][gate] = from[gate * s.hidden];
        const long long at = (static_cast<long long>(direction) * s.batch + sequence) * s.hidden + unit;
        const long long given = (pseudo_layer * s.batch + sequence) * s.hidden + unit;
        if (t > 0) hidden[i] = a.workspace[a.regions.hidden + at];
        else hidden[i] = a.hx ? load<COMPUTE>(a.hx[given]) : COMPUTE(0);
        state[i] = COMPUTE(0);
        if (CELL == LSTM && t > 0) state[i] = a.workspace[a.regions.cell + at];
        else if (CELL == LSTM && a.cx) state[i] = load<COMPUTE>(a.cx[given]);
        exists[i] = step < length_of(offsets, s, sequence);
      }

      Product product;
      product.clear();
      const int count = s.batch - first_sequence;
      if (t > 0)
        product.run<true>(
            rows, a.pairs,
            outputs + (static_cast<long long>(before) * s.batch + first_sequence) * wide + direction * s.hidden, wide,
            count, s.hidden);
      else if (a.hx)
        product.run<false>(rows, a.pairs, a.hx + (pseudo_layer * s.batch + first_sequence) * s.hidden, s.hidden, count,
                           s.hidden);
      product.store_sums(parity);
      __syncthreads();

#pragma unroll
      for (int i = 0; i < CELLS_PER_THREAD; i++) {
        if (!has_cell(i)) continue;
        const int unit = unit_of(i), sequence = sequence_of(i);
        COMPUTE sums[GATES];
#pragma unroll
        for (int gate = 0; gate < GATES; gate++)
          sums[gate] = Product::total(parity, gate * UNITS + unit - first_unit, sequence - first_sequence);
        const CellOutput out = cell_output(products[i], sums, bias[i], hidden[i], state[i], a.clip);
        if (exists[i]) hidden[i] = out.value, state[i] = out.state;
        const ELEMENT value = store<ELEMENT>(hidden[i]);
        const long long vector = static_cast<long long>(step) * s.batch + sequence;
        const bool passes = exists[i] || passes_state(direction, length_of(offsets, s, sequence));
        publish(outputs + vector * wide + direction * s.hidden + unit, passes ? value : store<ELEMENT>(0.0f));

        const long long at = (static_cast<long long>(direction) * s.batch + sequence) * s.hidden + unit;
        const long long given = (pseudo_layer * s.batch + sequence) * s.hidden + unit;
        a.workspace[a.regions.hidden + at] = hidden[i];
        if (CELL == LSTM) a.workspace[a.regions.cell + at] = state[i];
        if (exists[i] && a.regions.kept >= 0) {
          COMPUTE* kept =
              a.reserve + a.regions.kept + direction * a.regions.kept_step + vector * KEPT * s.hidden + unit;
#pragma unroll
          for (int j = 0; j < KEPT; j++) kept[j * s.hidden] = out.kept[j];
          if (CELL == LSTM)
            a.reserve[a.regions.kept_cell + direction * a.regions.kept_step + vector * s.hidden + unit] = state[i];
        }
        if (a.layer.last && (exists[i] || s.fills))
          a.y[vector_at(offsets, s, step, sequence) * wide + direction * s.hidden + unit] =
              exists[i] ? value : store<ELEMENT>(a.fill);
        if (t == s.steps - 1) {
          if (a.hy) a.hy[given] = value;
          if (CELL == LSTM && a.cy) a.cy[given] = store<ELEMENT>(state[i]);
        }
      }
      parity ^= 1;
    });
    end_step();
  }
}
