// This file computes convolutions (5.2.9, 5.2.10) and input gradients (5.2.8) of few channels and filters directly.
//
// Tiling: a block owns some lanes and pixels. A lane is FILTERS filters by CHANNELS channels of GROUPS groups, and a
// thread computes the filters of a lane for PIXELS pixels. Shared memory holds the filters of the lanes in the compute
// type, [tap][channel][filter]. Each is read once for all pixels of a thread. In NHWC, neighbouring threads own
// neighbouring lanes, otherwise neighbouring pixels. An input gradient is a convolution of dy (`x`) to dx (`y`). Its
// pixels are divided into residues of the stride that meet the same taps; a block owns pixels of one residue.
//
// Roofline bound: bytes, x and y once, or flops: 2 for each product. At 4.2 TB/s an H200 has time for 36 products per
// 16-bit output (3 x 3, groups of 4). A thread issues 16 products for 4 values of x and its part of a tap.
#include "convolution/problem.cuh"

// The host defines GROUPS, FILTERS and CHANNELS (grouped.py).
constexpr int THREADS = 128;                        // per block
constexpr int PIXELS = 4;                           // per thread
constexpr int VALUES = GROUPS * CHANNELS;           // elements of x per lane and pixel
constexpr int RESULTS = GROUPS * FILTERS;           // elements of y per lane and pixel
constexpr int FACTORS = VALUES * FILTERS;           // elements of w per lane and tap
constexpr int AT_ONCE = FACTORS < 4 ? FACTORS : 4;  // factors read at once

struct Arguments : Operands<ELEMENT> {
  const int* notes;         // one per block of the product: 1 if its results are right (pack_groups.py)
  int noting;               // number of blocks; 0: no kernel has computed y before
  Convolution convolution;  // For a gradient: the convolution of dy, with the pixels of the first residue.
  Epilogue epilogue;
  FastDivmod lane_blocks, lanes;      // blocks of lanes; lanes of a block
  FastDivmod filter_blocks, vectors;  // per group: blocks of FILTERS filters, vectors of CHANNELS channels
  FastDivmod residues[3];             // residues along depth, rows, columns
  int backward;                       // 1: the call is a gradient
  int extent[3], y_axis[3];           // extents of y; strides between pixels in elements
  int stride[3], padding[3], dilation[3];
  int apart[3];                                        // stride between taps of the same residue
  int channels, all_channels, all_filters, all_lanes;  // per group; in all groups
  int w_channel, w_filter, w_axis[3];                  // strides of w in elements
  int lane_values;                                     // filter values in shared memory per lane
  int channels_last;                                   // neighbouring threads own neighbouring lanes
  long long w_group;
};

// Describes the taps along an axis that meet a residue: `count` of them, from `first` on, `apart` from each other. For
// the first pixel, the first tap is at `origin` in x, and the others are `step` apart.
struct Axis {
  int count, first, apart, origin, step;
};

__device__ __forceinline__ Axis find_axis(const Arguments& a, int d, int residue) {
  const Convolution& c = a.convolution;
  const int taps = c.filter[d].divisor;
  if (!a.backward) return {taps, 0, 1, -c.padding[d], c.dilation[d]};
  const int base = residue + a.padding[d], last = taps < a.apart[d] ? taps : a.apart[d];
  int first = 0;
  while (first < last && (base - first * a.dilation[d]) % a.stride[d]) first++;
  const int count = first < last ? (taps - first - 1) / a.apart[d] + 1 : 0;  // stays within 32 bits for any stride
  return {count, first, a.apart[d], (base - first * a.dilation[d]) / a.stride[d],
          -(a.dilation[d] * a.apart[d] / a.stride[d])};
}

