// Convolutions (5.2.9, 5.2.10) of many groups of few channels and filters, summed directly.
//
// Tiling: a block has some lanes, each of four filters of a group, and pixels; a thread computes the filters of a lane
// for PIXELS pixels. The filters of the lanes are in shared memory as numbers of the arithmetic,
// [tap][channel][filter]; each is read once for all pixels of a thread. Where channels lie innermost, neighbouring
// threads have neighbouring lanes, else neighbouring pixels.
//
// Roofline bound: bytes, x and y once, or flops: 2 for each product. At 4.2 TB/s an H200 has time for 36 products of
// each output of 16 bits (3 x 3, groups of 4); a thread issues 16 products for 4 values of x and its part of a tap.
#include "convolution/problem.cuh"

constexpr int THREADS = 128, PIXELS = 4, FILTERS = 4, CHANNELS = 4;  // per block; per thread; read at once

struct Arguments : Operands<ELEMENT> {
  Convolution convolution;
  Epilogue epilogue;
  FastDivmod lane_blocks, lanes;    // blocks of lanes; lanes of a block
  FastDivmod filter_blocks, packs;  // per group: blocks of FILTERS filters, packs of CHANNELS channels
  int channels, all_lanes;          // per group; in all groups
  int w_tap, w_channel;             // elements from one tap of w to the next, from one channel
  int lane_values;                  // numbers of shared memory per lane
  int channels_last;                // neighbouring threads have neighbouring lanes
};

// The filters of this block's lanes.
__device__ __forceinline__ void read_filters(const Arguments& a, unsigned first_lane, COMPUTE* shared) {
  const Convolution& c = a.convolution;
  const unsigned taps = c.filter[0].divisor * c.filter[1].divisor * c.filter[2].divisor;
  const unsigned of_lane = taps * a.packs.divisor * CHANNELS;  // fours of filters
  for (unsigned index = threadIdx.x; index < a.lanes.divisor * of_lane; index += THREADS) {
    const unsigned lane = index / of_lane, rest = index - lane * of_lane, channel = rest / CHANNELS;
    unsigned pack, block;
    const unsigned tap = a.packs.divide(channel, pack), at = pack * CHANNELS + rest % CHANNELS;
    const unsigned group = a.filter_blocks.divide(first_lane + lane, block);
    const ELEMENT* from = a.w + (static_cast<long long>(group) * c.n + block * FILTERS) * c.w_row +
                          (static_cast<long long>(tap) * a.w_tap + at * a.w_channel);
    COMPUTE* to = shared + lane * a.lane_values + rest * FILTERS;
    const bool exists = first_lane + lane < a.all_lanes && at < a.channels;
#pragma unroll
    for (int f = 0; f < FILTERS; f++)
      to[f] =
          exists && block * FILTERS + f < c.n ? load<COMPUTE>(from[f * static_cast<long long>(c.w_row)]) : COMPUTE(0);
  }
}

extern "C" __global__ void __launch_bounds__(THREADS) convolution_grouped(const Arguments a) {
  griddepcontrol_wait();
  const Convolution& c = a.convolution;
  COMPUTE* filters = reinterpret_cast<COMPUTE*>(shared_memory);
  unsigned lane_block;
  const unsigned pixel_block = a.lane_blocks.divide(blockIdx.x, lane_block), first_lane = lane_block * a.lanes.divisor;
  read_filters(a, first_lane, filters);
  __syncthreads();

  const unsigned across = THREADS / a.lanes.divisor;  // threads of a lane
  unsigned lane = threadIdx.x / across, thread = threadIdx.x % across;
  if (a.channels_last) thread = a.lanes.divide(threadIdx.x, lane);
  unsigned block;
  const unsigned group = a.filter_blocks.divide(first_lane + lane, block);
  const unsigned first = pixel_block * (across * PIXELS) + thread;
  if (first_lane + lane >= a.all_lanes || first >= c.m) return;
  const ELEMENT* x = a.x + group * c.x_group;
  const bool packed = c.x_packs && reinterpret_cast<uintptr_t>(x) % sizeof(Pack<ELEMENT, CHANNELS>) == 0;
  const COMPUTE* w = filters + lane * a.lane_values;
  Pixel pixel[PIXELS];
  COMPUTE sums[PIXELS][FILTERS] = {};
#pragma unroll
  for (int i = 0; i < PIXELS; i++) pixel[i] = find_pixel(c, first + i * across);

  const int taps[3] = {static_cast<int>(c.filter[0].divisor), static_cast<int>(c.filter[1].divisor),
                       static_cast<int>(c.filter[2].divisor)};
  for (int t0 = 0; t0 < taps[0]; t0++)
    for (int t1 = 0; t1 < taps[1]; t1++)
      for (int t2 = 0; t2 < taps[2]; t2++) {
        const int tap[3] = {t0, t1, t2};
        KOffset term{0, {0, 0, 0}};
        unsigned offset = 0;
#pragma unroll
        for (int d = 0; d < 3; d++) {
          term.at[d] = (c.flipped ? taps[d] - 1 - tap[d] : tap[d]) * c.dilation[d];
          offset += static_cast<unsigned>(term.at[d]) * c.x_axis[d];
        }
        bool exists[PIXELS];
#pragma unroll
        for (int i = 0; i < PIXELS; i++) exists[i] = inside(c, pixel[i], term);
        for (unsigned pack = 0; pack < a.packs.divisor; pack++, w += CHANNELS * FILTERS) {
          COMPUTE values[PIXELS][CHANNELS];
      // Zeros of the padding are multiplied, too: zero times an infinity of the filter is NaN.
#pragma unroll
          for (int i = 0; i < PIXELS; i++) {
            const ELEMENT* from = x + wrapping_sum(pixel[i].offset, static_cast<int>(offset)) +
                                  static_cast<long long>(pack) * CHANNELS * c.x_channel;
            if (packed) {
              Pack<ELEMENT, CHANNELS> found{};
              if (exists[i]) found = *reinterpret_cast<const Pack<ELEMENT, CHANNELS>*>(from);
#pragma unroll
              for (int j = 0; j < CHANNELS; j++) values[i][j] = load<COMPUTE>(found.item[j]);
            } else {
#pragma unroll
              for (int j = 0; j < CHANNELS; j++)
                values[i][j] = exists[i] && pack * CHANNELS + j < a.channels
                                   ? load<COMPUTE>(from[j * static_cast<long long>(c.x_channel)])
                                   : COMPUTE(0);
            }
          }
#pragma unroll
          for (int j = 0; j < CHANNELS; j++) {
            const Pack<COMPUTE, FILTERS> factors = *reinterpret_cast<const Pack<COMPUTE, FILTERS>*>(w + j * FILTERS);
#pragma unroll
            for (int i = 0; i < PIXELS; i++)
#pragma unroll
              for (int f = 0; f < FILTERS; f++) sums[i][f] += values[i][j] * factors.item[f];
          }
        }
      }

  const int left = c.n - block * FILTERS, count = left < FILTERS ? left : FILTERS;
  const unsigned channel = group * c.y_n + block * FILTERS;
#pragma unroll
  for (int i = 0; i < PIXELS; i++)
    if (first + i * across < c.m)
      finish<FILTERS, COMPUTE>(a.epilogue, a.bias, a.prior, a.y,
                               y_offset(c, first + i * across) + y_channel_offset(c, channel), c.y_channel, count,
                               channel, 1, sums[i]);
}
