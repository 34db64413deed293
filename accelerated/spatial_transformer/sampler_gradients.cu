// The gradients of bilinear sampling (4.1.21).
//
// A tile of 16 x 16 input pixels adds up the samples with a corner in it. `sampler_sort` makes its list: a block has
// CHUNK output pixels of an image and sorts them by tiles, stably, in shared memory. `sampler_gradients`: a block has a
// tile and CHANNELS channels; it sorts the samples of its lists by cell, and each thread adds those of the four cells
// around its pixel. Ranks come from atomic additions, whose order is none: those of one cell are put in the order of
// the list before they are added, so that results are the same bits each time. The gradient of the grid: FUSED, by the
// tile that has the cell, whose pixels of x are in shared memory; else by blocks of their own, where one thread has an
// output pixel, or several its channels one after the other.
//
// Roofline bound: bytes; dy, x and the grid are read once, dx and dgrid written, 2 bytes of a list up to four times:
// 13 ps an element of 3 channels of float at 4.2 TB/s on an H200 (calculated). Random samples take a sector of 32 bytes
// of L2 for each element of dy.
#include "spatial_transformer/sampler.cuh"

constexpr unsigned ALL_LANES = 0xFFFFFFFF;

// Row and column of the cell of a sample, of which the first has a corner inside: one before the first pixel. False
// where no corner lies inside.
__device__ __forceinline__ bool reaches(const Cell& cell, const Shape& shape, unsigned& row, unsigned& column) {
  row = cell.row + 1, column = cell.column + 1;
  return cell.sound && row <= unsigned(shape.height) && column <= unsigned(shape.width);
}
// The sum of the numbers of the lanes before.
__device__ __forceinline__ unsigned exclusive_scan_of_warp(unsigned mine) {
  unsigned sum = mine;
#pragma unroll
  for (int distance = 1; distance < 32; distance *= 2) {
    const unsigned before = __shfl_up_sync(ALL_LANES, sum, distance);
    if (threadIdx.x % 32 >= distance) sum += before;
  }
  return sum - mine;
}

// Adds what a gradient gives that of the coordinates of its sample, in pixels. value: of x around it.
__device__ __forceinline__ void add_gradient_of_cell(COMPUTE gradient, const COMPUTE (&value)[2][2], COMPUTE below,
                                                     COMPUTE right, COMPUTE& along_row, COMPUTE& along_column) {
  along_row += gradient * ((COMPUTE(1) - below) * (value[0][1] - value[0][0]) + below * (value[1][1] - value[1][0]));
  along_column += gradient * ((COMPUTE(1) - right) * (value[1][0] - value[0][0]) + right * (value[1][1] - value[0][1]));
}
// Writes the gradient of the coordinates of a sample, from those of its row and column in pixels.
__device__ __forceinline__ void write_gradient_of_grid(ELEMENT* result, COMPUTE along_row, COMPUTE along_column,
                                                       bool sound, const Shape& shape, COMPUTE alpha, COMPUTE beta) {
  along_row *= COMPUTE(shape.width - 1) / COMPUTE(2), along_column *= COMPUTE(shape.height - 1) / COMPUTE(2);
  using Coordinates = Pack<ELEMENT, 2>;
  const Coordinates both = {{blend(alpha, sound ? along_row : COMPUTE(NAN), beta, result),
                             blend(alpha, sound ? along_column : COMPUTE(NAN), beta, result + 1)}};
  // The same in all threads.
  if (reinterpret_cast<uintptr_t>(result) % sizeof(Coordinates) == 0) *reinterpret_cast<Coordinates*>(result) = both;
  else result[0] = both.item[0], result[1] = both.item[1];
}

// --- the lists of tiles ---

constexpr int SORT_LANES = 8, SORT_THREADS = CHUNK / SORT_LANES, SORT_WARPS = SORT_THREADS / 32;
constexpr int REACHED = 4;  // bins that a sample reaches at most

// A bin: the tiles of a square, with the cells that have a corner in it. In scratch memory every chunk of an image has
// its pixels (their index in the chunk) in the order of the bins, and the image where those of each bin begin.
struct Bins {
  unsigned side, across, down;  // side: cells, as a power of two; bins of a row, of a column
  unsigned pixels, chunks;      // output pixels of an image; chunks of it

