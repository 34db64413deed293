/* The launches of an entry are repeated by the driver, or by Python on a device that only Python can access. */
typedef struct { int name, padding, value, rest[15]; } LaunchAttribute; /* CUlaunchAttribute */
typedef struct { unsigned grid[3], block[3], shared_bytes; void *stream; LaunchAttribute *attributes; unsigned count; } LaunchConfig;
enum { COOPERATIVE = 2, PROGRAMMATIC_STREAM_SERIALIZATION = 6 };

static struct {
    int (*launch)(const LaunchConfig *, void *, void **, void **), (*replace)(void *, void *);
    int (*get_context)(void **), (*set_context)(void *), (*is_capturing)(void *, int *);
    void *context; /* context of the handles' device */
} driver;

/* Return 1 if the driver has the functions for launches. context: the context in which the kernels were loaded. */
static int driver_open(uintptr_t context)
{
    void *library = dlopen("libcuda.so.1", RTLD_NOW);
    if (!library) return 0;
    *(void **)&driver.replace = dlsym(library, "cuTensorMapReplaceAddress");
    *(void **)&driver.get_context = dlsym(library, "cuCtxGetCurrent");
    *(void **)&driver.set_context = dlsym(library, "cuCtxSetCurrent");
    *(void **)&driver.is_capturing = dlsym(library, "cuStreamIsCapturing");
    *(void **)&driver.launch = dlsym(library, "cuLaunchKernelEx");
    driver.context = (void *)context;
    if (!context && driver.get_context) driver.get_context(&driver.context);
    return driver.launch && driver.get_context && driver.set_context && driver.context;
}

/* Python allocates this scratch memory for launches on a stream, and never frees it. */
enum { SCRATCHES = 64 };
static struct { uint64_t stream, address, bytes; _Atomic int busy; } scratches[SCRATCHES];
static _Atomic unsigned scratch_count;

/* Return the index of scratch memory with enough bytes, or SCRATCHES. */
static unsigned scratch_of(uint64_t stream, uint64_t bytes)
{
    unsigned count = atomic_load_explicit(&scratch_count, memory_order_acquire), i = 0;
    while (i < count && (scratches[i].stream != stream || scratches[i].bytes < bytes)) i++;
    return i < count ? i : SCRATCHES;
}

/* Add memory for a stream; Python calls this while it holds its lock. Return 0 if the table is full. */
static int scratch_add(uint64_t stream, uint64_t address, uint64_t bytes)
{
    pthread_mutex_lock(&memo_lock);
    unsigned i = atomic_load(&scratch_count);
    if (i < SCRATCHES) {
        scratches[i].stream = stream, scratches[i].address = address, scratches[i].bytes = bytes;
        atomic_store_explicit(&scratch_count, i + 1, memory_order_release);
    }
    pthread_mutex_unlock(&memo_lock);
    return i < SCRATCHES;
}
static int scratch_is_known(uint64_t stream, uint64_t bytes) { return scratch_of(stream, bytes) < SCRATCHES; }

/* Launch on the device that only Python can access; a nonzero result is a failure. */
static int py_memo_launch(uint64_t kernel, uintptr_t arguments, unsigned bytes, uint64_t stream);
static uint64_t py_memo_scratch(uint64_t bytes);
static int py_memo_fits(const uint64_t *addresses, const uint64_t *bytes, unsigned count);

static int launch_by_driver(const Step *s, void *arguments, uint64_t stream)
{
    LaunchAttribute attributes[2] = {{0}};
    unsigned count = 0;
    if (s->cooperative) attributes[count].name = COOPERATIVE, attributes[count++].value = 1;
    if (s->overlaps) attributes[count].name = PROGRAMMATIC_STREAM_SERIALIZATION, attributes[count++].value = 1;
    LaunchConfig config = {{s->grid[0], s->grid[1], s->grid[2]}, {s->block[0], s->block[1], s->block[2]}, s->shared_bytes,
        (void *)stream, count ? attributes : NULL, count};
    void *parameters[1] = {arguments};
    return driver.launch(&config, (void *)s->kernel, parameters, NULL);
}

/* Write a call's scalars into a kernel's arguments. data: holds their divisors. */
static void scalars_into(unsigned char *arguments, const Scalar *scalars, unsigned count, const unsigned char *data, const Call *k)
{
    for (const Scalar *s = scalars; s < scalars + count; s++) {
        double value = k->values[s->argument];
        for (unsigned i = 0; i < s->divisors; i++) value /= ((const double *)(data + s->data))[i];
        float narrow = (float)value;
        memcpy(arguments + s->offset, s->is_double ? (void *)&value : (void *)&narrow, s->is_double ? 8 : 4);
    }
}

static int launch_step(const Entry *e, const Step *s, const Call *k, uint64_t stream, uint64_t scratch)
{
    unsigned char arguments[s->bytes] __attribute__((aligned(64))); /* Tensor maps need 64-byte alignment. */
    memcpy(arguments, SECTION(unsigned char, e, DATA) + s->offset, s->bytes);
    const Place *places = SECTION(Place, e, PLACES_) + s->first_place;
    for (const Place *p = places; p < places + s->places; p++) {
        uint64_t address = p->operand >= 0 ? k->addresses[p->operand] + p->delta : p->operand == -2 ? scratch + p->delta : 0;
        if (p->is_map && e->by_driver) {
            if (driver.replace(arguments + p->offset, (void *)address)) return 1;
        } else
            memcpy(arguments + p->offset, &address, 8);
    }
    scalars_into(arguments, SECTION(Scalar, e, SCALARS) + s->first_scalar, s->scalars, SECTION(unsigned char, e, DATA), k);
    return e->by_driver ? launch_by_driver(s, arguments, stream) : py_memo_launch(s->kernel, (uintptr_t)arguments, s->bytes, stream);
}

/* Run all steps in the handle's stream and context. A nonzero result means that Python has to run them, or report the error. */
static int launch_all(const Entry *e, const Call *k)
{
    uint64_t stream = atomic_load_explicit(&k->handle->held, memory_order_relaxed), address = 0;
    _Atomic int *busy[2] = {NULL, NULL}; /* Steps of two calls must not interleave on one handle or in shared scratch memory. */
    if (e->scratch_bytes && e->by_driver) {
        int capturing = 0; /* A captured graph needs its own scratch memory from Python, because it may run on any stream. */
        if (driver.is_capturing && (driver.is_capturing((void *)stream, &capturing) || capturing)) return 1;
        unsigned i = scratch_of(stream, e->scratch_bytes);
        if (i == SCRATCHES) return 1;
        address = scratches[i].address, busy[1] = &scratches[i].busy;
    } else if (e->scratch_bytes && !(address = py_memo_scratch(e->scratch_bytes)))
        return 1;
    void *context = driver.context;
    if (e->by_driver && !driver.get_context(&context) && context != driver.context && driver.set_context(driver.context)) return 1;
    if (e->counts[STEPS] > 1) busy[0] = &k->handle->busy;
    for (int i = 0; i < 2; i++)
        if (busy[i]) slot_lock(busy[i]);
    int refused = 0;
    for (unsigned i = 0; i < e->counts[STEPS] && !refused; i++) refused = launch_step(e, &SECTION(Step, e, STEPS)[i], k, stream, address);
    for (int i = 1; i >= 0; i--)
        if (busy[i]) slot_unlock(busy[i]);
    if (context != driver.context) driver.set_context(context);
    return refused;
}
