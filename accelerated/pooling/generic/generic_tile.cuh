// This header pools windows of any size from shared memory, in tiles of outputs (forward) or inputs (backward). A block
// has a tile of several groups; a group is P planes or P contiguous channels. It reads the inputs of the tile's windows
// once. Shared memory keeps them as vectors of P, so that one access moves P elements. Positions outside of the tensor
// hold a neutral value, so that windows need no bounds checks.
#pragma once
#include "pooling/generic/generic.cuh"

struct TileLayout {
  int outer_rank;  // number of dimensions that are not pooled, in groups of planes, fastest first
  FastDivmod outer[3];
  long long x_outer[3], y_outer[3];
  long long x_item, y_item;  // elements from one plane of a group to the next
  unsigned items;            // planes or channels per group
  unsigned channels;         // whether a group is one access to contiguous channels
  unsigned groups, block_groups;
  FastDivmod neighbours;  // groups of a position that neighbouring threads take: several of channels, one of planes
  FastDivmod parts[3];    // tiles along each axis
  FastDivmod targets[3];  // extents of a tile: outputs forward, inputs backward
  FastDivmod sources[3];  // extents kept in shared memory: inputs, or windows for gradients of averages
  FastDivmod windows[3];  // backward: windows over the inputs of a tile
  int covering[3];        // backward: maximum number of windows that cover an input
  int shift[3];           // backward: the first window over input i is (i + shift) / stride - before
  int before[3];
  unsigned source_pitch, window_pitch;  // vectors from one group to the next in shared memory
  unsigned indices, values;             // byte offsets of the windows' indices and gradients in shared memory
};

// Holds the offsets of a group in x and y.
struct PlaneOffsets {
  long long x, y;
};
constexpr unsigned MAX_BLOCK_GROUPS = 32;  // groups per block, as in generic_tile.py
constexpr unsigned OFFSET_BYTES = MAX_BLOCK_GROUPS * sizeof(PlaneOffsets);

