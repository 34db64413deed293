// These kernels compute softmax, forward (3.2.96) and backward (4.1.19), with rows in the registers of a warp or block.
//
// A team of threads takes a row ("rows"), or a vector of neighbouring strided rows ("strided"); each thread has VECTORS
// vectors of every input. All loads precede the first use, and every exponential is computed once. For rows, a thread
// subtracts the maximum of its own values, and scales the exponentials when the team has merged the row's state. For
// strided rows, the team merges the maxima first, as vectors, and then the sums. Vectors of one element serve unaligned
// strided rows.
//
// Roofline: bytes, each moves once; about 12 flops per element forward, 10 backward. Blocks that start together load,
// compute and store together, so nothing separates the loads, and fp16x2 pairs are compared without unpacking. On an
// H200, 64x256x56x56 float over channels takes 98.6 us in NHWC (99 % of a copy's throughput) and 99.5 us in NCHW.
// See docs/performance/softmax.md.
#include "softmax/vectors.cuh"

using Held = std::conditional_t<VECTOR_BYTES >= 4, Vector<unsigned, (VECTOR_BYTES + 3) / 4>, Elements<WIDTH>>;
union HeldElements {
  Held words;
  Elements<WIDTH> elements;
  __device__ __forceinline__ HeldElements() {}
};
__device__ __forceinline__ Held held_of(const Elements<WIDTH>& elements) {
  HeldElements vector;
  vector.elements = elements;
  return vector.words;
}
__device__ __forceinline__ void unpack(const Held& held, COMPUTE* values) {
  unpack(reinterpret_cast<const Elements<WIDTH>*>(&held), values);
}

// Returns the element-wise maximum of two vectors; fp16x2 pairs are compared without unpacking.
__device__ __forceinline__ void raise(Held& maximum, const Held& other) {
  if constexpr (PAIRED && WIDTH > 1) {
#pragma unroll
    for (int word = 0; word < WIDTH / 2; word++)
      maximum.item[word] = max_pair<ELEMENT>(maximum.item[word], other.item[word]);
  } else {
    COMPUTE maxima[WIDTH], others[WIDTH];
    unpack(maximum, maxima), unpack(other, others);
    HeldElements greater;
#pragma unroll
    for (int i = 0; i < WIDTH; i++) greater.elements.item[i] = store<ELEMENT>(max(maxima[i], others[i]));
    maximum = greater.words;
  }
}
template <int VECTORS> __device__ __forceinline__ Held maximum_of(const Held (&held)[VECTORS][1]) {
  Held maximum = held[0][0];
#pragma unroll
  for (int k = 1; k < VECTORS; k++) raise(maximum, held[k][0]);
  return maximum;
}

__device__ __forceinline__ void pack_elements(const COMPUTE (&values)[WIDTH], Elements<WIDTH>& target) {
  pack(values, &target);
}
// Exchanges vectors with the lane whose number differs in the bits of `lanes`.
__device__ __forceinline__ Held shuffled(Held held, unsigned lanes) {
  constexpr int WORDS = (sizeof(Held) + 3) / 4;
  unsigned word[WORDS] = {};
  memcpy(word, &held, sizeof held);
#pragma unroll
  for (int i = 0; i < WORDS; i++) word[i] = __shfl_xor_sync(~0u, word[i], lanes);
  memcpy(&held, word, sizeof held);
  return held;
}

// The offset of a single element is computed from the previous one, which takes fewer instructions. The offsets of
// vectors are computed from their indices, because steps would make 256 float channels 40 % slower.
constexpr bool STEPS = WIDTH == 1;

// Single elements are always full vectors. Compiling only that path saves 5 % for float forward. For half it costs 7 %
// (64 registers instead of 55 on an H200), and gradients would spill.
template <int INPUTS> constexpr bool ONE_WAY = WIDTH == 1 && INPUTS == 1 && sizeof(ELEMENT) >= 4;

