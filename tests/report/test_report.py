"""Test the compliance report: the states and totals of results, and the files that hold them."""

import base64
import copy
import csv
import dataclasses
import gzip
import hashlib
import io
import itertools
import json
import math
import re
import xml.etree.ElementTree as ElementTree
from collections import Counter, defaultdict
from pathlib import Path

import dualdnn.conformance.clauses
import pytest
from dualdnn.conformance.report import (
    STATES,
    CaseResult,
    Clause,
    Difference,
    Function,
    Report,
    ReportError,
    Skips,
    Subject,
    load_clauses,
    read_json,
    to_badge,
    to_csv,
    to_html,
    to_json,
    to_junit,
    write_report,
)
from dualdnn.conformance.report.compliance_json import from_document, to_document
from dualdnn.conformance.report.model import CASE_TOTALS
from dualdnn.conformance.suite.results import KNOWN_TEXT, shortened
from dualdnn.conformance.suite.summary import unjudged
from synthetic_report import BENCHMARKS, DIFFERENCES, ENVIRONMENT, HOSTILE, SUBJECTS, synthetic_report

CPU = Subject("host", ("cpu", "both"))
GPU = Subject("device", ("cpu", "gpu", "both"))


@pytest.fixture(scope="module")
def report() -> Report:
    return synthetic_report()


def clause(identifier="f/c01", shown_on="both"):
    return Clause(
        identifier, identifier.split("/")[0], "semantics", None, shown_on, "1.2", "library", "It does what it does."
    )


def case(outcome="passed", identifier="case", subject="host", clauses=("f/c01",), ratio=None):
    return CaseResult(identifier, subject, clauses, outcome, 0.25, ratio, "wrong", "run it again", "because")


def build(cases=(), subjects=(CPU, GPU), clauses=None, environment=None, **further):
    clauses = clauses or [clause()]
    functions = {"f": Function("library", {subject.name: True for subject in subjects})}
    return Report.build(cases, subjects, functions, {c.id: c for c in clauses}, environment or {}, **further)


def state(outcomes, shown_on="both", subject=CPU):
    cases = [case(outcome, f"case {index}", subject.name) for index, outcome in enumerate(outcomes)]
    return build(cases, clauses=[clause(shown_on=shown_on)]).states["f/c01"][subject.name]


# States


@pytest.mark.parametrize(
    ("outcomes", "expected"),
    [
        ((), "untested"),
        (("skipped",), "untested"),
        (("mistrusted", "skipped"), "untested"),
        (("passed",), "passed"),
        (("passed", "skipped", "mistrusted"), "passed"),
        (("passed", "failed"), "failed"),
        (("failed", "mistrusted"), "failed"),
    ],
)
def test_state_follows_from_the_outcomes_in_any_order(outcomes, expected):
    for order in itertools.permutations(outcomes):
        assert state(order) == expected


@pytest.mark.parametrize(
    ("shown_on", "on_host", "on_device"),
    [
        ("cpu", "untested", "untested"),
        ("both", "untested", "untested"),
        ("gpu", "not_applicable", "untested"),
        ("no", "not_applicable", "not_applicable"),
    ],
)
def test_a_clause_applies_where_the_subject_can_show_it(shown_on, on_host, on_device):
    assert state((), shown_on, CPU) == on_host
    assert state((), shown_on, GPU) == on_device
    assert state(("failed",), shown_on, CPU) == "failed"
    assert state(("passed",), shown_on, CPU) == "passed"
    assert state(("skipped",), shown_on, CPU) == on_host


def test_the_second_document_does_not_apply_to_a_subject_without_it():
    rule = dataclasses.replace(clause("miopenGuide/c01"), library="miopen")
    for there in (True, False):
        table = {"miopenCreate": Function("miopen", {"host": there, "device": False})}
        report = Report.build([], [CPU, GPU], table, {rule.id: rule}, {})
        assert report.states[rule.id] == {"host": "untested" if there else "not_applicable", "device": "not_applicable"}


def test_a_result_counts_for_its_own_subject_and_each_clause_it_cites():
    report = build(
        [case("failed", clauses=("f/c01", "f/c02"))], clauses=[clause("f/c01"), clause("f/c02"), clause("f/c03")]
    )
    assert [report.states[f"f/c0{n}"]["host"] for n in (1, 2, 3)] == ["failed", "failed", "untested"]
    assert {report.states[f"f/c0{n}"]["device"] for n in (1, 2, 3)} == {"untested"}


