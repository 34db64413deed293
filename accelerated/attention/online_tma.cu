// This file computes multi-head attention forward (7.2.43) on Hopper's tensor cores, fed by TMA. Vectors have up to
// SIZE elements: half, bfloat16, or float split in two. Sums are float.
//
// Persistent blocks take items of work: 64 queries of one head per warpgroup. A producer warpgroup loads queries, and
// tiles of KEYS keys and values, into STAGES stages of shared memory. The products for the next tile's scores and for
// this tile's sums are in flight together. The softmax therefore overlaps with the sums, and with products of other
// warpgroups.
//
// Roofline bound: flops, 2 (size of q + size of v) for each pair of a query and a key in its window, at 989 TFLOP/s
// (half, H200). Each pair also takes an exponential; an SM computes 16 per clock. Bytes: a block's queries read keys
// and values once from L2.
#include "attention/online_softmax.cuh"
#include "attention/tma_items.cuh"

constexpr int TILE_BYTES = KEYS / 64 * BLOCK_BYTES;
// Results of 16 bits pass through rows of their own, or through the queries' rows where both do not fit.
constexpr bool RESULTS_IN_QUERIES = SIZE > 128;

struct OnlineTmaArguments {
  const void* q;  // The maps read these three operands.
  const void* k;
  const void* v;  // The kernel also reads infinities and NaNs of v from memory.
  void* space;
  void* result;
  void* out;  // also gets the results, unless it is null
  long long reserved[2];
  TensorMap q_map[PARTS], k_map[PARTS], v_map[PARTS];
  Heads heads;
  long long result_offset, statistics_offset;  // bytes; -1 means that no statistics are kept
  long long counter_offset;
  Division division;
};

// Describes an item to the consumers; the producers write it.
struct Work {
  Sequence s;
  KeyTiles keys;
};

// Describes the pipelines between the producers and the consumers. `infinite` is one more than the last tile of a
// stage whose values have infinities or NaNs that weights of zero must not multiply.
struct Pipelines {
  ItemQueue items;
  Mbarrier queries_full, queries_empty;
  Mbarrier keys_full[STAGES], keys_empty[STAGES], values_loaded[STAGES], values_full[STAGES], values_empty[STAGES];
  int infinite[STAGES];
  Work work;
};

struct SharedTiles {
  unsigned char *queries, *keys, *values, *results;
};

__device__ __forceinline__ void produce(const OnlineTmaArguments& a, Pipelines& p, const SharedTiles& t) {
  const Heads& h = a.heads;
  unsigned count = 0, searched = 0;  // tiles so far; one bit per stage: the parity of its next search
  const auto search = [&](unsigned stage) {
    mbarrier_wait_parity(&p.values_loaded[stage], searched >> stage & 1);
    searched ^= 1u << stage;
    for (int block = 0; block < KEYS / 64; block++) {
      unsigned char* const tile = t.values + stage * TILE_BYTES + block * BLOCK_BYTES;
      if (!has_infinite<64, SEARCHERS, FIRST_SEARCHER>(tile)) continue;
      zero_infinite<64, SEARCHERS, FIRST_SEARCHER>(tile);
      fence_proxy_async();
      atomicMax(&p.infinite[stage], count + 1);
    }
    mbarrier_arrive(&p.values_full[stage]);
  };
  for (int round = 0;; round++) {
    const int index = take_item(p.items, at_byte<int>(a.space, a.counter_offset), round);
    if (index >= a.division.items) break;
    const Item item(a.division, index, true);
    const Sequence s = sequence_of(h, a.space, item.batch, item.beam);
    const KeyTiles tiles = find_keys<KEYS>(h, a.space, s, item.first);
    const auto coordinates = [&](const Vectors& vectors, int beam) -> Coordinates {
      return {vectors.head > 0 ? item.head : 0, beam, item.batch};
    };
    const int key_beam = h.key_beams > 1 ? item.beam : 0;
    if (threadIdx.x == LOADER) {
      mbarrier_wait_parity(&p.queries_empty, (round + 1) & 1);
      p.work = {s, tiles};
      mbarrier_arrive_expect_tx(&p.queries_full, tiles.count > 0 ? OWN_BYTES : 0);
      if (tiles.count > 0)
        load_vectors(t.queries, WARPGROUPS, true, a.q_map, &p.queries_full, h.q_first + item.first,
                     coordinates(h.q, item.beam));
    }
    for (int i = 0; i < tiles.count; i++, count++) {
      const int stage = count % STAGES, free = (count / STAGES + 1) & 1, key = tiles.begin + i * KEYS;
      const bool seeks = seeks_infinite(tiles.span.is_full(key, KEYS));
      unsigned char* const values = t.values + stage * TILE_BYTES;
      if (threadIdx.x == LOADER) {
        mbarrier_wait_parity(&p.keys_empty[stage], free);
        mbarrier_arrive_expect_tx(&p.keys_full[stage], TILE_BYTES);
        load_vectors(t.keys + stage * TILE_BYTES, KEYS / 64, true, a.k_map, &p.keys_full[stage], key,
                     coordinates(h.k, key_beam));
        mbarrier_wait_parity(&p.values_empty[stage], free);
        Mbarrier* const loaded = seeks ? &p.values_loaded[stage] : &p.values_full[stage];
        mbarrier_arrive_expect_tx(loaded, TILE_BYTES);
        load_vectors(values, KEYS / 64, false, a.v_map, loaded, key, coordinates(h.v, key_beam));
        if (!seeks) mbarrier_arrive(&p.values_full[stage], SEARCHERS - 1);  // One thread arrives for all searchers.
      }
      if (seeks && threadIdx.x >= FIRST_SEARCHER) search(stage);
    }
  }
}

