// This file computes the gradients of bilinear sampling (4.1.21).
//
// A tile of 16 x 16 input pixels adds up the samples that have a corner in it. `sampler_sort` builds its list: each
// block sorts CHUNK output pixels of an image by tiles in shared memory. In `sampler_gradients` a block owns a tile and
// CHANNELS channels. It sorts the samples of its lists by cell, and each thread adds the samples of the four cells
// around its pixel. Both kernels sort with atomic additions in undefined order, which does not change which samples are
// added together. Samples of one cell are then put in the order of the output pixels, so results are bitwise
// reproducible.
//
// If FUSED, the tile that owns a cell also computes the gradient of its grid, with its pixels of x in shared memory.
// Else separate blocks do: one thread per output pixel, or several that divide its channels.
//
// The roofline bound is bytes. The kernels read dy, x and the grid once and write dx and dgrid once. 2 bytes of a list
// move up to four times. With 3 channels of float this takes 13 ps per element at 4.2 TB/s on an H200 (calculated).
// Random samples take one L2 sector of 32 bytes per element of dy.
#include "spatial_transformer/sampler.cuh"

constexpr unsigned ALL_LANES = 0xFFFFFFFF;

// Finds the row and column of a sample's cell, counted from the first cell with a corner inside, one before the first
// pixel. Returns false if no corner is inside.
__device__ __forceinline__ bool reaches(const Cell& cell, const Shape& shape, unsigned& row, unsigned& column) {
  row = cell.row + 1, column = cell.column + 1;
  return cell.sound() && row <= unsigned(shape.height) && column <= unsigned(shape.width);
}
// Returns the sum over the preceding lanes.
__device__ __forceinline__ unsigned exclusive_scan_of_warp(unsigned mine) {
  unsigned sum = mine;
#pragma unroll
  for (int distance = 1; distance < 32; distance *= 2) {
    const unsigned before = __shfl_up_sync(ALL_LANES, sum, distance);
    if (threadIdx.x % 32 >= distance) sum += before;
  }
  return sum - mine;
}

// Adds a gradient's share to the gradient of its sample's coordinates, in pixels. `value` holds the four pixels of x
// around the sample.
__device__ __forceinline__ void add_gradient_of_cell(COMPUTE gradient, const COMPUTE (&value)[2][2], COMPUTE below,
                                                     COMPUTE right, COMPUTE& along_row, COMPUTE& along_column) {
  along_row += gradient * ((COMPUTE(1) - below) * (value[0][1] - value[0][0]) + below * (value[1][1] - value[1][0]));
  along_column += gradient * ((COMPUTE(1) - right) * (value[1][0] - value[0][0]) + right * (value[1][1] - value[0][1]));
}
// Writes the gradient of a sample's coordinates from the gradients along row and column in pixels.
__device__ __forceinline__ void write_gradient_of_grid(ELEMENT* result, COMPUTE along_row, COMPUTE along_column,
                                                       bool sound, const Shape& shape, COMPUTE alpha, COMPUTE beta) {
  along_row *= COMPUTE(shape.width - 1) / COMPUTE(2), along_column *= COMPUTE(shape.height - 1) / COMPUTE(2);
  using Coordinates = Vector<ELEMENT, 2>;
  const Coordinates both = {{blend(alpha, sound ? along_row : COMPUTE(NAN), beta, result),
                             blend(alpha, sound ? along_column : COMPUTE(NAN), beta, result + 1)}};
  // The alignment is the same in all threads.
  if (reinterpret_cast<uintptr_t>(result) % sizeof(Coordinates) == 0) *reinterpret_cast<Coordinates*>(result) = both;
  else result[0] = both.item[0], result[1] = both.item[1];
}

// --- the lists of tiles ---

constexpr int SORT_LANES = 8;                     // samples per thread that sorts
constexpr int SORT_THREADS = CHUNK / SORT_LANES;  // per block
constexpr int SORT_WARPS = SORT_THREADS / 32;     // per block
constexpr int REACHED = 4;                        // bins per sample, upper bound

// A bin is a square of tiles with the cells that have a corner in it. In scratch memory every chunk of an image lists
// its pixels bin by bin, as indices into the chunk. Pixels of one bin are unordered. Every image also lists where each
// bin begins.
struct Bins {
  unsigned side, across, down;  // side: log2 of cells per bin side; across, down: bins per row and per column
  unsigned pixels, chunks;      // pixels: output pixels per image; chunks: chunks per image

