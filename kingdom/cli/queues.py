"""`kingdom events`, `tasks`, `queue`: show files of the queues, and give the king orders about them."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from functools import partial
from itertools import islice, takewhile
from pathlib import Path
from typing import Any

import click
from click.shell_completion import CompletionItem

from kingdom.base.disk.codec import read_bytes, read_json
from kingdom.base.durations import in_ms
from kingdom.base.errors import BadFile, NoSuchThing, Usage
from kingdom.base.home.places import Places, find_schema
from kingdom.base.home.states import MOVES
from kingdom.base.program import as_json, home, screen
from kingdom.base.program.screen import Column, Part, Section, Table
from kingdom.base.records import kept, notes
from kingdom.base.records.lookup import Found, find
from kingdom.base.times import moment
from kingdom.base.words import duration, one_line, printable, time_apart
from kingdom.cli import complete, give_order
from kingdom.cli.kept_work import show_work
from kingdom.cli.queue_files import find_typed, ids_of, newest, reason
from kingdom.court.rules.routing import candidates

SHOWN = 20
LONGEST_QUESTION = 200
STATE_STYLES = {"pending": "yellow", "dispatched": "green", "in_progress": "green", "dead": "bold red"}
OUTCOME_STYLES = {"failed": "red", "needs_human": "yellow"}
Cells = Sequence[str | Part]


class Since(click.ParamType[float]):
    """A moment: so long ago (30m, 2h, 1d), or a date and time."""

    name = "since"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        with suppress(ValueError):
            return time.time() - in_ms(value, "s") / 1000
        try:
            return moment(str(value))
        except (ValueError, OverflowError):
            self.fail(f"{value!r} is neither a time like 30m, 2h, 1d nor a date like 2026-11-18 or 2026-11-18T09:00")


most_shown = click.option(
    "-n", "most", type=click.IntRange(min=1), default=SHOWN, show_default=True, help="The most to show."
)
in_json_lines = click.option("--json", "in_json", is_flag=True, help="Print each as one line of JSON.")
of_type = click.option("--type", "type_", metavar="TYPE", help="Only those of this type, such as github.pr.*")
since_then = click.option(
    "--since", type=Since(), metavar="TIME", help="Only those made since: 30m, 2h, 1d ago, or a date like 2026-11-18."
)


class WithDefault(click.Group):
    """A group that calls `ls` when no command is named, and `show` when what is named is not a command."""

    default = "ls"

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        known = {*self.commands, "-h", "--help"}
        if not args and ctx.resilient_parsing:
            pass  # somebody completes the first word
        elif not args or (args[0] not in known and args[0].startswith("-")):
            args = [self.default, *args]
        elif args[0] not in known:
            args = ["show", *args]
        return super().parse_args(ctx, args)

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        kinds = (ctx.command.name,) if ctx.command.name in MOVES else tuple(MOVES)
        found = complete.those_of(lambda places: ids_of(places, kinds), ctx, incomplete) if incomplete else []
        return [*super().shell_complete(ctx, incomplete), *map(CompletionItem, found)]


@click.group(cls=WithDefault, short_help="List the newest events, or show one: ls, show, discard, requeue.")
def events() -> None:
    """List the newest events, or show one: `kingdom events ID`."""


@events.command("ls")
@click.option("--state", type=click.Choice(list(MOVES["events"])), help="Only those in this state.")
@click.option("--discarded", is_flag=True, help="Only those that no general subscribes to, with the reason.")
@of_type
@since_then
@most_shown
@in_json_lines
def list_events(
    state: str | None, discarded: bool, type_: str | None, since: float | None, most: int, in_json: bool
) -> None:
    """List the newest events."""
    states = ("completed",) if discarded else (state,) if state else tuple(MOVES["events"])
    found = _chosen(newest(home.find(), "events", states), type_, since)
    if discarded:
        found = (event for event in found if event.get("status") == "discarded")
    _show(islice(found, most), EVENT_COLUMNS, _event_row, in_json)


@events.command("show")
@click.argument("id", shell_complete=complete.ids("events"))
def show_event(id: str) -> None:
    """Show one event's file, and where it lies. The first letters of its ID are enough."""
    _show_file(find_typed(home.find(), id, ("events",)))


