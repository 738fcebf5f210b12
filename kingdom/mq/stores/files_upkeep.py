"""The file store's inboxes as people leave them: taking over at a start, files laid in by hand, the check."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import suppress
from itertools import islice
from operator import attrgetter
from pathlib import Path
from typing import Literal

from kingdom.base.disk.atomic import Disk, make_folder, rename_new
from kingdom.base.disk.bulk import SPARE, FileBatch
from kingdom.base.disk.codec import read_bytes, to_json
from kingdom.base.errors import BadFile
from kingdom.mq import names
from kingdom.mq.names import MESSAGE_ID
from kingdom.mq.stores import damage
from kingdom.mq.stores.base import SMALL_ENOUGH_TO_KEEP, MessageStore, State, StoreFinding, Stray

Folders = Mapping[str, str]
"""A queue's folders by state."""

LARGEST_STRAY = 64 << 20
MOST_STRAYS = 100
LISTED_AT_ONCE = 1000
_ANY = re.compile(rf"^({names.ANY_NAME})\.json$", re.MULTILINE | re.ASCII)
_WAITING = re.compile(rf"^({names.WAITING_NAME})\.json$", re.MULTILINE | re.ASCII)


def listed(folder: str) -> list[str]:
    """Return the names of the messages in a folder."""
    return [name for name in _ANY.findall("\n".join(os.listdir(folder))) if names.is_name(name)]


class Messages:
    """What a start finds in the folders of one queue."""

    def __init__(self, folders: Folders, looked: dict[str, int]) -> None:
        """List the folders without spares from before the start; note in `looked` what needs no other look."""
        self.ready = _take_over(folders["ready"], _WAITING, looked)
        self.inflight = _take_over(folders["inflight"], _ANY, looked)
        self.dead = _take_over(folders["dlq"], _ANY, looked)
        make_folder(Path(folders["archived"]))
        if self.inflight or self.dead:
            self._keep_later_states(folders)

    def _keep_later_states(self, folders: Folders) -> None:
        """Where a crash left a message twice, the later state stays: revived, then dead, then leased."""
        few = {name[MESSAGE_ID] for name in (*self.inflight, *self.dead)}
        revived = {name[MESSAGE_ID] for name in self.ready if name[MESSAGE_ID] in few}
        dead = {name[MESSAGE_ID] for name in self.dead} - revived
        self.dead = _without(self.dead, revived, folders["dlq"])
        self.inflight = _without(self.inflight, revived | dead, folders["inflight"])


def _without(found: list[str], later: Collection[str], folder: str) -> list[str]:
    """Delete the messages that stand in a later state, and return the others."""
    for name in found:
        if name[MESSAGE_ID] in later:
            os.unlink(f"{folder}/{name}.json")
    return [name for name in found if name[MESSAGE_ID] not in later]


def _take_over(folder: str, pattern: re.Pattern[str], looked: dict[str, int]) -> list[str]:
    """Return the messages in a folder, without spares from before the start. Some at a time: what is read, joined and
    matched stays in the processor's cache."""
    make_folder(Path(folder))
    changed = os.stat(folder).st_mtime_ns
    found: list[str] = []
    spares: list[str] = []
    with os.scandir(folder) as entries:
        left = map(attrgetter("name"), entries)
        while files := [*islice(left, LISTED_AT_ONCE)]:
            text = "\n".join(files)
            ours: list[str] = pattern.findall(text)
            if len(text) != len(ours) * (names.PLAIN_LENGTH + len(".json") + 1) - 1:
                ours = [name for name in ours if len(name) == names.PLAIN_LENGTH or names.is_name(name)]
            found += ours
            if len(ours) < len(files):
                changed = 0  # what is not ours is looked at later
                spares += [file for file in files if file.endswith(SPARE)]
    for spare in spares:
        os.unlink(f"{folder}/{spare}")
    if changed:
        looked[folder] = changed
    return found


