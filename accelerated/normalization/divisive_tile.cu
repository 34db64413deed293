// Divisive normalization (3.2.33, 4.1.6) of images whose rows are contiguous.
//
// Tiling: a block has TILE x TILE elements of a plane and what the windows reach around them in shared memory; a thread
// has ROWS elements below each other, which share what they load. Backward in one kernel: q = dy * x * s^(-beta - 1) of
// the elements whose windows reach into the tile, n - 1 around it, is computed again by each block, ((TILE + n - 1) /
// TILE)^2 as often. Roofline bound: bytes, x (and means) read and y written once; backward x, means and dy
// read, dx and dMeans written once. An element has n^2 terms of 2 operations and n (n + 3) / 4 loads from shared
// memory, backward twice: for n = 3 and 5 below what an H200 does in the time of the bytes of floats.
#include "normalization/divisive.cuh"

constexpr int LANES = 32, WARPS = TILE / ROWS, BLOCK = LANES * WARPS;
static_assert(TILE == LANES && BLOCK == THREADS, "a warp has the columns of ROWS rows");

struct Tile {
  int window, behind, ahead;
  int height, width;
  int row, image, channel;            // strides
  FastDivmod across, down, channels;  // blocks of a row of tiles, of a column of them; channels
};
struct TileArguments {
  DivisiveArguments a;
  Tile tile;
};

struct Position {
  int h, w, plane;  // of the first element of this block, and the offset of its plane
};

__device__ __forceinline__ Position find_position(const Tile& t) {
  unsigned w, h, channel;
  const unsigned image = t.channels.divide(t.down.divide(t.across.divide(blockIdx.x, w), h), channel);
  return {static_cast<int>(h) * TILE, static_cast<int>(w) * TILE,
          static_cast<int>(image) * t.image + static_cast<int>(channel) * t.channel};
}

__device__ __forceinline__ bool inside(const Tile& t, int h, int w) {
  return static_cast<unsigned>(h) < static_cast<unsigned>(t.height) &&
         static_cast<unsigned>(w) < static_cast<unsigned>(t.width);
}

// Copies `rows` x `size` elements from row h and column w on; zeros outside the image.
__device__ __forceinline__ void fetch(const Tile& t, const ELEMENT* plane, int h, int w, int rows, int size,
                                      COMPUTE* into) {
  for (int r = threadIdx.x / LANES; r < rows; r += WARPS)
    for (int c = threadIdx.x % LANES; c < size; c += LANES)
      into[r * size + c] = inside(t, h + r, w + c) ? load<COMPUTE>(plane[(h + r) * t.row + w + c]) : COMPUTE(0);
}

// The sums over the windows of ROWS elements below each other, each with its mean. from: shared memory, the first row
// and column of the first window, which is that of (h, w) in the image. N: the window, 0 where it is not known.
template <int N>
__device__ __forceinline__ void sum_windows(const Tile& t, const COMPUTE* from, int pitch, int h, int w,
                                            const COMPUTE (&mean)[ROWS], Sums (&sums)[ROWS]) {
  const int n = N ? N : t.window;
#pragma unroll
  for (int r = 0; r < (N ? N + ROWS - 1 : t.window + ROWS - 1); r++)
#pragma unroll
    for (int c = 0; c < n; c++) {
      if (!inside(t, h + r, w + c)) continue;
      const COMPUTE x = from[r * pitch + c];
#pragma unroll
      for (int i = 0; i < ROWS; i++)
        if (r >= i && r < i + n) sums[i].add(x - mean[i]);
    }
}

template <int N> __device__ __forceinline__ void forward(const TileArguments& arguments) {
  const DivisiveArguments& a = arguments.a;
  const Tile& t = arguments.tile;
  const Position p = find_position(t);
  COMPUTE* x = reinterpret_cast<COMPUTE*>(shared_memory);
  const int size = TILE + t.window - 1, row = threadIdx.x / LANES * ROWS, column = threadIdx.x % LANES;
  griddepcontrol_wait_before_access(a.x + p.plane);
  fetch(t, a.x + p.plane, p.h - t.behind, p.w - t.behind, size, size, x);
  COMPUTE mean[ROWS];
  Sums sums[ROWS];
#pragma unroll
  for (int i = 0; i < ROWS; i++) {
    const int h = p.h + row + i, w = p.w + column;
    mean[i] = inside(t, h, w) ? read_mean(a.means, p.plane + h * t.row + w) : COMPUTE(0);
  }
  __syncthreads();
  sum_windows<N>(t, x + row * size + column, size, p.h + row - t.behind, p.w + column - t.behind, mean, sums);
#pragma unroll
  for (int i = 0; i < ROWS; i++) {
    const int h = p.h + row + i, w = p.w + column;
    if (!inside(t, h, w)) continue;
    const COMPUTE y = x[(row + i + t.behind) * size + column + t.behind] * a.power(a.power.base(sums[i].squares));
    ELEMENT* to = a.out + (p.plane + h * t.row + w);
    *to = blend(a.alpha, y, a.beta, to);
  }
}