  __device__ __forceinline__ unsigned count() const { return across * down; }
  __device__ __forceinline__ size_t entry(unsigned image, unsigned chunk) const {
    return (static_cast<size_t>(image) * chunks + chunk) * (REACHED * CHUNK);
  }
  // The start of bin count() is the end of the last bin.
  __device__ __forceinline__ size_t start(unsigned image, unsigned bin, unsigned chunk) const {
    return (static_cast<size_t>(image) * (count() + 1) + bin) * chunks + chunk;
  }
};

// This encodes the bins of a sample in a word: the bin of its cell and up to three bins before it. Neighbouring bins
// share cells: the first cell of a bin is the last of the bin before.
struct SampleBins {
  unsigned word = 0;  // The low half is the first bin; the high half has one bit for each of the four bins.

  __device__ __forceinline__ SampleBins() {}
  __device__ __forceinline__ SampleBins(unsigned row, unsigned column, const Bins& bins) {
    const unsigned mask = (1u << bins.side) - 1, r = row >> bins.side, c = column >> bins.side;
    const bool above = row > 0 && (row & mask) == 0, left = column > 0 && (column & mask) == 0;
    const unsigned reached[2] = {(r < bins.down ? 1u : 0u) | (above ? 4u : 0u),
                                 (c < bins.across ? 1u : 0u) | (left ? 2u : 0u)};
    // Rows are bits 0 and 2, columns bits 0 and 1. A bin counts if both its row and column are reached.
    const unsigned by_row = reached[0] * 3, by_column = reached[1] | reached[1] << 2;
    word = (r * bins.across + c) | (by_row & by_column) << 16;
  }
  // Returns whether the sample reaches bin k of the four.
  __device__ __forceinline__ bool reach(int k, const Bins& bins, unsigned& bin) const {
    bin = (word & 0xFFFF) - k / 2 * bins.across - k % 2;
    return word >> (16 + k) & 1;
  }
  __device__ __forceinline__ bool reaches_several() const { return word >> 17; }
};

struct SortArguments {
  const ELEMENT* grid;
  unsigned char* scratch;
  ELEMENT* dgrid;
  COMPUTE grid_alpha, grid_beta;
  long long starts;  // bytes of the entries that precede the starts
  Shape shape;
  Bins bins;  // count() is at most SORT_THREADS
};

