// This file computes depthwise convolutions (5.2.9, 5.2.10) directly: each group has one channel and one filter.
//
// Tiling: kernels compiled for common windows slide down a column of rows. A thread owns CHANNELS channels (one in
// NCHW) and COLUMNS columns. It reads each row of x once, AHEAD of its use, and adds it to the OPEN rows of y whose
// windows contain it. Taps and sums stay in registers. Unaligned operands are summed one result at a time. windows.cu
// serves other windows.
//
// Roofline bound: bytes, x and y once. At 4.2 TB/s an H200 has time for 28 instructions per 16-bit output; with 3 x 3
// windows the loops take 16 to 22 (docs/performance/convolution.md).
#include "convolution/problem.cuh"

struct Arguments : Operands<ELEMENT> {
  Convolution convolution;
  Epilogue epilogue;
  FastDivmod vectors, columns, row_tiles,
      blocks;           // divisors: channels of neighbouring threads, column tiles, row tiles, other channels
  COMPUTE alpha, beta;  // factors of the epilogue
  int plain;            // whether the sums are the results
  int channels, images;
  int rows;    // rows per thread tile
  int packed;  // whether vectors of channels of x are aligned to their size
};

// Describes the work of a thread: channels from `channel` on, output rows and columns from `row` and `column` on.
struct Work {
  unsigned image, channel, plane, row, column;
};

template <int WIDTH>
__device__ __forceinline__ void read_channels(const ELEMENT* x, long long step, int count, bool packed,
                                              COMPUTE (&values)[WIDTH]) {
  if (packed) {
    const Vector<ELEMENT, WIDTH> vector = *reinterpret_cast<const Vector<ELEMENT, WIDTH>*>(x);
#pragma unroll
    for (int i = 0; i < WIDTH; i++) values[i] = load<COMPUTE>(vector.item[i]);
  } else {
#pragma unroll
    for (int i = 0; i < WIDTH; i++) values[i] = i < count ? load<COMPUTE>(x[i * step]) : COMPUTE(0);
  }
}

// Computes one sum for each of WIDTH channels, with any filter.
template <int WIDTH> __device__ void any_filter(const Arguments& a, const Work& work) {
  const Convolution& c = a.convolution;
  const int count = a.channels - work.channel < WIDTH ? a.channels - work.channel : WIDTH;
  const ELEMENT* x = a.x + work.image * c.x_pixel[0] + work.channel * c.x_group;
  const int depth = c.filter[0].divisor, rows = c.filter[1].divisor, columns = c.filter[2].divisor,
            taps = depth * rows * columns;
  const bool packed = a.packed && reinterpret_cast<uintptr_t>(x) % sizeof(Vector<ELEMENT, WIDTH>) == 0;
  COMPUTE sums[WIDTH] = {};
  for (int t = 0, tap = 0; t < depth; t++)
    for (int r = 0; r < rows; r++)
      for (int s = 0; s < columns; s++, tap++) {
        const int d = static_cast<int>(work.plane) * c.step[0] - c.padding[0] + t * c.dilation[0],
                  h = static_cast<int>(work.row) * c.step[1] - c.padding[1] + r * c.dilation[1],
                  v = static_cast<int>(work.column) * c.step[2] - c.padding[2] + s * c.dilation[2];
        const bool inside = static_cast<unsigned>(d) < static_cast<unsigned>(c.input[0]) &&
                            static_cast<unsigned>(h) < static_cast<unsigned>(c.input[1]) &&
                            static_cast<unsigned>(v) < static_cast<unsigned>(c.input[2]);
        // Zeros outside must be multiplied, because an infinity or NaN of the filter makes them NaN.
        COMPUTE values[WIDTH] = {};
        if (inside)
          read_channels(x + (static_cast<long long>(d) * c.x_axis[0] + static_cast<long long>(h) * c.x_axis[1] +
                             static_cast<long long>(v) * c.x_axis[2]),
                        c.x_group, count, packed, values);
#pragma unroll
        for (int i = 0; i < WIDTH; i++)
          if (i < count)
            sums[i] += values[i] * load<COMPUTE>(a.w[(work.channel + i) * taps + (c.flipped ? taps - 1 - tap : tap)]);
      }
  const long long offset = work.image * c.y_pixel[0] + work.plane * c.y_pixel[1] + work.row * c.y_pixel[2] +
                           work.column * c.y_pixel[3] + work.channel * c.y_channel;
  finish<WIDTH, COMPUTE>(a.epilogue, a.bias, a.prior, a.y, offset, c.y_channel, count, work.channel, 1, sums);
}

