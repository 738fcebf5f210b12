"""A general's package: checked, brought into the home, installed and taken out again."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from kingdom.cli import home
from kingdom.disk.atomic import Disk, make_folder
from kingdom.errors import BadConfig, BadInput, Collision, NoSuchThing
from kingdom.home import config, manifests
from kingdom.home.manifests import Manifest
from kingdom.home.places import PROGRAM, Places, find_data

MANIFEST = "manifest.yaml"
DEFAULTS = ("gen-briefing", "gen-herald")


class BadPackage(BadInput):
    """{faults}"""


def check(package: Path) -> Manifest:
    """The manifest of a package that can be installed; BadPackage says everything that is wrong, a line for each."""
    if faults := list(_faults(package)):
        raise BadPackage(faults="\n".join(faults))
    return manifests.read(package / MANIFEST)


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
        raise NoSuchThing(what="installed general", name=name, hint=f"; `{home.command()} generals` lists them")
    disk.remove(places.manifest(name))


def bring(places: Places, package: Path, name: str) -> None:
    there = places.package(name)
    if not (there.exists() and os.path.samefile(package, there)):
        make_folder(there)
        for source in sorted(package.rglob("*")):
            copy(source, there / source.relative_to(package))


def shipped(data: Places) -> list[Path]:
    """Return the folders of the generals that Kingdom ships, by name."""
    return sorted(path for path in data.packages.iterdir() if path.is_dir())


def copy(source: Path, target: Path) -> None:
    """Copy a file with its mode; of a folder make an empty one that is ours alone."""
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


def _faults(package: Path) -> Iterator[str]:
    if not package.is_dir():
        yield f"{package}: no such folder; a package is a folder with a manifest.yaml and a prompt.md"
        return
    engine = None
    try:
        value, lines = config.read_yaml(package / MANIFEST)
        wrong = config.errors_in("manifest", value, lines, package / MANIFEST)
        yield from map(str, wrong)
        if isinstance(value, dict):
            engine = value.get("engine")
            if not any("schedules" in str(each.facts["key"]) for each in wrong):
                plans = _faults_of_schedules(value.get("schedules", []))
                yield from (str(config.error_at(package / MANIFEST, lines, value, *each)) for each in plans)
    except BadConfig as trouble:
        yield str(trouble)
    except FileNotFoundError:
        yield f"{package}: it has no {MANIFEST}"
    yield from (f"{package}: {fault}" for fault in _faults_of_files(package, engine))


def _faults_of_schedules(plans: Sequence[Mapping[str, Any]]) -> Iterator[tuple[tuple[str | int, ...], str]]:
    """Of plans that fit their schema: where, and what."""
    from kingdom.rules.schedules import flaw

    names = [plan["name"] for plan in plans]
    for number, plan in enumerate(plans):
        if plan["name"] in names[:number]:
            yield ("schedules", number, "name"), f"{plan['name']!r} stands here a second time"
        if (wrong := flaw(plan["cron"], plan.get("timezone"))) is not None:
            yield ("schedules", number, wrong[0]), wrong[1]


def _faults_of_files(package: Path, engine: object) -> Iterator[str]:
    if not (package / "prompt.md").is_file():
        yield "it has no prompt.md, the words that its soldiers are sent with"
    run = package / PROGRAM
    if not run.is_file():
        if engine == "command" or run.exists():
            yield "its engine is `command`, and it has no executable `run`"
        return
    if not os.access(run, os.X_OK):
        yield f"its `run` may not be executed; run `chmod +x {run}`"
    if (misfit := manifests.program_misfit(run)) is not None:
        yield misfit


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
