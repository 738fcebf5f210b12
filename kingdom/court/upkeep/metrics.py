"""Metrics in the text format of Prometheus: names end in their unit, counters in `_total`."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from kingdom import wings
from kingdom.base import tables
from kingdom.court.picture import Picture

HEALTH = ("green", "yellow", "orange", "red", "unknown")
Labels = Mapping[str, str]
Sample = tuple[Labels, float]


@dataclass(frozen=True, slots=True)
class KingdomFigures:
    """What the samples are made of."""

    picture: Picture
    #: How often each internal event has happened, by type, as the chamberlain counts.
    events: Mapping[str, int] = field(default_factory=dict)
    #: By budget: its key, the general or "", dollars spent in its time, dollars it allows.
    budgets: Iterable[tuple[str, str, float, float]] = ()
    #: Dollars spent today, by general.
    spent_today: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Metric:
    #: gauge or counter.
    type: str
    help: str
    samples: Callable[[KingdomFigures], Iterator[Sample]]


def _queues(figures: KingdomFigures) -> Iterator[Sample]:
    for queue, states in figures.picture.queues.items():
        for state, number in states.items():
            yield {"queue": queue, "state": state}, number


def _oldest(figures: KingdomFigures) -> Iterator[Sample]:
    oldest = figures.picture.oldest
    yield {}, oldest["seconds"] if oldest else 0


def _roles(figures: KingdomFigures) -> Iterator[Sample]:
    for role in figures.picture.roles:
        yield {"role": role.name}, int(role.beats)


def _heartbeats(figures: KingdomFigures) -> Iterator[Sample]:
    for role in figures.picture.roles:
        if role.beat_age is not None:
            yield {"role": role.name}, round(role.beat_age, 3)


def _restarts(figures: KingdomFigures) -> Iterator[Sample]:
    for role in figures.picture.roles:
        yield {"role": role.name}, role.restarts


def _health(figures: KingdomFigures) -> Iterator[Sample]:
    for level in HEALTH:
        yield {"level": level}, int(figures.picture.health == level)


def _used(what: str) -> Callable[[KingdomFigures], Iterator[Sample]]:
    def samples(figures: KingdomFigures) -> Iterator[Sample]:
        percent = figures.picture.vitals.get(f"{what}_percent")
        if isinstance(percent, int | float):
            yield {}, round(percent / 100, 4)

    return samples


def _events(figures: KingdomFigures) -> Iterator[Sample]:
    for type, number in sorted(figures.events.items()):
        yield {"type": type}, number


def _budget(at: int) -> Callable[[KingdomFigures], Iterator[Sample]]:
    def samples(figures: KingdomFigures) -> Iterator[Sample]:
        for row in figures.budgets:
            yield {"budget": row[0], "general": row[1]}, float(row[2 + at])

    return samples


def _spent(figures: KingdomFigures) -> Iterator[Sample]:
    for general, usd in sorted(figures.spent_today.items()):
        yield {"general": general}, usd


METRICS: Mapping[str, Metric] = {
    "kingdom_queue_files": Metric("gauge", "Files in a state of a queue.", _queues),
    "kingdom_oldest_pending_seconds": Metric("gauge", "How long the oldest pending file has waited.", _oldest),
    "kingdom_role_up": Metric("gauge", "Whether an installed role has a fresh heartbeat.", _roles),
    "kingdom_role_heartbeat_age_seconds": Metric("gauge", "Time since a role's last heartbeat.", _heartbeats),
    "kingdom_role_restarts": Metric("gauge", "Restarts of a role since it was last started on purpose.", _restarts),
    "kingdom_soldiers": Metric("gauge", "Soldiers at work.", lambda f: iter([({}, len(f.picture.soldiers))])),
    "kingdom_open_questions": Metric(
        "gauge", "Questions that wait for a person.", lambda f: iter([({}, len(f.picture.questions))])
    ),
    "kingdom_machine_health": Metric("gauge", "1 at the current level of the machine.", _health),
    "kingdom_machine_cpu_used_ratio": Metric("gauge", "Processor time in use, 0 to 1.", _used("cpu")),
    "kingdom_machine_memory_used_ratio": Metric("gauge", "Memory in use, 0 to 1.", _used("memory")),
    "kingdom_machine_disk_used_ratio": Metric("gauge", "The home's disk in use, 0 to 1.", _used("disk")),
    "kingdom_internal_events_total": Metric("counter", "Internal events, by type.", _events),
    "kingdom_spent_today_dollars": Metric("gauge", "Spent on this day (UTC), by general.", _spent),
    "kingdom_budget_spent_dollars": Metric("gauge", "Spent in the period of a budget.", _budget(0)),
    "kingdom_budget_dollars": Metric("gauge", "The limit of a budget in its period.", _budget(1)),
    "kingdom_taken_timestamp_seconds": Metric(
        "gauge", "When these figures were taken.", lambda f: iter([({}, round(f.picture.taken_at, 3))])
    ),
}
"""By name. One more is one row, here or in the `metrics` of a product."""


def metrics() -> dict[str, Metric]:
    """Return all metrics, those of products too."""
    found = dict(METRICS)
    for wing in wings.rows():
        if wing.metrics:
            found |= tables.load(wing.metrics)
    return found


def render(figures: KingdomFigures) -> str:
    """Return all metrics that have samples, each with its help and its type."""
    lines = []
    for name, metric in metrics().items():
        samples = [f"{name}{_labels(labels)} {value!r}" for labels, value in metric.samples(figures)]
        if samples:
            lines += [f"# HELP {name} {metric.help}", f"# TYPE {name} {metric.type}", *samples]
    return "".join(f"{line}\n" for line in lines)


def _labels(labels: Labels) -> str:
    if not labels:
        return ""
    return "{" + ",".join(f'{name}="{_escaped(value)}"' for name, value in labels.items()) + "}"


def _escaped(value: Any) -> str:
    return str(value).replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