__device__ __forceinline__ void consume(const OnlineTmaArguments& a, Pipelines& p, const SharedTiles& t) {
  const Heads& h = a.heads;
  const int lane = threadIdx.x % 32, warp_row = threadIdx.x / 32 * 16;
  const float factor = h.scaler * LOG2_E;
  unsigned count = 0;
  for (int round = 0;; round++) {
    const int index = take_item(p.items, at_byte<int>(a.space, a.counter_offset), round);
    if (index >= a.division.items) break;
    const Item item(a.division, index, true);
    mbarrier_wait_parity(&p.queries_full, round & 1);
    const Work work = p.work;
    const Sequence& s = work.s;
    const int tiles = work.keys.count, begin = work.keys.begin;
    Window window[2];
#pragma unroll
    for (int part = 0; part < 2; part++)
      window[part] = window_of(h, a.space, s, item.first + warp_row + lane / 4 + 8 * part);
    Softmax softmax{{-INFINITY, -INFINITY}, {0, 0}};
    float sums[SIZE / 2] = {}, rescale[2];
    Factors<KEYS> weights;

    const auto release_queries = [&](bool have_results) {
      if (have_results == RESULTS_IN_QUERIES) release(&p.queries_empty);
    };
    const auto add_scores = [&](float (&scores)[KEYS / 2], int key) {
      if (work.keys.span.is_full(key, KEYS)) softmax.add<false>(scores, rescale, factor, window, key);
      else softmax.add<true>(scores, rescale, factor, window, key);
    };
    const auto wait_for_values = [&](int index) {
      const unsigned tile = count + index, stage = tile % STAGES;
      mbarrier_wait_parity(&p.values_full[stage], tile / STAGES & 1);
      if (p.infinite[stage] == tile + 1)
        add_infinite<KEYS, true>(sums, Source(a.v, h.v, s.k_base, h.k_strides.time, item.head, s.k_length),
                                 begin + index * KEYS, [&](int part, int key) { return window[part].has(key); });
    };
    const auto add_values = [&](int index) {
      wgmma_fence();
      add_weighed(sums, weights, t.values + (count + index) % STAGES * TILE_BYTES);
      wgmma_commit();
    };

    if (tiles > 0) {
      const unsigned stage = count % STAGES;
      mbarrier_wait_parity(&p.keys_full[stage], count / STAGES & 1);
      float scores[KEYS / 2];
      multiply_vectors<ROWS, KEYS>(scores, t.queries, t.keys + stage * TILE_BYTES);
      wgmma_wait<0>();
      wgmma_fence_accumulators(scores);
      release(&p.keys_empty[stage]);
      if (tiles == 1) release_queries(false);
      add_scores(scores, begin);
      weights.make(scores);
    } else {
      release_queries(false);
    }
    for (int index = 0; index + 1 < tiles; index++) {
      const unsigned next = count + index + 1, stage = next % STAGES;
      mbarrier_wait_parity(&p.keys_full[stage], next / STAGES & 1);
      wait_for_values(index);
      float scores[KEYS / 2];
      multiply_vectors<ROWS, KEYS>(scores, t.queries, t.keys + stage * TILE_BYTES);
      add_values(index);
      wgmma_wait<1>();
      wgmma_fence_accumulators(scores);
      release(&p.keys_empty[stage]);
      if (index + 2 == tiles) release_queries(false);
      add_scores(scores, begin + (index + 1) * KEYS);
      wgmma_wait<0>();
      wgmma_fence_accumulators(sums);
      release(&p.values_empty[(count + index) % STAGES]);
      if (__any_sync(~0u, rescale[0] != 1 || rescale[1] != 1))  // This is rare once the maxima have been met.
#pragma unroll
        for (int i = 0; i < SIZE / 2; i++) sums[i] *= rescale[i / 2 % 2];
      weights.make(scores);
    }
    if (tiles > 0) {
      wait_for_values(tiles - 1);
      add_values(tiles - 1);
      wgmma_wait<0>();
      wgmma_fence_accumulators(sums);
      release(&p.values_empty[(count + tiles - 1) % STAGES]);
    }
    count += tiles;

    const auto vector_of = [&](int row) {
      return static_cast<long long>(s.q_base + (item.first + row) * h.q_strides.time) * h.heads + item.head;
    };
    float* const statistics = a.statistics_offset < 0 ? nullptr : at_byte<float>(a.space, a.statistics_offset);
    finish_sums(sums, softmax, window, h.scaler, statistics, warp_row, s.q_length - item.first, vector_of);
    const auto store_to = [&](ELEMENT* result) {
      __syncwarp();
      store_rows<ROWS>(t.results + warp_row * ROW_BYTES, sums, h.v.size, [&](int row) -> ELEMENT* {
        return item.first + warp_row + row < h.q_steps ? result + vector_of(warp_row + row) * h.v.size : nullptr;
      });
    };
    store_to(at_byte<ELEMENT>(a.result, a.result_offset));
    if (a.out) store_to(static_cast<ELEMENT*>(a.out));
    if constexpr (RESULTS_IN_QUERIES) fence_proxy_async();
    release_queries(true);
  }
}

