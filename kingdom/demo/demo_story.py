"""The script of `kingdom demo`: its steps, the conditions it waits for, its output, and the counts at its end."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from kingdom.base.disk.codec import read_json_or
from kingdom.base.disk.lock import holder_pid
from kingdom.base.home.places import Places
from kingdom.base.home.states import MOVES
from kingdom.base.words import one_line
from kingdom.demo.demo_world import BURST, REVIEWED, TICKET, VICTIM, World, people_said

Record = Mapping[str, Any]
"""A line of logs/events.log."""


@dataclass
class EventLog:
    """What the roles have noted in logs/events.log, read as it grows."""

    places: Places
    records: list[Record] = field(default_factory=list)
    #: The task of each event.
    tasks: dict[str, str] = field(default_factory=dict)
    _read: int = 0

    def news(self) -> list[Record]:
        """Return what was noted since the last call."""
        try:
            with open(self.places.events_log, "rb") as log:
                log.seek(self._read)
                whole = log.read().rpartition(b"\n")[0]
        except FileNotFoundError:
            return []
        self._read += len(whole) + 1 if whole else 0
        new: list[Record] = [json.loads(line) for line in whole.splitlines() if line]
        self.records.extend(new)
        for record in new:
            if record["type"] == "event.dispatched":
                self.tasks[record["data"]["event_id"]] = record["data"]["task_id"]
        return new

    def has(self, kind: str, at_least: int = 1, **data: object) -> bool:
        """Return whether so many records of a kind say this."""
        said = [record for record in self.records if record["type"] == kind and data.items() <= record["data"].items()]
        return len(said) >= at_least

    def task(self, event: str) -> str:
        """Return the task of the event whose id begins so; "" while there is none."""
        return next((task for id, task in self.tasks.items() if id.startswith(event)), "")


def event_of_pull(world: World, number: int) -> str:
    """Return how the id of a pull request's event begins, which GitHub's notification names; "" before there is one."""
    end = f"/pulls/{number}"
    threads = (name for name, thread in world.github.threads.items() if thread["subject"]["url"].endswith(end))
    return next((f"evt-github-{thread}-" for thread in threads), "")


EVENT_OF_TICKET = f"evt-jira-{TICKET}-"


def _is_reported(world: World, log: EventLog, number: int) -> bool:
    task = log.task(event_of_pull(world, number))
    return log.has("message.sent", type="notification", task_id=task)


def _all_are_reported(world: World, log: EventLog) -> bool:
    return all(_is_reported(world, log, number) for number in BURST)


def _victim(world: World, log: EventLog) -> str:
    return log.task(event_of_pull(world, VICTIM))


def _waits_for_model(world: World, log: EventLog) -> bool:
    """Return whether the soldier of VICTIM has looked at the change, and the model keeps it waiting."""
    asked = [json.dumps(body["messages"]) for body in world.model.asked]
    return any(f"pull request {VICTIM} " in said and "tool_result" in said for said in asked)


def _kill_soldier(world: World, log: EventLog) -> str:
    rows = json.loads(world.places.sessions.read_text())
    pid = next(row["pid"] for row in rows if row["task_id"] == _victim(world, log))
    os.kill(pid, signal.SIGKILL)
    world.is_killed.set()
    return f"the soldier that reviews #{VICTIM} (pid {pid})"


def _kill_king(world: World, log: EventLog) -> str:
    pid = holder_pid(world.places.lock("king"))
    assert pid is not None
    os.kill(pid, signal.SIGKILL)
    events = len(list(world.places.folder("events", "pending").glob("[!.]*.json")))
    return f"the king (pid {pid}), while {events} events wait for him"


class StoryStep(NamedTuple):
    """One step: do something, and print what happens until a condition holds."""

    who: str
    #: Does it and says what was done.
    do: Callable[[World, EventLog], str]
    until: Callable[[World, EventLog], object]
    #: The title of the chapter that begins here.
    chapter: str = ""
    #: Which records are told; empty: all that TOLD knows.
    shows: Sequence[str] = ()


ENDS = ("message.sent notification", "soldier.killed", "task.retried", "system.startup")
STORY = (
    StoryStep(
        "GitHub",
        lambda world, _: world.ask_for_review(),
        lambda world, log: _is_reported(world, log, REVIEWED),
        chapter="1. A review is asked for",
    ),
    StoryStep(
        "Jira",
        lambda world, _: world.assign_ticket(),
        lambda _, log: log.has("message.sent", type="human_input_request"),
        chapter="2. A ticket is unclear",
    ),
    StoryStep(
        "Slack",
        lambda world, _: world.answer_in_thread(),
        lambda _, log: log.has("message.sent", type="notification", task_id=log.task(EVENT_OF_TICKET)),
    ),
    StoryStep(
        "GitHub",
        lambda world, _: world.notify_all(),
        _waits_for_model,
        chapter="3. A burst, and kill -9 in the middle of it",
        shows=ENDS,
    ),
    StoryStep("kill -9", _kill_king, lambda _, log: log.has("system.startup", 2, role="king"), shows=ENDS),
    StoryStep("kill -9", _kill_soldier, _all_are_reported, shows=ENDS),
)


SENTENCES = {
    "event.detected": ("makes it an event", "queue/events/*/{event_id:.20}*"),
    "event.dispatched": ("makes it a task", "queue/tasks/*/{task_id}.json"),
    "soldier.spawned": ("sends a soldier", "state/prompts/{task_id}.md"),
    "soldier.completed": ("takes its result", "state/results/{task_id}.json"),
    "soldier.killed": ("misses its soldier", "queue/tasks/*/{task_id}.json"),
    "task.retried": ("tries {subject} again", "queue/tasks/*/{task_id}.json"),
    "message.sent thread_start": ("opens a thread", "queue/messages/*/{msg_id}.json"),
    "message.sent human_input_request": ("asks in the thread", "queue/messages/*/{msg_id}.json"),
    "message.sent thread_update": ("says that it goes on", "queue/messages/*/{msg_id}.json"),
    "message.sent notification": ("tells how {subject} went", "queue/messages/*/{msg_id}.json"),
    "system.startup": ("is back", "logs/{role}.log"),
}
"""By the type of a record (of a message's too): what its actor does, and the file that shows it."""
QUOTED = ("human_input_request", "notification")
"""Messages whose words are told as well."""


def sentences(record: Record, world: World, log: EventLog, shows: Sequence[str]) -> Iterator[tuple[str, str, str]]:
    """Yield who does what, and the file to look at, of a record that is told here."""
    data = record["data"]
    name = record["type"] + (f" {data['type']}" if record["type"] == "message.sent" else "")
    if name not in SENTENCES or (shows and name not in shows):
        return
    sentence, file = SENTENCES[name]
    about = {**data, "subject": _subject(world, log, data.get("task_id"))}
    yield record["actor"], sentence.format(**about), file.format(**about)
    if not shows and data.get("type") in QUOTED:
        message = read_json_or(world.places.queue_file("messages", "sent", data["msg_id"]), {})
        yield "Slack", f"“{one_line(message.get('content', ''), 200)}”", ""


def _subject(world: World, log: EventLog, task: str | None) -> str:
    """Return the ticket or pull request that a task is about."""
    event = next((id for id, of_event in log.tasks.items() if of_event == task), "")
    numbers = (number for number in (REVIEWED, *BURST) if event.startswith(event_of_pull(world, number) or "?"))
    return TICKET if event.startswith(EVENT_OF_TICKET) else next((f"#{number}" for number in numbers), "it")


# What came in and what came of it, counted from the stand-ins' journals and from the files


class Count(NamedTuple):
    what: str
    wanted: int
    lost: int
    doubled: int


def counts(world: World) -> Iterator[Count]:
    """Yield what was lost and what was done more than once of everything that was asked."""
    events = _files(world.places, "events", "completed")
    tasks = _files(world.places, "tasks", "completed")
    of_event = [task["event_id"] for task in tasks]
    posts = [post["metadata"]["event_payload"]["message"] for post in world.slack.from_kingdom()]
    ends = [post["thread_ts"] for post in world.slack.from_kingdom() if post["text"].startswith("[complete]")]
    threads = [post["ts"] for post in world.slack.from_kingdom() if "thread_ts" not in post]
    sent = [message["id"] for message in _files(world.places, "messages", "sent")]
    yield _counted("notifications of GitHub → events", world.github.threads, _sources(events, "evt-github-"))
    yield _counted("tickets of Jira → events", world.jira.tickets, _sources(events, "evt-jira-"))
    yield _counted("answers in Slack → events", [p["ts"] for p in people_said(world)], _replies(events))
    yield _counted("events → tasks that ended", [event["id"] for event in events], of_event)
    yield _counted("messages → posts in Slack", sent, posts)
    yield _counted("questions → their sessions, resumed", *_sessions(world.places, tasks))
    yield _counted("threads in Slack → their ends", threads, ends)


def _counted(what: str, wanted: Any, found: Sequence[str]) -> Count:
    asked = set(wanted)
    return Count(what, len(asked), len(asked - set(found)), len(found) - len(asked & set(found)))


def _sources(events: Sequence[Record], begin: str) -> list[str]:
    """Return the ids that a source gave, without the moment behind them."""
    ids = (str(event["id"]).removeprefix(begin) for event in events if str(event["id"]).startswith(begin))
    return [id.partition("-20")[0] for id in ids]


def _replies(events: Sequence[Record]) -> list[str]:
    return [event["payload"]["message_ts"] for event in events if event["source"] == "slack"]


def _sessions(places: Places, tasks: Sequence[Record]) -> tuple[list[str], list[str]]:
    """Return the sessions in which something was asked, and those in which a soldier went on with an answer."""
    results = {task["id"]: read_json_or(places.result(task["id"]), {}) for task in tasks}
    asked = [result.get("session_id", "none") for result in results.values() if result.get("status") == "needs_human"]
    return asked, [results[task["id"]].get("session_id", "") for task in tasks if task["type"] == "resume"]


def _files(places: Places, kind: str, state: str) -> list[dict[str, Any]]:
    return [json.loads(path.read_text()) for path in sorted(places.folder(kind, state).glob("[!.]*.json"))]


def waiting(places: Places) -> int:
    """Return how many files lie in the queues that have not come to their end, or could not be read."""
    ended = {("events", "completed"), ("tasks", "completed"), ("messages", "sent"), ("orders", "done")}
    open_ = ((kind, state) for kind, states in MOVES.items() for state in states if (kind, state) not in ended)
    return sum(len(list(places.folder(kind, state).glob("[!.]*.json"))) for kind, state in open_)
