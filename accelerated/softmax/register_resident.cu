// Softmax over lines that the threads of a warp or of a block hold in registers, forward (3.2.96) and backward (4.1.19).
//
// A team of threads takes a line, or a pack of neighbouring lines (columns), and every thread PACKS packs of it, of each
// input. All are read before any is used, nothing moves through shared memory, and every exponential is taken once: of lines a
// thread takes those of its values below their maximum, and its team, when it has agreed on the line's, scales them; of columns,
// where a thread has parts of several lines, the team agrees on the maxima first, as packs, and then only sums are merged. Packs of one
// element (PACK_BYTES) are columns whose rows start anywhere.
//
// Floor: bytes, as in softmax/staged.cu. What limits: blocks that start together read, compute and write together, so that what a
// block computes comes on top of what it moves. So nothing comes between the reads (where two ways of reading met, the
// first read was waited for before the last began: lines of halves took 20 % longer on an H200), pairs are compared as they
// are, and nothing is selected element by element. Columns of halves are packs of four, 32 values a thread in four blocks: with packs of
// eight and 64 values, which need twice the registers, 64 x 256 x 56 x 56 took 11 % longer, with exponentials taken twice 4 %. Of
// single elements 16 a thread take half as long as copies to shared memory, but for floats of which a block's rows would be 64 bytes.
// Blocks that stay and read ahead took longer in all shapes, floats 13 %. Columns of these halves: warps issue in 57 % of all cycles and
// wait for reads for a third of the time, while the link between the halves of the cache is busy for 86 % (57 us; with blocks of 512
// threads, whose rows are 128 bytes, 66 us).
#include "softmax/online.cuh"

using Held = std::conditional_t<PACK_BYTES >= 4, Pack<unsigned, (PACK_BYTES + 3) / 4>, Elements<WIDTH>>;
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

// The greater ones of two packs, exactly: pairs are compared as they are.
__device__ __forceinline__ void raise(Held& top, const Held& other) {
  if constexpr (PAIRED && WIDTH > 1) {
#pragma unroll
    for (int word = 0; word < WIDTH / 2; word++) {
      Pair greater;
      greater.pair = __hmax2(Pair(top.item[word]).pair, Pair(other.item[word]).pair);
      top.item[word] = greater.word;
    }
  } else {
    COMPUTE tops[WIDTH], others[WIDTH];
    unpack(top, tops), unpack(other, others);
    HeldElements greater;
#pragma unroll
    for (int i = 0; i < WIDTH; i++) greater.elements.item[i] = store<ELEMENT>(max(tops[i], others[i]));
    top = greater.words;
  }
}
template <int PACKS> __device__ __forceinline__ Held top_of(const Held (&held)[PACKS][1]) {
  Held top = held[0][0];
#pragma unroll
  for (int k = 1; k < PACKS; k++) raise(top, held[k][0]);
  return top;
}

__device__ __forceinline__ void pack_elements(const COMPUTE (&values)[WIDTH], Elements<WIDTH>& target) { pack(values, &target); }
// Of the lane whose number differs in these bits.
__device__ __forceinline__ Held shuffled(Held held, unsigned lanes) {
  constexpr int WORDS = (sizeof(Held) + 3) / 4;
  unsigned word[WORDS] = {};
  memcpy(word, &held, sizeof held);
#pragma unroll
  for (int i = 0; i < WORDS; i++) word[i] = __shfl_xor_sync(~0u, word[i], lanes);
  memcpy(&held, word, sizeof held);
  return held;
}

// Places of single elements are found from the one before, which takes fewer instructions; those of packs from their numbers: with steps,
// floats of 256 channels took 40 % longer.
constexpr bool STEPS = WIDTH == 1;

