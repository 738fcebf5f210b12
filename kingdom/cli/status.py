"""`kingdom status`: show the picture of the kingdom in a terminal, or print it for a script."""

from __future__ import annotations

import json
import time
from typing import Any

import click

from kingdom import picture
from kingdom.cli import home
from kingdom.errors import Exit
from kingdom.home.places import Places
from kingdom.picture import Picture, RoleView
from kingdom.rules.gate import STARTS
from kingdom.runtime.wake import Waker
from kingdom.times import rests_until
from kingdom.words import STATES, duration, one_line, table, time_apart

COLOURS = {"green": "green", "yellow": "yellow", "orange": "yellow", "red": "red"}
COLUMNS = {
    "waiting": ("pending",),
    "under way": ("dispatched", "in_progress"),
    "ended": ("completed", "sent", "done"),
    "failed": ("failed",),
    "dead": ("dead",),
}
WATCH_SECONDS = 1.0
CLEAR = "\033[H\033[2J"


@click.command(short_help="What runs, waits and fails.")
@click.option("--watch", is_flag=True, help="Show it again every second.")
@click.option("--json", "as_json", is_flag=True, help="The whole picture as JSON.")
def status(watch: bool, as_json: bool) -> int:
    """Show what runs, waits and fails.

    Exit code 0 when every role that should run has a fresh heartbeat, else 1.
    """
    places = home.find()
    places.check()
    if not watch:
        return _show(places, as_json, "")
    waker = Waker((), "poll")
    while True:
        _show(places, as_json, "" if as_json else CLEAR)
        waker.wait(WATCH_SECONDS)


def well(view: Picture) -> bool:
    """Return whether every role that should run does; one that was stopped by hand should not."""
    return all(role.beats or role.state == "down" for role in view.roles)


def _show(places: Places, as_json: bool, before: str) -> int:
    view = picture.of(places, home.system(places), time.time())
    text = json.dumps({**view.to_json(), "well": well(view)}, ensure_ascii=False) if as_json else render(view)
    click.echo(before + text)
    return Exit.DONE if well(view) else Exit.FAILED


def render(view: Picture) -> str:
    parts = [_head(view), _roles(view), _queues(view), *_more(view)]
    return "\n\n".join(part for part in parts if part)


def _head(view: Picture) -> str:
    vitals = view.vitals
    known = [
        f"{name} {vitals[key]:.0f} %"
        for key, name in (("cpu_percent", "cpu"), ("memory_percent", "memory"), ("disk_percent", "disk"))
        if isinstance(vitals.get(key), int | float)
    ]
    health = click.style(view.health, fg=COLOURS.get(view.health), bold=True)
    return f"{view.home}: {', '.join([health, *known])}{_what_starts(view.health)}"


def _what_starts(health: str) -> str:
    return f"; {STARTS[health]}" if health in STARTS else ""


def _roles(view: Picture) -> str:
    rows = [_role(role) for role in view.roles]
    return table(rows, ("role", "state", "pid", "last heartbeat"))


def _role(role: RoleView) -> tuple[str, str, str, str]:
    beat = "never" if role.beat_age is None else f"{duration(role.beat_age)} ago"
    return role.name, STATES.get(role.state, role.state), str(role.pid or "-"), beat


def _queues(view: Picture) -> str:
    rows = [(kind, *(_cell(states, column) for column in COLUMNS.values())) for kind, states in view.queues.items()]
    return table(rows, ("queue", *COLUMNS))


def _cell(states: dict[str, int], column: tuple[str, ...]) -> str:
    held = [states[state] for state in column if state in states]
    return str(sum(held)) if held else "-"


def _more(view: Picture) -> list[str]:
    return [
        _block("waits longest", [_oldest(view.oldest)] if view.oldest else []),
        _block("under way", [_task(task, view.taken_at) for task in view.under_way]),
        _block("soldiers", [_soldier(row, view.taken_at) for row in view.soldiers]),
        _block("waits for your answer", [_question(task) for task in view.questions]),
        _block("went wrong", [_failure(failure) for failure in view.failures]),
        _block("due and held back", [_held(run, view.taken_at) for run in view.held_runs]),
        _block("next run", [_run(view.next_run, view.taken_at)] if view.next_run else []),
    ]


def _block(title: str, lines: list[str]) -> str:
    return "\n".join([title, *(f"  {line}" for line in lines)]) if lines else ""


def _oldest(oldest: dict[str, Any]) -> str:
    return f"{one_line(oldest['id'])} in {oldest['kind']}, for {duration(oldest['seconds'])}"


def _task(task: dict[str, Any], now: float) -> str:
    repo = f" in {one_line(task['repo'])}" if task.get("repo") else ""
    tries = f", try {task['attempt'] + 1}" if isinstance(task.get("attempt"), int) and task["attempt"] else ""
    what = f"{one_line(task['id'])}: {one_line(task['target_general'])}, {one_line(task['type'])}{repo}"
    if (later := rests_until(task.get("not_before"), now)) is not None:
        return (
            f"{what}, waits for {duration(later - now)}: {one_line(task.get('waits_because') or 'a try failed', 300)}"
        )
    return f"{what}{tries}"


def _soldier(row: dict[str, Any], now: float) -> str:
    since = f", at work for {time_apart(row['started_at'], now)}" if row.get("started_at") else ""
    return f"{one_line(row.get('soldier'))}, pid {row.get('pid')}{since}"


def _question(task: str) -> str:
    return f"{one_line(task)}: `{home.command()} why {one_line(task)}` shows what was asked"


def _failure(failure: dict[str, Any]) -> str:
    return f"{one_line(failure['what'])}: {one_line(failure['why'] or 'no reason was kept')}"


def _held(run: dict[str, Any], now: float) -> str:
    reason = one_line(run.get("held_because"), 300)
    return f"{one_line(run.get('schedule'))}, for {time_apart(run['held_since'], now)}: {reason}"


def _run(run: dict[str, Any], now: float) -> str:
    return f"{one_line(run.get('schedule'))} at {one_line(run['next'])}, in {time_apart(run['next'], now)}"
