"""List the clauses that our backends have to show: of the implemented functions of both documents, and of
their types.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import replace
from functools import cache
from importlib import resources
from typing import Any

from dualdnn.api import miopen as _second_document  # noqa: F401 (registers its calls)
from dualdnn.api.cudnn import FUNCTIONS
from dualdnn.api.document import functions
from dualdnn.api.enumerations import cudnnBackendDescriptorType_t
from dualdnn.api.miopen.calls import available
from dualdnn.api.miopen.document import functions as miopen_functions

from .report import CaseResult, Clause, load_clauses

# No parameter of an implemented function names these: what a callback gets, the backend API's chapter, and the
# enumerations of its attributes.
BEHIND = {
    "cudnnSetCallback": {"cudnnSeverity_t"},
    "cudnnSetFusedOpsConstParamPackAttribute": {"cudnnFusedOpsPointerPlaceHolder_t"},
    "cudnnBackendCreateDescriptor": {
        *(kind.name for kind in cudnnBackendDescriptorType_t),
        *("descriptor_life_cycle", "operation_graph_grouped_convolution", "engine_configuration", "execution_plan"),
        *(
            "cudnnBackendHeurMode_t",
            "cudnnBackendKnobType_t",
            "cudnnBackendLayoutType_t",
            "cudnnBackendNumericalNote_t",
        ),
        *("cudnnGenStatsMode_t", "cudnnPointwiseMode_t"),
    },
}


def types() -> set[str]:
    """Return the documented types that implemented functions take or return."""
    of_parameters = {parameter.base_type for name in FUNCTIONS for parameter in functions()[name].parameters}
    return of_parameters.union(*(found for name, found in BEHIND.items() if name in FUNCTIONS))


_WRITTEN = json.loads(resources.files(__package__).joinpath("unshown.json").read_text(encoding="utf-8"))
# No machine can show these clauses through this calling convention; the value is the reason.
UNSHOWN: dict[str, str] = _WRITTEN["clauses"]
# Not every machine shows the clauses of these classes. A class has a reason and a pattern of its clauses; the first
# match counts.
CLASSES: dict[str, dict[str, Any]] = _WRITTEN["classes"]


@cache
def clauses() -> dict[str, Clause]:
    """Return the clauses of the document. Clauses that cannot be shown here are marked with the reason."""
    return {
        name: replace(clause, shown_on="no", reason=UNSHOWN[name]) if name in UNSHOWN else _with_reason(clause)
        for name, clause in load_clauses().items()
    }


def _with_reason(clause: Clause) -> Clause:
    if clause.shown_on in ("cpu", "both"):
        return clause
    name = class_of(clause)
    return replace(clause, reason=f"{name}: {CLASSES[name]['reason']}") if name else clause


def class_of(clause: Clause) -> str | None:
    """Return the class of a clause that not every machine shows, or None if no class fits."""
    return next((name for name, like in CLASSES.items() if _fits(clause, like)), None)


def _fits(clause: Clause, like: Mapping[str, Any]) -> bool:
    listed = {
        "functions": clause.function, "kinds": clause.kind, "shown_on": clause.shown_on, "statuses": clause.status
    }  # fmt: skip
    alike = all(value in like[name] for name, value in listed.items() if name in like)
    return alike and re.search(like.get("text", ""), clause.text) is not None


def in_scope() -> list[str]:
    """Return the ids of the clauses that each of our backends has to show on any machine."""
    wanted = types() | set(FUNCTIONS) | {"miopenGuide", *filter(available, miopen_functions())}
    return [c.id for c in clauses().values() if c.function in wanted and c.shown_on in ("cpu", "both")]


def without_a_case(subject: str, results: Iterable[CaseResult]) -> list[str]:
    """Return the clauses in scope that no passed or failed case of the subject cites."""
    shown = {
        clause
        for result in results
        if result.subject == subject and result.outcome in ("passed", "failed")
        for clause in result.clauses
    }
    return [clause for clause in in_scope() if clause not in shown]
