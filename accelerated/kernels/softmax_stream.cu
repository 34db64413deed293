// Softmax over long lines, forward (3.2.96) and backward (4.1.19), in a stream: reads, agreements and writes overlap.
//
// There is one block a multiprocessor. Groups of blocks (`team`) share the lines: a group takes every `groups`-th, and each
// of its blocks one chunk of it. The workers of a block walk its tiles, `steps` of each chunk, chunk after chunk: a tile is
// read DEPTH steps ahead into a ring in shared memory, takes part in the statistic of its line, and is written from there
// `delay` steps later. In between, the other warps agree with those of the other blocks: one publishes the block's part of
// the statistic, the others wait for the parts of all blocks, which all of them merge in the same order.
//
// All blocks run at the same time, alone: the launch is cooperative, and each block takes most of the shared memory of its
// multiprocessor. So none waits for one that does not run, and the slots below belong to one launch at a time.
//
// Floor: bytes, as in softmax.cu, and each moves once. What limits: the first chunk is read before anything is written, the
// last is written after everything is read, and lines of more than the shared memory of all multiprocessors do not fit.
#include "softmax.cuh"
#include "tensor_maps.cuh"

#ifndef EMULATED_CUDA
#include <cooperative_groups.h>
#endif

// As in softmax.py
#ifndef STREAM_DEPTH
#define STREAM_DEPTH 4
#endif
constexpr int STREAM_PACKS = 2;                        // that a worker takes in a step, of all inputs together
constexpr int AHEAD = STREAM_DEPTH;                            // tiles on their way
constexpr unsigned COLLECTORS = 3, HELPERS = 1 + COLLECTORS;  // warps
constexpr unsigned OPEN = 16;                          // most lines of a block between the first read and the last write
constexpr unsigned MOST_WARPS = 32;

// A statistic on its way to other blocks. Each 32 bits come with the number of the line (within the launch, from 1 on) in
// one access of 8 bytes: who finds the number has the value.
constexpr int WORDS = sizeof(Statistic) / sizeof(unsigned);
struct alignas(16) Slot { unsigned long long word[WORDS]; };

// A block publishes line i + SLOTS when all blocks have read line i: it has then written line i + SLOTS - OPEN, for which
// all blocks had published that, so that they had written line i + SLOTS - 2 * OPEN.
constexpr unsigned SLOTS = 64, MOST_BLOCKS = 512;
static_assert(SLOTS > 2 * OPEN);

// Launches take the halves in turns; each leaves the other one cleared. All zero at first.
__device__ Slot slots[2][SLOTS][MOST_BLOCKS];
__device__ unsigned turn, finished_blocks;

#ifdef EMULATED_CUDA
inline void wait_for_all_blocks() { __syncthreads(); }
inline void write_slot(Slot* slot, Slot value) { *slot = value; }
inline Slot read_slot(const Slot* slot) { return *slot; }
#else
__device__ __forceinline__ void wait_for_all_blocks() { cooperative_groups::this_grid().sync(); }
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
#endif

union StatisticWords {
  unsigned word[WORDS];
  Statistic statistic;
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

// What the warps of a block share about the lines between first read and last write; line i of the block is at i % OPEN.
struct Exchange {
  Statistic part[OPEN][MOST_WARPS], line[OPEN];
  Barrier reduced[OPEN], published[OPEN], agreed[OPEN];
};
__device__ __forceinline__ int phase(unsigned i) { return i / OPEN & 1; }

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

  __device__ __forceinline__ unsigned first_pack() const { return member * a.chunk + threadIdx.x; }
  __device__ __forceinline__ Line line(unsigned i) const {
    Line line(a, group + i * groups);
    line.end_at((member + 1) * a.chunk);
    return line;
  }

  // Workers. Every thread reads and writes only places of its own, those of the tiles in turns.
  __device__ __forceinline__ void work() const {
    constexpr int VALUES = HELD * WIDTH;
    const unsigned round = workers * HELD, tiles = lines * a.steps, warp = threadIdx.x >> 5;
    Place* const places = reinterpret_cast<Place*>(shared_memory) + threadIdx.x;
    const unsigned tile_places = HELD * INPUTS * workers;
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
        reading.fetch(first_pack() + read.step * round, workers, places + read.tile * tile_places, workers);
        read.advance(a);
      }
      commit();
    };
