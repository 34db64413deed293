// Pooling backward (4.1.18) of maxima of images and volumes of half in rows, with a static window: see
// pooling/max_backward/max_backward_fp16.cuh.
//
// Tiling: a block takes rows of planes, from one plane to the next: along the depth of volumes, or from image to image.
// A thread has a tile of columns of one row of windows, and of the lines that begin there; of the line that two rows of
// windows share, threads exchange the maxima and what the windows give. Where rows follow each other without gaps
// (DENSE), those of a warp are staged in shared memory STAGES steps ahead, and leave it in packs of 16 bytes in the
// order of memory. Roofline bound: bytes, x and dy read, dx written; 56 % of the cycles issue an instruction. Measured
// on an H200: 64x256x56x56 58.5 us, 93 % of the copy; 8x64x16x56x56 29.6 us, 87 %.
#include "primitives/cp_async.cuh"
#include "pooling/max_backward/max_backward_fp16.cuh"

constexpr int CARRIED = K0 - S0;             // planes of a window that the next one has, too
constexpr int UP = P1, DOWN = K1 - S1 - P1;  // lines of a window beside those of its thread
constexpr bool EXCHANGES = UP + DOWN > 0;
static_assert(S1 == 2 && K1 == K2 && UP >= 0 && DOWN >= 0 && UP + DOWN <= 1 &&
                  (K0 == 1 ? S0 == 1 : S0 == 2 && K0 == K2),
              "images, volumes");

struct Planes : Layout {
  FastDivmod tiles, row_parts, segments;  // of a row; blocks along axis 1, axis 0
  int warp_rows, block_rows, rows_before,
      rows;  // rows of windows: of a warp, those that a block writes, that it scans before those, that it has
  int before, block_steps, steps;  // planes of windows: those that a block only scans, and its own; all
  int spacing, advance;            // between the first ones of blocks; between those of a block
};

struct MaximumArguments {
  const ELEMENT* dy;
  const ELEMENT* x;
  ELEMENT* dx;
  Planes planes;
  COMPUTE alpha, beta;
  int propagate;
};

