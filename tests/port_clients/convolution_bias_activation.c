/* This makes the fused call without z, with z, and with y as z. */
#include "common.h"

int main(void) {
  cudnnHandle_t handle;
  cudnnConvolutionDescriptor_t conv;
  cudnnActivationDescriptor_t relu;
  float one = 1, zero = 0, half = 0.5f;
  CHECK(cudnnCreate(&handle));
  cudnnTensorDescriptor_t x = tensor(2, 3, 5, 5), y = tensor(2, 4, 5, 5), b = tensor(1, 4, 1, 1);
  cudnnFilterDescriptor_t f = filter(4, 3, 3, 3);
  CHECK(cudnnCreateConvolutionDescriptor(&conv));
  CHECK(cudnnSetConvolution2dDescriptor(conv, 1, 1, 1, 1, 1, 1, CUDNN_CROSS_CORRELATION, CUDNN_DATA_FLOAT));
  CHECK(cudnnSetConvolutionMathType(conv, CUDNN_FMA_MATH));
  CHECK(cudnnSetConvolutionGroupCount(conv, 1));
  CHECK(cudnnCreateActivationDescriptor(&relu));
  CHECK(cudnnSetActivationDescriptor(relu, CUDNN_ACTIVATION_RELU, CUDNN_NOT_PROPAGATE_NAN, 0.0));
  float *X = filled(150, 1), *W = filled(108, 2), *B = filled(4, 3), *Y = filled(200, 4), *Z = filled(200, 5);
  cudnnConvolutionFwdAlgo_t algo = CUDNN_CONVOLUTION_FWD_ALGO_IMPLICIT_PRECOMP_GEMM;
  CHECK(cudnnConvolutionBiasActivationForward(handle, &one, x, X, f, W, conv, algo, NULL, 0, &zero, y, Y, b, B, relu, y,
                                              Y));
  show("without z", Y, 200);
  CHECK(cudnnConvolutionBiasActivationForward(handle, &half, x, X, f, W, conv, algo, NULL, 0, &half, y, Z, b, B, relu,
                                              y, Y));
  show("with z", Y, 200);
  CHECK(cudnnConvolutionBiasActivationForward(handle, &one, x, X, f, W, conv, algo, NULL, 0, &one, y, Y, b, B, relu, y,
                                              Y));
  show("z is y", Y, 200);
  size_t size;
  CHECK(cudnnGetTensorSizeInBytes(y, &size));
  printf("bytes %d\n", (int)size);
  CHECK(cudnnDestroy(handle));
  return 0;
}
