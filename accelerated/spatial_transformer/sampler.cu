// Bilinear sampling at a grid of coordinates (3.2.98), and its gradients (4.1.21).
//
// Forward: a thread has one output pixel and CHANNELS channels of it. Gradient of the grid: one thread has an output
// pixel, or several its channels in turn; sums are taken in one order. Gradient of x: a block has a tile of 16 x 16
// input pixels and CHANNELS channels; it looks at all output pixels of its image, 256 at a time, keeps those between
// whose corners and the tile there is one in common in their order, and each thread adds those that its pixel is a
// corner of: the same order, the same bits.
//
// Roofline bound: bytes, forward 1 element read and 1 written (the four corners come from L1) and the grid once for
// CHANNELS channels: 1.9 ps of float at 4.2 TB/s on an H200 (calculated, not measured). The gradient of x takes as many
// looks at the grid as there are tiles: h w / 256 rounds of some 100 instructions a block, and about 300 comparisons a
// pixel.
#include "primitives/geometry.cuh"
#include "primitives/types.cuh"

constexpr int CHANNELS = 8, TILE = 16, THREADS = TILE * TILE, WARPS = THREADS / 32;

struct Strides {
  int image, channel, row, column;
};

struct Shape {  // of the input and of the transformed tensor, both of these images and channels
  int channels, height, width;
  FastDivmod out_width, out_height;
};

// The pixels between which a sample lies: `row` and `column` are the first ones.
struct Cell {
  int row, column;
  COMPUTE below, right;  // how far it is behind them
  bool sound;            // the coordinates are finite numbers

  __device__ __forceinline__ Cell(const ELEMENT* coordinates, const Shape& shape) {
    const COMPUTE x = load<COMPUTE>(coordinates[0]), y = load<COMPUTE>(coordinates[1]);
    sound = x - x == COMPUTE(0) && y - y == COMPUTE(0);
    column = first(x, shape.width, right), row = first(y, shape.height, below);
  }
  // Beyond the input it is all the same how far: no integer overflows.
  static __device__ __forceinline__ int first(COMPUTE coordinate, int size, COMPUTE& behind) {
    const COMPUTE at = (coordinate + COMPUTE(1)) * (COMPUTE(size - 1) / COMPUTE(2));
    const COMPUTE near = fmin(fmax(at, COMPUTE(-2)), COMPUTE(size + 1)), before = floor(near);
    behind = near - before;
    return static_cast<int>(before);
  }
  __device__ __forceinline__ COMPUTE weight(int below_it, int right_of_it) const {
    return (below_it ? below : COMPUTE(1) - below) * (right_of_it ? right : COMPUTE(1) - right);
  }
};

// The four corners of a cell in an image: offsets, and which of them lie inside.
struct Corners {
  int offset[2][2];
  bool inside[2][2];
  __device__ __forceinline__ Corners(const Cell& cell, const Shape& shape, const Strides& strides, int image) {
#pragma unroll
    for (int i = 0; i < 2; i++) {
#pragma unroll
      for (int j = 0; j < 2; j++) {
        const int row = cell.row + i, column = cell.column + j;
        inside[i][j] = row >= 0 && row < shape.height && column >= 0 && column < shape.width;
        offset[i][j] = image * strides.image + row * strides.row + column * strides.column;
      }
    }
  }
  __device__ __forceinline__ COMPUTE value(const ELEMENT* x, int i, int j) const {
    return inside[i][j] ? load<COMPUTE>(x[offset[i][j]]) : COMPUTE(0);
  }
};

struct ForwardArguments {
  const ELEMENT* x;
  const ELEMENT* grid;
  ELEMENT* y;
  COMPUTE alpha, beta;
  Shape shape;
  Strides in, out;
  unsigned threads;
  FastDivmod pixels, groups;  // output pixels of all images; groups of channels
  int interleaved;            // channels lie side by side: neighbouring threads take neighbours
};

