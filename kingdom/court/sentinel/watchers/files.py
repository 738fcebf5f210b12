"""Folders: a file that is added to one of them, or changed there, becomes an event."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from hashlib import sha256
from math import inf
from pathlib import Path
from typing import Any

from kingdom.base.disk.atomic import make_folder
from kingdom.base.disk.codec import read_bytes
from kingdom.base.errors import BadFile
from kingdom.base.home.places import as_filename, is_hidden
from kingdom.base.records.messages import Event
from kingdom.base.times import stamp
from kingdom.base.words import count, one_line
from kingdom.court.connections.base import ServiceDown
from kingdom.court.sentinel.watchers.base import LONGEST_HEADLINE, Watcher, WatcherKit

SOURCE = "files"
FIRST_LOOK_SECONDS = 600.0
"""What has lain in a folder for longer when it is first looked at makes no event."""
LONGEST_SHOWN = 64 << 10
"""Bytes of a file whose text an event carries; of a larger one it names the path alone."""
MOST_OF_A_LOOK = 64
"""Files that one look makes events of, so that their texts take little memory; another follows at once."""

Mark = tuple[int, int]


@dataclass(frozen=True)
class FoundFile:
    """A file found in a folder."""

    path: str
    #: When it was changed, in nanoseconds, and its size: another mark is another event.
    mark: Mark

    @property
    def id(self) -> str:
        digest = sha256(f"{self.path}\0{self.mark}".encode("utf-8", "surrogateescape")).hexdigest()[:16]
        return f"evt-{SOURCE}-{as_filename(os.path.basename(self.path))}-{digest}"


@dataclass(frozen=True)
class FilesLook:
    """The files in the folders: those that make events, and all."""

    new: Sequence[FoundFile]
    #: Every file, by folder, but those that are left to the next look.
    all: dict[str, list[FoundFile]]
    #: Whether any are left to it.
    is_cut: bool


class FilesWatcher(Watcher[FilesLook]):
    """State: for each folder its files with their marks. The files themselves stay as they are."""

    def __init__(self, kit: WatcherKit) -> None:
        self._kit = kit
        self._folders = [kit.places.home / folder for folder in kit.config["folders"]]
        for folder in self._folders:
            if folder.is_relative_to(kit.places.home):
                make_folder(folder)

    def is_off(self) -> str:
        return "" if self._folders else "polling.files.folders in sentinel.yaml names none"

    def folders(self) -> Iterable[Path]:
        return [folder for folder in self._folders if folder.is_dir()]

    def fetch(self) -> FilesLook | None:
        new: list[FoundFile] = []
        here_by_folder: dict[str, list[FoundFile]] = {}
        self.most_wait = inf
        for folder in self._folders:
            known = self._kit.state.get(str(folder))
            here = self._settled_files(folder)
            fresh = [file for file in here if list(file.mark) != (known or {}).get(file.path)]
            here_by_folder[str(folder)] = here
            new += fresh if known is not None else self._recent(folder, fresh)
        later = {file.path for file in new[MOST_OF_A_LOOK:]}
        seen = {folder: [file for file in here if file.path not in later] for folder, here in here_by_folder.items()}
        if not new and not any(self._has_changed(folder, here) for folder, here in seen.items()):
            return None
        return FilesLook(new[:MOST_OF_A_LOOK], seen, is_cut=bool(later))

    def parse(self, found: FilesLook) -> list[Event]:
        return [self._event(file) for file in found.new]

    def after_emit(self, found: FilesLook, is_whole: bool) -> bool:
        held = {file.path for file in found.new if not self._kit.is_known(file.id)}
        for folder, here in found.all.items():
            self._kit.state.set(folder, {file.path: list(file.mark) for file in here if file.path not in held})
        return found.is_cut and is_whole

    def _settled_files(self, folder: Path) -> list[FoundFile]:
        """Return the files that nobody is writing any more, sorted; some may be looked at again soon."""
        settle = float(self._kit.config["settle_seconds"])
        found: list[FoundFile] = []
        try:
            with os.scandir(folder) as entries:
                for entry in entries:
                    about = None if is_hidden(entry.name) else _about(entry)
                    if about is None or not stat.S_ISREG(about.st_mode):
                        continue
                    age = self._kit.clock() - about.st_mtime
                    if 0 <= age < settle:
                        self.most_wait = min(self.most_wait, settle - age + 0.05)
                    else:
                        found.append(FoundFile(entry.path, (about.st_mtime_ns, about.st_size)))
        except OSError as error:
            raise ServiceDown(service=SOURCE, why=f"{folder}: {error.strerror}") from None
        return sorted(found, key=lambda file: (file.mark, file.path))

    def _recent(self, folder: Path, here: Sequence[FoundFile]) -> list[FoundFile]:
        """Return what makes events at the first look at a folder, and tell of the rest as a number."""
        begin = self._kit.clock() - FIRST_LOOK_SECONDS
        recent = [file for file in here if file.mark[0] / 1e9 >= begin]
        if older := len(here) - len(recent):
            self._kit.tell(f"files: {count(older, 'file')} in {folder}, older than the first look, make no events")
        return recent

    def _has_changed(self, folder: str, here: Sequence[FoundFile]) -> bool:
        known = self._kit.state.get(folder)
        return known is None or known.keys() != {file.path for file in here}

    def _event(self, file: FoundFile) -> Event:
        folder, name = os.path.split(file.path)
        payload: dict[str, Any] = {"path": file.path, "folder": folder, "name": name, "size": file.mark[1]}
        payload |= {"headline": one_line(name, LONGEST_HEADLINE), "text": _text(file)}
        payload |= {"modified_at": stamp(file.mark[0] / 1e9)}
        return Event(
            id=file.id,
            type=f"{SOURCE}.arrived",
            source=SOURCE,
            payload=payload,
            created_at=stamp(self._kit.clock()),
        )


def _about(entry: os.DirEntry[str]) -> os.stat_result | None:
    """Return what is known of a file; None when it has just been taken away."""
    try:
        return entry.stat(follow_symlinks=False)
    except FileNotFoundError:
        return None


def _text(file: FoundFile) -> str | None:
    """Return what the file says; None when it is large, no text, or cannot be read."""
    if file.mark[1] > LONGEST_SHOWN:
        return None
    try:
        return read_bytes(file.path, LONGEST_SHOWN).decode("utf-8")
    except (BadFile, UnicodeDecodeError, OSError):
        return None
