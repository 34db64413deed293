"""Test that the suite counts what it has shown, and gives reasons for what it cannot show."""

from __future__ import annotations

from dualdnn.api.cudnn import FUNCTIONS
from dualdnn.api.document import functions
from dualdnn.conformance.report import CaseResult, load_clauses
from dualdnn.conformance.scope import CLASSES, UNSHOWN, class_of, clauses, in_scope, without_a_case
from dualdnn.conformance.solvers import without_a_launch


def result(clause: str, outcome: str, subject: str = "reference") -> CaseResult:
    return CaseResult("family/case", subject, (clause,), outcome, 0.1, None, "wrong", "again", "because")


def test_reasons_name_clauses_and_say_something():
    known = load_clauses()
    assert not [clause for clause in UNSHOWN if clause not in known]
    assert all(len(reason) > 20 for reason in UNSHOWN.values())


def test_every_clause_that_not_every_machine_shows_has_a_reason():
    scope, known = set(in_scope()), clauses()
    assert not [clause.id for clause in known.values() if clause.id not in scope and not clause.reason]
    assert not [name for name in scope if known[name].reason]
    used = {class_of(clause) for name, clause in known.items() if name not in scope and name not in UNSHOWN}
    assert used == set(CLASSES)


def test_the_scope_is_what_is_implemented():
    scope = in_scope()
    assert "cudnnActivationForward/c01" in scope
    missing = set(functions()) - set(FUNCTIONS)
    assert not [clause for clause in scope if clause.partition("/")[0] in missing]
    assert not set(UNSHOWN) & set(scope)


def test_only_a_passed_case_shows_a_clause():
    scope = in_scope()
    everything = [result(clause, "passed") for clause in scope]
    assert without_a_case("reference", everything) == []
    first = scope[0]
    for outcome in ("skipped", "mistrusted"):
        changed = [result(first, outcome), *everything[1:]]
        assert without_a_case("reference", changed) == [first]
    assert without_a_case("accelerated:emulated", everything) == scope


def test_kernels_are_missed_where_some_could_run():
    """A run of the reference, or of a library, launches no kernel of the project."""
    assert not without_a_launch({}, ["reference", "library:libcudnn.so.8"])
    assert len(without_a_launch({}, ["reference", "accelerated:emulated"])) > 250
