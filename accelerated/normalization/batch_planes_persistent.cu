// Batch normalization (3.2.66, 4.1.2 to 4.1.5, 4.1.15, 4.1.16) in training, and its gradient, of large packed channels
// whose planes are made of packs of 16 bytes.
//
// A block for each multiprocessor, all at once; a team of them takes every `teams`-th channel, whose pieces (planes, or
// parts of one) its blocks take in turns. TMA loads pieces into a ring of slots in shared memory, as far ahead as there
// is room: half of it or more. A piece may have bits of a mask of dy, too. Some warps take the moments (backward: the
// sums) of what has arrived, one merges those of the block, publishes them and merges those of the team, while others
// still write the channel before from its slots, which are filled again as they become free: reads, the exchange and
// writes overlap.
//
// Roofline bound: bytes, x read and y written once (backward x and dy and dx). Flops: 6 an element forward, 12
// backward. 64 x 256 x 56 x 56 float on an H200: training 117 us, 83 % of the copy, backward 169 us, 86 %.
#include "normalization/batch_planes.cuh"
#include "primitives/geometry.cuh"
#include "primitives/grid_exchange.cuh"
#include "primitives/tma.cuh"

// As in batch_planes_persistent.py
constexpr unsigned MOST_BLOCKS = 192, MOST_SLOTS = 64;
constexpr unsigned OPEN = 8;  // channels of a block between the first read and the last write, at most
constexpr unsigned STATISTICS = STATISTICS_WARPS, WRITERS = WRITER_WARPS;  // warps
constexpr int PACKS = 2;                                                   // of a thread in flight
constexpr unsigned READER = STATISTICS + WRITERS, REDUCER = READER + 1, THREADS = 32 * (REDUCER + 1);

// A block publishes the statistics of a channel when it has begun to write the OPEN - 1st before, for which it had
// those of all others of its team, which had begun to write the OPEN - 1st before that one.
struct TeamExchange {
  ExchangeSlot<Share> shares[2][2 * OPEN][MOST_BLOCKS];
  ExchangeLaunches launches;
};
__device__ TeamExchange team_exchange;

struct Teams {
  unsigned images, channels, plane;  // elements of a plane
  unsigned team, teams;              // blocks of a team
  unsigned rows, part;               // planes of a piece, or 1; packs of each of them
  unsigned pieces, slots;            // of a channel; in shared memory
  unsigned slot_bits;                // bytes of the mask of a piece, at most: a multiple of 16
  FastDivmod packs, parts;           // of a plane: packs, pieces
  COMPUTE count;                     // elements of a channel
};

// The bits of a channel of so many elements, which begin at a multiple of 16 bytes.
__device__ __forceinline__ const unsigned char* bits_of_channel(const unsigned char* mask, unsigned channel,
                                                                unsigned elements) {
  return mask + channel * ((elements + 127) / 128 * 16);
}
// The bits of a pack, which begin at bit `first`, as the lowest ones.
__device__ __forceinline__ unsigned bits_of_pack(const unsigned char* bits, unsigned first) {
  return bits[first / 8] >> first % 8;
}
// Merges what the lanes of a warp have, those with elements, in their order.
template <class Rule> __device__ __forceinline__ Share merge_lanes(const Share& mine) {
  COMPUTE from = 0, count = mine.count, weight = 0;
#pragma unroll
  for (int distance = 16; distance > 0; distance /= 2) count += __shfl_xor_sync(~0u, count, distance);
  if (same_type<Rule, MergeMoments> && count > COMPUTE(0)) {
    unsigned some = __ballot_sync(~0u, mine.count > COMPUTE(0));
    const int first = __ffs(some) - 1;
    some &= some - 1;
    const int second = some ? __ffs(some) - 1 : first;
    some &= some - 1;
    const int third = some ? __ffs(some) - 1 : first;
    const COMPUTE near = origin(mine.total);
    from = median(__shfl_sync(~0u, near, first), __shfl_sync(~0u, near, second), __shfl_sync(~0u, near, third));
    weight = COMPUTE(1) / count;
  }
  Total sum{};
  if (mine.count > COMPUTE(0)) Rule::add(sum, from, weight, mine.count, mine.total);
#pragma unroll
  for (int distance = 16; distance > 0; distance /= 2) {
    sum.first += __shfl_xor_sync(~0u, sum.first, distance);
    sum.second += __shfl_xor_sync(~0u, sum.second, distance);
  }
  return {count, count > COMPUTE(0) ? Rule::finish(sum, from, count) : sum};
}

