// Pooling backward (4.1.18) of maxima with a known window: as pooling_known_maximum.cu, but planes of x come to shared memory, STAGES
// steps at a time, without registers, which leaves room for more warps.
//
// Floor: bytes; x and dy are read, dx written. What limits before them is instructions: copies and what is read back take some more of
// them, so that this pays where registers were what kept warps away. Measured on an H200: half in volumes of rows (of which those that a
// warp holds have pooling_known_maximum_halves_planes.cu) 63 % of the copy,
// with 24 to 28 warps of a multiprocessor, which issue in 56 % of the cycles (without: 58 %, 16 warps); half in images of channels 80 to 83 %.
#include "async_copies.cuh"
#include "pooling_maximum.cuh"

// What a block holds of a plane of x in shared memory: the lines and columns that the windows of its tiles cover. Every thread
// copies what lies between the starts of its windows, those at the rim also what lies beside.
template <class Access> struct Held {
  using S = Strip<Access>;
  static constexpr bool ROWS = Access::ROWS;
  static constexpr int LANES = Access::LANES, CHUNK = ROWS ? Access::X_PACK : LANES, BYTES = CHUNK * sizeof(ELEMENT);
  static_assert(STAGES > 1 && BYTES >= 4, "the least that is copied without registers");
  // In chunks: of a thread, before and after it.
  static constexpr int OWN = S::COLUMNS * LANES / CHUNK, SIDE = ROWS ? LANES : 1, WIDTH = ROWS ? CHUNK : 1;
  static constexpr int BEFORE2 = (P2 * SIDE + WIDTH - 1) / WIDTH, AFTER2 = ((K2 - S2 - P2 > 0 ? K2 - S2 - P2 : 0) * SIDE + WIDTH - 1) / WIDTH;
  static constexpr int BEFORE1 = P1, AFTER1 = K1 - S1 - P1 > 0 ? K1 - S1 - P1 : 0;
  static constexpr int COPIES2 = BEFORE2 + OWN + AFTER2, COPIES = (BEFORE1 + S::LINES + AFTER1) * COPIES2;
  static_assert(COPIES <= 32, "a bit for each copy");

  const ELEMENT* from;  // in the first plane of x: the thread's first chunk
  int to;               // the same in shared memory, in bytes
  int line, chunk;      // distances in x
  int to_line, to_chunk;
  unsigned wanted;      // which copies the thread makes

  static constexpr int line_of(int n) { return n / COPIES2 - BEFORE1; }
  static constexpr int chunk_of(int n) { return n % COPIES2 - BEFORE2; }
  static constexpr bool owned(int n) { return line_of(n) >= 0 && line_of(n) < S::LINES && chunk_of(n) >= 0 && chunk_of(n) < OWN; }
  static constexpr unsigned beside() {
    unsigned bits = 0;
    for (int n = 0; n < COPIES; n++)
      if (!owned(n)) bits |= 1u << n;
    return bits;
  }

  // Copies a plane at a distance from the first one.
  __device__ __forceinline__ void copy(unsigned char* stage, int distance) const {
    copy<true>(stage + to, from + distance);
    if (wanted & beside()) copy<false>(stage + to, from + distance);
  }

 private:
  template <bool OWNED> __device__ __forceinline__ void copy(unsigned char* stage, const ELEMENT* plane) const {
#pragma unroll
    for (int n = 0; n < COPIES; n++)
      if (owned(n) == OWNED && (wanted >> n & 1))
        copy_async<BYTES>(stage + (line_of(n) * to_line + chunk_of(n) * to_chunk), plane + (line_of(n) * line + chunk_of(n) * chunk), true);
  }
};

