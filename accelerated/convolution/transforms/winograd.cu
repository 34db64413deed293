// This file computes Winograd convolutions, y = A'((G g G') * (B' d B))A (Lavin and Gray 2015). Here * multiplies by
// elements, and the sum is over channels.
//
// The transformed images and the products are in the workspace, and implicit_gemm/simt.cu multiplies them. Tiles have 6
// x 6 values. F(4 x 4, 3 x 3) and F(2 x 2, 5 x 5) therefore share the transform of the image.
//
// Roofline bound: flops, the direct sum's divided by 4 (3 x 3) or 2.78 (5 x 5), at 67 TFLOP/s in float. The transforms
// read and write 36/16 (36/4 for 5 x 5) values per output. Bytes are the bound below about 64 channels.
#include "convolution/transforms/winograd.cuh"

struct Arguments : Operands<ELEMENT> {
  unsigned char* workspace;
  long long images_at, products_at;  // byte offsets in the workspace, which begins with the filters
  Convolution convolution;
  Epilogue epilogue;
  FastDivmod tile_rows, tile_columns;   // per image
  FastDivmod tiles, channels, filters;  // tiles per launch; channels and filters per group
  int first_image, groups;
  int x_channels_last, y_channels_last;  // whether channels of transformed tensors are innermost
  int filters_last;                      // whether transformed filters have filters innermost
};

// --- Transforms of one row or column ---

template <class C> __device__ __forceinline__ void transform_filter(const C (&g)[3], C (&t)[6]) {
  const C near = (g[0] + g[2]) * C(-1.0 / 6), far = g[0] * C(1.0 / 24) + g[2] * C(1.0 / 6);
  t[0] = C(0.25) * g[0];
  t[1] = near - g[1] * C(1.0 / 6);
  t[2] = near + g[1] * C(1.0 / 6);
  t[3] = far + g[1] * C(1.0 / 12);
  t[4] = far - g[1] * C(1.0 / 12);
  t[5] = g[2];
}
template <class C> __device__ __forceinline__ void transform_filter(const C (&g)[5], C (&t)[6]) {
  const C near_even = g[0] + g[2] + g[4], near_odd = g[1] + g[3];
  const C far_even = g[0] + C(4) * g[2] + C(16) * g[4], far_odd = C(2) * g[1] + C(8) * g[3];
  t[0] = C(0.25) * g[0];
  t[1] = (near_even + near_odd) * C(-1.0 / 6);
  t[2] = (near_even - near_odd) * C(-1.0 / 6);
  t[3] = (far_even + far_odd) * C(1.0 / 24);
  t[4] = (far_even - far_odd) * C(1.0 / 24);
  t[5] = g[4];
}

template <class C> __device__ __forceinline__ void transform_product(const C (&m)[6], C (&t)[4]) {
  const C near_sum = m[1] + m[2], near_difference = m[1] - m[2], far_sum = m[3] + m[4], far_difference = m[3] - m[4];
  t[0] = m[0] + near_sum + far_sum;
  t[1] = near_difference + C(2) * far_difference;
  t[2] = near_sum + C(4) * far_sum;
  t[3] = near_difference + C(8) * far_difference + m[5];
}
template <class C> __device__ __forceinline__ void transform_product(const C (&m)[6], C (&t)[2]) {
  t[0] = m[0] + (m[1] + m[2]) + (m[3] + m[4]);
  t[1] = (m[1] - m[2]) + C(2) * (m[3] - m[4]) + m[5];
}

// --- Functions that the kernels share ---

// Returns the taps of a filter in the order of a cross-correlation.
template <int TAPS>
__device__ __forceinline__ void read_filter(const Convolution& c, const ELEMENT* w, long long filter, unsigned channel,
                                            COMPUTE (&g)[TAPS][TAPS]) {
  const ELEMENT* taps = w + filter * c.w_row + channel * (TAPS * TAPS);
#pragma unroll
  for (int r = 0; r < TAPS; r++)
#pragma unroll
    for (int s = 0; s < TAPS; s++)
      g[r][s] = load<COMPUTE>(taps[c.flipped ? TAPS * TAPS - 1 - (r * TAPS + s) : r * TAPS + s]);
}

// Writes OUT x OUT results from row and column on, where y has them.
template <int OUT>
__device__ __forceinline__ void write_tile(const Arguments& a, unsigned image, int row, int column, unsigned channel,
                                           const COMPUTE (&results)[OUT][OUT]) {
  const Convolution& c = a.convolution;
  const int rows = c.output[1].divisor, columns = c.output[2].divisor;
#pragma unroll
  for (int i = 0; i < OUT; i++) {
    if (row + i >= rows) continue;
    const int count = columns - column < OUT ? columns - column : OUT;
    const long long offset =
        image * c.y_pixel[0] + (row + i) * c.y_pixel[2] + column * c.y_pixel[3] + channel * c.y_channel;
    finish<OUT, COMPUTE>(a.epilogue, a.bias, a.prior, a.y, offset, c.y_pixel[3], count, channel, 0, results[i]);
  }
}

