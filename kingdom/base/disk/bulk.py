"""Make many small changes a second, durable together."""

from __future__ import annotations

import errno
import os
import stat
import time
from contextlib import suppress
from typing import TYPE_CHECKING, NamedTuple, Self

from kingdom.base.disk.atomic import NEW_FILE, Durability, delete_files, rename_new, sync_file_system, write_whole

if TYPE_CHECKING:
    from collections.abc import Collection
    from concurrent.futures import ThreadPoolExecutor

GROUP_WORTH_SYNCFS = 8
SYNCERS = 16
MOST_UNSEEN = 512
SPARE = ".spare.tmp"
_OLD_FILE = os.O_WRONLY | os.O_CLOEXEC | os.O_NOFOLLOW
_TO_READ = os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK
_FIRST_READ = 1 << 14
_MOST_AT_ONCE = 1 << 20


class SyncMethod:
    """Finds the faster way to sync a batch on this disk: tries both by turns, then takes the better for a while."""

    TRIALS = 4
    ROUND = 256

    METHODS = ("fsync", "syncfs")

    def __init__(self) -> None:
        #: The shortest time per file of each method in this round.
        self._took: dict[str, float] = {}
        self._turn = 0

    def choose(self) -> str:
        turn = self._turn % self.ROUND
        self._turn += 1
        if turn < self.TRIALS * len(self.METHODS):
            return self.METHODS[turn % len(self.METHODS)]
        return min(self._took, key=self._took.__getitem__)

    def learn(self, method: str, seconds: float) -> None:
        """Note the seconds per file. The best of a round counts: one slow sync is somebody else's writing."""
        fresh = (self._turn - 1) % self.ROUND < len(self.METHODS)
        self._took[method] = seconds if fresh else min(seconds, self._took.get(method, seconds))


