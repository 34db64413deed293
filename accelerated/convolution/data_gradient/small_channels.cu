// This kernel computes gradients of an input of few channels per group (5.2.8) on tensor cores: half, bfloat16, or
// float where TF32 is allowed.
//
// Tiling: a tile covers 16 x 16 steps of the stride in dx. Its elements form residue classes, up to four of which a
// block computes. Each class has 8 columns of sums, one per channel. A K-block is 128 bytes of dy's channels at all
// pixels that meet the tile, and of w at all taps of the classes. A warp has four rows of 16 pixels. A fragment of dy
// serves every class that meets it, and a fragment of w serves four rows. Results pass through shared memory.
// K-blocks with several groups stay there for all of their sums. A group of 16 bytes fills half a fragment, and the
// other half is zero.
//
// Roofline bound: bytes, dx and dy once. The next bounds are the tensor cores, which compute 8 columns even for fewer
// channels, and the reads of fragments from shared memory.
#include "primitives/geometry.cuh"
#include "primitives/mma.cuh"

constexpr int TILE = 16;                             // rows and columns of pixels
constexpr int WARP_ROWS = TILE / (THREADS / 32);     // rows of a tile per warp
constexpr int COLUMNS = 8;                           // columns per product
constexpr int ROW_BYTES = 128;                       // bytes of K per row of a tile
constexpr int VECTOR = 16 / sizeof(ELEMENT);         // elements per vector
constexpr int TILE_K = ROW_BYTES / sizeof(ELEMENT);  // terms per row of a tile
constexpr int MAX_STRIDE = 8;                        // along an axis
constexpr int MAX_TAPS = 32;                         // along an axis
constexpr int STEP_BYTES = 32;                       // bytes of K per fragment
constexpr int IN_FLIGHT = 8;                         // vectors that a thread copies at once

// Describes an axis. A block computes one part of the residues of the stride.
struct Axis {
  FastDivmod residues;           // residues of the stride that a block computes
  int stride, extent, incoming;  // extents of dx and of dy
  int first, window;             // pixels of dy that meet one step, and the first of them for step 0
  int dy_step, dx_step, taps;
  signed char slot[MAX_WINDOW][MAX_STRIDE];  // by pixel and residue: index of the tap among those of the part, or -1
  unsigned char tap[MAX_STRIDE][MAX_TAPS];   // taps of each part
  unsigned char count[MAX_STRIDE];           // number of these taps
};

struct Arguments {
  const ELEMENT* w;  // [tap][padded channels of a group][filters]
  const ELEMENT* dy;
  ELEMENT* dx;
  COMPUTE alpha, beta;
  int dy_image, dx_image, dx_channel, channels_last;
  int filters, k_bytes;        // channels of dy; bytes of K per group, 0 without groups
  int group_channels, groups;  // channels of dx per group
  int results_at;              // bytes of shared memory before the results
  Axis axes[2];
  FastDivmod tiles[2], parts[2];     // tiles and parts of the residues along each axis
  FastDivmod k_blocks;               // blocks of groups
  FastDivmod inner_columns, padded;  // pixels of dy across a tile; padded channels of a group
};

// Copies rows of 128 bytes of K, from element k on. `find` returns row i's address, or nullptr for zeros.
template <class Find>
__device__ __forceinline__ void copy_rows(unsigned char* to, int rows, int k, int filters, Find find) {
  for (int start = threadIdx.x; start < rows * 8; start += IN_FLIGHT * THREADS) {
    Vector<ELEMENT, VECTOR> vectors[IN_FLIGHT];
#pragma unroll
    for (int i = 0; i < IN_FLIGHT; i++) {
      const int item = start + i * THREADS, at = k + item % 8 * VECTOR;
      const ELEMENT* from = item < rows * 8 && at < filters ? find(item / 8) : nullptr;
      vectors[i] = {};
      if (from) vectors[i] = *reinterpret_cast<const Vector<ELEMENT, VECTOR>*>(from + at);
    }
#pragma unroll
    for (int i = 0; i < IN_FLIGHT; i++) {
      const int item = start + i * THREADS;
      if (item >= rows * 8) break;
#pragma unroll
      for (int j = 0; j < VECTOR; j++) vectors[i].item[j] = round_to_tf32(vectors[i].item[j]);
      *reinterpret_cast<Vector<ELEMENT, VECTOR>*>(swizzled(to, item / 8, item % 8)) = vectors[i];
    }
  }
}

// Makes the other half of the K of a fragment zero.
template <int REGISTERS> __device__ __forceinline__ void keep_half(unsigned (&fragment)[REGISTERS], bool upper) {
#pragma unroll
  for (int i = 0; i < REGISTERS; i++)
    if ((i >= REGISTERS / 2) != upper) fragment[i] = 0;
}

