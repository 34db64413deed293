// The kernels that compute several pointwise operations of a graph (9.2.14) share this header.
#pragma once
#include "graph/stored.cuh"
#include "primitives/geometry.cuh"

enum Mode { ADD, MUL, MIN, MAX, SQRT, IDENTITY = 21, RELU = 100, TANH, SIGMOID, ELU };
// CURRENT is the result of the previous operation. ABSENT means that no operand is in memory.
enum Source { CURRENT = -1, ABSENT = -2 };

struct Operand {
  long long strides[DIMS];  // The innermost dimension comes first.
  int type, reserved;
};

struct Stage {
  COMPUTE alpha1, alpha2, lower, upper;
  int mode, propagates_nan;
  int x, b, y;  // operands, CURRENT or ABSENT
  int type;     // type of y; results are rounded to it even where y is not in memory
};

struct Arguments {
  void* memory[OPERANDS];
  Operand operands[OPERANDS];
  Stage stages[STAGES];
  FastDivmod extents[DIMS];  // The innermost extent counts vectors of WIDTH.
  int rank, vectors, stages_used, innermost;
};

template <class Function> __device__ __forceinline__ void each(Values& vector, Function function) {
#pragma unroll
  for (int i = 0; i < WIDTH; i++) vector.item[i] = function(vector.item[i]);
}

template <class Function> __device__ __forceinline__ void each(Values& vector, const Values& other, Function function) {
#pragma unroll
  for (int i = 0; i < WIDTH; i++) vector.item[i] = function(vector.item[i], other.item[i]);
}

// Rounds the product separately, so that every kernel computes the same result. The compiler would otherwise fuse
// it with the next sum.
__device__ __forceinline__ float product(float x, float y) { return __fmul_rn(x, y); }
__device__ __forceinline__ double product(double x, double y) { return __dmul_rn(x, y); }

__device__ __forceinline__ COMPUTE extremum(const Stage& stage, COMPUTE x, COMPUTE b) {
  if (x != x || b != b) return stage.propagates_nan ? x + b : (x != x ? b : x);
  return (stage.mode == MIN) == (x < b) ? x : b;
}

__device__ __forceinline__ COMPUTE relu(const Stage& stage, COMPUTE x) {
  const bool below = stage.propagates_nan ? x < stage.lower : !(x >= stage.lower);
  const COMPUTE clipped = below ? stage.lower : x;
  return clipped > stage.upper ? stage.upper : clipped;
}

__device__ __forceinline__ void apply(const Stage& stage, Values& x, const Values& b) {
  switch (stage.mode) {
    case ADD:
      return each(x, b, [](COMPUTE v, COMPUTE w) { return v + w; });
    case MUL:
      return each(x, b, [](COMPUTE v, COMPUTE w) { return product(v, w); });
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

// Rounds a result to the type in which it is stored, or would be.
template <class T> __device__ __forceinline__ void round_values(Values& x) {
  each(x, [](COMPUTE v) { return load<COMPUTE>(store<T>(v)); });
}
