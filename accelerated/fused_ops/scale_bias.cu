// y = activation(scale * x + bias + z_scale * z + z_bias), channel by channel, with a bit mask of the activation's
// derivative (6.1.3.1, SCALE_BIAS_ADD_ACTIVATION_GEN_BITMASK; also the first and the last step of convolutions).
//
// A warp takes 32 pixels by 32 channels, its lanes neighbours in memory: channels, whose bits a ballot makes a word, or
// pixels, whose bits each lane collects. The words of 32 pixels are stored at once.
//
// Roofline bound: bytes, x and z read and y written once, 0.03 bits of mask each; 4 flops an element: 0.09 ms for
// 64 x 256 x 56 x 56 HALF with z at 3.5 TB/s.
#include "fused_ops/problem.cuh"

struct Arguments {
  const ELEMENT *x, *z;
  const PARAMETER *scale, *bias, *z_scale, *z_bias;  // NULL: the call does not have it
  ELEMENT* y;
  unsigned* mask;
  Pixels pixels;
  TensorStrides x_strides, z_strides, y_strides;
  int parameter_stride, z_parameter_stride;
  int rectifies, propagates;  // a ReLU; NaN too
};

extern "C" __global__ void __launch_bounds__(THREADS) fused_ops_scale_bias(const Arguments a) {
  griddepcontrol_wait();
  unsigned word;
  const unsigned first = WARP * a.pixels.words.divide((blockIdx.x * THREADS + threadIdx.x) / WARP, word);
  if (first >= a.pixels.rows) return;
  const int lane = threadIdx.x % WARP;
  unsigned bits = 0;
  for_tile(a.pixels, first, WARP * word, [&](int i, unsigned, const Pixel& pixel, int channel, bool inside) {
    COMPUTE value = 0;
    if (inside) {
      const int parameter = channel * a.parameter_stride, z_parameter = channel * a.z_parameter_stride;
      value = load<COMPUTE>(a.x[offset(a.x_strides, pixel, channel)]);
      if (a.scale) value *= load<COMPUTE>(a.scale[parameter]);
      if (a.bias) value += load<COMPUTE>(a.bias[parameter]);
      if (a.z) {
        const COMPUTE z = load<COMPUTE>(a.z[offset(a.z_strides, pixel, channel)]);
        value += a.z_scale ? load<COMPUTE>(a.z_scale[z_parameter]) * z : z;
      }
      if (a.z_bias) value += load<COMPUTE>(a.z_bias[z_parameter]);
      COMPUTE result = value;
      if (a.rectifies && !(value > COMPUTE(0)) && !(a.propagates && value != value)) result = 0;
      a.y[offset(a.y_strides, pixel, channel)] = store<ELEMENT>(result);
    }
    const bool passes = inside && (!a.rectifies || value > COMPUTE(0));
    if (a.pixels.channels_last) {
      const unsigned all = __ballot_sync(~0u, passes);
      if (lane == i) bits = all;
    } else {
      bits |= static_cast<unsigned>(passes) << i;
    }
  });
  const unsigned row = first + lane;
  if (a.mask && row < a.pixels.rows) a.mask[row * a.pixels.mask_row + word * a.pixels.mask_word] = bits;
}
