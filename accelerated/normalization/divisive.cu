// This file computes divisive normalization (3.2.33, 4.1.6) with generic strides. Forward allows y to alias x. Each
// thread owns one element, and the fastest dimension comes first.
//
// Forward uses one kernel if y does not alias x. Else one kernel writes s^-beta into temp and another multiplies x by
// it. Backward uses two kernels. The first writes dMeans and q = dy * x * s^(-beta - 1) into temp. The second sums q
// over the windows that contain an element. temp holds numbers of the compute type. For 16-bit tensors temp holds the
// upper half of each number and temp2 the lower half.
//
// The roofline bound is bytes. Forward reads x and means and writes y once. Backward reads x, dy and means, writes dx
// and dMeans, and moves temp twice. A window of n positions per spatial dimension takes n^d loads from L1 per element,
// which limit from n = 5 on.
#include "normalization/power.cuh"
#include "primitives/geometry.cuh"

constexpr int AXES =
    5;  // Axes are ordered from the fastest in memory. Images and channels count too, with a window of one.

struct Box {
  FastDivmod extent[AXES];
  int stride[AXES];  // stride per operand, in elements
  int behind[AXES], ahead[AXES];
  unsigned elements;
};

struct DivisiveArguments {
  const ELEMENT* x;
  const ELEMENT* means;  // null means zeros
  const ELEMENT* dy;
  ELEMENT* temp;
  ELEMENT* temp2;
  ELEMENT* out;        // y, or dx
  ELEMENT* means_out;  // dMeans; null where not requested
  COMPUTE alpha, beta;
  Power power;
  COMPUTE gradient;  // 2 * alpha * beta / n^d
  Box box;
};

struct Element {
  int at[AXES];
  int offset;
};

__device__ __forceinline__ Element locate(const Box& box, unsigned index) {
  Element element;
  element.offset = 0;
#pragma unroll
  for (int d = 0; d < AXES; d++) {
    unsigned position;
    index = box.extent[d].divide(index, position);
    element.at[d] = position;
    element.offset += static_cast<int>(position) * box.stride[d];
  }
  return element;
}

// Calls visit(offset) for every element of the image within [-behind, ahead] of the element. If MIRRORED, the range is
// [-ahead, behind]: the elements whose windows contain this element.
template <bool MIRRORED, class Visit>
__device__ __forceinline__ void visit_window(const Box& box, const Element& element, Visit visit) {
  int first[AXES], last[AXES];
#pragma unroll
  for (int d = 0; d < AXES; d++) {
    const int back = MIRRORED ? box.ahead[d] : box.behind[d], forth = MIRRORED ? box.behind[d] : box.ahead[d];
    first[d] = max(-back, -element.at[d]);
    last[d] = min(forth, static_cast<int>(box.extent[d].divisor) - 1 - element.at[d]);
  }
  for (int e = first[4]; e <= last[4]; e++)
    for (int d = first[3]; d <= last[3]; d++)
      for (int c = first[2]; c <= last[2]; c++)
        for (int b = first[1]; b <= last[1]; b++) {
          const int row =
              element.offset + e * box.stride[4] + d * box.stride[3] + c * box.stride[2] + b * box.stride[1];
          for (int a = first[0]; a <= last[0]; a++) visit(row + a * box.stride[0]);
        }
}

__device__ __forceinline__ COMPUTE read_mean(const ELEMENT* means, int offset) {
  return means ? load<COMPUTE>(means[offset]) : COMPUTE(0);
}

// These are the window's sums of (x - mean)^2 and of x - mean.
struct Sums {
  COMPUTE squares = 0, differences = 0;
  __device__ __forceinline__ void add(COMPUTE difference) {
    squares += difference * difference;
    differences += difference;
  }
};

__device__ __forceinline__ Sums sums_around(const DivisiveArguments& a, const Element& element, COMPUTE mean) {
  Sums sums;
  visit_window<false>(a.box, element, [&](int offset) { sums.add(load<COMPUTE>(a.x[offset]) - mean); });
  return sums;
}

