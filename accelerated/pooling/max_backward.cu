// Pooling backward (4.1.18) of maxima with a known window: see pooling/static_window.cuh; images whose rows are
// read in packs have pooling/max_backward_2d.cu and pooling/max_backward_fp16_rows.cu.
//
// Floor: bytes; x and dy are read, dx written (y is not needed: it is the maximum of x). A block takes some windows of axes 1
// and 2 of some planes and marches along axis 0 (the height of images); a thread takes a strip of windows along axis 2, of
// LANES channels. Of each window it finds the first maximum, once; what planes of a window have in common with those of the
// next one stays in registers. Then every thread tells those around it the places of its maxima and what they get, in shared
// memory, and every input is given what the windows over it leave there: a comparison and an addition for each. The order of
// these additions is fixed. Only windows at the rim of a block are looked at twice. Half takes two windows at once, neighbours
// in memory: values are chosen by masks, and a comparison makes two predicates.
//
// What limits before the bytes is instructions and the time that loads take: an H200 issues 60 for an input in the time of its
// bytes in float, 30 in half (3x3x3, stride 2); here it takes 15 to 20, but registers leave room for 16 warps or so, which issue in
// 46 % (half) to 60 % (float) of the cycles. More warps with sums of fewer planes, or planes in shared memory, took longer in
// channels (up to 19 %). Half in volumes of rows that other kernels leave to this one had 63 % of the copy with planes in shared memory. Measured on it: volumes
// 86 % of the copy in float rows, large images of channels 93 % in float (256 bytes of channels and all columns of windows of a row side by side; 88 % with half of
// both), rows of three channels 85 %. The next kernel is let in behind the first reads: 5 % of 25 us, 2 % of 60; fetching ahead saves 1 to 3 %, but costs as much in later steps.
// Where rows are read element by element, letting it in costs 12 % of 31x67x37x41 in float and saves 8 % in half. Volumes of channels, 70 % in float and 55 % in half here, have
// pooling/max_backward_3d_nhwc.cu where they are large enough to fill the device.
#include "pooling/max_backward.cuh"

constexpr bool AHEAD = STAGES == 1;  // whether what is needed next is in flight while windows are looked at

