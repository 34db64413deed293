// This header defines the online-softmax state of a row (running maximum and sum), its updates and results, and the
// arguments of the kernels.
#pragma once
#include "primitives/cluster.cuh"
#include "primitives/cp_async.cuh"
#include "primitives/elementwise.cuh"
#include "primitives/packed.cuh"

#include <type_traits>

enum Algorithm { FAST = 0, ACCURATE = 1, LOG = 2 };  // cudnnSoftmaxAlgorithm_t

// These constants match softmax/problem.py and softmax/staged.py. Vectors of 8-bit integers hold one element, because
// no integer pads them without changing a maximum.
#ifndef VECTOR_BYTES
#define VECTOR_BYTES 16  // bytes per vector; fewer where rows in registers are not aligned to 16 bytes
#endif
constexpr int WIDTH = sizeof(ELEMENT) == 1 ? 1 : VECTOR_BYTES / sizeof(ELEMENT);  // elements per vector
template <int WIDE> constexpr int HELD = WIDE == 1 ? 8 : 2;                       // vectors per input and group
constexpr int DEPTH = 4;                                                          // groups in flight per thread

template <int WIDE> struct alignas(sizeof(ELEMENT) * WIDE) Elements {
  ELEMENT item[WIDE];
};

template <int WIDE> __device__ __forceinline__ void unpack(const Elements<WIDE>* vector, COMPUTE* values) {
  read_packed<WIDE>(vector->item, true, values);
}
template <int WIDE> __device__ __forceinline__ void pack(const COMPUTE (&values)[WIDE], Elements<WIDE>* target) {
  put_packed<WIDE>(target->item, values);
}

constexpr int MIN_COPY = 4;  // bytes

#ifndef EVICT_FIRST
#define EVICT_FIRST 0  // 1 where the data exceed L2 (EVICTED_BYTES): reads are evicted first, so that results stay
#endif

// Copies to shared memory, asynchronously if cp.async supports the size.
template <class T> __device__ __forceinline__ void copy(T* to, const T* from) {
  if constexpr (sizeof(T) < MIN_COPY) *to = *from;
  else if constexpr (sizeof(T) == 16 && EVICT_FIRST) cp_async_evict_first(to, from);
  else cp_async<sizeof(T)>(to, from, true);
}

// Fields of short rows come first, because they arrive with the pointers.
template <int INPUTS> struct Arguments {
  const ELEMENT* input[INPUTS];
  ELEMENT* output;
  COMPUTE alpha, beta;
  int algorithm;
  unsigned team;  // threads per block that share a row; strided rows: row vectors per block; a power of two
  // `kept` counts a thread's groups in shared memory, or the vectors per lane. For tiles it counts rows per block, and
  // for strided rows in registers the blocks that prefetch to L2.
  unsigned kept;
  Geometry<INPUTS + 1> rows;   // geometry of row vectors for strided rows, else of single rows
  Geometry<INPUTS + 1> along;  // geometry of positions for strided rows, else of vectors
};

constexpr float LOG2_E = 1.44269504f;
constexpr float LN_2 = 0.693147181f;
__device__ __forceinline__ float exponential(float x) { return power_of_two(x * LOG2_E); }
__device__ __forceinline__ double exponential(double x) { return exp(x); }

// exp(x - maximum) takes a product and a difference. A fused operation suffices for numbers whose products cannot
// overflow. The rounding of maximum * LOG2_E scales all exponentials of a row equally.
constexpr bool FUSED = std::is_same_v<ELEMENT, half> && std::is_same_v<COMPUTE, float>;
constexpr COMPUTE LOWEST = FUSED ? -1e30 : sizeof(COMPUTE) == 8 ? -1.7976931348623157e308 : -3.402823466e38;
__device__ __forceinline__ COMPUTE shift_of(COMPUTE maximum) {
  if constexpr (FUSED)
    return __fmul_rn(maximum, LOG2_E);  // This product is never fused, so equal maxima have equal shifts.
  else return maximum;
}
__device__ __forceinline__ COMPUTE shifted_exponential(COMPUTE x, COMPUTE shift) {
  if constexpr (FUSED) return power_of_two(fmaf(x, LOG2_E, -shift));
  else return exponential(x - shift);
}
__device__ __forceinline__ COMPUTE exponential_of_difference(COMPUTE shift, COMPUTE other) {
  if constexpr (FUSED) return power_of_two(shift - other);
  else return exponential(shift - other);
}

