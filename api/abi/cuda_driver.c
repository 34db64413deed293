/* libcuda.so.1 of a machine without a GPU: device memory is memory of the process. It knows every allocation and its size, streams
   and events, and one device. Work is done when its call returns. What it lacks answers CUDA_ERROR_NOT_SUPPORTED and says its name
   once (MISSING, of cuda_runtime.py). Handles that it did not give out and memory outside of allocations are refused. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <pthread.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

typedef unsigned long long address;
typedef struct object *handle;
enum {
  SUCCESS = 0, INVALID_VALUE = 1, OUT_OF_MEMORY = 2, INVALID_DEVICE = 101, INVALID_CONTEXT = 201, INVALID_HANDLE = 400,
  NOT_FOUND = 500, NOT_SUPPORTED = 801
};
enum { DEVICE_MEMORY = 1, HOST_MEMORY, STREAM, EVENT };
enum { VERSION = 12000, ALIGNMENT = 256 };

/* Everything that was given out, by the address that the caller knows it by. */
struct object { int kind; char *base; size_t size; struct timespec recorded; int is_recorded; struct object *next; };
static struct object *objects;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static int context;  /* its address is the one context */

static struct object *add(int kind, size_t size) {
  struct object *made = calloc(1, sizeof *made);
  size_t whole = (size + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
  if (!made) return 0;
  made->kind = kind;
  made->size = size;
  made->base = (char *)made;
  if (kind <= HOST_MEMORY && (whole < size || !(made->base = aligned_alloc(ALIGNMENT, whole)))) { free(made); return 0; }
  pthread_mutex_lock(&lock);
  made->next = objects;
  objects = made;
  pthread_mutex_unlock(&lock);
  return made;
}

static int removed(int kind, const void *base) {
  pthread_mutex_lock(&lock);
  struct object **link = &objects;
  while (*link && !((*link)->kind == kind && (*link)->base == base)) link = &(*link)->next;
  struct object *found = *link;
  if (found) *link = found->next;
  pthread_mutex_unlock(&lock);
  if (!found) return 0;
  if (kind <= HOST_MEMORY) free(found->base);
  free(found);
  return 1;
}

/* A copy of what holds this address; kind 0 where nothing does. */
static struct object around(const void *inside) {
  struct object found = {0};
  pthread_mutex_lock(&lock);
  for (struct object *o = objects; o && !found.kind; o = o->next)
    if (o->kind <= HOST_MEMORY && (const char *)inside >= o->base && (const char *)inside < o->base + o->size) found = *o;
  pthread_mutex_unlock(&lock);
  return found;
}

static struct object *known(int kind, const void *base) {
  struct object *found = 0;
  pthread_mutex_lock(&lock);
  for (struct object *o = objects; o && !found; o = o->next)
    if (o->kind == kind && o->base == base) found = o;
  pthread_mutex_unlock(&lock);
  return found;
}

static int is_stream(const void *stream) { return (uintptr_t)stream <= 2 || known(STREAM, stream) != 0; }  /* 0, legacy, per thread */

/* Whether so many bytes of device memory begin here. */
static int in_device(address start, size_t size) {
  struct object found = around((void *)(uintptr_t)start);
  return size == 0 || (found.kind == DEVICE_MEMORY && start - (address)(uintptr_t)found.base + size <= found.size);
}

int dualdnn_missing(const char *name, int *reported) {
  if (!__atomic_exchange_n(reported, 1, __ATOMIC_RELAXED))
    fprintf(stderr, "dualdnn: %s: this CUDA has no such function: it is memory of the host, and runs no kernels\n", name);
  return NOT_SUPPORTED;
}
/* For the runtime: what memory an address is in, 1 device, 2 host, 0 neither. */
int dualdnn_memory_kind(const void *inside) { return around(inside).kind; }

int cuInit(unsigned flags) { return flags ? INVALID_VALUE : SUCCESS; }
int cuDriverGetVersion(int *version) { return version ? (*version = VERSION, SUCCESS) : INVALID_VALUE; }
int cuDeviceGetCount(int *count) { return count ? (*count = 1, SUCCESS) : INVALID_VALUE; }
int cuDeviceGet(int *device, int ordinal) {
  if (!device) return INVALID_VALUE;
  return ordinal ? INVALID_DEVICE : (*device = 0, SUCCESS);
}
int cuDeviceGetName(char *text, int size, int device) {
  if (!text || size < 1) return INVALID_VALUE;
  return device ? INVALID_DEVICE : (snprintf(text, size, "memory of the host (dualdnn)"), SUCCESS);
}
int cuDeviceTotalMem_v2(size_t *bytes, int device) {
  if (!bytes) return INVALID_VALUE;
  return device ? INVALID_DEVICE : (*bytes = (size_t)8 << 30, SUCCESS);
}
int cuDeviceGetAttribute(int *value, int attribute, int device) {
  /* attribute, value: of a small device of compute capability 8.0; what is not listed is 0, as where a device cannot do it */
  static const int table[][2] = {{1, 1024}, {2, 1024}, {3, 1024}, {4, 64}, {5, 2147483647}, {6, 65535}, {7, 65535}, {8, 49152},
    {9, 65536}, {10, 32}, {11, 2147483647}, {12, 65536}, {13, 1000000}, {14, 512}, {16, 1}, {36, 1000000}, {37, 64}, {38, 1 << 20},
    {39, 2048}, {41, 1}, {75, 8}, {76, 0}, {81, 49152}, {82, 65536}, {97, 49152}, {106, 32}};
  if (!value) return INVALID_VALUE;
  if (device) return INVALID_DEVICE;
  *value = 0;
  for (size_t i = 0; i < sizeof table / sizeof *table; i++) if (table[i][0] == attribute) *value = table[i][1];
  return SUCCESS;
}
int cuDevicePrimaryCtxRetain(void **made, int device) {
  if (!made) return INVALID_VALUE;
  return device ? INVALID_DEVICE : (*made = &context, SUCCESS);
}
int cuDevicePrimaryCtxRelease_v2(int device) { return device ? INVALID_DEVICE : SUCCESS; }
int cuDevicePrimaryCtxGetState(int device, unsigned *flags, int *active) {
  if (!flags || !active) return INVALID_VALUE;
  return device ? INVALID_DEVICE : (*flags = 0, *active = 1, SUCCESS);
}
int cuCtxSetCurrent(void *given) { return !given || given == &context ? SUCCESS : INVALID_CONTEXT; }
int cuCtxPushCurrent_v2(void *given) { return cuCtxSetCurrent(given); }
int cuCtxGetCurrent(void **made) { return made ? (*made = &context, SUCCESS) : INVALID_VALUE; }
int cuCtxPopCurrent_v2(void **made) { if (made) *made = &context; return SUCCESS; }
int cuCtxGetDevice(int *device) { return device ? (*device = 0, SUCCESS) : INVALID_VALUE; }
int cuCtxSynchronize(void) { return SUCCESS; }

int cuMemAlloc_v2(address *result, size_t size) {
  if (!result || !size) return INVALID_VALUE;
  struct object *made = add(DEVICE_MEMORY, size);
  return made ? (*result = (address)(uintptr_t)made->base, SUCCESS) : OUT_OF_MEMORY;
}
int cuMemFree_v2(address freed) { return !freed || removed(DEVICE_MEMORY, (void *)(uintptr_t)freed) ? SUCCESS : INVALID_VALUE; }
int cuMemHostAlloc(void **result, size_t size, unsigned flags) {
  (void)flags;
  if (!result || !size) return INVALID_VALUE;
  struct object *made = add(HOST_MEMORY, size);
  return made ? (*result = made->base, SUCCESS) : OUT_OF_MEMORY;
}
int cuMemAllocHost_v2(void **result, size_t size) { return cuMemHostAlloc(result, size, 0); }
int cuMemFreeHost(void *freed) { return removed(HOST_MEMORY, freed) ? SUCCESS : INVALID_VALUE; }
int cuMemGetAddressRange_v2(address *base, size_t *size, address inside) {
  struct object found = around((void *)(uintptr_t)inside);
  if (found.kind != DEVICE_MEMORY) return NOT_FOUND;
  if (base) *base = (address)(uintptr_t)found.base;
  if (size) *size = found.size;
  return SUCCESS;
}
int cuMemGetInfo_v2(size_t *unused, size_t *all) {
  if (!unused || !all) return INVALID_VALUE;
  *all = *unused = (size_t)8 << 30;
  pthread_mutex_lock(&lock);
  for (struct object *o = objects; o; o = o->next) if (o->kind == DEVICE_MEMORY) *unused -= o->size < *unused ? o->size : *unused;
  pthread_mutex_unlock(&lock);
  return SUCCESS;
}
int cuMemcpyHtoDAsync_v2(address to, const void *from, size_t size, void *stream) {
  if (!is_stream(stream)) return INVALID_HANDLE;
  if ((size && !from) || !in_device(to, size)) return INVALID_VALUE;
  memcpy((void *)(uintptr_t)to, from, size);
  return SUCCESS;
}
int cuMemcpyDtoHAsync_v2(void *to, address from, size_t size, void *stream) {
  if (!is_stream(stream)) return INVALID_HANDLE;
  if ((size && !to) || !in_device(from, size)) return INVALID_VALUE;
  memcpy(to, (void *)(uintptr_t)from, size);
  return SUCCESS;
}
int cuMemcpyDtoDAsync_v2(address to, address from, size_t size, void *stream) {
  if (!is_stream(stream)) return INVALID_HANDLE;
  if (!in_device(to, size) || !in_device(from, size)) return INVALID_VALUE;
  memmove((void *)(uintptr_t)to, (void *)(uintptr_t)from, size);
  return SUCCESS;
}
int cuMemcpyHtoD_v2(address to, const void *from, size_t size) { return cuMemcpyHtoDAsync_v2(to, from, size, 0); }
int cuMemcpyDtoH_v2(void *to, address from, size_t size) { return cuMemcpyDtoHAsync_v2(to, from, size, 0); }
int cuMemcpyDtoD_v2(address to, address from, size_t size) { return cuMemcpyDtoDAsync_v2(to, from, size, 0); }
int cuMemsetD8Async(address to, unsigned char byte, size_t count, void *stream) {
  if (!is_stream(stream)) return INVALID_HANDLE;
  if (!in_device(to, count)) return INVALID_VALUE;
  memset((void *)(uintptr_t)to, byte, count);
  return SUCCESS;
}
int cuMemsetD8_v2(address to, unsigned char byte, size_t count) { return cuMemsetD8Async(to, byte, count, 0); }
int cuMemsetD32Async(address to, unsigned word, size_t count, void *stream) {
  if (!is_stream(stream)) return INVALID_HANDLE;
  if (to % 4 || count > SIZE_MAX / 4 || !in_device(to, 4 * count)) return INVALID_VALUE;
  for (size_t i = 0; i < count; i++) ((unsigned *)(uintptr_t)to)[i] = word;
  return SUCCESS;
}
int cuMemsetD32_v2(address to, unsigned word, size_t count) { return cuMemsetD32Async(to, word, count, 0); }

int cuStreamCreate(handle *stream, unsigned flags) {
  if (!stream || flags > 1) return INVALID_VALUE;
  return (*stream = add(STREAM, 0)) ? SUCCESS : OUT_OF_MEMORY;
}
int cuStreamCreateWithPriority(handle *stream, unsigned flags, int priority) { (void)priority; return cuStreamCreate(stream, flags); }
int cuStreamDestroy_v2(handle stream) { return removed(STREAM, stream) ? SUCCESS : INVALID_HANDLE; }
int cuStreamSynchronize(handle stream) { return is_stream(stream) ? SUCCESS : INVALID_HANDLE; }
int cuStreamQuery(handle stream) { return cuStreamSynchronize(stream); }
int cuStreamWaitEvent(handle stream, handle event, unsigned flags) {
  (void)flags;
  return is_stream(stream) && known(EVENT, event) ? SUCCESS : INVALID_HANDLE;
}
int cuStreamIsCapturing(handle stream, int *status) {
  if (!status) return INVALID_VALUE;
  return is_stream(stream) ? (*status = 0, SUCCESS) : INVALID_HANDLE;
}
int cuEventCreate(handle *event, unsigned flags) {
  (void)flags;
  if (!event) return INVALID_VALUE;
  return (*event = add(EVENT, 0)) ? SUCCESS : OUT_OF_MEMORY;
}
int cuEventDestroy_v2(handle event) { return removed(EVENT, event) ? SUCCESS : INVALID_HANDLE; }
int cuEventRecord(handle event, handle stream) {
  struct object *found = known(EVENT, event);
  if (!found || !is_stream(stream)) return INVALID_HANDLE;
  clock_gettime(CLOCK_MONOTONIC, &found->recorded);
  found->is_recorded = 1;
  return SUCCESS;
}
int cuEventSynchronize(handle event) { return known(EVENT, event) ? SUCCESS : INVALID_HANDLE; }
int cuEventQuery(handle event) { return cuEventSynchronize(event); }
int cuEventElapsedTime(float *milliseconds, handle first, handle last) {
  struct object *from = known(EVENT, first), *to = known(EVENT, last);
  if (!milliseconds) return INVALID_VALUE;
  if (!from || !to || !from->is_recorded || !to->is_recorded) return INVALID_HANDLE;
  *milliseconds = (to->recorded.tv_sec - from->recorded.tv_sec) * 1e3 + (to->recorded.tv_nsec - from->recorded.tv_nsec) * 1e-6;
  return SUCCESS;
}

static const struct { int number; const char *name, *text; } errors[] = {
  {SUCCESS, "CUDA_SUCCESS", "no error"}, {INVALID_VALUE, "CUDA_ERROR_INVALID_VALUE", "invalid argument"},
  {OUT_OF_MEMORY, "CUDA_ERROR_OUT_OF_MEMORY", "out of memory"}, {INVALID_DEVICE, "CUDA_ERROR_INVALID_DEVICE", "invalid device ordinal"},
  {INVALID_CONTEXT, "CUDA_ERROR_INVALID_CONTEXT", "invalid device context"}, {NOT_FOUND, "CUDA_ERROR_NOT_FOUND", "named symbol not found"},
  {INVALID_HANDLE, "CUDA_ERROR_INVALID_HANDLE", "invalid resource handle"}, {NOT_SUPPORTED, "CUDA_ERROR_NOT_SUPPORTED", "operation not supported"}};
static int described(int number, const char **name, const char **text) {
  for (size_t i = 0; i < sizeof errors / sizeof *errors; i++)
    if (errors[i].number == number) { *name = errors[i].name; *text = errors[i].text; return SUCCESS; }
  *name = *text = 0;
  return INVALID_VALUE;
}
int cuGetErrorName(int number, const char **name) { const char *text; return name ? described(number, name, &text) : INVALID_VALUE; }
int cuGetErrorString(int number, const char **text) { const char *name; return text ? described(number, &name, text) : INVALID_VALUE; }
int cuGetProcAddress(const char *symbol, void **function, int version, unsigned long long flags) {
  (void)version; (void)flags;
  char newest[200];
  if (!symbol || !function) return INVALID_VALUE;
  for (int i = 3; i > 1; i--) {  /* of several versions the newest */
    snprintf(newest, sizeof newest, "%s_v%d", symbol, i);
    if ((*function = dlsym(RTLD_DEFAULT, newest))) return SUCCESS;
  }
  return (*function = dlsym(RTLD_DEFAULT, symbol)) ? SUCCESS : NOT_FOUND;
}
