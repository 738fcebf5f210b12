"""What travels, as frozen records: events, tasks, results, messages, orders. They become JSON and come back.

Keys that we do not know are kept in `extra` and written again. Default values stand in the schemas alone:
whoever reads a file gets them from there, whoever makes a record says them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields
from operator import attrgetter
from typing import Any, ClassVar, NamedTuple, Self

Json = Mapping[str, Any]


QUESTION_ANSWERED = ".human_response"
ANSWER_TYPES = (QUESTION_ANSWERED, ".thread.reply")
"""How the types of events end in which somebody answers a question of ours, or goes on with a conversation."""
CHAT_TYPES = (".message", ".app_mention")
"""And of those in which a person begins one."""


URGENCY = {"urgent": 0, "high": 1, "normal": 2, "low": 3}
"""Both a message's urgency and an event's priority. What is not in the table counts as normal."""


Rank = tuple[int, str, int, str]


def rank(priority: str, created_at: str, name: str) -> Rank:
    """Return what a queue is served in order of: priority, age, id (by length first, so that 1000 follows 999)."""
    return (URGENCY.get(priority, 2), created_at.removesuffix("Z"), len(name), name)


class Queued(NamedTuple):
    """One thing that waits, by what its queue is served in order of."""

    #: See `rank`.
    rank: Rank
    #: Its file's name.
    filename: str
    #: The record's own type.
    type: str
    #: The record's own priority.
    priority: str
    #: Whether its owner had begun with it before a restart, and noted what it was doing.
    begun: bool = False
    #: The task that a message belongs to.
    about: str | None = None
    #: Whether a person answers, or begins a conversation: as in Event.
    is_answer: bool = False
    is_chat: bool = False


ACCOUNT = "account"
"""What a task waits for that may start as soon as money or a quota is there again."""
WHEN_SET = {"when_set": True}
"""Metadata of a field that is written only when it is set, so that files do not hold a dozen nulls."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Record:
    kind: ClassVar[str]
    #: Keys of foreign writers, kept and written again.
    extra: Json = field(default_factory=dict, compare=False)

    @classmethod
    def from_json(cls, value: Json) -> Self:
        """Return the record of a JSON object that has passed its schema, defaults filled in."""
        names = _shape(cls).names
        ours = {names[key]: part for key, part in value.items() if key in names}
        extra = {key: part for key, part in value.items() if key not in names}
        return cls(**ours, extra=extra)

    def to_json(self) -> dict[str, Any]:
        shape = _shape(type(self))
        *values, extra = shape.values(self)
        value = dict(zip(shape.always, values, strict=True))
        for key, name in shape.when_set:
            if (part := getattr(self, name)) is not None:
                value[key] = part
        value.update(extra)
        return value


@dataclass(frozen=True, slots=True, kw_only=True)
class Filed(Record):
    """A record in a queue, in a file named after its id."""

    #: Also its file's name, without `.json`.
    id: str

    def queued(self) -> Queued:
        """Return what the order of service needs to know of it."""
        raise NotImplementedError


class _Shape(NamedTuple):
    """How a record's fields stand in its file."""

    names: dict[str, str]
    always: tuple[str, ...]
    values: Callable[[Record], tuple[Any, ...]]
    when_set: tuple[tuple[str, str], ...]


_SHAPES: dict[type[Record], _Shape] = {}


def _shape(cls: type[Record]) -> _Shape:
    if cls not in _SHAPES:
        _SHAPES[cls] = _shape_of(cls)
    return _SHAPES[cls]


def _shape_of(cls: type[Record]) -> _Shape:
    ours = [part for part in fields(cls) if part.name != "extra"]
    names = {str(part.metadata.get("key", part.name)): part.name for part in ours}
    later = {part.name for part in ours if part.metadata.get("when_set")}
    always = {key: name for key, name in names.items() if name not in later}
    when_set = tuple((key, name) for key, name in names.items() if name in later)
    return _Shape(names, tuple(always), attrgetter(*always.values(), "extra"), when_set)


