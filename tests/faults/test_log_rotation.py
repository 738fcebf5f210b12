"""The log of internal events is rotated under its writers and its reader, who is killed and cut off from power at
every call: what is on the disk is counted, once."""

from __future__ import annotations

from pathlib import Path

import pytest

from kingdom.base.disk.codec import read_json, read_json_or
from kingdom.base.home.places import Places
from tests.faults import homes, mutants, oracle, trees
from tests.faults.changes import drop, replace
from tests.faults.mutants import Check, Mutant
from tests.faults.sweep import KILL, QUICK_POINTS, QUICK_STATES, Step, none_bad, power_cuts, sweep

START = f"import sys; sys.path.append({str(trees.CHECKOUT)!r}); from pathlib import Path; "
PROGRAM = f"{START}from tests.faults import chronicle_step; chronicle_step.main(Path('{{home}}'))"


def prepare(home: Path) -> None:
    homes.make(home)


def check(home: Path) -> list[str]:
    """As many events are counted as whole lines lie there, and nobody was told of a gap."""
    places = Places(home)
    lines = sum(path.read_bytes().count(b'"task.completed"') for path in places.logs.glob("events.log*"))
    counted = read_json(places.analysis / "stats.json")["totals"]["task_completed"]
    told = read_json_or(places.own("chamberlain") / "alerts.json", {}).get("waiting", [])
    return [*oracle.exactly("counted events", lines, counted), *(str(alert) for alert in told)]


CHRONICLE = Step("chronicle", ("-c", PROGRAM), prepare, check)


def test_no_kill_at_any_file_call_loses_or_doubles_an_event(figure: oracle.Figure) -> None:
    none_bad(sweep(CHRONICLE, KILL, budget=QUICK_POINTS), figure)


def test_no_power_cut_loses_or_doubles_an_event(figure: oracle.Figure) -> None:
    none_bad(power_cuts(CHRONICLE, budget=QUICK_STATES), figure)


CHECKS: dict[str, Check] = {
    "kill": lambda tree, near: sweep(CHRONICLE, KILL, tree=tree, budget=2, stop_at=1, near=near).bad,
    "power": lambda tree, _: power_cuts(CHRONICLE, tree=tree, budget=2, stop_at=1).bad,
}

MUTANTS = [
    Mutant(
        "counts are saved before the cursors",
        "kingdom.court.chamberlain.chronicle:Chronicle.read",
        replace("count.note()", "(count.note(), self._file.save())"),
        caught_by="kill",
        near="chronicle|tmp",
    ),
    Mutant(
        "a rotated log is not read to its end",
        "kingdom.court.chamberlain.event_log:_is_log",
        replace("name == A or B", "name == A"),
        caught_by="kill",
        near="chronicle",
        quick=True,
    ),
    Mutant(
        "a log that was counted may still be lost with the power",
        "kingdom.court.chamberlain.event_log:_read",
        drop("disk.sync_open"),
        caught_by="power",
    ),
    Mutant(
        "a log that was counted may lose its name with the power",
        "kingdom.court.chamberlain.event_log:_read",
        replace("path.parent if is_new else None", "None"),
        caught_by="power",
    ),
    Mutant(
        "a rotated log counts as a new one",
        "kingdom.court.chamberlain.event_log:_read",
        replace("_match(A, B, C)", "[at if file.path == A else NOT_READ for file, at in zip(B, _match(A, B, C))]"),
        caught_by="kill",
        near="chronicle",
    ),
]


@pytest.mark.parametrize("mutant", mutants.chosen(MUTANTS), ids=lambda mutant: mutant.name)
def test_a_seeded_defect_is_caught(mutant: Mutant) -> None:
    assert mutants.is_caught(mutant, CHECKS[mutant.caught_by])
