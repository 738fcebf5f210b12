"""Money and quotas, shared by all generals: what was spent today, and which engine accounts have to rest.

A quota that an engine reports is no crash: its account rests until the reset, then one task probes it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

from kingdom.disk.atomic import Disk
from kingdom.disk.json_file import JsonFile
from kingdom.disk.lock import Lock
from kingdom.home.places import Places
from kingdom.log import Log
from kingdom.times import moment, stamp

RESTS, SPENT = "rests ", "spent "
"""A page for every account that rests, and one for what was spent on a day."""


@dataclass(frozen=True, slots=True)
class Wait:
    """Not now: until when, and why."""

    until: float
    why: str


class Purse:
    def __init__(self, places: Places, disk: Disk, log: Log, rules: Mapping[str, Any]) -> None:
        self._path = places.budgets
        self._disk = disk
        self._log = log
        self.rules = rules

    def may_start(self, general: str, account: str, task: str, now: float) -> Wait | None:
        """Whether a soldier of this account may start. After a rest the first to ask is the one probe."""
        with self._open() as book:
            wait = self._over_budget(book, general, now)
            return wait or self._resting(book, account, task, now)

    def spent(self, general: str, account: str, task: str, metrics: Mapping[str, Any], now: float) -> None:
        """After an engine's turn that met no limit: note its cost; a probe's wakes the account for all."""
        with self._open() as book:
            if book.get(RESTS + account, {}).get("probe") == task:
                book.remove(RESTS + account)
            usd, tokens = float(metrics.get("cost_usd") or 0), int(metrics.get("tokens_used") or 0)
            if usd or tokens:
                today = book.get(_day(now), {})
                own = today.get(general, {"usd": 0.0, "tokens": 0})
                more = {"usd": round(own["usd"] + usd, 6), "tokens": own["tokens"] + tokens}
                book.set(_day(now), {**today, general: more})
                for day in [page for page in book if page.startswith(SPENT) and page < _day(now - 86400)]:
                    book.remove(day)

    def limited(self, account: str, quota: Mapping[str, Any], now: float) -> Wait:
        """The engine met a limit: its account rests until the reset it named, within our own bounds."""
        rest = self.rules["default_rest_seconds"]
        with suppress(KeyError, ValueError, OverflowError):
            rest = moment(str(quota["resets_at"])) - now
        until = now + min(max(rest, self.rules["shortest_rest_seconds"]), self.rules["longest_rest_seconds"])
        with self._open() as book:
            book.set(RESTS + account, {"until": stamp(until), "probe": None})
        return Wait(until, f"the account {account} has met its limit and rests until {stamp(until)}")

    def let_go(self, task: str, now: float) -> None:
        """This task probes no longer, however it ended: the next to ask is the probe."""
        with self._open() as book:
            for page in [each for each in book if each.startswith(RESTS) and book.get(each)["probe"] == task]:
                book.set(page, {**book.get(page), "probe": None, "until": stamp(now)})

    def _resting(self, book: JsonFile, account: str, task: str, now: float) -> Wait | None:
        rest = book.get(RESTS + account)
        if rest is None or rest["probe"] == task:
            return None
        until, probe = moment(rest["until"]), rest["probe"]
        if now >= until:
            # A probe whose general is stopped or gone must not hold the others for ever: its time ends too.
            until = now + self.rules["default_rest_seconds"]
            book.set(RESTS + account, {"until": stamp(until), "probe": task})
            return None
        if probe is None:
            return Wait(until, f"the account {account} rests until {rest['until']}")
        later = min(until, now + self.rules["shortest_rest_seconds"])
        return Wait(later, f"{probe} tries whether the account {account} works again")

    def _over_budget(self, book: JsonFile, general: str, now: float) -> Wait | None:
        today: Mapping[str, Mapping[str, float]] = book.get(_day(now), {})
        own = today.get(general, {}).get("usd", 0.0)
        everybody = sum(each["usd"] for each in today.values())
        for name, spent in (("general_day_usd", own), ("day_usd", everybody)):
            budget = self.rules[name]
            if budget is not None and spent >= budget:
                return Wait(_tomorrow(now), f"budgets.{name} is {budget:g} and {spent:g} has been spent today")
        return None

    @contextmanager
    def _open(self) -> Iterator[JsonFile]:
        """Read, change, write back, under a lock that all generals share."""
        lock = Lock(self._path.with_suffix(".lock"), "purse")
        lock.acquire(5.0)
        try:
            book = JsonFile(self._path, self._disk, self._log.error, _is_sound)
            yield book
            book.save()
        finally:
            lock.release()


def _is_sound(name: str, page: Any) -> bool:
    if not isinstance(page, dict):
        return False
    if name.startswith(SPENT):
        return all(isinstance(row, dict) and _is_amount(row.get("usd"), row.get("tokens")) for row in page.values())
    try:
        return name.startswith(RESTS) and moment(page["until"]) >= 0 and isinstance(page["probe"], str | None)
    except (KeyError, TypeError, ValueError, OverflowError):
        return False


def _is_amount(*each: Any) -> bool:
    return all(
        isinstance(number, int | float) and not isinstance(number, bool) and 0 <= number < 1e15 for number in each
    )


def _day(now: float) -> str:
    return SPENT + stamp(now)[:10]


def _tomorrow(now: float) -> float:
    today = datetime.fromtimestamp(now, UTC).replace(hour=0, minute=0, second=0, microsecond=0)
    return (today + timedelta(days=1)).timestamp()
