// Two elements of 16 bits in a register, scaled, biased and rectified between their load and their product; rounded
// once.
#pragma once
#include <type_traits>

#include "primitives/types.cuh"

struct ScaledPair {
  using Elements = Pack<ELEMENT, 2>;
  Elements scale, bias;

  __device__ __forceinline__ ScaledPair() {
#pragma unroll
    for (int j = 0; j < 2; j++) scale.item[j] = store<ELEMENT>(1.0f), bias.item[j] = store<ELEMENT>(0.0f);
  }

  // Neighbouring channels. NULL: 1 and 0.
  __device__ __forceinline__ void load_channels(const ELEMENT* scales, const ELEMENT* biases, int channel) {
    if (scales) scale = *reinterpret_cast<const Elements*>(scales + channel);
    if (biases) bias = *reinterpret_cast<const Elements*>(biases + channel);
  }
  // One channel for both.
  __device__ __forceinline__ void load_channel(const ELEMENT* scales, const ELEMENT* biases, int channel) {
    if (scales) scale.item[0] = scale.item[1] = scales[channel];
    if (biases) bias.item[0] = bias.item[1] = biases[channel];
  }

  __device__ __forceinline__ unsigned apply(unsigned bits, bool rectified) const {
    Elements pair = *reinterpret_cast<const Elements*>(&bits);
#ifdef EMULATED_CUDA
    for (int j = 0; j < 2; j++) {
      const float value = load<float>(scale.item[j]) * load<float>(pair.item[j]) + load<float>(bias.item[j]);
      pair.item[j] = store<ELEMENT>(rectified ? fmaxf(value, 0.0f) : value);
    }
#else
    if constexpr (sizeof(ELEMENT) == 2) {
      using Two = std::conditional_t<std::is_same_v<ELEMENT, half>, __half2, __nv_bfloat162>;
      Two value = __hfma2(*reinterpret_cast<const Two*>(&pair), *reinterpret_cast<const Two*>(&scale),
                          *reinterpret_cast<const Two*>(&bias));
      if (rectified) value = __hmax2(value, Two{store<ELEMENT>(0.0f), store<ELEMENT>(0.0f)});
      pair = *reinterpret_cast<const Elements*>(&value);
    }
#endif
    return *reinterpret_cast<const unsigned*>(&pair);
  }
};