// Handles the tile of a block, in vectors of P planes or P channels.
template <int P, bool CHANNELS> struct BlockTile {
  static constexpr bool PACKED = CHANNELS || P == 1;  // A vector is one access.
  static constexpr int READS = 2;

  const TileLayout& layout;
  PlaneOffsets* const offsets;
  int begin[3];
  unsigned groups;

  __device__ __forceinline__ explicit BlockTile(const TileLayout& layout)
      : layout(layout), offsets(reinterpret_cast<PlaneOffsets*>(shared_memory)) {
    unsigned rest = blockIdx.x, part;
#pragma unroll
    for (int d = 2; d >= 0; d--) {
      rest = layout.parts[d].divide(rest, part);
      begin[d] = part * layout.targets[d].divisor;
    }
    const unsigned first = rest * layout.block_groups;
    groups = min(layout.block_groups, layout.groups - first);
    if (threadIdx.x < groups) {
      unsigned group = first + threadIdx.x, here;
      PlaneOffsets sum = {0, 0};
      for (int d = 0; d < layout.outer_rank; d++) {
        group = layout.outer[d].divide(group, here);
        sum.x += here * layout.x_outer[d];
        sum.y += here * layout.y_outer[d];
      }
      offsets[threadIdx.x] = sum;
    }
    __syncthreads();
  }
  // Locates position n, in the order of threads, of boxes of `extents` for all groups. It returns the group, which may
  // not exist, and sets the slot in shared memory, where groups are `pitch` vectors apart.
  __device__ __forceinline__ unsigned locate(unsigned n, const FastDivmod (&extents)[3], unsigned pitch, unsigned& slot,
                                             unsigned (&at)[3]) const {
    unsigned neighbour = 0, rest = CHANNELS ? layout.neighbours.divide(n, neighbour) : n;
    const unsigned position = rest;
#pragma unroll
    for (int d = 2; d >= 0; d--) rest = extents[d].divide(rest, at[d]);
    if (!CHANNELS) return slot = n, rest;
    const unsigned group = rest * layout.neighbours.divisor + neighbour;
    slot = group * pitch + position - rest * volume(extents);
    return group;
  }
  static __device__ __forceinline__ unsigned volume(const FastDivmod (&extents)[3]) {
    return extents[0].divisor * extents[1].divisor * extents[2].divisor;
  }
  // Returns the number of positions of the existing groups, rounded up to a multiple of `neighbours` groups.
  __device__ __forceinline__ unsigned positions(const FastDivmod (&extents)[3]) const {
    const unsigned side = layout.neighbours.divisor;
    return (CHANNELS ? layout.neighbours.divide(groups + side - 1) * side : groups) * volume(extents);
  }
  // Calls visit(group, slot, at) for each position of this thread.
  template <class Visit>
  __device__ __forceinline__ void visit(const FastDivmod (&extents)[3], unsigned pitch, Visit visit) const {
    const unsigned all = positions(extents);
    for (unsigned n = threadIdx.x; n < all; n += blockDim.x) {
      unsigned slot, at[3];
      const unsigned group = locate(n, extents, pitch, slot, at);
      if (!CHANNELS || group < groups) visit(group, slot, at);
    }
  }
  // Stores read(group, at) in shared memory for every source, with READS vectors in flight per thread.
  template <class T, class Read> __device__ __forceinline__ void keep(T* kept, Read read) const {
    const unsigned all = positions(layout.sources);
    for (unsigned n = threadIdx.x; n < all; n += READS * blockDim.x) {
      T vectors[READS];
      unsigned slot[READS];
      bool exists[READS];
#pragma unroll
      for (int k = 0; k < READS; k++) {
        unsigned at[3];
        const unsigned group = locate(n + k * blockDim.x, layout.sources, layout.source_pitch, slot[k], at);
        exists[k] = group < groups;
        if (exists[k]) vectors[k] = read(group, at);
      }
#pragma unroll
      for (int k = 0; k < READS; k++)
        if (exists[k]) kept[slot[k]] = vectors[k];
    }
  }
  // Reads the inputs from `origin` on; positions outside of the tensor get `nothing`.
  __device__ __forceinline__ void read_inputs(Vector<ELEMENT, P>* kept, const ELEMENT* x, const Pooling& pooling,
                                              const int (&origin)[3], ELEMENT nothing) const {
    keep(kept, [&](unsigned group, const unsigned (&at)[3]) {
      const int i[3] = {origin[0] + int(at[0]), origin[1] + int(at[1]), origin[2] + int(at[2])};
      Vector<ELEMENT, P> vector;
      if (inside(i, pooling.axis, &Axis::input)) {
        vector = load_items<P, PACKED>(x + offsets[group].x + offset_of(i, pooling.x_stride), layout.x_item);
      } else {
#pragma unroll
        for (int k = 0; k < P; k++) vector.item[k] = nothing;
      }
      return vector;
    });
  }
  // Returns the first window that may cover an input; it may be out of range.
  __device__ __forceinline__ int first_window(const Pooling& pooling, int d, int input) const {
    return int(pooling.axis[d].by_stride.divide(input + layout.shift[d])) - layout.before[d];
  }

  static __device__ __forceinline__ bool inside(const int (&i)[3], const Axis (&axis)[3], int Axis::* extent) {
    return unsigned(i[0]) < unsigned(axis[0].*extent) && unsigned(i[1]) < unsigned(axis[1].*extent) &&
           unsigned(i[2]) < unsigned(axis[2].*extent);
  }
  // Returns an offset in a plane, which spans fewer than 2^31 elements.
  static __device__ __forceinline__ int offset_of(const int (&i)[3], const long long (&stride)[3]) {
    return i[0] * int(stride[0]) + i[1] * int(stride[1]) + i[2] * int(stride[2]);
  }
};

// Calls call(tile) with the kind of vectors as template arguments. Single planes use the code of single channels.
// Gradients of maxima have no PAIRS of channels, since one more kind of vectors would move arrays to local memory.
template <bool PAIRS, class Call> __device__ __forceinline__ void with_tile(const TileLayout& layout, Call call) {
  if (layout.items == 1) return call(BlockTile<1, true>(layout));
  if constexpr (PAIRS)
    if (layout.items == PAIR) return call(BlockTile<PAIR, true>(layout));
  layout.channels ? call(BlockTile<ITEMS, true>(layout)) : call(BlockTile<ITEMS, false>(layout));
}

// Calls take(p) for the positions p of a window in a box of `extents`, in row-major order. COLUMNS: the window's number
// of columns, 0 where it is not static.
template <int COLUMNS, class Take>
__device__ __forceinline__ void visit_window(int position, const int (&window)[3], const FastDivmod (&extents)[3],
                                             Take take) {
  const int row = extents[2].divisor, jump = row * (int(extents[1].divisor) - window[1]);
  int k1 = 0;
#pragma unroll 1
  for (int rows = window[0] * window[1]; rows > 0; rows--) {
    if constexpr (COLUMNS > 0) {
#pragma unroll
      for (int k2 = 0; k2 < COLUMNS; k2++) take(position + k2);
    } else {
#pragma unroll 4
      for (int k2 = 0; k2 < window[2]; k2++) take(position + k2);
    }
    position += row;
    if (++k1 == window[1]) k1 = 0, position += jump;
  }
}

// Calls call(columns) with a small number of columns as a constant, and 0 for others.
template <class Call> __device__ __forceinline__ void with_columns(int columns, Call call) {
  if (columns == 2) return call(Constant<2>());
  if (columns == 3) return call(Constant<3>());
  if (columns == 5) return call(Constant<5>());
  call(Constant<0>());
}