class FileBatch:
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
        most_spares: int = 20_480,
    ) -> None:
        self.scratch = scratch
        self.power = durability == "power"
        self._sync_method = SyncMethod()
        self.most_spares = most_spares
        self._made = 0
        self._spares: list[str] = []
        self._unseen: dict[str, tuple[int, str]] = {}
        self._leaving: dict[str, str] = {}
        self._gained: dict[str, None] = {}
        self._lost: dict[str, None] = {}
        #: By folder: the folders from which files came that a power cut may take back there.
        self._came_from: dict[str, dict[str, None]] = {}
        self._folders: dict[str, int] = {}
        self._syncers: ThreadPoolExecutor | None = None

    def create(self, folder: str, name: str, data: bytes) -> None:
        """Write a new file."""
        size = len(data)
        if self._spares:
            draft = self._spares.pop()
            fd = os.open(draft, _OLD_FILE)
            longer = os.fstat(fd).st_size > size
        else:
            self._made += 1
            draft = f"{self.scratch}/{self._made}.tmp"
            fd = os.open(draft, NEW_FILE, 0o600)
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

    def move(self, folder: str, name: str, to: str, new: str, *, synced: bool = True) -> None:
        """Move a file. FileNotFoundError when it is gone. Unless `synced`, a power cut may undo it as long as the file
        stays there."""
        src = f"{folder}/{name}"
        if self.power:
            if src in self._unseen:
                self._gained[to] = None
                self._unseen[f"{to}/{new}"] = self._unseen.pop(src)
                return
            if synced:
                self._gained[to] = None
                self._lose(folder)
            else:
                self.note_unsynced(folder, to)
        os.rename(src, f"{to}/{new}")

    def remove(self, folder: str, name: str, spares: str = "") -> None:
        """Delete a file, or keep it in the folder `spares` to be written over. FileNotFoundError when it is gone.

        The best one is where new files appear: there a rename has just left room, and no folder grows.
        """
        path = f"{folder}/{name}"
        if self.power:
            if path not in self._unseen and not os.path.exists(path):
                raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), path)
            self._leaving[path] = spares
            self._lose(folder)
        elif spares and len(self._spares) < self.most_spares:
            self._made += 1
            spare = f"{spares}/.{self._made}{SPARE}"
            os.rename(path, spare)
            self._spares.append(spare)
        else:
            os.unlink(path)

    def note_unsynced(self, folder: str, to: str) -> None:
        """Note that a power cut may take files of the folder `to` back to this one."""
        self._came_from.setdefault(to, {})[folder] = None

    def _lose(self, folder: str) -> None:
        """Note that a file leaves a folder for good: it must not be found again where it came from either."""
        self._lost[folder] = None
        if came_from := self._came_from.pop(folder, None):
            self._lost.update(came_from)

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
        """Make all changes durable."""
        if not self.power:
            return
        if self._unseen:
            self._show()
        self._sync(self._gained)
        if self._leaving:
            removed = self._remove_leaving()
            self._sync(self._lost)
            self._spares += removed
        else:
            self._sync(self._lost)

    def abandon(self) -> None:
        """Forget, after an error, what was not shown yet; what was removed or moved stays so."""
        for fd, draft in self._unseen.values():
            with suppress(OSError):
                os.close(fd)
            with suppress(OSError):
                os.unlink(draft)
        for pending in (self._unseen, self._leaving, self._gained, self._lost):
            pending.clear()

    @property
    def has_removals(self) -> bool:
        """Return whether the next commit removes files."""
        return bool(self._leaving)

    def has(self, folder: str, name: str) -> bool:
        """Return whether the file exists, also one that is not visible yet."""
        path = f"{folder}/{name}"
        return path in self._unseen or os.path.lexists(path)

    def forget(self, folders: Collection[str], most: int) -> bool:
        """Let go of folders that are about to be deleted, and delete up to `most` spares in them. Return whether none
        are left. Call it right after a commit."""
        for folder in folders:
            self._came_from.pop(folder, None)
            fd = self._folders.pop(folder, None)
            if fd is not None:
                os.close(fd)
        inside = tuple(f"{folder}/" for folder in folders)
        found = [spare for spare in self._spares if spare.startswith(inside)]
        gone = set(found[:most])
        self._spares = [spare for spare in self._spares if spare not in gone]
        for spare in gone:
            with suppress(FileNotFoundError):
                os.unlink(spare)
        return len(gone) == len(found)

    def sweep(self) -> None:
        """Delete what a killed process left unfinished."""
        self._spares.clear()
        delete_files(self.scratch)

    def trim(self, most: int) -> int:
        """Delete up to `most` spares. Returns how many are left."""
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
        """Write what a short write left, and cut off what a spare file held before."""
        os.lseek(fd, 0, os.SEEK_SET)
        write_whole(fd, data)
        os.ftruncate(fd, len(data))

    def _show(self) -> None:
        """Sync the content of what waits unseen, then rename it to where readers look."""
        drafts = [fd for fd, _ in self._unseen.values()]
        if len(drafts) < GROUP_WORTH_SYNCFS:
            for fd in drafts:
                os.fsync(fd)
        else:
            method = self._sync_method.choose()
            began = time.monotonic()
            if method == "syncfs":
                sync_file_system(drafts[0], self.scratch)
            else:
                self._sync_each(drafts)
            self._sync_method.learn(method, (time.monotonic() - began) / len(drafts))
        while self._unseen:
            path = next(iter(self._unseen))
            fd, draft = self._unseen[path]
            os.rename(draft, path)
            del self._unseen[path]
            os.close(fd)

    def _sync_each(self, drafts: list[int]) -> None:
        """Sync side by side: a file system writes its journal once for all who wait for it."""
        if self._syncers is None:
            from concurrent.futures import ThreadPoolExecutor

            self._syncers = ThreadPoolExecutor(SYNCERS, "sync")
        list(self._syncers.map(os.fsync, drafts))

    def _sync(self, folders: dict[str, None]) -> None:
        """Sync folders; each is taken off the list only after it is synced."""
        while folders:
            folder = next(iter(folders))
            fd = self._folders.get(folder)
            if fd is None:
                fd = self._folders[folder] = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
            os.fsync(fd)
            del folders[folder]

    def _remove_leaving(self) -> list[str]:
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


