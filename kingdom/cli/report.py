"""`kingdom report`: count what was done in the last days, by the files that are still kept, and what it cost."""

from __future__ import annotations

import os
import time
from collections import Counter, defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import takewhile
from typing import Any

import click

from kingdom.base.disk.codec import read_json_or
from kingdom.base.errors import BadName
from kingdom.base.home.places import Places
from kingdom.base.program import as_json, home
from kingdom.base.program.call import Finite
from kingdom.base.records import notes
from kingdom.base.records.lookup import Found
from kingdom.base.words import count, duration, one_line, table
from kingdom.cli import money
from kingdom.cli.queue_files import newest
from kingdom.cli.queues import since_then

DAY = 86400.0
DAYS_OF_MONEY = 30
MOST_QUESTIONS = 5
UNREADABLE = "(unreadable)"


@dataclass
class Report:
    events: Counter[str] = field(default_factory=Counter)
    tasks: defaultdict[str, Counter[str]] = field(default_factory=lambda: defaultdict(Counter))
    seconds: defaultdict[str, list[float]] = field(default_factory=lambda: defaultdict(list))
    messages: int = 0
    questions: list[str] = field(default_factory=list)


@click.command(short_help="Count what was done in the last days, and what it cost.")
@click.option("--days", type=Finite(min=0, min_open=True), help="How far back to look: 1, or 30 for --money.")
@since_then
@click.option("--general", metavar="NAME", help="Only what this general did.")
@click.option("--money", "of_money", is_flag=True, help="What was spent, by day, general, account and task.")
@click.option("--json", "in_json", is_flag=True, help="Print it as one line of JSON.")
def report(days: float | None, since: float | None, general: str | None, of_money: bool, in_json: bool) -> None:
    """Count what came in and what was done in the last days, by the files in the queues.

    With --money: what soldiers cost, as far as their engines report it, and how much of each budget is used.
    """
    if days is not None and since is not None:
        raise click.UsageError("--days and --since say the same; give one of them")
    places, now = home.find(), time.time()
    places.check()
    begin = since if since is not None else now - (days or (DAYS_OF_MONEY if of_money else 1)) * DAY
    period = f"in the last {duration(now - begin)}"
    if of_money:
        spent = money.gather(places, begin, general)
        about = {"money": money.to_json(spent)}
        print(_as_json(gather(places, begin, general), about) if in_json else money.as_text(spent, period))
        return
    found = gather(places, begin, general)
    print(_as_json(found, {}) if in_json else _as_text(found, period))


def gather(places: Places, since: float, general: str | None = None) -> Report:
    """Count what has changed since a moment, of one general's tasks or of all."""
    report = Report()

    def recent(file: Found) -> bool:
        try:
            return os.lstat(file.path).st_mtime >= since
        except FileNotFoundError:
            return False

    events = () if general else newest(places, "events", ("pending", "dispatched", "completed"))
    for event in takewhile(recent, events):
        discarded = " (discarded)" if event.get("status") == "discarded" else ""
        report.events[f"{one_line(event.get('type') or UNREADABLE)}{discarded}"] += 1
    for task in takewhile(recent, newest(places, "tasks", ("completed",))):
        name = one_line(task.get("target_general") or UNREADABLE)
        if general not in (None, name):
            continue
        report.tasks[name][one_line(task.get("outcome") or task.get("status") or UNREADABLE)] += 1
        if (took := _seconds(places, task)) is not None:
            report.seconds[name].append(took)
    asking = notes.open_questions(places)
    report.questions = [task for task in asking if general in (None, _asks_for(places, task))]
    if general is None:
        report.messages = sum(1 for _ in takewhile(recent, newest(places, "messages", ("sent",))))
    return report


def _asks_for(places: Places, task: str) -> object:
    return read_json_or(places.checkpoint(task), {}).get("target_general")


def _seconds(places: Places, task: Found) -> float | None:
    try:
        metrics = read_json_or(places.result(task.id), {}).get("metrics")
    except BadName:
        return None
    took = metrics.get("duration_seconds") if isinstance(metrics, dict) else None
    return float(took) if isinstance(took, int | float) else None


def _as_text(report: Report, period: str) -> str:
    if not report.events and not report.tasks and not report.messages and not report.questions:
        return f"Nothing happened {period}."
    came, ended = report.events.total(), sum(outcomes.total() for outcomes in report.tasks.values())
    done = f"{count(came, 'event')}, {count(ended, 'task')} ended, {count(report.messages, 'message')} sent"
    parts = [f"{period.removeprefix('in ').capitalize()}: {done}."]
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


def _as_json(report: Report, about: Mapping[str, Any]) -> str:
    return as_json.line(
        "report",
        {
            "events": dict(report.events),
            "tasks": {name: dict(outcomes) for name, outcomes in report.tasks.items()},
            "median_seconds": {name: sorted(took)[len(took) // 2] for name, took in report.seconds.items() if took},
            "letters": report.messages,
            "questions": report.questions,
            **about,
        },
    )