def test_states_and_totals_of_thousands_of_results(report):
    """States and totals equal their definition over the raw results."""
    outcomes = defaultdict(set)
    for result in report.cases:
        for cited in result.clauses:
            known = result.outcome == "failed" and result.known
            outcomes[cited, result.subject].add("known" if known else result.outcome)
    counts = Counter()
    for each, subject in itertools.product(report.clauses.values(), SUBJECTS):
        seen = outcomes[each.id, subject.name]
        second = [f.implemented[subject.name] for f in report.functions.values() if f.library == "miopen"]
        there = each.library != "miopen" or any(second)  # A cuDNN library has no MIOpen functions.
        expected = "untested" if there and each.shown_on in subject.shows else "not_applicable"
        if "passed" in seen:
            expected = "passed"
        if "known" in seen:
            expected = "known"
        if "failed" in seen:
            expected = "failed"
        assert report.states[each.id][subject.name] == expected
        for group in ("all", each.library, each.function):
            counts[group, subject.name, expected] += 1
    totals = {"all": report.totals} | report.library_totals | report.function_totals
    shown = {(g, s, name): n for g, rows in totals.items() for s, row in rows.items() for name, n in row.items() if n}
    assert shown == counts
    assert {name for _, _, name in counts} == set(STATES)
    cases = Counter((result.subject, result.outcome) for result in report.cases)
    for subject in SUBJECTS:
        cases[subject.name, "skipped"] = sum(s.count for s in report.skips if s.subject == subject.name)
    words = {True: "known_failures", False: "unexpected_passes"}
    cases.update((result.subject, words[result.outcome == "failed"]) for result in report.cases if result.known)
    assert {(s, name): n for s, row in report.case_totals.items() for name, n in row.items() if n} == cases
    assert {name for _, name in cases} == set(CASE_TOTALS)


# Merging


def test_merge_keeps_the_result_that_says_most():
    order = ["skipped", "mistrusted", "passed", "failed"]
    for first, second in itertools.product(order, order):
        merged = Report.merge(build([case(first)]), build([case(second)]))
        shown = {outcome for outcome, count in merged.case_totals["host"].items() if count}
        assert shown == {max(first, second, key=order.index)} and sum(merged.case_totals["host"].values()) == 1


def test_merge_counts_a_case_that_runs_anywhere_among_those_that_ran():
    def run(*outcomes):
        return build([case(outcome, f"t[{index}]") for index, outcome in enumerate(outcomes)])

    for ran, skipped in (("passed passed passed", 0), ("passed skipped skipped", 2), ("skipped skipped skipped", 3)):
        merged = Report.merge(run("skipped", "skipped", "skipped"), run(*ran.split()))
        assert merged.case_totals["host"]["skipped"] == skipped
        assert len(merged.cases) == 3 - skipped


def test_merge_keeps_the_larger_error():
    for ratios in itertools.permutations((None, 0.0, 0.25, 0.75)):
        assert Report.merge(*(build([case(ratio=ratio)]) for ratio in ratios)).cases[0].error_ratio == 0.75
    merged = Report.merge(build([case("failed", ratio=7.0)]), build([case("failed", ratio=math.nan)]))
    assert math.isnan(merged.cases[0].error_ratio)


def test_merge_of_a_host_run_and_a_device_run():
    clauses = [clause("f/c01", "cpu"), clause("f/c02", "gpu")]
    emulated = Subject("accelerated", ("cpu", "both"), "emulated")
    real = Subject("accelerated", ("gpu", "both", "cpu"), "H200")
    on_host = build([case(subject="accelerated")], [emulated], clauses, {"python": "3.11", "gpu": None})
    on_device = build(
        [case(subject="accelerated", clauses=("f/c02",), identifier="d")],
        [real],
        clauses,
        {"python": "3.11", "gpu": "H200"},
    )
    assert on_host.states["f/c02"]["accelerated"] == "not_applicable"
    for merged in (
        Report.merge(on_host, on_device),
        Report.merge(on_host, on_device, on_host),
        Report.merge(Report.merge(on_host, on_device), on_device),
    ):
        assert merged.states == {"f/c01": {"accelerated": "passed"}, "f/c02": {"accelerated": "passed"}}
        assert merged.subjects == (Subject("accelerated", ("cpu", "gpu", "both"), "emulated; H200"),)
        assert merged.environment == {"python": "3.11", "runs": [{"gpu": None}, {"gpu": "H200"}]}


def test_merge_joins_subjects_functions_differences_and_benchmarks():
    def run(subject, implemented, **further):
        table = {"f": Function("library", {subject.name: implemented})}
        return Report.build([case(subject=subject.name)], [subject], table, {"f/c01": clause()}, {}, **further)

    difference = Difference("E1", "f", ("f/c01",), "a", "b", "a")
    merged = Report.merge(
        run(CPU, False, differences=[difference]), run(GPU, True, differences=[difference], benchmarks=BENCHMARKS)
    )
    assert merged.functions["f"].implemented == {"host": False, "device": True}
    assert merged.differences == (difference,)
    assert merged.benchmarks == BENCHMARKS
    for values in ((False, True), (True, False)):
        assert Report.merge(*(run(CPU, value) for value in values)).functions["f"].implemented == {"host": True}


