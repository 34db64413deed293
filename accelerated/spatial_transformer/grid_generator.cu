// Grids of coordinates of an affine map (3.2.97), and their gradient (4.1.20).
//
// Forward: a thread has PIXELS neighbours. Backward: a cluster of blocks has an image, its threads take every so many
// pixels, READS of them in flight, and the partial sums are added in the order of a fixed tree, then of the blocks, so
// that results are the same bits each time.
//
// Roofline bound: bytes, two elements a pixel; a pixel takes 1 to 2 divisions and 4 fused multiply-adds: about 8 bytes
// and 1.9 ps of float at 4.2 TB/s on an H200 (calculated, not measured).
#include "primitives/cluster.cuh"
#include "primitives/geometry.cuh"
#include "primitives/types.cuh"

constexpr int MATRIX = 6, COORDINATES = 2, THREADS = 256, READS = 4;
using Coordinates = Pack<ELEMENT, COORDINATES>;

struct Arguments {
  const ELEMENT* in;  // theta, or dgrid
  ELEMENT* out;       // grid, or dtheta
  unsigned pixels;    // of all images forward, of an image backward
  FastDivmod width, height;
};

// The coordinate of a pixel, from -1 to 1; -1 where there is one pixel.
__device__ __forceinline__ COMPUTE coordinate(unsigned pixel, unsigned size) {
  return COMPUTE(2 * pixel) / COMPUTE(size > 1 ? size - 1 : 1) - COMPUTE(1);
}

extern "C" __global__ void __launch_bounds__(THREADS) spatial_transformer_grid_forward(const Arguments a) {
  griddepcontrol_wait_deferred();
  const unsigned first = (blockIdx.x * blockDim.x + threadIdx.x) * PIXELS;
  unsigned column, row, image = a.height.divide(a.width.divide(first, column), row);
  const COMPUTE x = coordinate(column, a.width.divisor);
  COMPUTE y = coordinate(row, a.height.divisor), matrix[MATRIX];
  ELEMENT* const grid = a.out + COORDINATES * first;
  griddepcontrol_wait_before_access(a.in + image * MATRIX, grid);
  if (first >= a.pixels) return;
  auto read_matrix = [&] {
#pragma unroll
    for (int i = 0; i < MATRIX; i++) matrix[i] = load<COMPUTE>(a.in[image * MATRIX + i]);
  };
  read_matrix();
  ELEMENT result[PIXELS * COORDINATES];
#pragma unroll
  for (int p = 0; p < PIXELS; p++) {
    if (first + p >= a.pixels) break;
    if (p > 0 && ++column == a.width.divisor) {
      column = 0;
      if (++row == a.height.divisor) {
        row = 0, image++;
        read_matrix();
      }
      y = coordinate(row, a.height.divisor);
    }
    const COMPUTE at = p == 0 ? x : coordinate(column, a.width.divisor);
#pragma unroll
    for (int i = 0; i < COORDINATES; i++)
      result[COORDINATES * p + i] = store<ELEMENT>(matrix[3 * i] * at + matrix[3 * i + 1] * y + matrix[3 * i + 2]);
  }
  using All = Pack<ELEMENT, PIXELS * COORDINATES>;
  if (first + PIXELS <= a.pixels && reinterpret_cast<uintptr_t>(grid) % alignof(All) == 0) {
    All all;
#pragma unroll
    for (int i = 0; i < PIXELS * COORDINATES; i++) all.item[i] = result[i];
    *reinterpret_cast<All*>(grid) = all;
  } else {
#pragma unroll
    for (int i = 0; i < PIXELS * COORDINATES; i++)
      if (first + i / COORDINATES < a.pixels) grid[i] = result[i];
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
  const bool aligned = reinterpret_cast<uintptr_t>(gradient) % alignof(Coordinates) == 0;  // the same in all threads
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
    cluster_wait();  // all blocks run
    if (threadIdx.x < MATRIX) store_to_cluster_rank(&of_block[cluster_rank()][threadIdx.x], 0, total);
    cluster_arrive();
    cluster_wait();
    if (cluster_rank() > 0 || threadIdx.x >= MATRIX) return;
    for (int block = 1; block < CLUSTER_SIZE; block++) total += of_block[block][threadIdx.x];
  }
  if (threadIdx.x < MATRIX) a.out[image * MATRIX + threadIdx.x] = store<ELEMENT>(total);
}