  __device__ __forceinline__ unsigned count() const { return across * down; }
  __device__ __forceinline__ size_t entry(unsigned image, unsigned chunk) const {
    return (static_cast<size_t>(image) * chunks + chunk) * (REACHED * CHUNK);
  }
  // Of bin count(): where the last one ends.
  __device__ __forceinline__ size_t start(unsigned image, unsigned bin, unsigned chunk) const {
    return (static_cast<size_t>(image) * (count() + 1) + bin) * chunks + chunk;
  }
};

// The bins of a sample: that of its row and column of bins, and those before, where its cell is the first of a bin and
// the last of the one before.
struct SampleBins {
  static constexpr unsigned FIRST = 0x8000;  // the cell is the first of the row or column
  unsigned short row, column;

  __device__ __forceinline__ SampleBins() : row(FIRST - 1), column(FIRST - 1) {}  // none
  __device__ __forceinline__ SampleBins(unsigned of_row, unsigned of_column, unsigned side) {
    const unsigned mask = (1u << side) - 1;
    row = static_cast<unsigned short>(of_row >> side | (of_row > 0 && (of_row & mask) == 0 ? FIRST : 0));
    column = static_cast<unsigned short>(of_column >> side | (of_column > 0 && (of_column & mask) == 0 ? FIRST : 0));
  }
  // Whether it reaches bin k of the four.
  __device__ __forceinline__ bool reach(int k, const Bins& bins, unsigned& bin) const {
    const unsigned above = k / 2, left = k % 2, r = row % FIRST - above, c = column % FIRST - left;
    bin = r * bins.across + c;
    return (!above || row >= FIRST) && (!left || column >= FIRST) && r < bins.down && c < bins.across;
  }
};

struct SortArguments {
  const ELEMENT* grid;
  unsigned char* scratch;
  ELEMENT* dgrid;
  COMPUTE grid_alpha, grid_beta;
  long long starts;  // bytes of the entries, before the starts
  Shape shape;
  Bins bins;  // at most SORT_THREADS
};

