// Softmax over long columns, forward (3.2.96) and backward (4.1.19), in a stream of whole rows: thousands of positions of few lines each.
//
// There is one persistent block per SM, and all take part in every bundle of columns: `across` packs that lie side by side and are all of a row, so that
// rows follow each other in memory. Of a bundle each block has `steps` tiles of `part` rows, its rows of a step beside those of the next block. A lane asks
// TMA for tiles, `ahead` of them in flight, into a ring of `kept` in shared memory; 8 warps take them into the statistics of their columns
// as soon as they are there, and write them `delay` tiles later, of which they spend the last QUEUE in registers. Meanwhile two warps publish the block's
// statistics, a column each lane; two merge columns for all blocks, of which each block has its share; two receive what others have merged. Of
// gradients one warp does each, with two columns a lane.
//
// All blocks run at the same time (the launch is cooperative), so that none waits for one that does not run. Each takes half of the shared memory
// of its multiprocessor or more, so the board through which they agree belongs to one launch at a time, whatever stream it is in: a block of the
// next one begins where one of this has ended, which has received all columns, for which all blocks have published and all mergers read.
//
// Floor: bytes, as in softmax/staged.cu, and each moves once. What limits (H200, 4 x 32000 x 8 x 8 float; clocks read in the kernel): forward 17.9 us where a copy takes 15.4:
// 1.4 us until the first tile is there, 8.5 of reads, because the cache writes what the launch before has left in it, 6 of writes at the cache's pace (4.9 TB/s, of stores or of
// bulk copies), 0.7 in which they wait for the last statistic. Backward 25.8 us: each tile more between statistic and result takes 0.5 to 1 us off, because blocks agree slowly: the
// last one publishes 1 to 2 us behind the first, merging that and hearing of it take 3. Probably each of the four messages
// of an agreement waits behind the 47 KB that are in flight to every block. Halves forward 14 us (7.7), of which instructions take 9.
//
// Workers are few because each hands a bundle over in 110 instructions: of 16 warps that took 0.33 us, in which no tile was taken in (0.2 and 0.5 us of a launch). What is merged is written for some
// blocks at a time: with a place for every block forward takes 18.2 and backward 26.5 us, with one for all 18.1 and more. Without handing over, publishing, merging and receiving forward
// takes 15.9 us; with all that but without waiting for it, 17.8.
//
// The same with a warp that reads, rows tested one by one, and blocks that tell the next launch that they have left the board (0.3 us of it) took 20.0 us forward; with a few registers
// too many, 21 to 23.5. With 2, 4 or 5 tiles in flight instead of 3: 5 to 7 % longer; more of them asked for in L2, with 1, 2 or 3 in flight, 1 to 30 %; without tiles in
// registers 5 to 10 %; with more of them in registers that other warps give up, nothing; results that leave the cache first, or stay in part, 1 to 10 %; reads that stay, 6 to 12 %.
// Gradients of halves take 18.1 us, held columns 14.9.
//
// Tried later, each beside the unchanged kernel (backward 29.9, forward 18.8): bundles of half a row, in boxes of a tensor map, 10 and 9 % longer, without waiting, too; tiles of the last bundle that are
// read again from the cache, so that others are left to be written while blocks agree, 2 to 9 %; writes that pause while the last tiles are read, 2 %; last tiles of equal size, 0 to 1 %; the last bundle asked for
// ahead in the cache, 1 to 9 %; 2 to 8 sixteenths of the reads that stay, 1 to 6 %, with other buffers in turns as well; mergers that take two slots at once, 2 and 13 %; a column's parts
// side by side, 0 and 2 %; forward with one warp for each of the three, too, and up to two more tiles in registers, 1 to 5 %; tiles that registers pass on instead of a walk in turns, 6 to 10 %; whatever comes first,
// a tile or a statistic, taken first, 4 % and more; earlier writes, 1 to 15 %; tiles that blocks claim as they need them, which would sum in another order each time, 1 to 3 % without any agreement. Nothing: the first reads before
// all barriers, the board fetched into the cache at the beginning, beta known to the compiler, code executed once before it is needed,
// rests of 20 to 400 ns between looks at slots, slots brought by TMA, tiles asked for in two halves.
#include "softmax/grid_exchange.cuh"
#include "primitives/tma.cuh"

