// Pooling backward (4.1.18) of maxima of volumes with a known window: see pooling_known.cuh.
//
// Floor: bytes; x and dy are read, dx written (y is not needed: it is the maximum of x). Every window is looked at once (but
// for those that neighbouring blocks share): a block takes all of axis 2, some windows of axis 1 of some planes and marches
// along axis 0. A thread takes a strip of windows along axis 2, of LANES channels; what planes of a window have in common with
// those of the next one stays in registers. It adds what a window gives to the place of its maximum among sums in shared
// memory; strips that overlap take turns, so that the order of additions is fixed. What no later window reaches is written.
//
// What limits before the bytes is comparisons, which run at half the rate of additions: an H200 makes 32 for an input in the
// time of its bytes in float, 16 in half (3x3x3, stride 2). An element of a window costs 3 (the larger one, whether it is
// another, its place), 7 for an input; the sums cost as much time of shared memory. Measured on it: 77 % of the copy in float
// rows, 44 % in channels, 21 to 40 % in half.
#include "pooling_known.cuh"

static_assert(K0 >= S0 && K1 >= S1 && K2 >= S2, "every input lies in a window");

struct March {
  unsigned items;                // threads of a block that have something to do
  Divisor lanes, strips, rows;   // of a block: packs of channels, strips along axis 2, windows along axis 1
  Divisor lane_groups, segments, parts;  // blocks along channels, axis 0, axis 1
  unsigned packs;                // of channels in all
  unsigned planes, block_planes;
  int steps, block_steps, block_rows;  // along axis 0 in all and of a block, along axis 1 of a block: those that it writes
  int pitch, slot;               // of sums: from one row to the next, from one position of axis 0 to the next
  int outer_rank;                // the planes: the fastest first
  Divisor outer[3];
  int x_outer[3], y_outer[3];
  int input[3], output[3];
  int x_stride[3], y_stride[3];
  int y_packed;  // whether the windows of a thread lie in one access
};

struct MaximumArguments {
  const ELEMENT* dy;
  const ELEMENT* x;
  ELEMENT* dx;
  March march;
  COMPUTE alpha, beta;
  int propagate;
};

constexpr int CARRIED = K0 - S0;                                    // planes of a window that the next one has, too
constexpr int BEFORE0 = (K0 - 1) / S0, BEFORE1 = (K1 - 1) / S1;     // windows before a position's own that may cover it
constexpr int TURNS1 = (K1 + S1 - 1) / S1;                          // until rows of windows do not overlap

// The first maximum of what was met, in row-major order: its value and its place, counted from 0.
template <bool PROPAGATES> struct First {
  COMPUTE value;
  int where;

  __device__ __forceinline__ void start(COMPUTE met, int place, bool inside) {
    value = met;
    where = PROPAGATES && !inside ? -1 : place;
  }
  // Where NaN is passed over, what is not inside is NaN.
  __device__ __forceinline__ void take(COMPUTE met, int place, bool inside) {
    if constexpr (PROPAGATES) {
      bool better = inside && (where < 0 || met > value || (met != met && value == value));
      value = better ? met : value;
      where = better ? place : where;
    } else {
      COMPUTE larger = fmax(value, met);
      where = larger == value ? where : place;
      value = larger;
    }
  }
  __device__ __forceinline__ bool found() const { return PROPAGATES ? where >= 0 : value == value; }
};
template <class Access, bool PROPAGATES> struct Maxima { First<PROPAGATES> of[Access::TILE2][Access::LANES]; };

// The lines of a plane around a strip.
template <class Access> struct Lines {
  using Axis2 = typename Access::Axis2;
  Line<Access::LANES, Axis2::BEGIN, Axis2::COUNT> line[K1];
  __device__ __forceinline__ void read(const March& march, const ELEMENT* x, int plane, int row, int column, bool present) {
    present = present && unsigned(plane) < unsigned(march.input[0]);
#pragma unroll
    for (int k1 = 0; k1 < K1; k1++)
      line[k1].template read<Axis2::INPUTS, Access::X_PACK>(x + (plane * march.x_stride[0] + (row + k1) * march.x_stride[1]), Access::along(march.x_stride[2]),
                                              column, march.input[2], present && unsigned(row + k1) < unsigned(march.input[1]),
                                              element<ELEMENT>(COMPUTE(NAN)));
  }
  // Places: columns are `width` apart, rows a pitch.
  template <bool PROPAGATES>
  __device__ __forceinline__ void scan(const March& march, int plane, int row, int column, int width, Maxima<Access, PROPAGATES>& maxima) const {
#pragma unroll
    for (int w = 0; w < Access::TILE2; w++)
#pragma unroll
      for (int i = 0; i < Access::LANES; i++) {
        First<PROPAGATES>& of_plane = maxima.of[w][i];
#pragma unroll
        for (int k1 = 0; k1 < K1; k1++) {
          First<PROPAGATES> of_row;
          bool present = unsigned(plane) < unsigned(march.input[0]) && unsigned(row + k1) < unsigned(march.input[1]);
#pragma unroll
          for (int k2 = 0; k2 < K2; k2++) {
            int c = w * S2 + k2;
            bool inside = present && unsigned(column + Axis2::BEGIN + c) < unsigned(march.input[2]);
            COMPUTE met = load<COMPUTE>(line[k1].item[c][i]);
            k2 == 0 ? of_row.start(met, c * width, inside) : of_row.take(met, c * width, inside);
          }
          if (k1 == 0)
            of_plane = of_row;
          else
            of_plane.take(of_row.value, of_row.where + k1 * march.pitch, of_row.where >= 0);
        }
      }
  }
};

