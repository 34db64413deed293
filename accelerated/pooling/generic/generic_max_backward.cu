// These kernels compute the gradient (4.1.18) of maxima with any window in generic layouts; static windows have other
// kernels.
//
// Tiling: in `tile` a block has a tile of inputs, in vectors of four planes or channels (eight of 16 bits). It reads x
// once into shared memory (generic_tile.cuh). It finds the first maximum of every window there, and keeps its index and
// dy in shared memory. Every input then sums the gradients of its windows in order. For larger windows, teams of
// threads in `index` write the indices of first maxima to scratch memory. In `gather` each thread then computes a
// vector of dx.
//
// Roofline bound: bytes, x and dy are read, dx is written; three operations per input of every window, twice. For 3x3
// windows an estimate is 100 instructions per element: 11.0 us for 32x128x28x28, where memory takes 9.
#include "pooling/generic/generic_tile.cuh"

// --- windows too large for tiles ---

struct IndexArguments {
  const ELEMENT* x;
  int* indices;
  Pooling pooling;             // Its y_stride holds the strides of the indices.
  Walk walk;                   // It walks over the indices; x is the other tensor.
  int team_bits, column_bits;  // log2 of the threads per team, and along axis 2
};

constexpr int WARP = 32;       // threads
constexpr int MAX_WARPS = 32;  // per block

// Holds the first maxima of the warps of a block.
template <int P> struct Warps {
  COMPUTE value[MAX_WARPS][P];
  int index[MAX_WARPS][P];
};

// Holds the first maxima of P channels and their indices in the plane, -1 without one.
template <int P> struct Maximum {
  COMPUTE value[P];
  int index[P];
  __device__ __forceinline__ Maximum() {
#pragma unroll
    for (int i = 0; i < P; i++) value[i] = COMPUTE(-INFINITY), index[i] = -1;
  }
  // Compares with an input; inputs come in row-major order.
  __device__ __forceinline__ void take(const Vector<ELEMENT, P>& vector, int at, bool propagate) {
#pragma unroll
    for (int i = 0; i < P; i++) {
      const COMPUTE met = load<COMPUTE>(vector.item[i]);
      const bool nan = met != met;
      const bool better = met > value[i] || (nan ? propagate && value[i] == value[i] : index[i] < 0);
      value[i] = better ? met : value[i];
      index[i] = better ? at : index[i];
    }
  }
  // Merges the maximum of channel i of another thread of the team.
  __device__ __forceinline__ void merge(int i, COMPUTE met, int at) {
    const bool nan = value[i] != value[i], met_nan = met != met, earlier = at < index[i];
    bool better = met > value[i] || (met == value[i] && earlier);
    if (nan || met_nan) better = met_nan && (!nan || earlier);
    if (at < 0 || index[i] < 0) better = at >= 0;
    value[i] = better ? met : value[i];
    index[i] = better ? at : index[i];
  }
  // Merges the maxima of two threads, `distance` lanes apart.
  __device__ __forceinline__ void exchange(int distance) {
#pragma unroll
    for (int i = 0; i < P; i++)
      merge(i, __shfl_xor_sync(~0u, value[i], distance), __shfl_xor_sync(~0u, index[i], distance));
  }
  // Merges the maxima of the warps of a team into its first thread, by shared memory.
  __device__ __forceinline__ void exchange_warps(int member, int warps) {
    Warps<P>& kept = *reinterpret_cast<Warps<P>*>(shared_memory);
    const int warp = threadIdx.x / WARP;
    if (threadIdx.x % WARP == 0)
#pragma unroll
      for (int i = 0; i < P; i++) kept.value[warp][i] = value[i], kept.index[warp][i] = index[i];
    __syncthreads();
    if (member > 0) return;
    for (int other = warp + 1; other < warp + warps; other++)
#pragma unroll
      for (int i = 0; i < P; i++) merge(i, kept.value[other][i], kept.index[other][i]);
  }
};

