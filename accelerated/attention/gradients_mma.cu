// The core of the gradients of multi-head attention (8.2.15) on tensor cores, by recomputation: vectors of up to
// SIZE elements, half, bfloat16 or float in parts, sums in float, each in one order.
//
// A producer warpgroup copies tiles of 64 keys (queries) whose windows meet those of the block to three stages by
// cp.async. Each of the others has 64 queries (keys); softmax and gradients of scores pass from sums to left factors in
// registers, so that a tile lies once in shared memory, K-major for scores, MN-major for gradients.
//
// Roofline bound: flops, 7 products (three for queries, four for keys and values) of 2 * size for each query and key of
// its window, at 989 T/s (half, H200); bytes, each vector once from L2 for a tile.
#include "attention/tiles.cuh"

constexpr int CONSUMERS = 128 * WARPGROUPS, THREADS_OF_BLOCK = CONSUMERS + PRODUCERS,
              ROWS = 64 * WARPGROUPS;   // of the block's own vectors
constexpr int OTHERS = 64, STAGES = 3;  // of a tile of the others
constexpr int OWN_BYTES = PARTS * ROWS * SIZE * 2, OTHER_BYTES = PARTS * OTHERS * SIZE * 2,
              STAGE_BYTES = 2 * OTHER_BYTES;

struct GradientArguments {
  const void* q;
  const void* k;
  const void* v;
  const void* dout;  // gradients of what the heads make
  const void* reserve;
  void* work;
  void* result;
  void* values_result;
  Heads heads;
  Vectors gradients;                                           // of what the heads make
  long long heads_offset, statistics_offset, products_offset;  // bytes
  long long result_offset, values_offset;
  int pairs;  // vectors of queries times heads
  FastDivmod tiles, head_count, beam_count;
};

// What the softmax of a query is computed from again: 2 to the power (score * scaler * log2(e) - shift); the product of
// the gradient of what the head makes with it.
struct Kept {
  float shift, product;
};
__device__ __forceinline__ const Kept* kept_of(const GradientArguments& a, const Sequence& s, int query, int head) {
  const long long pair = static_cast<long long>(s.q_base + query * a.heads.q_strides.time) * a.heads.heads + head;
  return at_byte<Kept>(a.work, a.products_offset) + pair;
}

// A group of 8 lanes for each query and head.
extern "C" __global__ void __launch_bounds__(256) attention_gradients_mma_products(const GradientArguments a) {
  griddepcontrol_wait();
  const int pair = (blockIdx.x * blockDim.x + threadIdx.x) / 8, lane = threadIdx.x % 8;
  const bool exists = pair < a.pairs;
  unsigned head;
  const int vector = a.head_count.divide(exists ? pair : 0, head), size = a.gradients.size;
  const ELEMENT* made =
      at_byte<ELEMENT>(a.reserve, a.heads_offset) + (static_cast<long long>(vector) * a.heads.heads + head) * size;
  const FACTOR* gradient = at_byte<FACTOR>(a.dout, a.gradients.offset) +
                           static_cast<long long>(vector) * a.gradients.vector + head * a.gradients.head;
  const long long lower = a.gradients.lower / static_cast<int>(sizeof(FACTOR));
  constexpr int WIDTH = PACK / PARTS;
  const bool has_packs =
      size % PACK == 0 &&
      (reinterpret_cast<uintptr_t>(made) | reinterpret_cast<uintptr_t>(gradient) | lower * 2) % 16 == 0;
  float sum = 0;
  if (has_packs) {
    for (int c = lane * WIDTH; c < size; c += 8 * WIDTH) {
      const auto x = *reinterpret_cast<const Pack<ELEMENT, WIDTH>*>(made + c);
#pragma unroll
      for (int part = 0; part < PARTS; part++) {
        const auto y = *reinterpret_cast<const Pack<FACTOR, WIDTH>*>(gradient + c + part * lower);
#pragma unroll
        for (int i = 0; i < WIDTH; i++) sum += load<float>(x.item[i]) * load<float>(y.item[i]);
      }
    }
  } else {
    for (int c = lane; c < size; c += 8)
      for (int part = 0; part < PARTS; part++) sum += load<float>(made[c]) * load<float>(gradient[c + part * lower]);
  }
#pragma unroll
  for (int other = 4; other > 0; other /= 2) sum += __shfl_xor_sync(~0u, sum, other);
  if (!exists || lane != 0) return;
  const float* statistics = at_byte<float>(a.reserve, a.statistics_offset) + 2 * static_cast<long long>(pair);
  at_byte<Kept>(a.work, a.products_offset)[pair] = {statistics[0] * LOG2_E - log2f(statistics[1]), sum};
}

