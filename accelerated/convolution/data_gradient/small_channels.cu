// This kernel computes gradients of an input of up to 8 channels (5.2.8) on tensor cores: half, bfloat16, or float
// where TF32 is allowed.
//
// Tiling: a tile covers 16 x 16 steps of the stride in dx. Its elements form up to four residue classes; each class has
// 8 columns of sums, one per channel. A K-block is 128 bytes of dy's channels at all pixels that meet the tile, and of
// w at all taps. A warp has four rows of 16 pixels. A fragment of dy serves every class that meets it, and a fragment
// of w serves four rows. Results pass through shared memory.
//
// Roofline bound: bytes, dx and dy once. The next bounds are the tensor cores, which compute 8 columns even for fewer
// channels, and the reads of fragments from shared memory.
#include "primitives/geometry.cuh"
#include "primitives/mma.cuh"

constexpr int TILE = 16, WARP_ROWS = TILE / (THREADS / 32), COLUMNS = 8;
constexpr int ROW_BYTES = 128, VECTOR = 16 / sizeof(ELEMENT), TILE_K = ROW_BYTES / sizeof(ELEMENT);
constexpr int STEPS = 4;      // steps of 32 bytes per K-block
constexpr int IN_FLIGHT = 8;  // vectors that a thread copies at once

struct Arguments {
  const ELEMENT* w;  // [tap][COLUMNS][filters]
  const ELEMENT* dy;
  ELEMENT* dx;
  COMPUTE alpha, beta;
  int dy_image, dy_axis[2], filters;  // strides in elements between images, rows and columns; channels of dy
  int dx_image, dx_channel, dx_axis[2];
  int extent[2], incoming[2];                // extents of dx and of dy
  int stride[2], channels, channels_last;    // stride, channels and layout of dx
  int first[2];                              // pixel of dy at the first corner of the window of pixel 0
  int window[2], taps;                       // pixels of dy that meet one step; taps of the filter
  signed char tap[MAX_WINDOW][MAX_CLASSES];  // tap of a pixel of the window in a class, or -1
  FastDivmod rows, columns, inner_columns;   // divide by tiles, and by the pixels of dy across a tile
};

// Copies rows of 128 bytes of K, from element k on. `find` returns row i's address, or nullptr for zeros.
template <class Find>
__device__ __forceinline__ void copy_rows(unsigned char* to, int rows, int k, int filters, Find find) {
  for (int start = threadIdx.x; start < rows * 8; start += IN_FLIGHT * THREADS) {
    Vector<ELEMENT, VECTOR> vectors[IN_FLIGHT];
#pragma unroll
    for (int i = 0; i < IN_FLIGHT; i++) {
      const int item = start + i * THREADS, at = k + item % 8 * VECTOR;
      const ELEMENT* from = item < rows * 8 && at < filters ? find(item / 8) : nullptr;
      vectors[i] = {};
      if (from) vectors[i] = *reinterpret_cast<const Vector<ELEMENT, VECTOR>*>(from + at);
    }
#pragma unroll
    for (int i = 0; i < IN_FLIGHT; i++) {
      const int item = start + i * THREADS;
      if (item >= rows * 8) break;
#pragma unroll
      for (int j = 0; j < VECTOR; j++) vectors[i].item[j] = round_to_tf32(vectors[i].item[j]);
      *reinterpret_cast<Vector<ELEMENT, VECTOR>*>(swizzled(to, item / 8, item % 8)) = vectors[i];
    }
  }
}

