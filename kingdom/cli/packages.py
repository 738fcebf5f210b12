"""A general's package: check it, copy it into the home, install and uninstall it."""

from __future__ import annotations

import os
import shutil
import stat
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kingdom import wings
from kingdom.base.disk.atomic import Disk, make_folder
from kingdom.base.errors import BadConfig, BadInput, Collision, NoSuchThing
from kingdom.base.home import config, dotenv, manifests
from kingdom.base.home.config import Config
from kingdom.base.home.manifests import Manifest
from kingdom.base.home.places import PROGRAM, Places, find_data
from kingdom.base.program import home
from kingdom.base.words import closest
from kingdom.cli import new_general
from kingdom.court.soldiers import prepare
from kingdom.court.soldiers.engines.base import NeedsSetUp

MANIFEST = "manifest.yaml"
VERSIONS = "shipped.sha256"
"""The list of every version that was ever shipped of each file."""
DEFAULTS = ("gen-briefing", "gen-herald")


LEFT_OUT = (".git", ".hg", ".venv", "__pycache__")
"""What is not copied from a package's folder, beside `.env` and its copies."""


class BadPackage(BadInput):
    """{faults}"""


def check(package: Path) -> Manifest:
    """Return the manifest of a package that can be installed; BadPackage names all that is wrong, line by line."""
    if faults := list(_faults(package)):
        raise BadPackage(faults="\n".join(faults))
    return manifests.read(package / MANIFEST)


def find(places: Places, named: str) -> Path:
    """Return the folder of a package that is named by its path, or by its name as `generals ls` shows it."""
    path = Path(named)
    if (path / MANIFEST).is_file() or os.sep in named or named.startswith("."):
        return path
    name = new_general.full_name(named)
    known = {folder.name: folder for folder in (*shipped(), *in_home(places))}
    if name not in known:
        raise NoSuchThing(what="package", name=named, hint=closest(name, sorted(known)) or "; name its folder")
    return known[name]


def installable(places: Places) -> list[Manifest]:
    """Return the manifests of the home's packages that are not installed and could be, by name."""
    names = places.installed_generals()
    folders = [folder for folder in in_home(places) if folder.name not in names]
    return [manifests.read(folder / MANIFEST) for folder in folders if not any(_faults(folder))]


def missing_engine(places: Places, system: Config, manifest: Manifest) -> str | None:
    """Return what a general's engine lacks to work here; None when it lacks nothing."""
    if manifest.engine in wings.steps():
        return None
    try:
        prepare.choose_engine(here(places, system), manifest)
    except NeedsSetUp as error:
        return str(error)
    return None


def engine_of(places: Places, system: Config, manifest: Manifest) -> str:
    """Return which engine does a general's work here."""
    return prepare.engine_name(here(places, system), manifest)


@dataclass(frozen=True)
class Here:
    """What an engine is chosen by."""

    places: Places
    system: Config
    secrets: Mapping[str, str]


def here(places: Places, system: Config) -> Here:
    return Here(places, system, dotenv.secrets(places))


def install(places: Places, disk: Disk, package: Path) -> Manifest:
    """Copy a package to the home's generals/ unless it is there, and its manifest to config/generals/."""
    manifest = check(package)
    _copy_package(package, places.package(manifest.name))
    make_folder(places.manifests)
    if manifests.is_uninstalled(places, manifest.name):
        disk.remove(places.wanted(manifest.name))
    disk.rewrite(places.manifest(manifest.name), (package / MANIFEST).read_bytes())
    return manifest


def uninstall(places: Places, disk: Disk, name: str) -> None:
    """Delete the manifest from config/generals/, also one that was lost; the package stays."""
    if name not in (*places.installed_generals(), *manifests.lost(places)):
        raise NoSuchThing(what="installed general", name=name, hint=f"; `{home.command()} generals` lists them")
    make_folder(places.wanted_folder)
    disk.rewrite(places.wanted(name), f"{manifests.UNINSTALLED}\n".encode())
    disk.remove(places.manifest(name))


def _copy_package(package: Path, target: Path) -> None:
    if not (target.exists() and os.path.samefile(package, target)):
        make_folder(target)
        for source in contents(package):
            copy(source, target / source.relative_to(package))


