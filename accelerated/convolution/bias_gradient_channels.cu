// Gradients of a bias (6.2.1) of packed dy with channels innermost, as many as there are.
//
// A thread reads packs of 16 bytes that are as many apart as bring it to the same channels again, and keeps a sum for
// each of its elements. Blocks add theirs by channel, then clusters, then the last cluster to arrive.
//
// Roofline bound: bytes, dy read once; 2 flops an element.
#include "convolution/bias_gradient.cuh"

constexpr int BATCH = 8;  // packs of a thread in flight
constexpr unsigned MOST_CHANNELS = 512;

struct Arguments {
  const ELEMENT* dy;
  ELEMENT* db;
  COMPUTE* partials;  // [part][channel], where parts are several
  unsigned long long count;
  COMPUTE alpha, beta;
  FastDivmod channels;
  unsigned elements;       // of dy
  unsigned active, parts;  // threads of a block that read; clusters
  int db_stride;
};

struct Shared {
  COMPUTE elements[THREADS * WIDTH], lanes[THREADS];
  COMPUTE blocks[CLUSTER_SIZE][MOST_CHANNELS];
  ClusterGather gather;
};

// finish(channel, sum) for every channel, by some thread: the sums of get(i, channel), i below `count`, added in one
// order. lanes: for THREADS sums.
template <class Get, class Finish>
__device__ __forceinline__ void sum_by_channel(unsigned channels, unsigned count, COMPUTE* lanes, const Get& get,
                                               const Finish& finish) {
  const unsigned share = min(count, max(1u, THREADS / channels));  // threads of a channel
  for (unsigned first = 0; first < channels; first += THREADS) {
    const unsigned channel = first + threadIdx.x % min(channels, THREADS), lane = threadIdx.x / min(channels, THREADS);
    COMPUTE sum = 0;
    if (lane < share && channel < channels) {
#pragma unroll 4
      for (unsigned i = lane; i < count; i += share) sum += get(i, channel);
    }
    if (share == 1) {
      if (lane == 0 && channel < channels) finish(channel, sum);
      continue;
    }
    __syncthreads();
    lanes[threadIdx.x] = sum;
    __syncthreads();
    for (unsigned of = threadIdx.x / WARP; of < channels; of += WARPS) {
      sum = 0;
      for (unsigned i = threadIdx.x % WARP; i < share; i += WARP) sum += lanes[i * channels + of];
#pragma unroll
      for (int distance = WARP / 2; distance > 0; distance /= 2) sum += __shfl_xor_sync(~0u, sum, distance);
      if (threadIdx.x % WARP == 0) finish(of, sum);
    }
  }
}

extern "C" __global__ void CLUSTER_DIMS_X __launch_bounds__(THREADS)
    convolution_bias_gradient_channels(const Arguments a) {
  griddepcontrol_wait_deferred();
  __shared__ Shared shared;
  const unsigned channels = a.channels.divisor, step = gridDim.x * a.active, packs = (a.elements + WIDTH - 1) / WIDTH;
  shared.gather.init_and_expect(CLUSTER_SIZE * channels * sizeof(COMPUTE));
  const unsigned start = blockIdx.x * a.active + threadIdx.x;
  griddepcontrol_wait_before_access(a.dy + start * WIDTH);
  if (threadIdx.x < a.active) {
    COMPUTE sums[WIDTH] = {};
    for (unsigned index = start; index < packs; index += BATCH * step) {
      Elements packs_of[BATCH];
#pragma unroll
      for (int u = 0; u < BATCH; u++) {
        const unsigned at = (index + u * step) * WIDTH;
        if (at + WIDTH <= a.elements) packs_of[u] = *reinterpret_cast<const Elements*>(a.dy + at);
      }
#pragma unroll
      for (int u = 0; u < BATCH; u++) {
        const unsigned at = (index + u * step) * WIDTH;
#pragma unroll
        for (unsigned i = 0; i < WIDTH; i++) {
          if (at + WIDTH <= a.elements) sums[i] += load<COMPUTE>(packs_of[u].item[i]);
          else if (at + i < a.elements) sums[i] += load<COMPUTE>(a.dy[at + i]);
        }
      }
    }
#pragma unroll
    for (unsigned i = 0; i < WIDTH; i++) shared.elements[threadIdx.x * WIDTH + i] = sums[i];
  }
  __syncthreads();
  // A block begins with the first channel.
  sum_by_channel(
      channels, a.channels.divide(a.active * WIDTH), shared.lanes,
      [&](unsigned i, unsigned channel) { return shared.elements[i * channels + channel]; },
      [&](unsigned channel, COMPUTE sum) { shared.gather.send(&shared.blocks[cluster_rank()][channel], sum); });
  if (cluster_rank() > 0) return;
  shared.gather.wait();
  const auto write = [&](unsigned channel, COMPUTE sum) {
    ELEMENT* db = a.db + channel * a.db_stride;
    *db = blend<COMPUTE>(a.alpha, sum, a.beta, db);
  };
  for (unsigned channel = threadIdx.x; channel < channels; channel += THREADS) {
    COMPUTE sum = shared.blocks[0][channel];
#pragma unroll
    for (int block = 1; block < static_cast<int>(CLUSTER_SIZE); block++) sum += shared.blocks[block][channel];
    if (a.parts == 1) write(channel, sum);
    else a.partials[blockIdx.x / CLUSTER_SIZE * channels + channel] = sum;
  }
  if (a.parts == 1 || !is_last(a.count, 0, a.parts)) return;
  sum_by_channel(
      channels, a.parts, shared.lanes,
      [&](unsigned i, unsigned channel) { return __ldcg(a.partials + i * channels + channel); }, write);
}
