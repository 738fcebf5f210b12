"""When what waits becomes ready, and when what is mortal ends."""

from __future__ import annotations

from collections.abc import Iterator
from heapq import heappop, heappush

from kingdom.mq import names
from kingdom.mq.queue_state import NEVER, Line
from kingdom.mq.queues import Queues
from kingdom.mq.stores.base import Store


class Timers:
    def __init__(self, store: Store, queues: Queues) -> None:
        self._store = store
        self._queues = queues
        self._alarms: list[tuple[int, str]] = []
        self._ends: list[tuple[int, str, str]] = []

    def forget(self) -> None:
        self._alarms.clear()
        self._ends.clear()

    def wait(self, line: Line, name: str, due: int, now: int) -> None:
        """The message joins its line, ready or delayed."""
        if due <= now:
            line.add_ready(name)
            self._queues.arrived.add(line.name)
            return
        line.add_delayed(name)
        if due < line.alarm:
            line.alarm = due
            heappush(self._alarms, (due, line.name))

    def fill(self, line: Line, found: list[str], now: int) -> int:
        """All that waits in a line, after a start. Returns the sequence to go on from."""
        sequence = line.fill(found, now)
        for name in line.mortal:
            self.end_at(int(names.marks_of(name)["e"]), line, name)
        if line.ready_count:
            self._queues.arrived.add(line.name)
        self._set_alarm(line)
        return sequence

    def end_at(self, expires: int, line: Line, name: str) -> None:
        heappush(self._ends, (expires, line.name, name))

    def ripen(self, line: Line, now: int) -> None:
        if line.ripen(now):
            self._queues.arrived.add(line.name)
            self._store.ripen(line.name, now)
        self._set_alarm(line)

    def ripen_due(self, now: int) -> None:
        while self._alarms and self._alarms[0][0] <= now:
            line = self._queues.lines.get(heappop(self._alarms)[1])
            if line is not None and line.alarm <= now:
                self.ripen(line, now)

    def ended(self, now: int) -> Iterator[tuple[Line, str]]:
        """What waited too long; it has left its line."""
        while self._ends and self._ends[0][0] <= now:
            _, queue, name = heappop(self._ends)
            line = self._queues.lines.get(queue)
            if line is not None and name in line.mortal:
                line.remove(name)
                yield line, name

    def next_due(self) -> int:
        return min(self._alarms[0][0] if self._alarms else NEVER, self._ends[0][0] if self._ends else NEVER)

    def _set_alarm(self, line: Line) -> None:
        line.alarm = line.next_ripe()
        if line.alarm != NEVER:
            heappush(self._alarms, (line.alarm, line.name))
