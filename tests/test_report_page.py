"""report.html in headless Chromium, driven over the WebDriver protocol. Set DUALDNN_CHROMIUM to the browser if it is not on the path."""

import base64
import contextlib
import json
import math
import os
import shutil
import subprocess
import time
import urllib.request

import pytest
from dualdnn.conformance.report import to_html, write_report
from synthetic_report import HOSTILE, synthetic_report

CHROMIUM = os.environ.get("DUALDNN_CHROMIUM") or shutil.which("chromium") or shutil.which("google-chrome")
DRIVER = shutil.which("chromedriver")
pytestmark = pytest.mark.skipif(not (CHROMIUM and DRIVER), reason="needs Chromium and chromedriver")

FLAGS = (
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--disable-dev-shm-usage",
    "--window-size=1280,900",
)


class Browser:
    """As much of a WebDriver client as these tests need."""

    def __init__(self, driver_url, profile):
        self.url = driver_url
        options = {"binary": CHROMIUM, "args": [*FLAGS, f"--user-data-dir={profile}"]}
        capabilities = {"goog:chromeOptions": options, "goog:loggingPrefs": {"browser": "ALL"}}
        session = self.call("POST", "/session", capabilities={"alwaysMatch": capabilities})
        self.url += f"/session/{session['sessionId']}"

    def call(self, method, path, **body):
        data = json.dumps(body).encode() if method == "POST" else None
        request = urllib.request.Request(self.url + path, data, {"Content-Type": "application/json"}, method=method)
        with urllib.request.urlopen(request, timeout=60) as response:
            return json.load(response)["value"]

    def open(self, url):
        self.call("POST", "/url", url="about:blank")
        self.call("POST", "/url", url=url)

    def run(self, script, *arguments):
        return self.call("POST", "/execute/sync", script=script, args=list(arguments))

    def wait(self, script, *arguments):
        deadline = time.monotonic() + 10
        while not (value := self.run(script, *arguments)):
            assert time.monotonic() < deadline, f"still waiting for: {script}"
            time.sleep(0.03)
        return value

    def log(self):
        return [entry["message"] for entry in self.call("POST", "/se/log", type="browser")]

    def screenshot(self, path):
        path.write_bytes(base64.b64decode(self.call("GET", "/screenshot")))

    # The page under test

    def filter(self, name, value):
        before = self.found()
        self.run(
            """const field = document.getElementById("filters").elements[arguments[0]];
            if (field instanceof RadioNodeList)
              for (const box of field) box.checked = box.value === arguments[1];
            else field.value = arguments[1];
            (field[0]?.form ? field[0] : field).dispatchEvent(new Event("input", {bubbles: true}));""",
            name,
            value,
        )
        return self.wait(
            "const text = document.getElementById('found').textContent; return text !== arguments[0] && text", before
        )

    def found(self):
        return self.run("return document.getElementById('found').textContent")


@pytest.fixture(scope="module")
def report():
    return synthetic_report()


@pytest.fixture(scope="module")
def page(report, tmp_path_factory):
    return write_report(report, tmp_path_factory.mktemp("report"))["report.html"].as_uri()


