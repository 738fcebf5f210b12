"""Money and quotas, shared by all generals: what was spent this month, and which engine accounts have to rest.

A quota that an engine reports is no crash: its account rests until the reset, then one task probes it.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

from kingdom.base.disk.atomic import Disk
from kingdom.base.disk.json_file import JsonFile
from kingdom.base.disk.lock import held
from kingdom.base.home.places import Places
from kingdom.base.log import Log
from kingdom.base.times import moment, stamp

ACCOUNT, DAY = "rests ", "spent "
"""The file has a key for each account that rests, and one for what was spent on each day."""
BEHIND_SECONDS = 5.0
"""How much longer than the others a task waits that has met its account's limit."""
MOST_MET = 64
"""So many tasks that have met an account's limit are remembered."""
DAYS_KEPT = 40
"""Days of spending that are kept: a month's budget needs all of its days."""
MOST_TASKS = 1000
"""Tasks of a general and a day whose cost is kept by task, today's and yesterday's alone."""
MOST_RUNS = 200
"""A general's last runs that are remembered: after a kill the cost of one may be reported twice."""
Days = Mapping[str, Mapping[str, Mapping[str, Any]]]
"""What was spent: by day, as 2026-02-07, and by general."""


@dataclass(frozen=True, slots=True)
class BudgetRule:
    """What a budget bounds."""

    #: One general's spending, or everybody's.
    of_one_general: bool
    #: A month's spending, or a day's.
    of_a_month: bool


RULES: Mapping[str, BudgetRule] = {
    "general_day_usd": BudgetRule(of_one_general=True, of_a_month=False),
    "day_usd": BudgetRule(of_one_general=False, of_a_month=False),
    "general_month_usd": BudgetRule(of_one_general=True, of_a_month=True),
    "month_usd": BudgetRule(of_one_general=False, of_a_month=True),
}
"""The budgets, by their key in general.yaml."""


@dataclass(frozen=True, slots=True)
class Share:
    """How much of a budget is used."""

    #: A key of RULES.
    name: str
    #: Whose spending; empty for everybody's.
    general: str
    #: The day, as 2026-02-07, or the month.
    period: str
    spent: float
    budget: float


def shares(days: Days, rules: Mapping[str, Any], now: float) -> Iterator[Share]:
    """Yield how much of each budget is used, for each general that has spent anything in its time."""
    for name, rule in RULES.items():
        if (budget := rules[name]) is None:
            continue
        period = stamp(now)[: 7 if rule.of_a_month else 10]
        spenders = {general for day, row in days.items() if day.startswith(period) for general in row}
        for general in sorted(spenders) if rule.of_one_general else [""]:
            yield Share(name, general, period, spent_in(days, period, general), float(budget))


def spent_in(days: Days, period: str, general: str = "") -> float:
    """Return the dollars that a general, or everybody, has spent on the days that begin with this period."""
    rows = (row for day, row in days.items() if day.startswith(period))
    return sum(float(own["usd"]) for row in rows for name, own in row.items() if not general or name == general)


def days_of(entries: Mapping[str, Any]) -> dict[str, Any]:
    """Return the days among the entries of the file."""
    return {key.removeprefix(DAY): row for key, row in entries.items() if key.startswith(DAY)}


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

    def wait_for(self, general: str, account: str, task: str, now: float, *, for_person: bool = False) -> Wait | None:
        """Return what a soldier of this account must wait for; None when it may start.

        What a person waits for may use the reserve of the budgets too.

        After a rest the first task that asks becomes the probe, and the others wait for it. One that has met the limit
        asks after the others: a task that meets every limit would else get every probe.
        """
        if not self._path.exists():
            return None
        with self._open() as file:
            wait = self._over_budget(file, general, now, for_person)
            return wait or self._resting(file, account, task, now)

    def left_usd(self, general: str, now: float, *, for_person: bool) -> float | None:
        """Return what the next run may cost by all budgets; None when there is no bound."""
        if all(self.rules[name] is None for name in RULES):
            return None
        with self._open() as file:
            lefts = [self._bound(name, for_person) - spent for name, spent in self._spent(file, general, now)]
        return max(0.0, round(min(lefts), 6))

    def record_cost(
        self, general: str, account: str, task: str, metrics: Mapping[str, Any], now: float, *, run: str = ""
    ) -> None:
        """Add the cost of a run that met no limit. A probe's run ends the rest of its account.

        A run that is named is counted once, however often its general reports it.
        """
        usd, tokens = float(metrics.get("cost_usd") or 0), int(metrics.get("tokens_used") or 0)
        if not (usd or tokens or self._path.exists()):
            return
        with self._open() as file:
            if file.get(ACCOUNT + account, {}).get("probe") == task:
                file.remove(ACCOUNT + account)
            if (usd or tokens) and not _is_known(file, general, run, now):
                today = file.get(_day(now), {})
                own = today.get(general, {})
                more = {
                    **_sum(own, usd, tokens),
                    "accounts": _added(own.get("accounts"), account, usd, tokens),
                    "tasks": _added(own.get("tasks"), task, usd, tokens, MOST_TASKS),
                    "last": [*own.get("last", ()), *([run] if run else [])][-MOST_RUNS:],
                }
                file.set(_day(now), {**today, general: more})
                _forget_old(file, now)

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
        return Wait(later, f"{probe} tests whether the account {account} works again")

    def _over_budget(self, file: JsonFile, general: str, now: float, for_person: bool) -> Wait | None:
        for name, spent in self._spent(file, general, now):
            if spent < self._bound(name, for_person):
                continue
            of_a_month = RULES[name].of_a_month
            said = f"budgets.{name} is {self.rules[name]:g} and {spent:g} has been spent "
            said += "this month" if of_a_month else "today"
            if spent < self.rules[name]:
                said += f"; the last {self.rules['reserve_percent']:g} % are for people's requests"
            return Wait(_next_month(now) if of_a_month else _tomorrow(now), said)
        return None

    def _spent(self, file: JsonFile, general: str, now: float) -> Iterator[tuple[str, float]]:
        """Yield what counts against each budget of this general."""
        days = days_of({key: file.get(key) for key in file})
        for name, rule in RULES.items():
            if self.rules[name] is not None:
                period = stamp(now)[: 7 if rule.of_a_month else 10]
                yield name, spent_in(days, period, general if rule.of_one_general else "")

    def _bound(self, name: str, for_person: bool) -> float:
        kept = 0.0 if for_person else self.rules["reserve_percent"] / 100
        return float(self.rules[name] * (1 - kept))

    @contextmanager
    def _open(self) -> Iterator[JsonFile]:
        """Read, change and write back, under a lock that all generals share."""
        with held(self._path.with_suffix(".lock"), "budgets", 5.0):
            file = JsonFile(self._path, self._disk, self._log.error, _is_sound)
            yield file
            file.save()


