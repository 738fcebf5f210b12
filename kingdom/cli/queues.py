"""`kingdom events`, `tasks`, `queue`: show what lies in the queues, and give the king orders about it."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from itertools import islice
from pathlib import Path
from typing import Any

import click

from kingdom.cli import give_order, home
from kingdom.cli.queue_files import Found, find, newest, reason
from kingdom.disk.codec import read_bytes, read_json
from kingdom.errors import BadFile, NoSuchThing
from kingdom.home.places import find_schema
from kingdom.home.states import MOVES
from kingdom.words import one_line, printable, table, time_apart

SHOWN = 20

most_shown = click.option(
    "-n", "most", type=click.IntRange(min=1), default=SHOWN, show_default=True, help="Show at most so many."
)
as_json_lines = click.option("--json", "as_json", is_flag=True, help="Print each as one line of JSON.")


class WithDefault(click.Group):
    """A group that calls `ls` when no command is named, and `show` when what is named is not a command."""

    default = "ls"

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        known = {*self.commands, "-h", "--help"}
        if not args or (args[0] not in known and args[0].startswith("-")):
            args = [self.default, *args]
        elif args[0] not in known:
            args = ["show", *args]
        return super().parse_args(ctx, args)


@click.group(cls=WithDefault, short_help="The newest events, or one: ls, show, discard, requeue.")
def events() -> None:
    """The newest events, or one of them: `kingdom events ID`."""


@events.command("ls")
@click.option("--state", type=click.Choice(list(MOVES["events"])), help="Only those in this state.")
@click.option("--discarded", is_flag=True, help="Only those that no general subscribes to, with the reason.")
@most_shown
@as_json_lines
def list_events(state: str | None, discarded: bool, most: int, as_json: bool) -> None:
    """List the newest events."""
    places = home.find()
    states = ("completed",) if discarded else (state,) if state else tuple(MOVES["events"])
    found = newest(places, "events", states)
    if discarded:
        found = (event for event in found if event.get("status") == "discarded")
    _show(islice(found, most), _event_row, as_json)


@events.command("show")
@click.argument("id")
def show_event(id: str) -> None:
    """Show one event's file, and where it lies."""
    _show_file(find(home.find(), id, ("events",)))


def _event_row(event: Found) -> tuple[str, ...]:
    outcome = event.get("discarded_reason") or event.get("task_id") or ""
    if event.state == "dead":
        outcome = reason(event)
    return (_short_id(event), event.state, one_line(event.get("type") or "?", 40), _age(event), one_line(outcome))


@click.group(cls=WithDefault, short_help="The newest tasks, or one: ls, show, retry, cancel.")
def tasks() -> None:
    """The newest tasks, or one of them: `kingdom tasks ID`."""


@tasks.command("ls")
@click.option("--state", type=click.Choice(list(MOVES["tasks"])), help="Only those in this state.")
@most_shown
@as_json_lines
def list_tasks(state: str | None, most: int, as_json: bool) -> None:
    """List the newest tasks."""
    states = (state,) if state else tuple(MOVES["tasks"])
    _show(islice(newest(home.find(), "tasks", states), most), _task_row, as_json)


@tasks.command("show")
@click.argument("id")
def show_task(id: str) -> None:
    """Show one task's file and its result."""
    places = home.find()
    found = find(places, id, ("tasks",))
    _show_file(found)
    with suppress(FileNotFoundError):
        result = places.result(found.id)
        print(f"{result}:\n{_text(result)}", end="")


def _task_row(task: Found) -> tuple[str, ...]:
    outcome = reason(task) if task.state == "dead" else task.get("outcome") or ""
    general = one_line(task.get("target_general") or "?", 30)
    return (_short_id(task), task.state, general, one_line(task.get("type") or "?", 40), _age(task), one_line(outcome))


@click.group(cls=WithDefault, short_help="What lies in every queue: ls, show, requeue.")
def queue() -> None:
    """What lies in every queue, or one file of them: `kingdom queue FILE`."""


@queue.command("ls")
@click.argument("folder", default="")
@most_shown
@as_json_lines
def list_queue(folder: str, most: int, as_json: bool) -> None:
    """List all queues with their counts, or the newest files of a FOLDER like `events` or `tasks/dead`."""
    places = home.find()
    if folder:
        kind, state = _folder(folder)
        states = (state,) if state else tuple(MOVES[kind])
        _show(islice(newest(places, kind, states), most), _file_row, as_json)
        return
    from kingdom import picture

    queues = picture.queues_of(places)
    if as_json:
        print(json.dumps(queues))
        return
    for kind, held in queues.items():
        print(f"{kind:9} {', '.join(f'{number} {state}' for state, number in held.items())}")


@queue.command("show")
@click.argument("file")
def show_file(file: str) -> None:
    """Show one file of any queue, and where it lies."""
    _show_file(find(home.find(), file))


def _folder(named: str) -> tuple[str, str]:
    kind, _, state = named.strip("/").removeprefix("queue/").partition("/")
    if kind not in MOVES or (state and state not in MOVES[kind]):
        known = ", ".join(f"{kind}/{{{','.join(states)}}}" for kind, states in MOVES.items())
        raise NoSuchThing(what="queue folder", name=named, hint=f"; the folders are {known}")
    return kind, state


def _file_row(file: Found) -> tuple[str, ...]:
    about = file.get("content") or file.get("type") or file.get("action") or ""
    if file.state == "dead":
        about = reason(file)
    return (_short_id(file), f"{file.kind}/{file.state}", _age(file), one_line(about))


def _show(found: Iterable[Found], row: Callable[[Found], tuple[str, ...]], as_json: bool) -> None:
    if as_json:
        for file in found:
            print(json.dumps({"lies_in": file.where, "file": file.path.name, **_content(file)}, ensure_ascii=False))
        return
    rows = [row(file) for file in found]
    if rows:
        print(table(rows, indent=""))
    else:
        print("none", file=sys.stderr)


def _content(file: Found) -> dict[str, Any]:
    return {**file.content, **({"reason": reason(file)} if file.state == "dead" else {})}


def _show_file(found: Found) -> None:
    print(f"{printable(found.path)}:")
    print(_text(found.path), end="")
    if found.state == "dead":
        print(f"It lies here because {one_line(reason(found), 500)}")


def _text(path: Path) -> str:
    """Return the text of a file without control characters, or a line that says why it cannot be shown."""
    try:
        return f"{printable(read_bytes(path).decode('utf-8')).rstrip()}\n"
    except BadFile as error:
        return f"it cannot be shown: {error.facts['why']}\n"
    except UnicodeDecodeError as error:
        return f"it is not text: not UTF-8 at byte {error.start}\n"


def _short_id(file: Found) -> str:
    return one_line(file.id, 60)


def _age(file: Found) -> str:
    return f"{time_apart(file.get('created_at'), time.time())} ago"


def _order_command(action: str, help: str) -> click.Command:
    @click.command(action, help=help)
    @click.argument("id")
    def give(id: str) -> int:
        return give_order.give(home.find(), action, id)

    return give


for _action, _groups in read_json(find_schema("order"))["properties"]["action"]["x-commands"].items():
    for _group, _help in _groups.items():
        {"events": events, "tasks": tasks, "queue": queue}[_group].add_command(_order_command(_action, _help))
