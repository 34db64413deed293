// These kernels convolve by FFT. They compute spectra of image tiles and filters, sum their products over channels (as
// real matrix products, see fft_expand), and transform back. FFT takes the padded image as one tile. FFT_TILING takes
// many small tiles that overlap by the filter (overlap-save). Tiles have up to three dimensions of powers of two.
//
// A spectrum has the layout [depth][row][column / 2 + 1][column of the matrix product]. The last is (group, tile,
// channel), so that every access of a pass fills lines of the cache.
//
// Roofline bound: bytes; each dimension takes a pass, which reads and writes the spectrum once. Flops bound the
// products: 8 per term of a complex sum, at the matrix products' 67.0 TFLOP/s in float (34.0 in double) on an H200.
#include "convolution/problem.cuh"

struct Complex {
  COMPUTE re, im;
};
__device__ __forceinline__ Complex operator+(Complex a, Complex b) { return {a.re + b.re, a.im + b.im}; }
__device__ __forceinline__ Complex operator-(Complex a, Complex b) { return {a.re - b.re, a.im - b.im}; }
__device__ __forceinline__ Complex operator*(Complex a, Complex b) {
  return {a.re * b.re - a.im * b.im, a.re * b.im + a.im * b.re};
}

constexpr int LINES = sizeof(COMPUTE) == 8 ? 8 : 16;  // transforms per block
constexpr int PITCH = LINES + 1;                      // one more, against bank conflicts

struct Arguments : Operands<ELEMENT> {
  unsigned char* workspace;
  long long spectrum_at;  // byte offset in the workspace
  Convolution convolution;
  Epilogue epilogue;
  int size[3], log_size[3];  // extents of a tile: depth, rows, columns
  int step[3];               // stride between tiles: the results of a tile before striding
  int stride[3];
  FastDivmod tiles[3];             // tiles per image
  FastDivmod all_tiles, channels;  // tiles per launch; channels per group, of the image or of the result
  FastDivmod columns;              // groups * all_tiles * channels: columns of the spectrum, or filters * channels
  int first_image;
  int inverse;
  int axis;  // axis of fft_lines: 0 depth, 1 rows
};

__device__ __forceinline__ unsigned half_columns(const Arguments& a) { return a.size[2] / 2 + 1; }

// Computes the factors exp(-2 pi i k / size), k < size / 2.
__device__ __forceinline__ void make_factors(Complex* factors, int size, bool inverse) {
  for (int k = threadIdx.x; k < size / 2; k += blockDim.x) {
    const COMPUTE angle = COMPUTE(2 * k) / size;
    const COMPUTE sine = sinpi(angle);
    factors[k] = {cospi(angle), inverse ? sine : -sine};
  }
}

// Computes LINES transforms of length 2^log_size in [element][line] order (Stockham: natural order in and out). It
// begins and ends with a barrier, and returns the buffer with the result.
__device__ __forceinline__ Complex* transform(Complex* from, Complex* to, const Complex* factors, int log_size) {
  const int half_size = (1 << log_size) / 2;
  __syncthreads();
  for (int stage = 0; stage < log_size; stage++) {
    const int half = 1 << stage;
    for (int index = threadIdx.x; index < half_size * LINES; index += blockDim.x) {
      const int k = index / LINES, line = index % LINES, j = k & (half - 1), target = 2 * k - j;
      const Complex left = from[k * PITCH + line],
                    right = from[(k + half_size) * PITCH + line] * factors[j * (half_size >> stage)];
      to[target * PITCH + line] = left + right;
      to[(target + half) * PITCH + line] = left - right;
    }
    __syncthreads();
    Complex* swapped = from;
    from = to;
    to = swapped;
  }
  return from;
}

// Describes a box in memory that begins at `at`. Positions outside it read as zero.
struct Box {
  long long offset;
  int at[3], limit[3], stride[3];
};

