import shutil
import tempfile
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest


@pytest.fixture
def home() -> Iterator[Path]:
    """A fresh 0700 folder. Under /tmp, because a socket's path may not be longer than about 107 bytes."""
    folder = Path(tempfile.mkdtemp(prefix="kd-", dir="/tmp"))
    yield folder
    shutil.rmtree(folder, ignore_errors=True)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    skipped = terminalreporter.stats.get("skipped", [])
    if not skipped:
        return
    reasons = Counter(str(report.longrepr[2]).removeprefix("Skipped: ") for report in skipped)
    listed = ", ".join(f"{reason} ({count})" for reason, count in sorted(reasons.items()))
    terminalreporter.write_line(f"SKIPPED: {len(skipped)} — {listed}".upper(), yellow=True)
