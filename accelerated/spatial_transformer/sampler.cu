// Bilinear sampling at a grid of coordinates (3.2.98), and its gradients (4.1.21).
//
// Forward: a thread has one output pixel and CHANNELS channels of it, or a block a plane of x in shared memory.
// Gradient of the grid: one thread has an output pixel, or several its channels one after the other; sums are taken in
// one order. Gradient of x: a block has a tile of 16 x 16 input pixels and CHANNELS channels. It gathers the samples
// with a corner in the tile, in the order of the output pixels: from all of the image where these are few, else from
// the bins of a stable counting sort, whose launches count, scan and store the samples in scratch memory. It sorts them
// by cell, and each thread adds those of the four cells around its pixel: the same order, the same bits.
//
// Roofline bound: bytes, forward 1 element read and 1 written (the four corners come from L1 where the grid is smooth)
// and the grid once for CHANNELS channels: 1.9 ps of float at 4.2 TB/s on an H200 (calculated). The gradient of x reads
// dy and the grid once, 8 bytes of a bin up to four times; random samples read 32 bytes of L2 for each element.
#include "primitives/cp_async.cuh"
#include "primitives/geometry.cuh"
#include "primitives/types.cuh"

constexpr int TILE = 16, THREADS = TILE * TILE, WARPS = THREADS / 32;

struct Strides {
  int image, channel, row, column;
};

struct Shape {  // of the input and of the transformed tensor, both of these images and channels
  int channels, height, width;
  FastDivmod out_width, out_height;
};

// The pixels between which a sample lies: `row` and `column` are the first ones.
struct Cell {
  int row, column;
  COMPUTE below, right;  // how far it is behind them
  bool sound;            // the coordinates are finite numbers

  __device__ __forceinline__ Cell(const ELEMENT* coordinates, const Shape& shape)
      : Cell(coordinates[0], coordinates[1], shape) {}
  __device__ __forceinline__ Cell(ELEMENT of_column, ELEMENT of_row, const Shape& shape) {
    const COMPUTE x = load<COMPUTE>(of_column), y = load<COMPUTE>(of_row);
    sound = x - x == COMPUTE(0) && y - y == COMPUTE(0);
    column = first(x, shape.width, right), row = first(y, shape.height, below);
  }
  // Beyond the input it is all the same how far: no integer overflows.
  static __device__ __forceinline__ int first(COMPUTE coordinate, int size, COMPUTE& behind) {
    const COMPUTE at = (coordinate + COMPUTE(1)) * (COMPUTE(size - 1) / COMPUTE(2));
    const COMPUTE near = fmin(fmax(at, COMPUTE(-2)), COMPUTE(size + 1)), before = floor(near);
    behind = near - before;
    return static_cast<int>(before);
  }
  __device__ __forceinline__ COMPUTE weight(int below_it, int right_of_it) const {
    return (below_it ? below : COMPUTE(1) - below) * (right_of_it ? right : COMPUTE(1) - right);
  }
};

// The four corners of a cell in an image: offsets, and which of them lie inside.
struct Corners {
  int offset[2][2];
  bool inside[2][2];
  __device__ __forceinline__ Corners(const Cell& cell, const Shape& shape, const Strides& strides, int image) {
#pragma unroll
    for (int i = 0; i < 2; i++) {
#pragma unroll
      for (int j = 0; j < 2; j++) {
        const int row = cell.row + i, column = cell.column + j;
        inside[i][j] = row >= 0 && row < shape.height && column >= 0 && column < shape.width;
        offset[i][j] = image * strides.image + row * strides.row + column * strides.column;
      }
    }
  }
  __device__ __forceinline__ COMPUTE value(const ELEMENT* x, int i, int j) const {
    return inside[i][j] ? load<COMPUTE>(x[offset[i][j]]) : COMPUTE(0);
  }
};

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

// --- the gradient of x ---

// The bins of the counting sort: cells of samples, of which `side` x `side` share a bin. Row and column of a cell count
// from the first one with a corner inside, one before the first pixel.
struct Bins {
  unsigned side, across, bins;     // side: as a power of two; bins of a row; of an image
  unsigned pixels, chunk, chunks;  // output pixels of an image; of a block; blocks of an image

