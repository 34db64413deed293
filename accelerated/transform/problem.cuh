// Walks: affine maps between the elements of two tensors (the host side is accelerated/transform.py; the layouts match).
//
// A walk has up to DIMENSIONS virtual dimensions. Every position has an element in the source and one in the
// destination; where layouts fold, crop or pad, checks say which positions lie outside the source (they read as zero)
// or outside the destination (they are skipped). Dimension 0 is the one along which a thread takes a pack.
#pragma once
#include "primitives/geometry.cuh"
#include "primitives/types.cuh"

constexpr int DIMENSIONS = 10, SOURCE_CHECKS = 7, DESTINATION_CHECKS = 4;
constexpr unsigned TILE_BYTES = 16 * 1024, TILE_THREADS = 256;

struct Dimension {
  FastDivmod extent;
  int source, destination;  // steps in elements
};

// A coordinate, linear in the positions, that has to lie in [0, limit).
struct Check {
  int base;
  unsigned limit;
  int step[DIMENSIONS];
};

struct Walk {
  int rank, source_checks, destination_checks;
  int source_base, destination_base;
  Dimension dimension[DIMENSIONS];
  Check source_check[SOURCE_CHECKS], destination_check[DESTINATION_CHECKS];

  // Splits `index` over the dimensions from `FIRST` on, the fastest first; false where it lies beyond them.
  template <int FIRST> __device__ __forceinline__ bool split(unsigned index, unsigned (&position)[DIMENSIONS]) const {
#pragma unroll
    for (int d = FIRST; d < DIMENSIONS; d++) position[d] = 0;
#pragma unroll
    for (int d = FIRST; d < DIMENSIONS; d++) {
      if (d >= rank) break;
      index = dimension[d].extent.divide(index, position[d]);
    }
    return index == 0;
  }
  // Offsets of the dimensions from `FIRST` on.
  template <int FIRST>
  __device__ __forceinline__ void offsets(const unsigned (&position)[DIMENSIONS], int& source, int& destination) const {
    source = source_base, destination = destination_base;
#pragma unroll
    for (int d = FIRST; d < DIMENSIONS; d++) {
      if (d >= rank) break;
      source += position[d] * dimension[d].source;
      destination += position[d] * dimension[d].destination;
    }
  }
};

// Bit i: the i-th of `count` positions, `spread` apart along dimension 0, passes all checks.
template <int WIDTH, int N>
__device__ __forceinline__ unsigned passing(const Check (&checks)[N], int checked, int rank, const unsigned (&position)[DIMENSIONS],
                                            unsigned count, int spread = 1) {
  unsigned mask = (1u << count) - 1;
#pragma unroll
  for (int c = 0; c < N; c++) {
    if (c >= checked) break;
    int coordinate = checks[c].base;
#pragma unroll
    for (int d = 0; d < DIMENSIONS; d++) {
      if (d >= rank) break;
      coordinate += position[d] * checks[c].step[d];
    }
#pragma unroll
    for (int i = 0; i < WIDTH; i++)
      if (static_cast<unsigned>(coordinate + i * spread * checks[c].step[0]) >= checks[c].limit) mask &= ~(1u << i);
  }
  return mask;
}

// The elements of `mask` out of WIDTH neighbours `step` apart, zeros for the others: one access where that is possible.
template <class T, int WIDTH> __device__ __forceinline__ Pack<T, WIDTH> gather(const T* pointer, int step, unsigned mask) {
  Pack<T, WIDTH> pack;
  if (mask == (1u << WIDTH) - 1 && step == 1 && reinterpret_cast<uintptr_t>(pointer) % sizeof pack == 0)
    return *reinterpret_cast<const Pack<T, WIDTH>*>(pointer);
#pragma unroll
  for (int i = 0; i < WIDTH; i++) pack.item[i] = mask >> i & 1 ? pointer[i * step] : T();
  return pack;
}

// The bits of such a pack, in as few registers as they need.
using Words = Pack<unsigned, 4>;
template <int WORDS = 4, class T> __device__ __forceinline__ Pack<unsigned, WORDS> gather_words(const T* pointer, int step, unsigned mask) {
  using Bits = Pack<unsigned, WORDS>;
  constexpr int WIDTH = sizeof(Bits) / sizeof(T);
  if (mask == (1u << WIDTH) - 1 && step == 1 && reinterpret_cast<uintptr_t>(pointer) % sizeof(Bits) == 0)
    return *reinterpret_cast<const Bits*>(pointer);
  Bits words = {};
#pragma unroll
  for (int i = 0; i < WIDTH; i++) {
    if (!(mask >> i & 1)) continue;
    const T* element = pointer + i * step;
    if constexpr (sizeof(T) == 8) {
      unsigned long long bits = *reinterpret_cast<const unsigned long long*>(element);
      words.item[2 * i] = static_cast<unsigned>(bits), words.item[2 * i + 1] = static_cast<unsigned>(bits >> 32);
    } else if constexpr (sizeof(T) == 4) {
      words.item[i] = *reinterpret_cast<const unsigned*>(element);
    } else if constexpr (sizeof(T) == 2) {
      words.item[i / 2] |= static_cast<unsigned>(*reinterpret_cast<const unsigned short*>(element)) << i % 2 * 16;
    } else {
      words.item[i / 4] |= static_cast<unsigned>(*reinterpret_cast<const unsigned char*>(element)) << i % 4 * 8;
    }
  }
  return words;
}

