/* This computes gradients of filter, input and bias. Filter and bias gradients accumulate over two batches. */
#include "common.h"

int main(void) {
  cudnnHandle_t handle;
  cudnnConvolutionDescriptor_t conv;
  cudnnConvolutionBwdFilterAlgoPerf_t of_filter;
  cudnnConvolutionBwdDataAlgoPerf_t of_data;
  size_t filter_size, data_size;
  int n, c, h, w, count;
  float one = 1, zero = 0, half = 0.5f;
  CHECK(cudnnCreate(&handle));
  cudnnTensorDescriptor_t x = tensor(2, 3, 7, 6), b = tensor(1, 4, 1, 1);
  cudnnFilterDescriptor_t f = filter(4, 3, 3, 2);
  CHECK(cudnnCreateConvolutionDescriptor(&conv));
  CHECK(cudnnSetConvolution2dDescriptor(conv, 1, 0, 2, 1, 1, 1, CUDNN_CROSS_CORRELATION, CUDNN_DATA_FLOAT));
  CHECK(cudnnGetConvolution2dForwardOutputDim(conv, x, f, &n, &c, &h, &w));
  cudnnTensorDescriptor_t y = tensor(n, c, h, w);
  size_t elements = (size_t)n * c * h * w;
  CHECK(cudnnGetConvolutionBackwardFilterAlgorithm_v7(handle, x, y, conv, f, 1, &count, &of_filter));
  CHECK(cudnnGetConvolutionBackwardDataAlgorithm_v7(handle, f, y, conv, x, 1, &count, &of_data));
  CHECK(cudnnGetConvolutionBackwardFilterWorkspaceSize(handle, x, y, conv, f, of_filter.algo, &filter_size));
  CHECK(cudnnGetConvolutionBackwardDataWorkspaceSize(handle, f, y, conv, x, of_data.algo, &data_size));
  void* workspace = malloc(1 + (filter_size > data_size ? filter_size : data_size));
  float *W = filled(72, 2), *DW = filled(72, 3), *DB = filled(4, 4), *DX = filled(252, 5);
  for (unsigned batch = 0; batch < 2; batch++) {
    float *X = filled(252, 6 + batch), *DY = filled(elements, 8 + batch);
    CHECK(cudnnConvolutionBackwardFilter(handle, &half, x, X, y, DY, conv, of_filter.algo, workspace, filter_size, &one,
                                         f, DW));
    show("filter", DW, 72);
    CHECK(cudnnConvolutionBackwardBias(handle, &one, y, DY, &one, b, DB));
    show("bias", DB, 4);
    CHECK(cudnnConvolutionBackwardData(handle, &one, f, W, y, DY, conv, of_data.algo, workspace, data_size, &zero, x,
                                       DX));
    show("data", DX, 252);
  }
  CHECK(cudnnDestroy(handle));
  return 0;
}
