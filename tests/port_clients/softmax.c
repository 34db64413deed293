/* This computes softmax in both modes, by two algorithms, in both directions, in place and accumulating. */
#include "common.h"

int main(void) {
  cudnnHandle_t handle;
  cudnnSoftmaxMode_t modes[] = {CUDNN_SOFTMAX_MODE_INSTANCE, CUDNN_SOFTMAX_MODE_CHANNEL};
  float one = 1, zero = 0, half = 0.5f;
  CHECK(cudnnCreate(&handle));
  cudnnTensorDescriptor_t x = tensor(3, 5, 2, 3);
  for (int i = 0; i < 2; i++) {
    float *X = filled(90, 1), *Y = filled(90, 2), *DY = filled(90, 3), *DX = filled(90, 4);
    CHECK(cudnnSoftmaxForward(handle, CUDNN_SOFTMAX_ACCURATE, modes[i], &half, x, X, &half, x, Y));
    show("scaled", Y, 90);
    CHECK(cudnnSoftmaxForward(handle, CUDNN_SOFTMAX_FAST, modes[i], &one, x, X, &zero, x, Y));
    show("forward", Y, 90);
    CHECK(cudnnSoftmaxBackward(handle, CUDNN_SOFTMAX_ACCURATE, modes[i], &one, x, Y, x, DY, &half, x, DX));
    show("accumulated", DX, 90);
    CHECK(cudnnSoftmaxForward(handle, CUDNN_SOFTMAX_ACCURATE, CUDNN_SOFTMAX_MODE_CHANNEL, &one, x, X, &zero, x, X));
    show("in place", X, 90);
  }
  /* MIOpen's own call has no factors, so only these calls show that it cannot replace cuDNN's. */
  float *X = filled(90, 5), *Y = filled(90, 6), *DY = filled(90, 7), *DX = filled(90, 8);
  CHECK(cudnnSoftmaxForward(handle, CUDNN_SOFTMAX_ACCURATE, CUDNN_SOFTMAX_MODE_CHANNEL, &half, x, X, &zero, x, Y));
  show("halved", Y, 90);
  CHECK(cudnnSoftmaxBackward(handle, CUDNN_SOFTMAX_ACCURATE, CUDNN_SOFTMAX_MODE_CHANNEL, &one, x, Y, x, DY, &one, x, DX));
  show("accumulated over channels", DX, 90);
  CHECK(cudnnDestroy(handle));
  return 0;
}
