// Softmax over long lines, forward (3.2.96) and backward (4.1.19), in a stream: reads, agreements and writes overlap.
//
// There is one block a multiprocessor. Groups of blocks (`team`) share the lines: a group takes every `groups`-th, and each
// of its blocks one chunk of it. The workers of a block walk its tiles, `steps` of each chunk, chunk after chunk: a tile is
// read DEPTH steps ahead into a ring in shared memory, takes part in the statistic of its line, and is written from there
// `delay` steps later. In between, the other warps agree with those of the other blocks: one publishes the block's part of
// the statistic, the others wait for the parts of all blocks, which all of them merge in the same order.
//
// All blocks run at the same time (the launch is cooperative), so that none waits for one that does not run. They run alone:
// each takes most of the shared memory of its multiprocessor. So the slots below, through which blocks agree, belong to
// one launch at a time, whatever stream it is in.
//
// Floor: bytes, as in softmax.cu, and each moves once. What limits: the first chunk is read before anything is written, the
// last is written after everything is read, and lines of more than the shared memory of all multiprocessors do not fit.
#include "softmax.cuh"
#include "tensor_maps.cuh"

// As in softmax.py
constexpr int STREAM_PACKS = 2;                        // that a worker takes in a step, of all inputs together
constexpr int LONG_AHEAD = 4, SHORT_AHEAD = 2;          // tiles on their way: `ahead` is one of these
constexpr unsigned COLLECTORS = 3, HELPERS = 1 + COLLECTORS;  // warps
constexpr unsigned OPEN = 16;          // most lines of a block between the last read and the first write

// A statistic on its way to other blocks. Each 32 bits come with the number of the line (within the launch, from 1 on) in
// one access of 8 bytes: who finds the number has the value.
constexpr int WORDS = sizeof(Statistic) / sizeof(unsigned);
struct alignas(16) Slot { unsigned long long word[WORDS]; };

// A block publishes line i + SLOTS when all blocks have read line i: it has then written line i + SLOTS - OPEN, for which
// all blocks had published that, so that they had written line i + SLOTS - 2 * OPEN.
constexpr unsigned SLOTS = 64, MOST_BLOCKS = 512;
static_assert(SLOTS > 2 * OPEN);

// Launches take the halves in turns, and each leaves the other one cleared. All zero at first.
__device__ Slot slots[2][SLOTS][MOST_BLOCKS];
__device__ unsigned long long arrivals, departures;  // of blocks, of all launches ever

#ifdef EMULATED_CUDA
inline void write_slot(Slot* slot, Slot value) { *slot = value; }
inline Slot read_slot(const Slot* slot) { return *slot; }
inline unsigned long long count_of(const unsigned long long* counter) { return *counter; }
#else
__device__ __forceinline__ void write_slot(Slot* slot, const Slot& value) {
#pragma unroll
  for (int i = 0; i < WORDS; i += 2)
    asm volatile("st.relaxed.gpu.global.v2.u64 [%0], {%1, %2};" ::"l"(&slot->word[i]), "l"(value.word[i]), "l"(value.word[i + 1]) : "memory");
}
__device__ __forceinline__ Slot read_slot(const Slot* slot) {
  Slot value;
#pragma unroll
  for (int i = 0; i < WORDS; i += 2)
    asm volatile("ld.relaxed.gpu.global.v2.u64 {%0, %1}, [%2];" : "=l"(value.word[i]), "=l"(value.word[i + 1]) : "l"(&slot->word[i]) : "memory");
  return value;
}
__device__ __forceinline__ unsigned long long count_of(const unsigned long long* counter) {
  unsigned long long value;
  asm volatile("ld.acquire.gpu.global.u64 %0, [%1];" : "=l"(value) : "l"(counter) : "memory");
  return value;
}
#endif

union StatisticWords {
  unsigned word[WORDS];
  Statistic statistic;
  __device__ __forceinline__ StatisticWords() {}
};
__device__ __forceinline__ Slot to_slot(Statistic statistic, unsigned number) {
  StatisticWords words;
  words.statistic = statistic;
  Slot slot;
#pragma unroll
  for (int i = 0; i < WORDS; i++) slot.word[i] = static_cast<unsigned long long>(number) << 32 | words.word[i];
  return slot;
}
__device__ __forceinline__ bool holds(const Slot& slot, unsigned number) {
  bool all = true;
#pragma unroll
  for (int i = 0; i < WORDS; i++) all = all && slot.word[i] >> 32 == number;
  return all;
}
__device__ __forceinline__ Statistic from_slot(const Slot& slot) {
  StatisticWords words;
#pragma unroll
  for (int i = 0; i < WORDS; i++) words.word[i] = static_cast<unsigned>(slot.word[i]);
  return words.statistic;
}