template <class T, int WIDTH> __device__ __forceinline__ void scatter(T* pointer, int step, unsigned mask, const Pack<T, WIDTH>& pack) {
  if (mask == (1u << WIDTH) - 1 && step == 1 && reinterpret_cast<uintptr_t>(pointer) % sizeof pack == 0) {
    *reinterpret_cast<Pack<T, WIDTH>*>(pointer) = pack;
    return;
  }
#pragma unroll
  for (int i = 0; i < WIDTH; i++)
    if (mask >> i & 1) pointer[i * step] = pack.item[i];
}

// Stores packs: as they are (MOVE), or alpha * value + beta * prior.
template <bool MOVE, class C, class S, class D> struct Writer {
  C alpha, beta;
  template <int WIDTH> __device__ __forceinline__ void operator()(D* pointer, int step, unsigned mask, const Pack<S, WIDTH>& values) const {
    if constexpr (MOVE) {
      scatter(pointer, step, mask, values);
    } else {
      Pack<D, WIDTH> prior, blended;
      if (beta != C(0)) prior = gather<D, WIDTH>(pointer, step, mask);
#pragma unroll
      for (int i = 0; i < WIDTH; i++) {
        C value = alpha * load<C>(values.item[i]);
        blended.item[i] = store<D>(beta != C(0) ? value + beta * load<C>(prior.item[i]) : value);
      }
      scatter(pointer, step, mask, blended);
    }
  }
};

// Packs along dimension 0, read and written in the same order. The positions of a pack are 2^log_spread apart: 1 where
// they move in one access, up to a warp apart where they move one by one, so that a warp's accesses are contiguous.
struct Rows {
  FastDivmod packs_per_row;
  unsigned packs, log_spread;
};

template <int WIDTH, class S, class D, class Write>
__device__ __forceinline__ void walk_rows(const Walk& walk, const Rows& rows, const S* source, D* destination, Write write) {
  const int spread = 1 << rows.log_spread;
  for (unsigned index = blockIdx.x * blockDim.x + threadIdx.x; index < rows.packs; index += gridDim.x * blockDim.x) {
    unsigned position[DIMENSIONS], pack;
    walk.split<1>(rows.packs_per_row.divide(index, pack), position);
    position[0] = (pack & -spread) * WIDTH + (pack & (spread - 1));
    const unsigned row = walk.dimension[0].extent.divisor;
    if (position[0] >= row) continue;
    unsigned left = ((row - position[0] - 1) >> rows.log_spread) + 1, count = left < WIDTH ? left : WIDTH;
    unsigned read = passing<WIDTH>(walk.source_check, walk.source_checks, walk.rank, position, count, spread);
    unsigned written = passing<WIDTH>(walk.destination_check, walk.destination_checks, walk.rank, position, count, spread);
    int from, to;
    walk.offsets<0>(position, from, to);
    Pack<S, WIDTH> values = gather<S, WIDTH>(source + from, walk.dimension[0].source * spread, read);
    write(destination + to, walk.dimension[0].destination * spread, written, values);
  }
}

// How a block's tile spans dimension 0 (along which the source is contiguous), dimension 1 (along which the destination
// is) and the others together: 2^log_across x 2^log_along x 2^log_rest.
struct Tiling {
  FastDivmod across, along;  // tiles along dimension 0 and dimension 1
  unsigned log_across, log_along, log_rest;
  int packs_in, packs_out;  // whether packs are contiguous and, where the addresses are, aligned
};

