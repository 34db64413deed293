// This file recomputes attention to find the gradients of each head's vectors (8.2.15), on tensor cores fed by TMA.
// Vectors have up to SIZE elements: half, bfloat16, or float split in two. Sums are float, and their order is fixed.
//
// Persistent blocks take items of work: 64 queries (or keys) of one head per warpgroup. A producer warpgroup loads them
// into shared memory. It also loads tiles of 64 keys (or queries), with their statistics, into STAGES stages.
//
// Long vectors are SPLIT: the sums of keys and of values would not fit in the registers of one kernel, so that each has
// its own. The tile that only scores or weights need has one place beside the stages, which is free again early.
//
// Roofline bound: flops, at 989 TFLOP/s (half, H200). Each pair of a query and a key in its window takes 7 products of
// 2 * size flops: three for queries, four for keys and values, or five where they are SPLIT. Bytes: each item reads
// each vector once from L2.
#include "attention/tiles.cuh"
#include "attention/tma_items.cuh"

constexpr bool SPLIT = SIZE * PARTS > 128;
constexpr int PIECES = SIZE * PARTS > 384 ? 2 : 1;  // pieces, one after the other, of the tile beside the stages
// The products for a tile's scores overlap with the sums of the tile before where the registers suffice.
constexpr bool OVERLAPS = SIZE < 256 && STAGES > 1;
constexpr int OTHERS = 64;  // vectors per tile of a stage
constexpr int STAGE_BYTES = SPLIT ? BLOCK_BYTES : 2 * BLOCK_BYTES;

struct GradientTmaArguments {
  const void* q;  // The maps read these four operands.
  const void* k;
  const void* v;
  const void* dout;
  void* reserve;
  void* work;
  void* result;
  void* values_result;
  TensorMap q_map[PARTS], k_map[PARTS], v_map[PARTS], dout_map[PARTS];
  Heads heads;
  Vectors gradients;  // gradients of the heads' outputs
  long long products_offset, result_offset, values_offset, counter_offset;
  Division division;
};

// Holds the statistics of a query. Its softmax is 2 to the power (score * scaler * log2(e) - shift). `product` is the
// head's output times its gradient.
struct Kept {
  float shift, product;
};
__device__ __forceinline__ const Kept* kept_of(const Heads& h, const void* work, long long offset, const Sequence& s,
                                               int query, int head) {
  const long long pair = static_cast<long long>(s.q_base + query * h.q_strides.time) * h.heads + head;
  return at_byte<Kept>(work, offset) + pair;
}

struct ProductArguments {
  const void* dout;  // gradients of the heads' outputs
  const void* reserve;
  void* work;
  Vectors gradients;
  long long heads_offset, statistics_offset, products_offset;  // bytes
  int pairs;                                                   // number of queries times heads
};

// A group of 8 lanes computes each query and head. Their vectors are contiguous.
extern "C" __global__ void __launch_bounds__(256) attention_gradients_tma_products(const ProductArguments a) {
  griddepcontrol_wait();
  constexpr int WIDTH = 16 / sizeof(ELEMENT);
  const int pair = (blockIdx.x * blockDim.x + threadIdx.x) / 8, lane = threadIdx.x % 8, size = a.gradients.size;
  const bool exists = pair < a.pairs;
  const long long first = static_cast<long long>(exists ? pair : 0) * size;
  const ELEMENT* made = at_byte<ELEMENT>(a.reserve, a.heads_offset) + first;
  const ELEMENT* gradient = at_byte<ELEMENT>(a.dout, a.gradients.offset) + first;
  float sum = 0;
  if (size % WIDTH == 0 && (reinterpret_cast<uintptr_t>(made) | reinterpret_cast<uintptr_t>(gradient)) % 16 == 0) {
    for (int c = lane * WIDTH; c < size; c += 8 * WIDTH) {
      const auto x = *reinterpret_cast<const Vector<ELEMENT, WIDTH>*>(made + c);
      const auto y = *reinterpret_cast<const Vector<ELEMENT, WIDTH>*>(gradient + c);
#pragma unroll
      for (int i = 0; i < WIDTH; i++) sum += load<float>(x.item[i]) * load<float>(y.item[i]);
    }
  } else {
    for (int c = lane; c < size; c += 8) sum += load<float>(made[c]) * load<float>(gradient[c]);
  }
#pragma unroll
  for (int other = 4; other > 0; other /= 2) sum += __shfl_xor_sync(~0u, sum, other);
  if (!exists || lane != 0) return;
  const float* statistics = at_byte<float>(a.reserve, a.statistics_offset) + 2 * static_cast<long long>(pair);
  at_byte<Kept>(a.work, a.products_offset)[pair] = {statistics[0] * LOG2_E - log2f(statistics[1]), sum};
}

