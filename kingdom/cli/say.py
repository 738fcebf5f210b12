"""`kingdom say`: create an event from a person's words, and print the messages that it leads to."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import closing, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any, NoReturn

import click

from kingdom.base.disk.codec import LARGEST, read_json_or, to_json
from kingdom.base.errors import BadInput, BadName, Collision, Exit, NoSuchThing, NotRunning, TookTooLong, Usage
from kingdom.base.home.places import Places
from kingdom.base.program import home
from kingdom.base.program.as_json import line
from kingdom.base.program.call import Finite
from kingdom.base.records import kept, notes, refusals
from kingdom.base.records.lookup import find, leading_back, task_id_of
from kingdom.base.records.messages import FAILURES, Event, code_of
from kingdom.base.runtime.wake import Waker
from kingdom.base.times import stamp
from kingdom.base.words import one_line, printable
from kingdom.cli import complete

CHANNEL = "console"
QUIET_SECONDS = 5.0
"""After so long without a message it prints what the event waits for."""
RESTART_SECONDS = 60.0
"""A role that crashed and is not back after so long is not about to come back."""
LOOK_SECONDS = 0.25
"""How often to look where inotify is missing."""

ENDINGS = {
    "success": ("complete", "summary", "completed"),
    "skipped": ("skipped", "reason", "out of scope"),
    "needs_human": ("question", "question", "it did not say what"),
    "failed": ("failed", "error", "unknown"),
}
"""By the status of a result: how its message begins, the field that it tells, and what it says without that."""

Document = dict[str, Any]
"""A message as its file holds it; it may be another program's."""


class NoAnswer(BadInput):
    """{event}: {why}"""

    exit = Exit.FAILED


@click.command()
@click.argument("words", metavar="TEXT...", nargs=-1, required=True)
@click.option(
    "--answer",
    "task",
    metavar="TASK",
    shell_complete=complete.asking_tasks,
    help="Answer the question that this task asked.",
)
@click.option("--no-wait", is_flag=True, help="Print the event's id and do not wait for an answer.")
@click.option("--timeout", type=Finite(min=0), default=300.0, show_default=True, help="Seconds to wait for the answer.")
@click.option("--json", "in_json", is_flag=True, help="Print each message as one line of JSON.")
def say(words: tuple[str, ...], task: str | None, no_wait: bool, timeout: float, in_json: bool) -> int:
    """Say TEXT to the kingdom and wait for its answer.

    Exit code 0 when the last message is an answer or a question, 1 when it says [failed].
    """
    places = home.find()
    places.check()
    text = " ".join(words)
    if not text.strip():
        raise Usage(message='nothing to say; try `kingdom say "brief me"`')
    if task is not None:
        _refuse_if_answered(places, task)
    event = _event(places, text, task)
    if no_wait:
        print(create(places, event))
        return Exit.DONE
    return print_messages(places, event, timeout, in_json)


def print_messages(places: Places, event: Event, timeout: float, in_json: bool) -> int:
    """Create an event, and print the messages that it leads to up to the last one. Return the exit code."""
    _refuse_if_down(places)
    last: Document = {}
    with closing(ReplyListener(places)) as listener:
        name = create(places, event)
        for message in _until_interrupted(listener.messages(name, timeout), name):
            last = message
            print(line("message", message) if in_json else printable(message.get("content", "")), flush=True)
    if (failed := last.get("context", {}).get("failed_task")) and not in_json:
        print(f"`{home.command()} why {printable(failed)}` shows more")
    if last.get("type") == "human_input_request" and not in_json:
        print(f'Answer with: {home.command()} say --answer {_asking_task(last)} "..."')
    return Exit.FAILED if code_of(last.get("code"), last.get("content")) in FAILURES else Exit.DONE


def _until_interrupted(messages: Iterator[Document], event: str) -> Iterator[Document]:
    try:
        yield from messages
    except KeyboardInterrupt:
        click.echo(f"The work goes on: `{home.command()} why {event}`", err=True)
        raise