extern "C" __global__ void __launch_bounds__(SORT_THREADS, 3) spatial_transformer_sampler_sort(const SortArguments a) {
  griddepcontrol_wait();
  __shared__ unsigned next[SORT_THREADS];  // samples per bin, then the position of its next sample
  __shared__ unsigned of_warp[SORT_WARPS];
  __shared__ __align__(4) unsigned short sorted[REACHED * CHUNK];
  const unsigned image = blockIdx.y, chunk = blockIdx.x, bins = a.bins.count();
  next[threadIdx.x] = 0;
  const size_t of_image = 2 * static_cast<size_t>(image) * a.bins.pixels;
  ELEMENT coordinates[SORT_LANES][2];
  SampleBins sample[SORT_LANES];
#pragma unroll
  for (int i = 0; i < SORT_LANES; i++) {
    const unsigned pixel = chunk * CHUNK + i * SORT_THREADS + threadIdx.x;
#pragma unroll
    for (int k = 0; k < 2; k++)
      if (pixel < a.bins.pixels) coordinates[i][k] = a.grid[of_image + 2 * pixel + k];
  }
#pragma unroll
  for (int i = 0; i < SORT_LANES; i++) {
    const unsigned pixel = chunk * CHUNK + i * SORT_THREADS + threadIdx.x;
    if (pixel >= a.bins.pixels) continue;
    const Cell cell(coordinates[i][0], coordinates[i][1], a.shape);
    unsigned row, column;
    if (reaches(cell, a.shape, row, column)) {
      sample[i] = SampleBins(row, column, a.bins);
    } else if (FUSED) {
      ELEMENT* const result = a.dgrid + (of_image + 2 * pixel);
      write_gradient_of_grid(result, 0, 0, cell.sound(), a.shape, a.grid_alpha, a.grid_beta);
    }
  }
  __syncthreads();
  auto each = [&](auto act) {
#pragma unroll
    for (int i = 0; i < SORT_LANES; i++) {
      unsigned bin;
      if (sample[i].reach(0, a.bins, bin)) act(i, bin);
      if (!sample[i].reaches_several()) continue;
#pragma unroll
      for (int k = 1; k < REACHED; k++)
        if (sample[i].reach(k, a.bins, bin)) act(i, bin);
    }
  };
  each([&](int, unsigned bin) { atomicAdd(&next[bin], 1u); });
  __syncthreads();
  // Each thread owns one bin.
  const unsigned mine = next[threadIdx.x];
  unsigned start = exclusive_scan_of_warp(mine), all = 0;
  if (threadIdx.x % 32 == 31) of_warp[threadIdx.x / 32] = start + mine;
  __syncthreads();
#pragma unroll
  for (int w = 0; w < SORT_WARPS; w++) {
    if (w < threadIdx.x / 32) start += of_warp[w];
    all += of_warp[w];
  }
  next[threadIdx.x] = start;
  unsigned short* const starts = reinterpret_cast<unsigned short*>(a.scratch + a.starts);
  if (threadIdx.x < bins) starts[a.bins.start(image, threadIdx.x, chunk)] = static_cast<unsigned short>(start);
  if (threadIdx.x == 0) starts[a.bins.start(image, bins, chunk)] = static_cast<unsigned short>(all);
  __syncthreads();
  each([&](int i, unsigned bin) {
    sorted[atomicAdd(&next[bin], 1u)] = static_cast<unsigned short>(i * SORT_THREADS + threadIdx.x);
  });
  __syncthreads();
  unsigned short* const entries = reinterpret_cast<unsigned short*>(a.scratch) + a.bins.entry(image, chunk);
  for (unsigned i = 2 * threadIdx.x; i + 1 < all; i += 2 * SORT_THREADS)
    *reinterpret_cast<unsigned*>(entries + i) = *reinterpret_cast<const unsigned*>(sorted + i);
  if (threadIdx.x == 0 && all % 2) entries[all - 1] = sorted[all - 1];
}

// --- the gradient of x ---

struct GradientArguments {
  const ELEMENT* dy;
  const ELEMENT* grid;
  ELEMENT* dx;
  const unsigned char* scratch;  // null where every tile scans all samples of its image
  const ELEMENT* x;
  ELEMENT* dgrid;
  COMPUTE alpha, beta, grid_alpha, grid_beta;
  Shape shape;
  Strides in, out, of_x;               // strides of dx, of dy, of x
  FastDivmod tiles, tile_row, blocks;  // tiles: per image; tile_row: tiles per row; blocks: blocks per tile
  int groups;                          // groups of CHANNELS channels per block
  long long starts;
  Bins bins;
  unsigned pixels;    // output pixels of all images
  int slices;         // threads per output pixel, a power of two
  int interleaved;    // 1: these threads are neighbours, as channels are in memory
  FastDivmod period;  // one block per period belongs to the gradient with fewer blocks
  unsigned fewer;     // number of these blocks
  int grid_has_fewer;
};

constexpr int TILE = 16;                                // pixels along each side
constexpr int IN_FLIGHT = 4;                            // sample vectors per thread in flight
constexpr int LANES = LANE_WIDTH > 0 ? LANE_WIDTH : 1;  // channels per vector, where channels are contiguous
constexpr int SIDE = TILE + 1;                          // cells along each side with a corner in a tile
constexpr int CELLS = SIDE * SIDE;                      // cells with a corner in a tile
constexpr int OF_THREAD = 2;                            // samples per thread
constexpr int SAMPLES = OF_THREAD * THREADS;            // samples per tile at a time
// One warp scans the counts of the cells, LANE_CELLS per lane. The number is odd to avoid bank conflicts. One extra
// cell marks the end of the last.
constexpr int LANE_CELLS = 11;                // counts per lane
constexpr int CELL_COUNTS = 32 * LANE_CELLS;  // counts that the warp scans
constexpr int X_SIDE = SIDE + 1;              // SIDE pixels and one more around the cells

