// Batch normalization backward (4.1.2, 4.1.3, 4.1.15): dBias = sum of dy, dScale = sum of dy * n and dx = scale *
// inverse * (dy - (dBias + n * dScale) / m), n = (x - mean) * inverse. Mean and inverse are given, or those of x.
// An activation before which dy stands is undone: dy counts where its argument, computed again or kept as a mask, is
// positive; that is dz.
//
// Tiling: batch.cuh, as forward. Roofline bound (the floor): bytes, x and dy read and dx written once where the shared
// memory of a cluster holds what it reads, else x and dy are read twice, mostly from L2. Flops: 12 an element.
#include "normalization/batch.cuh"

constexpr int SCALE = 0, MEAN = 1, X = 2, DY = 3, DZ = 4, DX = 5, OPERANDS = 6;

struct Arguments {
  const ELEMENT* x;
  const ELEMENT* dy;
  ELEMENT* dz;  // null where it is not wanted
  ELEMENT* dx;
  const COMPUTE* scale;
  const COMPUTE* bias;           // null where no activation is undone, or by its mask
  const COMPUTE* saved_mean;     // null where the mean and inverse are those of x
  const COMPUTE* saved_inverse;  // 1 / sqrt(variance + epsilon)
  COMPUTE* scale_gradient;
  COMPUTE* bias_gradient;
  const unsigned char* mask;  // null where there is none; of every element of dy, whether it counts
  COMPUTE alpha, beta, parameter_alpha, parameter_beta, epsilon;
  Division<OPERANDS> division;
};

// What a thread knows of its groups.
struct Groups {
  const Arguments& a;
  COMPUTE mean[SPAN], inverse[SPAN], scale[SPAN], bias[SPAN];

  // dy where it counts.
  __device__ __forceinline__ void undo_activation(const unsigned (&offset)[OPERANDS], const Elements& x,
                                                  Elements& dy) const {
    if (a.mask) {
      const auto passes = *reinterpret_cast<const Pack<unsigned char, WIDTH>*>(a.mask + offset[DY]);
#pragma unroll
      for (int i = 0; i < WIDTH; i++)
        if (!passes.item[i]) dy.item[i] = store<ELEMENT>(COMPUTE(0));
    } else if (a.bias) {
#pragma unroll
      for (int i = 0; i < WIDTH; i++) {
        const int g = group_of(i);
        const COMPUTE argument = (load<COMPUTE>(x.item[i]) - mean[g]) * (scale[g] * inverse[g]) + bias[g];
        if (!(argument > COMPUTE(0))) dy.item[i] = store<ELEMENT>(COMPUTE(0));
      }
    }
  }
};