extern "C" __global__ void __launch_bounds__(SORT_THREADS, 3) spatial_transformer_sampler_sort(const SortArguments a) {
  griddepcontrol_wait();
  __shared__ unsigned of_warp[SORT_WARPS];
  const unsigned image = blockIdx.y, chunk = blockIdx.x, warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  const unsigned bins = a.bins.count();
  // Of each warp: its samples in a bin, then where its next one goes; the lanes with a sample in the bin.
  unsigned* const all_next = reinterpret_cast<unsigned*>(shared_memory);
  unsigned* const next = all_next + warp * bins;
  unsigned* const lanes = all_next + (SORT_WARPS + warp) * bins;
  unsigned short* const sorted = reinterpret_cast<unsigned short*>(all_next + 2 * SORT_WARPS * bins);
  for (unsigned i = threadIdx.x; i < 2 * SORT_WARPS * bins; i += SORT_THREADS) all_next[i] = 0;
  const unsigned first = warp * (32 * SORT_LANES) + lane;
  SampleBins sample[SORT_LANES];
#pragma unroll
  for (int i = 0; i < SORT_LANES; i++) {
    const unsigned pixel = chunk * CHUNK + first + i * 32;
    if (pixel >= a.bins.pixels) continue;
    const size_t at = 2 * (static_cast<size_t>(image) * a.bins.pixels + pixel);
    const Cell cell(a.grid + at, a.shape);
    unsigned row, column;
    if (reaches(cell, a.shape, row, column)) sample[i] = SampleBins(row, column, a.bins.side);
    else if (FUSED) write_gradient_of_grid(a.dgrid + at, 0, 0, cell.sound, a.shape, a.grid_alpha, a.grid_beta);
  }
  __syncthreads();
  unsigned bin;
#pragma unroll
  for (int i = 0; i < SORT_LANES; i++) {
#pragma unroll
    for (int k = 0; k < REACHED; k++)
      if (sample[i].reach(k, a.bins, bin)) atomicAdd(&next[bin], 1u);
  }
  __syncthreads();
  // A thread has a bin.
  bin = threadIdx.x;
  unsigned mine = 0;
  if (bin < bins) {
#pragma unroll
    for (int w = 0; w < SORT_WARPS; w++) mine += all_next[w * bins + bin];
  }
  unsigned start = exclusive_scan_of_warp(mine);
  if (lane == 31) of_warp[warp] = start + mine;
  __syncthreads();
  unsigned all = 0;
#pragma unroll
  for (int w = 0; w < SORT_WARPS; w++) {
    if (w < warp) start += of_warp[w];
    all += of_warp[w];
  }
  unsigned short* const starts = reinterpret_cast<unsigned short*>(a.scratch + a.starts);
  if (bin < bins) {
    starts[a.bins.start(image, bin, chunk)] = static_cast<unsigned short>(start);
#pragma unroll
    for (int w = 0; w < SORT_WARPS; w++) {
      const unsigned of_bin = all_next[w * bins + bin];
      all_next[w * bins + bin] = start;
      start += of_bin;
    }
  }
  if (threadIdx.x == 0) {
    starts[a.bins.start(image, bins, chunk)] = static_cast<unsigned short>(all);
    sorted[all] = 0;  // half of the last word
  }
  __syncthreads();
  // A warp goes through its pixels 32 at a time.
#pragma unroll
  for (int i = 0; i < SORT_LANES; i++) {
#pragma unroll
    for (int k = 0; k < REACHED; k++) {
      const bool exists = sample[i].reach(k, a.bins, bin);
      if (!__any_sync(ALL_LANES, exists)) continue;
      if (exists) atomicOr(&lanes[bin], 1u << lane);
      __syncwarp();
      const unsigned same = exists ? lanes[bin] : 0, before = __popc(same & ((1u << lane) - 1));
      const unsigned at = exists ? next[bin] : 0;
      __syncwarp();
      if (exists) sorted[at + before] = static_cast<unsigned short>(first + i * 32);
      if (exists && before == 0) next[bin] = at + __popc(same), lanes[bin] = 0;
      __syncwarp();
    }
  }
  __syncthreads();
  unsigned* const entries = reinterpret_cast<unsigned*>(a.scratch) + a.bins.entry(image, chunk) / 2;
  for (unsigned i = threadIdx.x; i < (all + 1) / 2; i += SORT_THREADS)
    entries[i] = reinterpret_cast<const unsigned*>(sorted)[i];
}

// --- the gradient of x ---

struct GradientArguments {
  const ELEMENT* dy;
  const ELEMENT* grid;
  ELEMENT* dx;
  const unsigned char* scratch;  // null where every tile looks at all samples of its image
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

constexpr int TILE = 16, IN_FLIGHT = 4;                 // packs of samples of a thread
constexpr int LANES = LANE_WIDTH > 0 ? LANE_WIDTH : 1;  // channels of a pack, where they lie side by side
constexpr int SIDE = TILE + 1, CELLS = SIDE * SIDE;     // cells with a corner in a tile
constexpr int SAMPLES = 2 * THREADS;                    // of a tile at a time, two a thread
// Cells of a lane of the warp that adds up their counts: odd, for all banks; one cell more says where the last ends.
constexpr int LANE_CELLS = 11, CELL_COUNTS = 32 * LANE_CELLS;
constexpr int X_SIDE = SIDE + 1;  // pixels around the cells

struct TileShared {
  unsigned cells[CELL_COUNTS];               // how many samples a cell has, then where they begin
  unsigned short order[SAMPLES];             // samples by cell, those of a cell in any order
  COMPUTE below[SAMPLES], right[SAMPLES];    // by cell, those of a cell in the order of the list; so are the next ones
  int offset[LANE_WIDTH > 0 ? SAMPLES : 1];  // of the gradient in dy
  ELEMENT gradient[CHANNELS][SAMPLES];
  COMPUTE x[FUSED ? CHANNELS : 1][FUSED ? X_SIDE * X_SIDE : 1];
  __device__ __forceinline__ TileShared() {}
};
static_assert(CELL_COUNTS > CELLS && LANE_CELLS % 2 == 1);

// A sample of a thread.
struct Sample {
  int cell;        // of the tile; -1: none
  int offset;      // of its gradient in dy
  unsigned pixel;  // of the image
  unsigned rank;   // among those of its cell in any order; then its index by cell
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
  Sample sample[SAMPLES / THREADS];

