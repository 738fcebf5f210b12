"""The dead letters: listed, counted, put back to work, set apart, cleared away."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from kingdom.mq import message_format, names
from kingdom.mq.errors import DlqNotFound
from kingdom.mq.failures import Say, resting
from kingdom.mq.message_format import Ids, Unfit
from kingdom.mq.queue_state import Line
from kingdom.mq.queues import Queues
from kingdom.mq.stores.base import Gone, Store
from kingdom.mq.timers import Timers


class DeadLetter(NamedTuple):
    message_key: str
    queue: str
    reason: str
    dlq_at: int
    attempt: int
    quarantined: bool
    message: str
    record: str


class DeadLetters:
    """Each `queue` may also be named by its dead-letter queue."""

    def __init__(
        self, store: Store, queues: Queues, timers: Timers, ids: Ids, clock: Callable[[], int], say: Say
    ) -> None:
        self._store = store
        self._queues = queues
        self._timers = timers
        self._ids = ids
        self._clock = clock
        self._say = say

    def listed(self, queue: str, limit: int = 100) -> list[DeadLetter]:
        letters: list[DeadLetter] = []
        for line, name in self._queues.dead_of(queue):
            if len(letters) >= limit:
                break
            try:
                record = self._store.read(line.name, "dlq", name)
            except Gone:
                continue
            except Unfit as spoiled:
                record = str(spoiled.args[1])
            marks = names.marks_of(name)
            said = str(message_format.failure_of(record).get("reasonMessage", ""))
            key, died_at, attempt = names.key_of(line.name, name), names.due_of(name), int(marks[""])
            letters.append(DeadLetter(key, line.name, marks["r"], died_at, attempt, "q" in marks, said, record))
        return letters

    def counts(self, queue: str, since_ms: int = 0) -> dict[str, int]:
        """How many per reason: all that lie there, or those of the last `since_ms`."""
        after = self._clock() - since_ms if since_ms else 0
        counts: dict[str, int] = {}
        for _, name in self._queues.dead_of(queue):
            if names.due_of(name) >= after:
                code = names.marks_of(name)["r"]
                counts[code] = counts.get(code, 0) + 1
        return counts

    def reprocess(self, key: str) -> str:
        """Back into its queue, with its attempts forgotten. Returns the key."""
        line, name = self._find(key)
        self._revive(line, name)
        return key

    def reprocess_all(self, queue: str, reason_code: str = "", older_than_ms: int = 0, limit: int = 0) -> list[str]:
        """All but the quarantined, or those that fit. Returns their keys."""
        until = self._clock() - older_than_ms
        revived: list[str] = []
        for line, name in list(self._queues.dead_of(queue)):
            marks = names.marks_of(name)
            fits = "q" not in marks and names.due_of(name) <= until and reason_code in ("", marks["r"])
            if fits and self._revive(line, name):
                revived.append(names.key_of(line.name, name))
                if limit and len(revived) >= limit:
                    break
        return revived

    def quarantine(self, key: str, on: bool = True) -> None:
        line, name = self._find(key)
        marks = names.marks_of(name)
        marks.pop("q", None)
        if on:
            marks["q"] = ""
        new = names.changed(name, names.due_of(name), names.join(marks))
        if new != name:
            try:
                self._store.move(line.name, "dlq", name, "dlq", new)
            except Gone:
                del line.dead[name[-36:]]
                raise DlqNotFound(key=key) from None
            line.dead[name[-36:]] = new

    def purge(self, queue: str, older_than_ms: int = 0, archive: bool = False, limit: int = 10_000) -> int:
        """Remove or archive them, but not the quarantined. Returns how many; come back until it is 0."""
        before = self._clock() - older_than_ms
        lines = {line.name: line for line, _ in self._queues.dead_of(queue)}
        return sum(self._clear(line, before, archive, limit) for line in lines.values())

    def retire(self, now: int) -> None:
        """To the archive with those that their queue has kept long enough."""
        for line in self._queues.lines.values():
            keep = line.policy.dlq_keep_ms
            if keep and line.dead:
                self._clear(line, now - keep, archive=True, limit=1 << 30)

    def _clear(self, line: Line, before: int, archive: bool, limit: int) -> int:
        now = self._clock()
        old = [name for name in line.dead.values() if names.due_of(name) <= before and ".q" not in name][:limit]
        for name in old:
            try:
                if archive:
                    self._store.move(line.name, "dlq", name, "archived", resting(name, now))
                else:
                    self._store.drop(line.name, "dlq", name)
            except Gone:
                pass
            del line.dead[name[-36:]]
        self._queues.touched = self._queues.touched or bool(old)
        return len(old)

    def _find(self, key: str) -> tuple[Line, str]:
        line = self._queues.lines.get(key[4:-37])
        name = line.dead.get(key[-36:]) if line is not None else None
        if line is None or name is None or not key.startswith("msg:"):
            raise DlqNotFound(key=key)
        return line, name

    def _revive(self, line: Line, name: str) -> bool:
        now = self._clock()
        marks = {letter: text for letter, text in names.marks_of(name).items() if letter in ("t", "h")}
        new = names.compose(int(name[:7]), now, self._ids.next(), names.join({"": "0", **marks}), name[-36:])
        try:
            try:
                body = message_format.original(self._store.read(line.name, "dlq", name))
            except Unfit as spoiled:
                self._say("mq.unfit", f"{names.key_of(line.name, name)} stays: {spoiled.args[0]}", queue=line.name)
                return False
            self._store.rewrite(line.name, "dlq", name, "ready", new, body)
        except Gone:
            del line.dead[name[-36:]]
            return False
        del line.dead[name[-36:]]
        self._queues.touched = True
        self._timers.wait(line, new, now, now)
        return True
