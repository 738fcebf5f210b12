"""`kingdom logs`, `kingdom attach`: show what roles and soldiers print."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path

import click

from kingdom.base.disk.lock import is_locked
from kingdom.base.errors import LauncherError, NoSuchThing, NotRunning, Usage
from kingdom.base.home.places import Places
from kingdom.base.program import home
from kingdom.base.runtime.wake import Waker
from kingdom.base.words import closest, printable
from kingdom.cli import complete

LOOK_SECONDS = 0.2
BLOCK = 1 << 16
ATTACHED = {"task-": "a task's soldier", "council-": "what this agent prints"}


@click.command(short_help="Show the end of a log.")
@click.argument("role", default="", shell_complete=complete.roles)
@click.option("-f", "--follow", is_flag=True, help="Also print new lines, until Ctrl-C.")
@click.option(
    "-n", "count", type=click.IntRange(min=0), default=20, show_default=True, help="How many lines to show first."
)
def logs(role: str, follow: bool, count: int) -> None:
    """Print the end of a ROLE's log, or of the log that all roles share."""
    places = home.find()
    path = places.role_log(role) if role else places.system_log
    if not path.exists():
        known = sorted(log.stem for log in places.logs.glob("*.log"))
        hint = closest(role, known) or (f"; there are {', '.join(known)}" if known else "; nothing has run here yet")
        for start, what in ATTACHED.items():
            hint += f"; `{home.command()} attach {role}` follows {what}" if role.startswith(start) else ""
        raise NoSuchThing(what="log", name=role or "system", hint=hint)
    Tail([path], count).run(follow)


@click.command(short_help="Open a role's terminal, or follow a task's soldier.")
@click.argument("role_or_task", shell_complete=complete.roles_and_tasks)
def attach(role_or_task: str) -> None:
    """Open a ROLE's terminal (leave it with Ctrl-b d), or follow what the soldier of a TASK prints."""
    places = home.find()
    if role_or_task in {row.name for row in home.rows(places)}:
        _attach_role(places, role_or_task)
        return
    _follow_task(places, role_or_task)


def _attach_role(places: Places, role: str) -> None:
    from kingdom.court.steward.tmux import Tmux

    try:
        steward = Tmux(places)
    except LauncherError:
        steward = None  # tmux is not installed
    if steward is None or not steward.launcher_runs():
        why = "under supervisord roles have no terminal" if is_locked(places.lock(role)) else "it is not running"
        raise NotRunning(what=f"a terminal of {role}", hint=f"{why}; `{home.command()} logs {role} -f` follows its log")
    if role not in steward.statuses():
        raise NotRunning(what=role, hint=f"start it with `{home.command()} start {role}`")
    if not sys.stdout.isatty():
        raise Usage(message=f"attach needs a terminal; `{home.command()} logs {role} -f` follows without one")
    command = steward.attach_command(role)
    os.chdir(places.home)
    os.execv(command[0], command)


def _follow_task(places: Places, task: str) -> None:
    """Print the output of the task's newest run, and follow it as long as the soldier works. Each run has two files."""
    runs = sorted(places.session_logs.glob(f"soldier-{task}-*.out"), key=lambda path: path.stat().st_mtime)
    if not runs:
        raise NoSuchThing(
            what="role, or task with a soldier,", name=task, hint=f"; `{home.command()} tasks` lists tasks"
        )
    from kingdom.court.soldiers import engines

    newest = runs[-1]
    lock = next((folder / "lock" for folder in places.control_folders() if folder.name == task), None)
    tail = Tail([newest, newest.with_suffix(".err")], count=50, readable=engines.readable)
    tail.run(lock is not None and is_locked(lock), until_free=lock)


class Tail:
    """Print the ends of some files, and what is added to them; a rotated file is read from its beginning.

    With `readable`, what it makes of each line is printed, and a line only when it is whole.
    """

    def __init__(self, paths: Sequence[Path], count: int, readable: Callable[[str], str] | None = None) -> None:
        self._positions = {path: _Position(readable) for path in paths}
        self._count = count

    def run(self, follow: bool, until_free: Path | None = None) -> None:
        for path, position in self._positions.items():
            with suppress(FileNotFoundError):
                position.show_end(path, self._count)
        waker = Waker((), "poll")
        while follow:
            ends = until_free is not None and not is_locked(until_free)
            self.show_new()
            if ends:
                return
            waker.wait(LOOK_SECONDS)

    def show_new(self) -> None:
        """Print what has been added since the last look."""
        for path, position in self._positions.items():
            with suppress(FileNotFoundError):
                position.show_new(path)


class _Position:
    """How far one file has been printed."""

    def __init__(self, readable: Callable[[str], str] | None) -> None:
        self._inode = 0
        self._offset = 0
        self._readable = readable
        self._unfinished = b""

    def show_end(self, path: Path, count: int) -> None:
        with open(path, "rb") as file:
            size = os.fstat(file.fileno()).st_size
            self._inode, self._offset = os.fstat(file.fileno()).st_ino, size
            self._show(b"".join(_last_lines(file.fileno(), size, count)))

    def show_new(self, path: Path) -> None:
        with open(path, "rb") as file:
            about = os.fstat(file.fileno())
            if about.st_ino != self._inode or about.st_size < self._offset:
                self._inode, self._offset = about.st_ino, 0
            file.seek(self._offset)
            new = file.read()
            self._offset += len(new)
            self._show(new)

    def _show(self, data: bytes) -> None:
        if self._readable is None:
            _print(data)
            return
        *lines, rest = (self._unfinished + data).split(b"\n")
        said = (self._readable(line.decode("utf-8", "replace")) for line in lines)
        # What could not be an engine's event is not held back until its line is whole.
        self._unfinished = rest if rest.startswith(b"{") else b""
        _print("".join(f"{text}\n" for text in said if text).encode() + rest.removeprefix(self._unfinished))


def _last_lines(fd: int, size: int, count: int) -> Iterator[bytes]:
    """Yield the last lines. The end is read in blocks, backwards: a large log costs no more than a small one."""
    data, start = b"", size
    while start > 0 and data.count(b"\n") <= count:
        start = max(0, start - BLOCK)
        data = os.pread(fd, min(BLOCK, size - start), start) + data
    yield from data.splitlines(keepends=True)[-count:] if count else ()


def _print(data: bytes) -> None:
    if data:
        sys.stdout.write(printable(data.decode("utf-8", "replace")))
        sys.stdout.flush()
