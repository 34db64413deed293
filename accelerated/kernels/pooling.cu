// Pooling, forward (3.2.69) and backward (4.1.18), over 2 or 3 spatial dimensions: axis 0, 1, 2 (images: height, 1, width).
//
// Floor: bytes. Forward reads x and writes y (a quarter of x for a stride of 2); backward of the average reads dy and
// writes dx, of the maximum reads x too (y is not needed: it is the maximum of x). A 3x3 window does 9 operations an
// output, a few instructions each, so that on float the memory limits and on half the instructions come near it. What
// it takes to reach the floor is to read x once although windows overlap:
//   pooling_forward         a thread pools 16 bytes of channels (NHWC, vectors): coalesced, overlaps come from L1.
//   pooling_forward_tile    NCHW: a block copies rows (or whole planes) to shared memory in 16-byte accesses.
//   pooling_forward_reduce  few outputs with large windows (global pooling): a block shares one window.
//   pooling_backward_tile_* a block finds the winner (or the share) of every window that meets its rows, once, keeps it in
//                           shared memory, and lets every input gather from its windows: no atomics, a fixed order.
//   pooling_backward_*      any layout, any window: every input asks its windows itself. Average over channels: 16 bytes
//                           of them a thread; maximum: windows too large for the above.
#include <type_traits>

#include "elementwise.cuh"

enum Mode { MAX = 0, AVERAGE_INCLUDE = 1, AVERAGE_EXCLUDE = 2, MAX_DETERMINISTIC = 3 };  // cudnnPoolingMode_t

constexpr int WIDTH = 16 / sizeof(ELEMENT);
constexpr unsigned short NONE = 0xffff;  // no position of a window

// The lowest finite value: the maximum of a window that holds no value.
template <class T> __device__ __forceinline__ COMPUTE lowest();
template <> __device__ __forceinline__ COMPUTE lowest<float>() { return COMPUTE(-3.40282346638528859812e+38); }
template <> __device__ __forceinline__ COMPUTE lowest<double>() { return COMPUTE(-1.79769313486231570815e+308); }
template <> __device__ __forceinline__ COMPUTE lowest<half>() { return COMPUTE(-65504); }
template <> __device__ __forceinline__ COMPUTE lowest<bfloat16>() { return COMPUTE(-3.38953138925153547590e+38); }
template <> __device__ __forceinline__ COMPUTE lowest<int8>() { return COMPUTE(-128); }

struct Axis {
  int input, output, window, stride, padding;
  Divisor steps;  // n / stride

  __device__ __forceinline__ int start(int output_position) const { return output_position * stride - padding; }
  __device__ __forceinline__ int clamped(int position) const { return position < 0 ? 0 : position > input ? input : position; }
  // The outputs [first, last) whose windows cover an input.
  __device__ __forceinline__ int first_window(int position) const {
    int beyond = position + padding - window;
    return beyond < 0 ? 0 : min(int(steps.divide(beyond)) + 1, output);
  }
  __device__ __forceinline__ int last_window(int position) const {
    int reach = position + padding;
    return reach < 0 ? 0 : min(int(steps.divide(reach)) + 1, output);
  }
};

struct Pooling {
  Axis axis[3];
  long long x_stride[3], y_stride[3];
  double alpha, beta;
  int mode, propagate;

  __device__ __forceinline__ bool takes_maximum() const { return mode == MAX || mode == MAX_DETERMINISTIC; }
};

// The part of a window that lies inside the input, from the position of its output.
struct Window {
  int start[3], first[3], last[3];

  __device__ __forceinline__ Window(const Pooling& pooling, int o0, int o1, int o2) {
    const int output[3] = {o0, o1, o2};
#pragma unroll
    for (int a = 0; a < 3; a++) {
      start[a] = pooling.axis[a].start(output[a]);
      first[a] = pooling.axis[a].clamped(start[a]);
      last[a] = pooling.axis[a].clamped(start[a] + pooling.axis[a].window);
    }
  }

  // The divisor of the average: positions inside the input, or inside the input and its padding.
  __device__ __forceinline__ COMPUTE divisor(const Pooling& pooling) const {
    COMPUTE product = 1;
#pragma unroll
    for (int a = 0; a < 3; a++) {
      const Axis& axis = pooling.axis[a];
      int end = min(start[a] + axis.window, axis.input + max(axis.padding, 0));
      int count = pooling.mode == AVERAGE_EXCLUDE ? last[a] - first[a] : end - start[a];
      product *= COMPUTE(max(count, 0));
    }
    return product;
  }
};

