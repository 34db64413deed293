// These kernels compute the gradient (4.1.18) of maxima with a static window (pooling/static_window.cuh).
//
// Tiling: a block takes windows of axes 1 and 2 and slides along axis 0 (the height of images). Each thread owns a tile
// of windows along axis 2 with CHANNELS channels, and finds the first maximum of each window once. Maxima of planes
// that the next window shares stay in registers. Threads publish the indices and gradients of their windows in shared
// memory. Every input sums the gradients of the windows over it in a fixed order. Only the windows in the halo of a
// block are scanned twice. Half processes two windows at once (fp16x2). Roofline bound: bytes, x and dy are read, dx is
// written. In the time of an input's bytes (3x3x3, stride 2) an H200 issues 60 instructions in float and 30 in half;
// this takes 15 to 20, at an occupancy of about 16 warps. 64x256x56x56 float NHWC takes 116 us on an H200, which is 94
// % of a copy's throughput.
#include "pooling/max_backward/max_backward.cuh"

constexpr bool AHEAD = STAGES == 1;  // whether the next step's loads are in flight while windows are scanned

template <class Access, bool PROPAGATES> __device__ __forceinline__ void slide(const MaximumArguments& a) {
  using S = ThreadTile<Access>;
  using Axis1 = typename S::Axis1;
  using Axis2 = typename S::Axis2;
  using Group = typename S::Group;
  using Cells = typename S::Cells;
  constexpr int TILE2 = Access::TILE2, CHANNELS = Access::CHANNELS, LINES = S::LINES, COLUMNS = S::COLUMNS;
  constexpr bool SINGLE = Access::ROWS && Access::X_VECTOR == 1;  // Single elements launch no dependents early.
  const Sliding& sliding = a.sliding;

  // These are the indices of the block, and of the thread's tile in it.
  unsigned segment, row_part, tile_part, group, vector_of_group, tile, row, rest;
  rest = sliding.groups.divide(blockIdx.x, group);
  rest = sliding.tile_parts.divide(rest, tile_part);
  rest = sliding.row_parts.divide(rest, row_part);
  unsigned plane_of_block = sliding.segments.divide(rest, segment) * sliding.block_planes;
  rest = sliding.group_vectors.divide(threadIdx.x, vector_of_group);
  rest = sliding.tiles.divide(rest, tile);
  unsigned plane = sliding.rows.divide(rest, row);
  unsigned vector = group * sliding.group_vectors.divisor + vector_of_group;
  bool exists = threadIdx.x < sliding.items && vector < sliding.vectors && plane_of_block + plane < sliding.planes;
  int own_row = int(row) - sliding.rows_before, own_tile = int(tile) - sliding.tiles_before;
  bool writes =
      exists && unsigned(own_row) < unsigned(sliding.block_rows) && unsigned(own_tile) < unsigned(sliding.block_tiles);
  int tile1 = int(row_part) * sliding.block_rows + own_row, tile2 = int(tile_part) * sliding.block_tiles + own_tile;

  // Published cells are double buffered, and surrounded by cells of windows that do not exist.
  unsigned pitch = sliding.group_vectors.divisor, line_pitch = pitch * (sliding.tiles.divisor + S::TILES - 1);
  unsigned count = sliding.block_planes * (sliding.rows.divisor + S::ROWS - 1) * line_pitch;
  Cells *const first_published = reinterpret_cast<Cells*>(shared_memory), *published = first_published;
  for (unsigned k = threadIdx.x; k < 2 * count; k += blockDim.x)
#pragma unroll
    for (int g = 0; g < S::GROUPS; g++) published[k].of[g] = {Group::broadcast(Group::NONE), 0};
  unsigned corner =
      exists || threadIdx.x < sliding.items
          ? (plane * (sliding.rows.divisor + S::ROWS - 1) + row) * line_pitch + tile * pitch + vector_of_group
          : 0;
  unsigned mine = corner + S::ROWS_BEFORE * line_pitch + S::TILES_BEFORE * pitch;

  int x_offset = int(min(vector, sliding.vectors - 1)) * CHANNELS, y_offset = x_offset;
  sliding.add_plane(min(plane_of_block + plane, sliding.planes - 1), x_offset, y_offset);
  const View<Access> view(sliding, sliding.x_stride[1], Access::along(sliding.x_stride[2]), tile1, tile2);
  const int x_plane = x_offset;
  int o2 = tile2 * TILE2, i1 = tile1 * S1, i2 = tile2 * COLUMNS;
  x_offset += i1 * sliding.x_stride[1] + i2 * Access::along(sliding.x_stride[2]);
  y_offset += tile1 * sliding.y_stride[1] + o2 * Access::along(sliding.y_stride[2]);
  bool has_windows = exists && unsigned(tile1) < unsigned(sliding.output[1]);

  Lines<Access> lines[S0];
  // The gradients dy of a thread's windows are in flight; along rows, positions and their channels are one sequence.
  constexpr int DY_COUNT = Access::ROWS ? TILE2 * CHANNELS : TILE2, DY_CHANNELS = Access::ROWS ? 1 : CHANNELS,
                EACH = Access::ROWS ? CHANNELS : 1;
  Line<DY_CHANNELS, 0, DY_COUNT> in_flight;
  Maxima<Access> carried[CARRIED ? CARRIED : 1];
  COMPUTE sums[K0][LINES][COLUMNS][CHANNELS];
#pragma unroll
  for (int n = 0; n < K0 * LINES * COLUMNS * CHANNELS; n++) (&sums[0][0][0][0])[n] = 0;
  int own = segment * sliding.block_steps, step = max(own - BEFORE0, 0),
      end = min(own + sliding.block_steps, sliding.steps);
  auto plane_exists = [&](int i0) { return unsigned(i0) < unsigned(sliding.input[0]); };
  auto read_step = [&](int o0, auto& into) {
#pragma unroll
    for (int k = 0; k < S0; k++) {
      int i0 = o0 * S0 - P0 + CARRIED + k;
      if (plane_exists(i0)) into[k].read(a.x, x_plane + i0 * sliding.x_stride[0], view);
    }
    const ELEMENT* from = a.dy + (y_offset + o0 * sliding.y_stride[0]);
    bool exists_dy = has_windows && unsigned(o0) < unsigned(sliding.output[0]);
    int along = Access::ROWS ? 1 : sliding.y_stride[2], at = o2 * EACH, extent = sliding.output[2] * EACH;
    if (TILE2 > 1 && CHANNELS == 1 && sliding.y_packed)
      in_flight.template read<DY_COUNT, TILE2>(from, along, at, extent, exists_dy, ELEMENT(0));
    else in_flight.template read<DY_COUNT, 1>(from, along, at, extent, exists_dy, ELEMENT(0));
  };
  if (sliding.prefetches) prefetch_steps<Access>(a, step, exists, has_windows, x_offset, y_offset, tile1, tile2);
  griddepcontrol_wait_before_access(a.x + x_plane, a.dy + y_offset);
#pragma unroll
  for (int k = 0; k < CARRIED; k++) {
    int i0 = step * S0 - P0 + k;
    if (plane_exists(i0)) {
      lines[0].read(a.x, x_plane + i0 * sliding.x_stride[0], view);
      lines[0].template scan<PROPAGATES>(view, carried[k]);
    } else {
      Lines<Access>::template skip<PROPAGATES>(carried[k]);
    }
  }
  read_step(step, lines);
  if (!SINGLE) griddepcontrol_launch_dependents();
  __syncthreads();
#pragma unroll 1
  for (; step < end; step++) {
    int i0 = step * S0 - P0;
    Lines<Access> next[S0];
    Line<DY_CHANNELS, 0, DY_COUNT> dy_values = in_flight;
    if (AHEAD && step + 1 < end) read_step(step + 1, next);
    Maxima<Access> planes[K0];
#pragma unroll
    for (int k = 0; k < K0; k++)
      if (k < CARRIED) planes[k] = carried[k];
      else if (plane_exists(i0 + k)) lines[k - CARRIED].template scan<PROPAGATES>(view, planes[k]);
      else Lines<Access>::template skip<PROPAGATES>(planes[k]);
#pragma unroll
    for (int k = 0; k < CARRIED; k++) carried[k] = planes[S0 + k];
    Cells cells;
#pragma unroll
    for (int g = 0; g < S::GROUPS; g++) {
      auto value = planes[0].value[g];
      auto where = planes[0].where[g];
#pragma unroll
      for (int k = 1; k < K0; k++)
        Group::template take<PROPAGATES>(value, where, planes[k].value[g],
                                         planes[k].where[g] + Group::broadcast(index_of(k, 0, 0)));
      if (!PROPAGATES) where = Group::valid(value, where);
      ELEMENT items[S::SIZE];
#pragma unroll
      for (int n = 0; n < S::SIZE; n++)
        items[n] = dy_values.item[(g * S::SIZE + n) / DY_CHANNELS][(g * S::SIZE + n) % DY_CHANNELS];
      cells.of[g] = {where, Group::dy_value(items)};
    }
    if (S::ROWS * S::TILES > 1 && exists) published[mine] = cells;
    if (!AHEAD && step + 1 < end) read_step(step + 1, lines);
    if (S::ROWS * S::TILES > 1) __syncthreads();

#pragma unroll
    for (int w1 = 0; w1 < S::ROWS; w1++)
#pragma unroll
      for (int s = 0; s < S::TILES; s++)
#pragma unroll
        for (int g = 0; g < S::GROUPS; g++) {
          const int tile_distance = s - S::TILES_BEFORE;
          if (!S::reaches(tile_distance, g)) continue;
          bool is_mine = w1 == S::ROWS_BEFORE && tile_distance == 0;
          typename S::Cell cell = is_mine ? cells.of[g] : published[corner + w1 * line_pitch + s * pitch].of[g];
          COMPUTE dy_values[S::SIZE];
          Group::values_of(cell.dy_value, dy_values);
#pragma unroll
          for (int k0 = 0; k0 < K0; k0++)
#pragma unroll
            for (int k1 = 0; k1 < K1; k1++) {
              int line = (Axis1::FIRST + w1) * S1 - P1 + k1;
              if (line < 0 || line >= LINES) continue;
#pragma unroll
              for (int k2 = 0; k2 < K2; k2++) {
                COMPUTE* into[S::SIZE];
#pragma unroll
                for (int n = 0; n < S::SIZE; n++) {
                  int item = g * S::SIZE + n, column = S::column(tile_distance, item, k2);
                  into[n] = S::inside(tile_distance, item, k2) ? &sums[k0][line][column][item % CHANNELS] : nullptr;
                }
                if (S::inside(tile_distance, g * S::SIZE, k2) ||
                    S::inside(tile_distance, g * S::SIZE + S::SIZE - 1, k2))
                  Group::scatter(cell.where, index_of(k0, k1, k2), dy_values, into);
              }
            }
        }

    // Sums that no later window reaches are written; other sums move on to the next step.
    if (step >= own) {
#pragma unroll
      for (int k = 0; k < S0; k++)
#pragma unroll
        for (int line = 0; line < LINES; line++) {
          bool written = writes && plane_exists(i0 + k) && unsigned(i1 + line) < unsigned(sliding.input[1]);
          ELEMENT* dx = a.dx + (x_offset + (i0 + k) * sliding.x_stride[0] + line * sliding.x_stride[1]);
          int left = written ? sliding.input[2] - i2 : 0;
          if constexpr (Access::ROWS)
            write_row<Access::X_VECTOR>(dx, 1, left * CHANNELS,
                                        reinterpret_cast<COMPUTE(&)[COLUMNS * CHANNELS][1]>(sums[k][line]), a.alpha,
                                        a.beta);
          else write_row<1>(dx, sliding.x_stride[2], left, sums[k][line], a.alpha, a.beta);
        }
    }
#pragma unroll
    for (int k = 0; k < K0; k++)
#pragma unroll
      for (int line = 0; line < LINES; line++)
#pragma unroll
        for (int c = 0; c < COLUMNS; c++)
#pragma unroll
          for (int i = 0; i < CHANNELS; i++)
            sums[k][line][c][i] = k + S0 < K0 ? sums[k + S0 < K0 ? k + S0 : k][line][c][i] : COMPUTE(0);
    if (AHEAD)
#pragma unroll
      for (int k = 0; k < S0; k++) lines[k] = next[k];
    published = published == first_published ? first_published + count : first_published;
  }
}

template <class Access> __device__ __forceinline__ void slide(const MaximumArguments& a) {
  a.propagate ? slide<Access, true>(a) : slide<Access, false>(a);
}

#define KERNEL(name, Access)                                    \
  extern "C" __global__ void __launch_bounds__(THREADS, BLOCKS) \
      pooling_max_backward_##name(const MaximumArguments a) {   \
    griddepcontrol_wait_deferred();                             \
    slide<Access>(a);                                           \
  }
FOR_EVERY_ACCESS(KERNEL)
