"""The only way into and through the court's queues: create, take, update, move, set aside.

A queue holds one kind of record, one JSON file each, in a folder per state: `queues.tasks.read("in_progress", id)`.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Callable, Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any, Generic, TypeVar

from kingdom.base.disk.atomic import Disk, Item, is_there
from kingdom.base.disk.codec import read_json, to_json
from kingdom.base.errors import BadFile, BadInput, BadName, IllegalMove
from kingdom.base.home.places import Places, check_name, is_hidden
from kingdom.base.home.states import MOVES
from kingdom.base.log import Log
from kingdom.base.records import foreign
from kingdom.base.records.messages import Event, Filed, Message, Order, Task
from kingdom.base.times import stamp

R = TypeVar("R", bound=Filed)

SETTLING_SECONDS = 2.0
"""How long a file that cannot be read may be unfinished: its writer may write it in place."""


class Queue(Generic[R]):
    """One kind of record, as one role may handle it."""

    def __init__(
        self, kind: str, record: type[R], places: Places, disk: Disk, log: Log, clock: Callable[[], float]
    ) -> None:
        self.kind = kind
        self._record = record
        #: By state, where its files lie.
        self.folders = {state: places.folder(kind, state) for state in MOVES[kind]}
        self._disk = disk
        self._log = log
        self._clock = clock

    def create(self, records: Iterable[R]) -> None:
        """Write new files into `pending`, durable together. A record whose name is taken is left out."""
        new = list(records)
        for record in new:
            check_name(self.kind, record.id)
        self._disk.create_all(self.files("pending", new))

    def update(self, state: str, records: Iterable[R]) -> None:
        """Rewrite records that were read in this state, durable together."""
        self._disk.rewrite_all(self.files(state, records))

    def files(self, state: str, records: Iterable[R]) -> list[Item]:
        """Return records as files, to be written together with others. They were read, or their ids are ours."""
        folder = self.folders[state]
        return [(f"{folder}/{record.id}.json", to_json(record.to_json())) for record in records]

    def change(self, state: str, id: str, **changes: Any) -> None:
        """Read a record and rewrite it with some fields changed."""
        self.update(state, [replace(self.read(state, id), **changes)])

    def move(self, ids: Iterable[str], src: str, dst: str, *, sync: bool = True) -> list[str]:
        """Move records that were read, durable together. Return the ids that could not: gone, or already in `dst`.

        Without `sync` they are durable after `sync` of both states.
        """
        self._check_move(src, dst)
        before, after = self.folders[src], self.folders[dst]
        stuck = self._disk.move_all([(f"{before}/{id}.json", f"{after}/{id}.json") for id in ids], sync=sync)
        return [os.path.basename(path).removesuffix(".json") for path, _ in stuck]

    def sync(self, *states: str) -> None:
        """Make durable what was moved into and out of these states."""
        self._disk.sync_folders([self.folders[state] for state in states])

    def end(self, records: Iterable[R], src: str, dst: str) -> None:
        """Rewrite records that were read in `src` and move them to where they stay, durable together."""
        self._check_move(src, dst)
        before, after = self.folders[src], self.folders[dst]
        files = ((f"{record.id}.json", to_json(record.to_json())) for record in records)
        self._disk.rewrite_and_move([(f"{before}/{name}", f"{after}/{name}", data) for name, data in files])

    def file_names(self, state: str) -> list[str]:
        """Return the names that a reader may see, in no order."""
        with os.scandir(self.folders[state]) as entries:
            return [entry.name for entry in entries if not is_hidden(entry.name)]

    def ids(self, state: str) -> list[str]:
        return [name.removesuffix(".json") for name in self.file_names(state) if name.endswith(".json")]

    def has(self, id: str, *states: str) -> bool:
        name = f"{check_name(self.kind, id)}.json"
        return any(is_there(f"{self.folders[state]}/{name}") for state in states)

    def was_made(self, id: str) -> bool:
        """Return whether a record lies in any state; asked in the order of moves, so that one that moves is seen."""
        return self.has(id, *MOVES[self.kind])

    def read(self, state: str, id: str) -> R:
        """Return the record. FileNotFoundError when it is gone; BadInput says what is wrong with its file."""
        return self._parse(f"{self.folders[state]}/{check_name(self.kind, id)}.json")

    def take(self, state: str, filename: str, *, owner: bool = True) -> R | None:
        """Return the record in a file; None when the file is gone, may be unfinished, or cannot be read.

        The queue's owner, its one consumer, moves what cannot be read to `dead`.
        """
        path = f"{self.folders[state]}/{filename}"
        try:
            return self._parse(path)
        except FileNotFoundError:
            return None
        except BadInput as error:
            if owner and not self._may_be_unfinished(path):
                # Its name and place are kept beside the reason.
                why = error.facts["why"] if isinstance(error, BadFile) else error
                self.move_to_dead(state, filename, _misnamed(filename) or str(why))
            return None

    def move_to_dead(self, state: str, filename: str, reason: str) -> None:
        """Move a file to dead/, with its reason beside it. The reason is written first."""
        self._check_move(state, "dead")
        path, target = self.folders[state] / filename, self._free_dead_path(filename)
        filename, reason = _printable(filename), _printable(reason)
        note = {"file": filename, "from": f"{self.kind}/{state}", "reason": reason, "buried_at": stamp(self._clock())}
        self._disk.rewrite(target.with_name(f"{target.name}.reason"), to_json(note))
        try:
            self._disk.move(path, target)
        except FileNotFoundError:
            return
        moved = f"moved {self.kind}/{state}/{filename} to {self.kind}/dead/{target.name}: {reason}"
        self._log.error(moved, event="file.buried", kind=self.kind, file=target.name, reason=reason)

    def _check_move(self, src: str, dst: str) -> None:
        if dst not in MOVES[self.kind][src]:
            raise IllegalMove(what=self.kind, src=src, dst=dst)

    def _may_be_unfinished(self, path: str) -> bool:
        try:
            about = os.lstat(path)
        except FileNotFoundError:
            return False
        return stat.S_ISREG(about.st_mode) and 0 <= self._clock() - about.st_mtime < SETTLING_SECONDS

    def _free_dead_path(self, filename: str) -> Path:
        dead = self.folders["dead"]
        plain = _printable(filename)
        if len(plain.encode()) > 200:
            plain = f"{plain[:60]}…"
        path, again = dead / plain, 1
        while is_there(path):
            again += 1
            path = dead / f"{plain}.{again}"
        return path

    def _parse(self, path: str) -> R:
        record = self._record.from_json(foreign.checked(self._record.kind, read_json(path)))
        if f"{record.id}.json" != os.path.basename(path):
            why = f"its id is {record.id!r}, which belongs in {record.id}.json"
            raise BadFile(path=os.path.basename(path), why=why)
        return record


class Queues:
    """The four queues of the court."""

    def __init__(self, places: Places, disk: Disk, log: Log, clock: Callable[[], float]) -> None:
        self.events = Queue("events", Event, places, disk, log, clock)
        self.tasks = Queue("tasks", Task, places, disk, log, clock)
        self.messages = Queue("messages", Message, places, disk, log, clock)
        self.orders = Queue("orders", Order, places, disk, log, clock)

    def of(self, kind: str) -> Queue[Event] | Queue[Task] | Queue[Message]:
        """Return the queue of a kind, for an order that may be about any but orders."""
        queues: dict[str, Queue[Event] | Queue[Task] | Queue[Message]]
        queues = {"events": self.events, "tasks": self.tasks, "messages": self.messages}
        return queues[kind]


def _misnamed(filename: str) -> str:
    """Return why no record can lie in a file of this name; "" when one can."""
    if not filename.endswith(".json"):
        return "its name does not end in .json"
    try:
        check_name("file", filename.removesuffix(".json"))
    except BadName as error:
        return str(error)
    return ""


def _printable(text: str) -> str:
    """Return a name that is not UTF-8, or breaks a line, as text that can be written and shown."""
    return text.encode("utf-8", "backslashreplace").decode().replace("\n", "⏎")
