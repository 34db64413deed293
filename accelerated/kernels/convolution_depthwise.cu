// Depthwise convolution: every channel with its own filter, groups of one channel and one filter. The matrix product of a
// group would be a single row, so the sums are made directly.
//
// Floor: bytes, x and y once. A thread has CHANNELS neighbouring channels (4 where they lie innermost, else 1) of one
// column; 3 x 3 filters without dilation take a strip of ROWS output rows, so that each input value is read three times
// instead of nine, from the L1 cache but for the first.
#include "convolution.cuh"

constexpr int ROWS = 4;

struct Arguments {
  const ELEMENT* x;
  const ELEMENT* w;
  ELEMENT* y;
  const ELEMENT* prior;
  const ELEMENT* bias;
  Convolution convolution;
  Epilogue epilogue;
  Divisor packs, strips;  // of channels; of output rows
  int channels, images;
  int packed;  // the channels of a pack of x lie at multiples of its size
};

template <int CHANNELS>
__device__ __forceinline__ void read_channels(const ELEMENT* x, long long step, int count, bool packed, COMPUTE (&values)[CHANNELS]) {
  if (packed) {
    const Pack<ELEMENT, CHANNELS> pack = *reinterpret_cast<const Pack<ELEMENT, CHANNELS>*>(x);
#pragma unroll
    for (int i = 0; i < CHANNELS; i++) values[i] = load<COMPUTE>(pack.item[i]);
  } else {
#pragma unroll
    for (int i = 0; i < CHANNELS; i++) values[i] = i < count ? load<COMPUTE>(x[i * step]) : COMPUTE(0);
  }
}

// What a thread computes: channels from `channel` on at column `column`, output rows from `strip` * ROWS on.
struct Work {
  unsigned image, channel, plane, strip, column;
};

template <int CHANNELS> __device__ __forceinline__ Work find_work(const Arguments& a) {
  const Convolution& c = a.convolution;
  unsigned index = blockIdx.x * blockDim.x + threadIdx.x, pack;
  Work work;
  if (CHANNELS > 1) index = a.packs.divide(index, pack);
  index = c.output[2].divide(index, work.column);
  index = a.strips.divide(index, work.strip);
  index = c.output[0].divide(index, work.plane);
  if (CHANNELS == 1) index = a.packs.divide(index, pack);
  work.image = index;
  work.channel = pack * CHANNELS;
  return work;
}

template <int CHANNELS, int STEP> __device__ __forceinline__ void rows_of_3x3(const Arguments& a) {
  const Convolution& c = a.convolution;
  const Work work = find_work<CHANNELS>(a);
  if (work.image >= a.images) return;
  const int count = a.channels - work.channel < CHANNELS ? a.channels - work.channel : CHANNELS;
  COMPUTE filter[3][3][CHANNELS], sums[ROWS][CHANNELS] = {};
#pragma unroll
  for (int tap = 0; tap < 9; tap++)
#pragma unroll
    for (int i = 0; i < CHANNELS; i++)
      filter[tap / 3][tap % 3][i] = i < count ? load<COMPUTE>(a.w[(work.channel + i) * 9 + (c.flipped ? 8 - tap : tap)]) : COMPUTE(0);
  const ELEMENT* x = a.x + work.image * c.x_position[0] + work.channel * c.x_group;
  const int column = static_cast<int>(work.column) * STEP - c.padding[2], row = static_cast<int>(work.strip) * (ROWS * STEP) - c.padding[1];
  const bool packed = CHANNELS > 1 && a.packed && count == CHANNELS && reinterpret_cast<uintptr_t>(x) % sizeof(Pack<ELEMENT, CHANNELS>) == 0;
#pragma unroll
  for (int i = 0; i < (ROWS - 1) * STEP + 3; i++) {
    const int h = row + i;
    if (static_cast<unsigned>(h) >= static_cast<unsigned>(c.input[1])) {
      // Zeros times a filter that is not finite are no zeros.
#pragma unroll
      for (int o = 0; o < ROWS; o++)
        if (i >= o * STEP && i < o * STEP + 3)
#pragma unroll
          for (int s = 0; s < 3; s++)
#pragma unroll
            for (int j = 0; j < CHANNELS; j++) sums[o][j] += COMPUTE(0) * filter[i - o * STEP][s][j];
      continue;
    }
#pragma unroll
    for (int s = 0; s < 3; s++) {
      COMPUTE values[CHANNELS] = {};
      if (static_cast<unsigned>(column + s) < static_cast<unsigned>(c.input[2]))
        read_channels(x + (static_cast<long long>(h) * c.x_axis[1] + static_cast<long long>(column + s) * c.x_axis[2]), c.x_group, count, packed, values);
#pragma unroll
      for (int o = 0; o < ROWS; o++)
        if (i >= o * STEP && i < o * STEP + 3)
#pragma unroll
          for (int j = 0; j < CHANNELS; j++) sums[o][j] += values[j] * filter[i - o * STEP][s][j];
    }
  }
  const long long offset = work.image * c.y_position[0] + work.column * c.y_position[3] + work.channel * c.y_channel;
#pragma unroll
  for (int o = 0; o < ROWS; o++) {
    const unsigned p = work.strip * ROWS + o;
    if (p < c.output[1].divisor)
      finish<CHANNELS, COMPUTE>(a.epilogue, a.bias, a.prior, a.y, offset + p * c.y_position[2], c.y_channel, count, work.channel, 1, sums[o]);
  }
}

