// How kernels of one stream follow each other.
//
// From compute capability 9.0 on the next kernel is launched while this one runs (programmatic dependent launch): its blocks
// start where all of this one have started and there is room. Nothing of the memory is touched before the kernels that came
// earlier have finished; each of them did the same, so that every kernel follows all that came before it.
//
// What a kernel can find out before it waits costs nothing: its place and its arguments, which come from far away. A copy of
// 0.4 MB, in a graph of many, takes 1.14 us without all this, 0.90 us where it waits, lets the next one in and then asks where it
// is, 0.78 us where it lets the next one in after its reads, 0.71 us where it asks before it waits (H200).
#pragma once
#include <cstdint>

// Blocks of which telling of each that the next kernel may begin takes longer than it saves: where it is told after the reads, and
// before them, where the next kernel's blocks are in the way of those that have not begun
constexpr unsigned MANY_BLOCKS = 2048, MANY_BLOCKS_BEFORE_READS = 264;

// Lets the next kernel in: after the reads, because the blocks of several kernels that wait at once took up to 1.5 times as long.
__device__ __forceinline__ void let_next_kernel_begin(unsigned most_blocks = MANY_BLOCKS) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
  if (gridDim.x <= most_blocks) asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
#endif
}

// The first statement of a kernel that has little to find out.
__device__ __forceinline__ void wait_for_earlier_kernels() {
#ifdef EMULATED_CUDA
  emulated::earlier_kernels_have_finished();
#elif defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
  let_next_kernel_begin(MANY_BLOCKS_BEFORE_READS);
}

// The first statement of another kernel: it calls wait_to_touch() before it touches memory. On the emulated device memory is
// inaccessible until the first thread has done so.
__device__ __forceinline__ void find_place_before_waiting() {}

// Waits for the earlier kernels. addresses: of what is touched first. That one of them is not 0 is a condition of the wait, so that
// the compiler finds them before it.
template <class... T> __device__ __forceinline__ void wait_to_touch(const T*... addresses) {
#ifdef EMULATED_CUDA
  emulated::earlier_kernels_have_finished();
#elif defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
  asm volatile("{ .reg .pred some; setp.ne.u64 some, %0, 0; @some griddepcontrol.wait; }" ::"l"((reinterpret_cast<uintptr_t>(addresses) | ...)) : "memory");
#endif
}
