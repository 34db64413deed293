// This file computes gradients of a bias (6.2.1) from packed dy in NHWC, for any number of channels.
//
// Each thread reads 16-byte vectors of dy at a stride that leads to the same channels again, and keeps a sum for each
// element. Blocks and then clusters add their sums by channel. Another launch adds the sums of clusters
// (filter_gradient/sum.cu).
//
// Roofline bound: bytes, dy read once; 2 flops an element.
#include "primitives/cluster.cuh"
#include "primitives/dependent_launch.cuh"
#include "primitives/geometry.cuh"
#include "primitives/types.cuh"

constexpr unsigned THREADS = 256;           // per block
constexpr unsigned WARP = 32;               // threads
constexpr unsigned WARPS = THREADS / WARP;  // per block
constexpr unsigned WIDTH = 16 / sizeof(ELEMENT);
using Elements = Vector<ELEMENT, WIDTH>;

constexpr int BATCH = 8;  // vectors in flight per thread
// Where at most FEW threads share a channel, the first of them adds their sums; otherwise a warp does.
constexpr unsigned MAX_CHANNELS = 512;
constexpr unsigned FEW = 8;  // threads

struct Arguments {
  const ELEMENT* dy;
  ELEMENT* db;
  COMPUTE* partials;  // [part][channel], where there are several parts
  COMPUTE alpha, beta;
  FastDivmod channels;
  unsigned elements;       // elements of dy
  unsigned active, parts;  // threads per block that read; clusters
};

struct Shared {
  COMPUTE elements[THREADS * WIDTH], lanes[THREADS];
  COMPUTE blocks[CLUSTER_SIZE][MAX_CHANNELS];
  ClusterGather gather;
};

// Calls finish(channel, sum) for every channel, by some thread. The sum adds get(i, channel), for i below `count`, in a
// fixed order. `lanes` has memory for THREADS sums.
template <class Get, class Finish>
__device__ __forceinline__ void sum_by_channel(unsigned channels, unsigned count, COMPUTE* lanes, const Get& get,
                                               const Finish& finish) {
  const unsigned share = min(count, max(1u, THREADS / channels));  // threads per channel
  for (unsigned first = 0; first < channels; first += THREADS) {
    const unsigned channel = first + threadIdx.x % min(channels, THREADS), lane = threadIdx.x / min(channels, THREADS);
    COMPUTE sum = 0;
    if (lane < share && channel < channels) {
#pragma unroll 8
      for (unsigned i = lane; i < count; i += share) sum += get(i, channel);
    }
    if (share == 1) {
      if (lane == 0 && channel < channels) finish(channel, sum);
      continue;
    }
    __syncthreads();
    lanes[threadIdx.x] = sum;
    __syncthreads();
    if (share <= FEW) {
      if (lane > 0) continue;
#pragma unroll
      for (unsigned i = 1; i < FEW; i++)
        if (i < share) sum += lanes[i * channels + channel];
      finish(channel, sum);
      continue;
    }
    for (unsigned of = threadIdx.x / WARP; of < channels; of += WARPS) {
      sum = 0;
      for (unsigned i = threadIdx.x % WARP; i < share; i += WARP) sum += lanes[i * channels + of];
#pragma unroll
      for (int distance = WARP / 2; distance > 0; distance /= 2) sum += __shfl_xor_sync(~0u, sum, distance);
      if (threadIdx.x % WARP == 0) finish(of, sum);
    }
  }
}

// Adds COUNT vectors at a time, `step` apart, while enough are left.
template <int COUNT>
__device__ __forceinline__ void add_vectors(const ELEMENT* dy, unsigned& index, unsigned step, unsigned vectors,
                                            COMPUTE (&sums)[WIDTH]) {
  for (; index + (COUNT - 1) * step < vectors; index += COUNT * step) {
    Elements loaded[COUNT];
#pragma unroll
    for (int u = 0; u < COUNT; u++) loaded[u] = *reinterpret_cast<const Elements*>(dy + (index + u * step) * WIDTH);
#pragma unroll
    for (int u = 0; u < COUNT; u++)
#pragma unroll
      for (unsigned i = 0; i < WIDTH; i++) sums[i] += load<COMPUTE>(loaded[u].item[i]);
  }
}

extern "C" __global__ void CLUSTER_DIMS_X __launch_bounds__(THREADS, 4)
    convolution_bias_gradient_channels(const Arguments a) {
  griddepcontrol_wait_deferred();
  __shared__ Shared shared;
  const unsigned channels = a.channels.divisor, step = gridDim.x * a.active, vectors = a.elements / WIDTH;
  shared.gather.init_and_expect(CLUSTER_SIZE * channels * sizeof(COMPUTE));
  const unsigned start = blockIdx.x * a.active + threadIdx.x;
  griddepcontrol_wait_before_access(a.dy + start * WIDTH);
  if (threadIdx.x < a.active) {
    COMPUTE sums[WIDTH] = {};
    unsigned index = start;
    add_vectors<BATCH>(a.dy, index, step, vectors, sums);
    add_vectors<BATCH / 2>(a.dy, index, step, vectors, sums);
    add_vectors<1>(a.dy, index, step, vectors, sums);
    // One thread adds the elements after the last full vector.
    if (vectors % step % a.active == threadIdx.x && vectors % step / a.active == blockIdx.x) {
#pragma unroll
      for (unsigned i = 0; i < WIDTH; i++)
        if (vectors * WIDTH + i < a.elements) sums[i] += load<COMPUTE>(a.dy[vectors * WIDTH + i]);
    }
#pragma unroll
    for (unsigned i = 0; i < WIDTH; i++) shared.elements[threadIdx.x * WIDTH + i] = sums[i];
  }
  __syncthreads();
  // The first channel of a block is channel 0.
  sum_by_channel(
      channels, a.channels.divide(a.active * WIDTH), shared.lanes,
      [&](unsigned i, unsigned channel) { return shared.elements[i * channels + channel]; },
      [&](unsigned channel, COMPUTE sum) { shared.gather.send(&shared.blocks[cluster_rank()][channel], sum); });
  if (cluster_rank() > 0) return;
  shared.gather.wait();
  for (unsigned channel = threadIdx.x; channel < channels; channel += THREADS) {
    COMPUTE sum = shared.blocks[0][channel];
#pragma unroll
    for (int block = 1; block < static_cast<int>(CLUSTER_SIZE); block++) sum += shared.blocks[block][channel];
    if (a.parts > 1) a.partials[blockIdx.x / CLUSTER_SIZE * channels + channel] = sum;
    else a.db[channel] = blend<COMPUTE>(a.alpha, sum, a.beta, a.db + channel);
  }
}
