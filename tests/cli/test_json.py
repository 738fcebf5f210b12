"""What `--json` prints has one envelope, whatever the command, and fits its schema."""

from __future__ import annotations

import json
from collections.abc import Iterator

import click
import jsonschema
import pytest

from kingdom.base.disk.atomic import make_folder
from kingdom.base.home import schemas
from kingdom.cli.commands import kingdom
from tests.cli.conftest import Terminal

WORDS = {
    "status": ("status",),
    "doctor": ("doctor",),
    "say": ("say", "--answer", "task-1", "yes"),
    "emit": ("emit", "a.b", "--wait"),
    "events ls": ("events",),
    "tasks ls": ("tasks",),
    "tasks work": ("tasks", "work"),
    "queue ls": ("queue", "ls"),
    "queue ls FOLDER": ("queue", "ls", "orders"),
    "why": ("why", "evt-1"),
    "generals ls": ("generals", "ls"),
    "report": ("report",),
    "prune": ("prune", "--dry-run"),
    "fsck": ("fsck",),
    "hall users": ("hall", "users"),
    "hall rooms": ("hall", "rooms"),
    "council status": ("council", "status"),
    "council dlq ls": ("council", "dlq", "ls"),
}
KINDS = {
    "say": "message",
    "emit": "message",
    "events ls": "event",
    "tasks ls": "task",
    "tasks work": "kept",
    "queue ls": "queues",
    "queue ls FOLDER": "order",
    "generals ls": "generals",
    "council status": "council",
    "council dlq ls": "dead_letters",
}


def commands(group: click.Group, path: str = "") -> Iterator[str]:
    """The names of all commands that know --json, but those of `mq`, which prints the answers of its calls."""
    context = click.Context(group)
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        if name == "mq":
            continue
        if isinstance(command, click.Group):
            yield from commands(command, f"{path}{name} ")
        elif command is not None and any("--json" in option.opts for option in command.params):
            yield f"{path}{name}"


def test_every_command_that_knows_json_stands_here() -> None:
    assert {name.removesuffix(" FOLDER") for name in WORDS} == set(commands(kingdom))


@pytest.mark.parametrize("name", WORDS)
def test_the_envelope_is_the_same_everywhere(name: str, terminal: Terminal, request: pytest.FixtureRequest) -> None:
    if name in ("say", "emit"):
        request.getfixturevalue("court_answers")
    strange = terminal.event("completed", "evt-1", status="discarded", discarded_reason="x")
    strange.write_text(json.dumps({**json.loads(strange.read_text()), "version": 7, "kind": "strange"}))
    terminal.task("completed", "task-1", outcome="failed")
    make_folder(terminal.places.workspace("gen-briefing", "task-1"))
    terminal.places.checkpoint("task-1").write_text('{"target_general": "gen-briefing", "question": "which?"}')
    terminal.put("orders", "done", "ord-1", action="retry", target="task-1", by="you")
    said = terminal(*WORDS[name], "--json")
    lines = [json.loads(line) for line in said.out.splitlines()]
    assert lines, said
    for line in lines:
        assert (line["version"], line["kind"]) == (1, KINDS.get(name, name))
        assert list(line)[:2] == ["version", "kind"]
        jsonschema.validate(line, schemas.load("output"), cls=jsonschema.Draft7Validator)


def test_every_kind_is_printed_by_a_command() -> None:
    assert set(schemas.load("output")["properties"]["kind"]["enum"]) == {KINDS.get(name, name) for name in WORDS}


def test_a_shape_that_misses_a_field_is_seen(terminal: Terminal) -> None:
    line = json.loads(terminal("status", "--json").out)
    del line["asking"]
    with pytest.raises(jsonschema.ValidationError, match="asking"):
        jsonschema.validate(line, schemas.load("output"), cls=jsonschema.Draft7Validator)
