"""Bodies as files, states in SQLite: large payloads stay out of the database, and `cat` still shows a message.

    <payloads>/<queue>/<message id>.json        the envelope as published
    <payloads>/<queue>/<message id>.dlq.json    the dead letter with its reason

A file comes before its row and goes after it: the row is the commit. A crash can leave a file without
a row, which nobody was told about; load removes it.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from pathlib import Path

from kingdom.disk.atomic import make_folder, sync_folder
from kingdom.disk.bulk import SPARE, FileBatch
from kingdom.mq import names
from kingdom.mq.errors import StoreTrouble
from kingdom.mq.message_format import Unfit
from kingdom.mq.stores.base import Finding, Found, Gone, Plan, State
from kingdom.mq.stores.folders import folder_of
from kingdom.mq.stores.sqlite import SqliteStore

SMALL_ENOUGH_TO_KEEP = 16 << 10
SPARES_TRIMMED_A_SECOND = 512
FAREWELL = "store:closed"


class HybridStore(SqliteStore):
    by_hand = False

    def __init__(self, plan: Plan) -> None:
        self._root = str(plan.payloads or plan.root / "payloads")
        self._scratch = f"{self._root}/.scratch"
        self._group = FileBatch(self._scratch, durability=plan.durability, grouping=plan.grouping)
        self._folders: dict[str, str] = {}
        self._condemned: list[tuple[str, str, bool]] = []
        self._bulky: set[str] = set()
        super().__init__(plan)

    def put(self, queue: str, state: State, name: str, body: str) -> None:
        self._lay(queue, f"{name[-36:]}.json", body)
        super().put(queue, state, name, f'{{"payloadFile": "{self._folders[queue]}/{name[-36:]}.json"}}')

    def rewrite(self, queue: str, state: State, name: str, to: State, new: str, body: str) -> None:
        old, file = _file(name), _file(new)
        self._lay(queue, file, body)
        self._condemn(queue, old)
        super().rewrite(queue, state, name, to, new, f'{{"payloadFile": "{self._folders[queue]}/{file}"}}')

    def drop(self, queue: str, state: State, name: str) -> None:
        super().drop(queue, state, name)
        self._condemn(queue, _file(name))

    def read(self, queue: str, state: State, name: str) -> str:
        file = _file(name)
        try:
            data = self._group.read(self._folder(queue), file)
        except FileNotFoundError:
            raise Gone from None
        except OSError as trouble:
            raise self._trouble("read a payload", trouble) from None
        if len(data) > SMALL_ENOUGH_TO_KEEP:
            self._bulky.add(name[-36:])
        try:
            return data.decode()
        except UnicodeDecodeError as spoiled:
            raise Unfit(f"not UTF-8 at byte {spoiled.start}", data.decode("utf-8", "replace")) from None

    def commit(self) -> None:
        try:
            self._group.commit()
            super().commit()
            if self._condemned:
                self._bury_files()
        except OSError as trouble:
            self._break("make payloads durable", trouble)

    def abandon(self) -> None:
        self._group.abandon()
        self._condemned = []
        super().abandon()

    def tidy(self, now: int, idle: bool) -> None:
        super().tidy(now, idle)
        try:
            self._group.commit()
            if idle:
                self._group.trim(SPARES_TRIMMED_A_SECOND)
        except OSError as trouble:
            self._break("tidy up", trouble)

    def close(self) -> None:
        with suppress(OSError, StoreTrouble):
            self._group.commit()
            self._group.trim(self._group.most_spares)
            if not self.broken and not self._steps:
                self._save(FAREWELL, "{}", "setting")
        super().close()
        self._group.close()

    def queues(self) -> Mapping[str, str]:
        records = super().queues()
        try:
            for queue in records:
                self._make_folder(queue)
        except OSError as trouble:
            raise self._trouble("list queues", trouble) from None
        return records

    def save_queue(self, queue: str, record: str) -> None:
        try:
            self._make_folder(queue)
        except OSError as trouble:
            raise self._trouble("make a folder", trouble) from None
        super().save_queue(queue, record)

    def load(self) -> Iterator[Found]:
        try:
            make_folder(Path(self._scratch))
            self._group.sweep()
            self._bulky.clear()
            found = list(super().load())
            if not self._was_closed():
                self._clear_spares()
                if self._plan.check_on_start:
                    self._clear_orphans(found)
        except OSError as trouble:
            raise self._trouble("read what lies there", trouble) from None
        yield from found

    def check(self, repair: bool, now: int) -> list[Finding]:
        self.tidy(now, idle=False)
        try:
            orphans = list(self._orphans(list(super().load())))
            findings = [
                Finding("orphan_payload", self._queue_in(folder), f"{folder}/{file}", repair)
                for folder, file in orphans
            ]
            findings += super().check(repair, now)
            for queue, key, name in self._bodiless():
                self._mend(repair, key)
                findings.append(Finding("missing_payload", queue, f"{self._folders.get(queue)}/{_file(name)}", repair))
            if repair:
                self._clear_orphans(list(super().load()))
        except OSError as trouble:
            raise self._trouble("look the payloads over", trouble) from None
        return findings

    # --- files

    def _lay(self, queue: str, file: str, body: str) -> None:
        data = body.encode()
        if len(data) > SMALL_ENOUGH_TO_KEEP:
            self._bulky.add(file[:36])
        try:
            self._group.create(self._folder(queue), file, data)
        except OSError as trouble:
            # Nothing of it can be seen: only this message is refused, the group goes on.
            raise self._trouble("write a payload", trouble) from None

    def _condemn(self, queue: str, file: str) -> None:
        keep = file[:36] not in self._bulky
        self._bulky.discard(file[:36])
        self._condemned.append((self._folder(queue), file, keep))

    def _bury_files(self) -> None:
        """Their rows are gone for good."""
        for folder, file, keep in self._condemned:
            with suppress(FileNotFoundError):
                self._group.remove(folder, file, folder if keep else "")
        self._condemned = []

    def _folder(self, queue: str) -> str:
        return f"{self._root}/{self._folders[queue]}"

    def _make_folder(self, queue: str) -> None:
        name = folder_of(queue)
        folder = Path(self._root, name)
        if not folder.is_dir():
            make_folder(folder)
            if self._plan.durability == "power":
                sync_folder(folder.parent)
        self._folders[queue] = name

    def _queue_in(self, folder: str) -> str:
        return next((queue for queue, name in self._folders.items() if name == folder), "")

    # --- what does not fit together

    def _was_closed(self) -> bool:
        """Whether the life before this one said farewell: then nothing can be left over. True only once."""
        said = bool(self._query("select_body", (FAREWELL,)))
        if said:
            self._query("delete_body", (FAREWELL,))
        return said

    def _clear_orphans(self, found: Iterable[Found]) -> None:
        for folder, file in self._orphans(found):
            os.unlink(f"{self._root}/{folder}/{file}")

    def _clear_spares(self) -> None:
        """A killed life leaves them behind."""
        for folder in self._folders.values():
            for file in os.listdir(f"{self._root}/{folder}"):
                if file.endswith(SPARE):
                    os.unlink(f"{self._root}/{folder}/{file}")

    def _orphans(self, found: Iterable[Found]) -> Iterator[tuple[str, str]]:
        """Files that no row names: a publish that was never committed, or a removal that was."""
        named: dict[str, set[str]] = {}
        for queue, _, listed in found:
            named.setdefault(queue, set()).update(map(_file, listed))
        for queue, (text,) in ((queue, self._query("select_archived_names", (queue,))[0]) for queue in self._folders):
            named.setdefault(queue, set()).update(map(_file, (text or "").split("\n")))
        for queue, folder in self._folders.items():
            spoken_for = named[queue]
            for file in os.listdir(f"{self._root}/{folder}"):
                if file not in spoken_for and _looks_like_ours(file):
                    yield folder, file

    def _bodiless(self) -> Iterator[tuple[str, str, str]]:
        for queue, key, name in self._query("select_states"):
            if queue not in self._folders or not os.path.exists(f"{self._folder(queue)}/{_file(name)}"):
                yield queue, key, name


def _file(name: str) -> str:
    """Dead letters, also those out on a lease, carry their reason in the name."""
    return f"{name[-36:]}.dlq.json" if ".r" in name else f"{name[-36:]}.json"


def _looks_like_ours(file: str) -> bool:
    return file.endswith(".json") and names.is_id(file.removesuffix(".json").removesuffix(".dlq"))
