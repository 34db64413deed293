// This file computes filter gradients (6.2.2) of convolutions with few channels and filters per group.
//
// Tiling: a block owns some lanes, TAPS taps and a part of the pixels. A lane is FILTERS filters by CHANNELS channels
// of GROUPS groups. A thread adds the products of its lane under these taps, at pixels with a fixed stride. The threads
// of a warp add their sums by shuffles, and warps through shared memory. sum.cu adds the parts, always in the same
// order. If one part covers all pixels, the kernel writes dw.
//
// Roofline bound: bytes, x and dy once, or flops: 2 for each product. At 4.2 TB/s an H200 has time for 36 products per
// 16-bit output (3 x 3, groups of 4). For 48 products a thread reads four vectors of four values, mostly from L1.
#include "convolution/problem.cuh"

// The host defines GROUPS, FILTERS, CHANNELS and TAPS (grouped.py).
constexpr int THREADS = 256;                            // per block
constexpr int WARP = 32;                                // threads
constexpr int VALUES = GROUPS * CHANNELS;               // elements of x per lane and pixel
constexpr int GRADIENTS = GROUPS * FILTERS;             // elements of dy per lane and pixel
constexpr int PRODUCTS = VALUES * FILTERS;              // sums per lane under one tap
constexpr int ALL = TAPS * PRODUCTS;                    // sums per lane under all taps
constexpr int AT_ONCE = PRODUCTS < 16 ? PRODUCTS : 16;  // sums per lane in shared memory

struct Arguments {
  const ELEMENT* x;
  const ELEMENT* dy;
  COMPUTE* partial;  // [part][element of dw in the order of its memory]
  ELEMENT* dw;       // written where there is one part
  COMPUTE alpha, beta;
  Convolution convolution;
  FastDivmod lane_blocks, tap_blocks, lanes;           // blocks of lanes, of taps; lanes of a block
  FastDivmod filter_blocks, vectors;                   // per group: blocks of filters, vectors of channels
  int channels, all_channels, all_filters, all_lanes;  // per group; in all groups
  int taps, w_tap, w_channel, elements;  // taps per filter; strides of dw between taps and channels; elements of dw
  int of_part, one_part;                 // pixels per part; whether one part covers all pixels
  int channels_last, dy_vectors;         // whether channels are innermost; whether vectors of dy are aligned
};

template <int N>
__device__ __forceinline__ void read_values(const ELEMENT* from, long long step, bool packed, bool exists, int count,
                                            COMPUTE (&values)[N]) {
  if (packed) {
    Vector<ELEMENT, N> found{};
    if (exists) found = *reinterpret_cast<const Vector<ELEMENT, N>*>(from);
#pragma unroll
    for (int i = 0; i < N; i++) values[i] = load<COMPUTE>(found.item[i]);
  } else {
#pragma unroll
    for (int i = 0; i < N; i++) values[i] = exists && i < count ? load<COMPUTE>(from[i * step]) : COMPUTE(0);
  }
}

// Holds the first group of a lane, and the lane's first filter and channel within a group.
struct Lane {
  int group, filter, channel;

  __device__ __forceinline__ Lane(const Arguments& a, unsigned index) {
    unsigned vector, block;
    group = static_cast<int>(a.filter_blocks.divide(a.vectors.divide(index, vector), block)) * GROUPS;
    filter = static_cast<int>(block) * FILTERS, channel = static_cast<int>(vector) * CHANNELS;
  }
};

