/* Python fills the memo with these functions: it describes a call part by part, then keeps the description. */
typedef struct { unsigned char *data; size_t bytes, room; } Part;
typedef struct Draft {
    Part parts[SECTIONS];
    uint64_t scratch_bytes;
    int by_driver, any_value, failed; /* any_value: the launches are valid for all scalars. */
} Draft;

static unsigned draft_count(const Draft *d, int section) { return d->parts[section].bytes / SIZES[section]; }

static int memo_asks(void) { return own_thread && own_thread->asked && memo_mode(); }

/* Begin to describe the call that Python serves in this thread. */
static int draft_begin(void)
{
    Thread *t = thread();
    if (!t || (!t->draft && !(t->draft = calloc(1, sizeof(Draft))))) return 0;
    for (int i = 0; i < SECTIONS; i++) t->draft->parts[i].bytes = 0;
    t->draft->scratch_bytes = 0, t->draft->by_driver = t->draft->any_value = t->draft->failed = 0;
    return 1;
}

/* Append bytes, and return their offset. */
static unsigned draft_add(Draft *d, int section, const void *data, size_t bytes)
{
    Part *p = &d->parts[section];
    if (p->bytes + bytes > p->room) {
        size_t room = 2 * (p->bytes + bytes) + 256;
        unsigned char *larger = realloc(p->data, room);
        if (!larger) return d->failed = 1, 0;
        p->data = larger, p->room = room;
    }
    if (bytes) memcpy(p->data + p->bytes, data, bytes);
    p->bytes += bytes;
    return p->bytes - bytes;
}
static unsigned draft_data(Draft *d, const void *data, unsigned bytes)
{
    static const unsigned char none[16];
    draft_add(d, DATA, none, -d->parts[DATA].bytes % 16);
    return draft_add(d, DATA, data, bytes);
}

static void draft_output(unsigned argument, const void *data, unsigned bytes)
{
    Draft *d = own_thread->draft;
    Output o = {argument, bytes, draft_data(d, data, bytes)};
    draft_add(d, OUTPUTS, &o, sizeof o);
}
static void draft_effect(unsigned argument, unsigned what, unsigned kind, unsigned value)
{
    Effect f = {argument, what, kind, value};
    draft_add(own_thread->draft, EFFECTS, &f, sizeof f);
}
static void draft_pair(unsigned first, unsigned second, uint64_t bytes, uint64_t other)
{
    Pair p = {first, second, bytes, other};
    draft_add(own_thread->draft, PAIRS, &p, sizeof p);
}
static void draft_least(unsigned argument, uint64_t bytes)
{
    Least l = {argument, 0, bytes};
    draft_add(own_thread->draft, LEASTS, &l, sizeof l);
}
static void draft_launches(int by_driver, uint64_t scratch_bytes, int any_value)
{
    Draft *d = own_thread->draft;
    d->by_driver = by_driver, d->scratch_bytes = scratch_bytes, d->any_value = any_value;
}
/* shape: three grid sizes, three block sizes, bytes of shared memory, cooperative, overlaps. */
static void draft_step(uint64_t kernel, const unsigned *shape, const void *arguments, unsigned bytes)
{
    Draft *d = own_thread->draft;
    Step s = {kernel, {shape[0], shape[1], shape[2]}, {shape[3], shape[4], shape[5]}, shape[6], shape[7], shape[8], bytes,
        draft_data(d, arguments, bytes), draft_count(d, PLACES_), 0, draft_count(d, SCALARS), 0, 0};
    draft_add(d, STEPS, &s, sizeof s);
}
static void draft_place(unsigned offset, int operand, long long delta, int is_map)
{
    Draft *d = own_thread->draft;
    Place p = {operand, offset, is_map, 0, delta};
    draft_add(d, PLACES_, &p, sizeof p);
    if (!d->failed) ((Step *)(d->parts[STEPS].data + d->parts[STEPS].bytes))[-1].places++;
}

static void draft_scalar(unsigned offset, unsigned argument, int is_double, const double *divisors, unsigned count)
{
    Draft *d = own_thread->draft;
    Scalar s = {offset, argument, is_double, count, draft_data(d, divisors, count * sizeof *divisors)};
    draft_add(d, SCALARS, &s, sizeof s);
    if (!d->failed) ((Step *)(d->parts[STEPS].data + d->parts[STEPS].bytes))[-1].scalars++;
}

