"""One turn of the manager: requests in, one commit, answers out.

    requests/x.json ── read, carried out ── commit ── responses/<client>/x.json ── x.json removed
          │                    │
          │                    ├─> processing/x.json   waits for a message, or must not run twice
          └─> dead/x.json      └─< found there at start: put back, or answered "look before you repeat"

A request is removed after its answer is there. So a killed manager's successor finds it and does it again,
which changes nothing for publish and ack, and costs a lease time for consume.
"""

from __future__ import annotations

import os
import stat
import time
import traceback
from collections import deque
from collections.abc import Callable, Iterable
from contextlib import suppress
from pathlib import Path

from kingdom.base.disk.atomic import Disk, make_folder
from kingdom.base.errors import Collision
from kingdom.base.home.places import is_hidden
from kingdom.mq.call_fields import WAIT, Call, Data
from kingdom.mq.calls import CommandRow, OngoingCall
from kingdom.mq.configuration import QueueSettings
from kingdom.mq.errors import Refusal, StoreError
from kingdom.mq.mailbox import commands, requests
from kingdom.mq.mailbox.commands import CommandContext
from kingdom.mq.mailbox.counters import UNKNOWN
from kingdom.mq.mailbox.dead import Bounds, DeadRequests
from kingdom.mq.mailbox.long_polls import LongPolls
from kingdom.mq.mailbox.pending import PendingRequest, refusal
from kingdom.mq.mailbox.requests import MailboxRequest, Unreadable
from kingdom.mq.mailbox.responses import Responses
from kingdom.mq.mailbox.senders import OTHERS_MAY_WRITE, Senders
from kingdom.mq.rights import Rights

MOST_AT_ONCE = 512
MOST_SECONDS = 0.03
"""Processor time for what is carried out in a turn, but for the last request of it."""
LOOK_AGAIN_SECONDS = 25.0
DRAFT_IS_LITTER_AFTER = 86400.0
TRY_AGAIN_SECONDS = 1.0
LIST_THEM = "set ipc.requestsMode, and list in ipc.clients who may do what"
INTERRUPTED = "the manager ended while it did this; look what is done before you repeat it"

Report = Callable[[str, str], None]
"""A sentence for people and its level."""


