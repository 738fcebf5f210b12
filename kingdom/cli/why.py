"""`kingdom why`: tell by the files what became of an event, a task or a message, and what it waits for."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import click

from kingdom.cli import home
from kingdom.cli.queue_files import Found, find, reason
from kingdom.disk.codec import read_json_or
from kingdom.disk.lock import is_locked
from kingdom.errors import BadInput, KingdomError, NoSuchThing
from kingdom.home import config, manifests
from kingdom.home.places import Places
from kingdom.records import foreign, load, notes
from kingdom.records.messages import Event
from kingdom.rules import gate, routing
from kingdom.rules.gate import Gate, Work
from kingdom.times import rests_until
from kingdom.words import one_line

IDS = ("events", "tasks", "messages", "orders")


@dataclass(frozen=True)
class Story:
    """What is told of one file, and of what it led to."""

    found: Found
    sentence: str
    details: list[str] = field(default_factory=list)
    followed_by: list[Story] = field(default_factory=list)

    def lines(self, indent: str = "") -> Iterator[str]:
        yield f"{indent}{self.sentence}"
        yield from (f"{indent}  {detail}" for detail in self.details)
        for story in self.followed_by:
            yield from story.lines(f"{indent}  ")

    def to_json(self) -> dict[str, Any]:
        return {
            "id": self.found.id,
            "lies_in": self.found.where,
            "sentence": self.sentence,
            "details": self.details,
            "followed_by": [story.to_json() for story in self.followed_by],
        }


@click.command(short_help="What became of an event, task or message, and what it waits for.")
@click.argument("id")
@click.option("--json", "as_json", is_flag=True, help="Print it as one JSON object.")
def why(id: str, as_json: bool) -> None:
    """Tell what happened to the event, task, message or order of this ID, and what it waits for."""
    story = explain(home.find(), id)
    print(json.dumps(story.to_json(), ensure_ascii=False) if as_json else "\n".join(story.lines()))


def explain(places: Places, name: str) -> Story:
    """Return the story of one id and of everything that it led to."""
    return _story(places, find(places, name, IDS))


def waits_for(places: Places, event: str) -> str | None:
    """Return what an unfinished event waits for at this moment, or who works on it; None when the files do not say."""
    try:
        found = find(places, event, ("events",))
        if found.state == "pending":
            return f"it waits: {_what_holds(places, found)}"
        task = find(places, str(found.get("task_id")), ("tasks",))
        if task.state in ("pending", "in_progress"):
            holds = _what_holds_task(places, task)
            return holds and f"{task.id}: {holds}"
        messages = [find(places, message, ("messages",)) for message in _message_ids(task)]
    except NoSuchThing:
        return None
    stuck = (message for message in messages if message.state == "pending" and _is_stuck(places, message))
    return next((_message(places, message).sentence for message in stuck), None)


def _is_stuck(places: Places, message: Found) -> bool:
    return bool(message.get("tries")) or not is_locked(places.lock("envoy"))


def _story(places: Places, found: Found) -> Story:
    if found.state == "dead":
        why = one_line(reason(found), 300)
        return Story(found, f"{one_line(found.id)} could not be used and lies in {found.where}: {why}")
    if not found.content:
        return Story(found, f"{one_line(found.id)} lies in {found.where}, and its file cannot be read")
    return STORIES[found.kind](places, found)


def _event(places: Places, found: Found) -> Story:
    text = (found.get("payload") or {}).get("text")
    said = f", saying {one_line(text, 60)!r}" if text else ""
    what = f"{found.id} is a {one_line(found.get('type'))} from {one_line(found.get('source'))}{said}"
    if found.state == "pending":
        return Story(found, f"{what}; it waits: {_what_holds(places, found)}", _rules(places, found))
    if found.get("status") == "discarded":
        tried = _rules(places, found) if "subscribes" in str(found.get("discarded_reason")) else []
        return Story(found, f"{what}; it was discarded: {one_line(found.get('discarded_reason'), 300)}", tried)
    task = _followers(places, found.get("task_id"), "tasks")
    messages = [] if task else _messages(places, found)
    ended = f": {one_line(found.get('discarded_reason'), 300)}" if found.get("discarded_reason") else ""
    return Story(found, f"{what}; it is {one_line(found.get('status'))}{ended}, in {found.where}", [], task or messages)


def _what_holds(places: Places, found: Found) -> str:
    if not is_locked(places.lock("king")):
        return f"the king does not run; `{home.how_to_start(places, 'king')}` starts it"
    event = _valid_event(found)
    if event is None:
        return "the king has not read it yet, and will move it to dead/, because it is not a valid event"
    if event.is_answer or event.task_id is not None:
        return "the king has not come to it yet; nothing holds it"
    table = routing.table(manifests.installed(places)[0])
    work = Work(event.priority, event.is_chat, table.needs_model(table.route(event)))
    held = gate_now(places).holds_because(work)
    if held is None:
        return "the king has not come to it yet; nothing holds it"
    return f"{held} (its own priority is {event.priority})"


def gate_now(places: Places) -> Gate:
    """Return the gate as the king would see it now."""
    king, _ = config.for_looking(places, "king")
    at_most = king["concurrency"]["max_soldiers"]
    return Gate(load.read(places, time.time(), king["resources"]["stale_seconds"], at_most), at_most)


def _rules(places: Places, found: Found) -> list[str]:
    """Return the rule that gives the event to a general, or all rules that were tried in vain."""
    event = _valid_event(found)
    if event is None or event.is_answer:
        return []
    table = routing.table(manifests.installed(places)[0])
    route = table.route(event)
    if route is not None:
        return [f"it will go to {route.general}, by its {route.rule}"]
    return [f"rule tried: {rule}" for rule in table.tried(event)]


def _valid_event(found: Found) -> Event | None:
    try:
        return Event.from_json(foreign.checked("event", dict(found.content)))
    except BadInput:
        return None


def _task(places: Places, found: Found) -> Story:
    what = f"{found.id} is a task of {one_line(found.get('target_general'))} ({one_line(found.get('type'))})"
    origin = [f"it came from {one_line(found.get('event_id'))}"] if found.get("event_id") else []
    messages = _of_its_event(places, found) + _messages(places, found)
    if found.state == "completed":
        ended = one_line(found.get("outcome") or found.get("status"))
        details = [*origin, *_result(places, found), *_retries(found)]
        return Story(found, f"{what}; it ended: {ended}", details, messages)
    return Story(found, f"{what}, in {found.where}: {_what_it_does(places, found)}", origin, messages)


def _retries(found: Found) -> list[str]:
    noted = found.get("retried_as")
    retries = map(one_line, noted if isinstance(noted, list) else [])
    return [f"it was retried as {task}; `{home.command()} why {task}` tells more" for task in retries]


def _what_it_does(places: Places, found: Found) -> str:
    general = one_line(found.get("target_general"))
    return _what_holds_task(places, found) or f"{general} is about to start a soldier or to report"


def _what_holds_task(places: Places, found: Found) -> str | None:
    """Return what a task waits for, or who works on it; None when its general is about to act."""
    general = str(found.get("target_general"))
    if general not in manifests.names(places):
        return f"{one_line(general)} is not installed; `{home.command()} generals` lists what is"
    if not is_locked(places.lock(general)):
        return f"{general} does not run; `{home.command()} start {general}` starts it"
    if found.state == "pending":
        return f"{general} has not taken it yet"
    if (by := notes.cancelled_by(places, found.id)) is not None:
        return f"{one_line(by)} has cancelled it, and {general} ends it"
    if is_locked(places.control_folder(general, found.id) / "lock"):
        return f"a soldier works on it; `{home.command()} attach {found.id}` follows what it prints"
    if (later := rests_until(found.get("not_before"), time.time())) is not None:
        because = one_line(found.get("waits_because") or f"try {found.get('attempt')} failed", 300)
        return f"{because}; it goes on at {_clock(later)}"
    if (others := _no_soldier_because(places, found, general)) is not None:
        return f"it waits for a soldier: {others}"
    return None


def _no_soldier_because(places: Places, found: Found, general: str) -> str | None:
    try:
        own = manifests.of(places, general).max_soldiers
        most = config.load(places, "king")["concurrency"]["max_soldiers"]
    except KingdomError:
        return None
    running = load.soldiers_out(places, min(most, own or most))
    return gate.no_soldier_because(running, general, found.get("type") == "resume", own, most)


def _clock(when: float) -> str:
    """Return the time of day, with the date when that is not today."""
    at, today = time.localtime(when), time.localtime()
    return time.strftime("%H:%M:%S" if at[:3] == today[:3] else "%Y-%m-%d %H:%M:%S", at)


def _result(places: Places, found: Found) -> list[str]:
    result = read_json_or(places.result(found.id), {})
    lines = [
        f"{key}: {one_line(result[key], 300)}" for key in ("error", "reason", "question", "summary") if result.get(key)
    ]
    if found.get("outcome") != "needs_human":
        return lines
    if notes.asks(places, found.id):
        return [*lines, f'it waits for your answer: {home.command()} say --answer {found.id} "..."']
    return [*lines, *_answered(places, found.id)]


def _answered(places: Places, task: str) -> Iterator[str]:
    answer = notes.answered_by(places, task)
    if answer is None:
        return
    try:
        resumed = find(places, answer, ("events",)).get("task_id")
    except NoSuchThing:
        resumed = None
    goes_on = f" and goes on as {one_line(resumed)}; `{home.command()} why {one_line(resumed)}`" if resumed else ""
    yield f"it was answered by {one_line(answer) or 'somebody'}{goes_on}"


def _of_its_event(places: Places, task: Found) -> list[Story]:
    """Return the messages that the task's event led to before there was a task."""
    try:
        return _messages(places, find(places, str(task.get("event_id")), ("events",)))
    except NoSuchThing:
        return []


