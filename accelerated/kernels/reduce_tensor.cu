// Reductions (3.2.71).
//
// Floor: bytes. Every element of A is read once, in 16-byte accesses (8 bytes of int8), four of them on their way per
// thread, 48 to 64 KB per processor; C and the partial results of split reductions are a few percent of that. An element
// costs 2 to 4 instructions (extrema with indices 8), an access about 50 more for its place. At 4.2 TB/s an H200 has 110
// instructions per 16 bytes of a thread: bytes limit float, double and half; instructions limit int8, half extrema with
// indices, and columns whose rows do not all start at multiples of 16 bytes.
//
// Rows: the innermost dimension of A is reduced; `lanes` neighbouring threads share one element of C. Columns: it is kept;
// a thread takes a pack of neighbouring elements of C, `lanes` threads share it. Long reductions are split into segments
// (blockIdx.y), whose partial results a second launch merges: no atomics, the same sums in the same order on every run.
#include "index.cuh"
#include "types.cuh"

constexpr int WIDTH = sizeof(ELEMENT) == 1 ? 8 : 16 / sizeof(ELEMENT);  // elements of a pack
constexpr int BATCH = 4;  // accesses of a thread that are on their way together
constexpr int BLOCK = 256;
constexpr int RESIDENT = sizeof(ELEMENT) >= 4 ? 4 : 3;  // blocks that the registers of a processor hold
constexpr int RESIDENT_INDEXED = sizeof(ELEMENT) == 1 ? 2 : RESIDENT;
constexpr unsigned NOWHERE = 0xffffffffu;  // the index of an extremum of nothing

enum Op { ADD = 0, MUL = 1, MIN = 2, MAX = 3, AMAX = 4, AVG = 5, NORM1 = 6, NORM2 = 7, MUL_NO_ZEROS = 8 };  // cudnnReduceTensorOp_t
enum Type { FLOAT = 0, DOUBLE = 1, HALF = 2, INT8 = 3 };  // cudnnDataType_t

