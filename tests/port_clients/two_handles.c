/* Find's results belong to a handle. This has two handles, makes one of them again, and sets descriptors anew. */
#include "common.h"

static void run(cudnnHandle_t handle, cudnnTensorDescriptor_t x, int width, const char* name) {
  cudnnConvolutionDescriptor_t conv;
  float one = 1, zero = 0;
  float *X = filled((size_t)3 * width, 1), *W = filled(6, 2), *Y = filled((size_t)2 * width, 3);
  cudnnFilterDescriptor_t f = filter(2, 3, 1, 1);
  cudnnTensorDescriptor_t y = tensor(1, 2, 1, width);
  CHECK(cudnnSetTensor4dDescriptor(x, CUDNN_TENSOR_NCHW, CUDNN_DATA_FLOAT, 1, 3, 1, width));
  CHECK(cudnnCreateConvolutionDescriptor(&conv));
  CHECK(cudnnSetConvolution2dDescriptor(conv, 0, 0, 1, 1, 1, 1, CUDNN_CROSS_CORRELATION, CUDNN_DATA_FLOAT));
  CHECK(cudnnConvolutionForward(handle, &one, x, X, f, W, conv, CUDNN_CONVOLUTION_FWD_ALGO_GEMM, NULL, 0, &zero, y, Y));
  show(name, Y, (size_t)2 * width);
}

int main(void) {
  cudnnHandle_t first, second;
  cudnnTensorDescriptor_t x = tensor(1, 3, 1, 5);
  CHECK(cudnnCreate(&first));
  CHECK(cudnnCreate(&second));
  run(first, x, 5, "first");
  run(second, x, 5, "second");
  run(first, x, 9, "wider");
  CHECK(cudnnDestroy(first));
  CHECK(cudnnCreate(&first));
  run(first, x, 5, "again");
  CHECK(cudnnSetStream(first, 0));
  CHECK(cudnnDestroy(first));
  CHECK(cudnnDestroy(second));
  return 0;
}
