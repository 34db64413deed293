// This file computes transforms that transpose (3.2.99 to 3.2.101). No position needs a check. The source is contiguous
// along `across`, the destination along `along`.
//
// Where both sides have vectors of 16 bytes, a thread transposes a square of them in its registers. It has 16 bytes in
// flight for each of its 4 or 8 rows and needs no shared memory. A warp reads 128 and writes 64 contiguous bytes. If
// all data stay in L2, it reads 64 and writes 128, which is faster there. 16-bit types with vectors of only 8 bytes
// (planes of 14 by 14) use squares of 8-byte vectors.
//
// Other tiles go through shared memory. They move in vectors where a narrow dimension makes both sides contiguous runs
// of vectors. Else they move by element, with neighbouring threads along a row on either side, in about 12 instructions
// per access.
//
// The roofline bound is bytes: one element read and one written, with at most one multiply-add. An H200 moves 411 MB of
// float in 102.0 us (95 % of the copy), and in 128.2 us with gaps.
#include "transform/problem.cuh"

constexpr int SHARED_VECTORS_BLOCKS = sizeof(SOURCE) > 1 ? 8 : 4;  // blocks per SM that the registers must allow
constexpr int ELEMENT_BLOCKS = 8;                                  // blocks per SM that the registers must allow
constexpr int TRANSPOSED_DIMENSIONS = 8;                           // dimensions that are not transposed
constexpr unsigned THREADS = 256;

constexpr int SQUARE_BLOCKS = sizeof(ELEMENT) == 4 ? 8 : 4;  // blocks per SM; medium tensors fill the device once

struct Transpose {
  unsigned across, along;
  int source_along, destination_across;  // strides in elements; the other two are 1
  int source_base, destination_base;
  FastDivmod tiles_across, tiles_along;
  unsigned tile_across, tile_along;  // log2 for squares, else elements
  unsigned log_across,
      log_along;  // log2 of neighbouring threads: log_across in a warp's squares, both in a tile of elements
  FastDivmod in_across, in_along;     // divisors by the extents of the tile
  int contiguous_in, contiguous_out;  // whether the tile's rows are contiguous on that side
  unsigned pitch;                     // pitch of rows in shared memory, in elements
  int rank;
  Dimension dimension[TRANSPOSED_DIMENSIONS];

  // Finds the tile of this block: its indices in both dimensions, and the offsets of the other dimensions.
  __device__ __forceinline__ void locate(unsigned& tile_x, unsigned& tile_y, int& from, int& to) const {
    unsigned rest = tiles_along.divide(tiles_across.divide(blockIdx.x, tile_x), tile_y);
    from = source_base, to = destination_base;
    for (int d = 0; d < rank; d++) {
      unsigned position;
      rest = dimension[d].extent.divide(rest, position);
      from += position * dimension[d].source;
      to += position * dimension[d].destination;
    }
  }
};

// Transposes a square of elements of 2 or 4 bytes in words.
template <int SIDE, int WORDS>
__device__ __forceinline__ void transpose_square(const Vector<unsigned, WORDS> (&rows)[SIDE],
                                                 Vector<unsigned, WORDS> (&columns)[SIDE]) {
#pragma unroll
  for (int c = 0; c < SIDE; c++)
#pragma unroll
    for (int word = 0; word < WORDS; word++) {
      if constexpr (SIDE == WORDS) columns[c].item[word] = rows[word].item[c];
      else
        columns[c].item[word] =
            __byte_perm(rows[2 * word].item[c / 2], rows[2 * word + 1].item[c / 2], c % 2 ? 0x7632 : 0x5410);
    }
}

