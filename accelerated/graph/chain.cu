// These kernels compute a chain of pointwise operations (9.2.14), compiled for the operations and types of a graph.
// graph/pointwise.cu interprets these constants at run time. Tensors are packed or broadcast along the innermost
// dimension, whose extent is a multiple of WIDTH, and aligned.
//
// Each thread computes WIDTH elements, 16 bytes of the narrowest type. All of its reads are in flight before the first
// operation.
//
// Roofline bound: bytes, one element of each operand in memory; a few flops for each operation and element.
#include "graph/pointwise.cuh"

struct Fixed {
  int mode, propagates_nan, x, b, y, type;
  int scales_x, scales_b;  // whether a factor differs from 1
};
constexpr Fixed CHAIN[STAGES] = {OPERATIONS};
constexpr int TYPE[OPERANDS] = {TYPES};
constexpr int STEP[OPERANDS] = {STEPS};  // stride between elements: 0 where an operand is broadcast
constexpr int WRITTEN[OPERANDS] = {WRITES};

template <int I> struct Index {
  static constexpr int value = I;
};
template <int BEGIN, int END, class Function> __device__ __forceinline__ void repeat(Function function) {
  if constexpr (BEGIN < END) {
    function(Index<BEGIN>());
    repeat<BEGIN + 1, END>(function);
  }
}

template <int TYPE> struct Element;
#define ELEMENT_OF(type_number, Type)       \
  template <> struct Element<type_number> { \
    using type = Type;                      \
  };
ELEMENT_OF(IS_FLOAT, float)
ELEMENT_OF(IS_DOUBLE, double)
ELEMENT_OF(IS_HALF, half)
ELEMENT_OF(IS_BFLOAT16, bfloat16)
ELEMENT_OF(IS_INT8, int8)
ELEMENT_OF(IS_UINT8, uint8)
ELEMENT_OF(IS_INT32, int32)
template <int OPERAND> using Of = Vector<typename Element<TYPE[OPERAND]>::type, STEP[OPERAND] ? WIDTH : 1>;

// Holds the values that a thread reads of the operands from OPERAND on, in their stored types.
template <int OPERAND> struct Read : Read<OPERAND + 1> {
  Of<OPERAND> vector;
};
template <> struct Read<OPERANDS> {};

template <int SOURCE> __device__ __forceinline__ Values source(const Values& current, const Read<0>& read) {
  Values values = {};
  if constexpr (SOURCE == CURRENT) values = current;
  else if constexpr (SOURCE != ABSENT) {
    constexpr bool BROADCAST = STEP[SOURCE] == 0;
    const Of<SOURCE>& vector = static_cast<const Read<SOURCE>&>(read).vector;
#pragma unroll
    for (int i = 0; i < WIDTH; i++) values.item[i] = load<COMPUTE>(vector.item[BROADCAST ? 0 : i]);
  }
  return values;
}

struct Offsets {
  unsigned of[OPERANDS];
};

__device__ __forceinline__ Offsets locate(const Arguments& a, unsigned index) {
  Offsets found;
  unsigned at = index;
#pragma unroll
  for (int d = 0; d < RANK; d++) {
    const unsigned rest = d + 1 < RANK ? a.extents[d].divide(index, at) : 0;
    if (d + 1 == RANK) at = index;
    repeat<0, OPERANDS>([&](auto operand) {
      constexpr int O = decltype(operand)::value, DISTANCE = STEP[O] * WIDTH;
      if (d == 0) found.of[O] = at * DISTANCE;
      else found.of[O] += at * static_cast<unsigned>(a.operands[O].strides[d]);
    });
    index = rest;
  }
  return found;
}

template <int OPERAND> __device__ __forceinline__ Of<OPERAND>* address(const Arguments& a, const Offsets& offsets) {
  using T = typename Element<TYPE[OPERAND]>::type;
  return reinterpret_cast<Of<OPERAND>*>(static_cast<T*>(a.memory[OPERAND]) + offsets.of[OPERAND]);
}

// Returns the result of the last operation.
__device__ __forceinline__ Values compute(const Arguments& a, const Offsets& offsets, const Read<0>& read) {
  Values current = {};
  repeat<0, STAGES>([&](auto index) {
    constexpr int S = decltype(index)::value;
    constexpr Fixed F = CHAIN[S];
    const Stage& given = a.stages[S];
    const Stage stage = {given.alpha1, given.alpha2, given.lower, given.upper, F.mode, F.propagates_nan};
    Values x = source<F.x>(current, read), b = source<F.b>(current, read);
    if (F.scales_x) each(x, [&](COMPUTE v) { return product(v, stage.alpha1); });
    if (F.scales_b) each(b, [&](COMPUTE v) { return product(v, stage.alpha2); });
    apply(stage, x, b);
    using T = typename Element<F.type>::type;
    if constexpr (F.y == ABSENT) {
      round_values<T>(x);
    } else {
      Of < F.y<0 ? 0 : F.y> stored;
#pragma unroll
      for (int i = 0; i < WIDTH; i++) {
        stored.item[i] = store<T>(x.item[i]);
        x.item[i] = load<COMPUTE>(stored.item[i]);
      }
      *address < F.y<0 ? 0 : F.y>(a, offsets) = stored;
    }
    current = x;
  });
  return current;
}

__device__ __forceinline__ void read_all(const Arguments& a, const Offsets& offsets, Read<0>& read) {
  repeat<0, OPERANDS>([&](auto operand) {
    constexpr int O = decltype(operand)::value;
    if constexpr (!WRITTEN[O]) static_cast<Read<O>&>(read).vector = *address<O>(a, offsets);
  });
}

extern "C" __global__ void __launch_bounds__(THREADS) graph_chain(const Arguments a) {
  griddepcontrol_wait_deferred();
  const unsigned index = blockIdx.x * THREADS + threadIdx.x;
  const Offsets offsets = locate(a, index);
  griddepcontrol_wait_before_access(address<0>(a, offsets));
  if (index >= static_cast<unsigned>(a.vectors)) return;
  Read<0> read;
  read_all(a, offsets, read);
  griddepcontrol_launch_dependents();
  compute(a, offsets, read);
}
