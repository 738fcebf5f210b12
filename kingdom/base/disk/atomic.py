"""Write files so that they appear whole or not at all.

Standard library only, and light: one-shot soldiers import it too.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import cache
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from kingdom.base.errors import Collision

if TYPE_CHECKING:
    from ctypes import CDLL

Durability = Literal["power", "process"]
Name = Path | str
"""Code that handles thousands of files passes text: making a Path costs as much as a system call."""
Item = tuple[Name, bytes]
Pair = tuple[Name, Name]
Version = list[int] | None

_NUMBERS = count(1)
"""Of drafts: two writers of one process may share a scratch folder."""
_NOREPLACE = 1
_AT_FDCWD = -100
ROOM = 4096
"""Bytes of a file for which room is made before it is written: one block."""
MOST_OPEN = 64
"""So many files are made durable together."""
_START_WRITING = 2
NEW_FILE = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC | os.O_NOFOLLOW


@cache
def _libc() -> CDLL:
    import ctypes  # slow, and who only reads files needs none of it

    libc = ctypes.CDLL(None, use_errno=True)
    libc.sync_file_range.argtypes = (ctypes.c_int, ctypes.c_int64, ctypes.c_int64, ctypes.c_uint)
    return libc


def _error() -> int:
    """Return the number of the C library's last error."""
    from ctypes import get_errno

    return get_errno()


def _unguarded() -> None:
    """Do nothing: the guard of a writer that needs no lock, such as a one-shot command."""


class NewFile:
    """A file that is whole and durable before it gets the name under which readers see it. Close it in any case."""

    def __init__(self, draft: str, fd: int, disk: Disk) -> None:
        self._draft = draft
        self._fd = fd
        self._disk = disk
        self._room = 0
        #: Of the folder in which it gets its name, if that is open.
        self.folder: int | None = None
        #: Where it lies since it was given its name.
        self.path: Name | None = None

    def __enter__(self) -> NewFile:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def make_room(self) -> None:
        """Fill it with blank lines: a small file that is written over them needs no sync of the journal, only of data.

        A power cut may leave blank lines behind what was written.
        """
        if self._disk.durability == "power":
            write_whole(self._fd, b"\n" * ROOM)
            os.fsync(self._fd)
            os.lseek(self._fd, 0, os.SEEK_SET)
            self._room = ROOM

    def write(self, data: bytes) -> None:
        """Write it whole and durable. Once."""
        write_whole(self._fd, data)
        if self._disk.durability == "power":
            os.fdatasync(self._fd)
        if self._room > len(data):
            os.ftruncate(self._fd, len(data))

    def take(self, path: Name) -> bool:
        """Give it this name. Return False when the name is taken."""
        self._disk.guard()
        try:
            rename_new(self._draft, path)
        except FileExistsError:
            return False
        self.path = path
        return True

    def close(self) -> None:
        """Make its name durable; without a name it is deleted."""
        os.close(self._fd)
        if self.path is None:
            with suppress(FileNotFoundError):
                os.unlink(self._draft)
        else:
            self._disk.sync_name(self.path, self.folder)


class Drafts:
    """Files of one writer that are written whole before they are visible, and become durable together."""

    def __init__(self, disk: Disk) -> None:
        self._disk = disk
        self._names: list[str] = []
        self._open: list[int] = []

    def write(self, items: Iterable[Item]) -> list[Pair]:
        """Write files. Return where each lies, and where it is to appear."""
        pairs: list[Pair] = []
        for path, data in items:
            draft = self._disk.draft_name()
            self._names.append(draft)
            self._open.append(self._disk.open_draft(draft))
            write_whole(self._open[-1], data)
            if self._disk.durability == "process" or len(self._open) == MOST_OPEN:
                self.sync()
            pairs.append((draft, path))
        return pairs

    def sync(self, logs: Collection[Name] = ()) -> None:
        """Make durable what was written, and what was appended to these logs."""
        if self._disk.durability == "power":
            for log in logs:
                with suppress(FileNotFoundError):  # somebody has removed it, with what stood in it
                    self._open.append(os.open(log, os.O_RDONLY | os.O_CLOEXEC))
            sync_files(self._open)
            self._disk.sync_logs(logs)
        self.close()

    def close(self) -> None:
        while self._open:
            os.close(self._open.pop())

    def delete(self) -> None:
        """Delete those that have not appeared."""
        for draft in self._names:
            with suppress(FileNotFoundError):
                os.unlink(draft)


