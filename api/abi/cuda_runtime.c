/* libcudart.so.11.0 and .12 of a machine without a GPU, on cuda_driver.c: the runtime's names, kinds of copies and last error. Programs
   that nvcc compiled load and register their kernels; a launch answers cudaErrorNotSupported. */
#include <stddef.h>
#include <stdio.h>
#include <string.h>

typedef unsigned long long address;
int cuDriverGetVersion(int *), cuDeviceGetName(char *, int, int), cuDeviceGetAttribute(int *, int, int), cuDeviceTotalMem_v2(size_t *, int);
int cuMemAlloc_v2(address *, size_t), cuMemFree_v2(address), cuMemHostAlloc(void **, size_t, unsigned), cuMemFreeHost(void *);
int cuMemGetInfo_v2(size_t *, size_t *), cuMemcpyHtoDAsync_v2(address, const void *, size_t, void *);
int cuMemcpyDtoHAsync_v2(void *, address, size_t, void *), cuMemcpyDtoDAsync_v2(address, address, size_t, void *);
int cuMemsetD8Async(address, unsigned char, size_t, void *), cuStreamCreate(void **, unsigned), cuStreamDestroy_v2(void *);
int cuStreamSynchronize(void *), cuStreamWaitEvent(void *, void *, unsigned), cuEventCreate(void **, unsigned), cuEventDestroy_v2(void *);
int cuEventRecord(void *, void *), cuEventSynchronize(void *), cuEventElapsedTime(float *, void *, void *);
int cuStreamIsCapturing(void *, int *), dualdnn_missing(const char *, int *), dualdnn_memory_kind(const void *);

enum { SUCCESS = 0, INVALID_VALUE = 1, INVALID_DIRECTION = 21, NOT_SUPPORTED = 801 };
static __thread int last;
static int noted(int error) { if (error) last = error; return error; }  /* the driver's numbers are the runtime's from CUDA 10.1 on */

int cudaGetLastError(void) { int found = last; last = SUCCESS; return found; }
int cudaPeekAtLastError(void) { return last; }
static const struct { int number; const char *name, *text; } errors[] = {
  {0, "cudaSuccess", "no error"}, {1, "cudaErrorInvalidValue", "invalid argument"}, {2, "cudaErrorMemoryAllocation", "out of memory"},
  {21, "cudaErrorInvalidMemcpyDirection", "invalid copy direction for memcpy"}, {101, "cudaErrorInvalidDevice", "invalid device ordinal"},
  {400, "cudaErrorInvalidResourceHandle", "invalid resource handle"}, {801, "cudaErrorNotSupported", "operation not supported"}};
const char *cudaGetErrorName(int number) {
  for (size_t i = 0; i < sizeof errors / sizeof *errors; i++) if (errors[i].number == number) return errors[i].name;
  return "unrecognized error code";
}
const char *cudaGetErrorString(int number) {
  for (size_t i = 0; i < sizeof errors / sizeof *errors; i++) if (errors[i].number == number) return errors[i].text;
  return "unrecognized error code";
}

