"""What travels: events, tasks, results, messages and orders, as frozen nouns that become JSON and come back.

Fields that we do not know are kept in `extra` and written again. Default values stand in the schemas alone:
whoever reads a file gets them from there, whoever makes a noun says them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from typing import Any, ClassVar, NamedTuple, Self

Json = Mapping[str, Any]


ANSWER_TYPES = (".human_response", ".thread.reply")
"""How the types of events end in which somebody answers a question of ours, or goes on with a conversation."""
CHAT_TYPES = (".message", ".app_mention")
"""And of those in which a person begins one."""


URGENCY = {"urgent": 0, "high": 1, "normal": 2, "low": 3}
"""Both a message's urgency and an event's priority. What is not in the table counts as normal."""


Rank = tuple[int, str, int, str]


def rank(priority: str, created_at: str, name: str) -> Rank:
    """The order in which a queue is served: priority, then age, then id (by length first, so that 1000 follows 999)."""
    return (URGENCY.get(priority, 2), created_at.removesuffix("Z"), len(name), name)


class Queued(NamedTuple):
    """One thing that waits, by what its queue is served in order of."""

    rank: Rank
    filename: str
    type: str
    priority: str
    begun: bool = False
    """An earlier life has noted what it intends with it."""
    about: str | None = None
    """The task that a message belongs to."""

    @property
    def is_answer(self) -> bool:
        return self.type.endswith(ANSWER_TYPES)


@dataclass(frozen=True, slots=True, kw_only=True)
class Record:
    kind: ClassVar[str]
    extra: Json = field(default_factory=dict, compare=False)

    @classmethod
    def from_json(cls, value: Json) -> Self:
        """From a JSON object that has passed its schema, defaults filled in."""
        known = _known(cls)
        ours = {key: part for key, part in value.items() if key in known}
        extra = {key: part for key, part in value.items() if key not in known}
        return cls(**ours, extra=extra)

    def to_json(self) -> dict[str, Any]:
        value = {name: getattr(self, name) for name in _known(type(self))}
        value.update(self.extra)
        return value

    def evolve(self, **changes: Any) -> Self:
        return replace(self, **changes)


@dataclass(frozen=True, slots=True, kw_only=True)
class Filed(Record):
    """A record that lies in a queue, in a file named after its id."""

    id: str

    def queued(self) -> Queued:
        """Return what the order of service needs to know of it."""
        raise NotImplementedError


_KNOWN: dict[type, tuple[str, ...]] = {}


def _known(cls: type[Record]) -> tuple[str, ...]:
    if cls not in _KNOWN:
        _KNOWN[cls] = tuple(each.name for each in fields(cls) if each.name != "extra")
    return _KNOWN[cls]


@dataclass(frozen=True, slots=True, kw_only=True)
class Event(Filed):
    kind: ClassVar[str] = "event"
    type: str
    source: str
    repo: str | None
    payload: Json
    priority: str
    created_at: str
    status: str
    task_id: str | None = None
    letters: Json = field(default_factory=dict)
    discarded_reason: str | None = None

    @property
    def is_answer(self) -> bool:
        return self.type.endswith(ANSWER_TYPES)

    @property
    def is_chat(self) -> bool:
        """A person wrote to us, on whatever channel."""
        return self.type.endswith(CHAT_TYPES)

    def queued(self) -> Queued:
        begun = self.task_id is not None or bool(self.letters)
        order = rank(self.priority, self.created_at, self.id)
        return Queued(order, f"{self.id}.json", self.type, self.priority, begun)


@dataclass(frozen=True, slots=True, kw_only=True)
class Task(Filed):
    kind: ClassVar[str] = "task"
    event_id: str
    target_general: str
    type: str
    repo: str | None
    payload: Json
    priority: str
    created_at: str
    status: str
    attempt: int
    not_before: str | None = None
    thread_task_id: str | None = None
    scheduled_for: str | None = None
    reply_to: Json | None = None
    outcome: str | None = None
    letters: Json = field(default_factory=dict)

    @classmethod
    def from_json(cls, value: Json) -> Self:
        if "attempt" not in value:
            value = {**value, "attempt": value.get("retry_count", 0)}
        return super(Task, cls).from_json(value)

    @property
    def thread(self) -> str:
        """The task in whose thread all of this task's letters belong."""
        return self.thread_task_id or self.id

    def queued(self) -> Queued:
        return Queued(rank(self.priority, self.created_at, self.id), f"{self.id}.json", self.type, self.priority)

    @property
    def matter(self) -> str:
        """What a resumed task is about: the type of the first one in its thread."""
        return str(self.extra.get("matter") or self.type)


@dataclass(frozen=True, slots=True, kw_only=True)
class Result(Record):
    kind: ClassVar[str] = "result"
    task_id: str
    status: str
    summary: str | None = None
    error: str | None = None
    question: str | None = None
    reason: str | None = None
    checkpoint_path: str | None = None
    memory_updates: list[str] = field(default_factory=list)
    notify_channel: str | None = None
    proclamation: Json | None = None
    metrics: Json = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Message(Filed):
    kind: ClassVar[str] = "message"
    type: str
    task_id: str | None
    channel: str | None
    urgency: str
    content: str
    context: Json
    source_ref: Json | None
    created_at: str
    status: str
    dedup_key: str | None

    def queued(self) -> Queued:
        order = rank(self.urgency, self.created_at, self.id)
        return Queued(order, f"{self.id}.json", self.type, self.urgency, about=self.task_id)


def alert(id: str, text: str, channel: str | None, written_at: str) -> Message:
    """About the kingdom itself, not about a task."""
    return Message(
        id=id,
        type="notification",
        task_id=None,
        channel=channel,
        urgency="urgent",
        content=f"[alert] {text}",
        context={},
        source_ref=None,
        created_at=written_at,
        status="pending",
        dedup_key=id,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Order(Filed):
    kind: ClassVar[str] = "order"
    action: str
    target: str
    by: str
    created_at: str
    outcome: str | None = None

    def queued(self) -> Queued:
        return Queued(rank("normal", self.created_at, self.id), f"{self.id}.json", self.action, "normal")
