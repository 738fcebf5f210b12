"""Coordinator's plan: what goes to whom, when, and what it makes of what comes twice or not at all."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import closing
from typing import Any

import pytest

from kingdom.council.team.plan import TeamPlan

WORKERS = ["ignitian_1", "ignitian_2", "ignitian_3"]


@pytest.fixture
def plan() -> Iterator[TeamPlan]:
    with closing(sqlite3.connect(":memory:")) as memory:
        yield TeamPlan(memory, "t")


def task(id: str, *needed: str, **fields: Any) -> dict[str, Any]:
    return {"task_id": id, "title": id, "dependencies": list(needed), **fields}


def given(plan: TeamPlan, workers: list[str] = WORKERS) -> dict[str, str]:
    return dict(plan.assign(workers))


def finish(plan: TeamPlan, *tasks: str) -> None:
    for one in tasks:
        plan.deliver(one, [{"file": f"{one}.md"}])


def test_each_free_ignitian_gets_one_task_by_priority_and_place(plan: TeamPlan) -> None:
    plan.add([task("a", priority="low"), task("b"), task("c", priority="high"), task("d", priority="critical")])
    assert given(plan, WORKERS[:2]) == {"d": "ignitian_1", "c": "ignitian_2", "b": "ignitian_1", "a": "ignitian_2"}


def test_a_second_task_is_given_ahead_only_while_there_are_more_than_ignitians(plan: TeamPlan) -> None:
    plan.add([task(id) for id in "abc"])
    assert given(plan) == {"a": "ignitian_1", "b": "ignitian_2", "c": "ignitian_3"}
    plan.add([task(id) for id in "de"])
    assert given(plan) == {}
    finish(plan, "b")
    assert given(plan) == {"d": "ignitian_2"}


def test_a_task_waits_for_all_that_it_needs_and_gets_what_they_have_delivered(plan: TeamPlan) -> None:
    plan.add([task("a"), task("b"), task("c", "b", "a")])
    assert given(plan) == {"a": "ignitian_1", "b": "ignitian_2"}
    finish(plan, "b")
    assert given(plan) == {}
    finish(plan, "a")
    assert list(given(plan)) == ["c"]
    assert plan.inputs("c") == [{"file": "a.md"}, {"file": "b.md"}]


def test_a_phase_begins_when_all_of_the_one_before_is_accepted(plan: TeamPlan) -> None:
    plan.add([task("a"), task("b", phase=2), task("c", phase=3)])
    assert list(given(plan)) == ["a"]
    finish(plan, "a")
    assert given(plan) == {}
    assert plan.accept("a")
    assert list(given(plan)) == ["b"]
    assert not plan.accept("a"), "once is enough"
    assert not plan.accept("b"), "nothing was delivered"
    assert given(plan) == {}


def test_whoever_has_done_the_like_is_preferred_among_the_free(plan: TeamPlan) -> None:
    plan.add([task("a", skills_required=["sql"]), task("b", skills_required=["web"])])
    assert given(plan) == {"a": "ignitian_1", "b": "ignitian_2"}
    finish(plan, "a", "b")
    plan.add([task("c", skills_required=["web"]), task("d", skills_required=["sql"])])
    assert given(plan) == {"c": "ignitian_2", "d": "ignitian_1"}


def test_a_list_that_comes_twice_adds_nothing(plan: TeamPlan) -> None:
    plan.add([task("a"), task("b", "a")])
    plan.add([task("a"), task("b", "a")])
    assert plan.counts().total == 2
    assert list(given(plan)) == ["a"]
    finish(plan, "a")
    assert list(given(plan)) == ["b"]


def test_a_task_belongs_to_the_ignitian_that_has_it(plan: TeamPlan) -> None:
    plan.add([task("a")])
    given(plan)
    assert plan.is_out("a", "ignitian-1")
    assert not plan.is_out("a", "ignitian_2")
    assert not plan.is_out("z", "ignitian_1")
    finish(plan, "a")
    assert not plan.is_out("a", "ignitian_1"), "its second report comes too late"


def test_a_task_that_failed_is_given_out_once_more(plan: TeamPlan) -> None:
    plan.add([task("a")])
    given(plan)
    assert plan.try_again("a")
    assert list(given(plan)) == ["a"]
    assert not plan.try_again("a")
    assert given(plan) == {}, "it has failed for good"


@pytest.mark.parametrize(
    ("tasks", "why"),
    [
        ([task("a", "z")], "a task needs z, which is not in the plan"),
        ([task("a", "b"), task("b", "a")], "tasks need each other in a circle"),
        ([task("a", "a")], "tasks need each other in a circle"),
        ([task("a", "b"), task("b", phase=2)], "a needs b, which is of a later phase"),
        ([task("a"), task("b", "a", phase=2)], ""),
    ],
)
def test_a_plan_that_cannot_be_followed_is_told(tasks: list[dict[str, Any]], why: str, plan: TeamPlan) -> None:
    plan.add(tasks)
    assert plan.fault() == why


def test_many_tasks_are_given_out_with_a_bounded_number_of_rows_each(plan: TeamPlan) -> None:
    """What is done for one task must not grow with the plan: 2,000 tasks cost each about what 200 do."""

    def steps(total: int) -> float:
        with closing(sqlite3.connect(":memory:")) as memory:
            plan = TeamPlan(memory, "t")
            plan.add([task(f"t{n}", *([f"t{n - 1}"] if n % 5 else [])) for n in range(total)])
            count = 0

            def tick() -> int:
                nonlocal count
                count += 1
                return 0

            memory.set_progress_handler(tick, 10)
            left, out = total, []
            while left:
                out += [one for one, _ in plan.assign([f"ignitian_{n}" for n in range(1, 33)])]
                finish(plan, out.pop(0))
                left -= 1
            return count / total

    assert steps(2000) < 2 * steps(200)
