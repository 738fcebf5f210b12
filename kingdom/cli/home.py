"""The home as a command sees it: where it is, who should run in it, and how a command writes there."""

from __future__ import annotations

import os
import shutil
import sys
import time
from contextlib import suppress
from pathlib import Path

from kingdom import config, roster
from kingdom.atomic import Disk
from kingdom.places import Places, find_home
from kingdom.roster import Seat

WRITER = "cli"
LITTER_SECONDS = 60.0


def find() -> Places:
    return Places(find_home())


def disk(places: Places) -> Disk:
    """For this one command. Nobody locks it, so only what must be a dead command's litter is swept."""
    scratch = places.scratch(WRITER)
    with suppress(FileNotFoundError), os.scandir(scratch) as litter:
        for each in litter:
            with suppress(FileNotFoundError):
                if time.time() - each.stat().st_mtime > LITTER_SECONDS:
                    os.unlink(each.path)
    return Disk(scratch)


def seats(places: Places) -> list[Seat]:
    """Everybody who runs here unless stopped by hand."""
    return roster.of(places, config.load(places, "system"))


def command() -> str:
    """How the reader would type `kingdom` where they are now."""
    on_path = shutil.which("kingdom")
    if on_path and os.path.samefile(on_path, _called()):
        return "kingdom"
    if Path("bin/kingdom").is_file():
        return "bin/kingdom"
    return os.path.relpath(_called())


def _called() -> str:
    return sys.argv[0] if os.path.exists(sys.argv[0]) else sys.executable
