// Tensors of images, channels and up to three spatial dimensions, walked in accesses of PACK_BYTES (problem.py fills
// these structures): along channels where these lie innermost, else along pixels. 32 channels of a pixel are one word
// of a bit mask. RANK: dimensions of pixels that are left when those that follow each other in all tensors are merged;
// each costs a division and registers of every access. Where there are three, kernels of four serve. GROUP: channels of
// a warp along pixels.
#pragma once
#include "primitives/geometry.cuh"
#include "primitives/types.cuh"

constexpr int WARP = 32, WARPS = THREADS / WARP;
constexpr int WIDTH = PACK_BYTES / sizeof(ELEMENT);  // elements of an access
constexpr int BATCH = WIDTH == 1 ? 8 : 4;            // accesses to a tensor that a thread has in flight
using Packed = Pack<ELEMENT, WIDTH>;

struct TensorStrides {
  int image, channel, axis[3];  // elements from one to the next; what is merged counts as one dimension
};

struct Pixels {
  FastDivmod extent[3];  // of all dimensions of pixels but the outermost
  unsigned count, rows;  // pixels of all images; rows of the bit mask, or pixels where there is none
  int channels;
  FastDivmod groups;        // of channels along pixels
  int mask_row, mask_word;  // elements from one row of the bit mask, from one word to the next
  FastDivmod packs;         // accesses to the channels of a pixel, up to full words
  unsigned step;            // along channels a thread has every `step`-th pixel
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

__device__ __forceinline__ Packed load_pack(const ELEMENT* at) { return *reinterpret_cast<const Packed*>(at); }

// A thread's packs of channels, the same ones of every `step`-th pixel.
struct Channels {
  unsigned first;  // pixel
  int channel;
  bool exists;  // some threads have no pixel, some packs no channel

  __device__ __forceinline__ explicit Channels(const Pixels& a) {
    unsigned pack;
    first = a.packs.divide(blockIdx.x * THREADS + threadIdx.x, pack);
    channel = pack * WIDTH;
    exists = first < a.step && channel < a.channels;
  }
};

// A warp's packs of pixels, of GROUP channels each.
struct Tile {
  unsigned pixel;  // the first of a lane's
  int channel;     // the first of the warp's
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
