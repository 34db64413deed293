// Bilinear sampling at a grid of coordinates (3.2.98).
//
// A thread has one output pixel and CHANNELS channels of it, or a block a plane of x in shared memory.
//
// Roofline bound: bytes, 1 element read and 1 written (the four corners come from L1 where the grid is smooth), and the
// grid once for CHANNELS channels: 1.9 ps of float at 4.2 TB/s on an H200 (calculated). Random samples read 32 bytes of
// L2 for each element.
#include "primitives/cp_async.cuh"
#include "spatial_transformer/sampler.cuh"

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

struct PlanesArguments {
  const ELEMENT* x;
  const ELEMENT* grid;
  ELEMENT* y;
  COMPUTE alpha, beta;
  Shape shape;
  Strides in, out;
  FastDivmod parts, channels;  // blocks of a plane; planes of an image
  unsigned pixels, part;       // output pixels of an image; of a block
};

// A block has a plane of x in shared memory, whose banks serve samples of a random grid ten times as fast as L2 does,
// and a part of the output pixels.
extern "C" __global__ void __launch_bounds__(PLANE_THREADS, PLANE_BLOCKS)
    spatial_transformer_sampler_forward_planes(const PlanesArguments a) {
  griddepcontrol_wait();
  constexpr unsigned WIDTH = 16 / sizeof(ELEMENT), PIXELS = 4;  // elements of a pack; pixels of a thread at a time
  ELEMENT* const plane = reinterpret_cast<ELEMENT*>(shared_memory);
  unsigned part, channel;
  const unsigned image = a.channels.divide(a.parts.divide(blockIdx.x, part), channel);
  const ELEMENT* const x = a.x + (image * a.in.image + channel * a.in.channel);
  for (unsigned i = threadIdx.x * WIDTH; i < a.shape.height * a.shape.width; i += PLANE_THREADS * WIDTH)
    cp_async<16>(plane + i, x + i, true);
  cp_async_commit();
  const auto* const grid = reinterpret_cast<const Pack<ELEMENT, 2>*>(a.grid) + image * a.pixels;
  ELEMENT* const y = a.y + (image * a.out.image + channel * a.out.channel);
  const unsigned begin = part * a.part, end = min(begin + a.part, a.pixels);
  for (unsigned start = begin; start < end; start += PIXELS * PLANE_THREADS) {
    Pack<ELEMENT, 2> coordinates[PIXELS];
#pragma unroll
    for (unsigned u = 0; u < PIXELS; u++) {
      const unsigned pixel = start + u * PLANE_THREADS + threadIdx.x;
      if (pixel < end) coordinates[u] = grid[pixel];
    }
    if (start == begin) {
      cp_async_wait<0>();
      __syncthreads();
    }
#pragma unroll
    for (unsigned u = 0; u < PIXELS; u++) {
      const unsigned pixel = start + u * PLANE_THREADS + threadIdx.x;
      if (pixel >= end) break;
      const Cell cell(coordinates[u].item[0], coordinates[u].item[1], a.shape);
      const Corners corners(cell, a.shape, {0, 0, a.shape.width, 1}, 0);
      COMPUTE sum = 0;
#pragma unroll
      for (int corner = 0; corner < 4; corner++)
        sum += cell.weight(corner / 2, corner % 2) * corners.value(plane, corner / 2, corner % 2);
      unsigned column;
      const unsigned row = a.shape.out_width.divide(pixel, column);
      ELEMENT* const result = y + (row * a.out.row + column * a.out.column);
      *result = blend(a.alpha, cell.sound ? sum : COMPUTE(NAN), a.beta, result);
    }
  }
}
