"""Money and quotas, shared by all generals: what was spent today, and which engine accounts have to rest.

A quota that an engine reports is no crash: its account rests until the reset, then one task probes it.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

from kingdom.disk.atomic import Disk
from kingdom.disk.json_file import JsonFile
from kingdom.disk.lock import held
from kingdom.home.places import Places
from kingdom.log import Log
from kingdom.times import moment, stamp

ACCOUNT, DAY = "rests ", "spent "
"""The file has a key for each account that rests, and one for what was spent on each day."""
BEHIND_SECONDS = 5.0
"""How much longer than the others a task waits that has met its account's limit."""
MOST_MET = 64
"""So many tasks that have met an account's limit are remembered."""


@dataclass(frozen=True, slots=True)
class Wait:
    """A soldier may not start yet."""

    #: Seconds since the epoch.
    until: float
    #: The reason, in words.
    why: str


class Budgets:
    def __init__(self, places: Places, disk: Disk, log: Log, rules: Mapping[str, Any]) -> None:
        self._path = places.budgets
        self._disk = disk
        self._log = log
        self.rules = rules

    def wait_for(self, general: str, account: str, task: str, now: float) -> Wait | None:
        """Return what a soldier of this account must wait for; None when it may start.

        After a rest the first task that asks becomes the probe, and the others wait for it. One that has met the limit
        asks after the others: a task that meets every limit would else get every probe.
        """
        if not self._path.exists():
            return None
        with self._open() as file:
            wait = self._over_budget(file, general, now)
            return wait or self._resting(file, account, task, now)

    def record_cost(self, general: str, account: str, task: str, metrics: Mapping[str, Any], now: float) -> None:
        """Add the cost of a run that met no limit. A probe's run ends the rest of its account."""
        usd, tokens = float(metrics.get("cost_usd") or 0), int(metrics.get("tokens_used") or 0)
        if not (usd or tokens or self._path.exists()):
            return
        with self._open() as file:
            if file.get(ACCOUNT + account, {}).get("probe") == task:
                file.remove(ACCOUNT + account)
            if usd or tokens:
                today = file.get(_day(now), {})
                own = today.get(general, {"usd": 0.0, "tokens": 0})
                more = {"usd": round(own["usd"] + usd, 6), "tokens": own["tokens"] + tokens}
                file.set(_day(now), {**today, general: more})
                for day in [key for key in file if key.startswith(DAY) and key < _day(now - 86400)]:
                    file.remove(day)

    def rest_account(self, account: str, task: str, quota: Mapping[str, Any], now: float) -> Wait:
        """Let an account rest until the reset that its engine named to this task, within our own bounds."""
        rest = self.rules["default_rest_seconds"]
        with suppress(KeyError, ValueError, OverflowError):
            rest = moment(str(quota["resets_at"])) - now
        until = now + min(max(rest, self.rules["shortest_rest_seconds"]), self.rules["longest_rest_seconds"])
        with self._open() as file:
            met = [known for known in file.get(ACCOUNT + account, {}).get("met", ()) if known != task]
            file.set(ACCOUNT + account, {"until": stamp(until), "probe": None, "met": [*met, task][-MOST_MET:]})
        return Wait(moment(stamp(until)) + BEHIND_SECONDS, _rests(account, stamp(until)))

    def state(self) -> object:
        """Return a value that changes when budgets, accounts or the rules for them do."""
        try:
            about = os.stat(self._path)
        except FileNotFoundError:
            return dict(self.rules)
        return dict(self.rules), about.st_ino, about.st_mtime_ns

    def release_probe(self, task: str, now: float) -> None:
        """Note that this task probes no longer, however it ended: the next that asks becomes the probe."""
        if not self._path.exists():
            return
        with self._open() as file:
            for key in [key for key in file if key.startswith(ACCOUNT) and file.get(key)["probe"] == task]:
                file.set(key, {**file.get(key), "probe": None, "until": stamp(now)})

    def _resting(self, file: JsonFile, account: str, task: str, now: float) -> Wait | None:
        rest = file.get(ACCOUNT + account)
        if rest is None or rest["probe"] == task:
            return None
        until, probe = moment(rest["until"]), rest["probe"]
        turn = until + BEHIND_SECONDS if probe is None and task in rest.get("met", ()) else until
        if now >= turn:
            # A probe whose general is stopped or gone must not hold the others for ever: its time ends too.
            until = now + self.rules["default_rest_seconds"]
            file.set(ACCOUNT + account, {**rest, "until": stamp(until), "probe": task})
            return None
        if probe is None:
            return Wait(turn, _rests(account, rest["until"]))
        later = min(until, now + self.rules["shortest_rest_seconds"])
        return Wait(later, f"{probe} tries whether the account {account} works again")

    def _over_budget(self, file: JsonFile, general: str, now: float) -> Wait | None:
        today: Mapping[str, Mapping[str, float]] = file.get(_day(now), {})
        own = today.get(general, {}).get("usd", 0.0)
        everybody = sum(row["usd"] for row in today.values())
        for name, spent in (("general_day_usd", own), ("day_usd", everybody)):
            budget = self.rules[name]
            if budget is not None and spent >= budget:
                return Wait(_tomorrow(now), f"budgets.{name} is {budget:g} and {spent:g} has been spent today")
        return None

    @contextmanager
    def _open(self) -> Iterator[JsonFile]:
        """Read, change and write back, under a lock that all generals share."""
        with held(self._path.with_suffix(".lock"), "budgets", 5.0):
            file = JsonFile(self._path, self._disk, self._log.error, _is_sound)
            yield file
            file.save()


def _rests(account: str, until: str) -> str:
    return f"the account {account} has met its limit and rests until {until}"


def _is_sound(key: str, value: Any) -> bool:
    if not isinstance(value, dict):
        return False
    if key.startswith(DAY):
        return all(isinstance(row, dict) and _are_amounts(row.get("usd"), row.get("tokens")) for row in value.values())
    try:
        is_rest = key.startswith(ACCOUNT) and moment(value["until"]) >= 0 and isinstance(value["probe"], str | None)
        return is_rest and isinstance(value.get("met", []), list)
    except (KeyError, TypeError, ValueError, OverflowError):
        return False


def _are_amounts(*values: Any) -> bool:
    return all(isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value < 1e15 for value in values)


def _day(now: float) -> str:
    return DAY + stamp(now)[:10]


def _tomorrow(now: float) -> float:
    today = datetime.fromtimestamp(now, UTC).replace(hour=0, minute=0, second=0, microsecond=0)
    return (today + timedelta(days=1)).timestamp()
