// Softmax over columns that all multiprocessors together hold, forward (3.2.96) and backward (4.1.19): thousands of positions of few lines.
//
// There is one persistent block per SM. Groups of blocks (`team`) take bundles of neighbouring lines, `across` packs side by side. Each
// block has `part` rows of a bundle, every thread packs of its own: `kept` groups of them in shared memory, the last ones in registers. They
// are asked for some at a time, take part in the statistics as they arrive, and the group agrees once: every block publishes what it has of
// each line and reads what the others have. As results are written, the next bundle's rows are asked for in their places.
//
// All blocks run at the same time (the launch is cooperative), so that none waits for one that does not run. Each takes half of the shared memory of
// its multiprocessor or more, so the board through which they agree belongs to one launch at a time, whatever stream it is in.
//
// Floor: bytes, as in softmax/staged.cu, and each moves once. What limits (H200, 4 x 32000 x 8 x 8 float forward, 22.2 us where a copy takes 15.4; clocks
// read in the kernel when it took 24.3): 8.5 to 12 us of reads, at the memory's pace because the cache writes meanwhile what the launch before has left in
// it; 1 us in which a block merges, 3 until the slowest of the group was heard of; 6.6 us of writes at the cache's pace, in which memory idles half
// the time. With everything asked for at once it took 23.0, and 23.2 where boards do not stay in the cache. Groups that begin in turns take 22.5 to 22.8 us instead
// of 24, with turns half or twice as long, or twice as many, 23.3 to 26. Rows of 64 or 256 bytes side by side: 10 % longer; results that leave the cache first, 4 %.
// Columns whose rows follow each other take less time in a stream (softmax/persistent_tma_strided.cu), but for gradients of halves (18.1 us there, 16.6 here). Clusters of 16 blocks
// would agree within 1 us, but only 7 are there at a time. Halves forward: 15.0 us instead of 16.5 where the algorithm is known, and registers suffice.
#include "softmax/grid_exchange.cuh"

// As in softmax_streams.py
constexpr unsigned HELD_THREADS = 512, MOST_HELD_GROUPS = 6;
constexpr int GROUP_PACKS = 4, REGISTER_GROUPS = 2;
constexpr unsigned ASKED_GROUPS = 3;  // of the first bundle, that are in flight at once
constexpr unsigned TURNS = 4, TURN_CYCLES = 3500;  // groups that begin one after the other, so long apart

// A block publishes its next part when it has seen the last one of all, so that two places suffice. Numbers are those of rounds, of all
// launches ever.
struct HeldBoard {
  Slot parts[2][MOST_BLOCKS][MOST_COLUMNS];
  unsigned long long arrivals, departures;  // of blocks, of all launches ever
};
__device__ HeldBoard board_of_held;

// A counter, in no order: who finds that it is high enough needs none.
#ifdef EMULATED_CUDA
inline unsigned long long loosely(const unsigned long long* counter) { return *counter; }
#else
__device__ __forceinline__ unsigned long long loosely(const unsigned long long* counter) {
  unsigned long long value;
  asm volatile("ld.relaxed.gpu.global.u64 %0, [%1];" : "=l"(value) : "l"(counter) : "memory");
  return value;
}
#endif

