// Computes y = activation(scale * x + bias + z_scale * z + z_bias), channel by channel (6.1.3.1,
// SCALE_BIAS_ADD_ACTIVATION_GEN_BITMASK). It also writes a bit mask of the activation's derivative. Fused convolutions
// use the same formula before and after their product.
//
// In the kernel along channels a thread keeps the factors of its channels in registers and walks over pixels. The lanes
// that share a word of the bit mask combine its bits. In the kernel along pixels a block owns the 32 channels of a
// word, a warp GROUP of them, and a lane VECTORS vectors of each. Each warp writes its bytes of the words to shared
// memory.
//
// Roofline bound: bytes. x and z are read and y is written once, and the mask adds a bit per element, for 4 flops. At
// 3.5 TB/s, 64 x 256 x 56 x 56 HALF with z take 0.09 ms.
#include "fused_ops/problem.cuh"

struct Arguments {
  const ELEMENT *x, *z;
  const PARAMETER *scale, *bias, *z_scale, *z_bias;  // NULL where the call does not have the operand
  ELEMENT* y;
  unsigned* mask;
  Pixels pixels;
  TensorStrides x_strides, z_strides, y_strides;
  int parameter_stride, z_parameter_stride;
  int rectified, keeps_nan;
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

// Rounds once, so that the kernels along channels and along pixels compute the same results.
__device__ __forceinline__ float multiply_add(float x, float y, float z) { return __fmaf_rn(x, y, z); }
__device__ __forceinline__ double multiply_add(double x, double y, double z) { return __fma_rn(x, y, z); }

// Computes a vector of y, and returns the bits of the elements where the derivative is 1.
__device__ __forceinline__ unsigned find_results(const Arguments& a, const Factors* factors, int step, const Packed& x,
                                                 const Packed& z, Packed& y) {
  unsigned bits = 0;
#pragma unroll
  for (int j = 0; j < WIDTH; j++) {
    const Factors& f = factors[j * step];
    COMPUTE value = multiply_add(f.scale, load<COMPUTE>(x.item[j]), f.shift);
    if (a.z) value = multiply_add(f.z_scale, load<COMPUTE>(z.item[j]), value);
    const bool passes = !a.rectified || value > COMPUTE(0);
    bits |= static_cast<unsigned>(passes) << j;
    y.item[j] = store<ELEMENT>(passes || (a.keeps_nan && value != value) ? value : COMPUTE(0));
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
      x[i] = load_vector(a.x + offset(a.x_strides, pixel, mine.channel));
      if (a.z) z[i] = load_vector(a.z + offset(a.z_strides, pixel, mine.channel));
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

// A lane has several vectors of each channel where vectors are single elements.
constexpr int VECTORS = WIDTH == 1 ? 4 : 1;  // per lane and channel
constexpr int SLOTS = VECTORS * WIDTH;       // elements per lane and channel
constexpr int CHANNELS = 2;                  // channels that a lane reads together
constexpr int PIXEL_THREADS = WARP / GROUP * WARP;
static_assert(GROUP == 8, "a warp has a byte of each word");

extern "C" __global__ void __launch_bounds__(PIXEL_THREADS) fused_ops_scale_bias_pixels(const Arguments a) {
  griddepcontrol_wait();
  __shared__ unsigned words[SLOTS][WARP];
  const unsigned lane = threadIdx.x % WARP, warp = threadIdx.x / WARP;
  unsigned word;
  const unsigned tile = a.pixels.groups.divide(blockIdx.x, word) * SLOTS * WARP;
  const int begin = word * WARP + warp * GROUP;
  int x_at[VECTORS], z_at[VECTORS], y_at[VECTORS];
  bool exists[VECTORS];
#pragma unroll
  for (int p = 0; p < VECTORS; p++) {
    const unsigned index = tile + (p * WARP + lane) * WIDTH;
    const Pixel pixel = locate(a.pixels, index);
    exists[p] = index < a.pixels.count;
    x_at[p] = offset(a.x_strides, pixel, 0);
    z_at[p] = offset(a.z_strides, pixel, 0);
    y_at[p] = offset(a.y_strides, pixel, 0);
  }
  unsigned bytes[SLOTS] = {};
#pragma unroll
  for (int first = 0; first < GROUP; first += CHANNELS) {
    Packed x[CHANNELS][VECTORS], z[CHANNELS][VECTORS] = {};
    Factors factors[CHANNELS];
#pragma unroll
    for (int i = 0; i < CHANNELS; i++) {
      const int channel = begin + first + i;
      if (channel >= a.pixels.channels) break;
      factors[i].load_channel(a, channel);
#pragma unroll
      for (int p = 0; p < VECTORS; p++) {
        if (!exists[p]) continue;
        x[i][p] = load_vector(a.x + (x_at[p] + channel * a.x_strides.channel));
        if (a.z) z[i][p] = load_vector(a.z + (z_at[p] + channel * a.z_strides.channel));
      }
    }
#pragma unroll
    for (int i = 0; i < CHANNELS; i++) {
      const int channel = begin + first + i;
      if (channel >= a.pixels.channels) break;
#pragma unroll
      for (int p = 0; p < VECTORS; p++) {
        if (!exists[p]) continue;
        Packed y;
        const unsigned bits = find_results(a, &factors[i], 0, x[i][p], z[i][p], y);
#pragma unroll
        for (int j = 0; j < WIDTH; j++) bytes[p * WIDTH + j] |= (bits >> j & 1) << (first + i);
        *reinterpret_cast<Packed*>(a.y + (y_at[p] + channel * a.y_strides.channel)) = y;
      }
    }
  }
  griddepcontrol_launch_dependents();
  if (!a.mask) return;
#pragma unroll
  for (int s = 0; s < SLOTS; s++) reinterpret_cast<unsigned char*>(&words[s][lane])[warp] = bytes[s];
  __syncthreads();
#pragma unroll
  for (unsigned k = threadIdx.x; k < SLOTS * WARP; k += PIXEL_THREADS) {
    const unsigned vector = k / WIDTH;
    if (tile + k < a.pixels.rows)
      a.mask[(tile + k) * a.pixels.mask_row + word * a.pixels.mask_word] =
          words[vector / WARP * WIDTH + k % WIDTH][vector % WARP];
  }
}
