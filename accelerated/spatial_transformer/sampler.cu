// Bilinear sampling at a grid of coordinates (3.2.98).
//
// A thread has one output pixel and CHANNELS channels of it, or several with few channels side by side, or a block a
// plane of x in shared memory. A sample takes about 20 instructions for its coordinates and 15 for each channel.
//
// Roofline bound: bytes, 1 element read and 1 written (the four corners come from L1 where the grid is smooth), and the
// grid once for CHANNELS channels: 1.9 ps of float at 4.2 TB/s on an H200 (calculated). Random samples read 32 bytes of
// L2 for each element.
#include "primitives/cp_async.cuh"
#include "spatial_transformer/sampler.cuh"

// Of all kernels; `work`: how one divides it.
template <class Work> struct ForwardArguments {
  const ELEMENT* x;
  const ELEMENT* grid;
  ELEMENT* y;
  COMPUTE alpha, beta;
  Shape shape;
  Strides in, out;
  Work work;
};
struct ByThread {
  unsigned threads;
  FastDivmod pixels, groups;  // output pixels of all images; groups of channels
  int interleaved;            // channels lie side by side: neighbouring threads take neighbours
};
struct ByTile {
  FastDivmod across, down;  // tiles of a row of pixels; of a column
};
struct ByPlane {
  FastDivmod parts, channels;  // blocks of a plane; planes of an image
  unsigned pixels, part;       // output pixels of an image; of a block
};

extern "C" __global__ void __launch_bounds__(THREADS)
    spatial_transformer_sampler_forward(const ForwardArguments<ByThread> a) {
  griddepcontrol_wait_deferred();
  const unsigned thread = blockIdx.x * blockDim.x + threadIdx.x;
  unsigned pixel, group, row, column;
  if (a.work.interleaved) pixel = a.work.groups.divide(thread, group);
  else group = a.work.pixels.divide(thread, pixel);
  const unsigned image = a.shape.out_height.divide(a.shape.out_width.divide(pixel, column), row);
  const int step = a.work.interleaved ? a.work.groups.divisor : 1,
            first = a.work.interleaved ? group : group * CHANNELS;
  const ELEMENT* coordinates = a.grid + 2 * pixel;
  griddepcontrol_wait_before_access(coordinates);
  if (thread >= a.work.threads) return;
  const Cell cell(coordinates, a.shape);
  const Around around(cell, a.shape);
  const ELEMENT* x = a.x + int(image * a.in.image + cell.offset(a.in.row, a.in.column));
  ELEMENT* y = a.y + (image * a.out.image + row * a.out.row + column * a.out.column);
#pragma unroll
  for (int i = 0; i < CHANNELS; i++) {
    const int channel = first + i * step;
    if (channel >= a.shape.channels) break;
    const COMPUTE sum = around.sum(x + channel * a.in.channel, a.in.row, a.in.column);
    ELEMENT* result = y + channel * a.out.channel;
    *result = blend(a.alpha, sum, a.beta, result);
  }
}

