// This header defines the arguments of batch normalization, its arithmetic per element, and the accumulation of
// moments.
#pragma once
#include "primitives/cluster.cuh"
#include "primitives/cp_async.cuh"
#include "primitives/types.cuh"

#ifndef STREAMS
#define STREAMS 0  // 1 where the data exceed L2: the last reads and the writes are evicted first
#endif

// CALLS says at compile time which calls a kernel serves. Except in generic calls, alpha is 1 and beta is 0.
constexpr int ANY = 0;        // generic
constexpr int ALONE = 1;      // fuses nothing
constexpr int RECTIFIED = 2;  // fuses a ReLU
constexpr int ADDED = 3;      // fuses z and a ReLU
constexpr bool PLAIN = CALLS == ALONE;

// A mask has one byte for each 16 bytes of elements. A byte's lowest bit belongs to its first element.
constexpr unsigned MASK_WIDTH = 16 / sizeof(ELEMENT);
__device__ __forceinline__ bool bit_of_mask(const unsigned char* mask, unsigned offset) {
  return mask[offset / MASK_WIDTH] >> offset % MASK_WIDTH & 1;
}
// Stores the bit of one element atomically, since other threads own its neighbours.
__device__ __forceinline__ void store_bit_of_mask(unsigned char* mask, unsigned offset, bool passes) {
  const size_t byte = reinterpret_cast<size_t>(mask + offset / MASK_WIDTH);
  unsigned* const word = reinterpret_cast<unsigned*>(byte / sizeof(unsigned) * sizeof(unsigned));
  const unsigned bit = 1u << (byte % sizeof(unsigned) * 8 + offset % MASK_WIDTH);
  if (passes) atomicOr(word, bit);
  else atomicAnd(word, ~bit);
}

// These functions write and copy vectors that are not read again.
#if defined(__CUDA_ARCH__) && STREAMS
template <int N> __device__ __forceinline__ void write_once(Vector<ELEMENT, N>* to, const Vector<ELEMENT, N>& vector) {
  if constexpr (sizeof(vector) == 16) __stcs(reinterpret_cast<int4*>(to), reinterpret_cast<const int4&>(vector));
  else *to = vector;
}
template <int N> __device__ __forceinline__ void copy_once(Vector<ELEMENT, N>* to, const Vector<ELEMENT, N>* from) {
  cp_async_evict_first(to, from);
}
#else
template <int N> __device__ __forceinline__ void write_once(Vector<ELEMENT, N>* to, const Vector<ELEMENT, N>& vector) {
  *to = vector;
}
template <int N> __device__ __forceinline__ void copy_once(Vector<ELEMENT, N>* to, const Vector<ELEMENT, N>* from) {
  cp_async<sizeof(*to)>(to, from, true);
}
#endif

// `first` and `second` are two sums, or the moments. For moments, `first` plus `low` is the mean and `second` is the
// sum of squared differences from it.
struct Total {
  COMPUTE first, second, low;
};

// Forward kernels compute (x - mean) * factor + bias for one group.
struct Normalizer {
  COMPUTE mean, factor, bias;
};

struct ForwardCall {
  const ELEMENT* x;
  const ELEMENT* z;  // null without an added operand
  ELEMENT* y;
  const COMPUTE* scale;
  const COMPUTE* bias;
  COMPUTE* running_mean;      // null where absent; the given mean for inference
  COMPUTE* running_variance;  // null where absent; the given variance for inference
  COMPUTE* saved_mean;        // null where not requested
  COMPUTE* saved_inverse;
  unsigned char* mask;  // one bit per element of y: whether the activation passes it; null without z
  COMPUTE* partials;    // scratch memory where several blocks share a group
  COMPUTE alpha, beta, epsilon, factor, unbiased;  // factor weights the moving average; unbiased = m / (m - 1)
  int rectify, propagate;                          // rectify: a ReLU follows; propagate: the ReLU propagates NaN

