/* This computes local response normalisation in both directions, with scaling. */
#include "common.h"

int main(void) {
  cudnnHandle_t handle;
  cudnnLRNDescriptor_t norm;
  unsigned n;
  double alpha, beta, k;
  float one = 1, zero = 0, half = 0.5f;
  CHECK(cudnnCreate(&handle));
  CHECK(cudnnCreateLRNDescriptor(&norm));
  CHECK(cudnnSetLRNDescriptor(norm, 5, 0.25, 0.75, 1.5));
  CHECK(cudnnGetLRNDescriptor(norm, &n, &alpha, &beta, &k));
  printf("parameters %u %g %g %g\n", n, alpha, beta, k);
  cudnnTensorDescriptor_t x = tensor(2, 8, 3, 2);
  float *X = filled(96, 1), *Y = filled(96, 2), *DY = filled(96, 3), *DX = filled(96, 4);
  CHECK(cudnnLRNCrossChannelForward(handle, norm, CUDNN_LRN_CROSS_CHANNEL_DIM1, &half, x, X, &one, x, Y));
  show("scaled", Y, 96);
  CHECK(cudnnLRNCrossChannelForward(handle, norm, CUDNN_LRN_CROSS_CHANNEL_DIM1, &one, x, X, &zero, x, Y));
  show("forward", Y, 96);
  CHECK(
      cudnnLRNCrossChannelBackward(handle, norm, CUDNN_LRN_CROSS_CHANNEL_DIM1, &one, x, Y, x, DY, x, X, &half, x, DX));
  show("backward", DX, 96);
  CHECK(cudnnDestroyLRNDescriptor(norm));
  CHECK(cudnnDestroy(handle));
  return 0;
}
