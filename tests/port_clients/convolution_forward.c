/* This convolution accumulates into live data (alpha 2, beta 1), and asks for the algorithm in between. */
#include "common.h"

int main(void) {
  cudnnHandle_t handle;
  cudnnConvolutionDescriptor_t conv;
  cudnnConvolutionFwdAlgoPerf_t perf[4];
  size_t size = 0;
  int n, c, h, w, count;
  float two = 2, one = 1, zero = 0;
  CHECK(cudnnCreate(&handle));
  cudnnTensorDescriptor_t x = tensor(2, 3, 7, 6);
  cudnnFilterDescriptor_t f = filter(4, 3, 3, 2);
  CHECK(cudnnCreateConvolutionDescriptor(&conv));
  CHECK(cudnnSetConvolution2dDescriptor(conv, 1 /* pad_h */, 0 /* pad_w */, 1, 2, 1, 1, CUDNN_CROSS_CORRELATION,
                                        CUDNN_DATA_FLOAT));
  CHECK(cudnnGetConvolution2dForwardOutputDim(conv, x, f, &n, &c, &h, &w));
  printf("dims %d %d %d %d\n", n, c, h, w);
  cudnnTensorDescriptor_t y = tensor(n, c, h, w);
  size_t elements = (size_t)n * c * h * w;
  float *X = filled(252, 1), *W = filled(72, 2), *Y = filled(elements, 3);
  CHECK(cudnnGetConvolutionForwardAlgorithm_v7(handle, x, f, conv, y, 4, &count, perf));
  CHECK(cudnnGetConvolutionForwardWorkspaceSize(handle, x, f, conv, y, perf[0].algo, &size));
  void* workspace = size ? malloc(size) : NULL;
  CHECK(cudnnConvolutionForward(handle, &two, x, X, f, W, conv, perf[0].algo, workspace, size, &one, y, Y));
  show("accumulated", Y, elements);
  CHECK(cudnnConvolutionForward(handle, &one, x, X, f, W, conv, perf[0].algo, workspace, size, &zero, y, Y));
  show("plain", Y, elements);
  cudnnDestroyConvolutionDescriptor(conv);
  cudnnDestroyFilterDescriptor(f);
  CHECK(cudnnDestroy(handle));
  return 0;
}
