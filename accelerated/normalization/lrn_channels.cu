// Local response normalization across few channels (3.2.65, 4.1.14): a thread has all channels of its positions in
// registers.
//
// Tiling: a thread has V neighbouring positions (one where they cannot be accessed at once), CHANNELS accesses of V
// elements each. Where channels are the outer dimension (NCHW), an access has V positions of one channel; where they
// are contiguous (NHWC), the V positions are one run of V * CHANNELS elements: the same registers in another order.
// Channels and window are definitions, so that channels which do not exist cost nothing. x may be y: a thread reads
// all before it writes.
// Roofline bound: bytes, x read and y written once; backward x and dy read and dx written once. About 25 operations an
// element, backward 40, with beta 3/4: below the 57 and 85 that an H200 does in the time of the bytes of floats.
#include "normalization/power.cuh"
#include "primitives/geometry.cuh"

constexpr int BEHIND = (WINDOW - 1) / 2, AHEAD = WINDOW - 1 - BEHIND;
constexpr int LAST = CHANNELS - 1;

template <int OPERANDS> struct FewChannels {
  COMPUTE alpha, beta;
  Power power;
  int stride[OPERANDS];  // of accesses: of channels, or V
  Geometry<OPERANDS> positions;
};
struct ForwardArguments {
  const ELEMENT* x;
  ELEMENT* y;
  FewChannels<2> few;
};
struct BackwardArguments {
  const ELEMENT* x;
  const ELEMENT* dy;
  ELEMENT* dx;
  COMPUTE gradient;  // 2 * alpha * beta / n
  FewChannels<3> few;
};

// All channels of V positions in the order of memory.
template <int V, bool CONTIGUOUS> struct Values {
  COMPUTE values[CHANNELS * V];
  __device__ __forceinline__ COMPUTE& operator()(int channel, int position) {
    return values[CONTIGUOUS ? position * CHANNELS + channel : channel * V + position];
  }
  __device__ __forceinline__ void convert(const Packed<V> (&packs)[CHANNELS]) {
#pragma unroll
    for (int i = 0; i < CHANNELS; i++) convert_packed<V>(packs[i], values + i * V);
  }
  __device__ __forceinline__ void write(ELEMENT* to, int stride, COMPUTE alpha, COMPUTE beta) const {
#pragma unroll
    for (int i = 0; i < CHANNELS; i++) write_packed<V>(to + i * stride, values + i * V, alpha, beta);
  }
};

template <int V> __device__ __forceinline__ void fetch(Packed<V> (&packs)[CHANNELS], const ELEMENT* from, int stride) {
#pragma unroll
  for (int i = 0; i < CHANNELS; i++) packs[i] = fetch_packed<V>(from + i * stride, true);
}

// The sum of the squares of the window around a channel.
template <class Values> __device__ __forceinline__ COMPUTE squares(Values& x, int channel, int position) {
  COMPUTE sum = 0;
#pragma unroll
  for (int c = max(channel - BEHIND, 0); c <= min(channel + AHEAD, LAST); c++) sum += x(c, position) * x(c, position);
  return sum;
}

template <int V, bool CONTIGUOUS> __device__ __forceinline__ void forward(const ForwardArguments& a) {
  const FewChannels<2>& few = a.few;
  const unsigned index = blockIdx.x * blockDim.x + threadIdx.x;
  if (index >= few.positions.packs) return;
  unsigned offset[2];
  few.positions.locate(index, offset);
  griddepcontrol_wait_before_access(a.x + offset[0], a.y + offset[1]);
  Packed<V> packs[CHANNELS];
  fetch<V>(packs, a.x + offset[0], few.stride[0]);
  griddepcontrol_launch_dependents();
  Values<V, CONTIGUOUS> x, y;
  x.convert(packs);
#pragma unroll
  for (int p = 0; p < V; p++)
#pragma unroll
    for (int c = 0; c < CHANNELS; c++) y(c, p) = x(c, p) * few.power(few.power.base(squares(x, c, p)));
  y.write(a.y + offset[1], few.stride[1], few.alpha, few.beta);
}

template <int V, bool CONTIGUOUS> __device__ __forceinline__ void backward(const BackwardArguments& a) {
  const FewChannels<3>& few = a.few;
  const unsigned index = blockIdx.x * blockDim.x + threadIdx.x;
  if (index >= few.positions.packs) return;
  unsigned offset[3];
  few.positions.locate(index, offset);
  griddepcontrol_wait_before_access(a.x + offset[0], a.dy + offset[1], a.dx + offset[2]);
  Packed<V> of_x[CHANNELS], of_dy[CHANNELS];
  fetch<V>(of_x, a.x + offset[0], few.stride[0]);
  fetch<V>(of_dy, a.dy + offset[1], few.stride[1]);
  griddepcontrol_launch_dependents();
  Values<V, CONTIGUOUS> x, dy;
  x.convert(of_x);
  dy.convert(of_dy);
#pragma unroll
  for (int p = 0; p < V; p++) {
    COMPUTE direct[CHANNELS], term[CHANNELS];  // dy * s^-beta, dy * x * s^(-beta - 1)
#pragma unroll
    for (int c = 0; c < CHANNELS; c++) {
      COMPUTE inverse;
      direct[c] = dy(c, p) * few.power(few.power.base(squares(x, c, p)), inverse);
      term[c] = direct[c] * x(c, p) * inverse;
    }
#pragma unroll
    for (int c = 0; c < CHANNELS; c++) {
      COMPUTE sum = 0;
#pragma unroll
      for (int j = max(c - AHEAD, 0); j <= min(c + BEHIND, LAST); j++) sum += term[j];
      dy(c, p) = direct[c] - a.gradient * x(c, p) * sum;
    }
  }
  dy.write(a.dx + offset[2], few.stride[2], few.alpha, few.beta);
}

extern "C" __global__ void __launch_bounds__(THREADS) normalization_lrn_channels_forward(const ForwardArguments a) {
  griddepcontrol_wait_deferred();
  forward<VECTOR, false>(a);
}
extern "C" __global__ void __launch_bounds__(THREADS)
    normalization_lrn_channels_forward_contiguous(const ForwardArguments a) {
  griddepcontrol_wait_deferred();
  forward<VECTOR, true>(a);
}
extern "C" __global__ void __launch_bounds__(THREADS)
    normalization_lrn_channels_forward_single(const ForwardArguments a) {
  griddepcontrol_wait_deferred();
  forward<1, false>(a);
}
extern "C" __global__ void __launch_bounds__(THREADS) normalization_lrn_channels_backward(const BackwardArguments a) {
  griddepcontrol_wait_deferred();
  backward<VECTOR, false>(a);
}
extern "C" __global__ void __launch_bounds__(THREADS)
    normalization_lrn_channels_backward_contiguous(const BackwardArguments a) {
  griddepcontrol_wait_deferred();
  backward<VECTOR, true>(a);
}
extern "C" __global__ void __launch_bounds__(THREADS)
    normalization_lrn_channels_backward_single(const BackwardArguments a) {
  griddepcontrol_wait_deferred();
  backward<1, false>(a);
}