// Each thread transposes a square of vectors of WORDS words. The low bits of the thread index count across, and the
// lane's other bits count along. The host assigns the higher bits.
template <int WORDS, class T, class Write>
__device__ __forceinline__ void transpose_squares(const Transpose& transpose, const T* source, T* destination,
                                                  Write write) {
  using Bits = Vector<unsigned, WORDS>;
  constexpr unsigned SIDE = sizeof(Bits) / sizeof(T);
  unsigned tile_x, tile_y;
  int from, to;
  transpose.locate(tile_x, tile_y, from, to);
  const unsigned thread = threadIdx.x, high = thread >> 5, low = transpose.log_across,
                 more = transpose.tile_across - low;
  const unsigned x = (thread & ((1u << low) - 1)) | (high & ((1u << more) - 1)) << low,
                 y = (thread & 31) >> low | high >> more << (5 - low);
  const unsigned a = ((tile_x << transpose.tile_across) + x) * SIDE, b = ((tile_y << transpose.tile_along) + y) * SIDE;
  if (a >= transpose.across || b >= transpose.along) return;
  const unsigned across = min(SIDE, transpose.across - a), along = min(SIDE, transpose.along - b);
  from += a + b * transpose.source_along;
  to += b + a * transpose.destination_across;
  Bits rows[SIDE] = {}, columns[SIDE];
  griddepcontrol_wait_before_access(source + from, destination + to);
  if (across == SIDE && reinterpret_cast<uintptr_t>(source) % sizeof(Bits) == 0) {
#pragma unroll
    for (unsigned i = 0; i < SIDE; i++)
      if (i < along)
        rows[i] = *reinterpret_cast<const Bits*>(source + from + static_cast<int>(i) * transpose.source_along);
  } else {
#pragma unroll
    for (unsigned i = 0; i < SIDE; i++)
      if (i < along)
        rows[i] = gather_words<WORDS>(source + from + static_cast<int>(i) * transpose.source_along, across);
  }
  griddepcontrol_launch_dependents();
  transpose_square(rows, columns);
#pragma unroll
  for (unsigned i = 0; i < SIDE; i++) {
    Vector<T, SIDE> values;
    *reinterpret_cast<Bits*>(&values) = columns[i];
    if (i < across)
      write(destination + to + static_cast<int>(i) * transpose.destination_across, 0, 1, (1u << along) - 1, values);
  }
}

// Vectors have 16 bytes, or 8 (WORDS is 2) for 16-bit types.
template <int WORDS = 4, class S, class D, class Write>
__device__ __forceinline__ void transpose_vectors(const Transpose& transpose, const S* source, D* destination,
                                                  Write write) {
  if constexpr (same_type<S, D> && (sizeof(S) == 2 || (sizeof(S) == 4 && WORDS == 4)))
    transpose_squares<WORDS>(transpose, source, destination, write);
}

// This holds the addresses and extents of a block's tile.
template <class S, class D> struct Tile {
  const S* source;
  D* destination;
  unsigned across, along, pitch;  // across, along: existing elements; pitch: row pitch in shared memory

  __device__ __forceinline__ Tile(const Transpose& transpose, const S* source_start, D* destination_start) {
    unsigned tile_x, tile_y;
    int from, to;
    transpose.locate(tile_x, tile_y, from, to);
    const unsigned first_a = tile_x * transpose.tile_across, first_b = tile_y * transpose.tile_along;
    across = min(transpose.tile_across, transpose.across - first_a),
    along = min(transpose.tile_along, transpose.along - first_b);
    pitch = transpose.pitch;
    source = source_start + (from + static_cast<int>(first_a) + static_cast<int>(first_b) * transpose.source_along);
    destination =
        destination_start + (to + static_cast<int>(first_b) + static_cast<int>(first_a) * transpose.destination_across);
  }
};

