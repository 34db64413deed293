// Pooling backward (4.1.18) with any window; known windows have pooling/static_average_backward.cu and pooling_max_backward*.cu, averages
// over everything pooling/global_average_backward.cu.
//
// Floor: bytes. The average reads dy and writes dx, the maximum reads x too (y is not needed: it is the maximum of x).
// Every sum has a fixed order, without atomics. What each kernel does to look at a window once:
//   pooling_backward_average        a thread gathers 16 bytes of channels from the windows of one input.
//   pooling_backward_tile_average   NCHW: a block spreads the shares of its windows along axis 2, then along the others.
//   pooling_backward_tile_maximum   NCHW: a block finds the winner of every window that meets its rows, then windows add
//                                   their dy to their winners in shared memory; those that overlap take turns.
//   pooling_backward_tile_channels  NHWC: likewise, but every input gathers 16 bytes of channels from its windows' winners.
//   pooling_backward_scan           large windows: a block finds one winner after the other.
//   pooling_backward_maximum        what does not fit into shared memory: every input asks its windows whether it wins.
// On float the bytes are expected to limit, on half the instructions that look for a winner and gather.
#include "pooling/problem.cuh"

constexpr unsigned short NONE = 0xffff;  // no position

struct BackwardArguments {
  const ELEMENT* dy;
  const ELEMENT* x;
  ELEMENT* dx;
  Pooling pooling;
  Walk walk;  // dx, and x with the same strides; dy is the other tensor
};

// dx of one pack: gift(window, dy of the window, x of the plane, position, channels, sum) adds what a window gives.
template <int P, class Gift> __device__ __forceinline__ void backward(const BackwardArguments& a, Gift gift) {
  const Pooling& pooling = a.pooling;
  const Axis* axis = pooling.axis;
  unsigned index = blockIdx.x * blockDim.x + threadIdx.x;
  if (index >= a.walk.packs) return;
  int i[3];
  long long x_offset, dy_offset;
  unsigned count = a.walk.locate(index, i, x_offset, dy_offset);
  long long spatial = i[0] * pooling.x_stride[0] + i[1] * pooling.x_stride[1] + i[2] * pooling.x_stride[2];
  COMPUTE sum[P];
#pragma unroll
  for (int k = 0; k < P; k++) sum[k] = 0;
  int last0 = axis[0].last_window(i[0]), first1 = axis[1].first_window(i[1]), last1 = axis[1].last_window(i[1]);
  int first2 = axis[2].first_window(i[2]), last2 = axis[2].last_window(i[2]);
  for (int o0 = axis[0].first_window(i[0]); o0 < last0; o0++)
    for (int o1 = first1; o1 < last1; o1++) {
      const ELEMENT* row = a.dy + dy_offset + o0 * pooling.y_stride[0] + o1 * pooling.y_stride[1];
#pragma unroll 2
      for (int o2 = first2; o2 < last2; o2++)
        gift(Window(pooling, o0, o1, o2), row + o2 * pooling.y_stride[2], a.x + x_offset - spatial, i, count, sum);
    }
#pragma unroll
  for (int k = 0; k < P; k++) sum[k] *= COMPUTE(pooling.alpha);
  write_pack<P>(a.dx + x_offset, 1, a.walk.vectorised & 1, count, sum, COMPUTE(pooling.beta));
}

template <int P> __device__ __forceinline__ void backward_average(const BackwardArguments& a) {
  bool constant = a.pooling.divisor != 0;
  COMPUTE common = constant ? COMPUTE(1) / COMPUTE(a.pooling.divisor) : COMPUTE(0);
  bool aligned = (a.walk.vectorised & 2) && reinterpret_cast<uintptr_t>(a.dy) % sizeof(Pack<ELEMENT, P>) == 0;
  backward<P>(a, [&](const Window& window, const ELEMENT* dy, const ELEMENT*, const int (&)[3], unsigned count, COMPUTE(&sum)[P]) {
    COMPUTE share = constant ? common : COMPUTE(1) / window.divisor(a.pooling);
    auto add = [&](int k, COMPUTE value) { sum[k] += value * share; };
    if (P == 1 || (aligned && count == P))
      take_pack<P, true>(dy, P, add);
    else
      take_pack<P, false>(dy, count, add);
  });
}

