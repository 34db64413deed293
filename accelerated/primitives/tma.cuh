// This header copies tiles between tensors and shared memory asynchronously with TMA. It also holds the mbarriers that
// the copies complete. The host side is runtime/tensor_map.py and primitives/tma.py. Tiles of three and five
// dimensions, and im2col tiles, are rows of 128 bytes. They have the 128-byte swizzle that primitives/mma.cuh reads.
// Tiles of four dimensions are dense.
//
// A phase of an mbarrier completes when `arrivals` threads have arrived and all expected bytes have been copied. The
// function mbarrier_wait_parity() takes the parity of the phase: 0, 1, 0 and so on.
#pragma once
#include "primitives/mma.cuh"

struct alignas(64) TensorMap {
  unsigned char bytes[128];
};  // a __grid_constant__ argument
struct Mbarrier {
  unsigned long long state;
};

// Packs the offsets of a tap for tma_load_im2col(). TMA allows at most 255 each.
__device__ __forceinline__ unsigned tap_offset(unsigned deep, unsigned down, unsigned right) {
  return deep << 16 | down << 8 | right;
}

#ifdef EMULATED_CUDA

namespace emulated {
struct MbarrierState {
  int bytes;
  unsigned short arrivals, pending : 14, unseen : 1, phase : 1;  // unseen: no thread has waited for the ended phase
};
static_assert(sizeof(MbarrierState) == sizeof(Mbarrier));
inline MbarrierState& state_of(Mbarrier* barrier) { return *reinterpret_cast<MbarrierState*>(barrier); }

struct Map {  // EmulatedMap in runtime/tensor_map.py has the same fields
  const unsigned char* base;
  long long stride[4];  // stride in bytes of every dimension but the innermost
  int extent[5];
  short lower[3], upper[3], step[3];
  int pixels, box[5];
  int rank, element_bytes, columns, rounded, dense;
};
struct Box {
  unsigned char* shared;
  Map map;  // This is a copy, because the arguments live only as long as the thread.
  int at[5], offset[3];
  int vectors() const { return map.dense ? map.box[0] * map.element_bytes / 16 : 8; }  // vectors of 16 bytes per row
  int rows() const {
    int rows = map.columns ? map.pixels : 1;
    for (int d = 1; d < map.rank && !map.columns; d++) rows *= map.box[d];
    return rows;
  }
  int bytes() const { return 16 * vectors() * rows(); }
};
struct Load {
  Mbarrier* barrier;
  Box box;
  const void* instruction;
  unsigned phase;  // phase of the barrier at the request
  races::Request request;
};
inline List<Load> loads;
struct Write {
  Box box;
  races::Request request = races::request_engine_read();
};
inline Queues<Write> writes;

// This lists the barriers that the block has initialized. The PTX manual leaves a second initialization undefined.
inline List<const Mbarrier*> barriers;
inline bool is_set_up(const Mbarrier* barrier) {
  List<const Mbarrier*>& of_block = barriers.of_this_block();
  for (size_t i = 0; i < of_block.count; i++)
    if (of_block.items[i] == barrier) return true;
  of_block.add(barrier);
  return false;
}
inline bool is_in_phase(Mbarrier* barrier, int parity) {
  const races::Unseen unseen;
  return state_of(barrier).phase == parity;
}
inline void see_phase(Mbarrier* barrier) {
  const races::Unseen unseen;
  state_of(barrier).unseen = 0;
}
inline void wake_waiters(Mbarrier* barrier) {
  for (int i = 0; i < block.threads; i++) {
    Thread& thread = block.thread[block.order[i]];
    if (thread.wait == Wait::phase && thread.awaited == barrier) wake(thread);
  }
}
inline void end_phase(Mbarrier* barrier, const void* instruction = nullptr) {
  MbarrierState& state = state_of(barrier);
  if (state.pending || state.bytes) return;
  races::complete(barrier);
  // A waiter knows only the parity, so it would mistake the next phase for the previous one.
  if (state.unseen)
    fail_at(instruction, barrier, "a phase of an mbarrier ends before a thread has waited for the last");
  state.phase ^= 1, state.unseen = 1;
  state.pending = state.arrivals;
  wake_waiters(barrier);
}
inline void arrive(Mbarrier* barrier, int count, int bytes, const void* instruction) {
  races::release(barrier, instruction);
  const races::Unseen unseen;
  if (count > state_of(barrier).pending)
    fail_at(instruction, barrier, "more threads arrive at an mbarrier than its phase has");
  state_of(barrier).bytes += bytes;
  if (bytes && state_of(barrier).bytes >= 1 << 20)
    fail_at(instruction, barrier, "an mbarrier expects more than 1048575 bytes");
  state_of(barrier).pending -= count;
  end_phase(barrier, instruction);
}
inline void begin_load(Mbarrier* barrier, const Box& box, const void* instruction) {
  require_followed(instruction);
  const races::Request request = races::request_write(box.shared, box.bytes(), instruction);
  begin_copy(box.shared, box.bytes(), instruction);
  loads.of_this_block().add({barrier, box, instruction, is_in_phase(barrier, 1), request});
  wake_waiters(barrier);  // A waiting thread completes the phase.
}

// A box begins at a multiple of 16 bytes in the tensor and of 128 in shared memory; else the GPU faults.
inline Box box_of(const unsigned char* shared, const TensorMap& map, const int (&at)[5], const void* instruction,
                  unsigned tap = 0) {
  Box box{const_cast<unsigned char*>(shared),
          reinterpret_cast<const Map&>(map),
          {},
          {int(tap & 255), int(tap >> 8 & 255), int(tap >> 16)}};
  memcpy(box.at, at, sizeof at);
  if (at[0] * box.map.element_bytes % 16)
    fail_at(instruction, nullptr, "TMA: a box begins at element %d, not at a multiple of 16 bytes", at[0]);
  if (reinterpret_cast<uintptr_t>(shared) % 128 || reinterpret_cast<uintptr_t>(&map) % 64)
    fail_at(instruction, nullptr, "TMA: a box at %p, or its map, is not at a multiple of 128 or of 64 bytes", shared);
  return box;
}

// Visits a box in vectors of 16 bytes: visit(address in shared memory, first byte in the tensor, first and end of the
// existing elements). The order is by rows. The pixels of im2col follow each other within the box that the corners
// leave.
template <class Visit> inline void for_vectors(const Box& box, Visit visit) {
  const Map& map = box.map;
  const int elements = 16 / map.element_bytes, vectors = box.vectors(), rows = box.rows(),
            above = reinterpret_cast<uintptr_t>(box.shared) / 128 % 8;  // The swizzle depends on the address.
  int at[5];
  memcpy(at, box.at, sizeof at);
  for (int row = 0; row < rows; row++) {
    bool exists = true;
    long long offset = 0;
    for (int d = 1; d < map.rank; d++) {
      const int index = at[d] + (d < map.rank - 1 ? box.offset[d - 1] : 0);
      exists = exists && unsigned(index) < unsigned(map.extent[d]);
      offset += index * map.stride[d - 1];
    }
    for (int vector = 0; vector < vectors; vector++) {
      const int first = at[0] + vector * elements, begin = max(0, -first),
                end = exists ? min(elements, map.extent[0] - first) : 0;
      unsigned char* shared = box.shared + (row * vectors + vector) * 16;
      if (!map.dense) shared = swizzled(box.shared - above * 128, above + row, vector);
      visit(shared, map.base + offset + static_cast<long long>(first) * map.element_bytes, begin, end);
    }
    for (int d = 1; d < map.rank; d++) {
      const bool pixel = map.columns && d < map.rank - 1;
      at[d] += pixel ? map.step[d - 1] : 1;
      if (at[d] < (pixel ? map.extent[d] + map.upper[d - 1] : box.at[d] + map.box[d])) break;
      if (!map.columns || pixel) at[d] = pixel ? map.lower[d - 1] : box.at[d];
    }
  }
}

inline void complete_load(const Load& load) {
  const races::ByAgent agent(load.barrier, load.request);
  const Map& map = load.box.map;
  for_vectors(load.box, [&](unsigned char* to, const unsigned char* from, int begin, int end) {
    const int size = map.element_bytes;
    if (end - begin < 16 / size) memset(to, 0, 16);
    if (begin < end) memcpy(to + begin * size, from + begin * size, (end - begin) * size);
    float values[4];
    if (!map.rounded) return;
    memcpy(values, to, 16);
    for (float& value : values) value = round_to_tf32(value);
    memcpy(to, values, 16);
  });
}
inline void finish_write(const Write& write) {
  const races::Later later(write.request);
  const int size = write.box.map.element_bytes;
  for_vectors(write.box, [=](const unsigned char* from, const unsigned char* to, int begin, int end) {
    if (begin < end) memcpy(const_cast<unsigned char*>(to) + begin * size, from + begin * size, (end - begin) * size);
  });
}

// Completes loads as late as the PTX manual allows, when a thread waits. Until then the target is poison.
inline void finish_loads(Mbarrier* barrier) {
  List<Load>& of_block = loads.of_this_block();
  for (size_t i = 0; i < of_block.count;) {
    if (of_block.items[i].barrier != barrier) {
      i++;
      continue;
    }
    const Load load = of_block.items[i];
    of_block.remove(i, 1);
    if (is_in_phase(barrier, !load.phase))
      fail_at(load.instruction, barrier, "an mbarrier's phase ended before this load, whose bytes it did not expect");
    end_copy(load.box.shared, load.box.bytes());
    complete_load(load);
    const races::Unseen unseen;
    state_of(barrier).bytes -= load.box.bytes();
    end_phase(barrier);
  }
}
inline void begin_store(const unsigned char* from, const TensorMap& map, const int (&at)[5], const void* instruction) {
  require_followed(instruction);
  const Box box = box_of(from, map, at, instruction);
  // A GPU loads such boxes, but a store ends with an illegal instruction.
  if (at[0] < 0) fail_at(instruction, nullptr, "TMA: a store begins at element %d of rows", at[0]);
  // A GPU writes full vectors of 16 bytes, so it also writes past the end of a row that ends within a vector.
  if (box.map.extent[0] * box.map.element_bytes % 16)
    fail_at(instruction, nullptr, "TMA: stores to rows of %d elements, which are no vectors of 16 bytes",
            box.map.extent[0]);
  writes.add({box});
}
}  // namespace emulated

