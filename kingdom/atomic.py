"""The one door to the disk: files appear whole or not at all, and reading never hangs or trusts.

Standard library only, and light: one-shot soldiers import it too.
"""

from __future__ import annotations

import ctypes
import errno
import fcntl
import json
import math
import os
import stat
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from kingdom.errors import BadFile, Collision, Locked, LockLost

if TYPE_CHECKING:
    from concurrent.futures import ThreadPoolExecutor

Durability = Literal["power", "process"]
Name = Path | str
"""Whoever handles thousands of files spells them as text: a Path costs as much as a system call."""
Item = tuple[Name, bytes]
Pair = tuple[Name, Name]

LARGEST = 1 << 20
DEEPEST = 200
"""Deeper JSON could be read, but perhaps not written again one level further in."""
GROUP_WORTH_SYNCFS = 8
SYNCERS = 16
MOST_UNSEEN = 512
_NOREPLACE = 1
_AT_FDCWD = -100
_NEW_FILE = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC | os.O_NOFOLLOW
_OLD_FILE = os.O_WRONLY | os.O_CLOEXEC | os.O_NOFOLLOW
_TO_READ = os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK
_FIRST_READ = 1 << 14
_MOST_AT_ONCE = 1 << 20
SPARE = ".spare.tmp"
_libc = ctypes.CDLL(None, use_errno=True)


def _unguarded() -> None:
    """The guard of a writer that needs no lock: a one-shot command."""


class Disk:
    """Writes for one writer. Unfinished files lie in its own scratch folder, never where a reader looks.

    With durability "power" a call returns after its effect is on the platter; with "process" it
    survives a kill but not a power cut. The guard runs before anything becomes visible and raises
    when this writer has lost the right to write.
    """

    def __init__(
        self,
        scratch: Path,
        *,
        durability: Durability = "power",
        guard: Callable[[], None] = _unguarded,
        grouping: Literal["fsync", "syncfs"] = "fsync",
        mode: int = 0o600,
    ) -> None:
        self.scratch = scratch
        self.durability = durability
        self.guard = guard
        self.grouping = grouping
        self.mode = mode
        self._made = 0

    def create(self, path: Path, data: bytes) -> None:
        """A new whole file at `path`; Collision when something is there already."""
        if self.create_all([(path, data)]):
            raise Collision(path=path)

    def create_all(self, items: Iterable[Item]) -> list[Name]:
        """New whole files, made durable together. Returns those that were there already, left untouched."""
        there: list[Name] = []
        with self._drafts(items) as drafts:
            for draft, path in drafts:
                self.guard()
                try:
                    _rename_new(draft, path)
                except FileExistsError:
                    os.unlink(draft)
                    there.append(path)
        self._sync_folders({_folder(path) for _, path in drafts})
        return there

    def rewrite(self, path: Path, data: bytes) -> None:
        """Replace the file at `path`: readers see the old whole file or the new one."""
        self.rewrite_all([(path, data)])

    def rewrite_all(self, items: Iterable[Item]) -> None:
        with self._drafts(items) as drafts:
            for draft, path in drafts:
                self.guard()
                os.replace(draft, path)
        self._sync_folders({_folder(path) for _, path in drafts})

    def move(self, src: Path, dst: Path) -> None:
        """Rename without replacing: FileNotFoundError when the source is gone, Collision when the place is taken."""
        self.guard()
        try:
            _rename_new(src, dst)
        except FileExistsError:
            raise Collision(path=dst) from None
        self._sync_folders({_folder(dst), _folder(src)})

    def move_all(self, pairs: Iterable[Pair]) -> list[Pair]:
        """Moves made durable together. Returns the pairs that could not move: source gone or place taken."""
        folders: set[str] = set()
        stuck: list[Pair] = []
        for src, dst in pairs:
            self.guard()
            try:
                _rename_new(src, dst)
            except (FileExistsError, FileNotFoundError):
                if not os.path.isdir(_folder(dst)):
                    raise
                stuck.append((src, dst))
            folders |= {_folder(dst), _folder(src)}
        self._sync_folders(folders)
        return stuck

    def remove(self, path: Path) -> None:
        """Gone, or gone before."""
        self.guard()
        with suppress(FileNotFoundError):
            os.unlink(path)
        self._sync_folders({path.parent})

    def append(self, path: Path, data: bytes, *, sync: bool = False) -> None:
        """Whole lines at the end of a log, in one write; with `sync` durable like everything else.

        A line that a kill or a full disk left torn ends there: it does not swallow the next one.
        """
        self.guard()
        fd = os.open(path, os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, self.mode)
        try:
            _write_whole(fd, b"\n" + data if _is_torn(fd) else data)
            if sync and self.durability == "power":
                os.fsync(fd)
        finally:
            os.close(fd)
        if sync:
            self._sync_folders({path.parent})

    def sweep_scratch(self) -> int:
        """Throw away what a killed life of this writer left unfinished."""
        self.scratch.mkdir(mode=0o700, parents=True, exist_ok=True)
        litter = os.listdir(self.scratch)
        for name in litter:
            os.unlink(os.path.join(self.scratch, name))
        return len(litter)

    @contextmanager
    def _drafts(self, items: Iterable[Item]) -> Iterator[list[tuple[str, Name]]]:
        """Whole, durable, not yet visible. On an error those that did not become visible are taken back."""
        drafts: list[tuple[str, Name]] = []
        try:
            for path, data in items:
                self._made += 1
                draft = f"{self.scratch}/{os.getpid()}-{self._made}.tmp"
                drafts.append((draft, path))
                self._draft(draft, data)
            if self.durability == "power" and self.grouping == "syncfs":
                self._sync_group([draft for draft, _ in drafts])
            yield drafts
        except (OSError, LockLost):
            for draft, _ in drafts:
                with suppress(FileNotFoundError):
                    os.unlink(draft)
            raise

    def _draft(self, draft: str, data: bytes) -> None:
        fd = self._open_draft(draft)
        try:
            _write_whole(fd, data)
            if self.durability == "power" and self.grouping == "fsync":
                os.fsync(fd)
        finally:
            os.close(fd)

    def _open_draft(self, draft: str) -> int:
        try:
            return os.open(draft, _NEW_FILE, self.mode)
        except FileNotFoundError:
            self.scratch.mkdir(mode=0o700, parents=True, exist_ok=True)
        except FileExistsError:
            os.unlink(draft)
        return os.open(draft, _NEW_FILE, self.mode)

    def _sync_group(self, drafts: Sequence[str]) -> None:
        if len(drafts) >= GROUP_WORTH_SYNCFS:
            with _opened(self.scratch) as fd:
                if _libc.syncfs(fd) != 0:
                    raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()), str(self.scratch))
            return
        for draft in drafts:
            with _opened(draft) as fd:
                os.fsync(fd)

    def _sync_folders(self, folders: Iterable[Name]) -> None:
        if self.durability == "process":
            return
        for folder in folders:
            sync_folder(folder)


