// This header moves neighbouring elements together and converts them to the arithmetic type.
#pragma once
#include <type_traits>

#include "primitives/types.cuh"

// A Packed holds N neighbouring elements unchanged, in words for 16-bit types.
constexpr bool PAIRED = sizeof(ELEMENT) == 2 && sizeof(COMPUTE) == 4;
template <int N> using Packed = std::conditional_t<PAIRED && N % 2 == 0, Vector<unsigned, N / 2>, Vector<ELEMENT, N>>;

// Reads N elements, or returns zeros if they do not exist.
template <int N> __device__ __forceinline__ Packed<N> fetch_packed(const ELEMENT* from, bool exists) {
  Packed<N> found = {};
  if (exists) found = *reinterpret_cast<const Packed<N>*>(from);
  return found;
}

// Converts elements into the arithmetic type.
template <int N> __device__ __forceinline__ void convert_packed(const Packed<N>& found, COMPUTE* values) {
#pragma unroll
  for (int v = 0; v < N; v++) {
    if constexpr (PAIRED && N % 2 == 0) {
      const float2 pair = load_pair<ELEMENT>(found.item[v / 2]);
      values[v] = v % 2 ? pair.y : pair.x;
    } else {
      values[v] = load<COMPUTE>(found.item[v]);
    }
  }
}
template <int N> __device__ __forceinline__ void read_packed(const ELEMENT* from, bool exists, COMPUTE* values) {
  convert_packed<N>(fetch_packed<N>(from, exists), values);
}

// Returns the numbers in the stored type, each rounded once.
template <int N> __device__ __forceinline__ Packed<N> rounded_packed(const COMPUTE* values) {
  Packed<N> result;
  if constexpr (PAIRED && N % 2 == 0) {
#pragma unroll
    for (int v = 0; v < N; v += 2) result.item[v / 2] = store_pair<ELEMENT>(values[v], values[v + 1]);
  } else {
#pragma unroll
    for (int v = 0; v < N; v++) result.item[v] = store<ELEMENT>(values[v]);
  }
  return result;
}
template <int N> __device__ __forceinline__ void put_packed(ELEMENT* to, const COMPUTE* values) {
  *reinterpret_cast<Packed<N>*>(to) = rounded_packed<N>(values);
}
