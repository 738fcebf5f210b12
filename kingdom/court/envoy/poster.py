"""A thread that makes the posts of one channel, so that a slow or dead channel holds up nobody else."""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import suppress
from itertools import count
from queue import Empty, PriorityQueue, SimpleQueue
from typing import NamedTuple

from kingdom.base.errors import KingdomError
from kingdom.base.runtime.wake import Alarm
from kingdom.court.envoy.channels.base import Channel, Post, PostDraft, Stuck

POST, MARK, END = 1, 2, 0
"""In this order: whoever waits for a post comes before marks, and an end before both."""
MOST_MARKS = 200
"""Marks that wait at most; later ones are left out, since nothing depends on them."""


class Attempt(NamedTuple):
    """A post that the thread has made, or could not make."""

    #: The message that it says, or a part of it.
    message_id: str
    #: What became of it: a post, or why there is none.
    outcome: Post | Exception


class Poster:
    def __init__(self, channel: Channel, alarm: Alarm, monotonic: Callable[[], float]) -> None:
        self._channel = channel
        self._alarm = alarm
        self._monotonic = monotonic
        self._calls: PriorityQueue[tuple[int, int, Callable[[], None]]] = PriorityQueue()
        self._attempts: SimpleQueue[Attempt] = SimpleQueue()
        self._number = count()
        self._begun: float | None = None
        self._marks = 0
        self._thread = threading.Thread(target=self._work, name="poster", daemon=True)
        self._thread.start()

    def post(self, message_id: str, draft: PostDraft, *, look_first: bool) -> None:
        """Have a draft posted by the thread; with `look_first` only if it was not posted before."""
        self._add(POST, lambda: self._post(message_id, draft, look_first))

    def mark(self, room: str, post: str, code: str) -> None:
        """Have a post marked when nothing waits to be posted."""
        if self._marks < MOST_MARKS:
            self._marks += 1
            self._add(MARK, lambda: self._mark(room, post, code))

    def attempts(self) -> list[Attempt]:
        """Return what has become of posts since the last call."""
        found = []
        with suppress(Empty):
            while True:
                found.append(self._attempts.get_nowait())
        return found

    def check(self, longest: float) -> None:
        """Raise Stuck when what it does now has taken longer than so many seconds, or when it does nothing any more."""
        begun = self._begun
        if begun is not None and self._monotonic() - begun > longest:
            raise Stuck(f"a call has not returned for {longest:g} s")
        if not self._thread.is_alive():
            raise Stuck("the thread that posts has ended")

    def close(self, wait: float) -> None:
        """End after what is done now. After so many seconds it is left to itself."""
        self._add(END, lambda: None)
        self._thread.join(wait)

    def _add(self, rank: int, call: Callable[[], None]) -> None:
        self._calls.put((rank, next(self._number), call))

    def _work(self) -> None:
        while True:
            rank, _, call = self._calls.get()
            if rank == END:
                return
            self._begun = self._monotonic()
            call()
            self._begun = None

    def _post(self, message_id: str, draft: PostDraft, look_first: bool) -> None:
        outcome: Post | Exception
        try:
            outcome = (self._channel.find(draft) if look_first else None) or self._channel.post(draft)
        except Exception as error:  # noqa: BLE001
            # The edge of this thread: the envoy's own raises what is no refusal, so that it is seen.
            outcome = error
        self._attempts.put(Attempt(message_id, outcome))
        self._alarm.ring()

    def _mark(self, room: str, post: str, code: str) -> None:
        self._marks -= 1
        with suppress(KingdomError, OSError):
            self._channel.mark(room, post, code)
