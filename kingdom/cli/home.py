"""The home as a command sees it: where it is, who should run in it, and how a command writes there."""

from __future__ import annotations

import getpass
import os
import shlex
import shutil
import sys
import time
from contextlib import suppress
from functools import cache
from pathlib import Path

from kingdom.disk.atomic import Disk
from kingdom.home import config, roster
from kingdom.home.config import Config
from kingdom.home.places import Places, find_data, find_home
from kingdom.home.roster import RoleRow

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


def system(places: Places) -> Config:
    """As far as it can be read: a broken file must keep nobody from looking, or from stopping everything."""
    found, trouble = config.for_looking(places, "system")
    if trouble:
        _warn(trouble)
    return found


@cache
def _warn(trouble: str) -> None:
    print(f"{trouble}; until that is mended the defaults are meant", file=sys.stderr)


def user() -> str:
    """Who types. In a container a uid may have no name."""
    try:
        return getpass.getuser()
    except (KeyError, OSError):
        return f"uid-{os.getuid()}"


def rows(places: Places) -> list[RoleRow]:
    """Everybody who runs here unless stopped by hand."""
    return roster.roles_of(places, system(places))


def command() -> str:
    """How the reader would type `kingdom` where they are now."""
    on_path = shutil.which("kingdom")
    if on_path and os.path.samefile(on_path, _called()):
        return "kingdom"
    # A wheel carries bin/ as well, for the launchers; only a checkout's is meant for hands.
    is_checkout = (find_data() / "pyproject.toml").is_file()
    called = find_data() / "bin" / "kingdom" if is_checkout else Path(_called())
    return shlex.quote(min(os.path.relpath(called), str(called), key=len))


def _called() -> str:
    return sys.argv[0] if os.path.exists(sys.argv[0]) else sys.executable


def how_to_start(places: Places, role: str) -> str:
    """`kingdom up` leaves alone who was stopped by hand or is quarantined."""
    return f"{command()} up" if roster.desired_state(places, role) == "up" else f"{command()} start {role}"
