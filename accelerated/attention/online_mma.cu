// The core of multi-head attention forward (7.2.43) on tensor cores: softmax(scaler * q . k) weighs the values of each
// query's window; vectors of up to SIZE elements, half, bfloat16 or float in parts, sums in float.
//
// A producer warpgroup copies tiles of KEYS keys and values to STAGES stages by cp.async. Each of the others has 64
// queries and an online softmax: the scores of the next tile and the sums of this one are multiplied together, so that
// the softmax of the next scores overlaps with the weighted sums; weights are left factors in registers.
//
// Roofline bound: flops, 2 (size of q + size of v) for each query and key of its window, at 989 T/s (half, H200); one
// exponential for each, 16 a clock and multiprocessor; bytes, keys and values once from L2 for a tile of queries.
#include "attention/tiles.cuh"

constexpr int CONSUMERS = 128 * WARPGROUPS, THREADS_OF_BLOCK = CONSUMERS + PRODUCERS, QUERIES = 64 * WARPGROUPS;
constexpr int PART_BYTES = PARTS * 64 * SIZE * 2;  // of 64 values
constexpr int TILE_BYTES = KEYS / 64 * PART_BYTES, QUERY_BYTES = WARPGROUPS * PART_BYTES;
constexpr int GROUPS_IN_FLIGHT = 2;  // of copies: keys and values of a tile

struct OnlineArguments {
  const void* q;
  const void* k;
  const void* v;
  void* space;
  Heads heads;
  long long result_offset, statistics_offset;  // bytes; statistics of -1 are not kept
  FastDivmod tiles, head_count, beam_count;
};

// The online-softmax state of two rows: rows lane / 4 and lane / 4 + 8 of a warp.
struct Softmax {
  float maximum[2], total[2];

  // Scores become weights; rescale: what the sums so far are multiplied by. total: of this thread's columns.
  template <bool MASKED>
  __device__ __forceinline__ void add(float (&scores)[KEYS / 2], float (&rescale)[2], float factor,
                                      const Window (&window)[2], int key) {
#pragma unroll
    for (int part = 0; part < 2; part++) {
      float highest = maximum[part];
#pragma unroll
      for (int n = 0; n < KEYS / 8; n++)
#pragma unroll
        for (int i = 0; i < 2; i++) {
          float& score = scores[4 * n + 2 * part + i];
          if (MASKED && !window[part].has(key + 8 * n + threadIdx.x % 4 * 2 + i)) score = -INFINITY;
          highest = max(highest, score);
        }
      highest = max(highest, __shfl_xor_sync(~0u, highest, 1));
      highest = max(highest, __shfl_xor_sync(~0u, highest, 2));
      const float shift = highest == -INFINITY ? 0.0f : highest * factor;
      rescale[part] = maximum[part] == -INFINITY ? 0.0f : exp2_of(maximum[part] * factor - shift);
      maximum[part] = highest;
      float sum = 0;
#pragma unroll
      for (int n = 0; n < KEYS / 8; n++)
#pragma unroll
        for (int i = 0; i < 2; i++) {
          float& score = scores[4 * n + 2 * part + i];
          const float weight = exp2_of(score * factor - shift);
          // A factor of zero makes no number of a score of minus infinity.
          score = MASKED && !window[part].has(key + 8 * n + threadIdx.x % 4 * 2 + i) ? 0.0f : weight;
          sum += score;
        }
      total[part] = total[part] * rescale[part] + sum;
    }
  }
};

// The pipelines between the producers and the warpgroups. infinite: the number behind that of the last tile of a stage
// whose values have what weights of zero must not meet.
struct Pipelines {
  Mbarrier queries_full, keys_full[STAGES], keys_empty[STAGES], values_full[STAGES], values_empty[STAGES];
  int infinite[STAGES];
};

struct Work {
  const OnlineArguments& a;
  Sequence s;
  Span span;
  unsigned head;
  int first, begin, tiles;  // of the queries; of the keys
  unsigned char *queries, *keys, *values;
  Pipelines& pipelines;

  __device__ __forceinline__ Source values_source() const {
    const Heads& h = a.heads;
    return Source(a.v, h.v, s.k_base, h.k_strides.time, head, s.k_length);
  }
};