extern "C" __global__ void __launch_bounds__(256, 4) pooling_backward_average(const BackwardArguments a) {
  griddepcontrol_wait();
  a.walk.width == WIDTH ? backward_average<WIDTH>(a) : backward_average<1>(a);
}

// Whether x[position] is the first maximum of a window. Most positions lose after a few comparisons.
__device__ __forceinline__ bool wins(const Pooling& pooling, const Window& window, const ELEMENT* x, const int (&i)[3]) {
  const long long* stride = pooling.x_stride;
  long long own = i[0] * stride[0] + i[1] * stride[1] + i[2] * stride[2];
  COMPUTE mine = load<COMPUTE>(x[own]);
  bool nan = mine != mine;
  if (nan && !pooling.propagate) return false;
  bool earlier = true;
  for (int p0 = window.span[0].first; p0 < window.span[0].last; p0++)
    for (int p1 = window.span[1].first; p1 < window.span[1].last; p1++)
      for (int p2 = window.span[2].first; p2 < window.span[2].last; p2++) {
        if (p0 == i[0] && p1 == i[1] && p2 == i[2]) {
          if (nan) return true;
          earlier = false;
          continue;
        }
        COMPUTE value = load<COMPUTE>(x[p0 * stride[0] + p1 * stride[1] + p2 * stride[2]]);
        if (value != value) {
          if (pooling.propagate && (earlier || !nan)) return false;
        } else if (value > mine || (earlier && value == mine)) {
          return false;
        }
      }
  return true;
}

extern "C" __global__ void __launch_bounds__(256, 4) pooling_backward_maximum(const BackwardArguments a) {
  griddepcontrol_wait();
  backward<1>(a, [&](const Window& window, const ELEMENT* dy, const ELEMENT* x, const int (&i)[3], unsigned, COMPUTE(&sum)[1]) {
    if (wins(a.pooling, window, x, i)) sum[0] += load<COMPUTE>(*dy);
  });
}

// ---- tiles ----

struct BackwardTileArguments {
  const ELEMENT* dy;
  const ELEMENT* x;
  ELEMENT* dx;
  Pooling pooling;
  Tile tile;
  FastDivmod phases[3];              // how many neighbouring windows of an axis overlap at most
  unsigned sums, values, winners;  // where these begin in shared memory: bytes
};

// Where the first maximum of P channels was met; positions are met in row-major order, some more than once.
template <int P> struct First {
  COMPUTE best[P];
  int where[P];
  __device__ __forceinline__ First() {
#pragma unroll
    for (int i = 0; i < P; i++) best[i] = COMPUTE(-INFINITY), where[i] = -1;
  }
  __device__ __forceinline__ void take(int i, COMPUTE value, int position, bool propagate) {
    bool nan = value != value;
    bool better = value > best[i] || (nan ? propagate && best[i] == best[i] : where[i] < 0);
    best[i] = better ? value : best[i];
    where[i] = better ? position : where[i];
  }
};

// The windows that meet a block's rows.
struct Windows {
  int low, high;
  __device__ __forceinline__ Windows(const Tile& tile, const Axis& axis, const Share& share) : low(0), high(axis.output) {
    if (tile.planes > 1) return;
    low = axis.first_window(share.first_row);
    high = max(low, axis.last_window(share.last_row - 1));
  }
  __device__ __forceinline__ int count() const { return high - low; }
};

