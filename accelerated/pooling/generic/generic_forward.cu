// These kernels compute forward pooling (3.2.69) with any window in generic layouts; static and global windows have
// other kernels.
//
// Tiling: in `tile` a block has a tile of outputs, in vectors of planes or channels, and reads x once into shared
// memory (generic_tile.cuh). In `thread`, for NHWC windows with little overlap, each thread computes 16 bytes of y. In
// `bands`, for high windows, a block reads full rows. Each thread pools vectors of some rows; windows then pool the
// columns in shared memory.
//
// Roofline bound: bytes, x is read and y written once; one operation per input of every window. For 3x3 windows an
// estimate is 50 instructions per element: 6.0 us for 32x128x28x28 float, which equals the bytes' time.
#include "pooling/generic/generic_tile.cuh"

constexpr int IN_FLIGHT = 20;  // registers per thread for loads in flight

struct ForwardArguments {
  const ELEMENT* x;
  ELEMENT* y;
  Pooling pooling;
  Walk walk;
};

// Returns the output, without beta, of a window that pools to `pooled`.
template <class Pool>
__device__ __forceinline__ COMPUTE finished(const Pooling& pooling, COMPUTE pooled, COMPUTE divisor, bool empty) {
  return pooling.alpha * (Pool::AVERAGE ? pooled / divisor : empty ? lowest<ELEMENT>() : Pool::result(pooled));
}

template <class Pool, int P> __device__ __forceinline__ void pool_window(const ForwardArguments& a) {
  const Pooling& pooling = a.pooling;
  const unsigned index = blockIdx.x * blockDim.x + threadIdx.x;
  if (index >= a.walk.vectors) return;
  int o[3];
  long long x_offset, y_offset;
  a.walk.locate(index, o, y_offset, x_offset);
  const ELEMENT* x = a.x + x_offset;
  const Window window(pooling, o);
  COMPUTE pooled[P];
#pragma unroll
  for (int i = 0; i < P; i++) pooled[i] = load<COMPUTE>(Pool::nothing());
  window.visit_part(0, 1, 0, 1, [&](int p0, int p1, int p2) {
    const long long offset = p0 * pooling.x_stride[0] + p1 * pooling.x_stride[1] + p2 * pooling.x_stride[2];
    const Vector<ELEMENT, P> vector = load_items<P, true>(x + offset, 0);
#pragma unroll
    for (int i = 0; i < P; i++) pooled[i] = Pool::both(pooled[i], load<COMPUTE>(vector.item[i]));
  });
  const bool empty = window.empty();
  const COMPUTE divisor = Pool::AVERAGE ? window.divisor(pooling) : COMPUTE(1);
  COMPUTE result[P];
#pragma unroll
  for (int i = 0; i < P; i++) result[i] = finished<Pool>(pooling, pooled[i], divisor, empty);
  write_vector<P>(a.y + y_offset, 1, true, P, result, pooling.beta);
}

extern "C" __global__ void __launch_bounds__(256, 4) pooling_generic_forward_thread(const ForwardArguments a) {
  griddepcontrol_wait();
  with_pool(a.pooling.mode, a.pooling.propagate, [&](auto pool) {
    with_width(a.walk.width, [&](auto width) { pool_window<decltype(pool), decltype(width)::value>(a); });
  });
}

struct BandArguments {
  const ELEMENT* x;
  ELEMENT* y;
  Pooling pooling;
  Walk walk;              // It walks over bands: all windows that begin in one row, of one plane or some channels.
  unsigned bands, width;  // bands per block, and elements per vector
  unsigned lane_bits;     // log2 of the threads per window
  long long step;         // elements from one position to the next (NHWC), or from one vector of a row to the next
  FastDivmod vectors, neighbours, slices;  // vectors per row, vectors per position, parts of a band's rows
  FastDivmod outputs, channels;            // outputs along axis 2, channels per band
};
struct BandPosition {
  long long y_offset;
  int at[2];  // output indices along axes 0 and 1
};

