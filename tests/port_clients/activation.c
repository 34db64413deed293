/* This calls every activation function in both directions, with scaling and in place. The mode is known at run time. */
#include "common.h"

int main(void) {
  cudnnHandle_t handle;
  cudnnActivationDescriptor_t activation;
  cudnnActivationMode_t modes[] = {CUDNN_ACTIVATION_SIGMOID, CUDNN_ACTIVATION_RELU, CUDNN_ACTIVATION_TANH,
                                   CUDNN_ACTIVATION_CLIPPED_RELU, CUDNN_ACTIVATION_ELU};
  cudnnActivationMode_t got;
  cudnnNanPropagation_t nan;
  double coef;
  float one = 1, zero = 0, half = 0.5f, minus = -1.5f;
  CHECK(cudnnCreate(&handle));
  CHECK(cudnnCreateActivationDescriptor(&activation));
  cudnnTensorDescriptor_t x = tensor(2, 3, 4, 2);
  for (int i = 0; i < 5; i++) {
    float *X = filled(48, 1), *Y = filled(48, 2), *DY = filled(48, 3), *DX = filled(48, 4);
    CHECK(cudnnSetActivationDescriptor(activation, modes[i], CUDNN_NOT_PROPAGATE_NAN,
                                       i == 3   ? 0.75
                                       : i == 4 ? 1.25
                                                : 0.0));
    CHECK(cudnnGetActivationDescriptor(activation, &got, &nan, &coef));
    printf("attributes %d %g\n", got == modes[i], coef);
    CHECK(cudnnActivationForward(handle, activation, &half, x, X, &minus, x, Y));
    show("scaled", Y, 48);
    CHECK(cudnnActivationForward(handle, activation, &one, x, X, &zero, x, Y));
    show("forward", Y, 48);
    CHECK(cudnnActivationBackward(handle, activation, &minus, x, Y, x, DY, x, X, &one, x, DX));
    show("accumulated", DX, 48);
    CHECK(cudnnActivationForward(handle, activation, &one, x, X, &zero, x, X));
    show("in place", X, 48);
  }
  CHECK(cudnnDestroyActivationDescriptor(activation));
  CHECK(cudnnDestroy(handle));
  return 0;
}