class Disk:
    """Write on behalf of one writer. Unfinished files lie in its own scratch folder, never where a reader looks.

    With durability "power" a call returns once its effect would survive a power cut; with "process" it
    survives only a kill. The guard runs before anything becomes visible and raises when this writer has
    lost the right to write.
    """

    def __init__(
        self,
        scratch: Path,
        *,
        durability: Durability = "power",
        guard: Callable[[], None] = _unguarded,
    ) -> None:
        self.scratch = scratch
        self.durability = durability
        self.guard = guard
        self._durable_logs: set[str] = set()
        """Logs whose names are durable: only what is in them has to be synced from then on."""
        self.rewritten: set[str] = set()
        """What this writer has replaced since somebody cleared it: that these files arrive is no news to it."""

    def create(self, path: Path, data: bytes) -> None:
        """Create a file. Collision when something is at `path` already."""
        if self.create_all([(path, data)]):
            raise Collision(path=path)

    def create_all(self, items: Iterable[Item]) -> list[Name]:
        """Create files, made durable together. Return the paths that were taken already; those are left untouched."""
        with self.drafts(items) as (pairs,):
            taken = self.show_new(pairs)
        self.sync_names(path for _, path in pairs)
        return taken

    @contextmanager
    def drafts(self, *groups: Iterable[Item], logs: Collection[Name] = ()) -> Iterator[list[list[Pair]]]:
        """Write files that nobody sees yet, made durable together with what was appended to `logs`.

        Yield where each file of a group lies, and where it is to appear: `show_new` and `show_changed` see to that.
        After an error those are deleted that have not appeared.
        """
        drafts = Drafts(self)
        try:
            pairs = [drafts.write(items) for items in groups]
            drafts.sync(logs)
            yield pairs
        except BaseException:
            drafts.delete()
            raise
        finally:
            drafts.close()

    def show_new(self, drafts: Iterable[Pair]) -> list[Name]:
        """Have drafts appear as new files, until `sync_names` not durably. Return the paths that were taken already."""
        taken: list[Name] = []
        self.guard()
        for draft, path in drafts:
            try:
                rename_new(draft, path)
            except FileExistsError:
                os.unlink(draft)
                taken.append(path)
        return taken

    def show_changed(self, drafts: Sequence[Pair], *, sync: bool = True) -> None:
        """Have drafts appear in place of older files; without `sync` not durably, until `sync_names`."""
        self.guard()
        for draft, path in drafts:
            os.replace(draft, path)
            self.rewritten.add(str(path))
        self.sync_names([path for _, path in drafts] if sync else ())

    def new_file(self) -> NewFile:
        """Begin a file whose name is to be found yet: the first that is not taken."""
        draft = self.draft_name()
        return NewFile(draft, self.open_draft(draft), self)

    def rewrite(self, path: Path, data: bytes) -> None:
        """Replace the file at `path`: readers see the old whole file or the new one."""
        self.rewrite_all([(path, data)])

    def rewrite_all(self, items: Iterable[Item]) -> None:
        """Replace files, made durable together."""
        with self.drafts(items) as (pairs,):
            self.show_changed(pairs)

    def move(self, src: Path, dst: Path) -> None:
        """Rename without replacing. FileNotFoundError when `src` is gone, Collision when `dst` is taken."""
        self.guard()
        try:
            rename_new(src, dst)
        except FileExistsError:
            raise Collision(path=dst) from None
        self.sync_folders({_folder(dst), _folder(src)})

    def move_all(self, pairs: Iterable[Pair], *, sync: bool = True) -> list[Pair]:
        """Rename files, made durable together. Return the pairs that could not move: source gone or target taken.

        Without `sync` they are durable once somebody has synced their folders.
        """
        folders: set[str] = set()
        stuck: list[Pair] = []
        for src, dst in pairs:
            self.guard()
            try:
                rename_new(src, dst)
            except (FileExistsError, FileNotFoundError):
                if not os.path.isdir(_folder(dst)):
                    raise
                stuck.append((src, dst))
            folders |= {_folder(dst), _folder(src)}
        self.sync_folders(folders if sync else ())
        return stuck

    def rewrite_and_move(self, items: Iterable[tuple[Name, Name, bytes]]) -> list[Pair]:
        """Replace files and then rename them, made durable together. Return the pairs that could not move."""
        changed = list(items)
        with self.drafts((src, data) for src, _, data in changed) as (pairs,):
            self.show_changed(pairs, sync=False)
        return self.move_all((src, dst) for src, dst, _ in changed)

    def remove(self, path: Path) -> None:
        """Delete; no error if absent."""
        self.remove_all([path])

    def remove_all(self, paths: Sequence[Name]) -> None:
        """Delete files in this order, their absence made durable together; no error if some are absent."""
        self.guard()
        for path in paths:
            with suppress(FileNotFoundError):
                os.unlink(path)
        self.sync_names(paths)

    def append(self, path: Path, data: bytes, *, sync: bool = False) -> None:
        """Append whole lines to a log in one write; with `sync` as durably as everything else.

        If a kill or a full disk tore the last line, it is ended first, so that it does not swallow the next one.
        """
        self.guard()
        self._append(path, data, sync)

    def append_where_possible(self, items: Iterable[Item]) -> None:
        """Append whole lines to logs. A log that cannot be written does not affect the others."""
        self.guard()
        for path, data in items:
            with suppress(OSError):
                self._append(path, data, sync=False)

    def sync_open(self, fd: int, folder: Name | None = None) -> None:
        """Make durable what others have written to an open file, and with its folder also its name."""
        if self.durability == "power":
            os.fdatasync(fd)
            if folder is not None:
                sync_folder(folder)

    def sync_folders(self, folders: Iterable[Name]) -> None:
        """Make durable what was created, renamed or deleted in these folders."""
        if self.durability == "process":
            return
        for folder in folders:
            sync_folder(folder)

    def sync_names(self, paths: Iterable[Name]) -> None:
        """Make durable that these files are there."""
        self.sync_folders({_folder(path) for path in paths})

    def sync_logs(self, logs: Iterable[Name]) -> None:
        """Make durable that these logs are there, once for each."""
        if new := {str(log) for log in logs} - self._durable_logs:
            self.sync_names(new)
            self._durable_logs |= new

    def sync_name(self, path: Name, folder: int | None) -> None:
        """Make durable that a file is there; `folder` is its folder, if that is open."""
        if folder is None:
            self.sync_names([path])
        elif self.durability == "power":
            os.fsync(folder)

    def sweep_scratch(self) -> int:
        """Delete the unfinished files of an earlier run of this writer. Return how many there were."""
        self.scratch.mkdir(mode=0o700, parents=True, exist_ok=True)
        return delete_files(self.scratch)

    def draft_name(self) -> str:
        """Return a name in the scratch folder that nobody else has."""
        return f"{self.scratch}/{os.getpid()}-{next(_NUMBERS)}.tmp"

    def open_draft(self, draft: str) -> int:
        """Create a draft."""
        try:
            return os.open(draft, NEW_FILE, 0o600)
        except (FileNotFoundError, FileExistsError):
            return self._open_once_more(draft)

    def _open_once_more(self, draft: str) -> int:
        """Open a draft whose folder is missing, or which a killed process of the same pid has left."""
        self.scratch.mkdir(mode=0o700, parents=True, exist_ok=True)
        with suppress(FileNotFoundError):
            os.unlink(draft)
        return os.open(draft, NEW_FILE, 0o600)

    def _append(self, path: Name, data: bytes, sync: bool) -> None:
        fd = os.open(path, os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
        try:
            if (size := os.fstat(fd).st_size) == 0:
                self._durable_logs.discard(str(path))
            write_whole(fd, b"\n" + data if _is_torn(fd, size) else data)
            if sync and self.durability == "power":
                os.fsync(fd)
        finally:
            os.close(fd)
        if sync:
            self.sync_logs([path])


def sync_files(fds: Sequence[int]) -> None:
    """Make durable what was written to open files.

    All of them are on their way before the first is waited for: the file system then commits its journal once for all.
    """
    if len(fds) > 1:
        for fd in fds:
            _libc().sync_file_range(fd, 0, 0, _START_WRITING)  # what fails here, fails in fsync too
    for fd in reversed(fds):
        os.fsync(fd)


def sync_folder(folder: Name) -> None:
    """Make durable what was created, renamed or deleted in a folder."""
    fd = os.open(folder, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def sync_file_system(fd: int, where: Name) -> None:
    """Make durable everything on the file system of an open file; `where` names it in the error."""
    if _libc().syncfs(fd) != 0:
        code = _error()
        raise OSError(code, os.strerror(code), str(where))


def _folder(path: Name) -> str:
    return os.path.dirname(path)


def write_whole(fd: int, data: bytes) -> None:
    """Write all of `data`. A full disk writes short without an error: go on until the kernel says why."""
    written = os.write(fd, data)
    while written < len(data):
        written += os.write(fd, data[written:])


def _is_torn(fd: int, size: int) -> bool:
    return size > 0 and os.pread(fd, 1, size - 1) != b"\n"


def rename_new(src: Name, dst: Name) -> None:
    """Rename without replacing, also where the file system lacks RENAME_NOREPLACE."""
    if _libc().renameat2(_AT_FDCWD, os.fsencode(src), _AT_FDCWD, os.fsencode(dst), _NOREPLACE) == 0:
        return
    code = _error()
    if code in (errno.EINVAL, errno.ENOSYS):
        os.link(src, dst, follow_symlinks=False)
        os.unlink(src)
        return
    raise OSError(code, os.strerror(code), str(src), None, str(dst))


def make_folder(path: Path) -> None:
    """Create a folder and its parents; no error if it exists."""
    path.mkdir(mode=0o700, parents=True, exist_ok=True)


def delete_files(folder: Name) -> int:
    """Delete the files in a folder and return how many there were. Folders in it, which no writer makes, stay."""
    deleted = 0
    for name in os.listdir(folder):
        with suppress(IsADirectoryError):
            os.unlink(os.path.join(folder, name))
            deleted += 1
    return deleted


def names_in(folder: Name) -> list[str]:
    """Return the names in a folder, in no order; none where there is no folder."""
    try:
        return os.listdir(folder)
    except (FileNotFoundError, NotADirectoryError):
        return []


def version(path: Name) -> Version:
    """Return what changes with a file's content, its permissions, and the file itself; None while there is none."""
    try:
        about = os.stat(path)
    except OSError:
        return None
    return [about.st_mtime_ns, about.st_ctime_ns, about.st_ino, about.st_size]


def is_there(path: Name) -> bool:
    """Return whether a path exists. A disk error raises, because "not there" has consequences."""
    try:
        os.lstat(path)
    except (FileNotFoundError, NotADirectoryError):
        return False
    return True
