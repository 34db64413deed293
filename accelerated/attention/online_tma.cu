// The core of multi-head attention forward (7.2.43) on Hopper's tensor cores, fed by TMA: half and bfloat16, vectors of
// up to SIZE elements, sums in float, as in online_mma.cu.
//
// Blocks stay and take items of work, 64 queries of one head for each warpgroup, in turns. A producer warpgroup loads
// queries, and tiles of KEYS keys and values into STAGES stages of shared memory; consumers multiply them in turns, so
// that the softmax of one overlaps with the products of another, and of the next scores with the weighted sums.
//
// Roofline bound: flops, 2 (size of q + size of v) for each query and key of its window, at 989 T/s (half, H200); one
// exponential for each, 16 a clock and multiprocessor; bytes, keys and values once from L2 for a block's queries.
#include "attention/online_softmax.cuh"
#include "primitives/tma.cuh"

constexpr int WARPGROUP = 128, CONSUMERS = WARPGROUP * WARPGROUPS, QUERIES = 64 * WARPGROUPS;
constexpr int BOX_BYTES = 64 * ROW_BYTES, PART_BYTES = BOXES * BOX_BYTES;  // 64 elements, or all, of 64 vectors
constexpr int TILE_BYTES = KEYS / 64 * PART_BYTES, QUERY_BYTES = WARPGROUPS * PART_BYTES;
// Of the block's threads together no more than it is launched with
constexpr int PRODUCER_REGISTERS = WARPGROUPS == 2 ? 40 : 32, CONSUMER_REGISTERS = WARPGROUPS == 2 ? 232 : 160;

struct OnlineTmaArguments {
  const void* q;  // these three are read through the maps
  const void* k;
  const void* v;  // and what is no number among them from memory
  void* space;
  void* result;
  long long reserved[3];
  TensorMap q_map, k_map, v_map;
  Heads heads;
  long long result_offset, statistics_offset;  // bytes; statistics of -1 are not kept
  FastDivmod tiles, head_count, beam_count;
  int items;
};

// A block's queries of one head, and the tiles of keys from `begin` on that meet their windows.
struct Item {
  Sequence s;
  Span span;
  int first, head, beam, batch;
  int begin, tiles;
};

// The pipelines between the producers and the consumers. infinite: the number behind that of the last tile of a stage
// whose values have what weights of zero must not meet.
struct Pipelines {
  Mbarrier queries_full, queries_empty;
  Mbarrier keys_full[STAGES], keys_empty[STAGES], values_loaded[STAGES], values_full[STAGES], values_empty[STAGES];
  int infinite[STAGES];
  Item item;
};

struct SharedTiles {
  unsigned char *queries, *keys, *values, *results;
};

// Blocks take items there and back, as neighbouring items of windows up to each query become smaller.
__device__ __forceinline__ int item_of(int round) {
  return round * gridDim.x + (round % 2 == 0 ? blockIdx.x : gridDim.x - 1 - blockIdx.x);
}

// All lanes of a warp.
__device__ __forceinline__ Item find_item(const OnlineTmaArguments& a, int index) {
  const Heads& h = a.heads;
  unsigned tile, head, beam;
  Item item;
  item.batch = a.beam_count.divide(a.head_count.divide(a.tiles.divide(index, tile), head), beam);
  item.head = head, item.beam = beam;
  item.first = (a.tiles.divisor - 1 - tile) * QUERIES;  // late queries, which may have more keys, begin first
  item.s = sequence_of(h, a.space, item.batch, item.beam);
  Span span{INT_MAX, 0, 0, INT_MAX};
#pragma unroll
  for (int i = 0; i < QUERIES / 32; i++) {
    const int query = item.first + threadIdx.x % 32 + 32 * i;
    if (query < item.s.q_length) span.add(window_of(h, a.space, item.s, query));
  }
  span.join_lanes();
  item.span = span;
  item.begin = span.low / KEYS * KEYS;
  item.tiles = span.high > item.begin ? (span.high - item.begin + KEYS - 1) / KEYS : 0;
  return item;
}

// Loads 64 vectors: box b of them to b * apart.
__device__ __forceinline__ void load_vectors(unsigned char* to, int apart, const TensorMap& map, Mbarrier* full,
                                             int time, int head, int beam, int batch) {
#pragma unroll
  for (int box = 0; box < BOXES; box++) tma_load_5d(to + box * apart, map, full, box * BOX, time, head, beam, batch);
}

