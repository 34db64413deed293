/* These are libcudart.so.11.0, .12 and .13 for machines without a GPU, on the driver of objects.c: the runtime's names, kinds of
   copies and last error. Programs that nvcc compiled load and register their kernels; a launch returns cudaErrorNotSupported.
   The runtime is compiled as one file: runtime.c, runtime_memory.c, runtime_streams.c and generated code. */
#include <stddef.h>
#include <string.h>

typedef unsigned long long address;
int dualdnn_missing(const char *), dualdnn_error(int, const char **, const char **, const char **);
int cuDriverGetVersion(int *), cuDeviceGetName(char *, int, int), cuDeviceGetAttribute(int *, int, int), cuDeviceTotalMem_v2(size_t *, int);
int cuDeviceGetUuid(char *, int), cuDeviceGetPCIBusId(char *, int, int), cuDeviceGetByPCIBusId(int *, const char *);
int cuDeviceCanAccessPeer(int *, int, int), cuDevicePrimaryCtxSetFlags_v2(int, unsigned), cuDevicePrimaryCtxGetState(int, unsigned *, int *), cuDevicePrimaryCtxReset_v2(int);
int cuCtxGetStreamPriorityRange(int *, int *), cuCtxGetLimit(size_t *, int), cuCtxSetLimit(int, size_t);
int cuCtxGetCacheConfig(int *), cuCtxSetCacheConfig(int), cuCtxGetSharedMemConfig(int *), cuCtxSetSharedMemConfig(int);
int cuGetProcAddress(const char *, void **, int, unsigned long long);

enum { SUCCESS = 0, INVALID_VALUE = 1, INVALID_DIRECTION = 21, INVALID_DEVICE = 101, NOT_FOUND = 500, PEER_NOT_ENABLED = 705, NOT_SUPPORTED = 801 };
static __thread int last;
static int noted(int error) { if (error) last = error; return error; }  /* The runtime uses the driver's error numbers since CUDA 10.1. */

__attribute__((noinline)) static int missing(const char *name) { return noted(dualdnn_missing(name)); }

int cudaGetLastError(void) { int found = last; last = SUCCESS; return found; }
int cudaPeekAtLastError(void) { return last; }
const char *cudaGetErrorName(int number) {
  const char *name, *of_runtime, *text;
  return dualdnn_error(number, &name, &of_runtime, &text) ? "unrecognized error code" : of_runtime;
}
const char *cudaGetErrorString(int number) {
  const char *name, *of_runtime, *text;
  return dualdnn_error(number, &name, &of_runtime, &text) ? "unrecognized error code" : text;
}

