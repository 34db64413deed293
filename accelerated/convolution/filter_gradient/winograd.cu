// This file computes filter gradients by Winograd (6.2.2), the transpose of y = A'((G g G') * (B' d B))A with respect
// to g: dw = G'((A dy A') * (B' x B))G. Here * multiplies by elements, and the sum is over tiles of all images.
//
// Tiles have 6 x 6 values of x. They have 4 x 4 values of dy for a filter of 3 x 3, and 2 x 2 for 5 x 5. Both are
// transformed into the workspace, [pixel in the tile][group][channel][tile]. A matrix product for each pixel in the
// tile sums over tiles, and its results are transformed back.
//
// Roofline bound: flops in float, the direct sum's divided by 4 (3 x 3) or 2.78 (5 x 5), or the bytes of the
// transforms. They write 36/16 (36/4) values for each value of x and dy once, and read them once for each tile of dw.
#include "convolution/transforms/winograd.cuh"

struct Arguments {
  const ELEMENT* x;
  const ELEMENT* dy;
  ELEMENT* dw;
  unsigned char* workspace;
  long long incoming_at, products_at;  // byte offsets in the workspace, which begins with the images
  Convolution convolution;             // forward convolution, whose y is dy
  COMPUTE alpha, beta;
  FastDivmod tile_rows, tile_columns;   // per image
  FastDivmod tiles, channels, filters;  // tiles per launch; channels and filters per group
  int first_image, groups;
  int channel_step;  // stride between channels of dw in elements; a filter's taps and channels follow each other
};

// Computes A m from the values of a tile of dy, as the forward transform weighs results.
template <class C> __device__ __forceinline__ void spread_incoming(const C (&m)[4], C (&t)[6]) {
  const C near_even = m[0] + m[2], near_odd = m[1] + m[3], far_even = m[0] + C(4) * m[2],
          far_odd = C(2) * m[1] + C(8) * m[3];
  t[0] = m[0];
  t[1] = near_even + near_odd;
  t[2] = near_even - near_odd;
  t[3] = far_even + far_odd;
  t[4] = far_even - far_odd;
  t[5] = m[3];
}
template <class C> __device__ __forceinline__ void spread_incoming(const C (&m)[2], C (&t)[6]) {
  t[0] = m[0];
  t[1] = m[0] + m[1];
  t[2] = m[0] - m[1];
  t[3] = m[0] + C(2) * m[1];
  t[4] = m[0] - C(2) * m[1];
  t[5] = m[1];
}

// Computes G' t, the sums of the values of a tile that belong to each tap.
template <class C> __device__ __forceinline__ void gather_taps(const C (&t)[6], C (&g)[3]) {
  const C near_sum = (t[1] + t[2]) * C(1.0 / 6), near_difference = (t[2] - t[1]) * C(1.0 / 6);
  const C far_sum = (t[3] + t[4]) * C(1.0 / 24), far_difference = (t[3] - t[4]) * C(1.0 / 12);
  g[0] = C(0.25) * t[0] - near_sum + far_sum;
  g[1] = near_difference + far_difference;
  g[2] = C(4) * far_sum - near_sum + t[5];
}
template <class C> __device__ __forceinline__ void gather_taps(const C (&t)[6], C (&g)[5]) {
  const C near_sum = (t[1] + t[2]) * C(1.0 / 6), near_difference = (t[2] - t[1]) * C(1.0 / 6);
  const C far_sum = (t[3] + t[4]) * C(1.0 / 24), far_difference = (t[3] - t[4]) * C(1.0 / 12);
  g[0] = C(0.25) * t[0] - near_sum + far_sum;
  g[1] = near_difference + far_difference;
  g[2] = C(4) * far_sum - near_sum;
  g[3] = near_difference + C(4) * far_difference;
  g[4] = C(16) * far_sum - near_sum + t[5];
}

// Locates a tile of OUT x OUT outputs: its image, first row and first column.
template <int OUT>
__device__ __forceinline__ unsigned locate_tile(const Arguments& a, unsigned tile, int& row, int& column) {
  unsigned tile_row, tile_column;
  const unsigned image = a.first_image + a.tile_rows.divide(a.tile_columns.divide(tile, tile_column), tile_row);
  row = tile_row * OUT, column = tile_column * OUT;
  return image;
}

