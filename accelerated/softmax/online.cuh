// Softmax: its statistics, how threads agree on them, and the packs of a line (softmax/staged.cu, softmax/persistent.cuh and others).
#pragma once
#include "primitives/cluster.cuh"
#include "primitives/elementwise.cuh"

#include <type_traits>

enum Algorithm { FAST = 0, ACCURATE = 1, LOG = 2 };  // cudnnSoftmaxAlgorithm_t

// As in softmax_walk.py and softmax_teams.py. Packs of 8-bit integers hold one element: no integer fills them up without changing a maximum.
#ifndef PACK_BYTES
#define PACK_BYTES 16  // of a wide pack; fewer for lines in registers whose rows are no multiple of that
#endif
constexpr int WIDTH = sizeof(ELEMENT) == 1 ? 1 : PACK_BYTES / sizeof(ELEMENT);  // of a wide pack
template <int WIDE> constexpr int HELD = WIDE == 1 ? 8 : 2;                     // packs of each input in a group
constexpr int DEPTH = 4;                                                        // groups in flight to a thread
constexpr int MOST_BLOCK_THREADS = 800, MANY_THREADS = 512, MOST_BLOCK_VALUES = 128 / sizeof(COMPUTE);  // of lines in the registers of a block

template <int WIDE> struct alignas(sizeof(ELEMENT) * WIDE) Elements { ELEMENT item[WIDE]; };

// Two 16-bit numbers are converted from and to one register. They move as words: structures of half2 are copied pair by pair.
constexpr bool PAIRED = sizeof(ELEMENT) == 2 && std::is_same_v<COMPUTE, float>;
template <int WIDE> using Words = Pack<unsigned, WIDE / 2>;
__device__ __forceinline__ float2 both(half2 pair) { return __half22float2(pair); }
__device__ __forceinline__ float2 both(__nv_bfloat162 pair) { return __bfloat1622float2(pair); }
__device__ __forceinline__ void round(half2& pair, float low, float high) { pair = __floats2half2_rn(low, high); }
__device__ __forceinline__ void round(__nv_bfloat162& pair, float low, float high) { pair = __floats2bfloat162_rn(low, high); }
union Pair {
  unsigned word;
  std::conditional_t<std::is_same_v<ELEMENT, half>, half2, __nv_bfloat162> pair;
  __device__ __forceinline__ explicit Pair(unsigned word = 0) : word(word) {}
};

template <int WIDE> __device__ __forceinline__ void unpack(const Elements<WIDE>* pack, COMPUTE* values) {
  if constexpr (PAIRED && WIDE > 1) {
    const Words<WIDE> words = *reinterpret_cast<const Words<WIDE>*>(pack);
#pragma unroll
    for (int i = 0; i < WIDE / 2; i++) {
      float2 two = both(Pair(words.item[i]).pair);
      values[2 * i] = two.x, values[2 * i + 1] = two.y;
    }
  } else {
    Elements<WIDE> elements = *pack;
#pragma unroll
    for (int i = 0; i < WIDE; i++) values[i] = load<COMPUTE>(elements.item[i]);
  }
}
template <int WIDE> __device__ __forceinline__ void pack(const COMPUTE (&values)[WIDE], Elements<WIDE>* target) {
  if constexpr (PAIRED && WIDE > 1) {
    Words<WIDE> words;
#pragma unroll
    for (int i = 0; i < WIDE / 2; i++) {
      Pair two;
      round(two.pair, values[2 * i], values[2 * i + 1]);
      words.item[i] = two.word;
    }
    *reinterpret_cast<Words<WIDE>*>(target) = words;
  } else {
    Elements<WIDE> elements;
#pragma unroll
    for (int i = 0; i < WIDE; i++) elements.item[i] = store<ELEMENT>(values[i]);
    *target = elements;
  }
}

constexpr int SMALLEST_COPY = 4;  // bytes

#ifndef PASSING
#define PASSING 0  // whether more is moved than the cache keeps: what was read leaves it first, so that results stay for who reads them; PASSED_BYTES
#endif

