// These kernels compute the gradient (4.1.18) of averages with any window in generic layouts; static and global windows
// have other kernels.
//
// Tiling: in `tile` a block has a tile of inputs, in vectors of planes or channels. It reads dy once, divides it, and
// keeps it in shared memory (generic_tile.cuh). There every input sums the gradients of its windows in order. In
// `gather`, for windows that are sparse or large, each thread computes 16 bytes of dx; neighbours share loads in L1.
//
// Roofline bound: bytes, dy is read and dx written once; two operations per input of every window. For 3x3 windows an
// estimate is 50 instructions per element: 6.0 us for 32x128x28x28 float, which equals the bytes' time.
#include "pooling/generic/generic_tile.cuh"

struct AverageArguments {
  const ELEMENT* dy;
  ELEMENT* dx;
  Pooling pooling;
  Walk walk;  // It walks over dx; dy is the other tensor.
};

template <int P> __device__ __forceinline__ void backward(const AverageArguments& a) {
  const Pooling& pooling = a.pooling;
  const Axis* axis = pooling.axis;
  const unsigned index = blockIdx.x * blockDim.x + threadIdx.x;
  if (index >= a.walk.vectors) return;
  int i[3], first[3], last[3], o[3];
  long long dx_offset, dy_offset;
  a.walk.locate(index, i, dx_offset, dy_offset);
#pragma unroll
  for (int d = 0; d < 3; d++) first[d] = axis[d].first_window(i[d]), last[d] = axis[d].last_window(i[d]);
  const bool constant = pooling.divisor != COMPUTE(0);
  const COMPUTE common = constant ? COMPUTE(1) / pooling.divisor : COMPUTE(0);
  COMPUTE sum[P];
#pragma unroll
  for (int k = 0; k < P; k++) sum[k] = 0;
  auto gather = [&](auto share_of) {
    const int count = last[2] - first[2];
    for (o[0] = first[0]; o[0] < last[0]; o[0]++)
      for (o[1] = first[1]; o[1] < last[1]; o[1]++) {
        const ELEMENT* from = a.dy + (dy_offset + o[0] * pooling.y_stride[0] + o[1] * pooling.y_stride[1] +
                                      first[2] * pooling.y_stride[2]);
#pragma unroll 4
        for (int k2 = 0; k2 < count; k2++, from += pooling.y_stride[2]) {
          const Vector<ELEMENT, P> dy = load_items<P, true>(from, 0);
          o[2] = first[2] + k2;
          const COMPUTE share = share_of();
#pragma unroll
          for (int k = 0; k < P; k++) sum[k] += load<COMPUTE>(dy.item[k]) * share;
        }
      }
  };
  if (constant) gather([&] { return common; });
  else gather([&] { return COMPUTE(1) / Window(pooling, o).divisor(pooling); });
#pragma unroll
  for (int k = 0; k < P; k++) sum[k] *= pooling.alpha;
  write_vector<P>(a.dx + dx_offset, 1, true, P, sum, pooling.beta);
}

extern "C" __global__ void __launch_bounds__(256) pooling_generic_average_backward_gather(const AverageArguments a) {
  griddepcontrol_wait();
  with_width(a.walk.width, [&](auto width) { backward<decltype(width)::value>(a); });
}

struct AverageTileArguments {
  const ELEMENT* dy;
  ELEMENT* dx;
  Pooling pooling;
  TileLayout tile;
};

