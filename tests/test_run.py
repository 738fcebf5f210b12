"""A test that failed is run five times alone: then it is flaky or failed, and CI accepts two flaky ones."""

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
FAILS_EVERY_SECOND_TIME = """
def test_fails_now_and_then():
    from pathlib import Path
    count = Path("count")
    count.write_text("x" + (count.read_text() if count.exists() else ""))
    assert len(count.read_text()) % 2 == 0
"""
FAILS = "def test_fails(): raise AssertionError('every time')\n"


FLAKY = "FLAKY: test_toy.py::test_fails_once"
FAILED = "FAILED: test_toy.py::test_fails"


@pytest.mark.parametrize(
    ("tests", "ci", "noted", "code", "said"),
    [
        (PASSES, "", "", 0, []),
        (PASSES + FAILS_ONCE, "", "", 1, [FLAKY]),
        (FAILS_ONCE + FAILS, "", "", 1, [FAILED, FLAKY]),
        (PASSES + FAILS_ONCE, "true", "", 0, [FLAKY]),
        (PASSES + FAILS_ONCE, "true", "another\n", 0, [FLAKY]),
        (PASSES + FAILS_ONCE, "true", "another\na third\n", 1, [FLAKY]),
        (FAILS_ONCE + FAILS, "true", "", 1, [FAILED, FLAKY]),
        (FAILS_EVERY_SECOND_TIME, "true", "", 1, ["FAILED: test_toy.py::test_fails_now_and_then"]),
    ],
    ids=[
        "all pass",
        "one fails once",
        "another fails always",
        "CI accepts one that fails once",
        "CI accepts two",
        "CI refuses three",
        "CI refuses one that fails always",
        "CI refuses one that fails again",
    ],
)
def test_a_test_that_fails_is_run_again_alone_and_named_by_what_it_does_then(
    tests: str, ci: str, noted: str, code: int, said: list[str], home: Path
) -> None:
    (home / "test_toy.py").write_text(tests)
    (home / "build").mkdir()
    (home / "build/flaky.txt").write_text(noted)
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("PYTEST_", "COV_"))}
    ended = subprocess.run(
        [sys.executable, "-m", "tests.run", "-q", "--rootdir", str(home), "test_toy.py"],
        cwd=home,
        env={**kept, "PYTHONPATH": str(CHECKOUT), "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1", "CI": ci},
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert ended.returncode == code, ended.stdout + ended.stderr
    assert [line for line in ended.stdout.splitlines() if line.startswith(("FLAKY:", "FAILED:"))] == said
    assert ("every time" in ended.stdout) == (FAILS in tests)
