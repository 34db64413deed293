// This header defines the accumulators of reductions.
#pragma once
#include <type_traits>

#include "primitives/geometry.cuh"
#include "primitives/types.cuh"

constexpr int WIDTH = sizeof(ELEMENT) == 1 ? 8 : 16 / sizeof(ELEMENT);  // elements per vector
constexpr unsigned NOWHERE = 0xffffffffu;                               // index of an extremum of no elements

enum Op {
  ADD = 0,
  MUL = 1,
  MIN = 2,
  MAX = 3,
  AMAX = 4,
  AVG = 5,
  NORM1 = 6,
  NORM2 = 7,
  MUL_NO_ZEROS = 8
};  // cudnnReduceTensorOp_t
enum Type { FLOAT = 0, DOUBLE = 1, HALF = 2, INT8 = 3, BFLOAT16 = 9 };  // cudnnDataType_t
// OWN_TYPE is the type of ELEMENT, if C can have it, else -1.
constexpr int OWN_TYPE = std::is_same_v<ELEMENT, half>       ? HALF
                         : std::is_same_v<ELEMENT, double>   ? DOUBLE
                         : std::is_same_v<ELEMENT, int8>     ? INT8
                         : std::is_same_v<ELEMENT, bfloat16> ? BFLOAT16
                         : std::is_same_v<ELEMENT, float>    ? FLOAT
                                                             : -1;

// --- accumulators ---

struct Itself {
  static constexpr bool signless = false;
  static __device__ __forceinline__ COMPUTE of(COMPUTE x) { return x; }
};
struct Negative {
  static constexpr bool signless = false;
  static __device__ __forceinline__ COMPUTE of(COMPUTE x) { return -x; }
};
struct Absolute {
  static constexpr bool signless = true;
  static __device__ __forceinline__ COMPUTE of(COMPUTE x) { return fabs(x); }
};
struct Square {
  static __device__ __forceinline__ COMPUTE of(COMPUTE x) { return x * x; }
};
struct OneForZero {
  static __device__ __forceinline__ COMPUTE of(COMPUTE x) { return x == COMPUTE(0) ? COMPUTE(1) : x; }
};

struct Value {
  COMPUTE value;
};
struct Ranked {
  COMPUTE value;
  unsigned index;
};

template <class Map> struct Sum {
  using State = Value;
  __device__ __forceinline__ State start() const { return {COMPUTE(0)}; }
  __device__ __forceinline__ void add(State& state, COMPUTE x, unsigned) const { state.value += Map::of(x); }
  __device__ __forceinline__ void merge(State& state, State other) const { state.value += other.value; }
};

template <class Map> struct Product {
  using State = Value;
  __device__ __forceinline__ State start() const { return {COMPUTE(1)}; }
  __device__ __forceinline__ void add(State& state, COMPUTE x, unsigned) const { state.value *= Map::of(x); }
  __device__ __forceinline__ void merge(State& state, State other) const { state.value *= other.value; }
};

template <class Map, bool PROPAGATE> struct Largest {
  using State = Value;
  __device__ __forceinline__ State start() const { return {Map::signless ? COMPUTE(0) : COMPUTE(-INFINITY)}; }
  __device__ __forceinline__ void add(State& state, COMPUTE x, unsigned) const { merge(state, {Map::of(x)}); }
  __device__ __forceinline__ void merge(State& state, State other) const {
    if (!PROPAGATE) state.value = fmax(state.value, other.value);  // fmax ignores NaN.
    // Comparisons with NaN are false, so that a NaN in `state` stays.
    else if (other.value > state.value || other.value != other.value) state.value = other.value;
  }
};

template <class Map> struct FirstLargest {
  using State = Ranked;
  bool propagate;
  __device__ __forceinline__ State start() const { return {COMPUTE(-INFINITY), NOWHERE}; }
  __device__ __forceinline__ void add(State& state, COMPUTE x, unsigned index) const {
    merge(state, {Map::of(x), index});
  }
  __device__ __forceinline__ void merge(State& state, State other) const {
    bool earlier = other.index < state.index;
    bool nan = propagate && other.value != other.value && (earlier || state.value == state.value);
    if (other.value > state.value || (other.value == state.value && earlier) || nan) state = other;
  }
};

// --- threads of a warp ---

__device__ __forceinline__ Value from_lane(Value state, int lanes) {
  return {__shfl_xor_sync(~0u, state.value, lanes)};
}
__device__ __forceinline__ Ranked from_lane(Ranked state, int lanes) {
  return {__shfl_xor_sync(~0u, state.value, lanes), __shfl_xor_sync(~0u, state.index, lanes)};
}

// --- kernels by operation ---

#define EXTREMUM(run, map)                              \
  if (a.propagate) return run(a, Largest<map, true>{}); \
  else return run(a, Largest<map, false>{});
#define PLAIN(run)                          \
  switch (a.op) {                           \
    case ADD:                               \
    case AVG:                               \
      return run(a, Sum<Itself>{});         \
    case NORM1:                             \
      return run(a, Sum<Absolute>{});       \
    case NORM2:                             \
      return run(a, Sum<Square>{});         \
    case MUL:                               \
      return run(a, Product<Itself>{});     \
    case MUL_NO_ZEROS:                      \
      return run(a, Product<OneForZero>{}); \
    case MIN:                               \
      EXTREMUM(run, Negative)               \
    case MAX:                               \
      EXTREMUM(run, Itself)                 \
    case AMAX:                              \
      EXTREMUM(run, Absolute)               \
  }
// INDEXED(run) calls run with the accumulator of an extremum with indices.
#define INDEXED(run)                                    \
  switch (a.op) {                                       \
    case MIN:                                           \
      return run(a, FirstLargest<Negative>{propagate}); \
    case MAX:                                           \
      return run(a, FirstLargest<Itself>{propagate});   \
  }
