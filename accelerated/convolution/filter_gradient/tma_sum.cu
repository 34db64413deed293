// This kernel adds the parts of tiles that several blocks share (tma.cuh), and blends the sums into dw (6.2.2).
//
// Tiling: each thread owns four sums of a tile, or several threads of a block share the parts of four sums. The order
// of additions is fixed. Roofline bound: bytes, the parts are read once, dw is written once.
#include "convolution/filter_gradient/tma.cuh"

struct SumArguments {
  const float* partial;
  ELEMENT* dw;
  Results results;
  Division division;
  FastDivmod quads;             // groups of four sums per slot
  int log_columns, tile_boxes;  // binary logarithm of the tile's columns; boxes along its rows
  int lanes;                    // threads that share the parts of a sum: one or MAX_LANES
  int order;                    // order of the sums in a slot, an Order
};

constexpr int SUM_THREADS = 256;  // per block
constexpr int MAX_LANES = 8;      // threads that share the parts of a sum
constexpr int AT_ONCE = 6;        // reads in flight per thread

__device__ __forceinline__ void add(float4& sum, const float4& value) {
  sum.x += value.x, sum.y += value.y, sum.z += value.z, sum.w += value.w;
}

// Adds the parts of each group of four sums with LANES threads. The first of these adds their sums and blends.
// Neighbouring threads take neighbouring columns, 64 in all.
template <int LANES> __device__ __forceinline__ void sum_parts(const SumArguments& a) {
  constexpr int QUADS = SUM_THREADS / LANES;
  __shared__ float4 shared[LANES][QUADS];
  const int part = threadIdx.x / QUADS, lane = threadIdx.x % QUADS;
  unsigned index;
  const unsigned tile = a.quads.divide(blockIdx.x * QUADS + lane, index);
  const unsigned thread = index % 4 + index / 32 % 32 * 4, swath = index / 1024;
  const unsigned n = (swath << 3 & ((1u << a.log_columns) / 8 - 1)) + index / 4 % 8;
  const unsigned block = swath >> (a.log_columns - 6);
  const unsigned quad = ((block << (a.log_columns - 3)) + n) * WARPGROUP + thread;
  unsigned row_tile, column_tile;
  const unsigned group = find_tile(a.division, a.division.unsplit + tile, row_tile, column_tile);
  const unsigned row_box = row_tile * a.tile_boxes, column_box = (column_tile << a.log_columns) / BOX;
  const Order order = static_cast<Order>(a.order);
  Target rows[2], columns[2];
#pragma unroll
  for (int i = 0; i < 2; i++) {
    rows[i] = a.results.target_of_row(group, row_box, row_of(order, block, thread, i));
    columns[i] = a.results.target_of_column(group, column_box, column_of(order, n, thread) + i);
  }
  long long offsets[2][2];
  bool any = false;
#pragma unroll
  for (int i = 0; i < 4; i++) any |= (offsets[i / 2][i % 2] = a.results.locate(rows[i / 2], columns[i % 2])) >= 0;

  const Slots parts(a.division, tile);
  const float4* slots = reinterpret_cast<const float4*>(a.partial) + quad;
  const unsigned count = any ? parts.count : 0;
  float4 sum = make_float4(0, 0, 0, 0);
  griddepcontrol_wait_before_access(slots);
  for (unsigned i = part; i < count; i += AT_ONCE * LANES) {
    float4 loaded[AT_ONCE];
#pragma unroll
    for (int u = 0; u < AT_ONCE; u++) {
      if (i + u * LANES >= count) break;
      loaded[u] = slots[static_cast<long long>(parts[i + u * LANES]) * a.quads.divisor];
    }
#pragma unroll
    for (int u = 0; u < AT_ONCE; u++) {
      if (i + u * LANES >= count) break;
      add(sum, loaded[u]);
    }
  }
  if constexpr (LANES > 1) {
    shared[part][lane] = sum;
    __syncthreads();
    if (part > 0) return;
#pragma unroll
    for (int i = 1; i < LANES; i++) add(sum, shared[i][lane]);
  }

  blend_quad(a.results, a.dw, sum, offsets);
}

extern "C" __global__ void __launch_bounds__(SUM_THREADS) convolution_filter_gradient_tma_sum(const SumArguments a) {
  griddepcontrol_wait_deferred();
  if (a.lanes > 1) sum_parts<MAX_LANES>(a);
  else sum_parts<1>(a);
}
