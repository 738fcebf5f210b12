"""`kingdom adopt`: copy the home, packages or prompts of another kingdom. The source is not changed."""

from __future__ import annotations

import filecmp
import stat
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import click

from kingdom.base.disk.atomic import make_folder
from kingdom.base.disk.codec import LARGEST, parse_json, read_bytes, read_json
from kingdom.base.disk.lock import is_locked
from kingdom.base.errors import BadHome, Exit, KingdomError, NoSuchThing
from kingdom.base.home import config, manifests
from kingdom.base.home.places import Places, check_name, find_data
from kingdom.base.home.states import MOVES
from kingdom.base.program import home
from kingdom.base.records import foreign, heartbeats
from kingdom.base.words import count, one_line
from kingdom.cli import packages
from kingdom.court.steward.base import launching

PETITIONING = "petitioning"
"""Where other kingdoms put events aside until a model has routed them."""
NAMED_SINGLY = 5
"""So many files of one kind are named; more of them are counted."""


class InUse(KingdomError):
    """{who} works in {where}; stop it before its home is taken over, or both would do the same work"""


class Unfit(KingdomError):
    """{why}"""


class Kind(NamedTuple):
    """Files of a home that are taken over as they are."""

    #: Which ones, as a pattern within a home.
    pattern: str
    #: Raises KingdomError for one that cannot be used.
    check: Callable[[Path], object]
    #: Names the folder that it goes to, when that is another one.
    goes_to: Callable[[Places], Path] | None = None


@dataclass(frozen=True)
class Copy:
    source: Path
    target: Path


@dataclass(frozen=True)
class AdoptionPlan:
    """What can be taken over, what is there already, and what cannot be taken, with the reason."""

    copies: list[Copy]
    kept: list[Copy]
    refused: list[str]


@click.command(short_help="Copy the home, the packages or the prompts of another kingdom.")
@click.argument("source", required=False, metavar="[FOLDER]")
@click.option("--yes", is_flag=True, help="Do it; without this, only print what would be done.")
def adopt(source: str | None, yes: bool) -> int:
    """Copy from FOLDER what another kingdom has left: a home, a general's package, or a folder of prompts.

    Without FOLDER it is this home itself, used by another kingdom before. Only missing files are copied; the source and
    existing files do not change. It can be repeated. Without --yes it only prints what would be done. Exit code 1 if
    something cannot be copied.
    """
    places = home.own()
    found = places.home if source is None else Path(source).expanduser().absolute()
    if not found.is_dir():
        raise NoSuchThing(what="folder", name=str(found), hint="; name a home, a package or a folder of prompts")
    with launching(places):
        plan = _plan(places, found)
        _print(places, plan, yes)
        if yes:
            _carry_out(places, plan)
    if plan.copies and not yes:
        print(f"Nothing was done yet: `{home.command()} adopt{f' {source}' if source else ''} --yes` does it.")
    return Exit.FAILED if plan.refused else Exit.DONE


def _plan(places: Places, found: Path) -> AdoptionPlan:
    if (found / packages.MANIFEST).is_file():
        return _of_package(places, found)
    if (found / places.config.name).is_dir() or (found / places.queue.name).is_dir():
        return _of_home(places, Places(found))
    prompts = sorted(found.glob("*.md"))
    if not prompts:
        raise BadHome(path=found, why="it is no home, no package (manifest.yaml) and no folder of prompts (*.md)")
    return _of_prompts(places, prompts)


def _of_package(places: Places, package: Path) -> AdoptionPlan:
    try:
        manifest = packages.check(package)
    except KingdomError as error:
        return AdoptionPlan([], [], str(error).splitlines())
    files = [path for path in packages.contents(package) if path.is_file()]
    copies = [Copy(path, places.package(manifest.name) / path.relative_to(package)) for path in files]
    return _sorted(places, [*copies, Copy(package / packages.MANIFEST, places.manifest(manifest.name))], [])


def _of_prompts(places: Places, prompts: list[Path]) -> AdoptionPlan:
    """Plan to take prompts that are called after a general: NAME.md, NAME-ACTION.md, NAME-ENGINE.md."""
    names = places.installed_generals()
    mine = [path for path in prompts if any(path.stem == name or path.stem.startswith(f"{name}-") for name in names)]
    refused = [
        f"{path}: no installed general is called so; `{home.command()} generals` lists them"
        for path in prompts
        if path not in mine
    ]
    return _sorted(places, [Copy(path, places.extras("templates") / path.name) for path in mine], refused)


def _of_home(places: Places, other: Places) -> AdoptionPlan:
    is_itself = other.home.samefile(places.home)
    if not is_itself:
        _refuse_if_at_work(places, other)
    kinds = [kind for kind in _kinds(other) if not is_itself or kind.goes_to is not None]
    copies: list[Copy] = []
    refused: list[str] = []
    for kind in kinds:
        for path in sorted(other.home.glob(kind.pattern)):
            if path.is_symlink() or not path.is_file():
                continue
            try:
                kind.check(path)
            except KingdomError as error:
                refused.append(_reason(path, error))
                continue
            folder = kind.goes_to(places) if kind.goes_to else places.home / path.parent.relative_to(other.home)
            copies.append(Copy(path, folder / path.name))
    return _sorted(places, copies, refused)


def _reason(path: Path, error: KingdomError) -> str:
    said = str(error)
    return said if str(path) in said else f"{path}: {said}"


