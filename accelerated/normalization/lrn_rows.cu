// This file computes local response normalization across contiguous channels (3.2.65, 4.1.14, NHWC).
//
// A warp owns P * 32 neighbouring vectors of 16 bytes, and each lane every 32nd of them. A lane gets the elements and
// backward terms of its windows' halos from the neighbouring lanes. Lanes at the edges of the warp also load the halo
// of the warp. They recompute its terms unless a position ends there. The window size is a compile-time constant.
//
// The roofline bound is bytes. Forward reads x and writes y once; backward reads x and dy and writes dx once. An
// element takes n / 2 + 20 operations forward and n + 50 backward, with beta 3/4. An H200 does 57 and 85 operations
// while it moves the bytes of an element of float.
#include "normalization/windows.cuh"
#include "primitives/geometry.cuh"

constexpr int BEHIND = (WINDOW - 1) / 2;    // window elements before the centre
constexpr int AHEAD = WINDOW - 1 - BEHIND;  // window elements after the centre
constexpr int VECTOR = 16 / sizeof(ELEMENT);

template <int OPERANDS> struct Rows {
  COMPUTE alpha, beta;
  Power power;
  int channels;
  FastDivmod units;  // threads per position
  unsigned threads;
  Geometry<OPERANDS> positions;
};
struct ForwardArguments {
  const ELEMENT* x;
  ELEMENT* y;
  Rows<2> rows;
};
struct BackwardArguments {
  const ELEMENT* x;
  const ELEMENT* dy;
  ELEMENT* dx;
  COMPUTE gradient;  // 2 * alpha * beta / n
  Rows<3> rows;
};

// A window extends up to AROUND_FORWARD vectors on each side of a vector. Backward, its terms need AROUND_BACKWARD
// vectors.
constexpr int AROUND_FORWARD = (AHEAD + VECTOR - 1) / VECTOR;        // vectors
constexpr int AROUND_BACKWARD = (WINDOW - 1 + VECTOR - 1) / VECTOR;  // vectors
static_assert(2 * AROUND_BACKWARD <= 32);
constexpr int EXTRA = WHOLE_POSITIONS ? 0 : 1;  // 1 where positions cross the edges of a warp, so that it needs a halo

// A warp holds P vectors per lane with stride 32. The last slot is the halo: the first AROUND lanes hold the vectors
// after the warp's, and the last lanes the vectors before.
template <int P, int AROUND, int OPERANDS> struct WarpUnits {
  unsigned unit[P + EXTRA], offset[P + EXTRA][OPERANDS];
  bool exists[P + EXTRA];
  __device__ __forceinline__ WarpUnits(const Rows<OPERANDS>& r) {
    const unsigned lane = threadIdx.x % 32, first = (blockIdx.x * blockDim.x + threadIdx.x - lane) * P;
#pragma unroll
    for (int p = 0; p < P + EXTRA; p++) {
      const unsigned index = p < P || lane < AROUND ? first + p * 32 + lane : first + lane - 32;
      exists[p] = index < r.threads;
      r.positions.locate(r.units.divide(exists[p] ? index : 0, unit[p]), offset[p]);
#pragma unroll
      for (int i = 0; i < OPERANDS; i++) offset[p][i] += unit[p] * VECTOR;
    }
    if (WHOLE_POSITIONS) return;
    // Keeps only the halo of a position that the warp owns.
    const bool before = lane >= 32 - AROUND && unit[P + EXTRA - 1] + 32 - lane < r.units.divisor;
    exists[P + EXTRA - 1] = exists[P + EXTRA - 1] && (lane < AROUND ? unit[P + EXTRA - 1] > lane : before);
  }
};

// Returns of(q) for the vector `distance` vectors after this lane's vector p, where q is its slot in the lane that
// holds it. The result is 0 where that vector belongs to another position.
template <int P, class T, class Of>
__device__ __forceinline__ T beside(Of of, int p, int distance, unsigned unit, unsigned units) {
  const int lane = threadIdx.x % 32;
  const bool of_next = distance > 0 ? lane < distance : lane >= 32 + distance;
  const T own = of(p), next = of((p + (distance > 0 ? 1 : P)) % (P + EXTRA));
  const T found = __shfl_sync(0xFFFFFFFFu, of_next && !WHOLE_POSITIONS ? next : own, (lane + distance) & 31);
  return (distance > 0 ? unit + distance < units : unit >= -distance) ? found : T(0);
}

