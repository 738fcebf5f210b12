"""One readable file per message: `ls` shows the state of a queue, `cat` a message.

    <root>/<queue>/inbox/       waiting            <root>/<queue>/dlq/       dead letters with their reason
    <root>/<queue>/processing/  out on a lease     <root>/<queue>/archive/   kept after the end
    <root>/<queue>/meta/queue.json                 name, policy and whether it is paused

A change of state is one rename. Two steps are needed only where the content changes too, into and out
of the dead letters: the new file comes first, so that a crash leaves the message twice, and `load`
knows which of the two is the later one.
"""

from __future__ import annotations

import os
import re
from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, NoReturn

import orjson

from kingdom.disk.atomic import Disk, make_folder, sync_folder
from kingdom.disk.bulk import SPARE, FileBatch
from kingdom.disk.codec import read_bytes, to_json
from kingdom.errors import BadFile
from kingdom.mq import message_format, names
from kingdom.mq.errors import StoreTrouble
from kingdom.mq.message_format import Unfit
from kingdom.mq.stores.base import FOLDERS, Finding, Found, Gone, Memo, Plan, State, Stray
from kingdom.mq.stores.folders import folder_of
from kingdom.mq.stores.request_journal import Journal

LARGEST_STRAY = 64 << 20
SMALL_ENOUGH_TO_KEEP = 16 << 10
SPARES_TRIMMED_A_SECOND = 512
DAY_MS = 86_400_000
RECORD = "queue.json"
_NAME = r"^(\d{7}-\d{13}-\d{8}-\d%s-[0-9a-f-]{36})\.json$"
_LISTED = re.compile(_NAME % r"[\w.]*", re.MULTILINE | re.ASCII)
_WAITING = re.compile(_NAME % r"\d*(?:\.[^\Wlr]\w*)*", re.MULTILINE | re.ASCII)
"""What has a lease or a reason in its name does not wait; in an inbox a person has laid it."""


