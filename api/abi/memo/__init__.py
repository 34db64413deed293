"""Implement the memo, in which C answers repeated calls without Python and its lock.

``keys.py`` decides which functions it answers, and generates the code for a call's key. The C files store objects
(``objects.c``), threads (``threads.c``), keys, entries, launches and answers. ``keeping.py`` records from Python what a
call did (``drafts.c``).
"""

from pathlib import Path

FILES = ("threads.c", "objects.c", "keys.c", "entries.c", "launches.c", "answers.c", "drafts.c")


def source() -> str:
    """Return the C source of the memo, which precedes the exports."""
    return "\n".join(Path(__file__).with_name(name).read_text() for name in FILES)


# Python calls these functions, and cffi reads their declarations.
CALLED_BY_PYTHON = """
static int memo_live;
void dualdnn_say(const char *);
void store(uint64_t, const void *, unsigned);
int object_facts(uint64_t, unsigned long long *);
uint64_t object_new(unsigned, uint32_t);
void object_free(uint64_t);
void object_set(uint64_t, unsigned, uint64_t, const uint64_t *);
int object_variant(uint64_t, unsigned, const uint64_t *, unsigned);
void object_addresses(uint64_t, uint64_t *);
unsigned objects_naming(uint64_t, uint64_t *, unsigned);
void objects_mark(unsigned char *, unsigned);
int memo_value(unsigned, int);
void memo_limits(unsigned long long, unsigned long long);
void memo_counts(unsigned long long *);
unsigned long long memo_times_emptied(void);
int memo_asks(void);
int draft_begin(void);
void draft_output(unsigned, const void *, unsigned);
void draft_effect(unsigned, unsigned, unsigned, unsigned);
void draft_pair(unsigned, unsigned, uint64_t, uint64_t);
void draft_least(unsigned, uint64_t);
void draft_launches(int, uint64_t, int);
void draft_step(uint64_t, const unsigned *, const void *, unsigned);
void draft_place(unsigned, int, long long, int);
void draft_scalar(unsigned, unsigned, int, const double *, unsigned);
int draft_keep(int, const char *);
int driver_open(uintptr_t);
int scratch_add(uint64_t, uint64_t, uint64_t);
int scratch_is_known(uint64_t, uint64_t);
"""
# C calls these functions: the first serves a call, by the number of its function; the others are for a device that only
# Python can access.
CALLED_BY_C = """
long long py_serve(unsigned, const uint64_t *);
int py_memo_launch(uint64_t, uintptr_t, unsigned, uint64_t);
uint64_t py_memo_scratch(uint64_t);
int py_memo_fits(const uint64_t *, const uint64_t *, unsigned);
"""
