"""JSON files are read strictly, and written as they were."""

from __future__ import annotations

import fcntl
import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from kingdom.disk.codec import parse_json, read_json, read_json_or, to_json, to_line
from kingdom.errors import BadFile

VALUES = [{}, {"a": 1}, {"왕": "⚔\u2028", "nested": {"list": [1, None, True, 0.5]}}, {"": ""}]


@pytest.mark.parametrize("value", VALUES)
def test_what_is_written_is_read_again(tmp_path: Path, value: dict[str, object]) -> None:
    (tmp_path / "a").write_bytes(to_json(value))
    assert read_json(tmp_path / "a") == value
    assert parse_json(to_line(value)) == value


@pytest.mark.parametrize(
    ("data", "why"),
    [
        (b"", "empty"),
        (b"\xff", "not UTF-8 at byte 0"),
        (b"\xef\xbb\xbf{}", "byte order mark"),
        (b'{"a": 1, "a": 2}', "key 'a' appears twice"),
        (b'{"a": NaN}', "NaN is not JSON"),
        (b'{"a": 1e999}', "too large a number"),
        (b'{"a": "\\ud800"}', "lone surrogate"),
        (b'{"a": ' + b"[" * 250 + b"]" * 250 + b"}", "nested more than 200 deep"),
        (b"[" * 100_000, "nested too deeply"),
        (b"[]", "a JSON list, not an object"),
    ],
)
def test_what_is_not_strict_json_is_refused_with_the_reason(tmp_path: Path, data: bytes, why: str) -> None:
    (tmp_path / "a").write_bytes(data)
    with pytest.raises(BadFile, match=why):
        read_json(tmp_path / "a")


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