extern "C" __global__ void __launch_bounds__(THREADS) convolution_data_gradient_small_channels(const Arguments a) {
  griddepcontrol_wait();
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  const Axis &rows = a.axes[0], &columns = a.axes[1];
  unsigned row_tile, column_tile, row_part, column_part, k_block;
  unsigned index = a.parts[0].divide(a.parts[1].divide(blockIdx.x, column_part), row_part);
  index = a.tiles[0].divide(a.tiles[1].divide(a.k_blocks.divide(index, k_block), column_tile), row_tile);
  const int image = index, across = a.inner_columns.divisor, down = TILE + rows.window - 1;
  const int first_row = row_tile * TILE + rows.first, first_column = column_tile * TILE + columns.first;
  const int first_row_residue = row_part * rows.residues.divisor,
            first_column_residue = column_part * columns.residues.divisor;
  const int of_row = columns.count[column_part], taps = rows.count[row_part] * of_row, padded = a.padded.divisor;
  unsigned char* shared = shared_memory + (-reinterpret_cast<uintptr_t>(shared_memory) & 1023);
  unsigned char *pixels = shared, *filters = pixels + (down * across + 7) / 8 * 8 * ROW_BYTES;
  float* results = reinterpret_cast<float*>(shared + a.results_at);
  const ELEMENT* dy = a.dy + static_cast<long long>(image) * a.dy_image;
  // For each pixel of the window and class: the first row of the tap's filters, or -1.
  __shared__ Vector<short, MAX_CLASSES> slots[MAX_WINDOW * MAX_WINDOW];
  for (int i = threadIdx.x; i < rows.window * columns.window * MAX_CLASSES; i += THREADS) {
    const int at = i / MAX_CLASSES, v = at / columns.window, u = at % columns.window;
    unsigned c;
    const int r = first_row_residue + columns.residues.divide(i % MAX_CLASSES, c);
    const int of_class = first_column_residue + c;
    int found = -1;
    if (r < first_row_residue + static_cast<int>(rows.residues.divisor) && r < rows.stride &&
        of_class < columns.stride && rows.slot[v][r] >= 0 && columns.slot[u][of_class] >= 0)
      found = (rows.slot[v][r] * of_row + columns.slot[u][of_class]) * padded;
    slots[at].item[i % MAX_CLASSES] = static_cast<short>(found);
  }

  const auto load_block = [&](int k) {
    copy_rows(pixels, down * across, k, a.filters, [&](int i) -> const ELEMENT* {
      unsigned column;
      const int row = a.inner_columns.divide(i, column) + first_row, at = column + first_column;
      const bool exists = static_cast<unsigned>(row) < static_cast<unsigned>(rows.incoming) &&
                          static_cast<unsigned>(at) < static_cast<unsigned>(columns.incoming);
      return exists ? dy + row * rows.dy_step + at * columns.dy_step : nullptr;
    });
    copy_rows(filters, taps * padded, k, a.filters, [&](int i) -> const ELEMENT* {
      unsigned channel;
      const int slot = a.padded.divide(i, channel);
      const int tap = rows.tap[row_part][slot / of_row] * columns.taps + columns.tap[column_part][slot % of_row];
      return static_cast<int>(channel) < a.group_channels ? a.w + (tap * padded + static_cast<int>(channel)) * a.filters
                                                          : nullptr;
    });
  };
  // Without groups there is one pass over all of K. Otherwise each pass computes 8 channels of a group of the K-block.
  const int of_group = padded / COLUMNS, per_block = a.k_bytes ? ROW_BYTES / a.k_bytes : 1;
  const int first_group = k_block * per_block, passes = min(per_block, a.groups - first_group) * of_group;
  const int first_k = k_block * TILE_K, end_k = a.k_bytes ? first_k + 1 : a.filters;
  for (int pass = 0; pass < passes; pass++) {
    const int group = pass / of_group, block = pass % of_group;
    const int first_step = group * a.k_bytes / STEP_BYTES,
              end_step = a.k_bytes ? first_step + (a.k_bytes + STEP_BYTES - 1) / STEP_BYTES : ROW_BYTES / STEP_BYTES;
    const bool halved = a.k_bytes && a.k_bytes < STEP_BYTES, upper = halved && group % 2;
    float sums[WARP_ROWS][MAX_CLASSES][4] = {};
    for (int k = first_k; k < end_k; k += TILE_K) {
      if (pass == 0 || !a.k_bytes) {
        __syncthreads();
        load_block(k);
        __syncthreads();
      }
      for (int v = 0; v < rows.window; v++)
        for (int u = 0; u < columns.window; u++) {
          const Vector<short, MAX_CLASSES> slot = slots[v * columns.window + u];
          if ((slot.item[0] & slot.item[1] & slot.item[2] & slot.item[3]) < 0) continue;
          for (int s = first_step; s < end_step; s++) {
            unsigned left[WARP_ROWS][4], right[MAX_CLASSES][2];
#pragma unroll
            for (int r = 0; r < WARP_ROWS; r++) {
              const int row = (warp * WARP_ROWS + r + v) * across + u + lane % 16;
              ldmatrix(left[r], swizzled(pixels, row, s * 2 + lane / 16));
              if (halved) keep_half(left[r], upper);
            }
#pragma unroll
            for (int i = 0; i < MAX_CLASSES; i++) {
              const int row = max(static_cast<int>(slot.item[i]), 0) + block * COLUMNS + lane % 8;
              ldmatrix(right[i], swizzled(filters, row, s * 2 + lane / 8 % 2));
              if (halved) keep_half(right[i], upper);
            }
#pragma unroll
            for (int i = 0; i < MAX_CLASSES; i++) {
              if (slot.item[i] < 0) continue;
#pragma unroll
              for (int r = 0; r < WARP_ROWS; r++) mma_sync<ELEMENT>(sums[r][i], left[r], right[i]);
            }
          }
        }
    }

    // The tile of dx is [row][column][channel], for the residues of the block.
    const int width = TILE * columns.residues.divisor, first_channel = block * COLUMNS;
    const int channels = min(COLUMNS, a.group_channels - first_channel);
    __syncthreads();
#pragma unroll
    for (int i = 0; i < MAX_CLASSES; i++) {
      unsigned column_class;
      const unsigned row_class = columns.residues.divide(i, column_class);
      if (row_class >= rows.residues.divisor) break;
#pragma unroll
      for (int r = 0; r < WARP_ROWS; r++)
#pragma unroll
        for (int half_tile = 0; half_tile < 2; half_tile++) {
          const int column = (lane / 4 + half_tile * 8) * columns.residues.divisor + column_class;
          const int row = (warp * WARP_ROWS + r) * rows.residues.divisor + row_class, channel = lane % 4 * 2;
          float* to = results + (row * width + column) * channels + channel;
          const float* pair = sums[r][i] + half_tile * 2;
          if (channels == COLUMNS) *reinterpret_cast<float2*>(to) = make_float2(pair[0], pair[1]);
          else
            for (int j = 0; j < 2; j++)
              if (channel + j < channels) to[j] = pair[j];
        }
    }
    __syncthreads();
    ELEMENT* dx =
        a.dx + (static_cast<long long>(image) * a.dx_image +
                static_cast<long long>((first_group + group) * a.group_channels + first_channel) * a.dx_channel);
    // Returns the position in dx of a position of the tile, or -1 outside of dx.
    const auto position = [](const Axis& axis, int tile, int first_residue, int at) {
      unsigned of_step;
      const int step = axis.residues.divide(at, of_step), residue = first_residue + of_step;
      const int found = (tile * TILE + step) * axis.stride + residue;
      return residue < axis.stride && found < axis.extent ? found : -1;
    };
    const bool vectors = channels == COLUMNS && a.channels_last && a.beta == COMPUTE(0);
    for (int local = warp; local < TILE * static_cast<int>(rows.residues.divisor); local += THREADS / 32) {
      const int row = position(rows, row_tile, first_row_residue, local);
      if (row < 0) continue;
      const float* from = results + local * width * channels;
      ELEMENT* to_row = dx + static_cast<long long>(row) * rows.dx_step;
      for (int at = lane; at < width; at += 32) {
        const int column = position(columns, column_tile, first_column_residue, at);
        if (column < 0) continue;
        ELEMENT* to = to_row + static_cast<long long>(column) * columns.dx_step;
        if (vectors && reinterpret_cast<uintptr_t>(to) % 16 == 0) {
#pragma unroll
          for (int i = 0; i < COLUMNS; i += VECTOR) {
            Vector<ELEMENT, VECTOR> vector;
#pragma unroll
            for (int j = 0; j < VECTOR; j += 4) {
              const float4 four = *reinterpret_cast<const float4*>(from + at * COLUMNS + i + j);
              vector.item[j] = store<ELEMENT>(a.alpha * four.x), vector.item[j + 1] = store<ELEMENT>(a.alpha * four.y);
              vector.item[j + 2] = store<ELEMENT>(a.alpha * four.z),
                              vector.item[j + 3] = store<ELEMENT>(a.alpha * four.w);
            }
            *reinterpret_cast<Vector<ELEMENT, VECTOR>*>(to + i) = vector;
          }
        } else {
          for (int i = 0; i < channels; i++, to += a.dx_channel)
            *to = blend<COMPUTE>(a.alpha, from[at * channels + i], a.beta, to);
        }
      }
    }
  }
}
