"""The sentinel's work: give each watcher its turn, and show how they are."""

from __future__ import annotations

from pathlib import Path

from kingdom.base.disk.codec import to_json
from kingdom.base.runtime.role import Services, Turn
from kingdom.court.sentinel.breaker import Breaker
from kingdom.court.sentinel.seen import SeenEvents
from kingdom.court.sentinel.watch import WatcherTurns
from kingdom.court.sentinel.watchers import WATCHERS

LONGEST_WAIT = 3600.0


class SentinelJob:
    def __init__(self, services: Services) -> None:
        self._breakers = {name: Breaker(services.config["breaker"]) for name in WATCHERS}
        self._reported: dict[str, object] = {}
        self._said_off: dict[str, str] = {}
        self._begin(services)

    def folders(self) -> dict[Path, tuple[str, ...]]:
        return {folder: () for watch in self._watches for folder in watch.folders}

    def turn(self, arrivals: dict[Path, list[str]] | None) -> Turn:
        for watch in self._watches:
            if watch.folders and (arrivals is None or not arrivals.keys().isdisjoint(watch.folders)):
                watch.look_soon()
        worked = [watch.turn() for watch in self._watches]
        self._show()
        now = self._services.monotonic()
        due = min((watch.due for watch in self._watches if not watch.off), default=now + LONGEST_WAIT)
        busy = any(watch.is_busy for watch in self._watches)
        return Turn(any(worked), wait=max(0.0, due - now), busy=busy)

    def reload(self, services: Services) -> None:
        """Begin anew with what is in the files, as a new process would; what has been fetched is fetched again."""
        before = self._watches
        for breaker in self._breakers.values():
            breaker.configure(services.config["breaker"])
        self._begin(services)
        for watch in before:
            watch.close()

    def close(self) -> None:
        for watch in self._watches:
            watch.close()

    def _begin(self, services: Services) -> None:
        self._services = services
        seen = SeenEvents(services)
        self._watches = [WatcherTurns(name, services, seen, self._breakers[name]) for name in WATCHERS]
        for watch in self._watches:
            if watch.off and self._said_off.get(watch.name) != watch.off:
                services.log.info(f"{watch.name} is off: {watch.off}")
            self._said_off[watch.name] = watch.off

    def _show(self) -> None:
        """Write how the watchers are, when that has changed."""
        report = {watch.name: watch.report() for watch in self._watches}
        if report != self._reported:
            self._services.unsynced.rewrite(self._services.places.watchers, to_json(report))
            self._reported = dict(report)
