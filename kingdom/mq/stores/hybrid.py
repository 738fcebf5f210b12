"""Bodies as files, states in SQLite: large payloads stay out of the database, and `cat` still shows a message.

    <payloads>/<queue>/<message id>.json        the envelope as published
    <payloads>/<queue>/<message id>.dlq.json    the dead letter with its reason

A file comes before its row and goes after it: the row is the commit. A crash can leave a file without
a row, which nobody was told about; load removes it.
"""

from __future__ import annotations

import errno
import os
import sqlite3
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from kingdom.base.disk.atomic import make_folder, rename_new, sync_folder
from kingdom.base.disk.bulk import SPARE, FileBatch
from kingdom.base.disk.trash import Trash
from kingdom.mq import message_format, names
from kingdom.mq.errors import NoRoom, StoreError
from kingdom.mq.names import MESSAGE_ID
from kingdom.mq.stores import original_messages, original_rows
from kingdom.mq.stores.base import (
    SMALL_ENOUGH_TO_KEEP,
    SPARES_TRIMMED_AT_ONCE,
    TRASH,
    FoundMessages,
    MessageGone,
    State,
    StoreConfig,
    StoreFinding,
    queue_folder,
)
from kingdom.mq.stores.sqlite import SqliteStore

CLOSED = "store:closed"