def test_merge_with_itself_changes_nothing(report):
    merged = Report.merge(report, report)
    single = to_document(report)
    single["benchmarks"] *= 2
    assert to_document(merged) == single


@pytest.mark.parametrize(
    ("other", "message"),
    [
        (build(specification="another"), "different specifications: 'cuDNN API Reference 8.0.3' and 'another'"),
        (build(clauses=[clause(), clause("f/c02")]), r"different documents.*1 clause entries.*f/c02"),
        (build(clauses=[clause(shown_on="cpu")]), r"different documents.*f/c01"),
        (Report.build([], [CPU], {}, {"f/c01": clause()}, {}), r"different documents.*1 function entries.*'f'"),
        (build([case(clauses=())]), r"case case on host cites \('f/c01',\) in one report and \(\)"),
        (build(differences=[Difference("E1", "f", (), "x", "y", "z")]), "difference E1 reads differently"),
    ],
)
def test_merge_refuses_what_does_not_belong_together(other, message):
    ours = build([case()], differences=[Difference("E1", "f", (), "a", "b", "a")])
    with pytest.raises(ReportError, match=message):
        Report.merge(ours, other)


# Input that contradicts itself


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"id": " "}, "id of a case is empty"),
        ({"subject": 3}, "subject of case k is 3, expected a string"),
        ({"clauses": "f/c01"}, "clauses of case k on host is 'f/c01', expected a list"),
        ({"clauses": ("f/c01", "f/c01")}, "clauses of case k on host names something twice"),
        ({"outcome": "ok"}, "outcome of case k on host is 'ok', expected one of passed, failed, skipped, mistrusted"),
        ({"seconds": -1.0}, "seconds of case k on host is -1.0"),
        ({"seconds": math.inf}, "seconds of case k on host is inf"),
        ({"error_ratio": -0.5}, "error_ratio of case k on host is -0.5"),
        ({"error_ratio": True}, "error_ratio of case k on host is True"),
        ({"error_ratio": 1.5}, "passed with error_ratio 1.5: outside its bound"),
        ({"error_ratio": math.nan}, "passed with error_ratio nan: outside its bound"),
        ({"outcome": "failed"}, "message of the failed case k on host is empty"),
        ({"outcome": "skipped"}, "reason of the skipped case k on host is empty"),
        ({"outcome": "mistrusted"}, "reason of the mistrusted case k on host is empty"),
    ],
)
def test_a_result_that_makes_no_sense_is_refused(change, message):
    values = {"id": "k", "subject": "host", "clauses": (), "outcome": "passed", "seconds": 0.5} | change
    with pytest.raises(ReportError, match=re.escape(message)):
        CaseResult(**values)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"cases": [case(), case()]}, "case case is listed twice on host"),
        ({"cases": [case(subject="nobody")]}, "subject of case case is 'nobody', expected one of host, device"),
        ({"cases": [case(clauses=("f/c99",))]}, "case case cites clauses that the document lacks: f/c99"),
        ({"subjects": ()}, "at least one subject"),
        ({"subjects": (CPU, CPU)}, "subjects names something twice"),
        ({"environment": {"a": {1, 2}}}, "environment entry a is {1, 2}, which JSON cannot hold"),
        ({"environment": {"a": math.nan}}, "environment entry a is nan, which JSON cannot hold"),
        ({"environment": {"runs": 4}}, "environment entry runs is 4"),
        ({"differences": [Difference("E1", "f", ("f/c99",), "a", "b", "c")]}, "difference E1 cites clauses"),
        ({"benchmarks": [{"ours_us": 1.0}]}, "name of benchmark 0 is None"),
        ({"benchmarks": [{"name": "n", "ours_us": math.inf}]}, "ours_us of benchmark 0 is inf"),
        ({"specification": ""}, "specification is empty"),
    ],
)
def test_results_that_contradict_each_other_are_refused(arguments, message):
    with pytest.raises(ReportError, match=re.escape(message)):
        build(**arguments)


def test_a_function_table_names_every_subject():
    for implemented, message in (
        ({"host": True}, "f lacks device"),
        ({"host": True, "device": True, "x": True}, "f has unknown keys: x"),
    ):
        with pytest.raises(ReportError, match=message):
            Report.build([], [CPU, GPU], {"f": Function("library", implemented)}, {"f/c01": clause()}, {})


def test_subject_refuses_unknown_capabilities():
    with pytest.raises(ReportError, match="shows of subject s is 'tpu', expected one of cpu, gpu, both"):
        Subject("s", ("tpu",))