// Shared memory holds the positions of a block's bands, and their vectors pooled over rows.
template <class Pool, int P> __device__ __forceinline__ void pool_bands(const BandArguments& a) {
  const Pooling& pooling = a.pooling;
  BandPosition* const positions = reinterpret_cast<BandPosition*>(shared_memory);
  COMPUTE* const columns = reinterpret_cast<COMPUTE*>(positions + a.bands);
  const unsigned first = blockIdx.x * a.bands, bands = min(a.bands, a.walk.vectors - first),
                 row = a.vectors.divisor * P;
  const int slices = a.slices.divisor;
  for (unsigned item = threadIdx.x; item < bands * slices * a.vectors.divisor; item += blockDim.x) {
    unsigned vector, slice, neighbour;
    const unsigned band = a.slices.divide(a.vectors.divide(item, vector), slice);
    const unsigned position = a.neighbours.divide(vector, neighbour);
    int o[3];
    long long x_offset, y_offset;
    a.walk.locate(first + band, o, y_offset, x_offset);
    if (vector == 0 && slice == 0) positions[band] = {y_offset, {o[0], o[1]}};
    const Span rows(pooling.axis[0], o[0]), lines(pooling.axis[1], o[1]);
    const ELEMENT* line = a.x + (x_offset + position * a.step + neighbour * P +
                                 (rows.first + int(slice)) * pooling.x_stride[0] + lines.first * pooling.x_stride[1]);
    constexpr int FLIGHT = IN_FLIGHT / ((sizeof(Vector<ELEMENT, P>) + 3) / 4);
    const int count = a.slices.divide(max(rows.count() + slices - 1 - int(slice), 0));
    const long long hop = slices * pooling.x_stride[0];
    COMPUTE pooled[P];
#pragma unroll
    for (int i = 0; i < P; i++) pooled[i] = load<COMPUTE>(Pool::nothing());
    auto take = [&](const ELEMENT*& from, int some) {
      Vector<ELEMENT, P> taken[FLIGHT];
#pragma unroll
      for (int u = 0; u < FLIGHT; u++, from += hop)
        if (u < some) taken[u] = load_items<P, true>(from, 0);
#pragma unroll
      for (int u = 0; u < FLIGHT; u++)
        if (u < some)
#pragma unroll
          for (int i = 0; i < P; i++) pooled[i] = Pool::both(pooled[i], load<COMPUTE>(taken[u].item[i]));
    };
    for (int p1 = lines.first; p1 < lines.last; p1++, line += pooling.x_stride[1]) {
      const ELEMENT* from = line;
      int left = count;
#pragma unroll 1
      for (; left >= FLIGHT; left -= FLIGHT) take(from, FLIGHT);
      if (left > 0) take(from, left);
    }
#pragma unroll
    for (int i = 0; i < P; i++) columns[item * P + i] = pooled[i];
  }
  __syncthreads();
  const unsigned lanes = 1u << a.lane_bits, lane = threadIdx.x & (lanes - 1), channels = a.channels.divisor;
  const unsigned windows = bands * a.outputs.divisor * channels;
  for (unsigned begin = 0; begin < windows; begin += blockDim.x >> a.lane_bits) {
    const unsigned index = begin + (threadIdx.x >> a.lane_bits);
    unsigned output, channel;
    const unsigned band = a.outputs.divide(a.channels.divide(min(index, windows - 1), channel), output);
    const Span span(pooling.axis[2], output);
    COMPUTE pooled = load<COMPUTE>(Pool::nothing());
    for (int slice = 0; slice < slices; slice++)
#pragma unroll 4
      for (int p2 = span.first + int(lane); p2 < span.last; p2 += lanes)
        pooled = Pool::both(pooled, columns[(band * slices + slice) * row + p2 * channels + channel]);
    for (unsigned distance = lanes / 2; distance > 0; distance /= 2)
      pooled = Pool::both(pooled, __shfl_xor_sync(~0u, pooled, distance));
    if (index >= windows || lane > 0) continue;
    const BandPosition origin = positions[band];
    const Window window(pooling, {origin.at[0], origin.at[1], int(output)});
    const COMPUTE result[] = {
        finished<Pool>(pooling, pooled, Pool::AVERAGE ? window.divisor(pooling) : COMPUTE(1), window.empty())};
    write_vector<1>(a.y + (origin.y_offset + output * pooling.y_stride[2] + channel), 1, true, 1, result, pooling.beta);
  }
}

