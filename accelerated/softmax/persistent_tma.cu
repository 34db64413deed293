// Softmax over long lines of whole packs that lie at the same places in all operands, forward (3.2.96) and backward (4.1.19), in a stream.
// Floor: bytes, each moves once. softmax/persistent.cuh says how it works, what limits and what was reached.
//
// TMA brings the tiles: a warp asks for each as soon as its place is free and few others are in flight, and
// the workers spend instructions on arithmetic alone: 130 of a warp for a tile of floats, 230 for one of halves. A tile is written
// `delay` steps after it took part in the statistic, as there. QUEUE tiles of them are in registers: a worker walks the tiles in
// turns, each of which has registers of its own.
//
// Measured (H200). Barriers are set up one at a time in a warp: a warp that set up all made every launch 0.5 us longer. What is
// read gives way in the cache to what is written: that takes 2 to 4 % less time, and the next kernel finds it there. Without the
// cooperative launch 0.1 to 0.9 us less, but blocks of two launches could wait for each other for ever. Tried: writing as soon as a
// result was there, up to 5 % longer (one row of ten: 1 % less); clusters that agree through their shared memory, up to twice
// as long: of those that the multiprocessors would make up some began when others had ended; in groups of more than 8 blocks every
// block merging all parts itself, 3 to 6 % longer; two warps that merge instead of three, 3 to 6 % longer for 64 lines; loads that
// the cache keeps (evict_last), up to 5 % less where the same tensor is read again and again, which nobody does (nor does it help others
// that an eighth or a quarter of what is read stays). Without gain: other numbers of tiles asked for ahead, shorter rests of who waits for a
// result, other blocks side by side, the next kernel let in at the end. The link between
// the halves of the cache is busy for 88 % of the time (8 x 64 x 16 x 56 x 56 halves backward), warps issue in half of all cycles. To ask
// the cache for the first tiles before the wait saves 0.4 to 0.6 us of tensors of 60 to 160 MB (PASSING); of others it costs up to 3 %.
#include "softmax/persistent.cuh"

constexpr unsigned ASKED_TILES = 3;  // in L2, before the wait

// Writes a pack as the policy says.
#ifdef EMULATED_CUDA
inline void store_with(L2CachePolicy, Pack<unsigned, 4>* target, Pack<unsigned, 4> pack) { *target = pack; }
#else
__device__ __forceinline__ void store_with(L2CachePolicy policy, Pack<unsigned, 4>* target, Pack<unsigned, 4> pack) {
  asm volatile("st.global.L2::cache_hint.v4.b32 [%0], {%1, %2, %3, %4}, %5;"
               ::"l"(target), "r"(pack.item[0]), "r"(pack.item[1]), "r"(pack.item[2]), "r"(pack.item[3]), "l"(policy.bits) : "memory");
}
#endif

// The compiler keeps the values instead of finding them anew where they are used.
template <class... T> __device__ __forceinline__ void stay_in_registers(T&... values) {
#ifndef EMULATED_CUDA
  (..., [](auto& value) { asm("" : "+r"(value)); }(values));
#endif
}

