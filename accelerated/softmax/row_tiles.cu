// These kernels compute softmax of short contiguous rows, forward (3.2.96) and backward (4.1.19).
//
// A block moves a tile of many rows in 16-byte accesses through shared memory; all tiles are resident at once if they
// fit the device. Lanes of a warp share a row. For rows of up to four elements, a thread takes enough rows to fill
// vectors (_short). For 16-bit elements, few lanes walk along a row in pairs (_pairs).
//
// Roofline: bytes, each moves once; about 12 flops per element forward, 10 backward. Shared memory is the limit: 191 KB
// per SM arrive, are read twice and written. On an H200, 31x67x37x41 float NHWC over channels takes 6.3 us forward,
// which is 95 % of a copy's throughput.
#include "softmax/reduce.cuh"

// Returns the first row of a thread. The rows of a warp are far apart, so that its lanes access different banks.
// Neighbouring rows of odd length would need up to three times as many accesses; gradients of 67 floats would take 20 %
// longer (H200).
__device__ __forceinline__ unsigned first_row_of_tile(unsigned log_team, unsigned length) {
  constexpr unsigned LOG_WARPS = 3;  // log2 of the warps per block
  const unsigned most = min(log_team, LOG_WARPS), log_apart = most - min(most, unsigned(__ffs(length) - 1)),
                 log_rows = 5 - log_team;
  const unsigned warp = threadIdx.x >> 5, of_warp = (threadIdx.x & 31) >> log_team;
  return (warp >> log_apart << (log_rows + log_apart)) + (of_warp << log_apart) + (warp & ((1u << log_apart) - 1));
}

// Computes the rows of a tile in shared memory (inputs are `pitch` apart), with N elements per lane. Results replace
// the first input.
template <class Rule, int N>
__device__ __forceinline__ void softmax_in_tile(const Arguments<Rule::INPUTS>& a, ELEMENT* tile, unsigned pitch,
                                                unsigned first_row, unsigned rows, const ELEMENT* prior) {
  const Rule rule{Algorithm(a.algorithm), a.alpha};
  const unsigned log_team = exponent_of(a.team), rank = threadIdx.x & (a.team - 1), length = a.along.row;
  const bool last_exists = rank + ((N - 1) << log_team) < length;
  for (unsigned row = first_row; row < a.kept; row += blockDim.x >> log_team) {
    const unsigned first = row * length + rank;
    COMPUTE values[Rule::INPUTS][N], result[N];
#pragma unroll
    for (int n = 0; n < Rule::INPUTS; n++)
#pragma unroll
      for (int j = 0; j < N; j++)
        values[n][j] =
            j < N - 1 || last_exists ? load<COMPUTE>(tile[n * pitch + first + (j << log_team)]) : Rule::neutral();
    OnlineState state[1] = {rule.empty()};
    rule.template add<true>(state, values);
    merge_lanes(rule, state, 1, a.team);
    rule.finish(state[0]);
    rule.results(state, values, result);
    if (row >= rows) continue;
    if (a.beta != COMPUTE(0))
#pragma unroll
      for (int j = 0; j < N; j++)
        if (j < N - 1 || last_exists) result[j] += a.beta * load<COMPUTE>(prior[first + (j << log_team)]);
#pragma unroll
    for (int j = 0; j < N; j++)
      if (j < N - 1 || last_exists) tile[first + (j << log_team)] = store<ELEMENT>(result[j]);
  }
}

