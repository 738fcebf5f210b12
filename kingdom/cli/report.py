"""`kingdom report`: count what was done in the last days, by the files that are still kept."""

from __future__ import annotations

import os
import time
from collections import Counter, defaultdict
from dataclasses import dataclass, field
from itertools import takewhile

import click

from kingdom.cli import as_json, home
from kingdom.cli.main import Finite
from kingdom.cli.queue_files import Found, newest
from kingdom.disk.codec import read_json_or
from kingdom.errors import BadName
from kingdom.home.places import Places
from kingdom.records import notes
from kingdom.words import count, duration, one_line, table

DAY = 86400.0
MOST_QUESTIONS = 5
UNREADABLE = "(unreadable)"


@dataclass
class Report:
    events: Counter[str] = field(default_factory=Counter)
    tasks: defaultdict[str, Counter[str]] = field(default_factory=lambda: defaultdict(Counter))
    seconds: defaultdict[str, list[float]] = field(default_factory=lambda: defaultdict(list))
    messages: int = 0
    questions: list[str] = field(default_factory=list)


@click.command(short_help="What was done in the last days.")
@click.option("--days", type=Finite(min=0, min_open=True), default=1.0, show_default=True, help="How far back to look.")
@click.option("--json", "in_json", is_flag=True, help="Print it as one line of JSON.")
def report(days: float, in_json: bool) -> None:
    """Count what came in and what was done in the last days, by the files that lie in the queues."""
    places = home.find()
    places.check()
    found = gather(places, time.time() - days * DAY)
    print(_as_json(found) if in_json else _as_text(found, days))


def gather(places: Places, since: float) -> Report:
    """Count what has changed since a moment."""
    report = Report()

    def recent(file: Found) -> bool:
        try:
            return os.lstat(file.path).st_mtime >= since
        except FileNotFoundError:
            return False

    for event in takewhile(recent, newest(places, "events", ("pending", "dispatched", "completed"))):
        discarded = " (discarded)" if event.get("status") == "discarded" else ""
        report.events[f"{one_line(event.get('type') or UNREADABLE)}{discarded}"] += 1
    for task in takewhile(recent, newest(places, "tasks", ("completed",))):
        general = one_line(task.get("target_general") or UNREADABLE)
        report.tasks[general][one_line(task.get("outcome") or task.get("status") or UNREADABLE)] += 1
        if (took := _seconds(places, task)) is not None:
            report.seconds[general].append(took)
    report.questions = notes.open_questions(places)
    report.messages = sum(1 for _ in takewhile(recent, newest(places, "messages", ("sent",))))
    return report


def _seconds(places: Places, task: Found) -> float | None:
    try:
        metrics = read_json_or(places.result(task.id), {}).get("metrics")
    except BadName:
        return None
    took = metrics.get("duration_seconds") if isinstance(metrics, dict) else None
    return float(took) if isinstance(took, int | float) else None


def _as_text(report: Report, days: float) -> str:
    if not report.events and not report.tasks and not report.messages and not report.questions:
        return f"Nothing happened in the last {duration(days * DAY)}."
    came, ended = report.events.total(), sum(outcomes.total() for outcomes in report.tasks.values())
    done = f"{count(came, 'event')}, {count(ended, 'task')} ended, {count(report.messages, 'message')} sent"
    parts = [f"The last {duration(days * DAY)}: {done}."]
    if report.events:
        parts.append(table([(number, name) for name, number in report.events.most_common()], ("", "events")))
    if report.tasks:
        rows = [(name, _outcomes(outcomes), _typical(report.seconds[name])) for name, outcomes in report.tasks.items()]
        parts.append(table(sorted(rows), ("general", "tasks ended", "typically took")))
    if report.questions:
        more = len(report.questions) - MOST_QUESTIONS
        asking = ", ".join(report.questions[:MOST_QUESTIONS]) + (f" and {more} more" if more > 0 else "")
        parts.append(f"Unanswered: {asking}; `{home.command()} tasks --asking` lists them, `why ID` what was asked.")
    return "\n\n".join(parts)


def _outcomes(outcomes: Counter[str]) -> str:
    return ", ".join(f"{number} {name}" for name, number in outcomes.most_common())


def _typical(seconds: list[float]) -> str:
    return duration(sorted(seconds)[len(seconds) // 2]) if seconds else "-"


def _as_json(report: Report) -> str:
    return as_json.line(
        "report",
        {
            "events": dict(report.events),
            "tasks": {name: dict(outcomes) for name, outcomes in report.tasks.items()},
            "median_seconds": {name: sorted(took)[len(took) // 2] for name, took in report.seconds.items() if took},
            "letters": report.messages,
            "questions": report.questions,
        },
    )
