// This kernel computes input gradients of convolutions (5.2.8) without a workspace.
//
// Tiling: up to 32 lanes of a warp share the output channels of one element of dx. Each lane visits the taps that reach
// the element.
//
// Roofline bound: bytes, dx written once and dy and w read once; 2 flops a product. Each element of dy is read once per
// tap and input channel, from L1 and L2; these reads limit this kernel. Convolutions of more than a few products use
// the forward kernels (residue_classes.py).
#include "convolution/direct.cuh"

// The axes are depth, rows and columns. The strides, in elements, separate images or filters, channels, planes, rows
// and columns.
struct Arguments {
  const ELEMENT* w;
  const ELEMENT* dy;
  ELEMENT* dx;
  COMPUTE alpha, beta;
  long long w_step[5], dy_step[5], dx_step[5];
  int positions[3], padding[3], stride[3], dilation[3], taps[3];
  int filters;                       // per group
  int channels_last;                 // dx has channels innermost: neighbouring threads take neighbouring channels
  int flipped, log_lanes, elements;  // elements of dx
  FastDivmod extent[3], channels;    // extents of dx
  FastDivmod channels_of_group;
};

extern "C" __global__ void __launch_bounds__(256) convolution_data_gradient_direct(const Arguments a) {
  griddepcontrol_wait();
  const Element element(a.log_lanes, a.channels_last, a.channels, a.extent);
  unsigned c;
  const unsigned image = element.outer, group = a.channels_of_group.divide(element.channel, c);
  const long long first = static_cast<long long>(group) * a.filters;
  const ELEMENT* w = a.w + first * a.w_step[0] + c * a.w_step[1];
  const ELEMENT* dy = a.dy + image * a.dy_step[0] + first * a.dy_step[1];
  COMPUTE sum = 0;
  // Finds the position of dy whose tap `tap` reads this element. Returns false if the stride skips the element.
  auto meets = [&](int d, int tap, int& position) {
    const int distance = static_cast<int>(element.at[d]) + a.padding[d] - tap * a.dilation[d];
    position = distance / a.stride[d];
    return position * a.stride[d] == distance;
  };
  auto inside = [&](int d, int position) {
    return static_cast<unsigned>(position) < static_cast<unsigned>(a.positions[d]);
  };
  if (element.index < static_cast<unsigned>(a.elements)) {
    for (int r = 0; r < a.taps[0]; r++) {
      int p[3];
      if (!meets(0, r, p[0])) continue;
      for (int s = 0; s < a.taps[1]; s++) {
        if (!meets(1, s, p[1])) continue;
        for (int t = 0; t < a.taps[2]; t++) {
          if (!meets(2, t, p[2])) continue;
          const bool exists = inside(0, p[0]) && inside(1, p[1]) && inside(2, p[2]);
          const int tap[3] = {a.flipped ? a.taps[0] - 1 - r : r, a.flipped ? a.taps[1] - 1 - s : s,
                              a.flipped ? a.taps[2] - 1 - t : t};
          const ELEMENT* factor = w + (tap[0] * a.w_step[2] + tap[1] * a.w_step[3] + tap[2] * a.w_step[4]);
          const ELEMENT* value = dy + (p[0] * a.dy_step[2] + p[1] * a.dy_step[3] + p[2] * a.dy_step[4]);
#pragma unroll 4
          for (int k = element.lane; k < a.filters; k += element.lanes) {
            // Zeros outside dy must be multiplied, too: zero times an infinity of the filter is NaN.
            const COMPUTE gradient = exists ? load<COMPUTE>(value[k * a.dy_step[1]]) : COMPUTE(0);
            sum += gradient * load<COMPUTE>(factor[k * a.w_step[0]]);
          }
        }
      }
    }
  }
  sum = element.of_lanes(sum);
  if (element.index >= static_cast<unsigned>(a.elements) || element.lane) return;
  const unsigned (&at)[3] = element.at;
  ELEMENT* dx = a.dx + (image * a.dx_step[0] + element.channel * a.dx_step[1] + at[0] * a.dx_step[2] +
                        at[1] * a.dx_step[3] + at[2] * a.dx_step[4]);
  *dx = blend<COMPUTE>(a.alpha, sum, a.beta, dx);
}
