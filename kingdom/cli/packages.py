"""A general's package: checked, brought into the home, installed and taken out again."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from pathlib import Path

from kingdom import manifests
from kingdom.atomic import Disk, make_folder
from kingdom.errors import BadInput, Collision, NoSuchThing
from kingdom.manifests import Manifest
from kingdom.places import PROGRAM, Places, find_data

MANIFEST = "manifest.yaml"
DEFAULTS = ("gen-briefing", "gen-herald")


class BadPackage(BadInput):
    """{path}: {why}"""


def check(package: Path) -> Manifest:
    """The manifest of a package that can be installed; BadConfig or BadPackage says what is missing."""
    if not package.is_dir():
        raise BadPackage(path=package, why="no such folder; a package is a folder with a manifest.yaml and a prompt.md")
    try:
        manifest = manifests.read(package / MANIFEST)
    except FileNotFoundError:
        raise BadPackage(path=package, why=f"it has no {MANIFEST}") from None
    if (trouble := next(_faults(package, manifest), None)) is not None:
        raise BadPackage(path=package, why=trouble)
    return manifest


def install(places: Places, disk: Disk, package: Path) -> Manifest:
    """Copied to the home's generals/ unless it lies there; with its manifest in config/generals/ it is at work."""
    manifest = check(package)
    bring(places, package, manifest.name)
    make_folder(places.manifests)
    disk.rewrite(places.manifest(manifest.name), (package / MANIFEST).read_bytes())
    return manifest


def uninstall(places: Places, disk: Disk, name: str) -> None:
    """Its package stays; only the manifest goes."""
    if name not in manifests.names(places):
        raise NoSuchThing(what="installed general", name=name, hint="; `kingdom generals` lists them")
    disk.remove(places.manifest(name))


def bring(places: Places, package: Path, name: str) -> None:
    there = places.package(name)
    if not (there.exists() and os.path.samefile(package, there)):
        make_folder(there)
        for source in sorted(package.rglob("*")):
            copy(source, there / source.relative_to(package))


def copy(source: Path, target: Path) -> None:
    """A file with its mode, or an empty folder that is ours alone."""
    if source.is_dir():
        make_folder(target)
    else:
        shutil.copy(source, target)


def install_defaults(places: Places, disk: Disk) -> list[str]:
    """The generals every kingdom begins with, each once in its life: what was uninstalled stays away."""
    new = [name for name in DEFAULTS if not _offered(places, name)]
    for name in new:
        if name not in manifests.names(places):
            install(places, disk, Places(find_data()).package(name))
        _note_offer(places, disk, name)
    return new


def claimed_by_others(places: Places, manifest: Manifest) -> list[tuple[str, str]]:
    """What it asks for that an installed general of an earlier name has already, as (claim, holder)."""
    good, _ = manifests.installed(places)
    ours = {*manifest.subscribes, *manifest.keywords}
    return [
        (claim, other.name)
        for other in good
        if other.name < manifest.name
        for claim in sorted(ours & {*other.subscribes, *other.keywords})
    ]


def _faults(package: Path, manifest: Manifest) -> Iterator[str]:
    if not (package / "prompt.md").is_file():
        yield "it has no prompt.md, the words that its soldiers are sent with"
    run = package / PROGRAM
    if manifest.engine == "command" and not run.is_file():
        yield "its engine is `command`, and it has no executable `run`"
    if run.exists() and not os.access(run, os.X_OK):
        yield f"its `run` may not be executed; run `chmod +x {run}`"
    if manifest.schedules:
        from kingdom import schedules

        yield from (why for entry in schedules.entries([manifest]) if (why := schedules.misfit(entry)))


def _offered(places: Places, name: str) -> bool:
    return _offer(places, name).exists()


def _note_offer(places: Places, disk: Disk, name: str) -> None:
    make_folder(_offer(places, name).parent)
    try:
        disk.create(_offer(places, name), b"")
    except Collision:
        return


def _offer(places: Places, name: str) -> Path:
    return places.own("cli") / f"offered-{name}"
