// cudnnAddTensor (3.2.2), cudnnOpTensor (3.2.68), cudnnScaleTensor (3.2.75), cudnnSetTensor (3.2.90).
//
// Rows of full packs in every operand, or broadcast along them, move in accesses of 16 bytes
// (primitives/elementwise.cuh). Where rows are not, but the output is dense, it moves as one row in accesses of 16
// bytes whatever its extents, and the host chooses how a pack reads the operand that is broadcast.
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

// --- an operand that is broadcast onto a dense output ---

// How a pack of the output reads the operand that is broadcast; plan.py chooses and defines the numbers. A row is a
// part of the output along which the operand has one stride.
//   UNIFORM: stride 0, rows of a pack at least: one element, or two where the pack crosses the end of a row
//   ALIGNED: stride 1, rows of full packs: one access
//   PIECES: stride 1, rows of a multiple of PIECE elements: one access for each
//   SINGLE: element by element

// The operand's address for an element of the output. `spread` (of width 1) holds the operand's rows.
template <class T> struct Spot {
  const T* pointer;
  unsigned in_row;

  __device__ __forceinline__ Spot() {}
  __device__ __forceinline__ Spot(const Geometry<2>& spread, const T* operand, unsigned index) {
    const unsigned row = spread.packs_per_row.divide(index, in_row);
    pointer = operand + (spread.row_offset(row, 0) + in_row * spread.row_stride[0]);
  }
};

// Reads the operand for `count` neighbours of the output from `first` on, whose address is `spot`.
template <int N, class T>
__device__ __forceinline__ void read_spread(int access, const Geometry<2>& spread, const T* operand,
                                            const Spot<T>& spot, unsigned first, unsigned count, Pack<T, N>& values) {
  const int step = spread.row_stride[0];
  const T* pointer = spot.pointer;
  unsigned in_row = spot.in_row;
  auto at = [&](unsigned index) {
    const Spot<T> there(spread, operand, index);
    in_row = there.in_row;
    return there.pointer;
  };
  if (access == UNIFORM) {
    const unsigned left = spread.row - in_row;
    const T near = *pointer, far = left < count ? *at(first + left) : near;
#pragma unroll
    for (int i = 0; i < N; i++) values.item[i] = i < left ? near : far;
  } else if (access == ALIGNED) {
    read_elements<N>(pointer, 1, true, count, values);
  } else if (N > PIECE && access == PIECES) {
    constexpr int LENGTH = N > PIECE ? PIECE : N;
#pragma unroll
    for (int i = 0; i < N; i += LENGTH)
      if (i < count) {
        Pack<T, LENGTH> piece = {};
        read_elements<LENGTH>(at(first + i), 1, true, count - i < LENGTH ? count - i : LENGTH, piece);
#pragma unroll
        for (int j = 0; j < LENGTH; j++) values.item[i + j] = piece.item[j];
      }
  } else {
#pragma unroll
    for (int i = 0; i < N; i++)
      if (i < count) {
        values.item[i] = *pointer;
        pointer += step;
        if (++in_row == spread.row && i + 1 < count) pointer = at(first + i + 1);  // any row of the operand
      }
  }
}

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

struct AddDenseArguments {
  const ELEMENT* a;
  ELEMENT* c;
  COMPUTE alpha, beta;
  unsigned count;
  int access;
  unsigned packs_per_thread;
  Geometry<2> spread;  // of A on C
};

