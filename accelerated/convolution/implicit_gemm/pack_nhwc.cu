// Images and filters with channels innermost, as tensor cores read them fastest: IMPLICIT_PRECOMP_GEMM keeps such
// copies in its workspace. Channels of a group are padded with zeros to packs of 16 bytes.
//
// Roofline bound: bytes, the image read and the copy written once, at 4.2 TB/s of an H200. Tiles of 64 pixels x
// 64 channels are transposed in shared memory; rows of the filter are short enough for the L2 cache to do it.
#include "convolution/problem.cuh"
#include "primitives/mma.cuh"

constexpr int PACK = 16 / sizeof(ELEMENT), TILE = 64, THREADS = 256;

struct ImageArguments {
  const ELEMENT* x;
  unsigned char* workspace;
  long long target_at;                // bytes into the workspace
  long long image, channel, axis[3];  // strides of x
  FastDivmod extent[3], channels;     // of x; of a group, padded
  FastDivmod m_tiles, channel_tiles;
  int pixels;        // of one image
  int kept;          // channels of a group in x
  int all_channels;  // of all groups, padded
};

extern "C" __global__ void __launch_bounds__(256) convolution_pack_nhwc_image(const ImageArguments a) {
  griddepcontrol_wait();
  __shared__ ELEMENT tile[TILE][TILE + 2];
  unsigned m_tile, channel_tile;
  const unsigned image = a.channel_tiles.divide(a.m_tiles.divide(blockIdx.x, m_tile), channel_tile);
  const int first_m = m_tile * TILE, first_channel = channel_tile * TILE;
  const int pixel = first_m + threadIdx.x % TILE;
  if (pixel < a.pixels) {
    unsigned rest = pixel, coordinate;
    long long offset = image * a.image;
#pragma unroll
    for (int d = 2; d >= 0; d--) {
      rest = a.extent[d].divide(rest, coordinate);
      offset += coordinate * a.axis[d];
    }
    constexpr int STEP = THREADS / TILE, COUNT = TILE / STEP;
    ELEMENT values[COUNT];  // all in flight before the first is used
#pragma unroll
    for (int i = 0; i < COUNT; i++) {
      unsigned channel;
      const int index = first_channel + threadIdx.x / TILE + i * STEP;
      const unsigned group = a.channels.divide(index, channel);
      const bool exists = index < a.all_channels && channel < a.kept;
      values[i] =
          exists ? a.x[offset + static_cast<long long>(group * a.kept + channel) * a.channel] : store<ELEMENT>(0.0f);
    }
#pragma unroll
    for (int i = 0; i < COUNT; i++) tile[threadIdx.x / TILE + i * STEP][threadIdx.x % TILE] = round_to_tf32(values[i]);
  }
  __syncthreads();
  ELEMENT* target =
      reinterpret_cast<ELEMENT*>(a.workspace + a.target_at) + static_cast<long long>(image) * a.pixels * a.all_channels;
  for (int index = threadIdx.x; index < TILE * TILE / PACK; index += THREADS) {
    const int row = index / (TILE / PACK), channel = index % (TILE / PACK) * PACK;
    if (first_m + row >= a.pixels || first_channel + channel >= a.all_channels) continue;
    Pack<ELEMENT, PACK> pack;
#pragma unroll
    for (int i = 0; i < PACK; i++) pack.item[i] = tile[channel + i][row];
    *reinterpret_cast<Pack<ELEMENT, PACK>*>(target + static_cast<long long>(first_m + row) * a.all_channels +
                                            first_channel + channel) = pack;
  }
}

struct FilterArguments {
  const ELEMENT* w;
  unsigned char* workspace;
  long long target_at;
  FastDivmod padded_channels, taps;  // of the copy
  int kept, filters;                 // channels that w has
  int tap_step, channel_step;        // in w
};

extern "C" __global__ void convolution_pack_nhwc_filter(const FilterArguments a) {
  griddepcontrol_wait();
  const unsigned index = blockIdx.x * blockDim.x + threadIdx.x;
  unsigned channel, tap;
  const unsigned filter = a.taps.divide(a.padded_channels.divide(index, channel), tap);
  if (filter >= a.filters) return;
  const long long offset = static_cast<long long>(filter) * a.kept * a.taps.divisor +
                           static_cast<long long>(tap) * a.tap_step + static_cast<long long>(channel) * a.channel_step;
  reinterpret_cast<ELEMENT*>(a.workspace + a.target_at)[index] =
      channel < a.kept ? round_to_tf32(a.w[offset]) : store<ELEMENT>(0.0f);
}