// Holds a thread's vectors of a row. KEEP: it also holds their values, which exponentials replace.
template <class Rule, int VECTORS, bool KEEP> struct HeldVectors {
  static constexpr int INPUTS = Rule::INPUTS;
  static_assert(!KEEP || INPUTS == 1);
  Held held[VECTORS][INPUTS];
  unsigned count;  // number of existing vectors, for types without a neutral element
  COMPUTE values[1][KEEP ? VECTORS * WIDTH : 1];

  // Loads all vectors from index `rank` on, `size` apart; missing elements are neutral. It returns whether all vectors
  // are full; that path has no instructions between the loads.
  template <class Vectors> __device__ __forceinline__ bool read(const Vectors& row, unsigned rank, unsigned size) {
    const bool full = ONE_WAY<INPUTS> || row.full_vectors == row.vectors;
    if constexpr (!NEUTRAL_ELEMENT) count = rank < row.vectors ? (row.vectors - rank + size - 1) / size : 0;
    const ELEMENT* next[INPUTS];
    size_t step[INPUTS];
#pragma unroll
    for (int n = 0; n < INPUTS; n++) next[n] = row.input[n] + row.offset(rank, n), step[n] = row.offset(size, n);
    if (full) {
      HeldElements nothing;
#pragma unroll
      for (int i = 0; i < WIDTH; i++) nothing.elements.item[i] = store<ELEMENT>(Rule::neutral());
#pragma unroll
      for (int k = 0; k < VECTORS; k++)
#pragma unroll
        for (int n = 0; n < INPUTS; n++) {
          const unsigned vector = rank + k * size;
          held[k][n] = nothing.words;
          if (vector < row.vectors)
            held[k][n] = *reinterpret_cast<const Held*>(STEPS ? next[n] : row.input[n] + row.offset(vector, n));
          next[n] += step[n];
        }
    } else {
#pragma unroll
      for (int k = 0; k < VECTORS; k++)
#pragma unroll
        for (int n = 0; n < INPUTS; n++) held[k][n] = held_of(row.read(rank + k * size, n));
    }
    return full;
  }
  // Adds all values to states whose maxima they do not exceed.
  template <int ROWS> __device__ __forceinline__ void add(const Rule& rule, OnlineState (&state)[ROWS]) {
    if constexpr (KEEP) {
#pragma unroll
      for (int k = 0; k < VECTORS; k++) {
        unpack(held[k][0], &values[0][k * WIDTH]);
        static_assert(NEUTRAL_ELEMENT || WIDTH == 1);
        if constexpr (!NEUTRAL_ELEMENT)
          if (k >= count) values[0][k] = Rule::neutral();
      }
      rule.template add_covered<true>(state, values);
    } else {
#pragma unroll
      for (int k = 0; k < VECTORS; k++) {
        COMPUTE of_vector[INPUTS][WIDTH];
        take(k, of_vector);
        rule.add_covered(state, of_vector);
      }
    }
  }
  // Computes the results of a vector after its rows are finished.
  template <int ROWS>
  __device__ __forceinline__ void results(const Rule& rule, const OnlineState (&state)[ROWS], int k,
                                          COMPUTE (&result)[WIDTH]) const {
    COMPUTE of_vector[INPUTS][WIDTH];
    if constexpr (KEEP) take_kept(k, of_vector[0]);
    else take(k, of_vector);
    rule.template results<KEEP>(state, of_vector, result);
  }
  __device__ __forceinline__ void take_kept(int k, COMPUTE (&kept)[WIDTH]) const {
#pragma unroll
    for (int i = 0; i < WIDTH; i++) kept[i] = values[0][k * WIDTH + i];
  }
  // Replaces the kept values by all results, with one test for logarithms.
  __device__ __forceinline__ void become_results(const Rule& rule, const OnlineState (&state)[1]) {
    COMPUTE result[VECTORS * WIDTH];
    rule.template results<true>(state, values, result);
#pragma unroll
    for (int i = 0; i < VECTORS * WIDTH; i++) values[0][i] = result[i];
  }
  __device__ __forceinline__ void take(int k, COMPUTE (&values)[INPUTS][WIDTH]) const {
#pragma unroll
    for (int n = 0; n < INPUTS; n++) unpack(held[k][n], values[n]);
  }
};

// Launching dependents from the last of many blocks makes gradients of half rows 2 % slower, and saves 0.5 to 1 us for
// others. A single condition would move the wait before the address computation, which costs up to 2 %.
template <class Rule> constexpr bool SLOW_BEHIND = Rule::INPUTS == 2 && sizeof(ELEMENT) == 2;
__device__ __forceinline__ void griddepcontrol_launch_dependents_from_last_blocks() {
  griddepcontrol_launch_dependents_medium_grid();
  griddepcontrol_launch_dependents_if(gridDim.x > MANY_BLOCKS && blockIdx.x + MANY_BLOCKS >= gridDim.x);
}

