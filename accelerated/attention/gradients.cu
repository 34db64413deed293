// This file computes the gradients of each head's vectors in multi-head attention (8.2.15).
//
// A block has a tile of queries (or keys), one head and TILE elements of their gradient. It visits the tiles of keys
// (or queries) that share a window with its own. No scores are stored: it recomputes them, with the maxima and inverse
// sums of the forward call. The order of sums is fixed, so that results are reproducible.
//
// Roofline bound: flops on CUDA cores. Each pair of a query and a key in its window takes 2 (size of q + size of v)
// flops for scores and weights. Each tile of TILE elements of a gradient takes 2 TILE more. Bytes: each tile reads each
// vector once from L2.
#include "attention/heads.cuh"

struct GradientArguments {
  const void* q;
  const void* k;
  const void* v;
  const void* dout;  // gradients of the heads' outputs
  const void* reserve;
  void* work;
  void* result;
  void* values_result;
  Heads heads;
  Vectors gradients;                                           // gradients of the heads' outputs
  long long heads_offset, statistics_offset, products_offset;  // bytes
  long long result_offset, values_offset;
  int pairs;  // number of queries times heads
  FastDivmod tiles, chunks, head_count, beam_count;
  int key_chunks;  // chunks of keys; chunks of values follow
};

// Multiplies the heads' outputs by their gradients. One warp computes one query and head.
extern "C" __global__ void __launch_bounds__(256) attention_gradients_products(const GradientArguments a) {
  griddepcontrol_wait();
  const int pair = (blockIdx.x * blockDim.x + threadIdx.x) / 32, lane = threadIdx.x % 32;
  if (pair >= a.pairs) return;
  unsigned head;
  const int vector = a.head_count.divide(pair, head);
  const ELEMENT* made = at_byte<ELEMENT>(a.reserve, a.heads_offset) + static_cast<long long>(pair) * a.gradients.size;
  COMPUTE sum = 0;
  for (int c = lane; c < a.gradients.size; c += 32)
    sum += load<COMPUTE>(made[c]) * element(a.dout, a.gradients, vector, head, c);
#pragma unroll
  for (int other = 16; other > 0; other /= 2) sum += __shfl_xor_sync(0xffffffff, sum, other);
  if (lane == 0) at_byte<COMPUTE>(a.work, a.products_offset)[pair] = sum;
}

// Holds the results of the forward call for the queries of a tile.
struct Left {
  COMPUTE maximum[ITEMS], inverse[ITEMS], product[ITEMS];
};
__device__ __forceinline__ Left read_left(const GradientArguments& a, const Sequence& s, int first, int head) {
  Left left;
#pragma unroll
  for (int i = 0; i < ITEMS; i++) {
    const int query = first + threadIdx.x / LANES + LANES * i;
    const bool exists = query < s.q_length;
    const long long pair = static_cast<long long>(s.q_base + query * a.heads.q_strides.time) * a.heads.heads + head;
    const COMPUTE* statistics = at_byte<COMPUTE>(a.reserve, a.statistics_offset);
    left.maximum[i] = exists ? statistics[2 * pair] : COMPUTE(0);
    left.inverse[i] = exists ? statistics[2 * pair + 1] : COMPUTE(0);
    left.product[i] = exists ? at_byte<COMPUTE>(a.work, a.products_offset)[pair] : COMPUTE(0);
  }
  return left;
}

// Fills the tile's weights with the softmax or, where OF_SCORES, with the gradients of the scores times the scaler.
template <bool OF_SCORES>
__device__ __forceinline__ void fill_weights(const GradientArguments& a, const Sequence& s, const Left& left,
                                             Tiles& tiles, int first, int key, int head) {
  const Heads& h = a.heads;
  const int ty = threadIdx.x / LANES, tx = threadIdx.x % LANES;
  COMPUTE scores[ITEMS][ITEMS], weighed[ITEMS][ITEMS];
  multiply_vectors(scores, tiles, {a.q, h.q, s.q_base, h.q_strides.time, first, s.q_length},
                   {a.k, h.k, s.k_base, h.k_strides.time, key, s.k_length}, head);
  if (OF_SCORES)
    multiply_vectors(weighed, tiles, {a.dout, a.gradients, s.q_base, h.q_strides.time, first, s.q_length},
                     {a.v, h.v, s.k_base, h.k_strides.time, key, s.k_length}, head);
#pragma unroll
  for (int i = 0; i < ITEMS; i++)
#pragma unroll
    for (int j = 0; j < ITEMS; j++) {
      const int row = ty + LANES * i, column = tx + LANES * j;
      COMPUTE weight = 0;
      if (is_inside(tiles, row, key + column)) {
        weight = exp(scores[i][j] * h.scaler - left.maximum[i]) * left.inverse[i];
        if (OF_SCORES) weight *= (weighed[i][j] - left.product[i]) * h.scaler;
      }
      tiles.weights[row][column] = weight;
    }
}