class ReplyListener:
    """Listen for the messages that an event leads to. Make it before the event: it sees only what comes later."""

    def __init__(self, places: Places) -> None:
        self._places = places
        self._sent = places.folder("messages", "sent")
        self._failed = places.folder("messages", "failed")
        self._ended = (places.folder("events", "completed"), places.folder("events", "dead"))
        self._waker = Waker((self._sent, self._failed, *self._ended))
        self._since = time.time()
        self._seen: set[str] = set()
        self._task = ""
        self._last_reason = ""

    def close(self) -> None:
        self._waker.close()

    def messages(self, event: str, seconds: float) -> Iterator[Document]:
        """Yield the messages for this event up to the final one. NoAnswer when there will be none."""
        begun = latest = time.monotonic()
        while True:
            left = begun + seconds - time.monotonic()
            if left <= 0:
                yield self._outcome(event) or self._give_up(event, seconds)
                return
            for folder, name in self._arrivals(min(left, LOOK_SECONDS if self._waker.polls else 1.0)):
                message = self._read(folder, name, event)
                if message is None:
                    continue
                yield message
                latest = time.monotonic()
                if message.get("type") in ("notification", "human_input_request"):
                    return
            if time.monotonic() - latest > QUIET_SECONDS:
                if (outcome := self._outcome(event)) is not None and not self._is_to_be_told(str(outcome["task_id"])):
                    yield outcome
                    return
                self._print_what_it_waits_for(event)

    def _arrivals(self, seconds: float) -> list[tuple[Path, str]]:
        arrived = self._waker.wait(seconds)
        if arrived is not None and not self._waker.polls:
            return [(folder, name) for folder, names in arrived.items() for name in names]
        folders = (self._sent, self._failed, *self._ended)
        found = [path for folder in folders for path in folder.iterdir() if path.stat().st_ctime >= self._since - 1]
        return [(path.parent, path.name) for path in sorted(found, key=lambda path: path.stat().st_ctime)]

    def _read(self, folder: Path, name: str, event: str) -> Document | None:
        if folder in self._ended:
            self._check_end(folder, name, event)
            return None
        if name in self._seen or not name.endswith(".json"):
            return None
        message = read_json_or(folder / name, {})
        if not self._belongs(message, event):
            return None
        self._seen.add(name)
        if folder == self._failed:
            why = message.get("refused_because", "no reason was kept")
            raise NoAnswer(event=event, why=f"the message {message.get('id')} could not be delivered: {why}")
        return message

    def _belongs(self, message: Document, event: str) -> bool:
        """Return whether an event led to this message. Only what a person wrote is named in it; else its task is."""
        if (source := message.get("source_ref") or {}).get("event_id"):
            return bool(source["event_id"] == event)
        if not self._task:
            with suppress(NoSuchThing):
                self._task = task_id_of(self._places, find(self._places, event, ("events",)))
        return bool(self._task) and message.get("task_id") == self._task

    def _check_end(self, folder: Path, name: str, event: str) -> None:
        if name == f"{event}.json":
            ended = read_json_or(folder / name, {})
            if ended.get("status") == "discarded":
                is_unclaimed = ended.get("discarded_code") == "unclaimed"
                hint = f"; `{home.command()} generals` lists what is installed" if is_unclaimed else ""
                raise NoAnswer(event=event, why=f"{ended.get('discarded_reason')}{hint}")
            if ended.get("status") == "skipped" and (why := self._why_in_silence(str(ended.get("task_id")))):
                raise NoAnswer(event=event, why=why)
        if name == f"{event}.json.reason":
            raise NoAnswer(event=event, why=str(read_json_or(folder / name, {}).get("reason")))

    def _why_in_silence(self, task: str) -> str:
        """Return why a task was skipped, when no message will say so."""
        with suppress(NoSuchThing, BadName):
            if "final" not in (find(self._places, task, ("tasks",)).get("letters") or {}):
                return f"skipped: {read_json_or(self._places.result(task), {}).get('reason') or 'out of scope'}"
        return ""

    def _outcome(self, event: str) -> Document | None:
        """Return how the task of a completed event ended, in the words of a last message; None while it goes on."""
        with suppress(NoSuchThing, BadName):
            found = find(self._places, event, ("events",))
            task = find(self._places, task_id_of(self._places, found), ("tasks",))
            result = read_json_or(self._places.result(task.id), {})
            if found.state == task.state == "completed" and result.get("status") in ENDINGS:
                word, key, default = ENDINGS[result["status"]]
                says = f"{task.get('type')} — " if word == "complete" else ""
                kind = "human_input_request" if word == "question" else "notification"
                content = f"[{word}] {says}{result.get(key) or default}"
                where = "" if word == "question" else kept.sentence(task.id, kept.folders_named(self._places, task.id))
                return {"type": kind, "task_id": task.id, "content": f"{content}\n{where}".rstrip()}
        return None

    def _is_to_be_told(self, task: str) -> bool:
        """Return whether a message about a task waits for the envoy."""
        noted = find(self._places, task, ("tasks",)).get("letters") or {}
        paths = [self._places.queue_file("messages", "pending", str(message)) for message in noted.values()]
        about = leading_back(self._places, "messages", "task_id", task)
        return any(path.exists() for path in paths) or any(message.state == "pending" for message in about)

    def _give_up(self, event: str, seconds: float) -> NoReturn:
        hint = f"the work goes on: `{home.command()} why {event}`"
        raise TookTooLong(what="final answer", seconds=seconds, hint=hint)

    def _print_what_it_waits_for(self, event: str) -> None:
        """Print each reason once; one that differs only in its numbers is the same."""
        from kingdom.cli.why import waits_for

        reason = waits_for(self._places, event)
        if reason is not None and _without_digits(reason) != self._last_reason:
            self._last_reason = _without_digits(reason)
            click.echo(reason, err=True)


