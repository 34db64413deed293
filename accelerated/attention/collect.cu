// This file computes the vectors of an attention without a projection (7.2.43): it adds their parts and an addend.
//
// Outputs without output projection have one part, the concatenation of all heads. The gradients of an input without
// projection have one part per head. Each thread owns 16 bytes of a vector, and neighbouring threads own neighbouring
// bytes. Padding becomes zeros. Blocks (x, i) compute collection i of a launch. Roofline bound: bytes; each element
// reads its parts and an addend, and is written once.
#include "attention/vectors.cuh"

struct Collection {
  long long source_offset, result_offset;  // bytes
  int parts, size;                         // parts per sum; elements per part
  int accesses;                            // 16-byte vectors of all results
  int is_of_keys;
  FastDivmod accesses_per_vector;
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

constexpr int ACCESS = 16 / sizeof(ELEMENT);

__device__ __forceinline__ void add_elements(COMPUTE (&sums)[ACCESS], const ELEMENT* from, int count) {
  Vector<ELEMENT, ACCESS> values{};
  if (count == ACCESS && reinterpret_cast<uintptr_t>(from) % 16 == 0) {
    values = *reinterpret_cast<const Vector<ELEMENT, ACCESS>*>(from);
  } else {
#pragma unroll
    for (int i = 0; i < ACCESS; i++)
      if (i < count) values.item[i] = from[i];
  }
#pragma unroll
  for (int i = 0; i < ACCESS; i++) sums[i] += load<COMPUTE>(values.item[i]);
}

extern "C" __global__ void __launch_bounds__(256) attention_collect(const __grid_constant__ CollectArguments a) {
  griddepcontrol_wait();
  const Collection& own = a.collection[blockIdx.y];
  const unsigned thread = blockIdx.x * blockDim.x + threadIdx.x;
  if (thread >= own.accesses) return;
  unsigned access;
  const Row row = locate(own.rows, own.accesses_per_vector.divide(thread, access));
  const int* lengths = own.is_of_keys ? a.schedule.k_lengths(a.space) : a.schedule.q_lengths(a.space);
  const int c = access * ACCESS, count = min(ACCESS, own.size - c);
  const long long index = static_cast<long long>(row.address) * own.size + c;
  ELEMENT* const result = at_byte<ELEMENT>(a.result[blockIdx.y], own.result_offset) + index;
  COMPUTE sums[ACCESS] = {};
  if (row.time < lengths[row.sequence]) {
    const ELEMENT* source = at_byte<ELEMENT>(a.source[blockIdx.y], own.source_offset) + (index - c) * own.parts + c;
    for (int part = 0; part < own.parts; part++)
      add_elements(sums, source + static_cast<long long>(part) * own.size, count);
    if (const ELEMENT* addend = a.addend[blockIdx.y]) add_elements(sums, addend + index, count);
  }
  Vector<ELEMENT, ACCESS> values;
#pragma unroll
  for (int i = 0; i < ACCESS; i++) values.item[i] = store<ELEMENT>(sums[i]);
  if (count == ACCESS && reinterpret_cast<uintptr_t>(result) % 16 == 0) {
    *reinterpret_cast<Vector<ELEMENT, ACCESS>*>(result) = values;
  } else {
#pragma unroll
    for (int i = 0; i < ACCESS; i++)
      if (i < count) result[i] = values.item[i];
  }
}
