"""The worker's state: log lines, and the snapshot that status, doctor and the gateway read."""

from __future__ import annotations

from collections.abc import Sequence

from kingdom.base.disk.codec import to_json
from kingdom.base.runtime.role import Services
from kingdom.base.times import stamp
from kingdom.hall.topics.base import TopicRecord, Topics, TopicsAway
from kingdom.hall.topics.names import MESSAGES
from kingdom.hall.worker.store import WorkerStore

WRITE_SECONDS = 1.0
IDLE_SECONDS = 30.0


class Vitals:
    """Counts, and tells each change of health once."""

    def __init__(self, services: Services, group: str) -> None:
        self._services = services
        self._path = services.places.worker_snapshot(services.name)
        self._group = group
        self._away = self._not_erased = ""
        self._written_at = 0.0
        self._said: dict[str, object] = {}
        self._counts = {"passed": 0, "stored": 0, "repeated": 0, "dead": 0, "gaps": 0}

    def away(self, why: str) -> None:
        """Say, once, that it waits for database or topics."""
        if not self._away:
            self._services.log.error(f"waits, and stores nothing: {why}")
        self._away = why
        self._say({"state": "waiting", "why": self._services.log.clean(why)})

    def well(self) -> None:
        if self._away:
            self._services.log.info("goes on: what it waited for is back")
        self._away = ""

    def not_erased(self, why: str) -> None:
        """Say, once for each reason, that texts of removed messages are still there."""
        if why != self._not_erased:
            self._services.log.warn(f"texts of removed messages are still in the topics, and are tried again: {why}")
        self._not_erased = why

    def gone(self, why: str) -> None:
        """Say that messages were removed before they were read."""
        self._counts["gaps"] += 1
        self._services.log.error(f"messages are lost: {why}")

    def committed(self, records: Sequence[TopicRecord], store: WorkerStore) -> None:
        """Count what was committed."""
        self._counts["passed"] += len(records)
        self._counts["stored"], self._counts["repeated"] = store.stored, store.repeated
        self._counts["dead"] += len(store.refused)
        for refused in store.refused:
            self._services.log.warn(f"put into the dead letters: {refused}")

    def write(self, topics: Topics, holds: bool) -> None:
        """Write the snapshot, at most once a second, and seldom while nothing changes."""
        now = self._services.monotonic()
        age = now - self._written_at
        changed = self._said != {"state": "working" if holds else "standing by", **self._counts}
        if age < WRITE_SECONDS or (not changed and age < IDLE_SECONDS):
            return
        state = {"state": "working" if holds else "standing by"}
        try:
            lag: int | None = topics.lag(self._group, MESSAGES)
        except TopicsAway:
            lag = None
        self._said = {**state, **self._counts}
        self._say({**state, "lag": lag})

    @property
    def seconds_to_write(self) -> float:
        """Seconds until the snapshot should be written again."""
        age = self._services.monotonic() - self._written_at
        return max(0.05, (WRITE_SECONDS if self._counts["passed"] != self._said.get("passed") else IDLE_SECONDS) - age)

    def _say(self, facts: dict[str, object]) -> None:
        self._written_at = self._services.monotonic()
        at = stamp(self._services.clock())
        self._services.unsynced.rewrite(self._path, to_json({"at": at, "group": self._group, **facts, **self._counts}))