# Clauses


def test_every_line_of_the_document_is_a_clause():
    clauses = load_clauses()
    directory = Path(dualdnn.conformance.clauses.__file__).parent
    rows = [json.loads(line) for path in directory.glob("*.jsonl") for line in path.read_text("utf-8").splitlines()]
    assert len(clauses) == len(rows) > 4000
    for row in rows:
        loaded = dataclasses.asdict(clauses[row["id"]])
        assert loaded["function"] == row["subject"]
        assert all(loaded[name] == row[name] for name in ("section", "kind", "status", "shown_on", "text"))


def test_clauses_that_cannot_be_read_are_named(tmp_path):
    good = {
        "id": "f/c01",
        "subject": "f",
        "section": "1",
        "kind": "note",
        "status": None,
        "shown_on": "cpu",
        "text": "t",
    }
    with pytest.raises(ReportError, match="holds no clauses"):
        load_clauses(tmp_path)
    for second, message in (
        ("{", "x.jsonl line 2: not JSON"),
        (json.dumps(good), "x.jsonl line 2: clause f/c01 exists already"),
        (json.dumps(good | {"id": "f/c02", "shown_on": "tpu"}), "shown_on of clause f/c02 is 'tpu'"),
        (json.dumps({"id": "f/c02"}), "x.jsonl line 2 lacks"),
        (json.dumps(good | {"id": "f/c02", "more": 1}), "x.jsonl line 2 has unknown keys: more"),
    ):
        (tmp_path / "x.jsonl").write_text(json.dumps(good) + "\n" + second)
        with pytest.raises(ReportError, match=re.escape(message)):
            load_clauses(tmp_path)


# compliance.json


def strict_json(text):
    def refuse(constant):
        raise AssertionError(f"{constant} is not JSON")

    return json.loads(text, parse_constant=refuse)


def test_json_has_the_documented_form(report):
    document = strict_json(to_json(report))
    assert document["schema"] == 3
    assert document["specification"] == "cuDNN API Reference 8.0.3"
    assert document["environment"] == ENVIRONMENT
    assert document["subjects"] == [subject.name for subject in SUBJECTS]
    for entry in document["clauses"].values():
        assert {"function", "kind", "status", "subjects", "cases"} <= set(entry)
        assert list(entry["subjects"]) == document["subjects"]
    for entry in document["cases"]:
        assert {"id", "subject", "clauses", "outcome", "seconds", "error_ratio"} <= set(entry)
        assert entry["error_ratio"] is None or entry["error_ratio"] >= 0
    for entry in document["functions"].values():
        assert set(entry) == {"library", "implemented"}
    cited = {
        (clause_id, entry["id"].partition("[")[0]) for entry in document["cases"] for clause_id in entry["clauses"]
    }
    assert cited == {(identifier, name) for identifier, entry in document["clauses"].items() for name in entry["cases"]}


def test_json_round_trip_loses_nothing(report, tmp_path):
    path = write_report(report, tmp_path / "new" / "folder")["compliance.json"]
    loaded = read_json(path)
    assert to_json(loaded) == to_json(report)
    # NaN is not equal to itself, so the cases are compared by their text.
    assert repr(loaded.cases) == repr(report.cases)
    assert (loaded.clauses, loaded.subjects, loaded.functions) == (report.clauses, report.subjects, report.functions)
    assert (loaded.differences, loaded.benchmarks) == (DIFFERENCES, BENCHMARKS)
    assert {math.isnan, math.isinf} == {
        test
        for test in (math.isnan, math.isinf)
        for r in loaded.cases
        if r.error_ratio is not None and test(r.error_ratio)
    }


def test_a_report_with_the_fixed_keys_alone_can_be_read():
    document = to_document(build([case()]))
    for name in ("subject_details", "totals", "differences"):
        del document[name]
    assert from_document(document).states == {"f/c01": {"host": "passed", "device": "untested"}}


def test_cases_of_an_earlier_release_have_their_present_ids():
    """Reports of two releases can be compared, and a case that changed its id runs again by the old one's report."""
    earlier = [
        case(identifier="pooling/test_no_distance_is_a_pack", subject="device"),
        case(identifier="pooling/test_forward_sizes[many-planes-nchw]"),
        case("skipped", "softmax/test_rows_that_threads_hold[x]"),
    ]
    read = from_document(to_document(build(earlier)))
    assert {one.id for one in read.cases} == {
        "pooling/test_no_stride_is_vector_aligned", "pooling/test_forward_sizes[many-channels-nchw]",
    }  # fmt: skip
    assert [*read.skips[0].tests] == ["softmax/test_rows_in_registers"]


