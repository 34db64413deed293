// The gradient behind an activation, and that of the batch normalisation before it (6.1.3.1,
// DACTIVATION_FORK_DBATCHNORM), once channel_sums.cu has summed: dz = dy where the bit mask is 1, else 0;
// dx = scale * inverse * (dz - (sum + x' * product) / m), x' = (x - mean) * inverse.
//
// A warp takes 32 pixels by 32 channels, its lanes neighbours in memory.
//
// Roofline bound: bytes, x and dy read, dx and dz written once, 8 flops an element: 0.12 ms for 64 x 256 x 56 x 56
// HALF at 3.5 TB/s.
#include "fused_ops/problem.cuh"

struct Arguments {
  const ELEMENT *x, *dy;
  const unsigned* mask;
  const COMPUTE *scale, *mean, *inverse;
  const unsigned char* workspace;
  ELEMENT *dx, *dz;  // NULL: not wanted
  long long sums;    // bytes to the two sums of each channel
  Pixels pixels;
  TensorStrides x_strides, dy_strides, dx_strides, dz_strides;
  int parameter_stride, scale_stride;
  COMPUTE share;  // 1 / m
};

extern "C" __global__ void __launch_bounds__(THREADS) fused_ops_gradient(const Arguments a) {
  griddepcontrol_wait();
  unsigned word;
  const unsigned first = WARP * a.pixels.words.divide((blockIdx.x * THREADS + threadIdx.x) / WARP, word);
  if (first >= a.pixels.count) return;
  const COMPUTE* sums = reinterpret_cast<const COMPUTE*>(a.workspace + a.sums);
  for_tile(a.pixels, first, WARP * word, [&](int, unsigned index, const Pixel& pixel, int channel, bool inside) {
    if (!inside) return;
    const bool passes = !a.mask || a.mask[index * a.pixels.mask_row + word * a.pixels.mask_word] >> channel % WARP & 1;
    const ELEMENT incoming = a.dy[offset(a.dy_strides, pixel, channel)];
    const ELEMENT gradient = passes ? incoming : store<ELEMENT>(COMPUTE(0));
    if (a.dz) a.dz[offset(a.dz_strides, pixel, channel)] = gradient;
    if (!a.dx) return;
    const int parameter = channel * a.parameter_stride;
    const COMPUTE inverse = a.inverse[parameter];
    const COMPUTE normal = (load<COMPUTE>(a.x[offset(a.x_strides, pixel, channel)]) - a.mean[parameter]) * inverse;
    const COMPUTE mean = (sums[channel] + normal * sums[a.pixels.channels + channel]) * a.share;
    a.dx[offset(a.dx_strides, pixel, channel)] =
        store<ELEMENT>(a.scale[channel * a.scale_stride] * inverse * (load<COMPUTE>(gradient) - mean));
  });
}
