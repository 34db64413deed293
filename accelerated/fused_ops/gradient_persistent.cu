// The bits of a bit mask (6.1.3.1, DACTIVATION_FORK_DBATCHNORM) channel by channel, as
// normalization/batch_planes_persistent.cu reads them beside planes.
//
// A warp has TILE_PIXELS pixels of 32 channels, a word of each pixel, 32 of which it transposes at a time: log2(32)
// exchanges of lanes. A lane then has the bits of a channel, which are 16 bytes of its row.
//
// Roofline bound: bytes, the words read once and written once, one bit an element: 12.8 MB for 64 x 256 x 56 x 56,
// which L2 has room for. 10 instructions an exchange, 50 for 32 elements of a lane.
#include "primitives/geometry.cuh"
#include "primitives/types.cuh"

constexpr unsigned WARP = 32, WORDS = TILE_PIXELS / WARP;  // of a lane
using Row = Pack<unsigned, WORDS>;

struct Arguments {
  const unsigned* mask;
  unsigned char* bits;  // rows of channels, `tiles` packs each
  unsigned pixels, channels, tiles;
  int mask_row, mask_word;  // elements from one row of the mask, from one word to the next
  FastDivmod words;         // of a pixel
};

// Lane i gets bit i of all lanes: bit j that of lane j.
__device__ __forceinline__ unsigned transpose(unsigned word) {
  unsigned low = 0xFFFF;  // bits whose index does not have `distance`
#pragma unroll
  for (unsigned distance = WARP / 2; distance > 0; distance /= 2, low ^= low << distance) {
    const unsigned other = __shfl_xor_sync(~0u, word, distance);
    word = threadIdx.x & distance ? (word & ~low) | (other & ~low) >> distance : (word & low) | (other & low) << distance;
  }
  return word;
}

extern "C" __global__ void __launch_bounds__(THREADS) fused_ops_gradient_persistent_bits(const Arguments a) {
  griddepcontrol_wait();
  const unsigned lane = threadIdx.x % WARP;
  unsigned word;
  const unsigned tile = a.words.divide((blockIdx.x * THREADS + threadIdx.x) / WARP, word);
  if (tile >= a.tiles) return;
  Row row;
#pragma unroll
  for (unsigned i = 0; i < WORDS; i++) {
    const unsigned pixel = tile * TILE_PIXELS + i * WARP + lane;
    row.item[i] = pixel < a.pixels ? a.mask[pixel * a.mask_row + word * a.mask_word] : 0;
  }
  griddepcontrol_launch_dependents();
#pragma unroll
  for (unsigned i = 0; i < WORDS; i++) row.item[i] = transpose(row.item[i]);
  const unsigned channel = word * WARP + lane;
  if (channel < a.channels) reinterpret_cast<Row*>(a.bits)[channel * a.tiles + tile] = row;
}
