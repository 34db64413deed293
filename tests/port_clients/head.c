/* This trains without filters. The gradient of softmax goes back through tanh and pooling to the input, which descends.
 */
#include "common.h"

int main(void) {
  cudnnHandle_t handle;
  cudnnActivationDescriptor_t tanh_;
  cudnnPoolingDescriptor_t pooling;
  float one = 1, zero = 0, rate = -0.5f;
  CHECK(cudnnCreate(&handle));
  CHECK(cudnnCreateActivationDescriptor(&tanh_));
  CHECK(cudnnSetActivationDescriptor(tanh_, CUDNN_ACTIVATION_TANH, CUDNN_NOT_PROPAGATE_NAN, 0.0));
  CHECK(cudnnCreatePoolingDescriptor(&pooling));
  CHECK(cudnnSetPooling2dDescriptor(pooling, CUDNN_POOLING_MAX, CUDNN_NOT_PROPAGATE_NAN, 3, 3, 1, 1, 2, 2));
  cudnnTensorDescriptor_t x = tensor(2, 6, 5, 5), y = tensor(2, 6, 3, 3);
  float *X = filled(300, 1), *T = filled(300, 2), *P = filled(108, 3), *S = filled(108, 4), *DS = filled(108, 5),
        *DP = filled(108, 6), *DT = filled(300, 7), *DX = filled(300, 8);
  for (int step = 0; step < 5; step++) {
    CHECK(cudnnActivationForward(handle, tanh_, &one, x, X, &zero, x, T));
    CHECK(cudnnPoolingForward(handle, pooling, &one, x, T, &zero, y, P));
    CHECK(cudnnSoftmaxForward(handle, CUDNN_SOFTMAX_ACCURATE, CUDNN_SOFTMAX_MODE_CHANNEL, &one, y, P, &zero, y, S));
    CHECK(cudnnSoftmaxBackward(handle, CUDNN_SOFTMAX_ACCURATE, CUDNN_SOFTMAX_MODE_CHANNEL, &one, y, S, y, DS, &zero, y,
                               DP));
    CHECK(cudnnPoolingBackward(handle, pooling, &one, y, P, y, DP, x, T, &zero, x, DT));
    CHECK(cudnnActivationBackward(handle, tanh_, &one, x, T, x, DT, x, X, &zero, x, DX));
    CHECK(cudnnAddTensor(handle, &rate, x, DX, &one, x, X)); /* X = X - 0.5 * gradient */
    show("descended", X, 300);
  }
  CHECK(cudnnDestroy(handle));
  return 0;
}