// Copies to shared memory without waiting. commit() closes a group, arrived<N>() waits for all groups but the last N.
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800
__device__ __forceinline__ unsigned long long leaving_first() {
  unsigned long long policy;
  asm("createpolicy.fractional.L2::evict_first.b64 %0, 1.0;" : "=l"(policy));
  return policy;
}
template <class T> __device__ __forceinline__ void copy(T* to, const T* from) {
  const unsigned address = __cvta_generic_to_shared(to);
  if constexpr (sizeof(T) < SMALLEST_COPY) *to = *from;
  else if constexpr (sizeof(T) == 16 && PASSING)
    asm volatile("cp.async.cg.shared.global.L2::cache_hint [%0], [%1], 16, %2;" ::"r"(address), "l"(from), "l"(leaving_first()) : "memory");
  else if constexpr (sizeof(T) == 16) asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(address), "l"(from) : "memory");
  else asm volatile("cp.async.ca.shared.global [%0], [%1], %2;" ::"r"(address), "l"(from), "n"(sizeof(T)) : "memory");
}
__device__ __forceinline__ void commit() { asm volatile("cp.async.commit_group;" ::: "memory"); }
template <int LATER> __device__ __forceinline__ void arrived() { asm volatile("cp.async.wait_group %0;" ::"n"(LATER) : "memory"); }
// Reads a pack that passes the cache as copies do.
__device__ __forceinline__ Pack<unsigned, 4> read_passing(const Pack<unsigned, 4>* from) {
  if (!PASSING) return *from;
  Pack<unsigned, 4> pack;
  asm volatile("ld.global.L2::cache_hint.v4.b32 {%0, %1, %2, %3}, [%4], %5;"
               : "=r"(pack.item[0]), "=r"(pack.item[1]), "=r"(pack.item[2]), "=r"(pack.item[3]) : "l"(from), "l"(leaving_first()) : "memory");
  return pack;
}
#else
template <class T> __device__ __forceinline__ void copy(T* to, const T* from) { *to = *from; }
__device__ __forceinline__ void commit() {}
template <int LATER> __device__ __forceinline__ void arrived() {}
__device__ __forceinline__ Pack<unsigned, 4> read_passing(const Pack<unsigned, 4>* from) { return *from; }
#endif

// The same of elements.
template <int WIDE> __device__ __forceinline__ Elements<WIDE> read_passing(const Elements<WIDE>* from) {
  using Whole = Pack<unsigned, 4>;
  if constexpr (PASSING && sizeof(Elements<WIDE>) == sizeof(Whole)) {
    const Whole whole = read_passing(reinterpret_cast<const Whole*>(from));
    Elements<WIDE> elements;
    memcpy(&elements, &whole, sizeof whole);
    return elements;
  } else {
    return *from;
  }
}

// What short lines need comes first: it arrives with the pointers.
template <int INPUTS> struct Arguments {
  const ELEMENT* input[INPUTS];
  ELEMENT* output;
  COMPUTE alpha, beta;
  int algorithm;
  unsigned team;  // threads of a block that share a line; columns: packs of lines of a block; a power of two
  unsigned kept;  // groups of a thread that shared memory holds; packs of a lane; tiles: lines of a block; columns in registers: blocks that fetch ahead
  unsigned across, part, steps, ahead, delay, workers, passing;  // streams only, see there
  Geometry<INPUTS + 1> lines;                           // columns: packs of lines, else single lines
  Geometry<INPUTS + 1> along;                           // columns: single positions, else packs
};

constexpr float LOG2_E = 1.44269504f, LN_2 = 0.693147181f;
__device__ __forceinline__ float power_of_two(float x) {
#ifdef EMULATED_CUDA
  return exp2f(x);
#else
  float result;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(result) : "f"(x));
  return result;
#endif
}
// Within one unit of the last place, without the jump that a division makes.
__device__ __forceinline__ float straight_reciprocal(float x) {
#ifdef EMULATED_CUDA
  return 1 / x;
#else
  float result;
  asm("rcp.approx.f32 %0, %1;" : "=f"(result) : "f"(x));
  return result;
#endif
}
__device__ __forceinline__ double straight_reciprocal(double x) { return 1 / x; }
__device__ __forceinline__ float exponential(float x) { return power_of_two(x * LOG2_E); }
__device__ __forceinline__ double exponential(double x) { return exp(x); }

// exp(x - top) takes a product and a difference; of numbers so small that products do not overflow, one operation: the
// rounding of top * LOG2_E multiplies all exponentials of a line by the same.
constexpr bool FUSED = std::is_same_v<ELEMENT, half> && std::is_same_v<COMPUTE, float>;
constexpr COMPUTE NO_TOP = FUSED ? -1e30 : sizeof(COMPUTE) == 8 ? -1.7976931348623157e308 : -3.402823466e38;
__device__ __forceinline__ COMPUTE shift_of(COMPUTE top) {
  if constexpr (FUSED) return __fmul_rn(top, LOG2_E);  // never fused: equal tops have equal shifts
  else return top;
}
__device__ __forceinline__ COMPUTE shifted_exponential(COMPUTE x, COMPUTE shift) {
  if constexpr (FUSED) return power_of_two(fmaf(x, LOG2_E, -shift));
  else return exponential(x - shift);
}
__device__ __forceinline__ COMPUTE exponential_of_difference(COMPUTE shift, COMPUTE other) {
  if constexpr (FUSED) return power_of_two(shift - other);
  else return exponential(shift - other);
}