template <class Rule> struct HeldColumns {
  static constexpr int INPUTS = Rule::INPUTS, ROWS = GROUP_PACKS / INPUTS, LANES = WIDTH;  // rows of a thread in a group
  static constexpr unsigned THREADS = HELD_THREADS, WARPS = THREADS / 32;
  using Place = Elements<WIDTH>;
  using Held = Pack<unsigned, 4>;

  const Arguments<INPUTS>& a;
  const Rule rule;
  const unsigned log_across, column, size;       // pack of the thread in a row; rows of the block at a time
  const unsigned group, groups, member;          // of blocks
  const unsigned begin, count;                   // rows of the block: from there on, so many from the thread's first on
  Held* const places;
  Statistic *const parts, *const lines;          // of warps, of lines
  Held in_registers[REGISTER_GROUPS][ROWS][INPUTS];

  __device__ __forceinline__ HeldColumns(const Arguments<INPUTS>& arguments)
      : a(arguments), rule{Algorithm(ALGORITHM), a.alpha}, log_across(exponent_of(a.across)), column(threadIdx.x & (a.across - 1)),
        size(THREADS >> log_across), group(blockIdx.x / a.team), groups(gridDim.x / a.team), member(blockIdx.x - group * a.team),
        begin(member * a.part + (threadIdx.x >> log_across)), count(group < groups ? below(begin, min((member + 1) * a.part, a.along.row)) : 0),
        places(reinterpret_cast<Held*>(shared_memory) + threadIdx.x),
        parts(reinterpret_cast<Statistic*>(shared_memory + a.kept * GROUP_PACKS * THREADS * sizeof(Held))), lines(parts + WARPS * a.across * LANES) {}
  static __device__ __forceinline__ unsigned below(unsigned first, unsigned end) { return end > first ? end - first : 0; }

  // Where the thread's first row of a bundle lies.
  struct Bundle { unsigned offset[INPUTS + 1]; };
  __device__ __forceinline__ Bundle bundle(unsigned index) const {
    Bundle result;
    a.lines.locate((index << log_across) + column, result.offset);
#pragma unroll
    for (int n = 0; n <= INPUTS; n++) result.offset[n] += begin * unsigned(a.along.row_stride[n]);
    return result;
  }
  __device__ __forceinline__ unsigned row(unsigned g, int k) const { return (g * ROWS + k) * size; }
  __device__ __forceinline__ bool exists(unsigned g, int k) const { return row(g, k) < count; }
  __device__ __forceinline__ Held* place(unsigned g, int k, int n) const { return places + ((g * ROWS + k) * INPUTS + n) * THREADS; }
  __device__ __forceinline__ const Held* source(const Bundle& bundle, unsigned g, int k, int n) const {
    return reinterpret_cast<const Held*>(a.input[n] + bundle.offset[n] + row(g, k) * unsigned(a.along.row_stride[n]));
  }
  __device__ __forceinline__ void fetch(const Bundle& bundle, unsigned g) const {
#pragma unroll
    for (int k = 0; k < ROWS; k++)
      if (exists(g, k))
#pragma unroll
        for (int n = 0; n < INPUTS; n++) copy(place(g, k, n), source(bundle, g, k, n));
  }
  // Asks L2 for the first group, before the wait (primitives/dependent_launch.cuh).
  __device__ __forceinline__ void ask_ahead(const Bundle& bundle) const {
#pragma unroll
    for (int k = 0; k < ROWS; k++)
#pragma unroll
      for (int n = 0; n < INPUTS; n++)
        if (exists(0, k)) prefetch_l2(source(bundle, 0, k, n));
  }
  // Groups begin in turns, so that some read while others agree or write: 2 to 4 % less; of tensors that the cache keeps, 5 % longer.
  __device__ __forceinline__ void wait_for_turn() const {
#ifndef EMULATED_CUDA
    if constexpr (PASSING)
      for (const long long begin = clock64(); clock64() - begin < group % TURNS * TURN_CYCLES;) {}
#endif
  }
  __device__ __forceinline__ void fetch_into_registers(const Bundle& bundle, int i) {
#pragma unroll
    for (int k = 0; k < ROWS; k++)
      if (exists(a.kept + i, k))
#pragma unroll
        for (int n = 0; n < INPUTS; n++) in_registers[i][k][n] = read_passing(source(bundle, a.kept + i, k, n));
  }
  __device__ __forceinline__ void take(unsigned g, Held (&held)[ROWS][INPUTS]) const {
#pragma unroll
    for (int k = 0; k < ROWS; k++)
#pragma unroll
      for (int n = 0; n < INPUTS; n++) held[k][n] = *place(g, k, n);
  }

  __device__ __forceinline__ void add(Statistic (&statistic)[LANES], unsigned g, const Held (&held)[ROWS][INPUTS]) const {
    COMPUTE values[INPUTS][ROWS * WIDTH];
#pragma unroll
    for (int k = 0; k < ROWS; k++)
#pragma unroll
      for (int n = 0; n < INPUTS; n++) {
        unpack(reinterpret_cast<const Place*>(&held[k][n]), &values[n][k * WIDTH]);
        if (!exists(g, k))
#pragma unroll
          for (int i = 0; i < WIDTH; i++) values[n][k * WIDTH + i] = Rule::neutral();
      }
    rule.add(statistic, values);
  }
  // Asks for group number G of a bundle, wherever it is held.
  template <unsigned G> __device__ __forceinline__ void ask_for(const Bundle& bundle) {
    if (G < a.kept) fetch(bundle, G);
#pragma unroll
    for (int i = 0; i < REGISTER_GROUPS; i++)
      if (G == a.kept + i) fetch_into_registers(bundle, i);
    commit();
  }
  // The groups in shared memory from number G on, as they arrive. FIRST: of the first bundle; for each that is there another one is asked for.
  template <unsigned G, bool FIRST> __device__ __forceinline__ void add_as_they_arrive(Statistic (&statistic)[LANES], const Bundle& bundle) {
    if constexpr (G < MOST_HELD_GROUPS) {
      arrived<FIRST ? ASKED_GROUPS - 1 : MOST_HELD_GROUPS - 1 - G>();
      if (G < a.kept && exists(G, 0)) {
        Held held[ROWS][INPUTS];
        take(G, held);
        add(statistic, G, held);
      }
      if constexpr (FIRST && G + ASKED_GROUPS < MOST_HELD_GROUPS + REGISTER_GROUPS) ask_for<G + ASKED_GROUPS>(bundle);
      else if constexpr (FIRST) commit();
      add_as_they_arrive<G + 1, FIRST>(statistic, bundle);
    }
  }
  template <unsigned G> __device__ __forceinline__ void ask_for_first(const Bundle& bundle) {
    if constexpr (G < ASKED_GROUPS) ask_for<G>(bundle), ask_for_first<G + 1>(bundle);
  }
  // The group's statistics of the lines of the thread.
  __device__ __forceinline__ void agree(Statistic (&statistic)[LANES], unsigned number) const {
    const unsigned columns = a.across * LANES, each = min(THREADS / columns, 32u), log_each = exponent_of(each);  // threads of a line
    merge_lanes(rule, statistic, a.across, 32);
    if ((threadIdx.x & 31) < a.across)
#pragma unroll
      for (int lane = 0; lane < LANES; lane++) parts[(threadIdx.x >> 5) * columns + column * LANES + lane] = statistic[lane];
    __syncthreads();
    const unsigned line = threadIdx.x >> log_each, rank = threadIdx.x & (each - 1);
    if (line < columns) {
      constexpr int MOST = 2;
      Statistic total[1] = {rule.empty()}, part[MOST];
      for (unsigned j = rank; j < WARPS; j += each * MOST) {
#pragma unroll
        for (int i = 0; i < MOST; i++) part[i] = j + i * each < WARPS ? parts[(j + i * each) * columns + line] : rule.empty();
        merge(rule, total[0], part);
      }
      merge_lanes(rule, total, 1, each);
      if (rank == 0) write_slot(&board_of_held.parts[number & 1][blockIdx.x][line], to_slot(total[0], number));
      total[0] = rule.empty();
#pragma unroll 1
      for (unsigned block = rank; block < a.team; block += each * BATCH) {
        Slot slot[BATCH];
        read_complete(slot, block, each, a.team, number, [&](unsigned block) { return &board_of_held.parts[number & 1][blockIdx.x - member + block][line]; });
        Statistic of_block[BATCH];
#pragma unroll
        for (int j = 0; j < BATCH; j++) of_block[j] = block + each * j < a.team ? from_slot(slot[j]) : rule.empty();
        merge(rule, total[0], of_block);
      }
      __syncwarp();
      merge_lanes(rule, total, 1, each);
      rule.finish(total[0]);
      if (rank == 0) lines[line] = total[0];
    }
    __syncthreads();
#pragma unroll
    for (int lane = 0; lane < LANES; lane++) statistic[lane] = lines[column * LANES + lane];
  }

  __device__ __forceinline__ void write(const Statistic (&line)[LANES], const Bundle& bundle, unsigned g, const Held (&held)[ROWS][INPUTS]) const {
#pragma unroll
    for (int k = 0; k < ROWS; k++) {
      if (!exists(g, k)) continue;
      COMPUTE values[INPUTS][WIDTH], result[WIDTH];
#pragma unroll
      for (int n = 0; n < INPUTS; n++) unpack(reinterpret_cast<const Place*>(&held[k][n]), values[n]);
      rule.results(line, values, result);
      Held* const target = reinterpret_cast<Held*>(a.output + bundle.offset[INPUTS] + row(g, k) * unsigned(a.along.row_stride[INPUTS]));
      if (a.beta != COMPUTE(0)) {
        COMPUTE prior[WIDTH];
        unpack(reinterpret_cast<const Place*>(target), prior);
#pragma unroll
        for (int i = 0; i < WIDTH; i++) result[i] += a.beta * prior[i];
      }
      pack(result, reinterpret_cast<Place*>(target));
    }
  }

  __device__ __forceinline__ void run() {
    const unsigned all = a.lines.packs >> log_across, rounds = group < groups && group < all ? (all - group - 1) / groups + 1 : 0;
    unsigned* const number_at = reinterpret_cast<unsigned*>(lines + a.across * LANES);
    Bundle now = bundle(group);
    if (rounds > 0) ask_ahead(now);
    griddepcontrol_wait_before_access(a.input[0] + now.offset[0], a.output);
    // The number of the launch, and how many blocks have left the board, are not needed before all has arrived.
    unsigned long long launch = 0, left = 0;
    if (threadIdx.x == 0) launch = atomicAdd(&board_of_held.arrivals, 1ull), left = loosely(&board_of_held.departures);
    wait_for_turn();
    if (rounds > 0) ask_for_first<0>(now);
    griddepcontrol_launch_dependents();

#pragma unroll 1
    for (unsigned round = 0; round < rounds; round++) {
      Statistic statistic[LANES];
#pragma unroll
      for (int lane = 0; lane < LANES; lane++) statistic[lane] = rule.empty();
      if (round == 0) add_as_they_arrive<0, true>(statistic, now);
      else add_as_they_arrive<0, false>(statistic, now);
#pragma unroll
      for (int i = 0; i < REGISTER_GROUPS; i++)
        if (exists(a.kept + i, 0)) add(statistic, a.kept + i, in_registers[i]);
      if (round == 0) {
        if (threadIdx.x == 0) {
          launch /= gridDim.x;
          while (left < launch * gridDim.x) left = count_of(&board_of_held.departures);  // those of earlier launches
          *number_at = unsigned(launch) * MOST_ROUNDS + 1;
        }
        __syncthreads();
      }
      agree(statistic, *number_at + round);
      const bool more = round + 1 < rounds;
      const Bundle next = more ? bundle(group + (round + 1) * groups) : now;
#pragma unroll 1
      for (unsigned g = 0; g < MOST_HELD_GROUPS; g++) {
        if (g < a.kept && exists(g, 0)) {
          Held held[ROWS][INPUTS];
          take(g, held);
          write(statistic, now, g, held);
          if (more) fetch(next, g);
        }
        commit();
      }
#pragma unroll
      for (int i = 0; i < REGISTER_GROUPS; i++) {
        write(statistic, now, a.kept + i, in_registers[i]);
        if (more) fetch_into_registers(next, i);
      }
      now = next;
    }
    // The next launch may have the board. It counts arrivals from where those of this one have ended.
    if (threadIdx.x == 0) {
      if (rounds == 0) launch /= gridDim.x;
      while (count_of(&board_of_held.arrivals) < (launch + 1) * gridDim.x) {}
      __threadfence();
      atomicAdd(&board_of_held.departures, 1ull);
    }
  }
};

#define SOFTMAX_HELD_COLUMNS(name, rule)                                                                \
  extern "C" __global__ void __launch_bounds__(HELD_THREADS, 1) name(const Arguments<rule::INPUTS> a) { \
    griddepcontrol_wait_deferred();                                                                        \
    HeldColumns<rule>(a).run();                                                                         \
  }

SOFTMAX_HELD_COLUMNS(softmax_forward_held_columns, Forward)
SOFTMAX_HELD_COLUMNS(softmax_backward_held_columns, Backward)
