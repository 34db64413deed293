// Reductions of rows of few packs that follow each other in memory (3.2.71).
//
// Neighbouring threads read neighbouring packs, whatever row they belong to, and leave the state of each pack in
// shared memory; some threads a row merge these. The host gives a row so many lanes that a thread has at most
// EVEN_BATCH packs, all in flight at once.
//
// Roofline: bytes. Every element of A is read once, in 16-byte accesses; an element costs about 2 flops. Measured
// (H200): maxima over W of 64x3x224x224 float NCHW 7.8 us, more than the copy's throughput, because L2 has part of A;
// 10.7 us by reduce_tensor/any.cu.
#include "reduce_tensor/problem.cuh"

// Rows of few aligned packs that follow each other in memory: neighbouring threads read neighbouring packs, whatever
// row they belong to. The host gives a row so many lanes that a thread has at most EVEN_BATCH packs.
template <class Reduction>
__device__ __forceinline__ void reduce_short_rows(const Arguments& a, const Reduction& reduction) {
  using State = typename Reduction::State;
  const unsigned lanes = 1u << a.lanes_log2, lane = threadIdx.x & (lanes - 1), row = threadIdx.x >> a.lanes_log2;
  const unsigned rows = BLOCK >> a.lanes_log2, first = blockIdx.x * rows, packs = a.reduced.packs,
                 index_step = a.reduced.row_stride[0];
  const unsigned count = min(rows, a.outputs - first) * packs;
  const ELEMENT* source = a.a + (first * packs + threadIdx.x) * WIDTH;
  State* results = reinterpret_cast<State*>(shared_memory);
  griddepcontrol_wait_only(source);
  Pack<ELEMENT, WIDTH> loaded[EVEN_BATCH];
#pragma unroll
  for (int u = 0; u < EVEN_BATCH; u++)
    if (threadIdx.x + u * BLOCK < count) loaded[u] = reinterpret_cast<const Pack<ELEMENT, WIDTH>*>(source)[u * BLOCK];
#pragma unroll
  for (int u = 0; u < EVEN_BATCH; u++) {
    const unsigned pack = threadIdx.x + u * BLOCK;
    if (pack >= count) continue;
    unsigned in_row;
    a.reduced.packs_per_row.divide(pack, in_row);
    State state = reduction.start();
#pragma unroll
    for (int i = 0; i < WIDTH; i++)
      reduction.add(state, load<COMPUTE>(loaded[u].item[i]), (in_row * WIDTH + i) * index_step);
    results[pack] = state;
  }
  griddepcontrol_launch_dependents_after_reads();
  __syncthreads();
  State state = reduction.start();
  if (first + row < a.outputs)
    for (unsigned pack = lane; pack < packs; pack += lanes) reduction.merge(state, results[row * packs + pack]);
  merge_neighbours(reduction, state, a.lanes_log2);
  if (lane == 0 && first + row < a.outputs) {
    unsigned located[3];
    a.kept.locate(first + row, located);
    conclude(a, state, located[0], located[1]);
  }
}

extern "C" __global__ void __launch_bounds__(BLOCK, RESIDENT) reduce_tensor_short_rows(const Arguments a) {
  griddepcontrol_wait_deferred();
  PLAIN(reduce_short_rows)
}
extern "C" __global__ void __launch_bounds__(BLOCK, RESIDENT_INDEXED)
    reduce_tensor_short_rows_indexed(const Arguments a) {
  griddepcontrol_wait_deferred();
  bool propagate = a.propagate;
  INDEXED(reduce_short_rows)
}