struct Statistic { COMPUTE top, sum; };

// The values of a single line are added in several chains, which do not wait for each other.
template <int LANES> constexpr int CHAINS = LANES == 1 ? 4 : LANES;

// The statistic of a line: top is its maximum (0 for FAST), sum that of exp(x - top). Any number of parts can be merged.
// While no element above -inf was seen, top is far below all others: exp(-inf - top) is 0, exp(-inf - -inf) would be NaN.
struct Forward {
  static constexpr int INPUTS = 1;
  Algorithm algorithm;
  COMPUTE alpha;

  // Changes neither maximum nor sum.
  static __device__ __forceinline__ COMPUTE neutral() { return COMPUTE(-INFINITY); }
  __device__ __forceinline__ Statistic empty() const { return {algorithm == FAST ? COMPUTE(0) : NO_TOP, COMPUTE(0)}; }
  __device__ __forceinline__ bool has_top() const { return algorithm != FAST; }
  static __device__ __forceinline__ void raise(Statistic& line, COMPUTE top) {
    line.sum *= exponential_of_difference(shift_of(line.top), shift_of(top));
    line.top = top;
  }

  // Raises the maxima to those of values; number j belongs to line j modulo LANES. FIRST: no sum was added before.
  template <bool FIRST = false, int LANES, int N>
  __device__ __forceinline__ void cover(Statistic (&line)[LANES], const COMPUTE (&values)[1][N]) const {
    if (!has_top()) return;
    COMPUTE top[CHAINS<LANES>];
#pragma unroll
    for (int chain = 0; chain < CHAINS<LANES>; chain++) top[chain] = line[chain % LANES].top;
#pragma unroll
    for (int j = 0; j < N; j++) top[j % CHAINS<LANES>] = max(top[j % CHAINS<LANES>], values[0][j]);
#pragma unroll
    for (int lane = 0; lane < LANES; lane++) {
#pragma unroll
      for (int chain = lane + LANES; chain < CHAINS<LANES>; chain += LANES) top[lane] = max(top[lane], top[chain]);
      if (FIRST) line[lane].top = top[lane];
      else raise(line[lane], top[lane]);
    }
  }
  // Adds values that no maximum is below. KEEP: their exponentials take their places where results() needs no more.
  template <bool KEEP = false, int LANES, int N>
  __device__ __forceinline__ void add_covered(Statistic (&line)[LANES], std::conditional_t<KEEP, COMPUTE, const COMPUTE> (&values)[1][N]) const {
    COMPUTE sum[CHAINS<LANES>] = {}, shift[LANES];
    auto add_to_chain = [&](int j, COMPUTE value) { sum[j % CHAINS<LANES>] = j < CHAINS<LANES> ? value : sum[j % CHAINS<LANES>] + value; };
#pragma unroll
    for (int lane = 0; lane < LANES; lane++) shift[lane] = shift_of(line[lane].top);
    if (KEEP && algorithm != LOG) {
#pragma unroll
      for (int j = 0; j < N; j++) {
        const COMPUTE exponential = shifted_exponential(values[0][j], shift[j % LANES]);
        add_to_chain(j, exponential);
        if constexpr (KEEP) values[0][j] = exponential;
      }
    } else {
#pragma unroll
      for (int j = 0; j < N; j++) add_to_chain(j, shifted_exponential(values[0][j], shift[j % LANES]));
    }
#pragma unroll
    for (int chain = 0; chain < CHAINS<LANES> && chain < N; chain++) line[chain % LANES].sum += sum[chain];
  }
  // Adds values that may be above the maxima.
  template <bool FIRST = false, int LANES, int N>
  __device__ __forceinline__ void add(Statistic (&line)[LANES], const COMPUTE (&values)[1][N]) const {
    cover<FIRST>(line, values);
    add_covered(line, values);
  }
  // Turns the statistic into what results() needs. STRAIGHT: without jumps.
  template <bool STRAIGHT = false> __device__ __forceinline__ void finish(Statistic& line) const {
    const COMPUTE shift = shift_of(line.top);
    if (algorithm == LOG) {
      line.sum = log(line.sum);
      if (FUSED) line.sum -= fmaf(line.top, LOG2_E, -shift) * LN_2;  // what the rounding of the shift has added
    } else {
      line.sum = alpha * (STRAIGHT ? straight_reciprocal(line.sum) : COMPUTE(1) / line.sum), line.top = shift;
    }
  }
  // Makes a finished statistic one of values that were kept below another top.
  __device__ __forceinline__ void scale(Statistic& line, COMPUTE top) const {
    if (algorithm != LOG) line.sum *= exponential_of_difference(shift_of(top), line.top);
  }
  // KEPT: of values that add_covered() has kept.
  template <bool KEPT = false, int LANES, int N>
  __device__ __forceinline__ void results(const Statistic (&line)[LANES], const COMPUTE (&values)[1][N], COMPUTE (&result)[N]) const {
    if (algorithm == LOG) {
#pragma unroll
      for (int j = 0; j < N; j++) result[j] = alpha * (values[0][j] - line[j % LANES].top - line[j % LANES].sum);
    } else {
#pragma unroll
      for (int j = 0; j < N; j++)
        result[j] = (KEPT ? values[0][j] : shifted_exponential(values[0][j], line[j % LANES].top)) * line[j % LANES].sum;
    }
  }
};

