/* This calls Find with and without its own memory, an algorithm that MIOpen lacks, and calls by pointer and macro.
 */
#include "common.h"

typedef cudnnStatus_t (*forward_t)(cudnnHandle_t, const void*, const cudnnTensorDescriptor_t, const void*,
                                   const cudnnFilterDescriptor_t, const void*, const cudnnConvolutionDescriptor_t,
                                   cudnnConvolutionFwdAlgo_t, void*, size_t, const void*, const cudnnTensorDescriptor_t,
                                   void*);
#define SAME_SIZE(DESC, PAD) \
  cudnnSetConvolution2dDescriptor(DESC, PAD, PAD, 1, 1, 1, 1, CUDNN_CROSS_CORRELATION, CUDNN_DATA_FLOAT)

int main(void) {
  cudnnHandle_t handle;
  cudnnConvolutionDescriptor_t conv;
  cudnnConvolutionFwdAlgoPerf_t found[8], on_data[8];
  cudnnConvolutionMode_t mode;
  cudnnDataType_t type;
  forward_t forward = cudnnConvolutionForward;
  int count, counted, ph, pw, u, v, dh, dw;
  const float one = 1.0f, zero = 0.0f;
  float minus = -1;
  CHECK(cudnnCreate(&handle));
  cudnnTensorDescriptor_t x = tensor(1, 4, 8, 8), y = tensor(1, 6, 8, 8);
  cudnnFilterDescriptor_t f = filter(6, 4, 3, 3);
  CHECK(cudnnCreateConvolutionDescriptor(&conv));
  CHECK(SAME_SIZE(conv, 1));
  CHECK(cudnnGetConvolution2dDescriptor(conv, &ph, &pw, &u, &v, &dh, &dw, &mode, &type));
  printf("convolution %d %d %d %d %d %d %d %d\n", ph, pw, u, v, dh, dw, mode == CUDNN_CROSS_CORRELATION,
         type == CUDNN_DATA_FLOAT);
  float *X = filled(256, 1), *W = filled(216, 2), *Y = filled(384, 3);
  CHECK(cudnnFindConvolutionForwardAlgorithm(handle, x, f, conv, y, 8, &count, found));
  printf("found %d %d %d\n", count > 0, found[0].status == CUDNN_STATUS_SUCCESS, found[0].time >= 0);
  CHECK(cudnnConvolutionForward(handle, &minus, x, X, f, W, conv, found[0].algo, NULL, 0, &one, y, Y));
  show("fastest", Y, 384); /* Find must not have touched Y */
  CHECK(cudnnFindConvolutionForwardAlgorithmEx(handle, x, X, f, W, conv, y, filled(384, 9), 8, &counted, on_data, NULL,
                                               0));
  printf("found on data %d\n", counted > 0);
  CHECK(
      forward(handle, &one, x, X, f, W, conv, CUDNN_CONVOLUTION_FWD_ALGO_IMPLICIT_PRECOMP_GEMM, NULL, 0, &zero, y, Y));
  show("fixed", Y, 384);
  CHECK(cudnnDestroy(handle));
  return 0;
}
