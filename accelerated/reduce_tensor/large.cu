// Reductions (3.2.71) of tensors of which the cache holds little, whose packs are whole and start at multiples of 16 bytes: arguments, and
// how threads and blocks share the work, as in reduce_tensor/any.cu, which has any tensor.
//
// Floor: bytes. What limits: that memory idles from the last reads of a kernel to the first ones of the next, 2 to 3 us of the 24 that 103 MB take,
// while blocks merge. So what each block reads first is fetched ahead, by those that may run while the kernel before ends; and reads pass L1. 103 MB of
// halves to 256 channels 25.4 us instead of 28.2 (NHWC 26.0, 27.6), to one element 25.3 (27.9), maxima over W NHWC 27.4 (29.1), norms over N 27.2 (28.4); floats 103 MB
// to channels 24.6 (27.4), 206 MB 47.7 (50.3): 90 to 102 % of the copy (H200). Fetched ahead alone, rows gained 1 to 4 %; past L1 alone, 3 to 6 %. In the
// kernels for any tensor halves gained nothing by either, for lack of registers. 3 blocks a multiprocessor, of more reads, took up to 15 % longer.
// Of 38 MB, which the cache holds, columns of floats took a third longer so.
#include "reduce_tensor/problem.cuh"

constexpr unsigned PREFETCH_BLOCKS = 528;  // that run at once on most GPUs
constexpr int PLACED_BATCH = 4;         // accesses of a thread that are in flight together, where each has a place of its own

__device__ __forceinline__ bool fetches_ahead() { return blockIdx.y * gridDim.x + blockIdx.x < PREFETCH_BLOCKS; }

using Read = Pack<ELEMENT, WIDTH>;

template <class Reduction> __device__ __forceinline__ void reduce_large_rows(const Arguments& a, const Reduction& reduction) {
  using State = typename Reduction::State;
  const unsigned lanes = 1u << a.lanes_log2, lane = threadIdx.x & (lanes - 1);
  const unsigned output = blockIdx.x * (BLOCK >> a.lanes_log2) + (threadIdx.x >> a.lanes_log2);
  const unsigned begin = blockIdx.y * a.segment + lane, end = min(blockIdx.y * a.segment + a.segment, a.reduced.packs);
  State state[WIDTH];
#pragma unroll
  for (int i = 0; i < WIDTH; i++) state[i] = reduction.start();
  long long place[3];
  const ELEMENT* source = a.a;
  if (output < a.outputs) {
    a.kept.locate(output, place);
    source += place[2];
  }
  auto at = [&](unsigned pack) {
    unsigned offset[2];
    a.reduced.locate(pack, offset);
    return reinterpret_cast<const Read*>(source + offset[1]);
  };
  if (fetches_ahead() && output < a.outputs) {
#pragma unroll
    for (int u = 0; u < EVEN_BATCH; u++)
      if (begin + u * lanes < end) prefetch_l2(at(begin + u * lanes));
  }
  griddepcontrol_wait_only(source);
  if (output < a.outputs) {
    if (a.even) {
      reduce_even<true>(reduction, state, source + begin * WIDTH, lanes * WIDTH, share(a, begin, end), 0, 0, 0);
    } else {
      for (unsigned pack = begin; pack < end; pack += PLACED_BATCH * lanes) {
        Read loaded[PLACED_BATCH];
#pragma unroll
        for (int u = 0; u < PLACED_BATCH; u++)
          if (pack + u * lanes < end) loaded[u] = read_pack_of<true>(at(pack + u * lanes));
#pragma unroll
        for (int u = 0; u < PLACED_BATCH; u++)
          if (pack + u * lanes < end) {
#pragma unroll
            for (int i = 0; i < WIDTH; i++) reduction.add(state[i], load<COMPUTE>(loaded[u].item[i]), 0);
          }
      }
    }
  }
  griddepcontrol_launch_dependents_after_reads();
  finish_rows(a, reduction, state, output, lane, place);
}

template <class Reduction> __device__ __forceinline__ void reduce_large_columns(const Arguments& a, const Reduction& reduction) {
  using State = typename Reduction::State;
  const unsigned lanes = 1u << a.lanes_log2, columns = BLOCK >> a.lanes_log2, column = threadIdx.x & (columns - 1), lane = threadIdx.x / columns;
  State state[WIDTH];
#pragma unroll
  for (int i = 0; i < WIDTH; i++) state[i] = reduction.start();
  const unsigned own = pack_of(a, column, columns);
  const bool alone = a.alone && reinterpret_cast<uintptr_t>(a.c) % 16 == 0;
  if (own < a.kept.packs) {  // the others of the block wait for these
    unsigned place[3];
    a.kept.locate(own, place);
    const unsigned begin = blockIdx.y * a.segment + lane, end = min(blockIdx.y * a.segment + a.segment, a.reduced.packs), step = a.reduced.row_stride[1];
    const ELEMENT* source = a.a + (place[2] + begin * step);
    if (fetches_ahead()) {
#pragma unroll
      for (int u = 0; u < EVEN_BATCH; u++)
        if (begin + u * lanes < end) prefetch_l2(source + u * lanes * step);
    }
    griddepcontrol_wait_before_access(source);
    reduce_even<true>(reduction, state, source, lanes * step, share(a, begin, end), 0, 0, 0);
    if (alone) conclude_pack(a, state, place[0]);
  }
  if (!alone) finish_columns(a, reduction, state, column, lane, lanes, columns);
}

extern "C" __global__ void __launch_bounds__(BLOCK, RESIDENT) reduce_tensor_large_rows(const Arguments a) {
  griddepcontrol_wait_deferred();
  PLAIN(reduce_large_rows)
}
extern "C" __global__ void __launch_bounds__(BLOCK, RESIDENT) reduce_tensor_large_columns(const Arguments a) {
  griddepcontrol_wait_deferred();
  PLAIN(reduce_large_columns)
}
