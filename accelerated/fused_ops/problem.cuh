// Tensors of images, channels and up to three spatial dimensions, walked in tiles of 32 pixels by 32 channels:
// problem.py fills these structures. The bits of a tile's pixel are one word of a bit mask.
#pragma once
#include "primitives/geometry.cuh"
#include "primitives/types.cuh"

constexpr int WARP = 32;

struct TensorStrides {
  int image, channel, axis[3];  // elements from one to the next; depth, height, width
};

struct Pixels {
  FastDivmod extent[3];  // depth, height, width
  unsigned count;        // of all images
  int channels;
  int channels_last;  // a warp's lanes are neighbouring channels of a pixel; else neighbouring pixels of a channel
  FastDivmod words;   // words of 32 channels in a row of the bit mask
  unsigned rows;      // rows of the bit mask, or pixels where there is none
  int mask_row, mask_word;  // elements from one row, one word to the next
};

struct Pixel {
  unsigned image, axis[3];
};

__device__ __forceinline__ Pixel locate(const Pixels& a, unsigned index) {
  Pixel found;
#pragma unroll
  for (int d = 2; d >= 0; d--) index = a.extent[d].divide(index, found.axis[d]);
  found.image = index;
  return found;
}

__device__ __forceinline__ int offset(const TensorStrides& s, const Pixel& pixel, int channel) {
  return pixel.image * s.image + channel * s.channel + pixel.axis[0] * s.axis[0] + pixel.axis[1] * s.axis[1] +
         pixel.axis[2] * s.axis[2];
}

// Calls body(step, pixel index, channel) for the 32 elements of a tile that a lane has; those outside of the tensor
// too, with inside false.
template <class Body>
__device__ __forceinline__ void for_tile(const Pixels& a, unsigned first, int channel0, Body body) {
  const int lane = threadIdx.x % WARP;
  Pixel pixel = locate(a, first + (a.channels_last ? 0 : lane));
#pragma unroll 4
  for (int i = 0; i < WARP; i++) {
    const unsigned index = first + (a.channels_last ? i : lane);
    const int channel = channel0 + (a.channels_last ? lane : i);
    if (a.channels_last && i) pixel = locate(a, index);
    body(i, index, pixel, channel, index < a.count && channel < a.channels);
  }
}
