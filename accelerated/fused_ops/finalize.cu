// Converts statistics of batch normalisation to a scale and a bias (6.1.3.1, BN_FINALIZE_STATISTICS_TRAINING and
// _INFERENCE). The mean and variance of each channel come from its sums or from the running statistics. The kernel
// writes only the operands that the call passes.
//
// Each thread computes one channel. Roofline bound: bytes, at most 6 numbers read and 6 written a channel, 20 flops.
// 4096 channels take 0.1 us at 3.5 TB/s, so that the launch dominates.
#include "primitives/types.cuh"

struct Arguments {
  const COMPUTE *sum, *squares, *scale, *bias;  // NULL where the call does not have the operand
  COMPUTE *running_mean, *running_var, *saved_mean, *saved_inverse;
  ELEMENT *eq_scale, *eq_bias;
  COMPUTE count, unbiased, factor, epsilon;  // unbiased: count / (count - 1)
  int channels;
  int sums_stride, parameter_stride, eq_stride;  // strides between channels, in elements
};

extern "C" __global__ void __launch_bounds__(THREADS) fused_ops_finalize(const Arguments a) {
  griddepcontrol_wait();
  const int channel = blockIdx.x * THREADS + threadIdx.x;
  if (channel >= a.channels) return;
  const int parameter = channel * a.parameter_stride, eq = channel * a.eq_stride;
  COMPUTE mean = 0, variance;
  if (a.sum) {
    mean = a.sum[channel * a.sums_stride] / a.count;
    const COMPUTE difference = a.squares[channel * a.sums_stride] / a.count - mean * mean;
    variance = difference > COMPUTE(0) || difference != difference ? difference : COMPUTE(0);
    if (a.running_mean) a.running_mean[parameter] = (1 - a.factor) * a.running_mean[parameter] + a.factor * mean;
    if (a.running_var)
      a.running_var[parameter] = (1 - a.factor) * a.running_var[parameter] + a.factor * (a.unbiased * variance);
  } else {
    variance = a.running_var[parameter];
    if (a.running_mean) mean = a.running_mean[parameter];
  }
  const COMPUTE inverse = 1 / sqrt(variance + a.epsilon);
  if (a.saved_mean) a.saved_mean[parameter] = mean;
  if (a.saved_inverse) a.saved_inverse[parameter] = inverse;
  if (!a.scale) return;
  const COMPUTE scale = a.scale[parameter] * inverse;
  if (a.eq_scale) a.eq_scale[eq] = store<ELEMENT>(scale);
  if (a.eq_bias) a.eq_bias[eq] = store<ELEMENT>(a.bias[parameter] - mean * scale);
}