// What the warps of a block share; line i of the block is at i modulo the size. The parts of workers lie behind it.
struct Exchange {
  Statistic line[OPEN];
  Barrier reduced[2], published[OPEN], agreed[OPEN], opened;
  unsigned long long launch;
  __device__ __forceinline__ Statistic* parts(unsigned i, unsigned workers) { return reinterpret_cast<Statistic*>(this + 1) + i % 2 * workers; }
};
static_assert(sizeof(Exchange) % alignof(Statistic) == 0);
template <int SIZE> __device__ __forceinline__ int phase(unsigned i) { return i / SIZE & 1; }

template <class Rule> __device__ __forceinline__ void merge(const Rule& rule, Statistic& total, Statistic part) {
  if (rule.has_top()) {
    const COMPUTE top = max(total.top, part.top);
    rule.raise(total, top);
    rule.raise(part, top);
  }
  total.sum += part.sum;
}

template <class Rule> struct Stream {
  static constexpr int INPUTS = Rule::INPUTS, HELD = STREAM_PACKS / INPUTS;
  using Line = WidePacks<Rule, false, HELD>;
  using Place = typename Line::Place;

  const Arguments<INPUTS>& a;
  const Rule rule;
  Exchange& exchange;
  unsigned workers;                // threads
  unsigned group, groups, member;  // of the group; a block without one has no lines
  unsigned lines;                  // of the group

  __device__ __forceinline__ Line line(unsigned i) const { return Line(a, group + i * groups, (member + 1) * a.chunk); }

  // Workers. Every thread reads and writes only places of its own, those of the tiles in turns.
  __device__ __forceinline__ void work() const {
    constexpr int VALUES = HELD * WIDTH;
    const unsigned round = workers * HELD, tiles = lines * a.steps, first = member * a.chunk + threadIdx.x;
    const unsigned tile_places = HELD * INPUTS * workers;
    Place* const places = reinterpret_cast<Place*>(shared_memory) + threadIdx.x;
    struct Cursor {
      unsigned line = 0, step = 0, tile = 0;
      __device__ __forceinline__ void advance(const Arguments<INPUTS>& a) {
        if (++step == a.steps) step = 0, line++;
        if (++tile == a.kept) tile = 0;
      }
    } read, reduced, written;

    Line reading = line(0), writing = reading;
    auto fetch = [&](unsigned tile) {
      if (tile < tiles) {
        if (read.step == 0) reading = line(read.line);
        reading.fetch(first + read.step * round, workers, places + read.tile * tile_places, workers);
        read.advance(a);
      }
      commit();
    };
#pragma unroll 1
    for (unsigned tile = 0; tile < a.ahead; tile++) fetch(tile);

    Statistic statistic[1] = {rule.empty()}, agreed[1];
#pragma unroll 1
    for (unsigned step = 0; step < tiles + a.delay; step++) {
      if (step < tiles) {
        COMPUTE values[INPUTS][VALUES];
        if (a.ahead == LONG_AHEAD) arrived<LONG_AHEAD - 1>();
        else arrived<SHORT_AHEAD - 1>();
        reading.take(0, 0, places + reduced.tile * tile_places, workers, values);
        rule.add(statistic, values);
        if (reduced.step == a.steps - 1) {
          if (reduced.line >= 2) barrier_wait(&exchange.published[(reduced.line - 2) % OPEN], phase<OPEN>(reduced.line - 2));
          exchange.parts(reduced.line, workers)[threadIdx.x] = statistic[0];
          __syncwarp();
          if ((threadIdx.x & 31) == 0) barrier_arrive(&exchange.reduced[reduced.line % 2]);
          statistic[0] = rule.empty();
        }
        reduced.advance(a);
      }
      if (step >= a.delay) {
        if (written.step == 0) {
          const unsigned at = written.line % OPEN;
          writing = line(written.line);
          barrier_wait(&exchange.agreed[at], phase<OPEN>(written.line));
          agreed[0] = exchange.line[at];
        }
        writing.write(rule, agreed, first + written.step * round, workers, places + written.tile * tile_places, workers);
        written.advance(a);
      }
      fetch(step + a.ahead);
    }
  }

  // A warp: the block's part of every line.
  __device__ __forceinline__ void publish() const {
    const unsigned lane = threadIdx.x & 31;
    if (lane == 0) {
      // Blocks of earlier launches have left the slots.
      const unsigned long long launch = atomicAdd(&arrivals, 1ull) / gridDim.x;
      while (count_of(&departures) < launch * gridDim.x) {}
      exchange.launch = launch;
      barrier_arrive(&exchange.opened);
    }
    barrier_wait(&exchange.opened, 0);
    const unsigned half = exchange.launch & 1;
#pragma unroll 1
    for (unsigned i = lane; i < SLOTS; i += 32) write_slot(&slots[half ^ 1][i][blockIdx.x], Slot{});
#pragma unroll 1
    for (unsigned i = 0; i < lines; i++) {
      const Statistic* part = exchange.parts(i, workers);
      barrier_wait(&exchange.reduced[i % 2], phase<2>(i));
      Statistic total[1] = {part[lane]};
#pragma unroll 4
      for (unsigned worker = lane + 32; worker < workers; worker += 32) merge(rule, total[0], part[worker]);
      merge_lanes(rule, total, 1, 32);
      if (lane == 0) {
        write_slot(&slots[half][i % SLOTS][blockIdx.x], to_slot(total[0], i + 1));
        barrier_arrive(&exchange.published[i % OPEN]);
      }
    }
  }

  // A warp: every COLLECTORS-th line from `first` on, of all blocks of the group.
  __device__ __forceinline__ void collect(unsigned first) const {
    constexpr int BATCH = 2;
    const unsigned lane = threadIdx.x & 31;
    barrier_wait(&exchange.opened, 0);
    const unsigned half = exchange.launch & 1;
#pragma unroll 1
    for (unsigned i = first; i < lines; i += COLLECTORS) {
      const unsigned at = i % OPEN;
      const Slot* parts = &slots[half][i % SLOTS][blockIdx.x - member];
      barrier_wait(&exchange.published[at], phase<OPEN>(i));  // those of other blocks come at about the same time
      Statistic total[1] = {rule.empty()};
#pragma unroll 1
      for (unsigned block = lane; block < a.team; block += 32 * BATCH) {
        Slot slot[BATCH];
        bool complete;
        do {
          complete = true;
#pragma unroll
          for (int j = 0; j < BATCH; j++)
            if (block + 32 * j < a.team) slot[j] = read_slot(parts + block + 32 * j);
#pragma unroll
          for (int j = 0; j < BATCH; j++)
            if (block + 32 * j < a.team) complete = complete && holds(slot[j], i + 1);
        } while (!complete);
#pragma unroll
        for (int j = 0; j < BATCH; j++)
          if (block + 32 * j < a.team) merge(rule, total[0], from_slot(slot[j]));
      }
      __syncwarp();
      merge_lanes(rule, total, 1, 32);
      rule.finish(total[0]);
      if (lane == 0) {
        exchange.line[at] = total[0];
        barrier_arrive(&exchange.agreed[at]);
      }
    }
  }
};

