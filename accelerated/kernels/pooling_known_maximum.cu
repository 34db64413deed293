// Pooling backward (4.1.18) of maxima with a known window: see pooling_known.cuh.
//
// Floor: bytes; x and dy are read, dx written (y is not needed: it is the maximum of x). Every window is looked at once (but
// for those that neighbouring blocks share): a block takes all of axis 2, some windows of axis 1 of some planes and marches
// along axis 0. A thread takes a strip of windows along axis 2, of LANES channels; what planes of a window have in common with
// those of the next one stays in registers. It adds what a window gives to the place of its maximum among sums in shared
// memory; strips that overlap take turns, so that the order of additions is fixed. What no later window reaches is written.
//
// What limits before the bytes is comparisons, which run at half the rate of additions: an H200 makes 32 for an input in the
// time of its bytes in float, 16 in half (3x3, stride 2). An element of a window costs 3 (the larger one, whether it is
// another, its place): 4.5 for an input of an image, 7 of a volume.
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
  OFFSET x_outer[3], y_outer[3];
  int input[3], output[3];
  OFFSET x_stride[3], y_stride[3];
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
constexpr int COLUMNS = Axis2::INPUTS, COUNT = Axis2::COUNT;        // that a strip writes and reads
constexpr int TURNS1 = (K1 + S1 - 1) / S1, TURNS2 = (COUNT + COLUMNS - 1) / COLUMNS;  // until strips do not overlap
constexpr int ROW_CODE = 32, PLANE_CODE = 256;                      // places in a strip's windows as a number

using Gifts = Line<0, TILE2>;

// The first maximum of the windows of a strip, or of their part in some planes: its value and its place.
template <bool PROPAGATES> struct First {
  COMPUTE value[TILE2][LANES];
  int where[TILE2][LANES];

  __device__ __forceinline__ void clear() {
#pragma unroll
    for (int w = 0; w < TILE2; w++)
#pragma unroll
      for (int i = 0; i < LANES; i++) value[w][i] = COMPUTE(NAN), where[w][i] = -1;
  }
  // Elements come in row-major order. Where NaN is passed over it is what there is not.
  __device__ __forceinline__ void take(int w, int i, COMPUTE met, int place, bool inside) {
    COMPUTE& best = value[w][i];
    if constexpr (PROPAGATES) {
      bool better = inside && (where[w][i] < 0 || met > best || (met != met && best == best));
      best = better ? met : best;
      where[w][i] = better ? place : where[w][i];
    } else {
      COMPUTE larger = fmax(best, met);
      where[w][i] = larger == best ? where[w][i] : place;
      best = larger;
    }
  }
  __device__ __forceinline__ bool found(int w, int i) const { return PROPAGATES ? where[w][i] >= 0 : value[w][i] == value[w][i]; }
};

// The lines of a plane around a strip.
struct Lines {
  Line<Axis2::BEGIN, COUNT> line[K1];
  __device__ __forceinline__ void read(const March& march, const ELEMENT* x, int plane, int row, int column, bool present) {
    present = present && unsigned(plane) < unsigned(march.input[0]);
#pragma unroll
    for (int k1 = 0; k1 < K1; k1++)
      line[k1].template read<COLUMNS, X_PACK>(x + (OFFSET(plane) * march.x_stride[0] + OFFSET(row + k1) * march.x_stride[1]), march.x_stride[2],
                                              column, march.input[2], present && unsigned(row + k1) < unsigned(march.input[1]),
                                              element<ELEMENT>(COMPUTE(NAN)));
  }
  template <bool PROPAGATES>
  __device__ __forceinline__ void scan(const March& march, int plane, int row, int column, First<PROPAGATES>& first) const {
    first.clear();
#pragma unroll
    for (int w = 0; w < TILE2; w++)
#pragma unroll
      for (int k1 = 0; k1 < K1; k1++)
#pragma unroll
        for (int k2 = 0; k2 < K2; k2++) {
          int c = w * S2 + k2;
          bool inside = unsigned(plane) < unsigned(march.input[0]) && unsigned(row + k1) < unsigned(march.input[1]) &&
                        unsigned(column + Axis2::BEGIN + c) < unsigned(march.input[2]);
#pragma unroll
          for (int i = 0; i < LANES; i++) first.take(w, i, load<COMPUTE>(line[k1].item[c][i]), k1 * ROW_CODE + c, inside);
        }
  }
};

