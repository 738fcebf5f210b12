"""The batch files of one topic: `<number of its first event>.jsonl`, a line for each event.

Numbers leave no gap: the file after one that begins at 128 and has 5 lines begins at 133. Whoever creates that file
has those numbers; who comes too late takes the next ones.
"""

from __future__ import annotations

import base64
import fcntl
import os
import time
from bisect import bisect_right
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

import orjson

from kingdom.base.disk.atomic import Disk, NewFile, make_folder, sync_folder
from kingdom.base.disk.codec import read_bytes
from kingdom.base.errors import KingdomError
from kingdom.hall.topics.base import PositionGone

ENDING = ".jsonl"
LARGEST_BATCH = 8_000_000
LARGEST_FILE = 64_000_000
LOOK_SECONDS = 2.0
"""How often a reader looks for files behind a missing one."""
MOST_REMOVED = 2000
"""Files that one call removes, so that no turn of a role takes long."""
_KEY, _VALUE = b'{"key":"', b'","value":'


class NotDurable(KingdomError):
    """{path} can be read, but may not survive a power cut: {why}"""


def to_line(key: str, value: bytes) -> bytes:
    """Return an event as one line of JSON: the value as it is, or in base64 if it is no JSON object on one line."""
    if value[:1] == b"{" and b"\n" not in value and _is_json(value):
        return b'{"key":%s,"value":%s}\n' % (orjson.dumps(key), value.rstrip())
    return b'{"key":%s,"base64":"%s"}\n' % (orjson.dumps(key), base64.b64encode(value))


def of_line(line: bytes) -> tuple[str, bytes]:
    """Return key and value of a line. One that nobody could read is a value without a key, for its reader to refuse."""
    if line.startswith(_KEY) and line.endswith(b"}"):
        end = line.find(b'"', len(_KEY))
        if line.startswith(_VALUE, end) and (key := line[len(_KEY) : end]).isascii() and b"\\" not in key:
            return key.decode(), line[end + len(_VALUE) : -1]
    try:
        found = orjson.loads(line)
        value = base64.b64decode(found["base64"]) if "base64" in found else orjson.dumps(found["value"])
        return str(found["key"]), value
    except (ValueError, KeyError, TypeError):
        return "", line


def _is_json(value: bytes) -> bool:
    try:
        orjson.loads(value)
    except ValueError:
        return False
    return True


