// Pooling forward (3.2.69) of small images with a known window: a thread has one window, a block all of some planes or channels.
//
// Floor: a launch and one way to the memory and back; bytes hardly matter. Places by the dimensions of the launch count most: pooling/static_forward.cu,
// whose threads divide, takes 1.44 to 1.63 us for 8x64x14x14 in a stream on an H200, this one 1.0 (planes) to 1.17 (channels), a copy 0.9.
#include "pooling/small.cuh"

struct ForwardArguments {
  const ELEMENT* x;
  ELEMENT* y;
  COMPUTE alpha, beta, reciprocal;  // of what averages count, 0 where windows differ
  int mode, propagate;
  Planes planes;
};

template <class Access, class Pool, bool SAME> __device__ __forceinline__ void forward(const ForwardArguments& a, const PlaceInPlane<Access>& place) {
  constexpr int LANES = Access::LANES;
  const Planes& planes = a.planes;
  const ELEMENT* x = a.x + place.x;
  ELEMENT* y = a.y + place.y;
  griddepcontrol_wait_before_access(x, y);
  const WindowLines<Access, Pool> window(planes, place, x);
  COMPUTE result[1][LANES], reciprocal = a.reciprocal;
  if (Pool::AVERAGE && !SAME) {
    const bool exclude = a.mode == AVERAGE_EXCLUDE;
    reciprocal = COMPUTE(1) / (COMPUTE(counted<typename Access::Axis1>(place.row, planes.input[0], exclude)) *
                               COMPUTE(counted<typename Access::Axis2>(place.column, planes.input[1], exclude)));
  }
#pragma unroll
  for (int i = 0; i < LANES; i++) {
    const COMPUTE value = Pool::result(COMPUTE(window.pooled(i)));
    result[0][i] = Pool::AVERAGE ? value * reciprocal : value;
  }
  write_line<1>(y, 0, place.owns && place.row < planes.output[0], result, a.alpha, a.beta);
}

template <class Access> __device__ __forceinline__ void forward(const ForwardArguments& a) {
  const PlaceInPlane<Access> place(a.planes);
  if (a.mode == AVERAGE_INCLUDE || a.mode == AVERAGE_EXCLUDE)
    a.reciprocal != COMPUTE(0) ? forward<Access, Sum, true>(a, place) : forward<Access, Sum, false>(a, place);
  else
    a.propagate ? forward<Access, NumbersAndNan, true>(a, place) : forward<Access, Numbers, true>(a, place);
}

extern "C" __global__ void __launch_bounds__(THREADS) pooling_small_forward_loose(const ForwardArguments a) {
  griddepcontrol_wait_deferred();
  forward<Loose>(a);
}
extern "C" __global__ void __launch_bounds__(THREADS) pooling_small_forward_scattered(const ForwardArguments a) {
  griddepcontrol_wait_deferred();
  forward<Scattered>(a);
}
extern "C" __global__ void __launch_bounds__(THREADS) pooling_small_forward_channels(const ForwardArguments a) {
  griddepcontrol_wait_deferred();
  forward<Channels>(a);
}
