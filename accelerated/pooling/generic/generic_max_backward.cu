// Pooling backward (4.1.18) of maxima with any window, in any layout; static windows have kernels of their own.
//
// Tiling: a block has a tile of inputs. It finds the first maximum of every window over them and keeps its index and dy
// in shared memory; then every input gathers what the windows over it give it, in their order. `tile` has four planes
// or channels in a pack and reads x once to shared memory (generic_tile.cuh). `gather` has windows that are too large
// for that: teams of threads scan them; those that do not fit are taken in chunks: sums stay in registers.
// Roofline bound: bytes, x and dy read, dx written; three operations for every input of every window, twice: of 3x3
// windows by estimate 100 instructions an element, 11 us for 32x128x28x28, of which memory needs 9.
#include "pooling/generic/generic_tile.cuh"

struct Box {
  int outer_rank;  // planes: the fastest dimension first
  FastDivmod outer[3];
  long long x_outer[3], y_outer[3];
  unsigned planes, block_planes;     // in all, of a block
  unsigned packs;                    // of channels, in all
  FastDivmod groups, parts[3];       // blocks along channels and axes
  FastDivmod group_packs;            // packs of channels of a block
  FastDivmod inputs[3], windows[3];  // of a block: inputs, and windows that may meet them
  FastDivmod team;                   // threads of a window
  int column_bits;                   // log2 of those along axis 2
  unsigned capacity;                 // windows that a block keeps at a time
  unsigned values;                   // where their dy begin in shared memory: bytes
  long long y_channel;               // stride of the channels in dy
};

struct MaxArguments {
  const ELEMENT* dy;
  const ELEMENT* x;
  ELEMENT* dx;
  Pooling pooling;
  unsigned width;  // elements of a pack
  Box box;
};

// The first maximum of P channels and its index in the plane, -1 where there is none.
template <int P> struct Maximum {
  COMPUTE value[P];
  int index[P];
  __device__ __forceinline__ Maximum() {
#pragma unroll
    for (int i = 0; i < P; i++) value[i] = COMPUTE(-INFINITY), index[i] = -1;
  }
  // Takes inputs in row-major order.
  __device__ __forceinline__ void take(const Pack<ELEMENT, P>& pack, int at, bool propagate) {
#pragma unroll
    for (int i = 0; i < P; i++) {
      const COMPUTE met = load<COMPUTE>(pack.item[i]);
      const bool nan = met != met;
      const bool better = met > value[i] || (nan ? propagate && value[i] == value[i] : index[i] < 0);
      value[i] = better ? met : value[i];
      index[i] = better ? at : index[i];
    }
  }
  // Takes what the threads of a team found, `distance` apart.
  __device__ __forceinline__ void exchange(int distance) {
#pragma unroll
    for (int i = 0; i < P; i++) {
      const COMPUTE met = __shfl_xor_sync(~0u, value[i], distance);
      const int at = __shfl_xor_sync(~0u, index[i], distance);
      const bool nan = value[i] != value[i], met_nan = met != met, earlier = at < index[i];
      bool better = met > value[i] || (met == value[i] && earlier);
      if (nan || met_nan) better = met_nan && (!nan || earlier);
      if (at < 0 || index[i] < 0) better = at >= 0;
      value[i] = better ? met : value[i];
      index[i] = better ? at : index[i];
    }
  }
};

