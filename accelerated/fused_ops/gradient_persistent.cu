// The bits of a bit mask (6.1.3.1, DACTIVATION_FORK_DBATCHNORM) channel by channel, as
// normalization/batch_planes_persistent.cu reads them beside planes.
//
// A warp has TILE_PIXELS pixels of 32 channels, or WORDS times as many: a word of a pixel for each lane, which lanes
// transpose in log2(32) exchanges. A lane then has the bits of a channel, which are 16 bytes of its row.
//
// Roofline bound: bytes, the words read once and written once, one bit an element: 12.8 MB for 64 x 256 x 56 x 56, of
// which L2 keeps what is written. 50 instructions for 32 elements of a lane.
#include "primitives/geometry.cuh"
#include "primitives/types.cuh"

constexpr unsigned WARP = 32, ROWS = TILE_PIXELS / WARP;  // of pixels
using Words = Pack<unsigned, WORDS>;                      // of a pixel, side by side
using Row = Pack<unsigned, ROWS>;

struct Arguments {
  const unsigned* mask;
  unsigned char* bits;  // rows of channels, `tiles` packs each
  unsigned pixels, channels, tiles;
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

extern "C" __global__ void __launch_bounds__(THREADS) fused_ops_gradient_persistent_bits(const Arguments a) {
  griddepcontrol_wait();
  const unsigned lane = threadIdx.x % WARP;
  unsigned first;  // word
  const unsigned tile = a.packs.divide((blockIdx.x * THREADS + threadIdx.x) / WARP, first);
  if (tile >= a.tiles) return;
  first *= WORDS;
  Words read[ROWS];
#pragma unroll
  for (unsigned i = 0; i < ROWS; i++) {
    const unsigned pixel = tile * TILE_PIXELS + i * WARP + lane;
    read[i] = {};
    if (pixel < a.pixels) read[i] = *reinterpret_cast<const Words*>(a.mask + pixel * a.mask_row + first * a.mask_word);
  }
  griddepcontrol_launch_dependents();
#pragma unroll
  for (unsigned word = 0; word < WORDS; word++) {
    Row row;
#pragma unroll
    for (unsigned i = 0; i < ROWS; i++) row.item[i] = transpose(read[i].item[word]);
    const unsigned channel = (first + word) * WARP + lane;
    if (channel < a.channels) reinterpret_cast<Row*>(a.bits)[channel * a.tiles + tile] = row;
  }
}
