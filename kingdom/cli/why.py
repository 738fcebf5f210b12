"""`kingdom why`: say from the files what became of an event, a task or a message, and what it waits for."""

from __future__ import annotations

import os
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from itertools import islice
from typing import Any, Protocol

import click

from kingdom import wings
from kingdom.base import tables
from kingdom.base.disk.codec import read_json_or
from kingdom.base.errors import BadName, NoSuchThing
from kingdom.base.home import manifests
from kingdom.base.home.places import Places
from kingdom.base.home.states import MOVES
from kingdom.base.program import as_json, home, screen
from kingdom.base.program.screen import Line, Part, Section
from kingdom.base.program.story import Detail
from kingdom.base.records import kept, notes
from kingdom.base.records.lookup import Found, find, leading_back, task_id_of
from kingdom.base.times import clock_of, moment, stamp
from kingdom.base.words import one_line
from kingdom.cli import complete
from kingdom.cli.queue_files import find_typed, newest, reason
from kingdom.court.reasons import Reasons, valid_event
from kingdom.court.rules import routing

IDS = ("events", "tasks", "messages", "orders")


@dataclass(frozen=True)
class FileStory:
    """The text about one file, and about what it led to."""

    found: Found
    sentence: str
    details: list[Detail] = field(default_factory=list)
    followed_by: list[FileStory] = field(default_factory=list)

    @property
    def at(self) -> float | None:
        """Return when it was made, else when its file was changed."""
        with suppress(ValueError, OverflowError):
            return moment(str(self.found.get("created_at")))
        return _changed(self.found.path)

    def lines(self, depth: int = 0) -> Iterator[tuple[float | None, int, str]]:
        """Yield time, depth and text of every line."""
        yield self.at, depth, self.sentence
        yield from ((detail.at, depth + 1, detail.text) for detail in self.details)
        for story in self.followed_by:
            yield from story.lines(depth + 1)

    def to_json(self) -> dict[str, Any]:
        return {
            "id": self.found.id,
            "lies_in": self.found.where,
            "at": _stamped(self.at),
            "sentence": self.sentence,
            "details": [detail.text for detail in self.details],
            "details_at": [_stamped(detail.at) for detail in self.details],
            "followed_by": [story.to_json() for story in self.followed_by],
        }


class Showable(Protocol):
    """A story that can be shown."""

    def lines(self) -> Iterator[tuple[float | None, int, str]]: ...

    def to_json(self) -> dict[str, Any]: ...


@click.command(short_help="Say what became of an event, task or message, and what it waits for.")
@click.argument("id", required=False, shell_complete=complete.ids(*IDS))
@click.option("--json", "in_json", is_flag=True, help="Print it as one line of JSON.")
def why(id: str | None, in_json: bool) -> None:
    """Say what happened to the event, task, message or order of this ID, and what it waits for.

    The first letters of an ID are enough if they are unique. Without an ID it is the newest event or scheduled task.
    A chat message is found by its whole ID, its sender's ID (clientMsgId), or the ID of its event; a message of the
    council by its whole ID or the name of its file.
    """
    places = home.find()
    stories = _stories(places, id)
    if in_json:
        for story in stories:
            print(as_json.line("why", story.to_json()))
        return
    lines = [line for story in stories for line in story.lines()]
    clock = clock_of(at for at, _, _ in lines)
    screen.show([Section([_line(clock(at), depth, text) for at, depth, text in lines])])


def _stories(places: Places, id: str | None) -> Sequence[Showable]:
    """Return the story of the file of this ID, else of a product's messages of this ID."""
    try:
        return [_story(places, _newest(places) if id is None else find_typed(places, id, IDS))]
    except NoSuchThing:
        for wing in reversed(wings.rows()) if id is not None else ():
            if wing.stories and (found := tables.load(wing.stories)(places, id)):
                return list(found)
        raise


def _newest(places: Places) -> Found:
    """Return the event that came last, or the task when no event led to it: a schedule did."""
    found = [
        file for kind in ("events", "tasks") for file in islice(newest(places, kind, MOVES[kind]), 1) if file.content
    ]
    if not found:
        raise NoSuchThing(what="event or task", name="newest", hint=f'; try `{home.command()} say "brief me"`')
    latest = max(found, key=lambda file: file.changed)
    with suppress(NoSuchThing):
        return find(places, str(latest.get("event_id")), ("events",)) if latest.kind == "tasks" else latest
    return latest


def _line(clock: str, depth: int, text: str) -> Line:
    parts = [Part(clock, "dim"), Part("  " * (depth + 1)), Part(text, "" if depth else "bold")]
    return Line(parts, indent=0, hang=len(clock) + 2 * (depth + 2))