// Loads a tile in vectors. A vector may cross the end of a row of the tile where the next row follows it in memory.
template <class S, class D>
__device__ __forceinline__ void load_vectors(const Transpose& transpose, const Tile<S, D>& at, S* tile) {
  constexpr unsigned IN = 16 / sizeof(S), BATCH = 2;  // reads of a thread that are in flight together
  const unsigned ends_in = at.along * transpose.tile_across;
  for (unsigned first = threadIdx.x * IN; first < ends_in; first += BATCH * THREADS * IN) {
    Vector<S, IN> loaded[BATCH];
    unsigned index[BATCH], left[BATCH];  // left: elements to the end of the row
#pragma unroll
    for (unsigned k = 0; k < BATCH; k++) {
      const unsigned element = first + k * THREADS * IN;
      unsigned a, b = transpose.in_across.divide(element, a);
      const bool exists = element < ends_in && a < at.across;
      index[k] = exists ? b * at.pitch + a : ~0u;
      left[k] = transpose.tile_across - a;
      if (exists)
        loaded[k] = *reinterpret_cast<const Vector<S, IN>*>(
            at.source + (static_cast<int>(a) + static_cast<int>(b) * transpose.source_along));
    }
#pragma unroll
    for (unsigned k = 0; k < BATCH; k++)
      if (index[k] != ~0u) {
#pragma unroll
        for (unsigned i = 0; i < IN; i++) {
          tile[index[k]++] = loaded[k].item[i];
          if (--left[k] == 0) index[k] += at.pitch - transpose.tile_across, left[k] = transpose.tile_across;
        }
      }
  }
}

// Stores a tile in vectors.
template <class S, class D, class Write>
__device__ __forceinline__ void store_vectors(const Transpose& transpose, const Tile<S, D>& at, const S* tile,
                                              Write write) {
  constexpr unsigned OUT = 16 / sizeof(D);
  const unsigned ends_out = at.across * transpose.tile_along;
  for (unsigned element = threadIdx.x * OUT; element < ends_out; element += THREADS * OUT) {
    unsigned b, a = transpose.in_along.divide(element, b);
    if (b >= at.along) continue;
    D* target = at.destination + (static_cast<int>(b) + static_cast<int>(a) * transpose.destination_across);
    unsigned index = b * at.pitch + a;
    Vector<S, OUT> values;
#pragma unroll
    for (unsigned i = 0; i < OUT; i++) {
      values.item[i] = tile[index];
      index += at.pitch;
      if (++b == transpose.tile_along) b = 0, index += 1 - transpose.tile_along * at.pitch;
    }
    write(target, 0, 1, (1u << OUT) - 1, values);
  }
}

// Loads a tile that is contiguous in memory, without touching its neighbours. It loads full vectors, and single
// elements before and after them. Returns the index in shared memory at which the tile begins.
template <class S, class D> __device__ __forceinline__ unsigned load_contiguous(const Tile<S, D>& at, S* tile) {
  constexpr unsigned IN = 16 / sizeof(S), BATCH = 4;
  const unsigned shift = reinterpret_cast<uintptr_t>(at.source) / sizeof(S) % IN, end = shift + at.across * at.along,
                 full = end / IN;
  const S* start = at.source - shift;
  const unsigned head = threadIdx.x, tail = full * IN + threadIdx.x;
  const bool in_head = shift <= head && head < IN, in_tail = tail < end;  // A tile has more elements than a vector.
  S at_head, at_tail;
  if (in_head) at_head = start[head];
  if (in_tail) at_tail = start[tail];
  for (unsigned first = threadIdx.x + (shift != 0); first < full; first += BATCH * THREADS) {
    Vector<S, IN> loaded[BATCH];
#pragma unroll
    for (unsigned k = 0; k < BATCH; k++)
      if (first + k * THREADS < full) loaded[k] = reinterpret_cast<const Vector<S, IN>*>(start)[first + k * THREADS];
#pragma unroll
    for (unsigned k = 0; k < BATCH; k++)
      if (first + k * THREADS < full) reinterpret_cast<Vector<S, IN>*>(tile)[first + k * THREADS] = loaded[k];
  }
  if (in_head && shift) tile[head] = at_head;  // Else a vector holds it.
  if (in_tail) tile[tail] = at_tail;
  return shift;
}

