"""Run an envoy in a home, and read what it leaves there."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, NamedTuple

from kingdom.base.disk.codec import read_json_or
from kingdom.base.home.places import Places
from kingdom.base.runtime.role import Services
from kingdom.court.envoy.job import EnvoyJob
from tests.fixtures import Clock, message, put, services

TASK = "task-20260207-001"


class Envoy(NamedTuple):
    services: Services
    job: EnvoyJob


def settle(home: Path, clock: Clock, envoy: Envoy | None = None) -> Envoy:
    """Run turns of a new or given envoy until nothing is left to do, and return it."""
    if envoy is None:
        given = services(home, "envoy", clock)
        envoy = Envoy(given, EnvoyJob(given))
    for _ in range(100):
        if not envoy.job.turn(None).worked:
            break
    else:
        raise AssertionError("it never comes to rest")
    envoy.services.log.flush()
    return envoy


def turn(envoy: Envoy, turns: int = 1) -> None:
    """Run a few turns."""
    for _ in range(turns):
        envoy.job.turn(None)


def transcript(home: Path) -> list[dict[str, Any]]:
    days = sorted((Places(home).own("envoy") / "console").glob("*.jsonl"))
    return [json.loads(line) for day in days for line in day.read_text().splitlines()]


def posted(home: Path) -> list[str]:
    """Return the IDs of the messages on the console, in order."""
    return [line["letter"] for line in transcript(home)]


def traces(home: Path) -> list[str]:
    """Return the intents and receipts that are left."""
    own = Places(home).own("envoy")
    return sorted(path.name for folder in ("intents", "receipts") for path in (own / folder).iterdir())


def open_thread(home: Path, name: str = "msg-1", task: str = TASK, **fields: Any) -> None:
    put(home, "messages", "pending", **message(name, "thread_start", task_id=task, channel="dev-eddy", **fields))


def threads(home: Path) -> dict[str, Any]:
    return read_json_or(Places(home).own("envoy") / "thread-mappings.json", {})