constexpr bool NEUTRAL_ELEMENT = sizeof(ELEMENT) > 1;  // Integers have no neutral element.

struct OnlineState {
  COMPUTE maximum, sum;
};

// Values of a single row are added in several independent chains.
template <int ROWS> constexpr int CHAINS = ROWS == 1 ? 4 : ROWS;

// `maximum` is the row's maximum (0 for FAST) and `sum` the sum of exp(x - maximum). Any number of parts can be merged.
// Until an element above -inf appears, maximum is a large negative number. Then exp(-inf - maximum) is 0, whereas
// exp(-inf - -inf) would be NaN.
struct Forward {
  static constexpr int INPUTS = 1;
  Algorithm algorithm;
  COMPUTE alpha;

  // Returns a value that changes neither maximum nor sum.
  static __device__ __forceinline__ COMPUTE neutral() { return COMPUTE(-INFINITY); }
  __device__ __forceinline__ OnlineState empty() const { return {algorithm == FAST ? COMPUTE(0) : LOWEST, COMPUTE(0)}; }
  __device__ __forceinline__ bool has_maximum() const { return algorithm != FAST; }
  static __device__ __forceinline__ void raise(OnlineState& state, COMPUTE maximum) {
    state.sum *= exponential_of_difference(shift_of(state.maximum), shift_of(maximum));
    state.maximum = maximum;
  }

  // Raises the maxima to cover the values. Value j belongs to row j modulo ROWS. FIRST: no sum has been added yet.
  template <bool FIRST = false, int ROWS, int N>
  __device__ __forceinline__ void cover(OnlineState (&state)[ROWS], const COMPUTE (&values)[1][N]) const {
    if (!has_maximum()) return;
    COMPUTE maximum[CHAINS<ROWS>];
#pragma unroll
    for (int chain = 0; chain < CHAINS<ROWS>; chain++) maximum[chain] = state[chain % ROWS].maximum;
#pragma unroll
    for (int j = 0; j < N; j++) maximum[j % CHAINS<ROWS>] = max(maximum[j % CHAINS<ROWS>], values[0][j]);
#pragma unroll
    for (int r = 0; r < ROWS; r++) {
#pragma unroll
      for (int chain = r + ROWS; chain < CHAINS<ROWS>; chain += ROWS) maximum[r] = max(maximum[r], maximum[chain]);
      if (FIRST) state[r].maximum = maximum[r];
      else raise(state[r], maximum[r]);
    }
  }
  // Adds values that do not exceed the maxima. KEEP: exponentials replace the values if results() needs only them.
  template <bool KEEP = false, int ROWS, int N>
  __device__ __forceinline__ void add_covered(OnlineState (&state)[ROWS],
                                              std::conditional_t<KEEP, COMPUTE, const COMPUTE> (&values)[1][N]) const {
    COMPUTE sum[CHAINS<ROWS>] = {}, shift[ROWS];
    auto add_to_chain = [&](int j, COMPUTE value) {
      sum[j % CHAINS<ROWS>] = j < CHAINS<ROWS> ? value : sum[j % CHAINS<ROWS>] + value;
    };
#pragma unroll
    for (int r = 0; r < ROWS; r++) shift[r] = shift_of(state[r].maximum);
    if (KEEP && algorithm != LOG) {
#pragma unroll
      for (int j = 0; j < N; j++) {
        const COMPUTE exponential = shifted_exponential(values[0][j], shift[j % ROWS]);
        add_to_chain(j, exponential);
        if constexpr (KEEP) values[0][j] = exponential;
      }
    } else {
#pragma unroll
      for (int j = 0; j < N; j++) add_to_chain(j, shifted_exponential(values[0][j], shift[j % ROWS]));
    }
#pragma unroll
    for (int chain = 0; chain < CHAINS<ROWS> && chain < N; chain++) state[chain % ROWS].sum += sum[chain];
  }
  // Adds values that may exceed the maxima.
  template <bool FIRST = false, int ROWS, int N>
  __device__ __forceinline__ void add(OnlineState (&state)[ROWS], const COMPUTE (&values)[1][N]) const {
    cover<FIRST>(state, values);
    add_covered(state, values);
  }
  // Turns the state into the input of results().
  __device__ __forceinline__ void finish(OnlineState& state) const {
    const COMPUTE shift = shift_of(state.maximum);
    if (algorithm == LOG) {
      state.sum = log(state.sum);
      // This removes the error from the rounding of the shift.
      if (FUSED) state.sum -= fmaf(state.maximum, LOG2_E, -shift) * LN_2;
    } else {
      state.sum = alpha * (COMPUTE(1) / state.sum), state.maximum = shift;
    }
  }
  // Rescales a finished state to values that were kept relative to another maximum.
  __device__ __forceinline__ void scale(OnlineState& state, COMPUTE maximum) const {
    if (algorithm != LOG) state.sum *= exponential_of_difference(shift_of(maximum), state.maximum);
  }
  // Computes results. KEPT: the values were kept by add_covered().
  template <bool KEPT = false, int ROWS, int N>
  __device__ __forceinline__ void results(const OnlineState (&state)[ROWS], const COMPUTE (&values)[1][N],
                                          COMPUTE (&result)[N]) const {
    if (algorithm == LOG) {
#pragma unroll
      for (int j = 0; j < N; j++) result[j] = alpha * (values[0][j] - state[j % ROWS].maximum - state[j % ROWS].sum);
    } else {
#pragma unroll
      for (int j = 0; j < N; j++)
        result[j] =
            (KEPT ? values[0][j] : shifted_exponential(values[0][j], state[j % ROWS].maximum)) * state[j % ROWS].sum;
    }
  }
};