template <class Rule> struct WholeStream : Stream<Rule, false, true> {
  using Base = Stream<Rule, false, true>;
  using Base::a, Base::rule, Base::exchange, Base::bundles, Base::group, Base::groups, Base::member, Base::OPEN, Base::phase, Base::COLLECTORS;
  using typename Base::Place;
  using Held = Pack<unsigned, 4>;  // a pack as it lies
  static constexpr int INPUTS = Rule::INPUTS, HELD = STREAM_PACKS / INPUTS;  // packs of each input that a worker has in a tile
  static_assert(HELD <= 2);
  static constexpr unsigned WARPS = WORKERS / 32, TURNS = QUEUE > 0 ? QUEUE : 1;
  struct Ring { Mbarrier full[MOST_TILES], empty[MOST_TILES]; };

  Ring& ring;
  const L2CachePolicy reads, writes;  // a.passing: 0: as usual; else 1 + 2 * sixteenths of what is written that stay, all else passes
  unsigned packs;                   // of a line

  static __device__ __forceinline__ unsigned bytes_of_tiles(const Arguments<INPUTS>& a) { return a.kept * INPUTS * a.part * unsigned(sizeof(Held)); }
  __device__ __forceinline__ WholeStream(const Arguments<INPUTS>& a)
      : Base(a, bytes_of_tiles(a) + sizeof(Ring)), ring(*reinterpret_cast<Ring*>(shared_memory + bytes_of_tiles(a))),
        reads(l2_cache_policy(a.passing == 0)), writes(l2_cache_policy(a.passing == 0, a.passing >> 1)), packs(a.along.row / WIDTH) {}

  // How tiles follow each other. In registers: to find it anew for every tile takes more instructions than there are to spare.
  struct Pace {
    unsigned part, tile, ring, kept, steps;
    int stride, start;  // of packs left: from tile to tile, at first
    __device__ __forceinline__ Pace(const WholeStream& stream, unsigned first)
        : part(stream.a.part), tile(INPUTS * part), ring(stream.a.kept * tile), kept(stream.a.kept), steps(stream.a.steps),
          stride(stream.a.team * stream.a.part), start(int(stream.packs) - int(stream.member * stream.a.part + first)) {
      stay_in_registers(part, tile, ring, kept, steps, stride, start);
    }
  };
  // A walk through the tiles of the block, as the warp that reads sees them, or a worker, from its first pack on.
  struct Cursor {
    unsigned bundle = 0, step = 0, slot = 0, parity = 0;
    int left;      // packs of the line from here on
    Held* places;  // in shared memory
    __device__ __forceinline__ Cursor(const Pace& pace, unsigned first) : left(pace.start), places(reinterpret_cast<Held*>(shared_memory) + first) {}
    __device__ __forceinline__ void advance(const Pace& pace) {
      left -= pace.stride, places += pace.tile;
      if (++step == pace.steps) step = 0, bundle++, left = pace.start;
      if (++slot == pace.kept) slot = 0, parity ^= 1, places -= pace.ring;
    }
  };
  __device__ __forceinline__ unsigned tiles() const { return bundles * a.steps; }
  // The packs of a line that the block has first of all.
  template <class T> __device__ __forceinline__ auto packs_of(T* tensor, unsigned bundle, int operand) const {
    using Packs = std::conditional_t<std::is_const_v<T>, const Held, Held>;
    return reinterpret_cast<Packs*>(tensor + (group + bundle * groups) * a.lines.row_stride[operand]) + member * a.part;
  }

  // One thread asks for tiles.
  struct Reader {
    const Pace pace;
    Cursor at, arriving;
    unsigned next = 0;
    __device__ __forceinline__ explicit Reader(const WholeStream& stream) : pace(stream, 0), at(pace, 0), arriving(at) {}
  };
  __device__ __forceinline__ void read(Reader& reader, unsigned end) const {
    Cursor& at = reader.at;
#pragma unroll 1
    for (; reader.next < end; reader.next++) {
      // More in flight at once would be brought in turns, the first of them late.
      if (reader.next >= a.ahead) mbarrier_wait_parity(&ring.full[reader.arriving.slot], reader.arriving.parity), reader.arriving.advance(reader.pace);
      if (reader.next >= a.kept) mbarrier_wait_parity(&ring.empty[at.slot], at.parity ^ 1);
      Mbarrier* const full = &ring.full[at.slot];
      const int count = min(int(a.part), at.left);
      if (count > 0) {
        const unsigned bytes = count * unsigned(sizeof(Held));
        mbarrier_arrive_expect_tx(full, INPUTS * bytes);
#pragma unroll
        for (int n = 0; n < INPUTS; n++)
          tma_load_bulk(at.places + n * a.part, packs_of(a.input[n], at.bundle, n) + at.step * a.team * a.part, bytes, full, reads);
      } else {
        mbarrier_arrive(full);
      }
      at.advance(reader.pace);
    }
  }

  // Asks L2 for the first tiles.
  __device__ __forceinline__ void ask_ahead(const Pace& pace) const {
    Cursor at(pace, 0);
#pragma unroll 1
    for (unsigned i = 0; i < min(ASKED_TILES, tiles()); i++) {
      const int packs = min(int(a.part), at.left);
      if (packs > 0)
#pragma unroll
        for (int n = 0; n < INPUTS; n++) tma_prefetch_l2(packs_of(a.input[n], at.bundle, n) + at.step * a.team * a.part, packs * unsigned(sizeof(Held)));
      at.advance(pace);
    }
  }

  // Adds packs that may raise the maximum; that of pairs is found in pairs.
  __device__ __forceinline__ void add(Statistic (&statistic)[1], const Held (&held)[INPUTS][HELD]) const {
    COMPUTE values[INPUTS][HELD * WIDTH];
#pragma unroll
    for (int n = 0; n < INPUTS; n++)
#pragma unroll
      for (int k = 0; k < HELD; k++) unpack(reinterpret_cast<const Place*>(&held[n][k]), &values[n][k * WIDTH]);
    if constexpr (PAIRED && INPUTS == 1) {
      Pair top(held[0][0].item[0]);
#pragma unroll
      for (int i = 1; i < HELD * 4; i++) top.pair = __hmax2(top.pair, Pair(held[0][i / 4].item[i % 4]).pair);
      const float2 tops = both(top.pair);
      const COMPUTE greatest[1][1] = {{max(tops.x, tops.y)}};
      rule.cover(statistic, greatest);
      rule.add_covered(statistic, values);
    } else {
      rule.add(statistic, values);
    }
  }
  // Writes N packs, WORKERS apart. They lie `along` apart, those of different inputs `across`.
  template <int N> __device__ __forceinline__ void write(const Statistic (&line)[1], const Held* places, unsigned across, unsigned along, Held* target) const {
    COMPUTE values[INPUTS][N * WIDTH], result[N * WIDTH];
#pragma unroll
    for (int n = 0; n < INPUTS; n++)
#pragma unroll
      for (int k = 0; k < N; k++) unpack(reinterpret_cast<const Place*>(places + n * across + k * along), &values[n][k * WIDTH]);
    rule.results(line, values, result);
    if (a.beta != COMPUTE(0)) {
      COMPUTE prior[N * WIDTH];
#pragma unroll
      for (int k = 0; k < N; k++) unpack(reinterpret_cast<const Place*>(target + k * WORKERS), &prior[k * WIDTH]);
#pragma unroll
      for (int i = 0; i < N * WIDTH; i++) result[i] += a.beta * prior[i];
    }
#pragma unroll
    for (int k = 0; k < N; k++) {
      COMPUTE of_pack[WIDTH];
#pragma unroll
      for (int i = 0; i < WIDTH; i++) of_pack[i] = result[k * WIDTH + i];
      Held pack;
      ::pack(of_pack, reinterpret_cast<Place*>(&pack));
      store_with(writes, target + k * WORKERS, pack);
    }
  }
  // The packs that a worker has in a tile, `exist` packs from its first one to the tile's end; what does not exist is neutral.
  __device__ __forceinline__ void take(Held (&held)[INPUTS][HELD], const Held* places, unsigned part, int exist) const {
    if (int((HELD - 1) * WORKERS) < exist) {
#pragma unroll
      for (int n = 0; n < INPUTS; n++)
#pragma unroll
        for (int k = 0; k < HELD; k++) held[n][k] = places[n * part + k * WORKERS];
    } else {
      Place nothing;
#pragma unroll
      for (int i = 0; i < WIDTH; i++) nothing.item[i] = store<ELEMENT>(Rule::neutral());
#pragma unroll
      for (int n = 0; n < INPUTS; n++)
#pragma unroll
        for (int k = 0; k < HELD; k++) {
          memcpy(&held[n][k], &nothing, sizeof nothing);
          if (k + 1 < HELD && int(k * WORKERS) < exist) held[n][k] = places[n * part + k * WORKERS];
        }
    }
  }

  __device__ __forceinline__ void work() const {
    const unsigned first = threadIdx.x, tiles = this->tiles();
    const Pace pace(*this, first);
    int of_tile = int(a.part) - int(first);
    stay_in_registers(of_tile);
    Cursor reduced(pace, first), written(reduced);
    [[maybe_unused]] Cursor queued(reduced);
    [[maybe_unused]] Held queue[TURNS][INPUTS][HELD];
    Statistic statistic[1] = {rule.empty()}, agreed[1] = {rule.empty()};
    Held* target = nullptr;
#pragma unroll 1
    for (unsigned begin = 0; begin < tiles + a.delay; begin += TURNS)
#pragma unroll
      for (unsigned turn = 0; turn < TURNS; turn++) {
        const unsigned step = begin + turn;
        if (step < tiles) {
          Held held[INPUTS][HELD];
          mbarrier_wait_parity(&ring.full[reduced.slot], reduced.parity);
          take(held, reduced.places, pace.part, min(reduced.left, of_tile));
          add(statistic, held);
          if (reduced.step == pace.steps - 1) {
            hand_over(statistic, reduced.bundle);
          }
          reduced.advance(pace);
        }
        if (step >= a.delay && (TURNS == 1 || step < tiles + a.delay)) {
          if (written.step == 0) {
            mbarrier_wait_parity(&exchange.agreed[written.bundle % OPEN], phase(written.bundle, OPEN));
            agreed[0] = this->lines_of(written.bundle)[0];
            target = packs_of(a.output, written.bundle, INPUTS) + first;
          }
          const int exist = min(written.left, of_tile);
          if constexpr (QUEUE > 0) {
            if (int((HELD - 1) * WORKERS) < exist) write<HELD>(agreed, queue[turn][0], HELD, 1, target);
            else if (HELD > 1 && 0 < exist) write<1>(agreed, queue[turn][0], HELD, 1, target);
          } else {
            if (int((HELD - 1) * WORKERS) < exist) write<HELD>(agreed, written.places, pace.part, WORKERS, target);
            else if (HELD > 1 && 0 < exist) write<1>(agreed, written.places, pace.part, WORKERS, target);
            leave(written);
          }
          target += pace.stride;
          written.advance(pace);
        }
        if constexpr (QUEUE > 0) {
          if (step + QUEUE >= a.delay && queued.bundle < bundles) {
            take(queue[turn], queued.places, pace.part, min(queued.left, of_tile));
            leave(queued);
            queued.advance(pace);
          }
        }
      }
  }
  // A warp needs a tile no more.
  __device__ __forceinline__ void leave(const Cursor& at) const {
    __syncwarp();
    if ((threadIdx.x & 31) == 0) mbarrier_arrive(&ring.empty[at.slot]);
  }
  // Gives a warp's statistic of a line to the warp that publishes, and begins another.
  __device__ __forceinline__ void hand_over(Statistic (&statistic)[1], unsigned i) const {
    if (i >= 2) mbarrier_wait_parity(&exchange.published[(i - 2) % OPEN], phase(i - 2, OPEN));  // which had the same places
    merge_lanes(rule, statistic, 1, 32);
    if ((threadIdx.x & 31) == 0) {
      this->parts_of(i)[threadIdx.x >> 5] = statistic[0];
      mbarrier_arrive(&exchange.reduced[i % 2]);
    }
    statistic[0] = rule.empty();
  }

  // All barriers but those of the first tiles, and of places that no tile leaves. A thread takes one after the other: they are set up one at a
  // time in a warp. (With those places, too, and also without the others that no tile comes to, racecheck reports races where there are fewer tiles
  // than places.)
  __device__ __forceinline__ void begin() const {
    constexpr unsigned ALL = WARPS + COLLECTORS + 2;
    const unsigned warp = threadIdx.x / 32;
    if ((threadIdx.x & 31) == 0) {
#pragma unroll 1
      for (unsigned i = warp; i < a.kept; i += ALL) {
        if (i < tiles()) mbarrier_init(&ring.empty[i], WARPS);
        if (i >= a.ahead) mbarrier_init(&ring.full[i], 1);
      }
      if (warp < OPEN) mbarrier_init(&exchange.published[warp], 32), mbarrier_init(&exchange.agreed[warp], 32);
      else if (warp < OPEN + 2) mbarrier_init(&exchange.reduced[warp - OPEN], WARPS);
      else if (warp == OPEN + 2) mbarrier_init(&exchange.opened, 1);
      fence_mbarrier_init();
    }
    __syncthreads();
  }
  __device__ __forceinline__ void run() const {
    const unsigned helper = threadIdx.x / 32 - WARPS, lane = threadIdx.x & 31;
    Reader reader(*this);
    if (helper == COLLECTORS + 1 && lane == 0) {  // reads at once
      if constexpr (PASSING) ask_ahead(reader.pace);
#pragma unroll 1
      for (unsigned i = 0; i < a.ahead; i++) mbarrier_init(&ring.full[i], 1);
      fence_mbarrier_init();
      griddepcontrol_wait_before_access(a.output);
      read(reader, min(a.ahead, tiles()));
    }
    begin();
    griddepcontrol_wait_before_access(a.output);
    griddepcontrol_launch_dependents();
    if (threadIdx.x < WORKERS) {
      work();
    } else if (helper <= COLLECTORS) {
      this->help(helper);
    } else if (lane == 0) {
      read(reader, tiles());
    }
  }
};

constexpr unsigned WHOLE_THREADS = WORKERS + 32 * (1 + Stream<Forward, false, true>::COLLECTORS + 1);
#define SOFTMAX_WHOLE_STREAM(name, rule)                                                                                    \
  extern "C" __global__ void __launch_bounds__(WHOLE_THREADS, 1) name(const Arguments<rule::INPUTS> a) {                \
    griddepcontrol_wait_deferred();                                                                                            \
    WholeStream<rule>(a).run();                                                                                             \
  }

SOFTMAX_WHOLE_STREAM(softmax_forward_whole_stream, Forward)
SOFTMAX_WHOLE_STREAM(softmax_backward_whole_stream, Backward)