  __device__ __forceinline__ unsigned row_length() const { return bins + 1; }
  // Where the samples of a chunk begin in a bin; of the first chunk, behind the last bin: where they end.
  __device__ __forceinline__ unsigned start_index(unsigned image, unsigned chunk, unsigned bin) const {
    return (image * chunks + chunk) * row_length() + bin;
  }
};
// An output pixel, and row and column of its cell within the bin.
struct Entry {
  unsigned pixel;
  unsigned short row, column;
};

// Row and column of the cell of a sample; false where no corner lies inside.
__device__ __forceinline__ bool reaches(const Cell& cell, const Shape& shape, unsigned& row, unsigned& column) {
  row = cell.row + 1, column = cell.column + 1;
  return cell.sound && row <= unsigned(shape.height) && column <= unsigned(shape.width);
}
// The lanes of the warp with the same key, of those where `exists`. To be called by all lanes.
__device__ __forceinline__ unsigned peers_of(unsigned key, int bits, bool exists) {
  unsigned peers = __ballot_sync(0xFFFFFFFFu, exists);
  for (int bit = 0; bit < bits; bit++) {
    const bool set = key >> bit & 1;
    const unsigned with_it = __ballot_sync(0xFFFFFFFFu, set);
    peers &= set ? with_it : ~with_it;
  }
  return peers;
}
__device__ __forceinline__ unsigned lanes_before() { return (1u << threadIdx.x % 32) - 1; }

struct SortArguments {
  const ELEMENT* grid;
  unsigned char* scratch;
  long long starts;  // bytes of the entries, before the starts
  Shape shape;
  Bins bins;
  unsigned images;

  __device__ __forceinline__ Entry* entries() const { return reinterpret_cast<Entry*>(scratch); }
  __device__ __forceinline__ unsigned* start(unsigned image, unsigned chunk, unsigned bin) const {
    return reinterpret_cast<unsigned*>(scratch + starts) + bins.start_index(image, chunk, bin);
  }
  // What bin, row and column of it a pixel has; false where no corner of its sample lies inside.
  __device__ __forceinline__ bool find(unsigned image, unsigned pixel, unsigned end, unsigned& bin, unsigned& row,
                                       unsigned& column) const {
    bin = row = column = 0;
    const bool exists =
        pixel < end && reaches(Cell(grid + 2 * (image * bins.pixels + pixel), shape), shape, row, column);
    const unsigned mask = (1u << bins.side) - 1;
    bin = exists ? (row >> bins.side) * bins.across + (column >> bins.side) : 0;
    row &= mask, column &= mask;
    return exists;
  }
};

// How many samples of each chunk every bin has.
extern "C" __global__ void __launch_bounds__(THREADS) spatial_transformer_sampler_count(const SortArguments a) {
  griddepcontrol_wait();
  unsigned* const found = reinterpret_cast<unsigned*>(shared_memory);
  const unsigned image = blockIdx.y, chunk = blockIdx.x;
  for (unsigned bin = threadIdx.x; bin < a.bins.bins; bin += THREADS) found[bin] = 0;
  __syncthreads();
  const unsigned end = min(a.bins.pixels, (chunk + 1) * a.bins.chunk);
#pragma unroll 4
  for (unsigned pixel = chunk * a.bins.chunk + threadIdx.x; pixel < end; pixel += THREADS) {
    unsigned bin, row, column;
    if (a.find(image, pixel, end, bin, row, column)) atomicAdd(&found[bin], 1u);
  }
  __syncthreads();
  for (unsigned bin = threadIdx.x; bin < a.bins.bins; bin += THREADS) *a.start(image, chunk, bin) = found[bin];
}

