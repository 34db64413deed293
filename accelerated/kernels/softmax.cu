// Softmax, forward (3.2.96) and backward (4.1.19).
//
// A line is what one softmax runs over: C, H, W of an image or C at a position. A team of threads takes a line (or,
// where neighbours in memory belong to different lines, a pack of WIDTH lines): it reads its packs once, keeps them in
// registers and shared memory, agrees on the statistic of the line, computes and writes. Only the part of a line that
// exceeds both is read again, what was read last first, while L2 has it.
//
// Teams: up to 32 lanes, a block, a cluster of blocks (few or very long lines: all multiprocessors work, and no workspace
// is needed), and blocks over packs of lines (a C that is not innermost).
//
// Floor: bytes. Forward moves 2 elements, backward 3; at 4.2 TB/s a float costs 1.9 ps forward, a half 1.0 ps. The
// arithmetic is near: two exponentials and some 20 instructions an element are 0.7 ps on 132 multiprocessors. What limits
// long lines is that a team reads all of its line before it writes, so reads and writes overlap only between teams, and
// backward that eight multiprocessors keep 2.3 MB of a longer line on chip.
#include "elementwise.cuh"

#include <type_traits>

enum Algorithm { FAST = 0, ACCURATE = 1, LOG = 2 };  // cudnnSoftmaxAlgorithm_t

// An integer has no value that a maximum ignores, so packs of integers hold one element and are never filled up.
constexpr int WIDTH = sizeof(ELEMENT) == 1 ? 1 : 16 / sizeof(ELEMENT);
constexpr int HELD = 4;  // packs of each input that a thread holds in registers

// A pack in registers. Whole words: the compiler would give every half a register of its own.
template <int BYTES> struct WordOf { using type = unsigned; };
template <> struct WordOf<8> { using type = unsigned long long; };
using Word = WordOf<sizeof(ELEMENT)>::type;
constexpr int PER_WORD = WIDTH == 1 ? 1 : sizeof(Word) / sizeof(ELEMENT), WORDS = WIDTH / PER_WORD;
struct alignas(sizeof(Word) * WORDS) Elements { Word word[WORDS]; };

__device__ __forceinline__ COMPUTE at(const Elements& pack, int i) {
  Word shifted = pack.word[i / PER_WORD] >> (i % PER_WORD * 8 * sizeof(ELEMENT));
  ELEMENT element;
  memcpy(&element, &shifted, sizeof(ELEMENT));
  return load<COMPUTE>(element);
}
__device__ __forceinline__ void put(Elements& pack, int i, ELEMENT element) {
  Word bits = 0;
  memcpy(&bits, &element, sizeof(ELEMENT));
  pack.word[i / PER_WORD] |= bits << (i % PER_WORD * 8 * sizeof(ELEMENT));
}
// A pack of results, rounded; two halves take one instruction.
__device__ __forceinline__ Elements rounded(const COMPUTE (&values)[WIDTH]) {
  Elements pack{};
#pragma unroll
  for (int i = 0; i < WIDTH; i += PER_WORD) {
    if constexpr (std::is_same_v<ELEMENT, half>) {
      half2 pair = __floats2half2_rn(values[i], values[i + 1]);
      memcpy(&pack.word[i / 2], &pair, sizeof pair);
    } else if constexpr (std::is_same_v<ELEMENT, bfloat16>) {
      __nv_bfloat162 pair = __floats2bfloat162_rn(values[i], values[i + 1]);
      memcpy(&pack.word[i / 2], &pair, sizeof pair);
    } else {
      put(pack, i, store<ELEMENT>(values[i]));
    }
  }
  return pack;
}

#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
constexpr unsigned CLUSTER = 8;  // the largest size that every GPU with clusters has; softmax.py knows it
#define BLOCKS_OF_A_CLUSTER __cluster_dims__(8, 1, 1)
#else
constexpr unsigned CLUSTER = 1;
#define BLOCKS_OF_A_CLUSTER
#endif

enum class Team { lanes, block, cluster, columns };