// Reads the filters of this block's lanes.
__device__ __forceinline__ void read_filters(const Arguments& a, const Axis (&axes)[3], unsigned first_lane,
                                             COMPUTE* shared) {
  const Convolution& c = a.convolution;
  const unsigned of_tap = a.vectors.divisor * VALUES, of_lane = axes[0].count * axes[1].count * axes[2].count * of_tap;
  for (unsigned index = threadIdx.x; index < a.lanes.divisor * of_lane; index += THREADS) {
    const unsigned lane = index / of_lane, rest = index - lane * of_lane, channel = rest % of_tap;
    unsigned tap = rest / of_tap, block;
    long long offset = 0;
#pragma unroll
    for (int d = 2; d >= 0; d--) {
      const int at = axes[d].first + static_cast<int>(tap % axes[d].count) * axes[d].apart;
      tap /= axes[d].count;
      offset += static_cast<long long>(c.flipped ? c.filter[d].divisor - 1 - at : at) * a.w_axis[d];
    }
    // Where a lane has several groups, a group begins every CHANNELS channels.
    const unsigned at = GROUPS > 1 ? channel % CHANNELS : channel;
    const unsigned group =
        a.filter_blocks.divide(first_lane + lane, block) * GROUPS + (GROUPS > 1 ? channel / CHANNELS : 0);
    const ELEMENT* from = a.w + group * a.w_group + offset + static_cast<long long>(at) * a.w_channel +
                          static_cast<long long>(block * FILTERS) * a.w_filter;
    COMPUTE* to = shared + lane * a.lane_values + rest * FILTERS;
    const bool exists = first_lane + lane < a.all_lanes && at < a.channels && group * a.channels < a.all_channels;
#pragma unroll
    for (int f = 0; f < FILTERS; f++)
      to[f] = exists && block * FILTERS + f < c.n ? load<COMPUTE>(from[f * static_cast<long long>(a.w_filter)])
                                                  : COMPUTE(0);
  }
}

