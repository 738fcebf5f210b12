"""`kingdom report --money`: what was spent, by day, general, engine account and task, and how the budgets stand."""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from kingdom.base.disk.codec import read_json
from kingdom.base.disk.json_file import LARGEST
from kingdom.base.errors import BadFile
from kingdom.base.home import config
from kingdom.base.home.places import Places
from kingdom.base.times import stamp
from kingdom.base.words import table
from kingdom.court.soldiers.budgets import Share, days_of, shares

MOST_TASKS = 10


@dataclass
class Sum:
    usd: float = 0.0
    tokens: int = 0

    def add(self, row: Mapping[str, Any]) -> None:
        self.usd += row["usd"]
        self.tokens += row["tokens"]


def _sums() -> defaultdict[str, Sum]:
    return defaultdict(Sum)


@dataclass
class Money:
    total: Sum = field(default_factory=Sum)
    days: defaultdict[str, Sum] = field(default_factory=_sums)
    generals: defaultdict[str, Sum] = field(default_factory=_sums)
    accounts: defaultdict[str, Sum] = field(default_factory=_sums)
    tasks: defaultdict[str, Sum] = field(default_factory=_sums)
    budgets: list[Share] = field(default_factory=list)


def gather(places: Places, since: float, general: str | None) -> Money:
    """Add up what was spent on the days (UTC) since a moment, of one general or of all."""
    days = {**_of(places.ledger), **days_of(_of(places.budgets))}
    money = Money()
    for day in sorted(day for day in days if day >= stamp(since)[:10]):
        for name, row in days[day].items():
            if general in (None, name):
                for sums, key in ((money.days, day), (money.generals, name)):
                    sums[key].add(row)
                money.total.add(row)
                for sums, rows in ((money.accounts, row.get("accounts", {})), (money.tasks, row.get("tasks", {}))):
                    for key, part in rows.items():
                        sums[key].add(part)
    rules, _ = config.for_looking(places, "general")
    found = shares(days, rules["budgets"], time.time())
    money.budgets = [share for share in found if general in (None, share.general) or not share.general]
    return money


def _of(path: Any) -> Mapping[str, Any]:
    try:
        known = read_json(path, LARGEST)
    except (FileNotFoundError, BadFile):
        return {}
    return known if isinstance(known, dict) else {}


def as_text(money: Money, period: str) -> str:
    if not money.days:
        spent = f"Nothing was spent {period}, as far as engines report it."
    else:
        spent = f"{_usd(money.total)} USD and {money.total.tokens:,} tokens were spent {period}."
    parts = [spent]
    named = ("day (UTC)", money.days), ("general", money.generals), ("engine's account", money.accounts)
    parts += [_table(head, list(sums.items())) for head, sums in named if sums]
    dearest = sorted(money.tasks.items(), key=lambda pair: (-pair[1].usd, -pair[1].tokens))[:MOST_TASKS]
    if dearest:
        parts.append(_table("dearest tasks", dearest))
    parts += [_budget(share) for share in money.budgets]
    return "\n\n".join(parts)


def to_json(money: Money) -> dict[str, Any]:
    def plain(sums: Mapping[str, Sum]) -> dict[str, Any]:
        return {name: vars(total) for name, total in sums.items()}

    return {
        **vars(money.total),
        **{name: plain(getattr(money, name)) for name in ("days", "generals", "accounts", "tasks")},
        "budgets": [
            {name: getattr(share, name) for name in ("name", "general", "period", "spent", "budget")}
            for share in money.budgets
        ],
    }


def _table(head: str, rows: list[tuple[str, Sum]]) -> str:
    return table(
        [(name, f"{_usd(total):>8}", f"{total.tokens:>12,}") for name, total in rows],
        (head, "     USD", "      tokens"),
    )


def _usd(total: Sum) -> str:
    return f"{total.usd:.2f}"


def _budget(share: Share) -> str:
    whose = f" of {share.general}" if share.general else ""
    percent = f" ({share.spent / share.budget:.0%})" if share.budget else ""
    return f"Budget {share.name}{whose}, {share.period}: {share.spent:.2f} of {share.budget:g} USD{percent}."