// Calls visit(position in the window, offset in x) for every input of a window in row-major order. K0 x K2 is the window
// where it is known (images only, unrolled: all loads are in flight together), 0 x 0 any window.
template <int K0, int K2, class Offset, class Visit>
__device__ __forceinline__ void visit_window(const Pooling& pooling, const Window& window, const Offset (&stride)[3], Visit visit) {
  if constexpr (K0 > 0) {
#pragma unroll
    for (int k0 = 0; k0 < K0; k0++)
#pragma unroll
      for (int k2 = 0; k2 < K2; k2++) {
        int p0 = window.start[0] + k0, p2 = window.start[2] + k2;
        if (unsigned(p0) < unsigned(pooling.axis[0].input) && unsigned(p2) < unsigned(pooling.axis[2].input))
          visit(k0 * K2 + k2, p0 * stride[0] + p2 * stride[2]);
      }
  } else {
    for (int p0 = window.first[0]; p0 < window.last[0]; p0++)
      for (int p1 = window.first[1]; p1 < window.last[1]; p1++) {
        int row = ((p0 - window.start[0]) * pooling.axis[1].window + p1 - window.start[1]) * pooling.axis[2].window - window.start[2];
        Offset offset = p0 * stride[0] + p1 * stride[1];
        for (int p2 = window.first[2]; p2 < window.last[2]; p2++) visit(row + p2, offset + p2 * stride[2]);
      }
  }
}

// Chooses the unrolled windows; `call` is a generic lambda of the two constants.
template <int N> struct Constant { static constexpr int value = N; };
template <class Call> __device__ __forceinline__ void with_window(const Pooling& pooling, Call call) {
  int w0 = pooling.axis[0].window, w2 = pooling.axis[2].window;
  bool image = pooling.axis[1].window == 1 && pooling.axis[1].input == 1 && pooling.axis[1].padding == 0 && pooling.axis[1].output == 1;
  if (image && w0 == 3 && w2 == 3)
    call(Constant<3>(), Constant<3>());
  else if (image && w0 == 2 && w2 == 2)
    call(Constant<2>(), Constant<2>());
  else
    call(Constant<0>(), Constant<0>());
}

// Maximum of P channels: NaN until there is a value.
template <int P> struct Maximum {
  COMPUTE best[P];
  unsigned nan = 0;  // bit i: channel i met a NaN

  __device__ __forceinline__ Maximum() {
#pragma unroll
    for (int i = 0; i < P; i++) best[i] = COMPUTE(NAN);
  }
  __device__ __forceinline__ void take(int i, COMPUTE value) {
    best[i] = fmax(best[i], value);  // the number where one of both is NaN
    if (value != value) nan |= 1u << i;
  }
  __device__ __forceinline__ void merge(const Maximum& other) {
#pragma unroll
    for (int i = 0; i < P; i++) best[i] = fmax(best[i], other.best[i]);
    nan |= other.nan;
  }
  __device__ __forceinline__ COMPUTE result(int i, bool propagate, COMPUTE) const {
    if (propagate && (nan >> i & 1)) return COMPUTE(NAN);
    return best[i] == best[i] ? best[i] : lowest<ELEMENT>();
  }
};

template <int P> struct Average {
  COMPUTE sum[P];

  __device__ __forceinline__ Average() {
#pragma unroll
    for (int i = 0; i < P; i++) sum[i] = 0;
  }
  __device__ __forceinline__ void take(int i, COMPUTE value) { sum[i] += value; }
  __device__ __forceinline__ void merge(const Average& other) {
#pragma unroll
    for (int i = 0; i < P; i++) sum[i] += other.sum[i];
  }
  __device__ __forceinline__ COMPUTE result(int i, bool, COMPUTE divisor) const { return sum[i] / divisor; }
};

// Whether packs of P channels that start at `x` may be read as a whole.
template <int P> __device__ __forceinline__ bool whole_packs(const ELEMENT* x, bool vectorised, unsigned count) {
  return P == 1 || (vectorised && count == P && reinterpret_cast<uintptr_t>(x) % alignof(Pack<ELEMENT, P>) == 0);
}

// Calls take(i, value) for the channels of a pack: all P of them in one access (WHOLE), or the first `count`.
template <int P, bool WHOLE, class Take> __device__ __forceinline__ void take_pack(const ELEMENT* x, unsigned count, Take take) {
  if constexpr (WHOLE) {
    Pack<ELEMENT, P> pack = *reinterpret_cast<const Pack<ELEMENT, P>*>(x);
#pragma unroll
    for (int i = 0; i < P; i++) take(i, load<COMPUTE>(pack.item[i]));
  } else {
#pragma unroll
    for (int i = 0; i < P; i++)
      if (i < count) take(i, load<COMPUTE>(x[i]));
  }
}

// P channels of one window.
template <template <int> class Pool, int P, int K0, int K2, bool WHOLE, class Offset>
__device__ __forceinline__ void pool_window(const Pooling& pooling, const Window& window, const ELEMENT* x, const Offset (&stride)[3],
                                            unsigned count, COMPUTE (&result)[P]) {
  Pool<P> pool;
  visit_window<K0, K2>(pooling, window, stride, [&](int, Offset offset) {
    take_pack<P, WHOLE>(x + offset, count, [&](int i, COMPUTE value) { pool.take(i, value); });
  });
  COMPUTE divisor = pooling.takes_maximum() ? COMPUTE(1) : window.divisor(pooling);
#pragma unroll
  for (int i = 0; i < P; i++) result[i] = pool.result(i, pooling.propagate, divisor);
}