// Holds the statistics of a tile of queries, for the keys' kernel. Windows count from the item's first key, and
// are cut to its keys.
struct alignas(16) Queries {
  float shift[OTHERS], product[OTHERS];
  short low[OTHERS], high[OTHERS];
  __device__ __forceinline__ bool has(int query, int key) const { return low[query] <= key && key < high[query]; }
};

// Names the state of a stage: the item has ended, windows cut its tile, or all of the tile is in the windows.
enum State { ENDED, CUT, FULL };

// Describes the pipeline between the producers and the consumers. `infinite` marks tiles with infinities or NaNs that
// weights of zero must not multiply.
struct Pipeline {
  ItemQueue items;
  Mbarrier own_full[OWNS], own_empty[OWNS], consumers;
  Mbarrier full[STAGES], loaded[STAGES], empty[STAGES];
  Mbarrier once_full, once_empty;  // for the tile beside the stages
  State state[STAGES];
  int infinite[STAGES], first[STAGES];
  Queries queries[STAGES];  // Only the keys' kernel reads these.
};

struct Stage {
  unsigned index = 0, parity = 0, once_parity = 0;
  __device__ __forceinline__ void advance() {
    if (++index == STAGES) index = 0, parity ^= 1;
    once_parity ^= PIECES % 2;
  }
  // Advances from the stage that ended an item; it has no tiles.
  __device__ __forceinline__ void advance_from_end() { advance(), once_parity ^= PIECES % 2; }
};

// Holds the state of a block that both kernels share.
struct Context {
  const GradientTmaArguments& a;
  Pipeline& p;
  int own_tiles;  // per item
  unsigned char* owns;
  unsigned char* stages;  // two tiles per stage, or one where vectors are SPLIT

  __device__ __forceinline__ unsigned char* own(int round) const { return owns + round % OWNS * own_tiles * OWN_BYTES; }
  __device__ __forceinline__ unsigned char* stage(const Stage& at) const { return stages + at.index * STAGE_BYTES; }
  // Returns the other tile of a stage.
  __device__ __forceinline__ unsigned char* other(const Stage& at) const {
    return SPLIT ? stages + STAGES * STAGE_BYTES : stage(at) + BLOCK_BYTES;
  }
  __device__ __forceinline__ Coordinates coordinates(const Vectors& vectors, const Item& item, int beam) const {
    return {vectors.head > 0 ? item.head : 0, beam, item.batch};
  }
  __device__ __forceinline__ int key_beam(int beam) const { return a.heads.key_beams > 1 ? beam : 0; }

  __device__ __forceinline__ int take(int round) const {
    return take_item(p.items, at_byte<int>(a.reserve, a.counter_offset), round);
  }

