// This file computes cudnnAddTensor (3.2.2), cudnnOpTensor (3.2.68), cudnnScaleTensor (3.2.75) and cudnnSetTensor
// (3.2.90).
//
// Rows that every operand stores in full vectors, or broadcasts, move in accesses of 16 bytes. Other rows move element
// by element (primitives/elementwise.cuh).
//
// The roofline bound is bytes. A broadcast operand stays in L1 and L2. So a bias addition moves 2 elements per output,
// like scaling. An operation on two full tensors moves 3, with beta 4; setting moves 1. At 4.2 TB/s, the 4 bytes of two
// half elements take 1 ps, in which an H200 issues about 28 instructions. Narrow types are limited by the index
// arithmetic of the broadcast operand. Registers limit them too, because they bound the loads in flight. An H200 scales
// 411 MB of float in 100.9 us (96 % of the copy) and adds a bias in 100.0 us.
#include "primitives/elementwise.cuh"

enum Operation { ADD = 0, MUL = 1, MIN = 2, MAX = 3, SQRT = 4, NOT = 5 };                  // cudnnOpTensorOp_t
enum DataType { TO_FLOAT = 0, TO_DOUBLE = 1, TO_HALF = 2, TO_INT8 = 3, TO_BFLOAT16 = 9 };  // cudnnDataType_t

constexpr int WIDTH = 16 / sizeof(ELEMENT);
constexpr int BLOCKS = sizeof(ELEMENT) == 1 ? 3 : 6;  // blocks of 256 threads per SM, limited by registers
constexpr int SEVERAL_VECTORS_BLOCKS =
    sizeof(ELEMENT) == 1 ? 3 : 5;  // blocks per SM where threads read several vectors

// --- cudnnAddTensor ---

template <int N>
__device__ __forceinline__ Vector<ELEMENT, N> sum(COMPUTE alpha, const Vector<ELEMENT, N>& a, COMPUTE beta,
                                                  const Vector<ELEMENT, N>& prior) {
  Vector<ELEMENT, N> result;
#pragma unroll
  for (int i = 0; i < N; i++) {
    COMPUTE value = alpha * load<COMPUTE>(a.item[i]);
    if (beta != COMPUTE(0)) value += beta * load<COMPUTE>(prior.item[i]);
    result.item[i] = store<ELEMENT>(value);
  }
  return result;
}

struct AddArguments {
  const ELEMENT* a;
  ELEMENT* c;
  COMPUTE alpha, beta;
  Geometry<2> geometry;
};

struct Add {
  COMPUTE alpha, beta;
  template <bool BLENDS, int N>
  __device__ __forceinline__ Vector<ELEMENT, N> operator()(const Vector<ELEMENT, N>* in,
                                                           const Vector<ELEMENT, N>& prior) const {
    return sum<N>(alpha, in[0], BLENDS ? beta : COMPUTE(0), prior);
  }
};

extern "C" __global__ void __launch_bounds__(256, BLOCKS) tensor_arithmetic_add(const AddArguments x) {
  griddepcontrol_wait_deferred();
  Elementwise<ELEMENT, 1, ELEMENT, Add>{{x.a}, x.c, x.beta != COMPUTE(0), {x.alpha, x.beta}}.run<WIDTH>(x.geometry);
}

// --- cudnnOpTensor ---

struct Formula {
  COMPUTE alpha1, alpha2, beta;
  signed char operation, propagate, output;
};