// ---- every position of one tensor (y forward, dx backward), in packs of channels, in the order of its memory ----

constexpr int MOST_WALKED = 6;  // n, c, the rest of a vector, three axes

// `other` is the tensor on the other side of the pooling. Only dimensions that are not pooled have strides here; pooled
// ones say which axis they are.
struct Walk {
  unsigned packs, row, width;
  unsigned vectorised;  // 1: the walked tensor, 2: the other one
  Divisor packs_per_row;
  int rank;
  Divisor extent[MOST_WALKED];  // the fastest first
  int axis[MOST_WALKED];        // -1: not pooled
  long long walked[MOST_WALKED], other[MOST_WALKED];

  __device__ __forceinline__ unsigned locate(unsigned index, int (&position)[3], long long& walked_offset, long long& other_offset) const {
    unsigned pack, rest = packs_per_row.divide(index, pack);
    unsigned first = pack * width;
    walked_offset = other_offset = first;
    position[0] = position[1] = position[2] = 0;
    for (int d = 0; d < rank; d++) {
      unsigned here;
      rest = extent[d].divide(rest, here);
      walked_offset += here * walked[d];
      other_offset += here * other[d];
      position[0] += axis[d] == 0 ? here : 0;
      position[1] += axis[d] == 1 ? here : 0;
      position[2] += axis[d] == 2 ? here : 0;
    }
    return row - first < width ? row - first : width;
  }
};

struct ForwardArguments {
  const ELEMENT* x;
  ELEMENT* y;
  Pooling pooling;
  Walk walk;
};

template <template <int> class Pool, int P> __device__ __forceinline__ void forward(const ForwardArguments& a) {
  const Pooling& pooling = a.pooling;
  unsigned index = blockIdx.x * blockDim.x + threadIdx.x;
  if (index >= a.walk.packs) return;
  int o[3];
  long long x_offset, y_offset;
  unsigned count = a.walk.locate(index, o, y_offset, x_offset);
  Window window(pooling, o[0], o[1], o[2]);
  COMPUTE alpha = pooling.alpha, result[P];
  const ELEMENT* x = a.x + x_offset;
  if (whole_packs<P>(x, a.walk.vectorised & 2, count))
    with_window(pooling, [&](auto k0, auto k2) {
      pool_window<Pool, P, decltype(k0)::value, decltype(k2)::value, true>(pooling, window, x, pooling.x_stride, count, result);
    });
  else
    pool_window<Pool, P, 0, 0, false>(pooling, window, x, pooling.x_stride, count, result);
#pragma unroll
  for (int i = 0; i < P; i++) result[i] *= alpha;
  write_pack<P>(a.y + y_offset, 1, a.walk.vectorised & 1, count, result, COMPUTE(pooling.beta));
}

template <template <int> class Pool> __device__ __forceinline__ void forward(const ForwardArguments& a) {
  if (a.walk.width == WIDTH) return forward<Pool, WIDTH>(a);
  if constexpr (WIDTH > 4)
    if (a.walk.width == 4) return forward<Pool, 4>(a);
  forward<Pool, 1>(a);
}

extern "C" __global__ void __launch_bounds__(256) pooling_forward(const ForwardArguments a) {
  a.pooling.takes_maximum() ? forward<Maximum>(a) : forward<Average>(a);
}

// ---- few outputs, large windows: the threads of a block share windows ----

struct ReduceArguments {
  const ELEMENT* x;
  ELEMENT* y;
  Pooling pooling;
  Walk walk;
  int lanes;  // packs of channels that a block pools, a power of two; where x is contiguous along axis 2 instead, 0
};

