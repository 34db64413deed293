// Vectors of an attention without a projection (7.2.43): sums over parts, and an addend, of vectors in a space.
//
// The outputs without output projection have one part, the concatenation of all heads; gradients of an input without
// projection have one for each head. A thread per element, neighbours along a vector; padding is zeros.
// Roofline bound: bytes, parts elements and an addend read, an element written.
#include "attention/vectors.cuh"

struct CollectArguments {
  const ELEMENT* addend;
  const void* space;
  const void* source;
  void* result;
  long long source_offset, result_offset;  // bytes
  int parts, size;                         // numbers of a part
  int elements;                            // of all vectors
  int is_of_keys;
  FastDivmod vector;  // size
  Schedule schedule;
  Rows rows;
};

extern "C" __global__ void __launch_bounds__(256) attention_collect(const CollectArguments a) {
  griddepcontrol_wait();
  const unsigned thread = blockIdx.x * blockDim.x + threadIdx.x;
  if (thread >= a.elements) return;
  unsigned c;
  const Row row = locate(a.rows, a.vector.divide(thread, c));
  const int* lengths = a.is_of_keys ? a.schedule.k_lengths(a.space) : a.schedule.q_lengths(a.space);
  const long long index = static_cast<long long>(row.address) * a.size + c;
  COMPUTE sum = 0;
  if (row.time < lengths[row.sequence]) {
    const ELEMENT* source =
        at_byte<ELEMENT>(a.source, a.source_offset) + static_cast<long long>(row.address) * a.parts * a.size + c;
    for (int part = 0; part < a.parts; part++) sum += load<COMPUTE>(source[static_cast<long long>(part) * a.size]);
    if (a.addend) sum += load<COMPUTE>(a.addend[index]);
  }
  at_byte<ELEMENT>(a.result, a.result_offset)[index] = store<ELEMENT>(sum);
}