int cudaRuntimeGetVersion(int *version) { return version ? (*version = RUNTIME_VERSION, SUCCESS) : noted(INVALID_VALUE); }
int cudaDriverGetVersion(int *version) { return noted(cuDriverGetVersion(version)); }
int cudaGetDeviceCount(int *count) { return count ? (*count = 1, SUCCESS) : noted(INVALID_VALUE); }
int cudaGetDevice(int *device) { return device ? (*device = 0, SUCCESS) : noted(INVALID_VALUE); }
int cudaSetDevice(int device) { return noted(device ? INVALID_DEVICE : SUCCESS); }
int cudaInitDevice(int device, unsigned flags, unsigned are_given) {
  if (are_given > 1) return noted(INVALID_VALUE);
  return noted(are_given ? cuDevicePrimaryCtxSetFlags_v2(device, flags) : device ? INVALID_DEVICE : SUCCESS);
}
int cudaSetValidDevices(const int *devices, int count) {
  if (count < 0 || (count && !devices)) return noted(INVALID_VALUE);
  for (int i = 0; i < count; i++) if (devices[i]) return noted(INVALID_DEVICE);
  return SUCCESS;
}
int cudaChooseDevice(int *device, const void *wanted) { return device && wanted ? (*device = 0, SUCCESS) : noted(INVALID_VALUE); }
int cudaSetDeviceFlags(unsigned flags) { return noted(cuDevicePrimaryCtxSetFlags_v2(0, flags)); }
int cudaGetDeviceFlags(unsigned *flags) { int active; return noted(cuDevicePrimaryCtxGetState(0, flags, &active)); }
int cudaDeviceSynchronize(void) { return SUCCESS; }
int cudaDeviceReset(void) { last = SUCCESS; return noted(cuDevicePrimaryCtxReset_v2(0)); }
int cudaCtxResetPersistingL2Cache(void) { return SUCCESS; }
int cudaDeviceGetAttribute(int *value, int attribute, int device) { return noted(cuDeviceGetAttribute(value, attribute, device)); }
int cudaDeviceGetStreamPriorityRange(int *least, int *greatest) { return noted(cuCtxGetStreamPriorityRange(least, greatest)); }
int cudaDeviceGetLimit(size_t *value, int limit) { return noted(cuCtxGetLimit(value, limit)); }
int cudaDeviceSetLimit(int limit, size_t value) { return noted(cuCtxSetLimit(limit, value)); }
int cudaDeviceGetCacheConfig(int *config) { return noted(cuCtxGetCacheConfig(config)); }
int cudaDeviceSetCacheConfig(int config) { return noted(cuCtxSetCacheConfig(config)); }
int cudaDeviceGetSharedMemConfig(int *config) { return noted(cuCtxGetSharedMemConfig(config)); }
int cudaDeviceSetSharedMemConfig(int config) { return noted(cuCtxSetSharedMemConfig(config)); }
int cudaDeviceGetPCIBusId(char *text, int size, int device) { return noted(cuDeviceGetPCIBusId(text, size, device)); }
int cudaDeviceGetByPCIBusId(int *device, const char *text) { return noted(cuDeviceGetByPCIBusId(device, text)); }
int cudaDeviceCanAccessPeer(int *can, int device, int peer) { return noted(cuDeviceCanAccessPeer(can, device, peer)); }
int cudaDeviceEnablePeerAccess(int peer, unsigned flags) { (void)peer; return noted(flags ? INVALID_VALUE : INVALID_DEVICE); }
int cudaDeviceDisablePeerAccess(int peer) { return noted(peer ? INVALID_DEVICE : PEER_NOT_ENABLED); }
enum { P2P_ATTRIBUTES = 6 };  /* Attributes are counted from 1. */
int cudaDeviceGetP2PAttribute(int *value, int attribute, int from, int to) {
  (void)from; (void)to;
  return noted(value && attribute > 0 && attribute < P2P_ATTRIBUTES ? INVALID_DEVICE : INVALID_VALUE);  /* A valid query needs two devices. */
}
int cudaProfilerStart(void) { return SUCCESS; }
int cudaProfilerStop(void) { return SUCCESS; }
/* Devices of compute capability 1.3 and later support double precision. */
int cudaSetDoubleForDevice(double *value) { return value ? SUCCESS : noted(INVALID_VALUE); }
int cudaSetDoubleForHost(double *value) { return value ? SUCCESS : noted(INVALID_VALUE); }

struct channels { int x, y, z, w, kind; };
struct channels cudaCreateChannelDesc(int x, int y, int z, int w, int kind) { return (struct channels){x, y, z, w, kind}; }

enum { FOUND, SYMBOL_NOT_FOUND };
static int entry_point(const char *symbol, void **function, int version, unsigned long long flags, int *found) {
  int status = cuGetProcAddress(symbol, function, version, flags);
  if (found) *found = status == NOT_FOUND ? SYMBOL_NOT_FOUND : FOUND;
  return noted(found && status == NOT_FOUND ? SUCCESS : status);
}
int cudaGetDriverEntryPointByVersion(const char *symbol, void **function, unsigned version, unsigned long long flags, int *found) {
  return entry_point(symbol, function, (int)version, flags, found);
}
#if RUNTIME_VERSION < 12000
int cudaGetDriverEntryPoint(const char *symbol, void **function, unsigned long long flags) {
  return entry_point(symbol, function, RUNTIME_VERSION, flags, 0);
}
#else
int cudaGetDriverEntryPoint(const char *symbol, void **function, unsigned long long flags, int *found) {
  return entry_point(symbol, function, RUNTIME_VERSION, flags, found);
}
#endif