  // All producers call this to fill the tiles of a free stage, after writing the parts that TMA does not load. The
  // first SUMMED tiles are searched for infinities and NaN. `searched` has the parity of each stage's next search.
  // `left` becomes the stage's tile, and `right` its other one.
  template <int SUMMED>
  __device__ __forceinline__ void publish(const Stage& at, unsigned& searched, State state, int first,
                                          const TensorMap (&left)[PARTS], const TensorMap (&right)[PARTS],
                                          const Coordinates& left_at, const Coordinates& right_at) const {
    const bool seeks = seeks_infinite(state == FULL);
    if (threadIdx.x == LOADER) {
      p.state[at.index] = state, p.first[at.index] = first, p.infinite[at.index] = 0;
      Mbarrier* const full = seeks ? &p.loaded[at.index] : &p.full[at.index];
      mbarrier_arrive_expect_tx(full, STAGE_BYTES);
      load_vectors(stage(at), 1, true, left, full, first, left_at);
      if constexpr (SPLIT) {
        if (seeks) mbarrier_arrive(&p.full[at.index]);
#pragma unroll
        for (int piece = 0; piece < PIECES; piece++) {
          mbarrier_wait_parity(&p.once_empty, at.once_parity ^ piece ^ 1);
          mbarrier_arrive_expect_tx(&p.once_full, BLOCK_BYTES / PIECES);
          load_piece<PIECES>(other(at), piece, right, &p.once_full, first, right_at);
        }
        return;
      }
      load_vectors(other(at), 1, true, right, full, first, right_at);
      if (seeks) mbarrier_arrive(&p.full[at.index]);
    } else if (threadIdx.x >= FIRST_SEARCHER) {
      if (seeks) {
        mbarrier_wait_parity(&p.loaded[at.index], searched >> at.index & 1);
        searched ^= 1u << at.index;
        for (int tile = 0; tile < SUMMED; tile++)
          if (has_infinite<64, SEARCHERS, FIRST_SEARCHER>(stage(at) + tile * BLOCK_BYTES))
            atomicOr(&p.infinite[at.index], 1);
      }
      mbarrier_arrive(&p.full[at.index]);
    }
  }
  __device__ __forceinline__ void publish_end(Stage& at) const {
    if (threadIdx.x == LOADER || threadIdx.x >= FIRST_SEARCHER) {
      mbarrier_wait_parity(&p.empty[at.index], at.parity ^ 1);
      if (threadIdx.x == LOADER) p.state[at.index] = ENDED;
      mbarrier_arrive(&p.full[at.index]);
    }
    at.advance_from_end();
  }
  // Begins sums = rows of the item * vectors of the other tile of a stage. The last product may still read its last
  // piece, which the consumers release.
  __device__ __forceinline__ void multiply_other(float (&sums)[OTHERS / 2], const unsigned char* own,
                                                 const Stage& at) const {
    if constexpr (SPLIT) mbarrier_wait_parity(&p.once_full, at.once_parity);
    multiply_vectors<ROWS, OTHERS, PIECES>(sums, own, other(at));
    if constexpr (PIECES > 1) {
      wgmma_wait<0>();
      release_other();
      mbarrier_wait_parity(&p.once_full, at.once_parity ^ 1);
      multiply_vectors<ROWS, OTHERS, PIECES, false>(sums, own, other(at));
    }
  }
  __device__ __forceinline__ void release_other() const {
    if constexpr (SPLIT) release(&p.once_empty);
  }
  // One producer loads the vectors of an item before its tiles. An item of one tile has the left ones.
  __device__ __forceinline__ void load_own(int round, int time, const TensorMap (&left)[PARTS],
                                           const TensorMap (&right)[PARTS], const Coordinates& left_at,
                                           const Coordinates& right_at) const {
    Mbarrier* const full = &p.own_full[round % OWNS];
    mbarrier_wait_parity(&p.own_empty[round % OWNS], (round / OWNS + 1) & 1);
    mbarrier_arrive_expect_tx(full, own_tiles * OWN_BYTES);
    load_vectors(own(round), WARPGROUPS, true, left, full, time, left_at);
    if (own_tiles > 1) load_vectors(own(round) + OWN_BYTES, WARPGROUPS, true, right, full, time, right_at);
  }
  // The consumers wait for the item's own tiles.
  __device__ __forceinline__ unsigned char* wait_for_own(int round) const {
    mbarrier_wait_parity(&p.own_full[round % OWNS], round / OWNS & 1);
    return own(round);
  }
  __device__ __forceinline__ void release_own(int round) const {
    fence_proxy_async();  // The results went through these tiles.
    release(&p.own_empty[round % OWNS]);
  }
};

