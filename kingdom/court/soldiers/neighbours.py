"""Other kingdoms and projects of this machine, and its own keys, which soldiers may not read either.

They are looked for where they usually are: a list of what may not be read cannot be whole. Other kingdoms at work are
known by their processes, wherever they are. Each kingdom notes in its own home which ones it has seen, because nothing
is written outside: so a kingdom that has stopped is withheld, too, if the two have ever been at work together, or with
a third one.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Iterable, Iterator
from contextlib import suppress
from itertools import islice
from pathlib import Path

from kingdom.base.disk.atomic import Disk
from kingdom.base.home.places import Places, find_data
from kingdom.base.runtime.processes import homes_at_work

KEPT_SECONDS = 60.0
"""For so long is not looked again."""
MOST_LOOKED_AT = 500
"""Folders in one folder."""
SHARED = ("/opt", "/srv", "/var/www")
"""Where projects of a machine are, beside those of its users."""
ENVS = (".env", ".env.local")
OF_MACHINE = (
    *("/etc/shadow", "/etc/shadow-", "/etc/gshadow", "/etc/gshadow-", "/etc/krb5.keytab", "/etc/ssl/private"),
    *(f"/etc/ssh/ssh_host_{kind}_key" for kind in ("rsa", "ecdsa", "ed25519")),
    *("/etc/wireguard", "/etc/NetworkManager/system-connections"),
)
"""Keys that root may read."""

_kept: dict[tuple[Path, str], tuple[float, list[str]]] = {}


def withheld(home: Path, user: str, kept_by_owners: Iterable[str]) -> list[str]:
    """Return what of others is not for the soldiers of a home. `user` is the folder of its owner.

    `kept_by_owners` names where people keep keys in their own folders: root could read those of everybody.
    """
    until, found = _kept.get((home, user), (0.0, []))
    if time.monotonic() >= until:
        found = sorted({str(path) for path in _found(home, user, kept_by_owners) if not _is_needed(path, home)})
        _kept[home, user] = (time.monotonic() + KEPT_SECONDS, found)
    return found


def note(places: Places, disk: Disk) -> None:
    """Note the other homes at work, what these have noted, and the backups of all of them."""
    known = set(places.known_neighbours())
    homes = {path for path in known | homes_at_work() if _is_a_kingdoms(path)} - {places.home}
    theirs = {path for home in homes for path in (*Places(home).known_backups(), *Places(home).known_neighbours())}
    backups = {path for path in known | theirs if os.path.isfile(path)} - set(places.known_backups())
    found = {*homes, *(path for path in theirs if _is_a_kingdoms(path)), *backups} - {places.home}
    if found != known:
        disk.rewrite(places.neighbours, b"".join(path + b"\n" for path in sorted(map(os.fsencode, found))))


def _is_a_kingdoms(folder: Path) -> bool:
    """Return whether a home is here, and not one that a soldier has made in its workspace."""
    return Places(folder).is_there and not any(Places(around).is_there for around in folder.parents)


def _found(home: Path, user: str, kept_by_owners: Iterable[str]) -> Iterator[Path]:
    others = [Path(user)]
    if os.geteuid() == 0:
        yield from map(Path, OF_MACHINE)
        users = [path for path in _folders_in(Path("/home")) if path != others[0]]
        yield from (path for each in users for name in kept_by_owners if os.path.lexists(path := each / name))
        others += users
    known = Places(home).known_neighbours()
    yield from (path for path in known if os.path.isfile(path))
    folders = {*homes_at_work(), *known, Path(user, ".local/share/kingdom")}
    for around in (home.parent, *others, *map(Path, SHARED)):
        folders |= {around, *_folders_in(around)}
    for folder in folders - {home}:
        other = Places(folder)
        if other.is_there:
            yield from _data_of(other)
        yield from (path for name in ENVS if os.path.lexists(path := folder / name))


def _folders_in(folder: Path) -> Iterator[Path]:
    with suppress(OSError), os.scandir(folder) as entries:
        yield from (
            Path(entry.path) for entry in islice(entries, MOST_LOOKED_AT) if entry.is_dir(follow_symlinks=False)
        )


def _data_of(other: Places) -> Iterator[Path]:
    """Yield what a kingdom keeps, without its program: a checkout may be a home, and ours may run from there."""
    yield from (other.state, other.queue, other.workspaces, other.logs, other.memory)
    with suppress(OSError):  # another user's may not be listed
        yield from other.copies_of_env()
    yield from filter(os.path.lexists, other.known_backups())


def _is_needed(path: Path, home: Path) -> bool:
    """Return whether our own home or program is below a path."""
    return any(own.is_relative_to(path) for own in (home, Path(sys.prefix), find_data()))
