"""Define the entries of a report: subjects, results of cases, functions, differences."""

import re
import shlex
from collections.abc import Mapping
from dataclasses import dataclass

from . import checks

OUTCOMES = ("passed", "failed", "skipped", "mistrusted")
CAPABILITIES = ("cpu", "gpu", "both")
SHARPER = ("norm_ratio", "rms", "bias")  # measurements of the sharper rules for a case
PLAIN = re.compile(r"[\w@%+=:,./-]+")  # text that a shell needs no quotes for


def test_of(case: str) -> str:
    """Return the test that a case belongs to: its id without parameters."""
    return case.partition("[")[0]


def quoted(text: str) -> str:
    """Quote a word for a shell, with double quotes if they suffice. page.js has the same rule."""
    return f'"{text}"' if not set(text) & set('"$`\\!') else shlex.quote(text)


@dataclass(frozen=True)
class Subject:
    """Describe an implementation under judgement. `shows` are the `shown_on` values of clauses that it can show.

    `asked` is the argument of --subject if it is not the name: `vendor` for `vendor-8907`.
    """

    name: str
    shows: tuple[str, ...] = CAPABILITIES
    description: str = ""
    asked: str = ""

    def __post_init__(self) -> None:
        checks.text(self.name, "name of a subject")
        shows = checks.texts(self.shows, f"shows of subject {self.name}")
        for capability in shows:
            checks.one_of(capability, CAPABILITIES, f"an entry of shows of subject {self.name}")
        checks.text(self.description, f"description of subject {self.name}", empty=True)
        checks.text(self.asked, f"asked of subject {self.name}", empty=True)
        object.__setattr__(self, "shows", tuple(c for c in CAPABILITIES if c in shows))

    def reproduction(self, case: str) -> str:
        """Return the command that runs one case again."""
        asked = self.asked or self.name
        return f"dualdnn conformance --subject {asked if PLAIN.fullmatch(asked) else shlex.quote(asked)} --case {quoted(case)}"


@dataclass(frozen=True)
class CaseResult:
    """Hold the result of one case on one subject.

    `error_ratio` is its largest |error| / bound, None if it compares no numbers. `known` says why a failure was known:
    the id of a declared difference, or that it is listed as expected. A listed case that passes has it too, because it
    passes unexpectedly.

    `suspect` names the sharper rules that outputs broke inside their worst case. `norm_ratio` is the largest error in
    units of the interval of the 2-norm. `rms` and `bias` are the largest over its outputs (docs/tolerance.md). These
    three are None where the rules say nothing. `reproduction` is empty if the subject's own line
    (`Subject.reproduction`) runs the case again.
    """

    id: str
    subject: str
    clauses: tuple[str, ...]
    outcome: str
    seconds: float
    error_ratio: float | None = None
    message: str = ""
    reproduction: str = ""
    reason: str = ""
    known: str = ""
    suspect: str = ""
    norm_ratio: float | None = None
    rms: float | None = None
    bias: float | None = None

    def __post_init__(self) -> None:
        checks.text(self.id, "id of a case")
        what = f"case {self.id}"
        checks.text(self.subject, f"subject of {what}")
        what = f"{what} on {self.subject}"
        object.__setattr__(self, "clauses", checks.texts(self.clauses, f"clauses of {what}"))
        checks.one_of(self.outcome, OUTCOMES, f"outcome of {what}")
        checks.number(self.seconds, f"seconds of {what}")
        self._check_error_ratio(what)
        for name in SHARPER:
            if (value := getattr(self, name)) is not None:
                checks.number(value, f"{name} of {what}")
        for name in ("message", "reproduction", "reason", "known", "suspect"):
            checks.text(getattr(self, name), f"{name} of {what}", empty=True)
        if self.outcome == "failed":
            checks.text(self.message, f"message of the failed {what}")
        checks.require(
            self.outcome != "skipped" or not self.known, f"{what} was skipped, which {self.known!r} cannot explain"
        )
        if self.outcome in ("skipped", "mistrusted"):
            checks.text(self.reason, f"reason of the {self.outcome} {what}")

    @property
    def is_new_failure(self) -> bool:
        """Return whether the case fails without a known reason."""
        return self.outcome == "failed" and not self.known

    @property
    def passes_unexpectedly(self) -> bool:
        return self.outcome != "failed" and bool(self.known)

    def _check_error_ratio(self, what: str) -> None:
        ratio = self.error_ratio
        if ratio is None:
            return
        is_number = isinstance(ratio, (int, float)) and not isinstance(ratio, bool)
        valid = is_number and not ratio < 0
        checks.require(valid, f"error_ratio of {what} is {ratio!r}, expected None or a number >= 0")
        within = ratio <= 1  # This is false for NaN.
        checks.require(within or self.outcome != "passed", f"{what} passed with error_ratio {ratio}: outside its bound")


@dataclass(frozen=True)
class Skips:
    """Count the cases that a subject skipped for one reason, by test. These cases cite `clauses`."""

    subject: str
    reason: str
    tests: Mapping[str, int]
    clauses: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        checks.text(self.subject, "subject of skipped cases")
        checks.text(self.reason, f"reason of the cases that {self.subject} skipped")
        for test, count in checks.mapping(self.tests, f"tests that {self.subject} skipped").items():
            counts = isinstance(count, int) and not isinstance(count, bool) and count > 0
            checks.require(counts, f"{self.subject} skipped {count!r} cases of {test}, expected a number above 0")
        clauses = checks.texts(self.clauses, f"clauses of the cases that {self.subject} skipped")
        object.__setattr__(self, "clauses", clauses)

    @property
    def count(self) -> int:
        """Return the number of cases."""
        return sum(self.tests.values())


@dataclass(frozen=True)
class Function:
    """Describe a documented function: its library, and whether each subject implements it."""

    library: str
    implemented: Mapping[str, bool]

    def __post_init__(self) -> None:
        checks.text(self.library, "library of a function")
        for subject, value in checks.mapping(self.implemented, "implemented of a function").items():
            checks.require(isinstance(value, bool), f"implemented on {subject} is {value!r}, expected a bool")


@dataclass(frozen=True)
class Difference:
    """Describe a disagreement between the document and the vendor's library, and the decision."""

    id: str
    function: str
    clauses: tuple[str, ...]
    document: str
    vendor: str
    decision: str

    def __post_init__(self) -> None:
        checks.text(self.id, "id of a difference")
        for name in ("function", "document", "vendor", "decision"):
            checks.text(getattr(self, name), f"{name} of difference {self.id}")
        object.__setattr__(self, "clauses", checks.texts(self.clauses, f"clauses of difference {self.id}"))