template <int P> __device__ __forceinline__ void find(const IndexArguments& a) {
  const Pooling& pooling = a.pooling;
  const unsigned number = (blockIdx.x * blockDim.x + threadIdx.x) >> a.team_bits;
  const int team = 1 << a.team_bits, member = threadIdx.x & (team - 1), columns = 1 << a.column_bits;
  int o[3];
  long long x_offset, index_offset;
  a.walk.locate(min(number, a.walk.vectors - 1), o, index_offset, x_offset);
  Maximum<P> maximum;
  Window(pooling, o)
      .visit_part(
          member >> a.column_bits, team >> a.column_bits, member & (columns - 1), columns, [&](int p0, int p1, int p2) {
            const long long offset = p0 * pooling.x_stride[0] + p1 * pooling.x_stride[1] + p2 * pooling.x_stride[2];
            maximum.take(load_items<P, true>(a.x + x_offset + offset, 0), pooling.position(p0, p1, p2),
                         pooling.propagate);
          });
  for (int distance = min(team, WARP) / 2; distance > 0; distance /= 2) maximum.exchange(distance);
  if (team > WARP) maximum.exchange_warps(member, team / WARP);
  if (member > 0 || number >= a.walk.vectors) return;
#pragma unroll
  for (int i = 0; i < P; i++) a.indices[index_offset + i] = maximum.index[i];
}

// Shared memory holds the maxima of the block's warps, where a team is larger than a warp.
extern "C" __global__ void __launch_bounds__(1024) pooling_generic_max_backward_index(const IndexArguments a) {
  griddepcontrol_wait();
  with_width(a.walk.width, [&](auto width) { find<decltype(width)::value>(a); });
}

struct GatherArguments {
  const ELEMENT* dy;
  const int* indices;
  ELEMENT* dx;
  Pooling pooling;
  Walk walk, index_walk;  // They walk over dx; dy and the indices are the other tensors.
  long long index_stride[3];
};

template <int P> __device__ __forceinline__ void gather(const GatherArguments& a) {
  const Pooling& pooling = a.pooling;
  const unsigned number = blockIdx.x * blockDim.x + threadIdx.x;
  if (number >= a.walk.vectors) return;
  int i[3], first[3], last[3];
  long long dx_offset, dy_offset, index_offset;
  a.walk.locate(number, i, dx_offset, dy_offset);
  a.index_walk.locate(number, i, dx_offset, index_offset);
#pragma unroll
  for (int d = 0; d < 3; d++)
    first[d] = pooling.axis[d].first_window(i[d]), last[d] = pooling.axis[d].last_window(i[d]);
  const int own = pooling.position(i[0], i[1], i[2]);
  COMPUTE sum[P];
#pragma unroll
  for (int k = 0; k < P; k++) sum[k] = 0;
  for (int o0 = first[0]; o0 < last[0]; o0++)
    for (int o1 = first[1]; o1 < last[1]; o1++)
#pragma unroll 4
      for (int o2 = first[2]; o2 < last[2]; o2++) {
        const int* index =
            a.indices + (index_offset + o0 * a.index_stride[0] + o1 * a.index_stride[1] + o2 * a.index_stride[2]);
        const Vector<ELEMENT, P> dy = load_items<P, true>(
            a.dy + (dy_offset + o0 * pooling.y_stride[0] + o1 * pooling.y_stride[1] + o2 * pooling.y_stride[2]), 0);
#pragma unroll
        for (int k = 0; k < P; k++)
          if (index[k] == own) sum[k] += load<COMPUTE>(dy.item[k]);
      }
#pragma unroll
  for (int k = 0; k < P; k++) sum[k] *= pooling.alpha;
  write_vector<P>(a.dx + dx_offset, 1, true, P, sum, pooling.beta);
}

extern "C" __global__ void __launch_bounds__(256) pooling_generic_max_backward_gather(const GatherArguments a) {
  griddepcontrol_wait();
  with_width(a.walk.width, [&](auto width) { gather<decltype(width)::value>(a); });
}

// --- tiles ---

struct MaxTileArguments {
  const ELEMENT* dy;
  const ELEMENT* x;
  ELEMENT* dx;
  Pooling pooling;
  TileLayout tile;
};

constexpr unsigned short NONE = 0xffff;   // index of the maximum of a window without one
constexpr unsigned short APART = 0xfffe;  // index of an input in front of all kept inputs
using Index = unsigned short;             // index of an input in shared memory

