"""Read the manifests of the installed generals: what each one does, when, and within which limits."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from kingdom.base.disk.atomic import Disk, Version, version
from kingdom.base.disk.codec import read_json_or, text_of, to_json
from kingdom.base.errors import BadConfig, BadName, NoSuchThing
from kingdom.base.home import config
from kingdom.base.home.places import Places, check_name

FOREIGN_KEYS = ("mode", "harness", "retry")
"""Keys of other kingdoms' manifests."""
EMPTY_IS_NONE = ("repo", "default_repo", "engine", "timezone")
"""Keys whose empty text means that nothing is named."""
NAME = re.compile(r"gen-[a-z][a-z0-9-]*")
UNINSTALLED = "uninstalled"
"""What `kingdom generals uninstall` notes of a general, whose accepted manifest is then forgotten."""
Versions = dict[str, Version]
FIRST_LINE_BYTES = 256
"""The kernel reads so much of it."""


@dataclass(frozen=True, slots=True)
class Schedule:
    """Runs of one general at set times."""

    #: Unique within its manifest.
    name: str
    #: Five fields: minute hour day month weekday.
    cron: str
    #: The type of its tasks, and what they get as payload.
    task_type: str
    payload: Mapping[str, Any]
    #: None: the general's default repository.
    repo: str | None
    #: What becomes of minutes that were missed: skip, latest or all.
    catch_up: str
    #: None: that of system.yaml.
    timezone: str | None


@dataclass(frozen=True, slots=True)
class Manifest:
    """What a general does, when, and within which limits."""

    name: str
    #: One line for people.
    description: str
    #: For one run of a soldier.
    timeout_seconds: int
    #: Types of events, also with a wildcard: `github.pr.*`.
    subscribes: tuple[str, ...]
    schedules: tuple[Schedule, ...]
    #: None: the default engine of system.yaml.
    engine: str | None
    #: Its soldiers ask a model. What needs none is served at any health of the machine.
    needs_model: bool
    #: If the default engine is not among them, the first is used.
    supported_engines: tuple[str, ...]
    #: Words in a person's message that select this general.
    keywords: tuple[str, ...]
    #: For events that name no repository.
    default_repo: str | None
    #: Plug-ins of Claude Code: `name` or `name@market`.
    cc_plugins: tuple[str, ...]
    #: At the same time; None: only the limit of king.yaml.
    max_soldiers: int | None
    #: Names of the variables that its soldiers get.
    env: tuple[str, ...]
    #: Memory, processor time, processes and cost of one task.
    limits: Mapping[str, Any]
    #: Whether its soldiers run in a sandbox.
    sandbox: bool
    #: Keys that other kingdoms use and this one does not, each as a sentence that names its line.
    warnings: tuple[str, ...] = ()


class InForce(NamedTuple):
    """By which manifests work is given out: one that cannot be read now holds as it was last accepted."""

    #: By name.
    manifests: list[Manifest]
    #: The texts of those that could be read, by name.
    texts: dict[str, str]
    #: What is wrong with the others, by name.
    broken: dict[str, BadConfig]
    #: Those of which nothing was accepted before, so that nobody knows what they would take.
    unknown: frozenset[str]


def read(path: Path) -> Manifest:
    """Return one manifest; BadConfig names file, line and field."""
    return _parsed(config.read_text(path), path)


def _parsed(text: str, path: Path) -> Manifest:
    value, lines = config.from_yaml(text, path)
    foreign = [key for key in FOREIGN_KEYS if isinstance(value, dict) and key in value]
    fields = config.validated("manifest", ours(value), lines, path)
    sandbox = fields.pop("sandbox") in ("on", True)
    if fields["needs_model"] is None:
        fields["needs_model"] = fields["engine"] != "command"
    schedules = tuple(Schedule(**schedule) for schedule in config.frozen(fields.pop("schedules")))
    warnings = tuple(f"{path}:{lines.get((key,), 1)}: {key} has no effect here" for key in foreign)
    return Manifest(**config.frozen(fields), schedules=schedules, sandbox=sandbox, warnings=warnings)


def ours(value: Any) -> Any:
    """Return a manifest's content as our schema knows it: other kingdoms' keys left out, empty ones too."""
    if not isinstance(value, dict):
        return value
    kept = {key: part for key, part in value.items() if key not in FOREIGN_KEYS and not _is_none(key, part)}
    if isinstance(schedules := kept.get("schedules"), list):
        kept["schedules"] = [
            {key: part for key, part in schedule.items() if not _is_none(key, part)}
            if isinstance(schedule, dict)
            else schedule
            for schedule in schedules
        ]
    return kept


def _is_none(key: str, part: Any) -> bool:
    return part is None or (part == "" and key in EMPTY_IS_NONE)


def of(places: Places, name: str) -> Manifest:
    """Return an installed general's manifest; NoSuchThing when it is not installed, BadConfig when it is another's."""
    path = places.manifest(name)
    try:
        return _named(config.read_text(path), path)
    except FileNotFoundError:
        raise NoSuchThing(what="general", name=name, hint="; it is not installed") from None


def _named(text: str, path: Path) -> Manifest:
    manifest = _parsed(text, path)
    if manifest.name != path.stem:
        why = f"says {manifest.name!r}, but the file is called {path.name}; give both the same name"
        raise BadConfig(path=path, line="", key="name", why=why)
    return manifest


