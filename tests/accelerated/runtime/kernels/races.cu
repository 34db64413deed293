// Each kernel is correct if `right` is set. Otherwise it has a race between the two marked lines.
#include "primitives/cp_async.cuh"
#include "primitives/tma.cuh"

struct Arguments {
  float* values;
  int right;
};

// Each block gets its own 128 values.
#define KERNEL(name)                                                                                              \
  __device__ void name##_of_block(const Arguments& a);                                                            \
  extern "C" __global__ void name(const Arguments a) { name##_of_block({a.values + blockIdx.x * 128, a.right}); } \
  __device__ void name##_of_block(const Arguments& a)

// Blocks have 64 threads unless a comment says more.
__device__ __forceinline__ float* floats() { return reinterpret_cast<float*>(shared_memory); }

KERNEL(read_behind_write) {
  floats()[threadIdx.x] = 1;  // read_behind_write: one
  if (a.right) __syncthreads();
  a.values[threadIdx.x] = floats()[threadIdx.x ^ 32];  // read_behind_write: other
}

// Structures are passed and returned by value.
struct Two {
  float value;
  unsigned index;
};
__device__ __forceinline__ void merge(Two& into, Two other) {
  if (into.value < other.value || (into.value == other.value && other.index < into.index)) into = other;
  for (unsigned bit = 1; bit < 16; bit *= 2) into.index ^= other.index & bit;
}
__device__ __forceinline__ Two of(float value) {
  Two made{value, 0};
  for (unsigned i = 0; i < threadIdx.x; i++) made.index += i ^ 5;
  return made;
}
KERNEL(structures) {
  Two* const all = reinterpret_cast<Two*>(shared_memory);
  all[threadIdx.x] = of(1);  // structures: one
  if (a.right) __syncthreads();
  Two most{0, 0};
  merge(most, all[threadIdx.x ^ 32]);  // structures: other
  a.values[threadIdx.x] = most.index;
}

KERNEL(write_behind_read) {
  floats()[threadIdx.x] = 1;
  __syncthreads();
  a.values[threadIdx.x] = floats()[threadIdx.x ^ 32];  // write_behind_read: one
  if (a.right) __syncthreads();
  floats()[threadIdx.x] = 2;  // write_behind_read: other
}

// Only thread 32 of the second warp is not ordered before the write; it reads before the ordered threads.
KERNEL(write_behind_many_reads) {
  if (threadIdx.x == 0) floats()[0] = 1;
  __syncthreads();
  if (threadIdx.x < 32 || !a.right && threadIdx.x == 32)
    a.values[threadIdx.x] = floats()[0];  // write_behind_many_reads: one
  __syncwarp();
  if (threadIdx.x >= 32) return;
  for (int i = 0; i < 3; i++) a.values[threadIdx.x] += floats()[0];
  __syncwarp();
  if (threadIdx.x == 5) floats()[0] = 2;  // write_behind_many_reads: other
}

KERNEL(same_value_by_all) {
  if (a.right ? threadIdx.x == 63 : threadIdx.x >= 62)
    floats()[0] = 1;  // same_value_by_all: one, same_value_by_all: other
  __syncthreads();
  a.values[threadIdx.x] = floats()[0];
}

// A shuffle does not order memory accesses.
KERNEL(lanes) {
  floats()[threadIdx.x] = 1;  // lanes: one
  const int next = __shfl_sync(~0u, int(threadIdx.x), threadIdx.x + 1);
  if (a.right) __syncwarp();
  a.values[threadIdx.x] = floats()[next];  // lanes: other
}

KERNEL(some_lanes) {
  floats()[threadIdx.x] = 1;  // some_lanes: one
  const unsigned half = threadIdx.x & 16;
  __syncwarp(half ? 0xffff0000u : 0xffffu);
  a.values[threadIdx.x] = floats()[a.right ? threadIdx.x ^ 1 : threadIdx.x ^ 16];  // some_lanes: other
}

KERNEL(lanes_of_two_warps) {
  floats()[threadIdx.x] = 1;  // lanes_of_two_warps: one
  __syncwarp();
  a.values[threadIdx.x] = floats()[a.right ? threadIdx.x ^ 1 : threadIdx.x ^ 33];  // lanes_of_two_warps: other
}

KERNEL(neighbouring_bytes) {
  shared_memory[threadIdx.x] = 1;                                                  // neighbouring_bytes: one
  a.values[threadIdx.x] = shared_memory[a.right ? threadIdx.x : threadIdx.x ^ 1];  // neighbouring_bytes: other
}

KERNEL(atomics) {
  if (threadIdx.x == 0) floats()[0] = 0;
  __syncthreads();
  if (a.right || threadIdx.x < 63) atomicAdd(&floats()[0], 1);  // atomics: one
  else floats()[0] = 5;                                         // atomics: other
  __syncthreads();
  a.values[threadIdx.x] = floats()[0];
}

__device__ __forceinline__ Mbarrier* barrier() { return reinterpret_cast<Mbarrier*>(shared_memory + 1024); }
__device__ __forceinline__ void set_up(int arrivals) {
  if (threadIdx.x == 0) mbarrier_init(barrier(), arrivals), fence_mbarrier_init();
  __syncthreads();
}

KERNEL(set_up_unseen) {
  if (threadIdx.x == 0) mbarrier_init(barrier(), 32), fence_mbarrier_init();  // set_up_unseen: one
  if (a.right) __syncthreads();
  else if (threadIdx.x >= 32)
    for (int i = 0; i < 2; i++) __syncwarp();
  if (threadIdx.x >= 32) mbarrier_arrive(barrier());  // set_up_unseen: other
}

// The first warp writes and one lane arrives for it; the second warp reads.
KERNEL(one_lane_arrives) {
  set_up(1);
  if (threadIdx.x < 32) {
    floats()[threadIdx.x] = 1;  // one_lane_arrives: one
    if (a.right) __syncwarp();
    if (threadIdx.x == 0) mbarrier_arrive(barrier());
  } else {
    mbarrier_wait_parity(barrier(), 0);
    a.values[threadIdx.x] = floats()[threadIdx.x - 32];  // one_lane_arrives: other
  }
}

KERNEL(all_lanes_arrive) {
  set_up(32);
  if (threadIdx.x < 32) {
    if (a.right) floats()[threadIdx.x] = 1;
    mbarrier_arrive(barrier());
    if (!a.right) floats()[threadIdx.x] = 1;  // all_lanes_arrive: one
  } else {
    mbarrier_wait_parity(barrier(), 0);
    a.values[threadIdx.x] = floats()[threadIdx.x - 32];  // all_lanes_arrive: other
  }
}

// The second warp waits, and signals the third warp through another barrier. The block has 96 threads.
KERNEL(handed_on) {
  Mbarrier* const second = barrier() + 1;
  if (threadIdx.x == 0) mbarrier_init(second, 32);
  set_up(32);
  if (threadIdx.x < 32) {
    floats()[threadIdx.x] = 1;  // handed_on: one
    mbarrier_arrive(barrier());
  } else if (threadIdx.x < 64) {
    if (a.right) mbarrier_wait_parity(barrier(), 0);
    mbarrier_arrive(second);
  } else {
    mbarrier_wait_parity(second, 0);
    a.values[threadIdx.x] = floats()[threadIdx.x - 64];  // handed_on: other
  }
}

KERNEL(two_phases) {
  set_up(64);
  mbarrier_arrive(barrier());
  mbarrier_wait_parity(barrier(), 0);
  if (threadIdx.x < 32) floats()[threadIdx.x] = 1;  // two_phases: one
  mbarrier_arrive(barrier());
  if (threadIdx.x < 32) return;
  if (a.right) mbarrier_wait_parity(barrier(), 1);
  a.values[threadIdx.x] = floats()[threadIdx.x - 32];  // two_phases: other
}

// TMA loads 256 bytes.
__device__ __forceinline__ void load(const Arguments& a) {
  mbarrier_arrive_expect_tx(barrier(), 256);
  tma_load_bulk(shared_memory, a.values, 256, barrier());
}

KERNEL(brought_and_read) {
  set_up(1);
  if (threadIdx.x == 0) load(a);
  if (a.right || threadIdx.x == 0) mbarrier_wait_parity(barrier(), 0);
  if (!a.right) __syncwarp();                       // This does not order the second warp.
  atomicAdd(a.values + 64, floats()[threadIdx.x]);  // brought_and_read: other
}

KERNEL(brought_over_what_is_read) {
  set_up(1);
  floats()[threadIdx.x] = 1;
  __syncthreads();
  const float mine = floats()[threadIdx.x];  // brought_over_what_is_read: other
  if (a.right) __syncthreads();
  if (threadIdx.x == 0) load(a);
  mbarrier_wait_parity(barrier(), 0);
  atomicAdd(a.values + 64, mine);
}

// The write follows the request while the load is in flight.
KERNEL(touched_while_brought) {
  set_up(1);
  if (threadIdx.x == 0) load(a);
  if (!a.right && threadIdx.x == 0) floats()[5] = 1;  // touched_while_brought: other
  mbarrier_wait_parity(barrier(), 0);
  atomicAdd(a.values + 64, floats()[threadIdx.x]);
}

// A thread waits only for its own copies.
KERNEL(copied_and_read) {
  cp_async<4>(floats() + threadIdx.x, a.values + threadIdx.x, true);
  cp_async_commit();
  cp_async_wait<0>();
  if (a.right) __syncthreads();
  atomicAdd(a.values + 64, floats()[threadIdx.x ^ 32]);  // copied_and_read: other
}

KERNEL(copied_over_what_is_read) {
  floats()[threadIdx.x] = 1;
  __syncthreads();
  const float other = a.right ? 1.0f : floats()[threadIdx.x ^ 32];  // copied_over_what_is_read: other
  cp_async<4>(floats() + threadIdx.x, a.values + threadIdx.x, true);
  cp_async_commit();
  __syncthreads();  // This barrier comes too late.
  cp_async_wait<0>();
  atomicAdd(a.values + 64, other);
}

KERNEL(touched_while_copied) {
  cp_async<4>(floats() + threadIdx.x, a.values + threadIdx.x, true);
  cp_async_commit();
  __syncthreads();
  if (!a.right) floats()[threadIdx.x ^ 32] = 1;  // touched_while_copied: other
  __syncthreads();
  cp_async_wait<0>();
}

// TMA may read written values only after a proxy fence. A box has 32 floats.
struct StoreArguments {
  float* values;
  int right;
  TensorMap map;
};
extern "C" __global__ void stored(const __grid_constant__ StoreArguments a) {
  floats()[threadIdx.x] = 1;  // stored: one
  if (a.right) fence_proxy_async();
  __syncthreads();
  if (threadIdx.x == 0) tma_store_4d(shared_memory, a.map, 0, 0, 0, 0), tma_store_commit(), tma_store_wait<0>();
}
extern "C" __global__ void written_while_stored(const __grid_constant__ StoreArguments a) {
  floats()[threadIdx.x] = 1;
  fence_proxy_async();
  __syncthreads();
  if (threadIdx.x == 0) {
    tma_store_4d(shared_memory, a.map, 0, 0, 0, 0), tma_store_commit();
    if (a.right) tma_store_wait<0>();
    floats()[5] = 2;  // written_while_stored: one
    tma_store_wait<0>();
  }
}

// A wgmma product reads its tiles until the warpgroup waits for it. The block has 128 threads.
KERNEL(products) {
  unsigned char *const left = shared_memory + 2048, *const right = left + 64 * 128;
  for (unsigned i = threadIdx.x; i < (64 + 64) * 32; i += 128) reinterpret_cast<float*>(left)[i] = 1;
  set_up(128);
  fence_proxy_async();
  __syncthreads();
  float sums[32] = {};
  wgmma_mma_async<half, 64>(sums, left, right);
  wgmma_commit();
  if (a.right) wgmma_wait<0>();
  if (threadIdx.x % 32 == 0) mbarrier_arrive(barrier(), 32);
  mbarrier_wait_parity(barrier(), 0);
  if (threadIdx.x == 0) right[0] = 1;  // products: other
  wgmma_wait<0>();
}

// The left tile is in registers. The block has 128 threads.
KERNEL(products_of_registers) {
  unsigned char* const right = shared_memory + 2048;
  for (unsigned i = threadIdx.x; i < 64 * 32; i += 128)
    reinterpret_cast<float*>(right)[i] = 1;  // products_of_registers: one
  if (a.right) fence_proxy_async();
  __syncthreads();
  float sums[32] = {};
  const unsigned left[4] = {};
  wgmma_fence();
  wgmma_mma_async<half, 64>(sums, left, right, 0);
  wgmma_commit(), wgmma_wait<0>();
}

// These races are in global memory, between 4 blocks.
KERNEL(global_read_behind_write) {
  a.values[threadIdx.x] = 1;  // global_read_behind_write: one
  if (a.right) __syncthreads();
  floats()[threadIdx.x] = a.values[threadIdx.x ^ 1];  // global_read_behind_write: other
}

extern "C" __global__ void same_value_by_blocks(const Arguments a) {
  if (threadIdx.x == 5 && (a.right ? blockIdx.x == 2 : blockIdx.x >= 2))
    a.values[7] = 1;  // same_value_by_blocks: one, same_value_by_blocks: other
}

extern "C" __global__ void read_by_another_block(const Arguments a) {
  if (blockIdx.x == 3)
    a.values[threadIdx.x + 64] = a.values[a.right ? threadIdx.x + 64 : 9];  // read_by_another_block: one
  else if (blockIdx.x == 1) a.values[threadIdx.x] = 1;                      // read_by_another_block: other
}

// The last block that increments the counter reads the values of all blocks.
__device__ unsigned arrived[4];
template <bool FENCED, bool JOINED> __device__ __forceinline__ bool is_last(unsigned* count, int right) {
  if (JOINED || right) __syncthreads();
  if (threadIdx.x > 0) return false;
  if (FENCED || right) __threadfence();
  return atomicInc(count, gridDim.x - 1) == gridDim.x - 1;
}
extern "C" __global__ void counted_without_a_fence(const Arguments a) {
  if (threadIdx.x == 0) a.values[blockIdx.x] = 1;  // counted_without_a_fence: one
  if (is_last<false, true>(&arrived[0], a.right))
    for (unsigned i = 0; i < gridDim.x; i++) a.values[64] += a.values[i];  // counted_without_a_fence: other
}
extern "C" __global__ void counted_before_all_wrote(const Arguments a) {
  if (threadIdx.x == 33) a.values[blockIdx.x] = 1;  // counted_before_all_wrote: one
  if (is_last<true, false>(&arrived[1], a.right))
    for (unsigned i = 0; i < gridDim.x; i++)
      a.values[64] += i == blockIdx.x ? 0 : a.values[i];  // counted_before_all_wrote: other
}
extern "C" __global__ void counted_by_who_writes(const Arguments a) {
  __syncthreads();
  if (threadIdx.x > 0) return;
  if (a.right) a.values[blockIdx.x] = 1;
  __threadfence();
  const bool last = atomicInc(&arrived[2], gridDim.x - 1) == gridDim.x - 1;
  if (!a.right) a.values[blockIdx.x] = 1;                                        // counted_by_who_writes: one
  for (unsigned i = 0; last && i < gridDim.x; i++) a.values[64] += a.values[i];  // counted_by_who_writes: other
}
extern "C" __global__ void read_by_who_does_not_count(const Arguments a) {
  if (threadIdx.x > 0 || blockIdx.x == 0) return;
  if (blockIdx.x == 1) a.values[5] = 1;  // read_by_who_does_not_count: one
  __threadfence();
  if (blockIdx.x < 3) atomicInc(&arrived[3], 1);
  if (blockIdx.x == 3) a.values[6] = a.values[a.right ? 6 : 5];  // read_by_who_does_not_count: other
}
