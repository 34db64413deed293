/* Each thread has its own state. Entries can be freed although calls find them without a lock.

   A thread's counter is odd while it reads entries. To free entries, a thread unlinks them, then waits until every odd counter
   has changed. The kernel's membarrier replaces the fences that readers would need. */
enum { KINDS = 32, FREE_KEPT = 16, MESSAGE_BYTES = 8192 };
enum { NOT_INITIALIZED = DUALDNN_NOT_INITIALIZED, ALLOC_FAILED = DUALDNN_ALLOC_FAILED, INTERNAL_ERROR = DUALDNN_INTERNAL_ERROR };

typedef struct Thread {
    _Atomic uint64_t reads;
    _Atomic int used; /* whether a living thread uses it; a later thread reuses it */
    struct Thread *next;
    _Atomic unsigned long long hits;
    struct Call *asked;           /* call that Python serves, if the memo may keep it */
    const struct Entry *expected; /* the memo's entry for that call, if Python's answer is compared */
    const char *difference;       /* how Python's answer differs */
    struct Draft *draft;
    struct { uint32_t place[FREE_KEPT], count; } free_places[KINDS];
    char message[MESSAGE_BYTES]; /* message of the last error */
} Thread;

static _Atomic(Thread *) threads;
static __thread Thread *own_thread;
static pthread_key_t thread_ends;
static int readers_fence; /* 1 if the kernel lacks membarrier */
static pthread_mutex_t objects_lock = PTHREAD_MUTEX_INITIALIZER, memo_lock = PTHREAD_MUTEX_INITIALIZER;

static void thread_gone(void *given) { atomic_store(&((Thread *)given)->used, 0); }

static Thread *thread_new(void)
{
    Thread *t = atomic_load(&threads);
    for (; t; t = t->next) {
        int no = 0;
        if (atomic_compare_exchange_strong(&t->used, &no, 1)) break;
    }
    if (!t) {
        t = calloc(1, sizeof *t);
        if (!t) return NULL;
        atomic_store(&t->used, 1);
        t->next = atomic_load(&threads);
        while (!atomic_compare_exchange_weak(&threads, &t->next, t)) continue;
    }
    t->asked = NULL, t->expected = NULL, t->difference = NULL, t->message[0] = 0;
    pthread_setspecific(thread_ends, t);
    return own_thread = t;
}

/* Return the thread's state, or NULL if there is no memory. */
static inline Thread *thread(void) { return own_thread ? own_thread : thread_new(); }

static inline void begin_reading(Thread *t)
{
    atomic_store_explicit(&t->reads, atomic_load_explicit(&t->reads, memory_order_relaxed) + 1, memory_order_relaxed);
    if (readers_fence) atomic_thread_fence(memory_order_seq_cst);
    else atomic_signal_fence(memory_order_seq_cst);
}

static inline void end_reading(Thread *t)
{
    atomic_store_explicit(&t->reads, atomic_load_explicit(&t->reads, memory_order_relaxed) + 1, memory_order_release);
}

/* Wait until no thread reads entries that were unlinked earlier. The caller must not be reading. */
static void await_readers(void)
{
    if (readers_fence) atomic_thread_fence(memory_order_seq_cst);
    else syscall(SYS_membarrier, 8 /* MEMBARRIER_CMD_PRIVATE_EXPEDITED */, 0, 0);
    for (Thread *t = atomic_load(&threads); t; t = t->next) {
        uint64_t reads = atomic_load(&t->reads);
        while (reads % 2 && atomic_load(&t->reads) == reads) sched_yield();
    }
}

/* Store a result behind a pointer of the caller. */
static void store(uint64_t address, const void *data, unsigned bytes) { memcpy((void *)address, data, bytes); }

static void dualdnn_say(const char *text)
{
    Thread *t = thread();
    if (t) snprintf(t->message, MESSAGE_BYTES, "%s", text);
}

void cudnnGetLastErrorString(char *place, size_t size)
{
    Thread *t = thread();
    if (!place || !size || !t) return;
    snprintf(place, size, "%s", t->message);
    t->message[0] = 0;
}

static void before_fork(void) { pthread_mutex_lock(&objects_lock), pthread_mutex_lock(&memo_lock); }
static void after_fork(void) { pthread_mutex_unlock(&memo_lock), pthread_mutex_unlock(&objects_lock); }

static void objects_in_child(void);
static void in_child(void) /* The child has no other threads. */
{
    for (Thread *t = atomic_load(&threads); t; t = t->next)
        if (t != own_thread) {
            if (atomic_load(&t->reads) % 2) atomic_fetch_add(&t->reads, 1);
            atomic_store(&t->used, 0);
        }
    objects_in_child();
    after_fork();
}

__attribute__((constructor)) static void memo_loaded(void)
{
    readers_fence = syscall(SYS_membarrier, 16 /* MEMBARRIER_CMD_REGISTER_PRIVATE_EXPEDITED */, 0, 0) != 0;
    pthread_key_create(&thread_ends, thread_gone);
    pthread_atfork(before_fork, after_fork, in_child);
}
