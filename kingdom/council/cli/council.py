"""`kingdom council`: give the agents a goal, and show what waits for them."""

from __future__ import annotations

import os
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

import click

from kingdom.base.disk.atomic import Disk, is_there
from kingdom.base.disk.codec import parse_json, read_bytes, read_json_or
from kingdom.base.disk.lock import is_locked
from kingdom.base.errors import BadFile, BadInput, Exit, NoSuchThing, NotRunning
from kingdom.base.home import roster
from kingdom.base.home.places import Places
from kingdom.base.program import as_json, home, screen
from kingdom.base.program.call import Finite
from kingdom.base.program.screen import Column, Line, Section
from kingdom.base.program.screen import Table as Grid
from kingdom.base.records.lookup import find
from kingdom.base.records.messages import Event
from kingdom.base.runtime.wake import Waker
from kingdom.base.times import stamp
from kingdom.base.words import count, duration, one_line
from kingdom.cli import say
from kingdom.council import players
from kingdom.council.cli.council_dead_letters import dlq, letters, messages_in
from kingdom.council.cli.council_thread import agents_of, needs_yes, roots_of, rows_of_thread, tree, waiting_rows

WATCH_SECONDS = 1.0
LOOK_SECONDS, TASK_LOOKS = 0.05, 60


class Unready(BadInput):
    """the council's {agent} cannot start: {why}"""

    exit = Exit.FAILED


@click.group(short_help="Agents' messages: plan, status, watch, thread, dlq.")
def council() -> None:
    """Show what waits for the agents of the council, and what became of it."""


council.add_command(dlq)


@council.command()
@click.argument("goal")
@click.option(
    "--repo", metavar="OWNER/NAME", default=None, help="The repository that it is about, instead of this folder."
)
@click.option("-c", "--context", metavar="TEXT", default="", help="What else leader should know.")
@click.option("--approve", type=click.Choice(["plan"]), help="Ask before the tasks of the plan are given out.")
@click.option("--wait", is_flag=True, help="Wait, and print the messages that it leads to.")
@click.option("--timeout", type=Finite(min=0), default=3600.0, show_default=True, help="With --wait: seconds to wait.")
def plan(goal: str, repo: str | None, context: str, approve: str | None, wait: bool, timeout: float) -> int:
    """Give the council a GOAL, about the repository in the current folder unless --repo names one.

    With --wait, exit code 0 when the last message is an answer or a question, 1 when it says [failed].
    """
    if not goal.strip():
        raise click.UsageError("GOAL is empty")
    places = home.own()
    if not players.is_installed(places):
        raise NotRunning(what="gen-council", hint=f"`{home.command()} generals install {players.GENERAL}` installs it")
    _check_agents(places)
    about = {"context": context, "approve": approve, "folder": None if repo else _folder(Path.cwd())}
    for role in ("council", players.GENERAL):
        if not is_locked(places.lock(role)):
            print(_not_running(places, role))
    made = _event(goal, repo, {key: value for key, value in about.items() if value})
    if wait:
        return say.print_messages(places, made, timeout, in_json=False)
    event = say.create(places, made)
    task = _task_of(places, event)
    if task is None:
        print(f"{event} waits for the king; `{home.command()} why {event}` says for what.")
    else:
        print(f"{task} is with the council.")
        print(f"Follow it: `{home.command()} council thread {task}`, `{home.command()} council watch`.")
        print(f"End it: `{home.command()} tasks cancel {task}`.")
    return Exit.DONE


def _check_agents(places: Places) -> None:
    """Unready when an agent could not take its part: the goal would wait for it until its time is over."""
    from kingdom.cli import packages
    from kingdom.council.agents import missing

    here = packages.here(places, home.system(places))
    for agent, row in players.agents(places).items():
        if (why := missing(here, agent, row)) is not None:
            raise Unready(agent=agent, why=why)


def _folder(here: Path) -> str:
    """Return the top of the repository around a folder, else the folder itself."""
    return str(next((folder for folder in (here, *here.parents) if is_there(folder / ".git")), here))


def _event(goal: str, repo: str | None, about: dict[str, Any]) -> Event:
    who, now = home.user(), time.time()
    said = {"user_id": who, "user": who, "goal": goal, "channel": say.CHANNEL, "message_ts": f"{now:.6f}"}
    return Event(
        id=f"evt-{say.CHANNEL}",
        type="council.message",
        source=say.CHANNEL,
        repo=repo or None,
        payload={**said, **about},
        created_at=stamp(now),
    )


def _task_of(places: Places, event: str) -> str | None:
    """Return the task that an event has become, which the king makes at once while he runs."""
    if not home.is_played(places, "king"):
        return None
    waker = Waker((), "poll")
    for _ in range(TASK_LOOKS):
        with suppress(NoSuchThing):
            if task := find(places, event, ("events",)).get("task_id"):
                return str(task)
        waker.wait(LOOK_SECONDS)
    return None


def _not_running(places: Places, role: str = "council") -> str:
    """Return what starts the council, or its general."""
    if roster.is_switched_on(places, role):
        how = f"`{roster.how_to_start(places, role, home.command())}` starts it"
    elif players.is_installed(places):
        how = f"`roles: {{{role}: false}}` in {places.config / 'system.yaml'} switches it off"
    else:
        how = f"`{home.command()} generals install {players.GENERAL}` and `{home.command()} up` start it"
    return f"{role} does not run; {how}."


