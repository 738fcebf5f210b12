"""One readable file per message: `ls` shows the state of a queue, `cat` a message.

    <root>/<queue>/inbox/       waiting            <root>/<queue>/dlq/       dead letters with their reason
    <root>/<queue>/processing/  out on a lease     <root>/<queue>/archive/   kept after the end
    <root>/<queue>/meta/queue.json                 name, policy and whether it is paused

A change of state is one rename. Two steps are needed only where the content changes too, into and out
of the dead letters: the new file comes first, so that a crash leaves the message twice, and `load`
knows which of the two is the later one.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from itertools import islice
from pathlib import Path
from typing import Any, NoReturn

import orjson

from kingdom.base.disk.atomic import Disk, make_folder, sync_folder
from kingdom.base.disk.bulk import FileBatch
from kingdom.base.disk.codec import read_bytes, to_json
from kingdom.base.disk.trash import Trash
from kingdom.base.errors import BadFile
from kingdom.mq import message_format, names
from kingdom.mq.errors import NoRoom, StoreError
from kingdom.mq.message_format import MalformedBody
from kingdom.mq.names import CREATED, KIND, MESSAGE_ID, REMEMBERED
from kingdom.mq.stores import original_folders
from kingdom.mq.stores.base import (
    DAY_MS,
    SMALL_ENOUGH_TO_KEEP,
    SPARES_TRIMMED_AT_ONCE,
    TRASH,
    DedupEntry,
    FoundMessages,
    MessageGone,
    State,
    StoreConfig,
    StoreFinding,
    Stray,
    is_take,
    queue_folder,
)
from kingdom.mq.stores.files_upkeep import Folders, Messages, StrayFinder, check_queue, listed
from kingdom.mq.stores.request_journal import RequestJournal

FOLDERS = ("inbox", "processing", "archive", "dlq", "meta")
RECORD = "queue.json"
FULL = (errno.ENOSPC, errno.EDQUOT)


class FileStore:
    by_hand = True

    def __init__(self, config: StoreConfig) -> None:
        own = config.part("filesystem")
        self.broken = False
        self.trouble = ""
        self.kept_ms = DAY_MS
        self._config = config
        self._root = str(config.path(own["root"], "fs"))
        self._folder_names: dict[str, str] = {folder: own[f"{folder}Dir"] for folder in FOLDERS}
        self._scratch = f"{self._root}/.scratch"
        self._batch = FileBatch(self._scratch, durability=config.durability)
        self._disk = Disk(Path(self._scratch), durability=config.durability)
        self._trash = Trash(Path(self._root, TRASH))
        self._journal = RequestJournal(f"{self._root}/.requests")
        #: What was wrong and is mended since the last check.
        self._mended: list[StoreFinding] = []
        #: Each queue's folders by state.
        self._folders: dict[str, Folders] = {}
        #: Ids of messages too large for their files to be written over.
        self._bulky: set[str] = set()
        #: (queue, folder, name) of messages whose requests the journal may not know.
        self._recent: list[tuple[str, str, str]] = []
        self._entries: list[DedupEntry] = []
        #: Committed, but not in the journal, for which there was no room: the messages tell them while they lie here.
        self._unwritten: list[DedupEntry] = []
        self._stray_finder = StrayFinder(self._folders, self._batch, self._disk)

    def put(self, queue: str, state: State, name: str, body: str) -> None:
        data = body.encode()
        if len(data) > SMALL_ENOUGH_TO_KEEP:
            self._bulky.add(name[MESSAGE_ID])
        try:
            self._batch.create(self._folders[queue][state], f"{name}.json", data)
        except OSError as error:
            # Nothing of it can be seen: only this message is refused, the group goes on.
            if error.errno in FULL:
                self.trouble = str(NoRoom())
                raise NoRoom from None
            raise self._failure("write a message", error) from None
        self.trouble = ""

    def move(self, queue: str, state: State, name: str, to: State, new: str) -> None:
        folders = self._folders[queue]
        try:
            self._batch.move(folders[state], f"{name}.json", folders[to], f"{new}.json", synced=not is_take(state, to))
        except FileNotFoundError:
            raise MessageGone from None
        except OSError as error:
            raise self._failure("move a message", error) from None

    def rewrite(self, queue: str, state: State, name: str, to: State, new: str, body: str) -> None:
        folders = self._folders[queue]
        if not self._batch.has(folders[state], f"{name}.json"):
            raise MessageGone
        try:
            self._batch.create(folders[to], f"{new}.json", body.encode())
            self._batch.remove(folders[state], f"{name}.json")
        except OSError as error:
            self._break("move a message into or out of the dead letters", error)

    def drop(self, queue: str, state: State, name: str) -> None:
        folders = self._folders[queue]
        spares = folders["ready"]
        if self._bulky and name[MESSAGE_ID] in self._bulky:
            spares = ""
            self._bulky.discard(name[MESSAGE_ID])
        try:
            self._batch.remove(folders[state], f"{name}.json", spares)
        except FileNotFoundError:
            raise MessageGone from None
        except OSError as error:
            raise self._failure("remove a message", error) from None

    def transfer(self, queue: str, state: State, name: str, to: str, new: str, body: str) -> None:
        try:
            self._batch.move(self._folders[queue][state], f"{name}.json", self._folders[to]["ready"], f"{new}.json")
        except FileNotFoundError:
            raise MessageGone from None
        except OSError as error:
            raise self._failure("move a message to another queue", error) from None

    def archived(self, queue: str, most: int) -> list[str]:
        try:
            with os.scandir(self._folders[queue]["archived"]) as entries:
                found = (entry.name.removesuffix(".json") for entry in entries)
                return list(islice(filter(names.is_name, found), most))
        except OSError as error:
            raise self._failure("list the archive", error) from None

    def remove_queue(self, queue: str) -> bool:
        folders = self._folders[queue]
        try:
            if not self._batch.forget({*folders.values()}, SPARES_TRIMMED_AT_ONCE):
                return False
            self._stray_finder.looked.pop(folders["ready"], None)
            place = self._trash.place()
            self._disk.move(Path(folders["ready"]).parent, place)
            del self._folders[queue]
            self._trash.delete(place)
        except OSError as error:
            raise self._failure("delete a queue", error) from None
        return True

    def read(self, queue: str, state: State, name: str) -> str:
        try:
            data = self._batch.read(self._folders[queue][state], f"{name}.json")
        except FileNotFoundError:
            raise MessageGone from None
        except OSError as error:
            raise self._failure("read a message", error) from None
        if len(data) > SMALL_ENOUGH_TO_KEEP:
            self._bulky.add(name[MESSAGE_ID])
        return message_format.decoded(data)

    def release_due(self, queue: str, now: int, count: int) -> None:
        """Do nothing: delayed and ready messages lie in the same folder."""

    def remember(self, entries: Iterable[DedupEntry]) -> None:
        self._entries += entries

    def recall(self, since: int) -> Iterator[DedupEntry]:
        """Read the journal, and what a crash kept out of it: that stands in the messages themselves."""
        try:
            yield from self._journal.read(since)
            self._unwritten += self._recovered()
            yield from self._unwritten
            self._recent = []
            now = since + self.kept_ms
            if self._journal.last() > now:
                # The clock was set back: what a crash keeps out of the journal from now on would be older than it.
                self._unwritten.append(DedupEntry("dedup", now, "", "", ("",)))
            self._write_journal()
        except OSError as error:
            raise self._failure("recall requests", error) from None

    def _recovered(self) -> list[DedupEntry]:
        entries: list[DedupEntry] = []
        batches: dict[tuple[str, str], dict[int, str]] = {}
        for queue, folder, name in self._recent:
            about = self._header(folder, name)
            created, message_id = names.created_of(name), name[MESSAGE_ID]
            if key := about.get("deduplicationKey"):
                entries.append(DedupEntry("dedup", created, queue, key, (message_id,)))
            if request := about.get("requestKey"):
                batches.setdefault((queue, request), {})[about.get("requestIndex", 0)] = message_id
        for (queue, request), ids in batches.items():
            whole = tuple(ids.get(index, "") for index in range(max(ids) + 1))
            created = max(names.created_of(message_id) for message_id in ids.values())
            entries.append(DedupEntry("request", created, queue, request, whole))
        return entries

    def _header(self, folder: str, name: str) -> dict[str, Any]:
        with suppress(OSError, ValueError, MalformedBody):
            body = self._batch.read(folder, f"{name}.json").decode()
            return message_format.header(message_format.original(body) if names.is_dead_letter(name) else body)
        return {}

    def commit(self) -> None:
        """Make all changes durable. What is remembered goes down after the messages it is about: they tell it too as
        long as they lie here, so it must be safe only before they go."""
        try:
            if self._batch.power:
                if self._batch.has_removals:
                    self._write_journal()
                    self._journal.sync()
                self._batch.commit()
            self._unwritten += self._entries
            self._entries = []
            self._write_journal()
        except OSError as error:
            self._break("make changes durable", error)

    def _write_journal(self) -> None:
        """Write what is committed; on a full disk later, so that what is there can be consumed meanwhile."""
        if not self._unwritten:
            return
        try:
            self._journal.write(self._unwritten)
        except OSError as error:
            if error.errno not in FULL:
                raise
            self.trouble = str(NoRoom())
        else:
            self._unwritten = []

    def abandon(self) -> None:
        self._batch.abandon()
        self._entries = []
        self.broken = False

    def tidy(self, now: int, idle: bool) -> bool:
        try:
            self._write_journal()
            if self._batch.power:
                self._journal.sync()
            self._journal.forget(now - self.kept_ms)
            if idle:
                self._batch.trim(SPARES_TRIMMED_AT_ONCE)
        except OSError as error:
            raise self._failure("tidy up", error) from None
        return False

    def close(self) -> None:
        with suppress(OSError):
            self._journal.sync()
        self._journal.close()
        self._batch.close()
        self._trash.close()

    def queues(self) -> Mapping[str, str]:
        records: dict[str, str] = {}
        try:
            make_folder(Path(self._root))
            self._trash.empty()
            for folder in self._queue_folders():
                about = self._record(folder)
                if about is None:
                    about, folder = self._take_over(folder)
                elif os.path.isdir(f"{folder}/delayed"):
                    self._rename_originals(folder, str(about["queue"]))
                if about is not None:
                    self._note_folders(str(about.pop("queue")), folder)
                    records[self._queue_in(folder)] = orjson.dumps(about).decode()
        except OSError as error:
            raise self._failure("list queues", error) from None
        return records

    def _take_over(self, folder: str) -> tuple[dict[str, Any] | None, str]:
        """Make a folder without a record a queue: the original keeps none, and a person may have lost ours."""
        queue = original_folders.names_a_queue(folder, self._folder_names["inbox"])
        if not queue:
            return None, folder
        lost = self._has_messages_of_ours(folder)
        folder = self._rename_originals(folder, queue)
        policy = original_folders.policy_of(self._root, queue)
        try:
            about = orjson.loads(policy or '{"paused": false}')
        except orjson.JSONDecodeError:
            about = {}
        about = about if isinstance(about, dict) else {}
        self.save_queue(queue, orjson.dumps(about).decode())
        if lost:
            self._mended.append(StoreFinding("lost_policy", queue, f"{folder} had no {RECORD} in meta/", True))
        return {"queue": queue, **about}, folder

    def _has_messages_of_ours(self, folder: str) -> bool:
        known = self._folder_names
        places = (f"{folder}/{known[kind]}" for kind in ("inbox", "processing", "dlq"))
        return any(os.path.isdir(place) and listed(place) for place in places)

    def _rename_originals(self, folder: str, queue: str) -> str:
        make_folder(Path(self._scratch))
        return original_folders.take_over(self._root, folder, queue, self._folder_names, self._disk)

    def save_queue(self, queue: str, record: str) -> None:
        folder = f"{self._root}/{queue_folder(queue)}"
        try:
            for kind in FOLDERS:
                make_folder(Path(folder, self._folder_names[kind]))
            self._disk.rewrite(
                Path(folder, self._folder_names["meta"], RECORD), to_json({"queue": queue, **orjson.loads(record)})
            )
            if self._config.durability == "power":
                sync_folder(Path(folder))
                sync_folder(Path(self._root))
        except OSError as error:
            raise self._failure("keep a queue's policy", error) from None
        self._note_folders(queue, folder)

    def _queue_folders(self) -> list[str]:
        with os.scandir(self._root) as entries:
            return [entry.path for entry in entries if entry.is_dir() and not entry.name.startswith(".")]

    def _record(self, folder: str) -> dict[str, Any] | None:
        """Return a queue's record; None for a folder that is no queue, or whose damaged record names none."""
        try:
            about = orjson.loads(read_bytes(f"{folder}/{self._folder_names['meta']}/{RECORD}"))
        except (FileNotFoundError, BadFile, orjson.JSONDecodeError):
            return None
        named = isinstance(about, dict) and isinstance(about.get("queue"), str)
        return about if named and queue_folder(about["queue"]) == os.path.basename(folder) else None

    def _note_folders(self, queue: str, folder: str) -> None:
        inbox, processing = f"{folder}/{self._folder_names['inbox']}", f"{folder}/{self._folder_names['processing']}"
        self._folders[queue] = {
            "ready": inbox,
            "delayed": inbox,
            "inflight": processing,
            "dlq": f"{folder}/{self._folder_names['dlq']}",
            "archived": f"{folder}/{self._folder_names['archive']}",
        }

    def _queue_in(self, folder: str) -> str:
        inbox = f"{folder}/{self._folder_names['inbox']}"
        return next(queue for queue, folders in self._folders.items() if folders["ready"] == inbox)

    def load(self) -> Iterator[FoundMessages]:
        try:
            make_folder(Path(self._scratch))
            self._batch.sweep()
            make_folder(Path(self._journal.folder))
            journal_knows = names.id_prefix(self._journal.last())
            self._recent = []
            self._bulky.clear()
            kind, remembered, created = KIND, REMEMBERED, CREATED
            for queue, folders in list(self._folders.items()):
                messages = Messages(folders, self._stray_finder.looked)
                found = (
                    FoundMessages(queue, "ready", messages.ready),
                    FoundMessages(queue, "inflight", messages.inflight),
                    FoundMessages(queue, "dlq", messages.dead),
                )
                if messages.inflight:  # taken by a manager that was killed
                    self._batch.note_unsynced(folders["ready"], folders["inflight"])
                    self._batch.note_unsynced(folders["dlq"], folders["inflight"])
                for part in found:
                    folder = folders[part.state]
                    self._recent += [
                        (queue, folder, name)
                        for name in part.names
                        if name[kind] == remembered and name[created] >= journal_knows
                    ]
                yield from found
        except OSError as error:
            raise self._failure("read what lies there", error) from None

    def strays(self, budget: int, waiting: Callable[[str], Iterable[str]]) -> list[Stray]:
        try:
            return self._stray_finder.next_strays(budget, waiting)
        except OSError as error:
            raise self._failure("look for files put in by hand", error) from None

    def adopt(self, stray: Stray, name: str) -> None:
        inbox = self._folders[stray.queue]["ready"]
        try:
            self._batch.move(inbox, stray.file, inbox, f"{name}.json")
        except FileNotFoundError:
            raise MessageGone from None
        except OSError as error:
            raise self._failure("adopt a file", error) from None

    def check(self, repair: bool, now: int) -> list[StoreFinding]:
        findings: list[StoreFinding] = []
        archived_before = now - self._config.archive_keep_ms
        try:
            for queue, folders in self._folders.items():
                findings += check_queue(queue, folders, self, archived_before, repair, now)
            self.commit()
            findings += self._mended
            self._mended = []
            findings += [StoreFinding("litter", "", name, False) for name in os.listdir(self._scratch)]
            known = {folders["ready"].rpartition("/")[0] for folders in self._folders.values()}
            for folder in self._queue_folders():
                if folder not in known and os.path.basename(folder) != "meta":
                    findings.append(
                        StoreFinding("invalid_state", "", f"{folder} is no queue: no {RECORD} in meta/", False)
                    )
        except OSError as error:
            raise self._failure("look the files over", error) from None
        return findings

    def _failure(self, action: str, error: OSError) -> StoreError:
        why = f"{error.strerror or error} ({error.filename or self._root})"
        return StoreError(backend="filesystem", action=action, why=why)

    def _break(self, action: str, error: OSError) -> NoReturn:
        self.broken = True
        raise self._failure(action, error) from None
