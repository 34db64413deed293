// Softmax over long rows of packs of 16 bytes, forward (3.2.96) and backward (4.1.19), by persistent blocks: reads,
// exchanges and writes overlap.
//
// There is one block per multiprocessor. A producer warp has TMA load tiles, `ahead` of them in flight, into a ring
// of `kept` in shared memory; compute warps add them to the online-softmax state of their row, and write them `delay`
// steps later, of which they may spend the last QUEUE in registers; reducer warps take part in the grid all-reduce
// (softmax/grid_all_reduce.cuh). What is read leaves L2 first (evict_first), what is written stays in part.
//
// Roofline: bytes, each moves once (2 elements forward, 3 backward); some 12 and 10 flops an element: 130
// instructions of a warp for a tile of floats, 230 of half data. Measured (H200): 64x256x56x56 float over instances
// 102.8 us forward, 95 % of the copy's throughput, of which some 4 us of each launch memory is not busy. History, and
// what was tried: docs/performance/softmax.md.
#include "softmax/grid_all_reduce.cuh"

constexpr unsigned PREFETCHED_TILES = 3;  // in L2, before the wait

// Writes a pack as the policy says.
#ifdef EMULATED_CUDA
inline void store_with(L2CachePolicy, Pack<unsigned, 4>* target, Pack<unsigned, 4> pack) { *target = pack; }
#else
__device__ __forceinline__ void store_with(L2CachePolicy policy, Pack<unsigned, 4>* target, Pack<unsigned, 4> pack) {
  asm volatile("st.global.L2::cache_hint.v4.b32 [%0], {%1, %2, %3, %4}, %5;" ::"l"(target), "r"(pack.item[0]),
               "r"(pack.item[1]), "r"(pack.item[2]), "r"(pack.item[3]), "l"(policy.bits)
               : "memory");
}
#endif

// The compiler keeps the values instead of finding them anew where they are used.
template <class... T> __device__ __forceinline__ void keep_in_registers(T&... values) {
#ifndef EMULATED_CUDA
  (..., [](auto& value) { asm("" : "+r"(value)); }(values));
#endif
}

