"""Talk to the queue manager through its mailbox: a call is a file, and so is its answer.

    with Client() as mq:
        mq.publish("telemetry", {"temp": 36.5})
        if delivery := mq.take("telemetry", wait=5):
            print(delivery.payload)
            mq.ack(delivery)

Threads may share a client: what they ask while one file is on its way goes together in the next one.
"""

from __future__ import annotations

import fcntl
import os
import time
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import Any

import orjson

from kingdom.base.disk.atomic import make_folder
from kingdom.base.disk.bulk import Relay
from kingdom.base.disk.codec import read_with_status
from kingdom.base.disk.lock import is_locked
from kingdom.base.errors import BadInput, KingdomError, NotRunning, TookTooLong
from kingdom.base.home.places import Places, find_home
from kingdom.base.runtime.wake import Mode, Waker
from kingdom.mq.mailbox_folders import LARGEST_REQUEST, MailboxFolders, check_client_id, check_request_id
from kingdom.mq.together import Together
from kingdom.mq.typed_calls import TOGETHER, Answer, Calls, Delivery, Published, Refused, refused_by

__all__ = ["MANAGER_LOCK", "START_IT", "Client", "Delivery", "Published", "Refused"]

LARGEST_ANSWER = 256 << 20
POLL_SECONDS = 0.05
LOOK_AGAIN_SECONDS = 1.0
EAGER_SECONDS = 0.0005
"""An answer is looked for so long before this thread sleeps, as long as answers come so soon."""
SPARES = 4
LARGEST_BATCH = 1 << 20
"""Bytes of calls that go together in one file."""
MANAGER_LOCK = "manager.lock"
START_IT = "start it with `kingdom start mailbox` or `python -m kingdom.mailbox`"


class NotListed(KingdomError):
    """the mailbox {root} belongs to uid {owner}, and uid {uid} is not its client {client!r}: {hint}"""

    def __init__(self, **facts: object) -> None:
        super().__init__(hint="say the clientId (--client-id) that its mq.yaml lists in ipc.clients for you", **facts)