// The host defines WINDOW_ROWS, WINDOW_COLUMNS, STEP; CHANNELS, COLUMNS, AHEAD (in groups of STEP rows), THREADS and
// BLOCKS (depthwise.py). It also defines either CHANNELS_LAST or, for NCHW, PADDING on the left, X_VECTOR and Y_VECTOR.
// The last two are elements of x and y per access.
constexpr int OPEN = (WINDOW_ROWS + STEP - 1) / STEP;         // output rows whose windows meet a group of rows of x
constexpr int BUFFERS = OPEN;                                 // groups of rows in registers
constexpr int FIELD = (COLUMNS - 1) * STEP + WINDOW_COLUMNS;  // columns of x under a thread tile
constexpr int TAPS = WINDOW_ROWS * WINDOW_COLUMNS;
using Taps = COMPUTE[TAPS][CHANNELS];
using Sums = COMPUTE[OPEN][COLUMNS][CHANNELS];  // sums of the unfinished rows of y
static_assert(STEP < WINDOW_ROWS, "every row of x is part of a row of y");
static_assert(AHEAD > 0 && AHEAD < BUFFERS, "a group of rows is read into a buffer that is not in use");

// Holds WIDTH neighbouring elements of a row of x. 16-bit elements are stored in 32-bit words, so that moves use full
// registers.
template <int WIDTH> struct Neighbours {
  static constexpr bool PAIRS = sizeof(ELEMENT) == 2;
  using Word = std::conditional_t<PAIRS, unsigned, ELEMENT>;
  static constexpr int WORDS = PAIRS ? (WIDTH + 1) / 2 : WIDTH;
  Vector<Word, WORDS> words;

  // Reads zeros outside of the first `limit` columns.
  __device__ __forceinline__ void read(const ELEMENT* from, int column, int limit) {
    words = {};
    if (static_cast<unsigned>(column) >= static_cast<unsigned>(limit)) return;
    if constexpr (PAIRS && WIDTH == 1) words.item[0] = *reinterpret_cast<const uint16_t*>(from);
    else words = *reinterpret_cast<const Vector<Word, WORDS>*>(from);
  }
  __device__ __forceinline__ COMPUTE at(int i) const {
    if constexpr (PAIRS) {
      using Pair = std::conditional_t<std::is_same_v<ELEMENT, half>, half2, __nv_bfloat162>;
      const Pair pair = *reinterpret_cast<const Pair*>(&words.item[i / 2]);
      return i % 2 ? __high2float(pair) : __low2float(pair);
    } else {
      return words.item[i];
    }
  }
};

#ifdef CHANNELS_LAST
constexpr int X_ALIGNED = CHANNELS;

// Holds a row of x under a thread tile: a vector of channels for each column.
struct Row {
  Neighbours<CHANNELS> vectors[FIELD];

  // `from` points to column `column`, the first of the window; `step` is the stride between columns, in elements.
  __device__ __forceinline__ void read(const ELEMENT* from, int column, int limit, int step) {
#pragma unroll
    for (int j = 0; j < FIELD; j++, from += step) vectors[j].read(from, column + j, limit);
  }
  __device__ __forceinline__ COMPUTE at(int column, int channel) const { return vectors[column].at(channel); }
};

constexpr int Y_VECTORS = COLUMNS;  // per row of y
constexpr int Y_VECTOR = CHANNELS;  // elements per vector
__device__ __forceinline__ int vector_column(int vector) { return vector; }
__device__ __forceinline__ int vector_step(const Convolution& c) { return static_cast<int>(c.y_pixel[3]); }
#else
static_assert(CHANNELS == 1 && COLUMNS % Y_VECTOR == 0 && COLUMNS * STEP % X_VECTOR == 0,
              "vectors begin at multiples of their size");
