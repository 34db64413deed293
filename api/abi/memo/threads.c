/* Each thread has state of its own. Entries are freed although calls that find them take no lock.

   A thread's counter is odd while it reads entries. Who frees some unlinks them first and waits until each thread whose counter was odd
   has moved on. The kernel's membarrier stands for the fences that readers would need. */
enum { KINDS = 32, FREE_KEPT = 16, MESSAGE_BYTES = 8192 };
enum { NOT_INITIALIZED = DUALDNN_NOT_INITIALIZED, ALLOC_FAILED = DUALDNN_ALLOC_FAILED, INTERNAL_ERROR = DUALDNN_INTERNAL_ERROR };

typedef struct Thread {
    _Atomic uint64_t reads;
    _Atomic int used; /* by a thread that lives; the next one takes it over */
    struct Thread *next;
    _Atomic unsigned long long hits;
    struct Call *asked;           /* the call that Python serves, where the memo may keep it */
    const struct Entry *expected; /* what the memo has for that call, where Python is asked all the same */
    const char *difference;       /* what Python says otherwise */
    struct Draft *draft;
    struct { uint32_t place[FREE_KEPT], count; } free_places[KINDS];
    char message[MESSAGE_BYTES]; /* of the last call that was refused */
} Thread;

static _Atomic(Thread *) threads;
static __thread Thread *own_thread;
static pthread_key_t thread_ends;
static int readers_fence; /* where the kernel has no membarrier */
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

/* NULL: there is no memory for it. */
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

/* Wait until no thread reads what was unlinked before. The caller does not read. */
static void await_readers(void)
{
    if (readers_fence) atomic_thread_fence(memory_order_seq_cst);
    else syscall(SYS_membarrier, 8 /* MEMBARRIER_CMD_PRIVATE_EXPEDITED */, 0, 0);
    for (Thread *t = atomic_load(&threads); t; t = t->next) {
        uint64_t reads = atomic_load(&t->reads);
        while (reads % 2 && atomic_load(&t->reads) == reads) sched_yield();
    }
}

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
static void in_child(void) /* where the other threads are not */
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
