/* This does tensor arithmetic: a broadcast bias with and without the old values, products, minima, constants. */
#include "common.h"

int main(void) {
  cudnnHandle_t handle;
  cudnnTensorFormat_t format = CUDNN_TENSOR_NCHW; /* known at run time */
  cudnnDataType_t type;
  cudnnOpTensorDescriptor_t op;
  cudnnOpTensorOp_t which;
  cudnnNanPropagation_t nan;
  int n, c, h, w, ns, cs, hs, ws;
  float one = 1, zero = 0, half = 0.5f, minus = -2, value = 3.25f;
  CHECK(cudnnCreate(&handle));
  cudnnTensorDescriptor_t a = tensor(1, 5, 1, 1), y = tensor(2, 5, 3, 4), b;
  CHECK(cudnnCreateTensorDescriptor(&b));
  CHECK(cudnnSetTensor4dDescriptor(b, format, CUDNN_DATA_FLOAT, 2, 5, 3, 4));
  CHECK(cudnnGetTensor4dDescriptor(b, &type, &n, &c, &h, &w, &ns, &cs, &hs, &ws));
  printf("dims %d %d %d %d %d %d %d %d %d\n", type == CUDNN_DATA_FLOAT, n, c, h, w, ns, cs, hs, ws);
  float *A = filled(5, 1), *Y = filled(120, 2), *B = filled(120, 3);
  CHECK(cudnnAddTensor(handle, &minus, a, A, &half, y, Y));
  show("added", Y, 120);
  for (int i = 0; i < 120; i++) Y[i] = NAN;
  CHECK(cudnnAddTensor(handle, &one, a, A, &zero, y, Y)); /* beta 0 does not read Y */
  show("broadcast", Y, 120);
  CHECK(cudnnCreateOpTensorDescriptor(&op));
  CHECK(cudnnSetOpTensorDescriptor(op, CUDNN_OP_TENSOR_MUL, CUDNN_DATA_FLOAT, CUDNN_NOT_PROPAGATE_NAN));
  CHECK(cudnnOpTensor(handle, op, &minus, b, B, &one, a, A, &half, y, Y));
  show("product", Y, 120);
  CHECK(cudnnSetOpTensorDescriptor(op, CUDNN_OP_TENSOR_MIN, CUDNN_DATA_FLOAT, CUDNN_NOT_PROPAGATE_NAN));
  CHECK(cudnnGetOpTensorDescriptor(op, &which, &type, &nan));
  printf("operation %d\n", which == CUDNN_OP_TENSOR_MIN);
  CHECK(cudnnOpTensor(handle, op, &one, b, B, &half, y, Y, &zero, b, B));
  show("minimum", B, 120);
  CHECK(cudnnScaleTensor(handle, b, B, &minus));
  show("scaled", B, 120);
  CHECK(cudnnSetTensor(handle, b, B, &value));
  show("constant", B, 120);
  CHECK(cudnnDestroyOpTensorDescriptor(op));
  CHECK(cudnnDestroyTensorDescriptor(a));
  CHECK(cudnnDestroy(handle));
  return 0;
}
