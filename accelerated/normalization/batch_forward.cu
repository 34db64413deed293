// Batch normalization forward (3.2.3, 3.2.66, 4.1.4, 4.1.5, 4.1.16): y = scale * (x - mean) / sqrt(variance + epsilon)
// + bias, of statistics that are given (inference) or those of x (training), which enter the running ones.
//
// Tiling: batch.cuh. Packs lie along positions (planes of NCHW) or along statistics (channels of NHWC, activations);
// tensors that have neither take packs of one element. Training, a cluster of 1 or 8 blocks has all positions of its
// groups. Roofline bound (the floor): bytes, x read and y written once, of training too where the shared memory of a
// cluster holds what it reads; else x is read twice, mostly from L2. Flops: 8 an element.
#include "normalization/batch.cuh"

constexpr int SCALE = 0, MEAN = 1, X = 2, Z = 3, Y = 4, OPERANDS = 5;

struct Arguments {
  const ELEMENT* x;
  const ELEMENT* z;  // null where nothing is added
  ELEMENT* y;
  const COMPUTE* scale;
  const COMPUTE* bias;
  COMPUTE* running_mean;      // null where there are none; inference: the given mean
  COMPUTE* running_variance;  // and variance
  COMPUTE* saved_mean;        // null where they are not wanted
  COMPUTE* saved_inverse;
  unsigned char* mask;  // null where none is kept; of every element of y, whether the activation passes it
  COMPUTE alpha, beta, epsilon, factor, unbiased;  // factor: of the moving average; unbiased: m / (m - 1)
  int rectify, propagate;                          // a ReLU follows; it propagates NaN
  Division<OPERANDS> division;
};

// y of what a thread has of x.
struct Apply {
  const Arguments& a;
  COMPUTE mean[SPAN], factor[SPAN], bias[SPAN];

  __device__ __forceinline__ void operator()(const unsigned (&offset)[OPERANDS], const Elements& x,
                                             const Elements& z) const {
    Elements y, prior;
    Pack<unsigned char, WIDTH> passes;
    if (a.beta != COMPUTE(0)) prior = read_elements_of(a.y + offset[Y]);
#pragma unroll
    for (int i = 0; i < WIDTH; i++) {
      const int s = group_of(i);
      COMPUTE value = (load<COMPUTE>(x.item[i]) - mean[s]) * factor[s] + bias[s];
      if (a.z) value += load<COMPUTE>(z.item[i]);
      passes.item[i] = value > COMPUTE(0);
      if (a.rectify && !(value > COMPUTE(0)) && !(a.propagate && value != value)) value = 0;
      y.item[i] = blend(a.alpha, value, a.beta, &prior.item[i]);
    }
    *reinterpret_cast<Elements*>(a.y + offset[Y]) = y;
    if (a.mask) *reinterpret_cast<Pack<unsigned char, WIDTH>*>(a.mask + offset[Y]) = passes;
  }
};

__device__ __forceinline__ void begin(const Arguments& a, unsigned (&start)[OPERANDS], Apply& apply) {
  if (!a.division.exists()) return;
  a.division.group.locate(a.division.pack(), start);
  COMPUTE scale[SPAN];
  read_statistics(a.scale, start[SCALE], a.division.group.row_stride[SCALE], scale);
  read_statistics(a.bias, start[SCALE], a.division.group.row_stride[SCALE], apply.bias);
#pragma unroll
  for (int i = 0; i < SPAN; i++) apply.factor[i] = scale[i];
}

extern "C" __global__ void __launch_bounds__(THREADS) normalization_batch_forward_inference(const Arguments a) {
  griddepcontrol_wait();
  const auto& d = a.division;
  unsigned start[OPERANDS];
  Apply apply{a};
  begin(a, start, apply);
  if (!d.exists()) return;
  COMPUTE variance[SPAN];
  read_statistics(a.running_mean, start[MEAN], d.group.row_stride[MEAN], apply.mean);
  read_statistics(a.running_variance, start[MEAN], d.group.row_stride[MEAN], variance);
#pragma unroll
  for (int i = 0; i < SPAN; i++) apply.factor[i] *= COMPUTE(1) / sqrt(variance[i] + a.epsilon);
  Elements x[IN_FLIGHT];
  visit(
      d, start, [&](unsigned, const unsigned (&o)[OPERANDS], int u) { x[u] = read_elements_of(a.x + o[X]); },
      [&](unsigned, const unsigned (&o)[OPERANDS], int u) { apply(o, x[u], x[u]); });
}
extern "C" __global__ void __launch_bounds__(THREADS) CLUSTER_DIMS_Y
    normalization_batch_forward_training(const Arguments a) {
  griddepcontrol_wait();
  const auto& d = a.division;
  Elements* const cache = reinterpret_cast<Elements*>(shared_memory);
  const MomentsExchange exchange{reinterpret_cast<COMPUTE*>(cache + d.slot(d.cached) - d.thread())};
  unsigned start[OPERANDS];
  Apply apply{a};
  begin(a, start, apply);

  ShiftedSums sums;
  Elements x[IN_FLIGHT], z[IN_FLIGHT];
  visit(
      d, start, [&](unsigned, const unsigned (&o)[OPERANDS], int u) { x[u] = read_elements_of(a.x + o[X]); },
      [&](unsigned k, const unsigned (&)[OPERANDS], int u) {
        if (k < d.cached) cache[d.slot(k)] = x[u];
        sums.add(x[u]);
      });
  Moments m = sums.moments(d.elements());
  exchange.all_reduce<MergeMoments>(m);
  if (!d.exists()) return;

  COMPUTE variance[SPAN], inverse[SPAN];
#pragma unroll
  for (int i = 0; i < SPAN; i++) {
    variance[i] = m.second[i] / d.count;
    inverse[i] = COMPUTE(1) / sqrt(variance[i] + a.epsilon);
    apply.mean[i] = m.first[i];
    apply.factor[i] *= inverse[i];
  }
  if (d.first() == 0) {
#pragma unroll
    for (int i = 0; i < SPAN; i++) {
      const unsigned at = start[MEAN] + i * d.group.row_stride[MEAN];
      if (a.saved_mean) a.saved_mean[at] = m.first[i], a.saved_inverse[at] = inverse[i];
      if (a.running_mean) {
        a.running_mean[at] = (COMPUTE(1) - a.factor) * a.running_mean[at] + a.factor * m.first[i];
        a.running_variance[at] =
            (COMPUTE(1) - a.factor) * a.running_variance[at] + a.factor * (variance[i] * a.unbiased);
      }
    }
  }
  visit(
      d, start,
      [&](unsigned k, const unsigned (&o)[OPERANDS], int u) {
        x[u] = k < d.cached ? cache[d.slot(k)] : read_elements_of(a.x + o[X]);
        if (a.z) z[u] = read_elements_of(a.z + o[Z]);
      },
      [&](unsigned, const unsigned (&o)[OPERANDS], int u) { apply(o, x[u], z[u]); });
}
