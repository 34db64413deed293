// This kernel computes the gradient (4.1.18) of an average over a plane: dx = alpha * dy / divisor + beta * dx.
//
// Tiling: each thread reads one value, or 16 bytes of channels, and writes it many times, 16 bytes per store.
// Roofline bound: bytes, dx is written once; dy is smaller by the size of a plane.
// On an H200, 64x256x56x56 half NCHW takes 24.8 us, which is 98 % of a copy's throughput.
#include "pooling/global_window.cuh"

struct GlobalArguments {
  const ELEMENT* dy;
  ELEMENT* dx;
  GlobalPlanes planes;
  COMPUTE alpha, beta, reciprocal;
};

// Writes `value`, blended if `blends`, to target(k) for k = first, first + step, ... < end, in accesses of type T.
template <class T, class Target, class Blend>
__device__ __forceinline__ void write_all(unsigned first, unsigned end, unsigned step, bool blends, const T& value,
                                          Target target, Blend blended) {
  if (!blends) {
#pragma unroll 8
    for (unsigned k = first; k < end; k += step) *target(k) = value;
    return;
  }
#pragma unroll 4
  for (unsigned k = first; k < end; k += step) *target(k) = blended(*target(k));
}

template <bool SMALL_GRID> __device__ __forceinline__ void fill_rows(const GlobalArguments& a) {
  const GlobalPlanes& planes = a.planes;
  unsigned team = 1u << planes.team_bits, member = threadIdx.x & (team - 1);
  unsigned plane = (blockIdx.x * blockDim.x + threadIdx.x) >> planes.team_bits;
  if (plane >= planes.count) return;
  long long x_offset = 0, y_offset = 0;
  planes.offsets(plane, x_offset, y_offset);
  ELEMENT* dx = a.dx + x_offset;
  if (SMALL_GRID) griddepcontrol_wait_before_access(a.dy + y_offset, dx + member);
  COMPUTE share = a.alpha * (load<COMPUTE>(a.dy[y_offset]) * a.reciprocal);
  bool blends = a.beta != COMPUTE(0);
  ELEMENT one = store<ELEMENT>(share);
  auto blended = [&](ELEMENT prior) { return store<ELEMENT>(share + a.beta * load<COMPUTE>(prior)); };
  auto fill_row = [&](ELEMENT* row, unsigned lane, unsigned lanes) {
    Stretch stretch(row, planes.columns);
    Wide wide;
#pragma unroll
    for (int i = 0; i < WIDTH; i++) wide.item[i] = one;
    Wide* vectors = reinterpret_cast<Wide*>(row + stretch.head);
    write_all(
        lane, stretch.vectors, lanes, blends, wide, [&](unsigned k) { return vectors + k; },
        [&](Wide prior) {
#pragma unroll
          for (int i = 0; i < WIDTH; i++) prior.item[i] = blended(prior.item[i]);
          return prior;
        });
    stretch.visit_ends(lane, lanes, [&](unsigned k) { row[k] = blends ? blended(row[k]) : one; });
  };
  if (planes.rows == 1) return fill_row(dx, member, team);
  const unsigned part = 1u << planes.column_bits, lane = member & (part - 1);
  const unsigned line = member >> planes.column_bits, step = team >> planes.column_bits;
  if (planes.over_gaps) {  // Short rows with gaps are written element by element, if L2 keeps all of dx.
#pragma unroll 1
    for (unsigned column = lane; column < planes.columns; column += part)
      write_all(
          line, planes.rows, step, blends, one, [&](unsigned k) { return dx + (k * planes.row_stride + column); },
          blended);
    return;
  }
  // Part of the team writes each row with gaps, at any alignment. Prefetching the partly written sectors at its ends
  // saves separate reads when L2 evicts them.
  if (!SMALL_GRID && !blends && lane < 2)
#pragma unroll 4
    for (unsigned k = line; k < planes.rows; k += step)
      prefetch_line_l2(dx + (k * planes.row_stride + (lane == 0 ? 0 : planes.columns - 1)));
#pragma unroll 2
  for (unsigned k = line; k < planes.rows; k += step) fill_row(dx + k * planes.row_stride, lane, part);
}

template <bool SMALL_GRID> __device__ __forceinline__ void fill_channels(const GlobalArguments& a) {
  const GlobalPlanes& planes = a.planes;
  unsigned block_vectors = 1u << planes.team_bits, slice = threadIdx.x >> planes.team_bits,
           slices = blockDim.x >> planes.team_bits;
  unsigned groups = (planes.count + block_vectors - 1) >> planes.team_bits, part = blockIdx.x / groups;
  unsigned index = (blockIdx.x - part * groups) * block_vectors + (threadIdx.x & (block_vectors - 1));
  if (index >= planes.count) return;
  long long x_offset, y_offset;
  planes.vector_offsets(index, x_offset, y_offset);
  if (SMALL_GRID) griddepcontrol_wait_before_access(a.dy + y_offset, a.dx + x_offset);
  Wide wide = *reinterpret_cast<const Wide*>(a.dy + y_offset);
  COMPUTE share[WIDTH];
#pragma unroll
  for (int i = 0; i < WIDTH; i++) {
    share[i] = a.alpha * (load<COMPUTE>(wide.item[i]) * a.reciprocal);
    wide.item[i] = store<ELEMENT>(share[i]);
  }
  ELEMENT* dx = a.dx + x_offset;
  unsigned first = part * planes.columns, end = min(first + planes.columns, planes.rows);  // positions of the block
  write_all(
      first + slice, end, slices, a.beta != COMPUTE(0), wide,
      [&](unsigned k) { return reinterpret_cast<Wide*>(dx + k * planes.row_stride); },
      [&](Wide prior) {
#pragma unroll
        for (int i = 0; i < WIDTH; i++)
          prior.item[i] = store<ELEMENT>(share[i] + a.beta * load<COMPUTE>(prior.item[i]));
        return prior;
      });
}

// In small grids, blocks compute addresses before they wait for earlier kernels, which saves 0.1 to 0.4 us. In large
// grids most blocks have nothing to wait for, and this order would take up to 5 % longer.
template <class SmallGrid, class LargeGrid>
__device__ __forceinline__ void fill(const GlobalArguments& a, SmallGrid small_grid, LargeGrid large_grid) {
  if (grid_blocks() <= MANY_BLOCKS_BEFORE_READS) return small_grid();
  griddepcontrol_wait_only(a.dx);
  large_grid();
}
extern "C" __global__ void __launch_bounds__(1024) pooling_global_average_backward_rows(const GlobalArguments a) {
  griddepcontrol_wait_deferred();
  fill(a, [&] { fill_rows<true>(a); }, [&] { fill_rows<false>(a); });
}
extern "C" __global__ void __launch_bounds__(512) pooling_global_average_backward_channels(const GlobalArguments a) {
  griddepcontrol_wait_deferred();
  fill(a, [&] { fill_channels<true>(a); }, [&] { fill_channels<false>(a); });
}
