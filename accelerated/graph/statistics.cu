// These kernels sum x and its squares for every channel (9.2.13), in a fixed order.
//
// A block sums some channels of a segment of the pixels. In NHWC, `lanes` neighbouring threads own WIDTH channels each,
// and other threads take further pixels. Otherwise every thread takes vectors of WIDTH pixels of one channel. The sums
// of several segments go to the workspace, [segment][sum][channel], and a second kernel adds them.
//
// Roofline bound: bytes, one read of x; 3 flops an element, and a division for each dimension that cannot be merged.
#include "graph/stored.cuh"
#include "primitives/geometry.cuh"

constexpr int FINISH_LANES = 2;                   // channels per block that adds segments
constexpr int SEGMENTS = THREADS / FINISH_LANES;  // threads per channel there
constexpr int IN_FLIGHT = 5;  // segments whose sums a thread reads at once; all of them where they fill the device

struct Arguments {
  const void* x;
  void* sum;
  void* sqsum;
  COMPUTE* partials;
  long long x_strides[DIMS];  // strides within a channel, the innermost dimension first
  long long channel_stride, sum_stride, sqsum_stride;
  FastDivmod extents[DIMS];  // extents of the pixels; the innermost counts vectors unless NHWC
  int rank, items;           // pixels or vectors per channel
  int innermost;             // pixels in the innermost dimension
  int channels, lanes, segments, segment;
  int vectors_of_channels;
  int x_type, sum_type, sqsum_type;
};

// Returns the offset of an item, and its index in the innermost dimension.
__device__ __forceinline__ long long offset(const Arguments& a, int item, int scale, int& at_innermost) {
  long long found = 0;
  unsigned rest = item;
#pragma unroll
  for (int d = 0; d < DIMS; d++) {
    if (d >= a.rank) break;
    unsigned at;
    rest = a.extents[d].divide(rest, at);
    if (d == 0) at_innermost = at;
    found += at * a.x_strides[d] * (d == 0 ? scale : 1);
  }
  return found;
}

template <class T> __device__ __forceinline__ void sum_channels(const Arguments& a, Values& sums, Values& squares) {
  const int channel = (blockIdx.x * a.lanes + threadIdx.x % a.lanes) * WIDTH, count = min(WIDTH, a.channels - channel);
  const int start = blockIdx.y * a.segment, end = min(a.items - start, a.segment) + start;
  if (count <= 0) return;
  const T* x = static_cast<const T*>(a.x) + channel;
#pragma unroll 4
  for (int item = start + threadIdx.x / a.lanes; item < end; item += THREADS / a.lanes) {
    int unused;
    Values values = {};
    load_elements(x + offset(a, item, 1, unused), 1, count, values);
#pragma unroll
    for (int i = 0; i < WIDTH; i++) {
      sums.item[i] += values.item[i];
      squares.item[i] += values.item[i] * values.item[i];
    }
  }
}

template <class T> __device__ __forceinline__ void sum_pixels(const Arguments& a, Values& sums, Values& squares) {
  const int start = blockIdx.y * a.segment, end = min(a.items - start, a.segment) + start;
  const T* x = static_cast<const T*>(a.x) + blockIdx.x * a.channel_stride;
#pragma unroll 4
  for (int item = start + threadIdx.x; item < end; item += THREADS) {
    int at = 0;
    Values values = {};
    const long long first = offset(a, item, WIDTH, at);
    load_elements(x + first, a.x_strides[0], min(WIDTH, a.innermost - at * WIDTH), values);
#pragma unroll
    for (int i = 0; i < WIDTH; i++) {
      sums.item[0] += values.item[i];
      squares.item[0] += values.item[i] * values.item[i];
    }
  }
}

__device__ __forceinline__ void write(const Arguments& a, int channel, COMPUTE sum, COMPUTE square) {
  store_stored(a.sum, channel * a.sum_stride, a.sum_type, sum);
  store_stored(a.sqsum, channel * a.sqsum_stride, a.sqsum_type, square);
}

__device__ __forceinline__ void write_segment(const Arguments& a, int channel, COMPUTE sum, COMPUTE square) {
  if (a.segments == 1) return write(a, channel, sum, square);
  COMPUTE* partial = a.partials + 2ll * blockIdx.y * a.channels + channel;
  partial[0] = sum;
  partial[a.channels] = square;
}

// Adds the sums of the threads of a column, `lanes` apart. The first thread of each column has the result.
__device__ __forceinline__ void add_columns(COMPUTE (&sums)[THREADS], COMPUTE (&squares)[THREADS], int lanes) {
  for (int distance = THREADS / 2; distance >= lanes; distance /= 2) {
    __syncthreads();
    if (threadIdx.x < distance) {
      sums[threadIdx.x] += sums[threadIdx.x + distance];
      squares[threadIdx.x] += squares[threadIdx.x + distance];
    }
  }
}

// Adds the sums of a block: WIDTH channels per thread in `lanes` neighbouring vectors, or one channel.
__device__ __forceinline__ void write_segment(const Arguments& a, const Values& sum, const Values& square) {
  __shared__ COMPUTE sums[THREADS], squares[THREADS];
  const int thread = threadIdx.x;
#pragma unroll
  for (int i = 0; i < WIDTH; i++) {
    if (i && !a.vectors_of_channels) return;
    __syncthreads();
    sums[thread] = sum.item[i];
    squares[thread] = square.item[i];
    add_columns(sums, squares, a.lanes);
    const int channel = a.vectors_of_channels ? (blockIdx.x * a.lanes + thread) * WIDTH + i : blockIdx.x;
    if (thread < a.lanes && channel < a.channels) write_segment(a, channel, sums[thread], squares[thread]);
  }
}

extern "C" __global__ void __launch_bounds__(THREADS) graph_statistics(const Arguments a) {
  griddepcontrol_wait();
  Values sum = {}, square = {};
  with_stored(a.x_type, [&](auto stored) {
    using T = decltype(stored);
    if (a.vectors_of_channels) sum_channels<T>(a, sum, square);
    else sum_pixels<T>(a, sum, square);
  });
  write_segment(a, sum, square);
}

extern "C" __global__ void __launch_bounds__(THREADS) graph_statistics_finish(const Arguments a) {
  griddepcontrol_wait();
  __shared__ COMPUTE sums[THREADS], squares[THREADS];
  const int lane = threadIdx.x % FINISH_LANES, channel = blockIdx.x * FINISH_LANES + lane;
  COMPUTE sum[2] = {};
  const int first = channel < a.channels ? threadIdx.x / FINISH_LANES : a.segments;
#pragma unroll 1
  for (int begin = first; begin < a.segments; begin += IN_FLIGHT * SEGMENTS) {
    COMPUTE found[IN_FLIGHT][2];
#pragma unroll
    for (int i = 0; i < 2 * IN_FLIGHT; i++) {
      const int segment = begin + i / 2 * SEGMENTS;
      found[i / 2][i % 2] = segment < a.segments ? a.partials[(2ll * segment + i % 2) * a.channels + channel] : 0;
    }
#pragma unroll
    for (int i = 0; i < 2 * IN_FLIGHT; i++) sum[i % 2] += found[i / 2][i % 2];
  }
  sums[threadIdx.x] = sum[0];
  squares[threadIdx.x] = sum[1];
  add_columns(sums, squares, FINISH_LANES);
  if (threadIdx.x < FINISH_LANES && channel < a.channels) write(a, channel, sums[threadIdx.x], squares[threadIdx.x]);
}
