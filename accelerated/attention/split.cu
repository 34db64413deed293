// Converts vectors (7.2.43) to factors of tensor cores (attention/tiles.cuh), padded with zeros to 16 bytes.
//
// Float data become two bfloat16 factors: each element rounded towards zero, and the remainder. The remainder has the
// element's sign, and is zero only where the element is, so that both factors treat an infinity alike. The remainder of
// a NaN is zero. Half data are copied where TMA cannot read them.
//
// Each thread converts four elements; blocks (x, i) convert operand i. Roofline bound: bytes; each element is read
// once, and one factor, of float data two, written.
#include "attention/vectors.cuh"

constexpr int WIDTH = 4;

struct SplitArguments {
  const void* source[OPERANDS];
  void* result;
  // bytes; `lower` is the offset of the lower parts
  long long source_offset[OPERANDS], result_offset[OPERANDS], lower[OPERANDS];
  int packs[OPERANDS], size[OPERANDS];  // vectors of WIDTH factors; elements per vector of one head
  FastDivmod row_packs[OPERANDS];       // vectors per row, by operand
};

extern "C" __global__ void __launch_bounds__(256) attention_split(const __grid_constant__ SplitArguments a) {
  griddepcontrol_wait();
  const int i = blockIdx.y, pack = blockIdx.x * blockDim.x + threadIdx.x;
  if (pack >= a.packs[i]) return;
  unsigned pack_of_row;
  const unsigned row = a.row_packs[i].divide(pack, pack_of_row);
  const int column = pack_of_row * WIDTH, count = a.size[i] - column;
  const ELEMENT* source =
      at_byte<ELEMENT>(a.source[i], a.source_offset[i]) + static_cast<long long>(row) * a.size[i] + column;
  Pack<ELEMENT, WIDTH> values{};
  if (count >= WIDTH && reinterpret_cast<uintptr_t>(source) % sizeof(values) == 0) {
    values = *reinterpret_cast<const Pack<ELEMENT, WIDTH>*>(source);
  } else {
#pragma unroll
    for (int n = 0; n < WIDTH; n++)
      if (n < count) values.item[n] = source[n];
  }
  if (!same_type<ELEMENT, float>) {
    at_byte<Pack<ELEMENT, WIDTH>>(a.result, a.result_offset[i])[pack] = values;
    return;
  }
  Pack<bfloat16, WIDTH> upper, lower;
#pragma unroll
  for (int n = 0; n < WIDTH; n++) {
    const float value = load<float>(values.item[n]);
    const bool is_number = value == value;
    const float first = is_number ? __uint_as_float(__float_as_uint(value) & 0xFFFF0000u) : value;
    const float least = is_number && value != 0 ? copysignf(0x1p-126f, value) : 0.0f;
    upper.item[n] = store<bfloat16>(first);
    lower.item[n] = store<bfloat16>(is_number && value != first ? value - first : least);
  }
  at_byte<Pack<bfloat16, WIDTH>>(a.result, a.result_offset[i])[pack] = upper;
  at_byte<Pack<bfloat16, WIDTH>>(a.result, a.result_offset[i] + a.lower[i])[pack] = lower;
}
