"""What travels: events, tasks, results, messages and orders, as frozen nouns that become JSON and come back.

Fields that we do not know are kept in `extra` and written again. Default values stand in the schemas alone:
whoever reads a file gets them from there, whoever makes a noun says them.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields, replace
from datetime import UTC, date, datetime
from functools import lru_cache
from pathlib import Path
from typing import Any, ClassVar, Self

from kingdom.atomic import Disk
from kingdom.errors import BadFile

Json = Mapping[str, Any]


def stamp(moment: float) -> str:
    """Seconds since the epoch as the house writes time: UTC, to the second."""
    return _stamp(int(moment // 1))


@lru_cache(maxsize=16)
def _stamp(second: int) -> str:
    return datetime.fromtimestamp(second, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def moment(stamped: str) -> float:
    return datetime.fromisoformat(stamped).timestamp()


@dataclass(frozen=True, slots=True, kw_only=True)
class Envelope:
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

    def but(self, **changes: Any) -> Self:
        return replace(self, **changes)


_KNOWN: dict[type, tuple[str, ...]] = {}


def _known(cls: type[Envelope]) -> tuple[str, ...]:
    if cls not in _KNOWN:
        _KNOWN[cls] = tuple(each.name for each in fields(cls) if each.name != "extra")
    return _KNOWN[cls]


@dataclass(frozen=True, slots=True, kw_only=True)
class Event(Envelope):
    kind: ClassVar[str] = "event"
    id: str
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
        """Somebody answers a question of ours, or goes on with a conversation."""
        return self.type.endswith((".human_response", ".thread.reply"))


@dataclass(frozen=True, slots=True, kw_only=True)
class Task(Envelope):
    kind: ClassVar[str] = "task"
    id: str
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

    @property
    def matter(self) -> str:
        """What a resumed task is about: the type of the first one in its thread."""
        return str(self.extra.get("matter") or self.type)


@dataclass(frozen=True, slots=True, kw_only=True)
class Result(Envelope):
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
class Message(Envelope):
    kind: ClassVar[str] = "message"
    id: str
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
class Order(Envelope):
    kind: ClassVar[str] = "order"
    id: str
    action: str
    target: str
    by: str
    created_at: str
    outcome: str | None = None


class Numbers:
    """Ids that count up within a day: `20261118-001`. They survive restarts and never go back, as clocks may.

    The file holds the last number that may have been given away; a number is noted there before it is used,
    with some more `ahead`, so that not every id costs a write. Only a killed life leaves a gap of those.
    """

    def __init__(
        self, disk: Disk, path: Path, today: Callable[[], date], used: Callable[[str], int], ahead: int = 0
    ) -> None:
        self._disk = disk
        self._path = path
        self._today = today
        self._used = used
        self._ahead = ahead
        self._day, self._last = self._remembered()
        self._noted = self._last

    def take(self, count: int) -> list[str]:
        day = self._today().strftime("%Y%m%d")
        if day > self._day:
            self._day, self._last, self._noted = day, 0, 0
        first = self._last + 1
        if self._last + count > self._noted:
            self._note(self._last + count + self._ahead)
        self._last += count
        return [f"{self._day}-{number:03d}" for number in range(first, first + count)]

    def close(self) -> None:
        """Give back what was noted ahead."""
        if self._noted > self._last:
            self._note(self._last)

    def _note(self, number: int) -> None:
        self._disk.rewrite(self._path, f"{self._day}:{number:03d}\n".encode())
        self._noted = number

    def _remembered(self) -> tuple[str, int]:
        try:
            written = re.fullmatch(r"(\d{8}):(\d{1,12})\s*", self._path.read_text("ascii"))
        except (OSError, UnicodeDecodeError):
            written = None
        if written is None:
            # Lost or damaged: go on after the highest number that is seen in use.
            today = self._today().strftime("%Y%m%d")
            return today, self._used(today)
        # A file put back from a copy may be behind what is in use.
        return written[1], max(int(written[2]), self._used(written[1]))


def highest_number(folders: list[Path], shape: str) -> Callable[[str], int]:
    """For `Numbers`: the highest number of a day among the files of a shape like `task-{day}-` in these folders."""

    def used(day: str) -> int:
        pattern = re.compile(rf"{re.escape(shape.format(day=day))}(\d+)\.json")
        names = (entry.name for folder in folders if folder.is_dir() for entry in folder.iterdir())
        return max((int(found[1]) for name in names if (found := pattern.fullmatch(name))), default=0)

    return used


def must_match_name(envelope: Event | Task | Message | Order, filename: str) -> None:
    """A file is called after its id, so that `ls` tells the truth."""
    if f"{envelope.id}.json" != filename:
        raise BadFile(path=filename, why=f"its id is {envelope.id!r}, which belongs in {envelope.id}.json")