@pytest.fixture(scope="module")
def session(tmp_path_factory):
    driver = subprocess.Popen([DRIVER, "--port=0"], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    try:
        for line in driver.stdout:
            if "started successfully on port" in line:
                port = int(line.rsplit(" ", 1)[1].strip().rstrip("."))
                break
        else:
            pytest.fail("chromedriver did not start")
        browser = Browser(f"http://127.0.0.1:{port}", tmp_path_factory.mktemp("profile"))
        yield browser
        with contextlib.suppress(OSError):
            browser.call("DELETE", "")
    finally:
        driver.terminate()
        driver.wait(10)


@pytest.fixture
def browser(session, page):
    """A fresh page, which at the end has reported no error and run nothing that came out of the data."""
    session.open(page)
    yield session
    assert session.run("return window.hacked ?? null") is None
    assert session.log() == []


def matching(report, test):
    return [clause for clause in report.clauses.values() if test(clause, report.states[clause.id])]


def counted(report, found):
    return f"{len(found):,} of {len(report.clauses):,} clauses"


def test_the_totals_are_those_of_the_report(browser, report):
    shown = browser.run(
        "return Object.fromEntries([...document.querySelectorAll('[data-total]')].map(n => [n.dataset.total, n.textContent]))"
    )
    for kind, totals in (("clauses", report.totals), ("cases", report.case_totals)):
        for subject, counts in totals.items():
            for name, count in counts.items():
                assert shown[f"{kind}/{subject}/{name}"] == f"{count:,}"
    for subject in report.totals:
        implemented = sum(function.implemented[subject] for function in report.functions.values())
        assert shown[f"functions/{subject}"] == f"{implemented} of {len(report.functions)}"
    assert browser.found() == counted(report, report.clauses)


def test_filters_find_what_the_report_holds(browser, report):
    failed = matching(report, lambda clause, states: "failed" in states.values())
    assert browser.filter("state", "failed") == counted(report, failed)

    failed = matching(report, lambda clause, states: states["accelerated"] == "failed")
    assert browser.filter("subject", "accelerated") == counted(report, failed)

    failed = [clause for clause in failed if clause.library == "ops_infer"]
    assert browser.filter("library", "ops_infer") == counted(report, failed)

    failed = [clause for clause in failed if clause.kind == "status"]
    assert browser.filter("kind", "status") == counted(report, failed)


def test_a_filter_survives_in_the_address(browser, page, report):
    browser.filter("state", "failed")
    expected = browser.filter("subject", "reference")
    address = browser.run("return location.href")
    browser.open(address)
    assert browser.found() == expected
    assert browser.run("return document.querySelector('[name=subject]').value") == "reference"
    browser.run("document.getElementById('reset').click()")
    assert browser.found() == counted(report, report.clauses)


def test_scope_leaves_functions_without_cases_out(browser, report):
    tested = {report.clauses[cited].function for case in report.cases for cited in case.clauses}
    assert browser.filter("scope", "tested") == counted(report, matching(report, lambda c, _: c.function in tested))
    implemented = {name for name, function in report.functions.items() if any(function.implemented.values())}
    in_scope = implemented | (tested - report.functions.keys())
    assert browser.filter("scope", "implemented") == counted(
        report, matching(report, lambda c, _: c.function in in_scope)
    )


def test_search_finds_every_word_and_opens_what_it_found(browser, report):
    def holds(clause, states):
        cases = [text for case in report.cases_of_clause[clause.id] for text in (case.id, case.message)]
        text = " ".join((clause.id, clause.section, clause.status or "", clause.text, *cases)).lower()
        return "softmax" in text and "stride" in text

    found = matching(report, holds)
    assert 0 < len(found) <= 40
    assert browser.filter("q", "Softmax stride") == counted(report, found)
    shown = browser.run("return [...document.querySelectorAll('tr[data-clause]')].map(row => row.dataset.clause)")
    assert sorted(shown) == sorted(clause.id for clause in found)
    assert browser.filter("q", "no clause says this") == counted(report, [])


def test_levels_are_drawn_when_they_are_opened(browser, report):
    assert browser.run("return document.querySelectorAll('tr[data-clause], details.function').length") == 0
    browser.run("document.querySelector('[data-key=ops_infer] > summary').click()")
    browser.wait("return document.querySelectorAll('details.function').length")
    browser.run("document.querySelector('[data-key=\"ops_infer cudnnPoolingForward\"] > summary').click()")
    rows = browser.wait("return document.querySelectorAll('tr[data-clause]').length")
    assert rows == sum(clause.function == "cudnnPoolingForward" for clause in report.clauses.values())


def test_the_whole_tree_opens_quickly(browser, report):
    seconds = browser.run(
        """const start = performance.now();
        document.getElementById("expand").click();
        document.body.getBoundingClientRect();
        return (performance.now() - start) / 1000;"""
    )
    assert browser.run("return document.querySelectorAll('tr[data-clause]').length") == len(report.clauses)
    assert seconds < 10


def open_clause(browser, page, identifier):
    browser.open(f"{page}#clause={identifier}")
    return browser.wait(
        """const row = [...document.querySelectorAll("tr[data-clause]")].find(node => node.dataset.clause === arguments[0]);
        if (!row) return null;
        const box = row.getBoundingClientRect();
        const visible = box.top >= 0 && box.bottom <= innerHeight;
        return {visible, target: row.classList.contains("target"), cases: row.nextElementSibling?.innerText ?? ""};""",
        identifier,
    )


def test_an_address_shows_one_clause_with_its_failing_cases(browser, page, report):
    failing = next(case for case in report.cases if case.outcome == "failed" and case.message.startswith("expected"))
    shown = open_clause(browser, page, failing.clauses[0])
    assert shown["visible"] and shown["target"]
    assert failing.message in shown["cases"]
    assert failing.reproduction in shown["cases"]
    browser.run(
        """[...document.querySelectorAll(".copy")].find(node => node.innerText.includes(arguments[0]))
        .querySelector("button").click()""",
        failing.reproduction,
    )
    browser.wait("return ['Copied', 'Press Ctrl+C'].includes(document.getElementById('announce').textContent)")


def test_hostile_texts_are_shown_as_they_are_and_do_nothing(browser, page, report):
    for text in HOSTILE[:3]:
        case = next(case for case in report.cases if case.message == text)
        open_clause(browser, page, case.clauses[0])
        shown = "return [...document.querySelectorAll('#tree pre')].some(node => node.textContent === arguments[0])"
        assert browser.run(shown, text)
    assert browser.run("return document.querySelectorAll('main img, main script, main b').length") == 0


def test_hostile_names_do_nothing_either(session, tmp_path):
    """The same data with markup in every place a text can stand."""
    document = json.dumps("<img src=x onerror=window.hacked=1>")[1:-1]
    text = to_html(synthetic_report(2))
    start = text.index('id="report">') + len('id="report">')
    end = text.index("</script>", start)
    data = (
        text[start:end]
        .replace("reference", "\\u003cb\\u003e__proto__")
        .replace("3.12.3", document.replace("<", "\\u003c"))
    )
    path = tmp_path / "report.html"
    path.write_text(text[:start] + data.replace(">", "\\u003e") + text[end:])
    session.open(path.as_uri())
    session.run("document.getElementById('expand').click(); document.querySelector('#ratios summary').click()")
    assert session.run("return document.querySelectorAll('main img, main b').length") == 0
    assert "<b>__proto__" in session.run("return document.getElementById('cards').textContent")
    assert session.run("return window.hacked ?? null") is None
    assert session.log() == []


def test_errors_are_drawn_for_each_subject_and_function(browser, report):
    numeric = [case for case in report.cases if case.error_ratio is not None]
    assert browser.run("return document.querySelectorAll('#histograms svg').length") == len(
        {c.subject for c in numeric}
    )
    browser.run("document.querySelector('#ratios summary').click()")
    rows = browser.wait(
        "return [...document.querySelectorAll('#ratios tbody tr')].map(row => [row.cells[0].innerText, row.cells[2].innerText])"
    )
    worst: dict[str, float] = {}
    for case in numeric:
        ratio = math.inf if math.isnan(case.error_ratio) else case.error_ratio
        for name in {report.clauses[cited].function for cited in case.clauses}:
            worst[name] = max(ratio, worst.get(name, 0.0))
    assert {name for name, _ in rows} == worst.keys()
    loose = {name for name, largest in worst.items() if 0 < largest < 1e-3}
    assert loose and {name for name, mark in rows if "loose" in mark} == loose


def test_differences_benchmarks_and_environment_are_shown(browser, report):
    texts = {
        name: browser.run("return document.getElementById(arguments[0]).innerText", name)
        for name in ("differences", "benchmarks", "environment")
    }
    assert "refuses <b>unequal</b> strides" in texts["differences"]
    assert "softmax 64x1000" in texts["benchmarks"] and "vendor (µs)" in texts["benchmarks"]
    for value in report.environment.values():
        assert str(value) in texts["environment"]


def test_sections_without_data_are_absent(session, report, tmp_path):
    empty = type(report).build((), report.subjects, report.functions, report.clauses, {})
    (tmp_path / "report.html").write_text(to_html(empty))
    session.open((tmp_path / "report.html").as_uri())
    assert session.run("return ['differences', 'benchmarks'].map(id => document.getElementById(id).hidden)") == [
        True,
        True,
    ]
    assert session.log() == []


@pytest.mark.parametrize("width", [400, 1280])
def test_nothing_is_wider_than_the_window(browser, report, width):
    metrics = {"width": width, "height": 800, "deviceScaleFactor": 1, "mobile": False}
    browser.call("POST", "/goog/cdp/execute", cmd="Emulation.setDeviceMetricsOverride", params=metrics)
    try:
        browser.filter("q", "softmax")
        browser.run("document.getElementById('expand').click(); document.querySelector('#ratios summary').click()")
        browser.run("for (const node of [...document.querySelectorAll('.clauses button')].slice(0, 20)) node.click()")
        assert browser.run("return document.documentElement.scrollWidth") <= width
    finally:
        browser.call("POST", "/goog/cdp/execute", cmd="Emulation.clearDeviceMetricsOverride", params={})
