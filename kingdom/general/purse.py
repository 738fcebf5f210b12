"""Money and quotas, shared by all generals: what was spent today, and which engine accounts have to rest.

A quota that an engine reports is no crash: its account rests until the reset, then one task probes it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

from kingdom.atomic import Disk
from kingdom.codec import read_json, to_json
from kingdom.errors import BadFile
from kingdom.lock import Lock
from kingdom.places import Places
from kingdom.times import moment, stamp

Pages = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Wait:
    """Not now: until when, and why."""

    until: float
    why: str


class Purse:
    def __init__(self, places: Places, disk: Disk, rules: Mapping[str, Any]) -> None:
        self._path = places.purse
        self._disk = disk
        self.rules = rules

    def may_start(self, general: str, account: str, task: str, now: float) -> Wait | None:
        """Whether a soldier of this account may start. After a rest the first to ask is the one probe."""
        with self._open() as pages:
            wait = self._over_budget(pages, general, now)
            return wait or self._resting(pages, account, task, now)

    def spent(self, general: str, account: str, task: str, metrics: Mapping[str, Any], now: float) -> None:
        """After an engine's turn that met no limit: note its cost, and wake the account."""
        with self._open() as pages:
            if pages["breakers"].get(account, {}).get("probe") in (task, None):
                pages["breakers"].pop(account, None)
            usd, tokens = float(metrics.get("cost_usd") or 0), int(metrics.get("tokens_used") or 0)
            if usd or tokens:
                today = pages["spent"].setdefault(_day(now), {}).setdefault(general, {"usd": 0.0, "tokens": 0})
                today["usd"] = round(today["usd"] + usd, 6)
                today["tokens"] += tokens

    def limited(self, account: str, quota: Mapping[str, Any], now: float) -> Wait:
        """The engine met a limit: its account rests until the reset it named, within our own bounds."""
        rest = self.rules["default_rest_seconds"]
        with suppress(KeyError, ValueError):
            rest = moment(str(quota["resets_at"])) - now
        until = now + min(max(rest, self.rules["shortest_rest_seconds"]), self.rules["longest_rest_seconds"])
        with self._open() as pages:
            pages["breakers"][account] = {"until": stamp(until), "probe": None, "since": stamp(now)}
        return Wait(until, f"the account {account} has met its limit and rests until {stamp(until)}")

    def _resting(self, pages: Pages, account: str, task: str, now: float) -> Wait | None:
        breaker = pages["breakers"].get(account)
        if breaker is None:
            return None
        until = moment(breaker["until"])
        if now < until:
            return Wait(until, f"the account {account} rests until {breaker['until']}")
        if breaker["probe"] in (None, task):
            breaker["probe"] = task
            return None
        later = now + self.rules["shortest_rest_seconds"]
        return Wait(later, f"{breaker['probe']} tries whether the account {account} works again")

    def _over_budget(self, pages: Pages, general: str, now: float) -> Wait | None:
        today: Mapping[str, Mapping[str, float]] = pages["spent"].get(_day(now), {})
        own = today.get(general, {}).get("usd", 0.0)
        everybody = sum(each["usd"] for each in today.values())
        for name, spent in (("general_day_usd", own), ("day_usd", everybody)):
            budget = self.rules[name]
            if budget is not None and spent >= budget:
                return Wait(_tomorrow(now), f"budgets.{name} is {budget:g} and {spent:g} has been spent today")
        return None

    @contextmanager
    def _open(self) -> Iterator[Pages]:
        """Read, change, write back, under a lock that all generals share."""
        lock = Lock(self._path.with_suffix(".lock"), "purse")
        lock.acquire(5.0)
        try:
            pages = self._read()
            before = to_json(pages)
            yield pages
            if to_json(pages) != before:
                self._disk.rewrite(self._path, to_json(pages))
        finally:
            lock.release()

    def _read(self) -> Pages:
        try:
            pages = read_json(self._path)
        except (FileNotFoundError, BadFile):
            pages = {}
        return {name: pages[name] if isinstance(pages.get(name), dict) else {} for name in ("breakers", "spent")}


def _day(now: float) -> str:
    return stamp(now)[:10]


def _tomorrow(now: float) -> float:
    today = datetime.fromtimestamp(now, UTC).replace(hour=0, minute=0, second=0, microsecond=0)
    return (today + timedelta(days=1)).timestamp()