class FileIdentity(NamedTuple):
    """Which file it is, whatever its name: a later file of the same name is another one."""

    inode: int
    #: A number of a removed file is soon given to a new one, but never with the same time.
    written_ns: int

    @classmethod
    def of(cls, status: os.stat_result) -> Self:
        return cls(status.st_ino, status.st_mtime_ns)


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
        self._uid = os.geteuid()
        self._spares: list[str] = []
        self._made = 0

    def put(self, path: str, data: bytes) -> None:
        """Write a file. FileNotFoundError when its folder is not there."""
        fd, draft, size = self._draft()
        try:
            try:
                write_whole(fd, data)
                if size > len(data):
                    os.ftruncate(fd, len(data))
            finally:
                os.close(fd)
            os.rename(draft, path)
        except OSError:
            with suppress(OSError):
                os.unlink(draft)
            raise

    def put_for(self, path: str, data: bytes, folder: os.stat_result) -> None:
        """Put a file that belongs to the owner of its folder, for those to read who may enter the folder."""
        draft = self._name()
        fd = os.open(draft, NEW_FILE, 0o600)
        try:
            try:
                write_whole(fd, data)
                mode = 0o600 | (folder.st_mode & 0o011) << 2
                try:
                    os.fchown(fd, folder.st_uid, folder.st_gid)
                except PermissionError:  # only root may give it away: the folder's own mode says who comes that far
                    mode = 0o644
                os.fchmod(fd, mode)
            finally:
                os.close(fd)
            os.rename(draft, path)
        except OSError:
            with suppress(OSError):
                os.unlink(draft)
            raise

    def end(self, path: str, status: os.stat_result) -> None:
        """Delete a file, whose status is known, or keep it where it lies, to be written over.

        What has other names or another owner is never written over.
        """
        if len(self._spares) < self._most_spares and self._may_be_written_over(status):
            self._spares.append(path)
        else:
            os.unlink(path)

    def end_if_same(self, path: str, identity: FileIdentity) -> bool:
        """End a file unless another one lies at its path by now, which stays. Return whether it was ended."""
        taken = self._name()
        os.rename(path, taken)
        about = os.lstat(taken)
        if (about.st_ino, about.st_mtime_ns) != identity:
            try:
                rename_new(taken, path)
            except FileExistsError:  # yet another one, which was to replace it
                os.unlink(taken)
            return False
        self.end(taken, about)
        return True

    def sweep(self) -> None:
        """Begin with an empty scratch folder, or leave one."""
        for spare in self._spares:
            with suppress(FileNotFoundError):
                os.unlink(spare)
        self._spares.clear()
        os.makedirs(self._scratch, 0o700, exist_ok=True)
        delete_files(self._scratch)

    def _draft(self) -> tuple[int, str, int]:
        """Return a file to write into, its path, and how long it is."""
        while self._spares:
            spare = self._spares.pop()
            with suppress(OSError):
                fd = os.open(spare, _OLD_FILE | os.O_NONBLOCK)
                about = os.fstat(fd)
                if self._may_be_written_over(about):
                    return fd, spare, about.st_size
                os.close(fd)
        draft = self._name()
        try:
            fd = os.open(draft, NEW_FILE, 0o600)
        except FileNotFoundError:
            os.makedirs(self._scratch, 0o700, exist_ok=True)
            fd = os.open(draft, NEW_FILE, 0o600)
        if self._mode != 0o600:
            os.fchmod(fd, self._mode)  # whatever the umask of this process is
        return fd, draft, 0

    def _may_be_written_over(self, about: os.stat_result) -> bool:
        ours = stat.S_ISREG(about.st_mode) and about.st_nlink == 1 and about.st_uid == self._uid
        return ours and about.st_size <= self.LARGEST_SPARE

    def _name(self) -> str:
        self._made += 1
        return f"{self._scratch}/{self._made}.tmp"