template <int INPUTS> struct Arguments {
  const ELEMENT* input[INPUTS];
  ELEMENT* output;
  Geometry<INPUTS + 1> lines;  // columns: packs of WIDTH lines, else single lines
  Geometry<INPUTS + 1> along;  // columns: single positions, else packs of WIDTH
  double alpha, beta;
  int algorithm;
  unsigned team;    // lanes: of a line; columns: packs of lines of a block; a power of two
  unsigned cached;  // rounds (HELD packs of each input of every thread) that shared memory holds
};

__device__ __forceinline__ float exponential(float x) {
#ifdef EMULATED_CUDA
  return exp2f(x * 1.44269504f);
#else
  float result;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(result) : "f"(x * 1.44269504f));
  return result;
#endif
}
__device__ __forceinline__ double exponential(double x) { return exp(x); }

// The statistic of a line: top is its maximum (0 for FAST), sum that of exp(x - top). Any number of parts can be merged.
struct Forward {
  static constexpr int INPUTS = 1;
  struct Statistic { COMPUTE top, sum; };
  Algorithm algorithm;

  __device__ __forceinline__ Statistic empty() const { return {algorithm == FAST ? COMPUTE(0) : COMPUTE(-INFINITY), COMPUTE(0)}; }
  // Fills up packs: it changes neither maximum nor sum.
  static __device__ __forceinline__ ELEMENT neutral() { return store<ELEMENT>(COMPUTE(-INFINITY)); }
  // What to subtract while no element above -inf was seen: exp(-inf - 0) is 0, exp(-inf - -inf) would be NaN.
  static __device__ __forceinline__ COMPUTE anchor(COMPUTE top) { return top == COMPUTE(-INFINITY) ? COMPUTE(0) : top; }

  template <int LANES>
  __device__ __forceinline__ void add(Statistic (&line)[LANES], const Elements (&held)[1][HELD], unsigned present) const {
    COMPUTE top[LANES];
#pragma unroll
    for (int lane = 0; lane < LANES; lane++) top[lane] = line[lane].top;
    if (algorithm != FAST) {
#pragma unroll
      for (int k = 0; k < HELD; k++)
        if (k < present) {
#pragma unroll
          for (int i = 0; i < WIDTH; i++) top[i % LANES] = max(top[i % LANES], at(held[0][k], i));
        }
#pragma unroll
      for (int lane = 0; lane < LANES; lane++) {
        line[lane].sum *= exponential(line[lane].top - anchor(top[lane]));
        line[lane].top = top[lane];
      }
    }
#pragma unroll
    for (int lane = 0; lane < LANES; lane++) top[lane] = anchor(top[lane]);
#pragma unroll
    for (int k = 0; k < HELD; k++)
      if (k < present) {
#pragma unroll
        for (int i = 0; i < WIDTH; i++) line[i % LANES].sum += exponential(at(held[0][k], i) - top[i % LANES]);
      }
  }
  __device__ __forceinline__ void merge(Statistic& line, const Statistic& other) const {
    if (algorithm == FAST) {
      line.sum += other.sum;
      return;
    }
    COMPUTE top = max(line.top, other.top), subtracted = anchor(top);
    line.sum = line.sum * exponential(line.top - subtracted) + other.sum * exponential(other.top - subtracted);
    line.top = top;
  }
  __device__ __forceinline__ void finish(Statistic& line) const {
    line.sum = algorithm == LOG ? log(line.sum) : COMPUTE(1) / line.sum;
  }
  __device__ __forceinline__ COMPUTE result(const Statistic& line, const Elements (&packs)[1], int i) const {
    COMPUTE shifted = at(packs[0], i) - line.top;
    return algorithm == LOG ? shifted - line.sum : exponential(shifted) * line.sum;
  }
};

// The statistic of a line: the sum of y * dy, for LOG that of dy.
struct Backward {
  static constexpr int INPUTS = 2;
  struct Statistic { COMPUTE sum; };
  Algorithm algorithm;

  __device__ __forceinline__ Statistic empty() const { return {COMPUTE(0)}; }
  static __device__ __forceinline__ ELEMENT neutral() { return store<ELEMENT>(COMPUTE(0)); }