int cudaRuntimeGetVersion(int *version) { return version ? (*version = RUNTIME_VERSION, SUCCESS) : noted(INVALID_VALUE); }
int cudaDriverGetVersion(int *version) { return noted(cuDriverGetVersion(version)); }
int cudaGetDeviceCount(int *count) { return count ? (*count = 1, SUCCESS) : noted(INVALID_VALUE); }
int cudaGetDevice(int *device) { return device ? (*device = 0, SUCCESS) : noted(INVALID_VALUE); }
int cudaSetDevice(int device) { return noted(device ? 101 : SUCCESS); }
int cudaSetDeviceFlags(unsigned flags) { (void)flags; return SUCCESS; }
int cudaDeviceSynchronize(void) { return SUCCESS; }
int cudaDeviceReset(void) { return SUCCESS; }
int cudaDeviceGetAttribute(int *value, int attribute, int device) { return noted(cuDeviceGetAttribute(value, attribute, device)); }
int cudaDeviceGetStreamPriorityRange(int *least, int *greatest) {
  if (least) *least = 0;
  if (greatest) *greatest = 0;
  return SUCCESS;
}
/* The fields that CUDA 11 and 12 have in one place; those behind them are left as they are, for their number is not the same. */
struct properties {
  char name[256], uuid[16], luid[8]; unsigned mask; size_t memory, shared; int registers, warp; size_t pitch; int threads, block[3], grid[3], clock;
  size_t constant; int major, minor; size_t texture, texture_pitch; int overlap, multiprocessors;
};
static int properties_of(struct properties *p, int device) {
  if (!p) return noted(INVALID_VALUE);
  if (device) return noted(101);
  memset(p, 0, sizeof *p);
  cuDeviceGetName(p->name, sizeof p->name, 0);
  cuDeviceTotalMem_v2(&p->memory, 0);
  const struct { int attribute, *field; } fields[] = {{12, &p->registers}, {10, &p->warp}, {1, &p->threads}, {2, p->block}, {3, p->block + 1},
    {4, p->block + 2}, {5, p->grid}, {6, p->grid + 1}, {7, p->grid + 2}, {13, &p->clock}, {75, &p->major}, {76, &p->minor}, {16, &p->multiprocessors}};
  for (size_t i = 0; i < sizeof fields / sizeof *fields; i++) cuDeviceGetAttribute(fields[i].field, fields[i].attribute, 0);
  p->shared = 49152; p->constant = 65536; p->texture = 512; p->pitch = 2147483647;
  return SUCCESS;
}
int cudaGetDeviceProperties(struct properties *p, int device) { return properties_of(p, device); }
int cudaGetDeviceProperties_v2(struct properties *p, int device) { return properties_of(p, device); }

int cudaMalloc(void **result, size_t size) {
  address made = 0;
  if (!result) return noted(INVALID_VALUE);
  int status = size ? cuMemAlloc_v2(&made, size) : SUCCESS;
  *result = (void *)made;
  return noted(status);
}
int cudaMallocAsync(void **result, size_t size, void *stream) {
  int status = cuStreamSynchronize(stream);
  return status ? noted(status) : cudaMalloc(result, size);
}
int cudaFree(void *freed) { return noted(cuMemFree_v2((address)freed)); }
int cudaFreeAsync(void *freed, void *stream) {
  int status = cuStreamSynchronize(stream);
  return status ? noted(status) : cudaFree(freed);
}
int cudaHostAlloc(void **result, size_t size, unsigned flags) { return noted(cuMemHostAlloc(result, size, flags)); }
int cudaMallocHost(void **result, size_t size) { return noted(cuMemHostAlloc(result, size, 0)); }
int cudaFreeHost(void *freed) { return freed ? noted(cuMemFreeHost(freed)) : SUCCESS; }
int cudaMemGetInfo(size_t *unused, size_t *all) { return noted(cuMemGetInfo_v2(unused, all)); }
struct attributes { int type, device; void *of_device, *of_host; };
int cudaPointerGetAttributes(struct attributes *a, const void *pointer) {
  if (!a) return noted(INVALID_VALUE);
  int kind = dualdnn_memory_kind(pointer);
  *a = (struct attributes){kind == 1 ? 2 : kind == 2 ? 1 : 0, 0, kind ? (void *)pointer : 0, kind == 2 ? (void *)pointer : 0};
  return SUCCESS;
}