// A lane is a pack of channels; the threads of a lane take turns over the positions of its window.
template <template <int> class Pool, int P> __device__ __forceinline__ void reduce_channels(const ReduceArguments& a) {
  const Pooling& pooling = a.pooling;
  Pool<P>* shared = reinterpret_cast<Pool<P>*>(shared_memory);
  unsigned lane = threadIdx.x % a.lanes, slice = threadIdx.x / a.lanes, slices = blockDim.x / a.lanes;
  unsigned index = blockIdx.x * a.lanes + lane;
  bool present = index < a.walk.packs;
  int o[3];
  long long x_offset, y_offset;
  unsigned count = a.walk.locate(present ? index : 0, o, y_offset, x_offset);
  Window window(pooling, o[0], o[1], o[2]);
  unsigned n1 = window.last[1] - window.first[1], n2 = window.last[2] - window.first[2];
  unsigned positions = (window.last[0] - window.first[0]) * n1 * n2;
  Pool<P> pool;
  const ELEMENT* x = a.x + x_offset;
  auto offset_of = [&](unsigned k) {
    unsigned rest = k / n2;
    return (window.first[0] + rest / n1) * pooling.x_stride[0] + (window.first[1] + rest % n1) * pooling.x_stride[1] +
           (window.first[2] + k % n2) * pooling.x_stride[2];
  };
  auto take = [&](int i, COMPUTE value) { pool.take(i, value); };
  if (whole_packs<P>(x, a.walk.vectorised & 2, count)) {
#pragma unroll 4
    for (unsigned k = slice; k < positions; k += slices) take_pack<P, true>(x + offset_of(k), count, take);
  } else {
    for (unsigned k = slice; k < positions; k += slices) take_pack<P, false>(x + offset_of(k), count, take);
  }
  shared[threadIdx.x] = pool;
  for (unsigned half_size = slices / 2; half_size > 0; half_size /= 2) {
    __syncthreads();
    if (slice < half_size) shared[threadIdx.x].merge(shared[threadIdx.x + half_size * a.lanes]);
  }
  if (slice > 0 || !present) return;
  COMPUTE alpha = pooling.alpha, result[P];
  COMPUTE divisor = pooling.takes_maximum() ? COMPUTE(1) : window.divisor(pooling);
#pragma unroll
  for (int i = 0; i < P; i++) result[i] = alpha * shared[lane].result(i, pooling.propagate, divisor);
  write_pack<P>(a.y + y_offset, 1, a.walk.vectorised & 1, count, result, COMPUTE(pooling.beta));
}

// One window a block; a thread takes WIDTH neighbours of a row of the window at a time.
template <template <int> class Pool> __device__ __forceinline__ void reduce_rows(const ReduceArguments& a) {
  const Pooling& pooling = a.pooling;
  Pool<1>* shared = reinterpret_cast<Pool<1>*>(shared_memory);
  int o[3];
  long long x_offset, y_offset;
  a.walk.locate(blockIdx.x, o, y_offset, x_offset);
  Window window(pooling, o[0], o[1], o[2]);
  unsigned n1 = window.last[1] - window.first[1], n2 = window.last[2] - window.first[2];
  unsigned packs_per_row = (n2 + WIDTH - 1) / WIDTH + 1;  // one more, since rows start anywhere
  unsigned packs = n2 == 0 ? 0 : (window.last[0] - window.first[0]) * n1 * packs_per_row;
  Pool<1> pool;
#pragma unroll 4
  for (unsigned k = threadIdx.x; k < packs; k += blockDim.x) {
    unsigned line = k / packs_per_row;
    const ELEMENT* row = a.x + x_offset + (window.first[0] + line / n1) * pooling.x_stride[0] +
                         (window.first[1] + line % n1) * pooling.x_stride[1] + window.first[2];
    int begin = int(k % packs_per_row) * WIDTH - int(reinterpret_cast<uintptr_t>(row) / sizeof(ELEMENT) % WIDTH);
    if (begin >= 0 && begin + WIDTH <= int(n2)) {
      COMPUTE values[WIDTH];
      read_pack<COMPUTE, WIDTH>(row + begin, 1, true, WIDTH, values);
#pragma unroll
      for (int i = 0; i < WIDTH; i++) pool.take(0, values[i]);
    } else {
      for (int p = max(begin, 0); p < min(begin + WIDTH, int(n2)); p++) pool.take(0, load<COMPUTE>(row[p]));
    }
  }
  shared[threadIdx.x] = pool;
  for (unsigned half_size = blockDim.x / 2; half_size > 0; half_size /= 2) {
    __syncthreads();
    if (threadIdx.x < half_size) shared[threadIdx.x].merge(shared[threadIdx.x + half_size]);
  }
  if (threadIdx.x > 0) return;
  COMPUTE divisor = pooling.takes_maximum() ? COMPUTE(1) : window.divisor(pooling);
  a.y[y_offset] = blend(COMPUTE(pooling.alpha), shared[0].result(0, pooling.propagate, divisor), COMPUTE(pooling.beta), a.y + y_offset);
}

template <template <int> class Pool> __device__ __forceinline__ void reduce(const ReduceArguments& a) {
  if (a.lanes == 0) return reduce_rows<Pool>(a);
  if (a.walk.width == WIDTH) return reduce_channels<Pool, WIDTH>(a);
  if constexpr (WIDTH > 4)
    if (a.walk.width == 4) return reduce_channels<Pool, 4>(a);
  reduce_channels<Pool, 1>(a);
}

extern "C" __global__ void __launch_bounds__(256) pooling_forward_reduce(const ReduceArguments a) {
  a.pooling.takes_maximum() ? reduce<Maximum>(a) : reduce<Average>(a);
}

// ---- tiles: a block works on a range of axis 0 of one plane, or on several whole planes ----

