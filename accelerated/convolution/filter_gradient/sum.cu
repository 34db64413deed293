// This kernel adds the filter gradients of several parts of the images (6.2.2), and blends the sum into dw.
//
// Tiling: eight threads share the parts of one element of dw, and add their sums in a fixed order. Neighbouring threads
// take neighbouring elements.
//
// Roofline bound: bytes; every partial sum is read once, dw written once.
#include "primitives/types.cuh"

struct Arguments {
  const COMPUTE* partial;  // [part][element of dw in the order of its memory]
  ELEMENT* dw;
  COMPUTE alpha, beta;
  int elements, parts;
};

constexpr int THREADS = 256;               // per block
constexpr int LANES = 8;                   // threads that share the parts of a sum
constexpr int ELEMENTS = THREADS / LANES;  // per block

extern "C" __global__ void __launch_bounds__(THREADS) convolution_filter_gradient_sum(const Arguments a) {
  griddepcontrol_wait();
  __shared__ COMPUTE sums[LANES][ELEMENTS];
  const int lane = threadIdx.x / ELEMENTS, i = threadIdx.x % ELEMENTS, element = blockIdx.x * ELEMENTS + i;
  COMPUTE sum = 0;
  if (element < a.elements) {
#pragma unroll 4
    for (int part = lane; part < a.parts; part += LANES)
      sum += a.partial[static_cast<long long>(part) * a.elements + element];
  }
  sums[lane][i] = sum;
  __syncthreads();
  if (lane > 0 || element >= a.elements) return;
#pragma unroll
  for (int other = 1; other < LANES; other++) sum += sums[other][i];
  a.dw[element] = blend<COMPUTE>(a.alpha, sum, a.beta, a.dw + element);
}