  template <int LANES>
  __device__ __forceinline__ void add(Statistic (&line)[LANES], const Elements (&held)[2][HELD], unsigned present) const {
#pragma unroll
    for (int k = 0; k < HELD; k++)
      if (k < present) {
#pragma unroll
        for (int i = 0; i < WIDTH; i++) {
          COMPUTE dy = at(held[1][k], i);
          line[i % LANES].sum += algorithm == LOG ? dy : at(held[0][k], i) * dy;
        }
      }
  }
  __device__ __forceinline__ void merge(Statistic& line, const Statistic& other) const { line.sum += other.sum; }
  __device__ __forceinline__ void finish(Statistic&) const {}
  __device__ __forceinline__ COMPUTE result(const Statistic& line, const Elements (&packs)[2], int i) const {
    COMPUTE y = at(packs[0], i), dy = at(packs[1], i);
    return algorithm == LOG ? dy - exponential(y) * line.sum : y * (dy - line.sum);
  }
};

// --- teams: all sizes are powers of two ---

__device__ __forceinline__ unsigned exponent_of(unsigned power) { return 31 - __clz(power); }

template <class Statistic>
__device__ __forceinline__ Statistic shuffled(const Statistic& own, int lanes) {
  constexpr int NUMBERS = sizeof(Statistic) / sizeof(COMPUTE);
  union { Statistic statistic; COMPUTE number[NUMBERS]; } value{own};
#pragma unroll
  for (int i = 0; i < NUMBERS; i++) value.number[i] = __shfl_xor_sync(~0u, value.number[i], lanes);
  return value.statistic;
}

// Merges the statistics of the lanes whose numbers agree modulo `first`, up to a group of `beyond` lanes.
template <class Rule, int LANES>
__device__ __forceinline__ void merge_lanes(const Rule& rule, typename Rule::Statistic (&line)[LANES], unsigned first, unsigned beyond) {
  for (unsigned lanes = first; lanes < beyond; lanes *= 2)
#pragma unroll
    for (int lane = 0; lane < LANES; lane++) rule.merge(line[lane], shuffled(line[lane], lanes));
}

// Merges the statistics of all threads of a block that have the same column; there are `across` columns, the fastest
// index of the threads. `partial` is shared memory for a statistic of every warp (or thread, from 32 columns on).
template <class Rule, int LANES>
__device__ __forceinline__ void merge_block(const Rule& rule, typename Rule::Statistic (&line)[LANES], unsigned across,
                                            typename Rule::Statistic* partial) {
  merge_lanes(rule, line, across, 32);
  if (blockDim.x <= max(across, 32u)) return;
  unsigned thread = threadIdx.x, stride = max(across, 32u), column = thread & (across - 1);
  if ((thread & (stride - 1)) < across)
#pragma unroll
    for (int lane = 0; lane < LANES; lane++) partial[((thread >> exponent_of(stride)) * across + column) * LANES + lane] = line[lane];
  __syncthreads();
#pragma unroll
  for (int lane = 0; lane < LANES; lane++) line[lane] = partial[column * LANES + lane];
  for (unsigned group = 1; group < blockDim.x >> exponent_of(stride); group++)
#pragma unroll
    for (int lane = 0; lane < LANES; lane++) rule.merge(line[lane], partial[(group * across + column) * LANES + lane]);
}

#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
__device__ __forceinline__ unsigned rank_in_cluster() {
  unsigned rank;
  asm("mov.u32 %0, %%cluster_ctarank;" : "=r"(rank));
  return rank;
}
__device__ __forceinline__ void announce_to_cluster() { asm volatile("barrier.cluster.arrive.relaxed;" ::: "memory"); }
__device__ __forceinline__ void arrive_cluster() { asm volatile("barrier.cluster.arrive.release;" ::: "memory"); }
__device__ __forceinline__ void wait_cluster() { asm volatile("barrier.cluster.wait.acquire;" ::: "memory"); }
// Writes to the same variable of another block.
__device__ __forceinline__ void store_remote(float* variable, unsigned block, float value) {
  unsigned address = __cvta_generic_to_shared(variable);
  asm volatile("mapa.shared::cluster.u32 %0, %0, %1;\n st.shared::cluster.f32 [%0], %2;" : "+r"(address) : "r"(block), "f"(value) : "memory");
}
__device__ __forceinline__ void store_remote(double* variable, unsigned block, double value) {
  unsigned address = __cvta_generic_to_shared(variable);
  asm volatile("mapa.shared::cluster.u32 %0, %0, %1;\n st.shared::cluster.f64 [%0], %2;" : "+r"(address) : "r"(block), "d"(value) : "memory");
}
#else
__device__ __forceinline__ unsigned rank_in_cluster() { return 0; }
__device__ __forceinline__ void announce_to_cluster() {}
__device__ __forceinline__ void arrive_cluster() {}
__device__ __forceinline__ void wait_cluster() { __syncthreads(); }
__device__ __forceinline__ void store_remote(COMPUTE* variable, unsigned, COMPUTE value) { *variable = value; }
#endif

