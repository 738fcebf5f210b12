"""What `kingdom status` shows of a kingdom, laid out in sections. It is asked for all day, so it loads little."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

from kingdom import wings
from kingdom.base import tables
from kingdom.base.errors import Exit
from kingdom.base.home import roster
from kingdom.base.home.places import Places
from kingdom.base.program import as_json, home, screen
from kingdom.base.program.screen import BAD, LONGEST_TEXT, Column, Line, Part, Section, Table
from kingdom.base.times import rests_until
from kingdom.base.words import STATES, count, duration, one_line, time_apart
from kingdom.court import picture
from kingdom.court.picture import Picture, RoleView
from kingdom.court.soldiers.disk_space import why_full

HEALTH_STYLES = {"green": "bold green", "yellow": "bold yellow", "orange": "bold yellow", "red": "bold red"}
ROLE_STYLES = {
    "idle": "green",
    "working": "bold green",
    "starting": "yellow",
    "foreign": "cyan",
    "degraded": "yellow",
    "down": "yellow",
}
COLUMNS = {
    "waiting": ("pending",),
    "in progress": ("dispatched", "in_progress"),
    "ended": ("completed", "sent", "done"),
    "failed": ("failed",),
    "dead": ("dead",),
}
LEAST_WAIT_SECONDS = 2.0
"""What has waited for less is not worth a line."""
MOST_SHOWN = 3
LONGEST_SUBJECT = 60
PER_ROW = 60


def show(in_json: bool = False) -> int:
    """Print the picture of the kingdom. Return DONE when every role that should run beats and the disk has room."""
    places = home.find()
    places.check()
    view = look(places)
    if in_json:
        print(json_line(view))
    else:
        screen.show(list(sections(places, view)))
    return Exit.DONE if well(view) and not why_full(places.home) else Exit.FAILED


def json_line(view: Picture) -> str:
    return as_json.line("status", {**view.to_json(), "well": well(view)})


def well(view: Picture) -> bool:
    """Return whether every role that should run does; one that was stopped by hand should not."""
    return all(role.beats or role.state == "down" for role in view.roles)


def look(places: Places) -> Picture:
    return picture.of(places, home.system(places), time.time())


def sections(places: Places, view: Picture) -> Iterator[Section]:
    """Yield what `status` shows: first what wants a person's attention, then what works by itself."""
    working = _worked_on(places, view)
    blocks = [_head(view), _disk(places), _questions(view), _missing(view), _outdated(view)]
    blocks += [_failures(view), _running(view, working)]
    blocks += [*_waiting(places, view, working)]
    blocks += [_roles(view), _watchers(view), _queues(view), *_products(view), _cleaning(view), _next(view)]
    yield from (block for block in blocks if block.body)


def _head(view: Picture) -> Section:
    health = Part(view.health, HEALTH_STYLES.get(view.health, "bold"))
    figures = Part(f"{''.join(f', {figure}' for figure in view.load())}{_what_starts(view.health)}")
    return Section([Line([Part(f"{view.home}: "), health, figures], indent=0)])


def _disk(places: Places) -> Section:
    if not (full := why_full(places.home)):
        return Section([])
    says = f"{full}: soldiers are stopped; make room on the disk of {places.home}"
    return Section([screen.line(says)], "no room", BAD)


def _what_starts(health: str) -> str:
    if health in ("green", "unknown"):
        return ""
    from kingdom.court.rules.gate import STARTS

    return f"; {STARTS[health]}" if health in STARTS else ""


