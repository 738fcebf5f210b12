"""The program under test: a compiled copy of the checkout, so that edits do not disturb a run."""

from __future__ import annotations

import atexit
import compileall
import os
import py_compile
import select
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cache
from pathlib import Path

import pytest

CHECKOUT = Path(__file__).resolve().parents[2]
NEAR = os.environ.get("KINGDOM_NEAR", "")
"""Where a defect shows: a sweep strikes only at calls that match, a power cut leaves only that outcome; the first that
is bad ends it."""
CAMPAIGN = NEAR != "" or os.environ.get("KINGDOM_CAMPAIGN") == "1"
in_campaigns = pytest.mark.skipif(not CAMPAIGN, reason="too long for the quick suite: in make faults")
PART, PARTS = (int(number) for number in os.environ.get("KINGDOM_PART", "1/1").split("/"))
"""Which part of a sweep or of a replay a campaign tries: 2/10 are the 2nd, the 12th, the 22nd point and so on."""
WORKERS = 1 if "PYTEST_XDIST_WORKER" in os.environ else 2

UNCHECKED = py_compile.PycInvalidationMode.UNCHECKED_HASH
_PARTS = ("kingdom", "schemas", "config", "generals", "bin", "scripts")


@cache
def program() -> Path:
    """Return the copy that every check of this process runs."""
    folder = new_folder()
    copy_program(CHECKOUT, folder)
    return folder


def new_folder() -> Path:
    """Return a fresh 0700 folder, removed when this process ends; with a short path, because sockets are below it."""
    folder = Path(tempfile.mkdtemp(prefix="kd-", dir="/tmp"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return folder


def copy_program(source: Path, folder: Path) -> None:
    for part in _PARTS:
        if (source / part).is_dir():
            shutil.copytree(source / part, folder / part)
    compile_program(folder)


@contextmanager
def program_with(file: str, old: str, new: str) -> Iterator[Path]:
    """Give a copy of the program in which one text is another."""
    folder = new_folder()
    shutil.copytree(program(), folder, dirs_exist_ok=True)
    change(folder / file, old, new)
    yield folder
    remove(folder)


def change(path: Path, old: str, new: str) -> None:
    """Put another text in place of one that is in a file once."""
    text = path.read_text()
    assert text.count(old) == 1, f"{text.count(old)} times in {path}: {old}"
    path.write_text(text.replace(old, new))
    if path.suffix == ".py":
        compile_file(path)


def compile_program(folder: Path) -> None:
    """Compile files that have no compiled version."""
    compileall.compile_dir(folder / "kingdom", quiet=2, invalidation_mode=UNCHECKED)


def compile_file(path: Path) -> None:
    py_compile.compile(str(path), doraise=True, invalidation_mode=UNCHECKED)


def environment(tree: Path, home: Path, more: Mapping[str, str] | None = None) -> dict[str, str]:
    """Return the same environment for every run, so that two runs make the same calls in the same order."""
    return {
        "PATH": os.environ.get("PATH", "/usr/bin:/bin"),
        "HOME": str(home),
        "LANG": "C.UTF-8",
        "PYTHONHASHSEED": "0",
        "PYTHONDONTWRITEBYTECODE": "1",
        "PYTHONPATH": str(tree),
        "KINGDOM_HOME": str(home),
        **(more or {}),
    }


def run(
    tree: Path,
    home: Path,
    argv: Sequence[str],
    *,
    timeout: float = 60,
    env: Mapping[str, str] | None = None,
) -> subprocess.CompletedProcess[str]:
    """Run one of our programs to its end; `argv` follows the interpreter."""
    return subprocess.run(
        [sys.executable, *argv],
        cwd=tree,
        env=environment(tree, home, env),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        errors="replace",
        timeout=timeout,
        check=False,
    )


@contextmanager
def running(
    tree: Path, home: Path, argv: Sequence[str], env: Mapping[str, str] | None = None
) -> Iterator[subprocess.Popen[str]]:
    """Start one of our programs; it is killed at the end if it still runs."""
    with subprocess.Popen(
        [sys.executable, *argv],
        cwd=tree,
        env=environment(tree, home, env),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        errors="replace",
    ) as child:
        try:
            yield child
        finally:
            child.kill()


def until(happened: Callable[[], object], seconds: float = 30.0) -> bool:
    """Return whether it happened in time; checked fifty times per second."""
    give_up = time.monotonic() + seconds
    while not happened():
        if time.monotonic() > give_up:
            return False
        select.select([], [], [], 0.02)
    return True


def remove(folder: Path) -> None:
    shutil.rmtree(folder, ignore_errors=True)


def is_root() -> bool:
    return os.geteuid() == 0
