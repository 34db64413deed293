"""Run cases under the breaks of the clauses they name, until one case of a clause fails."""

from __future__ import annotations

import hashlib
import traceback
from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from ..scope import clauses as documented
from ..trial import Chain
from .border import REFUSALS, Border
from .memory import MEMORY_BREAKS, Judged
from .rules import OF_MEMORY, Break, breaks_of
from .runs import Case

UNREPEATABLE = "not repeatable"
CHECK_OFF = "no check of"  # prefix of a noticed check that was switched off: no check of CLAUSE
# prefix used instead if another check refused what the disabled one let pass
REFUSED_OTHERWISE = "another check beside that of"
BROKEN = "break of"  # prefix of a noticed break: break of CLAUSE: BREAK
RUNS = 24  # cases of one clause in which a break changes something, in one process
TRIED = 60  # cases of one clause that run under a break, in one process
HERE = str(Path(__file__).parent)


@cache
def of_part(clause: str, part: str) -> bool:
    """Return whether a clause is in the part i/n of all clauses."""
    index, count = map(int, part.split("/"))
    return int.from_bytes(hashlib.sha256(clause.encode()).digest()[:8]) % count == index - 1


class ClauseProofs:
    """Remember the clauses that are proven in this process; no further case runs under their breaks."""

    def __init__(self) -> None:
        self.proven: set[tuple[str, str]] = set()
        self.runs: Counter[tuple[str, str, Break]] = Counter()
        self.tried: Counter[tuple[str, str, Break]] = Counter()

    def done(self, subject: str, named: Iterable[str]) -> bool:
        """Return whether a case names clauses, and all of them are proven."""
        clauses = list(named)
        return bool(clauses) and all((subject, clause) in self.proven for clause in clauses)

    def prove(
        self,
        subject: str,
        border: Border,
        clauses: Collection[str],
        said: set[str],
        case: Case,
        noticed: list[str],
        known: Mapping[str, str] | None = None,
    ) -> None:
        """Run a case under the breaks of clauses; record the first break of each that the case notices.

        said: names of functions and arguments in the case. known: clause -> text of the only break to try.
        """
        self.proven |= {(subject, clause) for clause in clauses if f"{CHECK_OFF} {clause}" in noticed}
        checked = {c for c in clauses if {f"{CHECK_OFF} {c}", f"{REFUSED_OTHERWISE} {c}"} & set(noticed)}
        found: dict[Break, tuple[bool, bool]] = {}
        for clause in sorted(clauses):
            if (subject, clause) in self.proven or clause not in documented():
                continue
            for broken in breaks_of(documented()[clause]):
                if known is not None and str(broken) != known.get(clause):
                    continue
                if broken.how == "accepted" and clause in checked:
                    continue  # The clause's own check says more than all refusals of the call.
                key = subject, clause, broken
                if not _can_apply(broken, said) or self.runs[key] >= RUNS or self.tried[key] >= TRIED:
                    continue
                if broken not in found:
                    found[broken] = fails_under(broken, border, case), border.applied
                failed, applied = found[broken]
                self.tried[key] += 1
                self.runs[key] += applied
                if failed:
                    noticed.append(f"{BROKEN} {clause}: {broken}")
                    self.proven.add((subject, clause))
                    break


def _can_apply(broken: Break, said: set[str]) -> bool:
    """Return whether the break can change anything in a case that uses these names."""
    if broken.function.startswith("miopen") or not said:
        return True
    point = {broken.point} if broken.how == "enumerator" and broken.point else set()
    function = {broken.function} if broken.function and broken.how not in OF_MEMORY else set()
    return {*function, *point, *broken.only} <= said


def fails_under(broken: Break, border: Border, case: Case) -> bool:
    """Return whether a case fails while the break changes something."""
    border.begin(broken)
    if broken.how in OF_MEMORY:
        Chain.tamper = staticmethod(lambda *judged: _tamper(broken, border, *judged))
    try:
        case()
    except (KeyboardInterrupt, SystemExit):
        raise
    except pytest.skip.Exception:
        return False
    except BaseException as error:  # pytest's failures are not subclasses of Exception.
        if not isinstance(error, REFUSALS) and traceback.extract_tb(error.__traceback__)[-1].filename.startswith(HERE):
            raise  # The break itself is wrong.
        return border.applied
    finally:
        Chain.tamper = None
        border.end()
    return False


def _tamper(broken: Break, border: Border, operation: Any, *memory: Any) -> None:
    """Corrupt memory of the break's function."""
    if broken.function in ("", border.last):
        border.applied |= MEMORY_BREAKS[broken.how](Judged(operation, *memory), broken.point)