// The sum of the numbers of the threads before; all: of all threads.
__device__ __forceinline__ unsigned exclusive_scan(unsigned mine, unsigned& all) {
  __shared__ unsigned of_warp[WARPS];
  unsigned sum = mine;
#pragma unroll
  for (int distance = 1; distance < 32; distance *= 2) {
    const unsigned before = __shfl_up_sync(0xFFFFFFFFu, sum, distance);
    if (threadIdx.x % 32 >= distance) sum += before;
  }
  __syncthreads();  // what lay there before is read
  if (threadIdx.x % 32 == 31) of_warp[threadIdx.x / 32] = sum;
  __syncthreads();
  all = 0;
#pragma unroll
  for (int w = 0; w < WARPS; w++) {
    if (w < threadIdx.x / 32) sum += of_warp[w];
    all += of_warp[w];
  }
  return sum - mine;
}

// The counts become starts. A block has an image.
extern "C" __global__ void __launch_bounds__(THREADS) spatial_transformer_sampler_scan(const SortArguments a) {
  griddepcontrol_wait();
  const unsigned image = blockIdx.x;
  unsigned before = 0;
  for (unsigned first = 0; first < a.bins.bins; first += THREADS) {
    const unsigned bin = first + threadIdx.x;
    unsigned mine = 0, all;
    if (bin < a.bins.bins) {
#pragma unroll 8
      for (unsigned chunk = 0; chunk < a.bins.chunks; chunk++) mine += *a.start(image, chunk, bin);
    }
    unsigned at = before + exclusive_scan(mine, all);
    if (bin < a.bins.bins) {
#pragma unroll 8
      for (unsigned chunk = 0; chunk < a.bins.chunks; chunk++) {
        unsigned* const start = a.start(image, chunk, bin);
        const unsigned count = *start;
        *start = at;
        at += count;
      }
    }
    before += all;
  }
  if (threadIdx.x == 0) *a.start(image, 0, a.bins.bins) = before;
}

// Every sample to its index within its bin, in the order of the output pixels: a warp ranks a run of them by itself,
// then those of the block come together.
extern "C" __global__ void __launch_bounds__(THREADS) spatial_transformer_sampler_sort(const SortArguments a) {
  griddepcontrol_wait();
  constexpr unsigned OF_LANE = 8, OF_WARP = 32 * OF_LANE;  // pixels at a time
  unsigned* const next = reinterpret_cast<unsigned*>(shared_memory);
  unsigned short* const before = reinterpret_cast<unsigned short*>(next + a.bins.bins);  // [WARPS][bins]
  const unsigned image = blockIdx.y, chunk = blockIdx.x, warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  unsigned short* const mine = before + warp * a.bins.bins;
  for (unsigned bin = threadIdx.x; bin < a.bins.bins; bin += THREADS) next[bin] = *a.start(image, chunk, bin);
  Entry* const entries = a.entries() + static_cast<size_t>(image) * a.bins.pixels;
  const int bits = 32 - __clz(a.bins.bins);
  const unsigned end = min(a.bins.pixels, (chunk + 1) * a.bins.chunk);
  for (unsigned start = chunk * a.bins.chunk; start < end; start += WARPS * OF_WARP) {
    unsigned bin[OF_LANE], rank[OF_LANE];
    Entry entry[OF_LANE];
    for (unsigned i = threadIdx.x; i < WARPS * a.bins.bins; i += THREADS) before[i] = 0;
#pragma unroll
    for (unsigned i = 0; i < OF_LANE; i++) {
      unsigned row, column;
      entry[i].pixel = start + warp * OF_WARP + i * 32 + lane;
      rank[i] = a.find(image, entry[i].pixel, end, bin[i], row, column) ? 0 : OF_WARP;
      entry[i].row = static_cast<unsigned short>(row), entry[i].column = static_cast<unsigned short>(column);
    }
    __syncthreads();
#pragma unroll
    for (unsigned i = 0; i < OF_LANE; i++) {
      const bool exists = rank[i] < OF_WARP;
      const unsigned peers = peers_of(bin[i], bits, exists), of_peers = __popc(peers & lanes_before());
      if (exists) rank[i] = mine[bin[i]] + of_peers;
      __syncwarp();
      if (exists && of_peers == 0) mine[bin[i]] = static_cast<unsigned short>(rank[i] + __popc(peers));
      __syncwarp();
    }
    __syncthreads();
    // The next chunk of this block, where there is one, begins where this one ends.
    const bool last = start + WARPS * OF_WARP >= end;
    for (unsigned b = threadIdx.x; b < a.bins.bins; b += THREADS) {
      unsigned all = 0;
#pragma unroll
      for (int w = 0; w < WARPS; w++) {
        unsigned short& of_warp = before[w * a.bins.bins + b];
        const unsigned count = of_warp;
        of_warp = static_cast<unsigned short>(all);
        all += count;
      }
      if (!last) before[WARPS * a.bins.bins + b] = static_cast<unsigned short>(all);
    }
    __syncthreads();
#pragma unroll
    for (unsigned i = 0; i < OF_LANE; i++)
      if (rank[i] < OF_WARP) entries[next[bin[i]] + mine[bin[i]] + rank[i]] = entry[i];
    if (last) break;
    __syncthreads();
    for (unsigned b = threadIdx.x; b < a.bins.bins; b += THREADS) next[b] += before[WARPS * a.bins.bins + b];
    __syncthreads();
  }
}

