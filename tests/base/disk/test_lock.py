"""A lock has one holder at a time, and everybody can see who."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from kingdom.base.disk.lock import Lock, held, holder_pid, is_locked
from kingdom.base.errors import Locked, LockLost

HOLDER = """
import sys
from pathlib import Path
from kingdom.base.disk.lock import Lock
lock = Lock(Path(sys.argv[1]), "king")
lock.acquire()
print("held", flush=True)
sys.stdin.read()
"""


def test_a_lock_lives_and_dies_with_its_process(home: Path) -> None:
    path = home / "king" / "lock"
    with subprocess.Popen(
        [sys.executable, "-c", HOLDER, path], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == "held\n"
        assert is_locked(path)
        with pytest.raises(Locked, match=rf"another king holds .* \(pid {holder.pid}\)"):
            Lock(path, "king").acquire()
        holder.send_signal(signal.SIGKILL)
        holder.wait()
    assert not is_locked(path)
    Lock(path, "king").acquire()


@pytest.mark.parametrize("how", ["removed", "replaced"])
def test_a_holder_sees_that_its_lock_file_is_another_one_now(home: Path, how: str) -> None:
    lock = Lock(home / "lock", "king")
    lock.acquire()
    lock.check()
    (home / "lock").unlink()
    if how == "replaced":
        (home / "lock").touch()
    with pytest.raises(LockLost, match="was replaced while this king ran"):
        lock.check()


def test_a_lock_that_nobody_ever_took_is_not_held(home: Path) -> None:
    assert not is_locked(home / "lock")
    (home / "lock").touch()
    assert not is_locked(home / "lock")


def test_a_lock_is_held_for_a_few_lines(home: Path) -> None:
    path = home / "king" / "lock"
    with held(path, "budgets", 0.0) as lock:
        assert is_locked(path)
        assert lock.holder() == f"pid {os.getpid()}"
        assert holder_pid(path) == os.getpid()
        with pytest.raises(Locked), held(path, "budgets", 0.05):
            pass
    assert not is_locked(path)
    with pytest.raises(OSError, match="Bad file descriptor"):
        os.fstat(lock.fileno())
    lock.release()
    lock.acquire()
    assert is_locked(path)


@pytest.mark.parametrize(("text", "pid"), [("pid 4711\n", 4711), ("pid", None), ("pid x", None), ("", None)])
def test_the_pid_of_a_lock_that_the_kernel_does_not_list_is_as_written(home: Path, text: str, pid: int | None) -> None:
    (home / "lock").write_text(text)
    assert holder_pid(home / "lock") == pid
    assert holder_pid(home / "nowhere") is None
