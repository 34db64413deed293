// This file generates grids of coordinates from an affine map (3.2.97) and computes their gradient (4.1.20).
//
// Forward, a thread owns PIXELS neighbouring pixels of several images. Backward, a cluster of blocks owns one image.
// Its threads stride over the pixels with READS reads in flight. Partial sums are added in a fixed tree, then over
// the blocks, so results are bitwise reproducible.
//
// The roofline bound is bytes, two elements per pixel. A pixel takes 1 to 2 divisions and 4 fused multiply-adds. In
// float this is about 8 bytes and 1.9 ps at 4.2 TB/s on an H200 (calculated, not measured).
#include "primitives/cluster.cuh"
#include "primitives/geometry.cuh"
#include "primitives/types.cuh"

constexpr int MATRIX = 6;       // elements of theta per image
constexpr int COORDINATES = 2;  // elements per pixel of the grid
constexpr int THREADS = 256;    // per block
constexpr int READS = 4;        // in flight per thread
using Coordinates = Vector<ELEMENT, COORDINATES>;

struct Arguments {
  const ELEMENT* in;  // theta forward, dgrid backward
  ELEMENT* out;       // grid forward, dtheta backward
  unsigned pixels;    // pixels per image
  unsigned images;
  FastDivmod width, height, blocks;  // blocks: per image, forward only
};

// Returns the coordinate of a pixel, from -1 to 1, or -1 where only one pixel exists.
__device__ __forceinline__ COMPUTE coordinate(unsigned pixel, unsigned size) {
  return COMPUTE(2 * pixel) / COMPUTE(size > 1 ? size - 1 : 1) - COMPUTE(1);
}

// Coordinates are the same for every image, so a thread computes them once for IMAGES images.
extern "C" __global__ void __launch_bounds__(THREADS) spatial_transformer_grid_forward(const Arguments a) {
  griddepcontrol_wait_deferred();
  __shared__ __align__(16) COMPUTE matrices[IMAGES][8];
  unsigned block, column;
  const unsigned image = a.blocks.divide(blockIdx.x, block) * IMAGES;
  const unsigned first = (block * blockDim.x + threadIdx.x) * PIXELS;
  const unsigned images = min(a.images - image, static_cast<unsigned>(IMAGES));
  const unsigned row = a.width.divide(first, column);
  COMPUTE x[PIXELS], y[PIXELS];
#pragma unroll
  for (int p = 0; p < PIXELS; p++) {
    const bool next = column + p >= a.width.divisor;  // A row has at least PIXELS pixels.
    x[p] = coordinate(column + p - (next ? a.width.divisor : 0), a.width.divisor);
    y[p] = p > 0 && !next ? y[0] : coordinate(row + next, a.height.divisor);
    keep_in_register(x[p]), keep_in_register(y[p]);  // The divisions precede the wait.
  }
  griddepcontrol_wait_before_access(a.in);
  const ELEMENT* theta = a.in + image * MATRIX;
  if (const unsigned i = threadIdx.x; IMAGES > 1 && i < images * MATRIX)
    matrices[i / MATRIX][i % MATRIX] = load<COMPUTE>(theta[i]);
  if (IMAGES > 1) __syncthreads();
  if (first >= a.pixels) return;
  using All = Vector<ELEMENT, PIXELS * COORDINATES>;
  ELEMENT* grid = a.out + COORDINATES * (image * a.pixels + first);
#pragma unroll
  for (unsigned n = 0; n < IMAGES; n++, grid += COORDINATES * a.pixels) {
    if (n >= images) break;
    COMPUTE matrix[MATRIX];
#pragma unroll
    for (int m = 0; m < MATRIX; m++) matrix[m] = IMAGES > 1 ? matrices[n][m] : load<COMPUTE>(theta[m]);
    All all;
#pragma unroll
    for (int p = 0; p < PIXELS; p++) {
#pragma unroll
      for (int i = 0; i < COORDINATES; i++)
        all.item[COORDINATES * p + i] =
            store<ELEMENT>(matrix[3 * i] * x[p] + matrix[3 * i + 1] * y[p] + matrix[3 * i + 2]);
    }
    // The test is uniform over all threads, since planes consist of full vectors.
    if (reinterpret_cast<uintptr_t>(a.out) % alignof(All) == 0) *reinterpret_cast<All*>(grid) = all;
    else
#pragma unroll
      for (int i = 0; i < PIXELS * COORDINATES; i++) grid[i] = all.item[i];
  }
}

extern "C" __global__ void __launch_bounds__(THREADS) CLUSTER_DIMS_X
    spatial_transformer_grid_backward(const Arguments a) {
  griddepcontrol_wait();
  __shared__ COMPUTE partial[MATRIX][THREADS], of_block[CLUSTER_SIZE][MATRIX];
  if (CLUSTER_SIZE > 1) cluster_arrive_relaxed();
  COMPUTE sum[MATRIX] = {};
  const unsigned image = blockIdx.x / CLUSTER_SIZE, step = CLUSTER_SIZE * THREADS;
  const ELEMENT* gradient = a.in + static_cast<long long>(image) * a.pixels * COORDINATES;
  const bool aligned = reinterpret_cast<uintptr_t>(gradient) % alignof(Coordinates) == 0;  // uniform over all threads
  for (unsigned first = cluster_rank() * THREADS + threadIdx.x; first < a.pixels; first += READS * step) {
    Coordinates read[READS];
#pragma unroll
    for (int u = 0; u < READS; u++) {
      const unsigned pixel = first + u * step;
      if (pixel >= a.pixels) continue;
      if (aligned) read[u] = *reinterpret_cast<const Coordinates*>(gradient + COORDINATES * pixel);
      else read[u] = {{gradient[COORDINATES * pixel], gradient[COORDINATES * pixel + 1]}};
    }
#pragma unroll
    for (int u = 0; u < READS; u++) {
      const unsigned pixel = first + u * step;
      if (pixel >= a.pixels) continue;
      unsigned column;
      const unsigned row = a.width.divide(pixel, column);
      const COMPUTE x = coordinate(column, a.width.divisor), y = coordinate(row, a.height.divisor);
#pragma unroll
      for (int i = 0; i < COORDINATES; i++) {
        const COMPUTE value = load<COMPUTE>(read[u].item[i]);
        sum[3 * i] += value * x, sum[3 * i + 1] += value * y, sum[3 * i + 2] += value;
      }
    }
  }
#pragma unroll
  for (int i = 0; i < MATRIX; i++) partial[i][threadIdx.x] = sum[i];
  for (int distance = THREADS / 2; distance > 0; distance /= 2) {
    __syncthreads();
    if (threadIdx.x < distance) {
#pragma unroll
      for (int i = 0; i < MATRIX; i++) partial[i][threadIdx.x] += partial[i][threadIdx.x + distance];
    }
  }
  __syncthreads();
  COMPUTE total = threadIdx.x < MATRIX ? partial[threadIdx.x][0] : COMPUTE(0);
  if (CLUSTER_SIZE > 1) {
    cluster_wait();  // All blocks run.
    if (threadIdx.x < MATRIX) store_to_cluster_rank(&of_block[cluster_rank()][threadIdx.x], 0, total);
    cluster_arrive();
    cluster_wait();
    if (cluster_rank() > 0 || threadIdx.x >= MATRIX) return;
    for (int block = 1; block < CLUSTER_SIZE; block++) total += of_block[block][threadIdx.x];
  }
  if (threadIdx.x < MATRIX) a.out[image * MATRIX + threadIdx.x] = store<ELEMENT>(total);
}
