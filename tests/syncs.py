"""In which order a role syncs and renames: after a power cut only what was synced is there."""

from __future__ import annotations

import os
from collections.abc import Callable, Collection
from pathlib import Path

import pytest

from kingdom.base.disk import atomic
from kingdom.base.disk.atomic import Name

DRAFTS = "drafts"


class Steps:
    """What was done since the last look, in groups: `sync drafts`, `show tasks/pending`."""

    def __init__(self, home: Path) -> None:
        self._home = home
        self._done: list[tuple[str, str]] = []

    def note(self, what: str, path: str) -> None:
        name = os.path.relpath(path, self._home)
        self._done.append((what, DRAFTS if name.endswith(".tmp") else name.removeprefix("queue/")))

    def take(self) -> list[str]:
        """Return each run of syncs, or of renames, as one step."""
        steps: list[tuple[str, list[str]]] = []
        for what, name in self._done:
            if not steps or steps[-1][0] != what:
                steps.append((what, []))
            if name not in steps[-1][1]:
                steps[-1][1].append(name)
        self._done.clear()
        return [f"{what} {', '.join(sorted(names))}" for what, names in steps]


def noted(monkeypatch: pytest.MonkeyPatch, home: Path, without: Collection[str] = ()) -> Steps:
    """Note the syncs below a home, and into which folders files are renamed, but for some."""
    steps, sync, rename, replace = Steps(home), os.fsync, atomic.rename_new, os.replace

    def fsync(fd: int) -> None:
        steps.note("sync", os.readlink(f"/proc/self/fd/{fd}"))
        sync(fd)

    def shown(way: Callable[[Name, Name], None]) -> Callable[[Name, Name], None]:
        def show(src: Name, dst: Name) -> None:
            folder = os.path.dirname(dst)
            if not str(folder).endswith(tuple(without)):
                steps.note("show", folder)
            way(src, dst)

        return show

    monkeypatch.setattr(os, "fsync", fsync)
    monkeypatch.setattr(atomic, "rename_new", shown(rename))
    monkeypatch.setattr(os, "replace", shown(replace))
    return steps