extern "C" __global__ void __launch_bounds__(THREADS, 4) convolution_grouped(const Arguments a) {
  griddepcontrol_wait();
  if (a.noting) {
    bool right = true;
    for (int i = threadIdx.x; i < a.noting; i += THREADS) right &= a.notes[i] == 1;
    if (__syncthreads_and(right)) return;
  }
  const Convolution& c = a.convolution;
  COMPUTE* filters = reinterpret_cast<COMPUTE*>(shared_memory);
  unsigned lane_block, residue[3];
  unsigned pixel_block = a.lane_blocks.divide(blockIdx.x, lane_block);
  const unsigned first_lane = lane_block * a.lanes.divisor;
  Axis axes[3];
#pragma unroll
  for (int d = 2; d >= 0; d--) {
    pixel_block = a.residues[d].divide(pixel_block, residue[d]);
    axes[d] = find_axis(a, d, residue[d]);
  }
  read_filters(a, axes, first_lane, filters);
  __syncthreads();

  const unsigned across = THREADS / a.lanes.divisor;  // threads per lane
  unsigned lane = threadIdx.x / across, thread = threadIdx.x % across;
  if (a.channels_last) thread = a.lanes.divide(threadIdx.x, lane);
  unsigned block;
  const unsigned group = a.filter_blocks.divide(first_lane + lane, block) * GROUPS;
  const unsigned first = pixel_block * (across * PIXELS) + thread;
  if (first_lane + lane >= a.all_lanes || first >= c.m) return;
  const ELEMENT* x = a.x + group * c.x_group;
  const bool packed = c.x_vectors && reinterpret_cast<uintptr_t>(x) % sizeof(Vector<ELEMENT, VALUES>) == 0;
  const COMPUTE* w = filters + lane * a.lane_values;
  Pixel pixel[PIXELS];
  int offset[PIXELS];  // offset in y; -1 where there is no pixel
  COMPUTE sums[PIXELS][RESULTS] = {};
#pragma unroll
  for (int i = 0; i < PIXELS; i++) {
    const unsigned index = first + i * across;
    unsigned at[4];
    split_pixel(c, index, at);
    bool exists = index < c.m;
    unsigned from = static_cast<unsigned>(at[0] * c.x_pixel[0]);
    unsigned to = static_cast<unsigned>(at[0] * c.y_pixel[0]);
#pragma unroll
    for (int d = 0; d < 3; d++) {
      exists &= at[d + 1] * a.residues[d].divisor + residue[d] < a.extent[d];
      to += static_cast<unsigned>(at[d + 1] * c.y_pixel[d + 1]) + residue[d] * a.y_axis[d];
      pixel[i].at[d] = static_cast<int>(at[d + 1] * static_cast<unsigned>(c.step[d])) + axes[d].origin;
      from += static_cast<unsigned>(pixel[i].at[d]) * c.x_axis[d];
    }
    pixel[i].offset = static_cast<int>(from);
    offset[i] = exists ? static_cast<int>(to) : -1;
    if (!exists) pixel[i].at[0] = OUTSIDE;
  }

  const int left_over = GROUPS > 1 ? a.all_channels - group * a.channels : a.channels;
  for (int t0 = 0; t0 < axes[0].count; t0++)
    for (int t1 = 0; t1 < axes[1].count; t1++)
      for (int t2 = 0; t2 < axes[2].count; t2++) {
        const int tap[3] = {t0, t1, t2};
        KOffset term{0, {0, 0, 0}};
        unsigned to_tap = 0;
#pragma unroll
        for (int d = 0; d < 3; d++) {
          term.at[d] = tap[d] * axes[d].step;
          to_tap += static_cast<unsigned>(term.at[d]) * c.x_axis[d];
        }
        bool exists[PIXELS];
#pragma unroll
        for (int i = 0; i < PIXELS; i++) exists[i] = inside(c, pixel[i], term);
        for (unsigned vector = 0; vector < a.vectors.divisor; vector++, w += FACTORS) {
          COMPUTE values[PIXELS][VALUES];
      // Zeros of the padding must be multiplied, too: zero times an infinity of the filter is NaN.
#pragma unroll
          for (int i = 0; i < PIXELS; i++) {
            const ELEMENT* from = x + wrapping_sum(pixel[i].offset, static_cast<int>(to_tap)) +
                                  static_cast<long long>(vector) * CHANNELS * c.x_channel;
            if (packed) {
              Vector<ELEMENT, VALUES> found{};
              if (exists[i]) found = *reinterpret_cast<const Vector<ELEMENT, VALUES>*>(from);
#pragma unroll
              for (int j = 0; j < VALUES; j++) values[i][j] = load<COMPUTE>(found.item[j]);
            } else {
#pragma unroll
              for (int j = 0; j < VALUES; j++)
                values[i][j] = exists[i] && static_cast<int>(vector * CHANNELS) + j < left_over
                                   ? load<COMPUTE>(from[j * static_cast<long long>(c.x_channel)])
                                   : COMPUTE(0);
            }
          }
#pragma unroll
          for (int at = 0; at < FACTORS; at += AT_ONCE) {
            const Vector<COMPUTE, AT_ONCE> factors = *reinterpret_cast<const Vector<COMPUTE, AT_ONCE>*>(w + at);
#pragma unroll
            for (int k = 0; k < AT_ONCE; k++) {
              const int j = (at + k) / FILTERS, f = (at + k) % FILTERS;
#pragma unroll
              for (int i = 0; i < PIXELS; i++) sums[i][j / CHANNELS * FILTERS + f] += values[i][j] * factors.item[k];
            }
          }
        }
      }

  const unsigned channel = group * c.n + block * FILTERS;
  const int left = GROUPS > 1 ? a.all_filters - channel : c.n - block * FILTERS;
#pragma unroll
  for (int i = 0; i < PIXELS; i++)
    if (offset[i] >= 0)
      finish<RESULTS, COMPUTE>(a.epilogue, a.bias, a.prior, a.y, offset[i] + y_channel_offset(c, channel), c.y_channel,
                               left < RESULTS ? left : RESULTS, channel, 1, sums[i]);
}
