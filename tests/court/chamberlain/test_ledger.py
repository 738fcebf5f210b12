"""The ledger: every dollar that the generals counted, once, for longer than they remember it."""

from __future__ import annotations

import shutil
from datetime import date, timedelta
from pathlib import Path
from typing import Any

import pytest

from kingdom.base.disk.codec import read_json
from kingdom.court.chamberlain.alerts import Alerts
from kingdom.court.chamberlain.ledger import Ledger
from kingdom.court.soldiers.budgets import Budgets
from tests.fixtures import Clock, services, write


class Books:
    """Generals that spend, and lives of the chamberlain that read it."""

    def __init__(self, home: Path, **budgets: Any) -> None:
        self.clock = Clock()
        self.services = services(home, "chamberlain", self.clock, general={"budgets": budgets})
        self.alerts = Alerts(self.services)
        general = services(home, "gen-pr", self.clock)
        self.spending = Budgets(general.places, general.disk, general.log, {**general.config["budgets"]})

    def spend(self, usd: float, general: str = "gen-pr", task: str = "task-1", account: str = "claude") -> None:
        cost = {"cost_usd": usd, "tokens_used": 100}
        self.spending.record_cost(general, account, task, cost, self.clock())

    def read(self) -> dict[str, Any]:
        Ledger(self.services).read(self.alerts)
        kept: dict[str, Any] = read_json(self.services.places.ledger)
        return kept

    def told(self) -> list[str]:
        path = self.services.places.own("chamberlain") / "alerts.json"
        return [alert["text"] for alert in read_json(path)["waiting"]] if path.exists() else []


def test_money_and_tokens_stand_by_day_general_account_and_task(home: Path) -> None:
    books = Books(home)
    books.spend(1.0)
    books.spend(0.5, task="task-2", account="codex")
    books.read()
    books.spend(2.0, "gen-jira")
    two = {"usd": 2.0, "tokens": 100}
    assert (
        books.read()
        == books.read()
        == {
            "2026-02-07": {
                "gen-pr": {
                    "usd": 1.5,
                    "tokens": 200,
                    "accounts": {"claude": {"usd": 1.0, "tokens": 100}, "codex": {"usd": 0.5, "tokens": 100}},
                    "tasks": {"task-1": {"usd": 1.0, "tokens": 100}, "task-2": {"usd": 0.5, "tokens": 100}},
                },
                "gen-jira": {**two, "accounts": {"claude": two}, "tasks": {"task-1": two}},
            }
        }
    )


def test_what_the_generals_forget_is_kept(home: Path) -> None:
    books = Books(home)
    for _ in range(60):
        books.spend(1.0)
        books.read()
        books.clock.pass_(86400)
    kept = books.read()
    assert len(kept) == 60
    named = [day for day, rows in kept.items() if "task-1" in rows["gen-pr"]["tasks"]]
    assert (len(named), named[-1]) == (31, "2026-04-07")


def day(number: int) -> str:
    return str(date(2026, 2, 7) - timedelta(days=number))


def test_a_ledger_of_more_than_400_days_forgets_the_oldest(home: Path) -> None:
    books = Books(home)
    row = {"gen-pr": {"usd": 1.0, "tokens": 1, "tasks": {}}}
    write(books.services.places.ledger, {day(number): row for number in range(1, 402)})
    books.spend(1.0)
    assert sorted(books.read()) == sorted(day(number) for number in range(400))


def test_of_a_general_and_a_day_the_fifty_dearest_tasks_are_kept(home: Path) -> None:
    books = Books(home)
    tasks = {f"task-{number}": {"usd": 1.0 + (number % 17), "tokens": number} for number in range(51)}
    row = {"usd": 99.0, "tokens": 99, "accounts": {}, "tasks": tasks}
    write(books.services.places.budgets, {"spent 2026-02-07": {"gen-pr": row}})
    kept = books.read()["2026-02-07"]["gen-pr"]["tasks"]
    assert set(tasks) - set(kept) == {"task-0"}


def test_what_a_full_disk_did_not_take_is_saved_at_the_next_look(home: Path) -> None:
    books = Books(home)
    ledger = Ledger(books.services)
    books.spend(1.0)
    scratch = books.services.places.scratch("chamberlain")
    shutil.rmtree(scratch)
    scratch.write_text("no folder: nothing can be written")
    with pytest.raises(NotADirectoryError):
        ledger.read(books.alerts)
    scratch.unlink()
    scratch.mkdir()
    books.services.places.budgets.unlink()
    ledger.read(books.alerts)
    assert read_json(books.services.places.ledger)["2026-02-07"]["gen-pr"]["usd"] == 1.0


def test_what_was_spent_after_a_day_is_without_that_day(home: Path) -> None:
    books = Books(home)
    for usd in (1.0, 2.0, 4.0):
        books.spend(usd)
        books.clock.pass_(86400)
    ledger = Ledger(books.services)
    ledger.read(books.alerts)
    assert [ledger.spent_since(f"2026-02-0{day}") for day in (6, 7, 8, 9)] == [7.0, 6.0, 4.0, 0]


def test_a_file_of_the_generals_that_began_anew_takes_nothing_back(home: Path) -> None:
    books = Books(home)
    books.spend(3.0)
    books.read()
    books.services.places.budgets.unlink()
    books.spend(1.0)
    assert books.read()["2026-02-07"]["gen-pr"]["usd"] == 3.0


@pytest.mark.parametrize(
    ("budgets", "says"),
    [
        ({"day_usd": 10}, "8.00 of 10 USD of budgets.day_usd are spent today"),
        ({"general_day_usd": 10}, "budgets.general_day_usd of gen-pr are spent today"),
        ({"month_usd": 10}, "budgets.month_usd are spent this month"),
        ({"general_month_usd": 10}, "budgets.general_month_usd of gen-pr are spent this month"),
    ],
)
def test_a_budget_of_which_80_percent_are_spent_is_told_once(home: Path, budgets: dict[str, Any], says: str) -> None:
    books = Books(home, **budgets)
    books.spend(7.95)
    books.read()
    assert books.told() == []
    books.spend(0.05)
    for _ in range(2):
        books.read()
    (told,) = books.told()
    assert says in told
