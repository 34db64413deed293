// This kernel computes filter gradients (6.2.2) of channels that do not fill rows of TMA, on tensor cores: half and
// bfloat16 in NHWC, images, without groups.
//
// Tiling: a block owns rows of dw (filters), columns of dw (vectors of eight channels under each tap), and every
// `parts`-th tile of pixels. It copies dy and the image under a tile to shared memory, with padded pixels, while it
// multiplies the last one. A warp owns 32 filters and eight vectors. Up to eight warps share these, and take the
// steps of 16 pixels in turn. Both operands are transposed as they are read. sum.cu adds the parts; a single part is
// written to dw.
//
// Roofline bound: bytes, x and dy once. A step of a warp reads 24 x 128 bytes of shared memory for 32 products of
// 16 x 8 x 16.
#include "primitives/geometry.cuh"
#include "primitives/mma.cuh"

constexpr int WARPS = 8;             // per block
constexpr int THREADS = 32 * WARPS;  // per block
constexpr int STEP = 16;             // pixels per step
constexpr int M_TILES = 2;           // tiles of 16 filters per warp
constexpr int N_TILES = 8;           // tiles of a vector of eight channels per warp
constexpr int VECTOR = 8;            // channels

// Describes how an operand is copied to shared memory.
struct Copied {
  FastDivmod pieces;            // copies per pixel
  int image, row, column;       // strides in elements
  int rows, columns, channels;  // extents of the tensor
  int pitch, bytes;             // elements per pixel in shared memory; bytes per copy
};

struct Arguments {
  const ELEMENT* x;
  const ELEMENT* dy;
  float* partial;  // [part][element of dw in the order of its memory]
  ELEMENT* dw;     // written where there is one part
  float alpha, beta;
  Copied image, incoming;
  FastDivmod row_blocks, column_blocks;  // blocks of dw
  FastDivmod column_tiles, row_tiles;    // tiles of pixels of an image
  FastDivmod columns, image_columns;     // columns of a tile, and of the image under it
  FastDivmod vectors, right;             // vectors per tap; taps per row of the filter
  int tiles, rows, parts, image_pixels;  // tiles of pixels, rows per tile; pixels of the image under a tile
  int stride[2], padding[2], dilation[2];
  int warp_rows, warp_columns, warp_steps;  // warps across filters and vectors; the others share the steps
  int filters, channels, all_vectors;       // extents of dw; vectors under all taps
  int of_filters;                           // filters in shared memory
  int taps, flipped, elements;              // taps and elements of dw
  int filter_step, channel_step, tap_step;  // strides of dw
  int buffer, incoming_at;  // elements per buffer, and before dy in it; a vector of zeros follows two buffers
};

struct Tile {
  int image, row, column;
};
__device__ __forceinline__ Tile find_tile(const Arguments& a, unsigned index) {
  unsigned row, column;
  const unsigned image = a.row_tiles.divide(a.column_tiles.divide(index, column), row);
  return {static_cast<int>(image), static_cast<int>(row * a.rows), static_cast<int>(column * a.columns.divisor)};
}

// Names pixels of an image: `rows` rows of `columns`, of which the first `count`, from (row, column) on.
struct Pixels {
  const FastDivmod& columns;
  int count, rows, row, column;
};

