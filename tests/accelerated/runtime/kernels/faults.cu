// Each kernel has one fault, which the emulated device must report.
#include <cassert>

#include "primitives/dependent_launch.cuh"
#include "primitives/cp_async.cuh"
#include "primitives/tma.cuh"

struct Arguments {
  float* values;
  int number;
};

extern "C" __global__ void write_value(const Arguments arguments) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x + arguments.number;
  arguments.values[i] = 1.0f;  // write_value: write
}

extern "C" __global__ void read_value(const Arguments arguments) {
  arguments.values[0] = arguments.values[(int)threadIdx.x + arguments.number];  // read_value: read
}

extern "C" __global__ void load_vector(const Arguments arguments) {
  arguments.values[0] = reinterpret_cast<const float4*>(arguments.values + arguments.number)->x;  // load_vector: load
}

// A barrier is missing between the write and the read of `shared`.
extern "C" __global__ void missing_barrier(const Arguments arguments) {
  __shared__ float shared[64];
  shared[threadIdx.x] = arguments.values[threadIdx.x];
  arguments.values[threadIdx.x] = shared[(threadIdx.x + 1) % 64];
}

// A barrier is missing here, too, after another one: threads then run in another order.
extern "C" __global__ void missing_second_barrier(const Arguments arguments) {
  __shared__ float shared[64];
  shared[threadIdx.x] = 0.0f;
  __syncthreads();
  shared[threadIdx.x] = arguments.values[threadIdx.x];
  arguments.values[threadIdx.x] = shared[(threadIdx.x + 1) % 64];
}

extern "C" __global__ void divergent_barrier(const Arguments arguments) {
  if ((int)threadIdx.x < arguments.number) {
    __syncthreads();  // divergent_barrier: first
  } else {
    __syncthreads();  // divergent_barrier: second
  }
  arguments.values[threadIdx.x] = 1.0f;
}

extern "C" __global__ void skipped_barrier(const Arguments arguments) {
  if ((int)threadIdx.x >= arguments.number) return;
  __syncthreads();  // skipped_barrier: barrier
  arguments.values[threadIdx.x] = 1.0f;
}

extern "C" __global__ void stuck_shuffle(const Arguments arguments) {
  float value = arguments.values[threadIdx.x];
  if (threadIdx.x < 16) value = __shfl_down_sync(0xffffffffu, value, 1);  // stuck_shuffle: shuffle
  __syncthreads();
  arguments.values[threadIdx.x] = value;
}

extern "C" __global__ void shared_index(const Arguments arguments) {
  __shared__ float shared[32];
  shared[threadIdx.x + arguments.number] = 1.0f;  // shared_index: write
  __syncthreads();
  arguments.values[threadIdx.x] = shared[threadIdx.x];
}

extern "C" __global__ void dynamic_shared_index(const Arguments arguments) {
  float* shared = reinterpret_cast<float*>(shared_memory);
  shared[(int)threadIdx.x + arguments.number] = 1.0f;  // dynamic_shared_index: write
  __syncthreads();
  arguments.values[threadIdx.x] = shared[threadIdx.x];
}

// The read is out of bounds; all writes are in bounds.
extern "C" __global__ void dynamic_shared_read(const Arguments arguments) {
  const float value = reinterpret_cast<float*>(shared_memory)[arguments.number];  // dynamic_shared_read: read
  arguments.values[threadIdx.x] = value > 0 ? 2.0f : 1.0f;
}

extern "C" __global__ void unset_shared(const Arguments arguments) {
  __shared__ float shared[32];
  if (threadIdx.x != 0) shared[threadIdx.x] = 1.0f;
  __syncthreads();
  arguments.values[threadIdx.x] = shared[threadIdx.x];
}

// The kernel is right only if it waits for both loads (`number` is 2).
extern "C" __global__ void forgotten_load(const Arguments arguments) {
  alignas(16) __shared__ float shared[64];
  __shared__ Mbarrier barriers[2];
  if (threadIdx.x == 0) {
    for (int i = 0; i < 2; i++) mbarrier_init(&barriers[i], 1);
    fence_mbarrier_init();
    for (int i = 0; i < 2; i++) {
      mbarrier_arrive_expect_tx(&barriers[i], 128);
      tma_load_bulk(shared + 32 * i, arguments.values + 32 * i, 128, &barriers[i]);  // forgotten_load: load
    }
  }
  __syncthreads();
  for (int i = 0; i < arguments.number; i++) mbarrier_wait_parity(&barriers[i], 0);
  arguments.values[threadIdx.x] = shared[threadIdx.x % (32 * arguments.number)];
}

