// These kernels compute softmax of any rows, forward (3.2.96) and backward (4.1.19), through shared memory.
//
// Some lanes of a warp, a block or a cluster share a row ("rows"). Or a block or cluster shares vectors of neighbouring
// strided rows ("strided"). Vectors have 16 bytes, or one element for unaligned rows. Each thread copies its vectors to
// its own part of shared memory, many in flight at once (cp.async). It adds them to its online-softmax state, merges
// the state with its team, computes and writes. Data that exceed shared memory are read again, the last ones first,
// while L2 has them.
//
// Roofline: bytes. Forward moves 2 elements and backward 3, with about 12 and 10 flops per element. At 4.2 TB/s a float
// costs 1.9 ps forward, and the arithmetic 0.4 ps on 132 SMs. On an H200, 31x67x37x41 float forward takes 10.6 us,
// which is 56 % of a copy's throughput. See docs/performance/softmax.md.
#include "softmax/vectors.cuh"

// Float gradients of many single elements take 1.2 times as long if blocks of the next kernel run with them (H200).
// Other calls gain from such blocks.
template <class Rule> constexpr bool SLOW_BESIDE = Rule::INPUTS == 2 && sizeof(ELEMENT) >= 4;
constexpr unsigned MANY_BESIDE = 1024;  // blocks above which such kernels launch no dependents early

template <class Rule, template <class, bool> class Row, bool STRIDED, bool CLUSTERED>
__device__ __forceinline__ void softmax(const Arguments<Rule::INPUTS>& a) {
  using Access = typename Row<Rule, STRIDED>::Access;
  constexpr int INPUTS = Rule::INPUTS, HELD = Row<Rule, STRIDED>::HELD, ROWS = Row<Rule, STRIDED>::ROWS;
  constexpr int VALUES = HELD * sizeof(Access) / sizeof(ELEMENT);
  const Rule rule{Algorithm(a.algorithm), a.alpha};
  const unsigned thread = threadIdx.x, threads = blockDim.x;
  if (CLUSTERED) cluster_arrive_relaxed();

  // These are the index of the row, this thread's rank in its team, and the team's size.
  const unsigned block = CLUSTERED ? blockIdx.x / CLUSTER_SIZE : blockIdx.x, log_team = exponent_of(a.team);
  unsigned index, rank, size;
  if (STRIDED)
    index = (block << log_team) + (thread & (a.team - 1)), rank = thread >> log_team, size = threads >> log_team;
  else index = CLUSTERED ? block : (block * threads + thread) >> log_team, rank = thread & (a.team - 1), size = a.team;
  if (CLUSTERED) rank += cluster_rank() * size, size *= CLUSTER_SIZE;
  const Row<Rule, STRIDED> row(a, min(index, a.rows.vectors - 1));
  const unsigned vectors = index < a.rows.vectors ? row.vectors : 0;
  // Prefetching gradients, or more than one group, gains nothing.
  if constexpr (CLUSTERED && !STRIDED && INPUTS == 1 && sizeof(Access) > sizeof(ELEMENT)) row.prefetch(rank, size);
  if constexpr (STRIDED)
    griddepcontrol_wait_before_access(a.input[0]);  // Exact addresses would cost registers, and a block of occupancy.
  else griddepcontrol_wait_before_access(row.input[0], row.output);

  // Shared memory keeps all groups of this thread, or the first ones and a ring of DEPTH others.
  const unsigned round = size * HELD, groups = vectors == 0 ? 0 : ((vectors - 1) >> exponent_of(round)) + 1;
  const unsigned fixed = groups <= a.kept ? groups : a.kept - DEPTH, pitch = threads;
  Access* buffer = reinterpret_cast<Access*>(shared_memory) + thread;
  auto address = [=](unsigned group) {
    return buffer + (group < fixed ? group : fixed + (group - fixed) % DEPTH) * (HELD * INPUTS * pitch);
  };

  OnlineState state[ROWS];
#pragma unroll
  for (int r = 0; r < ROWS; r++) state[r] = rule.empty();
#pragma unroll 1
  for (unsigned step = 0; step < groups + DEPTH; step++) {
    if (step >= DEPTH) {
      COMPUTE values[INPUTS][VALUES];
      const unsigned group = step - DEPTH;
      cp_async_wait<DEPTH - 1>();
      row.take(group * round + rank, size, address(group), pitch, values);
      rule.add(state, values);
    }
    if (step < groups) row.load_async(step * round + rank, size, address(step), pitch);
    cp_async_commit();
  }
  // Kernels of single elements do so only in grids of medium size; gradients would take five more registers and 13 %
  // longer.
  if (STRIDED || sizeof(Access) > sizeof(ELEMENT)) griddepcontrol_launch_dependents();
  else if (!SLOW_BESIDE<Rule> || grid_blocks() <= MANY_BESIDE) griddepcontrol_launch_dependents_medium_grid();

  OnlineState* parts =
      reinterpret_cast<OnlineState*>(shared_memory + a.kept * HELD * INPUTS * threads * sizeof(Access));
  if constexpr (STRIDED) merge_strided_rows<CLUSTERED>(rule, state, a.team, parts);
  else merge_rows<CLUSTERED>(rule, state, a.team, parts);

#pragma unroll 1
  for (unsigned group = groups; group-- > 0;) {
    cp_async_wait<DEPTH - 1>();
    row.write(rule, state, group * round + rank, size, address(group), pitch);
    if (group >= fixed + DEPTH) row.load_async((group - DEPTH) * round + rank, size, address(group), pitch);
    cp_async_commit();
  }
}

// These are the numbers of blocks per SM that the registers must allow.
constexpr bool DOUBLE = sizeof(COMPUTE) == 8;
constexpr int ROW_BLOCKS = DOUBLE ? 1 : 2;
constexpr int STRIDED_BLOCKS = DOUBLE ? 1 : 4;

#define SOFTMAX_STAGED(direction, kind, rule, row)                                             \
  extern "C" __global__ void __launch_bounds__(512, ROW_BLOCKS)                                \
      softmax_staged_##direction##_##kind##_rows(const Arguments<rule::INPUTS> a) {            \
    griddepcontrol_wait_deferred();                                                            \
    softmax<rule, row, false, false>(a);                                                       \
  }                                                                                            \
  extern "C" __global__ void CLUSTER_DIMS_X __launch_bounds__(512, ROW_BLOCKS)                 \
      softmax_staged_##direction##_##kind##_rows_cluster(const Arguments<rule::INPUTS> a) {    \
    griddepcontrol_wait_deferred();                                                            \
    softmax<rule, row, false, true>(a);                                                        \
  }                                                                                            \
  extern "C" __global__ void __launch_bounds__(256, STRIDED_BLOCKS)                            \
      softmax_staged_##direction##_##kind##_strided(const Arguments<rule::INPUTS> a) {         \
    griddepcontrol_wait_deferred();                                                            \
    softmax<rule, row, true, false>(a);                                                        \
  }                                                                                            \
  extern "C" __global__ void CLUSTER_DIMS_X __launch_bounds__(256, STRIDED_BLOCKS)             \
      softmax_staged_##direction##_##kind##_strided_cluster(const Arguments<rule::INPUTS> a) { \
    griddepcontrol_wait_deferred();                                                            \
    softmax<rule, row, true, true>(a);                                                         \
  }

SOFTMAX_STAGED(forward, vector, Forward, VectorRow)
SOFTMAX_STAGED(forward, scalar, Forward, ScalarRow)
SOFTMAX_STAGED(backward, vector, Backward, VectorRow)
SOFTMAX_STAGED(backward, scalar, Backward, ScalarRow)
