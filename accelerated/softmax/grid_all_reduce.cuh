// The grid all-reduce of online-softmax states of rows: groups of persistent blocks exchange what each has of a row
// (softmax/persistent_tma.cu).
//
// A group of blocks (`team`) takes every `groups`-th row; its blocks take the tiles of a row in turns, `part` packs
// each. When the compute warps of a block have added the last of its tiles of a row, one reducer warp publishes the
// block's state; of one block, another reducer warp for each row, they merge the states of all and publish the result.
// Few threads poll, each an address of its own: when all polled all states, an H200 took 4 to 17 % longer; where a
// group has few blocks, 5 % less, and then, as for a group's last row, all of them poll all states.
//
// All blocks run at the same time (the launch is cooperative), so that none waits for one that does not run. They run
// alone: each takes half of the shared memory of its multiprocessor or more. So the exchange buffer belongs to one
// launch at a time, whatever stream it is in.
#pragma once
#include "primitives/grid_exchange.cuh"
#include "primitives/tma.cuh"
#include "softmax/reduce.cuh"

// As in softmax/persistent_tma.py
constexpr unsigned MOST_BLOCKS = 192, MOST_TILES = 48;  // of a launch; in shared memory
constexpr unsigned COMPUTE_THREADS = 512;               // of a block
constexpr int TILE_PACKS = 2;                           // that a compute thread takes in a step, of all inputs together
constexpr unsigned REDUCERS = 4;                        // warps, at most
constexpr unsigned SMALL_GROUP = 8;                     // blocks: each of them merges the states of all
constexpr unsigned POLL_PAUSE_NS = 100;                 // of who waits for a result
#ifndef QUEUE_TILES
#define QUEUE_TILES 0  // of a block, in registers until they are written
#endif
constexpr int QUEUE = QUEUE_TILES;
constexpr unsigned OPEN = 16;  // rows of a block between the first read and the last write

using Slot = ExchangeSlot<OnlineState>;

// The slots of BATCH blocks, `apart` from each other, of those below `count`, when all hold the number. at: where that
// of a block is. Those that hold it are not read again: who waits takes bandwidth from who reads tiles (1 to 2 % of a
// stream of strided rows).
constexpr int BATCH = 5;  // by 32 lanes: all blocks of an H200 at once
template <class At>
__device__ __forceinline__ void read_complete(Slot (&slot)[BATCH], unsigned first, unsigned apart, unsigned count,
                                              unsigned number, const At& at) {
  bool complete;
#pragma unroll
  for (int j = 0; j < BATCH; j++) slot[j] = Slot{};  // no number is 0
  do {
    complete = true;
#pragma unroll
    for (int j = 0; j < BATCH; j++)
      if (first + apart * j < count && !holds(slot[j], number)) slot[j] = read_slot(at(first + apart * j));
#pragma unroll
    for (int j = 0; j < BATCH; j++)
      if (first + apart * j < count) complete = complete && holds(slot[j], number);
  } while (!complete);
}

// Merges parts at once: their exponentials do not wait for each other, and rows wait for this.
template <class Rule, int N>
__device__ __forceinline__ void merge(const Rule& rule, OnlineState& total, OnlineState (&part)[N]) {
  if (rule.has_maximum()) {
    COMPUTE maximum = total.maximum;
#pragma unroll
    for (int j = 0; j < N; j++) maximum = max(maximum, part[j].maximum);
    rule.raise(total, maximum);
#pragma unroll
    for (int j = 0; j < N; j++) rule.raise(part[j], maximum);
  }
#pragma unroll
  for (int j = 0; j < N; j++) total.sum += part[j].sum;
}

// Launches alternate between two parts, and each leaves the other one cleared. All zero at first. A slot is free again
// when it is used: a block publishes row i + OPEN when it has begun to write row i, for which all had published, and it
// receives the result of that row after it has published it.
struct RowExchange {
  Slot parts[2][OPEN][MOST_BLOCKS];         // of every block
  Slot results[2][OPEN][MOST_BLOCKS];       // for every block
  unsigned long long arrivals, departures;  // of blocks, of their reducer warps, of all launches ever
};
__device__ RowExchange row_exchange;

