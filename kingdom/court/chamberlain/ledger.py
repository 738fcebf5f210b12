"""The ledger: what was spent on each day, by general, engine account and task, for longer than the budgets need it.

The generals count together what their soldiers cost (`state/purse.json`), because a budget is asked before each start.
The chamberlain takes their days over as a whole, so that nothing can be added twice, and keeps them.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

from kingdom.base.disk.codec import read_json
from kingdom.base.disk.json_file import LARGEST, JsonFile
from kingdom.base.errors import BadFile
from kingdom.base.home import config
from kingdom.base.runtime.role import Services
from kingdom.base.times import stamp
from kingdom.court.chamberlain.alerts import Alerts
from kingdom.court.soldiers.budgets import Share, days_of, shares

DAYS_KEPT = 400
DAYS_OF_TASKS = 31
MOST_TASKS = 50
"""Of a general and a day, the dearest."""
ALERT_PERCENT = 80
CAUSE = "budget:"


class Ledger:
    """The file's entries: by day, and by general, `usd`, `tokens`, and both by account and by task."""

    def __init__(self, services: Services) -> None:
        self._services = services
        self._file = JsonFile(services.places.ledger, services.disk, services.log.error, lambda _, row: _is_day(row))
        self._seen: tuple[int, int] | None = None

    def read(self, alerts: Alerts) -> None:
        """Take over what the generals have counted, and tell of budgets that draw to their end."""
        self._file.save()  # what could not be written while the disk was full
        places = self._services.places
        try:
            about = os.stat(places.budgets)
        except FileNotFoundError:
            return
        if (seen := (about.st_ino, about.st_mtime_ns)) != self._seen:
            try:
                days = days_of(read_json(places.budgets, LARGEST))
            except (FileNotFoundError, BadFile):
                return  # its writers set it aside and say so
            for day, rows in days.items():
                if _is_day(rows):
                    self._take(day, rows)
            self._forget_old()
            self._file.save()
            self._seen = seen
        self._tell(alerts)

    def _take(self, day: str, rows: Mapping[str, Any]) -> None:
        known = self._file.get(day, {})
        new = {name: _without_runs(known.get(name), row) for name, row in rows.items()}
        self._file.set(day, {**known, **new})

    def _forget_old(self) -> None:
        days = sorted(self._file)
        for day in days[:-DAYS_KEPT]:
            self._file.remove(day)
        for day in days[-DAYS_KEPT:-DAYS_OF_TASKS]:
            rows = self._file.get(day)
            self._file.set(day, {name: {**row, "tasks": {}} for name, row in rows.items()})

    def today(self) -> dict[str, float]:
        """Return the dollars spent on this day, by general."""
        rows = self._file.get(stamp(self._services.clock())[:10], {})
        return {name: row["usd"] for name, row in rows.items()}

    def spent_since(self, day: str) -> float:
        """Return the dollars spent after a day."""
        return sum(float(row["usd"]) for known in self._file if known > day for row in self._file.get(known).values())

    def shares(self) -> list[Share]:
        """Return how the budgets stand."""
        rules, _ = config.for_looking(self._services.places, "general")
        days = {day: self._file.get(day) for day in self._file}
        return list(shares(days, rules["budgets"], self._services.clock()))

    def _tell(self, alerts: Alerts) -> None:
        found = {}
        for share in self.shares():
            if share.spent * 100 >= share.budget * ALERT_PERCENT:
                found[f"{CAUSE}{share.name}:{share.general}:{share.period}:{share.budget:g}"] = _said(share)
        for cause, text in found.items():
            alerts.tell(cause, text)


def _said(share: Share) -> str:
    whose = f" of {share.general}" if share.general else ""
    when = "today" if len(share.period) > len("2026-02") else "this month"
    return (
        f"{share.spent:.2f} of {share.budget:g} USD of budgets.{share.name}{whose} are spent {when}. Work waits when "
        f"it is used up; `kingdom report --money` shows for what. The budgets are in config/general.yaml."
    )


def _without_runs(known: Any, row: Mapping[str, Any]) -> dict[str, Any]:
    """Return a general's row as it is kept. The generals forget tasks early; and what they had to begin anew, because
    their file was damaged, is no reason to forget what was spent.
    """
    own = {name: part for name, part in row.items() if name != "last"}
    if not isinstance(known, dict):
        return {**own, "tasks": _dearest(own.get("tasks", {}))}
    if (known["usd"], known["tokens"]) > (own["usd"], own["tokens"]):
        return known
    return {**own, "tasks": _dearest({**known.get("tasks", {}), **own.get("tasks", {})})}


def _dearest(tasks: Mapping[str, Any]) -> dict[str, Any]:
    if len(tasks) <= MOST_TASKS:
        return dict(tasks)
    return dict(sorted(tasks.items(), key=lambda pair: (-pair[1]["usd"], -pair[1]["tokens"]))[:MOST_TASKS])


def _is_day(rows: Any) -> bool:
    return isinstance(rows, dict) and all(
        isinstance(row, dict) and all(isinstance(row.get(name), int | float) for name in ("usd", "tokens"))
        for row in rows.values()
    )