// Any filter; `strips` are single rows.
template <int CHANNELS> __device__ __forceinline__ void any_filter(const Arguments& a) {
  const Convolution& c = a.convolution;
  const Work work = find_work<CHANNELS>(a);
  if (work.image >= a.images) return;
  const int count = a.channels - work.channel < CHANNELS ? a.channels - work.channel : CHANNELS;
  const ELEMENT* x = a.x + work.image * c.x_position[0] + work.channel * c.x_group;
  const bool packed = CHANNELS > 1 && a.packed && count == CHANNELS && reinterpret_cast<uintptr_t>(x) % sizeof(Pack<ELEMENT, CHANNELS>) == 0;
  const int output[3] = {static_cast<int>(work.plane), static_cast<int>(work.strip), static_cast<int>(work.column)};
  const int depth = c.filter[0].divisor, rows = c.filter[1].divisor, columns = c.filter[2].divisor, taps = depth * rows * columns;
  COMPUTE sums[CHANNELS] = {};
  for (int t = 0, tap = 0; t < depth; t++)
    for (int r = 0; r < rows; r++)
      for (int s = 0; s < columns; s++, tap++) {
        const int d = output[0] * c.step[0] - c.padding[0] + t * c.dilation[0], h = output[1] * c.step[1] - c.padding[1] + r * c.dilation[1],
                  v = output[2] * c.step[2] - c.padding[2] + s * c.dilation[2];
        COMPUTE values[CHANNELS] = {};
        if (static_cast<unsigned>(d) < static_cast<unsigned>(c.input[0]) && static_cast<unsigned>(h) < static_cast<unsigned>(c.input[1]) &&
            static_cast<unsigned>(v) < static_cast<unsigned>(c.input[2]))
          read_channels(x + (static_cast<long long>(d) * c.x_axis[0] + static_cast<long long>(h) * c.x_axis[1] + static_cast<long long>(v) * c.x_axis[2]),
                        c.x_group, count, packed, values);
#pragma unroll
        for (int i = 0; i < CHANNELS; i++)
          if (i < count) sums[i] += values[i] * load<COMPUTE>(a.w[(work.channel + i) * taps + (c.flipped ? taps - 1 - tap : tap)]);
      }
  const long long offset = work.image * c.y_position[0] + work.plane * c.y_position[1] + work.strip * c.y_position[2] +
                           work.column * c.y_position[3] + work.channel * c.y_channel;
  finish<CHANNELS, COMPUTE>(a.epilogue, a.bias, a.prior, a.y, offset, c.y_channel, count, work.channel, 1, sums);
}

extern "C" __global__ void depthwise_channels_3x3(const Arguments a) {
  if (a.convolution.step[1] == 1) rows_of_3x3<4, 1>(a);
  else rows_of_3x3<4, 2>(a);
}
extern "C" __global__ void depthwise_columns_3x3(const Arguments a) {
  if (a.convolution.step[1] == 1) rows_of_3x3<1, 1>(a);
  else rows_of_3x3<1, 2>(a);
}
extern "C" __global__ void depthwise_channels(const Arguments a) { any_filter<4>(a); }
extern "C" __global__ void depthwise_columns(const Arguments a) { any_filter<1>(a); }
