"""A home, a clock that tests set, and the services of a role in it: every test of a role begins with them."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Mapping
from datetime import datetime
from pathlib import Path
from typing import Any

import yaml

from kingdom.base.disk.atomic import Disk, make_folder
from kingdom.base.disk.codec import read_json, to_json
from kingdom.base.home import config as configuration
from kingdom.base.home import dotenv
from kingdom.base.home.places import Places
from kingdom.base.log import Log
from kingdom.base.records.queues import Queues
from kingdom.base.runtime.role import Services
from kingdom.base.times import moment

CONFIGURED_BY = {"gateway": "hall", "worker": "hall"}
WITHOUT_HALL = {"roles": {"gateway": False, "worker": False}}
MORNING = "2026-02-07T10:00:00Z"


def content(path: Path) -> bytes:
    """Return what stands in a file of a home at work, where it may be gone by now."""
    try:
        return path.read_bytes()
    except FileNotFoundError:
        return b""


class Clock:
    """A clock that stands still until a test moves it."""

    def __init__(self, at: str = MORNING) -> None:
        self.now = moment(at)

    def __call__(self) -> float:
        return self.now

    def set(self, at: str | datetime) -> None:
        self.now = at.timestamp() if isinstance(at, datetime) else moment(at)

    def pass_(self, seconds: float) -> None:
        self.now += seconds


def services(home: Path, name: str, clock: Clock, **files: Mapping[str, Any]) -> Services:
    """Return what `role.run` passes to a role. `files` are written as `config/<name>.yaml` first."""
    places = founded(home, **files)
    system = configuration.load(places, "system")
    own = configuration.load(places, CONFIGURED_BY.get(name, "general" if name.startswith("gen-") else name))
    disk = Disk(places.scratch(name), durability="process")
    unsynced = Disk(places.scratch(name), durability="process")
    make_folder(places.scratch(name))
    log = Log(places, name, unsynced, clock)
    queues, secrets = Queues(places, disk, log, clock), dotenv.secrets(places)
    return Services(name, places, disk, unsynced, queues, log, clock, system, own, secrets=secrets)


def founded(home: Path, **files: Mapping[str, Any]) -> Places:
    """Make a home without a hall, whose roles would need time and a port, unless its system.yaml says otherwise."""
    places = Places(home)
    for folder in places.folders():
        make_folder(folder)
    if "system" in files or not (places.config / "system.yaml").exists():
        files = {**files, "system": {**WITHOUT_HALL, **files.get("system", {})}}
    for name, content in files.items():
        (places.config / f"{name}.yaml").write_text(yaml.safe_dump(dict(content), allow_unicode=True))
    return places


_opened: list[str] | None = None


def watched(act: Callable[[], object]) -> list[str]:
    """The JSON and YAML files that are opened for reading while this runs, in order, each with its folder's name."""
    global _opened
    if not _hooked:
        _hooked.append(True)
        sys.addaudithook(_note_open)
    _opened = []
    try:
        act()
        return _opened
    finally:
        _opened = None


_hooked: list[bool] = []


def _note_open(name: str, arguments: tuple[Any, ...]) -> None:
    if _opened is None or name != "open" or not isinstance(arguments[0], str | bytes | Path):
        return
    folder, _, file = os.fsdecode(arguments[0]).rpartition("/")
    is_read = not (arguments[2] or 0) & os.O_ACCMODE
    if is_read and file.endswith((".json", ".yaml")) and not file.startswith("."):
        _opened.append(f"{os.path.basename(folder)}/{file}")


def install(home: Path, name: str, /, **fields: Any) -> None:
    """A general's manifest."""
    manifest = {"name": name, "description": "a general for tests", "timeout_seconds": 60, **fields}
    path = Places(home).manifest(name)
    draft = path.with_name(f".{path.name}")
    draft.write_text(yaml.safe_dump(manifest, allow_unicode=True))
    os.replace(draft, path)


def beats(home: Path, *generals: str) -> None:
    """Let generals have run until now: their tasks leave room to others only while they run."""
    for general in generals:
        make_folder(Places(home).own(general))
        Places(home).heartbeat(general).write_text('{"pid": 0, "seq": 1, "state": "stopped"}\n')


def uninstall(home: Path, name: str) -> None:
    """Remove a general's manifest as the command line does."""
    Places(home).wanted(name).write_text("uninstalled\n")
    Places(home).manifest(name).unlink()


def put(home: Path, kind: str, state: str, **thing: Any) -> Path:
    """Write a file as another program would."""
    path = Places(home).folder(kind, state) / f"{thing['id']}.json"
    return write(path, thing)


def write(path: Path, thing: Mapping[str, Any]) -> Path:
    draft = path.with_name(f".{path.name}")
    draft.write_bytes(to_json(thing))
    os.replace(draft, path)
    return path


def here(home: Path, kind: str, state: str) -> list[str]:
    """Return the IDs in a queue's folder."""
    return sorted(path.stem for path in Places(home).folder(kind, state).glob("*.json"))


def read(home: Path, kind: str, state: str, name: str) -> dict[str, Any]:
    return read_json(Places(home).folder(kind, state) / f"{name}.json")


def all_of(home: Path, kind: str, state: str) -> list[dict[str, Any]]:
    return [read(home, kind, state, name) for name in here(home, kind, state)]


def event(name: str = "evt-1", type: str = "github.pr.review_requested", **fields: Any) -> dict[str, Any]:
    source = type.partition(".")[0]
    return {"id": name, "type": type, "source": source, "payload": {}, "created_at": MORNING, **fields}


def task(name: str = "task-20260207-001", general: str = "gen-pr", **fields: Any) -> dict[str, Any]:
    plain = {"event_id": "evt-1", "type": "github.pr.review_requested", "payload": {}, "created_at": MORNING}
    return {"id": name, "target_general": general, **plain, **fields}


def message(name: str = "msg-1", type: str = "notification", **fields: Any) -> dict[str, Any]:
    return {"id": name, "type": type, "content": f"content of {name}", "created_at": MORNING, **fields}
