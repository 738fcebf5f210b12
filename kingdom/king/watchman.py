"""Who watches the chamberlain: the king, by the same roll call that the chamberlain holds for everybody else."""

from __future__ import annotations

from collections.abc import Iterator

from kingdom.home.roster import ROLES, RoleRow
from kingdom.runtime.role import Services
from kingdom.steward.roll_call import Finding, under_launcher

PERIOD_SECONDS = 5.0


class Watchman:
    def __init__(self, services: Services) -> None:
        self._next = 0.0
        self._call = under_launcher(services, self._rows)

    @staticmethod
    def threshold(services: Services) -> float:
        return float(services.system["heartbeat"]["threshold_seconds"])

    def look(self, services: Services) -> Iterator[Finding]:
        now = services.monotonic()
        if self._call is not None and (now >= self._next or self._call.someone_ended()):
            threshold = self.threshold(services)
            yield from self._call.call(threshold, min(PERIOD_SECONDS, threshold / 4))
            self._next = now + self._call.wait

    @property
    def due(self) -> float:
        """When the next look is, by the monotonic clock."""
        return self._next if self._call is not None else float("inf")

    @staticmethod
    def _rows() -> list[RoleRow]:
        return [ROLES["chamberlain"]]
