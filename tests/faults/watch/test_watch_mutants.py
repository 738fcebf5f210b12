"""The checks of this folder, each shown a kingdom with a defect that it must catch."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.faults import mutants, trees
from tests.faults.changes import Text, after, constant, drop, omit, replace
from tests.faults.mutants import Mutant
from tests.faults.oracle import Figure
from tests.faults.watch import (
    test_alert_storm,
    test_clock,
    test_crash_loop,
    test_ends,
    test_honest_load,
    test_hung,
    test_launcher,
    test_mended_files,
    test_orphans,
)
from tests.faults.watch.kingdoms import LAUNCHERS, THRESHOLD, kingdom

Check = Callable[[Path, str], list[str]]
"""Given a tree and a launcher."""


def hung_by(kind: str) -> Check:
    def check(tree: Path, launcher: str) -> list[str]:
        with kingdom(launcher, tree=tree, env={"KINGDOM_SHORT_RUN": "1"}) as court:
            court.up()
            test_hung.hang(court, {"envoy": kind})
        return []

    return check


def noticed(tree: Path, launcher: str) -> list[str]:
    """Whether the watcher sees that a role hangs; that it is replaced then is seen by its own check."""
    with kingdom(launcher, tree=tree) as court:
        court.up()
        court.cause_fault("envoy", "read")
        return [] if trees.until(court.missed, 4 * THRESHOLD) else ["nobody saw that its heart stood still"]


def slow_clone(tree: Path, launcher: str) -> list[str]:
    with test_honest_load.slow_git():
        return test_honest_load.check(tree, launcher, "slow clone", {})


CHECKS: dict[str, Check] = {
    "hung in a read": noticed,
    "hung and busy": hung_by("busy"),
    "slow clone": slow_clone,
    "mended": test_mended_files.check,
    "short lives": lambda tree, launcher: test_crash_loop.check_short_lives(tree, launcher, test_crash_loop.SHORT[1]),
    "ended": lambda tree, launcher: test_ends.check_comes_back(tree, launcher, []),
    "clock": test_clock.check_steps,
    "suspend": test_clock.check_suspend,
    "launcher killed": lambda tree, launcher: test_launcher.check_blow(tree, launcher, "launcher killed", []),
    "chamberlain hung": lambda tree, launcher: test_launcher.check_blow(tree, launcher, "chamberlain hung", []),
    "ends": lambda tree, launcher: test_ends.check_ends(tree, launcher, 6, 10, []),
    "just started": lambda tree, _: test_ends.check_down_of_the_new(tree),
    "orphans": lambda tree, launcher: test_orphans.check_orphans(tree, launcher, True, []),
    "storm": test_alert_storm.check_storm,
}

MUTANTS: list[Mutant] = [
    # 4: hung roles
    Mutant(
        "a thread beats",
        "kingdom.base.runtime.role",
        after(
            'A.write("starting")',
            "import threading\n"
            'beat = lambda: [(A.write("idle"), time.sleep(0.2)) for _ in iter(int, 1)]\n'
            "threading.Thread(target=beat, daemon=True).start()",
        ),
        caught_by="hung in a read",
        quick=True,
    ),
    Mutant(
        "a hung role is asked and never killed",
        "kingdom.court.steward.roll_call",
        drop("send(A, signal.SIGKILL)"),
        caught_by="hung and busy",
    ),
    Mutant(
        "a hung role is taken for dead",
        "kingdom.court.steward.roll_call",
        replace("A.living(B)", "False"),
        caught_by="hung and busy",
    ),
    # 5: honest load
    Mutant(
        "a clone is waited for",
        "kingdom.court.soldiers.workspace",
        replace("B[C] = D(child, E, F)", "child.wait()\nB[C] = D(child, E, F)"),
        caught_by="slow clone",
    ),
    # 6: crash loops
    Mutant(
        "short lives are not counted",
        "bin/role",
        Text("count=$((count + 1))", "count=0"),
        caught_by="short lives",
    ),
    # 7: clocks
    Mutant(
        "a heart's age is reckoned by the wall clock",
        "kingdom.court.steward.roll_call:RollCall._silence",
        replace(
            "return self._unchanged.since(...)",
            "return __import__('time').time() - os.path.getmtime(self._places.heartbeat(role))",
        ),
        caught_by="clock",
    ),
    Mutant(
        "a sleep counts as silence",
        "kingdom.court.steward",
        replace("min(max(0.0, A), longest_gap)", "max(0.0, A)"),
        caught_by="suspend",
    ),
    # 9: the launcher
    Mutant(
        "the chamberlain ends with its launcher",
        "kingdom.chamberlain",
        omit("RoleSpec", "survives_hup"),
        caught_by="launcher killed",
    ),
    Mutant(
        "nobody watches the chamberlain",
        "kingdom.court.steward.roll_call",
        replace("watcher(A.name) == B", "B == CHAMBERLAIN != A.name"),
        caught_by="chamberlain hung",
    ),
    # 10: ends
    Mutant(
        "TERM ends a role in the middle of an item",
        "kingdom.base.runtime.role",
        replace("signal.signal(number, self._stop)", "signal.signal(number, signal.SIG_DFL)"),
        caught_by="ends",
    ),
    Mutant(
        "a copy of supervisord is asked to end as the role that it will be",
        "kingdom.court.steward.supervisord:Supervisord.down",
        drop("self._wait_until_they_listen(A)"),
        caught_by="just started",
    ),
    # 11: orphans
    Mutant(
        "another home's soldiers are ours too",
        "kingdom.base.runtime.processes",
        replace("A is None or ours not in B", "A is None"),
        caught_by="orphans",
    ),
    Mutant(
        "a role that ended when it was asked to stays down",
        "kingdom.court.steward.diagnosis",
        replace("State.ENDED if A else State.WELL", "State.STOPPED"),
        caught_by="ended",
    ),
    Mutant(
        "of king and chamberlain both end as if the other one would start them again",
        "kingdom.base.runtime.role",
        replace("_is_missed(...)", "False"),
        caught_by="ended",
    ),
    # 39: files that are broken and mended
    Mutant(
        "a role that refused its configuration is not started again when that is mended",
        "kingdom.court.steward.diagnosis",
        replace("State.MENDED if A else State.REFUSED", "State.REFUSED"),
        caught_by="mended",
    ),
    Mutant(
        "permissions that are given back are no change of a file",
        "kingdom.base.disk.atomic",
        replace("[A, about.st_ctime_ns, B, C]", "[A, B, C]"),
        caught_by="mended",
    ),
    Mutant(
        "no copy of an accepted manifest is kept",
        "kingdom.court.king.accepted",
        drop("self._keep"),
        caught_by="mended",
    ),
    Mutant(
        "a chamberlain does not start while its configuration is broken",
        "kingdom.chamberlain",
        omit("role.RoleSpec", "keeps_config"),
        caught_by="mended",
    ),
    # 18: alerts
    Mutant(
        "every alert is a message",
        "kingdom.court.chamberlain.alerts",
        constant("PAUSES", "(0.0, 0.0, 0.0)"),
        caught_by="storm",
    ),
]
KNOWN = {mutant.name: mutant for mutant in MUTANTS}

_caught: list[bool] = []


@pytest.mark.parametrize("name", [mutant.name for mutant in mutants.chosen(MUTANTS)])
def test_a_seeded_defect_is_caught(name: str) -> None:
    # The defects are the program's, not the launcher's: half of them under each.
    launcher = LAUNCHERS[list(KNOWN).index(name) % len(LAUNCHERS)]

    def check(tree: Path, _: str) -> list[str]:
        try:
            return CHECKS[KNOWN[name].caught_by](tree, launcher)
        except AssertionError as seen:
            return [str(seen)]

    _caught.append(mutants.is_caught(KNOWN[name], check))
    assert _caught[-1], f"{KNOWN[name].caught_by} does not see that {name}"


def test_the_score(figure: Figure) -> None:
    figure(f"watch mutants caught: {sum(_caught)} of {len(_caught)}")
