import shutil
import signal
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests import shares

# Of a run in the background the shell has switched INT off, for whatever the tests start as well.
signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture
def home() -> Iterator[Path]:
    """Return a fresh 0700 folder under /tmp, because a socket's path may have only about 107 bytes."""
    folder = Path(tempfile.mkdtemp(prefix="kd-", dir="/tmp"))
    yield folder
    shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture
def figure(record_property: Callable[[str, object], None]) -> Callable[[str], None]:
    """Record a figure of a check for the summary at the end."""

    def say(line: str) -> None:
        print(line)
        record_property("figure", line)

    return say


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if worker := getattr(config, "workerinput", None):
        items[:] = shares.dealt(items, worker["workercount"])


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    _tell_figures(terminalreporter)
    _tell_skipped(terminalreporter)


def _tell_skipped(terminalreporter: pytest.TerminalReporter) -> None:
    skipped = terminalreporter.stats.get("skipped", [])
    if not skipped:
        return
    reasons = Counter(str(report.longrepr[2]).removeprefix("Skipped: ") for report in skipped)
    listed = ", ".join(f"{reason} ({count})" for reason, count in sorted(reasons.items()))
    terminalreporter.write_line(f"SKIPPED: {len(skipped)} — {listed}".upper(), yellow=True)


def _tell_figures(terminalreporter: pytest.TerminalReporter) -> None:
    """Print the figures of the fault checks. Here, because the controller of workers loads no other conftest."""
    reports = [report for found in terminalreporter.stats.values() for report in found]
    calls = [report for report in reports if getattr(report, "when", "") == "call"]
    for report in calls:
        for key, value in report.user_properties:
            if key == "figure":
                terminalreporter.write_line(str(value))