template <class Rule, int VECTORS> __device__ __forceinline__ void softmax_of_rows(const Arguments<Rule::INPUTS>& a) {
  constexpr int INPUTS = Rule::INPUTS;
  const Rule rule{Algorithm(a.algorithm), a.alpha};
  const unsigned thread = threadIdx.x, rank = thread & (a.team - 1), size = a.team;
  const unsigned index = (blockIdx.x * blockDim.x + thread) >> exponent_of(a.team);
  RowVectors<Rule, false, VECTORS> row(a, min(index, a.rows.vectors - 1));
  if (row.lead != 0) row.begin_with_row();
  if (index >= a.rows.vectors) row.end_for_good();
  griddepcontrol_wait_before_access(row.input[0] + row.offset(rank, 0), row.output);

  // Two inputs, and many pairs, stay packed, which takes fewer registers.
  constexpr bool KEEP = INPUTS == 1 && VECTORS * WIDTH <= 32;
  HeldVectors<Rule, VECTORS, KEEP> vectors;
  const bool full = vectors.read(row, rank, size);
  if constexpr (SLOW_BEHIND<Rule>) griddepcontrol_launch_dependents_medium_grid();
  else griddepcontrol_launch_dependents_from_last_blocks();

  OnlineState state[1] = {rule.empty()};
  if constexpr (INPUTS == 1) {
    if (rule.has_maximum()) {
      COMPUTE maximum[1][WIDTH];
      unpack(maximum_of(vectors.held), maximum[0]);
      rule.template cover<true>(state, maximum);
    }
  }
  vectors.add(rule, state);
  [[maybe_unused]] const COMPUTE maximum = state[0].maximum;
  merge_rows<false>(rule, state, a.team, reinterpret_cast<OnlineState*>(shared_memory));
  if constexpr (KEEP) {
    rule.scale(state[0], maximum);
    vectors.become_results(rule, state);
  }

#pragma unroll
  for (int k = 0; k < VECTORS; k++) {
    const unsigned vector = rank + k * size;
    COMPUTE result[WIDTH];
    if constexpr (KEEP) vectors.take_kept(k, result);
    else vectors.results(rule, state, k, result);
    if (vector < row.vectors) row.write_results(vector, full, result);
  }
}