class StrayFinder:
    def __init__(self, folders: Mapping[str, Folders], batch: FileBatch, disk: Disk) -> None:
        """`folders` are those of each queue, by its name."""
        self._folders = folders
        self._batch = batch
        self._disk = disk
        #: When each inbox had changed last, as far as it was looked at.
        self.looked: dict[str, int] = {}
        self._walk: Iterator[list[Stray]] = iter(())

    def next_strays(self, budget: int, waiting: Callable[[str], Iterable[str]]) -> list[Stray]:
        """Return what the next step of the walk through the inboxes finds, about `budget` names long."""
        try:
            found = next(self._walk, None)
            if found is None:
                self._walk = self._walked(budget, waiting)
                found = next(self._walk)
        except OSError:
            self._walk = iter(())
            raise
        return found

    def _walked(self, budget: int, waiting: Callable[[str], Iterable[str]]) -> Iterator[list[Stray]]:
        """Go through all inboxes that changed, `budget` names at a step."""
        seen, found = 0, []
        for queue, folders in list(self._folders.items()):
            inbox = folders["ready"]
            changed = os.stat(inbox).st_mtime_ns
            if self.looked.get(inbox) == changed:
                continue
            self.looked[inbox] = changed
            ours: list[str] = []
            at_once = not self._batch.has_removals
            with os.scandir(inbox) as entries:
                for entry in entries:
                    seen += 1
                    if named := _WAITING.match(entry.name):
                        ours.append(named[1])
                    elif (stray := self._stray(queue, entry.name)) is not None:
                        found.append(stray)
                    if seen >= budget or len(found) >= MOST_STRAYS:
                        yield found
                        seen, found, ours, at_once = 0, [], [], False
            if at_once:
                found += self._moved_back(queue, ours, waiting(queue))
        yield found

    def _moved_back(self, queue: str, ours: Iterable[str], waiting: Iterable[str]) -> Iterator[Stray]:
        """Yield messages that a person took from where they lay, under names of ours. What was seen in one step
        can be compared; an inbox too long for that is compared at the next start."""
        for name in set(ours).difference(waiting):
            if (stray := self._stray(queue, f"{name}.json")) is not None:
                yield stray

    def _stray(self, queue: str, file: str) -> Stray | None:
        if file.startswith(".") or file.endswith(".tmp"):
            return None
        path = f"{self._folders[queue]['ready']}/{file}"
        try:
            data = read_bytes(path, LARGEST_STRAY)
        except FileNotFoundError:
            return None
        except BadFile as error:
            self._reject(queue, file, str(error.facts["why"]))
            return None
        if len(data) > SMALL_ENOUGH_TO_KEEP:
            # Nothing of this size is kept as a spare; its id is not known yet, so none is kept from now on.
            self._batch.most_spares = 0
        return Stray(queue, file, data.decode("utf-8", "replace"))

    def _reject(self, queue: str, file: str, why: str) -> None:
        """Put what is no readable file among the dead letters under its own name, with the reason beside it."""
        folders = self._folders[queue]
        self._disk.rewrite(Path(folders["dlq"], f"{file[:200]}.reason"), to_json({"file": file, "reason": why}))
        with suppress(FileNotFoundError):
            self._batch.move(folders["ready"], file, folders["dlq"], file[:200])


def check_queue(
    queue: str, folders: Folders, store: MessageStore, archived_before: int, repair: bool, now: int
) -> Iterator[StoreFinding]:
    """Yield what is wrong with a queue's files; with `repair` it is mended, at the latest by the load that follows."""
    for folder in sorted(set(folders.values())):
        if not os.path.isdir(folder):
            if repair:
                make_folder(Path(folder))
            yield StoreFinding("missing_payload", queue, f"{folder} is not there", repair)
            if not repair:
                return
    where: dict[str, str] = {}
    states: tuple[State, ...] = ("ready", "inflight", "dlq")
    for state in states:
        for name in sorted(listed(folders[state])):
            message_id = name[MESSAGE_ID]
            if message_id in where:
                if where[message_id] == state and repair:  # in two states: the load keeps one of them
                    os.unlink(f"{folders[state]}/{name}.json")
                yield StoreFinding("doubled", queue, f"{message_id} is {where[message_id]} and {state}", repair)
                continue
            where[message_id] = state
            finding = _misplaced(queue, folders, state, name, repair)
            finding = finding or damage.finding_of(store, queue, state, name, repair, now)
            if finding is not None:
                yield finding
        if state != "ready":
            yield from _not_ours(queue, folders, state, repair)
    for name in listed(folders["archived"]):
        if names.due_of(name) <= archived_before:
            if repair:
                os.unlink(f"{folders['archived']}/{name}.json")
            yield StoreFinding("stale_archive", queue, name, repair)


def _misplaced(queue: str, folders: Folders, state: State, name: str, repair: bool) -> StoreFinding | None:
    """Find a message in a folder that its name does not tell: it waits again under its name."""
    fields = names.fields_of(name)
    told = "inflight" if names.LEASE in fields else "dlq" if names.REASON in fields else "ready"
    if told == state:
        return None
    if repair:
        rename_new(f"{folders[state]}/{name}.json", f"{folders[told]}/{name}.json")
    return StoreFinding("invalid_state", queue, f"{folders[state]}/{name}.json is {told} by its name", repair)


def _not_ours(queue: str, folders: Folders, state: State, repair: bool) -> Iterator[StoreFinding]:
    """Find files under names that are none of ours: they go to the inbox, where files laid in by hand are adopted."""
    folder = folders[state]
    there = set(os.listdir(folder))
    for file in sorted(there):
        stem = file.removesuffix(".json")
        if (
            file.startswith(".")
            or file.endswith((".tmp", ".reason"))
            or f"{file}.reason" in there
            or names.is_name(stem)
        ):
            continue
        if repair:
            rename_new(f"{folder}/{file}", f"{folders['ready']}/{file}")
        kind: Literal["foreign", "bad_name"] = "bad_name" if names.is_id(stem[MESSAGE_ID]) else "foreign"
        yield StoreFinding(kind, queue, f"{folder}/{file}", repair)
