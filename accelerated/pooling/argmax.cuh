// Gradients of maxima with a known window: the first maximum of one window, or of two at once.
#pragma once
#include "pooling/static_window.cuh"

static_assert(K0 >= S0 && K1 >= S1 && K2 >= S2, "every input lies in a window");
constexpr int CARRIED = K0 - S0;  // planes of a window that the next one has, too

// NONE: no place, whatever is added to it.
struct One {
  static constexpr int SIZE = 1;
  static constexpr int NONE = -(1 << 16);
  using Value = COMPUTE;
  using Gift = COMPUTE;
  using Places = int;
  static __device__ __forceinline__ Value values(const ELEMENT (&items)[1]) { return load<COMPUTE>(items[0]); }
  static __device__ __forceinline__ Gift gift(const ELEMENT (&items)[1]) { return load<COMPUTE>(items[0]); }
  static __device__ __forceinline__ Places places(const int (&places)[1]) { return places[0]; }
  static __device__ __forceinline__ Places everywhere(int place) { return place; }

  // Takes what was met where it comes first: it is larger, or NaN.
  template <bool PROPAGATES> static __device__ __forceinline__ void take(Value& value, Places& where, Value met, Places place) {
    if constexpr (PROPAGATES) {
      bool better = where < 0 || met > value || (met != met && value == value);
      value = better ? met : value;
      where = better ? place : where;
    } else {
      COMPUTE larger = fmax(value, met);
      where = larger == value ? where : place;
      value = larger;
    }
  }
  static __device__ __forceinline__ Places known(Value value, Places where) { return value == value ? where : NONE; }
  // Adds the gift to the sums of the windows whose maximum is at a place.
  static __device__ __forceinline__ void give(Places where, int place, const COMPUTE (&gifts)[1], COMPUTE* const (&sums)[1]) {
    if (where == place) *sums[0] += gifts[0];
  }
  static __device__ __forceinline__ void numbers(Gift gift, COMPUTE (&gifts)[1]) { gifts[0] = gift; }
};

// Places are bits of half numbers, those without one NaN, so that a comparison makes two predicates.
struct Two {
  static constexpr int SIZE = 2;
  static constexpr unsigned NONE = 0x7e00;
  using Value = unsigned;
  using Gift = unsigned;
  using Places = unsigned;
  static __device__ __forceinline__ half2 pair(unsigned bits) {
    half2 result;
    memcpy(&result, &bits, sizeof bits);
    return result;
  }
  static __device__ __forceinline__ unsigned bits(half2 pair) {
    unsigned result;
    memcpy(&result, &pair, sizeof result);
    return result;
  }
  template <class Item> static __device__ __forceinline__ Value values(const Item (&items)[2]) { return bits(__halves2half2(items[0], items[1])); }
  template <class Item> static __device__ __forceinline__ Gift gift(const Item (&items)[2]) { return values(items); }
  static __device__ __forceinline__ Places places(const int (&places)[2]) { return places[0] | places[1] << 16; }
  static __device__ __forceinline__ Places everywhere(int place) { return place * 0x10001u; }
  static __device__ __forceinline__ unsigned chosen(unsigned mask, unsigned a, unsigned b) { return (mask & a) | (~mask & b); }

  template <bool PROPAGATES> static __device__ __forceinline__ void take(Value& value, Places& where, Value met, Places place) {
    if constexpr (PROPAGATES) {
      unsigned nan = __hneu2_mask(pair(value), pair(value)), none = __hneu2_mask(pair(where), pair(where));
      unsigned better = (__hgtu2_mask(pair(met), pair(value)) & ~nan) | none;
      value = chosen(better, met, value);
      where = chosen(better, place, where);
    } else {
      unsigned larger = bits(__hmax2(pair(value), pair(met)));
      where = chosen(__heq2_mask(pair(larger), pair(value)), where, place);
      value = larger;
    }
  }
  static __device__ __forceinline__ Places known(Value value, Places where) { return where | __hneu2_mask(pair(value), pair(value)); }
  // A sum that does not exist is null, known when compiled.
  template <class C> static __device__ __forceinline__ void give(Places where, int place, const C (&gifts)[2], C* const (&sums)[2]) {
    unsigned here = everywhere(place);
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 530
    if constexpr (sizeof(C) == sizeof(float)) {
      if (sums[0] && sums[1])
        asm("{.reg .pred p, q; setp.eq.f16x2 p|q, %2, %3; @p add.f32 %0, %0, %4; @q add.f32 %1, %1, %5;}"
            : "+f"(*sums[0]), "+f"(*sums[1])
            : "r"(where), "r"(here), "f"(gifts[0]), "f"(gifts[1]));
      else if (sums[0])
        asm("{.reg .pred p, q; setp.eq.f16x2 p|q, %1, %2; @p add.f32 %0, %0, %3;}" : "+f"(*sums[0]) : "r"(where), "r"(here), "f"(gifts[0]));
      else if (sums[1])
        asm("{.reg .pred p, q; setp.eq.f16x2 p|q, %1, %2; @q add.f32 %0, %0, %3;}" : "+f"(*sums[1]) : "r"(where), "r"(here), "f"(gifts[1]));
      return;
    }
#endif
    unsigned equal = __heq2_mask(pair(where), pair(here));
    if (sums[0] && (equal & 1)) *sums[0] += gifts[0];
    if (sums[1] && (equal >> 16)) *sums[1] += gifts[1];
  }
  static __device__ __forceinline__ void numbers(Gift gift, COMPUTE (&gifts)[2]) {
    gifts[0] = load<COMPUTE>(__low2half(pair(gift))), gifts[1] = load<COMPUTE>(__high2half(pair(gift)));
  }
};
