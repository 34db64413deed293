// Local response normalization across channels (3.2.65, 4.1.14) of any layout: neighbouring threads on neighbouring
// positions.
//
// Tiling: a thread has VECTOR neighbouring positions (one where rows do not allow it) and slides down `chunk` channels,
// STEP channels at a time, whose reads are in flight together; the n - 1 channels that the next step needs stay in
// registers, so that each element is read once, but for the n - 1 (backward 2 n - 2) before each chunk. The window is a
// definition. With one chunk x may be y: what is written was read before. Roofline bound (the floor): bytes, x read and
// y written once; backward x and dy read and dx written once. n + 30 operations an element, backward 2 n + 50: below
// the 57 and 85 that an H200 does in the time of the bytes of floats.
#include "normalization/power.cuh"
#include "primitives/geometry.cuh"

constexpr int BEHIND = (WINDOW - 1) / 2, AHEAD = WINDOW - 1 - BEHIND, KEPT = WINDOW - 1;

template <int OPERANDS> struct Columns {
  COMPUTE alpha, beta;
  Power power;
  int channels, chunk;
  int stride[OPERANDS];  // of channels
  Geometry<OPERANDS> positions;
};
struct ForwardArguments {
  const ELEMENT* x;
  ELEMENT* y;
  Columns<2> columns;
};
struct BackwardArguments {
  const ELEMENT* x;
  const ELEMENT* dy;
  ELEMENT* dx;
  COMPUTE gradient;  // 2 * alpha * beta / n
  Columns<3> columns;
};

// KEPT channels of earlier steps and STEP of this one, V positions of each.
template <int V, int KEEP> struct Channels {
  COMPUTE values[KEEP + STEP][V];
  __device__ __forceinline__ void read(int index, const ELEMENT* from, int channel, int channels, int stride) {
    read_packed<V>(from + channel * stride, channel >= 0 && channel < channels, values[index]);
  }
  __device__ __forceinline__ void slide() {
#pragma unroll
    for (int i = 0; i < KEEP; i++)
#pragma unroll
      for (int v = 0; v < V; v++) values[i][v] = values[i + STEP][v];
  }
};

// The sum of the squares of WINDOW channels from `first` on.
template <class Values> __device__ __forceinline__ COMPUTE squares(const Values& x, int first, int v) {
  COMPUTE sum = 0;
#pragma unroll
  for (int i = 0; i < WINDOW; i++) sum += x.values[first + i][v] * x.values[first + i][v];
  return sum;
}

template <int V> __device__ __forceinline__ void forward(const ForwardArguments& a) {
  const Columns<2>& c = a.columns;
  const unsigned index = blockIdx.x * blockDim.x + threadIdx.x;
  if (index >= c.positions.packs) return;
  unsigned offset[2];
  c.positions.locate(index, offset);
  const ELEMENT* from = a.x + offset[0];
  ELEMENT* to = a.y + offset[1];
  const int first = blockIdx.y * c.chunk, last = min(first + c.chunk, c.channels);
  griddepcontrol_wait_before_access(from, to);
  Channels<V, KEPT> x;  // from channel - BEHIND on
#pragma unroll
  for (int i = 0; i < KEPT; i++) x.read(i, from, first - BEHIND + i, c.channels, c.stride[0]);
  for (int channel = first; channel < last; channel += STEP) {
#pragma unroll
    for (int u = 0; u < STEP; u++) x.read(KEPT + u, from, channel + AHEAD + u, c.channels, c.stride[0]);
#pragma unroll
    for (int u = 0; u < STEP; u++) {
      if (channel + u >= last) break;
      COMPUTE y[V];
#pragma unroll
      for (int v = 0; v < V; v++) y[v] = x.values[BEHIND + u][v] * c.power(c.power.base(squares(x, u, v)));
      write_packed<V>(to + (channel + u) * c.stride[1], y, c.alpha, c.beta);
    }
    x.slide();
  }
}

