"""Declare breaks of clauses: what the code would do if it violated one sentence of the document.

``rules`` derives them from a clause's kind, and from the parameters, enumerators and functions in its text. ``border``
applies one of them to the calls of a subject. A clause is proven if a case that names it fails under a break of it
(docs/evidence.md).
"""

from collections.abc import Mapping

from . import answers, operands, packs
from .border import Border, Call
from .rules import Break, breaks_of

__all__ = ["HOWS", "Border", "Break", "breaks_of"]

# Each name of a way to break calls has a function that breaks a call.
HOWS: Mapping[str, Call] = {
    "argument": operands.argument,
    "field": operands.argument,
    "meaning": operands.meaning,
    "fewer": operands.fewer,
    "stale": operands.stale,
    "enumerator": operands.enumerator,
    "unread": operands.unread,
    "misread": operands.misread,
    "unwritten": operands.unwritten,
    "unsteady": operands.unsteady,
    "filled": operands.filled,
    "pointed": packs.pointed,
    "taken": packs.taken,
    "late": packs.late,
    "refused": answers.refused,
    "refused again": answers.refused_again,
    "NULL refused": answers.null_refused,
    "shared memory refused": answers.shared_refused,
    "layout refused": answers.layout_refused,
    "unequal refused": answers.unequal_refused,
    "held contents refused": answers.held_refused,
    "accepted": answers.accepted,
    "status": answers.other_status,
    "nothing": answers.nothing,
    "result": answers.result,
    "preset": answers.preset,
    "unordered": answers.unordered,
    "stored": answers.stored,
    "called back": answers.called_back,
}
