"""Synthetic results for the tests of the report: real clauses, seeded outcomes, and texts meant to break a writer."""

import math
import random
from typing import Any

from dualdnn.conformance.report import CaseResult, Clause, Difference, Function, Report, Subject, load_clauses

SUBJECTS = (
    Subject("reference", ("cpu", "both"), "NumPy and SciPy"),
    Subject("accelerated", ("cpu", "gpu", "both"), "CUDA kernels"),
    Subject("library:libcudnn.so.8", ("cpu",), "vendor's library without a device"),
    Subject("recorded:cudnn-9", ("gpu", "both")),
)
HOSTILE = (
    "</script><script>window.hacked = true</script>",
    '<img src="x" onerror="window.hacked = true">',
    "<!-- <script> ]]> &amp; \"quotes' \\ \u2028 \u2029",
    "control \x00\x01\x1b[31m, lone surrogate \ud800, non-character \uffff",
    "größer als ε: ‖x − y‖ ≤ γₙ·Σ|aᵢbᵢ| 卷积 🧮 \u202eright to left",
    "first line\nsecond line\r\n\tthird\n" + "long " * 200,
)
ENVIRONMENT = {"python": "3.12.3", "numpy": "2.4.6", "device": "none", "time": "2025-01-02T03:04:05+00:00", "seed": 7}
DIFFERENCES = (
    Difference(
        "E001",
        "cudnnActivationForward",
        ("cudnnActivationForward/c01",),
        "refuses <u>unequal</u> strides",
        "accepts them",
        "document",
    ),
    Difference("E002", "cudnnPoolingForward", (), "counts padding", "does not — measured", "document"),
)


def _benchmarks(seed: int = 3) -> tuple[dict[str, Any], ...]:
    """Rows of families that are ahead of the vendor, behind it, without one; rows that could not be timed."""
    generator = random.Random(seed)
    rows: list[dict[str, Any]] = [
        {"name": "softmax 64x1000", "ours_us": 12.25, "vendor_us": 11.5, "floor_us": 9.0, "fraction": 0.735,
         "speedup": 11.5 / 12.25, "host_us": 3},
        {"name": "pooling 8x64x56x56", "ours_us": 31.0, "vendor_us": None, "floor_us": 22.4, "fraction": 0.72,
         "speedup": None, "host_us": 2.75},
    ]  # fmt: skip
    for family, usual in (("activation ReLU forward", 1.1), ("reduce add to C", 9.0), ("convolution", 0.8)):
        for index in range(60):
            floor = generator.uniform(1, 300)
            fraction = generator.uniform(0.05, 1.1)
            speedup = usual * generator.lognormvariate(0, 0.4)
            timed = index % 20 != 7
            rows.append({
                "name": f"{family} {2 + index}x64x14x14 {generator.choice(('half', 'float'))} NHWC", "family": family,
                "bytes": 1000 + index, "flops": 10**6 * (index + 1) if usual < 1 else 0,
                "pace": "tf32" if usual < 1 else None, "solver": f"{family.split()[0]}.staged", "ours_us": floor / fraction if timed else None,
                "vendor_us": floor / fraction * speedup, "graph_us": floor / fraction * speedup * 1.5 if usual < 1 else None,
                "floor_us": floor, "fraction": fraction if timed else None, "speedup": speedup if timed else None,
                "host_us": 12.5, "algorithm": "IMPLICIT_GEMM" if usual < 1 else None,
                "algorithms_us": "IMPLICIT_GEMM 12.1, GEMM 31.0" if usual < 1 else None,
                "message": None if timed else f"ours: RuntimeError: {HOSTILE[1]}",
            })  # fmt: skip
    return tuple(rows)


BENCHMARKS = _benchmarks()


def functions_table(clauses: dict[str, Clause]) -> dict[str, Function]:
    names = {clause.function: clause.library for clause in clauses.values() if not clause.function.endswith("_t")}
    names |= {f"miopenFunction{index}": "miopen" for index in range(5)}
    generator = random.Random(11)
    return {
        name: Function(library, {subject.name: generator.random() < 0.8 for subject in SUBJECTS})
        for name, library in names.items()
    }


def synthetic_cases(clauses: dict[str, Clause], seed: int, share: float = 0.55) -> list[CaseResult]:
    """About 1.2 cases per clause of a `share` of the functions, each on the subjects that can show it."""
    generator = random.Random(seed)
    functions = sorted({clause.function for clause in clauses.values()})
    by_function: dict[str, list[Clause]] = {name: [] for name in functions}
    for clause in clauses.values():
        by_function[clause.function].append(clause)
    cases = []
    for name in generator.sample(functions, round(len(functions) * share)):
        scale = 10 ** generator.uniform(-7, 0)
        for index in range(math.ceil(1.2 * len(by_function[name]))):
            cited = generator.sample(by_function[name], min(len(by_function[name]), generator.choice((1, 1, 2, 3))))
            identifier = f"conformance/cases/{name}.py::test_{index}[{generator.choice(('float', 'half', 'größe-ε'))}]"
            for subject in SUBJECTS:
                if cited[0].shown_on in subject.shows:
                    cases.append(_case(generator, identifier, subject.name, tuple(c.id for c in cited), scale))
    cases.append(CaseResult("conformance/cases/miopen.py::test_names", "reference", (), "passed", 0.001))
    return cases


def _case(
    generator: random.Random, identifier: str, subject: str, clauses: tuple[str, ...], scale: float
) -> CaseResult:
    outcome = generator.choices(("passed", "failed", "skipped", "mistrusted"), (90, 4, 4, 2))[0]
    ratio = generator.choice((None, 0.0, min(1.0, scale * generator.lognormvariate(0, 1))))
    if outcome == "failed":
        ratio = generator.choice((None, math.nan, math.inf, 0.5, 3.7e4))
    if outcome == "skipped":
        ratio = None
    known = generator.choice(("", "E", "expected failure")) if outcome == "failed" and subject != "reference" else ""
    if outcome == "passed" and generator.random() < 0.002:
        known = "expected failure"
    text = generator.choice((*HOSTILE, "expected CUDNN_STATUS_BAD_PARAM, got CUDNN_STATUS_SUCCESS"))
    return CaseResult(
        identifier,
        subject,
        clauses,
        outcome,
        seconds=round(generator.expovariate(50), 6),
        error_ratio=ratio,
        message=text if outcome == "failed" else "",
        reproduction=f"dualdnn conformance --subject {subject} --case '{identifier}'" if outcome == "failed" else "",
        reason=text if outcome in ("skipped", "mistrusted") else "",
        known=known,
    )


def synthetic_report(seed: int = 1) -> Report:
    clauses = load_clauses()
    return Report.build(
        synthetic_cases(clauses, seed),
        SUBJECTS,
        functions_table(clauses),
        clauses,
        ENVIRONMENT,
        DIFFERENCES,
        benchmarks=BENCHMARKS,
    )