// Where the block's rows of dx are summed, without gaps between them; as far from a multiple of 16 bytes of dx as dx is.
__device__ __forceinline__ COMPUTE* sums_of(const BackwardTileArguments& a, const Share& share) {
  const Axis* axis = a.pooling.axis;
  const ELEMENT* dx = a.dx + ((long long)share.plane * axis[0].input + share.first_row) * (axis[1].input * axis[2].input);
  return reinterpret_cast<COMPUTE*>(shared_memory + a.sums) + (a.tile.flat ? reinterpret_cast<uintptr_t>(dx) / sizeof(ELEMENT) % WIDTH : 0);
}

// Writes the sums, alpha applied and blended.
__device__ __forceinline__ void write_rows(const BackwardTileArguments& a, const Share& share, const COMPUTE* sums) {
  const Pooling& pooling = a.pooling;
  const Axis* axis = pooling.axis;
  int slice = axis[1].input * axis[2].input, rows = share.planes * (share.last_row - share.first_row) * axis[1].input;
  COMPUTE alpha = pooling.alpha, beta = pooling.beta;
  if (a.tile.flat) {
    ELEMENT* dx = a.dx + (long long)share.plane * (axis[0].input * slice) + (long long)share.first_row * slice;
    int count = rows * axis[2].input, skew = reinterpret_cast<uintptr_t>(dx) / sizeof(ELEMENT) % WIDTH;
    for (int first = int(threadIdx.x) * WIDTH - skew; first < count; first += blockDim.x * WIDTH) {
      if (first >= 0 && first + WIDTH <= count) {
        Pack<COMPUTE, WIDTH> found = *reinterpret_cast<const Pack<COMPUTE, WIDTH>*>(sums + first);
        COMPUTE values[WIDTH];
#pragma unroll
        for (int k = 0; k < WIDTH; k++) values[k] = alpha * found.item[k];
        write_pack<WIDTH>(dx + first, 1, true, WIDTH, values, beta);
      } else {
        for (int k = max(first, 0); k < min(first + WIDTH, count); k++) dx[k] = blend(alpha, sums[k], beta, dx + k);
      }
    }
    return;
  }
  Place place(0, a.tile.x_bits);
  for (int row = place.row; row < rows; row += place.rows) {
    unsigned plane, i0, i1;
    a.tile.decode(a.tile.input, row, plane, i0, i1);
    long long x_plane, y_plane;
    a.tile.offsets(share.plane + plane, x_plane, y_plane);
    ELEMENT* dx = a.dx + x_plane + (i0 + share.first_row) * pooling.x_stride[0] + i1 * pooling.x_stride[1];
    for (int i2 = place.column; i2 < axis[2].input; i2 += place.columns) {
      ELEMENT* target = dx + i2 * pooling.x_stride[2];
      *target = blend(alpha, sums[row * axis[2].input + i2], beta, target);
    }
  }
}

