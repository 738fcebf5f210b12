"""`python -m tests.run [pytest's arguments]`: the tests, and what failed once more, alone.

A test that passes then is FLAKY, one that fails again FAILED. Either fails the run.
"""

from __future__ import annotations

import compileall
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

CHECKOUT = Path(__file__).resolve().parent.parent
LAST_FAILED = Path(".pytest_cache/v/cache/lastfailed")
SOME_FAILED = 1
MOST_TRIED_AGAIN = 10


def main(arguments: list[str]) -> int:
    began = time.monotonic()
    # Hundreds of processes load our modules: none of them compiles again, whatever the shell says.
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
    compileall.compile_dir(CHECKOUT / "kingdom", quiet=2, workers=0)
    if Path.cwd() == CHECKOUT:
        rewrite_asserts([word for word in arguments if word.startswith("--ignore")])
    code = pytest("--cache-clear", *arguments)
    print(f"TESTS: {time.monotonic() - began:.0f} s", flush=True)
    failed = last_failed()
    if code != SOME_FAILED or not failed:
        return code
    print(f"\nTRIED ONCE MORE, ALONE: {len(failed)}", flush=True)
    pytest("--last-failed", "--last-failed-no-failures", "none", "--maxfail", str(MOST_TRIED_AGAIN))
    again = last_failed()
    for name in failed:
        print(f"{'FAILED' if name in again else 'FLAKY'}: {name}", flush=True)
    return SOME_FAILED


def rewrite_asserts(ignored: list[str]) -> None:
    """Load all tests once, in two processes: else each worker would rewrite the asserts of all, at the same time."""
    names = sorted(str(path) for path in Path("tests").iterdir() if path.is_dir() or path.name.startswith("test_"))
    command = [sys.executable, "-m", "pytest", "--collect-only", "-q", "-p", "no:cacheprovider", *ignored]
    halves = [subprocess.Popen([*command, *names[at::2]], stdout=subprocess.DEVNULL) for at in (0, 1)]
    for half in halves:
        half.wait()


def pytest(*arguments: str) -> int:
    return subprocess.run([sys.executable, "-m", "pytest", *arguments], check=False).returncode


def last_failed() -> list[str]:
    """Return the tests that pytest noted as failed when they were last run."""
    return sorted(json.loads(LAST_FAILED.read_text())) if LAST_FAILED.exists() else []


if __name__ == "__main__":
    with tempfile.TemporaryDirectory(prefix="kd-", dir="/tmp") as root:
        os.environ["PYTEST_DEBUG_TEMPROOT"] = root  # pytest keeps its folders for three runs; nothing of ours stays
        code = main(sys.argv[1:])
    sys.exit(code)
