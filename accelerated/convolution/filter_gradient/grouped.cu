// Gradients of a convolution with respect to its filter (6.2.2), of many groups of few channels and filters.
//
// Tiling: a block has some lanes, each of four filters by four channels of a group, TAPS taps and a part of the pixels;
// a thread adds up the products of a lane and these taps at every so many pixels. Threads of a lane add theirs through
// shared memory, and sum.cu adds those of the parts, all in one order.
//
// Roofline bound: bytes, x and dy once, or flops: 2 for each product. At 4.2 TB/s an H200 has time for 36 products of
// each output of 16 bits (3 x 3, groups of 4); for 48 products a thread reads four packs of four values, most from L1.
#include "convolution/problem.cuh"

constexpr int THREADS = 256, TAPS = 3, FILTERS = 4, CHANNELS = 4;

struct Arguments {
  const ELEMENT* x;
  const ELEMENT* dy;
  COMPUTE* partial;  // [part][element of dw in the order of its memory]
  Convolution convolution;
  FastDivmod lane_blocks, tap_blocks, lanes;  // blocks of lanes, of taps; lanes of a block
  FastDivmod filter_blocks, packs;            // per group: blocks of filters, packs of channels
  int channels, all_lanes, taps;              // per group; in all groups; per filter
  int w_tap, w_channel, elements;             // elements from one tap of dw to the next, one channel; of dw
  int of_part;                                // pixels
  int channels_last, dy_packs;                // neighbouring threads have neighbouring lanes; packs of dy are aligned
};

template <int N>
__device__ __forceinline__ void read_values(const ELEMENT* from, long long step, bool packed, bool exists, int count,
                                            COMPUTE (&values)[N]) {
  if (packed) {
    Pack<ELEMENT, N> found{};
    if (exists) found = *reinterpret_cast<const Pack<ELEMENT, N>*>(from);
#pragma unroll
    for (int i = 0; i < N; i++) values[i] = load<COMPUTE>(found.item[i]);
  } else {
#pragma unroll
    for (int i = 0; i < N; i++) values[i] = exists && i < count ? load<COMPUTE>(from[i * step]) : COMPUTE(0);
  }
}

extern "C" __global__ void __launch_bounds__(THREADS, 2) convolution_filter_gradient_grouped(const Arguments a) {
  griddepcontrol_wait();
  __shared__ COMPUTE shared[THREADS][FILTERS * CHANNELS];
  const Convolution& c = a.convolution;
  unsigned lane_block, tap_block, pack, block;
  const unsigned part = a.tap_blocks.divide(a.lane_blocks.divide(blockIdx.x, lane_block), tap_block);
  const unsigned across = THREADS / a.lanes.divisor, first_lane = lane_block * a.lanes.divisor;  // across: of a lane
  unsigned lane = threadIdx.x / across, thread = threadIdx.x % across;
  if (a.channels_last) thread = a.lanes.divide(threadIdx.x, lane);
  const unsigned group = a.filter_blocks.divide(a.packs.divide(first_lane + lane, pack), block);
  const int channel = pack * CHANNELS, filter = block * FILTERS, first_tap = tap_block * TAPS;
  const bool lane_exists = first_lane + lane < static_cast<unsigned>(a.all_lanes);
  const ELEMENT* x = a.x + (group * c.x_group + static_cast<long long>(channel) * c.x_channel);
  const ELEMENT* dy = a.dy + static_cast<long long>(group * c.n + filter) * c.y_channel;
  const bool x_packed = c.x_packs && reinterpret_cast<uintptr_t>(a.x) % sizeof(Pack<ELEMENT, CHANNELS>) == 0;
  const bool dy_packed = a.dy_packs && reinterpret_cast<uintptr_t>(a.dy) % sizeof(Pack<ELEMENT, FILTERS>) == 0;

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

  COMPUTE sums[TAPS][FILTERS][CHANNELS] = {};
  const unsigned end = min(static_cast<unsigned>(c.m), (part + 1) * a.of_part);
  if (lane_exists) {
    for (unsigned index = part * a.of_part + thread; index < end; index += across) {
      const Pixel pixel = find_pixel(c, index);
      COMPUTE gradients[FILTERS];
      read_values(dy + y_offset(c, index), c.y_channel, dy_packed, true, c.n - filter, gradients);
#pragma unroll
      for (int t = 0; t < TAPS; t++) {
        if (first_tap + t >= a.taps) continue;
        COMPUTE values[CHANNELS];
        // Zeros of the padding are multiplied, too: zero times an infinity of dy is NaN.
        read_values(x + wrapping_sum(pixel.offset, terms[t].offset), c.x_channel, x_packed, inside(c, pixel, terms[t]),
                    a.channels - channel, values);
#pragma unroll
        for (int f = 0; f < FILTERS; f++)
#pragma unroll
          for (int j = 0; j < CHANNELS; j++) sums[t][f][j] += gradients[f] * values[j];
      }
    }
  }

  // One tap after another: [thread of a lane][lane][filter][channel].
  const unsigned of_block = a.lanes.divisor * (FILTERS * CHANNELS);
  COMPUTE* flat = &shared[0][0];
#pragma unroll
  for (int t = 0; t < TAPS; t++) {
#pragma unroll
    for (int f = 0; f < FILTERS; f++)
#pragma unroll
      for (int j = 0; j < CHANNELS; j++) shared[thread * a.lanes.divisor + lane][f * CHANNELS + j] = sums[t][f][j];
    __syncthreads();
    for (unsigned index = threadIdx.x; index < of_block; index += THREADS) {
      const unsigned number = first_lane + index / (FILTERS * CHANNELS), f = index / CHANNELS % FILTERS,
                     j = index % CHANNELS;
      unsigned its_pack, its_block;
      const unsigned its_group = a.filter_blocks.divide(a.packs.divide(number, its_pack), its_block);
      const int its_filter = its_block * FILTERS + f, its_channel = its_pack * CHANNELS + j;
      if (number >= static_cast<unsigned>(a.all_lanes) || its_filter >= c.n || its_channel >= a.channels ||
          first_tap + t >= a.taps)
        continue;
      COMPUTE sum = 0;
      for (unsigned i = 0; i < across; i++) sum += flat[i * of_block + index];
      a.partial[static_cast<long long>(part) * a.elements +
                (static_cast<long long>(its_group * c.n + its_filter) * c.w_row + (first_tap + t) * a.w_tap +
                 its_channel * a.w_channel)] = sum;
    }
    __syncthreads();
  }
}
