"""A machine that cannot make roots says so, and its run does not fail."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

CHECKOUT = Path(__file__).resolve().parents[2]


def test_a_machine_without_root_or_debootstrap_tries_no_distribution_and_says_so(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "tests.roots", "trixie"]
    done = subprocess.run(command, cwd=CHECKOUT, env={"PATH": str(tmp_path)}, capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith("NO OTHER DISTRIBUTION IS TRIED: ")
    assert ("NEEDS ROOT" in done.stdout) != ("DEBOOTSTRAP AND UNSHARE" in done.stdout)