struct Arguments {
  const ELEMENT* a;
  void* c;
  void* indices;
  COMPUTE* workspace;   // partial results [segment][number], then their indices
  Geometry<2> reduced;  // one reduction: (position in row-major order, offset in A)
  Geometry<3> kept;     // C: (offset in C, number in row-major order, offset in A)
  double alpha, beta;
  unsigned length;   // elements of A that one element of C reduces
  unsigned outputs;  // elements of C
  unsigned segments, segment;  // how many there are, packs of one
  unsigned lanes_log2;
  int windows;  // rows start anywhere: their packs start at multiples of 16 bytes, the outer ones reach over the ends
  int op, propagate, c_type, index_bytes;
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

template <class Map> struct Largest {
  using State = Value;
  bool propagate;
  __device__ __forceinline__ State start() const { return {Map::signless ? COMPUTE(0) : COMPUTE(-INFINITY)}; }
  __device__ __forceinline__ void add(State& state, COMPUTE x, unsigned) const { merge(state, {Map::of(x)}); }
  __device__ __forceinline__ void merge(State& state, State other) const {
    // Comparisons with NaN are false: it is passed over, and once in `state` it stays.
    if (other.value > state.value || (propagate && other.value != other.value)) state.value = other.value;
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

__device__ __forceinline__ void store_result(const Arguments& a, COMPUTE value, long long offset) {
  switch (a.op) {
    case AVG: value /= COMPUTE(a.length); break;
    case NORM2: value = sqrt(value); break;
    case MIN: value = -value; break;
  }
  switch (a.c_type) {
    case FLOAT: return blend_into<float>(a.c, offset, a, value);
    case DOUBLE: return blend_into<double>(a.c, offset, a, value);
    case HALF: return blend_into<half>(a.c, offset, a, value);
    case INT8: return blend_into<int8>(a.c, offset, a, value);
  }
}

__device__ __forceinline__ void conclude(const Arguments& a, Value state, long long offset, long long) {
  store_result(a, state.value, offset);
}
__device__ __forceinline__ void conclude(const Arguments& a, Ranked state, long long offset, long long number) {
  store_result(a, state.value, offset);
  store_index(a, number, state.index == NOWHERE ? 0 : state.index);
}

__device__ __forceinline__ unsigned* partial_indices(const Arguments& a) {
  return reinterpret_cast<unsigned*>(a.workspace + static_cast<long long>(a.segments) * a.outputs);
}
__device__ __forceinline__ void keep(const Arguments& a, Value state, long long place) { a.workspace[place] = state.value; }
__device__ __forceinline__ void keep(const Arguments& a, Ranked state, long long place) {
  a.workspace[place] = state.value;
  partial_indices(a)[place] = state.index;
}
__device__ __forceinline__ void kept_partial(const Arguments& a, long long place, Value& state) { state = {a.workspace[place]}; }
__device__ __forceinline__ void kept_partial(const Arguments& a, long long place, Ranked& state) {
  state = {a.workspace[place], partial_indices(a)[place]};
}

// The result of this block's segment of one element of C.
template <class State> __device__ __forceinline__ void deliver(const Arguments& a, State state, long long offset, long long number) {
  if (a.segments == 1) conclude(a, state, offset, number);
  else keep(a, state, static_cast<long long>(blockIdx.y) * a.outputs + number);
}

// --- threads of a block ---

__device__ __forceinline__ Value from_lane(Value state, int lanes) { return {__shfl_xor_sync(~0u, state.value, lanes)}; }
__device__ __forceinline__ Ranked from_lane(Ranked state, int lanes) {
  return {__shfl_xor_sync(~0u, state.value, lanes), __shfl_xor_sync(~0u, state.index, lanes)};
}

// Merges the states of 2 ** lanes_log2 neighbouring threads into that of the first. All threads of the block take part.
template <class Reduction, class State>
__device__ __forceinline__ void merge_neighbours(const Reduction& reduction, State& state, unsigned lanes_log2) {
  unsigned lanes = 1u << lanes_log2;
  for (unsigned distance = lanes < 32 ? lanes / 2 : 16; distance > 0; distance /= 2) reduction.merge(state, from_lane(state, distance));
  if (lanes <= 32) return;
  State* warps = reinterpret_cast<State*>(shared_memory);
  if (threadIdx.x % 32 == 0) warps[threadIdx.x / 32] = state;
  __syncthreads();
  if (threadIdx.x % lanes == 0)
    for (unsigned warp = 1; warp < lanes / 32; warp++) reduction.merge(state, warps[threadIdx.x / 32 + warp]);
}

__device__ __forceinline__ bool aligned(const ELEMENT* pointer) { return reinterpret_cast<uintptr_t>(pointer) % sizeof(Pack<ELEMENT, WIDTH>) == 0; }

// Where the row of pack `pack` starts in the reduction and in A; returns the pack's place in its row.
__device__ __forceinline__ unsigned walk(const Geometry<2>& reduced, unsigned pack, long long& position, long long& offset) {
  unsigned in_row, row = reduced.packs_per_row.divide(pack, in_row);
  position = offset = 0;
#pragma unroll 1
  for (int d = 0; d < reduced.outer_rank; d++) {
    unsigned along;
    row = reduced.extent[d].divide(row, along);
    position += along * reduced.stride[0][d];
    offset += along * reduced.stride[1][d];
  }
  return in_row;
}

// --- rows ---

struct Window {  // a pack of one row of A
  const ELEMENT* pointer;
  int first;       // where in the row it starts: below 0 or behind the end for the outer windows of a row
  unsigned index;  // position of its first element in the reduction
  bool whole;      // one access reads it
};

__device__ __forceinline__ Window locate(const Arguments& a, const ELEMENT* source, unsigned pack) {
  const Geometry<2>& reduced = a.reduced;
  long long position, offset;
  unsigned in_row = walk(reduced, pack, position, offset);
  const ELEMENT* start = source + offset;
  int shift = a.windows ? reinterpret_cast<uintptr_t>(start) / sizeof(ELEMENT) % WIDTH : 0;
  Window window;
  window.first = static_cast<int>(in_row * WIDTH) - shift;
  window.pointer = start + window.first * reduced.row_stride[1];
  window.index = position + window.first * reduced.row_stride[0];
  window.whole = reduced.row_stride[1] == 1 && window.first >= 0 && static_cast<int>(reduced.row) - window.first >= WIDTH && aligned(window.pointer);
  return window;
}

template <class Reduction> __device__ __forceinline__ void reduce_rows(const Arguments& a, const Reduction& reduction) {
  using State = typename Reduction::State;
  unsigned lanes = 1u << a.lanes_log2, lane = threadIdx.x & (lanes - 1);
  unsigned output = blockIdx.x * (BLOCK >> a.lanes_log2) + (threadIdx.x >> a.lanes_log2);
  State state[WIDTH];
#pragma unroll
  for (int i = 0; i < WIDTH; i++) state[i] = reduction.start();
  long long place[3];
  if (output < a.outputs) {
    a.kept.locate(output, place);
    const ELEMENT* source = a.a + place[2];
    unsigned index_step = a.reduced.row_stride[0];
    unsigned first = blockIdx.y * a.segment, last = first + a.segment < a.reduced.packs ? first + a.segment : a.reduced.packs;
    for (unsigned pack = first + lane; pack < last; pack += BATCH * lanes) {
      Pack<ELEMENT, WIDTH> loaded[BATCH];
      unsigned index[BATCH], whole = 0, partial = 0;
#pragma unroll
      for (int u = 0; u < BATCH; u++) {
        if (pack + u * lanes >= last) break;
        Window window = locate(a, source, pack + u * lanes);
        index[u] = window.index;
        if (window.whole) {
          loaded[u] = *reinterpret_cast<const Pack<ELEMENT, WIDTH>*>(window.pointer);
          whole |= 1u << u;
        } else {
          partial |= 1u << u;
        }
      }
#pragma unroll
      for (int u = 0; u < BATCH; u++)
        if (whole >> u & 1) {
#pragma unroll
          for (int i = 0; i < WIDTH; i++) reduction.add(state[i], load<COMPUTE>(loaded[u].item[i]), index[u] + i * index_step);
        }
      for (; partial; partial &= partial - 1) {
        Window window = locate(a, source, pack + (__ffs(partial) - 1) * lanes);
#pragma unroll
        for (int i = 0; i < WIDTH; i++)
          if (static_cast<unsigned>(window.first + i) < a.reduced.row)
            reduction.add(state[i], load<COMPUTE>(window.pointer[i * a.reduced.row_stride[1]]), window.index + i * index_step);
      }
    }
  }
#pragma unroll
  for (int i = 1; i < WIDTH; i++) reduction.merge(state[0], state[i]);
  merge_neighbours(reduction, state[0], a.lanes_log2);
  if (lane == 0 && output < a.outputs) deliver(a, state[0], place[0], place[1]);
}

// --- columns ---

// Offset in A and index of one position of the reduction.
__device__ __forceinline__ long long locate(const Arguments& a, unsigned which, unsigned& index) {
  long long position, offset;
  unsigned in_row = walk(a.reduced, which, position, offset);
  index = position + in_row * a.reduced.row_stride[0];
  return offset + in_row * a.reduced.row_stride[1];
}

template <class Reduction> __device__ __forceinline__ void reduce_columns(const Arguments& a, const Reduction& reduction) {
  using State = typename Reduction::State;
  unsigned lanes = 1u << a.lanes_log2, columns = BLOCK >> a.lanes_log2;
  unsigned column = threadIdx.x & (columns - 1), lane = threadIdx.x / columns;
  State state[WIDTH];
#pragma unroll
  for (int i = 0; i < WIDTH; i++) state[i] = reduction.start();
  if (blockIdx.x * columns + column < a.kept.packs) {
    long long place[3];
    unsigned count = a.kept.locate(blockIdx.x * columns + column, place);
    const ELEMENT* source = a.a + place[2];
    long long step = a.kept.row_stride[2];
    bool contiguous = count == WIDTH && step == 1;
    unsigned first = blockIdx.y * a.segment, last = first + a.segment < a.reduced.packs ? first + a.segment : a.reduced.packs;
    for (unsigned position = first + lane; position < last; position += BATCH * lanes) {
      Pack<ELEMENT, WIDTH> loaded[BATCH];
      unsigned index[BATCH], whole = 0, partial = 0;
#pragma unroll
      for (int u = 0; u < BATCH; u++) {
        if (position + u * lanes >= last) break;
        const ELEMENT* pointer = source + locate(a, position + u * lanes, index[u]);
        if (contiguous && aligned(pointer)) {
          loaded[u] = *reinterpret_cast<const Pack<ELEMENT, WIDTH>*>(pointer);
          whole |= 1u << u;
        } else {
          partial |= 1u << u;
        }
      }
#pragma unroll
      for (int u = 0; u < BATCH; u++)
        if (whole >> u & 1) {
#pragma unroll
          for (int i = 0; i < WIDTH; i++) reduction.add(state[i], load<COMPUTE>(loaded[u].item[i]), index[u]);
        }
      for (; partial; partial &= partial - 1) {
        unsigned index;
        const ELEMENT* pointer = source + locate(a, position + (__ffs(partial) - 1) * lanes, index);
#pragma unroll
        for (int i = 0; i < WIDTH; i++)
          if (i < count) reduction.add(state[i], load<COMPUTE>(pointer[i * step]), index);
      }
    }
  }
  State* tile = reinterpret_cast<State*>(shared_memory);  // [lane][i][column]
#pragma unroll
  for (int i = 0; i < WIDTH; i++) tile[(lane * WIDTH + i) * columns + column] = state[i];
  __syncthreads();
  for (unsigned half = lanes / 2; half > 0; half /= 2) {
    if (lane < half)
#pragma unroll
      for (int i = 0; i < WIDTH; i++)
        reduction.merge(tile[(lane * WIDTH + i) * columns + column], tile[((lane + half) * WIDTH + i) * columns + column]);
    __syncthreads();
  }
  // Neighbouring threads write neighbouring elements.
  for (unsigned slot = threadIdx.x; slot < columns * WIDTH; slot += BLOCK) {
    unsigned x = slot / WIDTH, i = slot % WIDTH;
    if (blockIdx.x * columns + x >= a.kept.packs) break;
    long long place[3];
    if (i < a.kept.locate(blockIdx.x * columns + x, place))
      deliver(a, tile[i * columns + x], place[0] + i * a.kept.row_stride[0], place[1] + i * a.kept.row_stride[1]);
  }
}

// --- partial results ---

template <class Reduction> __device__ __forceinline__ void merge_partial_results(const Arguments& a, const Reduction& reduction) {
  typename Reduction::State state = reduction.start(), partial;
  unsigned lanes = 1u << a.lanes_log2, lane = threadIdx.x & (lanes - 1);
  unsigned output = blockIdx.x * (BLOCK >> a.lanes_log2) + (threadIdx.x >> a.lanes_log2);
  long long place[3];
  if (output < a.outputs) {
    a.kept.locate(output, place);
#pragma unroll 4
    for (unsigned segment = lane; segment < a.segments; segment += lanes) {
      kept_partial(a, static_cast<long long>(segment) * a.outputs + place[1], partial);
      reduction.merge(state, partial);
    }
  }
  merge_neighbours(reduction, state, a.lanes_log2);
  if (lane == 0 && output < a.outputs) conclude(a, state, place[0], place[1]);
}

// --- kernels ---

#define PLAIN(run)                                             \
  switch (a.op) {                                              \
    case ADD:                                                  \
    case AVG: return run(a, Sum<Itself>{});                    \
    case NORM1: return run(a, Sum<Absolute>{});                \
    case NORM2: return run(a, Sum<Square>{});                  \
    case MUL: return run(a, Product<Itself>{});                \
    case MUL_NO_ZEROS: return run(a, Product<OneForZero>{});   \
    case MIN: return run(a, Largest<Negative>{propagate});     \
    case MAX: return run(a, Largest<Itself>{propagate});       \
    case AMAX: return run(a, Largest<Absolute>{propagate});    \
  }
#define INDEXED(run)                                           \
  switch (a.op) {                                              \
    case MIN: return run(a, FirstLargest<Negative>{propagate}); \
    case MAX: return run(a, FirstLargest<Itself>{propagate});  \
  }

extern "C" __global__ void __launch_bounds__(BLOCK, RESIDENT) reduce_tensor_rows(const Arguments a) {
  bool propagate = a.propagate;
  PLAIN(reduce_rows)
}
extern "C" __global__ void __launch_bounds__(BLOCK, RESIDENT_INDEXED) reduce_tensor_rows_indexed(const Arguments a) {
  bool propagate = a.propagate;
  INDEXED(reduce_rows)
}
extern "C" __global__ void __launch_bounds__(BLOCK, RESIDENT) reduce_tensor_columns(const Arguments a) {
  bool propagate = a.propagate;
  PLAIN(reduce_columns)
}
extern "C" __global__ void __launch_bounds__(BLOCK, RESIDENT_INDEXED) reduce_tensor_columns_indexed(const Arguments a) {
  bool propagate = a.propagate;
  INDEXED(reduce_columns)
}
// Partial results are sums, products or maxima already: what was done to the elements is not done again.
extern "C" __global__ void __launch_bounds__(BLOCK, RESIDENT) reduce_tensor_partial_results(const Arguments a) {
  bool propagate = a.propagate;
  switch (a.op) {
    case MUL:
    case MUL_NO_ZEROS: return merge_partial_results(a, Product<Itself>{});
    case MIN:
    case MAX: return merge_partial_results(a, Largest<Itself>{propagate});
    case AMAX: return merge_partial_results(a, Largest<Absolute>{propagate});
    default: return merge_partial_results(a, Sum<Itself>{});
  }
}
extern "C" __global__ void __launch_bounds__(BLOCK, RESIDENT_INDEXED) reduce_tensor_partial_results_indexed(const Arguments a) {
  merge_partial_results(a, FirstLargest<Itself>{static_cast<bool>(a.propagate)});
}
