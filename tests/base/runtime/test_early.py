"""A role that is asked to end while it is still loading."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

ASKED = """
import os, signal, sys
signal.signal(signal.SIGHUP, signal.SIG_IGN)
from kingdom.base.runtime import early
os.kill(os.getpid(), int(sys.argv[1]))
"""


@pytest.mark.parametrize(
    ("number", "has_ledger", "code", "noted"),
    [
        (signal.SIGTERM, True, -signal.SIGTERM, True),
        (signal.SIGINT, True, -signal.SIGINT, True),
        (signal.SIGHUP, True, 0, False),
        (signal.SIGTERM, False, -signal.SIGTERM, False),
    ],
)
def test_who_is_asked_to_end_while_it_loads_notes_it_and_ends_by_that_signal(
    home: Path, number: signal.Signals, has_ledger: bool, code: int, noted: bool
) -> None:
    ledger = home / "ledger"
    if has_ledger:
        ledger.write_text("before\n")
    env = {**os.environ, "KINGDOM_LEDGER": str(ledger)}
    role = subprocess.Popen([sys.executable, "-P", "-c", ASKED, f"{number:d}"], env=env, stderr=subprocess.PIPE)
    assert role.communicate()[1] == b""
    assert role.returncode == code
    assert not has_ledger or ledger.read_text() == "before\n" + (f"asked {role.pid}\n" if noted else "")
