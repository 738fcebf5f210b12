"""The daily report and the weekly one: what needs a person first, then what was done and what it cost.

`reports.json` says which day's report went out last, and what was counted by then, so that the next one tells of all
that came after it. A report's id is noted before its message is created: a kill in between neither loses nor doubles
it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from datetime import datetime, timedelta
from typing import Any

from kingdom.base.disk.json_file import JsonFile
from kingdom.base.home import config
from kingdom.base.records import kept
from kingdom.base.records.messages import Message
from kingdom.base.runtime.role import Services
from kingdom.base.times import stamp
from kingdom.base.words import DAY, count, duration, one_line
from kingdom.court.chamberlain.alerts import MESSAGE_STATES
from kingdom.court.picture import Picture

FRIDAY = 4
MOST_LINES = 5
SOON_DAYS = 7
"""Reports name work that will be deleted within this many days."""
Days = Mapping[str, Mapping[str, Any]]
"""What was counted, by local day: `types`, and `generals`, each with its types."""
DONE = {"task.completed": "done", "task.failed": "failed", "task.needs_human": "asked"}


class Reports:
    def __init__(self, services: Services) -> None:
        self._services = services
        self._zone = config.zone(services.places, services.system)
        path = services.places.own("chamberlain") / "reports.json"
        self._file = JsonFile(path, services.disk, services.log.error, lambda _, value: isinstance(value, dict))

    def send(self, view: Picture, days: Days, spent: Callable[[str], float], next_id: Callable[[], str]) -> None:
        """Send the reports that are due. `spent` returns the dollars of the days since one, `next_id` a free id."""
        self._file.save()  # what could not be written while the disk was full
        day = self._due_day()
        friday = day - timedelta(days=(day.weekday() - FRIDAY) % 7)
        for kind, due in (("daily", day), ("weekly", friday)):
            last, name = self._file.get(kind), due.date().isoformat()
            if last is None:
                # What was before the first start is nobody's news.
                self._note(kind, name, days)
            elif last["day"] < name:
                self._send(kind, name, last, view, days, spent, next_id)

    def _send(
        self,
        kind: str,
        day: str,
        last: Mapping[str, Any],
        view: Picture,
        days: Days,
        spent: Callable[[str], float],
        next_id: Callable[[], str],
    ) -> None:
        letter = self._file.get("letter", {})
        if letter.get("of") != f"{kind} {day}":
            text = write(kind, view, counted_since(last, days), spent(str(last["day"])), self._kept())
            letter = {"of": f"{kind} {day}", "id": next_id(), "text": text}
            self._file.set("letter", letter)
            self._file.save()
        messages = self._services.queues.messages
        if not messages.has(letter["id"], *MESSAGE_STATES):
            messages.create([_message(letter["id"], letter["text"], stamp(self._services.clock()))])
        self._note(kind, day, days)

    def _kept(self) -> str:
        """Say how much work of ended tasks is kept, and how much of it goes soon; "" when there is none."""
        now, days = self._services.clock(), self._services.config["retention"]["workspaces_days"]
        kept_since = [one.since for one in kept.kept(self._services.places)]
        if not kept_since:
            return ""
        soon = sum(since + days * DAY < now + SOON_DAYS * DAY for since in kept_since)
        going = f", {soon} of them for less than {SOON_DAYS} more days" if soon else ""
        return f"Work of ended tasks is kept in {count(len(kept_since), 'workspace')}{going}: `kingdom tasks work`."

    def _note(self, kind: str, day: str, days: Days) -> None:
        today = datetime.fromtimestamp(self._services.clock(), self._zone).date().isoformat()
        counted = {name: dict(types) for name, types in days.get(today, {}).get("generals", {}).items()}
        self._file.set(kind, {"day": day, "until": today, "counted": counted})
        self._file.save()

    def _due_day(self) -> datetime:
        """Return the latest day whose report is due."""
        hour = timedelta(hours=float(self._services.config["daily_report"]["hour"]))
        return datetime.fromtimestamp(self._services.clock(), self._zone) - hour


def counted_since(last: Mapping[str, Any], days: Days) -> dict[str, Counter[str]]:
    """Return by general what was counted since the last report."""
    found: dict[str, Counter[str]] = {}
    for day, row in days.items():
        if day >= last["until"]:
            for general, types in row["generals"].items():
                found.setdefault(general, Counter()).update(types)
    for general, types in last["counted"].items():
        found.setdefault(general, Counter()).subtract(types)
    return found


def write(kind: str, view: Picture, counted: Mapping[str, Counter[str]], usd: float, kept: str) -> str:
    """Return the text of a report."""
    wants = list(_wants(view))
    parts = [f"[{kind} report] " + ("Nothing needs you." if not wants else "What needs you:")]
    parts += [f"- {line}" for line in wants]
    total = sum(counted.values(), Counter[str]())
    parts.append(f"Since the last one: {_outcomes(total)}." + (f" Spent: {usd:.2f} USD." if usd else ""))
    parts += [f"- {general}: {_outcomes(types)}" for general, types in sorted(counted.items()) if _ended(types)]
    waits = sum(view.queues[queue]["pending"] for queue in ("events", "tasks"))
    if waits:
        parts.append(f"{count(waits, 'event or task', 'events and tasks')} wait.")
    if kept:
        parts.append(kept)
    if view.next_run:
        parts.append(f"Next: {view.next_run.get('schedule')} at {view.next_run.get('next')}.")
    return "\n".join(parts)


def _wants(view: Picture) -> Iterator[str]:
    for asks in view.asking:
        waits = duration(float(asks["seconds"]))
        yield f"{asks['id']} has asked for {waits}: {one_line(asks['question'], 200)} (`kingdom why {asks['id']}`)"
    if (more := len(view.questions) - len(view.asking)) > 0:
        yield f"{count(more, 'more question')}: `kingdom tasks --asking`"
    for role in view.roles:
        if not role.beats:
            yield f"{role.name} does not run ({role.state}): `kingdom logs {role.name}`"
    day_ago = view.taken_at - 86400
    for failure in [row for row in view.failures if row["at"] >= day_ago][:MOST_LINES]:
        yield f"{one_line(failure['what'])} failed: {one_line(failure['why'], 150)}"
    if view.dead:
        yield f"{count(view.dead, 'file')} in dead/: `kingdom queue ls` shows where"


def _ended(types: Counter[str]) -> bool:
    return any(types[type] > 0 for type in DONE)


def _outcomes(types: Counter[str]) -> str:
    said = [f"{types[type]} {word}" for type, word in DONE.items() if types[type] > 0]
    return "tasks " + ", ".join(said) if said else "no task ended"


def _message(id: str, text: str, written_at: str) -> Message:
    return Message(
        id=id,
        type="report",
        content=text,
        created_at=written_at,
        dedup_key=id,
        code=None,
    )