// The barrier expects `number` bytes, but the load has 128.
extern "C" __global__ void expected_bytes(const Arguments arguments) {
  alignas(16) __shared__ float shared[32];
  __shared__ Mbarrier barrier;
  if (threadIdx.x == 0) {
    mbarrier_init(&barrier, 1), fence_mbarrier_init();
    mbarrier_arrive_expect_tx(&barrier, arguments.number);  // expected_bytes: arrival
    tma_load_bulk(shared, arguments.values, 128, &barrier);
  }
  __syncthreads();
  mbarrier_wait_parity(&barrier, 0);  // expected_bytes: wait
}

// The barrier expects only one of `number` loads.
extern "C" __global__ void unexpected_load(const Arguments arguments) {
  alignas(16) __shared__ float shared[64];
  __shared__ Mbarrier barrier;
  if (threadIdx.x == 0) {
    mbarrier_init(&barrier, 1), fence_mbarrier_init();
    mbarrier_arrive_expect_tx(&barrier, 128);
    for (int i = 0; i < arguments.number; i++)
      tma_load_bulk(shared + 32 * i, arguments.values, 128, &barrier);  // unexpected_load: load
  }
  __syncthreads();
  mbarrier_wait_parity(&barrier, 0);
}

extern "C" __global__ void barrier_elsewhere(const Arguments arguments) {
  if (threadIdx.x == 0) mbarrier_init(reinterpret_cast<Mbarrier*>(arguments.values), 1);  // barrier_elsewhere: init
}

extern "C" __global__ void repeated_barrier(const Arguments arguments) {
  __shared__ Mbarrier barrier;
  if ((int)threadIdx.x <= arguments.number) mbarrier_init(&barrier, 1);  // repeated_barrier: init
}

extern "C" __global__ void misaligned_copy(const Arguments arguments) {
  alignas(16) __shared__ float shared[4];
  if (threadIdx.x == 0) cp_async<16>(shared, arguments.values + arguments.number, true);  // misaligned_copy: copy
  cp_async_commit();
  cp_async_wait<0>();
}

// The destinations of the copies are `number` elements apart.
extern "C" __global__ void two_copies(const Arguments arguments) {
  alignas(16) __shared__ float shared[64];
  if (threadIdx.x > 0) return;
  cp_async<16>(shared, arguments.values, true);                         // two_copies: one
  cp_async<4>(shared + arguments.number, arguments.values + 32, true);  // two_copies: other
  cp_async_commit();
  cp_async_wait<0>();
  arguments.values[0] = shared[arguments.number];
}

extern "C" __global__ void copy_and_load(const Arguments arguments) {
  alignas(16) __shared__ float shared[64];
  __shared__ Mbarrier barrier;
  if (threadIdx.x > 0) return;
  mbarrier_init(&barrier, 1), fence_mbarrier_init();
  mbarrier_arrive_expect_tx(&barrier, 128);
  tma_load_bulk(shared, arguments.values, 128, &barrier);               // copy_and_load: one
  cp_async<4>(shared + arguments.number, arguments.values + 32, true);  // copy_and_load: other
  cp_async_commit();
  cp_async_wait<0>();
  mbarrier_wait_parity(&barrier, 0);
}

// The kernel writes while the copy is in flight.
extern "C" __global__ void written_while_copied(const Arguments arguments) {
  alignas(16) __shared__ float shared[64];
  if (threadIdx.x > 0) return;
  cp_async<16>(shared, arguments.values, true);  // written_while_copied: copy
  cp_async_commit();
  shared[arguments.number] = 1.0f;
  cp_async_wait<0>();
}

