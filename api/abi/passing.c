/* A border that observes another library passes calls on to that library without Python, until a time that Python sets. */
static void *passed_to[FUNCTIONS]; /* the library's own functions, by the number of the export; 0: Python sees every call */
static atomic_ullong passed_calls[FUNCTIONS];
static atomic_llong passed_until; /* nanoseconds of CLOCK_MONOTONIC; 0: no call is passed on */

/* Returns whether a call goes to the library at once, and counts it. */
static int passes(unsigned number)
{
    long long until = atomic_load_explicit(&passed_until, memory_order_relaxed);
    if (!until || !passed_to[number]) return 0;
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    if (now.tv_sec * 1000000000ll + now.tv_nsec >= until) return 0;
    atomic_fetch_add_explicit(&passed_calls[number], 1, memory_order_relaxed);
    return 1;
}

static void pass_to(unsigned number, uintptr_t function)
{
    passed_to[number] = (void *)function;
}

static void pass_until(long long nanoseconds)
{
    atomic_store(&passed_until, nanoseconds);
}

static unsigned long long passed(unsigned number)
{
    return atomic_load(&passed_calls[number]);
}
