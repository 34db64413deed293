// This file computes local response normalization across few channels (3.2.65, 4.1.14). A thread keeps all channels of
// its positions in registers.
//
// A thread owns V neighbouring positions, or one where a vector access is impossible. It makes CHANNELS accesses of V
// elements. In NCHW an access covers V positions of one channel. In NHWC the V positions are one run of V * CHANNELS
// elements, the same registers in another order. The numbers of channels and of the window are compile-time constants,
// so no work is spent on absent channels. x may alias y, because a thread reads everything before it writes.
//
// The roofline bound is bytes. Forward reads x and writes y once; backward reads x and dy and writes dx once. An
// element takes about 25 operations forward and 40 backward, with beta 3/4. An H200 does 57 and 85 operations while it
// moves the bytes of an element of float.
#include "normalization/power.cuh"
#include "primitives/geometry.cuh"

constexpr int BEHIND = (WINDOW - 1) / 2;    // window elements before the centre
constexpr int AHEAD = WINDOW - 1 - BEHIND;  // window elements after the centre
constexpr int LAST = CHANNELS - 1;

template <int OPERANDS> struct FewChannels {
  COMPUTE alpha, beta;
  Power power;
  int stride[OPERANDS];  // stride between accesses: of channels, or V
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

// These are all channels of V positions in memory order.
template <int V, bool CONTIGUOUS> struct Values {
  COMPUTE values[CHANNELS * V];
  __device__ __forceinline__ COMPUTE& operator()(int channel, int position) {
    return values[CONTIGUOUS ? position * CHANNELS + channel : channel * V + position];
  }
};

// This moves a thread's vectors of OPERANDS tensors. If they form one run of memory (CONTIGUOUS), lanes load vectors
// for each other, so each access of the warp is coalesced. They then exchange them through shared memory.
template <int V, bool CONTIGUOUS, int OPERANDS> struct Vectors {
  unsigned offset[CONTIGUOUS ? CHANNELS : 1][OPERANDS];
  bool exists[CONTIGUOUS ? CHANNELS : 1];
  int stride[OPERANDS];

  __device__ __forceinline__ Vectors(const FewChannels<OPERANDS>& few) {
    const unsigned index = blockIdx.x * blockDim.x + threadIdx.x, lane = threadIdx.x % 32;
#pragma unroll
    for (int i = 0; i < OPERANDS; i++) stride[i] = few.stride[i];
#pragma unroll
    for (int p = 0; p < (CONTIGUOUS ? CHANNELS : 1); p++) {
      const unsigned vector = p * 32 + lane, owner = CONTIGUOUS ? index - lane + vector / CHANNELS : index;
      exists[p] = !CONTIGUOUS || owner < few.positions.vectors;
      few.positions.locate(exists[p] ? owner : 0, offset[p]);
      if (CONTIGUOUS)
#pragma unroll
        for (int i = 0; i < OPERANDS; i++) offset[p][i] += vector % CHANNELS * V;
    }
  }
  // Returns whether the thread may exit: it has no vectors and loads none for other lanes.
  static __device__ __forceinline__ bool has_none(const FewChannels<OPERANDS>& few) {
    return !CONTIGUOUS && blockIdx.x * blockDim.x + threadIdx.x >= few.positions.vectors;
  }
  // Returns the shared memory where the warp of a thread exchanges its vectors.
  static __device__ __forceinline__ Packed<V>* staged() {
    __shared__ Packed<V> vectors[THREADS * CHANNELS];
    return vectors + threadIdx.x / 32 * 32 * CHANNELS;
  }
  __device__ __forceinline__ void fetch(Packed<V> (&vectors)[CHANNELS], const ELEMENT* from, int operand) const {
#pragma unroll
    for (int p = 0; p < CHANNELS; p++)
      vectors[p] = CONTIGUOUS ? fetch_packed<V>(from + offset[p][operand], exists[p])
                              : fetch_packed<V>(from + offset[0][operand] + p * stride[operand], exists[0]);
  }
  __device__ __forceinline__ void arrive(Packed<V> (&vectors)[CHANNELS], Values<V, CONTIGUOUS>& values) const {
    if constexpr (CONTIGUOUS) {
      Packed<V>* const of_warp = staged();
      __syncwarp();
#pragma unroll
      for (int p = 0; p < CHANNELS; p++) of_warp[p * 32 + threadIdx.x % 32] = vectors[p];
      __syncwarp();
#pragma unroll
      for (int p = 0; p < CHANNELS; p++) vectors[p] = of_warp[threadIdx.x % 32 * CHANNELS + p];
    }
#pragma unroll
    for (int p = 0; p < CHANNELS; p++) convert_packed<V>(vectors[p], values.values + p * V);
  }
  // Stores alpha * values + beta * prior.
  __device__ __forceinline__ void write(ELEMENT* to, Values<V, CONTIGUOUS>& values, COMPUTE alpha, COMPUTE beta) const {
    Packed<V> vectors[CHANNELS];
#pragma unroll
    for (int i = 0; i < CHANNELS * V; i++) values.values[i] *= alpha;
    if (beta != COMPUTE(0)) {
      Values<V, CONTIGUOUS> prior;
      fetch(vectors, to, OPERANDS - 1);
      arrive(vectors, prior);
#pragma unroll
      for (int i = 0; i < CHANNELS * V; i++) values.values[i] += beta * prior.values[i];
    }
#pragma unroll
    for (int p = 0; p < CHANNELS; p++) vectors[p] = rounded_packed<V>(values.values + p * V);
    if constexpr (CONTIGUOUS) {
      Packed<V>* const of_warp = staged();
#pragma unroll
      for (int p = 0; p < CHANNELS; p++) of_warp[threadIdx.x % 32 * CHANNELS + p] = vectors[p];
      __syncwarp();
#pragma unroll
      for (int p = 0; p < CHANNELS; p++)
        if (exists[p]) *reinterpret_cast<Packed<V>*>(to + offset[p][OPERANDS - 1]) = of_warp[p * 32 + threadIdx.x % 32];
    } else if (exists[0]) {
#pragma unroll
      for (int p = 0; p < CHANNELS; p++)
        *reinterpret_cast<Packed<V>*>(to + offset[0][OPERANDS - 1] + p * stride[OPERANDS - 1]) = vectors[p];
    }
  }
};

// Returns the sum of squares in the window around a channel.
template <class Values> __device__ __forceinline__ COMPUTE squares(Values& x, int channel, int position) {
  COMPUTE sum = 0;
#pragma unroll
  for (int c = max(channel - BEHIND, 0); c <= min(channel + AHEAD, LAST); c++) sum += x(c, position) * x(c, position);
  return sum;
}

template <int V, bool CONTIGUOUS> __device__ __forceinline__ void forward(const ForwardArguments& a) {
  const FewChannels<2>& few = a.few;
  if (Vectors<V, CONTIGUOUS, 2>::has_none(few)) return;
  const Vectors<V, CONTIGUOUS, 2> vectors(few);
  griddepcontrol_wait_before_access(a.x + vectors.offset[0][0], a.y + vectors.offset[0][1]);
  Packed<V> of_x[CHANNELS];
  vectors.fetch(of_x, a.x, 0);
  griddepcontrol_launch_dependents();
  Values<V, CONTIGUOUS> x, y;
  vectors.arrive(of_x, x);
#pragma unroll
  for (int p = 0; p < V; p++)
#pragma unroll
    for (int c = 0; c < CHANNELS; c++) y(c, p) = x(c, p) * few.power(few.power.base(squares(x, c, p)));
  vectors.write(a.y, y, few.alpha, few.beta);
}

template <int V, bool CONTIGUOUS> __device__ __forceinline__ void backward(const BackwardArguments& a) {
  const FewChannels<3>& few = a.few;
  if (Vectors<V, CONTIGUOUS, 3>::has_none(few)) return;
  const Vectors<V, CONTIGUOUS, 3> vectors(few);
  griddepcontrol_wait_before_access(a.x + vectors.offset[0][0], a.dy + vectors.offset[0][1],
                                    a.dx + vectors.offset[0][2]);
  Packed<V> of_x[CHANNELS], of_dy[CHANNELS];
  vectors.fetch(of_x, a.x, 0);
  vectors.fetch(of_dy, a.dy, 1);
  griddepcontrol_launch_dependents();
  Values<V, CONTIGUOUS> x, dy;
  vectors.arrive(of_x, x);
  vectors.arrive(of_dy, dy);
#pragma unroll
  for (int p = 0; p < V; p++) {
    COMPUTE direct[CHANNELS], term[CHANNELS];  // direct = dy * s^-beta; term = dy * x * s^(-beta - 1)
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
  vectors.write(a.dx, dy, few.alpha, few.beta);
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
