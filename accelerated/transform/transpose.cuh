// Turns: moves between tensors that are contiguous along different dimensions and share every position, so that nothing
// has to be checked (the host side is accelerated/turn.py; the layouts match). Dimension `across` is contiguous in the
// source, `along` in the destination.
//
// Floor: bytes, one element read and one written. Where packs of 16 bytes exist on both sides a thread turns a square of
// them in its registers: 16 bytes in flight for each of its rows, 4 or 8, and no shared memory; a warp reads pieces of
// 128 bytes and writes pieces of 64, or, where all stays in the cache, the other way round, which is faster there. Halves of which only packs of
// 8 bytes exist (planes of 14 by 14) move in squares of those: 1.1 us instead of 1.9 in a stream, 28 instead of 45 of 103 MB. Elsewhere tiles
// go through shared memory: pack by pack where a narrow dimension makes both sides runs of packs, else element by element,
// neighbouring threads along a row of the tile on either side, so that the next element of a thread is a fixed step away: some 12
// instructions each.
#pragma once
#include "transform/problem.cuh"

constexpr int TURN_DIMENSIONS = 8;  // beside the two
constexpr unsigned TURN_THREADS = 256;

constexpr int TURN_BLOCKS = sizeof(ELEMENT) == 4 ? 8 : 4;           // of squares on a multiprocessor: medium tensors fill it once

struct Turn {
  unsigned across, along;
  int source_along, destination_across;  // steps in elements; the others are 1
  int source_base, destination_base;
  FastDivmod tiles_across, tiles_along;
  unsigned tile_across, tile_along;  // packs: logarithms, in squares; else elements
  unsigned log_across, log_along;    // logarithms of threads side by side: across in a warp's squares; in both directions of a tile of elements
  FastDivmod in_across, in_along;       // by the extents of the tile
  int joined_in, joined_out;         // of a tile of elements: whether it is one run there, row after row
  unsigned pitch;                    // from row to row in shared memory
  int rank;
  Dimension dimension[TURN_DIMENSIONS];

