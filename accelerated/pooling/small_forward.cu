// Pooling forward (3.2.69) of small images with a static window.
//
// Tiling: a thread has one window, a block all of some planes or channels. Offsets follow from the dimensions of the
// launch, without divisions. Roofline bound: a launch and one round trip to memory; bytes and flops hardly matter.
// Measured on an H200: 8x64x14x14 in a stream 1.0 (planes) to 1.17 us (channels), a copy 0.9, static_forward.cu 1.44
// to 1.63.
#include "pooling/small.cuh"

struct ForwardArguments {
  const ELEMENT* x;
  ELEMENT* y;
  COMPUTE alpha, beta, reciprocal;  // of what averages count, 0 where windows differ
  int mode, propagate;
  Planes planes;
};

template <class Access, class Pool, bool SAME>
__device__ __forceinline__ void forward(const ForwardArguments& a, const ThreadWindow<Access>& thread) {
  constexpr int CHANNELS = Access::CHANNELS;
  const Planes& planes = a.planes;
  const ELEMENT* x = a.x + thread.x;
  ELEMENT* y = a.y + thread.y;
  griddepcontrol_wait_before_access(x, y);
  const WindowRows<Access, Pool> window(planes, thread, x);
  COMPUTE result[1][CHANNELS], reciprocal = a.reciprocal;
  if (Pool::AVERAGE && !SAME) {
    const bool exclude = a.mode == AVERAGE_EXCLUDE;
    reciprocal = COMPUTE(1) / (COMPUTE(counted<typename Access::Axis1>(thread.row, planes.input[0], exclude)) *
                               COMPUTE(counted<typename Access::Axis2>(thread.column, planes.input[1], exclude)));
  }
#pragma unroll
  for (int i = 0; i < CHANNELS; i++) {
    const COMPUTE value = Pool::result(COMPUTE(window.pooled(i)));
    result[0][i] = Pool::AVERAGE ? value * reciprocal : value;
  }
  write_row<1>(y, 0, thread.owns && thread.row < planes.output[0], result, a.alpha, a.beta);
}

template <class Access> __device__ __forceinline__ void forward(const ForwardArguments& a) {
  const ThreadWindow<Access> thread(a.planes);
  if (a.mode == AVERAGE_INCLUDE || a.mode == AVERAGE_EXCLUDE)
    a.reciprocal != COMPUTE(0) ? forward<Access, Sum, true>(a, thread) : forward<Access, Sum, false>(a, thread);
  else a.propagate ? forward<Access, NumbersAndNan, true>(a, thread) : forward<Access, Numbers, true>(a, thread);
}

#define KERNEL(name, Access)                                                                                     \
  extern "C" __global__ void __launch_bounds__(THREADS) pooling_small_forward_##name(const ForwardArguments a) { \
    griddepcontrol_wait_deferred();                                                                              \
    forward<Access>(a);                                                                                          \
  }
KERNEL(loose, Loose)
KERNEL(scattered, Scattered)
KERNEL(channels, Channels)