EVENT_COLUMNS = (
    Column("event"),
    Column("state"),
    Column("type", shrinks=True),
    Column("age"),
    Column("task, or why there is none", 90, shrinks=True),
)


def _event_row(event: Found) -> Cells:
    outcome = event.get("discarded_reason") or event.get("task_id") or ""
    if event.state == "dead":
        outcome = reason(event)
    return (_short_id(event), _state(event), one_line(event.get("type") or "?", 40), _age(event), one_line(outcome))


@click.group(cls=WithDefault, short_help="List the newest tasks, or show one: ls, show, work, retry, cancel.")
def tasks() -> None:
    """List the newest tasks, or show one: `kingdom tasks ID`."""


tasks.add_command(show_work)


@tasks.command("ls")
@click.option("--state", type=click.Choice(list(MOVES["tasks"])), help="Only those in this state.")
@click.option("--asking", is_flag=True, help="Only those whose question waits for an answer.")
@click.option(
    "--general", metavar="NAME", shell_complete=complete.installed_generals, help="Only those of this general."
)
@of_type
@since_then
@most_shown
@in_json_lines
def list_tasks(
    state: str | None,
    asking: bool,
    general: str | None,
    type_: str | None,
    since: float | None,
    most: int,
    in_json: bool,
) -> None:
    """List the newest tasks."""
    places = home.find()
    found = _asking(places) if asking else newest(places, "tasks", (state,) if state else tuple(MOVES["tasks"]))
    found = _chosen(found, type_, since)
    if general:
        whose = {general, f"gen-{general}"}
        found = (task for task in found if task.get("target_general") in whose)
    if asking and state:
        found = (task for task in found if task.state == state)
    if asking:
        _show(islice(found, most), QUESTION_COLUMNS, partial(_question_row, places), in_json)
    else:
        _show(islice(found, most), TASK_COLUMNS, _task_row, in_json)


def _asking(places: Places) -> Iterator[Found]:
    for task in notes.open_questions(places):
        with suppress(NoSuchThing):
            yield find(places, task, ("tasks",))


@tasks.command("show")
@click.argument("id", shell_complete=complete.ids("tasks"))
def show_task(id: str) -> None:
    """Show one task's file and its result. The first letters of its ID are enough."""
    places = home.find()
    found = find_typed(places, id, ("tasks",))
    _show_file(found)
    with suppress(FileNotFoundError):
        result = places.result(found.id)
        print(f"{result}:\n{_text(result)}", end="")
    for one in kept.of_task(places, found.id):
        print(f"Its work is kept in {one.folder}; `{home.command()} tasks work {found.id}` shows it")


TASK_COLUMNS = (
    Column("task"),
    Column("state"),
    Column("general", shrinks=True),
    Column("type", 70, shrinks=True),
    Column("age"),
    Column("outcome", shrinks=True),
)


def _task_row(task: Found) -> Cells:
    outcome = one_line(reason(task) if task.state == "dead" else task.get("outcome") or "")
    general = one_line(task.get("target_general") or "?", 30)
    type_ = one_line(task.get("type") or "?", 40)
    return _short_id(task), _state(task), general, type_, _age(task), Part(outcome, OUTCOME_STYLES.get(outcome, ""))


QUESTION_COLUMNS = (Column("task"), Column("general", shrinks=True), Column("age"), Column("question", shrinks=True))


def _question_row(places: Places, task: Found) -> Cells:
    from kingdom.court import picture

    asked = picture.question(places, task.id, time.time())
    question = one_line(asked["question"] or "no question was kept", LONGEST_QUESTION)
    return _short_id(task), one_line(task.get("target_general") or "?", 30), duration(asked["seconds"]), question


def _chosen(found: Iterable[Found], type_: str | None, since: float | None) -> Iterator[Found]:
    """Yield those of a type that were made since a moment; they come by the time of their files, the newest first."""
    for file in takewhile(lambda file: since is None or not file.changed or file.changed >= since, found):
        if (type_ is None or type_ in candidates(str(file.get("type")))) and (since is None or _made_at(file) >= since):
            yield file


