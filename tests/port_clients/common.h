/* The clients share this. Device memory is host memory, since the reference serves them. */
#ifndef COMMON_H
#define COMMON_H
#include <cudnn.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#define CHECK(call)                                                     \
  do {                                                                  \
    cudnnStatus_t status_ = (call);                                     \
    if (status_ != CUDNN_STATUS_SUCCESS) {                              \
      printf("status %d at %s:%d\n", (int)status_, __FILE__, __LINE__); \
      exit(1);                                                          \
    }                                                                   \
  } while (0)

/* This fills memory with values between -2 and 2 without symmetry, which differ for each seed. */
static inline float* filled(size_t count, unsigned seed) {
  float* values = (float*)malloc(count * sizeof(float));
  unsigned state = 12345u + 7919u * seed;
  for (size_t i = 0; i < count; i++) {
    state = state * 1664525u + 1013904223u;
    values[i] = (float)(state >> 8) / (float)(1 << 22) - 2.0f;
  }
  return values;
}

static inline void show(const char* name, const float* values, size_t count) {
  double sum = 0, weighted = 0;
  for (size_t i = 0; i < count; i++) sum += values[i], weighted += values[i] * (double)(i % 7 + 1);
  printf("%s %.9g %.9g", name, sum, weighted);
  for (size_t i = 0; i < count && i < 24; i++) printf(" %.9g", values[i]);
  printf("\n");
}

static inline cudnnTensorDescriptor_t tensor(int n, int c, int h, int w) {
  cudnnTensorDescriptor_t descriptor;
  CHECK(cudnnCreateTensorDescriptor(&descriptor));
  CHECK(cudnnSetTensor4dDescriptor(descriptor, CUDNN_TENSOR_NCHW, CUDNN_DATA_FLOAT, n, c, h, w));
  return descriptor;
}

static inline cudnnFilterDescriptor_t filter(int k, int c, int h, int w) {
  cudnnFilterDescriptor_t descriptor;
  CHECK(cudnnCreateFilterDescriptor(&descriptor));
  CHECK(cudnnSetFilter4dDescriptor(descriptor, CUDNN_DATA_FLOAT, CUDNN_TENSOR_NCHW, k, c, h, w));
  return descriptor;
}
#endif