// Packs that follow each other in a slot; in the tensor, those of each of `rows` planes.
struct Piece {
  unsigned offset, packs, rows;  // elements before the first; of each row
  unsigned slot, parity;         // where it lies, and in which phase of its barriers
  unsigned bit;                  // its first one among those of the channel
  __device__ __forceinline__ unsigned all_packs() const { return packs * rows; }
  // The bytes of its bits: from a multiple of 16 on, up to one.
  __device__ __forceinline__ unsigned first_byte() const { return bit / 128 * 16; }
  __device__ __forceinline__ unsigned bit_bytes() const {
    return (bit + all_packs() * WIDTH + 127) / 128 * 16 - first_byte();
  }
};

// TENSORS: of which slots have pieces. Known: what writers know of a channel.
template <int TENSORS, class Known> struct Team {
  struct Shared {
    Mbarrier full[MOST_SLOTS], empty[MOST_SLOTS], reduced[OPEN], known[OPEN];
    Share shares[OPEN][STATISTICS];
    Known channels[OPEN];
  };

  const Teams& all;
  Shared& shared;
  const unsigned team, member, warp, lane;

  __device__ __forceinline__ Team(const Teams& all, Shared& shared)
      : all(all),
        shared(shared),
        team(blockIdx.x / all.team),
        member(blockIdx.x - team * all.team),
        warp(threadIdx.x / 32),
        lane(threadIdx.x % 32) {
    if (threadIdx.x == 0) {
      for (unsigned i = 0; i < all.slots; i++)
        mbarrier_init(&shared.full[i], 1), mbarrier_init(&shared.empty[i], WRITERS);
      for (unsigned i = 0; i < OPEN; i++)
        mbarrier_init(&shared.reduced[i], STATISTICS), mbarrier_init(&shared.known[i], 1);
      fence_mbarrier_init();
    }
    __syncthreads();
  }
  // The packs of a tensor in a slot.
  __device__ __forceinline__ Elements* packs_of(const Piece& piece, int tensor) const {
    return reinterpret_cast<Elements*>(shared_memory) + (piece.slot * TENSORS + tensor) * all.rows * all.part;
  }
  // The bits of a piece, behind the packs of all slots.
  __device__ __forceinline__ unsigned char* bits_of(const Piece& piece) const {
    Piece behind{};
    behind.slot = all.slots;
    return reinterpret_cast<unsigned char*>(packs_of(behind, 0)) + piece.slot * all.slot_bits;
  }
  static __device__ __forceinline__ int phase(unsigned k) { return k / OPEN & 1; }

  // begin(k, channel), use(n, piece), end(k, channel): of the k-th channel of the block, its n-th piece.
  template <class Begin, class Use, class End>
  __device__ __forceinline__ void visit(const Begin& begin, const Use& use, const End& end) const {
    Piece piece{};
    unsigned n = 0, k = 0;
    if (team >= all.teams) return;
    for (unsigned channel = team; channel < all.channels; channel += all.teams, k++) {
      begin(k, channel);
      for (unsigned i = member; i < all.pieces; i += all.team, n++) {
        unsigned part;
        const unsigned image = all.parts.divide(i, part) * all.rows, first = part * all.part;
        piece.offset = (image * all.channels + channel) * all.plane + first * WIDTH;
        piece.packs = min(all.part, all.packs.divisor - first);
        piece.rows = min(all.rows, all.images - image);
        piece.bit = image * all.plane + first * WIDTH;
        use(n, piece);
        if (++piece.slot == all.slots) piece.slot = 0, piece.parity ^= 1;
      }
      end(k, channel);
    }
  }

  // The warp that loads. mask: bits of the channels.
  __device__ __forceinline__ void read(const ELEMENT* const (&from)[TENSORS], const unsigned char* mask) const {
    const L2CachePolicy policy = l2_cache_policy(true);
    const unsigned char* bits = nullptr;  // of a channel
    visit([&](unsigned, unsigned channel) { bits = bits_of_channel(mask, channel, all.images * all.plane); },
          [&](unsigned, const Piece& piece) {
            Mbarrier* const full = &shared.full[piece.slot];
            mbarrier_wait_parity(&shared.empty[piece.slot], piece.parity ^ 1);
            const unsigned bit_bytes = MASK_BITS ? piece.bit_bytes() : 0;
            if (lane == 0) {
              mbarrier_arrive_expect_tx(full, piece.all_packs() * TENSORS * sizeof(Elements) + bit_bytes);
              if (MASK_BITS) tma_load_bulk(bits_of(piece), bits + piece.first_byte(), bit_bytes, full, policy);
            }
            __syncwarp();
            for (unsigned row = lane; row < piece.rows; row += 32) {
              const unsigned offset = piece.offset + row * all.channels * all.plane, at = row * piece.packs;
#pragma unroll
              for (int t = 0; t < TENSORS; t++)
                tma_load_bulk(packs_of(piece, t) + at, from[t] + offset, piece.packs * sizeof(Elements), full, policy);
            }
          },
          [](unsigned, unsigned) {});
  }
  __device__ __forceinline__ void apply_mask(const Piece& piece, unsigned pack, Elements& dy) const {
    if (MASK_BITS) keep_bits(bits_of_pack(bits_of(piece), piece.bit % 128 + pack * WIDTH), dy);
  }
  // The offset of a pack of a piece in the tensors.
  __device__ __forceinline__ unsigned offset_of(const Piece& piece, unsigned pack) const {
    const unsigned row = all.rows > 1 ? all.packs.divide(pack) : 0;
    return piece.offset + pack * WIDTH + row * (all.channels - 1) * all.plane;
  }
  // Visits every step-th pack of a piece, PACKS at a time: read(u, i) reads into the u-th registers what use(u, i)
  // uses.
  template <class Read, class Use>
  static __device__ __forceinline__ void visit_packs(unsigned first, unsigned step, const Piece& piece,
                                                     const Read& read, const Use& use) {
    const unsigned packs = piece.all_packs();
    for (unsigned i = first; i < packs; i += PACKS * step) {
      const bool all_exist = i + (PACKS - 1) * step < packs;
      if (all_exist) {
#pragma unroll
        for (int u = 0; u < PACKS; u++) read(u, i + u * step);
#pragma unroll
        for (int u = 0; u < PACKS; u++) use(u, i + u * step);
      } else {
#pragma unroll
        for (int u = 0; u < PACKS - 1; u++)
          if (i + u * step < packs) read(u, i + u * step);
#pragma unroll
        for (int u = 0; u < PACKS - 1; u++)
          if (i + u * step < packs) use(u, i + u * step);
      }
    }
  }
  // The warps that take statistics: each a piece at a time. begin(k, channel), use(piece), share().
  template <class Rule, class Begin, class Use, class Result>
  __device__ __forceinline__ void take_statistics(const Begin& begin, const Use& use, const Result& share) const {
    visit(
        begin,
        [&](unsigned n, const Piece& piece) {
          // Pieces of other warps, too: who waits for a phase has seen the one before it complete.
          mbarrier_wait_parity(&shared.full[piece.slot], piece.parity);
          if (n % STATISTICS == warp) use(piece);
        },
        [&](unsigned k, unsigned) {
          const Share of_warp = merge_lanes<Rule>(share());
          __syncwarp();  // all have read the pieces, whose slots are filled again behind this
          if (lane == 0) {
            shared.shares[k % OPEN][warp] = of_warp;
            mbarrier_arrive(&shared.reduced[k % OPEN]);
          }
        });
  }
  // The warp that merges: begin(channel) while the others still work, result(k, channel, total).
  template <class Rule, class Begin, class Result>
  __device__ __forceinline__ void reduce(const Begin& begin, const Result& result) const {
    unsigned long long launch = 0;
    if (lane == 0) launch = team_exchange.launches.arrive();
    launch = __shfl_sync(~0u, launch, 0);
    const unsigned half = launch & 1;
    for (unsigned i = lane; i < 2 * OPEN; i += 32) write_slot(&team_exchange.shares[half ^ 1][i][blockIdx.x], {});
    unsigned k = 0;
    if (team < all.teams)
      for (unsigned channel = team; channel < all.channels; channel += all.teams, k++) {
        begin(channel);
        mbarrier_wait_parity(&shared.reduced[k % OPEN], phase(k));
        ExchangeSlot<Share>* const slots = team_exchange.shares[half][k % (2 * OPEN)] + (blockIdx.x - member);
        const Share of_block = merge_lanes<Rule>(lane < STATISTICS ? shared.shares[k % OPEN][lane] : Share{});
        if (lane == 0) write_slot(slots + member, to_slot(of_block, k + 1));
        __syncwarp();
        Share sum{};
        for (unsigned first = 0; first < all.team; first += 32) {
          Share part{};
          if (first + lane < all.team) {
            ExchangeSlot<Share> slot;
            do slot = read_slot(slots + first + lane);
            while (!holds(slot, k + 1));
            part = from_slot(slot);
          }
          __syncwarp();
          part = merge_lanes<Rule>(part);
          if (lane == first / 32) sum = part;
        }
        if (all.team > 32) sum = merge_lanes<Rule>(sum);
        if (lane == 0) {
          shared.channels[k % OPEN] = result(channel, sum.total);
          mbarrier_arrive(&shared.known[k % OPEN]);
        }
      }
    __syncwarp();
    if (lane == 0) team_exchange.launches.depart(launch);
  }
  // The warps that write, all of them a piece: use(piece, known, first, step).
  template <class Use> __device__ __forceinline__ void write(const Use& use) const {
    Known known;
    visit(
        [&](unsigned k, unsigned) {
          mbarrier_wait_parity(&shared.known[k % OPEN], phase(k));
          known = shared.channels[k % OPEN];
        },
        [&](unsigned n, const Piece& piece) {
          mbarrier_wait_parity(&shared.full[piece.slot], piece.parity);
          use(piece, known, (warp + n) % WRITERS * 32 + lane, 32 * WRITERS);
          __syncwarp();
          if (lane == 0) mbarrier_arrive(&shared.empty[piece.slot]);
        },
        [](unsigned, unsigned) {});
  }
};