static_assert(PADDING < WINDOW_COLUMNS, "a thread tile has some of the columns under it");
constexpr int X_ALIGNED = X_VECTOR;
constexpr int OWN = COLUMNS * STEP;  // columns of x from one thread tile to the next
constexpr int RIGHT = WINDOW_COLUMNS - STEP > PADDING ? WINDOW_COLUMNS - STEP - PADDING : 0;

// Returns the elements per vector of the halo: the smallest power of two that covers `count`, up to X_VECTOR.
constexpr int halo_vector(int count) {
  int width = 1;
  while (width < count && width < X_VECTOR) width *= 2;
  return width;
}

// Holds a row of x under a thread tile: its own columns, and the window's halo on the left and on the right.
struct Row {
  static constexpr int LEFT_VECTOR = halo_vector(PADDING), LEFT_VECTORS = (PADDING + LEFT_VECTOR - 1) / LEFT_VECTOR;
  static constexpr int RIGHT_VECTOR = halo_vector(RIGHT), RIGHT_VECTORS = (RIGHT + RIGHT_VECTOR - 1) / RIGHT_VECTOR;
  Neighbours<LEFT_VECTOR> left[LEFT_VECTORS + 1];
  Neighbours<X_VECTOR> own[OWN / X_VECTOR];
  Neighbours<RIGHT_VECTOR> right[RIGHT_VECTORS + 1];

  template <int COUNT, int WIDTH>
  static __device__ __forceinline__ void read(Neighbours<WIDTH> (&vectors)[COUNT], int count, const ELEMENT* from,
                                              int column, int first, int limit) {
#pragma unroll
    for (int i = 0; i < count; i++) vectors[i].read(from + first + i * WIDTH, column + first + i * WIDTH, limit);
  }
  __device__ __forceinline__ void read(const ELEMENT* from, int column, int limit, int) {
    read(own, OWN / X_VECTOR, from, column, PADDING, limit);
    read(left, LEFT_VECTORS, from, column, PADDING - LEFT_VECTORS * LEFT_VECTOR, limit);
    read(right, RIGHT_VECTORS, from, column, PADDING + OWN, limit);
  }
  __device__ __forceinline__ COMPUTE at(int column, int) const {
    const int q = column - PADDING, l = q + LEFT_VECTORS * LEFT_VECTOR, r = q - OWN;
    if (q < 0) return left[l / LEFT_VECTOR].at(l % LEFT_VECTOR);
    return q < OWN ? own[q / X_VECTOR].at(q % X_VECTOR) : right[r / RIGHT_VECTOR].at(r % RIGHT_VECTOR);
  }
};

constexpr int Y_VECTORS = COLUMNS / Y_VECTOR;  // vectors per row of y
__device__ __forceinline__ int vector_column(int vector) { return vector * Y_VECTOR; }
__device__ __forceinline__ int vector_step(const Convolution&) { return Y_VECTOR; }
#endif

// Finishes the sums of a row of y, `offset` elements from its first. It does the same as finish(), but checks the
// conditions once per row.
__device__ __forceinline__ void finish_row(const Arguments& a, long long offset, const Work& work,
                                           COMPUTE (&sums)[COLUMNS][CHANNELS]) {
  using Packed = Vector<ELEMENT, Y_VECTOR>;
  const int step = vector_step(a.convolution), width = a.convolution.output[2].divisor - work.column;
  if (!a.plain) {
    const ELEMENT* prior = a.prior + offset;
#pragma unroll
    for (int q = 0; q < COLUMNS; q++)
#pragma unroll
      for (int i = 0; i < CHANNELS; i++) sums[q][i] *= a.alpha;
    if (a.beta != COMPUTE(0)) {
#pragma unroll
      for (int p = 0; p < Y_VECTORS; p++, prior += step)
        if (vector_column(p) < width) {
          const Packed vector = *reinterpret_cast<const Packed*>(prior);
#pragma unroll
          for (int i = 0; i < Y_VECTOR; i++)
            sums[(p * Y_VECTOR + i) / CHANNELS][i % CHANNELS] += a.beta * load<COMPUTE>(vector.item[i]);
        }
    }
    if (a.epilogue.biased) {
#pragma unroll
      for (int i = 0; i < CHANNELS; i++) {
        const COMPUTE bias = load<COMPUTE>(a.bias[work.channel + i]);
#pragma unroll
        for (int q = 0; q < COLUMNS; q++) sums[q][i] += bias;
      }
    }
    if (a.epilogue.rectified) {
#pragma unroll
      for (int q = 0; q < COLUMNS; q++)
#pragma unroll
        for (int i = 0; i < CHANNELS; i++) sums[q][i] = sums[q][i] > COMPUTE(0) ? sums[q][i] : COMPUTE(0);
    }
  }
}

