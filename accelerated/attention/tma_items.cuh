// The TMA-fed attention kernels share this header. Persistent blocks take work items, each some queries or keys of one
// head. The producer warpgroup comes after the consumers.
#pragma once
#include "attention/tiles.cuh"
#include "primitives/tma.cuh"

constexpr int WARPGROUP = 128;                          // threads
constexpr int CONSUMERS = WARPGROUP * WARPGROUPS;       // threads that compute
constexpr int ROWS = 64 * WARPGROUPS;                   // own vectors of an item
constexpr int BOX_BYTES = 64 * ROW_BYTES;               // 64 vectors of 64 elements
constexpr int BLOCK_BYTES = PARTS * BOXES * BOX_BYTES;  // 64 vectors of all elements
constexpr int OWN_BYTES = WARPGROUPS * BLOCK_BYTES;     // bytes for an item's own vectors
// One producer thread loads. The other producer warps search tiles for infinities and NaNs, which weights of zero must
// not multiply.
constexpr int LOADER = CONSUMERS;               // index of the thread that loads
constexpr int FIRST_SEARCHER = CONSUMERS + 32;  // index of the first such thread
constexpr int SEARCHERS = WARPGROUP - 32;       // threads
// All threads of a block together must not exceed the registers of its launch. A single consumer warpgroup takes no
// registers from others.
constexpr int PRODUCER_REGISTERS = WARPGROUPS == 2 ? 40 : 32;    // per thread
constexpr int CONSUMER_REGISTERS = WARPGROUPS == 2 ? 232 : 160;  // per thread
template <class Produce, class Consume> __device__ __forceinline__ void run_roles(Produce produce, Consume consume) {
  if (threadIdx.x >= CONSUMERS) {
    if constexpr (WARPGROUPS > 1) setmaxnreg_decrease<PRODUCER_REGISTERS>();
    produce();
  } else {
    if constexpr (WARPGROUPS > 1) setmaxnreg_increase<CONSUMER_REGISTERS>();
    consume();
  }
}

// Divides the work into items, by (tile of queries or keys, head, beam, batch).
struct Division {
  FastDivmod tiles, heads, beams;
  int items;
};

// Describes a tile of vectors of one head, from time-step `first` on.
struct Item {
  int first, head, beam, batch;

  // `late_first` puts late time-steps first, because their queries may have more keys.
  __device__ __forceinline__ Item(const Division& division, int index, bool late_first) {
    unsigned tile, at_head, at_beam;
    batch = division.beams.divide(division.heads.divide(division.tiles.divide(index, tile), at_head), at_beam);
    head = at_head, beam = at_beam;
    first = (late_first ? division.tiles.divisor - 1 - tile : tile) * ROWS;
  }
};

// Releases a stage after the warp itself, or its products, have read it.
__device__ __forceinline__ void release(Mbarrier* empty) {
  __syncwarp();
  if (threadIdx.x % 32 == 0) mbarrier_arrive(empty);
}

// Holds the item of a block. The block's index selects its first item, and a counter selects the later ones.
struct ItemQueue {
  Mbarrier full, empty;
  int index;

  __device__ __forceinline__ void initialise() {
    mbarrier_init(&full, 1), mbarrier_init(&empty, (CONSUMERS + WARPGROUP) / 32);
  }
};
// All threads of the block take the next item. `counter` counts the items after the first ones.
__device__ __forceinline__ int take_item(ItemQueue& queue, int* counter, int round) {
  if (threadIdx.x == LOADER) {
    mbarrier_wait_parity(&queue.empty, (round + 1) & 1);
    queue.index = round == 0 ? blockIdx.x : gridDim.x + atomicAdd(counter, 1);
    mbarrier_arrive(&queue.full);
  }
  mbarrier_wait_parity(&queue.full, round & 1);
  const int index = queue.index;
  release(&queue.empty);
  return index;
}

// Holds the span of the windows of a tile of queries, for all lanes of a warp. It also locates the tiles of `COUNT`
// keys that overlap it.
struct KeyTiles {
  Span span;
  int begin, count;
};
template <int COUNT>
__device__ __forceinline__ KeyTiles find_keys(const Heads& h, const void* space, const Sequence& s, int first) {
  KeyTiles found{{INT_MAX, 0, 0, INT_MAX}, 0, 0};
#pragma unroll
  for (int i = 0; i < ROWS / 32; i++) {
    const int query = first + threadIdx.x % 32 + 32 * i;
    if (query < s.q_length) found.span.add(window_of(h, space, s, query));
  }
  found.span.join_lanes();
  found.begin = found.span.low / COUNT * COUNT;
  if (found.span.high > found.begin) found.count = (found.span.high - found.begin + COUNT - 1) / COUNT;
  return found;
}

// Holds the TMA coordinates of one head's vectors, by (element, time-step, head, beam, batch).
struct Coordinates {
  int head, beam, batch;
};
// Loads the boxes of one of PIECES of a block of 64 vectors, as a tile of its own.
template <int PIECES>
__device__ __forceinline__ void load_piece(unsigned char* to, int piece, const TensorMap (&maps)[PARTS], Mbarrier* full,
                                           int time, const Coordinates& at) {
  constexpr int COUNT = BOXES / PIECES;
#pragma unroll
  for (int box = 0; box < PARTS * COUNT; box++)
    tma_load_5d(to + box * BOX_BYTES, maps[box / COUNT], full, (piece * COUNT + box % COUNT) * BOX, time, at.head,
                at.beam, at.batch);
}
// Loads `count` blocks of 64 vectors. Products over elements need one tile; products over vectors need `count` tiles.
__device__ __forceinline__ void load_vectors(unsigned char* to, int count, bool is_one_tile,
                                             const TensorMap (&maps)[PARTS], Mbarrier* full, int time,
                                             const Coordinates& at) {
  const int block_bytes = is_one_tile ? BOX_BYTES : BLOCK_BYTES,
            box_bytes = is_one_tile ? count * BOX_BYTES : BOX_BYTES;
  for (int i = 0; i < count; i++)
#pragma unroll
    for (int box = 0; box < PARTS * BOXES; box++)
      tma_load_5d(to + i * block_bytes + box * box_bytes, maps[box / BOXES], full, box % BOXES * BOX, time + 64 * i,
                  at.head, at.beam, at.batch);
}

// Synchronises all consumers.
struct ConsumerBarrier {
  Mbarrier* barrier;  // CONSUMERS threads arrive at it
  unsigned parity = 0;

  __device__ __forceinline__ void operator()() {
    mbarrier_arrive(barrier);
    mbarrier_wait_parity(barrier, parity);
    parity ^= 1;
  }
};