// Runs the pipeline of a block: divides its shared memory and assigns its roles.
template <int OWN_TILES, class Produce, class Consume>
__device__ __forceinline__ void run(const GradientTmaArguments& a, Pipeline& p, Produce produce, Consume consume) {
#if defined(EMULATED_CUDA) || defined(WGMMA_INSTRUCTIONS)
  if (threadIdx.x == 0) {
    p.items.initialise();
    mbarrier_init(&p.consumers, CONSUMERS);
    for (int i = 0; i < OWNS; i++) mbarrier_init(&p.own_full[i], 1), mbarrier_init(&p.own_empty[i], CONSUMERS / 32);
    for (int i = 0; i < STAGES; i++) {
      mbarrier_init(&p.full[i], SEARCHERS + 1), mbarrier_init(&p.loaded[i], 1);
      mbarrier_init(&p.empty[i], CONSUMERS / 32);
    }
    mbarrier_init(&p.once_full, 1), mbarrier_init(&p.once_empty, CONSUMERS / 32);
    fence_mbarrier_init();
  }
  __syncthreads();
  unsigned char* const owns = shared_memory + (-reinterpret_cast<uintptr_t>(shared_memory) & 1023);
  const Context context{a, p, OWN_TILES, owns, owns + OWNS * OWN_TILES * OWN_BYTES};
  run_roles([&] { produce(context); }, [&] { consume(context); });
#endif
}

__device__ __forceinline__ void produce_keys(const Context& c) {
  const GradientTmaArguments& a = c.a;
  const Heads& h = a.heads;
  unsigned searched = 0;
  Stage stage;
  for (int round = 0;; round++) {
    const int index = c.take(round);
    if (index >= a.division.items) break;
    const Item item(a.division, index, true);
    if (threadIdx.x == LOADER)
      c.load_own(round, item.first, a.q_map, a.dout_map, c.coordinates(h.q, item, item.beam),
                 c.coordinates(a.gradients, item, item.beam));
    const Sequence s = sequence_of(h, a.reserve, item.batch, item.beam);
    const KeyTiles keys = find_keys<OTHERS>(h, a.reserve, s, item.first);
    for (int i = 0; i < keys.count; i++, stage.advance()) {
      const int key = keys.begin + i * OTHERS, beam = c.key_beam(item.beam);
      mbarrier_wait_parity(&c.p.empty[stage.index], stage.parity ^ 1);
      c.publish<1>(stage, searched, keys.span.is_full(key, OTHERS) ? FULL : CUT, key, a.k_map, a.v_map,
                   c.coordinates(h.k, item, beam), c.coordinates(h.v, item, beam));
    }
    c.publish_end(stage);
  }
}

