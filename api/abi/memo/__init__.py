"""Implement the memo, in which C answers repeated calls without Python and its lock.

``keys.py`` decides which functions it answers, and generates the code for a call's key. The C files store objects
(``objects.c``), threads (``threads.c``), keys, entries, launches and answers. ``keeping.py`` records from Python what a
call did (``drafts.c``).
"""

import re
from pathlib import Path

FILES = ("threads.c", "objects.c", "keys.c", "entries.c", "launches.c", "answers.c", "drafts.c")


def source() -> str:
    """Return the C source of the memo, which precedes the exports."""
    return "\n".join(Path(__file__).with_name(name).read_text() for name in FILES)


# Python calls these functions.
CALLED_BY_PYTHON = """
dualdnn_say store object_facts object_new object_free object_set object_variant object_addresses
objects_naming objects_mark memo_value memo_limits memo_counts memo_times_emptied memo_asks draft_begin
draft_output draft_effect draft_pair draft_least draft_launches draft_step draft_place draft_scalar draft_keep
driver_open scratch_add scratch_is_known pass_to pass_until passed
"""


def called_by_python(text: str) -> str:
    """Return the declarations of what Python uses, which cffi reads. text: the C source that defines it."""
    defined = {name: text for text, name in re.findall(r"^static (.*?(\w+)\(.*\)) *\n?{", text, re.MULTILINE)}
    return "".join(f"{defined[name]};\n" for name in CALLED_BY_PYTHON.split()) + "static int memo_live;\n"


# C calls these functions: the first serves a call, by the number of its function; the others are for a device that only
# Python can access.
CALLED_BY_C = """
long long py_serve(unsigned, const uint64_t *);
int py_memo_launch(uint64_t, uintptr_t, unsigned, uint64_t);
uint64_t py_memo_scratch(uint64_t);
int py_memo_fits(const uint64_t *, const uint64_t *, unsigned);
"""