def installed(places: Places) -> tuple[list[Manifest], list[BadConfig]]:
    """Return all manifests that are installed, by name, and the errors of those that cannot be used."""
    good: list[Manifest] = []
    bad: list[BadConfig] = []
    for path in sorted(places.manifests.glob("[!.]*.yaml")):
        try:
            good.append(of(places, path.stem))
        except BadConfig as error:
            bad.append(error)
        except BadName:
            bad.append(BadConfig(path=path, line="", key="the file", why="its name cannot be a general's"))
        except NoSuchThing:
            continue
    return good, [*bad, *(_gone(places.manifest(name)) for name in lost(places))]


def in_force(places: Places, is_open: Callable[[Path], bool | None] = lambda path: None) -> InForce:
    """Return the manifests in force. A file is not read while `is_open` says that somebody writes to it."""
    found = InForce([], {}, {}, frozenset())
    unknown = set()
    for name in sorted({*_files(places), *lost(places)}):
        path = places.manifests / f"{name}.yaml"
        try:
            check_name("general", name)
            text = _settled_text(path, is_open)
            manifest: Manifest | None = _named(text, path)
            found.texts[name] = text
        except BadConfig as error:
            found.broken[name] = error
            manifest = _accepted(places, name)
        except BadName:
            found.broken[name] = BadConfig(path=path, line="", key="the file", why="its name cannot be a general's")
            manifest = None
        if manifest is not None:
            found.manifests.append(manifest)
        elif NAME.fullmatch(name):
            unknown.add(name)
    return found._replace(unknown=frozenset(unknown))


def _settled_text(path: Path, is_open: Callable[[Path], bool | None]) -> str:
    """Return the text of a file that nobody has been writing meanwhile: half a manifest may be a valid one."""
    before = version(path)
    try:
        text = config.read_text(path)
    except FileNotFoundError:
        raise _gone(path) from None
    if is_open(path) or version(path) != before:
        raise BadConfig(path=path, line="", key="the file", why="is being written")
    return text


def _gone(path: Path) -> BadConfig:
    why = f"is gone; put it back, or run `kingdom generals uninstall {path.stem}`"
    return BadConfig(path=path, line="", key="the file", why=why)


def _accepted(places: Places, name: str) -> Manifest | None:
    try:
        return _named(config.read_text(accepted(places, name)), places.manifest(name))
    except (FileNotFoundError, BadConfig):
        return None


def accepted(places: Places, name: str) -> Path:
    """Return the king's copy of the manifest that he accepted last."""
    return places.accepted("king") / f"{check_name('general', name)}.yaml"


def lost(places: Places) -> list[str]:
    """Return the generals that were accepted, whose manifest is gone and who were not uninstalled."""
    copies = {path.stem for path in places.accepted("king").glob("[!.]*.yaml")}
    return sorted(name for name in copies - _files(places) if not is_uninstalled(places, name))


def is_uninstalled(places: Places, name: str) -> bool:
    """Return whether a general was uninstalled rather than lost."""
    return not places.manifest(name).exists() and _says_uninstalled(places.wanted(name))


def outdated_notes(places: Places, names: Iterable[str]) -> list[Path]:
    """Return the notes that these were uninstalled, of those whose manifests have been put back since.

    The note comes first and the manifest goes then, so one that is older than its note is about to go.
    """
    return [note for name in names if _says_uninstalled(note := places.wanted(name)) and _is_newer(places, name, note)]


def _says_uninstalled(note: Path) -> bool:
    return text_of(note, 64).strip() == UNINSTALLED


def _is_newer(places: Places, name: str, note: Path) -> bool:
    with suppress(OSError):
        return os.stat(places.manifest(name)).st_ctime_ns > os.stat(note).st_mtime_ns
    return False


def _files(places: Places) -> set[str]:
    return {path.stem for path in places.manifests.glob("[!.]*.yaml")}


def program_misfit(program: Path) -> str | None:
    """Return why a general's executable could not be started, as far as its first line tells."""
    with open(program, "rb") as file:
        first, _, _ = file.read(FIRST_LINE_BYTES).partition(b"\n")
    words = first.removeprefix(b"#!").decode("utf-8", "replace").split()
    if not first.startswith(b"#!") or not words:
        return None
    if first.endswith(b"\r"):
        return f"{program}:1 ends as on Windows (CR LF), so its interpreter {words[0]} is not found"
    if words[0].startswith("/") and not os.path.exists(words[0]):
        return f"{program}:1 begins with `#!{words[0]}`, and there is no {words[0]} here"
    return None


def versions(places: Places) -> Versions:
    """Return by general what changes when its manifest does."""
    return {path.stem: seen for path in places.manifests.glob("[!.]*.yaml") if (seen := version(path))}


def note_in_use(places: Places, disk: Disk, role: str, seen: Versions) -> None:
    """Note by which manifests a role works from now on, for whoever has changed one and waits until it holds."""
    disk.rewrite(places.manifests_in_use(role), to_json(seen))


def is_in_use(places: Places, role: str, name: str) -> bool:
    """Return whether a role has taken a general's manifest over as it is now."""
    return bool(read_json_or(places.manifests_in_use(role), {}).get(name) == version(places.manifest(name)))
