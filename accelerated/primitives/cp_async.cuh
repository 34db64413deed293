// This header copies asynchronously from global to shared memory with cp.async (compute capability 8.0).
#pragma once

#ifdef EMULATED_CUDA
namespace emulated {
// The emulated device copies as late as the PTX manual allows, at the wait. Until then the target is poison. So a
// kernel that forgets a wait, or reuses a tile too early, computes wrong results.
struct Copy {
  void* to;
  const void* from;
  int bytes;
  bool exists;
  races::Request request;
};
inline Queues<Copy> copies;

inline void finish_copy(const Copy& copy) {
  const races::Later later(copy.request);
  end_copy(copy.to, copy.bytes);
  if (copy.exists) memcpy(copy.to, copy.from, copy.bytes);
  else memset(copy.to, 0, copy.bytes);
}
}  // namespace emulated
#endif

// Copies BYTES (4, 8 or 16), or writes zeros.
#ifdef EMULATED_CUDA
template <int BYTES> EMULATED_CALL void cp_async(void* to, const void* from, bool exists) {
  static_assert(BYTES == 4 || BYTES == 8 || BYTES == 16);
  if ((reinterpret_cast<uintptr_t>(to) | (exists ? reinterpret_cast<uintptr_t>(from) : 0)) % BYTES)
    emulated::fail_at(EMULATED_HERE, from, "cp.async: %d bytes to or from an address that is no multiple of them",
                      BYTES);
  if (exists) emulated::require_followed(EMULATED_HERE);
  emulated::copies.add({to, from, BYTES, exists, emulated::races::request_write(to, BYTES, EMULATED_HERE)});
  emulated::begin_copy(to, BYTES, EMULATED_HERE);
}
#else
template <int BYTES> __device__ __forceinline__ void cp_async(void* to, const void* from, bool exists) {
  const unsigned address = static_cast<unsigned>(__cvta_generic_to_shared(to)), bytes = exists ? BYTES : 0;
  if constexpr (BYTES == 16)
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(address), "l"(from), "r"(bytes) : "memory");
  else
    asm volatile("cp.async.ca.shared.global [%0], [%1], %3, %2;" ::"r"(address), "l"(from), "r"(bytes), "n"(BYTES)
                 : "memory");
}
#endif
// Copies 16 existing bytes with the L2 policy evict_first.
__device__ __forceinline__ void cp_async_evict_first(void* to, const void* from) {
#ifdef EMULATED_CUDA
  cp_async<16>(to, from, true);
#else
  unsigned long long policy;
  asm("createpolicy.fractional.L2::evict_first.b64 %0, 1.0;" : "=l"(policy));
  asm volatile("cp.async.cg.shared.global.L2::cache_hint [%0], [%1], 16, %2;" ::"r"(
                   static_cast<unsigned>(__cvta_generic_to_shared(to))),
               "l"(from), "l"(policy)
               : "memory");
#endif
}
__device__ __forceinline__ void cp_async_commit() {
#ifdef EMULATED_CUDA
  emulated::copies.end_group();
#else
  asm volatile("cp.async.commit_group;" ::: "memory");
#endif
}
// Waits until at most PENDING groups of this thread's copies are in flight.
template <int PENDING> __device__ __forceinline__ void cp_async_wait() {
#ifdef EMULATED_CUDA
  emulated::copies.finish(PENDING, emulated::finish_copy);
#else
  asm volatile("cp.async.wait_group %0;" ::"n"(PENDING) : "memory");
#endif
}
