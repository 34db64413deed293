// cudnnAddTensor (3.2.2), cudnnOpTensor (3.2.68), cudnnScaleTensor (3.2.75), cudnnSetTensor (3.2.90).
//
// Floor: bytes. An operand that is broadcast stays in the caches: a bias addition moves 2 elements a position, as a
// scaling does; an operation of two whole tensors moves 3, with beta 4; setting moves 1. At 4.2 TB/s a position of 2
// floats costs 1.9 ps, in which the GPU starts about 50 instructions: what could limit is the index arithmetic of the
// broadcast operand. Where the output is dense (every layout without gaps) the kernels therefore walk it as one row in
// accesses of 16 bytes whatever its extents, and divide once a pack, twice where a pack crosses the end of a row.
#include "elementwise.cuh"

enum Operation { ADD = 0, MUL = 1, MIN = 2, MAX = 3, SQRT = 4, NOT = 5 };               // cudnnOpTensorOp_t
enum DataType { TO_FLOAT = 0, TO_DOUBLE = 1, TO_HALF = 2, TO_INT8 = 3, TO_BFLOAT16 = 9 };  // cudnnDataType_t

constexpr int WIDTH = 16 / sizeof(ELEMENT);

// Reads what an operand that is broadcast onto a dense output has for `count` neighbours of the output from `first` on.
// `spread` (of width 1) holds the operand's rows on the output: pieces along which it advances by one stride.
template <class C, int N, class T>
__device__ __forceinline__ void read_spread(const Geometry<2>& spread, const T* pointer, unsigned first, unsigned count, C (&values)[N]) {
  long long near[2], far[2], step = spread.row_stride[0];
  unsigned position;
  spread.packs_per_row.divide(first, position);
  unsigned left = spread.row - position;  // until the row ends
  if (left >= count) {
    spread.locate(first, near);
    read_pack<C, N>(pointer + near[0], step, step == 1, count, values);
  } else if (spread.row >= N) {
    spread.locate(first, near);
    spread.locate(first + left, far);
    const T* next = pointer + far[0] - left * step;
#pragma unroll
    for (int i = 0; i < N; i++)
      if (i < count) values[i] = load<C>((i < left ? pointer + near[0] : next)[i * step]);
  } else {
#pragma unroll
    for (int i = 0; i < N; i++)
      if (i < count) {
        spread.locate(first + i, near);
        values[i] = load<C>(pointer[near[0]]);
      }
  }
}

template <int N> __device__ __forceinline__ void add_prior(COMPUTE (&values)[N], COMPUTE beta, const COMPUTE (&prior)[N]) {
  if (beta == COMPUTE(0)) return;
#pragma unroll
  for (int i = 0; i < N; i++) values[i] += beta * prior[i];
}

// --- cudnnAddTensor ---

struct AddDenseArguments {
  const ELEMENT* a;
  ELEMENT* c;
  Geometry<2> spread;  // of A on C
  double alpha, beta;
  unsigned count;
};

extern "C" __global__ void add_tensor_dense(const AddDenseArguments x) {
  COMPUTE alpha = x.alpha, beta = x.beta;
  unsigned first = (blockIdx.x * blockDim.x + threadIdx.x) * WIDTH;
  if (first >= x.count) return;
  unsigned count = x.count - first < WIDTH ? x.count - first : WIDTH;
  COMPUTE values[WIDTH] = {}, prior[WIDTH] = {};
  if (beta != COMPUTE(0)) read_pack<COMPUTE, WIDTH>(const_cast<const ELEMENT*>(x.c) + first, 1, true, count, prior);
  read_spread(x.spread, x.a, first, count, values);
#pragma unroll
  for (int i = 0; i < WIDTH; i++) values[i] *= alpha;
  add_prior(values, beta, prior);
  write_pack<WIDTH>(x.c + first, 1, true, count, values, COMPUTE(0));
}

struct Identity {
  __device__ COMPUTE operator()(COMPUTE value) const { return value; }
};

struct AddArguments {
  const ELEMENT* a;
  ELEMENT* c;
  Geometry<2> geometry;
  double alpha, beta;
};

extern "C" __global__ void add_tensor(const AddArguments x) {
  map<WIDTH>(x.geometry, x.a, x.c, COMPUTE(x.alpha), COMPUTE(x.beta), Identity{});
}

// --- cudnnOpTensor ---

// a = op(alpha1 * a, alpha2 * b); one switch a pack.
template <int N>
__device__ __forceinline__ void combine(int operation, bool propagate, COMPUTE alpha1, COMPUTE alpha2, COMPUTE (&a)[N], const COMPUTE (&b)[N]) {
#define EACH(expression)               \
  _Pragma("unroll") for (int i = 0; i < N; i++) { \
    COMPUTE x = alpha1 * a[i], y = alpha2 * b[i]; \
    a[i] = expression;                 \
  }                                    \
  break
  switch (operation) {
    case ADD: EACH(x + y);
    case MUL: EACH(x * y);
    case MIN: EACH(propagate && (x != x || y != y) ? x + y : fmin(x, y));
    case MAX: EACH(propagate && (x != x || y != y) ? x + y : fmax(x, y));
    case SQRT: EACH(sqrt(x));
    case NOT: EACH(COMPUTE(1) - x);
  }
#undef EACH
}

