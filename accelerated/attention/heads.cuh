// The attention kernels share this header: tiles of queries and keys, their scores, and weighted sums.
#pragma once
#include "attention/vectors.cuh"

constexpr int LANES = 16;            // threads along each side of a tile
constexpr int PANEL = 16;            // elements of a vector per step
constexpr int ITEMS = TILE / LANES;  // rows and columns per thread
constexpr int THREADS = LANES * LANES;
// Each thread owns the elements (ty + LANES * i, tx + LANES * j) of a tile, for i and j below ITEMS.

// Locates the vectors of each head. They are projected vectors in a space, or the vectors of the call, which all heads
// share.
struct Vectors {
  long long offset;  // bytes
  long long lower;   // bytes to the lower parts of vectors that are split in two (split.cu)
  int vector, head;  // strides in elements between vectors and between heads
  int size;
};

__device__ __forceinline__ COMPUTE element(const void* base, const Vectors& vectors, int address, int head, int c) {
  const long long index = static_cast<long long>(address) * vectors.vector + head * vectors.head + c;
  return load<COMPUTE>(at_byte<ELEMENT>(base, vectors.offset)[index]);
}

// Holds the strides of the vectors of queries or keys between time-steps, batches and beams.
struct Strides {
  int time, batch, beam;
};

// Holds the arguments of the core: queries, keys and values, and the division of work among blocks.
struct Heads {
  Vectors q, k, v;
  Strides q_strides, k_strides;
  Schedule schedule;
  int heads, beams;      // counts for the queries
  int key_beams;         // 1, or beams
  int q_first, q_steps;  // range of the queries' time-steps that the call computes
  int k_steps;
  COMPUTE scaler;
};

struct Sequence {
  int q_base, k_base;  // addresses of the first vectors
  int q_length, k_length;
};

__device__ __forceinline__ Sequence sequence_of(const Heads& h, const void* space, int batch, int beam) {
  const int key_beam = h.key_beams > 1 ? beam : 0;
  Sequence s;
  s.q_base = batch * h.q_strides.batch + beam * h.q_strides.beam + h.q_first * h.q_strides.time;
  s.k_base = batch * h.k_strides.batch + key_beam * h.k_strides.beam;
  s.q_length = min(max(h.schedule.q_lengths(space)[batch * h.beams + beam] - h.q_first, 0), h.q_steps);
  s.k_length = h.schedule.k_lengths(space)[batch * h.key_beams + key_beam];
  return s;
}

// Holds tiles in shared memory. `low` and `high` bound the windows of the tile's queries; a window without a query is
// empty.
struct Tiles {
  COMPUTE left[TILE][PANEL + 1], right[TILE][PANEL + 1];
  COMPUTE weights[TILE][TILE + 1];
  int low[TILE], high[TILE];
};

// Reads the windows of a tile of queries. `low` and `high` become their union; high <= low means that no query has a
// key.
__device__ __forceinline__ void read_windows(const Heads& h, const void* space, const Sequence& s, int first,
                                             Tiles& tiles, int& low, int& high) {
  __syncthreads();
  if (threadIdx.x < TILE) {
    const int query = first + threadIdx.x;
    const bool exists = query < s.q_length;
    tiles.low[threadIdx.x] = exists ? h.schedule.low(space)[query] : 0;
    tiles.high[threadIdx.x] = exists ? min(h.schedule.high(space)[query], s.k_length) : 0;
  }
  __syncthreads();
  low = s.k_length, high = 0;
  for (int i = 0; i < TILE; i++)
    if (tiles.low[i] < tiles.high[i]) low = min(low, tiles.low[i]), high = max(high, tiles.high[i]);
}

__device__ __forceinline__ bool is_inside(const Tiles& tiles, int query, int key) {
  return tiles.low[query] <= key && key < tiles.high[query];
}

