// Walks: affine maps between the elements of two tensors (the host side is accelerated/transform.py; the layouts match).
//
// A walk has up to DIMENSIONS virtual dimensions. Every position has an element in the source and one in the
// destination; where layouts fold, crop or pad, checks say which positions lie outside the source (they read as zero)
// or outside the destination (they are skipped). Dimension 0 is the one along which a thread takes a pack.
#pragma once
#include "index.cuh"
#include "types.cuh"

constexpr int DIMENSIONS = 10, SOURCE_CHECKS = 6, DESTINATION_CHECKS = 3;

struct Dimension {
  Divisor extent;
  long long source, destination;  // steps in elements
};

// A coordinate, linear in the positions, that has to lie in [0, limit).
struct Check {
  int base;
  unsigned limit;
  int step[DIMENSIONS];
};

struct Walk {
  int rank, source_checks, destination_checks;
  Dimension dimension[DIMENSIONS];
  long long source_base, destination_base;
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
  __device__ __forceinline__ long long source_offset(const unsigned (&position)[DIMENSIONS]) const {
    long long offset = source_base;
#pragma unroll
    for (int d = 0; d < DIMENSIONS; d++) {
      if (d >= rank) break;
      offset += position[d] * dimension[d].source;
    }
    return offset;
  }
  __device__ __forceinline__ long long destination_offset(const unsigned (&position)[DIMENSIONS]) const {
    long long offset = destination_base;
#pragma unroll
    for (int d = 0; d < DIMENSIONS; d++) {
      if (d >= rank) break;
      offset += position[d] * dimension[d].destination;
    }
    return offset;
  }
};

// Bit i: position i of a pack of `count` along dimension 0 passes all checks.
template <int WIDTH, int N>
__device__ __forceinline__ unsigned passing(const Check (&checks)[N], int checked, int rank, const unsigned (&position)[DIMENSIONS], unsigned count) {
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
      if (static_cast<unsigned>(coordinate + i * checks[c].step[0]) >= checks[c].limit) mask &= ~(1u << i);
  }
  return mask;
}

// The elements of `mask` out of WIDTH neighbours `step` apart, zeros for the others: one access where that is possible.
template <class T, int WIDTH> __device__ __forceinline__ Pack<T, WIDTH> gather(const T* pointer, long long step, unsigned mask) {
  Pack<T, WIDTH> pack;
  if (mask == (1u << WIDTH) - 1 && step == 1 && reinterpret_cast<uintptr_t>(pointer) % sizeof pack == 0)
    return *reinterpret_cast<const Pack<T, WIDTH>*>(pointer);
#pragma unroll
  for (int i = 0; i < WIDTH; i++) pack.item[i] = mask >> i & 1 ? pointer[i * step] : T();
  return pack;
}