extern "C" __global__ void __launch_bounds__(256, 4) pooling_backward_tile_maximum(const BackwardTileArguments a) {
  griddepcontrol_wait();
  const Pooling& pooling = a.pooling;
  const Axis* axis = pooling.axis;
  Share share(a.tile, axis[0].input);
  Windows windows(a.tile, axis[0], share);
  COMPUTE* sums = sums_of(a, share);
  ELEMENT* values = reinterpret_cast<ELEMENT*>(shared_memory + a.values);
  unsigned short* winners = reinterpret_cast<unsigned short*>(shared_memory + a.winners);
  const int stride[3] = {axis[1].input * axis[2].input, axis[2].input, 1};
  int volume = axis[0].input * stride[0], x_first = 0, x_last = axis[0].input;
  if (a.tile.planes == 1) {
    x_first = Span(axis[0], windows.low).first;
    x_last = windows.count() > 0 ? max(x_first, Span(axis[0], windows.high - 1).last) : x_first;
  }
  const ELEMENT* x = copy_rows(a.tile, pooling, share, a.x, x_first, x_last, shared_memory) - x_first * stride[0];
  int held = share.planes * (share.last_row - share.first_row) * stride[0];
  uint4* zeroed = reinterpret_cast<uint4*>(shared_memory + a.sums);
  for (int k = threadIdx.x; k < (held + WIDTH) * int(sizeof(COMPUTE)) / 16 + 1; k += blockDim.x) zeroed[k] = make_uint4(0, 0, 0, 0);
  __syncthreads();

  // Every window's winner, as its place among the block's sums, and its dy.
  int rows = share.planes * windows.count() * axis[1].output;
  bool propagate = pooling.propagate;
  long long x_plane, y_plane;
  a.tile.offsets(share.plane, x_plane, y_plane);
  Place place(0, a.tile.y_bits);
  with_window(pooling, [&](auto k0, auto k2) {
    constexpr int K0 = decltype(k0)::value, K2 = decltype(k2)::value;
    for (int o2 = place.column; o2 < axis[2].output; o2 += place.columns) {
      Taps<K2 ? K2 : 1, int> columns(axis[2], o2 * axis[2].stride - axis[2].padding, 1);
      for (int row = place.row; row < rows; row += place.rows) {
        unsigned plane, o0, o1;
        a.tile.decode(a.tile.output, row, plane, o0, o1);
        o0 += windows.low;
        if (a.tile.planes > 1) a.tile.offsets(share.plane + plane, x_plane, y_plane);
        values[row * axis[2].output + o2] =
            a.dy[y_plane + o0 * pooling.y_stride[0] + o1 * pooling.y_stride[1] + o2 * pooling.y_stride[2]];
        Window window(pooling, o0, o1, o2);
        First<1> found;
        if constexpr (K0 > 0) {
          if (!window.empty()) {
            Taps<K0, int> lines(axis[0], window.span[0].start, stride[0]);
            ELEMENT taps[K0][K2];
            const ELEMENT* from = x + int(plane) * volume;
#pragma unroll
            for (int p0 = 0; p0 < K0; p0++)
#pragma unroll
              for (int p2 = 0; p2 < K2; p2++) taps[p0][p2] = from[lines.offset[p0] + columns.offset[p2]];
#pragma unroll
            for (int p0 = 0; p0 < K0; p0++)
#pragma unroll
              for (int p2 = 0; p2 < K2; p2++)
                found.take(0, load<COMPUTE>(taps[p0][p2]), lines.offset[p0] + columns.offset[p2], propagate);
          }
        } else {
          const ELEMENT* from = x + int(plane) * volume;
          visit_window(window, stride, [&](int offset) { found.take(0, load<COMPUTE>(from[offset]), offset, propagate); });
        }
        int winner = found.where[0] + int(plane) * volume - share.first_row * stride[0];
        winners[row * axis[2].output + o2] = found.where[0] >= 0 && unsigned(winner) < unsigned(held) ? winner : NONE;
      }
    }
  });

  // Windows that do not overlap add at the same time, the others one group after the other.
  int phases0 = a.phases[0].divisor, phases1 = a.phases[1].divisor, phases2 = a.phases[2].divisor;
  for (int turn = 0; turn < phases0 * phases1 * phases2; turn++) {
    __syncthreads();
    unsigned phase0 = turn / (phases1 * phases2), phase1 = turn / phases2 % phases1, phase2 = turn % phases2;
    for (int row = place.row; row < rows; row += place.rows) {
      unsigned plane, o0, o1, mine0, mine1;
      a.tile.decode(a.tile.output, row, plane, o0, o1);
      a.phases[0].divide(o0, mine0);
      a.phases[1].divide(o1, mine1);
      if (mine0 != phase0 || mine1 != phase1) continue;
      for (int o2 = phase2 + phases2 * place.column; o2 < axis[2].output; o2 += phases2 * place.columns) {
        unsigned short winner = winners[row * axis[2].output + o2];
        if (winner != NONE) sums[winner] += load<COMPUTE>(values[row * axis[2].output + o2]);
      }
    }
  }
  __syncthreads();
  write_rows(a, share, sums);
}

