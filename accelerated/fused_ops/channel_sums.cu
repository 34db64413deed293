// These kernels sum y and its squares for each channel (6.1.3.1, ..._CONV_BNSTATS), or the gradient after an activation
// and its products with the normalised x (DACTIVATION_FORK_DBATCHNORM). The order is fixed.
//
// Each block takes a segment of the pixels. Along channels it takes `lanes` vectors of every 256 / lanes-th pixel.
// Along pixels it takes 8 channels, whose sums a lane keeps in registers. Sums of segments go to the workspace,
// [segment][sum][channel]. A last kernel adds them, with 32 threads per channel, and computes the factors of the
// gradient.
//
// Roofline bound: bytes, y (or x, dy and 0.03 bits of mask) read once, 2 to 6 flops an element: 0.03 ms for 64 x 256 x
// 56 x 56 HALF of y at 3.5 TB/s.
#include "fused_ops/gradient.cuh"

struct Arguments {
  const ELEMENT *first, *x;  // y or dy
  const unsigned* mask;
  const COMPUTE *mean, *inverse, *scale;
  unsigned char* workspace;
  COMPUTE *sum, *product;  // results; NULL where not requested
  // byte offsets of the segments' sums, of the totals and of the factors; 0 means no factors
  long long partials, totals, factors;
  Pixels pixels;
  TensorStrides first_strides, x_strides;
  int parameter_stride, scale_stride, result_stride;
  unsigned segments, segment;  // number of segments; pixels, or vectors of pixels, per segment
  unsigned lanes;
  COMPUTE share;  // 1 / m
};

__device__ __forceinline__ void write_segment(const Arguments& a, int channel, const Sums& sums) {
  COMPUTE* to = reinterpret_cast<COMPUTE*>(a.workspace + a.partials) + 2 * blockIdx.y * a.pixels.channels + channel;
  to[0] = sums.sum;
  to[a.pixels.channels] = sums.product;
}

// Computes the terms of y and of its squares.
struct Squares {
  static constexpr bool READS_X = false;
  __device__ __forceinline__ void load_channel(const Arguments&, int) {}
  __device__ __forceinline__ void add(Sums& sums, COMPUTE y, COMPUTE, bool) const {
    sums.sum += y;
    sums.product += y * y;
  }
};

// Computes the terms of the gradient, where the mask lets it pass.
struct Gradient {
  static constexpr bool READS_X = true;
  COMPUTE mean;
  __device__ __forceinline__ void load_channel(const Arguments& a, int channel) {
    mean = a.mean[channel * a.parameter_stride];
  }
  __device__ __forceinline__ void add(Sums& sums, COMPUTE dy, COMPUTE x, bool passes) const {
    if (passes) sums.add(dy, x, mean);
  }
};

template <class Term> __device__ __forceinline__ void sum_channels(const Arguments& a) {
  __shared__ Sums shared[WARPS][WARP][WIDTH];
  const unsigned lane = threadIdx.x % a.lanes, row = threadIdx.x / a.lanes, rows = THREADS / a.lanes;
  const int channel = (blockIdx.x * a.lanes + lane) * WIDTH;
  const unsigned start = blockIdx.y * a.segment, end = min(start + a.segment, a.pixels.count);
  Term terms[WIDTH];
  Sums sums[WIDTH] = {};
  if (channel < a.pixels.channels) {
#pragma unroll
    for (int j = 0; j < WIDTH; j++) terms[j].load_channel(a, channel + j);
    for (unsigned first = start + row; first < end; first += GRADIENT_BATCH * rows) {
      Packed y[GRADIENT_BATCH], x[GRADIENT_BATCH] = {};
      unsigned passes[GRADIENT_BATCH];
#pragma unroll
      for (int i = 0; i < GRADIENT_BATCH; i++) {
        const unsigned index = first + i * rows;
        passes[i] = 0;
        if (index >= end) continue;
        const Pixel pixel = locate(a.pixels, index);
        y[i] = load_vector(a.first + offset(a.first_strides, pixel, channel));
        if (Term::READS_X) x[i] = load_vector(a.x + offset(a.x_strides, pixel, channel));
        passes[i] = mask_word(a.pixels, a.mask, index, channel / WARP) >> channel % WARP;
      }
#pragma unroll
      for (int i = 0; i < GRADIENT_BATCH; i++) {
        if (first + i * rows >= end) continue;
#pragma unroll
        for (int j = 0; j < WIDTH; j++)
          terms[j].add(sums[j], load<COMPUTE>(y[i].item[j]), load<COMPUTE>(x[i].item[j]), passes[i] >> j & 1);
      }
    }
  }
  griddepcontrol_launch_dependents();
  for (int distance = a.lanes; distance < WARP; distance *= 2)
#pragma unroll
    for (int j = 0; j < WIDTH; j++) sums[j].add(sums[j].from_lane(distance));
#pragma unroll
  for (int j = 0; j < WIDTH; j++) shared[threadIdx.x / WARP][threadIdx.x % WARP][j] = sums[j];
  __syncthreads();
  for (unsigned i = threadIdx.x; i < a.lanes * WIDTH; i += THREADS) {
    Sums all = shared[0][i / WIDTH][i % WIDTH];
#pragma unroll
    for (int warp = 1; warp < WARPS; warp++) all.add(shared[warp][i / WIDTH][i % WIDTH]);
    const int of = blockIdx.x * a.lanes * WIDTH + i;
    if (of < a.pixels.channels) write_segment(a, of, all);
  }
}

