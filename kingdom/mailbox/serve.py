"""The manager's desk: requests in, one commit, answers out.

    requests/x.json ── read, carried out ── commit ── responses/<client>/x.json ── x.json removed
          │                    │
          │                    ├─> processing/x.json   waits for a message, or must not run twice
          └─> dead/x.json      └─< found there at start: put back, or answered "look before you repeat"

A request is removed after its answer is there. So a killed manager's successor finds it and does it again,
which changes nothing for publish and ack, and costs a lease time for consume.
"""

from __future__ import annotations

import os
import time
import traceback
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import orjson

from kingdom.disk.atomic import Disk, make_folder
from kingdom.disk.codec import to_json
from kingdom.errors import Collision
from kingdom.home.places import is_hidden
from kingdom.mailbox import commands, requests
from kingdom.mailbox.commands import Command, Desk
from kingdom.mailbox.requests import Request, Unreadable
from kingdom.mailbox.responses import Answers, owner_of
from kingdom.mq import calls
from kingdom.mq.calls import Call, Data, Unfinished
from kingdom.mq.configuration import Settings
from kingdom.mq.errors import Refusal, StoreTrouble
from kingdom.times import stamp

MOST_AT_ONCE = 512
LOOK_AGAIN_SECONDS = 25.0
DRAFT_IS_LITTER_AFTER = 3600.0
TRY_AGAIN_SECONDS = 1.0
INTERRUPTED = "the manager ended while it did this; look what is done before you repeat it"

Say = Callable[[str, str], None]
"""A sentence for people and its level."""


@dataclass(slots=True)
class Deed:
    """A request in hand, where its file lies, and how it ended."""

    request: Request
    folder: str
    name: str
    command: Command | None
    answer: bytes = b""
    code: str | None = None
    seconds: float = 0.0
    done: int = 0

    @property
    def path(self) -> str:
        return f"{self.folder}/{self.request.filename}"


@dataclass(slots=True)
class Waiter:
    """A consumer that would rather wait than hear that there is nothing."""

    deed: Deed
    queue: str
    until_ms: float


