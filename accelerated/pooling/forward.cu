// Pooling forward (3.2.69) with any window; known windows have pooling/static_forward.cu, windows over everything
// pooling/global_forward.cu.
//
// Floor: bytes, x read and y written once (y is a quarter of x for a stride of 2). What it takes to reach it is to read x
// once although windows overlap, with all loads of a window in flight:
//   pooling_forward         a thread pools 16 bytes of channels (NHWC, vectors): coalesced, overlaps come from L1.
//   pooling_forward_tile    NCHW: a block copies rows (or whole planes) to shared memory in 16-byte accesses; a thread
//                           keeps its column and walks down the rows. On half the instructions of a 3x3 window are
//                           expected to limit before the bytes do.
//   pooling_forward_reduce  few outputs with large windows (global pooling): a team of threads shares one window, or a
//                           block the windows of 128 bytes of channels, eight loads of each thread in flight.
#include "pooling/problem.cuh"

// What is pooled, for P channels. REPEATS: taking an input twice changes nothing.
template <int P> struct Pool {
  COMPUTE value[P];
  __device__ __forceinline__ explicit Pool(COMPUTE first) {
#pragma unroll
    for (int i = 0; i < P; i++) value[i] = first;
  }
};

template <int P> struct Average : Pool<P> {
  static constexpr bool REPEATS = false;
  using Pool<P>::value;
  __device__ __forceinline__ Average() : Pool<P>(0) {}
  __device__ __forceinline__ void take(int i, COMPUTE met) { value[i] += met; }
  __device__ __forceinline__ COMPUTE result(int i, bool, COMPUTE divisor) const { return value[i] / divisor; }
};

// Passes over NaN: it is NaN until there is a number.
template <int P> struct Maximum : Pool<P> {
  static constexpr bool REPEATS = true;
  using Pool<P>::value;
  __device__ __forceinline__ Maximum() : Pool<P>(COMPUTE(NAN)) {}
  __device__ __forceinline__ void take(int i, COMPUTE met) { value[i] = fmax(value[i], met); }
  __device__ __forceinline__ COMPUTE result(int i, bool, COMPUTE) const { return value[i] == value[i] ? value[i] : lowest<ELEMENT>(); }
};

// Propagates NaN.
template <int P> struct MaximumOrNan : Pool<P> {
  static constexpr bool REPEATS = true;
  using Pool<P>::value;
  __device__ __forceinline__ MaximumOrNan() : Pool<P>(COMPUTE(-INFINITY)) {}
  __device__ __forceinline__ void take(int i, COMPUTE met) { value[i] = value[i] > met || value[i] != value[i] ? value[i] : met; }
  __device__ __forceinline__ COMPUTE result(int i, bool empty, COMPUTE) const { return empty ? lowest<ELEMENT>() : value[i]; }
};

// Calls call(pool) with a value of the type that pools: Average<1>, say.
template <class Call> __device__ __forceinline__ void with_pool(const Pooling& pooling, Call call) {
  if (!pooling.takes_maximum())
    call(Average<1>());
  else if (pooling.propagate)
    call(MaximumOrNan<1>());
  else
    call(Maximum<1>());
}
template <class One, int P> struct Wider;
template <template <int> class Pool, int P> struct Wider<Pool<1>, P> { using type = Pool<P>; };

// A window of known size. WHOLE packs only.
template <int P, int K0, int K2, class Pool, class Offset>
__device__ __forceinline__ void take_taps(Pool& pool, const ELEMENT* x, const Taps<K0, Offset>& rows, const Taps<K2, Offset>& columns) {
  Pack<ELEMENT, P> taps[K0][K2];
#pragma unroll
  for (int k0 = 0; k0 < K0; k0++)
#pragma unroll
    for (int k2 = 0; k2 < K2; k2++) taps[k0][k2] = *reinterpret_cast<const Pack<ELEMENT, P>*>(x + rows.offset[k0] + columns.offset[k2]);
#pragma unroll
  for (int k0 = 0; k0 < K0; k0++)
#pragma unroll
    for (int k2 = 0; k2 < K2; k2++)
#pragma unroll
      for (int i = 0; i < P; i++) {
        COMPUTE met = load<COMPUTE>(taps[k0][k2].item[i]);
        pool.take(i, Pool::REPEATS || (rows.inside[k0] && columns.inside[k2]) ? met : COMPUTE(0));
      }
}

