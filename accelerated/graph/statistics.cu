// Statistics of a graph (9.2.13): the sums of x and of its squares, one of each for every channel.
//
// A block sums one channel: threads take every 256th element, then halve their number.
//
// Roofline bound: bytes, one read of x; 3 flops an element, and a division for each dimension that cannot be merged.
#include "graph/stored.cuh"
#include "primitives/geometry.cuh"

constexpr int THREADS = 256;

struct Arguments {
  const void* x;
  void* sum;
  void* sqsum;
  long long x_strides[DIMS];  // of a channel, the innermost dimension first
  long long channel_stride, sum_stride, sqsum_stride;
  FastDivmod extents[DIMS];
  int rank, count;  // of a channel
  int x_type, sum_type, sqsum_type;
};

extern "C" __global__ void __launch_bounds__(THREADS) graph_statistics(const Arguments a) {
  griddepcontrol_wait();
  __shared__ COMPUTE sums[THREADS], squares[THREADS];
  const int thread = threadIdx.x, channel = blockIdx.x;
  COMPUTE sum = 0, square = 0;
  for (int index = thread; index < a.count; index += THREADS) {
    long long offset = channel * a.channel_stride;
    unsigned rest = index;
#pragma unroll
    for (int d = 0; d < DIMS; d++) {
      if (d >= a.rank) break;
      unsigned at;
      rest = a.extents[d].divide(rest, at);
      offset += at * a.x_strides[d];
    }
    const COMPUTE value = load_stored(a.x, offset, a.x_type);
    sum += value;
    square += value * value;
  }
  sums[thread] = sum;
  squares[thread] = square;
  for (int distance = THREADS / 2; distance; distance /= 2) {
    __syncthreads();
    if (thread < distance) {
      sums[thread] += sums[thread + distance];
      squares[thread] += squares[thread + distance];
    }
  }
  if (thread) return;
  store_stored(a.sum, channel * a.sum_stride, a.sum_type, sums[0]);
  store_stored(a.sqsum, channel * a.sqsum_stride, a.sqsum_type, squares[0]);
}