def remove(*path):
    return lambda document: dig(document, path[:-1]).pop(path[-1])


def put(value, *path):
    return lambda document: dig(document, path[:-1]).__setitem__(path[-1], value)


def dig(document, path):
    for step in path:
        document = document[step]
    return document


@pytest.mark.parametrize(
    ("corrupt", "message"),
    [
        (put(4, "schema"), "schema is 4, this reader knows 3"),
        (remove("cases"), "report lacks cases"),
        (put(1, "extra"), "report has unknown keys: extra"),
        (put({}, "cases"), "cases is {}, expected a list"),
        (put([3], "cases"), "case 0 is 3, expected an object"),
        (remove("cases", 0, "error_ratio"), "case 0 lacks error_ratio"),
        (remove("cases", 0, "outcome"), "case 0 lacks outcome"),
        (put("fine", "cases", 0, "outcome"), "outcome of case case on host is 'fine'"),
        (put("huge", "cases", 0, "nonfinite_error_ratio"), "nonfinite_error_ratio of case 0 is 'huge'"),
        (put(["f/c7"], "cases", 0, "clauses"), "cites clauses that the document lacks: f/c7"),
        (put("host", "subjects"), "subjects is 'host', expected a list"),
        (put({"x": {}}, "subject_details"), "subject_details has unknown keys: x"),
        (put({"tests": 1}, "subject_details", "host"), "subject host has unknown keys: tests"),
        (remove("clauses", "f/c01", "kind"), "clause f/c01 lacks kind"),
        (remove("clauses", "f/c01", "cases"), "clause f/c01 lacks cases"),
        (put("failed", "clauses", "f/c01", "subjects", "host"), "subjects of clause f/c01 is"),
        (put([], "clauses", "f/c01", "cases"), "cases of clause f/c01 is [], but its cases say ['case']"),
        (put([{"subject": "host", "reason": "r", "tests": {"t": 2}, "count": 1}], "skips"), "count of skips 0 is 1"),
        (put([{"subject": "host", "reason": "r", "tests": {"t": 0}, "count": 0}], "skips"), "skipped 0 cases of t"),
        (put([[0.25]], "cases", 0, "measured"), "id of case 0 is 'case', which tests does not have"),
        (put(5, "totals", "cases", "host", "passed"), "totals are"),
        (put({"library": "l"}, "functions", "f"), "function f lacks implemented"),
        (
            put({"library": "l", "implemented": {"host": 1}}, "functions", "f"),
            "implemented on host is 1, expected a bool",
        ),
        (put([{"id": "E"}], "differences"), "difference 0 lacks function"),
    ],
)
def test_a_corrupt_json_is_refused(tmp_path, corrupt, message):
    document = copy.deepcopy(to_document(build([case()])))
    from_document(document)
    corrupt(document)
    path = tmp_path / "compliance.json"
    path.write_text(json.dumps(document))
    with pytest.raises(ReportError, match=re.escape(message)) as caught:
        read_json(path)
    assert str(path) in str(caught.value)


def test_a_file_that_is_not_json_is_refused(tmp_path):
    for content in (b"{", b"\xff\xfe", b""):
        (tmp_path / "x").write_bytes(content)
        with pytest.raises(ReportError, match="not JSON"):
            read_json(tmp_path / "x")


# junit.xml


def test_junit_says_what_the_results_say(report):
    """Each test appears once. It fails if one of its cases newly fails, and its text has the lines that rerun these."""
    root = ElementTree.fromstring(to_junit(report))
    assert [suite.get("name") for suite in root] == [subject.name for subject in SUBJECTS]
    for suite in root:
        tests = defaultdict(list)
        for result in report.cases:
            if result.subject == suite.get("name"):
                tests[result.id.partition("[")[0]].append(result)
        elements = {
            f"{element.get('classname').removeprefix(suite.get('name') + '.')}/{element.get('name')}": element
            for element in suite.findall("testcase")
            if not element.get("classname").endswith(".skipped")
        }
        assert elements.keys() == tests.keys()
        assert int(suite.get("tests")) == len(suite.findall("testcase"))
        assert int(suite.get("failures")) == len(suite.findall("testcase/failure"))
        assert int(suite.get("skipped")) == len(suite.findall("testcase/skipped"))
        assert float(suite.get("time")) == pytest.approx(
            sum(r.seconds for own in tests.values() for r in own), abs=1e-5
        )
        for test, own in tests.items():
            failure, skipped = elements[test].find("failure"), elements[test].find("skipped")
            failing = [r for r in own if r.is_new_failure or r.passes_unexpectedly]
            assert int(elements[test].get("assertions")) == len(own)
            assert (failure is not None) == bool(failing)
            assert (skipped is not None) == (not failing and all(r.outcome != "passed" for r in own))
            for result in failing:
                assert failure.text.count(f"reproduce: {report.reproduction(result)}") == 1
        skips = [entry for entry in report.skips if entry.subject == suite.get("name")]
        shown = [
            e.find("skipped").get("message")
            for e in suite.iterfind("testcase")
            if e.get("classname").endswith(".skipped")
        ]
        assert [text.partition(" ")[0] for text in shown] == [str(entry.count) for entry in skips]
    for name in ("tests", "failures", "skipped"):
        assert int(root.get(name)) == sum(int(suite.get(name)) for suite in root)


