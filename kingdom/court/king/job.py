"""The king's turn: results become messages, orders are carried out, events and due schedules become tasks."""

from __future__ import annotations

import signal
from contextlib import suppress
from pathlib import Path

from kingdom.base.home.places import BESIDE_RESULTS
from kingdom.base.home.roster import ROLES
from kingdom.base.records.backlog import Arrivals, refresh_due
from kingdom.base.records.messages import alert
from kingdom.base.runtime.role import Services, Turn
from kingdom.court.king.context import KingContext
from kingdom.court.king.dispatch import Dispatch
from kingdom.court.king.orders import KingOrders
from kingdom.court.king.outcomes import Outcomes
from kingdom.court.king.schedule_log import ScheduleLog
from kingdom.court.steward.roll_call import What, log_findings, make_roll_call

CHECK_SECONDS = 5.0
"""Between two checks of the chamberlain, who checks all other roles."""


ALARMING = frozenset({What.RESTARTED, What.REFUSED})


class KingJob:
    def __init__(self, services: Services) -> None:
        signal.signal(signal.SIGIO, signal.SIG_IGN)  # see base/disk/lease.py
        king = self._king = KingContext(services)
        self._outcomes = Outcomes(king)
        self._orders = KingOrders(king)
        self._schedules = ScheduleLog(king)
        self._dispatch = Dispatch(king, self._schedules)
        # Generals look only at their own tasks, so the king moves unreadable ones to dead.
        king.backlog(king.queues.tasks, most_kept=0)
        self._roll_call = make_roll_call(services, lambda: [ROLES["chamberlain"]])
        self._next_check = 0.0 if self._roll_call else float("inf")
        self._next_manifests = 0.0

    def folders(self) -> dict[Path, tuple[str, ...]]:
        places = self._king.places
        queues = (places.folder("events", "pending"), places.folder("orders", "pending"))
        return {**dict.fromkeys((*queues, places.manifests), ()), places.results: BESIDE_RESULTS}

    def reload(self, services: Services) -> None:
        self._king.take_over(services)

    def close(self) -> None:
        """Give back unused ids. Nothing else is held in memory that the folders do not hold."""
        with suppress(OSError):
            # A full disk costs a gap in the numbers, no more.
            self._king.close()

    def turn(self, arrivals: Arrivals) -> Turn:
        king, now = self._king, self._king.monotonic()
        look = refresh_due(king.backlogs, arrivals, now)
        completed = self._outcomes.complete(arrivals, look)
        if ordered := bool(self._orders.backlog.waiting):
            self._orders.carry_out_next()
        dispatched = False
        is_time = look or self._dispatch.events.waiting or now >= self._schedules.next_look or self._schedules.holds
        is_time = is_time or now >= self._next_manifests
        if is_time or arrivals is None or king.places.manifests in arrivals:
            self._read_manifests()
            self._next_manifests = king.next_look
            dispatched = self._dispatch.next_group(look)
        self._check_chamberlain()
        looks = [backlog.next_look for backlog in self._king.backlogs]
        next_look = min(*looks, self._outcomes.next_look, self._schedules.next_look, self._next_check)
        next_look = min(next_look, self._next_manifests)
        busy = any(backlog.unsettled for backlog in self._king.backlogs)
        more = ordered or self._outcomes.has_more or self._dispatch.has_more
        worked = completed or ordered or dispatched
        return Turn(worked, wait=next_look - self._king.monotonic(), busy=busy, settled=not more)

    def _read_manifests(self) -> None:
        if self._king.read_manifests():
            for warning in self._schedules.take_over(self._king.generals):
                self._king.log.warn(warning)

    def _check_chamberlain(self) -> None:
        """Replace a chamberlain that hangs or crashes; he does so for all other roles."""
        king = self._king
        if self._roll_call is None or (king.monotonic() < self._next_check and not self._roll_call.someone_ended()):
            return
        threshold = float(king.services.system["heartbeat"]["threshold_seconds"])
        findings = self._roll_call.call(threshold, min(CHECK_SECONDS, threshold / 4))
        self._next_check = king.monotonic() + self._roll_call.wait
        log_findings(findings, king.log, threshold)
        alerts = [str(finding) for finding in findings if finding.what in ALARMING]
        ids = king.message_ids(len(alerts))
        king.queues.messages.create(
            alert(id, text, king.channel, king.now()) for id, text in zip(ids, alerts, strict=True)
        )
