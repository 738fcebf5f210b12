"""How a backup copies files whose order matters: each product has its own rows."""

from __future__ import annotations

import os
import stat
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from kingdom.base.disk.atomic import names_in
from kingdom.base.home.places import Places

LEFT_OUT = ("lock", "heartbeat", "mirrors", "tmp")
"""Names below state/ of what belongs to running processes, or can be fetched again."""


def _none(places: Places) -> Iterable[Path]:
    return ()


class Copies(NamedTuple):
    """The files of a product that are not copied with all others."""

    #: Copied before the court's.
    first: Callable[[Places], Iterable[Path]] = _none
    #: Copied right after the court's.
    then: Callable[[Places], Iterable[Path]] = _none
    #: Copied after all others.
    last: Callable[[Places], Iterable[Path]] = _none
    #: Folders of which nothing else is copied.
    alone: Callable[[Places], Iterable[Path]] = _none
    #: Take out of the copy what moved on while it was made.
    settle: Callable[[Places, Places], None] = lambda places, copy: None


def is_left_out(places: Places, path: Path) -> bool:
    is_of_run = path.parent == places.run and path != places.wanted_folder
    is_ours = path.parent == places.own("cli") and path.name.startswith("backup-")
    is_turns = path.name == "camp" and not path.parent.name.startswith("gen-")
    return path.name in LEFT_OUT or path.name.endswith((".lock", ".sock")) or is_of_run or is_ours or is_turns


def all_below(folder: Path) -> Iterator[Path]:
    """Yield the files below a folder, the newest of a topic first: the oldest may be removed meanwhile."""
    for name in sorted(names_in(folder), reverse=True):
        path = folder / name
        with suppress(FileNotFoundError):
            if stat.S_ISDIR(os.lstat(path).st_mode):
                yield from all_below(path)
            else:
                yield path