// Merges the statistics of the blocks of a cluster: every block tells all others its own. The threads of all blocks
// have arrived once before (a block must run before its memory is written).
template <class Rule>
__device__ __forceinline__ void merge_cluster(const Rule& rule, typename Rule::Statistic& line) {
  constexpr int NUMBERS = sizeof(line) / sizeof(COMPUTE);
  __shared__ COMPUTE totals[CLUSTER][NUMBERS];
  union Words { typename Rule::Statistic statistic; COMPUTE number[NUMBERS]; };
  Words total{line};
  wait_cluster();
  if (threadIdx.x < CLUSTER)
#pragma unroll
    for (int i = 0; i < NUMBERS; i++) store_remote(&totals[rank_in_cluster()][i], threadIdx.x, total.number[i]);
  arrive_cluster();
  wait_cluster();
#pragma unroll
  for (unsigned block = 0; block < CLUSTER; block++) {
#pragma unroll
    for (int i = 0; i < NUMBERS; i++) total.number[i] = totals[block][i];
    if (block == 0) line = total.statistic;
    else rule.merge(line, total.statistic);
  }
}

// --- a line ---

// By how many elements a pointer misses the alignment of a pack.
__device__ __forceinline__ unsigned misplaced(const ELEMENT* pointer) {
  return unsigned(reinterpret_cast<uintptr_t>(pointer) / sizeof(ELEMENT)) % WIDTH;
}