int cudaMemcpyAsync(void *to, const void *from, size_t size, int kind, void *stream) {
  if (kind == 4) kind = 2 * (dualdnn_memory_kind(from) == 1) + (dualdnn_memory_kind(to) == 1);  /* cudaMemcpyDefault */
  switch (kind) {
    case 0:
      if (size && (!to || !from)) return noted(INVALID_VALUE);
      memmove(to, from, size);
      return noted(cuStreamSynchronize(stream));
    case 1: return noted(cuMemcpyHtoDAsync_v2((address)to, from, size, stream));
    case 2: return noted(cuMemcpyDtoHAsync_v2(to, (address)from, size, stream));
    case 3: return noted(cuMemcpyDtoDAsync_v2((address)to, (address)from, size, stream));
    default: return noted(INVALID_DIRECTION);
  }
}
int cudaMemcpy(void *to, const void *from, size_t size, int kind) { return cudaMemcpyAsync(to, from, size, kind, 0); }
int cudaMemcpy2DAsync(void *to, size_t to_pitch, const void *from, size_t from_pitch, size_t width, size_t height, int kind, void *stream) {
  if (width > to_pitch || width > from_pitch) return noted(INVALID_VALUE);
  for (size_t row = 0; row < height; row++) {
    int status = cudaMemcpyAsync((char *)to + row * to_pitch, (const char *)from + row * from_pitch, width, kind, stream);
    if (status) return status;
  }
  return SUCCESS;
}
int cudaMemcpy2D(void *to, size_t to_pitch, const void *from, size_t from_pitch, size_t width, size_t height, int kind) {
  return cudaMemcpy2DAsync(to, to_pitch, from, from_pitch, width, height, kind, 0);
}
int cudaMemsetAsync(void *to, int byte, size_t size, void *stream) { return noted(cuMemsetD8Async((address)to, (unsigned char)byte, size, stream)); }
int cudaMemset(void *to, int byte, size_t size) { return cudaMemsetAsync(to, byte, size, 0); }

int cudaStreamCreateWithFlags(void **stream, unsigned flags) { return noted(cuStreamCreate(stream, flags)); }
int cudaStreamCreateWithPriority(void **stream, unsigned flags, int priority) { (void)priority; return noted(cuStreamCreate(stream, flags)); }
int cudaStreamCreate(void **stream) { return cudaStreamCreateWithFlags(stream, 0); }
int cudaStreamDestroy(void *stream) { return noted(cuStreamDestroy_v2(stream)); }
int cudaStreamSynchronize(void *stream) { return noted(cuStreamSynchronize(stream)); }
int cudaStreamQuery(void *stream) { return noted(cuStreamSynchronize(stream)); }
int cudaStreamWaitEvent(void *stream, void *event, unsigned flags) { return noted(cuStreamWaitEvent(stream, event, flags)); }
int cudaStreamIsCapturing(void *stream, int *status) { return noted(cuStreamIsCapturing(stream, status)); }
int cudaEventCreateWithFlags(void **event, unsigned flags) { return noted(cuEventCreate(event, flags)); }
int cudaEventCreate(void **event) { return cudaEventCreateWithFlags(event, 0); }
int cudaEventDestroy(void *event) { return noted(cuEventDestroy_v2(event)); }
int cudaEventRecord(void *event, void *stream) { return noted(cuEventRecord(event, stream)); }
int cudaEventRecordWithFlags(void *event, void *stream, unsigned flags) { (void)flags; return cudaEventRecord(event, stream); }
int cudaEventSynchronize(void *event) { return noted(cuEventSynchronize(event)); }
int cudaEventQuery(void *event) { return cudaEventSynchronize(event); }
int cudaEventElapsedTime(float *milliseconds, void *first, void *last_) { return noted(cuEventElapsedTime(milliseconds, first, last_)); }

/* What a program of nvcc's does before main. */
static void *binary;
void **__cudaRegisterFatBinary(void *given) { (void)given; return &binary; }
void __cudaRegisterFatBinaryEnd(void **given) { (void)given; }
void __cudaUnregisterFatBinary(void **given) { (void)given; }
void __cudaRegisterFunction(void) {}
void __cudaRegisterVar(void) {}
char __cudaInitModule(void **given) { (void)given; return 1; }
unsigned __cudaPushCallConfiguration(void) { return 0; }
int __cudaPopCallConfiguration(void) { return noted(NOT_SUPPORTED); }