struct Block {
  int first, head, beam, batch;
};
__device__ __forceinline__ Block find_block(const GradientArguments& a) {
  unsigned tile, head, beam;
  const unsigned batch = a.beam_count.divide(a.head_count.divide(a.tiles.divide(blockIdx.x, tile), head), beam);
  return {static_cast<int>(tile * ROWS), static_cast<int>(head), static_cast<int>(beam), static_cast<int>(batch)};
}

// The pipeline between the producers and the warpgroups.
struct Pipeline {
  Mbarrier full[STAGES], empty[STAGES];

  __device__ __forceinline__ void init() {
    if (threadIdx.x != 0) return;
    for (int stage = 0; stage < STAGES; stage++)
      mbarrier_init(&full[stage], PRODUCERS), mbarrier_init(&empty[stage], CONSUMERS / 32);
    fence_mbarrier_init();
  }
  __device__ __forceinline__ void wait_full(int index) {
    mbarrier_wait_parity(&full[index % STAGES], index / STAGES & 1);
  }
  __device__ __forceinline__ void wait_empty(int index) {
    if (index >= STAGES) mbarrier_wait_parity(&empty[index % STAGES], (index / STAGES - 1) & 1);
  }
};

extern "C" __global__ void __launch_bounds__(THREADS_OF_BLOCK, 1)
    attention_gradients_mma_queries(const GradientArguments a) {
  griddepcontrol_wait();
  __shared__ Pipeline pipeline;
  __shared__ int infinite[STAGES];  // the number behind that of the last tile whose keys have such elements
  const Heads& h = a.heads;
  const Block block = find_block(a);
  const int first = (a.tiles.divisor - 1) * ROWS - block.first, head = block.head;  // late queries begin first
  const Sequence s = sequence_of(h, a.reserve, block.batch, block.beam);
  unsigned char* const queries = shared_memory + (-reinterpret_cast<uintptr_t>(shared_memory) & 1023);
  unsigned char *const gradients = queries + OWN_BYTES, *const stages = gradients + OWN_BYTES;
  pipeline.init();
  if (threadIdx.x < STAGES) infinite[threadIdx.x] = 0;
  const Span span = span_of<ROWS, THREADS_OF_BLOCK>(h, a.reserve, s, first);  // all threads meet
  const int begin = span.low / OTHERS * OTHERS,
            tiles = span.high > begin ? (span.high - begin + OTHERS - 1) / OTHERS : 0;
  const auto keys_of = [&] { return Source(a.k, h.k, s.k_base, h.k_strides.time, head, s.k_length); };

  if (threadIdx.x >= CONSUMERS) {
    setmaxnreg_decrease<PRODUCER_REGISTERS>();
    const Source k = keys_of(), v(a.v, h.v, s.k_base, h.k_strides.time, head, s.k_length);
    const auto publish = [&](int index) {
      fence_proxy_async();
      if (seeks_infinite(span.is_full(begin + index * OTHERS, OTHERS)) &&
          set_infinite_apart<OTHERS, PRODUCERS>(stages + index % STAGES * STAGE_BYTES))
        atomicMax(&infinite[index % STAGES], index + 1);
      mbarrier_arrive(&pipeline.full[index % STAGES]);
    };
    for (int index = 0; index < tiles; index++) {
      unsigned char* const stage = stages + index % STAGES * STAGE_BYTES;
      if (index == 0) {
        copy_tile<ROWS, PRODUCERS>(queries, Source(a.q, h.q, s.q_base, h.q_strides.time, head, s.q_length), first);
        copy_tile<ROWS, PRODUCERS>(gradients, Source(a.dout, a.gradients, s.q_base, h.q_strides.time, head, s.q_length),
                                   first);
      }
      pipeline.wait_empty(index);
      copy_tile<OTHERS, PRODUCERS>(stage, k, begin + index * OTHERS);
      copy_tile<OTHERS, PRODUCERS>(stage + OTHER_BYTES, v, begin + index * OTHERS);
      cp_async_commit();
      if (index == 0) continue;
      cp_async_wait<1>();
      publish(index - 1);
    }
    cp_async_wait<0>();
    if (tiles > 0) publish(tiles - 1);
    return;
  }

  setmaxnreg_increase<CONSUMER_REGISTERS>();
  const int lane = threadIdx.x % 32, warp_row = threadIdx.x / 32 * 16;
  Window window[2];
  Kept kept[2];
#pragma unroll
  for (int part = 0; part < 2; part++) {
    const int query = first + warp_row + lane / 4 + 8 * part;
    window[part] = window_of(h, a.reserve, s, query);
    kept[part] = query < s.q_length ? *kept_of(a, s, query, head) : Kept{0, 0};
  }
  const float factor = h.scaler * LOG2_E;
  float sums[SIZE / 2] = {};
  Factors<OTHERS> factors;
  const auto wait_for = [&](int index) {
    pipeline.wait_full(index);
    if (infinite[index % STAGES] == index + 1)
      add_infinite<OTHERS, false>(sums, keys_of(), begin + index * OTHERS,
                                  [&](int part, int key) { return window[part].has(key); });
  };
  const auto multiply = [&](float (&scores)[OTHERS / 2], float (&weighed)[OTHERS / 2], int index) {
    const unsigned char* const keys = stages + index % STAGES * STAGE_BYTES;
    multiply_vectors<ROWS, OTHERS>(scores, queries, keys);
    multiply_vectors<ROWS, OTHERS>(weighed, gradients, keys + OTHER_BYTES);
  };
  const auto weigh = [&](float (&scores)[OTHERS / 2]) {
#pragma unroll
    for (int i = 0; i < OTHERS / 2; i++) scores[i] = exp2_of(scores[i] * factor - kept[i / 2 % 2].shift);
  };
  const auto differentiate = [&](float (&scores)[OTHERS / 2], const float (&weighed)[OTHERS / 2], int index) {
    const int key = begin + index * OTHERS;
#pragma unroll
    for (int i = 0; i < OTHERS / 2; i++) scores[i] *= weighed[i] - kept[i / 2 % 2].product;
    if (span.is_full(key, OTHERS)) return;
#pragma unroll
    for (int i = 0; i < OTHERS / 2; i++)
      if (!window[i / 2 % 2].has(key + i / 4 * 8 + lane % 4 * 2 + i % 2)) scores[i] = 0;
  };
  const auto add_sums = [&](int index) {
    wgmma_fence();
    add_weighed(sums, factors, stages + index % STAGES * STAGE_BYTES);
    wgmma_commit();
  };
  if (tiles > 0) {
    wait_for(0);
    float scores[OTHERS / 2], weighed[OTHERS / 2];
    multiply(scores, weighed, 0);
    wgmma_wait<0>();
    wgmma_fence_accumulators(scores);
    wgmma_fence_accumulators(weighed);
    weigh(scores);
    differentiate(scores, weighed, 0);
    factors.make(scores);
  }
  for (int index = 0; index + 1 < tiles; index++) {
    wait_for(index + 1);
    float scores[OTHERS / 2], weighed[OTHERS / 2];
    multiply(scores, weighed, index + 1);
    add_sums(index);
    wgmma_wait<2>();
    wgmma_fence_accumulators(scores);
    weigh(scores);
    wgmma_wait<1>();
    wgmma_fence_accumulators(weighed);
    differentiate(scores, weighed, index + 1);
    wgmma_wait<0>();
    wgmma_fence_accumulators(sums);
    release(&pipeline.empty[index % STAGES]);
    factors.make(scores);
  }
  if (tiles > 0) {
    add_sums(tiles - 1);
    wgmma_wait<0>();
    wgmma_fence_accumulators(sums);
  }
#pragma unroll
  for (int i = 0; i < SIZE / 2; i++) sums[i] *= h.scaler;
  ELEMENT* const result = at_byte<ELEMENT>(a.result, a.result_offset);
  store_rows<ROWS>(queries + warp_row * ROW_BYTES, sums, h.q.size, [&](int row) -> ELEMENT* {
    const int query = first + warp_row + row;
    const long long vector = static_cast<long long>(s.q_base + query * h.q_strides.time) * h.heads + head;
    return query < h.q_steps ? result + vector * h.q.size : nullptr;
  });
}

