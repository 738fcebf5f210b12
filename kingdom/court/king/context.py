"""What all parts of the king share: his services, the ids he gives out, his generals, the gate, the hand-over."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import date, datetime
from typing import Any, ClassVar, Generic, Protocol, TypeVar

from kingdom.base.disk.atomic import Item
from kingdom.base.home import config
from kingdom.base.home.manifests import Manifest
from kingdom.base.home.states import MOVES
from kingdom.base.records import load
from kingdom.base.records.backlog import MOST_KEPT, Backlog
from kingdom.base.records.ids import DailyCounter, highest_number
from kingdom.base.records.messages import Json, Message, Task
from kingdom.base.records.queues import Queue, R
from kingdom.base.runtime.role import Services
from kingdom.base.times import stamp
from kingdom.court.king.accepted import Accepted
from kingdom.court.king.messages import MessageDraft
from kingdom.court.king.replay_index import ReplayIndex
from kingdom.court.rules import routing
from kingdom.court.rules.gate import Gate

RESERVED = 64
"""Numbers that are noted on disk before they are needed: a lone event does not wait for two more files."""


class Cause(Protocol):
    """What something follows from: an event, a scheduled run, a task with its result."""

    #: For type checkers: `dataclasses.replace` takes it.
    __dataclass_fields__: ClassVar[dict[str, Any]]

    @property
    def message_ids(self) -> Json: ...


C = TypeVar("C", bound=Cause)


@dataclass(frozen=True, slots=True)
class Decision(Generic[C]):
    """What follows from one cause, decided but not yet carried out."""

    #: As it will be noted: with the id of the task that follows from it.
    cause: C
    #: The messages that follow from it. Their ids are noted in the cause before they are written.
    drafts: Sequence[MessageDraft] = ()
    #: The task that it becomes.
    task: Task | None = None
    #: By which a replay of the cause is recognised, for ever, if it becomes a task.
    key: str = ""
    #: Whether the task's id was noted before a restart: the task may have been made.
    begun: bool = False
    #: The folder that the cause goes to.
    next_state: str = ""
    #: The parts whose messages have got their ids now: they cannot have been written before a restart.
    fresh: frozenset[str] = frozenset()


class KingContext:
    def __init__(self, services: Services) -> None:
        self.take_over(services)
        self.replays = ReplayIndex(self.disk, self.places.replay_index, self.clock)
        self.backlogs: list[Backlog[Any]] = []
        self._accepted = Accepted(self.places, self.disk, self.log)
        self.routes = routing.table([])
        self._task_numbers = self._numbers("tasks", "task-")
        self._message_numbers = self._numbers("messages", "msg-")

    def take_over(self, services: Services) -> None:
        """Take over new configuration, all of it or nothing: what can be wrong is looked up first."""
        named = os.environ.get("SLACK_DEFAULT_CHANNEL") or services.secrets.get("SLACK_DEFAULT_CHANNEL")
        zone = config.zone(services.places, services.system)
        self.services = services
        self.places, self.disk, self.unsynced = services.places, services.disk, services.unsynced
        self.queues, self.log = services.queues, services.log
        self.clock, self.monotonic = services.clock, services.monotonic
        self.config = services.config
        self.channel = named or str(services.config["slack"]["default_channel"])
        self.zone = zone

    def close(self) -> None:
        """Give back the ids that were reserved and not used."""
        self.disk.rewrite_all([*self._task_numbers.without_rest(), *self._message_numbers.without_rest()])

    def now(self) -> str:
        return stamp(self.clock())

    def backlog(self, queue: Queue[R], state: str = "pending", most_kept: int = MOST_KEPT) -> Backlog[R]:
        """Make a backlog that the king's turn takes into account when it says how long it may sleep."""
        backlog = Backlog(queue, state, period=self._period, most_kept=most_kept)
        self.backlogs.append(backlog)
        return backlog

    def read_manifests(self) -> bool:
        """Return whether the generals have changed. Of one whose manifest is broken the last good one is kept."""
        if not self._accepted.reread():
            return False
        self.routes = routing.table(self.generals)
        for foreign in (warning for general in self.generals for warning in general.warnings):
            self.log.warn(foreign)
        for warning in self.routes.warnings:
            self.log.warn(warning)
        names = ", ".join(general.name for general in self.generals) or "none"
        self.log.info(f"generals: {names}; {len(self.routes.claims)} event types, {len(self.routes.words)} words")
        return True

    @property
    def generals(self) -> list[Manifest]:
        """Return the manifests in force."""
        return self._accepted.in_force.manifests

    @property
    def unknown(self) -> frozenset[str]:
        """Return the generals whose manifests cannot be read: nobody knows which events they would take."""
        return self._accepted.in_force.unknown

    @property
    def next_look(self) -> float:
        """Return when the manifests want to be looked at again, by the monotonic clock."""
        return self.monotonic() + self._accepted.next_look

    def gate(self) -> Gate:
        """Look at the machine's health and at the tasks under way."""
        stale = self.config["resources"]["stale_seconds"]
        at_most = self.config["concurrency"]["max_soldiers"]
        return Gate(load.read(self.places, self.clock(), stale, at_most), at_most)

    def own_room(self) -> dict[str, int]:
        """Return how many more tasks each general may get that has a limit of its own."""
        limits = self.routes.limits
        under_way = load.under_way_of_each(self.places, self.clock()) if limits else {}
        return {general: most - under_way[general] for general, most in limits.items()}

    def task_ids(self, count: int) -> list[str]:
        return [f"task-{number}" for number in self._task_numbers.take(count, self._today())] if count else []

    def message_ids(self, count: int) -> list[str]:
        return [f"msg-{number}" for number in self._message_numbers.take(count, self._today())] if count else []

    def numbered(self, decisions: Sequence[Decision[C]]) -> list[Decision[C]]:
        """Return the decisions with an id noted in its cause for every message; one that was begun keeps its ids."""
        due = [_fresh_parts(decision) for decision in decisions]
        ids = iter(self.message_ids(sum(map(len, due))))
        return [_with_message_ids(decision, parts, ids) for decision, parts in zip(decisions, due, strict=True)]

    def hand_over(
        self, decisions: Sequence[Decision[Any]], notes: Sequence[Item], changes: Sequence[Item] = ()
    ) -> None:
        """Carry numbered decisions out, durable together, up to the move of their causes: note the ids, then create.

        `notes` are the files of the causes, unless these are noted already; `changes` are files to be replaced before
        the causes move. All is written before anything of it appears, so that few syncs do. After a kill between two
        steps the restarted king reads the note and finishes with the same ids.
        """
        begun = [(decision, decision.task) for decision in decisions if decision.task]
        tasks, messages, now = self.queues.tasks, self.queues.messages, self.now()
        made = [task for decision, task in begun if not (decision.begun and tasks.was_made(task.id))]
        said = [message for decision in decisions for message in self._missing_messages(decision, now)]
        new = [*tasks.files("pending", made), *messages.files("pending", said)]
        # Also of what was made before an error, which may have come before this.
        folders = [tasks.folders["pending"]] if begun else []
        folders += [messages.folders["pending"]] if any(decision.drafts for decision in decisions) else []
        with self.disk.drafts(notes, new, changes) as (noting, following, changing):
            self.disk.show_changed(noting)
            self.disk.show_new(following)
            if begun:
                self.replays.add([(decision.key, task.id) for decision, task in begun])
            self.disk.sync_folders(folders)
            if changes:
                self.disk.show_changed(changing, sync=False)

    def _missing_messages(self, decision: Decision[Any], now: str) -> Iterator[Message]:
        """Yield the messages that were not written before a restart."""
        for draft in decision.drafts:
            id = str(decision.cause.message_ids[draft.part])
            if draft.part in decision.fresh or not self.queues.messages.was_made(id):
                yield draft.message(id, now)

    def _period(self) -> float:
        return float(self.config["intervals"]["event_check_seconds"])

    def _numbers(self, kind: str, prefix: str) -> DailyCounter:
        folders = [self.places.folder(kind, state) for state in MOVES[kind]]
        path = self.places.own("king") / f"{prefix}seq"
        used = highest_number(folders, f"{prefix}{{day}}-")
        return DailyCounter(self.disk, path, used, RESERVED)

    def _today(self) -> date:
        return datetime.fromtimestamp(self.clock(), self.zone).date()


def _fresh_parts(decision: Decision[Any]) -> list[str]:
    return [draft.part for draft in decision.drafts if draft.part not in decision.cause.message_ids]


def _with_message_ids(decision: Decision[C], fresh: Sequence[str], ids: Iterator[str]) -> Decision[C]:
    noted = {**decision.cause.message_ids, **{part: next(ids) for part in fresh}}
    return replace(decision, cause=replace(decision.cause, message_ids=noted), fresh=frozenset(fresh))
