/* Find measures algorithms on its own memory and on the program's. They compute gradients, which accumulate. */
#include "common.h"

int main(void) {
  cudnnHandle_t handle;
  cudnnConvolutionDescriptor_t conv;
  cudnnConvolutionBwdFilterAlgoPerf_t of_filter[4];
  cudnnConvolutionBwdDataAlgoPerf_t of_data[4];
  cudnnDataType_t type;
  cudnnTensorFormat_t format;
  int max_filter, max_data, found, k, c, h, w;
  size_t size;
  float one = 1, half = 0.5f;
  CHECK(cudnnCreate(&handle));
  cudnnTensorDescriptor_t x = tensor(2, 3, 6, 5), y = tensor(2, 4, 6, 5);
  cudnnFilterDescriptor_t f = filter(4, 3, 3, 3);
  CHECK(cudnnGetFilter4dDescriptor(f, &type, &format, &k, &c, &h, &w));
  CHECK(cudnnGetFilterSizeInBytes(f, &size));
  printf("filter %d %d %d %d %d %d\n", type == CUDNN_DATA_FLOAT, k, c, h, w, (int)size);
  CHECK(cudnnCreateConvolutionDescriptor(&conv));
  CHECK(cudnnSetConvolution2dDescriptor(conv, 1, 1, 1, 1, 1, 1, CUDNN_CROSS_CORRELATION, CUDNN_DATA_FLOAT));
  CHECK(cudnnGetConvolutionBackwardFilterAlgorithmMaxCount(handle, &max_filter));
  CHECK(cudnnGetConvolutionBackwardDataAlgorithmMaxCount(handle, &max_data));
  if (max_filter > 4) max_filter = 4;
  if (max_data > 4) max_data = 4;
  float *X = filled(180, 1), *DY = filled(240, 2), *W = filled(108, 3), *DW = filled(108, 4), *DX = filled(180, 5);
  CHECK(cudnnFindConvolutionBackwardFilterAlgorithm(handle, x, y, conv, f, max_filter, &found, of_filter));
  void* workspace = malloc(of_filter[0].memory + 1);
  CHECK(cudnnConvolutionBackwardFilter(handle, &half, x, X, y, DY, conv, of_filter[0].algo, workspace,
                                       of_filter[0].memory, &one, f, DW));
  show("filter", DW, 108);
  CHECK(cudnnFindConvolutionBackwardDataAlgorithm(handle, f, y, conv, x, max_data, &found, of_data));
  free(workspace), workspace = malloc(of_data[0].memory + 1);
  CHECK(cudnnConvolutionBackwardData(handle, &one, f, W, y, DY, conv, of_data[0].algo, workspace, of_data[0].memory,
                                     &half, x, DX));
  show("data", DX, 180);
  free(workspace), workspace = malloc(1 << 20);
  float *scratch_w = filled(108, 6), *scratch_x = filled(180, 7);
  CHECK(cudnnFindConvolutionBackwardFilterAlgorithmEx(handle, x, X, y, DY, conv, f, scratch_w, max_filter, &found,
                                                      of_filter, workspace, 1 << 20));
  CHECK(cudnnConvolutionBackwardFilter(handle, &one, x, X, y, DY, conv, of_filter[0].algo, workspace, 1 << 20, &one, f,
                                       DW));
  show("filter again", DW, 108);
  CHECK(cudnnFindConvolutionBackwardDataAlgorithmEx(handle, f, W, y, DY, conv, x, scratch_x, max_data, &found, of_data,
                                                    workspace, 1 << 20));
  CHECK(
      cudnnConvolutionBackwardData(handle, &half, f, W, y, DY, conv, of_data[0].algo, workspace, 1 << 20, &one, x, DX));
  show("data again", DX, 180);
  CHECK(cudnnDestroy(handle));
  return 0;
}
