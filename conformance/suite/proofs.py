"""Classify the evidence of each passed clause, by the faults and breaks that its cases noticed or by the last whole
proof.

``unproven.json`` lists for each backend the clauses whose passed cases are not proof, by class of reason; all others
are proven. A clause that is unproven on the reference is unproven on the other backend too.
"""

from __future__ import annotations

import argparse
import json
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from .. import scope
from ..breaks.matters import matters_of
from ..breaks.proofs import BROKEN, CHECK_OFF, REFUSED_OTHERWISE, UNREPEATABLE, of_part
from ..breaks.statements import DEMAND
from ..report import Report
from ..subjects import is_recorded

PROVEN = "proven"  # A case fails without the clause's check, or under a break of the clause.
TWO_WAYS = "refused otherwise"  # Every such case fails because another check refuses the same call.
SHOWN = "shown"  # Cases pass, and have not failed under a break of this clause.
WORDS = (SHOWN, TWO_WAYS, PROVEN)  # ascending strength of evidence; the strongest counts
NOTICED = {REFUSED_OTHERWISE: TWO_WAYS, CHECK_OFF: PROVEN, BROKEN: PROVEN}
READ = "read"  # class of reason of clauses that a reader judged; a run does not overrule it
JUDGE = "reference"  # backend with a list that also holds for the other one
UNLISTED = {SHOWN: "not varied", TWO_WAYS: TWO_WAYS}  # default class of the reason of an unlisted clause
PATH = Path(__file__).parents[1] / "unproven.json"
Evidence = dict[str, dict[str, dict[str, Any]]]


def unproven(subject: str) -> dict[str, str]:
    """Return clause -> class of the reason, for the backend of one of our subjects."""
    listed: dict[str, dict[str, dict[str, list[str]]]] = json.loads(PATH.read_text(encoding="utf-8"))["unproven"]
    backend = subject.partition("@")[0].partition(":")[0]
    if backend not in listed:
        return {}
    return {
        clause: reason for name in (JUDGE, backend) for reason, clauses in listed[name].items() for clause in clauses
    }


def evidence(results: Sequence[Mapping[str, Any]], due: Iterable[str] = ()) -> Evidence:
    """Return subject -> clause -> its best evidence, over all passed cases.

    "by" is what a case noticed, and "more" has the others, if the clause has several matters. due: clauses that are
    listed even if no case of them passed.
    """
    found: Evidence = {result["subject"]: {clause: {"evidence": SHOWN} for clause in due} for result in results if due}
    proofs: dict[tuple[str, str, str], dict[str, str]] = {}  # subject, clause and matter -> what a case noticed
    for result in results:
        if result["outcome"] != "passed" or result.get("noticed") is None:
            continue
        subject = result["subject"]
        clauses = found.setdefault(subject, {})
        for clause in result["clauses"]:
            clauses.setdefault(clause, {"evidence": SHOWN})
        for word, clause, matter, by in map(_proof, result["noticed"]):
            proof = {"by": by, "case": result["id"]}
            if word == PROVEN:
                for shown in (matter, DEMAND) if by == CHECK_OFF else (matter,):
                    proofs.setdefault((subject, clause, shown), proof)
            elif clause in clauses and word == TWO_WAYS:
                clauses[clause] = {"evidence": word, **proof}
    for subject, clauses in found.items():
        for clause in clauses:
            matters = matters_of(scope.clauses()[clause]) if clause in scope.clauses() else ("",)
            of_matters = [proofs[subject, clause, matter] for matter in matters if (subject, clause, matter) in proofs]
            if len(of_matters) == len(matters):
                first, *others = of_matters
                clauses[clause] = {"evidence": PROVEN, **first, **({"more": others} if others else {})}
    return found


def _proof(fault: str) -> tuple[str, str, str, str]:
    """Return (evidence, clause, matter of its sentence, what was broken) of a noticed fault.

    The clause is empty if the fault belongs to no clause.
    """
    for prefix, word in NOTICED.items():
        if fault.startswith(f"{prefix} "):
            clause, _, broken = fault.removeprefix(f"{prefix} ").partition(": ")
            clause, _, matter = clause.partition(", ")
            return word, clause, matter, broken or prefix
    return SHOWN, "", "", ""


def write_proofs(results: Sequence[Mapping[str, Any]], directory: Path, due: Iterable[str]) -> Path:
    """Write proofs.json: subject -> clause -> evidence."""
    path = directory / "proofs.json"
    path.write_text(json.dumps(evidence(results, due), indent=1, sort_keys=True) + "\n", encoding="utf-8")
    return path


