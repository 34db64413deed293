// This file normalizes batches of generic layouts, element by element. Forward (3.2.3, 3.2.66, 4.1.4, 4.1.5, 4.1.16)
// computes y = scale * n + bias with n = (x - mean) / sqrt(variance + epsilon). The statistics are given (inference) or
// computed from x (training), which also updates the running ones.
//
// Backward (4.1.2, 4.1.3, 4.1.15) sums dBias = sum(dy) and dScale = sum(dy * n). Then dx = scale * inverse * (dy -
// (dBias + n * dScale) / m). A fused activation is undone first: dy counts where the activation's argument is positive.
// That argument is computed again or kept as a mask; the result is dz.
//
// batch.cuh defines the tiling: a cluster of 1 or 8 blocks covers all positions of its groups.
//
// The roofline bound is bytes. x and dy are read and y or dx written once if a cluster's shared memory holds the reads.
// Else the second read comes mostly from L2. Forward needs 8 flops per element, backward 12. On an H200, NCHW with gaps
// of 411 MB of float takes 223 us for inference and 433 us for training. That is 43 and 22 % of the copy's speed.
// Backward of 617 MB takes 1198 us, 12 %.
#include "normalization/batch.cuh"

// These constants index the operands of both directions.
constexpr int SCALE = 0;
constexpr int MEAN = 1;
constexpr int X = 2;
constexpr int Z = 3;
constexpr int Y = 4;
constexpr int FORWARD = 5;  // number of operands
constexpr int DY = 3;
constexpr int DZ = 4;
constexpr int DX = 5;
constexpr int BACKWARD = 6;  // number of operands

struct ForwardArguments {
  ForwardCall call;
  Division<FORWARD> division;
};

extern "C" __global__ void __launch_bounds__(THREADS) normalization_batch_strided_inference(const ForwardArguments a) {
  griddepcontrol_wait();
  const auto& d = a.division;
  if (!d.exists()) return;
  unsigned start[FORWARD];
  d.group.locate(d.index(), start);
  const Normalizer of = a.call.given(start[SCALE], start[MEAN]);
  ELEMENT x[IN_FLIGHT];
  visit(
      d, start, [&](unsigned, const unsigned (&o)[FORWARD], int u) { x[u] = a.call.x[o[X]]; },
      [&](unsigned, const unsigned (&o)[FORWARD], int u) { a.call.store_element(o[Y], x[u], x[u], of); });
}

extern "C" __global__ void __launch_bounds__(THREADS) CLUSTER_DIMS_Y
    normalization_batch_strided_training(const ForwardArguments a) {
  griddepcontrol_wait();
  const auto& d = a.division;
  ELEMENT* const cache = reinterpret_cast<ELEMENT*>(shared_memory);
  const GroupExchange exchange{reinterpret_cast<COMPUTE*>(cache + d.slot(d.cached) - d.thread())};
  unsigned start[FORWARD];
  Normalizer of{};
  if (d.exists()) {
    d.group.locate(d.index(), start);
    of = {0, a.call.scale[start[SCALE]], a.call.bias[start[SCALE]]};
  }

  ShiftedSum sum{};
  ELEMENT x[IN_FLIGHT], z[IN_FLIGHT];
  visit(
      d, start, [&](unsigned, const unsigned (&o)[FORWARD], int u) { x[u] = a.call.x[o[X]]; },
      [&](unsigned k, const unsigned (&)[FORWARD], int u) {
        if (k < d.cached) cache[d.slot(k)] = x[u];
        if (k == 0) sum.begin(x[0], x[1], x[2], d.elements());
        sum.add(x[u]);
      });
  const COMPUTE count = d.elements();
  const Total mine = count > COMPUTE(0) ? sum.moments(COMPUTE(1) / count) : Total{};
  const Total total = exchange.all_reduce<MergeMoments>(mine, count, d.count);
  if (!d.exists()) return;
  of.mean = total.first + total.low;
  of.factor *= a.call.inverse(total.second, d.count);
  visit(
      d, start,
      [&](unsigned k, const unsigned (&o)[FORWARD], int u) {
        x[u] = k < d.cached ? cache[d.slot(k)] : a.call.x[o[X]];
        if (a.call.adds()) z[u] = a.call.z[o[Z]];
      },
      [&](unsigned, const unsigned (&o)[FORWARD], int u) { a.call.store_element(o[Y], x[u], z[u], of); });
  if (d.first() == 0) a.call.store_statistics(of.mean, total.second, d.count, start[MEAN]);
}

struct BackwardArguments {
  BackwardCall call;
  Division<BACKWARD> division;
};

extern "C" __global__ void __launch_bounds__(THREADS) CLUSTER_DIMS_Y
    normalization_batch_strided_backward(const BackwardArguments a) {
  griddepcontrol_wait();
  const auto& d = a.division;
  const BackwardCall& call = a.call;
  // The caches hold x and dy of the thread's k-th elements.
  ELEMENT* const cached_x = reinterpret_cast<ELEMENT*>(shared_memory);
  ELEMENT* const cached_dy = cached_x + (d.slot(d.cached) - d.thread());
  const GroupExchange exchange{reinterpret_cast<COMPUTE*>(cached_dy + (d.slot(d.cached) - d.thread()))};
  unsigned start[BACKWARD];
  COMPUTE scale = 0, bias = 0, mean = 0, inverse = 0;
  if (d.exists()) {
    d.group.locate(d.index(), start);
    scale = call.scale[start[SCALE]];
    if (call.has_bias()) bias = call.bias[start[SCALE]];
    if (call.saved_mean) mean = call.saved_mean[start[MEAN]], inverse = call.saved_inverse[start[MEAN]];
  }
  ELEMENT x[IN_FLIGHT], dy[IN_FLIGHT];
  bool passes[IN_FLIGHT];
  if (!call.saved_mean) {
    ShiftedSum sum{};
    visit(
        d, start, [&](unsigned, const unsigned (&o)[BACKWARD], int u) { x[u] = call.x[o[X]]; },
        [&](unsigned k, const unsigned (&)[BACKWARD], int u) {
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

  auto read_mask = [&](const unsigned (&o)[BACKWARD], int u) {
    if (call.has_mask()) passes[u] = bit_of_mask(call.mask, o[DY]);
  };
  // Sets dy to zero where the activation blocks it.
  auto undo_activation = [&](int u) {
    const bool counts = call.has_mask() ? passes[u] : !call.has_bias() || call.counts(x[u], mean, factor, bias);
    if (!counts) dy[u] = store<ELEMENT>(COMPUTE(0));
  };
  Total mine{};
  visit(
      d, start,
      [&](unsigned k, const unsigned (&o)[BACKWARD], int u) {
        x[u] = !call.saved_mean && k < d.cached ? cached_x[d.slot(k)] : call.x[o[X]];
        dy[u] = call.dy[o[DY]];
        read_mask(o, u);
      },
      [&](unsigned k, const unsigned (&)[BACKWARD], int u) {
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
      [&](unsigned k, const unsigned (&o)[BACKWARD], int u) {
        const bool kept = k < d.cached;
        x[u] = kept ? cached_x[d.slot(k)] : call.x[o[X]];
        dy[u] = kept ? cached_dy[d.slot(k)] : call.dy[o[DY]];
        if (!kept) read_mask(o, u);
      },
      [&](unsigned k, const unsigned (&o)[BACKWARD], int u) {
        if (k >= d.cached) undo_activation(u);
        call.dx[o[DX]] = call.gradient(x[u], dy[u], of, call.dx + o[DX]);
        if (call.wants_dz()) call.dz[o[DZ]] = dy[u];
      });
}