template <class Access, bool PROPAGATES> __device__ __forceinline__ void march_on(const MaximumArguments& a) {
  using S = Strip<Access>;
  using Axis1 = typename S::Axis1;
  using Axis2 = typename S::Axis2;
  using Group = typename S::Group;
  using Cells = typename S::Cells;
  using Stage = Held<Access>;
  constexpr int TILE2 = Access::TILE2, LANES = Access::LANES, LINES = S::LINES, COLUMNS = S::COLUMNS;
  constexpr bool TELLS = S::ROWS * S::STRIPS > 1;
  constexpr int AT_ONCE = 1;  // planes whose sums registers hold
  const March& march = a.march;

  // The block, and the place of the thread in it.
  unsigned segment, row_part, strip_part, group, lane, strip, row, rest;
  rest = march.lane_groups.divide(blockIdx.x, group);
  rest = march.strip_parts.divide(rest, strip_part);
  rest = march.row_parts.divide(rest, row_part);
  unsigned plane_of_block = march.segments.divide(rest, segment) * march.block_planes;
  bool exists = threadIdx.x < march.items;
  rest = march.lanes.divide(exists ? threadIdx.x : 0, lane);
  rest = march.strips.divide(rest, strip);
  unsigned plane = march.rows.divide(rest, row);
  unsigned pack = group * march.lanes.divisor + lane;
  exists = exists && pack < march.packs && plane_of_block + plane < march.planes;
  int first_row = int(row_part) * march.block_rows - march.rows_before, first_strip = int(strip_part) * march.block_strips - march.strips_before;
  int own_row = int(row) - march.rows_before, own_strip = int(strip) - march.strips_before;
  bool writes = exists && unsigned(own_row) < unsigned(march.block_rows) && unsigned(own_strip) < unsigned(march.block_strips);
  int tile1 = first_row + int(row), tile2 = first_strip + int(strip);

  // What threads tell each other: twice, so that one is written while the other is read; around it those that do not exist.
  unsigned pitch = march.lanes.divisor, line_pitch = pitch * (march.strips.divisor + S::STRIPS - 1);
  unsigned count = march.block_planes * (march.rows.divisor + S::ROWS - 1) * line_pitch;
  Cells *const first_told = reinterpret_cast<Cells*>(shared_memory + march.told_bytes), *told = first_told;
  if (TELLS)
    for (unsigned k = threadIdx.x; k < 2 * count; k += blockDim.x)
#pragma unroll
      for (int g = 0; g < S::GROUPS; g++) told[k].of[g] = {Group::everywhere(Group::NONE), 0};
  unsigned corner = (plane * (march.rows.divisor + S::ROWS - 1) + row) * line_pitch + strip * pitch + lane;
  unsigned mine = corner + S::ROWS_BEFORE * line_pitch + S::STRIPS_BEFORE * pitch;

  int x_offset = int(min(pack, march.packs - 1)) * LANES, y_offset = x_offset;
  march.go_to(min(plane_of_block + plane, march.planes - 1), x_offset, y_offset);
  int o2 = tile2 * TILE2, i1 = tile1 * S1, i2 = tile2 * COLUMNS;
  x_offset += i1 * march.x_stride[1] + i2 * Access::along(march.x_stride[2]);
  y_offset += tile1 * march.y_stride[1] + o2 * Access::along(march.y_stride[2]);
  bool gives = exists && unsigned(tile1) < unsigned(march.output[1]);

  // Stages, each for the planes that are new in a step; where line 0 and column 0 of x are in a plane there.
  constexpr int UNIT = sizeof(ELEMENT);
  const int stage_bytes = S0 * march.plane_items * UNIT, plane_bytes = march.plane_items * UNIT, along = Access::ROWS ? LANES : int(pitch) * LANES;
  const int origin = (int(plane) * (int(march.rows.divisor) * S1 + K1 - S1) + Stage::BEFORE1 - first_row * S1) * march.line_items +
                     Stage::BEFORE2 * (Access::ROWS ? Stage::CHUNK : along) - first_strip * COLUMNS * along + (Access::ROWS ? 0 : int(lane) * LANES);
  const View<Access> view(march, UNIT, march.line_items, along, tile1, tile2);
  Stage stage;
  {
    const int chunk = Access::ROWS ? Stage::CHUNK : along, chunks = march.input[2] * Stage::SIDE / Stage::WIDTH;
    stage = {a.x + x_offset, (origin + i1 * march.line_items + i2 * along) * UNIT, march.x_stride[1], Access::ROWS ? Stage::CHUNK : march.x_stride[2], march.line_items * UNIT, chunk * UNIT, 0};
#pragma unroll
    for (int n = 0; n < Stage::COPIES; n++) {
      int l = Stage::line_of(n), c = Stage::chunk_of(n);
      bool mine1 = l < 0 ? row == 0 : l < LINES || row + 1 == march.rows.divisor, mine2 = c < 0 ? strip == 0 : c < Stage::OWN || strip + 1 == march.strips.divisor;
      if (exists && mine1 && mine2 && unsigned(i1 + l) < unsigned(march.input[1]) && unsigned(tile2 * Stage::OWN + c) < unsigned(chunks)) stage.wanted |= 1u << n;
    }
  }

  // What windows give: of rows one after the other, of their channels, too.
  constexpr int GIFTS = Access::ROWS ? TILE2 * LANES : TILE2, GIFT_LANES = Access::ROWS ? 1 : LANES, EACH = Access::ROWS ? LANES : 1;
  Line<GIFT_LANES, 0, GIFTS> coming;
  Lines<Access> lines[S0];
  Maxima<Access> carried[CARRIED ? CARRIED : 1];
  COMPUTE carried_sums[CARRIED ? CARRIED : 1][LINES][COLUMNS][LANES];
#pragma unroll
  for (int n = 0; n < CARRIED * LINES * COLUMNS * LANES; n++) (&carried_sums[0][0][0][0])[n] = 0;
  int own = segment * march.block_steps, step = max(own - BEFORE0, 0), end = min(own + march.block_steps, march.steps);
  auto plane_exists = [&](int i0) { return unsigned(i0) < unsigned(march.input[0]); };
  // The planes that are new in a step.
  auto read_step = [&](int o0, int into) {
#pragma unroll
    for (int k = 0; k < S0; k++) {
      int i0 = o0 * S0 - P0 + CARRIED + k;
      if (o0 < end && plane_exists(i0)) stage.copy(shared_memory + (into * stage_bytes + k * plane_bytes), i0 * march.x_stride[0]);
    }
    end_copies();
  };
  auto read_gifts = [&](int o0) {
    const ELEMENT* from = a.dy + (y_offset + o0 * march.y_stride[0]);
    bool given = gives && unsigned(o0) < unsigned(march.output[0]);
    int apart = Access::ROWS ? 1 : march.y_stride[2], at = o2 * EACH, extent = march.output[2] * EACH;
    if (TILE2 > 1 && LANES == 1 && march.y_packed)
      coming.template read<GIFTS, TILE2>(from, apart, at, extent, given, ELEMENT(0));
    else
      coming.template read<GIFTS, 1>(from, apart, at, extent, given, ELEMENT(0));
  };
  auto scan = [&](int k, int slot, bool there, Maxima<Access>& into) {
    if (!there) return Lines<Access>::template skip<PROPAGATES>(into);
    lines[k].read(shared_memory, slot + origin * UNIT, view);
    lines[k].template scan<PROPAGATES>(view, into);
  };
  int at = 0;  // the stage of a step
  read_gifts(step);
  // Whether a plane that the first step shares with the one before exists: the last stage has it for a while.
  const bool begins_inside = CARRIED > 0 && (plane_exists(step * S0 - P0) || plane_exists(step * S0 - P0 + CARRIED - 1));
  constexpr int LAST = STAGES - 1;
  if (begins_inside) {
#pragma unroll
    for (int k = 0; k < CARRIED; k++)
      if (plane_exists(step * S0 - P0 + k)) stage.copy(shared_memory + (LAST * stage_bytes + k * plane_bytes), (step * S0 - P0 + k) * march.x_stride[0]);
    end_copies();
  }
  for (int n = 0; n < LAST; n++) read_step(step + n, n);
  if (begins_inside) {
    wait_for_copies<LAST>();
    __syncthreads();
  }
#pragma unroll
  for (int k = 0; k < CARRIED; k++) scan(k, LAST * stage_bytes + k * plane_bytes, plane_exists(step * S0 - P0 + k), carried[k]);
  if (begins_inside) __syncthreads();
  read_step(step + LAST, LAST);
  wait_for_copies<LAST>();
  __syncthreads();
#pragma unroll 1
  for (; step < end; step++) {
    int i0 = step * S0 - P0;
    Line<GIFT_LANES, 0, GIFTS> gifts = coming;
    Maxima<Access> planes[K0];
#pragma unroll
    for (int k = 0; k < K0; k++)
      if (k < CARRIED) planes[k] = carried[k];
      else scan(k - CARRIED, at * stage_bytes + (k - CARRIED) * plane_bytes, plane_exists(i0 + k), planes[k]);
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
    if (TELLS && exists) told[mine] = cells;
    if (step + 1 < end) read_gifts(step + 1);
    wait_for_copies<STAGES - 2>();
    __syncthreads();
    read_step(step + STAGES, at);
    at = at + 1 == STAGES ? 0 : at + 1;

    // What the windows around give to AT_ONCE planes. What no later window reaches is written, the rest moves on.
#pragma unroll
    for (int first = 0; first < K0; first += AT_ONCE) {
      COMPUTE sums[AT_ONCE][LINES][COLUMNS][LANES];
#pragma unroll
      for (int k = 0; k < AT_ONCE; k++)
#pragma unroll
        for (int n = 0; n < LINES * COLUMNS * LANES; n++) (&sums[k][0][0][0])[n] = first + k < CARRIED ? (&carried_sums[first + k < CARRIED ? first + k : 0][0][0][0])[n] : COMPUTE(0);
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
            for (int k = 0; k < AT_ONCE; k++)
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
                    into[n] = S::inside(strip_distance, item, k2) ? &sums[k][line][column][item % LANES] : nullptr;
                  }
                  if (S::inside(strip_distance, g * S::SIZE, k2) || S::inside(strip_distance, g * S::SIZE + S::SIZE - 1, k2))
                    Group::give(cell.where, place_of(first + k, k1, k2), gifts, into);
                }
              }
          }
