// Softmax over lines that threads hold in registers, forward (3.2.96) and backward (4.1.19), by blocks that stay.
//
// A team of threads takes a line, or a pack of neighbouring lines, as in softmax.cu; every thread has HELD_PACKS packs of
// each input. A block takes the tiles of all its teams in turns with the other blocks. The packs of the next tiles are
// on their way (cp.async) to places of the thread in shared memory, `kept` tiles at a time: while one tile is computed and
// written, the reads of the next go on, and no block has to start for it.
#include "softmax.cuh"

// What modules are made for, as softmax.py chooses
#ifndef HELD_PACKS
#define HELD_PACKS 4
#endif
#ifndef HELD_THREADS
#define HELD_THREADS 256
#endif
#ifndef HELD_BLOCKS
#define HELD_BLOCKS 3  // of a multiprocessor
#endif

template <class Rule, bool COLUMNS, bool CLUSTERED> __device__ __forceinline__ void softmax_held(const Arguments<Rule::INPUTS>& a) {
  constexpr int INPUTS = Rule::INPUTS, PACKS = HELD_PACKS;
  using Packs = WidePacks<Rule, COLUMNS, PACKS>;
  using Place = typename Packs::Place;
  constexpr int LANES = Packs::LANES, WIDE = Packs::WIDE;
  constexpr unsigned BLOCKS = CLUSTERED ? CLUSTER : 1;
  const Rule rule{Algorithm(a.algorithm), a.alpha};
  const unsigned thread = threadIdx.x, threads = blockDim.x, log_team = exponent_of(a.team);
  const unsigned inner = thread & (a.team - 1), outer = thread >> log_team;
  const unsigned of_block = COLUMNS ? threads >> log_team : a.team, size = of_block * BLOCKS;
  const unsigned rank = (COLUMNS ? outer : inner) + (CLUSTERED ? rank_in_cluster() * of_block : 0);
  const unsigned log_lines = COLUMNS ? log_team : exponent_of(threads) - log_team, mine = COLUMNS ? inner : outer;
  const unsigned tiles = ((a.lines.packs - 1) >> log_lines) + 1, first = blockIdx.x / BLOCKS, stride = gridDim.x / BLOCKS;
  auto line_of = [&](unsigned tile) {
    const unsigned index = (tile << log_lines) + mine;
    Packs packs(a, min(index, a.lines.packs - 1));
    if (index >= a.lines.packs) packs.end_for_good();
    return packs;
  };
  Place* const places = reinterpret_cast<Place*>(shared_memory) + thread;
  const unsigned room = PACKS * INPUTS * threads;
  Statistic* const parts = reinterpret_cast<Statistic*>(shared_memory + a.kept * room * sizeof(Place));
  const unsigned parts_of_turn = COLUMNS ? ((threads >> max(log_team, 5u)) + BLOCKS) * a.team * LANES : (a.team >> 5) + 1 + BLOCKS;

  for (unsigned stage = 0; stage < a.kept; stage++) {
    const unsigned tile = first + stage * stride;
    if (tile < tiles) line_of(tile).fetch(rank, size, places + stage * room, threads);
    commit();
  }
  unsigned stage = 0, turn = 0;
#pragma unroll 1
  for (unsigned tile = first; tile < tiles; tile += stride, turn ^= 1) {
    if (CLUSTERED) announce_to_cluster();
    // Of one input the values, which become exponentials; of two the packs, which take fewer registers.
    constexpr bool EXPONENTIALS = INPUTS == 1;
    [[maybe_unused]] COMPUTE values[INPUTS][EXPONENTIALS ? PACKS * WIDE : 1], result[EXPONENTIALS ? PACKS * WIDE : 1];
    [[maybe_unused]] Place held[PACKS][INPUTS];
    Place* const place = places + stage * room;
    first_arrived(a.kept);
    const Packs packs = line_of(tile);
    if constexpr (EXPONENTIALS) {
      packs.take(0, 0, place, threads, values);
    } else {
#pragma unroll
      for (int k = 0; k < PACKS; k++)
#pragma unroll
        for (int n = 0; n < INPUTS; n++) held[k][n] = place[(k * INPUTS + n) * threads];
    }
    const unsigned next = tile + a.kept * stride;
    if (next < tiles) line_of(next).fetch(rank, size, place, threads);
    commit();
    stage = stage + 1 == a.kept ? 0 : stage + 1;

    Statistic statistic[LANES];
#pragma unroll
    for (int lane = 0; lane < LANES; lane++) statistic[lane] = rule.empty();
    if constexpr (EXPONENTIALS) {
      rule.template cover<true>(statistic, values);
      rule.template add_covered<true>(statistic, values);
    } else {
#pragma unroll
      for (int k = 0; k < PACKS; k++) {
        COMPUTE of_pack[INPUTS][WIDE];
#pragma unroll
        for (int n = 0; n < INPUTS; n++) unpack(&held[k][n], of_pack[n]);
        rule.add(statistic, of_pack);
      }
    }
    // Exponentials were taken below the maximum of the thread's own values.
    COMPUTE top[LANES];
#pragma unroll
    for (int lane = 0; lane < LANES; lane++) top[lane] = statistic[lane].top;
    if constexpr (COLUMNS) merge_columns<CLUSTERED>(rule, statistic, a.team, parts + turn * parts_of_turn);
    else merge_lines<CLUSTERED>(rule, statistic, a.team, parts + turn * parts_of_turn);
#pragma unroll
    for (int lane = 0; lane < LANES; lane++) rule.scale(statistic[lane], top[lane]);
    if constexpr (EXPONENTIALS) rule.template results<true>(statistic, values, result);
    const bool whole = packs.are_whole(rank, size);
#pragma unroll
    for (int k = 0; k < PACKS; k++) {
      const unsigned pack = rank + k * size;
      if (!whole && pack >= packs.packs) continue;
      const bool as_whole = whole || packs.is_whole(pack);
      if constexpr (EXPONENTIALS) {
        COMPUTE of_pack[WIDE];
#pragma unroll
        for (int i = 0; i < WIDE; i++) of_pack[i] = result[k * WIDE + i];
        packs.write_results(pack, as_whole, of_pack);
      } else {
        packs.write_pack(rule, statistic, pack, as_whole, held[k], 1);
      }
    }
  }
}