template <bool PROPAGATES> __device__ __forceinline__ void march_on(const MaximumArguments& a) {
  const March& march = a.march;
  COMPUTE* sums = reinterpret_cast<COMPUTE*>(shared_memory);
  for (unsigned k = threadIdx.x; k < K0 * march.slot; k += blockDim.x) sums[k] = 0;

  // The block, and the place of the thread in it.
  unsigned part, segment, group, lane, strip, row, rest;
  rest = march.lane_groups.divide(blockIdx.x, group);
  rest = march.segments.divide(rest, segment);
  unsigned plane_of_block = march.parts.divide(rest, part) * march.block_planes;
  rest = march.lanes.divide(threadIdx.x, lane);
  rest = march.strips.divide(rest, strip);
  unsigned plane = march.rows.divide(rest, row);
  unsigned pack = group * march.lanes.divisor + lane;
  bool exists = threadIdx.x < march.items && pack < march.packs && plane_of_block + plane < march.planes;
  OFFSET x_offset = OFFSET(pack) * LANES, y_offset = x_offset;
  rest = plane_of_block + plane;
#pragma unroll 1
  for (int d = 0; d < march.outer_rank; d++) {
    unsigned here;
    rest = march.outer[d].divide(rest, here);
    x_offset += OFFSET(here) * march.x_outer[d];
    y_offset += OFFSET(here) * march.y_outer[d];
  }
  int o1 = int(part) * march.block_rows + int(row) - BEFORE1, o2 = strip * TILE2, i1 = o1 * S1 - P1, column = strip * COLUMNS;
  const ELEMENT* x = a.x + (x_offset + OFFSET(column) * march.x_stride[2]);
  const ELEMENT* dy = a.dy + (y_offset + OFFSET(o2) * march.y_stride[2]);
  int width = march.lanes.divisor * LANES;  // channels of a block
  COMPUTE* row_sums = sums + ((plane * ((march.rows.divisor - 1) * S1 + K1) + row * S1) * march.pitch + lane * LANES);
  COMPUTE* strip_sums = row_sums + (column - P2) * width;

  Lines lines[S0];
  Gifts gifts, coming;
  First<PROPAGATES> carried[CARRIED ? CARRIED : 1];
  int own = segment * march.block_steps, step = max(own - BEFORE0, 0), end = min(own + march.block_steps, march.steps);
  auto read_step = [&](int o0) {
#pragma unroll
    for (int k = 0; k < S0; k++) lines[k].read(march, x, o0 * S0 - P0 + CARRIED + k, i1, column, exists);
    bool present = exists && unsigned(o0) < unsigned(march.output[0]) && unsigned(o1) < unsigned(march.output[1]);
    coming.template read<TILE2, Y_PACK>(dy + (OFFSET(o0) * march.y_stride[0] + OFFSET(o1) * march.y_stride[1]), march.y_stride[2], o2,
                                        march.output[2], present, ELEMENT(0));
  };
#pragma unroll
  for (int k = 0; k < CARRIED; k++) {
    lines[0].read(march, x, step * S0 - P0 + k, i1, column, exists);
    lines[0].scan(march, step * S0 - P0 + k, i1, column, carried[k]);
  }
  read_step(step);
  int slot = 0;  // of the first plane of a window
  __syncthreads();
#pragma unroll 1
  for (; step < end; step++) {
    int i0 = step * S0 - P0;
    First<PROPAGATES> first;
    first.clear();
    auto join = [&](const First<PROPAGATES>& some, int k0) {
#pragma unroll
      for (int w = 0; w < TILE2; w++)
#pragma unroll
        for (int i = 0; i < LANES; i++) first.take(w, i, some.value[w][i], k0 * PLANE_CODE + some.where[w][i], some.where[w][i] >= 0);
    };
    First<PROPAGATES> kept[CARRIED ? CARRIED : 1];
#pragma unroll
    for (int k = 0; k < CARRIED; k++) join(carried[k], k), kept[k] = carried[k];
#pragma unroll
    for (int k = 0; k < S0; k++) {
      First<PROPAGATES> here;
      lines[k].scan(march, i0 + CARRIED + k, i1, column, here);
      join(here, CARRIED + k);
      if (k >= S0 - CARRIED) carried[k - (S0 - CARRIED)] = here;
    }
    if (CARRIED > S0)
#pragma unroll
      for (int k = 0; k < CARRIED - S0; k++) carried[k] = kept[k + S0];
    gifts = coming;
    if (step + 1 < end) read_step(step + 1);  // on its way while the sums are made

#pragma unroll
    for (int turn = 0; turn < TURNS1 * TURNS2; turn++) {
      if (exists && row % TURNS1 == turn / TURNS2 && strip % TURNS2 == turn % TURNS2)
#pragma unroll
        for (int w = 0; w < TILE2; w++)
#pragma unroll
          for (int i = 0; i < LANES; i++) {
            unsigned place = first.where[w][i], k1 = place % PLANE_CODE / ROW_CODE, c = place % ROW_CODE;
            int k0 = slot + place / PLANE_CODE, from = k0 >= K0 ? k0 - K0 : k0;
            if (first.found(w, i)) strip_sums[int(from * march.slot + k1 * march.pitch + c * width) + i] += load<COMPUTE>(gifts.item[w][i]);
          }
      __syncthreads();
    }

    // What no later window reaches.
    constexpr bool APART = LANES == 1 && X_PACK == 1;  // columns that neighbouring threads write are neighbours
    constexpr int EACH = APART ? 1 : COLUMNS;
#pragma unroll
    for (int j0 = 0; j0 < S0; j0++) {
      int from = slot + j0 >= K0 ? slot + j0 - K0 : slot + j0;
#pragma unroll
      for (int j1 = 0; j1 < S1; j1++)
#pragma unroll
        for (int k = 0; k < COLUMNS; k += EACH) {
          int at = APART ? strip + k * march.strips.divisor : column;
          bool stays = exists && int(row) >= BEFORE1 && unsigned(i1 + j1) < unsigned(march.input[1]);
          COMPUTE found[EACH][LANES];
#pragma unroll
          for (int c = 0; c < EACH; c++)
#pragma unroll
            for (int i = 0; i < LANES; i++) {
              COMPUTE* sum = row_sums + (from * march.slot + j1 * march.pitch + (at + c) * width + i);
              if (!stays || at + c >= march.input[2]) continue;
              found[c][i] = a.alpha * *sum;
              *sum = 0;
            }
          if (stays && step >= own && unsigned(i0 + j0) < unsigned(march.input[0])) {
            ELEMENT* dx = a.dx + (x_offset + OFFSET(i0 + j0) * march.x_stride[0] + OFFSET(i1 + j1) * march.x_stride[1] + OFFSET(at) * march.x_stride[2]);
            write_line<EACH, X_PACK>(dx, march.x_stride[2], at, march.input[2], found, a.beta);
          }
        }
    }
    slot = slot + S0 >= K0 ? slot + S0 - K0 : slot + S0;
    __syncthreads();
  }
}

extern "C" __global__ void __launch_bounds__(THREADS, BLOCKS) pooling_known_maximum(const MaximumArguments a) {
  wait_for_earlier_kernels();
  a.propagate ? march_on<true>(a) : march_on<false>(a);
}
