// This fake CUDA driver has no device, and uses host memory. Each thread has a stack of contexts, and objects of one
// context are refused in another. The fake also aborts, like PyCUDA, if a thread ends with a context on PyCUDA's stack.
#include <pthread.h>
#include <semaphore.h>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>

namespace {
constexpr int MAX_CONTEXTS = 16;  // contexts per thread
constexpr int NO_DEVICE = 100, INVALID_VALUE = 1, INVALID_CONTEXT = 201, INVALID_HANDLE = 400;
thread_local uintptr_t stack[MAX_CONTEXTS];
thread_local int depth = 1;
int launches;

uintptr_t current() { return stack[depth - 1]; }
int in_context() { return current() ? 0 : INVALID_CONTEXT; }
int gpus() {
  const char* given = getenv("FAKE_GPUS");
  return given ? atoi(given) : 2;
}
uintptr_t primary(int device) { return 0x1000 + device; }
// The handle of a module, kernel or stream encodes its context and a number.
uintptr_t made_here(int kind) { return current() << 8 | kind; }
bool belongs_here(uintptr_t made) { return made >> 8 == current(); }

// At most one stream captures, in global mode. A forbidden call ends the capture; RELAXED threads may call more.
constexpr int GLOBAL = 0, RELAXED = 2, CAPTURE_UNSUPPORTED = 900, CAPTURE_IMPLICIT = 906;
uintptr_t capturing;
bool ended;
thread_local int mode = GLOBAL;
int end_capture(int code) { return ended = true, code; }
// Returns the status of work on a stream; 0 is the default stream. waits: whether the call waits for that work.
int on_stream(uintptr_t stream, bool waits) {
  if (capturing && !stream) return end_capture(CAPTURE_IMPLICIT);
  if (capturing && stream == capturing && waits) return end_capture(CAPTURE_UNSUPPORTED);
  return in_context();
}
int unsafe() { return capturing && mode != RELAXED ? end_capture(CAPTURE_UNSUPPORTED) : in_context(); }

pthread_key_t pycuda;  // contexts on PyCUDA's stack, per thread
void stack_ends(void* contexts) {
  if (*static_cast<int*>(contexts)) {
    fprintf(stderr, "PyCUDA ERROR: The context stack was not empty upon module cleanup.\n");
    abort();
  }
}
int* pycuda_stack() {
  void* found = pthread_getspecific(pycuda);
  if (!found) pthread_setspecific(pycuda, found = calloc(1, sizeof(int)));
  return static_cast<int*>(found);
}
__attribute__((constructor)) void begin() { pthread_key_create(&pycuda, stack_ends); }
__attribute__((destructor)) void end() { stack_ends(pycuda_stack()); }

pthread_t worker;
sem_t called, over;
void* work(void* function) {
  reinterpret_cast<void* (*)(void*)>(function)(nullptr);
  sem_post(&called);
  sem_wait(&over);
  return nullptr;
}
void stop() {
  sem_post(&over);
  pthread_join(worker, nullptr);
}
}  // namespace