// What a thread has of a line: packs as they lie, KEEP: and their values, whose places exponentials take.
template <class Rule, int PACKS, bool KEEP> struct HeldPacks {
  static constexpr int INPUTS = Rule::INPUTS;
  static_assert(!KEEP || INPUTS == 1);
  Held held[PACKS][INPUTS];
  COMPUTE values[1][KEEP ? PACKS * WIDTH : 1];

  // Asks for all packs, from number `rank` on, `size` apart; what does not exist is neutral. Two ways, so that in the usual one, of whole
  // packs, nothing comes between the reads; says which.
  template <class Packs> __device__ __forceinline__ bool read(const Packs& line, unsigned rank, unsigned size) {
    const bool whole = line.wholes == line.packs;
    const ELEMENT* next[INPUTS];
    size_t step[INPUTS];
#pragma unroll
    for (int n = 0; n < INPUTS; n++) next[n] = line.input[n] + line.offset(rank, n), step[n] = line.offset(size, n);
    if (whole) {
      HeldElements nothing;
#pragma unroll
      for (int i = 0; i < WIDTH; i++) nothing.elements.item[i] = store<ELEMENT>(Rule::neutral());
#pragma unroll
      for (int k = 0; k < PACKS; k++)
#pragma unroll
        for (int n = 0; n < INPUTS; n++) {
          const unsigned pack = rank + k * size;
          held[k][n] = nothing.words;
          if (pack < line.packs) held[k][n] = *reinterpret_cast<const Held*>(STEPS ? next[n] : line.input[n] + line.offset(pack, n));
          next[n] += step[n];
        }
    } else {
#pragma unroll
      for (int k = 0; k < PACKS; k++)
#pragma unroll
        for (int n = 0; n < INPUTS; n++) held[k][n] = held_of(line.read(rank + k * size, n));
    }
    return whole;
  }
  // Adds all to statistics that no value is above.
  template <int LANES> __device__ __forceinline__ void add(const Rule& rule, Statistic (&statistic)[LANES]) {
    if constexpr (KEEP) {
#pragma unroll
      for (int k = 0; k < PACKS; k++) unpack(held[k][0], &values[0][k * WIDTH]);
      rule.template add_covered<true>(statistic, values);
    } else {
#pragma unroll
      for (int k = 0; k < PACKS; k++) {
        COMPUTE of_pack[INPUTS][WIDTH];
        take(k, of_pack);
        rule.add_covered(statistic, of_pack);
      }
    }
  }
  // The results of a pack, once its lines are finished.
  template <int LANES> __device__ __forceinline__ void results(const Rule& rule, const Statistic (&line)[LANES], int k, COMPUTE (&result)[WIDTH]) const {
    COMPUTE of_pack[INPUTS][WIDTH];
    if constexpr (KEEP) take_kept(k, of_pack[0]);
    else take(k, of_pack);
    rule.template results<KEEP>(line, of_pack, result);
  }
  __device__ __forceinline__ void take_kept(int k, COMPUTE (&kept)[WIDTH]) const {
#pragma unroll
    for (int i = 0; i < WIDTH; i++) kept[i] = values[0][k * WIDTH + i];
  }
  // All results at once, in the places of the values that were kept: whether they are logarithms is asked once.
  __device__ __forceinline__ void become_results(const Rule& rule, const Statistic (&line)[1]) {
    COMPUTE result[PACKS * WIDTH];
    rule.template results<true>(line, values, result);
#pragma unroll
    for (int i = 0; i < PACKS * WIDTH; i++) values[0][i] = result[i];
  }
  __device__ __forceinline__ void take(int k, COMPUTE (&values)[INPUTS][WIDTH]) const {
#pragma unroll
    for (int n = 0; n < INPUTS; n++) unpack(held[k][n], values[n]);
  }
};

// Gradients of lines of halves took 2 % longer where the last of many blocks launch dependents; others take 0.5 to 1 us less. As one
// condition (griddepcontrol_launch_dependents), the wait came before addresses were found: up to 2 % longer.
template <class Rule> constexpr bool SLOW_BEHIND = Rule::INPUTS == 2 && sizeof(ELEMENT) == 2;
__device__ __forceinline__ void griddepcontrol_launch_dependents_from_last_blocks() {
  griddepcontrol_launch_dependents_medium_grid();
  griddepcontrol_launch_dependents_if(gridDim.x > MANY_BLOCKS && blockIdx.x + MANY_BLOCKS >= gridDim.x);
}

