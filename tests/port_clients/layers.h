/* Two files share this header, which has the types of a layer and makes no call. */
#include <cudnn.h>
typedef struct {
  cudnnTensorDescriptor_t x, y;
  cudnnPoolingDescriptor_t pooling;
} pooling_layer;
cudnnStatus_t forward_layer(cudnnHandle_t handle, pooling_layer layer, const float* x, float* y);
