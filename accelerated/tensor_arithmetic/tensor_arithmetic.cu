// cudnnAddTensor (3.2.2), cudnnOpTensor (3.2.68), cudnnScaleTensor (3.2.75), cudnnSetTensor (3.2.90).
//
// Rows of full packs in every operand, or broadcast along them, move in accesses of 16 bytes, others element by element
// (primitives/elementwise.cuh).
//
// Roofline bound: bytes. An operand that is broadcast stays in L1 and L2: a bias addition moves 2 elements per output,
// as a scaling does; an operation of two full tensors moves 3, with beta 4; setting moves 1. At 4.2 TB/s the 4 bytes of
// two half elements take 1 ps, in which an H200 issues about 28 instructions: narrow types are limited by the index
// arithmetic of the operand that is broadcast, and by the registers, which decide how many loads are in flight.
// Measured: 411 MB of floats scaled in 100.9 us on an H200 (96 % of the copy), a bias added in 100.0 us.
#include "primitives/elementwise.cuh"

enum Operation { ADD = 0, MUL = 1, MIN = 2, MAX = 3, SQRT = 4, NOT = 5 };                  // cudnnOpTensorOp_t
enum DataType { TO_FLOAT = 0, TO_DOUBLE = 1, TO_HALF = 2, TO_INT8 = 3, TO_BFLOAT16 = 9 };  // cudnnDataType_t

constexpr int WIDTH = 16 / sizeof(ELEMENT);
constexpr int BLOCKS = sizeof(ELEMENT) == 1 ? 3 : 6;  // of 256 threads per multiprocessor: as many as registers allow
constexpr int SEVERAL_PACKS_BLOCKS = sizeof(ELEMENT) == 1 ? 3 : 5;  // where threads read several packs

// --- cudnnAddTensor ---

template <int N>
__device__ __forceinline__ Pack<ELEMENT, N> sum(COMPUTE alpha, const Pack<ELEMENT, N>& a, COMPUTE beta,
                                                const Pack<ELEMENT, N>& prior) {
  Pack<ELEMENT, N> result;
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
  __device__ __forceinline__ Pack<ELEMENT, N> operator()(const Pack<ELEMENT, N>* in,
                                                         const Pack<ELEMENT, N>& prior) const {
    return sum<N>(alpha, in[0], BLENDS ? beta : COMPUTE(0), prior);
  }
};

extern "C" __global__ void __launch_bounds__(256, BLOCKS) tensor_arithmetic_add(const AddArguments x) {
  griddepcontrol_wait_deferred();
  Elementwise<ELEMENT, 1, ELEMENT, Add>{{x.a}, x.c, x.beta != COMPUTE(0), {x.alpha, x.beta}}.run<WIDTH>(x.geometry);
}

struct AddSmallGrid {
  const ELEMENT* a;
  ELEMENT* c;
  COMPUTE alpha, beta;
  SmallGrid<2> small_grid;
};

extern "C" __global__ void __launch_bounds__(256) tensor_arithmetic_add_small_grid(const AddSmallGrid x) {
  griddepcontrol_wait_deferred();
  Elementwise<ELEMENT, 1, ELEMENT, Add>{{x.a}, x.c, x.beta != COMPUTE(0), {x.alpha, x.beta}}.run_small_grid(
      x.small_grid);
}

// A dense output along rows of which A is one element: a pack has one, or two where it crosses the end of a row.
struct AddUniformRows {
  const ELEMENT* a;
  ELEMENT* c;
  COMPUTE alpha, beta;
  unsigned count;    // elements of C
  Geometry<2> rows;  // (A, C), of single elements
};

