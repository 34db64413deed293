/* This takes ten steps of gradient descent on convolution, bias, ReLU, pooling, a classifier and softmax. */
#include "common.h"

#define BATCH 4

static void descend(float* weights, const float* gradient, size_t count) {
  for (size_t i = 0; i < count; i++) weights[i] -= 0.05f * gradient[i];
}

int main(void) {
  cudnnHandle_t handle;
  cudnnConvolutionDescriptor_t conv, dense;
  cudnnActivationDescriptor_t relu;
  cudnnPoolingDescriptor_t pooling;
  float one = 1, zero = 0;
  CHECK(cudnnCreate(&handle));
  CHECK(cudnnCreateConvolutionDescriptor(&conv));
  CHECK(cudnnSetConvolution2dDescriptor(conv, 1, 1, 1, 1, 1, 1, CUDNN_CROSS_CORRELATION, CUDNN_DATA_FLOAT));
  CHECK(cudnnCreateConvolutionDescriptor(&dense));
  CHECK(cudnnSetConvolution2dDescriptor(dense, 0, 0, 1, 1, 1, 1, CUDNN_CROSS_CORRELATION, CUDNN_DATA_FLOAT));
  CHECK(cudnnCreateActivationDescriptor(&relu));
  CHECK(cudnnSetActivationDescriptor(relu, CUDNN_ACTIVATION_RELU, CUDNN_NOT_PROPAGATE_NAN, 0.0));
  CHECK(cudnnCreatePoolingDescriptor(&pooling));
  CHECK(cudnnSetPooling2dDescriptor(pooling, CUDNN_POOLING_AVERAGE_COUNT_EXCLUDE_PADDING, CUDNN_NOT_PROPAGATE_NAN, 2, 2,
                                    0, 0, 2, 2));
  cudnnTensorDescriptor_t x = tensor(BATCH, 2, 6, 6), y = tensor(BATCH, 3, 6, 6), p = tensor(BATCH, 3, 3, 3),
                          s = tensor(BATCH, 5, 1, 1);
  cudnnTensorDescriptor_t b = tensor(1, 3, 1, 1);
  cudnnFilterDescriptor_t w = filter(3, 2, 3, 3), v = filter(5, 3, 3, 3);
  float *X = filled(BATCH * 72, 1), *W = filled(54, 2), *B = filled(3, 3), *V = filled(135, 4),
        *Y = filled(BATCH * 108, 5);
  float *P = filled(BATCH * 27, 6), *S = filled(BATCH * 5, 7), *DS = filled(BATCH * 5, 8), *DV = filled(135, 9),
        *DP = filled(BATCH * 27, 10);
  float *DY = filled(BATCH * 108, 11), *DW = filled(54, 12), *DB = filled(3, 13);
  for (int step = 0; step < 10; step++) {
    double loss = 0;
    CHECK(
        cudnnConvolutionForward(handle, &one, x, X, w, W, conv, CUDNN_CONVOLUTION_FWD_ALGO_GEMM, NULL, 0, &zero, y, Y));
    CHECK(cudnnAddTensor(handle, &one, b, B, &one, y, Y));
    CHECK(cudnnActivationForward(handle, relu, &one, y, Y, &zero, y, Y));
    CHECK(cudnnPoolingForward(handle, pooling, &one, y, Y, &zero, p, P));
    CHECK(cudnnConvolutionForward(handle, &one, p, P, v, V, dense, CUDNN_CONVOLUTION_FWD_ALGO_GEMM, NULL, 0, &zero, s,
                                  S));
    CHECK(cudnnSoftmaxForward(handle, CUDNN_SOFTMAX_ACCURATE, CUDNN_SOFTMAX_MODE_INSTANCE, &one, s, S, &zero, s, S));
    for (int i = 0; i < BATCH * 5; i++) DS[i] = S[i] / BATCH;
    for (int i = 0; i < BATCH; i++) loss -= log(S[5 * i + i % 5]), DS[5 * i + i % 5] -= 1.0f / BATCH;
    printf("loss %.9g\n", loss);
    CHECK(cudnnConvolutionBackwardFilter(handle, &one, p, P, s, DS, dense, CUDNN_CONVOLUTION_BWD_FILTER_ALGO_1, NULL, 0,
                                         &zero, v, DV));
    CHECK(cudnnConvolutionBackwardData(handle, &one, v, V, s, DS, dense, CUDNN_CONVOLUTION_BWD_DATA_ALGO_1, NULL, 0,
                                       &zero, p, DP));
    CHECK(cudnnPoolingBackward(handle, pooling, &one, p, P, p, DP, y, Y, &zero, y, DY));
    CHECK(cudnnActivationBackward(handle, relu, &one, y, Y, y, DY, y, Y, &zero, y, DY));
    CHECK(cudnnConvolutionBackwardFilter(handle, &one, x, X, y, DY, conv, CUDNN_CONVOLUTION_BWD_FILTER_ALGO_1, NULL, 0,
                                         &zero, w, DW));
    CHECK(cudnnConvolutionBackwardBias(handle, &one, y, DY, &zero, b, DB));
    descend(W, DW, 54), descend(B, DB, 3), descend(V, DV, 135);
  }
  show("filter", W, 54);
  show("classifier", V, 135);
  CHECK(cudnnDestroy(handle));
  return 0;
}
