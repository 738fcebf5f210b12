from collections.abc import Callable

import pytest

from tests.faults.oracle import Figure


@pytest.fixture
def figure(record_property: Callable[[str, object], None]) -> Figure:
    """Say a figure that a check has found; it stands in the summary at the end."""

    def say(line: str) -> None:
        print(line)
        record_property("figure", line)

    return say


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    reports = [report for found in terminalreporter.stats.values() for report in found]
    said = [
        value
        for report in reports
        if getattr(report, "when", "") == "call"
        for key, value in report.user_properties
        if key == "figure"
    ]
    for line in said:
        terminalreporter.write_line(str(line))