extern "C" __global__ void __launch_bounds__(256, SEVERAL_PACKS_BLOCKS)
    tensor_arithmetic_add_uniform_rows(const AddUniformRows x) {
  griddepcontrol_wait_deferred();
  constexpr int PACKS = 2;  // of a thread, whose reads are in flight together
  const unsigned index = blockIdx.x * (PACKS * blockDim.x) + threadIdx.x;
  auto first = [&](int u) { return (index + u * blockDim.x) * WIDTH; };
  auto full = [&](int u) { return first(u) + WIDTH <= x.count; };
  const ELEMENT *near[PACKS], *far[PACKS];
  unsigned left[PACKS];  // to the end of the row
#pragma unroll
  for (int u = 0; u < PACKS; u++) {
    if (first(u) >= x.count) {
      if (u == 0) return;
      continue;
    }
    unsigned in_row, row = x.rows.packs_per_row.divide(first(u), in_row);
    left[u] = x.rows.row - in_row;
    near[u] = far[u] = x.a + x.rows.row_offset(row, 0);
    if (left[u] < WIDTH && first(u) + left[u] < x.count) far[u] = x.a + x.rows.row_offset(row + 1, 0);
  }
  griddepcontrol_wait_before_access(x.c + first(0), far[0]);
  Pack<ELEMENT, WIDTH> prior[PACKS] = {};
  ELEMENT of_near[PACKS], of_far[PACKS];
#pragma unroll
  for (int u = 0; u < PACKS; u++) {
    if (first(u) >= x.count) continue;
    if (x.beta != COMPUTE(0)) {
      if (full(u)) {
        prior[u] = *reinterpret_cast<const Pack<ELEMENT, WIDTH>*>(x.c + first(u));
      } else {
#pragma unroll
        for (int i = 0; i < WIDTH; i++)
          if (first(u) + i < x.count) prior[u].item[i] = x.c[first(u) + i];
      }
    }
    of_near[u] = *near[u], of_far[u] = *far[u];
  }
  griddepcontrol_launch_dependents();
#pragma unroll
  for (int u = 0; u < PACKS; u++) {
    if (first(u) >= x.count) continue;
    Pack<ELEMENT, WIDTH> a;
#pragma unroll
    for (int i = 0; i < WIDTH; i++) a.item[i] = i < left[u] ? of_near[u] : of_far[u];
    const Pack<ELEMENT, WIDTH> sums = sum<WIDTH>(x.alpha, a, x.beta, prior[u]);
    if (full(u)) {
      *reinterpret_cast<Pack<ELEMENT, WIDTH>*>(x.c + first(u)) = sums;
    } else {
#pragma unroll
      for (int i = 0; i < WIDTH; i++)
        if (first(u) + i < x.count) x.c[first(u) + i] = sums.item[i];
    }
  }
}

// --- cudnnOpTensor ---

struct Formula {
  COMPUTE alpha1, alpha2, beta;
  signed char operation, propagate, output;
};

// op(alpha1 * a, alpha2 * b) + beta * prior; one switch a pack.
template <class Out, int N>
__device__ __forceinline__ Pack<Out, N> combine(const Formula& formula, const Pack<ELEMENT, N>& a,
                                                const Pack<ELEMENT, N>& b, const Pack<Out, N>& prior) {
  COMPUTE beta = formula.beta;
  bool propagate = formula.propagate;
  Pack<Out, N> result;
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

template <template <int> class Layout> struct OpStrided {
  const ELEMENT* a;
  const ELEMENT* b;
  void* c;
  Formula formula;
  Layout<3> layout;
};
using OpArguments = OpStrided<Geometry>;
using OpSmallGrid = OpStrided<SmallGrid>;

// Elements of a pack: 16 bytes of the wider type, so that a warp's accesses are contiguous on either side.
template <class Out> constexpr int PACK = 16 / (sizeof(Out) > sizeof(ELEMENT) ? sizeof(Out) : sizeof(ELEMENT));

template <class Out> struct Combine {
  Formula formula;
  template <bool BLENDS, int N>
  __device__ __forceinline__ Pack<Out, N> operator()(const Pack<ELEMENT, N>* in, const Pack<Out, N>& prior) const {
    return combine<Out, N>(formula, in[0], in[1], prior);
  }
};

template <class Out, class Arguments>
__device__ __forceinline__ Elementwise<ELEMENT, 2, Out, Combine<Out>> job(const Arguments& x) {
  return {{x.a, x.b},
          static_cast<Out*>(x.c),
          x.formula.beta != COMPUTE(0),
          {x.formula},
          x.formula.operation < SQRT ? 2 : 1};
}
template <class Out> __device__ __forceinline__ void run(const OpArguments& x) {
  job<Out>(x).template run<PACK<Out>>(x.layout);
}
template <class Out> __device__ __forceinline__ void run(const OpSmallGrid& x) { job<Out>(x).run_small_grid(x.layout); }

// The destination types that Table 7 has for ELEMENT: itself, for FLOAT three narrower ones, for those FLOAT.
template <class Arguments> __device__ __forceinline__ void run_to_output(const Arguments& x) {
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

extern "C" __global__ void __launch_bounds__(256, SEVERAL_PACKS_BLOCKS) tensor_arithmetic_op(const OpArguments x) {
  griddepcontrol_wait_deferred();
  run_to_output(x);
}

extern "C" __global__ void __launch_bounds__(256) tensor_arithmetic_op_small_grid(const OpSmallGrid x) {
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
  __device__ __forceinline__ Pack<ELEMENT, N> operator()(const Pack<ELEMENT, N>*, const Pack<ELEMENT, N>&) const {
    Pack<ELEMENT, N> values;
#pragma unroll
    for (int i = 0; i < N; i++) values.item[i] = value;
    return values;
  }
};

extern "C" __global__ void __launch_bounds__(256) tensor_arithmetic_set(const SetArguments x) {
  griddepcontrol_wait_deferred();
  ELEMENT value = store<ELEMENT>(x.value);  // one rounding, from the value as it was given
  Elementwise<ELEMENT, 0, ELEMENT, Set>{{nullptr}, x.y, false, {value}}.run<WIDTH>(x.geometry);
}