// The bits of such a pack of 16 bytes, in as few registers as they need.
using Words = Pack<unsigned, 4>;
template <class T> __device__ __forceinline__ Words gather_words(const T* pointer, long long step, unsigned mask) {
  constexpr int WIDTH = 16 / sizeof(T);
  if (mask == (1u << WIDTH) - 1 && step == 1 && reinterpret_cast<uintptr_t>(pointer) % sizeof(Words) == 0)
    return *reinterpret_cast<const Words*>(pointer);
  Words words = {};
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

template <class T, int WIDTH> __device__ __forceinline__ void scatter(T* pointer, long long step, unsigned mask, const Pack<T, WIDTH>& pack) {
  if (mask == (1u << WIDTH) - 1 && step == 1 && reinterpret_cast<uintptr_t>(pointer) % sizeof pack == 0) {
    *reinterpret_cast<Pack<T, WIDTH>*>(pointer) = pack;
    return;
  }
#pragma unroll
  for (int i = 0; i < WIDTH; i++)
    if (mask >> i & 1) pointer[i * step] = pack.item[i];
}

template <class T, class U> constexpr bool same_type = false;
template <class T> constexpr bool same_type<T, T> = true;

// Stores packs: as they are (MOVE), or alpha * value + beta * prior.
template <bool MOVE, class C, class S, class D> struct Writer {
  C alpha, beta;
  template <int WIDTH> __device__ __forceinline__ void operator()(D* pointer, long long step, unsigned mask, const Pack<S, WIDTH>& values) const {
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

// Packs along dimension 0, read and written in the same order.
template <int WIDTH, class S, class D, class Write>
__device__ __forceinline__ void walk_rows(const Walk& walk, const Divisor& packs_per_row, unsigned packs, const S* source, D* destination, Write write) {
  for (unsigned index = blockIdx.x * blockDim.x + threadIdx.x; index < packs; index += gridDim.x * blockDim.x) {
    unsigned position[DIMENSIONS], pack;
    walk.split<1>(packs_per_row.divide(index, pack), position);
    position[0] = pack * WIDTH;
    unsigned left = walk.dimension[0].extent.divisor - position[0], count = left < WIDTH ? left : WIDTH;
    unsigned read = passing<WIDTH>(walk.source_check, walk.source_checks, walk.rank, position, count);
    unsigned written = passing<WIDTH>(walk.destination_check, walk.destination_checks, walk.rank, position, count);
    Pack<S, WIDTH> values = gather<S, WIDTH>(source + walk.source_offset(position), walk.dimension[0].source, read);
    write(destination + walk.destination_offset(position), walk.dimension[0].destination, written, values);
  }
}

// How a block's tile spans dimension 0 (along which the source is contiguous), dimension 1 (along which the destination
// is) and the others together: 2^log_across x 2^log_along x the rest.
struct Tiling {
  Divisor across, along;  // tiles along dimension 0 and dimension 1
  unsigned log_across, log_along;
};

constexpr int TILE_BYTES = 16 * 1024, TILE_THREADS = 256;

// Reads packs along dimension 0, writes packs along dimension 1, through a tile in shared memory. Slots of 16 bytes are
// permuted so that the scalar reads of neighbouring threads, WIDTH_OUT rows apart, fall into different banks.
template <class S, class D, class Write>
__device__ __forceinline__ void walk_tiles(const Walk& walk, const Tiling& tiling, const S* source, D* destination, Write write) {
  constexpr unsigned LOG_IN = sizeof(S) == 1 ? 4 : sizeof(S) == 2 ? 3 : sizeof(S) == 4 ? 2 : 1, IN = 1 << LOG_IN;
  constexpr unsigned LOG_OUT = sizeof(D) == 1 ? 4 : sizeof(D) == 2 ? 3 : sizeof(D) == 4 ? 2 : 1, OUT = 1 << LOG_OUT;
  constexpr unsigned LOG_TILE = LOG_IN + 10;  // elements
  static_assert(sizeof(S) << LOG_TILE == TILE_BYTES);
  constexpr unsigned PACKS_IN = TILE_BYTES / 16 / TILE_THREADS, PACKS_OUT = TILE_BYTES / sizeof(S) / OUT / TILE_THREADS;
  Words* slots = reinterpret_cast<Words*>(shared_memory);
  const S* scalars = reinterpret_cast<const S*>(shared_memory);
  const unsigned log_packs = tiling.log_across - LOG_IN;  // packs of one row of the tile
  const unsigned shift = log_packs + LOG_OUT > 3 ? log_packs + LOG_OUT : 3;
  auto slot = [shift](unsigned pack) { return pack ^ (pack >> shift & 7); };

  unsigned tile_along, tile_across;
  const unsigned outer = tiling.across.divide(tiling.along.divide(blockIdx.x, tile_along), tile_across);
  const unsigned first_outer = outer << (LOG_TILE - tiling.log_across - tiling.log_along);
  const unsigned first_across = tile_across << tiling.log_across, first_along = tile_along << tiling.log_along;
  const unsigned across = walk.dimension[0].extent.divisor, along = walk.dimension[1].extent.divisor;

  Words loaded[PACKS_IN] = {};
#pragma unroll
  for (int k = 0; k < PACKS_IN; k++) {
    const unsigned pack = k * TILE_THREADS + threadIdx.x, row = pack >> log_packs;
    unsigned position[DIMENSIONS];
    bool inside = walk.split<2>(first_outer + (row >> tiling.log_along), position);
    position[0] = first_across + ((pack & ((1u << log_packs) - 1)) << LOG_IN);
    position[1] = first_along + (row & ((1u << tiling.log_along) - 1));
    if (!inside || position[0] >= across || position[1] >= along) continue;
    unsigned count = across - position[0] < IN ? across - position[0] : IN;
    unsigned read = passing<IN>(walk.source_check, walk.source_checks, walk.rank, position, count);
    loaded[k] = gather_words(source + walk.source_offset(position), walk.dimension[0].source, read);
  }
#pragma unroll
  for (int k = 0; k < PACKS_IN; k++) slots[slot(k * TILE_THREADS + threadIdx.x)] = loaded[k];
  __syncthreads();

#pragma unroll 4
  for (int k = 0; k < PACKS_OUT; k++) {
    const unsigned pack = k * TILE_THREADS + threadIdx.x, row = pack >> (tiling.log_along - LOG_OUT);
    const unsigned a = row & ((1u << tiling.log_across) - 1), rest = row >> tiling.log_across;
    const unsigned b = (pack & ((1u << (tiling.log_along - LOG_OUT)) - 1)) << LOG_OUT;
    unsigned position[DIMENSIONS];
    bool inside = walk.split<2>(first_outer + rest, position);
    position[0] = first_across + a;
    position[1] = first_along + b;
    if (!inside || position[0] >= across || position[1] >= along) continue;
    unsigned count = along - position[1] < OUT ? along - position[1] : OUT;
    Pack<S, OUT> values;
#pragma unroll
    for (int i = 0; i < OUT; i++) {
      const unsigned from = (((rest << tiling.log_along | b) + i) << log_packs) + (a >> LOG_IN);
      values.item[i] = scalars[slot(from) << LOG_IN | (a & (IN - 1))];
    }
    write(destination + walk.destination_offset(position), walk.dimension[1].destination, (1u << count) - 1, values);
  }
}
