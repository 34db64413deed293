// TMA: asynchronous copies of tiles between tensors and shared memory, and the mbarriers that they complete (the host
// side is runtime/tensor_map.py and primitives/tma.py). Tiles of three and five dimensions and im2col tiles are rows of
// 128 bytes with the 128-byte swizzle, as primitives/mma.cuh reads them; tiles of four dimensions are dense.
//
// A phase of an mbarrier completes when `arrivals` threads have arrived and all expected bytes have been copied;
// mbarrier_wait_parity() takes the parity of the phase: 0, 1, 0 and so on.
#pragma once
#include "primitives/mma.cuh"

struct alignas(64) TensorMap {
  unsigned char bytes[128];
};  // a __grid_constant__ argument
struct Mbarrier {
  unsigned long long state;
};
struct L2CachePolicy {
  unsigned long long bits;
};  // createpolicy

#ifdef EMULATED_CUDA

namespace emulated {
struct MbarrierState {
  int bytes;
  unsigned short arrivals, pending : 14, unseen : 1, phase : 1;  // unseen: nobody has waited for the phase that ended
};
static_assert(sizeof(MbarrierState) == sizeof(Mbarrier));
inline MbarrierState& state_of(Mbarrier* barrier) { return *reinterpret_cast<MbarrierState*>(barrier); }

struct Map {  // EmulatedMap in runtime/tensor_map.py has the same fields
  const unsigned char* base;
  long long stride[4];  // bytes, of all dimensions but the innermost
  int extent[5];
  int lower[2], upper[2], step[2], pixels, box[5];
  int rank, element_bytes, columns, rounded, dense;
};
struct Load {
  Mbarrier* barrier;
  unsigned char* to;
  Map map;  // a copy: the arguments live as long as the thread
  int at[5], offset[2];
  races::Request request = {};
  int bytes() const {
    return map.dense ? map.box[0] * map.box[1] * map.box[2] * map.box[3] * map.element_bytes : 128 * rows();
  }
  int rows() const { return map.columns ? map.pixels : map.box[1] * map.box[2]; }
};
inline std::deque<Load> loads;
inline uint64_t launch_of_loads;
inline std::deque<Load>& loads_of_launch() {
  if (launch_of_loads != launches) loads.clear();  // one that failed may have left some
  launch_of_loads = launches;
  return loads;
}
struct Write {
  const unsigned char* from;  // null ends a group
  Map map;
  int at[4];
  races::Request request = races::request_engine_read();
};
inline Queues<Write> writes;

// Whether this block has set up a barrier before: the PTX manual leaves open what becomes of one that is set up again.
inline std::deque<const Mbarrier*> barriers;
inline uint64_t launch_of_barriers;
inline uint3 block_of_barriers;
inline bool is_set_up(const Mbarrier* barrier) {
  const uint3 now = block.index, then = block_of_barriers;
  if (launch_of_barriers != launches || now.x != then.x || now.y != then.y || now.z != then.z) barriers.clear();
  launch_of_barriers = launches, block_of_barriers = now;
  const bool found = std::find(barriers.begin(), barriers.end(), barrier) != barriers.end();
  if (!found) barriers.push_back(barrier);
  return found;
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
  // A waiter knows the parity alone: it would take the next phase for the one before.
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
  state_of(barrier).pending -= count;
  end_phase(barrier, instruction);
}
inline void begin_load(Load load, const void* instruction) {
  load.request = races::request_write(load.to, load.bytes(), instruction);
  loads_of_launch().push_back(load);
  loads_in_flight++;
  load_instruction = instruction;
  fill_with_poison(load.to, load.bytes());  // neither what was there nor what comes
  wake_waiters(load.barrier);               // a waiting thread completes it
}

// A box must begin at a multiple of 16 bytes, or the GPU faults.
inline void require_aligned_box(const TensorMap& map, int first) {
  if (first * reinterpret_cast<const Map&>(map).element_bytes % 16)
    fail("TMA: a box begins at element %d, not at a multiple of 16 bytes", first);
}

inline void load_row(const Load& load, int row, const int* at) {
  const Map& map = load.map;
  const int elements = 16 / map.element_bytes;  // of a pack of the swizzle
  bool exists = true;
  long long offset = 0;
  for (int d = 1; d < map.rank; d++) {
    exists = exists && unsigned(at[d]) < unsigned(map.extent[d]);
    offset += at[d] * map.stride[d - 1];
  }
  const unsigned char* from = map.base + offset;
  for (int pack = 0; pack < 8; pack++) {
    unsigned char* to = const_cast<unsigned char*>(swizzled(load.to, row, pack));
    const int first = at[0] + pack * elements;
    if (exists && first >= 0 && first + elements <= map.extent[0]) {
      memcpy(to, from + static_cast<long long>(first) * map.element_bytes, 16);
    } else {
      memset(to, 0, 16);
      for (int i = 0; i < elements; i++)
        if (exists && unsigned(first + i) < unsigned(map.extent[0]))
          memcpy(to + i * map.element_bytes, from + static_cast<long long>(first + i) * map.element_bytes,
                 map.element_bytes);
    }
    if (map.rounded) {
      float values[4];
      memcpy(values, to, 16);
      for (float& value : values) value = round_to_tf32(value);
      memcpy(to, values, 16);
    }
  }
}

// Elements of a dense box: visit(byte in the box, byte in the tensor, whether it lies inside the tensor).
template <class Visit> inline void for_dense_box(const Map& map, const int* at, Visit visit) {
  int i[4];
  size_t byte = 0;
  for (i[3] = 0; i[3] < map.box[3]; i[3]++)
    for (i[2] = 0; i[2] < map.box[2]; i[2]++)
      for (i[1] = 0; i[1] < map.box[1]; i[1]++)
        for (i[0] = 0; i[0] < map.box[0]; i[0]++, byte += map.element_bytes) {
          bool exists = true;
          long long offset = 0;
          for (int d = 0; d < 4; d++) {
            exists = exists && unsigned(at[d] + i[d]) < unsigned(map.extent[d]);
            offset += (at[d] + i[d]) * (d ? map.stride[d - 1] : map.element_bytes);
          }
          visit(byte, offset, exists);
        }
}
inline void tma_load_4d(const Load& load) {
  for_dense_box(load.map, load.at, [&](size_t byte, long long offset, bool exists) {
    if (exists) memcpy(load.to + byte, load.map.base + offset, load.map.element_bytes);
    else memset(load.to + byte, 0, load.map.element_bytes);
  });
}

inline void complete_load(const Load& load) {
  const races::ByAgent agent(load.barrier, load.request);
  const Map& map = load.map;
  int at[5];
  memcpy(at, load.at, sizeof at);
  if (map.dense) {
    tma_load_4d(load);
  } else if (map.columns) {  // pixels follow each other within the box that the corners leave, row after row
    for (int row = 0; row < map.pixels; row++) {
      int pixel[5] = {at[0], at[1] + load.offset[0], at[2] + load.offset[1], at[3]};
      load_row(load, row, pixel);
      for (int d = 0; d < 2; d++) {
        at[d + 1] += map.step[d];
        if (at[d + 1] < map.extent[d + 1] + map.upper[d]) break;
        at[d + 1] = map.lower[d];
        if (d == 1) at[3]++;
      }
    }
  } else {
    for (int row = 0; row < map.box[1] * map.box[2]; row++) {
      const int box[5] = {at[0], at[1] + row % map.box[1], at[2] + row / map.box[1], at[3], at[4]};
      load_row(load, row, box);
    }
  }
}

// Loads complete as late as the PTX manual allows: when a thread waits for them. Until then the target is poison.
inline void finish_loads(Mbarrier* barrier) {
  std::deque<Load>& loads = loads_of_launch();
  for (size_t i = 0; i < loads.size();) {
    if (loads[i].barrier != barrier) {
      i++;
      continue;
    }
    const Load load = loads[i];
    loads.erase(loads.begin() + i);
    loads_in_flight--;
    complete_load(load);
    const races::Unseen unseen;
    state_of(barrier).bytes -= load.bytes();
    end_phase(barrier);
  }
}
inline void finish_write(const Write& write) {
  const Map& map = write.map;
  if (map.dense) {
    for_dense_box(map, write.at, [&](size_t byte, long long offset, bool exists) {
      if (exists) memcpy(const_cast<unsigned char*>(map.base) + offset, write.from + byte, map.element_bytes);
    });
    return;
  }
  const int above = reinterpret_cast<uintptr_t>(write.from) / 128 % 8;  // the swizzle is that of the address
  for (int row = 0; row < map.box[1] * map.box[2]; row++)
    for (int i = 0; i < map.box[0]; i++) {
      const int at[3] = {write.at[0] + i, write.at[1] + row % map.box[1], write.at[2] + row / map.box[1]},
                byte = i * map.element_bytes;
      if (unsigned(at[0]) >= unsigned(map.extent[0]) || unsigned(at[1]) >= unsigned(map.extent[1]) ||
          unsigned(at[2]) >= unsigned(map.extent[2]))
        continue;
      unsigned char* to = const_cast<unsigned char*>(map.base) + at[0] * map.element_bytes + at[1] * map.stride[0] +
                          at[2] * map.stride[1];
      memcpy(to, swizzled(write.from - above * 128, above + row, byte / 16) + byte % 16, map.element_bytes);
    }
}
}  // namespace emulated

