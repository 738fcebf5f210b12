"""`kingdom why`: what became of an event, a task or a letter, and what it waits for, by the files that tell it."""

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
from kingdom.home import config, manifests, schemas
from kingdom.home.places import Places
from kingdom.records import load, notes
from kingdom.records.messages import Event
from kingdom.rules import gate, routing
from kingdom.rules.gate import Gate
from kingdom.times import rests_until
from kingdom.words import one_line

IDS = ("events", "tasks", "messages", "orders")


@dataclass(frozen=True)
class Story:
    """What is told of one thing, and of what it led to."""

    found: Found
    sentence: str
    details: list[str] = field(default_factory=list)
    followed_by: list[Story] = field(default_factory=list)

    def lines(self, indent: str = "") -> Iterator[str]:
        yield f"{indent}{self.sentence}"
        yield from (f"{indent}  {each}" for each in self.details)
        for each in self.followed_by:
            yield from each.lines(f"{indent}  ")

    def to_json(self) -> dict[str, Any]:
        return {
            "id": self.found.id,
            "lies_in": self.found.where,
            "sentence": self.sentence,
            "details": self.details,
            "followed_by": [each.to_json() for each in self.followed_by],
        }


@click.command(short_help="What became of an event, task or letter, and what it waits for.")
@click.argument("id")
@click.option("--json", "as_json", is_flag=True)
def why(id: str, as_json: bool) -> None:
    """What happened to an event, a task, a letter or an order, and what it waits for."""
    story = explain(home.find(), id)
    print(json.dumps(story.to_json(), ensure_ascii=False) if as_json else "\n".join(story.lines()))


def explain(places: Places, name: str) -> Story:
    return _tell(places, find(places, name, IDS))


def hindrance(places: Places, event: str) -> str | None:
    """What an event that is under way waits for at this moment, or who is at it; None when that cannot be told."""
    try:
        found = find(places, event, ("events",))
        if found.state == "pending":
            return f"it waits: {_what_holds(places, found)}"
        task = find(places, str(found.get("task_id")), ("tasks",))
        if task.state in ("pending", "in_progress"):
            holds = _what_holds_task(places, task)
            return holds and f"{task.id}: {holds}"
        noted = task.get("letters")
        ids = noted.values() if isinstance(noted, dict) else ()
        letters = [find(places, str(each), ("messages",)) for each in ids]
    except NoSuchThing:
        return None
    stuck = (each for each in letters if each.state == "pending" and _is_stuck(places, each))
    return next((_message(places, each).sentence for each in stuck), None)


def _is_stuck(places: Places, letter: Found) -> bool:
    return bool(letter.get("tries")) or not is_locked(places.lock("envoy"))


def _tell(places: Places, found: Found) -> Story:
    if found.state == "dead":
        return Story(
            found, f"{one_line(found.id)} could not be used and lies in {found.where}: {one_line(reason(found), 300)}"
        )
    if not found.content:
        return Story(found, f"{one_line(found.id)} lies in {found.where}, and is no file that can be read as one")
    return TELLERS[found.kind](places, found)


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
    letters = [] if task else _letters(places, found.get("letters"))
    ended = f": {one_line(found.get('discarded_reason'), 300)}" if found.get("discarded_reason") else ""
    return Story(found, f"{what}; it is {one_line(found.get('status'))}{ended}, in {found.where}", [], task or letters)


def _what_holds(places: Places, found: Found) -> str:
    if not is_locked(places.lock("king")):
        return f"the king does not run; `{home.how_to_start(places, 'king')}` starts it"
    event = _noun(found)
    if event is None:
        return "the king has not looked at it yet, and will bury it, because it is no valid event"
    if event.is_answer or event.task_id is not None:
        return "the king has not come to it yet; nothing holds it"
    held = gate_now(places).holds_because(event.priority)
    if held is None:
        return "the king has not come to it yet; nothing holds it"
    return f"{held} (its own priority is {event.priority})"


def gate_now(places: Places) -> Gate:
    king, _ = config.for_looking(places, "king")
    at_most = king["concurrency"]["max_soldiers"]
    return Gate(load.read(places, time.time(), king["resources"]["stale_seconds"], at_most), at_most)


def _rules(places: Places, found: Found) -> list[str]:
    event = _noun(found)
    if event is None or event.is_answer:
        return []
    table = routing.table(manifests.installed(places)[0])
    route = table.route(event)
    if route is not None:
        return [f"it will go to {route.general}, by its {route.rule}"]
    return [f"rule tried: {each}" for each in table.tried(event)]


def _noun(found: Found) -> Event | None:
    try:
        return Event.from_json(schemas.check("event", dict(found.content)))
    except BadInput:
        return None


def _task(places: Places, found: Found) -> Story:
    what = f"{found.id} is a task of {one_line(found.get('target_general'))} ({one_line(found.get('type'))})"
    origin = [f"it came from {one_line(found.get('event_id'))}"] if found.get("event_id") else []
    letters = _started(places, found) + _letters(places, found.get("letters"))
    if found.state == "completed":
        ended = one_line(found.get("outcome") or found.get("status"))
        details = [*origin, *_result(places, found), *_retries(found)]
        return Story(found, f"{what}; it ended: {ended}", details, letters)
    return Story(found, f"{what}, in {found.where}: {_what_it_does(places, found)}", origin, letters)