template <int P> struct WarpVectors {
  static constexpr int ITEM = PAIRED ? 2 : 1,
                       ITEMS = VECTOR / ITEM;  // ITEM: elements per item; ITEMS: items per vector
  static constexpr int LEFT = (BEHIND + ITEM - 1) / ITEM, RIGHT = (AHEAD + ITEM - 1) / ITEM;  // halo, in items
  static constexpr int OWN = LEFT * ITEM, COUNT = OWN + VECTOR + RIGHT * ITEM;
  using Item = std::remove_reference_t<decltype(Packed<VECTOR>::item[0])>;
  Packed<VECTOR> vectors[P + EXTRA];

  template <class Units> __device__ __forceinline__ void fetch(const ELEMENT* from, const Units& of, int operand) {
#pragma unroll
    for (int p = 0; p < P + EXTRA; p++) vectors[p] = fetch_packed<VECTOR>(from + of.offset[p][operand], of.exists[p]);
  }
  // Loads vector p and its halo; the first element of the vector is at OWN.
  __device__ __forceinline__ void window(int p, unsigned unit, unsigned units, COMPUTE (&values)[COUNT]) const {
#pragma unroll
    for (int i = 0; i < LEFT + RIGHT; i++) {
      const int at = i < LEFT ? i - LEFT : i - LEFT + ITEMS;  // relative to the first item of the vector
      const int distance = at < 0 ? -((ITEMS - 1 - at) / ITEMS) : at / ITEMS;
      Packed<ITEM> one;
      one.item[0] =
          beside<P, Item>([&](int q) { return vectors[q].item[at - distance * ITEMS]; }, p, distance, unit, units);
      convert_packed<ITEM>(one, values + OWN + at * ITEM);
    }
    convert_packed<VECTOR>(vectors[p], values + OWN);
  }
};

template <int P> __device__ __forceinline__ void forward(const ForwardArguments& a) {
  const Rows<2>& r = a.rows;
  const WarpUnits<P, AROUND_FORWARD, 2> of(r);
  griddepcontrol_wait_before_access(a.x + of.offset[0][0], a.y + of.offset[0][1]);
  using Vectors = WarpVectors<P>;
  Vectors vectors;
  vectors.fetch(a.x, of, 0);
  griddepcontrol_launch_dependents();
#pragma unroll
  for (int p = 0; p < P; p++) {
    COMPUTE x[Vectors::COUNT], y[VECTOR], sums[VECTOR];
    vectors.window(p, of.unit[p], r.units.divisor, x);
    window_sums<Square>([&](int i) { return x[Vectors::OWN - BEHIND + i]; }, sums);
#pragma unroll
    for (int o = 0; o < VECTOR; o++) y[o] = x[Vectors::OWN + o] * r.power(r.power.base(sums[o]));
    if (of.exists[p]) write_packed<VECTOR>(a.y + of.offset[p][1], y, r.alpha, r.beta);
  }
}

template <int P> __device__ __forceinline__ void backward(const BackwardArguments& a) {
  const Rows<3>& r = a.rows;
  const unsigned units = r.units.divisor;
  const WarpUnits<P, AROUND_BACKWARD, 3> of(r);
  griddepcontrol_wait_before_access(a.x + of.offset[0][0], a.dy + of.offset[0][1], a.dx + of.offset[0][2]);
  using Vectors = WarpVectors<P>;
  Vectors of_x, of_dy;
  of_x.fetch(a.x, of, 0);
  of_dy.fetch(a.dy, of, 1);
  griddepcontrol_launch_dependents();
  COMPUTE direct[P + EXTRA][VECTOR], term[P + EXTRA][VECTOR],
      sums[VECTOR];  // direct = dy * s^-beta; term = dy * x * s^(-beta - 1)
  const bool around = !WHOLE_POSITIONS && __any_sync(0xFFFFFFFFu, of.exists[P + EXTRA - 1]);
#pragma unroll
  for (int p = 0; p < P + EXTRA; p++) {
    if (p == P && !around) {
#pragma unroll
      for (int o = 0; o < VECTOR; o++) term[p][o] = 0;
      continue;
    }
    COMPUTE x[Vectors::COUNT], dy[VECTOR];
    of_x.window(p, of.unit[p], units, x);
    convert_packed<VECTOR>(of_dy.vectors[p], dy);
    window_sums<Square>([&](int i) { return x[Vectors::OWN - BEHIND + i]; }, sums);
#pragma unroll
    for (int o = 0; o < VECTOR; o++) {
      COMPUTE inverse;
      direct[p][o] = dy[o] * r.power(r.power.base(sums[o]), inverse);
      term[p][o] = direct[p][o] * x[Vectors::OWN + o] * inverse;
    }
  }
#pragma unroll
  for (int p = 0; p < P; p++) {
    COMPUTE terms[WINDOW - 1 + VECTOR], x[VECTOR], dx[VECTOR];  // `terms` begin AHEAD channels before the vector.
#pragma unroll
    for (int i = 0; i < WINDOW - 1 + VECTOR; i++) {
      const int at = i - AHEAD, distance = at < 0 ? -((VECTOR - 1 - at) / VECTOR) : at / VECTOR;
      auto of_vector = [&](int q) { return term[q][at - distance * VECTOR]; };
      terms[i] = distance == 0 ? of_vector(p) : beside<P, COMPUTE>(of_vector, p, distance, of.unit[p], units);
    }
    window_sums<Itself>([&](int i) { return terms[i]; }, sums);
    convert_packed<VECTOR>(of_x.vectors[p], x);
#pragma unroll
    for (int o = 0; o < VECTOR; o++) dx[o] = direct[p][o] - a.gradient * x[o] * sums[o];
    if (of.exists[p]) write_packed<VECTOR>(a.dx + of.offset[p][2], dx, r.alpha, r.beta);
  }
}

