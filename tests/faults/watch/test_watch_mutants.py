"""The checks of this folder, each shown a kingdom with a defect that it must catch."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.faults import mutants, trees
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
    test_orphans,
)
from tests.faults.watch.kingdoms import LAUNCHERS, kingdom

Check = Callable[[Path, str], list[str]]
"""Given a tree and a launcher."""

BIN_ROLE, ROLL_CALL = "bin/role", "kingdom/steward/roll_call.py"
ROLE, DIAGNOSIS = "kingdom/runtime/role.py", "kingdom/steward/diagnosis.py"


def hung_by(kind: str) -> Check:
    def check(tree: Path, launcher: str) -> list[str]:
        with kingdom(launcher, tree=tree, env={"KINGDOM_SHORT_LIFE": "1"}) as court:
            court.up()
            test_hung.hang(court, {"envoy": kind})
        return []

    return check


def slow_clone(tree: Path, launcher: str) -> list[str]:
    with test_honest_load.slow_git():
        return test_honest_load.check(tree, launcher, "slow clone", {})


CHECKS: dict[str, Check] = {
    "hung in a read": hung_by("read"),
    "hung and busy": hung_by("busy"),
    "slow clone": slow_clone,
    "short lives": lambda tree, launcher: test_crash_loop.check_short_lives(tree, launcher, test_crash_loop.SHORT[1]),
    "clock": test_clock.check_steps,
    "suspend": test_clock.check_suspend,
    "launcher killed": lambda tree, launcher: test_launcher.check_blow(tree, launcher, "launcher killed", []),
    "chamberlain hung": lambda tree, launcher: test_launcher.check_blow(tree, launcher, "chamberlain hung", []),
    "ends": lambda tree, launcher: test_ends.check_ends(tree, launcher, 6, 10, []),
    "orphans": lambda tree, launcher: test_orphans.check_orphans(tree, launcher, True, []),
    "storm": test_alert_storm.check_storm,
}

MUTANTS: list[Mutant] = [
    # 4: hung roles
    Mutant(
        "a thread beats",
        ROLE,
        '        self._heart.beat("starting")\n',
        '        self._heart.beat("starting")\n'
        "        import threading\n\n"
        '        beat = lambda: [(self._heart.beat("idle"), time.sleep(0.2)) for _ in iter(int, 1)]\n'
        "        threading.Thread(target=beat, daemon=True).start()\n",
        caught_by="hung in a read",
        quick=True,
    ),
    Mutant(
        "a hung role is asked and never killed",
        ROLL_CALL,
        "                groups.send([ending.pid], signal.SIGKILL)\n",
        "                pass\n",
        caught_by="hung and busy",
    ),
    Mutant(
        "a hung role is taken for dead",
        ROLL_CALL,
        "        if groups.living([ending.pid]):\n",
        "        if False:\n",
        caught_by="hung and busy",
    ),
    # 5: honest load
    Mutant(
        "a clone is waited for",
        "kingdom/soldiers/workspace.py",
        "        self._steps[task_id] = Step(child, mirror, makes)\n",
        "        child.wait()\n        self._steps[task_id] = Step(child, mirror, makes)\n",
        caught_by="slow clone",
    ),
    # 6: crash loops
    Mutant(
        "short lives are not counted",
        BIN_ROLE,
        "        count=$((count + 1))\n",
        "        count=0\n",
        caught_by="short lives",
        quick=True,
    ),
    # 7: clocks
    Mutant(
        "a heart's age is reckoned by the wall clock",
        ROLL_CALL,
        '        return self._unchanged.since(f"{role}\'s heart", heart, now)\n',
        "        return __import__('time').time() - os.path.getmtime(self._places.heartbeat(role))\n",
        caught_by="clock",
    ),
    Mutant(
        "a sleep counts as silence",
        DIAGNOSIS,
        "min(max(0.0, now - self._last), longest_gap)",
        "max(0.0, now - self._last)",
        caught_by="suspend",
    ),
    # 9: the launcher
    Mutant(
        "the chamberlain ends with its launcher",
        "kingdom/chamberlain/__main__.py",
        ", survives_hup=True",
        "",
        caught_by="launcher killed",
    ),
    Mutant(
        "nobody watches the chamberlain",
        ROLL_CALL,
        "        return [row for row in self._seats() if row.name == CHAMBERLAIN]\n",
        "        return []\n",
        caught_by="chamberlain hung",
    ),
    # 10: ends
    Mutant(
        "TERM ends a role in the middle of an item",
        ROLE,
        "            signal.signal(number, self._stop)\n",
        "            signal.signal(number, signal.SIG_DFL)\n",
        caught_by="ends",
    ),
    # 11: orphans
    Mutant(
        "another home's soldiers are ours too",
        "kingdom/runtime/processes.py",
        "        if ours in environment and task is not None",
        "        if task is not None",
        caught_by="orphans",
    ),
    # 18: alerts
    Mutant(
        "every alert is a letter",
        "kingdom/chamberlain/alerts.py",
        "PAUSES = (0.0, 10.0, 600.0)",
        "PAUSES = (0.0, 0.0, 0.0)",
        caught_by="storm",
    ),
]
KNOWN = {mutant.name: mutant for mutant in MUTANTS}

_caught: list[bool] = []


def plant(mutant: Mutant) -> Path:
    text = mutants.defective(mutant)
    tree = trees.new_folder()
    shutil.copytree(trees.program(), tree, dirs_exist_ok=True)
    (tree / mutant.file).write_text(text)
    if mutant.file.endswith(".py"):
        trees.compile_file(tree / mutant.file)
    return tree


@pytest.mark.parametrize("name", [mutant.name for mutant in mutants.chosen(MUTANTS)])
def test_a_seeded_defect_is_caught(name: str) -> None:
    mutant = KNOWN[name]
    tree = plant(mutant)
    # The defects are the program's, not the launcher's: half of them under each.
    launcher = LAUNCHERS[list(KNOWN).index(name) % len(LAUNCHERS)]
    try:
        found = CHECKS[mutant.caught_by](tree, launcher)
    except AssertionError as seen:
        found = [str(seen)]
    finally:
        trees.remove(tree)
    print(f"{name}, {launcher}: {found[0][:300] if found else 'NOT CAUGHT'}")
    _caught.append(bool(found))
    assert found, f"{mutant.caught_by} does not see that {name}"


def test_the_score(figure: Figure) -> None:
    figure(f"watch mutants caught: {sum(_caught)} of {len(_caught)}")


def test_every_mutant_still_fits_the_program() -> None:
    for mutant in MUTANTS:
        mutants.defective(mutant)