extern "C" __global__ void matrix_while_copied(const Arguments arguments) {
  alignas(16) __shared__ float shared[64];
  shared[threadIdx.x] = 1.0f, shared[threadIdx.x + 32] = 1.0f;
  __syncwarp();
  if (threadIdx.x == 0) cp_async<16>(shared + arguments.number, arguments.values, true);  // matrix_while_copied: copy
  unsigned registers[1];
  ldmatrix(registers, shared + threadIdx.x % 8 * 4);
  cp_async_commit();
  cp_async_wait<0>();
}

extern "C" __global__ void forgotten_copy(const Arguments arguments) {
  alignas(16) __shared__ float shared[64];
  cp_async<4>(shared + threadIdx.x, arguments.values, true);  // forgotten_copy: copy
  cp_async_commit();
  if ((int)threadIdx.x < arguments.number) cp_async_wait<0>();
}

extern "C" __global__ void copy_elsewhere(const Arguments arguments) {
  float* const shared = reinterpret_cast<float*>(shared_memory);
  if (threadIdx.x == 0) cp_async<16>(shared + arguments.number, arguments.values, true);  // copy_elsewhere: copy
  cp_async_commit();
  cp_async_wait<0>();
}

// The tile has 32 rows of ones. The block has 128 threads.
extern "C" __global__ void early_sums(const Arguments arguments) {
  unsigned char* const tile = shared_memory + (-reinterpret_cast<uintptr_t>(shared_memory) & 1023);
  for (unsigned i = threadIdx.x; i < 1024; i += 128) reinterpret_cast<unsigned*>(tile)[i] = 0x3c003c00;
  fence_proxy_async();
  __syncthreads();
  float sums[16] = {};
  const unsigned left[4] = {0x3c003c00, 0x3c003c00, 0x3c003c00, 0x3c003c00};
  if (arguments.number < 64) wgmma_fence();
  wgmma_mma_async<half, 32>(sums, left, tile + arguments.number / 2 % 32 * 16, 0);  // early_sums: product
  wgmma_commit();
  if (arguments.number % 2) wgmma_wait<0>();
  const float early = sums[0];
  wgmma_wait<0>();
  arguments.values[threadIdx.x] = early;
}

struct BoxArguments {
  float* values;
  int first, at;  // start of the box: element in the tensor, byte in shared memory
  TensorMap map;
};
// The box has two rows of 32 floats, copied as shared memory has them.
extern "C" __global__ void load_box(const __grid_constant__ BoxArguments arguments) {
  unsigned char* const rows = shared_memory + (-reinterpret_cast<uintptr_t>(shared_memory) & 1023) + arguments.at;
  __shared__ Mbarrier barrier;
  if (threadIdx.x == 0) {
    mbarrier_init(&barrier, 1), fence_mbarrier_init();
    mbarrier_arrive_expect_tx(&barrier, 256);
    tma_load_3d(rows, arguments.map, &barrier, arguments.first, 0, 0);  // load_box: load
  }
  __syncthreads();
  mbarrier_wait_parity(&barrier, 0);
  arguments.values[threadIdx.x] = reinterpret_cast<const float*>(rows)[threadIdx.x];
}

extern "C" __global__ void store_box(const __grid_constant__ BoxArguments arguments) {
  unsigned char* const rows = shared_memory + (-reinterpret_cast<uintptr_t>(shared_memory) & 1023);
  reinterpret_cast<float*>(rows)[threadIdx.x] = threadIdx.x;
  fence_proxy_async();
  __syncthreads();
  if (threadIdx.x > 0) return;
  tma_store_3d(rows, arguments.map, arguments.first, 0, 0);  // store_box: store
  tma_store_commit(), tma_store_wait<0>();
}
extern "C" __global__ void strange_parity(const Arguments arguments) {
  __shared__ Mbarrier barrier;
  if (threadIdx.x > 0) return;
  mbarrier_init(&barrier, 1), fence_mbarrier_init();
  mbarrier_arrive(&barrier);
  mbarrier_wait_parity(&barrier, arguments.number);  // strange_parity: wait
}

// Elements from `set` on are not initialized; the stack may hold values of an earlier thread.
__device__ __noinline__ float sum_of_eight(int set) {
  float some[8];
  for (int i = 0; i < set; i++) some[i] = (float)i;
  float sum = 0;
  for (const float& each : some) sum += each;
  return sum;
}
extern "C" __global__ void unset_variable(const Arguments arguments) {
  arguments.values[threadIdx.x] = sum_of_eight(threadIdx.x == 0 ? 8 : arguments.number);
}

