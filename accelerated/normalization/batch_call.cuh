// The calls of batch normalization as all kernels see them, what they compute of an element, and moments.
#pragma once
#include "primitives/cluster.cuh"
#include "primitives/cp_async.cuh"
#include "primitives/types.cuh"

#ifndef STREAMS
#define STREAMS \
  0  // whether more is moved than L2 keeps: what is written, and what is read the last time, leaves it first
#endif

// CALLS, what is known of a call when it is compiled: nothing; that alpha is 1 and beta 0, and nothing is fused, a
// ReLU, z and a ReLU.
constexpr int ANY = 0, ALONE = 1, RECTIFIED = 2, ADDED = 3;
constexpr bool PLAIN = CALLS == ALONE;

// A mask has a byte for each 16 bytes of elements, with a bit for each of these, the lowest one first.
constexpr unsigned MASK_WIDTH = 16 / sizeof(ELEMENT);
__device__ __forceinline__ bool bit_of_mask(const unsigned char* mask, unsigned offset) {
  return mask[offset / MASK_WIDTH] >> offset % MASK_WIDTH & 1;
}
// Of one element, whose neighbours other threads have.
__device__ __forceinline__ void store_bit_of_mask(unsigned char* mask, unsigned offset, bool passes) {
  const size_t byte = reinterpret_cast<size_t>(mask + offset / MASK_WIDTH);
  unsigned* const word = reinterpret_cast<unsigned*>(byte / sizeof(unsigned) * sizeof(unsigned));
  const unsigned bit = 1u << (byte % sizeof(unsigned) * 8 + offset % MASK_WIDTH);
  if (passes) atomicOr(word, bit);
  else atomicAnd(word, ~bit);
}

// Reads and writes of packs that no one reads again.
#if defined(__CUDA_ARCH__) && STREAMS
template <int N> __device__ __forceinline__ void write_once(Pack<ELEMENT, N>* to, const Pack<ELEMENT, N>& pack) {
  if constexpr (sizeof(pack) == 16) __stcs(reinterpret_cast<int4*>(to), reinterpret_cast<const int4&>(pack));
  else *to = pack;
}
template <int N> __device__ __forceinline__ Pack<ELEMENT, N> read_once(const Pack<ELEMENT, N>* from) {
  if constexpr (sizeof(*from) != 16) return *from;
  const int4 bits = __ldcs(reinterpret_cast<const int4*>(from));
  return reinterpret_cast<const Pack<ELEMENT, N>&>(bits);
}
template <int N> __device__ __forceinline__ void copy_once(Pack<ELEMENT, N>* to, const Pack<ELEMENT, N>* from) {
  cp_async_evict_first(to, from);
}
#else
template <int N> __device__ __forceinline__ void write_once(Pack<ELEMENT, N>* to, const Pack<ELEMENT, N>& pack) {
  *to = pack;
}
template <int N> __device__ __forceinline__ Pack<ELEMENT, N> read_once(const Pack<ELEMENT, N>* from) { return *from; }
template <int N> __device__ __forceinline__ void copy_once(Pack<ELEMENT, N>* to, const Pack<ELEMENT, N>* from) {
  cp_async<sizeof(*to)>(to, from, true);
}
#endif

// Two sums, or moments: the mean, of which `low` is added to `first`, and the sum of squared differences from it.
struct Total {
  COMPUTE first, second, low;
};

// The statistics of one group as the forward kernels apply them: (x - mean) * factor + bias.
struct Normalizer {
  COMPUTE mean, factor, bias;
};

struct ForwardCall {
  const ELEMENT* x;
  const ELEMENT* z;  // null where nothing is added
  ELEMENT* y;
  const COMPUTE* scale;
  const COMPUTE* bias;
  COMPUTE* running_mean;      // null where there are none; inference: the given mean
  COMPUTE* running_variance;  // and variance
  COMPUTE* saved_mean;        // null where they are not wanted
  COMPUTE* saved_inverse;
  unsigned char* mask;  // where something is added: of every element of y, whether the activation passes it
  COMPUTE* partials;    // scratch memory of launches that divide a group among blocks
  COMPUTE alpha, beta, epsilon, factor, unbiased;  // factor: of the moving average; unbiased: m / (m - 1)
  int rectify, propagate;                          // a ReLU follows; it propagates NaN