__device__ __forceinline__ unsigned split_tile(const Arguments& a, unsigned tile, unsigned& tile_row,
                                               unsigned& tile_column) {
  return a.first_image + a.tile_rows.divide(a.tile_columns.divide(tile, tile_column), tile_row);
}

// --- Kernels: the layout is [pixel in the tile][group][tile][channel], or channels before tiles ---

template <int TAPS> __device__ __forceinline__ void filters_to_workspace(const Arguments& a, unsigned index) {
  unsigned channel, filter;
  const unsigned filters = a.filters.divisor * a.groups;
  if (a.filters_last) {
    const unsigned group = a.channels.divide(a.filters.divide(index, filter), channel);
    filter += group * a.filters.divisor;
  } else {
    filter = a.channels.divide(index, channel);
  }
  if (filter >= filters) return;
  COMPUTE g[TAPS][TAPS], t[TILE][TILE];
  read_filter(a.convolution, a.w, filter, channel, g);
  transform_both<TAPS, TILE>(g, t, [](const COMPUTE(&in)[TAPS], COMPUTE(&out)[TILE]) { transform_filter(in, out); });
  const long long step = static_cast<long long>(filters) * a.channels.divisor;
  write_values(t, reinterpret_cast<COMPUTE*>(a.workspace) + index, step);
}

extern "C" __global__ void convolution_winograd_filters(const Arguments a) {
  griddepcontrol_wait();
  const unsigned index = blockIdx.x * blockDim.x + threadIdx.x;
  if (a.convolution.filter[1].divisor == 3) filters_to_workspace<3>(a, index);
  else filters_to_workspace<5>(a, index);
}

extern "C" __global__ void convolution_winograd_images(const Arguments a) {
  griddepcontrol_wait();
  const Convolution& c = a.convolution;
  unsigned tile, channel, tile_row, tile_column;
  const unsigned index = blockIdx.x * blockDim.x + threadIdx.x;
  const unsigned group = a.x_channels_last ? a.tiles.divide(a.channels.divide(index, channel), tile)
                                           : a.channels.divide(a.tiles.divide(index, tile), channel);
  if (group >= a.groups) return;
  const unsigned image = split_tile(a, tile, tile_row, tile_column);
  const int outputs = TILE + 1 - c.filter[1].divisor;
  const ELEMENT* x = a.x + image * c.x_pixel[0] + group * c.x_group + static_cast<long long>(channel) * c.x_channel;
  COMPUTE d[TILE][TILE], t[TILE][TILE];
  read_tile(c, x, tile_row * outputs, tile_column * outputs, d);
  transform_both<TILE, TILE>(d, t, [](const COMPUTE(&in)[TILE], COMPUTE(&out)[TILE]) { transform_image(in, out); });
  const long long step = static_cast<long long>(a.tiles.divisor) * a.channels.divisor * a.groups;
  write_values(t, reinterpret_cast<COMPUTE*>(a.workspace + a.images_at) + index, step);
}

template <int OUT> __device__ __forceinline__ void products_from_workspace(const Arguments& a, unsigned index) {
  unsigned tile, filter, tile_row, tile_column;
  const unsigned group = a.y_channels_last ? a.tiles.divide(a.filters.divide(index, filter), tile)
                                           : a.filters.divide(a.tiles.divide(index, tile), filter);
  if (group >= a.groups) return;
  const unsigned image = split_tile(a, tile, tile_row, tile_column);
  const COMPUTE* source = reinterpret_cast<const COMPUTE*>(a.workspace + a.products_at) + index;
  const long long step = static_cast<long long>(a.tiles.divisor) * a.filters.divisor * a.groups;
  COMPUTE m[TILE][TILE], results[OUT][OUT];
  read_values(source, step, m);
  transform_both<TILE, OUT>(m, results,
                            [](const COMPUTE(&in)[TILE], COMPUTE(&out)[OUT]) { transform_product(in, out); });
  write_tile<OUT>(a, image, tile_row * OUT, tile_column * OUT, group * a.filters.divisor + filter, results);
}

extern "C" __global__ void convolution_winograd_results(const Arguments a) {
  griddepcontrol_wait();
  const unsigned index = blockIdx.x * blockDim.x + threadIdx.x;
  if (a.convolution.filter[1].divisor == 3) products_from_workspace<4>(a, index);
  else products_from_workspace<2>(a, index);
}
