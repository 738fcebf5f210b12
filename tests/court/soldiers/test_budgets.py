"""Money and quotas: who may start, who rests, who probes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from kingdom.base.disk.codec import read_json
from kingdom.base.times import moment, stamp
from kingdom.court.soldiers.budgets import BEHIND_SECONDS, Budgets, shares
from tests.fixtures import MORNING, Clock, services, write

RULES: dict[str, Any] = {
    "day_usd": None,
    "general_day_usd": None,
    "month_usd": None,
    "general_month_usd": None,
    "reserve_percent": 0,
    "shortest_rest_seconds": 60.0,
    "default_rest_seconds": 900.0,
    "longest_rest_seconds": 21600.0,
}


def budgets(home: Path, clock: Clock, **rules: Any) -> Budgets:
    ours = services(home, "gen-pr", clock)
    return Budgets(ours.places, ours.unsynced, ours.log, {**RULES, **rules})


@pytest.mark.parametrize(
    ("rule", "found"),
    [
        ("day_usd", [("", "2026-02-07", 3.0)]),
        ("general_day_usd", [("gen-jira", "2026-02-07", 2.0), ("gen-pr", "2026-02-07", 1.0)]),
        ("month_usd", [("", "2026-02", 7.0)]),
        ("general_month_usd", [("gen-jira", "2026-02", 2.0), ("gen-pr", "2026-02", 5.0)]),
    ],
)
def test_how_much_of_a_budget_is_used(rule: str, found: list[tuple[str, str, float]]) -> None:
    days = {
        "2026-01-31": {"gen-old": {"usd": 8.0, "tokens": 1}},
        "2026-02-06": {"gen-pr": {"usd": 4.0, "tokens": 1}},
        "2026-02-07": {"gen-pr": {"usd": 1.0, "tokens": 1}, "gen-jira": {"usd": 2.0, "tokens": 1}},
    }
    told = list(shares(days, {**RULES, rule: 10}, moment(MORNING)))
    assert [(share.general, share.period, share.spent) for share in told] == found
    assert {(share.name, share.budget) for share in told} == {(rule, 10.0)}


def test_who_has_met_no_limit_may_start(home: Path) -> None:
    clock = Clock()
    assert budgets(home, clock).wait_for("gen-pr", "claude", "task-1", clock()) is None


@pytest.mark.parametrize(
    ("named", "rests"),
    [(3600, 3600), (5, 60), (10**6, 21600), (-50, 60), (None, 900), ("soon", 900)],
    ids=["as named", "at least the shortest", "at most the longest", "in the past", "no reset named", "no time"],
)
def test_an_account_rests_until_its_reset_within_bounds(home: Path, named: Any, rests: int) -> None:
    clock = Clock()
    reset = stamp(clock() + named) if isinstance(named, int) else named
    wait = budgets(home, clock).rest_account("claude", "task-0", {"resets_at": reset} if reset else {}, clock())
    assert wait.until == clock() + rests + BEHIND_SECONDS


def test_an_account_that_rests_holds_all_generals_and_no_other_account(home: Path) -> None:
    clock = Clock()
    budgets(home, clock).rest_account("claude", "task-0", {"resets_at": stamp(clock() + 600)}, clock())
    another = budgets(home, clock)
    held = another.wait_for("gen-jira", "claude", "task-2", clock() + 1)
    assert held is not None
    assert held.until == moment(stamp(clock() + 600))
    assert another.wait_for("gen-jira", "command:gen-jira", "task-3", clock() + 1) is None


def test_after_the_rest_one_task_probes_and_the_others_wait(home: Path) -> None:
    clock = Clock()
    ours = budgets(home, clock)
    ours.rest_account("claude", "task-0", {"resets_at": stamp(clock() + 600)}, clock())
    later = clock() + 601
    assert ours.wait_for("gen-pr", "claude", "task-1", later) is None
    assert ours.wait_for("gen-pr", "claude", "task-1", later) is None
    waits = ours.wait_for("gen-pr", "claude", "task-2", later)
    assert waits is not None
    assert waits.why == "task-1 tests whether the account claude works again"


def test_a_task_that_meets_every_limit_leaves_the_probe_to_others(home: Path) -> None:
    clock = Clock()
    ours, waiting, done = budgets(home, clock), [f"task-{number}" for number in range(6)], []
    for _ in range(100):
        for task in list(waiting):
            if ours.wait_for("gen-pr", "claude", task, clock()) is not None:
                continue
            if task == "task-0":
                ours.rest_account("claude", task, {"resets_at": MORNING}, clock())
            else:
                ours.record_cost("gen-pr", "claude", task, {}, clock())
                waiting.remove(task)
                done.append(clock() - moment(MORNING))
        clock.pass_(10)
    assert waiting == ["task-0"]
    assert done[-1] <= 60, "one rest at most"


def test_all_who_met_the_limit_leave_the_probe_to_others(home: Path) -> None:
    clock = Clock()
    ours = budgets(home, clock)
    for task in ("task-1", "task-2", "task-1"):
        ours.rest_account("claude", task, {"resets_at": MORNING}, clock())
    for task in ("task-1", "task-2"):
        assert ours.wait_for("gen-pr", "claude", task, clock() + 61) is not None
    assert ours.wait_for("gen-pr", "claude", "task-3", clock() + 61) is None


def test_what_a_run_does_not_say_costs_nothing(home: Path) -> None:
    clock = Clock()
    ours = budgets(home, clock)
    ours.record_cost("gen-pr", "claude", "task-1", {"cost_usd": 1.5}, clock())
    ours.record_cost("gen-pr", "claude", "task-1", {"tokens_used": 70}, clock())
    (row,) = read_json(home / "state" / "purse.json")["spent 2026-02-07"].values()
    assert (row["usd"], row["tokens"]) == (1.5, 70)


def test_a_task_alone_on_its_account_probes_again_and_again(home: Path) -> None:
    clock = Clock()
    ours = budgets(home, clock)
    for _ in range(3):
        ours.rest_account("claude", "task-0", {"resets_at": MORNING}, clock())
        held = ours.wait_for("gen-pr", "claude", "task-0", clock() + 61)
        assert held is not None
        clock.now = held.until
        assert ours.wait_for("gen-pr", "claude", "task-0", clock()) is None


def test_a_probe_that_works_wakes_the_account_for_all(home: Path) -> None:
    clock = Clock()
    ours = budgets(home, clock)
    ours.rest_account("claude", "task-0", {}, clock())
    later = clock() + 901
    ours.wait_for("gen-pr", "claude", "task-1", later)
    ours.record_cost("gen-pr", "claude", "task-1", {}, later)
    assert ours.wait_for("gen-pr", "claude", "task-2", later) is None


def test_a_probe_that_came_to_nothing_lets_the_next_one_try(home: Path) -> None:
    clock = Clock()
    ours = budgets(home, clock)
    ours.rest_account("claude", "task-0", {}, clock())
    later = clock() + 901
    ours.wait_for("gen-pr", "claude", "task-1", later)
    ours.release_probe("task-9", later)
    assert ours.wait_for("gen-pr", "claude", "task-2", later) is not None
    ours.release_probe("task-1", later)
    assert ours.wait_for("gen-pr", "claude", "task-2", later) is None
    assert ours.wait_for("gen-pr", "claude", "task-3", later) is not None


def test_a_probe_that_nobody_hears_of_again_has_its_time(home: Path) -> None:
    clock = Clock()
    ours = budgets(home, clock)
    ours.rest_account("claude", "task-0", {}, clock())
    later = clock() + 901
    ours.wait_for("gen-pr", "claude", "task-1", later)
    waits = ours.wait_for("gen-pr", "claude", "task-2", later + 880)
    assert waits is not None
    assert waits.until == moment(stamp(later + 900))
    assert ours.wait_for("gen-pr", "claude", "task-2", waits.until) is None


def test_a_task_that_was_out_when_the_limit_was_met_does_not_wake_the_account(home: Path) -> None:
    clock = Clock()
    ours = budgets(home, clock)
    ours.rest_account("claude", "task-0", {"resets_at": stamp(clock() + 600)}, clock())
    ours.record_cost("gen-pr", "claude", "task-7", {}, clock() + 1)
    assert ours.wait_for("gen-pr", "claude", "task-2", clock() + 2) is not None


@pytest.mark.parametrize(("rule", "whose"), [("general_day_usd", "gen-pr"), ("day_usd", "gen-jira")])
def test_a_budget_that_is_used_up_waits_for_tomorrow(home: Path, rule: str, whose: str) -> None:
    clock = Clock("2026-02-07T10:00:00Z")
    ours = budgets(home, clock, **{rule: 1.0})
    ours.record_cost(whose, "claude", "task-1", {"cost_usd": 0.6, "tokens_used": 10}, clock())
    assert ours.wait_for("gen-pr", "claude", "task-2", clock()) is None
    ours.record_cost(whose, "claude", "task-2", {"cost_usd": 0.4}, clock())
    wait = ours.wait_for("gen-pr", "claude", "task-3", clock())
    assert wait is not None
    assert stamp(wait.until) == "2026-02-08T00:00:00Z"
    assert wait.why == f"budgets.{rule} is 1 and 1 has been spent today"
    assert ours.wait_for("gen-pr", "claude", "task-3", wait.until) is None


def test_anothers_spending_does_not_use_up_a_generals_own_budget(home: Path) -> None:
    clock = Clock()
    ours = budgets(home, clock, general_day_usd=1.0)
    ours.record_cost("gen-jira", "claude", "task-1", {"cost_usd": 5.0}, clock())
    assert ours.wait_for("gen-pr", "claude", "task-2", clock()) is None


def test_a_damaged_file_starts_empty(home: Path) -> None:
    clock = Clock()
    ours = budgets(home, clock)
    ours.rest_account("claude", "task-0", {}, clock())
    (home / "state" / "purse.json").write_bytes(b"{")
    assert ours.wait_for("gen-pr", "claude", "task-1", clock()) is None


DAMAGED: list[dict[str, Any]] = [
    {"rests claude": 5},
    {"rests claude": {}},
    {"rests claude": {"until": "soon", "probe": None}},
    {"rests claude": {"until": "2036-02-07T10:00:00Z"}},
    {"rests claude": {"until": "2036-02-07T10:00:00Z", "probe": 7}},
    {"spent 2026-02-07": 7},
    {"spent 2026-02-07": {"gen-pr": {}}},
    {"spent 2026-02-07": {"gen-pr": {"usd": "much", "tokens": 1}}},
    {"spent 2026-02-07": {"gen-pr": {"usd": True, "tokens": 1}}},
    {"spent 2026-02-07": {"gen-pr": {"usd": 1e308, "tokens": 1}}},
    {"spent 2026-02-07": {"gen-pr": {"usd": -1, "tokens": 1}}},
    {"spent 2026-02-07": {"gen-pr": {"usd": 1, "tokens": 1, "tasks": {"task-1": 7}}}},
    {"spent 2026-02-07": {"gen-pr": {"usd": 1, "tokens": 1, "accounts": []}}},
    {"spent 2026-02-07": {"gen-pr": {"usd": 1, "tokens": 1, "last": "task-1"}}},
    {"what": {}},
]


@pytest.mark.parametrize("damaged", DAMAGED, ids=str)
def test_a_damaged_entry_is_dropped_and_logged_once(home: Path, damaged: dict[str, Any]) -> None:
    clock = Clock()
    ours = budgets(home, clock, day_usd=5.0)
    sound = {"rests codex": {"until": stamp(clock() + 600), "probe": None}}
    write(home / "state" / "purse.json", {**damaged, **sound})
    assert ours.wait_for("gen-pr", "claude", "task-1", clock()) is None
    ours.record_cost("gen-pr", "claude", "task-1", {"cost_usd": 1}, clock())
    assert ours.wait_for("gen-pr", "codex", "task-1", clock()) is not None
    ours._log.flush()
    assert (home / "logs" / "gen-pr.log").read_text().count("dropped corrupt entries") == 1


def test_what_was_spent_is_kept_for_a_month_and_by_task_for_two_days(home: Path) -> None:
    clock = Clock("2026-02-07T00:00:00Z")
    ours = budgets(home, clock)
    for _ in range(45):
        ours.record_cost("gen-pr", "claude", "task-1", {"cost_usd": 1.0}, clock())
        clock.pass_(86400)
    kept = read_json(home / "state" / "purse.json")
    assert len(kept) == 41
    assert [day for day, row in kept.items() if "tasks" in row["gen-pr"]] == ["spent 2026-03-22", "spent 2026-03-23"]
    assert all(row["gen-pr"]["accounts"] == {"claude": {"usd": 1.0, "tokens": 0}} for row in kept.values())


@pytest.mark.parametrize(("rule", "whose"), [("general_month_usd", "gen-pr"), ("month_usd", "gen-jira")])
def test_a_months_budget_waits_for_the_next_month(home: Path, rule: str, whose: str) -> None:
    clock = Clock("2026-01-31T10:00:00Z")
    ours = budgets(home, clock, **{rule: 2.0})
    ours.record_cost(whose, "claude", "task-0", {"cost_usd": 5.0}, clock())
    for day in ("2026-02-01T10:00:00Z", "2026-02-27T10:00:00Z"):
        clock.set(day)
        assert ours.wait_for("gen-pr", "claude", "task-2", clock()) is None
        ours.record_cost(whose, "claude", "task-1", {"cost_usd": 1.0}, clock())
    wait = ours.wait_for("gen-pr", "claude", "task-3", clock())
    assert wait is not None
    assert (stamp(wait.until), wait.why) == (
        "2026-03-01T00:00:00Z",
        f"budgets.{rule} is 2 and 2 has been spent this month",
    )


def test_the_reserve_is_for_what_people_ask(home: Path) -> None:
    clock = Clock()
    ours = budgets(home, clock, day_usd=10.0, reserve_percent=20)
    ours.record_cost("gen-pr", "claude", "task-1", {"cost_usd": 8.0}, clock())
    wait = ours.wait_for("gen-pr", "claude", "task-2", clock())
    assert wait is not None
    assert wait.why.endswith("8 has been spent today; the last 20 % are for people's requests")
    assert ours.wait_for("gen-pr", "claude", "task-3", clock(), for_person=True) is None
    assert ours.left_usd("gen-pr", clock(), for_person=True) == 2.0
    assert ours.left_usd("gen-pr", clock(), for_person=False) == 0.0
    ours.record_cost("gen-pr", "claude", "task-3", {"cost_usd": 2.0}, clock())
    assert ours.wait_for("gen-pr", "claude", "task-4", clock(), for_person=True) is not None


def test_a_run_that_is_reported_again_after_a_kill_costs_once(home: Path) -> None:
    clock = Clock("2026-02-07T23:59:59Z")
    for _ in range(3):
        cost = {"cost_usd": 1.0, "tokens_used": 5}
        budgets(home, clock).record_cost("gen-pr", "claude", "task-1", cost, clock(), run="task-1/0/7-7")
        clock.pass_(10)
    budgets(home, clock).record_cost("gen-pr", "claude", "task-1", cost, clock(), run="task-1/1/9-9")
    kept = read_json(home / "state" / "purse.json")
    assert sum(day["gen-pr"]["usd"] for day in kept.values()) == 2.0


def test_what_is_left_is_told_to_a_millionth_of_a_dollar(home: Path) -> None:
    clock = Clock()
    assert budgets(home, clock, day_usd=1.0000014).left_usd("gen-pr", clock(), for_person=True) == 1.000001


def test_two_hundred_runs_are_known_again_and_the_oldest_is_forgotten(home: Path) -> None:
    clock = Clock()
    ours = budgets(home, clock)
    runs = [f"task-{number}/0/7-7" for number in range(200)]
    write(home / "state" / "purse.json", {"spent 2026-02-07": {"gen-pr": {"usd": 1.0, "tokens": 0, "last": runs}}})
    ours.record_cost("gen-pr", "claude", "task-1", {"cost_usd": 1.0}, clock(), run="task-200/0/7-7")
    row = read_json(home / "state" / "purse.json")["spent 2026-02-07"]["gen-pr"]
    assert row["last"] == [*runs[1:], "task-200/0/7-7"]


def test_a_run_that_is_reported_again_at_midnight_costs_once(home: Path) -> None:
    clock = Clock("2026-02-07T00:00:00Z")
    for _ in range(2):
        budgets(home, clock).record_cost("gen-pr", "claude", "task-1", {"cost_usd": 1.0}, clock(), run="task-1/0/7-7")
    assert read_json(home / "state" / "purse.json")["spent 2026-02-07"]["gen-pr"]["usd"] == 1.0


def test_of_many_tasks_the_dearest_are_kept(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kingdom.court.soldiers.budgets.MOST_TASKS", 2)
    clock = Clock()
    ours = budgets(home, clock)
    for number in (3, 1, 2):
        ours.record_cost("gen-pr", "claude", f"task-{number}", {"cost_usd": number}, clock())
    (row,) = read_json(home / "state" / "purse.json").values()
    assert (row["gen-pr"]["usd"], sorted(row["gen-pr"]["tasks"])) == (6, ["task-2", "task-3"])