__device__ __forceinline__ void produce(const OnlineTmaArguments& a, Pipelines& p, const SharedTiles& t) {
  const Heads& h = a.heads;
  const bool loads = threadIdx.x == CONSUMERS;
  unsigned count = 0, scanned = 0;  // tiles so far; a bit for each stage, the parity of its next tile that is searched
  for (int round = 0; item_of(round) < a.items; round++) {
    const Item item = find_item(a, item_of(round));
    const int key_beam = h.key_beams > 1 ? item.beam : 0;
    if (loads) {
      mbarrier_wait_parity(&p.queries_empty, (round + 1) & 1);
      p.item = item;
      mbarrier_arrive_expect_tx(&p.queries_full, item.tiles > 0 ? QUERY_BYTES : 0);
      for (int i = 0; i < WARPGROUPS && item.tiles > 0; i++)
        load_vectors(t.queries + i * BOX_BYTES, WARPGROUPS * BOX_BYTES, a.q_map, &p.queries_full,
                     h.q_first + item.first + 64 * i, h.q.head > 0 ? item.head : 0, item.beam, item.batch);
    }
    for (int i = 0; i < item.tiles; i++, count++) {
      const int stage = count % STAGES, free = (count / STAGES + 1) & 1, key = item.begin + i * KEYS;
      const bool seeks = seeks_infinite(item.span.is_full(key, KEYS));
      unsigned char* const values = t.values + stage * TILE_BYTES;
      if (loads) {
        mbarrier_wait_parity(&p.keys_empty[stage], free);
        mbarrier_arrive_expect_tx(&p.keys_full[stage], TILE_BYTES);
        for (int part = 0; part < KEYS / 64; part++)
          load_vectors(t.keys + stage * TILE_BYTES + part * BOX_BYTES, KEYS * ROW_BYTES, a.k_map, &p.keys_full[stage],
                       key + 64 * part, h.k.head > 0 ? item.head : 0, key_beam, item.batch);
        mbarrier_wait_parity(&p.values_empty[stage], free);
        Mbarrier* const loaded = seeks ? &p.values_loaded[stage] : &p.values_full[stage];
        mbarrier_arrive_expect_tx(loaded, TILE_BYTES);
        for (int part = 0; part < KEYS / 64; part++)
          load_vectors(values + part * PART_BYTES, BOX_BYTES, a.v_map, loaded, key + 64 * part,
                       h.v.head > 0 ? item.head : 0, key_beam, item.batch);
        if (!seeks) mbarrier_arrive(&p.values_full[stage], WARPGROUP - 1);  // for all producers
      }
      if (!seeks) continue;
      mbarrier_wait_parity(&p.values_loaded[stage], scanned >> stage & 1);
      scanned ^= 1u << stage;
      for (int part = 0; part < KEYS / 64; part++) {
        unsigned char* const tile = values + part * PART_BYTES;
        if (!has_infinite<64, WARPGROUP, CONSUMERS>(tile)) continue;
        zero_infinite<64, WARPGROUP, CONSUMERS>(tile);
        fence_proxy_async();
        atomicMax(&p.infinite[stage], count + 1);
      }
      mbarrier_arrive(&p.values_full[stage]);
    }
  }
}

// After the products that read a stage.
__device__ __forceinline__ void release(Mbarrier* empty) {
  __syncwarp();
  if (threadIdx.x % 32 == 0) mbarrier_arrive(empty);
}

// Turns of the consumers' warpgroups to issue products; no data depends on them.
__device__ __forceinline__ void wait_for_turn(int warpgroup) {
#ifndef EMULATED_CUDA
  if (TURNS) asm volatile("bar.sync %0, %1;" ::"r"(warpgroup + 1), "n"(2 * WARPGROUP) : "memory");
#endif
}
__device__ __forceinline__ void pass_turn(int warpgroup) {
#ifndef EMULATED_CUDA
  if (TURNS) asm volatile("bar.arrive %0, %1;" ::"r"((warpgroup + 1) % WARPGROUPS + 1), "n"(2 * WARPGROUP) : "memory");
#endif
}