def sync_folder(folder: Name) -> None:
    """What was made, renamed or removed in it is on the platter."""
    with _opened(folder) as fd:
        os.fsync(fd)


def _folder(path: Name) -> str:
    return os.path.dirname(path)


@contextmanager
def _opened(path: Name) -> Iterator[int]:
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        yield fd
    finally:
        os.close(fd)


def _write_whole(fd: int, data: bytes) -> None:
    """A full disk writes short without an error: go on until the kernel says why."""
    written = os.write(fd, data)
    while written < len(data):
        written += os.write(fd, data[written:])


def _is_torn(fd: int) -> bool:
    size = os.fstat(fd).st_size
    return size > 0 and os.pread(fd, 1, size - 1) != b"\n"


def _rename_new(src: Name, dst: Name) -> None:
    """Rename that never replaces, also where the file system lacks RENAME_NOREPLACE."""
    if _libc.renameat2(_AT_FDCWD, os.fsencode(src), _AT_FDCWD, os.fsencode(dst), _NOREPLACE) == 0:
        return
    code = ctypes.get_errno()
    if code in (errno.EINVAL, errno.ENOSYS):
        os.link(src, dst, follow_symlinks=False)
        os.unlink(src)
        return
    raise OSError(code, os.strerror(code), str(src), None, str(dst))


def make_folder(path: Path, mode: int = 0o700) -> None:
    path.mkdir(mode=mode, parents=True, exist_ok=True)


def write_in_place(fd: int, data: bytes) -> None:
    """One fixed-size record over the old one: takes no new block, so it works on a full disk."""
    os.pwrite(fd, data, 0)


# --- the strict reader, for every file that others can write


def is_there(path: Name) -> bool:
    """Whether something lies at a path. A disk that cannot tell raises: "not there" has consequences."""
    try:
        os.lstat(path)
    except (FileNotFoundError, NotADirectoryError):
        return False
    return True