#pragma unroll
      for (int k = 0; k < AT_ONCE; k++) {
        const int k0 = first + k;
        if (k0 >= S0) {
#pragma unroll
          for (int n = 0; n < LINES * COLUMNS * LANES; n++) (&carried_sums[k0 >= S0 ? k0 - S0 : 0][0][0][0])[n] = (&sums[k][0][0][0])[n];
        } else if (step >= own) {
#pragma unroll
          for (int line = 0; line < LINES; line++) {
            bool written = writes && plane_exists(i0 + k0) && unsigned(i1 + line) < unsigned(march.input[1]);
            ELEMENT* dx = a.dx + (x_offset + (i0 + k0) * march.x_stride[0] + line * march.x_stride[1]);
            int left = written ? march.input[2] - i2 : 0;
            if constexpr (Access::ROWS)
              write_line<Access::X_PACK>(dx, 1, left * LANES, reinterpret_cast<COMPUTE(&)[COLUMNS * LANES][1]>(sums[k][line]), a.alpha, a.beta);
            else
              write_line<1>(dx, march.x_stride[2], left, sums[k][line], a.alpha, a.beta);
          }
        }
      }
    }
    told = told == first_told ? first_told + count : first_told;
  }
}

template <class Access> __device__ __forceinline__ void march_on(const MaximumArguments& a) {
  a.propagate ? march_on<Access, true>(a) : march_on<Access, false>(a);
}

extern "C" __global__ void __launch_bounds__(THREADS, BLOCKS) pooling_known_maximum_staged_wide(const MaximumArguments a) {
  wait_for_earlier_kernels();
  march_on<Wide>(a);
}
extern "C" __global__ void __launch_bounds__(THREADS, BLOCKS) pooling_known_maximum_staged_narrow(const MaximumArguments a) {
  wait_for_earlier_kernels();
  march_on<Narrow>(a);
}
extern "C" __global__ void __launch_bounds__(THREADS, BLOCKS) pooling_known_maximum_staged_channels(const MaximumArguments a) {
  wait_for_earlier_kernels();
  march_on<Channels>(a);
}
