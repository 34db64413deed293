// Local response normalization across channels (3.2.65, 4.1.14) of any layout: neighbouring threads on neighbouring
// positions.
//
// Tiling: a thread has V neighbouring positions (one where rows do not allow it, or there are few) and slides down
// `chunk` channels, STEP at a time; the reads of the next step are in flight meanwhile. The n - 1 channels that the
// next step needs stay in registers, so that each element is read once, but for the n - 1 (backward 2 n - 2) before
// each chunk, which come from L2. The window is a definition. With one chunk x may be y: what is written was read
// before.
// Roofline bound: bytes, x read and y written once; backward x and dy read and dx written once. n / 4 + 20 operations
// an element, backward n / 2 + 35, with beta 3/4: below the 57 and 85 that an H200 does in the time of the bytes of
// floats.
#include "normalization/windows.cuh"
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

// KEEP channels of earlier steps and S of this one, V positions of each.
template <int V, int KEEP, int S> struct Channels {
  COMPUTE values[KEEP + S][V];
  __device__ __forceinline__ void slide() {
#pragma unroll
    for (int i = 0; i < KEEP; i++)
#pragma unroll
      for (int v = 0; v < V; v++) values[i][v] = values[i + S][v];
  }
};

// S channels of an operand whose reads are in flight.
template <int V, int S> struct Next {
  Packed<V> packs[S];
  // channel: the first of them. end: behind the last that is needed.
  __device__ __forceinline__ void fetch(const ELEMENT* from, int channel, int end, int stride) {
#pragma unroll
    for (int u = 0; u < S; u++) {
      const int c = channel + u;
      packs[u] = fetch_packed<V>(from + c * stride, c >= 0 && c < end);
    }
  }
  template <int KEEP> __device__ __forceinline__ void arrive(Channels<V, KEEP, S>& channels) const {
#pragma unroll
    for (int u = 0; u < S; u++) convert_packed<V>(packs[u], channels.values[KEEP + u]);
  }
};

template <int V, int S> __device__ __forceinline__ void forward(const ForwardArguments& a) {
  const Columns<2>& c = a.columns;
  const unsigned index = blockIdx.x * blockDim.x + threadIdx.x;
  if (index >= c.positions.packs) return;
  unsigned offset[2];
  c.positions.locate(index, offset);
  const ELEMENT* from = a.x + offset[0];
  ELEMENT* to = a.y + offset[1];
  const int first = blockIdx.y * c.chunk, last = min(first + c.chunk, c.channels), end = min(last + AHEAD, c.channels);
  griddepcontrol_wait_before_access(from, to);
  Channels<V, KEPT, S> x;  // from channel - BEHIND on
#pragma unroll
  for (int i = 0; i < KEPT; i++) {
    const int channel = first - BEHIND + i;
    read_packed<V>(from + channel * c.stride[0], channel >= 0 && channel < end, x.values[i]);
  }
  Next<V, S> next;
  next.fetch(from, first + AHEAD, end, c.stride[0]);
#pragma unroll 1
  for (int channel = first; channel < last; channel += S) {
    next.arrive(x);
    next.fetch(from, channel + S + AHEAD, end, c.stride[0]);
    COMPUTE y[S][V];
#pragma unroll
    for (int v = 0; v < V; v++) {
      COMPUTE sums[S];
      window_sums<Square>([&](int i) { return x.values[i][v]; }, sums);
#pragma unroll
      for (int u = 0; u < S; u++) y[u][v] = x.values[BEHIND + u][v] * c.power(c.power.base(sums[u]));
    }
#pragma unroll
    for (int u = 0; u < S; u++)
      if (channel + u < last) write_packed<V>(to + (channel + u) * c.stride[1], y[u], c.alpha, c.beta);
    x.slide();
  }
}