/* Each row is (offset in cudaDeviceProp of CUDA 11 and 12, offset in CUDA 13, attribute). CUDA 12 has a longer structure than 11.
   An offset of 0 means that CUDA 13 lacks the attribute. Other bytes are 0. */
enum { SIZE_OF_11 = 728, SIZE_OF_12 = 1032, SIZE_OF_13 = 1008, UUID_AT = 256, MEMORY_AT = 288 };
static const struct { short place, of_13, attribute; } properties[] = {
  {296, 296, 8}, {304, 304, 12}, {308, 308, 10}, {312, 312, 11}, {320, 320, 1}, {324, 324, 2}, {328, 328, 3}, {332, 332, 4},
  {336, 336, 5}, {340, 340, 6}, {344, 344, 7}, {348, 0, 13}, {352, 352, 9}, {360, 360, 75}, {364, 364, 76}, {368, 368, 14},
  {376, 376, 51}, {384, 0, 15}, {388, 384, 16}, {392, 0, 17}, {396, 388, 18}, {400, 392, 19}, {404, 0, 20}, {576, 560, 31},
  {580, 564, 32}, {600, 584, 40}, {604, 588, 41}, {608, 0, 36}, {612, 592, 37}, {616, 596, 38}, {620, 600, 108}, {624, 604, 39},
  {628, 608, 78}, {632, 612, 79}, {636, 616, 80}, {640, 624, 81}, {648, 632, 82}, {652, 636, 83}, {656, 640, 84}, {660, 644, 85},
  {664, 648, 86}, {668, 0, 87}, {672, 652, 88}, {676, 656, 89}, {680, 660, 90}, {684, 664, 91}, {688, 668, 95}, {692, 0, 96},
  {696, 672, 97}, {704, 680, 100}, {708, 684, 101}, {712, 688, 106}, {716, 692, 109}, {720, 696, 111}, {728, 704, 99}, {744, 720, 115}};
static int properties_of(char *p, size_t size, int device) {
  if (!p) return noted(INVALID_VALUE);
  if (device) return noted(INVALID_DEVICE);
  memset(p, 0, size);
  cuDeviceGetName(p, UUID_AT, 0);
  cuDeviceGetUuid(p + UUID_AT, 0);
  cuDeviceTotalMem_v2((size_t *)(p + MEMORY_AT), 0);
  for (size_t i = 0; i < sizeof properties / sizeof *properties; i++) {
    int place = size == SIZE_OF_13 ? properties[i].of_13 : properties[i].place;
    if (place && (size_t)place < size) cuDeviceGetAttribute((int *)(p + place), properties[i].attribute, 0);
  }
  return SUCCESS;
}
int cudaGetDeviceProperties(char *p, int device) { return properties_of(p, RUNTIME_VERSION < 13000 ? SIZE_OF_11 : SIZE_OF_13, device); }
int cudaGetDeviceProperties_v2(char *p, int device) { return properties_of(p, SIZE_OF_12, device); }

/* A program that nvcc built calls these functions before main. */
static void *binary;
void **__cudaRegisterFatBinary(void *given) { (void)given; return &binary; }
void __cudaRegisterFatBinaryEnd(void **given) { (void)given; }
void __cudaUnregisterFatBinary(void **given) { (void)given; }
void __cudaRegisterFunction(void) {}
void __cudaRegisterVar(void) {}
char __cudaInitModule(void **given) { (void)given; return 1; }
unsigned __cudaPushCallConfiguration(void) { return 0; }
int __cudaPopCallConfiguration(void) { return noted(NOT_SUPPORTED); }
