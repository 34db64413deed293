// Pointwise operations of a graph (9.2.14): y = op(alpha1 * x), or op(alpha1 * x, alpha2 * b) with x and b broadcast.
//
// A thread computes one element, in the order of y; of broadcast dimensions the strides are 0. Dimensions that are
// contiguous in every operand are merged.
//
// Roofline bound: bytes, one element of each operand; a few flops, and a division for each dimension that is left.
#include "graph/stored.cuh"
#include "primitives/geometry.cuh"

enum Mode { ADD, MUL, MIN, MAX, SQRT, IDENTITY = 21, RELU = 100, TANH, SIGMOID, ELU };

struct Arguments {
  const void* x;
  const void* b;
  void* y;
  COMPUTE alpha1, alpha2, lower, upper;
  long long x_strides[DIMS], b_strides[DIMS], y_strides[DIMS];  // of the innermost dimension first
  FastDivmod extents[DIMS];
  int rank, count, mode, propagates_nan;
  int x_type, b_type, y_type;
};

__device__ __forceinline__ COMPUTE extremum(const Arguments& a, COMPUTE x, COMPUTE b) {
  if (x != x || b != b) return a.propagates_nan ? x + b : (x != x ? b : x);
  return (a.mode == MIN) == (x < b) ? x : b;
}

__device__ __forceinline__ COMPUTE relu(const Arguments& a, COMPUTE x) {
  if (x != x) return a.propagates_nan ? x : a.lower;
  return x < a.lower ? a.lower : x > a.upper ? a.upper : x;
}

extern "C" __global__ void __launch_bounds__(256) graph_pointwise(const Arguments a) {
  griddepcontrol_wait();
  const unsigned index = blockIdx.x * blockDim.x + threadIdx.x;
  if (index >= static_cast<unsigned>(a.count)) return;
  long long x_offset = 0, b_offset = 0, y_offset = 0;
  unsigned rest = index;
#pragma unroll
  for (int d = 0; d < DIMS; d++) {
    if (d >= a.rank) break;
    unsigned at;
    rest = a.extents[d].divide(rest, at);
    x_offset += at * a.x_strides[d];
    b_offset += at * a.b_strides[d];
    y_offset += at * a.y_strides[d];
  }
  COMPUTE x = load_stored(a.x, x_offset, a.x_type), b = 0, y;
  if (a.mode <= MAX) b = load_stored(a.b, b_offset, a.b_type);
  if (a.alpha1 != COMPUTE(1)) x *= a.alpha1;
  if (a.alpha2 != COMPUTE(1)) b *= a.alpha2;
  switch (a.mode) {
    case ADD:
      y = x + b;
      break;
    case MUL:
      y = x * b;
      break;
    case MIN:
    case MAX:
      y = extremum(a, x, b);
      break;
    case SQRT:
      y = sqrt(x);
      break;
    case RELU:
      y = relu(a, x);
      break;
    case TANH:
      y = tanh(x);
      break;
    case SIGMOID:
      y = COMPUTE(1) / (COMPUTE(1) + exp(-x));
      break;
    case ELU:
      y = x >= COMPUTE(0) ? x : expm1(x);
      break;
    default:
      y = x;
  }
  store_stored(a.y, y_offset, a.y_type, y);
}
