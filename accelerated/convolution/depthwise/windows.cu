// This file computes depthwise convolutions (5.2.9, 5.2.10) and their input gradients (5.2.8) with any window. Each
// channel of y has its own filter. Some channels of y may have the same channel of x.
//
// Tiling: a thread owns CHANNELS channels and COLUMNS columns of a row of y that meet the same taps. It walks along the
// taps of each row of the window. The columns of x under the thread move through registers, so that one read serves
// COLUMNS products. Shared memory holds the filters of the block's channels. An input gradient is a convolution of dy
// (`x`) to dx (`y`). The columns of dx that are a stride apart form a residue, and the residues of a row are
// neighbouring threads.
//
// Roofline bound: bytes, x and y once. A read takes 6 + CHANNELS instructions, a tap 3 + COLUMNS * CHANNELS.
// 197x592x1x1919, 1 x 7 in half takes 425 us on an H200 (the bytes take 256).
#include "convolution/problem.cuh"
#include "primitives/packed.cuh"

// The host defines CHANNELS (windows.py).
constexpr int THREADS = 128;      // per block
constexpr int COLUMNS = 4;        // per thread
constexpr int AHEAD = 4;          // taps whose columns of x are read at once
constexpr int MAX_RESIDUES = 16;  // residues of a stride

// Describes taps along an axis, in the order of their positions in x. The first one is `at` after the base of y.
struct Taps {
  int count, first, at;
};

// Describes an axis. The base of position y in x is (y * factor + padding) / stride, whose remainder chooses the taps.
struct Axis {
  FastDivmod stride;        // stride of a gradient; 1 for a convolution
  int factor, padding;      // stride of a convolution, padding of a gradient; else 1 and 0
  int step, tap_step;       // distances between taps in x and in the filter
  int extent, pitch;        // extent and stride of x
  Taps taps[MAX_RESIDUES];  // by remainder; for the columns of a convolution, parts of the window

  __device__ __forceinline__ int base(unsigned position, unsigned& remainder) const {
    return static_cast<int>(stride.divide(position * factor + padding, remainder));
  }
};

struct Arguments : Operands<ELEMENT> {
  Epilogue epilogue;
  FastDivmod tiles, residues, rows, planes;  // divisors: column tiles, columns of different taps, rows and planes of y
  FastDivmod lane_blocks, lanes;             // divisors: blocks of channels, vectors of channels per block
  FastDivmod across;                         // threads of a block per vector of channels
  FastDivmod taps, multiple;                 // taps of the window; channels of y per channel of x
  Axis axes[3];
  int parts, apart;  // parts of the window's columns that a thread adds; distance between columns of a thread
  int window[2];     // strides of a plane and of a row of the window, in taps
  unsigned pixels;   // threads of one channel
  int repeated;      // pixels per thread
  int channels, channels_last, flipped, width;
  int plain;                      // whether the sums are the results
  int of_block, x_step;           // channels per block; elements of x from a column to the next one of a thread
  int w_group, w_channel, w_tap;  // strides of w
  int x_image, x_channel, y_image, y_channel, y_axis[3];
};

