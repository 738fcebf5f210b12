"""The home as a command sees it: where it is, which roles belong to it, and how a command writes there."""

from __future__ import annotations

import os
import shlex
import sys
import time
from contextlib import suppress
from functools import cache, partial
from pathlib import Path

from kingdom.base.disk.atomic import Disk
from kingdom.base.errors import BadHome
from kingdom.base.home import config, roster
from kingdom.base.home.config import Config
from kingdom.base.home.places import Places, find_data, find_home
from kingdom.base.home.roster import RoleRow
from kingdom.base.records import heartbeats

WRITER = "cli"
LEFTOVER_SECONDS = 60.0


def find() -> Places:
    """Return the home; BadHome when it is none, so that no command takes another folder for an empty one."""
    places = Places(find_home())
    places.check_there()
    if not (places.config.is_dir() or places.queue.is_dir()):
        raise BadHome(path=places.home, why="it has neither config/ nor queue/; `kingdom init` makes a home")
    return places


def own() -> Places:
    """Return the home as `find` does, for commands that end and start what runs there: BadHome for somebody else's."""
    places = find()
    places.check_owner()
    return places


def disk(places: Places) -> Disk:
    """Return a disk for this one command. Old drafts of earlier commands are deleted: no lock protects them."""
    scratch = places.scratch(WRITER)
    with suppress(FileNotFoundError), os.scandir(scratch) as drafts:
        for draft in drafts:
            with suppress(FileNotFoundError):
                if time.time() - draft.stat().st_mtime > LEFTOVER_SECONDS:
                    os.unlink(draft.path)
    return Disk(scratch)


def system(places: Places) -> Config:
    """Return system.yaml, or the defaults while it is broken, so that status and stop still work."""
    found, error = config.for_looking(places, "system")
    if error:
        _warn(error)
    return found


def is_played(places: Places, role: str) -> bool:
    """Return whether a role runs, or another program plays it."""
    return heartbeats.is_played(places, role, partial(hang_seconds, places), time.time())


def hang_seconds(places: Places) -> float:
    return float(system(places)["heartbeat"]["threshold_seconds"])


@cache
def _warn(error: str) -> None:
    print(f"{error}; the defaults are used until that is corrected", file=sys.stderr)


def user() -> str:
    """Return who types. In a container a uid may have no name."""
    import getpass  # slow to load for what few commands need

    try:
        return getpass.getuser()
    except (KeyError, OSError):
        return f"uid-{os.getuid()}"


def rows(places: Places) -> list[RoleRow]:
    """Return the roles that run here unless stopped by hand."""
    return roster.roles_of(places, system(places))


def command() -> str:
    """Return `program`, with the home that was named on the command line."""
    folder = _named()
    return f"{program()} -C {shlex.quote(folder)}" if folder else program()


def is_named() -> bool:
    """Return whether the home was named by --home."""
    return bool(_named())


def _named() -> str | None:
    if "click" not in sys.modules:
        return None  # no option has been read
    import click

    context = click.get_current_context(silent=True)
    return context.find_root().params.get("folder") if context else None


def program() -> str:
    """Return how the reader would type `kingdom` in the current folder."""
    # A wheel carries bin/ too, for the launchers; only a checkout's is meant to be typed.
    is_checkout = (find_data() / "pyproject.toml").is_file()
    ours = [_called(), *([str(find_data() / "bin" / "kingdom")] if is_checkout else [])]
    on_path = next(filter(_is_program, (f"{folder}/kingdom" for folder in os.get_exec_path())), None)
    if on_path and any(os.path.samefile(on_path, path) for path in ours):
        return "kingdom"
    if Path(_called()).name == "__main__.py" and not is_checkout:
        return f"{shlex.quote(sys.executable)} -m kingdom"
    called = find_data() / "bin" / "kingdom" if is_checkout else Path(_called())
    return shlex.quote(min(os.path.relpath(called), str(called), key=len))


def _is_program(path: str) -> bool:
    return os.path.isfile(path) and os.access(path, os.X_OK)


def _called() -> str:
    return sys.argv[0] if os.path.exists(sys.argv[0]) else sys.executable


def how_to_start(places: Places, role: str) -> str:
    """Return the command that starts a role, as the reader would type it."""
    return roster.how_to_start(places, role, command())


def how_to_switch_on(places: Places, role: str) -> str:
    return f"write roles: {{{role}: true}} into {places.config / 'system.yaml'}"
