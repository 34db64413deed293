// Vectors of an attention without a projection (7.2.43): sums over parts, and an addend, of vectors in a space.
//
// The outputs without output projection have one part, the concatenation of all heads; gradients of an input without
// projection have one for each head. A thread per pack of 16 bytes, neighbours along a vector; padding is zeros.
// Roofline bound: bytes, parts elements and an addend read, an element written.
#include "attention/vectors.cuh"

struct CollectArguments {
  const ELEMENT* addend;
  const void* space;
  const void* source;
  void* result;
  long long source_offset, result_offset;  // bytes
  int parts, size;                         // numbers of a part
  int packs;                               // of all vectors
  int is_of_keys;
  FastDivmod packs_of_vector;
  Schedule schedule;
  Rows rows;
};

constexpr int PACK = 16 / sizeof(ELEMENT);

__device__ __forceinline__ void add_pack(COMPUTE (&sums)[PACK], const ELEMENT* from, int count) {
  Pack<ELEMENT, PACK> values{};
  if (count == PACK && reinterpret_cast<uintptr_t>(from) % 16 == 0) {
    values = *reinterpret_cast<const Pack<ELEMENT, PACK>*>(from);
  } else {
#pragma unroll
    for (int i = 0; i < PACK; i++)
      if (i < count) values.item[i] = from[i];
  }
#pragma unroll
  for (int i = 0; i < PACK; i++) sums[i] += load<COMPUTE>(values.item[i]);
}

extern "C" __global__ void __launch_bounds__(256) attention_collect(const CollectArguments a) {
  griddepcontrol_wait();
  const unsigned thread = blockIdx.x * blockDim.x + threadIdx.x;
  if (thread >= a.packs) return;
  unsigned pack;
  const Row row = locate(a.rows, a.packs_of_vector.divide(thread, pack));
  const int* lengths = a.is_of_keys ? a.schedule.k_lengths(a.space) : a.schedule.q_lengths(a.space);
  const int c = pack * PACK, count = min(PACK, a.size - c);
  const long long index = static_cast<long long>(row.address) * a.size + c;
  ELEMENT* const result = at_byte<ELEMENT>(a.result, a.result_offset) + index;
  COMPUTE sums[PACK] = {};
  if (row.time < lengths[row.sequence]) {
    const ELEMENT* source = at_byte<ELEMENT>(a.source, a.source_offset) + (index - c) * a.parts + c;
    for (int part = 0; part < a.parts; part++) add_pack(sums, source + static_cast<long long>(part) * a.size, count);
    if (a.addend) add_pack(sums, a.addend + index, count);
  }
  Pack<ELEMENT, PACK> values;
#pragma unroll
  for (int i = 0; i < PACK; i++) values.item[i] = store<ELEMENT>(sums[i]);
  if (count == PACK && reinterpret_cast<uintptr_t>(result) % 16 == 0) {
    *reinterpret_cast<Pack<ELEMENT, PACK>*>(result) = values;
  } else {
#pragma unroll
    for (int i = 0; i < PACK; i++)
      if (i < count) result[i] = values.item[i];
  }
}
