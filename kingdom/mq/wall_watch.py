"""Notice that somebody sets the wall clock: what waits from an earlier run is due by it."""

from __future__ import annotations

from collections.abc import Callable

from kingdom.mq.failures import Log
from kingdom.mq.leases import Leases
from kingdom.mq.names import NEVER
from kingdom.mq.queues import QueueStates
from kingdom.mq.timers import Timers

LOOK_AGAIN_MS = 1_000
LEAST_STEP_MS = 1_000


class WallWatch:
    """A device without a clock battery starts with its clock behind, and sets it once it has reached a time server."""

    def __init__(
        self,
        queues: QueueStates,
        timers: Timers,
        leases: Leases,
        clock: Callable[[], int],
        wall: Callable[[], int],
        log: Log,
    ) -> None:
        self._queues = queues
        self._timers = timers
        self._leases = leases
        self._clock = clock
        self._wall = wall
        self._log = log
        #: By how many ms the wall clock is ahead of the engine's: when the store was loaded, and at the last look.
        self._ahead_at_start = self._ahead = 0
        self._started = 0
        #: When to look again, by the engine's clock; NEVER when nothing waits from an earlier run.
        self.next_look = NEVER

    def begin(self) -> None:
        """Begin anew: the store has just been loaded."""
        self._started = self._clock()
        self._ahead_at_start = self._ahead = self._wall() - self._started
        self._plan()

    def look(self, now: int) -> None:
        """Judge anew what is from an earlier run when the wall clock was set since the last look."""
        if now < self.next_look:
            return
        step = self._wall() - now - self._ahead
        if abs(step) >= LEAST_STEP_MS:
            self._ahead += step
            ahead = self._ahead - self._ahead_at_start
            for queue in self._queues.by_name.values():
                self._timers.judge_inherited(queue, ahead)
            self._leases.judge_inherited(ahead)
            self._timers.expiries.judge(ahead)
            self._log(
                "mq.clock_set", "the wall clock was set: what waits from before the start is judged by it", ms=step
            )
        self._plan()

    def as_told_now(self, when: int, now: int) -> int:
        """Return a time of this run as the wall clock tells it since it was set."""
        ahead = self._wall() - now - self._ahead_at_start
        is_ours = self._started <= when <= now
        return when + ahead if abs(ahead) >= LEAST_STEP_MS and is_ours else when

    def _plan(self) -> None:
        waits = (
            self._leases.inherited
            or self._timers.expiries.depend_on_wall_clock()
            or any(queue.inherited.names for queue in self._queues.by_name.values())
        )
        self.next_look = self._clock() + LOOK_AGAIN_MS if waits else NEVER
