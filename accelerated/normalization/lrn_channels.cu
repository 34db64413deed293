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
};

// The packs of a thread in OPERANDS tensors. Where they are one run of memory (CONTIGUOUS), the lanes of a warp move
// each other's packs, so that each access of the warp is one run, too, and exchange them through shared memory.
template <int V, bool CONTIGUOUS, int OPERANDS> struct Packs {
  unsigned offset[CONTIGUOUS ? CHANNELS : 1][OPERANDS];
  bool exists[CONTIGUOUS ? CHANNELS : 1];
  int stride[OPERANDS];

  __device__ __forceinline__ Packs(const FewChannels<OPERANDS>& few) {
    const unsigned index = blockIdx.x * blockDim.x + threadIdx.x, lane = threadIdx.x % 32;
#pragma unroll
    for (int i = 0; i < OPERANDS; i++) stride[i] = few.stride[i];
#pragma unroll
    for (int p = 0; p < (CONTIGUOUS ? CHANNELS : 1); p++) {
      const unsigned pack = p * 32 + lane, owner = CONTIGUOUS ? index - lane + pack / CHANNELS : index;
      exists[p] = !CONTIGUOUS || owner < few.positions.packs;
      few.positions.locate(exists[p] ? owner : 0, offset[p]);
      if (CONTIGUOUS)
#pragma unroll
        for (int i = 0; i < OPERANDS; i++) offset[p][i] += pack % CHANNELS * V;
    }
  }
  // A thread without packs of its own may end: it moves none of others.
  static __device__ __forceinline__ bool has_none(const FewChannels<OPERANDS>& few) {
    return !CONTIGUOUS && blockIdx.x * blockDim.x + threadIdx.x >= few.positions.packs;
  }
  // Where the packs of the warp of a thread lie meanwhile.
  static __device__ __forceinline__ Packed<V>* staged() {
    __shared__ Packed<V> packs[THREADS * CHANNELS];
    return packs + threadIdx.x / 32 * 32 * CHANNELS;
  }
  __device__ __forceinline__ void fetch(Packed<V> (&packs)[CHANNELS], const ELEMENT* from, int operand) const {
#pragma unroll
    for (int p = 0; p < CHANNELS; p++)
      packs[p] = CONTIGUOUS ? fetch_packed<V>(from + offset[p][operand], exists[p])
                            : fetch_packed<V>(from + offset[0][operand] + p * stride[operand], exists[0]);
  }
  __device__ __forceinline__ void arrive(Packed<V> (&packs)[CHANNELS], Values<V, CONTIGUOUS>& values) const {
    if constexpr (CONTIGUOUS) {
      Packed<V>* const of_warp = staged();
      __syncwarp();
#pragma unroll
      for (int p = 0; p < CHANNELS; p++) of_warp[p * 32 + threadIdx.x % 32] = packs[p];
      __syncwarp();
#pragma unroll
      for (int p = 0; p < CHANNELS; p++) packs[p] = of_warp[threadIdx.x % 32 * CHANNELS + p];
    }
#pragma unroll
    for (int p = 0; p < CHANNELS; p++) convert_packed<V>(packs[p], values.values + p * V);
  }
  // alpha * values + beta * what is there.
  __device__ __forceinline__ void write(ELEMENT* to, Values<V, CONTIGUOUS>& values, COMPUTE alpha, COMPUTE beta) const {
    Packed<V> packs[CHANNELS];
#pragma unroll
    for (int i = 0; i < CHANNELS * V; i++) values.values[i] *= alpha;
    if (beta != COMPUTE(0)) {
      Values<V, CONTIGUOUS> prior;
      fetch(packs, to, OPERANDS - 1);
      arrive(packs, prior);
#pragma unroll
      for (int i = 0; i < CHANNELS * V; i++) values.values[i] += beta * prior.values[i];
    }
#pragma unroll
    for (int p = 0; p < CHANNELS; p++) packs[p] = rounded_packed<V>(values.values + p * V);
    if constexpr (CONTIGUOUS) {
      Packed<V>* const of_warp = staged();
#pragma unroll
      for (int p = 0; p < CHANNELS; p++) of_warp[threadIdx.x % 32 * CHANNELS + p] = packs[p];
      __syncwarp();
#pragma unroll
      for (int p = 0; p < CHANNELS; p++)
        if (exists[p]) *reinterpret_cast<Packed<V>*>(to + offset[p][OPERANDS - 1]) = of_warp[p * 32 + threadIdx.x % 32];
    } else if (exists[0]) {
#pragma unroll
      for (int p = 0; p < CHANNELS; p++)
        *reinterpret_cast<Packed<V>*>(to + offset[0][OPERANDS - 1] + p * stride[OPERANDS - 1]) = packs[p];
    }
  }
};

// The sum of the squares of the window around a channel.
template <class Values> __device__ __forceinline__ COMPUTE squares(Values& x, int channel, int position) {
  COMPUTE sum = 0;
#pragma unroll
  for (int c = max(channel - BEHIND, 0); c <= min(channel + AHEAD, LAST); c++) sum += x(c, position) * x(c, position);
  return sum;
}

template <int V, bool CONTIGUOUS> __device__ __forceinline__ void forward(const ForwardArguments& a) {
  const FewChannels<2>& few = a.few;
  if (Packs<V, CONTIGUOUS, 2>::has_none(few)) return;
  const Packs<V, CONTIGUOUS, 2> packs(few);
  griddepcontrol_wait_before_access(a.x + packs.offset[0][0], a.y + packs.offset[0][1]);
  Packed<V> of_x[CHANNELS];
  packs.fetch(of_x, a.x, 0);
  griddepcontrol_launch_dependents();
  Values<V, CONTIGUOUS> x, y;
  packs.arrive(of_x, x);
#pragma unroll
  for (int p = 0; p < V; p++)
#pragma unroll
    for (int c = 0; c < CHANNELS; c++) y(c, p) = x(c, p) * few.power(few.power.base(squares(x, c, p)));
  packs.write(a.y, y, few.alpha, few.beta);
}

template <int V, bool CONTIGUOUS> __device__ __forceinline__ void backward(const BackwardArguments& a) {
  const FewChannels<3>& few = a.few;
  if (Packs<V, CONTIGUOUS, 3>::has_none(few)) return;
  const Packs<V, CONTIGUOUS, 3> packs(few);
  griddepcontrol_wait_before_access(a.x + packs.offset[0][0], a.dy + packs.offset[0][1], a.dx + packs.offset[0][2]);
  Packed<V> of_x[CHANNELS], of_dy[CHANNELS];
  packs.fetch(of_x, a.x, 0);
  packs.fetch(of_dy, a.dy, 1);
  griddepcontrol_launch_dependents();
  Values<V, CONTIGUOUS> x, dy;
  packs.arrive(of_x, x);
  packs.arrive(of_dy, dy);
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
  packs.write(a.dx, dy, few.alpha, few.beta);
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
