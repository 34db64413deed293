// Vectors of float data (7.2.43) as factors of tensor cores (attention/tiles.cuh): the nearest bfloat16 of each
// element, and that of the rest.
//
// A thread per four elements where they are aligned. Roofline bound: bytes, 4 read and 4 written an element.
#include "attention/vectors.cuh"

struct SplitArguments {
  const void* source;
  void* result;
  long long source_offset, result_offset, lower;  // bytes; lower: from the upper parts to the lower ones
  int elements;
};

__device__ __forceinline__ void split(float value, bfloat16& upper, bfloat16& lower) {
  upper = store<bfloat16>(value);
  const float near = load<float>(upper);
  lower = store<bfloat16>(near - near == 0 ? value - near : 0.0f);
}

extern "C" __global__ void __launch_bounds__(256) attention_split(const SplitArguments a) {
  griddepcontrol_wait();
  constexpr int WIDTH = 4;
  const int first = (blockIdx.x * blockDim.x + threadIdx.x) * WIDTH;
  const float* source = at_byte<float>(a.source, a.source_offset) + first;
  bfloat16* result = at_byte<bfloat16>(a.result, a.result_offset) + first;
  bfloat16* lower = at_byte<bfloat16>(a.result, a.result_offset + a.lower) + first;
  if (first + WIDTH <= a.elements && reinterpret_cast<uintptr_t>(source) % 16 == 0) {
    const auto values = *reinterpret_cast<const Pack<float, WIDTH>*>(source);
    Pack<bfloat16, WIDTH> near, rest;
#pragma unroll
    for (int i = 0; i < WIDTH; i++) split(values.item[i], near.item[i], rest.item[i]);
    *reinterpret_cast<Pack<bfloat16, WIDTH>*>(result) = near;
    *reinterpret_cast<Pack<bfloat16, WIDTH>*>(lower) = rest;
  } else {
    for (int i = 0; i < WIDTH && first + i < a.elements; i++) split(source[i], result[i], lower[i]);
  }
}
