/* Forward and backward calls are in different files. The port must match them across files. */
#include "common.h"
#include "layers.h"

int main(void) {
  cudnnHandle_t handle;
  pooling_layer layer;
  float one = 1, zero = 0;
  CHECK(cudnnCreate(&handle));
  layer.x = tensor(1, 2, 6, 6), layer.y = tensor(1, 2, 3, 3);
  CHECK(cudnnCreatePoolingDescriptor(&layer.pooling));
  CHECK(cudnnSetPooling2dDescriptor(layer.pooling, CUDNN_POOLING_MAX, CUDNN_NOT_PROPAGATE_NAN, 2, 2, 0, 0, 2, 2));
  float *X = filled(72, 1), *Y = filled(18, 2), *DY = filled(18, 3), *DX = filled(72, 4);
  CHECK(forward_layer(handle, layer, X, Y));
  show("forward", Y, 18);
  CHECK(cudnnPoolingBackward(handle, layer.pooling, &one, layer.y, Y, layer.y, DY, layer.x, X, &zero, layer.x, DX));
  show("backward", DX, 72);
  CHECK(cudnnDestroy(handle));
  return 0;
}
