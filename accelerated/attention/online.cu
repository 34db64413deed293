// This file computes multi-head attention forward (7.2.43): softmax(scaler * q . k) weighs the values in each window.
//
// A block has a tile of queries, one head and TILE elements of its output. It reads tiles of keys and values. It keeps
// the online-softmax state (running maximum and sum) and the weighted sum in registers, so that no scores are stored.
// Heads with more than TILE elements compute the scores once for each TILE of them.
//
// Roofline bound: flops on CUDA cores, 2 (size of q + size of v) for each pair of a query and a key in its window.
// Bytes: each tile of queries reads each input once from L2.
#include "attention/heads.cuh"

struct OnlineArguments {
  const void* q;
  const void* k;
  const void* v;
  void* space;
  void* result;
  Heads heads;
  long long result_offset, statistics_offset;  // bytes; -1 means that no statistics are kept
  FastDivmod tiles, chunks, head_count, beam_count;
};

extern "C" __global__ void __launch_bounds__(THREADS) attention_online_forward(const OnlineArguments a) {
  griddepcontrol_wait();
  __shared__ Tiles tiles;
  const Heads& h = a.heads;
  unsigned tile, chunk, head, beam, batch;
  batch =
      a.beam_count.divide(a.head_count.divide(a.chunks.divide(a.tiles.divide(blockIdx.x, tile), chunk), head), beam);
  const int first = tile * TILE, column = chunk * TILE;
  const int ty = threadIdx.x / LANES, tx = threadIdx.x % LANES;
  const Sequence s = sequence_of(h, a.space, batch, beam);
  int low, high;
  read_windows(h, a.space, s, first, tiles, low, high);

  COMPUTE sums[ITEMS][ITEMS] = {}, maximum[ITEMS], total[ITEMS];
#pragma unroll
  for (int i = 0; i < ITEMS; i++) maximum[i] = -INFINITY, total[i] = 0;
  for (int key = low / TILE * TILE; key < high; key += TILE) {
    COMPUTE scores[ITEMS][ITEMS];
    multiply_vectors(scores, tiles, {a.q, h.q, s.q_base, h.q_strides.time, first, s.q_length},
                     {a.k, h.k, s.k_base, h.k_strides.time, key, s.k_length}, head);
#pragma unroll
    for (int i = 0; i < ITEMS; i++) {
      const int row = ty + LANES * i;
      COMPUTE highest = maximum[i];
#pragma unroll
      for (int j = 0; j < ITEMS; j++) {
        scores[i][j] *= h.scaler;
        if (is_inside(tiles, row, key + tx + LANES * j)) highest = max(highest, scores[i][j]);
      }
#pragma unroll
      for (int lane = LANES / 2; lane > 0; lane /= 2)
        highest = max(highest, __shfl_xor_sync(0xffffffff, highest, lane));
      const COMPUTE shift = highest == -INFINITY ? COMPUTE(0) : highest;
      const COMPUTE rescale = maximum[i] == -INFINITY ? COMPUTE(0) : exp(maximum[i] - shift);
      COMPUTE partial = 0;
#pragma unroll
      for (int j = 0; j < ITEMS; j++) {
        const bool inside = is_inside(tiles, row, key + tx + LANES * j);
        const COMPUTE weight = inside ? exp(scores[i][j] - shift) : COMPUTE(0);
        tiles.weights[row][tx + LANES * j] = weight;
        partial += weight;
        sums[i][j] *= rescale;
      }
#pragma unroll
      for (int lane = LANES / 2; lane > 0; lane /= 2) partial += __shfl_xor_sync(0xffffffff, partial, lane);
      total[i] = total[i] * rescale + partial;
      maximum[i] = highest;
    }
    add_weighed<false>(sums, tiles, {a.v, h.v, s.k_base, h.k_strides.time, key, s.k_length}, head, column, key);
  }

  ELEMENT* const result = at_byte<ELEMENT>(a.result, a.result_offset);
#pragma unroll
  for (int i = 0; i < ITEMS; i++) {
    const int row = ty + LANES * i;
    if (first + row >= h.q_steps) continue;
    const bool has_keys = tiles.low[row] < tiles.high[row];
    const long long vector = static_cast<long long>(s.q_base + (first + row) * h.q_strides.time) * h.heads + head;
    const COMPUTE inverse = 1 / total[i];
#pragma unroll
    for (int j = 0; j < ITEMS; j++) {
      const int c = column + tx + LANES * j;
      if (c < h.v.size) result[vector * h.v.size + c] = store<ELEMENT>(has_keys ? sums[i][j] * inverse : COMPUTE(0));
    }
    if (a.statistics_offset >= 0 && chunk == 0 && tx == 0 && first + row < s.q_length) {
      COMPUTE* const statistics = at_byte<COMPUTE>(a.space, a.statistics_offset) + 2 * vector;
      statistics[0] = maximum[i] == -INFINITY ? COMPUTE(0) : maximum[i];
      statistics[1] = has_keys ? inverse : COMPUTE(0);
    }
  }
}