class HybridStore(SqliteStore):
    by_hand = False

    def __init__(self, config: StoreConfig) -> None:
        own = config.part("hybrid")
        self._root = str(config.path(own["payloadRoot"], "payloads"))
        self._check_on_start: bool = own["consistencyCheckOnStart"]
        self._scratch = f"{self._root}/.scratch"
        self._batch = FileBatch(self._scratch, durability=config.durability)
        self._trash = Trash(Path(self._root, TRASH))
        self._folders: dict[str, str] = {}
        self._doomed: dict[tuple[str, str], bool] = {}
        self._bulky: set[str] = set()
        super().__init__(config, own["dbPath"])

    def put(self, queue: str, state: State, name: str, body: str) -> None:
        try:
            super().put(queue, state, name, body)
        except StoreError:
            if self._reserve.spent and not self.broken:
                raise NoRoom from None
            raise

    def _put(self, queue: str, state: State, name: str, body: str) -> None:
        file = f"{name[MESSAGE_ID]}.json"
        self._write_payload(queue, file, body)
        super()._put(queue, state, name, f'{{"payloadFile": "{self._folders[queue]}/{file}"}}')

    def rewrite(self, queue: str, state: State, name: str, to: State, new: str, body: str) -> None:
        old, file = _file(name), _file(new)
        self._write_payload(queue, file, body)
        self._remove_later(queue, old)
        super().rewrite(queue, state, name, to, new, f'{{"payloadFile": "{self._folders[queue]}/{file}"}}')

    def drop(self, queue: str, state: State, name: str) -> None:
        super().drop(queue, state, name)
        self._remove_later(queue, _file(name))

    def read(self, queue: str, state: State, name: str) -> str:
        file = _file(name)
        try:
            data = self._batch.read(self._folder(queue), file)
        except FileNotFoundError:
            raise MessageGone from None
        except OSError as error:
            raise self._failure("read a payload", error) from None
        if len(data) > SMALL_ENOUGH_TO_KEEP:
            self._bulky.add(name[MESSAGE_ID])
        return message_format.decoded(data)

    def commit(self) -> None:
        try:
            self._batch.commit()
            super().commit()
            if self._doomed:
                self._remove_files()
        except OSError as error:
            self._break("make payloads durable", error)

    def abandon(self) -> None:
        self._batch.abandon()
        self._doomed = {}
        super().abandon()

    def tidy(self, now: int, idle: bool) -> bool:
        more = super().tidy(now, idle)
        try:
            self._batch.commit()
            if idle:
                self._batch.trim(SPARES_TRIMMED_AT_ONCE)
        except OSError as error:
            self._break("tidy up", error)
        return more

    def close(self) -> None:
        with suppress(OSError, StoreError):
            self._batch.commit()
            self._batch.trim(self._batch.most_spares)
            if not self.broken and not self._steps:
                self._save(CLOSED, "{}", "setting")
        super().close()
        self._batch.close()
        self._trash.close()

    def queues(self) -> Mapping[str, str]:
        records = super().queues()
        try:
            for queue in records:
                self._make_folder(queue)
        except OSError as error:
            raise self._failure("list queues", error) from None
        return records

    def save_queue(self, queue: str, record: str) -> None:
        try:
            self._make_folder(queue)
        except OSError as error:
            raise self._failure("make a folder", error) from None
        super().save_queue(queue, record)

    def remove_queue(self, queue: str) -> bool:
        folder = self._folder(queue)
        try:
            self._batch.commit()
            if not self._batch.forget([folder], SPARES_TRIMMED_AT_ONCE):
                return False
            super().remove_queue(queue)
            if not _holds_anything(folder):  # what somebody has laid in stays
                place = self._trash.place()
                rename_new(folder, place)
                self._trash.delete(place)
            del self._folders[queue]
        except OSError as error:
            raise self._failure("delete a queue", error) from None
        return True

    def load(self) -> Iterator[FoundMessages]:
        try:
            make_folder(Path(self._scratch))
            self._batch.sweep()
            self._trash.empty()
            self._bulky.clear()
            found = list(super().load())
            if not self._was_closed():
                self._clear_spares()
                if self._check_on_start:
                    self._clear_orphans(found)
        except OSError as error:
            raise self._failure("read what lies there", error) from None
        yield from found

    def _take_over(self, connection: sqlite3.Connection) -> None:
        """Write the payloads of the original where ours lie, as whole envelopes; then their rows get names."""
        name_of = original_rows.namer()
        done: list[Path] = []

        def named(*row: Any) -> str | None:
            queue, about = row[0], original_messages.envelope(row[8])
            found = original_messages.payload_file(Path(self._root), queue, about)
            name = name_of(*row)
            if found is None:
                ours = f"{self._root}/{queue_folder(queue)}/{_file(name)}"
                return name if os.path.exists(ours) else None
            if queue not in self._folders:
                self._make_folder(queue)
            self._batch.create(self._folder(queue), _file(name), original_messages.whole(about, found.read_bytes()))
            done.append(found)
            return name

        try:
            make_folder(Path(self._scratch))
            states = self._tables.states
            self._originals = original_rows.take_over(connection, self._sql, states, named, self._batch.commit) > 0
            self._sync()
            for file in done:
                file.unlink()
        except OSError as error:
            raise self._failure("take payloads over", error) from None

    def check(self, repair: bool, now: int) -> list[StoreFinding]:
        self._settle_all("look it over")
        try:
            orphans = list(self._orphans(list(super().load())))
            findings = [
                StoreFinding("orphan_payload", self._queue_in(folder), f"{folder}/{file}", repair)
                for folder, file in orphans
            ]
            findings += super().check(repair, now)
            for queue, key, name in self._bodiless():
                self._mend(repair, key)
                findings.append(
                    StoreFinding("missing_payload", queue, f"{self._folders.get(queue)}/{_file(name)}", repair)
                )
            if repair:
                self._clear_orphans(list(super().load()))
        except OSError as error:
            raise self._failure("look the payloads over", error) from None
        return findings

    def _write_payload(self, queue: str, file: str, body: str) -> None:
        data = body.encode()
        if len(data) > SMALL_ENOUGH_TO_KEEP:
            self._bulky.add(_id_of(file))
        folder = self._folder(queue)
        if self._doomed:
            self._doomed.pop((folder, file), None)  # moved to another queue, and back
        try:
            self._batch.create(folder, file, data)
        except OSError as error:
            # Nothing of it can be seen: only this message is refused, the group goes on.
            if error.errno in (errno.ENOSPC, errno.EDQUOT):
                self._reserve.spend()
            raise self._failure("write a payload", error) from None

    def _remove_later(self, queue: str, file: str) -> None:
        is_bulky = bool(self._bulky) and _id_of(file) in self._bulky
        if is_bulky:
            self._bulky.discard(_id_of(file))
        self._doomed[self._folder(queue), file] = not is_bulky

    def _remove_files(self) -> None:
        """Delete the files of rows that are gone for good."""
        for (folder, file), keep in self._doomed.items():
            with suppress(FileNotFoundError):
                self._batch.remove(folder, file, folder if keep else "")
        self._doomed = {}

    def _folder(self, queue: str) -> str:
        return f"{self._root}/{self._folders[queue]}"

    def _make_folder(self, queue: str) -> None:
        name = queue_folder(queue)
        folder = Path(self._root, name)
        if not folder.is_dir():
            make_folder(folder)
            if self._config.durability == "power":
                sync_folder(folder.parent)
        self._folders[queue] = name

    def _queue_in(self, folder: str) -> str:
        return next((queue for queue, name in self._folders.items() if name == folder), "")

    def _was_closed(self) -> bool:
        """Return whether the process before this one closed the store, so that nothing is left over. True only once."""
        said = bool(self._query("select_body", (CLOSED,)))
        if said:
            self._run_synced("open the store", self._sql["delete_body"], (CLOSED,))
        return said

    def _clear_orphans(self, found: Iterable[FoundMessages]) -> None:
        for folder, file in self._orphans(found):
            os.unlink(f"{self._root}/{folder}/{file}")

    def _clear_spares(self) -> None:
        """Delete spare files that a killed process left behind."""
        for folder in self._folders.values():
            for file in os.listdir(f"{self._root}/{folder}"):
                if file.endswith(SPARE):
                    os.unlink(f"{self._root}/{folder}/{file}")

    def _orphans(self, found: Iterable[FoundMessages]) -> Iterator[tuple[str, str]]:
        """Yield the files that no row names: of a publish that was never committed, or a removal that was."""
        named: dict[str, set[str]] = {}
        for queue, _, listed in found:
            named.setdefault(queue, set()).update(map(_file, listed))
        for queue, (text,) in ((queue, self._query("select_archived_names", (queue,))[0]) for queue in self._folders):
            named.setdefault(queue, set()).update(map(_file, (text or "").split("\n")))
        if self._skipped or self._query("select_unnamed"):
            for queue, key, name in self._query("select_states"):
                if name is None or not names.is_name(name):  # no name tells of its payload, and the check may mend that
                    message_id = names.id_of_key(key)
                    named.setdefault(queue, set()).update((f"{message_id}.json", f"{message_id}.dlq.json"))
        for queue, folder in self._folders.items():
            expected = named.get(queue, set())
            for file in os.listdir(f"{self._root}/{folder}"):
                if file not in expected and _looks_like_ours(file):
                    yield folder, file

    def _bodiless(self) -> Iterator[tuple[str, str, str]]:
        for queue, key, name in self._query("select_states"):
            if name is None:
                continue
            if queue not in self._folders or not os.path.exists(f"{self._folder(queue)}/{_file(name)}"):
                yield queue, key, name


def _holds_anything(folder: str) -> bool:
    with os.scandir(folder) as entries:
        return next(entries, None) is not None


def _file(name: str) -> str:
    """Return the file's name; that of a dead letter, leased or not, carries its reason."""
    return f"{name[MESSAGE_ID]}.dlq.json" if names.is_dead_letter(name) else f"{name[MESSAGE_ID]}.json"


def _id_of(file: str) -> str:
    return file.partition(".")[0]


def _looks_like_ours(file: str) -> bool:
    return file.endswith(".json") and names.is_id(file.removesuffix(".json").removesuffix(".dlq"))
