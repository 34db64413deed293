// This header processes pairs of elements; elements of 16 bits share one register. ScaledPair scales, biases and
// rectifies a pair of an operand before the product, with one rounding. Other functions serve a pair of results.
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

struct ScaledPair {
  Elements scale, bias;

  __device__ __forceinline__ ScaledPair() {
#pragma unroll
    for (int j = 0; j < 2; j++) scale.item[j] = store<ELEMENT>(1.0f), bias.item[j] = store<ELEMENT>(0.0f);
  }

  // Loads neighbouring channels. NULL means 1 and 0.
  __device__ __forceinline__ void load_channels(const ELEMENT* scales, const ELEMENT* biases, int channel) {
    if (scales) scale = *reinterpret_cast<const Elements*>(scales + channel);
    if (biases) bias = *reinterpret_cast<const Elements*>(biases + channel);
  }
  // Loads one channel for both elements.
  __device__ __forceinline__ void load_channel(const ELEMENT* scales, const ELEMENT* biases, int channel) {
    if (scales) scale.item[0] = scale.item[1] = scales[channel];
    if (biases) bias.item[0] = bias.item[1] = biases[channel];
  }

  __device__ __forceinline__ unsigned apply(unsigned bits, bool rectifies) const {
    Elements pair = *reinterpret_cast<const Elements*>(&bits);
#ifdef EMULATED_CUDA
    for (int j = 0; j < 2; j++) {
      const float value = load<float>(scale.item[j]) * load<float>(pair.item[j]) + load<float>(bias.item[j]);
      pair.item[j] = store<ELEMENT>(rectifies ? fmaxf(value, 0.0f) : value);
    }
#else
    if constexpr (sizeof(ELEMENT) == 2) {
      using Two = std::conditional_t<std::is_same_v<ELEMENT, half>, __half2, __nv_bfloat162>;
      const Two value = __hfma2(*reinterpret_cast<const Two*>(&pair), *reinterpret_cast<const Two*>(&scale),
                                *reinterpret_cast<const Two*>(&bias));
      pair = *reinterpret_cast<const Elements*>(&value);
      if (rectifies) pair = rectified(pair);
    }
#endif
    return *reinterpret_cast<const unsigned*>(&pair);
  }
};
