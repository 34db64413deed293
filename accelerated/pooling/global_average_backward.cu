// Pooling backward (4.1.18) of an average over a whole plane: dx = alpha * dy / divisor + beta * dx.
//
// Floor: bytes, dx written once; dy is smaller by the size of a plane. A thread reads one value (16 bytes of channels) and
// writes it again and again, 16 bytes at a time: stores do not wait for each other. Writing alone is no slower than a copy:
// 99 to 106 % of it, measured on an H200.
#include "pooling/global_window.cuh"

struct SpreadArguments {
  const ELEMENT* dy;
  ELEMENT* dx;
  Whole whole;
  COMPUTE alpha, beta, reciprocal;
};

// Writes `gift` to every target(k), k = first, first + step, ... < end, blended; accesses of type T.
template <class T, class Target, class Blend>
__device__ __forceinline__ void write_all(unsigned first, unsigned end, unsigned step, bool blends, const T& gift, Target target, Blend blended) {
  if (!blends) {
#pragma unroll 8
    for (unsigned k = first; k < end; k += step) *target(k) = gift;
    return;
  }
#pragma unroll 4
  for (unsigned k = first; k < end; k += step) *target(k) = blended(*target(k));
}

template <bool FEW> __device__ __forceinline__ void spread_rows(const SpreadArguments& a) {
  const Whole& whole = a.whole;
  unsigned team = 1u << whole.team_bits, member = threadIdx.x & (team - 1);
  unsigned plane = (blockIdx.x * blockDim.x + threadIdx.x) >> whole.team_bits;
  if (plane >= whole.planes) return;
  long long x_offset = 0, y_offset = 0;
  whole.offsets(plane, x_offset, y_offset);
  ELEMENT* dx = a.dx + x_offset;
  if (FEW) griddepcontrol_wait_before_access(a.dy + y_offset, dx + member);
  COMPUTE share = a.alpha * (load<COMPUTE>(a.dy[y_offset]) * a.reciprocal);
  bool blends = a.beta != COMPUTE(0);
  ELEMENT one = store<ELEMENT>(share);
  auto blended = [&](ELEMENT prior) { return store<ELEMENT>(share + a.beta * load<COMPUTE>(prior)); };
  if (whole.lines == 1) {
    Stretch stretch(dx, whole.columns);
    Wide wide;
#pragma unroll
    for (int i = 0; i < WIDTH; i++) wide.item[i] = one;
    Wide* packs = reinterpret_cast<Wide*>(dx + stretch.head);
    write_all(member, stretch.packs, team, blends, wide, [&](unsigned k) { return packs + k; }, [&](Wide prior) {
#pragma unroll
      for (int i = 0; i < WIDTH; i++) prior.item[i] = blended(prior.item[i]);
      return prior;
    });
    stretch.visit_ends(member, team, [&](unsigned k) { dx[k] = blends ? blended(dx[k]) : one; });
    return;
  }
  unsigned columns = 1u << whole.column_bits, line = member >> whole.column_bits, step = team >> whole.column_bits;
#pragma unroll 1
  for (unsigned column = member & (columns - 1); column < whole.columns; column += columns)
    write_all(line, whole.lines, step, blends, one, [&](unsigned k) { return dx + (k * whole.line_stride + column); }, blended);
}

template <bool FEW> __device__ __forceinline__ void spread_channels(const SpreadArguments& a) {
  const Whole& whole = a.whole;
  unsigned lanes = 1u << whole.team_bits, slice = threadIdx.x >> whole.team_bits, slices = blockDim.x >> whole.team_bits;
  unsigned groups = (whole.planes + lanes - 1) >> whole.team_bits, part = blockIdx.x / groups;
  unsigned index = (blockIdx.x - part * groups) * lanes + (threadIdx.x & (lanes - 1));
  if (index >= whole.planes) return;
  long long x_offset, y_offset;
  whole.pack_offsets(index, x_offset, y_offset);
  if (FEW) griddepcontrol_wait_before_access(a.dy + y_offset, a.dx + x_offset);
  Wide wide = *reinterpret_cast<const Wide*>(a.dy + y_offset);
  COMPUTE share[WIDTH];
#pragma unroll
  for (int i = 0; i < WIDTH; i++) {
    share[i] = a.alpha * (load<COMPUTE>(wide.item[i]) * a.reciprocal);
    wide.item[i] = store<ELEMENT>(share[i]);
  }
  ELEMENT* dx = a.dx + x_offset;
  unsigned first = part * whole.columns, end = min(first + whole.columns, whole.lines);  // positions of a block
  write_all(first + slice, end, slices, a.beta != COMPUTE(0), wide, [&](unsigned k) { return reinterpret_cast<Wide*>(dx + k * whole.line_stride); },
            [&](Wide prior) {
#pragma unroll
              for (int i = 0; i < WIDTH; i++) prior.item[i] = store<ELEMENT>(share[i] + a.beta * load<COMPUTE>(prior.item[i]));
              return prior;
            });
}

// Few blocks find their places before they wait: 8x64x14x14 takes 1.1 to 1.2 us in a stream instead of 1.3 to 1.6. Of many, most of which
// begin when nothing is left to wait for, places that are found at once take up to 5 % longer.
template <class Few, class Many> __device__ __forceinline__ void spread(const SpreadArguments& a, Few few, Many many) {
  if (grid_blocks() <= MANY_BLOCKS_BEFORE_READS) return few();
  griddepcontrol_wait_only(a.dx);
  many();
}
extern "C" __global__ void __launch_bounds__(1024) pooling_global_average_backward_rows(const SpreadArguments a) {
  griddepcontrol_wait_deferred();
  spread(a, [&] { spread_rows<true>(a); }, [&] { spread_rows<false>(a); });
}
extern "C" __global__ void __launch_bounds__(512) pooling_global_average_backward_channels(const SpreadArguments a) {
  griddepcontrol_wait_deferred();
  spread(a, [&] { spread_channels<true>(a); }, [&] { spread_channels<false>(a); });
}
