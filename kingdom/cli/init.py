"""`kingdom init`: make a folder a home."""

from __future__ import annotations

import os
import shlex
import sys
from pathlib import Path

import click
from click.core import ParameterSource

from kingdom import wings
from kingdom.base import tables
from kingdom.base.disk.atomic import Disk, make_folder
from kingdom.base.errors import BadHome, Usage
from kingdom.base.home.places import Places, find_data
from kingdom.base.program import home
from kingdom.cli import packages, shipped
from kingdom.court.steward.base import launching
from kingdom.court.upkeep import versions

INSTALLER = """\
#!/bin/sh
# DIR [--force]: install the package of a general in this home. Made by `kingdom init` and `up`.
for word do
    shift
    [ "$word" = --force ] || set -- "$@" "$word"
done
exec {kingdom} -C "$(cd "${{0%/*}}/.." && pwd)" generals install "$@"
"""


@click.command(short_help="Make a folder a home.")
@click.argument("folder", default="", metavar="[FOLDER]")
@click.pass_context
def init(context: click.Context, folder: str) -> None:
    """Make FOLDER a home, with default configuration and generals.

    Without FOLDER it is that of --home or $KINGDOM_HOME, else the current folder.

    In an existing home, missing files are added and old copies of shipped generals are replaced.
    """
    if context.get_parameter_source("folder") is not ParameterSource.COMMANDLINE:
        folder = set_home = os.environ.get("KINGDOM_HOME") or os.environ.get("KINGDOM_BASE_DIR") or ""
    elif folder.strip():
        set_home = ""
    else:
        raise Usage(message="which folder? `kingdom init .` means this one")
    places = Places(Path(folder or ".").expanduser().absolute())
    was_one = (places.config / "king.yaml").is_file()
    for line in furnish(places):
        print(line)
    places.check()
    if was_one:
        print(f"{places.home} was a home already; what was missing has been added.")
    else:
        print(f"{places.home} is a home now, configured as {Places(find_data()).default_config} is.")
    up = f"export KINGDOM_HOME={shlex.quote(str(places.home))} && {home.program()} up"
    print(f"Next: {f'{home.command()} up' if set_home else up}")


def furnish(places: Places) -> list[str]:
    """Add what a home needs and this one lacks. Return a line for each thing about its generals that was updated."""
    if holds_something_else(places):
        raise BadHome(path=places.home, why="it holds something else (no config/ and queue/); name an empty folder")
    versions.refuse_newer(places)
    was_one = places.folder("events", "pending").is_dir()  # a fresh checkout has queue/ too
    make_folder(places.home)
    for folder in places.folders():
        make_folder(folder)
        if not was_one and places.config not in (folder, folder.parent):
            folder.chmod(0o700)  # git has made some of them, for everybody
    data = Places(find_data())
    make_folder(places.packages)
    for source in sorted(data.default_config.glob("*.yaml")):
        _add(source, places.config / source.name)
    for source in packages.shipped_files():
        target = places.home / source.relative_to(data.home)
        make_folder(target.parent)
        _add(source, target)
    disk = home.disk(places)
    _add_installer(places, disk)
    for wing in wings.rows():
        if wing.furnish:
            tables.load(wing.furnish)(places)
    packages.install_defaults(places, disk)
    updated = shipped.update(places, disk)
    if versions.version(places) == len(versions.MIGRATIONS):
        return updated
    with launching(places):
        migrated = list(versions.migrate(places, disk))
    return [*updated, *migrated] if was_one else updated


def _add_installer(places: Places, disk: Disk) -> None:
    """Add the command by which packages of other kingdoms install themselves; a checkout has its own."""
    path = places.installer
    if (find_data() / "pyproject.toml").is_file() and places.home.samefile(find_data()):
        return
    kingdom = f"{shlex.quote(sys.executable)} -P -m kingdom"
    script = INSTALLER.format(kingdom=kingdom).encode()
    if not path.is_file() or path.read_bytes() != script:
        make_folder(path.parent)
        before = path.with_name(f"{path.name}.before")
        if path.is_file() and b"Made by `kingdom init`" not in path.read_bytes() and not before.exists():
            disk.create(before, path.read_bytes())  # another kingdom's
        disk.rewrite(path, script)
        path.chmod(0o700)


def holds_something_else(places: Places) -> bool:
    """Return whether a folder holds other things than a home, so that none is made there."""
    if not places.home.is_dir() or (places.config / "king.yaml").is_file():
        return False
    there = [name for name in os.listdir(places.home) if not name.startswith(".") and name != "lost+found"]
    return bool(there) and not (places.config.is_dir() and places.queue.is_dir())


def _add(source: Path, target: Path) -> None:
    """Copy what the home lacks."""
    if not (target.exists() or source.name.startswith(".")):
        packages.copy(source, target)