// Loads a tile row by row.
template <class S, class D>
__device__ __forceinline__ void load_rows(const Transpose& transpose, const Tile<S, D>& at, S* tile) {
  constexpr unsigned BATCH = 8;  // reads of a thread that are in flight together
  const unsigned row_threads = 1u << transpose.log_across, groups = THREADS >> transpose.log_across,
                 group = threadIdx.x >> transpose.log_across;
  const int step = static_cast<int>(groups) * transpose.source_along;
  for (unsigned a = threadIdx.x & (row_threads - 1); a < at.across; a += row_threads) {
    const S* from = at.source + (static_cast<int>(a) + static_cast<int>(group) * transpose.source_along);
    S* index = tile + (group * at.pitch + a);
    for (unsigned b = group; b < at.along; b += BATCH * groups, index += BATCH * groups * at.pitch) {
      S loaded[BATCH];
#pragma unroll
      for (unsigned k = 0; k < BATCH; k++, from += step)
        if (b + k * groups < at.along) loaded[k] = *from;
#pragma unroll
      for (unsigned k = 0; k < BATCH; k++)
        if (b + k * groups < at.along) index[k * groups * at.pitch] = loaded[k];
    }
  }
}

// Stores a tile that is contiguous in memory.
template <class S, class D, class Write>
__device__ __forceinline__ void store_contiguous(const Transpose& transpose, const Tile<S, D>& at, const S* tile,
                                                 Write write) {
  const unsigned length = at.across * at.along, height = transpose.tile_along;
  unsigned b, a = transpose.in_along.divide(threadIdx.x, b), step_b,
              step_a = transpose.in_along.divide(THREADS, step_b);
#pragma unroll 4
  for (unsigned element = threadIdx.x; element < length; element += THREADS) {
    write(at.destination, element, 1, 1, Vector<S, 1>{tile[b * at.pitch + a]});
    a += step_a, b += step_b;
    if (b >= height) b -= height, a++;
  }
}

// Stores a tile row by row.
template <class S, class D, class Write>
__device__ __forceinline__ void store_rows(const Transpose& transpose, const Tile<S, D>& at, const S* tile,
                                           Write write) {
  const unsigned row_threads = 1u << transpose.log_along, groups = THREADS >> transpose.log_along,
                 group = threadIdx.x >> transpose.log_along;
  const int step = static_cast<int>(groups) * transpose.destination_across;
  for (unsigned b = threadIdx.x & (row_threads - 1); b < at.along; b += row_threads) {
    D* target = at.destination + (static_cast<int>(b) + static_cast<int>(group) * transpose.destination_across);
    const S* index = tile + b * at.pitch;
#pragma unroll 4
    for (unsigned a = group; a < at.across; a += groups, target += step) write(target, 0, 1, 1, Vector<S, 1>{index[a]});
  }
}

// Moves tiles that are runs of vectors on both sides. Elements move one by one where the source is not 16-byte aligned.
template <class S, class D, class Write>
__device__ __forceinline__ void transpose_shared_vectors(const Transpose& transpose, const S* source, D* destination,
                                                         Write write) {
  const Tile<S, D> at(transpose, source, destination);
  S* tile = reinterpret_cast<S*>(shared_memory);
  griddepcontrol_wait_before_access(at.source, at.destination);
  if (reinterpret_cast<uintptr_t>(source) % 16 == 0) {
    load_vectors(transpose, at, tile);
    griddepcontrol_launch_dependents();
    __syncthreads();
    store_vectors(transpose, at, tile, write);
  } else {
    load_rows(transpose, at, tile);
    __syncthreads();
    store_rows(transpose, at, tile, write);
  }
}

