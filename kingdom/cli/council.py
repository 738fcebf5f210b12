"""`kingdom council`: what waits for agents, what they have written each other, and the messages that were given up."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import click

from kingdom import mime
from kingdom.cli import as_json, home, say, screen
from kingdom.cli.commands import Finite
from kingdom.cli.screen import Column, Line, Section
from kingdom.cli.screen import Table as Grid
from kingdom.disk.atomic import Disk, is_there, make_folder
from kingdom.disk.codec import parse_json, read_bytes, read_json_or
from kingdom.disk.lock import is_locked
from kingdom.errors import (
    BadFile,
    BadInput,
    BadMessage,
    BadName,
    Collision,
    Exit,
    KingdomError,
    NoSuchThing,
    NotRunning,
)
from kingdom.home import roster, team
from kingdom.home.places import Places, as_filename, check_name
from kingdom.records.council import LARGEST_DEAD_LETTER, OUTBOXES, listed_rows, original_of, read_body
from kingdom.records.lookup import find
from kingdom.records.messages import Event
from kingdom.runtime.wake import Waker
from kingdom.times import stamp
from kingdom.words import count, duration, one_line, table, time_apart

WATCH_SECONDS = 1.0
LOOK_SECONDS, TASK_LOOKS = 0.05, 60
DEEPEST = 100
ENDING, ORIGINAL = ".mime", ".original"
BACK = "back_"
"""Begins the name of a dead letter whose message is put back just now: the council finds its own by their names."""


class Unusable(BadInput):
    """{name} cannot be {done}: {why}"""

    exit = Exit.FAILED


class Unready(BadInput):
    """the council's {agent} cannot start: {why}"""

    exit = Exit.FAILED


@click.group(short_help="Agents' messages: plan, status, watch, thread, dlq.")
def council() -> None:
    """Show what waits for the agents of the council, and what became of it."""


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
    if not team.is_installed(places):
        raise NotRunning(what="gen-council", hint=f"`{home.command()} generals install {team.GENERAL}` installs it")
    _check_agents(places)
    about = {"context": context, "approve": approve, "folder": None if repo else _folder(Path.cwd())}
    for role in ("council", team.GENERAL):
        if not is_locked(places.lock(role)):
            print(_not_running(places, role))
    put = partial(
        say.create, places, partial(_event, goal, repo, {key: value for key, value in about.items() if value})
    )
    if wait:
        return say.print_messages(places, put, timeout, in_json=False)
    event = put()
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

    for agent, row in team.agents(places).items():
        if (why := packages.missing_of_agent(places, home.system(places), agent, row)) is not None:
            raise Unready(agent=agent, why=why)


def _folder(here: Path) -> str:
    """Return the top of the repository around a folder, else the folder itself."""
    return str(next((folder for folder in (here, *here.parents) if is_there(folder / ".git")), here))