extern "C" __global__ void __launch_bounds__(256, SEVERAL_PACKS_BLOCKS)
    tensor_arithmetic_add_dense(const AddDenseArguments x) {
  griddepcontrol_wait_deferred();
  unsigned index = blockIdx.x * (blockDim.x * x.packs_per_thread) + threadIdx.x;
  for (unsigned done = 0; done < x.packs_per_thread; done += DENSE_PACKS, index += DENSE_PACKS * blockDim.x) {
    Pack<ELEMENT, WIDTH> a[DENSE_PACKS] = {}, prior[DENSE_PACKS] = {};
    Spot<ELEMENT> spot[DENSE_PACKS];
    auto first = [&](int u) { return (index + u * blockDim.x) * WIDTH; };
    auto count = [&](int u) { return x.count - first(u) < WIDTH ? x.count - first(u) : WIDTH; };
    if (first(0) >= x.count) return;
#pragma unroll
    for (int u = 0; u < DENSE_PACKS; u++)
      if (done + u < x.packs_per_thread && first(u) < x.count) spot[u] = Spot<ELEMENT>(x.spread, x.a, first(u));
    if (done == 0) griddepcontrol_wait_before_access(x.c + first(0), spot[0].pointer);
#pragma unroll
    for (int u = 0; u < DENSE_PACKS; u++)
      if (done + u < x.packs_per_thread && first(u) < x.count && x.beta != COMPUTE(0))
        read_elements<WIDTH, ELEMENT>(x.c + first(u), 1, true, count(u), prior[u]);
#pragma unroll
    for (int u = 0; u < DENSE_PACKS; u++)
      if (done + u < x.packs_per_thread && first(u) < x.count)
        read_spread<WIDTH>(x.access, x.spread, x.a, spot[u], first(u), count(u), a[u]);
    if (done == 0) griddepcontrol_launch_dependents();
#pragma unroll
    for (int u = 0; u < DENSE_PACKS; u++)
      if (done + u < x.packs_per_thread && first(u) < x.count)
        write_elements<WIDTH>(x.c + first(u), 1, true, count(u), sum<WIDTH>(x.alpha, a[u], x.beta, prior[u]));
  }
}

