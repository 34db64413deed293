// Softmax over lines that the threads of a warp or of a block hold in registers, forward (3.2.96) and backward (4.1.19).
//
// A team of threads takes a line, or a pack of neighbouring lines (columns), and every thread PACKS packs of it, of each
// input. All are read before any is used, nothing moves through shared memory, and every exponential is taken once: a
// thread takes those of its values below their maximum, and its team, when it has agreed on the line's, scales them.
//
// Floor: bytes, as in softmax.cu. What limits: blocks that start together read, compute and write together, so that what a
// block computes comes on top of what it moves. So nothing comes between the reads (where two ways of reading met, the
// first read was waited for before the last began: lines of halves took 20 % longer on an H200), pairs are compared as they
// are, and nothing is selected element by element. Columns of halves have 64 values a thread: with room for three blocks
// they take 84 % of the copy's pace; registers for two, or four with spills, took 25 and 7 % longer. Blocks that stay and
// read ahead took longer in all shapes, floats 13 %.
#include "softmax.cuh"

using Held = Pack<unsigned, PACK_BYTES / 4>;
union HeldElements {
  Held words;
  Elements<WIDTH> elements;
  __device__ __forceinline__ HeldElements() {}
};
__device__ __forceinline__ Held held_of(const Elements<WIDTH>& elements) {
  HeldElements pack;
  pack.elements = elements;
  return pack.words;
}
__device__ __forceinline__ void unpack(const Held& held, COMPUTE* values) { unpack(reinterpret_cast<const Elements<WIDTH>*>(&held), values); }

// Raises the maxima of empty statistics to those of packs; pairs are compared as they are.
template <class Rule, int LANES, int PACKS>
__device__ __forceinline__ void cover_packs(const Rule& rule, Statistic (&line)[LANES], const Held (&held)[PACKS][1]) {
  if (!rule.has_top()) return;
  if constexpr (PAIRED) {
#pragma unroll
    for (int word = 0; word < WIDTH / 2; word++) {
      Pair top(held[0][0].item[word]);
#pragma unroll
      for (int k = 1; k < PACKS; k++) top.pair = __hmax2(top.pair, Pair(held[k][0].item[word]).pair);
      const float2 two = both(top.pair);
      line[2 * word % LANES].top = max(line[2 * word % LANES].top, two.x);
      line[(2 * word + 1) % LANES].top = max(line[(2 * word + 1) % LANES].top, two.y);
    }
  } else {
    COMPUTE values[1][PACKS * WIDTH];
#pragma unroll
    for (int k = 0; k < PACKS; k++) unpack(held[k][0], &values[0][k * WIDTH]);
    rule.template cover<true>(line, values);
  }
}

