// Vectors of an attention without a projection (7.2.43): the kernel sums vectors in a space over parts, and adds an
// addend.
//
// Outputs without output projection have one part, the concatenation of all heads. The gradients of an input without
// projection have one part per head. Each thread owns 16 bytes of a vector, beside its neighbours; padding becomes
// zeros. Blocks (x, i) compute collection i of a launch. Roofline bound: bytes; each element reads its parts and an
// addend, and is written once.
#include "attention/vectors.cuh"

struct Collection {
  long long source_offset, result_offset;  // bytes
  int parts, size;                         // parts per sum; numbers per part
  int packs;                               // 16-byte vectors of all results
  int is_of_keys;
  FastDivmod packs_of_vector;
  Rows rows;
};
constexpr int COLLECTIONS = 3;  // per launch, at most: the gradients of queries, keys and values
struct CollectArguments {
  const ELEMENT* addend[COLLECTIONS];
  const void* space;
  const void* source[COLLECTIONS];
  void* result[COLLECTIONS];
  Schedule schedule;
  Collection collection[COLLECTIONS];
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

extern "C" __global__ void __launch_bounds__(256) attention_collect(const __grid_constant__ CollectArguments a) {
  griddepcontrol_wait();
  const Collection& own = a.collection[blockIdx.y];
  const unsigned thread = blockIdx.x * blockDim.x + threadIdx.x;
  if (thread >= own.packs) return;
  unsigned pack;
  const Row row = locate(own.rows, own.packs_of_vector.divide(thread, pack));
  const int* lengths = own.is_of_keys ? a.schedule.k_lengths(a.space) : a.schedule.q_lengths(a.space);
  const int c = pack * PACK, count = min(PACK, own.size - c);
  const long long index = static_cast<long long>(row.address) * own.size + c;
  ELEMENT* const result = at_byte<ELEMENT>(a.result[blockIdx.y], own.result_offset) + index;
  COMPUTE sums[PACK] = {};
  if (row.time < lengths[row.sequence]) {
    const ELEMENT* source = at_byte<ELEMENT>(a.source[blockIdx.y], own.source_offset) + (index - c) * own.parts + c;
    for (int part = 0; part < own.parts; part++)
      add_pack(sums, source + static_cast<long long>(part) * own.size, count);
    if (const ELEMENT* addend = a.addend[blockIdx.y]) add_pack(sums, addend + index, count);
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