struct GradientArguments {
  const ELEMENT* dy;
  const ELEMENT* grid;
  ELEMENT* dx;
  const unsigned char* scratch;  // null where the samples are not sorted
  const ELEMENT* x;
  ELEMENT* dgrid;
  COMPUTE alpha, beta, grid_alpha, grid_beta;
  Shape shape;
  Strides in, out, of_x;               // of dx, of dy, of x
  FastDivmod tiles, tile_row, blocks;  // of an image, of a row of tiles; blocks of a tile
  int groups;                          // of CHANNELS, that a block has
  long long starts;
  Bins bins;
  unsigned pixels;    // output pixels of all images
  int slices;         // threads of an output pixel, a power of two
  int interleaved;    // they are neighbours, as channels are in memory
  FastDivmod period;  // of so many blocks the first is one of the gradient that has fewer blocks
  unsigned fewer;     // its blocks
  int grid_has_fewer;
};

constexpr int CANDIDATES = 6, IN_FLIGHT = 4;  // of a thread: samples that may reach its tile; packs of samples
constexpr int LANES = LANE_WIDTH > 0 ? LANE_WIDTH : 1;      // channels of a pack, where they lie side by side
constexpr int SAMPLES = 2 * THREADS, SLOTS = SAMPLES / 32;  // of a tile at a time
constexpr int SIDE = TILE + 1, CELLS = SIDE * SIDE, CELL_PAIRS = (CELLS + 1) / 2,
              CELL_BITS = 9;  // cells with a corner in a tile

// What a block has of its samples: those found, and their numbers in each cell; then their gradients of a group.
struct TileShared {
  union {
    struct {
      int offset[SAMPLES];  // of the gradient in dy
      COMPUTE below[SAMPLES], right[SAMPLES];
      unsigned short cell[SAMPLES];
      unsigned before[SLOTS][CELL_PAIRS];  // of each 32 samples: how many, then how many before them, of two cells
      __device__ __forceinline__ unsigned short& before_cell(unsigned slot, unsigned cell) {
        return reinterpret_cast<unsigned short*>(before[slot])[cell];
      }
    } found;
    ELEMENT gradient[CHANNELS][SAMPLES];
  };
  int offset[SAMPLES];  // of those sorted by cell
  COMPUTE below[SAMPLES], right[SAMPLES];
  unsigned short start[CELLS + 2];  // of the samples of a cell
  __device__ __forceinline__ TileShared() {}
};

