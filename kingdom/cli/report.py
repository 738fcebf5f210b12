"""`kingdom report`: what was done in the last days, from the files that are still kept."""

from __future__ import annotations

import json
import os
import time
from collections import Counter, defaultdict
from dataclasses import dataclass, field
from itertools import takewhile

import click

from kingdom.cli import home
from kingdom.cli.finite import Finite
from kingdom.cli.queue_files import Found, newest
from kingdom.disk.codec import read_json_or
from kingdom.errors import BadName
from kingdom.home.places import Places
from kingdom.records import notes
from kingdom.words import count, duration, one_line, table

DAY = 86400.0
UNREADABLE = "(unreadable)"


@dataclass
class Report:
    events: Counter[str] = field(default_factory=Counter)
    tasks: defaultdict[str, Counter[str]] = field(default_factory=lambda: defaultdict(Counter))
    seconds: defaultdict[str, list[float]] = field(default_factory=lambda: defaultdict(list))
    letters: int = 0
    questions: list[str] = field(default_factory=list)


@click.command(short_help="What was done in the last days.")
@click.option("--days", type=Finite(min=0, min_open=True), default=1.0, show_default=True)
@click.option("--json", "as_json", is_flag=True)
def report(days: float, as_json: bool) -> None:
    """What came in and what was done in the last DAYS, by the files that lie in the queues."""
    places = home.find()
    places.check()
    told = gather(places, time.time() - days * DAY)
    print(_as_json(told) if as_json else _as_text(told, days))


def gather(places: Places, since: float) -> Report:
    told = Report()

    def recent(each: Found) -> bool:
        try:
            return os.lstat(each.path).st_mtime >= since
        except FileNotFoundError:
            return False

    for event in takewhile(recent, newest(places, "events", ("pending", "dispatched", "completed"))):
        told.events[
            f"{one_line(event.get('type') or UNREADABLE)}{' (discarded)' if event.get('status') == 'discarded' else ''}"
        ] += 1
    for task in takewhile(recent, newest(places, "tasks", ("completed",))):
        general = one_line(task.get("target_general") or UNREADABLE)
        told.tasks[general][one_line(task.get("outcome") or task.get("status") or UNREADABLE)] += 1
        if (took := _seconds(places, task)) is not None:
            told.seconds[general].append(took)
    told.questions = notes.open_questions(places)
    told.letters = sum(1 for _ in takewhile(recent, newest(places, "messages", ("sent",))))
    return told


def _seconds(places: Places, task: Found) -> float | None:
    try:
        metrics = read_json_or(places.result(task.id), {}).get("metrics")
    except BadName:
        return None
    took = metrics.get("duration_seconds") if isinstance(metrics, dict) else None
    return float(took) if isinstance(took, int | float) else None


def _as_text(told: Report, days: float) -> str:
    if not told.events and not told.tasks and not told.letters and not told.questions:
        return f"Nothing happened in the last {duration(days * DAY)}."
    came, ended = told.events.total(), sum(outcomes.total() for outcomes in told.tasks.values())
    done = f"{count(came, 'event')}, {count(ended, 'task')} ended, {count(told.letters, 'letter')} sent"
    parts = [f"The last {duration(days * DAY)}: {done}."]
    if told.events:
        parts.append(table([(number, name) for name, number in told.events.most_common()], ("", "events")))
    if told.tasks:
        rows = [(name, _outcomes(outcomes), _typical(told.seconds[name])) for name, outcomes in told.tasks.items()]
        parts.append(table(sorted(rows), ("general", "tasks ended", "typically took")))
    if told.questions:
        parts.append(f"Unanswered: {', '.join(told.questions)}; `{home.command()} why ID` shows what was asked.")
    return "\n\n".join(parts)


def _outcomes(outcomes: Counter[str]) -> str:
    return ", ".join(f"{number} {name}" for name, number in outcomes.most_common())


def _typical(seconds: list[float]) -> str:
    return duration(sorted(seconds)[len(seconds) // 2]) if seconds else "-"


def _as_json(told: Report) -> str:
    return json.dumps(
        {
            "events": dict(told.events),
            "tasks": {name: dict(outcomes) for name, outcomes in told.tasks.items()},
            "median_seconds": {name: sorted(each)[len(each) // 2] for name, each in told.seconds.items() if each},
            "letters": told.letters,
            "questions": told.questions,
        },
        ensure_ascii=False,
    )