template <class Access, bool PROPAGATES> __device__ __forceinline__ void march_on(const MaximumArguments& a) {
  using S = Strip<Access>;
  using Axis1 = typename S::Axis1;
  using Axis2 = typename S::Axis2;
  using Group = typename S::Group;
  using Cells = typename S::Cells;
  constexpr int TILE2 = Access::TILE2, LANES = Access::LANES, LINES = S::LINES, COLUMNS = S::COLUMNS;
  constexpr bool SINGLE = Access::ROWS && Access::X_PACK == 1;  // elements of rows: of float the next kernel would be in the way
  const March& march = a.march;

  // The block, and the place of the thread in it.
  unsigned segment, row_part, strip_part, group, lane, strip, row, rest;
  rest = march.lane_groups.divide(blockIdx.x, group);
  rest = march.strip_parts.divide(rest, strip_part);
  rest = march.row_parts.divide(rest, row_part);
  unsigned plane_of_block = march.segments.divide(rest, segment) * march.block_planes;
  rest = march.lanes.divide(threadIdx.x, lane);
  rest = march.strips.divide(rest, strip);
  unsigned plane = march.rows.divide(rest, row);
  unsigned pack = group * march.lanes.divisor + lane;
  bool exists = threadIdx.x < march.items && pack < march.packs && plane_of_block + plane < march.planes;
  int own_row = int(row) - march.rows_before, own_strip = int(strip) - march.strips_before;
  bool writes = exists && unsigned(own_row) < unsigned(march.block_rows) && unsigned(own_strip) < unsigned(march.block_strips);
  int tile1 = int(row_part) * march.block_rows + own_row, tile2 = int(strip_part) * march.block_strips + own_strip;

  // What threads tell each other: twice, so that one is written while the other is read; around it those that do not exist.
  unsigned pitch = march.lanes.divisor, line_pitch = pitch * (march.strips.divisor + S::STRIPS - 1);
  unsigned count = march.block_planes * (march.rows.divisor + S::ROWS - 1) * line_pitch;
  Cells *const first_told = reinterpret_cast<Cells*>(shared_memory), *told = first_told;
  for (unsigned k = threadIdx.x; k < 2 * count; k += blockDim.x)
#pragma unroll
    for (int g = 0; g < S::GROUPS; g++) told[k].of[g] = {Group::everywhere(Group::NONE), 0};
  unsigned corner = exists || threadIdx.x < march.items ? (plane * (march.rows.divisor + S::ROWS - 1) + row) * line_pitch + strip * pitch + lane : 0;
  unsigned mine = corner + S::ROWS_BEFORE * line_pitch + S::STRIPS_BEFORE * pitch;

  int x_offset = int(min(pack, march.packs - 1)) * LANES, y_offset = x_offset;
  march.go_to(min(plane_of_block + plane, march.planes - 1), x_offset, y_offset);
  const View<Access> view(march, 1, march.x_stride[1], Access::along(march.x_stride[2]), tile1, tile2);
  const int x_plane = x_offset;
  int o2 = tile2 * TILE2, i1 = tile1 * S1, i2 = tile2 * COLUMNS;
  x_offset += i1 * march.x_stride[1] + i2 * Access::along(march.x_stride[2]);
  y_offset += tile1 * march.y_stride[1] + o2 * Access::along(march.y_stride[2]);
  bool gives = exists && unsigned(tile1) < unsigned(march.output[1]);

  Lines<Access> lines[S0];
  // What windows give: of rows one after the other, of their channels, too.
  constexpr int GIFTS = Access::ROWS ? TILE2 * LANES : TILE2, GIFT_LANES = Access::ROWS ? 1 : LANES, EACH = Access::ROWS ? LANES : 1;
  Line<GIFT_LANES, 0, GIFTS> coming;
  Maxima<Access> carried[CARRIED ? CARRIED : 1];
  COMPUTE sums[K0][LINES][COLUMNS][LANES];
#pragma unroll
  for (int n = 0; n < K0 * LINES * COLUMNS * LANES; n++) (&sums[0][0][0][0])[n] = 0;
  int own = segment * march.block_steps, step = max(own - BEFORE0, 0), end = min(own + march.block_steps, march.steps);
  auto plane_exists = [&](int i0) { return unsigned(i0) < unsigned(march.input[0]); };
  auto read_step = [&](int o0, auto& into) {
#pragma unroll
    for (int k = 0; k < S0; k++) {
      int i0 = o0 * S0 - P0 + CARRIED + k;
      if (plane_exists(i0)) into[k].read(a.x, x_plane + i0 * march.x_stride[0], view);
    }
    const ELEMENT* from = a.dy + (y_offset + o0 * march.y_stride[0]);
    bool given = gives && unsigned(o0) < unsigned(march.output[0]);
    int along = Access::ROWS ? 1 : march.y_stride[2], at = o2 * EACH, extent = march.output[2] * EACH;
    if (TILE2 > 1 && LANES == 1 && march.y_packed)
      coming.template read<GIFTS, TILE2>(from, along, at, extent, given, ELEMENT(0));
    else
      coming.template read<GIFTS, 1>(from, along, at, extent, given, ELEMENT(0));
  };
  if (march.fetches) fetch_steps<Access>(a, step, exists, gives, x_offset, y_offset, tile1, tile2);
  griddepcontrol_wait_before_access(a.x + x_plane, a.dy + y_offset);
#pragma unroll
  for (int k = 0; k < CARRIED; k++) {
    int i0 = step * S0 - P0 + k;
    if (plane_exists(i0)) {
      lines[0].read(a.x, x_plane + i0 * march.x_stride[0], view);
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
    Line<GIFT_LANES, 0, GIFTS> gifts = coming;
    if (AHEAD && step + 1 < end) read_step(step + 1, next);
    Maxima<Access> planes[K0];
#pragma unroll
    for (int k = 0; k < K0; k++)
      if (k < CARRIED)
        planes[k] = carried[k];
      else if (plane_exists(i0 + k))
        lines[k - CARRIED].template scan<PROPAGATES>(view, planes[k]);
      else
        Lines<Access>::template skip<PROPAGATES>(planes[k]);
#pragma unroll
    for (int k = 0; k < CARRIED; k++) carried[k] = planes[S0 + k];
    Cells cells;
#pragma unroll
    for (int g = 0; g < S::GROUPS; g++) {
      auto value = planes[0].value[g];
      auto where = planes[0].where[g];
#pragma unroll
      for (int k = 1; k < K0; k++)
        Group::template take<PROPAGATES>(value, where, planes[k].value[g], planes[k].where[g] + Group::everywhere(place_of(k, 0, 0)));
      if (!PROPAGATES) where = Group::known(value, where);
      ELEMENT items[S::SIZE];
#pragma unroll
      for (int n = 0; n < S::SIZE; n++) items[n] = gifts.item[(g * S::SIZE + n) / GIFT_LANES][(g * S::SIZE + n) % GIFT_LANES];
      cells.of[g] = {where, Group::gift(items)};
    }
    if (S::ROWS * S::STRIPS > 1 && exists) told[mine] = cells;
    if (!AHEAD && step + 1 < end) read_step(step + 1, lines);
    if (S::ROWS * S::STRIPS > 1) __syncthreads();

#pragma unroll
    for (int w1 = 0; w1 < S::ROWS; w1++)
#pragma unroll
      for (int s = 0; s < S::STRIPS; s++)
#pragma unroll
        for (int g = 0; g < S::GROUPS; g++) {
          const int strip_distance = s - S::STRIPS_BEFORE;
          if (!S::reaches(strip_distance, g)) continue;
          bool is_mine = w1 == S::ROWS_BEFORE && strip_distance == 0;
          typename S::Cell cell = is_mine ? cells.of[g] : told[corner + w1 * line_pitch + s * pitch].of[g];
          COMPUTE gifts[S::SIZE];
          Group::numbers(cell.gift, gifts);
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
                  int item = g * S::SIZE + n, column = S::column(strip_distance, item, k2);
                  into[n] = S::inside(strip_distance, item, k2) ? &sums[k0][line][column][item % LANES] : nullptr;
                }
                if (S::inside(strip_distance, g * S::SIZE, k2) || S::inside(strip_distance, g * S::SIZE + S::SIZE - 1, k2))
                  Group::give(cell.where, place_of(k0, k1, k2), gifts, into);
              }
            }
        }

    // What no later window reaches is written, the rest moves on.
    if (step >= own) {
#pragma unroll
      for (int k = 0; k < S0; k++)
#pragma unroll
        for (int line = 0; line < LINES; line++) {
          bool written = writes && plane_exists(i0 + k) && unsigned(i1 + line) < unsigned(march.input[1]);
          ELEMENT* dx = a.dx + (x_offset + (i0 + k) * march.x_stride[0] + line * march.x_stride[1]);
          int left = written ? march.input[2] - i2 : 0;
          if constexpr (Access::ROWS)
            write_line<Access::X_PACK>(dx, 1, left * LANES, reinterpret_cast<COMPUTE(&)[COLUMNS * LANES][1]>(sums[k][line]), a.alpha, a.beta);
          else
            write_line<1>(dx, march.x_stride[2], left, sums[k][line], a.alpha, a.beta);
        }
    }