// Computes strided rows. The team merges the maxima first, as vectors, so that every exponential is computed once with
// the row's maximum, and sums are only added.
template <class Rule, int VECTORS>
__device__ __forceinline__ void softmax_of_strided_by(const Arguments<Rule::INPUTS>& a, const Rule rule) {
  constexpr int INPUTS = Rule::INPUTS, ROWS = WIDTH;
  const unsigned thread = threadIdx.x, log_team = exponent_of(a.team), across = a.team;
  const unsigned inner = thread & (across - 1), rank = thread >> log_team, size = blockDim.x >> log_team;
  const unsigned index = (blockIdx.x << log_team) + inner;
  RowVectors<Rule, true, VECTORS> row(a, min(index, a.rows.vectors - 1));
  if (index >= a.rows.vectors) row.end_for_good();
  if (!STEPS && blockIdx.x < a.kept) {  // Prefetching saves 1 to 4 % for large tensors.
#pragma unroll
    for (int k = 0; k < VECTORS; k++)
#pragma unroll
      for (int n = 0; n < INPUTS; n++)
        if (rank + k * size < row.vectors) prefetch_l2(row.input[n] + row.offset(rank + k * size, n));
  }
  griddepcontrol_wait_before_access(row.input[0] + row.offset(rank, 0), row.output);

  HeldVectors<Rule, VECTORS, INPUTS == 1> vectors;
  const bool full = vectors.read(row, rank, size);
  if constexpr (STEPS) griddepcontrol_launch_dependents_medium_grid();  // The other call takes 2 % longer here.
  else griddepcontrol_launch_dependents_from_last_blocks();

  // Each warp (or thread, for 32 or more strided rows) publishes its partial state of each strided row.
  const unsigned stride = max(across, 32u), group = thread >> exponent_of(stride),
                 groups = blockDim.x >> exponent_of(stride);
  const bool hands_over = (thread & (stride - 1)) < across;
  Held* const maxima = reinterpret_cast<Held*>(shared_memory) + inner;
  COMPUTE* const sums = reinterpret_cast<COMPUTE*>(shared_memory + groups * across * sizeof(Held));

  OnlineState state[ROWS];
#pragma unroll
  for (int r = 0; r < ROWS; r++) state[r] = rule.empty();
  if constexpr (INPUTS == 1) {
    if (rule.has_maximum()) {
      Held maximum = maximum_of(vectors.held);
      for (unsigned lanes = across; lanes < 32; lanes *= 2) raise(maximum, shuffled(maximum, lanes));
      if (groups > 1) {
        if (hands_over) maxima[group * across] = maximum;
        __syncthreads();
        for (unsigned i = 0; i < groups; i++) raise(maximum, maxima[i * across]);
      }
      COMPUTE of_rows[ROWS];
      unpack(maximum, of_rows);
#pragma unroll
      for (int r = 0; r < ROWS; r++) state[r].maximum = max(state[r].maximum, of_rows[r]);
    }
  }
  vectors.add(rule, state);
  merge_sums(state, across, 32);
  if (groups > 1) {
    const unsigned rows = across * ROWS;
    if (hands_over)
#pragma unroll
      for (int r = 0; r < ROWS; r++) sums[group * rows + inner * ROWS + r] = state[r].sum;
    __syncthreads();
    // Several threads merge each row; for logarithms they then finish its state.
    const unsigned each = min(max(blockDim.x >> exponent_of(rows), 1u), groups), log_each = exponent_of(each),
                   first = thread & (each - 1);
    // The loop runs with full warps, some of whose lanes may repeat a row.
    for (unsigned j = thread; j < max(rows * each, 32u); j += blockDim.x) {
      const unsigned i = j >> log_each & (rows - 1);
      OnlineState total = {COMPUTE(0), sums[first * rows + i]};
      for (unsigned k = first + each; k < groups; k += each) total.sum += sums[k * rows + i];
      for (unsigned lane = 1; lane < each; lane *= 2) total.sum += __shfl_xor_sync(~0u, total.sum, lane);
      if (INPUTS == 1 && rule.algorithm != LOG) rule.finish(total);
      __syncwarp();
      if (first == 0 && j < rows * each) sums[i] = total.sum;
    }
    __syncthreads();
#pragma unroll
    for (int r = 0; r < ROWS; r++) state[r].sum = sums[inner * ROWS + r];
  }
  if (groups == 1 || rule.algorithm == LOG)
#pragma unroll
    for (int r = 0; r < ROWS; r++) rule.finish(state[r]);

  if (full && a.beta == COMPUTE(0)) {
    ELEMENT* next = row.output + row.offset(rank, INPUTS);
    const size_t step = row.offset(size, INPUTS);
#pragma unroll
    for (int k = 0; k < VECTORS; k++) {
      const unsigned vector = rank + k * size;
      COMPUTE result[WIDTH];
      vectors.results(rule, state, k, result);
      HeldElements of_vector;
      pack_elements(result, of_vector.elements);
      if (vector < row.vectors)
        *reinterpret_cast<Held*>(STEPS ? next : row.output + row.offset(vector, INPUTS)) = of_vector.words;
      next += step;
    }
  } else {
#pragma unroll
    for (int k = 0; k < VECTORS; k++) {
      const unsigned vector = rank + k * size;
      COMPUTE result[WIDTH];
      vectors.results(rule, state, k, result);
      if (vector < row.vectors) row.write_results(vector, full, result);
    }
  }
}

