/* This trains batch normalisation, infers with its running statistics, and accumulates gradients. */
#include "common.h"

int main(void) {
  cudnnHandle_t handle;
  cudnnTensorDescriptor_t bn;
  float one = 1, zero = 0, half = 0.5f;
  cudnnBatchNormMode_t modes[] = {CUDNN_BATCHNORM_SPATIAL, CUDNN_BATCHNORM_PER_ACTIVATION};
  CHECK(cudnnCreate(&handle));
  cudnnTensorDescriptor_t x = tensor(6, 3, 2, 2);
  CHECK(cudnnCreateTensorDescriptor(&bn));
  for (int i = 0; i < 2; i++) {
    size_t values = i == 0 ? 3 : 12;
    float *X = filled(72, 1), *Y = filled(72, 2), *S = filled(values, 3), *B = filled(values, 4),
          *M = filled(values, 5), *V = filled(values, 6);
    float *SM = filled(values, 7), *SV = filled(values, 8), *DY = filled(72, 9), *DX = filled(72, 10),
          *DS = filled(values, 11), *DB = filled(values, 12);
    for (size_t j = 0; j < values; j++) V[j] = V[j] * V[j] + 0.5f;
    CHECK(cudnnDeriveBNTensorDescriptor(bn, x, modes[i]));
    CHECK(cudnnBatchNormalizationForwardTraining(handle, modes[i], &one, &zero, x, X, x, Y, bn, S, B, 0.25, M, V, 1e-4,
                                                 SM, SV));
    show("training", Y, 72);
    show("running mean", M, values);
    show("running variance", V, values);
    CHECK(cudnnBatchNormalizationBackward(handle, modes[i], &one, &half, &one, &one, x, X, x, DY, x, DX, bn, S, DS, DB,
                                          1e-4, SM, SV));
    show("data", DX, 72);
    show("scale", DS, values);
    show("bias", DB, values);
    CHECK(cudnnBatchNormalizationForwardInference(handle, modes[i], &half, &one, x, X, x, Y, bn, S, B, M, V, 1e-4));
    show("inference", Y, 72);
  }
  CHECK(cudnnDestroy(handle));
  return 0;
}
