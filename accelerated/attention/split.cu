// Vectors of float data (7.2.43) as factors of tensor cores (attention/tiles.cuh): the bfloat16 that each element
// begins with, and that of the rest. Both have one sign and are zero together, so that they agree on what an infinity
// of the other factor becomes; that of no number is zero.
//
// A thread per four elements where they are aligned; blocks (x, i) have those of operand i. Roofline bound: bytes, 4
// read and 4 written an element.
#include "attention/vectors.cuh"

constexpr int WIDTH = 4;

struct SplitArguments {
  const void* source[OPERANDS];
  void* result;
  long long source_offset[OPERANDS], result_offset[OPERANDS], lower[OPERANDS];  // bytes; lower: to the lower parts
  int elements[OPERANDS];
};

__device__ __forceinline__ void split(float value, bfloat16& upper, bfloat16& lower) {
  const bool is_number = value == value;
  const float begin = is_number ? __uint_as_float(__float_as_uint(value) & 0xFFFF0000u) : value;
  const float least = is_number && value != 0 ? copysignf(0x1p-126f, value) : 0.0f;
  const float rest = value == begin || !is_number ? least : value - begin;
  upper = store<bfloat16>(begin), lower = store<bfloat16>(rest);
}

extern "C" __global__ void __launch_bounds__(256) attention_split(const __grid_constant__ SplitArguments a) {
  griddepcontrol_wait();
  const int i = blockIdx.y, elements = a.elements[i], first = (blockIdx.x * blockDim.x + threadIdx.x) * WIDTH;
  if (first >= elements) return;
  const float* source = at_byte<float>(a.source[i], a.source_offset[i]) + first;
  bfloat16* result = at_byte<bfloat16>(a.result, a.result_offset[i]) + first;
  bfloat16* lower = at_byte<bfloat16>(a.result, a.result_offset[i] + a.lower[i]) + first;
  if (first + WIDTH <= elements && reinterpret_cast<uintptr_t>(source) % 16 == 0) {
    const auto values = *reinterpret_cast<const Pack<float, WIDTH>*>(source);
    Pack<bfloat16, WIDTH> near, rest;
#pragma unroll
    for (int n = 0; n < WIDTH; n++) split(values.item[n], near.item[n], rest.item[n]);
    *reinterpret_cast<Pack<bfloat16, WIDTH>*>(result) = near;
    *reinterpret_cast<Pack<bfloat16, WIDTH>*>(lower) = rest;
  } else {
    for (int n = 0; n < WIDTH && first + n < elements; n++) split(source[n], result[n], lower[n]);
  }
}