extern "C" __global__ void __launch_bounds__(THREADS) spatial_transformer_sampler_forward(const ForwardArguments a) {
  griddepcontrol_wait_deferred();
  const unsigned thread = blockIdx.x * blockDim.x + threadIdx.x;
  unsigned pixel, group, row, column;
  if (a.interleaved) pixel = a.groups.divide(thread, group);
  else group = a.pixels.divide(thread, pixel);
  const unsigned image = a.shape.out_height.divide(a.shape.out_width.divide(pixel, column), row);
  const int step = a.interleaved ? a.groups.divisor : 1, first = a.interleaved ? group : group * CHANNELS;
  const ELEMENT* coordinates = a.grid + 2 * pixel;
  griddepcontrol_wait_before_access(coordinates);
  if (thread >= a.threads) return;
  const Cell cell(coordinates, a.shape);
  const Corners corners(cell, a.shape, a.in, image);
  ELEMENT* y = a.y + (image * a.out.image + row * a.out.row + column * a.out.column);
#pragma unroll
  for (int i = 0; i < CHANNELS; i++) {
    const int channel = first + i * step;
    if (channel >= a.shape.channels) break;
    const ELEMENT* x = a.x + channel * a.in.channel;
    COMPUTE sum = 0;
#pragma unroll
    for (int corner = 0; corner < 4; corner++)
      sum += cell.weight(corner / 2, corner % 2) * corners.value(x, corner / 2, corner % 2);
    ELEMENT* result = y + channel * a.out.channel;
    *result = blend(a.alpha, cell.sound ? sum : COMPUTE(NAN), a.beta, result);
  }
}

struct GridArguments {
  const ELEMENT* x;
  const ELEMENT* dy;
  const ELEMENT* grid;
  ELEMENT* dgrid;
  COMPUTE alpha, beta;
  Shape shape;
  Strides in, out;
  unsigned pixels;
  int slices;  // threads of a pixel, a power of two
};

extern "C" __global__ void __launch_bounds__(THREADS) spatial_transformer_sampler_gradient_grid(const GridArguments a) {
  griddepcontrol_wait_deferred();
  __shared__ COMPUTE partial[2][THREADS];
  const int width = THREADS / a.slices, of_block = threadIdx.x % width, slice = threadIdx.x / width;
  const unsigned pixel = blockIdx.x * width + of_block;
  unsigned row, column;
  const unsigned image = a.shape.out_height.divide(a.shape.out_width.divide(pixel, column), row);
  const ELEMENT* coordinates = a.grid + 2 * pixel;
  ELEMENT* result = a.dgrid + 2 * pixel;
  griddepcontrol_wait_before_access(coordinates, result);
  COMPUTE along_row = 0, along_column = 0;
  bool sound = true;
  if (pixel < a.pixels) {
    const Cell cell(coordinates, a.shape);
    const Corners corners(cell, a.shape, a.in, image);
    const ELEMENT* dy = a.dy + (image * a.out.image + row * a.out.row + column * a.out.column);
    sound = cell.sound;
    for (int channel = slice; channel < a.shape.channels; channel += a.slices) {
      const ELEMENT* x = a.x + channel * a.in.channel;
      COMPUTE value[2][2];
#pragma unroll
      for (int corner = 0; corner < 4; corner++)
        value[corner / 2][corner % 2] = corners.value(x, corner / 2, corner % 2);
      const COMPUTE gradient = load<COMPUTE>(dy[channel * a.out.channel]);
      along_row += gradient *
                   ((COMPUTE(1) - cell.below) * (value[0][1] - value[0][0]) + cell.below * (value[1][1] - value[1][0]));
      along_column += gradient * ((COMPUTE(1) - cell.right) * (value[1][0] - value[0][0]) +
                                  cell.right * (value[1][1] - value[0][1]));
    }
  }
  if (a.slices > 1) {
    partial[0][threadIdx.x] = along_row, partial[1][threadIdx.x] = along_column;
    __syncthreads();
    for (int other = 1; other < a.slices && slice == 0; other++) {
      along_row += partial[0][other * width + of_block];
      along_column += partial[1][other * width + of_block];
    }
  }
  if (slice > 0 || pixel >= a.pixels) return;
  along_row *= COMPUTE(a.shape.width - 1) / COMPUTE(2), along_column *= COMPUTE(a.shape.height - 1) / COMPUTE(2);
  result[0] = blend(a.alpha, sound ? along_row : COMPUTE(NAN), a.beta, result);
  result[1] = blend(a.alpha, sound ? along_column : COMPUTE(NAN), a.beta, result + 1);
}

