// The attention kernels on tensor cores share this header. It lays out tiles of vectors in shared memory, as
// primitives/mma.cuh reads them, and describes the windows of queries.
//
// Factors of products are half or bfloat16. A float is split in two, its truncation to bfloat16 and the remainder, in
// two consecutive tiles. A float product takes three of the four products of parts; the product of both lower parts,
// below 2^-16, is left out.
//
// A tile has SIZE elements of each vector, padded with zeros, in boxes of 64. Box b of ROWS rows of 128 bytes begins at
// b * ROWS * 128. Rows are the K-major operand of a product over elements; 64 of them are the MN-major operand of a
// product over vectors.
#pragma once
#include "attention/heads.cuh"
#include "primitives/mma.cuh"

using FACTOR = std::conditional_t<same_type<ELEMENT, float>, bfloat16, ELEMENT>;
constexpr int PARTS = same_type<ELEMENT, float> ? 2 : 1;  // tiles per tile of elements
constexpr int BOX = 64;                                   // elements of a vector per box
constexpr int BOXES = SIZE / BOX;                         // boxes per vector
constexpr int ROW_BYTES = 128;                            // bytes of a vector per box
constexpr int ACCESS = 8;                                 // elements per access
constexpr int ACCESSES = ROW_BYTES / 16;                  // accesses per row
constexpr float LOG2_E = 1.4426950408889634f;

// Locates vectors of one head, consecutive in time.
struct Source {
  const FACTOR* first;
  long long stride;  // stride between vectors, in elements
  int size, count;

  __device__ __forceinline__ Source(const void* base, const Vectors& vectors, int address, int step, int head, int n)
      : first(at_byte<FACTOR>(base, vectors.offset) + static_cast<long long>(address) * vectors.vector +
              head * vectors.head),
        stride(static_cast<long long>(step) * vectors.vector),
        size(vectors.size),
        count(n) {}
};

// Visits this thread's 16-byte vectors of a tile with visit(row, box, vector of the box). The THREADS_OF_BLOCK
// threads from FIRST_THREAD on share the tile.
template <int ROWS, int THREADS_OF_BLOCK, int FIRST_THREAD = 0, class Visit>
__device__ __forceinline__ void for_each_access(Visit visit) {
  constexpr int ROWS_AT_ONCE = THREADS_OF_BLOCK / ACCESSES;
  const int thread = FIRST_THREAD > 0 ? threadIdx.x - FIRST_THREAD : threadIdx.x, access = thread % ACCESSES;
#pragma unroll 1  // The addresses of more vectors would take registers.
  for (int i = 0; i < (ROWS + ROWS_AT_ONCE - 1) / ROWS_AT_ONCE; i++) {
    const int row = thread / ACCESSES + i * ROWS_AT_ONCE;
    if (ROWS % ROWS_AT_ONCE == 0 || row < ROWS)
#pragma unroll
      for (int box = 0; box < BOXES; box++) visit(row, box, access);
  }
}

// Returns whether an element is finite. The lower part of an infinity or NaN is finite.
__device__ __forceinline__ bool is_finite(FACTOR value) {
  const float x = load<float>(value);
  return x - x == 0;
}
template <int ROWS, int THREADS_OF_BLOCK, int FIRST_THREAD = 0>
__device__ __forceinline__ bool has_infinite(const unsigned char* tile) {
  bool found = false;
  for_each_access<ROWS, THREADS_OF_BLOCK, FIRST_THREAD>([&](int row, int box, int access) {
    const auto values =
        *reinterpret_cast<const Vector<FACTOR, ACCESS>*>(swizzled(tile + box * (ROWS * ROW_BYTES), row, access));
#pragma unroll
    for (int i = 0; i < ACCESS; i++) found |= !is_finite(values.item[i]);
  });
  return found;
}
template <int ROWS, int THREADS_OF_BLOCK, int FIRST_THREAD = 0>
__device__ __forceinline__ void zero_infinite(unsigned char* tile) {
  for_each_access<ROWS, THREADS_OF_BLOCK, FIRST_THREAD>([&](int row, int box, int access) {
    auto* values = reinterpret_cast<Vector<FACTOR, ACCESS>*>(swizzled(tile + box * (ROWS * ROW_BYTES), row, access));
#pragma unroll
    for (int i = 0; i < ACCESS; i++)
      if (!is_finite(values->item[i])) values->item[i] = store<FACTOR>(0.0f);
  });
}
template <int ROWS> __device__ __forceinline__ float element_of(const unsigned char* tile, int row, int column) {
  const unsigned char* access = swizzled(tile + column / BOX * (ROWS * ROW_BYTES), row, column % BOX / ACCESS);
  return load<float>(reinterpret_cast<const FACTOR*>(access)[column % ACCESS]);
}