#pragma unroll
    for (int k = 0; k < K0; k++)
#pragma unroll
      for (int line = 0; line < LINES; line++)
#pragma unroll
        for (int c = 0; c < COLUMNS; c++)
#pragma unroll
          for (int i = 0; i < LANES; i++) sums[k][line][c][i] = k + S0 < K0 ? sums[k + S0 < K0 ? k + S0 : k][line][c][i] : COMPUTE(0);
    if (AHEAD)
#pragma unroll
      for (int k = 0; k < S0; k++) lines[k] = next[k];
    told = told == first_told ? first_told + count : first_told;
  }
}

template <class Access> __device__ __forceinline__ void march_on(const MaximumArguments& a) {
  a.propagate ? march_on<Access, true>(a) : march_on<Access, false>(a);
}

extern "C" __global__ void __launch_bounds__(THREADS, BLOCKS) pooling_max_backward_wide(const MaximumArguments a) {
  griddepcontrol_wait_deferred();
  march_on<Wide>(a);
}
extern "C" __global__ void __launch_bounds__(THREADS, BLOCKS) pooling_max_backward_narrow(const MaximumArguments a) {
  griddepcontrol_wait_deferred();
  march_on<Narrow>(a);
}
extern "C" __global__ void __launch_bounds__(THREADS, BLOCKS) pooling_max_backward_loose(const MaximumArguments a) {
  griddepcontrol_wait_deferred();
  march_on<Loose>(a);
}
extern "C" __global__ void __launch_bounds__(THREADS, BLOCKS) pooling_max_backward_channels(const MaximumArguments a) {
  griddepcontrol_wait_deferred();
  march_on<Channels>(a);
}
extern "C" __global__ void __launch_bounds__(THREADS, BLOCKS) pooling_max_backward_scattered(const MaximumArguments a) {
  griddepcontrol_wait_deferred();
  march_on<Scattered>(a);
}
