// The bits of a bit mask (6.1.3.1, DACTIVATION_FORK_DBATCHNORM) channel by channel, as gradients of batch normalisation
// read them beside planes (normalization/batch_planes.cuh).
//
// A warp has TILE_PIXELS pixels of WORDS times 32 channels: words of a pixel for each lane, which lanes transpose in
// log2(32) exchanges. A lane then has the bits of a channel, 16 bytes of its row; blocks write lines of 128 bytes.
//
// Roofline bound: bytes, the words read once and written once, one bit an element: 12.8 MB for 64 x 256 x 56 x 56, of
// which L2 keeps what is written. 50 instructions for 32 elements of a lane.
#include "primitives/geometry.cuh"
#include "primitives/types.cuh"

constexpr unsigned WARP = 32, ROWS = TILE_PIXELS / WARP;  // of pixels
constexpr unsigned TILES = THREADS / WARP;                // of a block
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

extern "C" __global__ void __launch_bounds__(THREADS) fused_ops_gradient_bits(const Arguments a) {
  griddepcontrol_wait();
  __shared__ Row rows[WORDS * WARP][TILES + 1];  // one more: without bank conflicts
  const unsigned lane = threadIdx.x % WARP, warp = threadIdx.x / WARP;
  unsigned first;  // word
  const unsigned first_tile = a.packs.divide(blockIdx.x, first) * TILES;
  first *= WORDS;
  Words read[ROWS];
#pragma unroll
  for (unsigned i = 0; i < ROWS; i++) {
    const unsigned pixel = (first_tile + warp) * TILE_PIXELS + i * WARP + lane;
    read[i] = {};
    if (pixel < a.pixels) read[i] = *reinterpret_cast<const Words*>(a.mask + pixel * a.mask_row + first * a.mask_word);
  }
  griddepcontrol_launch_dependents();
#pragma unroll
  for (unsigned word = 0; word < WORDS; word++) {
    Row row;
#pragma unroll
    for (unsigned i = 0; i < ROWS; i++) row.item[i] = transpose(read[i].item[word]);
    rows[word * WARP + lane][warp] = row;
  }
  __syncthreads();
  const unsigned tile = first_tile + threadIdx.x % TILES;
  for (unsigned i = threadIdx.x / TILES; i < WORDS * WARP; i += THREADS / TILES) {
    const unsigned channel = first * WARP + i;
    if (channel < a.channels && tile < a.tiles)
      reinterpret_cast<Row*>(a.bits)[channel * a.tiles + tile] = rows[i][threadIdx.x % TILES];
  }
}