template <class Rule, bool COLUMNS, int PACKS> __device__ __forceinline__ void softmax_in_registers(const Arguments<Rule::INPUTS>& a) {
  constexpr int INPUTS = Rule::INPUTS;
  using Packs = WidePacks<Rule, COLUMNS, PACKS>;
  constexpr int LANES = Packs::LANES;
  const Rule rule{Algorithm(a.algorithm), a.alpha};
  const unsigned thread = threadIdx.x, log_team = exponent_of(a.team);
  const unsigned inner = thread & (a.team - 1), outer = thread >> log_team;
  const unsigned size = COLUMNS ? blockDim.x >> log_team : a.team, rank = COLUMNS ? outer : inner;
  const unsigned index = COLUMNS ? (blockIdx.x << log_team) + inner : (blockIdx.x * blockDim.x + thread) >> log_team;
  Packs line(a, min(index, a.lines.packs - 1));
  if (!COLUMNS && line.lead != 0) line.begin_with_line();
  if (index >= a.lines.packs) line.end_for_good();
  wait_to_touch(line.input[0] + line.offset(rank, 0), line.output);

  // Two ways, so that in the usual one nothing comes between the reads.
  Held held[PACKS][INPUTS];
  const bool whole = line.wholes == line.packs;
  if (whole) {
    Elements<WIDTH> nothing;
#pragma unroll
    for (int i = 0; i < WIDTH; i++) nothing.item[i] = store<ELEMENT>(Rule::neutral());
#pragma unroll
    for (int k = 0; k < PACKS; k++)
#pragma unroll
      for (int n = 0; n < INPUTS; n++) {
        const unsigned pack = rank + k * size;
        held[k][n] = held_of(nothing);
        if (pack < line.packs) load_pack(held[k][n], reinterpret_cast<const Held*>(line.input[n] + line.offset(pack, n)));
      }
  } else {
#pragma unroll
    for (int k = 0; k < PACKS; k++)
#pragma unroll
      for (int n = 0; n < INPUTS; n++) held[k][n] = held_of(line.read(rank + k * size, n));
  }
  let_next_kernel_begin();

  Statistic statistic[LANES];
#pragma unroll
  for (int lane = 0; lane < LANES; lane++) statistic[lane] = rule.empty();
  // Values become exponentials, which stay; two inputs, and many pairs, stay packs, which take fewer registers.
  constexpr bool STAY = INPUTS == 1 && PACKS * WIDTH <= 32;
  constexpr int KEPT = STAY ? PACKS * WIDTH : 1;
  [[maybe_unused]] COMPUTE values[1][KEPT], kept[KEPT];
  if constexpr (INPUTS == 1) cover_packs(rule, statistic, held);
  if constexpr (STAY) {
#pragma unroll
    for (int k = 0; k < PACKS; k++) unpack(held[k][0], &values[0][k * WIDTH]);
    rule.template add_covered<true>(statistic, values);
  } else {
#pragma unroll
    for (int k = 0; k < PACKS; k++) {
      COMPUTE of_pack[INPUTS][WIDTH];
#pragma unroll
      for (int n = 0; n < INPUTS; n++) unpack(held[k][n], of_pack[n]);
      rule.add_covered(statistic, of_pack);
    }
  }
  [[maybe_unused]] COMPUTE top[LANES];
#pragma unroll
  for (int lane = 0; lane < LANES; lane++) top[lane] = statistic[lane].top;
  Statistic* const parts = reinterpret_cast<Statistic*>(shared_memory);
  if constexpr (COLUMNS) merge_columns<false, true>(rule, statistic, a.team, parts);
  else merge_lines<false>(rule, statistic, a.team, parts);
  if constexpr (STAY) {
#pragma unroll
    for (int lane = 0; lane < LANES; lane++) rule.scale(statistic[lane], top[lane]);
    rule.template results<true>(statistic, values, kept);
  }

#pragma unroll
  for (int k = 0; k < PACKS; k++) {
    const unsigned pack = rank + k * size;
    COMPUTE result[WIDTH];
    if constexpr (STAY) {
#pragma unroll
      for (int i = 0; i < WIDTH; i++) result[i] = kept[k * WIDTH + i];
    } else {
      COMPUTE of_pack[INPUTS][WIDTH];
#pragma unroll
      for (int n = 0; n < INPUTS; n++) unpack(held[k][n], of_pack[n]);
      rule.results(statistic, of_pack, result);
    }
    if (pack < line.packs) line.write_results(pack, whole || line.is_whole(pack), result);
  }
}

#ifndef BOUNDS
#define BOUNDS(columns, packs) 256, most_blocks(columns, packs)
#endif
// Blocks of a multiprocessor for which the registers should suffice.
constexpr bool DOUBLE = sizeof(COMPUTE) == 8;
constexpr int most_blocks(bool columns, int packs) { return DOUBLE ? 2 : packs > 4 ? 3 : columns || packs > 2 ? 4 : 6; }

#define SOFTMAX_IN_REGISTERS(name, rule, columns, packs)                                                                     \
  extern "C" __global__ void __launch_bounds__(BOUNDS(columns, packs)) name##_of_##packs(const Arguments<rule::INPUTS> a) { \
    find_place_before_waiting();                                                                                             \
    softmax_in_registers<rule, columns, packs>(a);                                                                           \
  }
#define SOFTMAX_LINES(packs)                                            \
  SOFTMAX_IN_REGISTERS(softmax_forward_lines, Forward, false, packs)   \
  SOFTMAX_IN_REGISTERS(softmax_backward_lines, Backward, false, packs)
#define SOFTMAX_COLUMNS(packs)                                           \
  SOFTMAX_IN_REGISTERS(softmax_forward_columns, Forward, true, packs)   \
  SOFTMAX_IN_REGISTERS(softmax_backward_columns, Backward, true, packs)

SOFTMAX_LINES(1)
SOFTMAX_LINES(2)
SOFTMAX_LINES(4)
SOFTMAX_COLUMNS(1)
SOFTMAX_COLUMNS(2)
SOFTMAX_COLUMNS(3)
SOFTMAX_COLUMNS(4)
SOFTMAX_IN_REGISTERS(softmax_forward_columns, Forward, true, 8)
