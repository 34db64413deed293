// What reductions accumulate, and how their results are stored: shared by the kernels of any tensor (reduce_tensor.cu) and of small ones
// (reduce_tensor_small.cu).
#pragma once
#include <type_traits>

#include "index.cuh"
#include "types.cuh"

constexpr int WIDTH = sizeof(ELEMENT) == 1 ? 8 : 16 / sizeof(ELEMENT);  // elements of a pack
constexpr unsigned NOWHERE = 0xffffffffu;  // the index of an extremum of nothing

enum Op { ADD = 0, MUL = 1, MIN = 2, MAX = 3, AMAX = 4, AVG = 5, NORM1 = 6, NORM2 = 7, MUL_NO_ZEROS = 8 };  // cudnnReduceTensorOp_t
enum Type { FLOAT = 0, DOUBLE = 1, HALF = 2, INT8 = 3 };  // cudnnDataType_t

struct Arguments {
  const ELEMENT* a;
  void* c;
  void* indices;
  COMPUTE* workspace;   // partial results [segment][number], then their indices
  unsigned long long count;  // that arrivals enter; NOT_COUNTED: another launch merges
  Geometry<2> reduced;  // one reduction: (position in row-major order, or 0 without indices, offset in A)
  Geometry<3> kept;     // C: (offset in C, number of the element, in row-major order where there are indices, offset in A)
  COMPUTE alpha, beta;
  unsigned length;   // elements of A that one element of C reduces
  unsigned outputs;  // elements of C
  unsigned segments, segment;  // how many there are, packs of one
  unsigned lanes_log2;
  int alone;                 // columns: a thread has a whole pack of C to itself, aligned if C is
  int tiled;                 // columns: a block's are 2 ** across_log2 packs of several rows, not neighbours; one segment
  unsigned across_log2;
  Divisor blocks_across;
  int even;     // packs of A are one step apart, whole, and at multiples of 16 bytes if A is
  int windows;  // rows start anywhere: their packs start at multiples of 16 bytes, the outer ones reach over the ends
  int op, propagate, c_type, index_bytes;
  unsigned gathered_at;  // where in shared memory a cluster meets: so many states behind its start
};

// --- what is accumulated ---

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
    if (!PROPAGATE) state.value = fmax(state.value, other.value);  // passes over NaN
    // Comparisons with NaN are false: once in `state` it stays.
    else if (other.value > state.value || other.value != other.value) state.value = other.value;
  }
};

template <class Map> struct FirstLargest {
  using State = Ranked;
  bool propagate;
  __device__ __forceinline__ State start() const { return {COMPUTE(-INFINITY), NOWHERE}; }
  __device__ __forceinline__ void add(State& state, COMPUTE x, unsigned index) const { merge(state, {Map::of(x), index}); }
  __device__ __forceinline__ void merge(State& state, State other) const {
    bool earlier = other.index < state.index;
    bool nan = propagate && other.value != other.value && (earlier || state.value == state.value);
    if (other.value > state.value || (other.value == state.value && earlier) || nan) state = other;
  }
};

// --- results ---

template <class T> __device__ __forceinline__ void blend_into(void* c, long long offset, const Arguments& a, COMPUTE value) {
  T* place = static_cast<T*>(c) + offset;
  *place = blend<COMPUTE, T>(a.alpha, value, a.beta, place);
}

__device__ __forceinline__ void store_index(const Arguments& a, long long number, unsigned index) {
  switch (a.index_bytes) {
    case 1: static_cast<unsigned char*>(a.indices)[number] = index; break;
    case 2: static_cast<unsigned short*>(a.indices)[number] = index; break;
    case 4: static_cast<unsigned*>(a.indices)[number] = index; break;
    case 8: static_cast<unsigned long long*>(a.indices)[number] = index; break;
  }
}

__device__ __forceinline__ COMPUTE finished(const Arguments& a, COMPUTE value) {
  switch (a.op) {
    case AVG: return value / COMPUTE(a.length);
    case NORM2: return sqrt(value);
    case MIN: return -value;
  }
  return value;
}

__device__ __forceinline__ void store_result(const Arguments& a, COMPUTE value, long long offset) {
  value = finished(a, value);
  // Comparisons, not a jump through a table in memory.
  if (a.c_type == FLOAT) blend_into<float>(a.c, offset, a, value);
  else if (a.c_type == HALF) blend_into<half>(a.c, offset, a, value);
  else if (a.c_type == DOUBLE) blend_into<double>(a.c, offset, a, value);
  else blend_into<int8>(a.c, offset, a, value);
}

// A pack of results side by side.
template <class T> __device__ __forceinline__ void blend_pack(const Arguments& a, unsigned offset, const Value (&state)[WIDTH]) {
  using Results = Pack<T, WIDTH>;
  Results* place = reinterpret_cast<Results*>(static_cast<T*>(a.c) + offset);
  Results prior, results;
  if (a.beta != COMPUTE(0)) prior = *place;
#pragma unroll
  for (int i = 0; i < WIDTH; i++) {
    COMPUTE value = a.alpha * finished(a, state[i].value);
    if (a.beta != COMPUTE(0)) value += a.beta * load<COMPUTE>(prior.item[i]);
    results.item[i] = store<T>(value);
  }
  *place = results;
}

__device__ __forceinline__ void conclude_pack(const Arguments& a, const Value (&state)[WIDTH], unsigned offset) {
  switch (a.c_type) {
    case FLOAT: return blend_pack<float>(a, offset, state);
    case DOUBLE: return blend_pack<double>(a, offset, state);
    case HALF: return blend_pack<half>(a, offset, state);
    case INT8: return blend_pack<int8>(a, offset, state);
  }
}
__device__ __forceinline__ void conclude_pack(const Arguments&, const Ranked (&)[WIDTH], unsigned) {}

__device__ __forceinline__ void conclude(const Arguments& a, Value state, long long offset, long long) {
  store_result(a, state.value, offset);
}
__device__ __forceinline__ void conclude(const Arguments& a, Ranked state, long long offset, long long number) {
  store_result(a, state.value, offset);
  store_index(a, number, state.index == NOWHERE ? 0 : state.index);
}

// --- threads of a warp ---

__device__ __forceinline__ Value from_lane(Value state, int lanes) { return {__shfl_xor_sync(~0u, state.value, lanes)}; }
__device__ __forceinline__ Ranked from_lane(Ranked state, int lanes) {
  return {__shfl_xor_sync(~0u, state.value, lanes), __shfl_xor_sync(~0u, state.index, lanes)};
}

// --- kernels by operation ---

#define EXTREMUM(run, map) \
  if (a.propagate) return run(a, Largest<map, true>{}); \
  else return run(a, Largest<map, false>{});
#define PLAIN(run)                                             \
  switch (a.op) {                                              \
    case ADD:                                                  \
    case AVG: return run(a, Sum<Itself>{});                    \
    case NORM1: return run(a, Sum<Absolute>{});                \
    case NORM2: return run(a, Sum<Square>{});                  \
    case MUL: return run(a, Product<Itself>{});                \
    case MUL_NO_ZEROS: return run(a, Product<OneForZero>{});   \
    case MIN: EXTREMUM(run, Negative)                          \
    case MAX: EXTREMUM(run, Itself)                            \
    case AMAX: EXTREMUM(run, Absolute)                         \
  }