template <class Rule, int PACKS> __device__ __forceinline__ void softmax_of_lines(const Arguments<Rule::INPUTS>& a) {
  constexpr int INPUTS = Rule::INPUTS;
  const Rule rule{Algorithm(a.algorithm), a.alpha};
  const unsigned thread = threadIdx.x, rank = thread & (a.team - 1), size = a.team;
  const unsigned index = (blockIdx.x * blockDim.x + thread) >> exponent_of(a.team);
  WidePacks<Rule, false, PACKS> line(a, min(index, a.lines.packs - 1));
  if (line.lead != 0) line.begin_with_line();
  if (index >= a.lines.packs) line.end_for_good();
  griddepcontrol_wait_before_access(line.input[0] + line.offset(rank, 0), line.output);

  // Two inputs, and many pairs, stay packs, which take fewer registers.
  constexpr bool KEEP = INPUTS == 1 && PACKS * WIDTH <= 32;
  HeldPacks<Rule, PACKS, KEEP> packs;
  const bool whole = packs.read(line, rank, size);
  if constexpr (SLOW_BEHIND<Rule>) griddepcontrol_launch_dependents_medium_grid();
  else griddepcontrol_launch_dependents_from_last_blocks();

  Statistic statistic[1] = {rule.empty()};
  if constexpr (INPUTS == 1) {
    if (rule.has_top()) {
      COMPUTE top[1][WIDTH];
      unpack(top_of(packs.held), top[0]);
      rule.template cover<true>(statistic, top);
    }
  }
  packs.add(rule, statistic);
  [[maybe_unused]] const COMPUTE top = statistic[0].top;
  merge_lines<false>(rule, statistic, a.team, reinterpret_cast<Statistic*>(shared_memory));
  if constexpr (KEEP) {
    rule.scale(statistic[0], top);
    packs.become_results(rule, statistic);
  }

#pragma unroll
  for (int k = 0; k < PACKS; k++) {
    const unsigned pack = rank + k * size;
    COMPUTE result[WIDTH];
    if constexpr (KEEP) packs.take_kept(k, result);
    else packs.results(rule, statistic, k, result);
    if (pack < line.packs) line.write_results(pack, whole || line.is_whole(pack), result);
  }
}

// Columns: the team agrees on the maxima first, as packs, so that every exponential is taken once, below its line's maximum, and
// sums need no more than to be added.
template <class Rule, int PACKS> __device__ __forceinline__ void softmax_of_columns_by(const Arguments<Rule::INPUTS>& a, const Rule rule) {
  constexpr int INPUTS = Rule::INPUTS, LANES = WIDTH;
  const unsigned thread = threadIdx.x, log_team = exponent_of(a.team), across = a.team;
  const unsigned inner = thread & (across - 1), rank = thread >> log_team, size = blockDim.x >> log_team;
  const unsigned index = (blockIdx.x << log_team) + inner;
  WidePacks<Rule, true, PACKS> line(a, min(index, a.lines.packs - 1));
  if (index >= a.lines.packs) line.end_for_good();
  if (!STEPS && blockIdx.x < a.kept) {  // of large tensors: 1 to 4 % less, of lines nothing; single elements lack the registers
#pragma unroll
    for (int k = 0; k < PACKS; k++)
#pragma unroll
      for (int n = 0; n < INPUTS; n++)
        if (rank + k * size < line.packs) prefetch_l2(line.input[n] + line.offset(rank + k * size, n));
  }
  griddepcontrol_wait_before_access(line.input[0] + line.offset(rank, 0), line.output);

  HeldPacks<Rule, PACKS, INPUTS == 1> packs;
  const bool whole = packs.read(line, rank, size);
  if constexpr (STEPS) griddepcontrol_launch_dependents_medium_grid();  // with the other, 2 % longer
  else griddepcontrol_launch_dependents_from_last_blocks();

  // Warps (or, from 32 columns on, as many threads) hand over what they have of each column.
  const unsigned stride = max(across, 32u), group = thread >> exponent_of(stride), groups = blockDim.x >> exponent_of(stride);
  const bool hands_over = (thread & (stride - 1)) < across;
  Held* const tops = reinterpret_cast<Held*>(shared_memory) + inner;
  COMPUTE* const sums = reinterpret_cast<COMPUTE*>(shared_memory + groups * across * sizeof(Held));

  Statistic statistic[LANES];
#pragma unroll
  for (int lane = 0; lane < LANES; lane++) statistic[lane] = rule.empty();
  if constexpr (INPUTS == 1) {
    if (rule.has_top()) {
      Held top = top_of(packs.held);
      for (unsigned lanes = across; lanes < 32; lanes *= 2) raise(top, shuffled(top, lanes));
      if (groups > 1) {
        if (hands_over) tops[group * across] = top;
        __syncthreads();
        for (unsigned i = 0; i < groups; i++) raise(top, tops[i * across]);
      }
      COMPUTE of_lanes[LANES];
      unpack(top, of_lanes);
#pragma unroll
      for (int lane = 0; lane < LANES; lane++) statistic[lane].top = max(statistic[lane].top, of_lanes[lane]);
    }
  }
  packs.add(rule, statistic);
  merge_sums(statistic, across, 32);
  if (groups > 1) {
    const unsigned lines = across * LANES;
    if (hands_over)
#pragma unroll
      for (int lane = 0; lane < LANES; lane++) sums[group * lines + inner * LANES + lane] = statistic[lane].sum;
    __syncthreads();
    // Some threads a line; of logarithms the rest is the line's own.
    const unsigned each = min(max(blockDim.x >> exponent_of(lines), 1u), groups), log_each = exponent_of(each), first = thread & (each - 1);
    // Whole warps, some of whose lanes may do the same.
    for (unsigned j = thread; j < max(lines * each, 32u); j += blockDim.x) {
      const unsigned i = j >> log_each & (lines - 1);
      Statistic total = {COMPUTE(0), sums[first * lines + i]};
      for (unsigned k = first + each; k < groups; k += each) total.sum += sums[k * lines + i];
      for (unsigned lane = 1; lane < each; lane *= 2) total.sum += __shfl_xor_sync(~0u, total.sum, lane);
      if (INPUTS == 1 && rule.algorithm != LOG) rule.finish(total);
      __syncwarp();
      if (first == 0 && j < lines * each) sums[i] = total.sum;
    }
    __syncthreads();
#pragma unroll
    for (int lane = 0; lane < LANES; lane++) statistic[lane].sum = sums[inner * LANES + lane];
  }
  if (groups == 1 || rule.algorithm == LOG)
#pragma unroll
    for (int lane = 0; lane < LANES; lane++) rule.finish(statistic[lane]);

  if (whole && a.beta == COMPUTE(0)) {
    ELEMENT* next = line.output + line.offset(rank, INPUTS);
    const size_t step = line.offset(size, INPUTS);
#pragma unroll
    for (int k = 0; k < PACKS; k++) {
      const unsigned pack = rank + k * size;
      COMPUTE result[WIDTH];
      packs.results(rule, statistic, k, result);
      HeldElements of_pack;
      pack_elements(result, of_pack.elements);
      if (pack < line.packs) *reinterpret_cast<Held*>(STEPS ? next : line.output + line.offset(pack, INPUTS)) = of_pack.words;
      next += step;
    }
  } else {
#pragma unroll
    for (int k = 0; k < PACKS; k++) {
      const unsigned pack = rank + k * size;
      COMPUTE result[WIDTH];
      packs.results(rule, statistic, k, result);
      if (pack < line.packs) line.write_results(pack, whole || line.is_whole(pack), result);
    }
  }
}