// Computes rows of LENGTH elements; a thread takes enough neighbouring rows to fill vectors.
template <class Rule, int LENGTH>
__device__ __forceinline__ void short_rows_in_tile(const Arguments<Rule::INPUTS>& a, ELEMENT* tile, unsigned pitch,
                                                   unsigned rows, const ELEMENT* prior) {
  constexpr int WIDE = 16 / sizeof(ELEMENT), INPUTS = Rule::INPUTS;
  using Held = Elements<WIDE>;
  const Rule rule{Algorithm(a.algorithm), a.alpha};
  for (unsigned first = threadIdx.x * WIDE; first < rows; first += blockDim.x * WIDE) {
    COMPUTE values[INPUTS][LENGTH * WIDE], result[LENGTH * WIDE];  // index k * WIDE + i is element k of row i
#pragma unroll
    for (int n = 0; n < INPUTS; n++)
#pragma unroll
      for (int k = 0; k < LENGTH; k++) {
        COMPUTE of_vector[WIDE];
        unpack(reinterpret_cast<const Held*>(tile + n * pitch + first * LENGTH) + k, of_vector);
#pragma unroll
        for (int i = 0; i < WIDE; i++)
          values[n][(k * WIDE + i) % LENGTH * WIDE + (k * WIDE + i) / LENGTH] = of_vector[i];
      }
    OnlineState state[WIDE];
#pragma unroll
    for (int i = 0; i < WIDE; i++) state[i] = rule.empty();
    rule.template cover<true>(state, values);
    rule.template add_covered<true>(state, values);
#pragma unroll
    for (int i = 0; i < WIDE; i++) rule.finish(state[i]);
    rule.template results<true>(state, values, result);
#pragma unroll
    for (int k = 0; k < LENGTH; k++) {
      COMPUTE of_vector[WIDE];
#pragma unroll
      for (int i = 0; i < WIDE; i++) {
        const int element = k * WIDE + i;
        of_vector[i] = result[element % LENGTH * WIDE + element / LENGTH];
        if (a.beta != COMPUTE(0) && first + element / LENGTH < rows)
          of_vector[i] += a.beta * load<COMPUTE>(prior[first * LENGTH + element]);
      }
      pack(of_vector, reinterpret_cast<Held*>(tile + first * LENGTH) + k);
    }
  }
}

