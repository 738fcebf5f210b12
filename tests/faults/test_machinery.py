"""The machinery itself: on a tiny role it names the wrong variants, and only those."""

import os
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from kingdom.base.disk.atomic import Disk
from kingdom.base.disk.codec import to_json
from kingdom.base.home.places import Places
from tests.faults import homes, oracle, powerloss, toy, trees
from tests.faults.sweep import BROKEN, FULL, KILL, Step, StepFails, spread, sweep
from tests.shell_roles import found_court

EVENTS = ("evt-a-1", "evt-a-2")
TOY = str(Path(toy.__file__))
SOME = toy.VARIANTS if trees.CAMPAIGN else ("right", "no_fsync")
CAUGHT_BY_KILL = {"in_place", "move_first", "random_ids", "leave_litter"}
CAUGHT_BY_POWER_LOSS = CAUGHT_BY_KILL | {"no_fsync"}


def prepare(home: Path) -> None:
    places = Places(home)
    for folder in places.folders():
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    disk = Disk(places.scratch("test"))
    for name in EVENTS:
        disk.create(places.queue_file("events", "pending", name), to_json(homes.event(name)))


def check(home: Path) -> list[str]:
    wrong = oracle.tidy(home)
    states = oracle.states_of(home, "events")
    tasks = [task["event_id"] for task in oracle.contents(home, "tasks")]
    for name in EVENTS:
        wrong += [] if states.get(name) == ["dispatched"] else [f"{name} lies in {states.get(name)}"]
        wrong += oracle.exactly(f"tasks of {name}", 1, tasks.count(name))
    return wrong


def step(variant: str) -> Step:
    return Step("toy", (TOY, variant), prepare, check)


@pytest.mark.parametrize("variant", SOME if trees.CAMPAIGN else ("in_place",))
def test_a_kill_at_every_call_names_exactly_the_wrong_variants(variant: str, monkeypatch: pytest.MonkeyPatch) -> None:
    if variant in CAUGHT_BY_KILL:
        monkeypatch.setattr(trees, "NEAR", ".")
    report = sweep(step(variant), KILL)
    print(report.details)
    assert bool(report.bad) == (variant in CAUGHT_BY_KILL)
    if not report.bad:
        assert not [*report.missed, *report.wobbles]
        assert not report.left_out


@pytest.mark.parametrize("fault", [FULL, BROKEN] if trees.CAMPAIGN else [FULL])
def test_a_failing_disk_is_injected_at_every_call_and_a_traceback_is_named(fault: str) -> None:
    report = sweep(step("right"), fault, budget=6)
    assert report.tried == 6 or trees.CAMPAIGN
    assert not report.missed
    assert all("a traceback: " in line for line in report.bad)
    assert report.bad


def test_a_step_that_is_wrong_without_a_fault_is_not_swept() -> None:
    with pytest.raises(StepFails, match="goes wrong without any fault"):
        sweep(replace(step("right"), check=lambda home: ["never right"]))


@pytest.mark.parametrize(("budget", "chosen"), [(1, [5]), (2, [0, 9]), (4, [0, 3, 6, 9]), (20, list(range(10)))])
def test_a_budget_takes_points_from_the_first_to_the_last(budget: int, chosen: list[int]) -> None:
    assert list(spread(range(10), budget)) == chosen


def judge(variant: str) -> powerloss.Judge:
    def judged(home: Path, cut: powerloss.Cut) -> list[str]:
        wrong = oracle.half_visible(home)
        again = trees.run(trees.program(), home, [TOY, variant])
        if again.returncode:
            return [*wrong, f"ended with {again.returncode}: {again.stderr[-300:]}"]
        acknowledged = [line.split()[1] for line in cut.said.decode().splitlines()]
        tasks = {task["event_id"] for task in oracle.contents(home, "tasks")}
        return wrong + check(home) + [f"{name} is lost" for name in acknowledged if name not in tasks]

    return judged


@pytest.mark.parametrize("variant", SOME)
def test_a_power_cut_at_every_call_names_the_wrong_variants(
    variant: str, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if variant in CAUGHT_BY_POWER_LOSS:
        monkeypatch.setattr(trees, "NEAR", ".")
    prepare(home)
    recorded = powerloss.record(
        [sys.executable, TOY, variant],
        home,
        cwd=trees.program(),
        env=trees.environment(trees.program(), home),
    )
    assert recorded.code == 0, recorded.errors
    report = powerloss.replay("toy", recorded, judge(variant))
    print(report.details)
    assert bool(report.bad) == (variant in CAUGHT_BY_POWER_LOSS)


def test_without_a_cut_the_model_ends_as_the_disk_did(home: Path) -> None:
    prepare(home)
    argv = [sys.executable, TOY, "right"]
    env = trees.environment(trees.program(), home)
    recorded = powerloss.record(argv, home, cwd=trees.program(), env=env)
    *_, (cut, picture) = powerloss.pictures(recorded, [powerloss.EVERYTHING])
    rebuilt = trees.new_folder() / "home"
    powerloss.build(picture, rebuilt)
    assert cut.said == b"done evt-a-1\ndone evt-a-2\n"
    assert tree_of(rebuilt) == tree_of(home)


def tree_of(folder: Path) -> dict[str, bytes | None]:
    return {str(path.relative_to(folder)): path.read_bytes() if path.is_file() else None for path in folder.rglob("*")}


def test_a_life_whose_pid_is_another_programs_by_now_is_over(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    court = found_court(home, monkeypatch)
    (home / "lives-king").write_text(f"{os.getpid()}\n")
    assert court.left() == []
