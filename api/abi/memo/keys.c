/* The key of a call: words that say everything on which its answer depends. The generated code of each function adds its arguments. */
enum { WORDS = 192, ARGUMENTS = 40, ALIKE = 256 /* as in accelerated/records.py */ };

typedef struct Call {
    unsigned count;
    int keyed; /* whether the key says everything */
    uint64_t nulls;
    Slot *handle;
    Slot *slots[ARGUMENTS];
    uint64_t addresses[ARGUMENTS]; /* of device memory, and the numbers of objects */
    uint64_t words[WORDS];
} Call;

/* What C knows of values: whether scaling factors beside them are doubles. */
static unsigned char *value_is_double;
static uint32_t values_known;

static int value_new(unsigned value, int is_double)
{
    static uint32_t room;
    if (value >= room) { /* the table before it stays, where a thread may read: as much again in all */
        uint32_t more = room ? 2 * room : 1 << 14;
        unsigned char *larger = calloc(more, 1);
        if (!larger) return 0;
        if (room) memcpy(larger, value_is_double, room);
        __atomic_store_n(&value_is_double, larger, __ATOMIC_RELEASE), room = more;
    }
    __atomic_store_n(&value_is_double[value], (unsigned char)is_double, __ATOMIC_RELEASE), values_known = value;
    return 1;
}

static inline void key_begin(Call *k, unsigned function) { k->count = 2, k->nulls = 0, k->handle = NULL, k->words[0] = function; }
static inline void key_end(Call *k) { k->words[1] = k->nulls, k->keyed = 1; }
static inline void key_bits(Call *k, uint64_t bits) { k->words[k->count++] = bits; }

/* An object as its value, or by its kind alone where the call replaces all that it is. 0: Python has to look at it. */
static inline int key_object(Call *k, int i, uint64_t number, int kind_alone)
{
    Slot *slot = NULL;
    uint32_t value = 0;
    if (number) {
        slot = slot_of(number);
        value = slot ? atomic_load_explicit(&slot->value, memory_order_acquire) : 0;
        if (!value) return 0;
    }
    key_bits(k, number && kind_alone ? (1ull + kind_of(number)) << 40 : value /* neither is that of NULL, 0 */);
    k->slots[i] = slot, k->addresses[i] = number;
    return 1;
}

static inline void key_double(Call *k, double value) { memcpy(&k->words[k->count++], &value, sizeof value); }

static inline void key_float(Call *k, float value)
{
    k->words[k->count] = 0;
    memcpy(&k->words[k->count++], &value, sizeof value);
}

/* A scaling factor: a double where the tensor beside it has doubles, else a float. */
static inline void key_scaling(Call *k, const void *given, uint64_t beside)
{
    Slot *slot = beside ? slot_of(beside) : NULL;
    uint32_t value = slot ? atomic_load_explicit(&slot->value, memory_order_relaxed) : 0;
    const unsigned char *are_double = __atomic_load_n(&value_is_double, __ATOMIC_ACQUIRE);
    int bytes = !given ? 0 : value && __atomic_load_n(&are_double[value], __ATOMIC_RELAXED) ? 8 : 4;
    key_bits(k, bytes);
    k->words[k->count] = 0;
    if (bytes) memcpy(&k->words[k->count], given, bytes);
    k->count++;
}

/* `count` entries less some, of so many bytes each. 0: more than the key has room for, or than Python follows. */
static inline int key_array(Call *k, const void *given, long long count, long long most, int less, int size)
{
    if (!given) return key_bits(k, ~0ull), 1;
    if (count > most) {
        if (most > 8) return 0;
        count = most;
    }
    count = count > less ? count - less : 0;
    unsigned words = (count * size + 7) / 8;
    if (k->count + words + 48 > WORDS) return 0;
    key_bits(k, count);
    if (words) k->words[k->count + words - 1] = 0;
    memcpy(&k->words[k->count], given, count * size);
    k->count += words;
    return 1;
}

static inline void key_address(Call *k, int i, uint64_t address)
{
    k->addresses[i] = address;
    key_bits(k, address ? 1 + address % ALIKE : 0);
}

static inline void key_output(Call *k, int i, const void *place) { k->nulls |= (uint64_t)!place << i; }

static inline uint64_t key_hash(const Call *k)
{
    uint64_t hash = 0x9E3779B97F4A7C15ull;
    for (unsigned i = 0; i < k->count; i++) {
        hash = (hash ^ k->words[i]) * 0xD6E8FEB86659FD93ull;
        hash ^= hash >> 32;
    }
    return hash;
}
