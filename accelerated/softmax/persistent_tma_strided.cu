// Softmax over long strided rows, forward (3.2.96) and backward (4.1.19), by persistent blocks: thousands of
// positions of few rows each.
//
// There is one block per multiprocessor, and all share every column tile: the `across` packs of neighbouring strided
// rows that are all of a position, so that positions follow each other in memory. Of a column tile each block has
// `steps` tiles of `part` positions. A lane has TMA load tiles, `ahead` in flight, into a ring of `kept` in shared
// memory; compute warps add them to the states of their rows and write them `delay` tiles later, of which they spend
// the last QUEUE in registers. Reducer warps publish the block's states, merge a share of the rows for all blocks,
// and receive what others have merged. The launch is cooperative, and blocks take half of a multiprocessor's shared
// memory or more: the exchange buffer belongs to one launch at a time, whatever stream it is in.
//
// Roofline: bytes, each moves once (2 elements forward, 3 backward); some 12 and 10 flops an element. Measured
// (H200): 4x32000x8x8 float over channels 18.0 us forward, 86 % of the copy's throughput, 15.9 without the exchange.
// History, and what was tried: docs/performance/softmax.md.
#include "softmax/grid_exchange.cuh"
#include "primitives/tma.cuh"

// As in softmax/persistent_tma.py
#ifndef ALGORITHM
#define ALGORITHM arguments.algorithm
#endif
constexpr unsigned MOST_TILE_ROWS = 64;  // strided rows of a column tile
constexpr unsigned MOST_TURNS = 64;      // that the slots of column tiles are used again
constexpr unsigned OPEN_TILES = 8;       // between the first read and the last write
constexpr unsigned COMPUTE_THREADS = 256,
                   TILE_PACKS = 4;  // of a block; that a compute thread takes in a step, of all inputs together
constexpr unsigned COPIES = 4;      // of what was merged: blocks take them in turns

// A slot is free again when it is used: a block publishes column tile i + OPEN_TILES when it has received column
// tile i, for which others have read what all had published. Numbers are those of rounds of slots, of all launches
// ever. Slots are in pairs, so that warps write sectors of L2.
struct StridedExchange {
  Slot parts[OPEN_TILES][MOST_TILE_ROWS / 2][MOST_BLOCKS][2];
  Slot results[OPEN_TILES][COPIES][MOST_TILE_ROWS];
  unsigned long long arrivals;  // of blocks, of all launches ever
};
__device__ StridedExchange strided_exchange;