extern "C" __global__ void __launch_bounds__(THREADS) CLUSTER_DIMS_Y normalization_batch_backward(const Arguments a) {
  griddepcontrol_wait();
  const auto& d = a.division;
  // x and dy of the k-th pack of a thread
  Elements* const cached_x = reinterpret_cast<Elements*>(shared_memory);
  Elements* const cached_dy = cached_x + (d.slot(d.cached) - d.thread());
  const MomentsExchange exchange{reinterpret_cast<COMPUTE*>(cached_dy + (d.slot(d.cached) - d.thread()))};
  unsigned start[OPERANDS];
  Groups g{a};
  if (d.exists()) {
    d.group.locate(d.pack(), start);
    read_statistics(a.scale, start[SCALE], d.group.row_stride[SCALE], g.scale);
    if (a.bias) read_statistics(a.bias, start[SCALE], d.group.row_stride[SCALE], g.bias);
    if (a.saved_mean) {
      read_statistics(a.saved_mean, start[MEAN], d.group.row_stride[MEAN], g.mean);
      read_statistics(a.saved_inverse, start[MEAN], d.group.row_stride[MEAN], g.inverse);
    }
  }
  Elements x[IN_FLIGHT], dy[IN_FLIGHT];
  if (!a.saved_mean) {
    ShiftedSums sums;
    visit(
        d, start, [&](unsigned, const unsigned (&o)[OPERANDS], int u) { x[u] = read_elements_of(a.x + o[X]); },
        [&](unsigned k, const unsigned (&)[OPERANDS], int u) {
          if (k < d.cached) cached_x[d.slot(k)] = x[u];
          sums.add(x[u]);
        });
    Moments m = sums.moments(d.elements());
    exchange.all_reduce<MergeMoments>(m);
#pragma unroll
    for (int i = 0; i < SPAN; i++) {
      g.mean[i] = m.first[i];
      g.inverse[i] = COMPUTE(1) / sqrt(m.second[i] / d.count + a.epsilon);
    }
  }

  // first: the sum of dy; second: that of dy * n
  Moments total{};
  visit(
      d, start,
      [&](unsigned k, const unsigned (&o)[OPERANDS], int u) {
        x[u] = !a.saved_mean && k < d.cached ? cached_x[d.slot(k)] : read_elements_of(a.x + o[X]);
        dy[u] = read_elements_of(a.dy + o[DY]);
      },
      [&](unsigned k, const unsigned (&o)[OPERANDS], int u) {
        g.undo_activation(o, x[u], dy[u]);
        if (k < d.cached) {
          if (a.saved_mean) cached_x[d.slot(k)] = x[u];
          cached_dy[d.slot(k)] = dy[u];
        }
#pragma unroll
        for (int i = 0; i < WIDTH; i++) {
          const int s = group_of(i);
          const COMPUTE gradient = load<COMPUTE>(dy[u].item[i]);
          total.first[s] += gradient;
          total.second[s] += gradient * ((load<COMPUTE>(x[u].item[i]) - g.mean[s]) * g.inverse[s]);
        }
      });
  exchange.all_reduce<AddSums>(total);
  if (!d.exists()) return;

  if (d.first() == 0) {
#pragma unroll
    for (int i = 0; i < SPAN; i++) {
      const unsigned at = start[SCALE] + i * d.group.row_stride[SCALE];
      a.scale_gradient[at] = blend(a.parameter_alpha, total.second[i], a.parameter_beta, a.scale_gradient + at);
      a.bias_gradient[at] = blend(a.parameter_alpha, total.first[i], a.parameter_beta, a.bias_gradient + at);
    }
  }
  COMPUTE factor[SPAN];
#pragma unroll
  for (int i = 0; i < SPAN; i++) {
    factor[i] = g.scale[i] * g.inverse[i];
    total.first[i] /= d.count;
    total.second[i] /= d.count;
  }
  visit(
      d, start,
      [&](unsigned k, const unsigned (&o)[OPERANDS], int u) {
        const bool kept = k < d.cached;
        x[u] = kept ? cached_x[d.slot(k)] : read_elements_of(a.x + o[X]);
        dy[u] = kept ? cached_dy[d.slot(k)] : read_elements_of(a.dy + o[DY]);
      },
      [&](unsigned k, const unsigned (&o)[OPERANDS], int u) {
        if (k >= d.cached) g.undo_activation(o, x[u], dy[u]);
        Elements dx, prior;
        if (a.beta != COMPUTE(0)) prior = read_elements_of(a.dx + o[DX]);
#pragma unroll
        for (int i = 0; i < WIDTH; i++) {
          const int s = group_of(i);
          const COMPUTE normalized = (load<COMPUTE>(x[u].item[i]) - g.mean[s]) * g.inverse[s];
          const COMPUTE value =
              factor[s] * (load<COMPUTE>(dy[u].item[i]) - total.first[s] - normalized * total.second[s]);
          dx.item[i] = blend(a.alpha, value, a.beta, &prior.item[i]);
        }
        *reinterpret_cast<Elements*>(a.dx + o[DX]) = dx;
        if (a.dz) *reinterpret_cast<Elements*>(a.dz + o[DZ]) = dy[u];
      });
}
