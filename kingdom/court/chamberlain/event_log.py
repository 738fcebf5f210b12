"""Which lines of logs/events.log are new, across rotation, kills and power cuts.

Each log file has a cursor of its own: inode and checksum of the first line say which file it is, `offset` up to where
it was read, the checksum of the `last` bytes before it that they are still there. A rotated log keeps its cursor under
its new name, so it is read to its end there. In a log that was cut or edited, reading goes on after the last of the
`recent` lines, whose checksums are kept too. The caller keeps cursors in the same file as what it makes of the lines.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from zlib import crc32

from kingdom.base.disk.atomic import Disk

CHUNK = 1 << 20
"""Bytes of one reading: a turn of the loop must stay short."""
LONGEST_FIRST_LINE = 4096
LOOKED_AT = 256
"""Bytes before a cursor by which a log is known again."""
RECENT = 128
"""Lines before a cursor that are remembered: in a log that was cut or edited, reading goes on after the last one."""
MOST_GONE = 20
"""Cursors of deleted logs that are kept: a log may come back, unpacked or from a backup."""
NOT_READ: Mapping[str, Any] = {"offset": 0, "last": 0, "recent": []}
COMPRESSED = (".gz", ".xz", ".zst", ".bz2")


@dataclass(frozen=True, slots=True)
class Gap:
    """Something happened to a log that the count cannot account for."""

    #: The same for the same incident, however often it is found.
    cause: str
    #: In words, with its size.
    what: str


@dataclass(frozen=True, slots=True)
class LogReading:
    #: Whole lines, in the order of the files' age.
    lines: list[bytes]
    cursors: list[dict[str, Any]]
    gaps: list[Gap]
    #: There is more to read at once.
    has_more: bool


@dataclass(slots=True)
class _Found:
    """A log file that is there now."""

    path: Path
    fd: int
    inode: int
    size: int
    changed: float
    first: int


def read(path: Path, cursors: Iterable[Mapping[str, Any]], disk: Disk) -> LogReading:
    """Return what is new in the log at `path` and in those that were rotated away from it.

    What is returned is on the platter: a power cut after it was counted cannot take it back, to be written again.
    """
    found = sorted(_open_all(path), key=lambda file: (file.path == path, file.changed, file.path.name))
    try:
        return _read(path, found, [dict(cursor) for cursor in cursors], disk)
    finally:
        for file in found:
            os.close(file.fd)


def _read(path: Path, found: list[_Found], known: list[dict[str, Any]], disk: Disk) -> LogReading:
    matched = _match(path, found, known)
    lines: list[bytes] = []
    gaps = [_replaced(path, cursor) for cursor in known if cursor["name"] == path.name]
    cursors = [{**cursor, "name": ""} for cursor in known][-MOST_GONE:]
    total, has_more = 0, False
    for file, cursor in zip(found, matched, strict=True):
        row = {**cursor, "name": file.path.name, "inode": file.inode, "first": file.first}
        cursors.append(row)
        if total >= CHUNK:
            has_more |= row["offset"] != file.size
            continue
        offset = row["offset"]
        if not _is_as_it_was(file, cursor):
            known_end = _after_recent(file, cursor.get("recent", []))
            offset = file.size if known_end is None else known_end
            gaps.append(_damaged(file, row["offset"], known_end))
        new, taken = _lines(file, offset)
        if taken:
            is_new = cursor.get("name") != file.path.name
            disk.sync_open(file.fd, path.parent if is_new else None)
        lines += new
        total += taken
        has_more |= 0 < taken < file.size - offset
        offset += taken
        recent = [*cursor.get("recent", []), *map(crc32, new[-RECENT:])][-RECENT:]
        row |= {"offset": offset, "last": _before(file, offset), "recent": recent}
    return LogReading(lines, cursors, gaps, has_more)


def _is_as_it_was(file: _Found, cursor: Mapping[str, Any]) -> bool:
    """Return whether what was read is still there, as far as its end says."""
    offset = cursor["offset"]
    return bool(offset <= file.size and _before(file, offset) == cursor["last"])


def _before(file: _Found, offset: int) -> int:
    """Return the checksum of what stands before an offset: it tells a log that was cut and has grown again."""
    begin = max(0, offset - LOOKED_AT)
    return crc32(os.pread(file.fd, offset - begin, begin))


def _after_recent(file: _Found, recent: Iterable[int]) -> int | None:
    """Return where the last line with one of these checksums ends; None when none is near the file's end."""
    known, at, found = set(recent), max(0, file.size - CHUNK), None
    for line in os.pread(file.fd, CHUNK, at).split(b"\n")[:-1]:
        at += len(line) + 1
        if crc32(line) in known:
            found = at
    return found


