// This header orders the kernels of a stream by programmatic dependent launch (PDL).
//
// From compute capability 9.0 on, the next kernel is launched while this one runs. Its blocks start when all blocks of
// this kernel have called griddepcontrol_launch_dependents or ended, and resources are free. No kernel touches memory
// before griddepcontrol_wait, which returns when the preceding kernel has finished. Each kernel does the same, so every
// kernel follows all earlier ones.
//
// A kernel's work before its wait, such as indices from arguments, overlaps with the preceding kernel. It does not if
// all kernels of a chain are that short. In a graph of many, a copy of 0.4 MB takes 1.10 us without PDL (H200). It
// takes 0.69 us if dependents are launched right after the wait, and 0.71 to 0.84 us after the reads. There the
// compiler may move arithmetic before the launch.
#pragma once
#include <cstdint>

// Grids of up to MANY_BLOCKS_BEFORE_READS blocks launch dependents before their reads, so that the next kernel computes
// its indices meanwhile. Blocks of larger grids would compete with it, so they launch dependents after their reads. The
// next kernel begins when every block has launched dependents or ended. In very large grids only the last MANY_BLOCKS,
// more than run at a time, need to launch. Large element-by-element operations then take 2 % less than without any
// launch.
constexpr unsigned MANY_BLOCKS_BEFORE_READS = 264;
constexpr unsigned MANY_BLOCKS = 2048;

__device__ __forceinline__ unsigned grid_blocks() { return gridDim.x * gridDim.y; }

__device__ __forceinline__ void griddepcontrol_launch_dependents_if(bool now) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
  if (now) asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
#endif
}

// This call precedes the wait in a kernel shorter than a launch; the next kernel already waits when this one ends. In a
// chain, element-by-element operations on one operand of up to 1 MB take 0.77 us instead of 0.93 to 1.1 (H200). Longer
// kernels take up to 40 % more with it: two operands, reductions, softmax, pooling, layout changes.
constexpr unsigned SHORT_GRID = 132;           // blocks
constexpr unsigned SHORT_GRID_OF_ITEMS = 264;  // blocks of element-by-element kernels that take single items
__device__ __forceinline__ void griddepcontrol_launch_dependents_early(unsigned blocks = SHORT_GRID) {
  griddepcontrol_launch_dependents_if(gridDim.x <= blocks);
}

// These calls follow the reads. The first one suits kernels without a spare register, and acts only in grids of medium
// size.
__device__ __forceinline__ void griddepcontrol_launch_dependents_medium_grid() {
  griddepcontrol_launch_dependents_if(grid_blocks() > MANY_BLOCKS_BEFORE_READS && grid_blocks() <= MANY_BLOCKS);
}
__device__ __forceinline__ void griddepcontrol_launch_dependents() {
  griddepcontrol_launch_dependents_if(grid_blocks() > MANY_BLOCKS_BEFORE_READS &&
                                      blockIdx.x + MANY_BLOCKS >= gridDim.x);
}

// A kernel that computes little before its reads begins with this call.
__device__ __forceinline__ void griddepcontrol_wait() {
#ifdef EMULATED_CUDA
  emulated::griddepcontrol_wait();
#elif defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
  griddepcontrol_launch_dependents_if(grid_blocks() <= MANY_BLOCKS_BEFORE_READS);
}

// A kernel that calls griddepcontrol_wait_before_access() later begins with this call. On the emulated device, memory
// is inaccessible until the first thread has waited.
__device__ __forceinline__ void griddepcontrol_wait_deferred() {}

// Waits for the earlier kernels. `addresses` are the first accesses; as operands of the wait they are computed before
// it. griddepcontrol_wait_before_access() also launches dependents, which may cost registers for the reads. A kernel
// with no spare registers calls griddepcontrol_wait_only() and then griddepcontrol_launch_dependents_after_reads().
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

// Reads in this scope are not reported as races if `dropped`, because their values are unused.
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
// Prefetches the first reads to L2 before the wait, while earlier kernels still run. All SMs see the same memory
// through L2, so later writes are not missed. It saves 1 to 5 % if inputs exceed L2, and costs as much if L2 has them.
template <class... T> __device__ __forceinline__ void prefetch_l2(const T*... addresses) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
  (..., prefetch_line_l2(addresses));
#endif
}
