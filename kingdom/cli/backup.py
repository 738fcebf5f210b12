"""`kingdom backup` and `restore`: a home as one file."""

from __future__ import annotations

import os
import shlex
import shutil
import time
from contextlib import nullcontext
from pathlib import Path

import click

from kingdom.base.disk.atomic import Disk, is_there, make_folder
from kingdom.base.errors import BadHome, Usage
from kingdom.base.home.places import Places, find_home
from kingdom.base.program import home
from kingdom.base.program.home import WRITER
from kingdom.base.times import stamp
from kingdom.cli import fsck
from kingdom.cli.init import holds_something_else
from kingdom.court.steward.base import launching
from kingdom.court.upkeep import backup as archives

MEGABYTE = 1 << 20


@click.command(short_help="Copy the home into one file, also while it runs.")
@click.argument("file", type=click.Path(path_type=Path))
@click.option("--with-secrets", is_flag=True, help="Include .env, its copies, and the keys of the gateway.")
def backup(file: Path, with_secrets: bool) -> None:
    """Copy this home, also while it runs, into FILE (a tar archive that only you can read).

    The copy is consistent by the rules of `fsck`. It leaves out secrets (unless --with-secrets), locks, sockets, and
    clones of repositories, which are fetched again.
    """
    places, target = home.own(), file.absolute()
    places.check()
    if is_there(target):
        raise Usage(message=f"{target} is there already; name another file")
    if not target.parent.is_dir():
        raise Usage(message=f"{target.parent} is no folder")
    if target.is_relative_to(places.state) or target.is_relative_to(places.queue):
        raise Usage(message=f"{target} lies in what is to be copied; name a file elsewhere")
    # Before it is made: no soldier that starts meanwhile may read it.
    known = sorted({*map(os.fsencode, filter(is_there, places.known_backups())), os.fsencode(target)})
    home.disk(places).rewrite(places.backups, b"".join(path + b"\n" for path in known))
    archives.make(places, target, home.disk(places), secrets=with_secrets)
    secrets = "with its secrets" if with_secrets else "without secrets (.env is not in it)"
    print(f"{target}: {os.stat(target).st_size / MEGABYTE:.1f} MB, {places.home} {secrets}.")


@click.command(short_help="Restore a home from a backup.")
@click.argument("file", type=click.Path(path_type=Path, exists=True, dir_okay=False))
@click.argument("folder", type=click.Path(path_type=Path), required=False)
@click.option("--force", is_flag=True, help="Replace an existing home; its files move to its folder set-aside-TIME.")
def restore(file: Path, folder: Path | None, force: bool) -> None:
    """Restore a home from FILE, which `kingdom backup` wrote, into FOLDER. Nothing may run there.

    Without FOLDER it is the home that other commands would take, or the current folder where there is none.

    With --force the existing files move to the home's folder set-aside-TIME. `.env` stays if FILE holds none.
    """
    places = _restored_home(folder)
    if holds_something_else(places):
        raise BadHome(path=places.home, why="it holds something else; name an empty folder: `restore FILE FOLDER`")
    make_folder(places.home)
    places.check_owner()
    is_one = places.config.is_dir() or places.queue.is_dir()
    if is_one and not force:
        raise BadHome(path=places.home, why="a home is there already; `restore --force` sets it aside")
    unpacked = places.home / f".restore-{os.getpid()}"
    try:
        note = archives.unpack(file.absolute(), unpacked)
        aside = places.home / f"set-aside-{stamp(time.time()).replace(':', '')}" if is_one else None
        with launching(places) if is_one else nullcontext():
            fsck.refuse_while_at_work(places)
            archives.put_in_place(unpacked, places, Disk(places.scratch(WRITER)), aside)
    finally:
        shutil.rmtree(unpacked, ignore_errors=True)
    said = f"{places.home} is as it was at {note['made_at']}"
    print(f"{said}; what was there lies in {aside}." if aside else f"{said}.")
    if not note.get("secrets"):
        print(f"The file holds no secrets: see to {places.env_file}.")
    command = home.command() if folder is None else f"{home.program()} -C {shlex.quote(str(folder))}"
    print(f"Next: {command} fsck && {command} up")


def _restored_home(folder: Path | None) -> Places:
    if folder is not None:
        return Places(folder.expanduser().absolute())
    try:
        return Places(find_home())
    except BadHome:
        return Places(Path.cwd())
