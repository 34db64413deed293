// Gradients of maxima with a static window: the first maximum of one window, or of two at once.
#pragma once
#include "pooling/static_window.cuh"

static_assert(K0 >= S0 && K1 >= S1 && K2 >= S2, "every input lies in a window");
constexpr int CARRIED = K0 - S0;  // planes of a window that the next one has, too

// NONE: no index, whatever is added to it.
struct One {
  static constexpr int SIZE = 1;
  static constexpr int NONE = -(1 << 16);
  using Value = COMPUTE;
  using Gradient = COMPUTE;
  using Indices = int;
  static __device__ __forceinline__ Value values(const ELEMENT (&items)[1]) { return load<COMPUTE>(items[0]); }
  static __device__ __forceinline__ Gradient dy_value(const ELEMENT (&items)[1]) { return load<COMPUTE>(items[0]); }
  static __device__ __forceinline__ Indices indices(const int (&indices)[1]) { return indices[0]; }
  static __device__ __forceinline__ Indices broadcast(int index) { return index; }

  // Takes what was met where it comes first: it is larger, or NaN.
  template <bool PROPAGATES>
  static __device__ __forceinline__ void take(Value& value, Indices& where, Value met, Indices index) {
    if constexpr (PROPAGATES) {
      bool better = where < 0 || met > value || (met != met && value == value);
      value = better ? met : value;
      where = better ? index : where;
    } else {
      COMPUTE larger = fmax(value, met);
      where = larger == value ? where : index;
      value = larger;
    }
  }
  static __device__ __forceinline__ Indices valid(Value value, Indices where) { return value == value ? where : NONE; }
  // Adds dy to the sums of the windows whose maximum is at an index.
  static __device__ __forceinline__ void scatter(Indices where, int index, const COMPUTE (&dy_values)[1],
                                                 COMPUTE* const (&sums)[1]) {
    if (where == index) *sums[0] += dy_values[0];
  }
  static __device__ __forceinline__ void values_of(Gradient dy_value, COMPUTE (&dy_values)[1]) {
    dy_values[0] = dy_value;
  }
};

// Indices are bits of half values_of, those without one NaN, so that a comparison makes two predicates.
struct Two {
  static constexpr int SIZE = 2;
  static constexpr unsigned NONE = 0x7e00;
  using Value = unsigned;
  using Gradient = unsigned;
  using Indices = unsigned;
  template <class Item> static __device__ __forceinline__ Value values(const Item (&items)[2]) {
    return bits_of(__halves2half2(items[0], items[1]));
  }
  template <class Item> static __device__ __forceinline__ Gradient dy_value(const Item (&items)[2]) {
    return values(items);
  }
  static __device__ __forceinline__ Indices indices(const int (&indices)[2]) { return indices[0] | indices[1] << 16; }
  static __device__ __forceinline__ Indices broadcast(int index) { return index * 0x10001u; }
  static __device__ __forceinline__ unsigned selected(unsigned mask, unsigned a, unsigned b) {
    return (mask & a) | (~mask & b);
  }

  template <bool PROPAGATES>
  static __device__ __forceinline__ void take(Value& value, Indices& where, Value met, Indices index) {
    if constexpr (PROPAGATES) {
      unsigned nan = __hneu2_mask(pair_of(value), pair_of(value)), none = __hneu2_mask(pair_of(where), pair_of(where));
      unsigned better = (__hgtu2_mask(pair_of(met), pair_of(value)) & ~nan) | none;
      value = selected(better, met, value);
      where = selected(better, index, where);
    } else {
      unsigned larger = bits_of(__hmax2(pair_of(value), pair_of(met)));
      where = selected(__heq2_mask(pair_of(larger), pair_of(value)), where, index);
      value = larger;
    }
  }
  static __device__ __forceinline__ Indices valid(Value value, Indices where) {
    return where | __hneu2_mask(pair_of(value), pair_of(value));
  }
  // A sum that does not exist is null at compile time.
  template <class C>
  static __device__ __forceinline__ void scatter(Indices where, int index, const C (&dy_values)[2],
                                                 C* const (&sums)[2]) {
    unsigned here = broadcast(index);
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 530
    if constexpr (sizeof(C) == sizeof(float)) {
      if (sums[0] && sums[1])
        asm("{.reg .pred p, q; setp.eq.f16x2 p|q, %2, %3; @p add.f32 %0, %0, %4; @q add.f32 %1, %1, %5;}"
            : "+f"(*sums[0]), "+f"(*sums[1])
            : "r"(where), "r"(here), "f"(dy_values[0]), "f"(dy_values[1]));
      else if (sums[0])
        asm("{.reg .pred p, q; setp.eq.f16x2 p|q, %1, %2; @p add.f32 %0, %0, %3;}"
            : "+f"(*sums[0])
            : "r"(where), "r"(here), "f"(dy_values[0]));
      else if (sums[1])
        asm("{.reg .pred p, q; setp.eq.f16x2 p|q, %1, %2; @q add.f32 %0, %0, %3;}"
            : "+f"(*sums[1])
            : "r"(where), "r"(here), "f"(dy_values[1]));
      return;
    }
#endif
    unsigned equal = __heq2_mask(pair_of(where), pair_of(here));
    if (sums[0] && (equal & 1)) *sums[0] += dy_values[0];
    if (sums[1] && (equal >> 16)) *sums[1] += dy_values[1];
  }
  static __device__ __forceinline__ void values_of(Gradient dy_value, COMPUTE (&dy_values)[2]) {
    dy_values[0] = load<COMPUTE>(__low2half(pair_of(dy_value))),
    dy_values[1] = load<COMPUTE>(__high2half(pair_of(dy_value)));
  }
};
