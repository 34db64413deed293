/* The memo stores the answer of each call by its key. An entry is immutable once a thread can find it. */
typedef struct { uint32_t argument, bytes, offset; } Output;                   /* bytes to write behind an argument */
enum { SET = 1, CREATE, DESTROY, HOLD, NAME, POINT, STORE, ELEMENTS = 4 /* the array of cudnnBackendSetAttribute */ };
/* An effect changes an object or, for POINT, writes an address. HOLD, NAME and POINT use the address of argument `kind`. STORE copies
   `value` addresses of argument ELEMENTS into a variant pack, from its index `kind` on. */
typedef struct { uint32_t argument, what, kind, value; } Effect;
typedef struct { uint32_t first, second; uint64_t size, other_size; } Pair;    /* two operands, one of them written, and their bytes */
typedef struct { uint32_t argument, unused; uint64_t bytes; } Least;           /* minimum memory of an operand */
typedef struct { int32_t operand; uint32_t offset, is_map, unused; int64_t delta; } Place; /* an address in a kernel's arguments */
typedef struct { uint32_t offset, argument, is_double, divisors, data; } Scalar;           /* a scalar of the call, divided by constants */
typedef struct {
    uint64_t kernel; /* the driver's handle, or Python's number */
    uint32_t grid[3], block[3], shared_bytes, cooperative, overlaps, bytes, offset, first_place, places, first_scalar, scalars, unused;
} Step;

enum { OUTPUTS, EFFECTS, PAIRS, LEASTS, STEPS, PLACES_, SCALARS, DATA, SECTIONS };
static const unsigned SIZES[SECTIONS] = {sizeof(Output), sizeof(Effect), sizeof(Pair), sizeof(Least), sizeof(Step), sizeof(Place), sizeof(Scalar), 1};

typedef struct Entry {
    struct Entry *next, *listed;
    uint64_t hash, equal, scratch_bytes; /* equal: bit mask of operand pairs with equal addresses */
    const uint64_t *key;
    const char *text; /* message of an error */
    int status, by_driver;
    unsigned words, bytes, counts[SECTIONS];
    void *sections[SECTIONS];
} Entry;
#define SECTION(type, e, which) ((const type *)(e)->sections[which])

enum { BUCKETS = 1 << 15, VALUE_BYTES = 1400 /* approximate size of a value in Python */ };
static _Atomic(Entry *) buckets[BUCKETS];
static int memo_live; /* 1: the memo answers calls; 2: it also asks Python and compares */
static unsigned long long memo_entries, memo_bytes, memo_max_entries = 1 << 17, memo_max_bytes = 64 << 20;
static _Atomic unsigned long long memo_emptied /* how often the memo was emptied */, memo_asked_count, memo_compared, memo_differ;

static inline int memo_mode(void) { return __atomic_load_n(&memo_live, __ATOMIC_RELAXED); }
static void memo_limits(unsigned long long entries, unsigned long long bytes) { memo_max_entries = entries, memo_max_bytes = bytes; }

/* Unlink all entries and return 1 if there are too many. The caller holds memo_lock, and frees the entries after it releases the
   lock. */
static int memo_unlink(Entry **old)
{
    Entry *all = NULL;
    if (memo_entries < memo_max_entries && memo_bytes < memo_max_bytes) return 0;
    for (unsigned i = 0; i < BUCKETS; i++) {
        Entry *e = atomic_exchange(&buckets[i], NULL);
        for (Entry *after; e; e = after) { /* Readers follow `next`, so another link lists the entries to free. */
            after = e->next;
            e->listed = all, all = e;
        }
    }
    memo_entries = memo_bytes = 0;
    *old = all;
    return 1;
}

/* Free unlinked entries once no thread reads them. A fork need not wait, because memo_lock is free meanwhile. */
static void memo_free(Entry *all)
{
    await_readers();
    for (Entry *after; all; all = after) {
        after = all->listed;
        free(all);
    }
    atomic_fetch_add(&memo_emptied, 1);
}

/* Return a bit for each pair of operands with equal addresses. Return ~0 if two overlap otherwise, which Python checks on every
   call. */
static inline uint64_t equal_pairs(const Pair *pairs, unsigned count, const Call *k)
{
    uint64_t equal = 0;
    for (unsigned i = 0; i < count; i++) {
        int64_t distance = k->addresses[pairs[i].second] - k->addresses[pairs[i].first];
        if (__builtin_expect(-(int64_t)pairs[i].other_size < distance && distance < (int64_t)pairs[i].size, 0)) {
            if (distance || i > 62) return ~0ull;
            equal |= 1ull << i;
        }
    }
    return equal;
}

static const Entry *entry_of(const Call *k)
{
    uint64_t hash = key_hash(k);
    for (const Entry *e = atomic_load_explicit(&buckets[hash % BUCKETS], memory_order_acquire); e; e = e->next)
        if (e->hash == hash && e->words == k->count && !memcmp(e->key, k->words, 8 * k->count) &&
            (!e->counts[PAIRS] || equal_pairs(SECTION(Pair, e, PAIRS), e->counts[PAIRS], k) == e->equal))
            return e;
    return NULL;
}

/* Find an entry by the call's scalar values, else by the remaining key; the key then excludes the scalar values. */
static const Entry *entry_of_any(Call *k)
{
    const Entry *e = entry_of(k);
    if (e || !k->scaled) return e;
    Call exact = *k;
    key_any_value(k);
    e = entry_of(k);
    if (!e) *k = exact;
    return e;
}

static void entry_add(Entry *e)
{
    pthread_mutex_lock(&memo_lock);
    Entry *old;
    int is_emptied = memo_unlink(&old);
    _Atomic(Entry *) *bucket = &buckets[e->hash % BUCKETS];
    e->next = atomic_load(bucket);
    atomic_store_explicit(bucket, e, memory_order_release);
    memo_entries++, memo_bytes += e->bytes;
    pthread_mutex_unlock(&memo_lock);
    if (is_emptied) memo_free(old);
}

/* Python has a new value; its memory counts here, and it is forgotten with the entries. */
static int memo_value(unsigned value, int is_double)
{
    pthread_mutex_lock(&memo_lock);
    Entry *old;
    int is_emptied = memo_unlink(&old), known = value_new(value, is_double);
    memo_bytes += VALUE_BYTES;
    pthread_mutex_unlock(&memo_lock);
    if (is_emptied) memo_free(old);
    return known;
}

static unsigned long long memo_times_emptied(void) { return memo_emptied; }

/* counts: entries, bytes, calls passed to Python, hits, values, times emptied, compared hits, differing hits. */
static void memo_counts(unsigned long long *counts)
{
    unsigned long long hits = 0;
    for (Thread *t = atomic_load(&threads); t; t = t->next) hits += atomic_load(&t->hits);
    pthread_mutex_lock(&memo_lock);
    unsigned long long found[] = {memo_entries, memo_bytes, memo_asked_count, hits, values_known, memo_emptied, memo_compared, memo_differ};
    pthread_mutex_unlock(&memo_lock);
    memcpy(counts, found, sizeof found);
}
