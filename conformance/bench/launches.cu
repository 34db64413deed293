// These kernels measure the time of an empty launch, and of one that reads and writes.
#include "primitives/dependent_launch.cuh"

struct Nothing {
  long long unused;
};

// It does not launch dependents early; the kernels of accelerated/ do.
extern "C" __global__ void empty(const Nothing a) {}

struct Hold {
  unsigned long long nanoseconds;
};

// Runs for so long that the host can queue the next launches.
extern "C" __global__ void hold(const Hold a) {
#ifndef EMULATED_CUDA
  unsigned long long begun, now;
  asm volatile("mov.u64 %0, %globaltimer;" : "=l"(begun));
  do asm volatile("mov.u64 %0, %globaltimer;" : "=l"(now));
  while (now - begun < a.nanoseconds);
#endif
}

struct alignas(16) Vector {
  unsigned word[4];
};
struct Copy {
  const Vector* source;
  Vector* destination;
  unsigned count;
};

// Does the least work of an operation on a small tensor: each thread reads and writes 16 bytes. It follows earlier
// kernels as ours do.
extern "C" __global__ void copy(const Copy a) {
  griddepcontrol_wait_deferred();
  const unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= a.count) return;
  const Vector* from = a.source + i;
  Vector* to = a.destination + i;
  griddepcontrol_wait_before_access(from, to);
  const Vector vector = *from;
  griddepcontrol_launch_dependents();
  *to = vector;
}