@dataclass(frozen=True, slots=True, kw_only=True)
class Event(Filed):
    kind: ClassVar[str] = "event"
    #: `github.pr.review_requested`: routes match it from the left, and its ending tells what people wrote.
    type: str
    #: Who saw it: `github`, `slack`, `console`.
    source: str
    #: The repository it is about, as `owner/name`.
    repo: str | None = None
    #: What its source had to say.
    payload: Json
    #: high, normal or low.
    priority: str = "normal"
    #: When it happened, in UTC to the second.
    created_at: str
    #: pending, dispatched, then how its task ended; or discarded, failed.
    status: str = "pending"
    #: The task it became, noted before the task is made.
    task_id: str | None = None
    #: Ids of the messages that follow from it, by part; noted before they are written.
    message_ids: Json = field(default_factory=dict, metadata={"key": "letters"})
    #: Why it is discarded or failed.
    discarded_reason: str | None = None
    #: The same for programs: unclaimed, duplicate, cancelled, by_order, unanswerable, task_lost.
    discarded_code: str | None = field(default=None, metadata=WHEN_SET)
    #: The order that put it back into pending.
    requeued_by: str | None = field(default=None, metadata=WHEN_SET)
    #: The order that discarded it.
    discarded_by_order: str | None = field(default=None, metadata=WHEN_SET)

    @property
    def is_answer(self) -> bool:
        return self.type.endswith(ANSWER_TYPES)

    @property
    def answers_question(self) -> bool:
        """Whether a person answered a task's question; another answer is a reply in a conversation."""
        return self.type.endswith(QUESTION_ANSWERED)

    @property
    def is_chat(self) -> bool:
        """Whether a person wrote to us, on whatever channel."""
        return self.type.endswith(CHAT_TYPES)

    def queued(self) -> Queued:
        begun = self.task_id is not None or bool(self.message_ids)
        order = rank(self.priority, self.created_at, self.id)
        return Queued(
            order, f"{self.id}.json", self.type, self.priority, begun, is_answer=self.is_answer, is_chat=self.is_chat
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Task(Filed):
    kind: ClassVar[str] = "task"
    #: The event or schedule it came from.
    event_id: str
    #: The general that does it.
    target_general: str
    #: The type of its event; `resume` when a person's answer made it.
    type: str
    #: As in its event.
    repo: str | None = None
    #: Its event's or schedule's payload; of a resumed task also the answer.
    payload: Json
    #: high, normal or low.
    priority: str = "normal"
    #: When it was made, in UTC to the second.
    created_at: str
    #: pending, or how it ended.
    status: str = "pending"
    #: Tries that have failed so far.
    attempt: int = 0
    #: It rests until then.
    not_before: str | None = None
    #: The first task of its conversation, when it is not the first itself.
    thread_task_id: str | None = None
    #: The minute of its schedule for which it was made.
    scheduled_for: str | None = None
    #: Where the person is who waits for its result.
    reply_to: Json | None = None
    #: The status of its result.
    outcome: str | None = None
    #: Ids of the messages about its end, by part; noted before they are written.
    message_ids: Json = field(default_factory=dict, metadata={"key": "letters"})
    #: Why it rests: a quota, a budget, a try that failed.
    waits_because: str | None = field(default=None, metadata=WHEN_SET)
    #: "account" while it waits for a budget or for the quota of an account, which may be free before its time.
    waits_for: str | None = field(default=None, metadata=WHEN_SET)
    #: USD that its tries have cost so far. Anything but a number counts as 0.
    spent_usd: float | None = field(default=None, metadata=WHEN_SET)
    #: Tokens that its tries have cost so far. Anything but a number counts as 0.
    spent_tokens: float | None = field(default=None, metadata=WHEN_SET)
    #: Of a resumed task: the type of the first one in its conversation.
    matter: str | None = field(default=None, metadata=WHEN_SET)
    #: The tasks that tried it again by a person's order.
    retried_as: list[str] | None = field(default=None, metadata=WHEN_SET)
    #: The order that cancelled it before anybody took it.
    cancelled_by_order: str | None = field(default=None, metadata=WHEN_SET)
    #: The order that put it back into pending.
    requeued_by: str | None = field(default=None, metadata=WHEN_SET)

    @classmethod
    def from_json(cls, value: Json) -> Self:
        if "attempt" not in value:
            value = {**value, "attempt": value.get("retry_count", 0)}
        return super(Task, cls).from_json(value)

    @property
    def original(self) -> str | None:
        """The task that a person answered, when their answer made this one."""
        original = self.payload.get("original_task_id")
        return original if self.type == "resume" and isinstance(original, str) else None

    @property
    def thread(self) -> str:
        """The task in whose conversation all of this task's messages belong."""
        return self.thread_task_id or self.id

    @property
    def subject(self) -> str:
        """What its conversation is about: the type of the first task in it."""
        return self.matter or self.type

    def queued(self) -> Queued:
        return Queued(rank(self.priority, self.created_at, self.id), f"{self.id}.json", self.type, self.priority)


@dataclass(frozen=True, slots=True, kw_only=True)
class Result(Record):
    kind: ClassVar[str] = "result"
    #: The task that it ends.
    task_id: str
    #: success, failed, skipped or needs_human.
    status: str
    #: Of a success: what was done.
    summary: str | None = None
    #: Of a failure: what went wrong.
    error: str | None = None
    #: What a person is asked.
    question: str | None = None
    #: Why it was skipped.
    reason: str | None = None
    #: What lets the answer go on; the king sets it.
    checkpoint_path: str | None = None
    #: Lines that its general learns.
    memory_updates: list[str] = field(default_factory=list)
    #: Where its message goes, if not where the task came from.
    notify_channel: str | None = None
    #: A message of its own: `channel` and `message`.
    proclamation: Json | None = None
    #: duration_seconds, tokens_used, cost_usd, files_touched, retry_count.
    metrics: Json = field(default_factory=dict)
    #: The session in which its engine can go on.
    session_id: str | None = field(default=None, metadata=WHEN_SET)
    #: The engine met a limit of its account: `resets_at`.
    quota: Json | None = field(default=None, metadata=WHEN_SET)
    #: What its general has to remark on it.
    warnings: list[str] | None = field(default=None, metadata=WHEN_SET)
    #: The folders in which its general has kept what the task left; [] when there was nothing.
    kept: list[str] | None = field(default=None, metadata=WHEN_SET)


@dataclass(frozen=True, slots=True, kw_only=True)
class Message(Filed):
    kind: ClassVar[str] = "message"
    #: thread_start, thread_update, thread_reply, human_input_request, notification or report.
    type: str
    #: The task in whose conversation it belongs.
    task_id: str | None = None
    #: The room it goes to; none for the default one.
    channel: str | None = None
    #: urgent, high or normal.
    urgency: str = "normal"
    #: What people read.
    content: str
    #: What its readers have to know besides.
    context: Json = field(default_factory=dict)
    #: Where the person is whom it answers.
    source_ref: Json | None = None
    #: When it was written, in UTC to the second.
    created_at: str
    #: pending, sent or failed.
    status: str = "pending"
    #: Its cause: one message is written for each.
    dedup_key: str | None = None
    #: What it says of its task; see CODES.
    code: str | None = field(default=None, metadata=WHEN_SET)
    #: The post under which it hangs, in a person's thread; other envoys read it.
    thread_ts: str | None = field(default=None, metadata=WHEN_SET)
    #: A copy of `context.reply_context`, where other envoys look for it.
    reply_context: Json | None = field(default=None, metadata=WHEN_SET)
    #: The conversation that a reply under it goes on with: its reply_context, and for how many ttl_seconds.
    track_conversation: Json | None = field(default=None, metadata=WHEN_SET)
    #: How often its channel has refused it.
    tries: int | None = field(default=None, metadata=WHEN_SET)
    #: Why its channel refused it last.
    refused_because: str | None = field(default=None, metadata=WHEN_SET)
    #: It is not posted before then.
    not_before: str | None = field(default=None, metadata=WHEN_SET)
    #: Where people can read it: channel, room, post, thread.
    posted: Json | None = field(default=None, metadata=WHEN_SET)
    #: The order that put it back into pending.
    requeued_by: str | None = field(default=None, metadata=WHEN_SET)

    def queued(self) -> Queued:
        order = rank(self.urgency, self.created_at, self.id)
        return Queued(order, f"{self.id}.json", self.type, self.urgency, about=self.task_id)


CODES = ("started", "resumed", "completed", "failed", "skipped", "question", "proclamation", "unanswerable", "alert")
"""What a message says of its task. "unanswerable" goes to a person for whose answer nobody waits."""
FAILURES = ("failed", "unanswerable")
_PREFIXES = {
    "[start]": "started",
    "[complete]": "completed",
    "[failed]": "failed",
    "[skipped]": "skipped",
    "[question]": "question",
    "[alert]": "alert",
    "\N{WHITE HEAVY CHECK MARK}": "completed",
    "\N{CROSS MARK}": "failed",
    "\N{BLACK RIGHT-POINTING DOUBLE TRIANGLE WITH VERTICAL BAR}": "skipped",
}


def code_of(code: object, content: object) -> str | None:
    """Return what a message says of its task, one of CODES; a foreign one is known by the first word of its content."""
    if code in CODES:
        return str(code)
    text = str(content)
    return _PREFIXES.get(text.partition(" ")[0]) or _PREFIXES.get(text[:1])


def alert(id: str, text: str, channel: str | None, written_at: str) -> Message:
    """Return a message about the kingdom itself, not about a task."""
    return Message(
        id=id,
        type="notification",
        channel=channel,
        urgency="urgent",
        content=f"[alert] {text}",
        created_at=written_at,
        dedup_key=id,
        code="alert",
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Order(Filed):
    kind: ClassVar[str] = "order"
    #: What is to be done: a row of ORDERS in king/orders.py. The schema says which commands give the order.
    action: str
    #: The id of the task, event or message it is about.
    target: str
    #: Who gave it.
    by: str
    #: When it was given, in UTC to the second.
    created_at: str
    #: What came of it, in words.
    outcome: str | None = None
    #: What came of it: done or refused.
    code: str | None = field(default=None, metadata=WHEN_SET)
    #: Why it was refused, as data: {code, values}.
    says: Json | None = field(default=None, metadata=WHEN_SET)
    #: The id of the task that a retry makes, noted before the task is made.
    made: str | None = field(default=None, metadata=WHEN_SET)

    def queued(self) -> Queued:
        return Queued(rank("normal", self.created_at, self.id), f"{self.id}.json", self.action, "normal")


@dataclass(frozen=True, slots=True, kw_only=True)
class Checkpoint(Record):
    """What a task that asks leaves behind, so that its answer can go on. Foreign ones may hold less."""

    kind: ClassVar[str] = "checkpoint"
    #: The task that asks.
    task_id: str | None = None
    #: The first task of its conversation.
    thread_task_id: str | None = None
    #: The general that goes on with the answer.
    target_general: str | None = None
    #: The type of the task that asks.
    type: str | None = None
    #: The type of the first task of its conversation.
    matter: str | None = None
    #: As in its task.
    repo: str | None = None
    #: The session in which its engine can go on.
    session_id: str | None = None
    #: The folder it worked in.
    workspace: str | None = None
    #: As in its task.
    payload: Json = field(default_factory=dict)
    #: What a person is asked.
    question: str | None = None
    #: When it was asked, in UTC to the second.
    asked_at: str | None = None
    #: "consent" when the question is ours: whether it may be done without a sandbox. Always written: older generals
    #: of ours wrote none, and asked the same.
    asks: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionRow(Record):
    """One running soldier: a row of `sessions.json`. Rows of other programs may hold less."""

    kind: ClassVar[str] = "session"
    #: Its name, where other programs look for it.
    id: str | None = field(default=None, metadata=WHEN_SET)
    #: Its name: its logs are named after it.
    soldier: str | None = field(default=None, metadata=WHEN_SET)
    #: The task it works on.
    task_id: str
    #: The general that started it.
    general: str | None = field(default=None, metadata=WHEN_SET)
    #: Its serving process.
    pid: int | None = field(default=None, metadata=WHEN_SET)
    #: When it was started, in UTC to the second.
    started_at: str | None = field(default=None, metadata=WHEN_SET)
    #: Of its task.
    priority: str | None = field(default=None, metadata=WHEN_SET)
