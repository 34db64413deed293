/* This libcuda.so.1 has the kernels of the emulated device, so that C's launches on a GPU run without one. A kernel's handle is the
   address of three words: the kernel, its launcher, the memory of all launches (runtime/emulated/scheduler.h, Launch). */
#include <pthread.h>
#include <stdint.h>
#include <string.h>

typedef struct { int id, padding, value, rest[15]; } Attribute;
typedef struct { unsigned grid[3], block[3], shared_bytes; void *stream; Attribute *attributes; unsigned count; } Config;
typedef struct {
    const void *kernel, *arguments;
    unsigned grid[3], block[3], shared_bytes, seed;
    const void *memory;
    size_t memory_count;
    void *mappings;
    unsigned failed, block_index[3], thread_index[3];
    uint64_t instruction, other_instruction, address;
    char message[1024];
} Launch;
typedef struct { void *kernel; void (*launch)(Launch *); void *mappings; } Kernel;
enum { CONTEXT = 77, INVALID_VALUE = 1, INVALID_CONTEXT = 201, LAUNCH_FAILED = 719 };

long driver_launches, driver_maps, driver_attributes;
int driver_refuses;       /* status of the next launches; 0 runs them */
int driver_capturing;     /* whether every stream is capturing */
uint64_t driver_stream;   /* stream of the last launch */
__thread void *driver_current;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

int cuCtxGetCurrent(void **context) { return *context = driver_current, 0; }
int cuCtxSetCurrent(void *context) { return driver_current = context, 0; }
int cuStreamIsCapturing(void *stream, int *status) { return (void)stream, *status = driver_capturing, 0; }
void *driver_context(void) { return driver_current; }

int cuTensorMapReplaceAddress(void *map, void *address)
{
    if ((uintptr_t)map % 64 || (uintptr_t)address % 16) return INVALID_VALUE;
    memcpy(map, &address, 8); /* The emulated device has the address there. */
    return driver_maps++, 0;
}

int cuLaunchKernelEx(const Config *config, Kernel *kernel, void **parameters, void **extra)
{
    static Launch l;
    if (driver_current != (void *)CONTEXT) return INVALID_CONTEXT;
    if (driver_refuses) return driver_refuses;
    if (extra) return INVALID_VALUE;
    for (unsigned i = 0; i < config->count; i++)
        if ((config->attributes[i].id != 2 && config->attributes[i].id != 6) || config->attributes[i].value != 1) return INVALID_VALUE;
    pthread_mutex_lock(&lock);
    driver_launches++, driver_attributes += config->count, driver_stream = (uint64_t)config->stream;
    l.kernel = kernel->kernel, l.arguments = parameters[0], l.shared_bytes = config->shared_bytes, l.seed = 0;
    memcpy(l.grid, config->grid, sizeof l.grid), memcpy(l.block, config->block, sizeof l.block);
    l.memory = NULL, l.memory_count = 0, l.mappings = kernel->mappings, l.failed = 0;
    kernel->launch(&l);
    int failed = l.failed;
    pthread_mutex_unlock(&lock);
    return failed ? LAUNCH_FAILED : 0;
}
