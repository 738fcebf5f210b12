"""Workspaces that are kept when their tasks have ended, because there is work in them."""

from __future__ import annotations

import os
import time
from collections.abc import Iterable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from kingdom.base.disk.atomic import is_there, names_in
from kingdom.base.disk.codec import read_json_or
from kingdom.base.errors import BadName
from kingdom.base.home.places import Places, is_hidden
from kingdom.base.records import notes

EARLIER = ".earlier-"
"""Between a task and a number, in the name of the folder with the work of one of its earlier tries."""


BLOCK = 512
"""Bytes in which the kernel counts what a file takes."""


class Kept(NamedTuple):
    """A workspace that is kept."""

    task: str
    general: str
    folder: Path
    #: When its task ended, as seconds since the epoch. Retention counts from then.
    since: float


def task_of(name: str) -> str:
    """Return the task that a workspace of this name belongs to."""
    return name.partition(EARLIER)[0]


def kept(places: Places) -> Iterator[Kept]:
    """Yield the kept workspaces of all generals, in no order: those of ended tasks whose results do not deny it."""
    for general in names_in(places.workspaces):
        if general.startswith("gen-"):
            for name in names_in(places.workspaces / general):
                task = task_of(name)
                if not is_hidden(name) and not _is_unfinished(places, task) and not _is_empty(places, task, name):
                    folder = places.workspaces / general / name
                    with suppress(FileNotFoundError, NotADirectoryError):
                        if folder.is_dir():
                            yield Kept(task, general, folder, os.stat(folder).st_mtime)


def of_task(places: Places, task: str) -> list[Kept]:
    """Return what is kept of one task, the last try first; also where it went on in the workspace of another one."""
    named = folders_named(places, task)
    found = [one._replace(task=task) for one in kept(places) if one.task == task or str(one.folder) in named]
    return sorted(found, key=lambda one: one.folder.name)


def sentence(task: str, folders: Iterable[str]) -> str:
    """Say where the work of a task is kept, below its home: the paths of a server are not for people. "" if nowhere."""
    where = " and ".join("/".join(Path(folder).parts[-3:]) for folder in folders)
    return where and f"Its work is kept in {where}; `kingdom tasks work {task}` shows it."


def size(folders: Iterable[Path], seconds: float) -> tuple[int, bool]:
    """Return how many bytes these folders take on the disk, and whether there was time to look at all of it."""
    until, taken = time.monotonic() + seconds, 0
    for folder in folders:
        for inside, _, names in os.walk(folder):
            for name in names:
                with suppress(OSError):
                    taken += os.lstat(f"{inside}/{name}").st_blocks * BLOCK
            if time.monotonic() > until:
                return taken, False
    return taken, True


def _is_unfinished(places: Places, task: str) -> bool:
    return any(is_there(f"{places.folder('tasks', state)}/{task}.json") for state in ("pending", "in_progress"))


def _is_empty(places: Places, task: str, name: str) -> bool:
    """Return whether a workspace is kept though its task left nothing in it: it failed, or its question is open."""
    try:
        result = read_json_or(places.result(task), {})
    except BadName:
        return True
    stays = result.get("status") == "failed" or notes.asks(places, task)
    return stays and "kept" in result and not any(path.endswith(f"/{name}") for path in folders_named(places, task))


def folders_named(places: Places, task: str) -> list[str]:
    """Return the folders that the result of a task names, as they are called here: a home may have been moved."""
    with suppress(BadName):
        said = read_json_or(places.result(task), {}).get("kept")
        named = map(Path, map(str, said if isinstance(said, list) else ()))
        return [str(places.workspaces.joinpath(*folder.parts[-2:])) for folder in named]
    return []