// Locates a column's tile: its image and the coordinates of its first result.
__device__ __forceinline__ unsigned find_tile(const Arguments& a, unsigned tile, unsigned (&first)[3]) {
#pragma unroll
  for (int d = 2; d >= 0; d--) {
    tile = a.tiles[d].divide(tile, first[d]);
    first[d] *= a.step[d];
  }
  return tile + a.first_image;
}

__device__ __forceinline__ Box image_box(const Arguments& a, unsigned column) {
  const Convolution& c = a.convolution;
  unsigned channel, tile, first[3];
  const unsigned group = a.all_tiles.divide(a.channels.divide(column, channel), tile),
                 image = find_tile(a, tile, first);
  Box box{image * c.x_pixel[0] + group * c.x_group + static_cast<long long>(channel) * c.x_channel};
#pragma unroll
  for (int d = 0; d < 3; d++) {
    box.at[d] = static_cast<int>(first[d]) - c.padding[d];
    box.limit[d] = c.input[d];
    box.stride[d] = c.x_axis[d];
  }
  return box;
}

__device__ __forceinline__ Box filter_box(const Arguments& a, unsigned column) {
  const Convolution& c = a.convolution;
  const int depth = c.filter[0].divisor, rows = c.filter[1].divisor, columns = c.filter[2].divisor,
            taps = depth * rows * columns;
  const int sign = c.flipped ? -1 : 1;
  return {static_cast<long long>(column) * taps + (c.flipped ? taps - 1 : 0),
          {0, 0, 0},
          {depth, rows, columns},
          {sign * rows * columns, sign * columns, sign}};
}

// Transforms real rows to half spectra. Two rows are the real and the imaginary part of one transform.
template <class FindBox>
__device__ __forceinline__ void rows_to_spectrum(const Arguments& a, const ELEMENT* source, FindBox find_box) {
  __shared__ Box box[LINES];
  const int size = a.size[2], pairs = (a.size[1] + 1) / 2;
  Complex* values = reinterpret_cast<Complex*>(shared_memory);
  Complex* spare = values + size * PITCH;
  Complex* factors = spare + size * PITCH;
  const unsigned column_blocks = (a.columns.divisor + LINES - 1) / LINES,
                 first_column = blockIdx.x % column_blocks * LINES;
  const int depth = blockIdx.x / column_blocks / pairs, row = blockIdx.x / column_blocks % pairs * 2;
  make_factors(factors, size, false);
  if (threadIdx.x < LINES && first_column + threadIdx.x < a.columns.divisor)
    box[threadIdx.x] = find_box(first_column + threadIdx.x);
  __syncthreads();
  for (int index = threadIdx.x; index < size * LINES; index += blockDim.x) {
    const int line = index >> a.log_size[2], t = index & (size - 1);
    COMPUTE pair[2] = {0, 0};
    if (first_column + line < a.columns.divisor) {
      const Box& b = box[line];
      const int d = b.at[0] + depth, v = b.at[2] + t;
      if (static_cast<unsigned>(d) < b.limit[0] && static_cast<unsigned>(v) < b.limit[2]) {
        const ELEMENT* plane =
            source + (b.offset + static_cast<long long>(d) * b.stride[0] + static_cast<long long>(v) * b.stride[2]);
#pragma unroll
        for (int i = 0; i < 2; i++) {
          const int h = b.at[1] + row + i;
          if (row + i < a.size[1] && static_cast<unsigned>(h) < b.limit[1])
            pair[i] = load<COMPUTE>(plane[static_cast<long long>(h) * b.stride[1]]);
        }
      }
    }
    values[t * PITCH + line] = {pair[0], pair[1]};
  }
  const Complex* result = transform(values, spare, factors, a.log_size[2]);
  Complex* spectrum = reinterpret_cast<Complex*>(a.workspace + a.spectrum_at);
  const unsigned kept = half_columns(a);
  for (int index = threadIdx.x; index < kept * LINES; index += blockDim.x) {
    const int f = index / LINES, line = index % LINES;
    if (first_column + line >= a.columns.divisor) continue;
    const Complex z = result[f * PITCH + line], mirrored = result[((size - f) & (size - 1)) * PITCH + line];
    const long long at =
        ((static_cast<long long>(depth) * a.size[1] + row) * kept + f) * a.columns.divisor + first_column + line;
    spectrum[at] = {COMPUTE(0.5) * (z.re + mirrored.re), COMPUTE(0.5) * (z.im - mirrored.im)};
    if (row + 1 < a.size[1])
      spectrum[at + static_cast<long long>(kept) * a.columns.divisor] = {COMPUTE(0.5) * (z.im + mirrored.im),
                                                                         COMPUTE(0.5) * (mirrored.re - z.re)};
  }
}

