"""Answers: one file each in the client's own folder, until the client fetches it or it is too old."""

from __future__ import annotations

import grp
import os
import pwd
import shutil
import stat
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from itertools import islice
from pathlib import Path
from typing import Any

import orjson

from kingdom.base.disk.atomic import make_folder
from kingdom.base.disk.bulk import FileIdentity, Relay
from kingdom.base.disk.codec import read_bytes
from kingdom.base.errors import BadConfig, BadFile
from kingdom.mq.client import LARGEST_ANSWER

CLIENT_IS_GONE_AFTER = 86400.0
"""Seconds after which the folder of a silent client is removed with its drafts; sooner, its owner may be idle."""
MOST_DRIFT = 1.0
LOOKED_AT_ONCE = 250
"""Unread answers that one turn looks at and may have to delete."""
SPARES = 256
"""How many files of answered requests are kept to be written over."""


class Responses:
    def __init__(
        self,
        folder: Path,
        scratch: Path,
        clients: Mapping[str, Mapping[str, Any]],
        keep_seconds: float,
        clock: Callable[[], float],
        steady: Callable[[], float],
    ) -> None:
        """`clock` is in seconds since the epoch, as files are dated; `steady` has its speed, but not its steps."""
        self._folder = folder
        self._clients = clients
        self._keep = keep_seconds
        self._clock = clock
        self._steady = steady
        self._ahead = clock() - steady()
        self._files = Relay(str(scratch), most_spares=0 if clients else SPARES)
        self._known: set[str] = set()
        self._next_sweep: float | None = clock()
        #: A sweep that has begun, and how many answers it has removed.
        self._walk: Iterator[None] | None = None
        self._removed = 0

    def open(self) -> None:
        make_folder(self._folder)
        self._files.sweep()
        if any("owner" in about or "group" in about for about in self._clients.values()):
            # Clients of other users must get through to their folder, without seeing who else there is.
            os.chmod(self._folder, stat.S_IMODE(os.stat(self._folder).st_mode) | 0o711)
            os.chmod(self._folder.parent, stat.S_IMODE(os.stat(self._folder.parent).st_mode) | 0o711)
        for client in self._clients:
            self._make(client)
        for client in os.listdir(self._folder):
            self._remove_torn(self._folder / client)

    def has_folder_for(self, client: str) -> bool:
        """Return whether the client's answers can be put where it looks for them; a missing folder is made."""
        if client not in self._known:
            path = self._folder / client
            if not os.path.lexists(path):
                self._make(client)
            elif not stat.S_ISDIR(os.lstat(path).st_mode):
                return False
            self._known.add(client)
        return True

    def folder_owner(self, client: str) -> int | None:
        """Return the uid that a client's folder belongs to; None when there is none."""
        try:
            about = os.lstat(self._folder / client)
        except OSError:
            return None
        return about.st_uid if stat.S_ISDIR(about.st_mode) else None

    def write(self, client: str, request_id: str, answer: bytes) -> None:
        """Write an answer. It survives a killed process; after a power cut no client is left to read it."""
        try:
            self._put(client, f"{request_id}.json", answer)
        except FileNotFoundError:
            self._known.discard(client)
            self._make(client)
            self._put(client, f"{request_id}.json", answer)
        if self._next_sweep is None:
            self._next_sweep = self._clock() + self._keep

    def remove_request(self, path: str, identity: FileIdentity) -> bool:
        """Remove an answered request, unless a new one lies there by now. Return whether it was removed.

        Its file is kept, hidden, and a later answer is written over it."""
        return self._files.end_if_same(path, identity)

    def _put(self, client: str, filename: str, answer: bytes) -> None:
        folder = f"{self._folder}/{client}"
        about = os.lstat(folder)
        if _is_ours_alone(about):
            self._files.put(f"{folder}/{filename}", answer)
        else:
            self._files.put_for(f"{folder}/{filename}", answer, about)

    def close(self) -> None:
        self._files.sweep()

    def next_sweep(self) -> float | None:
        """Return when an answer may be too old, in seconds since the epoch; None when there is no answer."""
        return self._next_sweep

    def sweep(self) -> int:
        """Remove unread answers and the folders of clients that have ended, a part of them when there are many: then
        it is due again at once. Return the number of answers, when all is done."""
        if self._walk is None:
            self._removed, self._walk = 0, self._walked(self._clock())
        if len(list(islice(self._walk, LOOKED_AT_ONCE))) == LOOKED_AT_ONCE:
            self._next_sweep = self._clock()
            return 0
        self._walk = None
        return self._removed

    def _walked(self, now: float) -> Iterator[None]:
        """Look at all answers and clients, one at a step."""
        if abs(now - self._steady() - self._ahead) > MOST_DRIFT:
            self._ahead = now - self._steady()
            yield from self._date_anew(now)
        oldest = None
        for client in os.listdir(self._folder):
            oldest_here = None
            for since in self._sweep_client(self._folder / client, now):
                if since is not None:
                    oldest_here = since if oldest_here is None else min(oldest_here, since)
                yield
            if oldest_here is not None:
                oldest = oldest_here if oldest is None else min(oldest, oldest_here)
            elif client not in self._clients:
                self._remove_folder(client, now)
            yield
        # Not over and over while answers keep coming, and not never after the clock was set back.
        soonest, latest = now + self._keep / 10, now + self._keep
        self._next_sweep = None if oldest is None else min(max(oldest + self._keep, soonest), latest)

    def _date_anew(self, now: float) -> Iterator[None]:
        """Begin to count the age of everything here anew: the clock was set."""
        for folder, _, files in os.walk(self._folder):
            for name in (*files, "."):
                with suppress(OSError):
                    os.utime(f"{folder}/{name}", (now, now), follow_symlinks=False)
                yield

    def _sweep_client(self, folder: Path, now: float) -> Iterator[float | None]:
        """Remove old answers. Yield, for each that is looked at, since when it has been here, or None if it is gone."""
        try:
            entries = os.scandir(folder)
        except OSError:
            return
        with entries:
            for entry in entries:
                since = None
                with suppress(FileNotFoundError):
                    about = entry.stat(follow_symlinks=False)
                    if stat.S_ISDIR(about.st_mode):
                        continue
                    if about.st_mtime + self._keep <= now:
                        os.unlink(entry.path)
                        self._removed += 1
                    else:
                        since = about.st_mtime
                yield since

    def _remove_torn(self, folder: Path) -> None:
        """Remove answers that a power cut left without content, or with that of the file they were written over."""
        with suppress(NotADirectoryError, FileNotFoundError, PermissionError):
            for name in os.listdir(folder):
                with suppress(FileNotFoundError, BadFile):
                    if name.endswith(".json") and not _answers(read_bytes(folder / name, LARGEST_ANSWER), name[:-5]):
                        os.unlink(folder / name)

    def _remove_folder(self, client: str, now: float) -> None:
        """Remove the folder of a client that has been silent too long; one with anything in it stays."""
        folder = self._folder / client
        with suppress(OSError):
            about = os.lstat(folder)
            if not _is_ours_alone(about):
                return  # its client, or somebody for it, made it so: we could not make the same again
            silent = now - about.st_mtime
            if silent >= CLIENT_IS_GONE_AFTER:
                for drafts in os.scandir(folder):
                    shutil.rmtree(drafts.path)
            if silent >= self._keep:
                os.rmdir(folder)
                self._known.discard(client)

    def _make(self, client: str) -> None:
        folder = self._folder / client
        about = self._clients.get(client, {})
        make_folder(folder)
        if about and os.lstat(folder).st_uid == os.geteuid():  # otherwise it was given to the client already
            os.chmod(folder, int(about["mode"], 8))
            _change_owner(folder, client, about)