__device__ __forceinline__ Vector<ELEMENT, Y_VECTOR> vector_of(const COMPUTE (&sums)[COLUMNS][CHANNELS], int p) {
  Vector<ELEMENT, Y_VECTOR> vector;
#pragma unroll
  for (int i = 0; i < Y_VECTOR; i++) vector.item[i] = store<ELEMENT>(sums[(p * Y_VECTOR + i) / CHANNELS][i % CHANNELS]);
  return vector;
}

__device__ __forceinline__ void write_row(const Arguments& a, ELEMENT* y, const Work& work,
                                          COMPUTE (&sums)[COLUMNS][CHANNELS]) {
  const int step = vector_step(a.convolution), width = a.convolution.output[2].divisor - work.column;
  finish_row(a, y - a.y, work, sums);
#pragma unroll
  for (int p = 0; p < Y_VECTORS; p++, y += step)
    if (vector_column(p) < width) *reinterpret_cast<Vector<ELEMENT, Y_VECTOR>*>(y) = vector_of(sums, p);
}

template <int WIDTH, class T> __device__ __forceinline__ bool lies_well(const T* address) {
  return reinterpret_cast<uintptr_t>(address) % sizeof(Vector<T, WIDTH>) == 0;
}

// Reads the taps of CHANNELS filters, which are contiguous, as vectors.
__device__ __forceinline__ void read_taps(const ELEMENT* w, bool flipped, Taps& taps) {
#pragma unroll
  for (int i = 0; i < TAPS; i++) {
    const Vector<ELEMENT, CHANNELS> vector = reinterpret_cast<const Vector<ELEMENT, CHANNELS>*>(w)[i];
#pragma unroll
    for (int j = 0; j < CHANNELS; j++)
      taps[(i * CHANNELS + j) % TAPS][(i * CHANNELS + j) / TAPS] = load<COMPUTE>(vector.item[j]);
  }
  if (flipped) {
#pragma unroll
    for (int i = 0; i < TAPS / 2; i++)
#pragma unroll
      for (int j = 0; j < CHANNELS; j++) {
        const COMPUTE kept = taps[i][j];
        taps[i][j] = taps[TAPS - 1 - i][j];
        taps[TAPS - 1 - i][j] = kept;
      }
  }
}

// Adds row t of a group to the rows of y that contain it and that `is_open` accepts. A row's first product begins its
// sum.
template <class IsOpen>
__device__ __forceinline__ void add_row(const Row& row, const Taps& taps, int phase, int t, Sums& sums,
                                        IsOpen is_open) {
  COMPUTE field[FIELD][CHANNELS];
#pragma unroll
  for (int j = 0; j < FIELD; j++)
#pragma unroll
    for (int i = 0; i < CHANNELS; i++) field[j][i] = row.at(j, i);
#pragma unroll
  for (int open = 0; open < OPEN; open++) {
    const int r = open * STEP + t;  // row in the window of output row group - open
    if (r >= WINDOW_ROWS || !is_open(open)) continue;
    COMPUTE(&sum)[COLUMNS][CHANNELS] = sums[(phase + OPEN - open) % OPEN];
#pragma unroll
    for (int s = 0; s < WINDOW_COLUMNS; s++)
#pragma unroll
      for (int q = 0; q < COLUMNS; q++)
#pragma unroll
        for (int i = 0; i < CHANNELS; i++) {
          const COMPUTE product = field[q * STEP + s][i] * taps[r * WINDOW_COLUMNS + s][i];
          sum[q][i] = r == 0 && s == 0 ? product : sum[q][i] + product;
        }
  }
}