// The statistic of a line: the sum of y * dy, for LOG that of dy.
struct Backward {
  static constexpr int INPUTS = 2;
  Algorithm algorithm;
  COMPUTE alpha;

  static __device__ __forceinline__ COMPUTE neutral() { return COMPUTE(0); }
  __device__ __forceinline__ Statistic empty() const { return {COMPUTE(0), COMPUTE(0)}; }
  __device__ __forceinline__ bool has_top() const { return false; }
  static __device__ __forceinline__ void raise(Statistic&, COMPUTE) {}

  template <bool FIRST = false, int LANES, int N>
  __device__ __forceinline__ void cover(Statistic (&)[LANES], const COMPUTE (&)[2][N]) const {}
  template <bool = false, int LANES, int N>
  __device__ __forceinline__ void add_covered(Statistic (&line)[LANES], const COMPUTE (&values)[2][N]) const {
    add(line, values);
  }
  template <bool = false, int LANES, int N>
  __device__ __forceinline__ void add(Statistic (&line)[LANES], const COMPUTE (&values)[2][N]) const {
    COMPUTE sum[CHAINS<LANES>] = {};
#pragma unroll
    for (int j = 0; j < N; j++) {
      const COMPUTE term = algorithm == LOG ? values[1][j] : values[0][j] * values[1][j];
      sum[j % CHAINS<LANES>] = j < CHAINS<LANES> ? term : sum[j % CHAINS<LANES>] + term;
    }
#pragma unroll
    for (int chain = 0; chain < CHAINS<LANES> && chain < N; chain++) line[chain % LANES].sum += sum[chain];
  }
  template <bool = false> __device__ __forceinline__ void finish(Statistic&) const {}
  __device__ __forceinline__ void scale(Statistic&, COMPUTE) const {}
  template <bool = false, int LANES, int N>
  __device__ __forceinline__ void results(const Statistic (&line)[LANES], const COMPUTE (&values)[2][N], COMPUTE (&result)[N]) const {
    if (algorithm == LOG) {
#pragma unroll
      for (int j = 0; j < N; j++) result[j] = alpha * (values[1][j] - exponential(values[0][j]) * line[j % LANES].sum);
    } else {
#pragma unroll
      for (int j = 0; j < N; j++) result[j] = alpha * (values[0][j] * (values[1][j] - line[j % LANES].sum));
    }
  }
};

// --- agreeing: all sizes are powers of two ---

__device__ __forceinline__ unsigned exponent_of(unsigned power) { return 31 - __clz(power); }

// Merge the statistics of the lanes whose numbers agree modulo `first`, up to a group of `beyond` lanes: the maxima, to which
// they are raised, and the sums, which have the same maxima.
template <class Rule, int LANES>
__device__ __forceinline__ void merge_tops(const Rule& rule, Statistic (&line)[LANES], unsigned first, unsigned beyond) {
  if (first >= beyond || !rule.has_top()) return;
  COMPUTE top[LANES];
#pragma unroll
  for (int lane = 0; lane < LANES; lane++) top[lane] = line[lane].top;
  for (unsigned lanes = first; lanes < beyond; lanes *= 2)
#pragma unroll
    for (int lane = 0; lane < LANES; lane++) top[lane] = max(top[lane], __shfl_xor_sync(~0u, top[lane], lanes));
#pragma unroll
  for (int lane = 0; lane < LANES; lane++) rule.raise(line[lane], top[lane]);
}
template <int LANES> __device__ __forceinline__ void merge_sums(Statistic (&line)[LANES], unsigned first, unsigned beyond) {
  for (unsigned lanes = first; lanes < beyond; lanes *= 2)
#pragma unroll
    for (int lane = 0; lane < LANES; lane++) line[lane].sum += __shfl_xor_sync(~0u, line[lane].sum, lanes);
}
template <class Rule, int LANES>
__device__ __forceinline__ void merge_lanes(const Rule& rule, Statistic (&line)[LANES], unsigned first, unsigned beyond) {
  merge_tops(rule, line, first, beyond);
  merge_sums(line, first, beyond);
}

