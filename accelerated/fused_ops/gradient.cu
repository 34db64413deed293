// This kernel computes the gradients of an activation and of the batch normalisation before it (6.1.3.1,
// DACTIVATION_FORK_DBATCHNORM), from the sums of channel_sums.cu.
//
// The gradient dz is dy where the bit mask is 1, else 0. Then dx = scale * inverse * (dz - (sum + x' * product) / m),
// with x' = (x - mean) * inverse. The kernel adds three terms with factors per channel. It walks like scale_bias.cu,
// but backwards, because L2 still has the pixels that were summed last.
//
// Roofline bound: bytes, x and dy read, dx and dz written once, 8 flops an element: 0.12 ms for 64 x 256 x 56 x 56 HALF
// at 3.5 TB/s.
#include "fused_ops/gradient.cuh"

struct Arguments {
  const ELEMENT *x, *dy;
  const unsigned* mask;
  const unsigned char* workspace;
  ELEMENT *dx, *dz;   // NULL where not requested
  long long factors;  // byte offset of the channels' factors
  Pixels pixels;
  TensorStrides x_strides, dy_strides, dx_strides, dz_strides;
};

// Writes the elements of a vector; bit j of `passes` belongs to element j.
__device__ __forceinline__ void write(const Arguments& a, const Packed& x, const Packed& dy, unsigned passes,
                                      const Pixel& pixel, int channel, const Factors (&factors)[WIDTH]) {
  Packed dx, dz;
#pragma unroll
  for (int j = 0; j < WIDTH; j++) {
    dz.item[j] = passes >> j & 1 ? dy.item[j] : store<ELEMENT>(COMPUTE(0));
    dx.item[j] = store<ELEMENT>(factors[j].gradient(load<COMPUTE>(dz.item[j]), load<COMPUTE>(x.item[j])));
  }
  if (a.dz) *reinterpret_cast<Packed*>(a.dz + offset(a.dz_strides, pixel, channel)) = dz;
  if (a.dx) *reinterpret_cast<Packed*>(a.dx + offset(a.dx_strides, pixel, channel)) = dx;
}

extern "C" __global__ void __launch_bounds__(THREADS, RESIDENT_BLOCKS) fused_ops_gradient_channels(const Arguments a) {
  griddepcontrol_wait();
  const Channels mine(a.pixels);
  if (!mine.exists) return;
  const Factors* known = reinterpret_cast<const Factors*>(a.workspace + a.factors) + mine.channel;
  Factors factors[WIDTH] = {};
  if (a.dx)
#pragma unroll
    for (int j = 0; j < WIDTH; j++) factors[j] = known[j];
  const unsigned last = a.pixels.count - 1;
  for (unsigned start = mine.first; start <= last; start += GRADIENT_BATCH * a.pixels.step) {
    Packed x[GRADIENT_BATCH] = {}, dy[GRADIENT_BATCH];
    unsigned passes[GRADIENT_BATCH];
#pragma unroll
    for (int i = 0; i < GRADIENT_BATCH; i++) {
      const unsigned index = last - (start + i * a.pixels.step);
      if (index > last) continue;
      const Pixel pixel = locate(a.pixels, index);
      dy[i] = load_vector(a.dy + offset(a.dy_strides, pixel, mine.channel));
      if (a.dx) x[i] = load_vector(a.x + offset(a.x_strides, pixel, mine.channel));
      passes[i] = mask_word(a.pixels, a.mask, index, mine.channel / WARP) >> mine.channel % WARP;
    }
#pragma unroll
    for (int i = 0; i < GRADIENT_BATCH; i++) {
      const unsigned index = last - (start + i * a.pixels.step);
      if (index > last) continue;
      write(a, x[i], dy[i], passes[i], locate(a.pixels, index), mine.channel, factors);
    }
  }
  griddepcontrol_launch_dependents();
}

extern "C" __global__ void __launch_bounds__(THREADS) fused_ops_gradient_pixels(const Arguments a) {
  griddepcontrol_wait();
  const Tile mine(a.pixels);
  if (!mine.exists) return;
  const unsigned first_pixel = a.pixels.count - WIDTH - mine.pixel;
  const Pixel pixel = locate(a.pixels, first_pixel);
  Packed x[GROUP] = {}, dy[GROUP];
#pragma unroll
  for (int i = 0; i < GROUP; i++) {
    if (mine.channel + i >= a.pixels.channels) break;
    dy[i] = load_vector(a.dy + offset(a.dy_strides, pixel, mine.channel + i));
    if (a.dx) x[i] = load_vector(a.x + offset(a.x_strides, pixel, mine.channel + i));
  }
  unsigned bits[WIDTH];  // mask bits of the pixels, one per channel
#pragma unroll
  for (int j = 0; j < WIDTH; j++)
    bits[j] = mask_word(a.pixels, a.mask, first_pixel + j, mine.channel / WARP) >> mine.channel % WARP;
  const Factors* known = reinterpret_cast<const Factors*>(a.workspace + a.factors) + mine.channel;
  griddepcontrol_launch_dependents();
#pragma unroll
  for (int i = 0; i < GROUP; i++) {
    if (mine.channel + i >= a.pixels.channels) break;
    Factors factors[WIDTH] = {};
    unsigned passes = 0;
#pragma unroll
    for (int j = 0; j < WIDTH; j++) {
      if (a.dx) factors[j] = known[i];
      passes |= (bits[j] >> i & 1) << j;
    }
    write(a, x[i], dy[i], passes, pixel, mine.channel + i, factors);
  }
}