struct ForwardArguments {
  const ELEMENT* x;
  ELEMENT* y;
  Pooling pooling;
  Walk walk;
};

template <class One, int P> __device__ __forceinline__ void forward(const ForwardArguments& a) {
  const Pooling& pooling = a.pooling;
  unsigned index = blockIdx.x * blockDim.x + threadIdx.x;
  if (index >= a.walk.packs) return;
  int o[3];
  long long x_offset, y_offset;
  unsigned count = a.walk.locate(index, o, y_offset, x_offset);
  Window window(pooling, o[0], o[1], o[2]);
  const ELEMENT* x = a.x + x_offset;
  typename Wider<One, P>::type pool;
  bool empty = window.empty();
  auto take = [&](int i, COMPUTE met) { pool.take(i, met); };
  if (!empty && whole_packs<P>(x, a.walk.vectorised & 2, count)) {
    with_window(pooling, [&](auto k0, auto k2) {
      constexpr int K0 = decltype(k0)::value, K2 = decltype(k2)::value;
      if constexpr (K0 > 0) {
        Taps<K0, long long> rows(pooling.axis[0], window.span[0].start, pooling.x_stride[0]);
        Taps<K2, long long> columns(pooling.axis[2], window.span[2].start, pooling.x_stride[2]);
        take_taps<P>(pool, x, rows, columns);
      } else {
        visit_window(window, pooling.x_stride, [&](long long offset) { take_pack<P, true>(x + offset, P, take); });
      }
    });
  } else if (!empty) {
    visit_window(window, pooling.x_stride, [&](long long offset) { take_pack<P, false>(x + offset, count, take); });
  }
  COMPUTE alpha = pooling.alpha, result[P];
  COMPUTE divisor = pooling.takes_maximum() ? COMPUTE(1) : window.divisor(pooling);
#pragma unroll
  for (int i = 0; i < P; i++) result[i] = alpha * pool.result(i, empty, divisor);
  write_pack<P>(a.y + y_offset, 1, a.walk.vectorised & 1, count, result, COMPUTE(pooling.beta));
}

// The packs that exist: 16 bytes, one element, and the four of INT8x4.
template <class Call> __device__ __forceinline__ void with_width(unsigned width, Call call) {
  if (width == WIDTH) return call(Constant<WIDTH>());
  if constexpr (WIDTH == 16)
    if (width == 4) return call(Constant<4>());
  call(Constant<1>());
}

extern "C" __global__ void __launch_bounds__(256) pooling_forward(const ForwardArguments a) {
  griddepcontrol_wait();
  with_pool(a.pooling, [&](auto one) { with_width(a.walk.width, [&](auto width) { forward<decltype(one), decltype(width)::value>(a); }); });
}

struct ForwardTileArguments {
  const ELEMENT* x;
  ELEMENT* y;
  Pooling pooling;
  Tile tile;
};

template <class Pool, int K0, int K2>
__device__ __forceinline__ void forward_tile(const ForwardTileArguments& a, const Share& share, const ELEMENT* x, int x_first) {
  const Pooling& pooling = a.pooling;
  const Axis* axis = pooling.axis;
  const int stride[3] = {axis[1].input * axis[2].input, axis[2].input, 1};
  int volume = axis[0].input * stride[0], rows = share.planes * (share.last_row - share.first_row) * axis[1].output;
  COMPUTE alpha = pooling.alpha, beta = pooling.beta;
  long long x_plane, y_plane;
  a.tile.offsets(share.plane, x_plane, y_plane);
  x -= x_first * stride[0];
  Place place(0, a.tile.y_bits);
  for (int o2 = place.column; o2 < axis[2].output; o2 += place.columns) {
    Taps<K2 ? K2 : 1, int> columns(axis[2], o2 * axis[2].stride - axis[2].padding, 1);
    for (int row = place.row; row < rows; row += place.rows) {
      unsigned plane, o0, o1;
      a.tile.decode(a.tile.output, row, plane, o0, o1);
      o0 += share.first_row;
      Window window(pooling, o0, o1, o2);
      bool empty = window.empty();
      const ELEMENT* from = x + int(plane) * volume;
      Pool pool;
      if constexpr (K0 > 0) {
        if (!empty) take_taps<1>(pool, from, Taps<K0, int>(axis[0], window.span[0].start, stride[0]), columns);
      } else {
        visit_window(window, stride, [&](int offset) { pool.take(0, load<COMPUTE>(from[offset])); });
      }
      COMPUTE divisor = pooling.takes_maximum() ? COMPUTE(1) : window.divisor(pooling);
      if (a.tile.planes > 1) a.tile.offsets(share.plane + plane, x_plane, y_plane);
      ELEMENT* y = a.y + y_plane + o0 * pooling.y_stride[0] + o1 * pooling.y_stride[1] + o2 * pooling.y_stride[2];
      *y = blend(alpha, pool.result(0, empty, divisor), beta, y);
    }
  }
}

