// Converts vectors (7.2.43) to factors of tensor cores (attention/tiles.cuh), padded with zeros to 16 bytes.
//
// Float data become two bfloat16 factors: each element rounded towards zero, and the remainder. The remainder has the
// element's sign, and is zero only where the element is, so that both factors treat an infinity alike. The remainder of
// a NaN is zero. Half data are copied where TMA cannot read them.
//
// Each thread converts four elements; blocks (x, i) convert operand i. Roofline bound: bytes; each element is read
// once; one factor is written, or two for float.
#include "attention/vectors.cuh"

constexpr int WIDTH = 4;

struct SplitArguments {
  const void* source[OPERANDS];
  void* result;
  // bytes; `lower` is the offset of the lower parts
  long long source_offset[OPERANDS], result_offset[OPERANDS], lower[OPERANDS];
  int accesses[OPERANDS], size[OPERANDS];  // vectors of WIDTH factors; elements per vector of one head
  FastDivmod row_accesses[OPERANDS];       // vectors per row, by operand
};

extern "C" __global__ void __launch_bounds__(256) attention_split(const __grid_constant__ SplitArguments a) {
  griddepcontrol_wait();
  const int i = blockIdx.y, access = blockIdx.x * blockDim.x + threadIdx.x;
  if (access >= a.accesses[i]) return;
  unsigned access_of_row;
  const unsigned row = a.row_accesses[i].divide(access, access_of_row);
  const int column = access_of_row * WIDTH, count = a.size[i] - column;
  const ELEMENT* source =
      at_byte<ELEMENT>(a.source[i], a.source_offset[i]) + static_cast<long long>(row) * a.size[i] + column;
  Vector<ELEMENT, WIDTH> values{};
  if (count >= WIDTH && reinterpret_cast<uintptr_t>(source) % sizeof(values) == 0) {
    values = *reinterpret_cast<const Vector<ELEMENT, WIDTH>*>(source);
  } else {
#pragma unroll
    for (int n = 0; n < WIDTH; n++)
      if (n < count) values.item[n] = source[n];
  }
  if (!same_type<ELEMENT, float>) {
    at_byte<Vector<ELEMENT, WIDTH>>(a.result, a.result_offset[i])[access] = values;
    return;
  }
  Vector<bfloat16, WIDTH> upper, lower;
#pragma unroll
  for (int n = 0; n < WIDTH; n++) {
    const float value = load<float>(values.item[n]);
    const bool is_number = value == value;
    const float first = is_number ? __uint_as_float(__float_as_uint(value) & 0xFFFF0000u) : value;
    const float least = is_number && value != 0 ? copysignf(0x1p-126f, value) : 0.0f;
    upper.item[n] = store<bfloat16>(first);
    lower.item[n] = store<bfloat16>(is_number && value != first ? value - first : least);
  }
  at_byte<Vector<bfloat16, WIDTH>>(a.result, a.result_offset[i])[access] = upper;
  at_byte<Vector<bfloat16, WIDTH>>(a.result, a.result_offset[i] + a.lower[i])[access] = lower;
}
