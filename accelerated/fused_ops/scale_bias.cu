// y = activation(scale * x + bias + z_scale * z + z_bias), channel by channel, with a bit mask of the activation's
// derivative (6.1.3.1, SCALE_BIAS_ADD_ACTIVATION_GEN_BITMASK; also the first and the last step of convolutions).
//
// Along channels a thread keeps its factors and walks over pixels; the lanes that have a word of the bit mask put its
// bits together. Along pixels a warp has 32 channels of them, and each lane the words of its pixels. ACTIVATION: 0
// none, 1 a ReLU, 2 one that keeps NaN.
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
};

struct Factors {
  COMPUTE scale, z_scale, shift;

  __device__ __forceinline__ void load_channel(const Arguments& a, int channel) {
    const int at = channel * a.parameter_stride, z_at = channel * a.z_parameter_stride;
    scale = a.scale ? load<COMPUTE>(a.scale[at]) : COMPUTE(1);
    z_scale = a.z_scale ? load<COMPUTE>(a.z_scale[z_at]) : COMPUTE(1);
    shift = a.bias ? load<COMPUTE>(a.bias[at]) : COMPUTE(0);
    if (a.z_bias) shift += load<COMPUTE>(a.z_bias[z_at]);
  }
};

// A pack of y; returns the bits of the elements where the derivative is 1.
__device__ __forceinline__ unsigned find_results(const Arguments& a, const Factors* factors, int step, const Packed& x,
                                                 const Packed& z, Packed& y) {
  unsigned bits = 0;
#pragma unroll
  for (int j = 0; j < WIDTH; j++) {
    const Factors& f = factors[j * step];
    COMPUTE value = f.scale * load<COMPUTE>(x.item[j]) + f.shift;
    if (a.z) value += f.z_scale * load<COMPUTE>(z.item[j]);
    const bool passes = ACTIVATION == 0 || value > COMPUTE(0);
    bits |= static_cast<unsigned>(passes) << j;
    y.item[j] = store<ELEMENT>(passes || (ACTIVATION == 2 && value != value) ? value : COMPUTE(0));
  }
  return bits;
}

extern "C" __global__ void __launch_bounds__(THREADS) fused_ops_scale_bias_channels(const Arguments a) {
  griddepcontrol_wait();
  const Channels mine(a.pixels);
  Factors factors[WIDTH];
  if (mine.exists)
#pragma unroll
    for (int j = 0; j < WIDTH; j++) factors[j].load_channel(a, mine.channel + j);
  for (unsigned start = mine.first; start - mine.first < a.pixels.rows; start += BATCH * a.pixels.step) {
    Packed x[BATCH], z[BATCH] = {};
#pragma unroll
    for (int i = 0; i < BATCH; i++) {
      const unsigned index = start + i * a.pixels.step;
      if (!mine.exists || index >= a.pixels.count) continue;
      const Pixel pixel = locate(a.pixels, index);
      x[i] = load_pack(a.x + offset(a.x_strides, pixel, mine.channel));
      if (a.z) z[i] = load_pack(a.z + offset(a.z_strides, pixel, mine.channel));
    }
#pragma unroll
    for (int i = 0; i < BATCH; i++) {
      const unsigned index = start + i * a.pixels.step;
      unsigned word = 0;
      if (mine.exists && index < a.pixels.count) {
        Packed y;
        word = find_results(a, factors, 1, x[i], z[i], y);
        *reinterpret_cast<Packed*>(a.y + offset(a.y_strides, locate(a.pixels, index), mine.channel)) = y;
      }
      if (!a.mask) continue;
      word <<= mine.channel % WARP;
#pragma unroll
      for (int distance = 1; distance < WARP / WIDTH; distance *= 2) word |= __shfl_xor_sync(~0u, word, distance);
      if (mine.channel % WARP == 0 && mine.first < a.pixels.step && index < a.pixels.rows)
        a.mask[index * a.pixels.mask_row + mine.channel / WARP * a.pixels.mask_word] = word;
    }
  }
  griddepcontrol_launch_dependents();
}

extern "C" __global__ void __launch_bounds__(THREADS) fused_ops_scale_bias_pixels(const Arguments a) {
  griddepcontrol_wait();
  const Tile<WARP> mine(a.pixels);
  if (mine.pixel >= a.pixels.rows) return;
  const Pixel pixel = locate(a.pixels, mine.pixel);
  unsigned words[WIDTH] = {};
  for (int first = 0; first < WARP; first += BATCH) {
    Packed x[BATCH], z[BATCH] = {};
#pragma unroll
    for (int i = 0; i < BATCH; i++) {
      const int channel = mine.channel + first + i;
      if (!mine.exists || channel >= a.pixels.channels) continue;
      x[i] = load_pack(a.x + offset(a.x_strides, pixel, channel));
      if (a.z) z[i] = load_pack(a.z + offset(a.z_strides, pixel, channel));
    }
#pragma unroll
    for (int i = 0; i < BATCH; i++) {
      const int channel = mine.channel + first + i;
      if (!mine.exists || channel >= a.pixels.channels) continue;
      Factors factors;
      factors.load_channel(a, channel);
      Packed y;
      const unsigned bits = find_results(a, &factors, 0, x[i], z[i], y);
#pragma unroll
      for (int j = 0; j < WIDTH; j++) words[j] |= (bits >> j & 1) << (first + i);
      *reinterpret_cast<Packed*>(a.y + offset(a.y_strides, pixel, channel)) = y;
    }
  }
  griddepcontrol_launch_dependents();
  if (!a.mask) return;
#pragma unroll
  for (int j = 0; j < WIDTH; j++)
    if (mine.pixel + j < a.pixels.rows)
      a.mask[(mine.pixel + j) * a.pixels.mask_row + mine.channel / WARP * a.pixels.mask_word] = words[j];
}