__device__ __forceinline__ void consume_keys(const Context& c) {
  const GradientTmaArguments& a = c.a;
  const Heads& h = a.heads;
  Pipeline& p = c.p;
  const int lane = threadIdx.x % 32, warp_row = threadIdx.x / 32 * 16;
  const float factor = h.scaler * LOG2_E;
  ConsumerBarrier synchronise{&p.consumers};
  Stage stage;
  for (int round = 0;; round++) {
    const int index = c.take(round);
    if (index >= a.division.items) break;
    const Item item(a.division, index, true);
    const Sequence s = sequence_of(h, a.reserve, item.batch, item.beam);
    Window window[2];
    Kept kept[2];
#pragma unroll
    for (int part = 0; part < 2; part++) {
      const int query = item.first + warp_row + lane / 4 + 8 * part;
      window[part] = window_of(h, a.reserve, s, query);
      kept[part] = query < s.q_length ? *kept_of(h, a.work, a.products_offset, s, query, item.head) : Kept{0, 0};
    }
    float sums[SIZE / 2] = {};
    Factors<OTHERS> factors;
    unsigned char* const own = c.wait_for_own(round);

    const auto multiply = [&](float (&scores)[OTHERS / 2], float (&weighed)[OTHERS / 2]) {
      multiply_vectors<ROWS, OTHERS>(scores, own, c.stage(stage));
      c.multiply_other(weighed, own + OWN_BYTES, stage);
    };
    const auto weigh = [&](float (&scores)[OTHERS / 2]) {
#pragma unroll
      for (int i = 0; i < OTHERS / 2; i++) scores[i] = power_of_two(scores[i] * factor - kept[i / 2 % 2].shift);
    };
    const auto differentiate = [&](float (&scores)[OTHERS / 2], const float (&weighed)[OTHERS / 2]) {
#pragma unroll
      for (int i = 0; i < OTHERS / 2; i++) scores[i] *= weighed[i] - kept[i / 2 % 2].product;
      if (p.state[stage.index] == FULL) return;
      const int key = p.first[stage.index];
#pragma unroll
      for (int i = 0; i < OTHERS / 2; i++)
        if (!window[i / 2 % 2].has(key + i / 4 * 8 + lane % 4 * 2 + i % 2)) scores[i] = 0;
    };
    const auto add_sums = [&](const Stage& at) {
      wgmma_fence();
      add_weighed(sums, factors, c.stage(at));
      wgmma_commit();
    };
    const auto set_infinite_apart = [&] {
      if (p.infinite[stage.index] == 0) return;
      const int key = p.first[stage.index];
      add_infinite<OTHERS, CONSUMERS, false>(
          sums, c.stage(stage), [&](int part, int vector) { return window[part].has(key + vector); }, synchronise);
    };

    mbarrier_wait_parity(&p.full[stage.index], stage.parity);
    bool has_tiles = p.state[stage.index] != ENDED;
    if (has_tiles) {
      float scores[OTHERS / 2], weighed[OTHERS / 2];
      multiply(scores, weighed);
      wgmma_wait<0>();
      wgmma_fence_accumulators(scores);
      wgmma_fence_accumulators(weighed);
      c.release_other();
      weigh(scores);
      differentiate(scores, weighed);
      factors.make(scores);
      set_infinite_apart();
    }
    while (has_tiles) {
      const Stage last = stage;
      const auto end_sums = [&] {
        wgmma_wait<0>();
        wgmma_fence_accumulators(sums);
        release(&p.empty[last.index]);
      };
      if constexpr (!OVERLAPS) add_sums(last), end_sums();
      stage.advance();
      mbarrier_wait_parity(&p.full[stage.index], stage.parity);
      has_tiles = p.state[stage.index] != ENDED;
      if (!has_tiles) {
        if constexpr (OVERLAPS) add_sums(last), end_sums();
        break;
      }
      float scores[OTHERS / 2], weighed[OTHERS / 2];
      multiply(scores, weighed);
      if constexpr (OVERLAPS) add_sums(last);
      wgmma_wait<1 + OVERLAPS>();
      wgmma_fence_accumulators(scores);
      weigh(scores);
      wgmma_wait<OVERLAPS>();
      wgmma_fence_accumulators(weighed);
      c.release_other();
      differentiate(scores, weighed);
      if constexpr (OVERLAPS) end_sums();
      factors.make(scores);
      set_infinite_apart();
    }
    release(&p.empty[stage.index]);  // releases the stage that ended the item
    stage.advance_from_end();

#pragma unroll
    for (int i = 0; i < SIZE / 2; i++)
      sums[i] = window[i / 2 % 2].low < window[i / 2 % 2].high ? sums[i] * h.scaler : 0.0f;
    ELEMENT* const result = at_byte<ELEMENT>(a.result, a.result_offset);
    store_rows<ROWS>(own + warp_row * ROW_BYTES, sums, h.q.size, [&](int row) -> ELEMENT* {
      const int query = item.first + warp_row + row;
      const long long vector = static_cast<long long>(s.q_base + query * h.q_strides.time) * h.heads + item.head;
      return query < h.q_steps ? result + vector * h.q.size : nullptr;
    });
    c.release_own(round);
  }
}

