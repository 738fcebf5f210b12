"""Let threads that ask at the same time be served together: one of them asks for all."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from threading import Lock
from typing import Generic, TypeVar

from kingdom.base.errors import KingdomError

Asked = TypeVar("Asked")

MOST_TOGETHER = 64
STRAGGLERS_SECONDS = 0.0005
FOREVER = 1e8


def _held() -> Lock:
    lock = Lock()
    lock.acquire()
    return lock


@dataclass(slots=True, eq=False)
class _Turn(Generic[Asked]):
    """One thread that asks."""

    asked: Asked
    #: When it gives up, by the monotonic clock.
    end: float
    #: Free when it is answered, or when it is to ask for all.
    woken: Lock = field(default_factory=_held)
    leads: bool = False
    is_over: bool = False
    error: Exception | None = None


class Together(Generic[Asked]):
    """While one thread asks, those that come wait; then the first of them asks for all of these."""

    def __init__(self, ask: Callable[[Sequence[Asked], float], None]) -> None:
        """`ask` serves all that it is given until a time of the monotonic clock. What it raises is for all of them."""
        self._ask = ask
        self._lock = Lock()
        self._waiting: deque[_Turn[Asked]] = deque()
        #: Whether nobody asks.
        self._free = True
        #: How many will soon wait together: those who were served last, and those who came meanwhile.
        self._expected = 1
        #: How long it took to serve the last ones, in seconds.
        self._took = 0.0

    def serve(self, asked: Asked, seconds: float = FOREVER) -> bool:
        """Wait until it is served. Return False when nobody has begun to within `seconds`."""
        turn = _Turn(asked, time.monotonic() + seconds)
        with self._lock:
            if self._free:
                self._free = False
                turn.leads = True
            else:
                self._waiting.append(turn)
        try:
            if not turn.leads and not turn.woken.acquire(timeout=seconds):
                with self._lock:
                    if turn in self._waiting:
                        self._waiting.remove(turn)
                        return False
                turn.woken.acquire()
            if turn.leads:
                self._lead(turn)
        except BaseException:
            self._withdraw(turn)
            raise
        if turn.error is not None:
            raise turn.error
        return True

    def _lead(self, turn: _Turn[Asked]) -> None:
        self._await_stragglers()
        began = time.monotonic()
        group = [turn]
        error: Exception | None = None
        is_done = False
        try:
            with self._lock:
                while self._waiting and len(group) < MOST_TOGETHER and abs(self._waiting[0].end - turn.end) <= 1:
                    group.append(self._waiting.popleft())
            self._ask([member.asked for member in group], turn.end)
            is_done = True
        except Exception as failure:  # noqa: BLE001
            # All who asked together hear what one of them met.
            error = failure
        finally:
            if not is_done and error is None:
                error = KingdomError(message="the thread that asked for several was interrupted")
            for member in group:
                member.error, member.is_over = error, True
            self._took = time.monotonic() - began
            turn.leads = False
            self._pass_on(len(group))
            for member in group:
                member.woken.release()

    def _await_stragglers(self) -> None:
        """Wait for those who were served last: they come back together, and else two halves would take turns for ever.
        It ends after a fourth of the time that serving takes, and when nobody has come for a moment."""
        now = time.monotonic()
        longest = self._took / 4
        end, moment = now + longest, min(longest, STRAGGLERS_SECONDS)
        come, until = len(self._waiting), now + moment
        while come + 1 < min(self._expected, MOST_TOGETHER) and now < min(until, end):
            time.sleep(0)
            now = time.monotonic()
            if len(self._waiting) > come:
                come, until = len(self._waiting), now + moment

    def _pass_on(self, served: int) -> None:
        """Let the next one lead, if somebody waits."""
        with self._lock:
            self._expected = served + len(self._waiting)
            if not self._waiting:
                self._free = True
                return
            following = self._waiting.popleft()
            following.leads = True
        following.woken.release()

    def _withdraw(self, turn: _Turn[Asked]) -> None:
        """Take back a call that was interrupted while it waited."""
        with self._lock:
            if turn in self._waiting:
                self._waiting.remove(turn)
            leads = turn.leads
        if leads:
            self._pass_on(0)
