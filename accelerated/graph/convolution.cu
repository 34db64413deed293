// These kernels compute convolutions of a graph (9.2.10 to 9.2.12) with any strides, paddings and groups: the response,
// the image gradient and the filter gradient.
//
// Each thread sums the products of one output in the order of the loops.
//
// Roofline bound: flops, 2 for each product; each byte is read once. The kernel reads its operands from L1 and L2 as
// often as it uses them. It is the generic fallback.
#include "graph/stored.cuh"

constexpr int SPATIAL = 6;

struct Tensor {
  long long strides[3];  // (N, G, C) of an image, (G, K, C) of a filter, (N, G, K) of a response
  long long spatial[SPATIAL];
  int extents[SPATIAL];
  int type;
};

struct Arguments {
  const void* first;
  const void* second;
  void* result;
  COMPUTE alpha, beta;
  Tensor image, filter, response;
  int padding[SPATIAL], stride[SPATIAL], dilation[SPATIAL];
  int images, groups, channels, filters;
  int pixels, taps, responses;  // number of spatial elements of each tensor
  int count, flipped;
};

struct Position {
  int at[SPATIAL];
  long long offset;
};

// Returns the position of a spatial element, and its offset, from its index.
__device__ __forceinline__ Position position(const Tensor& tensor, int index) {
  Position found;
  found.offset = 0;
#pragma unroll
  for (int d = SPATIAL - 1; d >= 0; d--) {
    found.at[d] = index % tensor.extents[d];
    index /= tensor.extents[d];
    found.offset += found.at[d] * tensor.spatial[d];
  }
  return found;
}

// Returns a tap's position in the window, and the offset of its filter value, which a convolution flips.
__device__ __forceinline__ Position tap(const Arguments& a, int index) {
  Position found = position(a.filter, index);
  if (!a.flipped) return found;
  found.offset = 0;
#pragma unroll
  for (int d = 0; d < SPATIAL; d++) found.offset += (a.filter.extents[d] - 1 - found.at[d]) * a.filter.spatial[d];
  return found;
}

__device__ __forceinline__ void finish(const Arguments& a, const Tensor& tensor, long long offset, COMPUTE sum) {
  COMPUTE value = a.alpha * sum;
  if (a.beta != COMPUTE(0)) value += a.beta * load_stored(a.result, offset, tensor.type);
  store_stored(a.result, offset, tensor.type, value);
}

// Finds the offset of the pixel under a tap. Returns false in the padding.
__device__ __forceinline__ bool meets(const Arguments& a, const Position& response, const Position& tap,
                                      long long& offset) {
  bool inside = true;
  offset = 0;
#pragma unroll
  for (int d = 0; d < SPATIAL; d++) {
    const int at = response.at[d] * a.stride[d] + tap.at[d] * a.dilation[d] - a.padding[d];
    inside = inside && at >= 0 && at < a.image.extents[d];
    offset += at * a.image.spatial[d];
  }
  return inside;
}

extern "C" __global__ void __launch_bounds__(128, 4) graph_convolution_forward(const Arguments a) {
  griddepcontrol_wait();
  int index = blockIdx.x * blockDim.x + threadIdx.x;
  if (index >= a.count) return;
  const Position response = position(a.response, index % a.responses);
  index /= a.responses;
  const int filter = index % a.filters, group = index / a.filters % a.groups, image = index / a.filters / a.groups;
  const long long pixels = image * a.image.strides[0] + group * a.image.strides[1];
  const long long weights = group * a.filter.strides[0] + filter * a.filter.strides[1];
  COMPUTE sum = 0;
  for (int t = 0; t < a.taps; t++) {
    const Position at = tap(a, t);
    long long pixel;
    const bool inside = meets(a, response, at, pixel);
    for (int c = 0; c < a.channels; c++) {
      // Padding must be multiplied, too: zero times an infinity of the filter is NaN.
      const COMPUTE x =
          inside ? load_stored(a.first, pixels + pixel + c * a.image.strides[2], a.image.type) : COMPUTE(0);
      sum += x * load_stored(a.second, weights + at.offset + c * a.filter.strides[2], a.filter.type);
    }
  }
  const Tensor& y = a.response;
  finish(a, y, image * y.strides[0] + group * y.strides[1] + filter * y.strides[2] + response.offset, sum);
}

extern "C" __global__ void __launch_bounds__(128, 4) graph_convolution_backward_data(const Arguments a) {
  griddepcontrol_wait();
  int index = blockIdx.x * blockDim.x + threadIdx.x;
  if (index >= a.count) return;
  const Position pixel = position(a.image, index % a.pixels);
  index /= a.pixels;
  const int channel = index % a.channels, group = index / a.channels % a.groups, image = index / a.channels / a.groups;
  const long long weights = group * a.filter.strides[0] + channel * a.filter.strides[2];
  const long long responses = image * a.response.strides[0] + group * a.response.strides[1];
  COMPUTE sum = 0;
  for (int t = 0; t < a.taps; t++) {
    const Position at = tap(a, t);
    bool meets = true, inside = true;
    long long offset = 0;
#pragma unroll
    for (int d = 0; d < SPATIAL; d++) {
      const int distance = pixel.at[d] + a.padding[d] - at.at[d] * a.dilation[d], output = distance / a.stride[d];
      meets = meets && output * a.stride[d] == distance;
      inside = inside && output >= 0 && output < a.response.extents[d];
      offset += output * a.response.spatial[d];
    }
    if (!meets) continue;
    for (int k = 0; k < a.filters; k++) {
      // Values outside of the response must be multiplied, too: zero times an infinity of the filter is NaN.
      const COMPUTE dy =
          inside ? load_stored(a.second, responses + offset + k * a.response.strides[2], a.response.type) : COMPUTE(0);
      sum += load_stored(a.first, weights + at.offset + k * a.filter.strides[1], a.filter.type) * dy;
    }
  }
  const Tensor& dx = a.image;
  finish(a, dx, image * dx.strides[0] + group * dx.strides[1] + channel * dx.strides[2] + pixel.offset, sum);
}

extern "C" __global__ void __launch_bounds__(128, 4) graph_convolution_backward_filter(const Arguments a) {
  griddepcontrol_wait();
  int index = blockIdx.x * blockDim.x + threadIdx.x;
  if (index >= a.count) return;
  const Position at = tap(a, index % a.taps);
  index /= a.taps;
  const int channel = index % a.channels, filter = index / a.channels % a.filters;
  const int group = index / a.channels / a.filters;
  const long long pixels = group * a.image.strides[1] + channel * a.image.strides[2];
  const long long responses = group * a.response.strides[1] + filter * a.response.strides[2];
  COMPUTE sum = 0;
  for (int r = 0; r < a.responses; r++) {
    const Position response = position(a.response, r);
    long long pixel;
    const bool inside = meets(a, response, at, pixel);
    for (int n = 0; n < a.images; n++) {
      const COMPUTE x =
          inside ? load_stored(a.first, pixels + pixel + n * a.image.strides[0], a.image.type) : COMPUTE(0);
      sum += x * load_stored(a.second, responses + response.offset + n * a.response.strides[0], a.response.type);
    }
  }
  const Tensor& dw = a.filter;
  finish(a, dw, group * dw.strides[0] + filter * dw.strides[1] + channel * dw.strides[2] + at.offset, sum);
}