// Copies the channels from `first` on of some pixels. What is outside becomes zeros.
template <int BYTES>
__device__ __forceinline__ void copy_pixels(const Copied& o, const ELEMENT* from, ELEMENT* to, const Pixels& pixels,
                                            int first) {
  constexpr int COUNT = BYTES / sizeof(ELEMENT), BATCH = COUNT == 1 ? 4 : 1;  // single elements pass through registers
  const unsigned all = pixels.count * o.pieces.divisor;
  for (unsigned i = threadIdx.x; i < all; i += BATCH * THREADS) {
    ELEMENT values[BATCH];
    unsigned targets[BATCH];
#pragma unroll
    for (int b = 0; b < BATCH; b++) {
      unsigned piece, right;
      const unsigned pixel = o.pieces.divide(i + b * THREADS, piece), down = pixels.columns.divide(pixel, right);
      const int y = pixels.row + static_cast<int>(down), x = pixels.column + static_cast<int>(right),
                channel = first + static_cast<int>(piece) * COUNT;
      const bool exists = static_cast<int>(down) < pixels.rows && channel < o.channels &&
                          static_cast<unsigned>(y) < static_cast<unsigned>(o.rows) &&
                          static_cast<unsigned>(x) < static_cast<unsigned>(o.columns);
      const ELEMENT* source = from + (exists ? y * o.row + x * o.column + channel : 0);
      targets[b] = pixel * o.pitch + piece * COUNT;
      if constexpr (COUNT > 1) cp_async<BYTES>(to + targets[b], source, exists);
      else values[b] = exists ? *source : store<ELEMENT>(0.0f);
    }
    if constexpr (COUNT == 1) {
#pragma unroll
      for (int b = 0; b < BATCH; b++)
        if (i + b * THREADS < all) to[targets[b]] = values[b];
    }
  }
}
__device__ __forceinline__ void copy(const Copied& o, const ELEMENT* from, ELEMENT* to, const Pixels& pixels,
                                     int first) {
  if (o.bytes == 16) copy_pixels<16>(o, from, to, pixels, first);
  else if (o.bytes == 8) copy_pixels<8>(o, from, to, pixels, first);
  else if (o.bytes == 4) copy_pixels<4>(o, from, to, pixels, first);
  else copy_pixels<2>(o, from, to, pixels, first);
}

