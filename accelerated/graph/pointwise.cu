// Pointwise operations of a graph (9.2.14) that follow each other, in one kernel: each is y = op(alpha1 * x), or
// op(alpha1 * x, alpha2 * b) with x and b broadcast; what one writes and only the next one reads stays in registers.
//
// A thread computes WIDTH elements of the innermost dimension, 16 bytes at a time where they are contiguous and
// aligned; of broadcast dimensions the strides are 0. Dimensions that are contiguous in every operand are merged.
//
// Roofline bound: bytes, one element of each operand in memory; a few flops for each operation and element.
#include "graph/stored.cuh"
#include "primitives/geometry.cuh"

enum Mode { ADD, MUL, MIN, MAX, SQRT, IDENTITY = 21, RELU = 100, TANH, SIGMOID, ELU };
enum Source { CURRENT = -1, ABSENT = -2 };  // the result of the operation before; no operand in memory

struct Operand {
  long long strides[DIMS];  // of the innermost dimension first
  int type, reserved;
};

struct Stage {
  COMPUTE alpha1, alpha2, lower, upper;
  int mode, propagates_nan;
  int x, b, y;  // operands, CURRENT or ABSENT
  int type;     // of y, into which a result is rounded whether it has memory or not
};

struct Arguments {
  void* memory[OPERANDS];
  Operand operands[OPERANDS];
  Stage stages[STAGES];
  FastDivmod extents[DIMS];  // the innermost one counts packs of WIDTH
  int rank, packs, stages_used, innermost;
};

using Values = Pack<COMPUTE, WIDTH>;

template <class T> constexpr int CHUNK = 16 / sizeof(T) < WIDTH ? 16 / sizeof(T) : WIDTH;
template <class T> using Chunk = Pack<T, CHUNK<T>>;

template <class T> __device__ __forceinline__ bool in_chunks(const T* memory, long long stride, int count) {
  return stride == 1 && count == WIDTH && reinterpret_cast<unsigned long long>(memory) % sizeof(Chunk<T>) == 0;
}

template <class T>
__device__ __forceinline__ void load_elements(const T* memory, long long stride, int count, Values& pack) {
  if (in_chunks(memory, stride, count)) {
#pragma unroll
    for (int i = 0; i < WIDTH; i += CHUNK<T>) {
      const Chunk<T> chunk = *reinterpret_cast<const Chunk<T>*>(memory + i);
#pragma unroll
      for (int j = 0; j < CHUNK<T>; j++) pack.item[i + j] = load<COMPUTE>(chunk.item[j]);
    }
    return;
  }
#pragma unroll
  for (int i = 0; i < WIDTH; i++)
    if (i < count) pack.item[i] = load<COMPUTE>(memory[i * stride]);
}

template <class T>
__device__ __forceinline__ void store_elements(T* memory, long long stride, int count, const Values& pack) {
  if (in_chunks(memory, stride, count)) {
#pragma unroll
    for (int i = 0; i < WIDTH; i += CHUNK<T>) {
      Chunk<T> chunk;
#pragma unroll
      for (int j = 0; j < CHUNK<T>; j++) chunk.item[j] = store<T>(pack.item[i + j]);
      *reinterpret_cast<Chunk<T>*>(memory + i) = chunk;
    }
    return;
  }
#pragma unroll
  for (int i = 0; i < WIDTH; i++)
    if (i < count) memory[i * stride] = store<T>(pack.item[i]);
}

// Where the pack of a thread lies in each dimension, and how many of its elements there are.
struct Position {
  unsigned at[DIMS];
  int count;
};

__device__ __forceinline__ long long offset(const Arguments& a, const Operand& operand, const Position& position) {
  long long found = position.at[0] * operand.strides[0] * WIDTH;
#pragma unroll
  for (int d = 1; d < DIMS; d++)
    if (d < a.rank) found += position.at[d] * operand.strides[d];
  return found;
}

__device__ __forceinline__ void read(const Arguments& a, int which, const Position& position, Values& pack) {
  const Operand& operand = a.operands[which];
  const long long start = offset(a, operand, position);
  with_stored(operand.type, [&](auto stored) {
    using T = decltype(stored);
    load_elements(static_cast<const T*>(a.memory[which]) + start, operand.strides[0], position.count, pack);
  });
}