struct InputArguments {
  const ELEMENT* dy;
  const ELEMENT* grid;
  ELEMENT* dx;
  COMPUTE alpha, beta;
  Shape shape;
  Strides in, out;                     // of dx, of dy
  FastDivmod tiles, tile_row, groups;  // of an image, of a row of tiles; groups of channels
  unsigned pixels;                     // of an output image
};

// An output pixel with a corner in the tile.
struct Sample {
  int row, column, offset;  // of its cell in the tile; of its gradient
  COMPUTE below, right;
};

extern "C" __global__ void __launch_bounds__(THREADS) spatial_transformer_sampler_gradient_x(const InputArguments a) {
  griddepcontrol_wait();
  __shared__ Sample samples[THREADS];
  __shared__ int of_warp[WARPS];
  unsigned tile, tile_column, group;
  const unsigned image = a.groups.divide(a.tiles.divide(blockIdx.x, tile), group);
  const int top = a.tile_row.divide(tile, tile_column) * TILE, left = tile_column * TILE;
  const int my_row = threadIdx.x / TILE, my_column = threadIdx.x % TILE, lane = threadIdx.x % 32,
            warp = threadIdx.x / 32;
  const int first = group * CHANNELS, channels = min(CHANNELS, a.shape.channels - first);
  const ELEMENT* dy = a.dy + (image * a.out.image + first * a.out.channel);
  COMPUTE sum[CHANNELS] = {};

  for (unsigned start = 0; start < a.pixels; start += THREADS) {
    const unsigned pixel = start + threadIdx.x;
    Sample mine = {};
    bool counts = false;
    if (pixel < a.pixels) {
      unsigned row, column;
      row = a.shape.out_width.divide(pixel, column);
      const Cell cell(a.grid + 2 * (image * a.pixels + pixel), a.shape);
      mine = {cell.row - top, cell.column - left, static_cast<int>(row * a.out.row + column * a.out.column), cell.below,
              cell.right};
      counts = cell.sound && mine.row >= -1 && mine.row < TILE && mine.column >= -1 && mine.column < TILE;
    }
    const unsigned found = __ballot_sync(0xFFFFFFFFu, counts);
    if (lane == 0) of_warp[warp] = __popc(found);
    __syncthreads();
    int before = __popc(found & ((1u << lane) - 1)), total = 0;
#pragma unroll
    for (int w = 0; w < WARPS; w++) {
      if (w < warp) before += of_warp[w];
      total += of_warp[w];
    }
    if (counts) samples[before] = mine;
    __syncthreads();
    for (int s = 0; s < total; s++) {
      const int down = my_row - samples[s].row, right = my_column - samples[s].column;
      if (down < 0 || down > 1 || right < 0 || right > 1) continue;
      const COMPUTE weight = (down ? samples[s].below : COMPUTE(1) - samples[s].below) *
                             (right ? samples[s].right : COMPUTE(1) - samples[s].right);
      const ELEMENT* gradient = dy + samples[s].offset;
#pragma unroll
      for (int i = 0; i < CHANNELS; i++)
        if (i < channels) sum[i] += weight * load<COMPUTE>(gradient[i * a.out.channel]);
    }
    __syncthreads();
  }

  const int row = top + my_row, column = left + my_column;
  if (row >= a.shape.height || column >= a.shape.width) return;
  ELEMENT* dx = a.dx + (image * a.in.image + first * a.in.channel + row * a.in.row + column * a.in.column);
#pragma unroll
  for (int i = 0; i < CHANNELS; i++) {
    ELEMENT* result = dx + i * a.in.channel;
    if (i < channels) *result = blend(a.alpha, sum[i], a.beta, result);
  }
}
