// Batch normalization backward (4.1.2, 4.1.3, 4.1.15) of tensors of any layout: dBias = sum of dy, dScale = sum of dy *
// n and dx = scale * inverse * (dy - (dBias + n * dScale) / m), n = (x - mean) * inverse. Mean and inverse are given,
// or those of x. An activation before which dy stands is undone: dy counts where its argument, computed again or kept
// as a mask, is positive; that is dz.
//
// Tiling: batch.cuh, as forward. Roofline bound (the floor): bytes, x and dy read and dx written once where the shared
// memory of a cluster holds what it reads, else x and dy are read twice, mostly from L2. Flops: 12 an element. NCHW
// with gaps, 617 MB of float: 1198 us on an H200, 12 % of the copy.
#include "normalization/batch.cuh"

constexpr int SCALE = 0, MEAN = 1, X = 2, DY = 3, DZ = 4, DX = 5, OPERANDS = 6;

struct Arguments {
  BackwardCall call;
  Division<OPERANDS> division;
};

extern "C" __global__ void __launch_bounds__(THREADS) CLUSTER_DIMS_Y normalization_batch_backward(const Arguments a) {
  griddepcontrol_wait();
  const auto& d = a.division;
  const BackwardCall& call = a.call;
  // x and dy of the k-th element of a thread
  ELEMENT* const cached_x = reinterpret_cast<ELEMENT*>(shared_memory);
  ELEMENT* const cached_dy = cached_x + (d.slot(d.cached) - d.thread());
  const GroupExchange exchange{reinterpret_cast<COMPUTE*>(cached_dy + (d.slot(d.cached) - d.thread()))};
  unsigned start[OPERANDS];
  COMPUTE scale = 0, bias = 0, mean = 0, inverse = 0;
  if (d.exists()) {
    d.group.locate(d.index(), start);
    scale = call.scale[start[SCALE]];
    if (call.has_bias()) bias = call.bias[start[SCALE]];
    if (call.saved_mean) mean = call.saved_mean[start[MEAN]], inverse = call.saved_inverse[start[MEAN]];
  }
  ELEMENT x[IN_FLIGHT], dy[IN_FLIGHT];
  unsigned char passes[IN_FLIGHT];
  if (!call.saved_mean) {
    ShiftedSum sum{};
    visit(
        d, start, [&](unsigned, const unsigned (&o)[OPERANDS], int u) { x[u] = call.x[o[X]]; },
        [&](unsigned k, const unsigned (&)[OPERANDS], int u) {
          if (k < d.cached) cached_x[d.slot(k)] = x[u];
          if (k == 0) sum.begin(x[0], x[1], x[2], d.elements());
          sum.add(x[u]);
        });
    const COMPUTE count = d.elements();
    const Total moments = count > COMPUTE(0) ? sum.moments(COMPUTE(1) / count) : Total{};
    const Total total = exchange.all_reduce<MergeMoments>(moments, count, d.count);
    mean = total.first + total.low, inverse = COMPUTE(1) / sqrt(total.second / d.count + call.epsilon);
  }
  const COMPUTE factor = scale * inverse;

  auto read_mask = [&](const unsigned (&o)[OPERANDS], int u) {
    if (call.has_mask()) passes[u] = call.mask[o[DY]];
  };
  // dy where it counts
  auto undo_activation = [&](int u) {
    const bool counts = call.has_mask() ? passes[u] != 0 : !call.has_bias() || call.counts(x[u], mean, factor, bias);
    if (!counts) dy[u] = store<ELEMENT>(COMPUTE(0));
  };
  Total mine{};
  visit(
      d, start,
      [&](unsigned k, const unsigned (&o)[OPERANDS], int u) {
        x[u] = !call.saved_mean && k < d.cached ? cached_x[d.slot(k)] : call.x[o[X]];
        dy[u] = call.dy[o[DY]];
        read_mask(o, u);
      },
      [&](unsigned k, const unsigned (&)[OPERANDS], int u) {
        undo_activation(u);
        if (k < d.cached) {
          if (call.saved_mean) cached_x[d.slot(k)] = x[u];
          cached_dy[d.slot(k)] = dy[u];
        }
        const COMPUTE gradient = load<COMPUTE>(dy[u]);
        mine.first += gradient;
        mine.second += gradient * ((load<COMPUTE>(x[u]) - mean) * inverse);
      });
  const Total total = exchange.all_reduce<AddSums>(mine, d.elements(), d.count);
  if (!d.exists()) return;
  if (d.first() == 0) call.store_parameters(start[SCALE], total.first, total.second);
  const GradientOf of = GradientOf::from(mean, inverse, factor, total, d.count);
  visit(
      d, start,
      [&](unsigned k, const unsigned (&o)[OPERANDS], int u) {
        const bool kept = k < d.cached;
        x[u] = kept ? cached_x[d.slot(k)] : call.x[o[X]];
        dy[u] = kept ? cached_dy[d.slot(k)] : call.dy[o[DY]];
        if (!kept) read_mask(o, u);
      },
      [&](unsigned k, const unsigned (&o)[OPERANDS], int u) {
        if (k >= d.cached) undo_activation(u);
        call.dx[o[DX]] = call.gradient(x[u], dy[u], of, call.dx + o[DX]);
        if (call.wants_dz()) call.dz[o[DZ]] = dy[u];
      });
}