def _questions(view: Picture) -> Section:
    body: list[Line | Table] = []
    for asked in view.asking[:MOST_SHOWN]:
        task = one_line(asked["id"])
        who = f", {one_line(asked['target_general'])} asks" if asked.get("target_general") else ""
        who += f" about {one_line(asked['about'], LONGEST_SUBJECT)}" if asked.get("about") else ""
        question = one_line(asked.get("question") or "no question was kept", LONGEST_TEXT)
        ago = Part(f"  {duration(asked['seconds'])}{who}: ", "dim")
        body.append(Line([Part(task, "bold"), ago, Part(question)]))
        body.append(screen.command(f'{home.command()} say --answer {task} "..."'))
    more = len(view.questions) - MOST_SHOWN
    if more > 0:
        body.append(screen.line(f"and {more} more: {home.command()} tasks --asking", "dim"))
    return Section(body, "needs you", "bold yellow")


def _missing(view: Picture) -> Section:
    """Return the roles that should run and write no heartbeat, each with what to do."""
    missing = [role for role in view.roles if not role.beats and role.state != "down"]
    beating = view.beating()
    if missing and not beating:
        who = Part(f"none of {count(len(view.roles), 'role')}: ", BAD)
        return Section([Line([who, Part(f"`{home.command()} up` starts the kingdom")])], "not at work", BAD)
    body = [
        Line([Part(role.name, BAD), Part(f"  {_in_state(role.state)}: {_next_step(role, beating)}")])
        for role in missing
    ]
    return Section(body, "not at work", BAD)


def _outdated(view: Picture) -> Section:
    """Return the roles that were started before an upgrade."""
    names = view.outdated()
    if not names:
        return Section([])
    runs = "runs" if len(names) == 1 else "run"
    what = f"{', '.join(names)} {runs} older code than is installed: `{home.command()} up` restarts "
    return Section([screen.line(f"{what}{'it' if len(names) == 1 else 'them one by one'}")], "upgraded", "bold yellow")


def _next_step(role: RoleView, beating: set[str]) -> str:
    if role.state == "quarantined":
        return f"read logs/{role.name}.log, then `{home.command()} start {role.name}`"
    start = f"`{home.command()} {'restart' if role.state == 'silent' else 'start'} {role.name}`"
    is_watched = roster.watcher(role.name) in beating
    if role.stopped:
        return f"its launcher was asked to stop it, and it stays down until {start}"
    if role.refuses:
        then = "then it comes back by itself" if is_watched else f"then {start}"
        return f"{one_line(role.refuses, LONGEST_TEXT)}; correct that, {then}"
    return f"it comes back by itself, or by {start}" if is_watched else start


def _failures(view: Picture) -> Section:
    body: list[Line | Table] = []
    for failure in view.failures[:MOST_SHOWN]:
        why = one_line(failure["why"] or "no reason was kept", LONGEST_TEXT)
        ago = Part(f"  {time_ago(failure.get('at'), view.taken_at)}: ", "dim")
        body.append(Line([Part(one_line(failure["what"]), "red"), ago, Part(why)]))
    if not body:
        return Section([])
    return Section(body, "failed", BAD, remark=f"{home.command()} why ID tells more")


def time_ago(at: object, now: float) -> str:
    return duration(max(0.0, now - at)) if isinstance(at, int | float) else "?"


def _worked_on(places: Places, view: Picture) -> list[dict[str, Any]]:
    """Return the first tasks in progress that do not wait. Why one without a soldier has none is looked up seldom."""
    tasks = [task for task in view.under_way if view.is_at_work(task)]
    if all(view.has_soldier(task) for task in tasks):
        return tasks
    from kingdom.court.reasons import Reasons

    return Reasons(places, home.command()).worked_on(view)


def _running(view: Picture, working: list[dict[str, Any]]) -> Section:
    soldiers = {row.get("task_id"): row for row in view.soldiers}
    rows = [_task(task, soldiers.pop(task["id"], None), view.taken_at) for task in working]
    rows += [(one_line(task), "", "", _soldier(row, view.taken_at)) for task, row in soldiers.items()]
    columns = (Column("task"), Column("general"), Column("type", shrinks=True), Column("soldier"))
    body: list[Line | Table] = [Table(columns, rows)] if rows else []
    brief: list[Line | Table] = [Table([column._replace(title="") for column in columns], rows)] if rows else []
    if (more := view.queues["tasks"]["in_progress"] - len(view.under_way)) > 0:
        rest = screen.line(f"and {more} more: {home.command()} tasks --state in_progress", "dim")
        body, brief = [*body, rest], [*brief, rest]
    return Section(body, "running", "bold green", brief=brief)


