"""What soldiers leave is cleared away: at once where it is little, else by a child that nobody waits for.

It may be deeper than can be named and more than a turn has time for, and some of it may be shut.
"""

from __future__ import annotations

import os
import secrets
from itertools import islice
from pathlib import Path
from subprocess import DEVNULL, run

from kingdom.disk.atomic import Disk

FEW = 64
ENDING = ".gone"
_SWEEP = '{ rm -rf -- "$@" || { chmod -R u+rwx -- "$@"; rm -rf -- "$@"; }; } &'


def clear_away(disk: Disk, folder: Path) -> None:
    """Gone from its name when this returns, and from the disk soon."""
    if _is_removed(folder):
        return
    gone = folder.with_name(f".{folder.name}-{secrets.token_hex(4)}{ENDING}")
    disk.move(folder, gone)
    _sweep([gone])


def finish(folder: Path) -> None:
    """What a killed life was still clearing away."""
    _sweep(list(folder.glob(f".*{ENDING}")))


def _is_removed(folder: Path) -> bool:
    """The usual case: a few files, and nothing below."""
    try:
        with os.scandir(folder) as entries:
            there = list(islice(entries, FEW + 1))
        if len(there) > FEW or any(each.is_dir(follow_symlinks=False) for each in there):
            return False
        for each in there:
            os.unlink(each)
        os.rmdir(folder)
    except FileNotFoundError:
        return True
    except OSError:
        return False
    return True


def _sweep(folders: list[Path]) -> None:
    if folders:
        run(["sh", "-c", _SWEEP, "sh", *folders], stdin=DEVNULL, stdout=DEVNULL, stderr=DEVNULL, check=False)
