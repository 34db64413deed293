// The core of multi-head attention forward (7.2.43) on tensor cores: softmax(scaler * q . k) weighs the values of each
// query's window; vectors of up to SIZE elements, half, bfloat16 or float in parts, sums in float.
//
// A warpgroup has 64 queries and goes through the tiles of KEYS keys of its block's windows with an online softmax. The
// scores of the next tile and the sums of this one are multiplied together, so that the softmax of the next scores
// overlaps with the weighted sums; weights are left factors in registers. Two stages of keys and values by cp.async.
//
// Roofline bound: flops, 2 (size of q + size of v) for each query and key of its window, at 989 T/s (half, H200); one
// exponential for each, 16 a clock and multiprocessor; bytes, keys and values once from L2 for a tile of queries.
#include "attention/online_softmax.cuh"

constexpr int THREADS_OF_BLOCK = 128 * WARPGROUPS, QUERIES = 64 * WARPGROUPS;
constexpr int PART_BYTES = PARTS * 64 * SIZE * 2;  // of 64 values
constexpr int TILE_BYTES = KEYS / 64 * PART_BYTES, QUERY_BYTES = WARPGROUPS * PART_BYTES;

struct OnlineArguments {
  const void* q;
  const void* k;
  const void* v;
  void* space;
  void* result;
  Heads heads;
  long long result_offset, statistics_offset;  // bytes; statistics of -1 are not kept
  FastDivmod tiles, head_count, beam_count;
};

