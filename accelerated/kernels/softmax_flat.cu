// Softmax over lines of any length that follow each other without gaps, forward (3.2.96) and backward (4.1.19).
//
// A block takes lines that begin at a multiple of 16 bytes, as packs of neighbours, whatever lines these belong to: PACKS of each thread
// and input, all read before the first is used. A pack has elements of one line, or the end of one and the beginning of the next. Its
// parts of their statistics go through shared memory; a few lanes merge those of a line. Values, and every exponential, stay in registers.
//
// Floor: bytes, as in softmax.cu.
#include "softmax.cuh"

using Held = Pack<unsigned, 4>;
union HeldElements {
  Held words;
  Elements<WIDTH> elements;
  __device__ __forceinline__ HeldElements() {}
};

// Where a pack lies: its first line, and how many of its elements are that line's; the next line has the others.
struct Place { unsigned line, split; };

// The values of the parts of a line's packs, merged by `lanes` lanes. parts: of every pack, that of its first line; heads: of every line,
// what the pack has of it in which it begins; totals: of every line, finished.
template <class Merge, class Finish>
__device__ __forceinline__ void merge_parts(const COMPUTE* parts, const COMPUTE* heads, COMPUTE* totals, unsigned lines, unsigned length, unsigned lanes,
                                            COMPUTE empty, Merge merge, Finish finish) {
  const unsigned log_lanes = exponent_of(lanes), rank = threadIdx.x & (lanes - 1);
  for (unsigned line = threadIdx.x >> log_lanes; (line & ~(31u >> log_lanes)) < lines; line += blockDim.x >> log_lanes) {
    COMPUTE total = empty;
    if (line < lines) {
      const unsigned first = (line * length + WIDTH - 1) / WIDTH, beyond = ((line + 1) * length + WIDTH - 1) / WIDTH;
      if (rank == 0) total = heads[line];
      for (unsigned pack = first + rank; pack < beyond; pack += lanes) total = merge(total, parts[pack]);
    }
    for (unsigned lane = 1; lane < lanes; lane *= 2) total = merge(total, __shfl_xor_sync(~0u, total, lane));
    if (line < lines && rank == 0) totals[line] = finish(line, total);
  }
}

