"""`kingdom events`, `tasks`, `queue`: what lies in the queues, and what a person may tell the king to do with it."""

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
from kingdom.disk.codec import read_bytes
from kingdom.errors import BadFile, NoSuchThing
from kingdom.home.states import MOVES
from kingdom.words import one_line, printable, table, time_apart

SHOWN = 20

most_shown = click.option("-n", "most", type=click.IntRange(min=1), default=SHOWN, show_default=True)
as_json_lines = click.option("--json", "as_json", is_flag=True, help="One JSON object a line.")


class WithDefault(click.Group):
    """A group whose bare call, or call with a name that is no command, is its `default` command's."""

    default = "ls"

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        known = {*self.commands, "-h", "--help"}
        if not args or (args[0] not in known and args[0].startswith("-")):
            args = [self.default, *args]
        elif args[0] not in known:
            args = ["show", *args]
        return super().parse_args(ctx, args)


# --- events


@click.group(cls=WithDefault, short_help="The newest events, or one: ls, show, discard, requeue.")
def events() -> None:
    """The newest events, or one of them: `kingdom events ID`."""


@events.command("ls")
@click.option("--state", type=click.Choice(list(MOVES["events"])), help="Only those in this folder.")
@click.option("--discarded", is_flag=True, help="Only those that nobody wanted, with the reason.")
@most_shown
@as_json_lines
def list_events(state: str | None, discarded: bool, most: int, as_json: bool) -> None:
    """The newest events."""
    places = home.find()
    states = ("completed",) if discarded else (state,) if state else tuple(MOVES["events"])
    found = (each for each in newest(places, "events", states) if not discarded or each.get("status") == "discarded")
    _show(islice(found, most), _event_row, as_json)


@events.command("show")
@click.argument("id")
def show_event(id: str) -> None:
    """One event's file, and where it lies."""
    _show_file(find(home.find(), id, ("events",)))


@events.command("discard")
@click.argument("id")
def discard_event(id: str) -> int:
    """Let an event go that still waits."""
    return give_order.give(home.find(), "discard", id)


@events.command("requeue")
@click.argument("id")
def requeue_event(id: str) -> int:
    """Take a discarded event up again."""
    return give_order.give(home.find(), "requeue", id)


def _event_row(each: Found) -> tuple[str, ...]:
    outcome = each.get("discarded_reason") or each.get("task_id") or ""
    if each.state == "dead":
        outcome = reason(each)
    return (_cut(each), each.state, one_line(each.get("type") or "?", 40), _age(each), one_line(outcome))


# --- tasks


@click.group(cls=WithDefault, short_help="The newest tasks, or one: ls, show, retry, cancel.")
def tasks() -> None:
    """The newest tasks, or one of them: `kingdom tasks ID`."""


@tasks.command("ls")
@click.option("--state", type=click.Choice(list(MOVES["tasks"])), help="Only those in this folder.")
@most_shown
@as_json_lines
def list_tasks(state: str | None, most: int, as_json: bool) -> None:
    """The newest tasks."""
    states = (state,) if state else tuple(MOVES["tasks"])
    _show(islice(newest(home.find(), "tasks", states), most), _task_row, as_json)


@tasks.command("show")
@click.argument("id")
def show_task(id: str) -> None:
    """One task's file and its result."""
    places = home.find()
    found = find(places, id, ("tasks",))
    _show_file(found)
    with suppress(FileNotFoundError):
        result = places.result(found.id)
        print(f"{result}:\n{_text(result)}", end="")


@tasks.command("retry")
@click.argument("id")
def retry_task(id: str) -> int:
    """Try an ended task again: a new task, in the same thread."""
    return give_order.give(home.find(), "retry", id)


@tasks.command("cancel")
@click.argument("id")
def cancel_task(id: str) -> int:
    """Give a task up. One that is under way is ended by its general."""
    return give_order.give(home.find(), "cancel", id)


def _task_row(each: Found) -> tuple[str, ...]:
    outcome = reason(each) if each.state == "dead" else each.get("outcome") or ""
    general = one_line(each.get("target_general") or "?", 30)
    return (_cut(each), each.state, general, one_line(each.get("type") or "?", 40), _age(each), one_line(outcome))


# --- all queues


@click.group(cls=WithDefault, short_help="What lies in every queue: ls, show, requeue.")
def queue() -> None:
    """What lies in every queue, or one file of them: `kingdom queue FILE`."""


@queue.command("ls")
@click.argument("folder", default="")
@most_shown
@as_json_lines
def list_queue(folder: str, most: int, as_json: bool) -> None:
    """All queues with their counts, or the newest files of a FOLDER like events or tasks/dead."""
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
    """One file, and where it lies."""
    _show_file(find(home.find(), file))


@queue.command("requeue")
@click.argument("id")
def requeue(id: str) -> int:
    """Put back what was discarded, has failed, or lay in dead/ and is mended."""
    return give_order.give(home.find(), "requeue", id)


def _folder(named: str) -> tuple[str, str]:
    kind, _, state = named.strip("/").removeprefix("queue/").partition("/")
    if kind not in MOVES or (state and state not in MOVES[kind]):
        known = ", ".join(f"{kind}/{{{','.join(states)}}}" for kind, states in MOVES.items())
        raise NoSuchThing(what="queue folder", name=named, hint=f"; here are {known}")
    return kind, state


def _file_row(each: Found) -> tuple[str, ...]:
    told = (each.get(key) for key in ("content", "type", "action"))
    about = reason(each) if each.state == "dead" else next(filter(None, told), "")
    return (_cut(each), f"{each.kind}/{each.state}", _age(each), one_line(about))


# --- shared


def _show(found: Iterable[Found], row: Callable[[Found], tuple[str, ...]], as_json: bool) -> None:
    if as_json:
        for each in found:
            print(json.dumps({"lies_in": each.where, "file": each.path.name, **_told(each)}, ensure_ascii=False))
        return
    rows = [row(each) for each in found]
    if rows:
        print(table(rows, indent=""))
    else:
        print("none", file=sys.stderr)


def _told(each: Found) -> dict[str, Any]:
    return {**each.content, **({"reason": reason(each)} if each.state == "dead" else {})}


def _show_file(found: Found) -> None:
    print(f"{printable(found.path)}:")
    print(_text(found.path), end="")
    if found.state == "dead":
        print(f"It lies here because {one_line(reason(found), 500)}")


def _text(path: Path) -> str:
    """Whole lines that a terminal can bear; of what is no file with text in it, what it is."""
    try:
        return f"{printable(read_bytes(path).decode('utf-8')).rstrip()}\n"
    except BadFile as unfit:
        return f"nothing to show: {unfit.facts['why']}\n"
    except UnicodeDecodeError as trouble:
        return f"not text: byte {trouble.start} is no UTF-8\n"


def _cut(each: Found) -> str:
    return one_line(each.id, 60)


def _age(each: Found) -> str:
    return f"{time_apart(each.get('created_at'), time.time())} ago"
