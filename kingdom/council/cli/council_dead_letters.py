"""`kingdom council dlq`: the messages that were given up, put back or deleted."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import click

from kingdom.base.disk.atomic import Disk, is_there, make_folder
from kingdom.base.disk.codec import read_bytes
from kingdom.base.errors import BadFile, BadInput, BadMessage, Collision, Exit, KingdomError, NoSuchThing
from kingdom.base.home.places import Places, check_name
from kingdom.base.program import as_json, home
from kingdom.base.words import count, one_line, table, time_apart
from kingdom.council import mime
from kingdom.council.bodies import LARGEST_DEAD_LETTER, OUTBOXES, original_of, read_body

ENDING, ORIGINAL = ".mime", ".original"
BACK = "back_"
"""Begins the name of a dead letter whose message is put back just now: the council finds its own by their names."""


class Unusable(BadInput):
    """{name} cannot be {done}: {why}"""

    exit = Exit.FAILED


@click.group()
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
    """Return the unreadable file or folder that a dead letter is about; None when it holds the message itself."""
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


def letters(places: Places) -> list[str]:
    return sorted(messages_in(places.dead_letters))


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


def messages_in(folder: Path) -> dict[str, float]:
    """Return the messages in a folder, each with the time at which it was changed."""
    found = {}
    with suppress(FileNotFoundError), os.scandir(folder) as entries:
        for entry in entries:
            if entry.name.endswith(ENDING) and not entry.name.startswith("."):
                with suppress(FileNotFoundError):
                    found[entry.name] = entry.stat(follow_symlinks=False).st_mtime
    return found
