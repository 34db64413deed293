// What the tensor-core kernels of attention's gradients keep of a query and head.
#pragma once
#include "attention/tiles.cuh"

// What the softmax of a query is computed from again: 2 to the power (score * scaler * log2(e) - shift); the product of
// the gradient of what the head makes with it.
struct Kept {
  float shift, product;
};
__device__ __forceinline__ const Kept* kept_of(const Heads& h, const void* work, long long offset, const Sequence& s,
                                               int query, int head) {
  const long long pair = static_cast<long long>(s.q_base + query * h.q_strides.time) * h.heads + head;
  return at_byte<Kept>(work, offset) + pair;
}
