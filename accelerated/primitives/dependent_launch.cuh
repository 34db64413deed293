// Programmatic dependent launch (PDL): how kernels of one stream follow each other.
//
// From compute capability 9.0 on the next kernel is launched while this one runs: its blocks start where all of this
// one have started, have called griddepcontrol_launch_dependents or ended, and there is room. No kernel touches memory
// before griddepcontrol_wait, which returns when the kernels before it have finished; each of them did the same, so
// that every kernel follows all that came before it.
//
// What a kernel computes before it waits, its indices from its arguments, overlaps with the kernel before, unless all
// kernels of a chain are that short. A copy of 0.4 MB, in a graph of many, takes 1.10 us without PDL, 0.69 us where
// dependents are launched right after the wait, 0.71 to 0.84 us where they are launched behind the reads: the compiler
// may move arithmetic before it (H200).
#pragma once
#include <cstdint>

// Grids of up to MANY_BLOCKS_BEFORE_READS blocks launch dependents before their reads, so that the next kernel computes
// its indices meanwhile; the blocks of larger grids would compete with it, and do so behind their reads. The next
// kernel begins when every block has launched dependents or has ended, so that of very large grids only the last
// MANY_BLOCKS, more than run at a time, need to: large element-by-element operations take 2 % less than where none
// does.
constexpr unsigned MANY_BLOCKS_BEFORE_READS = 264, MANY_BLOCKS = 2048;

__device__ __forceinline__ unsigned grid_blocks() { return gridDim.x * gridDim.y; }

__device__ __forceinline__ void griddepcontrol_launch_dependents_if(bool now) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
  if (now) asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
#endif
}

// Before the wait, for a kernel that is shorter than a launch: the next kernel waits already when this one ends.
// Element-by-element operations of up to 1 MB on one operand take 0.77 us in a chain instead of 0.93 to 1.1 (H200).
// Longer kernels take up to 40 % more with it: two operands, reductions, softmax, pooling, changes of layout.
constexpr unsigned SHORT_GRID = 132, SHORT_GRID_OF_ITEMS = 264;
__device__ __forceinline__ void griddepcontrol_launch_dependents_early(unsigned blocks = SHORT_GRID) {
  griddepcontrol_launch_dependents_if(gridDim.x <= blocks);
}

// Behind the reads. The first is for kernels without a register to spare, and acts in grids of medium size only.
__device__ __forceinline__ void griddepcontrol_launch_dependents_medium_grid() {
  griddepcontrol_launch_dependents_if(grid_blocks() > MANY_BLOCKS_BEFORE_READS && grid_blocks() <= MANY_BLOCKS);
}
__device__ __forceinline__ void griddepcontrol_launch_dependents() {
  griddepcontrol_launch_dependents_if(grid_blocks() > MANY_BLOCKS_BEFORE_READS &&
                                      blockIdx.x + MANY_BLOCKS >= gridDim.x);
}

// The first statement of a kernel that computes little before it reads.
__device__ __forceinline__ void griddepcontrol_wait() {
#ifdef EMULATED_CUDA
  emulated::griddepcontrol_wait();
#elif defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
  griddepcontrol_launch_dependents_if(grid_blocks() <= MANY_BLOCKS_BEFORE_READS);
}

// The first statement of a kernel that calls griddepcontrol_wait_before_access() before it touches memory, which is
// inaccessible on the emulated device until the first thread has done so.
__device__ __forceinline__ void griddepcontrol_wait_deferred() {}

// Waits for the earlier kernels. addresses: of what is accessed first; they are operands of the wait, so that the
// compiler computes them before it. griddepcontrol_wait_before_access() launches dependents too, which may take
// registers from the reads: a kernel with none to spare calls griddepcontrol_wait_only() and then
// griddepcontrol_launch_dependents_after_reads().
template <class... T> __device__ __forceinline__ void griddepcontrol_wait_only(const T*... addresses) {
#ifdef EMULATED_CUDA
  emulated::griddepcontrol_wait();
#elif defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
  asm volatile("{ .reg .pred some; setp.ne.u64 some, %0, 0; @some griddepcontrol.wait; }" ::"l"(
                   (reinterpret_cast<uintptr_t>(addresses) | ...))
               : "memory");
#endif
}
template <class... T> __device__ __forceinline__ void griddepcontrol_wait_before_access(const T*... addresses) {
  griddepcontrol_wait_only(addresses...);
  griddepcontrol_launch_dependents_if(grid_blocks() <= MANY_BLOCKS_BEFORE_READS);
}
__device__ __forceinline__ void griddepcontrol_launch_dependents_after_reads() {
  griddepcontrol_launch_dependents_if(gridDim.x <= MANY_BLOCKS);
}

// Reads in its scope, where `dropped`, are not reported as races: their values are not used.
struct DroppedReads {
#ifdef EMULATED_CUDA
  const bool are_dropped;
  explicit DroppedReads(bool dropped) : are_dropped(dropped) { emulated::races::unsee(are_dropped); }
  ~DroppedReads() { emulated::races::unsee(-are_dropped); }
#else
  __device__ __forceinline__ explicit DroppedReads(bool) {}
#endif
};

// Prefetches the line at an address of allocated memory to L2.
template <class T> __device__ __forceinline__ void prefetch_line_l2(const T* address) {
#ifndef EMULATED_CUDA
  asm volatile("prefetch.global.L2 [%0];" ::"l"(address));
#endif
}
// Prefetches to L2 before the wait what is read first, while earlier kernels still run. L2 is where all multiprocessors
// see the same memory, so that later writes are not missed. It gains 1 to 5 % where inputs are larger than L2, and
// costs as much where L2 has them.
template <class... T> __device__ __forceinline__ void prefetch_l2(const T*... addresses) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
  (..., prefetch_line_l2(addresses));
#endif
}
