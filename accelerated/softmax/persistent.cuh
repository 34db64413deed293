// Softmax over long lines, forward (3.2.96) and backward (4.1.19), in a stream: reads, agreements and writes overlap.
//
// There is one persistent block per SM. Groups of blocks (`team`) share the lines, or bundles of neighbouring lines (`across`
// packs of them): a group takes every `groups`-th. Its blocks take the tiles of a line in turns, `part` packs each, so that
// what they read and write at a time lies side by side; each has `steps` of them. The workers of a block walk its tiles,
// line after line: a tile is read `ahead` steps ahead into a ring in shared memory, takes part in the statistic of its
// line, and is written from there `delay` steps later; the last of these it may spend in registers (QUEUE). In between, the
// other warps agree with those of the other blocks: one publishes the block's part of the statistic; of one block, another
// for each line, they merge the parts of all and tell everybody the result. Few threads poll, each a place of its own: when
// all looked at all parts, an H200 took 4 to 17 % longer; where a group has few blocks, 5 % less. Of a group's last line, behind which
// nothing is read, all of them look at all parts: up to 1.1 % less (8 x 64 x 16 x 56 x 56 halves backward), others about the same.
//
// All blocks run at the same time (the launch is cooperative), so that none waits for one that does not run. They run alone:
// each takes half of the shared memory of its multiprocessor or more. So the board through which blocks agree belongs to one launch
// at a time, whatever stream it is in.
//
// Floor: bytes, as in softmax/staged.cu, and each moves once. What limits (H200, clocks read in the kernel): some 4 us of each launch in
// which memory is not busy, whatever the size. 1.7 us lie between the last write of the kernel before and the end of the wait for
// it, because each block takes most of a multiprocessor's memory: none is there earlier; half of that is the cooperative launch.
// The first tile comes 1 us later. Between the last tile's arrival and the last line's result lie 2 to 3 us, because blocks are
// served unevenly. Lines of more than the shared memory of all multiprocessors do not fit.
#pragma once
#include "softmax/grid_exchange.cuh"
#include "primitives/tma.cuh"

// As in softmax_streams.py
constexpr unsigned HELPERS = 4;                               // warps, at most
constexpr int STREAM_THREADS = 640;                           // at most
constexpr unsigned FEW_BLOCKS = 8;                            // of a group: each of them merges the parts of all
constexpr unsigned REST = 100;                                // nanoseconds, of who waits for a result
#ifndef QUEUE_TILES
#define QUEUE_TILES 0  // softmax_streams.py knows when some are needed
#endif
constexpr int QUEUE = QUEUE_TILES;  // of a block, in registers until they are written
// Bundles of a block between the first read and the last write.
template <bool COLUMNS> constexpr unsigned OPEN = COLUMNS ? 4 : 16;

// Launches take the halves in turns, and each leaves the other one cleared. All zero at first. A place is free again when it
// is used: a block publishes bundle i + OPEN when it has begun to write bundle i, for which all had published, and it is told
// the result of that bundle after it has published it.
template <bool COLUMNS> struct Board {
  Slot parts[2][OPEN<COLUMNS>][MOST_BLOCKS][COLUMNS ? MOST_COLUMNS : 1];    // of every block
  Slot results[2][OPEN<COLUMNS>][MOST_BLOCKS][COLUMNS ? MOST_COLUMNS : 1];  // for every block
  unsigned long long arrivals, departures;                                  // of blocks, of their helpers, of all launches ever
};
__device__ Board<false> board_of_lines;
__device__ Board<true> board_of_columns;
template <bool COLUMNS> __device__ __forceinline__ Board<COLUMNS>& board() {
  if constexpr (COLUMNS) return board_of_columns;
  else return board_of_lines;
}