// Copies tiles of keys and values in turns, each as soon as its stage is free.
__device__ __forceinline__ void produce(const Work& w) {
  const Heads& h = w.a.heads;
  const Source k(w.a.k, h.k, w.s.k_base, h.k_strides.time, w.head, w.s.k_length), v = w.values_source();
  const auto publish = [&](int group) {  // a tile that has arrived: keys, or values
    const int index = group / 2, stage = index % STAGES, key = w.begin + index * KEYS;
    fence_proxy_async();
    if (group == 0) mbarrier_arrive(&w.pipelines.queries_full);
    if (group % 2 == 0) return mbarrier_arrive(&w.pipelines.keys_full[stage]);
    if (seeks_infinite(w.span.is_full(key, KEYS)))
      for (int part = 0; part < KEYS / 64; part++) {
        unsigned char* const tile = w.values + stage * TILE_BYTES + part * PART_BYTES;
        if (set_infinite_apart<64, PRODUCERS>(tile)) atomicMax(&w.pipelines.infinite[stage], index + 1);
      }
    mbarrier_arrive(&w.pipelines.values_full[stage]);
  };
  copy_tile<QUERIES, PRODUCERS>(w.queries, Source(w.a.q, h.q, w.s.q_base, h.q_strides.time, w.head, w.s.q_length),
                                w.first);
  for (int group = 0; group < 2 * w.tiles; group++) {
    const int index = group / 2, stage = index % STAGES, parity = (index / STAGES - 1) & 1;
    const int key = w.begin + index * KEYS;
    if (group % 2 == 0) {
      if (index >= STAGES) mbarrier_wait_parity(&w.pipelines.keys_empty[stage], parity);
      copy_tile<KEYS, PRODUCERS>(w.keys + stage * TILE_BYTES, k, key);
    } else {
      if (index >= STAGES) mbarrier_wait_parity(&w.pipelines.values_empty[stage], parity);
      for (int part = 0; part < KEYS / 64; part++)  // values lie in parts of 64
        copy_tile<64, PRODUCERS>(w.values + stage * TILE_BYTES + part * PART_BYTES, v, key + 64 * part);
    }
    cp_async_commit();
    if (group < GROUPS_IN_FLIGHT) continue;
    cp_async_wait<GROUPS_IN_FLIGHT>();
    publish(group - GROUPS_IN_FLIGHT);
  }
  cp_async_wait<0>();
  for (int group = max(0, 2 * w.tiles - GROUPS_IN_FLIGHT); group < 2 * w.tiles; group++) publish(group);
}