struct ForwardArguments {
  ForwardCall call;
  Teams teams;
};

// Where nothing is added.
extern "C" __global__ void __launch_bounds__(THREADS, 1)
    normalization_batch_planes_persistent_training(const ForwardArguments a) {
  griddepcontrol_wait();
  using Training = Team<1, Normalizer>;
  __shared__ Training::Shared shared;
  const ForwardCall& call = a.call;
  const Training team(a.teams, shared);
  if (team.warp < STATISTICS) {
    ThreadMoments moments;
    Elements x[PACKS];
    auto begin = [&](unsigned, unsigned) { moments = {}; };
    auto add = [&](const Piece& piece) {
      const Elements* const packs = team.packs_of(piece, 0);
      if (team.lane < piece.all_packs()) moments.begin(packs[team.lane]);
      team.visit_packs(
          team.lane, 32, piece, [&](int u, unsigned i) { x[u] = packs[i]; },
          [&](int u, unsigned) { moments.add_begun(x[u]); });
    };
    team.take_statistics<MergeMoments>(begin, add, [&] { return moments.share(); });
  } else if (team.warp == REDUCER) {
    COMPUTE scale, bias;
    auto begin = [&](unsigned channel) { scale = call.scale[channel], bias = call.bias[channel]; };
    team.reduce<MergeMoments>(begin, [&](unsigned channel, const Total& total) {
      const COMPUTE mean = total.first + total.low;
      if (team.member == 0) call.store_statistics(mean, total.second, a.teams.count, channel);
      return Normalizer{mean, scale * call.inverse(total.second, a.teams.count), bias};
    });
  } else if (team.warp == READER) {
    team.read({call.x}, nullptr);
  } else {
    Elements x[PACKS];
    team.write([&](const Piece& piece, const Normalizer& of, unsigned first, unsigned step) {
      const Elements* const packs = team.packs_of(piece, 0);
      team.visit_packs(
          first, step, piece, [&](int u, unsigned i) { x[u] = packs[i]; },
          [&](int u, unsigned i) { call.store_pack(team.offset_of(piece, i), x[u], x[u], [&](int) { return of; }); });
    });
  }
}