template <class Rule, int PACKS> __device__ __forceinline__ void softmax_of_packs(const Arguments<Rule::INPUTS>& a, const Rule rule) {
  constexpr int INPUTS = Rule::INPUTS;
  const unsigned thread = threadIdx.x, threads = blockDim.x, length = a.along.row;
  const unsigned lines = min(a.kept, a.lines.packs - blockIdx.x * a.kept), elements = lines * length, packs = (elements + WIDTH - 1) / WIDTH;
  const unsigned start = blockIdx.x * a.kept * length;
  const unsigned inverse = ~0u / length + 1;  // exact: there are fewer than 2^15 elements, of lines of fewer than 2^8
  wait_to_touch(a.input[0] + start, a.output + start);

  // The last pack of all may be none of whole elements.
  auto is_whole = [&](unsigned pack) { return (pack + 1) * WIDTH <= elements; };
  HeldElements held[PACKS][INPUTS];
#pragma unroll
  for (int k = 0; k < PACKS; k++)
#pragma unroll
    for (int n = 0; n < INPUTS; n++) {
      const unsigned pack = thread + k * threads;
      const ELEMENT* const from = a.input[n] + start + pack * WIDTH;
      if (is_whole(pack)) {
        held[k][n].words = *reinterpret_cast<const Held*>(from);
      } else {
#pragma unroll
        for (int i = 0; i < WIDTH; i++) {
          held[k][n].elements.item[i] = store<ELEMENT>(Rule::neutral());
          if (pack * WIDTH + i < elements) held[k][n].elements.item[i] = from[i];
        }
      }
    }
  let_next_kernel_begin();

  COMPUTE* const parts = reinterpret_cast<COMPUTE*>(shared_memory);
  COMPUTE* const heads = parts + PACKS * threads;
  COMPUTE* const tops = heads + a.kept + 1;  // of lines
  COMPUTE* const sums = tops + a.kept;
  auto place_of = [&](int k) {
    const unsigned first = (thread + k * threads) * WIDTH, line = __umulhi(first, inverse);
    return Place{line, (line + 1) * length - first};
  };
  // Hands over a value of each element of a pack, merged for its two lines.
  auto hand_over = [&](int k, const COMPUTE (&value)[WIDTH], COMPUTE empty, auto merge) {
    const Place place = place_of(k);
    const unsigned pack = thread + k * threads;
    COMPUTE part = value[0], head = empty;
#pragma unroll
    for (int i = 1; i < WIDTH; i++) {
      part = merge(part, i < place.split ? value[i] : empty);
      head = merge(head, i < place.split ? empty : value[i]);
    }
    if (pack < packs) {
      parts[pack] = part;
      if (place.split < WIDTH) heads[place.line + 1] = head;
      else if (place.split == length) heads[place.line] = empty;  // the line begins with this pack
    }
  };
  auto greater = [](COMPUTE x, COMPUTE y) { return max(x, y); };
  auto sum = [](COMPUTE x, COMPUTE y) { return x + y; };

  COMPUTE values[INPUTS][PACKS * WIDTH];
#pragma unroll
  for (int n = 0; n < INPUTS; n++)
#pragma unroll
    for (int k = 0; k < PACKS; k++) unpack(&held[k][n].elements, &values[n][k * WIDTH]);
  // Of each element of a pack what its line has.
  auto take = [&](int k, const COMPUTE* totals, COMPUTE (&taken)[WIDTH]) {
    const Place place = place_of(k);
    const COMPUTE first = totals[min(place.line, lines - 1)], next = totals[min(place.line + 1, lines - 1)];
#pragma unroll
    for (int i = 0; i < WIDTH; i++) taken[i] = i < place.split ? first : next;
  };
  if (rule.has_top()) {
#pragma unroll
    for (int k = 0; k < PACKS; k++) {
      COMPUTE of_pack[WIDTH];
#pragma unroll
      for (int i = 0; i < WIDTH; i++) of_pack[i] = values[0][k * WIDTH + i];
      hand_over(k, of_pack, rule.empty().top, greater);
    }
    __syncthreads();
    merge_parts(parts, heads, tops, lines, length, a.team, rule.empty().top, greater, [](unsigned, COMPUTE top) { return top; });
    __syncthreads();
  }
#pragma unroll
  for (int k = 0; k < PACKS; k++) {
    COMPUTE of_pack[INPUTS][WIDTH], terms[WIDTH];
    Statistic line[WIDTH];
#pragma unroll
    for (int i = 0; i < WIDTH; i++) line[i] = rule.empty();
    if (rule.has_top()) {
      take(k, tops, terms);
#pragma unroll
      for (int i = 0; i < WIDTH; i++) line[i].top = terms[i];
    }
#pragma unroll
    for (int n = 0; n < INPUTS; n++)
#pragma unroll
      for (int i = 0; i < WIDTH; i++) of_pack[n][i] = values[n][k * WIDTH + i];
    rule.template add_covered<INPUTS == 1>(line, of_pack);
#pragma unroll
    for (int i = 0; i < WIDTH; i++) {
      if (INPUTS == 1) values[0][k * WIDTH + i] = of_pack[0][i];
      terms[i] = line[i].sum;
    }
    hand_over(k, terms, COMPUTE(0), sum);
  }
  __syncthreads();
  merge_parts(parts, heads, sums, lines, length, a.team, COMPUTE(0), sum, [&](unsigned line, COMPUTE total) {
    Statistic finished = {rule.has_top() ? tops[line] : COMPUTE(0), total};
    rule.finish(finished);
    return finished.sum;
  });
  __syncthreads();

#pragma unroll
  for (int k = 0; k < PACKS; k++) {
    const unsigned pack = thread + k * threads;
    if (pack >= packs) break;
    COMPUTE of_pack[INPUTS][WIDTH], result[WIDTH];
    Statistic line[WIDTH];
    take(k, sums, result);
#pragma unroll
    for (int i = 0; i < WIDTH; i++) line[i] = {COMPUTE(0), result[i]};
    if (INPUTS == 1 && rule.algorithm == LOG) {
      take(k, tops, result);
#pragma unroll
      for (int i = 0; i < WIDTH; i++) line[i].top = result[i];
    }
#pragma unroll
    for (int n = 0; n < INPUTS; n++)
#pragma unroll
      for (int i = 0; i < WIDTH; i++) of_pack[n][i] = values[n][k * WIDTH + i];
    rule.template results<INPUTS == 1>(line, of_pack, result);
    ELEMENT* const target = a.output + start + pack * WIDTH;
    if (is_whole(pack)) {
      if (a.beta != COMPUTE(0)) {
        COMPUTE prior[WIDTH];
        unpack(reinterpret_cast<const Elements<WIDTH>*>(target), prior);
#pragma unroll
        for (int i = 0; i < WIDTH; i++) result[i] += a.beta * prior[i];
      }
      ::pack(result, reinterpret_cast<Elements<WIDTH>*>(target));
    } else {
#pragma unroll
      for (int i = 0; i < WIDTH; i++)
        if (pack * WIDTH + i < elements) target[i] = store<ELEMENT>(a.beta != COMPUTE(0) ? result[i] + a.beta * load<COMPUTE>(target[i]) : result[i]);
    }
  }
}

// The algorithm is known to the code.
template <class Rule, int PACKS> __device__ __forceinline__ void softmax_of_flat(const Arguments<Rule::INPUTS>& a) {
  if (a.algorithm == LOG) softmax_of_packs<Rule, PACKS>(a, Rule{LOG, a.alpha});
  else if (Rule::INPUTS == 1 && a.algorithm == FAST) softmax_of_packs<Rule, PACKS>(a, Rule{FAST, a.alpha});
  else softmax_of_packs<Rule, PACKS>(a, Rule{ACCURATE, a.alpha});
}

#ifndef FLAT_BLOCKS
#define FLAT_BLOCKS(packs) (packs * WIDTH > 16 ? 3 : packs * WIDTH > 8 ? 4 : 5)
#endif
#define SOFTMAX_FLAT(packs)                                                                                                     \
  extern "C" __global__ void __launch_bounds__(256, FLAT_BLOCKS(packs)) softmax_forward_flat_of_##packs(const Arguments<1> a) {   \
    find_place_before_waiting();                                                                                                \
    softmax_of_flat<Forward, packs>(a);                                                                                          \
  }                                                                                                                             \
  extern "C" __global__ void __launch_bounds__(256, FLAT_BLOCKS(packs)) softmax_backward_flat_of_##packs(const Arguments<2> a) {  \
    find_place_before_waiting();                                                                                                \
    softmax_of_flat<Backward, packs>(a);                                                                                         \
  }

SOFTMAX_FLAT(1)
SOFTMAX_FLAT(2)
SOFTMAX_FLAT(3)
SOFTMAX_FLAT(4)
