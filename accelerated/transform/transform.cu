// Transforms of layout, padding, folding, unfolding, data type (3.2.99 to 3.2.101).
//
// Floor: bytes, one element read and one written; the arithmetic is at most one multiply-add and two conversions.
// transform_rows serves layouts that agree on the fastest dimension: 16-byte accesses on both sides, the speed of a copy.
// transform_turn_packs and transform_turn_elements (transform/transpose.cuh) serve plain changes of layout, transform_turn_columns small ones of which only the
// destination has packs (gaps: 0.4 MB in 1.4 us in a stream instead of 1.75 on an H200; packs on both sides turn faster by squares). transform_tiles serves those that
// pad, fold, or move the narrowest and widest types: 16-byte accesses on both sides through up to 16 KB of shared memory, where an
// element costs its share of one 16-byte store and one scalar load; up to four loads in flight per thread cover the
// latency. Tiles shrink until there are enough of them for every multiprocessor, because small tensors are limited by
// latency. Rows that are not aligned to 16 bytes move element by element: half and int8 are limited by instructions there.
// The fraction that each operation reaches on an H200 is in reports/README.md.
#include "primitives/small_grid.cuh"
#include "transform/transpose.cuh"

constexpr int WIDTH = 16 / (sizeof(SOURCE) > sizeof(ELEMENT) ? sizeof(SOURCE) : sizeof(ELEMENT));
// Blocks per multiprocessor: as many as the registers of a pack allow, for enough loads in flight.
constexpr int ROWS_BLOCKS = sizeof(SOURCE) > 2 ? 8 : sizeof(SOURCE) == 2 ? 5 : 4;
constexpr int TILES_BLOCKS = !same_type<SOURCE, ELEMENT> ? 3 : sizeof(SOURCE) == 4 ? 6 : sizeof(SOURCE) == 2 ? 5 : 4;
constexpr int RUN_BLOCKS = sizeof(SOURCE) > 1 ? 8 : 4, ELEMENT_BLOCKS = 8;
constexpr int COLUMN = 4;  // elements of a column, as in transform.py
using Move = Writer<true, COMPUTE, SOURCE, ELEMENT>;
using Blend = Writer<false, COMPUTE, SOURCE, ELEMENT>;

struct RowsArguments {
  const SOURCE* source;
  ELEMENT* destination;
  Walk walk;
  COMPUTE alpha, beta;
  Rows rows;
  int move;  // alpha is 1 and beta 0: the bits of the elements are copied
};

extern "C" __global__ void __launch_bounds__(TILE_THREADS, ROWS_BLOCKS) transform_rows(const RowsArguments a) {
  griddepcontrol_wait();
  if constexpr (same_type<SOURCE, ELEMENT>)
    if (a.move) return walk_rows<WIDTH>(a.walk, a.rows, a.source, a.destination, Move{});
  Blend blend{a.alpha, a.beta};
  walk_rows<WIDTH>(a.walk, a.rows, a.source, a.destination, blend);
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

struct TurnArguments {
  const SOURCE* source;
  ELEMENT* destination;
  COMPUTE alpha, beta;
  int move;
  Turn turn;
};

extern "C" __global__ void __launch_bounds__(TURN_THREADS, TURN_BLOCKS) transform_turn_packs(const TurnArguments a) {
  griddepcontrol_wait_deferred();
  if constexpr (same_type<SOURCE, ELEMENT>) turn_packs(a.turn, a.source, a.destination, Move{});
}

// Blending needs more registers than a move.
extern "C" __global__ void __launch_bounds__(TURN_THREADS) transform_turn_packs_blend(const TurnArguments a) {
  griddepcontrol_wait_deferred();
  turn_packs(a.turn, a.source, a.destination, Blend{a.alpha, a.beta});
}

// Halves: packs of 8 bytes.
extern "C" __global__ void __launch_bounds__(TURN_THREADS) transform_turn_short_packs(const TurnArguments a) {
  griddepcontrol_wait_deferred();
  if constexpr (same_type<SOURCE, ELEMENT>) turn_packs<2>(a.turn, a.source, a.destination, Move{});
}
extern "C" __global__ void __launch_bounds__(TURN_THREADS) transform_turn_short_packs_blend(const TurnArguments a) {
  griddepcontrol_wait_deferred();
  turn_packs<2>(a.turn, a.source, a.destination, Blend{a.alpha, a.beta});
}

extern "C" __global__ void __launch_bounds__(TURN_THREADS, RUN_BLOCKS) transform_turn_runs(const TurnArguments a) {
  griddepcontrol_wait_deferred();
  if constexpr (same_type<SOURCE, ELEMENT>)
    if (a.move) return turn_runs(a.turn, a.source, a.destination, Move{});
  turn_runs(a.turn, a.source, a.destination, Blend{a.alpha, a.beta});
}

extern "C" __global__ void __launch_bounds__(TURN_THREADS) transform_turn_joined(const TurnArguments a) {
  griddepcontrol_wait_deferred();
  if constexpr (same_type<SOURCE, ELEMENT>)
    if (a.move) return turn_joined(a.turn, a.source, a.destination, Move{});
  turn_joined(a.turn, a.source, a.destination, Blend{a.alpha, a.beta});
}

extern "C" __global__ void __launch_bounds__(TURN_THREADS, ELEMENT_BLOCKS) transform_turn_elements(const TurnArguments a) {
  griddepcontrol_wait_deferred();
  if constexpr (same_type<SOURCE, ELEMENT>)
    if (a.move) return turn_elements(a.turn, a.source, a.destination, Move{});
  turn_elements(a.turn, a.source, a.destination, Blend{a.alpha, a.beta});
}

struct ColumnsArguments {
  const SOURCE* source;
  ELEMENT* destination;
  COMPUTE alpha, beta;
  int move;
  int source_base, destination_base, source_along;
  SmallGrid<2> small_grid;  // the third dimension: columns along the destination
};

// Small tensors: a thread reads the elements of a column one by one, its neighbours those beside them, and writes it at once.
template <class S, class D, class Write> __device__ __forceinline__ void turn_columns(const ColumnsArguments& a, const S* source, D* destination, Write write) {
  unsigned offset[2];
  const bool exists = a.small_grid.locate(offset) > 0;
  const S* from = source + a.source_base + offset[0];
  D* to = destination + a.destination_base + offset[1];
  griddepcontrol_wait_before_access(from, to);
  if (!exists) return;
  Pack<S, COLUMN> values;
#pragma unroll
  for (int i = 0; i < COLUMN; i++) values.item[i] = from[i * a.source_along];
  write(to, 1, (1u << COLUMN) - 1, values);
}

extern "C" __global__ void __launch_bounds__(TURN_THREADS) transform_turn_columns(const ColumnsArguments a) {
  griddepcontrol_wait_deferred();
  if constexpr (same_type<SOURCE, ELEMENT>)
    if (a.move) return turn_columns(a, a.source, a.destination, Move{});
  turn_columns(a, a.source, a.destination, Blend{a.alpha, a.beta});
}
