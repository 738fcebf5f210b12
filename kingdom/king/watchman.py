"""Who watches the chamberlain: the king, by the same roll call that the chamberlain holds for everybody else."""

from __future__ import annotations

import os
from collections.abc import Iterator

from kingdom.role import Kit
from kingdom.roster import ROLES, Seat
from kingdom.steward import pick
from kingdom.steward.roll_call import Finding, RollCall

PERIOD_SECONDS = 5.0


class Watchman:
    def __init__(self, kit: Kit) -> None:
        launcher = os.environ.get("KINGDOM_LAUNCHER")
        self._next = 0.0
        self._call: RollCall | None = None
        if launcher is not None:
            steward = pick(kit.places, launcher)
            self._call = RollCall(kit.places, steward, kit.light, self._seats, kit.name, kit.ticks, kit.ends)

    @staticmethod
    def threshold(kit: Kit) -> float:
        return float(kit.system["heartbeat"]["threshold_seconds"])

    def look(self, kit: Kit) -> Iterator[Finding]:
        now = kit.ticks()
        if self._call is not None and (now >= self._next or self._call.someone_ended()):
            threshold = self.threshold(kit)
            yield from self._call.call(threshold, min(PERIOD_SECONDS, threshold / 4))
            self._next = now + self._call.wait

    @property
    def due(self) -> float:
        """When the next look is, by the monotonic clock."""
        return self._next if self._call is not None else float("inf")

    @staticmethod
    def _seats() -> list[Seat]:
        return [ROLES["chamberlain"]]