template <int P> __device__ __forceinline__ void backward(const MaxArguments& a) {
  const Pooling& pooling = a.pooling;
  const Box& box = a.box;
  const Axis* axis = pooling.axis;
  using Indices = Pack<int, P>;
  using Values = Pack<ELEMENT, P>;
  Indices* const indices = reinterpret_cast<Indices*>(shared_memory);
  Values* const values = reinterpret_cast<Values*>(shared_memory + box.values);

  // The block: its first plane, pack of channels, inputs and windows.
  unsigned group, part[3], rest = box.groups.divide(blockIdx.x, group);
  int begin[3], low[3];
#pragma unroll
  for (int d = 2; d >= 0; d--) {
    rest = box.parts[d].divide(rest, part[d]);
    begin[d] = part[d] * box.inputs[d].divisor;
    low[d] = axis[d].first_window(begin[d]);
  }
  const unsigned first_plane = rest * box.block_planes, group_packs = box.group_packs.divisor;
  const unsigned first_pack = group * group_packs;
  auto plane_offsets = [&](unsigned plane, long long& x, long long& y) {
    x = y = 0;
    for (int d = 0; d < box.outer_rank; d++) {
      unsigned here;
      plane = box.outer[d].divide(plane, here);
      x += here * box.x_outer[d];
      y += here * box.y_outer[d];
    }
  };
  // Position n of block_planes boxes of `extents`, as its plane and three coordinates.
  auto locate = [&](const FastDivmod(&extents)[3], unsigned n, unsigned (&at)[3]) {
#pragma unroll
    for (int d = 2; d >= 0; d--) n = extents[d].divide(n, at[d]);
    return n;
  };
  const unsigned all_windows =
      box.block_planes * box.windows[0].divisor * box.windows[1].divisor * box.windows[2].divisor;
  const unsigned all_inputs = box.block_planes * box.inputs[0].divisor * box.inputs[1].divisor * box.inputs[2].divisor;

  // The thread while windows are scanned: its pack, its window, its part of the window.
  const int team = box.team.divisor, columns = 1 << box.column_bits;
  unsigned scan_pack, member;
  const unsigned slot = box.team.divide(box.group_packs.divide(threadIdx.x, scan_pack), member);
  const unsigned slots = blockDim.x / (group_packs * team);

  COMPUTE sum[P];
  for (unsigned first = 0; first < all_windows; first += box.capacity) {
    const unsigned count = min(box.capacity, all_windows - first);
    if (first > 0) __syncthreads();
    for (unsigned n = slot; n - slot < count; n += slots) {  // all threads of a warp take part in every round
      unsigned at[3];
      const unsigned plane = locate(box.windows, first + min(n, count - 1), at);
      const int o[3] = {low[0] + int(at[0]), low[1] + int(at[1]), low[2] + int(at[2])};
      const bool inside = o[0] < axis[0].output && o[1] < axis[1].output && o[2] < axis[2].output;
      const bool exists =
          n < count && slot < slots && inside && first_plane + plane < box.planes && first_pack + scan_pack < box.packs;
      long long x_offset, y_offset;
      plane_offsets(first_plane + plane, x_offset, y_offset);
      const unsigned channel = (first_pack + scan_pack) * P;
      Maximum<P> found;
      if (exists) {
        const ELEMENT* x = a.x + (x_offset + channel);
        Window(pooling, o)
            .visit_part(member >> box.column_bits, team >> box.column_bits, member & (columns - 1), columns,
                        [&](int p0, int p1, int p2) {
                          const long long offset =
                              p0 * pooling.x_stride[0] + p1 * pooling.x_stride[1] + p2 * pooling.x_stride[2];
                          const int index = (p0 * axis[1].input + p1) * axis[2].input + p2;
                          found.take(load_items<P, true>(x + offset, 0), index, pooling.propagate);
                        });
      }
      for (int distance = team / 2; distance > 0; distance /= 2) found.exchange(distance * group_packs);
      if (!exists || member > 0) continue;
      const ELEMENT* dy =
          a.dy + (y_offset + o[0] * pooling.y_stride[0] + o[1] * pooling.y_stride[1] + o[2] * pooling.y_stride[2]);
      Indices index;
#pragma unroll
      for (int i = 0; i < P; i++) index.item[i] = found.index[i];
      indices[n * group_packs + scan_pack] = index;
      values[n * group_packs + scan_pack] = load_items<P, true>(dy + channel * box.y_channel, 0);
    }
    __syncthreads();
    // Of several chunks a thread has one input.
    for (unsigned n = threadIdx.x; n < all_inputs * group_packs; n += blockDim.x) {
      unsigned pack, at[3];
      const unsigned plane = locate(box.inputs, box.group_packs.divide(n, pack), at);
      const int i[3] = {begin[0] + int(at[0]), begin[1] + int(at[1]), begin[2] + int(at[2])};
      const bool inside = i[0] < axis[0].input && i[1] < axis[1].input && i[2] < axis[2].input;
      if (!inside || first_plane + plane >= box.planes || first_pack + pack >= box.packs) continue;
      if (first == 0)
#pragma unroll
        for (int k = 0; k < P; k++) sum[k] = 0;
      const int own = (i[0] * axis[1].input + i[1]) * axis[2].input + i[2];
      const int first1 = axis[1].first_window(i[1]), first2 = axis[2].first_window(i[2]);
      const int last0 = axis[0].last_window(i[0]), last1 = axis[1].last_window(i[1]), last2 = axis[2].last_window(i[2]);
      for (int o0 = axis[0].first_window(i[0]); o0 < last0; o0++)
        for (int o1 = first1; o1 < last1; o1++) {
          const int row = ((plane * box.windows[0].divisor + o0 - low[0]) * box.windows[1].divisor + o1 - low[1]) *
                              box.windows[2].divisor -
                          low[2] - first;
#pragma unroll 4
          for (int o2 = first2; o2 < last2; o2++) {
            if (unsigned(row + o2) >= count) continue;
            const unsigned window = (row + o2) * group_packs + pack;
            const Indices index = indices[window];
            const Values dy = values[window];
#pragma unroll
            for (int k = 0; k < P; k++)
              if (index.item[k] == own) sum[k] += load<COMPUTE>(dy.item[k]);
          }
        }
      if (first + box.capacity < all_windows) continue;
      long long x_offset, y_offset;
      plane_offsets(first_plane + plane, x_offset, y_offset);
      COMPUTE result[P];
#pragma unroll
      for (int k = 0; k < P; k++) result[k] = pooling.alpha * sum[k];
      ELEMENT* dx =
          a.dx + (x_offset + i[0] * pooling.x_stride[0] + i[1] * pooling.x_stride[1] + i[2] * pooling.x_stride[2]);
      write_pack<P>(dx + (first_pack + pack) * P, 1, true, P, result, pooling.beta);
    }
  }
}

