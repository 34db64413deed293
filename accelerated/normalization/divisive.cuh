// The boxes of divisive normalization: a window of n positions in every spatial dimension around an element, inside the
// image.
#pragma once
#include "normalization/power.cuh"
#include "primitives/geometry.cuh"

constexpr int AXES = 5;  // images and channels too, of which a window has one; the fastest in memory first

struct Box {
  FastDivmod extent[AXES];
  int stride[AXES];  // of every operand
  int behind[AXES], ahead[AXES];
  unsigned elements;
};

struct DivisiveArguments {
  const ELEMENT* x;
  const ELEMENT* means;  // NULL: zeros
  const ELEMENT* dy;
  ELEMENT* temp;
  ELEMENT* temp2;
  ELEMENT* out;        // y, or dx
  ELEMENT* means_out;  // dMeans; NULL: not wanted
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

// Calls visit(offset) for every element whose offset from the element lies in [-behind, ahead], and inside the image.
// MIRRORED: in
// [-ahead, behind], the elements whose own windows hold the element.
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

// The sums over the window of (x - mean)^2 and of x - mean.
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
