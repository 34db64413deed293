// How kernels of one stream follow each other.
#pragma once

// The first statement of a kernel. From compute capability 9.0 on a launch lets the blocks of the next kernel start as soon as
// all of its own have (programmatic dependent launch), so that the time of a launch and the last wave of one kernel
// lie beside the beginning of the next. Nothing of the memory is touched before the kernels that came earlier have
// finished: each of them did the same, so that every kernel follows all that came before it.
__device__ __forceinline__ void wait_for_earlier_kernels() {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
  asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
}