extern "C" __global__ void __launch_bounds__(THREADS) convolution_data_gradient_small_channels(const Arguments a) {
  griddepcontrol_wait();
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  unsigned row_tile, column_tile;
  const int image = a.rows.divide(a.columns.divide(blockIdx.x, column_tile), row_tile);
  const int across = a.inner_columns.divisor, down = TILE + a.window[0] - 1;
  const int first_row = row_tile * TILE + a.first[0], first_column = column_tile * TILE + a.first[1];
  unsigned char* pixels = shared_memory + (-reinterpret_cast<uintptr_t>(shared_memory) & 1023);
  unsigned char* filters = pixels + (down * across + 7) / 8 * 8 * ROW_BYTES;
  const ELEMENT* dy = a.dy + static_cast<long long>(image) * a.dy_image;

  float sums[WARP_ROWS][MAX_CLASSES][4] = {};
  for (int k = 0; k < a.filters; k += TILE_K) {
    if (k > 0) __syncthreads();
    copy_rows(pixels, down * across, k, a.filters, [&](int i) -> const ELEMENT* {
      unsigned column;
      const int row = a.inner_columns.divide(i, column) + first_row, at = column + first_column;
      const bool exists = static_cast<unsigned>(row) < static_cast<unsigned>(a.incoming[0]) &&
                          static_cast<unsigned>(at) < static_cast<unsigned>(a.incoming[1]);
      return exists ? dy + row * a.dy_axis[0] + at * a.dy_axis[1] : nullptr;
    });
    copy_rows(filters, a.taps * COLUMNS, k, a.filters,
              [&](int i) -> const ELEMENT* { return i % COLUMNS < a.channels ? a.w + i * a.filters : nullptr; });
    __syncthreads();
    for (int v = 0; v < a.window[0]; v++)
      for (int u = 0; u < a.window[1]; u++) {
        const signed char (&tap)[MAX_CLASSES] = a.tap[v * a.window[1] + u];
        unsigned left[WARP_ROWS][STEPS][4];
#pragma unroll
        for (int r = 0; r < WARP_ROWS; r++) {
          const int row = (warp * WARP_ROWS + r + v) * across + u + lane % 16;
#pragma unroll
          for (int s = 0; s < STEPS; s++) ldmatrix(left[r][s], swizzled(pixels, row, s * 2 + lane / 16));
        }
#pragma unroll
        for (int i = 0; i < MAX_CLASSES; i++) {
          if (tap[i] < 0) continue;
#pragma unroll
          for (int s = 0; s < STEPS; s += 2) {
            unsigned right[4];
            ldmatrix(right, swizzled(filters, tap[i] * COLUMNS + lane % 8, s * 2 + lane / 8));
#pragma unroll
            for (int half_step = 0; half_step < 2; half_step++) {
              const unsigned of_step[2] = {right[half_step * 2], right[half_step * 2 + 1]};
#pragma unroll
              for (int r = 0; r < WARP_ROWS; r++) mma_sync<ELEMENT>(sums[r][i], left[r][s + half_step], of_step);
            }
          }
        }
      }
  }

  // The tile of dx is [row][column][channel].
  __syncthreads();
  float* results = reinterpret_cast<float*>(pixels);
  const int width = TILE * a.stride[1], channels = a.channels;
#pragma unroll
  for (int i = 0; i < MAX_CLASSES; i++) {
    if (i >= a.stride[0] * a.stride[1]) break;
    const int row_class = i / a.stride[1], column_class = i % a.stride[1];
#pragma unroll
    for (int r = 0; r < WARP_ROWS; r++)
#pragma unroll
      for (int j = 0; j < 4; j++) {
        const int column = (lane / 4 + j / 2 * 8) * a.stride[1] + column_class, channel = lane % 4 * 2 + j % 2;
        const int row = (warp * WARP_ROWS + r) * a.stride[0] + row_class;
        if (channel < channels) results[(row * width + column) * channels + channel] = sums[r][i][j];
      }
  }
  __syncthreads();
  ELEMENT* dx = a.dx + static_cast<long long>(image) * a.dx_image;
  const int top = row_tile * TILE * a.stride[0], start = column_tile * width;
  const int rows = min(TILE * a.stride[0], a.extent[0] - top), columns = min(width, a.extent[1] - start);
  for (int row = warp; row < rows; row += THREADS / 32)
    for (int item = lane; item < columns * channels; item += 32) {
      const int column = a.channels_last ? item / channels : item % columns;
      const int channel = a.channels_last ? item % channels : item / columns;
      ELEMENT* to = dx + (top + row) * a.dx_axis[0] + (start + column) * a.dx_axis[1] + channel * a.dx_channel;
      *to = blend<COMPUTE>(a.alpha, results[(row * width + column) * channels + channel], a.beta, to);
    }
}
