/* What the programs share: memory of the device, and an end with a message where something is wrong. */
#include <cudnn.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#ifndef __CUDA_RUNTIME_API_H__ /* cudnn.h includes CUDA's header where the compiler finds it */
int cudaMalloc(void**, size_t), cudaFree(void*), cudaMemcpy(void*, const void*, size_t, int);
enum { cudaMemcpyHostToDevice = 1, cudaMemcpyDeviceToHost = 2 };
#endif

#define CHECK(call)                                                                  \
  do {                                                                               \
    int status_ = (int)(call);                                                       \
    if (status_) {                                                                   \
      fprintf(stderr, "%s:%d: %s answers %d\n", __FILE__, __LINE__, #call, status_); \
      exit(1);                                                                       \
    }                                                                                \
  } while (0)
#define EXPECT(condition)                                                     \
  do {                                                                        \
    if (!(condition)) {                                                       \
      fprintf(stderr, "%s:%d: not so: %s\n", __FILE__, __LINE__, #condition); \
      exit(1);                                                                \
    }                                                                         \
  } while (0)

/* Memory of the device; with a copy of what lies at from, if that is not NULL. */
static inline void* device(const void* from, size_t bytes) {
  void* memory;
  CHECK(cudaMalloc(&memory, bytes ? bytes : 1));
  if (from) CHECK(cudaMemcpy(memory, from, bytes, cudaMemcpyHostToDevice));
  return memory;
}

static inline void fetch(void* to, const void* from, size_t bytes) {
  CHECK(cudaMemcpy(to, from, bytes, cudaMemcpyDeviceToHost));
}

/* Numbers between -1 and 1, the same in every run. */
static inline void draw(float* values, int count) {
  static unsigned state = 2003;
  for (int i = 0; i < count; i++) values[i] = (float)((state = state * 1664525u + 1013904223u) >> 8) / 8388608.0f - 1;
}

static inline int near(double value, double expected, double tolerance) {
  return fabs(value - expected) <= tolerance * (1 + fabs(expected));
}
