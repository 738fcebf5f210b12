"""Remove what soldiers leave: at once if it is little, else in a child process in the background.

It may be deeper than can be named and more than a turn has time for, and some of it may be without permissions.
"""

from __future__ import annotations

import os
import secrets
from itertools import islice
from pathlib import Path
from subprocess import DEVNULL, run

from kingdom.base.disk.atomic import Disk

FEW = 64
REMOVED = ".gone"
_SWEEP = '{ rm -rf -- "$@" || { chmod -R u+rwx -- "$@"; rm -rf -- "$@"; }; } &'


def remove_tree(disk: Disk, folder: Path) -> None:
    """Remove a folder from its name before this returns, and from the disk soon."""
    if _remove_small(folder):
        return
    aside = folder.with_name(f".{folder.name}-{secrets.token_hex(4)}{REMOVED}")
    try:
        disk.move(folder, aside)
    except FileNotFoundError:  # what was being removed already may be gone by now
        return
    _sweep([aside])


def finish_removals(folder: Path) -> None:
    """Finish the removals that a kill has interrupted here."""
    _sweep(list(folder.glob(f".*{REMOVED}")))


def _remove_small(folder: Path) -> bool:
    """Remove a folder with a few files and no folders in it. Return whether it is gone."""
    try:
        with os.scandir(folder) as entries:
            there = list(islice(entries, FEW + 1))
        if len(there) > FEW or any(entry.is_dir(follow_symlinks=False) for entry in there):
            return False
        for entry in there:
            os.unlink(entry)
        os.rmdir(folder)
    except FileNotFoundError:
        return True
    except OSError:
        return False
    return True


def _sweep(folders: list[Path]) -> None:
    if folders:
        run(["sh", "-c", _SWEEP, "sh", *folders], stdin=DEVNULL, stdout=DEVNULL, stderr=DEVNULL, check=False)
