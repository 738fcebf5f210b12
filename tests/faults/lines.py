"""Note which lines of the program run: here, and in the processes that are started, whose sitecustomize.py does it too.

What is noted goes into the file that a link names: each test gets its own, and without the link nothing is noted.
"""

from __future__ import annotations

import _thread
import fcntl
import os
import sys
import threading
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from types import FrameType
from typing import Any

LINK = "lines.now"
SITE = f"""
import os

if os.path.islink(os.path.join(os.path.dirname(__file__), {LINK!r})):
    from tests.faults import lines

    lines.note()
"""

NEVER_A_STREAM = 100
"""The least descriptor of a file of notes: a program that was started without a standard output would print into it."""

_START_THREAD = _thread.start_new_thread

Lines = dict[str, list[int]]
"""For a file of the program the lines that ran."""


def note() -> None:
    if (link := Path(__file__).resolve().parents[2] / LINK).is_symlink():
        notebook = _Notebook(link)
        threading.settrace(notebook.call)
        _thread.start_new_thread = notebook.start_thread
        sys.settrace(notebook.call)


def note_no_more() -> None:
    _thread.start_new_thread = _START_THREAD
    sys.settrace(None)
    threading.settrace(None)  # type: ignore[arg-type]


def begin(tree: Path, name: str) -> None:
    """Note in another file from now on."""
    draft = tree / f"{LINK}.new"
    draft.symlink_to(f"lines.{name}")
    draft.replace(tree / LINK)


def end(tree: Path) -> None:
    """Note nothing until it begins anew."""
    (tree / LINK).resolve().unlink(missing_ok=True)
    (tree / LINK).unlink(missing_ok=True)


def found(tree: Path) -> Lines:
    """Return what was noted since it began."""
    ran: dict[str, set[int]] = {}
    file = tree / LINK
    for line in file.read_text().splitlines() if file.exists() else []:
        path, _, number = line.rpartition(":")
        ran.setdefault(path, set()).add(int(number))
    return {path: sorted(numbers) for path, numbers in ran.items()}


class _Notebook:
    def __init__(self, link: Path) -> None:
        self._link = str(link)
        self._root = len(str(link.parent)) + 1
        self._inside = f"{link.parent}/kingdom/"
        self._now = ""
        self._into = -1
        self._seen: set[tuple[str, int]] = set()

    def call(self, frame: FrameType, _event: str, _argument: Any) -> Callable[..., Any] | None:
        if not frame.f_code.co_filename.startswith(self._inside):
            return None
        try:
            now = os.readlink(self._link)
            if now != self._now:
                self._open()
                self._now, self._seen = now, set()
        except OSError:  # it has ended, or a sandbox lets nobody write there
            return None
        return self._line

    def start_thread(self, function: Callable[..., object], arguments: tuple[Any, ...], *more: Any) -> int:
        """Start a thread in which lines are noted, and in what it forks: `threading.settrace` is for its own alone."""

        def run(*given: Any, **named: Any) -> None:
            sys.settrace(self.call)
            function(*given, **named)

        return _START_THREAD(run, arguments, *more)

    def _line(self, frame: FrameType, event: str, _argument: Any) -> Callable[..., Any]:
        if event != "line":
            return self._line
        here = (frame.f_code.co_filename, frame.f_lineno)
        if here not in self._seen:
            self._seen.add(here)
            noted = f"{here[0][self._root :]}:{here[1]}\n".encode()
            try:
                os.write(self._into, noted)
            except OSError:  # whoever becomes another program has closed what it had open
                self._seen.discard(here)
                with suppress(OSError):
                    self._open()
                    os.write(self._into, noted)
        return self._line

    def _open(self) -> None:
        into = os.open(self._link, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600)
        self._into = fcntl.fcntl(into, fcntl.F_DUPFD_CLOEXEC, NEVER_A_STREAM)
        os.close(into)
