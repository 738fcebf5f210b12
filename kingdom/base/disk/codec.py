"""Read and write JSON files: a strict reader that never hangs, and writers whose output people can read.

Standard library only, and light: one-shot soldiers import it too.
"""

from __future__ import annotations

import errno
import json
import math
import os
import stat
import time
from collections.abc import Iterable, Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any

from kingdom.base.errors import BadFile

LARGEST = 1 << 20
DEEPEST = 200
"""Deeper JSON could be read, but perhaps not written again one level further in."""
UNFIT = (errno.ELOOP, errno.EACCES, errno.ENXIO, errno.EISDIR, errno.ENODEV, errno.ENAMETOOLONG)
"""What `open` says of a path that is not a file to read: the path's fault, not the disk's."""
KINDS = {
    str: "a text",
    int: "a number",
    float: "a number",
    bool: "true or false",
    list: "a list",
    dict: "an object",
    type(None): "null",
}
LEASED_SECONDS = 0.5
"""How long a file under somebody's lease is tried again: opening it has told the holder to let go."""


def read_bytes(path: Path | str, limit: int = LARGEST) -> bytes:
    """Return the content of a regular file. FileNotFoundError when it is gone; BadFile for anything unfit."""
    return read_with_status(path, limit)[0]


def read_with_status(path: Path | str, limit: int = LARGEST) -> tuple[bytes, os.stat_result]:
    """Return the content of a regular file, and which file it was: see `read_bytes`."""
    try:
        fd = _open(path)
    except FileNotFoundError:
        raise
    except OSError as error:
        why = "a symbolic link" if error.errno == errno.ELOOP else os.strerror(error.errno or 0)
        if error.errno in UNFIT:
            raise BadFile(path=path, why=why) from None
        raise
    try:
        status = os.fstat(fd)
        if not stat.S_ISREG(status.st_mode):
            raise BadFile(path=path, why="not a regular file")
        if status.st_mode & 0o444 == 0:
            raise BadFile(path=path, why="nobody may read it (mode 000)")
        if status.st_size > limit:
            raise BadFile(path=path, why=f"{status.st_size} bytes, more than {limit}")
        parts = []
        left = limit + 1
        expected = status.st_size + 1
        while left > 0 and (part := os.read(fd, min(left, expected))):
            parts.append(part)
            left -= len(part)
            if len(part) < expected:
                break
        if left <= 0:
            raise BadFile(path=path, why=f"more than {limit} bytes")
        return parts[0] if len(parts) == 1 else b"".join(parts), status
    finally:
        os.close(fd)


def _open(path: Path | str) -> int:
    flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
    give_up = None
    while True:
        try:
            return os.open(path, flags)
        except BlockingIOError:
            give_up = give_up or time.monotonic() + LEASED_SECONDS
            if time.monotonic() > give_up:
                raise
            time.sleep(0.01)


def json_kind(value: object) -> str:
    """Return what people call the kind of a JSON value."""
    return KINDS.get(type(value), type(value).__name__)


def read_json(path: Path | str, limit: int = LARGEST) -> dict[str, Any]:
    """Return the JSON object in a file, read strictly. FileNotFoundError when it is gone; BadFile when unfit."""
    data = read_bytes(path, limit)
    try:
        value = parse_json(data)
    except ValueError as error:
        raise BadFile(path=path, why=str(error)) from None
    if not isinstance(value, dict):
        raise BadFile(path=path, why=f"{json_kind(value)}, not an object")
    return value


def read_json_or(path: Path | str, default: dict[str, Any]) -> dict[str, Any]:
    """Return the JSON object in a file, or `default` when there is none or it is unfit. A failing disk raises."""
    try:
        return read_json(path)
    except (FileNotFoundError, NotADirectoryError, BadFile):
        return default


def text_of(path: Path | str, limit: int = LARGEST) -> str:
    """Return a file's text, or "" when there is none or it is unfit."""
    try:
        return read_bytes(path, limit).decode("utf-8", "replace")
    except (FileNotFoundError, BadFile):
        return ""


def parse_json(data: bytes) -> Any:
    """Parse JSON as the standard says, else ValueError: no duplicate keys, NaN, BOM or lone surrogates."""
    if not data.strip():
        raise ValueError("empty")
    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError as error:
        raise ValueError(f"not UTF-8 at byte {error.start}") from None
    if text[0] == "\ufeff":
        raise ValueError("starts with a byte order mark")
    try:
        value = _DECODE(text)
    except RecursionError:
        raise ValueError("nested too deeply") from None
    if text.count("[") + text.count("{") > DEEPEST and _depth(value) > DEEPEST:
        raise ValueError(f"nested more than {DEEPEST} deep")
    if "\\ud" in text or "\\uD" in text:
        _refuse_lone_surrogates(value)
    return value


def _depth(value: object) -> int:
    """Return how many objects and lists lie in one another."""
    depth, level = 0, [value]
    while nested := [part for part in level if isinstance(part, dict | list)]:
        depth += 1
        level = [part for outer in nested for part in (outer.values() if isinstance(outer, dict) else outer)]
    return depth


def _refuse_lone_surrogates(value: object) -> None:
    try:
        ENCODE(value).encode("utf-8")
    except UnicodeEncodeError:
        raise ValueError("a lone surrogate, which is no character") from None


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        seen: set[str] = set()
        twice = next(key for key, _ in pairs if key in seen or seen.add(key))  # type: ignore[func-returns-value]
        raise ValueError(f"key {twice!r} appears twice")
    return found


def _no_constant(name: str) -> None:
    raise ValueError(f"{name} is not JSON")


def _finite(text: str) -> float:
    number = float(text)
    if not math.isfinite(number):
        raise ValueError(f"{text} is too large a number")
    return number


_DECODE = json.JSONDecoder(object_pairs_hook=_unique, parse_constant=_no_constant, parse_float=_finite).decode
ENCODE = json.JSONEncoder(ensure_ascii=False, allow_nan=False).encode


def to_json(value: Mapping[str, Any]) -> bytes:
    """Return a JSON object with one key a line: people `cat` these files."""
    return joined("{}", [f"{_key(key)}: {ENCODE(part)}" for key, part in value.items()])


def to_list(rows: Iterable[Mapping[str, Any]]) -> bytes:
    """Return a JSON array with one row a line."""
    return joined("[]", map(ENCODE, rows))


def joined(brackets: str, lines: Iterable[str]) -> bytes:
    """Return the lines of an object or an array as `to_json` and `to_list` do."""
    inside = ",\n  ".join(lines)
    return f"{brackets[0]}\n  {inside}\n{brackets[1]}\n".encode() if inside else f"{brackets}\n".encode()


@lru_cache(maxsize=256)
def _key(key: str) -> str:
    return ENCODE(key)


def to_line(value: Mapping[str, Any]) -> bytes:
    """Return a JSON object on one line, with its line break."""
    return f"{ENCODE(value)}\n".encode()