extern "C" __global__ void __launch_bounds__(256) convolution_fft_images(const Arguments a) {
  griddepcontrol_wait();
  rows_to_spectrum(a, a.x, [&](unsigned column) { return image_box(a, column); });
}

extern "C" __global__ void __launch_bounds__(256) convolution_fft_filters(const Arguments a) {
  griddepcontrol_wait();
  rows_to_spectrum(a, a.w, [&](unsigned column) { return filter_box(a, column); });
}

// Transforms along the depth or the rows, in place.
extern "C" __global__ void __launch_bounds__(256) convolution_fft_lines(const Arguments a) {
  griddepcontrol_wait();
  const int size = a.size[a.axis];
  Complex* values = reinterpret_cast<Complex*>(shared_memory);
  Complex* spare = values + size * PITCH;
  Complex* factors = spare + size * PITCH;
  // `inner` is the number of elements per index of the axis, and so the stride along it.
  const long long inner = static_cast<long long>(half_columns(a)) * a.columns.divisor * (a.axis == 0 ? a.size[1] : 1);
  const unsigned line_blocks = (inner + LINES - 1) / LINES;
  const long long first = static_cast<long long>(blockIdx.x % line_blocks) * LINES, outer = blockIdx.x / line_blocks;
  Complex* spectrum = reinterpret_cast<Complex*>(a.workspace + a.spectrum_at) + outer * size * inner + first;
  make_factors(factors, size, a.inverse);
  for (int index = threadIdx.x; index < size * LINES; index += blockDim.x) {
    const int t = index / LINES, line = index % LINES;
    values[t * PITCH + line] = first + line < inner ? spectrum[t * inner + line] : Complex{0, 0};
  }
  const Complex* result = transform(values, spare, factors, a.log_size[a.axis]);
  for (int index = threadIdx.x; index < size * LINES; index += blockDim.x) {
    const int t = index / LINES, line = index % LINES;
    if (first + line < inner) spectrum[t * inner + line] = result[t * PITCH + line];
  }
}

// Converts a complex product of matrices to a real one. An image's spectrum [tile][channel] of complex numbers is
// already [tile][2 * channel] of real ones. The conjugate h of a filter's spectrum (a correlation multiplies by it)
// becomes two rows. They give the real and the imaginary part of the result: (h.re, -h.im, ...) and (h.im, h.re, ...).
extern "C" __global__ void convolution_fft_expand(const Arguments a) {
  griddepcontrol_wait();
  const unsigned blocks = (a.columns.divisor + blockDim.x - 1) / blockDim.x,
                 column = blockIdx.x % blocks * blockDim.x + threadIdx.x;
  if (column >= a.columns.divisor) return;
  const long long frequency = blockIdx.x / blocks;
  const Complex value =
      reinterpret_cast<const Complex*>(a.workspace + a.spectrum_at)[frequency * a.columns.divisor + column];
  unsigned channel;
  const unsigned filter = a.channels.divide(column, channel);
  Complex* rows = reinterpret_cast<Complex*>(a.workspace) +
                  (frequency * a.columns.divisor + filter * a.channels.divisor) * 2 + channel;
  rows[0] = {value.re, value.im};
  rows[a.channels.divisor] = {-value.im, value.re};
}