// Reads elements start to start + PANEL of a tile of vectors, and zeros outside of it.
__device__ __forceinline__ void read_panel(COMPUTE (&panel)[TILE][PANEL + 1], const void* base, const Vectors& vectors,
                                           int address, int step, int first, int length, int head, int start) {
#pragma unroll
  for (int i = 0; i < TILE * PANEL / THREADS; i++) {
    const int item = threadIdx.x + THREADS * i, c = item % PANEL, n = item / PANEL;
    const bool exists = first + n < length && start + c < vectors.size;
    panel[n][c] = exists ? element(base, vectors, address + (first + n) * step, head, start + c) : COMPUTE(0);
  }
}

// products[i][j] belongs to vector ty + LANES * i of the left and vector tx + LANES * j of the right.
struct Side {
  const void* base;
  const Vectors& vectors;
  int address, step, first, length;
};
__device__ __forceinline__ void multiply_vectors(COMPUTE (&products)[ITEMS][ITEMS], Tiles& tiles, const Side& left,
                                                 const Side& right, int head) {
  const int ty = threadIdx.x / LANES, tx = threadIdx.x % LANES;
#pragma unroll
  for (int i = 0; i < ITEMS; i++)
#pragma unroll
    for (int j = 0; j < ITEMS; j++) products[i][j] = 0;
  for (int start = 0; start < left.vectors.size; start += PANEL) {
    __syncthreads();
    read_panel(tiles.left, left.base, left.vectors, left.address, left.step, left.first, left.length, head, start);
    read_panel(tiles.right, right.base, right.vectors, right.address, right.step, right.first, right.length, head,
               start);
    __syncthreads();
#pragma unroll
    for (int c = 0; c < PANEL; c++) {
      COMPUTE x[ITEMS], y[ITEMS];
#pragma unroll
      for (int i = 0; i < ITEMS; i++) x[i] = tiles.left[ty + LANES * i][c], y[i] = tiles.right[tx + LANES * i][c];
#pragma unroll
      for (int i = 0; i < ITEMS; i++)
#pragma unroll
        for (int j = 0; j < ITEMS; j++) products[i][j] += x[i] * y[j];
    }
  }
}

// Adds weights * vectors of the right to the sums; sums[i][j] belongs to element column + tx + LANES * j. The tile's
// weights have the order (row, vector), or with BY_KEY (vector, row), where rows are keys. Weights outside the windows
// are skipped, so that NaN does not spread.
template <bool BY_KEY>
__device__ __forceinline__ void add_weighed(COMPUTE (&sums)[ITEMS][ITEMS], Tiles& tiles, const Side& right, int head,
                                            int column, int first_key) {
  const int ty = threadIdx.x / LANES, tx = threadIdx.x % LANES;
  COMPUTE(&chunk)[PANEL][TILE + 1] = *reinterpret_cast<COMPUTE(*)[PANEL][TILE + 1]>(&tiles.left);
  for (int start = 0; start < TILE; start += PANEL) {
    __syncthreads();
#pragma unroll
    for (int i = 0; i < TILE * PANEL / THREADS; i++) {
      const int item = threadIdx.x + THREADS * i, c = item % TILE, n = item / TILE;
      const int vector = right.first + start + n;
      const bool exists = vector < right.length && column + c < right.vectors.size;
      chunk[n][c] = exists ? element(right.base, right.vectors, right.address + vector * right.step, head, column + c)
                           : COMPUTE(0);
    }
    __syncthreads();
#pragma unroll
    for (int n = 0; n < PANEL; n++) {
      COMPUTE x[ITEMS], y[ITEMS];
      bool counts[ITEMS];
#pragma unroll
      for (int i = 0; i < ITEMS; i++) {
        const int row = ty + LANES * i, vector = start + n;
        x[i] = BY_KEY ? tiles.weights[vector][row] : tiles.weights[row][vector];
        counts[i] = BY_KEY ? is_inside(tiles, vector, first_key + row) : is_inside(tiles, row, first_key + vector);
        y[i] = chunk[n][tx + LANES * i];
      }
#pragma unroll
      for (int i = 0; i < ITEMS; i++)
#pragma unroll
        for (int j = 0; j < ITEMS; j++)
          if (counts[i]) sums[i][j] += x[i] * y[j];
    }
  }
}
