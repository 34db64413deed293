// Batch normalization forward (3.2.3, 3.2.66, 4.1.4, 4.1.5, 4.1.16) of tensors of any layout: y = scale * (x - mean) /
// sqrt(variance + epsilon) + bias, of statistics that are given (inference) or those of x (training), which enter the
// running ones.
//
// Tiling: batch.cuh. Training, a cluster of 1 or 8 blocks has all positions of its groups. Roofline bound (the floor):
// bytes, x read and y written once, of training too where the shared memory of a cluster holds what it reads; else x is
// read twice, mostly from L2. Flops: 8 an element. NCHW with gaps, 411 MB of float: 223 us inference, 433 us training
// on an H200: 43 and 22 % of the copy.
#include "normalization/batch.cuh"

constexpr int SCALE = 0, MEAN = 1, X = 2, Z = 3, Y = 4, OPERANDS = 5;

struct Arguments {
  ForwardCall call;
  Division<OPERANDS> division;
};

// y of what a thread has of x.
__device__ __forceinline__ void apply(const ForwardCall& call, const unsigned (&offset)[OPERANDS], ELEMENT x, ELEMENT z,
                                      const Normalizer& of) {
  unsigned char passes;
  call.y[offset[Y]] = call.normalized(x, z, of, call.y + offset[Y], passes);
  if (call.keeps_mask()) call.mask[offset[Y]] = passes;
}

extern "C" __global__ void __launch_bounds__(THREADS) normalization_batch_forward_inference(const Arguments a) {
  griddepcontrol_wait();
  const auto& d = a.division;
  if (!d.exists()) return;
  unsigned start[OPERANDS];
  d.group.locate(d.index(), start);
  const Normalizer of = a.call.given(start[SCALE], start[MEAN]);
  ELEMENT x[IN_FLIGHT];
  visit(
      d, start, [&](unsigned, const unsigned (&o)[OPERANDS], int u) { x[u] = a.call.x[o[X]]; },
      [&](unsigned, const unsigned (&o)[OPERANDS], int u) { apply(a.call, o, x[u], x[u], of); });
}

extern "C" __global__ void __launch_bounds__(THREADS) CLUSTER_DIMS_Y
    normalization_batch_forward_training(const Arguments a) {
  griddepcontrol_wait();
  const auto& d = a.division;
  ELEMENT* const cache = reinterpret_cast<ELEMENT*>(shared_memory);
  const GroupExchange exchange{reinterpret_cast<COMPUTE*>(cache + d.slot(d.cached) - d.thread())};
  unsigned start[OPERANDS];
  Normalizer of{};
  if (d.exists()) {
    d.group.locate(d.index(), start);
    of = {0, a.call.scale[start[SCALE]], a.call.bias[start[SCALE]]};
  }

  ShiftedSum sum{};
  ELEMENT x[IN_FLIGHT], z[IN_FLIGHT];
  visit(
      d, start, [&](unsigned, const unsigned (&o)[OPERANDS], int u) { x[u] = a.call.x[o[X]]; },
      [&](unsigned k, const unsigned (&)[OPERANDS], int u) {
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
      [&](unsigned k, const unsigned (&o)[OPERANDS], int u) {
        x[u] = k < d.cached ? cache[d.slot(k)] : a.call.x[o[X]];
        if (a.call.adds()) z[u] = a.call.z[o[Z]];
      },
      [&](unsigned, const unsigned (&o)[OPERANDS], int u) { apply(a.call, o, x[u], z[u], of); });
  if (d.first() == 0) a.call.store_statistics(of.mean, total.second, d.count, start[MEAN]);
}