def read_bytes(path: Name, limit: int = LARGEST) -> bytes:
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


def read_json(path: Name, limit: int = LARGEST) -> dict[str, Any]:
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


# --- one holder at a time


class Lock:
    """An flock on a file for as long as this process lives (or until release)."""

    def __init__(self, path: Path, role: str) -> None:
        self.path = path
        self.role = role
        self._fd = -1

    def acquire(self, wait: float = 0.0) -> None:
        """Ours within `wait` seconds, else Locked, which names the holder."""
        make_folder(self.path.parent)
        give_up = time.monotonic() + wait
        while not self._try():
            if time.monotonic() >= give_up:
                raise Locked(role=self.role, path=self.path, holder=self.holder())
            time.sleep(0.02)

    def check(self) -> None:
        """LockLost when the file under our lock is no longer the one at its path."""
        if not self._same_file():
            raise LockLost(path=self.path, role=self.role)

    def holder(self) -> str:
        try:
            return read_bytes(self.path, 4096).decode("utf-8", "replace").strip() or "unnamed"
        except (OSError, BadFile):
            return "unnamed"

    def fileno(self) -> int:
        return self._fd

    def release(self) -> None:
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1

    def _try(self) -> bool:
        self._fd = os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
        try:
            fcntl.flock(self._fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            self.release()
            return False
        if not self._same_file():
            self.release()
            return False
        try:
            write_in_place(self._fd, f"pid {os.getpid():<10}\n".encode())
        except OSError:
            # A full disk: held without a word of it, this lock would keep out even ourselves.
            self.release()
            raise
        return True

    def _same_file(self) -> bool:
        try:
            there = os.stat(self.path, follow_symlinks=False)
        except FileNotFoundError:
            return False
        ours = os.fstat(self._fd)
        return (there.st_ino, there.st_dev) == (ours.st_ino, ours.st_dev)


def is_locked(path: Path) -> bool:
    """Whether some living process holds the lock at `path`. Many may ask at once, also who cannot write there."""
    try:
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW)
    except FileNotFoundError:
        return False
    except PermissionError:
        return _is_listed(path)
    try:
        fcntl.flock(fd, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    else:
        return False
    finally:
        os.close(fd)


def _is_listed(path: Path) -> bool:
    """A soldier may not open locks, as it could take them, but the kernel tells everybody who holds which."""
    about = os.stat(path)
    lock = f" {os.major(about.st_dev):02x}:{os.minor(about.st_dev):02x}:{about.st_ino} "
    with open("/proc/locks", encoding="ascii") as held:
        return any("FLOCK" in line and lock in line for line in held)


# --- many small changes a second


class Way:
    """Which way of syncing a group is the faster one on this disk: tried by turns, then the better, and again later."""

    TRIALS = 4
    ROUND = 256

    def __init__(self, ways: Sequence[Literal["fsync", "syncfs"]] = ("fsync", "syncfs")) -> None:
        self._ways = ways
        self._took: dict[str, float] = {}
        self._turn = 0

    def choose(self) -> str:
        turn = self._turn % self.ROUND
        self._turn += 1
        if turn < self.TRIALS * len(self._ways):
            return self._ways[turn % len(self._ways)]
        return min(self._took, key=self._took.__getitem__)

    def learn(self, way: str, seconds_each: float) -> None:
        """The best of a round counts: one slow sync among others is somebody else's writing."""
        fresh = (self._turn - 1) % self.ROUND < len(self._ways)
        self._took[way] = seconds_each if fresh else min(seconds_each, self._took.get(way, seconds_each))


class Group:
    """Changes of one writer made durable together: nothing of them is promised before commit.

    With durability "process" each change is there at once. With "power" a new file waits, unseen, until
    commit has synced its content; moves show at once and are durable after commit; removals come last.
    The writer owns the folders: names are unique by its own book-keeping, so nothing is ever replaced
    by accident and the plain rename will do.

    Removed files may be kept as spares, hidden in a folder, and written over: where a file system is slow
    to create after many removals (ext4 without a journal), only this keeps a queue at its pace.
    """

    def __init__(
        self,
        scratch: str,
        *,
        durability: Durability,
        grouping: Literal["auto", "fsync", "syncfs"] = "auto",
        most_spares: int = 20_480,
        mode: int = 0o600,
    ) -> None:
        self.scratch = scratch
        self.power = durability == "power"
        self._way = Way() if grouping == "auto" else Way((grouping,))
        self.most_spares = most_spares
        self.mode = mode
        self._made = 0
        self._spares: list[str] = []
        self._unseen: dict[str, tuple[int, str]] = {}
        self._leaving: dict[str, str] = {}
        self._gained: dict[str, None] = {}
        self._lost: dict[str, None] = {}
        self._folders: dict[str, int] = {}
        self._syncers: ThreadPoolExecutor | None = None

    def create(self, folder: str, name: str, data: bytes) -> None:
        size = len(data)
        if self._spares:
            draft = self._spares.pop()
            fd = os.open(draft, _OLD_FILE)
            longer = os.fstat(fd).st_size > size
        else:
            self._made += 1
            draft = f"{self.scratch}/{self._made}.tmp"
            fd = os.open(draft, _NEW_FILE, self.mode)
            longer = False
        try:
            if os.write(fd, data) < size or longer:
                self._fill(fd, data)
        except OSError:
            os.close(fd)
            with suppress(OSError):
                os.unlink(draft)
            raise
        if not self.power:
            os.close(fd)
            os.rename(draft, f"{folder}/{name}")
            return
        self._unseen[f"{folder}/{name}"] = (fd, draft)
        self._gained[folder] = None
        if len(self._unseen) >= MOST_UNSEEN:
            self._show()

    def move(self, folder: str, name: str, to: str, new: str) -> None:
        """FileNotFoundError when it is gone."""
        src = f"{folder}/{name}"
        if self.power:
            self._gained[to] = None
            if src in self._unseen:
                self._unseen[f"{to}/{new}"] = self._unseen.pop(src)
                return
            self._lost[folder] = None
        os.rename(src, f"{to}/{new}")

    def remove(self, folder: str, name: str, spares: str = "") -> None:
        """FileNotFoundError when it is gone. `spares`: the folder that keeps it to be written over, if it may be kept.

        The best one is where new files appear: there a rename has just left room, and no folder grows.
        """
        path = f"{folder}/{name}"
        if self.power:
            if path not in self._unseen and not os.path.exists(path):
                raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), path)
            self._leaving[path] = spares
            self._lost[folder] = None
        elif spares and len(self._spares) < self.most_spares:
            self._made += 1
            spare = f"{spares}/.{self._made}{SPARE}"
            os.rename(path, spare)
            self._spares.append(spare)
        else:
            os.unlink(path)

    def read(self, folder: str, name: str) -> bytes:
        path = f"{folder}/{name}"
        if self._unseen and path in self._unseen:
            path = self._unseen[path][1]
        fd = os.open(path, _TO_READ)
        try:
            data = os.read(fd, _FIRST_READ)
            if len(data) == _FIRST_READ:
                while part := os.read(fd, _MOST_AT_ONCE):
                    data += part
            return data
        finally:
            os.close(fd)

    def commit(self) -> None:
        if not self.power:
            return
        if self._unseen:
            self._show()
        self._sync(self._gained)
        if self._leaving:
            removed = self._take_away()
            self._sync(self._lost)
            self._spares += removed
        else:
            self._sync(self._lost)

    def abandon(self) -> None:
        """After an error: forget what was not shown; what was taken away or moved stays so."""
        for fd, draft in self._unseen.values():
            with suppress(OSError):
                os.close(fd)
            with suppress(OSError):
                os.unlink(draft)
        for book in (self._unseen, self._leaving, self._gained, self._lost):
            book.clear()

    @property
    def takes_away(self) -> bool:
        return bool(self._leaving)

    def has(self, folder: str, name: str) -> bool:
        path = f"{folder}/{name}"
        return path in self._unseen or os.path.lexists(path)

    def sweep(self) -> None:
        """Throw away what a killed life left unfinished."""
        self._spares.clear()
        for name in os.listdir(self.scratch):
            os.unlink(f"{self.scratch}/{name}")

    def trim(self, most: int) -> int:
        """Give back the space of up to `most` spares. Returns how many are left."""
        for _ in range(min(most, len(self._spares))):
            with suppress(FileNotFoundError):
                os.unlink(self._spares.pop())
        return len(self._spares)

    def close(self) -> None:
        self.abandon()
        self.trim(len(self._spares))
        for fd in self._folders.values():
            os.close(fd)
        self._folders.clear()
        if self._syncers is not None:
            self._syncers.shutdown()
            self._syncers = None

    def _fill(self, fd: int, data: bytes) -> None:
        """The rest of a short write, and an end to what a spare held before."""
        os.lseek(fd, 0, os.SEEK_SET)
        _write_whole(fd, data)
        os.ftruncate(fd, len(data))

    def _show(self) -> None:
        """Sync the content of what waits unseen, then rename it to where readers look."""
        drafts = [fd for fd, _ in self._unseen.values()]
        if len(drafts) < GROUP_WORTH_SYNCFS:
            for fd in drafts:
                os.fsync(fd)
        else:
            way = self._way.choose()
            began = time.monotonic()
            if way == "syncfs":
                self._sync_all(drafts[0])
            else:
                self._sync_each(drafts)
            self._way.learn(way, (time.monotonic() - began) / len(drafts))
        while self._unseen:
            path = next(iter(self._unseen))
            fd, draft = self._unseen[path]
            os.rename(draft, path)
            del self._unseen[path]
            os.close(fd)

    def _sync_each(self, drafts: list[int]) -> None:
        """Side by side: a file system writes its journal once for all who wait for it."""
        if self._syncers is None:
            from concurrent.futures import ThreadPoolExecutor

            self._syncers = ThreadPoolExecutor(SYNCERS, "sync")
        list(self._syncers.map(os.fsync, drafts))

    def _sync_all(self, fd: int) -> None:
        if _libc.syncfs(fd) != 0:
            raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()), self.scratch)

    def _sync(self, folders: dict[str, None]) -> None:
        """Each folder leaves the book only after it is synced."""
        while folders:
            folder = next(iter(folders))
            fd = self._folders.get(folder)
            if fd is None:
                fd = self._folders[folder] = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
            os.fsync(fd)
            del folders[folder]

    def _take_away(self) -> list[str]:
        removed: list[str] = []
        while self._leaving:
            path, spares = next(iter(self._leaving.items()))
            with suppress(FileNotFoundError):
                if spares and len(self._spares) + len(removed) < self.most_spares:
                    self._made += 1
                    spare = f"{spares}/.{self._made}{SPARE}"
                    os.rename(path, spare)
                    removed.append(spare)
                else:
                    os.unlink(path)
            del self._leaving[path]
        return removed