  __device__ __forceinline__ bool adds() const { return CALLS == ANY ? z != nullptr : CALLS == ADDED; }
  __device__ __forceinline__ bool rectifies() const { return CALLS == ANY ? rectify : CALLS != ALONE; }
  // y of an element. prior: what y was.
  __device__ __forceinline__ ELEMENT normalized(ELEMENT x, ELEMENT z, const Normalizer& of, const ELEMENT* prior,
                                                bool& passes) const {
    COMPUTE value = (load<COMPUTE>(x) - of.mean) * of.factor + of.bias;
    if (adds()) value += load<COMPUTE>(z);
    passes = value > COMPUTE(0);
    if (rectifies() && !passes && !(propagate && value != value)) value = 0;
    return CALLS == ANY ? blend(alpha, value, beta, prior) : store<ELEMENT>(value);
  }
  // y of an element, and its bit of the mask.
  __device__ __forceinline__ void store_element(unsigned offset, ELEMENT x, ELEMENT z, const Normalizer& of) const {
    bool passes;
    y[offset] = normalized(x, z, of, y + offset, passes);
    if (adds()) store_bit_of_mask(mask, offset, passes);
  }
  // y of a pack at this offset; normalizer(i): that of its element i.
  template <int N, class Of>
  __device__ __forceinline__ void store_pack(unsigned offset, const Pack<ELEMENT, N>& x, const Pack<ELEMENT, N>& z,
                                             const Of& normalizer) const {
    Pack<ELEMENT, N> result, prior;
    unsigned bits = 0;
    if (CALLS == ANY && beta != COMPUTE(0)) prior = *reinterpret_cast<const Pack<ELEMENT, N>*>(y + offset);
#pragma unroll
    for (int i = 0; i < N; i++) {
      bool passes;
      result.item[i] = normalized(x.item[i], z.item[i], normalizer(i), &prior.item[i], passes);
      bits |= static_cast<unsigned>(passes) << i;
    }
    write_once(reinterpret_cast<Pack<ELEMENT, N>*>(y + offset), result);
    if (N == MASK_WIDTH && adds()) mask[offset / N] = bits;
  }
  // The statistics that are given, at index `at`.
  __device__ __forceinline__ Normalizer given(unsigned scale_at, unsigned mean_at) const {
    return {running_mean[mean_at], scale[scale_at] * (COMPUTE(1) / sqrt(running_variance[mean_at] + epsilon)),
            bias[scale_at]};
  }
  // 1 / sqrt(variance + epsilon) from the sum of squared differences.
  __device__ __forceinline__ COMPUTE inverse(COMPUTE squares, COMPUTE count) const {
    return COMPUTE(1) / sqrt(squares / count + epsilon);
  }
  // Writes what the call wants to know of a group. To be called last: nothing waits for what it reads.
  __device__ __forceinline__ void store_statistics(COMPUTE mean, COMPUTE squares, COMPUTE count, unsigned at) const {
    if (saved_mean) saved_mean[at] = mean, saved_inverse[at] = inverse(squares, count);
    if (running_mean) {
      running_mean[at] = (COMPUTE(1) - factor) * running_mean[at] + factor * mean;
      running_variance[at] = (COMPUTE(1) - factor) * running_variance[at] + factor * (squares / count * unbiased);
    }
  }
};

// The gradient of one group: of_dy * dy + of_x * (x - mean) + constant.
struct GradientOf {
  COMPUTE mean, of_dy, of_x, constant;
  // factor: scale * inverse; sums: of dy and of dy * n
  static __device__ __forceinline__ GradientOf from(COMPUTE mean, COMPUTE inverse, COMPUTE factor, const Total& sums,
                                                    COMPUTE count) {
    return {mean, factor, -factor * (sums.second / count) * inverse, -factor * (sums.first / count)};
  }
};

struct BackwardCall {
  const ELEMENT* x;
  const ELEMENT* dy;
  ELEMENT* dz;  // null where it is not wanted
  ELEMENT* dx;
  const COMPUTE* scale;
  const COMPUTE* bias;           // null where no activation is undone, or by its mask
  const COMPUTE* saved_mean;     // null where the mean and inverse are those of x
  const COMPUTE* saved_inverse;  // 1 / sqrt(variance + epsilon)
  COMPUTE* scale_gradient;
  COMPUTE* bias_gradient;
  const unsigned char* mask;  // null where there is none; of every element of dy, whether it counts
  COMPUTE* partials;          // scratch memory of launches that divide a group among blocks
  COMPUTE alpha, beta, parameter_alpha, parameter_beta, epsilon;

