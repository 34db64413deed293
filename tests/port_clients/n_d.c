/* This sets descriptors by arrays and by strides, and copies and scales whole tensors. */
#include "common.h"

int main(void) {
  cudnnHandle_t handle;
  cudnnConvolutionDescriptor_t conv;
  cudnnPoolingDescriptor_t pooling;
  cudnnTensorDescriptor_t x, y;
  cudnnFilterDescriptor_t f;
  const int filters[4] = {3, 2, 3, 3}, ones[2] = {1, 1}, twos[2] = {2, 2}, zeros[2] = {0, 0};
  float one = 1, zero = 0, half = 0.5f, minus = -1;
  int most;
  CHECK(cudnnCreate(&handle));
  CHECK(cudnnCreateTensorDescriptor(&x));
  CHECK(cudnnSetTensor4dDescriptorEx(x, CUDNN_DATA_FLOAT, 2, 2, 4, 6, 48, 24, 6, 1));
  y = tensor(2, 3, 4, 6);
  CHECK(cudnnCreateFilterDescriptor(&f));
  CHECK(cudnnSetFilterNdDescriptor(f, CUDNN_DATA_FLOAT, CUDNN_TENSOR_NCHW, 4, filters));
  CHECK(cudnnCreateConvolutionDescriptor(&conv));
  CHECK(cudnnSetConvolutionNdDescriptor(conv, 2, ones, ones, ones, CUDNN_CROSS_CORRELATION, CUDNN_DATA_FLOAT));
  CHECK(cudnnCreatePoolingDescriptor(&pooling));
  CHECK(cudnnSetPoolingNdDescriptor(pooling, CUDNN_POOLING_MAX, CUDNN_NOT_PROPAGATE_NAN, 2, twos, zeros, twos));
  CHECK(cudnnGetConvolutionForwardAlgorithmMaxCount(handle, &most));
  float *X = filled(96, 1), *W = filled(54, 2), *Y = filled(144, 3), *Z = filled(144, 4), *P = filled(36, 5);
  CHECK(cudnnConvolutionForward(handle, &half, x, X, f, W, conv, CUDNN_CONVOLUTION_FWD_ALGO_IMPLICIT_GEMM, NULL, 0,
                                &one, y, Y));
  show("convolution", Y, 144);
  CHECK(cudnnTransformTensor(handle, &minus, y, Y, &half, y, Z));
  show("blended", Z, 144);
  CHECK(cudnnTransformTensor(handle, &one, y, Y, &zero, y, Z));
  cudnnTensorDescriptor_t p = tensor(2, 3, 2, 3);
  CHECK(cudnnPoolingForward(handle, pooling, &one, y, Z, &zero, p, P));
  show("pooled", P, 36);
  CHECK(cudnnDestroy(handle));
  return most < 1;
}