// Whether results are logarithms, whose values stay as they are, is known to the code.
template <class Rule, int PACKS> __device__ __forceinline__ void softmax_of_columns(const Arguments<Rule::INPUTS>& a) {
  if (a.algorithm == LOG) softmax_of_columns_by<Rule, PACKS>(a, Rule{LOG, a.alpha});
  else softmax_of_columns_by<Rule, PACKS>(a, Rule{a.algorithm == FAST ? FAST : ACCURATE, a.alpha});
}

// Blocks of a multiprocessor for which the registers should suffice.
constexpr bool DOUBLE = sizeof(COMPUTE) == 8;
constexpr int most_blocks(bool columns, int packs) {
  if (DOUBLE || packs * WIDTH > 32) return 2;
  return packs > 4 && sizeof(ELEMENT) >= 4 && WIDTH > 1 ? 3 : columns || packs > 2 ? 4 : 6;
}

#define SOFTMAX_IN_REGISTERS(name, rule, kind, columns, packs)                                                                     \
  extern "C" __global__ void __launch_bounds__(256, most_blocks(columns, packs)) name##_of_##packs(const Arguments<rule::INPUTS> a) { \
    griddepcontrol_wait_deferred();                                                                                             \
    softmax_of_##kind<rule, packs>(a);                                                                                        \
  }
#define SOFTMAX_LINES(packs)                                            \
  SOFTMAX_IN_REGISTERS(softmax_forward_lines, Forward, lines, false, packs)   \
  SOFTMAX_IN_REGISTERS(softmax_backward_lines, Backward, lines, false, packs)
#define SOFTMAX_COLUMNS(packs)                                           \
  SOFTMAX_IN_REGISTERS(softmax_forward_columns, Forward, columns, true, packs)   \
  SOFTMAX_IN_REGISTERS(softmax_backward_columns, Backward, columns, true, packs)

#if PACK_BYTES >= 8
SOFTMAX_LINES(1)
SOFTMAX_LINES(2)
SOFTMAX_LINES(4)
SOFTMAX_COLUMNS(1)
SOFTMAX_COLUMNS(2)
SOFTMAX_COLUMNS(3)
SOFTMAX_COLUMNS(4)
SOFTMAX_IN_REGISTERS(softmax_forward_columns, Forward, columns, true, 8)
#else  // single elements
SOFTMAX_COLUMNS(8)
SOFTMAX_COLUMNS(10)
SOFTMAX_COLUMNS(12)
SOFTMAX_COLUMNS(16)
#endif
