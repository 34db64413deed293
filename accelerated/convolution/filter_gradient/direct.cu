// This kernel computes filter gradients of convolutions (6.2.2) without a workspace.
//
// Tiling: up to 32 lanes of a warp share the images and output positions of one element of dw. Their sums are added in
// a fixed order.
//
// Roofline bound: bytes, x and dy read once and dw written once; 2 flops a product. Each element of dy is read once per
// element of a filter, from L1 and L2; these reads limit this kernel. Convolutions of more than a few products use
// matrix products (forward_convolution.py).
#include "convolution/direct.cuh"

// The axes are depth, rows and columns. The strides, in elements, separate images, channels, planes, rows and columns.
struct Arguments {
  const ELEMENT* x;
  const ELEMENT* dy;
  ELEMENT* dw;
  COMPUTE alpha, beta;
  long long x_step[5], dy_step[5];
  int input[3], padding[3], stride[3], dilation[3];
  int terms, elements;                    // images times output positions; elements of dw
  int channels_last;                      // dw has channels innermost
  int flipped, log_lanes;                 // lanes per element
  FastDivmod positions[3];                // per image
  FastDivmod taps[3], channels, filters;  // channels and filters per group
};

extern "C" __global__ void __launch_bounds__(256) convolution_filter_gradient_direct(const Arguments a) {
  griddepcontrol_wait();
  const Element element(a.log_lanes, a.channels_last, a.channels, a.taps);
  unsigned filter;
  const unsigned group = a.filters.divide(element.outer, filter);
  const ELEMENT* x = a.x + (static_cast<long long>(group) * a.channels.divisor + element.channel) * a.x_step[1];
  const ELEMENT* dy = a.dy + element.outer * a.dy_step[1];
  int first[3];  // the element of x under the tap at output position 0
#pragma unroll
  for (int d = 0; d < 3; d++) {
    const int applied = a.flipped ? a.taps[d].divisor - 1 - element.at[d] : element.at[d];
    first[d] = applied * a.dilation[d] - a.padding[d];
  }
  COMPUTE sum = 0;
  if (element.index < static_cast<unsigned>(a.elements)) {
#pragma unroll 4
    for (unsigned term = element.lane; term < static_cast<unsigned>(a.terms); term += element.lanes) {
      unsigned image = term, p[3];
#pragma unroll
      for (int d = 2; d >= 0; d--) image = a.positions[d].divide(image, p[d]);
      long long from = image * a.x_step[0], to = image * a.dy_step[0];
      bool inside = true;
#pragma unroll
      for (int d = 0; d < 3; d++) {
        const int at = first[d] + static_cast<int>(p[d]) * a.stride[d];
        inside &= static_cast<unsigned>(at) < static_cast<unsigned>(a.input[d]);
        from += at * a.x_step[2 + d];
        to += p[d] * a.dy_step[2 + d];
      }
      // The zeros of the padding must be multiplied, too: zero times an infinity of dy is NaN.
      const COMPUTE value = inside ? load<COMPUTE>(x[from]) : COMPUTE(0);
      sum += value * load<COMPUTE>(dy[to]);
    }
  }
  sum = element.of_lanes(sum);
  if (element.index >= static_cast<unsigned>(a.elements) || element.lane) return;
  a.dw[element.index] = blend<COMPUTE>(a.alpha, sum, a.beta, a.dw + element.index);
}