def test_junit_shows_a_limited_number_of_failures_in_full():
    failures = [case("failed", f"pooling/test[{index}]") for index in range(30)]
    text = ElementTree.fromstring(to_junit(build(failures))).find(".//failure").text
    assert text.count("reproduce: ") == 20 and text.endswith("pooling/test[9]") and "and these cases:" in text


def test_junit_has_failures_of_a_size_that_annotations_take():
    failures = [case("failed", f"pooling/test[{index}-{'é' * 90}]") for index in range(1000)]
    root = ElementTree.fromstring(to_junit(build(failures)))
    assert len(root.find(".//failure").text.encode()) <= 65_536  # bytes, GitHub's limit
    assert root.find("testsuite").get("failures") == "1"


def test_junit_has_its_facts_as_plain_text():
    """Nested facts have dotted names, and their values are plain text, not Python literals."""
    environment = {
        "state": "partial",
        "packages": {"numpy": "2.4"},
        "runs": [{"cpu": "a"}, {"cpu": "b"}],
        "modes": ["x", "y"],
    }
    root = ElementTree.fromstring(to_junit(dataclasses.replace(build([case()]), environment=environment)))
    facts = {entry.get("name"): entry.get("value") for entry in root.iterfind("testsuite/properties/property")}
    shown = {name: value for name, value in facts.items() if not name.startswith("cases.")}
    assert shown == {"state": "partial", "packages.numpy": "2.4", "runs.1.cpu": "a", "runs.2.cpu": "b", "modes": "x, y"}


# known failures, tables and badges


def known_failures():
    results = [
        CaseResult("new", "host", ("f/c01",), "failed", 0.5, None, "m", "r"),
        CaseResult("old", "host", ("f/c02",), "failed", 0.5, None, '=m, "q"\nmore', "r", "", "D1"),
        CaseResult("late", "host", ("f/c03",), "passed", 0.5, 0.25, known="expected failure"),
        CaseResult("fine", "host", ("f/c02",), "passed", 0.5),
    ]
    clauses = {f"f/c0{i}": clause(f"f/c0{i}", "cpu") for i in (1, 2, 3)}
    return Report.build(results, [Subject("host")], {"f": Function("l", {"host": True})}, clauses, {})


def test_known_and_new_failures_are_apart_everywhere():
    report = known_failures()
    assert [report.states[f"f/c0{i}"]["host"] for i in (1, 2, 3)] == ["failed", "known", "passed"]
    entries = {entry["id"]: entry.get("known") for entry in to_document(report)["cases"]}
    assert entries == {"new": None, "old": "D1", "late": "expected failure", "fine": None}
    suite = ElementTree.fromstring(to_junit(report))[0]
    assert (suite.get("failures"), suite.get("skipped")) == ("2", "1")
    kinds = {
        element.get("name"): [child.get("type") for child in element if child.tag != "properties"]
        for element in suite[1:]
    }
    assert kinds == {"new": ["failed"], "old": ["known_failure"], "late": ["unexpected_pass"], "fine": []}


def test_a_report_of_the_first_schema_is_read_with_its_differences_known(tmp_path):
    document = to_document(
        build([case("failed"), CaseResult("old", "host", ("f/c01",), "failed", 0, None, "difference D7: no", "r")])
    )
    document["schema"] = 1
    for counts in (*document["totals"]["clauses"].values(), *document["totals"]["cases"].values()):
        for word in ("known", "known_failures", "unexpected_passes"):
            counts.pop(word, None)
    assert {entry.id: entry.known for entry in from_document(document).cases} == {"case": "", "old": "D7"}