EMULATED_CALL void mbarrier_init(Mbarrier* barrier, int arrivals) {
  if (emulated::is_set_up(barrier)) emulated::fail_at(EMULATED_HERE, barrier, "an mbarrier is set up twice");
  emulated::races::begin_object(barrier, EMULATED_HERE);
  const emulated::races::Unseen unseen;
  emulated::state_of(barrier) = {0, static_cast<unsigned short>(arrivals), static_cast<unsigned short>(arrivals), 0, 0};
}
inline void fence_mbarrier_init() {}
EMULATED_CALL void mbarrier_arrive(Mbarrier* barrier, int count = 1) {
  emulated::arrive(barrier, count, 0, EMULATED_HERE);
}
EMULATED_CALL void mbarrier_arrive_expect_tx(Mbarrier* barrier, int bytes) {
  emulated::arrive(barrier, 1, bytes, EMULATED_HERE);
}
EMULATED_CALL void mbarrier_wait_parity(Mbarrier* barrier, int parity, EMULATED_SITE_PARAMETERS) {
  emulated::finish_loads(barrier);
  while (emulated::is_in_phase(barrier, parity)) {
    emulated::Thread& self = *emulated::current;
    self.site = EMULATED_SITE("mbarrier_wait_parity");
    self.awaited = barrier;
    self.wait = emulated::Wait::phase;
    emulated::suspend();
    emulated::finish_loads(barrier);
  }
  emulated::see_phase(barrier);
  emulated::races::acquire(barrier, EMULATED_HERE);
}
EMULATED_CALL void tma_load_im2col(unsigned char* to, const TensorMap& map, Mbarrier* barrier, int channel, int column,
                                   int row, int image, int right, int down) {
  emulated::begin_load(
      {barrier, to, reinterpret_cast<const emulated::Map&>(map), {channel, column, row, image}, {right, down}},
      EMULATED_HERE);
}
EMULATED_CALL void tma_load_3d(unsigned char* to, const TensorMap& map, Mbarrier* barrier, int first, int second,
                               int third) {
  emulated::require_aligned_box(map, first);
  emulated::begin_load({barrier, to, reinterpret_cast<const emulated::Map&>(map), {first, second, third}, {}},
                       EMULATED_HERE);
}
EMULATED_CALL void tma_load_4d(unsigned char* to, const TensorMap& map, Mbarrier* barrier, int first, int second,
                               int third, int fourth) {
  emulated::require_aligned_box(map, first);
  emulated::begin_load({barrier, to, reinterpret_cast<const emulated::Map&>(map), {first, second, third, fourth}, {}},
                       EMULATED_HERE);
}
EMULATED_CALL void tma_load_5d(unsigned char* to, const TensorMap& map, Mbarrier* barrier, int first, int second,
                               int third, int fourth, int fifth) {
  emulated::require_aligned_box(map, first);
  emulated::begin_load(
      {barrier, to, reinterpret_cast<const emulated::Map&>(map), {first, second, third, fourth, fifth}, {}},
      EMULATED_HERE);
}
inline L2CachePolicy l2_cache_policy(bool, unsigned = 0) { return {}; }
EMULATED_CALL void tma_load_bulk(void* to, const void* from, unsigned bytes, Mbarrier* barrier, L2CachePolicy) {
  if ((reinterpret_cast<uintptr_t>(to) | reinterpret_cast<uintptr_t>(from) | bytes) % 16)
    emulated::fail("TMA: a copy of %u bytes from or to an address, or of a size, that is no multiple of 16", bytes);
  emulated::Map map = {};
  map.base = static_cast<const unsigned char*>(from), map.extent[0] = map.box[0] = int(bytes) / 16,
  map.element_bytes = 16, map.dense = 1;
  for (int d = 1; d < 4; d++) map.extent[d] = map.box[d] = 1;
  emulated::begin_load({barrier, static_cast<unsigned char*>(to), map, {}, {}}, EMULATED_HERE);
}
inline void tma_prefetch_l2(const void*, unsigned) {}
inline void tma_store_3d(const unsigned char* from, const TensorMap& map, int first, int second, int third) {
  emulated::require_aligned_box(map, first);
  emulated::writes.own().push_back({from, reinterpret_cast<const emulated::Map&>(map), {first, second, third}});
}
inline void tma_store_4d(const unsigned char* from, const TensorMap& map, int first, int second, int third,
                         int fourth) {
  emulated::require_aligned_box(map, first);
  emulated::writes.own().push_back({from, reinterpret_cast<const emulated::Map&>(map), {first, second, third, fourth}});
}
inline void tma_store_commit() { emulated::writes.own().push_back({}); }
template <int PENDING> inline void tma_store_wait() {
  auto& queue = emulated::writes.own();
  int groups = std::count_if(queue.begin(), queue.end(), [](const emulated::Write& write) { return !write.from; });
  while (groups > PENDING) {
    const emulated::Write write = queue.front();
    queue.pop_front();
    const emulated::races::Later later(write.request);
    if (write.from) emulated::finish_write(write);
    else groups--;
  }
}
template <int REGISTERS> inline void setmaxnreg_increase() {}
template <int REGISTERS> inline void setmaxnreg_decrease() {}

