"""Read strace's output as calls, and select those that touch a folder."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

ON_DESCRIPTOR = frozenset(
    "write pwrite64 writev pwritev pwritev2 fsync fdatasync syncfs ftruncate fallocate fchmod fchown flock "
    "read pread64 readv preadv getdents64 lseek copy_file_range sendfile sendfile64 close fgetxattr".split()
)
ON_FOLDER_AND_NAME = frozenset(
    "openat mkdirat unlinkat newfstatat fchmodat fchmodat2 fchownat utimensat faccessat faccessat2 mknodat "
    "readlinkat renameat renameat2 linkat symlinkat statx".split()
)
ON_PATH = frozenset(
    "open creat mkdir rmdir unlink chmod chown truncate stat lstat access readlink mknod rename link symlink "
    "chdir".split()
)

CHANGING = (
    "openat",
    "write",
    "pwrite64",
    "writev",
    "pwritev",
    "rename",
    "renameat",
    "renameat2",
    "link",
    "linkat",
    "symlink",
    "symlinkat",
    "unlink",
    "unlinkat",
    "mkdir",
    "mkdirat",
    "rmdir",
    "truncate",
    "ftruncate",
    "fallocate",
    "chmod",
    "fchmod",
    "fchmodat",
    "utimensat",
    "copy_file_range",
    "sendfile",
    "fsync",
    "fdatasync",
    "syncfs",
)
"""Every call that leaves a trace on the disk. Of openat only the opens that write count."""

READING = ("openat", "read", "pread64", "getdents64", "newfstatat", "statx", "readlink", "readlinkat")
"""What a role learns about the disk by."""


def strace() -> str:
    """Return the program's path; the check is skipped where it is not installed."""
    return shutil.which("strace") or pytest.skip("strace is not installed")


@contextmanager
def slow_forks(server: int) -> Iterator[None]:
    """Make every fork of this supervisord stay a copy of it for a second."""
    delayed = ("-e", "trace=setpgid", "-e", "inject=setpgid:delay_exit=1000000")
    argv = [strace(), "-f", "-o", "/dev/null", *delayed, "-p", str(server)]
    with subprocess.Popen(argv, stderr=subprocess.PIPE) as tracing:
        try:
            assert tracing.stderr is not None
            assert b"attached" in tracing.stderr.readline()
            yield
        finally:
            tracing.terminate()


_CALL = re.compile(r"(?:(?P<pid>\d+) +)?(?P<name>\w+)\((?P<args>.*)\) += (?P<result>.*)\Z", re.DOTALL)
_UNFINISHED = re.compile(r"(?:(?P<pid>\d+) +)?(?P<name>\w+)\((?P<args>.*) <unfinished \.\.\.>\Z", re.DOTALL)
_RESUMED = re.compile(r"(?:(?P<pid>\d+) +)?<\.\.\. (?P<name>\w+) resumed>(?P<rest>.*)\) += (?P<result>.*)\Z", re.DOTALL)
_TOKEN = re.compile(
    r"""(?:\d+|AT_FDCWD)<[^>]*>(?:\(deleted\))?|"(?:[^"\\]|\\.)*"(?:\.\.\.)?|"""
    r"""\[(?:"(?:[^"\\]|\\.)*"|[^\]"])*\]|[^,"\[]+"""
)
_DESCRIPTOR = re.compile(r"(?:\d+|AT_FDCWD)<(?P<path>.*?)>(?:\(deleted\))?\Z", re.DOTALL)
_HEX = re.compile(r"(?:\\x[0-9a-f]{2})+")
_ESCAPE = re.compile(rb'\\(x[0-9a-f]{2}|[0-7]{1,3}|[ntrvf\\"])')
_PLAIN = {b"n": b"\n", b"t": b"\t", b"r": b"\r", b"v": b"\v", b"f": b"\f", b"\\": b"\\", b'"': b'"'}