def _task(task: dict[str, Any], soldier: dict[str, Any] | None, now: float) -> tuple[str | Part, ...]:
    repo = f" in {one_line(task['repo'])}" if task.get("repo") else ""
    tries = f", attempt {task['attempt'] + 1}" if isinstance(task.get("attempt"), int) and task["attempt"] else ""
    what = f"{one_line(task['type'])}{repo}{tries}"
    age = _soldier(soldier, now) if soldier else f"none; made {time_apart(task.get('created_at'), now)} ago"
    return one_line(task["id"]), one_line(task["target_general"]), what, age


def _soldier(row: dict[str, Any], now: float) -> str:
    return f"for {time_apart(row['started_at'], now)}" if row.get("started_at") else f"pid {row.get('pid')}"


def _waiting(places: Places, view: Picture, working: list[dict[str, Any]]) -> Iterator[Section]:
    resting = (task for task in view.under_way if task not in working)
    body: list[Line | Table] = [_resting(places, task, view.taken_at) for task in resting]
    for waits in view.waiting[:MOST_SHOWN]:
        if waits["seconds"] >= LEAST_WAIT_SECONDS:
            ago = Part(f"  {one_line(waits.get('type') or waits['kind'])}, {duration(waits['seconds'])}: ", "dim")
            body.append(Line([Part(one_line(waits["id"]), "yellow"), ago, Part(_because(places, waits))]))
    pending = sum(states["pending"] for states in view.queues.values())
    if body and (more := pending - min(len(view.waiting), MOST_SHOWN)) > 0:
        body.append(screen.line(f"and {more} more: {home.command()} queue", "dim"))
    yield Section(body, "waiting", "bold yellow")
    held = [
        Line(
            [
                Part(one_line(run.get("schedule")), "yellow"),
                Part(f", for {time_apart(run['held_since'], view.taken_at)}: ", "dim"),
                Part(one_line(run.get("held_because"), LONGEST_TEXT)),
            ]
        )
        for run in view.held_runs
    ]
    yield Section(held, "due and held back", "bold yellow")


def _resting(places: Places, task: dict[str, Any], now: float) -> Line:
    """Return what a task in progress waits for."""
    if (later := rests_until(task.get("not_before"), now)) is not None:
        why = one_line(task.get("waits_because") or "an attempt failed", LONGEST_TEXT)
        when = f"goes on in {duration(later - now)}"
    else:
        why = _because(places, {**task, "kind": "tasks"})
        when = f"made {time_apart(task.get('created_at'), now)} ago"
    about = Part(f"  {one_line(task['target_general'])}, {when}: ", "dim")
    return Line([Part(one_line(task["id"]), "yellow"), about, Part(why)])


def _because(places: Places, waits: dict[str, Any]) -> str:
    from kingdom.court.reasons import Reasons

    return one_line(Reasons(places, home.command()).because(waits["kind"], waits["id"]), LONGEST_TEXT)


def _roles(view: Picture) -> Section:
    columns = (
        Column("role"),
        Column("state", shrinks=True),
        Column("up for"),
        Column("restarts"),
        Column("pid", PER_ROW + 1),
        Column("last heartbeat", PER_ROW + 1),
    )
    rows = {role.name: _role(role) for role in view.roles}
    well = [role.name for role in view.roles if role.state in ("idle", "working")]
    others = [row for name, row in rows.items() if name not in well]
    states = {role.state for role in view.roles}
    if not well and len(states) == 1:
        all_of_them = f"{count(len(rows), 'role')}: {_in_state(states.pop())}"
        return Section([Table(columns, list(rows.values()))], brief=[screen.line(all_of_them, BAD)])
    fit = f"{len(well)} of {count(len(rows), 'role')} at work" + (f": {', '.join(well)}" if well else "")
    brief: list[Line | Table] = [Table(columns, others)] if others else []
    return Section([Table(columns, list(rows.values()))], brief=[*brief, screen.line(fit)])


