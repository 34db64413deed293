// Pooling backward (4.1.18) of averages with any window, in any layout; static and global windows have kernels of their
// own.
//
// Tiling: a thread for 16 bytes of channels of dx, or for one input of four planes. It gathers what the windows over
// its input give, in their order: what neighbours read too comes from L1.
//
// Roofline bound: bytes, dy read and dx written once; two operations for every input of every window.
//
// Not measured yet: the rows of "3x3 stride 1", "2x2 stride 1" and "5x5 stride 3" are this kernel's.
#include "pooling/generic.cuh"

struct AverageArguments {
  const ELEMENT* dy;
  ELEMENT* dx;
  Pooling pooling;
  Walk walk;  // dx; dy is the other tensor
};

template <int P> __device__ __forceinline__ void backward(const AverageArguments& a) {
  const Pooling& pooling = a.pooling;
  const Axis* axis = pooling.axis;
  const unsigned index = blockIdx.x * blockDim.x + threadIdx.x;
  if (index >= a.walk.packs) return;
  int i[3], first[3], last[3], o[3];
  long long dx_offset, dy_offset;
  a.walk.locate(index, i, dx_offset, dy_offset);
#pragma unroll
  for (int d = 0; d < 3; d++) first[d] = axis[d].first_window(i[d]), last[d] = axis[d].last_window(i[d]);
  const bool constant = pooling.divisor != COMPUTE(0);
  const COMPUTE common = constant ? COMPUTE(1) / pooling.divisor : COMPUTE(0);
  COMPUTE sum[P];
#pragma unroll
  for (int k = 0; k < P; k++) sum[k] = 0;
  for (o[0] = first[0]; o[0] < last[0]; o[0]++)
    for (o[1] = first[1]; o[1] < last[1]; o[1]++) {
      const ELEMENT* row = a.dy + (dy_offset + o[0] * pooling.y_stride[0] + o[1] * pooling.y_stride[1]);
#pragma unroll 4
      for (o[2] = first[2]; o[2] < last[2]; o[2]++) {
        const COMPUTE share = constant ? common : COMPUTE(1) / Window(pooling, o).divisor(pooling);
        const Pack<ELEMENT, P> dy = load_items<P, true>(row + o[2] * pooling.y_stride[2], 0);
#pragma unroll
        for (int k = 0; k < P; k++) sum[k] += load<COMPUTE>(dy.item[k]) * share;
      }
    }
#pragma unroll
  for (int k = 0; k < P; k++) sum[k] *= pooling.alpha;
  write_pack<P>(a.dx + dx_offset, 1, true, P, sum, pooling.beta);
}

extern "C" __global__ void __launch_bounds__(256) pooling_generic_average_backward_gather(const AverageArguments a) {
  griddepcontrol_wait();
  with_width(a.walk.width, [&](auto width) { backward<decltype(width)::value>(a); });
}