// Removes infinities and NaNs, which weights of zero must not multiply. They are added to the sums of the rows whose
// window contains their vector, and zeros replace them. POSITIVE means that weights are positive; otherwise NaN is
// added. is_weighed(i, vector) says whether the window of the warp's row lane / 4 + 8 * i contains the vector.
// synchronise() is a barrier of the first THREADS_OF_BLOCK threads, all of which take part.
template <int ROWS, int THREADS_OF_BLOCK, bool POSITIVE, class IsWeighed, class Synchronise>
__device__ __forceinline__ void add_infinite(float (&sums)[SIZE / 2], unsigned char* tile, IsWeighed is_weighed,
                                             Synchronise&& synchronise) {
  synchronise();
  for (int vector = 0; vector < ROWS; vector++)
#pragma unroll
    for (int i = 0; i < SIZE / 2; i++) {
      const float value = element_of<ROWS>(tile, vector, i / 4 * 8 + threadIdx.x % 4 * 2 + i % 2);
      if (value - value != 0 && is_weighed(i / 2 % 2, vector)) sums[i] += POSITIVE ? value : value - value;
    }
  synchronise();
  zero_infinite<ROWS, THREADS_OF_BLOCK>(tile);
  fence_proxy_async();
  synchronise();
}

// Does the same from memory, for vectors first to first + ROWS, whose tile has zeros there. is_weighed(i, vector) takes
// the number of the vector.
template <int ROWS, bool POSITIVE, class IsWeighed>
__device__ __forceinline__ void add_infinite(float (&sums)[SIZE / 2], const Source& source, int first,
                                             IsWeighed is_weighed) {
  const int begin = threadIdx.x % 4 * 2, rest = source.size - begin;
#pragma unroll 1
  for (int vector = first; vector < min(first + ROWS, source.count); vector++) {
    const FACTOR* const values = source.first + vector * source.stride + begin;
    const bool counts[2] = {is_weighed(0, vector), is_weighed(1, vector)};
#pragma unroll
    for (int i = 0; i < SIZE / 2; i++) {
      const int column = i / 4 * 8 + i % 2;
      if (i % 4 == 0) asm volatile("" ::: "memory");  // More loads in flight would take registers.
      if (column >= rest) continue;
      const float value = load<float>(values[column]);
      if (value - value != 0 && counts[i / 2 % 2]) sums[i] += POSITIVE ? value : value - value;
    }
  }
}

// Holds the sums of a warp's 16 rows as left factors, 16 columns each, and their lower parts.
template <int COLUMNS> struct Factors {
  unsigned parts[PARTS][COLUMNS / 16][4];

  __device__ __forceinline__ void make(const float (&sums)[COLUMNS / 2]) {
#pragma unroll
    for (int k = 0; k < COLUMNS / 16; k++)
#pragma unroll
      for (int i = 0; i < 4; i++) {
        float first = sums[8 * k + 2 * i], second = sums[8 * k + 2 * i + 1];
#pragma unroll
        for (int part = 0; part < PARTS; part++) {
          const unsigned pair = parts[part][k][i] = store_pair<FACTOR>(first, second);
          const float2 rounded = load_pair<FACTOR>(pair);
          if (part + 1 < PARTS) first -= rounded.x, second -= rounded.y;
        }
      }
  }
};

// Begins sums = rows of the block * vectors of a tile, over their elements. Each warpgroup has 64 rows. A tile may
// arrive in PIECES of its boxes; later pieces add to the sums of the first.
template <int ROWS, int OTHERS, int PIECES = 1, bool IS_FIRST = true>
__device__ __forceinline__ void multiply_vectors(float (&sums)[OTHERS / 2], const unsigned char* own,
                                                 const unsigned char* other) {
  constexpr int COUNT = BOXES / PIECES;
  const unsigned char* left =
      own + threadIdx.x / 128 * 64 * ROW_BYTES + (IS_FIRST ? 0 : (BOXES - COUNT) * ROW_BYTES * ROWS);
  wgmma_mma_async<FACTOR, OTHERS, false, false, !IS_FIRST>(sums, left, other);
#pragma unroll
  // The parts are both upper ones, then a lower and an upper one, then the reverse.
  for (int parts = 0; parts < 2 * PARTS - 1; parts++)
#pragma unroll
    for (int box = 0; box < COUNT; box++)
      if (parts + box > 0)
        wgmma_mma_async<FACTOR, OTHERS>(sums, left + (parts % 2 * SIZE * 2 + box * ROW_BYTES) * ROWS,
                                        other + (parts / 2 * COUNT + box) * ROW_BYTES * OTHERS);
  wgmma_commit();
}
// Begins sums += factors * vectors of tiles of 64. The caller adds wgmma_fence() before and wgmma_commit() after.
template <int COLUMNS>
__device__ __forceinline__ void add_weighed(float (&sums)[SIZE / 2], const Factors<COLUMNS>& factors,
                                            const unsigned char* other) {
#pragma unroll
  for (int parts = 0; parts < 2 * PARTS - 1; parts++)
#pragma unroll
    for (int step = 0; step < COLUMNS / 16; step++)
      wgmma_mma_async<FACTOR, SIZE, true>(sums, factors.parts[parts % 2][step],
                                          other + (step / 4 * PARTS + parts / 2) * (64 * SIZE * 2), step % 4);
}