def test_a_report_of_the_second_schema_lists_each_case_and_has_each_line():
    """Reading counts the skipped cases, and drops reproduction lines that follow from the subject's name."""
    listed = [CaseResult(id, "host", ("f/c01",), "passed", 1.0, reproduction="r") for id in ('k["a"]', "k[b]")]
    document = to_document(build(listed))
    assert [entry["id"] for entry in document["cases"]] == ['k["a"]', "k[b]"]  # Cases with their own line are kept.
    skipped = {**document["cases"][0], "id": "k[c]", "outcome": "skipped", "error_ratio": None, "reason": "no GPU"}
    document["schema"], document["cases"] = 2, [*document["cases"], skipped]
    for name in ("skips", "tests"):
        del document[name]
    document["clauses"]["f/c01"]["cases"].append("k[c]")
    document["totals"]["cases"]["host"]["skipped"] = 1
    for entry in document["cases"]:
        quoted = entry["id"].join("''" if '"' in entry["id"] else '""')
        entry["reproduction"] = f"dualdnn conformance --subject vendor --case {quoted}"
    report = from_document(document)
    assert report.skips == (Skips("host", "no GPU", {"k": 1}, ("f/c01",)),)
    assert {c.reproduction for c in report.cases} == {""} and report.subjects[0].asked == "vendor"
    assert [report.reproduction(c) for c in report.cases] == [entry["reproduction"] for entry in document["cases"][:2]]
    assert [entry["id"] for entry in to_document(report)["cases"]] == ["k"]


def test_cases_that_passed_alike_share_an_entry():
    """Cases with equal subject and clauses share an entry, which lists measurements in the order of the test's parameters."""
    results = [
        CaseResult("t[a]", "host", ("f/c01",), "passed", 0.5, 0.25),
        CaseResult("t[b]", "host", ("f/c01",), "passed", 0.25, None),
        CaseResult("t[c]", "host", (), "passed", 0.125, 0.5),
        CaseResult("t[a]", "device", ("f/c01",), "passed", 1.0, 0.125, norm_ratio=0.5, bias=0.25),
        CaseResult("t[c]", "device", ("f/c01",), "passed", 2.0, 0.0625),
    ]
    document = to_document(build(results))
    assert document["tests"] == {"t": ["[a]", "[b]", "[c]"]}
    shared = [entry for entry in document["cases"] if "measured" in entry]
    assert [(e["subject"], e["seconds"], e["error_ratio"]) for e in shared] == [
        ("host", 0.75, 0.25),
        ("device", 3.0, 0.125),
    ]
    assert [entry["places"] for entry in shared] == [[0, 1], [0, 2]]
    assert shared[1]["measured"] == [[1.0, 0.125, 0.5, None, 0.25], [2.0, 0.0625]]
    assert set(from_document(document).cases) == set(results)
    for change, message in (
        (put([0, 3], "places"), "expected places of 3 parameters"),
        (put([[1.0]], "measured"), "expected 2 lists"),
        (put([[1.0], []], "measured"), "expected a list of numbers"),
        (put(0.5, "error_ratio"), "is 0.5, but its cases say 0.25"),
        (put(["m"], "messages"), "expected 2 texts"),
    ):
        wrong = copy.deepcopy(document)
        change(next(entry for entry in wrong["cases"] if "measured" in entry))
        with pytest.raises(ReportError, match=re.escape(message)):
            from_document(wrong)


def test_failures_of_one_known_difference_share_an_entry_and_keep_what_they_say():
    results = [
        CaseResult("t[a]", "host", ("f/c01",), "failed", 0.5, 3.0, message="one", known="D1"),
        CaseResult("t[b]", "host", ("f/c01",), "failed", 0.5, None, message="two", known="D1"),
        CaseResult("t[c]", "host", ("f/c01",), "failed", 0.5, math.inf, message="not finite", known="D1"),
        CaseResult("t[d]", "host", ("f/c01",), "failed", 0.5, 4.0, message="new"),
    ]
    document = to_document(build(results))
    assert [entry["id"] for entry in document["cases"]] == ["t", "t[c]", "t[d]"]
    assert document["cases"][0]["messages"] == ["one", "two"] and document["clauses"]["f/c01"]["cases"] == ["t"]
    assert [entry["id"] for entry in document["cases"] if "reproduction" in entry] == ["t[d]"]
    assert set(from_document(document).cases) == set(results)


def test_a_known_failure_says_what_the_exception_says():
    """Only the exception is kept, because pytest's source lines would fill a report."""
    trace = "def f():\n>       g()\n\nfile.py:1:\n    def g():\n>       assert 1 == 2\nE       assert (1 == 2)\nE        +  where 1"
    assert shortened(f"difference D1: As listed.\n{trace}") == "difference D1: As listed.\nassert (1 == 2)\n+  where 1"
    assert shortened(trace) == "assert (1 == 2)\n+  where 1"
    assert shortened("difference D1: As listed.\nno trace") == "difference D1: As listed.\nno trace"
    assert shortened("x" * (KNOWN_TEXT + 7)) == "x" * KNOWN_TEXT + "\n... 7 characters more"