// An operand that is UNIFORM: a pack is added to one of its elements, or two.
extern "C" __global__ void __launch_bounds__(256, SEVERAL_PACKS_BLOCKS)
    tensor_arithmetic_add_uniform(const AddDenseArguments x) {
  griddepcontrol_wait_deferred();
  unsigned index = blockIdx.x * (blockDim.x * x.packs_per_thread) + threadIdx.x;
  for (unsigned done = 0; done < x.packs_per_thread; done += DENSE_PACKS, index += DENSE_PACKS * blockDim.x) {
    Pack<ELEMENT, WIDTH> prior[DENSE_PACKS] = {};
    const ELEMENT *pointer[DENSE_PACKS], *next[DENSE_PACKS];
    COMPUTE near[DENSE_PACKS], far[DENSE_PACKS];
    unsigned left[DENSE_PACKS];  // to the end of the row
    auto first = [&](int u) { return (index + u * blockDim.x) * WIDTH; };
    auto count = [&](int u) { return x.count - first(u) < WIDTH ? x.count - first(u) : WIDTH; };
    auto exists = [&](int u) { return done + u < x.packs_per_thread && first(u) < x.count; };
    if (!exists(0)) return;
    auto find = [&] {
#pragma unroll
      for (int u = 0; u < DENSE_PACKS; u++)
        if (exists(u)) {
          unsigned in_row, row = x.spread.packs_per_row.divide(first(u), in_row);
          left[u] = x.spread.row - in_row;
          pointer[u] = next[u] = x.a + x.spread.row_offset(row, 0);
          if (left[u] < count(u)) next[u] = x.a + x.spread.row_offset(row + 1, 0);
        }
    };
    // Where all blocks run at once, they compute their indices while they wait; else reads should be in flight early.
    const bool waits = gridDim.x <= MANY_BLOCKS;
    if (waits) find();
    if (done == 0) griddepcontrol_wait_before_access(x.c + first(0), waits ? next[0] : x.a);
#pragma unroll
    for (int u = 0; u < DENSE_PACKS; u++)
      if (exists(u) && x.beta != COMPUTE(0)) read_elements<WIDTH, ELEMENT>(x.c + first(u), 1, true, count(u), prior[u]);
    if (!waits) find();
#pragma unroll
    for (int u = 0; u < DENSE_PACKS; u++)
      if (exists(u)) {
        near[u] = far[u] = x.alpha * load<COMPUTE>(*pointer[u]);
        if (left[u] < count(u)) far[u] = x.alpha * load<COMPUTE>(*next[u]);
      }
    if (done == 0) griddepcontrol_launch_dependents();
#pragma unroll
    for (int u = 0; u < DENSE_PACKS; u++)
      if (exists(u)) {
        Pack<ELEMENT, WIDTH> sums;
#pragma unroll
        for (int i = 0; i < WIDTH; i++) {
          COMPUTE value = i < left[u] ? near[u] : far[u];
          if (x.beta != COMPUTE(0)) value += x.beta * load<COMPUTE>(prior[u].item[i]);
          sums.item[i] = store<ELEMENT>(value);
        }
        write_elements<WIDTH>(x.c + first(u), 1, true, count(u), sums);
      }
  }
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

struct OpDenseArguments {
  const ELEMENT* a;
  const ELEMENT* b;
  void* c;
  Formula formula;
  unsigned count;
  int access;
  Geometry<2> spread;  // of B on C
};

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

template <class Out> struct Dense {
  static __device__ __forceinline__ void run(const OpDenseArguments& x) {
    constexpr int N = PACK<Out>;
    unsigned first = (blockIdx.x * blockDim.x + threadIdx.x) * N;
    if (first >= x.count) return;
    unsigned count = x.count - first < N ? x.count - first : N;
    Pack<ELEMENT, N> a = {}, b = {};
    Pack<Out, N> prior = {};
    Out* c = static_cast<Out*>(x.c) + first;
    Spot<ELEMENT> spot(x.spread, x.b, first);
    griddepcontrol_wait_before_access(x.a + first, c, spot.pointer);
    read_elements<N>(x.a + first, 1, true, count, a);
    if (x.formula.beta != COMPUTE(0)) read_elements<N, Out>(c, 1, true, count, prior);
    if (x.formula.operation < SQRT) read_spread<N>(x.access, x.spread, x.b, spot, first, count, b);
    griddepcontrol_launch_dependents();
    write_elements<N>(c, 1, true, count, combine<Out, N>(x.formula, a, b, prior));
  }
};

template <class Out> struct Combine {
  Formula formula;
  template <bool BLENDS, int N>
  __device__ __forceinline__ Pack<Out, N> operator()(const Pack<ELEMENT, N>* in, const Pack<Out, N>& prior) const {
    return combine<Out, N>(formula, in[0], in[1], prior);
  }
};

template <class Out> struct Strided {
  template <class Arguments>
  static __device__ __forceinline__ Elementwise<ELEMENT, 2, Out, Combine<Out>> job(const Arguments& x) {
    return {{x.a, x.b},
            static_cast<Out*>(x.c),
            x.formula.beta != COMPUTE(0),
            {x.formula},
            x.formula.operation < SQRT ? 2 : 1};
  }
  static __device__ __forceinline__ void run(const OpArguments& x) { job(x).template run<PACK<Out>>(x.layout); }
  static __device__ __forceinline__ void run(const OpSmallGrid& x) { job(x).run_small_grid(x.layout); }
};

// The destination types that Table 7 has for ELEMENT: itself, for FLOAT three narrower ones, for those FLOAT.
template <template <class> class Run, class Arguments>
__device__ __forceinline__ void run_to_output(const Arguments& x) {
  if constexpr (sizeof(ELEMENT) == 4) {
    switch (x.formula.output) {
      case TO_FLOAT:
        return Run<float>::run(x);
      case TO_HALF:
        return Run<half>::run(x);
      case TO_INT8:
        return Run<int8>::run(x);
      case TO_BFLOAT16:
        return Run<bfloat16>::run(x);
    }
  } else if constexpr (sizeof(ELEMENT) < 4) {
    if (x.formula.output == TO_FLOAT) return Run<float>::run(x);
    return Run<ELEMENT>::run(x);
  } else {
    return Run<ELEMENT>::run(x);
  }
}

extern "C" __global__ void __launch_bounds__(256, BLOCKS) tensor_arithmetic_op_dense(const OpDenseArguments x) {
  griddepcontrol_wait_deferred();
  run_to_output<Dense>(x);
}

extern "C" __global__ void __launch_bounds__(256, SEVERAL_PACKS_BLOCKS) tensor_arithmetic_op(const OpArguments x) {
  griddepcontrol_wait_deferred();
  run_to_output<Strided>(x);
}

extern "C" __global__ void __launch_bounds__(256) tensor_arithmetic_op_small_grid(const OpSmallGrid x) {
  griddepcontrol_wait_deferred();
  run_to_output<Strided>(x);
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
