"""When schedules run: which runs are due, and which come next. The only file that knows croniter.

It is loaded with the first schedule: it takes a king a tenth of its start.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import datetime, tzinfo
from itertools import islice, takewhile
from typing import TYPE_CHECKING
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError, available_timezones

from kingdom.base.home.manifests import Manifest, Schedule
from kingdom.base.times import stamp
from kingdom.base.words import closest

if TYPE_CHECKING:
    from croniter import croniter

LATE_SECONDS = 150.0
"""A due minute that is noticed later than this was missed: the king did not run, or the machine slept."""
SCHEDULED = "schedule-"
"""How the event ID of a scheduled run begins; the schedule's name follows."""
MOST_CAUGHT_UP = 1000
"""Runs looked at after a long absence; `all` of a minutely schedule would otherwise be a stampede."""


@dataclass(frozen=True, slots=True)
class ScheduleEntry:
    """One schedule of one general."""

    general: str
    #: Of the general, for schedules that name no repository.
    default_repo: str | None
    schedule: Schedule
    #: The general asks a model.
    needs_model: bool

    @property
    def key(self) -> str:
        return f"{self.general}:{self.schedule.name}"

    @property
    def event_id(self) -> str:
        return f"{SCHEDULED}{self.schedule.name}"

    def run_key(self, due: float) -> str:
        """Return the key by which a run is recognised: one per due minute."""
        return run_key(self.general, self.event_id, stamp(due))


def run_key(general: str, event_id: str, due: str) -> str:
    """Return the key by which the run of a scheduled task is recognised."""
    return f"{general}:{event_id.removeprefix(SCHEDULED)}:{due}"


def entries(manifests: Iterable[Manifest]) -> list[ScheduleEntry]:
    return [
        ScheduleEntry(general.name, general.default_repo, plan, general.needs_model)
        for general in manifests
        for plan in general.schedules
    ]


def misfit(entry: ScheduleEntry) -> str | None:
    """Return what is wrong with a schedule; None when it can be kept."""
    plan = entry.schedule
    wrong = flaw(plan.cron, plan.timezone)
    return f"schedule {plan.name!r}: {wrong[1]}" if wrong else None


def flaw(cron: str, timezone: str | None) -> tuple[str, str] | None:
    """Return the field that cannot be kept, and why."""
    if timezone and not _is_zone(timezone):
        return "timezone", f"there is no time zone {timezone!r}{closest(timezone, sorted(available_timezones()))}"
    if len(cron.split()) != 5:
        return "cron", f"{cron!r} must have five fields: minute hour day month weekday"
    from croniter import CroniterError, croniter

    try:
        croniter(cron).get_next(float)
    except (CroniterError, ValueError) as error:
        return "cron", f"{cron!r}: {error}"
    return None


def _is_zone(name: str) -> bool:
    try:
        ZoneInfo(name)
    except (ValueError, OSError, ZoneInfoNotFoundError):
        return False
    return True


def due(entry: ScheduleEntry, after: float, now: float, zone: tzinfo) -> list[float]:
    """Return the due minutes in (after, now], oldest first, as far as its `catch_up` wants them."""
    if entry.schedule.catch_up == "all":
        moments = _times(_from(entry, after, zone).all_next(float), entry, zone)
        return list(islice(takewhile(lambda moment: moment <= now, moments), MOST_CAUGHT_UP))
    newest = last_due(entry, after, now, zone)
    if newest is None or (entry.schedule.catch_up == "skip" and now - newest > LATE_SECONDS):
        return []
    return [newest]


def last_due(entry: ScheduleEntry, after: float, now: float, zone: tzinfo) -> float | None:
    """Return the newest due minute in (after, now]."""
    moments = _times(_from(entry, now + 1, zone).all_prev(float), entry, zone)
    newest = next(moment for moment in moments if moment <= now)
    return newest if newest > after else None


def next_run(entry: ScheduleEntry, after: float, zone: tzinfo) -> float:
    return next(_times(_from(entry, after, zone).all_next(float), entry, zone))


def _from(entry: ScheduleEntry, moment: float, zone: tzinfo) -> croniter:
    from croniter import croniter

    return croniter(entry.schedule.cron, _local(entry, moment, zone))


def _times(moments: Iterator[float], entry: ScheduleEntry, zone: tzinfo) -> Iterator[float]:
    """Yield an entry's times. Where an hour passes twice, as the clock is set back, those of fixed hours come once."""
    every_hour = entry.schedule.cron.split()[1].startswith("*")
    return (moment for moment in moments if every_hour or _local(entry, moment, zone).fold == 0)


def _local(entry: ScheduleEntry, moment: float, zone: tzinfo) -> datetime:
    own = ZoneInfo(entry.schedule.timezone) if entry.schedule.timezone else zone
    return datetime.fromtimestamp(moment, own)