extern "C" __global__ void __launch_bounds__(THREADS, 2) convolution_filter_gradient_grouped(const Arguments a) {
  griddepcontrol_wait();
  __shared__ COMPUTE shared[THREADS * AT_ONCE];  // [slot][lane][sum]
  const Convolution& c = a.convolution;
  unsigned lane_block, tap_block;
  const unsigned part = a.tap_blocks.divide(a.lane_blocks.divide(blockIdx.x, lane_block), tap_block);
  const unsigned lanes = a.lanes.divisor, across = THREADS / lanes, first_lane = lane_block * lanes;
  unsigned lane = threadIdx.x / across, thread = threadIdx.x % across;  // `across` threads share a lane
  if (a.channels_last) thread = a.lanes.divide(threadIdx.x, lane);
  const Lane own(a, first_lane + lane);
  const int first_tap = tap_block * TAPS, first_channel = own.group * a.channels + own.channel,
            first_filter = own.group * c.n + own.filter;
  const bool lane_exists = first_lane + lane < static_cast<unsigned>(a.all_lanes);
  const ELEMENT* x = a.x + (own.group * c.x_group + static_cast<long long>(own.channel) * c.x_channel);
  const ELEMENT* dy = a.dy + static_cast<long long>(first_filter) * c.y_channel;
  const int channels_left = GROUPS > 1 ? a.all_channels - first_channel : a.channels - own.channel,
            filters_left = GROUPS > 1 ? a.all_filters - first_filter : c.n - own.filter;
  const bool x_packed = c.x_vectors && reinterpret_cast<uintptr_t>(a.x) % sizeof(Vector<ELEMENT, VALUES>) == 0;
  const bool dy_packed = a.dy_vectors && reinterpret_cast<uintptr_t>(a.dy) % sizeof(Vector<ELEMENT, GRADIENTS>) == 0;

  KOffset terms[TAPS];
#pragma unroll
  for (int t = 0; t < TAPS; t++) {
    unsigned rest = first_tap + t, tap[3], offset = 0;
#pragma unroll
    for (int d = 2; d >= 0; d--) rest = c.filter[d].divide(rest, tap[d]);
#pragma unroll
    for (int d = 0; d < 3; d++) {
      terms[t].at[d] = (c.flipped ? c.filter[d].divisor - 1 - tap[d] : tap[d]) * c.dilation[d];
      offset += static_cast<unsigned>(terms[t].at[d]) * c.x_axis[d];
    }
    terms[t].offset = static_cast<int>(offset);
  }

  COMPUTE sums[TAPS][PRODUCTS] = {};
  const unsigned end = min(static_cast<unsigned>(c.m), (part + 1) * a.of_part);
  if (lane_exists) {
    for (unsigned index = part * a.of_part + thread; index < end; index += across) {
      unsigned at[4];
      split_pixel(c, index, at);
      unsigned from = static_cast<unsigned>(c.x_origin + at[0] * c.x_pixel[0]),
               to = static_cast<unsigned>(at[0] * c.y_pixel[0]);
      Pixel pixel;
#pragma unroll
      for (int d = 0; d < 3; d++) {
        from += static_cast<unsigned>(at[d + 1] * c.x_pixel[d + 1]);
        to += static_cast<unsigned>(at[d + 1] * c.y_pixel[d + 1]);
        pixel.at[d] = static_cast<int>(at[d + 1] * static_cast<unsigned>(c.step[d])) - c.padding[d];
      }
      COMPUTE gradients[GRADIENTS];
      read_values(dy + to, c.y_channel, dy_packed, true, filters_left, gradients);
#pragma unroll
      for (int t = 0; t < TAPS; t++) {
        if (first_tap + t >= a.taps) continue;
        COMPUTE values[VALUES];
        // Zeros of the padding must be multiplied, too: zero times an infinity of dy is NaN.
        read_values(x + wrapping_sum(static_cast<int>(from), terms[t].offset), c.x_channel, x_packed,
                    inside(c, pixel, terms[t]), channels_left, values);
#pragma unroll
        for (int j = 0; j < VALUES; j++)
#pragma unroll
          for (int f = 0; f < FILTERS; f++)
            sums[t][j * FILTERS + f] += gradients[j / CHANNELS * FILTERS + f] * values[j];
      }
    }
  }

  // Threads of a lane within a warp add first; then each warp gets a slot.
  const unsigned nearest = a.channels_last ? lanes : 1, farthest = a.channels_last ? WARP : min(across, WARP);
  const unsigned slots = a.channels_last ? THREADS / WARP : (across + WARP - 1) / WARP;
  const unsigned slot = a.channels_last ? threadIdx.x / WARP : thread / WARP, of_slots = lanes * AT_ONCE;
  const bool writes = a.channels_last ? threadIdx.x % WARP < lanes : thread % WARP == 0;
#pragma unroll
  for (int chunk = 0; chunk < ALL; chunk += AT_ONCE) {
#pragma unroll
    for (int i = 0; i < AT_ONCE; i++) {
      COMPUTE sum = sums[(chunk + i) / PRODUCTS][(chunk + i) % PRODUCTS];
      for (unsigned distance = nearest; distance < farthest; distance *= 2)
        sum += __shfl_xor_sync(0xFFFFFFFFu, sum, distance);
      if (writes) shared[(slot * lanes + lane) * AT_ONCE + i] = sum;
    }
    __syncthreads();
    const int tap = first_tap + chunk / PRODUCTS;
    for (unsigned index = threadIdx.x; index < of_slots; index += THREADS) {
      const unsigned number = first_lane + index / AT_ONCE;
      const int product = chunk % PRODUCTS + static_cast<int>(index % AT_ONCE), j = product / FILTERS;
      const Lane its(a, number);
      const int f = its.filter + product % FILTERS, channel = its.channel + j % CHANNELS,
                group = its.group + j / CHANNELS;
      if (number >= static_cast<unsigned>(a.all_lanes) || f >= c.n || channel >= a.channels || tap >= a.taps ||
          group * c.n >= a.all_filters)
        continue;
      COMPUTE sum = shared[index];
      for (unsigned i = 1; i < slots; i++) sum += shared[i * of_slots + index];
      const long long element = static_cast<long long>(group * c.n + f) * c.w_row +
                                static_cast<long long>(tap) * a.w_tap + static_cast<long long>(channel) * a.w_channel;
      if (a.one_part) a.dw[element] = blend<COMPUTE>(a.alpha, sum, a.beta, a.dw + element);
      else a.partial[static_cast<long long>(part) * a.elements + element] = sum;
    }
    __syncthreads();
  }
}
