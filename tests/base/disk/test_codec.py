"""Reading never hangs, never trusts and never takes more than it may; JSON is read strictly, and written as it was."""

from __future__ import annotations

import fcntl
import json
import os
import signal
import socket
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from kingdom.base.disk.codec import DEEPEST, parse_json, read_bytes, read_json, read_json_or, to_json, to_line, to_list
from kingdom.base.errors import BadFile


def _sparse(path: Path) -> None:
    path.touch()
    os.truncate(path, 3 << 30)


def _socket(path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(path))


def _mode_000(path: Path) -> None:
    path.write_bytes(b"{}")
    path.chmod(0o331)


BAD_FILES: dict[str, tuple[Callable[[Path], object], str]] = {
    "a pipe": (os.mkfifo, "not a regular file"),
    "a folder": (Path.mkdir, "not a regular file"),
    "a socket": (_socket, "No such device"),
    "a link to a good file": (lambda path: path.symlink_to("/etc/hostname"), "a symbolic link"),
    "a link to a device": (lambda path: path.symlink_to("/dev/zero"), "a symbolic link"),
    "3 GB of nothing": (_sparse, "more than 1048576"),
    "mode 000": (_mode_000, "000|Permission denied"),
}


@pytest.mark.parametrize("what", BAD_FILES)
def test_the_reader_takes_nothing_but_small_regular_files(home: Path, what: str) -> None:
    make, why = BAD_FILES[what]
    make(home / "x")
    with pytest.raises(BadFile, match=why):
        read_bytes(home / "x")


def test_a_file_that_is_gone_is_no_bad_file(home: Path) -> None:
    with pytest.raises(FileNotFoundError):
        read_json(home / "x")


BAD_JSON = {
    "empty": (b"", "empty"),
    "blank": (b" \n", "empty"),
    "half": (b'{"a": 1', "Expecting"),
    "two": (b"{}{}", "Extra data"),
    "a list": (b"[]", "a list, not an object"),
    "a number": (b"5", "a number, not an object"),
    "true": (b"true", "true or false, not an object"),
    "null": (b"null", "null, not an object"),
    "a text": (b'"a"', "a text, not an object"),
    "twice the same key": (b'{"a": {"b": 1, "b": 2}}', "'b' appears twice"),
    "not a number": (b'{"a": NaN}', "NaN is not JSON"),
    "infinite": (b'{"a": -Infinity}', "-Infinity is not JSON"),
    "too large a number": (b'{"a": 1e999}', "too large"),
    "too long an integer": (b'{"a": ' + b"9" * 5000 + b"}", "Exceeds the limit"),
    "byte order mark": (b"\xef\xbb\xbf{}", "byte order mark"),
    "not UTF-8": (b'{"a": "\xff"}', "not UTF-8 at byte 7"),
    "UTF-16": ('{"a": 1}'.encode("utf-16"), "not UTF-8"),
    "a lone surrogate": (b'{"a": "\\ud800"}', "surrogate"),
    "a bottomless list": (b'{"a": ' + b"[" * 200_000, "nested too deeply|Expecting"),
    "bottomless objects": (b'{"a":' * 100_000 + b"1" + b"}" * 100_000, "nested too deeply"),
    "deeper than it can be written": (b'{"a": ' + b"[" * 900 + b"]" * 900 + b"}", "nested more than 200 deep"),
}


@pytest.mark.parametrize("what", BAD_JSON)
def test_the_reader_takes_nothing_but_sound_json(home: Path, what: str) -> None:
    data, why = BAD_JSON[what]
    (home / "x").write_bytes(data)
    with pytest.raises(BadFile, match=why):
        read_json(home / "x")


GOOD_JSON: list[dict[str, Any]] = [
    {},
    {"왕": "장군 ⚔ 😀", "line": "a\nb\u2028c", "zero": "\x00"},
    {"deep": json.loads("[" * (DEEPEST - 2) + "]" * (DEEPEST - 2))},
    {"n": [0, -1, 2**63, 1.5, 1e300, True, None, "", {}, []]},
    {"many": [{"n": n} for n in range(500)]},
]


@pytest.mark.parametrize("value", GOOD_JSON)
def test_what_is_written_is_read_again(value: dict[str, Any]) -> None:
    assert parse_json(to_json(value)) == value
    assert parse_json(to_line(value)) == value
    assert parse_json(to_list([value, value])) == [value, value]


def test_an_emoji_spelt_as_an_escape_is_a_character() -> None:
    assert parse_json(b'{"a": "\\ud83d\\ude00"}') == {"a": "😀"}


def test_read_json_or_returns_the_default_where_nothing_can_be_read(tmp_path: Path) -> None:
    (tmp_path / "good").write_text('{"a": 1}')
    (tmp_path / "half").write_text('{"a"')
    (tmp_path / "link").symlink_to("good")
    (tmp_path / "folder").mkdir()
    assert read_json_or(tmp_path / "good", {}) == {"a": 1}
    for name in ("half", "link", "folder", "missing", "good/below", "x" * 300):
        assert read_json_or(tmp_path / name, {"b": 2}) == {"b": 2}


@pytest.fixture
def leased(tmp_path: Path) -> Iterator[tuple[Path, int]]:
    path = tmp_path / "leased"
    path.write_text('{"a": 1}')
    fd = os.open(path, os.O_RDWR)
    before = signal.signal(signal.SIGIO, signal.SIG_IGN)
    fcntl.fcntl(fd, fcntl.F_SETLEASE, fcntl.F_WRLCK)
    yield path, fd
    os.close(fd)
    signal.signal(signal.SIGIO, before)


def test_a_file_under_a_lease_is_read_when_its_holder_lets_go(leased: tuple[Path, int]) -> None:
    path, fd = leased
    signal.signal(signal.SIGIO, lambda *_: fcntl.fcntl(fd, fcntl.F_SETLEASE, fcntl.F_UNLCK))
    assert read_json(path) == {"a": 1}


def test_a_lease_that_is_kept_is_waited_for_only_so_long(leased: tuple[Path, int]) -> None:
    with pytest.raises(BlockingIOError):
        read_json(leased[0])