def told(results: Sequence[Mapping[str, Any]]) -> list[str]:
    """Return one line on the faults that cases noticed, and one for each subject on the evidence of its clauses."""
    found = [result for result in results if result.get("noticed") and result["outcome"] == "passed"]
    lines = [f"{len(found)} cases noticed {sum(len(result['noticed']) for result in found)} faults"]
    for subject, clauses in evidence(results).items():
        words = Counter(entry["evidence"] for entry in clauses.values())
        counts = ", ".join(f"{words[word]} {word}" for word in reversed(WORDS))
        lines.append(f"{subject}: of {len(clauses)} clauses {counts}")
    if alone := sum(UNREPEATABLE in (result.get("noticed") or ()) for result in results):
        lines.append(f"{alone} cases cannot be repeated on one handle, and prove nothing")
    return lines


def with_evidence(report: Report) -> Report:
    """Return a report with the number of proven clauses of each subject, by its last whole proof or by the
    reference's.
    """
    said = {}
    for subject in report.subjects:
        if is_recorded(subject.name.partition("-")[0]):
            continue  # Nothing is called, so nothing can be broken.
        own = unproven(subject.name)
        passed = {clause for clause, states in report.states.items() if states[subject.name] == "passed"}
        proven, where = len(passed - set(own or unproven(JUDGE))), "" if own else " on the reference"
        said[subject.name] = (
            f"{proven:,} of them are proven{where}: a case fails when the clause is broken on purpose (docs/evidence.md)"
        )
    return replace(report, environment={**report.environment, "evidence": said}) if said else report


def differing(results: Sequence[Mapping[str, Any]], part: str, due: Iterable[str] = ()) -> tuple[list[str], list[str]]:
    """Return two lists of lines: on due clauses that are neither proven nor listed, and on clauses that are both.

    The second list is not a failure: the order of cases decides which breaks are tried.
    """
    missing, shrunk = [], []
    wanted = {clause for clause in scope.in_scope() if of_part(clause, part)}
    for subject, clauses in evidence(results, due).items():
        listed = {clause: reason for clause, reason in unproven(subject).items() if reason != READ}
        read = unproven(subject).keys() - listed.keys()
        proven = {clause for clause, entry in clauses.items() if entry["evidence"] == PROVEN}
        if found := sorted((wanted & set(clauses)) - proven - set(listed) - read):
            missing.append(f"{subject}: {len(found)} clauses are not proven and not listed: {', '.join(found)}")
        if found := sorted(wanted & proven & set(listed)):
            shrunk.append(f"{subject}: {len(found)} clauses are proven and listed as unproven: {', '.join(found)}")
    return missing, shrunk


def joined(parts: Iterable[Evidence]) -> Evidence:
    """Return the best evidence of each clause over several runs."""
    found: Evidence = {}
    for part in parts:
        for subject, clauses in part.items():
            best = found.setdefault(subject, {})
            for clause, entry in clauses.items():
                if clause not in best or WORDS.index(entry["evidence"]) > WORDS.index(best[clause]["evidence"]):
                    best[clause] = entry
    return found


def main(arguments: Sequence[str] | None = None) -> None:
    """Write unproven.json from the proofs.json of all parts of a proof; a clause keeps the reason that it has."""
    parser = argparse.ArgumentParser(prog="python -m dualdnn.conformance.suite.proofs", description=main.__doc__)
    parser.add_argument("proofs", type=Path, nargs="+", help="proofs.json of dualdnn conformance --prove-clauses")
    listed = json.loads(PATH.read_text(encoding="utf-8"))
    proofs = joined(json.loads(path.read_text(encoding="utf-8")) for path in parser.parse_args(arguments).proofs)
    wanted = set(scope.in_scope())
    judge_first = sorted(proofs, key=lambda name: not name.startswith(JUDGE))
    for subject in judge_first:  # The other list leaves out the clauses of this one.
        reasons: dict[str, list[str]] = {}
        clauses, known, backend = proofs[subject], unproven(subject), subject.partition(":")[0]
        of_judge = {clause for found in listed["unproven"][JUDGE].values() for clause in found if backend != JUDGE}
        for clause in sorted(wanted & set(clauses) - of_judge):
            if clauses[clause]["evidence"] != PROVEN or known.get(clause) == READ:
                reasons.setdefault(known.get(clause) or UNLISTED[clauses[clause]["evidence"]], []).append(clause)
        listed["unproven"][backend] = reasons
    PATH.write_text(json.dumps(listed, indent=1, sort_keys=True) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