def _is_ours_alone(folder: os.stat_result) -> bool:
    return folder.st_uid == os.geteuid() and not folder.st_mode & 0o077


def _answers(data: bytes, request_id: str) -> bool:
    try:
        answer = orjson.loads(data)
    except orjson.JSONDecodeError:
        return False
    return isinstance(answer, dict) and answer.get("requestId") == request_id


def owner_of(client: str, about: Mapping[str, Any]) -> int | None:
    """Return the uid that a configured client runs under; None when the configuration names no owner."""
    owner: str | int | None = about.get("owner")
    if not isinstance(owner, str):
        return owner
    try:
        return pwd.getpwnam(owner).pw_uid
    except KeyError:
        raise _no_such(client, "owner", owner) from None


def _change_owner(folder: Path, client: str, about: Mapping[str, Any]) -> None:
    group = _group_of(client, about)
    owner = owner_of(client, about)
    if owner is None and group is None:
        return
    if owner is not None and os.geteuid() and int(about["mode"], 8) & 0o070 == 0o070:
        owner = None  # only root may give it away, but its group may use it
    try:
        os.chown(folder, -1 if owner is None else owner, -1 if group is None else group)
    except PermissionError:
        why = "only root may give it to another user: run the mailbox as root, or share a group with mode 2770"
        raise BadFile(path=folder, why=why) from None


def _group_of(client: str, about: Mapping[str, Any]) -> int | None:
    group: str | int | None = about.get("group")
    if not isinstance(group, str):
        return group
    try:
        return grp.getgrnam(group).gr_gid
    except KeyError:
        raise _no_such(client, "group", group) from None


def _no_such(client: str, key: str, name: str) -> BadConfig:
    return BadConfig(path="mq.yaml", line="", key=f"ipc.clients.{client}.{key}", why=f"no {key} named {name!r} here")