extern "C" __global__ void __launch_bounds__(256, 4) pooling_backward_tile_average(const BackwardTileArguments a) {
  griddepcontrol_wait();
  const Pooling& pooling = a.pooling;
  const Axis* axis = pooling.axis;
  Share share(a.tile, axis[0].input);
  Windows windows(a.tile, axis[0], share);
  COMPUTE* shares = reinterpret_cast<COMPUTE*>(shared_memory + a.values);
  COMPUTE* spread = reinterpret_cast<COMPUTE*>(shared_memory);
  COMPUTE* sums = sums_of(a, share);
  int rows = share.planes * windows.count() * axis[1].output;
  long long x_plane, y_plane;
  a.tile.offsets(share.plane, x_plane, y_plane);
  Place narrow(0, a.tile.y_bits), wide(0, a.tile.x_bits);
  for (int o2 = narrow.column; o2 < axis[2].output; o2 += narrow.columns)
    for (int row = narrow.row; row < rows; row += narrow.rows) {
      unsigned plane, o0, o1;
      a.tile.decode(a.tile.output, row, plane, o0, o1);
      o0 += windows.low;
      if (a.tile.planes > 1) a.tile.offsets(share.plane + plane, x_plane, y_plane);
      COMPUTE value = load<COMPUTE>(a.dy[y_plane + o0 * pooling.y_stride[0] + o1 * pooling.y_stride[1] + o2 * pooling.y_stride[2]]);
      shares[row * axis[2].output + o2] = value / Window(pooling, o0, o1, o2).divisor(pooling);
    }
  __syncthreads();
  // Along axis 2,
  for (int i2 = wide.column; i2 < axis[2].input; i2 += wide.columns) {
    int first = axis[2].first_window(i2), last = axis[2].last_window(i2);
    for (int row = wide.row; row < rows; row += wide.rows) {
      COMPUTE sum = 0;
      for (int o2 = first; o2 < last; o2++) sum += shares[row * axis[2].output + o2];
      spread[row * axis[2].input + i2] = sum;
    }
  }
  __syncthreads();
  // then along axes 0 and 1.
  int held = share.planes * (share.last_row - share.first_row) * axis[1].input;
  for (int row = wide.row; row < held; row += wide.rows) {
    unsigned plane, i0, i1;
    a.tile.decode(a.tile.input, row, plane, i0, i1);
    i0 += share.first_row;
    int first0 = axis[0].first_window(i0), last0 = axis[0].last_window(i0);
    int first1 = axis[1].first_window(i1), last1 = axis[1].last_window(i1);
    int line = int(plane) * windows.count() - windows.low;
    for (int i2 = wide.column; i2 < axis[2].input; i2 += wide.columns) {
      COMPUTE sum = 0;
      for (int o0 = first0; o0 < last0; o0++)
        for (int o1 = first1; o1 < last1; o1++) sum += spread[((line + o0) * axis[1].output + o1) * axis[2].input + i2];
      sums[row * axis[2].input + i2] = sum;
    }
  }
  __syncthreads();
  write_rows(a, share, sums);
}