#pragma unroll 1
    for (unsigned tile = 0; tile < AHEAD; tile++) fetch(tile);
    wait_for_all_blocks();

    Statistic statistic[1] = {rule.empty()}, agreed[1];
#pragma unroll 1
    for (unsigned step = 0; step < tiles + a.delay; step++) {
      if (step < tiles) {
        COMPUTE values[INPUTS][VALUES];
        arrived<AHEAD - 1>();
        reading.take(0, 0, places + reduced.tile * tile_places, workers, values);
        rule.add(statistic, values);
        if (reduced.step == a.steps - 1) {
          const unsigned at = reduced.line % OPEN;
          merge_lanes(rule, statistic, 1, 32);
          if ((threadIdx.x & 31) == 0) {
            exchange.part[at][warp] = statistic[0];
            barrier_arrive(&exchange.reduced[at]);
          }
          statistic[0] = rule.empty();
        }
        reduced.advance(a);
      }
      if (step >= a.delay) {
        if (written.step == 0) {
          const unsigned at = written.line % OPEN;
          writing = line(written.line);
          barrier_wait(&exchange.agreed[at], phase(written.line));
          agreed[0] = exchange.line[at];
        }
        writing.write(rule, agreed, first_pack() + written.step * round, workers, places + written.tile * tile_places, workers);
        written.advance(a);
      }
      fetch(step + AHEAD);
    }
  }

  // A warp: the block's part of every line.
  __device__ __forceinline__ void publish(unsigned half) const {
    const unsigned lane = threadIdx.x & 31, warps = workers >> 5;
#pragma unroll 1
    for (unsigned i = lane; i < SLOTS; i += 32) write_slot(&slots[half ^ 1][i][blockIdx.x], Slot{});
#pragma unroll 1
    for (unsigned i = 0; i < lines; i++) {
      const unsigned at = i % OPEN;
      barrier_wait(&exchange.reduced[at], phase(i));
      Statistic total[1] = {lane < warps ? exchange.part[at][lane] : rule.empty()};
      merge_lanes(rule, total, 1, 32);
      if (lane == 0) {
        write_slot(&slots[half][i % SLOTS][blockIdx.x], to_slot(total[0], i + 1));
        barrier_arrive(&exchange.published[at]);
      }
    }
  }

  // A warp: every COLLECTORS-th line from `first` on, of all blocks of the group.
  __device__ __forceinline__ void collect(unsigned half, unsigned first) const {
    constexpr int BATCH = 2;
    const unsigned lane = threadIdx.x & 31;
#pragma unroll 1
    for (unsigned i = first; i < lines; i += COLLECTORS) {
      const unsigned at = i % OPEN;
      const Slot* parts = &slots[half][i % SLOTS][blockIdx.x - member];
      barrier_wait(&exchange.published[at], phase(i));  // those of other blocks come at about the same time
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
          if (block + 32 * j < a.team) {
            Statistic part = from_slot(slot[j]);
            if (rule.has_top()) {
              const COMPUTE top = max(total[0].top, part.top);
              rule.raise(total[0], top);
              rule.raise(part, top);
            }
            total[0].sum += part.sum;
          }
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
    for (unsigned i = 0; i < OPEN; i++) {
      barrier_init(&exchange.reduced[i], warps);
      barrier_init(&exchange.published[i], 1);
      barrier_init(&exchange.agreed[i], 1);
    }
    publish_barriers();
  }
  // No slot is touched before all blocks run: then those of an earlier launch, from another stream, have left them.
  if (warp < warps) {
    stream.work();
  } else {
    wait_for_all_blocks();
    const unsigned half = *const_cast<volatile unsigned*>(&turn);
    if (warp == warps) stream.publish(half);
    else stream.collect(half, warp - warps - 1);
  }

  // The last block to finish gives the turn to the other half.
  __threadfence();
  __syncthreads();
  if (threadIdx.x == 0 && atomicAdd(&finished_blocks, 1) == gridDim.x - 1) {
    finished_blocks = 0;
    turn ^= 1;
    __threadfence();
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
