"""Tell which ways to break calls fit a sentence. A failure under any other way says nothing about the sentence."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

from dualdnn.api.document import functions

from .statements import PERMISSION, sort_of_text

REFUSED = frozenset(
    {"accepted", "status", "refused", "NULL refused", "layout refused", "shared memory refused", "unequal refused"}
)
# These breaks show that memory counts at all. They say nothing about where its elements are, or about what must be refused.
COARSE = frozenset({"element", "unread", "unwritten"})
# A sentence in these words says what a pointer of a pack points to.
POINTED = re.compile(r"\((?:void|int64_t|double|size_t) \*, ")
# A sentence in these words says that a step is left out.
LEFT_OUT = re.compile(r"\b(?:becomes? a NOP|is not performed)\b")
# A sentence in these words says what the descriptor or the value of a label means.
TAKES = re.compile(r"(?<!is to be )\btakes (?:a pointer to )?an initiali[sz]ed")
DEMANDED = re.compile(
    r"\b(?:must|has to|have to|should|requires?|may only|only|cannot|share the same|not grow)\b(?!.*\breturned\b)", re.I
)
KEPT = re.compile(r"\b(?:need not be (?:cleared|kept|initiali[sz]ed)|carr(?:y|ies) (?:no|nothing)|may change)\b")
FILLS = re.compile(
    r"^(?:Fills|Configures|Sets|Initiali[sz]es|Restores|Reconfigures|Stores|Extended|Prepares|Enables|Turns on|The counterpart of)\b"
)
DEFINES = re.compile(r"\bis infeasible if\b|^With \w+ = ")


@dataclass(frozen=True)
class Fit:
    """Describe the ways that fit a class of sentences: ``only`` these, or all but ``no``.

    words: what the text says. kinds: kinds of clauses; all if empty.
    """

    words: re.Pattern[str]
    only: frozenset[str] = frozenset()
    no: frozenset[str] = frozenset()
    kinds: tuple[str, ...] = ()

    def excludes(self, clause: Any, broken: Any) -> bool:
        """Return whether the sentence is of this class, and the break does not fit it."""
        if self.kinds and clause.kind not in self.kinds:
            return False
        wrong = broken.how in self.no or bool(self.only and broken.how not in self.only)
        return wrong and self.words.search(clause.text) is not None


# What such a sentence offers is broken by refusing it.
OFFERED = re.compile(
    r"\b(?:[Ee]very|[Aa]ny|All) (?:tensor )?(?:formats?|layouts?)\b|\bmay be smaller\b|strides (?:may differ|are free)"
)
# These sentences permit a number of groups, or a kind of arithmetic for a data type.
GROUPS = "group_count=[2-9]"  # in the descriptor of a convolution with groups
GROUPED = re.compile(r"\bgroup count greater than 0\b")
ARITHMETIC = re.compile(r"^dataType=(CUDNN_\w+): mathType may be ([^;]*)")
# Such a sentence is about a parameter in one mode (places.py), so breaks of the mode itself prove nothing.
WITH_MODE = re.compile(r"^With mode (CUDNN_\w+), (\w+)")
NULLED = re.compile(r"^\w+ ?==? ?NULL\b(?! together)")
SIZES = re.compile(r"^\w+ (?:is|states) (?:the byte size|the size in bytes|how many bytes)\b")
SELECTING = re.compile(r"\b(?:selects|to choose|chooses|decides|governs|tells \w+ whether)\b")
INDICES = re.compile(r"^Returned indices\b")
IGNORED = re.compile(r"\b(?:is|are) (?:ignored|unused)\b(?! by)|\bis informative only\b")
CHOSEN = re.compile(r"\bchosen arbitrarily\b|\bany choice of the user\b")
ANY = re.compile("")
VARYING = re.compile(r"\b(?:non-|not )deterministic\b")  # sentences on results that differ from run to run
WHOLE_NUMBERS = re.compile(r"\bties to even\b|\bsaturates\b")
ROUNDINGS = ("ties away from even", "wrapped around", "truncated")
FITS = (
    Fit(POINTED, only=frozenset({"pointed"}) | REFUSED),
    Fit(LEFT_OUT, only=frozenset({"taken", "enumerator"})),
    Fit(TAKES, only=frozenset({"argument", "field"})),
    Fit(KEPT, only=frozenset({"held contents refused"}), kinds=("lifetime", "workspace")),
    Fit(DEMANDED, no=COARSE | {"overrun", "unsteady", "filled", "misread", "misplaced"}, kinds=("shape", "layout", "dtype", "support", "aliasing")),
    Fit(OFFERED, only=REFUSED, kinds=("shape", "layout", "support")),
    Fit(CHOSEN, only=REFUSED),
    Fit(IGNORED, only=REFUSED),
    Fit(INDICES, no=COARSE),
    Fit(SIZES, no=COARSE, kinds=("workspace",)),
    Fit(GROUPED, only=REFUSED),
    Fit(ARITHMETIC, only=REFUSED),
    Fit(WITH_MODE, no=frozenset({"enumerator"})),
    Fit(WHOLE_NUMBERS, only=frozenset(ROUNDINGS)),
    Fit(ANY, no=COARSE, kinds=("shape", "layout", "dtype", "support", "note")),
    Fit(DEFINES, no=frozenset({"stored", "element"}), kinds=("nan",)),
)  # fmt: skip


def offers_null(clause: Any) -> bool:
    """Return whether a sentence says that NULL may be passed, and nothing else; a default of NULL says more."""
    permits = re.search(r"\bNULL\b", clause.text) and sort_of_text(clause.text) == PERMISSION
    found = permits or NULLED.search(clause.text)
    return bool(found) and not clause.status and clause.kind not in ("default", "aliasing")


def fits(clause: Any, broken: Any) -> bool:
    """Return whether a break is of what a sentence says.

    A setter that stores anything else says nothing about the meaning of one of its parameters. A break of what an order
    names breaks the order.
    """
    if any(one.excludes(clause, broken) for one in FITS):
        return False
    if offers_null(clause) and broken.how != "NULL refused":
        return False
    if GROUPED.search(clause.text) and GROUPS not in broken.only and not clause.status:
        return False
    if clause.kind == "determinism" and clause.function.endswith("Algo_t"):
        return (
            (broken.how, broken.point) == ("result", "determinism")
            if VARYING.search(clause.text)
            else broken.how == "unsteady"
        )
    of_type = clause.function.endswith("_t") and SELECTING.search(clause.text)
    if of_type and broken.how in ("result", "nothing", "stored") and clause.function != "cudnnStatus_t":
        return False  # What a value selects shows in no getter.
    own = broken.function == clause.function and not broken.point and clause.kind not in ("ordering", "lifetime")
    if own and broken.how in ("stored", "nothing") and "Set" in clause.function:
        return FILLS.search(clause.text) is not None
    first = functions().get(re.findall(r"\w+", clause.text)[0])
    if first is not None and first.name != clause.function and broken.how not in REFUSED and not clause.status:
        return broken.function in ("", first.name)
    if clause.kind == "ordering" and broken.how in ("unread", "unwritten") and broken.point:
        return broken.point.lower() in clause.text.lower().replace("reserve space", "reservespace") or not _named(
            clause
        )
    return True


def _named(clause: Any) -> bool:
    """Return whether a sentence names a parameter of its function, or of one that it names, but for the network."""
    words = set(re.findall(r"\w+", clause.text))
    known = (functions()[name] for name in {clause.function, *words} if name in functions())
    return bool(words & {p.name for f in known for p in f.parameters} - {"handle", "rnnDesc", "reserveSpace"})