struct Tile {
  int planes;        // planes of a block; more than one only if they are whole
  int rows;          // positions of axis 0 of a block (of y forward, of dx backward)
  int total_planes;
  Divisor parts;     // blocks along axis 0
  int lanes;         // channels of a block; 1 where channels are planes
  int channels;      // that are lanes in all
  Divisor lane_groups;
  int flat;          // x (and dx) are packed planes
  unsigned vectorised;  // packs of lanes: 1 of x, 2 of dy
  long long y_lane;  // stride of the lanes in y
  int outer_rank;    // the planes: the fastest first
  Divisor extent[3];
  long long x_step[3], y_step[3];

  __device__ __forceinline__ void offsets(unsigned plane, long long& x, long long& y) const {
    x = y = 0;
    for (int d = 0; d < outer_rank; d++) {
      unsigned here;
      plane = extent[d].divide(plane, here);
      x += here * x_step[d];
      y += here * y_step[d];
    }
  }
};

// Which part of the tensors is the block's.
struct Share {
  unsigned plane, planes, lane, lanes;
  int first_row, last_row;

  __device__ __forceinline__ Share(const Tile& tile, const Axis& rows_of, int extent) {
    unsigned part, group, index = tile.lane_groups.divide(blockIdx.x, group);
    plane = tile.parts.divide(index, part) * tile.planes;
    planes = min(tile.planes, tile.total_planes - int(plane));
    lane = group * tile.lanes;
    lanes = min(tile.lanes, tile.channels - int(lane));
    first_row = part * tile.rows;
    last_row = min(first_row + tile.rows, extent);
  }
};

// Copies `count` neighbours to shared memory in 16-byte accesses; the copy keeps their alignment.
__device__ __forceinline__ const ELEMENT* copy_flat(const ELEMENT* source, unsigned count, unsigned char* memory) {
  unsigned skew = reinterpret_cast<uintptr_t>(source) / sizeof(ELEMENT) % WIDTH;
  ELEMENT* target = reinterpret_cast<ELEMENT*>(memory) + skew;
  unsigned head = min((WIDTH - skew) % WIDTH, count), packs = (count - head) / WIDTH, tail = head + packs * WIDTH;
  const uint4* from = reinterpret_cast<const uint4*>(source + head);
  uint4* to = reinterpret_cast<uint4*>(target + head);
#pragma unroll 4
  for (unsigned k = threadIdx.x; k < packs; k += blockDim.x) to[k] = from[k];
  if (threadIdx.x < head) target[threadIdx.x] = source[threadIdx.x];
  if (threadIdx.x < count - tail) target[tail + threadIdx.x] = source[tail + threadIdx.x];
  return target;
}

struct ForwardTileArguments {
  const ELEMENT* x;
  ELEMENT* y;
  Pooling pooling;
  Tile tile;
  Divisor output[3];  // extents of y
};

template <template <int> class Pool> __device__ __forceinline__ void forward_tile(const ForwardTileArguments& a) {
  const Pooling& pooling = a.pooling;
  const Axis* axis = pooling.axis;
  Share share(a.tile, axis[0], axis[0].output);
  unsigned slice = axis[1].input * axis[2].input, volume = axis[0].input * slice;
  int x_first = 0, x_last = axis[0].input;
  if (a.tile.planes == 1) {
    x_first = axis[0].clamped(axis[0].start(share.first_row));
    x_last = axis[0].clamped(axis[0].start(share.last_row - 1) + axis[0].window);
  }
  unsigned rows = x_last - x_first;
  const ELEMENT* x = copy_flat(a.x + (long long)share.plane * volume + x_first * slice, share.planes * rows * slice, shared_memory);
  __syncthreads();
  unsigned outputs = share.planes * (share.last_row - share.first_row) * axis[1].output * axis[2].output;
  const int stride[3] = {int(slice), axis[2].input, 1};
  COMPUTE alpha = pooling.alpha, beta = pooling.beta;
  with_window(pooling, [&](auto k0, auto k2) {
    constexpr int K0 = decltype(k0)::value, K2 = decltype(k2)::value;
    for (unsigned index = threadIdx.x; index < outputs; index += blockDim.x) {
      unsigned o2, o1 = 0, o0, rest = a.output[2].divide(index, o2), plane = 0;
      if (axis[1].output > 1) rest = a.output[1].divide(rest, o1);
      o0 = rest;
      if (a.tile.planes > 1) plane = a.output[0].divide(rest, o0);
      o0 += share.first_row;
      Window window(pooling, o0, o1, o2);
      COMPUTE result[1];
      pool_window<Pool, 1, K0, K2, true>(pooling, window, x + int(plane * volume) - x_first * int(slice), stride, 1u, result);
      long long x_plane, y_plane;
      a.tile.offsets(share.plane + plane, x_plane, y_plane);
      ELEMENT* y = a.y + y_plane + o0 * pooling.y_stride[0] + o1 * pooling.y_stride[1] + o2 * pooling.y_stride[2];
      *y = blend(alpha, result[0], beta, y);
    }
  });
}

