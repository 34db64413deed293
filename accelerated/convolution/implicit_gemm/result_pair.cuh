// This header rounds and rectifies pairs of results. Elements of 16 bits share one register.
#pragma once
#include <type_traits>

#include "primitives/types.cuh"

using Elements = Vector<ELEMENT, 2>;

__device__ __forceinline__ Elements rounded_pair(float first, float second) {
  if constexpr (sizeof(ELEMENT) == 2) {
    const unsigned word = store_pair<ELEMENT>(first, second);
    return *reinterpret_cast<const Elements*>(&word);
  }
  return {store<ELEMENT>(first), store<ELEMENT>(second)};
}
// Applies the ReLU, which makes 0 of NaN.
__device__ __forceinline__ Elements rectified(Elements pair) {
#ifndef EMULATED_CUDA
  if constexpr (sizeof(ELEMENT) == 2) {
    using Two = std::conditional_t<std::is_same_v<ELEMENT, half>, __half2, __nv_bfloat162>;
    const Two value = __hmax2(*reinterpret_cast<const Two*>(&pair), Two{store<ELEMENT>(0.0f), store<ELEMENT>(0.0f)});
    return *reinterpret_cast<const Elements*>(&value);
  }
#endif
  return {store<ELEMENT>(fmaxf(load<float>(pair.item[0]), 0.0f)),
          store<ELEMENT>(fmaxf(load<float>(pair.item[1]), 0.0f))};
}
