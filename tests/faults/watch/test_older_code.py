"""Roles that were started before an upgrade: they are named, and `up` restarts them one after the other."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from tests.faults import trees
from tests.faults.oracle import Figure
from tests.faults.watch.kingdoms import PATIENT, ROLES, Kingdom, Load, kingdom, one_of


def upgrade(tree: Path) -> None:
    """Change the program as a pull does."""
    with open(tree / "kingdom" / "court" / "king" / "job.py", "a") as code:
        code.write("# newer\n")


def older(court: Kingdom) -> list[str]:
    view = json.loads(court.cli("status", "--json").stdout)
    return [role["name"] for role in view["roles"] if role["outdated"]]


@pytest.mark.parametrize("launcher", one_of("tmux"))
def test_up_restarts_the_roles_that_run_older_code_one_by_one(launcher: str, figure: Figure) -> None:
    tree = trees.new_folder()
    trees.copy_program(trees.CHECKOUT, tree)
    with kingdom(launcher, tree=tree, config=PATIENT) as court:
        load = Load(court)
        court.up()
        assert older(court) == []
        assert "older code" not in court.cli("doctor").stdout
        before = court.pids()
        upgrade(tree)
        outdated = older(court)
        assert set(ROLES) <= set(outdated)
        assert "run older code than is installed: `" in " ".join(court.cli("status").stdout.split())
        assert "run older code than is installed; `" in " ".join(court.cli("doctor").stdout.split())
        load.arrive(2)
        said = court.cli("up").stdout
        assert [line for line in said.splitlines() if "older code" in line] == [
            f"{role} ran older code and was restarted." for role in outdated
        ]
        court.wait_for_beats(*ROLES, not_by=before)
        assert older(court) == []
        after = court.pids()
        assert "older code" not in court.cli("up").stdout
        assert court.pids() == after
        load.wait_done(60)
        assert load.wrong() == []
    figure(f"newer program, {launcher}: {len(outdated)} of {len(outdated)} roles restarted, 0 events lost or doubled")


def test_a_role_that_does_not_come_up_with_newer_code_keeps_the_others_running() -> None:
    tree = trees.new_folder()
    trees.copy_program(trees.CHECKOUT, tree)
    with kingdom(one_of("tmux")[0], tree=tree, config=PATIENT) as court:
        court.up()
        before = court.pids()
        upgrade(tree)
        (court.places.config / "envoy.yaml").write_text("retry: {max_count: none}\n")
        done = court.cli("up")
        assert done.returncode == 1, done.stdout
        assert "envoy has not come up: " in done.stdout
        left = [role for role in ROLES if f"{role} ran older code" not in done.stdout and role != "envoy"]
        assert left
        assert all(court.pid(role) == before[role] and os.path.exists(f"/proc/{before[role]}") for role in left)
