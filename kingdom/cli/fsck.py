"""`kingdom fsck`: check the files of a home, and repair them."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import click

from kingdom import wings
from kingdom.base import tables
from kingdom.base.disk.lock import is_locked
from kingdom.base.errors import Exit, Usage
from kingdom.base.home.places import Places
from kingdom.base.program import as_json, home
from kingdom.base.runtime.wake import Waker
from kingdom.base.wing import FsckFinding
from kingdom.base.words import count, one_line
from kingdom.court.steward.base import launching
from kingdom.court.upkeep import fsck as upkeep
from kingdom.court.upkeep.checks import CHECKS

PAUSE_SECONDS = 1.0
"""Between two looks: what moves meanwhile is no finding."""


@click.command(short_help="Check the files of this home, and repair them.")
@click.option("--repair", is_flag=True, help="Repair what can be repaired; all roles must be stopped.")
@click.option("--json", "in_json", is_flag=True, help="Print it as one line of JSON.")
def fsck(repair: bool, in_json: bool) -> int:
    """Check every queue, result, counter and index of this home, also while it runs.

    Each finding names the file, the broken rule, and what --repair would do. A repair deletes nothing: it moves files
    to dead/ with a reason, or to state/set-aside.

    Exit code 0: everything is in order or was repaired; 1: findings are left; 2: it cannot run.
    """
    places = home.own()
    places.check()
    if repair:
        with launching(places):
            refuse_while_at_work(places)
            findings = [
                *upkeep.mend(places, CHECKS, home.disk(places), time.time),
                *of_products(places, repair=True),
            ]
    else:
        findings = [*upkeep.look(places, CHECKS, time.time, _pause), *of_products(places, repair=False)]
    left = [finding for finding in findings if not finding.repaired]
    if in_json:
        print(
            as_json.line("fsck", {"findings": list(map(_as_json, findings)), "checks": len(CHECKS), "left": len(left)})
        )
    else:
        print("\n".join(_as_text(places, findings, repair)))
    return Exit.FAILED if left else Exit.DONE


def of_products(places: Places, *, repair: bool) -> Iterator[FsckFinding]:
    """Yield what is wrong in files that one product alone reads; some repair themselves."""
    for wing in wings.rows():
        for row in wing.inspections:
            yield from tables.load(row)(places, repair)


def _pause() -> None:
    Waker((), "poll").wait(PAUSE_SECONDS)


def refuse_while_at_work(places: Places) -> None:
    """Raise Usage, which names them, when roles or soldiers run."""
    if not places.state.is_dir():
        return
    running = [path.parent.name for path in places.locks() if is_locked(path) and path != places.launch_lock]
    running += [f"the soldier of {folder.name}" for folder in places.control_folders() if is_locked(folder / "lock")]
    if running:
        step = f"`{home.command()} down --soldiers` stops all"
        raise Usage(message=f"nothing is repaired while something runs ({', '.join(running[:5])}); {step}")


def _as_json(finding: FsckFinding) -> dict[str, object]:
    facts: dict[str, object] = {
        "check": finding.check,
        "rule": finding.rule,
        "path": str(finding.path),
        "what": finding.what,
    }
    return {**facts, "repair": finding.repair or None, "repaired": finding.repaired, "failed": finding.failed or None}


def _as_text(places: Places, findings: Sequence[FsckFinding], repair: bool) -> Iterator[str]:
    """Yield the lines that people read: the findings under the rule that they break."""
    rule = ""
    for finding in findings:
        if finding.rule != rule:
            rule = finding.rule
            yield f"{finding.check}: {rule}"
        yield f"  {one_line(_relative(finding.path, places), 200)}: {one_line(finding.what, 300)}{_ending(finding)}"
    if not findings:
        yield "All is well."
        return
    repaired = sum(finding.repaired for finding in findings)
    could = sum(bool(finding.repair) for finding in findings)
    how = f": `{home.command()} fsck --repair`, after `down`" if could else ""
    rest = f"{repaired} repaired" if repair else f"{could or 'none'} can be repaired{how}"
    yield f"{count(len(findings), 'finding')}, {rest}."


def _ending(finding: FsckFinding) -> str:
    if finding.repaired:
        return f" → {finding.repair}"
    return f" → not repaired: {one_line(finding.failed, 200)}" if finding.failed else ""


def _relative(path: Path, places: Places) -> str:
    return str(path.relative_to(places.home)) if path.is_relative_to(places.home) else str(path)