extern "C" __global__ void __launch_bounds__(THREADS, 2) convolution_filter_gradient_few_channels(const Arguments a) {
  griddepcontrol_wait();
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  unsigned row_block, column_block;
  const unsigned part = a.row_blocks.divide(a.column_blocks.divide(blockIdx.x, column_block), row_block);
  const int first_filter = row_block * a.warp_rows * M_TILES * 16;
  const int first_vector = column_block * a.warp_columns * N_TILES;
  // Under one tap a block copies the channels of its columns alone.
  const int first_channel = a.taps > 1 ? 0 : first_vector * VECTOR;
  const int of_warps = a.warp_rows * a.warp_columns, own_step = warp / of_warps;
  const int row = warp % of_warps / a.warp_columns * M_TILES * 16, column = warp % of_warps % a.warp_columns * N_TILES;
  const bool multiplies = own_step < a.warp_steps;
  const int pixels = a.rows * a.columns.divisor, steps = (pixels + STEP - 1) / STEP;

  // Offsets of vectors in shared memory. Those beyond the last read an existing one, and their sums are not stored.
  int incoming[M_TILES], image[N_TILES / 2];
#pragma unroll
  for (int m = 0; m < M_TILES; m++)
    incoming[m] = min(row / VECTOR + m * 2 + lane / 8 % 2, (a.of_filters - 1) / VECTOR) * VECTOR;
#pragma unroll
  for (int n = 0; n < N_TILES / 2; n++) {
    unsigned vector, right;
    const unsigned tap = a.vectors.divide(min(first_vector + column + 2 * n + lane / 16, a.all_vectors - 1), vector);
    const unsigned down = a.right.divide(tap, right);
    image[n] = (down * a.dilation[0] * a.image_columns.divisor + right * a.dilation[1]) * a.image.pitch +
               vector * VECTOR - first_channel;
  }
  ELEMENT* zeros = reinterpret_cast<ELEMENT*>(shared_memory) + 2 * a.buffer;
  if (threadIdx.x < VECTOR) zeros[threadIdx.x] = store<ELEMENT>(0.0f);

  auto load = [&](unsigned index, int buffer) {
    const Tile tile = find_tile(a, index);
    ELEMENT* to = reinterpret_cast<ELEMENT*>(shared_memory) + buffer * a.buffer;
    const Pixels under{a.image_columns, a.image_pixels, a.image_pixels, tile.row * a.stride[0] - a.padding[0],
                       tile.column * a.stride[1] - a.padding[1]};
    copy(a.image, a.x + tile.image * a.image.image, to, under, first_channel);
    copy(a.incoming, a.dy + tile.image * a.incoming.image, to + a.incoming_at,
         {a.columns, steps * STEP, a.rows, tile.row, tile.column}, first_filter);
  };

  float sums[M_TILES][N_TILES][4] = {};
  if (part < a.tiles) load(part, 0);
  cp_async_commit();
  int buffer = 0;
  for (unsigned index = part; index < a.tiles; index += a.parts, buffer ^= 1) {
    if (index + a.parts < a.tiles) load(index + a.parts, buffer ^ 1);
    cp_async_commit();
    cp_async_wait<1>();
    __syncthreads();
    const Tile tile = find_tile(a, index);
    const int rows = min(a.rows, a.incoming.rows - tile.row), columns = a.incoming.columns - tile.column;
    const ELEMENT* x = reinterpret_cast<const ELEMENT*>(shared_memory) + buffer * a.buffer;
    const ELEMENT* dy = x + a.incoming_at;
    for (int step = own_step; multiplies && step < steps; step += a.warp_steps) {
      // The products of pixels outside are zero, even where x is infinite.
      unsigned across;
      const int down = a.columns.divide(step * STEP + lane % 16, across);
      const bool exists = down < rows && static_cast<int>(across) < columns;
      const ELEMENT* pixel = x + (down * a.stride[0] * a.image_columns.divisor + across * a.stride[1]) * a.image.pitch;
      const ELEMENT* gradients = dy + (step * STEP + lane % 8 + lane / 16 * 8) * a.incoming.pitch;
      unsigned left[M_TILES][4];
#pragma unroll
      for (int m = 0; m < M_TILES; m++) ldmatrix<4, true>(left[m], gradients + incoming[m]);
#pragma unroll
      for (int n = 0; n < N_TILES; n += 2) {
        if (first_vector + column + n >= a.all_vectors) break;
        unsigned right[4];
        ldmatrix<4, true>(right, exists ? pixel + image[n / 2] : zeros);
        const unsigned pairs[2][2] = {{right[0], right[1]}, {right[2], right[3]}};
#pragma unroll
        for (int m = 0; m < M_TILES; m++)
#pragma unroll
          for (int i = 0; i < 2; i++) mma_sync<ELEMENT>(sums[m][n + i], left[m], pairs[i]);
      }
    }
    __syncthreads();
  }
  cp_async_wait<0>();
  __syncthreads();

  // The warps of the first step add the sums of the others, in their order.
  constexpr int ALL = M_TILES * N_TILES * 4;
  float* exchanged = reinterpret_cast<float*>(shared_memory) + warp % of_warps * (ALL * 32) + lane;
  float* own = &sums[0][0][0];
  if (multiplies && own_step > 0)
#pragma unroll
    for (int i = 0; i < ALL; i++) exchanged[((own_step - 1) * of_warps * ALL + i) * 32] = own[i];
  __syncthreads();
  if (own_step > 0) return;
  for (int other = 1; other < a.warp_steps; other++)
#pragma unroll
    for (int i = 0; i < ALL; i++) own[i] += exchanged[((other - 1) * of_warps * ALL + i) * 32];

#pragma unroll
  for (int n = 0; n < N_TILES; n++) {
    const int of_tap = first_vector + column + n;
    if (of_tap >= a.all_vectors) break;
    unsigned vector;
    const int tap = a.vectors.divide(of_tap, vector), channel = vector * VECTOR + lane % 4 * 2;
    const int to_tap = (a.flipped ? a.taps - 1 - tap : tap) * a.tap_step;
#pragma unroll
    for (int m = 0; m < M_TILES; m++)
#pragma unroll
      for (int i = 0; i < 4; i++) {
        const int filter = first_filter + row + m * 16 + lane / 4 + i / 2 * 8;
        if (filter >= a.filters || channel + i % 2 >= a.channels) continue;
        const int element = filter * a.filter_step + to_tap + (channel + i % 2) * a.channel_step;
        if (a.parts == 1) a.dw[element] = blend<float>(a.alpha, sums[m][n][i], a.beta, a.dw + element);
        else a.partial[static_cast<long long>(part) * a.elements + element] = sums[m][n][i];
      }
  }
}