// A few lanes compute a row of the tile in shared memory: first its state, then the results, which replace the first
// input. Elements move in pairs; a lane also takes an element that has no partner. Single elements with more lanes
// would be issue-bound (80 % of all cycles on an H200). They would take 10 % longer for rows of 67 half elements. Float
// tiles do not use this kernel, because it takes 15 % longer.
template <class Rule>
__device__ __forceinline__ void pairs_in_tile(const Arguments<Rule::INPUTS>& a, const Rule rule, ELEMENT* tile,
                                              unsigned pitch, unsigned rows, const ELEMENT* prior) {
  constexpr int INPUTS = Rule::INPUTS, PAIR = 2, CHUNK = 4, VALUES = CHUNK * PAIR, REST = VALUES + 2;
  using Item = Elements<PAIR>;
  const unsigned log_team = exponent_of(a.team), rank = threadIdx.x & (a.team - 1), length = a.along.row,
                 stride = CHUNK << log_team;
  for (unsigned row = threadIdx.x >> log_team; (row & ~(31u >> log_team)) < rows; row += blockDim.x >> log_team) {
    const unsigned begin = min(row, rows - 1) * length, end = begin + length;
    const unsigned first = (begin + PAIR - 1) / PAIR + rank, beyond = end / PAIR;  // indices of pairs
    const unsigned full = first + ((beyond - first - 1 + a.team) >> log_team) / CHUNK * stride;
    auto item = [&](int n, unsigned i) { return reinterpret_cast<Item*>(tile + n * pitch) + i; };
    auto take = [&](unsigned i, COMPUTE(&values)[INPUTS][VALUES]) {
#pragma unroll
      for (int n = 0; n < INPUTS; n++)
#pragma unroll
        for (int k = 0; k < CHUNK; k++) unpack(item(n, i + (k << log_team)), &values[n][k * PAIR]);
    };
    // This lane takes the remaining elements of the row.
    const bool ends[2] = {rank == 0 && begin % 2 != 0, rank == 0 && end % 2 != 0};
    COMPUTE rest[INPUTS][REST];
#pragma unroll
    for (int n = 0; n < INPUTS; n++) {
#pragma unroll
      for (int j = 0; j < REST; j++) rest[n][j] = Rule::neutral();
#pragma unroll
      for (int k = 0; k < CHUNK; k++)
        if (full + (k << log_team) < beyond) unpack(item(n, full + (k << log_team)), &rest[n][k * PAIR]);
      if (ends[0]) rest[n][VALUES] = load<COMPUTE>(tile[n * pitch + begin]);
      if (ends[1]) rest[n][VALUES + 1] = load<COMPUTE>(tile[n * pitch + end - 1]);
    }
    OnlineState state[1] = {rule.empty()};
    rule.template add<true>(state, rest);
#pragma unroll 1
    for (unsigned i = first; i != full; i += stride) {
      COMPUTE values[INPUTS][VALUES];
      take(i, values);
      rule.add(state, values);
    }
    merge_lanes(rule, state, 1, a.team);
    rule.finish(state[0]);
    __syncwarp();  // Lanes without a row have read the last row.
    if (row >= rows) continue;
#pragma unroll 1
    for (unsigned i = first; i != full; i += stride) {
      COMPUTE values[INPUTS][VALUES], result[VALUES];
      take(i, values);
      rule.results(state, values, result);
      if (a.beta != COMPUTE(0))
#pragma unroll
        for (int j = 0; j < VALUES; j++)
          result[j] += a.beta * load<COMPUTE>(prior[(i + (j / PAIR << log_team)) * PAIR + j % PAIR]);
#pragma unroll
      for (int k = 0; k < CHUNK; k++) {
        COMPUTE of_item[PAIR];
#pragma unroll
        for (int j = 0; j < PAIR; j++) of_item[j] = result[k * PAIR + j];
        pack(of_item, item(0, i + (k << log_team)));
      }
    }
    COMPUTE result[REST];
    rule.results(state, rest, result);
#pragma unroll
    for (int k = 0; k < CHUNK; k++) {
      const unsigned i = full + (k << log_team);
      if (i >= beyond) break;
      COMPUTE of_item[PAIR];
#pragma unroll
      for (int j = 0; j < PAIR; j++) {
        of_item[j] = result[k * PAIR + j];
        if (a.beta != COMPUTE(0)) of_item[j] += a.beta * load<COMPUTE>(prior[i * PAIR + j]);
      }
      pack(of_item, item(0, i));
    }
#pragma unroll
    for (int side = 0; side < 2; side++)
      if (ends[side]) {
        const unsigned i = side ? end - 1 : begin;
        tile[i] = store<ELEMENT>(a.beta != COMPUTE(0) ? result[REST - 2 + side] + a.beta * load<COMPUTE>(prior[i])
                                                      : result[REST - 2 + side]);
      }
  }
}
// The algorithm is a compile-time constant of the loops.
template <class Rule>
__device__ __forceinline__ void softmax_of_pairs(const Arguments<Rule::INPUTS>& a, ELEMENT* tile, unsigned pitch,
                                                 unsigned rows, const ELEMENT* prior) {
  if (a.algorithm == LOG) pairs_in_tile(a, Rule{LOG, a.alpha}, tile, pitch, rows, prior);
  else if (a.algorithm == FAST && Rule::INPUTS == 1) pairs_in_tile(a, Rule{FAST, a.alpha}, tile, pitch, rows, prior);
  else pairs_in_tile(a, Rule{ACCURATE, a.alpha}, tile, pitch, rows, prior);
}

// Each count has its own case label. A function that takes the count as an argument would spill registers.
#define WITH_COUNT(n, rows_in_tile, ...) \
  case n:                                \
    rows_in_tile<Rule, n>(__VA_ARGS__);  \
    break

enum class Tile { ANY, SHORT, PAIRS };