  __device__ __forceinline__ bool adds() const { return CALLS == ANY ? z != nullptr : CALLS == ADDED; }
  __device__ __forceinline__ bool rectifies() const { return CALLS == ANY ? rectify : CALLS != ALONE; }
  // Returns y for one element. `prior` points to the previous y.
  __device__ __forceinline__ ELEMENT normalized(ELEMENT x, ELEMENT z, const Normalizer& of, const ELEMENT* prior,
                                                bool& passes) const {
    COMPUTE value = (load<COMPUTE>(x) - of.mean) * of.factor + of.bias;
    if (adds()) value += load<COMPUTE>(z);
    passes = value > COMPUTE(0);
    if (rectifies() && !passes && !(propagate && value != value)) value = 0;
    return CALLS == ANY ? blend(alpha, value, beta, prior) : store<ELEMENT>(value);
  }
  // Stores y for one element and its bit of the mask.
  __device__ __forceinline__ void store_element(unsigned offset, ELEMENT x, ELEMENT z, const Normalizer& of) const {
    bool passes;
    y[offset] = normalized(x, z, of, y + offset, passes);
    if (adds()) store_bit_of_mask(mask, offset, passes);
  }
  // Stores y for the vector at this offset. normalizer(i) returns the normalizer of element i.
  template <int N, class Of>
  __device__ __forceinline__ void store_vector(unsigned offset, const Vector<ELEMENT, N>& x,
                                               const Vector<ELEMENT, N>& z, const Of& normalizer) const {
    Vector<ELEMENT, N> result, prior;
    unsigned bits = 0;
    if (CALLS == ANY && beta != COMPUTE(0)) prior = *reinterpret_cast<const Vector<ELEMENT, N>*>(y + offset);
#pragma unroll
    for (int i = 0; i < N; i++) {
      bool passes;
      result.item[i] = normalized(x.item[i], z.item[i], normalizer(i), &prior.item[i], passes);
      bits |= static_cast<unsigned>(passes) << i;
    }
    write_once(reinterpret_cast<Vector<ELEMENT, N>*>(y + offset), result);
    if (N == MASK_WIDTH && adds()) mask[offset / N] = bits;
  }
  // Returns the normalizer of the given statistics.
  __device__ __forceinline__ Normalizer given(unsigned scale_at, unsigned mean_at) const {
    return {running_mean[mean_at], scale[scale_at] * (COMPUTE(1) / sqrt(running_variance[mean_at] + epsilon)),
            bias[scale_at]};
  }
  // Returns 1 / sqrt(variance + epsilon) from the sum of squared differences.
  __device__ __forceinline__ COMPUTE inverse(COMPUTE squares, COMPUTE count) const {
    return COMPUTE(1) / sqrt(squares / count + epsilon);
  }
  // Writes the requested statistics of a group. Callers call it last, so that nothing waits for its reads.
  __device__ __forceinline__ void store_statistics(COMPUTE mean, COMPUTE squares, COMPUTE count, unsigned at) const {
    if (saved_mean) saved_mean[at] = mean, saved_inverse[at] = inverse(squares, count);
    if (running_mean) {
      running_mean[at] = (COMPUTE(1) - factor) * running_mean[at] + factor * mean;
      running_variance[at] = (COMPUTE(1) - factor) * running_variance[at] + factor * (squares / count * unbiased);
    }
  }
};

// The gradient of one group is of_dy * dy + of_x * (x - mean) + constant.
struct GradientOf {
  COMPUTE mean, of_dy, of_x, constant;
  // factor = scale * inverse; `sums` holds the sums of dy and of dy times the normalized x.
  static __device__ __forceinline__ GradientOf from(COMPUTE mean, COMPUTE inverse, COMPUTE factor, const Total& sums,
                                                    COMPUTE count) {
    return {mean, factor, -factor * (sums.second / count) * inverse, -factor * (sums.first / count)};
  }
};

struct BackwardCall {
  const ELEMENT* x;
  const ELEMENT* dy;
  ELEMENT* dz;  // null where not requested
  ELEMENT* dx;
  const COMPUTE* scale;
  const COMPUTE* bias;           // null without an activation, or where its mask undoes it
  const COMPUTE* saved_mean;     // null where the kernel computes mean and inverse from x
  const COMPUTE* saved_inverse;  // 1 / sqrt(variance + epsilon)
  COMPUTE* scale_gradient;
  COMPUTE* bias_gradient;
  const unsigned char* mask;  // one bit per element of dy: whether the activation passed it; null without a mask
  COMPUTE* partials;          // scratch memory where several blocks share a group
  COMPUTE alpha, beta, parameter_alpha, parameter_beta, epsilon;