def _stamped(at: float | None) -> str | None:
    return None if at is None else stamp(at)


def _changed(path: os.PathLike[str]) -> float | None:
    with suppress(OSError):
        return os.stat(path).st_mtime
    return None


def waits_for(places: Places, event: str) -> str | None:
    """Return what an unfinished event waits for at this moment, or who works on it; None when the files do not say."""
    try:
        found = find(places, event, ("events",))
        if found.state == "pending":
            return f"it waits: {_reasons(places).of_event(found)}"
        task = find(places, task_id_of(places, found), ("tasks",))
        if task.state in ("pending", "in_progress"):
            holds = _reasons(places).holds_task(task)
            return holds and f"{task.id}: {holds}"
        messages = [find(places, message, ("messages",)) for message in _message_ids(task)]
    except NoSuchThing:
        return None
    stuck = (message for message in messages if message.state == "pending" and _is_stuck(places, message))
    return next((_message(places, message).sentence for message in stuck), None)


def _reasons(places: Places) -> Reasons:
    return Reasons(places, home.command())


def _is_stuck(places: Places, message: Found) -> bool:
    return bool(message.get("tries")) or _reasons(places).keeps_messages() is not None


def _story(places: Places, found: Found) -> FileStory:
    if found.state == "dead":
        why = one_line(reason(found), 300)
        return FileStory(found, f"{one_line(found.id)} could not be used and lies in {found.where}: {why}")
    if not found.content:
        return FileStory(found, f"{one_line(found.id)} lies in {found.where}, and its file cannot be read")
    return STORIES[found.kind](places, found)


def _event(places: Places, found: Found) -> FileStory:
    payload = found.get("payload") or {}
    text, headline = payload.get("text"), payload.get("headline")
    said = f", about {one_line(headline, 60)!r}" if headline else f", saying {one_line(text, 60)!r}" if text else ""
    what = f"{found.id} is a {one_line(found.get('type'))} from {one_line(found.get('source'))}{said}"
    if found.state == "pending":
        return FileStory(found, f"{what}; it waits: {_reasons(places).of_event(found)}", _now(_rules(places, found)))
    if found.get("status") == "discarded":
        details = _of_the_unclaimed(places, found) if found.get("discarded_code") == "unclaimed" else []
        return FileStory(found, f"{what}; it was discarded: {one_line(found.get('discarded_reason'), 300)}", details)
    ended = f": {one_line(found.get('discarded_reason'), 300)}" if found.get("discarded_reason") else ""
    is_now = f"{what}; it is {_ended(found) or found.state}{ended}, in {found.where}"
    task = _followers(places, task_id_of(places, found), "tasks")
    return FileStory(found, is_now, [], task or _messages(places, found))


def _of_the_unclaimed(places: Places, found: Found) -> list[Detail]:
    """Return the rules that were tried in vain, or which one would take the event now, and how it gets there."""
    event = valid_event(found)
    table = routing.table(manifests.installed(places)[0])
    if event is None or (route := table.route(event)) is None:
        return _at(_changed(found.path), _rules(places, found))
    again = f"`{home.command()} queue requeue {found.id}` puts it in again"
    return _now([f"{route.general} would take it now, by its {route.rule}; {again}"])


def _ended(found: Found) -> str:
    """Return how something ended; "" when its file holds no more than the name of a folder."""
    said = one_line(found.get("outcome") or found.get("status") or "")
    return "" if said in MOVES[found.kind] else said


def _at(when: float | None, texts: Iterable[str]) -> list[Detail]:
    return [Detail(text, when) for text in texts]


def _now(texts: Iterable[str]) -> list[Detail]:
    return _at(time.time(), texts)


def _rules(places: Places, found: Found) -> list[str]:
    """Return the rule that gives the event to a general, or all rules that were tried in vain."""
    event = valid_event(found)
    if event is None or event.is_answer:
        return []
    table = routing.table(manifests.in_force(places).manifests)
    route = table.route(event)
    if route is not None:
        return [f"it will go to {route.general}, by its {route.rule}"]
    return [f"rule tried: {rule}" for rule in table.tried(event)]


def _task(places: Places, found: Found) -> FileStory:
    what = f"{found.id} is a task of {one_line(found.get('target_general'))} ({one_line(found.get('type'))})"
    came = [f"it came from {one_line(found.get('event_id'))}"] if found.get("event_id") else []
    story = FileStory(found, what)
    origin = _at(story.at, came)
    messages = _of_its_event(places, found) + (_messages(places, found) or _not_noted(places, found))
    if found.state == "completed":
        ended = _ended(found) or one_line(_result_of(places, found)[0].get("status") or "its result is no longer kept")
        details = [*origin, *_result(places, found), *_at(_changed(found.path), _retries(found))]
        return replace(story, sentence=f"{what}; it ended: {ended}", details=details, followed_by=messages)
    does = f"{what}, in {found.where}: {_reasons(places).of_task(found)}"
    return replace(story, sentence=does, details=origin, followed_by=messages)