  __device__ __forceinline__ bool has_mask() const { return CALLS == ANY ? mask != nullptr : CALLS == ADDED; }
  __device__ __forceinline__ bool has_bias() const { return CALLS == ANY ? bias != nullptr : CALLS == RECTIFIED; }
  __device__ __forceinline__ bool wants_dz() const { return CALLS == ANY ? dz != nullptr : CALLS == ADDED; }
  // Whether dy counts, where the activation is undone by its argument.
  __device__ __forceinline__ bool counts(ELEMENT x, COMPUTE mean, COMPUTE factor, COMPUTE bias) const {
    return (load<COMPUTE>(x) - mean) * factor + bias > COMPUTE(0);
  }
  __device__ __forceinline__ ELEMENT gradient(ELEMENT x, ELEMENT dy, const GradientOf& of, const ELEMENT* prior) const {
    const COMPUTE of_x = (load<COMPUTE>(x) - of.mean) * of.of_x + of.constant;
    const COMPUTE value = load<COMPUTE>(dy) * of.of_dy + of_x;
    return CALLS == ANY ? blend(alpha, value, beta, prior) : store<ELEMENT>(value);
  }
  template <int N, class Of>
  __device__ __forceinline__ void store_pack(unsigned offset, const Pack<ELEMENT, N>& x, const Pack<ELEMENT, N>& dy,
                                             const Of& group) const {
    Pack<ELEMENT, N> result, prior;
    if (CALLS == ANY && beta != COMPUTE(0)) prior = *reinterpret_cast<const Pack<ELEMENT, N>*>(dx + offset);
#pragma unroll
    for (int i = 0; i < N; i++) result.item[i] = gradient(x.item[i], dy.item[i], group(i), &prior.item[i]);
    write_once(reinterpret_cast<Pack<ELEMENT, N>*>(dx + offset), result);
    if (wants_dz()) write_once(reinterpret_cast<Pack<ELEMENT, N>*>(dz + offset), dy);
  }
  // The gradients of scale and bias from the sums of dy and of dy * n.
  __device__ __forceinline__ void store_parameters(unsigned at, COMPUTE first, COMPUTE second) const {
    scale_gradient[at] = blend(parameter_alpha, second, parameter_beta, scale_gradient + at);
    bias_gradient[at] = blend(parameter_alpha, first, parameter_beta, bias_gradient + at);
  }
};

// Infinities and NaN are no origin of differences.
__device__ __forceinline__ COMPUTE origin(COMPUTE value) { return value - value == COMPUTE(0) ? value : COMPUTE(0); }
__device__ __forceinline__ COMPUTE origin(const Total& moments) { return origin(moments.first + moments.low); }
// The median of three: squares of the differences of n numbers from the one that is far from all others are n times as
// large as those from their mean, which is what is left of them.
__device__ __forceinline__ COMPUTE median(COMPUTE a, COMPUTE b, COMPUTE c) {
  return fmax(fmin(a, b), fmin(fmax(a, b), c));
}

// The moments (mean, sum of squared differences from it) of the elements of a thread, as sums of differences from one
// of the first: Welford's without a division each.
struct ShiftedSum {
  COMPUTE shift, sum, squares;
  __device__ __forceinline__ void begin(ELEMENT value) {
    shift = origin(load<COMPUTE>(value));
    sum = squares = 0;
  }
  __device__ __forceinline__ void begin(ELEMENT first, ELEMENT second, ELEMENT third) {
    begin(first);
    shift = median(shift, origin(load<COMPUTE>(second)), origin(load<COMPUTE>(third)));
  }
  // count: how many there are of the first three.
  __device__ __forceinline__ void begin(ELEMENT first, ELEMENT second, ELEMENT third, unsigned count) {
    if (count > 2) begin(first, second, third);
    else begin(first);
  }
  __device__ __forceinline__ void add(ELEMENT value) {
    const COMPUTE difference = load<COMPUTE>(value) - shift;
    sum += difference;
    squares += difference * difference;
  }
  // Those of a pack are added up by themselves first, so that few additions wait for each other.
  template <unsigned N> __device__ __forceinline__ void add(const ELEMENT (&values)[N]) {
    COMPUTE first = 0, second = 0;
#pragma unroll
    for (unsigned k = 0; k < N; k++) {
      const COMPUTE difference = load<COMPUTE>(values[k]) - shift;
      first += difference;
      second += difference * difference;
    }
    sum += first, squares += second;
  }
  // reciprocal: one divided by the number of elements, which are some.
  __device__ __forceinline__ Total moments(COMPUTE reciprocal) const {
    const COMPUTE mean = sum * reciprocal, squared = squares - sum * mean;
    return {shift, squared < COMPUTE(0) ? COMPUTE(0) : squared, mean};
  }
};

// How parts of a group become one. Moments: sums of the differences of their means from one of them, each with the
// weight of its elements, so that little cancels; no mean is rounded to the size of the data before the end.
struct AddSums {
  static __device__ __forceinline__ void add(Total& total, COMPUTE, COMPUTE, COMPUTE, const Total& part) {
    total.first += part.first;
    total.second += part.second;
  }
  static __device__ __forceinline__ Total finish(const Total& total, COMPUTE, COMPUTE) { return total; }
};
struct MergeMoments {
  // weight: 1 / the elements of all parts
  static __device__ __forceinline__ void add(Total& total, COMPUTE from, COMPUTE weight, COMPUTE count,
                                             const Total& part) {
    const COMPUTE difference = part.first - from + part.low;
    total.first += count * weight * difference;
    total.second += part.second + count * difference * difference;
  }
  static __device__ __forceinline__ Total finish(const Total& total, COMPUTE from, COMPUTE count) {
    const COMPUTE squares = total.second - count * total.first * total.first;
    return {from, squares < COMPUTE(0) ? COMPUTE(0) : squares, total.first};
  }
};