  __device__ __forceinline__ bool has_mask() const { return CALLS == ANY ? mask != nullptr : CALLS == ADDED; }
  __device__ __forceinline__ bool has_bias() const { return CALLS == ANY ? bias != nullptr : CALLS == RECTIFIED; }
  __device__ __forceinline__ bool wants_dz() const { return CALLS == ANY ? dz != nullptr : CALLS == ADDED; }
  // Returns whether dy counts, from the argument of the activation.
  __device__ __forceinline__ bool counts(ELEMENT x, COMPUTE mean, COMPUTE factor, COMPUTE bias) const {
    return (load<COMPUTE>(x) - mean) * factor + bias > COMPUTE(0);
  }
  __device__ __forceinline__ ELEMENT gradient(ELEMENT x, ELEMENT dy, const GradientOf& of, const ELEMENT* prior) const {
    const COMPUTE of_x = (load<COMPUTE>(x) - of.mean) * of.of_x + of.constant;
    const COMPUTE value = load<COMPUTE>(dy) * of.of_dy + of_x;
    return CALLS == ANY ? blend(alpha, value, beta, prior) : store<ELEMENT>(value);
  }
  template <int N, class Of>
  __device__ __forceinline__ void store_vector(unsigned offset, const Vector<ELEMENT, N>& x,
                                               const Vector<ELEMENT, N>& dy, const Of& group) const {
    Vector<ELEMENT, N> result, prior;
    if (CALLS == ANY && beta != COMPUTE(0)) prior = *reinterpret_cast<const Vector<ELEMENT, N>*>(dx + offset);
#pragma unroll
    for (int i = 0; i < N; i++) result.item[i] = gradient(x.item[i], dy.item[i], group(i), &prior.item[i]);
    write_once(reinterpret_cast<Vector<ELEMENT, N>*>(dx + offset), result);
    if (wants_dz()) write_once(reinterpret_cast<Vector<ELEMENT, N>*>(dz + offset), dy);
  }
  // Stores the gradients of scale and bias. `first` sums dy; `second` sums dy times the normalized x.
  __device__ __forceinline__ void store_parameters(unsigned at, COMPUTE first, COMPUTE second) const {
    scale_gradient[at] = blend(parameter_alpha, second, parameter_beta, scale_gradient + at);
    bias_gradient[at] = blend(parameter_alpha, first, parameter_beta, bias_gradient + at);
  }
};

// Returns a finite origin: infinities and NaN become zero.
__device__ __forceinline__ COMPUTE origin(COMPUTE value) { return value - value == COMPUTE(0) ? value : COMPUTE(0); }
__device__ __forceinline__ COMPUTE origin(const Total& moments) { return origin(moments.first + moments.low); }
// Returns the median of three. With an outlier as the origin, the squares of n differences would be n times too large
// and lose digits by cancellation.
__device__ __forceinline__ COMPUTE median(COMPUTE a, COMPUTE b, COMPUTE c) {
  return fmax(fmin(a, b), fmin(fmax(a, b), c));
}

// This accumulates moments as sums of differences from one of the first elements. Unlike Welford's method, it needs no
// division per element.
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
  // `count` says how many of the three exist.
  __device__ __forceinline__ void begin(ELEMENT first, ELEMENT second, ELEMENT third, unsigned count) {
    if (count > 2) begin(first, second, third);
    else begin(first);
  }
  __device__ __forceinline__ void add(ELEMENT value) {
    const COMPUTE difference = load<COMPUTE>(value) - shift;
    sum += difference;
    squares += difference * difference;
  }
  // A vector is summed by itself first, which shortens the chain of dependent additions.
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
  // reciprocal = 1 / elements; there is at least one element.
  __device__ __forceinline__ Total moments(COMPUTE reciprocal) const {
    const COMPUTE mean = sum * reciprocal, squared = squares - sum * mean;
    return {shift, squared < COMPUTE(0) ? COMPUTE(0) : squared, mean};
  }
};

// These rules merge parts of a group. For moments, they sum weighted differences of the means from one mean, so that
// few digits cancel. No mean is rounded to the size of the data before the end.
struct AddSums {
  static __device__ __forceinline__ void add(Total& total, COMPUTE, COMPUTE, COMPUTE, const Total& part) {
    total.first += part.first;
    total.second += part.second;
  }
  static __device__ __forceinline__ Total finish(const Total& total, COMPUTE, COMPUTE) { return total; }
};
struct MergeMoments {
  // weight = 1 / elements of all parts
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
