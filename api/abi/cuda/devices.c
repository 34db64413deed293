/* This file implements the driver's only device, its contexts and its error texts. */
enum { VERSION = 13000, DEVICE_ATTRIBUTES = 148 };  /* cuda.h counts attributes from 1. */

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
  /* Each row is (attribute, value) of a small device with compute capability 8.0. Attributes that are not listed are 0, which means
     unsupported. */
  static const int table[][2] = {{1, 1024}, {2, 1024}, {3, 1024}, {4, 64}, {5, 2147483647}, {6, 65535}, {7, 65535}, {8, 49152},
    {9, 65536}, {10, 32}, {11, 2147483647}, {12, 65536}, {13, 1000000}, {14, 512}, {15, 1}, {16, 1}, {18, 1}, {19, 1}, {31, 1}, {36, 1000000}, {37, 64}, {38, 1 << 20},
    {39, 2048}, {40, 1}, {41, 1}, {51, 32}, {75, 8}, {76, 0}, {81, 49152}, {82, 65536}, {83, 1}, {89, 1}, {91, 1}, {97, 49152}, {99, 1}, {106, 32}, {115, 1}};
  if (!value || attribute < 1 || attribute >= DEVICE_ATTRIBUTES) return INVALID_VALUE;
  if (device) return INVALID_DEVICE;
  *value = 0;
  for (size_t i = 0; i < sizeof table / sizeof *table; i++) if (table[i][0] == attribute) *value = table[i][1];
  return SUCCESS;
}
int cuDeviceComputeCapability(int *major, int *minor, int device) {
  int status = cuDeviceGetAttribute(major, 75, device);
  return status ? status : cuDeviceGetAttribute(minor, 76, device);
}
int cuDeviceGetProperties(int *properties, int device) {  /* It returns the first fourteen attributes in order. */
  int status = properties ? SUCCESS : INVALID_VALUE;
  for (int i = 0; i < 14 && !status; i++) status = cuDeviceGetAttribute(properties + i, i + 1, device);
  return status;
}
int cuDeviceGetUuid(char *uuid, int device) {
  if (!uuid) return INVALID_VALUE;
  return device ? INVALID_DEVICE : (memcpy(uuid, "dualdnn's device", 16), SUCCESS);
}
int cuDeviceGetPCIBusId(char *text, int size, int device) {
  if (!text || size < 13) return INVALID_VALUE;
  return device ? INVALID_DEVICE : (memcpy(text, "0000:00:00.0", 13), SUCCESS);
}
int cuDeviceGetByPCIBusId(int *device, const char *text) {
  unsigned domain = 0, bus, slot;
  if (!device || !text) return INVALID_VALUE;
  if (sscanf(text, "%x:%x:%x", &domain, &bus, &slot) != 3 && (domain = 0, sscanf(text, "%x:%x", &bus, &slot) != 2)) return INVALID_VALUE;
  return domain || bus || slot ? INVALID_DEVICE : (*device = 0, SUCCESS);
}
int cuDeviceCanAccessPeer(int *can, int device, int peer) {
  if (!can) return INVALID_VALUE;
  return device || peer ? INVALID_DEVICE : (*can = 0, SUCCESS);  /* A device is not its own peer. */
}

