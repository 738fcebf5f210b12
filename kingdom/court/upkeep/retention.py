"""What is deleted, when, and what is exempt: one row of RULES for each kind of file.

Nothing that waits, is under way or could not be read is in the table. A failed task stays with its event and its result
until somebody retries it; its workspace goes. What belongs to an open question or
conversation stays as long as that is open, whatever its age.
"""

from __future__ import annotations

import os
import re
import stat
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from kingdom import wings
from kingdom.base import tables
from kingdom.base.disk.atomic import Disk, is_there, sync_folder
from kingdom.base.disk.codec import parse_json, read_bytes, read_json_or
from kingdom.base.errors import BadFile, BadName
from kingdom.base.home.places import BESIDE_RESULTS, CHECKPOINT, Places, is_hidden
from kingdom.base.records import kept, notes
from kingdom.base.times import moment

DAY = 86_400.0
RUNNING_STATES = ("pending", "in_progress")
_SOLDIER_LOG = re.compile(r"soldier-(.+)-\d+\.(?:out|err)\Z")
_ROTATED = re.compile(r".+\.log\.\d{8}-\d{6}(-\d+)?\Z")


@dataclass(frozen=True, slots=True)
class Open:
    """What is not over yet: tasks of open questions and conversations, and the events that these came from."""

    tasks: frozenset[str]
    events: frozenset[str]


@dataclass(frozen=True, slots=True)
class OldFile:
    """A file or folder that is old enough."""

    places: Places
    path: Path
    open: Open


@dataclass(frozen=True, slots=True)
class RetentionRule:
    """One kind of thing that is deleted when it is old."""

    #: What it is, for people.
    what: str
    #: The folders in which it lies.
    folders: Callable[[Places], list[Path]]
    #: The key of `retention` in chamberlain.yaml that says how many days it is kept.
    days: str
    #: Whether it stays all the same.
    is_exempt: Callable[[OldFile], bool]
    #: Whether a name is one of these; others in the folder are left alone.
    takes: Callable[[str], bool] = lambda name: True
    #: They are folders, which are removed with all that is in them.
    is_tree: bool = False
    #: Deleted only by a chamberlain that runs: it has counted what stands in them.
    is_counted_first: bool = False
    #: The folder whose deletions must be durable before these: an answer may not vanish before its question.
    after: Callable[[Places], Path] | None = None


def task_of_result(name: str) -> str:
    """Return the task that a file among the results belongs to."""
    ending = next((ending for ending in BESIDE_RESULTS if name.endswith(ending)), ".json")
    return name.removesuffix(ending)


def task_of_soldier_log(name: str) -> str:
    """Return the task that the output of a soldier belongs to; "" for a name of another form."""
    found = _SOLDIER_LOG.fullmatch(name)
    return found[1] if found else ""


def is_unfinished(places: Places, task: str) -> bool:
    """Return whether a task waits or is under way."""
    return any(is_there(f"{places.folder('tasks', state)}/{task}.json") for state in RUNNING_STATES)


def is_kept(found: OldFile, task: str) -> bool:
    return task in found.open.tasks or is_unfinished(found.places, task)


def _has_failed(places: Places, task: str) -> bool:
    """Return whether a task failed and nobody has retried it: somebody may still want to."""
    ended = read_json_or(places.folder("tasks", "completed") / f"{task}.json", {})
    return ended.get("outcome") == "failed" and not ended.get("retried_as")


def _event_is_open(found: OldFile) -> bool:
    if found.path.stem in found.open.events:
        return True
    event = read_json_or(found.path, {})
    return event.get("status") == "failed" and _has_failed(found.places, str(event.get("task_id")))


def _task_is_open(found: OldFile) -> bool:
    return found.path.stem in found.open.tasks or _has_failed(found.places, found.path.stem)


def _message_is_open(found: OldFile) -> bool:
    if not found.open.tasks:
        return False
    message = read_json_or(found.path, {})
    return message.get("task_id") in found.open.tasks


def nothing_keeps_it(found: OldFile) -> bool:
    return False


def _result_is_kept(found: OldFile) -> bool:
    task = task_of_result(found.path.name)
    return is_kept(found, task) or _has_failed(found.places, task)