extern "C" __global__ void __launch_bounds__(256) pooling_forward_tile(const ForwardTileArguments a) {
  a.pooling.takes_maximum() ? forward_tile<Maximum>(a) : forward_tile<Average>(a);
}

// ---- backward ----

// Integers have no gradient: only floating types are differentiated.
template <class T> struct HasGradient { static constexpr bool value = true; };
template <> struct HasGradient<int8> { static constexpr bool value = false; };

struct BackwardArguments {
  const ELEMENT* dy;
  const ELEMENT* x;
  ELEMENT* dx;
  Pooling pooling;
  Walk walk;  // dx, and x with the same strides; dy is the other tensor
};

// Whether x[position] is the first maximum of a window. Most positions lose after a few comparisons.
__device__ __forceinline__ bool wins(const Pooling& pooling, const Window& window, const ELEMENT* x, const int (&i)[3]) {
  const long long* stride = pooling.x_stride;
  long long own = i[0] * stride[0] + i[1] * stride[1] + i[2] * stride[2];
  COMPUTE mine = load<COMPUTE>(x[own]);
  bool nan = mine != mine;
  if (nan && !pooling.propagate) return false;
  bool earlier = true;
  for (int p0 = window.first[0]; p0 < window.last[0]; p0++)
    for (int p1 = window.first[1]; p1 < window.last[1]; p1++)
      for (int p2 = window.first[2]; p2 < window.last[2]; p2++) {
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

// dx of one pack: the sum of gift(window, offset in dy, i, k, channels) over the windows of the input.
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
    for (int o1 = first1; o1 < last1; o1++)
      for (int o2 = first2; o2 < last2; o2++) {
        Window window(pooling, o0, o1, o2);
        gift(window, a.dy + dy_offset + o0 * pooling.y_stride[0] + o1 * pooling.y_stride[1] + o2 * pooling.y_stride[2],
             a.x + x_offset - spatial, i, count, sum);
      }
#pragma unroll
  for (int k = 0; k < P; k++) sum[k] *= COMPUTE(pooling.alpha);
  write_pack<P>(a.dx + x_offset, 1, a.walk.vectorised & 1, count, sum, COMPUTE(pooling.beta));
}

template <int P> __device__ __forceinline__ void backward_average(const BackwardArguments& a) {
  backward<P>(a, [&](const Window& window, const ELEMENT* dy, const ELEMENT*, const int (&)[3], unsigned count, COMPUTE(&sum)[P]) {
    COMPUTE share = COMPUTE(1) / window.divisor(a.pooling);
    auto add = [&](int k, COMPUTE value) { sum[k] += value * share; };
    if (whole_packs<P>(dy, a.walk.vectorised & 2, count))
      take_pack<P, true>(dy, count, add);
    else
      take_pack<P, false>(dy, count, add);
  });
}

extern "C" __global__ void __launch_bounds__(256) pooling_backward_average(const BackwardArguments a) {
  if constexpr (HasGradient<ELEMENT>::value) a.walk.width == WIDTH ? backward_average<WIDTH>(a) : backward_average<1>(a);
}

extern "C" __global__ void __launch_bounds__(256, 4) pooling_backward_maximum(const BackwardArguments a) {
  if constexpr (HasGradient<ELEMENT>::value)
    backward<1>(a, [&](const Window& window, const ELEMENT* dy, const ELEMENT* x, const int (&i)[3], unsigned, COMPUTE(&sum)[1]) {
      if (wins(a.pooling, window, x, i)) sum[0] += load<COMPUTE>(*dy);
    });
}

struct BackwardTileArguments {
  const ELEMENT* dy;
  const ELEMENT* x;
  ELEMENT* dx;
  Pooling pooling;
  Tile tile;
  Divisor output[3], input[3];           // extents
  unsigned values, winners, columns;     // where these begin in shared memory: bytes
};

// Where the first maximum is met in row-major order.
template <int P> struct First {
  COMPUTE best[P];
  unsigned short where[P];
  __device__ __forceinline__ First() {
#pragma unroll
    for (int i = 0; i < P; i++) best[i] = COMPUTE(-INFINITY), where[i] = NONE;
  }
  __device__ __forceinline__ void take(int i, COMPUTE value, int position, bool propagate) {
    bool nan = value != value;
    bool better = value > best[i] || (nan ? propagate && best[i] == best[i] : where[i] == NONE);
    best[i] = better ? value : best[i];
    where[i] = better ? position : where[i];
  }
};

struct Columns { int first, last; };

// MAXIMUM: a window's value is its dy and has a winner; else it is the share of every input, in the arithmetic type.
// P: lanes of a pack (1 for averages: over channels, pooling_backward_average reads no more than a tile would).
template <bool MAXIMUM, int P> __device__ __forceinline__ void backward_tile(const BackwardTileArguments& a) {
  using Value = std::conditional_t<MAXIMUM, ELEMENT, COMPUTE>;
  const Pooling& pooling = a.pooling;
  const Axis* axis = pooling.axis;
  Share share(a.tile, axis[0], axis[0].input);
  // windows that meet the block's rows
  int low = 0, high = axis[0].output;
  if (a.tile.planes == 1) {
    low = axis[0].first_window(share.first_row);
    high = max(low, axis[0].last_window(share.last_row - 1));
  }
  unsigned slice = axis[1].input * axis[2].input, volume = axis[0].input * slice;
  unsigned packs = (share.lanes + P - 1) / P;  // of lanes
  Pack<Value, P>* values = reinterpret_cast<Pack<Value, P>*>(shared_memory + a.values);
  Pack<unsigned short, P>* winners = reinterpret_cast<Pack<unsigned short, P>*>(shared_memory + a.winners);
  Columns* columns = reinterpret_cast<Columns*>(shared_memory + a.columns);

  const ELEMENT* tile = nullptr;
  int x_first = 0;
  if (MAXIMUM && a.tile.flat) {
    int x_last = axis[0].input;
    if (a.tile.planes == 1) {
      x_first = axis[0].clamped(axis[0].start(low));
      x_last = high > low ? axis[0].clamped(axis[0].start(high - 1) + axis[0].window) : x_first;
    }
    tile = copy_flat(a.x + (long long)share.plane * volume + x_first * slice, share.planes * (x_last - x_first) * slice, shared_memory);
  }
  for (int p = threadIdx.x; p < axis[2].input; p += blockDim.x) columns[p] = {axis[2].first_window(p), axis[2].last_window(p)};
  __syncthreads();

  unsigned windows = share.planes * (high - low) * axis[1].output * axis[2].output;
  with_window(pooling, [&](auto k0, auto k2) {
    [[maybe_unused]] constexpr int K0 = decltype(k0)::value, K2 = decltype(k2)::value;
    for (unsigned index = threadIdx.x; index < windows * packs; index += blockDim.x) {
      unsigned pack = 0, o2, o1 = 0, o0, plane = 0, rest = index;
      if (P > 1) rest = index / packs, pack = index - rest * packs;
      rest = a.output[2].divide(rest, o2);
      if (axis[1].output > 1) rest = a.output[1].divide(rest, o1);
      o0 = rest;
      if (a.tile.planes > 1) plane = a.output[0].divide(rest, o0);
      o0 += low;
      Window window(pooling, o0, o1, o2);
      long long x_plane, y_plane;
      a.tile.offsets(share.plane + plane, x_plane, y_plane);
      unsigned lane = share.lane + pack * P, count = min(P, int(share.lanes - pack * P));
      const ELEMENT* dy = a.dy + y_plane + o0 * pooling.y_stride[0] + o1 * pooling.y_stride[1] + o2 * pooling.y_stride[2] + lane * a.tile.y_lane;
      Pack<Value, P> stored;
      if constexpr (MAXIMUM) {
        if (P > 1 && whole_packs<P>(dy, a.tile.vectorised & 2, count))
          stored = *reinterpret_cast<const Pack<Value, P>*>(dy);
        else
#pragma unroll
          for (int k = 0; k < P; k++)
            if (k < count) stored.item[k] = dy[k * a.tile.y_lane];
        First<P> found;
        auto visit = [&](const ELEMENT* x, auto whole) {
          return [&found, &pooling, x, count](int position, auto offset) {
            take_pack<P, decltype(whole)::value>(x + offset, count, [&](int k, COMPUTE met) { found.take(k, met, position, pooling.propagate); });
          };
        };
        const ELEMENT* x = a.x + x_plane + lane;
        if (P == 1 && tile) {
          const int stride[3] = {int(slice), axis[2].input, 1};
          visit_window<K0, K2>(pooling, window, stride, visit(tile + int(plane * volume) - x_first * int(slice), std::true_type()));
        } else if (whole_packs<P>(x, a.tile.vectorised & 1, count)) {
          visit_window<K0, K2>(pooling, window, pooling.x_stride, visit(x, std::true_type()));
        } else {
          visit_window<0, 0>(pooling, window, pooling.x_stride, visit(x, std::false_type()));
        }
        Pack<unsigned short, P> won;
#pragma unroll
        for (int k = 0; k < P; k++) won.item[k] = found.where[k];
        winners[index] = won;
      } else {
        stored.item[0] = load<COMPUTE>(*dy) / window.divisor(pooling);
      }
      values[index] = stored;
    }
  });
  __syncthreads();

  COMPUTE alpha = pooling.alpha, beta = pooling.beta;
  // Sums what the windows of one input give it.
  auto gather = [&](unsigned plane, int i0, int i1, int i2, unsigned pack, COMPUTE(&sum)[P]) {
#pragma unroll
    for (int k = 0; k < P; k++) sum[k] = 0;
    int last0 = axis[0].last_window(i0), first1 = axis[1].first_window(i1), last1 = axis[1].last_window(i1);
    Columns column = columns[i2];
    for (int o0 = axis[0].first_window(i0); o0 < last0; o0++)
      for (int o1 = first1; o1 < last1; o1++) {
        unsigned index = ((plane * (high - low) + o0 - low) * axis[1].output + o1) * axis[2].output + column.first;
        int position = ((i0 - axis[0].start(o0)) * axis[1].window + i1 - axis[1].start(o1)) * axis[2].window + i2 - axis[2].start(column.first);
        index = index * packs + pack;
        for (int o2 = column.first; o2 < column.last; o2++) {
          Pack<Value, P> given = values[index];
          if constexpr (MAXIMUM) {
            Pack<unsigned short, P> won = winners[index];
#pragma unroll
            for (int k = 0; k < P; k++)
              if (won.item[k] == position) sum[k] += load<COMPUTE>(given.item[k]);
          } else {
#pragma unroll
            for (int k = 0; k < P; k++) sum[k] += given.item[k];
          }
          index += packs;
          position -= axis[2].stride;
        }
      }
#pragma unroll
    for (int k = 0; k < P; k++) sum[k] *= alpha;
  };
  // From a position of the tile to its plane and coordinates.
  auto locate = [&](unsigned position, unsigned& plane, int& i0, int& i1, int& i2) {
    unsigned p2, p1 = 0, p0, rest = a.input[2].divide(position, p2);
    if (axis[1].input > 1) rest = a.input[1].divide(rest, p1);
    p0 = rest, plane = 0;
    if (a.tile.planes > 1) plane = a.input[0].divide(rest, p0);
    i0 = p0 + share.first_row, i1 = p1, i2 = p2;
  };
  unsigned positions = share.planes * (share.last_row - share.first_row) * slice;
  if (P == 1 && a.tile.flat) {
    ELEMENT* dx = a.dx + (long long)share.plane * volume + share.first_row * slice;
    int skew = reinterpret_cast<uintptr_t>(dx) / sizeof(ELEMENT) % WIDTH;
    for (int first = int(threadIdx.x) * WIDTH - skew; first < int(positions); first += blockDim.x * WIDTH) {
      COMPUTE sums[WIDTH], sum[P];
      int begin = max(first, 0), end = min(first + WIDTH, int(positions)), i0, i1, i2;
      unsigned plane;
      locate(begin, plane, i0, i1, i2);
#pragma unroll
      for (int k = 0; k < WIDTH; k++) {
        if (first + k < begin || first + k >= end) continue;
        gather(plane, i0, i1, i2, 0, sum);
        sums[k] = sum[0];
        if (++i2 == axis[2].input) {
          i2 = 0;
          if (++i1 == axis[1].input) {
            i1 = 0;
            if (++i0 == share.last_row) i0 = share.first_row, plane++;
          }
        }
      }
      if (begin == first && end == first + WIDTH) {
        write_pack<WIDTH>(dx + first, 1, true, WIDTH, sums, beta);
      } else {
#pragma unroll
        for (int k = 0; k < WIDTH; k++)
          if (first + k >= begin && first + k < end) dx[first + k] = blend(COMPUTE(1), sums[k], beta, dx + first + k);
      }
    }
    return;
  }
  for (unsigned index = threadIdx.x; index < positions * packs; index += blockDim.x) {
    unsigned pack = 0, plane, position = index;
    if (P > 1) position = index / packs, pack = index - position * packs;
    int i0, i1, i2;
    locate(position, plane, i0, i1, i2);
    COMPUTE sum[P];
    gather(plane, i0, i1, i2, pack, sum);
    long long x_plane, y_plane;
    a.tile.offsets(share.plane + plane, x_plane, y_plane);
    unsigned lane = pack * P, count = min(P, int(share.lanes - lane));
    ELEMENT* dx = a.dx + x_plane + i0 * pooling.x_stride[0] + i1 * pooling.x_stride[1] + i2 * pooling.x_stride[2] + share.lane + lane;
    write_pack<P>(dx, 1, a.tile.vectorised & 1, count, sum, beta);
  }
}

extern "C" __global__ void __launch_bounds__(256, 4) pooling_backward_tile_average(const BackwardTileArguments a) {
  if constexpr (HasGradient<ELEMENT>::value) backward_tile<false, 1>(a);
}

extern "C" __global__ void __launch_bounds__(256) pooling_backward_tile_maximum(const BackwardTileArguments a) {
  if constexpr (HasGradient<ELEMENT>::value) backward_tile<true, 1>(a);
}

extern "C" __global__ void __launch_bounds__(256) pooling_backward_tile_channels(const BackwardTileArguments a) {
  if constexpr (HasGradient<ELEMENT>::value) backward_tile<true, WIDTH>(a);
}