// As in softmax_streams.py
constexpr unsigned OPEN_BUNDLES = 8;  // between the first read and the last write
constexpr unsigned COLUMN_WORKERS = 256, COLUMN_PACKS = 4;  // of a block; that a worker takes in a step, of all inputs together
constexpr unsigned COPIES = 4;  // of what was merged: blocks take them in turns

// A place is free again when it is used: a block publishes bundle i + OPEN_BUNDLES when it has received bundle i, for which others have read what all had
// published. Numbers are those of rounds of places, of all launches ever. Slots are in pairs, so that warps write sectors of the cache.
struct ColumnBoard {
  Slot parts[OPEN_BUNDLES][MOST_COLUMNS / 2][MOST_BLOCKS][2];
  Slot results[OPEN_BUNDLES][COPIES][MOST_COLUMNS];
  unsigned long long arrivals;  // of blocks, of all launches ever
};
__device__ ColumnBoard board_of_whole_columns;

template <class Rule> struct WholeColumns {
  static constexpr int INPUTS = Rule::INPUTS, HELD = COLUMN_PACKS / INPUTS, LANES = WIDTH;  // packs of each input that a worker has in a tile
  static constexpr unsigned WARPS = COLUMN_WORKERS / 32, OPEN = OPEN_BUNDLES;
  static constexpr unsigned QUEUE = sizeof(ELEMENT) < 4 ? 0 : INPUTS == 1 ? 3 : 7, TURNS = QUEUE > 0 ? QUEUE : 1;  // tiles in registers, as in softmax_streams.py
  using Place = Elements<WIDTH>;
  using Held = Pack<unsigned, 4>;  // a pack as it lies
  // Gradients have no maxima. What a warp hands over of a column, their sums alone, leaves shared memory for one more tile; a slot has the
  // sums of two columns, so that half as many warps publish, merge and receive, and leave registers for two more.
  static constexpr bool SUMS = std::is_same_v<Rule, Backward>;
  using Part = std::conditional_t<SUMS, COMPUTE, Statistic>;
  static constexpr unsigned SLOT_COLUMNS = SUMS ? 2 : 1, ROLE_WARPS = MOST_COLUMNS / SLOT_COLUMNS / 32, ROLE_LANES = 32 * ROLE_WARPS;
  static constexpr unsigned READER = WARPS + 3 * ROLE_WARPS, THREADS = 32 * (READER + 1);  // a warp; of a block

  // Behind the tiles in shared memory; statistics of lines and of warps lie behind it. As in softmax_streams.py.
  struct Exchange {
    Held nothing;  // changes no statistic
    Mbarrier full[MOST_TILES], empty[MOST_TILES];
    Mbarrier reduced, opened, published[OPEN], merged[OPEN], agreed[OPEN];
    unsigned first_number, target[OPEN];  // of a bundle's results: elements from the output's first one to the block's first row
  };

  const Arguments<INPUTS>& a;
  const Rule rule;
  const unsigned log_across, columns, bundles;
  const unsigned tile_packs, tiles, last;  // packs of a tile of one input; tiles of the block; rows of a bundle's last tile
  Held* const places;
  Exchange& exchange;

  __device__ __forceinline__ explicit WholeColumns(const Arguments<INPUTS>& arguments)
      : a(arguments), rule{Algorithm(ALGORITHM), a.alpha}, log_across(exponent_of(a.across)), columns(a.across * LANES), bundles(a.lines.packs >> log_across),
        tile_packs(a.part << log_across), tiles(bundles * a.steps), last(rows_of_last(a)), places(reinterpret_cast<Held*>(shared_memory)),
        exchange(*reinterpret_cast<Exchange*>(places + a.kept * INPUTS * tile_packs)) {}
  static __device__ __forceinline__ unsigned rows_of_last(const Arguments<INPUTS>& a) {
    return max(min(int(a.along.row) - int(((a.steps - 1) * gridDim.x + blockIdx.x) * a.part), int(a.part)), 0);
  }
  __device__ __forceinline__ Statistic* lines_of(unsigned bundle) const { return reinterpret_cast<Statistic*>(&exchange + 1) + bundle % OPEN * columns; }
  __device__ __forceinline__ Part* parts() const { return reinterpret_cast<Part*>(lines_of(0) + OPEN * columns); }
  static __device__ __forceinline__ Part to_part(const Statistic& statistic) {
    if constexpr (SUMS) return statistic.sum;
    else return statistic;
  }
  static __device__ __forceinline__ Statistic from_part(const Part& part) {
    if constexpr (SUMS) return {COMPUTE(0), part};
    else return part;
  }
  static __device__ __forceinline__ int phase(unsigned bundle) { return bundle / OPEN & 1; }

  // A walk through the tiles of the block.
  struct Walk {
    unsigned step = 0, slot = 0, parity = 0;
    // Whether another bundle begins.
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
    unsigned bundle = 0, next = 0;
    const ELEMENT* from[INPUTS];
    const L2CachePolicy policy;
    __device__ __forceinline__ explicit Reader(unsigned passing) : policy(l2_cache_policy(passing == 0)) {}
  };
  // Where the block's rows of a bundle begin; those of the first one do where the operands do.
  __device__ __forceinline__ void begin_bundle(Reader& reader) const {
    unsigned offset[INPUTS + 1] = {};
    if (reader.bundle > 0) a.lines.locate(reader.bundle << log_across, offset);
#pragma unroll
    for (int n = 0; n <= INPUTS; n++) offset[n] += blockIdx.x * a.part * unsigned(a.along.row_stride[n]);
#pragma unroll
    for (int n = 0; n < INPUTS; n++) reader.from[n] = a.input[n] + offset[n];
    exchange.target[reader.bundle % OPEN] = offset[INPUTS];
  }
  __device__ __forceinline__ unsigned bytes_of(unsigned step) const { return (step + 1 < a.steps ? a.part : last) * a.across * unsigned(sizeof(Held)); }
  __device__ __forceinline__ unsigned stride() const { return gridDim.x * a.part * columns; }  // elements of an input from tile to tile
  __device__ __forceinline__ void ask_ahead(const Reader& reader) const {
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
      Held* const to = places + reader.at.slot * INPUTS * tile_packs;
      if (bytes > 0) {
        mbarrier_arrive_expect_tx(full, INPUTS * bytes);
#pragma unroll
        for (int n = 0; n < INPUTS; n++) tma_load_bulk(to + n * tile_packs, reader.from[n], bytes, full, reader.policy);
      } else {
        mbarrier_arrive(full);
      }
#pragma unroll
      for (int n = 0; n < INPUTS; n++) reader.from[n] += stride();
      if (reader.at.advance(a.steps, a.kept) && ++reader.bundle < bundles) begin_bundle(reader);
    }
  }

  // --- workers: a pack each of some rows, as tiles lie ---

  // there: bit k: whether the worker's k-th pack exists.
  __device__ __forceinline__ void take(Held (&held)[INPUTS][HELD], const Held* first, unsigned there) const {
#pragma unroll
    for (int n = 0; n < INPUTS; n++)
#pragma unroll
      for (int k = 0; k < HELD; k++) held[n][k] = *(there >> k & 1 ? first + n * tile_packs + k * COLUMN_WORKERS : &exchange.nothing);
  }
  __device__ __forceinline__ void add(Statistic (&statistic)[LANES], const Held (&held)[INPUTS][HELD]) const {
    COMPUTE values[INPUTS][HELD * WIDTH];
#pragma unroll
    for (int n = 0; n < INPUTS; n++)
#pragma unroll
      for (int k = 0; k < HELD; k++) unpack(reinterpret_cast<const Place*>(&held[n][k]), &values[n][k * WIDTH]);
    rule.add(statistic, values);
  }
  // apart: elements of the output from one pack to the next.
  __device__ __forceinline__ void write(const Statistic (&line)[LANES], const Held (&held)[INPUTS][HELD], unsigned there, ELEMENT* target, unsigned apart) const {
#pragma unroll
    for (int k = 0; k < HELD; k++) {
      COMPUTE values[INPUTS][WIDTH], result[WIDTH];
#pragma unroll
      for (int n = 0; n < INPUTS; n++) unpack(reinterpret_cast<const Place*>(&held[n][k]), values[n]);
      rule.results(line, values, result);
      Place* const to = reinterpret_cast<Place*>(target + k * apart);
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
  // A worker needs a tile no more. All arrive for themselves, as those who hand over do: one or four lanes of a warp, behind __syncwarp, a
  // shuffle or a vote, took as long, and racecheck reported races of all these that the barriers exclude.
  __device__ __forceinline__ void leave(const Walk& at) const { mbarrier_arrive(&exchange.empty[at.slot]); }
  // Gives a warp's statistics of a bundle to those who publish, and begins others.
  __device__ __forceinline__ void hand_over(Statistic (&statistic)[LANES], unsigned bundle) const {
    const unsigned lane = threadIdx.x & 31;
    if (bundle > 0) mbarrier_wait_parity(&exchange.published[(bundle - 1) % OPEN], phase(bundle - 1));  // which had the same places
    merge_lanes(rule, statistic, a.across, 32);
    if (lane < a.across) {
#pragma unroll
      for (int i = 0; i < LANES; i++) parts()[(threadIdx.x >> 5) * columns + lane * LANES + i] = to_part(statistic[i]);
      mbarrier_arrive(&exchange.reduced);
    }
#pragma unroll
    for (int i = 0; i < LANES; i++) statistic[i] = rule.empty();
  }
  __device__ __forceinline__ void work() const {
    const unsigned column = threadIdx.x & (a.across - 1), row = threadIdx.x >> log_across, at_once = COLUMN_WORKERS >> log_across;
    const unsigned row_stride = a.along.row_stride[INPUTS], apart = at_once * row_stride, step_stride = gridDim.x * a.part * row_stride;
    const unsigned steps = a.steps, kept = a.kept, tile = INPUTS * tile_packs, end = tiles + a.delay;
    unsigned there = 0, there_last = 0;
#pragma unroll
    for (int k = 0; k < HELD; k++) there |= unsigned(row + k * at_once < a.part) << k, there_last |= unsigned(row + k * at_once < last) << k;
    const auto existing = [=](const Walk& at) { return at.step + 1 < steps ? there : there_last; };
    const Held* const first = places + threadIdx.x;
    ELEMENT* const output = a.output + row * row_stride + column * WIDTH;
    ELEMENT* target = nullptr;
    Walk reduced, written, queued;
    unsigned reduced_bundle = 0, written_bundle = 0;
    Held queue[TURNS][INPUTS][HELD];
    Statistic statistic[LANES], agreed[LANES];
#pragma unroll
    for (int i = 0; i < LANES; i++) statistic[i] = agreed[i] = rule.empty();
#pragma unroll 1
    for (unsigned begin = 0; begin < end; begin += TURNS)
#pragma unroll
      for (unsigned turn = 0; turn < TURNS; turn++) {
        const unsigned step = begin + turn;
        if (step < tiles) {
          Held held[INPUTS][HELD];
          mbarrier_wait_parity(&exchange.full[reduced.slot], reduced.parity);
          take(held, first + reduced.slot * tile, existing(reduced));
          add(statistic, held);
          if (reduced.advance(steps, kept)) hand_over(statistic, reduced_bundle++);
        }
        if (step >= a.delay && (TURNS == 1 || step < end)) {
          if (written.step == 0) {
            target = output + exchange.target[written_bundle % OPEN];
            mbarrier_wait_parity(&exchange.agreed[written_bundle % OPEN], phase(written_bundle));
#pragma unroll
            for (int i = 0; i < LANES; i++) agreed[i] = lines_of(written_bundle)[column * LANES + i];
          }
          const unsigned there = existing(written);
          if constexpr (QUEUE == 0) take(queue[0], first + written.slot * tile, there), leave(written);
          write(agreed, queue[turn], there, target, apart);
          target += step_stride;
          if (written.advance(steps, kept)) written_bundle++;
        }
        if constexpr (QUEUE > 0)
          if (step + QUEUE >= a.delay && step + QUEUE < end) {
            take(queue[turn], first + queued.slot * tile, existing(queued));
            leave(queued);
            queued.advance(steps, kept);
          }
      }
  }

  // --- warps that agree with those of other blocks; a lane has slot `index` ---

  __device__ __forceinline__ unsigned slots() const { return columns / SLOT_COLUMNS; }
  static __device__ __forceinline__ Slot slot_of(const Statistic (&line)[SLOT_COLUMNS], unsigned number) {
    if constexpr (!SUMS) return to_slot(line[0], number);
    else return to_slot({line[0].sum, line[1].sum}, number);
  }
  static __device__ __forceinline__ void take_slot(const Slot& slot, Statistic* line) {
    const Statistic pair = from_slot(slot);
    if constexpr (!SUMS) line[0] = pair;
    else line[0] = {COMPUTE(0), pair.top}, line[1] = {COMPUTE(0), pair.sum};
  }

  // The block's part of every bundle.
  __device__ __forceinline__ void publish(unsigned index) const {
    if (index == 0) {
      exchange.first_number = unsigned(atomicAdd(&board_of_whole_columns.arrivals, 1ull) / gridDim.x) * MOST_ROUNDS + 1;
      mbarrier_arrive(&exchange.opened);
    }
    const unsigned first_number = opened();
#pragma unroll 1
    for (unsigned bundle = 0; bundle < bundles; bundle++) {
      if (bundle >= OPEN) mbarrier_wait_parity(&exchange.agreed[bundle % OPEN], phase(bundle - OPEN));
      mbarrier_wait_parity(&exchange.reduced, bundle & 1);
      if (index < slots()) {
        Statistic total[SLOT_COLUMNS];
#pragma unroll
        for (unsigned i = 0; i < SLOT_COLUMNS; i++) {
          Statistic part[WARPS];
#pragma unroll
          for (unsigned warp = 0; warp < WARPS; warp++) part[warp] = from_part(parts()[warp * columns + index * SLOT_COLUMNS + i]);
          total[i] = rule.empty();
          merge(rule, total[i], part);
        }
        write_slot(&board_of_whole_columns.parts[bundle % OPEN][index / 2][blockIdx.x][index % 2], slot_of(total, first_number + bundle / OPEN));
      }
      mbarrier_arrive(&exchange.published[bundle % OPEN]);
    }
  }
  __device__ __forceinline__ unsigned opened() const {
    mbarrier_wait_parity(&exchange.opened, 0);
    return exchange.first_number;
  }
  // Every so-manieth slot of all bundles, for all blocks.
  __device__ __forceinline__ void merge_for_all(unsigned merger) const {
    const unsigned lane = threadIdx.x & 31, first_number = opened();
    unsigned job = blockIdx.x * ROLE_WARPS + merger;
#pragma unroll 1
    for (unsigned bundle = 0; bundle < bundles; bundle++) {
      mbarrier_wait_parity(&exchange.published[bundle % OPEN], phase(bundle));  // other blocks do so at about the same time
      const unsigned number = first_number + bundle / OPEN;
#pragma unroll 1
      for (; job < (bundle + 1) * slots(); job += gridDim.x * ROLE_WARPS) {
        const unsigned index = job - bundle * slots();
        Statistic total[SLOT_COLUMNS];
        collect(total, board_of_whole_columns.parts[bundle % OPEN][index / 2], index % 2, number);
        __syncwarp();
        merge_lanes(rule, total, 1, 32);
#pragma unroll
        for (unsigned i = 0; i < SLOT_COLUMNS; i++) rule.finish(total[i]);
        const Slot slot = slot_of(total, number);
        if (lane < COPIES) write_slot(&board_of_whole_columns.results[bundle % OPEN][lane][index], slot);
      }
      __syncwarp();
      if (lane == 0) mbarrier_arrive(&exchange.merged[bundle % OPEN]);
    }
  }
  // A lane's share of the parts of a slot.
  __device__ __forceinline__ void collect(Statistic (&total)[SLOT_COLUMNS], const Slot (*parts)[2], unsigned which, unsigned number) const {
#pragma unroll
    for (unsigned i = 0; i < SLOT_COLUMNS; i++) total[i] = rule.empty();
#pragma unroll 1
    for (unsigned block = threadIdx.x & 31; block < gridDim.x; block += 32 * BATCH) {
      Slot slot[BATCH];
      read_complete(slot, block, 32, gridDim.x, number, [&](unsigned block) { return &parts[block][which]; });
      Statistic part[SLOT_COLUMNS][BATCH];
#pragma unroll
      for (int j = 0; j < BATCH; j++) {
        Statistic line[SLOT_COLUMNS];
        take_slot(slot[j], line);
#pragma unroll
        for (unsigned i = 0; i < SLOT_COLUMNS; i++) part[i][j] = block + 32 * j < gridDim.x ? line[i] : rule.empty();
      }
#pragma unroll
      for (unsigned i = 0; i < SLOT_COLUMNS; i++) merge(rule, total[i], part[i]);
    }
  }
  __device__ __forceinline__ void receive(unsigned index) const {
    const unsigned first_number = opened();
#pragma unroll 1
    for (unsigned bundle = 0; bundle < bundles; bundle++) {
      mbarrier_wait_parity(&exchange.merged[bundle % OPEN], phase(bundle));  // other blocks do so at about the same time
      if (index < slots()) {
        Slot slot;
        do slot = read_slot(&board_of_whole_columns.results[bundle % OPEN][blockIdx.x % COPIES][index]);
        while (!holds(slot, first_number + bundle / OPEN));
        take_slot(slot, lines_of(bundle) + index * SLOT_COLUMNS);
      }
      mbarrier_arrive(&exchange.agreed[bundle % OPEN]);
    }
  }

  // The barriers that are used. A thread takes one after the other: they are set up one at a time in a warp.
  __device__ __forceinline__ void begin() const {
    const unsigned warp = threadIdx.x >> 5, open = min(bundles, OPEN);
    if ((threadIdx.x & 31) == 0) {
#pragma unroll 1
      for (unsigned i = warp; i < min(a.kept, tiles); i += READER + 1) {
        mbarrier_init(&exchange.full[i], 1);
        mbarrier_init(&exchange.empty[i], COLUMN_WORKERS);
      }
      if (warp < open) mbarrier_init(&exchange.published[warp], ROLE_LANES), mbarrier_init(&exchange.agreed[warp], ROLE_LANES), mbarrier_init(&exchange.merged[warp], ROLE_WARPS);
      else if (warp == OPEN) mbarrier_init(&exchange.reduced, WARPS * min(a.across, 32u));
      else if (warp == OPEN + 1) mbarrier_init(&exchange.opened, 1);
      else if (warp == OPEN + 2) set_nothing();
      fence_mbarrier_init();
    }
    __syncthreads();
  }
  __device__ __forceinline__ void set_nothing() const {
    Place nothing;
#pragma unroll
    for (int i = 0; i < WIDTH; i++) nothing.item[i] = store<ELEMENT>(Rule::neutral());
    memcpy(&exchange.nothing, &nothing, sizeof nothing);
  }
  __device__ __forceinline__ void run() const {
    const unsigned warp = threadIdx.x >> 5, helper = threadIdx.x - COLUMN_WORKERS, role = (warp - WARPS) / ROLE_WARPS;
    Reader reader(a.passing);
    const bool reads = threadIdx.x == 32 * READER;
    if (reads) {
      begin_bundle(reader);
      if (a.passing) ask_ahead(reader);
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
      publish(helper % ROLE_LANES);
    } else if (role == 1) {
      merge_for_all(warp % ROLE_WARPS);
    } else if (role == 2) {
      receive(helper % ROLE_LANES);
    }
  }
};

#define SOFTMAX_WHOLE_COLUMNS(name, rule)                                                          \
  extern "C" __global__ void __launch_bounds__(WholeColumns<rule>::THREADS, 1) name(const Arguments<rule::INPUTS> a) { \
    griddepcontrol_wait_deferred();                                                                   \
    WholeColumns<rule>(a).run();                                                                   \
  }

SOFTMAX_WHOLE_COLUMNS(softmax_forward_whole_columns, Forward)
SOFTMAX_WHOLE_COLUMNS(softmax_backward_whole_columns, Backward)