// Reads along dimension 0, writes along dimension 1, through a tile in shared memory: pack by pack where the layout
// allows, else element by element with neighbouring threads on neighbouring elements. Slots of 16 bytes are permuted so
// that the scalar reads of neighbouring threads, which come from different rows of the tile, fall into different banks.
template <class S, class D, class Write>
__device__ __forceinline__ void walk_tiles(const Walk& walk, const Tiling& tiling, const S* source, D* destination, Write write) {
  constexpr unsigned LOG_IN = sizeof(S) == 1 ? 4 : sizeof(S) == 2 ? 3 : sizeof(S) == 4 ? 2 : 1, IN = 1 << LOG_IN;
  constexpr unsigned LOG_OUT = sizeof(D) == 1 ? 4 : sizeof(D) == 2 ? 3 : sizeof(D) == 4 ? 2 : 1, OUT = 1 << LOG_OUT;
  constexpr unsigned PACKS_IN = TILE_BYTES / 16 / TILE_THREADS, BATCH = 8;  // loads in flight per thread
  Words* slots = reinterpret_cast<Words*>(shared_memory);
  S* scalars = reinterpret_cast<S*>(shared_memory);
  const unsigned log_across = tiling.log_across, log_along = tiling.log_along;
  const unsigned elements = 1u << (log_across + log_along + tiling.log_rest);
  const bool packs_in = tiling.packs_in && reinterpret_cast<uintptr_t>(source) % 16 == 0;
  const bool packs_out = tiling.packs_out && reinterpret_cast<uintptr_t>(destination) % 16 == 0;
  const unsigned log_packs = log_across - LOG_IN;  // packs of one row of the tile
  const unsigned period = packs_out ? log_packs + LOG_OUT : log_packs, shift = period > 3 ? period : 3;
  auto slot = [shift](unsigned pack) { return pack ^ (pack >> shift & 7); };
  auto low = [](unsigned value, unsigned bits) { return value & ((1u << bits) - 1); };

  unsigned tile_along, tile_across;
  const unsigned first_outer = tiling.across.divide(tiling.along.divide(blockIdx.x, tile_along), tile_across) << tiling.log_rest;
  const unsigned first_across = tile_across << log_across, first_along = tile_along << log_along;
  const unsigned across = walk.dimension[0].extent.divisor, along = walk.dimension[1].extent.divisor;
  const int source_across = walk.dimension[0].source, source_along = walk.dimension[1].source;
  const int destination_across = walk.dimension[0].destination, destination_along = walk.dimension[1].destination;

  // Where the position (a, b, rest) of the tile lies; false outside of the tensor.
  unsigned position[DIMENSIONS];
  int from, to;
  bool inside = walk.split<2>(first_outer, position);
  walk.offsets<2>(position, from, to);
  auto locate = [&](unsigned a, unsigned b, unsigned rest) {
    if (tiling.log_rest) {
      inside = walk.split<2>(first_outer + rest, position);
      walk.offsets<2>(position, from, to);
    }
    position[0] = first_across + a;
    position[1] = first_along + b;
    return inside && position[0] < across && position[1] < along;
  };
  auto offset = [&](int outer, int step_across, int step_along) {
    return outer + static_cast<int>(position[0]) * step_across + static_cast<int>(position[1]) * step_along;
  };
  auto origin = [&] { return source + offset(from, source_across, source_along); };
  auto target = [&] { return destination + offset(to, destination_across, destination_along); };

  if (packs_in) {
    Words loaded[PACKS_IN] = {};
#pragma unroll
    for (unsigned k = 0; k < PACKS_IN; k++) {
      const unsigned pack = k * TILE_THREADS + threadIdx.x, row = pack >> log_packs;
      if (pack << LOG_IN >= elements) break;
      if (!locate(low(pack, log_packs) << LOG_IN, low(row, log_along), row >> log_along)) continue;
      const unsigned left = across - position[0];
      unsigned read = passing<IN>(walk.source_check, walk.source_checks, walk.rank, position, left < IN ? left : IN);
      loaded[k] = gather_words(origin(), source_across, read);
    }
#pragma unroll
    for (unsigned k = 0; k < PACKS_IN; k++)
      if ((k * TILE_THREADS + threadIdx.x) << LOG_IN < elements) slots[slot(k * TILE_THREADS + threadIdx.x)] = loaded[k];
  } else {
    for (unsigned first = threadIdx.x; first < elements; first += BATCH * TILE_THREADS) {
      S loaded[BATCH];
#pragma unroll
      for (unsigned k = 0; k < BATCH; k++) {
        const unsigned element = first + k * TILE_THREADS, row = element >> log_across;
        loaded[k] = S();
        if (element >= elements || !locate(low(element, log_across), low(row, log_along), row >> log_along)) continue;
        if (passing<1>(walk.source_check, walk.source_checks, walk.rank, position, 1)) loaded[k] = *origin();
      }
#pragma unroll
      for (unsigned k = 0; k < BATCH; k++) {
        const unsigned element = first + k * TILE_THREADS;
        if (element < elements) scalars[slot(element >> LOG_IN) << LOG_IN | (element & (IN - 1))] = loaded[k];
      }
    }
  }
  __syncthreads();

  auto value = [&](unsigned a, unsigned row) {
    return scalars[slot((row << log_packs) + (a >> LOG_IN)) << LOG_IN | (a & (IN - 1))];
  };
  if (packs_out) {
    const unsigned log_out = log_along - LOG_OUT;
#pragma unroll 2
    for (unsigned pack = threadIdx.x; pack << LOG_OUT < elements; pack += TILE_THREADS) {
      const unsigned row = pack >> log_out, a = low(row, log_across), rest = row >> log_across, b = low(pack, log_out) << LOG_OUT;
      if (!locate(a, b, rest)) continue;
      const unsigned left = along - position[1], count = left < OUT ? left : OUT;
      Pack<S, OUT> values;
#pragma unroll
      for (unsigned i = 0; i < OUT; i++) values.item[i] = value(a, (rest << log_along | b) + i);
      write(target(), destination_along, (1u << count) - 1, values);
    }
  } else {
#pragma unroll 4
    for (unsigned element = threadIdx.x; element < elements; element += TILE_THREADS) {
      const unsigned row = element >> log_along, a = low(row, log_across), rest = row >> log_across, b = low(element, log_along);
      if (locate(a, b, rest)) write(target(), 1, 1, Pack<S, 1>{value(a, rest << log_along | b)});
    }
  }
}