extern "C" __global__ void __launch_bounds__(256, 4) pooling_generic_forward_bands(const BandArguments a) {
  griddepcontrol_wait();
  with_pool(a.pooling.mode, a.pooling.propagate, [&](auto pool) {
    if (a.width == WIDTH) return pool_bands<decltype(pool), WIDTH>(a);
    if (a.width == WIDTH / 2) return pool_bands<decltype(pool), WIDTH / 2>(a);
    pool_bands<decltype(pool), 1>(a);
  });
}

struct ForwardTileArguments {
  const ELEMENT* x;
  ELEMENT* y;
  Pooling pooling;
  TileLayout tile;
};

template <class Pool, int COLUMNS, int P, bool CHANNELS>
__device__ __forceinline__ void pool(const ForwardTileArguments& a, const BlockTile<P, CHANNELS>& tile,
                                     const Vector<ELEMENT, P>* inputs) {
  const Pooling& pooling = a.pooling;
  const Axis* axis = pooling.axis;
  const FastDivmod(&sources)[3] = a.tile.sources;
  const int window[3] = {axis[0].window, axis[1].window, axis[2].window};
  tile.visit(a.tile.targets, 0, [&](unsigned group, unsigned, const unsigned (&at)[3]) {
    const int o[3] = {tile.begin[0] + int(at[0]), tile.begin[1] + int(at[1]), tile.begin[2] + int(at[2])};
    if (!tile.inside(o, pooling.axis, &Axis::output)) return;
    int position = 0;
#pragma unroll
    for (int d = 0; d < 3; d++) position = position * int(sources[d].divisor) + int(at[d]) * axis[d].stride;
    COMPUTE pooled[P];
#pragma unroll
    for (int i = 0; i < P; i++) pooled[i] = load<COMPUTE>(Pool::nothing());
    visit_window<COLUMNS>(group * a.tile.source_pitch + position, window, sources, [&](int p) {
      const Vector<ELEMENT, P> vector = inputs[p];
#pragma unroll
      for (int i = 0; i < P; i++) pooled[i] = Pool::both(pooled[i], load<COMPUTE>(vector.item[i]));
    });
    COMPUTE divisor = pooling.divisor;
    bool empty = false;
    if (Pool::AVERAGE ? divisor == COMPUTE(0) : Pool::PROPAGATES) {
      const Window clamped(pooling, o);
      divisor = clamped.divisor(pooling), empty = clamped.empty();
    }
    COMPUTE result[P];
#pragma unroll
    for (int i = 0; i < P; i++) result[i] = finished<Pool>(pooling, pooled[i], divisor, empty);
    write_vector<P>(a.y + tile.offsets[group].y + tile.offset_of(o, pooling.y_stride), a.tile.y_item, tile.PACKED, P,
                    result, pooling.beta);
  });
}

template <class Pool, int P, bool CHANNELS>
__device__ __forceinline__ void forward(const ForwardTileArguments& a, const BlockTile<P, CHANNELS>& tile) {
  Vector<ELEMENT, P>* const inputs = reinterpret_cast<Vector<ELEMENT, P>*>(shared_memory + OFFSET_BYTES);
  int origin[3];
#pragma unroll
  for (int d = 0; d < 3; d++) origin[d] = tile.begin[d] * a.pooling.axis[d].stride - a.pooling.axis[d].padding;
  tile.read_inputs(inputs, a.x, a.pooling, origin, Pool::nothing());
  __syncthreads();
  with_columns(a.pooling.axis[2].window, [&](auto columns) { pool<Pool, decltype(columns)::value>(a, tile, inputs); });
}

extern "C" __global__ void __launch_bounds__(256) pooling_generic_forward_tile(const ForwardTileArguments a) {
  griddepcontrol_wait();
  with_tile<true>(a.tile, [&](const auto& tile) {
    with_pool(a.pooling.mode, a.pooling.propagate, [&](auto pool) { forward<decltype(pool)>(a, tile); });
  });
}
