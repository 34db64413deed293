// The bits of a bit mask (6.1.3.1, DACTIVATION_FORK_DBATCHNORM) channel by channel, as gradients of batch normalisation
// read them beside planes (normalization/batch_planes_persistent.cu).
//
// A warp has TILE_PIXELS pixels of WORDS times 32 channels: words of a pixel for each lane, which lanes transpose in
// log2(32) exchanges. A lane then has the bits of a channel; two write 32 bytes together.
//
// Roofline bound: bytes, the words read once and written once, one bit an element: 12.8 MB for 64 x 256 x 56 x 56, of
// which L2 keeps what is written: 5.5 us on an H200. 50 instructions for 32 elements of a lane.
#include "primitives/geometry.cuh"
#include "primitives/types.cuh"

constexpr unsigned WARP = 32, ROWS = TILE_PIXELS / WARP;  // of pixels
using Words = Pack<unsigned, WORDS>;                      // of a pixel, side by side
using Bits = Pack<unsigned, 4>;                           // of a channel
static_assert(ROWS == 8, "a lane has two packs of bits");

struct Arguments {
  const unsigned* mask;
  Bits* bits;  // rows of channels, `row` packs each
  unsigned pixels, channels, row;
  int mask_row, mask_word;  // elements from one row of the mask, from one word to the next
  FastDivmod packs;         // of the words of a pixel
};

// Lane i gets bit i of all lanes: bit j that of lane j.
__device__ __forceinline__ unsigned transpose(unsigned word) {
  unsigned low = 0xFFFF;  // bits whose index does not have `distance`
#pragma unroll
  for (unsigned distance = WARP / 2; distance > 0; distance /= 2, low ^= low << distance) {
    const unsigned other = __shfl_xor_sync(~0u, word, distance);
    word =
        threadIdx.x & distance ? (word & ~low) | (other & ~low) >> distance : (word & low) | (other & low) << distance;
  }
  return word;
}

extern "C" __global__ void __launch_bounds__(THREADS) fused_ops_gradient_bits(const Arguments a) {
  griddepcontrol_wait();
  const unsigned lane = threadIdx.x % WARP;
  unsigned first;  // word
  const unsigned tile = a.packs.divide((blockIdx.x * THREADS + threadIdx.x) / WARP, first);
  first *= WORDS;
  Words read[ROWS];
#pragma unroll
  for (unsigned i = 0; i < ROWS; i++) {
    const unsigned pixel = tile * TILE_PIXELS + i * WARP + lane;
    read[i] = {};
    if (pixel < a.pixels) read[i] = *reinterpret_cast<const Words*>(a.mask + pixel * a.mask_row + first * a.mask_word);
  }
  griddepcontrol_launch_dependents();
  const bool odd = lane % 2;
  const unsigned at = tile * 2 + odd;
#pragma unroll
  for (unsigned word = 0; word < WORDS; word++) {
    Bits bits[2];  // of the lane's channel; then of two channels
#pragma unroll
    for (unsigned i = 0; i < ROWS; i++) bits[i / 4].item[i % 4] = transpose(read[i].item[word]);
#pragma unroll
    for (unsigned i = 0; i < 4; i++) {
      const unsigned other = __shfl_xor_sync(~0u, odd ? bits[0].item[i] : bits[1].item[i], 1);
      if (odd) bits[0].item[i] = other;
      else bits[1].item[i] = other;
    }
#pragma unroll
    for (unsigned k = 0; k < 2; k++) {
      const unsigned channel = (first + word) * WARP + lane - odd + k;
      if (channel < a.channels && at < a.row) a.bits[channel * a.row + at] = bits[k];
    }
  }
}