def _without_digits(text: str) -> str:
    return "".join(character for character in text if not character.isdigit())


def create(places: Places, event: Event) -> str:
    """Create an event, with the first microsecond that is free behind its id, and return this id."""
    disk = home.disk(places)
    while True:
        named = replace(event, id=f"{event.id}-{time.time_ns() // 1000}")
        data = _encoded(named)
        try:
            disk.create(places.queue_file("events", "pending", named.id), data)
        except Collision:
            continue
        return named.id


def _event(places: Places, text: str, task: str | None) -> Event:
    who, now = home.user(), time.time()
    said = {"user_id": who, "user": who, "text": text, "channel": CHANNEL, "message_ts": f"{now:.6f}"}
    answer: Document = {}
    if task is not None:
        answer = {"task_id": task, "human_response": text, "reply_context": _reply_context(places, task)}
    return Event(
        id=f"evt-{CHANNEL}",
        type=f"{CHANNEL}.message" if task is None else f"{CHANNEL}.human_response",
        source=CHANNEL,
        payload={**said, **answer},
        priority="normal" if task is None else "high",
        created_at=stamp(now),
    )


def _reply_context(places: Places, task: str) -> Document:
    """Return the context of the answer, also for a king who does not read the checkpoint."""
    try:
        asked = notes.checkpoint(places, task)
    except (FileNotFoundError, BadInput):
        return {"task_id": task}
    known = {"general": asked.target_general, "session_id": asked.session_id, "repo": asked.repo}
    return {**known, "task_id": task, "thread_task_id": asked.thread_task_id or task}


def _refuse_if_answered(places: Places, task: str) -> None:
    if notes.asks(places, task):
        return
    if notes.answered_by(places, task) is not None:
        hint = f"`{home.command()} why {task}` shows by whom"
        raise BadInput(message=f"the question of {task} is already answered; {hint}")
    raise BadInput(message=f"{task} has no open question; `{home.command()} report` lists the open ones")


def _encoded(event: Event) -> bytes:
    try:
        data = to_json(event.to_json())
    except UnicodeEncodeError:
        raise BadInput(message="the text is not UTF-8") from None
    if len(data) > LARGEST:
        raise BadInput(
            message=f"the text is {len(data)} bytes long, and {LARGEST} is the most; put it into a file and name that"
        )
    return data


def _asking_task(message: Document) -> str:
    """Return the task that asked: the message's own task is the one whose thread it belongs to."""
    context = message.get("context", {}).get("reply_context", {})
    return str(context.get("task_id") or message.get("task_id"))


def _refuse_if_down(places: Places) -> None:
    """Raise NotRunning when king or envoy does not run, unless it crashed a moment ago and is being restarted."""
    for role in ("king", "envoy"):
        if home.is_played(places, role):
            continue
        path = places.heartbeat(role)
        heartbeat = read_json_or(path, {})
        if not heartbeat or heartbeat.get("state") == "stopped" or time.time() - path.stat().st_mtime > RESTART_SECONDS:
            why = one_line(refusals.why(places, role), 300)
            step = f"{why}; correct that" if why else f"start it with `{home.how_to_start(places, role)}`"
            hint = f"{step}, or put your words into the queue with --no-wait"
            raise NotRunning(what=f"the {role}", hint=hint)