// Computes a short row of single elements in one thread. A row of two may lack its second element.
template <class Rule, int LENGTH> __device__ __forceinline__ void softmax_of_short(const Arguments<Rule::INPUTS>& a) {
  constexpr int INPUTS = Rule::INPUTS;
  const Rule rule{Algorithm(a.algorithm), a.alpha};
  const unsigned index = blockIdx.x * blockDim.x + threadIdx.x;
  if (index >= a.rows.vectors) return;
  unsigned offset[INPUTS + 1];
  a.rows.locate(index, offset);
  auto exists = [&](int k) { return LENGTH > 2 || k == 0 || a.along.row == LENGTH; };

  griddepcontrol_wait_before_access(a.input[0] + offset[0], a.output + offset[INPUTS]);
  ELEMENT held[INPUTS][LENGTH];
#pragma unroll
  for (int k = 0; k < LENGTH; k++)
#pragma unroll
    for (int n = 0; n < INPUTS; n++)
      if (exists(k)) held[n][k] = (a.input[n] + offset[n])[k * a.along.row_stride[n]];
  griddepcontrol_launch_dependents_medium_grid();  // The other call takes 4 % longer here.
  COMPUTE values[INPUTS][LENGTH], result[LENGTH];
#pragma unroll
  for (int n = 0; n < INPUTS; n++)
#pragma unroll
    for (int k = 0; k < LENGTH; k++) values[n][k] = exists(k) ? load<COMPUTE>(held[n][k]) : Rule::neutral();
  OnlineState state[1] = {rule.empty()};
  rule.template cover<true>(state, values);
  rule.template add_covered<true>(state, values);
  rule.finish(state[0]);
  rule.template results<true>(state, values, result);
#pragma unroll
  for (int k = 0; k < LENGTH; k++)
    if (exists(k)) {
      ELEMENT* target = a.output + offset[INPUTS] + k * a.along.row_stride[INPUTS];
      *target = store<ELEMENT>(a.beta != COMPUTE(0) ? result[k] + a.beta * load<COMPUTE>(*target) : result[k]);
    }
}

// The algorithm is a compile-time choice between logarithms, whose values are kept, and exponentials.
template <class Rule, int VECTORS>
__device__ __forceinline__ void softmax_of_strided(const Arguments<Rule::INPUTS>& a) {
  if constexpr (WIDTH == 1 && VECTORS <= 4) softmax_of_short<Rule, VECTORS>(a);
  else if (a.algorithm == LOG) softmax_of_strided_by<Rule, VECTORS>(a, Rule{LOG, a.alpha});
  else softmax_of_strided_by<Rule, VECTORS>(a, Rule{a.algorithm == FAST ? FAST : ACCURATE, a.alpha});
}

// max_blocks() is the number of blocks per SM that the registers must allow.
constexpr bool DOUBLE = sizeof(COMPUTE) == 8;
enum class Kind { rows, strided };
constexpr int max_blocks(Kind kind, int vectors) {
  if (DOUBLE || vectors * WIDTH > 32) return 2;
  if (WIDTH == 1 && vectors <= 4) return 8;
  return vectors > 4 && sizeof(ELEMENT) >= 4 && WIDTH > 1 ? 3 : kind == Kind::strided || vectors > 2 ? 4 : 6;
}

#define SOFTMAX_REGISTER_RESIDENT(direction, rule, kind, vectors)                                   \
  extern "C" __global__ void __launch_bounds__(256, max_blocks(Kind::kind, vectors))                \
      softmax_register_resident_##direction##_##kind##_##vectors(const Arguments<rule::INPUTS> a) { \
    griddepcontrol_wait_deferred();                                                                 \
    softmax_of_##kind<rule, vectors>(a);                                                            \
  }
#define SOFTMAX_ROWS(vectors)                                \
  SOFTMAX_REGISTER_RESIDENT(forward, Forward, rows, vectors) \
  SOFTMAX_REGISTER_RESIDENT(backward, Backward, rows, vectors)
#define SOFTMAX_STRIDED(vectors)                                \
  SOFTMAX_REGISTER_RESIDENT(forward, Forward, strided, vectors) \
  SOFTMAX_REGISTER_RESIDENT(backward, Backward, strided, vectors)

#if VECTOR_BYTES >= 8
SOFTMAX_REGISTER_RESIDENT(backward, Backward, rows, 1)
SOFTMAX_ROWS(2)
SOFTMAX_ROWS(4)
SOFTMAX_REGISTER_RESIDENT(forward, Forward, strided, 8)
#else  // single elements
SOFTMAX_STRIDED(8)
SOFTMAX_STRIDED(10)
SOFTMAX_STRIDED(12)
SOFTMAX_STRIDED(16)
#endif
SOFTMAX_STRIDED(2)
SOFTMAX_STRIDED(3)
SOFTMAX_STRIDED(4)