def _message(places: Places, found: Found) -> Story:
    what = f"{found.id} ({one_line(found.get('type'))}): {one_line(found.get('content'), 80)!r}"
    if found.state == "sent":
        posted = found.get("posted") or {}
        return Story(found, f"{what} was sent on {one_line(posted.get('channel'))}, in {one_line(posted.get('room'))}")
    refusals = f", refused {found.get('tries')} times: {one_line(found.get('refused_because'), 200)}"
    tries = refusals if found.get("tries") else ""
    if found.state == "failed":
        again = f"`{home.command()} queue requeue {found.id}` sends it again"
        return Story(found, f"{what} was not sent{tries}; {again}")
    if not is_locked(places.lock("envoy")):
        return Story(found, f"{what} waits: the envoy does not run; `{home.command()} start envoy` starts it")
    return Story(found, f"{what} waits for the envoy{tries}")


def _order(places: Places, found: Found) -> Story:
    what = (
        f"{found.id}: {one_line(found.get('action'))} {one_line(found.get('target'))}, by {one_line(found.get('by'))}"
    )
    return Story(found, f"{what}: {one_line(found.get('outcome') or 'the king has not come to it yet')}")


def _messages(places: Places, found: Found) -> list[Story]:
    return [story for message in _message_ids(found) for story in _followers(places, message, "messages")]


def _message_ids(found: Found) -> list[str]:
    noted = found.get("letters")
    return [str(message) for message in noted.values()] if isinstance(noted, dict) else []


def _followers(places: Places, name: object, kind: str) -> list[Story]:
    """Return the story of what a file led to; nothing when that is no longer kept or not yet made."""
    if not isinstance(name, str):
        return []
    try:
        return [_story(places, find(places, name, (kind,)))]
    except NoSuchThing:
        return []


STORIES = {"events": _event, "tasks": _task, "messages": _message, "orders": _order}
