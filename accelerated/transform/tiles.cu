// Transforms that change the contiguous dimension and pad, fold, or convert types (3.2.99 to 3.2.101), where
// transpose.cu does not serve.
//
// Tiles of TILE_BYTES go through shared memory, with 16-byte accesses on both sides where they are aligned: an element
// costs its share of one 16-byte store and one scalar load. Up to four loads in flight per thread cover the latency.
// Tiles shrink until there are enough of them for every multiprocessor, because small tensors are limited by latency.
//
// Roofline bound: bytes, one element read and one written; at most one multiply-add and two conversions an element.
// Measured: no row of the reports has reached it yet.
#include "transform/problem.cuh"

// Blocks per multiprocessor: as many as the registers of a pack allow, for enough loads in flight.
constexpr int TILES_BLOCKS = !same_type<SOURCE, ELEMENT> ? 3 : sizeof(SOURCE) == 4 ? 6 : sizeof(SOURCE) == 2 ? 5 : 4;

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
__device__ __forceinline__ void walk_tiles(const Walk& walk, const Tiling& tiling, const S* source, D* destination,
                                           Write write) {
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
  const unsigned first_outer = tiling.across.divide(tiling.along.divide(blockIdx.x, tile_along), tile_across)
                               << tiling.log_rest;
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
      if ((k * TILE_THREADS + threadIdx.x) << LOG_IN < elements)
        slots[slot(k * TILE_THREADS + threadIdx.x)] = loaded[k];
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
      const unsigned row = pack >> log_out, a = low(row, log_across), rest = row >> log_across,
                     b = low(pack, log_out) << LOG_OUT;
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
      const unsigned row = element >> log_along, a = low(row, log_across), rest = row >> log_across,
                     b = low(element, log_along);
      if (locate(a, b, rest)) write(target(), 1, 1, Pack<S, 1>{value(a, rest << log_along | b)});
    }
  }
}

struct TilesArguments {
  const SOURCE* source;
  ELEMENT* destination;
  Walk walk;
  COMPUTE alpha, beta;
  Tiling tiling;
  int move;
};

extern "C" __global__ void __launch_bounds__(TILE_THREADS, TILES_BLOCKS) transform_tiles(const TilesArguments a) {
  griddepcontrol_wait();
  if constexpr (same_type<SOURCE, ELEMENT>)
    if (a.move) return walk_tiles(a.walk, a.tiling, a.source, a.destination, Move{});
  Blend blend{a.alpha, a.beta};
  walk_tiles(a.walk, a.tiling, a.source, a.destination, blend);
}