class Batches:
    """The files of one topic, for one writer and its readers."""

    def __init__(self, folder: Path, disk: Disk) -> None:
        self.folder = folder
        self._disk = disk
        self._newest = ""
        self._end = 0
        #: The newest file as it was when its lines were counted.
        self._written: tuple[int, int, int] | None = None
        self._prepared: NewFile | None = None
        #: What a writer keeps open: the folder, and the lock that holds off removal.
        self._kept: tuple[int, int, os.stat_result] | None = None

    @property
    def groups(self) -> Path:
        """The folder of the groups' positions and locks."""
        return self.folder / "groups"

    def append(self, lines: Sequence[bytes]) -> int:
        """Append events as one file that is durable on return. Return the number of the first of them."""
        end: int | None = None
        try:
            with self._next_file() as draft:
                draft.write(b"".join(lines))
                with self._nothing_is_removed():
                    end = self._take_name(draft)
                self._newest, self._end = self._name(end), end + len(lines)
                self._written = self._about_newest()
        except OSError as error:
            if end is None:
                raise
            raise NotDurable(path=self._file(end), why=error.strerror) from None
        return end

    def prepare(self) -> None:
        """Begin the next file ahead of its events, which are durable sooner for it."""
        if self._prepared is not None:
            return
        with suppress(OSError):  # then `append` meets it too
            self._keep_open()
            self._prepared = self._disk.new_file()
            self._prepared.make_room()
            return
        self.close()

    def close(self) -> None:
        """Drop what was prepared."""
        if self._prepared is not None:
            with suppress(OSError):  # what stays is swept at the next start
                self._next_file().close()
        self._let_go()

    def end(self) -> int:
        """Return the number that the next event will have."""
        if (about := self._about_newest()) is None:
            names = self.names()
            self._newest = names[-1] if names else ""
            self._end = self._after(self._newest) if names else 0
        elif about != self._written:
            # Somebody has changed it: no number is given away that a reader may have passed.
            self._end = max(self._end, self._after(self._newest))
        while self.is_there(self._end):
            self._newest = self._name(self._end)
            self._end = self._after(self._newest)
        self._written = self._about_newest()
        return self._end

    def names(self) -> list[str]:
        """Return the names of the files, oldest first."""
        try:
            return sorted(name for name in os.listdir(self.folder) if _is_batch(name))
        except FileNotFoundError:
            return []

    def lines(self, first: int) -> list[bytes]:
        """Return the lines of the file that begins with this event; FileNotFoundError when it is not there."""
        return _split(read_bytes(self._file(first), LARGEST_FILE))

    def numbered(self, first: int) -> list[BatchLine]:
        """Return the lines of the file that begins with this event; FileNotFoundError when it is not there.

        Its events end where the next file begins: a damaged file may have more lines than it was written with.
        """
        lines = self.lines(first)
        end = next((at for at in range(1, len(lines)) if self.is_there(first + at)), len(lines))
        events = [BatchLine(first + at, line) for at, line in enumerate(lines[:end])]
        return events + [BatchLine(first + end - 1, line, past) for past, line in enumerate(lines[end:], 1)]

    def first_containing(self, number: int) -> int | None:
        """Return where the file begins that holds this event, or would: the last that does not begin behind it."""
        numbers = self.numbers()
        at = bisect_right(numbers, number)
        return numbers[at - 1] if at else None

    def numbers(self) -> list[int]:
        """Return the numbers of the events with which files begin."""
        return [int(name.removesuffix(ENDING)) for name in self.names()]

    def is_there(self, first: int) -> bool:
        """Return whether there is a file that begins with this event."""
        return os.access(f"{self.folder}/{self._name(first)}", os.F_OK)

    def changed(self) -> int:
        """Return a number that changes when files come or go."""
        return os.stat(self.folder).st_mtime_ns

    def make(self) -> None:
        """Create the folders."""
        make_folder(self.groups)

    def sync(self) -> None:
        """Make durable that the files are there which can be seen now."""
        if self._disk.durability == "power":
            sync_folder(self.folder)

    def trim(self, passed: int | None, before: float, most: int) -> int:
        """Remove files whose events all lie before `passed` (None: any), if written before a time or more than `most`.

        Never the newest, which tells where the numbers go on. Return how many were removed.
        """
        names = self.names()
        removed = []
        for at, (name, next_name) in enumerate(pairwise(names[: MOST_REMOVED + 1])):
            path = self.folder / name
            is_passed = passed is None or int(next_name.removesuffix(ENDING)) <= passed
            if not is_passed or (at >= len(names) - most and os.stat(path).st_mtime >= before):
                break
            removed.append(path)
        if removed:
            with self._nobody_appends() as alone:
                self._disk.remove_all(removed if alone else [])
                return len(removed) if alone else 0
        return 0

    def amend(self, change: Callable[[bytes], bytes]) -> Iterator[None]:
        """Replace each value by what `change` returns for it; yield after each file. Numbers of events stay."""
        for first in self.numbers():
            with suppress(FileNotFoundError):  # removed meanwhile
                self._amend(first, change)
            yield

    def _amend(self, first: int, change: Callable[[bytes], bytes]) -> None:
        lines = self.lines(first)
        amended = [_amended(line, change) for line in lines]
        if amended == lines:
            return
        path = self._file(first)
        with self._nothing_is_removed(), self._disk.drafts([(path, b"\n".join([*amended, b""]))]) as (drafts,):
            about = os.stat(path)  # it must not come back once it was removed, nor be kept longer
            os.utime(drafts[0][0], ns=(about.st_atime_ns, about.st_mtime_ns))
            self._disk.show_changed(drafts)

    def _next_file(self) -> NewFile:
        prepared, self._prepared = self._prepared, None
        draft = prepared or self._disk.new_file()
        self._let_go_if_replaced()
        if self._kept is not None:
            draft.folder = self._kept[0]
        return draft

    def _take_name(self, draft: NewFile) -> int:
        """Give a file the name of the next event, and return its number."""
        # While our newest file is there, so is all that came behind it: a name that is free was never taken.
        is_known = self._written is not None and self._about_newest() == self._written
        end = self._end if is_known else self.end()
        while not draft.take(f"{self.folder}/{self._name(end)}"):
            end = self.end()
        return end

    def _about_newest(self) -> tuple[int, int, int] | None:
        """Return what changes when somebody changes the newest file; None when there is none."""
        if not self._newest:
            return None
        try:
            about = os.stat(f"{self.folder}/{self._newest}")
        except FileNotFoundError:
            return None
        return about.st_ino, about.st_size, about.st_mtime_ns

    def _keep_open(self) -> None:
        """Have folder and lock open, those that are there now."""
        self._let_go_if_replaced()
        if self._kept is None:
            lock = self._opened_lock()
            folder = os.open(self.folder, os.O_RDONLY | os.O_CLOEXEC)
            self._kept = folder, lock, os.fstat(folder)

    def _let_go_if_replaced(self) -> None:
        """Close folder and lock when another folder has their name, as after a restore: that one is to be synced."""
        try:
            if self._kept is None or os.path.samestat(self._kept[2], os.stat(self.folder)):
                return
        except FileNotFoundError:
            pass
        self._let_go()

    def _let_go(self) -> None:
        for fd in self._kept[:2] if self._kept else ():
            os.close(fd)
        self._kept = None

    def _after(self, name: str) -> int:
        lines = _split(read_bytes(self.folder / name, LARGEST_FILE))
        return int(name.removesuffix(ENDING)) + len(lines)

    def _file(self, first: int) -> Path:
        return self.folder / self._name(first)

    @staticmethod
    def _name(first: int) -> str:
        return f"{first:020}{ENDING}"

    @contextmanager
    def _nothing_is_removed(self) -> Iterator[None]:
        """Hold off removal while a name is chosen: a slow writer would take a number that was read and removed."""
        fd = self._kept[1] if self._kept else self._opened_lock()
        try:
            fcntl.flock(fd, fcntl.LOCK_SH)
            yield
        finally:
            if self._kept:
                fcntl.flock(fd, fcntl.LOCK_UN)
            else:
                os.close(fd)

    @contextmanager
    def _nobody_appends(self) -> Iterator[bool]:
        fd = self._opened_lock()
        try:
            try:
                fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                yield False
            else:
                yield True
        finally:
            os.close(fd)

    def _opened_lock(self) -> int:
        path = self.groups / "removal.lock"
        flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW
        try:
            return os.open(path, flags, 0o600)
        except FileNotFoundError:
            self.make()
            return os.open(path, flags, 0o600)