template <int V, int S> __device__ __forceinline__ void backward(const BackwardArguments& a) {
  const Columns<3>& c = a.columns;
  const unsigned index = blockIdx.x * blockDim.x + threadIdx.x;
  if (index >= c.positions.packs) return;
  unsigned offset[3];
  c.positions.locate(index, offset);
  const ELEMENT *from = a.x + offset[0], *incoming = a.dy + offset[1];
  ELEMENT* to = a.dx + offset[2];
  const int first = blockIdx.y * c.chunk, last = min(first + c.chunk, c.channels);
  const int end_x = min(last + KEPT, c.channels), end_dy = min(last + BEHIND, c.channels);
  // The terms of the first window begin AHEAD channels before its center.
  const int begin = first - KEPT;
  griddepcontrol_wait_before_access(from, incoming, to);
  // Of the channels from `channel` on: x, dy * s^-beta; from channel - AHEAD on: dy * x * s^(-beta - 1).
  Channels<V, KEPT, S> x, term;
  Channels<V, BEHIND, S> direct;
#pragma unroll
  for (int i = 0; i < KEPT; i++) {
    const int channel = begin + i;
    read_packed<V>(from + channel * c.stride[0], channel >= 0 && channel < end_x, x.values[i]);
#pragma unroll
    for (int v = 0; v < V; v++) term.values[i][v] = 0;
  }
#pragma unroll
  for (int i = 0; i < BEHIND; i++)
#pragma unroll
    for (int v = 0; v < V; v++) direct.values[i][v] = 0;
  Next<V, S> next_x, next_dy;
  next_x.fetch(from, first, end_x, c.stride[0]);
  next_dy.fetch(incoming, begin + BEHIND, end_dy, c.stride[1]);
#pragma unroll 1
  for (int channel = begin; channel < last; channel += S) {
    next_x.arrive(x);
    next_dy.arrive(direct);
    next_x.fetch(from, channel + S + KEPT, end_x, c.stride[0]);
    next_dy.fetch(incoming, channel + S + BEHIND, end_dy, c.stride[1]);
    COMPUTE dx[S][V];
#pragma unroll
    for (int v = 0; v < V; v++) {
      COMPUTE sums[S];
      window_sums<Square>([&](int i) { return x.values[i][v]; }, sums);
#pragma unroll
      for (int u = 0; u < S; u++) {
        const int center = channel + BEHIND + u;
        const bool exists = center >= 0 && center < c.channels;
        COMPUTE inverse;
        const COMPUTE scaled = direct.values[BEHIND + u][v] * c.power(c.power.base(sums[u]), inverse);
        direct.values[BEHIND + u][v] = scaled;
        term.values[KEPT + u][v] = exists ? scaled * x.values[BEHIND + u][v] * inverse : COMPUTE(0);
      }
      window_sums<Itself>([&](int i) { return term.values[i][v]; }, sums);
#pragma unroll
      for (int u = 0; u < S; u++) dx[u][v] = direct.values[u][v] - a.gradient * x.values[u][v] * sums[u];
    }
#pragma unroll
    for (int u = 0; u < S; u++)
      if (channel + u >= first && channel + u < last)
        write_packed<V>(to + (channel + u) * c.stride[2], dx[u], c.alpha, c.beta);
    x.slide();
    term.slide();
    direct.slide();
  }
}

extern "C" __global__ void __launch_bounds__(THREADS) normalization_lrn_columns_forward(const ForwardArguments a) {
  griddepcontrol_wait_deferred();
  forward<VECTOR, STEP>(a);
}
extern "C" __global__ void __launch_bounds__(THREADS)
    normalization_lrn_columns_forward_single(const ForwardArguments a) {
  griddepcontrol_wait_deferred();
  forward<1, SINGLE_STEP>(a);
}
extern "C" __global__ void __launch_bounds__(THREADS) normalization_lrn_columns_backward(const BackwardArguments a) {
  griddepcontrol_wait_deferred();
  backward<VECTOR, STEP>(a);
}
extern "C" __global__ void __launch_bounds__(THREADS)
    normalization_lrn_columns_backward_single(const BackwardArguments a) {
  griddepcontrol_wait_deferred();
  backward<1, STEP>(a);
}
