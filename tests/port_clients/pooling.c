/* This computes maxima and averages of overlapping windows in both directions. Gradients accumulate. */
#include "common.h"

int main(void) {
  cudnnHandle_t handle;
  cudnnPoolingDescriptor_t pooling;
  cudnnPoolingMode_t modes[] = {CUDNN_POOLING_MAX, CUDNN_POOLING_AVERAGE_COUNT_INCLUDE_PADDING,
                                CUDNN_POOLING_AVERAGE_COUNT_EXCLUDE_PADDING, CUDNN_POOLING_MAX_DETERMINISTIC};
  cudnnPoolingMode_t got;
  cudnnNanPropagation_t nan;
  int n, c, h, w, wh, ww, ph, pw, sh, sw;
  const float one = 1.0f, zero = 0.0f;
  float half = 0.5f, minus = -2;
  CHECK(cudnnCreate(&handle));
  CHECK(cudnnCreatePoolingDescriptor(&pooling));
  cudnnTensorDescriptor_t x = tensor(2, 2, 7, 6);
  for (int i = 0; i < 4; i++) {
    CHECK(cudnnSetPooling2dDescriptor(pooling, modes[i], CUDNN_NOT_PROPAGATE_NAN, 3, 2, 1, 0, 2, 1));
    CHECK(cudnnGetPooling2dDescriptor(pooling, &got, &nan, &wh, &ww, &ph, &pw, &sh, &sw));
    CHECK(cudnnGetPooling2dForwardOutputDim(pooling, x, &n, &c, &h, &w));
    printf("pooling %d %d %d %d %d %d %d %d %d %d\n", wh, ww, ph, pw, sh, sw, n, c, h, w);
    cudnnTensorDescriptor_t y = tensor(n, c, h, w);
    size_t elements = (size_t)n * c * h * w;
    float *X = filled(168, 1), *Y = filled(elements, 2), *DY = filled(elements, 3), *DX = filled(168, 4);
    CHECK(cudnnPoolingForward(handle, pooling, &minus, x, X, &half, y, Y));
    show("scaled", Y, elements);
    CHECK(cudnnPoolingForward(handle, pooling, &one, x, X, &zero, y, Y));
    show("forward", Y, elements);
    CHECK(cudnnPoolingBackward(handle, pooling, &half, y, Y, y, DY, x, X, &one, x, DX));
    show("accumulated", DX, 168);
    CHECK(cudnnPoolingBackward(handle, pooling, &one, y, Y, y, DY, x, X, &zero, x, DX));
    show("backward", DX, 168);
  }
  CHECK(cudnnDestroyPoolingDescriptor(pooling));
  CHECK(cudnnDestroy(handle));
  return 0;
}