class BatchLine(NamedTuple):
    """One line of a file, as a reader finds it."""

    #: Of its event; of a surplus line that of the event before it.
    number: int
    data: bytes
    #: Its distance behind its file's last event; 0 for an event.
    surplus: int = 0


class BatchReading:
    """One reader's place in the files of a topic."""

    def __init__(self, batches: Batches, topic: str, reader: str, start: int | None) -> None:
        """`start` is the number of the first event to read; None is the oldest."""
        self._batches = batches
        self._topic = topic
        self._reader = reader
        self._next = start
        #: The file that was opened last, by its first event.
        self._file = -1 if start is None else start - 1
        self._lines: list[BatchLine] = []
        self._at = 0
        self._is_started = False
        self._gone: PositionGone | None = None
        self._looked_at = 0.0
        self._seen = 0

    def read(self, at_most: int) -> list[BatchLine]:
        """Return the next lines. Surplus ones come with the event before them, also when that makes a few too many."""
        if self._at >= len(self._lines) and not self._opens_next():
            return []
        end = self._at + at_most
        while end < len(self._lines) and self._lines[end].surplus:
            end += 1
        found = self._lines[self._at : end]
        self._at += len(found)
        self._next = found[-1].number + 1
        return found

    def check(self) -> None:
        """Raise PositionGone, once, before going on behind events that were removed unread."""
        if self._gone is not None:
            gone, self._gone = self._gone, None
            raise gone

    def _opens_next(self) -> bool:
        if self._gone is not None:
            return False
        if not self._is_started:
            if not self._starts():
                return False
            if self._gone is not None or self._at < len(self._lines):
                return self._gone is None
        assert self._next is not None
        try:
            self._open(self._next)
        except FileNotFoundError:
            self._look_behind()
            return False
        return True

    def _open(self, first: int) -> None:
        self._lines, self._at, self._file = self._batches.numbered(first), 0, first

    def _starts(self) -> bool:
        """Find the first line to read, which may lie within a file. Return whether there is such a place yet."""
        numbers = self._batches.numbers()
        if not numbers and not self._next:
            return False
        self._is_started = True
        if self._next is None:
            self._next = numbers[0]
        if self._next > self._batches.end():
            # The files that were read are gone, and what comes now would be taken for read.
            self._jump(numbers[0] if numbers else 0)
        elif (first := self._batches.first_containing(self._next)) is not None:
            self._open(first)
            self._at = next((at for at, line in enumerate(self._lines) if line.number >= self._next), len(self._lines))
        return True

    def _look_behind(self) -> None:
        """Look from time to time for files behind a missing one: somebody may have removed it."""
        now = time.monotonic()
        if now - self._looked_at < LOOK_SECONDS:
            return
        self._looked_at = now
        changed = self._batches.changed()
        if changed == self._seen:
            return
        self._seen = changed
        assert self._next is not None
        later = next((number for number in self._batches.numbers() if number > self._file), None)
        if later is None or self._batches.is_there(self._next):
            return
        if later < self._next:  # the file before it had too many lines, which were read before this one came
            self._next = later
        else:
            self._jump(later)

    def _jump(self, number: int) -> None:
        self._gone = PositionGone(reader=self._reader, topic=self._topic, missed=self._next, oldest=number)
        self._next, self._lines, self._at, self._file = number, [], 0, number - 1


def _amended(line: bytes, change: Callable[[bytes], bytes]) -> bytes:
    key, value = of_line(line)
    amended = change(value)
    return line if amended == value else to_line(key, amended).rstrip(b"\n")


def _is_batch(name: str) -> bool:
    return name.endswith(ENDING) and len(name) == 20 + len(ENDING) and name[:20].isdigit()


def _split(data: bytes) -> list[bytes]:
    """Return the lines, without the blank ones that a power cut may have left behind them."""
    return data.rstrip(b"\n").split(b"\n")