// The state of a row is the sum of y * dy, or for LOG the sum of dy.
struct Backward {
  static constexpr int INPUTS = 2;
  Algorithm algorithm;
  COMPUTE alpha;

  static __device__ __forceinline__ COMPUTE neutral() { return COMPUTE(0); }
  __device__ __forceinline__ OnlineState empty() const { return {COMPUTE(0), COMPUTE(0)}; }
  __device__ __forceinline__ bool has_maximum() const { return false; }
  static __device__ __forceinline__ void raise(OnlineState&, COMPUTE) {}

  template <bool FIRST = false, int ROWS, int N>
  __device__ __forceinline__ void cover(OnlineState (&)[ROWS], const COMPUTE (&)[2][N]) const {}
  template <bool = false, int ROWS, int N>
  __device__ __forceinline__ void add_covered(OnlineState (&state)[ROWS], const COMPUTE (&values)[2][N]) const {
    add(state, values);
  }
  template <bool = false, int ROWS, int N>
  __device__ __forceinline__ void add(OnlineState (&state)[ROWS], const COMPUTE (&values)[2][N]) const {
    COMPUTE sum[CHAINS<ROWS>] = {};
#pragma unroll
    for (int j = 0; j < N; j++) {
      const COMPUTE term = algorithm == LOG ? values[1][j] : values[0][j] * values[1][j];
      sum[j % CHAINS<ROWS>] = j < CHAINS<ROWS> ? term : sum[j % CHAINS<ROWS>] + term;
    }
#pragma unroll
    for (int chain = 0; chain < CHAINS<ROWS> && chain < N; chain++) state[chain % ROWS].sum += sum[chain];
  }
  __device__ __forceinline__ void finish(OnlineState&) const {}
  __device__ __forceinline__ void scale(OnlineState&, COMPUTE) const {}
  template <bool = false, int ROWS, int N>
  __device__ __forceinline__ void results(const OnlineState (&state)[ROWS], const COMPUTE (&values)[2][N],
                                          COMPUTE (&result)[N]) const {
    if (algorithm == LOG) {
#pragma unroll
      for (int j = 0; j < N; j++) result[j] = alpha * (values[1][j] - exponential(values[0][j]) * state[j % ROWS].sum);
    } else {
#pragma unroll
      for (int j = 0; j < N; j++) result[j] = alpha * (values[0][j] * (values[1][j] - state[j % ROWS].sum));
    }
  }
};
