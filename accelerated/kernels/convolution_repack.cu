// Images and filters with channels innermost, as tensor cores read them fastest: IMPLICIT_PRECOMP_GEMM keeps such copies in
// its workspace. Channels of a group are padded with zeros to whole packs of 16 bytes. Where a group has few channels,
// that would be mostly padding: the values under a whole row of the filter take their place, for every output column.
//
// Floor: bytes, the image read and the copy written once. Tiles of 64 positions x 64 channels turn in shared memory; rows of
// the filter are short enough for the cache to do it.
#include "convolution.cuh"
#include "tensor_core.cuh"

constexpr int PACK = 16 / sizeof(ELEMENT), TILE = 64, THREADS = 256;

struct ImageArguments {
  const ELEMENT* x;
  unsigned char* workspace;
  long long target_at;  // bytes into the workspace
  long long image, channel, axis[3];  // strides of x
  Divisor extent[3], channels;        // of x; of a group, padded
  Divisor position_tiles, channel_tiles;
  int positions;      // of one image
  int kept;           // channels of a group in x
  int all_channels;   // of all groups, padded
};

extern "C" __global__ void __launch_bounds__(256) repack_image(const ImageArguments a) {
  wait_for_earlier_kernels();
  __shared__ ELEMENT tile[TILE][TILE + 2];
  unsigned position_tile, channel_tile;
  const unsigned image = a.channel_tiles.divide(a.position_tiles.divide(blockIdx.x, position_tile), channel_tile);
  const int first_position = position_tile * TILE, first_channel = channel_tile * TILE;
  const int position = first_position + threadIdx.x % TILE;
  if (position < a.positions) {
    unsigned rest = position, coordinate;
    long long offset = image * a.image;
#pragma unroll
    for (int d = 2; d >= 0; d--) {
      rest = a.extent[d].divide(rest, coordinate);
      offset += coordinate * a.axis[d];
    }
    constexpr int STEP = THREADS / TILE, COUNT = TILE / STEP;
    ELEMENT values[COUNT];  // all on their way before the first is used
#pragma unroll
    for (int i = 0; i < COUNT; i++) {
      unsigned channel;
      const int index = first_channel + threadIdx.x / TILE + i * STEP;
      const unsigned group = a.channels.divide(index, channel);
      const bool exists = index < a.all_channels && channel < a.kept;
      values[i] = exists ? a.x[offset + static_cast<long long>(group * a.kept + channel) * a.channel] : store<ELEMENT>(0.0f);
    }
#pragma unroll
    for (int i = 0; i < COUNT; i++) tile[threadIdx.x / TILE + i * STEP][threadIdx.x % TILE] = for_tensor_cores(values[i]);
  }
  __syncthreads();
  ELEMENT* target = reinterpret_cast<ELEMENT*>(a.workspace + a.target_at) + static_cast<long long>(image) * a.positions * a.all_channels;
  for (int index = threadIdx.x; index < TILE * TILE / PACK; index += THREADS) {
    const int row = index / (TILE / PACK), channel = index % (TILE / PACK) * PACK;
    if (first_position + row >= a.positions || first_channel + channel >= a.all_channels) continue;
    Pack<ELEMENT, PACK> pack;
#pragma unroll
    for (int i = 0; i < PACK; i++) pack.item[i] = tile[channel + i][row];
    *reinterpret_cast<Pack<ELEMENT, PACK>*>(target + static_cast<long long>(first_position + row) * a.all_channels + first_channel + channel) = pack;
  }
}

struct RowsArguments {
  const ELEMENT* x;
  unsigned char* workspace;
  long long target_at;                // bytes into the workspace
  long long image, channel, axis[3];  // strides of x
  Divisor extent[3];                  // depth and rows of x, columns of y
  Divisor groups, packs, channels;    // packs of a group; channels of a group in x
  int images, columns;                // of x
  int first_column, stride;           // where the filter's first tap begins, and its steps
  int taps, tap_step;                 // columns of the filter, and of x between them
};

// The copy is [image][depth][row][column of y][group][column of the filter][channel], whole packs for each group. What lies
// outside the image is zero. A thread writes a pack.
extern "C" __global__ void repack_image_rows(const RowsArguments a) {
  wait_for_earlier_kernels();
  const unsigned index = blockIdx.x * blockDim.x + threadIdx.x;
  unsigned pack, group, at[3], channel;
  unsigned rest = a.groups.divide(a.packs.divide(index, pack), group);
#pragma unroll
  for (int d = 2; d >= 0; d--) rest = a.extent[d].divide(rest, at[d]);
  if (rest >= a.images) return;
  int tap = a.channels.divide(pack * PACK, channel);
  int column = static_cast<int>(at[2]) * a.stride + a.first_column + tap * a.tap_step;
  const long long first_channel = static_cast<long long>(group) * a.channels.divisor + channel;
  long long offset = rest * a.image + at[0] * a.axis[0] + at[1] * a.axis[1] + column * a.axis[2] + first_channel * a.channel;
  const long long to_next_tap = a.tap_step * a.axis[2] - (static_cast<int>(a.channels.divisor) - 1) * a.channel;
  Pack<ELEMENT, PACK> values;
#pragma unroll
  for (int i = 0; i < PACK; i++) {
    const bool exists = tap < a.taps && static_cast<unsigned>(column) < static_cast<unsigned>(a.columns);
    values.item[i] = exists ? for_tensor_cores(a.x[offset]) : store<ELEMENT>(0.0f);
    const bool next = ++channel == a.channels.divisor;
    offset += next ? to_next_tap : a.channel;
    if (next) channel = 0, tap++, column += a.tap_step;
  }
  reinterpret_cast<Pack<ELEMENT, PACK>*>(a.workspace + a.target_at)[index] = values;
}

struct FilterArguments {
  const ELEMENT* w;
  unsigned char* workspace;
  long long target_at;
  Divisor lanes, taps;                      // of the copy
  Divisor channels;                         // of w
  int kept, filters;                        // lanes that w has
  int tap_step, column_step, channel_step;  // in w
};

// Lanes are channels, or (column, channel).
extern "C" __global__ void repack_filter(const FilterArguments a) {
  wait_for_earlier_kernels();
  const unsigned index = blockIdx.x * blockDim.x + threadIdx.x;
  unsigned lane, tap, channel;
  const unsigned filter = a.taps.divide(a.lanes.divide(index, lane), tap);
  if (filter >= a.filters) return;
  const unsigned column = a.channels.divide(lane, channel);
  const long long offset = static_cast<long long>(filter) * a.kept * a.taps.divisor + static_cast<long long>(tap) * a.tap_step +
                           column * a.column_step + static_cast<long long>(channel) * a.channel_step;
  reinterpret_cast<ELEMENT*>(a.workspace + a.target_at)[index] = lane < a.kept ? for_tensor_cores(a.w[offset]) : store<ELEMENT>(0.0f);
}
