"""The run of all stages: failures are listed, and an aborted stage counts as a failure."""

import sys
from pathlib import Path

import pytest

from tests.__main__ import Case, Ran, Stage, run, summary

REPORT = """<testsuites><testsuite>
<testcase classname="tests.a" name="test_one" time="0.5" />
<testcase classname="tests.a" name="test_two" time="2.0"><failure message="no">no</failure></testcase>
<testcase classname="tests.b" name="test_three" time="0.1"><skipped message="no Java" /></testcase>
</testsuite></testsuites>"""


def test_summary_lists_failures_and_ends_with_counts(tmp_path: Path) -> None:
    report = tmp_path / "report"
    report.write_text(REPORT)
    ran = run(Stage("some", (sys.executable, "-c", "raise SystemExit(1)"), pytest=False), report, ())
    assert ran.cases == [
        Case("tests.a::test_one", "passed", 0.5),
        Case("tests.a::test_two", "failed", 2.0),
        Case("tests.b::test_three", "skipped", 0.1),
    ]
    lines = list(summary([ran]))
    assert "  tests.a::test_two" in lines
    assert lines[-1] == "1 passed, 1 failed, 1 skipped"


@pytest.mark.parametrize(("status", "failed"), [(0, []), (2, ["check (status 2)"])])
def test_stage_without_report_fails_on_nonzero_status(status: int, failed: list[str]) -> None:
    assert Ran(Stage("check", (), pytest=False), status, 1.0, []).failed == failed