  // The tile of this block: where it starts in both dimensions, offsets of the position of the others.
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

// Rows of a square of elements of 2 or 4 bytes, as words, turned into its columns.
template <int SIDE, int WORDS> __device__ __forceinline__ void turn_square(const Pack<unsigned, WORDS> (&rows)[SIDE], Pack<unsigned, WORDS> (&columns)[SIDE]) {
#pragma unroll
  for (int c = 0; c < SIDE; c++)
#pragma unroll
    for (int word = 0; word < WORDS; word++) {
      if constexpr (SIDE == WORDS) columns[c].item[word] = rows[word].item[c];
      else columns[c].item[word] = __byte_perm(rows[2 * word].item[c / 2], rows[2 * word + 1].item[c / 2], c % 2 ? 0x7632 : 0x5410);
    }
}

// A square a thread, of packs of so many words. The low bits of its number go across, the others of a warp along, the higher ones as the
// host chose.
template <int WORDS, class T, class Write> __device__ __forceinline__ void turn_squares(const Turn& turn, const T* source, T* destination, Write write) {
  using Bits = Pack<unsigned, WORDS>;
  constexpr unsigned SIDE = sizeof(Bits) / sizeof(T);
  unsigned tile_x, tile_y;
  int from, to;
  turn.locate(tile_x, tile_y, from, to);
  const unsigned thread = threadIdx.x, high = thread >> 5, low = turn.log_across, more = turn.tile_across - low;
  const unsigned x = (thread & ((1u << low) - 1)) | (high & ((1u << more) - 1)) << low, y = (thread & 31) >> low | high >> more << (5 - low);
  const unsigned a = ((tile_x << turn.tile_across) + x) * SIDE, b = ((tile_y << turn.tile_along) + y) * SIDE;
  if (a >= turn.across || b >= turn.along) return;
  const unsigned across = min(SIDE, turn.across - a), along = min(SIDE, turn.along - b);
  from += a + b * turn.source_along;
  to += b + a * turn.destination_across;
  Bits rows[SIDE] = {}, columns[SIDE];
  griddepcontrol_wait_before_access(source + from, destination + to);
  if (across == SIDE && along == SIDE && reinterpret_cast<uintptr_t>(source) % sizeof(Bits) == 0) {
#pragma unroll
    for (unsigned i = 0; i < SIDE; i++) rows[i] = *reinterpret_cast<const Bits*>(source + from + static_cast<int>(i) * turn.source_along);
  } else {
#pragma unroll
    for (unsigned i = 0; i < SIDE; i++)
      if (i < along) rows[i] = gather_words<WORDS>(source + from + static_cast<int>(i) * turn.source_along, 1, (1u << across) - 1);
  }
  griddepcontrol_launch_dependents();
  turn_square(rows, columns);
#pragma unroll
  for (unsigned i = 0; i < SIDE; i++) {
    Pack<T, SIDE> values;
    *reinterpret_cast<Bits*>(&values) = columns[i];
    if (i < across) write(destination + to + static_cast<int>(i) * turn.destination_across, 1, (1u << along) - 1, values);
  }
}

// Packs of 16 bytes, or of 8 (WORDS is 2), which halves have.
template <int WORDS = 4, class S, class D, class Write>
__device__ __forceinline__ void turn_packs(const Turn& turn, const S* source, D* destination, Write write) {
  if constexpr (same_type<S, D> && (sizeof(S) == 2 || (sizeof(S) == 4 && WORDS == 4))) turn_squares<WORDS>(turn, source, destination, write);
}

// A tile of a block: where it is, its extents.
template <class S, class D> struct Tile {
  const S* source;
  D* destination;
  unsigned across, along, pitch;  // of what exists, of a row in shared memory

  __device__ __forceinline__ Tile(const Turn& turn, const S* source_start, D* destination_start) {
    unsigned tile_x, tile_y;
    int from, to;
    turn.locate(tile_x, tile_y, from, to);
    const unsigned first_a = tile_x * turn.tile_across, first_b = tile_y * turn.tile_along;
    across = min(turn.tile_across, turn.across - first_a), along = min(turn.tile_along, turn.along - first_b);
    pitch = turn.pitch;
    source = source_start + (from + static_cast<int>(first_a) + static_cast<int>(first_b) * turn.source_along);
    destination = destination_start + (to + static_cast<int>(first_b) + static_cast<int>(first_a) * turn.destination_across);
  }
};

// Copies a tile pack by pack. They may reach over the end of a row of the tile where the next one follows it in memory.
template <class S, class D> __device__ __forceinline__ void copy_packs(const Turn& turn, const Tile<S, D>& at, S* tile) {
  constexpr unsigned IN = 16 / sizeof(S), BATCH = 2;  // reads of a thread that are in flight together
  const unsigned ends_in = at.along * turn.tile_across;
  for (unsigned first = threadIdx.x * IN; first < ends_in; first += BATCH * TURN_THREADS * IN) {
    Pack<S, IN> loaded[BATCH];
    unsigned place[BATCH], left[BATCH];  // to the end of the row
#pragma unroll
    for (unsigned k = 0; k < BATCH; k++) {
      const unsigned element = first + k * TURN_THREADS * IN;
      unsigned a, b = turn.in_across.divide(element, a);
      const bool exists = element < ends_in && a < at.across;
      place[k] = exists ? b * at.pitch + a : ~0u;
      left[k] = turn.tile_across - a;
      if (exists) loaded[k] = *reinterpret_cast<const Pack<S, IN>*>(at.source + (static_cast<int>(a) + static_cast<int>(b) * turn.source_along));
    }
#pragma unroll
    for (unsigned k = 0; k < BATCH; k++)
      if (place[k] != ~0u) {
#pragma unroll
        for (unsigned i = 0; i < IN; i++) {
          tile[place[k]++] = loaded[k].item[i];
          if (--left[k] == 0) place[k] += at.pitch - turn.tile_across, left[k] = turn.tile_across;
        }
      }
  }
}

// Writes a tile pack by pack.
template <class S, class D, class Write> __device__ __forceinline__ void write_packs(const Turn& turn, const Tile<S, D>& at, const S* tile, Write write) {
  constexpr unsigned OUT = 16 / sizeof(D);
  const unsigned ends_out = at.across * turn.tile_along;
  for (unsigned element = threadIdx.x * OUT; element < ends_out; element += TURN_THREADS * OUT) {
    unsigned b, a = turn.in_along.divide(element, b);
    if (b >= at.along) continue;
    D* target = at.destination + (static_cast<int>(b) + static_cast<int>(a) * turn.destination_across);
    unsigned place = b * at.pitch + a;
    Pack<S, OUT> values;
#pragma unroll
    for (unsigned i = 0; i < OUT; i++) {
      values.item[i] = tile[place];
      place += at.pitch;
      if (++b == turn.tile_along) b = 0, place += 1 - turn.tile_along * at.pitch;
    }
    write(target, 1, (1u << OUT) - 1, values);
  }
}

// Copies a tile that is one run of memory: whole packs, and the elements before and behind them. Returns where it begins in shared
// memory.
template <class S, class D> __device__ __forceinline__ unsigned copy_run(const Tile<S, D>& at, S* tile) {
  constexpr unsigned IN = 16 / sizeof(S), BATCH = 4;
  const unsigned shift = reinterpret_cast<uintptr_t>(at.source) / sizeof(S) % IN, end = shift + at.across * at.along, whole = end / IN;
  const S* start = at.source - shift;
  const unsigned head = threadIdx.x, tail = whole * IN + threadIdx.x;
  const bool in_head = shift <= head && head < min(IN, end), in_tail = shift <= tail && tail < end;
  S at_head, at_tail;
  if (in_head) at_head = start[head];
  if (in_tail) at_tail = start[tail];
  for (unsigned first = threadIdx.x + (shift != 0); first < whole; first += BATCH * TURN_THREADS) {
    Pack<S, IN> loaded[BATCH];
#pragma unroll
    for (unsigned k = 0; k < BATCH; k++)
      if (first + k * TURN_THREADS < whole) loaded[k] = reinterpret_cast<const Pack<S, IN>*>(start)[first + k * TURN_THREADS];
#pragma unroll
    for (unsigned k = 0; k < BATCH; k++)
      if (first + k * TURN_THREADS < whole) reinterpret_cast<Pack<S, IN>*>(tile)[first + k * TURN_THREADS] = loaded[k];
  }
  if (in_head && shift) tile[head] = at_head;  // else a pack has it
  if (in_tail) tile[tail] = at_tail;
  return shift;
}

// Copies a tile row by row.
template <class S, class D> __device__ __forceinline__ void copy_rows(const Turn& turn, const Tile<S, D>& at, S* tile) {
  constexpr unsigned BATCH = 8;  // reads of a thread that are in flight together
  const unsigned lanes = 1u << turn.log_across, groups = TURN_THREADS >> turn.log_across, group = threadIdx.x >> turn.log_across;
  const int step = static_cast<int>(groups) * turn.source_along;
  for (unsigned a = threadIdx.x & (lanes - 1); a < at.across; a += lanes) {
    const S* from = at.source + (static_cast<int>(a) + static_cast<int>(group) * turn.source_along);
    S* place = tile + (group * at.pitch + a);
    for (unsigned b = group; b < at.along; b += BATCH * groups, place += BATCH * groups * at.pitch) {
      S loaded[BATCH];
#pragma unroll
      for (unsigned k = 0; k < BATCH; k++, from += step)
        if (b + k * groups < at.along) loaded[k] = *from;
#pragma unroll
      for (unsigned k = 0; k < BATCH; k++)
        if (b + k * groups < at.along) place[k * groups * at.pitch] = loaded[k];
    }
  }
}

// Writes a tile that is one run of memory.
template <class S, class D, class Write> __device__ __forceinline__ void write_run(const Turn& turn, const Tile<S, D>& at, const S* tile, Write write) {
  const unsigned length = at.across * at.along, height = turn.tile_along;
  unsigned b, a = turn.in_along.divide(threadIdx.x, b), step_b, step_a = turn.in_along.divide(TURN_THREADS, step_b);
#pragma unroll 4
  for (unsigned element = threadIdx.x; element < length; element += TURN_THREADS) {
    write(at.destination + element, 1, 1, Pack<S, 1>{tile[b * at.pitch + a]});
    a += step_a, b += step_b;
    if (b >= height) b -= height, a++;
  }
}

// Writes a tile row by row.
template <class S, class D, class Write> __device__ __forceinline__ void write_rows(const Turn& turn, const Tile<S, D>& at, const S* tile, Write write) {
  const unsigned lanes = 1u << turn.log_along, groups = TURN_THREADS >> turn.log_along, group = threadIdx.x >> turn.log_along;
  const int step = static_cast<int>(groups) * turn.destination_across;
  for (unsigned b = threadIdx.x & (lanes - 1); b < at.along; b += lanes) {
    D* target = at.destination + (static_cast<int>(b) + static_cast<int>(group) * turn.destination_across);
    const S* place = tile + b * at.pitch;
#pragma unroll 4
    for (unsigned a = group; a < at.across; a += groups, target += step) write(target, 1, 1, Pack<S, 1>{place[a]});
  }
}

// Tiles whose sides are both runs of packs; element by element where the address is not aligned.
template <class S, class D, class Write> __device__ __forceinline__ void turn_runs(const Turn& turn, const S* source, D* destination, Write write) {
  const Tile<S, D> at(turn, source, destination);
  S* tile = reinterpret_cast<S*>(shared_memory);
  griddepcontrol_wait_before_access(at.source, at.destination);
  if (reinterpret_cast<uintptr_t>(source) % 16 == 0) {
    copy_packs(turn, at, tile);
    griddepcontrol_launch_dependents();
    __syncthreads();
    write_packs(turn, at, tile, write);
  } else {
    copy_rows(turn, at, tile);
    __syncthreads();
    write_rows(turn, at, tile, write);
  }
}

// Tiles of which a side or both are one run of memory: what is copied as it lies moves in packs.
template <class S, class D, class Write> __device__ __forceinline__ void turn_joined(const Turn& turn, const S* source, D* destination, Write write) {
  const Tile<S, D> at(turn, source, destination);
  S* tile = reinterpret_cast<S*>(shared_memory);
  griddepcontrol_wait_before_access(at.source, at.destination);
  if (turn.joined_in) tile += copy_run(at, tile);
  else copy_rows(turn, at, tile);
  griddepcontrol_launch_dependents_medium_grid();
  __syncthreads();
  if (turn.joined_out) write_run(turn, at, tile, write);
  else write_rows(turn, at, tile, write);
}

// Any tiles: element by element.
template <class S, class D, class Write> __device__ __forceinline__ void turn_elements(const Turn& turn, const S* source, D* destination, Write write) {
  const Tile<S, D> at(turn, source, destination);
  S* tile = reinterpret_cast<S*>(shared_memory);
  griddepcontrol_wait_before_access(at.source, at.destination);
  copy_rows(turn, at, tile);
  griddepcontrol_launch_dependents();
  __syncthreads();
  write_rows(turn, at, tile, write);
}