def _made_at(file: Found) -> float:
    try:
        return moment(str(file.get("created_at")))
    except (ValueError, OverflowError):
        return file.changed


@click.group(cls=WithDefault, short_help="List and requeue files of any queue: ls, show, requeue.")
def queue() -> None:
    """List the queues, or show one of their files: `kingdom queue FILE`."""


@queue.command("ls")
@click.argument("folder", default="")
@most_shown
@in_json_lines
def list_queue(folder: str, most: int, in_json: bool) -> None:
    """List all queues with their counts, or the newest files of a FOLDER like `events` or `tasks/dead`."""
    places = home.find()
    if folder:
        kind, state = _folder(folder)
        states = (state,) if state else tuple(MOVES[kind])
        _show(islice(newest(places, kind, states), most), FILE_COLUMNS, _file_row, in_json)
        return
    from kingdom.court import picture

    queues = picture.queues_of(places)
    if in_json:
        print(as_json.line("queues", queues))
        return
    for kind, held in queues.items():
        print(f"{kind:9} {', '.join(f'{number} {state}' for state, number in held.items())}")


@queue.command("show")
@click.argument("file", shell_complete=complete.ids())
def show_file(file: str) -> None:
    """Show one file of any queue, and where it lies. The first letters of its ID are enough."""
    _show_file(find_typed(home.find(), file))


def _folder(named: str) -> tuple[str, str]:
    kind, _, state = named.strip("/").removeprefix("queue/").partition("/")
    if kind not in MOVES or (state and state not in MOVES[kind]):
        known = ", ".join(f"{kind}/{{{','.join(states)}}}" for kind, states in MOVES.items())
        raise NoSuchThing(what="queue folder", name=named, hint=f"; the folders are {known}")
    return kind, state


FILE_COLUMNS = (Column("file"), Column("lies in"), Column("age"), Column("about", shrinks=True))


def _file_row(file: Found) -> Cells:
    about = file.get("content") or file.get("type") or file.get("action") or ""
    if file.state == "dead":
        about = reason(file)
    return (_short_id(file), f"{file.kind}/{file.state}", _age(file), one_line(about))


def _state(file: Found) -> Part:
    return Part(file.state, STATE_STYLES.get(file.state, ""))


def _show(found: Iterable[Found], columns: Sequence[Column], row: Callable[[Found], Cells], in_json: bool) -> None:
    if in_json:
        for file in found:
            content = {"lies_in": file.where, "file": file.path.name, **_content(file)}
            print(as_json.line(file.kind.removesuffix("s"), content))
        return
    rows = [row(file) for file in found]
    if rows:
        screen.show([Section([Table(columns, rows, indent=0)])])
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
    return time_apart(file.get("created_at"), time.time())


AGAIN = click.Option(["--again"], is_flag=True, help="Also retry one that has succeeded.")


def _order_command(action: str, group: str, help: str) -> click.Command:
    kinds = (group,) if group in MOVES else tuple(MOVES)

    @click.command(action, help=help)
    @click.argument("id", shell_complete=complete.ids(*kinds))
    def give(id: str, again: bool = False) -> int:
        places = home.find()
        found = find_typed(places, id, kinds)
        if action == "retry" and not again:
            _refuse_if_done(found)
        return give_order.give(places, action, found.id)

    if action == "retry":
        give.params.append(AGAIN)
    return give


def _refuse_if_done(task: Found) -> None:
    """Raise Usage for a task that has succeeded; the king judges all others."""
    if task.get("outcome") == "success":
        again = f"`{home.command()} tasks retry {task.id} --again` does its work a second time"
        raise Usage(message=f"{task.id} has succeeded; {again}")


for _action, _groups in read_json(find_schema("order"))["properties"]["action"]["x-commands"].items():
    for _group, _help in _groups.items():
        commands = {"events": events, "tasks": tasks, "queue": queue}[_group]
        commands.add_command(_order_command(_action, _group, _help))
