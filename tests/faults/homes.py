"""Fill homes as other programs would: plain dicts with only the required fields."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import yaml

from kingdom.base.disk.atomic import Disk, make_folder
from kingdom.base.disk.codec import to_json
from kingdom.base.home.places import Places
from tests.fixtures import WITHOUT_HALL

GENERAL = "gen-pr"
NOW = "2026-02-07T10:00:00Z"


def make(home: Path, *, config: dict[str, dict[str, Any]] | None = None) -> Places:
    """Make the folders of a home with one general and max_soldiers of twenty."""
    places = Places(home)
    home.chmod(0o700)
    for folder in places.folders():
        make_folder(folder)
    files = {"king": {"concurrency": {"max_soldiers": 20}}, **(config or {})}
    files["system"] = {**WITHOUT_HALL, **files.get("system", {})}
    files["general"] = {"trusted": [GENERAL], **files.get("general", {})}  # its tasks run on every machine
    for name, content in files.items():
        (places.config / f"{name}.yaml").write_text(yaml.safe_dump(content))
    install(home, GENERAL)
    return places


def install(home: Path, name: str, **fields: Any) -> None:
    manifest = {
        "name": name,
        "description": "looks at pull requests",
        "timeout_seconds": 60,
        "subscribes": ["github.pr.*"],
        **fields,
    }
    draft = Places(home).manifest(name).with_suffix(".new")
    draft.write_text(yaml.safe_dump(manifest))
    draft.replace(draft.with_suffix(".yaml"))  # in one step: a king at work may look at any moment


def write(path: Path, thing: dict[str, Any]) -> None:
    """Write a whole file, durable before the step begins."""
    make_folder(path.parent)
    Disk(path.parent).create(path, to_json(thing))


def put(home: Path, kind: str, state: str, *things: dict[str, Any]) -> None:
    for thing in things:
        write(Places(home).queue_file(kind, state, thing["id"]), thing)


def event(name: str, type: str = "github.pr.review_requested", **fields: Any) -> dict[str, Any]:
    return {
        "id": name,
        "type": type,
        "source": type.partition(".")[0],
        "repo": "acme/shop",
        "payload": {"subject_title": "Make it faster"},
        "created_at": NOW,
        **fields,
    }


def task(name: str, event_id: str, **fields: Any) -> dict[str, Any]:
    return {
        "id": name,
        "event_id": event_id,
        "target_general": GENERAL,
        "type": "github.pr.review_requested",
        "payload": {"subject_title": "Make it faster"},
        "created_at": NOW,
        "retry_count": 0,
        **fields,
    }


def message(name: str, **fields: Any) -> dict[str, Any]:
    return {
        "id": name,
        "type": "notification",
        "content": "[complete] all is well",
        "created_at": NOW,
        **fields,
    }


def order(name: str, **fields: Any) -> dict[str, Any]:
    return {"id": name, "action": "requeue", "target": "evt-x", "by": "owner", "created_at": NOW, **fields}
