// Statistics of a graph (9.2.13): the sums of x and of its squares, one of each for every channel. Deterministic.
//
// A block sums some channels of a segment of the pixels: its threads are `lanes` channels wide, 32 where channels are
// innermost and 1 where pixels are, and as many pixels high as are left. The sums of several segments go to the
// workspace, [segment][sum][channel], and a second kernel adds them in their order.
//
// Roofline bound: bytes, one read of x; 3 flops an element, and a division for each dimension that cannot be merged.
#include "graph/stored.cuh"
#include "primitives/geometry.cuh"

struct Arguments {
  const void* x;
  void* sum;
  void* sqsum;
  COMPUTE* partials;
  long long x_strides[DIMS];  // of a channel, the innermost dimension first
  long long channel_stride, sum_stride, sqsum_stride;
  FastDivmod extents[DIMS];
  int rank, count;  // of a channel
  int channels, lanes, segments, segment;
  int x_type, sum_type, sqsum_type;
};

__device__ __forceinline__ void write(const Arguments& a, int channel, COMPUTE sum, COMPUTE square) {
  store_stored(a.sum, channel * a.sum_stride, a.sum_type, sum);
  store_stored(a.sqsum, channel * a.sqsum_stride, a.sqsum_type, square);
}

extern "C" __global__ void __launch_bounds__(THREADS) graph_statistics(const Arguments a) {
  griddepcontrol_wait();
  __shared__ COMPUTE sums[THREADS], squares[THREADS];
  const int thread = threadIdx.x, lane = thread % a.lanes, height = THREADS / a.lanes;
  const int channel = blockIdx.x * a.lanes + lane, start = blockIdx.y * a.segment;
  const int end = min(a.count - start, a.segment) + start;
  COMPUTE sum = 0, square = 0;
  if (channel < a.channels) {
    with_stored(a.x_type, [&](auto stored) {
      using T = decltype(stored);
      const T* x = static_cast<const T*>(a.x) + channel * a.channel_stride;
#pragma unroll 4
      for (int index = start + thread / a.lanes; index < end; index += height) {
        long long offset = 0;
        unsigned rest = index;
#pragma unroll
        for (int d = 0; d < DIMS; d++) {
          if (d >= a.rank) break;
          unsigned at;
          rest = a.extents[d].divide(rest, at);
          offset += at * a.x_strides[d];
        }
        const COMPUTE value = load<COMPUTE>(x[offset]);
        sum += value;
        square += value * value;
      }
    });
  }
  sums[thread] = sum;
  squares[thread] = square;
  for (int distance = THREADS / 2; distance >= a.lanes; distance /= 2) {
    __syncthreads();
    if (thread < distance) {
      sums[thread] += sums[thread + distance];
      squares[thread] += squares[thread + distance];
    }
  }
  if (thread >= a.lanes || channel >= a.channels) return;
  if (a.segments == 1) return write(a, channel, sums[thread], squares[thread]);
  COMPUTE* partial = a.partials + 2ll * blockIdx.y * a.channels + channel;
  partial[0] = sums[thread];
  partial[a.channels] = squares[thread];
}

extern "C" __global__ void __launch_bounds__(THREADS) graph_statistics_finish(const Arguments a) {
  griddepcontrol_wait();
  const int channel = blockIdx.x * THREADS + threadIdx.x;
  if (channel >= a.channels) return;
  COMPUTE sum = 0, square = 0;
  for (int segment = 0; segment < a.segments; segment++) {
    const COMPUTE* partial = a.partials + 2ll * segment * a.channels + channel;
    sum += partial[0];
    square += partial[a.channels];
  }
  write(a, channel, sum, square);
}
