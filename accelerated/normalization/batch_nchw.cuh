// This header defines vectors of contiguous planes and the partial results and statistics of a channel.
#pragma once
#include "normalization/batch_call.cuh"

constexpr unsigned WIDTH = VECTOR_WIDTH;  // elements per vector
using Elements = Vector<ELEMENT, WIDTH>;

__device__ __forceinline__ Elements read_vector(const ELEMENT* from) {
  return *reinterpret_cast<const Elements*>(from);
}

// This is the share of a thread or a block in a channel: its elements and their sums or moments.
struct Share {
  COMPUTE count;
  Total total;
};

// This accumulates the moments of a thread, element by element.
struct ThreadMoments {
  ShiftedSum sum;
  unsigned elements = 0;
  __device__ __forceinline__ void add(ELEMENT value) {
    if (elements++ == 0) sum.begin(value);
    sum.add(value);
  }
  // Chooses the shift before the first vector is added.
  __device__ __forceinline__ void begin(const Elements& vector) {
    if (elements == 0) sum.begin(vector.item[0], vector.item[WIDTH / 2], vector.item[WIDTH - 1]);
  }
  __device__ __forceinline__ void add_begun(const Elements& vector) {
    elements += WIDTH;
    sum.add(vector.item);
  }
  __device__ __forceinline__ void add(const Elements& vector) {
    begin(vector);
    add_begun(vector);
  }
  __device__ __forceinline__ Share share() {
    if (elements == 0) return {};
    return {COMPUTE(elements), sum.moments(COMPUTE(1) / COMPUTE(elements))};
  }
};

// These are the statistics of one channel that a block has computed or read.
struct KnownChannel {
  COMPUTE mean, inverse, factor;  // factor = scale * inverse

  // The factor is the scale alone where mean and inverse are not saved.
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

// This accumulates a thread's sums of dy and of dy times the normalized x.
struct GradientSums {
  KnownChannel known;
  Total total = {};

  // A vector is summed by itself first, which shortens the chain of dependent additions.
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