using Words4 = Pack<unsigned, 4>;
union PackWords {
  Words4 words;
  Elements<WIDTH> elements;
  __device__ __forceinline__ PackWords() {}
};
__device__ __forceinline__ Words4 words_of(const Elements<WIDTH>& elements) {
  PackWords pack;
  pack.elements = elements;
  return pack.words;
}
template <class Rule> __device__ __forceinline__ Words4 neutral_words() {
  Elements<WIDTH> pack;
#pragma unroll
  for (int i = 0; i < WIDTH; i++) pack.item[i] = store<ELEMENT>(Rule::neutral());
  return words_of(pack);
}
// Raises the maxima of empty statistics to those of packs; pairs are compared as they are.
template <class Rule, int LANES, int PACKS>
__device__ __forceinline__ void cover_words(const Rule& rule, Statistic (&line)[LANES], const Words4 (&held)[PACKS][1]) {
  if (!rule.has_top()) return;
  if constexpr (PAIRED) {
    COMPUTE tops[WIDTH];
#pragma unroll
    for (int word = 0; word < WIDTH / 2; word++) {
      Pair top(held[0][0].item[word]);
#pragma unroll
      for (int k = 1; k < PACKS; k++) top.pair = __hmax2(top.pair, Pair(held[k][0].item[word]).pair);
      const float2 two = both(top.pair);
      tops[2 * word] = two.x, tops[2 * word + 1] = two.y;
    }
#pragma unroll
    for (int i = 0; i < WIDTH; i++) line[i % LANES].top = max(line[i % LANES].top, tops[i]);
  } else {
    COMPUTE values[1][PACKS * WIDTH];
#pragma unroll
    for (int k = 0; k < PACKS; k++) unpack(reinterpret_cast<const Elements<WIDTH>*>(&held[k][0]), &values[0][k * WIDTH]);
    rule.template cover<true>(line, values);
  }
}