template <int N> __device__ __forceinline__ void backward(const TileArguments& arguments) {
  const DivisiveArguments& a = arguments.a;
  const Tile& t = arguments.tile;
  const Position p = find_position(t);
  // x from n - 1 before the tile to n - 1 behind it, and the rows below that the last threads read; q and the means
  // from `ahead` before it to `behind` behind it; dy * s^-beta in it.
  const int x_size = TILE + 2 * (t.window - 1), q_size = TILE + t.window - 1,
            x_rows = (q_size + ROWS - 1) / ROWS * ROWS + t.window - 1;
  COMPUTE* x = reinterpret_cast<COMPUTE*>(shared_memory);
  COMPUTE *q = x + x_rows * x_size, *means = q + q_size * q_size, *direct = means + q_size * q_size;
  griddepcontrol_wait_before_access(a.x + p.plane);
  fetch(t, a.x + p.plane, p.h - (t.window - 1), p.w - (t.window - 1), x_rows, x_size, x);
  if (a.means) fetch(t, a.means + p.plane, p.h - t.ahead, p.w - t.ahead, q_size, q_size, means);
  __syncthreads();
  for (int r = threadIdx.x / LANES * ROWS; r < q_size; r += WARPS * ROWS)
    for (int c = threadIdx.x % LANES; c < q_size; c += LANES) {
      const int h = p.h - t.ahead + r, w = p.w - t.ahead + c;
      COMPUTE mean[ROWS];
      Sums sums[ROWS];
#pragma unroll
      for (int i = 0; i < ROWS; i++) mean[i] = a.means && r + i < q_size ? means[(r + i) * q_size + c] : COMPUTE(0);
      sum_windows<N>(t, x + r * x_size + c, x_size, h - t.behind, w - t.behind, mean, sums);
#pragma unroll
      for (int i = 0; i < ROWS; i++) {
        if (r + i >= q_size) continue;
        COMPUTE term = 0;
        if (inside(t, h + i, w)) {
          const int offset = p.plane + (h + i) * t.row + w;
          const COMPUTE s = a.power.base(sums[i].squares), scaled = load<COMPUTE>(a.dy[offset]) * a.power(s);
          term = scaled * x[(r + i + t.behind) * x_size + c + t.behind] * Power::inverse(s);
          const int row = r + i - t.ahead, column = c - t.ahead;
          if (static_cast<unsigned>(row) < TILE && static_cast<unsigned>(column) < TILE) {
            direct[row * TILE + column] = scaled;
            if (a.means_out)
              a.means_out[offset] =
                  blend(a.alpha, a.gradient * term * sums[i].differences, a.beta, a.means_out + offset);
          }
        }
        q[(r + i) * q_size + c] = term;
        if (!a.means) means[(r + i) * q_size + c] = 0;
      }
    }
  __syncthreads();
  const int row = threadIdx.x / LANES * ROWS, column = threadIdx.x % LANES, n = N ? N : t.window;
  COMPUTE center[ROWS], gathered[ROWS];
#pragma unroll
  for (int i = 0; i < ROWS; i++)
    center[i] = x[(row + i + t.window - 1) * x_size + column + t.window - 1], gathered[i] = 0;
#pragma unroll
  for (int r = 0; r < (N ? N + ROWS - 1 : t.window + ROWS - 1); r++)
#pragma unroll
    for (int c = 0; c < n; c++) {
      const int index = (row + r) * q_size + column + c;
      const COMPUTE term = q[index], mean = means[index];
#pragma unroll
      for (int i = 0; i < ROWS; i++)
        if (r >= i && r < i + n) gathered[i] += term * (center[i] - mean);
    }
#pragma unroll
  for (int i = 0; i < ROWS; i++) {
    const int h = p.h + row + i, w = p.w + column;
    if (!inside(t, h, w)) continue;
    ELEMENT* to = a.out + (p.plane + h * t.row + w);
    *to = blend(a.alpha, direct[(row + i) * TILE + column] - a.gradient * gathered[i], a.beta, to);
  }
}

extern "C" __global__ void __launch_bounds__(THREADS)
    normalization_divisive_tile_forward(const TileArguments arguments) {
  griddepcontrol_wait_deferred();
  if (arguments.tile.window == 3) forward<3>(arguments);
  else if (arguments.tile.window == 5) forward<5>(arguments);
  else forward<0>(arguments);
}

extern "C" __global__ void __launch_bounds__(THREADS)
    normalization_divisive_tile_backward(const TileArguments arguments) {
  griddepcontrol_wait_deferred();
  if (arguments.tile.window == 3) backward<3>(arguments);
  else if (arguments.tile.window == 5) backward<5>(arguments);
  else backward<0>(arguments);
}