// Merges `count` statistics that lie `stride` apart.
template <class Rule>
__device__ __forceinline__ Statistic merged(const Rule& rule, const Statistic* parts, unsigned count, unsigned stride) {
  Statistic total = rule.empty();
  if (rule.has_top())
    for (unsigned i = 0; i < count; i++) total.top = max(total.top, parts[i * stride].top);
  for (unsigned i = 0; i < count; i++) {
    Statistic part = parts[i * stride];
    if (rule.has_top()) rule.raise(part, total.top);
    total.sum += part.sum;
  }
  return total;
}

__device__ __forceinline__ void store_to_cluster_rank(Statistic* variable, unsigned block, Statistic value) {
  store_to_cluster_rank(&variable->top, block, value.top);
  store_to_cluster_rank(&variable->sum, block, value.sum);
}

// Merges the statistics of `team` lanes, or of all threads of the block (and of its cluster; its threads have arrived
// once before: a block must run before its memory is written), and finishes them.
// `parts`: a statistic of every warp, then of every block of the cluster.
template <bool CLUSTERED, class Rule>
__device__ __forceinline__ void merge_lines(const Rule& rule, Statistic (&line)[1], unsigned team, Statistic* parts) {
  const unsigned lane = threadIdx.x & 31, warps = team >> 5;
  merge_lanes(rule, line, 1, min(team, 32u));
  if (warps > 1) {
    if (lane == 0) parts[threadIdx.x >> 5] = line[0];
    __syncthreads();
    line[0] = parts[lane & (warps - 1)];
    merge_lanes(rule, line, 1, warps);
  }
  if (CLUSTERED) {
    parts += max(warps, 1u);
    cluster_wait();
    if (threadIdx.x < CLUSTER_SIZE) store_to_cluster_rank(&parts[cluster_rank()], threadIdx.x, line[0]);
    cluster_arrive();
    cluster_wait();
    line[0] = parts[lane & (CLUSTER_SIZE - 1)];
    merge_lanes(rule, line, 1, CLUSTER_SIZE);
  }
  rule.finish(line[0]);
}

// Merges the statistics of all threads of a block (and of its cluster) that have the same column, and finishes them.
// There are `across` columns of LANES lines, the fastest index of the threads. `parts`: a statistic of every line and
// warp (or thread, from 32 columns on), then of every line and block of the cluster. SHARED: several threads merge a line's, which
// pays where a thread has many lines and takes registers elsewhere.
template <bool CLUSTERED, bool SHARED, class Rule, int LANES>
__device__ __forceinline__ void merge_columns(const Rule& rule, Statistic (&line)[LANES], unsigned across, Statistic* parts) {
  const unsigned thread = threadIdx.x, stride = max(across, 32u), lines = across * LANES, groups = blockDim.x >> exponent_of(stride);
  Statistic* column = parts + (thread & (across - 1)) * LANES;
  merge_lanes(rule, line, across, 32);
  if (!CLUSTERED && groups == 1) {
#pragma unroll
    for (int lane = 0; lane < LANES; lane++) rule.finish(line[lane]);
    return;
  }
  if ((thread & (stride - 1)) < across)
#pragma unroll
    for (int lane = 0; lane < LANES; lane++) column[(thread >> exponent_of(stride)) * lines + lane] = line[lane];
  __syncthreads();
  Statistic* of_blocks = parts + groups * lines;
  if (CLUSTERED) cluster_wait();
  const unsigned each = SHARED ? min(blockDim.x >> exponent_of(lines), groups) : 1;  // threads of a line
  if (SHARED && each > 1) {
    const unsigned first = thread & (each - 1), i = thread >> exponent_of(each) & (lines - 1);
    if (thread < max(lines * each, 32u)) {  // whole warps, some of whose lanes may do the same
      Statistic total[1] = {merged(rule, parts + first * lines + i, groups >> exponent_of(each), lines * each)};
      merge_lanes(rule, total, 1, each);
      rule.finish(total[0]);
      __syncwarp();
      if (first == 0) parts[i] = total[0];
    }
  } else {
    // One thread a line; each touches that line alone.
    for (unsigned i = thread; i < lines; i += blockDim.x) {
      Statistic total = merged(rule, parts + i, groups, lines);
      if (CLUSTERED) {
        for (unsigned block = 0; block < CLUSTER_SIZE; block++) store_to_cluster_rank(&of_blocks[cluster_rank() * lines + i], block, total);
      } else {
        rule.finish(total);
        parts[i] = total;
      }
    }
  }
  if (CLUSTERED) {
    cluster_arrive();
    cluster_wait();
    for (unsigned i = thread; i < lines; i += blockDim.x) {
      Statistic total = merged(rule, of_blocks + i, CLUSTER_SIZE, lines);
      rule.finish(total);
      parts[i] = total;
    }
  }
  __syncthreads();
#pragma unroll
  for (int lane = 0; lane < LANES; lane++) line[lane] = column[lane];
}

