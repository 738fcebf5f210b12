"""Run a sentinel in a home with stand-ins of its services, and read what it leaves there."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from kingdom.base.disk.codec import read_json_or
from kingdom.base.home.places import Places
from kingdom.base.home.states import MOVES
from kingdom.base.runtime.role import Services
from kingdom.base.runtime.wake import Waker
from kingdom.court.sentinel.job import SentinelJob
from kingdom.demo.standins import github, jira
from tests.fixtures import Clock, services

SECRETS = {
    "GH_TOKEN": github.TOKEN,
    "JIRA_USER_EMAIL": jira.EMAIL,
    "JIRA_API_TOKEN": jira.TOKEN,
}
SECONDS = 20.0


class Monotonic:
    """A monotonic clock that stands still until a test moves it, together with the wall clock."""

    def __init__(self, clock: Clock) -> None:
        self.now = 1000.0
        self._clock = clock

    def __call__(self) -> float:
        return self.now

    def pass_(self, seconds: float) -> None:
        self.now += seconds
        self._clock.pass_(seconds)


class Sentinel:
    """One run of a sentinel. Another one on the same home is a restart."""

    def __init__(
        self, home: Path, clock: Clock, polling: Mapping[str, Any], secrets: Mapping[str, str] = SECRETS, **more: Any
    ) -> None:
        self.places = Places(home)
        self.clock = clock
        self.time = Monotonic(clock)
        given = services(home, "sentinel", clock, sentinel={"polling": dict(polling), **more})
        self.services: Services = replace(given, monotonic=self.time, secrets=secrets)
        self.job = SentinelJob(self.services)

    def settle(self) -> list[str]:
        """Run turns until it is idle, and return the IDs of all events, sorted."""
        self.turn_until(lambda: False)
        return self.events()

    def turn_until(self, enough: Callable[[], object]) -> None:
        """Run turns until it is idle or the condition holds, which leaves it in the middle like a kill."""
        waker = Waker(())
        waker.add_descriptor(self.services.alarm.fileno(), self.services.alarm.clear)
        try:
            for _ in range(200):
                turn = self.job.turn({})
                if enough() or (not turn.worked and not turn.busy):
                    return
                if not turn.worked:
                    waker.wait(SECONDS)
            raise AssertionError("it never comes to rest")
        finally:
            waker.close()
            self.services.log.flush()

    def look(self, after: float = 60.0) -> list[str]:
        """Move the clock, and let it look again."""
        self.time.pass_(after)
        return self.settle()

    def events(self) -> list[str]:
        return sorted(event["id"] for event in self.all())

    def all(self) -> list[dict[str, Any]]:
        paths = [path for state in MOVES["events"] for path in self.places.folder("events", state).glob("*.json")]
        return [json.loads(path.read_text()) for path in sorted(paths)]

    def types(self) -> list[str]:
        return sorted(event["type"] for event in self.all())

    def one(self) -> dict[str, Any]:
        (event,) = self.all()
        return event

    def said(self) -> str:
        """Return the lines of its log."""
        self.services.log.flush()
        path = self.places.role_log("sentinel")
        return path.read_text() if path.exists() else ""

    def state(self, name: str) -> dict[str, Any]:
        return read_json_or(self.places.own("sentinel") / f"{name}-state.json", {})

    def shows(self, name: str) -> dict[str, Any]:
        """Return the state that it reports for a watcher."""
        shown: dict[str, Any] = read_json_or(self.places.watchers, {})[name]
        return shown


def detected(home: Path) -> list[str]:
    """Return the IDs named in internal events."""
    lines = Places(home).events_log.read_text().splitlines()
    return [event["data"]["event_id"] for event in map(json.loads, lines) if event["type"] == "event.detected"]
