// The sum of the filter gradients of several parts of the images (6.2.2), blended into dw.
//
// Tiling: a thread adds the parts of one element of dw, in their order; neighbouring threads take neighbouring
// elements.
//
// Roofline bound: bytes; every partial sum is read once, dw written once.
#include "primitives/types.cuh"

struct Arguments {
  const COMPUTE* partial;  // [part][element of dw in the order of its memory]
  ELEMENT* dw;
  COMPUTE alpha, beta;
  int elements, parts;
};

extern "C" __global__ void __launch_bounds__(256) convolution_filter_gradient_sum(const Arguments a) {
  griddepcontrol_wait();
  const unsigned element = blockIdx.x * blockDim.x + threadIdx.x;
  if (element >= static_cast<unsigned>(a.elements)) return;
  COMPUTE sum = 0;
#pragma unroll 4
  for (int part = 0; part < a.parts; part++) sum += a.partial[static_cast<long long>(part) * a.elements + element];
  a.dw[element] = blend<COMPUTE>(a.alpha, sum, a.beta, a.dw + element);
}