def _retries(found: Found) -> list[str]:
    noted = found.get("retried_as")
    retries = noted if isinstance(noted, list) else []
    return [f"{one_line(each)} tried it again; `{home.command()} why {one_line(each)}`" for each in retries]


def _what_it_does(places: Places, found: Found) -> str:
    general = one_line(found.get("target_general"))
    return _what_holds_task(places, found) or f"{general} is about to send a soldier or to report"


def _what_holds_task(places: Places, found: Found) -> str | None:
    """Say what a task waits for, or who is at it; None when its general is about to act."""
    general = str(found.get("target_general"))
    if general not in manifests.names(places):
        return f"{one_line(general)} is not installed; `{home.command()} generals` lists who is"
    if not is_locked(places.lock(general)):
        return f"{general} does not run; `{home.command()} start {general}`"
    if found.state == "pending":
        return f"{general} has not taken it yet"
    if (by := notes.cancelled_by(places, found.id)) is not None:
        return f"{one_line(by)} has cancelled it, and {general} ends it"
    if is_locked(places.control_folder(general, found.id) / "lock"):
        return f"a soldier is at it; `{home.command()} attach {found.id}` follows what it says"
    if (later := rests_until(found.get("not_before"), time.time())) is not None:
        because = one_line(found.get("waits_because") or f"try {found.get('attempt')} failed", 300)
        return f"{because}; it goes on at {_clock(later)}"
    if (crowd := _no_soldier_because(places, found, general)) is not None:
        return f"it waits for a soldier: {crowd}"
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
    """The time of day, and the day when it is another one."""
    at, today = time.localtime(when), time.localtime()
    return time.strftime("%H:%M:%S" if at[:3] == today[:3] else "%Y-%m-%d %H:%M:%S", at)


def _result(places: Places, found: Found) -> list[str]:
    result = read_json_or(places.result(found.id), {})
    told = [
        f"{key}: {one_line(result[key], 300)}" for key in ("error", "reason", "question", "summary") if result.get(key)
    ]
    if found.get("outcome") != "needs_human":
        return told
    if notes.asks(places, found.id):
        return [*told, f'it waits for your answer: {home.command()} say --answer {found.id} "..."']
    return [*told, *_answered(places, found.id)]


def _answered(places: Places, task: str) -> Iterator[str]:
    answer = notes.answered_by(places, task)
    if answer is None:
        return
    try:
        goes_on = find(places, answer, ("events",)).get("task_id")
    except NoSuchThing:
        goes_on = None
    as_task = f" and goes on as {one_line(goes_on)}; `{home.command()} why {one_line(goes_on)}`" if goes_on else ""
    yield f"it was answered by {one_line(answer) or 'somebody'}{as_task}"


def _started(places: Places, found: Found) -> list[Story]:
    """The letters that its event had noted before the task could."""
    try:
        event = find(places, str(found.get("event_id")), ("events",))
    except NoSuchThing:
        return []
    return _letters(places, event.get("letters"))


def _message(places: Places, found: Found) -> Story:
    what = f"{found.id} ({one_line(found.get('type'))}): {one_line(found.get('content'), 80)!r}"
    if found.state == "sent":
        posted = found.get("posted") or {}
        return Story(found, f"{what} was sent on {one_line(posted.get('channel'))}, in {one_line(posted.get('room'))}")
    refusals = f", refused {found.get('tries')} times: {one_line(found.get('refused_because'), 200)}"
    tries = refusals if found.get("tries") else ""
    if found.state == "failed":
        again = f"`{home.command()} queue requeue {found.id}` tries it again"
        return Story(found, f"{what} was not sent{tries}; {again}")
    if not is_locked(places.lock("envoy")):
        return Story(found, f"{what} waits: the envoy does not run; `{home.command()} start envoy`")
    return Story(found, f"{what} waits for the envoy{tries}")


def _order(places: Places, found: Found) -> Story:
    what = (
        f"{found.id}: {one_line(found.get('action'))} {one_line(found.get('target'))}, by {one_line(found.get('by'))}"
    )
    return Story(found, f"{what}: {one_line(found.get('outcome') or 'the king has not come to it yet')}")


def _letters(places: Places, noted: object) -> list[Story]:
    ids = noted.values() if isinstance(noted, dict) else ()
    return [story for each in ids for story in _followers(places, each, "messages")]


def _followers(places: Places, name: object, kind: str) -> list[Story]:
    """Nothing when it is gone: kept no longer, or not made yet."""
    if not isinstance(name, str):
        return []
    try:
        return [_tell(places, find(places, name, (kind,)))]
    except NoSuchThing:
        return []


TELLERS = {"events": _event, "tasks": _task, "messages": _message, "orders": _order}
