// Local response normalization across channels (3.2.65, 4.1.14) where channels are contiguous (NHWC).
//
// Tiling: a thread has OWN neighbouring channels of one position in registers, PACKS accesses of 16 bytes, and reads
// the n - 1 channels around them (backward: of x on both sides) too, which the threads beside it read as well: they
// come from L1. Backward, the terms of those around are computed again, (OWN + n - 1) / OWN times as many powers. The
// window is a definition.
// Roofline bound (the floor): bytes, x read and y written once; backward x and dy read and dx written once. n / 2 + 20
// operations an element, backward n + 50, with beta 3/4: below the 57 and 85 that an H200 does in the time of the
// bytes of floats.
#include "normalization/windows.cuh"
#include "primitives/geometry.cuh"

constexpr int BEHIND = (WINDOW - 1) / 2, AHEAD = WINDOW - 1 - BEHIND;
constexpr int VECTOR = 16 / sizeof(ELEMENT);

template <int OPERANDS> struct Rows {
  COMPUTE alpha, beta;
  Power power;
  int channels;
  FastDivmod units;  // threads of a position
  unsigned threads;
  Geometry<OPERANDS> positions;
};
struct ForwardArguments {
  const ELEMENT* x;
  ELEMENT* y;
  Rows<2> rows;
};
struct BackwardArguments {
  const ELEMENT* x;
  const ELEMENT* dy;
  ELEMENT* dx;
  COMPUTE gradient;  // 2 * alpha * beta / n
  Rows<3> rows;
};

// Channels [channel - BEFORE, channel + OWN + AFTER) of one position, BEFORE and AFTER rounded up to accesses of V.
template <int V, int BEFORE, int OWN, int AFTER> struct Channels {
  static constexpr int LEFT = (BEFORE + V - 1) / V * V, COUNT = LEFT + OWN + (AFTER + V - 1) / V * V;
  COMPUTE values[COUNT];
  __device__ __forceinline__ void read(const ELEMENT* from, int channel, int channels) {
#pragma unroll
    for (int i = 0; i < COUNT; i += V) {
      const int c = channel - LEFT + i;
      read_packed<V>(from + c, c >= 0 && c < channels, values + i);
    }
  }
  // Of a channel, counted from the first of OWN.
  __device__ __forceinline__ COMPUTE operator[](int c) const { return values[LEFT + c]; }
};

template <int V, int OWN> __device__ __forceinline__ void forward(const ForwardArguments& a) {
  const Rows<2>& r = a.rows;
  const unsigned index = blockIdx.x * blockDim.x + threadIdx.x;
  if (index >= r.threads) return;
  unsigned unit, offset[2];
  r.positions.locate(r.units.divide(index, unit), offset);
  const int channel = unit * OWN;
  griddepcontrol_wait_before_access(a.x + offset[0], a.y + offset[1]);
  Channels<V, BEHIND, OWN, AHEAD> x;
  x.read(a.x + offset[0], channel, r.channels);
  griddepcontrol_launch_dependents();
  COMPUTE y[OWN], sums[OWN];
  window_sums<Square>([&](int i) { return x[i - BEHIND]; }, sums);
#pragma unroll
  for (int o = 0; o < OWN; o++) y[o] = x[o] * r.power(r.power.base(sums[o]));
#pragma unroll
  for (int o = 0; o < OWN; o += V)
    if (channel + o < r.channels) write_packed<V>(a.y + offset[1] + channel + o, y + o, r.alpha, r.beta);
}

template <int V, int OWN> __device__ __forceinline__ void backward(const BackwardArguments& a) {
  const Rows<3>& r = a.rows;
  const unsigned index = blockIdx.x * blockDim.x + threadIdx.x;
  if (index >= r.threads) return;
  unsigned unit, offset[3];
  r.positions.locate(r.units.divide(index, unit), offset);
  const int channel = unit * OWN;
  griddepcontrol_wait_before_access(a.x + offset[0], a.dy + offset[1], a.dx + offset[2]);
  Channels<V, WINDOW - 1, OWN, WINDOW - 1> x;
  Channels<V, AHEAD, OWN, BEHIND> dy;
  x.read(a.x + offset[0], channel, r.channels);
  dy.read(a.dy + offset[1], channel, r.channels);
  griddepcontrol_launch_dependents();
  COMPUTE direct[OWN], term[OWN + WINDOW - 1];  // term: from channel - AHEAD on
  window_sums<Square>([&](int i) { return x[i - (WINDOW - 1)]; }, term);
#pragma unroll
  for (int j = 0; j < OWN + WINDOW - 1; j++) {
    const int c = j - AHEAD;
    COMPUTE inverse;
    const COMPUTE scaled = dy[c] * r.power(r.power.base(term[j]), inverse);
    if (c >= 0 && c < OWN) direct[c] = scaled;
    term[j] = channel + c >= 0 && channel + c < r.channels ? scaled * x[c] * inverse : COMPUTE(0);
  }
  COMPUTE dx[OWN], sums[OWN];
  window_sums<Itself>([&](int i) { return term[i]; }, sums);
#pragma unroll
  for (int o = 0; o < OWN; o++) dx[o] = direct[o] - a.gradient * x[o] * sums[o];
#pragma unroll
  for (int o = 0; o < OWN; o += V)
    if (channel + o < r.channels) write_packed<V>(a.dx + offset[2] + channel + o, dx + o, r.alpha, r.beta);
}

extern "C" __global__ void __launch_bounds__(THREADS) normalization_lrn_rows_forward(const ForwardArguments a) {
  griddepcontrol_wait_deferred();
  forward<VECTOR, PACKS * VECTOR>(a);
}
extern "C" __global__ void __launch_bounds__(THREADS) normalization_lrn_rows_forward_single(const ForwardArguments a) {
  griddepcontrol_wait_deferred();
  forward<1, FORWARD_SINGLES>(a);
}
extern "C" __global__ void __launch_bounds__(THREADS) normalization_lrn_rows_backward(const BackwardArguments a) {
  griddepcontrol_wait_deferred();
  backward<VECTOR, PACKS * VECTOR>(a);
}
extern "C" __global__ void __launch_bounds__(THREADS)
    normalization_lrn_rows_backward_single(const BackwardArguments a) {
  griddepcontrol_wait_deferred();
  backward<1, BACKWARD_SINGLES>(a);
}