extern "C" __global__ void __launch_bounds__(256, 2) pooling_generic_max_backward_gather(const MaxArguments a) {
  griddepcontrol_wait();
  with_width(a.width, [&](auto width) { backward<decltype(width)::value>(a); });
}

struct MaxTileArguments {
  const ELEMENT* dy;
  const ELEMENT* x;
  ELEMENT* dx;
  Pooling pooling;
  TileLayout tile;
};

constexpr unsigned short NONE = 0xffff;   // of a window
constexpr unsigned short APART = 0xfffe;  // of an input before all windows
using Index = unsigned short;             // of an input among those that a block keeps

// The first maximum of P planes. Values around the tensor are NaN, or -infinity where NaN propagates.
template <class Pool, int P> struct TileMaximum {
  COMPUTE value[P];
  int index[P];
  __device__ __forceinline__ TileMaximum() {
#pragma unroll
    for (int i = 0; i < P; i++) value[i] = COMPUTE(Pool::PROPAGATES ? -INFINITY : NAN), index[i] = NONE;
  }
  __device__ __forceinline__ void take(const Pack<ELEMENT, P>& pack, int at) {
#pragma unroll
    for (int i = 0; i < P; i++) {
      const COMPUTE met = load<COMPUTE>(pack.item[i]);
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
  // Of a window whose values are all -infinity, which are never better, the maximum is the first in the tensor.
  __device__ __forceinline__ Index result(int i, int first) const {
    if (Pool::PROPAGATES) return index[i] == NONE ? first : index[i];
    return value[i] == value[i] ? index[i] : NONE;
  }
};

template <class Pool, int COLUMNS, int P, bool CHANNELS>
__device__ __forceinline__ void scan(const MaxTileArguments& a, const BlockTile<P, CHANNELS>& tile, const int (&low)[3],
                                     const int (&origin)[3], const Pack<ELEMENT, P>* inputs, Pack<Index, P>* indices,
                                     Pack<ELEMENT, P>* values) {
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
    Pack<Index, P> index;
    Pack<ELEMENT, P> dy;
#pragma unroll
    for (int i = 0; i < P; i++) index.item[i] = NONE, dy.item[i] = ELEMENT(0);
    if (tile.inside(o, pooling.axis, &Axis::output)) {
      dy =
          load_items<P, tile.PACKED>(a.dy + tile.offsets[group].y + tile.offset_of(o, pooling.y_stride), layout.y_item);
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

// Whether the index of plane k is `own`, an index twice: one instruction, where the index of a pack has to be unpacked.
template <int P> __device__ __forceinline__ bool same(const Pack<Index, P>& index, int k, unsigned twice) {
  if constexpr (P == 1) return index.item[0] == Index(twice);
  const unsigned difference = reinterpret_cast<const unsigned*>(&index)[k / 2] ^ twice;
  return (difference & (k % 2 ? 0xffff0000 : 0xffff)) == 0;
}

// COLUMNS: of windows that may cover an input.
template <int COLUMNS, int P, bool CHANNELS>
__device__ __forceinline__ void gather(const MaxTileArguments& a, const BlockTile<P, CHANNELS>& tile,
                                       const int (&low)[3], const int (&origin)[3], const Pack<Index, P>* indices,
                                       const Pack<ELEMENT, P>* values) {
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
    const unsigned twice = own & NONE | own << 16;
    COMPUTE sum[P];
#pragma unroll
    for (int k = 0; k < P; k++) sum[k] = 0;
    visit_window<COLUMNS>(group * layout.window_pitch + window, layout.covering, windows, [&](int w) {
      const Pack<Index, P> index = indices[w];
      const Pack<ELEMENT, P> dy = values[w];
#pragma unroll
      for (int k = 0; k < P; k++)
        if (same(index, k, twice)) sum[k] += load<COMPUTE>(dy.item[k]);
    });
#pragma unroll
    for (int k = 0; k < P; k++) sum[k] *= pooling.alpha;
    write_pack<P>(a.dx + tile.offsets[group].x + tile.offset_of(i, pooling.x_stride), layout.x_item, tile.PACKED, P,
                  sum, pooling.beta);
  });
}

template <class Pool, int P, bool CHANNELS>
__device__ __forceinline__ void backward(const MaxTileArguments& a, const BlockTile<P, CHANNELS>& tile) {
  using Values = Pack<ELEMENT, P>;
  Values* const inputs = reinterpret_cast<Values*>(shared_memory + OFFSET_BYTES);
  Pack<Index, P>* const indices = reinterpret_cast<Pack<Index, P>*>(shared_memory + a.tile.indices);
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
  with_tile(a.tile, [&](const auto& tile) {
    a.pooling.propagate ? backward<NumbersAndNan>(a, tile) : backward<Numbers>(a, tile);
  });
}
