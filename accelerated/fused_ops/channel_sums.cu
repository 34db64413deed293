// Two sums for each channel: of y and of its squares (6.1.3.1, ..._CONV_BNSTATS), or of the gradient behind an
// activation and of its products with the normalised x (DACTIVATION_FORK_DBATCHNORM). Deterministic.
//
// A block takes 32 channels, one a lane, of a segment of the pixels, whose 8 warps take every eighth pixel each; its
// sums go to the workspace, [segment][sum][channel], and a second kernel adds the segments in their order.
//
// Roofline bound: bytes, y (or x, dy and 0.03 bits of mask) read once, 2 to 6 flops an element: 0.03 ms for
// 64 x 256 x 56 x 56 HALF of y at 3.5 TB/s.
#include "fused_ops/problem.cuh"

constexpr int WARPS = THREADS / WARP;

struct Arguments {
  const ELEMENT *first, *x;  // y or dy
  const unsigned* mask;
  const COMPUTE *mean, *inverse;
  unsigned char* workspace;
  COMPUTE *sum, *product;  // the results, NULL: not wanted
  long long partials;      // bytes to the sums of the segments; those of all come behind them
  Pixels pixels;
  TensorStrides first_strides, x_strides;
  int parameter_stride, result_stride;
  unsigned segments, segment;  // their number, pixels of each
};

__device__ __forceinline__ COMPUTE* partial(const Arguments& a, unsigned segment, int sum, int channel) {
  return reinterpret_cast<COMPUTE*>(a.workspace + a.partials) + (2 * segment + sum) * a.pixels.channels + channel;
}

template <class Term> __device__ __forceinline__ void add_segment(const Arguments& a, Term term) {
  __shared__ COMPUTE sums[2][WARPS][WARP];
  const int lane = threadIdx.x % WARP, warp = threadIdx.x / WARP, channel = blockIdx.x * WARP + lane;
  const unsigned start = blockIdx.y * a.segment, end = min(start + a.segment, a.pixels.count);
  COMPUTE sum = 0, product = 0;
  if (channel < a.pixels.channels)
    for (unsigned index = start + warp; index < end; index += WARPS) term(index, channel, sum, product);
  sums[0][warp][lane] = sum;
  sums[1][warp][lane] = product;
  __syncthreads();
  if (warp || channel >= a.pixels.channels) return;
  for (int other = 1; other < WARPS; other++) {
    sum += sums[0][other][lane];
    product += sums[1][other][lane];
  }
  *partial(a, blockIdx.y, 0, channel) = sum;
  *partial(a, blockIdx.y, 1, channel) = product;
}

extern "C" __global__ void __launch_bounds__(THREADS) fused_ops_channel_sums_squares(const Arguments a) {
  griddepcontrol_wait();
  add_segment(a, [&](unsigned index, int channel, COMPUTE& sum, COMPUTE& product) {
    const COMPUTE value = load<COMPUTE>(a.first[offset(a.first_strides, locate(a.pixels, index), channel)]);
    sum += value;
    product += value * value;
  });
}

extern "C" __global__ void __launch_bounds__(THREADS) fused_ops_channel_sums_gradient(const Arguments a) {
  griddepcontrol_wait();
  add_segment(a, [&](unsigned index, int channel, COMPUTE& sum, COMPUTE& product) {
    const Pixel pixel = locate(a.pixels, index);
    if (a.mask) {
      const unsigned word = a.mask[index * a.pixels.mask_row + channel / WARP * a.pixels.mask_word];
      if (!(word >> channel % WARP & 1)) return;
    }
    const COMPUTE gradient = load<COMPUTE>(a.first[offset(a.first_strides, pixel, channel)]);
    const COMPUTE x = load<COMPUTE>(a.x[offset(a.x_strides, pixel, channel)]);
    const int parameter = channel * a.parameter_stride;
    sum += gradient;
    product += gradient * ((x - a.mean[parameter]) * a.inverse[parameter]);
  });
}

extern "C" __global__ void __launch_bounds__(THREADS) fused_ops_channel_sums_finish(const Arguments a) {
  griddepcontrol_wait();
  const int channel = blockIdx.x * THREADS + threadIdx.x;
  if (channel >= a.pixels.channels) return;
  COMPUTE sum = 0, product = 0;
  for (unsigned segment = 0; segment < a.segments; segment++) {
    sum += *partial(a, segment, 0, channel);
    product += *partial(a, segment, 1, channel);
  }
  *partial(a, a.segments, 0, channel) = sum;
  *partial(a, a.segments, 1, channel) = product;
  if (a.sum) a.sum[channel * a.result_stride] = sum;
  if (a.product) a.product[channel * a.result_stride] = product;
}
