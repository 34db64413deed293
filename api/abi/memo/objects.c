/* This file stores handles and descriptors. The pointer that a program holds is a number, (generation << 27) | (kind << 22) |
   (place << 4), with which C finds the object without dereferencing it. A place never changes its kind, and no generation
   repeats, so destroyed objects are always recognised.

   A descriptor has the number of its value, which Python stores; 0 means that only Python has its state. A handle has the
   number of its backend. State that differs between equal values is separate: the address that an object holds, and the objects
   that it refers to. */
enum { CHUNKS = 256, CHUNK = 1024, PLACES = CHUNKS * CHUNK, HANDLE = 31, NAMES = 2, POINTERS = 32 };
#define GENERATION (1ull << 27)

/* The addresses of a variant pack: its workspace, then its pointers. */
typedef struct { _Atomic unsigned count; _Atomic uint64_t address[POINTERS]; } Variant;

typedef struct {
    _Atomic uint64_t number; /* number of the current or the next object */
    _Atomic uint32_t value, live;
    uint32_t next_free; /* place + 1, or 0 */
    _Atomic uint64_t held; /* stream of a handle, or states of a dropout descriptor */
    _Atomic uint64_t named[NAMES]; /* dropout descriptors that the setter of a network or attention was given; handle of a plan */
    _Atomic(Variant *) variant; /* memory for a variant pack, which later objects of the place reuse */
    _Atomic int busy; /* lock of a thread that launches several kernels of one call */
} Slot;

static _Atomic(Slot *) chunks[KINDS][CHUNKS];
static uint32_t free_slots[KINDS], used_slots[KINDS]; /* free_slots: place + 1 */

static inline unsigned kind_of(uint64_t number) { return number >> 22 & (KINDS - 1); }
static inline unsigned place_of(uint64_t number) { return number >> 4 & (PLACES - 1); }

static inline Slot *slot_at(unsigned kind, unsigned place)
{
    Slot *chunk = atomic_load_explicit(&chunks[kind][place / CHUNK], memory_order_acquire);
    return chunk ? &chunk[place % CHUNK] : NULL;
}

/* Return the slot of a number, or NULL if it never existed or its object is destroyed. */
static inline Slot *slot_of(uint64_t number)
{
    Slot *slot = slot_at(kind_of(number), place_of(number));
    if (!slot || atomic_load_explicit(&slot->number, memory_order_relaxed) != number) return NULL;
    return atomic_load_explicit(&slot->live, memory_order_relaxed) ? slot : NULL;
}

/* Return a free place, or PLACES if there is none or no memory. */
static uint32_t place_new(unsigned kind)
{
    uint32_t place = PLACES;
    pthread_mutex_lock(&objects_lock);
    if (free_slots[kind]) {
        place = free_slots[kind] - 1;
        free_slots[kind] = slot_at(kind, place)->next_free;
    } else if (used_slots[kind] < PLACES) {
        place = used_slots[kind];
        if (!slot_at(kind, place)) {
            Slot *made = calloc(CHUNK, sizeof(Slot));
            for (uint32_t i = 0; made && i < CHUNK; i++)
                atomic_init(&made[i].number, GENERATION | (uint64_t)kind << 22 | (uint64_t)(place + i) << 4);
            atomic_store_explicit(&chunks[kind][place / CHUNK], made, memory_order_release);
            if (!made) place = PLACES;
        }
        if (place < PLACES) used_slots[kind]++;
    }
    pthread_mutex_unlock(&objects_lock);
    return place;
}

/* Return the number of a new object, or 0 if there is no room. */
static uint64_t object_new(unsigned kind, uint32_t value)
{
    Thread *t = thread();
    if (!t) return 0;
    uint32_t place = t->free_places[kind].count ? t->free_places[kind].place[--t->free_places[kind].count] : place_new(kind);
    if (place == PLACES) return 0;
    Slot *slot = slot_at(kind, place);
    atomic_store_explicit(&slot->value, value, memory_order_relaxed);
    atomic_store_explicit(&slot->held, 0, memory_order_relaxed);
    for (int i = 0; i < NAMES; i++) atomic_store_explicit(&slot->named[i], 0, memory_order_relaxed);
    atomic_store_explicit(&slot->live, 1, memory_order_release);
    return atomic_load_explicit(&slot->number, memory_order_relaxed);
}

