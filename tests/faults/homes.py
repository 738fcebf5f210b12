"""Fill homes as other programs would: plain dicts with only the required fields."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from kingdom.base.disk.atomic import Disk, make_folder
from kingdom.base.disk.codec import to_json
from kingdom.base.home.places import Places
from tests import fixtures
from tests.fixtures import MORNING as NOW

GENERAL = "gen-pr"
REVIEW = {"repo": "acme/shop", "payload": {"subject_title": "Make it faster"}}


def make(home: Path, *, config: dict[str, dict[str, Any]] | None = None) -> Places:
    """Make the folders of a home with one general and max_soldiers of twenty."""
    home.chmod(0o700)
    files = {"king": {"concurrency": {"max_soldiers": 20}}, "system": {}, **(config or {})}
    files["general"] = {"trusted": [GENERAL], **files.get("general", {})}  # its tasks run on every machine
    places = fixtures.founded(home, **files)
    install(home, GENERAL)
    return places


def install(home: Path, name: str, **fields: Any) -> None:
    fixtures.install(home, name, **{"description": "looks at pull requests", "subscribes": ["github.pr.*"], **fields})


def write(path: Path, thing: dict[str, Any]) -> None:
    """Write a whole file, durable before the step begins."""
    make_folder(path.parent)
    Disk(path.parent).create(path, to_json(thing))


def put(home: Path, kind: str, state: str, *things: dict[str, Any]) -> None:
    for thing in things:
        write(Places(home).queue_file(kind, state, thing["id"]), thing)


def event(name: str, type: str = "github.pr.review_requested", **fields: Any) -> dict[str, Any]:
    return fixtures.event(name, type, **{**REVIEW, **fields})


def task(name: str, event_id: str, **fields: Any) -> dict[str, Any]:
    return fixtures.task(name, event_id=event_id, **{"payload": REVIEW["payload"], "retry_count": 0, **fields})


def message(name: str, **fields: Any) -> dict[str, Any]:
    return fixtures.message(name, **{"content": "[complete] all is well", **fields})


def order(name: str, **fields: Any) -> dict[str, Any]:
    return {"id": name, "action": "requeue", "target": "evt-x", "by": "owner", "created_at": NOW, **fields}
