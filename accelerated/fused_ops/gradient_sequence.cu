// The gradient behind an activation (6.1.3.1, DACTIVATION_FORK_DBATCHNORM): dz = dy where the bit mask is 1, else 0.
//
// A lane has a pixel of the 32 channels of a word, all of which it reads before it writes: a warp has 64 bytes or more
// of each channel.
//
// Roofline bound: bytes, dy and one bit of mask an element read, dz written once: 3 us for 32 x 128 x 28 x 28 HALF at
// 4.2 TB/s; 2 flops an element. Next comes latency, of small tensors: 32 accesses of each of 32 warps are in flight.
#include "fused_ops/problem.cuh"

struct Arguments {
  const ELEMENT* dy;
  const unsigned* mask;
  ELEMENT* dz;
  Pixels pixels;
  TensorStrides dy_strides, dz_strides;
};

extern "C" __global__ void __launch_bounds__(THREADS, 4) fused_ops_gradient_sequence(const Arguments a) {
  griddepcontrol_wait();
  const Tile<WARP> mine(a.pixels);
  if (!mine.exists) return;
  const Pixel pixel = locate(a.pixels, mine.pixel);
  const ELEMENT* const from = a.dy + offset(a.dy_strides, pixel, mine.channel);
  ELEMENT* const to = a.dz + offset(a.dz_strides, pixel, mine.channel);
  const int count = min(WARP, a.pixels.channels - mine.channel);
  const unsigned bits = mask_word(a.pixels, a.mask, mine.pixel, mine.channel / WARP);
  ELEMENT values[WARP];
#pragma unroll
  for (int i = 0; i < WARP; i++)
    if (i < count) values[i] = from[i * a.dy_strides.channel];
  griddepcontrol_launch_dependents();
#pragma unroll
  for (int i = 0; i < WARP; i++)
    if (i < count) to[i * a.dz_strides.channel] = bits >> i & 1 ? values[i] : store<ELEMENT>(COMPUTE(0));
}
