/* Two layers of convolution, bias, activation and pooling, a classifier and softmax run for two batch sizes. */
#include "common.h"

typedef struct {
  cudnnFilterDescriptor_t w;
  cudnnConvolutionDescriptor_t conv;
  cudnnTensorDescriptor_t b, y;
  float *W, *B, *Y;
  int dims[4];
} layer;

static void convolve(cudnnHandle_t handle, cudnnTensorDescriptor_t x, const float* X, int inputs, int outputs, int size,
                     int pad, layer* l) {
  float one = 1, zero = 0;
  cudnnConvolutionFwdAlgoPerf_t perf;
  int count;
  size_t bytes;
  l->w = filter(outputs, inputs, size, size);
  l->b = tensor(1, outputs, 1, 1);
  CHECK(cudnnCreateConvolutionDescriptor(&l->conv));
  CHECK(cudnnSetConvolution2dDescriptor(l->conv, pad, pad, 1, 1, 1, 1, CUDNN_CROSS_CORRELATION, CUDNN_DATA_FLOAT));
  CHECK(cudnnGetConvolution2dForwardOutputDim(l->conv, x, l->w, l->dims, l->dims + 1, l->dims + 2, l->dims + 3));
  l->y = tensor(l->dims[0], l->dims[1], l->dims[2], l->dims[3]);
  l->W = filled((size_t)outputs * inputs * size * size, 5), l->B = filled(outputs, 6);
  l->Y = filled((size_t)l->dims[0] * l->dims[1] * l->dims[2] * l->dims[3], 7);
  CHECK(cudnnGetConvolutionForwardAlgorithm_v7(handle, x, l->w, l->conv, l->y, 1, &count, &perf));
  CHECK(cudnnGetConvolutionForwardWorkspaceSize(handle, x, l->w, l->conv, l->y, perf.algo, &bytes));
  CHECK(cudnnConvolutionForward(handle, &one, x, X, l->w, l->W, l->conv, perf.algo, bytes ? malloc(bytes) : 0, bytes,
                                &zero, l->y, l->Y));
  CHECK(cudnnAddTensor(handle, &one, l->b, l->B, &one, l->y, l->Y));
}

int main(void) {
  cudnnHandle_t handle;
  cudnnActivationDescriptor_t tanh_;
  cudnnPoolingDescriptor_t pooling;
  const float one = 1.0f, zero = 0.0f;
  CHECK(cudnnCreate(&handle));
  CHECK(cudnnCreateActivationDescriptor(&tanh_));
  CHECK(cudnnSetActivationDescriptor(tanh_, CUDNN_ACTIVATION_TANH, CUDNN_NOT_PROPAGATE_NAN, 0.0));
  CHECK(cudnnCreatePoolingDescriptor(&pooling));
  CHECK(cudnnSetPooling2dDescriptor(pooling, CUDNN_POOLING_MAX, CUDNN_NOT_PROPAGATE_NAN, 2, 2, 0, 0, 2, 2));
  for (int batch = 1; batch <= 3; batch += 2) {
    cudnnTensorDescriptor_t x = tensor(batch, 1, 12, 12), p;
    float *X = filled((size_t)batch * 144, 1), *P = filled((size_t)batch * 144, 2);
    layer first, second;
    convolve(handle, x, X, 1, 4, 3, 1, &first);
    CHECK(cudnnActivationForward(handle, tanh_, &one, first.y, first.Y, &zero, first.y, first.Y));
    p = tensor(batch, 4, 6, 6);
    CHECK(cudnnPoolingForward(handle, pooling, &one, first.y, first.Y, &zero, p, P));
    convolve(handle, p, P, 4, 10, 6, 0, &second);
    show("scores", second.Y, (size_t)batch * 10);
    CHECK(cudnnSoftmaxForward(handle, CUDNN_SOFTMAX_ACCURATE, CUDNN_SOFTMAX_MODE_INSTANCE, &one, second.y, second.Y,
                              &zero, second.y, second.Y));
    show("probabilities", second.Y, (size_t)batch * 10);
  }
  CHECK(cudnnDestroy(handle));
  return 0;
}