template <bool KEYS, bool VALUES> __device__ __forceinline__ void produce_queries(const Context& c) {
  const GradientTmaArguments& a = c.a;
  const Heads& h = a.heads;
  const int thread = threadIdx.x - FIRST_SEARCHER;
  unsigned searched = 0;
  Stage stage;
  for (int round = 0;; round++) {
    const int index = c.take(round);
    if (index >= a.division.items) break;
    const Item item(a.division, index, false);
    // The beams of queries that share the keys are visited in order.
    const int last_beam = item.beam + (h.key_beams > 1 ? 1 : h.beams);
    if (threadIdx.x == LOADER)
      c.load_own(round, item.first, a.k_map, a.v_map, c.coordinates(h.k, item, item.beam),
                 c.coordinates(h.v, item, item.beam));
    for (int beam = item.beam; beam < last_beam; beam++) {
      const Sequence s = sequence_of(h, a.reserve, item.batch, beam);
      for (int query = 0; query < s.q_length && item.first < s.k_length; query += OTHERS) {
        Span span{INT_MAX, 0, 0, INT_MAX};
#pragma unroll
        for (int i = 0; i < OTHERS / 32; i++) span.add(window_of(h, a.reserve, s, query + threadIdx.x % 32 + 32 * i));
        span.join_lanes();
        if (span.low >= item.first + ROWS || item.first >= span.high) continue;
        mbarrier_wait_parity(&c.p.empty[stage.index], stage.parity ^ 1);
        if (thread >= 0 && thread < OTHERS) {
          Queries& table = c.p.queries[stage.index];
          const bool exists = query + thread < s.q_length;
          const Kept kept = exists ? *kept_of(h, a.work, a.products_offset, s, query + thread, item.head) : Kept{0, 0};
          const Window window = window_of(h, a.reserve, s, query + thread);
          table.shift[thread] = kept.shift, table.product[thread] = kept.product;
          table.low[thread] = min(max(window.low - item.first, 0), ROWS);
          table.high[thread] = min(max(window.high - item.first, 0), ROWS);
        }
        const auto publish = [&](const auto& left, const auto& right, const Vectors& of_left, const Vectors& of_right) {
          c.publish<KEYS + VALUES>(stage, searched, span.is_full(item.first, ROWS) ? FULL : CUT, query, left, right,
                                   c.coordinates(of_left, item, beam), c.coordinates(of_right, item, beam));
        };
        if constexpr (KEYS) publish(a.q_map, a.dout_map, h.q, a.gradients);
        else publish(a.dout_map, a.q_map, a.gradients, h.q);
        stage.advance();
      }
    }
    c.publish_end(stage);
  }
}