__device__ __forceinline__ void consume(const Work& w) {
  const OnlineArguments& a = w.a;
  const Heads& h = a.heads;
  const Sequence& s = w.s;
  Pipelines& p = w.pipelines;
  const int lane = threadIdx.x % 32, warp_row = threadIdx.x / 32 * 16;
  Window window[2];
#pragma unroll
  for (int part = 0; part < 2; part++)
    window[part] = window_of(h, a.space, s, w.first + warp_row + lane / 4 + 8 * part);
  const float factor = h.scaler * LOG2_E;
  Softmax softmax{{-INFINITY, -INFINITY}, {0, 0}};
  float sums[SIZE / 2] = {}, rescale[2];
  Factors<KEYS> weights;
  const auto add_scores = [&](float (&scores)[KEYS / 2], int key) {
    if (w.span.is_full(key, KEYS)) softmax.add<false>(scores, rescale, factor, window, key);
    else softmax.add<true>(scores, rescale, factor, window, key);
  };
  const auto wait_for_values = [&](int index) {
    mbarrier_wait_parity(&p.values_full[index % STAGES], index / STAGES & 1);
    if (p.infinite[index % STAGES] == index + 1)
      add_infinite<KEYS, true>(sums, w.values_source(), w.begin + index * KEYS,
                               [&](int part, int key) { return window[part].has(key); });
  };
  const auto add_values = [&](int index) {
    wgmma_fence();
    add_weighed(sums, weights, w.values + index % STAGES * TILE_BYTES);
    wgmma_commit();
  };

  if (w.tiles > 0) {
    mbarrier_wait_parity(&p.queries_full, 0);
    mbarrier_wait_parity(&p.keys_full[0], 0);
    float scores[KEYS / 2];
    multiply_vectors<QUERIES, KEYS>(scores, w.queries, w.keys);
    wgmma_wait<0>();
    wgmma_fence_accumulators(scores);
    release(&p.keys_empty[0]);
    add_scores(scores, w.begin);
    weights.make(scores);
  }
  for (int index = 0; index + 1 < w.tiles; index++) {
    const int next = index + 1;
    wait_for_values(index);
    mbarrier_wait_parity(&p.keys_full[next % STAGES], next / STAGES & 1);
    float scores[KEYS / 2];
    multiply_vectors<QUERIES, KEYS>(scores, w.queries, w.keys + next % STAGES * TILE_BYTES);
    add_values(index);
    wgmma_wait<1>();
    wgmma_fence_accumulators(scores);
    release(&p.keys_empty[next % STAGES]);
    add_scores(scores, w.begin + next * KEYS);
    wgmma_wait<0>();
    wgmma_fence_accumulators(sums);
    release(&p.values_empty[index % STAGES]);
    if (__any_sync(~0u, rescale[0] != 1 || rescale[1] != 1))  // seldom, once the maxima are met
#pragma unroll
      for (int i = 0; i < SIZE / 2; i++) sums[i] *= rescale[i / 2 % 2];
    weights.make(scores);
  }
  if (w.tiles > 0) {
    wait_for_values(w.tiles - 1);
    add_values(w.tiles - 1);
    wgmma_wait<0>();
    wgmma_fence_accumulators(sums);
  }

  const auto vector_of = [&](int row) {
    return static_cast<long long>(s.q_base + (w.first + row) * h.q_strides.time) * h.heads + w.head;
  };
#pragma unroll
  for (int part = 0; part < 2; part++) {
    float total = softmax.total[part];
    total += __shfl_xor_sync(~0u, total, 1);
    total += __shfl_xor_sync(~0u, total, 2);
    const bool has_keys = window[part].low < window[part].high;
    const float inverse = has_keys ? 1 / total : 0.0f;
#pragma unroll
    for (int n = 0; n < SIZE / 8; n++)
#pragma unroll
      for (int i = 0; i < 2; i++) sums[4 * n + 2 * part + i] *= inverse;
    const int row = warp_row + lane / 4 + 8 * part;
    if (a.statistics_offset >= 0 && lane % 4 == 0 && w.first + row < s.q_length) {
      float* const statistics = at_byte<float>(a.space, a.statistics_offset) + 2 * vector_of(row);
      statistics[0] = softmax.maximum[part] == -INFINITY ? 0.0f : softmax.maximum[part] * h.scaler;
      statistics[1] = inverse;
    }
  }
  ELEMENT* const result = at_byte<ELEMENT>(a.space, a.result_offset);
  store_rows<QUERIES>(w.queries + warp_row * ROW_BYTES, sums, h.v.size, [&](int row) -> ELEMENT* {
    return w.first + warp_row + row < h.q_steps ? result + vector_of(warp_row + row) * h.v.size : nullptr;
  });
}

extern "C" __global__ void __launch_bounds__(THREADS_OF_BLOCK, 1) attention_online_mma(const OnlineArguments a) {
  griddepcontrol_wait();
  __shared__ Pipelines pipelines;
  const Heads& h = a.heads;
  unsigned tile, head, beam;
  const unsigned batch = a.beam_count.divide(a.head_count.divide(a.tiles.divide(blockIdx.x, tile), head), beam);
  const Sequence s = sequence_of(h, a.space, batch, beam);
  const int first = (a.tiles.divisor - 1 - tile) * QUERIES;  // late queries, which may have more keys, begin first
  if (threadIdx.x == 0) {
    mbarrier_init(&pipelines.queries_full, PRODUCERS);
    for (int stage = 0; stage < STAGES; stage++) {
      mbarrier_init(&pipelines.keys_full[stage], PRODUCERS), mbarrier_init(&pipelines.values_full[stage], PRODUCERS);
      mbarrier_init(&pipelines.keys_empty[stage], CONSUMERS / 32);
      mbarrier_init(&pipelines.values_empty[stage], CONSUMERS / 32);
      pipelines.infinite[stage] = 0;
    }
    fence_mbarrier_init();
  }
  const Span span = span_of<QUERIES, THREADS_OF_BLOCK>(h, a.space, s, first);  // all threads meet
  const int begin = span.low / KEYS * KEYS, tiles = span.high > begin ? (span.high - begin + KEYS - 1) / KEYS : 0;
  unsigned char* const queries = shared_memory + (-reinterpret_cast<uintptr_t>(shared_memory) & 1023);
  unsigned char *const keys = queries + QUERY_BYTES, *const values = keys + STAGES * TILE_BYTES;
  const Work w{a, s, span, head, first, begin, tiles, queries, keys, values, pipelines};
  if (threadIdx.x >= CONSUMERS) {
    setmaxnreg_decrease<PRODUCER_REGISTERS>();
    if (tiles > 0) produce(w);
  } else {
    setmaxnreg_increase<CONSUMER_REGISTERS>();
    consume(w);
  }
}