// Transforms half spectra to rows of results. Two rows are the real and the imaginary part of one transform.
extern "C" __global__ void __launch_bounds__(256) convolution_fft_results(const Arguments a) {
  griddepcontrol_wait();
  __shared__ unsigned image[LINES], first[LINES][3], channel[LINES];
  const Convolution& c = a.convolution;
  const int size = a.size[2], pairs = (a.step[1] + 1) / 2;
  Complex* values = reinterpret_cast<Complex*>(shared_memory);
  Complex* spare = values + size * PITCH;
  Complex* factors = spare + size * PITCH;
  const unsigned column_blocks = (a.columns.divisor + LINES - 1) / LINES,
                 first_column = blockIdx.x % column_blocks * LINES;
  const int depth = blockIdx.x / column_blocks / pairs, row = blockIdx.x / column_blocks % pairs * 2;
  make_factors(factors, size, true);
  if (threadIdx.x < LINES && first_column + threadIdx.x < a.columns.divisor) {
    unsigned filter, tile;
    const unsigned group = a.all_tiles.divide(a.channels.divide(first_column + threadIdx.x, filter), tile);
    image[threadIdx.x] = find_tile(a, tile, first[threadIdx.x]);
    channel[threadIdx.x] = group * a.channels.divisor + filter;
  }
  const Complex* spectrum = reinterpret_cast<const Complex*>(a.workspace + a.spectrum_at);
  const unsigned kept = half_columns(a);
  for (int index = threadIdx.x; index < kept * LINES; index += blockDim.x) {
    const int f = index / LINES, line = index % LINES;
    Complex left{0, 0}, right{0, 0};
    if (first_column + line < a.columns.divisor) {
      const long long at =
          ((static_cast<long long>(depth) * a.size[1] + row) * kept + f) * a.columns.divisor + first_column + line;
      left = spectrum[at];
      if (row + 1 < a.size[1]) right = spectrum[at + static_cast<long long>(kept) * a.columns.divisor];
    }
    const int mirrored = (size - f) & (size - 1);
    if (f == mirrored) {  // The value is real, apart from rounding.
      values[f * PITCH + line] = {left.re, right.re};
    } else {
      values[f * PITCH + line] = {left.re - right.im, left.im + right.re};
      values[mirrored * PITCH + line] = {left.re + right.im, right.re - left.im};
    }
  }
  const Complex* result = transform(values, spare, factors, a.log_size[2]);
  const COMPUTE scale = COMPUTE(1) / (static_cast<COMPUTE>(a.size[0]) * a.size[1] * size);
  for (int index = threadIdx.x; index < size * LINES; index += blockDim.x) {
    const int line = index >> a.log_size[2], t = index & (size - 1);
    if (first_column + line >= a.columns.divisor || t >= a.step[2]) continue;
    const Complex pair = result[t * PITCH + line];
#pragma unroll
    for (int i = 0; i < 2; i++) {
      const int at[3] = {static_cast<int>(first[line][0]) + depth, static_cast<int>(first[line][1]) + row + i,
                         static_cast<int>(first[line][2]) + t};
      bool wanted = row + i < a.step[1];
      long long offset = image[line] * c.y_pixel[0] + channel[line] * c.y_channel;
#pragma unroll
      for (int d = 0; d < 3; d++) {
        const int pixel = at[d] / a.stride[d];
        wanted &= pixel * a.stride[d] == at[d] && pixel < c.output[d].divisor;
        offset += pixel * c.y_pixel[d + 1];
      }
      const COMPUTE sum[1] = {(i ? pair.im : pair.re) * scale};
      if (wanted) finish<1, COMPUTE>(a.epilogue, a.bias, a.prior, a.y, offset, 1, 1, channel[line], 0, sum);
    }
  }
}