extern "C" __global__ void __launch_bounds__(256, 2) pooling_backward_tile_channels(const BackwardTileArguments a) {
  griddepcontrol_wait();
  constexpr int P = WIDTH;
  const Pooling& pooling = a.pooling;
  const Axis* axis = pooling.axis;
  Share share(a.tile, axis[0].input);
  Windows windows(a.tile, axis[0], share);
  Pack<ELEMENT, P>* values = reinterpret_cast<Pack<ELEMENT, P>*>(shared_memory + a.values);
  Pack<unsigned short, P>* winners = reinterpret_cast<Pack<unsigned short, P>*>(shared_memory + a.winners);
  int packs = (share.lanes + P - 1) / P, rows = share.planes * windows.count() * axis[1].output;
  bool propagate = pooling.propagate;
  Place narrow(a.tile.lane_bits, a.tile.y_bits), wide(a.tile.lane_bits, a.tile.x_bits);
  unsigned lane = narrow.lane * P, count = min(P, int(share.lanes - lane));
  long long x_plane, y_plane;
  a.tile.offsets(share.plane, x_plane, y_plane);

  // Every window's winner, as its place in the window, and its dy.
  if (narrow.lane < packs)
    with_window(pooling, [&](auto k0, auto k2) {
      constexpr int K0 = decltype(k0)::value, K2 = decltype(k2)::value;
      for (int o2 = narrow.column; o2 < axis[2].output; o2 += narrow.columns) {
        Taps<K2 ? K2 : 1, long long> columns(axis[2], o2 * axis[2].stride - axis[2].padding, pooling.x_stride[2]);
        for (int row = narrow.row; row < rows; row += narrow.rows) {
          unsigned plane, o0, o1;
          a.tile.decode(a.tile.output, row, plane, o0, o1);
          o0 += windows.low;
          if (a.tile.planes > 1) a.tile.offsets(share.plane + plane, x_plane, y_plane);
          const ELEMENT* x = a.x + x_plane + share.lane + lane;
          const ELEMENT* dy = a.dy + y_plane + o0 * pooling.y_stride[0] + o1 * pooling.y_stride[1] + o2 * pooling.y_stride[2] +
                              (share.lane + lane) * a.tile.y_lane;
          Pack<ELEMENT, P> given;
          if (whole_packs<P>(dy, a.tile.vectorised & 2, count)) {
            given = *reinterpret_cast<const Pack<ELEMENT, P>*>(dy);
          } else {
#pragma unroll
            for (int k = 0; k < P; k++)
              if (k < count) given.item[k] = dy[k * a.tile.y_lane];
          }
          Window window(pooling, o0, o1, o2);
          First<P> found;
          bool whole = whole_packs<P>(x, a.tile.vectorised & 1, count);
          if (K0 > 0 && whole) {
            if (!window.empty()) {
              constexpr int N0 = K0 ? K0 : 1, N2 = K2 ? K2 : 1;
              Taps<N0, long long> lines(axis[0], window.span[0].start, pooling.x_stride[0]);
              Pack<ELEMENT, P> taps[N0][N2];
#pragma unroll
              for (int p0 = 0; p0 < N0; p0++)
#pragma unroll
                for (int p2 = 0; p2 < N2; p2++)
                  taps[p0][p2] = *reinterpret_cast<const Pack<ELEMENT, P>*>(x + lines.offset[p0] + columns.offset[p2]);
#pragma unroll
              for (int p0 = 0; p0 < N0; p0++)
#pragma unroll
                for (int p2 = 0; p2 < N2; p2++)
                  if (lines.inside[p0] && columns.inside[p2])
#pragma unroll
                    for (int k = 0; k < P; k++) found.take(k, load<COMPUTE>(taps[p0][p2].item[k]), p0 * N2 + p2, propagate);
            }
          } else {
            auto look = [&](auto is_whole) {
              for (int p0 = window.span[0].first; p0 < window.span[0].last; p0++)
                for (int p1 = window.span[1].first; p1 < window.span[1].last; p1++) {
                  const ELEMENT* from = x + p0 * pooling.x_stride[0] + p1 * pooling.x_stride[1];
                  int position = ((p0 - window.span[0].start) * axis[1].window + p1 - window.span[1].start) * axis[2].window - window.span[2].start;
#pragma unroll 4
                  for (int p2 = window.span[2].first; p2 < window.span[2].last; p2++)
                    take_pack<P, decltype(is_whole)::value>(from + p2 * pooling.x_stride[2], count,
                                                            [&](int k, COMPUTE met) { found.take(k, met, position + p2, propagate); });
                }
            };
            whole ? look(std::true_type()) : look(std::false_type());
          }
          Pack<unsigned short, P> won;
#pragma unroll
          for (int k = 0; k < P; k++) won.item[k] = found.where[k] < 0 ? NONE : found.where[k];
          int index = (row * axis[2].output + o2) * packs + narrow.lane;
          values[index] = given;
          winners[index] = won;
        }
      }
    });
  __syncthreads();
  if (wide.lane >= packs) return;

  COMPUTE alpha = pooling.alpha, beta = pooling.beta;
  int held = share.planes * (share.last_row - share.first_row) * axis[1].input;
  for (int i2 = wide.column; i2 < axis[2].input; i2 += wide.columns) {
    int first2 = axis[2].first_window(i2), last2 = axis[2].last_window(i2), into = i2 - first2 * axis[2].stride + axis[2].padding;
    for (int row = wide.row; row < held; row += wide.rows) {
      unsigned plane, i0, i1;
      a.tile.decode(a.tile.input, row, plane, i0, i1);
      i0 += share.first_row;
      int last0 = axis[0].last_window(i0), first1 = axis[1].first_window(i1), last1 = axis[1].last_window(i1);
      COMPUTE sum[P];
#pragma unroll
      for (int k = 0; k < P; k++) sum[k] = 0;
      for (int o0 = axis[0].first_window(i0); o0 < last0; o0++)
        for (int o1 = first1; o1 < last1; o1++) {
          int index = (((int(plane) * windows.count() + o0 - windows.low) * axis[1].output + o1) * axis[2].output + first2) * packs + wide.lane;
          int inside0 = i0 - o0 * axis[0].stride + axis[0].padding, inside1 = i1 - o1 * axis[1].stride + axis[1].padding;
          int position = (inside0 * axis[1].window + inside1) * axis[2].window + into;
#pragma unroll 2
          for (int o2 = first2; o2 < last2; o2++) {
            Pack<ELEMENT, P> given = values[index];
            Pack<unsigned short, P> won = winners[index];
#pragma unroll
            for (int k = 0; k < P; k++)
              if (won.item[k] == position) sum[k] += load<COMPUTE>(given.item[k]);
            index += packs;
            position -= axis[2].stride;
          }
        }
#pragma unroll
      for (int k = 0; k < P; k++) sum[k] *= alpha;
      if (a.tile.planes > 1) a.tile.offsets(share.plane + plane, x_plane, y_plane);
      ELEMENT* dx = a.dx + x_plane + i0 * pooling.x_stride[0] + i1 * pooling.x_stride[1] + i2 * pooling.x_stride[2] + share.lane + lane;
      write_pack<P>(dx, 1, a.tile.vectorised & 1, count, sum, beta);
    }
  }
}