def test_the_table_has_a_line_for_each_case():
    rows = list(csv.DictReader(io.StringIO(to_csv(known_failures()))))
    assert [row["case"] for row in rows] == ["fine", "late", "new", "old"]
    assert [bool(row["reproduction"]) for row in rows] == [False, False, True, True]
    assert rows[3]["known"] == "D1" and rows[3]["message"] == '\'=m, "q"' and rows[1]["error_ratio"] == "0.25"


def test_the_badge_says_the_verdict():
    badge = to_badge(known_failures())
    text = "".join(ElementTree.fromstring(badge).itertext())
    assert "host" in text and "1 of 3 tested clauses passed" in text
    hostile = dataclasses.replace(known_failures(), subjects=(Subject('<b>&"'),), cases=(), functions={})
    assert "nothing tested" in "".join(ElementTree.fromstring(to_badge(hostile)).itertext())


def test_a_write_that_fails_leaves_the_old_report(tmp_path, monkeypatch):
    write_report(known_failures(), tmp_path)
    before = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    original = Path.write_bytes

    def full(path, content):
        if "junit" in path.name:
            raise OSError("No space left on device")
        return original(path, content)

    monkeypatch.setattr(Path, "write_bytes", full)
    with pytest.raises(OSError, match="No space"):
        write_report(build([case("failed")]), tmp_path)
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == before


def test_junit_keeps_legal_text_and_replaces_the_rest():
    message = "ok \t ε 🧮 ]]> <b> &\x00\x08\x1b\ud800\udfff\ufffe\uffff end"
    result = CaseResult("k", "host", (), "failed", 0, None, message, "again \x07", "")
    content = to_junit(build([result]))
    text = ElementTree.fromstring(content).find(".//failure").text
    assert text == "k\nok \t ε 🧮 ]]> <b> &" + "\ufffd" * 7 + " end\n\nreproduce: again \ufffd"


# report.html


def test_html_holds_the_whole_report_and_needs_nothing_else(report):
    page = to_html(report)
    data = re.search(r'<script type="text/plain" id="report">(.*?)</script>', page, re.DOTALL).group(1)
    assert strict_json(gzip.decompress(base64.b64decode(data, validate=True))) == strict_json(to_json(report))
    assert page.count("</script>") == page.count("<script") == 2
    for text in HOSTILE[:3]:
        assert text not in page
    markup = page.replace(data, "")
    assert not re.search(r"""(src|href)=["'](?!#|data:,)|@import|url\(|https?://(?!www\.w3\.org/2000/svg)""", markup)


def test_html_may_run_its_own_script_only(report):
    page = to_html(report)
    policy = re.search('Content-Security-Policy" content="([^"]*)"', page).group(1)
    directives = dict(entry.strip().split(" ", 1) for entry in policy.split(";"))
    assert directives["default-src"] == "'none'"
    for tag, start in (("script", '<script type="module">'), ("style", "<style>")):
        source = re.search(f"{start}(.*?)</{tag}>", page, re.DOTALL).group(1)
        digest = base64.b64encode(hashlib.sha256(source.encode()).digest()).decode()
        assert directives[f"{tag}-src"] == f"'sha256-{digest}'"


def test_html_escapes_the_specification():
    page = to_html(build(specification='A <b> & "C" $title'))
    assert page.count("A &lt;b&gt; &amp; &quot;C&quot; $title") == 2
    assert "A <b>" not in page


def test_nothing_is_written_when_a_file_cannot_be_made(tmp_path, monkeypatch):
    def fail(report):
        raise RuntimeError("no page")

    monkeypatch.setattr("dualdnn.conformance.report.to_html", fail)
    with pytest.raises(RuntimeError):
        write_report(build(), tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_the_page_names_both_documents():
    from dualdnn.conformance.report.page import documents

    clauses = load_clauses()
    first = {name: clause for name, clause in clauses.items() if clause.library != "miopen"}
    table = {clause.function: Function(clause.library, {"host": True}) for clause in clauses.values()}
    whole, part = (Report.build([], [CPU], table, given, {}) for given in (clauses, first))
    assert documents(whole) == "cuDNN API Reference 8.0.3 and MIOpen porting guide"
    assert documents(part) == "cuDNN API Reference 8.0.3"


@pytest.mark.parametrize(
    "partial, others, lacks", [(False, "passed", True), (True, "passed", False), (True, "skipped", True)]
)
def test_a_library_that_no_case_judged_is_reported(partial, others, lacks):
    """A part of the suite may have no case for a library where it judges another subject."""
    library = Subject("library-8003", ("cpu",), asked="library:libcudnn.so")
    report = build([case("skipped", subject=library.name), case(others)], (CPU, library))
    assert bool(unjudged(report, partial)) == lacks
    assert not unjudged(build([case("skipped"), case("failed", subject=library.name)], (CPU, library)), partial)