extern "C" __global__ void __launch_bounds__(THREADS) attention_gradients_queries(const GradientArguments a) {
  griddepcontrol_wait();
  __shared__ Tiles tiles;
  const Heads& h = a.heads;
  unsigned tile, chunk, head, beam;
  const unsigned batch =
      a.beam_count.divide(a.head_count.divide(a.chunks.divide(a.tiles.divide(blockIdx.x, tile), chunk), head), beam);
  const int first = tile * TILE, column = chunk * TILE;
  const Sequence s = sequence_of(h, a.reserve, batch, beam);
  int low, high;
  read_windows(h, a.reserve, s, first, tiles, low, high);
  const Left left = read_left(a, s, first, head);
  COMPUTE sums[ITEMS][ITEMS] = {};
  for (int key = low / TILE * TILE; key < high; key += TILE) {
    fill_weights<true>(a, s, left, tiles, first, key, head);
    add_weighed<false>(sums, tiles, {a.k, h.k, s.k_base, h.k_strides.time, key, s.k_length}, head, column, key);
  }
  ELEMENT* const result = at_byte<ELEMENT>(a.result, a.result_offset);
#pragma unroll
  for (int i = 0; i < ITEMS; i++) {
    const int query = first + threadIdx.x / LANES + LANES * i;
    if (query >= h.q_steps) continue;
    const long long vector = static_cast<long long>(s.q_base + query * h.q_strides.time) * h.heads + head;
#pragma unroll
    for (int j = 0; j < ITEMS; j++) {
      const int c = column + threadIdx.x % LANES + LANES * j;
      if (c < h.q.size) result[vector * h.q.size + c] = store<ELEMENT>(sums[i][j]);
    }
  }
}

// Computes the gradients of a tile of keys or of values. It visits the beams that share them in order.
template <bool OF_KEYS>
__device__ __forceinline__ void gradients_of_keys(const GradientArguments& a, Tiles& tiles, int key, int column,
                                                  int head, int batch, int key_beam) {
  const Heads& h = a.heads;
  const Vectors& kind = OF_KEYS ? h.k : h.v;
  const int beams = h.key_beams > 1 ? 1 : h.beams;
  COMPUTE sums[ITEMS][ITEMS] = {};
  for (int i = 0; i < beams; i++) {
    const Sequence s = sequence_of(h, a.reserve, batch, key_beam + i);
    if (key >= s.k_length) continue;
    for (int first = 0; first < s.q_length; first += TILE) {
      int low, high;
      read_windows(h, a.reserve, s, first, tiles, low, high);
      if (high <= key || low >= key + TILE) continue;
      fill_weights<OF_KEYS>(a, s, read_left(a, s, first, head), tiles, first, key, head);
      add_weighed<true>(
          sums, tiles,
          {OF_KEYS ? a.q : a.dout, OF_KEYS ? h.q : a.gradients, s.q_base, h.q_strides.time, first, s.q_length}, head,
          column, key);
    }
  }
  ELEMENT* const result =
      OF_KEYS ? at_byte<ELEMENT>(a.result, a.result_offset) : at_byte<ELEMENT>(a.values_result, a.values_offset);
  const int base = batch * h.k_strides.batch + key_beam * h.k_strides.beam;
#pragma unroll
  for (int i = 0; i < ITEMS; i++) {
    const int row = key + threadIdx.x / LANES + LANES * i;
    if (row >= h.k_steps) continue;
    const long long vector = static_cast<long long>(base + row * h.k_strides.time) * h.heads + head;
#pragma unroll
    for (int j = 0; j < ITEMS; j++) {
      const int c = column + threadIdx.x % LANES + LANES * j;
      if (c < kind.size) result[vector * kind.size + c] = store<ELEMENT>(sums[i][j]);
    }
  }
}

extern "C" __global__ void __launch_bounds__(THREADS) attention_gradients_keys(const GradientArguments a) {
  griddepcontrol_wait();
  __shared__ Tiles tiles;
  unsigned tile, chunk, head, beam;
  const unsigned batch =
      a.beam_count.divide(a.head_count.divide(a.chunks.divide(a.tiles.divide(blockIdx.x, tile), chunk), head), beam);
  const int key = tile * TILE, part = chunk;
  if (part < a.key_chunks) gradients_of_keys<true>(a, tiles, key, part * TILE, head, batch, beam);
  else gradients_of_keys<false>(a, tiles, key, (part - a.key_chunks) * TILE, head, batch, beam);
}