def _event(goal: str, repo: str | None, about: dict[str, Any], number: str, now: float) -> Event:
    who = home.user()
    said = {"user_id": who, "user": who, "goal": goal, "channel": say.CHANNEL, "message_ts": f"{now:.6f}"}
    return Event(
        id=f"evt-{say.CHANNEL}-{number}",
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
    elif team.is_installed(places):
        how = f"`roles: {{{role}: false}}` in {places.config / 'system.yaml'} switches it off"
    else:
        how = f"`{home.command()} generals install {team.GENERAL}` and `{home.command()} up` start it"
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
    rows = _thread(places, id)
    if not rows:
        hint = f"; `{home.command()} council status` shows what waits"
        raise NoSuchThing(what="thread or message", name=id, hint=hint)
    roots = _roots(places, rows)
    if page is None:
        print("\n".join(_tree(roots)))
        return
    from kingdom.cli.council_page import page_of

    summary = f"thread {id}, {count(len(rows), 'message')} at {count(len({row['agent'] for row in rows}), 'agent')}"
    Disk(page.parent, durability="process").rewrite(page, page_of(roots, summary).encode())
    print(f"{page} shows it.")


@council.group()
def dlq() -> None:
    """List, put back and delete messages that were given up."""


@dlq.command("ls")
@click.option("--json", "in_json", is_flag=True, help="Print them as one line of JSON.")
def list_letters(in_json: bool) -> None:
    """List the messages that were given up, each with the reason."""
    places = home.find()
    found = [facts_of(places, name) for name in letters(places)]
    if in_json:
        print(as_json.line("dead_letters", {"dead_letters": found}))
        return
    rows = [
        [row["name"], row["agent"], time_apart(row["moved_at"], time.time()), one_line(row["reason"])] for row in found
    ]
    print(table(rows, ("dead letter", "for", "age", "reason"), indent="") if rows else "none")


@dlq.command()
@click.argument("names", nargs=-1)
@click.option("--all", "every", is_flag=True, help="Put back all of them.")
def retry(names: Sequence[str], every: bool) -> None:
    """Put messages back where they came from, byte for byte; agents are told of them again."""
    places = home.own()
    disk = home.disk(places)
    _each(_chosen(places, names, every), lambda name: print(f"{_put_back(places, disk, name)} is back"))


def _each(names: Sequence[str], act: Callable[[str], None]) -> None:
    """Do something with each dead letter, and say of each why it failed."""
    failed: list[KingdomError] = []
    for name in names:
        try:
            act(name)
        except (BadInput, Collision) as error:
            failed.append(error)
    for one in failed[:-1]:
        print(one, file=sys.stderr)
    if failed:
        raise failed[-1]


def _put_back(places: Places, disk: Disk, name: str) -> str:
    """Move what a dead letter holds to where it came from, and return that place.

    The council may give it up again before we have removed the letter, and would take this one for its own.
    """
    letter = places.dead_letters / name
    agent, original = _came_from(letter)
    make_folder(places.told(agent))
    target, beside = places.agent(agent) / original, _beside(letter)
    data = original_of(_body(letter)) if beside is None else b""
    taken = letter.with_name(f"{BACK}{name.removeprefix(BACK)}")
    if taken != letter:
        disk.move(letter, taken)
    try:
        disk.create(target, data) if beside is None else disk.move(beside, target)
    except Collision:
        # Of a command that was killed here, or another message.
        if beside is not None or (data and not _holds(target, data)):
            disk.move(taken, letter) if taken != letter else None
            raise
    disk.remove(taken)
    return f"{agent}/{original}"


def _beside(letter: Path) -> Path | None:
    """Return what a dead letter is about where that is no readable file."""
    names = (letter.name, letter.name.removeprefix(BACK))
    return next((path for name in names if is_there(path := letter.with_name(name).with_suffix(ORIGINAL))), None)


def _holds(path: Path, data: bytes) -> bool:
    try:
        return read_bytes(path, LARGEST_DEAD_LETTER) == data
    except BadFile:
        return False


@dlq.command()
@click.argument("names", nargs=-1)
@click.option("--all", "every", is_flag=True, help="Delete all of them.")
def purge(names: Sequence[str], every: bool) -> None:
    """Delete messages that were given up, for good."""
    places = home.own()
    disk = home.disk(places)
    chosen, deleted = _chosen(places, names, every), list[str]()

    def delete(name: str) -> None:
        _delete(disk, places.dead_letters / name)
        deleted.append(name)

    try:
        _each(chosen, delete)
    finally:
        print(f"deleted {count(len(deleted), 'dead letter')}")


def _delete(disk: Disk, letter: Path) -> None:
    if (beside := _beside(letter)) is not None:
        if os.path.isdir(beside) and not beside.is_symlink():
            why = f"it is a folder; look into {beside} and remove it"
            raise Unusable(name=letter.name, done="deleted", why=why)
        disk.remove(beside)
    disk.remove(letter)


def look(places: Places, now: float) -> dict[str, Any]:
    """Return how many messages each agent has, who is at work, and how many were given up."""
    rows_of = team.agents(places)
    rows = []
    for agent in _agents(places):
        turn = places.agent_turn(agent)
        waits, told = _messages(places.agent(agent)), _messages(places.told(agent))
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
    rows = [row for row in waiting_rows(places, ["coordinator"]) if _needs_yes(places, row)]
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


def _agents(places: Places) -> list[str]:
    with suppress(FileNotFoundError):
        names = os.listdir(places.council)
        return sorted(name for name in names if mime.folder_of(name) == name and places.agent(name).is_dir())
    return []


def _messages(folder: Path) -> dict[str, float]:
    """Return the messages in a folder, each with the time at which it was changed."""
    found = {}
    with suppress(FileNotFoundError), os.scandir(folder) as entries:
        for entry in entries:
            if entry.name.endswith(ENDING) and not entry.name.startswith("."):
                with suppress(FileNotFoundError):
                    found[entry.name] = entry.stat(follow_symlinks=False).st_mtime
    return found


# Threads.


@dataclass
class Node:
    """One message in a thread; it may have gone to several agents."""

    id: str
    row: dict[str, Any]
    #: By agent: what became of it there.
    states: dict[str, str] = field(default_factory=dict)
    children: list[Node] = field(default_factory=list)


def _thread(places: Places, id: str) -> list[dict[str, Any]]:
    """Return the messages of a thread, oldest first: those that the council has taken, and those that wait."""
    waiting = list(waiting_rows(places))
    rows = [
        *listed_rows(places.council_threads / f"{as_filename(id)}.jsonl"),
        *(row for row in waiting if row["thread"] == id),
    ]
    if rows:
        return rows
    if (conversation := _conversation(places, id)) is not None:
        return _thread(places, conversation)
    for path in sorted(places.council_threads.glob("*.jsonl")):
        listed = list(listed_rows(path))
        if any(is_named(row, id) for row in listed):
            return listed if not path.name.startswith("without-") else [row for row in listed if is_named(row, id)]
    named = next((row for row in waiting if is_named(row, id)), None)
    if named is None:
        return []
    return [row for row in waiting if row["thread"] == named["thread"]] if named["thread"] else [named]


def _conversation(places: Places, id: str) -> str | None:
    """Return the thread that a person's words belong to, by the task that they have become."""
    try:
        thread = find(places, id, ("tasks",)).content["payload"]["session_id"]
    except (NoSuchThing, LookupError, TypeError):
        return None
    return thread if isinstance(thread, str) and thread != id else None


def is_named(row: dict[str, Any], id: str) -> bool:
    return id in (row["id"], row["id"].strip("<>"), row["file"], row["file"].removesuffix(ENDING))


def waiting_rows(places: Places, agents: Sequence[str] = ()) -> Iterator[dict[str, Any]]:
    """Yield what waits in agents' folders, in those of all where none is named, and was not taken yet."""
    for agent in agents or _agents(places):
        for name in sorted(_messages(places.agent(agent))):
            with suppress(FileNotFoundError, BadFile):
                found = mime.parse_message(read_bytes(places.agent(agent) / name).decode("utf-8", "replace"))
                row = {"at": "", "agent": agent, "file": name, "about": "", "thread": found["thread_id"]}
                yield {
                    **row,
                    "id": found["message_id"],
                    "in_reply_to": found["in_reply_to"],
                    "from": found["from"],
                    "to": found["to"],
                    "type": found["type"],
                }


def _roots(places: Places, rows: list[dict[str, Any]]) -> list[Node]:
    """Return the messages that answer none, each with its answers. What answers a later one, as in a circle, is a root.

    Where it would be too deep to be read, an answer is a root too.
    """
    dead = letters(places)
    titles = {row.get("task_id"): row["about"] for row in rows if row.get("task_id") != row["about"]}
    nodes: dict[str, Node] = {}
    depths: dict[str, int] = {}
    roots: list[Node] = []
    for row in sorted(rows, key=_micros):
        key = row["id"] or row["file"]
        if key not in nodes:
            above = nodes.get(row["in_reply_to"])
            depth = depths.get(row["in_reply_to"], -1) + 1
            if depth > DEEPEST:
                above, depth = None, 0
            named = {**row, "about": titles.get(row.get("task_id"), row["about"])} if row.get("task_id") else row
            nodes[key], depths[key] = Node(row["id"], named), depth
            (roots if above is None else above.children).append(nodes[key])
        nodes[key].states[row["agent"]] = state_of(places, row, dead)
    return roots


def _micros(row: dict[str, Any]) -> str:
    return str(row["file"].removesuffix(ENDING)[-16:])


def _tree(roots: list[Node]) -> Iterator[str]:
    for root in roots:
        yield from _branch(root, "", "")


def _branch(node: Node, lead: str, below: str) -> Iterator[str]:
    to = ", ".join(f"{agent} ({state})" for agent, state in node.states.items())
    about = " — ".join(filter(None, (one_line(node.row.get("about") or "", 60), node.row.get("outcome"))))
    what = f"{one_line(node.row['type'], 40)}: {one_line(node.row['from'], 40)} → {to}"
    yield f"{lead}{what}{f': {about}' if about else ''}"
    for child in node.children:
        is_last = child is node.children[-1]
        yield from _branch(child, f"{below}{'└─ ' if is_last else '├─ '}", f"{below}{'   ' if is_last else '│  '}")


def state_of(places: Places, row: dict[str, Any], dead: list[str]) -> str:
    """Return what became of a message at one agent."""
    try:
        waits, told = places.agent(row["agent"]) / row["file"], places.told(row["agent"]) / row["file"]
        if is_there(waits):
            return "waits for a yes" if _needs_yes(places, row) else "waiting"
        head = mime.parse_message(read_bytes(told).decode("utf-8", "replace"))
        return one_line(head["status"] or "waiting", 20)
    except (FileNotFoundError, BadFile, BadName):
        start = f"{as_filename(row['file'].removesuffix(ENDING))}_dlq_"
        return "dead letter" if any(name.startswith(start) for name in dead) else "done"


def _needs_yes(places: Places, row: dict[str, Any]) -> bool:
    """Return whether a message is a plan that a person has not approved yet."""
    if row["type"] != "task_list" or not row.get("thread"):
        return False
    try:
        goal = read_json_or(places.council_goal(row["thread"]), {})
    except BadName:
        return False
    return bool(goal.get("approve")) and not goal.get("approved") and not goal.get("over")


# Dead letters.


def letters(places: Places) -> list[str]:
    return sorted(_messages(places.dead_letters))


def facts_of(places: Places, name: str) -> dict[str, Any]:
    try:
        body = _body(places.dead_letters / name)
    except (FileNotFoundError, BadFile, BadMessage) as error:
        return {"name": name, "agent": "?", "file": "", "moved_at": "", "retry_count": 0, "reason": str(error)}
    info = body.get("failure_info")
    info = info if isinstance(info, dict) else {}
    agent, _, file = str(body.get("original_file")).rpartition("/")
    facts = {"name": name, "agent": agent, "file": file, "moved_at": str(info.get("moved_at"))}
    return {**facts, "retry_count": info.get("retry_count"), "reason": str(info.get("last_error"))}


def _body(letter: Path) -> dict[str, Any]:
    raw = read_bytes(letter, LARGEST_DEAD_LETTER).decode("utf-8", "replace")
    return read_body(mime.extract_body(raw))


def _came_from(letter: Path) -> tuple[str, str]:
    """Return the agent and the name of the message in a dead letter, which anybody may have written."""
    try:
        agent, _, name = str(_body(letter).get("original_file")).rpartition("/")
    except (BadFile, BadMessage) as error:
        raise Unusable(name=letter.name, done="put back", why=error) from None
    if agent.partition("/")[0] == OUTBOXES:
        raise Unusable(name=letter.name, done="put back", why="it lay in an outbox, and was sent to nobody")
    if mime.folder_of(agent) != agent or not agent:
        raise Unusable(name=letter.name, done="put back", why=f"{one_line(agent or 'nobody')} is no agent")
    if not name.endswith(ENDING) or name.startswith(".") or "\0" in name:
        raise Unusable(name=letter.name, done="put back", why=f"{one_line(name)!r} is no name of a message")
    check_name("agent", agent)
    return agent, name


def _chosen(places: Places, names: Sequence[str], every: bool) -> list[str]:
    """Return the dead letters that were named, by their own name or that of the message."""
    known = letters(places)
    if every and not names:
        return known
    if not names or every:
        raise click.UsageError("name dead letters, or say --all")
    chosen: dict[str, None] = {}
    for name in names:
        start = f"{name.removesuffix(ENDING)}_dlq_"
        found = [one for one in known if one in (name, f"{name}{ENDING}") or one.startswith(start)]
        if not found:
            hint = f"; `{home.command()} council dlq ls` lists them"
            raise NoSuchThing(what="dead letter", name=name, hint=hint)
        chosen.update(dict.fromkeys(found))
    return list(chosen)