template <int V> __device__ __forceinline__ void backward(const BackwardArguments& a) {
  const Columns<3>& c = a.columns;
  const unsigned index = blockIdx.x * blockDim.x + threadIdx.x;
  if (index >= c.positions.packs) return;
  unsigned offset[3];
  c.positions.locate(index, offset);
  const ELEMENT *from = a.x + offset[0], *incoming = a.dy + offset[1];
  ELEMENT* to = a.dx + offset[2];
  const int first = blockIdx.y * c.chunk, last = min(first + c.chunk, c.channels);
  griddepcontrol_wait_before_access(from, incoming, to);
  // Of the channels from `channel` on: x, dy * s^-beta; from channel - AHEAD on: dy * x * s^(-beta - 1).
  Channels<V, KEPT> x, term;
  Channels<V, BEHIND> direct;
  // Enough steps before the first channel for the terms that its window needs.
  const int begin = first - (KEPT + STEP - 1) / STEP * STEP;
#pragma unroll
  for (int i = 0; i < KEPT; i++) {
    x.read(i, from, begin + i, c.channels, c.stride[0]);
#pragma unroll
    for (int v = 0; v < V; v++) term.values[i][v] = 0;
  }
#pragma unroll
  for (int i = 0; i < BEHIND; i++)
#pragma unroll
    for (int v = 0; v < V; v++) direct.values[i][v] = 0;
  for (int channel = begin; channel < last; channel += STEP) {
#pragma unroll
    for (int u = 0; u < STEP; u++) x.read(KEPT + u, from, channel + KEPT + u, c.channels, c.stride[0]);
#pragma unroll
    for (int u = 0; u < STEP; u++) direct.read(BEHIND + u, incoming, channel + BEHIND + u, c.channels, c.stride[1]);
#pragma unroll
    for (int u = 0; u < STEP; u++) {
      const int center = channel + BEHIND + u;
      const bool exists = center >= 0 && center < c.channels;
#pragma unroll
      for (int v = 0; v < V; v++) {
        const COMPUTE s = c.power.base(squares(x, u, v)), scaled = direct.values[BEHIND + u][v] * c.power(s);
        direct.values[BEHIND + u][v] = scaled;
        term.values[KEPT + u][v] = exists ? scaled * x.values[BEHIND + u][v] * Power::inverse(s) : COMPUTE(0);
      }
    }
#pragma unroll
    for (int u = 0; u < STEP; u++) {
      if (channel + u < first || channel + u >= last) continue;
      COMPUTE dx[V];
#pragma unroll
      for (int v = 0; v < V; v++) {
        COMPUTE sum = 0;
#pragma unroll
        for (int i = 0; i < WINDOW; i++) sum += term.values[u + i][v];
        dx[v] = direct.values[u][v] - a.gradient * x.values[u][v] * sum;
      }
      write_packed<V>(to + (channel + u) * c.stride[2], dx, c.alpha, c.beta);
    }
    x.slide();
    term.slide();
    direct.slide();
  }
}

extern "C" __global__ void __launch_bounds__(THREADS) normalization_lrn_columns_forward(const ForwardArguments a) {
  griddepcontrol_wait_deferred();
  forward<VECTOR>(a);
}
extern "C" __global__ void __launch_bounds__(THREADS)
    normalization_lrn_columns_forward_single(const ForwardArguments a) {
  griddepcontrol_wait_deferred();
  forward<1>(a);
}
extern "C" __global__ void __launch_bounds__(THREADS) normalization_lrn_columns_backward(const BackwardArguments a) {
  griddepcontrol_wait_deferred();
  backward<VECTOR>(a);
}
extern "C" __global__ void __launch_bounds__(THREADS)
    normalization_lrn_columns_backward_single(const BackwardArguments a) {
  griddepcontrol_wait_deferred();
  backward<1>(a);
}
