"""The judge's sharper rules see the faults that the worst case lets pass, and raise no false alarm."""

from __future__ import annotations

import pytest
from dualdnn.conformance.faults import ALPHA_AS_HALF, FAMILIES, FAULTS, judged, main

FLOAT, HALF, _, TF32 = FAMILIES
NONE = "none"


def by_name(value):
    return getattr(value, "name", None) or str(value)


@pytest.mark.parametrize("terms", [9, 64, 576])
@pytest.mark.parametrize("family", FAMILIES, ids=by_name)
def test_right_sums_are_not_suspect(family, terms):
    for seed in range(3):
        verdict = judged(family, NONE, terms, seed)
        assert verdict.agrees and not verdict.suspicions
        assert verdict.errors["y"].count > 4000


@pytest.mark.parametrize("fault", [*FAULTS, ALPHA_AS_HALF][1:])
def test_faults_of_float_are_seen(fault):
    """Whole outputs of 64 terms; the worst case alone misses some."""
    verdict = judged(FLOAT, fault, 64)
    assert verdict.suspicions


@pytest.mark.parametrize(
    "family, fault",
    [
        (FLOAT, "factors rounded to TF32"),
        (FLOAT, ALPHA_AS_HALF),
        (FLOAT, "sums cut off, not rounded"),
        (HALF, "accumulates in half"),
        (HALF, ALPHA_AS_HALF),
        (TF32, "accumulates in half"),
        (TF32, "one product dropped in each output"),
    ],
    ids=by_name,
)
def test_what_the_worst_case_misses(family, fault):
    """Of 576 terms."""
    verdict = judged(family, fault, 576)
    assert verdict.wrong < 0.65 * verdict.checked
    assert verdict.suspicions


def test_a_subject_is_measured(capsys):
    main(["--terms", "64", "--family", "float", "--subject", "reference"])
    rows = capsys.readouterr().out.splitlines()
    assert rows[0] == "| reference, terms = | 64 |" and len(rows) == 4
    assert all(float(part) < 1 for row in rows[2:] for part in row.split("|")[2].split(";"))


def test_the_table_is_printed(capsys):
    main(["--terms", "9", "--family", "half"])
    printed = capsys.readouterr().out
    assert printed.startswith("| half, terms = | 9 |") and len(printed.splitlines()) == 3 + len(FAULTS)