extern "C" __global__ void crowded_barrier(const Arguments arguments) {
  __shared__ Mbarrier barrier;
  if (threadIdx.x == 0) mbarrier_init(&barrier, 2), mbarrier_arrive(&barrier);
  __syncthreads();
  if (threadIdx.x == 1) mbarrier_arrive(&barrier, arguments.number);  // crowded_barrier: arrival
}

extern "C" __global__ void unseen_phase(const Arguments arguments) {
  __shared__ Mbarrier barrier;
  if (threadIdx.x != 0) return;
  mbarrier_init(&barrier, 1);
  for (int i = 0; i < arguments.number; i++) mbarrier_arrive(&barrier);  // unseen_phase: arrival
}

// The copy starts before the old values have been read.
extern "C" __global__ void early_copy(const Arguments arguments) {
  alignas(16) __shared__ float shared[64];
  shared[threadIdx.x] = arguments.values[threadIdx.x];
  cp_async<4>(shared + threadIdx.x, arguments.values + threadIdx.x, true);
  arguments.values[threadIdx.x] = shared[threadIdx.x];
  cp_async_commit();
  cp_async_wait<0>();
}

__device__ __noinline__ int descend(int depth) {
  volatile char local[4096];
  local[depth % 4096] = (char)depth;
  return depth > 0 ? descend(depth - 1) + local[depth % 4096] : 0;
}

extern "C" __global__ void deep_recursion(const Arguments arguments) {
  arguments.values[0] = (float)descend(arguments.number);
}

extern "C" __global__ void failed_assertion(const Arguments arguments) {
  assert((int)threadIdx.x < arguments.number);  // failed_assertion: assert
  arguments.values[threadIdx.x] = 1.0f;
}

extern "C" __global__ void trap(const Arguments arguments) {
  if ((int)threadIdx.x == arguments.number) __trap();
}

extern "C" __global__ void divide(const Arguments arguments) {
  arguments.values[0] = (float)(7 / arguments.number);  // divide: division
}

extern "C" __global__ void shift(const Arguments arguments) {
  arguments.values[0] = (float)(1u << arguments.number);  // shift: shift
}

extern "C" __global__ void helper_load(const Arguments arguments) {
  arguments.values[0] = __ldg(arguments.values + arguments.number);  // helper_load: load
}

extern "C" __global__ void forgets_to_wait(const Arguments arguments) {
  griddepcontrol_wait_deferred();
  arguments.values[threadIdx.x] = 1.0f;  // forgets_to_wait: write
}

extern "C" __global__ void reads_before_it_waits(const Arguments arguments) {
  griddepcontrol_wait_deferred();
  const float value = arguments.values[arguments.number];  // reads_before_it_waits: read
  griddepcontrol_wait_before_access(arguments.values);
  arguments.values[threadIdx.x] = value;
}

extern "C" __global__ void waits_in_time(const Arguments arguments) {
  griddepcontrol_wait_deferred();
  if ((int)threadIdx.x < arguments.number) return;
  griddepcontrol_wait_before_access(arguments.values + threadIdx.x);
  arguments.values[threadIdx.x] = 1.0f;
}

// Only the first warp waits; with `number` set, the other one runs after it.
extern "C" __global__ void some_wait(const Arguments arguments) {
  griddepcontrol_wait_deferred();
  if ((int)threadIdx.x < 32) griddepcontrol_wait_before_access(arguments.values + threadIdx.x);
  if (arguments.number) __syncthreads();
  arguments.values[threadIdx.x] = 1.0f;  // some_wait: write
}

extern "C" __global__ void copies_before_it_waits(const Arguments arguments) {
  griddepcontrol_wait_deferred();
  alignas(16) __shared__ float shared[64];
  cp_async<4>(shared + threadIdx.x, arguments.values + threadIdx.x, true);  // copies_before_it_waits: copy
  cp_async_commit();
  griddepcontrol_wait_before_access(arguments.values + threadIdx.x);
  cp_async_wait<0>();
  arguments.values[threadIdx.x] = shared[threadIdx.x];
}