def _kinds(other: Places) -> Iterator[Kind]:
    """Yield what is taken of a home. Of a home that is its own, only what has to go elsewhere."""
    config_, generals, state = other.config.name, other.packages.name, other.state.name
    events = f"{other.queue.name}/events"
    yield Kind(f"{events}/{PETITIONING}/[!.]*.json", _check_event, lambda places: places.folder("events", "pending"))
    yield Kind(f"{config_}/*.yaml", config.read_yaml)
    yield Kind(f"{config_}/*.md", _check_text)
    yield Kind(f"{config_}/generals/*.yaml", manifests.read)
    yield Kind(f"{generals}/gen-*/**/*", _check_size)
    for extras in ("templates/*.md", "agents/*/**/*", "skills/*/**/*", "memory/**/*.md"):
        yield Kind(extras, _check_text)
    for kind, states in MOVES.items():
        for name in states:
            check = _check_event if kind == "events" else read_json
            yield Kind(f"{other.queue.name}/{kind}/{name}/[!.]*.json", check)
    for name in ("results/*", "king/*-seq", "sentinel/seen/*"):
        yield Kind(f"{state}/{name}", _check_size)
    for name in ("sentinel/*-state.json", "envoy/*.json"):
        yield Kind(f"{state}/{name}", _check_json)
    yield Kind(other.env_file.name, _check_size)


def _refuse_if_at_work(places: Places, other: Places) -> None:
    for there in (places, other):
        threshold = home.system(there)["heartbeat"]["threshold_seconds"]
        for folder in sorted(there.state.glob("*/")):
            age = heartbeats.foreign_age(there, folder.name, time.time())
            if is_locked(folder / "lock") or (age is not None and age < threshold):
                raise InUse(who=folder.name, where=there.home)


def _sorted(places: Places, copies: list[Copy], refused: list[str]) -> AdoptionPlan:
    """Return what is to be copied and what is not, because this home has it."""
    free: list[Copy] = []
    kept: list[Copy] = []
    for copy in copies:
        (free if _is_free(places, copy.target) else kept).append(copy)
    return AdoptionPlan(free, kept, refused)


def _is_free(places: Places, target: Path) -> bool:
    """Return whether nothing of ours is in the way: not the default, and in a queue no state of the same thing."""
    for kind, states in MOVES.items():
        if any(target.parent == places.folder(kind, state) for state in states):
            return not any((places.folder(kind, state) / target.name).exists() for state in states)
    return not target.exists() or _is_default(places, target)


def _is_default(places: Places, target: Path) -> bool:
    default = Places(find_data()).default_config / target.name
    return target.parent == places.config and default.is_file() and default.read_bytes() == target.read_bytes()


def _carry_out(places: Places, plan: AdoptionPlan) -> None:
    """Copy, each file whole or not at all. What an earlier try has copied is no longer in the plan."""
    disk = home.disk(places)
    for copy in plan.copies:
        make_folder(copy.target.parent)
        write = disk.rewrite if _is_default(places, copy.target) else disk.create
        write(copy.target, read_bytes(copy.source))
        if copy.source.stat().st_mode & stat.S_IXUSR:
            copy.target.chmod(0o700)


def _print(places: Places, plan: AdoptionPlan, yes: bool) -> None:
    verb = "take" if yes else "would take"
    for (source, target), copies in _by_folder(plan.copies).items():
        if len(copies) > NAMED_SINGLY:
            print(f"{verb} {count(len(copies), 'file')} of {source} → {_within(places, target)}/")
        else:
            print(*(f"{verb} {copy.source} → {_within(places, copy.target)}" for copy in copies), sep="\n")
    for copy in plan.kept:
        if places.queue not in copy.target.parents and not filecmp.cmp(copy.source, copy.target, shallow=False):
            print(f"keep {_within(places, copy.target)}: it differs from {copy.source}")
    print(*(f"REFUSED {one_line(why, 400)}" for why in plan.refused), sep="\n", end="\n" * bool(plan.refused))
    there = f", {count(len(plan.kept), 'is', 'are')} here already" if plan.kept else ""
    print(f"{count(len(plan.copies), 'file')} to take{there}, {len(plan.refused)} refused.")


def _by_folder(copies: list[Copy]) -> dict[tuple[Path, Path], list[Copy]]:
    found: dict[tuple[Path, Path], list[Copy]] = {}
    for copy in copies:
        found.setdefault((copy.source.parent, copy.target.parent), []).append(copy)
    return found


def _within(places: Places, path: Path) -> Path:
    return path.relative_to(places.home)


def _check_event(path: Path) -> None:
    event = foreign.checked("event", read_json(path))
    check_name("event", event["id"])
    if f"{event['id']}.json" != path.name:
        raise Unfit(why=f"its name is not its id, {event['id']}")


def _check_json(path: Path) -> None:
    """Check a file of state, which may be a list as well."""
    try:
        parse_json(read_bytes(path))
    except ValueError as error:
        raise Unfit(why=str(error)) from None


def _check_text(path: Path) -> None:
    try:
        read_bytes(path).decode("utf-8")
    except UnicodeDecodeError as error:
        raise Unfit(why=f"not UTF-8 at byte {error.start}") from None


def _check_size(path: Path) -> None:
    if path.stat().st_size > LARGEST:
        raise Unfit(why=f"larger than {LARGEST} bytes")