// One tile a block, read from memory into registers.
template <class Rule, bool COLUMNS> __device__ __forceinline__ void softmax_direct(const Arguments<Rule::INPUTS>& a) {
  constexpr int INPUTS = Rule::INPUTS, PACKS = HELD_PACKS;
  using Packs = WidePacks<Rule, COLUMNS, PACKS>;
  using Place = typename Packs::Place;
  constexpr int LANES = Packs::LANES, WIDE = Packs::WIDE;
  const Rule rule{Algorithm(a.algorithm), a.alpha};
  const unsigned thread = threadIdx.x, log_team = exponent_of(a.team);
  const unsigned inner = thread & (a.team - 1), outer = thread >> log_team;
  const unsigned size = COLUMNS ? blockDim.x >> log_team : a.team, rank = COLUMNS ? outer : inner;
  const unsigned index = COLUMNS ? (blockIdx.x << log_team) + inner : (blockIdx.x * blockDim.x + thread) >> log_team;
  Packs packs(a, min(index, a.lines.packs - 1));
  if (index >= a.lines.packs) packs.end_for_good();
  wait_to_touch(packs.input[0] + packs.offset(rank, 0), packs.output);

  // All is read before any of it is used.
  Words4 held[PACKS][INPUTS];
  const bool whole = packs.wholes == packs.packs;
  const Words4 nothing = neutral_words<Rule>();
  if (whole) {
#pragma unroll
    for (int k = 0; k < PACKS; k++)
#pragma unroll
      for (int n = 0; n < INPUTS; n++) {
        held[k][n] = nothing;
        if (rank + k * size < packs.packs) held[k][n] = *reinterpret_cast<const Words4*>(packs.input[n] + packs.offset(rank + k * size, n));
      }
  } else {
#pragma unroll
    for (int k = 0; k < PACKS; k++)
#pragma unroll
      for (int n = 0; n < INPUTS; n++) held[k][n] = words_of(packs.read(rank + k * size, n));
  }
  let_next_kernel_begin();

  Statistic statistic[LANES];
  COMPUTE top[LANES];
#pragma unroll
  for (int lane = 0; lane < LANES; lane++) statistic[lane] = rule.empty();
  constexpr bool EXPONENTIALS = INPUTS == 1;
  [[maybe_unused]] COMPUTE values[1][EXPONENTIALS ? PACKS * WIDE : 1];
  if constexpr (EXPONENTIALS) {
    cover_words(rule, statistic, held);
#pragma unroll
    for (int k = 0; k < PACKS; k++) unpack(reinterpret_cast<const Place*>(&held[k][0]), &values[0][k * WIDE]);
    rule.template add_covered<true>(statistic, values);
  } else {
#pragma unroll
    for (int k = 0; k < PACKS; k++) {
      COMPUTE of_pack[INPUTS][WIDE];
#pragma unroll
      for (int n = 0; n < INPUTS; n++) unpack(reinterpret_cast<const Place*>(&held[k][n]), of_pack[n]);
      rule.add(statistic, of_pack);
    }
  }
#pragma unroll
  for (int lane = 0; lane < LANES; lane++) top[lane] = statistic[lane].top;
  Statistic* const parts = reinterpret_cast<Statistic*>(shared_memory);
  if constexpr (COLUMNS) merge_columns<false>(rule, statistic, a.team, parts);
  else merge_lines<false>(rule, statistic, a.team, parts);
#pragma unroll
  for (int lane = 0; lane < LANES; lane++) rule.scale(statistic[lane], top[lane]);
  if constexpr (EXPONENTIALS) {
    COMPUTE result[PACKS * WIDE];
    rule.template results<true>(statistic, values, result);
#pragma unroll
    for (int k = 0; k < PACKS; k++) {
      const unsigned pack = rank + k * size;
      COMPUTE of_pack[WIDE];
#pragma unroll
      for (int i = 0; i < WIDE; i++) of_pack[i] = result[k * WIDE + i];
      if (pack < packs.packs) packs.write_results(pack, whole || packs.is_whole(pack), of_pack);
    }
  } else {
#pragma unroll
    for (int k = 0; k < PACKS; k++) {
      const unsigned pack = rank + k * size;
      COMPUTE of_pack[INPUTS][WIDE], result[WIDE];
#pragma unroll
      for (int n = 0; n < INPUTS; n++) unpack(reinterpret_cast<const Place*>(&held[k][n]), of_pack[n]);
      rule.results(statistic, of_pack, result);
      if (pack < packs.packs) packs.write_results(pack, whole || packs.is_whole(pack), result);
    }
  }
}

#define SOFTMAX_DIRECT(name, rule, columns)                                                                                \
  extern "C" __global__ void __launch_bounds__(HELD_THREADS, HELD_BLOCKS) name##_direct(const Arguments<rule::INPUTS> a) { \
    find_place_before_waiting();                                                                                          \
    softmax_direct<rule, columns>(a);                                                                                      \
  }
SOFTMAX_DIRECT(softmax_forward_lines, Forward, false)
SOFTMAX_DIRECT(softmax_backward_lines, Backward, false)
SOFTMAX_DIRECT(softmax_forward_columns, Forward, true)
SOFTMAX_DIRECT(softmax_backward_columns, Backward, true)

#ifndef DIRECT_ONLY
#define SOFTMAX_HELD(name, rule, columns)                                                                                   \
  extern "C" __global__ void __launch_bounds__(HELD_THREADS, HELD_BLOCKS) name##_held(const Arguments<rule::INPUTS> a) {     \
    wait_for_earlier_kernels();                                                                                             \
    softmax_held<rule, columns, false>(a);                                                                                  \
  }                                                                                                                         \
  extern "C" __global__ void BLOCKS_OF_A_CLUSTER __launch_bounds__(HELD_THREADS, HELD_BLOCKS) name##_held_cluster(const Arguments<rule::INPUTS> a) { \
    wait_for_earlier_kernels();                                                                                             \
    softmax_held<rule, columns, true>(a);                                                                                   \
  }

SOFTMAX_HELD(softmax_forward_lines, Forward, false)
SOFTMAX_HELD(softmax_backward_lines, Backward, false)
SOFTMAX_HELD(softmax_forward_columns, Forward, true)
SOFTMAX_HELD(softmax_backward_columns, Backward, true)
#endif
