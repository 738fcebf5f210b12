"""`kingdom say`: a person's words go in as an event, and the letters they lead to come out."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import click

from kingdom.cli import home
from kingdom.cli.finite import Finite
from kingdom.disk.codec import LARGEST, read_json_or, to_json
from kingdom.disk.lock import is_locked
from kingdom.errors import BadInput, Collision, Exit, NotRunning, TookTooLong, Usage
from kingdom.home.places import Places
from kingdom.records import notes
from kingdom.records.messages import FAILURES, Event, code_of
from kingdom.runtime.wake import Waker
from kingdom.times import stamp
from kingdom.words import printable

CHANNEL = "console"
PATIENCE_SECONDS = 5.0
"""After so long without a word we tell what it waits for, or who is at it."""
RESTART_SECONDS = 60.0
"""A role that crashed and is not back after so long is not about to be."""
LOOK_SECONDS = 0.25
"""How often to look where nothing but time wakes us."""

Letter = dict[str, Any]


class NobodyTakesIt(BadInput):
    """{event}: {why}"""

    exit = Exit.FAILED


@click.command()
@click.argument("words", metavar="TEXT...", nargs=-1, required=True)
@click.option("--answer", "task", metavar="TASK", help="TEXT answers the question that this task has asked.")
@click.option("--no-wait", is_flag=True, help="Print the event's id and do not wait for letters.")
@click.option("--timeout", type=Finite(min=0), default=300.0, show_default=True, help="Seconds to wait.")
@click.option("--json", "as_json", is_flag=True, help="One JSON letter a line.")
def say(words: tuple[str, ...], task: str | None, no_wait: bool, timeout: float, as_json: bool) -> int:
    """Say TEXT to the kingdom and wait for its answer.

    Exit code 0 when the last letter is an answer or a question, 1 when it says [failed].
    """
    places = home.find()
    places.check()
    text = " ".join(words)
    if not text.strip():
        raise Usage(message='say what? `kingdom say "brief me"`')
    if no_wait:
        print(_put(places, text, task))
        return Exit.DONE
    _refuse_if_asleep(places)
    last: Letter = {}
    with closing(Ear(places)) as ear:
        event = _put(places, text, task)
        for letter in _until_interrupted(ear.letters(event, timeout), event):
            last = letter
            said = json.dumps(letter, ensure_ascii=False) if as_json else printable(letter.get("content", ""))
            print(said, flush=True)
    if (failed := last.get("context", {}).get("failed_task")) and not as_json:
        print(f"`{home.command()} why {printable(failed)}` shows more")
    if last.get("type") == "human_input_request" and not as_json:
        print(f'Answer with: {home.command()} say --answer {_asker(last)} "..."')
    return Exit.FAILED if code_of(last) in FAILURES else Exit.DONE


def _until_interrupted(letters: Iterator[Letter], event: str) -> Iterator[Letter]:
    try:
        yield from letters
    except KeyboardInterrupt:
        click.echo(f"It goes on without you: `{home.command()} why {event}`", err=True)
        raise


class Ear:
    """Hears what becomes of an event. It listens from its making on, so make it before the event."""

    def __init__(self, places: Places) -> None:
        self._places = places
        self._sent = places.folder("messages", "sent")
        self._failed = places.folder("messages", "failed")
        self._ended = (places.folder("events", "completed"), places.folder("events", "dead"))
        self._waker = Waker((self._sent, self._failed, *self._ended))
        self._since = time.time()
        self._heard: set[str] = set()
        self._told = ""

    def close(self) -> None:
        self._waker.close()

    def letters(self, event: str, seconds: float) -> Iterator[Letter]:
        """Every letter for this event, until the last one. NobodyTakesIt when there will be none."""
        begun = news = time.monotonic()
        while True:
            left = begun + seconds - time.monotonic()
            if left <= 0:
                self._give_up(event, seconds)
            for folder, name in self._arrivals(min(left, LOOK_SECONDS if self._waker.polls else 1.0)):
                letter = self._read(folder, name, event)
                if letter is None:
                    continue
                yield letter
                news = time.monotonic()
                if letter.get("type") in ("notification", "human_input_request"):
                    return
            if time.monotonic() - news > PATIENCE_SECONDS:
                self._tell_what_holds_it(event)

    def _arrivals(self, seconds: float) -> list[tuple[Path, str]]:
        arrived = self._waker.wait(seconds)
        if arrived is not None and not self._waker.polls:
            return [(folder, name) for folder, names in arrived.items() for name in names]
        folders = (self._sent, self._failed, *self._ended)
        found = [path for folder in folders for path in folder.iterdir() if path.stat().st_ctime >= self._since - 1]
        return [(path.parent, path.name) for path in sorted(found, key=lambda path: path.stat().st_ctime)]

    def _read(self, folder: Path, name: str, event: str) -> Letter | None:
        if folder in self._ended:
            self._check_fate(folder, name, event)
            return None
        if name in self._heard or not name.endswith(".json"):
            return None
        letter = read_json_or(folder / name, {})
        if (letter.get("source_ref") or {}).get("event_id") != event:
            return None
        self._heard.add(name)
        if folder == self._failed:
            why = letter.get("refused_because", "no reason was kept")
            raise NobodyTakesIt(event=event, why=f"its letter {letter.get('id')} could not be delivered: {why}")
        return letter

    def _check_fate(self, folder: Path, name: str, event: str) -> None:
        if name == f"{event}.json":
            note = read_json_or(folder / name, {})
            if note.get("status") == "discarded":
                why = f"{note.get('discarded_reason')}; `{home.command()} generals` lists who is there"
                raise NobodyTakesIt(event=event, why=why)
        if name == f"{event}.json.reason":
            raise NobodyTakesIt(event=event, why=str(read_json_or(folder / name, {}).get("reason")))

    def _give_up(self, event: str, seconds: float) -> None:
        hint = f"it goes on without you: `{home.command()} why {event}`"
        raise TookTooLong(what="final answer", seconds=seconds, hint=hint)

    def _tell_what_holds_it(self, event: str) -> None:
        """Once for each reason: one that differs in its figures alone is the same."""
        from kingdom.cli.why import hindrance

        reason = hindrance(self._places, event)
        if reason is not None and _without_figures(reason) != self._told:
            self._told = _without_figures(reason)
            click.echo(reason, err=True)


def _without_figures(text: str) -> str:
    return "".join(each for each in text if not each.isdigit())


def _put(places: Places, text: str, task: str | None) -> str:
    """The event, under the first microsecond that is free."""
    disk = home.disk(places)
    while True:
        now = time.time_ns()
        event = _event(places, text, task, f"{now // 1000}", now / 1e9)
        data = _encoded(event)
        try:
            disk.create(places.queue_file("events", "pending", event.id), data)
        except Collision:
            continue
        return event.id


def _event(places: Places, text: str, task: str | None, number: str, now: float) -> Event:
    said = {"user": home.user(), "text": text, "channel": CHANNEL, "message_ts": f"{now:.6f}"}
    answer = {} if task is None else {"task_id": task, "human_response": text, "reply_context": {"task_id": task}}
    if task is not None:
        _refuse_if_answered(places, task)
    return Event(
        id=f"evt-{CHANNEL}-{number}",
        type=f"{CHANNEL}.message" if task is None else f"{CHANNEL}.human_response",
        source=CHANNEL,
        repo=None,
        payload={**said, **answer},
        priority="normal" if task is None else "high",
        created_at=stamp(now),
        status="pending",
    )


def _refuse_if_answered(places: Places, task: str) -> None:
    if notes.asks(places, task):
        return
    if notes.answered_by(places, task) is not None:
        hint = f"`{home.command()} why {task}` shows by whom"
        raise BadInput(message=f"the question of {task} is already answered; {hint}")
    raise BadInput(message=f"{task} has no open question; `{home.command()} report` lists those that have")


def _encoded(event: Event) -> bytes:
    try:
        data = to_json(event.to_json())
    except UnicodeEncodeError:
        raise BadInput(message="the text is not UTF-8") from None
    if len(data) > LARGEST:
        raise BadInput(message=f"the text is {len(data)} bytes long, and {LARGEST} is the most; put it into a file")
    return data


def _asker(letter: Letter) -> str:
    """The task that asked. The letter itself carries the task whose thread it belongs to."""
    context = letter.get("context", {}).get("reply_context", {})
    return str(context.get("task_id") or letter.get("task_id"))


def _refuse_if_asleep(places: Places) -> None:
    """A role that is just being started again is waited for; one that has stopped is not."""
    for role in ("king", "envoy"):
        if is_locked(places.lock(role)):
            continue
        path = places.heartbeat(role)
        beat = read_json_or(path, {})
        if not beat or beat.get("state") == "stopped" or time.time() - path.stat().st_mtime > RESTART_SECONDS:
            hint = f"start it with `{home.how_to_start(places, role)}`, or leave your words in the queue with --no-wait"
            raise NotRunning(what=f"the {role}", hint=hint)