def _match(path: Path, found: list[_Found], known: list[dict[str, Any]]) -> list[Mapping[str, Any]]:
    """Return the cursor of each file, and leave in `known` those whose file is gone.

    A file with another inode and a known first line took the other's place, as after a restore; beside it, it is a
    copy, which is not read.
    """
    by_file: dict[int, Mapping[str, Any]] = {}
    for same in (("inode", "first"), ("first",)):
        for number, file in enumerate(found):
            if number not in by_file:
                rows = [row for row in known if all(row[key] == getattr(file, key) for key in same)]
                if rows:
                    by_file[number] = rows[0]
                    known.remove(rows[0])
    read_as = {found[number].first for number in by_file}
    for number, file in reversed(list(enumerate(found))):  # the log itself before copies of it
        if number not in by_file:
            by_file[number] = _as_read(file) if file.first in read_as else _cursor_without_head(path, file, known)
            read_as.add(file.first)
    return [by_file[number] for number in range(len(found))]


def _as_read(file: _Found) -> Mapping[str, Any]:
    """Return the cursor of a file that was read to its end."""
    return {**NOT_READ, "offset": file.size, "last": _before(file, file.size)}


def _cursor_without_head(path: Path, file: _Found, known: list[dict[str, Any]]) -> Mapping[str, Any]:
    """Return the cursor of the log itself if it has lost its first lines and is known by its last; else a new one."""
    for row in known:
        if row["name"] == path.name == file.path.name and _after_recent(file, row.get("recent", [])) is not None:
            known.remove(row)
            return row
    return NOT_READ


def _lines(file: _Found, offset: int) -> tuple[list[bytes], int]:
    """Return the next whole lines and how many bytes they take. A line without its end is left for later."""
    data = os.pread(file.fd, min(CHUNK, file.size - offset), offset)
    end = data.rfind(b"\n") + 1
    if not end and len(data) == CHUNK:
        return [data], len(data)  # no line of ours is so long
    return data[:end].split(b"\n")[:-1], end


def _open_all(path: Path) -> list[_Found]:
    found = []
    names = [name for name in os.listdir(path.parent) if _is_log(name, path.name)]
    for name in names:
        with suppress(FileNotFoundError):
            if (file := _open(path.parent / name)) is not None:
                found.append(file)
    return found


def _is_log(name: str, log: str) -> bool:
    return name == log or (name.startswith(f"{log}.") and not name.endswith(COMPRESSED))


def _open(path: Path) -> _Found | None:
    """Open a log; None for what is no file with a whole first line."""
    if not stat.S_ISREG(os.lstat(path).st_mode):
        return None
    fd = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    about = os.fstat(fd)
    head = os.pread(fd, LONGEST_FIRST_LINE, 0) if stat.S_ISREG(about.st_mode) else b""
    line, end, _ = head.partition(b"\n")
    if not end and len(head) < LONGEST_FIRST_LINE:
        os.close(fd)
        return None
    return _Found(path, fd, about.st_ino, about.st_size, about.st_mtime, crc32(line))


def _damaged(file: _Found, counted: int, known_end: int | None) -> Gap:
    """Return the report about a log that was cut or edited: how much of it is gone, and where counting goes on."""
    name = file.path.name
    if known_end is None:
        what = f"{name} was cut or edited, and none of the last counted lines is left of {counted} bytes: its "
        what += f"{file.size} bytes are not counted, since they may have been counted before"
    elif known_end < counted:
        what = f"{name} was cut: {counted - known_end} bytes of {counted} are gone"
    else:
        what = f"{name} was edited: its first {counted} bytes are {known_end} bytes now"
    cause = f"damaged:{file.first}:{counted}:{file.size if known_end is None else known_end}"
    return Gap(cause, f"{what}. Earlier counts stay; counting goes on with what is written after that.")


def _replaced(path: Path, cursor: Mapping[str, Any]) -> Gap:
    read = f"its first {cursor['offset']} bytes were counted and stay so; later ones were not"
    return Gap(
        f"replaced:{cursor['first']}:{cursor['offset']}",
        f"{path.name} is gone or was replaced by another file: {read}. Counting continues with the current files.",
    )
