"""`make test` tries what failed once more: passing then it is called flaky, and fails the run all the same."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

CHECKOUT = Path(__file__).resolve().parent.parent
PASSES = "def test_passes(): pass\n"
FAILS_ONCE = """
def test_fails_once():
    from pathlib import Path
    seen = Path("seen")
    if not seen.exists():
        seen.touch()
        raise AssertionError("the first time")
"""
FAILS = "def test_fails(): raise AssertionError('every time')\n"


@pytest.mark.parametrize(
    ("tests", "code", "told"),
    [
        (PASSES, 0, []),
        (PASSES + FAILS_ONCE, 1, ["FLAKY: test_toy.py::test_fails_once"]),
        (FAILS_ONCE + FAILS, 1, ["FAILED: test_toy.py::test_fails", "FLAKY: test_toy.py::test_fails_once"]),
    ],
    ids=["all pass", "one fails once", "another fails always"],
)
def test_what_fails_is_tried_again_and_called_by_what_it_does_then(
    tests: str, code: int, told: list[str], home: Path
) -> None:
    (home / "test_toy.py").write_text(tests)
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("PYTEST_", "COV_"))}
    ended = subprocess.run(
        [sys.executable, "-m", "tests.run", "-q", "--rootdir", str(home), "test_toy.py"],
        cwd=home,
        env={**kept, "PYTHONPATH": str(CHECKOUT), "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"},
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert ended.returncode == code, ended.stdout + ended.stderr
    assert [line for line in ended.stdout.splitlines() if line.startswith(("FLAKY:", "FAILED:"))] == told
    assert ("every time" in ended.stdout) == (FAILS in tests)