def _prompt_is_kept(found: OldFile) -> bool:
    return is_kept(found, found.path.stem)


def _soldier_log_is_kept(found: OldFile) -> bool:
    return is_kept(found, task_of_soldier_log(found.path.name))


def _event_waits(found: OldFile) -> bool:
    pending = (found.places.folder("events", state) for state in ("pending", "dispatched"))
    return any(is_there(f"{folder}/{found.path.name}.json") for folder in pending)


def _answer_is_kept(found: OldFile) -> bool:
    """Keep the note of an answer as long as its question: without it the question would be open again."""
    return is_there(found.places.results / f"{found.path.stem}{CHECKPOINT}") or _prompt_is_kept(found)


def workspace_is_kept(found: OldFile) -> bool:
    """Keep a workspace as long as its task. Its time is that of its task's end."""
    task = kept.task_of(found.path.name)
    ended = is_there(f"{found.places.folder('tasks', 'completed')}/{task}.json")
    return (
        (ended and not _has_failed(found.places, task))
        or is_there(found.places.results / f"{task}{CHECKPOINT}")
        or is_kept(found, task)
    )


def _workspaces(places: Places) -> list[Path]:
    return [folder for folder in places.workspaces.glob("gen-*") if folder.is_dir()]


RULES: tuple[RetentionRule, ...] = (
    RetentionRule("ended events", lambda at: [at.folder("events", "completed")], "queue_days", _event_is_open),
    RetentionRule("ended tasks", lambda at: [at.folder("tasks", "completed")], "queue_days", _task_is_open),
    RetentionRule("sent messages", lambda at: [at.folder("messages", "sent")], "queue_days", _message_is_open),
    RetentionRule(
        "orders that were carried out", lambda at: [at.folder("orders", "done")], "queue_days", nothing_keeps_it
    ),
    RetentionRule("results", lambda at: [at.results], "results_days", _result_is_kept),
    RetentionRule(
        "notes of answers", lambda at: [at.answers], "results_days", _answer_is_kept, after=lambda at: at.results
    ),
    RetentionRule("prompts", lambda at: [at.prompts], "prompts_days", _prompt_is_kept),
    RetentionRule("output of soldiers", lambda at: [at.session_logs], "session_logs_days", _soldier_log_is_kept),
    RetentionRule("workspaces", _workspaces, "workspaces_days", workspace_is_kept, is_tree=True),
    RetentionRule("marks of seen events", lambda at: [at.seen], "seen_days", _event_waits),
    RetentionRule(
        "rotated logs",
        lambda at: [at.logs],
        "logs_days",
        nothing_keeps_it,
        takes=lambda name: bool(_ROTATED.fullmatch(name)),
        is_counted_first=True,
    ),
)


def rules() -> Iterator[RetentionRule]:
    """Yield the rows of all products."""
    yield from RULES
    for wing in wings.rows():
        if wing.retention:
            yield from tables.load(wing.retention)


@dataclass
class Tally:
    """What was deleted, or would be."""

    files: dict[str, int] = field(default_factory=dict)
    bytes: int = 0

    @property
    def total(self) -> int:
        return sum(self.files.values())

    def add(self, what: str, size: int) -> None:
        self.files[what] = self.files.get(what, 0) + 1
        self.bytes += size


@dataclass(frozen=True, slots=True)
class Deleter:
    """How things are deleted; a look alone needs none."""

    disk: Disk
    remove_tree: Callable[[Disk, Path], None]
    #: Whether the caller has counted the internal events.
    counts_events: bool = False


