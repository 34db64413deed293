/* An export answers by an entry, or asks Python, whose answer becomes one. */
enum { ASK = -1, LAUNCH = -7 /* Python: the launches of the call are kept, C makes them */ };

/* Whether memory that an operand has is as large as it must be, where somebody knows. */
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

/* The status; ASK where Python has to serve the call. places: of outputs. */
static int replay(Thread *t, const Entry *e, Call *k, void *const *places)
{
    if (e->counts[STEPS] && launch_all(e, k)) return ASK;
    for (unsigned i = 0; i < e->counts[OUTPUTS]; i++) {
        const Output *o = &SECTION(Output, e, OUTPUTS)[i];
        memcpy(places[o->argument], SECTION(unsigned char, e, DATA) + o->offset, o->bytes);
    }
    for (unsigned i = 0; i < e->counts[EFFECTS]; i++) {
        const Effect *f = &SECTION(Effect, e, EFFECTS)[i];
        if (f->what == SET) atomic_store_explicit(&k->slots[f->argument]->value, f->value, memory_order_release);
        else if (f->what == HOLD) atomic_store_explicit(&k->slots[f->argument]->held, k->addresses[f->kind], memory_order_relaxed);
        else if (f->what == NAME) atomic_store_explicit(&k->slots[f->argument]->named[f->value], k->addresses[f->kind], memory_order_release);
        else if (f->what == POINT) *(uint64_t *)places[f->argument] = k->addresses[f->kind] + f->value;
        else if (f->what == DESTROY) object_free(k->addresses[f->argument]);
        else if (!(*(uint64_t *)places[f->argument] = object_new(f->kind, f->value))) return ALLOC_FAILED;
    }
    if (e->text) memcpy(t->message, e->text, strlen(e->text) + 1);
    return e->status;
}

/* The status of a call that the memo knows; ASK of another. */
static __attribute__((noinline)) int answer(Thread *t, Call *k, void *const *places)
{
    int status = ASK;
    begin_reading(t);
    const Entry *e = entry_of_any(k);
    if (e && !memory_suffices(e, k)) k->keyed = 0; /* Python says which operand is too small */
    else if (e && memo_mode() == 2) t->expected = e;
    else if (e) status = replay(t, e, k, places);
    end_reading(t);
    if (status != ASK) atomic_store_explicit(&t->hits, atomic_load_explicit(&t->hits, memory_order_relaxed) + 1, memory_order_relaxed);
    return status;
}

/* Before Python is asked; returns the call of this thread that Python serves meanwhile, whose log callback calls back. */
static inline Call *asking(Thread *t, Call *k)
{
    Call *outer = t->asked;
    t->asked = k->keyed ? k : NULL;
    atomic_fetch_add_explicit(&memo_asked_count, 1, memory_order_relaxed);
    return outer;
}

/* Make the launches that Python has kept. ASK: they were refused, or forgotten meanwhile. */
static int launch_kept(Thread *t, Call *k)
{
    begin_reading(t);
    const Entry *e = entry_of(k);
    int status = e ? replay(t, e, k, NULL) : ASK;
    end_reading(t);
    t->asked = NULL; /* what Python launches itself is not kept */
    return status;
}

static const char *difference_of(Thread *t, const Call *k)
{
    const char *found = t->difference ? t->difference : t->expected && k->keyed ? "Python has no answer that is kept" : NULL;
    t->difference = NULL, t->expected = NULL;
    return found;
}

/* After Python has answered: the status, which is INTERNAL_ERROR where the memo had another answer (DUALDNN_MEMO=check). */
static inline int asked(Thread *t, const Call *k, Call *outer, int status, const char *name)
{
    t->asked = outer;
    const char *different = difference_of(t, k);
    if (!different) return status;
    atomic_fetch_add(&memo_differ, 1);
    snprintf(t->message, MESSAGE_BYTES, "%s: CUDNN_STATUS_INTERNAL_ERROR: the memo differs from Python: %s", name, different);
    fprintf(stderr, "%s\n", t->message);
    return INTERNAL_ERROR;
}