__device__ __forceinline__ void gradient_of_x(const GradientArguments& a, unsigned index, TileShared& shared) {
  unsigned tile, tile_column, block;
  const unsigned image = a.blocks.divide(a.tiles.divide(index, tile), block);
  const unsigned top = a.tile_row.divide(tile, tile_column) * TILE, left = tile_column * TILE;
  const int my_row = threadIdx.x / TILE, my_column = threadIdx.x % TILE;
  const ELEMENT* grid = a.grid + 2 * static_cast<size_t>(image) * a.bins.pixels;
  int first = block * a.groups * CHANNELS;  // channel
  const int end_channel = min(first + a.groups * CHANNELS, a.shape.channels);
  COMPUTE sum[CHANNELS] = {};
  unsigned count = 0;  // of samples found, the same in all threads

  // Sorts those found by cell.
  auto sort = [&] {
    auto& found = shared.found;
    const unsigned slots = (count + 31) / 32;
    for (unsigned i = threadIdx.x; i < slots * CELL_PAIRS; i += THREADS) (&found.before[0][0])[i] = 0;
    __syncthreads();
    unsigned rank[SAMPLES / THREADS];
#pragma unroll
    for (int r = 0; r < SAMPLES / THREADS; r++) {
      rank[r] = 0;
      if (r * THREADS >= count) continue;
      const unsigned i = r * THREADS + threadIdx.x, cell = i < count ? found.cell[i] : 0;
      const unsigned peers = peers_of(cell, CELL_BITS, i < count);
      rank[r] = __popc(peers & lanes_before());
      if (i < count && rank[r] == 0) found.before_cell(i / 32, cell) = static_cast<unsigned short>(__popc(peers));
    }
    __syncthreads();
    // A thread has the counts of two neighbouring cells, in one word.
    unsigned of_pair = 0, all;
    if (threadIdx.x < CELL_PAIRS) {
#pragma unroll 4
      for (unsigned slot = 0; slot < slots; slot++) {
        const unsigned of_slot = found.before[slot][threadIdx.x];
        found.before[slot][threadIdx.x] = of_pair;
        of_pair += of_slot;
      }
    }
    const unsigned of_cell[2] = {of_pair & 0xFFFF, of_pair >> 16};
    const unsigned start = exclusive_scan(of_cell[0] + of_cell[1], all);
    if (2 * threadIdx.x < CELLS + 1) {
      shared.start[2 * threadIdx.x] = start;
      shared.start[2 * threadIdx.x + 1] = start + of_cell[0];
    }
    __syncthreads();
#pragma unroll
    for (int r = 0; r < SAMPLES / THREADS; r++) {
      const unsigned i = r * THREADS + threadIdx.x;
      if (i >= count) continue;
      const unsigned cell = found.cell[i], at = shared.start[cell] + found.before_cell(i / 32, cell) + rank[r];
      shared.offset[at] = found.offset[i];
      shared.below[at] = found.below[i], shared.right[at] = found.right[i];
    }
    __syncthreads();
  };
  // Adds them up for the channels from `first` on.
  auto add = [&] {
    const int channels = min(CHANNELS, end_channel - first);
    const ELEMENT* dy = a.dy + (image * a.out.image + first * a.out.channel);
#pragma unroll
    for (int r = 0; r < SAMPLES / THREADS; r++) {
      const unsigned i = r * THREADS + threadIdx.x;
      if (i >= count) continue;
#pragma unroll
      for (int c = 0; c < CHANNELS; c++)
        if (c < channels) shared.gradient[c][i] = dy[shared.offset[i] + c * a.out.channel];
    }
    __syncthreads();
    // The pixel is the bottom corner of the samples of the first row of cells, the top one of the second, and in each
    // row the right corner of the first cell's.
#pragma unroll
    for (int i = 0; i < 2; i++) {
      const int cell = (my_row + i) * SIDE + my_column;
      const unsigned second = shared.start[cell + 1], end = shared.start[cell + 2];
      for (unsigned s = shared.start[cell]; s < end; s++) {
        const COMPUTE below = shared.below[s], right = shared.right[s];
        const COMPUTE weight = (i ? COMPUTE(1) - below : below) * (s < second ? right : COMPUTE(1) - right);
#pragma unroll
        for (int c = 0; c < CHANNELS; c++)
          if (c < channels) sum[c] += weight * load<COMPUTE>(shared.gradient[c][s]);
      }
    }
    __syncthreads();
  };
  // Adds them up and writes them, where channels lie side by side: neighbouring threads have packs of them, a thread
  // one of a pixel, which it reads from the samples one after the other.
  auto add_rows = [&] {
    using Packed = Pack<ELEMENT, LANES>;
    const unsigned lanes = (end_channel - first) / LANES;
    const ELEMENT* dy = a.dy + (image * a.out.image + first);
    const unsigned pixels = THREADS / lanes,
                   further = THREADS - pixels * lanes;  // from one pack of a thread to the next
    unsigned pixel = threadIdx.x / lanes, lane = threadIdx.x - pixel * lanes;
    for (; pixel < TILE * TILE; pixel += pixels, lane += further) {
      if (lane >= lanes) lane -= lanes, pixel++;
      if (pixel >= TILE * TILE) break;
      const unsigned channel = lane * LANES;
      const unsigned in_row = pixel / TILE, in_column = pixel % TILE, row = top + in_row, column = left + in_column;
      if (row >= a.shape.height || column >= a.shape.width) continue;
      COMPUTE total[LANES] = {};
#pragma unroll
      for (int side = 0; side < 2; side++) {
        const unsigned cell = (in_row + side) * SIDE + in_column;
        const unsigned second = shared.start[cell + 1], end = shared.start[cell + 2];
        for (unsigned s = shared.start[cell]; s < end; s += IN_FLIGHT) {
          Packed read[IN_FLIGHT];
#pragma unroll
          for (unsigned u = 0; u < IN_FLIGHT; u++)
            if (s + u < end) read[u] = *reinterpret_cast<const Packed*>(dy + (shared.offset[s + u] + channel));
#pragma unroll
          for (unsigned u = 0; u < IN_FLIGHT; u++) {
            if (s + u >= end) continue;
            const COMPUTE below = shared.below[s + u], right = shared.right[s + u];
            const COMPUTE weight = (side ? COMPUTE(1) - below : below) * (s + u < second ? right : COMPUTE(1) - right);
#pragma unroll
            for (int k = 0; k < LANES; k++) total[k] += weight * load<COMPUTE>(read[u].item[k]);
          }
        }
      }
      ELEMENT* const dx = a.dx + (image * a.in.image + row * a.in.row + column * a.in.column + first + channel);
      Packed result, prior;
      if (a.beta != COMPUTE(0)) prior = *reinterpret_cast<const Packed*>(dx);
#pragma unroll
      for (int k = 0; k < LANES; k++) result.item[k] = blend(a.alpha, total[k], a.beta, &prior.item[k]);
      *reinterpret_cast<Packed*>(dx) = result;
    }
  };
  // Writes them.
  auto write = [&] {
    const unsigned row = top + my_row, column = left + my_column;
    ELEMENT* dx = a.dx + (image * a.in.image + first * a.in.channel + row * a.in.row + column * a.in.column);
#pragma unroll
    for (int c = 0; c < CHANNELS; c++) {
      ELEMENT* result = dx + c * a.in.channel;
      if (first + c < end_channel && row < a.shape.height && column < a.shape.width)
        *result = blend(a.alpha, sum[c], a.beta, result);
      sum[c] = 0;
    }
  };
  // Whether a sample has a corner in the tile; row and column become those of its cell there.
  auto in_tile = [&](bool exists, unsigned& row, unsigned& column) {
    row -= top, column -= left;
    return exists && row < SIDE && column < SIDE;
  };
  auto keep = [&](unsigned at, unsigned pixel, unsigned row, unsigned column) {
    const Cell cell(grid + 2 * pixel, a.shape);
    unsigned in_row;
    const unsigned of_image = a.shape.out_width.divide(pixel, in_row);
    shared.found.offset[at] = of_image * a.out.row + in_row * a.out.column;
    shared.found.below[at] = cell.below, shared.found.right[at] = cell.right;
    shared.found.cell[at] = row * SIDE + column;
  };
  // Keeps the samples that have a corner in the tile, in the order of the threads.
  auto gather = [&](unsigned pixel, bool exists, unsigned row, unsigned column) {
    exists = in_tile(exists, row, column);
    unsigned all;
    const unsigned at = count + exclusive_scan(exists, all);
    if (exists) keep(at, pixel, row, column);
    count += all;
  };

  // The samples of one or two rows of bins, or all of the image. Where they are few, they are sorted once for all
  // channels of the block; else they are gathered again for each group of channels.
  const Entry* entries = reinterpret_cast<const Entry*>(a.scratch) + static_cast<size_t>(image) * a.bins.pixels;
  const unsigned* starts = reinterpret_cast<const unsigned*>(a.scratch + a.starts) + a.bins.start_index(image, 0, 0);
  const unsigned side = a.bins.side, last_row = min(top + TILE, unsigned(a.shape.height)) >> side,
                 last_column = min(left + TILE, unsigned(a.shape.width)) >> side;
  // Most tiles have so few samples that all of them are read at once.
  {
    unsigned begin[2] = {}, middle[2] = {}, end[2] = {a.bins.pixels, 0};
    if (a.scratch) {
#pragma unroll
      for (int i = 0; i < 2; i++) {
        const unsigned bin_row = (top >> side) + i, from = bin_row * a.bins.across + (left >> side);
        if (i > 0 && bin_row > last_row) {
          end[i] = 0;
          continue;
        }
        begin[i] = starts[from], middle[i] = starts[from + 1];
        end[i] = starts[from + 1 + last_column - (left >> side)];
      }
    }
    const unsigned of_first = end[0] - begin[0], candidates = of_first + (end[1] - begin[1]);
    if (candidates <= CANDIDATES * THREADS && last_row <= (top >> side) + 1) {
      Entry entry[CANDIDATES];  // row and column in the tile of those that reach it
      bool kept[CANDIDATES];
      unsigned mine = 0;
#pragma unroll
      for (int r = 0; r < CANDIDATES; r++) {
        const unsigned i = r * THREADS + threadIdx.x, at = i < of_first ? begin[0] + i : begin[1] + (i - of_first);
        kept[r] = i < candidates;
        if (r * THREADS >= candidates) continue;
        entry[r] = {at, 0, 0};
        if (kept[r] && a.scratch) entry[r] = entries[at];
      }
#pragma unroll
      for (int r = 0; r < CANDIDATES; r++) {
        if (r * THREADS >= candidates) continue;
        const unsigned i = r * THREADS + threadIdx.x, second = i >= of_first;
        unsigned row = ((top >> side) + second) << side, column = left >> side << side;
        if (!a.scratch) {
          kept[r] = kept[r] && reaches(Cell(grid + 2 * entry[r].pixel, a.shape), a.shape, row, column);
        } else {
          const unsigned at = second ? begin[1] + (i - of_first) : begin[0] + i;
          row += entry[r].row, column += entry[r].column + ((at >= middle[second]) << side);
        }
        kept[r] = in_tile(kept[r], row, column);
        entry[r].row = static_cast<unsigned short>(row), entry[r].column = static_cast<unsigned short>(column);
        mine += kept[r];
      }
      unsigned at = exclusive_scan(mine, count);
      if (count <= SAMPLES) {
#pragma unroll
        for (int r = 0; r < CANDIDATES; r++)
          if (kept[r]) keep(at++, entry[r].pixel, entry[r].row, entry[r].column);
        __syncthreads();
        sort();
        if (LANE_WIDTH > 0) return add_rows();
        for (; first < end_channel; first += CHANNELS) {
          add();
          write();
        }
        return;
      }
      count = 0;
    }
  }
  while (first < end_channel) {
    bool several = false;
    for (unsigned bin_row = a.scratch ? top >> side : last_row; bin_row <= last_row; bin_row++) {
      unsigned begin = 0, middle = 0, end = a.bins.pixels;
      if (a.scratch) {  // the bins of a row follow each other
        const unsigned from = bin_row * a.bins.across + (left >> side);
        begin = starts[from], middle = starts[from + 1], end = starts[from + 1 + last_column - (left >> side)];
      }
      do {
        const unsigned i = begin + threadIdx.x;
        unsigned pixel = i, row = 0, column = 0;
        bool exists = i < end;
        if (exists) {
          if (a.scratch) {
            const Entry entry = entries[i];
            pixel = entry.pixel, row = (bin_row << side) + entry.row;
            column = (((left >> side) + (i >= middle)) << side) + entry.column;
          } else {
            exists = reaches(Cell(grid + 2 * pixel, a.shape), a.shape, row, column);
          }
        }
        gather(pixel, exists, row, column);
        begin += THREADS;
        const bool last = bin_row == last_row && begin >= end;
        if (!last && count <= SAMPLES - THREADS) continue;
        __syncthreads();
        sort();
        several = several || !last;
        do {
          add();
          if (last) {
            write();
            first += CHANNELS;
          }
        } while (last && !several && first < end_channel);
        count = 0;
      } while (begin < end);
    }
  }
}