// Moves tiles that are contiguous in memory on one side or both. Accesses in memory order use vectors.
template <class S, class D, class Write>
__device__ __forceinline__ void transpose_contiguous(const Transpose& transpose, const S* source, D* destination,
                                                     Write write) {
  const Tile<S, D> at(transpose, source, destination);
  S* tile = reinterpret_cast<S*>(shared_memory);
  griddepcontrol_wait_before_access(at.source, at.destination);
  if (transpose.contiguous_in) tile += load_contiguous(at, tile);
  else load_rows(transpose, at, tile);
  griddepcontrol_launch_dependents_medium_grid();
  __syncthreads();
  if (transpose.contiguous_out) store_contiguous(transpose, at, tile, write);
  else store_rows(transpose, at, tile, write);
}

// Moves generic tiles element by element.
template <class S, class D, class Write>
__device__ __forceinline__ void transpose_elements(const Transpose& transpose, const S* source, D* destination,
                                                   Write write) {
  const Tile<S, D> at(transpose, source, destination);
  S* tile = reinterpret_cast<S*>(shared_memory);
  griddepcontrol_wait_before_access(at.source, at.destination);
  load_rows(transpose, at, tile);
  griddepcontrol_launch_dependents();
  __syncthreads();
  store_rows(transpose, at, tile, write);
}

struct TransposeArguments {
  const SOURCE* source;
  ELEMENT* destination;
  COMPUTE alpha, beta;
  int move;
  Transpose transpose;
};

extern "C" __global__ void __launch_bounds__(THREADS, SQUARE_BLOCKS)
    transform_transpose_vectors(const TransposeArguments a) {
  griddepcontrol_wait_deferred();
  if constexpr (same_type<SOURCE, ELEMENT>) transpose_vectors(a.transpose, a.source, a.destination, Move{});
}

// Blending needs more registers than a move.
extern "C" __global__ void __launch_bounds__(THREADS) transform_transpose_vectors_blend(const TransposeArguments a) {
  griddepcontrol_wait_deferred();
  transpose_vectors(a.transpose, a.source, a.destination, Blend{a.alpha, a.beta});
}

// This kernel moves 16-bit types in vectors of 8 bytes.
extern "C" __global__ void __launch_bounds__(THREADS) transform_transpose_short_vectors(const TransposeArguments a) {
  griddepcontrol_wait_deferred();
  if constexpr (same_type<SOURCE, ELEMENT>) transpose_vectors<2>(a.transpose, a.source, a.destination, Move{});
}
extern "C" __global__ void __launch_bounds__(THREADS)
    transform_transpose_short_vectors_blend(const TransposeArguments a) {
  griddepcontrol_wait_deferred();
  transpose_vectors<2>(a.transpose, a.source, a.destination, Blend{a.alpha, a.beta});
}

extern "C" __global__ void __launch_bounds__(THREADS, SHARED_VECTORS_BLOCKS)
    transform_transpose_shared_vectors(const TransposeArguments a) {
  griddepcontrol_wait_deferred();
  if constexpr (same_type<SOURCE, ELEMENT>)
    if (a.move) return transpose_shared_vectors(a.transpose, a.source, a.destination, Move{});
  transpose_shared_vectors(a.transpose, a.source, a.destination, Blend{a.alpha, a.beta});
}

extern "C" __global__ void __launch_bounds__(THREADS) transform_transpose_contiguous(const TransposeArguments a) {
  griddepcontrol_wait_deferred();
  if constexpr (same_type<SOURCE, ELEMENT>)
    if (a.move) return transpose_contiguous(a.transpose, a.source, a.destination, Move{});
  transpose_contiguous(a.transpose, a.source, a.destination, Blend{a.alpha, a.beta});
}

extern "C" __global__ void __launch_bounds__(THREADS, ELEMENT_BLOCKS)
    transform_transpose_elements(const TransposeArguments a) {
  griddepcontrol_wait_deferred();
  if constexpr (same_type<SOURCE, ELEMENT>)
    if (a.move) return transpose_elements(a.transpose, a.source, a.destination, Move{});
  transpose_elements(a.transpose, a.source, a.destination, Blend{a.alpha, a.beta});
}