template <bool DENSE, bool PROPAGATES, bool PLAIN> __device__ __forceinline__ void slide(const MaximumArguments& a) {
  const Planes& v = a.planes;
  unsigned segment, part, lane_row, tile;
  const unsigned volume = v.segments.divide(v.row_parts.divide(blockIdx.x, part), segment);
  const int lane = threadIdx.x % WARP, warp = threadIdx.x / WARP;
  lane_row = v.tiles.divide(lane, tile);
  const int block_row = warp * v.warp_rows + int(lane_row), row = int(part) * v.block_rows - v.rows_before + block_row;
  const bool exists = int(lane_row) < v.warp_rows && block_row < v.rows && row >= 0;
  const int i1 = row * S1, i2 = int(tile) * COLUMNS, o2 = int(tile) * WINDOWS;  // of the thread's lines and columns
  int plane_x = 0, y_at = 0;                                                    // where the first plane of a step is
  v.add_plane(volume, plane_x, y_at);
  const int line_distance = v.x_stride[1], plane_distance = v.x_stride[0], y_distance = v.y_stride[0];
  const int own = int(segment) * v.spacing, end = min(own + v.block_steps, v.steps);
  const int windows_end = CARRIED ? min(end, v.output[0]) : end;
  int step = max(own - v.before, 0);
  plane_x += (step * S0 - P0) * plane_distance + i1 * line_distance,
      y_at += row * v.y_stride[1] + o2 + step * y_distance;
  bool reads[S1], writes[S1];  // the thread's lines
#pragma unroll
  for (int k = 0; k < S1; k++) {
    reads[k] = exists && i1 + k < v.input[1];
    writes[k] = unsigned(block_row - v.rows_before) < unsigned(v.block_rows) && reads[k];
  }
  const int windows_left = exists && row < v.output[1] ? v.output[2] - o2 : 0;
  const Ends ends = {i2 == 0, i2 + COLUMNS >= v.input[2]};

  // What threads exchange: maxima of a line of the planes that are new, and what windows add to one of those that are
  // written.
  using Values = Words<S0>;
  using Gradients = Words<(CARRIED ? 4 : S0)>;  // after the floats for the first plane fp16x2
  const int tiles = int(v.tiles.divisor), threads = v.rows * tiles, mine = block_row * tiles + int(tile);
  Gradients* const published = reinterpret_cast<Gradients*>(shared_memory);
  Values* const values = reinterpret_cast<Values*>(published + threads);
  const int above = mine >= tiles ? mine - tiles : mine, below = block_row + 1 < v.rows ? mine + tiles : mine;
  const bool is_first = row <= 0, is_last = i1 + S1 >= v.input[1];

  // DENSE: what a warp has in shared memory; of a plane 16 bytes for each lane, which are the lines of its rows.
  constexpr int PACK_BYTES = COLUMNS * S1 * int(sizeof(ELEMENT)), DY_BYTES = WINDOWS * int(sizeof(ELEMENT));
  constexpr int PLANE_BYTES = WARP * PACK_BYTES, STAGE_BYTES = S0 * PLANE_BYTES + WARP * DY_BYTES;
  unsigned char* const stages = shared_memory +
                                (EXCHANGES ? (threads * int(sizeof(Gradients) + sizeof(Values)) + 15) & ~15 : 0) +
                                warp * (STAGES * STAGE_BYTES + S0 * PLANE_BYTES);
  unsigned char* const written = stages + STAGES * STAGE_BYTES;
  const int line_at = exists ? (int(lane_row) * S1 * tiles + int(tile)) * COLUMNS * int(sizeof(ELEMENT)) : 0,
            line_bytes = tiles * COLUMNS * int(sizeof(ELEMENT));
  const int pack_x = int(tile) * (PACK_BYTES / int(sizeof(ELEMENT))),  // from the line on
      pack_at = (int(lane_row) * tiles + int(tile)) * PACK_BYTES;

  // A plane under the windows of the thread.
  struct Plane {
    FirstMaxima line[S1];
    unsigned value;
    Selection choice;
  };
  auto has = [&](int i0) { return K0 == 1 || unsigned(i0) < unsigned(v.input[0]); };  // of the planes of a step
  auto read_plane = [&](bool exists, int deep, Row(&rows)[S1]) {
#pragma unroll
    for (int k = 0; k < S1; k++)
      rows[k] =
          read_row<PROPAGATES>(a.x + (plane_x + deep * plane_distance + k * line_distance + i2), exists && reads[k]);
  };
  auto scan = [&](const Row(&rows)[S1], Plane& plane) {
#pragma unroll
    for (int k = 0; k < S1; k++) plane.line[k].template scan<PROPAGATES>(rows[k], ends);
  };
  // The maxima of the line of another thread, which are published by all.
  auto publish_maxima = [&](const Plane(&planes)[S0]) {
    Values sent;
#pragma unroll
    for (int k = 0; k < S0; k++) sent.word[k] = planes[k].line[UP ? S1 - 1 : 0].value;
    if (EXCHANGES && exists) values[mine] = sent;
    if (EXCHANGES) __syncthreads();
  };
  auto choose_lines = [&](Plane(&planes)[S0]) {
    Values received;
    if (EXCHANGES) received = values[!exists ? 0 : UP ? above : below];
#pragma unroll
    for (int k = 0; k < S0; k++) {
      Plane& plane = planes[k];
      const unsigned other = (UP ? is_first : is_last) ? NOTHING<PROPAGATES> : received.word[k];
      plane.value = UP ? other : plane.line[0].value;
      plane.choice = select<K1, PROPAGATES>(plane.value, plane.line[UP ? 0 : 1].value, UP ? plane.line[1].value : other,
                                            UP && is_first ? 0 : ALL);
    }
  };

  Row in_flight[S0][S1];  // where not DENSE: of one stage
  unsigned next_dy = 0, late = 0;
  auto read_step = [&](int ahead, int s) {
    const int far = ahead * v.advance;
    const bool some = step + far < windows_end,
               dy_value = some && (K0 == 1 || unsigned(step + far) < unsigned(v.output[0]));
    if (DENSE) {
      unsigned char* const stage = stages + s * STAGE_BYTES;
#pragma unroll
      for (int k = 0; k < S0; k++)
        if (some && reads[0])
          cp_async<PACK_BYTES>(stage + k * PLANE_BYTES + pack_at,
                               a.x + (plane_x + (far * S0 + CARRIED + k) * plane_distance + pack_x), true);
      if (some && windows_left > 0)
        cp_async<DY_BYTES>(stage + S0 * PLANE_BYTES + lane * DY_BYTES, a.dy + (y_at + far * y_distance), true);
      cp_async_commit();
    } else {
#pragma unroll
      for (int k = 0; k < S0; k++)
        read_plane(some && has((step + far) * S0 - P0 + CARRIED + k), far * S0 + CARRIED + k, in_flight[k]);
      next_dy = read_dy(a.dy + (y_at + far * y_distance), dy_value ? windows_left : 0, v.y_packed);
    }
  };
  // What came for a step.
  auto take_step = [&](int s, Row(&rows)[S0][S1], unsigned& dy_value) {
    const unsigned char* const stage = stages + s * STAGE_BYTES;
    if (DENSE) {
      cp_async_wait<STAGES - 1>();
      __syncwarp();
    }
#pragma unroll
    for (int k = 0; k < S0; k++)
#pragma unroll
      for (int l = 0; l < S1; l++)
        if (DENSE) rows[k][l] = *reinterpret_cast<const Row*>(stage + k * PLANE_BYTES + l * line_bytes + line_at);
        else rows[k][l] = in_flight[k][l];
    dy_value = next_dy;
    if (DENSE && windows_left > 0)
      dy_value = *reinterpret_cast<const unsigned*>(stage + S0 * PLANE_BYTES + lane * DY_BYTES);
  };
  // Writes a line of the thread.
  auto write = [&](int k0, int k, const Row& row) {
    if (DENSE) {
      if (exists) *reinterpret_cast<Row*>(written + k0 * PLANE_BYTES + k * line_bytes + line_at) = row;
    } else if (writes[k] && has(step * S0 - P0 + k0)) {
      *reinterpret_cast<Row*>(a.dx + (plane_x + k0 * plane_distance + k * line_distance + i2)) = row;
    }
  };
  auto write_values = [&](int k0, int k, const float (&values)[COLUMNS]) {
    const bool exists = writes[k] && has(step * S0 - P0 + k0);
    write(
        k0, k,
        blend(a.dx + (plane_x + k0 * plane_distance + k * line_distance + i2), exists, values, a.alpha, a.beta, PLAIN));
  };

  if (DENSE) {  // of two steps
#pragma unroll
    for (int k = 0; k < CARRIED + 2 * S0; k++)
#pragma unroll
      for (int l = 0; l < S1; l++)
        if (reads[l] && has(step * S0 - P0 + k))
          prefetch_l2(a.x + (plane_x + k * plane_distance + l * line_distance + i2));
#pragma unroll
    for (int k = 0; k < 2; k++)
      if (windows_left > 0 && step + k < windows_end) prefetch_l2(a.dy + (y_at + k * y_distance));
  }
  griddepcontrol_wait_before_access(a.x + plane_x, a.dy + y_at);
  Plane carried;
  if (CARRIED) {
    Row rows[S1];
    Plane planes[S0];
    read_plane(has(step * S0 - P0), 0, rows);
    scan(rows, planes[0]);
    planes[S0 - 1] = planes[0];
    publish_maxima(planes);
    choose_lines(planes);
    if (EXCHANGES) __syncthreads();
    carried = planes[0];
  }
  // Gives what windows of a plane gave to planes that no later window reaches: values to the first one, if another step
  // gave to it, too, and fp16x2. That to a line of another thread is published.
  constexpr int OTHER = UP ? 0 : 2, OWN = UP;
  auto scatter = [&](const Plane& first, const Plane& second, const float (&sum)[WINDOWS],
                     const unsigned (&dy_value)[S0]) {
    unsigned once[S0][3], received[S0] = {};
    float twice[3][WINDOWS], received_twice[WINDOWS] = {};
#pragma unroll
    for (int w = 0; w < WINDOWS; w++)
      if (CARRIED) {
        const Selection one = w ? first.choice.template one<1>() : first.choice.template one<0>();
        twice[0][w] = part_of<0>(sum[w], one), twice[1][w] = part_of<1>(sum[w], one),
        twice[2][w] = part_of<2>(sum[w], one);
      }
#pragma unroll
    for (int k0 = CARRIED; k0 < S0; k0++) {
      const Selection& choice = (k0 ? second : first).choice;
      once[k0][0] = choice.template part<0>(dy_value[k0]), once[k0][1] = choice.template part<1>(dy_value[k0]);
      once[k0][2] = choice.template part<2>(dy_value[k0]);
    }
    if (EXCHANGES) {
      Gradients sent = {}, got = {};
#pragma unroll
      for (int w = 0; w < WINDOWS; w++)
        if (CARRIED) sent.word[w] = __float_as_uint(twice[OTHER][w]);
#pragma unroll
      for (int k0 = CARRIED; k0 < S0; k0++) sent.word[CARRIED * WINDOWS + k0 - CARRIED] = once[k0][OTHER];
      if (exists) published[mine] = sent;
      __syncthreads();
      if (exists && !(UP ? is_last : is_first)) got = published[UP ? below : above];
#pragma unroll
      for (int w = 0; w < WINDOWS; w++)
        if (CARRIED) received_twice[w] = __uint_as_float(got.word[w]);
#pragma unroll
      for (int k0 = CARRIED; k0 < S0; k0++) received[k0] = got.word[CARRIED * WINDOWS + k0 - CARRIED];
    }
    if (step < own) return;
#pragma unroll
    for (int k0 = 0; k0 < S0; k0++)
#pragma unroll
      for (int k = 0; k < S1; k++) {
        const bool shared = EXCHANGES && k == (UP ? S1 - 1 : 0);
        const FirstMaxima& line = (k0 ? second : first).line[k];
        float values[COLUMNS], incoming[WINDOWS];
        if (k0 < CARRIED) {
#pragma unroll
          for (int w = 0; w < WINDOWS; w++)
            incoming[w] = shared ? twice[OWN + k][w] + received_twice[w] : twice[OWN + k][w];
        } else if (PLAIN) {
          write(k0, k,
                shared ? line.scatter_both(once[k0][OWN + k], received[k0], ends)
                       : line.scatter(once[k0][OWN + k], ends));
          continue;
        } else {
          FirstMaxima::add(once[k0][OWN + k], shared ? received[k0] : 0, incoming);
        }
        line.template scatter_values<true>(incoming, ends, values);
        write_values(k0, k, values);
      }
    if (!DENSE) return;
    __syncwarp();
#pragma unroll
    for (int k0 = 0; k0 < S0; k0++)
      if (writes[0] && has(step * S0 - P0 + k0))
        *reinterpret_cast<Words<4>*>(a.dx + (plane_x + k0 * plane_distance + pack_x)) =
            *reinterpret_cast<const Words<4>*>(written + k0 * PLANE_BYTES + pack_at);
  };

#pragma unroll
  for (int s = 0; s < STAGES; s++) read_step(s, s);
  if (DENSE) griddepcontrol_launch_dependents();
  int slot = 0;
#pragma unroll 1
  while (step < windows_end) {
    Plane plane[S0];
    unsigned dy_value, early[K0], once[S0];
    {
      Row rows[S0][S1];
      take_step(slot, rows, dy_value);
#pragma unroll
      for (int k = 0; k < S0; k++) scan(rows[k], plane[k]);
    }
    if (DENSE) __syncwarp();
    read_step(STAGES, slot);
    publish_maxima(plane);
    slot = slot + 1 == STAGES ? 0 : slot + 1;
    choose_lines(plane);
    const Plane &first = CARRIED ? carried : plane[0], &second = plane[K0 > 1 ? 1 - CARRIED : 0],
                &third = plane[S0 - 1];
    unsigned value = first.value;
    const Selection choice =
        K0 > 1 ? select<K0, PROPAGATES>(value, second.value, third.value, has(step * S0 - P0) ? ALL : 0)
               : Selection{ALL, ALL};
    if (!PROPAGATES) dy_value &= ~nan_mask(value);
    early[0] = choice.template part<0>(dy_value);
    if (K0 > 1) early[K0 > 1 ? 1 : 0] = choice.template part<1>(dy_value);
    if (K0 > 2) early[K0 - 1] = choice.template part<2>(dy_value);
#pragma unroll
    for (int k0 = 0; k0 < S0; k0++) once[k0] = early[k0];
    float sum[WINDOWS];
    if (CARRIED) FirstMaxima::add(late, early[0], sum);
    scatter(first, second, sum, once);
    if (CARRIED) carried = third, late = early[K0 - 1];
    step += v.advance, plane_x += v.advance * S0 * plane_distance, y_at += v.advance * y_distance;
  }
  if (CARRIED && step < end) {  // behind the last windows
    const unsigned nothing[S0] = {};
    float sum[WINDOWS];
    FirstMaxima::add(late, 0, sum);
    if (EXCHANGES) __syncthreads();
    scatter(carried, carried, sum, nothing);
  }
}

template <bool DENSE> __device__ __forceinline__ void slide(const MaximumArguments& a) {
  const bool plain = a.alpha == COMPUTE(1) && a.beta == COMPUTE(0);
  if (a.propagate) plain ? slide<DENSE, true, true>(a) : slide<DENSE, true, false>(a);
  else plain ? slide<DENSE, false, true>(a) : slide<DENSE, false, false>(a);
}

extern "C" __global__ void __launch_bounds__(THREADS, BLOCKS)
    pooling_max_backward_fp16_planes_dense(const MaximumArguments a) {
  griddepcontrol_wait_deferred();
  slide<true>(a);
}
extern "C" __global__ void __launch_bounds__(THREADS, BLOCKS)
    pooling_max_backward_fp16_planes_narrow(const MaximumArguments a) {
  griddepcontrol_wait_deferred();
  slide<false>(a);
}