def contents(folder: Path) -> Iterator[Path]:
    """Yield what a package is made of, folders before what is in them: no links, no secrets, no version control."""
    for path in sorted(folder.iterdir()):
        if path.name in LEFT_OUT or path.name.startswith(".env"):
            continue
        yield path
        if path.is_dir() and not path.is_symlink():
            yield from contents(path)


def in_home(places: Places) -> list[Path]:
    """Return the folders of the packages in a home, by name."""
    return sorted(path for path in places.packages.glob("gen-*") if path.is_dir())


def shipped_files() -> list[Path]:
    """Return the files of the packages that come along, by name: beside them a checkout holds its owner's."""
    packages = Places(find_data()).packages
    lines = (packages / VERSIONS).read_text("utf-8").splitlines()
    names = {line.split()[1] for line in lines if line and not line.startswith("#")}
    return sorted(path for name in names if (path := packages / name).is_file())


def shipped() -> list[Path]:
    """Return the folders of the packages that come along, by name."""
    packages = Places(find_data()).packages
    return sorted({packages / path.relative_to(packages).parts[0] for path in shipped_files()})


def copy(source: Path, target: Path) -> None:
    """Copy a file with its owner's mode; of a folder make an empty one. Both are ours alone."""
    if source.is_dir():
        make_folder(target)
    else:
        shutil.copyfile(source, target)
        target.chmod(stat.S_IMODE(source.stat().st_mode) & 0o700 | 0o600)


def install_defaults(places: Places, disk: Disk) -> list[str]:
    """Install the generals that every home begins with, once: one that was uninstalled stays so. Return their names."""
    new = [name for name in DEFAULTS if not _offer(places, name).exists()]
    for name in new:
        if name not in places.installed_generals():
            install(places, disk, places.package(name))
        _note_offer(places, disk, name)
    return new


def claimed_by_others(places: Places, manifest: Manifest) -> list[tuple[str, str]]:
    """Return what a manifest claims that an installed general of an earlier name has, as (claim, holder)."""
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
        value = manifests.ours(value)
        wrong = config.errors_in("manifest", value, lines, package / MANIFEST)
        yield from map(str, wrong)
        if isinstance(value, dict):
            engine = value.get("engine")
            if not any("schedules" in str(error.facts["key"]) for error in wrong):
                faults = _faults_of_schedules(value.get("schedules", []))
                yield from (str(config.error_at(package / MANIFEST, lines, value, *fault)) for fault in faults)
    except BadConfig as error:
        yield str(error)
    except FileNotFoundError:
        yield f"{package}: it has no {MANIFEST}; a package is a folder with a manifest.yaml and a prompt.md"
        return  # whatever it is, it may be large: nobody looks through it
    yield from (f"{package}: {fault}" for fault in _faults_of_files(package, engine))
    for path in contents(package):
        if path.is_symlink() or not (path.is_dir() or path.is_file()):
            yield f"{path}: neither a file nor a folder; a package is copied, so put a copy here instead of a link"


def _faults_of_schedules(schedules: Sequence[Mapping[str, Any]]) -> Iterator[tuple[tuple[str | int, ...], str]]:
    """Yield where and what is wrong in schedules that fit their schema."""
    from kingdom.court.rules.schedules import flaw

    names = [schedule["name"] for schedule in schedules]
    for number, schedule in enumerate(schedules):
        if schedule["name"] in names[:number]:
            yield ("schedules", number, "name"), f"{schedule['name']!r} is here a second time"
        if (wrong := flaw(schedule["cron"], schedule.get("timezone"))) is not None:
            yield ("schedules", number, wrong[0]), wrong[1]


def _faults_of_files(package: Path, engine: object) -> Iterator[str]:
    if not (package / "prompt.md").is_file():
        yield "it has no prompt.md, the prompt of its soldiers"
    run = package / PROGRAM
    if not run.is_file():
        if engine == "command" or run.exists():
            yield "its engine is `command`, and it has no executable `run`"
        return
    if not os.access(run, os.X_OK):
        yield f"its `run` is not executable; run `chmod +x {run}`"
    if (misfit := manifests.program_misfit(run)) is not None:
        yield misfit


def _note_offer(places: Places, disk: Disk, name: str) -> None:
    make_folder(_offer(places, name).parent)
    try:
        disk.create(_offer(places, name), b"")
    except Collision:
        return


def _offer(places: Places, name: str) -> Path:
    return places.own("cli") / f"offered-{name}"