def _retries(found: Found) -> list[str]:
    noted = found.get("retried_as")
    retries = map(one_line, noted if isinstance(noted, list) else [])
    return [f"it was retried as {task}; `{home.command()} why {task}` tells more" for task in retries]


def _result(places: Places, found: Found) -> list[Detail]:
    result, when = _result_of(places, found)
    keys = ("error", "reason", "question", "summary")
    texts = [f"{key}: {one_line(result[key], 300)}" for key in keys if result.get(key)]
    lines = [*_at(when, texts), *_at(when, _kept(places, found))]
    if found.get("outcome") != "needs_human":
        return lines
    if notes.asks(places, found.id):
        return [*lines, *_now([f'it waits for your answer: {home.command()} say --answer {found.id} "..."'])]
    return [*lines, *_at(_changed(places.answered(found.id)), _answered(places, found.id))]


def _kept(places: Places, found: Found) -> Iterator[str]:
    """Say where the task's work is."""
    for folder in kept.folders_named(places, found.id):
        if os.path.isdir(folder):
            yield f"its work is kept in {one_line(folder, 300)}; `{home.command()} tasks work {found.id}` shows it"
        else:
            yield f"its work was kept in {one_line(folder, 300)}, which has been deleted"


def _result_of(places: Places, task: Found) -> tuple[dict[str, Any], float | None]:
    try:
        path = places.result(task.id)
    except BadName:
        return {}, None
    return read_json_or(path, {}), _changed(path)


def _answered(places: Places, task: str) -> Iterator[str]:
    answer = notes.answered_by(places, task)
    if answer is None:
        return
    try:
        resumed = task_id_of(places, find(places, answer, ("events",)))
    except NoSuchThing:
        resumed = ""
    goes_on = f" and goes on as {one_line(resumed)}; `{home.command()} why {one_line(resumed)}`" if resumed else ""
    yield f"it was answered by {one_line(answer) or 'somebody'}{goes_on}"


def _of_its_event(places: Places, task: Found) -> list[FileStory]:
    """Return the messages that the task's event led to before there was a task."""
    try:
        return _messages(places, find(places, str(task.get("event_id")), ("events",)))
    except NoSuchThing:
        return []


def _message(places: Places, found: Found) -> FileStory:
    what = f"{found.id} ({one_line(found.get('type'))}): {one_line(found.get('content'), 80)!r}"
    if found.state == "sent":
        posted = found.get("posted") or {}
        return FileStory(
            found, f"{what} was sent on {one_line(posted.get('channel'))}, in {one_line(posted.get('room'))}"
        )
    refusals = f", refused {found.get('tries')} times: {one_line(found.get('refused_because'), 200)}"
    tries = refusals if found.get("tries") else ""
    if found.state == "failed":
        again = f"`{home.command()} queue requeue {found.id}` sends it again"
        return FileStory(found, f"{what} was not sent{tries}; {again}")
    if why := _reasons(places).keeps_messages():
        return FileStory(found, f"{what} waits: {why}")
    return FileStory(found, f"{what} waits for the envoy{tries}")


def _order(places: Places, found: Found) -> FileStory:
    what = (
        f"{found.id}: {one_line(found.get('action'))} {one_line(found.get('target'))}, by {one_line(found.get('by'))}"
    )
    return FileStory(found, f"{what}: {one_line(found.get('outcome') or 'the king has not come to it yet')}")


def _messages(places: Places, found: Found) -> list[FileStory]:
    return [story for message in _message_ids(found) for story in _followers(places, message, "messages")]


def _not_noted(places: Places, task: Found) -> list[FileStory]:
    """Return the messages about a task in which another program's king has noted none: they are searched for."""
    if task.get("letters"):
        return []
    found = sorted(leading_back(places, "messages", "task_id", task.id), key=lambda message: message.id)
    return [_story(places, message) for message in found]


def _message_ids(found: Found) -> list[str]:
    noted = found.get("letters")
    return [str(message) for message in noted.values()] if isinstance(noted, dict) else []


def _followers(places: Places, name: object, kind: str) -> list[FileStory]:
    """Return the story of what a file led to; nothing when that is no longer kept or not yet made."""
    if not isinstance(name, str):
        return []
    try:
        return [_story(places, find(places, name, (kind,)))]
    except NoSuchThing:
        return []


STORIES = {"events": _event, "tasks": _task, "messages": _message, "orders": _order}