extern "C" {
int cuInit(unsigned) { return gpus() ? 0 : NO_DEVICE; }
int cuGetErrorName(int, const char** text) { return *text = "FAKE", 0; }
int cuGetErrorString(int, const char** text) { return *text = "refused", 0; }
int cuDeviceGetCount(int* count) { return *count = gpus(), 0; }
int cuDeviceGet(int* device, int index) { return *device = index, 0; }
int cuDeviceGetName(char* name, int bytes, int device) { return snprintf(name, bytes, "Fake %d", device), 0; }
int cuDeviceGetAttribute(int* value, int attribute, int) {
  *value = attribute == 16 ? 132 : attribute == 75 ? 9 : attribute == 76 ? 0 : attribute == 97 ? 232448 : -1;
  return *value < 0 ? INVALID_VALUE : 0;
}
int cuDevicePrimaryCtxRetain(uintptr_t* context, int device) { return *context = primary(device), 0; }
int cuCtxGetCurrent(uintptr_t* context) { return *context = current(), 0; }
int cuCtxGetDevice(int* device) { return *device = current() & 15, in_context(); }
int cuCtxSetCurrent(uintptr_t context) { return stack[depth - 1] = context, 0; }
int cuCtxPushCurrent_v2(uintptr_t context) {
  if (depth == MAX_CONTEXTS) return INVALID_VALUE;
  return stack[depth++] = context, 0;
}
int cuCtxPopCurrent_v2(uintptr_t* context) {
  if (depth == 1) return INVALID_CONTEXT;
  return *context = stack[--depth], 0;
}
int cuCtxSynchronize() { return capturing ? end_capture(CAPTURE_UNSUPPORTED) : in_context(); }
int cuStreamCreate(uintptr_t* stream, unsigned) {
  static int made = 5;  // Modules and kernels have smaller numbers.
  return *stream = made_here(made++), unsafe();
}
int cuStreamDestroy_v2(uintptr_t stream) { return belongs_here(stream) ? 0 : INVALID_HANDLE; }
int cuStreamSynchronize(uintptr_t stream) {
  if (stream && !belongs_here(stream)) return INVALID_HANDLE;
  return on_stream(stream, true);
}
int cuStreamGetCaptureInfo_v2(uintptr_t stream, int* status, uint64_t* number, void*, void*, void*) {
  if (capturing && !stream) return CAPTURE_IMPLICIT;
  return *status = capturing && stream == capturing, *number = 7, 0;
}
int cuThreadExchangeStreamCaptureMode(int* given) {
  int before = mode;
  return mode = *given, *given = before, 0;
}
int cuStreamQuery(uintptr_t stream) { return cuStreamSynchronize(stream); }
int cuMemAlloc_v2(uint64_t* address, size_t bytes) {
  *address = reinterpret_cast<uint64_t>(malloc(bytes));
  return unsafe();
}
int cuMemFree_v2(uint64_t address) { return free(reinterpret_cast<void*>(address)), unsafe(); }
int cuMemcpyHtoDAsync_v2(uint64_t to, const void* from, size_t bytes, uintptr_t stream) {
  return memcpy(reinterpret_cast<void*>(to), from, bytes), on_stream(stream, false);
}
int cuMemcpyDtoHAsync_v2(void* to, uint64_t from, size_t bytes, uintptr_t stream) {
  return memcpy(to, reinterpret_cast<void*>(from), bytes), on_stream(stream, false);
}
int cuMemcpyDtoDAsync_v2(uint64_t to, uint64_t from, size_t bytes, uintptr_t stream) {
  return cuMemcpyHtoDAsync_v2(to, reinterpret_cast<void*>(from), bytes, stream);
}
int cuMemsetD8Async(uint64_t address, unsigned char byte, size_t bytes, uintptr_t stream) {
  return memset(reinterpret_cast<void*>(address), byte, bytes), on_stream(stream, false);
}
int cuModuleLoadData(uintptr_t* module, const char*) { return *module = made_here(1), unsafe(); }
int cuModuleGetFunction(uintptr_t* function, uintptr_t module, const char*) { return *function = module + 1, 0; }
int cuModuleGetGlobal_v2(uint64_t* address, size_t* bytes, uintptr_t, const char* name) {
  static uint64_t about[] = {8, 0}, fields[] = {0};  // The structure has 8 bytes and no fields.
  static char names[] = "";
  bool is_about = !strncmp(name, "about_", 6), is_names = !strncmp(name, "names_", 6);
  *address = reinterpret_cast<uint64_t>(is_about   ? static_cast<void*>(about)
                                        : is_names ? names
                                                   : static_cast<void*>(fields));
  *bytes = is_about ? sizeof about : is_names ? sizeof names : sizeof fields;
  return 0;
}
int cuFuncGetAttribute(int* value, int attribute, uintptr_t) { return *value = attribute ? 0 : 1024, 0; }
int cuFuncSetAttribute(uintptr_t, int, int) { return in_context(); }
int cuOccupancyMaxActiveClusters(int* count, uintptr_t function, void*) {
  return *count = 1, belongs_here(function) ? 0 : INVALID_HANDLE;
}
int cuLaunchKernelEx(void*, uintptr_t function, void**, void**) {
  if (!current()) return INVALID_CONTEXT;
  return belongs_here(function) ? (++launches, 0) : INVALID_HANDLE;
}

int fake_launches() { return launches; }
void fake_capture(uintptr_t stream) { capturing = stream; }
int fake_ended() { return ended; }
int fake_mode() { return mode; }
void fake_push(uintptr_t context) {
  ++*pycuda_stack();
  cuCtxPushCurrent_v2(context);
}
int fake_pop() {
  uintptr_t context;
  return *pycuda_stack() ? (--*pycuda_stack(), cuCtxPopCurrent_v2(&context)) : INVALID_CONTEXT;
}
// Calls a function in a thread that outlives the interpreter and ends with the process, like autograd's threads.
void fake_worker(void* function) {
  sem_init(&called, 0, 0);
  sem_init(&over, 0, 0);
  atexit(stop);
  pthread_create(&worker, nullptr, work, function);
  sem_wait(&called);
}
}