// A tile of queries of a beam whose windows meet the block's keys; behind the last: the beam behind the last.
struct Cursor {
  int beam, first;
  bool is_full;
};
// What the warpgroups know of the queries of a tile.
struct alignas(16) Queries {
  float shift[OTHERS], product[OTHERS];
  int low[OTHERS], high[OTHERS];
  Cursor cursor;
  __device__ __forceinline__ bool has(int query, int key) const { return low[query] <= key && key < high[query]; }
};

extern "C" __global__ void __launch_bounds__(THREADS_OF_BLOCK, 1)
    attention_gradients_mma_keys(const GradientArguments a) {
  griddepcontrol_wait();
  __shared__ Queries tables[STAGES];
  __shared__ Pipeline pipeline;
  __shared__ int infinite[STAGES][2];  // of queries, of gradients, as above
  const Heads& h = a.heads;
  const Block block = find_block(a);
  const int first = block.first, head = block.head;
  // Beams of queries that share the keys come one after the other.
  const int last_beam = block.beam + (h.key_beams > 1 ? 1 : h.beams);
  const Sequence own = sequence_of(h, a.reserve, block.batch, block.beam);
  unsigned char* const keys = shared_memory + (-reinterpret_cast<uintptr_t>(shared_memory) & 1023);
  unsigned char *const values = keys + OWN_BYTES, *const stages = values + OWN_BYTES;
  pipeline.init();
  if (threadIdx.x < 2 * STAGES) infinite[threadIdx.x / 2][threadIdx.x % 2] = 0;
  __syncthreads();
  const auto queries_of = [&](int beam) {
    const Sequence s = sequence_of(h, a.reserve, block.batch, beam);
    return Source(a.q, h.q, s.q_base, h.q_strides.time, head, s.q_length);
  };
  const auto gradients_of = [&](int beam) {
    const Sequence s = sequence_of(h, a.reserve, block.batch, beam);
    return Source(a.dout, a.gradients, s.q_base, h.q_strides.time, head, s.q_length);
  };

  if (threadIdx.x >= CONSUMERS) {
    setmaxnreg_decrease<PRODUCER_REGISTERS>();
    const int thread = threadIdx.x - CONSUMERS;
    // The first such tile from here on.
    const auto find = [&](int beam, int query) -> Cursor {
      for (; beam < last_beam; beam++, query = 0) {
        const Sequence s = sequence_of(h, a.reserve, block.batch, beam);
        for (; query < s.q_length && first < s.k_length; query += OTHERS) {
          Span span{INT_MAX, 0, 0, INT_MAX};
#pragma unroll
          for (int i = 0; i < OTHERS / 32; i++) span.add(window_of(h, a.reserve, s, query + thread % 32 + 32 * i));
          span.join_lanes();
          if (span.low < first + ROWS && first < span.high) return {beam, query, span.is_full(first, ROWS)};
        }
      }
      return {last_beam, 0, false};
    };
    const auto publish = [&](int index, bool is_full) {
      unsigned char* const stage = stages + index % STAGES * STAGE_BYTES;
      fence_proxy_async();
      if (seeks_infinite(is_full))
        for (int i = 0; i < 2; i++)
          if (set_infinite_apart<OTHERS, PRODUCERS>(stage + i * OTHER_BYTES))
            atomicMax(&infinite[index % STAGES][i], index + 1);
      mbarrier_arrive(&pipeline.full[index % STAGES]);
    };
    Cursor cursor = find(block.beam, 0);
    bool was_full = false;
    for (int index = 0;; index++) {
      unsigned char* const stage = stages + index % STAGES * STAGE_BYTES;
      Queries& table = tables[index % STAGES];
      const bool is_end = cursor.beam == last_beam;
      pipeline.wait_empty(index);
      if (thread == 0) table.cursor = cursor;
      if (!is_end) {
        if (index == 0) {
          copy_tile<ROWS, PRODUCERS>(keys, Source(a.k, h.k, own.k_base, h.k_strides.time, head, own.k_length), first);
          copy_tile<ROWS, PRODUCERS>(values, Source(a.v, h.v, own.k_base, h.k_strides.time, head, own.k_length), first);
        }
        copy_tile<OTHERS, PRODUCERS>(stage, queries_of(cursor.beam), cursor.first);
        copy_tile<OTHERS, PRODUCERS>(stage + OTHER_BYTES, gradients_of(cursor.beam), cursor.first);
        if (thread < OTHERS) {
          const Sequence s = sequence_of(h, a.reserve, block.batch, cursor.beam);
          const int query = cursor.first + thread;
          const bool exists = query < s.q_length;
          const Kept* kept = kept_of(a, s, exists ? query : 0, head);
          cp_async<4>(&table.shift[thread], &kept->shift, exists);
          cp_async<4>(&table.product[thread], &kept->product, exists);
          const Window window = window_of(h, a.reserve, s, query);
          table.low[thread] = window.low, table.high[thread] = window.high;
        }
      }
      cp_async_commit();
      cp_async_wait<1>();
      if (index > 0) publish(index - 1, was_full);
      if (is_end) {
        mbarrier_arrive(&pipeline.full[index % STAGES]);
        return;
      }
      was_full = cursor.is_full;
      cursor = find(cursor.beam, cursor.first + OTHERS);
    }
  }

  setmaxnreg_increase<CONSUMER_REGISTERS>();
  const int lane = threadIdx.x % 32, warp_row = threadIdx.x / 32 * 16, thread_key = first + warp_row + lane / 4;
  const float factor = h.scaler * LOG2_E;
  float key_sums[SIZE / 2] = {}, value_sums[SIZE / 2] = {};
  Factors<OTHERS> weights, factors;
  for (int index = 0;; index++) {
    pipeline.wait_full(index);
    const Queries& table = tables[index % STAGES];
    const Cursor cursor = table.cursor;
    if (cursor.beam == last_beam) break;
    const unsigned char* const queries = stages + index % STAGES * STAGE_BYTES;
    const auto is_weighed = [&](int part, int query) { return table.has(query - cursor.first, thread_key + 8 * part); };
    if (infinite[index % STAGES][0] == index + 1)
      add_infinite<OTHERS, false>(key_sums, queries_of(cursor.beam), cursor.first, is_weighed);
    if (infinite[index % STAGES][1] == index + 1)
      add_infinite<OTHERS, true>(value_sums, gradients_of(cursor.beam), cursor.first, is_weighed);
    // Calls visit(element) for the sums of this thread that are outside of windows.
    const auto for_each_outside = [&](auto visit) {
      if (cursor.is_full) return;
#pragma unroll
      for (int i = 0; i < OTHERS / 2; i++)
        if (!table.has(i / 4 * 8 + lane % 4 * 2 + i % 2, thread_key + i / 2 % 2 * 8)) visit(i);
    };
    // Numbers of the queries of two neighbouring columns.
    const auto pair_at = [&](const float* numbers, int n) {
      return *reinterpret_cast<const Pack<float, 2>*>(numbers + 8 * n + lane % 4 * 2);
    };
    float scores[OTHERS / 2], weighed[OTHERS / 2];
    multiply_vectors<ROWS, OTHERS>(scores, keys, queries);
    multiply_vectors<ROWS, OTHERS>(weighed, values, queries + OTHER_BYTES);
    wgmma_wait<1>();
    wgmma_fence_accumulators(scores);
#pragma unroll
    for (int n = 0; n < OTHERS / 8; n++) {
      const auto shift = pair_at(table.shift, n);
#pragma unroll
      for (int i = 0; i < 4; i++) scores[4 * n + i] = exp2_of(scores[4 * n + i] * factor - shift.item[i % 2]);
    }
    for_each_outside([&](int i) { scores[i] = 0; });
    weights.make(scores);
    wgmma_wait<0>();
    wgmma_fence_accumulators(weighed);
#pragma unroll
    for (int n = 0; n < OTHERS / 8; n++) {
      const auto product = pair_at(table.product, n);
#pragma unroll
      for (int i = 0; i < 4; i++) weighed[4 * n + i] = scores[4 * n + i] * (weighed[4 * n + i] - product.item[i % 2]);
    }
    for_each_outside([&](int i) { weighed[i] = 0; });
    factors.make(weighed);
    wgmma_fence();
    add_weighed(value_sums, weights, queries + OTHER_BYTES);
    add_weighed(key_sums, factors, queries);
    wgmma_commit();
    wgmma_wait<0>();
    wgmma_fence_accumulators(key_sums);
    wgmma_fence_accumulators(value_sums);
    release(&pipeline.empty[index % STAGES]);
  }
#pragma unroll
  for (int i = 0; i < SIZE / 2; i++) key_sums[i] *= h.scaler;
  const auto store_of = [&](unsigned char* tile, const float (&sums)[SIZE / 2], void* base, long long offset,
                            int size) {
    ELEMENT* const result = at_byte<ELEMENT>(base, offset);
    store_rows<ROWS>(tile + warp_row * ROW_BYTES, sums, size, [&](int row) -> ELEMENT* {
      const int key = first + warp_row + row;
      const long long vector = static_cast<long long>(own.k_base + key * h.k_strides.time) * h.heads + head;
      return key < h.k_steps ? result + vector * size : nullptr;
    });
  };
  store_of(keys, key_sums, a.result, a.result_offset, h.k.size);
  store_of(values, value_sums, a.values_result, a.values_offset, h.v.size);
}