@council.command()
@click.option("--json", "in_json", is_flag=True, help="Print it as one line of JSON.")
def status(in_json: bool) -> None:
    """Show what waits for each agent, and who is at work."""
    places = home.find()
    found = look(places, time.time())
    if in_json:
        print(as_json.line("council", found))
    else:
        screen.show(_sections(places, found))


@council.command()
def watch() -> None:
    """Show the same every second, until Ctrl-C."""
    places = home.find()
    screen.watch(lambda: _sections(places, look(places, time.time())), WATCH_SECONDS)


@council.command()
@click.argument("id")
@click.option("--html", "page", type=click.Path(path_type=Path), help="Write it as a page that needs no other file.")
def thread(id: str, page: Path | None) -> None:
    """Show the messages of a thread as a tree. ID is that of the thread, or of a message in it, or its file's name."""
    places = home.find()
    rows = rows_of_thread(places, id)
    if not rows:
        hint = f"; `{home.command()} council status` shows what waits"
        raise NoSuchThing(what="thread or message", name=id, hint=hint)
    roots = roots_of(places, rows)
    if page is None:
        print("\n".join(tree(roots)))
        return
    from kingdom.council.cli.council_page import page_of

    summary = f"thread {id}, {count(len(rows), 'message')} at {count(len({row['agent'] for row in rows}), 'agent')}"
    Disk(page.parent, durability="process").rewrite(page, page_of(roots, summary).encode())
    print(f"{page} shows it.")


def look(places: Places, now: float) -> dict[str, Any]:
    """Return how many messages each agent has, who is at work, and how many were given up."""
    rows_of = players.agents(places)
    rows = []
    for agent in agents_of(places):
        turn = places.agent_turn(agent)
        waits, told = messages_in(places.agent(agent)), messages_in(places.told(agent))
        row: dict[str, Any] = {"agent": agent, "waiting": len(waits), "in_hand": len(told)}
        row["oldest_seconds"] = round(max((now - at for at in (*waits.values(), *told.values())), default=0.0), 1)
        row["at_work_on"] = None
        with suppress(FileNotFoundError, BadFile, ValueError, LookupError, TypeError):
            if is_locked(turn / "lock"):
                told_of = list(parse_json(read_bytes(turn / "told.json"))["messages"])
                row["at_work_on"] = os.path.basename(told_of[0])
        row["is_started"] = _is_started(rows_of, agent)
        rows.append(row)
    return {
        "runs": is_locked(places.lock("council")),
        "agents": rows,
        "plans_to_approve": _plans_to_approve(places),
        "dead_letters": len(letters(places)),
    }


def _plans_to_approve(places: Places) -> list[str]:
    """Return the tasks that ask whether a plan is good."""
    rows = [row for row in waiting_rows(places, ["coordinator"]) if needs_yes(places, row)]
    return [str(read_json_or(places.council_goal(row["thread"]), {}).get("task")) for row in rows]


def _is_started(agents: Any, agent: str) -> bool:
    return agent in agents or agent == "user" or (agent.startswith("ignitian_") and "ignitian" in agents)


def _sections(places: Places, found: dict[str, Any]) -> list[Section]:
    """Return what `status` shows: who is at work, what waits, and who has nothing to do."""
    body: list[Line | Grid] = [] if found["runs"] else [screen.line(_not_running(places), indent=0)]
    rows = [
        [
            row["agent"] if row["is_started"] else f"{row['agent']} (nobody starts it)",
            str(row["waiting"]),
            str(row["in_hand"]),
            duration(row["oldest_seconds"]),
            one_line(row["at_work_on"] or "-", 60),
        ]
        for row in sorted(found["agents"], key=lambda row: (row["at_work_on"] is None, _number_of(row["agent"])))
        if row["waiting"] or row["in_hand"]
    ]
    columns = [
        Column("agent"),
        Column("waiting"),
        Column("in hand"),
        Column("oldest"),
        Column("at work on", shrinks=True),
    ]
    body.append(Grid(columns, rows, indent=0) if rows else screen.line("No agent has a message.", indent=0))
    busy = {row["agent"] for row in found["agents"] if row["waiting"] or row["in_hand"]}
    idle = [row["agent"] for row in found["agents"] if row["is_started"] and row["agent"] not in busy]
    if idle:
        body.append(screen.line(f"idle: {', '.join(sorted(idle, key=_number_of))}", "dim", indent=0))
    for asking in found["plans_to_approve"]:
        how = f'`{home.command()} say --answer {asking} "yes"`, or no, or other words for leader.'
        body.append(screen.line(f"A plan waits for a yes: {how}", "yellow", indent=0))
    if found["dead_letters"]:
        said = f"{count(found['dead_letters'], 'dead letter')}: `{home.command()} council dlq ls` says why."
        body.append(screen.line(said, "yellow", indent=0))
    return [Section(body)]


def _number_of(agent: str) -> tuple[int, str]:
    """Return what sorts ignitian_2 before ignitian_10, and all ignitians after the others."""
    number = agent.rpartition("_")[2]
    return (int(number), "") if number.isdigit() else (-1, agent)
