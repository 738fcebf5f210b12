"""A service whose clock and faults a test sets."""

from __future__ import annotations

import json
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import suppress
from email.utils import formatdate
from pathlib import Path
from typing import Any

from kingdom.demo.standins.server import Answer, HttpRequest, StandIn, answer_json

Fault = Callable[[HttpRequest], Answer | None]
"""Answers in the service's place; None lets it answer itself."""


class FaultyStandIn(StandIn):
    """Give `served` a body in a subclass. With a folder it remembers what it was told beyond its process."""

    def __init__(self, port: int = 0, journal: Path | None = None) -> None:
        super().__init__(port)
        self.clock: Callable[[], float] = time.time
        #: Seconds by which its clock is ahead of the machine's.
        self.skew = 0.0
        #: Used up from the left, one for each request; see `once`.
        self.faults: deque[Fault] = deque()
        self.lock = threading.RLock()
        self._journal = journal

    def now(self) -> float:
        return self.clock() + self.skew

    def once(self, *faults: Fault) -> None:
        """Let the next requests meet these, one each."""
        self.faults.extend(faults)

    def served(self, request: HttpRequest) -> Answer:
        """Return what this service answers when nothing befalls it. Called with `lock` held."""
        raise NotImplementedError

    def answer(self, request: HttpRequest) -> Answer:
        fault = self.faults.popleft() if self.faults else None
        answer = fault(request) if fault is not None else None
        if answer is None:
            with self.lock:
                answer = self.served(request)
        dated = {"date": formatdate(self.now(), usegmt=True)}
        return Answer(answer.status, answer.body, {**dated, **answer.headers}, answer.parts, answer.cut)

    def note(self, kind: str, name: str, value: Any) -> None:
        """Remember a thing as it is now. A line before and after: one that was torn swallows no other."""
        if self._journal is not None:
            with open(self._journal, "a") as journal:
                journal.write(f"\n{json.dumps([kind, name, value])}\n")

    def noted(self) -> Iterator[tuple[str, str, Any]]:
        """Yield what an earlier process has noted; the last of each thing holds."""
        if self._journal is not None and self._journal.exists():
            for line in self._journal.read_text(errors="replace").splitlines():
                with suppress(ValueError):
                    kind, name, value = json.loads(line)
                    yield kind, name, value


def fails(status: int = 502, text: str = "<html>bad gateway</html>") -> Fault:
    """Return the fault of a gateway that has lost its service."""
    return lambda _: Answer(status, text.encode(), {"content-type": "text/html"})


def drops() -> Fault:
    """Return the fault of a line that is cut before the answer."""
    return lambda _: Answer(cut=True)


def cuts(text: bytes = b'[{"id": "1", "sub') -> Fault:
    """Return the fault of a line that is cut within the answer."""
    return lambda _: Answer(200, headers={"content-length": "100000", "content-type": "application/json"}, parts=[text])


def hangs(service: StandIn) -> Fault:
    """Return the fault of a service that has accepted a request and never answers it."""

    def silent(_: HttpRequest) -> Answer:
        service.closing.wait()
        return Answer(cut=True)

    return silent


def dies(service: StandIn) -> Fault:
    """Return the fault of a service that is killed while it answers; `rise` brings it back."""

    def parts() -> Iterator[bytes]:
        yield b'[{"id": "1", "sub'
        service.die()

    head = {"content-length": "100000", "content-type": "application/json"}
    return lambda _: Answer(200, headers=head, parts=parts())


def says(value: object, status: int = 200) -> Fault:
    """Return the fault of an answer of another shape."""
    return lambda _: answer_json(value, status)


def waits(wait: Callable[[float], object], seconds: float) -> Fault:
    """Return the fault of a service that takes its time: `wait` is called with the seconds before it answers."""

    def slow(_: HttpRequest) -> None:
        wait(seconds)

    return slow


def limits(seconds: int, status: int = 403) -> Fault:
    """Return the fault of a service that asks to be left alone for so long."""
    said = {"message": "You have exceeded a secondary rate limit. Please wait a few minutes before you try again."}
    return lambda _: answer_json(said, status, {"retry-after": str(seconds)})


def passes() -> Fault:
    """Return what lets a service answer by itself, to place a fault at a later request."""
    return lambda _: None