def _in_state(state: str) -> str:
    return STATES.get(state, state)


def _role(role: RoleView) -> tuple[str | Part, ...]:
    beat = "never" if role.beat_age is None else f"{duration(role.beat_age)} ago"
    state = Part(_in_state(role.state), ROLE_STYLES.get(role.state, BAD))
    up = "-" if role.up_seconds is None else duration(role.up_seconds)
    restarts = Part(str(role.restarts), "yellow") if role.restarts else "0"
    return role.name, state, up, restarts, str(role.pid or "-"), beat


def _watchers(view: Picture) -> Section:
    """Return a line for each watcher; where there is no room for these, one for all of them."""
    body = [
        Line([Part(f"{said['watcher']}  ", "dim"), *_watcher(said, view.taken_at)], indent=0) for said in view.watchers
    ]
    well = [one_line(said["watcher"]) for said in view.watchers if said.get("state") == "ok"]
    others = [line for line, said in zip(body, view.watchers, strict=True) if said.get("state") != "ok"]
    fit = [screen.line(f"watched: {', '.join(well)}", indent=0)] if well else []
    return Section(body, brief=[*others, *fit])


def _watcher(said: dict[str, Any], now: float) -> Iterator[Part]:
    state = one_line(said.get("state"))
    yield Part(state, "green" if state == "ok" else BAD if state == "refused" else "yellow")
    looked = f"looked {time_apart(said['looked_at'], now)} ago" if said.get("looked_at") else "has not looked yet"
    due = f", next in {time_apart(said['next_at'], now)}" if said.get("next_at") else ""
    yield Part(f", {looked}{due}")
    if state != "ok":
        yield Part(f": {one_line(said.get('why'), LONGEST_TEXT)}")


def _queues(view: Picture) -> Section:
    columns = [Column("queue"), *(Column(title) for title in COLUMNS)]
    rows = [
        (kind, *(_cell(states, title, states_of) for title, states_of in COLUMNS.items()))
        for kind, states in view.queues.items()
    ]
    held = (f"{kind} {_in_words(states)}" for kind, states in view.queues.items() if any(states.values()))
    return Section([Table(columns, rows)], brief=[screen.line("; ".join(held) or "all queues are empty")])


def _in_words(states: dict[str, int]) -> str:
    return ", ".join(f"{number} {state.replace('_', ' ')}" for state, number in states.items() if number)


def _cell(states: dict[str, int], title: str, column: tuple[str, ...]) -> str | Part:
    if not any(state in states for state in column):
        return "-"
    held = sum(states.get(state, 0) for state in column)
    return Part(str(held), BAD if held and title in ("failed", "dead") else "")


def _products(view: Picture) -> Iterator[Section]:
    yield from (tables.load(wing.shown)(view.products) for wing in wings.rows() if wing.shown)


def _cleaning(view: Picture) -> Section:
    """Say why files are being deleted at this moment."""
    cleanup = view.cleanup
    if cleanup.get("state") != "working" or "chamberlain" not in view.beating():
        return Section([])
    since = Part(f"  for {time_apart(cleanup.get('began_at'), view.taken_at)}: ", "dim")
    return Section([Line([Part("cleaning up", "yellow"), since, Part(one_line(cleanup.get("why")))], indent=0)])


def _next(view: Picture) -> Section:
    run = view.next_run
    if run is None:
        return Section([])
    when = f" at {one_line(run['next'])}, in {time_apart(run['next'], view.taken_at)}"
    return Section([Line([Part("next run  ", "dim"), Part(one_line(run.get("schedule"))), Part(when)], indent=0)])
