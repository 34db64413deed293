// This kernel computes consecutive pointwise operations of a graph (9.2.14). Each is y = op(alpha1 * x), or op(alpha1 *
// x, alpha2 * b) with x and b broadcast. A result that only the next operation reads stays in registers.
//
// Each thread computes WIDTH elements of the innermost dimension, 16 bytes at a time where they are contiguous and
// aligned. Broadcast dimensions have stride 0. Dimensions that are contiguous in every operand are merged.
//
// Roofline bound: bytes, one element of each operand in memory; a few flops for each operation and element.
#include "graph/pointwise.cuh"

template <class T>
__device__ __forceinline__ void store_elements(T* memory, long long stride, int count, const Values& vector) {
  if (in_chunks(memory, stride, count)) {
#pragma unroll
    for (int i = 0; i < WIDTH; i += CHUNK<T>) {
      Chunk<T> chunk;
#pragma unroll
      for (int j = 0; j < CHUNK<T>; j++) chunk.item[j] = store<T>(vector.item[i + j]);
      *reinterpret_cast<Chunk<T>*>(memory + i) = chunk;
    }
    return;
  }
#pragma unroll
  for (int i = 0; i < WIDTH; i++)
    if (i < count) memory[i * stride] = store<T>(vector.item[i]);
}

// Locates the vector of a thread in each dimension, and counts its elements.
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

__device__ __forceinline__ void read(const Arguments& a, int which, const Position& position, Values& vector) {
  const Operand& operand = a.operands[which];
  const long long start = offset(a, operand, position);
  with_stored(operand.type, [&](auto stored) {
    using T = decltype(stored);
    load_elements(static_cast<const T*>(a.memory[which]) + start, operand.strides[0], position.count, vector);
  });
}

__device__ __forceinline__ void write(const Arguments& a, int which, const Position& position, const Values& vector) {
  const Operand& operand = a.operands[which];
  const long long start = offset(a, operand, position);
  with_stored(operand.type, [&](auto stored) {
    using T = decltype(stored);
    store_elements(static_cast<T*>(a.memory[which]) + start, operand.strides[0], position.count, vector);
  });
}

extern "C" __global__ void __launch_bounds__(256) graph_pointwise(const Arguments a) {
  griddepcontrol_wait();
  const unsigned index = blockIdx.x * blockDim.x + threadIdx.x;
  if (index >= static_cast<unsigned>(a.vectors)) return;
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
    if (stage.alpha1 != COMPUTE(1)) each(x, [&](COMPUTE v) { return product(v, stage.alpha1); });
    if (stage.alpha2 != COMPUTE(1)) each(b, [&](COMPUTE v) { return product(v, stage.alpha2); });
    apply(stage, x, b);
    with_stored(stage.type, [&](auto stored) { round_values<decltype(stored)>(x); });
    if (stage.y != ABSENT) write(a, stage.y, position, x);
    current = x;
  }
}
