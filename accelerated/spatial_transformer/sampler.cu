// Bilinear sampling at a grid of coordinates (3.2.98).
//
// A thread has one output pixel and CHANNELS channels of it, or a block a tile of output pixels with all channels, or a
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
  unsigned char* left;  // by tile, whether its pixels are left to blocks with planes
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
  int box_rows;             // of x, that are copied at most; 0 where rows of x are not made of packs of 16 bytes
};
struct ByPlane {
  FastDivmod parts, channels;  // blocks of a plane; planes of an image
  unsigned pixels, part;       // output pixels of an image; of a block
  unsigned items;              // parts of planes
  unsigned across, tiles;      // BEHIND tiles that leave some: of a row of output pixels; of an image
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

// A tile of 32 x 32 output pixels, of which a warp has four rows. Where the samples of all lie in a box of x that has
// room, as neighbours do of a smooth grid, the box is copied to shared memory, with zeros around the image, and serves
// all channels. Others are read from L2, or (LEAVES) are left to blocks with planes.
//
// Channels that lie side by side (BESIDE) pass through shared memory before they are written: with one store each every
// sector would be written several times. Of 2 bytes that would cost more.
extern "C" __global__ void __launch_bounds__(THREADS, TILE_BLOCKS)
    spatial_transformer_sampler_forward_tiles(const ForwardArguments<ByTile> a) {
  griddepcontrol_wait();
  constexpr int ROWS = 4, WARPS = THREADS / 32;  // of a warp, one below those of all others
  constexpr int WIDTH = 16 / sizeof(ELEMENT), STEP = BESIDE ? CHANNELS : 1, PLANES = BESIDE ? 1 : CHANNELS;
  constexpr int PITCH = BOX_COLUMNS * STEP, PLANE = BOX_ROWS * PITCH;
  constexpr bool RUNS = BESIDE && sizeof(ELEMENT) > 2;
  __shared__ COMPUTE runs[RUNS ? WARPS : 1][RUNS ? 32 * CHANNELS : 1];
  __shared__ Bounds of_warps[WARPS];
  ELEMENT* box = reinterpret_cast<ELEMENT*>(shared_memory);
  keep_shared_pointer(box);
  unsigned tile_row, tile_column;
  const unsigned image = a.work.down.divide(a.work.across.divide(blockIdx.x, tile_column), tile_row);
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32, left = tile_column * 32;
  const int top = tile_row * (ROWS * WARPS) + warp, in_row = min(a.shape.out_width.divisor - left, 32);
  const int width = a.shape.out_width.divisor, height = a.shape.out_height.divisor;
  const int of_pixel = BESIDE ? CHANNELS : a.out.column, of_x = BESIDE ? 1 : a.in.channel;
  const ELEMENT* const x = a.x + image * a.in.image;
  auto& run = runs[RUNS ? warp : 0];
  Pack<ELEMENT, 2> coordinates[ROWS];
  Bounds bounds = Bounds::none();
#pragma unroll
  for (int u = 0; u < ROWS; u++)
    if (top + u * WARPS < height && lane < in_row)
      coordinates[u] =
          reinterpret_cast<const Pack<ELEMENT, 2>*>(a.grid)[(image * height + top + u * WARPS) * width + left + lane];
#pragma unroll
  for (int u = 0; u < ROWS; u++)
    if (top + u * WARPS < height && lane < in_row)
      bounds.include(Cell(coordinates[u].item[0], coordinates[u].item[1], a.shape), a.shape);
  bounds.merge_lanes();
  if (lane == 0) of_warps[warp] = bounds;
  __syncthreads();
  bounds = of_warps[lane % WARPS];
  bounds.merge_lanes();
  const int first = (bounds.left * STEP) & -WIDTH;  // element of a row
  const int rows = bounds.below - bounds.above + 1, columns = (bounds.right + 1) * STEP - first;
  const bool fits = rows <= a.work.box_rows && columns <= PITCH;
  if (LEAVES && threadIdx.x == 0) a.left[blockIdx.x] = !fits;
  if (LEAVES && !fits) return;
  if (fits && rows > 0) {
    const unsigned packs = (columns + WIDTH - 1) / WIDTH, reciprocal = (1u << 22) / packs + 1;
    for (unsigned i = threadIdx.x; i < rows * packs; i += THREADS) {
      const unsigned of_row = i * reciprocal >> 22, pack = (i - of_row * packs) * WIDTH;
      const int row = bounds.above + of_row, element = first + pack;
      const bool exists =
          unsigned(row) < unsigned(a.shape.height) && unsigned(element) < unsigned(a.shape.width * STEP);
#pragma unroll
      for (int p = 0; p < PLANES; p++)
        cp_async<16>(box + (p * PLANE + of_row * PITCH + pack), x + (row * a.in.row + element + p * of_x), exists);
    }
    cp_async_commit();
    cp_async_wait<0>();
    __syncthreads();
  }
#pragma unroll
  for (int u = 0; u < ROWS; u++) {
    if (top + u * WARPS >= height) break;
    const unsigned begin = image * a.out.image + (top + u * WARPS) * a.out.row + left * of_pixel;
    COMPUTE sum[CHANNELS] = {};
    if (lane < in_row) {
      const Cell cell(coordinates[u].item[0], coordinates[u].item[1], a.shape);
      if (!fits) {
        const Around around(cell, a.shape);
#pragma unroll
        for (int i = 0; i < CHANNELS; i++)
          sum[i] = around.sum(x + int(cell.offset(a.in.row, STEP) + i * of_x), a.in.row, STEP);
      } else if (cell.reaches(a.shape)) {
        const ELEMENT* const from = box + ((cell.row - bounds.above) * PITCH + cell.column * STEP - first);
#pragma unroll
        for (int i = 0; i < CHANNELS; i++) {
          const ELEMENT* const upper = from + i * (BESIDE ? 1 : PLANE);
          const COMPUTE value[2][2] = {{load<COMPUTE>(upper[0]), load<COMPUTE>(upper[STEP])},
                                       {load<COMPUTE>(upper[PITCH]), load<COMPUTE>(upper[PITCH + STEP])}};
          sum[i] = cell.sum(value);
        }
      } else {
#pragma unroll
        for (int i = 0; i < CHANNELS; i++) sum[i] = cell.zero + COMPUTE(0);
      }
    }
    if (RUNS) {
      __syncwarp();
#pragma unroll
      for (int i = 0; i < CHANNELS; i++) run[lane * CHANNELS + i] = sum[i];
      __syncwarp();
    }
#pragma unroll
    for (int i = 0; i < CHANNELS; i++) {
      const unsigned at = begin + (RUNS ? i * 32 + lane : lane * of_pixel + i * (BESIDE ? 1 : a.out.channel));
      if (RUNS ? i * 32 + lane < in_row * CHANNELS : lane < in_row)
        a.y[at] = blend(a.alpha, RUNS ? run[i * 32 + lane] : sum[i], a.beta, a.y + at);
    }
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
  for (unsigned item = blockIdx.x; item < a.work.items; item += gridDim.x) {
    unsigned part, channel;
    const unsigned image = a.work.channels.divide(a.work.parts.divide(item, part), channel);
    const unsigned char* const left = BEHIND ? a.left + image * a.work.tiles : nullptr;
    // Behind the samples of the item before.
    const unsigned count = BEHIND ? __syncthreads_count(threadIdx.x < a.work.tiles && left[threadIdx.x]) : 0;
    if (BEHIND && count == 0) continue;
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
        unsigned column;
        const unsigned row = a.shape.out_width.divide(start + u * PLANE_THREADS, column);
        if (BEHIND && count < a.work.tiles && !left[row / 32 * a.work.across + column / 32]) continue;
        const Cell cell(coordinates[u].item[0], coordinates[u].item[1], a.shape);
        const COMPUTE sum = Around(cell, a.shape).sum(plane + int(cell.offset(a.shape.width, 1)), a.shape.width, 1);
        ELEMENT* const result = y + (LINEAR ? u * PLANE_THREADS : row * a.out.row + column * a.out.column);
        *result = blend(a.alpha, sum, a.beta, result);
      }
    }
    if (!BEHIND) break;
  }
}
