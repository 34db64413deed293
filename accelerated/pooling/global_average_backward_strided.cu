// Backward of an average over everything (4.1.18, global pooling) in any layout: dx = alpha * dy / divisor + beta * dx. Packed
// tensors have pooling/global_average_backward.cu.
//
// Floor: bytes, dx written once; dy is smaller by the size of a plane. A thread writes 16 bytes, about 50 instructions, of
// the 110 that an H200 issues in the time of their bytes; where dx has no packs, neighbouring threads write neighbours.
#include "primitives/elementwise.cuh"

constexpr int WIDTH = 16 / sizeof(ELEMENT);

// alpha * dy * reciprocal + beta * prior
struct Part {
  COMPUTE alpha, beta, reciprocal;
  template <bool BLENDS, int N> __device__ __forceinline__ Pack<ELEMENT, N> operator()(const Pack<ELEMENT, N>* in, const Pack<ELEMENT, N>& prior) const {
    Pack<ELEMENT, N> result;
#pragma unroll
    for (int i = 0; i < N; i++) {
      COMPUTE value = alpha * (load<COMPUTE>(in[0].item[i]) * reciprocal);
      if (BLENDS && beta != COMPUTE(0)) value += beta * load<COMPUTE>(prior.item[i]);
      result.item[i] = store<ELEMENT>(value);
    }
    return result;
  }
};

struct SpreadArguments {
  const ELEMENT* dy;
  ELEMENT* dx;
  COMPUTE alpha, beta, reciprocal;
  Geometry<2> geometry;
};

extern "C" __global__ void __launch_bounds__(256) pooling_spread(const SpreadArguments a) {
  griddepcontrol_wait();
  Elementwise<ELEMENT, 1, ELEMENT, Part>{{a.dy}, a.dx, a.beta != COMPUTE(0), {a.alpha, a.beta, a.reciprocal}}.run<WIDTH>(a.geometry);
}