template <class Rule> struct PersistentTmaStrided {
  static constexpr int INPUTS = Rule::INPUTS, HELD = TILE_PACKS / INPUTS,
                       ROWS = WIDTH;  // packs of each input that a compute thread has in a tile
  static constexpr unsigned WARPS = COMPUTE_THREADS / 32, OPEN = OPEN_TILES;
  static constexpr unsigned QUEUE = sizeof(ELEMENT) < 4 ? 0
                                    : INPUTS == 1       ? 3
                                                        : 7,
                            UNROLLED = QUEUE > 0 ? QUEUE : 1;  // tiles in registers, as in softmax/persistent_tma.py
  using Vector = Elements<WIDTH>;
  using Held = Pack<unsigned, 4>;  // a pack as it lies
  // Gradients have no maxima. What a warp hands over of a strided row, their sums alone, leaves shared memory for one
  // more tile; a slot has the sums of two strided rows, so that half as many warps publish, merge and receive, and
  // leave registers for two more.
  static constexpr bool SUMS = std::is_same_v<Rule, Backward>;
  using Part = std::conditional_t<SUMS, COMPUTE, OnlineState>;
  static constexpr unsigned SLOT_ROWS = SUMS ? 2 : 1, ROLE_WARPS = MOST_TILE_ROWS / SLOT_ROWS / 32,
                            ROLE_LANES = 32 * ROLE_WARPS;
  static constexpr unsigned READER = WARPS + 3 * ROLE_WARPS, THREADS = 32 * (READER + 1);  // a warp; of a block

  // Behind the tiles in shared memory; states of rows and of warps lie behind it. As in softmax/persistent_tma.py.
  struct Shared {
    Held nothing;  // changes no state
    Mbarrier full[MOST_TILES], empty[MOST_TILES];
    Mbarrier reduced, opened, published[OPEN], merged[OPEN], all_reduced[OPEN];
    unsigned first_number,
        target[OPEN];  // of a column tile's results: elements from the output's first one to the block's first row
  };

  const Arguments<INPUTS>& a;
  const Rule rule;
  const unsigned log_across, rows, column_tiles;
  const unsigned tile_packs, tiles,
      last;  // packs of a tile of one input; tiles of the block; rows of a column tile's last tile
  Held* const buffer;
  Shared& exchange;

  __device__ __forceinline__ explicit PersistentTmaStrided(const Arguments<INPUTS>& arguments)
      : a(arguments),
        rule{Algorithm(ALGORITHM), a.alpha},
        log_across(exponent_of(a.across)),
        rows(a.across * ROWS),
        column_tiles(a.rows.packs >> log_across),
        tile_packs(a.part << log_across),
        tiles(column_tiles * a.steps),
        last(positions_of_last(a)),
        buffer(reinterpret_cast<Held*>(shared_memory)),
        exchange(*reinterpret_cast<Shared*>(buffer + a.kept * INPUTS * tile_packs)) {}
  static __device__ __forceinline__ unsigned positions_of_last(const Arguments<INPUTS>& a) {
    return max(min(int(a.along.row) - int(((a.steps - 1) * gridDim.x + blockIdx.x) * a.part), int(a.part)), 0);
  }
  __device__ __forceinline__ OnlineState* results_of(unsigned column_tile) const {
    return reinterpret_cast<OnlineState*>(&exchange + 1) + column_tile % OPEN * rows;
  }
  __device__ __forceinline__ Part* parts() const { return reinterpret_cast<Part*>(results_of(0) + OPEN * rows); }
  static __device__ __forceinline__ Part to_part(const OnlineState& state) {
    if constexpr (SUMS) return state.sum;
    else return state;
  }
  static __device__ __forceinline__ OnlineState from_part(const Part& part) {
    if constexpr (SUMS) return {COMPUTE(0), part};
    else return part;
  }
  static __device__ __forceinline__ int phase(unsigned column_tile) { return column_tile / OPEN & 1; }

  // A walk through the tiles of the block.
  struct Walk {
    unsigned step = 0, slot = 0, parity = 0;
    // Whether another column tile begins.
    __device__ __forceinline__ bool advance(unsigned steps, unsigned kept) {
      if (++slot == kept) slot = 0, parity ^= 1;
      if (++step < steps) return false;
      step = 0;
      return true;
    }
  };

  // --- the lane that reads ---

  struct Reader {
    Walk at, arriving;
    unsigned column_tile = 0, next = 0;
    const ELEMENT* from[INPUTS];
    const L2CachePolicy policy;
    __device__ __forceinline__ explicit Reader(bool evict_first) : policy(l2_cache_policy(!evict_first)) {}
  };
  // Where the block's rows of a column tile begin; those of the first one do where the operands do.
  __device__ __forceinline__ void begin_column_tile(Reader& reader) const {
    unsigned offset[INPUTS + 1] = {};
    if (reader.column_tile > 0) a.rows.locate(reader.column_tile << log_across, offset);
#pragma unroll
    for (int n = 0; n <= INPUTS; n++) offset[n] += blockIdx.x * a.part * unsigned(a.along.row_stride[n]);
#pragma unroll
    for (int n = 0; n < INPUTS; n++) reader.from[n] = a.input[n] + offset[n];
    exchange.target[reader.column_tile % OPEN] = offset[INPUTS];
  }
  __device__ __forceinline__ unsigned bytes_of(unsigned step) const {
    return (step + 1 < a.steps ? a.part : last) * a.across * unsigned(sizeof(Held));
  }
  __device__ __forceinline__ unsigned stride() const {
    return gridDim.x * a.part * rows;
  }  // elements of an input from tile to tile
  __device__ __forceinline__ void prefetch(const Reader& reader) const {
#pragma unroll 1
    for (unsigned step = 0; step < min(a.ahead, a.steps); step++)
#pragma unroll
      for (int n = 0; n < INPUTS; n++)
        if (bytes_of(step) > 0) tma_prefetch_l2(reader.from[n] + step * stride(), bytes_of(step));
  }
  // Up to a tile. FIRST: those that wait for none.
  template <bool FIRST> __device__ __forceinline__ void read(Reader& reader, unsigned end) const {
#pragma unroll 1
    for (; reader.next < end; reader.next++) {
      if (!FIRST) {
        mbarrier_wait_parity(&exchange.full[reader.arriving.slot], reader.arriving.parity);
        reader.arriving.advance(a.steps, a.kept);
        if (reader.next >= a.kept) mbarrier_wait_parity(&exchange.empty[reader.at.slot], reader.at.parity ^ 1);
      }
      Mbarrier* const full = &exchange.full[reader.at.slot];
      const unsigned bytes = bytes_of(reader.at.step);
      Held* const to = buffer + reader.at.slot * INPUTS * tile_packs;
      if (bytes > 0) {
        mbarrier_arrive_expect_tx(full, INPUTS * bytes);
#pragma unroll
        for (int n = 0; n < INPUTS; n++) tma_load_bulk(to + n * tile_packs, reader.from[n], bytes, full, reader.policy);
      } else {
        mbarrier_arrive(full);
      }
#pragma unroll
      for (int n = 0; n < INPUTS; n++) reader.from[n] += stride();
      if (reader.at.advance(a.steps, a.kept) && ++reader.column_tile < column_tiles) begin_column_tile(reader);
    }
  }

  // --- compute warps: a pack each of some rows, as tiles lie ---

  // there: bit k: whether the compute thread's k-th pack exists.
  __device__ __forceinline__ void take(Held (&held)[INPUTS][HELD], const Held* first, unsigned there) const {
#pragma unroll
    for (int n = 0; n < INPUTS; n++)
#pragma unroll
      for (int k = 0; k < HELD; k++)
        held[n][k] = *(there >> k & 1 ? first + n * tile_packs + k * COMPUTE_THREADS : &exchange.nothing);
  }
  __device__ __forceinline__ void add(OnlineState (&state)[ROWS], const Held (&held)[INPUTS][HELD]) const {
    COMPUTE values[INPUTS][HELD * WIDTH];
#pragma unroll
    for (int n = 0; n < INPUTS; n++)
#pragma unroll
      for (int k = 0; k < HELD; k++) unpack(reinterpret_cast<const Vector*>(&held[n][k]), &values[n][k * WIDTH]);
    rule.add(state, values);
  }
  // apart: elements of the output from one pack to the next.
  __device__ __forceinline__ void write(const OnlineState (&state)[ROWS], const Held (&held)[INPUTS][HELD],
                                        unsigned there, ELEMENT* target, unsigned apart) const {
#pragma unroll
    for (int k = 0; k < HELD; k++) {
      COMPUTE values[INPUTS][WIDTH], result[WIDTH];
#pragma unroll
      for (int n = 0; n < INPUTS; n++) unpack(reinterpret_cast<const Vector*>(&held[n][k]), values[n]);
      rule.results(state, values, result);
      Vector* const to = reinterpret_cast<Vector*>(target + k * apart);
      if (!(there >> k & 1)) continue;
      if (a.beta != COMPUTE(0)) {
        COMPUTE prior[WIDTH];
        unpack(to, prior);
#pragma unroll
        for (int i = 0; i < WIDTH; i++) result[i] += a.beta * prior[i];
      }
      pack(result, to);
    }
  }
  // A compute thread needs a tile no more. All arrive for themselves, as those who hand over do: one or four lanes of a
  // warp, behind __syncwarp, a shuffle or a vote, took as long, and racecheck reported races of all these that the
  // barriers exclude.
  __device__ __forceinline__ void leave(const Walk& at) const { mbarrier_arrive(&exchange.empty[at.slot]); }
  // Gives a warp's states of a column tile to those who publish, and begins others.
  __device__ __forceinline__ void hand_over(OnlineState (&state)[ROWS], unsigned column_tile) const {
    const unsigned lane = threadIdx.x & 31;
    if (column_tile > 0)
      mbarrier_wait_parity(&exchange.published[(column_tile - 1) % OPEN],
                           phase(column_tile - 1));  // which had the same addresses
    merge_lanes(rule, state, a.across, 32);
    if (lane < a.across) {
#pragma unroll
      for (int i = 0; i < ROWS; i++) parts()[(threadIdx.x >> 5) * rows + lane * ROWS + i] = to_part(state[i]);
      mbarrier_arrive(&exchange.reduced);
    }
#pragma unroll
    for (int i = 0; i < ROWS; i++) state[i] = rule.empty();
  }
  __device__ __forceinline__ void work() const {
    const unsigned pack = threadIdx.x & (a.across - 1), position = threadIdx.x >> log_across,
                   at_once = COMPUTE_THREADS >> log_across;
    const unsigned row_stride = a.along.row_stride[INPUTS], apart = at_once * row_stride,
                   step_stride = gridDim.x * a.part * row_stride;
    const unsigned steps = a.steps, kept = a.kept, tile = INPUTS * tile_packs, end = tiles + a.delay;
    unsigned there = 0, there_last = 0;
#pragma unroll
    for (int k = 0; k < HELD; k++)
      there |= unsigned(position + k * at_once < a.part) << k, there_last |= unsigned(position + k * at_once < last)
                                                                             << k;
    const auto existing = [=](const Walk& at) { return at.step + 1 < steps ? there : there_last; };
    const Held* const first = buffer + threadIdx.x;
    ELEMENT* const output = a.output + position * row_stride + pack * WIDTH;
    ELEMENT* target = nullptr;
    Walk reduced, written, queued;
    unsigned reduced_column_tile = 0, written_column_tile = 0;
    Held queue[UNROLLED][INPUTS][HELD];
    OnlineState state[ROWS], all_reduced[ROWS];
#pragma unroll
    for (int i = 0; i < ROWS; i++) state[i] = all_reduced[i] = rule.empty();
#pragma unroll 1
    for (unsigned begin = 0; begin < end; begin += UNROLLED)
#pragma unroll
      for (unsigned u = 0; u < UNROLLED; u++) {
        const unsigned step = begin + u;
        if (step < tiles) {
          Held held[INPUTS][HELD];
          mbarrier_wait_parity(&exchange.full[reduced.slot], reduced.parity);
          take(held, first + reduced.slot * tile, existing(reduced));
          add(state, held);
          if (reduced.advance(steps, kept)) hand_over(state, reduced_column_tile++);
        }
        if (step >= a.delay && (UNROLLED == 1 || step < end)) {
          if (written.step == 0) {
            target = output + exchange.target[written_column_tile % OPEN];
            mbarrier_wait_parity(&exchange.all_reduced[written_column_tile % OPEN], phase(written_column_tile));
#pragma unroll
            for (int i = 0; i < ROWS; i++) all_reduced[i] = results_of(written_column_tile)[pack * ROWS + i];
          }
          const unsigned there = existing(written);
          if constexpr (QUEUE == 0) take(queue[0], first + written.slot * tile, there), leave(written);
          write(all_reduced, queue[u], there, target, apart);
          target += step_stride;
          if (written.advance(steps, kept)) written_column_tile++;
        }
        if constexpr (QUEUE > 0)
          if (step + QUEUE >= a.delay && step + QUEUE < end) {
            take(queue[u], first + queued.slot * tile, existing(queued));
            leave(queued);
            queued.advance(steps, kept);
          }
      }
  }

  // --- reducer warps, which exchange states with those of other blocks; a lane has slot `index` ---

  __device__ __forceinline__ unsigned slots() const { return rows / SLOT_ROWS; }
  static __device__ __forceinline__ Slot slot_of(const OnlineState (&state)[SLOT_ROWS], unsigned number) {
    if constexpr (!SUMS) return to_slot(state[0], number);
    else return to_slot(OnlineState{state[0].sum, state[1].sum}, number);
  }
  static __device__ __forceinline__ void take_slot(const Slot& slot, OnlineState* state) {
    const OnlineState pair = from_slot(slot);
    if constexpr (!SUMS) state[0] = pair;
    else state[0] = {COMPUTE(0), pair.maximum}, state[1] = {COMPUTE(0), pair.sum};
  }

  // The block's part of every column tile.
  __device__ __forceinline__ void publish(unsigned index) const {
    if (index == 0) {
      exchange.first_number = unsigned(atomicAdd(&strided_exchange.arrivals, 1ull) / gridDim.x) * MOST_TURNS + 1;
      mbarrier_arrive(&exchange.opened);
    }
    const unsigned first_number = opened();
#pragma unroll 1
    for (unsigned column_tile = 0; column_tile < column_tiles; column_tile++) {
      if (column_tile >= OPEN)
        mbarrier_wait_parity(&exchange.all_reduced[column_tile % OPEN], phase(column_tile - OPEN));
      mbarrier_wait_parity(&exchange.reduced, column_tile & 1);
      if (index < slots()) {
        OnlineState total[SLOT_ROWS];
#pragma unroll
        for (unsigned i = 0; i < SLOT_ROWS; i++) {
          OnlineState part[WARPS];
#pragma unroll
          for (unsigned warp = 0; warp < WARPS; warp++)
            part[warp] = from_part(parts()[warp * rows + index * SLOT_ROWS + i]);
          total[i] = rule.empty();
          merge(rule, total[i], part);
        }
        write_slot(&strided_exchange.parts[column_tile % OPEN][index / 2][blockIdx.x][index % 2],
                   slot_of(total, first_number + column_tile / OPEN));
      }
      mbarrier_arrive(&exchange.published[column_tile % OPEN]);
    }
  }
  __device__ __forceinline__ unsigned opened() const {
    mbarrier_wait_parity(&exchange.opened, 0);
    return exchange.first_number;
  }
  // Every so-manieth slot of all column tiles, for all blocks.
  __device__ __forceinline__ void merge_for_all(unsigned merger) const {
    const unsigned lane = threadIdx.x & 31, first_number = opened();
    unsigned job = blockIdx.x * ROLE_WARPS + merger;
#pragma unroll 1
    for (unsigned column_tile = 0; column_tile < column_tiles; column_tile++) {
      mbarrier_wait_parity(&exchange.published[column_tile % OPEN],
                           phase(column_tile));  // other blocks do so at about the same time
      const unsigned number = first_number + column_tile / OPEN;
#pragma unroll 1
      for (; job < (column_tile + 1) * slots(); job += gridDim.x * ROLE_WARPS) {
        const unsigned index = job - column_tile * slots();
        OnlineState total[SLOT_ROWS];
        collect(total, strided_exchange.parts[column_tile % OPEN][index / 2], index % 2, number);
        __syncwarp();
        merge_lanes(rule, total, 1, 32);
#pragma unroll
        for (unsigned i = 0; i < SLOT_ROWS; i++) rule.finish(total[i]);
        const Slot slot = slot_of(total, number);
        if (lane < COPIES) write_slot(&strided_exchange.results[column_tile % OPEN][lane][index], slot);
      }
      __syncwarp();
      if (lane == 0) mbarrier_arrive(&exchange.merged[column_tile % OPEN]);
    }
  }
  // A lane's share of the parts of a slot.
  __device__ __forceinline__ void collect(OnlineState (&total)[SLOT_ROWS], const Slot (*parts)[2], unsigned which,
                                          unsigned number) const {
#pragma unroll
    for (unsigned i = 0; i < SLOT_ROWS; i++) total[i] = rule.empty();
#pragma unroll 1
    for (unsigned block = threadIdx.x & 31; block < gridDim.x; block += 32 * BATCH) {
      Slot slot[BATCH];
      read_complete(slot, block, 32, gridDim.x, number, [&](unsigned block) { return &parts[block][which]; });
      OnlineState part[SLOT_ROWS][BATCH];
#pragma unroll
      for (int j = 0; j < BATCH; j++) {
        OnlineState state[SLOT_ROWS];
        take_slot(slot[j], state);
#pragma unroll
        for (unsigned i = 0; i < SLOT_ROWS; i++) part[i][j] = block + 32 * j < gridDim.x ? state[i] : rule.empty();
      }
#pragma unroll
      for (unsigned i = 0; i < SLOT_ROWS; i++) merge(rule, total[i], part[i]);
    }
  }
  __device__ __forceinline__ void receive(unsigned index) const {
    const unsigned first_number = opened();
#pragma unroll 1
    for (unsigned column_tile = 0; column_tile < column_tiles; column_tile++) {
      mbarrier_wait_parity(&exchange.merged[column_tile % OPEN],
                           phase(column_tile));  // other blocks do so at about the same time
      if (index < slots()) {
        Slot slot;
        do slot = read_slot(&strided_exchange.results[column_tile % OPEN][blockIdx.x % COPIES][index]);
        while (!holds(slot, first_number + column_tile / OPEN));
        take_slot(slot, results_of(column_tile) + index * SLOT_ROWS);
      }
      mbarrier_arrive(&exchange.all_reduced[column_tile % OPEN]);
    }
  }

  // The barriers that are used. A thread takes one after the other: they are set up one at a time in a warp.
  __device__ __forceinline__ void begin() const {
    const unsigned warp = threadIdx.x >> 5, open = min(column_tiles, OPEN);
    if ((threadIdx.x & 31) == 0) {
#pragma unroll 1
      for (unsigned i = warp; i < min(a.kept, tiles); i += READER + 1) {
        mbarrier_init(&exchange.full[i], 1);
        mbarrier_init(&exchange.empty[i], COMPUTE_THREADS);
      }
      if (warp < open)
        mbarrier_init(&exchange.published[warp], ROLE_LANES), mbarrier_init(&exchange.all_reduced[warp], ROLE_LANES),
            mbarrier_init(&exchange.merged[warp], ROLE_WARPS);
      else if (warp == OPEN) mbarrier_init(&exchange.reduced, WARPS * min(a.across, 32u));
      else if (warp == OPEN + 1) mbarrier_init(&exchange.opened, 1);
      else if (warp == OPEN + 2) set_nothing();
      fence_mbarrier_init();
    }
    __syncthreads();
  }
  __device__ __forceinline__ void set_nothing() const {
    Vector nothing;
#pragma unroll
    for (int i = 0; i < WIDTH; i++) nothing.item[i] = store<ELEMENT>(Rule::neutral());
    memcpy(&exchange.nothing, &nothing, sizeof nothing);
  }
  __device__ __forceinline__ void run() const {
    const unsigned warp = threadIdx.x >> 5, reducer = threadIdx.x - COMPUTE_THREADS, role = (warp - WARPS) / ROLE_WARPS;
    Reader reader(a.cache_policy);
    const bool reads = threadIdx.x == 32 * READER;
    if (reads) {
      begin_column_tile(reader);
      if (a.cache_policy) prefetch(reader);
    }
    begin();
    griddepcontrol_wait_before_access(a.output);
    griddepcontrol_launch_dependents();
    if (warp < WARPS) {
      work();
    } else if (reads) {
      read<true>(reader, a.ahead);
      read<false>(reader, tiles);
    } else if (role == 0) {
      publish(reducer);
    } else if (role == 1) {
      merge_for_all(warp % ROLE_WARPS);
    } else if (role == 2) {
      receive(reducer % ROLE_LANES);
    }
  }
};

#define SOFTMAX_PERSISTENT_TMA_STRIDED(direction, rule)                                \
  extern "C" __global__ void __launch_bounds__(PersistentTmaStrided<rule>::THREADS, 1) \
      softmax_persistent_tma_strided_##direction(const Arguments<rule::INPUTS> a) {    \
    griddepcontrol_wait_deferred();                                                    \
    PersistentTmaStrided<rule>(a).run();                                               \
  }

SOFTMAX_PERSISTENT_TMA_STRIDED(forward, Forward)
SOFTMAX_PERSISTENT_TMA_STRIDED(backward, Backward)
