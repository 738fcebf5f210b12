"""JSON as it lies on the disk: one strict reader, which never hangs or trusts, and writers that people can read.

Standard library only, and light: one-shot soldiers import it too.
"""

from __future__ import annotations

import errno
import json
import math
import os
import stat
from collections.abc import Iterable, Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any

from kingdom.errors import BadFile

LARGEST = 1 << 20
DEEPEST = 200
"""Deeper JSON could be read, but perhaps not written again one level further in."""


def read_bytes(path: Path | str, limit: int = LARGEST) -> bytes:
    """The content of a regular file. FileNotFoundError when it is gone; BadFile for anything unfit."""
    try:
        fd = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except FileNotFoundError:
        raise
    except OSError as trouble:
        why = "a symbolic link" if trouble.errno == errno.ELOOP else os.strerror(trouble.errno or 0)
        if trouble.errno in (errno.ELOOP, errno.EACCES, errno.ENXIO, errno.EISDIR, errno.ENODEV):
            raise BadFile(path=path, why=why) from None
        raise
    try:
        about = os.fstat(fd)
        if not stat.S_ISREG(about.st_mode):
            raise BadFile(path=path, why="not a regular file")
        if about.st_mode & 0o444 == 0:
            raise BadFile(path=path, why="nobody may read it (mode 000)")
        if about.st_size > limit:
            raise BadFile(path=path, why=f"{about.st_size} bytes, more than {limit}")
        parts = []
        room = limit + 1
        asked = about.st_size + 1
        while room > 0 and (part := os.read(fd, min(room, asked))):
            parts.append(part)
            room -= len(part)
            if len(part) < asked:
                break
        if room <= 0:
            raise BadFile(path=path, why=f"more than {limit} bytes")
        return parts[0] if len(parts) == 1 else b"".join(parts)
    finally:
        os.close(fd)


def read_json(path: Path | str, limit: int = LARGEST) -> dict[str, Any]:
    """The JSON object in a file, read strictly."""
    data = read_bytes(path, limit)
    try:
        value = parse_json(data)
    except ValueError as trouble:
        raise BadFile(path=path, why=str(trouble)) from None
    if not isinstance(value, dict):
        raise BadFile(path=path, why=f"a JSON {type(value).__name__}, not an object")
    return value


def parse_json(data: bytes) -> Any:
    """JSON as the standard says: no duplicate keys, no NaN, no BOM, nothing that UTF-8 cannot hold again."""
    if not data.strip():
        raise ValueError("empty")
    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError as trouble:
        raise ValueError(f"not UTF-8 at byte {trouble.start}") from None
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
    """How many objects and lists lie in one another."""
    depth, row = 0, [value]
    while row := [each for each in row if isinstance(each, dict | list)]:
        depth += 1
        row = [part for each in row for part in (each.values() if isinstance(each, dict) else each)]
    return depth


def _refuse_lone_surrogates(value: object) -> None:
    try:
        _ENCODE(value).encode("utf-8")
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
_ENCODE = json.JSONEncoder(ensure_ascii=False, allow_nan=False).encode


def to_json(value: Mapping[str, Any]) -> bytes:
    """One key a line: people `cat` these files."""
    lines = ",\n".join([f"  {_key(key)}: {_ENCODE(part)}" for key, part in value.items()])
    return f"{{\n{lines}\n}}\n".encode() if lines else b"{}\n"


@lru_cache(maxsize=256)
def _key(key: str) -> str:
    return _ENCODE(key)


def to_list(rows: Iterable[Mapping[str, Any]]) -> bytes:
    """A JSON array with one row a line."""
    lines = ",\n".join(f"  {_ENCODE(row)}" for row in rows)
    return f"[\n{lines}\n]\n".encode() if lines else b"[]\n"


def to_line(value: Mapping[str, Any]) -> bytes:
    return f"{_ENCODE(value)}\n".encode()