// The packs of one line (or of a pack of lines): `input` and `output` point to its first element.
template <int INPUTS, bool COLUMNS> struct Line {
  static constexpr unsigned STEP = COLUMNS ? 1 : WIDTH;
  const Arguments<INPUTS>& a;
  const ELEMENT* input[INPUTS];
  ELEMENT* output;
  unsigned width;          // columns: lines of the pack
  unsigned lead;           // by how many elements the packs start before the line, so that they are aligned
  unsigned packs;
  unsigned whole, beyond;  // packs whole..beyond-1 are single aligned accesses, pitch() elements apart, in all operands

  __device__ __forceinline__ Line(const Arguments<INPUTS>& arguments, unsigned index) : a(arguments) {
    long long offset[INPUTS + 1];
    width = a.lines.locate(index, offset);
    output = a.output + offset[INPUTS];
    lead = misplaced(output);
    bool whole_packs = WIDTH > 1 && a.along.outer_rank == 0 && stride(INPUTS) == 1 && pitch(INPUTS) % WIDTH == 0;
#pragma unroll
    for (int n = 0; n < INPUTS; n++) {
      input[n] = a.input[n] + offset[n];
      whole_packs &= misplaced(input[n]) == lead && stride(n) == 1 && pitch(n) % WIDTH == 0;
    }
    if (COLUMNS) whole_packs &= lead == 0 && width == WIDTH;
    if (COLUMNS || !whole_packs) lead = 0;
    packs = a.along.outer_rank == 0 ? (a.along.row + lead + STEP - 1) / STEP : a.along.packs;
    whole = lead != 0;
    beyond = whole_packs ? (a.along.row + lead) / STEP : 0;
  }
  // Elements between neighbours of a pack, and between packs.
  __device__ __forceinline__ long long stride(int operand) const {
    return COLUMNS ? a.lines.row_stride[operand] : a.along.row_stride[operand];
  }
  __device__ __forceinline__ long long pitch(int operand) const { return COLUMNS ? a.along.row_stride[operand] : WIDTH; }

  // Whether those of the packs first, first + size, ... of a thread that exist are whole.
  __device__ __forceinline__ bool are_whole(unsigned first, unsigned size) const {
    return first >= whole && (first + (HELD - 1) * size < beyond || packs == beyond);
  }
  // Offsets of a pack in every operand, and how many elements it has.
  __device__ __forceinline__ unsigned locate(unsigned pack, long long (&offset)[INPUTS + 1]) const {
    if (a.along.outer_rank != 0) {
      unsigned count = a.along.locate(pack, offset);
      return COLUMNS ? width : count;
    }
    unsigned first = pack * STEP, end = min(first + STEP - lead, a.along.row);
    first = first < lead ? 0 : first - lead;
#pragma unroll
    for (int n = 0; n <= INPUTS; n++) offset[n] = first * a.along.row_stride[n];
    return COLUMNS ? width : end - first;
  }
  // Reads the packs first, first + size, ... of a thread and returns how many there are.
  __device__ __forceinline__ unsigned read(unsigned first, unsigned size, ELEMENT neutral, Elements (&held)[INPUTS][HELD]) const {
    unsigned present = 0;
    if (are_whole(first, size)) {
#pragma unroll
      for (int k = 0; k < HELD; k++)
        if (first + k * size < packs) {
          present = k + 1;
#pragma unroll
          for (int n = 0; n < INPUTS; n++)
            held[n][k] = *reinterpret_cast<const Elements*>(input[n] - lead + (first + k * size) * pitch(n));
        }
    } else {
#pragma unroll
      for (int k = 0; k < HELD; k++)
        if (first + k * size < packs) {
          present = k + 1;
          long long offset[INPUTS + 1];
          unsigned count = locate(first + k * size, offset);
#pragma unroll
          for (int n = 0; n < INPUTS; n++) {
            held[n][k] = Elements{};
#pragma unroll
            for (int i = 0; i < WIDTH; i++)
              put(held[n][k], i, i < count ? input[n][offset[n] + i * stride(n)] : neutral);
          }
        }
    }
    return present;
  }
  // Writes a pack, blended with what is there; whole packs are those of are_whole.
  __device__ __forceinline__ void write(unsigned pack, bool is_whole, COMPUTE (&values)[WIDTH], COMPUTE beta) const {
    if (is_whole) {
      Elements* target = reinterpret_cast<Elements*>(output - lead + pack * pitch(INPUTS));
      if (beta != COMPUTE(0)) {
        Elements prior = *target;
#pragma unroll
        for (int i = 0; i < WIDTH; i++) values[i] += beta * at(prior, i);
      }
      *target = rounded(values);
    } else {
      long long offset[INPUTS + 1];
      unsigned count = locate(pack, offset);
      write_pack<WIDTH>(output + offset[INPUTS], stride(INPUTS), false, count, values, beta);
    }
  }
};