/* The primary context is current unless another one is, as it is after the runtime's first call. */
enum { DEPTH = 32 };
static unsigned primary_flags;
static __thread void *stack[DEPTH];
static __thread int depth;
/* Flags may select at most one way to wait (1, 2 or 4), plus any higher bits. */
static int are_context_flags(unsigned flags) { return flags < 256 && !((flags & 7) & ((flags & 7) - 1)); }
static int is_context(void *given) { return given == &context || known(CONTEXT, given); }
static void *current(void) { return depth && stack[depth - 1] ? stack[depth - 1] : &context; }
int cuDevicePrimaryCtxRetain(void **made, int device) {
  if (!made) return INVALID_VALUE;
  return device ? INVALID_DEVICE : (*made = &context, SUCCESS);
}
int cuDevicePrimaryCtxRelease_v2(int device) { return device ? INVALID_DEVICE : SUCCESS; }
int cuDevicePrimaryCtxSetFlags_v2(int device, unsigned flags) {
  if (device) return INVALID_DEVICE;
  return are_context_flags(flags) ? (primary_flags = flags, SUCCESS) : INVALID_VALUE;
}
int cuDevicePrimaryCtxGetState(int device, unsigned *flags, int *active) {
  if (!flags || !active) return INVALID_VALUE;
  return device ? INVALID_DEVICE : (*flags = primary_flags, *active = 1, SUCCESS);
}
int cuCtxPushCurrent_v2(void *given) {
  if (!is_context(given) || depth == DEPTH) return INVALID_CONTEXT;
  return stack[depth++] = given, SUCCESS;
}
int cuCtxPopCurrent_v2(void **made) {
  if (made) *made = current();
  if (depth) depth--;
  return SUCCESS;
}
int cuCtxSetCurrent(void *given) {
  if (given && !is_context(given)) return INVALID_CONTEXT;
  if (!depth) depth = 1;
  return stack[depth - 1] = given, SUCCESS;
}
int cuCtxGetCurrent(void **made) { return made ? (*made = current(), SUCCESS) : INVALID_VALUE; }
int cuCtxCreate_v2(void **made, unsigned flags, int device) {
  if (!made || !are_context_flags(flags)) return INVALID_VALUE;
  if (device) return INVALID_DEVICE;
  return (*made = add(CONTEXT, 0, 0, flags)) ? cuCtxPushCurrent_v2(*made) : OUT_OF_MEMORY;
}
int cuCtxCreate_v3(void **made, void *affinities, int count, unsigned flags, int device) {
  return affinities || count ? NOT_SUPPORTED : cuCtxCreate_v2(made, flags, device);
}
int cuCtxCreate_v4(void **made, void *parameters, unsigned flags, int device) {
  return parameters ? NOT_SUPPORTED : cuCtxCreate_v2(made, flags, device);
}
int cuCtxDestroy_v2(void *given) {
  if (!removed(CONTEXT, given)) return INVALID_CONTEXT;
  ended(given);
  if (depth && stack[depth - 1] == given) depth--;
  return SUCCESS;
}
int cuCtxGetDevice(int *device) { return device ? (*device = 0, SUCCESS) : INVALID_VALUE; }
int cuCtxSynchronize(void) { return SUCCESS; }
int cuCtxResetPersistingL2Cache(void) { return SUCCESS; }
int cuCtxGetFlags(unsigned *flags) {
  handle found = known(CONTEXT, current());
  return flags ? (*flags = found ? found->flags : primary_flags, SUCCESS) : INVALID_VALUE;
}
int cuCtxGetId(void *given, unsigned long long *id) {
  handle found = known(CONTEXT, given ? given : current());
  if (given && !is_context(given)) return INVALID_CONTEXT;
  return id ? (*id = found ? found->id : 0, SUCCESS) : INVALID_VALUE;
}
int cuCtxGetApiVersion(void *given, unsigned *version) {
  if (given && !is_context(given)) return INVALID_CONTEXT;
  return version ? (*version = 3020, SUCCESS) : INVALID_VALUE;
}
int cuCtxGetStreamPriorityRange(int *least, int *greatest) {
  if (least) *least = 0;
  if (greatest) *greatest = 0;
  return SUCCESS;
}
/* These settings affect only kernels. They are stored and read back. Caches and banks have no preference. */
static const size_t usual[] = {1024, 1 << 20, 8 << 20, 2, 2048, 64, 0};
static size_t limits[] = {1024, 1 << 20, 8 << 20, 2, 2048, 64, 0};
static int preferred[2];
int cuCtxGetLimit(size_t *value, int limit) {
  if (!value) return INVALID_VALUE;
  return limit < 0 || limit >= (int)(sizeof limits / sizeof *limits) ? UNSUPPORTED_LIMIT : (*value = limits[limit], SUCCESS);
}
int cuCtxSetLimit(int limit, size_t value) {
  return limit < 0 || limit >= (int)(sizeof limits / sizeof *limits) ? UNSUPPORTED_LIMIT : (limits[limit] = value, SUCCESS);
}
static int preference(int *result, int which) { return result ? (*result = preferred[which], SUCCESS) : INVALID_VALUE; }
static int prefer(int value, int which, int most) { return value < 0 || value > most ? INVALID_VALUE : (preferred[which] = value, SUCCESS); }
int cuCtxGetCacheConfig(int *config) { return preference(config, 0); }
int cuCtxSetCacheConfig(int config) { return prefer(config, 0, 3); }
int cuCtxGetSharedMemConfig(int *config) { return preference(config, 1); }
int cuCtxSetSharedMemConfig(int config) { return prefer(config, 1, 2); }
static void reset_pools(void);
int cuDevicePrimaryCtxReset_v2(int device) {
  if (device) return INVALID_DEVICE;
  ended(&context);
  reset_pools();
  memcpy(limits, usual, sizeof limits);
  memset(preferred, 0, sizeof preferred);
  return primary_flags = 0, SUCCESS;
}
int cuProfilerStart(void) { return SUCCESS; }
int cuProfilerStop(void) { return SUCCESS; }