struct TileShared {
  unsigned cells[CELL_COUNTS];               // samples per cell, then the start of each cell
  unsigned order[SAMPLES];                   // output pixels grouped by cell, unordered within a cell
  COMPUTE below[SAMPLES], right[SAMPLES];    // grouped by cell, ordered by output pixel within a cell
  int offset[LANE_WIDTH > 0 ? SAMPLES : 1];  // offset of the gradient in dy, in elements
  ELEMENT gradient[CHANNELS][SAMPLES];
  COMPUTE x[FUSED ? CHANNELS : 1][FUSED ? X_SIDE * X_SIDE : 1];
  __device__ __forceinline__ TileShared() {}
};
static_assert(CELL_COUNTS > CELLS && LANE_CELLS % 2 == 1);

// This is one sample of a thread.
struct Sample {
  int cell;        // cell of the tile, or -1 for none
  int offset;      // offset of its gradient in dy
  unsigned pixel;  // output pixel of the image
  unsigned rank;   // rank in its cell in arbitrary order, then the index grouped by cell
  COMPUTE below, right;
  ELEMENT gradient[CHANNELS];
};

__device__ __forceinline__ void gradient_of_x(const GradientArguments& a, unsigned index, TileShared& shared) {
  unsigned tile, tile_column, block;
  const unsigned image = a.blocks.divide(a.tiles.divide(index, tile), block);
  const unsigned tile_row = a.tile_row.divide(tile, tile_column), top = tile_row * TILE, left = tile_column * TILE;
  const int my_row = threadIdx.x / TILE, my_column = threadIdx.x % TILE, lane = threadIdx.x % 32;
  const ELEMENT* const grid = a.grid + 2 * static_cast<size_t>(image) * a.bins.pixels;
  const int first_channel = block * a.groups * CHANNELS;
  const int end_channel = min(first_channel + a.groups * CHANNELS, a.shape.channels);
  COMPUTE sum[CHANNELS] = {};
  Sample sample[OF_THREAD];
  auto has = [&](int channel) {
    return FUSED || channel < end_channel;
  };  // FUSED kernels have exactly CHANNELS channels.

  // The tile's list is read for 32 chunks at a time, one per lane.
  const unsigned to_bin = a.bins.side - 4;  // log2 of tiles per bin side
  const unsigned bin = (tile_row >> to_bin) * a.bins.across + (tile_column >> to_bin);
  unsigned begin = 0, before = 0, length = 0, window = 0;
  auto open = [&] {
    const unsigned short* const starts = reinterpret_cast<const unsigned short*>(a.scratch + a.starts);
    length = 0;
    if (window + lane < a.bins.chunks) {
      begin = starts[a.bins.start(image, bin, window + lane)];
      length = starts[a.bins.start(image, bin + 1, window + lane)] - begin;
    }
    before = exclusive_scan_of_warp(length);
    return __shfl_sync(ALL_LANES, before + length, 31);
  };
  // Returns the output pixel of a sample of the list. All lanes must call this.
  auto pixel_of = [&](unsigned i, bool exists) {
    unsigned chunk = 0;
#pragma unroll
    for (unsigned step = 16; step > 0; step /= 2)
      if (__shfl_sync(ALL_LANES, before, chunk + step) <= i) chunk += step;
    const unsigned at = __shfl_sync(ALL_LANES, begin, chunk) + i - __shfl_sync(ALL_LANES, before, chunk);
    if (!exists) return 0u;
    const unsigned short* const entries = reinterpret_cast<const unsigned short*>(a.scratch);
    return (window + chunk) * CHUNK + entries[a.bins.entry(image, window + chunk) + at];
  };
  // Reads the gradients of the thread's samples.
  auto read = [&](int channel) {
    const ELEMENT* const dy = a.dy + (image * a.out.image + channel * a.out.channel);
#pragma unroll
    for (int r = 0; r < OF_THREAD; r++) {
      Sample& s = sample[r];
#pragma unroll
      for (int c = 0; c < CHANNELS; c++)
        if (s.cell >= 0 && has(channel + c)) s.gradient[c] = dy[s.offset + c * a.out.channel];
    }
  };
  // Writes the gradient of the grid for samples whose cell only this tile owns.
  auto write_grid = [&] {
    using Pixels = COMPUTE[X_SIDE];
#pragma unroll
    for (int r = 0; r < OF_THREAD; r++) {
      const Sample& s = sample[r];
      const unsigned row = s.cell / SIDE, column = s.cell % SIDE;
      const bool owned =
          (row < TILE || top + TILE >= a.shape.height) && (column < TILE || left + TILE >= a.shape.width);
      if (s.cell < 0 || !owned) continue;
      COMPUTE along_row = 0, along_column = 0;
#pragma unroll
      for (int c = 0; c < CHANNELS; c++) {
        const Pixels* const x = reinterpret_cast<const Pixels*>(shared.x[c]) + row;
        const COMPUTE gradient = load<COMPUTE>(s.gradient[c]);
        const COMPUTE value[2][2] = {{x[0][column], x[0][column + 1]}, {x[1][column], x[1][column + 1]}};
        add_gradient_of_cell(gradient, value, s.below, s.right, along_row, along_column);
      }
      ELEMENT* const result = a.dgrid + 2 * (static_cast<size_t>(image) * a.bins.pixels + s.pixel);
      write_gradient_of_grid(result, along_row, along_column, true, a.shape, a.grid_alpha, a.grid_beta);
    }
  };
  // Sorts by cell the samples that have a corner in the tile. It takes up to SAMPLES of them, from the list or from
  // neighbouring output pixels.
  auto sort = [&](bool listed, unsigned from, unsigned end, int channel) {
    for (unsigned i = threadIdx.x; i < CELL_COUNTS; i += THREADS) shared.cells[i] = 0;
#pragma unroll
    for (int r = 0; r < OF_THREAD; r++) {
      Sample& s = sample[r];
      s.cell = -1;
      if (from + r * THREADS >= end) continue;
      const unsigned i = from + r * THREADS + threadIdx.x;
      s.pixel = listed ? pixel_of(i, i < end) : i;
      if (i >= end) continue;
      const Cell cell(grid + 2 * s.pixel, a.shape);
      unsigned row, column, of_row;
      const bool exists = reaches(cell, a.shape, row, column);
      row -= top, column -= left;
      if (!exists || row >= SIDE || column >= SIDE) continue;
      const unsigned out_row = a.shape.out_width.divide(s.pixel, of_row);
      s.cell = row * SIDE + column, s.offset = out_row * a.out.row + of_row * a.out.column;
      s.below = cell.below, s.right = cell.right;
    }
    read(channel);
    __syncthreads();
#pragma unroll
    for (int r = 0; r < OF_THREAD; r++)
      if (sample[r].cell >= 0) sample[r].rank = atomicAdd(&shared.cells[sample[r].cell], 1u);
    __syncthreads();
    if (threadIdx.x < 32) {
      unsigned counts[LANE_CELLS], all = 0;
      unsigned* const mine = shared.cells + lane * LANE_CELLS;
#pragma unroll
      for (int i = 0; i < LANE_CELLS; i++) all += counts[i] = mine[i];
      unsigned start = exclusive_scan_of_warp(all);
#pragma unroll
      for (int i = 0; i < LANE_CELLS; i++) {
        mine[i] = start;
        start += counts[i];
      }
    }
    if (FUSED) write_grid();
    __syncthreads();
#pragma unroll
    for (int r = 0; r < OF_THREAD; r++)
      if (sample[r].cell >= 0) shared.order[shared.cells[sample[r].cell] + sample[r].rank] = sample[r].pixel;
    __syncthreads();
#pragma unroll
    for (int r = 0; r < OF_THREAD; r++) {
      Sample& s = sample[r];
      if (s.cell < 0) continue;
      const unsigned start = shared.cells[s.cell], end_of_cell = shared.cells[s.cell + 1];
      s.rank = start;
#pragma unroll 1
      for (unsigned other = start; other < end_of_cell; other++) s.rank += shared.order[other] < s.pixel;
      shared.below[s.rank] = s.below, shared.right[s.rank] = s.right;
      if (LANE_WIDTH > 0) shared.offset[s.rank] = s.offset;
    }
  };
  // Adds up the samples.
  auto add = [&](int channel) {
#pragma unroll
    for (int r = 0; r < OF_THREAD; r++) {
      const Sample& s = sample[r];
#pragma unroll
      for (int c = 0; c < CHANNELS; c++)
        if (s.cell >= 0 && has(channel + c)) shared.gradient[c][s.rank] = s.gradient[c];
    }
    __syncthreads();
    // The pixel is the bottom corner for samples of the first row of cells and the top corner for the second row. In
    // each row it is the right corner for samples of the first cell.
#pragma unroll
    for (int i = 0; i < 2; i++) {
      const int cell = (my_row + i) * SIDE + my_column;
      const unsigned second = shared.cells[cell + 1], end = shared.cells[cell + 2];
#pragma unroll 1
      for (unsigned s = shared.cells[cell]; s < end; s++) {
        const COMPUTE below = shared.below[s], right = shared.right[s];
        const COMPUTE weight = (i ? COMPUTE(1) - below : below) * (s < second ? right : COMPUTE(1) - right);
#pragma unroll
        for (int c = 0; c < CHANNELS; c++)
          if (has(channel + c)) sum[c] += weight * load<COMPUTE>(shared.gradient[c][s]);
      }
    }
  };
  // Adds up the samples and writes the result where channels are contiguous. Neighbouring threads own vectors of
  // channels. Each thread reads the vectors of one pixel's samples in order.
  auto add_rows = [&] {
    using Packed = Vector<ELEMENT, LANES>;
    __syncthreads();
    const unsigned lanes = (end_channel - first_channel) / LANES;
    const ELEMENT* dy = a.dy + (image * a.out.image + first_channel);
    const unsigned pixels = THREADS / lanes,
                   further = THREADS - pixels * lanes;  // stride between a thread's vectors
    unsigned pixel = threadIdx.x / lanes, of_pixel = threadIdx.x - pixel * lanes;
    for (; pixel < TILE * TILE; pixel += pixels, of_pixel += further) {
      if (of_pixel >= lanes) of_pixel -= lanes, pixel++;
      if (pixel >= TILE * TILE) break;
      const unsigned channel = of_pixel * LANES;
      const unsigned in_row = pixel / TILE, in_column = pixel % TILE, row = top + in_row, column = left + in_column;
      if (row >= a.shape.height || column >= a.shape.width) continue;
      COMPUTE total[LANES] = {};
#pragma unroll
      for (int side = 0; side < 2; side++) {
        const unsigned cell = (in_row + side) * SIDE + in_column;
        const unsigned second = shared.cells[cell + 1], end = shared.cells[cell + 2];
        for (unsigned s = shared.cells[cell]; s < end; s += IN_FLIGHT) {
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
      ELEMENT* const dx = a.dx + (image * a.in.image + row * a.in.row + column * a.in.column + first_channel + channel);
      Packed result, prior;
      if (a.beta != COMPUTE(0)) prior = *reinterpret_cast<const Packed*>(dx);
#pragma unroll
      for (int k = 0; k < LANES; k++) result.item[k] = blend(a.alpha, total[k], a.beta, &prior.item[k]);
      *reinterpret_cast<Packed*>(dx) = result;
    }
  };
  // Writes the sums.
  auto write = [&](int channel) {
    const unsigned row = top + my_row, column = left + my_column;
    ELEMENT* dx = a.dx + (image * a.in.image + channel * a.in.channel + row * a.in.row + column * a.in.column);
#pragma unroll
    for (int c = 0; c < CHANNELS; c++) {
      ELEMENT* result = dx + c * a.in.channel;
      if (has(channel + c) && row < a.shape.height && column < a.shape.width)
        *result = blend(a.alpha, sum[c], a.beta, result);
      sum[c] = 0;
    }
  };

  if (FUSED) {
    for (unsigned i = threadIdx.x; i < X_SIDE * X_SIDE; i += THREADS) {
      const unsigned row = top + i / X_SIDE - 1, column = left + i % X_SIDE - 1;
      const bool inside = row < a.shape.height && column < a.shape.width;
      const ELEMENT* const x = a.x + (image * a.of_x.image + int(row) * a.of_x.row + int(column) * a.of_x.column);
#pragma unroll
      for (int c = 0; c < CHANNELS; c++) shared.x[c][i] = inside ? load<COMPUTE>(x[c * a.of_x.channel]) : COMPUTE(0);
    }
  }
  bool at_once = false, again = false;  // at_once: the samples are sorted once for all channels
  for (int channel = first_channel; channel < end_channel; channel += CHANNELS) {
    if (at_once) {
      read(channel);
      __syncthreads();
      add(channel);
      write(channel);
      continue;
    }
    // A round takes all samples of some chunks in arbitrary order, or neighbouring output pixels. It takes pixels from
    // a chunk with too many samples, or from the image if no lists exist.
    unsigned pixel = 0, end_pixel = a.scratch ? 0 : a.bins.pixels, from = 0;
    window = 0;
    unsigned total = a.scratch ? open() : 0;
    at_once = a.scratch ? a.bins.chunks <= 32 && total > 0 && total <= SAMPLES : a.bins.pixels <= SAMPLES;
    for (;;) {
      const bool listed = pixel >= end_pixel;
      unsigned first = pixel, end = min(pixel + SAMPLES, end_pixel);
      if (!listed) {
        pixel = end;
      } else if (from < total) {
        const unsigned chunks = __popc(__ballot_sync(ALL_LANES, before + length <= from + SAMPLES));
        first = from;
        end = chunks > 0 ? __shfl_sync(ALL_LANES, before + length, chunks - 1) : 0;
        if (end <= from) {
          pixel = (window + chunks) * CHUNK, end_pixel = min(pixel + CHUNK, a.bins.pixels);
          from = __shfl_sync(ALL_LANES, before + length, chunks);
          continue;
        }
        from = end;
      } else {
        window += 32;
        if (!a.scratch || window >= a.bins.chunks) break;
        total = open(), from = 0;
        continue;
      }
      if (again) __syncthreads();  // The samples of the last round have been added.
      again = true;
      sort(listed, first, end, channel);
      if (LANE_WIDTH > 0 && at_once) return add_rows();
      add(channel);
    }
    write(channel);
  }
}

// --- the gradient of the grid, in separate blocks ---

__device__ __forceinline__ void gradient_of_grid(const GradientArguments& a, unsigned index,
                                                 COMPUTE (&partial)[2][THREADS]) {
  const int width = THREADS / a.slices;
  const int of_block = a.interleaved ? threadIdx.x / a.slices : threadIdx.x % width;
  const int slice = a.interleaved ? threadIdx.x % a.slices : threadIdx.x / width;
  const unsigned pixel = index * width + of_block;
  unsigned row, column;
  const unsigned image = a.shape.out_height.divide(a.shape.out_width.divide(pixel, column), row);
  const ELEMENT* coordinates = a.grid + 2 * pixel;
  COMPUTE along_row = 0, along_column = 0;
  bool sound = true;
  if (pixel < a.pixels) {
    const Cell cell(coordinates, a.shape);
    const Around around(cell, a.shape);
    const ELEMENT* x = a.x + int(image * a.of_x.image + cell.offset(a.of_x.row, a.of_x.column));
    const ELEMENT* dy = a.dy + (image * a.out.image + row * a.out.row + column * a.out.column);
    sound = cell.sound();
    for (int channel = slice; channel < a.shape.channels; channel += a.slices) {
      COMPUTE value[2][2];
      around.read(x + channel * a.of_x.channel, a.of_x.row, a.of_x.column, value);
      const COMPUTE gradient = load<COMPUTE>(dy[channel * a.out.channel]);
      add_gradient_of_cell(gradient, value, cell.below, cell.right, along_row, along_column);
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
  write_gradient_of_grid(a.dgrid + 2 * pixel, along_row, along_column, sound, a.shape, a.grid_alpha, a.grid_beta);
}

// Computes both gradients. Blocks that add and sort run together with blocks of the other gradient, which wait for L2.
extern "C" __global__ void __launch_bounds__(THREADS, 4)
    spatial_transformer_sampler_gradients(const GradientArguments a) {
  griddepcontrol_wait();
  __shared__ __align__(16) unsigned char shared_bytes[sizeof(TileShared)];
  TileShared& shared = reinterpret_cast<TileShared&>(shared_bytes);
  if (FUSED) return gradient_of_x(a, blockIdx.x, shared);
  unsigned in_period;
  const unsigned period = a.period.divide(blockIdx.x, in_period);
  const bool is_fewer = in_period == 0 && period < a.fewer;
  const unsigned index = is_fewer ? period : blockIdx.x - min(period + 1, a.fewer);
  if (is_fewer == (a.grid_has_fewer != 0))
    gradient_of_grid(a, index, reinterpret_cast<COMPUTE(&)[2][THREADS]>(shared_bytes));
  else gradient_of_x(a, index, shared);
}