// ---- large windows ----

struct ScanArguments {
  const ELEMENT* dy;
  const ELEMENT* x;
  ELEMENT* dx;
  Pooling pooling;
  Tile tile;         // one plane a block, `lanes` (a power of two) of its channels
  unsigned winners;  // where these begin in shared memory, after the sums of the windows: bytes
  unsigned candidates;
};

struct Candidate {
  COMPUTE value;
  int where;  // row-major in the plane, -1: none

  // Whether `other` comes before this as the first maximum.
  __device__ __forceinline__ bool loses_to(const Candidate& other) const {
    if (other.where < 0 || where < 0) return where < 0 && other.where >= 0;
    bool nan = value != value, other_nan = other.value != other.value;
    if (nan || other_nan) return other_nan && (!nan || other.where < where);
    return other.value > value || (other.value == value && other.where < where);
  }
};

extern "C" __global__ void __launch_bounds__(256, 4) pooling_backward_scan(const ScanArguments a) {
  griddepcontrol_wait();
  const Pooling& pooling = a.pooling;
  const Axis* axis = pooling.axis;
  Share share(a.tile, axis[0].input);
  int lanes = a.tile.lanes, lane = threadIdx.x % lanes, slice = threadIdx.x / lanes, slices = blockDim.x / lanes;
  bool present = lane < share.lanes;
  COMPUTE* sums = reinterpret_cast<COMPUTE*>(shared_memory);
  int* winners = reinterpret_cast<int*>(shared_memory + a.winners);
  Candidate* candidates = reinterpret_cast<Candidate*>(shared_memory + a.candidates);
  long long x_plane, y_plane;
  a.tile.offsets(share.plane, x_plane, y_plane);
  const ELEMENT* x = a.x + x_plane + share.lane + lane;
  const ELEMENT* dy = a.dy + y_plane + (share.lane + lane) * a.tile.y_lane;
  ELEMENT* dx = a.dx + x_plane + share.lane + lane;
  int windows = axis[0].output * axis[1].output * axis[2].output;
  auto offset_of = [&](int where) {
    unsigned i1, i2, rest = a.tile.input[2].divide(where, i2);
    rest = a.tile.input[1].divide(rest, i1);
    return rest * pooling.x_stride[0] + i1 * pooling.x_stride[1] + i2 * pooling.x_stride[2];
  };

  for (int index = 0; index < windows; index++) {
    unsigned o1, o2, o0 = a.tile.output[1].divide(a.tile.output[2].divide(index, o2), o1);
    Window window(pooling, o0, o1, o2);
    int n1 = window.span[1].count(), n2 = window.span[2].count(), lines = n2 > 0 ? window.span[0].count() * n1 : 0;
    // A line of the window is shared by `team` threads.
    int team = min(slices, n2 >= slices ? slices : 32), member = slice % team;
    Candidate mine = {0, -1};
    for (int line = slice / team; present && line < lines; line += slices / team) {
      int p0 = window.span[0].first + line / n1, p1 = window.span[1].first + line % n1, row = (p0 * axis[1].input + p1) * axis[2].input;
      const ELEMENT* from = x + p0 * pooling.x_stride[0] + p1 * pooling.x_stride[1];
#pragma unroll 8
      for (int p2 = window.span[2].first + member; p2 < window.span[2].last; p2 += team) {
        COMPUTE value = load<COMPUTE>(from[p2 * pooling.x_stride[2]]);
        bool nan = value != value;
        bool better = value > mine.value || (nan ? pooling.propagate && mine.value == mine.value : mine.where < 0);
        if (better) mine = {value, row + p2};
      }
    }
    candidates[threadIdx.x] = mine;
    for (int distance = blockDim.x / 2; distance >= lanes; distance /= 2) {
      __syncthreads();
      if (threadIdx.x < distance && candidates[threadIdx.x].loses_to(candidates[threadIdx.x + distance]))
        candidates[threadIdx.x] = candidates[threadIdx.x + distance];
    }
    if (slice == 0 && present) {
      winners[index * lanes + lane] = candidates[lane].where;
      sums[index * lanes + lane] = load<COMPUTE>(dy[o0 * pooling.y_stride[0] + o1 * pooling.y_stride[1] + o2 * pooling.y_stride[2]]);
    }
    __syncthreads();
  }

  // The first window of a winner collects what the others of that winner give, and what dx was, before dx is written.
  COMPUTE alpha = pooling.alpha, beta = pooling.beta;
  auto leads = [&](int index) {
    int winner = winners[index * lanes + lane];
    bool first = winner >= 0;
    for (int other = 0; first && other < index; other++) first = winners[other * lanes + lane] != winner;
    return first;
  };
  for (int index = slice; present && index < windows; index += slices) {
    if (!leads(index)) continue;
    int winner = winners[index * lanes + lane];
    COMPUTE sum = 0;
    for (int other = index; other < windows; other++)
      if (winners[other * lanes + lane] == winner) sum += sums[other * lanes + lane];
    sum *= alpha;
    if (beta != COMPUTE(0)) sum += beta * load<COMPUTE>(dx[offset_of(winner)]);
    sums[index * lanes + lane] = sum;
  }
  __syncthreads();
  int volume = axis[0].input * axis[1].input * axis[2].input;
  for (int where = slice; present && where < volume; where += slices) {
    ELEMENT* target = dx + offset_of(where);
    *target = blend(alpha, COMPUTE(0), beta, target);
  }
  __syncthreads();
  for (int index = slice; present && index < windows; index += slices)
    if (leads(index)) dx[offset_of(winners[index * lanes + lane])] = store<ELEMENT>(sums[index * lanes + lane]);
}