// --- the gradient of the grid ---

__device__ __forceinline__ void gradient_of_grid(const GradientArguments& a, unsigned index,
                                                 COMPUTE (&partial)[2][THREADS]) {
  const int width = THREADS / a.slices;
  const int of_block = a.interleaved ? threadIdx.x / a.slices : threadIdx.x % width;
  const int slice = a.interleaved ? threadIdx.x % a.slices : threadIdx.x / width;
  const unsigned pixel = index * width + of_block;
  unsigned row, column;
  const unsigned image = a.shape.out_height.divide(a.shape.out_width.divide(pixel, column), row);
  const ELEMENT* coordinates = a.grid + 2 * pixel;
  ELEMENT* result = a.dgrid + 2 * pixel;
  COMPUTE along_row = 0, along_column = 0;
  bool sound = true;
  if (pixel < a.pixels) {
    const Cell cell(coordinates, a.shape);
    const Corners corners(cell, a.shape, a.of_x, image);
    const ELEMENT* dy = a.dy + (image * a.out.image + row * a.out.row + column * a.out.column);
    sound = cell.sound;
    for (int channel = slice; channel < a.shape.channels; channel += a.slices) {
      const ELEMENT* x = a.x + channel * a.of_x.channel;
      COMPUTE value[2][2];
#pragma unroll
      for (int corner = 0; corner < 4; corner++)
        value[corner / 2][corner % 2] = corners.value(x, corner / 2, corner % 2);
      const COMPUTE gradient = load<COMPUTE>(dy[channel * a.out.channel]);
      along_row += gradient *
                   ((COMPUTE(1) - cell.below) * (value[0][1] - value[0][0]) + cell.below * (value[1][1] - value[1][0]));
      along_column += gradient * ((COMPUTE(1) - cell.right) * (value[1][0] - value[0][0]) +
                                  cell.right * (value[1][1] - value[0][1]));
    }
  }
  if (a.slices > 1) {
    partial[0][slice * width + of_block] = along_row, partial[1][slice * width + of_block] = along_column;
    __syncthreads();
    for (int other = 1; other < a.slices && slice == 0; other++) {
      along_row += partial[0][other * width + of_block];
      along_column += partial[1][other * width + of_block];
    }
  }
  if (slice > 0 || pixel >= a.pixels) return;
  along_row *= COMPUTE(a.shape.width - 1) / COMPUTE(2), along_column *= COMPUTE(a.shape.height - 1) / COMPUTE(2);
  result[0] = blend(a.grid_alpha, sound ? along_row : COMPUTE(NAN), a.grid_beta, result);
  result[1] = blend(a.grid_alpha, sound ? along_column : COMPUTE(NAN), a.grid_beta, result + 1);
}

// Both gradients: blocks of one, which add and sort, run beside blocks of the other, which wait for L2.
extern "C" __global__ void __launch_bounds__(THREADS, 4)
    spatial_transformer_sampler_gradients(const GradientArguments a) {
  griddepcontrol_wait();
  __shared__ __align__(16) unsigned char shared_bytes[sizeof(TileShared)];
  unsigned in_period;
  const unsigned period = a.period.divide(blockIdx.x, in_period);
  const bool is_fewer = in_period == 0 && period < a.fewer;
  const unsigned index = is_fewer ? period : blockIdx.x - min(period + 1, a.fewer);
  if (is_fewer == (a.grid_has_fewer != 0))
    gradient_of_grid(a, index, reinterpret_cast<COMPUTE(&)[2][THREADS]>(shared_bytes));
  else gradient_of_x(a, index, reinterpret_cast<TileShared&>(shared_bytes));
}
