"""Says by what kind of evidence each clause passed, from the faults that its cases noticed (prove.py)."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from ..prove import CHECK_OFF, REFUSED_OTHERWISE

PROVEN = "proven"  # a case fails without the check of the clause
TWO_WAYS = "refused otherwise"  # every such case fails because another check refuses the same call
SHOWN = "shown"  # cases pass and notice faults of the clause's function; no break of this clause alone is declared
WORDS = (SHOWN, TWO_WAYS, PROVEN)  # the later one counts


def evidence(results: Iterable[Mapping[str, Any]]) -> dict[str, dict[str, str]]:
    """Return subject -> clause -> its best evidence, of all cases that passed."""
    found: dict[str, dict[str, str]] = {}
    for result in results:
        if result["outcome"] != "passed" or result.get("noticed") is None:
            continue
        clauses = found.setdefault(result["subject"], {})
        proofs = dict.fromkeys(result["clauses"], SHOWN)
        for prefix, word in ((REFUSED_OTHERWISE, TWO_WAYS), (CHECK_OFF, PROVEN)):
            noticed = (
                fault.removeprefix(f"{prefix} ") for fault in result["noticed"] if fault.startswith(f"{prefix} ")
            )
            proofs |= dict.fromkeys(noticed, word)
        for clause, word in proofs.items():
            clauses[clause] = max(word, clauses.get(clause, SHOWN), key=WORDS.index)
    return found


def write_proofs(results: Sequence[Mapping[str, Any]], directory: Path) -> Path:
    """Write proofs.json: subject -> clause -> evidence."""
    path = directory / "proofs.json"
    path.write_text(json.dumps(evidence(results), indent=1, sort_keys=True) + "\n", encoding="utf-8")
    return path


def told(results: Sequence[Mapping[str, Any]]) -> list[str]:
    """Return one line on the faults that cases noticed, and one for each subject on the evidence of its clauses."""
    found = [result for result in results if result.get("noticed") and result["outcome"] == "passed"]
    lines = [f"{len(found)} cases noticed {sum(len(result['noticed']) for result in found)} faults"]
    for subject, clauses in evidence(results).items():
        words = list(clauses.values())
        counts = ", ".join(f"{words.count(word)} {word}" for word in reversed(WORDS))
        lines.append(f"{subject}: of {len(clauses)} clauses {counts}")
    return lines