class FileStore:
    by_hand = True

    def __init__(self, plan: Plan) -> None:
        self.broken = False
        self._plan = plan
        self._root = str(plan.files or plan.root / "fs")
        self._names = {**FOLDERS, **(plan.folders or {})}
        self._scratch = f"{self._root}/.scratch"
        self._group = FileBatch(self._scratch, durability=plan.durability, grouping=plan.grouping)
        self._disk = Disk(Path(self._scratch), durability=plan.durability)
        self._journal = Journal(f"{self._root}/.requests")
        self._places: dict[str, dict[str, str]] = {}
        self._bulky: set[str] = set()
        self._recent: list[tuple[str, str, str]] = []
        self._memos: list[Memo] = []
        self._looked: dict[str, int] = {}
        self._walk: Iterator[list[Stray]] = iter(())

    # --- messages

    def put(self, queue: str, state: State, name: str, body: str) -> None:
        data = body.encode()
        if len(data) > SMALL_ENOUGH_TO_KEEP:
            self._bulky.add(name[-36:])
        try:
            self._group.create(self._places[queue][state], f"{name}.json", data)
        except OSError as trouble:
            # Nothing of it can be seen: only this message is refused, the group goes on.
            raise self._trouble("write a message", trouble) from None

    def move(self, queue: str, state: State, name: str, to: State, new: str) -> None:
        places = self._places[queue]
        try:
            self._group.move(places[state], f"{name}.json", places[to], f"{new}.json")
        except FileNotFoundError:
            raise Gone from None
        except OSError as trouble:
            raise self._trouble("move a message", trouble) from None

    def rewrite(self, queue: str, state: State, name: str, to: State, new: str, body: str) -> None:
        places = self._places[queue]
        if not self._group.has(places[state], f"{name}.json"):
            raise Gone
        try:
            self._group.create(places[to], f"{new}.json", body.encode())
            self._group.remove(places[state], f"{name}.json")
        except OSError as trouble:
            self._break("bury or revive a message", trouble)

    def drop(self, queue: str, state: State, name: str) -> None:
        places = self._places[queue]
        spares = places["ready"]
        if self._bulky and name[-36:] in self._bulky:
            spares = ""
            self._bulky.discard(name[-36:])
        try:
            self._group.remove(places[state], f"{name}.json", spares)
        except FileNotFoundError:
            raise Gone from None
        except OSError as trouble:
            raise self._trouble("remove a message", trouble) from None

    def read(self, queue: str, state: State, name: str) -> str:
        try:
            data = self._group.read(self._places[queue][state], f"{name}.json")
        except FileNotFoundError:
            raise Gone from None
        except OSError as trouble:
            raise self._trouble("read a message", trouble) from None
        if len(data) > SMALL_ENOUGH_TO_KEEP:
            self._bulky.add(name[-36:])
        try:
            return data.decode()
        except UnicodeDecodeError as spoiled:
            raise Unfit(f"not UTF-8 at byte {spoiled.start}", data.decode("utf-8", "replace")) from None

    def ripen(self, queue: str, now: int) -> None:
        """Delayed and ready messages lie in the same folder."""

    # --- what is remembered

    def remember(self, memos: Iterable[Memo]) -> None:
        self._memos += memos

    def recall(self, since: int) -> Iterator[Memo]:
        """The journal, and what a crash kept out of it: that stands in the messages themselves."""
        try:
            yield from self._journal.read(since)
            recovered = self._recovered()
            if recovered:
                self._journal.write(recovered)
            self._recent = []
        except OSError as trouble:
            raise self._trouble("recall requests", trouble) from None
        yield from recovered

    def _recovered(self) -> list[Memo]:
        memos: list[Memo] = []
        batches: dict[tuple[str, str], dict[int, str]] = {}
        for queue, folder, name in self._recent:
            about = self._header(folder, name)
            created, message_id = names.created_of(name), name[-36:]
            if key := about.get("deduplicationKey"):
                memos.append(Memo("dedup", created, queue, key, (message_id,)))
            if request := about.get("requestId"):
                batches.setdefault((queue, request), {})[about.get("requestIndex", 0)] = message_id
        for (queue, request), ids in batches.items():
            whole = tuple(ids.get(index, "") for index in range(max(ids) + 1))
            created = max(names.created_of(message_id) for message_id in ids.values())
            memos.append(Memo("request", created, queue, request, whole))
        return memos

    def _header(self, folder: str, name: str) -> dict[str, Any]:
        with suppress(OSError, ValueError, Unfit):
            body = self._group.read(folder, f"{name}.json").decode()
            return message_format.header(message_format.original(body) if ".r" in name else body)
        return {}

    # --- the group

    def commit(self) -> None:
        """What is remembered goes down after the messages it is about: they tell it too as long as they lie here,
        so it must be safe only before they go."""
        try:
            if self._group.power:
                if self._group.has_removals:
                    self._journal.sync()
                self._group.commit()
            if self._memos:
                self._journal.write(self._memos)
                self._memos = []
        except OSError as trouble:
            self._break("make changes durable", trouble)

    def abandon(self) -> None:
        self._group.abandon()
        self._memos = []
        self.broken = False

    def tidy(self, now: int, idle: bool) -> None:
        try:
            if self._group.power:
                self._journal.sync()
            self._journal.forget(now - DAY_MS)
            if idle:
                self._group.trim(SPARES_TRIMMED_A_SECOND)
        except OSError as trouble:
            raise self._trouble("tidy up", trouble) from None

    def close(self) -> None:
        with suppress(OSError):
            self._journal.sync()
        self._journal.close()
        self._group.close()

    # --- queues

    def queues(self) -> Mapping[str, str]:
        records: dict[str, str] = {}
        try:
            make_folder(Path(self._root))
            for folder in self._queue_folders():
                about = self._record(folder)
                if about is not None:
                    self._settle(str(about.pop("queue")), folder)
                    records[self._queue_in(folder)] = orjson.dumps(about).decode()
        except OSError as trouble:
            raise self._trouble("list queues", trouble) from None
        return records

    def save_queue(self, queue: str, record: str) -> None:
        folder = self._folder(queue)
        try:
            for kind in FOLDERS:
                make_folder(Path(folder, self._names[kind]))
            self._disk.rewrite(
                Path(folder, self._names["meta"], RECORD), to_json({"queue": queue, **orjson.loads(record)})
            )
            if self._plan.durability == "power":
                sync_folder(Path(folder))
                sync_folder(Path(self._root))
        except OSError as trouble:
            raise self._trouble("keep a queue's policy", trouble) from None
        self._settle(queue, folder)

    def _folder(self, queue: str) -> str:
        return f"{self._root}/{folder_of(queue)}"

    def _queue_folders(self) -> list[str]:
        with os.scandir(self._root) as entries:
            return [entry.path for entry in entries if entry.is_dir() and not entry.name.startswith(".")]

    def _record(self, folder: str) -> dict[str, object] | None:
        """None for a folder that is no queue, or whose record a person spoiled and no name can be told."""
        try:
            about = orjson.loads(read_bytes(f"{folder}/{self._names['meta']}/{RECORD}"))
        except (FileNotFoundError, BadFile, orjson.JSONDecodeError):
            return None
        named = isinstance(about, dict) and isinstance(about.get("queue"), str)
        return about if named and folder_of(about["queue"]) == os.path.basename(folder) else None

    def _settle(self, queue: str, folder: str) -> None:
        inbox, processing = f"{folder}/{self._names['inbox']}", f"{folder}/{self._names['processing']}"
        self._places[queue] = {
            "ready": inbox,
            "delayed": inbox,
            "inflight": processing,
            "dlq": f"{folder}/{self._names['dlq']}",
            "archived": f"{folder}/{self._names['archive']}",
        }

    def _queue_in(self, folder: str) -> str:
        inbox = f"{folder}/{self._names['inbox']}"
        return next(queue for queue, places in self._places.items() if places["ready"] == inbox)

    # --- loading

    def load(self) -> Iterator[Found]:
        try:
            self._sweep_scratch()
            make_folder(Path(self._journal.folder))
            after = self._last_remembered()
            self._recent = []
            self._bulky.clear()
            for queue, places in list(self._places.items()):
                yield from self._load_queue(queue, places, after)
        except OSError as trouble:
            raise self._trouble("read what lies there", trouble) from None

    def _load_queue(self, queue: str, places: Mapping[str, str], after: str) -> Iterator[Found]:
        ready = self._taken_over(places["ready"], _WAITING)
        inflight, dead = (self._taken_over(places[state], _LISTED) for state in ("inflight", "dlq"))
        make_folder(Path(places["archived"]))
        if inflight or dead:
            ready, inflight, dead = self._once(places, ready, inflight, dead)
        kind = message_format.REMEMBERED
        for state, found in (("ready", ready), ("inflight", inflight), ("dlq", dead)):
            folder = places[state]
            self._recent += [(queue, folder, name) for name in found if name[-22] == kind and name[-36:-23] >= after]
        yield Found(queue, "ready", ready)
        yield Found(queue, "inflight", inflight)
        yield Found(queue, "dlq", dead)

    def _listed(self, folder: str) -> list[str]:
        return _LISTED.findall("\n".join(os.listdir(folder)))

    def _taken_over(self, folder: str, named: re.Pattern[str]) -> list[str]:
        """As a new life finds it: without the spares of the one before. What is not ours there is looked at later."""
        make_folder(Path(folder))
        changed = os.stat(folder).st_mtime_ns
        files = "\n".join(os.listdir(folder))
        found: list[str] = named.findall(files)
        if len(found) < files.count("\n") + bool(files):
            for file in files.split("\n"):
                if file.endswith(SPARE):
                    os.unlink(f"{folder}/{file}")
        else:
            self._looked[folder] = changed
        return found

    def _once(
        self, places: Mapping[str, str], ready: list[str], inflight: list[str], dead: list[str]
    ) -> tuple[list[str], list[str], list[str]]:
        """Where a crash left a message twice, the later state stays: revived, then buried, then leased."""
        few = {name[-36:] for name in (*inflight, *dead)}
        revived = {name[-36:] for name in ready if name[-36:] in few}
        buried = {name[-36:] for name in dead} - revived
        for state, found, later in (("dlq", dead, revived), ("inflight", inflight, revived | buried)):
            for name in [name for name in found if name[-36:] in later]:
                os.unlink(f"{places[state]}/{name}.json")
        return (
            ready,
            [name for name in inflight if name[-36:] not in revived and name[-36:] not in buried],
            [name for name in dead if name[-36:] not in revived],
        )

    def _sweep_scratch(self) -> None:
        make_folder(Path(self._scratch))
        self._group.sweep()

    def _last_remembered(self) -> str:
        """The time of the journal's last line, as message ids begin."""
        last = self._journal.last()
        text = f"{last:012x}"
        return f"{text[:8]}-{text[8:]}"

    # --- files laid in by hand

    def strays(self, budget: int, waiting: Mapping[str, Collection[str]]) -> list[Stray]:
        try:
            found = next(self._walk, None)
            if found is None:
                self._walk = self._walked(budget, waiting)
                found = next(self._walk)
        except OSError as trouble:
            self._walk = iter(())
            raise self._trouble("look for files laid in by hand", trouble) from None
        return found

    def _walked(self, budget: int, waiting: Mapping[str, Collection[str]]) -> Iterator[list[Stray]]:
        """Through all inboxes that changed, `budget` names at a step."""
        seen, found = 0, []
        for queue, places in list(self._places.items()):
            inbox = places["ready"]
            changed = os.stat(inbox).st_mtime_ns
            if self._looked.get(inbox) == changed:
                continue
            self._looked[inbox] = changed
            ours: list[str] = []
            at_once = not self._group.has_removals
            with os.scandir(inbox) as entries:
                for entry in entries:
                    seen += 1
                    if _WAITING.match(entry.name):
                        ours.append(entry.name)
                    elif (stray := self._stray(queue, entry.name)) is not None:
                        found.append(stray)
                    if seen >= budget:
                        yield found
                        seen, found, ours, at_once = 0, [], [], False
            if at_once:
                found += self._moved_back(queue, ours, waiting[queue])
        yield found

    def _moved_back(self, queue: str, files: Iterable[str], waiting: Iterable[str]) -> Iterator[Stray]:
        """Messages that a person took from where they lay, under names of ours. What a life has seen in one step
        it can compare; an inbox too long for that is compared at the next start."""
        for name in {file[:-5] for file in files}.difference(waiting):
            if (stray := self._stray(queue, f"{name}.json")) is not None:
                yield stray

    def _stray(self, queue: str, file: str) -> Stray | None:
        if file.startswith(".") or file.endswith(".tmp"):
            return None
        path = f"{self._places[queue]['ready']}/{file}"
        try:
            data = read_bytes(path, LARGEST_STRAY)
        except FileNotFoundError:
            return None
        except BadFile as unfit:
            self._reject(queue, file, str(unfit.facts["why"]))
            return None
        if len(data) > SMALL_ENOUGH_TO_KEEP:
            # Nothing of this size is kept as a spare; its id is not known yet, so none of this life is.
            self._group.most_spares = 0
        return Stray(queue, file, data.decode("utf-8", "replace"))

    def adopt(self, stray: Stray, name: str) -> None:
        inbox = self._places[stray.queue]["ready"]
        try:
            self._group.move(inbox, stray.file, inbox, f"{name}.json")
        except FileNotFoundError:
            raise Gone from None
        except OSError as trouble:
            raise self._trouble("adopt a file", trouble) from None

    def _reject(self, queue: str, file: str, why: str) -> None:
        """What is no file that could be read lies among the dead letters under its own name, with the reason."""
        places = self._places[queue]
        self._disk.rewrite(Path(places["dlq"], f"{file[:200]}.reason"), to_json({"file": file, "reason": why}))
        with suppress(FileNotFoundError):
            self._group.move(places["ready"], file, places["dlq"], file[:200])

    # --- looking it over

    def check(self, repair: bool, now: int) -> list[Finding]:
        findings: list[Finding] = []
        try:
            for queue, places in self._places.items():
                findings += self._check_queue(queue, places, repair, now)
            findings += [Finding("litter", "", name, False) for name in os.listdir(self._scratch)]
            known = {places["ready"].rpartition("/")[0] for places in self._places.values()}
            for folder in self._queue_folders():
                if folder not in known:
                    findings.append(Finding("invalid_state", "", f"{folder} is no queue: no {RECORD} in meta/", False))
        except OSError as trouble:
            raise self._trouble("look the files over", trouble) from None
        return findings

    def _check_queue(self, queue: str, places: Mapping[str, str], repair: bool, now: int) -> Iterator[Finding]:
        where: dict[str, str] = {}
        for state in ("ready", "inflight", "dlq"):
            for name in self._listed(places[state]):
                if where.setdefault(name[-36:], state) != state:
                    yield Finding("invalid_state", queue, f"{name[-36:]} is {where[name[-36:]]} and {state}", repair)
                try:
                    body = self.read(queue, state, name)
                    _ = message_format.original(body) if state == "dlq" else message_format.content(body, True)
                except (Unfit, Gone) as unfit:
                    what = f"{places[state]}/{name}.json: {unfit.args[0] if unfit.args else 'gone'}"
                    yield Finding("unreadable", queue, what, False)
        for name in self._listed(places["archived"]):
            if names.due_of(name) + self._plan.archive_keep_ms <= now:
                if repair:
                    os.unlink(f"{places['archived']}/{name}.json")
                yield Finding("stale_archive", queue, name, repair)

    # --- trouble

    def _trouble(self, action: str, trouble: OSError) -> StoreTrouble:
        why = f"{trouble.strerror or trouble} ({trouble.filename or self._root})"
        return StoreTrouble(backend="filesystem", action=action, why=why)

    def _break(self, action: str, trouble: OSError) -> NoReturn:
        self.broken = True
        raise self._trouble(action, trouble) from None