struct OpDenseArguments {
  const ELEMENT* a;
  const ELEMENT* b;
  void* c;
  Geometry<2> spread;  // of B on C
  double alpha1, alpha2, beta;
  unsigned count;
  int operation, propagate, output;
};

struct OpArguments {
  const ELEMENT* a;
  const ELEMENT* b;
  void* c;
  Geometry<3> geometry;
  double alpha1, alpha2, beta;
  int operation, propagate, output;
};

// Elements of one pack: 16 bytes of the wider type, so that neither side leaves holes between a warp's accesses.
template <class Out> constexpr int PACK = 16 / (sizeof(Out) > sizeof(ELEMENT) ? sizeof(Out) : sizeof(ELEMENT));

template <class Out> struct Dense {
  static __device__ __forceinline__ void run(const OpDenseArguments& x) {
    constexpr int N = PACK<Out>;
    COMPUTE beta = x.beta;
    Out* c = static_cast<Out*>(x.c);
    unsigned first = (blockIdx.x * blockDim.x + threadIdx.x) * N;
    if (first >= x.count) return;
    unsigned count = x.count - first < N ? x.count - first : N;
    COMPUTE a[N] = {}, b[N] = {}, prior[N] = {};
    read_pack<COMPUTE, N>(x.a + first, 1, true, count, a);
    if (beta != COMPUTE(0)) read_pack<COMPUTE, N>(const_cast<const Out*>(c) + first, 1, true, count, prior);
    if (x.operation < SQRT) read_spread(x.spread, x.b, first, count, b);
    combine<N>(x.operation, x.propagate, x.alpha1, x.alpha2, a, b);
    add_prior(a, beta, prior);
    write_pack<N>(c + first, 1, true, count, a, COMPUTE(0));
  }
};

template <class Out> struct Strided {
  static __device__ __forceinline__ void run(const OpArguments& x) {
    constexpr int N = PACK<Out>;
    const Geometry<3>& geometry = x.geometry;
    COMPUTE beta = x.beta;
    Out* c = static_cast<Out*>(x.c);
    unsigned index = blockIdx.x * blockDim.x + threadIdx.x;
    if (index >= geometry.packs) return;
    long long offset[3];
    unsigned count = geometry.locate(index, offset);
    COMPUTE a[N] = {}, b[N] = {}, prior[N] = {};
    read_pack<COMPUTE, N>(x.a + offset[0], geometry.row_stride[0], geometry.vectorised & 1, count, a);
    if (beta != COMPUTE(0))
      read_pack<COMPUTE, N>(const_cast<const Out*>(c) + offset[2], geometry.row_stride[2], geometry.vectorised & 4, count, prior);
    if (x.operation < SQRT) read_pack<COMPUTE, N>(x.b + offset[1], geometry.row_stride[1], geometry.vectorised & 2, count, b);
    combine<N>(x.operation, x.propagate, x.alpha1, x.alpha2, a, b);
    add_prior(a, beta, prior);
    write_pack<N>(c + offset[2], geometry.row_stride[2], geometry.vectorised & 4, count, a, COMPUTE(0));
  }
};

// The destination types that Table 7 has for ELEMENT: itself, for FLOAT three narrower ones, for those FLOAT.
template <template <class> class Walk, class Arguments> __device__ __forceinline__ void run_to_output(const Arguments& x) {
  if constexpr (sizeof(ELEMENT) == 4) {
    switch (x.output) {
      case TO_FLOAT: return Walk<float>::run(x);
      case TO_HALF: return Walk<half>::run(x);
      case TO_INT8: return Walk<int8>::run(x);
      case TO_BFLOAT16: return Walk<bfloat16>::run(x);
    }
  } else if constexpr (sizeof(ELEMENT) < 4) {
    if (x.output == TO_FLOAT) return Walk<float>::run(x);
    return Walk<ELEMENT>::run(x);
  } else {
    return Walk<ELEMENT>::run(x);
  }
}

extern "C" __global__ void op_tensor_dense(const OpDenseArguments x) { run_to_output<Dense>(x); }

extern "C" __global__ void op_tensor(const OpArguments x) { run_to_output<Strided>(x); }

// --- cudnnScaleTensor, cudnnSetTensor ---

struct ScaleArguments {
  ELEMENT* y;
  Geometry<2> geometry;
  double alpha;
};

extern "C" __global__ void scale_tensor(const ScaleArguments x) {
  map<WIDTH>(x.geometry, x.y, x.y, COMPUTE(x.alpha), COMPUTE(0), Identity{});
}

struct SetArguments {
  ELEMENT* y;
  Geometry<1> geometry;
  double value;
};

extern "C" __global__ void set_tensor(const SetArguments x) {
  unsigned index = blockIdx.x * blockDim.x + threadIdx.x;
  if (index >= x.geometry.packs) return;
  long long offset[1];
  unsigned count = x.geometry.locate(index, offset);
  double values[WIDTH];  // one rounding, from the value as it was given
#pragma unroll
  for (int i = 0; i < WIDTH; i++) values[i] = x.value;
  write_pack<WIDTH>(x.y + offset[0], x.geometry.row_stride[0], x.geometry.vectorised & 1, count, values, 0.0);
}
