"""Choose the cases of the tiers from the report of a full run.

    make conformance TIER=full
    python -m dualdnn.conformance.tiers conformance-report-full             # print what the frozen lists lack, and their cost
    python -m dualdnn.conformance.tiers conformance-report-full --write     # and write the next version of incomplete lists
    python -m dualdnn.conformance.tiers conformance-report-full --write --anew --removed "chosen anew, as modules were merged"

Cases stay in a list, so that its versions compare; ``--anew`` chooses all cases again. Several reports can be combined.
Runs with a warm cache give the seconds of the cases. A run of the standard tier and runs of new cases (-k) together
show what the list lacks, without a full run.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from pathlib import Path

from dualdnn.conformance.report import ReportError, read_json
from dualdnn.conformance.solvers import KERNELS_FILE

from . import SMOKE, STANDARD, Tier, TierError, parsed, path_of
from .choosing import Aim, Candidate, aims, candidates, chosen, cost_of

SMOKE_AIMS = ("function", "solver")


def main(arguments: Sequence[str] | None = None) -> int:
    """Choose the cases. Return 0, or 2 if the lists cannot follow from the reports."""
    parser = argparse.ArgumentParser(prog="python -m dualdnn.conformance.tiers", description=__doc__.partition("\n")[0])
    parser.add_argument(
        "reports", type=Path, nargs="+", metavar="DIR", help="folder of the report of a full run with --solvers all"
    )
    parser.add_argument("--write", action="store_true", help="write the lists that change")
    parser.add_argument("--anew", action="store_true", help="choose all cases again; needs --removed")
    parser.add_argument("--removed", default="", metavar="REASON", help="why cases leave a list")
    wanted = parser.parse_args(arguments)
    try:
        read = [read_json(folder / "compliance.json") for folder in wanted.reports]
        files = [folder / KERNELS_FILE for folder in wanted.reports]
        # Runs whose cases launch nothing have no such file.
        tables = [json.loads(path.read_bytes()) for path in files if path.exists()]
        known = candidates(read, tables)
        standard = updated(STANDARD, known, aims(known), wanted)
        inside = {case: known[case] for case in standard.cases if case in known}
        updated(SMOKE, inside, {aim for aim in aims(inside) if aim[0] in SMOKE_AIMS}, wanted)
    except (TierError, ReportError, OSError) as error:
        print(f"tiers: {error}", file=sys.stderr)
        return 2
    return 0


def updated(name: str, known: dict[str, Candidate], needs: set[Aim], wanted: argparse.Namespace) -> Tier:
    """Return a tier that shows everything wanted, and write it if asked."""
    path = path_of(name)
    old = parsed(name, json.loads(path.read_text(encoding="utf-8"))) if path.exists() else Tier(name, (), ())
    have = [] if wanted.anew else [case for case in old.cases if case in known]
    cases = sorted([*have, *chosen(known, needs, have)])
    functions = {aim[1]: case for case in reversed(cases) for aim in known[case].shows if aim[0] == "function"}
    new = old.changed(cases, dict(sorted(functions.items())), wanted.removed)
    seconds, modules = cost_of(known, new.cases)
    print(
        f"{name}: {len(new.cases)} cases show {len(needs)} clauses, functions, kernels and solvers (of {len(known)} cases);"
        f" {seconds:.0f} s on one core and {modules} modules to compile"
    )
    print(
        f"  version {old.version}"
        + (f" -> {new.version}: {new.versions[-1].added} more" if new.version > old.version else " stays")
    )
    if wanted.write and new != old:
        path.write_text(new.to_json(), encoding="utf-8")
    return new


if __name__ == "__main__":
    sys.exit(main())
