"""Anomalies although every role runs: each is reported once while it lasts, with what to do."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from kingdom.base.words import count, duration, one_line
from kingdom.court.chamberlain.alerts import Alerts
from kingdom.court.chamberlain.chronicle import Chronicle
from kingdom.court.picture import Picture

MINUTE = 60.0
LATE_SECONDS = 300.0
"""A schedule has not run when its first due minute lies so far back: the king looks once a minute."""
PREFIX = "anomaly:"


@dataclass(frozen=True, slots=True)
class Facts:
    """What anomalies are found by."""

    chronicle: Chronicle
    picture: Picture
    #: `anomaly` of chamberlain.yaml.
    limits: Mapping[str, Any]
    now: float


Found = tuple[str, str]
"""Of whom or what, and the text for people."""


def failures_in_a_row(facts: Facts) -> Iterator[Found]:
    for general, number in facts.chronicle.streaks().items():
        if number >= facts.limits["consecutive_failures"]:
            yield (
                general,
                (
                    f"{general} has failed {number} tasks in a row. `kingdom tasks --general {general}` lists them, "
                    f"`kingdom why TASK` says why; `kingdom stop {general}` stops it."
                ),
            )


def timeouts(facts: Facts) -> Iterator[Found]:
    by_general = facts.chronicle.times_of("timeouts", facts.now)
    number = sum(len(times) for times in by_general.values())
    if number >= facts.limits["timeout_spike"]:
        most = max(by_general, key=lambda name: len(by_general[name]))
        yield (
            "soldiers",
            (
                f"{number} soldiers ran out of time within an hour, most of them of {most}. Raise "
                f"`timeout_seconds` in its manifest, or look at what hangs: `kingdom attach TASK`."
            ),
        )


def stale_event(facts: Facts) -> Iterator[Found]:
    oldest = facts.picture.oldest_event
    if oldest is not None and oldest["seconds"] >= facts.limits["event_stale_minutes"] * MINUTE:
        waits = f"{one_line(oldest['id'])} has waited {duration(oldest['seconds'])} for its turn"
        yield "event", f"an event is stuck: {waits}. `kingdom why {one_line(oldest['id'])}` says what holds it."


def schedule_that_never_ran(facts: Facts) -> Iterator[Found]:
    first_due = facts.chronicle.first_due(facts.picture.schedules)
    for plan in facts.picture.schedules:
        key = str(plan.get("schedule"))
        due = first_due.get(key)
        if due is not None and not plan.get("last") and facts.now - due > LATE_SECONDS:
            held = plan.get("held_because")
            why = f" It is held: {one_line(held)}." if held else " `kingdom doctor` checks what it needs."
            yield (
                key,
                f"the schedule {one_line(key)} should have run {duration(facts.now - due)} ago and never has.{why}",
            )


def frequent_restarts(facts: Facts) -> Iterator[Found]:
    for role, times in facts.chronicle.times_of("crashes", facts.now).items():
        if len(times) >= facts.limits["restart_spike"]:
            yield (
                role,
                (
                    f"{role} was started again {count(len(times), 'time')} within an hour without having been stopped. "
                    f"`kingdom logs {role}` shows why it ends."
                ),
            )


ANOMALIES: Mapping[str, Callable[[Facts], Iterator[Found]]] = {
    "consecutive_failures": failures_in_a_row,
    "timeout_spike": timeouts,
    "event_stale_minutes": stale_event,
    "schedule_never_ran": schedule_that_never_ran,
    "restart_spike": frequent_restarts,
}


def tell(facts: Facts, alerts: Alerts) -> None:
    """Report new anomalies, and forget those that are over, so that they are reported if they come back."""
    found = {f"{PREFIX}{name}:{whose}": text for name, look in ANOMALIES.items() for whose, text in look(facts)}
    for cause, text in found.items():
        alerts.tell(cause, text)
    alerts.forget_all_but(PREFIX, found)