template <class Rule, Tile KIND> __device__ __forceinline__ void softmax_of_tile(const Arguments<Rule::INPUTS>& a) {
  constexpr int INPUTS = Rule::INPUTS;
  constexpr unsigned VECTOR = 16 / sizeof(ELEMENT);
  using Raw = Vector<unsigned, 4>;
  const unsigned thread = threadIdx.x, threads = blockDim.x, length = a.along.row;
  const unsigned rows = min(a.kept, a.rows.vectors - blockIdx.x * a.kept), elements = rows * length;
  const unsigned start = blockIdx.x * a.kept * length, pitch = (a.kept * length + VECTOR - 1) / VECTOR * VECTOR;
  ELEMENT* tile = reinterpret_cast<ELEMENT*>(shared_memory);

  griddepcontrol_wait_before_access(a.input[0] + start, a.output + start);
#pragma unroll
  for (int n = 0; n < INPUTS; n++) {
    const ELEMENT* source = a.input[n] + start;
    ELEMENT* target = tile + n * pitch;
    const unsigned full = aligned<ELEMENT, VECTOR>(source) ? elements / VECTOR : 0;
    for (unsigned i = thread; i < full; i += threads)
      copy(reinterpret_cast<Raw*>(target) + i, reinterpret_cast<const Raw*>(source) + i);
    for (unsigned i = full * VECTOR + thread; i < elements; i += threads) target[i] = source[i];
  }
  cp_async_commit();
  // This is computed while the copies are in flight.
  const unsigned first_row = KIND == Tile::ANY ? first_row_of_tile(exponent_of(a.team), length) : 0;
  cp_async_wait<0>();
  griddepcontrol_launch_dependents_medium_grid();
  __syncthreads();

  ELEMENT* target = a.output + start;
  if constexpr (KIND == Tile::PAIRS) {
    if constexpr (PAIRED) softmax_of_pairs<Rule>(a, tile, pitch, rows, target);
  } else if constexpr (KIND == Tile::SHORT) {
    switch (length) {
      WITH_COUNT(1, short_rows_in_tile, a, tile, pitch, rows, target);
      WITH_COUNT(2, short_rows_in_tile, a, tile, pitch, rows, target);
      WITH_COUNT(3, short_rows_in_tile, a, tile, pitch, rows, target);
      default:
        short_rows_in_tile<Rule, 4>(a, tile, pitch, rows, target);
    }
  } else {
    switch ((length + a.team - 1) >> exponent_of(a.team)) {
      WITH_COUNT(1, softmax_in_tile, a, tile, pitch, first_row, rows, target);
      WITH_COUNT(2, softmax_in_tile, a, tile, pitch, first_row, rows, target);
      WITH_COUNT(3, softmax_in_tile, a, tile, pitch, first_row, rows, target);
      WITH_COUNT(4, softmax_in_tile, a, tile, pitch, first_row, rows, target);
      WITH_COUNT(5, softmax_in_tile, a, tile, pitch, first_row, rows, target);
      WITH_COUNT(6, softmax_in_tile, a, tile, pitch, first_row, rows, target);
      WITH_COUNT(7, softmax_in_tile, a, tile, pitch, first_row, rows, target);
      WITH_COUNT(8, softmax_in_tile, a, tile, pitch, first_row, rows, target);
      default:
        if (INPUTS == 2 || length <= 9 * a.team) softmax_in_tile<Rule, 9>(a, tile, pitch, first_row, rows, target);
        else if constexpr (INPUTS == 1)
          softmax_in_tile<Rule, 10>(a, tile, pitch, first_row, rows, target);  // Two inputs need too many registers.
    }
  }
  __syncthreads();

  const unsigned full = aligned<ELEMENT, VECTOR>(target) ? elements / VECTOR : 0;
  for (unsigned i = thread; i < full; i += threads)
    reinterpret_cast<Raw*>(target)[i] = reinterpret_cast<const Raw*>(tile)[i];
  for (unsigned i = full * VECTOR + thread; i < elements; i += threads) target[i] = tile[i];
}

// These are the numbers of blocks per SM that the registers must allow.
constexpr bool DOUBLE = sizeof(COMPUTE) == 8;
constexpr int TILE_BLOCKS = DOUBLE ? 2 : 6;
constexpr int SHORT_BLOCKS = DOUBLE ? 2 : 4;

#define SOFTMAX_ROW_TILES(variant, rule, kind, blocks)               \
  extern "C" __global__ void __launch_bounds__(256, blocks)          \
      softmax_row_tiles_##variant(const Arguments<rule::INPUTS> a) { \
    griddepcontrol_wait_deferred();                                  \
    softmax_of_tile<rule, Tile::kind>(a);                            \
  }
SOFTMAX_ROW_TILES(forward, Forward, ANY, TILE_BLOCKS)
SOFTMAX_ROW_TILES(backward, Backward, ANY, TILE_BLOCKS)
SOFTMAX_ROW_TILES(forward_short, Forward, SHORT, SHORT_BLOCKS)
SOFTMAX_ROW_TILES(backward_short, Backward, SHORT, SHORT_BLOCKS - 1)
SOFTMAX_ROW_TILES(forward_pairs, Forward, PAIRS, SHORT_BLOCKS)
SOFTMAX_ROW_TILES(backward_pairs, Backward, PAIRS, SHORT_BLOCKS)