template <class Rule> struct PersistentTma : GridAllReduce<Rule> {
  using Base = GridAllReduce<Rule>;
  using Base::a, Base::rule, Base::exchange, Base::rows, Base::group, Base::groups, Base::member, Base::phase,
      Base::MERGERS;
  using Vector = Elements<WIDTH>;
  using Held = Pack<unsigned, 4>;  // a pack as it lies
  static constexpr int INPUTS = Rule::INPUTS,
                       HELD = TILE_PACKS / INPUTS;  // packs of each input that a compute thread has in a tile
  static_assert(HELD <= 2);
  static constexpr unsigned WARPS = COMPUTE_THREADS / 32, UNROLLED = QUEUE > 0 ? QUEUE : 1;
  struct Ring {
    Mbarrier full[MOST_TILES], empty[MOST_TILES];
  };

  Ring& ring;
  const L2CachePolicy reads,
      writes;      // a.passing: 0: as usual; else 1 + 2 * sixteenths of what is written that stay, all else passes
  unsigned packs;  // of a row

  static __device__ __forceinline__ unsigned bytes_of_tiles(const Arguments<INPUTS>& a) {
    return a.kept * INPUTS * a.part * unsigned(sizeof(Held));
  }
  __device__ __forceinline__ PersistentTma(const Arguments<INPUTS>& a)
      : Base(a, bytes_of_tiles(a) + sizeof(Ring)),
        ring(*reinterpret_cast<Ring*>(shared_memory + bytes_of_tiles(a))),
        reads(l2_cache_policy(a.cache_policy == 0)),
        writes(l2_cache_policy(a.cache_policy == 0, a.cache_policy >> 1)),
        packs(a.along.row / WIDTH) {}

  // How tiles follow each other. In registers: to find it anew for every tile takes more instructions than there are to
  // spare.
  struct Stepping {
    unsigned part, tile, ring, kept, steps;
    int stride, start;  // of packs left: from tile to tile, at first
    __device__ __forceinline__ Stepping(const PersistentTma& stream, unsigned first)
        : part(stream.a.part),
          tile(INPUTS * part),
          ring(stream.a.kept * tile),
          kept(stream.a.kept),
          steps(stream.a.steps),
          stride(stream.a.team * stream.a.part),
          start(int(stream.packs) - int(stream.member * stream.a.part + first)) {
      keep_in_registers(part, tile, ring, kept, steps, stride, start);
    }
  };
  // A walk through the tiles of the block, as the warp that reads sees them, or a compute thread, from its first pack
  // on.
  struct Cursor {
    unsigned row = 0, step = 0, slot = 0, parity = 0;
    int left;      // packs of the row from here on
    Held* buffer;  // in shared memory
    __device__ __forceinline__ Cursor(const Stepping& stepping, unsigned first)
        : left(stepping.start), buffer(reinterpret_cast<Held*>(shared_memory) + first) {}
    __device__ __forceinline__ void advance(const Stepping& stepping) {
      left -= stepping.stride, buffer += stepping.tile;
      if (++step == stepping.steps) step = 0, row++, left = stepping.start;
      if (++slot == stepping.kept) slot = 0, parity ^= 1, buffer -= stepping.ring;
    }
  };
  __device__ __forceinline__ unsigned tiles() const { return rows * a.steps; }
  // The packs of a row that the block has first of all.
  template <class T> __device__ __forceinline__ auto packs_of(T* tensor, unsigned row, int operand) const {
    using Packs = std::conditional_t<std::is_const_v<T>, const Held, Held>;
    return reinterpret_cast<Packs*>(tensor + (group + row * groups) * a.rows.row_stride[operand]) + member * a.part;
  }

  // One thread asks for tiles.
  struct Reader {
    const Stepping stepping;
    Cursor at, arriving;
    unsigned next = 0;
    __device__ __forceinline__ explicit Reader(const PersistentTma& stream)
        : stepping(stream, 0), at(stepping, 0), arriving(at) {}
  };
  __device__ __forceinline__ void read(Reader& reader, unsigned end) const {
    Cursor& at = reader.at;
#pragma unroll 1
    for (; reader.next < end; reader.next++) {
      // More in flight at once would arrive one after the other, the first of them late.
      if (reader.next >= a.ahead)
        mbarrier_wait_parity(&ring.full[reader.arriving.slot], reader.arriving.parity),
            reader.arriving.advance(reader.stepping);
      if (reader.next >= a.kept) mbarrier_wait_parity(&ring.empty[at.slot], at.parity ^ 1);
      Mbarrier* const full = &ring.full[at.slot];
      const int count = min(int(a.part), at.left);
      if (count > 0) {
        const unsigned bytes = count * unsigned(sizeof(Held));
        mbarrier_arrive_expect_tx(full, INPUTS * bytes);
#pragma unroll
        for (int n = 0; n < INPUTS; n++)
          tma_load_bulk(at.buffer + n * a.part, packs_of(a.input[n], at.row, n) + at.step * a.team * a.part, bytes,
                        full, reads);
      } else {
        mbarrier_arrive(full);
      }
      at.advance(reader.stepping);
    }
  }

  // Prefetches into L2 the first tiles.
  __device__ __forceinline__ void prefetch(const Stepping& stepping) const {
    Cursor at(stepping, 0);
#pragma unroll 1
    for (unsigned i = 0; i < min(PREFETCHED_TILES, tiles()); i++) {
      const int packs = min(int(a.part), at.left);
      if (packs > 0)
#pragma unroll
        for (int n = 0; n < INPUTS; n++)
          tma_prefetch_l2(packs_of(a.input[n], at.row, n) + at.step * a.team * a.part, packs * unsigned(sizeof(Held)));
      at.advance(stepping);
    }
  }

  // Adds packs that may raise the maximum; that of pairs is found in pairs.
  __device__ __forceinline__ void add(OnlineState (&state)[1], const Held (&held)[INPUTS][HELD]) const {
    COMPUTE values[INPUTS][HELD * WIDTH];
#pragma unroll
    for (int n = 0; n < INPUTS; n++)
#pragma unroll
      for (int k = 0; k < HELD; k++) unpack(reinterpret_cast<const Vector*>(&held[n][k]), &values[n][k * WIDTH]);
    if constexpr (PAIRED && INPUTS == 1) {
      unsigned maximum = held[0][0].item[0];
#pragma unroll
      for (int i = 1; i < HELD * 4; i++) maximum = max_pair<ELEMENT>(maximum, held[0][i / 4].item[i % 4]);
      const float2 maxima = load_pair<ELEMENT>(maximum);
      const COMPUTE greatest[1][1] = {{max(maxima.x, maxima.y)}};
      rule.cover(state, greatest);
      rule.add_covered(state, values);
    } else {
      rule.add(state, values);
    }
  }
  // Writes N packs, COMPUTE_THREADS apart. They lie `along` apart, those of different inputs `across`.
  template <int N>
  __device__ __forceinline__ void write(const OnlineState (&row)[1], const Held* buffer, unsigned across,
                                        unsigned along, Held* target) const {
    COMPUTE values[INPUTS][N * WIDTH], result[N * WIDTH];
#pragma unroll
    for (int n = 0; n < INPUTS; n++)
#pragma unroll
      for (int k = 0; k < N; k++)
        unpack(reinterpret_cast<const Vector*>(buffer + n * across + k * along), &values[n][k * WIDTH]);
    rule.results(row, values, result);
    if (a.beta != COMPUTE(0)) {
      COMPUTE prior[N * WIDTH];
#pragma unroll
      for (int k = 0; k < N; k++)
        unpack(reinterpret_cast<const Vector*>(target + k * COMPUTE_THREADS), &prior[k * WIDTH]);
#pragma unroll
      for (int i = 0; i < N * WIDTH; i++) result[i] += a.beta * prior[i];
    }
#pragma unroll
    for (int k = 0; k < N; k++) {
      COMPUTE of_pack[WIDTH];
#pragma unroll
      for (int i = 0; i < WIDTH; i++) of_pack[i] = result[k * WIDTH + i];
      Held pack;
      ::pack(of_pack, reinterpret_cast<Vector*>(&pack));
      store_with(writes, target + k * COMPUTE_THREADS, pack);
    }
  }
  // The packs that a compute thread has in a tile, `exist` packs from its first one to the tile's end; what does not
  // exist is neutral.
  __device__ __forceinline__ void take(Held (&held)[INPUTS][HELD], const Held* buffer, unsigned part, int exist) const {
    if (int((HELD - 1) * COMPUTE_THREADS) < exist) {
#pragma unroll
      for (int n = 0; n < INPUTS; n++)
#pragma unroll
        for (int k = 0; k < HELD; k++) held[n][k] = buffer[n * part + k * COMPUTE_THREADS];
    } else {
      Vector nothing;
#pragma unroll
      for (int i = 0; i < WIDTH; i++) nothing.item[i] = store<ELEMENT>(Rule::neutral());
#pragma unroll
      for (int n = 0; n < INPUTS; n++)
#pragma unroll
        for (int k = 0; k < HELD; k++) {
          memcpy(&held[n][k], &nothing, sizeof nothing);
          if (k + 1 < HELD && int(k * COMPUTE_THREADS) < exist) held[n][k] = buffer[n * part + k * COMPUTE_THREADS];
        }
    }
  }

  __device__ __forceinline__ void work() const {
    const unsigned first = threadIdx.x, tiles = this->tiles();
    const Stepping stepping(*this, first);
    int of_tile = int(a.part) - int(first);
    keep_in_registers(of_tile);
    Cursor reduced(stepping, first), written(reduced);
    [[maybe_unused]] Cursor queued(reduced);
    [[maybe_unused]] Held queue[UNROLLED][INPUTS][HELD];
    OnlineState state[1] = {rule.empty()}, all_reduced[1] = {rule.empty()};
    Held* target = nullptr;
#pragma unroll 1
    for (unsigned begin = 0; begin < tiles + a.delay; begin += UNROLLED)
#pragma unroll
      for (unsigned u = 0; u < UNROLLED; u++) {
        const unsigned step = begin + u;
        if (step < tiles) {
          Held held[INPUTS][HELD];
          mbarrier_wait_parity(&ring.full[reduced.slot], reduced.parity);
          take(held, reduced.buffer, stepping.part, min(reduced.left, of_tile));
          add(state, held);
          if (reduced.step == stepping.steps - 1) { hand_over(state, reduced.row); }
          reduced.advance(stepping);
        }
        if (step >= a.delay && (UNROLLED == 1 || step < tiles + a.delay)) {
          if (written.step == 0) {
            mbarrier_wait_parity(&exchange.all_reduced[written.row % OPEN], phase(written.row, OPEN));
            all_reduced[0] = this->result_of(written.row)[0];
            target = packs_of(a.output, written.row, INPUTS) + first;
          }
          const int exist = min(written.left, of_tile);
          if constexpr (QUEUE > 0) {
            if (int((HELD - 1) * COMPUTE_THREADS) < exist) write<HELD>(all_reduced, queue[u][0], HELD, 1, target);
            else if (HELD > 1 && 0 < exist) write<1>(all_reduced, queue[u][0], HELD, 1, target);
          } else {
            if (int((HELD - 1) * COMPUTE_THREADS) < exist)
              write<HELD>(all_reduced, written.buffer, stepping.part, COMPUTE_THREADS, target);
            else if (HELD > 1 && 0 < exist)
              write<1>(all_reduced, written.buffer, stepping.part, COMPUTE_THREADS, target);
            leave(written);
          }
          target += stepping.stride;
          written.advance(stepping);
        }
        if constexpr (QUEUE > 0) {
          if (step + QUEUE >= a.delay && queued.row < rows) {
            take(queue[u], queued.buffer, stepping.part, min(queued.left, of_tile));
            leave(queued);
            queued.advance(stepping);
          }
        }
      }
  }
  // A warp needs a tile no more.
  __device__ __forceinline__ void leave(const Cursor& at) const {
    __syncwarp();
    if ((threadIdx.x & 31) == 0) mbarrier_arrive(&ring.empty[at.slot]);
  }
  // Gives a warp's state of a row to the warp that publishes, and begins another.
  __device__ __forceinline__ void hand_over(OnlineState (&state)[1], unsigned i) const {
    if (i >= 2)
      mbarrier_wait_parity(&exchange.published[(i - 2) % OPEN], phase(i - 2, OPEN));  // which had the same addresses
    merge_lanes(rule, state, 1, 32);
    if ((threadIdx.x & 31) == 0) {
      this->parts_of(i)[threadIdx.x >> 5] = state[0];
      mbarrier_arrive(&exchange.reduced[i % 2]);
    }
    state[0] = rule.empty();
  }

  // All barriers but those of the first tiles, and of slots that no tile leaves. A thread takes one after the other:
  // they are set up one at a time in a warp. (With those slots, too, and also without the others that no tile comes
  // to, racecheck reports races where there are fewer tiles than slots.)
  __device__ __forceinline__ void begin() const {
    constexpr unsigned ALL = WARPS + MERGERS + 2;
    const unsigned warp = threadIdx.x / 32;
    if ((threadIdx.x & 31) == 0) {
#pragma unroll 1
      for (unsigned i = warp; i < a.kept; i += ALL) {
        if (i < tiles()) mbarrier_init(&ring.empty[i], WARPS);
        if (i >= a.ahead) mbarrier_init(&ring.full[i], 1);
      }
      if (warp < OPEN) mbarrier_init(&exchange.published[warp], 32), mbarrier_init(&exchange.all_reduced[warp], 32);
      else if (warp < OPEN + 2) mbarrier_init(&exchange.reduced[warp - OPEN], WARPS);
      else if (warp == OPEN + 2) mbarrier_init(&exchange.opened, 1);
      fence_mbarrier_init();
    }
    __syncthreads();
  }
  __device__ __forceinline__ void run() const {
    const unsigned reducer = threadIdx.x / 32 - WARPS, lane = threadIdx.x & 31;
    Reader reader(*this);
    if (reducer == MERGERS + 1 && lane == 0) {  // reads at once
      if constexpr (EVICT_FIRST) prefetch(reader.stepping);
#pragma unroll 1
      for (unsigned i = 0; i < a.ahead; i++) mbarrier_init(&ring.full[i], 1);
      fence_mbarrier_init();
      griddepcontrol_wait_before_access(a.output);
      read(reader, min(a.ahead, tiles()));
    }
    begin();
    griddepcontrol_wait_before_access(a.output);
    griddepcontrol_launch_dependents();
    if (threadIdx.x < COMPUTE_THREADS) {
      work();
    } else if (reducer <= MERGERS) {
      this->reduce(reducer);
    } else if (lane == 0) {
      read(reader, tiles());
    }
  }
};

constexpr unsigned MOST_THREADS = COMPUTE_THREADS + 32 * (1 + GridAllReduce<Forward>::MERGERS + 1);
#define SOFTMAX_PERSISTENT_TMA(direction, rule)                             \
  extern "C" __global__ void __launch_bounds__(MOST_THREADS, 1)             \
      softmax_persistent_tma_##direction(const Arguments<rule::INPUTS> a) { \
    griddepcontrol_wait_deferred();                                         \
    PersistentTma<rule>(a).run();                                           \
  }

SOFTMAX_PERSISTENT_TMA(forward, Forward)
SOFTMAX_PERSISTENT_TMA(backward, Backward)