// Finds the first maxima of P planes. Values outside of the tensor are NaN, or -infinity where NaN propagates.
template <class Pool, int P> struct TileMaximum {
  COMPUTE value[P];
  int index[P];
  __device__ __forceinline__ TileMaximum() {
#pragma unroll
    for (int i = 0; i < P; i++) value[i] = COMPUTE(Pool::PROPAGATES ? -INFINITY : NAN), index[i] = NONE;
  }
  __device__ __forceinline__ void take(const Vector<ELEMENT, P>& vector, int at) {
#pragma unroll
    for (int i = 0; i < P; i++) {
      const COMPUTE met = load<COMPUTE>(vector.item[i]);
      if (Pool::PROPAGATES) {
        const bool better = !(met <= value[i]) && value[i] == value[i];
        value[i] = better ? met : value[i];
        index[i] = better ? at : index[i];
      } else {
        const COMPUTE larger = fmax(value[i], met);
        index[i] = larger == value[i] ? index[i] : at;
        value[i] = larger;
      }
    }
  }
  // Returns the index of the maximum. If all values are -infinity, it is the first input of the window in the tensor.
  __device__ __forceinline__ Index result(int i, int first) const {
    if (Pool::PROPAGATES) return index[i] == NONE ? first : index[i];
    return value[i] == value[i] ? index[i] : NONE;
  }
};

template <class Pool, int COLUMNS, int P, bool CHANNELS>
__device__ __forceinline__ void scan(const MaxTileArguments& a, const BlockTile<P, CHANNELS>& tile, const int (&low)[3],
                                     const int (&origin)[3], const Vector<ELEMENT, P>* inputs,
                                     Vector<Index, P>* indices, Vector<ELEMENT, P>* values) {
  const Pooling& pooling = a.pooling;
  const TileLayout& layout = a.tile;
  const Axis* axis = pooling.axis;
  const int window[3] = {axis[0].window, axis[1].window, axis[2].window};
  const FastDivmod(&sources)[3] = layout.sources;
  auto position = [&](int p0, int p1, int p2) {
    return (p0 * int(sources[1].divisor) + p1) * int(sources[2].divisor) + p2;
  };
  tile.visit(layout.windows, layout.window_pitch, [&](unsigned group, unsigned slot, const unsigned (&at)[3]) {
    const int o[3] = {low[0] + int(at[0]), low[1] + int(at[1]), low[2] + int(at[2])};
    Vector<Index, P> index;
    Vector<ELEMENT, P> dy;
#pragma unroll
    for (int i = 0; i < P; i++) index.item[i] = NONE, dy.item[i] = ELEMENT(0);
    if (tile.inside(o, pooling.axis, &Axis::output)) {
      dy = load_items<P, BlockTile<P, CHANNELS>::PACKED>(
          a.dy + tile.offsets[group].y + tile.offset_of(o, pooling.y_stride), layout.y_item);
      TileMaximum<Pool, P> found;
      const int start = group * layout.source_pitch;
      const int begin = position(o[0] * axis[0].stride - axis[0].padding - origin[0],
                                 o[1] * axis[1].stride - axis[1].padding - origin[1],
                                 o[2] * axis[2].stride - axis[2].padding - origin[2]);
      visit_window<COLUMNS>(start + begin, window, sources, [&](int p) { found.take(inputs[p], p); });
      int first = NONE;
      if (Pool::PROPAGATES) {
        const Window clamped(pooling, o);
        if (!clamped.empty())
          first = start + position(clamped.span[0].first - origin[0], clamped.span[1].first - origin[1],
                                   clamped.span[2].first - origin[2]);
      }
#pragma unroll
      for (int i = 0; i < P; i++) index.item[i] = found.result(i, first);
    }
    indices[slot] = index;
    values[slot] = dy;
  });
}

// Returns whether the index of plane k equals an index, given twice in `twice`. Comparing words avoids unpacking.
template <int P> __device__ __forceinline__ bool same(const Vector<Index, P>& index, int k, unsigned twice) {
  if constexpr (P == 1) return index.item[0] == Index(twice);
  const unsigned difference = reinterpret_cast<const unsigned*>(&index)[k / 2] ^ twice;
  return (difference & (k % 2 ? 0xffff0000 : 0xffff)) == 0;
}