@dataclass(frozen=True)
class Call:
    pid: int
    name: str
    args: tuple[str, ...]
    result: str

    @property
    def injected(self) -> bool:
        return "(INJECTED)" in self.result

    @property
    def value(self) -> int | None:
        """What it returned; None when it failed or never came back."""
        number = re.match(r"(\d+)", self.result)
        return int(number[1]) if number else None

    @property
    def writes(self) -> bool:
        """Whether an open asks for more than reading."""
        return any(flag in part for part in self.args for flag in ("O_WRONLY", "O_RDWR", "O_CREAT", "O_TRUNC"))

    @property
    def creates(self) -> bool:
        return any(flag in part for part in self.args for flag in ("O_CREAT", "O_TRUNC"))


def read_calls(log: Path) -> Iterator[Call]:
    """The calls in the order in which they began; one that never came back has result '?'."""
    begun: list[Call] = []
    open_at: dict[tuple[int, str], int] = {}
    with log.open(encoding="utf-8", errors="surrogateescape") as lines:
        for line in lines:
            text = line.rstrip("\n")
            if found := _RESUMED.match(text):
                place = open_at.pop((int(found["pid"] or 0), found["name"]), None)
                if place is not None:
                    half = begun[place]
                    rest = _split(found["rest"].removeprefix(", "))
                    begun[place] = Call(half.pid, half.name, half.args + rest, found["result"])
            elif found := _UNFINISHED.match(text):
                pid = int(found["pid"] or 0)
                open_at[pid, found["name"]] = len(begun)
                begun.append(Call(pid, found["name"], _split(found["args"].removesuffix(",")), "?"))
            elif found := _CALL.match(text):
                begun.append(Call(int(found["pid"] or 0), found["name"], _split(found["args"]), found["result"]))
    yield from begun


def was_killed(log: Path) -> bool:
    with log.open(encoding="utf-8", errors="replace") as lines:
        return any("+++ killed by SIGKILL" in line for line in lines)


def only_first_process(calls: Iterable[Call]) -> list[Call]:
    """The calls of the process that was started, without its threads and children."""
    kept = list(calls)
    return [call for call in kept if call.pid == kept[0].pid] if kept else []


def paths_of(call: Call, cwd: str) -> list[str]:
    """The absolute paths that a call works on, in its order."""
    if call.name in ON_DESCRIPTOR:
        spelt = [path_of_descriptor(part) for part in call.args]
        return [path for path in spelt if path is not None]
    if call.name in ON_FOLDER_AND_NAME:
        found, base = [], cwd
        for part in call.args:
            if (folder := path_of_descriptor(part)) is not None:
                base = folder
            elif part.startswith('"'):
                found.append(os.path.join(base, _text(part)))
        return found
    if call.name in ON_PATH:
        return [os.path.join(cwd, _text(part)) for part in call.args if part.startswith('"')]
    return []


def path_of_descriptor(part: str) -> str | None:
    found = _DESCRIPTOR.match(part)
    path = os.fsdecode(unescape(found["path"])) if found else ""
    return path if path.startswith("/") else None


def unescape(text: str) -> bytes:
    """A strace string, with or without its quotes, as the bytes it stands for."""
    bare = text[1:-1] if text.startswith('"') else text
    if _HEX.fullmatch(bare):
        return bytes.fromhex(bare.replace("\\x", ""))
    raw = os.fsencode(bare)
    return _ESCAPE.sub(_one_escape, raw) if b"\\" in raw else raw


def _one_escape(found: re.Match[bytes]) -> bytes:
    code = found[1]
    if code in _PLAIN:
        return _PLAIN[code]
    return bytes([int(code[1:], 16) if code.startswith(b"x") else int(code, 8)])


def _text(quoted: str) -> str:
    return os.fsdecode(unescape(quoted))


def _split(args: str) -> tuple[str, ...]:
    return tuple(token.strip() for token in _TOKEN.findall(args) if token.strip())
