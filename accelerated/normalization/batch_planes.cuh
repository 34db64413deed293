// Packs of batch normalization in contiguous planes, what a thread or a block has of a channel, and what it knows of
// it.
#pragma once
#include "normalization/batch_call.cuh"

constexpr unsigned WIDTH = PACK_WIDTH;  // elements of a pack
using Elements = Pack<ELEMENT, WIDTH>;

__device__ __forceinline__ Elements read_pack(const ELEMENT* from) { return *reinterpret_cast<const Elements*>(from); }

// What a thread or a block has of its channel: elements, and the sums or moments of them.
struct Share {
  COMPUTE count;
  Total total;
};

// The moments of a thread, its elements one by one.
struct ThreadMoments {
  ShiftedSum sum;
  unsigned elements = 0;
  __device__ __forceinline__ void add(ELEMENT value) {
    if (elements++ == 0) sum.begin(value);
    sum.add(value);
  }
  // Before the first pack is added.
  __device__ __forceinline__ void begin(const Elements& pack) {
    if (elements == 0) sum.begin(pack.item[0], pack.item[WIDTH / 2], pack.item[WIDTH - 1]);
  }
  __device__ __forceinline__ void add_begun(const Elements& pack) {
    elements += WIDTH;
    sum.add(pack.item);
  }
  __device__ __forceinline__ void add(const Elements& pack) {
    begin(pack);
    add_begun(pack);
  }
  __device__ __forceinline__ Share share() {
    if (elements == 0) return {};
    return {COMPUTE(elements), sum.moments(COMPUTE(1) / COMPUTE(elements))};
  }
};

// What a block knows of a channel.
struct KnownChannel {
  COMPUTE mean, inverse, factor;  // factor: scale * inverse

  // Where mean and inverse are not saved, the factor is the scale.
  static __device__ __forceinline__ KnownChannel read(const BackwardCall& call, unsigned channel) {
    const COMPUTE scale = call.scale[channel];
    if (!call.saved_mean) return {0, 0, scale};
    const COMPUTE inverse = call.saved_inverse[channel];
    return {call.saved_mean[channel], inverse, scale * inverse};
  }
  __device__ __forceinline__ void use(const BackwardCall& call, const Total& moments, COMPUTE count) {
    mean = moments.first + moments.low, inverse = COMPUTE(1) / sqrt(moments.second / count + call.epsilon);
    factor *= inverse;
  }
  __device__ __forceinline__ GradientOf gradient(const Total& sums, COMPUTE count) const {
    return GradientOf::from(mean, inverse, factor, sums, count);
  }
};

// The sums of a thread.
struct GradientSums {
  KnownChannel known;
  Total total = {};

  // Packs are added up by themselves first, so that few additions wait for each other.
  template <unsigned N> __device__ __forceinline__ void add(const ELEMENT (&x)[N], const ELEMENT (&dy)[N]) {
    COMPUTE first = 0, second = 0;
#pragma unroll
    for (unsigned k = 0; k < N; k++) {
      const COMPUTE gradient = load<COMPUTE>(dy[k]);
      first += gradient;
      second += gradient * ((load<COMPUTE>(x[k]) - known.mean) * known.inverse);
    }
    total.first += first, total.second += second;
  }
  __device__ __forceinline__ void add(ELEMENT x, ELEMENT dy) { add<1>({x}, {dy}); }
  __device__ __forceinline__ void add(const Elements& x, const Elements& dy) { add(x.item, dy.item); }
};