// --- a line ---

// The packs of one line, or of a pack of lines. Every kind of line can
//   fetch a group (the packs first, first + size, ...) to places that lie `distance` apart, without waiting,
//   take its values from there (what does not exist is neutral), and
//   write its results, blended with what is there.

// Packs of 16 bytes. Neighbours along a line (of packs, for columns) are neighbours in memory.
template <class Rule, bool COLUMNS, int PACKS> struct WidePacks {
  static constexpr int INPUTS = Rule::INPUTS, WIDE = WIDTH, HELD = PACKS, LANES = COLUMNS ? WIDE : 1;
  using Place = Elements<WIDE>;
  const Arguments<INPUTS>* a;
  const ELEMENT* input[INPUTS];  // pack 0, which may start before the line, so that packs are aligned
  ELEMENT* output;
  unsigned packs, width;   // columns: lines of the pack
  unsigned lead;           // elements of pack 0 before the line
  unsigned whole, wholes;  // from pack `whole` on so many are whole and aligned in all operands
  unsigned all_packs, all_wholes;

  __device__ __forceinline__ WidePacks(const Arguments<INPUTS>& arguments, unsigned index) : a(&arguments) {
    unsigned offset[INPUTS + 1];
    width = a->lines.locate(index, offset);
    begin_at(offset);
  }
  // Lines that lie equally far apart.
  __device__ __forceinline__ void move_to(unsigned index) {
    unsigned offset[INPUTS + 1];
#pragma unroll
    for (int n = 0; n <= INPUTS; n++) offset[n] = index * a->lines.row_stride[n];
    begin_at(offset);
  }
  // Leaves the packs from `end` on to others, for now.
  __device__ __forceinline__ void end_at(unsigned end) {
    packs = min(all_packs, end);
    wholes = min(all_wholes, max(packs, whole) - whole);
  }
  // Packs that begin where the line does, of which none is whole.
  __device__ __forceinline__ void begin_with_line() {
#pragma unroll
    for (int n = 0; n < INPUTS; n++) input[n] += lead;
    output += lead;
    all_packs = packs = (a->along.row + WIDE - 1) / WIDE;
    all_wholes = wholes = whole = lead = 0;
  }
  __device__ __forceinline__ void end_for_good() { all_packs = all_wholes = packs = wholes = 0; }
  __device__ __forceinline__ void begin_at(const unsigned (&offset)[INPUTS + 1]) {
    output = a->output + offset[INPUTS];
    lead = misplaced(output);
    bool together = true;
#pragma unroll
    for (int n = 0; n < INPUTS; n++) {
      input[n] = a->input[n] + offset[n];
      together &= misplaced(input[n]) == lead;
    }
    if (COLUMNS) {
      packs = a->along.row, whole = 0, wholes = together && lead == 0 && width == WIDE ? packs : 0;
    } else {
      if (!together) lead = 0;
      output -= lead;
#pragma unroll
      for (int n = 0; n < INPUTS; n++) input[n] -= lead;
      packs = (a->along.row + lead + WIDE - 1) / WIDE, whole = lead != 0;
      wholes = together ? (a->along.row + lead) / WIDE : 0;
      wholes -= min(wholes, whole);
    }
    all_packs = packs, all_wholes = wholes;
  }
  // By how many elements a pointer misses the alignment of a pack.
  static __device__ __forceinline__ unsigned misplaced(const ELEMENT* pointer) {
    return unsigned(reinterpret_cast<uintptr_t>(pointer) / sizeof(ELEMENT)) % WIDE;
  }
  __device__ __forceinline__ size_t offset(unsigned pack, int operand) const {
    return COLUMNS ? size_t(pack) * unsigned(a->along.row_stride[operand]) : pack * WIDE;
  }
  __device__ __forceinline__ bool is_whole(unsigned pack) const { return pack - whole < wholes; }
  __device__ __forceinline__ bool are_whole(unsigned first, unsigned size) const {
    return is_whole(first) && is_whole(first + (HELD - 1) * size);
  }
  __device__ __forceinline__ bool are_all_whole(unsigned begin, unsigned end) const { return begin >= whole && end - whole <= all_wholes; }
  __device__ __forceinline__ bool exists(unsigned pack, unsigned i) const {
    return COLUMNS ? i < width : pack * WIDE + i - lead < a->along.row;
  }

  // A pack that is whole.
  __device__ __forceinline__ void fetch_whole(unsigned pack, Place* place, unsigned distance) const {
#pragma unroll
    for (int n = 0; n < INPUTS; n++) copy(place + n * distance, reinterpret_cast<const Place*>(input[n] + offset(pack, n)));
  }
  // Asks L2 for a group, before the wait (primitives/dependent_launch.cuh).
  __device__ __forceinline__ void ask_ahead(unsigned first, unsigned size) const {
#pragma unroll
    for (int k = 0; k < HELD; k++)
#pragma unroll
      for (int n = 0; n < INPUTS; n++)
        if (first + k * size < packs) prefetch_l2(input[n] + offset(first + k * size, n));
  }
  __device__ __forceinline__ void fetch(unsigned first, unsigned size, Place* place, unsigned distance) const {
#pragma unroll
    for (int k = 0; k < HELD; k++)
      if (is_whole(first + k * size)) fetch_whole(first + k * size, place + k * INPUTS * distance, distance);
    if (are_whole(first, size)) return;
    Place nothing;
#pragma unroll
    for (int i = 0; i < WIDE; i++) nothing.item[i] = store<ELEMENT>(Rule::neutral());
#pragma unroll 1
    for (int k = 0; k < HELD; k++, first += size, place += INPUTS * distance)
      if (!is_whole(first))
#pragma unroll
        for (int n = 0; n < INPUTS; n++) {
          place[n * distance] = nothing;
          if (first < packs)
#pragma unroll 1
            for (int i = 0; i < WIDE; i++)
              if (exists(first, i)) place[n * distance].item[i] = (input[n] + offset(first, n))[i * stride(n)];
        }
  }
  // A pack; what does not exist is neutral.
  __device__ __forceinline__ Place read(unsigned pack, int n) const {
    Place some;
#pragma unroll
    for (int i = 0; i < WIDE; i++) {
      some.item[i] = store<ELEMENT>(Rule::neutral());
      if (pack < packs && exists(pack, i)) some.item[i] = (input[n] + offset(pack, n))[i * stride(n)];
    }
    return some;
  }
  __device__ __forceinline__ long long stride(int operand) const { return COLUMNS ? a->lines.row_stride[operand] : 1; }

  __device__ __forceinline__ void take(unsigned, unsigned, const Place* place, unsigned distance, COMPUTE (&values)[INPUTS][HELD * WIDE]) const {
#pragma unroll
    for (int k = 0; k < HELD; k++)
#pragma unroll
      for (int n = 0; n < INPUTS; n++) unpack(place + (k * INPUTS + n) * distance, &values[n][k * WIDE]);
  }
  __device__ __forceinline__ void write(const Rule& rule, const Statistic (&line)[LANES], unsigned first, unsigned size, const Place* place,
                                        unsigned distance) const {
    if (are_whole(first, size)) {
#pragma unroll
      for (int k = 0; k < HELD; k++) write_pack(rule, line, first + k * size, true, place + k * INPUTS * distance, distance);
    } else {
#pragma unroll 1
      for (int k = 0; k < HELD && first < packs; k++, first += size, place += INPUTS * distance)
        write_pack(rule, line, first, is_whole(first), place, distance);
    }
  }
  __device__ __forceinline__ void write_pack(const Rule& rule, const Statistic (&line)[LANES], unsigned index, bool as_whole, const Place* place,
                                             unsigned distance) const {
    COMPUTE values[INPUTS][WIDE], result[WIDE];
#pragma unroll
    for (int n = 0; n < INPUTS; n++) unpack(place + n * distance, values[n]);
    rule.results(line, values, result);
    write_results(index, as_whole, result);
  }
  __device__ __forceinline__ void write_results(unsigned index, bool as_whole, COMPUTE (&result)[WIDE]) const {
    ELEMENT* target = output + offset(index, INPUTS);
    if (as_whole) {
      if (a->beta != COMPUTE(0)) {
        COMPUTE prior[WIDE];
        unpack(reinterpret_cast<const Place*>(target), prior);
#pragma unroll
        for (int i = 0; i < WIDE; i++) result[i] += a->beta * prior[i];
      }
      pack(result, reinterpret_cast<Place*>(target));
    } else {
#pragma unroll
      for (int i = 0; i < WIDE; i++)
        if (exists(index, i)) target[i] = store<ELEMENT>(a->beta != COMPUTE(0) ? result[i] + a->beta * load<COMPUTE>(target[i]) : result[i]);
    }
  }
};

