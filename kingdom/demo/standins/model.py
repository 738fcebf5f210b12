"""What a model that is played says, step by step, whatever the protocol of its service is."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from kingdom.demo.standins.server import Answer, HttpRequest, StandIn

LONGEST_SILENCE_SECONDS = 60.0
PIECE = 24
"""A model's words come in pieces of so many letters."""


@dataclass(frozen=True, slots=True)
class Step:
    """One answer: words, a tool to use, or a fault."""

    text: str | None = None
    #: The tool to use, by the name that the asking program gave it: `namespace/name`, where it has namespaces.
    tool: str | None = None
    #: What the tool is given; a text for tools that take free text.
    input: Mapping[str, Any] | str = field(default_factory=dict)
    #: The status of an HTTP error instead of an answer.
    error: int | None = None
    #: The error's type, as its service spells it.
    kind: str = "api_error"
    message: str = "a fault that is played"
    headers: Mapping[str, str] = field(default_factory=dict)
    #: What an error says beside its type and message.
    about: Mapping[str, Any] = field(default_factory=dict)
    #: Begin to answer and fall silent.
    hangs: bool = False
    #: Begin to answer and close the connection.
    cut: bool = False
    #: Begin to answer and be gone for so many seconds.
    dies: float = 0.0
    #: The answer begins well and reports this error (`kind` and `message` say which) in its stream.
    fails_in_stream: bool = False
    #: Tokens that it says it used.
    usage: Mapping[str, int] = field(default_factory=dict)


Script = Callable[[Mapping[str, Any]], Step]
"""What to answer to the body of a request."""


def in_turn(*steps: Step) -> Script:
    """Return a script that answers one step after the other; the last one holds for all later requests."""
    lock, left = threading.Lock(), list(steps)

    def next_step(_body: Mapping[str, Any]) -> Step:
        with lock:
            return left.pop(0) if len(left) > 1 else left[0]

    return next_step


class Model(StandIn):
    """A model's service. Questions that a program asks beside its work, which come without tools, get a short word."""

    def __init__(self, script: Script, port: int = 0) -> None:
        super().__init__(port)
        self.script = script
        #: The only key that it takes; empty: any.
        self.key = ""

    @property
    def asked(self) -> list[Mapping[str, Any]]:
        """What it was asked about the work itself, the oldest first."""
        bodies = (request.json() for request in list(self.requests) if self.is_question(request))
        return [body for body in bodies if body.get("tools")]

    def takes(self, request: HttpRequest) -> bool:
        """Return whether a request brings the right key."""
        shown = request.headers.get("x-api-key") or request.headers.get("authorization", "").removeprefix("Bearer ")
        return not self.key or shown == self.key

    def is_question(self, request: HttpRequest) -> bool:
        """Return whether a request asks the model to say something."""
        raise NotImplementedError

    def step(self, body: Mapping[str, Any]) -> Step:
        """Return what to answer."""
        return self.script(body) if body.get("tools") else Step("ok")

    def stream(self, events: Iterator[tuple[str, Mapping[str, Any]]], step: Step) -> Answer:
        """Return an answer of these events. It breaks off after the first where the step says so."""

        def parts() -> Iterator[bytes]:
            for name, event in events:
                yield f"event: {name}\ndata: {json.dumps({'type': name, **event})}\n\n".encode()
                if step.cut:
                    return
                if step.dies:
                    self.die(step.dies)
                    return
                if step.hangs:
                    self.closing.wait(LONGEST_SILENCE_SECONDS)
                    return

        return Answer(headers={"content-type": "text/event-stream", **step.headers}, parts=parts())


def pieces(text: str) -> Iterator[str]:
    """Yield a text in pieces."""
    yield from (text[at : at + PIECE] for at in range(0, len(text), PIECE))
