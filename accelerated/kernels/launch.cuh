// How kernels of one stream follow each other.
#pragma once

constexpr unsigned MANY_BLOCKS = 2048;  // telling of each that it has started takes longer than it saves

// The first statement of a kernel. From compute capability 9.0 on the next kernel is launched while this one runs (programmatic
// dependent launch): its blocks start where all of this one have started and there is room. Nothing of the memory is
// touched before the kernels that came earlier have finished; each of them did the same, so that every kernel follows all
// that came before it. The next one is let in after the wait, not before it: with
// the blocks of several kernels waiting at once some short kernels took up to 1.5 times as long (H200, two runs; their
// uneven spread over the multiprocessors is the likely cause).
__device__ __forceinline__ void wait_for_earlier_kernels() {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.wait;" ::: "memory");
  if (gridDim.x <= MANY_BLOCKS) asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
#endif
}