class _MailboxLine:
    """One thread's way to the mailbox and back: a call at a time."""

    def __init__(self, requests: Path, folder: Path, wake: Mode) -> None:
        self._requests = requests
        self._folder = folder
        self._drafts = folder / f".{uuid.uuid4().hex[:16]}"
        self._wake = wake
        self._held = -1
        #: How long to look for an answer before this thread sleeps.
        self._eager = 0.0
        self._open()

    @property
    def name(self) -> str:
        """Return the name of the file in the client's folder that is locked as long as we live."""
        return self._drafts.name

    def send(self, name: str, request: bytes) -> None:
        try:
            self._files.put(f"{self._requests}/{name}", request)
        except FileNotFoundError:
            self._reopen()
            self._files.put(f"{self._requests}/{name}", request)

    def read(self, name: str, seconds: float, is_unique: bool) -> bytes | None:
        """Wait for the answer; None when there is none in time. `is_unique`: no other answer ever has this name."""
        path = f"{self._folder}/{name}"
        began = time.monotonic()
        end = began + seconds
        longest = POLL_SECONDS if self._waker.polls else LOOK_AGAIN_SECONDS
        while True:
            left = end - time.monotonic()
            if self._waker.wait(max(0.0, min(left, longest)), eager=self._eager) is None:
                self._reopen()
            try:
                data, status = read_with_status(path, LARGEST_ANSWER)
            except FileNotFoundError:
                if left <= 0:
                    return None
            else:
                self._eager = EAGER_SECONDS if time.monotonic() - began < EAGER_SECONDS else 0.0
                if is_unique:
                    self._files.end(path, status)
                else:
                    os.unlink(path)
                return data

    def close(self) -> None:
        self._waker.close()
        self._let_go()
        with suppress(OSError):
            self._files.sweep()
            self._drafts.rmdir()

    def _open(self) -> None:
        try:
            # By itself: as a parent it would be open to others, and written to in a slower way.
            make_folder(self._folder)
            make_folder(self._drafts)
        except PermissionError:
            owner = os.stat(self._requests).st_uid
            raise NotListed(
                root=self._requests.parent, owner=owner, uid=os.geteuid(), client=self._folder.name
            ) from None
        # A manager that is somebody else reads our requests by their mode.
        ours = os.stat(self._requests).st_uid == os.geteuid()
        self._files = Relay(str(self._drafts), most_spares=SPARES, mode=0o600 if ours else 0o644)
        self._files.sweep()
        # A manager gives nothing to a client that was killed while it waited.
        self._held = os.open(self._drafts, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        fcntl.flock(self._held, fcntl.LOCK_EX)
        # Answers are renamed in; what this thread writes over in the folder shall not wake it.
        self._waker = Waker([self._folder], self._wake, only_renamed=True)

    def _let_go(self) -> None:
        if self._held >= 0:
            os.close(self._held)
            self._held = -1

    def _reopen(self) -> None:
        """Make the client's folder again, which was removed while we were idle, and watch the new one."""
        self._waker.close()
        self._let_go()
        self._open()


@dataclass(slots=True)
class _ClientCall:
    """A call of one thread."""

    #: Its requestId.
    number: str
    written: bytes
    seconds: float
    answer: Answer | None = None


class Client(Calls):
    """Waits for each answer at most `timeout` seconds. A request without an answer is taken back if it still can be."""

    def __init__(
        self,
        root: MailboxFolders | Path | str | None = None,
        client_id: str | None = None,
        *,
        timeout: float = 30.0,
        wake: Mode = "inotify",
        clock: Callable[[], float] = time.time,
    ) -> None:
        """`root` is the mailbox's folder; without it, the one of the home around us."""
        if root is None:
            root = MailboxFolders.of_home(Places(find_home()))
        box = root if isinstance(root, MailboxFolders) else MailboxFolders.at(Path(root))
        self.root = box.root
        self._token = uuid.uuid4().hex
        self.client_id = check_client_id(client_id or f"py-{os.getpid()}-{self._token[:8]}")
        self.timeout = timeout
        self._named_by_caller = client_id is not None
        self._clock = clock
        self._requests = box.requests
        self._processing = box.processing
        self._folder = box.responses / self.client_id
        if not self._requests.is_dir():
            raise NotRunning(what="the queue manager", hint=f"there is no mailbox at {self.root}; {START_IT}")
        self._wake = wake
        self._numbers = count(1)
        #: Ways to the mailbox that no thread needs just now.
        self._lines: list[_MailboxLine] = []
        self._is_closed = False
        self._together = Together(self._ask)
        self._lines.append(self._new_line())

    def manager_runs(self) -> bool:
        try:
            return is_locked(self.root / MANAGER_LOCK)
        except PermissionError:
            return True

    def call(
        self,
        command: str,
        payload: Mapping[str, Any],
        *,
        request_id: str | None = None,
        timeout: float | None = None,
    ) -> Answer:
        """Send any command by its name and return the data of its answer.

        Refused when the manager says no, TookTooLong or NotRunning when it says nothing.
        """
        seconds = self._timeout(timeout)
        number = check_request_id(request_id) if request_id else self._next_number()
        if command in TOGETHER and not payload.get("waitMs"):
            asked = _ClientCall(number, self._written(number, command, payload, seconds), seconds)
            try:
                if not self._together.serve(asked, seconds):
                    raise self._gave_up(f"{number}.json", seconds)
            except Exception:
                if asked.answer is None:
                    raise
            answer = asked.answer
        else:
            answer = self._ask_alone(number, command, payload, seconds)
        assert answer is not None
        if not answer["ok"]:
            raise refused_by(answer["error"])
        data: Answer = answer["data"]
        return data

    def _next_number(self) -> str:
        return f"{self._token}-{next(self._numbers)}"

    def _written(self, number: str, command: str, payload: Any, seconds: float, **more: str) -> bytes:
        """Return a request as it is written; one without an end in `seconds` has none in the manager either."""
        now_ms = int(self._clock() * 1000)
        request = {
            "requestId": number,
            "clientId": self.client_id,
            "command": command,
            "timestampMs": now_ms,
            "deadlineMs": now_ms + int(seconds * 1000) if seconds else 0,
            "payload": payload,
            **more,
        }
        try:
            written = orjson.dumps(request)
        except TypeError as error:
            raise BadInput(message=f"{command}: what it says cannot be written as JSON: {error}") from None
        if len(written) >= LARGEST_REQUEST:
            # A manager would not read it, and so would not know whom to answer.
            why = f"the request has {len(written)} bytes; less than {LARGEST_REQUEST} are taken"
            raise Refused(code="ERR_INVALID_REQUEST", text=why)
        return written

    def _ask_alone(self, number: str, command: str, payload: Mapping[str, Any], seconds: float) -> Answer:
        with self._line() as line:
            more = {"aliveWhileLocked": line.name} if payload.get("waitMs") else {}
            return self._exchange(line, number, self._written(number, command, payload, seconds, **more), seconds)

    def _ask(self, group: Sequence[_ClientCall], end: float) -> None:
        """Ask for several threads. What is not answered was not begun, and is asked again."""
        with self._line() as line:
            left = list(group)
            while left:
                seconds = max(0.0, end - time.monotonic())
                part = _first(left)
                if len(part) == 1:
                    part[0].answer = self._exchange(line, part[0].number, part[0].written, part[0].seconds)
                    left = left[1:]
                    continue
                number = self._next_number()
                calls = {"calls": [orjson.Fragment(asked.written) for asked in part]}
                answer = self._exchange(line, number, self._written(number, "call_batch", calls, 0), seconds)
                if not answer["ok"]:
                    raise refused_by(answer["error"])
                answers = answer["data"]["answers"]
                for asked, given in zip(part, answers, strict=False):
                    asked.answer = given
                left = left[len(answers) :]

    def _exchange(self, line: _MailboxLine, number: str, written: bytes, seconds: float) -> Answer:
        """Send one file and wait for the one that answers it."""
        name = f"{number}.json"
        line.send(name, written + b"\n")
        try:
            read = line.read(name, seconds, number.startswith(self._token))
        except KeyboardInterrupt:
            self._withdraw(name)
            raise
        if read is None:
            raise self._gave_up(name, seconds)
        answer: Answer = orjson.loads(read)
        return answer

    def metrics(self) -> Answer:
        return self.call("metrics", {})

    def close(self) -> None:
        """Remove this client's files, unless the caller chose its name and may come back to it."""
        self._is_closed = True
        while self._lines:
            self._lines.pop().close()
        if self._named_by_caller:
            return
        with suppress(OSError):
            for late in self._folder.iterdir():
                late.unlink()
            self._folder.rmdir()

    def _new_line(self) -> _MailboxLine:
        return _MailboxLine(self._requests, self._folder, self._wake)

    @contextmanager
    def _line(self) -> Iterator[_MailboxLine]:
        if self._is_closed:
            raise BadInput(message="this client is closed: open another one")
        try:
            line = self._lines.pop()
        except IndexError:  # the other threads have them all
            line = self._new_line()
        try:
            yield line
        finally:
            if self._is_closed:  # by another thread meanwhile
                line.close()
            else:
                self._lines.append(line)

    def _withdraw(self, name: str) -> None:
        """Remove a request that waits for a message, so that the manager forgets it: it lies in processing/."""
        for folder in (self._requests, self._processing):
            with suppress(OSError):
                os.unlink(folder / name)

    def _gave_up(self, name: str, seconds: float) -> KingdomError:
        self._withdraw(name)
        if not self.manager_runs():
            return NotRunning(what="the queue manager", hint=START_IT)
        return TookTooLong(
            what="answer from the queue manager",
            seconds=seconds,
            hint="it may have done what was asked; look before you repeat it",
        )


def _first(calls: Sequence[_ClientCall]) -> Sequence[_ClientCall]:
    """Return those that one file shall hold: at least one."""
    size = 0
    for index, asked in enumerate(calls):
        size += len(asked.written)
        if size > LARGEST_BATCH:
            return calls[: max(1, index)]
    return calls