class Server:
    """Serves one mailbox. `context.clock` is in seconds since the epoch."""

    def __init__(
        self,
        context: CommandContext,
        settings: QueueSettings,
        disk: Disk,
        unsynced: Disk,
        responses: Responses,
        report: Report,
    ) -> None:
        """`disk` is as durable as the store; `unsynced` is for what a power cut may undo."""
        self._context = context
        self._engine = context.engine
        self._folders = settings.box
        self._clients = settings.config["ipc"]["clients"]
        mode = settings.config["ipc"]["requestsMode"]
        #: None: a folder that is there keeps its mode.
        self._mode = int(mode, 8) if mode else None
        self._disk = disk
        self._unsynced = unsynced
        self._responses = responses
        self._report = report
        self._requests = str(settings.box.requests)
        self._processing = str(settings.box.processing)
        self._arrived: deque[str] = deque()
        self._looked = float("-inf")
        self._look_again = True
        self._sweep_at = float("-inf")
        self._continued: deque[PendingRequest] = deque()
        #: Names of requests that were begun before this turn and still lie in requests/: they are not begun again.
        self._begun: set[str] = set()
        self._long_polls = LongPolls(context, self._call, self._continued.append)
        #: Carried out, but the disk had no room for the answer: by the request's file name.
        self._unanswered: dict[str, PendingRequest] = {}
        #: Names of files that can be neither read nor moved away, until the next look at the whole folder.
        self._stuck: set[str] = set()
        #: Names of requests that were here at the start: a manager before us may have carried them out.
        self._found: set[str] = set()
        self._senders = Senders(self._clients, self._mode)
        keep = settings.config["ipc"]["deadKeep"]
        bounds = Bounds(keep["files"], keep["mib"] * (1 << 20), keep["days"] * 86400)
        self._dead = DeadRequests(settings.box.dead, unsynced, bounds, context.clock, report)
        context.figures["dead"] = self._dead.as_json

    def open(self) -> None:
        """Make the folders and take back what a killed manager left in processing/."""
        for folder in (self._folders.root, self._folders.requests, self._folders.processing, self._folders.dead):
            make_folder(folder)
        if self._mode is not None:
            if self._mode & 0o077:
                root = stat.S_IMODE(os.stat(self._folders.root).st_mode)
                os.chmod(self._folders.root, root | 0o711)
            os.chmod(self._folders.requests, self._mode)
        elif os.stat(self._folders.requests).st_mode & OTHERS_MAY_WRITE and not self._senders.is_open:
            self._report(f"other users may write to {self._requests}, and do everything: {LIST_THEM}", "warn")
        self._responses.open()
        self._dead.open()
        self._take_back()
        self._found = set(os.listdir(self._requests))

    def close(self) -> None:
        """Close what is open. Requests that wait for a message stay in processing/, for the next manager to find."""
        self._responses.close()

    def serve_arrivals(self, names: Iterable[str] | None) -> bool:
        """Carry out the requests of these names; None: look into the folder. Return whether anything was done.

        StoreError when the store failed, after all who asked were answered so.
        """
        now = self._context.clock()
        if names is None or self._look_again or now - self._looked >= LOOK_AGAIN_SECONDS or now < self._looked:
            names = self._look(now)
        self._arrived.extend(names)
        group: list[PendingRequest] = []
        self._begun = {
            pending.request.filename for pending in self._continued if pending.path.startswith(f"{self._requests}/")
        }
        failure = self._sweep(group)
        try:
            self._continue(group)
            self._take_arrivals(group)
            self._long_polls.serve(group)
            self._engine.commit()
        except StoreError as error:
            failure = error
            self._refuse_as_undecided(group, error)
        worked = bool(group)
        self._send_answers(group)
        worked = self._remove_old_answers() or worked or bool(self._arrived)
        if failure is not None:
            raise failure
        return worked

    def _sweep(self, refused: list[PendingRequest]) -> StoreError | None:
        """Let the engine do what is due. A failure is returned: it must not keep those who ask from being answered."""
        if self._engine.clock() < self._sweep_at:
            return None
        try:
            self._engine.sweep()
        except StoreError as error:
            self._refuse_as_undecided(refused, error)
            return error
        return None

    def wait_seconds(self) -> float:
        """Return how long there is nothing to do unless a request arrives."""
        if self._arrived or self._continued:
            return 0.0
        due = self._engine.next_due()
        self._sweep_at = float("inf") if due is None else due
        now_ms = self._engine.clock()
        seconds = [(at - now_ms) / 1000 for at in (due, self._long_polls.next_end()) if at is not None]
        if (sweep_at := self._responses.next_sweep()) is not None:
            seconds.append(sweep_at - self._context.clock())
        if self._unanswered:
            seconds.append(TRY_AGAIN_SECONDS)
        return max(0.0, min(seconds, default=LOOK_AGAIN_SECONDS * 2))

    def _look(self, now: float) -> list[str]:
        """Return all names in requests/, the oldest first. Abandoned drafts are removed."""
        found: list[tuple[int, str]] = []
        litter_before = min(now, self._engine.clock() / 1000) - DRAFT_IS_LITTER_AFTER
        with os.scandir(self._requests) as entries:
            for entry in entries:
                with suppress(FileNotFoundError):
                    about = entry.stat(follow_symlinks=False)
                    if not is_hidden(entry.name):
                        found.append((about.st_mtime_ns, entry.name))
                    elif about.st_mtime < litter_before and entry.is_file(follow_symlinks=False):
                        os.unlink(entry.path)
        self._dead.tidy()
        self._looked, self._look_again = now, False
        self._stuck.clear()
        return [name for _, name in sorted(found)]

    def _take_arrivals(self, group: list[PendingRequest]) -> None:
        """Carry out what has arrived; what there is no time for comes first in the next turn."""
        names = self._next_names()
        until, soonest = time.thread_time() + MOST_SECONDS / 2, time.monotonic() + MOST_SECONDS / 2
        for index, name in enumerate(names):
            # The thread's own time costs a call of the kernel, and never goes faster than the clock.
            if index and time.monotonic() >= soonest and time.thread_time() >= until:
                self._arrived.extendleft(reversed(names[index:]))
                break
            self._take(name, group)

    def _next_names(self) -> list[str]:
        """Return each name once, and no more than one turn should bear."""
        names: dict[str, None] = {}
        while self._arrived and len(names) < MOST_AT_ONCE:
            names[self._arrived.popleft()] = None
        left_alone = self._begun.union(self._unanswered, self._stuck)
        return [name for name in names if name not in left_alone]

    def _take(self, name: str, group: list[PendingRequest]) -> None:
        """Read one request and carry it out."""
        if is_hidden(name):
            return
        try:
            request = requests.read(self._requests, name)
            rights = self._check_sender(request)
        except FileNotFoundError:
            return
        except Unreadable as error:
            self._move_to_dead(self._folders.requests, name, error)
            return
        except OSError as error:
            self._leave(name, f"cannot be read: {error}")
            return
        found = commands.find(request.command)
        command_name, command = found or (UNKNOWN, None)
        locked = f"{self._folders.responses}/{request.client}/{request.locked}" if request.locked else ""
        path = f"{self._requests}/{request.filename}"
        pending = PendingRequest(request, path, command_name, command, rights=rights, locked=locked)
        group.append(pending)
        if request.deadline_ms and self._context.clock() * 1000 > request.deadline_ms:
            before = " by this manager; one before it may have done it" if request.filename in self._found else ""
            pending.refuse("ERR_TIMEOUT", f"its deadline had passed before it was read; nothing was done{before}")
        elif command is None:
            known = ", ".join(commands.COMMANDS)
            pending.refuse("ERR_UNKNOWN_COMMAND", f"no command named {request.command[:80]!r}; known are {known}")
        else:
            self._carry_out(pending, command, group)

    def _check_sender(self, request: MailboxRequest) -> Rights | None:
        """Return what the sender of a request may do; None: everything. Refuse one in the name of another
        user's client, and one whose answer has no folder to go to."""
        rights = self._senders.rights_of(request)
        if not self._responses.has_folder_for(request.client):
            why = f"answers to {request.client!r} have nowhere to go: responses/{request.client} is not a folder"
            raise Unreadable("ERR_INVALID_REQUEST", why, None, None)
        return rights

    def _set_apart(self, pending: PendingRequest, disk: Disk) -> None:
        """Move a request to processing/. An older one of its client under the same id is withdrawn with that."""
        if pending.path.startswith(f"{self._processing}/"):
            return
        apart = _free_path(self._folders.processing, pending.request)
        disk.move(Path(pending.path), apart)
        pending.path = str(apart)

    def _leave(self, name: str, why: str) -> None:
        """Leave a file where it is: the next look at the whole folder tries again."""
        self._stuck.add(name)
        self._report(f"left {name!r} in {self._folders.requests}: {why}", "error")

    def _carry_out(
        self, pending: PendingRequest, command: CommandRow[CommandContext], group: list[PendingRequest]
    ) -> None:
        """Answer a request, or let it wait or go on later; then it leaves the group."""
        began = time.perf_counter()
        try:
            if pending.work is None:
                command.check(pending.rights, pending.request.payload)
                if command.run_once(pending.request.payload):
                    # Durably, before it begins: a successor that finds it there does not run it again.
                    self._set_apart(pending, self._disk)
                pending.work = OngoingCall(command, self._call(pending))
            data = pending.work.go_on(self._context)
            if data is None:
                self._continued.append(pending)
                group.remove(pending)
            elif command.nothing is not None and data == command.nothing and (wait := self._call(pending)[WAIT]):
                self._set_apart(pending, self._unsynced)
                self._long_polls.add(pending, command, command.nothing, wait)
                group.remove(pending)
            else:
                pending.succeed(data)
        except Refusal as refused:
            pending.refuse(refused.code, str(refused))
        except StoreError:
            raise
        except FileNotFoundError:
            group.remove(pending)  # taken back by its client
        except Exception:  # noqa: BLE001
            # The edge of one request: a defect of ours must not end the manager, whose successor would meet it again.
            last_calls = traceback.format_exc(limit=-6)
            self._report(f"a defect in {pending.name}, request {pending.request.id}: {last_calls}", "error")
            pending.refuse("ERR_INTERNAL_ERROR", "a defect of the manager; its log says more")
        pending.seconds += time.perf_counter() - began

    def _call(self, pending: PendingRequest) -> Call:
        request = pending.request
        again = bool(self._found) and request.filename in self._found
        return Call(request.payload, request.client, request.id, again, pending.rights)

    def _continue(self, group: list[PendingRequest]) -> None:
        """Carry out one more step of the commands that are too long for one turn, as many as there is time for."""
        if not self._continued:
            return
        until = time.thread_time() + MOST_SECONDS / 2
        for _ in range(len(self._continued)):
            if time.thread_time() >= until:
                break
            pending = self._continued.popleft()
            group.append(pending)
            assert pending.command is not None
            self._carry_out(pending, pending.command, group)

    def _refuse_as_undecided(self, group: list[PendingRequest], error: StoreError) -> None:
        """Refuse a group of which nobody knows what is on the disk; a publish may be repeated safely.

        Those that were to go on later are refused with it: what was done of them last may be lost, and the engine
        forgets what they go on with.
        """
        with suppress(StoreError):
            self._engine.commit()
        self._look_again = True
        group.extend(self._continued)
        self._continued.clear()
        leases = [lease for pending in group if pending.answer for lease in pending.leases()]
        for pending in group:
            pending.refuse("ERR_INTERNAL_ERROR", f"{error}; it may be done or not")
        # A store of files has moved what was to be handed out: it would be leased to somebody who does not know it.
        with suppress(StoreError):
            self._take_back_leases(leases)

    def _send_answers(self, group: list[PendingRequest]) -> None:
        """Send the answers, after the commit; each before its request is removed: a kill in between asks again."""
        given_back: list[PendingRequest] = []
        for pending in [*self._unanswered.values(), *group]:
            request, is_sent = pending.request, False
            try:
                self._responses.write(request.client, request.id, pending.answer)
                is_sent = True
                if not self._responses.remove_request(pending.path, request.identity):
                    self._arrived.append(request.filename)
            except FileNotFoundError:
                pass
            except OSError as error:
                # A full disk: what is done stays done, and its answer waits for space; what it hands out does not.
                if not is_sent and self._give_back(pending, error):
                    self._unanswered.pop(request.filename, None)
                    given_back.append(pending)
                    continue
                if request.filename not in self._unanswered:
                    self._report(f"cannot answer {request.client} yet: {error}", "error")
                self._unanswered[request.filename] = pending
                continue
            self._unanswered.pop(request.filename, None)
            self._found.discard(request.filename)
            self._context.counters.count(pending.name, pending.code, self._context.clock(), pending.seconds)
        if given_back:
            self._send_answers(given_back)

    def _give_back(self, pending: PendingRequest, why: OSError) -> bool:
        """Give back the messages that an answer hands out, and refuse these instead. Return whether there were any."""
        if not (leases := pending.leases()):
            return False
        try:
            self._take_back_leases(leases)
        except StoreError as error:
            self._report(f"cannot take back what {pending.request.client} was to get: {error}", "error")
            return False
        size = len(pending.answer)
        pending.refuse_leases(f"an answer of {size} bytes cannot be written: {why.strerror}; all wait again")
        return True

    def _take_back_leases(self, leases: Iterable[Data]) -> None:
        """Let messages of which nobody has heard wait as before."""
        for lease in leases:
            with suppress(Refusal):
                self._engine.give_back(lease["messageKey"], lease["leaseId"])
        self._engine.commit()

    def _move_to_dead(self, folder: Path, name: str, error: Unreadable) -> None:
        """Move what cannot be read to dead/, with its reason beside it. Its sender is told if it can be."""
        self._context.counters.count("unreadable", error.code, self._context.clock())
        try:
            self._dead.bury(folder / name, error.code, error.why)
        except FileNotFoundError:
            return
        except (OSError, Collision) as failure:
            self._leave(name, f"{error.why}, and it cannot be moved to {self._folders.dead}: {failure}")
            return
        if error.request_id is not None and error.client is not None and self._can_hear(error, error.client):
            with suppress(OSError):
                answer = refusal(error.request_id, error.code, error.why)
                self._responses.write(error.client, error.request_id, answer)

    def _can_hear(self, error: Unreadable, client: str) -> bool:
        """Return whether the sender of what is refused looks for its answer in this client's folder."""
        if self._senders.may_hear(client, error.sender):
            return self._responses.has_folder_for(client)
        return error.sender is not None and self._responses.folder_owner(client) == error.sender.uid

    def _take_back(self) -> None:
        """Put back into requests/ what a killed manager had in processing/; what must not run twice is refused."""
        for name in sorted(os.listdir(self._processing)):
            try:
                request = requests.read(self._processing, name)
            except FileNotFoundError:
                continue
            except Unreadable as error:
                self._move_to_dead(self._folders.processing, name, error)
                continue
            found = commands.find(request.command)
            if found and found[1].run_once(request.payload):
                self._refuse_as_interrupted(request, found[0])
                continue
            with suppress(FileNotFoundError):
                if _holds_same(self._requests, request):
                    os.unlink(self._folders.processing / name)
                else:
                    back = _free_path(self._folders.requests, request)
                    self._unsynced.move(self._folders.processing / name, back)

    def _refuse_as_interrupted(self, request: MailboxRequest, name: str) -> None:
        if self._responses.has_folder_for(request.client):
            answer = refusal(request.id, "ERR_INTERNAL_ERROR", INTERRUPTED)
            self._responses.write(request.client, request.id, answer)
        self._context.counters.count(name, "ERR_INTERNAL_ERROR", self._context.clock())
        self._report(f"{name} {request.id} of {request.client} was interrupted and is not repeated", "warn")
        os.unlink(self._folders.processing / request.filename)

    def _remove_old_answers(self) -> bool:
        due = self._responses.next_sweep()
        if due is None or due > self._context.clock():
            return False
        if removed := self._responses.sweep():
            self._report(f"removed {removed} old answers", "info")
        return removed > 0


def _free_path(folder: Path, request: MailboxRequest) -> Path:
    """Return a free path for a request: clients may use the same ids. An older request of its client under the same
    id is removed, which withdraws it."""
    path, number = folder / request.filename, 1
    while os.path.lexists(path):
        if _holds_same(str(folder), request, path.name):
            os.unlink(path)
        else:
            number += 1
            path = folder / f"{number}~{request.filename}"
    return path


def _holds_same(folder: str, request: MailboxRequest, filename: str = "") -> bool:
    """Return whether a file holds a request of the same client under the same id."""
    try:
        other = requests.read(folder, filename or request.filename)
    except (FileNotFoundError, Unreadable):
        return False
    return (other.client, other.id) == (request.client, request.id)