// Stores in shared memory what every window adds to an input. Windows that do not exist add 0.
template <int P, bool CHANNELS>
__device__ __forceinline__ void read_shares(const AverageTileArguments& a, const BlockTile<P, CHANNELS>& tile,
                                            const int (&low)[3], Vector<COMPUTE, P>* shares) {
  const Pooling& pooling = a.pooling;
  const bool constant = pooling.divisor != COMPUTE(0);
  const COMPUTE common = constant ? COMPUTE(1) / pooling.divisor : COMPUTE(0);
  tile.keep(shares, [&](unsigned group, const unsigned (&at)[3]) {
    const int o[3] = {low[0] + int(at[0]), low[1] + int(at[1]), low[2] + int(at[2])};
    Vector<COMPUTE, P> vector;
    if (tile.inside(o, pooling.axis, &Axis::output)) {
      const Vector<ELEMENT, P> dy = load_items<P, BlockTile<P, CHANNELS>::PACKED>(
          a.dy + tile.offsets[group].y + tile.offset_of(o, pooling.y_stride), a.tile.y_item);
      const COMPUTE share = constant ? common : COMPUTE(1) / Window(pooling, o).divisor(pooling);
#pragma unroll
      for (int k = 0; k < P; k++) vector.item[k] = load<COMPUTE>(dy.item[k]) * share;
    } else {
#pragma unroll
      for (int k = 0; k < P; k++) vector.item[k] = 0;
    }
    return vector;
  });
}

// Sums the gradients for each input. COLUMNS: number of windows over an input along axis 2, 0 where it is not static.
template <int COLUMNS, int P, bool CHANNELS>
__device__ __forceinline__ void gather(const AverageTileArguments& a, const BlockTile<P, CHANNELS>& tile,
                                       const int (&low)[3], const Vector<COMPUTE, P>* shares) {
  const Pooling& pooling = a.pooling;
  const Axis* axis = pooling.axis;
  const FastDivmod(&sources)[3] = a.tile.sources;
  tile.visit(a.tile.targets, 0, [&](unsigned group, unsigned, const unsigned (&at)[3]) {
    const int i[3] = {tile.begin[0] + int(at[0]), tile.begin[1] + int(at[1]), tile.begin[2] + int(at[2])};
    if (!tile.inside(i, pooling.axis, &Axis::input)) return;
    int position = 0, count[3];
#pragma unroll
    for (int d = 0; d < 3; d++) {
      const int first = tile.first_window(pooling, d, i[d]);
      position = position * int(sources[d].divisor) + first - low[d];
      // The last window may begin after the input.
      count[d] = a.tile.covering[d];
      count[d] -= (first + count[d] - 1) * axis[d].stride - axis[d].padding > i[d];
    }
    COMPUTE sum[P];
#pragma unroll
    for (int k = 0; k < P; k++) sum[k] = 0;
    visit_window<COLUMNS>(group * a.tile.source_pitch + position, count, sources, [&](int p) {
      const Vector<COMPUTE, P> vector = shares[p];
#pragma unroll
      for (int k = 0; k < P; k++) sum[k] += vector.item[k];
    });
#pragma unroll
    for (int k = 0; k < P; k++) sum[k] *= pooling.alpha;
    write_vector<P>(a.dx + tile.offsets[group].x + tile.offset_of(i, pooling.x_stride), a.tile.x_item, tile.PACKED, P,
                    sum, pooling.beta);
  });
}

template <int P, bool CHANNELS>
__device__ __forceinline__ void backward(const AverageTileArguments& a, const BlockTile<P, CHANNELS>& tile) {
  Vector<COMPUTE, P>* const shares = reinterpret_cast<Vector<COMPUTE, P>*>(shared_memory + OFFSET_BYTES);
  int low[3];
#pragma unroll
  for (int d = 0; d < 3; d++) low[d] = tile.first_window(a.pooling, d, tile.begin[d]);
  read_shares(a, tile, low, shares);
  __syncthreads();
  const Axis& along = a.pooling.axis[2];
  with_columns(along.window == a.tile.covering[2] * along.stride ? a.tile.covering[2] : 0,
               [&](auto columns) { gather<decltype(columns)::value>(a, tile, low, shares); });
}

extern "C" __global__ void __launch_bounds__(256) pooling_generic_average_backward_tile(const AverageTileArguments a) {
  griddepcontrol_wait();
  with_tile<true>(a.tile, [&](const auto& tile) { backward(a, tile); });
}