class Server:
    """Serves one mailbox. `desk.clock` is in seconds since the epoch."""

    def __init__(self, desk: Desk, settings: Settings, disk: Disk, quick: Disk, answers: Answers, say: Say) -> None:
        """`disk` is as durable as the store; `quick` is for what a power cut may undo."""
        self._desk = desk
        self._engine = desk.engine
        self._box = settings.box
        self._clients = settings.config["ipc"]["clients"]
        self._mode = int(settings.config["ipc"]["requestsMode"], 8)
        self._disk = disk
        self._quick = quick
        self._answers = answers
        self._say = say
        self._requests = str(settings.box.requests)
        self._processing = str(settings.box.processing)
        self._arrived: deque[str] = deque()
        self._looked = float("-inf")
        self._look_again = True
        self._sweep_at = float("-inf")
        self._waiting: dict[str, list[Waiter]] = {}
        self._unsaid: dict[str, Deed] = {}
        self._going_on: deque[Deed] = deque()
        self._stuck: set[str] = set()
        self._found: set[str] = set()
        self._owners: dict[str, int] = {}

    def open(self) -> None:
        """Make the folders, take back what a killed life left in processing/."""
        for folder in (self._box.root, self._box.requests, self._box.processing, self._box.dead):
            make_folder(folder)
        if self._mode & 0o077:
            os.chmod(self._box.root, 0o711)
        os.chmod(self._box.requests, self._mode)
        self._owners = {
            client: uid for client, about in self._clients.items() if (uid := owner_of(client, about)) is not None
        }
        self._answers.open()
        self._take_back()
        self._found = set(os.listdir(self._requests))

    def close(self) -> None:
        """Those who wait are found in processing/ by the next life."""
        self._answers.close()

    # --- one turn

    def serve_arrivals(self, names: Iterable[str] | None) -> bool:
        """Carry out what arrived; None means look for yourself. Returns whether anything was done.

        StoreTrouble when the store failed: all who asked have been told, and the role shows it.
        """
        now = self._desk.clock()
        if names is None or self._look_again or now - self._looked >= LOOK_AGAIN_SECONDS or now < self._looked:
            names = self._look(now)
        self._arrived.extend(names)
        group: list[Deed] = []
        trouble = self._sweep(now)
        try:
            self._go_on(group)
            for name in self._next_names():
                self._take(name, group)
            self._serve_waiting(group)
            self._engine.commit()
        except StoreTrouble as met:
            trouble = met
            self._undecided(group, met)
        worked = bool(group)
        self._say_all(group)
        worked = self._tidy() or worked or bool(self._arrived)
        if trouble is not None:
            raise trouble
        return worked

    def _sweep(self, now: float) -> StoreTrouble | None:
        """What goes wrong here must not keep those who ask from being answered."""
        if now * 1000 < self._sweep_at:
            return None
        try:
            self._engine.sweep()
        except StoreTrouble as trouble:
            self._undecided([], trouble)
            return trouble
        return None

    def wait_seconds(self) -> float:
        """How long there is nothing to do unless somebody asks."""
        if self._arrived or self._going_on:
            return 0.0
        now = self._desk.clock()
        ends = [waiter.until_ms / 1000 for waiters in self._waiting.values() for waiter in waiters]
        due = self._engine.next_due()
        self._sweep_at = float("inf") if due is None else due
        if due is not None:
            ends.append(due / 1000)
        if (stale := self._answers.due()) is not None:
            ends.append(stale)
        if self._unsaid:
            ends.append(now + TRY_AGAIN_SECONDS)
        return max(0.0, min(ends) - now) if ends else LOOK_AGAIN_SECONDS * 2

    # --- taking requests

    def _look(self, now: float) -> list[str]:
        """Everything that lies in requests/, the oldest first; drafts that nobody will finish are removed."""
        found: list[tuple[int, str]] = []
        with os.scandir(self._requests) as entries:
            for entry in entries:
                with suppress(FileNotFoundError):
                    about = entry.stat(follow_symlinks=False)
                    if not is_hidden(entry.name):
                        found.append((about.st_mtime_ns, entry.name))
                    elif about.st_mtime + DRAFT_IS_LITTER_AFTER < now and entry.is_file(follow_symlinks=False):
                        os.unlink(entry.path)
        self._looked, self._look_again = now, False
        self._stuck.clear()
        return [name for _, name in sorted(found)]

    def _next_names(self) -> Iterator[str]:
        """Each name once, and no more than one turn should bear."""
        names: dict[str, None] = {}
        while self._arrived and len(names) < MOST_AT_ONCE:
            names[self._arrived.popleft()] = None
        return (name for name in names if name not in self._unsaid and name not in self._stuck)

    def _take(self, name: str, group: list[Deed]) -> None:
        if is_hidden(name):
            return
        try:
            request = requests.read(self._requests, name)
            self._check_sender(request)
        except FileNotFoundError:
            return
        except Unreadable as trouble:
            self._bury(self._box.requests, name, trouble)
            return
        except OSError as trouble:
            self._leave(name, f"cannot be read: {trouble}")
            return
        found = commands.find(request.command)
        name, command = found if found else (request.command.lower()[:40], None)
        deed = Deed(request, self._requests, name, command)
        group.append(deed)
        if request.deadline_ms and self._desk.clock() * 1000 > request.deadline_ms:
            self._refuse(deed, "ERR_TIMEOUT", "its deadline had passed before it was read; nothing was done")
        elif command is None:
            known = ", ".join(commands.COMMANDS)
            self._refuse(deed, "ERR_UNKNOWN_COMMAND", f"no command named {request.command[:80]!r}; known are {known}")
        else:
            self._carry_out(deed, command, group)

    def _check_sender(self, request: Request) -> None:
        """A client that belongs to a user is believed only from that user; and its answer must have a place."""
        why = ""
        if (owner := self._owners.get(request.client)) is not None:
            sender = os.lstat(f"{self._requests}/{request.filename}").st_uid
            if sender != owner:
                why = f"client {request.client!r} belongs to uid {owner}, and uid {sender} wrote this"
        if not why and not self._answers.has_room_for(request.client):
            why = f"the place of answers to {request.client!r} is no folder"
        if why:
            raise Unreadable("ERR_INVALID_REQUEST", why, None, None)

    def _set_apart(self, deed: Deed, disk: Disk) -> None:
        if deed.folder == self._processing:
            return
        apart = self._box.processing / deed.request.filename
        with suppress(FileNotFoundError):
            os.unlink(apart)
        disk.move(Path(deed.path), apart)
        deed.folder = self._processing

    def _leave(self, name: str, why: str) -> None:
        """Not now, and not over and over: the next look at the whole folder tries again."""
        self._stuck.add(name)
        self._say(f"left {name!r} in {self._box.requests}: {why}", "error")

    # --- carrying out

    def _carry_out(self, deed: Deed, command: Command, group: list[Deed]) -> None:
        request = deed.request
        began = time.perf_counter()
        try:
            if command.once:
                # Durably, before it begins: a successor that finds it there does not run it again.
                self._set_apart(deed, self._disk)
            data = command.run(self._desk, self._call(request))
            if isinstance(data, Unfinished):
                deed.done += data.done
                self._going_on.append(deed)
                group.remove(deed)
            elif command.empty is not None and command.empty(data) and (wait := calls.wait_ms(request.payload)):
                self._park(deed, wait)
                group.remove(deed)
            else:
                if deed.done and "purged" in data:
                    data["purged"] += deed.done
                self._answer(deed, data)
        except Refusal as refusal:
            self._refuse(deed, refusal.code, str(refusal))
        except StoreTrouble:
            raise
        except FileNotFoundError:
            group.remove(deed)  # taken back by its client
        except Exception:  # noqa: BLE001
            # The edge of one request: a defect of ours must not end the manager, whose successor would meet it again.
            self._say(f"a defect met {deed.name} {request.id}: {traceback.format_exc(limit=-6)}", "error")
            self._refuse(deed, "ERR_INTERNAL_ERROR", "a defect of the manager; its log says more")
        deed.seconds += time.perf_counter() - began

    def _call(self, request: Request) -> Call:
        again = bool(self._found) and request.filename in self._found
        return Call(request.payload, request.client, request.id, again)

    def _go_on(self, group: list[Deed]) -> None:
        """One more step of what is too long for one turn."""
        for _ in range(len(self._going_on)):
            deed = self._going_on.popleft()
            group.append(deed)
            assert deed.command is not None
            self._carry_out(deed, deed.command, group)

    def _undecided(self, group: list[Deed], trouble: StoreTrouble) -> None:
        """Nobody knows what of this group is on the disk: everybody hears so, and a publish may be repeated safely."""
        with suppress(StoreTrouble):
            self._engine.commit()
        self._look_again = True
        for deed in group:
            self._refuse(deed, "ERR_INTERNAL_ERROR", f"{trouble}; it may be done or not")

    # --- long polls

    def _park(self, deed: Deed, wait: int) -> None:
        request = deed.request
        until = self._desk.clock() * 1000 + wait
        if request.deadline_ms:
            until = min(until, request.deadline_ms)
        self._set_apart(deed, self._quick)
        waiter = Waiter(deed, request.payload["queue"], until)
        self._waiting.setdefault(waiter.queue, []).append(waiter)

    def _serve_waiting(self, group: list[Deed]) -> None:
        if not self._waiting:
            self._engine.arrived()
            return
        for queue in self._engine.arrived() & self._waiting.keys():
            self._hand_out(queue, group)
        now = self._desk.clock() * 1000
        for queue, waiters in list(self._waiting.items()):
            late = [waiter for waiter in waiters if waiter.until_ms <= now]
            for waiter in late:
                waiters.remove(waiter)
                self._end_wait(waiter, group)
            if not waiters:
                del self._waiting[queue]

    def _hand_out(self, queue: str, group: list[Deed]) -> None:
        """What became ready goes to those who wait, the longest waiting first."""
        still: list[Waiter] = []
        for waiter in self._waiting[queue]:
            request, command = waiter.deed.request, waiter.deed.command
            assert command is not None
            consumer = request.payload.get("consumerId") or request.client
            if not self._engine.has_ready(queue, consumer):
                still.append(waiter)
            elif os.path.lexists(waiter.deed.path):  # else its client has gone
                self._retry(waiter, command, group, still)
        self._waiting[queue] = still

    def _retry(self, waiter: Waiter, command: Command, group: list[Deed], still: list[Waiter]) -> None:
        deed = waiter.deed
        try:
            data = command.run(self._desk, self._call(deed.request))
        except Refusal as refusal:
            self._refuse(deed, refusal.code, str(refusal))
            group.append(deed)
            return
        if isinstance(data, Unfinished) or command.empty is None or command.empty(data):
            still.append(waiter)
            return
        self._answer(deed, data)
        group.append(deed)

    def _end_wait(self, waiter: Waiter, group: list[Deed]) -> None:
        none: Data = {"messages": []} if waiter.deed.name == "consume_batch" else {"message": None}
        self._answer(waiter.deed, none)
        group.append(waiter.deed)

    # --- answers

    def _answer(self, deed: Deed, data: Data) -> None:
        deed.code = None
        deed.answer = _line({"requestId": deed.request.id, "ok": True, "data": data})

    def _refuse(self, deed: Deed, code: str, why: str) -> None:
        deed.code = code
        deed.answer = _refusal(deed.request.id, code, why)

    def _say_all(self, group: list[Deed]) -> None:
        """After the commit: the answer first, then the request's end, so that a kill between them asks again."""
        for deed in [*self._unsaid.values(), *group]:
            try:
                self._answers.give(deed.request.client, deed.request.id, deed.answer)
                self._answers.end(deed.folder, deed.request.filename)
            except FileNotFoundError:
                pass
            except OSError as trouble:
                # A full disk: what is done stays done, and its answer waits for space.
                if deed.request.filename not in self._unsaid:
                    self._say(f"cannot answer {deed.request.client} yet: {trouble}", "error")
                self._unsaid[deed.request.filename] = deed
                continue
            self._unsaid.pop(deed.request.filename, None)
            self._found.discard(deed.request.filename)
            self._desk.figures.count(deed.name, deed.code, deed.seconds)

    # --- what is no request

    def _bury(self, folder: Path, name: str, trouble: Unreadable) -> None:
        """To dead/ with its reason; its sender is told where that can be read."""
        self._desk.figures.count("unreadable", trouble.code)
        grave = self._free_grave(name)
        note: dict[str, Any] = {"file": name, "reason": trouble.why, "code": trouble.code, "buried_at": self._now()}
        try:
            self._quick.rewrite(grave.with_name(f"{grave.name}.reason"), to_json(_printable(note)))
            self._quick.move(folder / name, grave)
        except FileNotFoundError:
            return
        except (OSError, Collision) as stuck:
            self._leave(name, f"{trouble.why}, and it cannot be moved to {grave}: {stuck}")
            return
        self._say(f"buried {name!r} as {grave}: {trouble.why}", "warn")
        if trouble.request_id is not None and trouble.client is not None and self._answers.has_room_for(trouble.client):
            with suppress(OSError):
                answer = _refusal(trouble.request_id, trouble.code, trouble.why)
                self._answers.give(trouble.client, trouble.request_id, answer)

    def _free_grave(self, name: str) -> Path:
        plain = name.encode("utf-8", "backslashreplace").decode().replace("\n", "\\n")
        if len(plain.encode()) > 200:
            plain = plain.encode()[:160].decode("utf-8", "ignore")
        grave, again = self._box.dead / plain, 1
        while os.path.lexists(grave):
            again += 1
            grave = self._box.dead / f"{plain}.{again}"
        return grave

    # --- before and after

    def _take_back(self) -> None:
        """What a killed life had set apart: waits are asked again, the rest is answered as undecided."""
        for name in sorted(os.listdir(self._processing)):
            try:
                request = requests.read(self._processing, name)
            except FileNotFoundError:
                continue
            except Unreadable as trouble:
                self._bury(self._box.processing, name, trouble)
                continue
            found = commands.find(request.command)
            if found and found[1].once:
                self._tell_interrupted(request, found[0])
                continue
            with suppress(FileNotFoundError):
                try:
                    self._quick.move(self._box.processing / name, self._box.requests / name)
                except Collision:
                    os.unlink(self._box.processing / name)

    def _tell_interrupted(self, request: Request, name: str) -> None:
        if self._answers.has_room_for(request.client):
            self._answers.give(request.client, request.id, _refusal(request.id, "ERR_INTERNAL_ERROR", INTERRUPTED))
        self._desk.figures.count(name, "ERR_INTERNAL_ERROR")
        self._say(f"{name} {request.id} of {request.client} was interrupted and is not repeated", "warn")
        os.unlink(self._box.processing / request.filename)

    def _tidy(self) -> bool:
        due = self._answers.due()
        if due is None or due > self._desk.clock():
            return False
        if removed := self._answers.sweep():
            self._say(f"removed {removed} old answers", "info")
        return removed > 0

    def _now(self) -> str:
        return stamp(self._desk.clock())


def _line(value: Data) -> bytes:
    return orjson.dumps(value, option=orjson.OPT_APPEND_NEWLINE)


def _refusal(request_id: str, code: str, why: str) -> bytes:
    error = {"code": code, "message": _plain(why)}
    return _line({"requestId": request_id, "ok": False, "error": error})


def _printable(note: dict[str, Any]) -> dict[str, Any]:
    return {key: _plain(part) for key, part in note.items()}


def _plain(text: str) -> str:
    """Names of files may hold bytes that are no characters."""
    return text.encode("utf-8", "backslashreplace").decode()