EMULATED_CALL void mbarrier_init(Mbarrier* barrier, int arrivals) {
  if (reinterpret_cast<uintptr_t>(barrier) % 8 || !emulated::is_shared(barrier, 8))
    emulated::fail_at(EMULATED_HERE, barrier, "an mbarrier that is not at a multiple of 8 bytes of the shared memory");
  if (emulated::is_set_up(barrier)) emulated::fail_at(EMULATED_HERE, barrier, "an mbarrier is set up twice");
  emulated::races::begin_object(barrier, EMULATED_HERE);
  const emulated::races::Unseen unseen;
  emulated::state_of(barrier) = {0, static_cast<unsigned short>(arrivals), static_cast<unsigned short>(arrivals), 0, 0};
}
inline void fence_mbarrier_init() {}
inline void tma_prefetch_map(const TensorMap&) {}
EMULATED_CALL void mbarrier_arrive(Mbarrier* barrier, int count = 1) {
  emulated::arrive(barrier, count, 0, EMULATED_HERE);
}
EMULATED_CALL void mbarrier_arrive_expect_tx(Mbarrier* barrier, int bytes) {
  emulated::arrive(barrier, 1, bytes, EMULATED_HERE);
}
EMULATED_CALL void mbarrier_wait_parity(Mbarrier* barrier, int parity, EMULATED_SITE_PARAMETERS) {
  if (parity != 0 && parity != 1)
    emulated::fail_at(EMULATED_HERE, barrier, "an mbarrier's parity is %d, neither 0 nor 1", int(parity));
  emulated::follow_others();
  emulated::finish_loads(barrier);
  while (emulated::is_in_phase(barrier, parity)) {
    emulated::Thread& self = *emulated::current;
    self.site = EMULATED_SITE("mbarrier_wait_parity");
    self.awaited = barrier;
    self.wait = emulated::Wait::phase;
    emulated::suspend();
    emulated::follow_others();
    emulated::finish_loads(barrier);
  }
  emulated::see_phase(barrier);
  emulated::races::acquire(barrier, EMULATED_HERE);
}
EMULATED_CALL void tma_load_im2col(unsigned char* to, const TensorMap& map, Mbarrier* barrier, bool volumes,
                                   int channel, const int (&at)[3], int image, unsigned tap) {
  const int from[5] = {channel, at[2], at[1], volumes ? at[0] : image, volumes ? image : 0};
  emulated::begin_load(barrier, emulated::box_of(to, map, from, EMULATED_HERE, tap), EMULATED_HERE);
}
EMULATED_CALL void tma_load_3d(unsigned char* to, const TensorMap& map, Mbarrier* barrier, int first, int second,
                               int third) {
  emulated::begin_load(barrier, emulated::box_of(to, map, {first, second, third}, EMULATED_HERE), EMULATED_HERE);
}
EMULATED_CALL void tma_load_4d(unsigned char* to, const TensorMap& map, Mbarrier* barrier, int first, int second,
                               int third, int fourth) {
  emulated::begin_load(barrier, emulated::box_of(to, map, {first, second, third, fourth}, EMULATED_HERE),
                       EMULATED_HERE);
}
EMULATED_CALL void tma_load_5d(unsigned char* to, const TensorMap& map, Mbarrier* barrier, int first, int second,
                               int third, int fourth, int fifth) {
  emulated::begin_load(barrier, emulated::box_of(to, map, {first, second, third, fourth, fifth}, EMULATED_HERE),
                       EMULATED_HERE);
}
EMULATED_CALL void tma_load_bulk(void* to, const void* from, unsigned bytes, Mbarrier* barrier) {
  if ((reinterpret_cast<uintptr_t>(to) | reinterpret_cast<uintptr_t>(from) | bytes) % 16)
    emulated::fail_at(EMULATED_HERE, nullptr,
                      "TMA: a copy of %u bytes from or to an address, or of a size, that is no multiple of 16", bytes);
  emulated::Map map = {static_cast<const unsigned char*>(from)};
  map.extent[0] = map.box[0] = int(bytes) / 16, map.element_bytes = 16, map.dense = 1;
  emulated::begin_load(barrier, {static_cast<unsigned char*>(to), map, {}, {}}, EMULATED_HERE);
}
EMULATED_CALL void tma_store_3d(const unsigned char* from, const TensorMap& map, int first, int second, int third) {
  emulated::begin_store(from, map, {first, second, third}, EMULATED_HERE);
}
EMULATED_CALL void tma_store_4d(const unsigned char* from, const TensorMap& map, int first, int second, int third,
                                int fourth) {
  emulated::begin_store(from, map, {first, second, third, fourth}, EMULATED_HERE);
}
inline void tma_store_commit() { emulated::writes.end_group(); }
template <int PENDING> inline void tma_store_wait() { emulated::writes.finish(PENDING, emulated::finish_write); }
template <int REGISTERS> inline void setmaxnreg_increase() {}
template <int REGISTERS> inline void setmaxnreg_decrease() {}