extern "C" __global__ void __launch_bounds__(CONSUMERS + WARPGROUP, 1)
    attention_online_tma(const __grid_constant__ OnlineTmaArguments a) {
  griddepcontrol_wait();
#if defined(EMULATED_CUDA) || defined(WGMMA_INSTRUCTIONS)
  __shared__ Pipelines pipelines;
  if (threadIdx.x == 0) {
    pipelines.items.initialise();
    mbarrier_init(&pipelines.queries_full, 1), mbarrier_init(&pipelines.queries_empty, CONSUMERS / 32);
    for (int stage = 0; stage < STAGES; stage++) {
      mbarrier_init(&pipelines.keys_full[stage], 1), mbarrier_init(&pipelines.values_loaded[stage], 1);
      mbarrier_init(&pipelines.values_full[stage], SEARCHERS);
      mbarrier_init(&pipelines.keys_empty[stage], CONSUMERS / 32);
      mbarrier_init(&pipelines.values_empty[stage], CONSUMERS / 32);
      pipelines.infinite[stage] = 0;
    }
    fence_mbarrier_init();
  }
  __syncthreads();
  unsigned char* const queries = shared_memory + (-reinterpret_cast<uintptr_t>(shared_memory) & 1023);
  unsigned char *const keys = queries + OWN_BYTES, *const values = keys + STAGES * TILE_BYTES;
  const SharedTiles tiles{queries, keys, values, RESULTS_IN_QUERIES ? queries : values + STAGES * TILE_BYTES};
  run_roles([&] { produce(a, pipelines, tiles); }, [&] { consume(a, pipelines, tiles); });
#endif
}
