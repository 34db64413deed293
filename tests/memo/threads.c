/* Four threads fill and empty the memo, make and destroy objects, and check every answer. This is compiled after the memo's own source,
   with -fsanitize=thread. The answer of a call is a function of its key, so that a wrong entry is noticed. */
static int py_memo_launch(uint64_t kernel, uintptr_t arguments, unsigned bytes, uint64_t stream) { return !kernel || !arguments || !bytes || stream; }
static uint64_t py_memo_scratch(uint64_t bytes) { return bytes; }
static int py_memo_fits(const uint64_t *addresses, const uint64_t *bytes, unsigned count) { return addresses && bytes && count; }

enum { TEAM = 4, ROUNDS = 1000, KEYS = 60 };
static _Atomic int wrong;

/* This stands for Python. The words are an argument, an object, and the address for twice the argument. */
static long long py_serve(unsigned function, const uint64_t *words)
{
    uint64_t argument = words[0], expected = 2 * argument;
    if (function == 7 && memo_asks() && draft_begin()) {
        draft_output(2, &expected, sizeof expected);
        draft_effect(0, SET, 0, 1 + argument % 5);
        draft_keep(0, NULL);
    }
    static const uint64_t nothing[NAMES];
    object_set(words[1], 1 + argument % 5, 0, nothing);
    *(uint64_t *)words[2] = expected;
    return 0;
}

/* This does what an export does, with a function that doubles its argument. */
static uint64_t doubled(Thread *t, uint64_t argument, uint64_t object)
{
    uint64_t result = 0;
    Call k;
    k.keyed = 0;
    key_begin(&k, 7);
    if (!key_object(&k, 0, object, 0)) return 0;
    key_bits(&k, argument);
    key_output(&k, 2, (uint64_t)&result);
    key_end(&k);
    const uint64_t words[] = {argument, object, (uint64_t)&result};
    served(t, &k, 7, words, "doubled");
    return result;
}

static void *work(void *given)
{
    unsigned seed = (unsigned)(uintptr_t)given;
    for (int i = 0; i < ROUNDS; i++) {
        Thread *t = thread();
        uint64_t object = object_new(3, 1), argument = rand_r(&seed) % KEYS;
        if (!object) { wrong = 1; break; }
        for (int j = 0; j < 3; j++)
            if (doubled(t, argument + j, object) != 2 * (argument + j)) wrong = 2;
        object_free(object);
        if (slot_of(object)) wrong = 3;
        if (i % 500 == 0) memo_value(1 + i % 5, 0);
    }
    return NULL;
}

int main(void)
{
    pthread_t team[TEAM];
    unsigned long long counts[8];
    memo_live = 1;
    memo_limits(20, 64 << 20);
    for (int i = 0; i < 6; i++) memo_value(i, 0);
    for (int round = 0; round < 2; round++) { /* The second team reuses the records of the first. */
        for (uintptr_t i = 0; i < TEAM; i++) pthread_create(&team[i], NULL, work, (void *)(i + 10 * round + 1));
        for (int i = 0; i < TEAM; i++) pthread_join(team[i], NULL);
    }
    memo_counts(counts);
    unsigned known = 0;
    for (Thread *t = atomic_load(&threads); t; t = t->next) known++;
    printf("wrong %d, hits %d, emptied %d, entries %d, threads %u\n", (int)wrong, counts[3] > 1000, counts[5] > 50, counts[0] <= 20, known);
    return wrong;
}