#else

__device__ __forceinline__ unsigned shared_address(const void* pointer) {
  return static_cast<unsigned>(__cvta_generic_to_shared(pointer));
}

__device__ __forceinline__ void mbarrier_init(Mbarrier* barrier, int arrivals) {
  asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(shared_address(barrier)), "r"(arrivals) : "memory");
}
// Call this before the __syncthreads() after which mbarriers are used.
__device__ __forceinline__ void fence_mbarrier_init() {
  asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
  asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
}
// Prefetches a map, which no earlier kernel writes.
__device__ __forceinline__ void tma_prefetch_map(const TensorMap& map) {
  asm volatile("prefetch.tensormap [%0];" ::"l"(&map) : "memory");
}
// Arrives as `count` threads.
__device__ __forceinline__ void mbarrier_arrive(Mbarrier* barrier, int count = 1) {
  asm volatile("{.reg .b64 state; mbarrier.arrive.shared::cta.b64 state, [%0], %1;}" ::"r"(shared_address(barrier)),
               "r"(count)
               : "memory");
}
// Arrives and expects bytes.
__device__ __forceinline__ void mbarrier_arrive_expect_tx(Mbarrier* barrier, int bytes) {
  asm volatile(
      "{.reg .b64 state; mbarrier.arrive.expect_tx.shared::cta.b64 state, [%0], %1;}" ::"r"(shared_address(barrier)),
      "r"(bytes)
      : "memory");
}
__device__ __forceinline__ void mbarrier_wait_parity(Mbarrier* barrier, int parity) {
  asm volatile(
      "{.reg .pred done; again: mbarrier.try_wait.parity.shared::cta.b64 done, [%0], %1; @done bra finished; bra "
      "again; finished:}" ::"r"(shared_address(barrier)),
      "r"(parity)
      : "memory");
}
// Loads rows of 128 bytes: channels from `channel` on. Pixels begin at (plane, row, column) of an image, each shifted
// by a tap (tap_offset). `volumes` says that the map has planes.
__device__ __forceinline__ void tma_load_im2col(unsigned char* to, const TensorMap& map, Mbarrier* barrier,
                                                bool volumes, int channel, const int (&at)[3], int image,
                                                unsigned tap) {
  const short right = tap & 255, down = tap >> 8 & 255, deep = tap >> 16;
  if (volumes)
    asm volatile(
        "cp.async.bulk.tensor.5d.shared::cluster.global.im2col.mbarrier::complete_tx::bytes [%0], [%1, {%3, %4, %5, "
        "%6, %7}], [%2], {%8, %9, %10};" ::"r"(shared_address(to)),
        "l"(&map), "r"(shared_address(barrier)), "r"(channel), "r"(at[2]), "r"(at[1]), "r"(at[0]), "r"(image),
        "h"(right), "h"(down), "h"(deep)
        : "memory");
  else
    asm volatile(
        "cp.async.bulk.tensor.4d.shared::cluster.global.im2col.mbarrier::complete_tx::bytes [%0], [%1, {%3, %4, %5, "
        "%6}], [%2], {%7, %8};" ::"r"(shared_address(to)),
        "l"(&map), "r"(shared_address(barrier)), "r"(channel), "r"(at[2]), "r"(at[1]), "r"(image), "h"(right), "h"(down)
        : "memory");
}
__device__ __forceinline__ void tma_load_3d(unsigned char* to, const TensorMap& map, Mbarrier* barrier, int first,
                                            int second, int third) {
  asm volatile(
      "cp.async.bulk.tensor.3d.shared::cluster.global.tile.mbarrier::complete_tx::bytes [%0], [%1, {%3, %4, %5}], "
      "[%2];" ::"r"(shared_address(to)),
      "l"(&map), "r"(shared_address(barrier)), "r"(first), "r"(second), "r"(third)
      : "memory");
}
// Loads a dense box.
__device__ __forceinline__ void tma_load_4d(unsigned char* to, const TensorMap& map, Mbarrier* barrier, int first,
                                            int second, int third, int fourth) {
  asm volatile(
      "cp.async.bulk.tensor.4d.shared::cluster.global.tile.mbarrier::complete_tx::bytes [%0], [%1, {%3, %4, %5, %6}], "
      "[%2];" ::"r"(shared_address(to)),
      "l"(&map), "r"(shared_address(barrier)), "r"(first), "r"(second), "r"(third), "r"(fourth)
      : "memory");
}
// Loads rows of 128 bytes of a five-dimensional tensor, along the second dimension.
__device__ __forceinline__ void tma_load_5d(unsigned char* to, const TensorMap& map, Mbarrier* barrier, int first,
                                            int second, int third, int fourth, int fifth) {
  asm volatile(
      "cp.async.bulk.tensor.5d.shared::cluster.global.tile.mbarrier::complete_tx::bytes [%0], [%1, {%3, %4, %5, %6, "
      "%7}], [%2];" ::"r"(shared_address(to)),
      "l"(&map), "r"(shared_address(barrier)), "r"(first), "r"(second), "r"(third), "r"(fourth), "r"(fifth)
      : "memory");
}
// Copies a multiple of 16 bytes between addresses that are multiples of 16.
__device__ __forceinline__ void tma_load_bulk(void* to, const void* from, unsigned bytes, Mbarrier* barrier) {
  asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::"r"(
                   shared_address(to)),
               "l"(from), "r"(bytes), "r"(shared_address(barrier))
               : "memory");
}
// Copies a box from rows in shared memory; elements outside the tensor are skipped. The threads that wrote the rows
// have called fence_proxy_async(). tma_store_commit() closes a group; tma_store_wait() before the rows are written
// again, or the thread ends.
__device__ __forceinline__ void tma_store_3d(const unsigned char* from, const TensorMap& map, int first, int second,
                                             int third) {
  asm volatile("cp.async.bulk.tensor.3d.global.shared::cta.tile.bulk_group [%0, {%2, %3, %4}], [%1];" ::"l"(&map),
               "r"(shared_address(from)), "r"(first), "r"(second), "r"(third)
               : "memory");
}
__device__ __forceinline__ void tma_store_4d(const unsigned char* from, const TensorMap& map, int first, int second,
                                             int third, int fourth) {
  asm volatile("cp.async.bulk.tensor.4d.global.shared::cta.tile.bulk_group [%0, {%2, %3, %4, %5}], [%1];" ::"l"(&map),
               "r"(shared_address(from)), "r"(first), "r"(second), "r"(third), "r"(fourth)
               : "memory");
}
__device__ __forceinline__ void tma_store_commit() { asm volatile("cp.async.bulk.commit_group;" ::: "memory"); }
template <int PENDING> __device__ __forceinline__ void tma_store_wait() {
  asm volatile("cp.async.bulk.wait_group.read %0;" ::"n"(PENDING) : "memory");
}
// Takes registers that another warpgroup released, or releases some. All warps of a warpgroup call this.
template <int REGISTERS> __device__ __forceinline__ void setmaxnreg_increase() {
  asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(REGISTERS));
}
template <int REGISTERS> __device__ __forceinline__ void setmaxnreg_decrease() {
  asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(REGISTERS));
}

#endif
