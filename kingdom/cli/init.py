"""`kingdom init`: a home outside the checkout."""

from __future__ import annotations

import os
from pathlib import Path

import click

from kingdom.atomic import make_folder
from kingdom.cli import home, packages
from kingdom.errors import BadHome
from kingdom.places import Places, find_data


@click.command(short_help="Make a folder a home of its own.")
@click.argument("folder", type=click.Path(path_type=Path), default=".")
def init(folder: Path) -> None:
    """Make FOLDER (this one, if none is named) a home of its own, with default configuration and generals."""
    places = Places(folder.expanduser().absolute())
    furnish(places)
    places.check()
    print(f"{places.home} is a home now.")
    print(f"Next: export KINGDOM_HOME={places.home} && {home.command()} up")


def furnish(places: Places) -> None:
    """Everything that a home has and this one lacks. What is there is left as it is."""
    if _is_foreign(places):
        raise BadHome(path=places.home, why="it holds something else (no config/ and queue/); name an empty folder")
    make_folder(places.home)
    for folder in places.folders():
        make_folder(folder)
    data = Places(find_data())
    make_folder(places.packages)
    for folder in (data.config, data.packages):
        for source in sorted(folder.rglob("*")):
            _bring(source, places.home / source.relative_to(data.home))
    packages.install_defaults(places, home.disk(places))


def _is_foreign(places: Places) -> bool:
    if not places.home.is_dir() or (places.config / "king.yaml").is_file():
        return False
    there = [name for name in os.listdir(places.home) if not name.startswith(".") and name != "lost+found"]
    return bool(there) and not (places.config.is_dir() and places.queue.is_dir())


def _bring(source: Path, target: Path) -> None:
    """Installed manifests are a home's own affair and stay where they are."""
    installed = source.parent == Places(find_data()).manifests
    if not (target.exists() or installed or source.name.startswith(".")):
        packages.copy(source, target)