extern "C" __global__ void __launch_bounds__(THREADS_OF_BLOCK, BLOCKS) attention_online_mma(const OnlineArguments a) {
  griddepcontrol_wait();
  const Heads& h = a.heads;
  unsigned tile, head, beam;
  const unsigned batch = a.beam_count.divide(a.head_count.divide(a.tiles.divide(blockIdx.x, tile), head), beam);
  const Sequence s = sequence_of(h, a.space, batch, beam);
  const int first = (a.tiles.divisor - 1 - tile) * QUERIES;  // late queries, which may have more keys, begin first
  unsigned char* const queries = shared_memory + (-reinterpret_cast<uintptr_t>(shared_memory) & 1023);
  unsigned char *const keys = queries + QUERY_BYTES, *const values = keys + 2 * TILE_BYTES;
  const Source q(a.q, h.q, s.q_base, h.q_strides.time, head, s.q_length);
  const Source k(a.k, h.k, s.k_base, h.k_strides.time, head, s.k_length);
  const Source v(a.v, h.v, s.k_base, h.k_strides.time, head, s.k_length);
  const Span span = span_of<QUERIES, THREADS_OF_BLOCK>(h, a.space, s, first);
  const int begin = span.low / KEYS * KEYS, tiles = span.high > begin ? (span.high - begin + KEYS - 1) / KEYS : 0;

  const int lane = threadIdx.x % 32, warp_row = threadIdx.x / 32 * 16;
  Window window[2];
#pragma unroll
  for (int part = 0; part < 2; part++) window[part] = window_of(h, a.space, s, first + warp_row + lane / 4 + 8 * part);
  const float factor = h.scaler * LOG2_E;
  Softmax softmax{{-INFINITY, -INFINITY}, {0, 0}};
  float sums[SIZE / 2] = {}, rescale[2];
  Factors<KEYS> weights;

  const auto add_scores = [&](float (&scores)[KEYS / 2], int key) {
    if (span.is_full(key, KEYS)) softmax.add<false>(scores, rescale, factor, window, key);
    else softmax.add<true>(scores, rescale, factor, window, key);
  };
  // Values lie in parts of 64 keys.
  const auto copy_values = [&](int index) {
#pragma unroll
    for (int part = 0; part < KEYS / 64; part++)
      copy_tile<64, THREADS_OF_BLOCK>(values + index % 2 * TILE_BYTES + part * PART_BYTES, v,
                                      begin + index * KEYS + 64 * part);
  };

  if (tiles > 0) {
    copy_tile<QUERIES, THREADS_OF_BLOCK>(queries, q, first);
    copy_tile<KEYS, THREADS_OF_BLOCK>(keys, k, begin);
    cp_async_commit();
    copy_values(0);
    if (tiles > 1) copy_tile<KEYS, THREADS_OF_BLOCK>(keys + TILE_BYTES, k, begin + KEYS);
    cp_async_commit();
    cp_async_wait<1>();
    fence_proxy_async();
    __syncthreads();
    float scores[KEYS / 2];
    multiply_vectors<QUERIES, KEYS>(scores, queries, keys);
    wgmma_wait<0>();
    wgmma_fence_accumulators(scores);
    add_scores(scores, begin);
    weights.make(scores);
  }
  // Waits for the values of a tile, and the keys of the next one.
  const auto wait_for_values = [&](int index) {
    unsigned char* const tile = values + index % 2 * TILE_BYTES;
    const int key = begin + index * KEYS;
    cp_async_wait<0>();
    fence_proxy_async();
    if (!seeks_infinite(span.is_full(key, KEYS))) return __syncthreads();
    bool found = false;
#pragma unroll
    for (int part = 0; part < KEYS / 64; part++) found |= has_infinite<64, THREADS_OF_BLOCK>(tile + part * PART_BYTES);
    if (!__syncthreads_or(found)) return;
    for (int part = 0; part < KEYS / 64; part++)
      add_infinite<64, THREADS_OF_BLOCK, true>(
          sums, tile + part * PART_BYTES, [&](int i, int vector) { return window[i].has(key + 64 * part + vector); },
          [] { __syncthreads(); });
  };
  const auto add_values = [&](int index) {
    wgmma_fence();
    add_weighed(sums, weights, values + index % 2 * TILE_BYTES);
    wgmma_commit();
  };
  for (int index = 0; index + 1 < tiles; index++) {
    wait_for_values(index);  // the stages of these keys and the last values are free
    float scores[KEYS / 2];
    multiply_vectors<QUERIES, KEYS>(scores, queries, keys + (index + 1) % 2 * TILE_BYTES);
    add_values(index);
    const int key = begin + (index + 1) * KEYS;
    if (index + 2 < tiles) copy_tile<KEYS, THREADS_OF_BLOCK>(keys + index % 2 * TILE_BYTES, k, key + KEYS);
    copy_values(index + 1);
    cp_async_commit();
    wgmma_wait<1>();
    wgmma_fence_accumulators(scores);
    add_scores(scores, key);
    wgmma_wait<0>();
    wgmma_fence_accumulators(sums);
    if (__any_sync(~0u, rescale[0] != 1 || rescale[1] != 1))  // seldom, once the maxima are met
#pragma unroll
      for (int i = 0; i < SIZE / 2; i++) sums[i] *= rescale[i / 2 % 2];
    weights.make(scores);
  }
  if (tiles > 0) {
    wait_for_values(tiles - 1);
    add_values(tiles - 1);
    wgmma_wait<0>();
    wgmma_fence_accumulators(sums);
  }

  const auto vector_of = [&](int row) {
    return static_cast<long long>(s.q_base + (first + row) * h.q_strides.time) * h.heads + head;
  };
  float* const statistics = a.statistics_offset < 0 ? nullptr : at_byte<float>(a.space, a.statistics_offset);
  finish_sums(sums, softmax, window, h.scaler, statistics, warp_row, s.q_length - first, vector_of);
  ELEMENT* const result = at_byte<ELEMENT>(a.result, a.result_offset);
  store_rows<QUERIES>(queries + warp_row * ROW_BYTES, sums, h.v.size, [&](int row) -> ELEMENT* {
    return first + warp_row + row < h.q_steps ? result + vector_of(warp_row + row) * h.v.size : nullptr;
  });
}
