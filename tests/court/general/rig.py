"""One home, one general that can be restarted, and real soldiers."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from kingdom.base.disk.codec import read_json
from kingdom.base.home.places import Places
from kingdom.base.records.soldiers import Started
from kingdom.base.runtime.role import Services
from kingdom.court.general.job import GeneralJob
from kingdom.court.soldiers.handle import SoldierHandle
from tests.fixtures import Clock, install, services, write
from tests.waiting import wait_until

TASK = "task-20260207-001"
GENERAL = "gen-pr"
SOON = 30.0
SLEEPS = "sleep 300 & echo $! >>$KINGDOM_HOME/children; wait"
"""An engine that runs until it is ended, and so does its child."""


class GeneralRig:
    """One home and one general that can be restarted."""

    def __init__(self, home: Path, clock: Clock) -> None:
        self.home, self.clock, self.places = home, clock, Places(home)
        king = {"retry": {"max_attempts": 2, "backoff_seconds": 60}}
        services(home, "king", clock, king=king)
        self.manifest()
        package = self.places.package(GENERAL)
        package.mkdir(parents=True)
        (package / "prompt.md").write_text("Look at {{TASK_TYPE}}.\n")
        self.services: Services
        self.job: GeneralJob
        self.restart()

    def manifest(self, **fields: Any) -> None:
        install(self.home, GENERAL, **{"sandbox": "off", "timeout_seconds": 30, **fields})

    def runs(self, script: str) -> None:
        """Set what the soldiers' engine does. Each run of it adds a line to `lives`."""
        program = self.places.package(GENERAL) / "run"
        program.write_text(f"#!/bin/sh\necho $$ >>{self.home}/lives\n{script}\n")
        program.chmod(0o755)

    def restart(self, given: Services | None = None) -> GeneralJob:
        """Restart the general with these services."""
        self.end()
        self.services = given or services(self.home, GENERAL, self.clock)
        self.job = GeneralJob(self.services)
        return self.job

    def end(self) -> None:
        """Stop the general."""
        if hasattr(self, "job"):
            self.job.close()
            for child in self.job._starter._children:
                child.wait(SOON)

    def until(self, seen: Callable[[], object], what: str) -> None:
        def turn_and_look() -> object:
            self.job.turn(None)
            return seen()

        folders = (self.places.results, self.places.soldiers, self.home)
        wait_until(turn_and_look, SOON, what, folders)
        self.services.log.flush()

    def result(self, name: str = TASK) -> dict[str, Any]:
        self.until(self.places.result(name).exists, f"the result of {name}")
        return read_json(self.places.result(name))

    def engines(self) -> list[int]:
        path = self.home / "lives"
        return [int(line) for line in path.read_text().split()] if path.exists() else []

    def engine(self, count: int = 1) -> int:
        """The engine's pid, once so many have lived."""
        self.until(lambda: len(self.engines()) >= count, f"soldier {count}")
        return self.engines()[count - 1]

    def soldier(self, name: str = TASK) -> SoldierHandle:
        return SoldierHandle(self.places, GENERAL, name)

    def started(self, name: str = TASK) -> Started | None:
        return self.soldier(name).look(0).started

    def traces(self) -> list[str]:
        """Traces of soldiers."""
        folders = [*self.places.soldiers.iterdir(), *self.soldier().control_folder.parent.iterdir()]
        rows = json.loads(self.places.sessions.read_text()) if self.places.sessions.exists() else []
        raw = [path.name for path in self.places.results.glob("*-raw.json")]
        return [*(path.name for path in folders if not path.name.startswith(".")), *map(str, rows), *raw]

    def events(self) -> list[str]:
        return [json.loads(line)["type"] for line in self.places.events_log.read_text().splitlines()]

    def told(self, event: str) -> list[dict[str, Any]]:
        """Return the data of each such event."""
        every = [json.loads(line) for line in self.places.events_log.read_text().splitlines()]
        return [about["data"] for about in every if about["type"] == event]

    def log(self) -> list[str]:
        """Return the lines of its log so far, each with its level."""
        self.services.log.flush()
        lines = self.places.role_log(GENERAL).read_text().splitlines()
        return [" ".join(line.split(" ", 1)[1].replace(f" {GENERAL}:", "").split()) for line in lines]


@contextmanager
def unwritable(general: GeneralRig) -> Iterator[None]:
    """While it lasts no file of the general's can be written: its drafts have no folder. OSError is what follows."""
    scratch = general.places.scratch(GENERAL)
    aside = scratch.rename(scratch.with_name("aside"))
    scratch.write_text("no folder")
    with pytest.raises(NotADirectoryError):
        yield
    scratch.unlink()
    aside.rename(scratch)


def started_ago(general: GeneralRig, seconds: float) -> None:
    """As if the soldier had started so long ago."""
    started = general.started()
    assert started is not None
    assert started.begun is not None
    path = general.soldier().control_folder / "started"
    write(path, {**read_json(path), "begun": started.begun - seconds})


def says(**fields: Any) -> str:
    return f"cat >$KINGDOM_RESULT_PATH <<'END'\n{json.dumps({'task_id': TASK, **fields})}\nEND"