#else

__device__ __forceinline__ unsigned shared_address(const void* pointer) {
  return static_cast<unsigned>(__cvta_generic_to_shared(pointer));
}

__device__ __forceinline__ void mbarrier_init(Mbarrier* barrier, int arrivals) {
  asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(shared_address(barrier)), "r"(arrivals) : "memory");
}
// Before the __syncthreads() after which mbarriers are used.
__device__ __forceinline__ void fence_mbarrier_init() {
  asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
  asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
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
// Rows of 128 bytes: channels from `channel` on of the pixels from (column, row) of an image on, each offset by a tap
// (right, down).
__device__ __forceinline__ void tma_load_im2col(unsigned char* to, const TensorMap& map, Mbarrier* barrier, int channel,
                                                int column, int row, int image, int right, int down) {
  asm volatile(
      "cp.async.bulk.tensor.4d.shared::cluster.global.im2col.mbarrier::complete_tx::bytes [%0], [%1, {%3, %4, %5, "
      "%6}], [%2], {%7, %8};" ::"r"(shared_address(to)),
      "l"(&map), "r"(shared_address(barrier)), "r"(channel), "r"(column), "r"(row), "r"(image),
      "h"(static_cast<short>(right)), "h"(static_cast<short>(down))
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
// A dense box.
__device__ __forceinline__ void tma_load_4d(unsigned char* to, const TensorMap& map, Mbarrier* barrier, int first,
                                            int second, int third, int fourth) {
  asm volatile(
      "cp.async.bulk.tensor.4d.shared::cluster.global.tile.mbarrier::complete_tx::bytes [%0], [%1, {%3, %4, %5, %6}], "
      "[%2];" ::"r"(shared_address(to)),
      "l"(&map), "r"(shared_address(barrier)), "r"(first), "r"(second), "r"(third), "r"(fourth)
      : "memory");
}
// Rows of 128 bytes of a tensor of five dimensions, along the second.
__device__ __forceinline__ void tma_load_5d(unsigned char* to, const TensorMap& map, Mbarrier* barrier, int first,
                                            int second, int third, int fourth, int fifth) {
  asm volatile(
      "cp.async.bulk.tensor.5d.shared::cluster.global.tile.mbarrier::complete_tx::bytes [%0], [%1, {%3, %4, %5, %6, "
      "%7}], [%2];" ::"r"(shared_address(to)),
      "l"(&map), "r"(shared_address(barrier)), "r"(first), "r"(second), "r"(third), "r"(fourth), "r"(fifth)
      : "memory");
}
// evict_normal: the usual policy; else L2::evict_first, but for so many sixteenths of the lines.
__device__ __forceinline__ L2CachePolicy l2_cache_policy(bool evict_normal, unsigned sixteenths = 0) {
  L2CachePolicy first, normal;
  asm("createpolicy.fractional.L2::evict_normal.b64 %0, 1.0;" : "=l"(normal.bits));
  if (sixteenths == 0) asm("createpolicy.fractional.L2::evict_first.b64 %0, 1.0;" : "=l"(first.bits));
  else
    asm("createpolicy.fractional.L2::evict_normal.L2::evict_first.b64 %0, %1;"
        : "=l"(first.bits)
        : "f"(sixteenths / 16.0f));
  return evict_normal ? normal : first;
}
// Copies a multiple of 16 bytes between addresses that are multiples of 16.
__device__ __forceinline__ void tma_load_bulk(void* to, const void* from, unsigned bytes, Mbarrier* barrier,
                                              L2CachePolicy policy) {
  asm volatile(
      "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes.L2::cache_hint [%0], [%1], %2, [%3], %4;" ::
          "r"(shared_address(to)),
      "l"(from), "r"(bytes), "r"(shared_address(barrier)), "l"(policy.bits)
      : "memory");
}
// Prefetches a multiple of 16 bytes to L2, before the wait (primitives/dependent_launch.cuh).
__device__ __forceinline__ void tma_prefetch_l2(const void* from, unsigned bytes) {
#if __CUDA_ARCH__ >= 900
  asm volatile("cp.async.bulk.prefetch.L2.global [%0], %1;" ::"l"(from), "r"(bytes) : "memory");
#endif
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
// All warps of a warpgroup: takes registers that another warpgroup released, or releases some.
template <int REGISTERS> __device__ __forceinline__ void setmaxnreg_increase() {
  asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(REGISTERS));
}
template <int REGISTERS> __device__ __forceinline__ void setmaxnreg_decrease() {
  asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(REGISTERS));
}

#endif