// WHOLE: warps, not workers, hand statistics over.
template <class Rule, bool COLUMNS, bool WHOLE = false> struct Stream {
  static constexpr unsigned COLLECTORS = WHOLE && QUEUE > 0 ? 2 : 3;  // warps; a queue needs their registers, and has few lines
  static constexpr int INPUTS = Rule::INPUTS, HELD = STREAM_PACKS / INPUTS;
  static constexpr unsigned OPEN = ::OPEN<COLUMNS>;
  using Packs = WidePacks<Rule, COLUMNS, HELD>;
  using Place = typename Packs::Place;
  static constexpr int LANES = Packs::LANES;

  // What the warps of a block share; bundle i of the block is at i modulo the size. Statistics lie behind it.
  struct Exchange {
    Mbarrier reduced[2], published[OPEN], merged[OPEN], agreed[OPEN], opened;
    unsigned long long launch;
  };

  const Arguments<INPUTS>& a;
  const Rule rule;
  Exchange& exchange;
  unsigned group, groups, member;  // of the group; a block without one has no bundles
  unsigned bundles;                // of the group
  unsigned log_across, columns;    // lines of a bundle
  unsigned parts;                  // statistics of every line that workers hand over

  // exchange_at: bytes of shared memory before what the warps share.
  __device__ __forceinline__ Stream(const Arguments<INPUTS>& arguments, unsigned exchange_at)
      : a(arguments), rule{Algorithm(a.algorithm), a.alpha}, exchange(*reinterpret_cast<Exchange*>(shared_memory + exchange_at)),
        group(blockIdx.x / a.team), groups(gridDim.x / a.team), member(blockIdx.x - group * a.team), log_across(exponent_of(a.across)) {
    const unsigned all = (a.lines.packs + a.across - 1) >> log_across;
    bundles = group < groups && group < all ? (all - group - 1) / groups + 1 : 0;
    columns = COLUMNS ? a.across * LANES : 1;
    parts = COLUMNS ? a.workers / max(a.across, 32u) : WHOLE ? WORKERS / 32 : a.workers;
  }
  __device__ __forceinline__ Statistic* lines_of(unsigned i) const { return reinterpret_cast<Statistic*>(&exchange + 1) + i % OPEN * columns; }
  __device__ __forceinline__ Statistic* parts_of(unsigned i) const { return lines_of(0) + (OPEN + i % 2 * parts) * columns; }
  static __device__ __forceinline__ int phase(unsigned i, unsigned size) { return i / size & 1; }

  __device__ __forceinline__ void move_to(Packs& packs, unsigned i) const {
    const unsigned index = group + i * groups;
    if constexpr (COLUMNS) {
      const unsigned pack = (index << log_across) + (threadIdx.x & (a.across - 1));
      packs = Packs(a, min(pack, a.lines.packs - 1));
      if (pack >= a.lines.packs) packs.end_for_good();
    } else {
      packs.move_to(index);
    }
  }

  // Where a worker is in the tiles of its block.
  struct Cursor {
    unsigned bundle = 0, step = 0, place = 0, begin;  // first pack of the tile
    __device__ __forceinline__ Cursor(unsigned start) : begin(start) {}
    __device__ __forceinline__ void advance(const Arguments<INPUTS>& a, unsigned start, unsigned places) {
      begin += a.team * a.part;
      if (++step == a.steps) step = 0, bundle++, begin = start;
      place += places;
      if (place == a.kept * places) place = 0;
    }
  };

  // Workers. Every thread reads and writes only places of its own, those of the tiles in turns. Instructions count: a block
  // takes in a tile in a microsecond.
  __device__ __forceinline__ void work() const {
    const unsigned size = a.workers >> log_across, tiles = bundles * a.steps, start = member * a.part;
    const unsigned first = threadIdx.x >> log_across, tile_places = STREAM_PACKS * a.workers;
    Place* const places = reinterpret_cast<Place*>(shared_memory) + threadIdx.x;
    // Packs that this worker has in every tile that is whole; the places of others stay neutral.
    bool mine[HELD];
    Place nothing;
#pragma unroll
    for (int i = 0; i < WIDTH; i++) nothing.item[i] = store<ELEMENT>(Rule::neutral());
#pragma unroll
    for (int k = 0; k < HELD; k++) {
      mine[k] = first + k * size < a.part;
      if (!mine[k])
#pragma unroll 1
        for (unsigned tile = 0; tile < a.kept; tile++)
#pragma unroll
          for (int n = 0; n < INPUTS; n++) places[tile * tile_places + (k * INPUTS + n) * a.workers] = nothing;
    }

    Cursor read(start), reduced(start), queued(start), written(start);
    Packs reading(a, 0), writing = reading;
    auto fetch = [&](unsigned tile) {
      if (tile < tiles) {
        if (read.step == 0) move_to(reading, read.bundle);
        const unsigned end = read.begin + a.part;
        if (reading.are_all_whole(read.begin, end)) {
#pragma unroll
          for (int k = 0; k < HELD; k++)
            if (mine[k]) reading.fetch_whole(read.begin + first + k * size, places + read.place + k * INPUTS * a.workers, a.workers);
        } else {
          reading.end_at(end);
          reading.fetch(read.begin + first, size, places + read.place, a.workers);
        }
        read.advance(a, start, tile_places);
      }
      commit();
    };
#pragma unroll 1
    for (unsigned tile = 0; tile < a.ahead; tile++) fetch(tile);

    [[maybe_unused]] Place queue[QUEUE + 1][STREAM_PACKS];
    Statistic statistic[LANES], agreed[LANES];
#pragma unroll
    for (int lane = 0; lane < LANES; lane++) statistic[lane] = rule.empty();
#pragma unroll 1
    for (unsigned step = 0; step < tiles + a.delay; step++) {
      if (step < tiles) {
        COMPUTE values[INPUTS][HELD * WIDTH];
        wait_for_tile();
        reading.take(0, 0, places + reduced.place, a.workers, values);
        rule.add(statistic, values);
        if (reduced.step == a.steps - 1) hand_over(statistic, reduced.bundle);
        reduced.advance(a, start, tile_places);
      }
      if (step >= a.delay) {
        if (written.step == 0) {
          move_to(writing, written.bundle);
          mbarrier_wait_parity(&exchange.agreed[written.bundle % OPEN], phase(written.bundle, OPEN));
          const Statistic* lines = lines_of(written.bundle) + (COLUMNS ? (threadIdx.x & (a.across - 1)) * LANES : 0);
#pragma unroll
          for (int lane = 0; lane < LANES; lane++) agreed[lane] = lines[lane];
        }
        const Place* const from = QUEUE > 0 ? queue[0] : places + written.place;
        const unsigned distance = QUEUE > 0 ? 1 : a.workers, end = written.begin + a.part;
        const bool all_whole = writing.are_all_whole(written.begin, end);
        if (!all_whole) writing.end_at(end);
#pragma unroll
        for (int k = 0; k < HELD; k++) {
          const unsigned pack = written.begin + first + k * size;
          if (all_whole ? mine[k] : pack < writing.packs)
            writing.write_pack(rule, agreed, pack, all_whole || writing.is_whole(pack), from + k * INPUTS * distance, distance);
        }
        written.advance(a, start, tile_places);
      }
      if constexpr (QUEUE > 0) {
#pragma unroll
        for (int i = 0; i + 1 < QUEUE; i++)
#pragma unroll
          for (int p = 0; p < STREAM_PACKS; p++) queue[i][p] = queue[i + 1][p];
        if (step + QUEUE >= a.delay && queued.bundle < bundles) {
#pragma unroll
          for (int p = 0; p < STREAM_PACKS; p++) queue[QUEUE - 1][p] = places[queued.place + p * a.workers];
          queued.advance(a, start, tile_places);
        }
      }
      fetch(step + a.ahead);
    }
  }
  // Of `ahead` tiles in flight the first.
  __device__ __forceinline__ void wait_for_tile() const {
    switch (a.ahead) {
      case 2: return arrived<1>();
      case 3: return arrived<2>();
      default: arrived<3>();
    }
  }
  // Gives a worker's statistic of a bundle to the warp that publishes, and begins another.
  __device__ __forceinline__ void hand_over(Statistic (&statistic)[LANES], unsigned i) const {
    if (i >= 2) mbarrier_wait_parity(&exchange.published[(i - 2) % OPEN], phase(i - 2, OPEN));  // which had the same places
    if constexpr (COLUMNS) {
      merge_lanes(rule, statistic, a.across, 32);
      if ((threadIdx.x & (max(a.across, 32u) - 1)) < a.across) {
        Statistic* part = parts_of(i) + (threadIdx.x >> max(log_across, 5u)) * columns + (threadIdx.x & (a.across - 1)) * LANES;
#pragma unroll
        for (int lane = 0; lane < LANES; lane++) part[lane] = statistic[lane];
      }
    } else {
      parts_of(i)[threadIdx.x] = statistic[0];
    }
    mbarrier_arrive(&exchange.reduced[i % 2]);
#pragma unroll
    for (int lane = 0; lane < LANES; lane++) statistic[lane] = rule.empty();
  }

  // Of the parts of the block those from `first` on that lie `stride` apart.
  __device__ __forceinline__ Statistic of_block(unsigned i, unsigned first, unsigned stride) const {
    constexpr int MOST = STREAM_THREADS / 32 - 1 - COLLECTORS;
    Statistic total = rule.empty(), part[MOST];
#pragma unroll
    for (int j = 0; j < MOST; j++) part[j] = first + j * stride < parts * columns ? parts_of(i)[first + j * stride] : rule.empty();
    merge(rule, total, part);
    return total;
  }
  // A warp: the block's part of every bundle.
  __device__ __forceinline__ void publish() const {
    const unsigned lane = threadIdx.x & 31;
    Board<COLUMNS>& board = ::board<COLUMNS>();
    if (lane == 0) {
      // Blocks of earlier launches have left the board.
      const unsigned long long launch = atomicAdd(&board.arrivals, 1ull) / gridDim.x;
      while (count_of(&board.departures) < launch * gridDim.x * HELPERS) {}
      exchange.launch = launch;
      mbarrier_arrive(&exchange.opened);
    }
    mbarrier_wait_parity(&exchange.opened, 0);
    const unsigned half = exchange.launch & 1;
    constexpr unsigned OF_BLOCK = COLUMNS ? MOST_COLUMNS : 1;
#pragma unroll 1
    for (unsigned i = lane; i < OPEN * OF_BLOCK; i += 32) {
      write_slot(&board.parts[half ^ 1][i / OF_BLOCK][blockIdx.x][i % OF_BLOCK], Slot{});
      write_slot(&board.results[half ^ 1][i / OF_BLOCK][blockIdx.x][i % OF_BLOCK], Slot{});
    }
#pragma unroll 1
    for (unsigned i = 0; i < bundles; i++) {
      Slot* slots = board.parts[half][i % OPEN][blockIdx.x];
      mbarrier_wait_parity(&exchange.reduced[i % 2], phase(i, 2));
      if constexpr (COLUMNS) {
        for (unsigned column = lane; column < columns; column += 32) write_slot(slots + column, to_slot(of_block(i, column, columns), i + 1));
      } else {
        Statistic total[1] = {!WHOLE ? of_block(i, lane, 32) : lane < parts ? parts_of(i)[lane] : rule.empty()};
        merge_lanes(rule, total, 1, 32);
        if (lane == 0) write_slot(slots, to_slot(total[0], i + 1));
      }
      mbarrier_arrive(&exchange.published[i % OPEN]);
    }
  }

  // A lane's share of the parts of a line.
  __device__ __forceinline__ Statistic collected(unsigned half, unsigned i, unsigned column) const {
    const auto* slots = board<COLUMNS>().parts[half][i % OPEN] + (blockIdx.x - member);
    Statistic total = rule.empty();
#pragma unroll 1
    for (unsigned block = threadIdx.x & 31; block < a.team; block += 32 * BATCH) {
      Slot slot[BATCH];
      read_complete(slot, block, 32, a.team, i + 1, [&](unsigned block) { return slots[block] + column; });
      Statistic part[BATCH];
#pragma unroll
      for (int j = 0; j < BATCH; j++) part[j] = block + 32 * j < a.team ? from_slot(slot[j]) : rule.empty();
      merge(rule, total, part);
    }
    return total;
  }
  // The statistic of a line from the parts of all blocks, by a warp.
  __device__ __forceinline__ Statistic whole(unsigned half, unsigned i, unsigned column) const {
    Statistic total[1] = {collected(half, i, column)};
    __syncwarp();
    merge_lanes(rule, total, 1, 32);
    rule.finish(total[0]);
    return total[0];
  }
  // The other warps: every COLLECTORS-th line, or of every bundle.
  __device__ __forceinline__ void collect(unsigned collector) const {
    const unsigned lane = threadIdx.x & 31;
    mbarrier_wait_parity(&exchange.opened, 0);
    const unsigned half = exchange.launch & 1;
#pragma unroll 1
    for (unsigned i = COLUMNS ? 0 : collector; i < bundles; i += COLUMNS ? 1 : COLLECTORS) {
      mbarrier_wait_parity(&exchange.published[i % OPEN], phase(i, OPEN));  // those of other blocks come at about the same time
      auto* results = board<COLUMNS>().results[half][i % OPEN];
      if (!COLUMNS && (a.team <= FEW_BLOCKS || i + 1 == bundles)) {  // each merges all
        const Statistic total = whole(half, i, 0);
        if (lane == 0) lines_of(i)[0] = total;
        mbarrier_arrive(&exchange.agreed[i % OPEN]);
        continue;
      }
      // Each block merges some lines, for all.
      const unsigned mine = (member + i) % a.team + (COLUMNS ? collector * a.team : 0);
#pragma unroll 1
      for (unsigned column = mine; column < columns; column += COLLECTORS * a.team) {
        const Slot total = to_slot(whole(half, i, column), i + 1);
        for (unsigned block = lane; block < a.team; block += 32) write_slot(results[blockIdx.x - member + block] + column, total);
      }
      if constexpr (COLUMNS) {
        if (lane == 0) mbarrier_arrive(&exchange.merged[i % OPEN]);
        mbarrier_wait_parity(&exchange.merged[i % OPEN], phase(i, OPEN));  // those of other blocks come at about the same time
      }
      __syncwarp();
#pragma unroll 1
      for (unsigned column = (COLUMNS ? collector * 32 : 0) + lane; column < columns; column += COLLECTORS * 32) {
        Slot slot;
        while (!holds(slot = read_slot(results[blockIdx.x] + column), i + 1)) __nanosleep(REST);
        lines_of(i)[column] = from_slot(slot);
      }
      mbarrier_arrive(&exchange.agreed[i % OPEN]);
    }
  }
  // A helper's last act: the next launch may have the board. It counts arrivals from where those of this one have ended.
  __device__ __forceinline__ void leave(unsigned helpers) const {
    Board<COLUMNS>& board = ::board<COLUMNS>();
    __syncwarp();
    if ((threadIdx.x & 31) != 0) return;
    while (count_of(&board.arrivals) < (exchange.launch + 1) * gridDim.x) {}
    __threadfence();
    atomicAdd(&board.departures, static_cast<unsigned long long>(helpers));
  }

  // All threads: the barriers.
  __device__ __forceinline__ void begin() const {
    const unsigned i = threadIdx.x;
    // Every thread arrives for itself where others read what it wrote or write what it read.
    if (i < OPEN) {
      mbarrier_init(&exchange.published[i], 32);
      mbarrier_init(&exchange.merged[i], COLLECTORS);
      mbarrier_init(&exchange.agreed[i], COLUMNS ? COLLECTORS * 32 : 32);
      if (i < 2) mbarrier_init(&exchange.reduced[i], a.workers);
      if (i == 0) mbarrier_init(&exchange.opened, 1);
      fence_mbarrier_init();
    }
    __syncthreads();
  }
  // A warp beside the workers.
  __device__ __forceinline__ void help(unsigned helper) const {
    if (helper == 0) publish();
    else collect(helper - 1);
    leave(helper == 0 ? HELPERS - COLLECTORS : 1);  // of a block as many leave, whatever the kernel
  }
  __device__ __forceinline__ void run() const {
    const unsigned warp = threadIdx.x >> 5, warps = a.workers >> 5;
    begin();
    if (warp < warps) work();
    else help(warp - warps);
  }
};
