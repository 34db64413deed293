/* An export answers from an entry, or asks Python, whose answer becomes an entry. */
enum { ASK = -1, LAUNCH = -7 /* Python recorded the launches, and C runs them. */ };

/* Return whether each operand's memory is large enough, as far as its size is known. */
static int memory_suffices(const Entry *e, const Call *k)
{
    unsigned count = e->counts[LEASTS];
    if (!count) return 1;
    uint64_t addresses[ARGUMENTS], bytes[ARGUMENTS];
    for (unsigned i = 0; i < count; i++) {
        const Least *least = &SECTION(Least, e, LEASTS)[i];
        addresses[i] = k->addresses[least->argument], bytes[i] = least->bytes;
    }
    return py_memo_fits(addresses, bytes, count);
}

/* Run an entry and return its status, or ASK if Python has to serve the call. words: arguments of the call. */
static int replay(Thread *t, const Entry *e, Call *k, const uint64_t *words)
{
    if (e->counts[STEPS] && launch_all(e, k)) return ASK;
    for (unsigned i = 0; i < e->counts[OUTPUTS]; i++) {
        const Output *o = &SECTION(Output, e, OUTPUTS)[i];
        memcpy((void *)words[o->argument], SECTION(unsigned char, e, DATA) + o->offset, o->bytes);
    }
    for (unsigned i = 0; i < e->counts[EFFECTS]; i++) {
        const Effect *f = &SECTION(Effect, e, EFFECTS)[i];
        if (f->what == SET) atomic_store_explicit(&k->slots[f->argument]->value, f->value, memory_order_release);
        else if (f->what == HOLD) atomic_store_explicit(&k->slots[f->argument]->held, k->addresses[f->kind], memory_order_relaxed);
        else if (f->what == NAME) atomic_store_explicit(&k->slots[f->argument]->named[f->value], k->addresses[f->kind], memory_order_release);
        else if (f->what == POINT) *(uint64_t *)words[f->argument] = k->addresses[f->kind] + f->value;
        else if (f->what == STORE) {
            if (!variant_store(k->slots[f->argument], f->kind, (const uint64_t *)words[ELEMENTS], f->value)) return ALLOC_FAILED;
        } else if (f->what == DESTROY) object_free(k->addresses[f->argument]);
        else if (!(*(uint64_t *)words[f->argument] = object_new(f->kind, f->value))) return ALLOC_FAILED;
    }
    if (e->text) memcpy(t->message, e->text, strlen(e->text) + 1);
    return e->status;
}

/* Return the status of a known call, or ASK. */
static __attribute__((noinline)) int answer(Thread *t, Call *k, const uint64_t *words)
{
    int status = ASK;
    begin_reading(t);
    const Entry *e = entry_of_any(k);
    if (e && !memory_suffices(e, k)) k->keyed = 0; /* Python then reports which operand is too small. */
    else if (e && memo_mode() == 2) t->expected = e;
    else if (e) status = replay(t, e, k, words);
    end_reading(t);
    if (status != ASK) atomic_store_explicit(&t->hits, atomic_load_explicit(&t->hits, memory_order_relaxed) + 1, memory_order_relaxed);
    return status;
}

/* Run the launches that Python recorded. Return ASK if they failed or the memo forgot them. */
static int launch_kept(Thread *t, Call *k, const uint64_t *words)
{
    begin_reading(t);
    const Entry *e = entry_of(k);
    int status = e ? replay(t, e, k, words) : ASK;
    end_reading(t);
    t->asked = NULL; /* Launches that Python runs itself are not recorded. */
    return status;
}

static const char *difference_of(Thread *t, const Call *k)
{
    const char *found = t->difference ? t->difference : t->expected && k->keyed ? "Python has no answer that is kept" : NULL;
    t->difference = NULL, t->expected = NULL;
    return found;
}

/* Python serves a call, whose arguments are words, by the number of its function. */
static long long py_serve(unsigned function, const uint64_t *words);
#define WORD(type, argument) (((union { type number; uint64_t word; }){.number = argument}).word)

/* Return Python's answer, or INTERNAL_ERROR if the memo had a different one (DUALDNN_MEMO=check). */
static __attribute__((noinline)) long long asked(Thread *t, Call *k, unsigned function, const uint64_t *words, const char *name)
{
    Call *outer = t->asked; /* A log callback may call the library. */
    t->asked = k->keyed ? k : NULL;
    atomic_fetch_add_explicit(&memo_asked_count, 1, memory_order_relaxed);
    long long status = py_serve(function, words);
    if (status == LAUNCH && (status = launch_kept(t, k, words)) == ASK) status = py_serve(function, words);
    t->asked = outer;
    const char *different = difference_of(t, k);
    if (!different) return status;
    atomic_fetch_add(&memo_differ, 1);
    snprintf(t->message, MESSAGE_BYTES, "%s: CUDNN_STATUS_INTERNAL_ERROR: the memo differs from Python: %s", name, different);
    fprintf(stderr, "%s\n", t->message);
    return INTERNAL_ERROR;
}

/* Return the answer of a call. */
static inline long long served(Thread *t, Call *k, unsigned function, const uint64_t *words, const char *name)
{
    int known = k->keyed ? answer(t, k, words) : ASK;
    return known != ASK ? known : asked(t, k, function, words, name);
}