template <bool KEYS, bool VALUES> __device__ __forceinline__ void consume_queries(const Context& c) {
  const GradientTmaArguments& a = c.a;
  const Heads& h = a.heads;
  Pipeline& p = c.p;
  const int lane = threadIdx.x % 32, warp_row = threadIdx.x / 32 * 16;
  const float factor = h.scaler * LOG2_E;
  ConsumerBarrier synchronise{&p.consumers};
  Stage stage;
  for (int round = 0;; round++) {
    const int index = c.take(round);
    if (index >= a.division.items) break;
    const Item item(a.division, index, false);
    const int thread_key = warp_row + lane / 4;  // in the item
    float key_sums[SIZE / 2] = {}, value_sums[SIZE / 2] = {};
    Factors<OTHERS> weights, factors;

    // Calls visit(element) for each of this thread's sums outside the windows.
    const auto for_each_outside = [&](auto visit) {
      if (p.state[stage.index] == FULL) return;
#pragma unroll
      for (int i = 0; i < OTHERS / 2; i++)
        if (!p.queries[stage.index].has(i / 4 * 8 + lane % 4 * 2 + i % 2, thread_key + i / 2 % 2 * 8)) visit(i);
    };
    // Returns the statistics of the queries of two neighbouring columns.
    const auto pair_at = [&](const float* numbers, int n) {
      return *reinterpret_cast<const Vector<float, 2>*>(numbers + 8 * n + lane % 4 * 2);
    };
    const auto weigh = [&](float (&scores)[OTHERS / 2]) {
#pragma unroll
      for (int n = 0; n < OTHERS / 8; n++) {
        const auto shift = pair_at(p.queries[stage.index].shift, n);
#pragma unroll
        for (int i = 0; i < 4; i++) scores[4 * n + i] = power_of_two(scores[4 * n + i] * factor - shift.item[i % 2]);
      }
      for_each_outside([&](int i) { scores[i] = 0; });
    };
    // Replaces `weighed` by the gradients of the scores.
    const auto differentiate = [&](float (&weighed)[OTHERS / 2], const float (&scores)[OTHERS / 2]) {
#pragma unroll
      for (int n = 0; n < OTHERS / 8; n++) {
        const auto product = pair_at(p.queries[stage.index].product, n);
#pragma unroll
        for (int i = 0; i < 4; i++) weighed[4 * n + i] = scores[4 * n + i] * (weighed[4 * n + i] - product.item[i % 2]);
      }
      for_each_outside([&](int i) { weighed[i] = 0; });
    };
    const auto set_infinite_apart = [&] {
      if (p.infinite[stage.index] == 0) return;
      const auto is_weighed = [&](int part, int query) {
        return p.queries[stage.index].has(query, thread_key + 8 * part);
      };
      if constexpr (KEYS) add_infinite<OTHERS, CONSUMERS, false>(key_sums, c.stage(stage), is_weighed, synchronise);
      if constexpr (VALUES)
        add_infinite<OTHERS, CONSUMERS, true>(value_sums, KEYS ? c.other(stage) : c.stage(stage), is_weighed,
                                              synchronise);
    };

    unsigned char* const own = c.wait_for_own(round);
    for (;; stage.advance()) {
      mbarrier_wait_parity(&p.full[stage.index], stage.parity);
      if (p.state[stage.index] == ENDED) break;
      const unsigned char* const queries = KEYS ? c.stage(stage) : c.other(stage);
      const unsigned char* const gradients = KEYS ? c.other(stage) : c.stage(stage);
      float scores[OTHERS / 2], weighed[OTHERS / 2];
      if constexpr (KEYS) {
        multiply_vectors<ROWS, OTHERS>(scores, own, queries);
        c.multiply_other(weighed, own + OWN_BYTES, stage);
        wgmma_wait<1>();
      } else {
        c.multiply_other(scores, own, stage);
        wgmma_wait<0>();
      }
      wgmma_fence_accumulators(scores);
      if constexpr (!KEYS) c.release_other();
      weigh(scores);
      if constexpr (VALUES) weights.make(scores);
      if constexpr (KEYS) {
        wgmma_wait<0>();
        wgmma_fence_accumulators(weighed);
        c.release_other();
        differentiate(weighed, scores);
        factors.make(weighed);
      }
      set_infinite_apart();
      wgmma_fence();
      if constexpr (VALUES) add_weighed(value_sums, weights, gradients);
      if constexpr (KEYS) add_weighed(key_sums, factors, queries);
      wgmma_commit();
      wgmma_wait<0>();
      wgmma_fence_accumulators(key_sums);
      wgmma_fence_accumulators(value_sums);
      release(&p.empty[stage.index]);
    }
    release(&p.empty[stage.index]);  // releases the stage that ended the item
    stage.advance_from_end();

#pragma unroll
    for (int i = 0; i < SIZE / 2; i++) key_sums[i] *= h.scaler;
    const int key_base = item.batch * h.k_strides.batch + c.key_beam(item.beam) * h.k_strides.beam;
    const auto store_of = [&](unsigned char* tile, const float (&sums)[SIZE / 2], void* base, long long offset,
                              int size) {
      ELEMENT* const result = at_byte<ELEMENT>(base, offset);
      store_rows<ROWS>(tile + warp_row * ROW_BYTES, sums, size, [&](int row) -> ELEMENT* {
        const int key = item.first + warp_row + row;
        const long long vector = static_cast<long long>(key_base + key * h.k_strides.time) * h.heads + item.head;
        return key < h.k_steps ? result + vector * size : nullptr;
      });
    };
    if constexpr (KEYS) store_of(own, key_sums, a.result, a.result_offset, h.k.size);
    if constexpr (VALUES)
      store_of(KEYS ? own + OWN_BYTES : own, value_sums, a.values_result, a.values_offset, h.v.size);
    c.release_own(round);
  }
}

// NAME is the operand of the gradients. PRODUCE and CONSUME visit the other operand.
#define KERNEL(NAME, OWN_TILES, PRODUCE, CONSUME)                                                      \
  extern "C" __global__ void __launch_bounds__(CONSUMERS + WARPGROUP, 1)                               \
      attention_gradients_tma_##NAME(const __grid_constant__ GradientTmaArguments a) {                 \
    griddepcontrol_wait();                                                                             \
    __shared__ Pipeline pipeline;                                                                      \
    run<OWN_TILES>(a, pipeline, [](const Context& c) { PRODUCE; }, [](const Context& c) { CONSUME; }); \
  }
KERNEL(queries, 2, produce_keys(c), consume_keys(c))
// Without SPLIT the kernel of keys computes the gradients of values, too.
KERNEL(keys, 2, (produce_queries<true, !SPLIT>(c)), (consume_queries<true, !SPLIT>(c)))
KERNEL(values, 1, (produce_queries<false, true>(c)), (consume_queries<false, true>(c)))
