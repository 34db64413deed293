// This file computes local response normalization across channels (3.2.65, 4.1.14) for generic layouts. Neighbouring
// threads own neighbouring positions.
//
// A thread owns V neighbouring positions, or one where rows are not aligned or positions are few. It slides down
// `chunk` channels, STEP at a time, and prefetches the next step. The n - 1 channels that the next step needs stay in
// registers, so each element is read once. Only the n - 1 channels before each chunk (backward 2 n - 2) are read again,
// from L2. The window size is a compile-time constant. With one chunk, x may alias y, because each read precedes the
// write.
//
// The roofline bound is bytes. Forward reads x and writes y once; backward reads x and dy and writes dx once. An
// element takes n / 4 + 20 operations forward and n / 2 + 35 backward, with beta 3/4. An H200 does 57 and 85 operations
// while it moves the bytes of an element of float.
#include "normalization/windows.cuh"
#include "primitives/geometry.cuh"

constexpr int BEHIND = (WINDOW - 1) / 2;    // window elements before the centre
constexpr int AHEAD = WINDOW - 1 - BEHIND;  // window elements after the centre
constexpr int KEPT = WINDOW - 1;            // elements of a window that the next one may share

template <int OPERANDS> struct Columns {
  COMPUTE alpha, beta;
  Power power;
  int channels, chunk;
  int stride[OPERANDS];  // stride between channels, in elements
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

// A thread owns V neighbouring positions that one access moves, or, if APART, V positions of one row with stride 32.
template <int V, bool APART> struct Positions {
  static constexpr bool RUNS = APART && V > 1;
  int left;  // positions left in the row from this thread's first

  // Returns false where the thread owns no position.
  template <int OPERANDS>
  __device__ __forceinline__ bool locate(const Geometry<OPERANDS>& geometry, unsigned (&offset)[OPERANDS]) {
    const unsigned thread = blockIdx.x * blockDim.x + threadIdx.x, index = RUNS ? thread / 32 : thread;
    if (index >= geometry.vectors) return false;
    left = geometry.locate(index, offset);
    if constexpr (RUNS) {
      const int lane = thread % 32;
#pragma unroll
      for (int i = 0; i < OPERANDS; i++) offset[i] += lane;
      left -= lane;
    }
    return left > 0;
  }
  struct Values {
    Packed<RUNS ? 1 : V> vectors[RUNS ? V : 1];
    __device__ __forceinline__ void convert(COMPUTE (&values)[V]) const {
      if constexpr (RUNS) {
#pragma unroll
        for (int v = 0; v < V; v++) convert_packed<1>(vectors[v], values + v);
      } else {
        convert_packed<V>(vectors[0], values);
      }
    }
  };
  __device__ __forceinline__ Values fetch(const ELEMENT* from, bool exists) const {
    Values found;
    if constexpr (RUNS) {
#pragma unroll
      for (int v = 0; v < V; v++) found.vectors[v] = fetch_packed<1>(from + v * 32, exists && v * 32 < left);
    } else {
      found.vectors[0] = fetch_packed<V>(from, exists);
    }
    return found;
  }
  __device__ __forceinline__ void put(ELEMENT* to, const COMPUTE (&values)[V]) const {
    if constexpr (RUNS) {
#pragma unroll
      for (int v = 0; v < V; v++)
        if (v * 32 < left) put_packed<1>(to + v * 32, values + v);
    } else {
      put_packed<V>(to, values);
    }
  }
};

// This window holds KEEP channels of earlier steps and S of this one, with V positions each.
template <int V, int KEEP, int S> struct Channels {
  COMPUTE values[KEEP + S][V];
  __device__ __forceinline__ void slide() {
#pragma unroll
    for (int i = 0; i < KEEP; i++)
#pragma unroll
      for (int v = 0; v < V; v++) values[i][v] = values[i + S][v];
  }
};

// These are the S channels of an operand whose reads are in flight. One test per step, uniform over all threads, checks
// that all of them exist.
template <class Where, int S> struct Next {
  typename Where::Values vectors[S];
  // `channel` is the first one; `end` follows the last channel that is needed.
  __device__ __forceinline__ void fetch(const Where& where, const ELEMENT* from, int channel, int end, int stride) {
    const ELEMENT* at = from + static_cast<ptrdiff_t>(channel) * stride;
    if (channel >= 0 && channel + S <= end) {
#pragma unroll
      for (int u = 0; u < S; u++, at += stride) vectors[u] = where.fetch(at, true);
    } else {
#pragma unroll
      for (int u = 0; u < S; u++, at += stride) vectors[u] = where.fetch(at, channel + u >= 0 && channel + u < end);
    }
  }
  template <int V, int KEEP> __device__ __forceinline__ void arrive(Channels<V, KEEP, S>& channels) const {
#pragma unroll
    for (int u = 0; u < S; u++) vectors[u].convert(channels.values[KEEP + u]);
  }
};

// Writes the results of S channels from `channel` on; channels outside [first, last) are skipped.
template <class Where, int V, int S, int OPERANDS>
__device__ __forceinline__ void write(const Where& where, const Columns<OPERANDS>& columns, ELEMENT* to, int channel,
                                      int first, int last, COMPUTE (&results)[S][V]) {
  const int stride = columns.stride[OPERANDS - 1];
  ELEMENT* const begin = to + static_cast<ptrdiff_t>(channel) * stride;
#pragma unroll
  for (int u = 0; u < S; u++)
#pragma unroll
    for (int v = 0; v < V; v++) results[u][v] *= columns.alpha;
  ELEMENT* at = begin;
  if (columns.beta != COMPUTE(0)) {
#pragma unroll
    for (int u = 0; u < S; u++, at += stride) {
      COMPUTE prior[V];
      where.fetch(at, channel + u >= first && channel + u < last).convert(prior);
#pragma unroll
      for (int v = 0; v < V; v++) results[u][v] += columns.beta * prior[v];
    }
    at = begin;
  }
  if (channel >= first && channel + S <= last) {
#pragma unroll
    for (int u = 0; u < S; u++, at += stride) where.put(at, results[u]);
  } else {
#pragma unroll
    for (int u = 0; u < S; u++, at += stride)
      if (channel + u >= first && channel + u < last) where.put(at, results[u]);
  }
}

template <int V, int S, bool APART> __device__ __forceinline__ void forward(const ForwardArguments& a) {
  const Columns<2>& c = a.columns;
  Positions<V, APART> where;
  unsigned offset[2];
  if (!where.locate(c.positions, offset)) return;
  const ELEMENT* from = a.x + offset[0];
  ELEMENT* to = a.y + offset[1];
  const int first = blockIdx.y * c.chunk, last = min(first + c.chunk, c.channels), end = min(last + AHEAD, c.channels);
  griddepcontrol_wait_before_access(from, to);
  Channels<V, KEPT, S> x;  // window of x from channel - BEHIND on
#pragma unroll
  for (int i = 0; i < KEPT; i++) {
    const int channel = first - BEHIND + i;
    where.fetch(from + channel * c.stride[0], channel >= 0 && channel < end).convert(x.values[i]);
  }
  Next<Positions<V, APART>, S> next;
  next.fetch(where, from, first + AHEAD, end, c.stride[0]);
#pragma unroll 1
  for (int channel = first; channel < last; channel += S) {
    next.arrive(x);
    next.fetch(where, from, channel + S + AHEAD, end, c.stride[0]);
    COMPUTE y[S][V];
#pragma unroll
    for (int v = 0; v < V; v++) {
      COMPUTE sums[S];
      window_sums<Square>([&](int i) { return x.values[i][v]; }, sums);
#pragma unroll
      for (int u = 0; u < S; u++) y[u][v] = x.values[BEHIND + u][v] * c.power(c.power.base(sums[u]));
    }
    write(where, c, to, channel, first, last, y);
    x.slide();
  }
}

template <int V, int S, bool APART> __device__ __forceinline__ void backward(const BackwardArguments& a) {
  const Columns<3>& c = a.columns;
  Positions<V, APART> where;
  unsigned offset[3];
  if (!where.locate(c.positions, offset)) return;
  const ELEMENT *from = a.x + offset[0], *incoming = a.dy + offset[1];
  ELEMENT* to = a.dx + offset[2];
  const int first = blockIdx.y * c.chunk, last = min(first + c.chunk, c.channels);
  const int end_x = min(last + KEPT, c.channels), end_dy = min(last + BEHIND, c.channels);
  // The terms of the first window begin AHEAD channels before its center.
  const int begin = first - KEPT;
  griddepcontrol_wait_before_access(from, incoming, to);
  // `x` and `direct` (dy * s^-beta) begin at `channel`; `term` (dy * x * s^(-beta - 1)) begins at channel - AHEAD.
  Channels<V, KEPT, S> x, term;
  Channels<V, BEHIND, S> direct;
#pragma unroll
  for (int i = 0; i < KEPT; i++) {
    const int channel = begin + i;
    where.fetch(from + channel * c.stride[0], channel >= 0 && channel < end_x).convert(x.values[i]);
#pragma unroll
    for (int v = 0; v < V; v++) term.values[i][v] = 0;
  }
#pragma unroll
  for (int i = 0; i < BEHIND; i++)
#pragma unroll
    for (int v = 0; v < V; v++) direct.values[i][v] = 0;
  Next<Positions<V, APART>, S> next_x, next_dy;
  next_x.fetch(where, from, first, end_x, c.stride[0]);
  next_dy.fetch(where, incoming, begin + BEHIND, end_dy, c.stride[1]);
#pragma unroll 1
  for (int channel = begin; channel < last; channel += S) {
    next_x.arrive(x);
    next_dy.arrive(direct);
    next_x.fetch(where, from, channel + S + KEPT, end_x, c.stride[0]);
    next_dy.fetch(where, incoming, channel + S + BEHIND, end_dy, c.stride[1]);
    const int center = channel + BEHIND;
#pragma unroll
    for (int v = 0; v < V; v++) {
      COMPUTE sums[S];
      window_sums<Square>([&](int i) { return x.values[i][v]; }, sums);
#pragma unroll
      for (int u = 0; u < S; u++) {
        COMPUTE inverse;
        const COMPUTE scaled = direct.values[BEHIND + u][v] * c.power(c.power.base(sums[u]), inverse);
        direct.values[BEHIND + u][v] = scaled;
        term.values[KEPT + u][v] = scaled * x.values[BEHIND + u][v] * inverse;
      }
    }
    if (center < 0 ||
        center + S > c.channels) {  // Centers beyond the edges contribute no term, whatever their powers are.
#pragma unroll
      for (int u = 0; u < S; u++)
        if (center + u < 0 || center + u >= c.channels) {
#pragma unroll
          for (int v = 0; v < V; v++) term.values[KEPT + u][v] = 0;
        }
    }
    COMPUTE dx[S][V];
#pragma unroll
    for (int v = 0; v < V; v++) {
      COMPUTE sums[S];
      window_sums<Itself>([&](int i) { return term.values[i][v]; }, sums);
#pragma unroll
      for (int u = 0; u < S; u++) dx[u][v] = direct.values[u][v] - a.gradient * x.values[u][v] * sums[u];
    }
    write(where, c, to, channel, first, last, dx);
    x.slide();
    term.slide();
    direct.slide();
  }
}

extern "C" __global__ void __launch_bounds__(THREADS) normalization_lrn_generic_forward(const ForwardArguments a) {
  griddepcontrol_wait_deferred();
  forward<VECTOR, STEP, false>(a);
}
extern "C" __global__ void __launch_bounds__(THREADS)
    normalization_lrn_generic_forward_single(const ForwardArguments a) {
  griddepcontrol_wait_deferred();
  forward<SINGLES, SINGLE_STEP, true>(a);
}
extern "C" __global__ void __launch_bounds__(THREADS) normalization_lrn_generic_backward(const BackwardArguments a) {
  griddepcontrol_wait_deferred();
  backward<VECTOR, STEP, false>(a);
}
extern "C" __global__ void __launch_bounds__(THREADS)
    normalization_lrn_generic_backward_single(const BackwardArguments a) {
  griddepcontrol_wait_deferred();
  backward<SINGLES, SINGLE_STEP, true>(a);
}