template <class Access, bool PROPAGATES> __device__ __forceinline__ void march_on(const MaximumArguments& a) {
  using Axis2 = typename Access::Axis2;
  constexpr int TILE2 = Access::TILE2, LANES = Access::LANES, X_PACK = Access::X_PACK;
  constexpr int COLUMNS = Axis2::INPUTS, COUNT = Axis2::COUNT;        // that a strip writes and reads
  constexpr int TURNS2 = (COUNT + COLUMNS - 1) / COLUMNS;             // until strips do not overlap
  constexpr bool APART = LANES == 1 && X_PACK == 1;                   // columns that neighbouring threads write are neighbours
  constexpr int WRITTEN = APART ? 1 : COLUMNS;                        // neighbours that a thread writes
  constexpr int ALONG = APART ? 1 : LANES > 1 ? LANES : X_PACK, VECTOR = ALONG < 4 ? ALONG : 4;  // sums of one access
  const March& march = a.march;
  COMPUTE* sums = reinterpret_cast<COMPUTE*>(shared_memory);
  int nowhere = K0 * march.slot + threadIdx.x;  // what nobody gets
  for (unsigned k = threadIdx.x; k < K0 * march.slot + blockDim.x; k += blockDim.x) sums[k] = 0;

  // The block, and the place of the thread in it.
  unsigned part, segment, group, lane = 0, strip, row = 0, rest;
  rest = march.lane_groups.divide(blockIdx.x, group);
  rest = march.segments.divide(rest, segment);
  unsigned plane_of_block = march.parts.divide(rest, part) * march.block_planes;
  rest = threadIdx.x;
  if (X_PACK == 1) rest = march.lanes.divide(rest, lane);
  unsigned plane = march.strips.divide(rest, strip);
  if (K1 > 1) plane = march.rows.divide(plane, row);
  unsigned pack = group * march.lanes.divisor + lane;
  bool exists = threadIdx.x < march.items && pack < march.packs && plane_of_block + plane < march.planes;
  int x_offset = int(pack) * LANES, y_offset = x_offset;
  rest = plane_of_block + plane;
#pragma unroll 1
  for (int d = 0; d < march.outer_rank; d++) {
    unsigned here;
    rest = march.outer[d].divide(rest, here);
    x_offset += int(here) * march.x_outer[d];
    y_offset += int(here) * march.y_outer[d];
  }
  int o1 = int(part) * march.block_rows + int(row) - BEFORE1, o2 = strip * TILE2, i1 = o1 * S1 - P1, column = strip * COLUMNS;
  const ELEMENT* x = a.x + (x_offset + column * Access::along(march.x_stride[2]));
  const ELEMENT* dy = a.dy + (y_offset + o1 * march.y_stride[1] + o2 * Access::along(march.y_stride[2]));
  bool gives = exists && unsigned(o1) < unsigned(march.output[1]);
  const int width = X_PACK > 1 ? 1 : march.lanes.divisor * LANES;  // channels of a block
  // Where the sums of a row begin, for each position of axis 0 in a window.
  int row_sums[K0];
#pragma unroll
  for (int k = 0; k < K0; k++)
    row_sums[k] = k * march.slot + (plane * ((march.rows.divisor - 1) * S1 + K1) + row * S1) * march.pitch + lane * LANES;
  const int around = (column - P2) * width;

  Lines<Access> lines[S0];
  Line<LANES, 0, TILE2> gifts, coming;
  Maxima<Access, PROPAGATES> carried[CARRIED ? CARRIED : 1];
  int own = segment * march.block_steps, step = max(own - BEFORE0, 0), end = min(own + march.block_steps, march.steps);
  auto read_step = [&](int o0) {
#pragma unroll
    for (int k = 0; k < S0; k++) lines[k].read(march, x, o0 * S0 - P0 + CARRIED + k, i1, column, exists);
    const ELEMENT* from = dy + o0 * march.y_stride[0];
    bool given = gives && unsigned(o0) < unsigned(march.output[0]);
    if (march.y_packed)
      coming.template read<TILE2, TILE2>(from, Access::along(march.y_stride[2]), o2, march.output[2], given, ELEMENT(0));
    else
      coming.template read<TILE2, 1>(from, Access::along(march.y_stride[2]), o2, march.output[2], given, ELEMENT(0));
  };
#pragma unroll
  for (int k = 0; k < CARRIED; k++) {
    lines[0].read(march, x, step * S0 - P0 + k, i1, column, exists);
    lines[0].scan(march, step * S0 - P0 + k, i1, column, width, carried[k]);
  }
  read_step(step);
  __syncthreads();
#pragma unroll 1
  for (; step < end; step++) {
    int i0 = step * S0 - P0;
    Maxima<Access, PROPAGATES> planes[K0];
#pragma unroll
    for (int k = 0; k < K0; k++)
      if (k < CARRIED)
        planes[k] = carried[k];
      else
        lines[k - CARRIED].scan(march, i0 + k, i1, column, width, planes[k]);
#pragma unroll
    for (int k = 0; k < CARRIED; k++) carried[k] = planes[S0 + k];
    int winner[TILE2][LANES];
#pragma unroll
    for (int w = 0; w < TILE2; w++)
#pragma unroll
      for (int i = 0; i < LANES; i++) {
        First<PROPAGATES> first;
#pragma unroll
        for (int k = 0; k < K0; k++) {
          const First<PROPAGATES>& of_plane = planes[k].of[w][i];
          int place = of_plane.where + row_sums[k] + around + i;
          k == 0 ? first.start(of_plane.value, place, of_plane.where >= 0) : first.take(of_plane.value, place, of_plane.where >= 0);
        }
        winner[w][i] = first.found() ? first.where : nowhere;
      }
    gifts = coming;
    if (step + 1 < end) read_step(step + 1);  // on its way while the sums are made

#pragma unroll
    for (int turn = 0; turn < TURNS1 * TURNS2; turn++) {
      if (exists && (TURNS1 == 1 || row % TURNS1 == turn / TURNS2) && (TURNS2 == 1 || strip % TURNS2 == turn % TURNS2))
#pragma unroll
        for (int w = 0; w < TILE2; w++)
#pragma unroll
          for (int i = 0; i < LANES; i++) sums[winner[w][i]] += load<COMPUTE>(gifts.item[w][i]);
      __syncthreads();
    }

    // What no later window reaches.
    bool stays = exists && int(row) >= BEFORE1;
#pragma unroll
    for (int j0 = 0; j0 < S0; j0++)
#pragma unroll
      for (int j1 = 0; j1 < S1; j1++) {
        bool present = stays && unsigned(i1 + j1) < unsigned(march.input[1]);
        bool written = present && step >= own && unsigned(i0 + j0) < unsigned(march.input[0]);
        ELEMENT* dx = a.dx + (x_offset + (i0 + j0) * march.x_stride[0] + (i1 + j1) * march.x_stride[1]);
#pragma unroll
        for (int k = 0; k < COLUMNS; k += WRITTEN) {
          int at = APART ? strip + k * march.strips.divisor : column;
          COMPUTE found[WRITTEN][LANES];
#pragma unroll
          for (int n = 0; n < WRITTEN * LANES; n += VECTOR) {
            int c = n / LANES, i = n % LANES;
            auto* these = reinterpret_cast<Pack<COMPUTE, VECTOR>*>(sums + (row_sums[j0] + j1 * march.pitch + (at + c) * width + i));
            Pack<COMPUTE, VECTOR> pack = {};
            if (present && at + c < march.input[2]) {
              pack = *these;
              *these = {};
            }
#pragma unroll
            for (int v = 0; v < VECTOR; v++) found[(n + v) / LANES][(n + v) % LANES] = a.alpha * pack.item[v];
          }
          if (written) write_line<X_PACK>(dx + at * Access::along(march.x_stride[2]), Access::along(march.x_stride[2]), at, march.input[2], found, a.beta);
        }
      }
    int turned[K0];
#pragma unroll
    for (int k = 0; k < K0; k++) turned[k] = row_sums[(k + S0) % K0];
#pragma unroll
    for (int k = 0; k < K0; k++) row_sums[k] = turned[k];
    __syncthreads();
  }
}

template <class Access> __device__ __forceinline__ void march_on(const MaximumArguments& a) {
  a.propagate ? march_on<Access, true>(a) : march_on<Access, false>(a);
}

extern "C" __global__ void __launch_bounds__(THREADS, BLOCKS) pooling_known_volume_wide(const MaximumArguments a) {
  wait_for_earlier_kernels();
  march_on<Wide>(a);
}
extern "C" __global__ void __launch_bounds__(THREADS, BLOCKS) pooling_known_volume_narrow(const MaximumArguments a) {
  wait_for_earlier_kernels();
  march_on<Narrow>(a);
}
extern "C" __global__ void __launch_bounds__(THREADS, BLOCKS) pooling_known_volume_loose(const MaximumArguments a) {
  wait_for_earlier_kernels();
  march_on<Loose>(a);
}
extern "C" __global__ void __launch_bounds__(THREADS, BLOCKS) pooling_known_volume_channels(const MaximumArguments a) {
  wait_for_earlier_kernels();
  march_on<Channels>(a);
}
extern "C" __global__ void __launch_bounds__(THREADS, BLOCKS) pooling_known_volume_scattered(const MaximumArguments a) {
  wait_for_earlier_kernels();
  march_on<Scattered>(a);
}