// Sums the gradients for each input. COLUMNS: number of windows that may cover an input along axis 2.
template <int COLUMNS, int P, bool CHANNELS>
__device__ __forceinline__ void gather(const MaxTileArguments& a, const BlockTile<P, CHANNELS>& tile,
                                       const int (&low)[3], const int (&origin)[3], const Vector<Index, P>* indices,
                                       const Vector<ELEMENT, P>* values) {
  const Pooling& pooling = a.pooling;
  const TileLayout& layout = a.tile;
  const FastDivmod(&sources)[3] = layout.sources;
  const FastDivmod(&windows)[3] = layout.windows;
  tile.visit(layout.targets, 0, [&](unsigned group, unsigned, const unsigned (&at)[3]) {
    const int i[3] = {tile.begin[0] + int(at[0]), tile.begin[1] + int(at[1]), tile.begin[2] + int(at[2])};
    if (!tile.inside(i, pooling.axis, &Axis::input)) return;
    int own = 0, window = 0, signs = 0;
#pragma unroll
    for (int d = 0; d < 3; d++) {
      own = own * int(sources[d].divisor) + i[d] - origin[d];
      signs |= i[d] - origin[d];
      window = window * int(windows[d].divisor) + tile.first_window(pooling, d, i[d]) - low[d];
    }
    own = signs < 0 ? APART : own + group * layout.source_pitch;
    const unsigned twice = own | own << 16;
    COMPUTE sum[P];
#pragma unroll
    for (int k = 0; k < P; k++) sum[k] = 0;
    visit_window<COLUMNS>(group * layout.window_pitch + window, layout.covering, windows, [&](int w) {
      const Vector<Index, P> index = indices[w];
      const Vector<ELEMENT, P> dy = values[w];
#pragma unroll
      for (int k = 0; k < P; k++)
        if (same(index, k, twice)) sum[k] += load<COMPUTE>(dy.item[k]);
    });
#pragma unroll
    for (int k = 0; k < P; k++) sum[k] *= pooling.alpha;
    write_vector<P>(a.dx + tile.offsets[group].x + tile.offset_of(i, pooling.x_stride), layout.x_item, tile.PACKED, P,
                    sum, pooling.beta);
  });
}

template <class Pool, int P, bool CHANNELS>
__device__ __forceinline__ void backward(const MaxTileArguments& a, const BlockTile<P, CHANNELS>& tile) {
  using Values = Vector<ELEMENT, P>;
  Values* const inputs = reinterpret_cast<Values*>(shared_memory + OFFSET_BYTES);
  Vector<Index, P>* const indices = reinterpret_cast<Vector<Index, P>*>(shared_memory + a.tile.indices);
  Values* const values = reinterpret_cast<Values*>(shared_memory + a.tile.values);
  int low[3], origin[3];
#pragma unroll
  for (int d = 0; d < 3; d++) {
    low[d] = tile.first_window(a.pooling, d, tile.begin[d]);
    origin[d] = max(low[d], 0) * a.pooling.axis[d].stride - a.pooling.axis[d].padding;
  }
  tile.read_inputs(inputs, a.x, a.pooling, origin, element<ELEMENT>(COMPUTE(Pool::PROPAGATES ? -INFINITY : NAN)));
  __syncthreads();
  with_columns(a.pooling.axis[2].window, [&](auto columns) {
    scan<Pool, decltype(columns)::value>(a, tile, low, origin, inputs, indices, values);
  });
  __syncthreads();
  with_columns(a.tile.covering[2],
               [&](auto columns) { gather<decltype(columns)::value>(a, tile, low, origin, indices, values); });
}

extern "C" __global__ void __launch_bounds__(256) pooling_generic_max_backward_tile(const MaxTileArguments a) {
  griddepcontrol_wait();
  with_tile<false>(a.tile, [&](const auto& tile) {
    a.pooling.propagate ? backward<NumbersAndNan>(a, tile) : backward<Numbers>(a, tile);
  });
}
