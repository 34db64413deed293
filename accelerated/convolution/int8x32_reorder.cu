// Reorders INT8x32 filters and their bias as convolutions with CUDNN_NO_REORDER read them (5.2.32).
//
// Roofline bound: bytes, each read and written once. Each thread moves four channels. The order changes only within
// 1024 bytes, so that reads and writes both fill full lines of L2.
#include "convolution/problem.cuh"

struct Arguments {
  const int8* filter;
  int8* reordered_filter;
  const float* bias;
  float* reordered_bias;
  FastDivmod words;  // words per filter
  int filters, biased, reorders;
};

extern "C" __global__ void convolution_int8x32_reorder(const Arguments a) {
  griddepcontrol_wait();
  // The grid needs no bounds check: 32 filters of 8 words or more fill blocks completely.
  const unsigned index = blockIdx.x * blockDim.x + threadIdx.x;
  unsigned word;
  const unsigned filter = a.words.divide(index, word);
  const long long offset = a.reorders ? reordered_offset(filter, word, a.filters / 32, 4) : index;
  const int8* from = a.filter + 4LL * index;
  int8* to = a.reordered_filter + 4 * offset;
  if ((reinterpret_cast<uintptr_t>(from) | reinterpret_cast<uintptr_t>(to)) % 4 == 0) {
    *reinterpret_cast<unsigned*>(to) = *reinterpret_cast<const unsigned*>(from);
  } else {
    for (int i = 0; i < 4; i++) to[i] = from[i];
  }
  if (a.biased && word == 0) {
    const Epilogue order{0, 0, 0, 0, a.reorders};
    a.reordered_bias[order.bias_index(filter)] = a.bias[filter];
  }
}
