/* A key consists of words that determine the answer of a call. The generated code of each function adds its arguments. */
enum { WORDS = 192, ARGUMENTS = 40, ALIKE = 256 /* accelerated/records.py has the same value */ };

typedef struct Call {
    unsigned count;
    int keyed; /* whether the key is complete */
    uint64_t nulls;
    uint64_t scaled; /* bit mask of scalar arguments other than 0 and 1, which a launch may take from the call */
    Slot *handle;
    Slot *slots[ARGUMENTS];
    double values[ARGUMENTS];
    uint8_t value_words[ARGUMENTS]; /* index of the value in the key; the word before holds its size */
    uint64_t addresses[ARGUMENTS]; /* addresses of device memory, and numbers of objects */
    uint64_t words[WORDS];
} Call;

/* C stores one fact about each value: whether its scaling factors are doubles. */
static unsigned char *value_is_double;
static uint32_t values_known;

static int value_new(unsigned value, int is_double)
{
    static uint32_t room;
    if (value >= room) { /* A thread may still read the old table, so it is not freed; old tables need at most as much memory again. */
        uint32_t more = room ? 2 * room : 1 << 14;
        unsigned char *larger = calloc(more, 1);
        if (!larger) return 0;
        if (room) memcpy(larger, value_is_double, room);
        __atomic_store_n(&value_is_double, larger, __ATOMIC_RELEASE), room = more;
    }
    __atomic_store_n(&value_is_double[value], (unsigned char)is_double, __ATOMIC_RELEASE), values_known = value;
    return 1;
}

static inline void key_begin(Call *k, unsigned function) { k->count = 2, k->nulls = k->scaled = 0, k->handle = NULL, k->words[0] = function; }
static inline void key_end(Call *k) { k->words[1] = k->nulls, k->keyed = 1; }
static inline void key_bits(Call *k, uint64_t bits) { k->words[k->count++] = bits; }

/* Add an object by its value, or only by its kind if the call overwrites it completely. Return 0 if Python has to handle it. */
static inline int key_object(Call *k, int i, uint64_t number, int kind_alone)
{
    Slot *slot = NULL;
    uint32_t value = 0;
    if (number) {
        slot = slot_of(number);
        value = slot ? atomic_load_explicit(&slot->value, memory_order_acquire) : 0;
        if (!value) return 0;
    }
    key_bits(k, number && kind_alone ? (1ull + kind_of(number)) << 40 : value /* NULL is 0, which no object gives */);
    k->slots[i] = slot, k->addresses[i] = number;
    return 1;
}

static inline void key_address(Call *k, int i, uint64_t address)
{
    k->addresses[i] = address;
    key_bits(k, address ? 1 + address % ALIKE : 0);
}

/* Add the address that an object holds. It is an operand with the index `behind`, after all arguments. */
static inline void key_held(Call *k, int behind, const Slot *slot)
{
    key_address(k, behind, slot ? atomic_load_explicit(&slot->held, memory_order_relaxed) : 0);
}

/* Add the values of objects that an object refers to, and the address that the first one holds. Return 0 if Python has to handle
   them. */
static inline int key_named(Call *k, int i, int behind)
{
    for (int j = 0; j < NAMES; j++) {
        uint64_t named = k->slots[i] ? atomic_load_explicit(&k->slots[i]->named[j], memory_order_acquire) : 0;
        Slot *slot = named ? slot_of(named) : NULL;
        uint32_t value = slot ? atomic_load_explicit(&slot->value, memory_order_acquire) : 0;
        if (named && !value) return 0;
        key_bits(k, value);
        if (j == 0) key_held(k, behind, slot);
    }
    return 1;
}

/* Add the pointers of the variant pack in argument `pack` as operands from the index `behind`. Return 0 if Python has to handle the
   call: the plan in argument `plan` is of another handle, or one of the two is not finalised. */
