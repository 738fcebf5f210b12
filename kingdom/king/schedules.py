"""Work by the clock: which runs are due, and which are next. The only file that knows croniter."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime, tzinfo
from itertools import islice
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from croniter import CroniterError, croniter

from kingdom.manifests import Manifest, Schedule
from kingdom.messages import stamp

LATE_SECONDS = 150.0
"""A minute noticed later than this was slept through."""
MOST_CAUGHT_UP = 1000
"""Runs looked at after a long absence; `all` of a minutely schedule would otherwise be a stampede."""


@dataclass(frozen=True, slots=True)
class Entry:
    """One schedule of one general."""

    general: str
    default_repo: str | None
    schedule: Schedule

    @property
    def key(self) -> str:
        return f"{self.general}:{self.schedule.name}"

    def run_key(self, due: float) -> str:
        """Recognises a run whatever else happened: one per due minute."""
        return f"{self.key}:{stamp(due)}"


def entries(manifests: Iterable[Manifest]) -> list[Entry]:
    return [Entry(each.name, each.default_repo, plan) for each in manifests for plan in each.schedules]


def misfit(entry: Entry) -> str | None:
    """What is wrong with a schedule; None when it can be kept."""
    try:
        croniter(entry.schedule.cron)
        if entry.schedule.timezone:
            ZoneInfo(entry.schedule.timezone)
    except (CroniterError, ValueError, ZoneInfoNotFoundError) as trouble:
        return f"schedule {entry.schedule.name!r}: {trouble}"
    return None


def due(entry: Entry, after: float, now: float, zone: tzinfo | None) -> list[float]:
    """The runs to make for the due minutes in (after, now], oldest first. With `skip` an absence leaves none."""
    missed = list(islice(_times(entry, after, now, zone), MOST_CAUGHT_UP))
    if entry.schedule.catch_up == "all":
        return missed
    if entry.schedule.catch_up == "skip":
        return [each for each in missed[-1:] if now - each < LATE_SECONDS]
    return missed[-1:]


def last_due(entry: Entry, after: float, now: float, zone: tzinfo | None) -> float | None:
    """The newest due minute in (after, now]: everything up to it has been looked at."""
    newest = float(croniter(entry.schedule.cron, _local(entry, now + 1, zone)).get_prev(float))
    return newest if after < newest <= now else None


def next_run(entry: Entry, after: float, zone: tzinfo | None) -> float:
    return float(croniter(entry.schedule.cron, _local(entry, after, zone)).get_next(float))


def _times(entry: Entry, after: float, now: float, zone: tzinfo | None) -> Iterable[float]:
    moments = croniter(entry.schedule.cron, _local(entry, after, zone))
    while (moment := float(moments.get_next(float))) <= now:
        yield moment


def _local(entry: Entry, moment: float, zone: tzinfo | None) -> datetime:
    own = ZoneInfo(entry.schedule.timezone) if entry.schedule.timezone else zone
    return datetime.fromtimestamp(moment, own) if own else datetime.fromtimestamp(moment).astimezone()
