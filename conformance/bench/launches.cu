// What every launch takes, and every launch that reads and writes.
#include "primitives/dependent_launch.cuh"

struct Nothing {
  long long unused;
};

// It does not launch dependents early, as the kernels of accelerated/ do.
extern "C" __global__ void empty(const Nothing a) {}

struct Hold {
  unsigned long long nanoseconds;
};

// Takes so long, so that the host can queue what follows.
extern "C" __global__ void hold(const Hold a) {
#ifndef EMULATED_CUDA
  unsigned long long begun, now;
  asm volatile("mov.u64 %0, %globaltimer;" : "=l"(begun));
  do asm volatile("mov.u64 %0, %globaltimer;" : "=l"(now));
  while (now - begun < a.nanoseconds);
#endif
}

struct alignas(16) Pack {
  unsigned word[4];
};
struct Copy {
  const Pack* source;
  Pack* destination;
  unsigned count;
};

// The least that an operation on a small tensor does: it reads 16 bytes a thread and writes them, and follows the kernels before it as
// ours do.
extern "C" __global__ void copy(const Copy a) {
  griddepcontrol_wait_deferred();
  const unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= a.count) return;
  const Pack* from = a.source + i;
  Pack* to = a.destination + i;
  griddepcontrol_wait_before_access(from, to);
  const Pack pack = *from;
  griddepcontrol_launch_dependents();
  *to = pack;
}
