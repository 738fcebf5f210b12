"""Bring a home's copies of the shipped generals up to date.

A home holds copies, and programs among them import kingdom modules by name: an old copy may fail with a new Kingdom.
A copy that equals an older shipped version is replaced; one that its owner has changed is kept.
"""

from __future__ import annotations

import os
from collections import defaultdict
from collections.abc import Iterator
from hashlib import sha256
from pathlib import Path

from kingdom.base.disk.atomic import Disk, make_folder
from kingdom.base.home.places import Places, find_data
from kingdom.base.program import home
from kingdom.cli import packages


def update(places: Places, disk: Disk) -> list[str]:
    """Replace the copies of older shipped versions. Return a line of what was replaced and of each copy kept."""
    shipped = Places(find_data())
    versions = _versions(shipped.packages / packages.VERSIONS)
    replaced: list[str] = []
    kept: list[str] = []
    for name, ours, copy, is_installed in _copies(shipped, places):
        newest, found = ours.read_bytes(), copy.read_bytes()
        if found != newest and _digest(found) in versions[name]:
            disk.rewrite(copy, newest)
            replaced.append(str(copy.relative_to(places.home)))
        elif found != newest and not is_installed and len(versions[name]) > 1 and _is_news(places, disk, name, newest):
            kept.append(
                f"{copy.relative_to(places.home)} is your own version and was kept; a newer one is {ours}: "
                f"take over what you need, or delete yours and run `{home.command()} up`."
            )
        if os.access(ours, os.X_OK) and not os.access(copy, os.X_OK):
            copy.chmod(0o700)
    return [f"Brought up to date: {', '.join(replaced)}."] * bool(replaced) + kept


def _copies(shipped: Places, places: Places) -> Iterator[tuple[str, Path, Path, bool]]:
    """Yield the name, shipped file and copy of everything in the home, and whether it is an installed manifest.

    Installed manifests are meant to be edited: nothing is said of those that were.
    """
    for ours in packages.shipped_files():
        name = ours.relative_to(shipped.packages)
        if (copy := places.packages / name).is_file() and not os.path.samefile(ours, copy):
            yield str(name), ours, copy, False
    for package in packages.shipped():
        if (installed := places.manifest(package.name)).is_file():
            yield f"{package.name}/{packages.MANIFEST}", package / packages.MANIFEST, installed, True


def _versions(path: Path) -> dict[str, set[str]]:
    """Return the digests of each file's versions, by its name."""
    found: defaultdict[str, set[str]] = defaultdict(set)
    for line in path.read_text("utf-8").splitlines():
        if line and not line.startswith("#"):
            digest, name = line.split()
            found[name].add(digest)
    return found


def _is_news(places: Places, disk: Disk, name: str, newest: bytes) -> bool:
    """Return whether this version has not been announced yet, and note that it now is."""
    noted = places.own("cli") / f"announced-{name.replace('/', '-')}"
    make_folder(noted.parent)
    if noted.is_file() and noted.read_text() == _digest(newest):
        return False
    disk.rewrite(noted, _digest(newest).encode())
    return True


def _digest(data: bytes) -> str:
    return sha256(data).hexdigest()