// This window of one position is accessed channel by channel: [channel - BEFORE, channel + OWN + AFTER).
template <int BEFORE, int OWN, int AFTER> struct Channels {
  COMPUTE values[BEFORE + OWN + AFTER];
  __device__ __forceinline__ void read(const ELEMENT* from, int channel, int channels) {
#pragma unroll
    for (int i = 0; i < BEFORE + OWN + AFTER; i++) {
      const int c = channel - BEFORE + i;
      read_packed<1>(from + c, c >= 0 && c < channels, values + i);
    }
  }
  // Indexes a channel relative to the first of OWN.
  __device__ __forceinline__ COMPUTE operator[](int c) const { return values[BEFORE + c]; }
};

template <int OWN> __device__ __forceinline__ void forward_single(const ForwardArguments& a) {
  const Rows<2>& r = a.rows;
  const unsigned index = blockIdx.x * blockDim.x + threadIdx.x;
  if (index >= r.threads) return;
  unsigned unit, offset[2];
  r.positions.locate(r.units.divide(index, unit), offset);
  const int channel = unit * OWN;
  griddepcontrol_wait_before_access(a.x + offset[0], a.y + offset[1]);
  Channels<BEHIND, OWN, AHEAD> x;
  x.read(a.x + offset[0], channel, r.channels);
  griddepcontrol_launch_dependents();
  COMPUTE y[OWN], sums[OWN];
  window_sums<Square>([&](int i) { return x[i - BEHIND]; }, sums);
#pragma unroll
  for (int o = 0; o < OWN; o++) y[o] = x[o] * r.power(r.power.base(sums[o]));
#pragma unroll
  for (int o = 0; o < OWN; o++)
    if (channel + o < r.channels) write_packed<1>(a.y + offset[1] + channel + o, y + o, r.alpha, r.beta);
}

template <int OWN> __device__ __forceinline__ void backward_single(const BackwardArguments& a) {
  const Rows<3>& r = a.rows;
  const unsigned index = blockIdx.x * blockDim.x + threadIdx.x;
  if (index >= r.threads) return;
  unsigned unit, offset[3];
  r.positions.locate(r.units.divide(index, unit), offset);
  const int channel = unit * OWN;
  griddepcontrol_wait_before_access(a.x + offset[0], a.dy + offset[1], a.dx + offset[2]);
  Channels<WINDOW - 1, OWN, WINDOW - 1> x;
  Channels<AHEAD, OWN, BEHIND> dy;
  x.read(a.x + offset[0], channel, r.channels);
  dy.read(a.dy + offset[1], channel, r.channels);
  griddepcontrol_launch_dependents();
  COMPUTE direct[OWN], term[OWN + WINDOW - 1];  // `term` begins at channel - AHEAD.
  window_sums<Square>([&](int i) { return x[i - (WINDOW - 1)]; }, term);
#pragma unroll
  for (int j = 0; j < OWN + WINDOW - 1; j++) {
    const int c = j - AHEAD;
    COMPUTE inverse;
    const COMPUTE scaled = dy[c] * r.power(r.power.base(term[j]), inverse);
    if (c >= 0 && c < OWN) direct[c] = scaled;
    term[j] = channel + c >= 0 && channel + c < r.channels ? scaled * x[c] * inverse : COMPUTE(0);
  }
  COMPUTE dx[OWN], sums[OWN];
  window_sums<Itself>([&](int i) { return term[i]; }, sums);
#pragma unroll
  for (int o = 0; o < OWN; o++) dx[o] = direct[o] - a.gradient * x[o] * sums[o];
#pragma unroll
  for (int o = 0; o < OWN; o++)
    if (channel + o < r.channels) write_packed<1>(a.dx + offset[2] + channel + o, dx + o, r.alpha, r.beta);
}

extern "C" __global__ void __launch_bounds__(THREADS) normalization_lrn_rows_forward(const ForwardArguments a) {
  griddepcontrol_wait_deferred();
  forward<FORWARD_VECTORS>(a);
}
extern "C" __global__ void __launch_bounds__(THREADS) normalization_lrn_rows_forward_single(const ForwardArguments a) {
  griddepcontrol_wait_deferred();
  forward_single<FORWARD_SINGLES>(a);
}
extern "C" __global__ void __launch_bounds__(THREADS) normalization_lrn_rows_backward(const BackwardArguments a) {
  griddepcontrol_wait_deferred();
  backward<BACKWARD_VECTORS>(a);
}
extern "C" __global__ void __launch_bounds__(THREADS)
    normalization_lrn_rows_backward_single(const BackwardArguments a) {
  griddepcontrol_wait_deferred();
  backward_single<BACKWARD_SINGLES>(a);
}