/* Compare the arguments of two launches with the call's scalars, ignoring addresses, whose offsets agree. */
static int steps_differ(const Entry *e, const Draft *d, unsigned i, const Call *k)
{
    const Step *a = &SECTION(Step, e, STEPS)[i], *b = &((const Step *)d->parts[STEPS].data)[i];
    if (memcmp(a, b, sizeof *a)) return 1;
    unsigned char ours[a->bytes], theirs[a->bytes];
    memcpy(ours, SECTION(unsigned char, e, DATA) + a->offset, a->bytes);
    memcpy(theirs, d->parts[DATA].data + b->offset, a->bytes);
    scalars_into(ours, SECTION(Scalar, e, SCALARS) + a->first_scalar, a->scalars, SECTION(unsigned char, e, DATA), k);
    for (unsigned j = a->first_place; j < a->first_place + a->places; j++) {
        unsigned offset = SECTION(Place, e, PLACES_)[j].offset;
        memcpy(ours + offset, theirs + offset, 8);
    }
    return memcmp(ours, theirs, a->bytes);
}

/* Return how the memo's entry differs from Python's description, or NULL if it does not. */
static const char *difference(const Entry *e, const Draft *d, const Call *k, int status, const char *text)
{
    static const char *const names[] = {
        "outputs", "effects", "pairs of operands", "sizes of memory", "launches", "places of addresses", "scalars of launches"};
    if (e->status != status) return "status";
    if (!e->text != !text || (text && strcmp(e->text, text))) return "message";
    if (e->scratch_bytes != d->scratch_bytes || e->by_driver != d->by_driver) return "scratch memory";
    for (int i = 0; i < DATA; i++)
        if (e->counts[i] != draft_count(d, i) || (i != STEPS && e->counts[i] && memcmp(e->sections[i], d->parts[i].data, d->parts[i].bytes)))
            return names[i];
    for (unsigned i = 0; i < e->counts[STEPS]; i++)
        if (steps_differ(e, d, i, k)) return names[STEPS];
    for (unsigned i = 0; i < e->counts[OUTPUTS]; i++) {
        const Output *o = &SECTION(Output, e, OUTPUTS)[i];
        if (memcmp(SECTION(unsigned char, e, DATA) + o->offset, d->parts[DATA].data + o->offset, o->bytes)) return "bytes of an output";
    }
    return NULL;
}

static Entry *entry_of_draft(const Draft *d, const Call *k, int status, const char *text)
{
    size_t words = 8 * (size_t)k->count, length = text ? strlen(text) + 1 : 0, bytes = sizeof(Entry) + words + length + 16 * (SECTIONS + 2);
    for (int i = 0; i < SECTIONS; i++) bytes += d->parts[i].bytes;
    Entry *e = calloc(1, bytes);
    if (!e) return NULL;
    unsigned char *at = (unsigned char *)(e + 1);
    e->key = memcpy(at, k->words, words), at += words;
    for (int i = 0; i < SECTIONS; i++) {
        at += -(uintptr_t)at % 16;
        e->sections[i] = at, e->counts[i] = draft_count(d, i);
        if (d->parts[i].bytes) memcpy(at, d->parts[i].data, d->parts[i].bytes);
        at += d->parts[i].bytes;
    }
    if (text) e->text = memcpy(at, text, length);
    e->hash = key_hash(k), e->words = k->count, e->bytes = bytes, e->status = status;
    e->scratch_bytes = d->scratch_bytes, e->by_driver = d->by_driver;
    e->equal = equal_pairs(SECTION(Pair, e, PAIRS), e->counts[PAIRS], k);
    return e;
}

/* Keep the description of the call, or compare it with the memo's entry. text: message of an error. Return 0 if it is not kept. */
static int draft_keep(int status, const char *text)
{
    Thread *t = own_thread;
    Draft *d = t->draft;
    Call *k = t->asked;
    if (t->expected) {
        begin_reading(t);
        const Entry *e = entry_of(k); /* This is the same entry, unless the memo was emptied. */
        t->difference = e && e == t->expected ? difference(e, d, k, status, text) : NULL;
        end_reading(t);
        t->expected = NULL;
        atomic_fetch_add(&memo_compared, 1);
        if (e) return 1;
    }
    if (!k || d->failed || (text && strlen(text) >= MESSAGE_BYTES)) return 0;
    if (d->any_value) key_any_value(k);
    Entry *e = entry_of_draft(d, k, status, text);
    if (!e) return 0;
    if (e->equal == ~0ull) return free(e), 0;
    entry_add(e);
    return 1;
}