__device__ __forceinline__ void consume(const OnlineTmaArguments& a, Pipelines& p, const SharedTiles& t) {
  const Heads& h = a.heads;
  const int lane = threadIdx.x % 32, warp_row = threadIdx.x / 32 * 16, warpgroup = threadIdx.x / WARPGROUP;
  const float factor = h.scaler * LOG2_E;
  unsigned count = 0;
  if (warpgroup == WARPGROUPS - 1) pass_turn(warpgroup);
  for (int round = 0; item_of(round) < a.items; round++) {
    mbarrier_wait_parity(&p.queries_full, round & 1);
    const Item item = p.item;
    const int tiles = item.tiles, begin = item.begin;
    Window window[2];
#pragma unroll
    for (int part = 0; part < 2; part++)
      window[part] = window_of(h, a.space, item.s, item.first + warp_row + lane / 4 + 8 * part);
    Softmax softmax{{-INFINITY, -INFINITY}, {0, 0}};
    float sums[SIZE / 2] = {}, rescale[2];
    Factors<KEYS> weights;

    const auto add_scores = [&](float (&scores)[KEYS / 2], int key) {
      if (item.span.is_full(key, KEYS)) softmax.add<false>(scores, rescale, factor, window, key);
      else softmax.add<true>(scores, rescale, factor, window, key);
    };
    const auto wait_for_values = [&](int index) {
      const unsigned tile = count + index, stage = tile % STAGES;
      mbarrier_wait_parity(&p.values_full[stage], tile / STAGES & 1);
      if (p.infinite[stage] == tile + 1)
        add_infinite<KEYS, true>(sums, Source(a.v, h.v, item.s.k_base, h.k_strides.time, item.head, item.s.k_length),
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
      multiply_vectors<QUERIES, KEYS>(scores, t.queries, t.keys + stage * TILE_BYTES);
      wgmma_wait<0>();
      wgmma_fence_accumulators(scores);
      release(&p.keys_empty[stage]);
      if (tiles == 1) release(&p.queries_empty);
      add_scores(scores, begin);
      weights.make(scores);
    } else {
      release(&p.queries_empty);
    }
    for (int index = 0; index + 1 < tiles; index++) {
      const unsigned next = count + index + 1, stage = next % STAGES;
      mbarrier_wait_parity(&p.keys_full[stage], next / STAGES & 1);
      wait_for_values(index);
      wait_for_turn(warpgroup);
      float scores[KEYS / 2];
      multiply_vectors<QUERIES, KEYS>(scores, t.queries, t.keys + stage * TILE_BYTES);
      add_values(index);
      pass_turn(warpgroup);
      wgmma_wait<1>();
      wgmma_fence_accumulators(scores);
      release(&p.keys_empty[stage]);
      if (index + 2 == tiles) release(&p.queries_empty);
      add_scores(scores, begin + (index + 1) * KEYS);
      wgmma_wait<0>();
      wgmma_fence_accumulators(sums);
      release(&p.values_empty[(count + index) % STAGES]);
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
      release(&p.values_empty[(count + tiles - 1) % STAGES]);
    }
    count += tiles;

    const auto vector_of = [&](int row) {
      return static_cast<long long>(item.s.q_base + (item.first + row) * h.q_strides.time) * h.heads + item.head;
    };
    float* const statistics = a.statistics_offset < 0 ? nullptr : at_byte<float>(a.space, a.statistics_offset);
    finish_sums(sums, softmax, window, h.scaler, statistics, warp_row, item.s.q_length - item.first, vector_of);
    ELEMENT* const result = at_byte<ELEMENT>(a.result, a.result_offset);
    __syncwarp();
    store_rows<QUERIES>(t.results + warp_row * ROW_BYTES, sums, h.v.size, [&](int row) -> ELEMENT* {
      return item.first + warp_row + row < h.q_steps ? result + vector_of(warp_row + row) * h.v.size : nullptr;
    });
  }
}

extern "C" __global__ void __launch_bounds__(CONSUMERS + WARPGROUP, 1)
    attention_online_tma(const __grid_constant__ OnlineTmaArguments a) {
  griddepcontrol_wait();
#if defined(EMULATED_CUDA) || defined(WGMMA_INSTRUCTIONS)
  __shared__ Pipelines pipelines;
  if (threadIdx.x == 0) {
    mbarrier_init(&pipelines.queries_full, 1), mbarrier_init(&pipelines.queries_empty, CONSUMERS / 32);
    for (int stage = 0; stage < STAGES; stage++) {
      mbarrier_init(&pipelines.keys_full[stage], 1), mbarrier_init(&pipelines.values_loaded[stage], 1);
      mbarrier_init(&pipelines.values_full[stage], WARPGROUP);
      mbarrier_init(&pipelines.keys_empty[stage], CONSUMERS / 32);
      mbarrier_init(&pipelines.values_empty[stage], CONSUMERS / 32);
      pipelines.infinite[stage] = 0;
    }
    fence_mbarrier_init();
  }
  __syncthreads();
  unsigned char* const queries = shared_memory + (-reinterpret_cast<uintptr_t>(shared_memory) & 1023);
  unsigned char *const keys = queries + QUERY_BYTES, *const values = keys + STAGES * TILE_BYTES;
  const SharedTiles tiles{queries, keys, values, values + STAGES * TILE_BYTES};
  if (threadIdx.x >= CONSUMERS) {
    setmaxnreg_decrease<PRODUCER_REGISTERS>();
    produce(a, pipelines, tiles);
  } else {
    setmaxnreg_increase<CONSUMER_REGISTERS>();
    consume(a, pipelines, tiles);
  }
#endif
}