def _is_known(file: JsonFile, general: str, run: str, now: float) -> bool:
    days = (file.get(_day(now - ago), {}) for ago in (0, 86400))
    return bool(run) and any(run in day.get(general, {}).get("last", ()) for day in days)


def _sum(row: Mapping[str, Any], usd: float, tokens: int) -> dict[str, Any]:
    return {"usd": round(row.get("usd", 0.0) + usd, 6), "tokens": row.get("tokens", 0) + tokens}


def _added(rows: Any, name: str, usd: float, tokens: int, most: int = MOST_RUNS) -> dict[str, Any]:
    """Return the rows with this cost added; of more than `most` the dearest."""
    known = rows if isinstance(rows, dict) else {}
    more = {**known, name: _sum(known.get(name, {}), usd, tokens)}
    if len(more) <= most:
        return more
    return dict(sorted(more.items(), key=lambda pair: (-pair[1]["usd"], -pair[1]["tokens"]))[:most])


def _forget_old(file: JsonFile, now: float) -> None:
    """Forget the days that no budget needs, and single tasks and runs of all but the last two."""
    for key in [key for key in file if key.startswith(DAY)]:
        if key < _day(now - DAYS_KEPT * 86400):
            file.remove(key)
        elif key < _day(now - 86400):
            rows: Mapping[str, Mapping[str, Any]] = file.get(key)
            left = ("usd", "tokens", "accounts")
            file.set(key, {name: {part: row[part] for part in left if part in row} for name, row in rows.items()})


def _rests(account: str, until: str) -> str:
    return f"the account {account} has reached its limit and pauses until {until}"


def _is_sound(key: str, value: Any) -> bool:
    if not isinstance(value, dict):
        return False
    if key.startswith(DAY):
        return all(_is_row(row) for row in value.values())
    try:
        is_rest = key.startswith(ACCOUNT) and moment(value["until"]) >= 0 and isinstance(value["probe"], str | None)
        return is_rest and isinstance(value.get("met", []), list)
    except (KeyError, TypeError, ValueError, OverflowError):
        return False


def _is_row(row: Any) -> bool:
    return (
        isinstance(row, dict)
        and _are_amounts(row.get("usd"), row.get("tokens"))
        and isinstance(row.get("last", []), list)
        and all(_are_rows(row.get(part, {})) for part in ("accounts", "tasks"))
    )


def _are_rows(rows: Any) -> bool:
    return isinstance(rows, dict) and all(
        isinstance(row, dict) and _are_amounts(row.get("usd"), row.get("tokens")) for row in rows.values()
    )


def _are_amounts(*values: Any) -> bool:
    return all(isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value < 1e15 for value in values)


def _day(now: float) -> str:
    return DAY + stamp(now)[:10]


def _tomorrow(now: float) -> float:
    today = datetime.fromtimestamp(now, UTC).replace(hour=0, minute=0, second=0, microsecond=0)
    return (today + timedelta(days=1)).timestamp()


def _next_month(now: float) -> float:
    first = datetime.fromtimestamp(now, UTC).replace(day=1, hour=0, minute=0, second=0, microsecond=0)
    return (first + timedelta(days=32)).replace(day=1).timestamp()