/* The runtime uses the driver's error numbers since CUDA 10.1. */
static const struct { int number; const char *name, *of_runtime, *text; } errors[] = {
  {SUCCESS, "CUDA_SUCCESS", "cudaSuccess", "no error"},
  {INVALID_VALUE, "CUDA_ERROR_INVALID_VALUE", "cudaErrorInvalidValue", "invalid argument"},
  {OUT_OF_MEMORY, "CUDA_ERROR_OUT_OF_MEMORY", "cudaErrorMemoryAllocation", "out of memory"},
  {21, 0, "cudaErrorInvalidMemcpyDirection", "invalid copy direction for memcpy"},
  {INVALID_DEVICE, "CUDA_ERROR_INVALID_DEVICE", "cudaErrorInvalidDevice", "invalid device ordinal"},
  {INVALID_CONTEXT, "CUDA_ERROR_INVALID_CONTEXT", "cudaErrorDeviceUninitialized", "invalid device context"},
  {UNSUPPORTED_LIMIT, "CUDA_ERROR_UNSUPPORTED_LIMIT", "cudaErrorUnsupportedLimit", "limit is not supported on this architecture"},
  {INVALID_HANDLE, "CUDA_ERROR_INVALID_HANDLE", "cudaErrorInvalidResourceHandle", "invalid resource handle"},
  {NOT_FOUND, "CUDA_ERROR_NOT_FOUND", "cudaErrorSymbolNotFound", "named symbol not found"},
  {705, "CUDA_ERROR_PEER_ACCESS_NOT_ENABLED", "cudaErrorPeerAccessNotEnabled", "peer access has not been enabled"},
  {ALREADY_REGISTERED, "CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED", "cudaErrorHostMemoryAlreadyRegistered", "part or all of the requested memory range is already mapped"},
  {NOT_REGISTERED, "CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED", "cudaErrorHostMemoryNotRegistered", "pointer does not correspond to a registered memory region"},
  {NOT_SUPPORTED, "CUDA_ERROR_NOT_SUPPORTED", "cudaErrorNotSupported", "operation not supported"}};
/* Give the runtime the names and the text of an error, or NULL if the error is unknown. */
int dualdnn_error(int number, const char **name, const char **of_runtime, const char **text) {
  for (size_t i = 0; i < sizeof errors / sizeof *errors; i++)
    if (errors[i].number == number) return *name = errors[i].name, *of_runtime = errors[i].of_runtime, *text = errors[i].text, SUCCESS;
  *name = *of_runtime = *text = 0;
  return INVALID_VALUE;
}
int cuGetErrorName(int number, const char **name) {
  const char *of_runtime, *text;
  return name && dualdnn_error(number, name, &of_runtime, &text) == SUCCESS && *name ? SUCCESS : INVALID_VALUE;
}
int cuGetErrorString(int number, const char **text) {
  const char *name, *of_runtime;
  return text && dualdnn_error(number, &name, &of_runtime, text) == SUCCESS ? SUCCESS : INVALID_VALUE;
}
/* Each row is (function, its version, release of CUDA since which programs get this version). Other versions are older than CUDA 11. */
static const struct { const char *name; int number, since; } versions[] = {
  {"cuCtxCreate", 3, 11040}, {"cuCtxCreate", 4, 12050}, {"cuCtxGetDevice", 2, 13000}, {"cuCtxSynchronize", 2, 13000},
  {"cuEventElapsedTime", 2, 12080}, {"cuGetProcAddress", 2, 12000}, {"cuMemAdvise", 2, 12020}, {"cuMemPrefetchAsync", 2, 12020},
  {"cuStreamGetCaptureInfo", 2, 11030}, {"cuStreamGetCaptureInfo", 3, 12030}, {"cuStreamGetCtx", 2, 12050}};
enum { NEWEST = 4 };
static int is_later(const char *name, int number, int release) {
  for (size_t i = 0; i < sizeof versions / sizeof *versions; i++)
    if (versions[i].number == number && !strcmp(versions[i].name, name)) return versions[i].since > release;
  return 0;
}
int cuGetProcAddress(const char *symbol, void **function, int version, unsigned long long flags) {
  char numbered[200];
  if (!symbol || !function || flags > 2) return INVALID_VALUE;
  for (int i = NEWEST; i > 1; i--) {  /* The newest version that the release has wins. */
    snprintf(numbered, sizeof numbered, "%s_v%d", symbol, i);
    if (!is_later(symbol, i, version) && (*function = dlsym(RTLD_DEFAULT, numbered))) return SUCCESS;
  }
  return (*function = dlsym(RTLD_DEFAULT, symbol)) ? SUCCESS : NOT_FOUND;
}
int cuGetProcAddress_v2(const char *symbol, void **function, int version, unsigned long long flags, int *found) {
  int status = cuGetProcAddress(symbol, function, version, flags);
  if (found) *found = status == NOT_FOUND;  /* The value is 0 for found and 1 for not found. */
  return status;
}
