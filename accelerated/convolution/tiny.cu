// This kernel computes convolutions (5.2.9, 5.2.10) with no more products than a GPU has threads.
//
// Tiling: up to 32 lanes of a warp share the K of one output.
//
// Roofline bound: latency. The bytes are a few KiB, and all threads have one read of image and filter in flight at
// once.
#include <type_traits>

#include "convolution/problem.cuh"

struct Arguments : Operands<ELEMENT> {
  Convolution convolution;
  Epilogue epilogue;
  FastDivmod channels, filters;  // channels of y; filters per group
  int log_lanes;                 // binary logarithm of the lanes per output
};

// Floats are added as doubles, because few terms may cancel each other and leave a float few digits.
using Sum = std::conditional_t<std::is_same_v<ELEMENT, float>, double, COMPUTE>;

extern "C" __global__ void __launch_bounds__(128) convolution_tiny(const Arguments a) {
  griddepcontrol_wait();
  const Convolution& c = a.convolution;
  const unsigned index = blockIdx.x * blockDim.x + threadIdx.x, lanes = 1u << a.log_lanes, lane = index & (lanes - 1);
  unsigned channel, filter;
  const unsigned output = a.channels.divide(index >> a.log_lanes, channel), group = a.filters.divide(channel, filter);
  const Pixel pixel = find_pixel(c, output);
  const ELEMENT* x = a.x + group * c.x_group;
  const ELEMENT* w = a.w + channel * static_cast<long long>(c.w_row);
  Sum sum = 0;
#pragma unroll 4
  for (unsigned i = lane; i < c.k; i += lanes) {
    const KOffset term = find_k(c, i);
    // Padding must be multiplied, too: zero times an infinity of the filter is NaN.
    const COMPUTE value =
        inside(c, pixel, term) ? load<COMPUTE>(x[wrapping_sum(pixel.offset, term.offset)]) : COMPUTE(0);
    sum += Sum(value) * load<COMPUTE>(w[i]);
  }
  for (unsigned distance = lanes / 2; distance; distance /= 2) sum += __shfl_xor_sync(~0u, sum, distance);
  if (output >= c.m || lane) return;
  const COMPUTE one[1] = {static_cast<COMPUTE>(sum)};
  finish<1, COMPUTE>(a.epilogue, a.bias, a.prior, a.y, y_offset(c, output) + y_channel_offset(c, channel), 1, 1,
                     channel, 0, one);
}
