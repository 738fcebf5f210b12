"""The king's memory of the clock: which runs were made, which one is half-made, which come next."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from datetime import tzinfo
from typing import Any

from kingdom.disk.codec import to_json
from kingdom.disk.json_file import JsonFile
from kingdom.home.config import thawed
from kingdom.home.manifests import Manifest
from kingdom.king.replay_index import DoneIndex
from kingdom.records.messages import Task
from kingdom.rules import schedules
from kingdom.rules.gate import Gate
from kingdom.rules.schedules import Entry
from kingdom.runtime.role import Services
from kingdom.times import moment, stamp

PRIORITY = "low"
Page = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Run:
    """One due minute of one schedule. With a task id it was begun by an earlier life."""

    entry: Entry
    due: float
    task_id: str | None = None
    letter_id: str = ""
    repeated: bool = False


class Diary:
    """`schedule-sent.json`: by schedule, up to when it is handled and the run that is being made."""

    def __init__(self, services: Services, done: DoneIndex) -> None:
        self._done = done
        self.take_over(services)
        self._book = JsonFile(
            services.places.own("king") / "schedule-sent.json", services.disk, services.log.error, _is_sound
        )
        self._plan_path = services.places.own("king") / "schedules.json"
        self._entries: list[Entry] = []
        self._planned: object = None
        self._held: str | None = None

    def take_over(self, services: Services) -> None:
        self._services = services

    def check(self, generals: Iterable[Manifest]) -> list[str]:
        """Take the generals' schedules over; what is wrong with the ones that cannot be kept."""
        all_entries = schedules.entries(generals)
        bad = {entry.key: why for entry in all_entries if (why := schedules.misfit(entry))}
        self._entries = [entry for entry in all_entries if entry.key not in bad]
        return [f"{key.partition(':')[0]}: {why}" for key, why in bad.items()]

    def next_due(self, zone: tzinfo, gate: Gate) -> Run | None:
        """A run to make now: what was begun first, then what waits, if the gate admits it."""
        now = self._services.clock()
        self._note_due(zone, now)
        self._held = held = gate.holds_because(PRIORITY)
        self._plan(zone, now, held)
        begun = next((run for entry in self._entries if (run := self._begun(entry))), None)
        if begun or held:
            return begun
        for entry in self._entries:
            for due in map(moment, self._page(entry).get("waiting", ())):
                if self._done.task_of(entry.run_key(due)) is None:
                    return Run(entry, due)
                self._strike(entry, due)
        return None

    def holds_what_may_go(self, gate: Callable[[], Gate]) -> bool:
        """A run that is due waits for what is no longer so, or not for that reason."""
        held = any(self._page(entry).get("waiting") for entry in self._entries)
        return held and self._held != gate().holds_because(PRIORITY)

    def _note_due(self, zone: tzinfo, now: float) -> None:
        """Minutes that came due join what waits, so that the gate delays them and loses none."""
        for entry in self._entries:
            page = self._page(entry) or {"handled": stamp(now)}
            # A clock that was ahead and is set right again must not silence a schedule; `done` knows what was made.
            handled = min(moment(page["handled"]), now)
            new = [stamp(due) for due in schedules.due(entry, handled, now, zone)]
            waiting = [*page.get("waiting", ()), *new]
            kept = waiting if entry.schedule.catch_up == "all" else waiting[-1:]
            passed = schedules.last_due(entry, handled, now, zone)
            since = page.get("since") or next(iter(waiting), None)
            self._book.set(entry.key, {**page, "waiting": kept, "since": since, "handled": stamp(passed or handled)})
        self._book.save()

    def _strike(self, entry: Entry, due: float) -> None:
        """It has been made, and waits no longer."""
        page = self._page(entry)
        waiting = [each for each in page.get("waiting", ()) if moment(each) != due]
        kept = {key: each for key, each in page.items() if key not in ("due", "task_id", "letter_id")}
        new = {"waiting": waiting, "since": next(iter(waiting), None), "last": stamp(due)}
        self._book.set(entry.key, {**kept, **new})
        self._book.save()

    def intend(self, run: Run, task_id: str, letter_id: str) -> Run:
        """Note the ids before anything is made under them."""
        noted = {"due": stamp(run.due), "task_id": task_id, "letter_id": letter_id}
        self._book.set(run.entry.key, {**self._page(run.entry), **noted})
        self._book.save()
        return replace(run, task_id=task_id, letter_id=letter_id)

    def task(self, run: Run, now: str) -> Task:
        plan = run.entry.schedule
        assert run.task_id is not None
        return Task(
            id=run.task_id,
            event_id=f"schedule-{plan.name}",
            target_general=run.entry.general,
            type=plan.task_type,
            repo=plan.repo or run.entry.default_repo,
            payload=thawed(plan.payload),
            priority=PRIORITY,
            created_at=now,
            status="pending",
            attempt=0,
            scheduled_for=stamp(run.due),
        )

    def done(self, run: Run) -> None:
        assert run.task_id is not None
        self._done.note([(run.entry.run_key(run.due), run.task_id)])
        self._strike(run.entry, run.due)

    def sleep(self, most: float) -> float:
        """Seconds until the next run is due, at most the given."""
        now = self._services.clock()
        soonest = min((moment(each["next"]) for each in self._snapshot()), default=now + most)
        return max(0.05, min(most, soonest - now))

    def _begun(self, entry: Entry) -> Run | None:
        page = self._page(entry)
        if "task_id" not in page:
            return None
        return Run(entry, moment(page["due"]), page["task_id"], page["letter_id"], repeated=True)

    def _plan(self, zone: tzinfo, now: float, held: str | None) -> None:
        """The snapshot that others read: when each schedule runs next, ran last, and what keeps a run that is due.

        Written when it changes.
        """
        plan = [
            {
                "schedule": entry.key,
                "general": entry.general,
                "name": entry.schedule.name,
                "cron": entry.schedule.cron,
                "next": stamp(schedules.next_run(entry, now, zone)),
                "last": page.get("last"),
                "held_since": page.get("since") if held else None,
                "held_because": held if page.get("since") else None,
            }
            for entry in self._entries
            for page in [self._page(entry)]
        ]
        if plan != self._planned:
            self._planned = plan
            self._services.unsynced.rewrite(self._plan_path, to_json({"schedules": plan}))

    def _snapshot(self) -> list[dict[str, Any]]:
        return self._planned if isinstance(self._planned, list) else []

    def _page(self, entry: Entry) -> Page:
        page: Page = self._book.get(entry.key, {})
        return page


def _is_sound(_schedule: str, page: Any) -> bool:
    """A page that somebody has damaged starts anew."""
    try:
        moments = [page["handled"], *page.get("waiting", ()), *([page["due"]] if "task_id" in page else [])]
        moments += [page[key] for key in ("since", "last") if page.get(key) is not None]
        return all(moment(each) > 0 for each in moments) and ("task_id" in page) == ("letter_id" in page)
    except (AttributeError, KeyError, TypeError, ValueError):
        return False