template <int OUT> __device__ __forceinline__ void images_to_workspace(const Arguments& a, unsigned index) {
  const Convolution& c = a.convolution;
  unsigned tile, channel;
  const unsigned group = a.channels.divide(a.tiles.divide(index, tile), channel);
  if (group >= static_cast<unsigned>(a.groups)) return;
  int row, column;
  const unsigned image = locate_tile<OUT>(a, tile, row, column);
  const ELEMENT* x = a.x + image * c.x_pixel[0] + group * c.x_group + static_cast<long long>(channel) * c.x_channel;
  COMPUTE d[TILE][TILE], t[TILE][TILE];
  read_tile(c, x, row, column, d);
  transform_both<TILE, TILE>(d, t, [](const COMPUTE(&in)[TILE], COMPUTE(&out)[TILE]) { transform_image(in, out); });
  const long long step = static_cast<long long>(a.tiles.divisor) * a.channels.divisor * a.groups;
  write_values(t, reinterpret_cast<COMPUTE*>(a.workspace) + index, step);
}

template <int OUT> __device__ __forceinline__ void incoming_to_workspace(const Arguments& a, unsigned index) {
  const Convolution& c = a.convolution;
  unsigned tile, filter;
  const unsigned group = a.filters.divide(a.tiles.divide(index, tile), filter);
  if (group >= static_cast<unsigned>(a.groups)) return;
  int row, column;
  const unsigned image = locate_tile<OUT>(a, tile, row, column);
  const int rows = c.output[1].divisor, columns = c.output[2].divisor;
  const ELEMENT* dy = a.dy + image * c.y_pixel[0] + (group * a.filters.divisor + filter) * c.y_channel;
  COMPUTE m[OUT][OUT], t[TILE][TILE];
#pragma unroll
  for (int i = 0; i < OUT; i++)
#pragma unroll
    for (int j = 0; j < OUT; j++)
      m[i][j] = row + i < rows && column + j < columns
                    ? load<COMPUTE>(dy[(row + i) * c.y_pixel[2] + (column + j) * c.y_pixel[3]])
                    : COMPUTE(0);
  transform_both<OUT, TILE>(m, t, [](const COMPUTE(&in)[OUT], COMPUTE(&out)[TILE]) { spread_incoming(in, out); });
  const long long step = static_cast<long long>(a.tiles.divisor) * a.filters.divisor * a.groups;
  write_values(t, reinterpret_cast<COMPUTE*>(a.workspace + a.incoming_at) + index, step);
}

// The products have the layout [pixel in the tile][group][filter][channel].
template <int TAPS> __device__ __forceinline__ void products_to_filter(const Arguments& a, unsigned index) {
  unsigned channel;
  const unsigned filter = a.channels.divide(index, channel), filters = a.filters.divisor * a.groups;
  if (filter >= filters) return;
  const long long step = static_cast<long long>(filters) * a.channels.divisor;
  const COMPUTE* source = reinterpret_cast<const COMPUTE*>(a.workspace + a.products_at) + index;
  COMPUTE t[TILE][TILE], g[TAPS][TAPS];
  read_values(source, step, t);
  transform_both<TILE, TAPS>(t, g, [](const COMPUTE(&in)[TILE], COMPUTE(&out)[TAPS]) { gather_taps(in, out); });
  ELEMENT* dw = a.dw + static_cast<long long>(filter) * a.convolution.w_row + channel * a.channel_step;
#pragma unroll
  for (int i = 0; i < TAPS * TAPS; i++) {
    ELEMENT* target = dw + (a.convolution.flipped ? TAPS * TAPS - 1 - i : i);
    *target = blend<COMPUTE>(a.alpha, g[i / TAPS][i % TAPS], a.beta, target);
  }
}

extern "C" __global__ void convolution_winograd_filter_gradient_images(const Arguments a) {
  griddepcontrol_wait();
  const unsigned index = blockIdx.x * blockDim.x + threadIdx.x;
  if (a.convolution.filter[1].divisor == 3) images_to_workspace<4>(a, index);
  else images_to_workspace<2>(a, index);
}

extern "C" __global__ void convolution_winograd_filter_gradient_incoming(const Arguments a) {
  griddepcontrol_wait();
  const unsigned index = blockIdx.x * blockDim.x + threadIdx.x;
  if (a.convolution.filter[1].divisor == 3) incoming_to_workspace<4>(a, index);
  else incoming_to_workspace<2>(a, index);
}

extern "C" __global__ void convolution_winograd_filter_gradient_results(const Arguments a) {
  griddepcontrol_wait();
  const unsigned index = blockIdx.x * blockDim.x + threadIdx.x;
  if (a.convolution.filter[1].divisor == 3) products_to_filter<3>(a, index);
  else products_to_filter<5>(a, index);
}
