// This header walks tensors of images, channels and up to three spatial dimensions, in accesses of VECTOR_BYTES.
// problem.py fills these structures. The walk follows channels where they are innermost, and pixels elsewhere. 32
// channels of a pixel share one word of a bit mask.
//
// RANK counts the dimensions of pixels after contiguous ones are merged in all tensors. Each dimension costs a division
// and registers per access. Kernels of four dimensions also serve three. GROUP counts the channels of a warp along
// pixels.
#pragma once
#include "primitives/geometry.cuh"
#include "primitives/types.cuh"

constexpr int WARP = 32;                               // threads
constexpr int WARPS = THREADS / WARP;                  // per block
constexpr int WIDTH = VECTOR_BYTES / sizeof(ELEMENT);  // elements per access
constexpr int BATCH = WIDTH == 1 ? 8 : 4;              // accesses to a tensor that a thread has in flight
using Packed = Vector<ELEMENT, WIDTH>;

struct TensorStrides {
  int image, channel, axis[3];  // strides in elements; merged dimensions count as one
};

struct Pixels {
  FastDivmod extent[3];  // extents of all dimensions of pixels but the outermost
  unsigned count, rows;  // pixels of all images; rows of the bit mask, or pixels without a mask
  int channels;
  FastDivmod groups;        // groups of channels along pixels
  int mask_row, mask_word;  // strides between rows and between words of the bit mask, in elements
  FastDivmod vectors;       // accesses per pixel to its channels, up to full words
  unsigned step;            // Along channels, a thread takes every `step`-th pixel.
};

struct Pixel {
  unsigned image, axis[3];
};

__device__ __forceinline__ Pixel locate(const Pixels& a, unsigned index) {
  Pixel found;
#pragma unroll
  for (int d = 2; d > 3 - RANK; d--) index = a.extent[d].divide(index, found.axis[d]);
  found.image = index;
  return found;
}

__device__ __forceinline__ int offset(const TensorStrides& s, const Pixel& pixel, int channel) {
  int found = pixel.image * s.image + channel * s.channel;
#pragma unroll
  for (int d = 2; d > 3 - RANK; d--) found += pixel.axis[d] * s.axis[d];
  return found;
}

__device__ __forceinline__ Packed load_vector(const ELEMENT* at) { return *reinterpret_cast<const Packed*>(at); }

// Holds a thread's vectors of channels, the same of every `step`-th pixel.
struct Channels {
  unsigned first;  // first pixel
  int channel;
  bool exists;  // Some threads have no pixel, and some vectors have no channel.

  __device__ __forceinline__ explicit Channels(const Pixels& a) {
    unsigned vector;
    first = a.vectors.divide(blockIdx.x * THREADS + threadIdx.x, vector);
    channel = vector * WIDTH;
    exists = first < a.step && channel < a.channels;
  }
};

// Holds a warp's vectors of pixels, of GROUP channels each.
struct Tile {
  unsigned pixel;  // first pixel of a lane
  int channel;     // first channel of the warp
  bool exists;

  __device__ __forceinline__ explicit Tile(const Pixels& a) {
    unsigned group;
    const unsigned warp = (blockIdx.x * THREADS + threadIdx.x) / WARP;
    pixel = (a.groups.divide(warp, group) * WARP + threadIdx.x % WARP) * WIDTH;
    channel = group * GROUP;
    exists = pixel < a.count;
  }
};

__device__ __forceinline__ unsigned mask_word(const Pixels& a, const unsigned* mask, unsigned pixel, unsigned word) {
  return mask ? mask[pixel * a.mask_row + word * a.mask_word] : ~0u;
}
