// The gradient behind an activation, and that of the batch normalisation before it (6.1.3.1,
// DACTIVATION_FORK_DBATCHNORM), of planes, behind the launch that writes the bits of the mask channel by channel
// (gradient_bits.cu). A block has a channel, a thread HELD packs of x and dy in registers, THREADS packs apart, which
// it reads while that launch still runs.
//
// Roofline bound: bytes, x and dy read, dx and dz written once, 14 flops an element: 6.1 us for 32 x 128 x 28 x 28 HALF
// at 4.2 TB/s, of which an H200 takes 5.9 (L2 holds them), and 6.8 with the bits. Next come instructions.
#include "fused_ops/gradient.cuh"

struct Arguments {
  const ELEMENT *x, *dy;
  const unsigned char* bits;  // rows of channels, which begin at multiples of 16 bytes
  const COMPUTE *mean, *inverse, *scale;
  ELEMENT *dx, *dz;        // dz: NULL where it is not wanted
  COMPUTE *product, *sum;  // dScale, dBias: the same
  Pixels pixels;
  TensorStrides x_strides, dy_strides, dx_strides, dz_strides;
  int parameter_stride, scale_stride, result_stride;
  unsigned packs;  // of a channel
  unsigned row;    // bytes of its bits
  COMPUTE share;   // 1 / m
};

// What a thread has of a channel.
struct Held {
  const Arguments& a;
  const int channel = blockIdx.x;
  Packed x[HELD], dz[HELD];

  __device__ __forceinline__ unsigned pack(int i) const { return threadIdx.x + i * THREADS; }
  __device__ __forceinline__ bool has(int i) const { return pack(i) < a.packs; }
  __device__ __forceinline__ int at(const TensorStrides& strides, int i) const {
    return offset(strides, locate(a.pixels, pack(i) * WIDTH), channel);
  }

  // dz is dy at first.
  __device__ __forceinline__ explicit Held(const Arguments& a) : a(a) {
#pragma unroll
    for (int i = 0; i < HELD; i++) {
      if (!has(i)) continue;
      x[i] = load_pack(a.x + at(a.x_strides, i));
      dz[i] = load_pack(a.dy + at(a.dy_strides, i));
    }
  }
  // Makes and writes dz, and returns the sums of the thread.
  __device__ __forceinline__ Sums first_pass(COMPUTE mean) {
    const unsigned char* const bits = a.bits + channel * a.row;
    unsigned passes[HELD];
#pragma unroll
    for (int i = 0; i < HELD; i++)
      if (has(i)) passes[i] = bits[pack(i) * WIDTH / 8] >> pack(i) * WIDTH % 8;
    Sums sums{};
#pragma unroll
    for (int i = 0; i < HELD; i++) {
      if (!has(i)) continue;
      keep_bits(passes[i], dz[i]);
#pragma unroll
      for (int j = 0; j < WIDTH; j++) sums.add(load<COMPUTE>(dz[i].item[j]), load<COMPUTE>(x[i].item[j]), mean);
      if (a.dz) store_pack(a.dz + at(a.dz_strides, i), dz[i]);
    }
    return sums;
  }
  // Makes and writes dx.
  __device__ __forceinline__ void second_pass(const Factors& of) const {
#pragma unroll
    for (int i = 0; i < HELD; i++)
      if (has(i)) store_pack(a.dx + at(a.dx_strides, i), gradient_pack(x[i], dz[i], [&](int) { return of; }));
  }
};

// Those of the block in every thread.
__device__ __forceinline__ void add_all_threads(Sums& sums) {
  __shared__ Sums of_warps[WARPS];
  const unsigned lane = threadIdx.x % WARP;
  add_all_lanes(sums);
  if (lane == 0) of_warps[threadIdx.x / WARP] = sums;
  __syncthreads();
  sums = lane < WARPS ? of_warps[lane] : Sums{};
  add_all_lanes(sums);
}

// What was written before its plan can be read, as the launch before has waited for that before it launched this one.
__device__ __forceinline__ void griddepcontrol_behind_own_launch() {
#ifdef EMULATED_CUDA
  emulated::griddepcontrol_wait();
#endif
}

extern "C" __global__ void __launch_bounds__(THREADS, 1) fused_ops_gradient_planes(const Arguments a) {
  griddepcontrol_wait_deferred();
  griddepcontrol_behind_own_launch();
  Held mine(a);
  const int of_parameters = mine.channel * a.parameter_stride, to = mine.channel * a.result_stride;
  const COMPUTE mean = a.mean[of_parameters], inverse = a.inverse[of_parameters];
  const COMPUTE scale = a.scale[mine.channel * a.scale_stride];
  griddepcontrol_wait();
  Sums sums = mine.first_pass(mean);
  add_all_threads(sums);
  sums.product *= inverse;
  if (threadIdx.x == 0 && a.sum) a.sum[to] = sums.sum;
  if (threadIdx.x == 0 && a.product) a.product[to] = sums.product;
  mine.second_pass(Factors::of(sums.sum * a.share, sums.product * a.share, scale, mean, inverse));
}
