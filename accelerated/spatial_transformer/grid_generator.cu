// Grids of coordinates of an affine map (3.2.97), and their gradient (4.1.20).
//
// Forward: a thread has one pixel. Backward: a block has an image, its threads take pixels in turn, and the partial
// sums are added in the order of a fixed tree, so that results are the same bits each time.
//
// Roofline bound: bytes, two elements a pixel; a pixel takes 2 divisions and 4 fused multiply-adds forward: about 8
// bytes and 1.9 ps of float at 4.2 TB/s on an H200 (calculated, not measured). Backward few images leave most of the
// multiprocessors idle: the read of an image is as fast as one of them, 0.03 TB/s.
#include "primitives/geometry.cuh"
#include "primitives/types.cuh"

constexpr int MATRIX = 6, COORDINATES = 2, THREADS = 256;
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
  const unsigned pixel = blockIdx.x * blockDim.x + threadIdx.x;
  unsigned column, row;
  const unsigned image = a.height.divide(a.width.divide(pixel, column), row);
  const COMPUTE x = coordinate(column, a.width.divisor), y = coordinate(row, a.height.divisor);
  const ELEMENT* theta = a.in + image * MATRIX;
  Coordinates* grid = reinterpret_cast<Coordinates*>(a.out) + pixel;
  griddepcontrol_wait_before_access(theta, grid);
  if (pixel >= a.pixels) return;
  COMPUTE matrix[MATRIX];
#pragma unroll
  for (int i = 0; i < MATRIX; i++) matrix[i] = load<COMPUTE>(theta[i]);
  Coordinates result;
#pragma unroll
  for (int i = 0; i < COORDINATES; i++)
    result.item[i] = store<ELEMENT>(matrix[3 * i] * x + matrix[3 * i + 1] * y + matrix[3 * i + 2]);
  if (reinterpret_cast<uintptr_t>(grid) % alignof(Coordinates) == 0) {  // the same in all threads
    *grid = result;
  } else {
    a.out[COORDINATES * pixel] = result.item[0];
    a.out[COORDINATES * pixel + 1] = result.item[1];
  }
}

extern "C" __global__ void __launch_bounds__(THREADS) spatial_transformer_grid_backward(const Arguments a) {
  griddepcontrol_wait();
  __shared__ COMPUTE partial[MATRIX][THREADS];
  COMPUTE sum[MATRIX] = {};
  const ELEMENT* gradient = a.in + static_cast<long long>(blockIdx.x) * a.pixels * COORDINATES;
  for (unsigned pixel = threadIdx.x; pixel < a.pixels; pixel += THREADS) {
    unsigned column;
    const unsigned row = a.width.divide(pixel, column);
    const COMPUTE x = coordinate(column, a.width.divisor), y = coordinate(row, a.height.divisor);
#pragma unroll
    for (int i = 0; i < COORDINATES; i++) {
      const COMPUTE value = load<COMPUTE>(gradient[COORDINATES * pixel + i]);
      sum[3 * i] += value * x, sum[3 * i + 1] += value * y, sum[3 * i + 2] += value;
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
  if (threadIdx.x < MATRIX) a.out[blockIdx.x * MATRIX + threadIdx.x] = store<ELEMENT>(partial[threadIdx.x][0]);
}
