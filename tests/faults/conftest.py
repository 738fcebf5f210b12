import re
from collections.abc import Callable

import pytest

from tests.faults.oracle import Figure

SHOWN_A_DEFECT = re.compile(r"::test_\w*(defect|hole)")


@pytest.fixture
def figure(record_property: Callable[[str, object], None]) -> Figure:
    """Say a figure that a check has found; it stands in the summary at the end."""

    def say(line: str) -> None:
        print(line)
        record_property("figure", line)

    return say


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    reports = [report for found in terminalreporter.stats.values() for report in found]
    calls = [report for report in reports if getattr(report, "when", "") == "call"]
    for report in calls:
        for key, value in report.user_properties:
            if key == "figure":
                terminalreporter.write_line(str(value))
    shown = [report for report in calls if SHOWN_A_DEFECT.search(report.nodeid) and not report.skipped]
    if shown:
        caught = sum(report.passed for report in shown)
        terminalreporter.write_line(f"mutants caught: {caught} of {len(shown)}")