// Computes op(alpha1 * a, alpha2 * b) + beta * prior, with one switch per vector.
template <class Out, int N>
__device__ __forceinline__ Vector<Out, N> combine(const Formula& formula, const Vector<ELEMENT, N>& a,
                                                  const Vector<ELEMENT, N>& b, const Vector<Out, N>& prior) {
  COMPUTE beta = formula.beta;
  bool propagate = formula.propagate;
  Vector<Out, N> result;
#define EACH(expression)                                                  \
  _Pragma("unroll") for (int i = 0; i < N; i++) {                         \
    COMPUTE x = formula.alpha1 * load<COMPUTE>(a.item[i]);                \
    COMPUTE y = formula.alpha2 * load<COMPUTE>(b.item[i]);                \
    COMPUTE value = expression;                                           \
    if (beta != COMPUTE(0)) value += beta * load<COMPUTE>(prior.item[i]); \
    result.item[i] = store<Out>(value);                                   \
  }                                                                       \
  break
  switch (formula.operation) {
    case ADD:
      EACH(x + y);
    case MUL:
      EACH(x * y);
    case MIN:
      EACH(propagate && (x != x || y != y) ? x + y : fmin(x, y));
    case MAX:
      EACH(propagate && (x != x || y != y) ? x + y : fmax(x, y));
    case SQRT:
      EACH(sqrt(x));
    default:
      EACH(COMPUTE(1) - x);
  }
#undef EACH
  return result;
}

struct OpArguments {
  const ELEMENT* a;
  const ELEMENT* b;
  void* c;
  Formula formula;
  Geometry<3> layout;
};

// A vector has 16 bytes of the wider type, so that accesses are contiguous on both sides.
template <class Out> constexpr int VECTOR = 16 / (sizeof(Out) > sizeof(ELEMENT) ? sizeof(Out) : sizeof(ELEMENT));

template <class Out> struct Combine {
  Formula formula;
  template <bool BLENDS, int N>
  __device__ __forceinline__ Vector<Out, N> operator()(const Vector<ELEMENT, N>* in,
                                                       const Vector<Out, N>& prior) const {
    return combine<Out, N>(formula, in[0], in[1], prior);
  }
};

template <class Out> __device__ __forceinline__ void run(const OpArguments& x) {
  const Elementwise<ELEMENT, 2, Out, Combine<Out>> job{{x.a, x.b},
                                                       static_cast<Out*>(x.c),
                                                       x.formula.beta != COMPUTE(0),
                                                       {x.formula},
                                                       x.formula.operation < SQRT ? 2 : 1};
  job.template run<VECTOR<Out>>(x.layout);
}

// Selects one of Table 7's destination types for ELEMENT. FLOAT allows itself and three narrower types; these allow
// FLOAT.
__device__ __forceinline__ void run_to_output(const OpArguments& x) {
  if constexpr (sizeof(ELEMENT) == 4) {
    switch (x.formula.output) {
      case TO_FLOAT:
        return run<float>(x);
      case TO_HALF:
        return run<half>(x);
      case TO_INT8:
        return run<int8>(x);
      case TO_BFLOAT16:
        return run<bfloat16>(x);
    }
  } else if constexpr (sizeof(ELEMENT) < 4) {
    if (x.formula.output == TO_FLOAT) return run<float>(x);
    return run<ELEMENT>(x);
  } else {
    return run<ELEMENT>(x);
  }
}

extern "C" __global__ void __launch_bounds__(256, SEVERAL_VECTORS_BLOCKS) tensor_arithmetic_op(const OpArguments x) {
  griddepcontrol_wait_deferred();
  run_to_output(x);
}

// --- cudnnSetTensor; cudnnScaleTensor is tensor_arithmetic_add in place ---

struct SetArguments {
  ELEMENT* y;
  double value;
  Geometry<1> geometry;
};

struct Set {
  ELEMENT value;
  template <bool BLENDS, int N>
  __device__ __forceinline__ Vector<ELEMENT, N> operator()(const Vector<ELEMENT, N>*, const Vector<ELEMENT, N>&) const {
    Vector<ELEMENT, N> values;
#pragma unroll
    for (int i = 0; i < N; i++) values.item[i] = value;
    return values;
  }
};

extern "C" __global__ void __launch_bounds__(256) tensor_arithmetic_set(const SetArguments x) {
  griddepcontrol_wait_deferred();
  ELEMENT value = store<ELEMENT>(x.value);  // The given value is rounded once.
  Elementwise<ELEMENT, 0, ELEMENT, Set>{{nullptr}, x.y, false, {value}}.run<WIDTH>(x.geometry);
}
