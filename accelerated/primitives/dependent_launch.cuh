// How kernels of one stream follow each other.
//
// From compute capability 9.0 on the next kernel is launched while this one runs (programmatic dependent launch): its blocks
// start where all of this one have started and there is room. Nothing of the memory is touched before the kernels that came
// earlier have finished; each of them did the same, so that every kernel follows all that came before it.
//
// What a kernel finds out before it waits, its place and its arguments, which come from far away, overlaps with the kernel before, unless all
// kernels of a chain are that short: then it costs as much as what comes behind the wait. A copy of 0.4 MB, in a graph of many, takes
// 1.10 us without all this, 0.69 us where it asks before it waits and launchs dependents right after that, 0.71 to 0.84 us where
// it does so behind its reads: the compiler may put arithmetic on what was read before it (H200).
#pragma once
#include <cstdint>

// Up to so many blocks launch dependents before their reads: its blocks find their places meanwhile. The blocks of more are in
// each other's way, so they do it behind their reads. It begins when every block has let it in or has ended. So of very many blocks only the
// last MANY_BLOCKS, more than run at a time, say so: telling of each takes longer than it saves. (Large element-by-element operations
// take 2 % less than where none says it.)
constexpr unsigned MANY_BLOCKS_BEFORE_READS = 264, MANY_BLOCKS = 2048;

__device__ __forceinline__ unsigned grid_blocks() { return gridDim.x * gridDim.y; }

__device__ __forceinline__ void griddepcontrol_launch_dependents_if(bool now) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
  if (now) asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
#endif
}

// Before the wait, of a kernel so short that the next one's launch takes longer: that one, too, is waiting when this one ends, and the one behind
// it where that says so as well. Element-by-element operations of up to 1 MB on one operand take 0.77 us in a chain instead of 0.93 to 1.1 (H200). Longer kernels
// take up to 40 % more with it: two operands, reductions, softmax, pooling, changes of layout.
constexpr unsigned SHORT_GRID = 132, SHORT_GRID_OF_ITEMS = 264;
__device__ __forceinline__ void griddepcontrol_launch_dependents_early(unsigned blocks = SHORT_GRID) { griddepcontrol_launch_dependents_if(gridDim.x <= blocks); }

// Lets the next kernel in, behind the reads. Of a kernel that has no register to spare for it, or gains nothing, only where blocks are not many.
__device__ __forceinline__ void griddepcontrol_launch_dependents_medium_grid() { griddepcontrol_launch_dependents_if(grid_blocks() > MANY_BLOCKS_BEFORE_READS && grid_blocks() <= MANY_BLOCKS); }
__device__ __forceinline__ void griddepcontrol_launch_dependents() { griddepcontrol_launch_dependents_if(grid_blocks() > MANY_BLOCKS_BEFORE_READS && blockIdx.x + MANY_BLOCKS >= gridDim.x); }

// The first statement of a kernel that has little to find out.
__device__ __forceinline__ void griddepcontrol_wait() {
#ifdef EMULATED_CUDA
  emulated::griddepcontrol_wait();
#elif defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
  griddepcontrol_launch_dependents_if(grid_blocks() <= MANY_BLOCKS_BEFORE_READS);
}

// The first statement of another kernel: it calls griddepcontrol_wait_before_access() before it touches memory. On the emulated device memory is
// inaccessible until the first thread has done so.
__device__ __forceinline__ void griddepcontrol_wait_deferred() {}

// Waits for the earlier kernels. addresses: of what is touched first. That one of them is not 0 is a condition of the wait, so that
// the compiler finds them before it. A kernel that launchs dependents here too may need more registers for its reads: one that has
// none to spare only waits here, and launchs dependents by griddepcontrol_launch_dependents_after_reads().
template <class... T> __device__ __forceinline__ void griddepcontrol_wait_only(const T*... addresses) {
#ifdef EMULATED_CUDA
  emulated::griddepcontrol_wait();
#elif defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
  asm volatile("{ .reg .pred some; setp.ne.u64 some, %0, 0; @some griddepcontrol.wait; }" ::"l"((reinterpret_cast<uintptr_t>(addresses) | ...)) : "memory");
#endif
}
template <class... T> __device__ __forceinline__ void griddepcontrol_wait_before_access(const T*... addresses) {
  griddepcontrol_wait_only(addresses...);
  griddepcontrol_launch_dependents_if(grid_blocks() <= MANY_BLOCKS_BEFORE_READS);
}
__device__ __forceinline__ void griddepcontrol_launch_dependents_after_reads() { griddepcontrol_launch_dependents_if(gridDim.x <= MANY_BLOCKS); }

// In its scope, if so: reads whose values are dropped, so that it does not matter whether others write there.
struct DroppedReads {
#ifdef EMULATED_CUDA
  const bool are_dropped;
  explicit DroppedReads(bool dropped) : are_dropped(dropped) { emulated::races::unsee(are_dropped); }
  ~DroppedReads() { emulated::races::unsee(-are_dropped); }
#else
  __device__ __forceinline__ explicit DroppedReads(bool) {}
#endif
};

// Has L2 read what lies at an address of allocated memory.
template <class T> __device__ __forceinline__ void prefetch_line_l2(const T* address) {
#ifndef EMULATED_CUDA
  asm volatile("prefetch.global.L2 [%0];" ::"l"(address));
#endif
}
// Before the wait: what is touched first comes while earlier kernels still run. That cache is where memory is the same for all
// multiprocessors, so that what they write later is not missed. It gains 1 to 5 % where inputs are larger than the cache, and costs as
// much where it has them.
template <class... T> __device__ __forceinline__ void prefetch_l2(const T*... addresses) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
  (..., prefetch_line_l2(addresses));
#endif
}