template <class Rule, Team TEAM>
__device__ __forceinline__ void softmax(const Arguments<Rule::INPUTS>& a) {
  constexpr int INPUTS = Rule::INPUTS;
  constexpr bool COLUMNS = TEAM == Team::columns;
  constexpr int LANES = COLUMNS ? WIDTH : 1;
  using Statistic = typename Rule::Statistic;
  const Rule rule{Algorithm(a.algorithm)};
  const COMPUTE alpha = a.alpha, beta = a.beta;
  const unsigned thread = threadIdx.x, threads = blockDim.x;

  unsigned index, rank, size;  // the line, this thread's number in its team and the size of that
  if (TEAM == Team::lanes) {
    index = (blockIdx.x * threads + thread) >> exponent_of(a.team), rank = thread & (a.team - 1), size = a.team;
  } else if (TEAM == Team::block) {
    index = blockIdx.x, rank = thread, size = threads;
  } else if (TEAM == Team::cluster) {
    index = blockIdx.x / CLUSTER, rank = rank_in_cluster() * threads + thread, size = threads * CLUSTER;
    announce_to_cluster();
  } else {
    index = blockIdx.x * a.team + (thread & (a.team - 1)), rank = thread >> exponent_of(a.team), size = threads >> exponent_of(a.team);
  }
  const Line<INPUTS, COLUMNS> line(a, min(index, a.lines.packs - 1));
  const unsigned packs = index < a.lines.packs ? line.packs : 0, round = size * HELD;
  Elements* cache = reinterpret_cast<Elements*>(shared_memory) + thread;

  Statistic statistic[LANES];
#pragma unroll
  for (int lane = 0; lane < LANES; lane++) statistic[lane] = rule.empty();
  Elements held[INPUTS][HELD];
  const ELEMENT neutral = Rule::neutral();
  // A round is HELD packs of every thread. They are read in the order 1, 2, ..., 0 and written in the reverse: the last
  // stays in registers (round 0, which is full), the first in shared memory, and what has to be read again is recent.
  const unsigned last = packs == 0 ? 0 : (packs - 1) / round;
  for (unsigned turn = 0; turn <= last; turn++) {
    unsigned present = line.read((turn < last ? turn + 1 : 0) * round + rank, size, neutral, held);
    rule.add(statistic, held, present);
    if (turn < min(last, a.cached))
#pragma unroll
      for (int k = 0; k < HELD; k++)
#pragma unroll
        for (int n = 0; n < INPUTS; n++) cache[((turn * HELD + k) * INPUTS + n) * threads] = held[n][k];
  }

  Statistic* partial = reinterpret_cast<Statistic*>(shared_memory + a.cached * HELD * INPUTS * threads * sizeof(Elements));
  if (TEAM == Team::lanes) merge_lanes(rule, statistic, 1, a.team);
  else merge_block(rule, statistic, COLUMNS ? a.team : 1, partial);
  if constexpr (TEAM == Team::cluster) merge_cluster(rule, statistic[0]);
#pragma unroll
  for (int lane = 0; lane < LANES; lane++) rule.finish(statistic[lane]);

  for (unsigned turn = last + 1; turn-- > 0;) {
    const unsigned first = (turn < last ? turn + 1 : 0) * round + rank;
    if (turn < min(last, a.cached)) {
#pragma unroll
      for (int k = 0; k < HELD; k++)
#pragma unroll
        for (int n = 0; n < INPUTS; n++) held[n][k] = cache[((turn * HELD + k) * INPUTS + n) * threads];
    } else if (turn < last) {
      line.read(first, size, neutral, held);
    }
    const bool whole = line.are_whole(first, size);
#pragma unroll
    for (int k = 0; k < HELD; k++)
      if (first + k * size < packs) {
        Elements elements[INPUTS];
#pragma unroll
        for (int n = 0; n < INPUTS; n++) elements[n] = held[n][k];
        COMPUTE result[WIDTH];
#pragma unroll
        for (int i = 0; i < WIDTH; i++) result[i] = alpha * rule.result(statistic[i % LANES], elements, i);
        line.write(first + k * size, whole, result, beta);
      }
  }
}

extern "C" __global__ void __launch_bounds__(256, 3) softmax_forward_lanes(const Arguments<1> a) { softmax<Forward, Team::lanes>(a); }
extern "C" __global__ void __launch_bounds__(256, 3) softmax_forward_block(const Arguments<1> a) { softmax<Forward, Team::block>(a); }
extern "C" __global__ void BLOCKS_OF_A_CLUSTER __launch_bounds__(1024) softmax_forward_cluster(const Arguments<1> a) {
  softmax<Forward, Team::cluster>(a);
}
extern "C" __global__ void __launch_bounds__(512, 1) softmax_forward_columns(const Arguments<1> a) { softmax<Forward, Team::columns>(a); }

extern "C" __global__ void __launch_bounds__(256, 2) softmax_backward_lanes(const Arguments<2> a) { softmax<Backward, Team::lanes>(a); }
extern "C" __global__ void __launch_bounds__(256, 2) softmax_backward_block(const Arguments<2> a) { softmax<Backward, Team::block>(a); }
extern "C" __global__ void BLOCKS_OF_A_CLUSTER __launch_bounds__(512, 1) softmax_backward_cluster(const Arguments<2> a) {
  softmax<Backward, Team::cluster>(a);
}
extern "C" __global__ void __launch_bounds__(512, 1) softmax_backward_columns(const Arguments<2> a) { softmax<Backward, Team::columns>(a); }