static inline int key_variant(Call *k, int plan, int pack, int behind)
{
    if (!k->slots[plan] || !k->slots[pack] || atomic_load_explicit(&k->slots[plan]->named[0], memory_order_relaxed) != k->addresses[0]) return 0;
    const Variant *variant = atomic_load_explicit(&k->slots[pack]->variant, memory_order_acquire);
    unsigned count = variant ? atomic_load_explicit(&variant->count, memory_order_relaxed) : 0;
    for (unsigned i = 0; i < count; i++) key_address(k, behind + i, atomic_load_explicit(&variant->address[i], memory_order_relaxed));
    return count > 0;
}

/* Add only whether there are addresses that a variant pack stores; their number is in the key. Return 0 if C cannot store them. */
static inline int key_addresses(Call *k, uint64_t array, long long count)
{
    key_bits(k, !array);
    return count >= 0 && count < POINTERS;
}

static inline void key_double(Call *k, double value) { memcpy(&k->words[k->count++], &value, sizeof value); }

static inline void key_float(Call *k, float value)
{
    k->words[k->count] = 0;
    memcpy(&k->words[k->count++], &value, sizeof value);
}

/* Record the value of a scalar, whose key has two words: its size and, last, its value. is_other: launches may take it from the
   call. */
static inline void key_value(Call *k, int i, double value, int is_other)
{
    k->values[i] = value, k->value_words[i] = k->count - 1, k->scaled |= (uint64_t)is_other << i;
}

/* Add a scaling factor: a double if the tensor beside it has doubles, else a float. */
static inline void key_scaling(Call *k, int i, uint64_t address, uint64_t beside)
{
    const void *given = (const void *)address;
    Slot *slot = beside ? slot_of(beside) : NULL;
    uint32_t number = slot ? atomic_load_explicit(&slot->value, memory_order_relaxed) : 0;
    const unsigned char *are_double = __atomic_load_n(&value_is_double, __ATOMIC_ACQUIRE);
    int bytes = !given ? 0 : number && __atomic_load_n(&are_double[number], __ATOMIC_RELAXED) ? 8 : 4;
    key_bits(k, bytes);
    k->words[k->count] = 0;
    if (bytes) memcpy(&k->words[k->count], given, bytes);
    k->count++;
    double value = 0;
    float narrow;
    if (bytes == 8) memcpy(&value, given, 8);
    else if (bytes) memcpy(&narrow, given, 4), value = narrow;
    key_value(k, i, value, value - value == 0 && value != 0 && value != 1 && value != -1);
}

/* Add a weight between 0 and 1, such as an averaging factor. */
static inline void key_weight(Call *k, int i, double value)
{
    key_bits(k, 8), key_double(k, value);
    key_value(k, i, value, value > 0 && value < 1);
}

/* Remove scalar values from the key; it then only says that they are neither 0 nor 1. */
static inline void key_any_value(Call *k)
{
    for (uint64_t left = k->scaled; left; left &= left - 1) {
        unsigned word = k->value_words[__builtin_ctzll(left)];
        k->words[word - 1] |= 16, k->words[word] = 0;
    }
}

/* Add `count` - `less` entries of `size` bytes each. Return 0 if there are more than the key can hold or Python reads. */
static inline int key_array(Call *k, uint64_t address, long long count, long long most, int less, int size)
{
    if (!address) return key_bits(k, ~0ull), 1;
    if (count > most) {
        if (most > 8) return 0;
        count = most;
    }
    count = count > less ? count - less : 0;
    unsigned words = (count * size + 7) / 8;
    if (k->count + words + 48 > WORDS) return 0;
    key_bits(k, count);
    if (words) k->words[k->count + words - 1] = 0;
    memcpy(&k->words[k->count], (const void *)address, count * size);
    k->count += words;
    return 1;
}

static inline void key_output(Call *k, int i, uint64_t address) { k->nulls |= (uint64_t)!address << i; }

static inline uint64_t key_hash(const Call *k)
{
    uint64_t hash = 0x9E3779B97F4A7C15ull;
    for (unsigned i = 0; i < k->count; i++) {
        hash = (hash ^ k->words[i]) * 0xD6E8FEB86659FD93ull;
        hash ^= hash >> 32;
    }
    return hash;
}