struct BackwardArguments {
  BackwardCall call;
  Teams teams;
};

// Where mean and inverse are saved, and no activation is undone but by bits.
extern "C" __global__ void __launch_bounds__(THREADS, 1)
    normalization_batch_planes_persistent_backward(const BackwardArguments a) {
  griddepcontrol_wait();
  using Backward = Team<2, GradientOf>;
  __shared__ Backward::Shared shared;
  const BackwardCall& call = a.call;
  const Backward team(a.teams, shared);
  if (team.warp < STATISTICS) {
    GradientSums sums{};
    Elements x[PACKS], dy[PACKS];
    KnownChannel next = KnownChannel::read(call, min(team.team, a.teams.channels - 1));
    auto begin = [&](unsigned, unsigned channel) {
      sums.known = next, sums.total = {};
      if (channel + a.teams.teams < a.teams.channels) next = KnownChannel::read(call, channel + a.teams.teams);
    };
    auto add = [&](const Piece& piece) {
      const Elements* const packs = team.packs_of(piece, 0);
      const Elements* const gradients = team.packs_of(piece, 1);
      team.visit_packs(
          team.lane, 32, piece, [&](int u, unsigned i) { x[u] = packs[i], dy[u] = gradients[i]; },
          [&](int u, unsigned i) {
            team.apply_mask(piece, i, dy[u]);
            sums.add(x[u], dy[u]);
          });
    };
    team.take_statistics<AddSums>(begin, add, [&] { return Share{COMPUTE(1), sums.total}; });
  } else if (team.warp == REDUCER) {
    KnownChannel known;
    auto begin = [&](unsigned channel) { known = KnownChannel::read(call, channel); };
    team.reduce<AddSums>(begin, [&](unsigned channel, const Total& total) {
      if (team.member == 0) call.store_parameters(channel, total.first, total.second);
      return known.gradient(total, a.teams.count);
    });
  } else if (team.warp == READER) {
    team.read({call.x, call.dy}, call.mask);
  } else {
    Elements x[PACKS], dy[PACKS];
    team.write([&](const Piece& piece, const GradientOf& of, unsigned first, unsigned step) {
      const Elements *const packs = team.packs_of(piece, 0), *const gradients = team.packs_of(piece, 1);
      team.visit_packs(
          first, step, piece, [&](int u, unsigned i) { x[u] = packs[i], dy[u] = gradients[i]; },
          [&](int u, unsigned i) {
            team.apply_mask(piece, i, dy[u]);
            call.store_pack(team.offset_of(piece, i), x[u], dy[u], [&](int) { return of; });
          });
    });
  }
}