__device__ __forceinline__ void store_word(const DivisiveArguments& a, int offset, COMPUTE value) {
  if constexpr (sizeof(ELEMENT) == sizeof(COMPUTE)) {
    reinterpret_cast<COMPUTE*>(a.temp)[offset] = value;
  } else {
    const unsigned bits = __float_as_uint(value);
    reinterpret_cast<unsigned short*>(a.temp)[offset] = bits >> 16;
    reinterpret_cast<unsigned short*>(a.temp2)[offset] = bits & 0xffff;
  }
}
__device__ __forceinline__ COMPUTE load_word(const DivisiveArguments& a, int offset) {
  if constexpr (sizeof(ELEMENT) == sizeof(COMPUTE)) {
    return reinterpret_cast<const COMPUTE*>(a.temp)[offset];
  } else {
    const unsigned upper = reinterpret_cast<const unsigned short*>(a.temp)[offset];
    return __uint_as_float(upper << 16 | reinterpret_cast<const unsigned short*>(a.temp2)[offset]);
  }
}

// Runs body(element) for this thread's element.
template <class Body> __device__ __forceinline__ void for_element(const DivisiveArguments& a, Body body) {
  const unsigned index = blockIdx.x * blockDim.x + threadIdx.x;
  if (index >= a.box.elements) return;
  const Element element = locate(a.box, index);
  griddepcontrol_wait_before_access(a.x + element.offset);
  body(element);
}

extern "C" __global__ void __launch_bounds__(THREADS) normalization_divisive_forward(const DivisiveArguments a) {
  griddepcontrol_wait_deferred();
  for_element(a, [&](const Element& element) {
    const Sums sums = sums_around(a, element, read_mean(a.means, element.offset));
    const COMPUTE y = load<COMPUTE>(a.x[element.offset]) * a.power(a.power.base(sums.squares));
    a.out[element.offset] = blend(a.alpha, y, a.beta, a.out + element.offset);
  });
}

extern "C" __global__ void __launch_bounds__(THREADS) normalization_divisive_factor(const DivisiveArguments a) {
  griddepcontrol_wait_deferred();
  for_element(a, [&](const Element& element) {
    const Sums sums = sums_around(a, element, read_mean(a.means, element.offset));
    store_word(a, element.offset, a.power(a.power.base(sums.squares)));
  });
}

extern "C" __global__ void __launch_bounds__(THREADS) normalization_divisive_scale(const DivisiveArguments a) {
  griddepcontrol_wait_deferred();
  for_element(a, [&](const Element& element) {
    const COMPUTE y = load<COMPUTE>(a.x[element.offset]) * load_word(a, element.offset);
    a.out[element.offset] = blend(a.alpha, y, a.beta, a.out + element.offset);
  });
}

extern "C" __global__ void __launch_bounds__(THREADS) normalization_divisive_terms(const DivisiveArguments a) {
  griddepcontrol_wait_deferred();
  for_element(a, [&](const Element& element) {
    const int offset = element.offset;
    const Sums sums = sums_around(a, element, read_mean(a.means, offset));
    const COMPUTE s = a.power.base(sums.squares);
    const COMPUTE term = load<COMPUTE>(a.dy[offset]) * a.power(s) * load<COMPUTE>(a.x[offset]) * Power::inverse(s);
    store_word(a, offset, term);
    if (a.means_out)
      a.means_out[offset] = blend(a.alpha, a.gradient * term * sums.differences, a.beta, a.means_out + offset);
  });
}

extern "C" __global__ void __launch_bounds__(THREADS) normalization_divisive_backward(const DivisiveArguments a) {
  griddepcontrol_wait_deferred();
  for_element(a, [&](const Element& element) {
    const Sums sums = sums_around(a, element, read_mean(a.means, element.offset));
    const COMPUTE x = load<COMPUTE>(a.x[element.offset]);
    const COMPUTE direct = load<COMPUTE>(a.dy[element.offset]) * a.power(a.power.base(sums.squares));
    COMPUTE gathered = 0;
    visit_window<true>(a.box, element,
                       [&](int offset) { gathered += load_word(a, offset) * (x - read_mean(a.means, offset)); });
    a.out[element.offset] = blend(a.alpha, direct - a.gradient * gathered, a.beta, a.out + element.offset);
  });
}