  // The list of the tile: of 32 chunks at a time, of which a lane has one; without lists, all pixels of the image.
  const unsigned to_bin = a.bins.side - 4;  // tiles of a bin, as a power of two
  const unsigned bin = (tile_row >> to_bin) * a.bins.across + (tile_column >> to_bin);
  unsigned begin = 0, before = 0, window = 0;
  auto open = [&] {
    if (!a.scratch) return a.bins.pixels;
    const unsigned short* const starts = reinterpret_cast<const unsigned short*>(a.scratch + a.starts);
    unsigned length = 0;
    if (window + lane < a.bins.chunks) {
      begin = starts[a.bins.start(image, bin, window + lane)];
      length = starts[a.bins.start(image, bin + 1, window + lane)] - begin;
    }
    before = exclusive_scan_of_warp(length);
    return __shfl_sync(ALL_LANES, before + length, 31);
  };
  // The output pixel of a sample of the list. To be called by all lanes.
  auto pixel_of = [&](unsigned i, bool exists) {
    if (!a.scratch) return i;
    unsigned chunk = 0;
#pragma unroll
    for (unsigned step = 16; step > 0; step /= 2)
      if (__shfl_sync(ALL_LANES, before, chunk + step) <= i) chunk += step;
    const unsigned at = __shfl_sync(ALL_LANES, begin, chunk) + i - __shfl_sync(ALL_LANES, before, chunk);
    if (!exists) return 0u;
    const unsigned short* const entries = reinterpret_cast<const unsigned short*>(a.scratch);
    return (window + chunk) * CHUNK + entries[a.bins.entry(image, window + chunk) + at];
  };
  // Reads the gradients of its samples.
  auto read = [&](int channel) {
    const ELEMENT* const dy = a.dy + (image * a.out.image + channel * a.out.channel);
#pragma unroll
    for (Sample& s : sample) {
#pragma unroll
      for (int c = 0; c < CHANNELS; c++)
        if (s.cell >= 0 && channel + c < end_channel) s.gradient[c] = dy[s.offset + c * a.out.channel];
    }
  };
  // The gradient of the grid, of samples whose cell no other tile has.
  auto write_grid = [&] {
    using Pixels = COMPUTE[X_SIDE];
#pragma unroll
    for (const Sample& s : sample) {
      const unsigned row = s.cell / SIDE, column = s.cell % SIDE;
      const bool owned =
          (row < TILE || top + TILE >= a.shape.height) && (column < TILE || left + TILE >= a.shape.width);
      if (s.cell < 0 || !owned) continue;
      COMPUTE along_row = 0, along_column = 0;
#pragma unroll
      for (int c = 0; c < CHANNELS; c++) {
        if (c >= end_channel) break;
        const Pixels* const x = reinterpret_cast<const Pixels*>(shared.x[c]) + row;
        const COMPUTE gradient = load<COMPUTE>(s.gradient[c]);
        const COMPUTE value[2][2] = {{x[0][column], x[0][column + 1]}, {x[1][column], x[1][column + 1]}};
        add_gradient_of_cell(gradient, value, s.below, s.right, along_row, along_column);
      }
      ELEMENT* const result = a.dgrid + 2 * (static_cast<size_t>(image) * a.bins.pixels + s.pixel);
      write_gradient_of_grid(result, along_row, along_column, true, a.shape, a.grid_alpha, a.grid_beta);
    }
  };
  // Takes up to SAMPLES samples of the list and sorts those with a corner in the tile by cell.
  auto sort = [&](unsigned from, unsigned total, int channel) {
    for (unsigned i = threadIdx.x; i < CELL_COUNTS; i += THREADS) shared.cells[i] = 0;
#pragma unroll
    for (int r = 0; r < SAMPLES / THREADS; r++) {
      Sample& s = sample[r];
      s.cell = -1;
      if (from + r * THREADS >= total) continue;
      const unsigned i = from + r * THREADS + threadIdx.x;
      s.pixel = pixel_of(i, i < total);
      if (i >= total) continue;
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
    for (Sample& s : sample)
      if (s.cell >= 0) s.rank = atomicAdd(&shared.cells[s.cell], 1u);
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
    for (int r = 0; r < SAMPLES / THREADS; r++)
      if (sample[r].cell >= 0)
        shared.order[shared.cells[sample[r].cell] + sample[r].rank] =
            static_cast<unsigned short>(r * THREADS + threadIdx.x);
    __syncthreads();
#pragma unroll
    for (int r = 0; r < SAMPLES / THREADS; r++) {
      Sample& s = sample[r];
      if (s.cell < 0) continue;
      const unsigned start = shared.cells[s.cell], end = shared.cells[s.cell + 1];
      s.rank = start;
      for (unsigned other = start; other < end; other++) s.rank += shared.order[other] < r * THREADS + threadIdx.x;
      shared.below[s.rank] = s.below, shared.right[s.rank] = s.right;
      if (LANE_WIDTH > 0) shared.offset[s.rank] = s.offset;
    }
  };
  // Adds them up.
  auto add = [&](int channel) {
#pragma unroll
    for (const Sample& s : sample) {
#pragma unroll
      for (int c = 0; c < CHANNELS; c++)
        if (s.cell >= 0 && channel + c < end_channel) shared.gradient[c][s.rank] = s.gradient[c];
    }
    __syncthreads();
    // The pixel is the bottom corner of the samples of the first row of cells, the top one of the second, and in each
    // row the right corner of the first cell's.
#pragma unroll
    for (int i = 0; i < 2; i++) {
      const int cell = (my_row + i) * SIDE + my_column;
      const unsigned second = shared.cells[cell + 1], end = shared.cells[cell + 2];
      for (unsigned s = shared.cells[cell]; s < end; s++) {
        const COMPUTE below = shared.below[s], right = shared.right[s];
        const COMPUTE weight = (i ? COMPUTE(1) - below : below) * (s < second ? right : COMPUTE(1) - right);
#pragma unroll
        for (int c = 0; c < CHANNELS; c++)
          if (channel + c < end_channel) sum[c] += weight * load<COMPUTE>(shared.gradient[c][s]);
      }
    }
  };
  // Adds them up and writes them, where channels lie side by side: neighbouring threads have packs of them, a thread
  // one of a pixel, which it reads from the samples one after the other.
  auto add_rows = [&] {
    using Packed = Pack<ELEMENT, LANES>;
    __syncthreads();
    const unsigned lanes = (end_channel - first_channel) / LANES;
    const ELEMENT* dy = a.dy + (image * a.out.image + first_channel);
    const unsigned pixels = THREADS / lanes,
                   further = THREADS - pixels * lanes;  // from one pack of a thread to the next
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
  // Writes them.
  auto write = [&](int channel) {
    const unsigned row = top + my_row, column = left + my_column;
    ELEMENT* dx = a.dx + (image * a.in.image + channel * a.in.channel + row * a.in.row + column * a.in.column);
#pragma unroll
    for (int c = 0; c < CHANNELS; c++) {
      ELEMENT* result = dx + c * a.in.channel;
      if (channel + c < end_channel && row < a.shape.height && column < a.shape.width)
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
      for (int c = 0; c < CHANNELS; c++)
        if (c < end_channel) shared.x[c][i] = inside ? load<COMPUTE>(x[c * a.of_x.channel]) : COMPUTE(0);
    }
  }
  bool at_once = false;  // the samples of the tile are sorted once for all channels
  for (int channel = first_channel; channel < end_channel; channel += CHANNELS) {
    if (at_once) {
      read(channel);
      __syncthreads();
      add(channel);
      write(channel);
      continue;
    }
    for (window = 0; window < (a.scratch ? a.bins.chunks : 1); window += 32) {
      const unsigned total = open();
      at_once = total <= SAMPLES && (!a.scratch || a.bins.chunks <= 32);
      for (unsigned from = 0; from < total || (at_once && from == 0); from += SAMPLES) {
        __syncthreads();  // those before are added
        sort(from, total, channel);
        if (LANE_WIDTH > 0 && at_once) return add_rows();
        add(channel);
      }
    }
    write(channel);
  }
}

// --- the gradient of the grid, in blocks of its own ---

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

// Both gradients: blocks of one, which add and sort, run beside blocks of the other, which wait for L2.
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