template <class Term> __device__ __forceinline__ void sum_pixels(const Arguments& a) {
  __shared__ Sums shared[WARPS][GROUP];
  const int lane = threadIdx.x % WARP, warp = threadIdx.x / WARP, first_channel = blockIdx.x * GROUP;
  const unsigned start = blockIdx.y * a.segment * WIDTH, end = min(start + a.segment * WIDTH, a.pixels.count);
  Term terms[GROUP];
  Sums sums[GROUP] = {};
#pragma unroll
  for (int i = 0; i < GROUP; i++)
    if (first_channel + i < a.pixels.channels) terms[i].load_channel(a, first_channel + i);
  for (unsigned index = start + threadIdx.x * WIDTH; index < end; index += THREADS * WIDTH) {
    const Pixel pixel = locate(a.pixels, index);
    Packed y[GROUP], x[GROUP] = {};
    unsigned bits[WIDTH];  // mask bits of the pixels, one per channel
#pragma unroll
    for (int i = 0; i < GROUP; i++) {
      if (first_channel + i >= a.pixels.channels) break;
      y[i] = load_vector(a.first + offset(a.first_strides, pixel, first_channel + i));
      if (Term::READS_X) x[i] = load_vector(a.x + offset(a.x_strides, pixel, first_channel + i));
    }
#pragma unroll
    for (int j = 0; j < WIDTH; j++)
      bits[j] = mask_word(a.pixels, a.mask, index + j, first_channel / WARP) >> first_channel % WARP;
#pragma unroll
    for (int i = 0; i < GROUP; i++) {
      if (first_channel + i >= a.pixels.channels) break;
#pragma unroll
      for (int j = 0; j < WIDTH; j++)
        terms[i].add(sums[i], load<COMPUTE>(y[i].item[j]), load<COMPUTE>(x[i].item[j]), bits[j] >> i & 1);
    }
  }
  griddepcontrol_launch_dependents();
  add_lanes<GROUP / 2>(sums);
#pragma unroll
  for (int distance = GROUP; distance < WARP; distance *= 2) sums[0].add(sums[0].from_lane(distance));
  if (lane < GROUP) shared[warp][lane] = sums[0];
  __syncthreads();
  if (threadIdx.x >= GROUP || first_channel + lane >= a.pixels.channels) return;
  Sums all = shared[0][lane];
#pragma unroll
  for (int other = 1; other < WARPS; other++) all.add(shared[other][lane]);
  write_segment(a, first_channel + lane, all);
}

#define KERNEL(TERM, NAME, AXIS, BLOCKS)                                                                               \
  extern "C" __global__ void __launch_bounds__(THREADS, BLOCKS) fused_ops_channel_##NAME##_##AXIS(const Arguments a) { \
    griddepcontrol_wait();                                                                                             \
    sum_##AXIS<TERM>(a);                                                                                               \
  }
KERNEL(Squares, squares, channels, RESIDENT_BLOCKS)
KERNEL(Squares, squares, pixels, 1)
KERNEL(Gradient, gradient, channels, RESIDENT_BLOCKS)
KERNEL(Gradient, gradient, pixels, 1)

constexpr int COLUMNS = 8;                // channels per block
constexpr int LANES = THREADS / COLUMNS;  // threads per channel

extern "C" __global__ void __launch_bounds__(THREADS) fused_ops_channel_sums_finish(const Arguments a) {
  griddepcontrol_wait();
  __shared__ Sums shared[LANES][COLUMNS];
  const int lane = threadIdx.x / COLUMNS, column = threadIdx.x % COLUMNS, channel = blockIdx.x * COLUMNS + column;
  const int channels = a.pixels.channels;
  Sums sums = {};
  if (channel < channels) {
    const COMPUTE* from = reinterpret_cast<const COMPUTE*>(a.workspace + a.partials) + channel;
#pragma unroll 4
    for (unsigned segment = lane; segment < a.segments; segment += LANES)
      sums.add({from[2 * segment * channels], from[(2 * segment + 1) * channels]});
  }
  shared[lane][column] = sums;
  __syncthreads();
  if (lane || channel >= channels) return;
#pragma unroll
  for (int i = 1; i < LANES; i++) sums.add(shared[i][column]);
  if (a.inverse) sums.product *= a.inverse[channel * a.parameter_stride];
  COMPUTE* totals = reinterpret_cast<COMPUTE*>(a.workspace + a.totals) + channel;
  totals[0] = sums.sum;
  totals[channels] = sums.product;
  if (a.sum) a.sum[channel * a.result_stride] = sums.sum;
  if (a.product) a.product[channel * a.result_stride] = sums.product;
  if (!a.factors) return;
  Factors* to = reinterpret_cast<Factors*>(a.workspace + a.factors) + channel;
  *to = Factors::of(sums.sum * a.share, sums.product * a.share, a.scale[channel * a.scale_stride],
                    a.mean[channel * a.parameter_stride], a.inverse[channel * a.parameter_stride]);
}