class Relay:
    """Small files that come and go by the thousand: each new one is written over one that has ended.

    Where a file system is slow to create and to remove, only this keeps a mailbox at its pace. A new file
    replaces what lies at its path, and a power cut may take it.
    """

    LARGEST_SPARE = 1 << 16

    def __init__(self, scratch: str, *, most_spares: int, mode: int = 0o600) -> None:
        self._scratch = scratch
        self._most_spares = most_spares
        self._mode = mode
        self._spares: list[str] = []
        self._made = 0

    def put(self, path: str, data: bytes) -> None:
        """FileNotFoundError when its folder is not there."""
        fd, draft = self._draft()
        try:
            try:
                _write_whole(fd, data)
                if os.fstat(fd).st_size > len(data):
                    os.ftruncate(fd, len(data))
            finally:
                os.close(fd)
            os.rename(draft, path)
        except OSError:
            with suppress(OSError):
                os.unlink(draft)
            raise

    def end(self, path: str) -> None:
        """FileNotFoundError when it is gone. What has other names or another owner is never written over."""
        about = os.lstat(path)
        ours = stat.S_ISREG(about.st_mode) and about.st_nlink == 1 and about.st_uid == os.geteuid()
        if ours and about.st_size <= self.LARGEST_SPARE and len(self._spares) < self._most_spares:
            spare = self._name()
            os.rename(path, spare)
            self._spares.append(spare)
        else:
            os.unlink(path)

    def sweep(self) -> None:
        """Begin with an empty scratch folder, or leave one."""
        self._spares.clear()
        os.makedirs(self._scratch, 0o700, exist_ok=True)
        for name in os.listdir(self._scratch):
            os.unlink(f"{self._scratch}/{name}")

    def _draft(self) -> tuple[int, str]:
        while self._spares:
            spare = self._spares.pop()
            with suppress(FileNotFoundError):
                return os.open(spare, os.O_WRONLY | os.O_CLOEXEC | os.O_NOFOLLOW), spare
        draft = self._name()
        try:
            return os.open(draft, _NEW_FILE, self._mode), draft
        except FileNotFoundError:
            os.makedirs(self._scratch, 0o700, exist_ok=True)
        return os.open(draft, _NEW_FILE, self._mode), draft

    def _name(self) -> str:
        self._made += 1
        return f"{self._scratch}/{self._made}.tmp"