extern "C" __global__ void __launch_bounds__(256) pooling_forward_tile(const ForwardTileArguments a) {
  griddepcontrol_wait();
  const Axis& axis = a.pooling.axis[0];
  Share share(a.tile, axis.output);
  int first = 0, last = axis.input;
  if (a.tile.planes == 1) first = Span(axis, share.first_row).first, last = max(first, Span(axis, share.last_row - 1).last);
  const ELEMENT* x = copy_rows(a.tile, a.pooling, share, a.x, first, last, shared_memory);
  __syncthreads();
  with_pool(a.pooling, [&](auto one) {
    with_window(a.pooling, [&](auto k0, auto k2) {
      forward_tile<decltype(one), decltype(k0)::value, decltype(k2)::value>(a, share, x, first);
    });
  });
}

struct ReduceArguments {
  const ELEMENT* x;
  ELEMENT* y;
  Pooling pooling;
  Walk walk;
  int lanes;    // packs of channels that a block pools, a power of two; 0: x is contiguous along axis 2 and channels are not
  int team;     // threads of a window where lanes is 0, a power of two
  FastDivmod row;  // positions of a whole window along axis 2
};

template <class Pool, int P> __device__ __forceinline__ void reduce_in_block(Pool& pool, Pool* shared, unsigned lanes) {
  shared[threadIdx.x] = pool;
  for (unsigned distance = blockDim.x / 2; distance >= lanes; distance /= 2) {
    __syncthreads();
    if (threadIdx.x < distance)
#pragma unroll
      for (int i = 0; i < P; i++) shared[threadIdx.x].take(i, shared[threadIdx.x + distance].value[i]);
  }
}

// A lane is a pack of channels; the threads of a lane take turns over the positions of its window.
template <class One, int P> __device__ __forceinline__ void reduce_channels(const ReduceArguments& a) {
  using Pool = typename Wider<One, P>::type;
  const Pooling& pooling = a.pooling;
  Pool* shared = reinterpret_cast<Pool*>(shared_memory);
  unsigned lane = threadIdx.x % a.lanes, slice = threadIdx.x / a.lanes, slices = blockDim.x / a.lanes;
  unsigned index = blockIdx.x * a.lanes + lane;
  bool present = index < a.walk.packs;
  int o[3];
  long long x_offset, y_offset;
  unsigned count = a.walk.locate(present ? index : 0, o, y_offset, x_offset);
  Window window(pooling, o[0], o[1], o[2]);
  unsigned n1 = window.span[1].count(), n2 = window.span[2].count(), positions = window.span[0].count() * n1 * n2;
  const ELEMENT* x = a.x + x_offset + window.span[0].first * pooling.x_stride[0] + window.span[1].first * pooling.x_stride[1] +
                     window.span[2].first * pooling.x_stride[2];
  Pool pool;
  auto take = [&](int i, COMPUTE met) { pool.take(i, met); };
  bool whole = whole_packs<P>(x, a.walk.vectorised & 2, count);
  if (whole && positions == n2) {
#pragma unroll 8
    for (unsigned k = slice; k < positions; k += slices) take_pack<P, true>(x + k * pooling.x_stride[2], P, take);
  } else {
    for (unsigned k = slice; k < positions; k += slices) {
      unsigned rest = k / n2;
      const ELEMENT* here = x + rest / n1 * pooling.x_stride[0] + rest % n1 * pooling.x_stride[1] + k % n2 * pooling.x_stride[2];
      whole ? take_pack<P, true>(here, P, take) : take_pack<P, false>(here, count, take);
    }
  }
  reduce_in_block<Pool, P>(pool, shared, a.lanes);
  if (slice > 0 || !present) return;
  COMPUTE alpha = pooling.alpha, result[P];
  COMPUTE divisor = pooling.takes_maximum() ? COMPUTE(1) : window.divisor(pooling);
#pragma unroll
  for (int i = 0; i < P; i++) result[i] = alpha * shared[lane].result(i, positions == 0, divisor);
  write_pack<P>(a.y + y_offset, 1, a.walk.vectorised & 1, count, result, COMPUTE(pooling.beta));
}

