"""The king's desk: his services, the ids he gives away, the letters he writes, who his generals are, the gate."""

from __future__ import annotations

import os
from collections.abc import Iterable
from datetime import date, datetime
from typing import TypeVar

from kingdom.home import config, manifests
from kingdom.home.states import MOVES
from kingdom.king.messages import Draft
from kingdom.king.replay_index import DoneIndex
from kingdom.records import load
from kingdom.records.ids import DailyCounter, highest_number
from kingdom.records.messages import Event, Json, Message, Task
from kingdom.rules import routing
from kingdom.rules.gate import Gate
from kingdom.runtime.role import Services
from kingdom.times import stamp

T = TypeVar("T", Event, Task)

AHEAD = 64
"""DailyCounter noted before they are needed: a lone event does not wait for two more files."""
ANYWHERE = {kind: tuple(states) for kind, states in MOVES.items()}
"""In the order in which a thing moves, so that one that moves meanwhile is seen."""


class Desk:
    def __init__(self, services: Services) -> None:
        self.take_over(services)
        self.done = DoneIndex(services.disk, services.places.own("king") / "done.idx", services.clock)
        self.generals: list[manifests.Manifest] = []
        self.routes = routing.table([])
        self._seen_manifests: object = None
        self._task_numbers = self._numbers("tasks", "task-")
        self._letter_numbers = self._numbers("messages", "msg-")

    def take_over(self, services: Services) -> None:
        """All of it or nothing: what can be wrong is looked up before anything is taken over."""
        named = os.environ.get("SLACK_DEFAULT_CHANNEL") or config.secrets(services.places).get("SLACK_DEFAULT_CHANNEL")
        zone = config.zone(services.places, services.system)
        self.services = services
        self.config = services.config
        self.channel = named or str(services.config["slack"]["default_channel"])
        self.zone = zone

    def look_period(self) -> float:
        return float(self.config["intervals"]["event_check_seconds"])

    def close(self) -> None:
        self._task_numbers.close()
        self._letter_numbers.close()

    def read_manifests(self) -> bool:
        """Whether the generals have changed; a broken manifest is skipped with its reason."""
        seen = manifests.fingerprint(self.services.places)
        if seen == self._seen_manifests:
            return False
        self.generals, bad = manifests.installed(self.services.places)
        self.routes = routing.table(self.generals)
        self._seen_manifests = seen
        for trouble in bad:
            self.services.log.error(f"skips a manifest: {trouble}")
        for warning in self.routes.warnings:
            self.services.log.warn(warning)
        names = ", ".join(each.name for each in self.generals) or "none"
        self.services.log.info(
            f"generals: {names}; {len(self.routes.claims)} event types, {len(self.routes.words)} words"
        )
        return True

    def gate(self) -> Gate:
        stale = self.config["resources"]["stale_seconds"]
        at_most = self.config["concurrency"]["max_soldiers"]
        return Gate(load.read(self.services.places, self.services.clock(), stale, at_most), at_most)

    def write_letters(self, sets: list[tuple[list[Draft], Json, bool]]) -> None:
        now = stamp(self.services.clock())
        due: list[Message] = []
        for drafts, ids, repeated in sets:
            for draft in drafts:
                if not self.there("messages", ids[draft.label], repeated):
                    due.append(draft.letter(ids[draft.label], now))
        self.services.queues.messages.create(due)

    def there(self, kind: str, name: str, repeated: bool) -> bool:
        """Whether an earlier life has made it already. Fresh ids need no look."""
        return repeated and self.services.queues[kind].has(name, *ANYWHERE[kind])

    def task_ids(self, count: int) -> list[str]:
        return [f"task-{number}" for number in self._task_numbers.take(count)] if count else []

    def letter_ids(self, count: int) -> list[str]:
        return [f"msg-{number}" for number in self._letter_numbers.take(count)] if count else []

    def _numbers(self, kind: str, prefix: str) -> DailyCounter:
        places = self.services.places
        folders = [places.folder(kind, state) for state in ANYWHERE[kind]]
        path = places.own("king") / f"{prefix}seq"
        return DailyCounter(self.services.disk, path, self._today, highest_number(folders, f"{prefix}{{day}}-"), AHEAD)

    def _today(self) -> date:
        now = self.services.clock()
        return datetime.fromtimestamp(now, self.zone).date()


def with_letters(thing: T, drafts: list[Draft], ids: Iterable[str]) -> T:
    """The thing with an id noted for every letter that follows from it."""
    named = {**thing.message_ids}
    for draft in drafts:
        if draft.label not in named:
            named[draft.label] = next(iter(ids))
    return thing.evolve(message_ids=named)