__device__ __forceinline__ void write(const Arguments& a, int which, const Position& position, const Values& pack) {
  const Operand& operand = a.operands[which];
  const long long start = offset(a, operand, position);
  with_stored(operand.type, [&](auto stored) {
    using T = decltype(stored);
    store_elements(static_cast<T*>(a.memory[which]) + start, operand.strides[0], position.count, pack);
  });
}

template <class Function> __device__ __forceinline__ void each(Values& pack, Function function) {
#pragma unroll
  for (int i = 0; i < WIDTH; i++) pack.item[i] = function(pack.item[i]);
}

template <class Function> __device__ __forceinline__ void each(Values& pack, const Values& other, Function function) {
#pragma unroll
  for (int i = 0; i < WIDTH; i++) pack.item[i] = function(pack.item[i], other.item[i]);
}

__device__ __forceinline__ COMPUTE extremum(const Stage& stage, COMPUTE x, COMPUTE b) {
  if (x != x || b != b) return stage.propagates_nan ? x + b : (x != x ? b : x);
  return (stage.mode == MIN) == (x < b) ? x : b;
}

__device__ __forceinline__ COMPUTE relu(const Stage& stage, COMPUTE x) {
  if (x != x) return stage.propagates_nan ? x : stage.lower;
  return x < stage.lower ? stage.lower : x > stage.upper ? stage.upper : x;
}

__device__ __forceinline__ void apply(const Stage& stage, Values& x, const Values& b) {
  switch (stage.mode) {
    case ADD:
      return each(x, b, [](COMPUTE v, COMPUTE w) { return v + w; });
    case MUL:
      return each(x, b, [](COMPUTE v, COMPUTE w) { return v * w; });
    case MIN:
    case MAX:
      return each(x, b, [&](COMPUTE v, COMPUTE w) { return extremum(stage, v, w); });
    case SQRT:
      return each(x, [](COMPUTE v) { return sqrt(v); });
    case RELU:
      return each(x, [&](COMPUTE v) { return relu(stage, v); });
    case TANH:
      return each(x, [](COMPUTE v) { return tanh(v); });
    case SIGMOID:
      return each(x, [](COMPUTE v) { return COMPUTE(1) / (COMPUTE(1) + exp(-v)); });
    case ELU:
      return each(x, [](COMPUTE v) { return v >= COMPUTE(0) ? v : expm1(v); });
    default:;
  }
}

extern "C" __global__ void __launch_bounds__(256) graph_pointwise(const Arguments a) {
  griddepcontrol_wait();
  const unsigned index = blockIdx.x * blockDim.x + threadIdx.x;
  if (index >= static_cast<unsigned>(a.packs)) return;
  Position position;
  unsigned rest = index;
#pragma unroll
  for (int d = 0; d < DIMS; d++)
    if (d < a.rank) rest = a.extents[d].divide(rest, position.at[d]);
  position.count = min(WIDTH, a.innermost - static_cast<int>(position.at[0]) * WIDTH);
  Values current = {}, x = {}, b = {};
  for (int s = 0; s < a.stages_used; s++) {
    const Stage& stage = a.stages[s];
    if (stage.x == CURRENT) x = current;
    else read(a, stage.x, position, x);
    if (stage.b == CURRENT) b = current;
    else if (stage.b != ABSENT) read(a, stage.b, position, b);
    if (stage.alpha1 != COMPUTE(1)) each(x, [&](COMPUTE v) { return v * stage.alpha1; });
    if (stage.alpha2 != COMPUTE(1)) each(b, [&](COMPUTE v) { return v * stage.alpha2; });
    apply(stage, x, b);
    with_stored(stage.type, [&](auto stored) {
      using T = decltype(stored);
      each(x, [](COMPUTE v) { return load<COMPUTE>(store<T>(v)); });
    });
    if (stage.y != ABSENT) write(a, stage.y, position, x);
    current = x;
  }
}