// A team of threads pools a window whose rows are neighbours in memory: a single row in 16-byte accesses, else position after
// position.
template <class Pool> __device__ __forceinline__ void reduce_rows(const ReduceArguments& a) {
  const Pooling& pooling = a.pooling;
  unsigned team = a.team, member = threadIdx.x & (team - 1), slot = threadIdx.x / team, index = blockIdx.x * (blockDim.x / team) + slot;
  bool present = index < a.walk.packs;
  int o[3];
  long long x_offset, y_offset;
  a.walk.locate(present ? index : 0, o, y_offset, x_offset);
  Window window(pooling, o[0], o[1], o[2]);
  unsigned n1 = window.span[1].count(), n2 = window.span[2].count(), positions = window.span[0].count() * n1 * n2;
  const ELEMENT* x = a.x + x_offset + window.span[0].first * pooling.x_stride[0] + window.span[1].first * pooling.x_stride[1] + window.span[2].first;
  Pool pool;
  auto take = [&](int, COMPUTE met) { pool.take(0, met); };
  if (positions == n2) {
    unsigned head = min((WIDTH - unsigned(reinterpret_cast<uintptr_t>(x) / sizeof(ELEMENT) % WIDTH)) % WIDTH, n2);
    unsigned packs = (n2 - head) / WIDTH, tail = head + packs * WIDTH;
#pragma unroll 8
    for (unsigned k = member; k < packs; k += team) take_pack<WIDTH, true>(x + head + k * WIDTH, WIDTH, take);
    if (member < head) take(0, load<COMPUTE>(x[member]));
    if (member < n2 - tail) take(0, load<COMPUTE>(x[tail + member]));
    if (team < WIDTH)  // what is left over is more than a team
      for (unsigned k = member + team; k < max(head, n2 - tail); k += team) {
        if (k < head) take(0, load<COMPUTE>(x[k]));
        if (k < n2 - tail) take(0, load<COMPUTE>(x[tail + k]));
      }
  } else {
    bool whole = n2 == a.row.divisor;
#pragma unroll 8
    for (unsigned k = member; k < positions; k += team) {
      unsigned line = whole ? a.row.divide(k) : k / n2, column = k - line * n2, p0 = line, p1 = 0;
      if (n1 > 1) p0 = line / n1, p1 = line % n1;
      take(0, load<COMPUTE>(x[p0 * pooling.x_stride[0] + p1 * pooling.x_stride[1] + column]));
    }
  }
  for (unsigned distance = min(team, 32u) / 2; distance > 0; distance /= 2) pool.take(0, __shfl_xor_sync(~0u, pool.value[0], distance));
  if (team > 32) {
    Pool* shared = reinterpret_cast<Pool*>(shared_memory);
    if (threadIdx.x % 32 == 0) shared[threadIdx.x / 32] = pool;
    __syncthreads();
    if (member == 0)
      for (unsigned warp = 1; warp < team / 32; warp++) pool.take(0, shared[threadIdx.x / 32 + warp].value[0]);
  }
  if (member > 0 || !present) return;
  COMPUTE divisor = pooling.takes_maximum() ? COMPUTE(1) : window.divisor(pooling);
  a.y[y_offset] = blend(COMPUTE(pooling.alpha), pool.result(0, positions == 0, divisor), COMPUTE(pooling.beta), a.y + y_offset);
}

extern "C" __global__ void __launch_bounds__(1024) pooling_forward_reduce(const ReduceArguments a) {
  griddepcontrol_wait();
  with_pool(a.pooling, [&](auto one) {
    if (a.lanes == 0) return reduce_rows<decltype(one)>(a);
    with_width(a.walk.width, [&](auto width) { reduce_channels<decltype(one), decltype(width)::value>(a); });
  });
}
