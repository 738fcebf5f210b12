"""What the machine can do at best: the same system calls in a few raw lines, without validation, order or recovery."""

from __future__ import annotations

import ctypes
import os
import struct
import sys
import time
from pathlib import Path

NEW = os.O_WRONLY | os.O_CREAT | os.O_EXCL
BODY = b"x" * 600
IN_MOVED_TO = 0x80
BATCH = 128
_libc = ctypes.CDLL(None, use_errno=True)


def write_file(folder: str, name: str, *, power: bool) -> None:
    """A new whole file under its name; its folder's own fsync is the caller's, once a group."""
    draft = f"{folder}/.{name}"
    fd = os.open(draft, NEW, 0o600)
    os.write(fd, BODY)
    if power:
        os.fsync(fd)
    os.close(fd)
    os.rename(draft, f"{folder}/{name}")


def sync_folder(folder: str) -> None:
    fd = os.open(folder, os.O_RDONLY)
    os.fsync(fd)
    os.close(fd)


def court_burst(root: Path, count: int, *, power: bool) -> float:
    """Events a second for the writes, fsyncs and moves of the court: the event read and written again with its note,
    a task, a letter, the event moved; folders synced once a group, as ours are."""
    pending, dispatched, tasks, letters = (str(root / name) for name in ("pending", "dispatched", "tasks", "letters"))
    for folder in (pending, dispatched, tasks, letters):
        os.makedirs(folder)
    names = [f"evt-{number:05d}.json" for number in range(count)]
    for name in names:
        write_file(pending, name, power=False)
    os.sync()
    begun = time.perf_counter()
    for first in range(0, count, BATCH):
        group = names[first : first + BATCH]
        for name in group:
            fd = os.open(f"{pending}/{name}", os.O_RDONLY)
            os.read(fd, 4096)
            os.close(fd)
        for folder in (pending, tasks, letters):
            for name in group:
                write_file(folder, name, power=power)
            if power:
                sync_folder(folder)
        for name in group:
            os.rename(f"{pending}/{name}", f"{dispatched}/{name}")
        if power:
            sync_folder(dispatched)
            sync_folder(pending)
    return count / (time.perf_counter() - begun)


def watch(folder: str) -> int:
    """An inotify descriptor that tells what arrives in a folder."""
    fd: int = _libc.inotify_init1(os.O_CLOEXEC)
    if fd < 0 or _libc.inotify_add_watch(fd, os.fsencode(folder), IN_MOVED_TO) < 0:
        raise OSError(ctypes.get_errno(), "inotify", folder)
    return fd


def arrivals(fd: int) -> list[str]:
    data, at, names = os.read(fd, 1 << 20), 0, []
    while at < len(data):
        length = struct.unpack_from("iIII", data, at)[3]
        names.append(data[at + 16 : at + 16 + length].rstrip(b"\0").decode())
        at += 16 + length
    return names


def echo(inbox: str, outbox: str, *, power: bool) -> None:
    """The least that can answer a file with a file: see the name, read it, write the answer, rename it in."""
    fd = watch(inbox)
    while True:
        for name in arrivals(fd):
            source = os.open(f"{inbox}/{name}", os.O_RDONLY)
            os.read(source, 4096)
            os.close(source)
            write_file(outbox, name, power=power)


if __name__ == "__main__":
    echo(sys.argv[1], sys.argv[2], power=sys.argv[3] == "power")