static void object_free(uint64_t number)
{
    unsigned kind = kind_of(number), place = place_of(number);
    Slot *slot = slot_of(number);
    uint64_t expected = number;
    if (!slot || !atomic_compare_exchange_strong(&slot->number, &expected, number + GENERATION)) return; /* Another thread destroyed it. */
    atomic_store_explicit(&slot->live, 0, memory_order_relaxed);
    Thread *t = thread();
    if (t && t->free_places[kind].count < FREE_KEPT) { /* The thread's own free list needs no lock. */
        t->free_places[kind].place[t->free_places[kind].count++] = place;
        return;
    }
    pthread_mutex_lock(&objects_lock);
    slot->next_free = free_slots[kind];
    free_slots[kind] = place + 1;
    pthread_mutex_unlock(&objects_lock);
}

/* Describe a number to Python: return 1 if the object is alive, 2 if it is destroyed, 0 if there was none. facts: kind, value,
   held address, objects that it refers to. */
static int object_facts(uint64_t number, unsigned long long *facts)
{
    Slot *slot = number % 16 || number < GENERATION ? NULL : slot_at(kind_of(number), place_of(number));
    if (!slot) return 0;
    uint64_t here = atomic_load(&slot->number);
    facts[0] = kind_of(number), facts[1] = atomic_load(&slot->value), facts[2] = atomic_load(&slot->held);
    for (int i = 0; i < NAMES; i++) facts[3 + i] = atomic_load(&slot->named[i]);
    if (here == number) return atomic_load(&slot->live) ? 1 : 0;
    return number < here ? 2 : 0;
}

static void object_set(uint64_t number, unsigned value, uint64_t held, const uint64_t *named)
{
    Slot *slot = slot_of(number);
    if (!slot) return;
    atomic_store(&slot->value, value), atomic_store(&slot->held, held);
    for (int i = 0; i < NAMES; i++) atomic_store(&slot->named[i], named[i]);
}

/* Store addresses of a variant pack from the index `first` on. Return 0 if there is no memory or are too many. */
static int variant_store(Slot *slot, unsigned first, const uint64_t *addresses, unsigned count)
{
    Variant *variant = atomic_load_explicit(&slot->variant, memory_order_acquire);
    if (first + count > POINTERS || (!variant && !(variant = calloc(1, sizeof *variant)))) return 0;
    for (unsigned i = 0; i < count; i++) atomic_store_explicit(&variant->address[first + i], addresses[i], memory_order_relaxed);
    if (first) atomic_store_explicit(&variant->count, first + count, memory_order_relaxed);
    atomic_store_explicit(&slot->variant, variant, memory_order_release);
    return 1;
}

/* Set the value and the addresses of a backend descriptor. Return 0 if C cannot store them; Python then has its state. */
static int object_variant(uint64_t number, unsigned value, const uint64_t *addresses, unsigned count)
{
    Slot *slot = slot_of(number);
    if (!slot || (count && !(variant_store(slot, 0, addresses, 1) && variant_store(slot, 1, addresses + 1, count - 1)))) return 0;
    atomic_store(&slot->value, value);
    return 1;
}

/* Read the addresses of a variant pack; those that were not set are 0. */
static void object_addresses(uint64_t number, uint64_t *addresses)
{
    Slot *slot = slot_of(number);
    Variant *variant = slot ? atomic_load(&slot->variant) : NULL;
    for (unsigned i = 0; i < POINTERS; i++) addresses[i] = variant ? atomic_load(&variant->address[i]) : 0;
}

/* Return how many objects refer to another one. found: receives up to `room` of their numbers. */
static unsigned objects_naming(uint64_t named, uint64_t *found, unsigned room)
{
    unsigned count = 0;
    Slot *slot;
    for (int kind = 0; kind < KINDS; kind++)
        for (unsigned place = 0; NAMING >> kind & 1 && place < PLACES && (slot = slot_at(kind, place)); place++)
            for (int i = 0; i < NAMES; i++)
                if (atomic_load(&slot->live) && atomic_load(&slot->named[i]) == named) {
                    if (count < room) found[count] = atomic_load(&slot->number);
                    count++;
                }
    return count;
}

/* Set a mark for each value that an object has. */
static void objects_mark(unsigned char *marks, unsigned count)
{
    Slot *slot;
    for (int kind = 0; kind < KINDS; kind++)
        for (unsigned place = 0; place < PLACES && (slot = slot_at(kind, place)); place++) {
            uint32_t value = atomic_load(&slot->value);
            if (atomic_load(&slot->live) && value < count) marks[value] = 1;
        }
}

static void objects_in_child(void)
{
    Slot *slot;
    for (unsigned place = 0; place < PLACES && (slot = slot_at(HANDLE, place)); place++) atomic_store(&slot->busy, 0);
}

static inline void slot_lock(_Atomic int *busy)
{
    while (atomic_exchange_explicit(busy, 1, memory_order_acquire)) sched_yield();
}
static inline void slot_unlock(_Atomic int *busy) { atomic_store_explicit(busy, 0, memory_order_release); }