template <class Rule, bool COLUMNS> using WideLine = WidePacks<Rule, COLUMNS, HELD<WIDTH>>;

// Packs of one element, anywhere.
template <class Rule, bool COLUMNS> struct NarrowLine {
  static constexpr int INPUTS = Rule::INPUTS, HELD = ::HELD<1>, LANES = 1;
  using Place = Elements<1>;
  const Arguments<INPUTS>& a;
  const ELEMENT* input[INPUTS];
  ELEMENT* output;
  unsigned packs;

  __device__ __forceinline__ NarrowLine(const Arguments<INPUTS>& arguments, unsigned index) : a(arguments), packs(a.along.packs) {
    unsigned offset[INPUTS + 1];
    a.lines.locate(index, offset);
    output = a.output + offset[INPUTS];
#pragma unroll
    for (int n = 0; n < INPUTS; n++) input[n] = a.input[n] + offset[n];
  }
  __device__ __forceinline__ void locate(unsigned pack, unsigned (&offset)[INPUTS + 1]) const {
    if (a.along.outer_rank != 0) {
      a.along.locate(pack, offset);
    } else {
#pragma unroll
      for (int n = 0; n <= INPUTS; n++) offset[n] = pack * a.along.row_stride[n];
    }
  }

  __device__ __forceinline__ void fetch(unsigned first, unsigned size, Place* place, unsigned distance) const {
    // What copy() cannot move goes through registers, some at a time.
    constexpr bool COPIES = sizeof(ELEMENT) >= SMALLEST_COPY;
    constexpr int BATCH = COPIES ? 1 : HELD / INPUTS;
#pragma unroll 1
    for (int batch = 0; batch < HELD && first < packs; batch += BATCH, first += BATCH * size, place += BATCH * INPUTS * distance) {
      ELEMENT element[BATCH][INPUTS];
#pragma unroll
      for (int k = 0; k < BATCH; k++) {
        unsigned offset[INPUTS + 1];
        locate(min(first + k * size, packs - 1), offset);
#pragma unroll
        for (int n = 0; n < INPUTS; n++) {
          if constexpr (COPIES) copy(place + n * distance, reinterpret_cast<const Place*>(input[n] + offset[n]));
          else element[k][n] = input[n][offset[n]];
        }
      }
      if constexpr (!COPIES)
#pragma unroll
        for (int k = 0; k < BATCH; k++)
#pragma unroll
          for (int n = 0; n < INPUTS; n++) place[(k * INPUTS + n) * distance].item[0] = element[k][n];
    }
  }
  __device__ __forceinline__ void take(unsigned first, unsigned size, const Place* place, unsigned distance, COMPUTE (&values)[INPUTS][HELD]) const {
#pragma unroll
    for (int k = 0; k < HELD; k++)
#pragma unroll
      for (int n = 0; n < INPUTS; n++)
        values[n][k] = first + k * size < packs ? load<COMPUTE>(place[(k * INPUTS + n) * distance].item[0]) : Rule::neutral();
  }
  __device__ __forceinline__ void write(const Rule& rule, const Statistic (&line)[LANES], unsigned first, unsigned size, const Place* place,
                                        unsigned distance) const {
#pragma unroll 2
    for (int k = 0; k < HELD; k++, first += size, place += INPUTS * distance) {
      if (first >= packs) break;
      COMPUTE values[INPUTS][1], result[1];
#pragma unroll
      for (int n = 0; n < INPUTS; n++) values[n][0] = load<COMPUTE>(place[n * distance].item[0]);
      rule.results(line, values, result);
      unsigned offset[INPUTS + 1];
      locate(first, offset);
      ELEMENT* target = output + offset[INPUTS];
      *target = store<ELEMENT>(a.beta != COMPUTE(0) ? result[0] + a.beta * load<COMPUTE>(*target) : result[0]);
    }
  }
};
