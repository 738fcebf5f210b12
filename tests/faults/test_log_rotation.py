"""The log of internal events is rotated under its writers and its reader, who is killed and cut off from power at
every call: what is on the disk is counted, once."""

from __future__ import annotations

from pathlib import Path

from kingdom.base.disk.codec import read_json, read_json_or
from kingdom.base.home.places import Places
from tests.faults import homes, oracle, trees
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