template <class Rule> struct GridAllReduce {
  static constexpr unsigned MERGERS = QUEUE > 0 ? 2 : 3;  // warps; a queue needs their registers, and has few rows
  static constexpr int INPUTS = Rule::INPUTS;
  static constexpr unsigned PARTS = COMPUTE_THREADS / 32;  // states of every row that compute warps hand over

  // What the warps of a block share; row i of the block is at i modulo the size. States lie behind it.
  struct Shared {
    Mbarrier reduced[2], published[OPEN], all_reduced[OPEN], opened;
    unsigned long long launch;
  };

  const Arguments<INPUTS>& a;
  const Rule rule;
  Shared& exchange;
  unsigned group, groups, member;  // of the group; a block without one has no rows
  unsigned rows;                   // of the group

  // exchange_at: bytes of shared memory before what the warps share.
  __device__ __forceinline__ GridAllReduce(const Arguments<INPUTS>& arguments, unsigned exchange_at)
      : a(arguments),
        rule{Algorithm(a.algorithm), a.alpha},
        exchange(*reinterpret_cast<Shared*>(shared_memory + exchange_at)),
        group(blockIdx.x / a.team),
        groups(gridDim.x / a.team),
        member(blockIdx.x - group * a.team) {
    const unsigned all = a.rows.packs;
    rows = group < groups && group < all ? (all - group - 1) / groups + 1 : 0;
  }
  __device__ __forceinline__ OnlineState* result_of(unsigned i) const {
    return reinterpret_cast<OnlineState*>(&exchange + 1) + i % OPEN;
  }
  __device__ __forceinline__ OnlineState* parts_of(unsigned i) const { return result_of(0) + (OPEN + i % 2 * PARTS); }
  static __device__ __forceinline__ int phase(unsigned i, unsigned size) { return i / size & 1; }

  // A warp: the block's part of every row.
  __device__ __forceinline__ void publish() const {
    const unsigned lane = threadIdx.x & 31;
    if (lane == 0) {
      // Blocks of earlier launches have left the exchange buffer.
      const unsigned long long launch = atomicAdd(&row_exchange.arrivals, 1ull) / gridDim.x;
      while (count_of(&row_exchange.departures) < launch * gridDim.x * REDUCERS) {}
      exchange.launch = launch;
      mbarrier_arrive(&exchange.opened);
    }
    mbarrier_wait_parity(&exchange.opened, 0);
    const unsigned half = exchange.launch & 1;
#pragma unroll 1
    for (unsigned i = lane; i < OPEN; i += 32) {
      write_slot(&row_exchange.parts[half ^ 1][i][blockIdx.x], Slot{});
      write_slot(&row_exchange.results[half ^ 1][i][blockIdx.x], Slot{});
    }
#pragma unroll 1
    for (unsigned i = 0; i < rows; i++) {
      mbarrier_wait_parity(&exchange.reduced[i % 2], phase(i, 2));
      OnlineState total[1] = {lane < PARTS ? parts_of(i)[lane] : rule.empty()};
      merge_lanes(rule, total, 1, 32);
      if (lane == 0) write_slot(&row_exchange.parts[half][i % OPEN][blockIdx.x], to_slot(total[0], i + 1));
      mbarrier_arrive(&exchange.published[i % OPEN]);
    }
  }

  // The state of a row from those of all blocks, by a warp.
  __device__ __forceinline__ OnlineState of_group(unsigned half, unsigned i) const {
    const auto* slots = row_exchange.parts[half][i % OPEN] + (blockIdx.x - member);
    OnlineState total[1] = {rule.empty()};
#pragma unroll 1
    for (unsigned block = threadIdx.x & 31; block < a.team; block += 32 * BATCH) {
      Slot slot[BATCH];
      read_complete(slot, block, 32, a.team, i + 1, [&](unsigned block) { return slots + block; });
      OnlineState part[BATCH];
#pragma unroll
      for (int j = 0; j < BATCH; j++) part[j] = block + 32 * j < a.team ? from_slot(slot[j]) : rule.empty();
      merge(rule, total[0], part);
    }
    __syncwarp();
    merge_lanes(rule, total, 1, 32);
    rule.finish(total[0]);
    return total[0];
  }
  // The other warps: every MERGERS-th row.
  __device__ __forceinline__ void merge_rows(unsigned merger) const {
    const unsigned lane = threadIdx.x & 31;
    mbarrier_wait_parity(&exchange.opened, 0);
    const unsigned half = exchange.launch & 1;
#pragma unroll 1
    for (unsigned i = merger; i < rows; i += MERGERS) {
      mbarrier_wait_parity(&exchange.published[i % OPEN],
                           phase(i, OPEN));  // those of other blocks come at about the same time
      auto* results = row_exchange.results[half][i % OPEN];
      if (a.team <= SMALL_GROUP || i + 1 == rows) {  // each merges all
        const OnlineState total = of_group(half, i);
        if (lane == 0) result_of(i)[0] = total;
        mbarrier_arrive(&exchange.all_reduced[i % OPEN]);
        continue;
      }
      // Each block merges some rows, for all. Loops that run once at most: of conditions the compiler made 12 bytes of
      // spills in the compute warps of floats with a queue.
#pragma unroll 1
      for (unsigned other = (member + i) % a.team; other < 1; other += MERGERS * a.team) {
        const Slot total = to_slot(of_group(half, i), i + 1);
        for (unsigned block = lane; block < a.team; block += 32)
          write_slot(&results[blockIdx.x - member + block], total);
      }
      __syncwarp();
#pragma unroll 1
      for (unsigned reader = lane; reader < 1; reader += MERGERS * 32) {
        Slot slot;
        while (!holds(slot = read_slot(&results[blockIdx.x]), i + 1)) __nanosleep(POLL_PAUSE_NS);
        result_of(i)[reader] = from_slot(slot);
      }
      mbarrier_arrive(&exchange.all_reduced[i % OPEN]);
    }
  }
  // The last act of a reducer warp: the next launch may have the exchange buffer. It counts arrivals from where those
  // of this one have ended.
  __device__ __forceinline__ void leave(unsigned reducers) const {
    __syncwarp();
    if ((threadIdx.x & 31) != 0) return;
    while (count_of(&row_exchange.arrivals) < (exchange.launch + 1) * gridDim.x) {}
    __threadfence();
    atomicAdd(&row_exchange.departures, static_cast<unsigned long long>(reducers));
  }
  // A reducer warp. Of a block as many leave, whatever the kernel.
  __device__ __forceinline__ void reduce(unsigned reducer) const {
    if (reducer == 0) publish();
    else merge_rows(reducer - 1);
    leave(reducer == 0 ? REDUCERS - MERGERS : 1);
  }
};