extern "C" __global__ void __launch_bounds__(THREADS, BLOCKS) convolution_depthwise_static(const Arguments a) {
  griddepcontrol_wait();
  const Convolution& c = a.convolution;
  unsigned index = blockIdx.x * blockDim.x + threadIdx.x, vector, block, row_tile;
  Work work{};
  index = a.vectors.divide(index, vector);
  index = a.columns.divide(index, work.column);
  index = a.row_tiles.divide(index, row_tile);
  work.image = a.blocks.divide(index, block);
  work.channel = (block * a.vectors.divisor + vector) * CHANNELS;
  work.column *= COLUMNS;
  work.row = row_tile * a.rows;
  if (work.image >= a.images || work.channel >= a.channels) return;
  const int below = c.output[1].divisor - work.row, rows = below < a.rows ? below : a.rows;

  if (!lies_well<X_ALIGNED>(a.x) || !lies_well<CHANNELS>(a.w) || !lies_well<Y_VECTOR>(a.y) ||
      !lies_well<Y_VECTOR>(a.prior)) {
    const unsigned row = work.row, column = work.column;
    for (work.row = row; work.row < row + rows; work.row++)
      for (work.column = column; work.column < column + COLUMNS && work.column < c.output[2].divisor; work.column++)
        any_filter<CHANNELS>(a, work);
    return;
  }

  const int column = static_cast<int>(work.column) * STEP - c.padding[2],
            top = static_cast<int>(work.row) * STEP - c.padding[1];
  const int end = top + (rows - 1) * STEP + WINDOW_ROWS;
  const unsigned bottom = end < 0            ? 0
                          : end < c.input[1] ? end
                                             : c.input[1];  // Rows of x from here on would add only zeros.
  const ELEMENT* x = a.x + (work.image * c.x_pixel[0] + work.channel * c.x_group +
                            static_cast<long long>(top) * c.x_axis[1] + static_cast<long long>(column) * c.x_axis[2]);
  ELEMENT* y = a.y + (work.image * c.y_pixel[0] + work.row * c.y_pixel[2] + work.column * c.y_pixel[3] +
                      work.channel * c.y_channel);

  Row buffers[BUFFERS][STEP];
  const auto read_group = [&](int group, Row(&buffer)[STEP]) {
#pragma unroll
    for (int t = 0; t < STEP; t++) {
      const int h = top + group * STEP + t;
      buffer[t].read(x + static_cast<long long>(t) * c.x_axis[1], column,
                     static_cast<unsigned>(h) < bottom ? c.input[2] : 0, c.x_axis[2]);
    }
    x += static_cast<long long>(STEP) * c.x_axis[1];
  };
#pragma unroll
  for (int i = 0; i < AHEAD; i++) read_group(i, buffers[i]);

  Taps taps;
  Sums sums;
  read_taps(a.w + work.channel * TAPS, c.flipped, taps);

  const int groups = rows + OPEN - 1;
  for (int first = 0; first < groups; first += BUFFERS)
#pragma unroll
    for (int phase = 0; phase < BUFFERS; phase++) {
      const int group = first + phase;
      if (group >= groups) return;
      read_group(group + AHEAD, buffers[(phase + AHEAD) % BUFFERS]);
#pragma unroll
      for (int t = 0; t < STEP; t++) {
        add_row(buffers[phase][t], taps, phase, t, sums,
                [&](int open) { return static_cast<unsigned>(group - open) < static_cast<unsigned>(rows); });
      }
      if (group >= OPEN - 1) {
        write_row(a, y, work, sums[(phase + 1) % OPEN]);
        y += c.y_pixel[2];
      }
    }
}
