// Transposes of small tensors of which only the destination has packs (3.2.99): planes with gaps.
//
// A thread reads ELEMENTS elements along the destination's contiguous dimension one by one, its neighbours those beside
// them in the source, and writes them in one access. Its indices are those of the launch (primitives/small_grid.cuh).
//
// Roofline bound: bytes, one element read and one written; the latency of one read limits tensors of this size.
// Measured: 0.4 MB with gaps in 1.4 us in a stream on an H200, 1.75 us by tiles; packs on both sides are faster in
// squares.
#include "primitives/small_grid.cuh"
#include "transform/problem.cuh"

constexpr int THREADS = 256;

struct SmallTransposeArguments {
  const SOURCE* source;
  ELEMENT* destination;
  COMPUTE alpha, beta;
  int move;
  int source_base, destination_base, source_along;
  SmallGrid<2> small_grid;  // the third dimension: groups of ELEMENTS along the destination
};

template <class S, class D, class Write>
__device__ __forceinline__ void small_transpose(const SmallTransposeArguments& a, const S* source, D* destination,
                                                Write write) {
  unsigned offset[2];
  const bool exists = a.small_grid.locate(offset) > 0;
  const S* from = source + a.source_base + offset[0];
  D* to = destination + a.destination_base + offset[1];
  griddepcontrol_wait_before_access(from, to);
  if (!exists) return;
  Pack<S, ELEMENTS> values;
#pragma unroll
  for (int i = 0; i < ELEMENTS; i++) values.item[i] = from[i * a.source_along];
  write(to, 1, (1u << ELEMENTS) - 1, values);
}

extern "C" __global__ void __launch_bounds__(THREADS) transform_small_transpose(const SmallTransposeArguments a) {
  griddepcontrol_wait_deferred();
  if constexpr (same_type<SOURCE, ELEMENT>)
    if (a.move) return small_transpose(a, a.source, a.destination, Move{});
  small_transpose(a, a.source, a.destination, Blend{a.alpha, a.beta});
}
