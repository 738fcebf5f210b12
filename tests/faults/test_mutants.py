"""Every check of this folder is shown a program with a defect, and must catch it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.faults import (
    mutants,
    test_bad_config,
    test_bad_files,
    test_duplicates,
    test_full_disk,
    test_permissions,
    test_sweep_envoy,
    test_sweep_general,
    test_sweep_king,
    test_traversal,
    test_two_kings,
    test_warm_start,
)
from tests.faults.mutants import MUTANTS, Check
from tests.faults.sweep import KILL, Step, power_cuts, sweep

KNOWN = {mutant.name: mutant for mutant in MUTANTS}


def swept(step: Step, fault: str) -> Check:
    return lambda tree, near: sweep(step, fault, tree=tree, near=near, stop_at=1).bad


def cut(step: Step) -> Check:
    return lambda tree, near: power_cuts(step, tree=tree, stop_at=1, outcomes=[near]).bad


def whole(check: Callable[[Path], list[str]]) -> Check:
    return lambda tree, _: check(tree)


WHOLE = {
    **test_two_kings.CHECKS,
    **test_bad_files.CHECKS,
    **test_traversal.CHECKS,
    **test_permissions.CHECKS,
    **test_bad_config.CHECKS,
    **test_full_disk.CHECKS,
    **test_warm_start.CHECKS,
    **{name: test_duplicates.check_of(story) for name, story in test_duplicates.STORIES.items()},
}
CHECKS: dict[str, Check] = {
    "king kill": swept(test_sweep_king.KING, KILL),
    "king power": cut(test_sweep_king.KING),
    "orders kill": swept(test_sweep_king.ORDERS, KILL),
    "envoy kill": swept(test_sweep_envoy.ENVOY, KILL),
    "envoy power": cut(test_sweep_envoy.ENVOY),
    "general kill": swept(test_sweep_general.KILLED, KILL),
    **{name: whole(check) for name, check in WHOLE.items()},
}


@pytest.mark.parametrize("name", [mutant.name for mutant in mutants.chosen(MUTANTS)])
def test_a_seeded_defect_is_caught(name: str) -> None:
    caught = mutants.is_caught(KNOWN[name], CHECKS[KNOWN[name].caught_by])
    assert caught, f"{KNOWN[name].caught_by} does not see that {name}"
