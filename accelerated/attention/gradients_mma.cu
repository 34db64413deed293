// The core of the gradients of multi-head attention (8.2.15) on tensor cores, by recomputation: vectors of up to
// SIZE elements, half, bfloat16 or float in parts, sums in float, each in one order.
//
// A warpgroup has 64 queries (or keys) and goes through tiles of 64 keys (queries) whose windows meet; softmax and
// gradients of scores pass from sums to left factors in registers, so that a tile lies once in shared memory, K-major
// for scores, MN-major for gradients. Three stages by cp.async; the sums of a tile overlap with the scores of the next.
//
// Roofline bound: flops, 7 products (three for queries, four for keys and values) of 2 * size for each query and key of
// its window, at 989 T/s (half, H200); bytes, each vector once from L2 for a tile.
#include "attention/gradients_mma.cuh"

constexpr int THREADS_OF_BLOCK = 128 * WARPGROUPS, ROWS = 64 * WARPGROUPS;  // of the block's own vectors
constexpr int OTHERS = 64, STAGES = 3;                                      // of a tile of the others
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

extern "C" __global__ void __launch_bounds__(THREADS_OF_BLOCK, 1)
    attention_gradients_mma_queries(const GradientArguments a) {
  griddepcontrol_wait();
  const Heads& h = a.heads;
  const Block block = find_block(a);
  const int first = (a.tiles.divisor - 1) * ROWS - block.first, head = block.head;  // late queries begin first
  const Sequence s = sequence_of(h, a.reserve, block.batch, block.beam);
  unsigned char* const queries = shared_memory + (-reinterpret_cast<uintptr_t>(shared_memory) & 1023);
  unsigned char *const gradients = queries + OWN_BYTES, *const stages = gradients + OWN_BYTES;
  const Source q(a.q, h.q, s.q_base, h.q_strides.time, head, s.q_length);
  const Source dout(a.dout, a.gradients, s.q_base, h.q_strides.time, head, s.q_length);
  const Source k(a.k, h.k, s.k_base, h.k_strides.time, head, s.k_length);
  const Source v(a.v, h.v, s.k_base, h.k_strides.time, head, s.k_length);
  const Span span = span_of<ROWS, THREADS_OF_BLOCK>(h, a.reserve, s, first);
  const int begin = span.low / OTHERS * OTHERS,
            tiles = span.high > begin ? (span.high - begin + OTHERS - 1) / OTHERS : 0;

  const int lane = threadIdx.x % 32, warp_row = threadIdx.x / 32 * 16;
  Window window[2];
  Kept kept[2];
#pragma unroll
  for (int part = 0; part < 2; part++) {
    const int query = first + warp_row + lane / 4 + 8 * part;
    window[part] = window_of(h, a.reserve, s, query);
    kept[part] = query < s.q_length ? *kept_of(h, a.work, a.products_offset, s, query, head) : Kept{0, 0};
  }
  const float factor = h.scaler * LOG2_E;
  float sums[SIZE / 2] = {};
  Factors<OTHERS> factors;

  const auto copy = [&](int index) {
    unsigned char* const stage = stages + index % STAGES * STAGE_BYTES;
    copy_tile<OTHERS, THREADS_OF_BLOCK>(stage, k, begin + index * OTHERS);
    copy_tile<OTHERS, THREADS_OF_BLOCK>(stage + OTHER_BYTES, v, begin + index * OTHERS);
    cp_async_commit();
  };
  // Waits for the copies of a tile; whether weights of zero may meet numbers that are none.
  const auto wait_for = [&](int index) -> bool {
    fence_proxy_async();
    if (seeks_infinite(span.is_full(begin + index * OTHERS, OTHERS)))
      return __syncthreads_or(has_infinite<OTHERS, THREADS_OF_BLOCK>(stages + index % STAGES * STAGE_BYTES));
    __syncthreads();
    return false;
  };
  const auto multiply = [&](float (&scores)[OTHERS / 2], float (&weighed)[OTHERS / 2], int index) {
    const unsigned char* const keys = stages + index % STAGES * STAGE_BYTES;
    multiply_vectors<ROWS, OTHERS>(scores, queries, keys);
    multiply_vectors<ROWS, OTHERS>(weighed, gradients, keys + OTHER_BYTES);
  };
  const auto weigh = [&](float (&scores)[OTHERS / 2]) {
#pragma unroll
    for (int i = 0; i < OTHERS / 2; i++) scores[i] = power_of_two(scores[i] * factor - kept[i / 2 % 2].shift);
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
  const auto set_infinite_apart = [&](int index) {
    add_infinite<OTHERS, THREADS_OF_BLOCK, false>(
        sums, stages + index % STAGES * STAGE_BYTES,
        [&](int part, int vector) { return window[part].has(begin + index * OTHERS + vector); },
        [] { __syncthreads(); });
  };
  if (tiles > 0) {
    copy_tile<ROWS, THREADS_OF_BLOCK>(queries, q, first);
    copy_tile<ROWS, THREADS_OF_BLOCK>(gradients, dout, first);
    copy(0);
    if (tiles > 1) copy(1);
    else cp_async_commit();
    cp_async_wait<1>();
    const bool is_infinite = wait_for(0);
    float scores[OTHERS / 2], weighed[OTHERS / 2];
    multiply(scores, weighed, 0);
    wgmma_wait<0>();
    wgmma_fence_accumulators(scores);
    wgmma_fence_accumulators(weighed);
    weigh(scores);
    differentiate(scores, weighed, 0);
    factors.make(scores);
    if (is_infinite) set_infinite_apart(0);
  }
  for (int index = 0; index + 1 < tiles; index++) {
    cp_async_wait<0>();
    const bool is_infinite = wait_for(index + 1);  // the stage of the last tile is free
    float scores[OTHERS / 2], weighed[OTHERS / 2];
    multiply(scores, weighed, index + 1);
    wgmma_fence();
    add_weighed(sums, factors, stages + index % STAGES * STAGE_BYTES);
    wgmma_commit();
    if (index + 2 < tiles) copy(index + 2);
    wgmma_wait<2>();
    wgmma_fence_accumulators(scores);
    weigh(scores);
    wgmma_wait<1>();
    wgmma_fence_accumulators(weighed);
    differentiate(scores, weighed, index + 1);
    wgmma_wait<0>();
    wgmma_fence_accumulators(sums);
    factors.make(scores);
    if (is_infinite) set_infinite_apart(index + 1);
  }
  if (tiles > 0) {
    wgmma_fence();
    add_weighed(sums, factors, stages + (tiles - 1) % STAGES * STAGE_BYTES);
    wgmma_commit();
  }
  wgmma_wait<0>();
  wgmma_fence_accumulators(sums);
  __syncthreads();
#pragma unroll
  for (int i = 0; i < SIZE / 2; i++) sums[i] *= h.scaler;
  ELEMENT* const result = at_byte<ELEMENT>(a.result, a.result_offset);
  store_rows<ROWS>(queries + warp_row * ROW_BYTES, sums, h.q.size, [&](int row) -> ELEMENT* {
    const int query = first + warp_row + row;
    const long long vector = static_cast<long long>(s.q_base + query * h.q_strides.time) * h.heads + head;
    return query < h.q_steps ? result + vector * h.q.size : nullptr;
  });
}

// What the keys' kernel knows of the queries of a tile.
struct alignas(16) Queries {
  float shift[OTHERS], product[OTHERS];
  int low[OTHERS], high[OTHERS];
  __device__ __forceinline__ bool has(int query, int key) const { return low[query] <= key && key < high[query]; }
};

// A tile of queries of a beam whose windows meet the block's keys; none left: beam is that behind the last.
struct Cursor {
  int beam, first;
  bool is_full;
};

extern "C" __global__ void __launch_bounds__(THREADS_OF_BLOCK, 1)
    attention_gradients_mma_keys(const GradientArguments a) {
  griddepcontrol_wait();
  __shared__ Queries tables[STAGES];
  const Heads& h = a.heads;
  const Block block = find_block(a);
  const int first = block.first, head = block.head;
  // Beams of queries that share the keys come one after the other.
  const int last_beam = block.beam + (h.key_beams > 1 ? 1 : h.beams);
  const Sequence own = sequence_of(h, a.reserve, block.batch, block.beam);
  if (first >= h.k_steps) return;
  unsigned char* const keys = shared_memory + (-reinterpret_cast<uintptr_t>(shared_memory) & 1023);
  unsigned char *const values = keys + OWN_BYTES, *const stages = values + OWN_BYTES;
  const Source k(a.k, h.k, own.k_base, h.k_strides.time, head, own.k_length);
  const Source v(a.v, h.v, own.k_base, h.k_strides.time, head, own.k_length);
  const int lane = threadIdx.x % 32, warp_row = threadIdx.x / 32 * 16, thread_key = first + warp_row + lane / 4;
  const float factor = h.scaler * LOG2_E;
  float key_sums[SIZE / 2] = {}, value_sums[SIZE / 2] = {};
  Factors<OTHERS> weights, factors;

  // The first such tile from here on.
  const auto find = [&](int beam, int query) -> Cursor {
    for (; beam < last_beam; beam++, query = 0) {
      const Sequence s = sequence_of(h, a.reserve, block.batch, beam);
      for (; query < s.q_length && first < s.k_length; query += OTHERS) {
        Span span{INT_MAX, 0, 0, INT_MAX};
#pragma unroll
        for (int i = 0; i < OTHERS / 32; i++) span.add(window_of(h, a.reserve, s, query + lane + 32 * i));
        span.join_lanes();
        if (span.low < first + ROWS && first < span.high) return {beam, query, span.is_full(first, ROWS)};
      }
    }
    return {last_beam, 0, false};
  };
  const auto copy = [&](const Cursor& cursor, int index) {
    unsigned char* const stage = stages + index % STAGES * STAGE_BYTES;
    Queries& table = tables[index % STAGES];
    const Sequence s = sequence_of(h, a.reserve, block.batch, cursor.beam);
    copy_tile<OTHERS, THREADS_OF_BLOCK>(stage, Source(a.q, h.q, s.q_base, h.q_strides.time, head, s.q_length),
                                        cursor.first);
    copy_tile<OTHERS, THREADS_OF_BLOCK>(
        stage + OTHER_BYTES, Source(a.dout, a.gradients, s.q_base, h.q_strides.time, head, s.q_length), cursor.first);
    if (threadIdx.x < OTHERS) {
      const int query = cursor.first + threadIdx.x;
      const bool exists = query < s.q_length;
      const Kept* kept = kept_of(h, a.work, a.products_offset, s, exists ? query : 0, head);
      cp_async<4>(&table.shift[threadIdx.x], &kept->shift, exists);
      cp_async<4>(&table.product[threadIdx.x], &kept->product, exists);
      const Window window = window_of(h, a.reserve, s, query);
      table.low[threadIdx.x] = window.low, table.high[threadIdx.x] = window.high;
    }
    cp_async_commit();
  };

  const auto wait_for = [&](const Cursor& cursor, int index) -> bool {
    const unsigned char* const stage = stages + index % STAGES * STAGE_BYTES;
    fence_proxy_async();
    if (seeks_infinite(cursor.is_full))
      return __syncthreads_or(has_infinite<OTHERS, THREADS_OF_BLOCK>(stage) ||
                              has_infinite<OTHERS, THREADS_OF_BLOCK>(stage + OTHER_BYTES));
    __syncthreads();
    return false;
  };
  const auto multiply = [&](float (&scores)[OTHERS / 2], float (&weighed)[OTHERS / 2], int index) {
    const unsigned char* const queries = stages + index % STAGES * STAGE_BYTES;
    multiply_vectors<ROWS, OTHERS>(scores, keys, queries);
    multiply_vectors<ROWS, OTHERS>(weighed, values, queries + OTHER_BYTES);
  };
  const auto add_sums = [&](int index) {
    const unsigned char* const queries = stages + index % STAGES * STAGE_BYTES;
    wgmma_fence();
    add_weighed(value_sums, weights, queries + OTHER_BYTES);
    add_weighed(key_sums, factors, queries);
    wgmma_commit();
  };
  // Calls visit(element, query of the tile) for the sums of this thread that are outside of windows.
  const auto for_each_outside = [&](const Cursor& cursor, int index, auto visit) {
    if (cursor.is_full) return;
#pragma unroll
    for (int i = 0; i < OTHERS / 2; i++)
      if (!tables[index % STAGES].has(i / 4 * 8 + lane % 4 * 2 + i % 2, thread_key + i / 2 % 2 * 8)) visit(i);
  };
  // Numbers of the queries of two neighbouring columns.
  const auto pair_at = [&](const float* numbers, int n) {
    return *reinterpret_cast<const Pack<float, 2>*>(numbers + 8 * n + lane % 4 * 2);
  };
  const auto weigh = [&](float (&scores)[OTHERS / 2], const Cursor& cursor, int index) {
#pragma unroll
    for (int n = 0; n < OTHERS / 8; n++) {
      const auto shift = pair_at(tables[index % STAGES].shift, n);
#pragma unroll
      for (int i = 0; i < 4; i++) scores[4 * n + i] = power_of_two(scores[4 * n + i] * factor - shift.item[i % 2]);
    }
    for_each_outside(cursor, index, [&](int i) { scores[i] = 0; });
  };
  // weighed: become the gradients of the scores.
  const auto differentiate = [&](float (&weighed)[OTHERS / 2], const float (&scores)[OTHERS / 2], const Cursor& cursor,
                                 int index) {
#pragma unroll
    for (int n = 0; n < OTHERS / 8; n++) {
      const auto product = pair_at(tables[index % STAGES].product, n);
#pragma unroll
      for (int i = 0; i < 4; i++) weighed[4 * n + i] = scores[4 * n + i] * (weighed[4 * n + i] - product.item[i % 2]);
    }
    for_each_outside(cursor, index, [&](int i) { weighed[i] = 0; });
  };
  const auto set_infinite_apart = [&](int index) {
    unsigned char* const queries = stages + index % STAGES * STAGE_BYTES;
    const auto is_weighed = [&](int part, int query) {
      return tables[index % STAGES].has(query, thread_key + 8 * part);
    };
    const auto synchronise = [] { __syncthreads(); };
    add_infinite<OTHERS, THREADS_OF_BLOCK, false>(key_sums, queries, is_weighed, synchronise);
    add_infinite<OTHERS, THREADS_OF_BLOCK, true>(value_sums, queries + OTHER_BYTES, is_weighed, synchronise);
  };

  Cursor current = find(block.beam, 0);
  if (current.beam < last_beam) {
    copy_tile<ROWS, THREADS_OF_BLOCK>(keys, k, first);
    copy_tile<ROWS, THREADS_OF_BLOCK>(values, v, first);
    copy(current, 0);
  }
  for (int index = 0; current.beam < last_beam; index++) {
    cp_async_wait<0>();
    const bool is_infinite = wait_for(current, index);
    float scores[OTHERS / 2], weighed[OTHERS / 2];
    multiply(scores, weighed, index);
    const Cursor next = find(current.beam, current.first + OTHERS);
    if (next.beam < last_beam) copy(next, index + 1);
    wgmma_wait<1>();
    wgmma_fence_accumulators(scores);
    weigh(scores, current, index);
    weights.make(scores);
    wgmma_wait<0>();
    wgmma_fence_accumulators(weighed);
    differentiate(weighed, scores, current, index);
    factors.make(weighed);
    if (is_infinite) set_infinite_apart(index);
    add_sums(index);
    wgmma_wait<0>();
    wgmma_fence_accumulators(key_sums);
    wgmma_fence_accumulators(value_sums);
    current = next;
  }
  wgmma_wait<0>();
  wgmma_fence_accumulators(key_sums);
  wgmma_fence_accumulators(value_sums);
  __syncthreads();
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