// Few channels that lie side by side: a warp has a row of 32 pixels, whose results it writes in a row, too: with one
// store a channel every sector would be written several times. Of 2 bytes the way through shared memory costs more.
extern "C" __global__ void __launch_bounds__(THREADS, 5)
    spatial_transformer_sampler_forward_tiles(const ForwardArguments<ByTile> a) {
  griddepcontrol_wait();
  constexpr int ROWS = 4, WARPS = THREADS / 32;  // of a warp, one below those of all others
  constexpr bool RUNS = sizeof(ELEMENT) > 2;
  __shared__ COMPUTE runs[RUNS ? WARPS : 1][32 * CHANNELS];
  COMPUTE(&run)[32 * CHANNELS] = runs[RUNS ? threadIdx.x / 32 : 0];
  unsigned tile_row, tile_column;
  const unsigned image = a.work.down.divide(a.work.across.divide(blockIdx.x, tile_column), tile_row);
  const int lane = threadIdx.x % 32, left = tile_column * 32, column = left + lane;
  const int top = tile_row * (ROWS * WARPS) + threadIdx.x / 32;
  const int width = a.shape.out_width.divisor, height = a.shape.out_height.divisor;
  const auto* const grid = reinterpret_cast<const Pack<ELEMENT, 2>*>(a.grid) + (image * height + top) * width + column;
  const ELEMENT* const x = a.x + image * a.in.image;
  Pack<ELEMENT, 2> coordinates[ROWS];
#pragma unroll
  for (int u = 0; u < ROWS; u++)
    if (top + u * WARPS < height && column < width) coordinates[u] = grid[u * WARPS * width];
#pragma unroll
  for (int u = 0; u < ROWS; u++) {
    const int row = top + u * WARPS;
    if (row >= height) break;
    ELEMENT* const y = a.y + (image * a.out.image + row * a.out.row + left * CHANNELS);
    if (column < width) {
      const Cell cell(coordinates[u].item[0], coordinates[u].item[1], a.shape);
      const Around around(cell, a.shape);
      const ELEMENT* const from = x + int(cell.offset(a.in.row, CHANNELS));
#pragma unroll
      for (int i = 0; i < CHANNELS; i++) {
        const COMPUTE sum = around.sum(from + i, a.in.row, CHANNELS);
        const int at = lane * CHANNELS + i;
        if (RUNS) run[at] = sum;
        else y[at] = blend(a.alpha, sum, a.beta, y + at);
      }
    }
    if (!RUNS) continue;
    __syncwarp();
#pragma unroll
    for (int i = 0; i < CHANNELS; i++) {
      const int at = i * 32 + lane;
      if (at < (width - left) * CHANNELS) y[at] = blend(a.alpha, run[at], a.beta, y + at);
    }
    __syncwarp();
  }
}

// A block has a plane of x in shared memory, whose banks serve samples of a random grid ten times as fast as L2 does,
// and a part of the output pixels.
extern "C" __global__ void __launch_bounds__(PLANE_THREADS, PLANE_BLOCKS)
    spatial_transformer_sampler_forward_planes(const ForwardArguments<ByPlane> a) {
  griddepcontrol_wait();
  constexpr unsigned WIDTH = 16 / sizeof(ELEMENT), AT_ONCE = 4;  // elements of a pack; pixels of a thread
  ELEMENT* plane = reinterpret_cast<ELEMENT*>(shared_memory);
  keep_shared_pointer(plane);
  unsigned part, channel;
  const unsigned image = a.work.channels.divide(a.work.parts.divide(blockIdx.x, part), channel);
  const ELEMENT* const x = a.x + (image * a.in.image + channel * a.in.channel);
  for (unsigned i = threadIdx.x * WIDTH; i < a.shape.height * a.shape.width; i += PLANE_THREADS * WIDTH)
    cp_async<16>(plane + i, x + i, true);
  cp_async_commit();
  const unsigned begin = part * a.work.part, end = min(begin + a.work.part, a.work.pixels);
  for (unsigned start = begin + threadIdx.x; start - threadIdx.x < end; start += AT_ONCE * PLANE_THREADS) {
    const auto* const grid = reinterpret_cast<const Pack<ELEMENT, 2>*>(a.grid) + image * a.work.pixels + start;
    ELEMENT* const y = a.y + (image * a.out.image + channel * a.out.channel) + (LINEAR ? start : 0);
    Pack<ELEMENT, 2> coordinates[AT_ONCE];
#pragma unroll
    for (unsigned u = 0; u < AT_ONCE; u++)
      if (start + u * PLANE_THREADS < end) coordinates[u] = grid[u * PLANE_THREADS];
    if (start < begin + PLANE_THREADS) {
      cp_async_wait<0>();
      __syncthreads();
    }
#pragma unroll
    for (unsigned u = 0; u < AT_ONCE; u++) {
      if (start + u * PLANE_THREADS >= end) break;
      const Cell cell(coordinates[u].item[0], coordinates[u].item[1], a.shape);
      const COMPUTE sum = Around(cell, a.shape).sum(plane + int(cell.offset(a.shape.width, 1)), a.shape.width, 1);
      unsigned column;
      const unsigned row = a.shape.out_width.divide(start + u * PLANE_THREADS, column);
      ELEMENT* const result = y + (LINEAR ? u * PLANE_THREADS : row * a.out.row + column * a.out.column);
      *result = blend(a.alpha, sum, a.beta, result);
    }
  }
}