template <class Rule> __device__ __forceinline__ void softmax_in_stream(const Arguments<Rule::INPUTS>& a) {
  const unsigned workers = blockDim.x - 32 * HELPERS, warp = threadIdx.x >> 5, warps = workers >> 5;
  const unsigned groups = gridDim.x / a.team, group = blockIdx.x / a.team;
  const unsigned lines = group < groups && group < a.lines.packs ? (a.lines.packs - group - 1) / groups + 1 : 0;
  Exchange& exchange = *reinterpret_cast<Exchange*>(shared_memory + a.kept * STREAM_PACKS * workers * 16);
  const Stream<Rule> stream{a, {Algorithm(a.algorithm), a.alpha}, exchange, workers, group, groups, blockIdx.x - group * a.team, lines};
  if (threadIdx.x == 0) {
    for (unsigned i = 0; i < 2; i++) barrier_init(&exchange.reduced[i], warps);
    for (unsigned i = 0; i < OPEN; i++) {
      barrier_init(&exchange.published[i], 1);
      barrier_init(&exchange.agreed[i], 1);
    }
    barrier_init(&exchange.opened, 1);
    publish_barriers();
  }
  __syncthreads();
  if (warp < warps) stream.work();
  else if (warp == warps) stream.publish();
  else stream.collect(warp - warps - 1);
  __syncthreads();
  if (threadIdx.x == 0) {
    // The next launch counts the blocks that arrive from where those of this one have ended.
    while (count_of(&arrivals) < (exchange.launch + 1) * gridDim.x) {}
    __threadfence();
    atomicAdd(&departures, 1ull);
  }
}

extern "C" __global__ void __launch_bounds__(768, 1) softmax_forward_stream(const Arguments<1> a) {
  wait_for_earlier_kernels();
  softmax_in_stream<Forward>(a);
}
extern "C" __global__ void __launch_bounds__(768, 1) softmax_backward_stream(const Arguments<2> a) {
  wait_for_earlier_kernels();
  softmax_in_stream<Backward>(a);
}