// Stores a warp's sums of 16 rows. row_of(i) points to row i of the warp, or is null where it does not exist.
// Elements of 16 bits go through the warp's rows of a tile that no product still reads, so that lanes write
// neighbouring vectors.
template <int ROWS, class RowOf>
__device__ __forceinline__ void store_rows(unsigned char* tile, const float (&sums)[SIZE / 2], int size, RowOf row_of) {
  const int lane = threadIdx.x % 32;
  if constexpr (PARTS > 1) {
#pragma unroll
    for (int part = 0; part < 2; part++) {
      ELEMENT* to = row_of(lane / 4 + 8 * part);
      if (to == nullptr) continue;
#pragma unroll
      for (int n = 0; n < SIZE / 8; n++)
#pragma unroll
        for (int i = 0; i < 2; i++) {
          const int column = 8 * n + lane % 4 * 2 + i;
          if (column < size) to[column] = store<ELEMENT>(sums[4 * n + 2 * part + i]);
        }
    }
    return;
  } else {
#pragma unroll
    for (int box = 0; box < BOXES; box++) {
      Vector<FACTOR, 2> pairs[8][2];
#pragma unroll
      for (int n = 0; n < 8; n++)
#pragma unroll
        for (int part = 0; part < 2; part++) {
          const float* pair = sums + 4 * (8 * box + n) + 2 * part;
          reinterpret_cast<unsigned&>(pairs[n][part]) = store_pair<FACTOR>(pair[0], pair[1]);
        }
      store_swizzled_rows<FACTOR>(tile + box * (ROWS * ROW_BYTES), pairs);
    }
    __syncwarp();
#pragma unroll
    for (int i = 0; i < 4; i++) {
      const int row = lane / ACCESSES + 4 * i, access = lane % ACCESSES;
      ELEMENT* to = row_of(row);
      if (to == nullptr) continue;
#pragma unroll
      for (int box = 0; box < BOXES; box++) {
        const int column = box * BOX + access * ACCESS;
        const auto values =
            *reinterpret_cast<const Vector<FACTOR, ACCESS>*>(swizzled(tile + box * (ROWS * ROW_BYTES), row, access));
        if (column + ACCESS <= size && reinterpret_cast<uintptr_t>(to + column) % 16 == 0) {
          *reinterpret_cast<Vector<FACTOR, ACCESS>*>(to + column) = values;
        } else {
#pragma unroll
          for (int j = 0; j < ACCESS; j++)
            if (column + j < size) to[column + j] = values.item[j];
        }
      }
    }
  }
}

// Describes the window of a query: keys low <= k < high. It is empty for a missing query.
struct Window {
  int low, high;
  __device__ __forceinline__ bool has(int key) const { return low <= key && key < high; }
};
__device__ __forceinline__ Window window_of(const Heads& h, const void* space, const Sequence& s, int query) {
  if (query >= s.q_length) return {0, 0};
  return {max(h.schedule.low(space)[query], 0), min(h.schedule.high(space)[query], s.k_length)};
}

// Describes the windows of a tile of queries. Their union is [low, high); each existing window includes [full_low,
// full_high).
struct Span {
  int low, high, full_low, full_high;

  __device__ __forceinline__ void add(const Window& window) {
    const bool is_empty = window.low >= window.high;
    low = min(low, is_empty ? INT_MAX : window.low), high = max(high, is_empty ? 0 : window.high);
    full_low = max(full_low, is_empty ? INT_MAX : window.low), full_high = min(full_high, is_empty ? 0 : window.high);
  }
  __device__ __forceinline__ void join_lanes() {
    low = __reduce_min_sync(~0u, low), high = __reduce_max_sync(~0u, high);
    full_low = __reduce_max_sync(~0u, full_low), full_high = __reduce_min_sync(~0u, full_high);
  }
  __device__ __forceinline__ bool is_full(int first, int count) const {
    return full_low <= first && first + count <= full_high;
  }
};

// Returns whether the tile must be searched for infinities and NaNs, because weights of zero or lower parts may
// multiply them.
__device__ __forceinline__ bool seeks_infinite(bool is_full) { return PARTS > 1 || !is_full; }