__device__ __forceinline__ void sum_columns(const Arguments& a, unsigned index, int channel, const COMPUTE* filters) {
  using Channels = Packed<CHANNELS>;
  using Factors = Vector<COMPUTE, CHANNELS>;
  const Axis& across = a.axes[2];
  unsigned tile, residue, row, plane, remainder[3];
  if (a.channels_last) index = a.residues.divide(a.tiles.divide(index, tile), residue);
  else index = a.tiles.divide(a.residues.divide(index, residue), tile);
  const unsigned image = a.planes.divide(a.rows.divide(index, row), plane);
  const int apart = a.apart, column = tile * COLUMNS * apart + residue;
  const int base[3] = {a.axes[0].base(plane, remainder[0]), a.axes[1].base(row, remainder[1]),
                       across.base(column, remainder[2])};
  const Taps deep = a.axes[0].taps[remainder[0]], down = a.axes[1].taps[remainder[1]];
  // Offsets in x and y are right modulo 2^32, which is enough for elements inside.
  const unsigned from = image * a.x_image + a.multiple.divide(channel) * a.x_channel;

  COMPUTE sums[COLUMNS][CHANNELS] = {};
  for (int t = 0; t < deep.count; t++)
    for (int r = 0; r < down.count; r++) {
      const int d = base[0] + deep.at + t * a.axes[0].step, h = base[1] + down.at + r * a.axes[1].step;
      const bool exists = static_cast<unsigned>(d) < static_cast<unsigned>(a.axes[0].extent) &&
                          static_cast<unsigned>(h) < static_cast<unsigned>(a.axes[1].extent);
      const unsigned line =
          from + static_cast<unsigned>(d) * a.axes[0].pitch + static_cast<unsigned>(h) * a.axes[1].pitch;
      const int first_tap =
          (deep.first + t * a.axes[0].tap_step) * a.window[0] + (down.first + r * a.axes[1].tap_step) * a.window[1];
      for (int part = 0; part < a.parts; part++) {
        const Taps taps = across.taps[remainder[2] + part];
        int at = base[2] + taps.at;
        unsigned offset = line + static_cast<unsigned>(at) * across.pitch;
        // The columns under the taps end here, or with x, which has no columns where the row is outside.
        const unsigned end = exists ? max(0, min(across.extent, at + (COLUMNS - 1 + taps.count) * across.step)) : 0;
        const auto read = [&](auto& vectors) {
#pragma unroll
          for (Channels& vector : vectors) {
            vector = fetch_packed<CHANNELS>(a.x + offset, static_cast<unsigned>(at) < end);
            at += across.step, offset += a.x_step;
          }
        };
        // Zeros outside must be multiplied, because an infinity or NaN of the filter makes them NaN.
        COMPUTE field[COLUMNS - 1 + AHEAD][CHANNELS];
        Channels first[COLUMNS - 1 + AHEAD], next[AHEAD];
        read(first);
#pragma unroll
        for (int j = 0; j < COLUMNS - 1 + AHEAD; j++) convert_packed<CHANNELS>(first[j], field[j]);
        const COMPUTE* factors = filters + (first_tap + taps.first) * a.of_block;
        const int factor_step = across.tap_step * a.of_block;
        for (int u = 0; u < taps.count; u += AHEAD) {
          const bool further = u + AHEAD < taps.count;
          if (further) read(next);
#pragma unroll
          for (int t = 0; t < AHEAD; t++) {
            if (u + t >= taps.count) break;
            const Factors factor = *reinterpret_cast<const Factors*>(factors);
            factors += factor_step;
#pragma unroll
            for (int q = 0; q < COLUMNS; q++)
#pragma unroll
              for (int i = 0; i < CHANNELS; i++) sums[q][i] += field[q + t][i] * factor.item[i];
          }
          if (!further) break;
#pragma unroll
          for (int j = 0; j < COLUMNS - 1; j++)
#pragma unroll
            for (int i = 0; i < CHANNELS; i++) field[j][i] = field[j + AHEAD][i];
#pragma unroll
          for (int t = 0; t < AHEAD; t++) convert_packed<CHANNELS>(next[t], field[COLUMNS - 1 + t]);
        }
      }
    }

  unsigned to =
      image * a.y_image + channel * a.y_channel + plane * a.y_axis[0] + row * a.y_axis[1] + column * a.y_axis[2];
  const unsigned step = apart * a.y_axis[2];
  const int left = a.width - column;
  if (a.plain) {
#pragma unroll
    for (int q = 0; q < COLUMNS; q++, to += step)
      if (q * apart < left) put_packed<CHANNELS>(a.y + to, sums[q]);
  } else {
#pragma unroll
    for (int q = 0; q < COLUMNS; q++, to += step)
      if (q * apart < left)
        finish<CHANNELS, COMPUTE>(a.epilogue, a.bias, a.prior, a.y, to, a.y_channel, CHANNELS, channel, 1, sums[q]);
  }
}

extern "C" __global__ void __launch_bounds__(THREADS) convolution_depthwise_windows(const Arguments a) {
  griddepcontrol_wait();
  COMPUTE* filters = reinterpret_cast<COMPUTE*>(shared_memory);  // [tap][channel]
  unsigned lane_block;
  const unsigned pixel_block = a.lane_blocks.divide(blockIdx.x, lane_block);
  const int of_block = a.of_block, first = lane_block * of_block, taps = a.taps.divisor;
  for (unsigned i = threadIdx.x; i < static_cast<unsigned>(of_block * taps); i += THREADS) {
    unsigned tap, of_group;
    const int channel = a.taps.divide(i, tap);
    const unsigned group = a.multiple.divide(first + channel, of_group);
    const long long from = static_cast<long long>(group) * a.w_group + of_group * a.w_channel + tap * a.w_tap;
    filters[(a.flipped ? taps - 1 - tap : tap) * of_block + channel] =
        first + channel < a.channels ? load<COMPUTE>(a.w[from]) : COMPUTE(0);
  }
  __syncthreads();

  unsigned lane, thread;
  if (a.channels_last) thread = a.lanes.divide(threadIdx.x, lane);
  else lane = a.across.divide(threadIdx.x, thread);
  const int channel = first + lane * CHANNELS;
  if (channel >= a.channels) return;
  for (int i = 0; i < a.repeated; i++) {
    const unsigned index = (pixel_block * a.repeated + i) * a.across.divisor + thread;
    if (index >= a.pixels) return;
    sum_columns(a, index, channel, filters + lane * CHANNELS);
  }
}
