"""Queues for a program: the same few words for a store in its own process and for a manager.

    with kingdom.mq.open("data") as q:          # or kingdom.mq.connect(): through the manager
        q.publish("jobs", {"n": 1})
        for message in q.consume("jobs"):
            print(message.payload)
            message.ack()

Threads may share it.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, TypeVar

from kingdom.mq.mailbox_folders import MailboxFolders
from kingdom.mq.typed_calls import Answer, Calls, Delivery
from kingdom.mq.worker import QueueWork, Runner, to_stderr

Handler = Callable[[Delivery], object]
H = TypeVar("H", bound=Handler)

LONGEST_WAIT_SECONDS = 10.0


class Session(Calls):
    def __init__(self, calls: Calls) -> None:
        """`calls` answers; it is closed with the session."""
        self.timeout = calls.timeout
        self._calls = calls
        self._jobs: list[QueueWork] = []

    def call(
        self, command: str, payload: Mapping[str, Any], *, request_id: str | None = None, timeout: float | None = None
    ) -> Answer:
        return self._calls.call(command, payload, request_id=request_id, timeout=timeout)

    def consume(
        self, queue: str, *, consumer_id: str | None = None, visibility: float | None = None, wait: float = 0
    ) -> Iterator[Delivery]:
        """Yield one message after the other, until none has come for `wait` seconds (`math.inf`: for ever).

        Acknowledge each: what was not is delivered again when its lease ends, `visibility` seconds after it was taken.
        """
        waited = 0.0
        while True:
            part = min(wait - waited, LONGEST_WAIT_SECONDS)
            message = self.take(queue, consumer_id=consumer_id, visibility=visibility, wait=part)
            waited = 0.0 if message is not None else waited + part
            if message is not None:
                yield message
            elif waited >= wait:
                return

    def worker(
        self, queue: str, *, concurrency: int = 1, consumer_id: str | None = None, visibility: float | None = None
    ) -> Callable[[H], H]:
        """Let a function work on the messages of a queue while `run` runs, `concurrency` messages at a time.

        A message is acknowledged when the function returns, and tried again by the queue's retry rule when it raises.
        Its lease is extended while the function works.
        """

        def register(function: H) -> H:
            self._jobs.append(QueueWork(queue, function, concurrency, consumer_id, visibility))
            return function

        return register

    def run(self, *, until_empty: bool = False, report: Callable[[str], None] = to_stderr) -> None:
        """Let the workers work until TERM or Ctrl-C, or until their queues are empty.

        On the first signal nothing more is taken and what is in work is finished; on a second one it is given back.
        """
        Runner(self._calls, self._jobs, follow=not until_empty, report=report).run()

    def close(self) -> None:
        self._calls.close()


def open(path: Path | str | None = None, **config: Any) -> Session:
    """Open a store in this process: a data folder, or what a configuration file says; without a path, the home's.

    `config` are keys of config/mq.yaml, for example `backend="filesystem"` or `durability="process"`. LockHeld when
    another process has it open.
    """
    from kingdom.mq.local import Local, settings_of

    return Session(Local(settings_of(path, **config), f"py-{os.getpid()}"))


def connect(
    root: MailboxFolders | Path | str | None = None, client_id: str | None = None, *, timeout: float = 30.0
) -> Session:
    """Reach a manager through its mailbox; without `root`, the one of the home around us."""
    from kingdom.mq.client import Client

    return Session(Client(root, client_id, timeout=timeout))