class Cleaning:
    """One run over all rules, in slices that are as short as the caller wants."""

    def __init__(self, places: Places, days: Mapping[str, float], now: float, deleter: Deleter | None) -> None:
        self.tally = Tally()
        self._places, self._days, self._now, self._deleter = places, days, now, deleter
        self._steps = self._clean()

    def go_on(self, seconds: float) -> bool:
        """Work for so long. Return whether there is more to do."""
        until = time.monotonic() + seconds
        return any(time.monotonic() >= until for _ in self._steps)

    def _clean(self) -> Iterator[None]:
        found: set[str] = set()
        for task in open_tasks(self._places, self._now):
            found.update(task)
            yield
        open_ = Open(frozenset(found), frozenset(_events_of(self._places, found)))
        for rule in rules():
            if rule.is_counted_first and self._deleter is not None and not self._deleter.counts_events:
                continue
            if rule.after is not None and self._deleter is not None:
                sync_folder(rule.after(self._places))
            for folder in rule.folders(self._places):
                yield from self._clean_folder(rule, folder, open_)

    def _clean_folder(self, rule: RetentionRule, folder: Path, open_: Open) -> Iterator[None]:
        oldest = self._now - self._days[rule.days] * DAY
        for entry in _entries(folder):
            yield
            if is_hidden(entry.name) or not rule.takes(entry.name):
                continue
            with suppress(FileNotFoundError):
                about = entry.stat(follow_symlinks=False)
                is_one = stat.S_ISDIR(about.st_mode) if rule.is_tree else stat.S_ISREG(about.st_mode)
                is_old = is_one and about.st_mtime < oldest
                if is_old and not rule.is_exempt(OldFile(self._places, Path(entry), open_)):
                    self._delete(rule, Path(entry))
                    self.tally.add(rule.what, about.st_size)

    def _delete(self, rule: RetentionRule, path: Path) -> None:
        if self._deleter is None:
            return
        if rule.is_tree:
            self._deleter.remove_tree(self._deleter.disk, path)
        else:
            self._deleter.disk.remove(path)


def open_tasks(places: Places, now: float) -> Iterator[set[str]]:
    """Yield the tasks of open questions and conversations, and those with which running tasks go on."""
    for entry in _entries(places.results):
        task = entry.name.removesuffix(CHECKPOINT)
        with suppress(FileNotFoundError, BadFile, BadName):
            if task != entry.name and notes.asks(places, task):
                checkpoint = read_json_or(places.checkpoint(task), {})
                yield {task, *_texts(checkpoint.get("thread_task_id"))}
        yield set()
    yield from map(_tasks_of_row, _conversations(places, now))
    for state in RUNNING_STATES:
        for entry in _entries(places.folder("tasks", state)):
            task_file = read_json_or(entry.path, {}) if not is_hidden(entry.name) else {}
            payload = task_file.get("payload")
            original = payload.get("original_task_id") if isinstance(payload, dict) else None
            yield {*_texts(original, task_file.get("thread_task_id"))}


def _entries(folder: Path) -> Iterator[os.DirEntry[str]]:
    """Yield what lies in a folder; nothing where there is no folder."""
    with suppress(FileNotFoundError, NotADirectoryError), os.scandir(folder) as entries:
        yield from entries


def _conversations(places: Places, now: float) -> Iterator[dict[str, Any]]:
    """Yield the rows of the envoy's files: open threads, questions that wait, conversations that may go on."""
    for path in places.conversations():
        with suppress(FileNotFoundError, BadFile, ValueError):
            value = parse_json(read_bytes(path, 64 << 20))
            rows = value if isinstance(value, list) else list(value.items()) if isinstance(value, dict) else []
            for row in rows:
                name, row = row if isinstance(row, tuple) else ("", row)
                if isinstance(row, dict) and not _has_ended(row, now):
                    yield {"task_id": name, **row} if "task_id" not in row else row


def _has_ended(row: Mapping[str, Any], now: float) -> bool:
    try:
        return moment(str(row["expires_at"])) <= now
    except (KeyError, ValueError, OverflowError):
        return False


def _tasks_of_row(row: Mapping[str, Any]) -> set[str]:
    context = row.get("reply_context")
    further = context if isinstance(context, dict) else {}
    return {*_texts(row.get("task_id"), further.get("task_id"), further.get("thread_task_id"))}


def _events_of(places: Places, tasks: set[str]) -> Iterator[str]:
    """Yield the events that ended tasks came from."""
    for task in tasks:
        record = read_json_or(f"{places.folder('tasks', 'completed')}/{task}.json", {})
        yield from _texts(record.get("event_id"))


def _texts(*values: object) -> Iterator[str]:
    """Yield what can be a part of a path."""
    yield from (value for value in values if isinstance(value, str) and value and "/" not in value)
